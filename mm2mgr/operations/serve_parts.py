"""The parts of `serve --with`: what each does again and again beside the looks, and how its last round ended.

All have one shape, `Part`: rounds that are begun anew whatever goes wrong, each published in the view. `watch`,
`reconcile` and `rebalance` alone write to clusters, and with `audit` they hold leases: of several processes of the
owner one leads, the others stand by. Rebalances beside `reconcile` are made in its rounds, under its lease.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from mm2mgr import timing
from mm2mgr.errors import cause
from mm2mgr.operations.automatic_rebalance import (
    LoadFacts,
    RebalanceOrder,
    RebalanceRound,
    RebalancesView,
    rebalances,
)
from mm2mgr.operations.estate_view import EstateLook, EstateView, PartState, RoundEnd
from mm2mgr.operations.failover_watch import (
    Check,
    FailoverOrder,
    FailoverRound,
    FailoverView,
    check_pair,
    watch_failover,
)
from mm2mgr.operations.plan import ReconcileOrder, ReconcileRound, ReconcileView, reconcile
from mm2mgr.operations.sample import SampleOrder, SampleView, sample
from mm2mgr.operations.watch import WatchdogView, WatchOrder, WatchRound, watch
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace
from mm2mgr.text import few, without_cluster
from mm2mgr.timing import wait_for
from mm2mgr.topology import Topology, audit_group, lease_group, watch_group

if TYPE_CHECKING:
    from pathlib import Path

    from mm2mgr.apply.waves import Event
    from mm2mgr.operations.audit import AuditRound, FollowOrder
    from mm2mgr.operations.throughput import RollUpOrder, RollUpRound
    from mm2mgr.samples.follow import Round
    from mm2mgr.samples.schema import Store

Done = TypeVar("Done")
_NEW_LOOK_SECONDS = 0.5
_SAMPLE_AGAIN_SECONDS, _ROLL_UP_AGAIN_SECONDS = 60.0, 900.0
_ASK_LEADERS_SECONDS = 60.0


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


class RunningPart(NamedTuple):
    """One part: `run` gives each of its rounds to a function until the end, `fail` makes one of a cause, `take` keeps
    it in the view, `end` says how it ended for each part that it belongs to. `group`: that of its lease."""

    name: str
    run: Callable[[Callable[[Any], None]], object]
    fail: Callable[[str], Any]
    take: Callable[[EstateView, Any], EstateView]
    end: Callable[[Any], Mapping[str, RoundEnd]]
    report: Callable[[Any], object]
    every_seconds: float
    again_seconds: float
    group: Callable[[Topology], str] | None = None


def part_thread(name: str, do: Callable[..., None], *arguments: object) -> threading.Thread:
    """Return a thread that ends with the process."""
    return threading.Thread(target=do, args=arguments, name=f"mm2mgr-{name}", daemon=True)


def read_leaders(topology: Topology, connects: Sequence[str], group: str) -> dict[str, str]:
    """Return who holds the leases of these Connect clusters, in words by Kafka cluster; none where nobody says."""
    from mm2mgr.apply.leases import describe_holder, read_holders

    holders, _ = wait_for(read_holders(topology, connects, group))
    return {alias: describe_holder(holder) for alias, holder in holders.items()}


class PartsHost(NamedTuple):
    """What a process shares with its parts: when it ends, the newest tree and view, how a view is changed, the time."""

    closing: threading.Event
    workspace: Callable[[], Workspace]
    view: Callable[[], EstateView]
    publish: Callable[[Callable[[EstateView], EstateView]], object]
    clock: Callable[[], float]


class Parts:
    """Runs the parts of an order in threads of their own until the host closes, and keeps their states in the view."""

    def __init__(self, order: ServeOrder, host: PartsHost) -> None:
        self._order, (self._closing, self._workspace, self._view, self._publish, self._clock) = order, host
        self._halt: Callable[[], object] | None = None
        self._sampling_ended = threading.Event()
        self._asked: dict[str, tuple[float, tuple[str, ...], dict[str, str]]] = {}
        self.parts = {part.name: part for part in self._make()}
        states = {name: PartState(part.every_seconds, part.group is not None) for name, part in self.parts.items()}
        if order.reconciles and order.rebalances:
            states["rebalance"] = states["reconcile"]
        self._publish(lambda view: replace(view, parts=states))
        threads = [(part.group, part_thread(name, self.run, name)) for name, part in self.parts.items()]
        self.leased = [thread for group, thread in threads if group]
        self.readers = [thread for group, thread in threads if not group]

    @property
    def is_writing(self) -> bool:
        """Whether connectors are being written."""
        return self._halt is not None

    def stop(self) -> None:
        """End waits and writes, once `closing` is set."""
        self._sampling_ended.set()
        if halt := self._halt:
            halt()

    def sample_anew(self) -> None:
        """Let sampling begin anew, with the flows that there are now."""
        self._sampling_ended.set()

    def run(self, name: str) -> None:
        """Do a part until the end. Whatever goes wrong is published as a round, and it begins anew: the server outlives
        it."""
        part = self.parts[name]
        while not self._closing.is_set():
            try:
                part.run(lambda done: self._take(part, done))
            except BaseException as error:
                with suppress(Exception):  # a terminal that is gone
                    self._take(part, part.fail(cause(error)), part.again_seconds)
                timing.wait(self._closing, part.again_seconds)

    def _take(self, part: RunningPart, done: Any, rest_seconds: float | None = None) -> None:
        ends, now = part.end(done), self._clock()
        if rest_seconds is not None:
            ends = {name: end._replace(rest_seconds=rest_seconds) for name, end in ends.items()}
        leaders = {name: self._leaders(part, end.connects) for name, end in ends.items()}

        def change(view: EstateView) -> EstateView:
            parts = dict(view.parts)
            for name, end in ends.items():
                if name in parts:
                    parts[name] = parts[name].after_round(end, leaders[name], now)
            return replace(part.take(view, done), parts=parts)

        self._publish(change)
        part.report(done)

    def _leaders(self, part: RunningPart, connects: tuple[str, ...]) -> dict[str, str]:
        """Return who does what this process does not, as it was asked a short time ago."""
        if not connects or part.group is None or self._closing.is_set():
            return {}
        asked_at, of, leaders = self._asked.get(part.name, (float("-inf"), (), {}))
        if of != connects or not leaders or timing.now() - asked_at >= _ASK_LEADERS_SECONDS:
            try:
                topology = self._workspace().topology
                leaders = read_leaders(topology, connects, part.group(topology))
            except Exception:  # the round is told without it
                leaders = {}
            self._asked[part.name] = timing.now(), connects, leaders
        return leaders

    def _wait(self, seconds: float) -> bool:
        return timing.wait(self._closing, seconds)

    # --- the parts ----------------------------------------------------------------------------------------------------

    def _make(self) -> Iterator[RunningPart]:
        order = self._order
        if order.watchdog:
            yield self._watch(order.watchdog)
        if order.reconciles:
            yield self._reconcile(order.reconciles, order.rebalances)
        if order.samples:
            yield self._sample(order.samples)
        if order.roll_ups:
            yield self._roll_up(order.roll_ups)
        if order.audits:
            yield self._audit(order.audits)
        if order.rebalances:
            self._publish(lambda view: replace(view, rebalances=RebalancesView()))
            if not order.reconciles:
                yield self._rebalance(order.rebalances)
        if order.failover:
            yield self._check_failover(order.failover)

    def _watch(self, asked: WatchdogOrder) -> RunningPart:
        """A watchdog; the history counts the restarts."""
        self._publish(lambda view: replace(view, watchdog=WatchdogView(is_dry_run=asked.order.dry_run)))
        every, wait = asked.every_seconds, self._closing.wait

        def end(done: WatchRound) -> Mapping[str, RoundEnd]:
            trouble = {**done.without_lease, **done.unread}
            refused = [f"{action.problem.subject.connector}: {action.error}" for action in done.actions if action.error]
            failure = done.error or few([*(f"{name}: {reason}" for name, reason in trouble.items()), *refused])
            is_standby = bool(done.standby) and self._workspace().topology.connects.keys() <= set(done.standby)
            return {"watch": RoundEnd(failure, done.standby, done.standby, is_standby)}

        return RunningPart(
            "watch",
            _rounds(lambda: watch(self._workspace(), asked.order, every_seconds=every, events=asked.events, wait=wait)),
            lambda reason: WatchRound(0, time.time(), error=reason),
            lambda view, done: replace(view, watchdog=view.watchdog and view.watchdog.after_round(done)),
            end,
            asked.report,
            every,
            every,
            watch_group,
        )

    def _reconcile(self, asked: ReconcilesOrder, rebalancing: RebalancesOrder | None) -> RunningPart:
        """Reconcile, and rebalance in the same rounds where that is asked for, too."""
        self._publish(lambda view: replace(view, reconciles=ReconcileView()))
        order = replace(asked.order, rebalances=rebalancing.order if rebalancing else None)

        def rounds() -> Generator[ReconcileRound]:
            with closing(
                reconcile(
                    self._workspace(),
                    order,
                    events=asked.events,
                    report=asked.progress,
                    interrupts=self._halting,
                    read_facts=self._new_facts(waits=False),
                    closing=self._closing,
                )
            ) as ended:
                # without those that wrote nothing as the end had come
                yield from (done for done in ended if done.applied or not self._closing.is_set())

        def take(view: EstateView, done: ReconcileRound) -> EstateView:
            now, balance = self._clock(), done.rebalance
            view = replace(view, reconciles=view.reconciles and view.reconciles.after_round(done, now))
            return (
                replace(view, rebalances=view.rebalances.after_round(balance)) if view.rebalances and balance else view
            )

        def end(done: ReconcileRound) -> Mapping[str, RoundEnd]:
            trouble = few(done.reasons, between="; ") or few(sorted(done.failed_connects))
            failure = trouble if done.outcome == "failed" else ""
            own = RoundEnd(failure, done.standby, done.standby, done.outcome == "standby", done.outcome)
            beside = _end_of_rebalance(done.rebalance) if done.rebalance else own
            return {"reconcile": own, **({"rebalance": beside} if rebalancing else {})}

        return RunningPart(
            "reconcile",
            _rounds(rounds),
            lambda reason: ReconcileRound(0, error=reason),
            take,
            end,
            asked.report,
            order.every_seconds,
            order.every_seconds,
            lease_group,
        )

    def _rebalance(self, asked: RebalancesOrder) -> RunningPart:
        """Rebalance; the history counts the rounds."""
        every = self._order.every_seconds
        return RunningPart(
            "rebalance",
            _rounds(
                lambda: rebalances(
                    self._workspace(),
                    asked.order,
                    self._new_facts(),
                    every_seconds=every,
                    events=asked.events,
                    interrupts=self._halting,
                    wait=self._wait,
                )
            ),
            lambda reason: RebalanceRound(0, self._clock(), error=reason),
            lambda view, done: replace(view, rebalances=view.rebalances and view.rebalances.after_round(done)),
            lambda done: {"rebalance": _end_of_rebalance(done)},
            asked.report,
            every,
            every,
            lease_group,
        )

    def _new_facts(self, *, waits: bool = True) -> Callable[[Workspace], LoadFacts | None]:
        """Return what reads facts from the views: it waits for a look that it did not return before, or returns None
        where there is none."""
        last: EstateLook | None = None

        def read(_: Workspace) -> LoadFacts | None:
            nonlocal last
            while (view := self._view()).look is last and waits and not self._wait(_NEW_LOOK_SECONDS):
                pass
            if view.look is None or view.survey is None or view.look is last:
                return None
            last = view.look
            return LoadFacts(last.lag, view.load, view.needs)

        return read

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

    def _sample(self, asked: SamplesOrder) -> RunningPart:
        """Sample, and anew where the tree has changed. The looks of `sample` are those of this process."""
        self._publish(lambda view: replace(view, samples=SampleView()))
        order = replace(asked.order, duration_seconds=None, looks=False)

        def run(publish: Callable[[Round], None]) -> None:
            sample(self._workspace(), order, publish, asked.warn, self._sampling_ended)
            if not self._closing.is_set():
                self._sampling_ended.clear()

        def take(view: EstateView, done: Round | str) -> EstateView:
            samples, now = view.samples or SampleView(), self._clock()
            after = replace(samples, error=done) if isinstance(done, str) else samples.after_round(done, now)
            return replace(view, samples=after)

        def end(done: Round | str) -> Mapping[str, RoundEnd]:
            return {"sample": RoundEnd(done) if isinstance(done, str) else end_of_samples(done)}

        def report(done: Round | str) -> None:
            if isinstance(done, str):
                asked.warn(f"nothing is sampled: {done}")
            else:
                asked.report(done)

        again = _SAMPLE_AGAIN_SECONDS
        return RunningPart("sample", run, lambda reason: reason, take, end, report, order.interval_seconds, again)

    def _roll_up(self, asked: RollUpsOrder) -> RunningPart:
        """Roll up, in one session that stays."""
        from mm2mgr.operations.throughput import RollUpRound, follow_roll_ups, seconds_to_roll_up

        failures = 0

        def end(done: RollUpRound) -> Mapping[str, RoundEnd]:
            nonlocal failures
            failures = failures + 1 if done.error else 0
            outcome = "done" if done.rolled_up else "no samples yet"
            rest = seconds_to_roll_up(self._clock(), failures)
            return {"throughput": RoundEnd(done.error or "", outcome=outcome, rest_seconds=rest)}

        return RunningPart(
            "throughput",
            _rounds(lambda: follow_roll_ups(self._workspace(), asked.order, wait=self._wait, clock=self._clock)),
            lambda reason: RollUpRound(0, self._clock(), error=reason),
            lambda view, _: view,
            end,
            asked.report,
            3_600.0,
            _ROLL_UP_AGAIN_SECONDS,
        )

    def _audit(self, asked: AuditsOrder) -> RunningPart:
        from mm2mgr.operations.audit import AuditRound, follow_audits

        def end(done: AuditRound) -> Mapping[str, RoundEnd]:
            flows = self._workspace().topology.flows
            connects = {flow.connect.name for flow in flows if flow.id in done.standby}
            is_standby = bool(done.standby) and done.report is None
            outcome = str(done.verdict.value) if done.report else "done"
            ended = RoundEnd(done.error or "", done.standby, tuple(sorted(connects)), is_standby, outcome)
            return {"audit": ended}

        every = asked.order.every_seconds
        return RunningPart(
            "audit",
            _rounds(lambda: follow_audits(self._workspace(), asked.order, wait=self._wait)),
            lambda reason: AuditRound(0, self._clock(), error=reason),
            lambda view, done: replace(view, audit=done),
            end,
            asked.report,
            every,
            every,
            audit_group,
        )

    def _check_failover(self, asked: FailoverChecksOrder) -> RunningPart:
        self._publish(lambda view: replace(view, failover=FailoverView()))
        clock, wait, every = self._clock, self._wait, self._order.survey_seconds

        def end(done: FailoverRound) -> Mapping[str, RoundEnd]:
            failed = [f"{check.pair}: {check.error}" for check in done.checks if check.error]
            outcome = f"{len(done.checks)} checked" if done.checks else "nothing was due"
            return {"failover": RoundEnd(done.error or few(failed), outcome=outcome, rest_seconds=done.wait_seconds)}

        return RunningPart(
            "failover",
            _rounds(lambda: watch_failover(self._workspace(), asked.order, asked.check, clock=clock, wait=wait)),
            lambda reason: FailoverRound(0, clock(), error=reason),
            lambda view, done: replace(view, failover=view.failover and view.failover.after_round(done)),
            end,
            asked.report,
            60.0,
            every,
        )


def _rounds(begin: Callable[[], Generator[Done]]) -> Callable[[Callable[[Done], None]], None]:
    """Return what gives each round of a generator to a function, and closes it."""

    def run(publish: Callable[[Done], None]) -> None:
        with closing(begin()) as rounds:
            for done in rounds:
                publish(done)

    return run


def end_of_samples(done: Round) -> RoundEnd:
    """Say how a round of sampling ended: it failed where a cluster gave no samples; what is read beside them, such as
    what tasks carry, is named where it is missing."""
    missing = done.sources_without_samples.items()
    unsampled = few([f"{of}: {without_cluster(error.one_line, of)}" for of, error in missing])
    beside = sorted(done.failures.keys() - done.sources_without_samples.keys())
    return RoundEnd(unsampled, outcome=f"done, without {few(beside)}" if beside else "done")


def _end_of_rebalance(done: RebalanceRound) -> RoundEnd:
    """Say how a round of rebalances ended: it failed where there was no look, or an assignment was not written."""
    failed = [f"{flow.flow}: {flow.detail}" for flow in done.flows if flow.outcome == "failed"]
    others = [flow for flow in done.flows if flow.outcome == "standby"]
    connects = tuple(sorted({flow.connect for flow in others}))
    written = sum(flow.outcome == "written" for flow in done.flows)
    is_standby = bool(others) and len(others) == len(done.flows)
    outcome = f"{written} written" if written else "nothing was due"
    return RoundEnd(done.error or few(failed), tuple(flow.flow for flow in others), connects, is_standby, outcome)
