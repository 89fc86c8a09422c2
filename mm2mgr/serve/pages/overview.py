"""The first page of `serve`: the picture, problems, and clusters that could not be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from mm2mgr.operations.serve import EstateView
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.problems.health import Status
from mm2mgr.serve.pages.base import MOST_ROWS, Context, flow_link
from mm2mgr.serve.pages.picture import picture
from mm2mgr.text import number_of


def overview(now: float, view: EstateView, shown: Mapping[str, str] | None = None) -> Context:
    """Return what the overview shows: the picture, as `view` and `pairs` of the address ask for it, problems, and
    clusters that could not be read."""
    status, asked = view.look.status if view.look else None, shown or {}
    problems = _problems(status) if status else []
    failures = status.failures.items() if status else ()
    return {
        "name": "overview",
        "here": "/",
        "summary": _summary(status) if status else "",
        "picture": picture(now, view, asked.get("view", ""), asked.get("pairs", "")),
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


def _problems(status: Status) -> list[tuple[str, str, str]]:
    return [
        *((flow.flow, flow_link(flow.flow), problem.sentence) for flow in status.flows for problem in flow.problems),
        *((other.connector, "", problem.sentence) for other in status.companions for problem in other.problems),
        *((lone.connector, "", lone.sentence()) for lone in status.orphans),
        *((stale.connect, "", stale.sentence()) for stale in status.stale_offsets),
    ]
