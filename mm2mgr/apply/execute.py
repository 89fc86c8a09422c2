"""Carries out a plan: Connect clusters side by side, a cluster's changes in waves, each verified before the next.

Connectors are created by POST, which cannot overwrite. Before an update or a delete, the live config is compared with
the one in the plan. A wave that breaks a connector halts its Connect cluster, and its changes are taken back where that
is asked for; one that is not seen to run in time waits for a person. Afterwards `read_back` reports what was
overwritten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from mm2mgr import timing
from mm2mgr.apply.arrival_check import LogReader
from mm2mgr.apply.carry_out import (
    Guard,
    allow_write,
    carry_out,
    differing,
    error_at,
    other_writer,
    refusal_of_unplanned,
)
from mm2mgr.apply.settle import States, Verdict, Verification, pause_unless_halted
from mm2mgr.apply.waves import (
    Halted,
    Report,
    Result,
    RolledBack,
    Rollout,
    Trouble,
    Waiting,
    Wave,
    WaveBegun,
    WaveVerified,
    inverse_of,
    is_as_written,
    waves,
)
from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import JOURNAL_KEY
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectUnreachable, OutcomeUnknown, WrongBody
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.questions import Configs
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import Clusters, open_client, read, run_steps
from mm2mgr.live.snapshot import Result as Answer
from mm2mgr.live.snapshot import Steps
from mm2mgr.plan.changes import Change, ClusterPlan, Plan
from mm2mgr.plan.stages import ReadDedicated, Undo, stages
from mm2mgr.text import few
from mm2mgr.topology import Topology

FINISH_SECONDS = 60.0
"""How long writes that were begun may take after a halt, before they are cut short."""
# Two applies that look at the same moment both write, and a write waits in the worker for rebalances: the second one
# was seen to land 1 to 3 s after the first. Connect has no conditional write, so what counts is what is stored after
# that.
_RACE_SECONDS = 4.0
_LONGEST_RACE_SECONDS = 30.0
# A follower shows what it knew; the leader's writes reach it within a moment.
_READ_BACK_SECONDS = 5.0
_READ_BACK_PAUSE_SECONDS = 0.3


async def apply_plan(  # noqa: PLR0913  what to do, where to report it, and when to end
    topology: Topology,
    plan: Plan,
    *,
    rollout: Rollout | None = None,
    report: Report = lambda event: None,
    begin: Callable[[Change], None] = lambda change: None,
    limits: Limits | None = None,
    halt: asyncio.Event | None = None,
    states: States | None = None,
    guard: Guard = allow_write,
) -> list[Result]:
    """Write a plan's changes wave by wave; a failed write does not stop the others, a broken connector does.

    `write_seconds` of `limits` bounds each write, retries included. Events are reported as they come, and the results
    returned in all; what `read_back` says is to be asked for afterwards. When no worker of a Connect cluster answers
    until a deadline, the rest of its changes are not tried and say so. Once `halt` is set no write is begun (`begin` is
    called for each), and those that were begun have FINISH_SECONDS to end: then a change without a result was not
    begun. `states` is filled on the way. `guard` is asked before each write.
    """
    halt, rollout = halt or asyncio.Event(), (rollout or Rollout()).of_plan(plan.writes)
    givers: dict[Named, list[Change]] = {}
    for change in plan.writes:
        if change.moves_to:
            givers.setdefault(change.moves_to, []).append(change)
    deletions = {change.full_name: _Deletion() for change in plan.writes if change.full_name in rollout.first}
    for change in plan.writes:
        for named in change.follows:
            if named in deletions:
                deletions[named].connects.add(change.connect)
    states = {} if states is None else states
    apply_run = _ApplyRun(topology, rollout, report, begin, limits or Limits(), halt, states, givers, deletions, guard)
    clusters = [cluster for part in plan.clusters if (cluster := _ClusterRun(apply_run, part)).waves]
    apply_run.canary.awaited.update(
        cluster.connect for cluster in clusters if any(map(rollout.is_canary, cluster.part.changes))
    )
    async with asyncio.TaskGroup() as group:
        parts = [group.create_task(cluster.run()) for cluster in clusters]
        watch = group.create_task(_cut_short(halt, parts))
        if parts:
            await asyncio.wait(parts)
        watch.cancel()
    return [result for cluster in clusters for result in (*cluster.results.values(), *cluster.handed_over)]


async def _cut_short(halt: asyncio.Event, parts: Iterable[asyncio.Task[None]]) -> None:
    await halt.wait()
    await asyncio.sleep(FINISH_SECONDS)
    for part in parts:
        part.cancel()


class _Canary:
    """What goes first: the Connect clusters whose verdict is awaited, and why the others may not begin, if so."""

    def __init__(self) -> None:
        self.awaited: set[str] = set()
        self._trouble: tuple[Trouble, str] | None = None
        self._known = asyncio.Event()

    def record(self, connect: str, verdict: Verdict, reason: str = "") -> None:
        """Take in the verdict of a Connect cluster; a second one changes nothing."""
        if connect in self.awaited:
            self.awaited.discard(connect)
            if verdict != "ok":
                self._trouble = self._trouble or (
                    verdict,
                    f"the canary on Connect cluster '{connect}' is not good: {reason}",
                )
        if self._trouble or not self.awaited:
            self._known.set()

    async def trouble(self, halt: asyncio.Event) -> tuple[Trouble, str] | None:
        """Wait until all are good, and return what keeps the others from beginning."""
        if self.awaited and not self._known.is_set():
            waits = [asyncio.ensure_future(event.wait()) for event in (self._known, halt)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        return self._trouble


class _Deletion:
    """What is deleted before another connector begins, maybe one of another Connect cluster."""

    def __init__(self) -> None:
        self.connects: set[str] = set()  # of what begins then
        self._ended = asyncio.Event()
        self._is_gone = False

    def record(self, *, is_gone: bool) -> None:
        """Take in what became of it; a second time changes nothing."""
        self._is_gone = is_gone if not self._ended.is_set() else self._is_gone
        self._ended.set()

    async def is_gone(self) -> bool:
        """Wait until it was tried, or will not be, and tell whether it is gone."""
        await self._ended.wait()
        return self._is_gone


@dataclass(frozen=True)
class _ApplyRun:
    """What all Connect clusters of one apply have in common."""

    topology: Topology
    rollout: Rollout
    report: Report
    begin: Callable[[Change], None]
    limits: Limits
    halt: asyncio.Event
    states: States
    givers: Mapping[Named, Sequence[Change]]
    """The changes that are written by the list of another one, which takes over from them."""
    deletions: Mapping[Named, _Deletion]
    guard: Guard
    canary: _Canary = field(default_factory=_Canary)


class _ClusterRun:
    """The waves of one Connect cluster, and what became of its changes."""

    def __init__(self, apply_run: _ApplyRun, part: ClusterPlan) -> None:
        self.apply_run, self.part, self.connect = apply_run, part, part.connect
        self.waves = list(waves(part, apply_run.rollout))
        self.results: dict[str, Result] = {}
        self.handed_over: list[Result] = []
        self.clients: dict[str, ConnectClient] = {}
        self.is_gone = False
        self.gate = asyncio.Semaphore(apply_run.limits.at_once)

    def record(self, result: Result) -> None:
        self.results[result.connector] = result
        if deletion := self.apply_run.deletions.get(result.full_name):
            deletion.record(is_gone=result.error is None)
        self.apply_run.report(result)

    async def run(self) -> None:
        try:
            writer = self._open_writer(self.connect)
        except Mm2mgrError as error:  # its credentials or certificates are not there any more
            for change in (change for wave in self.waves for change in wave if change.action != "no-op"):
                self.record(_result(change, error, 0.0))
            self.apply_run.canary.record(self.connect, "failed", error.one_line)
            return
        try:
            async with writer:
                self.clients[self.connect] = writer
                await self._run(writer.with_deadline(self.apply_run.limits.look_seconds))
        except asyncio.CancelledError:
            pass  # cut short: what was begun has been reported
        finally:
            self.apply_run.canary.record(self.connect, "inconclusive", "it was not looked at")
            for (connect, _), deletion in self.apply_run.deletions.items():
                if connect == self.connect:  # what has no result yet was not begun
                    deletion.record(is_gone=False)

    def _open_writer(self, connect: str) -> ConnectClient:
        return open_client(self.apply_run.topology.connects[connect], self.apply_run.limits.write_seconds)

    async def _run(self, client: ConnectClient) -> None:
        apply_run, rollout = self.apply_run, self.apply_run.rollout
        clusters = Clusters({self.connect: client}, apply_run.topology.clusters)

        async def ask(steps: Steps[Answer]) -> Answer:
            return (await run_steps(steps, clusters, apply_run.limits))[0]

        verification = Verification(
            self.connect,
            ask,
            wait_seconds=rollout.wait_seconds,
            states=apply_run.states,
            halt=apply_run.halt,
            waits=lambda names: apply_run.report(Waiting(self.connect, tuple(names), rollout.wait_seconds)),
            logs=LogReader(apply_run.topology),
        )
        if rollout.wait_seconds and any(change.action != "create" for change in self.part.writes):
            await verification.remember()
        for number, changes in enumerate(self.waves, 1):
            if not rollout.is_canary(changes[0]):
                apply_run.canary.record(self.connect, "ok")
                trouble = await apply_run.canary.trouble(apply_run.halt)
                if trouble and not apply_run.halt.is_set():
                    return self._halt_cluster(*trouble)
            if number > 1:
                await pause_unless_halted(rollout.pause_seconds, apply_run.halt)
            if apply_run.halt.is_set():
                return None
            wave = WaveBegun(self.connect, number, len(self.waves), tuple(change.connector for change in changes))
            apply_run.report(wave)
            await self._write(changes)
            verdict, reason = await self._verify_wave(verification, wave, changes)
            if verdict != "ok":
                if verdict == "failed" and rollout.rollback:
                    await self._roll_back(client, verification)
                return self._halt_cluster(verdict, reason)
        apply_run.canary.record(self.connect, "ok")
        return None

    async def _write(self, changes: Sequence[Change]) -> None:
        proved = [write for write in self.part.writes if write.needs_offsets and write.connector in self.results]
        refused = {flow for write in proved if self.results[write.connector].error is not None for flow in write.flows}
        async with asyncio.TaskGroup() as group:
            for change in changes:
                if change.action == "no-op":
                    continue
                if change.type != "source" and change.flows and refused.issuperset(change.flows):
                    self.apply_run.begin(change)
                    self.record(_result(change, error_at(change.full_name, *_SERVES_NOTHING), 0.0))
                else:
                    group.create_task(self._write_next(change))

    async def _write_next(self, change: Change) -> None:
        """Write a change once what is deleted before it is gone; where that stays, it is not begun."""
        for named in change.follows:
            deletion = self.apply_run.deletions.get(named)
            if deletion is None or not await deletion.is_gone():
                if not self.apply_run.halt.is_set():
                    self.apply_run.begin(change)
                    self.record(_result(change, error_at(change.full_name, *_STILL_THERE), 0.0))
                return
        await self._write_one(change)

    async def _write_one(self, change: Change) -> None:
        async with self.gate:
            if self.apply_run.halt.is_set():
                return
            givers = self.apply_run.givers.get(change.full_name, ())
            warnings: list[str] = []
            for each_change in (change, *givers):
                self.apply_run.begin(each_change)
            begun = timing.now()
            try:
                # Each write to dead workers would wait out a deadline of its own: 120 s for every eight connectors.
                error = (
                    error_at(change.full_name, *_UNTRIED)
                    if self.is_gone
                    else await self._carried_out(change, givers, warnings.append)
                )
            except asyncio.CancelledError:
                cut = error_at(change.full_name, "interrupted while it was written", "apply again to finish it")
                error = OutcomeUnknown(cut.message, hint=cut.hint, cluster=cut.cluster, connector=cut.connector)
        if not change.takes_over:  # else it may be the other Connect cluster
            self.is_gone = self.is_gone or _no_worker_answers(error)
        self.record(_with_warnings(_result(change, error, timing.now() - begun), warnings))
        for giver in givers:
            self.handed_over.append(_result(giver, error, timing.now() - begun))
            self.apply_run.report(self.handed_over[-1])

    async def _carried_out(
        self, change: Change, givers: Iterable[Change] = (), warn: Callable[[str], None] = lambda warning: None
    ) -> Mm2mgrError | None:
        todo = stages(change, self.apply_run.topology.owner)
        if refusal := refusal_of_unplanned(todo, {change.full_name, *(giver.full_name for giver in givers)}):
            return refusal
        try:
            async with AsyncExitStack() as opened:
                clients = dict(self.clients)
                for connect in {
                    stage.full_name[0] for stage in todo if not isinstance(stage, (Undo, ReadDedicated))
                } - clients.keys():
                    clients[connect] = await opened.enter_async_context(self._open_writer(connect))
                return await carry_out(clients, todo, warn, self.apply_run.guard)
        except Mm2mgrError as error:  # credentials of the other side are not there any more
            return error

    async def _verify_wave(
        self, verification: Verification, wave: Wave, changes: Sequence[Change]
    ) -> tuple[Verdict, str]:
        """Return the verdict on a wave, and what is wrong; a refused write broke nothing, unless it goes first."""
        results = [self.results[change.connector] for change in changes if change.connector in self.results]
        refused = [result for result in results if result.error is not None]
        if refused and self.apply_run.rollout.is_canary(changes[0]):
            return "failed", f"{refused[0].connector}: {refused[0].error}"
        if self.apply_run.halt.is_set() or self.is_gone or not self.apply_run.rollout.wait_seconds:
            return "ok", ""
        failed = {result.connector for result in refused}
        is_canary = self.apply_run.rollout.is_canary(changes[0])
        verdict = await verification.check(
            (change for change in changes if change.connector not in failed), is_canary=is_canary
        )
        if self.apply_run.halt.is_set():
            return "ok", ""
        # Nothing else has to wait for what was not written, but not all of the wave runs.
        shown: Verdict = "failed" if refused and verdict == "ok" else verdict
        self.apply_run.report(
            WaveVerified(**vars(wave), verdict=shown, unwritten=tuple(result.connector for result in refused))
        )
        states = [
            f"{name}: {settled.state}"
            for (connect, name), settled in self.apply_run.states.items()
            if connect == self.connect and settled.verdict == verdict
        ]
        return verdict, few(states, 1) if verdict != "ok" else ""

    def _halt_cluster(self, verdict: Trouble, reason: str) -> None:
        left = tuple(c.connector for c in self.part.writes if c.connector not in self.results and not c.moves_to)
        self.apply_run.canary.record(self.connect, verdict, reason)
        self.apply_run.report(Halted(self.connect, verdict, reason, left))

    def _reason_to_keep(self, change: Change, live: Mapping[str, str] | None) -> str:
        """Return why a change is not taken back; empty where it is."""
        deletion = self.apply_run.deletions.get(change.full_name)
        if deletion and deletion.connects - {self.connect}:
            return "what followed it on another Connect cluster stays"
        if change.takes_over:
            return "offsets moved, so the way back is a move, too"
        if JOURNAL_KEY in (change.before or {}):
            return "it finished a move of offsets"
        return "" if is_as_written(change, live) else "it was changed since"

    async def _roll_back(self, client: ConnectClient, verification: Verification) -> None:
        """Take back what this apply wrote here, except what was changed since, and wait until that runs again."""
        done = {name: result.change for name, result in self.results.items() if result.error is None and result.change}
        try:
            live = {name: info.config for name, info in (await client.infos()).items()}
            not_undone = {name: reason for name in done if (reason := self._reason_to_keep(done[name], live.get(name)))}
        except Mm2mgrError as error:
            not_undone = dict.fromkeys(done, error.one_line)
        inverses = [inverse_of(done[name], verification.state_before(name)) for name in done if name not in not_undone]

        async def undo(inverse: Change) -> None:
            async with self.gate:
                if error := await self._carried_out(inverse):
                    not_undone[inverse.connector] = error.one_line

        for action in ("delete", "update", "create"):  # what is new goes before what it replaced comes back
            await asyncio.gather(*(undo(inverse) for inverse in inverses if inverse.action == action))
        for name in done:
            verification.forget(name)
            if name in not_undone:
                hint = "look at it with mm2mgr describe, then apply the tree as it was"
                problem = f"not rolled back: {not_undone[name]}"
                ended = replace(self.results[name], error=problem, hint=hint, was_written=True)
            else:
                ended = replace(self.results[name], rolled_back=True)
            self.results[name] = ended
        undone = [inverse for inverse in inverses if inverse.connector not in not_undone]
        self.apply_run.report(RolledBack(self.connect, tuple(self.results[name] for name in done)))
        await verification.check(undone)


async def read_back(topology: Topology, results: Iterable[Result], limits: Limits | None = None) -> list[Result]:
    """Read what was written, one request per Connect cluster; return results that change: what was overwritten.

    Waits until no process that read the cluster before one of these writes can still write, as far as is known.
    """
    by_cluster: dict[str, list[Result]] = {}
    for result in results:
        if result.is_done and result.change:
            by_cluster.setdefault(result.connect, []).append(result)

    async def read_configs(connect: str) -> dict[str, dict[str, str]]:
        snapshot = await read([Configs(connect)], Clusters(topology.connects), limits or Limits())
        return {name: info.config for name, info in snapshot[Configs(connect)].items()}

    async def read_cluster(connect: str, done: list[Result]) -> list[Result]:
        try:
            return await _read_back(partial(read_configs, connect), topology.owner, done)
        except Mm2mgrError as error:
            return [replace(result, doubt=f"written, but not read back: {error.one_line}") for result in done]

    parts = await asyncio.gather(*(read_cluster(connect, done) for connect, done in by_cluster.items()))
    return [result for part in parts for result in part]


async def _read_back(
    read_configs: Callable[[], Awaitable[dict[str, dict[str, str]]]], owner: str, done: list[Result]
) -> list[Result]:
    written = [result for result in done if result.action != "create"]  # what exists is created by no other process
    race = 0.0
    if written:
        slowest = max(result.seconds for result in written)
        race = min(max(_RACE_SECONDS, 2 * slowest), max(_RACE_SECONDS, _LONGEST_RACE_SECONDS))
        await asyncio.sleep(max(0.0, max(result.ended for result in written) + race - timing.now()))
    end, others, latest = timing.now() + _READ_BACK_SECONDS, set[str](), timing.now() + _LONGEST_RACE_SECONDS
    while True:
        live = await read_configs()
        wrong = [problem for result in done if (problem := _overwritten(result, live.get(result.connector), owner))]
        if new := {result.connector for result in wrong} - others:
            others |= new  # another process is writing right now, and may write more of these
            end = max(end, min(timing.now() + race, latest))
        if not wrong or timing.now() > end:
            return wrong
        await asyncio.sleep(_READ_BACK_PAUSE_SECONDS)


def _overwritten(result: Result, live: Mapping[str, str] | None, owner: str) -> Result | None:
    change = result.change
    if change is None or (change.action == "delete" and live is None):
        return None
    written = change.written_config
    if change.action == "delete":
        problem = "it was deleted, but exists again"
    elif live is None:
        problem = "it was written, but no longer exists"
    elif keys := differing(written, live):
        problem = f"it was written, but overwritten since (keys: {keys})"
    else:
        return None
    error = error_at(change.full_name, problem, other_writer(owner))
    return replace(result, error=error.message, hint=error.hint, was_written=True)


def _no_worker_answers(error: Mm2mgrError | None) -> bool:
    """Tell whether every URL was dead until the deadline, for the write or for reading back what became of it."""
    return error is not None and any(isinstance(failure, ConnectUnreachable) for failure in (error, error.__cause__))


def _may_be_written(error: Mm2mgrError | None) -> bool:
    """Tell whether a write that ended with this error may have been stored all the same: its answer was lost."""
    return _no_worker_answers(error) or isinstance(error, (OutcomeUnknown, WrongBody))


_UNTRIED = "skipped: the previous write got no response from any URL", "bring the workers back, then apply again"
_STILL_THERE = (
    "skipped: what still does what it begins could not be deleted",
    "see the error of that connector, and apply again",
)
_SERVES_NOTHING = (
    "skipped: the source connector of the flow that it serves was not started",
    "see the error of its source connector",
)


def _with_warnings(result: Result, warnings: Sequence[str]) -> Result:
    if result.error is None:
        return replace(result, doubt="; ".join(warnings))
    return replace(result, hint="; ".join(filter(None, (result.hint, *warnings))) or None)


def _result(change: Change, error: Mm2mgrError | None, seconds: float) -> Result:
    return Result(
        change.connect,
        change.connector,
        change.action,
        change.type,
        error.message if error else None,
        error.hint if error else None,
        seconds,
        was_written=_may_be_written(error),
        change=change,
        ended=timing.now(),
    )
