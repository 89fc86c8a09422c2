"""What `apply` does to a connector: an ordered list of small values that is decided when the plan is made.

`stages` makes the list, `carry_out` executes it and `explain` describes it, so that the description cannot differ from what happens.
A list that stops a connector writes a journal into its config first: whatever kills mm2mgr, the next plan makes the list of what is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import AlreadyExists, ConnectError, NotFound
from mm2mgr.connect.types import SourceOffset, parse_stored
from mm2mgr.endpoints import kafka_access
from mm2mgr.errors import Mm2mgrError
from mm2mgr.reconcile.dedicated import read_dedicated
from mm2mgr.reconcile.offsets import (
    EVERY,
    JOURNAL_KEY,
    Journal,
    Picks,
    TakeOver,
    at,
    is_moved,
    left_at,
    place,
    unmarked,
)
from mm2mgr.reconcile.plan import RESTING, Change, Named, diff
from mm2mgr.render import OWNER_KEY
from mm2mgr.text import few
from mm2mgr.topology import KafkaCluster

Config = Mapping[str, str]


@dataclass(frozen=True)
class Compare:
    """Read the connector again: with another owner mark than the plan saw, or another config, nothing is written.

    `rests`: the state that people chose for it (empty: none), where the list will bring it back to that; None: not compared.
    """

    named: Named
    owner: str
    before: Config | None = field(repr=False)
    rests: str | None = None


@dataclass(frozen=True)
class Create:
    """Create it by POST, which cannot overwrite; `state` is the one that it begins in (None: RUNNING, on any version)."""

    named: Named
    config: Config = field(repr=False)
    state: str | None = None


@dataclass(frozen=True)
class WriteConfig:
    """Replace its config; a changed key restarts its tasks, unless it rests. `why` says what for, where that is not the tree's wish.

    `known`: wait until the worker that answers has it, since offsets are read by what that one knows.
    """

    named: Named
    config: Config = field(repr=False)
    why: str = ""
    known: bool = False


@dataclass(frozen=True)
class SetState:
    """Pause, stop or resume it."""

    named: Named
    state: str


@dataclass(frozen=True)
class Stop:
    """Stop it and wait until it has no tasks: only then all its offsets are stored (KIP-875)."""

    named: Named


@dataclass(frozen=True)
class ReadOffsets:
    """Read its stored offsets."""

    named: Named
    picks: Picks = field(default=EVERY, repr=False)


@dataclass(frozen=True)
class ReadDedicated:
    """Read the offsets that a dedicated MirrorMaker stored on its target; refused unless it was shut down cleanly."""

    named: Named
    kafka: KafkaCluster = field(repr=False)
    picks: Picks = field(default=EVERY, repr=False)


@dataclass(frozen=True)
class WriteOffsets:
    """Store the offsets that were read for this connector; what else it has of these topics would hide records, and goes."""

    named: Named
    picks: Picks = field(default=EVERY, repr=False)


@dataclass(frozen=True)
class ReadBack:
    """Wait until the offsets that it has are those that were written."""

    named: Named
    picks: Picks = field(default=EVERY, repr=False)


@dataclass(frozen=True)
class DropOffsets:
    """Remove its stored offsets of the partitions that `like` gives (None: all that it has)."""

    named: Named
    picks: Picks = field(default=EVERY, repr=False)
    like: Named | None = None


@dataclass(frozen=True)
class Verify:
    """Wait until it is in `state`, and where that is RUNNING, its tasks are with this config."""

    named: Named
    config: Config = field(repr=False)
    state: str = "RUNNING"


@dataclass(frozen=True)
class Prove:
    """Delete it unless offsets of these topics are stored under its name: it must never run without them."""

    named: Named
    topics: tuple[str, ...]
    alias: str


@dataclass(frozen=True)
class Undo:
    """From here on, what fails is undone by these stages; without any, there is only the way forward."""

    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True)
class Delete:
    """Delete it; the offsets that it stored stay in Kafka under its name."""

    named: Named


Stage = (
    Compare
    | Create
    | WriteConfig
    | SetState
    | Stop
    | ReadOffsets
    | ReadDedicated
    | WriteOffsets
    | ReadBack
    | DropOffsets
    | Verify
    | Prove
    | Undo
    | Delete
)


def stages(change: Change, owner: str) -> tuple[Stage, ...]:  # noqa: PLR0911  one list for each kind of change
    """Return what is done for a change, in order; nothing for one that is not written."""
    named, config = (change.connect, change.connector), dict(change.config or {})
    before, wished = dict(change.before or {}), change.state[1] if change.state else None
    same = Compare(named, owner, change.before)
    if change.moves_to or change.action not in {"create", "update", "delete"}:
        return ()  # one that is given up is part of the list of the one that takes over
    if change.takes_over:
        return tuple(_moved(named, owner, change, change.takes_over))
    if change.action == "create" and change.needs_offsets:
        journal = Journal(wished or "RUNNING", needs=change.needs_offsets)
        return Create(named, journal.marked(config), "STOPPED"), *_proved(named, config, journal)
    if change.action == "create":
        return (Create(named, config, wished),)
    if change.action == "delete":
        return same, Delete(named)
    if change.type == "source" and is_moved(before, config):
        return tuple(_switch(named, owner, change, wished))
    write = (WriteConfig(named, config),) if change.keys else ()
    if wished is None:
        return same, *write
    # A connector that will be paused or stopped is so before it can run a new config.
    turn = SetState(named, wished)
    return (same, *write, turn) if wished == "RUNNING" else (same, turn, *write)


def _switch(named: Named, owner: str, change: Change, wished: str | None) -> Iterable[Stage]:
    """Yield how a connector comes to store its offsets elsewhere, or how a journal that was found ends."""
    live, wanted, journal = dict(change.before or {}), dict(change.config or {}), Journal.of(change.before or {})
    rests = change.shown if change.shown in RESTING else ""
    was = journal.then if journal else rests or "RUNNING"
    then, behind = wished or was, left_at(live, wanted)
    yield Compare(named, owner, live, None if journal else rests)
    if journal and journal.needs:
        yield from _proved(named, wanted, journal)[:-1]
    if behind is None:
        yield from _finished(named, wanted, then)
        return
    if journal is None:
        yield Undo(_finished(named, live, was))
        if then != "STOPPED":
            # Before it is stopped: afterwards nobody could tell that it is to run again. Workers that are not exactly-once
            # any more refuse `required`, which would bar the way to at_least_once.
            lenient = {key: value for key, value in live.items() if key != "exactly.once.support"}
            yield WriteConfig(named, Journal(then).marked(lenient), "the journal")
    moving = Journal(then, behind).marked(wanted)
    yield Stop(named)
    if place(live) != behind:  # cut short before: only the config of then finds them
        yield WriteConfig(named, at(behind, moving), "the place of its offsets", known=True)
    yield ReadOffsets(named)
    yield WriteConfig(named, moving, "the new place of its offsets", known=True)
    yield from (WriteOffsets(named), ReadBack(named), Undo())
    yield from _finished(named, wanted, then)


def _proved(named: Named, config: Config, journal: Journal) -> tuple[Stage, ...]:
    prove = Prove(named, journal.needs, config.get("source.cluster.alias", ""))
    return prove, *_finished(named, config, journal.then)


def _finished(named: Named, config: Config, then: str) -> tuple[Stage, ...]:
    """Bring a connector back to its state before the journal goes, with a config that finds its offsets."""
    last = WriteConfig(named, unmarked(config))
    if then == "STOPPED":
        return (last,)
    return WriteConfig(named, Journal(then).marked(config), "its offsets are there"), SetState(named, then), last


def _moved(named: Named, owner: str, change: Change, over: TakeOver) -> Iterable[Stage]:  # noqa: PLR0912  in one piece it can be read
    """Yield how a connector goes on where another one stops; what is done already is left out.

    The giver is not written before the receiver has its offsets, so until then everything can be taken back.
    """
    move, giver, live, wanted = over.move, over.giver, change.before, dict(change.config or {})
    began = live is not None and Journal.of(live) is not None
    kept = wanted if move.created else dict(unmarked(live or {}))
    rests = (change.shown if change.shown in RESTING else "") if live is not None and not began else None
    if live is not None:
        yield Compare(named, owner, live, rests)
    if over.before is not None:
        yield Compare(giver, owner, over.before, None if began or move.giver_then == "RUNNING" else move.giver_then)
    undo = _taken_back(named, kept, over)
    if over.back:
        yield from undo
        return
    carried = replace(over.journal, needs=(), move=replace(move, carried=True)).marked(wanted)
    if not move.carried:
        needs = over.journal.needs or change.needs_offsets
        marked = replace(over.journal, needs=needs).marked(kept)
        if live is None:
            yield Create(named, marked, "STOPPED")
        elif not began:
            yield WriteConfig(named, marked, "the journal")
        yield from (Undo(undo), Stop(named))
        if over.dedicated:
            yield ReadDedicated(giver, over.dedicated, over.picks)
        else:
            yield from (Stop(giver), ReadOffsets(giver, over.picks))
        yield from (WriteOffsets(named, over.picks), ReadBack(named, over.picks))
        if needs:
            yield Prove(named, needs, over.picks.after)
        yield from (Undo(), WriteConfig(named, carried, "the journal: its offsets are there"))
    elif live != {"name": named[1], **carried}:
        yield WriteConfig(named, carried, "as the tree wants it now")
    if over.before is not None and over.keeps is None:
        yield Delete(giver)
    elif over.before is not None and over.keeps is not None and unmarked(over.before) != dict(over.keeps):
        yield from (Stop(giver), DropOffsets(giver, over.picks.staying(), giver), WriteConfig(giver, over.keeps))
    then: list[tuple[Named, Config, str]] = [(named, carried, over.journal.then)]
    if over.before is not None and over.keeps is not None:
        then.append((giver, over.keeps, move.giver_then))
    yield from (SetState(each, state) for each, _, state in then if state != "STOPPED")
    yield from (Verify(each, config, state) for each, config, state in then)
    for each, config in over.beside:
        yield from (Compare(each, owner, config), Delete(each))
    yield WriteConfig(named, wanted, "without the journal")


def _taken_back(named: Named, config: Config, over: TakeOver) -> tuple[Stage, ...]:
    """Let the giver go on first; then the receiver is as it was."""
    first: list[Stage] = []
    if over.before is not None and over.move.giver_then != "STOPPED":
        first.append(SetState(over.giver, over.move.giver_then))
    stop = Stop(named)
    if over.move.created:
        return *first, stop, DropOffsets(named), Delete(named)
    drop = (DropOffsets(named, over.picks, over.giver),) if over.before is not None else ()
    return *first, stop, *drop, *_finished(named, config, over.journal.then)


def steps_of(change: Change, owner: str) -> tuple[str, ...]:
    """Describe what is done for a change; of a list for two connectors each step names its connector."""
    todo = stages(change, owner)
    several = len({each.named for each in todo if not isinstance(each, Undo)}) > 1
    named = ("" if isinstance(each, Undo) or not several else f"{'/'.join(each.named)}: " for each in todo)
    return tuple(f"{name}{explain(each)}" for name, each in zip(named, todo, strict=True))


def explain(stage: Stage) -> str:  # noqa: PLR0911, PLR0912  one sentence for each kind
    """Describe a stage in words."""
    match stage:
        case Compare():
            return "compare its live config with the plan's; stop here if they differ"
        case Create(state=state):
            return f"create it{f' {state}' if state else ''}"
        case WriteConfig(why=why):
            return f"write its config{f' ({why})' if why else ''}"
        case SetState(state=state):
            return {"RUNNING": "resume it", "PAUSED": "pause it", "STOPPED": "stop it"}[state]
        case Stop():
            return "stop it, and wait until it has no tasks: then its stored offsets are exact"
        case ReadOffsets():
            return "read its stored offsets"
        case ReadDedicated():
            return "read the offsets that the dedicated MirrorMaker stored; stop here unless it was shut down cleanly"
        case WriteOffsets():
            return "store these offsets for it"
        case ReadBack():
            return "read them back"
        case DropOffsets():
            return "remove the stored offsets of what moves"
        case Verify(state=state):
            return f"wait until it is {state} with this config"
        case Prove(topics=topics):
            return f"go on only if offsets of {few(list(topics))} are stored under its name, else delete it"
        case Undo(stages=undo):
            return f"from here on a failure is undone in {len(undo)} steps" if undo else "from here on only forward"
        case Delete():
            return "delete it; its stored offsets stay in Kafka"


async def carry_out(clients: Mapping[str, ConnectClient], todo: Sequence[Stage]) -> Mm2mgrError | None:
    """Carry out stages with the clients of their Connect clusters; return what went wrong. Dying inside leaves what the next plan finishes."""
    run = _Run(clients)
    try:
        for stage in todo:
            await run.carry_out(stage)
    except NotFound as missing:
        if [type(stage) for stage in todo] == [Compare, Delete]:
            return None  # somebody else deleted it
        return await run.undone(missing)
    except AlreadyExists as taken:
        taken.hint = "it appeared since the plan was made; plan again"
        return taken
    except Mm2mgrError as failed:
        return await run.undone(failed)
    except BaseException:  # cancelled
        await run.undone(None)
        raise
    return None


_WAIT_SECONDS = 60.0
_RESTORE_SECONDS = 30.0
_POLL_SECONDS = 0.3


@dataclass
class _Run:
    """One list on its way: the offsets that were read, and what undoes it."""

    clients: Mapping[str, ConnectClient]
    read: dict[str, SourceOffset] = field(default_factory=dict)
    undo: tuple[Stage, ...] = ()

    async def undone(self, error: Mm2mgrError | None) -> Mm2mgrError | None:
        """Undo what was begun, as far as that can be done in a short time; the journal stays when it cannot."""
        undo, self.undo = self.undo, ()
        with suppress(TimeoutError, Mm2mgrError):
            async with asyncio.timeout(_RESTORE_SECONDS):
                for stage in undo:
                    await self.carry_out(stage)
        return error

    async def carry_out(self, stage: Stage) -> None:  # noqa: PLR0912  one case for each kind
        if isinstance(stage, Undo):
            self.undo = stage.stages
            return
        connect, name = stage.named
        if isinstance(stage, ReadDedicated):
            source = stage.picks.before
            found = await asyncio.to_thread(read_dedicated, kafka_access(stage.kafka), source)
            self.read = {each.key: each for each in stage.picks.moved(found)}
            return
        client = self.clients[connect]
        match stage:
            case Compare():
                await _compare(client, stage)
            case Create(config=config, state=state):
                await client.create(name, config, state)
            case WriteConfig(config=config, known=known):
                await client.put_config(name, config)
                if known:
                    await _until(stage.named, "did not apply its config", partial(_has, client, name, config))
            case SetState(state=state):
                await {"RUNNING": client.resume, "PAUSED": client.pause, "STOPPED": client.stop}[state](name)
            case Stop():
                await client.stop(name)
                await _until(stage.named, "did not stop", partial(_is_stopped, client, name))
            case ReadOffsets():
                self.read = {each.key: each for each in stage.picks.moved((await _stored(client, name)).values())}
            case WriteOffsets():
                gone = [one for key, one in (await _covered(client, stage)).items() if key not in self.read]
                await _patch(client, name, [*self.read.values(), *_nulls(gone)])
            case ReadBack():

                async def same() -> bool:
                    return await _covered(client, stage) == self.read

                await _until(stage.named, "did not store the offsets that were written", same)
            case DropOffsets(picks=picks, like=like):
                has = await _stored(client, name)
                if like:
                    given = picks.moved((await _stored(self.clients[like[0]], like[1])).values())
                    has = {each.key: each for each in given if each.key in has}
                await _patch(client, name, _nulls(has.values()))
            case Verify():
                await self.verified(client, stage)
            case Prove():
                await _prove(client, stage)
            case Delete():
                await client.delete(name)

    async def verified(self, client: ConnectClient, stage: Verify) -> None:
        """Wait for what `Verify` says; a failed task ends it at once."""
        name = stage.named[1]
        values = {key: stage.config.get(key) for key in (JOURNAL_KEY, "topics")}
        telling = {
            key: value for key, value in values.items() if "${" not in (value or "")
        }  # workers show another text

        async def there() -> bool:
            try:
                status = await client.status(name)
            except NotFound:
                return False
            if any(task.state == "FAILED" for task in status.tasks):
                hint = "see mm2mgr describe; when its cause is gone, restart the task and apply again: the move goes on from here"
                raise error_at(stage.named, "it has its offsets, but a task of it FAILED", hint)
            if stage.state != "RUNNING":
                return status.state == stage.state
            tasks = await client.tasks(name)
            has = all(task.config.get(key) == value for task in tasks for key, value in telling.items())
            runs = status.state == "RUNNING" and all(task.state == "RUNNING" for task in status.tasks)
            # Tasks come with the first topic: without offsets there may be none yet.
            return runs and has and (len(status.tasks) == len(tasks) > 0 or not self.read)

        await _until(stage.named, f"was not {stage.state} with its new config", there)


async def _covered(client: ConnectClient, stage: WriteOffsets | ReadBack) -> dict[str, SourceOffset]:
    """Return what a receiver has stored of what moves."""
    stored = (await _stored(client, stage.named[1])).items()
    return {key: each for key, each in stored if stage.picks.covers(each, stage.picks.after)}


def _nulls(entries: Iterable[SourceOffset]) -> list[SourceOffset]:
    return [SourceOffset(each.partition, None) for each in entries]


async def _patch(client: ConnectClient, name: str, entries: Sequence[SourceOffset]) -> None:
    if entries:  # an empty list is refused
        await client.patch_offsets(name, entries)


async def _compare(client: ConnectClient, stage: Compare) -> None:
    live = await client.config(stage.named[1])
    holder = live.get(OWNER_KEY)
    if holder != (stage.owner if stage.before is None else stage.before.get(OWNER_KEY)):
        raise error_at(
            stage.named,
            f"its owner mark is now {holder!r}",
            "its owner changed after the plan was made; plan again",
        )
    if stage.before is not None and (changed := differing(stage.before, live)):
        raise error_at(
            stage.named, f"its config changed since the plan was made (keys: {changed})", other_writer(stage.owner)
        )
    if stage.rests is not None and (shown := await _resting(client, stage.named[1])) != stage.rests:
        now = f"it is {shown} now" if shown else f"it is no longer {stage.rests}"
        raise error_at(stage.named, now, "somebody changed its state after the plan was made; plan again")


async def _resting(client: ConnectClient, name: str) -> str:
    """Return the state that people chose for it: PAUSED, STOPPED, or none."""
    try:
        state = (await client.status(name)).state
    except NotFound:  # it has not reported yet
        return ""
    return state if state in RESTING else ""


async def _prove(client: ConnectClient, stage: Prove) -> None:
    name = stage.named[1]
    await _until(stage.named, "did not stop", partial(_is_stopped, client, name))
    stored = {one.topic for one in parse_stored(await client.offsets(name), stage.alias)}
    if missing := [topic for topic in stage.topics if topic not in stored]:
        await client.delete(name)
        raise error_at(
            stage.named,
            f"the target has records of {few(missing)} already, and no offsets are stored under this name: "
            "every record would be mirrored again, so the connector was deleted before it ran",
            "give the flow the name, the alias and the Connect cluster that it had; or add --allow mirror-again",
        )


async def _is_stopped(client: ConnectClient, name: str) -> bool:
    """Tell whether it and all its tasks have stopped: the tasks store their last offsets on the way out."""
    try:
        status = await client.status(name)
    except NotFound:
        return False
    return status.state == "STOPPED" and not status.tasks


async def _has(client: ConnectClient, name: str, config: Config) -> bool:
    return await client.config(name) == {"name": name, **config}


async def _stored(client: ConnectClient, name: str) -> dict[str, SourceOffset]:
    return {entry.key: entry for entry in await client.offsets(name) if entry.offset is not None}


async def _until(named: Named, otherwise: str, holds: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while not await holds():
        if time.monotonic() > end:
            raise error_at(
                named,
                f"it {otherwise} within {_WAIT_SECONDS:.0f} s",
                "check it with mm2mgr describe, then apply again: it continues where this apply stopped",
            )
        await asyncio.sleep(_POLL_SECONDS)


def other_writer(owner: str) -> str:
    """Return the hint where somebody else wrote meanwhile."""
    return f"another apply of owner '{owner}' changed it, or somebody changed it by hand; plan again"


def differing(before: Config, after: Config) -> str:
    """Name the keys that differ, never their values."""
    return few([change.key for change in diff(before, after)], 5)


def error_at(named: Named, what: str, hint: str) -> ConnectError:
    """Return an error about one connector."""
    connect, connector = named
    message = f"Connect cluster '{connect}', connector '{connector}': {what}"
    return ConnectError(message, hint=hint, cluster=connect, connector=connector)
