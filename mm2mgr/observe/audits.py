"""What audits leave: rows of the table `audits`, entries of the ledger for what differs, and the newest verdict of each
flow. Pure.

A record that an audit finds missing, or that differs, is a range of offsets in the ledger like any other loss: of the
source log, or of the target log where the record is extra. Ranges are exact; of more than a thousand in one window the
last one spans what is left, and where only counts are known one spans the window, with the number of records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mm2mgr.audit.report import AuditReport, DifferenceKind, FlowAudit, PartitionAudit, Verdict, ranges_of, worst
from mm2mgr.observe.losses import Cause, LossEntry, LostRange, row_of
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.schema import AuditRow, LossRow, utc_text
from mm2mgr.text import few, fit_text, number_of
from mm2mgr.topology import Flow

MOST_RANGES = 1_000
"""Of one kind of difference in one window."""
_LONGEST_REASON = 500


def audit_rows(report: AuditReport, flows: Mapping[str, Flow], started_by: str) -> list[AuditRow]:
    """Return a row per partition, and one per flow that could not be judged at all; of these flows alone."""
    rows = []
    for audit, flow in _declared_flows(report, flows):
        windows: dict[tuple[TopicPartition, TopicPartition], list[PartitionAudit]] = {}
        for part in audit.partitions:
            windows.setdefault((part.source, part.target), []).append(part)
        rows += [_row(report, flow, parts, started_by) for parts in windows.values()]
        if audit.not_judged:
            nowhere = TopicPartition("", -1)
            nothing = PartitionAudit(nowhere, nowhere, (0, 0), (0, 0), not_judged=audit.not_judged)
            rows.append(_row(report, flow, [nothing], started_by))
    return rows


def _declared_flows(report: AuditReport, flows: Mapping[str, Flow]) -> Iterator[tuple[FlowAudit, Flow]]:
    return ((audit, flows[audit.flow]) for audit in report.flows if audit.flow in flows)


def _row(report: AuditReport, flow: Flow, windows: Sequence[PartitionAudit], started_by: str) -> AuditRow:
    """Return the row of one partition, of which a sample has several windows."""
    first, reasons = windows[0], [reason for part in windows for reason in part.not_judged]
    return AuditRow(
        flow=flow.id,
        cluster=flow.source.alias,
        topic=first.source.topic,
        partition=first.source.partition,
        target_topic=first.target.topic,
        time_ms=round(report.began * 1000),
        windows=len(windows),
        source_first=min(part.source_window[0] for part in windows),
        source_end=max(part.source_window[1] for part in windows),
        target_first=min(part.target_window[0] for part in windows),
        target_end=max(part.target_window[1] for part in windows),
        source_records=sum(part.source_records for part in windows),
        target_records=sum(part.target_records for part in windows),
        **{kind.value: sum(part.counts.get(kind, 0) for part in windows) for kind in DifferenceKind},
        expected=sum(sum(part.expected.values()) for part in windows),
        not_judged=fit_text(few(reasons, 3, "; "), _LONGEST_REASON) if reasons else None,
        verdict=worst([part.verdict for part in windows]).value,
        engine=report.engine,
        started_by=started_by,
    )


# --- the ledger -------------------------------------------------------------------------------------------------------


def ledger_rows(report: AuditReport, flows: Mapping[str, Flow], entries: Iterable[LossEntry]) -> list[LossRow]:
    """Return what the ledger does not have yet of an audit's differences; what it has is not written again."""
    rows, ledger = [], _ranges_by_key(entries)
    now = report.began + report.seconds
    for audit, flow in _declared_flows(report, flows):
        for part in audit.partitions:
            for kind, lost in _ranges(part):
                is_extra = kind is DifferenceKind.EXTRA
                cluster = flow.target.alias if is_extra else flow.source.alias
                partition = part.target if is_extra else part.source
                row = row_of(flow.id, cluster, partition, lost, now)
                if not _is_covered(row, ledger):
                    rows.append(row)
    return rows


_Key = tuple[str, str, str, int, str | None, str]


def _ranges_by_key(entries: Iterable[LossEntry]) -> dict[_Key, list[tuple[int, float]]]:
    """Return the ranges of entries, first offset and the last one, in order; acknowledged ones too, cut or not."""
    ranges: dict[_Key, list[tuple[int, float]]] = {}
    for entry in entries:
        last = float("inf") if entry.last_offset is None else entry.last_offset
        topic, partition = entry.partition
        key = (entry.flow, entry.cluster, topic, partition, entry.topic_id, entry.cause)
        ranges.setdefault(key, []).append((entry.first_offset, last))
    joined = {}
    for key, of_key in ranges.items():
        joined[key] = of_key[:0]
        for first, last in sorted(of_key):
            if joined[key] and first <= joined[key][-1][1] + 1:
                joined[key][-1] = joined[key][-1][0], max(last, joined[key][-1][1])
            else:
                joined[key].append((first, last))
    return joined


def _is_covered(row: LossRow, ledger: Mapping[_Key, list[tuple[int, float]]]) -> bool:
    ranges = ledger.get((row.flow, row.cluster, row.topic, row.partition, row.topic_id, row.cause), [])
    place = bisect_right(ranges, (row.first_offset, float("inf"))) - 1
    return place >= 0 and row.last_offset is not None and row.last_offset <= ranges[place][1]


def _ranges(part: PartitionAudit) -> Iterator[tuple[DifferenceKind, LostRange]]:
    listed = ranges_of(part.differences)
    for kind, count in part.counts.items():
        is_extra = kind is DifferenceKind.EXTRA
        topic_id = part.target_topic_id if is_extra else part.source_topic_id
        first, end = part.target_window if is_extra else part.source_window
        cause: Cause = kind.value
        runs = [*listed.get(kind, ()), *part.unlisted.get(kind, ())]
        ranges = [(low, last, last - low + 1) for low, last in runs]
        named = sum(difference.kind is kind and not difference.expected for difference in part.differences)
        if count > named and kind not in part.unlisted:
            ranges = [(first, end - 1, min(count, end - first))]
        elif len(ranges) > MOST_RANGES:
            rest = ranges[MOST_RANGES - 1 :]
            ranges[MOST_RANGES - 1 :] = [(rest[0][0], rest[-1][1], sum(size for _, _, size in rest))]
        for low, last, size in ranges if count else ():
            yield kind, LostRange(cause, "records", topic_id, low, last, size, size, None)


# --- the newest verdicts ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AuditState:
    """What is known of a flow's audits: when records were last judged (seconds since 1970, None: never, as far as the
    table goes back), how many by that audit, how many differed by kind, and why the newest audit judged nothing."""

    judged_at: float | None = None
    records: int = 0
    counts: Mapping[str, int] | None = None
    not_judged: str = ""
    json_keys = "judged=judged_utc records counts not_judged"

    @property
    def judged_utc(self) -> str | None:
        return None if self.judged_at is None else utc_text(self.judged_at)

    @property
    def sentence(self) -> str:
        """What the last verdict was, or that there is none."""
        if self.judged_at is None:
            return f"Audit: no record was judged in the last days{f' ({self.not_judged})' if self.not_judged else ''}."
        differences = ", ".join(f"{count} {kind}" for kind, count in (self.counts or {}).items() if count)
        at = utc_text(self.judged_at).removesuffix("Z").replace("T", " ")
        later = f" A later audit judged nothing: {self.not_judged}." if self.not_judged else ""
        return (
            f"Audit at {at} UTC: {number_of(self.records, 'record')} compared, {differences or 'none differs'}.{later}"
        )


def audit_states(rows: Iterable[AuditRow]) -> dict[str, AuditState]:
    """Return what the newest audits say of each flow that has rows.

    A flow was judged when records of at least one of its partitions were compared.
    """
    by_flow: dict[str, dict[int, list[AuditRow]]] = {}
    for row in rows:
        by_flow.setdefault(row.flow, {}).setdefault(row.time_ms, []).append(row)
    states = {}
    for flow, audits in by_flow.items():
        judged = [time for time, parts in audits.items() if any(_is_judged(row) for row in parts)]
        newest = max(audits)
        reasons = [row.not_judged for row in audits[newest] if row.not_judged]
        reason = few(list(dict.fromkeys(reasons)), 1, "; ") if newest not in judged else ""
        if not judged:
            states[flow] = AuditState(not_judged=reason)
            continue
        last = audits[max(judged)]
        counts = {kind.value: sum(getattr(row, kind.value) for row in last) for kind in DifferenceKind}
        states[flow] = AuditState(max(judged) / 1000, sum(row.source_records for row in last), counts, reason)
    return states


def _is_judged(row: AuditRow) -> bool:
    return row.verdict != Verdict.NOT_JUDGED or row.source_records > 0
