"""Anonymous snapshots: whatever an estate is called, none of its names stands in the file, and patterns match as before."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mm2mgr.assignment import ASSIGNED_KEY
from mm2mgr.assignment_text import ASSIGNMENT_KEY, DIGEST_KEY, PLUGIN_CLASS, expected_task_config, read_text
from mm2mgr.comparison.ownership import JOURNAL_KEY, Journal, Move
from mm2mgr.connect.types import Plugin
from mm2mgr.connectors import ConnectorStatus, RunningConnector, TaskConfig, TaskStatus, assignment_of
from mm2mgr.errors import Failure, KafkaError, Mm2mgrError
from mm2mgr.kafka.acls import Acl, Right
from mm2mgr.kafka.inspection import ClusterView
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.reading import SILENCE_KEY
from mm2mgr.lint.rules import lint as run_lint
from mm2mgr.lint.tree import from_tree
from mm2mgr.live.anonymous import (
    SENTENCE_WORDS,
    MadeUpNames,
    anonymous_snapshot,
    anonymous_tree,
    collect_names,
    kafka_words,
    words_of,
)
from mm2mgr.live.kafka_state import KafkaState, RunningKafka, WantedLogs
from mm2mgr.live.principals import Principal
from mm2mgr.live.questions import Configs, PartitionCounts, Plugins, Statuses, TaskConfigs, TextsByKey, UserTopics
from mm2mgr.live.reach import ClientLogin
from mm2mgr.live.rights import EveryAcl, LoggedIn, LogIn, RightsOf
from mm2mgr.live.snapshot import Question, Snapshot
from mm2mgr.live.snapshot_file import read_snapshot, write_snapshot
from mm2mgr.operations import Workspace
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.render import FLOW_KEY, LANE_OF_KEY, OWNER_KEY
from mm2mgr.spec.files import yaml_text
from mm2mgr.spec.mistakes import model_words
from mm2mgr.spec.models import OVERRIDE_KEYS
from mm2mgr.spec.scalars import check_pattern, matcher

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
    lambda word: word not in PUBLIC | OF_THE_FORMAT | SENTENCE_WORDS
)
names = st.lists(words, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from([".", "_", "-"]).map(lambda mark: mark.join(parts))
)


def shaped(*forms: str) -> st.SearchStrategy[str]:
    """Return texts of these forms with words of an estate in them: as they are, capitalized, or not of ASCII."""
    spelt = st.one_of(words, words.map(str.capitalize), words.map(lambda word: f"é{word}ß"))
    return st.builds(lambda form, one, two: form.format(one, two), st.sampled_from(forms), spelt, spelt)


digits_first = words.map(lambda word: f"3{word}")
dotted = st.one_of(names, words.map("java.{}".format), words.map(lambda word: f"java.util.{word.capitalize()}"))
hosts = st.one_of(words, words.map("kafka.java.{}.com".format), st.builds("{}-1.{}.internal".format, words, words))
users = shaped("{}", "{} {}", "{}\\{}", "{}@{}.com", "CN={} Mirror,O={} Corp", "CN={},OU=x+UID={}")
estates = st.fixed_dictionaries(
    {
        "alias": st.one_of(words, digits_first),
        "connect": st.one_of(words, digits_first),
        "flow": words,
        "host": hosts,
        "user": users,
        "who": shaped("{}", "{} {}", "{} of {}"),
        "path": st.builds("/home/{}/{}/clusters/x.yaml".format, words, words),
        "spec": st.builds("{}/{}.yaml".format, words, words),
        "group": st.one_of(names, shaped("{}", "{} {}")),
        "label": shaped("{}", "{} {}"),
        "team": shaped("{}", "{} {}", "{}, {}"),
        "pattern": st.builds(
            "{}{}.*".format,
            st.sampled_from(["(?i:x)", "\\p{Alpha}", "(?<grp>y)", "\\Q.", "\\.", "[a-c]", "(?:z)?"]),
            words,
        ),
        "options": shaped(
            "principal = '{}/{}'", 'clientId="{}" scope="{}"', "keyTab=/etc/{}/{}", 'awsRoleArn = "arn:aws:{}:role/{}"'
        ),
        "topics": st.lists(dotted, min_size=1, max_size=6, unique=True),
    }
)
NO_NAMES = (
    PUBLIC
    | SENTENCE_WORDS
    | {
        "java",
        "util",
        "Mirror",
        "Corp",
        "internal",
        "grp",
        "Alpha",
        "aws",
        "arn",
        "role",
        "etc",
        "yaml",
        "home",
        "x",
        "y",
        "z",
    }
)


def private_words(estate: dict[str, Any]) -> set[str]:
    every = {word for value in estate.values() for word in words_of(value)}
    return {word for word in every if word not in NO_NAMES and len(word) > 2}


def snapshot_of(estate: dict[str, Any]) -> Snapshot:
    alias, connect, topics, host = estate["alias"], estate["connect"], estate["topics"], estate["host"]
    connector = f"mm2.{alias}.{connect}.source.{estate['flow']}"
    escaped = estate["user"].replace("\\", "\\\\")
    jaas = f'x.PlainLoginModule required username="{escaped}" {estate["options"]} password="hunter2";'
    config = {
        "name": connector,
        "topics": ",".join(topics),
        "source.cluster.alias": alias,
        "source.cluster.bootstrap.servers": f"{host}:9092,10.1.2.3:9092",
        "source.cluster.sasl.jaas.config": jaas,
        "policy.class": f"com.{estate['flow']}.Policy",
        "patterns": estate["pattern"],
        "others": ", ".join(topics),
    }
    tasks = (TaskConfig(0, {**config, ASSIGNED_KEY: ",".join(f"{topic}-0" for topic in topics)}),)
    trace = f"org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized: [{topics[0]}] at {host}:9092"
    failed = f"User:{estate['user']} at {host}/10.1.2.4:9092, fe80::17:{9}a, {estate['path']}: {estate['options']}"
    counts = dict.fromkeys(topics, 1)
    view = ClusterView("abcdefgh1234", (1,), frozenset({"Describe"}), counts, frozenset({estate["group"]}))
    login = ClientLogin.from_config(alias, {"bootstrap.servers": f"{host}:9092", "sasl.jaas.config": jaas})
    right = Right("Read", "topic", topics[0])
    logs = {TopicPartition(topic, 0): Offsets(0, 5) for topic in topics}
    entry = {
        "id": "1",
        "owner": estate["flow"],
        "who": estate["who"],
        "command": f"apply, spec {estate['path']}:6 and {estate['spec']}:7",
        "flows": [estate["flow"]],
        "reason": f"topics now {topics[-1]}",
        "outcome": "failed",
        "error": f"cannot read {estate['path']}, nor {estate['spec']}:8",
    }
    answers: dict[Question[Any], Any] = {
        Configs(connect): {connector: RunningConnector(connector, config)},
        Statuses(connect): {
            connector: ConnectorStatus(
                connector, "RUNNING", f"{host}:8083", tasks=(TaskStatus(0, "FAILED", f"{host}:8083", trace),)
            )
        },
        TaskConfigs(connect, connector): tasks,
        Plugins(connect): (Plugin(f"com.{estate['flow']}.Policy", "source", "1"),),
        PartitionCounts(alias): counts,
        UserTopics(alias): KafkaError(f"{alias}: no broker of {host}:9092 answered within 3 s"),
        KafkaState(alias, WantedLogs()): RunningKafka(
            counts,
            logs,
            failure=Failure(failed, hint=f"ask {estate['spec']}"),
            group_offsets={estate["group"]: dict.fromkeys(logs, 1)},
        ),
        LogIn(alias, login): LoggedIn(Principal(f"User:{estate['user']}"), view),
        RightsOf(alias, login, view, (right,)): {"topic": {topics[0]: {"Read": "yes"}}},
        EveryAcl(alias, None, view): (Acl(f"User:{estate['user']}", host, "Read", "topic", topics[0], False, True),),
        TextsByKey(alias, "mm2mgr.history.internal"): {f"entry/{connector}": json.dumps(entry)},
    }
    return Snapshot(answers)


def tree_of(estate: dict[str, Any]) -> dict[str, Any]:
    return {
        "owner": estate["flow"],
        "clusters": {
            estate["alias"]: {
                "bootstrap_servers": [f"{estate['host']}:9092"],
                "labels": {"tier": "local", estate["label"]: estate["team"]},
            }
        },
        "connect": {estate["connect"]: {"url": f"http://{estate['host']}:8083", "kafka": estate["alias"]}},
        "links": [{"between": [estate["alias"], estate["connect"]], "rtt": "80ms"}],
        "flows": {estate["flow"]: {"topics": {"include": [*estate["topics"], estate["pattern"]]}, "max_lag": "5min"}},
        "sizing": {estate["flow"]: {"source": f"p95 of {estate['path']}"}},
    }


def test_an_assignment_stays_one_with_made_up_topics_and_its_digest() -> None:
    topics = "acme.orders_v2-eu,clicks1"
    text = "version=1;rates=9000+7000;unlisted=10;acme.orders_v2-eu:0-7@0+9@1;clicks1:2@hold"
    config = {"connector.class": PLUGIN_CLASS, "topics": topics, ASSIGNMENT_KEY: text}
    assigned = expected_task_config(config) | {ASSIGNED_KEY: "acme.orders_v2-eu-0,clicks1-1"}
    answers = {
        Configs("one"): {"c": RunningConnector("c", config)},
        TaskConfigs("one", "c"): (TaskConfig(0, assigned),),
    }
    snapshot, made_up = Snapshot(answers, taken_at=1.0), MadeUpNames(b"salt", PUBLIC)
    collect_names(snapshot, made_up)
    new = anonymous_snapshot(snapshot, made_up).answers
    one, c = made_up.text("one"), made_up.text("c")
    connector = replace(new[Configs(one)][c], tasks=new[TaskConfigs(one, c)])
    assert connector.older_tasks == {}, "the digest is that of the made-up text"
    read = read_text(connector.config[ASSIGNMENT_KEY])
    assert ",".join(read.topics) == connector.config["topics"] == made_up.text(topics)
    assert list(read.topics.values()) == list(read_text(text).topics.values())
    assert not {"acme", "orders", "eu", "clicks1"} & {*words_of([connector.config, connector.tasks[0].config])}
    assert connector.is_held(TopicPartition(made_up.text("clicks1"), 2))


@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
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
    everything = json.dumps([json.loads(text), new_tree], ensure_ascii=False)
    assert private_words(estate) & set(words_of(everything)) == set()
    assert not re.search(r"10\.1\.2\.[34]|fe80", everything)
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
    assert [partition.topic for partition in assignment_of([task]).order] == list(topics)


@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(
    estate=estates,
    cut=st.integers(1, 4),
    tail=st.sampled_from([".*", "[.].*", "[a-z].*", "\\w*", "(-x)?"]),
    form=st.sampled_from(["{}", "(?i:{})", "(?:{})", "\\p{{Alpha}}?{}", "(?<grp>{})"]),
)
def test_a_pattern_matches_the_made_up_names_as_it_matched_the_real_ones(
    estate: dict[str, Any], cut: int, tail: str, form: str
) -> None:
    """A pattern that begins within a word cannot be translated, and becomes a list of names."""
    pattern = form.format(estate["topics"][0][:cut].rstrip("._-") + tail)
    made_up = MadeUpNames(b"salt", PUBLIC)
    made_up.collect([estate["topics"], pattern])
    is_translated = made_up.translate(pattern, estate["topics"])
    # Python cannot read Java's named groups, so nobody knows here what they matched.
    before = matcher([pattern], []) if "<grp>" not in form else lambda _: False
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


def test_a_list_in_place_of_a_pattern_is_a_pattern_whatever_signs_names_have() -> None:
    made_up, groups = MadeUpNames(b"salt", PUBLIC), ["billing (eu)+, new", "bill.x", "other"]
    made_up.collect(groups)
    assert not made_up.translate("bil.*", groups)
    matches = matcher([check_pattern(made_up.text("bil.*"))], [])
    assert [matches(made_up.text(group)) for group in groups] == [True, True, False]


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ({"3com": 1, "7up": 1, "42acme": 1}, "3com 7up 42acme"),
        ({"5min": 1, "orders": 1}, "5min orders"),
        ({"java.secretproj": 1, "java.util.Secret": 1}, "secretproj Secret"),
        ("kafka.java.acme.com:9092", "acme"),
        ("fe80::17:9a%eth0", "fe80 9a eth0"),
        ("ACME\\alice", "ACME alice"),
        ("User:ACME\\HOST$", "ACME HOST"),
        ("User:CN=Zorglub Mirror,O=Quux Corp", "Zorglub Quux Corp"),
        ("blarg-a, blarg-b", "blarg"),
        ({"Acme Payments": "of Zork"}, "Acme Payments Zork"),
        ({"error": "spec acme", "message": "zork it"}, "acme zork"),
        (KafkaError("User:CN=Zorglub Mirror,O=Quux Corp may not"), "Zorglub Quux"),
        (KafkaError("no: User:CN=Zorglub,O=Foo\\, Quux, C=DE"), "Zorglub Foo Quux"),
        (KafkaError('x required principal = "svc/acme" keyTab=/etc/zork;'), "acme zork"),
        (KafkaError("spec /srv/alice/quux/x.yaml:6, clusters/zork.yaml:7"), "alice quux zork"),
        (
            KafkaError("Connection to node 1 (k1.acme.com/10.0.0.1:9092) failed\n\tat com.zork.Policy.run(A.java:12)"),
            "acme zork",
        ),
    ],
)
def test_names_of_every_look_are_replaced(value: object, hidden: str) -> None:
    made_up = MadeUpNames(b"salt", PUBLIC)
    made_up.collect(value)
    new = made_up.value(value)
    text = new.message if isinstance(new, Mm2mgrError) else str(new)
    assert set(words_of(text)) & set(hidden.split()) == set(), text


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "\tat java.base/java.util.concurrent.FutureTask.run(FutureTask.java:264)",
        "60000 1.5 5min 80ms",
        "2026-03-01T02:00:00Z no broker answered within 3 s",
    ],
)
def test_what_names_nobody_stays(text: str) -> None:
    made_up = MadeUpNames(b"salt", PUBLIC)
    made_up.collect([{"orders.eu": "acme"}, KafkaError(text), *text.split()[:1]])
    assert made_up.text(text) == text


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


def test_the_keys_that_mm2mgr_adds_to_configs_stay() -> None:
    keys = (OWNER_KEY, FLOW_KEY, LANE_OF_KEY, JOURNAL_KEY, DIGEST_KEY, ASSIGNMENT_KEY, SILENCE_KEY)
    move = Move(("w", "c"), ("a", "b"), "", created=True, topics=("t",))
    journal = json.loads(Journal("", move=move, needs=("t",), gives=("w", "c")).added_to({})[JOURNAL_KEY])
    assert set(words_of([*keys, *journal, *journal["move"]])) <= PUBLIC
