"""Rehearsals of a failover, from what was read on both sides: what is good, what is an error, what bounds them."""

from __future__ import annotations

import random

import pytest

from mm2mgr.failover.check import GroupPosition, GroupReadiness, PairReadiness, PositionBounds, TopicTraits
from mm2mgr.failover.rehearsal import (
    FIRST,
    JUDGE,
    PREFIX,
    READ,
    WRITE,
    Rehearsal,
    RehearsedGroup,
    RehearsedPosition,
    ScratchNames,
    Stage,
    choose_groups,
    compare,
    place_id,
    source_places,
)
from mm2mgr.kafka.groups import RecordMark
from mm2mgr.kafka.scratch_groups import GroupRead
from mm2mgr.partitions import Offsets, TopicPartition

SOURCE, REMOTE = TopicPartition("orders", 0), TopicPartition("a.orders", 0)


def position(
    committed: int = 10, end: int = 100, start: int = 10, repeats: int = 0, topic: str = "orders"
) -> GroupPosition:
    return GroupPosition(
        *("billing", TopicPartition(topic, 0), TopicPartition(f"a.{topic}", 0), committed, end),
        bounds=PositionBounds(start, repeats),
        log=Offsets(0, 1_000),
    )


def marks(*ids: int) -> tuple[RecordMark, ...]:
    """Return records with these ids, whatever their offsets are."""
    return tuple(RecordMark(offset, "", f"v{number}", number) for offset, number in enumerate(ids))


def outcome(
    expected: tuple[RecordMark, ...],
    read: tuple[RecordMark, ...],
    repeats: int = 0,
    traits: TopicTraits = TopicTraits(),  # noqa: B008
    *,
    at_end: bool = False,
) -> RehearsedPosition:
    ended = frozenset({REMOTE} if at_end else ())
    return compare(position(repeats=repeats), expected, GroupRead({REMOTE: read}, ended), traits)


@pytest.mark.parametrize(
    ("read", "repeats", "expected"),
    [
        ((10, 11, 12), 0, ("same", 3, 0)),
        ((10, 11, 12, 13), 0, ("same", 3, 0)),
        ((8, 9, 10, 11, 12), 2, ("within", 3, 2)),
        ((8, 9, 8, 9, 10, 11, 12), 2, ("within", 3, 2)),  # mirrored again by a task that was started again
        ((7, 8, 9, 10, 11, 12), 2, ("differs", 3, 3)),
        ((11, 12, 13), 0, ("differs", 2, 1)),
        ((10, 12, 13), 0, ("differs", 2, 1)),
        ((10, 12, 13), 5, ("differs", 2, 1)),
        ((90, 91, 92), 0, ("differs", 0, 3)),
        ((10,), 0, ("same", 1, 0)),  # the next ones are not mirrored yet
        ((9,), 1, ("not compared", 0, 0)),
        ((), 0, ("not compared", 0, 0)),
    ],
)
def test_what_is_read_is_compared(read: tuple[int, ...], repeats: int, expected: tuple[str, int, int]) -> None:
    rehearsed = outcome(marks(10, 11, 12), marks(*read), repeats, at_end=True)
    compared = rehearsed.outcome, rehearsed.compared, rehearsed.again
    assert compared[:2] == expected[:2], rehearsed.reason
    if expected[0] != "differs":
        assert compared == expected


def test_any_mirror_is_good_and_any_hole_in_it_is_not() -> None:
    numbers = random.Random(37)
    for _ in range(500):
        first = numbers.randint(5, 60)
        repeats = numbers.randint(0, 5)
        ids = list(range(first - repeats, first + 40))
        again_from = numbers.randint(0, len(ids) - 1)  # a task that is started again mirrors from there
        length = numbers.randint(1, 15)
        expected = marks(*range(first, first + 10))
        cut = min(len(ids), again_from + length)
        mirrored = [*ids[:cut], *ids[again_from:]]
        read = marks(*mirrored)
        assert outcome(expected, read, repeats).outcome in {"same", "within"}, (first, repeats, mirrored)
        lost = numbers.randint(first, first + 8)
        holed = marks(*(number for number in mirrored if number != lost))
        assert outcome(expected, holed, repeats).outcome == "differs", (lost, mirrored)


def test_traits_of_topics_count() -> None:
    expected = marks(10, 11, 12)
    assert outcome(expected, marks(10, 12), traits=TopicTraits(sparse=frozenset({"orders"}))).outcome == "same"
    shared = TopicTraits(shared=frozenset({"orders"}))
    assert outcome(expected, marks(500, 10, 501, 11, 12), traits=shared).outcome == "within"
    assert outcome(expected, marks(10, 12), traits=shared).outcome == "differs"
    altered = outcome(expected, marks(1), traits=TopicTraits(altered=frozenset({"orders"})))
    assert altered.outcome == "not compared"
    assert "transforms" in altered.reason


def test_what_was_not_read_is_never_good() -> None:
    fault = GroupRead({}, faults={REMOTE: "not read within 30 s"})
    assert compare(position(), marks(10), fault, TopicTraits()).outcome == "not read"
    assert compare(position(committed=100), None, fault, TopicTraits()).outcome == "not read"
    assert compare(position(), None, GroupRead({REMOTE: marks(10)}), TopicTraits()).outcome == "not read"
    assert (
        compare(position(committed=100), None, GroupRead(ended=frozenset({REMOTE})), TopicTraits()).outcome
        == "at the end"
    )
    group = RehearsedGroup("billing", "x", (compare(position(), marks(10), fault, TopicTraits()),))
    verdict = Rehearsal("a->b", 0.0, (group,)).verdict
    assert (verdict.word, verdict.reasons) == (
        "not judged",
        ("records could not be read: billing in orders-0 (not read within 30 s)",),
    )


def test_the_recovery_time_is_that_of_the_slowest_group() -> None:
    there = (outcome(marks(10), marks(10)),)
    stages = (Stage(JUDGE, 2.0), Stage(WRITE, 0.5), Stage(READ, 9.0), Stage(FIRST, 3.0))
    groups = (RehearsedGroup("x", "1", there, 3.0), RehearsedGroup("y", "2", there, 1.0), RehearsedGroup("idle", "3"))
    assert Rehearsal("a->b", 0.0, groups, stages).recovery_seconds == 5.5
    late = (*groups, RehearsedGroup("z", "4", there))
    assert Rehearsal("a->b", 0.0, late, stages).recovery_seconds is None


def test_groups_are_bounded_worst_first() -> None:
    topics = [f"t{number}" for number in range(20)]
    groups = tuple(
        GroupReadiness(
            f"g{number}",
            tuple(position(committed=number, start=number, topic=topic) for topic in topics),
            translated=True,
        )
        for number in range(50)
    )
    names = ScratchNames("team", place_id("here"), 1_764_000_000)
    chosen = choose_groups(PairReadiness("a->b", 0.0, groups, translated=True), names, 30)
    assert [group.name for group in chosen[:2]] == [names.name(0), names.name(1)]
    assert len(chosen) == 30
    assert len(source_places(chosen, 10)) == 600
    assert source_places([*chosen, *chosen], 10) == source_places(chosen, 10), "what is the same is read once"


def test_only_names_of_this_owner_are_deleted() -> None:
    names = ScratchNames("team", "0123abcd", 1_764_000_000)
    own = names._replace(began_at=1_763_999_999).name(3)
    there = [
        own,
        "billing",
        PREFIX,
        f"{PREFIX}team",
        own.replace("team", "team.eu"),
        own.replace("team", "te.m"),
        f"{own}x",
        f"{own}\n",
    ]
    assert names.find_abandoned(there) == [own]
    dotted = names._replace(owner="te.m")
    assert dotted.find_abandoned([own]) == []
