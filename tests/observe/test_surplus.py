"""Records that arrive twice, from offsets alone: what a healthy flow does between two looks never counts, what does is never too much."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.observe.lag import NEWS_SECONDS, FlowLag, PartitionLag, Surplus, follow
from mm2mgr.partitions import Offsets, TopicPartition
from tests.examples import draw_examples

PARTITION = TopicPartition("orders", 0)
Entries = list[bool]  # of a log: records (True), and what is none: markers, aborted or compacted records


@dataclass
class Copier:
    """A task that mirrors one partition. `batch`: records per transaction, 0 without transactions."""

    batch: int = 0
    position: int = 0
    stored: int = -1

    def mirror(self, log: Entries, entries: int) -> tuple[int, int]:
        """Go on by so many entries; return the offsets that the target gets, and how many of them are records."""
        passed = log[self.position : self.position + entries]
        self.position += len(passed)
        records = sum(passed)
        if self.batch:
            self.flush(log)
        return records + (-(-records // self.batch) if self.batch else 0), records

    def flush(self, log: Entries) -> None:
        """Store the offset of the last record that it mirrored."""
        self.stored = max((at for at in range(self.position) if log[at]), default=-1)

    def die(self) -> None:
        """Be killed and started again: what was not stored comes again."""
        self.position = min(self.position, self.stored + 1)


@dataclass
class Partition:
    """A source partition and its remote one, with what looks have left of it."""

    copiers: list[Copier]
    had: int = 0  # on the target before the first look
    log: Entries = field(default_factory=list)
    target_end: int = 0
    arrived: int = 0
    now: float = 0.0
    surplus: Surplus | None = None

    @property
    def weight(self) -> int:
        return 2 if self.copiers[0].batch else 1

    @property
    def twice(self) -> int:
        """Records that arrived more often than once since the beginning."""
        return self.arrived - sum(self.log[: max(one.position for one in self.copiers)])

    def mirror(self, entries: int) -> None:
        for copier in self.copiers:
            offsets, records = copier.mirror(self.log, entries)
            self.target_end += offsets
            self.arrived += records

    def look(self, *, meanwhile: int = 0, mirrored: int = 0, seconds: float = 30.0) -> Surplus:
        """Look as status does: stored offsets, the source's end, the target's, with traffic in between; and the source's end again."""
        self.now += seconds
        stored, end = self.copiers[0].stored, len(self.log)
        self.log += [True] * meanwhile
        self.mirror(mirrored)
        offset = None if stored < 0 else stored
        position = stored + 1
        one = PartitionLag(PARTITION, Offsets(0, end), offset, position, position, arrived=self.had + self.target_end)
        earlier = {"orders": {0: self.surplus}} if self.surplus else {}
        later = {PARTITION: len(self.log)}
        self.surplus = follow(FlowLag((one,)), earlier, self.weight, later, self.now)["orders"][0]
        return self.surplus


@dataclass(frozen=True)
class Step:
    """What happens until a look: entries that the log gets, those that are mirrored, whether offsets are stored; and in the look."""

    entries: Entries
    mirrored: int
    flushed: bool
    meanwhile: int
    arriving: int


entries = st.lists(st.sampled_from([True, True, True, False]), max_size=12)
steps = st.builds(
    Step, entries, st.sampled_from([0, 1, 5, 99]), st.booleans(), st.integers(0, 9), st.sampled_from([0, 1, 99])
)


def _goes_through(partition: Partition, step: Step) -> Surplus:
    partition.log += step.entries
    partition.mirror(step.mirrored)
    if step.flushed:
        for copier in partition.copiers:
            copier.flush(partition.log)
    return partition.look(meanwhile=step.meanwhile, mirrored=step.arriving)


@pytest.mark.long
@draw_examples(100, many=300)
@given(
    day=st.lists(steps, min_size=2, max_size=25),
    had=st.integers(0, 9),
    batch=st.sampled_from([0, 0, 1, 3]),
    dies=st.integers(0, 30),
)
def test_a_healthy_flow_has_nothing_twice_even_when_its_workers_die_once(
    day: list[Step], had: int, batch: int, dies: int
) -> None:
    """However late offsets are stored, whatever the log has beside records, and whenever a side was read."""
    partition = Partition([Copier(batch)], had)
    for number, step in enumerate(day):
        if number == dies:
            partition.copiers[0].die()
        assert _goes_through(partition, step).records == 0


@draw_examples(100, many=300)
@given(day=st.lists(steps, min_size=2, max_size=25), batch=st.sampled_from([0, 0, 1, 3]), begins=st.integers(0, 12))
def test_of_two_that_mirror_no_more_is_counted_than_came_twice(day: list[Step], batch: int, begins: int) -> None:
    partition = Partition([Copier(batch)])
    for number, step in enumerate(day):
        if number == begins:
            partition.copiers.append(Copier())
        counted = _goes_through(partition, step).records
        assert counted <= partition.twice


def _looks(partition: Partition, records: int, looks: int) -> list[int]:
    """Look so often, with so many records between two looks, of which the last tenth is not stored yet."""
    counted = []
    for _ in range(looks):
        partition.log += [True] * (records - records // 10)
        partition.mirror(records)
        for copier in partition.copiers:
            copier.flush(partition.log)
        partition.log += [True] * (records // 10)
        partition.mirror(records)
        counted.append(partition.look().records)
    return counted


def test_a_second_copy_of_the_traffic_is_counted_at_the_second_look() -> None:
    partition = Partition([Copier()], had=795)
    assert _looks(partition, 1000, 3) == [0, 0, 0]
    partition.copiers.append(Copier(position=3000))
    first, second, third = _looks(partition, 1000, 3)
    assert first == 0, "that may be a restart of the workers"
    assert 1000 < second <= 2000
    assert second + 1000 == third


def test_a_second_copy_of_all_that_is_there_is_counted_while_nothing_is_produced() -> None:
    partition = Partition([Copier()])
    _looks(partition, 1000, 2)
    assert _looks(partition, 0, 1) == [0]
    partition.copiers.append(Copier())
    partition.mirror(2000)
    assert _looks(partition, 0, 2) == [0, 2000]
    assert partition.look(seconds=NEWS_SECONDS - 60).records == 2000, "it stays a problem for an hour"
    assert partition.look(seconds=61).records == 0


def test_two_copies_with_transactions_are_more_than_markers_explain() -> None:
    partition = Partition([Copier(batch=100)])
    assert _looks(partition, 1000, 4) == [0] * 4
    partition.copiers.append(Copier(batch=10, position=4000))
    counted = _looks(partition, 1000, 12)
    assert 0 < counted[-1] <= partition.twice


def test_restarts_apart_from_each_other_are_not_counted() -> None:
    partition = Partition([Copier()])
    for _ in range(20):
        assert _looks(partition, 1000, 3) == [0] * 3
        partition.copiers[0].die()


def test_what_a_restart_sends_again_over_several_looks_is_not_counted() -> None:
    partition = Partition([Copier()])
    _looks(partition, 100, 2)
    partition.copiers[0].flush(partition.log)
    partition.look()
    partition.log += [True] * 100
    partition.mirror(100)
    partition.copiers[0].die()
    for _ in range(4):
        partition.mirror(30)
        partition.copiers[0].flush(partition.log)
        assert partition.look().records == 0
    assert partition.surplus
    assert partition.surplus.extra == 100 == partition.arrived - len(partition.log)


def test_offsets_that_a_person_set_back_are_no_second_copy() -> None:
    partition = Partition([Copier()])
    _looks(partition, 1000, 3)
    partition.copiers[0].stored = 99
    partition.copiers[0].die()
    partition.look()
    assert _looks(partition, 3000, 3) == [0] * 3


def test_a_target_that_was_created_again_is_no_second_copy() -> None:
    partition = Partition([Copier()])
    _looks(partition, 1000, 3)
    partition.target_end = 0
    assert _looks(partition, 1000, 5) == [0] * 5
