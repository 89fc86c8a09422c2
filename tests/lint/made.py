"""Subjects for the tests of lint: healthy connectors of one pair A→B, changed key by key (None takes a key out)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mm2mgr.connectors import Connector, ConnectorType
from mm2mgr.lint.findings import Finding, Hit
from mm2mgr.lint.rules import BY_ID, lint
from mm2mgr.lint.subject import Estate, Spot, Subject

Changes = Mapping[str, str | None]

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
MIRROR = "org.apache.kafka.connect.mirror."
CONVERTERS = {f"{part}.converter": BYTES for part in ("key", "value", "header")}
PAIR = {
    "source.cluster.alias": "A",
    "source.cluster.bootstrap.servers": "a1:9092,a2:9092",
    "target.cluster.alias": "B",
    "target.cluster.bootstrap.servers": "b1:9092,b2:9092",
    "producer.override.bootstrap.servers": "b1:9092,b2:9092",
}
# What a source connector leaves to Kafka's defaults is worth a hint.
DECIDED = {
    "tasks.max": "2",
    "source.consumer.allow.auto.create.topics": "false",
    "source.consumer.receive.buffer.bytes": "-1",
    "source.producer.max.block.ms": "500",
    "source.admin.retry.backoff.ms": "5000",
}
OWN: dict[ConnectorType, dict[str, str]] = {
    "source": {"connector.class": f"{MIRROR}MirrorSourceConnector", "topics": "orders,payments"},
    "checkpoint": {"connector.class": f"{MIRROR}MirrorCheckpointConnector", "topics": "orders,payments"},
    "heartbeat": {"connector.class": f"{MIRROR}MirrorHeartbeatConnector"},
}


def connector(type_: ConnectorType, changes: Changes | None = None, /, **facts: Any) -> Subject:
    """Return a healthy connector with changes; `facts` are fields of Subject (worker, form, wire, name, …)."""
    name = facts.pop("name", f"mm2.A.B.{type_}")
    whole: dict[str, str | None] = {"name": name, **OWN[type_], **PAIR, **CONVERTERS, **(changes or {})}
    config = {key: value for key, value in whole.items() if value is not None}
    spot = facts.pop("spot", Spot(connect="east", connector=name))
    own = {key: facts.pop(key) for key in ("connect", "flows") if key in facts}
    return Subject(Connector(name, type_, config=config, **own), spot, **facts)


def source(changes: Changes | None = None, /, **facts: Any) -> Subject:
    """`made.source({"producer.linger.ms": "5", "topics": None}, worker=Worker(version="3.9.1"))`."""
    return connector("source", changes, **facts)


def checkpoint(changes: Changes | None = None, /, **facts: Any) -> Subject:
    return connector("checkpoint", changes, **facts)


def heartbeat(changes: Changes | None = None, /, **facts: Any) -> Subject:
    return connector("heartbeat", changes, **facts)


def estate(*subjects: Subject, complete: bool = False) -> Estate:
    return Estate(subjects, complete=complete)


def hits(rule: str, *subjects: Subject, complete: bool = False) -> list[Hit]:
    """Return what one rule says of connectors, looked at together."""
    found: list[Hit] = []
    if over := BY_ID[rule].over:
        found += over(estate(*subjects, complete=complete))
    if check := BY_ID[rule].check:
        found += [hit for subject in subjects if BY_ID[rule].asks(subject.kind) for hit in check(subject)]
    return found


def findings(*subjects: Subject, complete: bool = False) -> list[Finding]:
    """Return what all rules say."""
    return lint(estate(*subjects, complete=complete))


def told(*subjects: Subject, complete: bool = False) -> set[str]:
    """Return the ids of all rules that say something."""
    return {finding.rule for finding in findings(*subjects, complete=complete)}
