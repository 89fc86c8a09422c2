"""Faulty connectors on real workers: what becomes of them, and what lint says of them. Two brokers, a worker on each.

In: configs by connector name. Out: states, traces, refusals, records, and the ids of the rules that find something.
"""

from __future__ import annotations

import asyncio
import urllib.error
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.connectors import Connector, type_of
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.client import Kafka as LiveKafka
from mm2mgr.lint.findings import Finding, rules_of
from mm2mgr.lint.rules import RULES, advice, lint
from mm2mgr.lint.subject import Estate, KafkaFacts, Spot, Subject
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from tests.asking import read_live
from tests.lint.made import CONVERTERS, MIRROR, Changes
from tests.live.seen import admin, connector_url, log_texts, rest, until, values, write_values

Value = TypeVar("Value")
# The connectors here are as small as they can be, on one broker and one Kafka: hints at what they lack are left out.
_LEFT_OUT = ("minor-bugs", "one-replica", *(rule.id for rule in rules_of(advice) if rule.severity == "info"))
_RULES = [rule for rule in RULES if rule.id not in _LEFT_OUT]
LARGE_BYTES = 4_194_304  # what the source's brokers take, and the target's do not
IDENTITY = {"replication.policy.class": f"{MIRROR}IdentityReplicationPolicy"}
_COMMON = {"tasks.max": "1", "admin.timeout.ms": "15000", **CONVERTERS}
_SOURCE = {
    "connector.class": f"{MIRROR}MirrorSourceConnector",
    "replication.factor": "1",
    "refresh.topics.interval.seconds": "1",
    "emit.offset-syncs.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "heartbeats.replication.enabled": "false",  # other tests beat meanwhile
}
_CHECKPOINT = {
    "connector.class": f"{MIRROR}MirrorCheckpointConnector",
    "checkpoints.topic.replication.factor": "1",
    "refresh.groups.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
}
_HEARTBEAT = {"connector.class": f"{MIRROR}MirrorHeartbeatConnector", "heartbeats.topic.replication.factor": "1"}


@dataclass(frozen=True)
class Lab:
    """Kafka clusters A and B, and a Connect worker on each; flows go from A to B unless a test says otherwise."""

    a: Broker
    b: Broker
    on_a: Worker
    on_b: Worker
    ids: Mapping[str, str]  # cluster id by bootstrap servers

    @property
    def source(self) -> KafkaAccess:
        return KafkaAccess("A", self.a.bootstrap_servers)

    @property
    def target(self) -> KafkaAccess:
        return KafkaAccess("B", self.b.bootstrap_servers)

    # Configs

    def flow(self, topics: str, changes: Changes | None = None) -> dict[str, str]:
        """Return a healthy source connector A→B with changes; None takes a key out."""
        return _changed({**_SOURCE, "topics": topics, **self._pair(self.a, self.b)}, changes)

    def back(self, topics: str, changes: Changes | None = None) -> dict[str, str]:
        """Return a healthy source connector B→A."""
        return _changed({**_SOURCE, "topics": topics, **self._pair(self.b, self.a)}, changes)

    def checkpoint(self, group: str, changes: Changes | None = None) -> dict[str, str]:
        """Return a healthy checkpoint connector A→B."""
        return _changed({**_CHECKPOINT, "groups": group, **self._pair(self.a, self.b)}, changes)

    def heartbeat(self, into: Broker, changes: Changes | None = None) -> dict[str, str]:
        """Return a healthy heartbeat connector that writes into one of the two."""
        other = self.a if into is self.b else self.b
        return _changed({**_HEARTBEAT, **self._pair(other, into)}, changes)

    def _pair(self, source: Broker, target: Broker) -> dict[str, str]:
        override = {"producer.override.bootstrap.servers": target.bootstrap_servers} if target is self.a else {}
        return {
            **_COMMON,
            "source.cluster.alias": source.name.upper(),
            "source.cluster.bootstrap.servers": source.bootstrap_servers,
            "target.cluster.alias": target.name.upper(),
            "target.cluster.bootstrap.servers": target.bootstrap_servers,
            **override,
        }

    # Connect

    @contextmanager
    def running(self, connectors: Mapping[str, Mapping[str, str]], worker: Worker | None = None) -> Iterator[None]:
        """Create connectors side by side, and delete them on the way out."""
        worker = worker or self.on_b
        try:
            _ask(worker, lambda client: _each(client.put_config(name, config) for name, config in connectors.items()))
            yield
        finally:
            _ask(worker, lambda client: _each((client.delete(name) for name in connectors), errors=True))

    def put(self, name: str, config: Mapping[str, str], worker: Worker | None = None) -> None:
        """Give a connector another config."""
        _ask(worker or self.on_b, lambda client: client.put_config(name, config))

    def refusal(self, name: str, config: Mapping[str, str | None]) -> str:
        """Put a config that has to be refused, and return the HTTP code and what the worker says."""
        try:
            rest("PUT", connector_url(self.on_b.url, name, "/config"), config)
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}"
        rest("DELETE", connector_url(self.on_b.url, name))
        raise AssertionError(f"{name} was accepted")

    def state(self, name: str, worker: Worker | None = None) -> list[str]:
        """Return the state of a connector and of its tasks, nothing while it has none."""
        status = self._status(name, worker or self.on_b)
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])] if status else []

    def trace(self, name: str, worker: Worker | None = None) -> str:
        """Return the Java traces of a connector and of its tasks."""
        status = self._status(name, worker or self.on_b)
        return "\n".join(part.get("trace", "") for part in (status["connector"], *status["tasks"])) if status else ""

    def until_state(self, name: str, *wanted: str, worker: Worker | None = None) -> None:
        until(lambda: self.state(name, worker), lambda state: state == list(wanted), f"state of {name}")

    def until_failed(self, name: str, *texts: str, task: bool = False) -> None:
        """Wait until the connector (or its one task) is FAILED, and look for texts in the trace."""
        self.until_state(name, *(("RUNNING", "FAILED") if task else ("FAILED",)))
        trace = self.trace(name)
        assert [text for text in texts if text not in trace] == [], trace

    def until_logged(self, *texts: str) -> None:
        """Wait until one line of the worker's log has all these texts."""
        until(lambda: self.logged(*texts), bool, f"no line with {texts} in the log")

    def logged(self, *texts: str) -> int:
        """Return how many lines of the worker's log have all these texts."""
        lines = (line for log in log_texts(self.on_b) if texts[0] in log for line in log.splitlines())
        return sum(all(text in line for text in texts) for line in lines)

    def offsets(self, name: str, worker: Worker | None = None) -> list[int]:
        """Return the stored source offsets of a connector."""
        found = rest("GET", connector_url((worker or self.on_b).url, name, "/offsets"))["offsets"]
        return [entry["offset"]["offset"] for entry in found]

    def _status(self, name: str, worker: Worker) -> Any:
        found = rest("GET", f"{worker.url}/connectors?expand=status")
        return found[name]["status"] if name in found else None

    # Kafka

    def create(
        self, *topics: str, on: KafkaAccess | None = None, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create topics, on A unless told otherwise."""
        with LiveKafka(on or self.source, timeout_seconds=30) as kafka:
            kafka.create_topics({topic: (partitions, 1, configs or {}) for topic in topics})

    def create_with(self, topic: str, *written: bytes) -> None:
        """Create a topic of one partition on A, with records."""
        self.create(topic)
        write_values(self.source, topic, *written)

    def write_large(self, topic: str, *written: bytes) -> None:
        """Write records to A that only its own limit holds back."""
        producer = confluent_kafka.Producer({**librdkafka_config(self.source), "message.max.bytes": LARGE_BYTES})
        for value in written:
            producer.produce(topic, value, partition=0)
        assert producer.flush(35) == 0

    def alter(self, topic: str, key: str, value: str) -> None:
        """Change one setting of a topic on A."""
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        client = admin(self.source)
        for future in client.incremental_alter_configs([resource]).values():
            future.result(30)

    def configs(self, topic: str) -> dict[str, str]:
        """Return the settings of a topic on B, those that nobody made included."""
        client, resource = admin(self.target), ConfigResource(ResourceType.TOPIC, topic)
        (future,) = client.describe_configs([resource]).values()
        return {key: entry.value for key, entry in future.result(30).items()}

    def set_on(self, topic: str) -> set[str]:
        """Return the settings that are a topic's own on B."""
        client, resource = admin(self.target), ConfigResource(ResourceType.TOPIC, topic)
        (future,) = client.describe_configs([resource]).values()
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {key for key, entry in future.result(30).items() if entry.source == own}

    def stop(self, name: str) -> None:
        """Stop a connector and wait until it is."""
        _ask(self.on_b, lambda client: client.stop(name))
        self.until_state(name, "STOPPED")

    def until_values(self, topic: str, *wanted: bytes | None) -> None:
        """Wait until a topic on B holds exactly these records."""
        until(lambda: values(self.target, topic), lambda found: found == list(wanted), f"records of {topic}")

    # Lint

    def told(self, *names: str, worker: Worker | None = None, **facts: object) -> set[str]:
        """Return the rules that find something in live connectors (all of them unless named), looked at together."""
        return {finding.rule for finding in self.findings(*names, worker=worker, **facts)}

    def findings(self, *names: str, worker: Worker | None = None, **facts: object) -> list[Finding]:
        worker = worker or self.on_b
        subjects = (subject for subject in self._live(worker).subjects if not names or subject.name in names)
        return lint(Estate(tuple(self._known(subject, worker, facts) for subject in subjects)), _RULES)

    def told_of(self, config: Mapping[str, str], **facts: object) -> set[str]:
        """Return the rules that find something in a config that no worker runs."""
        type_ = type_of(config.get("connector.class", "")) or "source"
        name = config.get("name", "refused")
        subject = Subject(Connector(name, type_, config={"name": name, **config}), Spot(connect="lab", connector=name))
        return {finding.rule for finding in lint(Estate((self._known(subject, self.on_b, facts),)), _RULES)}

    def _live(self, worker: Worker) -> Estate:
        return asyncio.run(read_live(ConnectTarget("lab", (worker.url,))))

    def _known(self, subject: Subject, worker: Worker, facts: Mapping[str, object]) -> Subject:
        """Add what `mm2mgr lint` can be told: the workers' properties, and the clusters."""
        said = replace(subject.worker, properties=worker.server_properties(), version="4.3.1")
        said = replace(said, cluster_id=self.ids[worker.bootstrap_servers], exactly_once=False)
        known = replace(
            subject,
            worker=said,
            source_kafka=self._kafka(subject, "source"),
            target_kafka=self._kafka(subject, "target"),
        )
        return replace(known, **facts)  # type: ignore[arg-type]

    def _kafka(self, subject: Subject, side: str) -> KafkaFacts:
        cluster_id = self.ids.get(subject.get(f"{side}.cluster.bootstrap.servers"))
        return KafkaFacts(cluster_id, brokers=1 if cluster_id else None)


def _changed(config: Mapping[str, str], changes: Changes | None) -> dict[str, str]:
    whole: dict[str, str | None] = {**config, **(changes or {})}
    return {key: value for key, value in whole.items() if value is not None}


def _ask(worker: Worker, ask: Callable[[ConnectClient], Awaitable[Value]]) -> Value:
    async def asked() -> Value:
        async with ConnectClient(ConnectTarget("lab", (worker.url,))) as client:
            return await ask(client)

    return asyncio.run(asked())


async def _each(calls: Iterable[Awaitable[object]], *, errors: bool = False) -> None:
    await asyncio.gather(*calls, return_exceptions=errors)
