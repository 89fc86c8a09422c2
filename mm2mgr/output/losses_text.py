"""The ledger of losses as text: a table of its entries, and sentences that say what happened and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mm2mgr.output.console import say, say_table
from mm2mgr.output.tables import Table
from mm2mgr.text import number_of, visible

if TYPE_CHECKING:
    from mm2mgr.observe.ledger import LossEntry
    from mm2mgr.operations.losses import LossReport

_EVENTS = {
    "retention": "retention deleted them before they were mirrored",
    "re-created": "the topic was deleted and created again",
    "past-end": "the stored offset is not in the log: the topic was created again, or truncated",
    "truncation": "the end of the log went back",
}
_COMPARE = "compare the topic with the target; stop the flow and reset its offsets where new records are skipped"
_REMEDIES = {
    "retention": "give the topic longer retention or the flow more tasks",
    "re-created": _COMPARE,
    "past-end": "compare the topic with the target, then stop the flow and reset these offsets",
    "truncation": _COMPARE,
}
_BY_THE_FLOW = ", perhaps by this flow's own consumer, whose allow.auto.create.topics is true"
_EVIDENCE = {
    "log-start": "seen while the stored offset lay before the log",
    "target": "between two looks, counted on the target",
    "offsets": "between two looks, with no count on the target",
    "topic-id": "by the topic id",
    "log-end": "by the log end",
}


def say_losses(report: LossReport) -> None:
    """Print one line per entry, and below what to do about each cause."""
    losses, has_acks = report.entries, any(loss.acknowledged for loss in report.entries)
    columns: tuple[str, ...] = ("id", "flow", "partition", "offsets", "records", "cause", "after", "seen (UTC)", "how")
    rows = [_row(loss) + ((_acknowledgement(loss),) if has_acks else ()) for loss in losses]
    if rows:
        columns = (*columns, "acknowledged") if has_acks else columns
        say_table(Table(columns, rows, ("records",), ("how", "after", "flow"), ("how", "acknowledged")))
    for cause in dict.fromkeys(loss.cause for loss in report.still_open):
        say(f"{cause}: {_EVENTS[cause]}; {_REMEDIES[cause]}")
    if report.still_open:
        say(f"{losses_of(len(report.still_open))} to acknowledge: mm2mgr losses --ack ID --reason TEXT")
    else:
        say("No loss to acknowledge.")


def loss_sentence(flow: str, evidence: Mapping[str, Any], age: str) -> str:
    """Return what a flow may have lost of one topic, from the evidence of the problem; `seen`: how long ago that
    was."""
    losses, cause, count = evidence["losses"], evidence["cause"], evidence["loss_count"]
    parts = ", ".join(
        f"{loss['topic']}-{loss['partition']} (offsets {_offsets_text(loss['first_offset'], loss['last_offset'])})"
        for loss in losses
    )
    more = f" and {count - len(losses)} more" if count > len(losses) else ""
    ids = f"--ack {losses[0]['id']}" if count == 1 else f"'{flow}' --ack all"
    by_flow = cause == "re-created" and evidence["flow_creates_topics"]
    return (
        f"{_count(evidence)} of topic {evidence['topic']} may never arrive, first seen {age}: {_EVENTS[cause]}"
        f"{_BY_THE_FLOW * by_flow}: {parts}{more}; {_REMEDIES[cause]}; acknowledge with mm2mgr losses {ids}"
    )


def loss_cells(loss: LossEntry) -> tuple[str, ...]:
    """Return id, flow, partition, offsets, records, time and what happened, as a page shows an entry."""
    happened = f"{_EVENTS[loss.cause]}; {_REMEDIES[loss.cause]}"
    return (*_names(loss), f"{_time_text(loss.seen_utc)} UTC", happened)


def losses_of(count: int) -> str:
    """Write a count of losses."""
    return "1 loss" if count == 1 else f"{count} losses"


def acknowledged_text(loss: LossEntry) -> str:
    """Return the confirmation of an acknowledgement."""
    offsets = _offsets_text(loss.first_offset, loss.last_offset)
    return f"acknowledged {loss.id}: {loss.flow}: {loss.partition}, offsets {offsets} ({loss.cause})"


def _row(loss: LossEntry) -> tuple[str, ...]:
    since = _time_text(loss.since_utc) if loss.since_utc else "-"
    return (*_names(loss), loss.cause, since, _time_text(loss.seen_utc), _EVIDENCE[loss.evidence])


def _names(loss: LossEntry) -> tuple[str, ...]:
    most = loss.records
    records = "unknown" if most is None else f"{most}" if most == loss.least_records else f"up to {most}"
    return loss.id, loss.flow, str(loss.partition), _offsets_text(loss.first_offset, loss.last_offset), records


def _acknowledgement(loss: LossEntry) -> str:
    ack = loss.acknowledged
    return visible(f"{ack.who}, {_time_text(ack.at_utc)}{': ' if ack.reason else ''}{ack.reason}") if ack else "-"


def _offsets_text(first: int, last: int | None) -> str:
    return f"from {first} on" if last is None else f"{first}" if first == last else f"{first} to {last}"


def _count(evidence: Mapping[str, Any]) -> str:
    """Return how many records all partitions have lost together, as far as that is known."""
    most, rest = evidence["records"], "" if evidence["is_bounded"] else "what the old topic still held"
    if not most:
        return rest
    exactly = "" if most == evidence["least_records"] else "up to "
    return f"{exactly}{number_of(most, 'record')}{' and ' if rest else ''}{rest}"


def _time_text(utc: str) -> str:
    return utc.removesuffix("Z").replace("T", " ")
