"""Groups within what came from the other side: in drawn worlds, there and back, none of them ever skips a record, and no
more come again than is named."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from mm2mgr.failover.reverse import BackBound, ReverseSyncs
from mm2mgr.failover.syncs import OffsetSync
from mm2mgr.kafka.groups import RecordMark
from mm2mgr.partitions import Offsets

from .rounds import HERE, Log, Mirror, fail_over, traffic, way_back


def syncs(*pairs: tuple[int, int]) -> tuple[OffsetSync, ...]:
    return tuple(OffsetSync(HERE, *pair) for pair in pairs)


def at(bound: BackBound | None) -> tuple[int, int] | None:
    return bound and (bound.offset, bound.repeats)


def marks(first: int, *names: str) -> list[RecordMark]:
    return [RecordMark(first + number, "", name, 0) for number, name in enumerate(names) if name]


LOGS = Offsets(0, 500), Offsets(0, 500)


def test_at_a_sync_it_is_exact_and_behind_one_what_was_read_since_comes_again() -> None:
    there = ReverseSyncs(syncs((10, 0), (110, 100)), *LOGS)
    assert [at(there.bound_of(position)) for position in (0, 40, 100, 103)] == [(10, 0), (11, 39), (110, 0), (111, 2)]
    assert ReverseSyncs(syncs((10, 5)), *LOGS).bound_of(4) is None


def test_records_that_were_mirrored_twice_are_named_until_they_are_passed() -> None:
    again = ReverseSyncs(syncs((0, 0), (90, 90), (60, 101), (120, 161), (300, 341)), *LOGS)
    assert at(again.bound_of(101)) == (60, 100)  # 60 to 100 were read before: at most so many, by the syncs
    assert at(again.bound_of(341)) == (300, 0)


@pytest.mark.parametrize(
    ("logs", "text"),
    [
        ((Offsets(0, 100), Offsets(0, 500)), "the source's log ends at 100"),
        ((Offsets(0, 500), Offsets(0, 100)), "the target's log ends at 100"),
    ],
)
def test_logs_that_end_before_a_sync_are_others(logs: tuple[Offsets, Offsets], text: str) -> None:
    there = ReverseSyncs(syncs((10, 0), (110, 100)), *logs)
    assert there.bound_of(3) is None
    assert text in there.refusal


def test_what_the_target_has_deleted_is_told() -> None:
    bound = ReverseSyncs(syncs((10, 0)), *LOGS).bound_of(5)
    assert bound
    translation = bound.as_translation(Offsets(40, 500))
    assert (translation.offset, translation.deleted, translation.repeats_at_most) == (40, 29, 4)


def test_records_of_both_sides_make_it_exact_and_show_a_sync_of_another_log() -> None:
    bound = ReverseSyncs(syncs((10, 0)), *LOGS).bound_of(5)
    assert bound
    here = marks(0, "a", "b", "own", "c", "d")
    assert at(bound.compare(here, marks(10, "a", "", "b", "c", "d", "e"))) == (15, 1)  # but for what B has alone
    assert at(bound.compare(here, marks(10, "a", "b", "lost", "c"))) == (12, 3)
    assert at(bound.compare(here, marks(11, "b", "c"))) == at(bound)  # the record of the sync is gone
    assert bound.compare(here, marks(10, "x", "b")) is None


def hold_to(a: Log, b: Log, there: Mirror, back: Mirror, seen: Counter[str]) -> None:
    """Hold each position of B to what is read on A from where it is translated to."""
    reverse = ReverseSyncs(tuple(there.syncs), b.offsets, a.offsets)
    own = [sync.upstream for sync in back.syncs]
    for position in range(len(b.ids) + 1):
        bound = reverse.bound_of(position)
        if bound is None or any(bound.sync.downstream <= begun < position for begun in own):
            seen["left to the syncs of B->A" if bound else "unknown"] += 1
            continue
        places = bound.places(a.offsets)
        counted = bound.compare(b.marks(places[0]), a.marks(places[1])) if places else bound
        assert counted
        read = set(b.ids[:position])
        unread = set(b.ids[position:]) - read
        for told in (bound, counted):
            if told is bound and any(begun <= position for begun in own):
                continue  # used only where records were read
            skipped = unread & set(a.ids[: told.offset])
            assert not skipped - {None}, (position, told, skipped)
            again = (read & set(a.ids[told.offset :])) - {None}
            assert len(again) <= told.repeats, (position, told, again)
        seen["exact" if counted.repeats == 0 else "bounded"] += 1
        seen["sharper"] += counted.repeats < bound.repeats


def play(seed: int, seen: Counter[str]) -> None:
    dice = random.Random(seed)
    a, b = Log("a"), Log("b")
    there, back = Mirror(a, b, every=dice.randint(1, 9)), Mirror(b, a, every=dice.randint(1, 9))
    begun: dict[str, tuple[int, int] | None] = {"a": None, "b": None}
    strange = dice.choice((0.0, 0.0, 0.05))
    for _ in range(3):
        traffic(dice, there, dice.randint(0, 40), strange)
        fail_over(dice, there, clean=dice.random() < 0.5)
        end = len(b.ids)
        for _ in range(dice.randint(0, 12)):
            b.produce()
        begin = way_back(there, end, begun[a.name], back)
        if begin.refusal:
            return
        begun[b.name] = (begin.first, len(a.ids))
        back.go_on_at(begin.first)
        hold_to(a, b, there, back, seen)
        back.run(dice.randint(0, 20))
        hold_to(a, b, there, back, seen)
        a, b, there, back = b, a, back, there


@pytest.mark.parametrize("count", [60, pytest.param(6_000, marks=pytest.mark.matrix)])
def test_no_record_is_skipped_and_no_more_come_again_than_said(count: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(count):
        play(seed, seen)
    assert min(seen[word] for word in ("exact", "bounded", "sharper")) > count, seen
