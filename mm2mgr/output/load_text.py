"""Throughput and sizing as text. In: rates and sizings. Out: tables and reasons on stdout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mm2mgr.output.console import say, say_table
from mm2mgr.sizing.words import rate_text

if TYPE_CHECKING:
    from mm2mgr.sizing.tasks import Sizing
    from mm2mgr.throughput.rates import PartitionRate
    from mm2mgr.topology import Tasks


def say_rates(rates: Sequence[PartitionRate], top: int) -> None:
    """Print the busiest partitions, as given, and what they were measured from."""
    rows = [
        (
            rate.cluster,
            f"{rate.topic}-{rate.partition}",
            *(_rate(getattr(rate, f"bytes_per_second_{name}")) for name in ("mean", "p50", "p95", "max")),
            "-" if rate.records_per_second_p95 is None else f"{rate.records_per_second_p95:.0f}",
            f"{rate.covered_seconds:.0f} s",
        )
        for rate in rates[:top]
    ]
    columns = ["cluster", "partition", "mean", "p50", "p95", "max", "records/s p95", "measured"]
    say_table(columns, rows, right=columns[2:])
    resets, gaps = sum(rate.resets for rate in rates), sum(rate.gaps for rate in rates)
    say(f"{len(rates)} partitions; {resets} resets and {gaps} gaps left out of the rates", style="dim")


def say_sizings(sizings: Sequence[Sizing], tasks: Mapping[str, Tasks]) -> None:
    """Print tasks per flow, what the tree has now, and the reasons."""
    rows = []
    for sizing in sizings:
        now = tasks[sizing.flow_id]
        note = "" if now.automatic else "written by hand, stays"
        rows.append((sizing.flow_id, rate_text(sizing.bytes_per_second), str(sizing.tasks), str(now.maximum), note))
    say_table(["flow", "load", "tasks", "now", ""], rows, right=["load", "tasks", "now"])
    for sizing in sizings:
        say(sizing.flow_id, style="bold")
        for reason in sizing.reasons:
            say(f"  {reason}")


def _rate(value: float | None) -> str:
    return "-" if value is None else rate_text(value)
