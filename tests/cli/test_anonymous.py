"""Anonymous snapshots: whatever an estate is called, none of its names stands in the file, and patterns match as before."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr.connect.types import Plugin
from mm2mgr.connectors import ConnectorStatus, RunningConnector, TaskConfig, TaskStatus
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.acls import Acl, Right
from mm2mgr.kafka.inspection import ClusterView
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.rules import lint as run_lint
from mm2mgr.lint.tree import from_tree
from mm2mgr.live.anonymous import (
    MadeUpNames,
    anonymous_snapshot,
    anonymous_tree,
    collect_names,
    kafka_words,
)
from mm2mgr.live.kafka_state import KafkaState, RunningKafka, WantedLogs
from mm2mgr.live.principals import Principal
from mm2mgr.live.questions import Configs, PartitionCounts, Plugins, Statuses, TaskConfigs, TextsByKey, UserTopics
from mm2mgr.live.reach import ClientLogin
from mm2mgr.live.rights import EveryAcl, LoggedIn, LogIn, RightsOf
from mm2mgr.live.snapshot import Question, Snapshot
from mm2mgr.live.snapshot_file import read_snapshot, write_snapshot
from mm2mgr.operations import Workspace
from mm2mgr.partitions import ASSIGNED_KEY, Offsets, TopicPartition
from mm2mgr.spec.files import yaml_text
from mm2mgr.spec.mistakes import model_words
from mm2mgr.spec.models import OVERRIDE_KEYS
from mm2mgr.spec.scalars import matcher

REPOSITORY = Path(__file__).resolve().parents[2]
PUBLIC = kafka_words() | model_words()
# Keys of the file, and words of texts that are no names.
OF_THE_FORMAT = frozenset(
    [
        "mm2mgr",
        "snapshot",
        "taken",
        "at",
        "memory",
        "answers",
        "ask",
        "answer",
        "failed",
        "hint",
        "cluster",
        "name",
        "config",
        "tasks",
        "type",
        "task",
        "id",
        "without",
        "worker",
        "state",
        "trace",
        "class",
        "version",
        "partitions",
        "offsets",
        "unread",
        "failure",
        "ids",
        "configs",
        "acls",
        "group",
        "dedicated",
        "later",
        "ends",
        "topic",
        "login",
        "servers",
        "security",
        "assumed",
        "principal",
        "known",
        "view",
        "operations",
        "had",
        "groups",
        "usable",
        "brokers",
        "operation",
        "kind",
        "rights",
        "host",
        "allow",
        "wanted",
        "not",
        "authorized",
        "broker",
        "answered",
        "within",
        "required",
        "username",
        "now",
        "reason",
        "plugin",
    ]
)
words = st.from_regex(r"[a-z][a-z0-9]{2,7}", fullmatch=True).filter(
    lambda word: word not in PUBLIC and word not in OF_THE_FORMAT
)
names = st.lists(words, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from([".", "_", "-"]).map(lambda mark: mark.join(parts))
)
estates = st.fixed_dictionaries(
    {
        "alias": words,
        "connect": words,
        "flow": words,
        "host": words,
        "user": words,
        "group": names,
        "topics": st.lists(names, min_size=1, max_size=6, unique=True),
    }
)


def snapshot_of(estate: dict[str, Any]) -> Snapshot:
    alias, connect, topics, host = estate["alias"], estate["connect"], estate["topics"], estate["host"]
    connector = f"mm2.{alias}.{connect}.source.{estate['flow']}"
    jaas = f'x.PlainLoginModule required username="{estate["user"]}" password="hunter2";'
    config = {
        "name": connector,
        "topics": ",".join(topics),
        "source.cluster.alias": alias,
        "source.cluster.bootstrap.servers": f"{host}:9092,10.1.2.3:9092",
        "source.cluster.sasl.jaas.config": jaas,
        "policy.class": f"com.{estate['user']}.Policy",
    }
    tasks = (TaskConfig(0, {**config, ASSIGNED_KEY: ",".join(f"{topic}-0" for topic in topics)}),)
    trace = f"org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized: [{topics[0]}] at {host}:9092"
    counts = dict.fromkeys(topics, 1)
    view = ClusterView("abcdefgh1234", (1,), frozenset({"Describe"}), counts, frozenset({estate["group"]}))
    login = ClientLogin.from_config(alias, {"bootstrap.servers": f"{host}:9092", "sasl.jaas.config": jaas})
    right = Right("Read", "topic", topics[0])
    logs = {TopicPartition(topic, 0): Offsets(0, 5) for topic in topics}
    entry = {"id": "1", "owner": estate["user"], "flows": [estate["flow"]], "reason": f"topics now {topics[-1]}"}
    answers: dict[Question[Any], Any] = {
        Configs(connect): {connector: RunningConnector(connector, config)},
        Statuses(connect): {
            connector: ConnectorStatus(
                connector, "RUNNING", f"{host}:8083", tasks=(TaskStatus(0, "FAILED", f"{host}:8083", trace),)
            )
        },
        TaskConfigs(connect, connector): tasks,
        Plugins(connect): (Plugin(f"com.{estate['user']}.Policy", "source", "1"),),
        PartitionCounts(alias): counts,
        UserTopics(alias): KafkaError(f"{alias}: no broker of {host}:9092 answered within 3 s"),
        KafkaState(alias, WantedLogs()): RunningKafka(
            counts, logs, group_offsets={estate["group"]: dict.fromkeys(logs, 1)}
        ),
        LogIn(alias, login): LoggedIn(Principal(f"User:{estate['user']}"), view),
        RightsOf(alias, login, view, (right,)): {"topic": {topics[0]: {"Read": "yes"}}},
        EveryAcl(alias, None, view): (Acl(f"User:{estate['user']}", host, "Read", "topic", topics[0], False, True),),
        TextsByKey(alias, "mm2mgr.history.internal"): {f"entry/{connector}": json.dumps(entry)},
    }
    return Snapshot(answers)


def tree_of(estate: dict[str, Any]) -> dict[str, Any]:
    return {
        "owner": estate["user"],
        "clusters": {estate["alias"]: {"bootstrap_servers": [f"{estate['host']}:9092"], "labels": {"tier": "local"}}},
        "connect": {estate["connect"]: {"url": f"http://{estate['host']}:8083", "kafka": estate["alias"]}},
        "links": [{"between": [estate["alias"], estate["connect"]], "rtt": "80ms"}],
        "flows": {estate["flow"]: {"topics": {"include": estate["topics"]}, "max_lag": "5min"}},
    }


@settings(max_examples=60)
@given(estate=estates)
def test_no_name_of_an_estate_stands_in_the_file(estate: dict[str, Any]) -> None:
    snapshot, tree = snapshot_of(estate), tree_of(estate)
    made_up = MadeUpNames(b"salt", PUBLIC | {"tier", "local"})
    collect_names(snapshot, made_up)
    made_up.collect(tree)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "x.json"
        write_snapshot(file, Snapshot(anonymous_snapshot(snapshot, made_up).answers, taken_at=1.0))
        text = file.read_text()
        stored = read_snapshot(file, ())
    new_tree = anonymous_tree(tree, made_up)
    private = {
        word
        for value in [*estate.values()]
        for name in ([value] if isinstance(value, str) else value)
        for word in re.findall(r"[^\W_]+", name)
    }
    assert private & set(re.findall(r"[^\W_]+", text + json.dumps(new_tree))) == set()
    assert "10.1.2.3" not in text
    assert "hunter2" not in text
    assert new_tree["links"][0]["rtt"] == "80ms"
    assert new_tree["flows"][made_up.text(estate["flow"])]["max_lag"] == "5min"

    topics = stored[PartitionCounts(made_up.text(estate["alias"]))]
    assert list(topics) == [made_up.text(topic) for topic in estate["topics"]]
    assert len(topics) == len(estate["topics"]), "two names stay two"
    ((connector, info),) = stored[Configs(made_up.text(estate["connect"]))].items()
    assert info.config["topics"] == ",".join(topics)
    assert (
        connector
        == info.name
        == f"mm2.{'.'.join(made_up.text(estate[key]) for key in ('alias', 'connect'))}.source.{made_up.text(estate['flow'])}"
    )
    (task,) = stored[TaskConfigs(made_up.text(estate["connect"]), connector)]
    assert [partition.topic for partition in task.partitions] == list(topics)


@settings(max_examples=60)
@given(estate=estates, cut=st.integers(1, 4), tail=st.sampled_from([".*", "[.].*", "[a-z].*", "\\w*", "(-x)?"]))
def test_a_pattern_matches_the_made_up_names_as_it_matched_the_real_ones(
    estate: dict[str, Any], cut: int, tail: str
) -> None:
    """A pattern that begins within a word cannot be translated, and becomes a list of names."""
    pattern = estate["topics"][0][:cut].rstrip("._-") + tail
    made_up = MadeUpNames(b"salt", PUBLIC)
    made_up.collect([estate["topics"], pattern])
    before, is_translated = matcher([pattern], []), made_up.translate(pattern, estate["topics"])
    after = matcher([made_up.text(pattern)], [])
    for topic in estate["topics"]:
        assert after(made_up.text(topic)) == before(topic), (pattern, made_up.text(pattern), is_translated)


def test_words_of_kafka_stay_and_those_of_the_estate_are_the_same_everywhere() -> None:
    made_up = MadeUpNames(b"salt", PUBLIC)
    made_up.collect(["orders.eu", "kafka-1.acme.example"])
    orders, europe = made_up.text("orders"), made_up.text("eu")
    assert made_up.text("mm2-offset-syncs.eu.internal") == f"mm2-offset-syncs.{europe}.internal"
    assert made_up.text("__consumer_offsets") == "__consumer_offsets"
    assert made_up.text("a.checkpoints.internal, orders-0 of orders.eu") == (
        f"a.checkpoints.internal, {orders}-0 of {orders}.{europe}"
    )
    assert "acme" not in made_up.text("SASL_SSL://kafka-1.acme.example:9093/1: Connect to 10.0.0.7 failed")
    assert "10.0.0.7" not in made_up.text("SASL_SSL://kafka-1.acme.example:9093/1: Connect to 10.0.0.7 failed")


def test_lint_tells_the_same_of_the_example_estate_under_made_up_names(tmp_path: Path) -> None:
    example = Workspace((REPOSITORY / "clusters",), REPOSITORY / "templates")
    made_up = MadeUpNames(b"salt", PUBLIC)
    made_up.collect(example.spec.raw)
    tree = anonymous_tree({key: part for key, part in example.spec.raw.items() if key not in OVERRIDE_KEYS}, made_up)
    (tmp_path / "tree.yaml").write_text(yaml_text(tree))
    strange = Workspace((tmp_path,), example.templates)
    assert len(strange.connectors) == len(example.connectors)
    assert Counter(finding.rule for finding in lint(strange)) == Counter(finding.rule for finding in lint(example))


def lint(workspace: Workspace) -> list[Finding]:
    return run_lint(from_tree(workspace.topology, workspace.connectors, workspace.spec))
