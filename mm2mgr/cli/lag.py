"""The command `lag`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mm2mgr import operations
from mm2mgr.cli.options import (
    LEAST_SECONDS,
    Count,
    Duration,
    command,
    option,
    output_option,
    show_looks,
    snapshot_option,
    store_option,
)
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from mm2mgr.operations import LagLevel, LagReport


@command("Every day", 3)
@click.argument("flows", nargs=-1)
@option("--by", type=click.Choice(["partition", "topic", "task", "flow"]), default="flow", help="What a row is about.")
@option(
    "--timestamps",
    is_flag=True,
    help="Count seconds from the timestamp of the next record to mirror: one is read of each partition that is behind.",
)
@option(
    "--watch",
    type=Duration(LEAST_SECONDS),
    help="Look again after this time, until Ctrl-C; with -o json one document per line.",
)
@option(
    "--rows",
    type=Count(min=0),
    default=30,
    metavar="N",
    help="Rows per flow, most behind first (as text; JSON has all).",
)
@store_option("Folder or URI of the samples, from which lag in seconds and bytes is counted.")
@output_option
@click.pass_obj
@snapshot_option
def lag(
    workspace: Workspace,
    flows: tuple[str, ...],
    by: LagLevel,
    timestamps: bool,
    watch: float | None,
    rows: int,
    store: Path,
    output: str,
) -> int:
    """Show how far flows are behind, and when they will be level.

    In records, bytes and seconds, with the trend since the lag began to grow or shrink, the time until it is level
    and until retention deletes records that still wait, both with an interval. A lag is counted from the target's end
    where only this mirror writes there, else from the stored offset, which is up to one `flush_interval` of the
    workers old; that of a STOPPED connector is exact. Seconds and bytes come from the samples of `mm2mgr sample`,
    trends from earlier looks, also those of `status`, `serve` and a running `sample`. "at least" marks a sum that
    lacks partitions. A heartbeat's age is the most that a record takes from end to end.

    \b
    Example:
      mm2mgr lag --by task
      mm2mgr lag logging --by partition --timestamps
    """
    from mm2mgr.output.lag_text import say_lag
    from mm2mgr.output.status_text import say_look

    watching = watch is not None

    def show(report: LagReport) -> None:
        say_look(output, report, lambda look: say_lag(look, rows), watching=watching)

    options = operations.LagOptions(by, timestamps, store)
    looks = operations.watch_lag(workspace, flows, options, every_seconds=watch or 0.0)
    workspace.flows(flows)  # an unknown flow is an error before anything is asked
    return show_looks(looks, show, lambda report: 0 if report.is_known else 1, watching=watching)
