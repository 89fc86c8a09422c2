"""Rules about lists of topics, groups and properties, and the expressions in them."""

from __future__ import annotations

import pytest

from mm2mgr.lint.findings import rules_of
from mm2mgr.lint.rules import topics
from mm2mgr.lint.subject import KafkaFacts, Subject, WorkerFacts
from mm2mgr.truth import keys
from tests.lint import made

OWN = rules_of(topics)
RULES = {rule.id for rule in OWN}


@pytest.mark.parametrize(
    ("rule", "topics"),
    [
        ("bad-pattern", "orders,*"),
        ("bad-pattern", "["),
        ("bad-pattern", "a{1,2}"),
        ("bad-pattern", "orders("),
        ("glob-not-regex", "orders*"),
        ("glob-not-regex", "orders-*,payments"),
        ("pattern-dot", "payments.orders"),
        ("empty-topics", ""),
        ("empty-topics", "  "),
        ("include-excluded", "__consumer_offsets"),
        ("include-excluded", "orders,team.replica"),
        ("include-excluded", r"mm2-configs\.A\.internal"),
    ],
)
def test_topics_that_trip_one_rule(rule: str, topics: str) -> None:
    told = made.told(made.source({"topics": topics})) & RULES
    assert rule in told
    assert told <= {rule, "pattern-dot"}
    assert made.hits(rule, made.source({"topics": topics}))[0].key == "topics"


@pytest.mark.parametrize(
    "topics",
    [
        None,
        ".*",
        r"orders\.eu,team-\d*,[a-z]*,(a,b),\w*",
        "orders.*,payments",
        r"\Qpayments.orders\E",
        "a{2},(?i:x)",
        "${file:/x:y}",
        "team.internal",  # mirrored since 4.0, KIP-1074
    ],
)
def test_topics_that_trip_none(topics: str | None) -> None:
    assert made.told(made.source({"topics": topics})) & RULES - {"pattern-dot"} == set()


def test_lists_of_a_filter_class_of_ones_own_are_not_judged() -> None:
    own = {"topics": "*", "topics.exclude": "[", "topic.filter.class": "org.example.ByOwner"}
    assert made.told(made.source(own)) & RULES == set()


@pytest.mark.parametrize("key", ["topics.exclude", "config.properties.exclude"])
def test_other_lists_of_the_source_connector(key: str) -> None:
    (hit,) = made.hits("bad-pattern", made.source({key: "x,["}))
    assert hit.key == key


def test_lists_of_the_checkpoint_connector() -> None:
    assert made.hits("bad-pattern", made.checkpoint({"groups": "*"}))[0].key == "groups"
    assert made.hits("empty-topics", made.checkpoint({"groups": ""}))[0].key == "groups"
    assert "console" in made.hits("include-excluded", made.checkpoint({"groups": "app,console-consumer-7"}))[0].message
    assert made.hits("pattern-dot", made.checkpoint({"groups": "my.app"}))[0].key == "groups"
    assert made.told(made.checkpoint({"groups": "app"})) & RULES == set()


def test_internal_names_follow_the_version() -> None:
    old, new = (
        made.source({"topics": "team.internal"}, worker=WorkerFacts(version=version)) for version in ("3.9.1", "4.0.2")
    )
    assert made.hits("include-excluded", old)
    assert made.hits("include-excluded", new) == []


def test_a_dot_counts_only_where_a_topic_is_hit_when_topics_are_known() -> None:
    topics = {"topics": "pay.orders"}
    alone, beside = KafkaFacts(partitions={"pay.orders": 1}), KafkaFacts(partitions={"pay.orders": 1, "pay-orders": 1})
    assert made.hits("pattern-dot", made.source(topics, source_kafka=alone)) == []
    (hit,) = made.hits("pattern-dot", made.source(topics, source_kafka=beside))
    assert "pay-orders" in hit.message
    assert r"pay\.orders" in hit.fix


@pytest.mark.parametrize(
    ("subject", "what"),
    [
        (made.source({"topics": ".*", "topics.exclude": "tmp-.*"}), ".replica"),
        (made.source({"config.properties.exclude": r"retention\.ms"}), "min.insync.replicas"),
        (made.checkpoint({"groups.exclude": "tmp-.*"}), "console consumers"),
    ],
)
def test_a_list_that_takes_the_place_of_kafkas(subject: Subject, what: str) -> None:
    (hit,) = made.hits("exclude-replaced", subject)
    assert what in hit.message
    assert hit.key.endswith(".exclude")


@pytest.mark.parametrize("version", ["3.6.2", "3.9.2", "4.0.2", "4.3.1"])
def test_kafkas_own_lists_with_more_are_fine(version: str) -> None:
    known = keys.load()
    exclude = {
        key: f"{found.default},tmp-.*"
        for key in ("topics.exclude", "config.properties.exclude")
        if (found := known.find("source", key, version))
    }
    subject = made.source({"topics": ".*", **exclude}, worker=WorkerFacts(version=version))
    assert len(exclude) == 2
    assert made.told(subject) & RULES == set()
    assert made.hits("exclude-replaced", made.source({"topics": "orders", "topics.exclude": "tmp-.*"})) == []


def test_topics_of_the_workers_themselves() -> None:
    storage = {f"{what}.storage.topic": f"east-{what}s" for what in ("config", "offset", "status")}
    on_source = WorkerFacts(properties={"bootstrap.servers": "a1:9092", **storage})
    on_target = WorkerFacts(properties={"bootstrap.servers": "b1:9092", **storage})
    (hit,) = made.hits("catches-internal", made.source({"topics": ".*"}, worker=on_source))
    assert "east-configs" in hit.message
    excluded = hit.fix.removeprefix("write topics.exclude=")
    fixed = made.source({"topics": ".*", "topics.exclude": excluded}, worker=on_source)
    assert made.told(fixed) & RULES == set()
    assert made.hits("catches-internal", made.source({"topics": ".*"}, worker=on_target)) == []
    assert made.hits("catches-internal", made.source(worker=on_source)) == []


def test_refresh_off() -> None:
    assert made.hits("refresh-off", made.source({"refresh.topics.enabled": "false"}))[0].key == "refresh.topics.enabled"
    assert made.hits("refresh-off", made.checkpoint({"refresh.groups.enabled": "false"}))
    assert made.hits("refresh-off", made.source({"refresh.topics.enabled": "true"})) == []
