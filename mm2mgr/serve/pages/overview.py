"""The first page of `serve`: the matrix, problems, and clusters that could not be read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from urllib.parse import urlencode

from mm2mgr.operations.serve import EstateView
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.problems.health import FlowStatus, Status
from mm2mgr.serve.pages.base import MOST_ROWS, WORST_FIRST, Context, flow_link
from mm2mgr.serve.pages.flows import pair_lag
from mm2mgr.text import number_of, span_text


def overview(now: float, view: EstateView) -> Context:
    """Return what the overview shows: the matrix, problems, and clusters that could not be read."""
    status = view.look.status if view.look else None
    problems = _problems(status) if status else []
    failures = status.failures.items() if status else ()
    return {
        "name": "overview",
        "here": "/",
        "summary": _summary(status) if status else "",
        "matrix": _matrix(now, view, status.flows) if status else None,
        "problems": problems[:MOST_ROWS],
        "more": max(0, len(problems) - MOST_ROWS),
        "connects": _connects(view),
        "failures": [(cluster, failure.message, failure.hint) for cluster, failure in failures],
    }


def _connects(view: EstateView) -> Table:
    rows = [
        (name, or_dash(need.workers), or_dash(need.workers_needed))
        for name, need in sorted(view.needs.connects.items())
    ]
    columns = ("Connect cluster", "workers at work", "workers needed")
    return Table(columns, rows, right=columns[1:])


def _summary(status: Status) -> str:
    flows = [f"{count} {word}" for word, count in status.counts().items() if count]
    tasks = Counter(task.state for flow in status.flows for task in flow.tasks)
    counts = ", ".join(f"{count} {state}" for state, count in tasks.most_common())
    return f"{number_of(len(status.flows), 'flow')} ({', '.join(flows)}); {number_of(tasks.total(), 'task')}" + (
        f" ({counts})." if counts else "."
    )


def _matrix(now: float, view: EstateView, flows: Iterable[FlowStatus]) -> Context:
    """Return the pairs of clusters as rows and columns; the side with more clusters is down, so that it stays
    readable."""
    cells: dict[tuple[str, str], list[FlowStatus]] = defaultdict(list)
    for flow in flows:
        source, _, target = flow.pair.partition("->")
        cells[source, target].append(flow)
    sources, targets = (sorted({pair[side] for pair in cells}) for side in (0, 1))
    across = "target" if len(sources) >= len(targets) else "source"
    down, along = (sources, targets) if across == "target" else (targets, sources)

    def cell(row: str, column: str) -> Context | None:
        pair = (row, column) if across == "target" else (column, row)
        return _cell(now, pair, cells[pair], view) if pair in cells else None

    return {
        "down": "source" if across == "target" else "target",
        "across": across,
        "columns": along,
        "rows": [(row, [cell(row, column) for column in along]) for row in down],
    }


def _cell(now: float, pair: tuple[str, str], flows: Sequence[FlowStatus], view: EstateView) -> Context:
    lag, is_late = pair_lag([view.total(flow.flow) for flow in flows])
    ages = [now - last.taken_at for flow in flows if (last := view.last_known(flow))]
    only = len(flows) == 1
    return {
        "link": flow_link(flows[0].flow) if only else f"/flows?{urlencode({'source': pair[0], 'target': pair[1]})}",
        "health": min((flow.health for flow in flows), key=WORST_FIRST.index),
        "late": is_late,
        "lag": f"known {span_text(max(ages))} ago" if ages else lag,
        "flows": "" if only else number_of(len(flows), "flow"),
        "pair": f"{pair[0]} to {pair[1]}",
    }


def _problems(status: Status) -> list[tuple[str, str, str]]:
    return [
        *((flow.flow, flow_link(flow.flow), problem.sentence) for flow in status.flows for problem in flow.problems),
        *((other.connector, "", problem.sentence) for other in status.companions for problem in other.problems),
        *((lone.connector, "", lone.sentence()) for lone in status.orphans),
        *((stale.connect, "", stale.sentence()) for stale in status.stale_offsets),
    ]
