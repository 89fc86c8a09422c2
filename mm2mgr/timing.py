"""Time as a value: whatever waits asks and waits here, so that a test can give another clock, and no test has to wait.

Coroutines wait through their event loop (`asyncio.sleep`, `asyncio.timeout`), whose time is that of the clock: `run`
begins it. What a JVM, a broker or another process takes is no matter of this clock: librdkafka and sockets wait by
themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TypeVar

Answer = TypeVar("Answer")


class Clock:
    """The time of this machine."""

    def now(self) -> float:
        """Return seconds since some moment, on a clock that nobody can set."""
        return time.monotonic()

    def steady(self) -> float:
        """Return such seconds, those in which the machine was suspended too, where the system counts these."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until something has come, but no longer than so many seconds; tell whether it has."""
        return event.wait(seconds)

    def run(self, coroutine: Coroutine[object, None, Answer]) -> Answer:
        """Run a coroutine to its end in an event loop of its own."""
        import asyncio  # not at the top: --help does without

        return asyncio.run(coroutine)


_clocks = [Clock()]


def now() -> float:
    """Return seconds since some moment, on a clock that nobody can set."""
    return _clocks[-1].now()


def steady() -> float:
    """Return such seconds, those in which the machine was suspended too, where the system counts these."""
    return _clocks[-1].steady()


def sleep(seconds: float) -> None:
    """Wait."""
    _clocks[-1].sleep(seconds)


def wait(event: threading.Event, seconds: float) -> bool:
    """Wait until something has come, but no longer than so many seconds; tell whether it has."""
    return _clocks[-1].wait(event, seconds)


def run(coroutine: Coroutine[object, None, Answer]) -> Answer:
    """Run a coroutine to its end in an event loop of its own."""
    return _clocks[-1].run(coroutine)


def wait_for(coroutine: Coroutine[object, None, Answer]) -> Answer:
    """Run a coroutine to its end; in a thread of its own where an event loop runs already, as in a notebook."""
    import asyncio  # not at the top: --help needs neither
    from concurrent.futures import ThreadPoolExecutor

    answer: list[Answer] = []

    # It returns nothing: asyncio writes the result of its main task as text, which takes 50 ms for a large plan.
    async def keep_answer() -> None:
        answer.append(await coroutine)

    keeping = keep_answer()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        run(keeping)
    else:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(run, keeping).result()
    finally:
        keeping.close()  # where Ctrl-C came before it began
        coroutine.close()
    return answer[0]


@contextmanager
def use(clock: Clock) -> Iterator[None]:
    """Let all threads of this process go by another clock."""
    _clocks.append(clock)
    try:
        yield
    finally:
        _clocks.remove(clock)
