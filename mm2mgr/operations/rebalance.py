"""`rebalance`: what the tasks of each flow carry, the assignment that suits better, and its write into the config of a
connector of the plugin's class.

Only `mm2mgr.assignment` is written. The number of tasks stays `tasks.max` of the tree: whatever else is in the config
is the business of `plan` and `apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal

from mm2mgr.assignment import Assignment, parse_assigned, spread
from mm2mgr.assignment_text import (
    ASSIGNMENT_KEY,
    AssignmentRefused,
    PluginAssignment,
    digest,
    is_plugin_class,
    read_text,
)
from mm2mgr.balance.fresh import BalancePlan, FlowToPack, percent
from mm2mgr.balance.lanes import LanePlan, plan_lanes
from mm2mgr.balance.planner import plan_balance
from mm2mgr.balance.rates import MeasuredRate, Rates
from mm2mgr.balance.rules import ELASTIC_ROUNDS_PER_DAY, ROUNDS_PER_DAY, BalanceHistory, BalanceRules
from mm2mgr.balance.triggers import AutomaticRules, FlowLook, holds_of_tree
from mm2mgr.balance.ways import Way, compare_ways, with_connectors_today
from mm2mgr.comparison.differences import KeyChange, Named
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connectors import RESTING, RunningConnector, standing
from mm2mgr.errors import Failure, Mm2mgrError
from mm2mgr.evidence.measured import NewestRates, read_newest_rates
from mm2mgr.evidence.read import Evidence, EvidenceOptions, read
from mm2mgr.files import is_frozen
from mm2mgr.live.questions import ConnectorsWithStatuses
from mm2mgr.live.snapshot import Steps
from mm2mgr.off_peak import OffPeak
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace, seconds_of
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import Change, ClusterPlan, Plan, Price
from mm2mgr.plan.history import History, HistoryEntry, read_history
from mm2mgr.render import OWNER_KEY
from mm2mgr.sizing.load import statistic_of
from mm2mgr.sizing.tasks import Bounds, Rules
from mm2mgr.text import few, number_of, one_line, whole_number
from mm2mgr.timing import wait_for
from mm2mgr.topology import Flow, Topology, lease_group

if TYPE_CHECKING:
    from mm2mgr.apply.applied import Applied, Interrupts
    from mm2mgr.apply.waves import Event
    from mm2mgr.sizing.scenario import Scenario

COMMAND = "rebalance"
"""What the history says of a change that was made so."""
Verdict = Literal["rebalance", "keep", "stock", "left", "unknown"]
_ROUND_OUTCOMES = frozenset({"begun", "done", "inconclusive", "rolled back"})
"""Each of them restarted the tasks, or may have."""
SPREAD_KEY = "busiest task, times the mean"
"""What the history says of the gain: the busiest task's bytes per second by the mean, before and after."""
PartitionRates = Mapping[TopicPartition, tuple[float | None, float | None]]
"""Bytes and records per second; None: unknown."""
_MOST_LOOKS = 2  # of one command: the newest day, and the whole window
_UNLIMITED = 1_000_000_000
NOW_HINT = "--now does not wait for that"
_STOCK = "its class assigns partitions round-robin, so nothing can be written"
_STOCK_HINT = (
    "the assignment needs the plugin on each worker (mm2mgr plugin write) and `balance: plugin` in the flow:"
    " docs/how-to/plugin.md"
)


@dataclass(frozen=True)
class FlowBalance:
    """What a flow's tasks carry, and what is to be done.

    `verdict`: `rebalance`, a change is worth its restart and can be written; `keep`, none is; `stock`, the connector's
    class takes no assignment; `left`, nothing may be written now; `unknown`, it could not be judged. `detail` and
    `hint` say why, and what to do. `ways` are those to assign the same load. `change`: what would be written.
    """

    flow: str
    connect: str
    connector: str
    verdict: Verdict
    detail: str = ""
    hint: str = ""
    tasks_max: int | None = None
    plan: BalancePlan | None = None
    ways: tuple[Way, ...] = ()
    lanes: LanePlan | None = None
    """The lanes that stock Connect could have for this load; None where they are no better, or hardly better than the
    lanes that the flow has."""
    change: Change | None = field(default=None, repr=False)
    held: tuple[str, ...] = ()
    """What the tree says against this change now: its freeze file, hours, cool-down, or rounds of a day."""
    json_keys = "flow connect connector verdict detail hint held tasks_max ways lanes plan"

    @property
    def today(self) -> Way | None:
        """The assignment that runs; None where there is none."""
        return next((way for way in self.ways if way.name == "today"), None)


@dataclass(frozen=True)
class RebalanceReport:
    """Each flow, and what became of the writes (None: nothing was to be written, or it was not asked for).

    `failures`: source clusters that could not be read, with why; their flows are absent. `measured`: the rates that
    were planned with, `newest`: until when anything was measured. `overtaken`: flows whose write was approved and not
    begun, since what runs, or the history, had changed by then.
    """

    flows: tuple[FlowBalance, ...]
    failures: Mapping[str, str]
    measured: str
    newest: str
    applied: Applied | None = None
    overtaken: tuple[str, ...] = ()
    json_keys = "flows failures measured newest applied overtaken"

    @property
    def changes(self) -> list[FlowBalance]:
        """The flows with a change that is worth its restart."""
        return [flow for flow in self.flows if flow.verdict == "rebalance"]

    @property
    def is_unjudged(self) -> bool:
        """Whether a flow could not be judged."""
        return bool(self.failures) or any(flow.verdict == "unknown" for flow in self.flows)

    def leave(self, reasons: Mapping[str, str], hint: str = "") -> RebalanceReport:
        """Return the report in which nothing is written to these flows, each for its reason."""
        flows = (
            replace(flow, verdict="left", detail=reasons[flow.flow], hint=hint, change=None)
            if flow.flow in reasons
            else flow
            for flow in self.flows
        )
        return replace(self, flows=tuple(flows))

    def leave_held(self) -> RebalanceReport:
        """Return the report in which nothing is written that the tree holds now."""
        return self.leave({flow.flow: "; ".join(flow.held) for flow in self.changes if flow.held}, NOW_HINT)


def rebalance(  # noqa: PLR0913  what to judge by, and as for apply how to write
    workspace: Workspace,
    flows: Sequence[str] = (),
    options: EvidenceOptions = EvidenceOptions(DEFAULT_STORE),
    *,
    write: bool = False,
    overrule: bool = False,
    wait_seconds: float = 60.0,
    reason: str = "",
    approve: Callable[[RebalanceReport], bool] = lambda report: True,
    report: Callable[[Event], None] = lambda event: None,
    interrupts: Interrupts | None = None,
) -> RebalanceReport:
    """Judge the assignments of the named flows, or of all; `write` writes those that are worth a restart.

    Written is as `apply` does: under the owner's lease, compared before and read back after, until the tasks run with
    it, and taken back where they do not. What the tree holds now (freeze file, hours, cool-down, rounds of a day) is
    written with `overrule` only. `approve` gets what is to be written; Mm2mgrError, with nothing written, when it
    returns False, when nothing was rolled up, or another process has the lease. What was paused, changed or written by
    others since then is left.
    """
    if write:
        workspace.refuse_snapshot()
    chosen = workspace.flows(flows)

    def judge() -> RebalanceReport:
        judged = judge_flows(workspace, chosen, options, overrule=overrule)
        return judged.leave_held() if write and not overrule else judged

    judged = judge()
    if not write or not judged.changes:
        return judged
    from mm2mgr.apply.applied import Progress, no_interrupts, write_approved
    from mm2mgr.apply.history import Recorder, author
    from mm2mgr.apply.leases import Leases, take_lease, wait_for_lease
    from mm2mgr.apply.waves import Rollout

    topology = workspace.topology
    if wait_for_lease(topology, plan_to_write(topology.owner, judged.changes), report):
        judged = judge()  # the process that had it may have written
        if not judged.changes:
            return judged
    if not approve(judged):
        raise Mm2mgrError("it was not approved; nothing was written")
    by = author(workspace.files)
    leases = Leases(lease_group)
    try:
        plan = take_lease(leases, topology, plan_to_write(topology.owner, judged.changes), by, report, command=COMMAND)
        judged = _as_it_is_now(workspace, judged, overrule=overrule)
        if not judged.changes:
            return judged
        plan = _without_left(plan, judged)
        progress = Progress(plan, report, Recorder(topology, COMMAND, by, reason), workspace.event_log(None))
        rollout = Rollout(wait_seconds, rollback=wait_seconds > 0)
        writing = write_approved(topology, progress, rollout, interrupts or no_interrupts, leases)
        return replace(judged, applied=wait_for(writing))
    finally:
        leases.close()


def plan_to_write(owner: str, flows: Iterable[FlowBalance]) -> Plan:
    """Return the plan that writes the assignments of some flows."""
    changes: dict[str, list[Change]] = {}
    for flow in flows:
        if flow.change:
            changes.setdefault(flow.connect, []).append(flow.change)
    return Plan(owner, tuple(ClusterPlan(connect, tuple(of)) for connect, of in changes.items()))


def _without_left(plan: Plan, judged: RebalanceReport) -> Plan:
    """Return a plan without what is not to be written any more."""
    due = {flow.change.full_name for flow in judged.changes if flow.change}
    parts = (
        replace(part, changes=tuple(change for change in part.changes if change.full_name in due))
        for part in plan.clusters
    )
    return replace(plan, clusters=tuple(part for part in parts if part.changes))


def judge_flows(  # noqa: PLR0913  what to judge by, and what was read before
    workspace: Workspace,
    chosen: Sequence[Flow],
    options: EvidenceOptions,
    overloaded: Mapping[str, PartitionRates] | None = None,
    *,
    history: History | None = None,
    overrule: bool = False,
) -> RebalanceReport:
    """Judge the assignments of some flows; Mm2mgrError when nothing was rolled up.

    `overloaded`: flows with a task that is overloaded and late, by id, with the rates of their partitions now. One look
    is enough for them, and their partitions count with these rates where the window has lower ones. `history`: where
    the caller has read it. `overrule`: neither the cool-down nor the rounds of a day keep an assignment.
    """
    newest = read_newest_rates(options.store, options.statistic)
    evidence = read(workspace, options, chosen)
    scenarios = {scenario.flow_id: scenario for scenario in evidence.scenarios()}
    with_plugin = {flow.connect.name for flow in evidence.flows if _has_plugin(evidence.connectors[flow.id])}
    if history is None:
        history = workspace.ask(read_history(workspace.topology, with_plugin)) if with_plugin else History()
    owners, late = Ownership.of_tree(workspace.topology), overloaded or {}
    over = _savings_over(workspace, evidence.flows)
    judging = _Judging(evidence, newest, history, owners, workspace.now, late, scenarios, over, overrule)
    return RebalanceReport(
        tuple(judging.judge(flow, scenarios[flow.id]) for flow in evidence.flows),
        evidence.failures,
        evidence.rates.text,
        newest.text,
    )


def _savings_over(workspace: Workspace, flows: Iterable[Flow]) -> frozenset[str]:
    """Return the elastic flows whose fewer tasks were enough for hours that are over: they are given up no more."""
    sized = workspace.spec.tree.sizing
    until = {flow.id: seconds_of(sized[flow.id].holds_until) for flow in flows if flow.tasks.is_saving}
    return frozenset(name for name, seconds in until.items() if seconds is not None and workspace.now >= seconds)


def _is_elastic(flow: Flow) -> bool:
    """Tell whether the tree has a number of tasks for the coming hours."""
    return flow.settings.tasks.elastic and flow.tasks.automatic and flow.tasks.maximum.origin.kind == "override"


def _bounds_by_tree(flow: Flow, bounds: Bounds, tasks_max: int, is_over: bool) -> Bounds:
    """Return how many tasks may have partitions, with this tasks.max: no more than the tree has, by hand or sized,
    since `plan` lowers tasks.max only after that.

    An elastic flow gets just as many: before a peak the load of past hours does not ask for them. `is_over`: the number
    only saved tasks, for hours that are over.
    """
    maximum = flow.tasks.maximum
    is_decided = not flow.tasks.automatic or (maximum.origin.kind == "override" and not is_over)
    most = min(tasks_max, int(maximum)) if is_decided else tasks_max
    limit = most if bounds.limit is None else min(bounds.limit, most)
    least = limit if _is_elastic(flow) and not is_over else min(bounds.minimum, limit)
    return replace(bounds, limit=limit, minimum=least)


Running = Mapping[str, Mapping[str, RunningConnector] | Mm2mgrError]


def read_again(topology: Topology, connects: Iterable[str]) -> Steps[tuple[History, Running]]:
    """Read what may have changed since a plan was made: the history, and what runs."""
    connects = set(connects)
    history = yield from read_history(topology, connects)
    snapshot = yield [ConnectorsWithStatuses(connect) for connect in sorted(connects)]
    return history, {connect: snapshot.get(ConnectorsWithStatuses(connect)) for connect in connects}


def refusal_now(running: Mapping[str, RunningConnector] | Mm2mgrError, change: Change | None, owners: Ownership) -> str:
    """Say why a change may not be written any more; empty where it may."""
    if isinstance(running, Mm2mgrError):
        return f"it was not read before the write: {running.one_line}"
    if change is None or change.connector not in running:
        return "it does not exist any more"
    connector = running[change.connector]
    if refusal := refusal_to_write(connector, change.full_name, owners):
        return refusal[0]
    return "" if connector.config == change.before else "its config changed since the plan was made"


def _as_it_is_now(workspace: Workspace, judged: RebalanceReport, *, overrule: bool) -> RebalanceReport:
    """Return the report without the writes that the history and what runs, read under the lease, do not allow: a person
    may have thought about the question for an hour."""
    due = {balance.flow: balance for balance in judged.changes}
    flows = [flow for flow in workspace.topology.flows if flow.id in due]
    history, running = workspace.ask(read_again(workspace.topology, {flow.connect.name for flow in flows}))
    owners, reasons = Ownership.of_tree(workspace.topology), dict[str, str]()
    for flow in flows:
        connect = flow.connect.name
        reason = refusal_now(running[connect], due[flow.id].change, owners)
        if not reason and connect in history.unread and flow.connect.model.history:
            reason = f"the history was not read before the write: {history.unread[connect]}"
        if not reason and not overrule:
            reason = "; ".join(_holds(flow, history, workspace.now))
        if reason:
            reasons[flow.id] = reason
    return replace(judged.leave(reasons), overtaken=tuple(reasons))


def _holds(flow: Flow, history: History, now: float) -> tuple[str, ...]:
    """Say what the tree has against a rebalance now."""
    freeze, named = flow.settings.balance.freeze, (flow.connect.name, flow.connector_name("source"))
    rounds = tuple(entry.at_seconds for entry in rounds_of(history, named))
    look = FlowLook((), rounds, frozen_by=freeze if freeze and is_frozen(Path(freeze)) else "")
    return holds_of_tree(look, now, automatic_rules(flow))


def _unread_tasks(running: RunningConnector | str) -> str:
    """Say why the tasks of a connector could not be read."""
    if isinstance(running, RunningConnector) and isinstance(running.tasks, Failure):
        return one_line(running.tasks.message)
    return str(running)


def _has_plugin(running: RunningConnector | str) -> bool:
    return isinstance(running, RunningConnector) and is_plugin_class(running.config.get("connector.class", ""))


@dataclass(frozen=True)
class _Judging:
    """All that a judgement goes by, read before."""

    evidence: Evidence
    newest: NewestRates
    history: History
    owners: Ownership
    now: float
    overloaded: Mapping[str, PartitionRates] = field(default_factory=dict)
    scenarios: Mapping[str, Scenario] = field(default_factory=dict)
    savings_over: frozenset[str] = frozenset()
    overrule: bool = False

    def judge(self, flow: Flow, scenario: Scenario) -> FlowBalance:
        """Judge one flow."""
        running, named = self.evidence.connectors[flow.id], (flow.connect.name, flow.connector_name("source"))
        balance = FlowBalance(flow.id, *named, "left")
        if isinstance(running, str) or isinstance(running.tasks, Failure):
            live = self.evidence.running[flow.connect.name]
            if not isinstance(live, Mm2mgrError) and named[1] not in live:
                return replace(balance, detail="it is not created yet", hint="mm2mgr apply")
            reason = live.one_line if isinstance(live, Mm2mgrError) else _unread_tasks(running)
            return replace(
                balance, verdict="unknown", detail=f"Connect cluster '{flow.connect.name}' was not read: {reason}"
            )
        if _has_plugin(running):
            return self._judge_plugin(balance, flow, scenario, running)
        rates, rules = self._planning_rates(flow, scenario), balance_rules(flow, scenario.rules)
        if flow.undivided and (whole := self._judge_lanes(balance, flow, rules)):
            return whole
        plan = plan_balance(scenario.prediction.order, rates, None, rules)
        has_lanes, lanes = flow.undivided or flow.lane_of, None
        if not has_lanes:
            lanes = plan_lanes(FlowToPack(scenario.prediction.order, rates, rules), plan.task_count)
        ways = compare_ways(plan, rates, running.assignment, rules, None if lanes is None else lanes.way)
        better = lanes if lanes and lanes.lanes else None
        return replace(balance, verdict="stock", detail=_STOCK, hint=_STOCK_HINT, plan=plan, ways=ways, lanes=better)

    def _judge_lanes(self, balance: FlowBalance, flow: Flow, rules: BalanceRules) -> FlowBalance | None:
        """Judge a flow together with its lanes, as they run; None where not all of them run with the stock class."""
        partitions: list[TopicPartition] = []
        tasks: list[tuple[TopicPartition, ...]] = []
        rates: dict[TopicPartition | str, MeasuredRate | float] = {}
        parts = [part for part in self.evidence.flows if part.whole_id == flow.id]
        every_lane = len(flow.settings.balance.lanes) + 1
        for part in parts:
            running, scenario = self.evidence.connectors[part.id], self.scenarios[part.id]
            if isinstance(running, str) or isinstance(running.tasks, Failure) or _has_plugin(running):
                return None
            partitions += scenario.prediction.order
            tasks += running.assignment.tasks
            rates |= self._planning_rates(part, scenario)
        if len(parts) != every_lane:
            return None
        plan = plan_balance(partitions, rates, None, rules)
        lanes = plan_lanes(FlowToPack(partitions, rates, rules), plan.task_count)
        ways = with_connectors_today(compare_ways(plan, rates, Assignment(tuple(tasks)), rules, lanes.way), len(parts))
        today, least = ways[0].busiest, lanes.way.busiest
        figures = f"the busiest task of its {len(parts)} connectors has {percent(today)} of the usable capacity"
        is_good, instead = today <= rules.imbalance * least, "with those below" if lanes.lanes else "without lanes"
        detail = f"its lanes are {'good' if is_good else 'uneven'}: {figures}, "
        detail += f"{'planned anew' if is_good else instead} it would have {percent(least)}"
        better = lanes if lanes.lanes and not is_good else None
        return replace(balance, verdict="stock", detail=detail, plan=plan, ways=ways, lanes=better)

    def _judge_plugin(
        self, balance: FlowBalance, flow: Flow, scenario: Scenario, running: RunningConnector
    ) -> FlowBalance:
        named, alias = (balance.connect, balance.connector), flow.source.alias
        rates, rules = self._planning_rates(flow, scenario), balance_rules(flow, scenario.rules)
        if flow.id in self.overloaded:
            rules = replace(rules, looks=1)
        tasks_max = whole_number(running.config.get("tasks.max", "1"), 9) or 1
        try:
            former = _former_assignment(running.config.get(ASSIGNMENT_KEY, ""))
        except AssignmentRefused as refused:
            return replace(balance, detail=refused.one_line, hint=refused.hint or "", tasks_max=tasks_max)
        partitions = [partition for partition in scenario.prediction.order if not former.is_held(partition)]
        bounds = rules.bounds
        is_over = flow.id in self.savings_over
        by_tree = _bounds_by_tree(flow, bounds, tasks_max, is_over)
        within = replace(rules, bounds=by_tree)
        if self.overrule:
            within = replace(within, cool_down_seconds=0.0, rounds_per_day=_UNLIMITED)
        running_now = Assignment(
            tuple(tuple(name for name in task if not former.is_held(name)) for task in running.assignment.tasks)
        )
        history = self._history(alias, named, partitions, running_now, within)
        plan = plan_balance(partitions, rates, running_now, within, history)
        ways = compare_ways(plan, rates, running_now, rules)
        if _is_elastic(flow) and not is_over and plan.choice in {"grow", "shrink"}:
            coming = f"The flow is elastic, and the tree has {number_of(by_tree.minimum, 'task')} for the coming hours."
            plan = replace(plan, reasons=(coming, *plan.reasons))
        if plan.capped and (bounds.limit is None or bounds.limit > tasks_max):
            more = f"The load needs more than tasks.max, {tasks_max}: mm2mgr size, then apply, raise that."
            plan = replace(plan, reasons=(*plan.reasons, more))
        if pinned := _pinned_text(rules, partitions, _topics_of_others(flow)):
            plan = replace(plan, reasons=(*plan.reasons, pinned))
        held = _holds(flow, self.history, self.now)
        balance = replace(balance, plan=plan, ways=ways, tasks_max=tasks_max)
        if refusal := refusal_to_write(running, named, self.owners):
            return replace(balance, detail=refusal[0], hint=refusal[1])
        if not plan.is_change:
            look = plan.look
            is_uneven = look is not None and look.busiest > min(1.0, rules.imbalance * look.bound)
            held = held if is_uneven and not self.overrule else ()
            return replace(balance, verdict="keep", held=held, hint=NOW_HINT if held else "")
        if named[0] in self.history.unread and flow.connect.model.history:
            detail = f"the history was not read, so the last changes are unknown: {self.history.unread[named[0]]}"
            return replace(balance, verdict="unknown", detail=detail)
        balance = replace(balance, held=held, hint=NOW_HINT if held and not self.overrule else "")
        return _with_change(balance, running, plan, former)

    def _history(
        self, alias: str, named: Named, partitions: Sequence[TopicPartition], running: Assignment, rules: BalanceRules
    ) -> BalanceHistory:
        """Return the look at the newest day, and the rounds that the history tells."""
        # Rates of before the last round are a look at the assignment of now, too, where that is not waited for.
        rounds = () if self.overrule else tuple(entry.at_seconds for entry in rounds_of(self.history, named))
        measured = self.newest.of_cluster(alias)
        rates: Rates = {name: MeasuredRate(*measured[name][:2]) for name in partitions if name in measured}
        at = BalanceHistory(self.newest.until_seconds)
        look = plan_balance(partitions, rates, running, rules, at).look if rates else None
        return BalanceHistory(self.now, (look,) if look else (), rounds)

    def _planning_rates(self, flow: Flow, scenario: Scenario) -> Rates:
        """Return the level of each partition in the window; its age is that of the newest hour that has it."""
        measured, sizes = self.newest.of_cluster(flow.source.alias), scenario.profile.record_bytes
        least = self.overloaded.get(flow.id, {})
        rates: dict[TopicPartition | str, MeasuredRate | float] = dict.fromkeys(
            scenario.prediction.without_load, MeasuredRate(0.0)
        )
        for partition, hours in scenario.rates.items():
            if isinstance(hours, float):  # of heartbeats, which are not sampled
                rates[partition] = MeasuredRate(hours)
                continue
            volume, size = float(statistic_of(hours, self.evidence.rates.statistic)), sizes.get(partition, 0.0)
            volume = max(volume, least.get(partition, (None, None))[0] or 0.0)
            age = max(0.0, self.now - measured[partition][2]) if partition in measured else inf
            rates[partition] = MeasuredRate(volume, volume / size if size > 0 else 0.0, age)
        return rates


def refusal_to_write(running: RunningConnector, named: Named, owners: Ownership) -> tuple[str, str] | None:
    """Return why nothing may be written to a connector now, and what to do."""
    from mm2mgr.apply.verbs import untouchable

    if remark := untouchable(running.config, named, owners):
        return remark.text, remark.remedy
    if running.config.get(OWNER_KEY) != owners.owner:
        return "it has no mark of this owner yet", "mm2mgr apply"
    if running.state in RESTING:
        return f"it is {running.state}: nothing is written", "mm2mgr resume runs it"
    if (state := standing(running, "RUNNING")) != "settled":
        return f"it does not run as a whole ({running.state or state}; {state})", "mm2mgr describe says why"
    if running.older_tasks:
        return "its tasks are still on an older config", "run it again when mm2mgr status shows them settled"
    return None


def balance_rules(flow: Flow, sizing: Rules | None = None) -> BalanceRules:
    """Return the rules by which a flow is balanced: as it is sized, and as its tree says."""
    settings = flow.settings.balance
    is_elastic = flow.settings.tasks.elastic and flow.tasks.automatic
    rounds = ELASTIC_ROUNDS_PER_DAY if is_elastic else ROUNDS_PER_DAY
    return replace(
        BalanceRules.of_sizing(sizing or Rules()),
        imbalance=settings.threshold,
        looks=min(settings.looks, _MOST_LOOKS),
        cool_down_seconds=settings.cool_down,
        rounds_per_day=rounds if settings.rounds_per_day is None else settings.rounds_per_day,
        pinned=frozenset(parse_assigned(",".join(settings.pinned))),
    )


def automatic_rules(flow: Flow) -> AutomaticRules:
    """Return what the tree says of automatic rebalances of a flow."""
    settings = flow.settings.balance
    windows = tuple(map(OffPeak.parse, settings.windows))
    return AutomaticRules(
        balance_rules(flow), tuple(settings.automatic), settings.looks, windows, flow.settings.max_lag
    )


def tries_of(history: History, named: Named) -> list[HistoryEntry]:
    """Return the rebalances of a connector that were begun, oldest first, whatever became of them."""
    return [entry for entry in history.entries if (entry.connect, entry.connector, entry.command) == (*named, COMMAND)]


def rounds_of(history: History, named: Named) -> list[HistoryEntry]:
    """Return the rebalances of a connector that restarted its tasks, or may have, oldest first."""
    return [entry for entry in tries_of(history, named) if entry.outcome in _ROUND_OUTCOMES or entry.was_written]


def _former_assignment(text: str) -> PluginAssignment:
    """Return the assignment that a connector has, an empty one where it has none; AssignmentRefused for one that cannot
    be read."""
    return read_text(text) if text.strip() else PluginAssignment((), 1)


def text_of(plan: BalancePlan, former: PluginAssignment) -> str:
    """Return the text of a plan for the plugin, which goes on to hold what the former one holds; AssignmentRefused for
    one that Connect could not store.

    A partition that is not listed, such as of a new topic, counts with the median of those that are.
    """
    unlisted = median(rate.bytes_per_second for rate in plan.rates)
    loads = [task.bytes_per_second for task in plan.tasks]
    return PluginAssignment.build(plan.assignment, loads, unlisted).holding(former).text


def _topics_of_others(flow: Flow) -> Callable[[str], bool]:
    """Return what tells whether a topic is for another connector of the flow to name: `pinned` is one for all lanes.

    What no lane lists is the business of the flow's own connector.
    """
    if flow.lane_of:
        return lambda topic: topic not in flow.settings.topics.include
    listed = {topic for lane in flow.settings.balance.lanes.values() for topic in lane.topics}
    return lambda topic: topic in listed


def _pinned_text(
    rules: BalanceRules, partitions: Iterable[TopicPartition], is_of_others: Callable[[str], bool] = lambda _: False
) -> str:
    """Say how many partitions are pinned, and which of them the flow does not have; empty where none is."""
    pinned = {partition for partition in rules.pinned if not is_of_others(partition.topic)}
    missing, count = sorted(pinned.difference(partitions)), len(pinned)
    if not missing:
        return f"{number_of(count, 'partition')} {'stays' if count == 1 else 'stay'} pinned." if count else ""
    names = few([f"{topic}-{number}" for topic, number in missing], 3)
    return f"Pinned, but not a partition that the tasks of this flow have: {names}."


def _loads(assignment: Assignment, plan: BalancePlan) -> list[float]:
    """Return the bytes per second of each task by the rates of a plan."""
    return assignment.loads({rate.partition: rate.bytes_per_second for rate in plan.rates})


def _with_change(
    balance: FlowBalance, running: RunningConnector, plan: BalancePlan, former: PluginAssignment
) -> FlowBalance:
    """Return the flow with its write: the running config with another text. The history keeps digests and gain."""
    before = running.config.get(ASSIGNMENT_KEY)
    try:
        text = text_of(plan, former)
    except AssignmentRefused as refused:
        return replace(balance, detail=refused.one_line, hint=refused.hint or "")
    if text == before:
        return replace(balance, verdict="keep", detail="this assignment is in its config already")
    config = {key: value for key, value in running.config.items() if key != "name"} | {ASSIGNMENT_KEY: text}
    busiest = percent(balance.today.busiest) if balance.today else None
    keys = (
        KeyChange(ASSIGNMENT_KEY, None if before is None else f"digest {digest(before)}", f"digest {digest(text)}"),
        KeyChange("busiest task, of the usable capacity", busiest, percent(plan.busiest)),
        KeyChange(
            SPREAD_KEY,
            f"{spread(_loads(running.assignment, plan)):.2f}",
            f"{spread(_loads(plan.assignment, plan)):.2f}",
        ),
    )
    change = Change(
        balance.connect,
        balance.connector,
        "source",
        "update",
        (balance.flow,),
        keys,
        config=config,
        before=running.config,
        tasks=len(running.task_ids),
        shown=running.state,
        price=Price(restarts=len(running.task_ids), moved=len(plan.moves), partitions=len(plan.rates)),
    )
    return replace(balance, verdict="rebalance", change=change)
