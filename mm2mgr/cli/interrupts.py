"""Ctrl-C, SIGTERM and SIGHUP: during writes the first one ends the work in order, the second one ends the process.

A signal that was ignored when mm2mgr started, such as SIGHUP under nohup, stays ignored.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

from mm2mgr.errors import ExitCode

if TYPE_CHECKING:
    import asyncio

_ENDING = (signal.SIGTERM, signal.SIGHUP)


def ending_signals() -> list[signal.Signals]:
    """Return the signals besides SIGINT that end a command; none outside the main thread, where no handler can be
    set."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def handle_signals(by: Callable[[], object]) -> Iterator[None]:
    """Call `by` on each of these signals."""
    before = {number: signal.signal(number, lambda *_: by()) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def signals_interrupt() -> AbstractContextManager[None]:
    """Let these signals do what Ctrl-C does."""
    return handle_signals(_interrupt)


def _interrupt() -> None:
    """Call what handles Ctrl-C now: while an event loop runs it cancels the work instead of raising in the middle of a
    callback."""
    now = signal.getsignal(signal.SIGINT)
    (now if callable(now) else signal.default_int_handler)(signal.SIGINT, None)


@contextmanager
def halting(first: Callable[[], None], second: Callable[[], None]) -> Iterator[asyncio.Event]:
    """Yield an event that the first signal sets. It calls `first`, every later one `second`. Needs a running event
    loop."""
    import asyncio  # a third of the time of --help, where nothing needs it

    loop, halt = asyncio.get_running_loop(), asyncio.Event()

    def on_signal() -> None:
        if halt.is_set():
            second()
        else:
            halt.set()
            first()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ending_signals())}
    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
        for number in before:
            loop.add_signal_handler(number, on_signal)
    try:
        yield halt
    finally:
        with suppress(NotImplementedError):
            for number, handler in before.items():
                if loop.remove_signal_handler(number):
                    signal.signal(number, handler)


@contextmanager
def ending_in_order(sentence: str, style: str, say_unfinished: Callable[[], object]) -> Iterator[asyncio.Event]:
    """Let the first signal end the work in order; the second ends the process, after it printed what is unfinished."""
    from mm2mgr.output.console import flush, talk

    def second() -> NoReturn:
        say_unfinished()
        flush()
        # An orderly end could take half a minute: changes that were begun would be brought back.
        os._exit(ExitCode.INTERRUPTED)

    with halting(lambda: talk(f"{sentence} (interrupt again to stop at once)", style), second) as halt:
        yield halt
