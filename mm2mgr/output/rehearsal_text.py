"""A rehearsal of a failover in words: a table of groups, worst first, how long each stage took, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from mm2mgr.failover.rehearsal import FIRST, JUDGE, WRITE, Rehearsal, RehearsedGroup
from mm2mgr.output.console import say, say_table
from mm2mgr.output.failover_text import say_unread
from mm2mgr.output.markdown import code, escape
from mm2mgr.output.tables import Table
from mm2mgr.text import few, number_of, one_line, span_text

_STYLES = {"not good": "bold red", "not judged": "yellow", "good with": "yellow", "good": "green"}
_MOST_BYTES = 30_000
_MOST_REASONS = 6
_COLUMNS = ("group", "verdict", "positions", "records", "again", "at most", "first record", "why")
_NUMBERS = ("positions", "records", "again", "at most", "first record")


def say_rehearsal(rehearsal: Rehearsal, *, rows: int) -> None:
    """Print the groups, worst first (as many as `rows`), the stages, and the verdict."""
    if rehearsal.groups:
        say_table(_groups(rehearsal, rows))
    if len(rehearsal.groups) > rows:
        say(f"  … and {number_of(len(rehearsal.groups) - rows, 'more group')} (--rows, or -o json)", "dim")
    say_unread(rehearsal.unread, "read or written")
    for line in _facts(rehearsal):
        say(line)
    say(rehearsed_text(rehearsal), _STYLES[rehearsal.verdict.word])


def rehearsed_text(rehearsal: Rehearsal) -> str:
    """Return the verdict with its numbers, or with why it is no better one."""
    verdict, counts = rehearsal.verdict, rehearsal.counts
    numbers = (
        f"{number_of(len(rehearsal.groups), 'group')} in {number_of(sum(counts.values()), 'position')}:"
        f" {counts['same']} same, {counts['within']} within, {counts['at the end']} at the end,"
        f" {counts['differs']} differ, {counts['not compared']} not compared"
    )
    reasons = [*verdict.reasons[:_MOST_REASONS]]
    more = len(verdict.reasons) - len(reasons)
    reasons += [f"{number_of(more, 'more reason')}"] if more else []
    word = verdict.word.upper()
    if not reasons:
        return f"{word}: {rehearsal.pair}: {numbers}"
    shown = "; ".join(map(one_line, reasons))
    return (
        f"{word}: {rehearsal.pair}: {shown} ({numbers})" if rehearsal.groups else f"{word}: {rehearsal.pair}: {shown}"
    )


def _facts(rehearsal: Rehearsal) -> Iterator[str]:
    seconds = {stage.name: stage.seconds for stage in rehearsal.stages}
    stages = ", ".join(f"{stage.name} {span_text(stage.seconds)}" for stage in rehearsal.stages)
    yield f"Stages: {stages}."
    if rehearsal.recovery_seconds is not None:
        yield (
            f"Recovery time: {span_text(rehearsal.recovery_seconds)} until the slowest group has its first record"
            f" (judge {span_text(seconds[JUDGE])}, write groups {span_text(seconds[WRITE])}, first record"
            f" {span_text(seconds[FIRST])}). Not in it: {rehearsal.not_measured}."
        )
    else:
        yield "Recovery time: not measured."
    abandoned = f", and {rehearsal.abandoned} of an earlier rehearsal" if rehearsal.abandoned else ""
    remaining = f"; still there: {few(rehearsal.remaining)}" if rehearsal.remaining else ""
    yield f"Scratch groups deleted: {rehearsal.deleted}{abandoned}{remaining}."


def _groups(rehearsal: Rehearsal, most: int) -> Table:
    rows = [_cells(group) for group in rehearsal.worst_first[:most]]
    styles = {"verdict": _STYLES}
    return Table(_COLUMNS, rows, right=_NUMBERS, drop=("positions", "at most"), wrap=("why",), styles=styles)


def _cells(group: RehearsedGroup) -> tuple[str, ...]:
    first = "-" if group.first_seconds is None else span_text(group.first_seconds)
    numbers = (f"{len(group.positions)}", f"{group.compared_records}", f"{group.again}", f"{group.may_repeat}")
    return group.group, group.word, *numbers, first, _reason_text(group)


def _reason_text(group: RehearsedGroup) -> str:
    reasons = [group.failure] if group.failure else []
    if group.untranslated:
        reasons.append(f"position not known: {few(group.untranslated_names)}")
    worst = [place for place in group.positions if place.outcome == group.outcome and place.reason]
    if worst:
        names = few([str(place.position.partition) for place in worst])
        reasons.append(f"{names}: {worst[0].reason}")
    return one_line("; ".join(reasons))


def rehearsal_markdown(rehearsal: Rehearsal, rows: int) -> str:
    """Return the rehearsal as Markdown, for an audit or a ticket."""
    parts = [f"### {escape(rehearsed_text(rehearsal))}", *map(escape, _facts(rehearsal))]
    if rehearsal.groups:
        table = _groups(rehearsal, rows)
        cells = [[code(row[0]), *map(escape, row[1:])] for row in table.rows]
        parts.append(Table(table.columns, cells).markdown(_MOST_BYTES))
    if len(rehearsal.groups) > rows:
        parts.append(f"… and {number_of(len(rehearsal.groups) - rows, 'more group')}.")
    lines = [
        f"- {escape(f'{unread.where}: {unread.subject}: {unread.reason}. {unread.remedy}')}"
        for unread in rehearsal.unread
    ]
    return "\n\n".join([*parts, *(["\n".join(lines)] if lines else [])]) + "\n"
