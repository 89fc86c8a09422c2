"""Throughput and sizing as text: rates, tasks per flow with their reasons, and the reports of `fleet` and `simulate`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mm2mgr.output.console import say, say_table, talk
from mm2mgr.output.tables import Table
from mm2mgr.text import list_names, number_of, rate_text, span_text

if TYPE_CHECKING:
    from mm2mgr.sizing.tasks import Sizing
    from mm2mgr.throughput.hourly import GroupRate, WeekPattern
    from mm2mgr.throughput.windows import PartitionRate
    from mm2mgr.topology import TaskMaximum

_BARS = "▁▂▃▄▅▆▇█"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
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
    for name, day in zip(DAYS, pattern.bytes_per_second, strict=True):
        known = [rate for rate in day if rate is not None]
        mean = sum(known) / len(known) if known else None
        rows.append((name, sparkline(day, most), _rate(mean), _rate(max(known, default=None))))
    say_table(Table(["", "0 h to 23 h (UTC)", "mean", "busiest hour"], rows, right=["mean", "busiest hour"]))
    if pattern.peak:
        place, hour = pattern.peak
        say(f"peak: {DAYS[place]} {hour}:00 UTC, {_rate(pattern.bytes_per_second[place][hour])}")
    if pattern.quiet:
        say(f"off-peak: {pattern.quiet[0]}:00 to {pattern.quiet[1]}:00 UTC (--off-peak of `mm2mgr apply`)")
    say(window, style="dim")


def sparkline(rates: Sequence[float | None], most: float | None = None) -> str:
    """Draw rates as bars from zero to the highest (or to `most`); a blank is an hour without measurements."""
    known = [None if rate is None or math.isnan(rate) else rate for rate in rates]
    top = max((rate for rate in known if rate is not None), default=0.0) if most is None else most
    eighths = (None if rate is None else int(rate / top * len(_BARS)) if top > 0 else 0 for rate in known)
    return "".join(" " if eighth is None else _BARS[min(len(_BARS) - 1, eighth)] for eighth in eighths)


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


Values = Mapping[str, Any]


def say_fleet(report: Values) -> None:
    """Print workers per Connect cluster, then the reasons, losses and recoveries of each, then the layout by pairs."""
    rows = [_connect_row(name, {"before": one, "after": one}) for name, one in report["connect"].items()]
    columns = ["connect cluster", "load", "tasks", "workers", "today"]
    say_table(Table(columns, rows, right=columns[1:]))
    for name, one in report["connect"].items():
        say()
        say(name, style="bold")
        for reason in one["reasons"]:
            say(f"  {reason}")
        _say_running(one["running"])
        for loss in one["losses"]:
            say(f"  {loss['reason']}")
        _say_recoveries(one)
    if report["connect"]:
        say()
        say(report["pair_layout"]["reason"])


def say_comparison(report: Values) -> None:
    """Print flows, Connect clusters and totals before and after a change, and what follows from it."""
    say(f"If: {report['change']}", style="bold")
    say("Before: the current recommendation of `size` and the workers it needs", style="dim")
    columns = ["flow", "load", "tasks", "busiest task", "of usable", "hot partitions"]
    rows = [_flow_row(flow_id, both) for flow_id, both in report["flows"].items()]
    if rows:
        say_table(Table([*columns, ""], rows, right=columns[1:], drop=("load", "busiest task", "of usable")))
    if unchanged := report["unchanged_flows"]:
        stays = "stays as it is" if unchanged == 1 else "stay as they are"
        say(f"{number_of(unchanged, 'other flow' if rows else 'flow')} {stays}")
    say()
    columns = ["connect cluster", "load", "tasks", "workers needed", "today"]
    rows = [_connect_row(name, both) for name, both in report["connect"].items()]
    rows.append(_connect_row("all", report["totals"]))
    say_table(Table(columns, rows, right=columns[1:], drop=("today", "load")))
    if report["reasons"]:
        say()
    for reason in report["reasons"]:
        say(reason)
    for note in report.get("notes", ()):
        say(f"! {note}", style="yellow")


RUNNING_COLUMNS = ("worker", "tasks", "of flows", "load", "tasks that fail over if this worker is lost")


def running_rows(running: Values) -> list[tuple[str, ...]]:
    """Return the workers of a Connect cluster as they are now, for RUNNING_COLUMNS."""
    return [
        (one["worker"], str(one["tasks"]), str(one["flow_tasks"]), rate_text(one["bytes_per_second"]), _lost_text(one))
        for one in running["workers"]
    ]


def _lost_text(one: Values) -> str:
    """Return the tasks of a worker, numbered as `status` does: `logs:a->hub 0 2`."""
    flows = [f"{flow_id} {' '.join(map(str, numbers))}" for flow_id, numbers in one["flows"].items()]
    others = one["tasks"] - one["flow_tasks"]
    return list_names([*flows, *([number_of(others, "other")] if others else [])]) or "-"


def _say_running(running: Values) -> None:
    if running["workers"]:
        say("  Tasks by worker, as Connect reports them:")
        right, wrap = ("tasks", "of flows", "load"), RUNNING_COLUMNS[-1:]
        say_table(Table(RUNNING_COLUMNS, running_rows(running), right, drop=("of flows",), wrap=wrap, indent=2))
    for reason in running["reasons"]:
        say(f"  {reason}")


RECOVERY_COLUMNS = ("workers", "tasks", "time", "last flow", "raised to", "time then")


def recovery_rows(one: Values) -> list[tuple[str, ...]]:
    """Return the catch-up times of a Connect cluster, for RECOVERY_COLUMNS."""
    return [
        (
            str(each["workers"]),
            str(each["tasks"]),
            _time(each["now"]),
            each["now"]["last_flow"] or "-",
            str(each["raised_tasks"]),
            _time(each["raised"]),
        )
        for each in one["recoveries"]
    ]


def recovery_notes(one: Values) -> list[str]:
    """Name the flows that never catch up, whatever workers and tasks are listed, and those whose catch-up limit decides the time."""
    never = one["recoveries"][-1]["raised"]["never"] if one["recoveries"] else ()
    notes = (
        ("Cannot catch up with any number of workers listed here", never),
        ("Held at their catch-up limit", one["limited"]),
    )
    return [f"{what}: {list_names(flows)}." for what, flows in notes if flows]


def _time(found: Values) -> str:
    never = len(found["never"])
    if found["seconds"] is None:
        return "never" if never else "-"
    return span_text(found["seconds"]) + (f", {number_of(never, 'flow')} never" if never else "")


def _say_recoveries(one: Values) -> None:
    if one["note"]:
        say(f"  Catch-up from a lag of {one['lag']}: {one['note']}.")
    if not one["recoveries"]:
        return
    say(f"  Time to catch up from a lag of {one['lag']} while traffic continues:")
    right = ("workers", "tasks", "time", "raised to", "time then")
    say_table(Table(RECOVERY_COLUMNS, recovery_rows(one), right, drop=("last flow",), indent=2))
    for note in recovery_notes(one):
        say(f"  {note}")


def _flow_row(flow_id: str, both: Values) -> tuple[str, ...]:
    before, after = both["before"], both["after"]
    note = "new" if before is None else "gone" if after is None else ""
    if after and after["capped_by"]:
        note = f"{note} capped by {after['capped_by']}".strip()
    return (
        flow_id,
        _change(both, "bytes_per_second", rate_text),
        _change(both, "tasks", str),
        _change(both, "busiest_bytes_per_second", rate_text),
        _change(both, "busiest_share", lambda share: f"{share * 100:.0f} %"),
        _change(both, "hot_partitions", str),
        note,
    )


def _connect_row(name: str, both: Values) -> tuple[str, ...]:
    return (
        name,
        _change(both, "bytes_per_second", rate_text),
        _change(both, "tasks", str),
        _change(both, "workers_needed", lambda count: _count(count, "not possible")),
        _count((both["after"] or both["before"])["workers_today"], "-"),
    )


def _change(both: Values, key: str, text: Callable[[Any], str]) -> str:
    """Return a value once where it stays the same, else both with an arrow; `-` where there is none."""
    before, after = ("-" if both[side] is None else text(both[side][key]) for side in ("before", "after"))
    return after if before == after else f"{before} → {after}"


def _count(number: int | None, otherwise: str) -> str:
    return otherwise if number is None else str(number)
