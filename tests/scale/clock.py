"""An event loop whose clock jumps to the next timer instead of waiting for it: hours of deadlines pass in the CPU time of the work.

Only for code whose network is faked inside the process. What goes to a thread is run in its place, so that nothing is outstanding
when the clock jumps.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Clock:
    """Seconds since its start; it goes on from one event loop to the next."""

    def __init__(self) -> None:
        self.now = 1000.0

    def run(self, coroutine: Coroutine[Any, Any, Any], **_: object) -> Any:
        """Run a coroutine to its end, as asyncio.run does."""
        with asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
            return runner.run(coroutine)


class _Selector(selectors.DefaultSelector):
    """Waits for nothing but what will not come by time."""

    clock: Clock

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(None if timeout is None else 0)
        if not found and timeout:
            self.clock.now += timeout
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        selector = _Selector()
        selector.clock = clock
        super().__init__(selector)

    def time(self) -> float:
        return self._clock.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


@contextmanager
def jumping() -> Iterator[Clock]:
    """Let asyncio.run and time.monotonic follow a clock that jumps."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "run", clock.run)
        patch.setattr(time, "monotonic", lambda: clock.now)
        yield clock
