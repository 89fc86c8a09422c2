"""Carries out a plan: independent Connect clusters at once, inside one cluster by waves of connector types.

In: a Plan that was just made. Out: one Result per written connector, as they come. Creating uses POST, which cannot overwrite.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mm2mgr.connect.client import Connect
from mm2mgr.connect.errors import AlreadyExists, ConnectError, ConnectUnreachable, NotFound
from mm2mgr.connect.types import ConnectorStatus
from mm2mgr.errors import Mm2mgrError
from mm2mgr.reconcile.live import target_of
from mm2mgr.reconcile.offset_move import is_moved
from mm2mgr.reconcile.offsets import put_with_offsets
from mm2mgr.reconcile.plan import Change, ClusterPlan, Plan
from mm2mgr.render import OWNER_KEY
from mm2mgr.topology import Topology

# Heartbeats first (their topic must be there when the source connector looks), checkpoints after what they translate.
_WAVES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("heartbeat", ("create", "update")),
    ("source", ("create", "update")),
    ("checkpoint", ("create", "update")),
    ("", ("delete",)),
)
_AT_ONCE = (
    8  # concurrent writes share one rebalance; one after the other each waits for the last (seen: 25 s against 3 s)
)


@dataclass(frozen=True)
class Result:
    """What became of one change. `error` is None when it was done."""

    connect: str
    connector: str
    action: str
    type: str = ""
    error: str | None = None
    hint: str | None = None
    state: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "connect": self.connect,
            "connector": self.connector,
            "action": self.action,
            "ok": self.error is None,
            "error": self.error,
            "hint": self.hint,
            "state": self.state,
        }


async def apply_plan(
    topology: Topology,
    plan: Plan,
    *,
    report: Callable[[Result], None] = lambda result: None,
    deadline_seconds: float = 120.0,
) -> list[Result]:
    """Write every change of the plan; one that fails does not stop the others.

    `deadline_seconds` bounds each write, retries included. Results are reported as they come and returned in all. When
    no worker of a Connect cluster answers until a deadline, the rest of its changes are not tried and say so.
    """
    parts = await asyncio.gather(*(_cluster(topology, part, report, deadline_seconds) for part in plan.clusters))
    return [result for part in parts for result in part]


async def _cluster(
    topology: Topology, part: ClusterPlan, report: Callable[[Result], None], deadline_seconds: float
) -> list[Result]:
    writes = [change for change in part.changes if change.action in {"create", "update", "delete"}]
    if not writes:
        return []
    results: list[Result] = []
    async with Connect(target_of(topology.connects[part.connect]), deadline_seconds=deadline_seconds) as client:
        gate = asyncio.Semaphore(_AT_ONCE)
        gone = False

        async def write(change: Change) -> None:
            nonlocal gone
            async with gate:
                begun = time.monotonic()
                # Each write to dead workers would wait out a deadline of its own: 120 s for every eight connectors.
                error = _untried(change) if gone else await carry_out(client, change, topology.owner)
            gone = gone or _no_worker_answers(error)
            result = _result(change, error, time.monotonic() - begun)
            results.append(result)
            report(result)

        for type_, actions in _WAVES:
            wave = [c for c in writes if c.action in actions and type_ in {"", c.type}]
            await asyncio.gather(*map(write, wave))
    return results


async def carry_out(client: Connect, change: Change, owner: str) -> Mm2mgrError | None:
    """Carry out one change; return what went wrong. Dying inside leaves what the next plan and change finish."""
    try:
        if change.action == "create":
            await client.create(change.connector, dict(change.config or {}))
        elif change.action == "update":
            live, wanted = await _still_ours(client, change, owner), dict(change.config or {})
            if change.type == "source" and is_moved(live, wanted):
                await put_with_offsets(client, change.connector, live, wanted)
            else:
                await client.put_config(change.connector, wanted)
        else:
            await _still_ours(client, change, owner)
            await client.delete(change.connector)
    except NotFound as missing:
        return None if change.action == "delete" else missing
    except AlreadyExists as taken:
        taken.hint = "it appeared since the plan was made; plan again"
        return taken
    except Mm2mgrError as failed:
        return failed
    return None


def _no_worker_answers(error: Mm2mgrError | None) -> bool:
    """Tell whether every URL was dead until the deadline, for the write or for reading back what became of it."""
    return isinstance(error, ConnectUnreachable) or (
        error is not None and isinstance(error.__cause__, ConnectUnreachable)
    )


def _untried(change: Change) -> ConnectError:
    return ConnectError(
        f"Connect cluster '{change.connect}', connector '{change.connector}': not tried, since no URL answered the write before",
        hint="bring the workers back, then apply again",
        cluster=change.connect,
        connector=change.connector,
    )


def _result(change: Change, error: Mm2mgrError | None, seconds: float) -> Result:
    return Result(
        change.connect,
        change.connector,
        change.action,
        change.type,
        error.message if error else None,
        error.hint if error else None,
        seconds=seconds,
    )


async def _still_ours(client: Connect, change: Change, owner: str) -> dict[str, str]:
    """Look once more right before a write: an owner mark that is gone or another one means hands off."""
    config = await client.config(change.connector)
    holder = config.get(OWNER_KEY)
    if holder != owner:
        raise ConnectError(
            f"Connect cluster '{change.connect}', connector '{change.connector}': its owner mark is now {holder!r}",
            hint="somebody took it over since the plan was made; plan again",
            cluster=change.connect,
            connector=change.connector,
        )
    return config


async def settle(
    topology: Topology, results: Iterable[Result], *, timeout_seconds: float, now: Callable[[], float] = time.monotonic
) -> dict[tuple[str, str], str]:
    """Wait until the written connectors report a state; return (connect, connector) → state as people read it.

    A connector without any status is 'no status yet': with an unreachable source Connect stays silent for two minutes.
    """
    done = [r for r in results if r.error is None and r.action != "delete"]
    states: dict[tuple[str, str], str] = {}

    async def watch(name: str, wanted: dict[str, str]) -> None:
        end = now() + timeout_seconds
        async with Connect(target_of(topology.connects[name]), deadline_seconds=10) as client:
            while True:
                try:
                    statuses = await client.statuses()
                except Mm2mgrError as error:
                    states.update({(name, each): f"unknown: {error.message}" for each in wanted})
                else:
                    seen = {each: _settled(type_, statuses.get(each)) for each, type_ in wanted.items()}
                    states.update({(name, each): state for each, (state, _) in seen.items()})
                    wanted = {each: type_ for each, type_ in wanted.items() if not seen[each][1]}
                if not wanted or now() >= end:
                    return
                await asyncio.sleep(0.5)

    by_cluster: dict[str, dict[str, str]] = {}
    for result in done:
        by_cluster.setdefault(result.connect, {})[result.connector] = result.type
    await asyncio.gather(*(watch(name, names) for name, names in by_cluster.items()))
    return states


def _settled(type_: str, status: ConnectorStatus | None) -> tuple[str, bool]:
    """Return the state as people read it, and whether waiting longer is pointless.

    A checkpoint connector without consumer groups to serve is RUNNING without tasks for good; a source is not.
    """
    if status is None:
        return "no status yet", False
    failed = sum(1 for task in status.tasks if task.state == "FAILED")
    if failed:
        return f"{status.state}, {failed} of {len(status.tasks)} tasks FAILED", True
    if status.state == "RUNNING" and not status.tasks and type_ == "source":
        return "RUNNING, no tasks yet", False
    return status.state, status.state in {"RUNNING", "FAILED", "PAUSED", "STOPPED"}
