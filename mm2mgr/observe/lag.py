"""How far each flow is behind, the records in the source's log that are not known to be mirrored; and its surplus, the
records that arrive more often than the source had them. Pure.

Connect stores offsets at intervals, so by a stored offset alone a running flow looks up to one flush interval too far
behind. Where only this mirror writes a remote topic, the growth of its end since that offset was reached shows what
arrived after it. A task that was killed sends again what it had not flushed, so that until the next flush this may
count too much. Records are counted as offsets: of compacted topics and transactions there are fewer.

The surplus is counted from look to look by offsets alone. Let P be the first offset of a source partition that is not
stored, E the source's end and T the target's. Each record takes one offset on the target (`weight` 1), on exactly-once
workers at most two: each transaction ends with a marker in the partitions that it wrote to. So while each record
arrives once, weight * P - T never falls, whatever the source's log has beside records; the largest one of all looks is
the `level`. P is never beyond E, but where a topic was created again: until it moves, P is of the log before, and
nothing is concluded from it. Therefore, what level + T - weight * E exceeds zero by, the `extra`, arrived twice, where
E was read after T (see `doubtful`). Records that had arrived before the first look are in its T, so they never count.

Workers that die send again what they had not stored. Since the last look, one such restart can do that with weight * (E
- P) at most, P being that of the last look; and once some of it has arrived, with twice what waits behind P now. The
smaller one is the `limit`: only what exceeds it in a later look is certain not to be one restart. Transactions that are
aborted take offsets too, as often as they are tried: what arrives with transactions while P stands still before records
that wait may be such, and never counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import nlargest
from typing import Literal, NamedTuple

from mm2mgr.assignment import Assignment, Defects
from mm2mgr.connectors import RunningConnector
from mm2mgr.errors import Failure
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.observe.reading import LiveConnector, Reading
from mm2mgr.partitions import Offsets, TopicPartition, goes_on
from mm2mgr.text import one_line
from mm2mgr.topology import Flow
from mm2mgr.truth.reach import text_of

Basis = Literal["stored offset", "target end"]
"""What a lag was counted from."""


class SeenOffset(NamedTuple):
    """A stored offset (-1: none) and the remote end offset at which it was reached, at the latest (None: unknown); when
    it was first seen, in seconds since 1970 (None: not remembered); and the remote end offset of the last look.
    `searched_to`: the end of the source's log at which records behind the stored offset were looked for (None: never),
    `recordless_to`: the offset before which there is none. `still_end`: the source's log end at the first look that saw
    the remote end where it still was at the last one (None: it had moved): nothing behind it can have been mirrored.
    """

    stored: int
    arrived: int | None = None
    seen_at: float | None = None
    latest: int | None = None
    searched_to: int | None = None
    recordless_to: int | None = None
    still_end: int | None = None


def reached_at(before: SeenOffset | None, stored: int, arrived: int | None, log_end: int) -> int | None:
    """Return the remote end offset at which a stored offset was reached, at the latest; None where it is unknown.

    An offset that was flushed since the last look goes as far beyond the one before as the target had grown until then.
    It cannot lie far before what was there at the last look, nor beyond the source's end: then records came twice, or
    not every offset is a record, and counting begins anew. What came within one look is tolerated, because flushes wait
    for acknowledgements.
    """
    if before is None or before.arrived is None or arrived is None:
        return arrived
    if before.stored == stored:
        return before.arrived
    carried = before.arrived + stored - before.stored
    latest = arrived if before.latest is None else before.latest
    least = max(latest, arrived - max(0, log_end - stored - 1)) - (arrived - latest)
    return carried if before.stored < stored and least <= carried <= arrived else arrived


class LastStored(NamedTuple):
    """Where stored offsets are from while no worker answers, or their own Kafka cluster does not: `seen_at`, the last
    look at the workers (seconds since 1970), or None for the topic in which they store them, read now. `target_moves`:
    whether the target has grown since the look before, so that workers run and only mm2mgr cannot reach them; None at
    the first look without them. `uncounted`: the target has grown since these offsets were seen, and not every new
    offset there is a mirrored record, so that fewer records may wait.
    """

    seen_at: float | None = None
    target_moves: bool | None = None
    uncounted: bool = False


class PartitionLag(NamedTuple):
    """One source partition. `stored` is the last replicated offset that Connect has (None: nothing stored yet),
    `position` the first offset that is not known to be mirrored, `arrived` the end offset of the remote partition
    (None: unknown), `task` None when no task has it.

    `basis` says what `position` follows from; `stored_position` is what the stored offset alone says.
    `unchanged_seconds`: for how long at least the stored offset has been the same (None: seen for the first time).
    `searched_to` and `recordless_to`: as of its `SeenOffset`.
    """

    partition: TopicPartition
    log: Offsets
    stored: int | None
    position: int
    stored_position: int
    basis: Basis = "stored offset"
    task: int | None = None
    arrived: int | None = None
    heartbeat: bool = False
    unchanged_seconds: float | None = None
    searched_to: int | None = None
    recordless_to: int | None = None

    @property
    def markers(self) -> int:
        """How many offsets behind the stored one are known to hold no record, such as markers of transactions."""
        to = self.recordless_to
        return 0 if to is None or to > self.log.end else max(0, to - self.stored_position)

    @property
    def lag_records(self) -> int:
        """Records that wait, at most: what came since the last flush is known only by the target's end."""
        waiting = self.log.end - self.position  # `max` would take as long again, many times per partition and look
        return waiting if waiting > 0 else 0

    @property
    def stored_lag_records(self) -> int:
        """Records after the stored offset, so many as would be mirrored again if the workers died now."""
        return max(0, self.log.end - self.stored_position)

    @property
    def past_end(self) -> bool:
        """Tell whether the stored offset cannot belong to this log: it was created again, or truncated."""
        return self.stored is not None and self.stored >= self.log.end

    def to_dict(self) -> dict[str, object]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "task": self.task,
            "lag_records": self.lag_records,
            "basis": self.basis,
            "stored_offset": self.stored,
            "log_start": self.log.start,
            "log_end": self.log.end,
            "target_end": self.arrived,
            "note": (
                "nothing stored yet"
                if self.stored is None
                else "stored offset is past the end"
                if self.past_end
                else ""
            ),
        }


@dataclass(frozen=True)
class FlowLag:
    """Every partition that a flow carries. `unknown`: why there is no lag; `matched`: topics that match the flow.

    `unread`: partitions of the source whose log could not be read, which makes every sum a lower bound. `exact`: the
    connector has stopped, and so has stored all its offsets. `assignment`: what its tasks have, `defects`: what is
    wrong with that. `short`: topics that tasks have and of which the target has fewer partitions than the source, with
    the number there, 0 for no such topic (None: the target was not read). `last_stored`: no worker knows its offsets
    now, and where these are from instead; what was mirrored since is not known, and records keep arriving.
    """

    partitions: tuple[PartitionLag, ...] = ()
    matched: int = 0
    defects: Defects = field(default_factory=Defects)
    unread: Mapping[TopicPartition, str] = field(default_factory=dict)
    unknown: str | None = None
    exact: bool = False
    assignment: Assignment = field(default_factory=Assignment)
    short: Mapping[str, int] | None = None
    last_stored: LastStored | None = None

    @cached_property
    def counted_partitions(self) -> tuple[PartitionLag, ...]:
        """The partitions that count as lag: heartbeats arrive every second, so their offsets are always behind."""
        return tuple(partition for partition in self.partitions if not partition.heartbeat)

    @property
    def blind(self) -> bool:
        """Whether the target's end offsets are all unknown."""
        return all(partition.arrived is None for partition in self.partitions)

    @cached_property
    def total_records(self) -> int | None:
        """Lag in records, at least that where partitions are unread; None where it is unknown."""
        if self.unknown is not None or (self.unread and not self.counted_partitions):
            return None
        return sum(partition.lag_records for partition in self.counted_partitions)

    @property
    def is_lower_bound(self) -> bool:
        """Whether partitions are missing from the total, or no worker mirrors what arrives, as far as is seen."""
        return self.is_least(self.unread)

    def is_least(self, unread: Collection[TopicPartition]) -> bool:
        """Return the same of a sum over some partitions, of which these are `unread`."""
        return bool(unread) if self.last_stored is None else not self.last_stored.uncounted

    def age_seconds(self, flush_interval_seconds: float) -> float | None:
        """Return how old the offsets may be that a lag is counted from; None where nothing waits by such an offset."""
        by_flush = any(
            partition.lag_records and partition.basis == "stored offset" for partition in self.counted_partitions
        )
        return flush_interval_seconds if by_flush and not self.exact and self.last_stored is None else None

    def most_behind(self, count: int) -> tuple[PartitionLag, ...]:
        """Return the partitions with the largest lag, only those that have any."""
        return most_behind(self.counted_partitions, count)


def most_behind(partitions: Iterable[PartitionLag], count: int) -> tuple[PartitionLag, ...]:
    """Return the partitions with the largest lag, only those that have any."""
    behind = (partition for partition in partitions if partition.lag_records)
    largest = nlargest(count, ((partition.lag_records, partition) for partition in behind), key=lambda pair: pair[0])
    return tuple(partition for _, partition in sorted(largest, key=lambda pair: (-pair[0], pair[1].partition)))


def measure(
    reading: Reading, flow: Flow, connector: LiveConnector, remembered: Mapping[str, Mapping[int, SeenOffset]]
) -> FlowLag:
    """Compare the stored offsets of a flow's connector with the source's log; what could not be read makes the lag
    unknown, not zero. `remembered`: stored offsets by topic and partition as they were when they were first seen.
    """
    source, target = (reading.clusters.get(cluster.alias, RunningKafka()) for cluster in (flow.source, flow.target))
    if source.failure:
        return FlowLag(unknown=f"source {flow.source.alias} could not be read: {one_line(source.failure.message)}")
    assignment = connector.assignment
    tasks = assignment.task_of
    matched = [topic for topic in source.topics if flow.carries(topic)]
    mirrored = {TopicPartition(topic, number) for topic in matched for number in range(source.topics[topic])}
    every = sorted(
        mirrored | {partition for partition in tasks if partition.partition < source.topics.get(partition.topic, 0)}
    )
    running = connector.running
    unknown, stored = None, running.offsets if running else {}
    if isinstance(stored, Failure):
        unknown, stored = f"stored offsets could not be read: {stored.message}", {}
    # Without an entry that is in the log, a task begins where this says: with `latest` at its end, so that nothing
    # waits.
    begins_at = text_of("source", connector.desired.config, "source consumer", "auto.offset.reset")
    stopped = running is not None and running.has_stopped
    counts_arrivals = not stopped and is_only_writer(reading, flow)
    searched, searched_now = reading.searches.get(flow.id, (frozenset(), RunningKafka()))
    remotes = {topic: flow.remote_topic(topic) for topic in {partition.topic for partition in every}}
    assigned = assignment.topics & remotes.keys()

    def lag_of(partition: TopicPartition, log: Offsets) -> PartitionLag:
        topic, number = partition
        offset, remote = stored.get(partition), target.offsets.get(TopicPartition(remotes[topic], number))
        arrived, before = remote.end if remote else None, remembered.get(topic, {}).get(number)
        last = -1 if offset is None else offset
        least = reached = goes_on(log, offset, begins_at)
        same_count = bool(target.failure) or target.topics.get(remotes[topic]) == source.topics[topic]
        # What had arrived at the last look has also arrived while the target cannot be read.
        seen_end = before.latest if arrived is None and before and before.stored == last else arrived
        base = reached_at(before, last, seen_end, log.end)
        if base is not None and seen_end is not None and counts_arrivals and same_count and last < log.end:
            reached = min(log.end, max(least, last + 1 + max(0, seen_end - base)))
        searched_to = recordless_to = None
        if before and before.stored == last:
            if before.still_end is not None and seen_end == before.latest:
                reached = min(reached, max(least, before.still_end))
            searched_to, recordless_to = before.searched_to, before.recordless_to
        if partition in searched:
            searched_to = log.end
            recordless_to = log.end if partition in searched_now.recordless else recordless_to
        partition_lag = PartitionLag(
            partition,
            log,
            offset,
            reached,
            least,
            "target end" if reached > least else "stored offset",
            tasks.get(partition),
            arrived,
            flow.selection.is_heartbeats(topic),
            _seconds_unchanged(before, last, reading.taken_at),
            searched_to,
            recordless_to,
        )
        if recordless_to is not None and (markers := partition_lag.markers):
            return partition_lag._replace(position=max(reached, least + markers))
        return partition_lag

    return FlowLag(
        tuple(lag_of(partition, source.offsets[partition]) for partition in every if partition in source.offsets),
        matched=len(matched),
        defects=assignment.defects(mirrored, source.topics, running.is_held) if running else Defects(),
        unread={
            partition: source.unread.get(partition, "no answer")
            for partition in every
            if partition not in source.offsets
        },
        unknown=unknown,
        exact=stopped,
        assignment=assignment,
        short=_short(
            {topic: remotes[topic] for topic in assigned if not flow.selection.is_heartbeats(topic)}, source, target
        ),
    )


def measure_without_workers(
    reading: Reading,
    flow: Flow,
    stored: Mapping[TopicPartition, int],
    remembered: Mapping[str, Mapping[int, SeenOffset]],
    last: LastStored,
) -> FlowLag:
    """Measure a flow whose stored offsets cannot be read, by what its connector stored last: its source still
    answers."""
    desired = reading.desired[flow.id]
    running = RunningConnector(desired.name, dict(desired.config), offsets=stored)
    lag = measure(reading, flow, LiveConnector(desired, running), remembered)
    target_ends = {
        (partition.partition.topic, partition.partition.partition): partition.arrived for partition in lag.partitions
    }
    places = [
        (place, end)
        for topic, of_topic in remembered.items()
        for number, place in of_topic.items()
        if (end := target_ends.get((topic, number))) is not None
    ]
    moves = any(place.latest is not None and end > place.latest for place, end in places)
    grown = any(place.arrived is not None and end > place.arrived for place, end in places)
    uncounted = grown and not is_only_writer(reading, flow)
    return replace(lag, defects=Defects(), last_stored=last._replace(target_moves=moves, uncounted=uncounted))


def _short(remotes: Mapping[str, str], source: RunningKafka, target: RunningKafka) -> dict[str, int] | None:
    if target.failure or not target.topics:
        return None  # a login that may describe nothing sees no topic at all
    there = {topic: target.topics.get(remote, 0) for topic, remote in remotes.items()}
    return {topic: count for topic, count in there.items() if count < source.topics[topic]}


def is_only_writer(reading: Reading, flow: Flow) -> bool:
    """Tell whether each new offset on the target is a mirrored record: with other policies others may write there,
    transactions add markers.

    Workers that do not tell whether they are exactly-once are what the tree says.
    """
    declared = flow.exactly_once or flow.connect.exactly_once
    return flow.settings.replication_policy == "default" and not (
        declared or reading.connects[flow.connect.name].exactly_once
    )


def _seconds_unchanged(before: SeenOffset | None, stored: int, now: float) -> float | None:
    same = before is not None and before.stored == stored
    return max(0.0, now - before.seen_at) if same and before and before.seen_at is not None else None


NEWS_SECONDS = 3600.0
"""How long records that arrived twice stay a problem after the last of them."""


class Surplus(NamedTuple):
    """What looks have left of one partition; times in seconds since 1970.

    `position`, `end` and `target_end` are those of the last look; `moved_at` is the last one to which the target grew.
    `extra`: offsets on the target, the most of any look; `limit`: so many may be of one restart (None: there are none);
    `began_at` and `grew_at`: the looks that saw the first and the last of them. `is_of_log`: whether the position is
    known to be of the log that is there. `weight` 0: all of it is of a log before.
    """

    weight: int
    level: int
    position: int
    end: int
    target_end: int
    moved_at: float = 0.0
    extra: int = 0
    limit: int | None = None
    began_at: float = 0.0
    grew_at: float = 0.0
    is_certain: bool = False
    is_of_log: bool = True

    def of_log_before(self) -> Surplus:
        """Return what is left of it when its topic was deleted and created again."""
        return Surplus(0, 0, self.position, 0, 0)

    def is_news(self, now: float) -> bool:
        """Whether it is certain, and not long ago; a clock that was set back makes nothing older or newer."""
        return self.is_certain and abs(now - self.grew_at) < NEWS_SECONDS

    @property
    def records(self) -> int:
        """Records that arrived twice, at least; 0 where it is not certain. A copy's own markers take offsets too."""
        return -(-self.extra // self.weight) if self.is_certain else 0


Surpluses = Mapping[str, Mapping[int, Surplus]]
"""By topic and partition."""


class _Ends(NamedTuple):
    """What a look found of one partition; see the module."""

    position: int
    end: int
    target_end: int


def weight_in(reading: Reading, flow: Flow) -> int | None:
    """Return how many offsets of the target a record of a flow takes at most; None where its target's ends do not tell.

    Under other policies anybody may write to the topics, transforms may rename or drop records, records that a producer
    does not wait for may show late, and where `overlap` is silenced a second copy is wanted.
    """
    exactly_once, connector = reading.connects[flow.connect.name].exactly_once, reading.source_connector(flow)
    if flow.settings.replication_policy != "default" or "overlap" in flow.settings.silence or exactly_once is None:
        return None
    if (flow.exactly_once or flow.connect.exactly_once) and not exactly_once:
        return None  # while workers are changed, one that tells is not like the others
    if connector is None or connector.running is None or connector.running.config.get("transforms"):
        return None
    if text_of("source", connector.running.config, "record producer", "acks") in {"0", "1"}:
        return None
    return 2 if exactly_once else 1


def doubtful(reading: Reading, flow: Flow, earlier: Surpluses) -> Iterator[TopicPartition]:
    """Yield partitions where more seems to have arrived than there was: their source may be read too early."""
    connector = reading.source_connector(flow)
    if (
        not earlier
        or connector is None
        or connector.running is None
        or isinstance(stored := connector.running.offsets, Failure)
        or not (weight := weight_in(reading, flow))
    ):
        return
    source, target = (reading.clusters.get(cluster.alias, RunningKafka()) for cluster in (flow.source, flow.target))
    for topic, places in earlier.items():
        remote = flow.remote_topic(topic)
        for number, old in places.items():
            partition = TopicPartition(topic, number)
            log, there = source.offsets.get(partition), target.offsets.get(TopicPartition(remote, number))
            if log and there:
                ends = _Ends(stored.get(partition, -1) + 1, log.end, there.end)
                if _goes_on(old, ends, weight) and _is_doubtful(old, ends):
                    yield partition


@dataclass(frozen=True)
class SeenTopic:
    """The ids that a topic has had, and what is remembered of each partition since its stored offset was seen."""

    ids: tuple[str, ...] = ()
    places: Mapping[int, SeenOffset] = field(default_factory=dict)


def seen_offsets(reading: Reading, flow: Flow, topics: Mapping[str, SeenTopic]) -> dict[str, Mapping[int, SeenOffset]]:
    """Return what is remembered of stored offsets; those of a topic that was created again are of no use."""
    ids = reading.clusters.get(flow.source.alias, RunningKafka()).topic_ids
    return {
        name: topic_looks.places
        for name, topic_looks in topics.items()
        if not topic_looks.ids or ids.get(name, topic_looks.ids[-1]) == topic_looks.ids[-1]
    }


_MOST_SEARCHED_OFFSETS = 100
_MOST_SEARCHED = 50


def to_search(
    reading: Reading, flow: Flow, remembered: Mapping[str, Mapping[int, SeenOffset]]
) -> Iterator[tuple[TopicPartition, int, int]]:
    """Yield partitions whose few last offsets may hold no record, as markers of transactions do, with the first of
    these and their end: the stored offset has stood still for longer than a flush takes, and nobody has looked up to
    this end."""
    connector, source = reading.source_connector(flow), reading.clusters.get(flow.source.alias, RunningKafka())
    if connector is None or not connector.runs or connector.running is None or reading.workers_failure(flow):
        return
    if isinstance(stored := connector.running.offsets, Failure):
        return
    count = 0
    for topic, places in remembered.items():
        for number, before in places.items():
            partition = TopicPartition(topic, number)
            offset, log = stored.get(partition), source.offsets.get(partition)
            if offset is None or log is None or offset != before.stored or before.searched_to == log.end:
                continue
            still = _seconds_unchanged(before, offset, reading.taken_at) or 0.0
            is_little = log.start <= offset + 1 < log.end <= offset + 1 + _MOST_SEARCHED_OFFSETS
            if is_little and still > flow.connect.model.flush_interval and count < _MOST_SEARCHED:
                count += 1
                yield partition, max(offset + 1, before.recordless_to or 0), log.end


def follow(
    lag: FlowLag, earlier: Surpluses, weight: int | None, later_ends: Mapping[TopicPartition, int], now: float
) -> dict[str, dict[int, Surplus]]:
    """Return what to remember of a flow's partitions; none without a `weight`. `later_ends`: read later."""
    surpluses: dict[str, dict[int, Surplus]] = {}
    if weight is None:
        return surpluses
    for partition_lag in lag.counted_partitions:
        topic, number = partition_lag.partition
        after = old = earlier.get(topic, {}).get(number)
        if partition_lag.arrived is not None:
            ends = _Ends(
                0 if partition_lag.stored is None else partition_lag.stored + 1,
                partition_lag.log.end,
                partition_lag.arrived,
            )
            after = _follow_partition(old, ends, weight, later_ends.get(partition_lag.partition), now)
        if after:
            surpluses.setdefault(topic, {})[number] = after
    return surpluses


def _follow_partition(old: Surplus | None, ends: _Ends, weight: int, later_end: int | None, now: float) -> Surplus:
    if old is None or not _goes_on(old, ends, weight):
        moved = old is None or (old.weight > 0 and (old.is_of_log or ends.position != old.position))
        is_of_log = moved and ends.position <= ends.end
        return Surplus(weight, weight * ends.position * is_of_log - ends.target_end, *ends, is_of_log=is_of_log)
    if weight > 1 and ends.position == old.position and ends.end > ends.position + 1:  # one is a marker
        old = old._replace(level=old.level - max(0, ends.target_end - old.target_end))
    if _is_doubtful(old, ends):
        if later_end is None:
            return old
        ends = ends._replace(end=max(ends.end, later_end))
    moved_at = now if ends.target_end > old.target_end else old.moved_at
    is_of_log = old.is_of_log or ends.position != old.position
    level = weight * ends.position - ends.target_end if is_of_log else old.level
    begun = Surplus(weight, level, *ends, moved_at, is_of_log=is_of_log)
    extra, same_level = _extra(old, ends), begun._replace(level=old.level)
    if old.limit is None:
        if extra <= 0:  # an end that went back, as of a topic that was created again, says nothing about what is stored
            return same_level if ends.target_end < old.target_end else begun._replace(level=max(old.level, begun.level))
        behind = weight * (ends.end - ends.position)
        limit = min(weight * (ends.end - old.position), extra + 2 * behind)
        return same_level._replace(extra=extra, limit=limit, began_at=now, grew_at=now)
    is_certain = old.is_certain or extra > old.limit
    has_grown = extra > old.extra or is_certain > old.is_certain
    grew_at = now if has_grown else min(now, old.grew_at)
    if now - grew_at >= NEWS_SECONDS if is_certain else not has_grown:
        return begun  # it is over
    extra = max(extra, old.extra)
    return same_level._replace(
        extra=extra, limit=old.limit, began_at=old.began_at, grew_at=grew_at, is_certain=is_certain
    )


def _extra(old: Surplus, ends: _Ends) -> int:
    return old.level + ends.target_end - old.weight * ends.end


def _is_doubtful(old: Surplus, ends: _Ends) -> bool:
    return _extra(old, ends) > max(0, old.limit or 0, old.extra if old.is_certain else 0)


def _goes_on(old: Surplus, ends: _Ends, weight: int) -> bool:
    """Looks cannot be compared where offsets or a log went back, or workers changed."""
    return old.weight == weight and ends.position >= old.position and ends.end >= old.end
