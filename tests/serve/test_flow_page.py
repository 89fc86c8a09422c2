"""The page of a flow and the traffic of the overview: charts, marks, what concerns a flow, and what is usual."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from mm2mgr import timing
from mm2mgr.errors import cause
from mm2mgr.evidence.traffic import RANGES, FlowPast, TrafficHistory
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.subject import Spot
from mm2mgr.observe.interruptions import InterruptionCounts
from mm2mgr.observe.trend import FLOW, LagPoint
from mm2mgr.operations.estate_view import EstateLook, EstateView, WrittenFlow, after_look
from mm2mgr.operations.history import HistoryReport
from mm2mgr.operations.lint import LintReport
from mm2mgr.plan.history import HistoryEntry
from mm2mgr.problems.health import FlowStatus, TaskState
from mm2mgr.serve.app import application
from mm2mgr.serve.pages.charts import (
    RECORDS,
    TIME,
    ChartLimit,
    ChartLine,
    ChartMark,
    TimeSpan,
    chart,
    sparkline,
    time_ticks,
)
from mm2mgr.serve.pages.traffic import traffic, traffic_of
from tests.clock import ShownClock
from tests.serve.estate import (
    CHROMIUM,
    NOW,
    SURVEY,
    ask_application,
    flow_status,
    flow_traffic,
    look_of,
    loss,
    problem,
    serving,
    view_of,
    watchdog_view,
)  # fmt: skip

ID, PAIR, CONNECTOR = "orders:a->b", "a->b", "mm2.orders:a->b"
DAY = TimeSpan(NOW - 86_400, NOW, 900.0)


def entry(command: str, seconds_ago: float, reason: str = "") -> HistoryEntry:
    when = datetime.fromtimestamp(NOW - seconds_ago, UTC).isoformat(timespec="milliseconds")
    keys = ({"key": "tasks.max", "before": "2", "after": "3"},)
    more = {"action": "update", "reason": reason, "keys": keys, "outcome": "done"}
    return HistoryEntry(f"{command}-1", when, "ann", "abc1234", command, "ann", "main", CONNECTOR, (ID,), **more)  # type: ignore[arg-type]


def behind(*looks: tuple[float, int, int]) -> EstateView:
    """Return a view of a flow without samples, after looks: seconds ago, end of the log, position."""
    look = look_of([flow_status(ID, PAIR)], {ID: {"orders": 40}})
    points = tuple(LagPoint(NOW - ago, 1, 0, end, position) for ago, end, position in looks)
    facts = replace(look.lag.flows[0], points={FLOW: points})
    look = replace(look, lag=replace(look.lag, flows=(facts,)), max_lag_seconds={ID: 600.0})
    return view_of(look, survey=SURVEY)


@pytest.mark.parametrize("range_name", RANGES)
def test_table_list_metrics_and_chart_have_the_same_lag_in_time(range_name: str) -> None:
    view = behind((1500, 60, 60), (900, 100, 60), (300, 120, 80), (0, 140, 100))
    seconds = 900.0
    app = application(lambda: view, clock=lambda: NOW)
    of_flow = ask_application(app, f"/api/flow?id={ID}&range={range_name}").json()
    assert of_flow["total"]["lag_seconds"]["value"] == of_flow["history"]["points"][-1]["lag_seconds"] == seconds
    page = ask_application(app, f"/flow?id={ID}&range={range_name}").text
    table = page.partition('<h2 id="lag">')[2].partition("</table>")[0]
    numbers = page.partition('data-key="numbers"')[2].partition("</details>")[0]
    assert "unknown" not in table.partition("15 min")[2][:20]
    assert "15 min" in table
    assert "15 min" in numbers
    assert f'mm2mgr_flow_lag_seconds{{flow="{ID}",owner="ann"}} {seconds}' in ask_application(app, "/metrics").text
    assert "15 min" in ask_application(app, "/flows").text
    assert view.look
    assert view.look.late_flows == {ID: seconds}


def test_a_lag_before_the_first_look_stays_unknown() -> None:
    view = behind((600, 100, 10), (0, 140, 50))
    app = application(lambda: view, clock=lambda: NOW)
    of_flow = ask_application(app, f"/api/flow?id={ID}").json()
    assert of_flow["total"]["lag_seconds"]["value"] is of_flow["history"]["points"][-1]["lag_seconds"] is None


def estate(now: float = NOW, **more: Any) -> EstateView:
    """Return a view of one flow with a month of history, changes, a loss, a finding and settings."""
    status = flow_status(
        ID, PAIR, tasks=(TaskState(0, "RUNNING", "w 1:8083", 2),), health="problem", problems=(problem(ID, CONNECTOR),)
    )
    interruptions = {int(now) - 7200: InterruptionCounts(2, 1, 0), int(now) - 90_000: InterruptionCounts(0, 0, 1)}
    history = replace(flow_traffic(now), interruptions=interruptions)
    findings = (
        Finding("dead-key", "error", Spot("", 0, "main", CONNECTOR), "about it <b>", "remove it"),
        Finding("dead-key", "error", Spot("", 0, "main", "another"), "about another", "remove it"),
    )
    survey = replace(
        SURVEY,
        findings=LintReport(findings, 2, ()),
        history=HistoryReport((entry("apply", 90_000), entry("watch", 3000), entry("rebalance", 600))),
        traffic=more.pop("history", TrafficHistory({ID: history})),
        declared={ID: WrittenFlow((("tasks.max", "3", "tree flows.yaml:12"),), (("main", CONNECTOR), ("main", "mm2.cp")))},
    )  # fmt: skip
    look = look_of([status], {ID: {"orders": 300}}, at=now, losses=[replace(loss(ID, "orders"), seen=now - 40_000)])
    end = history.looks.points_since(now - 600)[-1]
    rate = more.pop("rate", 70.0)
    points = tuple(
        LagPoint(now - back, 6, 0, *(int(end.end + rate * (now - back - end.time)) - waits for waits in (0, 300)))
        for back in range(600, -1, -30)
    )
    lag = replace(look.lag, flows=tuple(replace(of, points={FLOW: points}) for of in look.lag.flows))
    return view_of(replace(look, lag=lag, max_lag_seconds={ID: 120.0}), survey=survey, **more)


def page(view: EstateView, path: str, now: float = NOW) -> str:
    with timing.use(ShownClock(lambda: now)):
        return ask_application(application(lambda: view, clock=lambda: now), path).text


# --- charts -----------------------------------------------------------------------------------------------------------


def path_of(drawn: str) -> str:
    found = re.search(r'<path class="own" d="([^"]*)"', drawn)
    assert found
    return found[1]


def test_a_line_has_a_gap_where_nobody_looked_and_where_nothing_is_known() -> None:
    times = [NOW - 3000, NOW - 2700, NOW - 600, NOW - 300, NOW]
    drawn = chart("Lag", DAY, times, [ChartLine("lag", "own", [1, 2, 3, None, 4])], RECORDS)
    assert path_of(drawn).count("M") == 3
    assert path_of(drawn).count("h0") == 2, "a value alone is a dot"
    assert drawn.count('class="unseen"') == 2, "from the start to the first look, and in between"
    assert "Nobody looked from 2023-11-14 21:28 to 2023-11-14 22:03 UTC" in drawn


def test_a_chart_says_where_nothing_was_measured() -> None:
    assert "nothing was measured" in chart("Lag", DAY, [], [ChartLine("lag", "own", [])], RECORDS)


def test_scales_have_few_gridlines_in_round_numbers() -> None:
    drawn = chart("Lag", DAY, [NOW], [ChartLine("lag", "own", [1_234_567.0])], RECORDS)
    assert re.findall(r'text-anchor="end">([^<]*)<', drawn)[:4] == ["0", "500 k", "1 M", "1.5 M"]
    drawn = chart("Lag", DAY, [NOW], [ChartLine("lag", "own", [400.0])], TIME, limit=ChartLimit("max_lag", 300.0))
    assert re.findall(r'text-anchor="end">([^<]*)<', drawn)[:5] == ["0", "2 min", "4 min", "6 min", "8 min"]
    assert "<title>max_lag: 5 min</title>" in drawn


@pytest.mark.parametrize("seconds", RANGES.values())
@pytest.mark.parametrize("now", [NOW, 1_709_164_800.0, 1_711_846_801.0])
def test_ticks_are_clock_times(seconds: float, now: float) -> None:
    ticks = time_ticks(now - seconds, now)
    assert 5 <= len(ticks) <= 8
    assert all(now - seconds <= time <= now and time % 600 == 0 for time, _ in ticks)
    midnights = [text for time, text in ticks if time % 86_400 == 0 and seconds <= 86_400]
    assert all(re.fullmatch(r"\d+ \w{3}", text) for text in midnights)


def test_marks_that_would_overprint_each_other_are_one_with_all_of_their_titles() -> None:
    marks = [
        ChartMark(NOW - 100, "apply", "apply <b>"),
        ChartMark(NOW - 90, "loss", "7 records"),
        ChartMark(NOW - 40_000, "restart", "x"),
    ]
    drawn = chart("Lag", DAY, [NOW], [ChartLine("lag", "own", [1])], RECORDS, marks=marks)
    assert drawn.count('<g class="mark') == 2
    assert '<g class="mark loss">' in drawn, "the gravest gives the sign"
    assert "apply &lt;b&gt;; 22:11 7 records</title>" in drawn
    week = chart(
        "Lag", TimeSpan(NOW - 7 * 86_400, NOW, 900.0), [NOW], [ChartLine("lag", "own", [1])], RECORDS, marks=marks
    )
    assert "apply &lt;b&gt;; 14 Nov 22:11 7 records</title>" in week, "of several days, the day too"


def test_a_sparkline_has_gaps_and_says_what_it_is() -> None:
    drawn = sparkline([None, 1.0, None, 2.0, 3.0], "24 h: <1>")
    assert drawn.count("M") == 2
    assert 'role="img" aria-label="24 h: &lt;1&gt;"' in drawn
    assert 'aria-hidden="true"' in sparkline([1.0])


# --- the looks of this process ----------------------------------------------------------------------------------------


def look_with(flow: FlowStatus, points: Sequence[LagPoint]) -> EstateLook:
    look = look_of([flow], at=points[-1].time if points else NOW)
    lag = replace(look.lag, flows=tuple(replace(lag, points={FLOW: tuple(points)}) for lag in look.lag.flows))
    return replace(look, lag=lag)


def test_a_view_keeps_the_looks_of_the_last_hour() -> None:
    status, view = flow_status(ID, PAIR), EstateView(NOW, 30.0)
    points = [LagPoint(NOW + 30 * number, 1, 0, number, number) for number in range(240)]
    for number in range(240):
        seen = points[: number + 1]
        thinned = [*seen[:-8:5], *seen[-8:]]  # as the memory has them
        view = after_look(view, look_with(status, thinned))
    times = [point.time for point in view.recent[ID]]
    assert times == [point.time for point in points if point.time >= points[-1].time - 3600 - 900]
    again = after_look(view, look_with(status, points[-8:]))
    assert again.recent == view.recent, "a flow that could not be read has the points of before"
    back = after_look(view, look_with(status, [LagPoint(points[-20].time + 1, 1, 0, 5, 5)]))
    assert [point.time for point in back.recent[ID]][-2:] == [points[-20].time, points[-20].time + 1]


def test_looks_of_this_process_that_ended_long_ago_do_not_hide_those_of_the_store() -> None:
    past = flow_traffic(NOW)
    before = [LagPoint(NOW - back, 6, 0, 1000, 1000) for back in range(9000, 6000, -60)]
    assert past.points(NOW, 3600, before) == past.points(NOW, 3600) != []


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RANGES)
def test_every_range_is_drawn_with_axes_marks_and_numbers(name: str) -> None:
    said = page(estate(), f"/flow?id={ID}&range={name}")
    assert said.count('<svg class="chart"') == 4
    assert "nothing was measured" not in said
    assert f'range={name}#time" aria-current="true">{name}</a>' in said
    assert "<title>max_lag: 2 min</title>" in said
    rows = re.findall(r'<td class="name">20\d\d-\d\d-\d\d \d\d:\d\d</td>', said)
    assert 10 < len(rows) <= 121


def test_another_range_is_the_usual_one() -> None:
    assert '#time" aria-current="true">24h</a>' in page(estate(), f"/flow?id={ID}&range=<b>")


def test_a_young_process_draws_the_hour_that_it_knows() -> None:
    assert '#time" aria-current="true">24h</a>' in page(estate(), f"/flow?id={ID}")
    young = page(estate(history=TrafficHistory()), f"/flow?id={ID}")
    assert '#time" aria-current="true">1h</a>' in young


def test_marks_are_changes_restarts_rebalances_and_losses() -> None:
    said = page(estate(), f"/flow?id={ID}&range=7d")
    table = said[said.index('<th scope="col">what</th>') :]
    kinds = re.findall(r'<td class="name">(loss|failure|restart|rebalance|change)</td>', table)
    assert kinds == ["rebalance", "restart", "rebalance", "loss", "failure", "change"]
    assert "apply by ann: update (1 key)" in table
    assert "within an hour: 2 assignment changes (1 with tasks on other workers)" in table
    assert "change" not in re.findall(
        r'<td class="name">(loss|restart|change)</td>', page(estate(), f"/flow?id={ID}")
    ), "what is older than the range has no mark"


def test_a_restart_that_the_history_has_is_marked_once() -> None:
    dog = watchdog_view(ID, CONNECTOR, "time-out")
    dog = replace(dog, actions=tuple((at - 3010, action) for at, action in dog.actions))
    restarts = re.findall(r'<td class="name">restart</td>', page(estate(watchdog=dog), f"/flow?id={ID}"))
    assert len(restarts) == 1


def test_a_flow_has_all_that_concerns_it() -> None:
    said = page(estate(), f"/flow?id={ID}")
    for part in (
        "Owner ann.",
        '<code class="command">mm2mgr ',
        '<a href="/worker?connect=main&amp;id=w+1%3A8083">w 1:8083</a>',
        '<td class="name">tree flows.yaml:12</td>',
        "about it &lt;b&gt;",
        "tasks.max: 2 -&gt; 3",
        "mm2.a.b.source.orders: update; tasks.max: 1 → 2",
        "retention deleted them",
        '<a href="/flows?source=a&amp;target=b">Flows from a to b</a>',
    ):
        assert part in said, part
    assert "about another" not in said


def test_without_a_survey_the_page_says_what_is_not_read_yet() -> None:
    view = replace(estate(), survey=None)
    said = page(view, f"/flow?id={ID}&range=1h")
    assert "Changes, findings, settings and the plan are read at a slower pace." in said
    assert "it is read at a slower pace" in said
    assert said.count('<path class="own" d="M') >= 3, "the looks of this process are drawn"


def test_a_flow_that_nobody_looked_at_says_so() -> None:
    view = replace(view_of(look_of([flow_status(ID, PAIR)])), recent={})
    assert "Nobody looked at this flow in this time" in page(view, f"/flow?id={ID}")


def test_the_api_has_the_history_of_a_range() -> None:
    view = estate()
    answer = ask_application(application(lambda: view, clock=lambda: NOW), f"/api/flow?id={ID}&range=7d").json()
    history = answer["history"]
    assert (history["range"], history["unknown"], history["bytes_unknown"]) == ("7d", "", "")
    assert 160 <= len(history["points"]) <= 170
    assert history["points"][-1]["time"] == NOW
    assert history["points"][5]["source_bytes_per_second"] > 0
    wrong = ask_application(application(lambda: view), f"/api/flow?id={ID}&range=2h")
    assert (wrong.status_code, wrong.json()) == (400, {"error": "range is one of 1h, 6h, 24h, 7d, 30d"})


# --- traffic ----------------------------------------------------------------------------------------------------------


def test_traffic_stands_beside_yesterday_and_last_week() -> None:
    view = estate()
    of = traffic_of(view, ID)
    assert of.records.now == pytest.approx(70.0, rel=0.01)
    assert of.records.yesterday is not None
    assert of.volume.now == pytest.approx(70.0 * 512, rel=0.2)
    assert of.verdict == "as usual"
    said = page(view, "/")
    assert re.search(r"Sources get 70 records/s and [\d.]+ kB/s; as usual\.", said)
    assert '<td class="usual">as usual</td>' in said
    assert '<svg class="spark"' in said


@pytest.mark.parametrize(("rate", "words"), [(1000.0, "more than usual"), (1.0, "less than usual")])
def test_what_is_not_as_usual_stands_out(rate: float, words: str) -> None:
    assert f'<td class="usual off">{words}</td>' in page(estate(rate=rate), "/")


def test_without_the_extra_that_reads_the_store_the_pages_name_it_once() -> None:
    missing = cause(ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow.compute"))
    view = estate(history=TrafficHistory({ID: FlowPast()}, missing, bytes_unknown=missing))
    for path in ("/", f"/flow?id={ID}"):
        said = page(view, path)
        assert said.count("are unknown: that needs the extra mm2mgr[measure], which is not installed") == 1, path
        assert "ModuleNotFound" not in said


def test_as_usual_is_said_only_where_it_was_measured() -> None:
    view = estate(history=TrafficHistory({ID: FlowPast()}, "the store is away"))
    assert traffic_of(view, ID).verdict == "unknown"
    said = page(view, "/")
    assert "what is usual is not known yet" in said
    assert "Earlier rates are unknown: the store is away" in said
    assert 'class="usual' not in said, "a verdict without anything to compare with"
    one_look = view_of(look_of([flow_status(ID, PAIR)]))
    one_look = replace(one_look, look=replace(one_look.look, lag=replace(one_look.look.lag, flows=tuple(  # type: ignore[union-attr, arg-type]
        replace(of, points={}) for of in one_look.look.lag.flows))))  # type: ignore[union-attr]  # fmt: skip
    section = traffic(one_look)
    assert section is not None
    assert str(section["total"]).startswith("What the sources get now is unknown")


def test_the_overview_has_few_pairs_and_the_page_of_traffic_has_all() -> None:
    flows = [flow_status(f"orders:s{number}->t", f"s{number}->t") for number in range(30)]
    histories = {flow.flow: flow_traffic(NOW, rate=10.0 * (number + 1)) for number, flow in enumerate(flows[:3])}
    view = view_of(look_of(flows), survey=replace(SURVEY, traffic=TrafficHistory(histories)))
    assert page(view, "/").count('<td class="usual') == 8
    assert '<a href="/traffic">22 more pairs: ' in page(view, "/")
    assert page(view, "/traffic").count('<td class="usual') == 30


def test_the_list_of_flows_has_a_line_of_the_last_day_where_it_was_measured() -> None:
    assert re.search(
        r'<td class="n rate"><svg class="spark" [^>]*aria-label="24 h: [^"]* records/s', page(estate(), "/flows")
    )
    unmeasured = view_of(look_of([flow_status(ID, PAIR)]))
    assert 'class="spark"' not in page(unmeasured, "/flows")


# --- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    import time

    view = estate(time.time())
    with serving(lambda: view) as served:
        yield served


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
def test_a_browser_shows_values_under_the_pointer_and_nothing_is_cut(url: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width, theme in ((1280, "light"), (768, "dark"), (400, "dark")):
            tab = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
            said = list[str]()
            tab.on("console", lambda message, said=said: said.append(message.text))
            tab.on("pageerror", lambda error, said=said: said.append(str(error)))
            tab.goto(f"{url}/flow?id={ID}&range=24h")
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            cut = tab.evaluate(
                "[...document.querySelectorAll('svg.chart text')].filter(e => { const [t, c] = [e.getBoundingClientRect(),"
                " e.closest('svg').getBoundingClientRect()]; return t.left < c.left - 1 || t.right > c.right + 1; })"
                ".map(e => e.textContent)"
            )
            assert cut == [], "labels are whole"
            figure = tab.locator("svg.chart").nth(2)
            figure.scroll_into_view_if_needed()
            box = figure.bounding_box()
            assert tab.locator(".hover").count() == 0
            tab.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.5 * box["height"])
            assert re.fullmatch(
                r"\d\d-\d\d \d\d:\d\d UTC\nsource: [\d.]+( k)?\nmirrored: [\d.]+( k)?",
                "\n".join(figure.locator(".hover text").all_text_contents()),
            )
            tab.mouse.move(2, 2)
            assert tab.locator(".hover").count() == 0
            tab.get_by_role("link", name="7d").click()
            tab.wait_for_url("**range=7d*")
            assert tab.locator("[aria-current=true]").inner_text() == "7d"
            assert said == []
            tab.close()
        chromium.close()
