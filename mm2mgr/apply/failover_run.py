"""Carries out a failover, stage by stage: each is judged by what the clusters show, so that a run that was killed is
ended by the next.

Nothing is written before the pair is stopped; from then on a journal says what was done. Until groups are written
all of it can be taken back. What a run reads and writes is behind `FailoverWorld`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from mm2mgr import timing
from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.check import PairReadiness
from mm2mgr.failover.group_offsets import GroupOrder, Written, order_groups
from mm2mgr.failover.journal import FailoverJournal, Mode
from mm2mgr.failover.stages import (
    FailoverStage,
    MirrorFacts,
    PairConnector,
    QuietSource,
    RunVerdict,
    StageName,
    StageProgress,
    arrived_progress,
    drain_progress,
    ends_progress,
    goes_on,
    groups_progress,
    may_begin,
    quiet_progress,
    readiness_progress,
    run_verdict,
    stages_of,
    stop_progress,
    translated_progress,
)
from mm2mgr.text import few, number_of, span_text

_LOOK_SECONDS = 1.0
_NAP_SECONDS = 1.0
"""A signal that comes just before Python falls asleep is handled only when it wakes up."""
_TRIES = 3
_READY = frozenset({"level", "gone on"})


@dataclass(frozen=True)
class RunOrder:
    """How to fail over. `cutoff_at`: seconds since 1970, of mode `cutoff`. `quiet_seconds`: for so long no log of the
    source may move. `lag_seconds`: the oldest record that waits may be so old when producers are to stop.
    `timeout_seconds` bounds the wait of each stage. `only`: a Java expression that the groups to write match."""

    mode: Mode = "planned"
    cutoff_at: float | None = None
    quiet_seconds: float = 10.0
    lag_seconds: float = 120.0
    timeout_seconds: float = 600.0
    dry_run: bool = False
    only: str | None = None


@dataclass(frozen=True)
class GroupOutcome:
    """What became of a group's offsets: `written`, and read back; `joined`: a member came, and nothing of it was
    written, or it may have; `failed`."""

    group: str
    outcome: Literal["written", "joined", "failed"]
    text: str = ""


class FailoverWorld(Protocol):
    """The clusters of a pair as a run sees them, and what it may do to them. All of it raises Mm2mgrError."""

    @property
    def pair(self) -> str:
        """Return `source->target`."""

    @property
    def owner(self) -> str:
        """Return the owner of the tree."""

    @property
    def author(self) -> str:
        """Return who runs this."""

    def now(self) -> float:
        """Return the time, in seconds since 1970."""

    def judge(self) -> tuple[PairReadiness, MirrorFacts]:
        """Return the readiness of all groups, and how far the pair is mirrored."""

    def look(self) -> MirrorFacts:
        """Return how far the pair is mirrored."""

    def clients(self) -> Sequence[str]:
        """Return what is known of who may write to the source."""

    def read_journal(self) -> FailoverJournal | None:
        """Return the journal; Mm2mgrError where there is one that cannot be read."""

    def keep_journal(self, journal: FailoverJournal) -> None:
        """Store it, and return once it is."""

    def lease(self) -> AbstractContextManager[object]:
        """Hold the lease of the pair's Connect cluster, which each write asks for."""

    def set_states(self, goals: Mapping[PairConnector, str]) -> None:
        """Ask connectors to come to a state: RUNNING, PAUSED or STOPPED; not waited for."""

    def write_groups(self, changes: Mapping[str, Written]) -> Sequence[GroupOutcome]:
        """Write the offsets of groups that have no member, and read them back."""


@dataclass(frozen=True)
class StageResult:
    """A stage, and how far it came."""

    stage: FailoverStage
    progress: StageProgress

    json_keys = "stage=stage.name title=stage.title by=stage.by done=progress.done text=progress.text"


Outcome = Literal["done", "already done", "dry run", "abandoned"]


@dataclass(frozen=True)
class FailoverResult:
    """What became of a failover. `orders`: what became of the groups, as they were judged last."""

    pair: str
    mode: Mode
    outcome: Outcome
    stages: tuple[StageResult, ...] = ()
    orders: tuple[GroupOrder, ...] = ()
    journal: FailoverJournal | None = None
    verdict: RunVerdict | None = None
    facts: MirrorFacts = field(default_factory=lambda: MirrorFacts(0.0), repr=False)
    readiness: PairReadiness | None = field(default=None, repr=False)

    json_keys = "pair mode outcome verdict stages groups=orders journal"

    @property
    def left_out(self) -> list[GroupOrder]:
        """Groups that are not at the offsets to go on from, in whole or in part, and will not be written."""
        ready = _READY if self.outcome in {"done", "already done"} else {*_READY, "write"}
        return [order for order in self.orders if order.action not in ready or order.unknown]

    @property
    def may_miss_groups(self) -> bool:
        """Whether nothing is known of groups on the source, so that some may not be among the orders."""
        return self.readiness is not None and self.outcome != "dry run" and self.readiness.source_age_seconds is None

    @property
    def may_have_run(self) -> str:
        """Why it is not known whether the pair has run since a failover that is done; "" where it is."""
        return self.facts.connect_failure if self.outcome == "already done" else ""


Report = Callable[[FailoverStage, StageProgress], object]
Question = Literal["producers", "write", "abandon"]
Ask = Callable[[Question, str], bool]
"""Asks a person; gets what is asked, and the sentence. Returns whether the answer is yes."""


class StageError(Mm2mgrError):
    """A stage did not come to its end. `changed`: whether anything was written before."""


@dataclass
class FailoverRun:
    """One run of a failover."""

    world: FailoverWorld
    order: RunOrder
    report: Report
    ask: Ask
    journal: FailoverJournal | None = None
    results: dict[StageName, StageResult] = field(default_factory=dict)
    orders: tuple[GroupOrder, ...] = ()
    verdict: RunVerdict | None = None
    readiness: PairReadiness | None = None
    facts: MirrorFacts = field(default_factory=lambda: MirrorFacts(0.0))

    def run(self) -> FailoverResult:
        """Carry it out, and return what became of it; StageError where a stage does not come to its end."""
        stages = {stage.name: stage for stage in stages_of(self.order.mode)}
        self._begin()
        if self.journal and self.journal.outcome == "done":
            return self._write_others(stages["groups"], self.journal)
        before: dict[StageName, Callable[[FailoverStage], None]] = {
            "readiness": self._check_readiness,
            "drain": self._wait_for_drain,
            "producers": self._wait_for_producers,
            "quiet": self._wait_for_quiet,
            "arrived": self._wait_for_arrival,
            "translated": self._wait_for_translation,
        }
        for name, carry_out in before.items():
            if name in stages:
                carry_out(stages[name])
        if self.order.dry_run:
            self._say(stages["stop"], stop_progress(self.facts, self.order.mode))
            self._say(stages["ends"], ends_progress(self.journal))
            self._say(stages["groups"], groups_progress(self.orders))
            return self._result("dry run")
        self._confirm()
        with self.world.lease():
            self._stop(stages["stop"])
            self._note_ends(stages["ends"])
            self._write_groups(stages["groups"])
            assert self.journal
            self._keep(replace(self.journal, outcome="done"))
        return self._result("done")

    def _write_others(self, stage: FailoverStage, journal: FailoverJournal) -> FailoverResult:
        """Write what a failover that is done left out: groups that `only` excluded, or that could not be written."""
        others = {
            order.group
            for order in self.orders
            if order.action == "write" and not order.changes.keys() <= journal.groups.get(order.group, {}).keys()
        }
        if not others:
            return self._result("already done")
        if self.order.dry_run:
            self._say(stage, groups_progress(self.orders))
            return self._result("dry run")
        self._confirm()
        with self.world.lease():
            self._write_groups(stage, others)
        return self._result("done")

    def _result(self, outcome: Outcome) -> FailoverResult:
        return FailoverResult(
            self.world.pair,
            self.order.mode,
            outcome,
            tuple(self.results.values()),
            self.orders,
            self.journal,
            self.verdict,
            self.facts,
            self.readiness,
        )

    # --- judging ------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Read the journal and both clusters; what an earlier failover left is of no use once the pair has run."""
        journal = self.world.read_journal()
        self._judge(journal.groups if journal else {})
        if not goes_on(journal, self.facts):
            journal = None
            self._order({})
        self.journal = journal

    def _judge(self, written: Mapping[str, Written]) -> None:
        self.readiness, self.facts = self.world.judge()
        self._order(written)

    def _order(self, written: Mapping[str, Written]) -> None:
        assert self.readiness
        self.orders = order_groups(self.readiness.groups, written)
        self.verdict = run_verdict(self.readiness, self.orders, self.facts.connectors)

    @property
    def _journal_groups(self) -> Mapping[str, Written]:
        return self.journal.groups if self.journal else {}

    def _say(self, stage: FailoverStage, progress: StageProgress) -> None:
        self.results[stage.name] = StageResult(stage, progress)
        self.report(stage, progress)

    def _wait(
        self, stage: FailoverStage, look: Callable[[], StageProgress], pause_seconds: float = _LOOK_SECONDS
    ) -> None:
        """Look until the stage is done; StageError after its time, or where it cannot be done by waiting."""
        end = timing.now() + self.order.timeout_seconds
        while True:
            progress = look()
            self._say(stage, progress)
            if progress.done or self.order.dry_run:
                return
            if progress.blocked or timing.now() >= end:
                waited = "" if progress.blocked else f" (after {span_text(self.order.timeout_seconds)}, --timeout)"
                raise self._error(stage, f"{progress.blocked or progress.text}{waited}")
            _pause(min(pause_seconds, max(0.0, end - timing.now())))

    def _error(self, stage: FailoverStage, reason: str, hint: str = "") -> StageError:
        has_begun = self.journal is not None and self.journal.is_open
        remedy = (
            f"run `mm2mgr failover run '{self.world.pair}'` again to go on, or with --abandon to take back what it did"
            if has_begun
            else "nothing was written; run it again"
        )
        return StageError(f"{self.world.pair}: {stage.title}: {reason}", hint=hint or remedy)

    # --- before anything is written -----------------------------------------------------------------------------------

    def _check_readiness(self, stage: FailoverStage) -> None:
        assert self.verdict
        progress = readiness_progress(self.order.mode, self.verdict)
        if self.order.only is not None and not self.orders:  # a mistake, in a disaster too
            text = "; ".join(self.verdict.reasons) or f"no group matches {self.order.only!r}"
            progress = StageProgress(False, f"{self.verdict.word}: {text}", text)
        self._say(stage, progress)
        if not progress.done and not self.order.dry_run:
            again = f"mm2mgr failover check '{self.world.pair}' --translated"
            begun = self.journal is not None
            raise self._error(
                stage, progress.blocked, "" if begun else f"nothing was written; look at it with: {again}"
            )

    def _wait_for_drain(self, stage: FailoverStage) -> None:
        def look() -> StageProgress:
            return drain_progress(self.facts, self.order.lag_seconds)

        self._wait(stage, self._looking(look))

    def _looking(self, judge: Callable[[], StageProgress]) -> Callable[[], StageProgress]:
        """Return what judges the facts that there are, and later ones at each further look."""
        is_first = True

        def look() -> StageProgress:
            nonlocal is_first
            if not is_first:
                self.facts = self.world.look()
            is_first = False
            return judge()

        return look

    def _wait_for_producers(self, stage: FailoverStage) -> None:
        if self.order.mode == "cutoff":
            self._wait_for_cutoff(stage)
            return
        has_answer = self.journal is not None and "producers" in self.journal.reached
        if not has_answer and not self.order.dry_run:
            question = "Have all producers of the mirrored topics stopped?"
            if not self.ask("producers", question):
                raise self._error(stage, "the producers have not stopped")
        self._say(stage, StageProgress(not self.order.dry_run, "" if self.order.dry_run else "said to be stopped"))

    def _wait_for_cutoff(self, stage: FailoverStage) -> None:
        assert self.order.cutoff_at is not None
        while (left := self.order.cutoff_at - self.world.now()) > 0:
            self._say(stage, StageProgress(False, f"{span_text(left)} left"))
            if self.order.dry_run:
                return
            _pause(min(left, 30.0))
        self._say(stage, StageProgress(True, "the time has come"))

    def _wait_for_quiet(self, stage: FailoverStage) -> None:
        if self.order.dry_run:
            logs = number_of(len(self.facts.source_ends), "log")
            text = f"the ends of {logs} are watched for {span_text(self.order.quiet_seconds)}"
            self._say(stage, StageProgress(False, text))
            return
        self.facts = self.world.look()
        quiet, clients = QuietSource.begin(self.facts, timing.now()), list[str]()

        def look() -> StageProgress:
            nonlocal quiet, clients
            began_at = timing.now()
            self.facts = self.world.look()
            quiet = quiet.next_look(self.facts, began_at, timing.now())
            if quiet.written and not clients:
                clients = list(self.world.clients())
            return quiet_progress(quiet, self.facts, self.order.quiet_seconds, clients)

        _pause(_LOOK_SECONDS)
        self._wait(stage, look)

    def _wait_for_arrival(self, stage: FailoverStage) -> None:
        def look() -> StageProgress:
            progress = arrived_progress(self.facts)
            if not progress.done and self.facts.are_stopped and not self.order.dry_run:
                text = f"{progress.text}, and the pair is stopped"
                return StageProgress(False, text, text)
            return progress

        self._wait(stage, self._looking(look))

    def _wait_for_translation(self, stage: FailoverStage) -> None:
        began, is_first = timing.now(), self.order.dry_run

        def look() -> StageProgress:
            nonlocal is_first
            if not is_first:
                self._judge(self._journal_groups)
            is_first = False
            expected = self.readiness.time.checkpoint_seconds if self.readiness else 0.0
            return translated_progress(self.orders, timing.now() - began, expected)

        self._wait(stage, look, 2 * _LOOK_SECONDS)
        assert self.verdict
        if not may_begin(self.order.mode, self.verdict) and not self.order.dry_run:
            raise self._error(stage, "; ".join(self.verdict.reasons))

    def _confirm(self) -> None:
        stops = [connector.full_name for connector in self.facts.to_stop]
        writes = [order for order in self.orders if order.action == "write"]
        parts = [f"stop {few(stops)}"] * bool(stops)
        target = self.world.pair.partition("->")[2]
        parts += [f"write offsets of {number_of(len(writes), 'group')} on {target}"] * bool(writes)
        if not self.ask("write", f"{' and '.join(parts) or 'note the ends of the logs'}?"):
            raise Mm2mgrError("it was not approved; nothing was written")

    # --- what writes --------------------------------------------------------------------------------------------------

    def _keep(self, journal: FailoverJournal) -> None:
        if journal != self.journal:
            self.world.keep_journal(journal)
        self.journal = journal

    def _with_stage(self, stage: FailoverStage) -> FailoverJournal:
        assert self.journal
        return self.journal.with_stage(stage.name, self.world.now())

    def _stop(self, stage: FailoverStage) -> None:
        """Stop the pair, once the journal says in which states its connectors were."""
        self.facts = self.world.look()
        journal = self.journal or FailoverJournal(
            uuid.uuid4().hex[:12],
            self.world.pair,
            self.world.owner,
            self.order.mode,
            self.world.now(),
            self.world.author,
        )
        states = {connector.full_name: connector.state for connector in self.facts.connectors if connector.is_there}
        at = self.world.now()
        reached: dict[str, float] = {name: at for name, result in self.results.items() if result.progress.done}
        self._keep(
            replace(
                journal,
                mode=self.order.mode,
                stopped={**states, **journal.stopped},
                reached={**reached, **journal.reached},
            )
        )
        asked: set[PairConnector] = set()

        def look() -> StageProgress:
            progress = self._stop_progress()
            if progress.done or progress.blocked:
                return progress
            goal = "STOPPED" if self.facts.can_stop else "PAUSED"
            due = [connector for connector in self.facts.to_stop if connector.state != goal and connector not in asked]
            if due:
                self.world.set_states(dict.fromkeys(due, goal))
                asked.update(due)
            self.facts = self.world.look()
            return self._stop_progress()

        self._wait(stage, look)
        self._keep(self._with_stage(stage))
        if self.order.mode != "disaster" and self.facts.behind:
            names = few([f"{partition} ({count})" for partition, count in sorted(self.facts.behind.items())])
            count = number_of(self.facts.records_behind, "record")
            raise self._error(stage, f"{count} were written while the pair stopped, and are not on the target: {names}")

    def _stop_progress(self) -> StageProgress:
        """Tell whether the pair rests, and, unless the source is gone, whether all that it had is known to be there."""
        progress = stop_progress(self.facts, self.order.mode)
        if progress.done and self.order.mode != "disaster" and self.facts.unknown:
            return StageProgress(False, f"{progress.text}; the lag is not known: {self.facts.unknown}")
        return progress

    def _note_ends(self, stage: FailoverStage) -> None:
        """Note where the target's logs end now that nothing is mirrored: the way back begins there."""
        assert self.journal
        if "ends" not in self.journal.reached:
            if self.facts.target_failure:
                raise self._error(stage, self.facts.target_failure)
            self._keep(
                replace(
                    self._with_stage(stage),
                    target_ends=self.facts.target_ends,
                    source_stored=self.facts.stored,
                    source_ends=self.facts.source_ends,
                )
            )
        self._say(stage, ends_progress(self.journal))

    def _write_groups(self, stage: FailoverStage, only: Collection[str] | None = None) -> None:
        """Write the groups that are absent or behind; the journal says before what they had, and what they get.

        `only`: the groups to write; None: all.
        """
        told: dict[str, str] = {}
        for _ in range(_TRIES):
            before = {order.group for order in self.orders}
            self._judge(self._journal_groups)
            self._check_groups(stage, before)
            changes = {
                order.group: order.changes
                for order in self.orders
                if order.action == "write" and order.group not in told and (only is None or order.group in only)
            }
            if not changes:
                break
            assert self.journal
            self._keep(self.journal.with_groups(changes))
            outcomes = self.world.write_groups(changes)
            told |= {result.group: result.text for result in outcomes if result.outcome != "written"}
        progress = groups_progress(self.orders)
        if told:
            reasons = [f"{group}: {text}" for group, text in sorted(told.items())]
            text = f"{number_of(len(told), 'group')} not written: {few(reasons, 5, '; ')}"
            self._say(stage, StageProgress(False, text))
            raise self._error(stage, text)
        self._say(stage, progress)
        if changes:
            raise self._error(stage, progress.text)
        settled = {order.group: order.settled for order in self.orders if order.settled and order.action in _READY}
        self._keep(self._with_stage(stage).with_groups(settled))  # they may go on from there

    def _check_groups(self, stage: FailoverStage, before: Collection[str]) -> None:
        """Raise StageError where groups that were known are not read any more: what is not read is not done."""
        assert self.readiness
        gone = sorted(set(before) - {order.group for order in self.orders})
        reasons = [f"{unread.where}: {unread.subject} ({unread.reason})" for unread in self.readiness.unread]
        if gone or (reasons and self.order.mode != "disaster"):
            parts = [f"{number_of(len(gone), 'group')} ({few(gone)}) could not be read any more"] if gone else []
            parts += [f"could not be read: {few(reasons, between='; ')}"] if reasons else []
            raise self._error(stage, "; ".join(parts))


def _pause(seconds: float) -> None:
    end = timing.now() + seconds
    while (left := end - timing.now()) > 0:
        timing.sleep(min(left, _NAP_SECONDS))


# --- taking it back ---------------------------------------------------------------------------------------------------


def abandon(world: FailoverWorld, ask: Ask, timeout_seconds: float) -> FailoverResult:
    """Bring the connectors that a failover stopped back to the states in which they were; Mm2mgrError where there is
    none, or where groups were written: their consumers may have started."""
    journal = world.read_journal()
    if journal is None or not journal.is_open:
        raise Mm2mgrError(f"{world.pair}: no failover is under way")
    readiness, facts = world.judge()
    if unread := _unread_groups(readiness, journal):
        raise Mm2mgrError(
            f"{world.pair}: whether {few(unread)} were written on the target could not be read",
            hint=f"try again when `mm2mgr failover check '{world.pair}'` reads both clusters",
        )
    if written := written_groups(readiness, journal):
        raise Mm2mgrError(
            f"{world.pair}: {number_of(len(written), 'group')} ({few(written)}) were written on the target already",
            hint=f"go on with `mm2mgr failover run '{world.pair}'`, and fail back afterwards",
        )
    back = {
        connector: journal.stopped[connector.full_name]
        for connector in facts.connectors
        if connector.is_there and connector.state != journal.stopped.get(connector.full_name, connector.state)
    }
    texts = [f"{connector.full_name} to {state}" for connector, state in back.items()]
    if not ask("abandon", f"bring {few(texts)} back?" if texts else "delete the marks of the failover?"):
        raise Mm2mgrError("it was not approved; nothing was written")
    with world.lease():
        goals = {
            connector: "RUNNING" if state not in {"PAUSED", "STOPPED"} else state for connector, state in back.items()
        }
        world.set_states(goals)
        end = timing.now() + timeout_seconds
        while left := _not_back(world.look().connectors, goals):
            if timing.now() >= end:
                raise Mm2mgrError(f"{world.pair}: {few(left)} did not come back", hint="look with mm2mgr status")
            _pause(_LOOK_SECONDS)
        journal = replace(journal, outcome="abandoned")
        world.keep_journal(journal)
    return FailoverResult(world.pair, journal.mode, "abandoned", journal=journal, facts=facts)


def _not_back(connectors: Iterable[PairConnector], goals: Mapping[PairConnector, str]) -> list[str]:
    states = {connector.full_name: connector.state for connector in connectors}
    return [connector.full_name for connector, state in goals.items() if states.get(connector.full_name) != state]


def _unread_groups(readiness: PairReadiness, journal: FailoverJournal) -> list[str]:
    """Return the groups that were about to be written and whose offsets on the target were not read."""
    target = readiness.pair.partition("->")[2]
    is_blind = any(unread.where == target for unread in readiness.unread)
    there = {group.group: {place.remote for place in group.positions} for group in readiness.groups}
    return sorted(
        group
        for group, changes in journal.groups.items()
        if is_blind or not changes.keys() <= there.get(group, frozenset())
    )


def written_groups(readiness: PairReadiness, journal: FailoverJournal) -> list[str]:
    """Return the groups whose offsets on the target are not those from before the failover any more."""
    there = {group.group: {place.remote: place.on_target for place in group.positions} for group in readiness.groups}
    return sorted(
        group
        for group, changes in journal.groups.items()
        if any(there.get(group, {}).get(partition) != change.before for partition, change in changes.items())
    )
