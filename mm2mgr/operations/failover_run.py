"""`failover plan` and `failover run`: the stages of a failover as a runbook, and carried out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from mm2mgr.apply.failover_run import (
    Ask,
    FailoverResult,
    FailoverRun,
    GroupOutcome,
    RunOrder,
    abandon,
)
from mm2mgr.apply.failover_run import Report as StageReport
from mm2mgr.apply.failover_writes import COMMAND, FailoverWriter, read_failover_journal, read_pair_connectors
from mm2mgr.apply.history import Recorder, author
from mm2mgr.apply.leases import Leases, take_lease, wait_for_lease
from mm2mgr.apply.waves import Event
from mm2mgr.check.judge import commands
from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.check import PairReadiness
from mm2mgr.failover.group_offsets import Written, order_groups
from mm2mgr.failover.journal import FailoverJournal
from mm2mgr.failover.kept import KeptLooks
from mm2mgr.failover.runbook import PairNames, Runbook, RunbookFacts, RunbookStep, runbook
from mm2mgr.failover.stages import MirrorFacts, PairConnector
from mm2mgr.kafka.acls import Right
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.live.principals import principal_of
from mm2mgr.live.reach import Limits
from mm2mgr.live.rights import Permissions, RightsOf
from mm2mgr.live.snapshot import Steps, side_by_side
from mm2mgr.observe.memory import Memory
from mm2mgr.observe.pair_look import FailoverOptions, PairToJudge
from mm2mgr.observe.pair_progress import mirror_facts, quota_clients, readiness_and_facts
from mm2mgr.observe.state_file import StorePlace, keep_looks, load, read_looks, state_file
from mm2mgr.operations.failover import flows_of_pair, with_commands
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace
from mm2mgr.remarks import Remark
from mm2mgr.samples.schema import Store
from mm2mgr.text import few
from mm2mgr.timing import wait_for
from mm2mgr.topology import Flow, lease_group

_LIMITS = Limits(kafka_seconds=10.0, measuring_seconds=30.0)


@dataclass
class LivePair:
    """The clusters of a pair, as a failover sees them and writes to them."""

    workspace: Workspace
    flows: Sequence[Flow]
    order: RunOrder
    store: StorePlace
    author: str = ""
    report: Callable[[Event], None] = lambda event: None
    sample: int = 20
    warnings: list[str] = field(default_factory=list)
    writer: FailoverWriter | None = None
    connectors: tuple[PairConnector, ...] = ()
    allowed: set[Right] = field(default_factory=set)
    """Rights that the login is known to have on the target."""
    silence: str = ""
    """Why the source is not asked any more."""

    @property
    def pair(self) -> str:
        return self.flows[0].pair

    @property
    def owner(self) -> str:
        return str(self.workspace.topology.owner)

    @property
    def aliases(self) -> tuple[str, str]:
        return self.flows[0].source.alias, self.flows[0].target.alias

    def now(self) -> float:
        return time.time()

    def judge(self) -> tuple[PairReadiness, MirrorFacts]:
        earlier, warnings = read_looks(self.store, self.aliases)
        options = FailoverOptions(self.order.only, translated=True, sample=self.sample)
        judged = self._pair_to_judge(options, earlier)
        (readiness, facts), shown = self.workspace.ask(
            side_by_side(
                readiness_and_facts(judged, self._memory, time.time, self.order.cutoff_at), self._read_connectors()
            ),
            _LIMITS,
        )
        if readiness.looked is not None:
            warnings += keep_looks(self.store, self.aliases, readiness.looked)
        elif self.order.mode == "disaster":  # each look would wait for it anew
            self.silence = "not at the beginning either, and it was not asked again"
        self.warnings += [warning for warning in warnings if warning not in self.warnings]
        if missing := self._missing_rights(readiness):
            readiness = replace(readiness, remarks=(*readiness.remarks, missing))
        return with_commands(self.workspace, readiness), self._with_connectors(facts, shown)

    def _pair_to_judge(self, options: FailoverOptions, earlier: KeptLooks | None = None) -> PairToJudge:
        topology, connectors = self.workspace.topology, self.workspace.connectors
        return PairToJudge(topology, connectors, tuple(self.flows), options, earlier, self.silence)

    def _missing_rights(self, readiness: PairReadiness) -> Remark | None:
        """Return what the login may not do that writing the groups takes; what is not told shows when it is tried."""
        alias = self.aliases[1]
        orders = [order for order in order_groups(readiness.groups, {}) if order.action == "write"]
        rights = {Right("Read", "group", order.group) for order in orders}
        rights |= {Right("Read", "topic", place.topic) for order in orders for place in order.changes}
        question = RightsOf(alias, rights=tuple(sorted(rights - self.allowed, key=str)))
        if not question.rights:
            return None

        def ask_rights() -> Steps[Permissions | None]:
            answer = (yield [question]).get(question)
            return None if isinstance(answer, Mm2mgrError) else answer

        told = self.workspace.ask(ask_rights(), _LIMITS) or {}
        missing = []
        for right in question.rights:
            permission = told.get(right.kind, {}).get(right.name, {}).get(right.operation)
            if permission == "no":
                missing.append(right)
            elif permission == "yes":
                self.allowed.add(right)
        if not missing:
            return None
        text = f"{alias}: mm2mgr's login may not write the offsets of groups: it needs {few(list(map(str, missing)))}"
        access = kafka_access(self.flows[0].target)
        lines = commands([(access.bootstrap_servers, principal_of(access).name, right) for right in missing])
        return Remark(f"{text} ({lines[0]})" if lines else text, "blocks", "give it these rights")

    def look(self) -> MirrorFacts:
        judged = self._pair_to_judge(FailoverOptions())
        facts, shown = self.workspace.ask(
            side_by_side(mirror_facts(judged, self._memory, time.time, self.order.cutoff_at), self._read_connectors()),
            _LIMITS,
        )
        return self._with_connectors(facts, shown)

    def clients(self) -> Sequence[str]:
        return self.workspace.ask(quota_clients(self.flows[0].source.alias))

    def read_journal(self) -> FailoverJournal | None:
        return self.workspace.ask(read_failover_journal(self.workspace.topology, self.flows[0].target.alias, self.pair))

    def keep_journal(self, journal: FailoverJournal) -> None:
        wait_for(self.writing.keep_journal(journal))

    def set_states(self, goals: Mapping[PairConnector, str]) -> None:
        wait_for(self.writing.set_states(goals))

    def write_groups(self, changes: Mapping[str, Written]) -> Sequence[GroupOutcome]:
        return wait_for(self.writing.write_groups(changes))

    @contextmanager
    def lease(self) -> Iterator[object]:
        topology, writer = self.workspace.topology, self.writing
        plan = writer.plan(self.connectors)
        wait_for_lease(topology, plan, self.report)
        try:
            take_lease(writer.leases, topology, plan, self.author, self.report, command=COMMAND)
            with writer.leases.watch_held(topology):
                yield writer
        finally:
            unrecorded = writer.recorder.close()
            self.warnings += [f"{name}: the history was not written: {cause}" for name, cause in unrecorded.items()]
            writer.leases.close()

    @property
    def writing(self) -> FailoverWriter:
        """What writes; Mm2mgrError where nothing may."""
        if self.writer is None:
            raise Mm2mgrError("this only reads")
        return self.writer

    @property
    def _memory(self) -> Memory:
        return load(self.store.memory_file)

    def _read_connectors(self) -> Steps[tuple[tuple[PairConnector, ...], str]]:
        return read_pair_connectors(self.workspace.topology, self.workspace.connectors, self.pair)

    def _with_connectors(self, facts: MirrorFacts, shown: tuple[tuple[PairConnector, ...], str]) -> MirrorFacts:
        self.connectors, failure = shown
        rests = self.connectors
        if not facts.can_stop:
            rests = tuple(
                replace(connector, rests=connector.rests or connector.state == "PAUSED") for connector in rests
            )
        return replace(facts, connectors=rests, connect_failure=failure or facts.connect_failure)


@dataclass(frozen=True)
class FailoverPlan:
    """The runbook of a failover, and what could not be kept or read beside it."""

    runbook: Runbook
    warnings: tuple[str, ...] = ()


def failover_plan(
    workspace: Workspace, pair: str, order: RunOrder = RunOrder(), *, store: Store = DEFAULT_STORE
) -> FailoverPlan:
    """Return the stages of a failover of a pair `source->target`, with what each would come to now; nothing is written.

    Mm2mgrError where the journal of an earlier one cannot be read.
    """
    live = _live_pair(workspace, pair, replace(order, dry_run=True), store)
    result = FailoverRun(live, live.order, lambda *_: None, lambda *_: True).run()
    return FailoverPlan(_runbook(live, result), tuple(live.warnings))


def _runbook(live: LivePair, result: FailoverResult) -> Runbook:
    assert result.readiness
    assert result.verdict
    order, flow = live.order, live.flows[0]
    topics = {partition.topic for partition in result.facts.source_ends}
    topics |= {place.partition.topic for group in result.readiness.groups for place in group.positions}
    remotes = {topic: _remote_of(live.flows, topic) for topic in sorted(topics)}
    servers = kafka_access(flow.target).bootstrap_servers
    names = PairNames(live.pair, *live.aliases, servers, remotes, _mode_option(order))
    judged_facts = RunbookFacts(
        order.mode,
        result.readiness,
        result.facts,
        result.orders,
        result.verdict,
        result.journal,
        order.quiet_seconds,
        order.lag_seconds,
        _time_text(order),
    )
    return runbook(names, judged_facts)


def _remote_of(flows: Sequence[Flow], topic: str) -> str:
    return next((flow.remote_topic(topic) for flow in flows if flow.carries(topic)), topic)


def _mode_option(order: RunOrder) -> str:
    cutoff = f" --cutoff {_time_text(order)}" if order.mode == "cutoff" else ""
    return " --disaster" if order.mode == "disaster" else cutoff


def _time_text(order: RunOrder) -> str:
    return "" if order.cutoff_at is None else f"{datetime.fromtimestamp(order.cutoff_at, UTC):%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True)
class FailoverHow:
    """`ask` gets each question to a person, `report` how far each stage is, `events` what is heard of leases. `reason`
    is kept in the history. `store`: where earlier looks at the source are kept."""

    ask: Ask = lambda question, text: False
    report: StageReport = lambda stage, progress: None
    events: Callable[[Event], None] = lambda event: None
    reason: str = ""
    store: Store = DEFAULT_STORE


@dataclass(frozen=True)
class FailoverEnded:
    """What became of a failover, the stages that are left to people, and what could not be kept or read beside it."""

    result: FailoverResult
    left: tuple[RunbookStep, ...] = ()
    warnings: tuple[str, ...] = ()

    json_keys = (
        "pair=result.pair mode=result.mode outcome=result.outcome verdict=result.verdict stages=result.stages "
        "groups=result.orders journal=result.journal left"
    )


def failover_run(
    workspace: Workspace, pair: str, order: RunOrder = RunOrder(), how: FailoverHow = FailoverHow()
) -> FailoverEnded:
    """Fail a pair over, or go on with the failover that is under way, and return what became of it.

    Writes are as those of `apply`: under the owner's lease, in the history. Mm2mgrError where a stage does not come to
    its end: the journal says how far it came.
    """
    live = (
        _live_pair(workspace, pair, order, how.store) if order.dry_run else _writing_pair(workspace, pair, order, how)
    )
    result = FailoverRun(live, order, how.report, how.ask).run()
    steps = _runbook(live, result).steps
    left = tuple(step for step in steps if step.stage.name in {"back", "consumers"})
    return FailoverEnded(result, left, tuple(live.warnings))


def failover_abandon(
    workspace: Workspace, pair: str, how: FailoverHow = FailoverHow(), *, timeout_seconds: float = 120.0
) -> FailoverEnded:
    """Take back what a failover did, as long as no group was written: its connectors come to the states that they
    had."""
    live = _writing_pair(workspace, pair, RunOrder(), how)
    result = abandon(live, how.ask, timeout_seconds)
    return FailoverEnded(result, (), tuple(live.warnings))


def failover_forget(workspace: Workspace, pair: str, how: FailoverHow = FailoverHow()) -> int:
    """Delete the journal of a pair, also one that cannot be read; return how many texts that were."""
    live = _writing_pair(workspace, pair, RunOrder(), how)
    if not how.ask(
        "abandon", f"delete the journal of the failover of {live.pair}, and leave everything else as it is?"
    ):
        raise Mm2mgrError("it was not approved; nothing was written")
    with live.lease():
        return wait_for(live.writing.forget_journal())


def _live_pair(workspace: Workspace, pair: str, order: RunOrder, store: Store) -> LivePair:
    flows = flows_of_pair(workspace, pair)
    owner = str(workspace.topology.owner)
    return LivePair(workspace, flows, order, StorePlace(store, owner, state_file(owner)))


def _writing_pair(workspace: Workspace, pair: str, order: RunOrder, how: FailoverHow) -> LivePair:
    workspace.refuse_snapshot()
    live = _live_pair(workspace, pair, order, how.store)
    connect = live.flows[0].connect
    if not connect.model.history:
        message = (
            f"connect {connect.name} has history: false, and a failover keeps its journal in the topic of the history"
        )
        raise Mm2mgrError(message, hint="give mm2mgr's login the right to write there, and remove that line")
    by = author(workspace.files)
    live.author, live.report = str(by), how.events
    recorder = Recorder(workspace.topology, COMMAND, by, how.reason)
    live.writer = FailoverWriter(workspace.topology, live.flows, recorder, Leases(lease_group))
    return live
