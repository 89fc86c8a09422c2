"""The loop of `reconcile`, `watch`, the watchdog and the rebalances of `serve` (round, lease, rest, record), and the
event log, also of `apply`: what happens, as JSON lines that are appended to a file while it happens.

What goes wrong ends a round, and not the loop. Every line of the log has `time`, `run` (the same for all lines of one
command, or of one round) and `event`; EVENTS has the rest.
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from mm2mgr import timing
from mm2mgr.apply.leases import Leases
from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import PIPE_SECONDS, open_to_write, write_all
from mm2mgr.garbage import collect_garbage
from mm2mgr.json_values import to_json
from mm2mgr.plan.schedule import RoundSchedule
from mm2mgr.secrets import mask_text
from mm2mgr.text import number_of
from mm2mgr.topology import Topology

_FIRST_LINE = re.compile(rb'\{"time": "[^"]*", "run": "[0-9a-f]+", "event": "')
_HEAD_BYTES = 256

EVENTS: Mapping[str, tuple[str, Mapping[str, str]]] = MappingProxyType(
    {
        "standby": (
            "Another process holds the lease of some Connect clusters, which are left to it (`reconcile`).",
            {"connects": "their names"},
        ),
        "resting": (
            "Connect clusters that failed before are left alone for a while (`reconcile`).",
            {"connects": "seconds until each is asked again"},
        ),
        "deletes_held": (
            "Nothing is deleted in this round although `--prune` asks for it (`reconcile`).",
            {"count": "number of connectors that are no longer declared", "why": "what is missing for their deletion"},
        ),
        "failed": (
            "A round of `reconcile` or `watch`, or a look for rebalances, could not be done; nothing was written.",
            {"error": "why not"},
        ),
        "unread": ("Connect clusters could not be read (`watch`).", {"connects": "their names, each with the reason"}),
        "watch_action": (
            "What `watch` did, or is going to do, about one failure; written once, when it becomes so.",
            {
                "action": "restart, stock-class (the connector got MirrorMaker's own class, since a worker lacks the"
                " Connect plugin), wait (for the next of either), tell (a person has to look), or recovered",
                "problem": "the failure, of one task or of the connector itself, as in the [problems](problems.md)",
                "reason": "of tell: not-retryable, breaker (restarts did not help) or frozen; else empty",
                "number": "restarts within the window, this one included; the stock class counts as one",
                "after_seconds": "of wait: the time until then; else null",
                "dry_run": "whether nothing is changed in truth",
                "error": "why it was not carried out, or null",
            },
        ),
        "plan_made": (
            "The plan is made; nothing is written yet.",
            {
                "owner": "the tree's owner",
                "commit": "commit of the tree, with +dirty where files differ from it; empty outside git",
                "counts": "number of connectors per action",
                "unread": "Connect clusters that could not be read, each with its error",
            },
        ),
        "change_begun": (
            "The first write of a connector begins.",
            {
                "connect": "Connect cluster",
                "connector": "name",
                "action": "create, update or delete",
                "flows": "ids of its flows",
                "keys": "keys that change: key, kind, before and after; secrets masked",
                "state": "states before and after, or null",
            },
        ),
        "change_done": (
            "A change ended, or what is known of it changed: the last line of a connector counts.",
            {
                "connect": "Connect cluster",
                "connector": "name",
                "action": "create, update or delete",
                "ok": "whether it was written",
                "error": "why not, or null",
                "hint": "what to do about it, or null",
                "doubt": "why what was written needs a look: not read back, or a stop that was not clean; mostly empty",
                "rolled_back": "whether it was written and taken back",
            },
        ),
        "quota_result": (
            "A client quota was written, or not: new and changed ones before the connectors, deletions after them.",
            {
                "kafka": "Kafka cluster that it is on",
                "client_id": "client id that it is for",
                "user": "user that it is for as well, or null",
                "action": "create, update or delete",
                "before": "bytes per second and broker, or null",
                "after": "bytes per second and broker, or null",
                "flows": "ids of the flows that share it",
                "ok": "whether it was written",
                "error": "why not, or null",
                "hint": "what to do about it, or null",
            },
        ),
        "wave_begun": (
            "The changes of one wave of a Connect cluster are written now.",
            {"connect": "Connect cluster", "number": "of the wave", "of": "so many waves", "connectors": "their names"},
        ),
        "waiting": (
            "A wave is written; some of its connectors do not show a state of their new config yet.",
            {"connect": "Connect cluster", "connectors": "their names", "seconds": "how long they get"},
        ),
        "wave_verified": (
            "What the connectors of a wave, and of those before it, show.",
            {
                "connect": "Connect cluster",
                "number": "of the wave",
                "of": "so many waves",
                "connectors": "their names",
                "verdict": "ok, failed or inconclusive",
                "unwritten": "those whose write failed",
            },
        ),
        "rolled_back": (
            "What was written on a Connect cluster was taken back.",
            {"connect": "Connect cluster", "results": "as in change_done; an error says why it was not taken back"},
        ),
        "halted": (
            "No further change of a Connect cluster is begun.",
            {
                "connect": "Connect cluster",
                "verdict": "failed: a connector is broken; inconclusive: a person has to look",
                "why": "which connector, and what it shows",
                "left": "connectors whose change was not begun",
            },
        ),
        "finished": (
            "The end of the apply, or of one round.",
            {
                "outcome": "done, failed or inconclusive",
                "interrupted": "whether a signal ended it",
                "results": (
                    "one object per connector: connect, connector, action, ok, error, hint, doubt, rolled_back, state,"
                    " verdict"
                ),
                "quotas": "one object per client quota, as in quota_result",
                "halted": "as in the event of this name",
                "rolled_back": "connectors whose change was taken back",
                "left": "connectors whose change was not begun",
                "unfinished": "connectors whose change was begun and has no result",
                "unrecorded": "Connect clusters whose history was not written, each with the reason",
                "lost_leases": (
                    "Kafka clusters whose lease was lost: another process may write now, so no more was written"
                ),
            },
        ),
    }
)
"""Each kind of event: what it means, and its fields."""


class EventLog:
    """Appends events to a file, each line written at once; without a file it does nothing.

    What cannot be written stops no work: `trouble` says so of the lines of this run.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._file = path, None if path is None else _open_log(path)
        self._begins = b"" if path is None else _end_of_line(path)
        self._pipe_seconds = PIPE_SECONDS
        self.begin_run()

    @property
    def is_open(self) -> bool:
        """Tell whether anybody wants the events."""
        return self._file is not None

    @property
    def trouble(self) -> str:
        """What is missing of this run, and why; empty where nothing is."""
        if not self._lost:
            return ""
        return (
            f"the event log {self._path} is incomplete: {number_of(self._lost, 'event')} could not be written:"
            f" {self._reason}"
        )

    def begin_run(self) -> None:
        """Let the lines from here on have a `run` of their own."""
        self.run, self._lost, self._reason = uuid.uuid4().hex[:12], 0, ""

    def write(self, event: str, fields: Mapping[str, object]) -> None:
        """Append one line; a disk that is full, or a reader that is gone, stops no work."""
        if self._file is None:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "run": self.run, "event": event, **fields}, default=str)
        try:
            write_all(self._file.fileno(), self._begins + mask_text(line).encode() + b"\n", self._pipe_seconds)
            self._begins, self._pipe_seconds = b"", PIPE_SECONDS
        except OSError as error:
            self._lost, self._reason = self._lost + 1, error.strerror or str(error)
            self._pipe_seconds = 0.0  # a reader that hangs is waited for once, not for every line

    def take(self, event: object) -> None:
        """Append an event of `apply` under the name of its class."""
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
        self.write("change_done" if name == "result" else name, to_json(event))

    def close(self) -> None:
        """Let go of the file; a second time does nothing."""
        file, self._file = self._file, None
        if file is not None:
            file.close()  # nothing is buffered, so it does not fail


def _open_log(path: Path) -> FileIO:
    """Open a file to append to; Mm2mgrError where it cannot be written, or holds something else than events."""
    try:
        is_other = _holds_other_lines(path)
        file = None if is_other else FileIO(open_to_write(path, os.O_APPEND | os.O_CREAT), "wb")
    except OSError as error:
        message = f"--events {path}: cannot be written: {error.strerror}"
        raise Mm2mgrError(message, hint="name another file") from error
    if file is None:
        message = f"--events {path}: it exists and is not an event log of mm2mgr; it was left as it is"
        raise Mm2mgrError(message, hint="name another file, or remove this one")
    return file


def _holds_other_lines(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return bool(head) and not _FIRST_LINE.match(head)


def _end_of_line(path: Path) -> bytes:
    """Return what ends the last line of a file where a process that was killed left half of one."""
    if not path.is_file() or not path.stat().st_size:
        return b""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return b"" if file.read(1) == b"\n" else b"\n"


Answer = TypeVar("Answer")
_LISTEN_SECONDS = 0.2
_CHANCE = random.SystemRandom()


AnyRound = TypeVar("AnyRound")


@dataclass
class Rounds:
    """A loop in which one process at a time writes to a Connect cluster, and a failing one is asked ever less often."""

    leases: Leases
    schedule: RoundSchedule
    log: EventLog
    close_seconds: float = 1.0
    """How long giving up a lease may take at the end: a process that ends before keeps it for another 12 s."""
    number: int = 0

    def run(
        self,
        begin: Callable[[], AnyRound],
        fail: Callable[[Exception], AnyRound],
        rest: Callable[[AnyRound, float], object],
    ) -> Generator[AnyRound]:
        """Yield round after round, each with what is missing in the event log as `unlogged`.

        `fail` makes the round that an error ended; `rest` waits some seconds after one, and ends the loop if true.
        """
        try:
            while True:
                self.number += 1
                self.log.begin_run()
                try:
                    ended = begin()
                except Exception as error:  # whatever it is, it ends this round and not the loop
                    ended = fail(error)
                ended = replace(ended, unlogged=self.log.trouble)  # type: ignore[type-var]
                yield ended
                collect_garbage()
                if rest(ended, self.schedule.pause(_CHANCE.random())):
                    return
        finally:
            self.close()

    def find_writable(self, topology: Topology, note: str = "") -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the Connect clusters that another process writes, and those for which the lease could not be had."""
        return run_in_thread(lambda: self.leases.missing(topology, note))

    def resting(self) -> dict[str, float]:
        """Return the Connect clusters that failed before, with the seconds until they are asked again."""
        return self.schedule.resting(timing.now())

    def record_failures(self, asked: Iterable[str], failed: Iterable[str]) -> None:
        """Let Connect clusters that failed rest, and the others be asked as ever."""
        self.schedule = self.schedule.after_round(timing.now(), asked, failed, _CHANCE.random())

    def close(self) -> None:
        """Give up the leases and the event log."""
        self.leases.close_within(self.close_seconds)
        self.log.close()


def run_in_thread(work: Callable[[], Answer]) -> Answer:
    """Do what blocks outside Python in a thread, so that a signal ends the wait for it."""
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LISTEN_SECONDS)
    if errors:
        raise errors[0]
    return answers[0]


# --- whether git is changing the tree ---------------------------------------------------------------------------------

# What git has in its folder while it changes files, or waits for a person in the middle of that.
_GIT_WORKS = (
    *("index.lock", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"),
    *("rebase-merge", "rebase-apply", "sequencer", "BISECT_START"),
)


def git_at_work(files: Iterable[Path]) -> Path | None:
    """Return what shows that git is changing these files right now, or is in the middle of a merge, rebase or the like;
    None if nothing does.
    """
    folders = {file.resolve() if file.is_dir() else file.resolve().parent for file in files}
    for folder in sorted(folders):
        for parent in (folder, *folder.parents):
            if (own := _git_folder(parent / ".git")) is not None:
                if sign := next((own / name for name in _GIT_WORKS if (own / name).exists()), None):
                    return sign
                break
    return None


def _git_folder(path: Path) -> Path | None:
    """Return the folder that git keeps for a working tree; a linked one has a file that names it."""
    try:
        if path.is_file():
            named = path.read_text(errors="replace").partition("gitdir:")[2].strip()
            return path.parent / named if named else None
        return path if path.is_dir() else None
    except OSError:
        return None
