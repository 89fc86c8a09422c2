"""A small estate whose two Connect clusters are fakes, and what a session with it looks like."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.apply import execute, settle
from mm2mgr.apply.execute import apply_plan, read_back
from mm2mgr.apply.waves import Result
from mm2mgr.connectors import Connector
from mm2mgr.errors import KafkaError
from mm2mgr.expand import expand
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.worker_groups import WorkerGroup
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.live.questions import OffsetsSince, PartitionEnds, PlaceInLogs
from mm2mgr.live.reach import Limits
from mm2mgr.live.record_sizes import TopicSizes
from mm2mgr.log_places import AtTime, LogPosition, LogPositions, OfGroup
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.plan.changes import Plan, Wish
from mm2mgr.render import render
from mm2mgr.spec.files import load
from mm2mgr.spec.scalars import log_place
from mm2mgr.topology import Topology
from tests.asking import answer_kafka, make_plan, topics_with
from tests.clock import jumping
from tests.fake_connect import FakeConnect, serving
from tests.spec.trees import write

FLOWS = """\
flows:
  logs: {sources: [a], targets: [east, west], topics: {include: ["logs[.].*"]}}
  orders: {sources: [a], targets: [east], topics: {include: [orders]}}
"""
# What FLOWS comes to: on east two source connectors share a heartbeat and a checkpoint connector.
ON_EAST = [f"mm2.a.east.{name}" for name in ("heartbeat", "source.logs", "source.orders", "checkpoint")]
ON_WEST = [f"mm2.a.west.{name}" for name in ("heartbeat", "source.logs", "checkpoint")]

MANY = 1000
"""Deletes that are allowed where a test says nothing else."""
DEADLINE_SECONDS = 60.0  # a busy machine answers late; a test that waits for what never answers gives a shorter one


@dataclass
class Site:
    folder: Path
    urls: dict[str, str]
    fakes: dict[str, FakeConnect] = field(default_factory=dict)
    owner: str = "team"
    kafka: dict[str, RunningKafka] | None = field(
        default_factory=lambda: {
            "a": topics_with({"orders": 1, "logs.web": 1}),
            "east": topics_with({}),
            "west": topics_with({}),
        }
    )
    """The Kafka clusters; None: no broker answers."""
    ends: Callable[[str, TopicPartition], int] | None = None
    """Log ends of the Kafka clusters, by alias and partition; None: no broker answers."""
    since: Callable[[str, TopicPartition, int], int] | None = None
    """First offsets since a time, -1 for none, by alias, partition and milliseconds; None: no broker answers."""
    stored: dict[str, float] = field(default_factory=dict)
    """What a record takes in topics of the targets."""
    groups: dict[str, Collection[str]] | None = None
    """Consumer groups of the sources, with the topics that they read; None: no broker answers."""
    committed: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """The committed offsets of consumer groups of the sources; a group that is not in it may not be read."""
    members: int = 0
    """How many members these groups have."""
    expiring: list[TopicPartition] = field(default_factory=list)
    """Partitions whose records retention is about to delete."""
    worker_groups: dict[str, tuple[WorkerGroup, ...]] = field(default_factory=dict)
    """The groups of workers on Kafka clusters by alias; the others do not tell them."""
    brokers: dict[str, str] = field(default_factory=dict)
    """Addresses of Kafka clusters by alias, which then keep the history; those of the others lead nowhere."""

    patch: pytest.MonkeyPatch = field(default_factory=pytest.MonkeyPatch)
    """What was replaced for as long as it is there: who replaces more of the same does it with this one."""
    now: float = 1_800_000_000.0
    """The time that times back are counted from, in seconds since 1970."""
    called: dict[str, str] = field(default_factory=dict)
    """What the tree calls a Connect cluster, where that is another name than that of its Kafka cluster."""

    def read_topics(self, access: KafkaAccess) -> RunningKafka:
        """Answer what topics there are, with their records."""
        if self.kafka is None:
            raise KafkaError("no broker answered")
        return self.kafka[access.alias]

    def read_sizes(self, access: KafkaAccess, topics: Mapping[str, int]) -> TopicSizes:
        """Answer as `RecordSizes` does, with one partition per topic and 100 bytes per record."""
        if self.kafka is None:
            raise KafkaError("no broker answered")
        there = self.kafka[access.alias].offsets
        partitions = (TopicPartition(topic, 0) for topic in topics)
        logs = {partition: there.get(partition, Offsets(0, 0)) for partition in partitions}
        return TopicSizes(logs, dict.fromkeys(topics, 100.0))

    def read_stored(self, _access: KafkaAccess, topics: Mapping[str, tuple[int, float]]) -> dict[str, float]:
        """Answer as `StoredSizes` does."""
        return {topic: size for topic, size in self.stored.items() if topic in topics}

    def read_groups(
        self, _access: KafkaAccess, wanted: Callable[[str], bool], carried: Callable[[str], bool]
    ) -> tuple[str, ...]:
        """Answer as `TranslatedGroups` does."""
        if self.groups is None:
            raise KafkaError("no broker answered")
        return tuple(group for group, topics in self.groups.items() if wanted(group) and any(map(carried, topics)))

    def read_ends(self, access: KafkaAccess, question: PartitionEnds) -> dict[TopicPartition, int | None]:
        """Answer as `PartitionEnds` does."""
        if self.ends is None:
            raise KafkaError("no broker answered")
        return {partition: self.ends(access.alias, partition) for partition in question.partitions}

    def read_since(self, access: KafkaAccess, question: OffsetsSince) -> dict[TopicPartition, int]:
        """Answer as `OffsetsSince` does."""
        if self.since is None:
            raise KafkaError("no broker answered")
        return {partition: self.since(access.alias, partition, question.since_ms) for partition in question.partitions}

    def read_place(self, access: KafkaAccess, question: PlaceInLogs) -> LogPositions:
        """Answer as `PlaceInLogs` does; with `since`, where a time is."""
        if self.kafka is None:
            raise KafkaError("no broker answered")
        logs = {p: self.kafka[access.alias].offsets.get(p, Offsets(0, 0)) for p in question.partitions}
        place = log_place(question.place)
        if isinstance(place, OfGroup):
            if place.group not in self.committed:
                raise KafkaError(f"the offsets of group '{place.group}' may not be read", hint="give it Describe")
            offsets = self.committed[place.group]
            return LogPositions({p: LogPosition(log, offsets.get(p)) for p, log in logs.items()}, self.members)
        if isinstance(place, AtTime):
            assert self.since is not None
            found = {p: self.since(access.alias, p, place.resolve(self.now)) for p in logs}
            return LogPositions({p: LogPosition(logs[p], logs[p].end if at < 0 else at) for p, at in found.items()})
        return LogPositions(
            {p: LogPosition(log, log.end if place == "latest" else log.start) for p, log in logs.items()}
        )

    def read_worker_groups(self, access: KafkaAccess) -> tuple[WorkerGroup, ...]:
        """Answer as `WorkerGroups` does."""
        if access.alias not in self.worker_groups:
            raise KafkaError("no broker answered")
        return self.worker_groups[access.alias]

    @property
    def east(self) -> FakeConnect:
        return self.fakes["east"]

    @property
    def west(self) -> FakeConnect:
        return self.fakes["west"]

    def declare(self, flows: str = FLOWS) -> tuple[Topology, tuple[Connector, ...]]:
        lines = [f"owner: {self.owner}", "clusters:"]
        lines += [
            f"  {alias}: {{bootstrap_servers: ['{self.brokers.get(alias, f'{alias}:9092')}'], cluster_id: {alias}}}"
            for alias in ("a", "east", "west")
        ]
        lines += [
            "connect:",
            *(
                f"  {self.called.get(name, name)}: {{url: '{url}', kafka: {name}, history: {str(name in self.brokers).lower()}}}"
                for name, url in self.urls.items()
            ),
        ]
        topology = expand(load([write(self.folder, x="\n".join(lines) + "\n" + flows)]))
        return topology, render(topology)

    def plan(self, flows: str = FLOWS, *, prune: bool = False, mirror_again: bool = False, **options: Any) -> Plan:
        allow = frozenset({*options.pop("allow", ()), *(["mirror-again"] if mirror_again else [])})
        wish = Wish(prune, allow, allow_deletes=options.pop("allow_deletes", MANY))
        return asyncio.run(make_plan(*self.declare(flows), wish, **({"deadline_seconds": DEADLINE_SECONDS} | options)))

    def plan_as_written(self) -> Plan:
        """Plan the files of the tree as they are now."""
        topology = expand(load([self.folder]))
        return asyncio.run(make_plan(topology, render(topology), deadline_seconds=DEADLINE_SECONDS))

    def apply(self, plan: Plan, flows: str = FLOWS, **options: Any) -> list[Result]:
        topology, _ = self.declare(flows)
        seconds = options.pop("deadline_seconds", DEADLINE_SECONDS)
        limits = Limits(connect_seconds=seconds, write_seconds=seconds)

        async def both() -> list[Result]:
            results = await apply_plan(topology, plan, limits=limits, **options)
            found = {each.connector: each for each in await read_back(topology, results, limits)}
            return [found.get(result.connector, result) for result in results]

        return asyncio.run(both())

    def converge(self, flows: str = FLOWS, **options: Any) -> list[Result]:
        return self.apply(self.plan(flows, **options), flows)

    def names(self, cluster: str) -> list[str]:
        return sorted(self.fakes[cluster].connectors)

    def forget(self) -> None:
        """Forget what was requested so far."""
        for fake in self.fakes.values():
            fake.requests.clear()


@contextmanager
def running(folder: Path) -> Iterator[Site]:
    east, west = FakeConnect(cluster_id="east"), FakeConnect(cluster_id="west")
    with (
        serving(east) as east_url,
        serving(west) as west_url,
        pytest.MonkeyPatch.context() as patch,
        jumping(),
    ):
        site = Site(folder, {"east": east_url, "west": west_url}, {"east": east, "west": west}, patch=patch)
        answer_kafka(
            patch,
            topics=site.read_topics,
            sizes=site.read_sizes,
            stored=site.read_stored,
            groups=site.read_groups,
            expiring=lambda: site.expiring,
            ends=site.read_ends,
            since=site.read_since,
            workers=site.read_worker_groups,
            places=site.read_place,
        )
        patch.setattr(execute, "_RACE_SECONDS", 0.0)  # nobody else writes here, unless a test has it so
        patch.setattr(execute, "_LONGEST_RACE_SECONDS", 0.0)
        patch.setattr(execute, "_READ_BACK_SECONDS", 0.5)
        patch.setattr(settle, "HOLD_SECONDS", 0.5)
        yield site


def actions(plan: Plan) -> dict[str, str]:
    return {change.connector: change.action for change in plan.changes}


def errors(results: list[Result]) -> dict[str, str]:
    return {result.connector: result.error for result in results if result.error}
