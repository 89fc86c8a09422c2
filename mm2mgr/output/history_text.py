"""The history of changes, and what was changed by hand, as text from their JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from mm2mgr.output.console import STYLES, say, say_table, talk
from mm2mgr.output.tables import Table
from mm2mgr.text import few, fit_text, number_of, rate_text, visible

_OUTCOMES = {**STYLES, "begun": "yellow", "inconclusive": "yellow", "done": "green"}
_LONGEST = 100


def say_history(found: Mapping[str, Any], *, full: bool) -> None:
    """Print a line per change, newest last; `full`: below it the keys from what to what, and the error."""
    entries = found["entries"]
    if entries:
        say_table(history_table(entries, full=full))
    else:
        say("No change is recorded.")
    _say_reasons("history not read for", found["unread"])


def history_table(entries: Sequence[Mapping[str, Any]], *, full: bool = False) -> Table:
    """Return a row per change; `full`: with the keys and the error below it."""
    rows = [
        (
            entry["when"][:19].replace("T", " "),
            visible(entry["who"]),
            entry["commit"],
            visible(entry["command"]),
            f"{entry['connect']}/{entry['connector']}",
            _what(entry),
            entry["outcome"],
            visible(entry["reason"]),
        )
        for entry in entries
    ]
    return Table(
        ("time (UTC)", "who", "commit", "command", "connector", "change", "outcome", "reason"),
        rows,
        drop=("commit", "command", "reason"),
        wrap=("reason", "who"),
        styles={"outcome": _OUTCOMES},
        below=[_details(entry) if full else [] for entry in entries],
    )


def _what(entry: Mapping[str, Any]) -> str:
    parts = [entry["action"]]
    if entry["keys"]:
        parts.append(f"({number_of(len(entry['keys']), 'key')})")
    if entry["state"]:
        parts.append(f"{entry['state'].get('before', '')} -> {entry['state']['after']}".strip())
    return " ".join(part for part in parts if part)


def _details(entry: Mapping[str, Any]) -> list[str]:
    lines = [f"  {key['key']}: {_short(key['before'])} -> {_short(key['after'])}" for key in entry["keys"]]
    return lines + ([f"  error: {entry['error']}"] if entry["error"] else [])


def say_drift(found: Mapping[str, Any]) -> None:
    """Print each connector that was changed by hand, with its keys from what was applied to what is there."""
    for one in found["drift"]:
        against = "" if one["compared_with"] == "history" else "  (compared with the tree)"
        gone = "  deleted" if one["deleted"] else ""
        unowned = "  its owner mark is gone: mm2mgr no longer touches it" if one["owner_mark"] == "gone" else ""
        say(f"{one['connect']}/{one['connector']}{gone}{unowned}{against}", style="yellow")
        if one["state"]:
            say(f"  state: {one['state']['applied']} -> {one['state']['live']}")
        for key in one["keys"]:
            say(f"  {key['key']}: {_short(key['before'])} -> {_short(key['after'])}")
    _say_reasons("compared with the tree, which finds no deleted connector, on", found["without_history"])
    for one in found["quotas"]:
        against = "" if one["compared_with"] == "history" else "  (compared with the tree)"
        before, now = (_rate(one[side]) for side in ("applied", "live"))
        say(f"{one['kafka']}: quota of {one['quota']}: {before} -> {now} on each broker{against}", style="yellow")
    for connect, why in found["failed"].items():
        say(f"! Connect cluster {connect}: {why}", style=STYLES["unknown"])
    for kafka, why in found["failed_quotas"].items():
        say(f"! client quotas on Kafka cluster {kafka}: {why}", style=STYLES["unknown"])
    counts = {"connector": len(found["drift"]), "client quota": len(found["quotas"])}
    changed = " and ".join(number_of(count, what) for what, count in counts.items() if count)
    say(f"Drift: {changed} changed by hand" if changed else "Drift: none", style="bold")


def _rate(bytes_per_second: float | None) -> str:
    return "(not set)" if bytes_per_second is None else rate_text(bytes_per_second)


def _short(value: str | None) -> str:
    return "(not set)" if value is None else fit_text(visible(value), _LONGEST)


def _say_reasons(what: str, reasons: Mapping[str, str]) -> None:
    by_reason = sorted(reasons.items(), key=itemgetter(1, 0))
    for why, names in groupby(by_reason, key=itemgetter(1)):
        talk(f"{what} Connect cluster {few([name for name, _ in names])}: {why}", style="yellow")


def say_round(done: Mapping[str, Any], said: str) -> str:
    """Print what a round of `reconcile` did, in one line, and below it what went wrong; nothing where that is what was `said` before.

    Returns what is said.
    """
    applied, counts = done["applied"], done["counts"] or {}
    lines = [done["error"]] if done["error"] else []
    lines += [f"Connect cluster {name}: {why}" for name, why in {**done["unread"], **done["without_lease"]}.items()]
    if applied:
        failed = [each for each in applied["results"] if each["error"]]
        lines += [f"{each['connect']}/{each['connector']}: {each['error']}" for each in failed]
        lines += [f"{each['connect']} halted: {each['why']}" for each in applied["halted"]]
        lines += _blocked(applied["blocked"])
    else:
        lines += [f"{each['connect']}: {each['action']} {each['connector']}" for each in done["changes"]]
    lines += [f"nothing is deleted: {done['deletes_held']}"] if done["deletes_held"] else []
    parts = [done["outcome"]]
    if done["standby"]:
        parts.append(f"another process holds the lease for {few(done['standby'])}")
    if done["resting"]:
        parts.append(f"left alone after failures: {few(list(done['resting']))}")
    if done["unlogged"]:
        lines.append(done["unlogged"])
    parts += [f"{counts[action]} to {action}" for action in ("create", "update", "delete") if counts.get(action)]
    if counts.get("blocked"):
        parts.append(f"{counts['blocked']} blocked")
    text = "\n".join(["; ".join(parts), *lines])
    if text != said or (applied and applied["results"]):
        say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} round {done['round']}: {'; '.join(parts)}", _OUTCOMES.get(parts[0]))
        for line in lines:
            say(f"  {line}")
        if applied:
            say_unrecorded(applied["unrecorded"])
    return text


def _blocked(changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield why connectors are blocked, and what to do, once for those that have both in common."""
    names: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        names.setdefault((change["reason"], change["remedy"]), []).append(change["connector"])
    for (reason, remedy), blocked in names.items():
        yield f"blocked: {few(blocked)}: {reason}" + (f"; fix: {remedy}" if remedy else "")


def say_unrecorded(unrecorded: Mapping[str, str]) -> None:
    """Say of which Connect clusters the history was not written, once for each reason."""
    _say_reasons("history not written for", unrecorded)
