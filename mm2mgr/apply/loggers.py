"""Levels of loggers of a Connect cluster's workers: what they are, read from each worker, and set on each of them.

A level is of one worker and ends with its process. `scope=cluster` (KIP-976) needs Kafka 3.7 and reports nothing back,
so that each worker is asked by itself. Connectors are never touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mm2mgr.connect.client import ConnectClient, open_worker
from mm2mgr.connect.errors import Unsupported
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.errors import Mm2mgrError

LEVELS = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")
ROOT = "root"
_NO_ADMIN = "its REST address does not serve /admin/loggers: admin.listeners of the worker switches it off or moves it"
_SECONDS = 10.0


@dataclass(frozen=True)
class WorkerLoggers:
    """Levels of the loggers of one worker by name, or why they are not known; `written` are those that were set."""

    worker: str
    levels: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    written: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()
    """The loggers that the worker lists: those of classes that were loaded, and what was set before."""
    json_keys = "worker levels failure written"

    def level_of(self, name: str) -> str:
        """Return the level of a logger, of the nearest one above it where it has none of its own."""
        while name not in self.levels and name != ROOT:
            name = name.rpartition(".")[0] or ROOT
        return self.levels.get(name, "OFF")

    def own_levels(self, below: str = ROOT) -> dict[str, str]:
        """Return the loggers at and below a name whose level is not simply that of the one above them."""

        def is_own(name: str) -> bool:
            return name in {ROOT, below} or self.levels[name] != self.level_of(name.rpartition(".")[0] or ROOT)

        # As the worker does it: every name that begins so, with or without a dot behind it.
        names = [name for name in sorted(self.levels) if below == ROOT or name.startswith(below)]
        own = {name: self.levels[name] for name in names if is_own(name)}
        return {below: self.level_of(below), **own}


async def read_loggers(target: ConnectTarget, workers: Collection[str], names: Collection[str]) -> list[WorkerLoggers]:
    """Read the loggers of each worker; of these names also where they are OFF, which the worker's list leaves out."""

    async def read(worker: str) -> WorkerLoggers:
        try:
            async with open_worker(target, worker, _SECONDS) as client:
                levels = await client.loggers()
                logged = tuple(levels)
                for name in names:
                    await _add_level(client, name, levels)
        except Unsupported:
            return WorkerLoggers(worker, failure=_NO_ADMIN)
        except Mm2mgrError as error:
            return WorkerLoggers(worker, failure=error.one_line)
        return WorkerLoggers(worker, levels, logged=logged)

    return list(await asyncio.gather(*map(read, workers)))


async def _add_level(client: ConnectClient, name: str, levels: dict[str, str]) -> None:
    """Ask for a logger that the list does not have, and then for those above it."""
    while name not in levels:
        level = await client.logger(name)
        if level is not None or name == ROOT:
            levels[name] = level or "OFF"
            return
        name = name.rpartition(".")[0] or ROOT


async def set_levels(
    target: ConnectTarget, before: Sequence[WorkerLoggers], levels: Mapping[str, str]
) -> list[WorkerLoggers]:
    """Set levels, in this order, on each worker that answered; return what was before, and what was written or failed.

    A worker that is known by its id alone gets nothing unless it lives on the same Kafka cluster as that of the URLs.
    """
    async with ConnectClient(target, deadline_seconds=_SECONDS) as client:
        kafka = (await client.root()).kafka_cluster_id

    async def write(worker: WorkerLoggers) -> WorkerLoggers:
        written: list[str] = []
        if worker.failure:
            return worker
        try:
            async with open_worker(target, worker.worker, _SECONDS) as client:
                if worker.worker not in target.urls and (await client.root()).kafka_cluster_id != kafka:
                    return replace(worker, failure="it is no worker of this Connect cluster: its Kafka is another one")
                for name, level in levels.items():
                    await client.set_logger(name, level)
                    written.append(name)
        except Mm2mgrError as error:
            return replace(worker, failure=error.one_line, written=tuple(written))
        return replace(worker, written=tuple(written))

    return list(await asyncio.gather(*map(write, before)))
