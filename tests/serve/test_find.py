"""Finding: the list of flows as its address says, the nearest ids, the picture of the estate, and workers."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr import timing
from mm2mgr.assignment_text import PLUGIN_CLASS
from mm2mgr.operations.estate_view import EstateView
from mm2mgr.operations.estate_workers import SeenWorker, SeenWorkers, estate_workers
from mm2mgr.operations.workspace import Workspace
from mm2mgr.serve.app import application
from mm2mgr.serve.pages import flow_link
from mm2mgr.serve.pages.flow_list import FlowQuery, flow_list, flows_link, nearest_flows
from mm2mgr.serve.pages.picture import picture
from mm2mgr.serve.pages.workers import worker_link
from tests.clock import ShownClock
from tests.fake_connect import FakeConnect
from tests.fake_connect import serving as serving_connect
from tests.serve.estate import NOW, ask_application, flow_status, look_of, view_of
from tests.serve.shop import shop

SHOP = shop(NOW)


def ask(path: str, view: EstateView = SHOP) -> httpx.Response:
    with timing.use(ShownClock(lambda: NOW + 5)):
        return ask_application(application(lambda: view, clock=lambda: NOW + 5), path)


def listed(path: str, view: EstateView = SHOP) -> list[str]:
    """Return the flows of a list, in order."""
    part = ask(path, view).text.partition('id="found"')[2]
    return [html.unescape(name) for name in re.findall(r'<td class="name"><a href="/flow\?[^"]*">([^<]+)</a>', part)]


# --- the list of flows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "flows"),
    [
        ("q=payments", {"payments:us->hub", "payments:eu->hub"}),
        ("q=PAY+us", {"payments:us->hub"}),
        ("q=edge", {"metrics:edge->hub"}),
        ("q=nothing", set()),
        ("health=waiting", set()),
        ("health=unknown", {"metrics:edge->hub"}),
        ("source=eu&target=archive", {"logs:eu->archive"}),
        ("connect=archive", {"logs:eu->archive", "logs:us->archive"}),
        ("label=tier%3Dedge", {"metrics:edge->hub"}),
        ("label=region%3Deu&health=problem", {"logs:eu->archive"}),
        ("owner=shop&source=edge", {"metrics:edge->hub"}),
        ("owner=bob", set()),
        ("health=wonderful", set()),
    ],
)
def test_flows_are_searched_and_filtered_by_the_address(query: str, flows: set[str]) -> None:
    found = listed(f"/flows?{query}")
    assert set(found) == flows
    assert f"{len(flows)} of 9 flows" in ask(f"/flows?{query}").text


def test_a_flow_is_found_by_a_topic_which_is_named() -> None:
    names = ["app:a->b", "other:a->b"]
    lags = {names[0]: {"app.orders.v1": 1, "app.clicks": 0}, names[1]: {"x": 0}}
    view = view_of(look_of([flow_status(name, "a->b") for name in names], lags))
    assert listed("/flows?q=orders.v1", view) == ["app:a->b"]
    assert '<small class="note">app.orders.v1</small>' in ask("/flows?q=orders.v1", view).text


@pytest.mark.parametrize(
    ("sort", "first", "last"),
    [
        ("", "logs:eu->archive", "payments:eu->hub"),
        ("flow", "clicks:eu->hub", "payments:us->hub"),
        ("-flow", "payments:us->hub", "clicks:eu->hub"),
        ("-lag", "orders:us->hub", "metrics:edge->hub"),
        ("-rate", "clicks:eu->hub", "metrics:edge->hub"),
        ("rate", "orders:us->hub", "metrics:edge->hub"),
        ("-problems", "logs:eu->archive", "payments:eu->hub"),
        ("connect", "logs:eu->archive", "payments:eu->hub"),
        ("no-column", "logs:eu->archive", "payments:eu->hub"),
    ],
)
def test_any_column_sorts_and_what_is_unknown_comes_last(sort: str, first: str, last: str) -> None:
    found = listed(f"/flows?sort={sort}")
    assert (found[0], found[-1], len(found)) == (first, last, 9)


def test_a_heading_links_to_the_other_order_and_says_which_one_is_shown() -> None:
    text = ask("/flows?sort=-lag&health=problem").text
    assert re.search(r'aria-sort="descending"><a href="/flows\?health=problem&amp;sort=lag">lag', text)
    assert '<a href="/flows?health=problem&amp;sort=-rate">' in text, "the largest first"
    assert text.count("aria-sort=") == 1


def test_groups_have_their_counts() -> None:
    text = html.unescape(ask("/flows?group=connect").text)
    assert re.findall(r'scope="rowgroup"[^>]*>([^<]+)<', text) == [
        "archive: 2 flows (2 problem)",
        "edge: 1 flow (1 unknown)",
        "main: 6 flows (3 problem, 3 ok)",
    ]
    assert len(re.findall(r"<tbody>", text)) == 3
    assert 'scope="rowgroup"' not in ask("/flows?group=colour").text


def test_filters_are_chips_with_links_that_remove_them() -> None:
    text = html.unescape(ask("/flows?q=us&health=problem&refresh=30").text)
    chips = re.findall(r'<a href="([^"]*)" aria-label="Remove the filter ([^"]*)"', text)
    assert chips == [
        ("/flows?health=problem&refresh=30", "search: us"),
        ("/flows?q=us&refresh=30", "health: problem"),
    ]
    assert '<input type="hidden" name="refresh" value="30">' in text, "the form keeps the pace"
    assert '<option value="problem" selected>problem (4)</option>' in text


def test_values_say_how_many_flows_they_would_leave() -> None:
    text = html.unescape(ask("/flows?connect=main").text)
    assert '<option value="problem">problem (3)</option>' in text
    assert '<option value="archive">archive (2)</option>' in text, "those of another value of the same filter"
    assert 'name="owner"' not in text, "one owner is no choice"
    assert 'name="owner"' in ask("/flows?owner=bob").text


def test_more_than_two_hundred_flows_are_on_pages() -> None:
    names = [f"f{number:03}:a->b" for number in range(450)]
    view = view_of(look_of([flow_status(name, "a->b") for name in names]))
    assert listed("/flows", view) == names[:200]
    assert listed("/flows?page=3", view) == names[400:]
    assert listed("/flows?page=99", view) == names[400:]
    assert listed("/flows?page=-1", view) == listed("/flows?page=x", view) == names[:200]
    text = html.unescape(ask("/flows?page=2&sort=-flow", view).text)
    assert '<a href="/flows?sort=-flow&page=2" aria-current="page">2</a>' in text
    assert "450 of 450 flows" in text


@given(
    st.dictionaries(
        st.sampled_from(["q", "health", "source", "label", "owner", "sort", "group", "page", "refresh", "x"]),
        st.text(max_size=12),
    )
)
def test_an_address_made_of_a_query_is_the_same_query(parameters: dict[str, str]) -> None:
    query = FlowQuery.from_parameters(parameters)
    again = httpx.URL(query.address(page=query.page)).params
    assert FlowQuery.from_parameters(again) == query
    flow_list(SHOP, parameters)


# --- the nearest ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "first"),
    [("order:eu->hub", "orders:eu->hub"), ("payments", "payments:eu->hub"), ("ORDERS:US->HUB", "orders:us->hub")],
)
def test_an_unknown_flow_suggests_the_nearest(asked: str, first: str) -> None:
    page = ask(flow_link(asked))
    assert page.status_code == 404
    near = re.findall(r'<li><a href="(/flow\?[^"]*)">', page.text.partition("<main")[2])
    assert near[0] == flow_link(first)
    answer = ask(f"/api/flow?id={asked}")
    assert (answer.status_code, answer.json()["nearest"][0]) == (404, first)


def test_nothing_is_near_what_is_like_nothing() -> None:
    assert nearest_flows(SHOP, "") == nearest_flows(SHOP, "zzzzzzzz") == []
    assert ask("/flow").status_code == 404
    long = "x" * 5000
    said = ask(flow_link(long)).text.partition("<noscript>")[0]  # whose link loads this address again
    assert said.count("x") < 1500, "what was asked for is cut"


# --- the picture ------------------------------------------------------------------------------------------------------


def test_the_picture_has_every_cluster_and_what_flows_between_them() -> None:
    text = html.unescape(ask("/").text)
    titles = re.findall(r"<title>([^<]+)</title>", text.partition("<svg")[2])
    assert "eu to main: 6.34 k records/s, 3 flows, ok" in titles
    of_us = [title for title in titles if title.startswith("us to main: ")]
    assert of_us == ["us to main: 3.1 k records/s, 2 flows, problem", "us to main: 0 records/s, 1 flow, problem"]
    red = text.index('<path class="problem"', text.index(of_us[0]) - 2000)
    assert '<path class="attention"' in text, "paused and drift are amber, as in the list of what is wrong"
    assert red
    assert "edge to edge: unknown, 1 flow, unknown" in titles
    assert "target hub: at least 9.44 k records/s, 7 flows, problem" in titles
    assert '<a href="/flows?source=eu&connect=main" tabindex="-1"><path class="ok"' in text
    assert '<a href="/flows?target=hub"><title>' in text
    assert 'stroke-dasharray="4 3"' in text, "what is unknown is dashed"
    assert "the more records per second" in text


def test_the_numbers_of_the_picture_are_a_table_with_the_worst_first() -> None:
    shown = picture(NOW, SHOP)
    assert shown is not None
    rows = shown["numbers"].rows  # type: ignore[attr-defined]
    assert rows[0] == ("eu", "archive", "archive", "1", "1.4 k records/s", "problem")
    assert [row[-1] for row in rows] == ["problem", "problem", "problem", "unknown", "ok"]


def test_bytes_are_drawn_where_they_are_known() -> None:
    assert SHOP.survey is not None
    moves = SHOP.throughput
    view = replace(SHOP)
    known = {flow: replace(move, mirrored_bytes_per_second=1e6) for flow, move in moves.items()}
    view.__dict__["throughput"] = known
    shown = picture(NOW, view)
    assert shown is not None
    assert shown["unit"] == "bytes per second"
    assert "eu to main: 3 MB/s, 3 flows, ok" in str(shown["drawn"])


def test_the_matrix_folds_what_is_well_on_narrow_screens() -> None:
    text = ask("/?view=matrix").text
    assert 'class="matrix folded"' in text
    assert "Pairs that are ok and not shown on this narrow screen: 1." in text
    assert len(re.findall(r'<td role="cell" class="well">', text)) == 1
    whole = ask("/?view=matrix&pairs=all").text
    assert 'class="matrix"' in whole
    assert "not shown on this narrow screen" not in whole


def test_without_flows_there_is_no_picture() -> None:
    assert picture(NOW, EstateView(NOW, 30.0)) is None
    assert picture(NOW, view_of(look_of([]))) is None
    assert ask("/", view_of(look_of([]))).status_code == 200


# --- workers ----------------------------------------------------------------------------------------------------------


def test_workers_are_shown_by_connect_cluster_with_what_is_needed() -> None:
    text = html.unescape(re.sub(r"<[^>]+>", " ", ask("/workers").text.partition("<main")[2]))
    text = re.sub(r"\s+", " ", text)
    for words in (
        "3 workers known, 3 with tasks, 3 declared, 3 needed by the load of the last four weeks; none to spare.",
        "When a worker is lost, the others cannot carry all tasks.",
        "Its workers run different versions of Kafka: 4.0.0, 4.1.0.",
        "mm2mgr's plugin differs: 1, 2.",
        "2 workers known, 2 with tasks, 1 needed by the load of the last four weeks; 1 to spare.",
        "Workers without a task may be missing here: their group could not be read: not authorized.",
        "Its workers could not be asked: http://edge-1:8083: connection refused",
        "1 worker too few for its load.",
        "archive-2:8083 ✓ answers 4.0.0 1 1 of 10 0 1 RUNNING 560 kB/s",
        "edge-1:8083 ✕ no answer unknown unknown 1 of 10 0 1 last known RUNNING 42 kB/s",
    ):
        assert words in text, words


def test_a_worker_has_its_tasks_with_links_to_their_flows() -> None:
    page = ask(worker_link("main", "main-1:8083"))
    text = html.unescape(page.text)
    assert page.status_code == 200
    assert f'<a href="{flow_link("orders:eu->hub")}">orders:eu->hub</a>' in text
    assert "630 kB/s" in text
    assert "mm2.eu.hub.checkpoint" in text, "tasks beside flows too"
    assert f'<td class="name">{PLUGIN_CLASS}</td><td class="name">2</td>' in text
    assert worker_link("main", "main-2:8083") in text


@pytest.mark.parametrize("path", [worker_link("main", "main-9:8083"), worker_link("none", "main-1:8083"), "/worker"])
def test_an_unknown_worker_is_not_found(path: str) -> None:
    page = ask(path)
    assert page.status_code == 404
    assert ("/worker?connect=main" in page.text.partition("<main")[2]) == ("?" in path)


def test_workers_are_known_before_they_are_asked_and_without_tasks() -> None:
    view = view_of(look_of([flow_status("orders:a->b", "a->b")]))
    assert "worker:8083" in ask("/workers", view).text
    assert "not asked" in ask("/workers", view).text
    assert ask("/workers", EstateView(NOW, 30.0)).status_code == 200
    idle = SeenWorkers((SeenWorker("idle:8083", "4.1.0"),), 2, 10)
    assert SHOP.survey is not None
    view = replace(view, survey=replace(SHOP.survey, workers={"main": idle}))
    assert "2 workers known, 1 with tasks, 2 declared" in ask("/workers", view).text
    assert "No task that this tree knows runs here." in ask(worker_link("main", "idle:8083"), view).text


def test_workers_are_there_as_json() -> None:
    answer = ask("/api/workers").json()
    assert answer["asked_at"] == NOW - 60
    main = answer["connects"]["main"]
    assert (main["declared"], main["needed"], len(main["workers"])) == (3, 3, 3)
    task = main["workers"][0]["tasks"][0]
    assert task == {
        "flow": "orders:eu->hub", "connector": "mm2.eu.hub.source.orders", "task": 0, "state": "RUNNING",
        "bytes_per_second": 630_000.0,
    }  # fmt: skip
    (edge,) = answer["connects"]["edge"]["workers"]
    assert (edge["failure"], edge["tasks"][0]["state"]) == ("edge-1:8083: connection refused", "unknown")


TREE = """\
owner: tester
clusters:
  a: {bootstrap_servers: ["127.0.0.1:1"]}
  b: {bootstrap_servers: ["127.0.0.1:2"]}
connect:
  w: {url: ["%s", "http://127.0.0.1:1"], kafka: b, workers: {count: 2}}
flows:
  orders: {sources: [a], targets: [b], topics: {include: [orders]}}
"""


def test_each_worker_is_asked_for_its_version_and_plugins(tmp_path: Path) -> None:
    fake = FakeConnect(version="4.1.0")
    fake.plugins[PLUGIN_CLASS] = "2"
    with serving_connect(fake) as url:
        (tmp_path / "tree.yaml").write_text(TREE % url)
        seen = estate_workers(Workspace((tmp_path / "tree.yaml",)))["w"]
    assert (seen.declared, seen.unknown) == (2, "")
    assert "their group could not be read" in seen.unlisted
    by_name = {worker.worker: worker for worker in seen.workers}
    assert (by_name[url].kafka, by_name[url].own_plugin, by_name[url].failure) == ("4.1.0", "2", "")
    assert "attempts failed" in by_name["http://127.0.0.1:1"].failure
    (tmp_path / "dead.yaml").write_text(TREE % "http://127.0.0.1:2")
    dead = estate_workers(Workspace((tmp_path / "dead.yaml",)))["w"]
    assert (dead.workers, dead.unknown != "") == ((), True)


def test_links_leave_out_what_is_empty() -> None:
    assert flows_link() == "/flows"
    assert flows_link(source="a b", target="") == "/flows?source=a+b"
