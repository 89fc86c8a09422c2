"""One apply, from the plan that was approved to its record: quotas, waves, reading back, claims and history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from mm2mgr.apply.carry_out import carry_out_quotas
from mm2mgr.apply.execute import apply_plan, read_back
from mm2mgr.apply.history import Recorder, read_undeclared_claims, settle_claims
from mm2mgr.apply.leases import Leases
from mm2mgr.apply.rounds import EventLog
from mm2mgr.apply.settle import Settled, States
from mm2mgr.apply.waves import Event, Halted, Result, RolledBack, Rollout, WaveVerified
from mm2mgr.comparison.differences import Named
from mm2mgr.json_values import to_json
from mm2mgr.plan.changes import Change, Plan
from mm2mgr.plan.quotas import QuotaChange, QuotaResult, client_id_of
from mm2mgr.topology import Topology


@dataclass(frozen=True)
class Applied:
    """What became of a plan. Each connector has one result, the latest; `begun` are the changes that were tried.

    `waves` were verified, `halted` are Connect clusters on which one was not good: nothing more was begun there.
    """

    plan: Plan
    results: tuple[Result, ...] = ()
    states: Mapping[Named, Settled] = field(default_factory=dict)
    begun: frozenset[Named] = frozenset()
    interrupted: bool = False
    waves: tuple[WaveVerified, ...] = ()
    halted: tuple[Halted, ...] = ()
    unrecorded: Mapping[str, str] = field(default_factory=dict)
    """Connect clusters whose history was not written, and why."""
    quotas: tuple[QuotaResult, ...] = ()
    unlogged: str = ""
    """What is missing in the event log, and why."""
    lost_leases: tuple[str, ...] = ()
    """Kafka clusters whose lease was lost, so that nothing more was written: another process may write now."""

    @property
    def done_results(self) -> list[Result]:
        return [result for result in self.results if result.is_done]

    @property
    def rolled_back(self) -> list[Result]:
        return [result for result in self.results if result.rolled_back]

    @property
    def failed_results(self) -> list[Result]:
        return [result for result in self.results if result.error is not None]

    @property
    def failed_quotas(self) -> list[QuotaResult]:
        return [result for result in self.quotas if result.error is not None]

    @property
    def left_quotas(self) -> list[QuotaChange]:
        """Quotas that were not written, since the work ended before."""
        tried = {(result.change.kafka, result.change.entity) for result in self.quotas}
        return [change for change in self.plan.quota_writes if (change.kafka, change.entity) not in tried]

    @property
    def left_changes(self) -> list[Change]:
        """Changes that were not begun."""
        return [change for change in self.plan.writes if change.full_name not in self.begun]

    @property
    def unfinished_changes(self) -> list[Change]:
        """Changes that were begun and have no result: an interrupt cut them short."""
        unknown = self.begun - {result.full_name for result in self.results}
        return [change for change in self.plan.writes if change.full_name in unknown]

    @property
    def done_plan(self) -> Plan:
        """The plan with those of its writes alone that were written and are there."""
        gone = {change.full_name for change in self.plan.writes} - {result.full_name for result in self.done_results}
        clusters = (
            replace(part, changes=tuple(change for change in part.changes if change.full_name not in gone))
            for part in self.plan.clusters
        )
        done = tuple(result.change for result in self.quotas if result.error is None)
        quotas = tuple(change for change in self.plan.quotas if not change.is_write or change in done)
        return replace(self.plan, clusters=tuple(clusters), quotas=quotas)

    @property
    def awaiting_flows(self) -> list[str]:
        """Flows that run with what was written, and of which no record was seen to arrive since."""
        waiting = [
            flow
            for change in self.plan.writes
            if (settled := self.states.get(change.full_name)) and settled.verdict == "ok" and settled.arrived is False
            for flow in change.flows
        ]
        return sorted(set(waiting))

    @property
    def unread_connects(self) -> list[str]:
        """Connect clusters that could not be read, so that they have no changes."""
        return [cluster.connect for cluster in self.plan.clusters if cluster.error]

    @property
    def outcome(self) -> Literal["done", "failed", "inconclusive"]:
        """`inconclusive`: nothing is known to be wrong, but a person has to look at what was not seen to run."""
        verdicts = {settled.verdict for settled in self.states.values()} | {halted.verdict for halted in self.halted}
        waits = {halted.connect for halted in self.halted if halted.verdict == "inconclusive"}
        left = [change for change in self.left_changes if change.connect not in waits]
        if self.failed_results or left or self.unfinished_changes or self.plan.has_failed or "failed" in verdicts:
            return "failed"
        if self.failed_quotas or self.left_quotas:
            return "failed"
        doubts = "inconclusive" in verdicts or any(result.doubt for result in self.done_results) or self.lost_leases
        return "inconclusive" if doubts else "done"

    def to_finish_event(self) -> dict[str, object]:
        """Return the end as the event log has it."""
        fields = to_json(self)
        names = ("results", "quotas", "halted", "rolled_back", "left", "unfinished", "unrecorded", "lost_leases")
        return {"outcome": self.outcome, "interrupted": self.interrupted, **{name: fields[name] for name in names}}

    def to_dict(self) -> dict[str, object]:
        """Return JSON-ready values without secrets."""
        results = []
        for result in self.results:
            settled = self.states.get(result.full_name, Settled("", "ok"))
            verdict = settled.verdict if result.full_name in self.states else ""
            verified = {"state": settled.state, "verdict": verdict, "arrived": settled.arrived}
            results.append({**to_json(result), **verified})
        return {
            "results": results,
            "quotas": to_json(self.quotas),
            "waves": to_json(self.waves),
            "halted": to_json(self.halted),
            "rolled_back": [result.connector for result in self.rolled_back],
            "left": [change.connector for change in self.left_changes],
            "unfinished": [change.connector for change in self.unfinished_changes],
            "failed_clusters": self.unread_connects,
            "blocked": [to_json(change) for change in self.plan.changes if change.action == "blocked"],
            "notes": [note for cluster in self.plan.clusters for note in cluster.notes],
            "unrecorded": dict(self.unrecorded),
            "unlogged": self.unlogged or None,
            "lost_leases": list(self.lost_leases),
        }


Interrupts = Callable[[Callable[[], Applied]], AbstractContextManager[asyncio.Event]]
"""Gets a function that returns what is applied so far, and yields the event that ends the work.

Once it is set, no change is begun, and those that were begun have FINISH_SECONDS to end. It is entered inside the event
loop that does the work.
"""


@contextmanager
def no_interrupts(_so_far: Callable[[], Applied]) -> Iterator[asyncio.Event]:
    """Yield an event that nothing sets."""
    yield asyncio.Event()


@dataclass
class Progress:
    """An apply on its way. `so_far` is true at any moment, also when the work is stopped in the middle."""

    plan: Plan
    report: Callable[[Event], None]
    recorder: Recorder
    log: EventLog
    begun: set[Named] = field(default_factory=set)
    results: dict[Named, Result] = field(default_factory=dict)
    states: States = field(default_factory=dict)
    waves: list[WaveVerified] = field(default_factory=list)
    halted: list[Halted] = field(default_factory=list)
    unrecorded: Mapping[str, str] = field(default_factory=dict)
    quotas: list[QuotaResult] = field(default_factory=list)

    def begin(self, change: Change) -> None:
        self.begun.add(change.full_name)
        self.recorder.begin(change)
        if not self.log.is_open:  # masking all keys of 500 connectors takes a tenth of a second
            return
        shown = to_json(change)
        fields = {name: shown[name] for name in ("connector", "action", "flows", "keys", "state")}
        self.log.write("change_begun", {"connect": change.connect, **fields})

    def take(self, event: Event) -> None:
        """Take in what happened; a later result of the same connector replaces an earlier one."""
        match event:
            case Result():
                self._take_result(event)
            case QuotaResult():
                self.quotas.append(event)
                self.recorder.quota(event)
            case RolledBack():
                for result in event.results:
                    self._take_result(result)
            case WaveVerified():
                self.waves.append(event)
            case Halted():
                self.halted.append(event)
        self.report(event)
        self.log.take(event)

    def _take_result(self, result: Result) -> None:
        self.results[result.full_name] = result
        if result.change and result.rolled_back:
            self.recorder.take_back(result.change)
        elif result.change and result.error is not None:
            self.recorder.end(result.change, "failed", result.error, was_written=result.was_written)

    def without_users(self, deletes: Iterable[QuotaChange]) -> tuple[list[QuotaChange], list[QuotaResult]]:
        """Return the quotas that may be deleted, and as failed those whose client id an unwritten connector kept."""
        done = {result.full_name for result in self.so_far().done_results}
        users = {
            client_id_of(self.plan.owner, change.before): change.connector
            for change in self.plan.writes
            if change.before and change.full_name not in done
        }
        free, held = [], []
        for change in deletes:
            if user := users.get((change.kafka, change.entity.client_id)):
                reason = f"kept: connector {user}, which has its client id, was not written"
                held.append(QuotaResult(change, reason, "apply again"))
            else:
                free.append(change)
        return free, held

    async def record(self) -> None:
        """Record what is done, now that it was read back, with what it shows; wait until all is stored."""
        for named, result in self.results.items():
            if not result.change or not result.is_done:
                continue
            settled = self.states.get(named)
            self.recorder.end(result.change, "done")
            if settled and settled.verdict != "ok":
                has_failed = settled.verdict == "failed"
                self.recorder.end(result.change, settled.verdict, settled.state, was_written=has_failed)
            elif result.doubt:
                self.recorder.end(result.change, "inconclusive", result.doubt)
        self.unrecorded = await asyncio.to_thread(self.recorder.close)

    def so_far(self, *, interrupted: bool = True) -> Applied:
        results, states = tuple(self.results.values()), dict(self.states)
        return Applied(
            self.plan,
            results,
            states,
            frozenset(self.begun),
            interrupted,
            tuple(self.waves),
            tuple(self.halted),
            self.unrecorded,
            tuple(self.quotas),
            self.log.trouble,
        )


async def write_approved(
    topology: Topology, progress: Progress, rollout: Rollout, interrupts: Interrupts, leases: Leases
) -> Applied:
    """Write a plan that is approved, as long as the leases that are held are not lost, and return what became of it."""
    progress.log.write("plan_made", to_logged_plan(progress.plan, progress.recorder.author.commit))
    with leases.watch_held(topology):
        if topology.adopted or topology.released:
            await settle_claims(topology, progress.plan.clusters, progress.recorder)
        is_halted = await _write(topology, progress, rollout, interrupts, leases)
    applied = progress.so_far(interrupted=is_halted and not leases.lost)
    applied = replace(applied, lost_leases=tuple(sorted(leases.lost)))
    progress.log.write("finished", applied.to_finish_event())
    return replace(applied, unlogged=progress.log.trouble)


async def _write(
    topology: Topology, progress: Progress, rollout: Rollout, interrupts: Interrupts, leases: Leases
) -> bool:
    """Write and verify wave by wave, then read back; return whether an interrupt or a lost lease cut that short."""
    before, after = (
        [change for change in progress.plan.quota_writes if (change.action == "delete") is is_last]
        for is_last in (False, True)
    )
    with interrupts(progress.so_far) as halt, leases.ending(halt):
        for quota in await carry_out_quotas(topology, before):
            progress.take(quota)
        writing = apply_plan(
            topology,
            progress.plan,
            rollout=rollout,
            report=progress.take,
            begin=progress.begin,
            halt=halt,
            states=progress.states,
            guard=leases.check,
        )
        connects = {change.connect for change in progress.plan.writes}
        # Nobody else writes this tree's claims while it holds the lease, so they are read meanwhile. An error there
        # ends no write.
        reading = read_undeclared_claims(topology, connects)
        written, undeclared = await asyncio.gather(writing, reading, return_exceptions=True)
        if isinstance(written, BaseException):
            raise written
        for result in await read_back(topology, progress.so_far().done_results):
            progress.take(result)
        if not halt.is_set():
            free, held = progress.without_users(after)
            for quota in (*await carry_out_quotas(topology, free), *held):
                progress.take(quota)
        await progress.record()
        for claim in [] if isinstance(undeclared, BaseException) else undeclared:
            if claim.connect not in progress.unrecorded:
                progress.recorder.write(claim.connect, claim.key, None)
        await asyncio.to_thread(progress.recorder.close)
        if isinstance(undeclared, BaseException):  # only now: what was written is in the history
            raise undeclared
        return halt.is_set()


def to_logged_plan(plan: Plan, commit: str) -> dict[str, object]:
    """Return a plan as the event log has it."""
    unread = {part.connect: part.error for part in plan.clusters if part.error}
    return {"owner": plan.owner, "commit": commit, "counts": plan.counts(), "unread": unread}
