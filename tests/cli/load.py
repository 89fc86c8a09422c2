"""What the load commands start from: a tree whose sources are brokers without a JVM, records in them, and a result.

In: addresses and rates. Out: files on disk. The result is written as the Spark job writes it, without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.producer import Producer
from mm2mgr.partitions import TopicPartition
from mm2mgr.throughput.rates import PartitionRate
from mm2mgr.throughput.table import RESULT_FILE
from tests.spec.trees import write

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


def measured(folder: Path, rates: Mapping[tuple[str, str, int], float]) -> Path:
    """Write a throughput result: (cluster, topic, partition) → bytes per second, the same for every statistic."""
    rows = [rate_of(*one, rate) for one, rate in rates.items()]
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([vars(row) for row in rows]), folder / RESULT_FILE)
    return folder


def rate_of(cluster: str, topic: str, partition: int, rate: float) -> PartitionRate:
    """Return an hour at one rate, in records of 100 bytes."""
    measured = (END_MS - 3_600_000, END_MS, 61, 3600.0, 0, 0)
    records = rate / 100
    return PartitionRate(
        cluster, topic, partition, *measured, rate, rate, rate, rate, records, records, records, records, 100.0
    )
