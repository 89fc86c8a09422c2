"""The command `reconcile`: plan and apply in a loop until a signal ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from mm2mgr import operations
from mm2mgr.cli.interrupts import halting
from mm2mgr.cli.options import (
    OUTCOME_CODES,
    Duration,
    change_options,
    command,
    events_option,
    option,
    output_option,
    reason_option,
)
from mm2mgr.errors import ExitCode
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    import asyncio

    from mm2mgr.operations import Applied, PlanOptions


@command("Every day", 11)
@change_options
@option("--every", type=Duration(1), default="60s", help="Time between two rounds, 10 % more or less.")
@option(
    "--once",
    is_flag=True,
    help="End after one round, with its exit code; with --prune after those that its deletes need.",
)
@option("--report-only", is_flag=True, help="Write nothing, and take no lease: only say what would change.")
@option("--wait", type=Duration(), default="30s", help="As in apply: time to see written connectors run.")
@option("--rollback", is_flag=True, help="As in apply: take back what a wave that breaks a connector wrote.")
@reason_option
@events_option
@output_option
@click.pass_obj
def reconcile(
    workspace: Workspace,
    options: PlanOptions,
    every: float,
    once: bool,
    report_only: bool,
    wait: float,
    rollback: bool,
    reason: str,
    events: Path | None,
    output: str,
) -> int:
    """Apply the tree again and again, and repair changes made by hand.

    The tree is read anew each round; one with mistakes is reported, and nothing is written. What `apply` would block
    is blocked here, too: nothing is deleted without --prune, and with it only what the tree still leaves out when it
    is read again a minute later. Of several processes with the same owner one writes, the others stand by; when it
    ends or crashes, another takes over within about 10 s. The lease is a consumer group, mm2mgr-OWNER, on each Kafka
    cluster that Connect clusters run on. A Connect cluster that fails is tried again after longer and longer pauses,
    10 min at most, while the others continue.

    SIGTERM and Ctrl-C end it after the changes that were begun.

    \b
    Example:
      mm2mgr reconcile --every 60s --events events.jsonl
      mm2mgr reconcile --report-only --once
    """
    from mm2mgr.output.console import say_json_line, talk
    from mm2mgr.output.history_text import say_round
    from mm2mgr.output.plan_text import say_event

    order = operations.ReconcileOrder(
        options,
        wait_seconds=wait,
        rollback=rollback,
        report_only=report_only,
        reason=reason,
    )
    rounds = operations.reconcile(
        workspace, order, every_seconds=every, events=events, report=say_event, interrupts=_ending
    )
    printed = ""
    try:
        for done in rounds:
            if output == "json":
                say_json_line(done)
            else:
                printed = say_round(done, printed)
            if once and not done.deletes_wait:
                return OUTCOME_CODES[done.outcome]
    except KeyboardInterrupt:
        pass
    finally:
        rounds.close()
    talk("ended")
    return 0


@contextmanager
def _ending(_so_far: Callable[[], Applied]) -> Iterator[asyncio.Event]:
    """Let the first signal end the writes in order, and the second one the process."""
    import os

    from mm2mgr.output.console import flush, talk

    def second() -> NoReturn:
        flush()
        os._exit(ExitCode.INTERRUPTED)

    def first() -> None:
        talk("ending: no new change begins (interrupt again to stop at once)")

    with halting(first, second) as halt:
        yield halt
