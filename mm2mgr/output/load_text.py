"""Throughput and sizing as text: tables of rates, and tasks per flow with their reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mm2mgr.output.console import say, say_table, talk
from mm2mgr.output.tables import Table
from mm2mgr.sizing.words import rate_text
from mm2mgr.text import number_of

if TYPE_CHECKING:
    from mm2mgr.sizing.tasks import Sizing
    from mm2mgr.throughput.rates import GroupRate, PartitionRate, WeekPattern
    from mm2mgr.topology import TaskMaximum

_BARS = "▁▂▃▄▅▆▇█"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_HOURS_DRAWN = 24


def say_round(number: int | None, samples: int, news: Sequence[str], at: str = "") -> None:
    """Print a round of sampling (None: only its news) and what changed since the round before."""
    if number is not None:
        talk(f"round {number}: {samples} samples")
    for sentence in news:
        talk(f"  {at}{sentence}", style="yellow")


def say_rates(
    rates: Sequence[PartitionRate],
    curves: Sequence[Sequence[float]],
    known: int,
    left_out: Mapping[str, int],
    window: str,
) -> None:
    """Print the busiest partitions in the order given, each with its last hours, and what was measured."""
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
    drop = ("measured", "p50", "max", "by hour", "records/s p95", "mean")
    say_table(Table(columns, rows, right=columns[2:-1], drop=drop))
    skipped = f"{left_out['resets']} resets and {left_out['gaps']} gaps left out of the rates"
    say(f"{number_of(known, 'partition')}, {window}; {skipped}", style="dim")


def say_groups(groups: Sequence[GroupRate], top: int, by: str, window: str) -> None:
    """Print the busiest topics or flows in the order given, each with its last hours."""
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
    names = ["cluster", by] if by == "topic" else [by]
    drop = ("partitions", "by hour", "at (UTC)", "mean", "busiest hour")
    say_table(Table([*names, *columns], rows, right=columns[:4], drop=drop))
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
    say_table(Table(["", "0 h to 23 h (UTC)", "mean", "busiest hour"], rows, right=["mean", "busiest hour"]))
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


def say_sizings(sizings: Sequence[Sizing], tasks: Mapping[str, TaskMaximum]) -> None:
    """Print tasks per flow beside the number in the tree, then the reasons."""
    rows = []
    for sizing in sizings:
        now = tasks[sizing.flow_id]
        note = "" if now.automatic else "set by hand, kept"
        rows.append((sizing.flow_id, rate_text(sizing.bytes_per_second), str(sizing.tasks), str(now.maximum), note))
    say_table(Table(["flow", "load", "tasks", "now", ""], rows, right=["load", "tasks", "now"]))
    for sizing in sizings:
        say(sizing.flow_id, style="bold")
        for reason in sizing.reasons:
            say(f"  {reason}")


def _rate(value: float | None) -> str:
    return "-" if value is None else rate_text(value)
