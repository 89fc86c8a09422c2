"""On real brokers and a real worker: topics created again, records that retention took, and a connector left paused."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from mm2mgr.apply.execute import apply_plan
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.types import parse_stored
from mm2mgr.connectors import Connector
from mm2mgr.json_values import to_json
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.records import Producer, read
from mm2mgr.live.endpoints import connect_target, kafka_access
from mm2mgr.observe.losses import Acknowledgement, LossEntry
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.partitions import TopicPartition
from mm2mgr.problems.health import Status
from mm2mgr.problems.status import acknowledge, status
from mm2mgr.render import render
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import kafka_runtime
from mm2mgr.topology import Topology
from tests.asking import make_plan
from tests.live.conftest import serving
from tests.live.seen import admin, delete, topics, until
from tests.observe.estate import sentences, topology_of

pytestmark = pytest.mark.live

TREE = """
owner: losses
defaults:
  clusters: {{replication_factor: 1}}
clusters:
  A: {{bootstrap_servers: "{a}"}}
  B: {{bootstrap_servers: "{b}"}}
connect:
  cb: {{url: "{url}", kafka: B}}
flows:
  stopped: {{sources: [A], targets: [B], topics: {{include: [stopped]}}, heartbeats: false, checkpoints: false}}
  running: {{sources: [A], targets: [B], topics: {{include: [running]}}, heartbeats: false, checkpoints: false}}
  aged: {{sources: [A], targets: [B], topics: {{include: [aged]}}, heartbeats: false, checkpoints: false}}
  audited: {{sources: [A], targets: [B], topics: {{include: [audited]}}, heartbeats: false, checkpoints: false}}
  rest: {{sources: [A], targets: [B], topics: {{include: [rest]}}, heartbeats: false, checkpoints: false}}
  revived:
    sources: [A]
    targets: [B]
    topics: {{include: [revived]}}
    heartbeats: false
    checkpoints: false
    source_consumer: {{allow.auto.create.topics: true}}
"""
NAMES = {"stopped": 1, "running": 1, "aged": 1, "audited": 4, "rest": 1, "revived": 1}
"""Topics and flows, and how many partitions they have."""


@dataclass
class World:
    """Two brokers and a worker with everything applied, 500 records of each topic mirrored and their offsets stored."""

    text: str
    topology: Topology
    connectors: tuple[Connector, ...]
    options: ObserveOptions

    def status(self, name: str) -> Status:
        only = [f"{name}:A->B"]
        return asyncio.run(status(self.topology, self.connectors, only=only, options=self.options))

    def produce(self, topic: str, records: int, named: str = "record") -> None:
        """Write records with ids to all partitions of a topic in turn."""
        with Producer(kafka_access(self.topology.clusters["A"])) as producer:
            for number in range(records):
                producer.send((topic, number % NAMES[topic]), f"{named} {number}".encode())
            producer.flush()

    def delete_records(self, topic: str, before: dict[int, int]) -> None:
        """Delete what is before an offset of some partitions."""
        wanted = [confluent_kafka.TopicPartition(topic, number, offset) for number, offset in before.items()]
        for future in admin(kafka_access(self.topology.clusters["A"])).delete_records(wanted).values():
            future.result(30)

    def ids(self, cluster: str, topic: str) -> dict[bytes, tuple[int, int]]:
        """Return partition and offset of each record in a topic by its id."""
        places = [TopicPartition(topic, number) for number in range(4)]
        found = read(kafka_access(self.topology.clusters[cluster]), places)
        return {one.value: (one.partition, one.offset) for one in found if one.value is not None}

    def recreate(self, topic: str) -> None:
        """Delete a topic and create it again, unless a client that asks for it was faster."""
        access = kafka_access(self.topology.clusters["A"])
        before = self.topic_id(topic)
        delete(access, [topic])
        until(lambda: topic not in topics(access) or self.topic_id(topic) != before, bool, f"{topic} is deleted")
        with Kafka(access) as kafka:
            kafka.create_topics({topic: (1, 1, {})})

    def topic_id(self, topic: str) -> str | None:
        with Kafka(kafka_access(self.topology.clusters["A"])) as kafka:
            info = kafka.topics().get(topic)
        return info.topic_id if info else None

    def ask(self, name: str, method: str) -> Any:
        """Call a method of the Connect client for a flow's connector."""

        async def asked() -> Any:
            async with ConnectClient(connect_target(self.topology.connects["cb"])) as client:
                return await getattr(client, method)(f"mm2.A.B.source.{name}")

        return asyncio.run(asked())

    def turn(self, name: str, verb: str, state: str) -> None:
        """Stop or resume a flow without a look at it."""
        self.ask(name, verb)
        wanted = (state, state == "RUNNING")

        def read() -> tuple[str, bool]:
            found = self.ask(name, "status")
            return found.state, bool(found.tasks)  # a connector is STOPPED before its tasks are

        until(read, lambda found: found == wanted, f"{name} is {state}")

    def stored(self, name: str) -> dict[TopicPartition, int]:
        return parse_stored(self.ask(name, "offsets"), "A")

    def set_state(self, name: str, verb: str, state: str) -> None:
        self.ask(name, verb)
        self.wait(name, lambda found: found.flows[0].state == state)

    def wait(self, name: str, wanted: Callable[[Status], bool], deadline_seconds: float = 180.0) -> Status:
        """Look until it is as wanted; fail with the last status."""
        end = time.monotonic() + deadline_seconds
        while not wanted(found := self.status(name)):
            assert time.monotonic() < end, to_json(found)
            time.sleep(0.5)
        return found

    def ack(self, name: str) -> None:
        ack = Acknowledgement("tester", time.time(), "in a test")
        acknowledge(self.topology, ["all"], ack, only=[f"{name}:A->B"], options=self.options)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("losses")
    runtime = kafka_runtime()
    creates = {"auto.create.topics.enable": "true"}  # as brokers do by default
    a, b = Broker("A", directory / "A", creates, runtime=runtime), Broker("B", directory / "B", runtime=runtime)
    with serving([a, b]):
        worker = Worker("cb", directory / "cb", b.bootstrap_servers, runtime=runtime)
        with serving([worker]):
            text = TREE.format(a=a.bootstrap_servers, b=b.bootstrap_servers, url=worker.url)
            topology = topology_of(text, directory)
            with Kafka(kafka_access(topology.clusters["A"])) as kafka:
                kafka.create_topics({name: (count, 1, {}) for name, count in NAMES.items()})
            options = ObserveOptions(memory_file=directory / "state.json", store=directory / "store")
            made = World(text, topology, render(topology), options)
            for name in NAMES:
                made.produce(name, 500)
            plan = asyncio.run(make_plan(topology, made.connectors))
            assert {result.error for result in asyncio.run(apply_plan(topology, plan))} == {None}
            for name in NAMES:
                made.wait(name, lambda found: found.flows[0].lag_records == 0 and found.health == "ok")
                made.wait(name, lambda found: not found.warnings)  # a look without ids of topics is not remembered
            yield made


def stays_until_acknowledged(world: World, name: str) -> list[LossEntry]:
    """Look twice more, acknowledge, and look again; return the losses by their first offset."""
    losses = world.wait(name, lambda found: bool(found.losses)).losses
    for _ in range(2):
        assert [one.id for one in world.status(name).losses] == [one.id for one in losses]
    world.ack(name)
    assert world.status(name).losses == ()
    return sorted(losses, key=lambda one: one.first_offset)


def test_a_topic_created_again_behind_a_stopped_connector_that_outgrew_its_offset(world: World) -> None:
    world.set_state("stopped", "stop", "STOPPED")
    old_id = world.topic_id("stopped")
    world.recreate("stopped")
    world.produce("stopped", 2000)
    skipped, gone = stays_until_acknowledged(world, "stopped")
    assert (skipped.cause, skipped.first_offset, skipped.last_offset) == ("re-created", 0, 499)
    assert (gone.cause, gone.first_offset, gone.last_offset, gone.topic_id) == ("re-created", 500, None, old_id)
    assert skipped.topic_id == world.topic_id("stopped") != old_id
    world.set_state("stopped", "resume", "RUNNING")
    found = world.wait("stopped", lambda found: found.flows[0].lag_records == 0)
    assert found.losses == ()
    with Kafka(kafka_access(world.topology.clusters["B"])) as kafka:
        (ends,) = kafka.offsets([TopicPartition("A.stopped", 0)]).values()
    assert ends.end == 500 + 1500, "the first 500 records of the new topic never arrived"


def test_a_topic_created_again_under_a_running_connector(world: World) -> None:
    world.recreate("running")
    world.produce("running", 2000)
    assert {one.cause for one in stays_until_acknowledged(world, "running")} == {"re-created"}
    found = world.wait("running", lambda found: found.flows[0].lag_records == 0)
    assert found.losses == ()


def test_a_deleted_topic_that_the_flow_itself_creates_again(world: World) -> None:
    before = world.topic_id("revived")
    delete(kafka_access(world.topology.clusters["A"]), ["revived"])
    until(lambda: world.topic_id("revived"), lambda now: now not in (None, before), "the flow's consumer creates it")
    found = world.wait("revived", lambda found: bool(found.losses)).flows[0]
    (problem,) = (one for one in found.problems if one.kind == "records-lost")
    assert (to_json(problem.evidence)["cause"], to_json(problem.evidence)["flow_creates_topics"]) == (
        "re-created",
        True,
    )
    assert "created again, perhaps by this flow's own consumer, whose allow.auto" in " ".join(sentences(found))
    world.ack("revived")


def test_records_that_left_the_log_before_they_were_mirrored(world: World) -> None:
    world.set_state("aged", "stop", "STOPPED")
    world.produce("aged", 1000)
    world.delete_records("aged", {0: 800})
    (loss,) = world.wait("aged", lambda found: bool(found.losses)).losses
    assert (loss.cause, loss.first_offset, loss.last_offset) == ("retention", 500, 799)
    assert (loss.least_records, loss.records, loss.evidence) == (300, 300, "log-start")
    world.set_state("aged", "resume", "RUNNING")
    healthy = world.wait("aged", lambda found: found.flows[0].lag_records == 0)
    assert [one.id for one in healthy.losses] == [loss.id], "the flow is well again, the records are lost"
    assert healthy.health == "problem"
    assert [one.id for one in stays_until_acknowledged(world, "aged")] == [loss.id]
    assert world.status("aged").health == "ok"


def test_records_passed_over_while_nobody_looked_are_exactly_those_that_an_audit_misses(
    world: World,
) -> None:
    """The sampler looked before the flow was stopped; whoever asks afterwards is another process."""
    only = ["audited:A->B"]
    seen = asyncio.run(status(world.topology, world.connectors, only=only, options=world.options))
    assert (seen.losses, seen.failures) == ((), {})
    world.turn("audited", "stop", "STOPPED")
    world.produce("audited", 10_000, "audited id")
    made = world.ids("A", "audited")
    world.delete_records("audited", {1: 1725, 3: 2600})
    world.turn("audited", "resume", "RUNNING")
    until(lambda: world.stored("audited"), lambda found: set(found.values()) == {2624}, "lag 0")

    script = "import sys; from mm2mgr.cli import main; sys.argv = ['mm2mgr', '-f', sys.argv[1], *sys.argv[2:]]; main()"
    folder = world.options.store.parent
    environment = {**os.environ, "MM2MGR_STATE": str(folder / "state"), "PYTHONPATH": str(Path(__file__).parents[2])}
    (folder / "state").mkdir(exist_ok=True)
    (folder / "state" / "losses.json").write_bytes(world.options.memory_file.read_bytes())

    def manager(*arguments: str) -> dict[str, Any]:
        line = [
            sys.executable,
            "-c",
            script,
            str(folder / "tree.yaml"),
            *arguments,
            "--store",
            str(world.options.store),
            "-o",
            "json",
        ]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1, done.stderr
        return dict(json.loads(done.stdout))

    (flow,) = manager("status", "audited")["flows"]
    assert (flow["lag_records"], flow["health"]) == (0, "problem")
    found = manager("losses", "audited")["losses"]
    arrived = world.ids("B", "A.audited")
    missing = {place for value, place in made.items() if value not in arrived}
    assert len(missing) == 1600 + 2475
    covered = {
        (one["partition"], offset) for one in found for offset in range(one["first_offset"], one["last_offset"] + 1)
    }
    assert covered == missing
    assert [(one["records"], one["least_records"]) for one in sorted(found, key=lambda one: one["partition"])] == [
        (1600, 1600),
        (2475, 2475),
    ]
    assert {one["evidence"] for one in found} == {"target"}


def test_a_paused_connector_whose_lag_grows_is_a_problem_unless_the_tree_says_so(world: World, tmp_path: Path) -> None:
    world.set_state("rest", "pause", "PAUSED")
    (sentence,) = sentences(world.status("rest").flows[0])
    assert sentence.startswith("PAUSED by hand")

    def produced() -> Status:
        world.produce("rest", 40)
        return world.status("rest")

    # A busy task stops a little after PAUSED, and takes what is there until then.
    def is_growing(found: Status) -> bool:
        return any("PAUSED by hand while its lag grows" in text for text in sentences(found.flows[0]))

    until(produced, is_growing, "the lag grows and is no problem")
    wanted = topology_of(world.text.replace("include: [rest]}", "include: [rest]}, state: paused"), tmp_path)
    only = ["rest:A->B"]
    found = asyncio.run(status(wanted, world.connectors, only=only, options=world.options))
    assert (found.flows[0].problems, found.health) == ((), "waiting")
    world.set_state("rest", "resume", "RUNNING")
    (sentence,) = sentences(asyncio.run(status(wanted, world.connectors, only=only, options=world.options)).flows[0])
    assert sentence == "the tree declares state: paused, but the connector is RUNNING; run mm2mgr plan"
