"""Wayfair's published recovery from a lag of 1.15 billion records, beside what `fleet` forecasts; and a restart with 1 billion.

    python benchmarks/published_recovery.py

Published ("Scaling Kafka Mirroring Pipelines at Wayfair", metrics): about 40 minutes on 10 nodes, 18 on 30, with 40 consumer
tasks and 68 partitions. Their record size and the traffic that went on are not published. So the forecast takes what a node
moves from the time on 10 nodes, and is judged by the time on 30; with no traffic meanwhile, and with as much as makes both
times fit. Then a restart of all workers with 1 billion records behind is stepped by hand, task by task, for 20 ways to spread
the tasks evenly over the workers, since after a restart any may come about; `fleet`'s time, which is that of the worst way,
stands beside the best and the worst of them. Last, `fleet` and `simulate` themselves say it, of a tree and a sample store with that
traffic: brokers are mocked, for the list of topics. Exits with 1 where a forecast is off by more than a fifth. No cluster.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from confluent_kafka.admin import AdminClient

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from mm2mgr.evidence.read import Changes, EvidenceOptions  # noqa: E402  # the path comes first
from mm2mgr.kafka.access import KafkaAccess  # noqa: E402
from mm2mgr.operations import Workspace, fleet, simulate  # noqa: E402
from mm2mgr.sizing.fleet import Buffers, ConnectLoad, FlowRun, WorkerLimits  # noqa: E402
from mm2mgr.sizing.load import Load  # noqa: E402
from mm2mgr.sizing.recovery import Lag, recovery, workers_within  # noqa: E402
from tests.cli.load import measured, produce  # noqa: E402

RECORDS = 1.15e9
PUBLISHED_MINUTES = {10: 40.0, 30: 18.0}
PARTITIONS, TASKS = 68, 40
RESTART_RECORDS = 1e9
NODES = 10
WITHIN = 0.2
_STARTING_SECONDS = 15.0  # workers join, tasks start, consumers seek: nothing moves
_STEPS, _WAYS = 4_000, 20
_MOCKED_PARTITIONS = 4  # of each topic that a mock makes


@dataclass(frozen=True)
class Metrics:
    """The workload in records: what comes in per second, and what a node moves per second."""

    incoming: float
    node: float

    def load(self) -> ConnectLoad:
        """Return it as `fleet` judges it: in bytes, with records of one byte."""
        rate = max(self.incoming, 1e-6) / PARTITIONS
        flow = FlowRun(
            *("metrics", "dc1->agg", Load([rate] * PARTITIONS, self.node)),
            *(TASKS, TASKS, self.node, Buffers(0, 0, 0), rate * PARTITIONS),
        )
        return ConnectLoad("metrics", WorkerLimits(TASKS, network_bytes_per_second=self.node), (flow,))

    def minutes(self, nodes: int, records: float) -> float:
        """Return `fleet`'s forecast."""
        seconds = recovery(self.load(), nodes, records / max(self.incoming, 1e-6)).now.seconds
        return math.inf if seconds is None else seconds / 60


def fitted(incoming: float) -> Metrics:
    """Return what a node must move so that the forecast for 10 nodes is the published time."""
    low, high = 1.0, 1e9
    while high - low > 1e-6 * high:
        node = (low + high) / 2
        low, high = (
            (node, high) if Metrics(incoming, node).minutes(NODES, RECORDS) > PUBLISHED_MINUTES[NODES] else (low, node)
        )
    return Metrics(incoming, high)


def traffic_that_fits() -> Metrics:
    """Return the traffic with which both published times fit."""
    low, high = 0.0, RECORDS / (60 * PUBLISHED_MINUTES[NODES])
    while high - low > 1e-6 * RECORDS / 3600:
        incoming = (low + high) / 2
        low, high = (
            (incoming, high) if fitted(incoming).minutes(30, RECORDS) > PUBLISHED_MINUTES[30] else (low, incoming)
        )
    return fitted(high)


def stepped_minutes(metrics: Metrics, nodes: int, records: float, way: Random) -> float:
    """Step a restart by hand: nothing moves at first; then the tasks of a node share what it moves, and those that are
    level leave the rest to the others.
    """
    of_task = [len(range(task, PARTITIONS, TASKS)) / PARTITIONS for task in range(TASKS)]
    behind = [records * share + metrics.incoming * share * _STARTING_SECONDS for share in of_task]
    order = way.sample(range(TASKS), TASKS)
    hands = [order[node::nodes] for node in range(nodes)]
    step = 60 * PUBLISHED_MINUTES[NODES] * 4 / _STEPS
    seconds = _STARTING_SECONDS
    while any(left > 1e-3 for left in behind):
        for hand in hands:
            left = metrics.node * step
            waiting = sorted(hand, key=lambda task: behind[task] + metrics.incoming * of_task[task] * step)
            for place, task in enumerate(waiting):
                there = behind[task] + metrics.incoming * of_task[task] * step
                moved = min(there, left / (len(waiting) - place))
                behind[task] = there - moved
                left -= moved
        seconds += step
    return seconds / 60


_TREE = """\
owner: bench
clusters:
  dc1: {{bootstrap_servers: ["{source}"]}}
  agg: {{bootstrap_servers: ["agg:9092"]}}
connect:
  metrics: {{url: "http://127.0.0.1:1", kafka: agg, workers: {{count: {nodes}, tasks_per_worker: {tasks}, network: {node:.0f}B/s}}}}
flows:
  metrics:
    sources: [dc1]
    targets: [agg]
    topics: {{include: ["metrics[.].*"]}}
    heartbeats: false
    checkpoints: false
    tasks: {{max: {tasks}, limit: {partitions}, capacity: {node:.0f}B/s, threshold: 1.0, record_capacity: {records:.0f}}}
"""
_RECORD_BYTES = 100  # of the store that the tests make


@contextmanager
def metrics_tree(metrics: Metrics, folder: Path) -> Iterator[tuple[Workspace, Path]]:
    """Yield a tree with the workload, whose source is a mock of brokers that lists its partitions, and its sample store."""
    owner = AdminClient({"bootstrap.servers": "ignored", "test.mock.num.brokers": 1})
    broker = next(iter(owner.list_topics(timeout=5).brokers.values()))
    access = KafkaAccess("dc1", f"{broker.host}:{broker.port}")
    topics = [f"metrics.t{number}" for number in range(PARTITIONS // _MOCKED_PARTITIONS)]
    for topic in topics:
        produce(access, topic)  # which creates it
    node = metrics.node * _RECORD_BYTES
    text = _TREE.format(
        source=access.bootstrap_servers,
        nodes=NODES,
        tasks=TASKS,
        partitions=PARTITIONS,
        node=node,
        records=metrics.node,
    )
    (folder / "tree.yaml").write_text(text)
    rate = metrics.incoming * _RECORD_BYTES / PARTITIONS
    store = measured(
        folder / "store",
        {("dc1", topic, number): rate for topic in topics for number in range(_MOCKED_PARTITIONS)},
    )
    yield Workspace((folder / "tree.yaml",)), store
    del owner


def print_commands(metrics: Metrics) -> float:
    """Print what `fleet` and `simulate` say of a restart with 1 billion records; return their largest deviation."""
    worst = 0.0
    with TemporaryDirectory() as folder, metrics_tree(metrics, Path(folder)) as (workspace, store):
        lag = Lag(records=RESTART_RECORDS, within_seconds=20 * 60.0)
        report = fleet(workspace, EvidenceOptions(store), lag=lag, worker_counts=(5, 10, 20, 30))
        outlook = report.connects["metrics"].outlook
        print("fleet --lag-records 1000000000 --within 20min, of a sample store with that traffic:")
        for recovery_on in outlook.recoveries:
            forecast = metrics.minutes(recovery_on.workers, RESTART_RECORDS)
            minutes = (recovery_on.now.seconds or math.inf) / 60
            worst = max(worst, abs(minutes / forecast - 1))
            print(f"  {recovery_on.workers} nodes with {recovery_on.tasks} tasks: {minutes:.1f} min")
        print(f"  {outlook.within.reason if outlook.within else outlook.note}")
        tripled = simulate(workspace, Changes(traffic=3.0), EvidenceOptions(store))
        before, after = (outcome.needs["metrics"] for outcome in (tripled.before, tripled.after))
        print(f"simulate --traffic 3: {before.workers_needed} nodes needed before, {after.workers_needed} after")
    return worst


def main() -> int:
    """Print published, forecast and stepped times; return 1 where one is too far off."""
    worst = 0.0
    for title, metrics in (("no traffic meanwhile", fitted(0.0)), ("traffic that fits both", traffic_that_fits())):
        off = metrics.minutes(30, RECORDS) / PUBLISHED_MINUTES[30] - 1
        worst = max(worst, abs(off))
        print(
            f"1.15 billion records, {title}: {metrics.incoming:,.0f} records/s come in, a node moves {metrics.node:,.0f}"
        )
        for nodes, published in PUBLISHED_MINUTES.items():
            how = "fitted" if nodes == NODES else f"{off * 100:+.0f} %"
            print(
                f"  {nodes} nodes: published {published:.0f} min, forecast {metrics.minutes(nodes, RECORDS):.1f} min ({how})"
            )
    metrics = traffic_that_fits()
    print(
        f"restart with 1 billion records behind, {_STARTING_SECONDS:.0f} s until tasks move, {_WAYS} ways to spread them:"
    )
    for nodes in (5, 10, 20, 30):
        forecast = (
            metrics.minutes(nodes, RESTART_RECORDS + metrics.incoming * _STARTING_SECONDS) + _STARTING_SECONDS / 60
        )
        times = sorted(stepped_minutes(metrics, nodes, RESTART_RECORDS, Random(seed)) for seed in range(_WAYS))
        off = forecast / times[-1] - 1
        worst = max(worst, abs(off))
        print(
            f"  {nodes} nodes: stepped {times[0]:.1f} to {times[-1]:.1f} min, forecast {forecast:.1f} min"
            f" ({off * 100:+.0f} % of the slowest)"
        )
    within = workers_within(metrics.load(), RESTART_RECORDS / metrics.incoming, "1 billion records", 20 * 60.0)
    print(f"fewest nodes within 20 min of 1 billion records: {within.reason}")
    worst = max(worst, print_commands(metrics))
    print(f"worst deviation: {worst * 100:.0f} %")
    return int(worst > WITHIN)


if __name__ == "__main__":
    sys.exit(main())
