"""The ledger of losses as text: a table of its entries, and what happened and what to do, by cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mm2mgr.output.console import say, say_table
from mm2mgr.output.tables import Table
from mm2mgr.problems.loss import LOSS_CAUSES, LOSS_REMEDIES
from mm2mgr.text import visible

if TYPE_CHECKING:
    from mm2mgr.observe.losses import LossEntry
    from mm2mgr.operations.status import LossReport

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
        say(f"{cause}: {LOSS_CAUSES[cause]}; {LOSS_REMEDIES[cause]}")
    if report.still_open:
        say(f"{losses_of(len(report.still_open))} to acknowledge: mm2mgr losses --ack ID --reason TEXT")
    else:
        say("No loss to acknowledge.")


def loss_cells(loss: LossEntry) -> tuple[str, ...]:
    """Return id, flow, partition, offsets, records, time and what happened, as a page shows an entry."""
    happened = f"{LOSS_CAUSES[loss.cause]}; {LOSS_REMEDIES[loss.cause]}"
    return (*_names(loss), f"{_time_text(loss.seen_utc)} UTC", happened)


def losses_of(count: int) -> str:
    """Write a count of losses."""
    return "1 loss" if count == 1 else f"{count} losses"


def acknowledged_text(loss: LossEntry) -> str:
    """Return the confirmation of an acknowledgement."""
    return f"acknowledged {loss.id}: {loss.flow}: {loss.partition}, offsets {loss.offsets_text} ({loss.cause})"


def _row(loss: LossEntry) -> tuple[str, ...]:
    since = _time_text(loss.since_utc) if loss.since_utc else "-"
    return (*_names(loss), loss.cause, since, _time_text(loss.seen_utc), _EVIDENCE[loss.evidence])


def _names(loss: LossEntry) -> tuple[str, ...]:
    most = loss.records
    records = "unknown" if most is None else f"{most}" if most == loss.least_records else f"up to {most}"
    return loss.id, loss.flow, str(loss.partition), loss.offsets_text, records


def _acknowledgement(loss: LossEntry) -> str:
    ack = loss.acknowledged
    return visible(f"{ack.who}, {_time_text(ack.at_utc)}{': ' if ack.reason else ''}{ack.reason}") if ack else "-"


def _time_text(utc: str) -> str:
    return utc.removesuffix("Z").replace("T", " ")
