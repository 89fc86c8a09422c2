"""What a mirror of the long-link benchmark is configured with: Kafka's defaults, a published recipe, settings by hand, what mm2mgr compiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Placement = Literal["remote consume", "remote produce"]
Buffers = Literal["stock", "-1"]
KAFKA, ARTICLE, BY_HAND = "Kafka's defaults", "article", "by hand"
RECIPES = (KAFKA, ARTICLE, BY_HAND)
_MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """One row to measure."""

    placement: Placement
    rtt_ms: int
    mbit: int
    partitions: int
    tasks: int
    recipe: str
    brokers: Buffers
    record_bytes: int = 1024

    @property
    def link_bytes_per_second(self) -> float:
        return self.mbit * 1e6 / 8


# "Tuning Kafka for high latency" advice as published: 50 MiB for a partition's fetch and for a batch. Buffers and the topic's limit are
# not part of it; what makes the producer accept such a batch at all is added, else its task fails at once.
_ARTICLE: dict[str, object] = {
    "source.consumer.max.partition.fetch.bytes": 50 * _MIB,
    "source.consumer.fetch.max.bytes": 50 * _MIB,
    "producer.override.batch.size": 50 * _MIB,
    "producer.override.linger.ms": 100,
    "producer.override.max.request.size": 60 * _MIB,
    "producer.override.buffer.memory": 128 * _MIB,
}
_BY_HAND: dict[Placement, dict[str, object]] = {
    "remote consume": {
        "source.consumer.receive.buffer.bytes": -1,
        "source.consumer.max.partition.fetch.bytes": 4 * _MIB,
        "source.consumer.fetch.max.bytes": 16 * _MIB,
        "source.consumer.max.poll.records": 2000,
        "producer.override.batch.size": 128 << 10,
        "producer.override.linger.ms": 20,
    },
    "remote produce": {
        "producer.override.send.buffer.bytes": -1,
        "producer.override.batch.size": 900 << 10,
        "producer.override.linger.ms": 100,
        "producer.override.enable.idempotence": "true",
        "producer.override.acks": "all",
        "producer.override.max.in.flight.requests.per.connection": 5,
        "producer.override.max.request.size": 16 * _MIB,
        "producer.override.buffer.memory": 64 * _MIB,
    },
}


@dataclass(frozen=True)
class Ends:
    """The two clusters of a row: the source's alias, both addresses, the topic, and the worker's Connect cluster."""

    alias: str
    source: str
    target: str
    topic: str
    connect_url: str


def settings(case: Case) -> dict[str, str]:
    """Return the client settings in which a hand-written recipe differs from Kafka's defaults."""
    recipes: Mapping[str, Mapping[str, object]] = {KAFKA: {}, ARTICLE: _ARTICLE, BY_HAND: _BY_HAND[case.placement]}
    chosen = recipes[case.recipe]
    return {key: str(value) for key, value in chosen.items()}


def config(case: Case, ends: Ends) -> dict[str, str]:
    """Return the whole config of the row's MirrorSourceConnector."""
    result = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": ends.alias,
        "target.cluster.alias": "tgt",
        "source.cluster.bootstrap.servers": ends.source,
        "target.cluster.bootstrap.servers": ends.target,
        "topics": ends.topic,
        "tasks.max": str(case.tasks),
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "sync.topic.configs.enabled": "false",
        "sync.topic.acls.enabled": "false",
    }
    if case.placement == "remote produce":
        result["producer.override.bootstrap.servers"] = ends.target
    return result | settings(case)
