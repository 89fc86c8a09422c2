"""Collects the garbage of a round of a process that runs on and on: the command line has Python do that rarely."""

from __future__ import annotations

import gc
import threading


def collect_garbage() -> None:
    """Collect what a round has left.

    In a thread of its own: signals are handled in the main thread, and an exception that a handler raises in a
    finalizer, such as that of an event loop, is dropped.
    """
    thread = threading.Thread(target=gc.collect, args=(1,), name="collects garbage")
    thread.start()
    thread.join()
