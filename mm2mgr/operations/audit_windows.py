"""Windows that are parts of the logs: between two times, or sampled, with their places on the target."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from mm2mgr.audit.bounds import cut_by_time
from mm2mgr.audit.windows import CONTEXT, AuditOrder, FlowOrder, LogWindow, Matching, PartitionOrder
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.questions import OffsetsAtTimes, OffsetsSince, RecordlessEnds, RecordTimes
from mm2mgr.live.snapshot import Question
from mm2mgr.operations.audit_bounds import AuditOptions, ask_each
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import one_line

_WINDOW_PROMISE = (
    "of windows: the target is read around each; a record that came twice far behind is told by an audit of all"
)
_SAMPLE_WINDOW, _FAN_IN_WINDOW = 20_000, 250_000


def narrow_windows(workspace: Workspace, order: AuditOrder, options: AuditOptions) -> AuditOrder:
    """Return the order with the windows that are asked for: those between two times, and of these the sampled."""
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)  # noqa: S311  nothing is secret
    warnings = list(order.warnings)
    flows = _cut_by_time(workspace, order.flows, options)
    if options.sample is not None:
        share = options.sample
        flows = [
            replace(
                flow,
                partitions=tuple(
                    part for entry in flow.partitions for part in _sample_windows(entry, share, f"{seed}")
                ),
            )
            for flow in flows
        ]
        warnings.append(f"a sample of {100 * share:g} % in windows chosen by seed {seed}: only these are judged")
    else:
        flows = [replace(flow, partitions=tuple(_cut(flow.partitions))) for flow in flows]
    narrow = any(entry is not None for entry in (options.sample, options.since_ms, options.until_ms))
    if narrow:
        flows = [replace(flow, promises=(*flow.promises, _WINDOW_PROMISE)) for flow in flows]
    if narrow or options.counts or any(map(_is_cut, flows)):
        flows = with_targets(workspace, flows, counts=options.counts)
    return replace(order, flows=tuple(flows), warnings=tuple(warnings))


def _cut_by_time(workspace: Workspace, flows: Iterable[FlowOrder], options: AuditOptions) -> list[FlowOrder]:
    flows = list(flows)
    first, end = (
        offsets_since(workspace, flows, time_ms) if time_ms is not None else None
        for time_ms in (options.since_ms, options.until_ms)
    )

    def places(flow: FlowOrder, part: PartitionOrder) -> Iterator[int | str | None]:
        """Yield the offsets of both times, None where no such time is asked for, or why they are not known."""
        partition = part.source.partition
        for offsets in (first, end):
            answer = None if offsets is None else offsets.get(flow.source.alias)
            if offsets is None:
                yield None
            elif isinstance(answer, Mm2mgrError) or answer is None or partition not in answer:
                reason = one_line(answer.message) if isinstance(answer, Mm2mgrError) else "no answer"
                yield f"offsets of {partition} by time cannot be read: {reason}"
            else:
                yield answer[partition]

    def cut(flow: FlowOrder, part: PartitionOrder, level: _Level = frozenset()) -> PartitionOrder:
        bounds = list(places(flow, part))
        if reasons := tuple(bound for bound in bounds if isinstance(bound, str)):
            return part if part.not_judged else replace(part, not_judged=reasons)
        since, until = (bound if isinstance(bound, int) else None for bound in bounds)
        is_level = part.source.end >= part.source_log.end or (flow.source.alias, part.source.partition) in level
        return cut_by_time(part, since, until, is_level=is_level)

    doubtful = [
        (flow.source.alias, part.source.partition, part.source.end)
        for flow in flows
        for part in flow.partitions
        if not part.not_judged and cut(flow, part).not_judged and part.source.end < part.source_log.end
    ]
    level = _without_records(workspace, doubtful)
    return [replace(flow, partitions=tuple(cut(flow, part, level) for part in flow.partitions)) for flow in flows]


_Level = frozenset[tuple[str, TopicPartition]]


def _without_records(workspace: Workspace, places: Iterable[tuple[str, TopicPartition, int]]) -> _Level:
    """Return the partitions that were read to their end from these offsets on, and have no record there."""
    positions: dict[str, dict[TopicPartition, int]] = {}
    for alias, partition, offset in places:  # of two flows, the one that is further behind
        own = positions.setdefault(alias, {})
        own[partition] = min(offset, own.get(partition, offset))
    questions = {alias: RecordlessEnds(alias, tuple(sorted(own.items()))) for alias, own in positions.items()}
    return frozenset(
        (alias, partition)
        for alias, answer in ask_each(workspace, questions).items()
        if not isinstance(answer, Mm2mgrError)
        for partition in answer
    )


def offsets_since(
    workspace: Workspace, flows: Sequence[FlowOrder], since_ms: int
) -> dict[str, Mapping[TopicPartition, int] | Mm2mgrError]:
    """Return by source the first offset of each partition at a time or later, -1 where there is none."""
    partitions: dict[str, set[TopicPartition]] = {}
    for flow in flows:
        partitions.setdefault(flow.source.alias, set()).update(part.source.partition for part in flow.partitions)
    return ask_each(
        workspace, {alias: OffsetsSince(alias, frozenset(names), since_ms) for alias, names in partitions.items()}
    )


def _sample_windows(part: PartitionOrder, share: float, seed: str) -> Iterator[PartitionOrder]:
    """Yield whole windows of so many of its offsets, each judged as itself; what is not judged stays as it is.

    Which ones depends on the seed, the partition and its window alone. Of a compacted topic a window says nothing:
    it is judged as a whole.
    """
    chance = random.Random(f"{seed} {part.source.partition}")  # noqa: S311  nothing is secret
    first, end = part.source.first, part.source.end
    if part.not_judged or first >= end or part.expectation.matching is Matching.LATEST:
        yield part
        return
    wanted_places = max(1, round((end - first) * share))
    size = min(_SAMPLE_WINDOW, wanted_places)
    places = range(first, end, size)
    for start in sorted(chance.sample(places, min(len(places), max(1, round(wanted_places / size))))):
        yield replace(part, source=LogWindow(part.source.partition, start, min(end, start + size)))


def _cut(partitions: Iterable[PartitionOrder]) -> Iterator[PartitionOrder]:
    """Cut windows of topics with several writers, whose records are all compared one by one."""
    for part in partitions:
        window = part.source
        if part.expectation.matching is not Matching.FAN_IN or window.end - window.first <= _FAN_IN_WINDOW:
            yield part
            continue
        for first in range(window.first, window.end, _FAN_IN_WINDOW):
            yield replace(part, source=replace(window, first=first, end=min(window.end, first + _FAN_IN_WINDOW)))


def _is_cut(flow: FlowOrder) -> bool:
    return len({part.source.partition for part in flow.partitions}) < len(flow.partitions)


def with_targets(
    workspace: Workspace, flows: Sequence[FlowOrder], *, counts: bool = False, context: int = CONTEXT
) -> list[FlowOrder]:
    """Return windows of the target's logs that should hold the records: found by the times of records around them, so
    many offsets away.

    A first record of that time is never behind the mirrored one, whatever the order of times. Where the window turns
    out to be too small, `run_audit` makes it larger.
    """
    parts = [(flow, part) for flow in flows for part in flow.partitions if part.source.first < part.source.end]
    around = {  # offsets are counted from the first one on
        id(part): (part.source.first, part.source_log.end) if counts else _surroundings(part, context)
        for _, part in parts
    }
    asked: dict[str, set[tuple[TopicPartition, int]]] = {}
    for flow, part in parts:
        low, high = around[id(part)]
        least = 0 if counts else part.source_log.start
        places = [offset for offset in (low, high) if least < offset < part.source_log.end]
        asked.setdefault(flow.source.alias, set()).update((part.source.partition, offset) for offset in places)
    times = _times(workspace, asked)
    wanted_places: dict[str, set[tuple[TopicPartition, int]]] = {}
    for flow, part in parts:
        for offset in around[id(part)]:
            if (at := times.get((flow.source.alias, part.source.partition, offset))) is not None:
                wanted_places.setdefault(flow.target.alias, set()).add((part.target.partition, at))
    places_at = _ask_places(workspace, OffsetsAtTimes, wanted_places)  # -1 where there is none

    def place(flow: FlowOrder, part: PartitionOrder, offset: int) -> int | None:
        at = times.get((flow.source.alias, part.source.partition, offset))
        return None if at is None else places_at.get((flow.target.alias, part.target.partition, at))

    def complete(flow: FlowOrder, part: PartitionOrder) -> PartitionOrder:
        if id(part) not in around:
            return replace(part, target=replace(part.target, end=part.target.first))
        log = part.target_log
        low, high = (place(flow, part, offset) for offset in around[id(part)])
        if counts and part.source.first > 0 and low is None:
            unknown = f"where the source's offset {part.source.first} is on the target is not known"
            return replace(part, not_judged=(*part.not_judged, unknown))
        first = log.start if low is None or low < 0 else max(log.start, low)
        to_end = high is None or high < 0 or part.expectation.matching is Matching.LATEST
        end = log.end if to_end or high is None else min(log.end, high + context)
        return replace(part, target=LogWindow(part.target.partition, min(first, end), end))

    return [replace(flow, partitions=tuple(complete(flow, part) for part in flow.partitions)) for flow in flows]


def _surroundings(part: PartitionOrder, context: int) -> tuple[int, int]:
    log = part.source_log
    return max(log.start, part.source.first - context), min(log.end, part.source.end + context)


def _times(
    workspace: Workspace, offsets: Mapping[str, set[tuple[TopicPartition, int]]]
) -> dict[tuple[str, TopicPartition, int], int]:
    """Return the timestamps of records, in milliseconds."""
    seconds = _ask_places(workspace, RecordTimes, offsets)
    # A record may have no timestamp, and Kafka's -1 asks for the log's end.
    return {place: round(answer * 1000) for place, answer in seconds.items() if answer >= 0}


_Number = TypeVar("_Number", int, float)


def _ask_places(
    workspace: Workspace,
    question: Callable[[str, tuple[tuple[TopicPartition, int], ...]], Question[Mapping[TopicPartition, _Number]]],
    places_by_cluster: Mapping[str, set[tuple[TopicPartition, int]]],
) -> dict[tuple[str, TopicPartition, int], _Number]:
    """Ask about places of partitions, as many questions side by side as one partition has places; what was not answered
    is left out."""
    asked: dict[tuple[str, tuple[tuple[TopicPartition, int], ...]], Question[Mapping[TopicPartition, _Number]]] = {}
    for alias, places in places_by_cluster.items():
        left = sorted(places)
        while left:
            once = dict(reversed(left))
            part = tuple(sorted(once.items()))
            asked[alias, part] = question(alias, part)
            left = [place for place in left if once[place[0]] != place[1]]
    return {
        (alias, partition, dict(part)[partition]): number
        for (alias, part), answer in ask_each(workspace, asked).items()
        if not isinstance(answer, Mm2mgrError)
        for partition, number in answer.items()
    }
