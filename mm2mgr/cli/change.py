"""Commands that change Connect clusters: plan shows, apply does."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mm2mgr.cli.options import Seconds, output_option
from mm2mgr.cli.restarts import restart_options, restart_rules
from mm2mgr.operations.workspace import Workspace
from mm2mgr.outfile import check_free

_mirror_again = click.option(
    "--mirror-again",
    is_flag=True,
    help="Create connectors even if they mirror from the start what an older one has mirrored.",
)
_allow_deletes = click.option(
    "--allow-deletes",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Let --prune delete up to N connectors, where that is more than 10 and more than 20 % of this owner's.",
)


@click.command()
@click.argument("flows", nargs=-1)
@click.option("--prune", is_flag=True, help="Also delete owned connectors that are no longer declared.")
@_mirror_again
@_allow_deletes
@restart_options
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
    """Compare the tree with what the Connect clusters run and show what would change. Writes nothing.

    Updates that only save tasks (`size` found fewer to be enough) wait for --cool-down, --off-peak and --move-budget.
    FLOWS limits the plan to some flows. Exit code 1 when a Connect cluster could not be read, or something is blocked: a
    flow that its workers would refuse or write to another Kafka, or more deletes than go unasked.

    \b
    Example:
      mm2mgr plan --out plan.json --detailed-exitcode
    """
    import asyncio

    from mm2mgr.operations.restarts import with_restarts_held
    from mm2mgr.output.console import say_json, talk
    from mm2mgr.output.plan_text import say_plan, say_topology
    from mm2mgr.reconcile.live import make_plan
    from mm2mgr.reconcile.plan import Wish
    from mm2mgr.reconcile.planfile import PLAN, write_plan

    only = workspace.only(flows)
    if out:
        check_free(out, PLAN)  # before anybody is asked
    for entry in workspace.topology.stale_sizing:
        talk(f"overrides: no flow '{entry}' is declared any more, its sizing is ignored; mm2mgr size drops it")
    wish = Wish(prune, mirror_again, allow_deletes=allow_deletes)
    made = asyncio.run(make_plan(workspace.topology, workspace.connectors, wish, only=only, spec=workspace.spec))
    made = with_restarts_held(workspace, made, restart_rules(cool_down, off_peak, move_budget))
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
@click.option("--flow", "flows", multiple=True, help="Only this flow (repeat the option).")
@click.option("--prune", is_flag=True, help="Also delete owned connectors that are no longer declared.")
@_mirror_again
@_allow_deletes
@restart_options
@click.option("--yes", "-y", is_flag=True, help="Do not ask. Needed without a terminal, unless a PLANFILE is given.")
@click.option(
    "--wait",
    type=Seconds(0),
    default=30.0,
    show_default=True,
    help="Seconds to wait until written connectors are seen to run with their new config; 0: do not look.",
)
@output_option
@click.pass_obj
def apply(
    workspace: Workspace,
    planfile: Path | None,
    flows: tuple[str, ...],
    prune: bool,
    mirror_again: bool,
    allow_deletes: int,
    cool_down: float,
    off_peak: tuple[int, int] | None,
    move_budget: int | None,
    yes: bool,
    wait: float,
    output: str,
) -> int:
    """Make the Connect clusters run what the tree says; a second apply writes nothing.

    With a PLANFILE (from `plan --out`) just that reviewed plan is applied, and refused if tree or live state changed
    since (inline secrets aside: a plan file holds none, so it cannot tell). A Connect cluster that cannot be read holds up
    no other. Updates that only save tasks wait for --cool-down, --off-peak and --move-budget; those of a PLANFILE as it says.
    Connectors without this tree's owner mark are never touched, nor those whose config changed since the plan.
    Exit code 1 if anything failed or is left, else 3 if a written connector was not seen to run within --wait.

    Ctrl-C (SIGTERM, SIGHUP) begins no new change, ends those that were begun, and says what is left; a second one stops at once.

    \b
    Example:
      mm2mgr plan --out plan.json
      mm2mgr apply plan.json
    """
    from mm2mgr.cli.applying import Order, run_apply
    from mm2mgr.reconcile.plan import Wish

    wish = Wish(prune, mirror_again, allow_deletes=allow_deletes)
    rules = restart_rules(cool_down, off_peak, move_budget)
    # A second Ctrl-C ends the process as it is: bringing back what was begun could take half a minute.
    return run_apply(workspace, Order(planfile, flows, wish, rules, yes, wait, output), leave=os._exit)
