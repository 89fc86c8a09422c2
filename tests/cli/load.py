"""What the load commands start from: a tree whose sources are brokers without a JVM, records in them, and a result.

In: addresses and rates. Out: files on disk. The roll-ups are made as the Spark job makes them, without Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput.rollup_job import make
from tests.fake_connect import FakeConnect, serving
from tests.kafka.quick import Producer
from tests.spec.trees import write

from .command import Command

END_MS = 1_763_722_800_000  # 2025-11-21T11:00:00Z
_TREE = """\
owner: team
clusters:
  a: {{bootstrap_servers: ["{a}"]}}
  b: {{bootstrap_servers: ["{b}"]}}
  hub: {{bootstrap_servers: ["hub:9092"]}}
connect:
  w: {{url: "http://127.0.0.1:1", kafka: hub}}
flows:
  logs: {{sources: [a, b], targets: [hub], topics: {{include: ["logs[.].*"]}}, tasks: {{max: auto, limit: 8}}}}
  orders: {{sources: [a], targets: [hub], topics: {{include: [orders]}}{orders}}}
"""

ORDERS, ORDERS_SOURCE = "orders:a->b", "mm2.a.b.source.orders"
PAIR_HEAD = """\
owner: tester
clusters:
  a: {{bootstrap_servers: ["{a}"]}}
  b: {{cluster_id: fake-kafka-cluster-id, bootstrap_servers: ["{b}"]}}
connect:
  w: {{url: "{url}", kafka: b, history: false}}
flows:
"""
"""A tree of two clusters and a Connect cluster, up to its flows; to be formatted with a, b and url."""
ORDERS_TREE = (
    PAIR_HEAD
    + """\
  orders: {{sources: [a], targets: [b], topics: {{include: [orders]}}, tasks: {{max: 2}}}}
"""
)


@contextmanager
def one_flow(mm2mgr: Command, cluster: KafkaAccess, *, produced: int, mirrored: int) -> Iterator[FakeConnect]:
    """Apply the flow `orders`, which has mirrored some of the records in partition 0 of its topic, which has four."""
    fake = FakeConnect(source_topics={"orders": 4})
    with serving(fake) as url:
        a, b = addresses(cluster)
        write(mm2mgr.tree, x=ORDERS_TREE.format(a=a, b=b, url=url))
        mm2mgr("apply", "--yes")
        produce(cluster, "orders", produced)
        produce(cluster, "a.orders", mirrored)
        fake.add_offsets(ORDERS_SOURCE, "orders", {0: mirrored - 1}, alias="a")
        yield fake


def declare(folder: Path, a: str, b: str, orders: str = "") -> Path:
    """Write the tree: `logs` from a and b, `orders` from a only, to a hub that nobody has to reach."""
    return write(folder, x=_TREE.format(a=a, b=b, orders=orders))


def addresses(mock: KafkaAccess) -> tuple[str, str]:
    """Return the two brokers of a mock cluster, so that two aliases of a tree can name it."""
    first, second = mock.bootstrap_servers.split(",")
    return first, second


def produce(access: KafkaAccess, topic: str, count: int = 1) -> None:
    """Put records of 100 bytes into partition 0; the topic gets the mock's four partitions."""
    with Producer(access, timeout_seconds=10) as producer:
        for _ in range(count):
            producer.send(TopicPartition(topic, 0), b"x" * 100)


def measured(folder: Path, *hours: Mapping[tuple[str, str, int], float], end_ms: int = END_MS) -> Path:
    """Fill a store with hours at one rate each for each (cluster, topic, partition), in records of 100 bytes, rolled up."""
    shutil.rmtree(folder, ignore_errors=True)
    batches = [
        batch for back, rates in enumerate(reversed(hours)) for batch in _batches(rates, end_ms - back * 3_600_000)
    ]
    SampleStore(folder).append(*batches)
    make(folder)
    return folder


def _batches(rates: Mapping[tuple[str, str, int], float], end_ms: int) -> Iterator[Batch]:
    for cluster in sorted({one[0] for one in rates}):
        mine = {one[1:]: rate for one, rate in rates.items() if one[0] == cluster}
        values = list(mine.values())
        yield Batch(
            cluster,
            "prometheus:test",
            end_ms,
            [topic for topic, _ in mine],
            [partition for _, partition in mine],
            resolution_ms=3_600_000,
            bytes_per_second=values,
            records_per_second=[rate / 100 for rate in values],
        )
