"""The routes of a topic, and the topics of flows, as text from their `to_dict()`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mm2mgr.output.console import STYLES, say, say_table
from mm2mgr.output.tables import Table
from mm2mgr.text import number_of, visible


def say_routes(found: Mapping[str, Any]) -> None:
    """Print each route in one line, then the connectors on them, then those that do not mirror the topic, with the reason."""
    for way in found["routes"]:
        say(" → ".join(map(_stop, way)), style="bold")
    if found["endless"]:
        say(
            "! Longer routes are cut: connectors send the topic round. `mm2mgr lint` finds such loops.",
            style=STYLES["warning"],
        )
    mirroring = [each for each in found["connectors"] if each["takes"]]
    others = [each for each in found["connectors"] if not each["takes"]]
    if not mirroring:
        known = "Nothing that is known" if found["unread"] else "Nothing"
        say(f"{known} mirrors {visible(found['topic'])}.", style="bold")
    _say_connectors(mirroring, "name on target")
    if others:
        say()
        say("Not mirrored by, although they could:" if mirroring else "Named, but not mirrored, by:")
        _say_connectors(others, "")
    for connect, why in found["unread"].items():
        say(f"! Connect cluster {connect}: {why}", style=STYLES["unknown"])
    for why in found["unlisted"].values():
        say(f"! whether it is there is not known: {why}", style=STYLES["unknown"])


def _stop(stop: Mapping[str, Any]) -> str:
    missing = " (not there yet)" if stop.get("partitions") == 0 else ""
    return f"{visible(stop['cluster'])}:{'?' if stop['topic'] is None else visible(stop['topic'])}{missing}"


def _say_connectors(connectors: Sequence[Mapping[str, Any]], name: str) -> None:
    rows = [
        (
            _stop(each["from"]),
            visible(each["to"]["cluster"]),
            *([visible(each["to"]["topic"] or "?")] if name else []),
            visible(f"{each['connect']}/{each['connector']}"),
            each["state"],
            "this tree" if each["ours"] else visible(each["owner"] or "nobody"),
            ", ".join(each["flows"]),
        )
        for each in connectors
    ]
    columns = ("topic", "to", *([name] if name else []), "connector", "state", "owner", "flows")
    below = [[each["why"]] if each["why"] else [] for each in connectors]
    if rows:
        say_table(Table(columns, rows, drop=("flows", "owner"), wrap=("flows",), below=below, indent=2))


def say_topics(flows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of each flow's topics, and how many it takes."""
    for flow in flows:
        taken = [each for each in flow["topics"] if each["taken"]]
        partitions = sum(each["partitions"] for each in taken)
        count = f"{number_of(len(taken), 'topic')} with {number_of(partitions, 'partition')}"
        say(f"{flow['flow']}: {flow['error'] or count}", style=STYLES["unknown"] if flow["error"] else "bold")
        reasons = any(each["why"] for each in flow["topics"])
        rows = [
            [
                visible(each["topic"]),
                str(each["partitions"]),
                visible(each["becomes"] or "–"),
                _there(each),
                *([each["why"]] if reasons else []),
            ]
            for each in flow["topics"]
        ]
        why = ["not taken because"] if reasons else []
        columns = ["topic", "partitions", f"name on {flow['target']}", "there", *why]
        if rows:
            say_table(Table(columns, rows, right=("partitions",), wrap=why, indent=2))
        for note in flow["notes"]:
            say(f"  ! {note}", style=STYLES["unknown"])


def _there(topic: Mapping[str, Any]) -> str:
    if not topic["taken"]:
        return "–"
    arrived = topic["partitions_on_target"]
    if arrived is None:
        return "?"
    if not arrived:
        return "not yet"
    return "yes" if arrived == topic["partitions"] else f"with {number_of(arrived, 'partition')}"
