"""Topic settings and ACLs that MirrorMaker copies, and that do not reach the target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.json_values import to_json
from mm2mgr.kafka.acls import Acl
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.observe.beside_records import COPIED, TopicSync, mirrored_acl
from mm2mgr.observe.state_file import timed_looks
from mm2mgr.problems.health import FlowStatus
from tests.observe.estate import Estate, estate, kinds, sentences

KIND = "topic-configs-differ"
ACLS = "topic-acls-differ"
ROUND = 600  # the connector's interval


@pytest.fixture
def synced(small: Estate) -> Estate:
    """The small estate with a setting that is the same on both sides, and defaults."""
    small.kafka.defaults = {"retention.ms": "604800000", "cleanup.policy": "delete", "min.insync.replicas": "1"}
    small.kafka.settings = {("A", "orders"): {"retention.ms": "1000"}, ("B", "A.orders"): {"retention.ms": "1000"}}
    return small


def looks(estate: Estate, seconds: float, every: float = 150.0) -> Iterator[FlowStatus]:
    """Look every so many seconds, for so long."""
    for _ in range(int(seconds // every)):
        yield estate.flow(later_seconds=every)


def differ(estate: Estate, **settings: str) -> None:
    """Set settings on the source's topic only, with _ for the dot in their names."""
    estate.kafka.settings["A", "orders"] |= {name.replace("_", "."): value for name, value in settings.items()}


def test_a_setting_that_does_not_arrive_is_a_problem_until_it_does(synced: Estate) -> None:
    synced.flow()
    differ(synced, retention_ms="5000", cleanup_policy="compact")
    found = [kinds(one) for one in looks(synced, ROUND)]
    assert found == [[]] * 4, "the next round may still copy it"
    *_, late = looks(synced, ROUND)
    assert (kinds(late), late.health) == ([KIND], "problem")
    (one,) = late.problems
    assert to_json(one.evidence) == {
        "topics": ["A.orders"],
        "topic_count": 1,
        "settings": ["cleanup.policy", "retention.ms"],
        "interval_seconds": 600.0,
        "source": "A",
        "target": "B",
    }
    (said,) = sentences(late)
    assert said.startswith(
        "topic A.orders on B without the 2 settings (cleanup.policy, retention.ms) that A has, for 15 min (copied every 10 min): "
    )
    synced.kafka.settings["B", "A.orders"] = dict(synced.kafka.settings["A", "orders"])
    assert [kinds(one) for one in looks(synced, 300)][-1] == []


def test_settings_that_change_in_every_round_and_arrive_in_the_next_are_well(synced: Estate) -> None:
    for number in range(8):
        differ(synced, retention_ms=str(number))
        assert [one for one in looks(synced, ROUND - 150) if one.problems] == []
        if number % 2:
            synced.kafka.settings["B", "A.orders"] = dict(synced.kafka.settings["A", "orders"])


@pytest.mark.parametrize(
    "name",
    ["min.insync.replicas", "unclean.leader.election.enable", "message.timestamp.type"],
)
def test_what_the_connector_leaves_out_may_differ(synced: Estate, name: str) -> None:
    synced.kafka.settings["A", "orders"][name] = "2"
    assert [one for one in looks(synced, 3 * ROUND) if one.problems] == []


def test_what_is_set_on_the_target_only_or_is_a_default_may_differ(synced: Estate) -> None:
    synced.kafka.settings = {("B", "A.orders"): {"retention.ms": "1", "segment.ms": "2"}}
    assert [one for one in looks(synced, 3 * ROUND) if one.problems] == []


def test_a_setting_that_the_target_has_as_its_default_has_arrived(synced: Estate) -> None:
    differ(synced, retention_ms="604800000")
    synced.kafka.settings["B", "A.orders"] = {}
    assert [one for one in looks(synced, 3 * ROUND) if one.problems] == []


def test_a_setting_that_the_brokers_of_the_target_do_not_know_is_a_problem(synced: Estate) -> None:
    differ(synced, vendor_tier="cold")
    assert kinds([*looks(synced, 2 * ROUND)][-1]) == [KIND]


@pytest.mark.parametrize(
    "config",
    [
        {"sync.topic.configs.enabled": "false"},
        {"sync.topic.configs.interval.seconds": "-1"},
        {"sync.topic.configs.interval.seconds": "${file:/x:y}"},
        {"config.properties.exclude": "${file:/x:y}"},
        {"config.properties.exclude": "retention.*"},
        {"config.property.filter.class": "org.example.Ours"},
    ],
    ids=str,
)
def test_a_connector_that_does_not_copy_it_or_may_not_owes_nothing(synced: Estate, config: dict[str, str]) -> None:
    synced.connect.connectors[synced.source].config |= config
    differ(synced, retention_ms="5000")
    assert KIND not in {kind for one in looks(synced, 3 * ROUND) for kind in kinds(one)}


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_a_connector_at_rest_copies_nothing_and_starts_anew_when_it_runs(synced: Estate, state: str) -> None:
    differ(synced, retention_ms="5000")
    synced.flow()
    synced.connect.connectors[synced.source].state = state
    assert [one for one in looks(synced, 3 * ROUND) if KIND in kinds(one)] == []
    synced.connect.connectors[synced.source].state = "RUNNING"
    assert [one for one in looks(synced, ROUND) if KIND in kinds(one)] == []
    assert KIND in kinds([*looks(synced, ROUND)][-1])


@pytest.mark.parametrize("unreadable", ["A", "B", "A is down", "B is down", "Connect"])
def test_time_in_which_the_settings_cannot_be_read_does_not_count(synced: Estate, unreadable: str) -> None:
    differ(synced, retention_ms="5000")
    synced.flow()
    if unreadable == "Connect":
        synced.connect.answer_only("/connectors", 403)
    elif unreadable.endswith("down"):
        synced.kafka.down.add(unreadable[0])
    else:
        synced.kafka.hidden_settings.add(unreadable)
    assert {kind for one in looks(synced, 3 * ROUND) for kind in kinds(one)} <= {"no-progress"}
    synced.connect.faults.clear()
    synced.kafka.down.clear()
    synced.kafka.hidden_settings.clear()
    assert [one for one in looks(synced, ROUND) if KIND in kinds(one)] == []
    assert kinds([*looks(synced, ROUND)][-1]) == [KIND]


def test_settings_are_read_twice_a_round_and_only_of_topics_that_tasks_have(synced: Estate) -> None:
    synced.kafka.clusters["A"]["other"] = [(0, 0)]
    [*looks(synced, 2 * ROUND, every=50)]
    both = [("A", frozenset({"orders"})), ("B", frozenset({"A.orders"}))]
    assert sorted(synced.kafka.asked_settings) == sorted(both * 4)
    assert timed_looks(synced.memory_file).copied["configs"]["orders:A->B"].asked_at > synced.now - ROUND / 2


def test_a_damaged_memory_has_no_looks(tmp_path: Path) -> None:
    (file := tmp_path / "memory.json").write_text("{")
    assert timed_looks(file).copied == {}
    assert timed_looks(tmp_path / "missing.json").copied == {}


def test_a_tree_that_copies_no_settings_reads_none(tmp_path: Path) -> None:
    with estate(tmp_path, more="sync: {topic_configs: false}") as quiet:
        [*looks(quiet, ROUND)]
        assert quiet.kafka.asked_settings == []


# --- ACLs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Estate]:
    """The small estate, which copies ACLs; its topic has none."""
    with estate(tmp_path, more="sync: {topic_acls: true, topic_configs: false}") as copied:
        yield copied


def acl(
    operation: str, principal: str = "User:bob", *, topic: str = "orders", allow: bool = True, host: str = "*"
) -> Acl:
    return Acl(principal, host, operation, "topic", topic, prefixed=False, allow=allow)


def on_source(estate: Estate, *acls: Acl) -> None:
    estate.kafka.acls["A", "orders"] = set(acls)


def on_target(estate: Estate, *acls: Acl) -> None:
    estate.kafka.acls["B", "A.orders"] = {replace(one, name="A.orders") for one in acls}


def test_acls_that_do_not_arrive_are_a_problem_until_they_do(guarded: Estate) -> None:
    guarded.flow()
    on_source(guarded, acl("Read"), acl("All", "User:CN=eve"), acl("Describe", allow=False, host="10.0.0.1"))
    assert [kinds(one) for one in looks(guarded, ROUND)] == [[]] * 4, "the next round may still copy them"
    *_, late = looks(guarded, ROUND)
    (one,) = late.problems
    assert (one.kind, late.health) == (ACLS, "problem")
    assert to_json(one.evidence) == {
        "topics": ["A.orders"],
        "topic_count": 1,
        "acls": ["allow Read for User:CN=eve", "allow Read for User:bob", "deny Describe for User:bob from 10.0.0.1"],
        "interval_seconds": 600.0,
        "source": "A",
        "target": "B",
    }
    (said,) = sentences(late)
    assert said.startswith("topic A.orders on B without the 3 ACLs (allow Read for User:CN=eve, ")
    on_target(guarded, acl("Read"), acl("Read", "User:CN=eve"), acl("Describe", allow=False, host="10.0.0.1"))
    assert [kinds(one) for one in looks(guarded, 300)][-1] == []


@given(
    acls=st.sets(
        st.builds(
            acl,
            st.sampled_from(["Read", "Write", "All", "Describe", "AlterConfigs"]),
            st.sampled_from(["User:bob", "User:*"]),
            allow=st.booleans(),
            host=st.sampled_from(["*", "10.0.0.1"]),
        )
    ),
    others=st.sets(st.builds(acl, st.sampled_from(["Read", "Write", "All"]), st.just("User:hand"))),
)
def test_what_mirrormaker_makes_of_any_acls_is_all_that_the_target_needs(acls: set[Acl], others: set[Acl]) -> None:
    """Its own rules, after MirrorSourceConnector.shouldReplicateAcl and targetAclBinding; what else is on the target stays there."""
    made = set[Acl]()
    for one in acls:
        match one.allow, one.operation:
            case True, "Write":
                pass
            case True, "All":
                made.add(acl("Read", one.principal, topic="A.orders", host=one.host))
            case _:
                made.add(replace(one, name="A.orders"))
    assert {each for one in acls if (each := mirrored_acl(one, "A.orders"))} == made
    assert all(not (one.allow and one.operation in {"Write", "All"}) for one in made)
    side, there = (
        RunningKafka(acls={"orders": frozenset(acls)}),
        made | {replace(one, name="A.orders") for one in others},
    )
    for absent in [None, *made]:
        target = RunningKafka(acls={"A.orders": frozenset(there - {absent})})
        missing = COPIED["acls"].missing((side, "orders"), (target, "A.orders"), TopicSync(ROUND))
        assert missing == ({str(absent)} if absent else set())


@pytest.mark.parametrize("hidden", ["A", "B"])
def test_time_in_which_acls_cannot_be_read_does_not_count(guarded: Estate, hidden: str) -> None:
    on_source(guarded, acl("Read"))
    guarded.flow()
    guarded.kafka.hidden_acls.add(hidden)
    assert [one for one in looks(guarded, 3 * ROUND) if one.problems] == []
    guarded.kafka.hidden_acls.clear()
    assert [one for one in looks(guarded, ROUND) if one.problems] == []
    assert kinds([*looks(guarded, ROUND)][-1]) == [ACLS]


def test_a_tree_that_copies_no_acls_reads_none(synced: Estate) -> None:
    on_source(synced, acl("Read"))
    assert [one for one in looks(synced, 3 * ROUND) if one.problems] == []
    assert synced.kafka.asked_acls == []


def test_acls_are_read_twice_a_round(guarded: Estate) -> None:
    [*looks(guarded, 2 * ROUND, every=50)]
    both = [("A", frozenset({"orders"})), ("B", frozenset({"A.orders"}))]
    assert (sorted(guarded.kafka.asked_acls), guarded.kafka.asked_settings) == (sorted(both * 4), [])
