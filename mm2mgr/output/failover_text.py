"""Readiness of a pair in words: a table of groups, worst first, what differs, and the verdict as the last line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mm2mgr.failover.check import (
    FailoverVerdict,
    GroupPosition,
    GroupReadiness,
    PairReadiness,
    Unread,
    lost_text,
)
from mm2mgr.output.console import say, say_command, say_table
from mm2mgr.output.markdown import code, escape
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.text import few, number_of, one_line, span_text

_STYLES = {
    "NO-GO": "bold red",
    "not judged": "yellow",
    "GO WITH": "yellow",
    "GO": "green",
}
_MOST_BYTES = 30_000
_MOST_REASONS = 6


def say_readiness(pair: PairReadiness, *, rows: int, by_partition: bool) -> None:
    """Print the groups, worst first (as many as `rows`), what differs, and the verdict."""
    table = _partitions(pair, rows) if by_partition else _groups(pair, rows)
    if pair.groups:
        say_table(table)
    else:
        say("No group has committed offsets on a topic that this pair mirrors.")
    total = sum(group.count for group in pair.groups) if by_partition else len(pair.groups)
    if total > len(table.rows):
        noun = "position" if by_partition else "group"
        say(f"  … and {number_of(total - len(table.rows), f'more {noun}')} (--rows, or -o json)", "dim")
    for remark in pair.remarks:
        style = {"blocks": "bold red", "warns": "yellow"}.get(remark.effect)
        say(f"{'!' if style else '-'} {remark.text}{f': {remark.remedy}' * bool(remark.remedy)}", style)
    say_unread(pair.unread, "read")
    for line in _facts(pair):
        say(line)
    say(verdict_text(pair), _STYLES[pair.verdict.word])


def say_unread(unread: Iterable[Unread], verb: str) -> None:
    """Print what could not be read, or written, with what to do."""
    for part in unread:
        say(f"? {part.where}: {part.subject} could not be {verb}: {one_line(part.reason)}", "yellow")
        if part.remedy:
            say(f"    {one_line(part.remedy)}")
        for command in part.commands:
            say_command(command)


def verdict_text(pair: PairReadiness) -> str:
    """Return the verdict with its numbers, or with why it is none."""
    verdict = pair.verdict
    numbers = f"{_numbers(pair, verdict)}"
    if verdict.word == "GO":
        return f"GO: {pair.pair}: {numbers}"
    reasons = [*verdict.reasons[:_MOST_REASONS]]
    more = len(verdict.reasons) - len(reasons)
    reasons += [f"{more} more reasons"] if more else []
    if verdict.word == "GO WITH":
        return f"GO WITH: {pair.pair}: {'; '.join(reasons)} ({numbers})"
    return f"{verdict.word}: {pair.pair}: {'; '.join(reasons)}"


def _numbers(pair: PairReadiness, verdict: FailoverVerdict) -> str:
    positions = sum(group.count for group in pair.groups)
    again = "unknown" if verdict.repeats_at_most is None else f"at most {verdict.repeats_at_most}"
    lost = "unknown" if verdict.lost_at_most is None else f"at most {verdict.lost_at_most}"
    return (
        f"{number_of(len(pair.groups), 'group')} in {number_of(positions, 'position')}, "
        f"{again} again, {verdict.skips_at_most} skipped, {lost} lost"
    )


def _facts(pair: PairReadiness) -> Iterator[str]:
    yield f"If it happened now: {lost_text(pair.recovery)}."
    time = pair.time
    drain = "unknown" if time.drain_seconds is None else span_text(time.drain_seconds)
    yield (
        f"Once producers have stopped: {drain} until the last record is there, at the pace of the mirror so far, and "
        f"{span_text(time.checkpoint_seconds)} until its checkpoints are."
    )
    compared = sum(group.sample_counts[0] for group in pair.groups)
    same = sum(group.sample_counts[1] for group in pair.groups)
    if compared:
        yield f"Records compared at {number_of(compared, 'position')}: the same one at both offsets at {same}."
    else:
        yield "Records compared at no position."


_COLUMNS = ("group", "verdict", "partitions", "again", "skipped", "checkpoint", "why")


def _groups(pair: PairReadiness, most: int) -> Table:
    groups = pair.worst_first[:most]
    rows = [_group_cells(pair, group) for group in groups]
    return Table(
        _COLUMNS,
        rows,
        right=("partitions", "again", "skipped"),
        drop=("checkpoint", "partitions"),
        wrap=("why",),
        styles={"verdict": _STYLES},
    )


def _group_cells(pair: PairReadiness, group: GroupReadiness) -> tuple[str, ...]:
    again = "unknown" if group.repeats is None else f"{group.repeats}"
    age = "-" if group.checkpoint_at is None else f"{span_text(max(0.0, pair.taken_at - group.checkpoint_at))} ago"
    return group.group, group.word, f"{group.count}", again, f"{group.skips}", age, _reason_text(group)


def _reason_text(group: GroupReadiness) -> str:
    reasons = ["has members on the target"] if group.has_members else []
    worst = [
        position
        for position, risk in zip(group.positions, group.risks, strict=True)
        if risk.state == group.state and risk.state not in {"exact", "repeats"}
    ]
    if worst:
        names = few([str(position.partition) for position in worst])
        reasons.append(f"{_STATE_TEXTS[group.state]}: {names}")
        if group.state == "unknown" and worst[0].reason:
            reasons.append(worst[0].reason)
    return "; ".join(reasons)


_STATE_TEXTS = {
    "skips": "would skip records",
    "differs": "other records there",
    "out of range": "offset outside of the target's log",
    "absent": "no offset on the target",
    "unknown": "position not known",
}


def _partitions(pair: PairReadiness, most: int) -> Table:
    numbers = ("committed", "checkpoint", "on target", "translated", "again", "skipped")
    columns = ("group", "partition", "verdict", *numbers, "why")
    cells: list[tuple[str, ...]] = []
    for group in pair.worst_first:
        cells += [
            (
                group.group,
                str(position.partition),
                risk.state,
                or_dash(position.committed),
                or_dash(position.checkpoint and position.checkpoint[1]),
                or_dash(position.on_target),
                _translated_text(position),
                or_dash(risk.repeats),
                or_dash(risk.skips),
                position.reason,
            )
            for position, risk in zip(group.positions, group.risks, strict=True)
        ]
        if len(cells) >= most:
            break
    return Table(columns, cells[:most], right=numbers, drop=("why", "checkpoint"), wrap=("why",))


def _translated_text(position: GroupPosition) -> str:
    if position.bounds is None:
        return "-"
    repeats = position.bounds.repeats
    return f"{position.bounds.lower}" + (f" (+{repeats})" if repeats else "")


# --- Markdown ---------------------------------------------------------------------------------------------------------


def readiness_markdown(pair: PairReadiness, rows: int) -> str:
    """Return the readiness as Markdown, for an incident or a pull request."""
    parts = [f"### {escape(verdict_text(pair))}", *(f"{escape(line)}" for line in _facts(pair))]
    if pair.groups:
        table = _groups(pair, rows)
        cells = [[code(row[0]), *map(escape, row[1:])] for row in table.rows]
        parts.append(Table(table.columns, cells).markdown(_MOST_BYTES))
    if len(pair.groups) > rows:
        parts.append(f"… and {number_of(len(pair.groups) - rows, 'more group')}.")
    notes = [*_remark_lines(pair), *_unread_lines(pair)]
    if notes:
        parts.append("\n".join(notes))
    return "\n\n".join(parts) + "\n"


def _remark_lines(pair: PairReadiness) -> Iterable[str]:
    for remark in pair.remarks:
        yield f"- {escape(remark.text)}{f': {escape(remark.remedy)}' * bool(remark.remedy)}"


def _unread_lines(pair: PairReadiness) -> Iterable[str]:
    for unread in pair.unread:
        yield f"- {escape(f'{unread.where}: {unread.subject} could not be read: {unread.reason}. {unread.remedy}')}"
