"""A clock that jumps to the next timer instead of waiting for it: hours of deadlines pass in the CPU time of the work.

For code whose network is faked inside the process. What a coroutine gives to a thread is run in its place, so that nothing is
outstanding when the clock jumps. `sleep_for_others` really waits: for what another process or thread does.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from time import sleep as sleep_for_others
from typing import Any

import pytest

from mm2mgr import timing

REALLY_WAIT = {"live", "spark", "long", "matrix", "real_time"}
"""The marks of tests that may wait by the clock of this machine."""
_NO_WAIT_SECONDS = 0.01  # so short a pause is none: what yields to others, and backs off by milliseconds
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


class ShownClock(timing.Clock):
    """Shows what it is given, and waits as this machine does."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def now(self) -> float:
        return self._now()


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


class Waits(AssertionError):
    """A unit test waited by the clock of this machine."""


def no_waiting(patch: pytest.MonkeyPatch) -> None:
    """Fail whatever waits by the clock of this machine in the main thread; other threads are servers, which have to."""
    asleep, wait = asyncio.sleep, threading.Event.wait

    def fail(call: str) -> None:
        if threading.current_thread() is threading.main_thread():
            raise Waits(
                f"{call}: a unit test does not wait; give it `jumping()` of tests/clock.py, or mark it real_time"
            )

    def sleep(seconds: float) -> None:
        if (
            seconds > _NO_WAIT_SECONDS and sys._getframe(1).f_globals["__name__"] != "subprocess"
        ):  # it asks again and again whether a child has ended
            fail(f"time.sleep({seconds:g})")
        sleep_for_others(seconds)

    async def asleep_if_jumping(delay: float, *result: Any) -> Any:
        if delay > _NO_WAIT_SECONDS and not isinstance(asyncio.get_running_loop(), _Loop):
            fail(f"asyncio.sleep({delay:g})")
        return await asleep(delay, *result)

    def waited(event: threading.Event, timeout: float | None = None) -> bool:
        came = wait(event, timeout)
        if not came and timeout and timeout > _NO_WAIT_SECONDS:
            fail(f"Event.wait({timeout:g})")
        return came

    patch.setattr(time, "sleep", sleep)
    patch.setattr(asyncio, "sleep", asleep_if_jumping)
    patch.setattr(threading.Event, "wait", waited)
