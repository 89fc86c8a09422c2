"""Where a source goes on after its stored offsets are changed: which records come again or are skipped. Pure.

Connect checks none of it: PATCH takes offsets past the end, unknown topics and other aliases (seen on 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mm2mgr.connect.types import SourceOffset
from mm2mgr.errors import Mm2mgrError
from mm2mgr.json_values import to_json
from mm2mgr.log_places import AtTime, LogPositions, OfGroup, Place
from mm2mgr.partitions import Offsets, TopicPartition, goes_on
from mm2mgr.spec.scalars import place_text
from mm2mgr.text import few, span_text
from mm2mgr.topics.names import Selection
from mm2mgr.topology import Flow, KafkaCluster


@dataclass(frozen=True)
class ResetOrder:
    """What a reset is to do: where to go on, in which topics and partitions (none named: in all)."""

    to: Place
    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()

    def concerns(self, partition: TopicPartition) -> bool:
        """Tell whether a partition is to be reset."""
        named = not self.topics or partition.topic in self.topics
        return named and (not self.partitions or partition.partition in self.partitions)


@dataclass(frozen=True)
class OffsetReset:
    """One source partition: the last mirrored offset that is stored, and that is to be stored (None: no entry).

    `again` counts offsets that are mirrored once more, `skipped` those that never will be; with transactions or
    compaction the records are fewer.
    """

    partition: TopicPartition
    log: Offsets
    stored: int | None
    wanted: int | None
    again: int = 0
    skipped: int = 0
    json_keys = (
        "topic=partition.topic partition=partition.partition log_start=log.start log_end=log.end "
        "stored_offset=stored wanted_offset=wanted again skipped"
    )

    @property
    def is_change(self) -> bool:
        """Whether another entry is to be stored."""
        return self.stored != self.wanted

    def entry(self, source_alias: str) -> SourceOffset:
        """Return what is sent to Connect."""
        key = {"cluster": source_alias, "partition": self.partition.partition, "topic": self.partition.topic}
        return SourceOffset(key, None if self.wanted is None else {"offset": self.wanted})


@dataclass(frozen=True)
class GroupGaps:
    """The partitions in which a consumer group says nothing: it committed no offset (`uncommitted`), or one beyond the
    end of the log (`beyond`); and those whose log begins after its offset (`expired`): it goes on at their start."""

    uncommitted: tuple[TopicPartition, ...] = ()
    beyond: tuple[TopicPartition, ...] = ()
    expired: tuple[TopicPartition, ...] = ()

    @property
    def silent(self) -> tuple[TopicPartition, ...]:
        return (*self.uncommitted, *self.beyond)


def next_offsets(to: Place, place: LogPositions) -> tuple[dict[TopicPartition, int], GroupGaps]:
    """Return the next offset by partition where a place was looked up, and where a group has none that can be used;
    Mm2mgrError where it has none at all."""
    positions = sorted(place.positions.items())
    if not isinstance(to, OfGroup):
        return {partition: position.next for partition, position in positions if position.next is not None}, GroupGaps()
    committed = {
        partition: (position.log, position.next) for partition, position in positions if position.next is not None
    }
    if positions and not committed:
        raise Mm2mgrError(
            f"group '{to.group}' has no committed offset in {few([str(partition) for partition, _ in positions])}",
            hint="correct the name of the group, which is of the source cluster",
        )
    beyond = tuple(partition for partition, (log, offset) in committed.items() if offset > log.end)
    expired = tuple(partition for partition, (log, offset) in committed.items() if offset < log.start)
    uncommitted = tuple(partition for partition, position in positions if position.next is None)
    usable = {p: max(log.start, offset) for p, (log, offset) in committed.items() if p not in beyond}
    return usable, GroupGaps(uncommitted, beyond, expired)


def resets(
    to: Place | Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, Offsets],
    stored: Mapping[TopicPartition, int],
    begins_at: str,
) -> tuple[OffsetReset, ...]:
    """Return what a reset does to each partition; Mm2mgrError where a place is not in a log.

    `to` has the next offset of each partition where it differs by them. `begins_at` is the consumer's
    auto.offset.reset, by which a partition without an entry begins, or one whose entry left its log.
    """
    places = {partition: _place_in(partition, log, to) for partition, log in sorted(logs.items())}
    outside = [
        f"{partition} has {logs[partition].start} to {logs[partition].end}"
        for partition, offset in places.items()
        if not logs[partition].start <= offset <= logs[partition].end
    ]
    if outside:
        raise Mm2mgrError(
            f"offset {to if isinstance(to, int) else 'of a place'} is not in every log: {few(outside)}",
            hint="name topics and partitions that have it",
        )
    resets_by_partition = tuple(
        _reset(partition, logs[partition], offset, stored.get(partition), begins_at)
        for partition, offset in places.items()
    )
    if begins_at != "earliest" and (
        first := [str(reset.partition) for reset in resets_by_partition if reset.wanted is None and reset.log.end]
    ):
        problem = (
            f"{few(first)} would go on at offset 0, for which no entry can be stored, and without one the consumer's"
        )
        raise Mm2mgrError(
            f"{problem} auto.offset.reset={begins_at} decides",
            hint="set source_consumer: {auto.offset.reset: earliest} first",
        )
    return resets_by_partition


def _place_in(partition: TopicPartition, log: Offsets, to: Place | Mapping[TopicPartition, int]) -> int:
    if isinstance(to, Mapping):
        return to[partition]
    if isinstance(to, int):
        return to
    assert isinstance(to, str), "times and groups are looked up before"
    return log.start if to == "earliest" else log.end


def _reset(partition: TopicPartition, log: Offsets, place: int, stored: int | None, begins_at: str) -> OffsetReset:
    before = goes_on(log, stored, begins_at)
    # An entry is the last mirrored offset, and cannot be negative.
    new_offset = place - 1 if place else None
    return OffsetReset(partition, log, stored, new_offset, max(0, before - place), max(0, place - before))


@dataclass(frozen=True)
class StartOrder:
    """Where a connector is to begin: a place in the logs of the topics of `kafka` that `selection` takes.

    `committed`: its consumer reads no open transaction, so the end of a log is before one. `begins_at`: its consumer's
    auto.offset.reset, by which a partition without an entry begins. `born_stopped`: whether its workers can create a
    connector STOPPED (KIP-980); else it is created without tasks, then stopped.
    """

    place: Place
    kafka: KafkaCluster = field(repr=False)
    selection: Selection = field(repr=False)
    committed: bool = False
    begins_at: str = "earliest"
    born_stopped: bool = True
    then: str = ""
    """The state that the tree declares for it (empty: none)."""
    target: str = ""
    """The alias of the target."""

    @property
    def repeats_nothing(self) -> bool:
        """Whether it is at or behind what another mirror is known to have mirrored: people say so by naming it."""
        return self.place == "latest" or isinstance(self.place, OfGroup)

    @property
    def words(self) -> str:
        """The place in words."""
        if self.place == "latest":
            return "at the ends of the logs"
        if isinstance(self.place, OfGroup):
            return f"where group '{self.place.group}' goes on"
        if isinstance(self.place, AtTime):
            back = self.place.time_ms is None
            span = span_text(self.place.ago_seconds)
            return f"with the records of the last {span}" if back else f"at {place_text(self.place)}"
        return "at the starts of the logs"


@dataclass(frozen=True)
class StartPositions:
    """What a start comes to in each partition that exists: `resets` have what is stored and what is never mirrored.

    `present`: topics, by their names on the target, that the group never read and that the target has.
    """

    resets: tuple[OffsetReset, ...] = ()
    gaps: GroupGaps = GroupGaps()
    members: int | None = None
    present: tuple[str, ...] = ()
    json_keys = "partitions=partition_count skipped=skip_count uncommitted=gaps.uncommitted beyond=gaps.beyond members"

    @property
    def partition_count(self) -> int:
        return len(self.resets)

    @property
    def skip_count(self) -> int:
        return sum(reset.skipped for reset in self.resets)

    @property
    def records(self) -> dict[str, int]:
        """How many records of each topic are left to mirror."""
        left: dict[str, int] = {}
        for reset in self.resets:
            count = reset.log.end - reset.log.start - reset.skipped
            left[reset.partition.topic] = left.get(reset.partition.topic, 0) + count
        return left

    def entries(self, alias: str) -> list[SourceOffset]:
        """Return what is stored, under the source's alias; what begins with offset 0 has no entry."""
        return [reset.entry(alias) for reset in self.resets if reset.wanted is not None]


def by_topic(offset_resets: Iterable[OffsetReset]) -> dict[str, dict[str, int]]:
    """Return for each topic how many partitions change, and how many records come again or are skipped."""
    topics: dict[str, dict[str, int]] = {}
    for reset in offset_resets:
        counts = topics.setdefault(reset.partition.topic, {"partitions": 0, "again": 0, "skipped": 0})
        counts["partitions"] += reset.is_change
        counts["again"] += reset.again
        counts["skipped"] += reset.skipped
    return topics


@dataclass(frozen=True)
class FlowReset:
    """A reset of one flow; `error` says what went wrong when it was written."""

    flow: Flow
    connector: str
    resets: tuple[OffsetReset, ...]
    written: bool = False
    error: Mm2mgrError | None = None
    gaps: GroupGaps = GroupGaps()
    """Where the group of the reset says nothing; those partitions are not in `resets`."""

    @property
    def changes(self) -> tuple[OffsetReset, ...]:
        return tuple(reset for reset in self.resets if reset.is_change)

    @property
    def topics(self) -> Mapping[str, Mapping[str, int]]:
        return by_topic(self.resets)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-ready values."""
        return {
            "flow": self.flow.id,
            "connect": self.flow.connect.name,
            "connector": self.connector,
            "written": self.written,
            "error": self.error and self.error.message,
            "hint": self.error and self.error.hint,
            "topics": self.topics,
            "partitions": to_json(self.resets),
            "left_alone": [
                {"topic": partition.topic, "partition": partition.partition} for partition in sorted(self.gaps.silent)
            ],
        }
