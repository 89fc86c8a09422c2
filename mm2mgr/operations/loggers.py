"""The operation `loggers`: read the levels of loggers of each worker of a Connect cluster, or set them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mm2mgr.apply.history import Recorder, author
from mm2mgr.apply.loggers import LEVELS, ROOT, WorkerLoggers, read_loggers, set_levels
from mm2mgr.comparison.differences import KeyChange
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.each_worker import EachWorker, ask_each_worker
from mm2mgr.live.endpoints import connect_target
from mm2mgr.live.reach import Limits
from mm2mgr.operations.workspace import Workspace
from mm2mgr.text import few, nearest, visible
from mm2mgr.timing import wait_for

_NO_NAME = re.compile(r"[\s/\\%;?#\x00-\x1f\x7f]")
"""What no name of a logger has, and no path of a request may have."""
_LIMITS = Limits(connect_seconds=10.0, kafka_seconds=5.0)


@dataclass(frozen=True)
class LoggersReport:
    """The loggers of the workers of a Connect cluster, as they were before `set` was set; `unlisted`: why idle workers
    may be missing."""

    connect: str
    workers: tuple[WorkerLoggers, ...]
    set: Mapping[str, str] = field(default_factory=dict)
    unlisted: str = ""
    only: tuple[str, ...] = ()
    """The workers that were chosen; empty: all."""
    unrecorded: Mapping[str, str] = field(default_factory=dict)
    """The Connect cluster where its history was not written, with the reason."""
    json_keys = "connect workers set unlisted unrecorded"

    @property
    def has_failed(self) -> bool:
        return any(worker.failure for worker in self.workers)

    def levels(self) -> dict[str, dict[str, str]]:
        """Return the level on each worker that answered, of each logger whose level is not that of the one above it."""
        workers = [worker for worker in self.workers if worker.levels]
        names = dict.fromkeys(name for worker in workers for name in worker.own_levels())
        ordered = sorted(names, key=lambda name: (name != ROOT, name))
        return {name: {worker.worker: worker.level_of(name) for worker in workers} for name in ordered}

    def unknown_names(self) -> dict[str, list[str]]:
        """Return the loggers that were set and under which no worker has logged so far, each with the nearest ones."""
        logged = sorted({name for worker in self.workers for name in worker.logged})
        unknown = [
            name
            for name in self.set
            if name != ROOT and logged and not any(f"{logger}.".startswith(f"{name}.") for logger in logged)
        ]
        parents = {".".join(name.split(".")[:depth]) for name in logged for depth in range(2, name.count(".") + 2)}
        return {name: nearest(name, sorted(parents), 0.8, count=3) for name in unknown}

    def commands_back(self) -> list[str]:
        """Return the commands that set the levels from before again."""
        before: dict[str, list[str]] = {}
        for worker in self.workers:
            if worker.written:
                levels = {name: level for key in worker.written for name, level in worker.own_levels(key).items()}
                options = [
                    f"--set {shlex.quote(f'{name}={level}')}" for name, level in sorted(levels.items(), key=_order)
                ]
                before.setdefault(" ".join(options), []).append(worker.worker)
        commands = []
        for settings, workers in before.items():
            only = (
                ""
                if not self.only and len(workers) == len(self.workers)
                else "".join(f" --worker {name}" for name in workers)
            )
            commands.append(f"mm2mgr loggers {shlex.quote(self.connect)}{only} {settings}")
        return commands


def _order(entry: tuple[str, str]) -> tuple[bool, str]:
    return entry[0] != ROOT, entry[0]


def loggers(  # noqa: PLR0913 - a name of the library, its options by keyword
    workspace: Workspace,
    connect: str,
    levels: Mapping[str, str] | None = None,
    *,
    only: tuple[str, ...] = (),
    reason: str = "",
    interrupted: Callable[[LoggersReport], None] = lambda report: None,
) -> LoggersReport:
    """Read the loggers of each worker that is known, and set `levels` (logger: level) where some are given.

    `only`: workers by URL or id (`host:port`); all by default. `reason` is kept in the history. Mm2mgrError where a
    name or a level is unknown, or no status could be read; a worker that does not answer is in the result.
    `interrupted` gets what may have been set when an interrupt cuts that short.
    """
    levels = {name: level.upper() for name, level in (levels or {}).items()}
    for name, level in levels.items():
        if level not in LEVELS or not name.strip():
            raise Mm2mgrError(f"{name}={level}: no level of a logger", hint=f"NAME=LEVEL; levels: {', '.join(LEVELS)}")
        if _NO_NAME.search(name):
            raise Mm2mgrError(
                f"{visible(name)!r}: no name of a logger", hint="such as org.apache.kafka.connect.mirror, or root"
            )
    if levels:
        workspace.refuse_snapshot()
    connects = workspace.topology.connects
    if connect not in connects:
        near = nearest(connect, connects, count=3)
        hint = f"did you mean {few(near)}?" if near else f"declared: {few(sorted(connects), 5) or 'none'}"
        raise Mm2mgrError(f"no Connect cluster is called '{connect}'", hint=hint)
    asked = workspace.ask(ask_each_worker([connects[connect]]), _LIMITS)[connect]
    if isinstance(asked, Mm2mgrError):
        raise asked
    target = connect_target(connects[connect])
    silent = _workers(asked, target.urls)
    if only:
        by_address = {_address(worker): worker for worker in silent}
        chosen = {by_address.get(_address(name), name) for name in only}
        if unknown := sorted(chosen - silent.keys()):
            raise Mm2mgrError(
                f"'{connect}' has no worker {few(unknown)}", hint=f"its workers: {few(sorted(silent), 9)}"
            )
        silent = {worker: failure for worker, failure in silent.items() if worker in chosen}
    answering = [worker for worker, failure in silent.items() if not failure]
    workers = wait_for(read_loggers(target, answering, levels))
    unrecorded: Mapping[str, str] = {}
    if levels and any(not worker.failure for worker in workers):
        recorder = Recorder(workspace.topology, "loggers", author(workspace.files), reason)
        recorder.logger_levels(connect, _changes(workers, levels), "begun")
        try:
            workers = wait_for(set_levels(target, workers, levels))
            failed = [f"{worker.worker}: {worker.failure}" for worker in workers if worker.failure]
            outcome, error = ("failed", few(failed)) if failed else ("done", None)
            recorder.logger_levels(connect, _changes(workers, levels, written_only=True), outcome, error)
        except KeyboardInterrupt:
            begun = (worker if worker.failure else replace(worker, written=tuple(levels)) for worker in workers)
            interrupted(LoggersReport(connect, tuple(begun), levels, only=only))
            raise
        finally:
            unrecorded = recorder.close()
    workers += [WorkerLoggers(worker, failure=failure) for worker, failure in silent.items() if failure]
    return LoggersReport(connect, tuple(workers), levels, asked.no_group, only, unrecorded)


def _changes(
    workers: Sequence[WorkerLoggers], levels: Mapping[str, str], *, written_only: bool = False
) -> list[KeyChange]:
    """Return what the history has of levels, worker by worker: from which one to which one."""
    return [
        KeyChange(f"{name} on {worker.worker}", worker.level_of(name), level)
        for worker in workers
        for name, level in levels.items()
        if (name in worker.written if written_only else not worker.failure)
    ]


def _address(worker: str) -> str:
    """Return `host:port` of a worker that is named by it, or by its URL."""
    return worker.rpartition("://")[2].rstrip("/").lower()


def _workers(asked: EachWorker, urls: tuple[str, ...]) -> dict[str, str]:
    """Return the workers by the names that they are asked by, with why those that are silent are.

    Where no id is the address of a URL, URLs may be gateways, or other addresses of the same workers: then the larger
    group of those that answer is meant, and ids beyond their number are named.
    """
    failures = {answer.worker: answer.failure for answer in asked.answers.workers}
    for member in asked.members or ():
        if member not in asked.answers.asked_as:
            failures[member] = "its address means nothing here"
    by_url = {worker: failure for worker, failure in failures.items() if worker in urls}
    by_id = {worker: failure for worker, failure in failures.items() if worker not in urls}
    if not by_id or any(name in urls for name in asked.answers.asked_as.values()):
        return failures
    answering, answering_ids = (sum(not failure for failure in group.values()) for group in (by_url, by_id))
    if answering_ids > answering:
        return by_id
    return by_url if len(by_id) <= answering else by_url | {name: text for name, text in by_id.items() if text}
