"""A check as text. In: its `to_dict()`. Out: one table of what is not well, lint's findings, and commands to paste, on stdout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mm2mgr.output.console import say, say_table
from mm2mgr.output.lint_text import visible

_STYLES = {"missing": "bold red", "failed": "bold red", "unknown": "yellow", "error": "bold red", "warning": "yellow"}
_NAMES_SHOWN = 3
_SENTENCE = ("status", "where", "principal", "clients", "rows", "effect", "fix")


def say_check(found: Mapping[str, Any]) -> None:
    """Print what is missing, failed or unknown, with what happens because of it; what is well is only counted."""
    groups = _alike([row for row in found["rows"] if row["status"] != "ok"])
    if groups:
        columns = ["status", "where", "principal", "client", "what", "otherwise"]
        say_table(columns, [[visible(cell) for cell in _cells(group)] for group in groups])
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


def _cells(group: Sequence[Mapping[str, Any]]) -> list[str]:
    first = group[0]
    what = _operation(first) + ", ".join(row["what"].removeprefix(_operation(first)) for row in group[:_NAMES_SHOWN])
    if len(group) > _NAMES_SHOWN:
        what += f" and {len(group) - _NAMES_SHOWN} more"
    return [
        *(first["status"], first["where"], first["principal"], ", ".join(first["clients"])),
        *(what, " ".join(first["effect"].split())),
    ]


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
        say(visible(f"  {', '.join(dict.fromkeys(where))}: {fix}"), style="yellow")


def _say_commands(why: str, commands: Sequence[str]) -> None:
    if commands:
        say()
        say(f"# {why}", style="dim")
    for command in commands:
        say(visible(command))


def _say_finding(finding: Mapping[str, Any]) -> None:
    if finding["silenced"] is not None:
        return
    more = f" (and {finding['more']} more like this)" if finding["more"] else ""
    line = f"{finding['severity']} {finding['rule']} {finding['place']}: {finding['message']}{more}"
    say(visible(line), style=_STYLES.get(finding["severity"]))
    say(visible(f"    fix: {finding['fix']}"))


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
