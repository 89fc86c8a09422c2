"""The command describe."""

from __future__ import annotations

import click

from mm2mgr import operations
from mm2mgr.cli.options import output_option
from mm2mgr.cli.status import exit_code
from mm2mgr.operations.workspace import Workspace


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
    from mm2mgr.output.console import say_json, working
    from mm2mgr.output.status_text import say_description, say_warnings

    workspace.flow(flow)  # an unknown flow is an error before anything is asked
    with working("reading Connect and Kafka"):
        found = operations.describe(workspace, flow).to_dict()
    say_warnings(found["warnings"])
    if output == "json":
        say_json(found)
    else:
        say_description(found)
    return exit_code(found["status"]["health"])
