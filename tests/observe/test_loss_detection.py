"""The ledger against a simulated log with ids: every lost record is in an entry, and the bounds of each entry hold."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mm2mgr.observe.losses import (
    Acknowledgement,
    FlowLooks,
    LossEntry,
    LostRange,
    PartitionLook,
    acknowledgement_of,
    entries_of,
    find_entries,
    open_entries,
    row_of,
    take,
)
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.samples.schema import LossRow
from tests.examples import draw_examples
from tests.observe.simulated_log import Record, SimulatedPartition

PARTITION = TopicPartition("orders", 0)


@dataclass
class Observer:
    """One process with a memory of its own."""

    looks: FlowLooks = field(default_factory=FlowLooks)
    rows: list[LossRow] = field(default_factory=list)

    def look(self, partition: SimulatedPartition, now: float, *, counts: bool = True) -> None:
        seen = partition.look(counts=counts)
        self.looks, lost = take(self.looks, {PARTITION: seen}, now, now)
        self.rows += [row_of("f:A->B", "A", where, one, now) for where, one in lost]


def covers(entry: LossEntry, record: Record) -> bool:
    last = float("inf") if entry.last_offset is None else entry.last_offset
    return entry.topic_id == record[0] and entry.first_offset <= record[1] <= last


small = st.integers(0, 30)
retention_steps = st.tuples(
    st.sampled_from(["produce", "mirror", "mirror", "flush", "flush", "stop", "resume", "retain", "look", "look"]),
    small,
)
every_step = st.tuples(
    st.sampled_from(
        ["produce", "produce", "mirror", "flush", "stop", "resume", "retain", "truncate", "recreate", "look", "look"]
    ),
    small,
)


def do(partition: SimulatedPartition, step: str, count: int) -> None:
    if step in {"produce", "mirror", "retain", "truncate"}:
        getattr(partition, step)(count)
    else:
        getattr(partition, step)()


def begun(*, is_new: bool = False) -> SimulatedPartition:
    """Return a partition whose task has mirrored ten records and stored its offset, or nothing yet."""
    if is_new:
        return SimulatedPartition()
    partition = SimulatedPartition()
    partition.produce(10)
    partition.mirror(10)
    partition.flush()
    return partition


def ended(partition: SimulatedPartition, look: Callable[[], None]) -> None:
    """Let the task reach the end of the log and store its offset, and look."""
    partition.resume() if partition.stopped else None
    partition.produce(1)
    partition.mirror(10_000)
    partition.flush()
    look()


def played(
    steps: Sequence[tuple[str, int]], *, counts: bool = True, only_exact: bool = False, is_new: bool = False
) -> tuple[SimulatedPartition, tuple[LossEntry, ...]]:
    """Return the partition and the entries after a history that ends level with the source."""
    partition, observer, now = begun(is_new=is_new), Observer(), 1.0
    observer.look(partition, now, counts=counts)
    for step, count in steps:
        now += 1
        if step != "look":
            do(partition, step, count)
        elif not only_exact or partition.is_exact:
            observer.look(partition, now, counts=counts)
    ended(partition, lambda: observer.look(partition, now + 1, counts=counts))
    return partition, entries_of(observer.rows)


def uncovered(partition: SimulatedPartition, entries: Sequence[LossEntry]) -> set[Record]:
    """Return the lost records in no entry, but for those that a look cannot tell from the end marker of a transaction."""
    missing = {record for record in partition.lost() if not any(covers(entry, record) for entry in entries)}
    return {record for record in missing if record[1] + 1 not in partition.found_empty_at}


def lost_inside(partition: SimulatedPartition, entry: LossEntry) -> int:
    return sum(covers(entry, record) for record in partition.lost())


@pytest.mark.long
@draw_examples(500, many=1500)
@given(steps=st.lists(retention_steps, max_size=40), counts=st.booleans(), is_new=st.booleans())
def test_every_record_that_retention_took_is_in_an_entry_and_its_bounds_hold(
    steps: Sequence[tuple[str, int]], counts: bool, is_new: bool
) -> None:
    """Also of a flow that has stored nothing yet at the first look."""
    partition, entries = played(steps, counts=counts, is_new=is_new)
    assert uncovered(partition, entries) == set()
    for entry in entries:
        assert entry.records is not None
        assert entry.least_records <= lost_inside(partition, entry) <= entry.records
    assert not entries or partition.start > 10 * (not is_new), "nothing is said to be lost while the log holds it"


@pytest.mark.long
@draw_examples(500, many=1500)
@given(steps=st.lists(retention_steps, max_size=40))
def test_with_exact_offsets_at_each_look_the_number_of_lost_records_is_exact(steps: Sequence[tuple[str, int]]) -> None:
    """And so an entry as long as its number of records covers none that arrived."""
    partition, entries = played(steps, only_exact=True)
    assert uncovered(partition, entries) == set()
    for entry in entries:
        assert entry.least_records == lost_inside(partition, entry) == entry.records
    assert partition.lost() or not entries


@pytest.mark.long
@draw_examples(333, many=1000)
@given(steps=st.lists(every_step, max_size=30), is_new=st.booleans())
@example(
    [("produce", 1), ("mirror", 1), ("recreate", 0), ("produce", 10), ("recreate", 0), ("produce", 10)], False
)  # the second log ends, by chance, behind what was stored for the first
def test_every_lost_record_is_in_an_entry_whatever_happens_to_the_topic(
    steps: Sequence[tuple[str, int]], is_new: bool
) -> None:
    """With a look after each step: of a topic that comes and goes between two looks, nobody knows."""
    partition, observer, now = begun(is_new=is_new), Observer(), 1.0
    observer.look(partition, now)
    for step, count in steps:
        now += 1
        do(partition, step, count)
        observer.look(partition, now)
    ended(partition, lambda: observer.look(partition, now + 1))
    assert uncovered(partition, entries_of(observer.rows)) == set()


observed_steps = st.lists(st.tuples(retention_steps, st.sets(st.integers(0, 2))), max_size=30)


@pytest.mark.long
@draw_examples(200, many=600)
@given(steps=observed_steps, seed=st.integers(0, 99))
def test_observers_that_share_nothing_but_the_table_make_one_entry_of_a_loss(
    steps: Sequence[tuple[tuple[str, int], set[int]]], seed: int
) -> None:
    """Each remembers its own looks, and writes what it saw: rows in any order, and twice, make the same entries."""
    partition, observers, now = begun(), [Observer() for _ in range(3)], 1.0
    for one in observers:
        one.look(partition, now)
    for (step, count), looking in steps:
        now += 1
        if step != "look":
            do(partition, step, count)
        for number in sorted(looking):
            observers[number].look(partition, now)
    ended(partition, lambda: [one.look(partition, now + 1) for one in observers])
    rows = [row for one in observers for row in one.rows]
    entries, shuffled = entries_of(rows), rows * 2
    random.Random(seed).shuffle(shuffled)
    assert entries_of(shuffled) == entries
    assert uncovered(partition, entries) == set()
    ordered = sorted(entries, key=lambda one: one.first_offset)
    assert all(last_of(one) + 1 < other.first_offset for one, other in pairwise(ordered)), (
        "none overlaps or touches another"
    )
    assert len({one.id for one in entries}) == len(entries)


def last_of(entry: LossEntry) -> int:
    assert entry.last_offset is not None
    return entry.last_offset


@draw_examples(200, many=600)
@given(steps=st.lists(retention_steps, max_size=40), acks=st.sets(st.integers(0, 40)))
def test_what_is_acknowledged_stays_so_and_what_is_lost_afterwards_is_new(
    steps: Sequence[tuple[str, int]], acks: set[int]
) -> None:
    partition, observer, now = begun(), Observer(), 1.0
    done: set[tuple[str, int]] = set()
    for number, (step, count) in enumerate(steps):
        now += 1
        do(partition, step, count) if step != "look" else observer.look(partition, now)
        before = open_entries(entries_of(observer.rows))
        if number in acks:
            observer.rows += [acknowledgement_of(one, Acknowledgement("me", now, "known")) for one in before]
            assert open_entries(entries_of(observer.rows)) == ()
            done |= {
                (one.topic_id or "", offset) for one in before for offset in range(one.first_offset, last_of(one) + 1)
            }
    entries = entries_of(observer.rows)
    found = {(one.topic_id or "", offset) for one in entries for offset in range(one.first_offset, last_of(one) + 1)}
    opened = [one for one in entries if one.acknowledged is None]
    assert done <= found, "nothing leaves the ledger"
    assert not any(
        (one.topic_id, offset) in done for one in opened for offset in range(one.first_offset, last_of(one) + 1)
    )
    assert all(
        one.acknowledged == Acknowledgement("me", one.acknowledged.at, "known") for one in entries if one.acknowledged
    )
    assert [one.id for one in find_entries(entries, ["all"])] == [one.id for one in opened]
    assert all(find_entries(entries, [one.id]) == (one,) for one in opened)


def look_of(topic_id: str, start: int, end: int, stored: int, arrived: int | None = None) -> PartitionLook:
    return PartitionLook(topic_id, Offsets(start, end), stored, arrived, stored == end - 1)


def seen_between(*looks: PartitionLook) -> list[tuple[object, ...]]:
    """Return cause, evidence, topic id, first, last and records of what a sequence of looks shows."""
    known, found = FlowLooks(), list[tuple[object, ...]]()
    for now, look in enumerate(looks):
        known, lost = take(known, {PARTITION: look}, float(now), float(now))
        found += [one[:6] for _, one in lost]
    return found


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([("x", 0, 100, 99, 100), ("x", 300, 400, 399, 200)], [("retention", "target", "x", 100, 299, 200)]),
        ([("x", 0, 100, 99, 100), ("x", 300, 400, 399, 400)], []),
        ([("x", 0, 100, 99), ("x", 300, 400, 399)], [("retention", "offsets", "x", 100, 299, 200)]),
        ([("x", 0, 100, 99), ("x", 300, 400, 99)], [("retention", "log-start", "x", 100, 299, 200)]),
        ([("x", 300, 400, 99)], [("retention", "log-start", "x", 100, 299, 200)]),
        ([("x", 0, 100, 99), ("y", 0, 5000, 99)], [("re-created", "topic-id", "x", 100, None, None), ("re-created", "topic-id", "y", 0, 99, 100)]),
        ([("x", 0, 100, 99), ("y", 0, 50, 49)], [("re-created", "topic-id", "x", 100, None, None)]),
        ([("x", 0, 100, 99), ("y", 0, 50, 49), ("x", 0, 100, 99), ("y", 0, 60, 59)], [("re-created", "topic-id", "x", 100, None, None)]),
        ([("x", 0, 10, 10)], [("past-end", "log-end", "x", 0, 10, 11)]),
        ([("x", 0, 100, 49), ("x", 0, 70, 49)], [("truncation", "log-end", "x", 70, 99, 30)]),
        ([("x", 0, 100, 99), ("x", 0, 70, 99)], [("truncation", "log-end", "x", 70, 99, 30)]),
        ([("x", 0, 100, 69), ("x", 0, 70, 69)], [("truncation", "log-end", "x", 70, 99, 30)]),
        ([("", 0, 100, 99), ("", 0, 70, 99)], [("truncation", "log-end", "", 70, 99, 30)]),
        ([("x", 1000, 1000, 998)], []),
        ([("x", 0, 100, 99), ("x", 0, 100, 49), ("x", 60, 100, 49)], []),
        ([("x", 40, 100, -1), ("x", 90, 100, -1)], [("retention", "log-start", "x", 40, 89, 50)]),
        ([("x", 40, 100, -1, 0), ("x", 90, 100, 99, 10)], [("retention", "target", "x", 40, 89, 50)]),
        ([("x", 40, 100, -1, 0), ("x", 90, 100, 99, 60)], []),
        ([("x", 90, 100, -1)], []),
        ([("x", 40, 100, -1, 0), ("y", 0, 7, -1, 0)], [("re-created", "topic-id", "x", 40, None, None)]),
        ([("x", 40, 100, -1), ("x", 40, 70, -1)], [("truncation", "log-end", "x", 70, 99, 30)]),
        ([("x", 0, 100, 99), ("x", 0, 100, -1), ("x", 60, 100, -1)], []),
    ],
    ids=["counted", "all arrived", "nothing counts", "waiting", "first look", "outgrown", "read anew", "stale broker", "past the end",
         "cut off", "cut off and reused", "cut off behind", "no topic ids", "end marker", "set back", "nothing stored", "begun meanwhile", "all arrived from the start",
         "before the first look", "nothing stored and created again", "nothing stored and cut off", "reset"],
)  # fmt: skip
def test_what_a_sequence_of_looks_shows(looks: list[tuple[str, int, int, int]], expected: list[object]) -> None:
    assert seen_between(*(look_of(*one) for one in looks)) == expected


def test_a_look_that_began_before_the_last_one_ended_says_nothing() -> None:
    """Two processes read at the same time, and the one that read first writes last."""
    known, _ = take(FlowLooks(), {PARTITION: look_of("x", 0, 200, 199)}, 10.0, 20.0)
    late, lost = take(known, {PARTITION: look_of("x", 0, 100, 199)}, 19.0, 21.0)
    assert (late, lost) == (known, [])
    _, lost = take(known, {PARTITION: look_of("x", 0, 100, 199)}, 20.0, 22.0)
    assert len(lost) == 1
    after, _ = take(known, {PARTITION: look_of("x", 0, 300, 299)}, -5000.0, -4990.0)
    assert after.ended == -4990.0, "a clock that was set back stops nothing"


# --- what had arrived, and is gone from the target --------------------------------------------------------------------


def erased(*looks: tuple[int, int | None], stored: Sequence[int] = ()) -> list[tuple[int, int | None, int | None]]:
    """Return the ranges that looks show to be gone from the target: the source's end and the target's at each. The flow
    is level, but where `stored` says otherwise."""
    memory, found = FlowLooks(), list[LostRange]()
    for number, (end, arrived) in enumerate(looks):
        offset = stored[number] if stored else end - 1
        look = PartitionLook("id", Offsets(0, end), offset, arrived, offset == end - 1)
        memory, lost = take(memory, {PARTITION: look}, float(number), float(number))
        found += [lost_range for _, lost_range in lost]
    assert all((of.cause, of.evidence, of.least_records) == ("erased", "target", 0) for of in found)
    return [(of.first, of.last, of.records) for of in found]


def test_what_had_arrived_in_a_topic_that_was_made_anew_on_the_target_is_lost_once() -> None:
    assert erased((10, 10), (10, 0), (10, 0), (10, 0)) == [(0, 9, 10)]
    assert erased((10, 10), (10, None), (10, None), (13, 3), (14, 4)) == [(0, 9, 10)], "not there until the refresh"
    assert erased((10, 4), (10, 0)) == [(6, 9, 4)], "it began at offset 6, so the old topic held four"
    assert erased((10, 10), (15, 3)) == [(0, 11, 12)], "five came meanwhile, of which the new one has three"
    assert erased((10, 10), (10, 0), (20, 10), (20, 0)) == [(0, 9, 10), (10, 19, 10)], "and again"


def test_a_target_that_grows_or_cannot_be_read_has_lost_nothing() -> None:
    assert erased((10, 10), (12, 12), (12, None), (12, 12), (30, 31)) == []
    assert erased((10, None), (10, 0), (10, 0)) == []


def test_what_a_reset_mirrors_again_is_not_lost() -> None:
    assert erased((10, 10), (10, 0), stored=(9, -1)) == []
    assert erased((10, 10), (10, 0), stored=(9, 3)) == [(0, 3, 4)], "from offset 4 on it comes again"
