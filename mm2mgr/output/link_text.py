"""What brokers and links carry, as text."""

from __future__ import annotations

from mm2mgr.link import LIMITS
from mm2mgr.link_forecast import SETTINGS, Curve, LinkComparison
from mm2mgr.operations.link import BrokersReport, LinkProbe, LinkReport, ProbedEnd
from mm2mgr.output.console import STYLES, say, say_table
from mm2mgr.output.tables import Table
from mm2mgr.text import bytes_text, number_of, rate_text, size_text, visible

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
OVER = {
    "round trip": "round trip",
    "tasks": "tasks",
    "fetch": "max.partition.fetch.bytes",
    "batch": "batch.size",
}


def say_forecasts(report: LinkReport) -> None:
    """Print what the model says of each flow: a table of settings and placements, and how the rate changes."""
    for number, comparison in enumerate(report.flows):
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
