"""Traffic sets on real brokers, several at once: sampled and sized by mm2mgr, mirrored by real connectors, measured without it.

In go sets, out comes an Outcome for each. It judges nothing, and leaves topics, connectors and processes nowhere.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mm2mgr.assignment import read_back, round_robin
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.evidence.measured import read_rates
from mm2mgr.kafka.client import Kafka
from mm2mgr.partitions import TopicPartition, listing_of
from mm2mgr.samples.follow import Schedule, follow
from mm2mgr.samples.readers import KafkaReader, RecordSizes
from mm2mgr.samples.store import SampleStore
from mm2mgr.sizing.tasks import Bounds, Capacity, Prediction, Rules, Sizing, predict_assignment
from mm2mgr.throughput.rollup_job import make
from tests.live.pair import Pair, serving_pair
from tests.live.seen import delete, until
from tests.sizing.sizes import size_flow

from .traffic import HOT, Producing, TrafficSet
from .traffic_measure import Mirrored
from .traffic_verdict import Outcome

SOURCE, TARGET = "src", "tgt"
_DRAWS = 60
_DEADLINE_SECONDS = 180.0
# Dozens of tasks on a small machine: a few full requests a second instead of hundreds of small ones.
_UNHURRIED = {
    "source.consumer.fetch.min.bytes": "65536",
    "source.consumer.fetch.max.wait.ms": "250",
    "producer.override.linger.ms": "100",
    "producer.override.batch.size": "65536",
}


@dataclass(frozen=True)
class Spans:
    """How long, in seconds: traffic stored before anybody looks, between samples, sampling, measuring at the target."""

    history: float = 40.0
    interval: float = 10.0
    sampled: float = 60.0
    measured: float = 40.0


@dataclass(frozen=True)
class World(Pair):
    def config(self, each: TrafficSet, tasks: int) -> dict[str, str]:
        bytes_as_they_are = "org.apache.kafka.connect.converters.ByteArrayConverter"
        return {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "topics": ",".join(name.replace(".", "[.]") for name in each.topics),
            "tasks.max": str(tasks),
            "source.cluster.alias": SOURCE,
            "target.cluster.alias": TARGET,
            "source.cluster.bootstrap.servers": self.src.bootstrap_servers,
            "target.cluster.bootstrap.servers": self.tgt.bootstrap_servers,
            "replication.factor": "1",
            "sync.topic.acls.enabled": "false",
            "sync.topic.configs.enabled": "false",
            "emit.offset-syncs.enabled": "false",
            **_UNHURRIED,
            **dict.fromkeys(("key.converter", "value.converter", "header.converter"), bytes_as_they_are),
        }


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Start a source, a target and a worker; on the way out all of them are ended."""
    # Some thirty tasks, each with a consumer and a producer.
    with serving_pair(folder, workers=["w"], heap="1g") as pair:
        yield World(pair.src, pair.tgt, pair.workers)


def run(world: World, sets: Sequence[TrafficSet], store: Path, seed: int, spans: Spans | None = None) -> list[Outcome]:
    """Judge sets that flow at the same time, each with a connector of its own; their topics are gone afterwards."""
    spans = spans or Spans()
    topics = {name: count for each in sets for name, count in each.topics.items()}
    with Kafka(world.source, timeout_seconds=60) as kafka:
        kafka.create_topics({name: (count, 1, {}) for name, count in topics.items()})
    until(world.listing, lambda found: set(found) >= set(topics), "topics")
    with Producing(world.src.bootstrap_servers, sets, spans.history, seed):
        _sample(world, set(topics), store, spans)
        plans = _plans(world, sets, store, random.Random(seed))
        outcomes = asyncio.run(_mirrored(world, plans, spans))
    delete(world.source, list(topics))
    delete(world.target, [f"{SOURCE}.{name}" for name in topics])
    return outcomes


@dataclass(frozen=True)
class Plan:
    """What mm2mgr makes of a set before its connector exists."""

    traffic: TrafficSet
    prediction: Prediction
    sizing: Sizing
    planned: Mapping[TopicPartition, float]
    mean: Mapping[TopicPartition, float]


def _sample(world: World, topics: set[str], store: Path, spans: Spans) -> None:
    reader = KafkaReader(world.source, topics.__contains__, sizes=RecordSizes())
    follow([reader], Schedule(spans.interval, spans.sampled), SampleStore(store), lambda _: None)
    make(store)


def _plans(world: World, sets: Sequence[TrafficSet], store: Path, chance: random.Random) -> list[Plan]:
    planned, mean = (read_rates(store, None, by).by_cluster[SOURCE] for by in ("p95", "mean"))
    listing, plans = listing_of(world.listing()), []
    for each in sets:
        prediction = predict_assignment(listing, each.topics.__contains__)
        own, own_mean = (
            {one: float(rates[one.topic][one].max()) for one in prediction.order} for rates in (planned, mean)
        )
        capacity = Capacity(_usable(each, prediction.order, chance) / 0.7, 0.7)
        sizing = size_flow(each.name, prediction, own, Rules(capacity, Bounds()))
        plans.append(Plan(each, prediction, sizing, own, own_mean))
    return plans


def _usable(each: TrafficSet, order: Sequence[TopicPartition], chance: random.Random) -> float:
    """Choose what a task may carry: of many draws the one furthest from every load that it is compared with.

    At the line itself two measurements of one truth may differ; `sent` is known here as it never is in production.
    Only sets that are about hot partitions get one, where there is a choice.
    """
    rates = [each.sent[one].bytes_per_second for one in order]
    draws = [sum(rates) / chance.uniform(2.0, 4.5) for _ in range(_DRAWS)]
    cold = [] if each.skew in HOT else [usable for usable in draws if usable > max(rates)]
    return max(cold or draws, key=lambda usable: _clearance(rates, usable))


def _clearance(rates: Sequence[float], usable: float) -> float:
    """Return how far, as a share, the nearest partition and the nearest busiest task of any number are from what is usable."""
    rest = [0.0 if rate > usable else rate for rate in rates]
    busiest = [max(sum(rest[task::tasks]) for task in range(tasks)) for tasks in range(1, len(rates) + 1)]
    return min(abs(load / usable - 1) for load in (*rates, *busiest))


async def _mirrored(world: World, plans: Sequence[Plan], spans: Spans) -> list[Outcome]:
    async with ConnectClient(ConnectTarget("w", (world.url,))) as connect:
        hands = await asyncio.gather(*(_deploy(world, connect, plan.traffic, plan.sizing.tasks) for plan in plans))
        arrived = Mirrored(world.source, world.tgt, SOURCE)
        measured = await asyncio.to_thread(arrived.measure, [plan.traffic for plan in plans], spans.measured)
        others = [_other(plan.sizing.tasks, len(plan.prediction.order)) for plan in plans]
        again = await asyncio.gather(
            *(_deploy(world, connect, p.traffic, n) for p, n in zip(plans, others, strict=True))
        )
        await asyncio.gather(*(connect.delete(plan.traffic.name) for plan in plans))
    return [
        Outcome(
            plan.traffic.name,
            plan.traffic.skew,
            plan.sizing,
            round_robin(plan.prediction.order, plan.sizing.tasks).tasks,
            _parsed(first),
            _replays(first, then),
            plan.planned,
            plan.mean,
            {one: measured.records[one] for one in plan.prediction.order},
            {one: measured.logs[one] for one in plan.prediction.order},
        )
        for plan, first, then in zip(plans, hands, again, strict=True)
    ]


def _other(tasks: int, partitions: int) -> int:
    """Return another number of tasks, to which the assignment that is read back must apply too."""
    return tasks + 1 if tasks < partitions else max(1, tasks - 1)


async def _deploy(world: World, connect: ConnectClient, each: TrafficSet, tasks: int) -> list[str]:
    """Configure the connector, wait until so many tasks are assigned, and return what each was assigned."""
    await connect.put_config(each.name, world.config(each, tasks))
    async with asyncio.timeout(_DEADLINE_SECONDS):
        while True:
            read = sorted(await connect.tasks(each.name), key=lambda task: task.id)
            if len(read) == tasks:
                return [task.config["task.assigned.partitions"] for task in read]
            await asyncio.sleep(0.2)


def _parsed(assigned: Sequence[str]) -> list[list[TopicPartition]]:
    names = [[text.rpartition("-") for text in hand.split(",")] for hand in assigned]
    return [[TopicPartition(topic, int(number)) for topic, _, number in hand] for hand in names]


def _replays(first: Sequence[str], then: Sequence[str]) -> bool:
    """Tell whether what is read back from the first assignment gives the second."""
    order = read_back(dict(enumerate(first))).order
    return [list(task) for task in round_robin(order, len(then)).tasks] == _parsed(then)
