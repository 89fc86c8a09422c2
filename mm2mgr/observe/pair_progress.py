"""How far a pair is mirrored while it fails over: stored offsets beside the ends of logs, and what waits behind them.

By stored offsets alone: what has only arrived is not known to be all that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.check import PairReadiness
from mm2mgr.failover.stages import MirrorFacts
from mm2mgr.kafka.quotas import DEFAULT
from mm2mgr.live.questions import OffsetsSince, Quotas, RecordlessEnds, RecordTimes, TopicLogs
from mm2mgr.live.snapshot import Steps
from mm2mgr.observe.lag import FlowLag
from mm2mgr.observe.memory import Memory, measure_lags
from mm2mgr.observe.pair_look import (
    PairGroups,
    PairLogs,
    PairLook,
    PairToJudge,
    is_internal,
    look_at_pair,
    read_pair_logs,
)
from mm2mgr.observe.pair_readiness import judged_pair, reading_of_pair
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.text import few
from mm2mgr.truth.reach import numbers, text_of

_CAN_STOP = (3, 5)  # KIP-875
_MOST_BEHIND = 1_000  # partitions of which a record each is read


def mirror_facts(
    pair: PairToJudge, memory: Memory, clock: Callable[[], float], cutoff: float | None = None
) -> Steps[MirrorFacts]:
    """Return how far a pair is mirrored, without its groups. `cutoff`: seconds since 1970."""
    begun_at = clock()
    look = yield from look_at_pair(pair)
    logs = yield from read_pair_logs(look, PairGroups())
    reading = reading_of_pair(look, logs, begun_at, clock())
    lags = measure_lags(reading, memory) if look.source_view else {}
    return (yield from _facts(look, logs, lags, clock, cutoff))


def readiness_and_facts(
    pair: PairToJudge, memory: Memory, clock: Callable[[], float], cutoff: float | None = None
) -> Steps[tuple[PairReadiness, MirrorFacts]]:
    """Return whether a pair can fail over, and how far it is mirrored."""
    judged = yield from judged_pair(pair, memory, clock)
    facts = yield from _facts(judged.look, judged.logs, judged.lags, clock, cutoff)
    return judged.readiness, facts


def quota_clients(alias: str) -> Steps[tuple[str, ...]]:
    """Return the clients that have a quota of producers on a cluster: who may be writing; none where that is not
    told."""
    answer = (yield [Quotas(alias)]).get(Quotas(alias))
    if isinstance(answer, Mm2mgrError):
        return ()
    named = (entity for entity in answer.rates if DEFAULT not in {entity.client_id, entity.user})
    return tuple(sorted(map(str, named)))


def _facts(
    look: PairLook,
    logs: PairLogs,
    lags: Mapping[str, FlowLag],
    clock: Callable[[], float],
    cutoff: float | None,
) -> Steps[MirrorFacts]:
    partitions = [lag for flow_lag in lags.values() for lag in flow_lag.counted_partitions]
    behind = {lag.partition: lag.stored_lag_records for lag in partitions if lag.stored_lag_records}
    positions = {lag.partition: lag.stored_position for lag in partitions}
    chosen = sorted(behind, key=lambda partition: (behind[partition], partition))[:_MOST_BEHIND]
    asked = tuple((partition, positions[partition]) for partition in chosen)
    alias = look.source.alias
    committed = _committed_topics(look, logs)
    recordless = [
        RecordlessEnds(alias, places, committed=is_committed)
        for is_committed in (False, True)
        if (places := tuple(place for place in asked if (place[0].topic in committed) == is_committed))
    ]
    times = RecordTimes(alias, asked)
    ends = {partition: log.end for partition, log in logs.source.items() if not _is_heartbeats(look, partition.topic)}
    late = OffsetsSince(alias, frozenset(ends), int((cutoff or 0.0) * 1000))
    snapshot = yield [*recordless, *([late] if cutoff and ends else [])]
    for question in recordless:
        ended = snapshot.get(question)
        if not isinstance(ended, Mm2mgrError):
            behind = {partition: count for partition, count in behind.items() if partition not in ended}
    since = snapshot.get(late) if cutoff and ends else {}
    seconds: float | None = 0.0
    if behind:
        written = (yield [times]).get(times)
        left = [] if isinstance(written, Mm2mgrError) else [at for place, at in written.items() if place in behind]
        seconds = max(0.0, clock() - min(left)) if left else None
    version = look.workers_version
    remotes = {remote for topic, remote in logs.remotes.items() if not _is_heartbeats(look, topic)}
    target, failure = yield from _target_logs(look, logs, remotes)
    return MirrorFacts(
        clock(),
        (),
        _stored_offsets(look),
        ends,
        {partition: log.end for partition, log in target.items() if partition.topic in remotes},
        {partition: end for partition, end in logs.open_ends.items() if end is not None and partition in ends},
        behind,
        seconds,
        _reason_unknown(look, lags),
        None
        if isinstance(since, Mm2mgrError)
        else {partition: ends[partition] - first for partition, first in since.items() if 0 <= first < ends[partition]},
        _unread_partitions(look, logs),
        not version or numbers(version)[:2] >= _CAN_STOP,
        look.connect.failure.message if look.connect.failure else "",
        failure,
    )


def _stored_offsets(look: PairLook) -> dict[TopicPartition, int]:
    """Return the offset that is mirrored next, of what connectors have stored."""
    stored: dict[TopicPartition, int] = {}
    for live in look.source_connectors:
        offsets = live.running.offsets if live.running else {}
        if isinstance(offsets, Mapping):
            stored |= {place: offset + 1 for place, offset in offsets.items() if not _is_heartbeats(look, place.topic)}
    return stored


def _target_logs(
    look: PairLook, logs: PairLogs, remotes: set[str]
) -> Steps[tuple[Mapping[TopicPartition, Offsets], str]]:
    """Return the logs of mirrored topics on the target, and why some are missing.

    Where the source does not answer, topics of the target that the flows would write to are added to `remotes`.
    """
    view, target = look.target_view, dict(logs.target)
    if view is None:
        return target, f"{look.target.alias} does not answer"
    if look.source_view is None:
        more = {topic for topic in view.partitions if topic not in remotes and _is_remote(look, topic)}
        questions = [TopicLogs(look.target.alias, topic, view.partitions[topic]) for topic in sorted(more)]
        snapshot = yield questions
        for question in questions:
            answer = snapshot.get(question)
            target |= {} if isinstance(answer, Mm2mgrError) else answer
        remotes |= more
    mirrored = (TopicPartition(topic, number) for topic in remotes for number in range(view.partitions.get(topic, 0)))
    missing = [str(partition) for partition in mirrored if partition not in target]
    return target, f"the ends of {few(sorted(missing))} could not be read" if missing else ""


def _is_remote(look: PairLook, topic: str) -> bool:
    upstreams = ((flow, flow.selection.upstream(topic)) for flow in look.pair.flows)
    return not is_internal(topic) and any(
        upstream is not None and flow.carries(upstream) for flow, upstream in upstreams
    )


def _committed_topics(look: PairLook, logs: PairLogs) -> set[str]:
    """Return topics of which records of aborted transactions are not mirrored."""
    flows = {
        flow
        for live in look.source_connectors
        if live.running
        and text_of("source", live.running.config, "source consumer", "isolation.level") == "read_committed"
        for flow in live.desired.flows
    }
    exact = bool(look.connect.exactly_once)
    return {
        topic
        for topic in logs.remotes
        if (flow := look.flow_of(topic)) and (flow.id in flows or (exact and flow.exactly_once))
    }


def _is_heartbeats(look: PairLook, topic: str) -> bool:
    """Tell whether a topic of the source has heartbeats: they go on, and nobody moves with them."""
    return any(flow.selection.is_heartbeats(topic) for flow in look.pair.flows)


def _unread_partitions(look: PairLook, logs: PairLogs) -> tuple[TopicPartition, ...]:
    """Return the partitions of the source whose log could not be read."""
    listed = look.source_view.partitions if look.source_view else {}
    mirrored = (
        TopicPartition(topic, number)
        for topic in logs.remotes
        if not _is_heartbeats(look, topic)
        for number in range(listed.get(topic, 0))
    )
    return tuple(partition for partition in mirrored if partition not in logs.source)


def _reason_unknown(look: PairLook, lags: Mapping[str, FlowLag]) -> str:
    """Return why it is not known how far the pair is mirrored, "" where it is."""
    if look.source_view is None:
        return f"{look.source.alias} does not answer"
    if look.target_view is None:
        return f"{look.target.alias} does not answer"
    for flow in look.pair.flows:
        lag = lags.get(flow.id)
        if lag is None or lag.unknown is not None:
            reason = look.silence_of_workers or (lag.unknown if lag else None)
            return f"{flow.id}: {reason or 'its connector was not read, or is not applied'}"
        if unread := [partition for partition in lag.unread if not _is_heartbeats(look, partition.topic)]:
            return f"{flow.id}: the log of {unread[0]} could not be read"
    return ""
