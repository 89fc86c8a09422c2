"""The four override policies on real workers, told apart with nothing created; and flows that plan and apply hold back for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectError
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.lint.subject import WorkerFacts
from mm2mgr.lint.workers import PREFIXES, ask_worker, harmless_overrides, probe
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import kafka_runtime
from mm2mgr.truth.keys import load
from tests.asking import from_client, read_live
from tests.live.command import Tree
from tests.live.conftest import WORKER, serving
from tests.live.seen import create, rest, topics, until, values, write_values

pytestmark = pytest.mark.live
POLICY = "connector.client.config.override.policy"
ALLOWED = ("bootstrap.servers", "security.protocol", "send.buffer.bytes", "receive.buffer.bytes")
PROPERTIES = {
    "none": {POLICY: "None"},
    "principal": {POLICY: "Principal", "exactly.once.source.support": "enabled"},
    "all": {},
    "allowlist": {POLICY: "Allowlist", "connector.client.config.override.allowlist": ",".join(ALLOWED)},
}


@dataclass(frozen=True)
class World:
    """Two Kafka clusters; `none` lives on the target, the other workers on the source."""

    src: Broker
    tgt: Broker
    workers: dict[str, Worker]

    def url(self, worker: str) -> str:
        return self.workers[worker].url

    @property
    def created(self) -> tuple[object, ...]:
        """Everything that a probe could have left behind."""
        kafkas = (KafkaAccess(each.name, each.bootstrap_servers) for each in (self.src, self.tgt))
        return ([rest("GET", f"{worker.url}/connectors") for worker in self.workers.values()], *map(topics, kafkas))

    def yaml(self, owner: str, rest_of_it: str) -> str:
        return f"""\
owner: {owner}
defaults:
  clusters: {{replication_factor: 1}}
  flows: {{refresh_interval: 2s, checkpoints: false}}
clusters:
  src: {{bootstrap_servers: ["{self.src.bootstrap_servers}"]}}
  tgt: {{bootstrap_servers: ["{self.tgt.bootstrap_servers}"]}}
{rest_of_it}"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder, runtime = tmp_path_factory.mktemp("policies"), kafka_runtime()
    src, tgt = (Broker(name, folder / name, runtime=runtime) for name in ("src", "tgt"))
    with serving([src, tgt]):
        workers = {
            name: Worker(
                name, folder / name, (tgt if name == "none" else src).bootstrap_servers, WORKER | more, runtime=runtime
            )
            for name, more in PROPERTIES.items()
        }
        started = list(workers.values())
        with serving(started[:2], started[2:]):
            yield World(src, tgt, workers)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "clusters")


def probed(url: str, overrides: dict[str, str]) -> WorkerFacts:
    async def main() -> WorkerFacts:
        async with ConnectClient(ConnectTarget("w", (url,)), deadline_seconds=30) as client:
            return await from_client(client, probe("w", overrides))

    return asyncio.run(main())


def each(*keys: str) -> set[str]:
    return {prefix + key for prefix in PREFIXES for key in keys}


def test_the_policies_are_told_apart_and_nothing_is_created(world: World) -> None:
    before = world.created
    wanted = {"producer.override.acks": "all", "producer.override.security.protocol": "SSL"}
    found = {name: probed(world.url(name), wanted) for name in PROPERTIES}
    assert {name: one.policy for name, one in found.items()} == {
        "none": "None",
        "principal": "Principal",
        "all": "All",
        "allowlist": "Allowlist",
    }
    telling = each("client.id", "sasl.mechanism", "bootstrap.servers")
    assert {name: set(one.refused) for name, one in found.items()} == {
        "none": telling | set(wanted),
        "principal": each("client.id", "bootstrap.servers") | {"producer.override.acks"},
        "all": set(),
        "allowlist": each("client.id", "sasl.mechanism") | {"producer.override.acks"},
    }
    assert {name: one.exactly_once for name, one in found.items()} == {
        "none": False,
        "principal": True,
        "all": False,
        "allowlist": False,
    }
    assert world.created == before
    assert before[0] == [[], [], [], []]


def test_every_key_that_kafka_knows_can_be_asked_for(world: World) -> None:
    """One key whose harmless value the worker cannot parse would hide the policy from every flow."""
    known = load()
    newest = known.releases[known.lines[-1]]
    keys = [f"{kind}.override.{key}" for kind in ("producer", "consumer", "admin") for key in known.names(kind, newest)]
    assert len(harmless_overrides(keys)) == len(keys) > 200
    assert probed(world.url("all"), harmless_overrides(keys)).refused == {}
    assert set(probed(world.url("none"), harmless_overrides(keys)).refused) >= set(keys)
    with pytest.raises(ConnectError, match=r"linger\.ms"):
        probed(world.url("all"), {"producer.override.linger.ms": "soon"})


def test_what_a_worker_says_of_itself(world: World) -> None:
    async def main() -> WorkerFacts:
        async with ConnectClient(ConnectTarget("w", (world.url("principal"),)), deadline_seconds=30) as client:
            return (await from_client(client, ask_worker("w", {})))[0]

    said = asyncio.run(main())
    assert (said.version, said.policy, said.exactly_once) == ("4.3.1", "Principal", True)
    assert said.cluster_id == rest("GET", f"{world.url('all')}/")["kafka_cluster_id"]
    assert "org.apache.kafka.connect.mirror.MirrorSourceConnector" in (said.plugins or ())


def test_a_refused_flow_is_blocked_and_the_other_goes_on(world: World, tree: Tree) -> None:
    source, target = (KafkaAccess(one.name, one.bootstrap_servers) for one in (world.src, world.tgt))
    create(source, ["orders"])
    write_values(source, "orders", b"1", b"2")
    connects = f"""\
connect:
  none: {{url: "{world.url("none")}", kafka: tgt}}
  all: {{url: "{world.url("all")}", kafka: src}}
flows:
  back: {{sources: [tgt], targets: [src], run_on: none, topics: {{include: [returns]}}}}
  there: {{sources: [src], targets: [tgt], run_on: all, topics: {{include: [orders]}}}}
"""
    tree.write(world.yaml("policies", connects))
    planned = tree.run("plan", code=1)
    assert "! blocked mm2.tgt.src.source.back  policy-forbids: the workers' policy None refuses" in planned
    assert "fix: set connector.client.config.override.policy=All on the workers" in planned
    assert "+ create  mm2.src.tgt.source.there" in planned
    assert "not verified" not in planned
    applied = tree.run("apply", "--yes", code=1)
    assert "all: created mm2.src.tgt.source.there" in applied
    assert rest("GET", f"{world.url('none')}/connectors") == []
    until(lambda: values(target, "src.orders"), lambda found: found == [b"1", b"2"])
    seen = asyncio.run(read_live(ConnectTarget("all", (world.url("all"),))))
    assert {(one.name, one.state, one.worker.policy) for one in seen.subjects} == {
        (f"mm2.src.tgt.{name}", "RUNNING", "All") for name in ("source.there", "heartbeat")
    }


def test_workers_on_another_kafka_than_declared_get_nothing(world: World, tree: Tree) -> None:
    before = world.created
    connects = f"""\
connect:
  astray: {{url: "{world.url("allowlist")}", kafka: tgt}}
flows:
  there: {{sources: [src], targets: [tgt], topics: {{include: [orders]}}}}
"""
    tree.write(world.yaml("astray", connects))
    said = tree.run("apply", "--yes", code=1)
    assert "! blocked mm2.src.tgt.source.there  wrong-kafka: records are not written to tgt" in said
    assert "correct connect: {astray: {kafka: …}} or its url" in said
    assert "Applied: 0 of 0 changes" in said
    assert world.created == before
