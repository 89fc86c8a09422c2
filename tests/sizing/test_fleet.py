"""Workers needed: held against every even spread that Connect could make, and the smallest number that holds."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mm2mgr.sizing.fleet import (
    HEAP_SHARE,
    SIDE_TASK_HEAP_BYTES,
    WORKER_HEAP_BYTES,
    Buffers,
    ConnectLoad,
    Worker,
    broken,
    fullest,
    need,
    per_pair,
)
from mm2mgr.sizing.words import size_text, span_text

from .estates import MB, MIB, connect, run

flows = st.lists(st.lists(st.floats(0, 7 * MB), min_size=1, max_size=6), min_size=1, max_size=5)
limits = st.builds(
    Worker, st.integers(1, 6), st.none() | st.floats(300 * MIB, 2000 * MIB), st.none() | st.floats(5 * MB, 40 * MB)
)


def estate(loads: list[list[float]], worker: Worker | None = None, side_tasks: int = 0) -> ConnectLoad:
    return connect(*(run(f"f{n}", each) for n, each in enumerate(loads)), worker=worker, side_tasks=side_tasks)


def spread(load: ConnectLoad, workers: int, chance: random.Random) -> list[list[float]]:
    """Give the tasks to the emptiest workers one connector after the other, ties by chance."""
    hands: list[list[float]] = [[] for _ in range(workers)]
    for each in load.runs:
        for rate in chance.sample(each.per_task, len(each.per_task)):
            least = min(len(hand) for hand in hands)
            chance.choice([hand for hand in hands if len(hand) == least]).append(rate)
    return hands


@given(flows, st.integers(1, 8), st.randoms(use_true_random=False))
@example([[0.0], [7 * MB, 7 * MB]], 2, random.Random(0))  # both of the second flow may meet
@example([[0.0], [7 * MB, 7 * MB]], 2, random.Random(1))
def test_no_even_spread_fills_a_worker_more_than_the_fullest(
    loads: list[list[float]], workers: int, chance: random.Random
) -> None:
    load = estate(loads)
    most = fullest(load, workers)
    hands = spread(load, workers, chance)
    assert max(map(len, hands)) == most.tasks
    assert max(sum(hand) for hand in hands) <= most.bytes_per_second * (1 + 1e-9)


@given(flows, limits, st.integers(0, 9))
def test_the_number_needed_is_the_smallest_that_holds_every_limit(
    loads: list[list[float]], worker: Worker, side_tasks: int
) -> None:
    load = estate(loads, worker, side_tasks)
    holding = [count for count in range(1, load.tasks + 1) if not broken(load, fullest(load, count))]
    found = need(load)
    assert found.workers_needed == (holding[0] if holding else None)
    assert holding == list(range(holding[0], load.tasks + 1)) if holding else True
    json.dumps(found.to_dict(), allow_nan=False)


@given(flows, st.integers(1, 8))
def test_more_workers_never_make_the_fullest_one_fuller(loads: list[list[float]], workers: int) -> None:
    load = estate(loads)
    before, after = fullest(load, workers), fullest(load, workers + 1)
    assert (after.tasks, after.heap_bytes) <= (before.tasks, before.heap_bytes)
    assert after.bytes_per_second <= before.bytes_per_second * (1 + 1e-9)


def test_each_limit_can_decide() -> None:
    flow = run("f", [5 * MB] * 12)
    assert need(connect(flow, worker=Worker(4))).by_limit == {"tasks": 3, "memory": 1, "network": 1}
    assert need(connect(flow, worker=Worker(99, network_bytes_per_second=20 * MB))).by_limit["network"] == 3
    heap = (WORKER_HEAP_BYTES + 3 * flow.heap_bytes) / HEAP_SHARE
    assert need(connect(flow, worker=Worker(99, heap_bytes=heap))).by_limit["memory"] == 4
    assert need(connect(flow, worker=Worker(99, heap_bytes=heap - MIB))).by_limit["memory"] == 6


def test_the_heap_of_the_measured_worker() -> None:
    """Four tasks of three partitions each: 355 MiB after collections (fetches of 4 MiB a partition, 32 MiB to send)."""
    found = fullest(connect(run("f", [1.0] * 12, tasks=4)), 1)
    assert found.heap_bytes == pytest.approx(355 * MIB, rel=0.02)


def test_heap_is_bounded_by_fetches_and_by_partitions() -> None:
    buffers = Buffers(16 * MIB, 4 * MIB, 32 * MIB, brokers=3)
    assert [buffers.heap_bytes(count) / MIB for count in (0, 1, 12, 100)] == [32, 40, 128, 128]


def test_idle_tasks_cost_heap_and_no_place() -> None:
    flow = run("f", [MB] * 4)
    idle, without = fullest(connect(flow, side_tasks=6), 2), fullest(connect(flow), 2)
    assert idle.tasks == without.tasks == 2
    assert idle.heap_bytes - without.heap_bytes == 3 * SIDE_TASK_HEAP_BYTES


def test_one_task_that_is_too_much_for_a_worker_is_said() -> None:
    found = need(connect(run("f", [7 * MB]), worker=Worker(network_bytes_per_second=5 * MB)))
    assert (found.workers_needed, found.by_limit["network"]) == (None, None)
    assert "no number of workers does, as one task alone is more" in found.reasons[2]
    assert found.reasons[-1].startswith("No number of workers does: give a worker more")


@pytest.mark.parametrize(
    ("today", "said"), [(None, "."), (1, "; today 1: too few."), (2, "; today 2: enough, without a spare."), (3, "; today 3: enough.")]
)  # fmt: skip
def test_today_is_judged(today: int | None, said: str) -> None:
    found = need(connect(run("f", [MB] * 20), today=today))
    assert found.reasons[-1] == f"2 workers needed, 3 with one spare{said}"


def test_a_cluster_a_pair_costs_a_spare_each() -> None:
    """Nine pairs of half a worker each: nine clusters of two, where five and a spare do."""
    found = per_pair([connect(*(run(f"s{n}", [MB] * 5) for n in range(9)), side_tasks=18)])
    assert (found.clusters, found.workers, found.shared_clusters, found.shared_workers) == (9, 18, 1, 6)
    assert found.heap_bytes == 18 * WORKER_HEAP_BYTES
    assert found.reason == (
        "One mirror cluster a pair: 9 clusters, 18 workers, instead of 1 Connect cluster with 6 workers "
        "(each cluster with one spare; 2.25 GiB and 768 MiB of heap before the first record)."
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
