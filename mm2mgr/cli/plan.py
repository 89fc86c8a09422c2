"""The command plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr import operations
from mm2mgr.cli.options import change_options, output_option, restart_rules
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import Plan


@click.command()
@click.argument("flows", nargs=-1)
@change_options
@click.option("--full", is_flag=True, help="Show every key of connectors that are created or deleted.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the plan to a file for review and apply."
)
@click.option(
    "--detailed-exitcode",
    is_flag=True,
    help="Exit 2 when there are changes, or connectors that are no longer declared (0: none, 1: failed).",
)
@output_option
@click.pass_obj
def plan(
    workspace: Workspace,
    flows: tuple[str, ...],
    only_flows: tuple[str, ...],
    prune: bool,
    mirror_again: bool,
    allow_deletes: int,
    cool_down: float,
    off_peak: tuple[int, int] | None,
    move_budget: int | None,
    full: bool,
    out: Path | None,
    detailed_exitcode: bool,
    output: str,
) -> int:
    """Show what would change on the Connect clusters. Writes nothing.

    FLOWS, or --flow as in `apply`, limits the plan to some flows. Exit code 1 when a Connect cluster could not be read, or
    something is blocked: a flow that its workers would refuse or write to another Kafka, or more deletes than --prune may
    make. Updates that only save tasks (`size` found fewer to be enough) wait for --cool-down, --off-peak and --move-budget.

    \b
    Example:
      mm2mgr plan --out plan.json --detailed-exitcode
    """
    from mm2mgr.output.console import say_json, talk
    from mm2mgr.output.plan_text import say_plan, say_topology

    flows = (*flows, *only_flows)

    def show(made: Plan) -> None:
        if output == "json":
            say_json(made.to_dict())
        else:
            if not flows:
                say_topology(workspace.topology, workspace.connectors)
            say_plan(made.to_dict(), full=full)

    for entry in workspace.topology.stale_sizing:
        talk(f"overrides: flow '{entry}' is no longer declared; its sizing is ignored, and mm2mgr size removes it")
    made = operations.plan(
        workspace,
        flows,
        prune=prune,
        mirror_again=mirror_again,
        allow_deletes=allow_deletes,
        restarts=restart_rules(cool_down, off_peak, move_budget),
        out=out,
        report=show,
    )
    if out:
        talk(f"plan written to {out}; apply it with: mm2mgr apply {out}")
    if made.failed:
        return 1
    return 2 if detailed_exitcode and (made.writes or made.left_over) else 0
