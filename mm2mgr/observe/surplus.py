"""Records that arrive more often than the source had them, counted from look to look by offsets alone. Pure.

Let P be the first offset of a source partition that is not stored, E the source's end and T the target's. Each record
takes one offset on the target (`weight` 1), on exactly-once workers at most two: each transaction ends with a marker in
the partitions that it wrote to. So while each record arrives once, weight * P - T never falls, whatever the source's
log has beside records; the largest one of all looks is the `level`. P is never beyond E, but where a topic was created
again: until it moves, P is of the log before, and nothing is concluded from it. Therefore, what level + T - weight * E
exceeds zero by, the `extra`, arrived twice, where E was read after T (see `doubtful`). Records that had arrived before
the first look are in its T, so they never count.

Workers that die send again what they had not stored. Since the last look, one such restart can do that with weight * (E
- P) at most, P being that of the last look; and once some of it has arrived, with twice what waits behind P now. The
smaller one is the `limit`: only what exceeds it in a later look is certain not to be one restart. Transactions that are
aborted take offsets too, as often as they are tried: what arrives with transactions while P stands still before records
that wait may be such, and never counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mm2mgr.errors import Failure
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.observe.lag import FlowLag
from mm2mgr.observe.reading import Reading
from mm2mgr.partitions import TopicPartition
from mm2mgr.topology import Flow
from mm2mgr.truth.reach import text_of

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
