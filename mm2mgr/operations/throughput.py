"""`throughput` in a process that stays: each hour is rolled up soon after its end, in one warm Spark session.

Of several processes on one store each does the work, and none changes anything twice, so they need no lease.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mm2mgr import timing
from mm2mgr.errors import cause
from mm2mgr.files import cache_folder
from mm2mgr.garbage import collect_garbage
from mm2mgr.operations.size import RolledUp, roll_up
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace, pause

if TYPE_CHECKING:
    from mm2mgr.samples.schema import Store

_HOUR_SECONDS = 3_600.0
_AFTER_HOUR_SECONDS = 60.0  # the last samples of an hour are stored by then; later ones count an hour later
_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 60.0, 900.0


@dataclass(frozen=True)
class RollUpOrder:
    """Which store is rolled up, and where, as for `roll_up`."""

    store: Store = DEFAULT_STORE
    spark: bool | None = None


@dataclass(frozen=True)
class RollUpRound:
    """One round of `follow_roll_ups`. `rolled_up`: None before the first sample, and where the round failed, as `error`
    says."""

    number: int
    taken_at: float
    seconds: float = 0.0
    rolled_up: RolledUp | None = None
    error: str | None = None


def seconds_to_roll_up(now: float, failures: int) -> float:
    """Return how long to wait for the next round: until a minute after the hour; after failures less, and twice as
    long for each further one."""
    if failures:
        return min(_RETRY_SECONDS * float(2 ** (failures - 1)), _LONGEST_RETRY_SECONDS)
    return _HOUR_SECONDS - (now - _AFTER_HOUR_SECONDS) % _HOUR_SECONDS


def follow_roll_ups(
    workspace: Workspace,
    order: RollUpOrder | None = None,
    *,
    wait: Callable[[float], object] = pause,
    clock: Callable[[], float] = time.time,
    run: Callable[..., RolledUp] = roll_up,
) -> Generator[RollUpRound]:
    """Yield roll-up after roll-up until the caller stops: at once, then after every full hour. Between two of them it
    calls `wait` with seconds; what is true ends it.

    Whatever goes wrong ends a round and not the loop. A session that failed is replaced in the next round; the last one
    ends with the generator.
    """
    from mm2mgr.samples.schema import log_file_of
    from mm2mgr.samples.store import SampleStore
    from mm2mgr.throughput.warm_session import WarmSpark

    order = order or RollUpOrder()
    warm, number, failures = WarmSpark(log_file_of(order.store, cache_folder)), 0, 0
    try:
        while True:
            number += 1
            began, tick, rolled_up, error = clock(), timing.now(), None, None
            try:
                if SampleStore(order.store).hours():
                    rolled_up = run(replace(workspace), order.store, order.spark, warm=warm)
            except Exception as caught:
                error = cause(caught)
                with suppress(Exception):  # its JVM may live on without the Python workers
                    warm.close()
            failures = failures + 1 if error else 0
            yield RollUpRound(number, began, timing.now() - tick, rolled_up, error)
            collect_garbage()
            if wait(seconds_to_roll_up(clock(), failures)):
                return
    finally:
        warm.close()


@contextmanager
def roll_ups_beside(
    workspace: Workspace, order: RollUpOrder, report: Callable[[RollUpRound], object]
) -> Iterator[None]:
    """Roll up in a thread while the block runs; a round that is under way at its end is finished."""
    ended = threading.Event()

    def repeat() -> None:
        with closing(follow_roll_ups(workspace, order, wait=lambda seconds: timing.wait(ended, seconds))) as rounds:
            for done in rounds:
                report(done)

    thread = threading.Thread(target=repeat, name="mm2mgr-throughput", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
