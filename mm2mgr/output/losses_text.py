"""The ledger of losses as text: a table of its entries, and sentences that say what happened and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mm2mgr.output.console import say, say_table
from mm2mgr.output.tables import Table
from mm2mgr.text import number_of, visible

_WHAT = {
    "retention": "retention deleted them before they were mirrored",
    "re-created": "the topic was deleted and created again",
    "past-end": "the stored offset is not in the log: the topic was created again, or truncated",
    "truncation": "the end of the log went back",
}
_REMEDY = {
    "retention": "give the topic longer retention or the flow more tasks",
    "re-created": "compare the topic with the target; stop the flow and reset its offsets where new records are skipped",
    "past-end": "compare the topic with the target, then stop the flow and reset these offsets",
    "truncation": "compare the topic with the target; stop the flow and reset its offsets where new records are skipped",
}
_BY_THE_FLOW = ", perhaps by this flow's own consumer, whose allow.auto.create.topics is true"
_EVIDENCE = {
    "log-start": "seen while the stored offset lay before the log",
    "target": "between two looks, counted on the target",
    "offsets": "between two looks, with no count on the target",
    "topic-id": "by the topic id",
    "log-end": "by the log end",
}


def say_losses(report: Mapping[str, Any]) -> None:
    """Print one line per entry, and below what to do about each cause."""
    found, has_acks = report["losses"], any(one["acknowledged"] for one in report["losses"])
    columns: tuple[str, ...] = ("id", "flow", "partition", "offsets", "records", "cause", "after", "seen (UTC)", "how")
    rows = [_row(one) + ((_ack(one),) if has_acks else ()) for one in found]
    if rows:
        columns = (*columns, "acknowledged") if has_acks else columns
        say_table(Table(columns, rows, ("records",), ("how", "after", "flow"), ("how", "acknowledged")))
    for cause in dict.fromkeys(one["cause"] for one in found if not one["acknowledged"]):
        say(f"{cause}: {_WHAT[cause]}; {_REMEDY[cause]}")
    if report["open"]:
        say(f"{losses_of(report['open'])} to acknowledge: mm2mgr losses --ack ID --reason TEXT")
    else:
        say("No loss to acknowledge.")


def loss_sentence(flow: str, found: Mapping[str, Any], seen: str) -> str:
    """Return what a flow may have lost of one topic, from the evidence of the problem; `seen`: how long ago that was."""
    first, more = found["losses"], found["loss_count"] - len(found["losses"])
    parts = ", ".join(f"{_partition(one)} (offsets {_offsets(one)})" for one in first) + (
        f" and {more} more" * (more > 0)
    )
    how = f"--ack {first[0]['id']}" if found["loss_count"] == 1 else f"'{flow}' --ack all"
    cause = found["cause"]
    by_flow = cause == "re-created" and found["flow_creates_topics"]
    return (
        f"{_count(found)} of topic {found['topic']} may never arrive, first seen {seen}: {_WHAT[cause]}"
        f"{_BY_THE_FLOW * by_flow}: {parts}; {_REMEDY[cause]}; acknowledge with mm2mgr losses {how}"
    )


def loss_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    """Return id, flow, partition, offsets, records, time and what happened, as a page shows an entry."""
    names = (one["id"], one["flow"], _partition(one), _offsets(one), _records(one))
    return (*names, f"{_time(one['seen'])} UTC", f"{_WHAT[one['cause']]}; {_REMEDY[one['cause']]}")


def losses_of(count: int) -> str:
    """Write a count of losses."""
    return "1 loss" if count == 1 else f"{count} losses"


def acknowledged_text(one: Mapping[str, Any]) -> str:
    """Return what is said when a loss is acknowledged."""
    return f"acknowledged {one['id']}: {one['flow']}: {_partition(one)}, offsets {_offsets(one)} ({one['cause']})"


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    since = _time(one["since"]) if one["since"] else "-"
    names = (one["id"], one["flow"], _partition(one), _offsets(one), _records(one), one["cause"])
    return (*names, since, _time(one["seen"]), _EVIDENCE[one["evidence"]])


def _ack(one: Mapping[str, Any]) -> str:
    ack = one["acknowledged"]
    if not ack:
        return "-"
    return visible(f"{ack['who']}, {_time(ack['at'])}{': ' if ack['reason'] else ''}{ack['reason']}")


def _partition(one: Mapping[str, Any]) -> str:
    return f"{one['topic']}-{one['partition']}"


def _offsets(one: Mapping[str, Any]) -> str:
    first, last = one["first_offset"], one["last_offset"]
    return f"from {first} on" if last is None else f"{first}" if first == last else f"{first} to {last}"


def _records(one: Mapping[str, Any]) -> str:
    most, least = one["records"], one["least_records"]
    return "unknown" if most is None else f"{most}" if most == least else f"up to {most}"


def _count(found: Mapping[str, Any]) -> str:
    """Return how many records all partitions have lost together, as far as that is known."""
    most, gone = found["records"], "" if found["is_bounded"] else "what the old topic still held"
    if not most:
        return gone
    exactly = "" if most == found["least_records"] else "up to "
    return f"{exactly}{number_of(most, 'record')}{' and ' if gone else ''}{gone}"


def _time(text: str) -> str:
    return text.removesuffix("Z").replace("T", " ")
