"""What `serve` knows: the newest look at the estate, the slow part beside it, and the state of each part. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from mm2mgr.evidence.flow_load import (
    EstateNeeds,
    FlowThroughput,
    MeasuredLoad,
    TaskLoad,
    throughput_of,
)
from mm2mgr.evidence.traffic import (
    HOUR_SECONDS,
    RANGES,
    USUAL_RANGE,
    TrafficHistory,
    TrafficPoint,
    history_dict,
    lag_seconds,
    points_of_looks,
)
from mm2mgr.observe.lag_report import LagLevel
from mm2mgr.observe.trend import FLOW, LagPoint
from mm2mgr.operations.automatic_rebalance import (
    RebalancesView,
)
from mm2mgr.operations.failover_watch import (
    FailoverView,
)
from mm2mgr.operations.local_paths import LocalPaths
from mm2mgr.operations.plan import ReconcileView
from mm2mgr.operations.sample import SampleView
from mm2mgr.operations.status import LagReport
from mm2mgr.operations.watch import WatchdogView
from mm2mgr.plan.history import with_newer
from mm2mgr.problems.flows import OVERTAKEN_SOON_SECONDS, Resting
from mm2mgr.problems.health import with_lag
from mm2mgr.problems.order import shown_health

if TYPE_CHECKING:
    from mm2mgr.observe.lag_report import FlowFacts, LagRow
    from mm2mgr.operations.audit import AuditRound
    from mm2mgr.operations.estate_workers import SeenWorkers
    from mm2mgr.operations.history import HistoryReport
    from mm2mgr.operations.lint import LintReport
    from mm2mgr.plan.changes import Plan
    from mm2mgr.plan.history import HistoryEntry
    from mm2mgr.problems.health import ConnectorState, FlowStatus, Status

ViewState = Literal["starting", "ok", "stale"]
PARTS = ("watch", "reconcile", "sample", "throughput", "audit", "rebalance", "failover")
_NEW_TOPICS_KEPT = 200
_LOOK_BEFORE_SECONDS = 900.0  # before the hour that is drawn, for the rate at its beginning
_STALE_LOOKS, _STALE_SECONDS = 3, 60.0  # a look that waits for a dead cluster may take most of a minute


@dataclass(frozen=True)
class PartState:
    """What is known of a part that runs in this process; times in seconds since 1970, None: no round has ended.

    `every_seconds`: what it rests between two rounds; `has_lease`: whether one process of the owner does it; `next_at`:
    when the next round is due. `outcome`: one word for the last one. `standby`: the Connect clusters, or flows, that
    another process does; `leaders`: who that is, by Kafka cluster, as far as brokers say. `failure`, `failed_at`: the
    last round that failed, whatever came after it.
    """

    every_seconds: float
    has_lease: bool = False
    rounds: int = 0
    ended_at: float | None = None
    next_at: float | None = None
    outcome: str = ""
    standby: tuple[str, ...] = ()
    leaders: Mapping[str, str] = field(default_factory=dict)
    is_failing: bool = False
    failure: str = ""
    failed_at: float | None = None
    json_keys = (
        "every_seconds lease=has_lease rounds ended_at next_at outcome standby leaders failing=is_failing failure "
        "failed_at"
    )

    def after_round(self, end: RoundEnd, leaders: Mapping[str, str], now: float) -> PartState:
        """Return the state after a round that ended now."""
        rest = self.every_seconds if end.rest_seconds is None else end.rest_seconds
        outcome = "failed" if end.failure else "standby" if end.is_standby else end.outcome
        return replace(
            self,
            rounds=self.rounds + 1,
            ended_at=now,
            next_at=now + rest,
            outcome=outcome,
            standby=end.standby,
            leaders=leaders,
            is_failing=bool(end.failure),
            failure=end.failure or self.failure,
            failed_at=now if end.failure else self.failed_at,
        )


class RoundEnd(NamedTuple):
    """How a round ended. `failure`: why it failed; `standby`: what another process does, on the Connect clusters
    `connects`, and `is_standby` where that is all; `rest_seconds`: until the next one, where that differs."""

    failure: str = ""
    standby: tuple[str, ...] = ()
    connects: tuple[str, ...] = ()
    is_standby: bool = False
    outcome: str = "done"
    rest_seconds: float | None = None


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

    @cached_property
    def late_flows(self) -> Mapping[str, float]:
        """The flows that are further behind than their `max_lag`, with the seconds, the furthest beyond it first;
        without those that were paused by hand, whose problem says so."""
        limits = self.max_lag_seconds
        told = {problem.subject.flow for problem in self.status.problems() if isinstance(problem.evidence, Resting)}
        behind = {flow: self.totals[flow].seconds.value or 0.0 for flow in limits if flow in self.totals.keys() - told}
        late = [(flow, seconds) for flow, seconds in behind.items() if seconds > limits[flow]]
        return dict(sorted(late, key=lambda flow: limits[flow[0]] / flow[1]))

    @cached_property
    def overtaken_flows(self) -> Mapping[str, float]:
        """The flows of which retention deletes records that wait within a day, with the seconds until then, the
        nearest first."""
        forecasts = ((flow, total.overtaken.seconds) for flow, total in self.totals.items() if total.overtaken)
        soon = (forecast for forecast in forecasts if forecast[1] < OVERTAKEN_SOON_SECONDS)
        return dict(sorted(soon, key=lambda forecast: forecast[1]))

    def shown_health(self, state: ConnectorState) -> str:
        """Return what the colour of one of its flows or connectors goes by on every page."""
        is_late, is_overtaken = state.name in self.late_flows, state.name in self.overtaken_flows
        return shown_health(state.health, state.problems, is_late=is_late, is_overtaken=is_overtaken)


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
    flow ever took; `new_topics`: those that came later than the first that were read. `local_paths`: what no reader
    of another machine is shown. `parts`: how those that run in this process do, by name. `waits_for`: the clusters that
    have not answered the first look yet.
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
    local_paths: LocalPaths = field(default_factory=LocalPaths)
    parts: Mapping[str, PartState] = field(default_factory=dict)
    waits_for: tuple[str, ...] = ()

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
        """What each flow moves that the last look could read, and how its tasks share the load; of one whose workers do
        not answer, what its source and its target tell."""
        of_flows = dict[str, FlowThroughput]()
        for status in self.look.status.flows if self.look else ():
            facts = self.facts(status)
            if status.state != "unknown":
                need = self.needs.flows.get(status.flow)
                of_flows[status.flow] = throughput_of(facts, self.task_loads(status), need)
            elif self.is_without_workers(status):
                of_flows[status.flow] = throughput_of(facts, (), None)
        return of_flows

    def is_without_workers(self, status: FlowStatus) -> bool:
        """Tell whether the last look counted a flow's lag without its workers, by both Kafka clusters alone."""
        facts = self.facts(status)
        is_counted = facts.lag.last_stored is not None and facts.lag.unknown is None and not facts.lag.unread
        return is_counted and self.look is not None and facts.taken_at == self.look.lag.taken_at

    @property
    def traffic(self) -> TrafficHistory:
        return self.survey.traffic if self.survey else TrafficHistory(unknown="it is read at a slower pace")

    def traffic_points(self, flow: str, now: float, seconds: float) -> list[TrafficPoint]:
        """Return the lag and the rates of a flow over the newest so many seconds."""
        return self.traffic.of_flow(flow).points(now, seconds, self.recent.get(flow, ()))

    def lag_times(self, flow: str, now: float, points: Sequence[TrafficPoint]) -> list[float | None]:
        """Return for each of these points how many seconds the flow was behind, as looks of a day saw it; where they do
        not go back so far, as these points do."""
        hour, day = (self.traffic_points(flow, now, seconds) for seconds in (HOUR_SECONDS, RANGES["24h"]))
        looks = [*(point for point in day if not hour or point.time < hour[0].time), *hour]
        seconds = dict(zip((look.time for look in looks), lag_seconds(looks), strict=True))
        own = zip(points, lag_seconds(points), strict=True)
        return [seconds[point.time] if seconds.get(point.time) is not None else behind for point, behind in own]

    def with_lag_time(self, total: LagRow) -> LagRow:
        """Return the lag of a flow with its time as looks saw it, where samples do not say it."""
        points = self.recent.get(total.flow, ())[-1:]
        if not points or total.records.value is None or not (total.seconds.value is None or total.seconds.at_least):
            return total
        (behind,) = self.lag_times(total.flow, points[0].time, points_of_looks(points))
        if behind is None or behind <= (total.seconds.value or 0.0):
            return total
        return replace(total, seconds=replace(total.seconds, value=behind, at_least=total.records.at_least))

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

    def flow_lag(self, status: FlowStatus) -> LagRow:
        """Return the lag of a whole flow, of the time that `facts` are of."""
        facts, total = self.facts(status), self.total(status.flow)
        last_known = self.last_known(status)
        return last_known.total if last_known and facts is last_known.lag else total or facts.total

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
            "total": self.flow_lag(status),
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
                "points": history_dict(history, past, self.lag_times(status.flow, now, past)),
                "unknown": self.traffic.unknown,
                "bytes_unknown": self.traffic.bytes_unknown,
            },
        }


def after_look(view: EstateView, newest: EstateLook, tick: float | None = None) -> EstateView:
    """Return the view after a complete look that ended at this tick; flows that it could not read stay known."""
    lags = {facts.flow: facts for facts in newest.lag.flows}
    recent = {flow: _recent(view.recent.get(flow, ()), facts.points.get(FLOW, ())) for flow, facts in lags.items()}
    view = replace(view, recent=recent)
    newest = replace(newest, totals={flow: view.with_lag_time(total) for flow, total in newest.totals.items()})
    newest = replace(newest, status=with_lag(newest.status, newest.totals, newest.max_lag_seconds))
    declared = {flow.flow: view.known[flow.flow] for flow in newest.status.flows if flow.flow in view.known}
    read = {
        flow.flow: LastKnown(newest.status.taken_at, flow, lags[flow.flow], newest.totals[flow.flow])
        for flow in newest.status.flows
        if flow.state != "unknown"
    }
    looks, is_quiet = view.looks + 1, not (newest.status.problems() or newest.status.failures or newest.late_flows)
    view = replace(view, look=newest, looked_tick=tick, began_at=None, looks=looks, error="", waits_for=())
    view = _with_topics(replace(view, known={**declared, **read}), read)
    if not is_quiet:
        return replace(view, quiet_looks=0, quiet_since=None)
    return replace(view, quiet_looks=view.quiet_looks + 1, quiet_since=view.quiet_since or newest.ended_at)


def with_notes(view: EstateView, noted: Sequence[HistoryEntry]) -> EstateView:
    """Return the view whose history has what commands on this machine recorded since it was read."""
    survey = view.survey
    if not noted or survey is None or isinstance(survey.history, str):
        return view
    entries = with_newer(survey.history.entries, noted, survey.taken_at)
    return replace(view, survey=replace(survey, history=replace(survey.history, entries=tuple(entries))))


def _with_topics(view: EstateView, read: Mapping[str, LastKnown]) -> EstateView:
    """Return the view with the topics that flows take; what was not read this time is not new the next time."""
    flow_topics, new = dict(view.topics_seen), list(view.new_topics)
    for flow, now in read.items():
        before = flow_topics.get(flow, frozenset())
        topics = {lag.partition.topic for lag in now.lag.lag.counted_partitions}
        flow_topics[flow] = before | topics
        new += [NewTopic(now.taken_at, flow, topic) for topic in sorted(topics - before)] if before else []
    return replace(view, topics_seen=flow_topics, new_topics=tuple(new[-_NEW_TOPICS_KEPT:]))


def _recent(earlier: tuple[LagPoint, ...], points: Sequence[LagPoint]) -> tuple[LagPoint, ...]:
    """Return the looks of the last hour. `points` are thinned out; those of a clock that was set back begin anew."""
    if not points:
        return earlier
    newest = points[-1].time
    oldest = newest - HOUR_SECONDS - _LOOK_BEFORE_SECONDS
    before = [point for point in earlier if oldest <= point.time < newest]
    last = before[-1].time if before else oldest
    return (*before, *(point for point in points if point.time > last))
