"""What lint could not judge: every fact that a finding rests on is named where it is missing, and nothing where all are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.link import BrokerLimits
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import BY_ID, lint
from mm2mgr.lint.subject import Estate, KafkaFacts, LinkFacts, Subject, WorkerFacts
from mm2mgr.lint.unjudged import FACTS, NotJudged, not_judged
from tests.lint import made

from .test_corpus import FAULTY, TREE, Case, told

WORKER = WorkerFacts("4.3.1", {}, "All", exactly_once=False, cluster_id="B-id", plugins=frozenset({"x"}))
KNOWN = {
    "worker": WORKER,
    "source_kafka": KafkaFacts("A-id", 3, 1_048_588),
    "target_kafka": KafkaFacts("B-id", 3, 1_048_588),
    "wire": LinkFacts(0.08, source=BrokerLimits(read=True)),
}


def missing(*subjects: Subject, complete: bool = True) -> list[str]:
    return [each.fact for each in not_judged(Estate(subjects, complete=complete), BY_ID)]


def test_facts_name_rules_that_exist() -> None:
    assert {rule for fact in FACTS for rule in fact.rules} <= BY_ID.keys()
    assert len({fact.name for fact in FACTS}) == len(FACTS)


def test_nothing_is_open_where_all_is_known() -> None:
    assert missing(made.source(**KNOWN), made.checkpoint(**KNOWN), made.heartbeat(**KNOWN)) == []


def test_all_that_a_single_file_leaves_open() -> None:
    subject = made.source({"producer.override.bootstrap.servers": "c1:9092"})
    assert missing(subject, complete=False) == [
        "Kafka version of the workers",
        "cluster ids",
        "override policy",
        "properties of the workers",
        "plugins of the workers",
        "exactly-once of the workers",
        "number of brokers",
        "record limits of brokers and topics",
        "round trip",
        "the other connectors",
    ]


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"worker": WorkerFacts("4.3.1", {}, "All", plugins=frozenset())}, ""),  # the override has the target's address
        (
            {"worker": WorkerFacts("4.3.1", None, "All", exactly_once=False, plugins=frozenset())},
            "properties of the workers",
        ),
        ({"target_kafka": KafkaFacts("B-id", None, 9)}, "number of brokers"),
        ({"wire": None}, "round trip"),
        ({"wire": LinkFacts(0.08)}, "what brokers allow"),
    ],
)
def test_a_fact_that_is_missing_is_named(changes: dict[str, object], fact: str) -> None:
    assert missing(made.source(**{**KNOWN, **changes})) == [fact] * bool(fact)


def test_classes_of_others_are_judged_where_workers_list_their_plugins() -> None:
    sieve = {"transforms": "t", "transforms.t.type": "com.acme.Sieve"}
    assert missing(made.source(sieve, **KNOWN)) == ["classes that are not Kafka's"]
    asked = {**KNOWN, "worker": replace(WORKER, others=frozenset({"com.acme.Sieve"}))}
    assert missing(made.source(sieve, **asked)) == []
    assert missing(made.source({"transforms.t.type": "com.acme.Sieve"}, **KNOWN)) == []


def test_a_class_of_ones_own_and_one_alias_with_other_addresses() -> None:
    own = made.source({"replication.policy.class": "org.example.Own"}, **KNOWN)
    assert missing(own) == ["classes that are not Kafka's", "what classes of one's own do"]
    no_ids = {**KNOWN, "source_kafka": KafkaFacts(None, 3, 9)}
    other = made.source({"source.cluster.bootstrap.servers": "a9:9092"}, name="other", **no_ids)
    assert missing(made.source(**no_ids), other) == ["cluster ids of one alias"]
    assert missing(made.source(**KNOWN), made.source({"source.cluster.bootstrap.servers": "a9:9092"}, **KNOWN)) == []


def test_a_filter_between_topics_that_keep_their_names_decides_about_loops() -> None:
    guard = {
        "replication.policy.class": f"{made.MIRROR}IdentityReplicationPolicy",
        "transforms": "drop",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.drop.predicate": "came",
        "predicates": "came",
        "predicates.came.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
        "predicates.came.name": "origin",
    }
    assert missing(made.source(guard, **KNOWN)) == ["what Filter transformations let through"]


def test_rules_that_are_left_out_leave_nothing_open_and_brokers_say_why() -> None:
    silent = KafkaFacts(unanswered="B: no broker of b1:9092 answered within 0.5 s")
    subject = made.source({"producer.override.bootstrap.servers": None}, **{**KNOWN, "target_kafka": silent})
    (found,) = not_judged(Estate((subject, subject), complete=True), {"wrong-kafka"})
    fact = FACTS[1]
    assert found == NotJudged(fact.name, fact.open, fact.give, ("wrong-kafka",), 2, (silent.unanswered,))
    assert not_judged(Estate((subject,), complete=True), {"dead-key"}) == ()


WITH_FACTS = [
    case
    for case in FAULTY
    if any(case.data.get(name) for name in ("version", "worker", "wire", "source", "target"))
    and not any(TREE.search(text) for text in case.texts().values())
]


@pytest.mark.parametrize("case", WITH_FACTS, ids=lambda case: case.name)
def test_a_finding_that_rests_on_a_fact_is_said_to_be_open_without_it(case: Case, tmp_path: Path) -> None:
    for name, text in case.texts().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    estate = read_files([tmp_path / name for name in case.texts()])
    found = lint(estate)
    lost = {expect["rule"] for expect in case.expected} - {finding.rule for finding in found}
    open_ = {rule for each in not_judged(estate, BY_ID) for rule in each.rules}
    assert lost <= open_, f"{lost - open_} of {told(found)}"
