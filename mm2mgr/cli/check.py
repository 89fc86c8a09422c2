"""The command check."""

from __future__ import annotations

import click

from mm2mgr import operations
from mm2mgr.cli.options import Seconds, output_option
from mm2mgr.operations.workspace import Workspace


@click.command()
@click.argument("flows", nargs=-1)
@click.option(
    "--timeout",
    type=Seconds(1),
    default=20.0,
    show_default=True,
    help="Time limit for the check in seconds; unanswered checks are reported.",
)
@click.option(
    "--fix-only",
    is_flag=True,
    help="Print only the commands that grant missing rights, and those that could not be verified.",
)
@output_option
@click.pass_obj
def check(workspace: Workspace, flows: tuple[str, ...], timeout: float, fix_only: bool, output: str) -> int:
    """Ask brokers and workers whether FLOWS (all by default) can run.

    Exit code 1 when something is missing or fails.

    Logs in to every Kafka cluster as each client of the connectors would, and finds the rights that it lacks, most of which
    leave everything RUNNING; compares cluster ids, size limits, replication factors and the workers with what the flows
    need. Nothing is created, written or committed. Missing ACLs are printed as kafka-acls.sh commands.

    \b
    Example:
      mm2mgr check
      mm2mgr check logging --fix-only > acls.sh
    """
    from mm2mgr.output.check_text import say_check
    from mm2mgr.output.console import say_command, say_json, working

    workspace.flows(flows)  # an unknown flow is an error before anything is asked
    with working("asking Connect and Kafka"):
        found = operations.check(workspace, flows, timeout_seconds=timeout)
    if fix_only:
        for line in (*found.commands, *found.unsure):
            say_command(line)
    elif output == "json":
        say_json(found.to_dict())
    else:
        say_check(found.to_dict())
    return 0 if found.good else 1
