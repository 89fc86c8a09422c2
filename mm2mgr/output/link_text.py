"""What brokers and links carry, as text from the `to_dict()` of their reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mm2mgr.output.console import STYLES, say, say_table
from mm2mgr.output.tables import Table
from mm2mgr.text import bytes_text, number_of, rate_text, visible

_COLUMNS = {
    "send buffer": "socket.send.buffer.bytes",
    "receive buffer": "socket.receive.buffer.bytes",
    "largest request": "socket.request.max.bytes",
    "largest batch": "message.max.bytes",
}


def say_brokers(found: Mapping[str, Any]) -> None:
    """Print what the brokers of each cluster allow, and what changes in the file."""
    rows = [
        (alias, str(each["count"]), each["version"], *(_bytes(each[key]) for key in _COLUMNS.values()))
        for alias, each in found["clusters"].items()
    ]
    if rows:
        columns = ("cluster", "brokers", "version from", *_COLUMNS)
        say_table(Table(columns, rows, right={"brokers", *_COLUMNS}, drop=("largest request", "version from")))
    for remark in found["remarks"]:
        say(f"! {visible(remark)}", style=STYLES["warning"])
    if found["diff"]:
        say()
    for line in found["diff"]:
        say(visible(line))


def _bytes(size: int) -> str:
    return "by system" if size == -1 else f"{size:,}".replace(",", " ")


def say_probe(found: Mapping[str, Any]) -> None:
    """Print the round trips, what they say about the link, and the entry for the tree."""
    widest = max(len(end["cluster"]) for end in found["ends"])
    for end in found["ends"]:
        say(f"this machine -> {end['cluster']:{widest}}  {_trip(end['seconds']):>9}  {_range(end['brokers'])}")
    say(f"{found['verdict'][:1].upper()}{found['verdict'][1:]}.", style="bold")
    if moved := found["transfer"]:
        rate, many = rate_text(moved["bytes_per_second"]), number_of(moved["connections"], "connection")
        say(
            f"{bytes_text(moved['bytes'])} in {moved['seconds']:.1f} s over {many}: {rate}, so the link carries at least that."
        )
    for remark in found["remarks"]:
        say(f"! {visible(remark)}", style=STYLES["warning"])
    if entry := found["entry"]:
        more = "".join(f", {key}: {entry[key]}" for key in ("rtt", "bandwidth") if key in entry)
        say()
        say("links:")
        say(f"  - {{between: [{', '.join(entry['between'])}]{more}}}")
    if found["diff"]:
        say()
    for line in found["diff"]:
        say(visible(line))


def _trip(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _range(brokers: Sequence[Mapping[str, Any]]) -> str:
    trips = [each["seconds"] for each in brokers if each["seconds"] is not None]
    count = number_of(len(trips), "broker")
    return f"({count}, {_trip(min(trips))} to {_trip(max(trips))})" if len(trips) > 1 else f"({count})"
