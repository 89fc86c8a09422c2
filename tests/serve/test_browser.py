"""The page in a real browser: one script, nothing from elsewhere, no sideways scrolling, readable in both themes, usable by keyboard."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from mm2mgr.evidence.flow_load import MeasuredLoad
from mm2mgr.observe.failover_rows import ReadinessState, RehearsalState
from mm2mgr.operations.estate_view import PartState, RoundEnd
from mm2mgr.operations.failover_watch import FailoverRound, FailoverView, GroupLine, PairCheck
from mm2mgr.operations.size import FleetReport
from mm2mgr.output.page import page as page_of_loads
from mm2mgr.partitions import TopicPartition
from mm2mgr.problems.health import TaskState
from mm2mgr.serve.pages import flow_link
from mm2mgr.sizing.fleet import per_pair
from mm2mgr.sizing.scenario import FlowView, outcome
from tests.serve.estate import (
    CHROMIUM,
    SURVEY,
    flow_status,
    look_of,
    problem,
    rebalances_view,
    serving,
    view_of,
    watchdog_view,
)
from tests.serve.shop import shop
from tests.sizing.estates import MB, scenario

pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
try:
    import axe_playwright_python.sync_playwright as axe_module
except ModuleNotFoundError:
    axe_module = None
needs_axe = pytest.mark.skipif(axe_module is None, reason="the package axe-playwright-python is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
REPOSITORY = Path(__file__).resolve().parents[2]
SIZES = ((1280, 900), (400, 800))
# Every page of the estate of nine flows.
NINE = (
    *(
        "/",
        "/?view=matrix",
        "/flows",
        "/flows?q=us&health=problem&group=connect&sort=-lag",
        "/flows?q=nothing+like+this",
    ),
    *(flow_link("orders:us->hub"), flow_link("order"), "/workers", "/worker?connect=archive&id=archive-1:8083"),
    *("/traffic", "/losses", "/findings", "/changes", "/plan", "/watchdog", "/rebalance", "/failover", "/parts"),
)
HOSTILE = "<script>document.title='x'</script>" + "t" * 214
# The colours of what is read, over those of what is behind it, by the formula of WCAG.
CONTRAST = """() => {
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (c !== 'rgba(0, 0, 0, 0)') return c; } return 'rgb(255, 255, 255)'; };
  return Math.min(...[...document.querySelectorAll('a, b, small, p, li, th, td, h1, h2, .state')].map(e => { const [x, y] = [light(getComputedStyle(e).color), light(behind(e))].sort((m, n) => n - m); return (x + .05) / (y + .05); }));
}"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with 40 sources and 6 targets, hostile topics and connectors, measured load and a watchdog that acted."""
    flows, lags = [], {}
    for source in range(40):
        for target in range(6):
            name = f"orders:dc{source:02}->agg-{target}"
            word = ("problem", "unknown", "waiting", "ok")[min(3, (source * 7 + target) % 11)]
            trouble = (problem(name, HOSTILE),) if word == "problem" else ()
            tasks = tuple(TaskState(task, "RUNNING", "worker.example:8083", 4) for task in range(8))
            flows.append(flow_status(name, name.partition(":")[2], health=word, problems=trouble, tasks=tasks))
            lags[name] = {HOSTILE: 1000 * target}
    rates: dict[TopicPartition, tuple[float | None, float | None]] = {
        TopicPartition(HOSTILE, 0): (123_456_789.0, 98_765.0)
    }
    load = MeasuredLoad({f"dc{source:02}": rates for source in range(40)}, "2026-01-02T03 to 2026-01-02T03 (UTC, 1 h)")
    dog = watchdog_view(flows[1].flow, HOSTILE, HOSTILE)
    view = view_of(look_of(flows, lags, at=time.time()), survey=replace(SURVEY, load=load), watchdog=dog)
    with serving(lambda: view) as served:
        yield served


@pytest.mark.parametrize(
    "path", ["/", "/flows", flow_link("orders:dc00->agg-1"), "/losses", "/findings", "/changes", "/plan", "/watchdog"]
)
def test_a_page_fits_is_readable_and_loads_nothing_else(browser: Any, url: str, path: str) -> None:
    """It is loaded once, and then looked at in both widths and both themes: loading is what takes the time."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    asked, said = list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto(url + path)
    assert re.fullmatch(r"\(\d+\) mm2mgr: .+", page.title())
    for (width, height), theme in product(SIZES, ("light", "dark")):
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=theme)
        look = f"{width} {theme}"
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{look}: only tables scroll sideways"
        assert page.evaluate(CONTRAST) >= 4.5, look
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(20, 24, 29)") == (theme == "dark"), look
    loaded = [one.partition("?")[0] for one in asked]
    assert loaded[:1] == [(url + path).partition("?")[0]]
    assert all(one.startswith(f"{url}/static/") for one in loaded[1:])
    assert said == [], "no policy was violated"
    page.close()


@pytest.fixture(scope="module")
def nine() -> Iterator[str]:
    """A server with nine flows, one of each trouble, and everything else that has a page."""
    now = time.time()
    state = ReadinessState("eu->hub", now, "NO-GO", "1 group (app): would skip records", 7, 1, 40, 3, 20, 5.0, now, now)
    check = PairCheck(state.pair, now, "NO-GO", ("x",), (GroupLine("app", "NO-GO", "skips", 1, 1, now),), 1, ("y",))
    view = shop(now)
    assert view.look is not None
    rehearsals = {state.pair: RehearsalState(state.pair, now, "not good", "billing: not read", 7, now - 864_000, 42.0)}
    status = replace(view.look.status, failover={state.pair: state}, rehearsals=rehearsals)
    view = replace(
        view,
        look=replace(view.look, status=status),
        watchdog=watchdog_view("orders:us->hub", "mm2", "no leader"),
        rebalances=rebalances_view("orders:us->hub", "rounds", "the limit is 1"),
        failover=FailoverView().after_round(FailoverRound(1, now, (check,), warnings=("z",))),
        parts={
            "watch": PartState(10.0, True).after_round(RoundEnd(HOSTILE, ("main",), ("main",)), {"hub": HOSTILE}, now)
        },
    )
    with serving(lambda: view) as served:
        yield served


EVERY_LOOK = [(width, theme) for width in (1280, 768, 400) for theme in ("light", "dark")]


def violations(page: Any, looks: Sequence[tuple[int, str]] = EVERY_LOOK) -> list[str]:
    """Run axe, every rule, at these widths and themes; return what it objects to, and pages that scroll sideways."""
    found = list[str]()
    page.evaluate("document.querySelectorAll('details').forEach(folded => folded.open = true)")
    page.evaluate(axe_module.Axe().axe_script)
    for width, theme in looks:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        rules = page.evaluate("axe.run({resultTypes: ['violations']}).then(result => result.violations)")
        found += [f"{width} {theme}: {rule['id']}: {node['html'][:200]}" for rule in rules for node in rule["nodes"]]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append(f"{width} {theme}: scrolls sideways")
    return found


@pytest.fixture(scope="module")
def tab(browser: Any) -> Iterator[Any]:
    """One page for all that are only read."""
    page = browser.new_page()
    yield page
    page.close()


@needs_axe
@pytest.mark.parametrize(
    "looks",
    [
        pytest.param([(1280, "light"), (768, "dark"), (400, "light")], id="sample"),
        pytest.param(EVERY_LOOK, id="all", marks=pytest.mark.matrix),
    ],
)
@pytest.mark.parametrize("path", NINE)
def test_a_page_has_no_barrier_at_any_width_in_both_themes(
    tab: Any, nine: str, path: str, looks: Sequence[tuple[int, str]]
) -> None:
    tab.goto(nine + path)
    assert violations(tab, looks) == []


@needs_axe
@pytest.mark.matrix
@pytest.mark.parametrize("path", ["/", "/?view=matrix", "/flows?group=source", "/workers"])
def test_a_large_estate_has_no_barrier_either(tab: Any, url: str, path: str) -> None:
    tab.goto(url + path)
    assert violations(tab, [(1280, "light"), (400, "dark")]) == []


WIDE = """() => [...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth)
  .map(e => e.getAttribute('aria-label'))"""


@pytest.mark.parametrize("path", NINE)
def test_no_table_scrolls_sideways_on_a_laptop(tab: Any, nine: str, path: str) -> None:
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.goto(nine + path)
    assert tab.evaluate(WIDE) == []


def test_no_table_of_long_links_scrolls_sideways_on_a_laptop(tab: Any, tmp_path: Path) -> None:
    page = tmp_path / "link.html"
    order = ("link", "explain", "logging", "--page", str(page))
    subprocess.run((sys.executable, "-m", "mm2mgr", *order), cwd=REPOSITORY, check=True, capture_output=True)
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.goto(page.as_uri())
    assert page.read_text().count('class="wide"') > 5
    assert tab.evaluate(WIDE) == []


@needs_axe
def test_the_pages_of_size_and_fleet_have_no_barrier(tab: Any, tmp_path: Path) -> None:
    flow = scenario("logs", {"t": 9 * MB}, lambda topic: True)
    sizing = outcome([flow], {}).sizings[flow.flow_id]
    week = (tuple(float(hour) for hour in range(24)), *[(None,) * 24] * 6)
    flows = [
        FlowView(
            replace(sizing, flow_id=f"logs:dc{number}->agg"),
            (9e6,),
            (5e6, 4e6),
            (("t-0", 9e6),),
            week,
            f"w{number % 2}",
        )
        for number in range(2)
    ]
    for name, text in (
        ("size", page_of_loads(flows)),
        ("fleet", page_of_loads(flows, FleetReport({}, per_pair([]), {}, ""))),
    ):
        (tmp_path / f"{name}.html").write_text(text)
        tab.goto((tmp_path / f"{name}.html").as_uri())
        assert violations(tab, [(1280, "light"), (400, "dark")]) == [], name


def test_no_name_of_any_length_makes_a_page_scroll_sideways(tab: Any) -> None:
    names = [f"{number}{HOSTILE[1:]}" for number in range(4)]
    flow, source, target, connect = names
    tasks = (TaskState(0, "FAILED", f"{HOSTILE}:8083", 1),)
    status = flow_status(f"{flow}:{source}->{target}", f"{source}->{target}", connect=connect, tasks=tasks)
    look = look_of([status], {status.flow: {HOSTILE: 1}}, at=time.time())
    view = view_of(look, survey=SURVEY, owner=HOSTILE, tree=HOSTILE, host=HOSTILE)
    paths = ("/", "/?view=matrix", "/flows?group=pair", flow_link(status.flow), "/workers", "/traffic", "/parts",
             f"/worker?{urlencode({'connect': connect, 'id': f'{HOSTILE}:8083'})}", flow_link(HOSTILE))  # fmt: skip
    with serving(lambda: view) as served:
        for path in paths:
            tab.goto(served + path)
            for width in (1280, 400):
                tab.set_viewport_size({"width": width, "height": 900})
                assert tab.evaluate("document.documentElement.scrollWidth") <= width, path
            assert tab.title() != "x"


def test_the_list_of_flows_follows_what_is_typed_and_so_does_its_address(browser: Any, nine: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    said = list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.goto(f"{nine}/flows?group=connect")
    page.locator(".find [name=q]").press_sequentially("US orders")
    page.wait_for_url("**q=US+orders**")
    assert page.locator("#found [role=status]").inner_text() == "1 of 9 flows: 1 problem."
    page.locator(".find [name=health]").select_option("problem")
    page.wait_for_url("**health=problem**")
    assert page.url == f"{nine}/flows?q=US+orders&health=problem&group=connect"
    page.get_by_role("link", name="Remove the filter search: US orders").click()
    page.wait_for_url(f"{nine}/flows?health=problem&group=connect")
    assert page.locator("#found [role=status]").inner_text() == "5 of 9 flows: 5 problem."
    page.locator(".find [name=q]").focus()
    page.keyboard.type("hub")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=hub**")
    assert said == [], "no policy was violated"
    page.close()


def test_names_in_the_picture_are_drawn_beside_each_other_in_full(tab: Any, nine: str, url: str) -> None:
    """As Chromium draws them: no name overlaps another one or leaves the picture."""
    for served in (nine, url):
        tab.set_viewport_size({"width": 1280, "height": 900})
        tab.goto(served)
        boxes = tab.evaluate(
            "[document.querySelector('svg.estate'), ...document.querySelectorAll('.estate text')]"
            ".map(e => e.getBoundingClientRect()).map(r => [r.left, r.top, r.right, r.bottom])"
        )
        (left, top, right, bottom), *names = boxes
        assert len(names) > 5
        assert all(
            left <= name[0] and top - 3 <= name[1] and name[2] <= right and name[3] <= bottom + 3 for name in names
        )
        over = [
            (a, b)
            for a, b in combinations(names, 2)
            if min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) - max(a[1], b[1]) > 3
        ]
        assert over == []


def test_the_matrix_is_a_table_that_a_keyboard_reaches(browser: Any, url: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{url}/?view=matrix")
    matrix = page.locator("table.matrix")
    assert matrix.get_by_role("columnheader").count() == 7
    assert matrix.get_by_role("rowheader").count() == 40
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.column || ''"):
            break
    assert page.evaluate("document.activeElement.dataset.column") == "agg-0"
    page.keyboard.press("Enter")
    page.wait_for_url("**/flow?id=*")
    assert "orders:dc00->agg-0" in page.get_by_role("heading", level=1).inner_text()
    page.close()


@pytest.mark.parametrize("path", ["/", "/?view=matrix"])
def test_the_overview_of_240_pairs_is_light_enough_to_be_painted_at_once(browser: Any, url: str, path: str) -> None:
    """The first answer holds every pair and nothing that delays it; `benchmarks/serve_page.py` measures the paint itself."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, java_script_enabled=False)
    answer = page.goto(f"{url}{path}")
    assert page.locator("td [data-column], .estate path").count() >= (240 if "matrix" in path else 46)
    assert page.locator("script:not([defer]), link[rel=stylesheet], img").count() == 0
    assert page.locator("*").count() < 10 * 240
    assert len(answer.body()) < 500 * 240
    page.close()
