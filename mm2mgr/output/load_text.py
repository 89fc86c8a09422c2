"""Throughput and sizing as text. In: rates and sizings. Out: tables and reasons on stdout."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mm2mgr.output.console import say, say_table
from mm2mgr.sizing.words import number_of, rate_text

if TYPE_CHECKING:
    from mm2mgr.sizing.tasks import Sizing
    from mm2mgr.throughput.rates import GroupRate, PartitionRate, WeekPattern
    from mm2mgr.topology import Tasks

_BARS = "▁▂▃▄▅▆▇█"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_HOURS_DRAWN = 24


def say_rates(
    rates: Sequence[PartitionRate],
    curves: Sequence[Sequence[float]],
    known: int,
    left_out: Mapping[str, int],
    window: str,
) -> None:
    """Print the busiest partitions, as given, each with its last hours, and what they were measured from."""
    rows = [
        (
            rate.cluster,
            f"{rate.topic}-{rate.partition}",
            *(_rate(getattr(rate, f"bytes_per_second_{name}")) for name in ("mean", "p50", "p95", "max")),
            "-" if rate.records_per_second_p95 is None else f"{rate.records_per_second_p95:.0f}",
            f"{rate.covered_seconds:.0f} s",
            sparkline(curve),
        )
        for rate, curve in zip(rates, curves, strict=True)
    ]
    columns = ["cluster", "partition", "mean", "p50", "p95", "max", "records/s p95", "measured", "by hour"]
    say_table(columns, rows, right=columns[2:-1])
    skipped = f"{left_out['resets']} resets and {left_out['gaps']} gaps left out of the rates"
    say(f"{number_of(known, 'partition')}, {window}; {skipped}", style="dim")


def say_groups(groups: Sequence[GroupRate], top: int, by: str, window: str) -> None:
    """Print the busiest topics or flows, as given, each with its hours."""
    rows = [
        (
            *((group.cluster,) if by == "topic" else ()),
            group.name,
            str(group.partitions),
            _rate(group.bytes_per_second_mean),
            _rate(group.bytes_per_second_p95_sum),
            _rate(group.bytes_per_second_busiest_hour),
            group.busiest_hour or "-",
            sparkline(group.by_hour[-_HOURS_DRAWN:]),
        )
        for group in groups[:top]
    ]
    columns = ["partitions", "mean", "sum of p95", "busiest hour", "at (UTC)", "by hour"]
    say_table([*(["cluster"] if by == "topic" else []), by, *columns], rows, right=columns[:4])
    say(f"{number_of(len(groups), by)}, {window}", style="dim")


def say_week(pattern: WeekPattern, window: str) -> None:
    """Print the mean load by day of week and hour of day, and when it is highest and lowest."""
    measured = [rate for day in pattern.bytes_per_second for rate in day if rate is not None]
    most = max(measured, default=0.0)
    rows = []
    for name, day in zip(_DAYS, pattern.bytes_per_second, strict=True):
        known = [rate for rate in day if rate is not None]
        mean = sum(known) / len(known) if known else None
        rows.append((name, sparkline(day, most), _rate(mean), _rate(max(known, default=None))))
    say_table(["", "0 h to 23 h (UTC)", "mean", "busiest hour"], rows, right=["mean", "busiest hour"])
    if pattern.peak:
        place, hour = pattern.peak
        say(f"peak: {_DAYS[place]} {hour}:00 UTC, {_rate(pattern.bytes_per_second[place][hour])}")
    if pattern.quiet:
        say(f"off-peak: {pattern.quiet[0]}:00 to {pattern.quiet[1]}:00 UTC (--off-peak of `mm2mgr apply`)")
    say(window, style="dim")


def sparkline(rates: Sequence[float | None], most: float | None = None) -> str:
    """Draw rates as bars from zero to the highest (or to `most`); a blank is an hour without measurements."""
    known = [rate for rate in rates if rate is not None and not math.isnan(rate)]
    top = max(known, default=0.0) if most is None else most
    return "".join(_bar(rate, top) for rate in rates)


def _bar(rate: float | None, top: float) -> str:
    if rate is None or math.isnan(rate):
        return " "
    return _BARS[min(len(_BARS) - 1, int(rate / top * len(_BARS)))] if top > 0 else _BARS[0]


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
