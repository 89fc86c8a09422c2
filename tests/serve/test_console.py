"""What the page does in a real browser: the worst problem on the first screen, live loads, a pause, keys and commands."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mm2mgr.evidence.traffic import TrafficHistory
from mm2mgr.operations.estate_view import EstateView
from mm2mgr.problems.health import FlowStatus
from mm2mgr.problems.kind import ProblemSubject
from mm2mgr.serve.pages import flow_link
from tests.observe.examples import example_problem
from tests.serve.estate import (
    CHROMIUM,
    SURVEY,
    flow_status,
    flow_traffic,
    look_of,
    serving,
    view_of,
)
from tests.serve.shop import shop

pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
WIDTHS = (1280, 768, 400)
BOTTOMS = """() => { const row = document.querySelector('.entry');
  return [...['.what', '.command', '.say'].map(name => row.querySelector(name)), row.parentElement].map(e => e.getBoundingClientRect().bottom); }"""


def many_problems() -> EstateView:
    """Return the view of 40 sources and 6 targets with a dozen kinds of problems in some two hundred flows."""
    kinds = ("records-lost", "task-failed", "no-progress", "no-task", "config-differs", "overlap", "arrives-twice",
             "not-audited", "often-interrupted", "slower-than-production", "state-differs", "not-applied")  # fmt: skip

    def flow(number: int) -> FlowStatus:
        pair = f"dc{number % 40:02}->agg-{number // 40}"
        found = example_problem(kinds[number % 12], ProblemSubject("main", f"mm2.{number}", f"orders:{pair}"))
        problems = (found,) if number % 7 else ()
        return flow_status(f"orders:{pair}", pair, health="problem" if problems else "ok", problems=problems)

    return view_of(look_of([flow(number) for number in range(240)], at=time.time()), survey=SURVEY)


@pytest.fixture(scope="module")
def shown() -> dict[str, EstateView]:
    """The view that the server has now."""
    return {"view": shop(time.time())}


@pytest.fixture(scope="module")
def url(shown: dict[str, EstateView]) -> Iterator[str]:
    with serving(lambda: shown["view"]) as served:
        yield served


@pytest.fixture
def page(browser: Any, shown: dict[str, EstateView]) -> Iterator[Any]:
    shown["view"] = shop(time.time())
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    opened = context.new_page()
    trouble = list[str]()
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.on("console", lambda message: trouble.append(message.text) if "Content Security" in message.text else None)
    yield opened
    context.close()
    assert trouble == []


def load_soon(page: Any) -> None:
    """Let the script's clock run until it has loaded the page again."""
    page.clock.run_for(31_000)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("many", [False, True], ids=["9 flows", "40 x 6"])
def test_the_worst_problem_and_its_command_stand_in_the_first_400_pixels(
    browser: Any, url: str, shown: dict[str, EstateView], width: int, many: bool
) -> None:
    shown["view"] = many_problems() if many else shop(time.time())
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(url)
    what, command, sentence, list_end = page.evaluate(BOTTOMS)
    assert max(what, command, sentence) <= 400, "in the first 400 pixels"
    if width == WIDTHS[0]:
        assert list_end <= 900, "what is wrong needs no scrolling"
    assert "loss" in page.locator(".entry .state").first.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_a_live_page_changes_and_keeps_what_a_person_opened_and_where_they_are(
    page: Any, url: str, shown: dict[str, EstateView]
) -> None:
    page.clock.install()
    page.goto(url)
    failed = page.locator(".entry").nth(1).locator("details")
    failed.locator("summary").click()
    page.evaluate("window.scrollTo(0, 120)")
    link = page.locator(".entry a").first
    link.evaluate("element => element.focus({preventScroll: true})")
    look = shown["view"].look
    assert look
    status = replace(look.status, flows=tuple(flow for flow in look.status.flows if flow.flow != "clicks:us->hub"))
    shown["view"] = replace(shown["view"], look=replace(look, status=status))
    load_soon(page)
    page.get_by_text("5 problems").wait_for(timeout=5000)
    assert page.title() == "(5) mm2mgr: overview"
    assert failed.get_attribute("open") is not None, "what was opened stays open"
    assert failed.get_by_text("they do not recover by themselves").is_visible()
    assert page.evaluate("document.activeElement.textContent") == "logs:eu->archive"
    assert page.evaluate("window.scrollY") == 120


def test_a_pause_is_in_the_address_and_the_links_and_ends(page: Any, url: str, shown: dict[str, EstateView]) -> None:
    page.clock.install()
    page.goto(url)
    page.get_by_role("button", name="Pause").click()
    assert page.url.endswith("/?live=off")
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(120_000)
    assert [address for address in asked if "/static/" not in address] == [], "a page that is paused loads nothing"
    page.get_by_role("link", name="Losses").click()
    page.wait_for_url("**/losses?live=off")
    page.get_by_role("button", name="Live").click()
    assert page.url.endswith("/losses")
    with page.expect_request("**/losses"):
        load_soon(page)


def test_a_selection_is_not_taken_away(page: Any, url: str) -> None:
    page.clock.install()
    page.goto(url)
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.say'))")
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    load_soon(page)
    assert asked == []
    page.evaluate("getSelection().removeAllRanges()")
    with page.expect_request(f"{url}/"):
        page.clock.run_for(2_000)


def test_a_server_that_is_gone_is_said_and_what_is_shown_is_grey(page: Any, url: str) -> None:
    page.clock.install()
    page.goto(url)
    page.route("**/*", lambda route: route.abort())
    load_soon(page)
    page.get_by_text(re.compile("No answer since .* UTC")).wait_for(timeout=5000)
    assert page.evaluate("document.getElementById('main').className") == "stale"
    page.unroute("**/*")
    load_soon(page)
    page.locator("#answer").wait_for(state="hidden", timeout=5000)
    assert page.evaluate("document.getElementById('main').className") == ""


def test_live_loads_are_no_visit(page: Any, url: str) -> None:
    page.clock.install()
    page.goto(url)
    (before,) = page.context.cookies()
    assert (before["name"], before["httpOnly"], before["sameSite"]) == (
        f"mm2mgr_visit_{url.rpartition(':')[2]}",
        True,
        "Strict",
    ), "another port is another estate"
    with page.expect_response(f"{url}/") as answered:
        load_soon(page)
    assert "set-cookie" not in answered.value.headers
    assert page.context.cookies() == [before]


def test_a_slash_searches_and_a_button_copies_the_command(page: Any, url: str) -> None:
    page.goto(url)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("a/b")
    assert page.evaluate("document.activeElement.value") == "a/b"
    page.locator("button.copy").first.click()
    page.get_by_role("button", name="Copied").or_(page.get_by_text("Copied")).first.wait_for(timeout=5000)
    assert page.evaluate("navigator.clipboard.readText()") == "mm2mgr losses 'logs:eu->archive'"
    page.get_by_role("status").get_by_text("Copied: mm2mgr losses 'logs:eu->archive'").wait_for(timeout=5000)
    page.locator("#q").press("Enter")
    page.wait_for_url("**/flows?q=a%2Fb")


def test_without_script_the_page_is_whole(browser: Any, url: str, shown: dict[str, EstateView]) -> None:
    shown["view"] = shop(time.time())
    page = browser.new_page(java_script_enabled=False)
    page.goto(f"{url}/?refresh=60")
    assert page.locator(".entry").count() == 6
    assert page.locator("#pause").is_hidden()
    assert "The page loads again every 60 s." in page.locator("main noscript").inner_text()
    assert page.locator("noscript meta").get_attribute("content") == "60; url=/?refresh=60&again=1"
    page.get_by_role("link", name="Do not load it again").click()
    assert page.url == f"{url}/?live=off"
    assert page.locator("noscript meta").count() == 0
    page.goto(f"{url}/flows?q=dc1")
    page.get_by_role("link", name="Load the page again every 30 s").click()
    assert page.url == f"{url}/flows?q=dc1&refresh=30"
    page.close()


def test_searches_and_links_in_new_tabs_keep_a_pause_and_the_interval(page: Any, url: str) -> None:
    page.goto(f"{url}/?refresh=60")
    page.get_by_role("button", name="Pause").click()
    assert page.url == f"{url}/?refresh=60&live=off"
    assert page.locator("nav a", has_text="Losses").get_attribute("href") == "/losses?live=off&refresh=60"
    page.locator("#q").fill("dc1")
    page.locator("#q").press("Enter")
    page.wait_for_url("**/flows?q=dc1&live=off&refresh=60")
    page.get_by_role("button", name="Live").click()
    page.locator(".find [name=q]").fill("dc2")
    page.wait_for_url("**/flows?q=dc2&refresh=60")
    assert page.locator("#pause").get_attribute("title") == "Loads again every 60 s"


def test_the_title_of_a_hidden_tab_counts_on(page: Any, url: str, shown: dict[str, EstateView]) -> None:
    page.clock.install()
    page.goto(url)
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true})")
    shown["view"] = replace(shown["view"], look=look_of([flow_status("orders:a->b", "a->b")], at=time.time()))
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(50_000)
    assert asked == [], "once a minute is enough for what nobody sees"
    page.clock.run_for(12_000)
    page.locator("h1", has_text="Nothing is wrong").wait_for(timeout=5000)
    assert page.title() == "mm2mgr: overview"


def test_a_page_that_has_not_loaded_for_long_is_grey_and_says_so_until_it_loads(page: Any, url: str) -> None:
    page.clock.install()
    page.goto(url)
    page.get_by_role("button", name="Pause").click()
    page.clock.run_for(120_000)
    assert page.locator("main.stale").count() == 0, "it may be read for a while"
    page.clock.run_for(200_000)
    page.get_by_text(re.compile("Not loaded since .* UTC: what is shown is older")).wait_for(timeout=5000)
    assert page.locator("main.stale").count() == 1
    page.get_by_role("button", name="Live").click()
    page.clock.run_for(2_000)
    page.locator("#answer").wait_for(state="hidden", timeout=5000)
    assert page.locator("main.stale").count() == 0


def test_a_warning_is_read_aloud_once_and_the_head_is_new_with_each_load(
    page: Any, url: str, shown: dict[str, EstateView]
) -> None:
    shown["view"] = replace(shown["view"], error="no broker answered")
    page.clock.install()
    page.goto(url)
    assert page.locator("main [role=alert]").count() == 1
    shown["view"] = replace(shown["view"], commit="0123456789ab")
    load_soon(page)
    page.locator("#who", has_text="0123456789ab").wait_for(timeout=5000)
    assert page.locator("main .warn").inner_text() == "The last look failed: no broker answered"
    assert page.locator("main [role=alert]").count() == 0
    shown["view"] = replace(shown["view"], error="another one")
    load_soon(page)
    page.locator("main [role=alert]", has_text="another one").wait_for(timeout=5000)


def test_keys_search_where_a_person_is_and_leave_again(page: Any, url: str) -> None:
    page.goto(f"{url}/flows?health=problem")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.closest('.find') !== null"), "the filters stay"
    page.keyboard.type("x")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.tagName") == "BODY"


def test_paper_has_no_buttons(page: Any, url: str) -> None:
    page.goto(url)
    page.emulate_media(media="print")
    assert page.locator(".entry .command").first.is_visible()
    assert not any(page.locator(name).first.is_visible() for name in ("nav", "#pause", "#q", ".copy"))


@pytest.mark.parametrize("width", [400, 640])
@pytest.mark.parametrize(("path", "label"), [("/flows", "Flows"), ("/", "Traffic by pair")])
def test_rates_are_seen_without_scrolling_sideways_and_the_head_is_two_rows(
    page: Any, url: str, path: str, label: str, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(url + path)
    region = f".wide[aria-label='{label}']"
    assert page.evaluate(f'(e => e.scrollWidth - e.clientWidth)(document.querySelector("{region}"))') == 0
    assert page.locator(f"{region} th").get_by_text("records/s").is_visible()
    looked, form = (page.locator(name).bounding_box() for name in ("#looked", ".top form"))
    assert abs((looked["y"] + looked["height"] / 2) - (form["y"] + form["height"] / 2)) < 4, (
        "they are beside each other"
    )


def test_labels_of_the_largest_rates_are_whole(page: Any, url: str, shown: dict[str, EstateView]) -> None:
    """A flow of 10¹¹ records and up to 10²⁴ bytes per second: nothing of a chart begins before its left edge."""
    view = shown["view"]
    flow = view.look.status.flows[0].flow if view.look else ""
    for record_bytes in (1.5e4, 1e13):
        past = flow_traffic(time.time(), 1e11, 10**15, record_bytes)
        history = TrafficHistory({flow: past})
        shown["view"] = replace(view, survey=replace(SURVEY, traffic=history))
        page.goto(f"{url}{flow_link(flow)}&range=24h")
        lefts = page.evaluate("[...document.querySelectorAll('.chart text')].map(t => t.getBBox().x)")
        assert len(lefts) > 20
        assert min(lefts) >= 0
