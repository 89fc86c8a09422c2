"""A made estate of nine flows on three Connect clusters, as a small shop has it on a bad morning: one FAILED, one paused, one late, one with a loss, one that differs from the tree, one whose workers are down; an apply an hour ago and a restart since."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from mm2mgr.assignment_text import PLUGIN_CLASS
from mm2mgr.connect.types import SOURCE_CLASS
from mm2mgr.errors import Failure
from mm2mgr.evidence.flow_load import ConnectNeed, EstateNeeds, MeasuredLoad
from mm2mgr.observe.lag_report import Amount
from mm2mgr.observe.trend import FLOW, LagPoint
from mm2mgr.operations.estate_view import EstateView, Survey, after_look
from mm2mgr.operations.estate_workers import SeenWorker, SeenWorkers
from mm2mgr.operations.history import HistoryReport
from mm2mgr.operations.watch import WatchdogView, WatchRound
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import ClusterPlan, Plan
from mm2mgr.plan.history import HistoryEntry
from mm2mgr.problems.connectors import ConfigDiffers, TaskFailed, classify
from mm2mgr.problems.flows import RestingWhileLagGrows
from mm2mgr.problems.health import ConnectorState, FlowStatus, TaskState
from mm2mgr.problems.kind import LiveProblem, ProblemEvidence, ProblemSubject
from mm2mgr.problems.loss import RecordsLost
from mm2mgr.problems.watchdog import WatchAction
from tests.serve.estate import SURVEY, flow_status, look_of, loss, view_of

_RATES = {
    "orders:eu->hub": 900.0,
    "orders:us->hub": 0.0,
    "payments:eu->hub": 240.0,
    "payments:us->hub": 0.0,
    "clicks:eu->hub": 5200.0,
    "clicks:us->hub": 3100.0,
    "logs:eu->archive": 1400.0,
    "logs:us->archive": 800.0,
    "metrics:edge->hub": 60.0,
}
_LAGS = {"orders:us->hub": 184_000, "payments:us->hub": 5_200, "logs:us->archive": 12_400}
_CONNECTS = {"hub": "main", "archive": "archive"}
LATE = "logs:us->archive"
BROKEN = "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [orders]"


def shop(at: float | None = None) -> EstateView:
    """Return the view after two looks, the newest at this time: now where none is said."""
    now = time.time() if at is None else at
    flows = [_flow(flow, number) for number, flow in enumerate(_RATES)]
    lags = {flow: {flow.partition(":")[0]: _LAGS.get(flow, 0)} for flow in _RATES}
    lost = replace(loss("logs:eu->archive", "logs"), seen=now - 1500)
    down = [
        replace(flow, state="unknown", health="unknown", tasks=()) if flow.connect == "edge" else flow for flow in flows
    ]
    silent = {"connect edge": Failure("edge: http://edge-1:8083: connection refused", "start its workers")}
    beside = tuple(
        ConnectorState(
            connect, f"mm2.eu.{target}.checkpoint", "checkpoint", f"eu->{target}", "RUNNING", "ok",
            (TaskState(0, "RUNNING", f"{connect}-1:8083"),),
        )
        for target, connect in _CONNECTS.items()
    )  # fmt: skip
    first, last = (
        look_of(states, lags, at=taken_at, losses=[lost], failures=failures)
        for states, taken_at, failures in ((flows, now - 30, {}), (down, now, silent))
    )
    moving = tuple(replace(facts, points={FLOW: tuple(_points(facts.flow, now))}) for facts in last.lag.flows)
    last = replace(
        last,
        lag=replace(last.lag, flows=moving),
        status=replace(last.status, companions=beside),
        labels={"eu": ("region=eu", "tier=local"), "us": ("region=us", "tier=local"), "edge": ("tier=edge",)},
    )
    load = {
        source: {
            TopicPartition(flow.partition(":")[0], 0): (rate * 700.0, rate)
            for flow, rate in _RATES.items()
            if f":{source}->" in flow
        }
        for source in ("eu", "us", "edge")
    }
    needs = EstateNeeds(connects={"main": ConnectNeed(3, 3), "archive": ConnectNeed(1, 2), "edge": ConnectNeed(1, 1)})
    survey = Survey(
        now - 60,
        SURVEY.findings,
        Plan("shop", (ClusterPlan("main", ()),)),
        HistoryReport(tuple(_changes(now))),
        load=MeasuredLoad(load, "the hour before"),
        needs=needs,
        workers=_workers(),
    )
    place = {"owner": "shop", "tree": "clusters", "commit": "ab12cd34ef56", "host": "ops-1", "looks": 412}
    view = after_look(view_of(first, survey=survey, watchdog=_watchdog(now), **place), last)
    assert view.look
    late = replace(view.look.totals[LATE], seconds=Amount(1440.0))
    totals = {**view.look.totals, LATE: late}
    return replace(view, look=replace(view.look, totals=totals, max_lag_seconds={LATE: 900.0}))


def _changes(now: float) -> Iterator[HistoryEntry]:
    """Yield an apply of three connectors, an hour ago."""
    when = datetime.fromtimestamp(now - 3600, UTC).isoformat(timespec="milliseconds")
    for number, flow in enumerate(("orders:eu->hub", "payments:eu->hub", "clicks:eu->hub")):
        source, _, target = flow.partition(":")[2].partition("->")
        yield HistoryEntry(
            f"7c1d-{number}", when, "ann", "ab12cd34ef56", "apply", "shop", "main",
            f"mm2.{source}.{target}.source.{flow.partition(':')[0]}", (flow,), "update", "more partitions",
            outcome="done", user="deploy", host="ops-1",
        )  # fmt: skip


def _watchdog(now: float) -> WatchdogView:
    """Return a watchdog that restarted a task twenty minutes ago."""
    subject = ProblemSubject("main", "mm2.eu.hub.source.clicks", "clicks:eu->hub", (0,))
    restarted = LiveProblem(TaskFailed("no leader", ("unavailable", "")), subject)
    return WatchdogView().after_round(WatchRound(1, now - 1200, (WatchAction("restart", restarted, number=1),)))


def _flow(flow: str, number: int) -> FlowStatus:
    pair = flow.partition(":")[2]
    source, _, target = pair.partition("->")
    connect = "edge" if source == "edge" else _CONNECTS[target]
    worker = f"{connect}-{number % (2 if connect == 'archive' else 3) + 1}:8083" if connect != "edge" else "edge-1:8083"
    status = flow_status(
        flow, pair, connect=connect, connector=f"mm2.{source}.{target}.source.{flow.partition(':')[0]}",
        tasks=(TaskState(0, "RUNNING", worker, 1),),
    )  # fmt: skip

    def wrong(evidence: ProblemEvidence, seconds: float = 600.0, **more: object) -> FlowStatus:
        subject = ProblemSubject(connect, status.connector, flow, (0,) if "tasks" in more else ())
        return replace(status, health="problem", problems=(LiveProblem(evidence, subject, seconds),), **more)  # type: ignore[arg-type]

    if flow == "orders:us->hub":
        return wrong(TaskFailed(BROKEN, classify(BROKEN)), tasks=(TaskState(0, "FAILED", worker, 1),))
    if flow == "payments:us->hub":
        return wrong(
            RestingWhileLagGrows("PAUSED", 5_200, "", 900), state="PAUSED", tasks=(TaskState(0, "PAUSED", worker, 1),)
        )
    if flow == "logs:eu->archive":
        entry = loss(flow, "logs")
        return wrong(RecordsLost("logs", "retention", 7, 7, True, None, 1, (entry,)), 1500.0)
    if flow == "clicks:us->hub":
        return wrong(ConfigDiffers(("tasks.max", "sync.topic.acls.enabled"), adopted=False))
    return status


def _points(flow: str, now: float) -> list[LagPoint]:
    rate, lag = _RATES[flow], _LAGS.get(flow, 0)
    ends = [100_000 + round(rate * 30 * look) for look in range(6)]
    return [LagPoint(now - 30 * (5 - look), 1, 0, end + lag, end) for look, end in enumerate(ends)]


def _workers() -> dict[str, SeenWorkers]:
    classes = {
        SOURCE_CLASS: "4.1.0",
        PLUGIN_CLASS: "2",
        "org.apache.kafka.connect.mirror.MirrorCheckpointConnector": "4.1.0",
    }
    older = {SOURCE_CLASS: "4.0.0", PLUGIN_CLASS: "1"}
    main = [SeenWorker(f"main-{number}:8083", "4.1.0", classes) for number in (1, 2, 3)]
    archive = [SeenWorker("archive-1:8083", "4.1.0", classes), SeenWorker("archive-2:8083", "4.0.0", older)]
    edge = [SeenWorker("edge-1:8083", failure="edge-1:8083: connection refused")]
    no_group = "their group could not be read: not authorized"
    return {
        "main": SeenWorkers(tuple(main), 3, 10),
        "archive": SeenWorkers(tuple(archive), None, 10, no_group),
        "edge": SeenWorkers(tuple(edge), 1, 10, unknown="edge: http://edge-1:8083: connection refused"),
    }
