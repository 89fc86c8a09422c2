"""What all pages of `serve` share: the frame around them, addresses, and how old a view is.

Every link is relative to the root, every state has a sign and a word beside its colour, and every figure its numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from urllib.parse import urlencode

from mm2mgr.operations.serve import EstateView
from mm2mgr.output.page import template
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.plan.changes import Change
from mm2mgr.text import few, span_text

Context = dict[str, object]
"""What a template needs."""
MOST_ROWS = 200
"""Rows of partitions, problems, findings and changes on a page; commands of the terminal have all."""
PAGES = {
    "": "Overview",
    "flows": "Flows",
    "workers": "Workers",
    "losses": "Losses",
    "findings": "Findings",
    "changes": "Changes",
    "plan": "Plan",
    "watchdog": "Watchdog",
    "rebalance": "Rebalances",
    "failover": "Failover",
}
"""The pages by path, in the order of the navigation."""
KEPT = ("refresh", "live")
"""Parameters of the address that links between pages carry on."""
SIGNS = {"problem": "✕", "unknown": "?", "waiting": "…", "ok": "✓"}
WORST_FIRST = tuple(SIGNS)


def html(page: str, view: EstateView, tick: float, context: Context, refresh_seconds: int | None = None) -> str:
    """Return a page: `page` names its template, `context` is what that needs, and `tick` is now on the clock of the
    view."""
    status = view.look.status if view.look else None
    return template(f"{page}.html.j2").render(
        title=f"mm2mgr: {context['name']}",
        nav=[(f"/{path}", name) for path, name in PAGES.items()],
        health=status.health if status else "unknown",
        signs=SIGNS,
        origin=_origin(view, tick),
        trouble=_trouble(view, tick),
        taken_at=utc(status.taken_at) if status else "",
        refresh=refresh_seconds,
        **{key: value for key, value in context.items() if key != "name"},
    )


@cache
def style() -> str:
    """Return the style sheet that every page of `serve` has, for the hash in the Content-Security-Policy."""
    text = html("table", EstateView(0.0, 1.0), 0.0, table_page("", "", "", []))
    sheet = re.search("<style>(.*?)</style>", text, re.DOTALL)
    assert sheet is not None
    return sheet[1]


def utc(seconds: float) -> str:
    """Return a time, in seconds since 1970, to the second."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def flow_link(flow: str) -> str:
    """Return the address of a flow's page."""
    return f"/flow?{urlencode({'id': flow})}"


def _origin(view: EstateView, tick: float) -> str:
    age = view.age_seconds(tick)
    if age is None:
        return "No look has ended yet."
    is_fresh = view.state(tick) == "ok"
    return f"Looked {span_text(age)} ago." if is_fresh else f"The last complete look was {span_text(age)} ago."


def _trouble(view: EstateView, tick: float) -> list[str]:
    trouble = ["What is shown is stale: looks fail or take too long."] if view.state(tick) == "stale" else []
    if view.error:
        trouble.append(f"The last look failed: {view.error}")
    if view.tree_error:
        trouble.append(f"The YAML tree has changed and is wrong, so the one before it counts: {view.tree_error}")
    if view.audit and view.audit.error:
        trouble.append(f"The last audit of this process failed: {view.audit.error}")
    return [*trouble, *view.warnings]


def table_page(path: str, heading: str, lead: str, tables: Sequence[Table], notes: Sequence[str] = ()) -> Context:
    return {"name": heading, "here": f"/{path}", "heading": heading, "lead": lead, "notes": notes, "tables": tables}


def change_text(change: Change) -> str:
    keys = []
    for key in change.keys:
        keys.append(f"{key.key}: {or_dash(key.masked_before)} → {or_dash(key.masked_after)}")
    return "; ".join(part for part in (change.action, change.reason, few(keys), change.waits) if part)
