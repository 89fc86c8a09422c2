"""The report of an import as text and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mm2mgr.imports.report import OUTCOMES, Advice, ConnectorLeftOut, Outcome, ReportRow
from mm2mgr.output.console import say, say_command, say_table
from mm2mgr.output.markdown import code, escape
from mm2mgr.output.tables import Table
from mm2mgr.text import few, number_of

if TYPE_CHECKING:
    from mm2mgr.imports.equivalence import SettingDifference
    from mm2mgr.operations.imports import ImportedFolder

_USUAL: tuple[Outcome, ...] = ("lost", "different", "nothing")


def say_import(imported: ImportedFolder, *, everything: bool = False) -> None:
    """Print what needs a decision, what did nothing, on demand all else, the sums, and what to do next."""
    report = imported.report
    told = {left.reason_of_keys for left in report.left_out}  # once for a connector, not for each key of it
    for outcome in OUTCOMES if everything else _USUAL:
        rows = [row for row in report.rows if row.outcome == outcome and row.reason not in told]
        if rows:
            say(f"{OUTCOMES[outcome]}:", style="bold")
            say_table(_row_table(rows))
            say()
    for left in report.left_out:
        if left.is_unneeded:
            continue
        keys = sum(row.reason == left.reason_of_keys for row in report.rows)
        more = f" ({number_of(keys, 'key')})" if keys else ""
        say(f"{left.place}: {left.connector} is left out{more}: {left.reason}", style="yellow")
        say(f"  {left.fix}")
    if report.differences:
        say("different, and by no key of the sources:", style="bold")
        say_table(_difference_table(report.differences))
        say()
    if report.advice:
        say("kept as it behaves; `lint` advises:", style="bold")
        say_table(_advice_table(report.advice))
        say()
    for text in (*imported.passed_over, *report.notes, *unneeded_text(report.left_out)):
        say(text)
    for advice in imported.cluster_mirroring:
        say(f"{advice.flow}: {advice.sentence}")
    say(sum_text(imported), style="bold")
    for line in next_steps(imported):
        if line.startswith("mm2mgr "):
            say_command(line)
        else:
            say(line)


def sum_text(imported: ImportedFolder) -> str:
    """Return the sums in one sentence."""
    report = imported.report
    connectors = f"{number_of(report.connectors, 'connector')} in {number_of(report.flows, 'flow')}"
    count = sum(not left.is_unneeded for left in report.left_out)
    left = f", {number_of(count, 'connector')} left out" if count else ""
    more = f"; {number_of(len(report.differences), 'difference')} by no key" if report.differences else ""
    return f"{report.sum_line}{more} ({connectors}{left})"


def unneeded_text(left_out: Sequence[ConnectorLeftOut]) -> Iterator[str]:
    """Yield a sentence on the heartbeat connectors that end with a dedicated MirrorMaker, if there are any."""
    names = [left.connector.partition(" ")[0] for left in left_out if left.is_unneeded]
    if names:
        end = "the heartbeats of this pair end" if len(names) == 1 else "the heartbeats of these pairs end"
        yield (
            f"{few(names)}: {end} with the dedicated MirrorMaker, and no flow needs them: each flow mirrors those that "
            "are written to its source"
        )


def next_steps(imported: ImportedFolder) -> Iterator[str]:
    """Yield what a person does next, commands as they are typed."""
    report, out = imported.report, imported.out
    if out is None:
        yield "Nothing was written: name a new folder with --out."
        return
    yield f"Written: {', '.join(map(str, imported.written))}"
    if report.placeholders:
        yield "Set on the workers, with the config provider `env`:"
        yield from (f"  {item.variable}: {item.stands_for} ({item.place or 'unknown'})" for item in report.placeholders)
    yield "Check the addresses under connect:, then:"
    yield f"mm2mgr -f {out} lint"
    yield f"mm2mgr -f {out} plan"


def _difference_table(differences: Sequence[SettingDifference]) -> Table:
    cells = [(row.connector, row.client, _change_text(row)) for row in differences]
    below = [[row.changes] for row in differences]
    return Table(("connector", "client", "what"), cells, wrap=("what",), gap=2, header=False, below=below)


def _change_text(row: SettingDifference) -> str:
    old, new = ("nothing" if text is None else text or "empty" for text in (row.shown_old, row.shown_new))
    return f"{row.key}: {old} -> {new}" if row.key else f"{old} -> {new}"


def _advice_table(advice: Sequence[Advice]) -> Table:
    cells = [(item.place, item.severity, item.rule, item.message) for item in advice]
    below = [[f"fix: {item.fix}"] for item in advice]
    return Table(("place", "severity", "rule", "message"), cells, wrap=("message",), gap=2, header=False, below=below)


def _row_table(rows: Sequence[ReportRow]) -> Table:
    cells = [(row.place, row.key, row.where or row.reason) for row in rows]
    below = [_lines_below(row) for row in rows]
    return Table(("place", "key", "where or why"), cells, wrap=("where or why",), gap=2, header=False, below=below)


def _lines_below(row: ReportRow) -> list[str]:
    texts = [row.reason] if row.where and row.reason else []
    return texts + ([f"fix: {row.fix}"] if row.fix else [])


def import_markdown(imported: ImportedFolder) -> str:
    """Return the whole report as Markdown."""
    report = imported.report
    lines = ["# Import", "", escape(sum_text(imported)), ""]
    for outcome, words in OUTCOMES.items():
        rows = [row for row in report.rows if row.outcome == outcome]
        if rows:
            lines += [
                f"## {words[0].upper()}{words[1:]}",
                "",
                "| place | key | where | why | fix |",
                "|---|---|---|---|---|",
            ]
            lines += [
                f"| {code(row.place)} | {code(row.key)} | {code(row.where)} | {escape(row.reason)} |"
                f" {escape(row.fix)} |"
                for row in rows
            ]
            lines.append("")
    if left_out := [left for left in report.left_out if not left.is_unneeded]:
        lines += ["## Connectors left out", ""]
        lines += [
            f"- {code(left.place)} {code(left.connector)}: {escape(left.reason)}; {escape(left.fix)}"
            for left in left_out
        ]
        lines.append("")
    if report.differences:
        lines += ["## Different, and by no key of the sources", "", "| connector | client | what | changes |"]
        lines += ["|---|---|---|---|"]
        lines += [
            f"| {code(row.connector)} | {escape(row.client)} | {code(_change_text(row))} | {escape(row.changes)} |"
            for row in report.differences
        ]
        lines.append("")
    if report.advice:
        lines += ["## Kept as it behaves; advice of lint", "", "| place | rule | what | fix |", "|---|---|---|---|"]
        lines += [
            f"| {code(item.place)} | {code(item.rule)} | {escape(item.message)} | {escape(item.fix)} |"
            for item in report.advice
        ]
        lines.append("")
    if imported.cluster_mirroring:
        lines += ["## Cluster Mirroring", ""]
        lines += [f"- {code(advice.flow)}: {escape(advice.sentence)}" for advice in imported.cluster_mirroring]
        lines.append("")
    if report.placeholders:
        lines += ["## To set on the workers", ""]
        lines += [
            f"- {code(item.variable)}: {escape(item.stands_for)}, {escape(item.place)}" for item in report.placeholders
        ]
        lines.append("")
    notes = (*imported.passed_over, *report.notes, *unneeded_text(report.left_out))
    lines += [f"- {escape(text)}" for text in notes]
    return "\n".join(lines).rstrip() + "\n"
