"""Ctrl-C and SIGTERM while something is written: the first asks to come to an end, the second ends at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def halting(first: Callable[[], None], second: Callable[[], None]) -> Iterator[asyncio.Event]:
    """Yield an event that the first signal sets, inside a running loop; each signal calls what it is given for."""
    loop, halt = asyncio.get_running_loop(), asyncio.Event()

    def come() -> None:
        if halt.is_set():
            second()
        else:
            halt.set()
            first()

    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread: as Python has it
        for number in SIGNALS:
            loop.add_signal_handler(number, come)
    try:
        yield halt
    finally:
        with suppress(NotImplementedError):
            for number in SIGNALS:
                loop.remove_signal_handler(number)
