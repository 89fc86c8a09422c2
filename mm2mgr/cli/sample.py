"""The commands `sample` (which clusters, for how long, what is printed meanwhile) and `samples` (work on a store as a
whole)."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr.cli.interrupts import handle_signals
from mm2mgr.cli.options import LEAST_SECONDS, Duration, DurationWithUnit, command, option, store_option
from mm2mgr.metric_sources import METRIC_SOURCES
from mm2mgr.operations.workspace import Workspace

_WITH_PAST = " or ".join(kind.past for kind in METRIC_SOURCES if kind.past)

if TYPE_CHECKING:
    from mm2mgr.operations import Round


@command("Load", 1)
@store_option("Folder or URI (s3://…) of the tables, appended to.")
@option("--interval", type=Duration(LEAST_SECONDS), default="30s", help="Time between two samples.")
@option("--duration", type=Duration(), default="5min", help="How long to sample.")
@option("--follow", is_flag=True, help="Sample until interrupted, instead of --duration.")
@option("--cluster", "aliases", multiple=True, help="Only this source cluster (repeatable).")
@option(
    "--keep", type=DurationWithUnit(LEAST_SECONDS), help="Remove samples older than this, such as 90d. Default: none."
)
@option(
    "--from",
    "kind",
    type=click.Choice(["kafka", *(kind.name for kind in METRIC_SOURCES)]),
    default="kafka",
    help="Where samples come from; others than Kafka are declared under metrics: of the clusters.",
)
@option(
    "--back",
    type=Duration(),
    default="0s",
    show_default=False,
    help=f"How much of the past a first run takes from {_WITH_PAST}, such as 24h.",
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

    Appends end offsets and record sizes to the table `samples`. Also looks once per minute at the offsets that
    connectors commit, to measure what one task carries while it lags, and as `status` does, for trends (see `lag`)
    and for records that may never arrive (see `losses`). With --follow a cluster that fails is asked less and less
    often until it answers, and only what changes is printed; SIGTERM and Ctrl-C end it after the round.

    \b
    Example:
      mm2mgr sample --interval 30s --duration 1h
      mm2mgr sample --follow --interval 1min --keep 90d
      mm2mgr sample --from prometheus --back 24h
    """
    from mm2mgr.operations.sample import SampleOrder
    from mm2mgr.operations.sample import sample as run
    from mm2mgr.output.console import complain, say, talk
    from mm2mgr.output.load_text import say_round

    order = SampleOrder(store, interval, None if follow else duration, aliases, keep, kind, back)
    stop = threading.Event()

    def progress(round_: Round) -> None:
        """Print each round of a bounded run; when following for months, the first and what changes."""
        shown = round_.number == 1 or not follow
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} " if follow else ""
        say_round(round_.number if shown else None, round_.samples, round_.news, at)

    with handle_signals(stop.set):  # as a service manager expects: the loop ends after its round
        done = run(workspace, order, progress, lambda message: talk(f"  {message}", style="yellow"), stop)
    if done.interrupted:
        say(f"stopped; the samples so far are in {store}")
    else:
        say(f"{done.samples} samples of {len(done.clusters)} clusters in {store}")
    if done.never_read:
        hint = f"check {'bootstrap_servers and access:' if kind == 'kafka' else 'metrics:'} of these clusters"
        complain(f"never read: {', '.join(sorted(done.never_read))}", hint)
    return 1 if done.never_read else 0
