"""The load in views: what flows mirror, how busy tasks are, what is needed, and that what is unknown is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.assignment import round_robin
from mm2mgr.evidence.flow_load import (
    ConnectNeed,
    EstateNeeds,
    FlowNeed,
    FlowThroughput,
    MeasuredLoad,
    TaskLoad,
    estate_needs,
    throughput_of,
)
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.observe.interruptions import InterruptionCounts, InterruptionReport
from mm2mgr.observe.lag import LastStored
from mm2mgr.observe.trend import FLOW as POINTS
from mm2mgr.observe.trend import LagPoint, recent_rates
from mm2mgr.operations.estate_view import EstateView, after_look
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import TopicPartition
from mm2mgr.serve.app import application
from mm2mgr.serve.metrics import families
from mm2mgr.sizing.tasks import HotPartition
from tests.cli.load import addresses, declare, measured, produce
from tests.fake_connect import MIRROR, FakeConnect, serving
from tests.kafka.conftest import mock_cluster
from tests.serve.estate import NOW, SURVEY, ask_application, facts, flow_status, look_of, view_of

__all__ = ["mock_cluster"]
FLOW, OTHER = "orders:a->b", "clicks:a->b"
HOT = HotPartition("orders", 1, 9e6, 1.3)
NEED = FlowNeed(3, 7e6, 70_000.0, (HOT,), {"tasks": 0.0, "partition": 3_600.0})


def points(*rows: tuple[float, int, int]) -> tuple[LagPoint, ...]:
    """Return looks: seconds, log end, position."""
    return tuple(LagPoint(NOW + seconds, 1, 0, end, position) for seconds, end, position in rows)


def load(task: int, volume: float | None, records: float | None = None) -> TaskLoad:
    return TaskLoad(task, volume, records, int(volume is None))


# --- what a flow moves ------------------------------------------------------------------------------------------------


def test_rates_are_those_of_the_last_minutes() -> None:
    looks = points((-900, 0, 0), (-300, 1000, 0), (-150, 2000, 600), (0, 4000, 1500))
    assert recent_rates(looks, 300.0, 60.0) == (pytest.approx(5.0), pytest.approx(10.0))
    assert recent_rates(looks, 200.0, 60.0) == (pytest.approx(6.0), pytest.approx(2000 / 150))


def test_looks_that_are_rarer_than_that_are_taken_in_twos() -> None:
    assert recent_rates(points((-1200, 0, 0), (-600, 0, 0), (0, 600, 300)), 300.0, 60.0) == (0.5, 1.0)


def test_looks_within_a_flush_interval_show_no_rate() -> None:
    assert recent_rates(points((-30, 0, 0), (0, 9, 9)), 300.0, 60.0) == (None, None)
    assert recent_rates(points((0, 9, 9)), 300.0, 60.0) == (None, None)
    assert recent_rates((), 300.0, 60.0) == (None, None)


def moving(tasks: list[TaskLoad], need: FlowNeed | None = NEED) -> FlowThroughput:
    lag = replace(facts(flow_status(FLOW, "a->b")), points={POINTS: points((-200, 0, 0), (0, 4000, 2000))})
    return throughput_of(lag, tasks, need)


def test_bytes_have_the_mean_record_size_of_the_hour() -> None:
    found = moving([load(0, 3e6, 3000.0), load(1, 1e6, 1000.0)])
    assert found == FlowThroughput(10.0, pytest.approx(10_000), 20.0, pytest.approx(3 / 7), pytest.approx(1.5))


def test_small_records_make_a_task_busy_before_its_bytes_do() -> None:
    assert moving([load(0, 1e6, 140_000.0)]).busiest_share == pytest.approx(2.0)
    assert moving(
        [load(0, 1e6, 140_000.0)], replace(NEED, usable_records_per_second=None)
    ).busiest_share == pytest.approx(1 / 7)


def test_what_is_unknown_is_missing_and_no_zero() -> None:
    assert moving([load(0, None)]) == FlowThroughput(10.0, None, 20.0, None, None)
    assert moving([load(0, 7e6)], None).busiest_share is None
    assert moving([load(0, 0.0), load(1, 0.0)]).balance == 1.0


def test_a_source_that_does_not_answer_has_no_rate_of_earlier_looks() -> None:
    lag = replace(facts(flow_status(FLOW, "a->b")), points={POINTS: points((-200, 4000, 2000), (0, 4000, 2000))})
    assert throughput_of(lag, [load(0, 7e6)], NEED).source_records_per_second == 0.0
    silent = replace(lag, lag=replace(lag.lag, unknown="source a could not be read"))
    assert throughput_of(silent, [load(0, 7e6)], NEED) == FlowThroughput(busiest_share=1.0, balance=1.0)


def test_a_task_without_partitions_carries_nothing() -> None:
    assert moving([load(0, 3e6), TaskLoad(1, None, None, 0)]).balance == 2.0


def without_workers(*, blind: bool = False, uncounted: bool = False, state: str = "unknown") -> EstateView:
    """Return a view of a flow whose workers have not answered for 20 seconds, at 5 records/s on its source."""
    status = flow_status(FLOW, "a->b", state=state, health="unknown")
    before = view_of(look_of([flow_status(FLOW, "a->b")], at=NOW - 20))
    look = look_of([status])
    (known,) = before.look.lag.flows if before.look else ()
    known = replace(known, taken_at=NOW, state=state)
    partitions = tuple(one._replace(arrived=None if blind else 100) for one in known.lag.partitions)
    lag = replace(known.lag, partitions=partitions, last_stored=LastStored(NOW - 20, False, uncounted))
    seen = replace(known, lag=lag, points={POINTS: points((-20, 100, 100), (0, 200, 100))})
    return after_look(before, replace(look, lag=replace(look.lag, flows=(seen,))))


@pytest.mark.parametrize("state", ["unknown", "RUNNING"], ids=["dead workers", "their Kafka is down"])
@pytest.mark.parametrize(
    ("blind", "uncounted", "mirrored"), [(False, False, 0.0), (True, False, None), (False, True, None)]
)
def test_the_source_tells_its_rate_while_no_worker_does(
    state: str, blind: bool, uncounted: bool, mirrored: float | None
) -> None:
    view = without_workers(blind=blind, uncounted=uncounted, state=state)
    assert view.throughput[FLOW] == FlowThroughput(mirrored, None, 5.0)
    assert samples(view)["mm2mgr_flow_source_records_per_second"] == {(FLOW,): 5.0}
    app = application(lambda: view)
    page, flow_page = (ask_application(app, path).text for path in ("/traffic", f"/flow?id={FLOW}"))
    assert "Sources get 5 records/s" in page
    assert "1 flow by the growth of the source&#39;s log alone: no worker tells its offsets" in page
    assert ("What it mirrors is not known while no worker tells" in flow_page) == (mirrored is None)


def test_what_a_look_without_the_source_could_not_see_is_no_rate() -> None:
    view = without_workers()
    assert view.look is not None
    (known,) = view.look.lag.flows
    lag = replace(known.lag, unread={TopicPartition("orders", 1): "no answer"})
    look = replace(view.look, lag=replace(view.look.lag, flows=(replace(known, lag=lag),)))
    assert replace(view, look=look).throughput == {}


# --- views ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def view() -> EstateView:
    """Two flows; of one the load is known, with two partitions on two tasks."""
    look = look_of([flow_status(FLOW, "a->b"), flow_status(OTHER, "a->b", state="unknown", health="unknown")])
    places = [TopicPartition("orders", number) for number in range(2)]
    lags = tuple(
        replace(one, lag=replace(one.lag, assignment=round_robin(places, 2))) if one.flow == FLOW else one
        for one in look.lag.flows
    )
    rates = {TopicPartition("orders", 0): (1e6, 1000.0), TopicPartition("orders", 1): (9e6, 9000.0)}
    survey = replace(
        SURVEY,
        load=MeasuredLoad({"a": rates}, "an hour"),
        needs=EstateNeeds(
            {FLOW: NEED, "gone:a->b": NEED},
            {"main": ConnectNeed(4, 2, {"tasks": 86_400.0}), "west": ConnectNeed(None, None)},
        ),
    )
    return view_of(replace(look, lag=replace(look.lag, flows=lags)), survey=survey)


def samples(view: EstateView) -> Mapping[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in families(view, NOW):
        for one in family.samples:
            labels = tuple(value for name, value in one.labels.items() if name != "owner")
            found.setdefault(one.name, {})[labels] = one.value
    return found


def test_metrics_have_the_load_of_flows_and_workers_by_name_alone(view: EstateView) -> None:
    found = samples(view)
    assert found["mm2mgr_flow_tasks_needed"] == {(FLOW,): 3}, "no flow that is gone"
    assert found["mm2mgr_flow_hot_partitions"] == {(FLOW,): 1}
    assert found["mm2mgr_flow_busiest_task_ratio"] == {(FLOW,): pytest.approx(9 / 7)}
    assert found["mm2mgr_flow_task_balance_ratio"] == {(FLOW,): pytest.approx(1.8)}
    assert found["mm2mgr_flow_mirrored_records_per_second"] == {(FLOW,): 0}
    assert found["mm2mgr_connect_workers"] == {("main",): 2}
    assert found["mm2mgr_connect_workers_needed"] == {("main",): 4}
    assert found["mm2mgr_flow_limit_in_seconds"] == {(FLOW, "tasks"): 0.0, (FLOW, "partition"): 3_600.0}
    assert found["mm2mgr_connect_limit_in_seconds"] == {("main", "tasks"): 86_400.0}


def test_before_the_first_survey_nothing_of_the_store_is_there(view: EstateView) -> None:
    found = samples(replace(view, survey=None))
    assert not [name for name in found if name.endswith(("_needed", "_ratio", "_hot_partitions", "connect_workers"))]


def test_hot_partitions_are_named_on_the_page_and_in_json(view: EstateView) -> None:
    app = application(lambda: view, clock=lambda: NOW)
    page = ask_application(app, f"/flow?id={FLOW}").text
    assert "The busiest task got 129 % of what a task is planned to carry, 1.80 times the mean of its tasks." in page
    assert "3 tasks needed by the load of the last four weeks, 1 RUNNING." in page
    assert "orders-1 (9 MB/s, 1.3 times)" in page
    found = ask_application(app, f"/api/flow?id={FLOW}").json()
    assert found["needed"]["hot_partitions"] == [
        {"topic": "orders", "partition": 1, "bytes_per_second": 9e6, "factor": 1.3}
    ]
    assert found["throughput"]["busiest_share"] == pytest.approx(9 / 7)
    unread = ask_application(app, f"/api/flow?id={OTHER}").json()
    assert (unread["needed"], unread["throughput"]) == (None, None)
    assert (
        "The tasks that it needs are unknown: its source could not be read."
        in ask_application(app, f"/flow?id={OTHER}").text
    )
    assert "orders-1" not in ask_application(app, "/metrics").text


def test_interruptions_are_in_metrics_and_on_the_page_of_their_flow() -> None:
    report = InterruptionReport(NOW - 60, InterruptionCounts(2, 1, 0), InterruptionCounts(40, 3, 7))
    view = view_of(look_of([flow_status(FLOW, "a->b", interruptions=report), flow_status(OTHER, "a->b")]))
    assert samples(view)["mm2mgr_flow_interruptions"] == {
        (FLOW, kind, window): count
        for window, counts in (("1h", (2, 1, 0)), ("30d", (40, 3, 7)))
        for kind, count in zip(("assignment", "workers", "failures"), counts, strict=True)
    }
    app = application(lambda: view, clock=lambda: NOW)
    page = ask_application(app, f"/flow?id={FLOW}").text
    assert (
        "Interrupted in 30 days by 40 assignment changes (3 with tasks on other workers) and 7 failures of tasks; in the"
        " last hour by 2 assignment changes (1 with tasks on other workers)." in page
    )
    assert "Interrupted" not in ask_application(app, f"/flow?id={OTHER}").text
    found = ask_application(app, f"/api/flow?id={FLOW}").json()
    assert found["status"]["interruptions"]["last_30_days"]["failures"] == 7


def test_workers_are_on_their_page_and_in_json(view: EstateView) -> None:
    app = application(lambda: view, clock=lambda: NOW)
    assert "4 needed by the load of the last four weeks; " in ask_application(app, "/workers").text
    found = ask_application(app, "/api/status").json()
    assert found["connects"] == {
        "main": {"workers_needed": 4, "workers": 2, "limits_in_seconds": {"tasks": 86_400}},
        "west": {"workers_needed": None, "workers": None, "limits_in_seconds": {}},
    }
    assert found["throughput"][FLOW]["balance"] == pytest.approx(1.8)
    json.dumps(found, allow_nan=False)


# --- what is needed ---------------------------------------------------------------------------------------------------


class ThreeWorkers(FakeConnect):
    """A Connect cluster with a task of a stranger on a worker of its own."""

    def __init__(self) -> None:
        super().__init__(source_topics={"orders": 4, "logs.web": 4})
        source = {"connector.class": f"{MIRROR}MirrorSourceConnector", "source.cluster.alias": "a"}
        self.add("mm2.a.hub.source.logs", {**source, "topics": "logs[.].*", "tasks.max": "2"})
        self.add("theirs", {"connector.class": "com.acme.Sink"})
        self.worker_ids = {None: "w1:8083", 0: "w2:8083", 1: "w3:8083"}


@pytest.mark.usefixtures("impatient")
def test_needs_are_those_of_size_and_fleet(tmp_path: Path, mock_cluster: KafkaAccess) -> None:
    """28 MB/s of logs in four partitions, of which one has more than a task can carry."""
    tree = tmp_path / "tree"
    tree.mkdir()
    with serving(ThreeWorkers()) as url:
        declare(tree, *addresses(mock_cluster))
        (tree / "x.yaml").write_text((tree / "x.yaml").read_text().replace("http://127.0.0.1:1", url))
        for topic in ("logs.web", "orders"):
            produce(mock_cluster, topic)
        rates = {("a", "logs.web", number): 12e6 if number == 2 else 3e6 for number in range(4)}
        needs = estate_needs(Workspace((tree,)), measured(tmp_path / "store", rates))
    assert needs.unknown == ""
    logs = needs.flows["logs:a->hub"]
    assert (logs.tasks, logs.usable_bytes_per_second) == (3, 7e6)
    assert [(hot.topic, hot.partition) for hot in logs.hot_partitions] == [("logs.web", 2)]
    assert needs.connects["w"] == ConnectNeed(1, 3)


def test_a_store_without_roll_ups_makes_needs_unknown(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("owner: ann\n")
    needs = estate_needs(Workspace((tmp_path,)), tmp_path / "store")
    assert (needs.flows, needs.connects) == ({}, {})
    assert needs.unknown
