"""`serve --with rebalance` and `reconcile --rebalance`: look at flows with the plugin again and again, and write
another assignment where a task is overloaded and late, or where one is due.

When is decided by `balance.triggers`, which assignment by `operations.rebalance`. A round is written under the owner's
lease, and only once the history has stored that it begins: it counts the rounds of a day, also for the process that
comes after one that was killed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mm2mgr.balance.rules import BalanceRules
from mm2mgr.balance.triggers import (
    FlowLook,
    TaskLoadLook,
    TriggerDecision,
    TriggerState,
    decide,
    hold_of,
)
from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.errors import cause
from mm2mgr.evidence.flow_load import EstateNeeds, FlowNeed, MeasuredLoad, TaskLoad, estate_needs, measured_load
from mm2mgr.evidence.read import EvidenceOptions
from mm2mgr.files import is_frozen
from mm2mgr.json_values import to_json
from mm2mgr.observe.lag_report import FlowFacts, LagLevel, LagRow
from mm2mgr.observe.trend import recent_rates, task_key
from mm2mgr.operations.rebalance import (
    COMMAND,
    SPREAD_KEY,
    FlowBalance,
    automatic_rules,
    judge_flows,
    plan_to_write,
    read_again,
    refusal_now,
    rounds_of,
    tries_of,
)
from mm2mgr.operations.status import LagOptions, LagReport, lag
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace, pause
from mm2mgr.plan.history import History, HistoryEntry, read_history
from mm2mgr.plan.schedule import RoundSchedule
from mm2mgr.text import span_text
from mm2mgr.timing import wait_for
from mm2mgr.topology import Flow, lease_group

if TYPE_CHECKING:
    from mm2mgr.apply.applied import Applied, Interrupts
    from mm2mgr.apply.rounds import Rounds
    from mm2mgr.apply.waves import Event
    from mm2mgr.samples.schema import Store

Outcome = Literal["", "kept", "written", "failed", "inconclusive", "left", "unknown", "standby"]
_STILL_SECONDS = 300.0
_NEEDS_SECONDS = 300.0
_HISTORY_SECONDS = 300.0  # a look goes by a history that is not older; before a write it is read again
_ROUNDS_KEPT = 100
_OTHERS = "another process of the owner writes there"


@dataclass(frozen=True)
class RebalanceOrder:
    """What may be rebalanced: the named flows, or all whose tree says `automatic`. `freeze_file`: nothing is written
    while it exists, beside what `freeze` of the tree names; `wait_seconds`: as for `rebalance`. `reason` is kept in the
    history beside what asked for the round.
    """

    flows: tuple[str, ...] = ()
    freeze_file: Path | None = None
    wait_seconds: float = 60.0
    store: Store = DEFAULT_STORE
    reason: str = ""


@dataclass(frozen=True)
class LoadFacts:
    """What a look goes by: the lag of flows, what partitions got in the newest hour, and what tasks can carry."""

    lag: LagReport
    load: MeasuredLoad
    needs: EstateNeeds


@dataclass(frozen=True)
class LastRound:
    """The newest rebalance of a connector that the history has: when (seconds since 1970), why, and the busiest task's
    load by the mean before and after it; None where it does not say."""

    at_seconds: float
    reason: str
    before: float | None
    after: float | None

    @classmethod
    def of_entry(cls, entry: HistoryEntry) -> LastRound:
        """Read it from the history."""
        gain = next((key for key in entry.keys if key.get("key") == SPREAD_KEY), {})
        return cls(entry.at_seconds, entry.reason, _number(gain.get("before")), _number(gain.get("after")))


def _number(text: object) -> float | None:
    try:
        return float(str(text))
    except ValueError:
        return None


@dataclass(frozen=True)
class FlowRound:
    """One flow in one look: what was decided, and what became of it.

    `outcome`: empty where no plan was made; `kept`, no other assignment is worth a restart; `standby`, another process
    of the owner writes; `left` and `unknown` as for `rebalance`. `detail` says why. `rounds`: those in the history,
    None where it could not be read.
    """

    flow: str
    connect: str
    connector: str
    decision: TriggerDecision
    outcome: Outcome = ""
    detail: str = ""
    rounds: int | None = None
    last: LastRound | None = None
    json_keys = "flow connect connector outcome detail rounds last decision"

    @property
    def text(self) -> str:
        """What happened, in words; empty for nothing."""
        return "; ".join(filter(None, (self.decision.reason, self.detail)))


@dataclass(frozen=True)
class RebalanceRound:
    """One look at all flows. `error`: why there was none. `unrecorded`: Connect clusters whose history was not written,
    with the reason. `unlogged`: what is missing in the event log."""

    number: int
    taken_at: float
    flows: tuple[FlowRound, ...] = ()
    applied: Applied | None = None
    unrecorded: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    error: str | None = None
    unlogged: str = ""
    json_keys = "number taken_at flows applied unrecorded note error unlogged"

    @property
    def has_failed(self) -> bool:
        """Whether there was no look, or an assignment was not written."""
        return self.error is not None or bool(self.failed_connects)

    @property
    def failed_connects(self) -> set[str]:
        """Connect clusters where an assignment was not written, or taken back."""
        return {flow.connect for flow in self.flows if flow.outcome == "failed"}


@dataclass(frozen=True)
class RebalancesView:
    """What the loop of this process last saw, and its newest rounds that wrote or failed, with the times of their
    looks."""

    last: RebalanceRound | None = None
    done: tuple[tuple[float, FlowRound], ...] = ()

    def after_round(self, ended: RebalanceRound) -> RebalancesView:
        """Return what is known after a further look."""
        new = ((ended.taken_at, flow) for flow in ended.flows if flow.outcome in {"written", "failed", "inconclusive"})
        return RebalancesView(ended, (*self.done, *new)[-_ROUNDS_KEPT:])

    def to_dict(self) -> dict[str, object]:
        """Return JSON-ready values, newest first."""
        done = [{"taken_at": at, **to_json(flow)} for at, flow in reversed(self.done)]
        last = to_json(self.last) if self.last else {}
        return {**{key: last.get(key) for key in ("taken_at", "flows", "note", "error")}, "done": done}


ReadFacts = Callable[[Workspace], LoadFacts | None]
"""Returns what a look goes by; None while it is not read yet."""


def rebalances(  # noqa: PLR0913  what to judge by, and as for reconcile how to write
    workspace: Workspace,
    order: RebalanceOrder,
    read_facts: ReadFacts,
    *,
    every_seconds: float = 60.0,
    events: Path | None = None,
    report: Callable[[Event], None] = lambda event: None,
    interrupts: Interrupts | None = None,
    wait: Callable[[float], object] = pause,
) -> Generator[RebalanceRound]:
    """Yield look after look until the caller stops, as `watch` does; the lease of the owner is held only to write."""
    from mm2mgr.apply.leases import Leases
    from mm2mgr.apply.rounds import Rounds

    workspace.refuse_snapshot()
    rounds = Rounds(Leases(lease_group), RoundSchedule(every_seconds), workspace.event_log(events))
    rebalancing = Rebalancing(order, read_facts, rounds, report, interrupts)

    def look() -> RebalanceRound:
        return rebalancing.look(replace(workspace))

    return rounds.run(look, rebalancing.fail, lambda _, seconds: wait(seconds))


class FactsOfItsOwn:
    """Reads what a look goes by, where no other part of the process has read it: what tasks can carry every five
    minutes."""

    def __init__(self, store: Store) -> None:
        self._store, self._needs, self._read_at = store, EstateNeeds(), float("-inf")

    def __call__(self, workspace: Workspace) -> LoadFacts:
        """Read."""
        if not 0 <= time.time() - self._read_at < _NEEDS_SECONDS:
            self._needs, self._read_at = estate_needs(workspace, self._store), time.time()
        flows = [flow.id for flow in workspace.topology.flows if is_automatic(flow)]
        report = lag(workspace, flows, LagOptions(store=self._store))
        return LoadFacts(report, measured_load(self._store), self._needs)


@dataclass
class Rebalancing:
    """What one look leaves for the next."""

    order: RebalanceOrder
    read_facts: ReadFacts
    rounds: Rounds
    report: Callable[[Event], None] = lambda event: None
    interrupts: Interrupts | None = None
    states: dict[str, TriggerState] = field(default_factory=dict)
    history: History | None = None
    history_of: tuple[float, frozenset[str]] = (-math.inf, frozenset())

    def fail(self, error: Exception) -> RebalanceRound:
        """Return the look that an error ended."""
        self.rounds.log.write("failed", {"error": cause(error)})
        return RebalanceRound(self.rounds.number, time.time(), error=cause(error))

    def look_or_fail(self, workspace: Workspace, held: frozenset[str]) -> RebalanceRound:
        """Look once; an error makes a look of its own."""
        try:
            return self.look(workspace, held)
        except Exception as error:  # the round that it belongs to has written, and goes on
            return self.fail(error)

    def look(self, workspace: Workspace, held: frozenset[str] | None = None) -> RebalanceRound:
        """Look once with the tree as it is now, and write what is due.

        `held`: the Connect clusters whose lease the caller holds; None: it is taken here for as long as it writes.
        """
        now, number = workspace.now, self.rounds.number
        flows = [flow for flow in workspace.flows(self.order.flows) if is_automatic(flow)]
        if not flows:
            return RebalanceRound(number, now, note="no flow has `balance: plugin` and `automatic` triggers")
        facts = self.read_facts(workspace)
        if facts is None:
            return RebalanceRound(number, now, note="lag and load are not read yet")
        history, look = self._read_history(workspace, flows, now), _Look()
        for flow in flows:
            look.looks[flow.id] = self._look_of(flow, facts, history, now)
            state = self.states.get(flow.id, TriggerState())
            self.states[flow.id], decision = decide(state, look.looks[flow.id], now, automatic_rules(flow))
            look.rounds[flow.id] = _round_of(flow, decision, history)
        self.states = {flow.id: self.states[flow.id] for flow in flows}
        planned = [flow for flow in flows if look.rounds[flow.id].decision.action == "plan"]
        due = self._judge(workspace, planned, facts, look, history) if planned else {}
        applied = self._write(workspace, due, look, held) if due else None
        return RebalanceRound(number, now, tuple(look.rounds.values()), applied, look.unrecorded)

    def _judge(
        self, workspace: Workspace, planned: list[Flow], facts: LoadFacts, look: _Look, history: History
    ) -> dict[str, FlowBalance]:
        """Return the flows for which another assignment is worth a restart and can be written."""
        late = {
            flow.id: facts.load.rates.get(flow.source.alias, {})
            for flow in planned
            if look.rounds[flow.id].decision.trigger == "overload"
        }
        judged = judge_flows(workspace, planned, EvidenceOptions(self.order.store), late, history=history)
        balances = {balance.flow: balance for balance in judged.flows}
        due = {name: balance for name, balance in balances.items() if balance.change}
        for flow in planned:
            if flow.id not in due:
                failure = judged.failures.get(flow.source.alias)
                look.set_outcome(flow.id, *_judged_as(balances.get(flow.id), failure))
        return due

    def _look_of(self, flow: Flow, facts: LoadFacts, history: History, now: float) -> FlowLook:
        """Return one flow as this look sees it."""
        of_flow = next((lag for lag in facts.lag.flows if lag.flow == flow.id), None)
        load, need = facts.load, facts.needs.flows.get(flow.id)
        tasks: tuple[TaskLoadLook, ...] = ()
        if of_flow and not of_flow.lag.unknown:
            rows = {row.task: row for row in of_flow.rows(LagLevel.TASK)}
            tasks = tuple(
                _task_look(task, rows.get(task.task), need, of_flow)
                for task in load.of_tasks(flow.source.alias, of_flow.lag.assignment)
            )
        return FlowLook(
            tasks,
            frozen_by=self._frozen_by(flow),
            stale=_stale_reason(load, now),
            unsettled=_unsettled_reason(of_flow),
            **_rounds_in(history, flow),
        )

    def _frozen_by(self, flow: Flow) -> str:
        """Return the freeze file that exists."""
        files = (flow.settings.balance.freeze, self.order.freeze_file)
        return next((str(file) for file in files if file and is_frozen(Path(file))), "")

    def _write(
        self, workspace: Workspace, due: Mapping[str, FlowBalance], look: _Look, held: frozenset[str] | None
    ) -> Applied | None:
        """Write the assignments that are due, where the lease is held and the history can be written."""
        from mm2mgr.apply.applied import Progress, no_interrupts, write_approved
        from mm2mgr.apply.history import Recorder, author
        from mm2mgr.apply.waves import Rollout

        by, rounds = author(workspace.files), look.rounds
        with self._lease(workspace, by, {balance.connect for balance in due.values()}, held) as missing:
            free = {name: balance for name, balance in due.items() if balance.connect not in missing}
            for name in due.keys() - free.keys():
                reason = missing[due[name].connect]
                look.set_outcome(name, "standby" if reason == _OTHERS else "left", reason)
                if reason == _OTHERS:
                    self.states[name] = self.states[name].after_standby(workspace.now)
            free = self._still_due(workspace, free, look)
            recorder = Recorder(workspace.topology, COMMAND, by)
            recorder.reasons = {
                (balance.connect, balance.connector): self._reason(rounds[name], balance)
                for name, balance in free.items()
            }
            look.unrecorded = recorder.begin_all(filter(None, (balance.change for balance in free.values())))
            for name in [name for name, balance in free.items() if balance.connect in look.unrecorded]:
                look.set_outcome(
                    name, "left", f"the history was not written: {look.unrecorded[free.pop(name).connect]}"
                )
            if not free:
                return None
            self.history = None
            for name in free:
                self.states[name] = self.states[name].after_try(workspace.now)
            plan = plan_to_write(workspace.topology.owner, free.values())
            progress = Progress(plan, self.report, recorder, self.rounds.log)
            rollout = Rollout(self.order.wait_seconds, rollback=self.order.wait_seconds > 0)
            interrupts = self.interrupts or no_interrupts
            applied = wait_for(write_approved(workspace.topology, progress, rollout, interrupts, self.rounds.leases))
        for name, balance in free.items():
            look.set_outcome(name, *_became(applied, balance))
        return applied

    def _still_due(self, workspace: Workspace, due: Mapping[str, FlowBalance], look: _Look) -> dict[str, FlowBalance]:
        """Return the flows that nothing holds by history and connectors as they are now, under the lease."""
        flows, still = [flow for flow in workspace.topology.flows if flow.id in due], dict(due)
        history, running = workspace.ask(read_again(workspace.topology, {flow.connect.name for flow in flows}))
        owners = Ownership.of_tree(workspace.topology)
        for flow in flows:
            newest = replace(look.looks[flow.id], frozen_by=self._frozen_by(flow), **_rounds_in(history, flow))
            hold, reason = hold_of(self.states[flow.id], newest, workspace.now, automatic_rules(flow))
            if hold:
                look.set_outcome(flow.id, "kept", reason)
                del still[flow.id]
            elif refusal := refusal_now(running[flow.connect.name], due[flow.id].change, owners):
                look.set_outcome(flow.id, "left", refusal)
                del still[flow.id]
        return still

    def _read_history(self, workspace: Workspace, flows: Iterable[Flow], now: float) -> History:
        """Return the history, as it was read a few minutes ago where nothing of it was unread then."""
        connects, (read_at, of) = frozenset(flow.connect.name for flow in flows), self.history_of
        is_old = of != connects or not 0 <= now - read_at < _HISTORY_SECONDS
        if self.history is None or self.history.unread or is_old:
            self.history = workspace.ask(read_history(workspace.topology, connects))
            self.history_of = now, connects
        return self.history

    def _reason(self, flow: FlowRound, balance: FlowBalance) -> str:
        """Return what the history keeps as the reason of a round: what asked for it, else the first of the plan's."""
        first = balance.plan.reasons[0] if balance.plan and balance.plan.reasons else ""
        trigger = flow.decision.reason or "; ".join(filter(None, ("due by schedule", first.removesuffix("."))))
        return "; ".join(filter(None, (f"automatic: {trigger}", self.order.reason)))

    @contextmanager
    def _lease(
        self, workspace: Workspace, by: object, concerned: set[str], held: frozenset[str] | None
    ) -> Iterator[Mapping[str, str]]:
        """Yield the Connect clusters that may not be written, each with the reason."""
        from mm2mgr.apply.leases import holder_note

        if held is not None:
            yield dict.fromkeys(concerned - held, _OTHERS)
            return
        leases = self.rounds.leases
        try:
            standby, without = leases.take(workspace.topology, concerned, holder_note(COMMAND, by, time.time()))
            yield {**dict.fromkeys(standby, _OTHERS), **without}
        finally:
            leases.close()


@dataclass
class _Look:
    """A look in the making, by flow id."""

    looks: dict[str, FlowLook] = field(default_factory=dict)
    rounds: dict[str, FlowRound] = field(default_factory=dict)
    unrecorded: Mapping[str, str] = field(default_factory=dict)

    def set_outcome(self, flow_id: str, outcome: Outcome, detail: str) -> None:
        self.rounds[flow_id] = replace(self.rounds[flow_id], outcome=outcome, detail=detail)


def is_automatic(flow: Flow) -> bool:
    """Tell whether a flow may be rebalanced without a person."""
    return flow.settings.balance.by == "plugin" and bool(flow.settings.balance.automatic)


def _connector_of(flow: Flow) -> Named:
    return flow.connect.name, str(flow.connector_name("source"))


def _rounds_in(history: History, flow: Flow) -> dict[str, Any]:
    """Return what a look has of the history of a flow."""
    unread, named = history.unread.get(flow.connect.name, ""), _connector_of(flow)
    rounds = tuple(entry.at_seconds for entry in rounds_of(history, named))
    tries = tuple(entry.at_seconds for entry in tries_of(history, named))
    return {"rounds_seconds": None if unread else rounds, "tries_seconds": tries, "unread": unread}


def _round_of(flow: Flow, decision: TriggerDecision, history: History) -> FlowRound:
    entries = rounds_of(history, _connector_of(flow))
    count = None if flow.connect.name in history.unread else len(entries)
    last = LastRound.of_entry(entries[-1]) if entries else None
    return FlowRound(flow.id, *_connector_of(flow), decision, rounds=count, last=last)


def _task_look(load: TaskLoad, row: LagRow | None, need: FlowNeed | None, facts: FlowFacts) -> TaskLoadLook:
    volume = load.bytes_per_second
    share = None if need is None or volume is None else need.share(volume, load.records_per_second)
    if row is None:
        return TaskLoadLook(load.task, share)
    points = facts.points.get(task_key(load.task), ())
    mirrored, _ = recent_rates(points, _STILL_SECONDS, 2 * facts.flush_interval_seconds)
    is_growing = row.trend is not None and row.trend.direction == "growing"
    return TaskLoadLook(load.task, share, row.seconds.value, is_growing, mirrored == 0 and bool(row.records.value))


def _stale_reason(load: MeasuredLoad, now: float) -> str:
    """Say why there are no rates to judge by."""
    if load.unknown:
        return f"no rates: {load.unknown}"
    age = now - load.until_seconds
    return f"the newest rates are {span_text(age)} old" if age > BalanceRules().stale_seconds else ""


def _unsettled_reason(facts: FlowFacts | None) -> str:
    """Say why a connector cannot be written now, as far as a look at lag shows."""
    if facts is None:
        return "it was not read yet"
    if facts.lag.unknown:
        return facts.lag.unknown
    return "" if facts.state == "RUNNING" else f"it is {facts.state}"


def _judged_as(balance: FlowBalance | None, failure: str | None) -> tuple[Outcome, str]:
    """Return what became of a flow for which a plan was made, before anything is written."""
    if balance is None:
        return "unknown", failure or "its source was not read"
    if balance.verdict == "keep":
        return "kept", balance.detail or " ".join(balance.plan.reasons if balance.plan else ())
    return ("unknown" if balance.verdict == "unknown" else "left"), balance.detail


def _became(applied: Applied, balance: FlowBalance) -> tuple[Outcome, str]:
    named = balance.connect, balance.connector
    result = next((result for result in applied.results if result.full_name == named), None)
    settled = applied.states.get(named)
    if result is None:
        return "inconclusive", "it was interrupted"
    if result.error is not None:
        return "failed", result.error
    if result.rolled_back:
        return "failed", f"it was taken back: {settled.state if settled else 'not good'}"
    if settled and settled.verdict != "ok":
        return ("failed" if settled.verdict == "failed" else "inconclusive"), settled.state
    reasons = balance.plan.reasons if balance.plan else ()
    return "written", " ".join(reasons)
