"""Ctrl-C, SIGTERM and SIGHUP: while something is written the first asks to come to an end, the second ends at once.

A signal that whoever started us ignores, as nohup does with SIGHUP, stays ignored.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import asyncio

INTERRUPTED = 130
_ENDING = (signal.SIGTERM, signal.SIGHUP)


def ending_signals() -> list[signal.Signals]:
    """Return the signals besides Ctrl-C that end a command now; none outside the main thread, which gets them all."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def handled(by: Callable[[], object]) -> Iterator[None]:
    """Call `by` at each of the ending signals."""
    before = {number: signal.signal(number, lambda *_: by()) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def signals_interrupt() -> AbstractContextManager[None]:
    """Let the ending signals do what Ctrl-C does."""
    return handled(_interrupt)


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def halting(first: Callable[[], None], second: Callable[[], None]) -> Iterator[asyncio.Event]:
    """Yield an event that the first signal sets, inside a running loop; each signal calls what it is given for."""
    import asyncio  # a third of the time of --help, where nothing needs it

    loop, halt = asyncio.get_running_loop(), asyncio.Event()

    def come() -> None:
        if halt.is_set():
            second()
        else:
            halt.set()
            first()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ending_signals())}
    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread: as Python has it
        for number in before:
            loop.add_signal_handler(number, come)
    try:
        yield halt
    finally:
        with suppress(NotImplementedError):
            for number, handler in before.items():
                if loop.remove_signal_handler(number):
                    signal.signal(number, handler)
