"""A small estate for the tests of `observe`: one flow A->B on a fake Connect, and Kafka clusters that answer from dicts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mm2mgr.connectors import Connector
from mm2mgr.errors import Failure, KafkaSilence
from mm2mgr.expand import expand
from mm2mgr.json_values import to_json
from mm2mgr.kafka.acls import Acl, TopicSettings
from mm2mgr.live.dedicated import DedicatedMirrorMaker
from mm2mgr.live.kafka_state import RunningKafka, WantedLogs
from mm2mgr.live.reach import KafkaReach
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.observe.reading import Patience
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.problems import KINDS
from mm2mgr.problems.connectors import CAUSES
from mm2mgr.problems.health import ConnectorState, FlowStatus, Status
from mm2mgr.problems.kind import LiveProblem
from mm2mgr.problems.status import Observation, observe
from mm2mgr.render import render
from mm2mgr.spec.files import load
from mm2mgr.topology import Flow, Topology
from tests.fake_connect import FakeConnect, serving
from tools.docs import evidence_of

TREE = """
owner: tester
clusters:
  A: {{bootstrap_servers: "a:9092"}}
  B: {{bootstrap_servers: "b:9092"}}
connect:
  cb: {{url: "{url}", kafka: B}}
flows:
  orders:
    sources: [A]
    targets: [B]
    topics: {{include: ["orders.*"]}}
    tasks: {{max: 2}}
    {more}
"""


def topology_of(text: str, directory: Path) -> Topology:
    """Load, validate and expand a tree given as text."""
    file = directory / "tree.yaml"
    file.write_text(text)
    return expand(load([file]))


def flow_of(directory: Path, more: str = "") -> Flow:
    """Return the one flow of the small estate."""
    return topology_of(TREE.format(url="http://127.0.0.1:1", more=more), directory).flows[0]


@dataclass
class FakeKafka:
    """Kafka clusters by alias: topic → (start, end) per partition. Logs what was asked of which cluster."""

    clusters: dict[str, dict[str, list[tuple[int, int]]]]
    down: set[str] = field(default_factory=set)
    asked: list[tuple[str, TopicPartition]] = field(default_factory=list)
    before_read: Callable[[str], None] = lambda alias: None
    ids: dict[tuple[str, str], str] = field(default_factory=dict)
    unread: dict[str, dict[tuple[str, int], str]] = field(default_factory=dict)
    without_ids: set[str] = field(default_factory=set)  # aliases of clusters that give none in time
    settings: dict[tuple[str, str], dict[str, str]] = field(
        default_factory=dict
    )  # by alias and topic, set on the topic
    defaults: dict[str, str] = field(default_factory=dict)  # settings of every other topic
    hidden_settings: set[str] = field(default_factory=set)  # aliases of clusters that do not show them
    groups: dict[str, dict[str, dict[tuple[str, int], int]]] = field(
        default_factory=dict
    )  # alias → group → next offsets
    asked_groups: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    asked_settings: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    acls: dict[tuple[str, str], set[Acl]] = field(default_factory=dict)  # by alias and topic
    hidden_acls: set[str] = field(default_factory=set)  # aliases of clusters that do not show them
    asked_acls: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    dedicated: dict[tuple[str, str], DedicatedMirrorMaker] = field(default_factory=dict)  # by target and source
    asked_ends: list[tuple[str, TopicPartition]] = field(default_factory=list)
    recordless_from: dict[tuple[str, TopicPartition], int] = field(
        default_factory=dict
    )  # the end of each log's records
    searched: list[tuple[str, TopicPartition, int, int]] = field(default_factory=list)
    searched_committed: list[bool] = field(default_factory=list)

    def __call__(self, reach: KafkaReach, choose: WantedLogs) -> RunningKafka:
        access = reach.access
        if choose.is_probe:
            if access.alias in self.down:
                raise KafkaSilence(f"{access.alias}: no broker answered")
            return RunningKafka()
        self.before_read(access.alias)
        if access.alias in self.down:
            return RunningKafka(failure=Failure(f"{access.alias}: no broker answered", "check the network"))
        topics = self.clusters[access.alias]
        if choose.between:
            self.searched += [(access.alias, *place) for place in choose.between]
            self.searched_committed.append(choose.committed)
            recordless = {
                partition
                for partition, begin, end in choose.between
                if begin >= self.recordless_from.get((access.alias, partition), end)
            }
            return RunningKafka(recordless=frozenset(recordless))
        if choose.ends:
            self.asked_ends += [(access.alias, one) for one in choose.ends]
            return RunningKafka(offsets={one: Offsets(*topics[one.topic][one.partition]) for one in choose.ends})
        chosen = choose({name: len(logs) for name, logs in topics.items()})
        self.asked += [(access.alias, one) for one in chosen]
        unread = {one: self.unread[access.alias][one] for one in chosen if one in self.unread.get(access.alias, {})}
        found = {one: Offsets(*topics[one.topic][one.partition]) for one in chosen if one not in unread}
        ids = {name: self.ids.get((access.alias, name), f"{access.alias}-{name}") for name in topics}
        counts = {name: len(logs) for name, logs in topics.items()}
        configs, groups = self._configs(access.alias, choose.configs), self._groups(access.alias, choose.groups)
        acls = self._acls(access.alias, choose.acls)
        dedicated = {
            one: self.dedicated[access.alias, one] for one in choose.dedicated if (access.alias, one) in self.dedicated
        }
        return RunningKafka(
            counts,
            found,
            unread,
            topic_ids={} if access.alias in self.without_ids else ids,
            ids_unread=access.alias in self.without_ids,
            configs=configs,
            acls=acls,
            group_offsets=groups,
            dedicated=dedicated,
        )

    def _groups(self, alias: str, wanted: tuple[str, ...]) -> dict[str, dict[TopicPartition, int]]:
        if wanted:
            self.asked_groups.append((alias, wanted))
        known = self.groups.get(alias, {})
        return {
            name: {TopicPartition(*one): offset for one, offset in known[name].items()}
            for name in wanted
            if name in known
        }

    def _configs(self, alias: str, wanted: frozenset[str]) -> dict[str, TopicSettings]:
        if wanted:
            self.asked_settings.append((alias, wanted))
        if alias in self.hidden_settings:
            return {}
        on_topic = {name: self.settings.get((alias, name), {}) for name in wanted & self.clusters[alias].keys()}
        return {name: TopicSettings(self.defaults | each, each) for name, each in on_topic.items()}

    def _acls(self, alias: str, wanted: frozenset[str]) -> dict[str, frozenset[Acl]]:
        if wanted:
            self.asked_acls.append((alias, wanted))
        shown = set[str]() if alias in self.hidden_acls else wanted & self.clusters[alias].keys()
        return {name: frozenset(self.acls.get((alias, name), ())) for name in shown}


class Estate:
    """The flow `orders:A->B`, everything applied and running, nothing in the topics unless a test says so."""

    source = "mm2.A.B.source.orders"
    checkpoint = "mm2.A.B.checkpoint"
    heartbeat = "mm2.A.B.heartbeat"

    def __init__(self, topology: Topology, connect: FakeConnect, directory: Path) -> None:
        self.topology, self.connect = topology, connect
        self.connectors: tuple[Connector, ...] = render(topology)
        self.kafka = FakeKafka({"A": {"orders": [(0, 0), (0, 0)]}, "B": {"A.orders": [(0, 0), (0, 0)]}})
        self.connect.source_topics = {"orders": 2}
        self.now = 1_000_000.0
        self.memory_file = directory / "state" / "tester.json"
        self.store = directory / "store"
        for connector in self.connectors:
            connect.add(connector.name, _as_fake(connector.config))

    @property
    def options(self) -> ObserveOptions:
        """How to look at it: with its own clock, Kafka and state file."""
        return ObserveOptions(self.kafka, lambda: self.now, 5, Patience(), self.memory_file, self.store)

    def log(self, start: int, end: int, *, partition: int = 0, alias: str = "A", topic: str = "orders") -> None:
        """Set where one partition's log starts and ends."""
        self.kafka.clusters[alias][topic][partition] = (start, end)

    def stored(self, offset: int, *, partition: int = 0, topic: str = "orders") -> None:
        """Store the last replicated offset of one partition."""
        self.connect.add_offsets(self.source, topic, {partition: offset}, alias="A")

    def recreate(self, topic_id: str, *, alias: str = "A", topic: str = "orders") -> None:
        """Give a topic another id, as if it was deleted and created again."""
        self.kafka.ids[alias, topic] = topic_id

    def look(self, *, later_seconds: float = 0.0, only: Iterable[str] | None = None, **more: Any) -> Observation:
        """Look once, this much later than the last time."""
        self.now += later_seconds
        return asyncio.run(observe(self.topology, self.connectors, only=only, options=self.options, **more))

    def status(self, **more: Any) -> Status:
        status = self.look(**more).status
        for problem in status.problems():
            assert_documented(problem)
        return status

    def flow(self, **more: Any) -> FlowStatus:
        return self.status(**more).flows[0]


def kinds(one: ConnectorState) -> list[str]:
    """Return the kinds of the problems of a flow or companion."""
    return [problem.kind for problem in one.problems]


def sentences(one: ConnectorState) -> list[str]:
    """Return the problems of a flow or companion in words, as the terminal and JSON have them."""
    assert one.sentences == to_json(one)["problems"]
    return one.sentences


def assert_documented(problem: LiveProblem) -> None:
    """Hold a problem to the page of its kind: evidence has the documented fields, and no other."""
    assert type(problem.evidence) is KINDS[problem.kind]
    assert to_json(problem.evidence).keys() == evidence_of(KINDS[problem.kind]).keys()
    assert (problem.cause in CAUSES) == problem.kind.endswith("-failed")


@contextmanager
def estate(directory: Path, *, more: str = "", **fake: Any) -> Iterator[Estate]:
    """Serve the small estate."""
    connect = FakeConnect(**fake)
    with serving(connect) as url:
        yield Estate(topology_of(TREE.format(url=url, more=more), directory), connect, directory)


def _as_fake(config: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in config.items() if key != "name"}
