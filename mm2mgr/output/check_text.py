"""A check as text. In: its `to_dict()`. Out: one table of what is not well, lint's findings, and commands to paste, on stdout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mm2mgr.output.console import say
from mm2mgr.text import few, visible

_STYLES = {"missing": "bold red", "failed": "bold red", "unknown": "yellow", "error": "bold red", "warning": "yellow"}
_NAMES_SHOWN = 3
_COLUMNS = ("status", "where", "principal", "client", "what")
_WIDEST = 40  # a certificate's subject or many clients: such a cell pushes the rest of its line and no other's
_SENTENCE = ("status", "where", "principal", "clients", "rows", "effect", "fix")


def say_check(found: Mapping[str, Any]) -> None:
    """Print what is missing, failed or unknown, with what happens because of it; what is well is only counted."""
    groups = _alike([row for row in found["rows"] if row["status"] != "ok"])
    _say_table(groups)
    _say_fixes(groups)
    for finding in found["findings"]:
        _say_finding(finding)
    _say_commands("run by someone who may alter ACLs (--command-config FILE brings a login):", found["commands"])
    _say_commands("could not be asked; giving a right twice does no harm:", found["unsure"])
    _say_end(found)


def _alike(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Bring rows together that differ in the resource only: one topic, or a hundred."""
    groups: dict[tuple[object, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = tuple(str(row[name]) for name in _SENTENCE if name != "fix" or not row["rows"])
        groups.setdefault((*key, _operation(row)), []).append(row)
    return list(groups.values())


def _say_table(groups: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Print a row a group, and below it what happens because of it: a sentence fits into no column of a terminal."""
    rows = [_cells(group) for group in groups]
    widths = [min(_WIDEST, max(map(len, column))) for column in zip(_COLUMNS, *rows, strict=True)]
    if rows:
        say(_aligned(_COLUMNS, widths), style="bold")
    for group, row in zip(groups, rows, strict=True):
        say(_aligned(row, widths), style=_STYLES[row[0]])
        if effect := " ".join(group[0]["effect"].split()):
            say(f"    {'otherwise ' if group[0]['rows'] else ''}{effect}")


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cells(group: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    first = group[0]
    operation = _operation(first)
    what = operation + _some([row["what"].removeprefix(operation) for row in group])
    cells = (first["status"], first["where"], first["principal"], _some(first["clients"]), what)
    return tuple(map(visible, cells))


def _some(names: Sequence[str]) -> str:
    return few(names, _NAMES_SHOWN)


def _operation(row: Mapping[str, Any]) -> str:
    """Return what comes before the name: `Write on topic `."""
    what: str = row["what"]
    return " ".join(what.split(" ")[:3]) + " " if row["rows"] and what.count(" ") >= 3 else ""


def _say_fixes(groups: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Say what to do where no command does it, each sentence once."""
    told: dict[str, list[str]] = {}
    for group in groups:
        first = group[0]
        if first["fix"] and not first["fix"].startswith("give "):
            told.setdefault(first["fix"], []).append(f"{first['where']}: {first['principal']}".rstrip(": "))
    for fix, where in told.items():
        say(f"  {', '.join(dict.fromkeys(where))}: {fix}", style="yellow")


def _say_commands(why: str, commands: Sequence[str]) -> None:
    if commands:
        say()
        say(f"# {why}", style="dim")
    for command in commands:
        say(command)


def _say_finding(finding: Mapping[str, Any]) -> None:
    if finding["silenced"] is not None:
        return
    more = f" (and {finding['more']} more like this)" if finding["more"] else ""
    line = f"{finding['severity']} {finding['rule']} {finding['place']}: {finding['message']}{more}"
    say(line, style=_STYLES.get(finding["severity"]))
    say(f"    fix: {finding['fix']}")


def _say_end(found: Mapping[str, Any]) -> None:
    counts = found["counts"]
    words = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing to ask"
    errors = sum(each["severity"] == "error" and each["silenced"] is None for each in found["findings"])
    more = f", {errors} error{'s' if errors > 1 else ''} of lint" if errors else ""
    say(f"Checked in {found['seconds']:g} s: {words}{more}", style="green" if found["good"] else "bold red")
    if counts["unknown"]:
        say("What is unknown is neither well nor wrong: nobody could be asked.", style="dim")
    inferred = sum(row["how"] == "inferred" for row in found["rows"])
    if inferred:
        text = f"{inferred} rights on topics that do not exist yet follow from Describe alone; check again after the first apply."
        say(text, style="dim")
