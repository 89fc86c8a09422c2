"""Topics and records in a sandbox's clusters, for people without a Kafka client at hand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from mm2mgr.errors import SandboxError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.producer import Producer
from mm2mgr.sandbox.layout import Sandbox


def topics(directory: Path, cluster: str) -> dict[str, int]:
    """Return the partitions of each topic of a cluster; Kafka's own topics are left out."""
    with Kafka(_access(directory, cluster)) as kafka:
        return {name: count for name, count in sorted(kafka.partition_counts().items()) if not name.startswith("__")}


def create_topic(directory: Path, cluster: str, topic: str, partitions: int) -> bool:
    """Create a topic; return False where it exists already, and is left as it is."""
    with Kafka(_access(directory, cluster)) as kafka:
        return bool(kafka.create_topics({topic: (partitions, 1, {})}))


def produce(directory: Path, cluster: str, topic: str, values: Iterable[bytes]) -> int:
    """Write a record per value to the partitions in turn; return the number once all are stored."""
    access = _access(directory, cluster)
    with Kafka(access) as kafka:
        partitions = kafka.partition_counts().get(topic, 0)
    if not partitions:
        raise SandboxError(
            f"no topic '{topic}' on {cluster}", hint=f"create it: mm2mgr sandbox topic create {cluster} {topic}"
        )
    number = 0
    with Producer(access) as producer:
        for value in values:
            producer.send((topic, number % partitions), value)
            number += 1
    return number


def lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """Return the lines of a stream as values, without their ends."""
    return (line.removesuffix(b"\n").removesuffix(b"\r") for line in stream)


def random_values(count: int, size: int) -> Iterator[bytes]:
    """Return values that do not compress."""
    return (os.urandom(size) for _ in range(count))


def _access(directory: Path, cluster: str) -> KafkaAccess:
    clusters = Sandbox(directory).endpoints().bootstrap_servers
    if cluster not in clusters:
        raise SandboxError(f"no cluster '{cluster}' in {directory}", hint=f"clusters here: {', '.join(clusters)}")
    return KafkaAccess(cluster, clusters[cluster])
