"""The command `fleet`: workers needed by each Connect cluster, losses and recovery."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr.cli.options import Duration, by_option, output_option, store_option, window_option
from mm2mgr.cli.page import page_option, write_page
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import Statistic


@click.command()
@store_option
@window_option
@by_option
@click.option("--lag", type=Duration(), default="1h", show_default=True, help="Lag to recover from, in traffic.")
@click.option("--lag-records", type=click.IntRange(1), help="Lag to recover from, in records of each Connect cluster.")
@click.option(
    "--workers", type=click.IntRange(1), multiple=True, help="Worker count to estimate recovery for (repeatable)."
)
@click.option(
    "--session-timeout",
    type=Duration(),
    default="10s",
    show_default=True,
    help="session.timeout.ms of the workers (not available over REST).",
)
@click.option(
    "--rebalance-delay",
    type=Duration(),
    default="5min",
    show_default=True,
    help="scheduled.rebalance.max.delay.ms of the workers (not available over REST).",
)
@page_option
@output_option
@click.pass_obj
def fleet(
    workspace: Workspace,
    store: Path,
    window: float | None,
    statistic: Statistic,
    lag: float,
    lag_records: int | None,
    workers: tuple[int, ...],
    session_timeout: float,
    rebalance_delay: float,
    page: Path | None,
    output: str,
) -> int:
    """Compute the workers that each Connect cluster needs.

    Also shows what each worker runs, what the loss of one or two means, and how long it takes to catch up. From the same
    sizing as `size`, without writing anything but --page. What a worker can carry is declared as
    `workers:` of the Connect cluster. Exit code 1 when a source cluster could not be read.

    \b
    Example:
      mm2mgr fleet --lag 4h --workers 10 --workers 30
    """
    from mm2mgr.operations import Failover, Lag
    from mm2mgr.operations.fleet import fleet as judge_fleet
    from mm2mgr.output.console import say_json, talk
    from mm2mgr.output.fleet_text import say_fleet

    report = judge_fleet(
        workspace,
        store=store,
        window_seconds=window,
        statistic=statistic,
        lag=Lag(lag, lag_records),
        worker_counts=workers,
        failover=Failover(session_timeout, rebalance_delay),
        views=page is not None,
        notify=talk,
    )
    values = report.to_dict()
    if output == "json":
        say_json(values)
    else:
        say_fleet(values)
    if page:
        write_page(page, report.views, values, report.measured)
    return complain_of_sources(report.failures)


def complain_of_sources(failures: Mapping[str, str]) -> int:
    """Print the sources that could not be read; return the exit code."""
    from mm2mgr.output.console import complain

    for message in failures.values():
        complain(f"{message}; its flows are not counted", "check bootstrap_servers and access: of this cluster")
    return 1 if failures else 0
