"""A check as text, from its `to_dict()`: what is not ok, lint's findings, and commands that grant missing rights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mm2mgr.output.console import STYLES, say, say_command, say_table
from mm2mgr.output.lint_text import finding_table
from mm2mgr.output.tables import Table
from mm2mgr.text import few

_NAMES_SHOWN = 3
_COLUMNS = ("status", "where", "principal", "client", "what")
_SENTENCE = ("status", "where", "principal", "clients", "rows", "effect", "fix")


def say_check(found: Mapping[str, Any]) -> None:
    """Print what is missing, failed or unknown and what happens because of it; what is ok is only counted."""
    groups = _alike([row for row in found["rows"] if row["status"] != "ok"])
    _say_table(groups)
    _say_fixes(groups)
    findings = [finding for finding in found["findings"] if finding["silenced"] is None]
    if findings:
        say_table(finding_table(findings))
    _say_commands("run these with a login that may alter ACLs (--command-config FILE):", found["commands"])
    _say_commands("could not be verified; granting a right twice does no harm:", found["unsure"])
    _say_end(found)


def _alike(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Group the rows that differ only in the resource: one topic, or a hundred."""
    groups: dict[tuple[object, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = tuple(str(row[name]) for name in _SENTENCE if name != "fix" or not row["rows"])
        groups.setdefault((*key, _operation(row)), []).append(row)
    return list(groups.values())


def _say_table(groups: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Print one row per group, and below it what happens because of it."""
    below = []
    for first, *_ in groups:
        effect = " ".join(first["effect"].split())
        below.append([f"{'otherwise ' if first['rows'] else ''}{effect}"] if effect else [])
    rows = [_cells(group) for group in groups]
    if rows:
        styles = {"status": STYLES}
        say_table(Table(_COLUMNS, rows, wrap=_COLUMNS[2:], styles=styles, gap=2, below=below))


def _cells(group: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    first = group[0]
    operation = _operation(first)
    what = operation + _some([row["what"].removeprefix(operation) for row in group])
    return (first["status"], first["where"], first["principal"], _some(first["clients"]), what)


def _some(names: Sequence[str]) -> str:
    return few(names, _NAMES_SHOWN)


def _operation(row: Mapping[str, Any]) -> str:
    """Return the words before the resource's name: `Write on topic `."""
    what: str = row["what"]
    return " ".join(what.split(" ")[:3]) + " " if row["rows"] and what.count(" ") >= 3 else ""


def _say_fixes(groups: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Print what to do where no command does it, each sentence once."""
    places: dict[str, list[str]] = {}
    for group in groups:
        first = group[0]
        if first["fix"] and not first["fix"].startswith("give "):
            places.setdefault(first["fix"], []).append(f"{first['where']}: {first['principal']}".rstrip(": "))
    for fix, where in places.items():
        say(f"  {', '.join(dict.fromkeys(where))}: {fix}", style="yellow")


def _say_commands(why: str, commands: Sequence[str]) -> None:
    if commands:
        say()
        say(f"# {why}", style="dim")
    for command in commands:
        say_command(command)


def _say_end(found: Mapping[str, Any]) -> None:
    counts = found["counts"]
    words = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing to check"
    errors = sum(each["severity"] == "error" and each["silenced"] is None for each in found["findings"])
    more = f", {errors} lint error{'s' if errors > 1 else ''}" if errors else ""
    say(f"Checked in {found['seconds']:g} s: {words}{more}", style=STYLES["ok" if found["good"] else "failed"])
    if counts["unknown"]:
        say("Unknown means the check could not run: no cluster answered.", style="dim")
    inferred = sum(row["how"] == "inferred" for row in found["rows"])
    if inferred:
        text = f"{inferred} right{'s' * (inferred > 1)} on topics that do not exist yet: inferred from Describe; check again after the first apply"
        say(text, style="dim")
