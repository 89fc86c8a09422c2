"""Rules over clusters: circles of records, mixed-up aliases, several sources of one topic."""

from __future__ import annotations

from time import process_time

import pytest

from mm2mgr.lint.findings import rules_of
from mm2mgr.lint.rules import BY_ID, lint, loops, pair
from mm2mgr.lint.subject import Estate, KafkaFacts, Subject
from tests.examples import sampled
from tests.lint import made

OWN = rules_of(loops, pair)
RULES = {rule.id for rule in OWN}
IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}


def flow(way: str, topics: str = ".*", changes: made.Changes | None = None, **facts: object) -> Subject:
    """Return the source connector of `A>B`; `A1>B` names cluster A's addresses and calls it A1."""
    source, target = way.split(">")
    ends = {
        "source.cluster.alias": source,
        "source.cluster.bootstrap.servers": f"{source[0].lower()}-kafka:9092",
        "target.cluster.alias": target,
        "target.cluster.bootstrap.servers": f"{target[0].lower()}-kafka:9092",
        "topics": topics,
    }
    return made.source({**ends, **(changes or {})}, name=f"{way} {topics}", **facts)


def told(*flows: Subject) -> set[str]:
    return {finding.rule for finding in lint(Estate(flows), OWN)}


@pytest.mark.parametrize(
    "ways",
    [
        ["A>B", "B>A"],
        ["A>B", "B>C"],
        ["A>H", "B>H", "H>A", "H>B"],
        ["A>B", "B>A", "B>C", "C>B", "A>C", "C>A"],
        ["A>B", "B>C", "C>A"],
    ],
)
def test_default_policy_with_one_alias_a_cluster_is_fine(ways: list[str]) -> None:
    assert told(*(flow(way) for way in ways)) == set()


@pytest.mark.parametrize("ways", [["A>B", "B>A"], ["A>B", "B>C", "C>A"], ["A>B", "B>C", "C>D", "D>A"]])
def test_names_kept_all_around(ways: list[str]) -> None:
    flows = [flow(way, changes=IDENTITY) for way in ways]
    (hit,) = made.hits("identity-loop", *flows)
    assert "in an endless loop" in hit.message
    assert told(*flows) == {"identity-loop"}


def test_one_narrow_filter_decides_what_goes_round() -> None:
    way = ["A>B", "B>C", "C>A"]
    patterns = [".*", r"orders\..*", ".*"]
    flows = [flow(each, topics, IDENTITY) for each, topics in zip(way, patterns, strict=True)]
    (hit,) = made.hits("identity-loop", *flows)
    assert "'orders." in hit.message


def test_names_kept_with_topics_apart() -> None:
    assert told(flow("A>B", "a-.*", IDENTITY), flow("B>A", "b-.*", IDENTITY)) == set()
    assert told(flow("A>B", ".*", {**IDENTITY, "topics.exclude": "b-.*"}), flow("B>A", "b-.*", IDENTITY)) == set()
    assert told(flow("A>B", "orders", IDENTITY), flow("B>A", "payments", IDENTITY)) == set()


def test_names_kept_by_two_active_clusters() -> None:
    assert told(flow("A>B", r"eu[.].*", IDENTITY), flow("B>A", r"us[.].*", IDENTITY)) == set()
    assert told(flow("A>B", "dc[12]-x", IDENTITY), flow("B>A", "dc[34]-x", IDENTITY)) == set()
    (hit,) = made.hits("identity-loop", flow("A>B", "dc[12]-x", IDENTITY), flow("B>A", "dc[32]-x", IDENTITY))
    assert "topic 'dc2-x' is mirrored A → B → A" in hit.message
    assert [each.name for each in hit.others] == ["B>A dc[32]-x"]
    ring = [
        flow(way, topics, IDENTITY)
        for way, topics in zip(("A>B", "B>C", "C>A"), ("[pq]1", "[qr]1", "[rp]1"), strict=True)
    ]
    assert told(*ring) == set()  # each two share a topic, all three none


@sampled("clusters", ["ABCDE"], ["ABCDEFGHIJ"])
def test_names_kept_by_many_active_clusters(clusters: str) -> None:
    mesh = [f"{one}>{other}" for one in clusters for other in clusters if one != other]
    assert told(*(flow(way, rf"{way[0].lower()}\..*", IDENTITY) for way in mesh)) == set()


def test_thousands_of_names_both_ways_take_no_time() -> None:
    here, there = [[f"orders-{number}-{side}" for number in range(8000)] for side in ("eu", "us")]
    rules = [BY_ID[rule] for rule in ("identity-loop", "overlap", "fan-in")]
    for extra, expected in (([], []), (["orders-7-us"], ["identity-loop"])):
        flows = (flow("A>B", ",".join([*here, *extra]), IDENTITY), flow("B>A", ",".join(there), IDENTITY))
        started = process_time()
        assert [finding.rule for finding in lint(Estate(flows), rules)] == expected
        assert process_time() - started < 2


def test_a_topic_that_changes_its_name_on_the_way() -> None:
    """What comes back is taken under its new name: the automata behind the first hop have read the alias already."""
    there, back = flow("A>B", "t[12]"), flow("B2>A2", r"A\.t[23]")
    (hit,) = made.hits("loop", there, back)
    assert "topic 't2' is mirrored A → B2 → A and returns as 'B2.A.t2', once" in hit.message
    assert made.hits("loop", there, flow("B2>A2", r"A\.t[34]")) == []


def test_what_is_not_decided_is_no_error_and_said() -> None:
    there, back = flow("A>B", "(?!x)[a-z]+-[12]", IDENTITY), flow("B>A", "[a-z]+-[34]", IDENTITY)
    assert told(there, back) == {"overlap-undecided"}
    (hit,) = made.hits("overlap-undecided", there, back)
    assert hit.message.endswith("mirror a topic in a loop: (?!x)[a-z]+-[12]")
    assert told(there, flow("A>B", "[a-z]+-[34]", IDENTITY)) == {"overlap-undecided"}
    unread = flow("B>A", "[^a[b]]", IDENTITY)
    assert told(there, unread) == {"overlap-undecided"}
    assert told(flow("A>B", "(?!x)[a-z]+-[12]"), flow("B>A", "[a-z]+-[34]")) == set()  # the policy finds circles itself


def test_names_that_meet_in_the_middle_only() -> None:
    (hit,) = made.hits("identity-loop", flow("A>B", "team-.*", IDENTITY), flow("B>A", ".*-events", IDENTITY))
    assert "team-x-events" in hit.message


def test_names_kept_there_and_prefixed_back() -> None:
    (endless,) = made.hits("identity-loop", flow("A>B", changes=IDENTITY), flow("B>A"))
    assert "in an endless loop" in endless.message
    (once,) = made.hits("identity-loop", flow("A>B", "orders", IDENTITY), flow("B>A", "orders"))
    assert "returns as 'B.orders', once" in once.message


def test_what_cannot_be_foretold_or_does_not_run_is_left_alone() -> None:
    for changes in ({"enabled": "false"}, {"transforms": "filter"}, {"topic.filter.class": "org.example.Own"}):
        assert "identity-loop" not in told(flow("A>B", changes=IDENTITY), flow("B>A", changes={**IDENTITY, **changes}))
    assert "identity-loop" not in told(flow("A>B", changes=IDENTITY), flow("B>A", changes=IDENTITY, state="STOPPED"))
    own = {"replication.policy.class": "org.example.Own"}
    assert told(flow("A>B", changes=own), flow("B>A", changes=own)) == set()


def test_another_alias_on_the_way_back() -> None:
    (both,) = made.hits("loop", flow("A>B"), flow("B2>A2"))
    assert "in an endless loop" in both.message
    assert both.key == "target.cluster.alias"
    (echo,) = made.hits("loop", flow("A>B"), flow("B2>A"))
    assert "once" in echo.message
    assert told(flow("A>B"), flow("B2>A2")) == {"loop"}


def test_no_target_alias() -> None:
    flows = [flow("A>B", changes={"target.cluster.alias": None}), flow("B>A", changes={"target.cluster.alias": None})]
    (hit,) = made.hits("loop", *flows)
    assert hit.key == "target.cluster.alias"
    assert "'target'" in hit.message
    one_way = [flow("A>B", changes={"target.cluster.alias": None}), flow("B>C")]
    assert told(*one_way) == set()


def test_two_separators() -> None:
    line = {"replication.policy.separator": "_"}
    (hit,) = made.hits("loop", flow("A>B"), flow("B>A", changes=line))
    assert hit.key == "replication.policy.separator"
    assert told(flow("A>B"), flow("B>A", changes=line)) == {"loop"}
    assert told(flow("A>B"), flow("B>C", changes=line)) == {"separator-differs"}
    assert told(flow("A>B"), flow("C>D", changes=line)) == set()
    assert told(flow("A>B", changes=line), flow("B>A", changes=line)) == set()


def test_another_separator_concerns_every_connector_of_the_pair() -> None:
    """One finding for all of them: a plan that held back only one would let it through once the other one runs."""
    line, one_way = {"replication.policy.separator": "_"}, {"target.cluster.alias": None}
    flows = [flow("A>B", "t"), flow("B>A", "u", line | one_way), flow("A>B", "v", line)]
    (hit,) = made.hits("separator-differs", *flows)
    assert set(hit.subjects) == set(flows)


def test_one_cluster_on_both_sides() -> None:
    same = {"target.cluster.bootstrap.servers": "a-kafka:9092"}
    assert "in an endless loop" in made.hits("self-mirror", flow("A>B", changes={**same, **IDENTITY}))[0].message
    assert "A.TOPIC, A.A.TOPIC" in made.hits("self-mirror", flow("A>B", changes=same))[0].message
    assert "a copy on the same cluster, A.orders" in made.hits("self-mirror", flow("A>B", "orders", same))[0].message
    assert "a copy on the same cluster, A.TOPIC" in made.hits("self-mirror", flow("A>B", "many.*", same))[0].message
    ids = {"source_kafka": KafkaFacts(cluster_id="one"), "target_kafka": KafkaFacts(cluster_id="two")}
    assert made.hits("self-mirror", flow("A>B", changes=same, **ids)) == []
    ids["target_kafka"] = KafkaFacts(cluster_id="one")
    assert made.hits("self-mirror", flow("A>B", **ids))


def test_one_alias_for_two_clusters() -> None:
    names = (
        "x-kafka:9092",
        "a-kafka2:9092",
        "10.0.0.1:9092",
        "a-kafka.ns.svc:9092",
    )  # other brokers, or another cluster
    for other in ({"source.cluster.bootstrap.servers": name} for name in names):
        assert told(flow("A>B", "a"), flow("A>B", "b", other)) == set()
        assert told(flow("A>B"), flow("A>B", "b|t", other)) == {"overlap"}  # wrong in either case
        assert told(flow("A>B"), flow("A>C", "t", other)) == set()  # no cluster in common
    facing = {"source.cluster.bootstrap.servers": "b-kafka:9092"}
    assert "alias-reused" in told(flow("A>B", "a"), flow("A>C", "b", facing))
    numbered = {"source.cluster.bootstrap.servers": "a-kafka2:9092"}
    apart = {"source_kafka": KafkaFacts(cluster_id="one")}, {"source_kafka": KafkaFacts(cluster_id="two")}
    assert told(flow("A>B", "a", **apart[0]), flow("A>B", "b", numbered, **apart[1])) == {"alias-reused"}


def test_two_aliases_for_one_cluster() -> None:
    (hit,) = made.hits("cluster-two-aliases", flow("A>B"), flow("A2>C"), flow("A>D"))
    assert hit.subject is not None
    assert hit.subject.source == "A2"
    assert hit.fix == "write source.cluster.alias=A"
    assert told(flow("A>B"), flow("A>C")) == set()


def test_the_separator_in_an_alias() -> None:
    (hit,) = made.hits("alias-has-separator", flow("us.west>B"))
    assert hit.fix == "write source.cluster.alias=us-west"
    assert made.hits("alias-has-separator", flow("us.west>B", changes=IDENTITY)) == []
    assert made.hits("alias-has-separator", flow("us.west>B", changes={"replication.policy.separator": "_"})) == []
    assert told(flow("us.west>B"), flow("B>us.west")) == {"alias-has-separator"}


def test_an_empty_separator_is_none() -> None:
    empty = {"replication.policy.separator": ""}
    (hit,) = made.hits("alias-has-separator", flow("A>B", changes=empty))
    assert (hit.key, hit.fix) == ("replication.policy.separator", "write replication.policy.separator=.")
    assert "separator-differs" in told(flow("A>B", "x", empty), flow("B>C", "y"))


def test_one_topic_of_several_sources() -> None:
    (hit,) = made.hits("fan-in", flow("A>C", "logs-.*", IDENTITY), flow("B>C", ".*", IDENTITY))
    assert "logs-" in hit.message
    assert made.hits("fan-in", flow("A>C", "a-.*", IDENTITY), flow("B>C", "b-.*", IDENTITY)) == []
    assert made.hits("fan-in", flow("A>C"), flow("B>C")) == []


@pytest.mark.parametrize("changes", [{}, IDENTITY])
def test_a_thousand_flows_are_quick(changes: dict[str, str]) -> None:
    """The product asks for one second; the bound leaves room for a busy machine."""
    pairs = [(index % 50, (index * 7 + index // 50 + 1) % 50) for index in range(1000)]
    flows = tuple(
        flow(f"{chr(0x4E00 + a)}>{chr(0x4E00 + b)}", rf"flow{index}\..*,t{index}", changes)
        for index, (a, b) in enumerate(pairs)
        if a != b
    )
    started = process_time()
    assert lint(Estate(flows, complete=True), OWN) == []
    assert process_time() - started < 5
