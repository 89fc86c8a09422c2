"""The command `rebalance`: how even tasks are, and another assignment where it is worth a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mm2mgr import operations
from mm2mgr.cli.interrupts import ending_in_order
from mm2mgr.cli.options import (
    OUTCOME_CODES,
    Duration,
    command,
    evidence_options,
    option,
    output_option,
    reason_option,
)
from mm2mgr.cli.pause import confirm
from mm2mgr.errors import ExitCode
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import EvidenceOptions, RebalanceReport


@command("Load", 8)
@click.argument("flows", nargs=-1)
@evidence_options
@option("--apply", "write", is_flag=True, help="Write the assignments that are worth a restart.")
@option("--yes", "-y", is_flag=True, help="Do not ask.")
@option(
    "--wait",
    type=Duration(),
    default="1min",
    help="With --apply: time for the tasks to run with it, before it is taken back; 0: do not look.",
)
@reason_option
@output_option
@click.pass_obj
def rebalance(
    workspace: Workspace,
    flows: tuple[str, ...],
    evidence: EvidenceOptions,
    write: bool,
    yes: bool,
    wait: float,
    reason: str,
    output: str,
) -> int:
    """Show how even tasks are, and assign partitions anew.

    Shows the load of the busiest task today, with stock Connect at its best tasks.max, with the plugin, and the least
    that is possible; and the assignment to have, with its reasons. A running assignment is kept unless both the
    window and the newest day of measurements ask for another one, and it takes at least 5 % from the busiest task; at
    most once a day. `balance` of the tree has other numbers, and partitions that stay where they are.

    With --apply the assignment is written to connectors of the plugin's class with this tree's owner mark, which
    restarts their tasks; other keys, tasks.max too, stay as they are. Paused and stopped ones are left alone. Ctrl-C
    (SIGTERM, SIGHUP) begins no new change and ends those that were begun; a second one stops at once.

    \b
    Example:
      mm2mgr rebalance orders
      mm2mgr rebalance orders --apply --reason 'even tasks'
    """
    from mm2mgr.output.apply_text import say_applied, say_event
    from mm2mgr.output.balance_text import say_rebalance, say_rebalanced
    from mm2mgr.output.console import carrying_on, complain, say_as

    def approve(judged: RebalanceReport) -> bool:
        if output == "text":
            say_rebalance(judged)
        if not yes:
            count = len(judged.changes)
            whose = "this connector" if count == 1 else f"these {count} connectors"
            confirm("rebalance", f"write the assignment, and so restart all tasks, of {whose}?", output)
        return True

    sentence = f"interrupted: no new change begins, those in progress have {operations.FINISH_SECONDS:.0f} s to finish"
    with carrying_on():
        judged = operations.rebalance(
            workspace,
            flows,
            evidence,
            write=write,
            wait_seconds=wait,
            reason=reason,
            approve=approve,
            report=say_event,
            interrupts=lambda so_far: ending_in_order(
                sentence, "bold red", lambda: say_as(output, so_far(), say_applied)
            ),
        )
        say_as(output, judged, say_rebalanced if judged.applied else say_rebalance)
    for message in judged.failures.values():
        complain(f"{message}; its flows are not judged", "their assignments stay as they are")
    if judged.applied and judged.applied.interrupted:
        return ExitCode.INTERRUPTED
    code = OUTCOME_CODES[judged.applied.outcome] if judged.applied else ExitCode.YES
    if judged.changes and not judged.applied:
        code = ExitCode.DIFFERS
    return ExitCode.NO if judged.is_unjudged and code != ExitCode.LOOK else code
