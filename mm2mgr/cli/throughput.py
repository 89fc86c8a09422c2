"""How `throughput` goes about it: roll up what is new, then answer from the roll-ups."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mm2mgr.operations.workspace import Workspace
from mm2mgr.output.console import say_json, talk, working
from mm2mgr.output.load_text import say_groups, say_rates, say_week

if TYPE_CHECKING:
    from mm2mgr.throughput.rollup_job import Report
    from mm2mgr.throughput.windows import Throughput

By = Literal["partition", "topic", "flow", "hour"]
_CURVE_HOURS = 24  # behind each partition, one bar an hour


@dataclass(frozen=True)
class Question:
    """What the user asked `throughput` for; `window_seconds` None is everything, `top` 0 no row as text, every row as JSON.

    `spark` says where to roll up; None: on Spark where so much is due that starting it pays.
    """

    store: Path
    window_seconds: float | None = None
    by: By = "partition"
    top: int = 20
    show: bool = False
    spark: bool | None = None
    output: str = "text"


def run_throughput(workspace: Workspace, question: Question) -> int:
    """Roll up what is new (unless `show`) and print the busiest partitions, topics, flows, or the weekly pattern."""
    if not question.show:
        _roll_up(question.store, question.spark)
    from mm2mgr.throughput.windows import last_hours, read_window

    window = last_hours(question.store, question.window_seconds)
    found = read_window(question.store, window)
    if question.by == "partition":
        _partitions(question, found)
    elif question.by == "hour":
        _week(question, found)
    else:
        _groups(workspace, question, found)
    return 0


def _roll_up(store: Path, spark: bool | None) -> None:
    from mm2mgr.samples.clock import ahead, ahead_text
    from mm2mgr.samples.store import SampleStore
    from mm2mgr.throughput.rollup_job import is_due

    samples = SampleStore(store, warn=lambda message: talk(f"  {message}", style="yellow"))
    now_ms = time.time_ns() // 1_000_000
    if early := ahead(samples.hours(), now_ms):
        talk(ahead_text(str(store), early), style="yellow")
    if not is_due(store):
        talk(f"nothing new to roll up in {store}")
        return
    report, where = _made(store, spark)
    for path, reason in report.unreadable.items():
        talk(f"  left out: {path}: {reason}", style="yellow")
    talk(f"{report.samples} samples rolled up {where}, {len(report.made)} roll-ups made in {store}")


def _made(store: Path, spark: bool | None) -> tuple[Report, str]:
    from mm2mgr.throughput.rollup_job import SAMPLES_WORTH_SPARK, due, make, one_by_one, under_spark_submit

    if spark is None:
        spark = under_spark_submit() or due(store).samples > SAMPLES_WORTH_SPARK
    if not spark:
        with working(f"rolling up {store}"):
            return make(store, one_by_one), "in this process"
    from mm2mgr.sandbox.java import find_java, spark_java_home

    home = spark_java_home(find_java())
    from mm2mgr.folders import cache_folder
    from mm2mgr.samples.schema import log_file_of
    from mm2mgr.throughput.job import run

    with working(f"rolling up {store} with Spark"):
        return run(store, java_home=home, log_file=log_file_of(store, cache_folder)), "on Spark"


def _partitions(question: Question, found: Throughput) -> None:
    from mm2mgr.throughput.windows import busiest, hourly, rates_of

    rows = busiest(found, question.top)
    if question.output == "json":
        say_json([asdict(rate) for rate in rates_of(found, rows)])
        return
    shown = rows if question.top else rows[:0]
    curves = hourly(question.store, found.window.last(_CURVE_HOURS), found)[shown]
    totals = {name: int(found.values[name].sum()) for name in ("resets", "gaps")}
    say_rates(rates_of(found, shown), curves.tolist(), len(found), totals, found.window.text())


def _groups(workspace: Workspace, question: Question, found: Throughput) -> None:
    from mm2mgr.throughput.groups import by_flow, by_topic
    from mm2mgr.throughput.windows import hourly

    rates = hourly(question.store, found.window, found)
    if question.by == "topic":
        groups = by_topic(found, rates)
    else:
        flows = [(flow.id, flow.source.alias, flow.carries) for flow in workspace.topology.flows]
        groups = by_flow(found, rates, flows)
    if question.output == "json":
        say_json([asdict(group) for group in (groups[: question.top] if question.top else groups)])
    else:
        say_groups(groups, question.top, question.by, found.window.text())


def _week(question: Question, found: Throughput) -> None:
    from mm2mgr.throughput.groups import week_pattern
    from mm2mgr.throughput.windows import hourly

    pattern = week_pattern(found, hourly(question.store, found.window, found))
    if question.output == "json":
        told: dict[str, Any] = asdict(pattern)
        say_json(told)
    else:
        say_week(pattern, found.window.text())
