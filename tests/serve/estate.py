"""Made estates for the tests of `serve`: views of any size, without a cluster."""

from __future__ import annotations

import asyncio
import math
import shutil
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from mm2mgr import timing
from mm2mgr.assignment import Assignment
from mm2mgr.balance.triggers import Hold, TriggerDecision
from mm2mgr.comparison.differences import KeyChange
from mm2mgr.errors import Failure
from mm2mgr.evidence.traffic import FlowPast, TrafficColumns, TrafficPoint
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.subject import Spot
from mm2mgr.observe.lag import FlowLag, PartitionLag
from mm2mgr.observe.lag_report import FlowFacts, LagLevel
from mm2mgr.observe.losses import LossEntry
from mm2mgr.observe.trend import FLOW, LagPoint
from mm2mgr.operations.automatic_rebalance import FlowRound, LastRound, RebalanceRound, RebalancesView
from mm2mgr.operations.estate_view import EstateLook, EstateView, Survey, after_look
from mm2mgr.operations.history import HistoryReport
from mm2mgr.operations.lint import LintReport
from mm2mgr.operations.status import LagReport
from mm2mgr.operations.watch import WatchdogView, WatchRound
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.plan.changes import Change, ClusterPlan, Plan
from mm2mgr.plan.history import HistoryEntry
from mm2mgr.problems.connectors import NotApplied, TaskFailed
from mm2mgr.problems.health import FlowStatus, Status, TaskState
from mm2mgr.problems.kind import LiveProblem, ProblemSubject
from mm2mgr.problems.watchdog import WatchAction
from mm2mgr.serve.app import application
from mm2mgr.serve.server import Binding, Connections, listening, run
from tests.clock import ShownClock

NOW = 1_700_000_000.0
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
_CHANGE = Change(
    "main", "mm2.a.b.source.orders", "source", "update", ("orders:a->b",), (KeyChange("tasks.max", "1", "2"),)
)
_ALIKE = [Change("main", f"mm2.a.b.{kind}", kind, "no-op") for kind in ("checkpoint", "heartbeat")]
_ENTRY = HistoryEntry(
    "1", "2026-01-02T03:04:05.000", "ann", "", "apply", "ann", "main", "mm2.a.b.source.orders", action="update",
    reason="more <i>tasks</i>", outcome="done",
)  # fmt: skip
SURVEY = Survey(
    NOW,
    LintReport(
        (Finding("dead-key", "error", Spot("tree.yaml", 3), "no client has <b>it</b>", "remove it"),), 3, ("tree.yaml",)
    ),
    Plan("ann", (ClusterPlan("main", (_CHANGE, *_ALIKE)),)),
    HistoryReport((_ENTRY,)),
)


def flow_status(flow: str, pair: str, **more: object) -> FlowStatus:
    """Return a flow that is well, with one running task."""
    base = FlowStatus(
        "main", f"mm2.{flow}", "source", pair, "RUNNING", "ok", (TaskState(0, "RUNNING", "worker:8083", 2),), flow=flow
    )
    return replace(base, **more)  # type: ignore[arg-type]


def facts(status: FlowStatus, lags: Mapping[str, int] | None = None, looks: int = 3) -> FlowFacts:
    """Return the lag of a flow: records that wait by topic, one partition each."""
    behind = {"orders": 0} if lags is None else lags
    parts = tuple(
        PartitionLag(TopicPartition(topic, 0), Offsets(0, 100 + lag), 99, 100, 100, task=0)
        for topic, lag in behind.items()
    )
    total = sum(behind.values())
    points = tuple(LagPoint(NOW - 30 * (looks - at), len(parts), 0, 100 + total, 100) for at in range(looks))
    unknown = "the Connect cluster does not answer" if status.state == "unknown" else None
    lag = (
        FlowLag(unknown=unknown)
        if unknown
        else FlowLag(parts, len(parts), assignment=Assignment((tuple(one.partition for one in parts),)))
    )
    return FlowFacts(status.flow, "main", status.connector, status.state, NOW, 60.0, lag, {FLOW: points})


def look_of(
    flows: Sequence[FlowStatus],
    lags: Mapping[str, Mapping[str, int]] | None = None,
    *,
    at: float = NOW,
    failures: Mapping[str, Failure] | None = None,
    losses: Sequence[LossEntry] = (),
) -> EstateLook:
    """Return a look at these flows, with records that wait by flow and topic."""
    status = Status(at, tuple(flows), failures=failures or {}, losses=tuple(losses))
    found = [facts(one, (lags or {}).get(one.flow)) for one in flows]
    report = LagReport(at, LagLevel.FLOW, tuple(found), failures or {})
    return EstateLook(at - 2.0, at, status, report, {one.flow: one.total for one in found})


def view_of(look: EstateLook, **more: object) -> EstateView:
    """Return the view after a first look."""
    first = EstateView(look.began_at, 30.0, owner="ann")
    return replace(after_look(first, look), **more)  # type: ignore[arg-type]


def problem(flow: str, connector: str = "mm2") -> LiveProblem:
    """Return a problem of a flow that has the lag of nobody."""
    return LiveProblem(NotApplied(), ProblemSubject("main", connector, flow))


def watchdog_view(flow: str, connector: str, why: str) -> WatchdogView:
    """Return what a watchdog did about a task that FAILED with these words: a restart, and one that Connect refused."""
    failed = LiveProblem(TaskFailed(why, ("time-out", "")), ProblemSubject("main", connector, flow, (0,)))
    actions = (WatchAction("restart", failed, number=1), WatchAction("restart", failed, number=2, error=why))
    return WatchdogView().after_round(WatchRound(1, NOW, actions, unread={connector: why}))


def rebalances_view(flow: str, hold: Hold | None = None, text: str = "busy") -> RebalancesView:
    """Return what the loop of rebalances did: a round that wrote with these words, then a look that `hold` holds."""
    last = LastRound(NOW - 60, text, 1.8, 1.02)
    written = FlowRound(flow, "main", "mm2", TriggerDecision("plan", "overload", reason=text), "written", text, 1, last)
    decision = TriggerDecision("keep", None, hold, text, (text,), NOW + 3600)
    view = RebalancesView().after_round(RebalanceRound(1, NOW - 60, (written,)))
    return view.after_round(RebalanceRound(2, NOW, (replace(written, decision=decision, outcome="", detail=""),)))


def loss(flow: str, topic: str) -> LossEntry:
    """Return a loss of seven records."""
    where = TopicPartition(topic, 0)
    return LossEntry("abc1234567", flow, "a", where, "id", "retention", "log-start", 11, 17, 7, 7, None, NOW - 60)


def ask_application(app: ASGIApp, path: str, *, method: str = "GET", **more: Any) -> httpx.Response:
    """Ask an application, without a socket."""

    async def answered() -> httpx.Response:
        async with httpx.AsyncClient(
            trust_env=False, transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client:
            return await client.request(method, path, **more)

    return asyncio.run(answered())


def flow_traffic(now: float, rate: float = 200.0, lag: int = 300, record_bytes: float = 512.0) -> FlowPast:
    """Return 31 days of a flow whose source gets more by day than by night; nobody looked from 30 to 27 h ago, and the
    lag was a hundred times as much from 5 to 4 h ago."""
    fine, hours = list[TrafficPoint](), list[TrafficPoint]()
    volumes, total = dict[int, float](), 0.0
    last, began = int(now // 300) * 300, int(now // 3600) * 3600 - 31 * 86_400
    for at in range(began + 300, last + 1, 300):
        of_day = rate * (1 + 0.6 * math.sin(2 * math.pi * (at / 86_400 - 0.3)))
        total += 300 * of_day
        hour, ago = at // 3600, now - at
        if 27 < ago / 3600 < 30:
            continue
        waits = lag * (100 if 4 < ago / 3600 < 5 else 1)
        seconds = 0.0 if 26.8 < ago / 3600 <= 27 else 300.0
        counts = (seconds, seconds * of_day, seconds * of_day)
        point = TrafficPoint(at, 6, int(total), int(total) - waits, waits, waits, *counts)
        if ago < 3 * 86_400:
            fine.append(point)
        if hours and hours[-1].time // 3600 == hour:
            before = hours.pop()
            sums = (mine + theirs for mine, theirs in zip(before[6:], counts, strict=True))
            point = TrafficPoint(*point[:4], (before.lag + waits) / 2, max(before.most_lag, waits), *sums)
        hours.append(point)
        volumes[hour] = of_day * record_bytes
    return FlowPast(columns_of(fine), columns_of(hours), volumes)


def columns_of(points: Sequence[TrafficPoint]) -> TrafficColumns:
    """Return points as columns."""
    rows = list(zip(*points, strict=True)) or [()] * 9
    whole = tuple(array("q", rows[place]) for place in (1, 2, 3))
    return TrafficColumns(whole, tuple(array("d", rows[place]) for place in (0, 4, 5, 6, 7, 8)))


@contextmanager
def serving(
    view: Callable[[], EstateView], connections: Connections | None = None, *, tls: Path | None = None, **more: Any
) -> Iterator[str]:
    """Run the real server over a function that returns the newest view, on a free port, and yield its URL. `tls`: certificate and key."""
    started, stop = threading.Event(), list[Callable[[], object]]()

    @contextmanager
    def halting(first: Callable[[], None], _: Callable[[], None]) -> Iterator[asyncio.Event]:
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(first))
        started.set()
        yield asyncio.Event()

    binding = Binding(port=0, certificate=tls, key=tls)
    crowd = connections or Connections()
    app = application(view, closed=crowd.closed, **more)
    clock = timing.use(ShownClock(more["clock"])) if "clock" in more else nullcontext()
    with listening(binding) as (listener, url), clock:
        line = (app, binding, listener, halting, crowd)
        thread = threading.Thread(target=run, args=line, daemon=True)
        thread.start()
        assert started.wait(10)
        try:
            yield url
        finally:
            stop[0]()
            thread.join(10)
        assert not thread.is_alive(), "it ends"
