"""Flows on Connect clusters for the tests of fleet, recovery and what-if: loads in, values out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mm2mgr.partitions import TopicPartition, listing_of
from mm2mgr.sizing.fleet import Buffers, ConnectLoad, FlowRun, WorkerLimits
from mm2mgr.sizing.load import Load
from mm2mgr.sizing.scenario import Scenario
from mm2mgr.sizing.tasks import Bounds, CurrentTasks, Profile, Rules, predict_assignment

MB = 1_000_000.0
MIB = 2**20
BUFFERS = Buffers(16 * MIB, 4 * MIB, 32 * MIB)


def run(
    name: str,
    loads: Sequence[float],
    *,
    tasks: int | None = None,
    most: int | None = None,
    records: float | None = None,
) -> FlowRun:
    """Return a flow with a partition for each load, on as many tasks, of 10 MB/s each."""
    count = tasks or max(1, len(loads))
    return FlowRun(name, f"{name}->hub", Load(loads, 7 * MB), count, most or count, 10 * MB, BUFFERS, records)


def connect(
    *runs: FlowRun, worker: WorkerLimits | None = None, side_tasks: int = 0, today: int | None = None
) -> ConnectLoad:
    return ConnectLoad("w", worker or WorkerLimits(), runs, side_tasks, today)


def scenario(
    name: str,
    rates: Mapping[str, float],
    carries: Callable[[str], bool],
    *,
    source: str = "a",
    limit: int | None = None,
    now: CurrentTasks | None = None,
) -> Scenario:
    """Return a flow to hub from a cluster with four partitions of each topic of `rates`, which are per partition."""
    listing = listing_of(dict.fromkeys(rates, 4))
    own = {TopicPartition(topic, number): rates[topic] for topic in rates if carries(topic) for number in range(4)}
    rules = Rules(bounds=Bounds(1, limit))
    return Scenario(
        name,
        source,
        "hub",
        "w",
        listing,
        carries,
        predict_assignment(listing, carries),
        own,
        rules,
        BUFFERS,
        now,
        Profile(dict.fromkeys(own, 100.0)),
    )
