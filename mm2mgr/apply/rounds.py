"""The loop of `reconcile`, `watch` and the watchdog of `serve`: round, lease, rest, record.

What goes wrong ends a round, and not the loop.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from mm2mgr import timing
from mm2mgr.apply.events import EventLog
from mm2mgr.apply.leases import Leases
from mm2mgr.garbage import collect_garbage
from mm2mgr.plan.schedule import RoundSchedule
from mm2mgr.topology import Topology

Answer = TypeVar("Answer")
_LISTEN_SECONDS = 0.2
_CLOSE_SECONDS = 1.0
_CHANCE = random.SystemRandom()


AnyRound = TypeVar("AnyRound")


@dataclass
class Rounds:
    """A loop in which one process at a time writes to a Connect cluster, and one that fails is asked less and less
    often.
    """

    leases: Leases
    schedule: RoundSchedule
    log: EventLog
    number: int = 0

    def run(
        self,
        begin: Callable[[], AnyRound],
        fail: Callable[[Exception], AnyRound],
        rest: Callable[[AnyRound, float], object],
    ) -> Generator[AnyRound]:
        """Yield round after round, each with what is missing in the event log as `unlogged`.

        `fail` makes the round that an error ended; `rest` waits for so many seconds after one, and ends the loop by
        what is true.
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
        self.schedule = self.schedule.after(timing.now(), asked, failed, _CHANCE.random())

    def close(self) -> None:
        """Give up the leases and the event log; a broker that does not answer delays nothing."""
        thread = threading.Thread(target=self.leases.close, name="leaves the lease", daemon=True)
        thread.start()
        thread.join(_CLOSE_SECONDS)
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
