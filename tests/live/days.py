"""An estate of three brokers and two Connect clusters on which a day passes: records with ids, and who has how many of them.

In: flows as YAML. Out: what the commands say, what the workers run, and ids that are missing or there twice.
"""

from __future__ import annotations

import itertools
import time
import urllib.error
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import confluent_kafka

from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import Runtime
from tests.plan.simulated import Connector

from .command import Tree
from .conftest import WORKER, serving
from .seen import (
    Message,
    connector_url,
    create,
    delete,
    is_transient,
    log_end,
    rest,
    retry,
    statuses,
    task_configs,
    topics,
    until,
    write,
)

PARTITIONS = 2
SOURCE = "MirrorSourceConnector"


@dataclass
class World:
    """Kafka clusters by name; Connect cluster `main` lives on agg, `spare` on dc1."""

    brokers: dict[str, Broker]
    main: Worker
    spare: Worker
    ids: Iterator[int] = field(default_factory=itertools.count)

    @cached_property
    def kafkas(self) -> dict[str, KafkaAccess]:
        return {name: KafkaAccess(name, broker.bootstrap_servers) for name, broker in self.brokers.items()}

    @property
    def workers(self) -> dict[str, Worker]:
        return {"main": self.main, "spare": self.spare}

    @cached_property
    def readers(self) -> dict[str, confluent_kafka.Consumer]:
        """A consumer for each cluster: it joins no group, and does not wait for more at the end of a log."""
        settings = {"group.id": "nobody", "enable.auto.commit": False, "enable.partition.eof": True}
        quick = {"fetch.wait.max.ms": 10, "auto.offset.reset": "error"}
        return {
            name: confluent_kafka.Consumer({**librdkafka_config(access), **settings, **quick})
            for name, access in self.kafkas.items()
        }

    def close(self) -> None:
        for consumer in self.readers.values():
            consumer.close()

    # Kafka

    def create(self, cluster: str, *names: str, partitions: int = PARTITIONS) -> None:
        create(self.kafkas[cluster], names, partitions)

    def produce(self, cluster: str, topic: str, count: int = 20, partitions: int = PARTITIONS) -> list[Message]:
        """Write records that nothing else is like, and return them."""
        new = [Message(n % partitions, None, f"{cluster}/{topic}/{next(self.ids)}".encode()) for n in range(count)]
        write(self.kafkas[cluster], topic, new)
        return new

    def held(self, cluster: str, topic: str) -> Counter[bytes]:
        """Count the ids in a topic, in log order partition by partition; nothing when there is no such topic."""
        reader = self.readers[cluster]
        logs = [
            confluent_kafka.TopicPartition(topic, number, 0)
            for number in retry(lambda: reader.list_topics(topic, timeout=20)).topics[topic].partitions
        ]
        found: dict[int, list[bytes]] = {each.partition: [] for each in logs}
        ended, deadline = set[int](), time.monotonic() + 120  # a log that grows ends more than once
        reader.assign(logs)
        while len(ended) < len(logs):
            assert time.monotonic() < deadline, f"{topic} of {cluster} cannot be read to its end"
            record = reader.poll(1)
            if record is None:
                continue
            if (error := record.error()) is None:
                found[record.partition()].append(record.value())
            elif not is_transient(error):
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                ended.add(int(record.partition()))
        reader.unassign()
        return Counter(id_ for log in found.values() for id_ in log)

    def everything(self) -> dict[tuple[str, str], Counter[bytes]]:
        """Count the ids of every topic that has any, by cluster and topic."""
        held = {
            (cluster, topic): self.held(cluster, topic) for cluster in self.kafkas for topic in self.own_topics(cluster)
        }
        return {where: ids for where, ids in held.items() if ids}

    def own_topics(self, cluster: str) -> list[str]:
        """Return the topics that are not Kafka's, Connect's, MirrorMaker's or mm2mgr's own."""
        return sorted(
            name
            for name in topics(self.kafkas[cluster])
            if not name.startswith(("__", "connect-", "mm2-offset-syncs", "mm2mgr."))
        )

    # Connect

    def configs(self) -> dict[tuple[str, str], dict[str, str]]:
        """Return the config of every connector by Connect cluster and name."""
        return {
            (connect, name): entry["info"]["config"]
            for connect, worker in self.workers.items()
            if worker.running
            for name, entry in rest("GET", f"{worker.url}/connectors?expand=info").items()
        }

    def by_hand(self, connect: str, name: str, config: dict[str, str], state: str = "RUNNING") -> None:
        """Make a connector as a person with curl would."""
        body = {"name": name, "config": config, "initial_state": state}
        rest("POST", f"{self.workers[connect].url}/connectors", body)

    def running(self) -> list[Connector]:
        """Return the source connectors as the simulation takes them."""
        lives = {"main": "agg", "spare": "dc1"}
        states = {connect: statuses(worker.url) for connect, worker in self.workers.items()}
        return [
            Connector(connect, name, config, lives[connect], running=_state(states[connect].get(name)) == "RUNNING")
            for (connect, name), config in self.configs().items()
        ]

    def settle(self, besides: tuple[str, ...] = ()) -> None:
        """Wait until every running source connector, besides some, has stored that it is at the end of all its partitions."""
        until(
            lambda: [line for line in self._behind() if not line.startswith(besides)],
            lambda behind: not behind,
            "still behind",
        )

    def _behind(self) -> list[str]:
        found = []
        for (connect, name), config in self.configs().items():
            url = self.workers[connect].url
            if not config["connector.class"].endswith(SOURCE):
                continue
            with suppress(urllib.error.HTTPError):  # a rebalance, or no status yet: asked again
                if rest("GET", connector_url(url, name, "/status"))["connector"]["state"] in {"STOPPED", "PAUSED"}:
                    continue
            found += self._behind_of(url, name, config)
        return found

    def _behind_of(self, url: str, name: str, config: dict[str, str]) -> list[str]:
        tasks = task_configs(url, name)
        if not tasks or any(task.get("topics") != config["topics"] for task in tasks):
            return [f"{name} has no tasks yet"]
        try:
            stored = rest("GET", connector_url(url, name, "/offsets"))["offsets"]
        except urllib.error.HTTPError:
            return [f"{name} does not say"]
        at = {(one["partition"]["topic"], one["partition"]["partition"]): one["offset"]["offset"] for one in stored}
        source = self._named(config["source.cluster.bootstrap.servers"])
        assigned = [each for task in tasks for each in task["task.assigned.partitions"].split(",") if each]
        behind = []
        for each in assigned:
            topic, _, number = each.rpartition("-")
            end = self._end(source, topic, int(number))
            if end and at.get((topic, int(number)), -1) < end - 1:
                behind.append(f"{name}: {each} at {at.get((topic, int(number)))} of {end}")
        return behind

    def _named(self, servers: str) -> str:
        return next(name for name, access in self.kafkas.items() if access.bootstrap_servers == servers)

    def _end(self, cluster: str, topic: str, number: int) -> int:
        partition = confluent_kafka.TopicPartition(topic, number)
        return log_end(self.readers[cluster], partition)

    # From one test to the next

    def clear(self) -> None:
        """Delete every connector and every topic of the tests."""
        for worker in self.workers.values():
            if not worker.running:
                worker.start()
        # Stopped first: after a DELETE alone tasks run on for a while, and were seen to take the next test's topics.
        urls = [connector_url(self.workers[connect].url, name) for connect, name in self.configs()]
        self._all("PUT", [f"{url}/stop" for url in urls])
        until(lambda: [url for url in urls if not _stopped(url)], lambda left: not left, "not stopped")
        self._all("DELETE", urls)
        until(self.configs, lambda left: not left)
        for cluster, access in self.kafkas.items():
            if names := self.own_topics(cluster):
                delete(access, names)
                until(lambda cluster=cluster: self.own_topics(cluster), lambda left: not left)  # type: ignore[misc]

    def _all(self, method: str, urls: list[str]) -> None:
        with ThreadPoolExecutor(8) as threads:  # one after the other, each would wait for a rebalance of its own
            list(threads.map(rest, [method] * len(urls), urls))


@contextmanager
def estate(folder: Path, runtime: Runtime, clusters: Iterable[str], settings: Mapping[str, str]) -> Iterator[World]:
    """Run these Kafka clusters, and the two workers with these settings."""
    brokers = {name: Broker(name, folder / name, runtime=runtime) for name in clusters}
    with serving(list(brokers.values())):
        main, spare = (
            Worker(name, folder / name, brokers[kafka].bootstrap_servers, WORKER | settings, runtime=runtime)
            for name, kafka in (("main", "agg"), ("spare", "dc1"))
        )
        with serving([main, spare]):
            made = World(brokers, main, spare)
            yield made
            made.close()


def _stopped(url: str) -> bool:
    try:
        status = rest("GET", f"{url}/status")
    except urllib.error.HTTPError:
        return False
    return status["connector"]["state"] == "STOPPED" and not status["tasks"]


def _state(status: Any) -> str:
    return str(status["connector"]["state"]) if status else "RUNNING"


@dataclass
class Day:
    """One test's tree on the estate, with an owner of its own."""

    world: World
    tree: Tree
    owner: str

    def write(self, *flows: str) -> None:
        """Declare these flows, and no others."""
        self.declare({alias: alias for alias in self.world.kafkas}, "".join(flows))

    def declare(self, aliases: dict[str, str], flows: str, defaults: str = "") -> None:
        """Write the tree; `aliases`: alias → broker."""
        alias_of = {cluster: alias for alias, cluster in aliases.items()}
        servers = {alias: self.world.kafkas[cluster].bootstrap_servers for alias, cluster in aliases.items()}
        clusters = "".join(f"  {alias}: {{bootstrap_servers: ['{each}']}}\n" for alias, each in servers.items())
        self.tree.write(f"""\
owner: {self.owner}
defaults:
  clusters: {{replication_factor: 1}}
  flows: {{checkpoints: false, heartbeats: false, refresh_interval: 2s{defaults}}}
clusters:
{clusters}connect:
  main: {{url: ["{self.world.main.url}"], kafka: {alias_of["agg"]}}}
  spare: {{url: ["{self.world.spare.url}"], kafka: {alias_of["dc1"]}}}
flows: {flows and chr(10)}{flows or "{}"}
""")

    def apply(self, *flows: str, prune: bool = False, code: int = 0) -> str:
        """Declare and apply flows."""
        self.write(*flows)
        return self.apply_written(prune=prune, code=code)

    def apply_written(self, *, prune: bool = False, code: int = 0) -> str:
        return self.tree.run(
            "apply", "--yes", "--wait", "0", *(["--prune", "--allow", "deletes"] if prune else []), code=code
        )

    def held_back(self, *flows: str, says: Iterable[str] = (), prune: bool = False) -> str:
        """Declare flows that must be blocked as a whole: exit code 1, and nothing is written."""
        self.write(*flows)
        return self.written_is_held_back(says=says, prune=prune)

    def written_is_held_back(self, *, says: Iterable[str] = (), prune: bool = False) -> str:
        before = self.world.configs()
        said = self.apply_written(prune=prune, code=1)
        assert [word for word in ("blocked", *says) if word not in said] == [], said
        assert self.world.configs() == before, said
        return said

    def once(
        self, *topics: str, source: str = "dc1", target: str = "agg", named: Callable[[str], str] | None = None
    ) -> None:
        """Wait until these topics have crossed and everything is at rest; then each id is there exactly once."""
        named = named or (lambda topic: f"{source}.{topic}")
        for topic in topics:
            self.wait_for(topic, source, target, named(topic))
        self.world.settle()
        for topic in topics:
            sent, there = self.world.held(source, topic), self.world.held(target, named(topic))
            assert sent, f"nothing was written to {topic}"
            assert there == sent, f"{topic}: {difference(sent, there)}"

    def wait_for(self, topic: str, source: str, target: str, remote: str) -> None:
        sent = self.world.held(source, topic)
        until(lambda: sorted(sent.keys() - self.world.held(target, remote).keys()), lambda missing: not missing, topic)


def difference(sent: Counter[bytes], there: Counter[bytes]) -> str:
    """Say how many ids are missing, and how many are there more often than they were sent."""
    twice = there - sent
    return f"{sum((sent - there).values())} missing, {sum(twice.values())} too many {sorted(twice)[:3]}"


def flow(name: str, *include: str, sources: str = "dc1", target: str = "agg", more: str = "") -> str:
    """Return one flow, as YAML."""
    topics = f"{{include: [{', '.join(include)}]}}"
    return f"  {name}: {{sources: [{sources}], targets: [{target}], topics: {topics}{more}}}\n"
