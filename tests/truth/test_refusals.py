"""Lint against recorded answers of Kafka's own classes of four lines: `refused.json`, by `python -m tools.kafka_refusals.compare --golden 80 --seed 33`."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, cast

import pytest

from mm2mgr.connectors import ConnectorType
from mm2mgr.lint.rules import RULES
from mm2mgr.truth.keys import load
from tools.kafka_refusals.cases import FOREIGN, TYPES, healthy
from tools.kafka_refusals.compare import ASKED, GOLDEN, RELEASES, SAYING, cases, differences, errors, rules
from tools.kafka_refusals.kafka import Oracle

CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
QUESTIONS: list[dict[str, Any]] = json.loads(ASKED.read_text(encoding="utf-8"))
"""Cases of Kafka's tests (`from` names them), and some that people made up: `changes` to a healthy connector. `refused` is what Kafka's
classes answer (all four releases, or some), by `python -m tools.kafka_refusals.compare --asked`. `runs` are the rules with an error
about a config that Kafka takes and that does not do what it should; `judged` is false where a class of somebody else decides."""
ADDRESSES = {f"{key}.bootstrap.servers": f"{key}:9092" for key in ("source.cluster", "target.cluster")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kafka']}-{case['type']}")
def test_lint_refuses_what_kafka_refused(case: dict[str, Any]) -> None:
    config = {**healthy(case["type"]), **case["changes"]}
    told = errors(case["type"], config, case["kafka"], rules())
    if case["refused"]:
        assert told, case["refused"]
    else:
        assert not [text for rule, text in told if rule in SAYING]


def test_the_sample_holds_both_kinds_of_each_line() -> None:
    counts = Counter((case["kafka"], bool(case["refused"])) for case in CASES)
    assert counts.keys() == {(release, refused) for release in RELEASES for refused in (True, False)}
    assert min(counts.values()) >= 20


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: ",".join(question["changes"]))
def test_lint_answers_as_kafka_does(question: dict[str, Any]) -> None:
    """What Kafka refuses is an error of some rule; of what it takes there is no error but those of effects that it does not look at."""
    config = {**healthy(question["type"]), **ADDRESSES, "producer.override.bootstrap.servers": "target.cluster:9092"}
    refused = question["refused"]
    for release in RELEASES:
        told = errors(question["type"], config | question["changes"], release, RULES)
        if refused.get(release) if isinstance(refused, dict) else refused:
            assert told or not question.get("judged", True), (release, refused)
        else:
            assert {rule for rule, _ in told} <= {*question.get("runs", ())}, (release, told)


def test_what_lint_does_not_judge_is_a_class_of_somebody_else() -> None:
    unjudged = [question for question in QUESTIONS if not question.get("judged", True)]
    assert len(unjudged) < len(QUESTIONS) / 50
    assert all(re.search(r"lass|LoginModule|not be found", str(question["refused"])) for question in unjudged)


_FRAMEWORK = ("producer.override.", "consumer.override.", "admin.override.")
CLIENTS: dict[ConnectorType, tuple[str, ...]] = {
    "source": (
        *("source.cluster.", "target.cluster.", "admin.", "source.admin.", "target.admin.", "consumer."),
        *("source.consumer.", "producer.", "source.producer.", "target.producer.", *_FRAMEWORK),
    ),
    "checkpoint": (
        *("source.cluster.", "target.cluster.", "admin.", "source.admin.", "target.admin."),
        *("consumer.", "source.consumer.", "target.consumer.", *_FRAMEWORK),
    ),
    "heartbeat": ("target.cluster.", "admin.", "target.admin.", *_FRAMEWORK),
}
PLUGINS = ("transforms.t.", "predicates.p.")
OF_CLIENTS = ("security.protocol", "sasl.mechanism", "sasl.jaas.config", "ssl.truststore.type", "bootstrap.servers")
OF_ANY = (
    *("tasks.max", "transforms", "predicates", "key.converter", "value.converter", "header.converter"),
    *("source.cluster.alias", "replication.policy.class", "replication.policy.separator", "errors.tolerance"),
    *(
        "topic.creation.groups",
        "topic.creation.g.include",
        "topic.creation.default.partitions",
        "offsets.storage.topic",
    ),
    *("transforms.t.type", "transforms.t.predicate", "predicates.p.type", "exactly.once.support", "metric.reporters"),
)
OF_TYPES: dict[ConnectorType, tuple[str, ...]] = {
    "source": (
        *("topics", "topics.exclude", "topic.filter.class", "config.property.filter.class", "offset.lag.max"),
        *("offset-syncs.topic.replication.factor", "offset-syncs.topic.location", "sync.topic.acls.enabled"),
        *("refresh.topics.interval.seconds", "replication.factor", "consumer.poll.timeout.ms"),
    ),
    "checkpoint": (
        *("groups", "groups.exclude", "group.filter.class", "topic.filter.class", "sync.group.offsets.enabled"),
        *("checkpoints.topic.replication.factor", "offset-syncs.topic.location", "emit.checkpoints.interval.seconds"),
    ),
    "heartbeat": ("heartbeats.topic.replication.factor", "emit.heartbeats.interval.seconds"),
}


@pytest.mark.parametrize("release", RELEASES)
def test_every_kind_of_key_is_drawn(release: str) -> None:
    """A comparison that finds nothing says something only where it draws: keys of each client, plugins, classes of others."""
    drawn = list(cases(release, 1, 9000, 1000))
    keys: dict[str, set[str]] = {type_: set() for type_ in TYPES}
    for type_, changes in drawn:
        keys[type_] |= changes.keys()
    for type_ in TYPES:
        of_clients = {prefix + name for prefix in CLIENTS[type_] for name in OF_CLIENTS}
        assert {*of_clients, *OF_ANY, *OF_TYPES[type_]} - keys[type_] == set(), type_
    values = {value for _, changes in drawn for value in changes.values()}
    for purpose in ("transformation", "predicate", "converter", "header converter"):
        assert {*load().classes(purpose, release)} - values == set(), purpose
    settings = {
        key.removeprefix(start) for each in keys.values() for key in each for start in PLUGINS if key.startswith(start)
    }
    for plugin in (name for purpose in ("transformation", "predicate") for name in load().classes(purpose, release)):
        assert {key.name for key in load().settings(plugin, release)} - settings == set(), plugin
    foreign = {key for _, changes in drawn for key, value in changes.items() if value.startswith(FOREIGN)}
    of_the_connector = {"transforms.t.type", "predicates.p.type", "topic.filter.class", "replication.policy.class"}
    assert foreign >= of_the_connector
    assert {"producer", "consumer", "admin", "key"} <= {key.partition(".")[0] for key in foreign}


class Answers:
    """Kafka as an oracle that refuses what names one class."""

    def __init__(self, refused: str) -> None:
        self._refused = refused

    def refused(self, asked: list[tuple[ConnectorType, dict[str, str]]]) -> list[Any]:
        return [(("connector", "a class is missing"),) if self._refused in str(config) else () for _, config in asked]


@pytest.mark.parametrize(("refused", "judged"), [(f"{FOREIGN}.Own", False), ("retries", True)])
def test_only_a_class_of_somebody_else_is_not_judged(refused: str, judged: bool) -> None:
    changes = {"consumer.interceptor.classes": f"{FOREIGN}.Own", "consumer.retries": "x"}
    (found,) = differences(cast("Oracle", Answers(refused)), "4.3.1", [("source", changes)], ())
    assert found
    assert found.judged is judged
