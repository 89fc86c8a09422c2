"""Where bytes and records both count, the load that is proved to be the least is never above what some assignment has."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from benchmarks.balance_planner import measure
from mm2mgr.balance.packing import Weights
from mm2mgr.partitions import TopicPartition
from tests.balance.shapes import random_shape


def best_of_all(weights: Weights, tasks: int) -> float:
    """Try every assignment, and return the load of the busiest task in the best one."""
    places = range(len(weights.partitions))
    return min(
        max(
            sum(shares[place] for place in places if chosen[place] == task)
            for task in range(tasks)
            for shares in weights.dimensions
        )
        for chosen in product(range(tasks), repeat=len(places))
    )


@pytest.mark.parametrize("seed", range(40))
def test_no_assignment_at_all_is_below_the_bound(seed: int) -> None:
    chance = Random(seed)
    count, tasks = chance.randint(2, 7), chance.randint(2, 3)
    names = [TopicPartition("t", number) for number in range(count)]
    volume, records = ([chance.choice((0.0, 0.05, 0.3, 0.9)) * chance.random() for _ in names] for _ in range(2))
    weights = Weights.of_shares(names, volume, records)
    best = best_of_all(weights, tasks)
    assert weights.least_load(tasks) <= best + 1e-9
    alone, bound = weights.least_load_beside_hot(tasks)
    assert alone or bound <= best + 1e-9


def test_a_partition_with_many_records_leaves_its_bytes_to_the_others() -> None:
    """Of two tasks, the one with the first has room for few records of others, and so for few of their bytes."""
    names = [TopicPartition("t", number) for number in range(10)]
    weights = Weights.of_shares(names, [0.0, *[0.2] * 9], [0.9, *[0.1] * 9])
    bound, held = weights.mixed_task(2)
    assert bound == pytest.approx(1.2), "the mean of both is 0.9; here one task has 1.2 of records, the other of bytes"
    assert (held[0], len(held)) == (0, 3)
    assert weights.least_load(2) == bound


@pytest.mark.parametrize("seed", [516, 786])
def test_sets_that_were_the_worst_are_within_a_two_hundredth_of_what_is_possible(seed: int) -> None:
    figures = measure(random_shape(seed), with_needed=False)
    assert not figures.is_uneven
    assert figures.planned <= 1.005 * figures.proved or figures.planned <= 1.02
    assert figures.tasks <= figures.packing_bound + 1
