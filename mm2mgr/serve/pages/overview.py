"""The first page of `serve`: what is wrong now, traffic, what changed, what will hurt, and the picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from mm2mgr.operations.estate_view import EstateView
from mm2mgr.problems.health import Status
from mm2mgr.serve.pages.base import WORDS, WORST_FIRST, Context, problem_count, shown_health
from mm2mgr.serve.pages.changed import recent_changes
from mm2mgr.serve.pages.picture import picture
from mm2mgr.serve.pages.traffic import traffic
from mm2mgr.serve.pages.wrong import ahead, wrong
from mm2mgr.serve.visits import FIRST_SECONDS, Visit
from mm2mgr.text import number_of


def overview(
    now: float, view: EstateView, shown: Mapping[str, str] | None = None, visit: Visit | None = None
) -> Context:
    """Return what the overview shows: `shown` has `view` and `pairs` of its address, for the picture. `visit`: since
    when something has changed; None: the last day."""
    status, asked = view.look.status if view.look else None, shown or {}
    return {
        "name": "overview",
        "here": "/",
        "summary": _summary(view, status) if status else "",
        "count": problem_count(view),
        "wrong": wrong(view),
        "traffic": traffic(view),
        "changed": recent_changes(now, view, visit or Visit(now - FIRST_SECONDS, True)),
        "ahead": ahead(view),
        "picture": picture(now, view, asked.get("view", ""), asked.get("pairs", "")),
    }


def _summary(view: EstateView, status: Status) -> str:
    shown = Counter(WORDS[shown_health(view, flow)] for flow in status.flows)
    flows = [f"{shown[word]} {word}" for word in WORST_FIRST if shown[word]]
    tasks = Counter(task.state for flow in status.flows for task in flow.tasks)
    counts = ", ".join(f"{count} {state}" for state, count in tasks.most_common())
    return f"{number_of(len(status.flows), 'flow')} ({', '.join(flows)}); {number_of(tasks.total(), 'task')}" + (
        f" ({counts})." if counts else "."
    )
