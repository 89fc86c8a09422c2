"""The page of `audit --page`: verdicts, a timeline of audits, and a picture of each partition's window."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from mm2mgr.audit.report import AuditReport, FlowAudit, PartitionAudit, Verdict
from mm2mgr.operations.audit import AuditHistory
from mm2mgr.output.audit_text import closing, flow_table, groups_of
from mm2mgr.output.page import Context, escape, template
from mm2mgr.output.tables import Table
from mm2mgr.text import number_of

AUDIT_TITLE = "mm2mgr: audit"
DAYS = 30
_DRAWN_PARTITIONS = 200
_GROUPS = 200
_TICKS = 400
_CELL, _HEIGHT = 15.0, 18.0
_WIDTH = 480.0
_CLASSES = {Verdict.EQUAL: "fits", Verdict.DIFFERS: "over", Verdict.NOT_JUDGED: "open"}
_WORST_FIRST = (Verdict.DIFFERS, Verdict.NOT_JUDGED, Verdict.EQUAL)


def audit_page(report: AuditReport, history: AuditHistory, origin: str = "") -> str:
    """Return the page. `history`: audits of the last days, this one too, where the table could be written."""
    return template("audit.html.j2").render(
        title=AUDIT_TITLE,
        verdict=str(report.verdict),
        closing=closing(report),
        origin=f"{origin}; the audit began at {report.began_utc.replace('T', ' ').removesuffix('Z')} UTC.",
        flows=flow_table(report),
        days=DAYS,
        timeline=_timeline(history, report),
        history=_history_table(history),
        pictures=[_flow(flow) for flow in report.flows],
        warnings=[*report.warnings, *history.warnings],
    )


# --- the timeline -----------------------------------------------------------------------------------------------------


def _timeline(history: AuditHistory, report: AuditReport) -> list[Context]:
    today = datetime.fromtimestamp(report.began, UTC).date()
    days = [f"{today - timedelta(days=back):%Y-%m-%d}" for back in reversed(range(DAYS))]
    by_flow: dict[str, dict[str, set[str]]] = {}
    for row in history.rows:
        day = f"{datetime.fromtimestamp(row.time_ms / 1000, UTC):%Y-%m-%d}"
        by_flow.setdefault(row.flow, {}).setdefault(day, set()).add(row.verdict)
    return [{"flow": flow, "drawn": _days(flow, days, verdicts)} for flow, verdicts in sorted(by_flow.items())]


def _days(flow: str, days: Sequence[str], verdicts: dict[str, set[str]]) -> str:
    cells = []
    for place, day in enumerate(days):
        worst = next((verdict for verdict in _WORST_FIRST if verdict.value in verdicts.get(day, ())), None)
        kind, text = (_CLASSES[worst], worst.value) if worst else ("none", "no audit")
        box = f'x="{place * _CELL + 1:g}" y="1" width="{_CELL - 2:g}" height="{_HEIGHT - 2:g}"'
        cells.append(f'<rect class="{kind}" {box}><title>{escape(f"{day}: {text}")}</title></rect>')
    counts = {
        verdict: sum(verdict.value in verdicts.get(day, ()) for day in days)
        for verdict in (Verdict.EQUAL, Verdict.DIFFERS)
    }
    label = f"{flow}: audits of {len(days)} days, {counts[Verdict.DIFFERS]} with differences"
    size = f'viewBox="0 0 {len(days) * _CELL:g} {_HEIGHT:g}"'
    return f'<svg {size} role="img" aria-label="{escape(label)}">{"".join(cells)}</svg>'


def _history_table(history: AuditHistory) -> Table:
    audits: dict[tuple[int, str], list[int]] = {}
    verdicts: dict[tuple[int, str], set[str]] = {}
    for row in history.rows:
        key = (row.time_ms, row.flow)
        differing = row.missing + row.duplicated + row.altered + row.reordered + row.extra
        parts, records, differences = audits.get(key, [0, 0, 0])
        audits[key] = [parts + 1, records + row.source_records, differences + differing]
        verdicts.setdefault(key, set()).add(row.verdict)
    rows = []
    for (time_ms, flow), counts in sorted(audits.items(), reverse=True)[:_GROUPS]:
        worst = next(verdict.value for verdict in _WORST_FIRST if verdict.value in verdicts[time_ms, flow])
        at = f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M}"
        rows.append((at, flow, worst, *map(str, counts)))
    columns = ("began (UTC)", "flow", "verdict", "partitions", "records", "differences")
    return Table(columns, rows, columns[3:])


# --- one flow ---------------------------------------------------------------------------------------------------------


def _flow(flow: FlowAudit) -> Context:
    ordered = sorted(flow.partitions, key=lambda part: (_WORST_FIRST.index(part.verdict), part.source))
    drawn = ordered[:_DRAWN_PARTITIONS]
    groups = [(part, group) for part in ordered for group in groups_of(part)]
    rows = [(f"{part.source}", group.text) for part, group in groups[:_GROUPS]]
    hidden = sum(len(group.differences) for _, group in groups[_GROUPS:])
    reasons = [f"{part.source}: {reason}" for part in ordered for reason in part.not_judged]
    return {
        "flow": flow.flow,
        "parts": drawn,
        "drawn": _partitions(drawn),
        "left_out": len(ordered) - len(drawn),
        "differences": Table(("partition", "difference"), rows, title="Differences"),
        "more": hidden + sum(max(0, part.not_told) for part in ordered),
        "not_judged": [*flow.not_judged, *reasons][:_GROUPS],
        "promises": flow.promises,
    }


def _partitions(parts: Sequence[PartitionAudit]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in ("partition", "verdict", "window"))
    rows = "".join(
        f'<tr><td class="name">{escape(str(part.source))}</td><td>{part.verdict.value}</td><td>{_window(part)}'
        f"{part.source_window[0]} to {part.source_window[1]}, {escape(number_of(part.source_records, 'record'))}"
        "</td></tr>"
        for part in parts
    )
    return f'<table class="full"><tr>{head}</tr>{rows}</table>'


def _window(part: PartitionAudit) -> str:
    """Draw the window of the source as a bar; a line is a record that differs, of an extra one its place in the
    target's window."""
    marks = set()
    for record in part.differences:
        offset, window = record.source_offset, part.source_window
        if offset is None:
            offset, window = record.target_offset, part.target_window
        if not record.expected and offset is not None and window[1] > window[0]:
            marks.add(round(_WIDTH * (offset - window[0]) / (window[1] - window[0])))
    kind = "open" if part.verdict is Verdict.NOT_JUDGED else "fits"
    ticks = "".join(f'<rect class="tick" x="{place}" width="3" height="14"/>' for place in sorted(marks)[:_TICKS])
    box = f'viewBox="0 0 {_WIDTH + 3:g} 14" preserveAspectRatio="none" aria-hidden="true"'
    return f'<svg class="window" {box}><rect class="{kind}" y="3" width="{_WIDTH:g}" height="8"/>{ticks}</svg>'
