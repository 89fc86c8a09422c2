"""Carries out stages on Connect clusters, one function for all lists. What fails is undone as far as the list says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from mm2mgr import timing
from mm2mgr.apply.leases import LeaseLost
from mm2mgr.comparison.differences import Named, diff
from mm2mgr.comparison.ownership import JOURNAL_KEY
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import AlreadyExists, ConnectError, NotFound
from mm2mgr.connect.types import SourceOffset, parse_stored
from mm2mgr.connectors import RESTING, RunningConnector
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.quotas import RIGHTS, write_quotas
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.live.questions import DedicatedOffsets
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import Clusters, read, run_steps
from mm2mgr.plan.changes import connector_text
from mm2mgr.plan.quotas import QuotaChange, QuotaResult
from mm2mgr.plan.resets import StartOrder
from mm2mgr.plan.stages import (
    Compare,
    Config,
    Create,
    Delete,
    DropOffsets,
    KeepStored,
    Prove,
    ReadBack,
    ReadDedicated,
    ReadOffsets,
    ReadStart,
    SetState,
    Stage,
    Stop,
    TakeOffsets,
    Undo,
    Verify,
    WriteConfig,
    WriteOffsets,
    written_by,
)
from mm2mgr.plan.starts import read_start
from mm2mgr.render import OWNER_KEY
from mm2mgr.text import few, span_text
from mm2mgr.topology import Topology

Guard = Callable[[str], Awaitable[None]]
"""Gets a Connect cluster before something is written there; raises LeaseLost where that may not be."""


async def allow_write(connect: str) -> None:
    """Let everything be written."""


async def carry_out(
    clients: Mapping[str, ConnectClient],
    todo: Sequence[Stage],
    warn: Callable[[str], None] = lambda warning: None,
    guard: Guard = allow_write,
) -> Mm2mgrError | None:
    """Carry out stages with the clients of their Connect clusters; return what went wrong. Dying inside leaves what the
    next plan finishes.

    `warn` gets what makes the result doubtful although nothing failed. `guard` is asked before each write.
    """
    run = _Run(clients, warn, guard)
    try:
        for stage in todo:
            await run.carry_out(stage)
    except NotFound as missing:
        if [type(stage) for stage in todo] == [Compare, Delete]:
            return None  # somebody else deleted it
        return await run.undo_begun(_vanished_error(missing.cluster or "", missing.connector or ""))
    except AlreadyExists as taken:
        taken.hint = "it appeared since the plan was made; plan again"
        return taken
    except LeaseLost as lost:
        return lost  # undoing is writing, too: what is there is as if this process had died
    except Mm2mgrError as failed:
        return await run.undo_begun(failed)
    except BaseException:  # cancelled
        await run.undo_begun(None)
        raise
    return None


async def carry_out_quotas(topology: Topology, changes: Iterable[QuotaChange]) -> list[QuotaResult]:
    """Write quotas, a Kafka cluster's in one request; return what became of each. A refused one stops no other."""
    by_kafka: dict[str, list[QuotaChange]] = {}
    for change in changes:
        by_kafka.setdefault(change.kafka, []).append(change)

    async def write_on(kafka: str) -> list[QuotaResult]:
        todo = by_kafka[kafka]
        try:
            access = kafka_access(topology.clusters[kafka])
            refused = await asyncio.to_thread(write_quotas, access, {quota.entity: quota.after for quota in todo})
        except Mm2mgrError as error:
            return [QuotaResult(quota, error.message, error.hint) for quota in todo]
        refusals = [(quota, refused.get(quota.entity)) for quota in todo]
        return [
            QuotaResult(quota, refusal and f"{kafka}: {refusal}", RIGHTS if refusal else None)
            for quota, refusal in refusals
        ]

    return [result for part in await asyncio.gather(*map(write_on, by_kafka)) for result in part]


_WAIT_SECONDS = 60.0
_RESTORE_SECONDS = 30.0
_POLL_SECONDS = 0.3
# A connector that nobody has heard of for so long does not exist: a worker that follows learns of a new one within a
# moment.
_UNHEARD_SECONDS = 5.0
# Connect cancels a task that takes longer to end (task.shutdown.graceful.timeout.ms). Seen on 4.3.1: a clean stop took
# 1.5 s, and one just after a worker was killed 5.9 s, in which its tasks were shown as RUNNING.
_GRACEFUL_SECONDS = 5.0


@dataclass
class _Run:
    """One list on its way: the offsets that were read, and what undoes it."""

    clients: Mapping[str, ConnectClient]
    warn: Callable[[str], None]
    guard: Guard
    read: dict[str, SourceOffset] = field(default_factory=dict)
    undo: tuple[Stage, ...] = ()
    configs: dict[Named, Config] = field(default_factory=dict)
    """The config that each connector had when it was last read or written."""

    async def undo_begun(self, error: Mm2mgrError | None) -> Mm2mgrError | None:
        """Undo what was begun, as far as that can be done in a short time; the journal stays when it cannot."""
        undo, self.undo = self.undo, ()
        with suppress(TimeoutError, Mm2mgrError):
            async with asyncio.timeout(_RESTORE_SECONDS):
                for stage in undo:
                    await self.carry_out(stage)
        return error

    async def carry_out(self, stage: Stage) -> None:  # noqa: PLR0912, PLR0915  one case for each kind
        if isinstance(stage, Undo):
            self.undo = stage.stages
            return
        connect, name = stage.full_name
        if isinstance(stage, ReadDedicated):
            self.read = {entry.key: entry for entry in stage.picks.entries_of(await _read_dedicated(stage))}
            return
        client = self.clients[connect]
        if written_by([stage]):
            await self.guard(connect)
        match stage:
            case Compare():
                self.configs[stage.full_name] = await _compare(client, stage)
            case Create(config=config, state=state):
                await client.create(name, config, state)
                self.configs[stage.full_name] = {"name": name, **config}
            case WriteConfig(config=config, known=is_awaited):
                await client.put_config(name, config, self.configs.get(stage.full_name))
                self.configs[stage.full_name] = {"name": name, **config}
                if is_awaited:
                    await _wait_until(
                        client, stage.full_name, "did not apply its config", partial(_has, client, name, config)
                    )
            case SetState(state=state):
                await {"RUNNING": client.resume, "PAUSED": client.pause, "STOPPED": client.stop}[state](name)
            case Stop():
                await self.stop(client, stage)
            case ReadOffsets():
                self.read = {
                    entry.key: entry for entry in stage.picks.entries_of((await _read_stored(client, name)).values())
                }
            case ReadStart(order=order):
                self.read = {entry.key: entry for entry in await _read_start(stage, order)}
            case TakeOffsets(entries=entries):
                self.read = {entry.key: entry for entry in entries}
            case KeepStored():
                await self.keep_stored(client, stage)
            case WriteOffsets(ahead=True):
                await self.add_offsets(client, stage)
            case WriteOffsets():
                await self.replace_offsets(client, stage)
            case ReadBack():

                async def same() -> bool:
                    return await _read_covered(client, stage) == self.read

                await _wait_until(client, stage.full_name, "did not store the offsets that were written", same)
            case DropOffsets(picks=picks, like=like):
                has = await _read_stored(client, name)
                if like:
                    copied = picks.entries_of((await _read_stored(self.clients[like[0]], like[1])).values())
                    positions = {entry.key: _position(entry) for entry in copied}
                    has = {key: entry for key, entry in has.items() if _position(entry) <= positions.get(key, -2)}
                await _patch(client, name, _nulls(has.values()))
            case Verify():
                await self.verify(client, stage)
            case Prove():
                await _prove(client, stage)
            case Delete():
                await client.delete(name)

    async def add_offsets(self, client: ConnectClient, stage: WriteOffsets) -> None:
        """Store what was read and is further on than what it has."""
        has = await _read_covered(client, stage)
        new = {
            key: entry for key, entry in self.read.items() if key not in has or _position(entry) > _position(has[key])
        }
        self.read = has | new
        await _patch(client, stage.full_name[1], list(new.values()))

    async def replace_offsets(self, client: ConnectClient, stage: WriteOffsets) -> None:
        """Store what was read, and remove what else it has; refused where a journal led to nothing and it has some."""
        has = await _read_covered(client, stage)
        further = [key for key, entry in self.read.items() if key in has and _position(has[key]) > _position(entry)]
        if stage.noted and has and (further or not self.read):
            place = "a place with older offsets" if further else "a place without offsets for it"
            raise error_at(
                stage.full_name,
                f"its journal (mm2mgr.journal) names {place}, and it has offsets, which were kept; it is STOPPED",
                "remove the keys that begin with mm2mgr.journal from its config over REST, then apply",
            )
        gone = [entry for key, entry in has.items() if key not in self.read]
        await _patch(client, stage.full_name[1], [*self.read.values(), *_nulls(gone)])

    async def keep_stored(self, client: ConnectClient, stage: KeepStored) -> None:
        """Forget where topics begin that have offsets: it ran before, and would mirror again or skip records."""
        name = stage.full_name[1]
        stored = {entry.topic for entry in parse_stored(await client.offsets(name), stage.picks.after)}
        if topics := sorted(filter(stage.picks.has_topic, stored)):
            new = (entry for entry in self.read.values() if entry.partition.get("topic") not in topics)
            self.read = {entry.key: entry for entry in new}
            self.warn(
                f"offsets of {few(topics)} are stored under the name of {connector_text(stage.full_name)}, which ran"
                " before: it goes on from them, and start: changed nothing there"
            )
            return
        await client.put_config(name, stage.config, self.configs.get(stage.full_name))
        self.configs[stage.full_name] = {"name": name, **stage.config}

    async def stop(self, client: ConnectClient, stage: Stop) -> None:
        """Stop it, and warn where tasks may not have stored their last offsets: a worker died, or they ended late."""
        name = stage.full_name[1]
        lost = await _lost_tasks(client, name)
        await client.stop(name)
        begun = timing.now()
        late = False

        async def there() -> bool:
            nonlocal late
            if await _is_stopped(client, name):
                return True
            late = late or timing.now() - begun > _GRACEFUL_SECONDS
            return False

        await _wait_until(client, stage.full_name, "did not stop", there)
        if lost or late:
            reason = (
                f"the worker of {few(lost)} had died"
                if lost
                else f"its tasks took more than {span_text(_GRACEFUL_SECONDS)}"
            )
            self.warn(
                f"the stop of {connector_text(stage.full_name)} was not clean ({reason}): its last offsets may not be "
                "stored, so what it mirrored since they were can arrive twice, unless its workers write exactly once"
            )

    async def verify(self, client: ConnectClient, stage: Verify) -> None:
        """Wait for what `Verify` says; a failed task ends it at once."""
        name = stage.full_name[1]
        values = {key: stage.config.get(key) for key in (JOURNAL_KEY, "topics")}
        readable = {
            key: value for key, value in values.items() if "${" not in (value or "")
        }  # workers show another text

        async def there() -> bool:
            try:
                status = await client.status(name)
            except NotFound:
                return False
            if any(task.state == "FAILED" for task in status.tasks):
                hint = (
                    "see mm2mgr describe; when its cause is gone, restart the task and apply again: the move goes on"
                    " from here"
                )
                raise error_at(stage.full_name, "it has its offsets, but a task of it FAILED", hint)
            if stage.state != "RUNNING":
                return status.state == stage.state
            tasks = await client.tasks(name)
            has = all(task.config.get(key) == value for task in tasks for key, value in readable.items())
            # Tasks come with the first topic: without offsets there may be none yet.
            return status.runs and has and (len(status.tasks) == len(tasks) > 0 or not self.read)

        await _wait_until(client, stage.full_name, f"was not {stage.state} with its new config", there)


async def _read_dedicated(stage: ReadDedicated) -> Sequence[SourceOffset]:
    question = DedicatedOffsets(stage.kafka.alias, stage.picks.before)
    limits = Limits(kafka_seconds=10.0, measuring_seconds=30.0)
    return (await read([question], Clusters(kafkas={stage.kafka.alias: stage.kafka}), limits))[question]


async def _read_start(stage: ReadStart, order: StartOrder) -> Sequence[SourceOffset]:
    clusters = Clusters(kafkas={order.kafka.alias: order.kafka})
    limits = Limits(kafka_seconds=10.0, measuring_seconds=60.0)
    try:
        positions, _ = await run_steps(read_start(order), clusters, limits)
    except Mm2mgrError as error:
        hint = error.hint or "apply again when it can be read"
        raise error_at(stage.full_name, f"where it begins: {error.message}", hint) from error
    return positions.entries(order.kafka.alias)


async def _lost_tasks(client: ConnectClient, name: str) -> list[str]:
    try:
        status = await client.status(name)
    except NotFound:
        return []
    return [f"task {task.id}" for task in status.tasks if task.state == "UNASSIGNED" and status.state != "STOPPED"]


def _position(entry: SourceOffset) -> int:
    position = (entry.offset or {}).get("offset")
    return position if isinstance(position, int) else -1


async def _read_covered(client: ConnectClient, stage: WriteOffsets | ReadBack) -> dict[str, SourceOffset]:
    stored = (await _read_stored(client, stage.full_name[1])).items()
    return {key: entry for key, entry in stored if stage.picks.covers(entry, stage.picks.after)}


def _nulls(entries: Iterable[SourceOffset]) -> list[SourceOffset]:
    return [SourceOffset(entry.partition, None) for entry in entries]


async def _patch(client: ConnectClient, name: str, entries: Sequence[SourceOffset]) -> None:
    if entries:  # an empty list is refused
        await client.patch_offsets(name, entries)


async def _compare(client: ConnectClient, stage: Compare) -> dict[str, str]:
    live = await client.config(stage.full_name[1])
    holder = live.get(OWNER_KEY)
    if holder != (stage.owner if stage.before is None else stage.before.get(OWNER_KEY)):
        raise error_at(
            stage.full_name,
            f"its owner mark is now {holder!r}",
            "its owner changed after the plan was made; plan again",
        )
    if stage.before is not None and (changed := differing(stage.before, live)):
        raise error_at(
            stage.full_name, f"its config changed since the plan was made (keys: {changed})", other_writer(stage.owner)
        )
    if stage.rests is not None and (shown := await _resting(client, stage.full_name[1])) != stage.rests:
        now = f"it is {shown} now" if shown else f"it is no longer {stage.rests}"
        raise error_at(stage.full_name, now, "somebody changed its state after the plan was made; plan again")
    return live


async def _resting(client: ConnectClient, name: str) -> str:
    try:
        state = (await client.status(name)).state
    except NotFound:  # it has not reported yet
        return ""
    return state if state in RESTING else ""


async def _prove(client: ConnectClient, stage: Prove) -> None:
    name = stage.full_name[1]
    if stage.is_new:
        await _wait_until(client, stage.full_name, "did not stop", partial(_is_stopped, client, name))
    stored = {entry.topic for entry in parse_stored(await client.offsets(name), stage.alias)}
    missing = [topic for topic in stage.topics if topic not in stored]
    if not missing:
        return
    there = f"the target has records of {few(missing)} already"
    former = "give the flow the name, the alias and the Connect cluster that it had"
    end = "was deleted before it ran"
    if stage.is_new:
        await client.delete(name)
    else:
        there = f"its journal (mm2mgr.journal) says that {there}"
        former, end = f"{former}, and add --prune, which deletes this connector", "was left as it is, and not started"
    raise error_at(
        stage.full_name,
        f"{there}, and no offsets are stored under this name: every record would be mirrored again, so the connector"
        f" {end}",
        f"{former}; or add --allow mirror-again",
    )


async def _is_stopped(client: ConnectClient, name: str) -> bool:
    try:
        return RunningConnector(name, {}, status=await client.status(name)).has_stopped
    except NotFound:
        return False


async def _has(client: ConnectClient, name: str, config: Config) -> bool:
    return await client.config(name) == {"name": name, **config}


async def _read_stored(client: ConnectClient, name: str) -> dict[str, SourceOffset]:
    return {entry.key: entry for entry in await client.offsets(name) if entry.offset is not None}


async def _wait_until(
    client: ConnectClient, named: Named, otherwise: str, holds: Callable[[], Awaitable[bool]]
) -> None:
    """Wait until something holds; NotFound where the connector does not exist any more."""
    begun = timing.now()
    while not await holds():
        if timing.now() > begun + _UNHEARD_SECONDS:
            await client.config(named[1])
        if timing.now() > begun + _WAIT_SECONDS:
            raise error_at(
                named,
                f"it {otherwise} within {span_text(_WAIT_SECONDS)}",
                "check it with mm2mgr describe, then apply again: it continues where this apply stopped",
            )
        await asyncio.sleep(_POLL_SECONDS)


def refusal_of_unplanned(todo: Iterable[Stage], planned: Collection[Named]) -> Mm2mgrError | None:
    """Return why a list is not carried out: it writes to a connector that the plan does not name, a fault of mm2mgr."""
    for named in sorted(written_by(todo) - set(planned)):
        return error_at(
            named, "the plan does not name it as written, so nothing was done", "report this as a fault of mm2mgr"
        )
    return None


def _vanished_error(connect: str, connector: str) -> ConnectError:
    hint = "somebody deleted it after the plan was made; plan again"
    return error_at((connect, connector), "it does not exist any more", hint)


def other_writer(owner: str) -> str:
    """Return the hint where somebody else wrote meanwhile."""
    return f"another apply of owner '{owner}' changed it, or somebody changed it by hand; plan again"


def differing(before: Config, after: Config) -> str:
    """Name the keys that differ, never their values."""
    return few([change.key for change in diff(before, after)], 5)


def error_at(named: Named, problem: str, hint: str) -> ConnectError:
    """Return an error about one connector."""
    connect, connector = named
    message = f"Connect cluster '{connect}', connector '{connector}': {problem}"
    return ConnectError(message, hint=hint, cluster=connect, connector=connector)
