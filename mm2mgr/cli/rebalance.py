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
from mm2mgr.text import list_names, span_text

if TYPE_CHECKING:
    from mm2mgr.operations import EvidenceOptions, RebalanceReport


@command("Load", 8)
@click.argument("flows", nargs=-1)
@evidence_options
@option("--apply", "write", is_flag=True, help="Write the assignments that are worth a restart.")
@option(
    "--now",
    "overrule",
    is_flag=True,
    help="Do not wait for the cool-down, rounds of a day, hours or freeze file of the tree.",
)
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
    overrule: bool,
    yes: bool,
    wait: float,
    reason: str,
    output: str,
) -> int:
    """Show how even tasks are, and assign partitions anew.

    Shows the load of the busiest task today, with stock Connect at its best tasks.max, with the plugin, and the least
    that is possible; and the assignment to have, with its reasons. A running assignment is kept unless both the
    window and the newest day of measurements ask for another one, and it takes at least 5 % from the busiest task; at
    most once a day. `balance` of the tree has other numbers, and partitions that stay where they are; what it holds
    now (cool_down, rounds_per_day, windows, freeze) is told, and written with --now only.

    With --apply the assignment is written to connectors of the plugin's class with this tree's owner mark, which
    restarts their tasks; other keys, tasks.max too, stay as they are. Paused and stopped ones are left alone, those
    that were paused or changed while it asked, too. Ctrl-C (SIGTERM, SIGHUP) begins no new change and ends those that
    were begun; a second one stops at once.

    \b
    Example:
      mm2mgr rebalance orders
      mm2mgr rebalance orders --apply --reason 'even tasks'
      mm2mgr rebalance orders --apply --now
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
            holds = list_names(sorted({hold for flow in judged.changes for hold in flow.held}))
            although = f", although {holds}" if holds else ""
            confirm("rebalance", f"write the assignment, and so restart all tasks, of {whose}{although}?", output)
        return True

    sentence = (
        f"interrupted: no new change begins, those in progress have {span_text(operations.FINISH_SECONDS)} to finish"
    )
    with carrying_on():
        judged = operations.rebalance(
            workspace,
            flows,
            evidence,
            write=write,
            overrule=overrule,
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
    is_missed = judged.is_unjudged or bool(judged.overtaken)
    return ExitCode.NO if is_missed and code != ExitCode.LOOK else code
