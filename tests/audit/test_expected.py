"""What a connector's config makes of records: fields that do not count, records that it drops, and what nobody can know."""

from __future__ import annotations

import pytest

from mm2mgr.audit.expected import NotJudgeable, TopicFacts, expectation, promises
from mm2mgr.audit.windows import ALL_FIELDS, Matching, RecordStep

KAFKAS = "org.apache.kafka.connect.transforms."
TOMBSTONES = {"predicates": "p", "predicates.p.type": f"{KAFKAS}predicates.RecordIsTombstone"}
HEADER = {"predicates": "p", "predicates.p.type": f"{KAFKAS}predicates.HasHeaderKey", "predicates.p.name": "x"}


def transform(class_: str, **settings: str) -> dict[str, str]:
    return {
        "transforms": "t",
        "transforms.t.type": f"{KAFKAS}{class_}",
        **{f"transforms.t.{k}": v for k, v in settings.items()},
    }


@pytest.mark.parametrize(
    ("config", "altered"),
    [
        ({}, set()),
        (transform("TimestampRouter"), set()),
        (transform("RegexRouter", regex="a", replacement="b"), set()),
        (transform("MaskField$Value", fields="a"), {"value"}),
        (transform("ExtractField$Key", field="a"), {"key"}),
        (transform("TimestampConverter$Value", field="a"), {"value"}),
        (transform("ValueToKey", fields="a"), {"key"}),
        (transform("InsertHeader", header="a"), {"headers"}),
        (transform("HeaderFrom$Value", operation="move"), {"headers", "value"}),
        (transform("HeaderFrom$Value", operation="copy"), {"headers"}),
        ({"header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter"}, {"headers"}),
    ],
)
def test_altered_fields_do_not_count(config: dict[str, str], altered: set[str]) -> None:
    expected = expectation(config, TopicFacts())
    assert set(ALL_FIELDS) - set(expected.fields) == altered
    said = " ".join(promises(config, TopicFacts(), expected))
    assert all(f"{name}: not compared" in said for name in altered)


def test_log_append_time_makes_the_timestamp_the_targets_own() -> None:
    facts = TopicFacts(target={"message.timestamp.type": "LogAppendTime"})
    assert expectation({}, facts).fields == ("key", "value", "headers")


@pytest.mark.parametrize(
    ("config", "step"),
    [
        ({**transform("Filter", predicate="p"), **TOMBSTONES}, RecordStep("", None, "tombstones")),
        (
            {**transform("Filter", predicate="p", negate="true"), **TOMBSTONES},
            RecordStep("", None, "tombstones", negated=True),
        ),
        ({**transform("Filter", predicate="p"), **HEADER}, RecordStep("", None, "header", "x")),
        (transform("DropHeaders", headers="a, b"), RecordStep("", frozenset({"a", "b"}))),
        (transform("Filter"), RecordStep("")),
    ],
)
def test_what_is_dropped_is_known_record_by_record(config: dict[str, str], step: RecordStep) -> None:
    (made,) = expectation(config, TopicFacts()).steps
    assert (made.removes, made.condition, made.header, made.negated) == (
        step.removes,
        step.condition,
        step.header,
        step.negated,
    )
    assert made.says.startswith("transformation 't' (")


@pytest.mark.parametrize(
    "config",
    [
        {"transforms": "t", "transforms.t.type": "org.example.Mine"},
        {**transform("Filter", predicate="p"), "predicates.p.type": "org.example.Mine"},
        {"transforms": "t"},
    ],
)
def test_what_is_not_kafkas_own_is_not_judged(config: dict[str, str]) -> None:
    with pytest.raises(NotJudgeable, match="not Kafka's own"):
        expectation(config, TopicFacts())


def test_topics_decide_how_records_belong_together() -> None:
    compacted = {"cleanup.policy": "compact,delete"}
    assert expectation({}, TopicFacts(source=compacted)).matching is Matching.LATEST
    assert expectation({}, TopicFacts(target=compacted)).matching is Matching.LATEST
    with pytest.raises(NotJudgeable, match="also written by other:x->y"):
        expectation({}, TopicFacts(compacted, compacted, ("other:x->y",)))
    drops = {
        "transforms": "drop",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.drop.predicate": "dead",
        "predicates.dead.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    }
    with pytest.raises(NotJudgeable, match="drops records"):
        expectation({**drops, "predicates": "dead"}, TopicFacts(source=compacted))
    with pytest.raises(NotJudgeable, match="transformation 't' alters keys"):
        expectation(transform("ValueToKey"), TopicFacts(target=compacted))
    assert expectation({}, TopicFacts(other_writers=("g",))).matching is Matching.FAN_IN
    assert expectation({}, TopicFacts()).matching is Matching.ORDERED
    assert expectation({}, TopicFacts(begins_at="latest")).late


def test_each_case_has_its_sentence() -> None:
    every = [
        ({}, TopicFacts(), "once, in order"),
        ({}, TopicFacts(exactly_once=True), "without aborted and open transactions"),
        ({}, TopicFacts(), "at least once"),
        ({}, TopicFacts(reads_committed=True), "source is read without aborted"),
        ({}, TopicFacts(other_writers=("g",)), "also written by g"),
        ({}, TopicFacts(source={"cleanup.policy": "compact"}), "of each key the latest record"),
        ({}, TopicFacts(begins_at="latest"), "expected to be missing"),
        ({**transform("Filter", predicate="p"), **TOMBSTONES}, TopicFacts(), "drops tombstones"),
    ]
    for config, facts, words in every:
        assert words in " ".join(promises(config, facts, expectation(config, facts)))
