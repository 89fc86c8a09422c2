"""Longest common subsequences: as long as the slow way finds, within each of the bounds."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mm2mgr.audit import sequences
from mm2mgr.audit.sequences import common_subsequence, may_be_sent_again, pair_among_others

from .logs import longest_common


def random_pair(rng: random.Random) -> tuple[list[int], list[int]]:
    kinds = rng.choice((1, 2, 3, 5, 40))
    first = [rng.randrange(kinds) for _ in range(rng.randrange(30))]
    second = list(first)
    for _ in range(rng.randrange(6)):
        place = rng.randrange(len(second) + 1)
        if rng.random() < 0.5:
            del second[place : place + 2]
        else:
            second[place:place] = [rng.randrange(kinds), *second[max(0, place - 3) : place]]
    return first, second


@pytest.mark.parametrize("bound", ["pairs", "edits", "neither"])
def test_a_common_subsequence_is_one_and_as_long_as_can_be(bound, monkeypatch):
    if bound != "pairs":
        monkeypatch.setattr(sequences, "MOST_PAIRS", -1)
    if bound == "neither":
        monkeypatch.setattr(sequences, "MOST_EDITS", -1)
    rng = random.Random(5)
    for _ in range(300):
        first, second = random_pair(rng)
        arrays = np.array(first, np.uint64), np.array(second, np.uint64)
        left, right = common_subsequence(*arrays)
        assert (np.diff(left) > 0).all()
        assert (np.diff(right) > 0).all()
        assert (arrays[0][left] == arrays[1][right]).all()
        if bound != "neither" or (len(set(first)) == len(first) and len(set(second)) == len(second)):
            assert len(left) == longest_common(first, second)


def test_weights_prefer_one_heavy_element_to_several_light_ones():
    first, second = np.array([1, 2, 3, 9], np.uint64), np.array([9, 1, 2, 3], np.uint64)
    assert common_subsequence(first, second)[0].tolist() == [0, 1, 2]
    assert common_subsequence(first, second, np.array([1, 1, 1, 100]))[0].tolist() == [3]


@pytest.mark.parametrize("seed", range(60))
def test_weights_are_as_the_slow_way_has_them(seed):
    rng = random.Random(seed)
    first, second = random_pair(rng)
    weight = {number: rng.randrange(1, 9) for number in range(40)}
    left, _ = common_subsequence(
        np.array(first, np.uint64), np.array(second, np.uint64), np.array([weight[item] for item in first], np.intp)
    )
    repeated = [[(item, copy) for item in items for copy in range(weight[item])] for items in (first, second)]
    codes = {pair: number for number, pair in enumerate(sorted({*repeated[0], *repeated[1]}))}
    best = longest_common(*([codes[pair] for pair in items] for items in repeated))
    assert sum(weight[first[row]] for row in left.tolist()) == best


def test_a_million_elements_with_some_edits_are_quick_also_where_they_repeat():
    first = np.tile(np.arange(7, dtype=np.uint64), 100_000)
    second = np.delete(first, [3, 350_000, 699_990])
    left, _ = common_subsequence(first, second)
    assert len(left) == len(second)


def test_few_kinds_of_elements_and_many_edits_are_paired_nearly_as_long_as_can_be():
    rng = np.random.default_rng(1)
    first = rng.integers(0, 10, 100_000).astype(np.uint64)
    second = np.delete(first, rng.choice(len(first), 600, replace=False))
    left, right = common_subsequence(first, second)
    assert (first[left] == second[right]).all()
    assert len(left) > len(second) - 100


def test_shuffled_elements_are_paired_in_rising_order():
    rng = np.random.default_rng(1)
    first = rng.integers(0, 1 << 63, 200_000).astype(np.uint64)
    left, right = common_subsequence(first, np.concatenate([rng.permutation(first), first[:5]]))
    assert (np.diff(left) > 0).all()
    assert (np.diff(right) > 0).all()
    assert len(left) > 500


def test_what_is_nowhere_among_others_records_leaves_the_rest_in_order():
    rng = np.random.default_rng(1)
    first = rng.integers(0, 2, 1_500).astype(np.uint64)
    second = np.insert(first, rng.integers(0, 1_500, 1_500), rng.integers(0, 2, 1_500).astype(np.uint64))
    lacking = np.insert(first, 700, 9)
    left, right = pair_among_others(lacking, second, len(lacking))
    assert np.setdiff1d(np.arange(len(lacking)), left).tolist() == [700]
    assert (lacking[left] == second[right]).all()


def least_restarts(first: list[int], second: list[int], due: int, is_open: tuple[bool, bool]) -> int:
    """The least restarts that make of the first sequence the second, the slow way."""
    never = 1_000
    least = dict.fromkeys(range(len(first)), never)
    answer = never
    for number, code in enumerate(second):
        before = least
        least = {}
        for row, item in enumerate(first):
            ways = [before[place] + 1 for place in range(row, len(first))]
            ways += [before[row - 1]] if row else []
            ways += [0] if row == 0 and (number == 0 or is_open[0]) else []
            least[row] = min(ways) if item == code else never
        answer = min(answer, least[len(first) - 1]) if is_open[1] else answer
    return min([answer, *(least[row] for row in range(due - 1, len(first)))])


@pytest.mark.parametrize("is_open", [(False, False), (True, False), (False, True), (True, True)])
def test_how_many_restarts_explain_a_log_is_known(is_open):
    rng = random.Random(3)
    explained = 0
    for _ in range(150):
        first, second = random_pair(rng)
        if not first or not second:
            continue
        due = rng.randrange(1, len(first) + 1)
        least = least_restarts(first, second, due, is_open)
        arrays = np.array(first, np.uint64), np.array(second, np.uint64)
        for most in range(4):
            assert may_be_sent_again(*arrays, due, is_open, most) == (least <= most), (first, second, due)
        explained += least < 4
    assert explained > 20
