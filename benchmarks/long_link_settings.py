"""What a mirror of the long-link benchmark is configured with: Kafka's defaults, a published recipe, settings by hand, what mm2mgr compiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mm2mgr.link import BY_SYSTEM, BrokerLimits, Clients, FlowTraffic, Forecast, Leg, Route, predict
from mm2mgr.operations.workspace import Workspace
from mm2mgr.truth.reach import text_of

Placement = Literal["remote consume", "remote produce"]
PLACEMENTS: tuple[Placement, ...] = ("remote consume", "remote produce")
ReadBrokers = Callable[[Workspace], object]
Buffers = Literal["stock", "-1"]
KAFKA, ARTICLE, BY_HAND, COMPILED = "Kafka's defaults", "article", "by hand", "mm2mgr"
RECIPES = (KAFKA, ARTICLE, BY_HAND, COMPILED)
_MIB = 1 << 20
COMPRESSION_RATIO = 2.0
"""Of records of random half bytes, about; what zstd makes of them."""


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
    compression: str = "none"

    @property
    def link_bytes_per_second(self) -> float:
        return self.mbit * 1e6 / 8

    @property
    def topic(self) -> str:
        """The topic that holds its backlog."""
        return f"p{self.partitions}-{self.record_bytes}-{self.compression}"

    @property
    def message_bytes(self) -> int:
        """Largest batch that its topics accept: Kafka's default, more where a record would not fit."""
        return max(BrokerLimits().message_bytes, 2 * self.record_bytes)


# The ends of what links, topics and records can be: round trip in ms, Mbit/s, partitions, tasks, bytes of a record, its compression.
_CORNERS: tuple[tuple[int, int, int, int, int, str], ...] = (
    (1, 1000, 12, 4, 1024, "none"),
    (1, 10, 100, 1, 1024, "none"),
    (300, 10, 1, 1, 1024, "none"),
    (300, 10, 100, 1, 1024, "none"),
    (300, 200, 100, 10, 1024, "none"),
    (100, 200, 12, 4, 100, "none"),
    (100, 200, 12, 4, 1024, "zstd"),
    (100, 200, 1, 1, 10_000_000, "none"),
    (300, 10, 4, 2, 10_000_000, "zstd"),
)


def corners() -> list[Case]:
    """Return the corners with the settings that mm2mgr compiles, in both placements."""
    return [
        Case(placement, rtt, mbit, partitions, tasks, COMPILED, "stock", record, compression)
        for rtt, mbit, partitions, tasks, record, compression in _CORNERS
        for placement in PLACEMENTS
    ]


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


_TREE = """\
owner: benchmark
defaults: {{clusters: {{replication_factor: 1}}}}
clusters:
  {ends.alias}: {{bootstrap_servers: ["{ends.source}"]}}
  tgt: {{bootstrap_servers: ["{ends.target}"]}}
connect:
  bench: {{url: "{ends.connect_url}", kafka: {kafka}}}
links:
  - {{between: [{ends.alias}, tgt], rtt: {case.rtt_ms}ms, bandwidth: {rate:.0f}B/s}}
flows:
  bench: {{sources: [{ends.alias}], targets: [tgt], topics: {{include: [{ends.topic}]}}, run_on: {{tgt: bench}}, tasks: {{max: {case.tasks}}}{more}}}
"""


def limits(case: Case) -> BrokerLimits:
    """Return what the brokers of a row allow."""
    buffer = BrokerLimits().send_buffer_bytes if case.brokers == "stock" else BY_SYSTEM
    return BrokerLimits(buffer, buffer, message_bytes=case.message_bytes, version="4.0", read=True)


def forecast(case: Case, config: Mapping[str, str]) -> Forecast:
    """Return what the link model says of a row with this config."""
    clients = Clients.read(lambda client, key: int(text_of("source", config, client, key)))
    assert clients
    leg = Leg(case.rtt_ms / 1000, case.link_bytes_per_second)
    route = Route.over_link(leg, "target" if case.placement == "remote consume" else "source")
    ratio = 1.0 if case.compression == "none" else COMPRESSION_RATIO
    traffic = FlowTraffic(case.partitions, case.tasks, case.record_bytes, ratio)
    return predict(route, clients, traffic, limits(case), limits(case))


def compiled(case: Case, ends: Ends, folder: Path, read_brokers: ReadBrokers) -> dict[str, str]:
    """Return the config that mm2mgr renders for the row's source connector, from a tree with its link and what its brokers allow."""
    kafka = "tgt" if case.placement == "remote consume" else ends.alias
    folder.mkdir(parents=True)
    # Until the target has the topic, only people know that its records are larger than the brokers' usual limit.
    large = case.message_bytes > BrokerLimits().message_bytes
    more = f", record_producer: {{max.request.size: {case.message_bytes}}}" if large else ""
    tree = _TREE.format(ends=ends, case=case, kafka=kafka, rate=case.link_bytes_per_second, more=more)
    (folder / "tree.yaml").write_text(tree)
    read_brokers(Workspace((folder,)))
    source = next(one for one in Workspace((folder,)).connectors if one.type == "source")
    return {**source.config, "name": ends.alias}


def settings(case: Case) -> dict[str, str]:
    """Return the client settings in which a hand-written recipe differs from Kafka's defaults."""
    recipes: Mapping[str, Mapping[str, object]] = {KAFKA: {}, ARTICLE: _ARTICLE, BY_HAND: _BY_HAND[case.placement]}
    chosen = recipes[case.recipe]
    return {key: str(value) for key, value in chosen.items()}


def config(case: Case, ends: Ends, folder: Path, read_brokers: ReadBrokers) -> dict[str, str]:
    """Return the whole config of the row's MirrorSourceConnector; `folder` is new, for the tree of mm2mgr, whose brokers are read into it."""
    if case.recipe == COMPILED:
        return compiled(case, ends, folder, read_brokers)
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
