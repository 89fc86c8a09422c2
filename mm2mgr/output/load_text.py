"""Throughput and sizing as text: rates, tasks per flow with their reasons, and the reports of `fleet` and
`simulate`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mm2mgr.link import LIMITS
from mm2mgr.link_forecast import SETTINGS, Curve, LinkComparison
from mm2mgr.output.balance_text import WAY_COLUMNS, way_cells
from mm2mgr.output.console import STYLES, PartLog, say, say_table, talk
from mm2mgr.output.tables import Table
from mm2mgr.text import bytes_text, list_names, number_of, rate_text, size_text, span_text, visible

if TYPE_CHECKING:
    from mm2mgr.balance.ways import Way
    from mm2mgr.operations import Round
    from mm2mgr.operations.link import BrokersReport, LinkProbe, ProbedEnd
    from mm2mgr.operations.size import ConnectReport, FleetReport, SimulationReport
    from mm2mgr.operations.throughput import RollUpRound
    from mm2mgr.sizing.fleet import WorkerNeed, WorkerNow
    from mm2mgr.sizing.forecast import LimitForecast
    from mm2mgr.sizing.recovery import CatchUp, Outlook
    from mm2mgr.sizing.scenario import FlowChange, FlowSummary, Totals
    from mm2mgr.sizing.tasks import Sizing
    from mm2mgr.throughput.hourly import GroupRate, WeeklyGrowth, WeekPattern
    from mm2mgr.throughput.windows import PartitionRate
    from mm2mgr.topology import TaskMaximum

_BARS = "▁▂▃▄▅▆▇█"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_HOURS_DRAWN = 24


def say_round(number: int, samples: int, news: Sequence[str]) -> None:
    """Print a round of sampling and what changed since the round before."""
    talk(f"round {number}: {samples} samples")
    for sentence in news:
        talk(f"  {sentence}", style="yellow")


def say_followed_round(round_: Round, log: PartLog) -> None:
    """Print of a round without an end only the first number of samples, and what changed."""
    if round_.number == 1:
        log("sample", f"round 1: {round_.samples} samples", "dim")
    for sentence in round_.news:
        log("sample", sentence, "yellow")


def say_roll_up(done: RollUpRound, log: PartLog) -> None:
    """Print a line about one round of roll-ups beside other work; nothing where nothing was new."""
    if done.error:
        log("throughput", done.error, "yellow", done.taken_at)
    elif done.rolled_up and done.rolled_up.report:
        for path, reason in done.rolled_up.report.unreadable.items():
            log("throughput", f"left out: {path}: {reason}", "yellow", done.taken_at)
        roll_ups = number_of(len(done.rolled_up.report.made), "roll-up")
        samples = number_of(done.rolled_up.report.samples, "sample")
        text = f"{samples} rolled up {done.rolled_up.engine}, {roll_ups} made in {done.seconds:.1f} s"
        log("throughput", text, "dim", done.taken_at)


def say_rates(
    rates: Sequence[PartitionRate],
    curves: Sequence[Sequence[float]],
    partitions: int,
    left_out: Mapping[str, int],
    window: str,
) -> None:
    """Print the busiest of so many partitions in the order given, each with its last hours, and what was measured."""
    rows = [
        (
            rate.cluster,
            f"{rate.topic}-{rate.partition}",
            *(_rate_text(getattr(rate, f"bytes_per_second_{name}")) for name in ("mean", "p50", "p95", "max")),
            "-" if rate.records_per_second_p95 is None else f"{rate.records_per_second_p95:.0f}",
            f"{span_text(rate.covered_seconds)}",
            sparkline(curve),
        )
        for rate, curve in zip(rates, curves, strict=True)
    ]
    columns = ["cluster", "partition", "mean", "p50", "p95", "max", "records/s p95", "measured", "by hour"]
    drop = ("measured", "p50", "max", "by hour", "records/s p95", "mean")
    say_table(Table(columns, rows, right=columns[2:-1], drop=drop))
    skipped = f"{left_out['resets']} resets and {left_out['gaps']} gaps left out of the rates"
    say(f"{number_of(partitions, 'partition')}, {window}; {skipped}", style="dim")


def say_groups(groups: Sequence[GroupRate], top: int, by: str, window: str) -> None:
    """Print the busiest topics or flows in the order given, each with its last hours."""
    rows = [
        (
            *((group.cluster,) if by == "topic" else ()),
            group.name,
            str(group.partitions),
            _rate_text(group.bytes_per_second_mean),
            _rate_text(group.bytes_per_second_p95_sum),
            _rate_text(group.bytes_per_second_busiest_hour),
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


def say_growth(topics: Sequence[WeeklyGrowth], total: int, window: str) -> None:
    """Print some of so many topics in the order given: the week before, the newest week, and the growth."""
    rows = [
        (
            topic.cluster,
            topic.topic,
            _rate_text(topic.bytes_per_second_before),
            _rate_text(topic.bytes_per_second_now),
            "-" if topic.growth is None else f"× {topic.growth:.2f}",
        )
        for topic in topics
    ]
    columns = ["cluster", "topic", "week before", "newest week", "growth"]
    say_table(Table(columns, rows, right=columns[2:], drop=("week before",)))
    say(f"{number_of(total, 'topic')}, {window}", style="dim")


def say_week(pattern: WeekPattern, window: str) -> None:
    """Print the mean load by day of week and hour of day, and when it is highest and lowest."""
    measured = [rate for day in pattern.bytes_per_second for rate in day if rate is not None]
    most = max(measured, default=0.0)
    rows = []
    for name, day in zip(DAYS, pattern.bytes_per_second, strict=True):
        hours = [rate for rate in day if rate is not None]
        mean = sum(hours) / len(hours) if hours else None
        rows.append((name, sparkline(day, most), _rate_text(mean), _rate_text(max(hours, default=None))))
    say_table(Table(["", "0 h to 23 h (UTC)", "mean", "busiest hour"], rows, right=["mean", "busiest hour"]))
    if pattern.peak:
        place, hour = pattern.peak
        say(f"peak: {DAYS[place]} {hour}:00 UTC, {_rate_text(pattern.bytes_per_second[place][hour])}")
    if pattern.quiet:
        say(f"off-peak: {pattern.quiet[0]}:00 to {pattern.quiet[1]}:00 UTC (tasks: off_peak)")
    say(window, style="dim")


def sparkline(rates: Sequence[float | None], most: float | None = None) -> str:
    """Draw rates as bars from zero to the highest (or to `most`); a blank is an hour without measurements."""
    bars = [None if rate is None or math.isnan(rate) else rate for rate in rates]
    top = max((rate for rate in bars if rate is not None), default=0.0) if most is None else most
    eighths = (None if rate is None else int(rate / top * len(_BARS)) if top > 0 else 0 for rate in bars)
    return "".join(" " if eighth is None else _BARS[min(len(_BARS) - 1, eighth)] for eighth in eighths)


def say_sizings(
    sizings: Sequence[Sizing], tasks: Mapping[str, TaskMaximum], forecasts: Mapping[str, LimitForecast]
) -> None:
    """Print tasks per flow beside the number in the tree, then the reasons, and when growth passes a limit."""
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
        if sizing.flow_id in forecasts:
            say(f"  {forecasts[sizing.flow_id].reason}")


def say_ways(ways: Mapping[str, Sequence[Way]]) -> None:
    """Print what each way to assign the partitions of a flow makes of its load: how busy the busiest task is."""
    if not ways:
        return
    rows = [(flow_id, *way_cells(way)) for flow_id, of_flow in ways.items() for way in of_flow]
    say()
    say_table(Table(("flow", *WAY_COLUMNS), rows, right=WAY_COLUMNS[1:]))
    say("by the rate of each partition by itself", "dim")


def _rate_text(value: float | None) -> str:
    return "-" if value is None else rate_text(value)


# --- fleet and simulate -----------------------------------------------------------------------------------------------


def say_fleet(report: FleetReport) -> None:
    """Print workers per Connect cluster, then the reasons, losses and recoveries of each, then the layout by pairs."""
    rows = [_connect_row(name, connect.need, connect.need) for name, connect in report.connects.items()]
    columns = ["connect cluster", "load", "tasks", "workers", "today"]
    say_table(Table(columns, rows, right=columns[1:]))
    for name, connect in report.connects.items():
        say()
        say(name, style="bold")
        for reason in connect.need.reasons:
            say(f"  {reason}")
        if connect.running.workers:
            say("  Tasks by worker, as Connect reports them:")
            say_table(running_table(connect, indent=2))
        for reason in connect.running_reasons:
            say(f"  {reason}")
        for loss in connect.outlook.losses:
            say(f"  {loss.reason}")
        say(f"  Workers: {connect.forecast.reason}")
        for flow_id, forecast in connect.forecasts.items():
            if forecast.limits:
                say(f"  {flow_id}: {forecast.reason}")
        if connect.outlook.note:
            say(f"  {lag_note(connect.outlook)}")
        if connect.outlook.recoveries:
            say(f"  Time to catch up from a lag of {connect.outlook.lag} while traffic continues:")
            say_table(recovery_table(connect.outlook, indent=2))
            for note in recovery_notes(connect.outlook):
                say(f"  {note}")
    if report.connects:
        say()
        say(report.pair_layout.reason)


def say_comparison(report: SimulationReport) -> None:
    """Print flows, Connect clusters and totals before and after a change, and what follows from it."""
    say(f"If: {report.changes.text}", style="bold")
    say("Before: the current recommendation of `size` and the workers it needs", style="dim")
    columns = ["flow", "load", "tasks", "busiest task", "of usable", "hot partitions"]
    rows = [_flow_row(flow_id, change) for flow_id, change in report.changed_flows.items()]
    if rows:
        say_table(Table([*columns, ""], rows, right=columns[1:], drop=("load", "busiest task", "of usable")))
    if unchanged := report.unchanged_flows:
        stays = "stays as it is" if unchanged == 1 else "stay as they are"
        say(f"{number_of(unchanged, 'other flow' if rows else 'flow')} {stays}")
    say()
    columns = ["connect cluster", "load", "tasks", "workers needed", "today"]
    connects = {**report.connects, "all": report.totals}
    rows = [_connect_row(name, change["before"], change["after"]) for name, change in connects.items()]
    say_table(Table(columns, rows, right=columns[1:], drop=("today", "load")))
    if report.reasons:
        say()
    for reason in report.reasons:
        say(reason)
    for note in report.notes:
        say(f"! {note}", style="yellow")


def running_table(connect: ConnectReport, *, indent: int = 0, title: str = "") -> Table:
    """Return the workers of a Connect cluster as they are now."""
    rows = [
        (
            worker.worker,
            str(worker.tasks),
            str(worker.flow_tasks),
            rate_text(worker.bytes_per_second),
            _tasks_text(worker),
        )
        for worker in connect.running.workers
    ]
    columns = ("worker", "tasks", "of flows", "load", "tasks that fail over if this worker is lost")
    return Table(columns, rows, columns[1:4], drop=("of flows",), wrap=columns[-1:], indent=indent, title=title)


def _tasks_text(worker: WorkerNow) -> str:
    flows = [f"{flow_id} {' '.join(map(str, numbers))}" for flow_id, numbers in worker.flows.items()]
    others = worker.tasks - worker.flow_tasks
    return list_names([*flows, *([number_of(others, "other")] if others else [])]) or "-"


def recovery_table(outlook: Outlook, *, indent: int = 0, title: str = "") -> Table:
    """Return the catch-up times of a Connect cluster by its number of workers."""
    rows = [
        (
            str(recovery.workers),
            str(recovery.tasks),
            _time_text(recovery.now),
            recovery.now.last_flow or "-",
            str(recovery.raised_tasks),
            _time_text(recovery.raised),
        )
        for recovery in outlook.recoveries
    ]
    columns = ("workers", "tasks", "time", "last flow", "raised to", "time then")
    right = [column for column in columns if column != "last flow"]
    return Table(columns, rows, right, drop=("last flow",), indent=indent, title=title)


def lag_note(outlook: Outlook) -> str:
    """Say why no time to catch up is known."""
    return f"Catch-up from a lag of {outlook.lag}: {outlook.note}."


def recovery_notes(outlook: Outlook) -> list[str]:
    """Name the workers that catch up in a given time, the flows that never do, whatever is listed, and those whose
    catch-up limit decides the time.
    """
    never = outlook.recoveries[-1].raised.never if outlook.recoveries else ()
    notes = (
        ("Cannot catch up with any number of workers listed here", never),
        ("Held at their catch-up limit", outlook.limited),
    )
    within = [outlook.within.reason] if outlook.within else []
    return [*within, *(f"{note}: {list_names(flows)}." for note, flows in notes if flows)]


def _time_text(catch_up: CatchUp) -> str:
    never = len(catch_up.never)
    if catch_up.seconds is None:
        return "never" if never else "-"
    return span_text(catch_up.seconds) + (f", {number_of(never, 'flow')} never" if never else "")


def _flow_row(flow_id: str, change: FlowChange) -> tuple[str, ...]:
    before, after = change["before"], change["after"]
    note = "new" if before is None else "gone" if after is None else ""
    if after and after["capped_by"]:
        note = f"{note} capped by {after['capped_by']}".strip()
    cells = zip(_flow_cells(before), _flow_cells(after), strict=True)
    return flow_id, *(_pair_text(*pair) for pair in cells), note


def _flow_cells(flow: FlowSummary | None) -> tuple[str, ...]:
    if flow is None:
        return ("-",) * 5
    rates = rate_text(flow["bytes_per_second"]), rate_text(flow["busiest_bytes_per_second"])
    return rates[0], str(flow["tasks"]), rates[1], f"{flow['busiest_share'] * 100:.0f} %", str(flow["hot_partitions"])


def _need_cells(need: WorkerNeed | Totals | None) -> tuple[str, ...]:
    if need is None:
        return ("-",) * 3
    return rate_text(need.bytes_per_second), str(need.tasks), _count_text(need.workers_needed, "not possible")


def _connect_row(name: str, before: WorkerNeed | Totals | None, after: WorkerNeed | Totals | None) -> tuple[str, ...]:
    newest = after or before
    cells = zip(_need_cells(before), _need_cells(after), strict=True)
    today = _count_text(newest.workers_today if newest else None, "-")
    return name, *(_pair_text(*pair) for pair in cells), today


def _pair_text(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}"


def _count_text(number: int | None, otherwise: str) -> str:
    return otherwise if number is None else str(number)


# --- link -------------------------------------------------------------------------------------------------------------


_COLUMNS = {
    "send buffer": "socket.send.buffer.bytes",
    "receive buffer": "socket.receive.buffer.bytes",
    "largest request": "socket.request.max.bytes",
    "largest batch": "message.max.bytes",
}


def say_brokers(report: BrokersReport) -> None:
    """Print what the brokers of each cluster allow, and what changes in the file."""
    rows = [
        (alias, str(brokers["count"]), brokers["version"], *(_bytes(brokers[key]) for key in _COLUMNS.values()))
        for alias, brokers in report.entries.items()
    ]
    if rows:
        columns = ("cluster", "brokers", "version from", *_COLUMNS)
        say_table(Table(columns, rows, right={"brokers", *_COLUMNS}, drop=("largest request", "version from")))
    for remark in report.remarks:
        say(f"! {visible(remark)}", style=STYLES["warning"])
    if report.diff:
        say()
    for line in report.diff:
        say(visible(line))


def _bytes(size: int) -> str:
    return "by system" if size == -1 else f"{size:,}".replace(",", " ")


def say_probe(probe: LinkProbe) -> None:
    """Print the round trips, what they say about the link, and the entry for the tree."""
    widest = max(len(end.cluster) for end in probe.ends)
    for end in probe.ends:
        say(f"this machine -> {end.cluster:{widest}}  {_trip(end.seconds):>9}  {_range(end)}")
    say(f"{probe.verdict[:1].upper()}{probe.verdict[1:]}.", style="bold")
    if moved := probe.transfer:
        rate, many = rate_text(moved.bytes_per_second), number_of(moved.connections, "connection")
        volume = f"{bytes_text(moved.bytes)} in {moved.seconds:.1f} s over {many}"
        say(f"{volume}: {rate}, so the link carries at least that.")
    for remark in probe.remarks:
        say(f"! {visible(remark)}", style=STYLES["warning"])
    if entry := probe.entry:
        more = "".join(f", {key}: {entry[key]}" for key in ("rtt", "bandwidth") if key in entry)
        say()
        say("links:")
        say(f"  - {{between: [{', '.join(entry['between'])}]{more}}}")
    if probe.diff:
        say()
    for line in probe.diff:
        say(visible(line))


def _trip(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _range(end: ProbedEnd) -> str:
    trips = [broker.seconds for broker in end.brokers if broker.seconds is not None]
    count = number_of(len(trips), "broker")
    return f"({count}, {_trip(min(trips))} to {_trip(max(trips))})" if len(trips) > 1 else f"({count})"


_BAR_CELLS = 24
OVER = {"round trip": "round trip", "tasks": "tasks", "fetch": "max.partition.fetch.bytes", "batch": "batch.size"}


def say_forecasts(flows: Iterable[LinkComparison]) -> None:
    """Print what the model says of each flow: a table of settings and placements, and how the rate changes."""
    for number, comparison in enumerate(flows):
        if number:
            say()
        say(f"{visible(comparison.flow)}: {forecast_heading(comparison)}")
        say(f"{comparison.verdict}.")
        say()
        say_table(forecast_table(comparison))
        for curve in comparison.curves:
            say()
            say_table(curve_table(curve))


def forecast_heading(comparison: LinkComparison) -> str:
    """Say what the forecast is for."""
    traffic = comparison.traffic
    many = f"{number_of(traffic.partitions, 'partition')} on {number_of(traffic.tasks, 'task')}"
    limits = (
        "brokers as read"
        if comparison.brokers_read
        else "Kafka's defaults for the brokers (mm2mgr link read reads them)"
    )
    return f"{visible(comparison.route)}; {many}, records of {size_text(traffic.record_bytes)}; {limits}"


def forecast_table(comparison: LinkComparison) -> Table:
    """Return the placements and settings with what the flow carries under each."""
    rows, below, muted = [], [], set[int]()
    for number, row in enumerate(comparison.rows):
        forecast = row.forecast
        limit = "nothing arrives" if forecast.stall else LIMITS[forecast.limit]
        heap = size_text(row.heap_bytes) + ("" if row.fits else " !")
        rates = [_rate(rate) for rate in (forecast.flow, forecast.task, forecast.partition)]
        where = f"beside the {row.placement}" if row.placement != "elsewhere" else "elsewhere"
        name = f"{row.settings}{' (now)' if row.is_current else ''}"
        rows.append((where, name, *rates, heap, limit))
        below.append([f"{forecast.stall}."] if forecast.stall else [])
        if not row.is_current:
            muted.add(number)
    columns = ("workers", "settings", "MB/s", "per task", "per partition", "worker heap", "limited by")
    right = {"MB/s", "per task", "per partition", "worker heap"}
    return Table(columns, rows, right=right, wrap={"limited by"}, below=below, muted=muted, drop=("per task",))


def curve_table(curve: Curve, *, drawn: bool = True) -> Table:
    """Return a curve as a plot of bars: the tree's settings drawn, all of them in MB/s, and what lies where."""
    top = max((rate for point in curve.points for rate in point.rates.values()), default=0.0) or 1.0
    with_heap = any(point.task_heap_bytes is not None for point in curve.points)
    rows = []
    for point in curve.points:
        bar = "█" * round(point.rates["this tree"] / top * _BAR_CELLS)
        marks = ", ".join("now" if mark in {"here", "this tree"} else mark for mark in point.marks)
        rates = [_rate(point.rates[settings]) for settings in SETTINGS]
        heap = ["-" if point.task_heap_bytes is None else size_text(point.task_heap_bytes)] if with_heap else []
        rows.append((value_text(curve.over, point.value), *rates, *heap, *([bar] if drawn else []), marks))
    name, heaps = OVER[curve.over], ["heap per task"] if with_heap else []
    columns = (name, *SETTINGS, *heaps, *(["plot"] if drawn else []), "where")
    return Table(columns, rows, right={name, *SETTINGS, *heaps}, drop=("plot", "published recipe", "heap per task"))


def value_text(over: str, value: float) -> str:
    """Return a value of a curve with its unit."""
    if over == "round trip":
        return f"{value * 1000:g} ms"
    return f"{value:g}" if over == "tasks" else size_text(value)


def _rate(rate: float) -> str:
    return f"{rate / 1e6:.2f}"
