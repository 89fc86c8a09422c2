"""Commands that look at what runs: status of all flows, description of one."""

from __future__ import annotations

import click

from mm2mgr.cli.options import Seconds, output_option
from mm2mgr.operations.workspace import Workspace


@click.command()
@click.argument("flows", nargs=-1)
@click.option(
    "--watch",
    type=Seconds(0, min_open=True),
    metavar="SECONDS",
    help="Repeat every SECONDS until Ctrl-C; with -o json one document per line.",
)
@click.option(
    "--ack",
    multiple=True,
    metavar="ID",
    help="Acknowledge a loss, so that it is no longer shown (repeatable; 'all': every loss of FLOWS).",
)
@output_option
@click.pass_obj
def status(workspace: Workspace, flows: tuple[str, ...], watch: float | None, ack: tuple[str, ...], output: str) -> int:
    """Show health, tasks and lag of FLOWS (all by default).

    Exit code 1 when there is a problem, or something is unknown.
    Lag is the source's end offset minus the offsets that workers last flushed, so the true lag may be lower. A connector that
    is RUNNING with zero tasks, silent for a minute, or without progress is a problem, whatever state Connect reports. Records
    that may be lost stay a problem until they are acknowledged. --watch ends with the exit code of its last status.

    \b
    Example:
      mm2mgr status --watch 10
      mm2mgr status --ack 3f2a9c1
    """
    from mm2mgr.cli.watching import run_status

    return run_status(workspace, flows, watch_seconds=watch, acknowledge=ack, output=output)


@click.command()
@click.argument("flow")
@output_option
@click.pass_obj
def describe(workspace: Workspace, flow: str, output: str) -> int:
    """Show one FLOW in full: connectors, tasks, lag, settings.

    \b
    Example:
      mm2mgr describe 'logging:dc1-logging->agg-east'
    """
    from mm2mgr.cli.watching import run_describe

    return run_describe(workspace, flow, output=output)
