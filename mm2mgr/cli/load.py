"""The command `size`, and the options that it shares with other commands about load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr.cli.options import StoreLocation, output_option
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.throughput.rates import Statistic

LEAST_SECONDS = 0.001
SAMPLES = Path(".mm2mgr/samples")
_folder = StoreLocation()


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    name = "duration"

    def __init__(self, least_seconds: float = 0.0) -> None:
        self.least_seconds = least_seconds

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from mm2mgr.spec.quantities import duration_seconds

        try:
            seconds = value if isinstance(value, float) else duration_seconds(value)
        except ValueError as error:
            self.fail(f"{value!r} is not {error}", param, ctx)
        if seconds < self.least_seconds:
            self.fail(f"{value!r} is less than {self.least_seconds * 1000:g}ms", param, ctx)
        return seconds


# The rate that `size`, `fleet` and `simulate` plan with.
by_option = click.option(
    "--by",
    "statistic",
    type=click.Choice(["mean", "p50", "p95", "max"]),
    default="p95",
    show_default=True,
    help="Rate of a task to plan with: p95 lets it be above what is usable in 5 % of the hours.",
)


class _Hours(click.ParamType):  # type: ignore[type-arg]  # as above
    name = "hours"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        first, _, last = str(value).partition("-")
        if not (first.isdecimal() and last.isdecimal() and int(first) < 24 and int(last) <= 24):
            self.fail(f"{value!r} is not a span of hours such as 22-5", param, ctx)
        return int(first), int(last) % 24


@click.command()
@click.argument("flows", nargs=-1)
@click.option("--store", type=_folder, default=SAMPLES, show_default=True, help="Folder that `throughput` rolled up.")
@click.option(
    "--window",
    type=Duration(LEAST_SECONDS),
    default=None,
    help="Only the newest hours, such as 7d (whole hours). Default: 4 weeks.",
)
@by_option
@click.option("--dry-run", is_flag=True, help="Print only; leave overrides/sizing.yaml as it is.")
@click.option("--check", is_flag=True, help="Print only; exit code 2 when a flow has too few tasks today (for CI).")
@click.option("--cool-down", type=Duration(), default="1d", show_default=True, help="Time before a step down.")
@click.option("--off-peak", type=_Hours(), help="Step down only in these hours, UTC, such as 22-5.")
@click.option("--move-budget", type=click.IntRange(0), help="Partitions that steps down may move in this run.")
@click.option("--page", type=click.Path(path_type=Path, dir_okay=False), help="Write a page (one HTML file) too.")
@output_option
@click.pass_obj
def size(
    workspace: Workspace,
    flows: tuple[str, ...],
    store: Path,
    window: float | None,
    statistic: Statistic,
    dry_run: bool,
    check: bool,
    cool_down: float,
    off_peak: tuple[int, int] | None,
    move_budget: int | None,
    page: Path | None,
    output: str,
) -> int:
    """Compute tasks per flow from measured throughput and write them to overrides/sizing.yaml for review.

    The smallest number whose every task fits capacity × threshold when Connect deals it the partitions, hour by hour, within
    min and limit; each number with its reason. Growth of the newest day over the same hours of earlier weeks is made up for. More tasks at once, fewer step by step, nothing where nothing was measured.
    Hand-written numbers outrank the file. Exit code 1 when a source cluster could not be read.

    \b
    Example:
      mm2mgr size --dry-run
    """
    from mm2mgr.cli.sizing import Wanted, run_size
    from mm2mgr.sizing.stability import OffPeak, Policy

    hours = OffPeak(*off_peak) if off_peak else None
    policy = Policy(cool_down, off_peak=hours, moved_partitions=move_budget)
    wanted = Wanted(store, flows, window, statistic, policy, dry_run=dry_run, check=check, output=output, page=page)
    return run_size(workspace, wanted)
