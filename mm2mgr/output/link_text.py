"""What brokers and links carry, as text from the `to_dict()` of their reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mm2mgr.output.console import STYLES, say, say_table
from mm2mgr.output.tables import Table
from mm2mgr.text import visible

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
