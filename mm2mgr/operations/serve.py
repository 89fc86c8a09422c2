"""`serve`: looks at the estate again and again in the background, and holds the newest view of it.

Showing the view asks no cluster: requests cost nothing there, however many come. One thread looks at status and lag;
another one makes the slow part (`Survey`: lint, plan, history), because a plan of a large estate takes longer than the
time between two looks. Where they are asked for, another one is the watchdog, the same as `watch`, one reconciles, the
same as `reconcile`, one rebalances (these three alone write to clusters), one samples, the same as `sample --follow`,
one audits, the same as `audit --follow`, one rolls up, the same as `sample --follow --throughput`, and one checks
failover, the same as `failover check`. Rebalances beside `reconcile` are made in its rounds, under its lease.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from mm2mgr import timing
from mm2mgr.apply.history import tree_commit
from mm2mgr.errors import Mm2mgrError, cause
from mm2mgr.evidence.flow_load import (
    EstateNeeds,
    FlowThroughput,
    MeasuredLoad,
    TaskLoad,
    estate_needs,
    measured_load,
    throughput_of,
)
from mm2mgr.evidence.traffic import (
    HOUR_SECONDS,
    RANGES,
    USUAL_RANGE,
    TrafficHistory,
    TrafficPoint,
    history_dict,
    traffic_history,
)
from mm2mgr.garbage import collect_garbage
from mm2mgr.observe.lag_report import LagLevel
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.observe.trend import FLOW, LagPoint
from mm2mgr.operations.automatic_rebalance import (
    LoadFacts,
    RebalanceOrder,
    RebalanceRound,
    RebalancesView,
    rebalances,
)
from mm2mgr.operations.failover_watch import (
    Check,
    FailoverOrder,
    FailoverRound,
    FailoverView,
    check_pair,
    refuse_without_pairs,
    watch_failover,
)
from mm2mgr.operations.plan import ReconcileOrder, ReconcileRound, ReconcileView, reconcile
from mm2mgr.operations.sample import SampleOrder, SampleView, refuse_unsampled, sample
from mm2mgr.operations.status import LagOptions, LagReport, report
from mm2mgr.operations.watch import WatchdogView, WatchOrder, WatchRound, watch
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace
from mm2mgr.problems.flows import Resting
from mm2mgr.problems.health import with_lag
from mm2mgr.problems.status import observe
from mm2mgr.text import few
from mm2mgr.timing import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from mm2mgr.apply.waves import Event
    from mm2mgr.observe.lag_report import FlowFacts, LagRow
    from mm2mgr.operations.audit import AuditRound, FollowOrder
    from mm2mgr.operations.estate_workers import SeenWorkers
    from mm2mgr.operations.history import HistoryReport
    from mm2mgr.operations.lint import LintReport
    from mm2mgr.operations.throughput import RollUpOrder, RollUpRound
    from mm2mgr.plan.changes import Plan
    from mm2mgr.problems.health import FlowStatus, Status
    from mm2mgr.samples.follow import Round
    from mm2mgr.samples.schema import Store

Part = TypeVar("Part")
Done = TypeVar("Done")
ViewState = Literal["starting", "ok", "stale"]
_CHANGES_KEPT = 1000
_NEW_TOPICS_KEPT = 200
_NEW_LOOK_SECONDS = 0.5
_JOIN_SECONDS = 0.1
_SAMPLE_AGAIN_SECONDS = 60.0
_LOOK_BEFORE_SECONDS = 900.0  # before the hour that is drawn, for the rate at its beginning
_STALE_LOOKS, _STALE_SECONDS = 3, 60.0  # a look that waits for a dead cluster may take most of a minute


@dataclass(frozen=True)
class EstateLook:
    """One complete look: status and lag of all flows, and the sums per flow. Times in seconds since 1970.

    `max_lag_seconds`: the `max_lag` of flows that declare one and are not declared paused or stopped; `labels`: those
    of Kafka clusters, as `key=value`, by alias.
    """

    began_at: float
    ended_at: float
    status: Status
    lag: LagReport
    totals: Mapping[str, LagRow]
    max_lag_seconds: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def late_flows(self) -> Mapping[str, float]:
        """The flows that are further behind than their `max_lag`, with the seconds, the furthest beyond it first;
        without those that were paused by hand, whose problem says so."""
        limits = self.max_lag_seconds
        told = {problem.subject.flow for problem in self.status.problems() if isinstance(problem.evidence, Resting)}
        behind = {flow: self.totals[flow].seconds.value or 0.0 for flow in limits if flow in self.totals.keys() - told}
        late = [(flow, seconds) for flow, seconds in behind.items() if seconds > limits[flow]]
        return dict(sorted(late, key=lambda flow: limits[flow[0]] / flow[1]))


class NewTopic(NamedTuple):
    """A topic that a flow takes, and did not when it was read before; seen at this time, in seconds since 1970."""

    seen_at: float
    flow: str
    topic: str


@dataclass(frozen=True)
class LastKnown:
    """What was last known of one flow, at a time at which its Connect cluster could be read."""

    taken_at: float
    status: FlowStatus
    lag: FlowFacts
    total: LagRow
    json_keys = "taken_at status lag=total"


@dataclass(frozen=True)
class WrittenFlow:
    """What the tree says of a flow: its settings as key, value and origin (masked), and its connectors as Connect
    cluster and name."""

    settings: tuple[tuple[str, str, str], ...] = ()
    connectors: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Survey:
    """What needs longer than a look, and when it was read, in seconds since 1970. A text says why a part could not be
    made.

    `load`: what the store knows of the last hour; `needs`: the tasks and workers that the load of four weeks asks for;
    `workers`: those of each Connect cluster; `traffic`: lag and rates of 31 days; `declared`: flows as the tree has
    them.
    """

    taken_at: float
    findings: LintReport | str
    plan: Plan | str
    history: HistoryReport | str
    load: MeasuredLoad = field(default_factory=MeasuredLoad)
    needs: EstateNeeds = field(default_factory=EstateNeeds)
    workers: Mapping[str, SeenWorkers] = field(default_factory=dict)
    traffic: TrafficHistory = field(default_factory=TrafficHistory)
    declared: Mapping[str, WrittenFlow] = field(default_factory=dict)


@dataclass(frozen=True)
class EstateView:
    """Everything that is known now, of the tree of `owner`. `began_at`: when the running look began (None: none runs);
    `error`: why the last one failed.

    Ages are those of a clock that nobody can set: `started_tick` and `looked_tick` are the start and the end of the
    last complete look on it, and `tick` is now. Without them the clock of `started_at` and of the looks counts. `known`
    has the flows that were ever read. `tree_error`: the YAML tree was changed and is wrong, so the one before it
    counts. `watchdog`, `rebalances`, `failover`, `reconciles`, `samples`: None where none were asked for. `audit`: the
    last round of audits of this process. `tree`, `commit`, `host`: the name of the tree, its commit in git, and the
    machine of this process. `quiet_looks`: how many of the newest looks saw no problem, and `quiet_since` when the
    first of them ended. `recent`: the looks of the last hour by flow. `topics_seen`: the topics that each
    flow ever took; `new_topics`: those that came later than the first that were read.
    """

    started_at: float
    every_seconds: float
    look: EstateLook | None = None
    began_at: float | None = None
    looks: int = 0
    failed_looks: int = 0
    error: str = ""
    known: Mapping[str, LastKnown] = field(default_factory=dict)
    survey: Survey | None = None
    tree_error: str = ""
    owner: str = ""
    watchdog: WatchdogView | None = None
    audit: AuditRound | None = None
    rebalances: RebalancesView | None = None
    failover: FailoverView | None = None
    started_tick: float | None = None
    looked_tick: float | None = None
    tree: str = ""
    commit: str = ""
    host: str = ""
    quiet_looks: int = 0
    quiet_since: float | None = None
    recent: Mapping[str, tuple[LagPoint, ...]] = field(default_factory=dict)
    topics_seen: Mapping[str, frozenset[str]] = field(default_factory=dict)
    new_topics: tuple[NewTopic, ...] = ()
    reconciles: ReconcileView | None = None
    samples: SampleView | None = None

    @property
    def stale_after_seconds(self) -> float:
        """The age from which on a look is stale."""
        return max(_STALE_LOOKS * self.every_seconds, self.every_seconds + _STALE_SECONDS)

    def age_seconds(self, tick: float) -> float | None:
        """Return how long ago the last complete look ended; None before the first."""
        if self.look is None:
            return None
        return max(0.0, tick - (self.look.ended_at if self.looked_tick is None else self.looked_tick))

    def state(self, tick: float) -> ViewState:
        """Return `starting` before the first look has ended, `stale` where that, or a next one, takes too long."""
        age = self.age_seconds(tick)
        started = self.started_at if self.started_tick is None else self.started_tick
        if (tick - started if age is None else age) > self.stale_after_seconds:
            return "stale"
        return "starting" if age is None else "ok"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the last look went on without, such as files of the store that are damaged."""
        return self.look.lag.warnings if self.look else ()

    @property
    def load(self) -> MeasuredLoad:
        return self.survey.load if self.survey else MeasuredLoad(unknown="it is read at a slower pace")

    @property
    def needs(self) -> EstateNeeds:
        return self.survey.needs if self.survey else EstateNeeds(unknown="it is judged at a slower pace")

    @cached_property
    def throughput(self) -> Mapping[str, FlowThroughput]:
        """What each flow moves that the last look could read, and how its tasks share the load."""
        return {
            status.flow: throughput_of(self.facts(status), self.task_loads(status), self.needs.flows.get(status.flow))
            for status in (self.look.status.flows if self.look else ())
            if status.state != "unknown"
        }

    @property
    def traffic(self) -> TrafficHistory:
        return self.survey.traffic if self.survey else TrafficHistory(unknown="it is read at a slower pace")

    def traffic_points(self, flow: str, now: float, seconds: float) -> list[TrafficPoint]:
        """Return the lag and the rates of a flow over the newest so many seconds."""
        return self.traffic.of_flow(flow).points(now, seconds, self.recent.get(flow, ()))

    def status(self, flow: str) -> FlowStatus | None:
        """Return what the last look saw of a flow; None for one that is not there."""
        return next((status for status in self.look.status.flows if status.flow == flow), None) if self.look else None

    def total(self, flow: str) -> LagRow | None:
        return self.look.totals.get(flow) if self.look else None

    def last_known(self, status: FlowStatus) -> LastKnown | None:
        """Return what was last known of a flow that cannot be read now."""
        return self.known.get(status.flow) if status.state == "unknown" else None

    def facts(self, status: FlowStatus) -> FlowFacts:
        """Return the lag of a flow; while its workers do not answer it is at least that since they stored offsets last,
        and where that is not known, as it was last known."""
        assert self.look is not None, "the status is of its look"
        newest = next(lag for lag in self.look.lag.flows if lag.flow == status.flow)
        last_known = self.last_known(status)
        return last_known.lag if last_known and newest.total.records.value is None else newest

    def task_loads(self, status: FlowStatus) -> list[TaskLoad]:
        """Return what the tasks of a flow carried in the last hour of the store."""
        last_known = self.last_known(status)
        facts = last_known.lag if last_known else self.facts(status)
        return self.load.of_tasks(status.pair.split("->")[0], facts.lag.assignment)

    def health_dict(self, tick: float) -> dict[str, object]:
        """Return whether looks succeed, without a word about the estate."""
        state = self.state(tick)
        ended_at = self.look.ended_at if self.look else None
        return {
            "state": state,
            "stale_since": (ended_at or self.started_at) + self.stale_after_seconds if state == "stale" else None,
            "last_look_at": ended_at,
            "age_seconds": self.age_seconds(tick),
            "running_look_began_at": self.began_at,
            "looks": self.looks,
            "failed_looks": self.failed_looks,
        }

    def overview_dict(self, tick: float) -> dict[str, object]:
        """Return the overview as `/api/status` has it: `status`, `lag` and `throughput` by flow, `connects` with the
        workers at work and needed, and what was `last_known` of flows that cannot be read now."""
        statuses = self.look.status.flows if self.look else ()
        last_known = {status.flow: self.last_known(status) for status in statuses}
        return {
            **self.health_dict(tick),
            "every_seconds": self.every_seconds,
            "error": self.error,
            "tree_error": self.tree_error,
            "warnings": self.warnings,
            "status": self.look.status if self.look else None,
            "lag": self.look.totals if self.look else {},
            "throughput": self.throughput,
            "connects": self.needs.connects,
            "last_known": {flow: last for flow, last in sorted(last_known.items()) if last},
        }

    def flow_dict(self, status: FlowStatus, now: float, range_name: str = USUAL_RANGE) -> dict[str, object]:
        """Return one flow in full, as `/api/flow` has it, with the history of a range of `RANGES`."""
        facts, history = self.facts(status), self.traffic.of_flow(status.flow)
        past = self.traffic_points(status.flow, now, RANGES[range_name])
        return {
            "flow": status.flow,
            "taken_at": facts.taken_at,
            "status": status,
            "last_known": self.last_known(status),
            "total": facts.total,
            "tasks": facts.rows(LagLevel.TASK),
            "task_load": self.task_loads(status),
            "load_hours": self.load.hours,
            "load_unknown": self.load.unknown,
            "throughput": self.throughput.get(status.flow),
            "needed": self.needs.flows.get(status.flow),
            "needed_unknown": self.needs.unknown,
            "topics": facts.rows(LagLevel.TOPIC),
            "partitions": facts.rows(LagLevel.PARTITION),
            "points": [{"time": point.time, "lag_records": point.lag_records} for point in facts.points.get(FLOW, ())],
            "history": {
                "range": range_name,
                "points": history_dict(history, past),
                "unknown": self.traffic.unknown,
                "bytes_unknown": self.traffic.bytes_unknown,
            },
        }


@dataclass(frozen=True)
class WatchdogOrder:
    """A watchdog inside `serve`: what `watch` takes, and what is called with each of its looks."""

    order: WatchOrder = field(default_factory=WatchOrder)
    every_seconds: float = 10.0
    events: Path | None = None
    report: Callable[[WatchRound], object] = lambda _: None


@dataclass(frozen=True)
class AuditsOrder:
    """Audits inside `serve`: what `follow_audits` takes, and what is called with each round."""

    order: FollowOrder
    report: Callable[[AuditRound], object] = lambda _: None


@dataclass(frozen=True)
class RollUpsOrder:
    """Roll-ups inside `serve`: what `follow_roll_ups` takes, and what is called with each round."""

    order: RollUpOrder
    report: Callable[[RollUpRound], object] = lambda _: None


@dataclass(frozen=True)
class RebalancesOrder:
    """Rebalances inside `serve`: what may be rebalanced, and what is called with each look."""

    order: RebalanceOrder
    events: Path | None = None
    report: Callable[[RebalanceRound], object] = lambda _: None


@dataclass(frozen=True)
class ReconcilesOrder:
    """`reconcile` inside `serve`: what it takes, and what is called with each of its rounds and with what happens in
    one. `rebalances` of the order are left to `ServeOrder.rebalances`."""

    order: ReconcileOrder = field(default_factory=ReconcileOrder)
    events: Path | None = None
    report: Callable[[ReconcileRound], object] = lambda _: None
    progress: Callable[[Event], None] = lambda _: None


@dataclass(frozen=True)
class SamplesOrder:
    """Sampling inside `serve`: what `sample` takes, and what is called with each round and each damaged file."""

    order: SampleOrder
    report: Callable[[Round], object] = lambda _: None
    warn: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class FailoverChecksOrder:
    """Checks of failover inside `serve`: what checks a pair, and what is called with each turn."""

    order: FailoverOrder
    check: Check = check_pair
    report: Callable[[FailoverRound], object] = lambda _: None


@dataclass(frozen=True)
class ServeOrder:
    """How often to look (seconds between the end of one look and the next), and how often to make the slow part;
    `store`: as for `lag`.

    `watchdog`, `reconciles`, `rebalances`: without all three nothing is ever written to clusters. `audits`, `failover`,
    `samples`: None for none.
    `roll_ups`: None for none, and then no Spark session ever starts for them.
    """

    every_seconds: float = 30.0
    survey_seconds: float = 300.0
    store: Store = DEFAULT_STORE
    watchdog: WatchdogOrder | None = None
    audits: AuditsOrder | None = None
    roll_ups: RollUpsOrder | None = None
    rebalances: RebalancesOrder | None = None
    failover: FailoverChecksOrder | None = None
    reconciles: ReconcilesOrder | None = None
    samples: SamplesOrder | None = None


def look(workspace: Workspace, store: Store = DEFAULT_STORE) -> EstateLook:
    """Look at all flows once and remember what was seen, as `status` and `lag` do. No failed cluster raises."""
    began_at, began, flows = time.time(), timing.now(), workspace.topology.flows
    options = ObserveOptions(store=store, shares=True)
    observed = wait_for(observe(workspace.topology, workspace.connectors, options=options))
    lag = report(workspace.topology, observed, flows, LagOptions(store=store))
    totals = {facts.flow: facts.total for facts in lag.flows}
    limits = {
        flow.id: most for flow in flows if (most := flow.settings.max_lag) and flow.settings.state in (None, "running")
    }
    labels = {
        alias: tuple(f"{key}={value}" for key, value in sorted(cluster.model.labels.items()))
        for alias, cluster in workspace.topology.clusters.items()
        if cluster.model.labels
    }
    status = with_lag(observed.status, totals, limits)
    return EstateLook(began_at, began_at + timing.now() - began, status, lag, totals, limits, labels)


def survey(workspace: Workspace, store: Store = DEFAULT_STORE) -> Survey:
    """Make the slow part: lint of the tree, the plan, the newest changes, the measured load and what it needs, and the
    workers."""
    from mm2mgr.operations.estate_workers import estate_workers
    from mm2mgr.operations.history import history
    from mm2mgr.operations.lint import lint
    from mm2mgr.operations.plan import plan
    from mm2mgr.problems.health import flow_settings

    flows, now = workspace.topology.flows, time.time()
    connectors = {flow.id: tuple((of.connect, of.name) for of in workspace.connectors_of([flow])) for flow in flows}
    return Survey(
        now,
        _or_error(lambda: lint(workspace)),
        _or_error(lambda: plan(workspace)),
        _or_error(lambda: history(workspace, last=_CHANGES_KEPT)),
        measured_load(store),
        estate_needs(workspace, store),
        estate_workers(workspace),
        traffic_history(str(workspace.topology.owner), flows, store, now),
        {flow.id: WrittenFlow(tuple(flow_settings(flow)), connectors[flow.id]) for flow in flows},
    )


def _or_error(make: Callable[[], Part]) -> Part | str:
    try:
        return make()
    except Exception as error:  # one part that fails ends neither the others nor the server
        return cause(error)


def after_look(view: EstateView, newest: EstateLook, tick: float | None = None) -> EstateView:
    """Return the view after a complete look that ended at this tick; flows that it could not read stay known."""
    lags = {facts.flow: facts for facts in newest.lag.flows}
    declared = {flow.flow: view.known[flow.flow] for flow in newest.status.flows if flow.flow in view.known}
    read = {
        flow.flow: LastKnown(newest.status.taken_at, flow, lags[flow.flow], newest.totals[flow.flow])
        for flow in newest.status.flows
        if flow.state != "unknown"
    }
    looks, is_quiet = view.looks + 1, not (newest.status.problems() or newest.status.failures or newest.late_flows)
    recent = {flow: _recent(view.recent.get(flow, ()), facts.points.get(FLOW, ())) for flow, facts in lags.items()}
    view = replace(view, look=newest, looked_tick=tick, began_at=None, looks=looks, error="", recent=recent)
    view = _with_topics(replace(view, known={**declared, **read}), read)
    if not is_quiet:
        return replace(view, quiet_looks=0, quiet_since=None)
    return replace(view, quiet_looks=view.quiet_looks + 1, quiet_since=view.quiet_since or newest.ended_at)


def _with_topics(view: EstateView, read: Mapping[str, LastKnown]) -> EstateView:
    """Return the view with the topics that flows take; what was not read this time is not new the next time."""
    flow_topics, new = dict(view.topics_seen), list(view.new_topics)
    for flow, now in read.items():
        before = flow_topics.get(flow, frozenset())
        topics = {lag.partition.topic for lag in now.lag.lag.counted_partitions}
        flow_topics[flow] = before | topics
        new += [NewTopic(now.taken_at, flow, topic) for topic in sorted(topics - before)] if before else []
    return replace(view, topics_seen=flow_topics, new_topics=tuple(new[-_NEW_TOPICS_KEPT:]))


def tree_name(files: Sequence[Path]) -> str:
    """Return a tree as it was typed; of what has an absolute path the name alone, as folders may tell of people."""
    return few([file.name if file.is_absolute() else str(file) for file in files])


def _recent(earlier: tuple[LagPoint, ...], points: Sequence[LagPoint]) -> tuple[LagPoint, ...]:
    """Return the looks of the last hour. `points` are thinned out; those of a clock that was set back begin anew."""
    if not points:
        return earlier
    newest = points[-1].time
    oldest = newest - HOUR_SECONDS - _LOOK_BEFORE_SECONDS
    before = [point for point in earlier if oldest <= point.time < newest]
    last = before[-1].time if before else oldest
    return (*before, *(point for point in points if point.time > last))


class EstateWatch:
    """Looks in the background from `start` to `close`; `look` and `survey` may raise any exception."""

    def __init__(
        self,
        workspace: Workspace,
        order: ServeOrder | None = None,
        *,
        look: Callable[[Workspace, Store], EstateLook] = look,
        survey: Callable[[Workspace, Store], Survey] = survey,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._workspace, self._order = workspace, order or ServeOrder()
        self._look, self._survey, self._clock = look, survey, clock
        self._closing, self._lock, self._stopped_at = threading.Event(), threading.Lock(), 0.0
        self._view = EstateView(
            clock(),
            self._order.every_seconds,
            owner=str(workspace.topology.owner),
            started_tick=timing.now(),
            tree=tree_name(workspace.files),
            commit=tree_commit(workspace.files),
            host=socket.gethostname(),
        )
        self._halt: Callable[[], object] | None = None
        self._sampling_ended = threading.Event()
        steps = ((self.look_once, self._order.every_seconds), (self.survey_once, self._order.survey_seconds))
        self._threads = [self._thread(step.__name__, self._repeat, step, seconds) for step, seconds in steps]
        self._add_parts(self._order)

    def _thread(self, name: str, do: Callable[..., None], *arguments: object) -> threading.Thread:
        return threading.Thread(target=do, args=arguments, name=f"mm2mgr-{name}", daemon=True)

    def _add_parts(self, order: ServeOrder) -> None:
        if order.watchdog:
            self._view = replace(self._view, watchdog=WatchdogView(is_dry_run=order.watchdog.order.dry_run))
            self._threads.append(self._thread("watchdog", self._restart, order.watchdog))
        if order.audits:
            self._threads.append(self._thread("audits", self._audit, order.audits))
        if order.roll_ups:
            self._threads.append(self._thread("throughput", self._roll_up, order.roll_ups))
        if order.rebalances:
            self._view = replace(self._view, rebalances=RebalancesView())
        if order.reconciles:
            self._view = replace(self._view, reconciles=ReconcileView())
            self._threads.append(self._thread("reconcile", self._reconcile, order.reconciles, order.rebalances))
        elif order.rebalances:
            self._threads.append(self._thread("rebalances", self._rebalance, order.rebalances))
        if order.failover:
            self._view = replace(self._view, failover=FailoverView())
            self._threads.append(self._thread("failover", self._check_failover, order.failover))
        if order.samples:
            self._view = replace(self._view, samples=SampleView())
            self._threads.append(self._thread("sample", self._sample, order.samples))

    @property
    def view(self) -> EstateView:
        """What is known now; an immutable value."""
        return self._view

    def start(self) -> None:
        """Begin to look."""
        for thread in self._threads:
            thread.start()

    @property
    def is_writing(self) -> bool:
        """Whether connectors are being written."""
        return self._halt is not None

    def stop(self) -> None:
        """Begin no more looks and no more writes, and let all parts give up their leases; waits for nothing."""
        if not self._closing.is_set():
            self._stopped_at = timing.now()
            self._closing.set()
            self._sampling_ended.set()
            if halt := self._halt:
                halt()

    def close(self, seconds: float, write_seconds: float = 0.0) -> bool:
        """Stop, wait for what runs until so long after the stop, and tell whether all has ended. While connectors are
        being written it waits until `write_seconds` after the stop."""
        self.stop()
        for thread in self._threads:
            while thread.ident is not None and thread.is_alive():
                longest = max(seconds, write_seconds) if self.is_writing else seconds
                if (left := self._stopped_at + longest - timing.now()) <= 0:
                    break
                thread.join(min(left, _JOIN_SECONDS))
        return not any(thread.is_alive() for thread in self._threads)

    def look_once(self) -> None:
        """Look once and publish what was found; a failure is published too."""
        self._publish(lambda view: replace(view, began_at=self._clock()))
        try:
            newest = self._look(self._workspace, self._order.store)
        except BaseException as error:  # the server outlives whatever happens to one look, also one that is cancelled
            words = cause(error)
            self._publish(lambda view: replace(view, began_at=None, failed_looks=view.failed_looks + 1, error=words))
        else:
            self._publish(lambda view: after_look(view, newest, timing.now()))

    def survey_once(self) -> None:
        """Read the tree again where it has changed, make the slow part and publish it."""
        fresh, trouble = replace(self._workspace), ""
        try:
            _ = fresh.connectors
            if fresh.spec.tree != self._workspace.spec.tree:
                self._sampling_ended.set()  # it begins anew with the flows that there are now
            self._workspace = fresh
        except Exception as error:  # a tree that is wrong changes nothing of what is looked at
            trouble = cause(error)
        try:
            newest = self._survey(self._workspace, self._order.store)
        except BaseException as error:
            failed = cause(error)
            newest = Survey(
                self._clock(), failed, failed, failed, MeasuredLoad(unknown=failed), EstateNeeds(unknown=failed)
            )
        commit = tree_commit(self._workspace.files)
        self._publish(lambda view: replace(view, survey=newest, tree_error=trouble, commit=commit))

    def _until_closed(
        self,
        begin: Callable[[], Generator[Done]],
        publish: Callable[[Done], object],
        fail: Callable[[str], Done],
        again_seconds: float,
    ) -> None:
        """Publish the rounds of a part until the end. Whatever goes wrong is published as the round that `fail` makes
        of its cause, and the part begins anew so many seconds later: the server outlives it."""
        while not self._closing.is_set():
            try:
                with closing(begin()) as rounds:
                    for done in rounds:
                        publish(done)
            except BaseException as error:
                publish(fail(cause(error)))
                timing.wait(self._closing, again_seconds)

    def _restart(self, asked: WatchdogOrder) -> None:
        """Be a watchdog until the end; the history counts the restarts."""
        every, wait = asked.every_seconds, self._closing.wait
        self._until_closed(
            lambda: watch(self._workspace, asked.order, every_seconds=every, events=asked.events, wait=wait),
            lambda done: self._publish_round(asked, done),
            lambda reason: WatchRound(0, time.time(), error=reason),
            every,
        )

    def _publish_round(self, asked: WatchdogOrder, done: WatchRound) -> None:
        self._publish(lambda view: replace(view, watchdog=view.watchdog and view.watchdog.after_round(done)))
        asked.report(done)

    def _audit(self, asked: AuditsOrder) -> None:
        """Audit until the end."""
        from mm2mgr.operations.audit import AuditRound, follow_audits

        self._until_closed(
            lambda: follow_audits(self._workspace, asked.order, wait=self._wait),
            lambda done: self._publish_audit(asked, done),
            lambda reason: AuditRound(0, self._clock(), error=reason),
            asked.order.every_seconds,
        )

    def _roll_up(self, asked: RollUpsOrder) -> None:
        """Roll up until the end, in one session that stays."""
        from mm2mgr.operations.throughput import follow_roll_ups

        with closing(follow_roll_ups(self._workspace, asked.order, wait=self._wait)) as rounds:
            for done in rounds:
                asked.report(done)

    def _rebalance(self, asked: RebalancesOrder) -> None:
        """Rebalance until the end; the history counts the rounds."""
        self._until_closed(
            lambda: rebalances(
                self._workspace,
                asked.order,
                self._new_facts(),
                every_seconds=self._order.every_seconds,
                events=asked.events,
                interrupts=self._halting,
                wait=self._wait,
            ),
            lambda done: self._publish_rebalance(asked, done),
            lambda reason: RebalanceRound(0, self._clock(), error=reason),
            self._order.every_seconds,
        )

    def _new_facts(self, *, waits: bool = True) -> Callable[[Workspace], LoadFacts | None]:
        """Return what reads facts from the views: it waits for a look that it did not return before, or returns None
        where there is none."""
        last: EstateLook | None = None

        def read(_: Workspace) -> LoadFacts | None:
            nonlocal last
            while (view := self._view).look is last and waits and not timing.wait(self._closing, _NEW_LOOK_SECONDS):
                pass
            if view.look is None or view.survey is None or view.look is last:
                return None
            last = view.look
            return LoadFacts(last.lag, view.load, view.needs)

        return read

    def _reconcile(self, asked: ReconcilesOrder, rebalances: RebalancesOrder | None) -> None:
        """Reconcile until the end, and rebalance in the same rounds where that is asked for, too."""
        order = replace(asked.order, rebalances=rebalances.order if rebalances else None)
        self._until_closed(
            lambda: reconcile(
                self._workspace,
                order,
                events=asked.events,
                report=asked.progress,
                interrupts=self._halting,
                read_facts=self._new_facts(waits=False),
                closing=self._closing,
            ),
            lambda done: self._publish_reconcile(asked, rebalances, done),
            lambda reason: ReconcileRound(0, error=reason),
            order.every_seconds,
        )

    def _publish_reconcile(
        self, asked: ReconcilesOrder, rebalances: RebalancesOrder | None, done: ReconcileRound
    ) -> None:
        if self._closing.is_set() and done.applied is None:
            return  # it wrote nothing as the end had come
        now = self._clock()
        self._publish(lambda view: replace(view, reconciles=view.reconciles and view.reconciles.after_round(done, now)))
        if rebalances and done.rebalance:
            of_round = done.rebalance
            self._publish(
                lambda view: replace(view, rebalances=view.rebalances and view.rebalances.after_round(of_round))
            )
        asked.report(done)

    def _sample(self, asked: SamplesOrder) -> None:
        """Sample until the end, and anew where the tree has changed; whatever goes wrong is published, and it is tried
        again. The looks of `sample` are those of this process."""
        order = replace(asked.order, duration_seconds=None, looks=False)

        def publish(done: Round) -> None:
            now = self._clock()
            self._publish(lambda view: replace(view, samples=view.samples and view.samples.after_round(done, now)))
            asked.report(done)

        while not self._closing.is_set():
            try:
                sample(self._workspace, order, publish, asked.warn, self._sampling_ended)
            except BaseException as error:  # the server outlives it
                self._publish_unsampled(asked, cause(error))
                timing.wait(self._closing, _SAMPLE_AGAIN_SECONDS)
            if not self._closing.is_set():
                self._sampling_ended.clear()

    def _publish_unsampled(self, asked: SamplesOrder, reason: str) -> None:
        self._publish(lambda view: replace(view, samples=view.samples and replace(view.samples, error=reason)))
        asked.warn(f"nothing is sampled: {reason}")

    @contextmanager
    def _halting(self, _so_far: object) -> Iterator[asyncio.Event]:
        """Yield the event that the end of the server sets."""
        loop, halt = asyncio.get_running_loop(), asyncio.Event()
        self._halt = lambda: loop.call_soon_threadsafe(halt.set)
        if self._closing.is_set():
            halt.set()
        try:
            yield halt
        finally:
            self._halt = None

    def _check_failover(self, asked: FailoverChecksOrder) -> None:
        """Check failover until the end."""
        clock, wait = self._clock, self._wait
        self._until_closed(
            lambda: watch_failover(self._workspace, asked.order, asked.check, clock=clock, wait=wait),
            lambda done: self._publish_failover(asked, done),
            lambda reason: FailoverRound(0, clock(), error=reason),
            self._order.survey_seconds,
        )

    def _publish_failover(self, asked: FailoverChecksOrder, done: FailoverRound) -> None:
        self._publish(lambda view: replace(view, failover=view.failover and view.failover.after_round(done)))
        asked.report(done)

    def _publish_rebalance(self, asked: RebalancesOrder, done: RebalanceRound) -> None:
        self._publish(lambda view: replace(view, rebalances=view.rebalances and view.rebalances.after_round(done)))
        asked.report(done)

    def _wait(self, seconds: float) -> bool:
        return timing.wait(self._closing, seconds)

    def _publish_audit(self, asked: AuditsOrder, done: AuditRound) -> None:
        self._publish(lambda view: replace(view, audit=done))
        asked.report(done)

    def _publish(self, change: Callable[[EstateView], EstateView]) -> None:
        with self._lock:
            self._view = change(self._view)

    def _repeat(self, step: Callable[[], None], every_seconds: float) -> None:
        while not self._closing.is_set():
            step()
            collect_garbage()
            timing.wait(self._closing, every_seconds)


def serve(workspace: Workspace, order: ServeOrder | None = None) -> EstateWatch:
    """Return a watch over the workspace's estate that looks from `start` to `close`. Mm2mgrError for a tree that is
    wrong.
    """
    _ = workspace.connectors
    writers = (order.watchdog, order.rebalances, order.reconciles) if order else ()
    for events in {writer.events for writer in writers if writer}:
        workspace.event_log(events).close()
    if order and order.reconciles:
        workspace.only(order.reconciles.order.options.flows)
    if order and order.samples:
        refuse_unsampled(workspace, order.samples.order)
    if order and order.audits:
        from mm2mgr.operations.audit import followed_flows

        audits = order.audits.order
        _refuse_idle("audit", lambda: followed_flows(workspace, audits))
    if order and order.failover:
        _refuse_idle("failover", lambda: refuse_without_pairs(workspace.topology))
    return EstateWatch(workspace, order)


def _refuse_idle(part: str, read_declared: Callable[[], object]) -> None:
    """Mm2mgrError that names the part of the process for which a tree declares nothing."""
    try:
        read_declared()
    except Mm2mgrError as error:
        hint = f"{error.hint}; or leave {part} out of --with"
        raise Mm2mgrError(f"--with {part}: {error.message}", hint=hint) from error
