"""Workers needed: held against every even spread that Connect could make, and the smallest number that holds."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.json_values import to_json
from mm2mgr.link import HEAP_SHARE, WORKER_HEAP_BYTES
from mm2mgr.sizing.fleet import (
    SIDE_TASK_HEAP_BYTES,
    Buffers,
    ConnectLoad,
    WorkerLimits,
    fullest,
    need,
    over_limits,
    per_pair,
)
from mm2mgr.text import size_text, span_text

from .assignor import Group
from .estates import MB, MIB, connect, run

flows = st.lists(st.lists(st.floats(0, 7 * MB), min_size=1, max_size=6), min_size=1, max_size=5)
limits = st.builds(
    WorkerLimits,
    st.integers(1, 6),
    st.none() | st.floats(300 * MIB, 2000 * MIB),
    st.none() | st.floats(5 * MB, 40 * MB),
)


def estate(loads: list[list[float]], worker: WorkerLimits | None = None, side_tasks: int = 0) -> ConnectLoad:
    return connect(*(run(f"f{n}", each) for n, each in enumerate(loads)), worker=worker, side_tasks=side_tasks)


def spread(load: ConnectLoad, workers: int, chance: random.Random) -> Group:
    """Create the flows' connectors and those of the side tasks in any order."""
    group = Group(workers)
    sizes = {each.flow_id: len(each.per_task) for each in load.runs}
    connectors = sizes | {f"side{number}": 1 for number in range(load.side_tasks)}
    for name in chance.sample(list(connectors), len(connectors)):
        group.create(name, connectors[name])
    return group


def busy(load: ConnectLoad, group: Group) -> list[list[float]]:
    """Return the loads of the flows' tasks by worker."""
    loads = {each.flow_id: each.per_task for each in load.runs}
    return [[loads[name][number] for name, number in hand if name in loads] for hand in group.workers]


def hold(load: ConnectLoad, group: Group) -> None:
    """Hold every worker of a group against the fullest that is predicted."""
    most = fullest(load, len(group.workers))
    hands = busy(load, group)
    assert max(map(len, hands)) <= most.tasks
    assert max(sum(hand) for hand in hands) <= most.bytes_per_second * (1 + 1e-9)
    heap = {each.flow_id: each.heap_bytes for each in load.runs}
    taken = [sum(heap.get(name, SIDE_TASK_HEAP_BYTES) for name, _ in hand) for hand in group.workers]
    assert WORKER_HEAP_BYTES + max(taken) <= most.heap_bytes * (1 + 1e-9)


@given(
    flows,
    st.integers(1, 6),
    st.integers(0, 9),
    st.lists(st.booleans(), max_size=6),
    st.randoms(use_true_random=False),
)
def test_no_spread_that_connect_makes_fills_a_worker_more_than_the_fullest(
    loads: list[list[float]], workers: int, side_tasks: int, joins: list[bool], chance: random.Random
) -> None:
    load = estate(loads, side_tasks=side_tasks)
    group = spread(load, workers, chance)
    hold(load, group)
    for joins_one in joins:
        if joins_one or len(group.workers) == 1:
            group.join()
        else:
            group.lose(chance.randrange(len(group.workers)))
        hold(load, group)


def test_a_worker_that_comes_back_can_get_all_tasks_of_a_flow() -> None:
    """As seen with real workers: two flows evenly on two of them, one worker goes, and comes back."""
    load = estate([[MB] * 3, [7 * MB] * 4], side_tasks=1)
    group = Group(2)
    for name, tasks in (("f0-heartbeat", 1), ("f0", 3), ("f1", 4)):
        group.create(name, tasks)
    assert sorted(map(sum, busy(load, group))) == [15 * MB, 16 * MB]
    group.lose(0)
    group.join()
    assert sorted(map(sum, busy(load, group))) == [3 * MB, 28 * MB]
    assert fullest(load, 2).bytes_per_second == 28 * MB


def test_idle_tasks_can_put_all_busy_ones_on_one_worker() -> None:
    """Three pairs with a task each on three workers: created in turn, every third task is a busy one."""
    load = estate([[7 * MB]] * 3, side_tasks=6)
    group = Group(3)
    for number in range(3):
        for name in (f"side{2 * number}", f"side{2 * number + 1}", f"f{number}"):
            group.create(name, 1)
    assert sorted(map(len, busy(load, group))) == [0, 0, 3]
    assert (fullest(load, 3).tasks, fullest(load, 3).bytes_per_second) == (3, 21 * MB)
    assert (
        need(connect(*load.runs, worker=WorkerLimits(1), side_tasks=6))
        .reasons[0]
        .endswith(
            "at most 1 on a worker: 9 workers, because Connect spreads idle ones too, so busy ones may end up together (3 without them)."
        )
    )


@given(flows, limits, st.integers(0, 9))
def test_the_number_needed_is_the_smallest_that_holds_every_limit(
    loads: list[list[float]], worker: WorkerLimits, side_tasks: int
) -> None:
    load = estate(loads, worker, side_tasks)
    most = load.tasks + side_tasks
    holding = [count for count in range(1, most + 1) if not over_limits(load.worker, fullest(load, count))]
    found = need(load)
    assert found.workers_needed == (holding[0] if holding else None)
    assert holding == list(range(holding[0], most + 1)) if holding else True
    json.dumps(to_json(found), allow_nan=False)


@given(flows, st.integers(1, 8), st.integers(0, 9))
def test_more_workers_never_make_the_fullest_one_fuller(
    loads: list[list[float]], workers: int, side_tasks: int
) -> None:
    load = estate(loads, side_tasks=side_tasks)
    before, after = fullest(load, workers), fullest(load, workers + 1)
    assert (after.tasks, after.heap_bytes) <= (before.tasks, before.heap_bytes)
    assert after.bytes_per_second <= before.bytes_per_second * (1 + 1e-9)


def test_each_limit_can_decide() -> None:
    flow = run("f", [5 * MB] * 12)
    assert need(connect(flow, worker=WorkerLimits(4))).by_limit == {"tasks": 3, "memory": 1, "network": 1}
    assert need(connect(flow, worker=WorkerLimits(99, network_bytes_per_second=20 * MB))).by_limit["network"] == 3
    heap = (WORKER_HEAP_BYTES + 3 * flow.heap_bytes) / HEAP_SHARE
    assert need(connect(flow, worker=WorkerLimits(99, heap_bytes=heap))).by_limit["memory"] == 4
    assert need(connect(flow, worker=WorkerLimits(99, heap_bytes=heap - MIB))).by_limit["memory"] == 6


def test_the_heap_of_the_measured_worker() -> None:
    """Four tasks of three partitions each: 355 MiB after collections (fetches of 4 MiB a partition, 32 MiB to send)."""
    found = fullest(connect(run("f", [1.0] * 12, tasks=4)), 1)
    assert found.heap_bytes == pytest.approx(355 * MIB, rel=0.02)


def test_heap_is_bounded_by_fetches_and_by_partitions() -> None:
    buffers = Buffers(16 * MIB, 4 * MIB, 32 * MIB, brokers=3, poll_records=0)
    assert [buffers.heap_bytes(count) / MIB for count in (0, 1, 12, 100)] == [32, 40, 128, 128]


def test_heap_holds_the_objects_of_what_one_poll_returns() -> None:
    few, many = (Buffers(16 * MIB, 16 * MIB, 32 * MIB, poll_records=count) for count in (500, 16_000))
    assert few.heap_bytes(1) == 64 * MIB + 500 * 700
    assert many.heap_bytes(1) == 64 * MIB + 16_000 * 700
    assert replace(many, poll_records=1_000_000).heap_bytes(1) < 1.2 * many.heap_bytes(1)  # no more than was fetched


def test_idle_tasks_cost_heap_and_take_places() -> None:
    flow = run("f", [MB] * 4)
    idle, without = fullest(connect(flow, side_tasks=6), 2), fullest(connect(flow), 2)
    assert (idle.tasks, without.tasks) == (4, 2)  # of ten tasks five each: all four of the flow and an idle one
    assert idle.heap_bytes - without.heap_bytes == 2 * flow.heap_bytes + SIDE_TASK_HEAP_BYTES


def test_one_task_that_is_too_much_for_a_worker_is_said() -> None:
    found = need(connect(run("f", [7 * MB]), worker=WorkerLimits(network_bytes_per_second=5 * MB)))
    assert (found.workers_needed, found.by_limit["network"]) == (None, None)
    assert "not possible: a single task already exceeds the limit" in found.reasons[2]
    assert found.reasons[-1].startswith("No number of workers is enough: raise the limits")


@pytest.mark.parametrize(
    ("today", "said"), [(None, "."), (1, "; today 1: too few."), (2, "; today 2: enough, without a spare."), (3, "; today 3: enough.")]
)  # fmt: skip
def test_today_is_judged(today: int | None, said: str) -> None:
    found = need(connect(run("f", [MB] * 20), today=today))
    assert found.reasons[-1] == f"2 workers needed, 3 with one spare{said}"


def test_a_cluster_a_pair_costs_a_spare_each() -> None:
    """Nine pairs of half a worker each: nine clusters of two, where seven and a spare do, idle tasks among the others."""
    found = per_pair([connect(*(run(f"s{n}", [MB] * 5) for n in range(9)), side_tasks=18)])
    assert (found.clusters, found.workers, found.shared_clusters, found.shared_workers) == (9, 18, 1, 8)
    assert found.heap_bytes == 18 * WORKER_HEAP_BYTES
    assert found.reason == (
        "With one Connect cluster per source–target pair: 9 clusters, 18 workers, instead of 1 Connect cluster with 8 workers "
        "(one spare worker each; 2.25 GiB and 1 GiB of heap before the first record)."
    )


def test_nothing_to_carry_needs_nothing() -> None:
    found = per_pair([])
    assert (found.clusters, found.workers, found.shared_workers) == (0, 0, 0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (119, "119 s"), (120, "2 min"), (2400, "40 min"), (9000, "2.5 h"), (180_000, "2.08 d")]
)  # fmt: skip
def test_spans_are_written_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert span_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1024, "1 KiB"), (355 * MIB, "355 MiB"), (1536 * MIB, "1.5 GiB")]
)
def test_sizes_are_binary(size: float, text: str) -> None:
    assert size_text(size) == text
