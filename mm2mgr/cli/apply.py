"""The command apply: it asks before it writes, and an interrupt ends it in order."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from mm2mgr import operations
from mm2mgr.cli.interrupts import INTERRUPTED, halting
from mm2mgr.cli.options import Seconds, change_options, output_option, restart_rules
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    import asyncio

    from mm2mgr.operations import Applied, Plan

_CODES = {"done": 0, "failed": 1, "inconclusive": 3}


@click.command()
@click.argument("planfile", type=click.Path(path_type=Path, dir_okay=False), required=False)
@change_options
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
    only_flows: tuple[str, ...],
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
    """Make the Connect clusters run what the tree declares.

    A second apply writes nothing.
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
    from mm2mgr.output.apply_text import say_event
    from mm2mgr.output.console import carrying_on
    from mm2mgr.output.plan_text import say_plan

    def approve(plan: Plan) -> bool:
        if output == "text":
            say_plan(plan.to_dict())
        if plan.writes and not (yes or planfile):
            _confirm(output)
        return True

    with carrying_on():
        applied = operations.apply(
            workspace,
            planfile,
            flows=only_flows,
            prune=prune,
            mirror_again=mirror_again,
            allow_deletes=allow_deletes,
            restarts=restart_rules(cool_down, off_peak, move_budget),
            wait_seconds=wait,
            approve=approve,
            report=say_event,
            interrupts=lambda so_far: _interrupts(so_far, output),
        )
        _say(applied, output)
    return INTERRUPTED if applied.interrupted else _CODES[applied.outcome]


def _confirm(output: str) -> None:
    from mm2mgr.output.console import shown

    hint = "add --yes, or apply a reviewed plan: mm2mgr apply PLANFILE"
    if output == "json":
        raise Mm2mgrError("apply -o json shows no plan to confirm", hint=hint)
    if not sys.stdin.isatty():
        raise Mm2mgrError("apply asks before it writes and there is no terminal", hint=hint)
    if not shown():
        what = "apply asks before it writes, and the plan could not be shown: stdout cannot be written"
        raise Mm2mgrError(what, hint=hint)
    click.confirm("Apply this plan?", abort=True, err=True)


@contextmanager
def _interrupts(so_far: Callable[[], Applied], output: str) -> Iterator[asyncio.Event]:
    """Let the first signal end the work in order; the second ends the process, after it printed what is unfinished."""
    from mm2mgr.output.console import flush, talk

    def first() -> None:
        talk(
            f"interrupted: no new change begins, those in progress have {operations.FINISH_SECONDS:.0f} s to finish "
            "(interrupt again to stop at once)",
            style="bold red",
        )

    def second() -> NoReturn:
        _say(so_far(), output)
        flush()
        os._exit(INTERRUPTED)  # an orderly end could take half a minute: changes that were begun would be brought back

    with halting(first, second) as halt:
        yield halt


def _say(applied: Applied, output: str) -> None:
    from mm2mgr.output.apply_text import say_applied
    from mm2mgr.output.console import say_json

    if output == "json":
        say_json(applied.to_dict())
    else:
        say_applied(applied)
