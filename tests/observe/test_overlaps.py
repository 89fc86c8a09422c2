"""What mirrors a flow's topics beside it: any connectors together, compared with where each would put each record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.connect.types import SOURCE_CLASS
from mm2mgr.connectors import ConnectorStatus, RunningConnector, TaskConfig, TaskStatus
from mm2mgr.errors import Failure
from mm2mgr.json_values import to_json
from mm2mgr.live.dedicated import DedicatedMirrorMaker
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.observe.reading import LiveConnector, OtherConnector, Reading, SeenConnect
from mm2mgr.problems.flows import find_overlaps
from mm2mgr.render import render
from mm2mgr.topology import Topology
from tests.examples import draw_examples
from tests.observe.estate import topology_of

TREE = """
owner: tester
clusters:
  A: {bootstrap_servers: "a:9092"}
  B: {bootstrap_servers: "b:9092"}
connect:
  cb: {url: "http://c:8083", kafka: B}
flows:
  x: {sources: [A], targets: [B], topics: {include: [x]}}
  y: {sources: [A], targets: [B], topics: {include: [y], exclude: [nothing]}}
  rests: {sources: [A], targets: [B], topics: {include: [z]}, state: stopped}
  fine: {sources: [A], targets: [B], topics: {include: [w]}, silence: {overlap: "wanted"}}
"""
TOPICS = ("orders", "orders.eu", "orders-us", "payments", "A.x")
TRANSFORMS = "org.apache.kafka.connect.transforms."
NAMED = f"{TRANSFORMS}predicates.TopicNameMatches"
HEADER = f"{TRANSFORMS}predicates.HasHeaderKey"
WAYS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "marks": {"type": f"{TRANSFORMS}InsertHeader", "header": "via", "value.literal": "b"},
    "routes": {"type": f"{TRANSFORMS}RegexRouter", "regex": "A\\.(.*)", "replacement": "copy.$1"},
    "routes nothing": {"type": f"{TRANSFORMS}RegexRouter", "regex": "nothing", "replacement": "copy"},
    "drops all": {"type": f"{TRANSFORMS}Filter"},
    "drops orders": {"type": f"{TRANSFORMS}Filter", "predicate.type": NAMED, "predicate.pattern": "A\\.orders"},
    "only eu": {"type": f"{TRANSFORMS}Filter", "negate": "true", "predicate.type": HEADER, "predicate.name": "eu"},
    "not eu": {"type": f"{TRANSFORMS}Filter", "predicate.type": HEADER, "predicate.name": "eu"},
    "someone's": {"type": "com.example.Route"},
}


@dataclass(frozen=True)
class Runs:
    """How a connector runs: what it takes, in which way, and in which state; with the names that it gives."""

    takes: tuple[str, ...] = ("orders",)
    leaves: tuple[str, ...] = ()
    way: str = "plain"
    state: str = "RUNNING"
    tasks: tuple[str, ...] = ("RUNNING",)
    enabled: bool = True
    identity: bool = False
    alias: str = "A"
    separator: str = "."
    silences: bool = False

    @property
    def config(self) -> dict[str, str]:
        config = {
            "connector.class": SOURCE_CLASS,
            "source.cluster.alias": self.alias,
            "source.cluster.bootstrap.servers": "a:9092",
            "target.cluster.alias": "B",
            "target.cluster.bootstrap.servers": "b:9092",
            "topics": ",".join(self.takes),
            "topics.exclude": ",".join(self.leaves),
            "enabled": str(self.enabled).lower(),
            "replication.policy.separator": self.separator,
        }
        if self.identity:
            config["replication.policy.class"] = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
        if self.silences:
            config["mm2mgr.silence.overlap"] = "both are wanted"
        if way := WAYS[self.way]:
            config["transforms"] = "t"
            for key, value in way.items():
                config[f"predicates.p.{key[10:]}" if key.startswith("predicate.") else f"transforms.t.{key}"] = value
            if "predicate.type" in way:
                config |= {"predicates": "p", "transforms.t.predicate": "p"}
        return config

    @property
    def mirrors(self) -> bool:
        """Whether it would put records anywhere."""
        works = any(state != "FAILED" for state in self.tasks) if self.tasks else self.state != "FAILED"
        return self.enabled and works and self.state not in ("PAUSED", "STOPPED")

    def puts(self, topic: str) -> tuple[str, str, str] | None:
        """Where it puts the records of a topic: its name, who else may have changed it, and which of the records; None: nowhere."""
        if not any(item in (topic, ".*") or (item == "orders.*" and topic.startswith("orders")) for item in self.takes):
            return None
        if topic in self.leaves or self.way == "drops all":
            return None
        name = topic if self.identity else f"{self.alias}{self.separator}{topic}"
        if self.way == "drops orders" and name == "A.orders":
            return None
        if self.way == "routes" and name.startswith("A."):
            name = f"copy.{name[2:]}"
        return name, self.way if self.way == "someone's" else "", self.way if self.way.endswith("eu") else ""


def _doubled(one: Runs, other: Runs, topics: tuple[str, ...]) -> list[str]:
    """Topics of which records surely arrive from both; two ways to choose records by what they hold may have none in common."""
    doubled = []
    for topic in topics if one.mirrors and other.mirrors else ():
        first, second = one.puts(topic), other.puts(topic)
        if first and second and first[:2] == second[:2] and (first[2] == second[2] or "" in (first[2], second[2])):
            doubled.append(topic)
    return sorted(doubled)


@dataclass
class Beside:
    """The flows of the tree as they run, and what runs beside them."""

    flows: Mapping[str, Runs] = field(default_factory=dict)
    others: Mapping[str, Runs] = field(default_factory=dict)
    dedicated: Runs | None = None
    source_is_down: bool = False

    def read(self) -> Reading:
        """Return what a look reads of it."""
        live = {}
        for connector in render(_topology()):
            if connector.type == "source" and (runs := self.flows.get(connector.flows[0].partition(":")[0])):
                parts = [f"{topic}-0" for topic in TOPICS if runs.puts(topic)]
                tasks = (TaskConfig(0, {"task.assigned.partitions": ",".join(parts)}),)
                status = _status(connector.name, runs)
                running = RunningConnector(connector.name, runs.config, (0,), status=status, tasks=tasks)
                live[connector.name] = LiveConnector(connector, running)
        others = tuple(
            OtherConnector("cb", name, runs.config, _status(name, runs).work_state, "unmarked")
            for name, runs in self.others.items()
        )
        dedicated = {"A": DedicatedMirrorMaker(1, self.dedicated.config)} if self.dedicated else {}
        kafka = {
            "A": RunningKafka(failure=Failure("no answer"))
            if self.source_is_down
            else RunningKafka(dict.fromkeys(TOPICS, 1)),
            "B": RunningKafka({}, dedicated=dedicated),
        }
        connect = SeenConnect("cb", live, others=others, version="4.1.0")
        return Reading(0.0, _topology().flows, {"cb": connect}, kafka, declared=_topology().flows)

    def named(self) -> dict[tuple[str, str], list[str]]:
        """Return the topics that the problems name, by flow and by the other connector."""
        overlaps, _ = find_overlaps(self.read())
        return {
            (flow.partition(":")[0], to_json(problem.evidence)["other"]): to_json(problem.evidence)["topics"]
            for flow, problems in overlaps.items()
            for problem in problems
        }

    def doubled(self) -> dict[tuple[str, str], list[str]]:
        """Return what must be named: of declared connectors, where one of the two runs otherwise than declared (here: all of them do)."""
        beside = {f"cb/{name}": runs for name, runs in self.others.items()}
        if self.dedicated:
            beside["A-mm2 on B"] = self.dedicated
        found = {}
        for flow, runs in self.flows.items():
            declared = {
                f"cb/mm2.A.B.source.{other}": other_runs for other, other_runs in self.flows.items() if other != flow
            }
            for name, other_runs in (beside | declared).items():
                is_silenced = flow == "fine" or name.endswith(
                    ".fine"
                )  # what others say of themselves counts for nothing
                if (topics := _doubled(runs, other_runs, TOPICS)) and not is_silenced:
                    found[flow, name] = topics
        return found


def _status(name: str, runs: Runs) -> ConnectorStatus:
    return ConnectorStatus(name, runs.state, tasks=tuple(TaskStatus(at, state) for at, state in enumerate(runs.tasks)))


@cache
def _topology() -> Topology:
    with TemporaryDirectory() as folder:
        return topology_of(TREE, Path(folder))


items = st.lists(
    st.sampled_from(["orders", "orders.eu", "payments", "orders.*", ".*"]), min_size=1, max_size=3, unique=True
)
connectors = st.builds(
    Runs,
    items.map(tuple),
    st.sampled_from(TOPICS).map(lambda topic: (topic,)) | st.just(()),
    st.sampled_from(["plain"] * 6 + [*WAYS]),
    st.sampled_from(["RUNNING"] * 8 + ["PAUSED", "STOPPED", "FAILED", "UNASSIGNED"]),
    st.sampled_from([("RUNNING",)] * 4 + [("RUNNING", "FAILED"), ("FAILED", "FAILED"), ()]),
    st.sampled_from([True] * 9 + [False]),
    st.sampled_from([False] * 6 + [True]),
    st.sampled_from(["A"] * 7 + ["elsewhere"]),
    st.sampled_from(["."] * 7 + ["_"]),
    st.sampled_from([False] * 5 + [True]),
)
flows = st.dictionaries(st.sampled_from(["x", "y", "rests", "fine"]), connectors, min_size=1)
others = st.dictionaries(st.sampled_from(["legacy", "other", "third"]), connectors, min_size=1)


@pytest.mark.long
@draw_examples(200)
@given(flows=flows, others=others, dedicated=st.none() | connectors, source_is_down=st.booleans())
def test_exactly_what_puts_records_where_a_flow_does_is_named(
    flows: dict[str, Runs],
    others: dict[str, Runs],
    dedicated: Runs | None,
    source_is_down: bool,
) -> None:
    if dedicated:  # runs, or its group has no members
        dedicated = Runs(**(vars(dedicated) | {"state": "RUNNING", "tasks": ()}))
    beside = Beside(flows, others, dedicated, source_is_down)
    if source_is_down and any(runs.way.startswith("drops") for runs in flows.values()):
        return  # their tasks have such topics, and which these are is not known without the source
    assert beside.named() == beside.doubled()
