"""What the page shows of each flow: tasks before and after, hottest partitions, and the week, gathered from roll-ups.

In: sized flows and a store of roll-ups. Out: one HTML file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import FileKind, write_whole
from mm2mgr.operations.workspace import Workspace
from mm2mgr.output.console import talk
from mm2mgr.output.page import TITLE, FlowView, page

if TYPE_CHECKING:
    from mm2mgr.cli.cases import Asked
    from mm2mgr.cli.sizing import Rates
    from mm2mgr.partitions import TopicPartition
    from mm2mgr.sizing.load import Load
    from mm2mgr.sizing.stability import Evidence
    from mm2mgr.sizing.tasks import Sizing
    from mm2mgr.sizing.whatif import Case, Outcome
    from mm2mgr.topology import Flow

_PAGE = FileKind("a page", lambda head: f"<title>{TITLE}</title>" in head)
_HOTTEST = 10
_WEEKS_SECONDS = 28 * 86_400.0
_WEEK_HOURS = 168
_CELLS = 50_000_000  # partitions × hours held at once, 400 MB; a large estate shows fewer weeks, never less than one
Week = tuple[tuple[float | None, ...], ...]


def views_of_cases(workspace: Workspace, asked: Asked, cases: Iterable[Case], found: Outcome) -> list[FlowView]:
    """Return what the page shows, from the cases of `fleet`."""
    weeks = weeks_of(asked.store, workspace.topology.flows)
    loads = {run.flow_id: run.load for each in found.loads.values() for run in each.runs}
    views = []
    for case in cases:
        load = loads[case.flow_id]
        today = case.now.tasks if case.now else None
        week = weeks.get(case.flow_id, ())
        hot = hottest(case.deal.order, case.rates, load)
        views.append(view_of(found.sizings[case.flow_id], load, today, hot, week))
    return views


def views_of_sizings(
    store: Path, flows: Sequence[Flow], evidence: Mapping[str, Evidence], sizings: Iterable[Sizing], rates: Rates
) -> list[FlowView]:
    """Return what the page shows, from what `size` has found."""
    from mm2mgr.cli.cases import carried_rates

    named, weeks = {flow.id: flow for flow in flows}, weeks_of(store, flows)
    views = []
    for sizing in sizings:
        each = evidence[sizing.flow_id]
        hot = hottest(each.order, carried_rates(named[sizing.flow_id], rates), each.load)
        today = sizing.now.tasks if sizing.now else None
        views.append(view_of(sizing, each.load, today, hot, weeks.get(sizing.flow_id, ())))
    return views


def view_of(sizing: Sizing, load: Load, today: int | None, hot: Sequence[tuple[str, float]], week: Week) -> FlowView:
    """Return what the page shows of one flow."""
    before = tuple(load.per_task(today)) if today else ()
    return FlowView(sizing.to_dict(), before, tuple(load.per_task(sizing.tasks)), tuple(hot), week)


def hottest(
    order: Sequence[TopicPartition], measured: Collection[TopicPartition], load: Load
) -> list[tuple[str, float]]:
    """Return the measured partitions with the highest rates, of those that Kafka has now."""
    rates = dict(zip(order, load.alone.tolist(), strict=True))
    known = sorted((one for one in order if one in measured and rates[one] > 0), key=lambda one: (-rates[one], one))
    return [(str(one), rates[one]) for one in known[:_HOTTEST]]


def weeks_of(store: Path, flows: Sequence[Flow]) -> dict[str, Week]:
    """Return the mean load by day of week and hour of day of each flow, from the newest weeks of roll-ups, four at most."""
    from mm2mgr.throughput.groups import members, week_pattern
    from mm2mgr.throughput.windows import hourly, last_hours, read_window

    found = read_window(store, last_hours(store, _WEEKS_SECONDS))
    window = found.window.last(max(_WEEK_HOURS, _CELLS // max(1, len(found))))
    by_hour = hourly(store, window, found)
    rows = {flow.id: members(found, flow.source.alias, flow.carries) for flow in flows}
    newest = replace(found, window=window)
    return {flow_id: week_pattern(newest, by_hour[own]).bytes_per_second for flow_id, own in rows.items() if len(own)}


def rates_text(asked: Asked) -> str:
    """Say which rates are planned with, such as p95 of 24 hours."""
    from mm2mgr.throughput.planning import WEEKS_SECONDS
    from mm2mgr.throughput.windows import last_hours

    seconds = WEEKS_SECONDS if asked.window_seconds is None else asked.window_seconds
    return f"{asked.statistic} of {last_hours(asked.store, seconds).text()}"


def write_page(
    path: Path, views: Sequence[FlowView], report: Mapping[str, Any] | None = None, measured: str = ""
) -> None:
    """Write the page; Mm2mgrError where it cannot be written, or another file is there. `measured`: which rates it plans with."""
    written = f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC" + (f"; rates: {measured}." if measured else ".")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mm2mgrError(f"{path}: cannot be written: {error.strerror}", hint="name another file") from error
    write_whole(path, page(views, report, written), _PAGE)
    talk(f"page in {path}")
