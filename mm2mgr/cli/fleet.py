"""Commands about machines: fleet (workers needed, losses, recovery) and simulate (the same after given changes)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr.cli.load import LEAST_SECONDS, SAMPLES, Duration, by_option
from mm2mgr.cli.options import Number, StoreLocation, output_option
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.throughput.rates import Statistic

_folder = StoreLocation()
_store = click.option("--store", type=_folder, default=SAMPLES, show_default=True, help="Folder of samples, rolled up.")
_window = click.option(
    "--window", type=Duration(LEAST_SECONDS), help="Only the newest hours, such as 7d. Default: 4 weeks."
)


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
@_store
@_window
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
@click.option("--page", type=click.Path(path_type=Path, dir_okay=False), help="Write a page (one HTML file) too.")
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
    """Show what each worker runs; compute the workers that each Connect cluster needs, what it loses with one or two,
    and how long a lag lasts.

    From the same sizing as `size`, without writing anything but --page. What a worker carries is declared as
    `workers:` of the Connect cluster. Exit code 1 when a source cluster could not be read.

    \b
    Example:
      mm2mgr fleet --lag 4h --workers 10 --workers 30
    """
    from mm2mgr.cli.cases import Asked
    from mm2mgr.cli.fleeting import FleetQuestion, run_fleet
    from mm2mgr.sizing.fleet import Failover
    from mm2mgr.sizing.recovery import Lag

    failover = Failover(session_timeout, rebalance_delay)
    question = FleetQuestion(Lag(lag, lag_records), workers, failover, page)
    return run_fleet(workspace, Asked(store, window, statistic, output), question)


@click.command()
@_store
@_window
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
    """Compare tasks, hot partitions and workers now and after the given changes.

    Sources are taken out first, then topics moved, targets added, limits set and traffic multiplied. Nothing is
    written. Exit code 1 when a source cluster could not be read.

    \b
    Example:
      mm2mgr simulate --traffic 1.5 --add-target agg-north
    """
    from mm2mgr.cli.cases import Asked
    from mm2mgr.cli.fleeting import Changes, run_simulate

    changes = Changes(traffic, lose_source, move, add_target, limit)
    return run_simulate(workspace, Asked(store, window, statistic, output), changes)
