"""The commands about load, from samples to workers: `sample`, `throughput`, `size`, `fleet` and `simulate`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from mm2mgr.cli.interrupts import handle_signals
from mm2mgr.cli.options import (
    Count,
    Duration,
    Number,
    Parsed,
    command,
    evidence_options,
    option,
    output_option,
    page_option,
    sample_options,
    snapshot_option,
    spark_option,
    store_option,
    window_option,
    write_page,
)
from mm2mgr.errors import ExitCode
from mm2mgr.operations.workspace import Workspace
from mm2mgr.text import number_of

if TYPE_CHECKING:
    from mm2mgr.operations import EvidenceOptions, Round
    from mm2mgr.operations.sample import SampleOrder
    from mm2mgr.operations.size import SizingReport


@command("Load", 4)
@click.argument("flows", nargs=-1)
@evidence_options
@option("--dry-run", is_flag=True, help="Do not write overrides/sizing.yaml.")
@option(
    "--check",
    is_flag=True,
    help="Print only, and tell by the exit code whether a flow has too few tasks today (for CI).",
)
@option(
    "--balance",
    is_flag=True,
    help="Compare ways to assign each flow's partitions: today's, stock Connect's, by load, and the least possible.",
)
@page_option
@output_option
@click.pass_obj
@snapshot_option
def size(
    workspace: Workspace,
    flows: tuple[str, ...],
    evidence: EvidenceOptions,
    dry_run: bool,
    check: bool,
    balance: bool,
    page: Path | None,
    output: str,
) -> int:
    """Compute tasks per flow from measured throughput, for review.

    Writes them to overrides/sizing.yaml. The smallest number whose every task fits capacity × threshold when Connect
    assigns it partitions, hour by hour, within min and limit; each number with its reason. If a topic grew since
    earlier weeks, their hours count at today's level. More tasks at once, fewer step by step, no change where nothing
    was measured. Numbers written by hand in the tree outrank the file.

    \b
    Example:
      mm2mgr size --dry-run
    """
    from mm2mgr.operations.size import size as size_flows

    report = size_flows(
        workspace,
        flows,
        replace(evidence, ways=balance),
        write=not (dry_run or check),
        report=lambda report: _say_sizing(workspace, report, output, page),
    )
    code = _say_written(report)
    if check and report.too_small:
        from mm2mgr.output.console import complain

        complain(f"too few tasks: {', '.join(report.too_small)}", "mm2mgr size, then review and apply")
        return ExitCode.DIFFERS
    return code


def _say_sizing(workspace: Workspace, report: SizingReport, output: str, page: Path | None) -> None:
    from mm2mgr.output.console import complain, say_json
    from mm2mgr.output.load_text import say_sizings, say_ways

    try:  # before a reader of stdout can leave
        if page:
            write_page(page, report.views, measured=report.measured)
    finally:
        if output == "json":
            say_json(report)
        else:
            say_sizings(report.sizings, {flow.id: flow.tasks for flow in workspace.topology.flows}, report.forecasts)
            say_ways(report.ways)
        for message in report.failures.values():
            complain(f"{message}; its flows are not sized", "their entries stay as they are")


def _say_written(report: SizingReport) -> int:
    from mm2mgr.output.console import complain, talk

    path = report.path
    if path and (report.is_changed or not report.refused):
        talk(f"{path} {'written: review it, then plan' if report.is_changed else 'is up to date'}")
    if report.refused:
        message = f"{path}: not written for {', '.join(report.refused)}: the entries changed while size was running"
        complain(message, "look at what others wrote, then run size again")
    return 1 if report.failures or report.refused else 0


@command("Load", 5)
@evidence_options
@option("--lag", type=Duration(), default="1h", help="Lag to recover from, in traffic.")
@option("--lag-records", type=Count(1), help="Lag to recover from, in records of each Connect cluster.")
@option("--workers", type=Count(1), multiple=True, help="Worker count to estimate recovery for (repeatable).")
@option(
    "--lose",
    type=Count(1),
    multiple=True,
    help="Number of workers that are lost at once (repeatable; without it one, and two).",
)
@option("--within", type=Duration(), help="Name the workers that work off the lag within this time, such as 20min.")
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
    lose: tuple[int, ...],
    within: float | None,
    session_timeout: float,
    rebalance_delay: float,
    page: Path | None,
    output: str,
) -> int:
    """Compute the workers that each Connect cluster needs.

    Also shows what each worker runs, what the loss of some means, and how long it takes to catch up. From the
    same sizing as `size`, without writing anything but --page. What a worker can carry is declared as `workers:` of
    the Connect cluster.

    \b
    Example:
      mm2mgr fleet --lag 4h --workers 10 --workers 30
      mm2mgr fleet --lag 4h --within 20min
      mm2mgr fleet --lose 3
    """
    from mm2mgr.operations import Failover, Lag
    from mm2mgr.operations.size import fleet as judge_fleet
    from mm2mgr.output.console import say_as
    from mm2mgr.output.load_text import say_fleet

    failover = Failover(session_timeout, rebalance_delay, lose)
    asked = Lag(lag, lag_records, within)
    report = judge_fleet(workspace, evidence, lag=asked, worker_counts=workers, failover=failover)
    try:
        if page:
            write_page(page, report.views, report, report.measured)
    finally:
        say_as(output, report, say_fleet)
    return complain_of_sources(report.failures)


def complain_of_sources(failures: Mapping[str, str]) -> int:
    """Print the sources that could not be read; return the exit code."""
    from mm2mgr.output.console import complain

    for message in failures.values():
        complain(f"{message}; its flows are not counted", "check bootstrap_servers and access: of this cluster")
    return 1 if failures else 0


def _assignment(form: str) -> Parsed:
    def parse(text: str) -> tuple[str, str]:
        left, sign, right = text.partition("=")  # topics cannot hold one
        if not (left and sign and right):
            raise ValueError(f"is not of the form {form}")
        return left, right

    return Parsed("name=value", parse)


@command("Load", 6)
@evidence_options
@option("--traffic", type=Number(0, 1000, min_open=True), help="Multiply all traffic by this.")
@option("--lose-source", multiple=True, metavar="ALIAS", help="Take a source cluster out (repeatable).")
@option(
    "--move",
    type=_assignment("TOPIC=FLOW"),
    multiple=True,
    metavar="TOPIC=FLOW",
    help="Mirror a topic by another flow.",
)
@option("--add-target", multiple=True, metavar="[FLOW=]ALIAS", help="Mirror all flows, or one, there as well.")
@option("--limit", type=_assignment("FLOW=N"), multiple=True, metavar="FLOW=N", help="Another limit of tasks.")
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
    from mm2mgr.operations.size import simulate as compare
    from mm2mgr.output.console import say_as
    from mm2mgr.output.load_text import say_comparison

    changes = Changes(traffic, lose_source, move, add_target, limit)
    report = compare(workspace, changes, evidence)
    say_as(output, report, say_comparison)
    return complain_of_sources(report.failures)


By = Literal["partition", "topic", "flow", "hour", "growth"]


@command("Load", 2)
@store_option("Folder or URI that `sample` wrote to.")
@window_option("24h", "all")
@option(
    "--by",
    type=click.Choice(["partition", "topic", "flow", "hour", "growth"]),
    default="partition",
    help="What to print; `hour` is the pattern by day of week and hour of day, `growth` topics week against week.",
)
@option("--top", type=Count(0), default=20, help="Rows to print, busiest first; 0: no row as text, every row as JSON.")
@option("--show", is_flag=True, help="Only print what is rolled up already.")
@spark_option
@option(
    "--prepare-spark",
    is_flag=True,
    help="Only make the archive of classes with which Spark starts in half the time (20 s, 160 MB).",
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
    prepare_spark: bool,
    output: str,
) -> int:
    """Roll up samples by hour; print bytes/s and records/s.

    Only hours with new samples cost anything. They are rolled up on Spark where PySpark, Java 17+ and 2.5 GiB of memory
    are found, else in this process; the numbers are the same. Percentiles over several hours are at most 2 % off; means
    and maxima are exact. On a cluster: spark-submit mm2mgr/throughput/job.py --store DIR, or any command as spark-submit
    mm2mgr/__main__.py. --show starts nothing.

    \b
    Example:
      mm2mgr throughput --window 24h --top 10
      mm2mgr throughput --show --by flow
    """
    from mm2mgr.operations.size import busiest_partitions, group_rates, growth, read_throughput, week
    from mm2mgr.output.console import say_as, say_json
    from mm2mgr.output.load_text import say_groups, say_growth, say_rates, say_week

    if prepare_spark:
        from mm2mgr.operations.size import prepare_spark as prepare
        from mm2mgr.output.console import say, working

        say(str(prepare(working)))
        return 0
    if not show:
        _roll_up(workspace, store, spark)
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
        say_as(output, week(store, rates), lambda pattern: say_week(pattern, measured))
    elif by == "growth":
        topics = growth(store, rates)
        fastest = topics[: top or (None if as_json else 0)]
        say_as(output, fastest, lambda rows: say_growth(rows, len(topics), measured))
    else:
        groups = group_rates(workspace, store, rates, by)
        if as_json:
            say_json([asdict(group) for group in (groups[:top] if top else groups)])
        else:
            say_groups(groups, top, by, measured)
    return 0


def _roll_up(workspace: Workspace, store: Path, spark: bool | None) -> None:
    from mm2mgr.operations.size import roll_up
    from mm2mgr.output.console import talk, working

    done = roll_up(workspace, store, spark, working)
    for note in done.notes:
        talk(note, style="yellow")
    if done.report is None:
        talk(f"nothing new to roll up in {store}")
        return
    for path, reason in done.report.unreadable.items():
        talk(f"  left out: {path}: {reason}", style="yellow")
    roll_ups = number_of(len(done.report.made), "roll-up")
    talk(f"{number_of(done.report.samples, 'sample')} rolled up {done.engine}, {roll_ups} made in {store}")


@command("Load", 1)
@store_option("Folder or URI (s3://…) of the tables, appended to.")
@sample_options
@option("--duration", type=Duration(), default="5min", help="How long to sample.")
@option("--follow", is_flag=True, help="Sample until interrupted, instead of --duration.")
@option("--throughput", is_flag=True, help="With --follow: also roll up each hour, as `mm2mgr throughput` does.")
@click.pass_obj
def sample(
    workspace: Workspace, store: Path, sampling: SampleOrder, duration: float, follow: bool, throughput: bool
) -> int:
    """Record the traffic of every mirrored topic at an interval.

    Appends end offsets and record sizes to the table `samples`. Also looks once per minute at the offsets that
    connectors commit, to measure what one task carries while it lags, and as `status` does, for trends (see `lag`)
    and for records that may never arrive (see `losses`). With --follow a cluster that fails is asked less and less
    often until it answers, and only what changes is printed; SIGTERM and Ctrl-C end it after the round. With --throughput
    each hour is rolled up a minute after its end, on Spark where `mm2mgr throughput` would be; its session stays.

    Cruise Control's topic is decoded and stored by tasks of Spark where it is found. Each commit records how far the
    topic was read, so that a run that is killed loses and repeats nothing.

    \b
    Example:
      mm2mgr sample --interval 30s --duration 1h
      mm2mgr sample --follow --interval 1min --keep 90d --throughput
      mm2mgr sample --from prometheus --back 24h
      mm2mgr sample --from cruise-control-topic --follow
    """
    from mm2mgr.operations.sample import sample as run
    from mm2mgr.operations.throughput import RollUpOrder, roll_ups_beside
    from mm2mgr.output.console import complain, log_lines, say, talk
    from mm2mgr.output.load_text import say_followed_round, say_roll_up, say_round

    if throughput and not follow:
        raise click.UsageError("--throughput needs --follow")
    order = replace(sampling, duration_seconds=None if follow else duration)
    stop, log = threading.Event(), log_lines()

    def warn(message: str) -> None:
        if follow:
            log("sample", message, "yellow")
        else:
            talk(f"  {message}", style="yellow")

    def progress(round_: Round) -> None:
        """Print each round of a bounded run; when following for months, the first and what changes."""
        if follow:
            say_followed_round(round_, log)
        else:
            say_round(round_.number, round_.samples, round_.news)

    roll_ups = RollUpOrder(store, order.spark)
    beside = roll_ups_beside(workspace, roll_ups, partial(say_roll_up, log=log)) if throughput else nullcontext()
    with handle_signals(stop.set), beside:  # as a service manager expects: the loop ends after its round
        done = run(workspace, order, progress, warn, stop)
    if done.interrupted:
        say(f"stopped; the samples so far are in {store}")
    else:
        say(f"{done.samples} samples of {len(done.clusters)} clusters in {store}")
    if done.never_read:
        hint = f"check {'bootstrap_servers and access:' if order.source == 'kafka' else 'metrics:'} of these clusters"
        complain(f"never read: {', '.join(sorted(done.never_read))}", hint)
    return 1 if done.never_read else 0
