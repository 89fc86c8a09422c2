"""Findings of lint and its rules as text. In: the report that `-o json` prints, the `to_dict()` of rules. Out: lines on stdout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mm2mgr.output.console import say, say_table
from mm2mgr.text import visible

_STYLES = {"error": "bold red", "warning": "yellow", "info": None}


def say_findings(report: Mapping[str, Any]) -> None:
    """Print findings by file or connector, worst first, then how many there are in what."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for finding in report["findings"]:
        whole = (finding["file"],) if "file" in finding else (finding.get("connect", ""), finding.get("connector", ""))
        groups.setdefault(whole, []).append(finding)
    for group in groups.values():
        _say_group(group)
        say()
    say(summary(report["summary"]), style="bold")


def _say_group(group: Sequence[Mapping[str, Any]]) -> None:
    columns = ("place", "severity", "rule")
    shown = [[visible(finding[column]) for column in columns] for finding in group]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for finding, cells in zip(group, shown, strict=True):
        start = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        more = f" (and {finding['more']} more like this)" if finding["more"] else ""
        silenced = finding["silenced"] is not None
        say(f"{start}  {finding['message']}{more}", style="dim" if silenced else _STYLES[finding["severity"]])
        if silenced:
            say(f"    silenced: {finding['silenced'] or 'no reason given'}", style="dim")
        else:
            say(f"    fix: {finding['fix']}")


def summary(counts: Mapping[str, Any]) -> str:
    """Return `3 errors, 1 warning in 12 connectors (2 silenced)`, or what was looked at when nothing was found."""
    found = [_count(counts[f"{word}s"], word) for word in ("error", "warning", "info") if counts[f"{word}s"]]
    where = _count(counts["connectors"], "connector")
    silenced = f" ({counts['silenced']} silenced)" if counts["silenced"] else ""
    if found:
        return f"{', '.join(found)} in {where}{silenced}"
    return f"No findings in {where}{silenced}; looked at {', '.join(counts['looked_at']) or 'nothing'}"


def say_rules(rules: Sequence[Mapping[str, Any]]) -> None:
    """Print a line a rule."""
    say_table(["rule", "severity", "what"], [(rule["rule"], rule["severity"], rule["title"]) for rule in rules])


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
