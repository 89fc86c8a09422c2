"""An audit as text and Markdown: a line per flow, differences in groups, what was not judged, and what "equal"
means."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from mm2mgr.audit.report import (
    AuditReport,
    DifferenceKind,
    FlowAudit,
    PartitionAudit,
    RecordDifference,
    Verdict,
)
from mm2mgr.operations.audit import AuditRound, Replay
from mm2mgr.operations.records import FlowRecords, MirrorState
from mm2mgr.output.console import PartLog, say, say_command, say_table
from mm2mgr.output.markdown import sentence
from mm2mgr.output.tables import Table
from mm2mgr.text import few, fit_text, list_names, number_of, span_text, visible

GROUPS_SHOWN = 40
"""Groups of differences that text has, of all partitions; JSON has up to `most_differences` records per partition."""
_GROUPS_OF_A_PARTITION = 8
_REASONS_SHOWN = 20
_VALUE_SHOWN = 200
VERDICT_STYLES = {Verdict.EQUAL: "green", Verdict.DIFFERS: "bold red", Verdict.NOT_JUDGED: "yellow"}


class DifferenceGroup(NamedTuple):
    """Differences of one kind, one after the other in the log, with the same fields and cause."""

    differences: tuple[RecordDifference, ...]

    @property
    def first(self) -> RecordDifference:
        return self.differences[0]

    @property
    def text(self) -> str:
        """What happened to which offsets, when, with the hash of a single record's key."""
        first, last, count = self.first, self.differences[-1], len(self.differences)
        parts = [f"{count} {first.kind}" if count > 1 else str(first.kind)]
        for name in ("source", "target"):
            begin, end = getattr(first, f"{name}_offset"), getattr(last, f"{name}_offset")
            if begin is not None:
                parts.append(f"{name} {begin}" if begin == end else f"{name} {begin} to {end}")
        if first.time_utc:
            until = f" to {last.time_utc}" if last.time_utc and last.time_utc != first.time_utc else ""
            parts.append(f"{first.time_utc}{until}")
        if first.fields:
            parts.append(f"other {', '.join(first.fields)}")
        if count == 1:
            parts.append(f"key {first.key_hash}" if first.key_hash else "null key")
        return ", ".join(parts) + (f": {first.note}" if first.note else "")


def groups_of(part: PartitionAudit) -> list[DifferenceGroup]:
    """Return the differences of a partition that no config explains, neighbours together, in the report's order."""
    groups: list[list[RecordDifference]] = []
    for difference in part.differences:
        if difference.expected:
            continue
        if groups and _continues(groups[-1][-1], difference):
            groups[-1].append(difference)
        else:
            groups.append([difference])
    return [DifferenceGroup(tuple(group)) for group in groups]


def _continues(last: RecordDifference, next_: RecordDifference) -> bool:
    if (last.kind, last.fields, last.note) != (next_.kind, next_.fields, next_.note):
        return False
    if any(value is not None for value in (last.source_value, last.target_value)):
        return False  # values are shown record by record
    pairs = ((last.source_offset, next_.source_offset), (last.target_offset, next_.target_offset))
    return all((a is None) == (b is None) and (a is None or b is None or 0 <= b - a <= 1) for a, b in pairs)


def say_audit(report: AuditReport) -> None:
    """Print an audit: flows, differences, what was not judged, the promise, and one closing sentence."""
    say_table(flow_table(report))
    for lines in (_differences(report), _explained_lines(report), not_judged_lines(report), _promises(report)):
        texts = list(lines)
        if texts:
            say()
        for place, line in enumerate(texts):
            say(line, "bold" if place == 0 else None)
    say()
    say(closing(report), VERDICT_STYLES[report.verdict])


def audit_markdown(report: AuditReport) -> str:
    """Return an audit as Markdown, for a ticket or a merge request."""
    table = flow_table(report)
    cells = Table(table.columns, [tuple(sentence(cell) for cell in row) for row in table.rows], table.right)
    parts = [f"**{sentence(closing(report))}**", cells.markdown(100_000)]
    for lines in (_differences(report), _explained_lines(report), not_judged_lines(report), _promises(report)):
        title, *texts = [*lines] or [""]
        if texts:
            parts.append("\n".join((f"### {title}\n", *(f"- {sentence(text.strip())}" for text in texts))))
    return "\n\n".join(parts) + "\n"


def flow_table(report: AuditReport, title: str = "") -> Table:
    """Return a row per flow: verdict, what was compared, and the differences by kind."""
    kinds = tuple(DifferenceKind)
    columns = ("flow", "verdict", "partitions", "records", *kinds, "not judged")
    rows = [
        (
            flow.flow,
            str(flow.verdict),
            str(len({(part.source, part.target) for part in flow.partitions})),
            str(sum(part.source_records for part in flow.partitions)),
            *(str(flow.counts[kind]) for kind in kinds),
            str(_open_parts(flow)),
        )
        for flow in report.flows
    ]
    styles = {"verdict": {str(verdict): style for verdict, style in VERDICT_STYLES.items()}}
    return Table(columns, rows, columns[2:], ("partitions", "not judged"), styles=styles, title=title)


def _open_parts(flow: FlowAudit) -> int:
    return sum(bool(part.not_judged) for part in flow.partitions) + len(flow.not_judged)


def closing(report: AuditReport) -> str:
    """Return the sentence that says how the audit ended, over how much, and how long it took."""
    parts = [part for flow in report.flows for part in flow.partitions]
    partitions = {(flow.flow, part.source, part.target) for flow, part in _parts(report)}
    records = sum(part.source_records for part in parts)
    took = f"{span_text(report.seconds)}, {report.engine}"
    scope = f"{number_of(records, 'record')} of {number_of(len(partitions), 'partition')}"
    if report.verdict is Verdict.EQUAL and not records:
        nothing = f"nothing was compared, as there was no record, in {number_of(len(partitions), 'partition')}"
        return f"Equal: {nothing} ({took})."
    if report.verdict is Verdict.EQUAL:
        return f"Equal: {scope} ({took})."
    open_ = sum(map(_open_parts, report.flows))
    if report.verdict is Verdict.NOT_JUDGED:
        reason = f"{number_of(open_, 'part')} could not be compared" if open_ else "there was nothing to compare"
        return f"Not judged: {reason}; no difference in {scope} ({took})."
    counts = {kind: sum(flow.counts[kind] for flow in report.flows) for kind in DifferenceKind}
    named = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    rest = f"; {number_of(open_, 'part')} not judged" if open_ else ""
    return f"Differs: {named} in {scope}{rest} ({took})."


def say_repair(replays: Sequence[Replay]) -> None:
    """Print the commands that would replay what is missing or altered, and what would then come twice."""
    say()
    if not replays:
        say("Repair plan: nothing is missing or altered, so there is nothing to replay.")
        return
    say("Repair plan, of which nothing is written", "bold")
    for flow in dict.fromkeys(replay.flow for replay in replays):
        say_command(f"mm2mgr stop {shlex.quote(flow)}")
        own = [replay for replay in replays if replay.flow == flow]
        for replay in own:
            say_command(replay.command)
        say_command(f"mm2mgr resume {shlex.quote(flow)}")
        for replay in own:
            say(f"  {replay.topic}-{replay.partition}: {replay_text(replay)}")


def replay_text(replay: Replay) -> str:
    """Return what a replay brings, and what comes twice with it."""
    arrives = [f"{number_of(replay.arrives, 'missing record')} would arrive"] if replay.arrives else []
    if replay.comes_again:
        arrives.append(f"{number_of(replay.comes_again, 'altered record')} would come again, beside the altered copy")
    twice = f"{'at most ' * replay.at_most}{number_of(replay.comes_twice, 'record')} of the window would come twice"
    return f"{'; '.join((*arrives, twice))}, and so would all that was mirrored from offset {replay.window_end} on"


def say_audit_round(done: AuditRound, log: PartLog, *, full: bool = False) -> None:
    """Print one round of audits as a line; `full`: below it the whole audit, where not all was equal."""

    def log_line(text: str, style: str | None = "yellow") -> None:
        log("audit", text, style, done.taken_at)

    for connect, reason in done.without_lease.items():
        log_line(f"Connect cluster '{connect}': {reason}; another process may audit its flows too")
    for warning in done.warnings:
        log_line(f"warning: {warning}")
    if done.error:
        log_line(f"not judged: {done.error}")
    elif done.report is None:
        log_line(f"standby: another process audits {list_names(done.standby)}", "dim")
    elif not full or done.report.verdict is Verdict.EQUAL:
        log_line(closing(done.report), "dim" if done.report.verdict is Verdict.EQUAL else "yellow")
    else:
        log_line("not all is equal")
        say_audit(done.report)


def _differences(report: AuditReport) -> Iterator[str]:
    left, hidden_groups, not_told = GROUPS_SHOWN, 0, 0
    for flow, part in _parts(report):
        not_told += max(0, part.not_told)
        groups = groups_of(part)
        if not groups:
            continue
        shown = groups[: min(_GROUPS_OF_A_PARTITION, left)]
        if shown and left == GROUPS_SHOWN:
            yield "Differences"
        if shown:
            yield f"  {flow.flow}: {window_text(part)}"
        left -= len(shown)
        for group in shown:
            yield f"    {group.text}"
            yield from (f"      {line}" for line in _values(group))
        hidden_groups += sum(len(group.differences) for group in groups[len(shown) :])
    if hidden_groups:
        yield f"  … and {number_of(hidden_groups, 'more difference')}; -o json has them"
    if not_told:
        yield f"  {number_of(not_told, 'difference')} beyond the limit per partition: counted, not listed"


def _values(group: DifferenceGroup) -> Iterator[str]:
    for name in ("source", "target"):
        text = getattr(group.first, f"{name}_text")
        if text is not None:
            yield f"{name}: {fit_text(visible(text), _VALUE_SHOWN)}"


def window_text(part: PartitionAudit) -> str:
    """Return both partitions with their windows of offsets."""
    ends = ((part.source, part.source_window), (part.target, part.target_window))
    return " -> ".join(f"{partition} [{window[0]}, {window[1]})" for partition, window in ends)


def _explained_lines(report: AuditReport) -> Iterator[str]:
    counts: dict[tuple[str, str], int] = {}
    for flow, part in _parts(report):
        for reason, count in part.expected.items():
            counts[flow.flow, reason] = counts.get((flow.flow, reason), 0) + count
    if any(counts.values()):
        yield "Expected by the config, no fault"
    yield from (
        f"  {flow}: {number_of(count, 'record')}: {reason}" for (flow, reason), count in counts.items() if count
    )


def not_judged_lines(report: AuditReport) -> Iterator[str]:
    """Yield a title and what was not judged, the first of them where there are many; nothing where all was."""
    reasons = [f"{flow.flow}: {reason}" for flow in report.flows for reason in flow.not_judged]
    reasons += [f"{flow.flow}: {part.source}: {reason}" for flow, part in _parts(report) for reason in part.not_judged]
    if not reasons:
        return
    yield "Not judged"
    yield from (f"  {reason}" for reason in reasons[:_REASONS_SHOWN])
    if more := reasons[_REASONS_SHOWN:]:
        yield f"  … and {number_of(len(more), 'more reason')}; -o json has them"


def _promises(report: AuditReport) -> Iterator[str]:
    by_text: dict[str, list[str]] = {}
    for flow in report.flows:
        for promise in flow.promises:
            by_text.setdefault(promise, []).append(flow.flow)
    if by_text:
        yield 'What "equal" means here'
    for promise, flows in by_text.items():
        yield f"  {promise}" if len(flows) == len(report.flows) else f"  {promise} ({few(flows)})"


def _parts(report: AuditReport) -> Iterable[tuple[FlowAudit, PartitionAudit]]:
    return ((flow, part) for flow in report.flows for part in flow.partitions)


# --- single records ---------------------------------------------------------------------------------------------------

_RECORD_STYLES: dict[str, str | None] = {
    MirrorState.EQUAL: "green",
    MirrorState.ALTERED: "bold red",
    MirrorState.MISSING: "bold red",
    MirrorState.NOT_JUDGED: "yellow",
}


def say_records(flows: Sequence[FlowRecords]) -> None:
    """Print the records of each flow with their mirrors, what is to be said of them, and how many are equal."""
    for flow in flows:
        remote = visible(flow.remote) or "an unknown topic"
        say(f"{flow.flow}: {visible(flow.topic)} on {flow.source}, {remote} on {flow.target}", style="bold")
        shown = any(record.shown for record in flow.records)
        rows = [
            [
                str(record.partition),
                str(record.offset),
                record.time_utc or "–",
                _size_text(record.key_bytes),
                _size_text(record.value_bytes),
                str(record.state),
                ", ".join(map(str, record.mirrors)) or "–",
                *([_content_text(record.key_text), _content_text(record.value_text)] if shown else []),
            ]
            for record in flow.records
        ]
        columns = ["partition", "offset", "time", "key (bytes)", "value (bytes)", "mirror", f"offset on {flow.target}"]
        if rows:
            say_table(
                Table(
                    [*columns, *(["key", "value"] if shown else [])],
                    rows,
                    right=(*columns[:2], *columns[3:5], columns[6]),
                    drop=("key (bytes)", "value (bytes)", "time"),
                    wrap=("key", "value"),
                    styles={"mirror": _RECORD_STYLES},
                    indent=2,
                )
            )
        reasons: dict[str, list[str]] = {}
        for record in flow.records:
            if record.reason:
                reasons.setdefault(f"{record.state}: {record.reason}", []).append(f"{record.partition}@{record.offset}")
        for reason, places in reasons.items():
            say(f"  {few(places)} {visible(reason)}", "dim")
        for reason in flow.not_judged[:_REASONS_SHOWN]:
            say(f"  ! {visible(reason)}", style="yellow")
        counts = Counter(str(record.state) for record in flow.records)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        say(f"  {number_of(len(flow.records), 'record')}{states and ': '}{states}")


def _size_text(size: int | None) -> str:
    return "null" if size is None else str(size)


def _content_text(text: str | None) -> str:
    return "null" if text is None else fit_text(visible(text), _VALUE_SHOWN)
