"""The deal of real connectors: read back it replays exactly at any tasks.max, and it is known before the connector exists."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from mm2mgr.assignment import read_back, round_robin
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.partitions import TopicPartition, listing_of, predict
from tests.live.pair import Pair, serving_pair
from tests.live.seen import DEADLINE_SECONDS, admin, until

pytestmark = pytest.mark.live
SETS, AT_ONCE = 20, 8
NAMES = ("orders.v{}", "dc1-logs-{}", "Metrics_{}", "team.{}.events", "c{}", "iot-device-readings-europe-west-{}")


@dataclass(frozen=True)
class Case:
    """One connector: its topics, and tasks.max before and after a change."""

    name: str
    topics: frozenset[str]
    first: int
    then: int


@dataclass(frozen=True)
class World(Pair):
    def config(self, case: Case, tasks: int) -> dict[str, str]:
        one = ("replication.factor", "offset-syncs.topic.replication.factor")
        return {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "topics": ",".join(name.replace(".", "[.]") for name in sorted(case.topics)),
            "tasks.max": str(tasks),
            "source.cluster.alias": "src",
            "target.cluster.alias": "tgt",
            "source.cluster.bootstrap.servers": self.src.bootstrap_servers,
            "target.cluster.bootstrap.servers": self.tgt.bootstrap_servers,
            "sync.topic.acls.enabled": "false",
            "sync.topic.configs.enabled": "false",
            **dict.fromkeys(one, "1"),
        }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serving_pair(tmp_path_factory.mktemp("assignment"), workers=["w"]) as pair:
        yield World(pair.src, pair.tgt, pair.workers)


def create(access: KafkaAccess, chance: random.Random, names: list[str]) -> None:
    client = admin(access)
    new = [NewTopic(name, chance.randint(1, 5), 1) for name in names]
    for future in client.create_topics(new).values():
        future.result(60)


def cases(chance: random.Random, topics: list[str], numbers: range) -> list[Case]:
    made = []
    for number in numbers:
        chosen = frozenset(chance.sample(topics, chance.randint(9, 60)))
        first, then = chance.sample(range(2, 10), 2)
        made.append(Case(f"deal-{number}", chosen, first, then))
    return made


def test_read_back_is_exact_and_the_prediction_nearly_always(world: World) -> None:
    chance = random.Random(20261121)
    topics = list(dict.fromkeys(name.format(chance.randrange(10 ** chance.randint(2, 6))) for name in NAMES * 24))
    half = SETS // 2
    foreseen = [
        *wave(world, chance, topics[:70], range(half)),
        *wave(world, chance, topics, range(half, SETS)),
    ]
    print(f"predicted exactly before the connector existed: {sum(foreseen)} of {SETS}")
    assert len(foreseen) == SETS
    assert sum(foreseen) >= 0.95 * SETS


def wave(world: World, chance: random.Random, topics: list[str], numbers: range) -> list[bool]:
    """Create the topics that are not there, then judge connectors over parts of them, several at once."""
    create(world.source, chance, [name for name in topics if name not in world.listing()])
    listing = until(world.listing, lambda found: set(found) >= set(topics), "topics")

    async def main() -> list[bool]:
        turns = asyncio.Semaphore(AT_ONCE)
        async with ConnectClient(ConnectTarget("w", (world.url,))) as connect:
            judges = (judged(Judge(world, connect, turns), listing, case) for case in cases(chance, topics, numbers))
            return await asyncio.gather(*judges)

    return asyncio.run(main())


@dataclass(frozen=True)
class Judge:
    """Where connectors are created, so many at once."""

    world: World
    connect: ConnectClient
    turns: asyncio.Semaphore

    async def hands(self, case: Case, tasks: int) -> list[str]:
        """Configure the connector, wait until so many tasks are assigned, and return what each was assigned."""
        await self.connect.put_config(case.name, self.world.config(case, tasks))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                read = await self.connect.tasks(case.name)
                if len(read) == tasks:
                    return [task.config["task.assigned.partitions"] for task in read]
                await asyncio.sleep(0.2)


async def judged(judge: Judge, listing: dict[str, int], case: Case) -> bool:
    """Hold the read-back to the truth, and return whether the prediction was right for both numbers of tasks."""
    predicted = predict(listing_of(listing), lambda topic: topic in case.topics)
    async with judge.turns:
        first, then = [await judge.hands(case, tasks) for tasks in (case.first, case.then)]
        await judge.connect.delete(case.name)
    running = read_back(dict(enumerate(first)))
    assert running.topics == case.topics
    assert running.is_round_robin
    assert assigned(running.order, case.first) == first
    assert assigned(running.order, case.then) == then, "replayed at another tasks.max"
    foreseen = [assigned(predicted.order, tasks) for tasks in (case.first, case.then)]
    return predicted.exact and foreseen == [first, then]


def assigned(order: Sequence[TopicPartition], tasks: int) -> list[str]:
    """Return what tasks get of an order, as Connect spells it."""
    return [",".join(map(str, task)) for task in round_robin(order, tasks).tasks]
