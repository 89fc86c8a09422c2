"""The command `simulate`: tasks, hot partitions and workers now and after given changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr.cli.fleet import complain_of_sources
from mm2mgr.cli.options import Number, by_option, output_option, store_option, window_option
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import Statistic


class _Assigned(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    """`NAME=VALUE`, split at the last sign, since topics cannot hold one."""

    name = "name=value"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        left, sign, right = str(value).partition("=")
        if not (left and sign and right):
            self.fail(f"{value!r} is not of the form {param.metavar if param else self.name}", param, ctx)
        return left, right


@click.command()
@store_option
@window_option
@by_option
@click.option("--traffic", type=Number(0, 1000, min_open=True), help="Multiply all traffic by this.")
@click.option("--lose-source", multiple=True, metavar="ALIAS", help="Take a source cluster out (repeat it).")
@click.option("--move", type=_Assigned(), multiple=True, metavar="TOPIC=FLOW", help="Mirror a topic by another flow.")
@click.option("--add-target", multiple=True, metavar="[FLOW=]ALIAS", help="Mirror all flows, or one, there as well.")
@click.option("--limit", type=_Assigned(), multiple=True, metavar="FLOW=N", help="Another limit of tasks.")
@output_option
@click.pass_obj
def simulate(
    workspace: Workspace,
    store: Path,
    window: float | None,
    statistic: Statistic,
    traffic: float | None,
    lose_source: tuple[str, ...],
    move: tuple[tuple[str, str], ...],
    add_target: tuple[str, ...],
    limit: tuple[tuple[str, str], ...],
    output: str,
) -> int:
    """Compare tasks and workers before and after a change.

    Sources are taken out first, then topics moved, targets added, limits set and traffic multiplied. Nothing is
    written. Exit code 1 when a source cluster could not be read.

    \b
    Example:
      mm2mgr simulate --traffic 1.5 --add-target agg-north
    """
    from mm2mgr.operations.simulate import Changes
    from mm2mgr.operations.simulate import simulate as compare
    from mm2mgr.output.console import say_json, talk
    from mm2mgr.output.fleet_text import say_comparison

    changes = Changes(traffic, lose_source, move, add_target, limit)
    report = compare(workspace, changes, store=store, window_seconds=window, statistic=statistic, notify=talk)
    if output == "json":
        say_json(report.to_dict())
    else:
        say_comparison(report.to_dict())
    return complain_of_sources(report.failures)
