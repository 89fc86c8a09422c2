"""The page in a real browser: one script, nothing from elsewhere, no sideways scrolling, readable in both themes, usable by keyboard."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mm2mgr.evidence.flow_load import MeasuredLoad
from mm2mgr.partitions import TopicPartition
from mm2mgr.problems.health import TaskState
from mm2mgr.serve.pages import flow_link
from tests.serve.estate import CHROMIUM, SURVEY, flow_status, look_of, problem, serving, view_of, watchdog_view

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
SIZES = ((1280, 900), (400, 800))
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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=["1280", "400"])
@pytest.mark.parametrize(
    "path", ["/", "/flows", flow_link("orders:dc00->agg-1"), "/losses", "/findings", "/changes", "/plan", "/watchdog"]
)
def test_a_page_fits_is_readable_and_loads_nothing_else(
    browser: Any, url: str, path: str, size: tuple[int, int], theme: str
) -> None:
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
    asked, said = list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto(url + path)
    loaded = [one.partition("?")[0] for one in asked if not one.endswith("/favicon.ico")]
    assert loaded[:1] == [(url + path).partition("?")[0]]
    assert all(one.startswith(f"{url}/static/") for one in loaded[1:])
    assert [one for one in said if "favicon" not in one] == [], "no policy was violated"
    assert re.fullmatch(r"\(\d+\) mm2mgr: .+", page.title())
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0], "nothing scrolls sideways but tables"
    assert page.evaluate(CONTRAST) >= 4.5
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(20, 24, 29)") == (theme == "dark")
    page.close()


def test_the_matrix_is_a_table_that_a_keyboard_reaches(browser: Any, url: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(url)
    assert page.get_by_role("columnheader").count() == 7
    assert page.get_by_role("rowheader").count() == 40
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


def test_the_overview_of_240_pairs_is_light_enough_to_be_painted_at_once(browser: Any, url: str) -> None:
    """The first answer holds every pair and nothing that delays it; `benchmarks/serve_page.py` measures the paint itself."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, java_script_enabled=False)
    answer = page.goto(url)
    assert page.locator("td [data-column]").count() == 240
    assert page.locator("script:not([defer]), link[rel=stylesheet], img").count() == 0
    assert page.locator("*").count() < 10 * 240
    assert len(answer.body()) < 500 * 240
    page.close()
