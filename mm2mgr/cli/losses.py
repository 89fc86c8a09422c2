"""The command `losses`: the ledger of records that may never arrive."""

from __future__ import annotations

from pathlib import Path

import click

from mm2mgr import operations
from mm2mgr.cli.options import command, option, output_option, store_option
from mm2mgr.operations.workspace import Workspace


@command("Every day", 12)
@click.argument("flows", nargs=-1)
@option("--all", "everything", is_flag=True, help="Acknowledged losses too, with who acknowledged them, when and why.")
@option(
    "--ack", multiple=True, metavar="ID", help="Acknowledge a loss (repeatable; 'all': every loss, of FLOWS if given)."
)
@option("--reason", default="", show_default=False, metavar="TEXT", help="Why it is acknowledged; kept in the ledger.")
@store_option("Folder or URI of the tables.")
@output_option
@click.pass_obj
def losses(
    workspace: Workspace,
    flows: tuple[str, ...],
    everything: bool,
    ack: tuple[str, ...],
    reason: str,
    store: Path,
    output: str,
) -> int:
    """List records of FLOWS (all by default) that may never arrive.

    `status` and `sample` compare each partition with the look before, and put into the table `losses` which offsets
    retention deleted before they were mirrored, or were skipped because a topic was created again or truncated: also
    when it happened between two looks and the flow has recovered since. A loss stays until it is acknowledged. No
    cluster is asked.

    \b
    Example:
      mm2mgr losses
      mm2mgr losses orders --ack 3f2a9c1b04 --reason "restored from backup"
    """
    from mm2mgr.output.console import say_as, talk
    from mm2mgr.output.losses_text import acknowledged_text, say_losses
    from mm2mgr.output.status_text import say_warnings

    if reason and not ack:
        raise click.UsageError("--reason goes with --ack")
    if ack:
        for loss in operations.acknowledge(workspace, ack, flows, reason=reason, store=store):
            talk(acknowledged_text(loss))
    report = operations.losses(workspace, flows, store=store, everything=everything)
    say_warnings(report.warnings)
    say_as(output, report, say_losses)
    return 1 if report.still_open else 0
