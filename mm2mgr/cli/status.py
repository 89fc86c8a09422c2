"""The commands `status` (one look, or one after the other), `describe`, `check`, and `losses`: the ledger of records
that may never arrive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr import operations
from mm2mgr.cli.options import (
    LEAST_SECONDS,
    Duration,
    command,
    option,
    output_option,
    show_looks,
    snapshot_option,
    store_option,
)
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import Status


@command("Every day", 1)
@click.argument("flows", nargs=-1)
@option(
    "--watch",
    type=Duration(LEAST_SECONDS),
    help="Look again after this time, until Ctrl-C; with -o json one document per line.",
)
@option(
    "--ack",
    multiple=True,
    metavar="ID",
    help="Acknowledge a loss, which is then no longer shown (repeatable; 'all': every loss, of FLOWS if given).",
)
@store_option("Folder or URI of the tables, for the one of losses.")
@output_option
@click.pass_obj
@snapshot_option
def status(
    workspace: Workspace, flows: tuple[str, ...], watch: float | None, ack: tuple[str, ...], store: Path, output: str
) -> int:
    """Show health, tasks and lag of FLOWS (all by default).

    Lag is that of `mm2mgr lag`; the true one may be smaller by what arrived since the workers last flushed. A
    connector that is RUNNING with zero tasks, silent for a minute, or without progress is a problem, whatever Connect
    says. Records that may be lost stay a problem until they are acknowledged (`losses` lists them).

    \b
    Example:
      mm2mgr status --watch 10
      mm2mgr status --ack 3f2a9c1b04
    """
    from mm2mgr.output.console import talk
    from mm2mgr.output.losses_text import acknowledged_text
    from mm2mgr.output.status_text import say_look, say_status

    if ack and workspace.snapshot:
        raise Mm2mgrError("--ack writes, and a snapshot is only read", hint="leave one of --ack and --snapshot out")
    if ack:
        for loss in operations.acknowledge(workspace, ack, flows, store=store):
            talk(acknowledged_text(loss))
    watching = watch is not None

    def show(look: Status) -> None:
        say_look(output, look, say_status, watching=watching)

    looks = operations.watch_status(workspace, flows, every_seconds=watch or 0.0, store=store)
    return show_looks(looks, show, lambda look: exit_code(look.health), watching=watching)


def exit_code(health: str) -> int:
    return 1 if health in {"problem", "unknown"} else 0


@command("Every day", 2)
@click.argument("flow")
@store_option("Folder or URI of the tables, for the one of losses.")
@output_option
@click.pass_obj
@snapshot_option
def describe(workspace: Workspace, flow: str, store: Path, output: str) -> int:
    """Show one FLOW in full: connectors, tasks, lag, settings.

    \b
    Example:
      mm2mgr describe 'logging:dc1-logging->agg-east'
    """
    from mm2mgr.output.console import say_as, working
    from mm2mgr.output.status_text import say_description, say_warnings

    workspace.flow(flow)  # an unknown flow is an error before anything is asked
    with working("reading Connect and Kafka"):
        described = operations.describe(workspace, flow, store=store)
    say_warnings(described.status.warnings)
    say_as(output, described, say_description)
    return exit_code(described.flow_status.health)


@command("Every change", 4)
@click.argument("flows", nargs=-1)
@option(
    "--timeout",
    type=Duration(1),
    default="20s",
    help="Time limit for the check; unanswered checks are reported.",
)
@option(
    "--fix-only",
    is_flag=True,
    help="Print only the commands that grant missing rights, and those that could not be verified.",
)
@output_option
@click.pass_obj
@snapshot_option
def check(workspace: Workspace, flows: tuple[str, ...], timeout: float, fix_only: bool, output: str) -> int:
    """Ask brokers and workers whether FLOWS (all by default) can run.

    Logs in to every Kafka cluster as each client of the connectors would, and finds the rights that it lacks, most of
    which leave everything RUNNING; compares cluster ids, size limits, replication factors and the workers with what
    the flows need. Nothing is created, written or committed. Missing ACLs are printed as kafka-acls.sh commands.

    \b
    Example:
      mm2mgr check
      mm2mgr check logging --fix-only > acls.sh
    """
    from mm2mgr.output.console import say_as, say_command, working
    from mm2mgr.output.lint_text import say_check

    workspace.flows(flows)  # an unknown flow is an error before anything is asked
    with working("asking Connect and Kafka"):
        checked = operations.check(workspace, flows, timeout_seconds=timeout)
    if fix_only:
        for line in (*checked.commands, *checked.unsure):
            say_command(line)
    else:
        say_as(output, checked, say_check)
    return 0 if checked.good else 1


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
