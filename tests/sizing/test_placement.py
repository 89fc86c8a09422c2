"""What runs now: who has which tasks, what they carry as assigned, and what is said where Connect reports something odd."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.connectors import ConnectorStatus, TaskStatus
from mm2mgr.sizing.fleet import Placement, placement_of

from .estates import MB, run

LOADS = {"mm2.source.logs": run("logs:a->hub", [5 * MB, 4 * MB, 3 * MB, 2 * MB, 1 * MB])}


def seen(name: str, *workers: str, state: str = "RUNNING", on: str = "w1") -> ConnectorStatus:
    """Return a connector with a task on each of these workers."""
    return ConnectorStatus(
        name, "RUNNING", on, tasks=tuple(TaskStatus(number, state, worker) for number, worker in enumerate(workers))
    )


def test_a_task_carries_what_the_deal_gives_it_by_its_number_and_not_by_its_load() -> None:
    found = placement_of([seen("mm2.source.logs", "w2", "w1", "w1")], LOADS)
    # Task 0 has the first and fourth partition, 1 the second and fifth, 2 the third.
    assert [(one.worker, one.flows, one.bytes_per_second) for one in found.workers] == [
        ("w1", {"logs:a->hub": (1, 2)}, 8 * MB),
        ("w2", {"logs:a->hub": (0,)}, 7 * MB),
    ]


def test_tasks_of_other_connectors_count_and_carry_nothing() -> None:
    found = placement_of([seen("mm2.heartbeat", "w1"), seen("jdbc", "w1", "w2", on="w3")], LOADS)
    rows = {one.worker: (one.connectors, one.tasks, one.flow_tasks, one.bytes_per_second) for one in found.workers}
    assert rows == {"w1": (1, 2, 0, 0), "w2": (0, 1, 0, 0), "w3": (1, 0, 0, 0)}


@pytest.mark.parametrize("state", ["RUNNING", "PAUSED", "FAILED", "RESTARTING"])
def test_a_worker_keeps_a_task_in_any_state_but_unassigned(state: str) -> None:
    assert placement_of([seen("c", "w1", state=state)], {}).nowhere == ()


def test_tasks_that_no_worker_has_are_named() -> None:
    found = placement_of([seen("c", "w1", "w2", state="UNASSIGNED"), seen("d", "")], {})
    assert found.nowhere == ("c-0", "c-1", "d-0")
    assert found.sentences(1) == ["Tasks without a worker now: c-0, c-1, d-0."]


def test_more_tasks_than_partitions_carry_nothing() -> None:
    found = placement_of([seen("mm2.source.logs", *["w1"] * 5, "w2", "w2")], LOADS)
    assert {one.worker: one.bytes_per_second for one in found.workers} == {"w1": 15 * MB, "w2": 0}


def test_another_number_of_workers_than_declared_is_said() -> None:
    found = placement_of([seen("c", "w1", "w2")], {})
    assert found.sentences(3) == ["3 workers declared (workers: count), 2 of them with tasks or connectors."]
    assert found.sentences(1) == ["1 worker declared (workers: count), but 2 with tasks or connectors."]
    assert found.sentences(2) == found.sentences(None) == placement_of([], {}).sentences(3) == []


def test_what_could_not_be_read_says_why() -> None:
    assert Placement(note="it sleeps").sentences(2) == [
        "Running tasks could not be read, so an even spread is assumed: it sleeps."
    ]


@given(
    st.lists(st.floats(0, 9 * MB), min_size=1, max_size=9),
    st.lists(st.sampled_from(["w1", "w2", "w3"]), min_size=1, max_size=9),
)
def test_nothing_is_lost_and_nothing_counted_twice(rates: list[float], workers: list[str]) -> None:
    flow = run("f", rates)
    used = workers[: len(rates)]
    found = placement_of([seen("s", *used), seen("side", "w1")], {"s": flow})
    assert sum(one.tasks for one in found.workers) == len(used) + 1
    assert sorted(number for one in found.workers for number in one.flows.get("f", ())) == list(range(len(used)))
    assert sum(one.bytes_per_second for one in found.workers) == pytest.approx(flow.load.total)
