"""The page: what is drawn, what is only listed, and that no name gets out of its text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from mm2mgr.operations.size import FleetReport
from mm2mgr.output.page import FLEET_TITLE, SIZE_TITLE, TITLES, page, task_bars, week_map
from mm2mgr.sizing.fleet import per_pair
from mm2mgr.sizing.scenario import FlowView, outcome
from tests.sizing.estates import MB, scenario

NASTY = '"><script>alert(1)</script>&'


def view(name: str = "logs", rate: float = 5 * MB, week: tuple[tuple[float | None, ...], ...] = ()) -> FlowView:
    one = scenario(name, {"t": rate}, lambda topic: True)
    sizing = outcome([one], {}).sizings[one.flow_id]
    return FlowView(sizing, (rate * 4,), (rate,) * 4, ((f"{name}-0", rate),), week)


def test_names_stay_text() -> None:
    text = page([view(NASTY)])
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert not re.search(r'aria-label="[^"]*[<>]', text)


def test_the_busiest_hundred_are_drawn_and_all_are_listed() -> None:
    text = page([view(f"flow{number:03d}", number * MB / 100) for number in range(120)])
    assert text.count("<h3") == 100
    assert text.count('<details class="flow" id="flow-') == 100
    assert len(re.findall(r'<details class="flow" id="flow-\d+" open>', text)) == 20, "the others open by a click"
    assert text.index(">flow119:a-&gt;hub<") < text.index(">flow118:a-&gt;hub<")
    assert "flow000:a-&gt;hub" in text
    assert "The 20 flows with less load are only in the table." in text


def test_hot_tasks_and_partitions_stand_out() -> None:
    assert 'class="over"' not in page([view(rate=0.5 * MB)])
    text = page([view(rate=9 * MB)])
    assert '<rect class="over"' in text
    assert "4 hot partitions" in text
    assert '<td class="n warn">129 %</td>' in text


def test_without_measurements_there_is_no_week() -> None:
    assert "No weekly pattern: nothing was measured." in page([view()])
    assert "No weekly pattern" in page([view(week=((None,) * 24,) * 7)])


def test_an_empty_estate_is_a_page_too() -> None:
    assert "<p>0 flows, 0 B/s, 0 tasks, 0 hot partitions." in page([])


def test_bars_are_as_high_as_loads() -> None:
    drawn = task_bars([2.0, 4.0, 1.0], usable=4.0, highest=4.0, label="x")
    heights = [float(found) for found in re.findall(r'height="([\d.]+)"><title>', drawn)]
    assert heights == sorted(heights, reverse=True)
    assert heights[0] / heights[2] == 4


def test_every_hour_of_the_week_has_a_cell() -> None:
    week = tuple(tuple(None if hour == 3 else float(day * hour) for hour in range(24)) for day in range(7))
    drawn = week_map(week, "x")
    assert drawn.count("<rect") == 168
    assert drawn.count('class="none"') == 7
    assert "<title>Sun 23 h: 138 B/s</title>" in drawn
    assert "<title>Mon 03 h: not measured</title>" in drawn


def test_the_axis_names_what_is_usable_and_the_heaviest_where_there_is_room() -> None:
    assert re.findall(r">([\d.]+ [kM]?B/s)</text>", task_bars([28 * MB, MB], 7 * MB, 28 * MB, "x")) == [
        "7 MB/s",
        "28 MB/s",
    ]
    assert re.findall(r">([\d.]+ [kM]?B/s)</text>", task_bars([6.9 * MB], 7 * MB, 28 * MB, "x")) == ["7 MB/s"]


@pytest.mark.parametrize("loads", [[], [0.0], [0.0, 7 * MB], [28 * MB]])
def test_no_number_of_an_axis_is_cut(loads: list[float]) -> None:
    drawn = task_bars(loads, 7 * MB, 28 * MB, "x")
    height = float(re.findall(r'viewBox="0 0 \S+ (\S+)"', drawn)[0])
    below_the_line = 3.0  # of letters of 12 pixels
    assert all(float(top) + below_the_line <= height + 1 for top in re.findall(r'<text x="\S+" y="(\S+)"', drawn))
    assert "0 B/s</text>" in drawn or max(loads)


def test_no_mark_leaves_its_figure() -> None:
    drawn = task_bars([float(number) for number in range(300)], 40.0, 299.0, "x")
    places = re.findall(r'<rect class="\w+" x="([\d.]+)" y="([\d.-]+)" width="([\d.]+)" height="([\d.]+)"', drawn)
    assert len(places) == 150
    for left, top, width, height in (map(float, place) for place in places):
        assert left + width <= 480
        assert top >= 0
        assert top + height == pytest.approx(118, abs=0.02)


def test_more_tasks_than_bars_is_said() -> None:
    one = view()
    text = page([FlowView(one.sizing, (1.0,), (2.0,) * 300, one.hottest, one.week)])
    assert "After: 300 tasks, the busiest 2 B/s; the 150 heaviest are drawn" in text
    assert "Before: 1 task, the busiest 1 B/s</h4>" in text


def test_figures_have_their_numbers_as_tables() -> None:
    week = tuple(tuple(None if hour == 3 else float(hour) for hour in range(24)) for _ in range(7))
    one = view(week=week)
    text = page([FlowView(one.sizing, (30.0, 10.0), (15.0, 20.0, 5.0), one.hottest, week)])
    assert "<summary>Load per task in numbers</summary>" in text
    rows = re.findall(r'<tr><td class="n">(\d+)</td><td class="n">([^<]+)</td><td class="n">([^<]+)</td></tr>', text)
    assert rows == [("1", "30 B/s", "20 B/s"), ("2", "10 B/s", "15 B/s"), ("3", "-", "5 B/s")]
    assert text.count('<td class="name">23 h: 23 B/s</td><td class="name">00 h: 0 B/s</td>') == 7
    assert not re.search(r"<th(?! scope=)", text)


def test_when_and_from_what_is_said() -> None:
    assert '<p class="note">Written &lt;now&gt;</p>' in page([], None, "Written <now>")


def test_the_topology_is_drawn_with_its_numbers() -> None:
    text = page([view("logs", 5 * MB), view("audit", MB)])
    assert "<h2>Topology</h2>" in text
    assert re.findall(r"<path [^>]*><title>([^<]+)</title>", text) == ["a to hub: 24 MB/s, 2 flows, 8 tasks"]
    assert '<td class="name">a</td><td class="name"></td><td class="name">hub</td><td class="n">2</td>' in text
    over = page([replace(view("logs", 9 * MB), connect="main")])
    assert "main to hub: 36 MB/s, 1 flow, 4 tasks, a task gets more than its usable capacity" in over
    assert ">! main</tspan>" in over


def test_the_pages_of_size_and_fleet_have_titles_of_their_own() -> None:
    report = FleetReport({}, per_pair([]), {}, "")
    titles = [re.findall(r"<(?:title|h1)>([^<]+)<", page([view()], shown).split("<svg")[0]) for shown in (None, report)]
    assert titles == [[SIZE_TITLE, "Load and tasks"], [FLEET_TITLE, "Load and workers"]]
    assert all(title.startswith(TITLES) for title, _ in titles), "so that one may replace the other"


def test_a_narrow_screen_keeps_flow_and_tasks() -> None:
    text = page([view()])
    (head,) = re.findall(r'<table class="full"><tr>(.*?)</tr>', text)
    assert re.findall(r'<th scope="col"(?: class="n")?>([^<]+)<', head) == ["flow", "tasks"]
    assert len(re.findall(r'class="n minor"', head)) == 4
    assert "@media (max-width: 600px) { .minor { display: none; }" in text


def test_nothing_is_loaded_from_anywhere() -> None:
    text = page([view()])
    assert "default-src 'none'" in text
    assert not re.search(r"<script|<img|<link|@import|url\(|src=", text)


def test_five_hundred_flows_stay_a_page_that_opens() -> None:
    week = tuple(tuple(float(day * hour) for hour in range(24)) for day in range(7))
    text = page([view("x" * 200 + str(number), week=week) for number in range(500)])
    assert text.count("<tr>") > 500
    assert len(text) < 6_000_000
