"""What is said of windows beside their records: what changed while they were read, offsets alone, two mirrors of one
source. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from mm2mgr.audit.report import AuditReport, DifferenceKind, FlowAudit, PartitionAudit, RecordDifference
from mm2mgr.audit.windows import CONTEXT, AuditOrder, FlowOrder, LogWindow, Matching, PartitionOrder
from mm2mgr.partitions import TopicPartition


@dataclass(frozen=True)
class LaterLook:
    """One cluster after everything was read: ids of its topics (those it still has), log starts, or why it could not be
    looked at."""

    topic_ids: Mapping[str, str] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    failure: str = ""


def checked_again(order: AuditOrder, report: AuditReport, later: Mapping[str, LaterLook]) -> AuditReport:
    """Return the report without a verdict on what retention removed, and on topics that were deleted or created again,
    while they were read."""

    def check(flow: FlowOrder, part: PartitionOrder, audit: PartitionAudit) -> PartitionAudit:
        if part.not_judged or part.source.first >= part.source.end:
            return audit
        sides = (
            (flow.source.alias, part.source, part.source_topic_id),
            (flow.target.alias, part.target, part.target_topic_id),
        )
        reasons, is_other = list[str](), False
        for alias, window, topic_id in sides:
            reason, other = _change_of(alias, window, topic_id, later.get(alias, LaterLook()))
            reasons += [reason] if reason else []
            is_other |= other
        if is_other:  # what was found may be of two logs
            audit = replace(audit, counts={}, expected={}, differences=(), unlisted={})
        return replace(audit, not_judged=(*audit.not_judged, *reasons))

    flows = [
        replace(
            audit,
            partitions=tuple(
                check(flow, part, partition_audit)
                for part, partition_audit in zip(flow.partitions, audit.partitions, strict=True)
            ),
        )
        for flow, audit in zip(order.flows, report.flows, strict=True)
    ]
    return replace(report, flows=tuple(flows))


def _change_of(alias: str, window: LogWindow, topic_id: str, later: LaterLook) -> tuple[str, bool]:
    """Return what happened to a log while it was read, and whether it is another log now."""
    topic = window.partition.topic
    if later.failure:
        return f"{alias} could not be looked at again after it was read: {later.failure}", False
    if topic not in later.topics:
        return f"{topic} on {alias} was deleted while it was read", True
    now = later.topic_ids.get(topic, "")
    if topic_id != now:
        return f"{topic} on {alias} was created again while it was read", True
    start = later.starts.get(window.partition)
    if start is None:
        return f"the log start of {window.partition} on {alias} could not be read again", False
    if start > window.first and window.first < window.end:
        removed = f"offsets {window.first}-{min(start, window.end) - 1} of {window.partition} on {alias}"
        return f"{removed}: retention removed them while they were read", False
    return "", False


def sent_again_behind(flow: FlowOrder, part: PartitionOrder) -> str:
    """Return why a window is not judged behind whose place the target has so many offsets that are not the source's
    that all of its records may be there once more, "" where they cannot."""
    if part.expectation.matching is not Matching.ORDERED or flow.target.committed:
        return ""
    source, log, mirror = part.source, part.source_log, part.target_log
    mirrored = max(0, log.end - source.end - 2 * CONTEXT)  # the target is read so far behind the window
    surplus, enough = mirror.end - part.target.end - mirrored, source.end - source.first
    if log.start == mirror.start == 0:
        surplus = min(surplus, mirror.end - log.end)
    else:  # where the window's place was found by timestamps, it is not known to the record
        enough += CONTEXT
    if part.target.end >= mirror.end or surplus < max(1, enough):
        return ""
    rest = f"{part.target.partition} has {surplus} offsets behind {part.target.end} that the source does not have"
    return f"{rest}: the window may have come twice; only an audit of the whole log tells"


# --- offsets alone ----------------------------------------------------------------------------------------------------

COUNTS_PROMISE = (
    "counts only: the target has as many offsets as the source had up to the stored one; no record was read, and"
    " offsets without a record, such as transaction markers of producers, count too"
)


def judge_counts(order: AuditOrder, began: float, seconds: float) -> AuditReport:
    """Judge by offsets alone: at least as many on the target as are mirrored, at most as many as the source has."""
    flows = tuple(
        FlowAudit(flow.flow, tuple(_count(flow, part) for part in flow.partitions), (COUNTS_PROMISE,), flow.not_judged)
        for flow in order.flows
    )
    return AuditReport(flows, began, seconds, "offsets only", order.warnings)


def _count(flow: FlowOrder, part: PartitionOrder) -> PartitionAudit:
    least, most = part.source.end - part.source.first, part.source_log.end - part.source.first
    there = part.target_log.end - part.target.first
    counts: dict[DifferenceKind, int] = {}
    reasons = list(part.not_judged)
    if not reasons and least:
        if part.expectation.matching is Matching.LATEST or part.expectation.steps:
            reasons.append("offsets cannot be compared where compaction or a transformation drops records")
        elif flow.target.committed or flow.source.committed:
            reasons.append("offsets cannot be compared where transaction markers take some")
        elif there == 0:
            counts[DifferenceKind.MISSING] = least
        elif there < least:
            fewer = f"the target has {least - there} offsets fewer: missing records, or markers of transactions"
            reasons.append(f"{fewer} that the source's log has; an audit without --counts tells")
        elif part.expectation.matching is Matching.FAN_IN:
            reasons.append("offsets cannot be compared where several sources write to one topic")
        elif part.source_log.start == part.source.first == part.target_log.start == 0 and there > most:
            counts[DifferenceKind.EXTRA] = there - most
        elif part.source.first > 0 and there > most:
            older = f"the target has {there} offsets, the source {most} from {part.source.first} on"
            reasons.append(f"{older}: older records that only the target has left may hide missing ones")
    return PartitionAudit(
        part.source.partition,
        part.target.partition,
        (part.source.first, part.source.end),
        (part.target.first, part.target.end),
        least,
        there,
        counts,
        not_judged=tuple(reasons),
        source_topic_id=part.source_topic_id,
        target_topic_id=part.target_topic_id,
    )


# --- two mirrors of one source ----------------------------------------------------------------------------------------


def same_windows(order: AuditOrder) -> AuditOrder:
    """Return the order of two flows with the same windows of their source: what both mirror, up to what both stored."""
    first, second = ({part.source.partition: part for part in flow.partitions} for flow in order.flows)
    shared = [partition for partition in first if partition in second]

    def bound_window(own: PartitionOrder, other: PartitionOrder) -> PartitionOrder:
        reasons = tuple(dict.fromkeys((*own.not_judged, *other.not_judged)))
        window = replace(own.source, end=min(own.source.end, other.source.end))
        return replace(own, source=window, not_judged=reasons)

    pairs = [(first[partition], second[partition]) for partition in shared]
    flows = (
        replace(
            order.flows[0], partitions=tuple(bound_window(first_part, second_part) for first_part, second_part in pairs)
        ),
        replace(
            order.flows[1], partitions=tuple(bound_window(second_part, first_part) for first_part, second_part in pairs)
        ),
    )
    alone = sorted({str(partition) for partition in first.keys() ^ second.keys()})
    warnings = (
        [f"{len(alone)} partitions that only one of them mirrors are left out, such as {alone[0]}"] if alone else []
    )
    return replace(order, flows=flows, warnings=(*order.warnings, *warnings))


def add_comparison(report: AuditReport) -> AuditReport:
    """Add a flow to the report of two: their mirrors beside each other, with the differences that only one has."""
    first, second = report.flows
    partitions = tuple(
        _compare_parts(first, first_part, second, second_part)
        for first_part, second_part in zip(first.partitions, second.partitions, strict=True)
    )
    promise = (
        "both mirrors have the same records in the same order, or differ from the source in the same way;"
        f" source is {first.flow} here, target {second.flow}"
    )
    not_judged = tuple(dict.fromkeys((*first.not_judged, *second.not_judged)))
    both = FlowAudit(f"{first.flow} beside {second.flow}", partitions, (promise,), not_judged)
    return replace(report, flows=(first, second, both))


def _compare_parts(
    first: FlowAudit, first_part: PartitionAudit, second: FlowAudit, second_part: PartitionAudit
) -> PartitionAudit:
    told: list[RecordDifference] = []
    counts: dict[DifferenceKind, int] = {}
    elsewhere = 0
    for flow, own, other in ((first, first_part, second_part), (second, second_part, first_part)):
        places: dict[object, list[int | None]] = {}
        for difference in other.differences:
            places.setdefault(_meaning(difference), []).append(difference.target_offset)
        for difference in own.differences:
            same, place = places.get(_meaning(difference)), difference.target_offset
            if same:
                at_same = place in same
                same.remove(place if at_same else same[0])
                elsewhere += not at_same and difference.kind in _PLACED
            else:
                told.append(
                    replace(difference, note="; ".join(filter(None, (difference.note, f"only in {flow.flow}"))))
                )
                if not difference.expected:
                    counts[difference.kind] = counts.get(difference.kind, 0) + 1
    moved = f"{elsewhere // 2} records are out of place in both mirrors, and not at one offset: not compared further"
    reasons = list(
        dict.fromkeys(
            (
                *([moved] if elsewhere else []),
                *first_part.not_judged,
                *second_part.not_judged,
                *_limit_reached(first_part),
                *_limit_reached(second_part),
            )
        )
    )
    return PartitionAudit(
        first_part.target,
        second_part.target,
        first_part.target_window,
        second_part.target_window,
        first_part.target_records,
        second_part.target_records,
        counts,
        differences=tuple(told),
        not_judged=tuple(reasons),
    )


def _limit_reached(audit: PartitionAudit) -> Iterator[str]:
    total = sum(audit.counts.values()) + sum(audit.expected.values())
    if len(audit.differences) < total:
        yield f"{audit.target}: only {len(audit.differences)} of {total} differences are known one by one"


_PLACED = {DifferenceKind.DUPLICATED, DifferenceKind.REORDERED, DifferenceKind.EXTRA}
"""Whose place on the target is not told by the source's offset."""


def _meaning(difference: RecordDifference) -> tuple[object, ...]:
    """What makes differences of two mirrors the same: the source's record and what became of it, or what nobody
    mirrored."""
    own = () if difference.source_offset is not None else (difference.time_ms, difference.key_hash)
    return difference.kind, difference.source_offset, difference.fields, own, difference.content
