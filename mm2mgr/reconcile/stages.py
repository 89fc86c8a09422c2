"""What `apply` does to a connector: an ordered list of small values that is decided when the plan is made.

`stages` makes the list, `carry_out` executes it and `explain` describes it, so that the description cannot differ from what happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import AlreadyExists, ConnectError, NotFound
from mm2mgr.errors import Mm2mgrError
from mm2mgr.reconcile.offsets import create_with_offsets, is_moved, move_text, put_with_offsets
from mm2mgr.reconcile.plan import Change, Named, diff
from mm2mgr.render import OWNER_KEY
from mm2mgr.text import few

Config = Mapping[str, str]
State = Literal["RUNNING", "PAUSED", "STOPPED"]


@dataclass(frozen=True)
class Compare:
    """Read the connector again: with another owner's mark, or a config that differs from the plan's, nothing is written."""

    named: Named
    owner: str
    before: Config | None = field(repr=False)


@dataclass(frozen=True)
class Create:
    """Create it by POST, which cannot overwrite; `state` is the one that it begins in (None: RUNNING, on any version)."""

    named: Named
    config: Config = field(repr=False)
    state: str | None = None


@dataclass(frozen=True)
class CreateWithOffsets:
    """Create it STOPPED, and let it come to `state` only if offsets of these topics are stored under its name; else delete it."""

    named: Named
    config: Config = field(repr=False)
    state: str
    topics: tuple[str, ...]


@dataclass(frozen=True)
class WriteConfig:
    """Replace its config; a changed key restarts its tasks, unless it rests."""

    named: Named
    config: Config = field(repr=False)


@dataclass(frozen=True)
class SwitchOffsets:
    """Replace a config that stores offsets elsewhere, and copy the offsets there; `state` None: the one that it has."""

    named: Named
    live: Config = field(repr=False)
    config: Config = field(repr=False)
    state: str | None = None


@dataclass(frozen=True)
class SetState:
    """Pause, stop or resume it."""

    named: Named
    state: str


@dataclass(frozen=True)
class Delete:
    """Delete it; the offsets that it stored stay in Kafka under its name."""

    named: Named


Stage = Compare | Create | CreateWithOffsets | WriteConfig | SwitchOffsets | SetState | Delete


def stages(change: Change, owner: str) -> tuple[Stage, ...]:  # noqa: PLR0911  one list for each kind of change
    """Return what is done for a change, in order; nothing for one that is not written."""
    named, config = (change.connect, change.connector), dict(change.config or {})
    before, wished = dict(change.before or {}), change.state[1] if change.state else None
    same = Compare(named, owner, change.before)
    if change.action == "create" and change.needs_offsets:
        return (CreateWithOffsets(named, config, wished or "RUNNING", change.needs_offsets),)
    if change.action == "create":
        return (Create(named, config, wished),)
    if change.action == "delete":
        return same, Delete(named)
    if change.action != "update":
        return ()
    if change.type == "source" and is_moved(before, config):
        return same, SwitchOffsets(named, before, config, wished)
    write = (WriteConfig(named, config),) if change.keys else ()
    if wished is None:
        return same, *write
    # A connector that will be paused or stopped is so before it can run a new config.
    turn = SetState(named, wished)
    return (same, *write, turn) if wished == "RUNNING" else (same, turn, *write)


def explain(stage: Stage) -> str:  # noqa: PLR0911  one sentence for each kind
    """Describe a stage in words."""
    match stage:
        case Compare():
            return "compare its live config with the plan's; stop here if they differ"
        case Create(state=state):
            return f"create it{f' {state}' if state else ''}"
        case CreateWithOffsets(state=state, topics=topics):
            return f"create it STOPPED; {state} only if offsets of {few(list(topics))} are stored under its name, else delete it"
        case WriteConfig():
            return "write its config"
        case SwitchOffsets(live=live, config=config):
            return move_text(live, config)
        case SetState(state=state):
            return {"RUNNING": "resume it", "PAUSED": "pause it", "STOPPED": "stop it"}[state]
        case Delete():
            return "delete it; its stored offsets stay in Kafka"


async def carry_out(clients: Mapping[str, ConnectClient], todo: Sequence[Stage]) -> Mm2mgrError | None:
    """Carry out stages with the clients of their Connect clusters; return what went wrong. Dying inside leaves what the next plan finishes."""
    for stage in todo:
        try:
            await _carry_out(clients[stage.named[0]], stage)
        except NotFound as missing:
            if not any(isinstance(each, Delete) for each in todo):
                return missing
            return None  # somebody else deleted it
        except AlreadyExists as taken:
            taken.hint = "it appeared since the plan was made; plan again"
            return taken
        except Mm2mgrError as failed:
            return failed
    return None


async def _carry_out(client: ConnectClient, stage: Stage) -> None:
    _, name = stage.named
    match stage:
        case Compare():
            _compare(stage, await client.config(name))
        case Create(config=config, state=state):
            await client.create(name, config, state)
        case CreateWithOffsets(config=config, state=state, topics=topics):
            await create_with_offsets(client, name, config, state, topics)
        case WriteConfig(config=config):
            await client.put_config(name, config)
        case SwitchOffsets():
            # What is there now is what the plan saw: Compare came before.
            await put_with_offsets(client, name, stage.live, stage.config, stage.state)
        case SetState(state=state):
            await {"RUNNING": client.resume, "PAUSED": client.pause, "STOPPED": client.stop}[state](name)
        case Delete():
            await client.delete(name)


def _compare(stage: Compare, live: Config) -> None:
    holder = live.get(OWNER_KEY)
    if holder != stage.owner:
        raise error_at(
            stage.named,
            f"its owner mark is now {holder!r}",
            "its owner changed after the plan was made; plan again",
        )
    if stage.before is not None and (changed := differing(stage.before, live)):
        raise error_at(
            stage.named, f"its config changed since the plan was made (keys: {changed})", other_writer(stage.owner)
        )


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
