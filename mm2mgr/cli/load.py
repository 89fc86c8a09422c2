"""Commands about load: sample (Kafka → Parquet), throughput (Spark), size (→ a reviewed overrides file)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr.cli.estate import Estate, output_option

if TYPE_CHECKING:
    from mm2mgr.throughput.rates import Statistic

SAMPLES = Path(".mm2mgr/samples")
THROUGHPUT = Path(".mm2mgr/throughput")
_folder = click.Path(path_type=Path, file_okay=False)


class _Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from mm2mgr.spec.quantities import duration_seconds

        try:
            return value if isinstance(value, float) else duration_seconds(value)
        except ValueError as error:
            self.fail(f"{value!r} is not {error}", param, ctx)


@click.command()
@click.option(
    "--store", type=_folder, default=SAMPLES, show_default=True, help="Folder of Parquet samples, appended to."
)
@click.option("--interval", type=_Duration(), default="30s", show_default=True, help="Time between two samples.")
@click.option("--duration", type=_Duration(), default="5min", show_default=True, help="How long to sample.")
@click.option("--follow", is_flag=True, help="Sample until interrupted, instead of --duration.")
@click.option("--cluster", "aliases", multiple=True, help="Only this source cluster (repeat the option).")
@click.pass_obj
def sample(
    estate: Estate, store: Path, interval: float, duration: float, follow: bool, aliases: tuple[str, ...]
) -> int:
    """Read end offsets and record sizes of every mirrored topic at an interval; append them as Parquet samples.

    Exit code 1 when a cluster could not be read in any round.

    \b
    Example:
      mm2mgr sample --interval 30s --duration 1h
    """
    from mm2mgr.cli.loading import run_sample

    return run_sample(estate, store, interval, None if follow else duration, aliases)


@click.command()
@click.option("--samples", type=_folder, default=SAMPLES, show_default=True, help="Folder that `sample` wrote.")
@click.option("--result", type=_folder, default=THROUGHPUT, show_default=True, help="Folder for the result (Parquet).")
@click.option(
    "--window", type=_Duration(), default=None, help="Only the last part of the samples, such as 24h. Default: all."
)
@click.option(
    "--top", type=click.IntRange(0), default=20, show_default=True, help="How many partitions to print, busiest first."
)
@click.option("--show", is_flag=True, help="Print the last result; starts no Spark and needs no Java.")
@output_option
def throughput(samples: Path, result: Path, window: float | None, top: int, show: bool, output: str) -> int:
    """Turn samples into bytes/s and records/s per partition (mean, p50, p95, max) with a local PySpark job.

    The same job runs on a cluster: spark-submit mm2mgr/throughput/job.py --samples DIR --output DIR. Needs Java 17+.

    \b
    Example:
      mm2mgr throughput --window 24h --top 10
    """
    from mm2mgr.cli.loading import run_throughput

    return run_throughput(samples, result, window, top, show=show, output=output)


@click.command()
@click.argument("flows", nargs=-1)
@click.option("--result", type=_folder, default=THROUGHPUT, show_default=True, help="Folder that `throughput` wrote.")
@click.option(
    "--by",
    "statistic",
    type=click.Choice(["mean", "p50", "p95", "max"]),
    default="p95",
    show_default=True,
    help="Rate to plan with.",
)
@click.option("--dry-run", is_flag=True, help="Print only; leave overrides/sizing.yaml as it is.")
@output_option
@click.pass_obj
def size(estate: Estate, flows: tuple[str, ...], result: Path, statistic: Statistic, dry_run: bool, output: str) -> int:
    """Compute tasks per flow from measured throughput and write them to overrides/sizing.yaml for review.

    Tasks = load / (capacity × threshold), within min and limit, never above the partitions; each number with its
    reason. Hand-written numbers outrank the file. Exit code 1 when a source cluster could not be read.

    \b
    Example:
      mm2mgr size --dry-run
    """
    from mm2mgr.cli.loading import run_size

    return run_size(estate, flows, result, statistic, dry_run=dry_run, output=output)
