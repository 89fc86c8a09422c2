"""The command `watch`: restart what FAILED where a restart can cure it, until a signal ends it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

from mm2mgr import operations
from mm2mgr.cli.options import Duration, WatchdogOptions, command, option, output_option, watchdog_options
from mm2mgr.operations.workspace import Workspace

_END_SECONDS = 0.5
"""What threads get that wait for a broker, once the leases are given up."""


@command("Every day", 12)
@click.argument("flows", nargs=-1)
@option("--every", type=Duration(1), default="10s", help="Time between two looks, 10 % more or less.")
@option("--once", is_flag=True, help="End after one look; --first-wait 0s then restarts at once.")
@watchdog_options
@output_option
@click.pass_obj
def watch(
    workspace: Workspace,
    flows: tuple[str, ...],
    every: float,
    once: bool,
    dog: WatchdogOptions,
    output: str,
) -> int:
    """Restart FAILED tasks that a restart can cure, one by one.

    A task that FAILED because a cluster did not answer in time, a quota was used up, or a broker or leader moved, is
    restarted: that task alone, after --first-wait, then after twice as long each time, and not more often than
    --restarts within --window; after that it is left alone until it is seen to run. What FAILED for another reason
    (authentication, a missing right, a record that is too large or cannot be read, a bug) is reported once and never
    restarted. Only connectors of this tree are touched.

    Of several processes with the same owner one restarts, the others stand by. Its lease is a consumer group,
    mm2mgr-OWNER-watch, on each Kafka cluster that Connect clusters run on. A Connect cluster that cannot be read is
    asked again after longer and longer pauses, 10 min at most, while the others continue. SIGTERM and Ctrl-C end it
    within two seconds.

    \b
    Example:
      mm2mgr watch --events watch.jsonl --freeze-file /run/mm2mgr/freeze
      mm2mgr watch --dry-run --once --first-wait 0s
    """
    from mm2mgr.output.console import say_json_line, talk
    from mm2mgr.output.history_text import say_watch_round

    workspace.flows(flows)  # an unknown flow is an error before anything is asked
    rounds = operations.watch(workspace, dog.order(flows), every_seconds=every, events=dog.events)
    printed = ""
    try:
        for done in rounds:
            if output == "json":
                say_json_line(done)
            else:
                printed = say_watch_round(done, printed)
            if once:
                rounds.close()
                return 1 if done.failed else 0
    except KeyboardInterrupt:
        with _soon():
            rounds.close()
    talk("ended")
    return 0


@contextmanager
def _soon() -> Iterator[None]:
    """Let the process end in time, also where a thread still waits for a broker that does not answer."""
    from mm2mgr.output.console import flush

    def end() -> None:
        flush()
        os._exit(0)

    timer = threading.Timer(_END_SECONDS, end)
    timer.daemon = True
    timer.start()
    yield
    if all(thread.daemon or thread is threading.main_thread() for thread in threading.enumerate()):
        timer.cancel()
