"""Cruise Control's REST API as a source, over canned answers: its 202 protocol, its units, and what it does not list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from requests import PreparedRequest
from responses import RequestsMock

from mm2mgr.kafka.client import TopicInfo
from mm2mgr.samples.batch import Gathered, Inventory
from mm2mgr.samples.cruise_control import CruiseControlSource
from mm2mgr.samples.http import Endpoint, Http, SourceError
from mm2mgr.samples.schema import hour_of
from mm2mgr.samples.store import SampleStore
from tests.clock import jumping
from tests.samples.rows import stored

URL = "http://cruise.test:9090/kafkacruisecontrol"
WINDOW = 300_000
HOUR_MS = 3_600_000
NOW = 1_795_255_380_000
NEWEST = NOW // WINDOW * WINDOW
KNOWN = Inventory("dc1", {"logs": TopicInfo(3, "id", False), "a.b": TopicInfo(1, None, False)}, lambda topic: True)


@pytest.fixture(autouse=True)
def _jumps() -> Iterator[None]:
    with jumping():
        yield


def record(topic: str = "logs", partition: Any = 0, inbound: Any = 7.5, **more: Any) -> dict[str, Any]:
    place = {"topic": topic, "partition": partition, "leader": 1, "followers": [2, 3], "cpu": 0.1}
    return {**place, "disk": 2.0, "networkInbound": inbound, "networkOutbound": 15.0, "msg_in": 40.0, **more}


class CruiseControl:
    """Answers `state` with window ends and `partition_load` with records; both only after `tasks` 202s."""

    def __init__(self, records: list[Any], ends: list[int], tasks: int = 0) -> None:
        self.records, self.ends, self.tasks = records, ends, tasks
        self.asked: list[tuple[str, str | None]] = []

    def __call__(self, request: PreparedRequest) -> tuple[int, dict[str, str], str]:
        url, task = str(request.url), request.headers.get("User-Task-ID")
        self.asked.append((url, task))
        seen = sum(each == url for each, _ in self.asked)
        if seen <= self.tasks:
            progress = {"version": 1, "progress": [{"operation": "x", "operationProgress": []}]}
            return 202, {"User-Task-ID": f"task-of-{len(url)}"}, json.dumps(progress)
        if urlsplit(url).path.endswith("/state"):
            monitor = {"state": "RUNNING", "monitoredWindows": {str(end): 1.0 for end in self.ends}}
            return 200, {}, json.dumps({"version": 1, "MonitorState": monitor})
        return 200, {}, json.dumps({"version": 1, "records": self.records})


@pytest.fixture
def http(wire: RequestsMock) -> Iterator[Http]:
    with Http(Endpoint("Cruise Control of 'dc1'", URL)) as opened:
        yield opened


def serve(wire: RequestsMock, answers: CruiseControl) -> CruiseControl:
    for path in ("/state", "/partition_load"):
        wire.add_callback(wire.GET, URL + path, answers)
    return answers


def gathered(http: Http, since_ms: int | None = None, deadline_seconds: float = 5) -> list[Gathered]:
    return list(CruiseControlSource(http, deadline_seconds).gather(KNOWN, since_ms, NOW))


def ends(count: int) -> list[int]:
    return [NEWEST - back * WINDOW for back in range(count)]


def test_units_are_kib_and_mib_and_a_missing_partition_stays_missing(http: Http, wire: RequestsMock) -> None:
    serve(wire, CruiseControl([record(), record("a.b")], ends(3)))
    (found,) = gathered(http)
    (batch,) = found.batches
    assert (batch.source, batch.time_ms, batch.resolution_ms) == ("cruise-control", NEWEST - 1, WINDOW)
    assert list(zip(batch.topics, batch.partitions, strict=True)) == [("logs", 0), ("a.b", 0)]
    assert batch.bytes_per_second == [7.5 * 1024] * 2
    assert (batch.records_per_second, batch.log_bytes) == ([40.0] * 2, [2 * 1024 * 1024] * 2)
    assert "2 of 4 partitions have samples; missing (not zero): partitions of logs" in found.notes


def test_each_window_is_asked_for_once_by_moments_inside_it(http: Http, wire: RequestsMock) -> None:
    answers = serve(wire, CruiseControl([record()], [*ends(4), NEWEST + WINDOW]))
    found = gathered(http, since_ms=NEWEST - 2 * WINDOW)
    assert [batch.time_ms for each in found for batch in each.batches] == [NEWEST - WINDOW - 1, NEWEST - 1]
    asked = [parse_qs(urlsplit(url).query) for url, _ in answers.asked if "partition_load" in url]
    assert [(each["start"], each["end"]) for each in asked] == [
        ([str(end - WINDOW)], [str(end - 1)]) for end in (NEWEST - WINDOW, NEWEST)
    ]
    assert all(each["resource"] == ["NW_IN"] and each["json"] == ["true"] for each in asked)
    for known in (NEWEST - 1, NEWEST):  # as it is written, and as stores of before have it
        assert gathered(http, since_ms=known) == []


def test_a_window_of_a_whole_hour_is_filed_under_the_hour_it_describes(
    http: Http, wire: RequestsMock, tmp_path: Path
) -> None:
    hour = NOW // HOUR_MS * HOUR_MS  # where the newest window ends
    serve(wire, CruiseControl([record()], [hour - 2 * HOUR_MS, hour - HOUR_MS, hour]))
    store = SampleStore(tmp_path)
    for since in (hour - 2 * HOUR_MS, None):  # a restart without memory reads the newest window again
        for found in gathered(http, since_ms=since):
            store.append(*found.batches)
    assert store.hours() == [hour_of(hour - 2 * HOUR_MS), hour_of(hour - HOUR_MS)]
    assert stored(store)["time_ms"].to_pylist() == [hour - HOUR_MS - 1, hour - 1]
    assert gathered(http, since_ms=store.newest_of("dc1", "cruise-control", 0)) == []


def test_a_202_is_followed_on_the_same_url_under_its_task_id(http: Http, wire: RequestsMock) -> None:
    answers = serve(wire, CruiseControl([record()], ends(2), tasks=2))
    assert len(gathered(http)[0].batches) == 1
    by_url: dict[str, list[str | None]] = {}
    for url, task in answers.asked:
        by_url.setdefault(url, []).append(task)
    assert len(by_url) == 2
    assert all(tasks == [None, *[f"task-of-{len(url)}"] * 2] for url, tasks in by_url.items())


def test_a_202_without_end_or_without_id_ends_all_the_same(http: Http, wire: RequestsMock) -> None:
    serve(wire, CruiseControl([], ends(2), tasks=10**9))
    with pytest.raises(SourceError, match=r"no (final answer to /state within 0\.2 s|whole answer within)"):
        gathered(http, deadline_seconds=0.2)
    wire.upsert(wire.GET, URL + "/state", status=202, json={"progress": []})
    with pytest.raises(SourceError, match="202 without User-Task-ID"):
        gathered(http)


@pytest.mark.parametrize("windows", [[], [NEWEST], [NEWEST, NEWEST + WINDOW]])
def test_a_monitor_that_warms_up_is_a_source_that_is_down(windows: list[int], http: Http, wire: RequestsMock) -> None:
    serve(wire, CruiseControl([record()], windows))
    with pytest.raises(SourceError, match="not ready"):
        gathered(http)


@pytest.mark.parametrize("windows", [[0, NEWEST], [1, NEWEST - 30 * 24 * HOUR_MS, NEWEST]])
def test_windows_of_a_clock_that_was_wrong_are_an_error_of_the_source(
    windows: list[int], http: Http, wire: RequestsMock
) -> None:
    serve(wire, CruiseControl([record()], windows))
    with pytest.raises(
        SourceError, match=r"Cruise Control of 'dc1'.*: its windows end \d+ days apart: a clock is wrong"
    ):
        gathered(http)


def test_not_enough_windows_is_not_ready_and_any_other_500_is_told_without_the_stack(
    http: Http, wire: RequestsMock
) -> None:
    wire.add_callback(wire.GET, URL + "/state", CruiseControl([], ends(2)))
    reason = "com.linkedin.cruisecontrol.exception.NotEnoughValidWindowsException: There are only 0 valid windows"
    for message, told in ((reason, "not ready"), ("broken\n" * 500, "HTTP 500: broken broken")):
        wire.upsert(
            wire.GET, URL + "/partition_load", status=500, json={"stackTrace": "at x.y.Z", "errorMessage": message}
        )
        with pytest.raises(SourceError, match=told) as caught:
            gathered(http)
        assert "x.y.Z" not in caught.value.message
        assert len(caught.value.message) < 600


@pytest.mark.parametrize("lie", [-1.0, 1e18, "NaN", "fast", True, float("inf")])
def test_a_lie_is_dropped_and_the_rest_kept(lie: Any, http: Http, wire: RequestsMock) -> None:
    serve(wire, CruiseControl([record(inbound=lie), record(partition=1), "junk", record(partition="2")], ends(2)))
    (found,) = gathered(http)
    (batch,) = found.batches
    assert batch.bytes_per_second == [None, 7.5 * 1024]
    assert batch.records_per_second == [40.0, 40.0]
    assert any("3 values dropped" in note for note in found.notes)


def test_an_answer_of_something_else_is_an_error(http: Http, wire: RequestsMock) -> None:
    wire.get(URL + "/state", body="<html>Cruise Control UI</html>")
    with pytest.raises(SourceError, match="Cruise Control of 'dc1'"):
        gathered(http)
