"""What all pages of `serve` share: the frame around them, addresses, and how old a view is.

Every link begins with the root, before which `put_under` puts a base path; every state has a sign and a word beside its
colour, and every figure its numbers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from urllib.parse import urlencode

from mm2mgr.operations.estate_view import EstateView
from mm2mgr.output.page import template
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.plan.changes import Change
from mm2mgr.problems.health import ConnectorState
from mm2mgr.problems.kind import CHECK
from mm2mgr.problems.order import TROUBLE_OF_KIND
from mm2mgr.text import few, list_names, number_of, span_text

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
    "parts": "Parts",
}
"""The pages by path, in the order of the navigation."""
CARRIED = ("refresh", "live")
"""Parameters of the address that links between pages carry on."""
SAME_SECONDS = 120.0
"""At most, between what a part of this process did and its entry in the history."""
SIGNS = {"problem": "✕", "attention": "!", "unknown": "?", "waiting": "…", "ok": "✓"}
"""How pages show a health: red where records are in danger, amber (`attention`, the same word) where they are not."""
WORDS = {word: "problem" if word == "attention" else word for word in SIGNS}
WORST_FIRST = tuple(SIGNS)
_LEAST_REFRESH_SECONDS, _MOST_REFRESH_SECONDS, _MOST_DIGITS = 5, 3600, 6
_LINK = re.compile(r'href="(/(?!static/)(?:(?!["#]|live=|refresh=).)*)(#[^"]*)?"')
_ADDRESS = re.compile(r'(<[^<>]*? (?:href|src|action|content)="(?:\d+; url=)?)/(?!/)')


@dataclass(frozen=True)
class LoadPace:
    """How a page loads again, as its address says: every so many seconds (None: as often as the looks), or never."""

    refresh_seconds: int | None = None
    is_paused: bool = False

    @classmethod
    def parse(cls, live: str, refresh: str) -> LoadPace:
        """Read `live=off` and `refresh=30` of an address; anything else is as if it was not there."""
        is_number = refresh.isascii() and refresh.isdecimal() and len(refresh) < _MOST_DIGITS
        seconds = min(max(int(refresh), _LEAST_REFRESH_SECONDS), _MOST_REFRESH_SECONDS) if is_number else None
        return cls(seconds, live == "off")

    @property
    def query(self) -> tuple[tuple[str, str], ...]:
        """What links carry on."""
        refresh = () if self.refresh_seconds is None else (("refresh", str(self.refresh_seconds)),)
        return (*refresh, ("live", "off")) if self.is_paused else refresh

    def seconds(self, view: EstateView) -> int:
        """Return how often a script loads the page."""
        return self.refresh_seconds or int(min(max(view.every_seconds, _LEAST_REFRESH_SECONDS), _MOST_REFRESH_SECONDS))

    def carry(self, text: str) -> str:
        """Return a page whose links keep the pace."""
        if not self.query:
            return text
        more = urlencode(self.query).replace("&", "&amp;")

        def link(match: re.Match[str]) -> str:
            path, fragment = match[1], match[2] or ""
            return f'href="{path}{"&amp;" if "?" in path else "?"}{more}{fragment}"'

        return _LINK.sub(link, text)


def html(  # noqa: PLR0913, PLR0917 - what is shown, when, and how it comes anew
    page: str, view: EstateView, tick: float, context: Context, pace: LoadPace = LoadPace(), address: str = "/?"
) -> str:
    """Return a page: `page` names its template, `context` is what that needs, `tick` is now on the clock of the view.

    `address`: its own, without a pace, up to where a parameter may follow.
    """
    status = view.look.status if view.look else None
    count = problem_count(view)
    text = template(f"{page}.html.j2").render(
        title=f"{f'({count}) ' if count else ''}mm2mgr: {context['name']}",
        nav=[(f"/{path}", name) for path, name in PAGES.items()],
        health=status.health if status else "unknown",
        signs=SIGNS,
        words=WORDS,
        owner=view.owner,
        place=[part for part in (view.tree, view.commit and f"commit {view.commit}", view.host) if part],
        origin=_origin(view, tick, "AGE"),
        waiting=_waiting_text(view, tick) if view.look is None else "",
        check=CHECK,
        age=view.age_seconds(tick),
        is_stale=view.state(tick) == "stale",
        trouble=_trouble(view, tick),
        taken_at=utc(status.taken_at) if status else "",
        refresh=None if pace.is_paused else pace.refresh_seconds,
        address=address,
        every=pace.seconds(view),
        is_live=not pace.is_paused,
        carried=pace.query,
        script=static_address("console.js"),
        icon=static_address("icon.svg"),
        **{"read_at": "", **{key: value for key, value in context.items() if key != "name"}},
    )
    return pace.carry(text)


def put_under(base_path: str, text: str) -> str:
    """Return a page whose links, forms and scripts are below a base path; texts have quotes as entities only."""
    return _ADDRESS.sub(rf"\g<1>{base_path}/", text) if base_path else text


def shown_health(view: EstateView, state: ConnectorState) -> str:
    """Return how a page shows the health of a flow or connector, of SIGNS: one rule with the list of what is wrong."""
    return view.look.shown_health(state) if view.look else "unknown"


def undone_changes(view: EstateView) -> list[Change]:
    """Return what a plan would change and no problem of the newest look names: the tree was changed, or blocks it."""
    if view.survey is None or view.look is None or isinstance(view.survey.plan, str):
        return []
    named = {
        (problem.subject.connect, problem.subject.connector)
        for problem in view.look.status.problems()
        if TROUBLE_OF_KIND[problem.kind] == "differs" or problem.drift
    }
    return [
        change
        for change in view.survey.plan.changes
        if change.action != "no-op" and (change.connect, change.connector) not in named
    ]


def problem_count(view: EstateView) -> int:
    """Return how many things are wrong now, as the title and the overview count them."""
    if view.look is None:
        return 0
    status = view.look.status
    problems = sum(TROUBLE_OF_KIND[problem.kind] != "not ready" for problem in status.problems())
    unread = len(status.failures) - len(status.told_failures())
    return problems + unread + len(view.look.late_flows) + bool(undone_changes(view))


@cache
def static_files() -> Mapping[str, bytes]:
    """Return the files that pages load, by name."""
    folder = resources.files("mm2mgr.serve").joinpath("static")
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.endswith((".js", ".svg"))}


@cache
def static_address(name: str) -> str:
    """Return the address of a file that pages load; another one for other content, so that browsers may keep it."""
    return f"/static/{name}?{hashlib.sha256(static_files()[name]).hexdigest()[:12]}"


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


def _origin(view: EstateView, tick: float, age_word: str = "") -> tuple[str, str]:
    """Return how old the view is, and the same with a word in the place of the age, for a script that counts on."""
    age = view.age_seconds(tick)
    if age is None:
        return "", ""
    text = "Looked {} ago" if view.state(tick) == "ok" else "The last complete look was {} ago"
    return text.format(span_text(float(round(age)))), text.format(age_word)


def _trouble(view: EstateView, tick: float) -> list[str]:
    trouble = [_stale_text(view, tick)] if view.state(tick) == "stale" and view.look else []
    if view.error:
        trouble.append(f"The last look failed: {view.error}")
    if view.tree_error:
        trouble.append(f"The YAML tree has changed and is wrong, so the one before it counts: {view.tree_error}")
    if view.audit and view.audit.error:
        trouble.append(f"The last audit of this process failed: {view.audit.error}")
    return [*trouble, *view.warnings]


def _waiting_text(view: EstateView, tick: float) -> str:
    """Say what there is before the first look has ended, once for all of a page."""
    started = view.started_at if view.started_tick is None else view.started_tick
    since = f"{utc(view.started_at)} ({span_text(float(round(max(0.0, tick - started))))} ago)"
    if view.began_at is None:
        state = (
            f"{number_of(view.failed_looks, 'look')} failed, none has ended well"
            if view.failed_looks
            else "none has begun"
        )
        return f"Started at {since}, looks every {span_text(view.every_seconds)}; {state}."
    waits = f" and waits for {list_names(view.waits_for)}" if view.waits_for else ""
    failed = f", after {view.failed_looks} that failed" if view.failed_looks else ""
    return f"Started at {since}, looks every {span_text(view.every_seconds)}; the first look{failed} still runs{waits}."


def _stale_text(view: EstateView, tick: float) -> str:
    age = view.age_seconds(tick) or 0.0
    return f"What is shown is stale: the last complete look ended {span_text(age)} ago; looks fail or take too long."


def table_page(path: str, heading: str, lead: str, tables: Sequence[Table], notes: Sequence[str] = ()) -> Context:
    return {"name": heading, "here": f"/{path}", "heading": heading, "lead": lead, "notes": notes, "tables": tables}


def change_text(change: Change) -> str:
    keys = []
    for key in change.keys:
        keys.append(f"{key.key}: {or_dash(key.masked_before)} → {or_dash(key.masked_after)}")
    return "; ".join(part for part in (change.action, change.reason, few(keys), change.waits) if part)
