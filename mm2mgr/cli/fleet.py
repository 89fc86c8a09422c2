"""The commands `fleet` (workers of each Connect cluster, losses, recovery) and `simulate` (the same after given
changes)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr.cli.options import (
    Count,
    Duration,
    Number,
    command,
    evidence_options,
    option,
    output_option,
    page_option,
    snapshot_option,
    write_page,
)
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import EvidenceOptions


@command("Load", 5)
@evidence_options
@option("--lag", type=Duration(), default="1h", help="Lag to recover from, in traffic.")
@option("--lag-records", type=Count(1), help="Lag to recover from, in records of each Connect cluster.")
@option("--workers", type=Count(1), multiple=True, help="Worker count to estimate recovery for (repeatable).")
@option(
    "--session-timeout",
    type=Duration(),
    default="10s",
    help="session.timeout.ms of the workers (not available over REST).",
)
@option(
    "--rebalance-delay",
    type=Duration(),
    default="5min",
    help="scheduled.rebalance.max.delay.ms of the workers (not available over REST).",
)
@page_option
@output_option
@click.pass_obj
@snapshot_option
def fleet(
    workspace: Workspace,
    evidence: EvidenceOptions,
    lag: float,
    lag_records: int | None,
    workers: tuple[int, ...],
    session_timeout: float,
    rebalance_delay: float,
    page: Path | None,
    output: str,
) -> int:
    """Compute the workers that each Connect cluster needs.

    Also shows what each worker runs, what the loss of one or two means, and how long it takes to catch up. From the
    same sizing as `size`, without writing anything but --page. What a worker can carry is declared as `workers:` of
    the Connect cluster.

    \b
    Example:
      mm2mgr fleet --lag 4h --workers 10 --workers 30
    """
    from mm2mgr.operations import Failover, Lag
    from mm2mgr.operations.fleet import fleet as judge_fleet
    from mm2mgr.output.console import say_as
    from mm2mgr.output.load_text import say_fleet

    failover = Failover(session_timeout, rebalance_delay)
    report = judge_fleet(workspace, evidence, lag=Lag(lag, lag_records), worker_counts=workers, failover=failover)
    say_as(output, report, say_fleet)
    if page:
        write_page(page, report.views, report, report.measured)
    return complain_of_sources(report.failures)


def complain_of_sources(failures: Mapping[str, str]) -> int:
    """Print the sources that could not be read; return the exit code."""
    from mm2mgr.output.console import complain

    for message in failures.values():
        complain(f"{message}; its flows are not counted", "check bootstrap_servers and access: of this cluster")
    return 1 if failures else 0


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


@command("Load", 6)
@evidence_options
@option("--traffic", type=Number(0, 1000, min_open=True), help="Multiply all traffic by this.")
@option("--lose-source", multiple=True, metavar="ALIAS", help="Take a source cluster out (repeatable).")
@option("--move", type=_Assigned(), multiple=True, metavar="TOPIC=FLOW", help="Mirror a topic by another flow.")
@option("--add-target", multiple=True, metavar="[FLOW=]ALIAS", help="Mirror all flows, or one, there as well.")
@option("--limit", type=_Assigned(), multiple=True, metavar="FLOW=N", help="Another limit of tasks.")
@output_option
@click.pass_obj
@snapshot_option
def simulate(
    workspace: Workspace,
    evidence: EvidenceOptions,
    traffic: float | None,
    lose_source: tuple[str, ...],
    move: tuple[tuple[str, str], ...],
    add_target: tuple[str, ...],
    limit: tuple[tuple[str, str], ...],
    output: str,
) -> int:
    """Compare tasks and workers before and after a change.

    Sources are taken out first, then topics moved, targets added, limits set and traffic multiplied. Nothing is
    written.

    \b
    Example:
      mm2mgr simulate --traffic 1.5 --add-target agg-north
    """
    from mm2mgr.operations import Changes
    from mm2mgr.operations.fleet import simulate as compare
    from mm2mgr.output.console import say_as
    from mm2mgr.output.load_text import say_comparison

    changes = Changes(traffic, lose_source, move, add_target, limit)
    report = compare(workspace, changes, evidence)
    say_as(output, report, say_comparison)
    return complain_of_sources(report.failures)
