"""Commands that change Connect clusters: plan shows, apply does."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mm2mgr.cli.options import Seconds, output_option
from mm2mgr.operations.workspace import Workspace
from mm2mgr.outfile import check_free

_flow = click.option("--flow", "only_flows", multiple=True, help="Only this flow: id, pair or name (repeatable).")
_mirror_again = click.option(
    "--mirror-again",
    is_flag=True,
    help="Create connectors even if they mirror again what an older one has mirrored.",
)
_allow_deletes = click.option(
    "--allow-deletes",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Allow --prune N deletes where they exceed 10 connectors and 20 % of this owner's.",
)


@click.command()
@click.argument("flows", nargs=-1)
@_flow
@click.option("--prune", is_flag=True, help="Also delete owned connectors that are no longer declared.")
@_mirror_again
@_allow_deletes
@click.option("--full", is_flag=True, help="Also show every key of created and deleted connectors.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the plan to a file for review and apply."
)
@click.option(
    "--detailed-exitcode",
    is_flag=True,
    help="Exit 2 for changes or undeclared connectors, 0 for none, 1 for a failure.",
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
    full: bool,
    out: Path | None,
    detailed_exitcode: bool,
    output: str,
) -> int:
    """Show what would change on the Connect clusters. Writes nothing.

    FLOWS, or --flow as in `apply`, limits the plan to some flows. Exit code 1 when a Connect cluster could not be read,
    or something is blocked: a flow that its workers would refuse or write to the wrong Kafka cluster, or more deletes
    than --prune may make.

    \b
    Example:
      mm2mgr plan --out plan.json --detailed-exitcode
    """
    import asyncio

    from mm2mgr.output.console import say_json, talk
    from mm2mgr.output.plan_text import say_plan, say_topology
    from mm2mgr.reconcile.live import make_plan
    from mm2mgr.reconcile.plan import Wish
    from mm2mgr.reconcile.planfile import PLAN, write_plan

    only = workspace.only((*flows, *only_flows))
    if out:
        check_free(out, PLAN)  # before anybody is asked
    for entry in workspace.topology.stale_sizing:
        talk(f"overrides: no flow '{entry}' is declared any more, its sizing is ignored; mm2mgr size drops it")
    wish = Wish(prune, mirror_again, allow_deletes=allow_deletes)
    made = asyncio.run(make_plan(workspace.topology, workspace.connectors, wish, only=only, spec=workspace.spec))
    if output == "json":
        say_json(made.to_dict())
    else:
        if only is None:
            say_topology(workspace.topology, workspace.connectors)
        say_plan(made.to_dict(), full=full)
    if out:
        own = str(workspace.templates) if workspace.templates else None
        write_plan(out, made, [str(file) for file in workspace.files], own, only)
        talk(f"plan written to {out}; apply it with: mm2mgr apply {out}")
    if made.failed:
        return 1
    return 2 if detailed_exitcode and (made.writes or made.left_over) else 0


@click.command()
@click.argument("planfile", type=click.Path(path_type=Path, dir_okay=False), required=False)
@_flow
@click.option("--prune", is_flag=True, help="Also delete owned connectors that are no longer declared.")
@_mirror_again
@_allow_deletes
@click.option("--yes", "-y", is_flag=True, help="Do not ask. Needed without a terminal, unless a PLANFILE is given.")
@click.option(
    "--wait",
    type=Seconds(0),
    default=30.0,
    show_default=True,
    help="Seconds to wait until written connectors run with their new config; 0: do not wait.",
)
@output_option
@click.pass_obj
def apply(
    workspace: Workspace,
    planfile: Path | None,
    only_flows: tuple[str, ...],
    prune: bool,
    mirror_again: bool,
    allow_deletes: int,
    yes: bool,
    wait: float,
    output: str,
) -> int:
    """Make the Connect clusters run what the tree declares.

    A second apply writes nothing.
    With a PLANFILE (from `plan --out`) just that reviewed plan is applied, and refused if tree or live state changed
    since (except inline secrets, which a plan file does not hold). A Connect cluster that cannot be read holds up
    no other. Connectors without this tree's owner mark are never touched, nor those whose config changed since the plan.
    Exit code 1 if anything failed or was not done, else 3 if a written connector did not run within --wait.

    Ctrl-C (SIGTERM, SIGHUP) starts no new change, finishes those that were started, and reports what is left; a second one stops at once.

    \b
    Example:
      mm2mgr plan --out plan.json
      mm2mgr apply plan.json
    """
    from mm2mgr.cli.applying import Order, run_apply
    from mm2mgr.reconcile.plan import Wish

    wish = Wish(prune, mirror_again, allow_deletes=allow_deletes)
    # A second Ctrl-C ends the process as it is: bringing back what was begun could take half a minute.
    return run_apply(workspace, Order(planfile, only_flows, wish, yes, wait, output), leave=os._exit)
