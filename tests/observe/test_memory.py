"""What one look leaves for the next: time that counts, time that does not, and flows that were not asked about."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.observe.memory import FlowMemory, Memory
from mm2mgr.observe.reading import ConditionClock
from mm2mgr.observe.state_file import change, load
from tests.fake_connect import FakeConnect, serving
from tests.observe.estate import TREE, Estate, sentences, topology_of

KEPT = Memory({"cb/x": ConditionClock(5.0, 6.0)}, {"f:A->B": FlowMemory("home", {"t-0": ConditionClock(1.0, 2.0)})})


def test_flows_that_were_not_looked_at_keep_their_memory(small: Estate) -> None:
    change(small.memory_file, lambda _: KEPT)
    small.status()
    kept = load(small.memory_file)
    assert kept.without_status["cb/x"] == ConditionClock(5.0, 6.0)
    assert kept.flows["f:A->B"] == KEPT.flows["f:A->B"]
    assert "orders:A->B" in kept.flows


@pytest.mark.parametrize("outage", [600, 20])
def test_time_in_which_the_source_cannot_be_read_does_not_count(small: Estate, outage: float) -> None:
    small.log(0, 100)
    small.stored(9)
    small.flow()
    assert small.flow(later_seconds=40).problems == ()
    small.kafka.down.add("A")
    unread = small.flow(later_seconds=outage)
    assert (unread.health, unread.problems) == ("unknown", ())
    small.kafka.down.clear()
    assert small.flow(later_seconds=outage).problems == (), "40 s of standing still were seen"
    assert small.flow(later_seconds=34).problems == ()
    assert "no progress for 75 s" in sentences(small.flow(later_seconds=1))[0]


def test_a_problem_is_not_repeated_while_nothing_is_known(small: Estate) -> None:
    small.log(0, 100)
    small.stored(9)
    small.flow()
    assert "no progress" in sentences(small.flow(later_seconds=100))[0]
    small.kafka.down.add("A")
    assert small.flow(later_seconds=338).problems == ()


def test_time_in_which_connect_cannot_be_read_does_not_count(small: Estate) -> None:
    small.log(0, 100)
    small.stored(9)
    small.flow()
    small.connect.fail_next("GET", f"/connectors/{small.source}/offsets", 404, "gone", times=99)
    assert small.flow(later_seconds=300).health == "unknown"
    small.connect.faults.clear()
    assert small.flow(later_seconds=300).problems == ()
    small.connect.fail_next("GET", "/connectors", 403, "no", times=99)
    assert small.flow(later_seconds=300).state == "unknown"
    small.connect.faults.clear()
    assert small.flow(later_seconds=300).problems == ()


def test_a_target_seen_again_that_moved_meanwhile_is_progress(small: Estate) -> None:
    """Stored offsets stand for a flush interval or longer, so what arrived before the target went dark is compared."""
    small.log(0, 100)
    small.stored(9)
    small.log(0, 50, alias="B", topic="A.orders")
    small.flow()
    small.kafka.down.add("B")
    assert small.flow(later_seconds=70).problems == ()
    small.kafka.down.clear()
    small.log(0, 90, alias="B", topic="A.orders")
    assert small.flow(later_seconds=20).health == "ok"


def test_a_target_that_did_not_move_meanwhile_proves_that_nothing_arrived(small: Estate) -> None:
    small.log(0, 100)
    small.stored(9)
    small.flow()
    small.kafka.down.add("B")
    assert small.flow(later_seconds=70).problems == ()
    small.kafka.down.clear()
    assert "no progress for 90 s" in sentences(small.flow(later_seconds=20))[0]


def test_a_target_seen_for_the_first_time_starts_the_clock(small: Estate) -> None:
    small.log(0, 100)
    small.stored(9)
    small.kafka.down.add("B")
    small.flow()
    assert small.flow(later_seconds=140).problems == ()
    small.kafka.down.clear()
    assert small.flow(later_seconds=1).problems == (), "one late flush was forgiven, and it may be that"
    assert "no progress for 75 s" in sentences(small.flow(later_seconds=75))[0]


def test_two_looks_days_apart_say_what_both_prove(small: Estate) -> None:
    small.log(0, 100)
    small.stored(9)
    small.flow()
    assert "no progress for 3 d" in sentences(small.flow(later_seconds=259_200))[0]


def test_partitions_that_moved_to_another_task_are_no_progress(small: Estate) -> None:
    small.log(0, 100)
    small.stored(49)
    small.stored(49, partition=1)
    small.log(0, 100, partition=1)
    small.flow()
    small.connect.connectors[small.source].forced_tasks = 1
    assert small.flow(later_seconds=10).health in {"waiting", "ok"}
    small.connect.connectors[small.source].forced_tasks = None
    assert small.flow(later_seconds=10).problems == ()


def test_pausing_ends_the_time_without_progress(small: Estate) -> None:
    small.log(0, 100)
    small.stored(9)
    small.flow()
    small.connect.connectors[small.source].state = "PAUSED"
    small.flow(later_seconds=500)
    small.connect.connectors[small.source].state = "RUNNING"
    assert small.flow(later_seconds=1).problems == ()


def test_a_clock_that_goes_back_is_no_problem(small: Estate) -> None:
    small.connect.connectors[small.source].hidden_reads = 99
    small.flow()
    assert small.flow(later_seconds=-5000).problems == ()


def test_new_partitions_again_and_again_are_no_partition_that_nobody_has(small: Estate) -> None:
    """Each is found at the next refresh; that there is always a newer one is no fault."""
    for number in range(5):
        small.kafka.clusters["A"][f"orders.{number}"] = [(0, 0)]
        small.kafka.clusters["A"].pop(f"orders.{number - 1}", None)
        flow = small.flow(later_seconds=400)
        assert flow.problems == ()
        assert any("have no task" in note for note in flow.notes)


def test_another_connect_cluster_under_the_same_name_starts_anew(tmp_path: Path) -> None:
    """A sandbox that was made again has the same names and other offsets: its topics were not created again under it."""
    for cluster_id, records in (("first", 1000), ("second", 100)):
        fake = FakeConnect(cluster_id=cluster_id)
        with serving(fake) as url:
            one = Estate(topology_of(TREE.format(url=url, more=""), tmp_path), fake, tmp_path)
            one.recreate(f"id of {cluster_id}")
            one.log(0, records)
            one.stored(records - 1)
            assert one.status().health == "ok"
