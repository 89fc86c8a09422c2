"""A clock that jumps to the next timer instead of waiting for it: hours of deadlines pass in the CPU time of the work.

For code whose network is faked inside the process. What a coroutine gives to a thread is run in its place, so that nothing is
outstanding when the clock jumps.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mm2mgr import timing

_SOCKET_SECONDS = 0.2  # how long what listens on this machine may take to answer before time goes on without it


class Clock(timing.Clock):
    """Seconds since its start; it goes on from one event loop to the next."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def steady(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += max(0.0, seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if not event.is_set():
            self.sleep(seconds)
        return event.is_set()

    def run(self, coroutine: Coroutine[Any, Any, Any], **_: object) -> Any:
        """Run a coroutine to its end, as asyncio.run does."""
        with asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
            return runner.run(coroutine)


class _Selector(selectors.DefaultSelector):
    """Waits for nothing but what will not come by time."""

    clock: Clock

    def select(self, timeout: float | None = None) -> list[Any]:
        has_sockets = len(self.get_map()) > 1  # beside the loop's own, which other threads wake it by
        found = super().select(timeout and (min(timeout, _SOCKET_SECONDS) if has_sockets else 0))
        if not found and timeout:
            self.clock.seconds += timeout
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        selector = _Selector()
        selector.clock = clock
        super().__init__(selector)

    def time(self) -> float:
        return self._clock.seconds

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def go_by(clock: timing.Clock, patch: pytest.MonkeyPatch) -> None:
    """Let mm2mgr go by a clock until the end of the test."""
    patch.setattr(timing, "_clocks", [clock])


@contextmanager
def jumping() -> Iterator[Clock]:
    """Let mm2mgr, asyncio.run and time.monotonic follow a clock that jumps."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch, timing.use(clock):
        patch.setattr(asyncio, "run", clock.run)
        patch.setattr(time, "monotonic", lambda: clock.seconds)
        yield clock
