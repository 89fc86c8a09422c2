"""The comparison of a tree with what it was made from, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from mm2mgr.imports.equivalence import Equivalence, SettingDifference
from mm2mgr.output.console import say, say_table
from mm2mgr.output.tables import Table
from mm2mgr.text import number_of

_NOTHING = "(nothing)"


def say_equivalence(result: Equivalence) -> None:
    """Print each difference by connector, conditions and assumptions, and the verdict last."""
    _say_rows(result.differences)
    if result.open:
        say("Not judged, as workers or their Kafka version decide:", style="bold yellow")
        _say_rows(result.open)
    if result.on_purpose:
        say("Different on purpose:", style="bold")
        _say_rows(result.on_purpose)
    for condition in result.secrets:
        say(f"{condition.placeholder} has to hold what {', '.join(condition.keys)} was in clear")
    for assumption in result.assumptions:
        say(f"Assumed: {assumption}")
    styles = {"equal": "green", "differs": "red", "open": "yellow"}
    say(verdict(result), style=f"bold {styles[result.outcome]}")


def verdict(result: Equivalence) -> str:
    """Return the result in one sentence."""
    compared = f"{number_of(result.connectors, 'connector')} with {number_of(result.clients, 'client')} compared"
    idle = f"; {number_of(len(result.idle), 'key')} written otherwise, without effect" if result.idle else ""
    if result.outcome == "equal":
        return f"{compared}: each gets what it got{idle}"
    counts = [number_of(len(result.differences), "difference")] if result.differences else []
    counts += [f"{len(result.open)} not judged"] if result.open else []
    return f"{compared}: {', '.join(counts)}{idle}"


def _say_rows(rows: Sequence[SettingDifference]) -> None:
    for connector, group in groupby(rows, key=lambda row: row.connector):
        say(connector or "Secrets", style="bold")
        cells = [_cells(row) for row in group]
        wrapped = ("was", "is", "what it decides")
        say_table(Table(("client", "key", "was", "is", "what it decides"), cells, wrap=wrapped, indent=2, gap=2))
        say()


def _cells(row: SettingDifference) -> tuple[str, ...]:
    place = f" ({':'.join(_place(row))})" if row.file or row.line else ""
    old, new = (_NOTHING if text is None else text or '""' for text in (row.shown_old, row.shown_new))
    lines = f", on Kafka {', '.join(row.lines)} only" if row.lines else ""
    return row.client or "all of it", row.key, old, new, f"{row.changes}{lines}{place}"


def _place(row: SettingDifference) -> Iterator[str]:
    if row.file:
        yield row.file
    if row.line:
        yield str(row.line)
