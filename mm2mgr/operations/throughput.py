"""The operation `throughput`: roll up what is new, then answer from the roll-ups."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mm2mgr.files import cache_folder

if TYPE_CHECKING:
    from mm2mgr.operations.workspace import Workspace
    from mm2mgr.samples.schema import Store
    from mm2mgr.throughput.hourly import GroupRate, WeekPattern
    from mm2mgr.throughput.rollup_job import Report
    from mm2mgr.throughput.windows import PartitionRate, Throughput

_CURVE_HOURS = 24
Working = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True)
class RolledUp:
    """What a roll-up did: its report, and whether it ran on Spark; no report where nothing was new. `notes` are
    sentences about samples that the answers leave out."""

    report: Report | None
    on_spark: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class BusiestPartitions:
    """The busiest partitions with the bytes per second of the last 24 hours, of how many, and what rates leave out."""

    rates: list[PartitionRate]
    curves: list[list[float]]
    partitions: int
    resets: int
    gaps: int


def roll_up(store: Store, spark: bool | None = None, working: Working = lambda _: nullcontext()) -> RolledUp:
    """Roll up the hours that are new or changed. `spark` None: on Spark where so much is due that it is faster.

    `working` is entered with a sentence while the job runs. Mm2mgrError when the store holds no sample.
    """
    from mm2mgr.samples.clock import ahead, ahead_text
    from mm2mgr.samples.store import SampleStore
    from mm2mgr.throughput.rollup_job import SAMPLES_WORTH_SPARK, due, is_due, make, one_by_one, under_spark_submit

    early = ahead(SampleStore(store).hours(), time.time_ns() // 1_000_000)
    notes = (ahead_text(str(store), early),) if early else ()
    if not is_due(store):
        return RolledUp(None, notes=notes)
    if spark is None:
        spark = under_spark_submit() or due(store).samples > SAMPLES_WORTH_SPARK
    if not spark:
        with working(f"rolling up {store}"):
            return RolledUp(make(store, one_by_one), notes=notes)
    from mm2mgr.samples.schema import log_file_of
    from mm2mgr.sandbox.runtime import find_java, spark_java_home

    home = spark_java_home(find_java())
    from mm2mgr.throughput.job import run

    with working(f"rolling up {store} with Spark"):
        return RolledUp(run(store, java_home=home, log_file=log_file_of(store, cache_folder)), True, notes)


def read_throughput(store: Store, window_seconds: float | None = None) -> Throughput:
    """Return the throughput of the newest whole hours, or of all; Mm2mgrError when nothing was rolled up."""
    from mm2mgr.throughput.windows import last_hours, read_window

    return read_window(store, last_hours(store, window_seconds))


def busiest_partitions(
    store: Store, throughput: Throughput, top: int, *, with_curves: bool = True
) -> BusiestPartitions:
    """Return the partitions with the highest p95, busiest first; `top` 0 is all of them."""
    from mm2mgr.throughput.hourly import hourly
    from mm2mgr.throughput.windows import busiest, rates_of

    rows = busiest(throughput, top)
    curves = hourly(store, throughput.window.last(_CURVE_HOURS), throughput)[rows].tolist() if with_curves else []
    totals = [int(throughput.values[name].sum()) for name in ("resets", "gaps")]
    return BusiestPartitions(rates_of(throughput, rows), curves, len(throughput), *totals)


def group_rates(
    workspace: Workspace, store: Store, throughput: Throughput, by: Literal["topic", "flow"]
) -> list[GroupRate]:
    """Add up the partitions of every topic, or of every flow of the tree; busiest first."""
    from mm2mgr.throughput.hourly import by_flow, by_topic, hourly

    rates = hourly(store, throughput.window, throughput)
    if by == "topic":
        return by_topic(throughput, rates)
    return by_flow(throughput, rates, [(flow.id, flow.source.alias, flow.carries) for flow in workspace.topology.flows])


def week(store: Store, throughput: Throughput) -> WeekPattern:
    """Return the load of everything by day of week and hour of day."""
    from mm2mgr.throughput.hourly import hourly, week_pattern

    return week_pattern(throughput, hourly(store, throughput.window, throughput))
