"""Commands about load: sample (Kafka → Parquet) and throughput (Spark)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr.cli.foreign import KINDS, Asked
from mm2mgr.cli.options import Duration, output_option
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.cli.throughput import By

LEAST_SECONDS = 0.001
SAMPLES = Path(".mm2mgr/samples")
_folder = click.Path(path_type=Path, file_okay=False)


# The rate that `size`, `fleet` and `simulate` plan with.
by_option = click.option(
    "--by",
    "statistic",
    type=click.Choice(["mean", "p50", "p95", "max"]),
    default="p95",
    show_default=True,
    help="Load of a task to plan with: p95 lets it exceed the usable capacity in 5 % of the hours.",
)


@click.command()
@click.option(
    "--store", type=_folder, default=SAMPLES, show_default=True, help="Folder of Parquet samples, appended to."
)
@click.option(
    "--interval", type=Duration(LEAST_SECONDS), default="30s", show_default=True, help="Time between two samples."
)
@click.option("--duration", type=Duration(), default="5min", show_default=True, help="How long to sample.")
@click.option("--follow", is_flag=True, help="Sample until interrupted, instead of --duration.")
@click.option("--cluster", "aliases", multiple=True, help="Only this source cluster (repeat the option).")
@click.option(
    "--keep",
    type=Duration(LEAST_SECONDS),
    default=None,
    help="Remove samples older than this, such as 90d. Default: none.",
)
@click.option(
    "--from",
    "kind",
    type=click.Choice(["kafka", *KINDS]),
    default="kafka",
    show_default=True,
    help="Where samples come from; others than Kafka are declared under metrics: of the clusters.",
)
@click.option(
    "--back",
    type=Duration(),
    default="0s",
    help="How much of the past a first run takes from Prometheus or Cruise Control's REST, such as 24h.",
)
@click.pass_obj
def sample(
    workspace: Workspace,
    store: Path,
    interval: float,
    duration: float,
    follow: bool,
    aliases: tuple[str, ...],
    keep: float | None,
    kind: str,
    back: float,
) -> int:
    """Record the traffic of every mirrored topic at an interval.

    Appends end offsets and record sizes as Parquet samples. Also looks once a minute at the offsets that connectors commit, to measure what one task carries while it lags.
    With --follow a cluster that fails is asked less and less often until it answers, and only what changes is printed;
    SIGTERM and Ctrl-C end it after the round. Exit code 1 when a cluster could not be read in any round.

    \b
    Example:
      mm2mgr sample --interval 30s --duration 1h
      mm2mgr sample --follow --interval 1min --keep 90d
      mm2mgr sample --from prometheus --back 24h
    """
    from mm2mgr.cli.sampling import run_sample

    asked = None if kind == "kafka" else Asked(kind, interval, back)
    return run_sample(workspace, store, interval, None if follow else duration, aliases, keep, asked)


@click.command()
@click.option("--store", type=_folder, default=SAMPLES, show_default=True, help="Folder that `sample` wrote.")
@click.option(
    "--window",
    type=Duration(LEAST_SECONDS),
    default=None,
    help="Only the newest hours, such as 24h (whole hours). Default: all.",
)
@click.option(
    "--by",
    type=click.Choice(["partition", "topic", "flow", "hour"]),
    default="partition",
    show_default=True,
    help="What to print; `hour` is the pattern by day of week and hour of day.",
)
@click.option(
    "--top",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Rows to print, busiest first; 0: no row as text, every row as JSON.",
)
@click.option("--show", is_flag=True, help="Only print what is rolled up already.")
@click.option(
    "--spark/--no-spark", default=None, help="Where to roll up. Default: Spark when over 10 million samples are due."
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

    Only hours with new samples cost anything, and what one process does before a JVM is warm needs neither Spark nor Java.
    Percentiles over several hours are at most 2 % off; means and maxima are exact. Spark needs Java 17+; the same job
    runs on a cluster: spark-submit mm2mgr/throughput/job.py --store DIR, or any command as spark-submit mm2mgr/__main__.py.

    \b
    Example:
      mm2mgr throughput --window 24h --top 10
      mm2mgr throughput --show --by flow
    """
    from mm2mgr.cli.throughput import Question, run_throughput

    return run_throughput(workspace, Question(store, window, by, top, show, spark, output))
