"""The command `throughput`: what to roll up where, and which answer is printed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Literal

import click

from mm2mgr.cli.options import (
    Count,
    command,
    option,
    output_option,
    store_option,
    window_option,
)
from mm2mgr.operations.workspace import Workspace
from mm2mgr.text import number_of

By = Literal["partition", "topic", "flow", "hour"]


@command("Load", 2)
@store_option("Folder or URI that `sample` wrote to.")
@window_option("24h", "all")
@option(
    "--by",
    type=click.Choice(["partition", "topic", "flow", "hour"]),
    default="partition",
    help="What to print; `hour` is the pattern by day of week and hour of day.",
)
@option(
    "--top",
    type=Count(0),
    default=20,
    help="Rows to print, busiest first; 0: no row as text, every row as JSON.",
)
@option("--show", is_flag=True, help="Only print what is rolled up already.")
@option(
    "--spark/--no-spark", default=None, help="Where to roll up. Default: Spark when over 100 million samples are due."
)
@output_option
@click.pass_obj
def throughput(
    workspace: Workspace,
    store: Path,
    window: float | None,
    by: By,
    top: int,
    show: bool,
    spark: bool | None,
    output: str,
) -> int:
    """Roll up samples by hour; print bytes/s and records/s.

    Only hours with new samples cost anything. Small jobs run in this process, without Spark or Java. Percentiles over
    several hours are at most 2 % off; means and maxima are exact. Spark needs Java 17+; the same job runs on a
    cluster: spark-submit mm2mgr/throughput/job.py --store DIR, or any command as spark-submit mm2mgr/__main__.py.

    \b
    Example:
      mm2mgr throughput --window 24h --top 10
      mm2mgr throughput --show --by flow
    """
    from mm2mgr.operations.throughput import busiest_partitions, group_rates, read_throughput, week
    from mm2mgr.output.console import say_json
    from mm2mgr.output.load_text import say_groups, say_rates, say_week

    if not show:
        _roll_up(store, spark)
    as_json = output == "json"
    rates = read_throughput(store, window)
    measured = rates.window.text()
    if by == "partition":
        busy = busiest_partitions(store, rates, top, with_curves=not as_json)
        if as_json:
            say_json([asdict(rate) for rate in busy.rates])
        else:
            shown = slice(None) if top else slice(0)
            totals = {"resets": busy.resets, "gaps": busy.gaps}
            say_rates(busy.rates[shown], busy.curves[shown], busy.partitions, totals, measured)
    elif by == "hour":
        pattern = week(store, rates)
        if as_json:
            say_json(asdict(pattern))
        else:
            say_week(pattern, measured)
    else:
        groups = group_rates(workspace, store, rates, by)
        if as_json:
            say_json([asdict(group) for group in (groups[:top] if top else groups)])
        else:
            say_groups(groups, top, by, measured)
    return 0


def _roll_up(store: Path, spark: bool | None) -> None:
    from mm2mgr.operations.throughput import roll_up
    from mm2mgr.output.console import talk, working

    done = roll_up(store, spark, working)
    for note in done.notes:
        talk(note, style="yellow")
    if done.report is None:
        talk(f"nothing new to roll up in {store}")
        return
    for path, reason in done.report.unreadable.items():
        talk(f"  left out: {path}: {reason}", style="yellow")
    where = "on Spark" if done.on_spark else "in this process"
    roll_ups = number_of(len(done.report.made), "roll-up")
    talk(f"{done.report.samples} samples rolled up {where}, {roll_ups} made in {store}")
