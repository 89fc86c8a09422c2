"""What `check` and `failover check` ask about schemas: ids in a sample of records, and a cluster's schema registry.

No snapshot holds these answers: they come from records, and from a system that is no cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.endpoints import registry_target
from mm2mgr.live.questions import KafkaQuestion
from mm2mgr.live.snapshot import Answers, Question
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.registry.ids import RegisteredSchema, SampleOfTopic, SchemaId, TopicSample

if TYPE_CHECKING:
    from mm2mgr.live.reach import KafkaReach, Limits
    from mm2mgr.registry.client import CannotResolve, RegistryClient
    from mm2mgr.topology import KafkaCluster

RECORDS_PER_PLACE = 10
"""Read at the end and at the start of a log, which may have been written with other schemas."""
PARTITIONS_PER_TOPIC = 3
_LIMIT_BYTES = 64_000_000


@dataclass(frozen=True)
class SchemaIds(KafkaQuestion[dict[str, TopicSample]]):
    """The schema ids in a sample of records of topics, each with its partitions; absent: no time was left for it."""

    topics: tuple[tuple[str, int], ...]

    def ask(self, reach: KafkaReach) -> dict[str, TopicSample]:
        seconds = min(reach.limits.measuring_seconds, reach.limits.kafka_seconds)
        return read_schema_ids(reach, dict(self.topics), seconds)


def read_schema_ids(reach: KafkaReach, topics: Mapping[str, int], seconds: float) -> dict[str, TopicSample]:
    """Return what records at the ends of the logs of topics (name → partitions) carry, then at their starts.

    The largest partitions are read. Topics are absent of which nothing came in time. Blocks; raises KafkaError.
    """
    from mm2mgr.kafka.record_windows import read_windows
    from mm2mgr.kafka.records import Message, ReadLimits, read_logs

    every = [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]
    with reach.connect(seconds) as kafka:
        logs = read_logs(kafka, every).found
    samples = {topic: SampleOfTopic(topic) for topic in topics}
    chosen: dict[str, list[TopicPartition]] = {}
    for partition in sorted(logs, key=lambda partition: logs[partition].start - logs[partition].end):
        of_topic = chosen.setdefault(partition.topic, [])
        if logs[partition].end > logs[partition].start and len(of_topic) < PARTITIONS_PER_TOPIC:
            of_topic.append(partition)

    def take(message: Message) -> None:
        samples[message.topic()].add(message.key(), message.value(), message.headers() or ())

    def refuse(partition: TopicPartition, reason: str) -> None:
        samples[partition.topic].failure = reason

    sampled = [partition for partitions in chosen.values() for partition in partitions]
    rounds = [
        {partition: window for partition in sampled if (window := place(logs[partition]))}
        for place in (_last_records, _first_records)
    ]
    limits = ReadLimits(RECORDS_PER_PLACE, _LIMIT_BYTES, seconds)
    read_windows(reach.access, rounds, limits, take, refuse)
    done = {topic for topic, partitions in chosen.items() if not partitions}
    done |= {topic for topic, sample in samples.items() if sample.records or sample.failure}
    return {topic: samples[topic].result() for topic in topics if topic in done}


def _last_records(log: Offsets) -> Offsets | None:
    return Offsets(max(log.start, log.end - RECORDS_PER_PLACE), log.end)


def _first_records(log: Offsets) -> Offsets | None:
    """Return the window at the start of a log, None where the one at its end has these records."""
    end = min(log.start + RECORDS_PER_PLACE, log.end - RECORDS_PER_PLACE)
    return Offsets(log.start, end) if end > log.start else None


# --- registries -------------------------------------------------------------------------------------------------------


Resolved = Mapping[SchemaId, Any]
"""By id its RegisteredSchema, None where there is none, or the Mm2mgrError why it cannot be looked up there."""


@dataclass(frozen=True)
class SchemasById(Question[dict[SchemaId, Any]]):
    """What the schema registry of a cluster has under some ids."""

    ids: frozenset[SchemaId]


async def ask_registry(cluster: KafkaCluster, questions: Sequence[SchemasById], limits: Limits) -> Answers:
    """Return the answers of the registry of one cluster, or why there is none; each id is looked up once."""
    from mm2mgr.registry.client import CannotResolve, RegistryClient

    gate = asyncio.Semaphore(limits.at_once)
    ids = sorted({schema_id for question in questions for schema_id in question.ids})

    async def look_up(registry: RegistryClient, schema_id: SchemaId) -> RegisteredSchema | CannotResolve | None:
        async with gate:
            try:
                return await registry.schema(schema_id)
            except CannotResolve as error:
                return error

    try:
        target, model = registry_target(cluster), cluster.model.schema_registry
        assert model is not None  # or it has no target
        async with RegistryClient(target, model.api, model.ids, deadline_seconds=limits.connect_seconds) as registry:
            answers = await asyncio.gather(*(look_up(registry, schema_id) for schema_id in ids))
    except Mm2mgrError as error:
        return dict.fromkeys(questions, error)
    schemas = dict(zip(ids, answers, strict=True))
    return {question: {schema_id: schemas[schema_id] for schema_id in question.ids} for question in questions}
