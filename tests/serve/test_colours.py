"""A flow has the same colour on all pages: overview, picture, matrix, list, its own page and those of its workers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr import timing
from mm2mgr.observe.lag_report import Amount
from mm2mgr.observe.trend import TimeForecast
from mm2mgr.operations.estate_view import EstateView
from mm2mgr.problems.connectors import ConfigDiffers, TaskFailed
from mm2mgr.problems.flows import PausedByHand, RestingWhileLagGrows
from mm2mgr.problems.kind import LiveProblem, ProblemEvidence, ProblemSubject
from mm2mgr.serve.app import application
from tests.clock import ShownClock
from tests.serve.estate import NOW, ask_application, flow_status, look_of, view_of

TROUBLES: Sequence[ProblemEvidence | None] = (
    None,
    TaskFailed("no leader", ("unavailable", "")),
    ConfigDiffers(("tasks.max",), adopted=False),
    PausedByHand("PAUSED", 40, ""),
    RestingWhileLagGrows("STOPPED", 40, "", 7),
)
WORDS = ("ok", "waiting", "unknown")
MAX_LAG, DAY = 600.0, 86_400.0
"""What a made flow is: its trouble (a place in TROUBLES), its health without one, seconds of lag, whether it has a
`max_lag`, and seconds until retention overtakes it."""
Made = tuple[int, str, float | None, bool, float | None]
FLOWS = st.tuples(
    st.integers(0, len(TROUBLES) - 1),
    st.sampled_from(WORDS),
    st.sampled_from([None, 0.0, 30.0, 900.0, 90_000.0]),
    st.booleans(),
    st.sampled_from([None, 3600.0, 2 * DAY]),
)


def name_of(number: int) -> str:
    return f"f{number}:s{number}->t"


def estate_of(made: Sequence[Made]) -> EstateView:
    """Return an estate with a flow for each, every one of a pair, a worker and a topic of its own."""
    flows = []
    for number, (trouble, health, _, _, _) in enumerate(made):
        name, evidence = name_of(number), TROUBLES[trouble]
        status = flow_status(name, f"s{number}->t", connector=f"mm2.{number}")
        if evidence:
            subject = ProblemSubject("main", status.connector, name)
            status = replace(status, health="problem", problems=(LiveProblem(evidence, subject, 60.0),))
        else:
            status = replace(status, health=health)
        tasks = tuple(replace(task, worker=f"w{number}:8083") for task in status.tasks)
        flows.append(replace(status, tasks=tasks))
    look = look_of(flows, {name_of(number): {"orders": 40} for number in range(len(made))})
    totals, limits = dict(look.totals), {}
    for number, (_, _, seconds, is_limited, left) in enumerate(made):
        name = name_of(number)
        overtaken = None if left is None else TimeForecast(left, left, left)
        totals[name] = replace(totals[name], seconds=Amount(seconds), overtaken=overtaken)
        if is_limited:
            limits[name] = MAX_LAG
    return view_of(replace(look, totals=totals, max_lag_seconds=limits))


def page_of(view: EstateView, path: str) -> str:
    with timing.use(ShownClock(lambda: NOW + 5)):
        return ask_application(application(lambda: view, clock=lambda: NOW + 5), path).text


def colour(text: str) -> str:
    """Return the first colour of a piece of a page."""
    match = re.search(r'class="(?:state )?(problem|attention|unknown|waiting|ok)\b', text)
    assert match, text
    return match[1]


def listed_colour(page: str, name: str) -> str:
    """Return the colour of the row of a table that has the link of a flow."""
    link = f'href="/flow?id={quote(name, safe="")}"'
    return next(colour(row) for row in re.findall("<tr>.*?</tr>", page, re.DOTALL) if link in row and "state " in row)


def wrong_colours(page: str) -> dict[str, set[str]]:
    """Return the colours of the entries that name each flow in the list of what is wrong."""
    colours: dict[str, set[str]] = {}
    for entry in re.findall(r'<li class="entry.*?</div></li>', page, re.DOTALL):
        for name in re.findall(r'href="/flow\?id=[^"]*">([^<]*)</a>', entry):
            colours.setdefault(unescape(name), set()).add(colour(entry))
    return colours


def assert_same_colour_everywhere(made: Sequence[Made]) -> None:
    view = estate_of(made)
    overview, matrix, flows = (page_of(view, path) for path in ("/", "/?view=matrix", "/flows"))
    wrong = wrong_colours(overview)
    for number in range(len(made)):
        name = name_of(number)
        own = page_of(view, f"/flow?id={quote(name, safe='')}")
        link = f'href="/flow?id={quote(name, safe="")}"'
        cell = next(tag for tag in re.findall("<a [^>]*>", matrix) if link in tag and "data-column" in tag)
        band = next(a for a in re.findall(r"<a .*?</a>", overview, re.DOTALL) if f"source=s{number}&" in unescape(a))
        colours = {
            "list": listed_colour(flows, name),
            "own page": colour(own[own.index("<h1>") :]),
            "matrix": colour(cell),
            "picture": colour(band),
            "worker": listed_colour(page_of(view, f"/worker?connect=main&id=w{number}:8083"), name),
        }
        if name in wrong:
            # Of several entries the gravest counts.
            colours["overview"] = "problem" if "problem" in wrong[name] else "attention"
        else:
            assert colours["list"] in WORDS, f"{name} is coloured as wrong, and the overview does not name it"
        assert len(set(colours.values())) == 1, (made[number], colours)


@settings(max_examples=5, deadline=None)
@given(st.lists(FLOWS, min_size=1, max_size=4))
def test_a_flow_has_one_colour_on_all_pages(made: list[Made]) -> None:
    assert_same_colour_everywhere(made)


@pytest.mark.matrix
@settings(max_examples=300, deadline=None)
@given(st.lists(FLOWS, min_size=1, max_size=6))
def test_a_flow_has_one_colour_on_all_pages_of_many_estates(made: list[Made]) -> None:
    assert_same_colour_everywhere(made)


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ((0, "ok", 900.0, True, None), "attention"),
        ((0, "ok", 900.0, True, 3600.0), "problem"),
        ((0, "ok", 900.0, False, 3600.0), "ok"),
        ((3, "ok", 900.0, True, None), "problem"),
        ((3, "ok", 30.0, True, None), "attention"),
    ],
    ids=["late", "late and overtaken", "no limit", "paused and late", "paused"],
)
def test_a_late_flow_is_amber_and_red_where_retention_overtakes_it(made: Made, shown: str) -> None:
    assert_same_colour_everywhere([made])
    view = estate_of([made])
    page = page_of(view, "/flows")
    assert listed_colour(page, name_of(0)) == shown
    assert f"1 of 1 flow: 1 {'ok' if shown == 'ok' else 'problem'}." in page
    own = page_of(view, f"/flow?id={quote(name_of(0), safe='')}")
    assert ("more than its max_lag of 10 min" in own) == (made[2] == 900.0 and made[3]), "its page says why"


def test_a_paused_flow_is_in_danger_by_what_looks_saw_where_nothing_was_sampled() -> None:
    """Its samples say nothing of time; the looks of the last hour saw the oldest record wait."""
    view = estate_of([(3, "ok", None, True, None)])
    assert view.look is not None
    late = replace(view.look.totals[name_of(0)], seconds=Amount(900.0, at_least=True))
    seen = view_of(replace(view.look, totals={name_of(0): late}))
    assert listed_colour(page_of(view, "/flows"), name_of(0)) == "attention"
    assert listed_colour(page_of(seen, "/flows"), name_of(0)) == "problem"
