"""A sampler as a process of its own whose clock runs ten minutes a round, for tests that kill it or run two of them.

Arguments: the store, the time to start at in ms, the rounds (or 0: without end). It prints the time of each round that is done.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from unittest.mock import patch

from mm2mgr import timing
from mm2mgr.samples import schema as clock_module
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.follow import Poll, Schedule, follow
from mm2mgr.samples.store import SampleStore

TEN = 1_763_719_200_000  # 2025-11-21T10:00:00Z
ROUND_MS = 600_000


class Clock(timing.Clock):
    """The loop's clock, which ends it too: time passes only when it waits."""

    def __init__(self, now_ms: int, rounds: int) -> None:
        self.now_ms, self.rounds = now_ms, rounds

    def now(self) -> float:
        return self.now_ms / 1000

    def steady(self) -> float:
        return self.now_ms / 1000

    def time_ns(self) -> int:
        return self.now_ms * 1_000_000

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.now_ms += round(seconds * 1000)
        self.rounds -= 1
        return event.is_set() or self.rounds == -1


class Growing:
    """A cluster whose topics grow by ten records a second, and which gets a new topic every half hour."""

    name = "dc1"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def poll(self) -> Poll:
        seconds = (self.clock.now_ms - TEN) // 1000
        topics = ["logs", "logs", f"new-{seconds // 1800}"]
        return Poll([Batch("dc1", "fake", self.clock.now_ms, topics, [0, 1, 0], end_offset=[10 * seconds] * 3)])

    def close(self) -> None:
        pass


def main(folder: str, start_ms: str, rounds: str) -> None:
    clock = Clock(int(start_ms), int(rounds) or 10**9)
    store = SampleStore(Path(folder))
    schedule = Schedule(ROUND_MS / 1000, None, keep_seconds=30 * 86_400.0)
    with timing.use(clock), patch.object(clock_module, "time", clock):
        follow([Growing(clock)], schedule, store, lambda done: print(clock.now_ms, *done.news, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
