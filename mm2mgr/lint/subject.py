"""What lint looks at: connectors with the place of each key, and what is known of their workers, Kafka clusters and links.

In: values that readers made of a tree, files or a live Connect cluster. Unknown facts are None; a rule that needs one is silent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from mm2mgr.lint.findings import Spot
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.explain_default import framework_defaults
from mm2mgr.truth.reach import Client, ConnectorType, Setting, clients, effective

Form = Literal["tree", "connect", "dedicated"]

CLASSES: dict[str, ConnectorType] = {
    "MirrorSourceConnector": "source",
    "MirrorCheckpointConnector": "checkpoint",
    "MirrorHeartbeatConnector": "heartbeat",
}


def addresses(servers: str) -> frozenset[str]:
    """Return the `host:port` parts of a bootstrap.servers value, without the listener some write before them."""
    items = (item.strip().lower().rpartition("://")[2] for item in servers.split(","))
    return frozenset(item for item in items if item)


def type_of(connector_class: str) -> ConnectorType | None:
    """Return the type for any spelling that Connect accepts: full name, simple name, or that without `Connector`."""
    simple = connector_class.strip().rpartition(".")[2]
    return CLASSES.get(simple) or CLASSES.get(f"{simple}Connector")


@dataclass(frozen=True)
class Worker:
    """What is known of the Connect workers. `policy` is the short name (None, Principal, All, Allowlist, or a class)."""

    version: str | None = None
    properties: Mapping[str, str] | None = field(default=None, repr=False)  # may hold secrets
    policy: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)  # override key → what the worker said
    exactly_once: bool | None = None
    cluster_id: str | None = None
    plugins: frozenset[str] | None = None


@dataclass(frozen=True)
class Kafka:
    """What is known of a Kafka cluster, by reading it; sizes in bytes."""

    cluster_id: str | None = None
    brokers: int | None = None
    message_max_bytes: int | None = None
    topic_max_message_bytes: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Wire:
    """What lies between source and target: round trip in seconds, bandwidth in bytes per second (None: no limit known)."""

    rtt_seconds: float
    bytes_per_second: float | None = None


@dataclass(frozen=True)
class Silence:
    """A rule switched off, with the reason and where that was said."""

    rule: str
    reason: str
    spot: Spot


@dataclass(frozen=True, eq=False)
class Subject:
    """A connector as lint sees it. `spots` has the place of each key that has one of its own; `state` is Connect's word."""

    name: str
    type: ConnectorType
    config: Mapping[str, str] = field(repr=False)  # may hold secrets
    spot: Spot
    spots: Mapping[str, Spot] = field(default_factory=dict, repr=False)
    form: Form = "connect"
    worker: Worker = Worker()
    source_kafka: Kafka = Kafka()
    target_kafka: Kafka = Kafka()
    wire: Wire | None = None
    state: str | None = None
    flows: tuple[str, ...] = ()
    silences: tuple[Silence, ...] = ()

    def get(self, key: str, default: str = "") -> str:
        """Return a key's value as Connect reads it, without blanks around it."""
        return self.config.get(key, default).strip()

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean key."""
        return self.get(key, str(default)).lower() == "true"

    def items(self, key: str) -> list[str]:
        """Return a LIST key as Kafka splits it: at commas, blanks around the items dropped."""
        value = self.get(key)
        return [item.strip() for item in value.split(",")] if value else []

    @property
    def source(self) -> str:
        return self.get("source.cluster.alias")

    @property
    def target(self) -> str:
        """The alias of the target; Kafka's default is the word `target`."""
        return self.get("target.cluster.alias", "target")

    @property
    def pair(self) -> str:
        return f"{self.source}->{self.target}"

    @cached_property
    def version(self) -> str:
        """The workers' Kafka version; the newest line when it is not known."""
        known = truth_keys.load()
        return (self.worker.version or "") if self.knows_version else known.releases[known.lines[-1]]

    @cached_property
    def knows_version(self) -> bool:
        """Tell whether the workers' version is known, and is Kafka's own (vendors count otherwise: 7.6.0-ccs)."""
        newest = truth_keys.load().lines[-1].partition(".")[0]
        found = re.match(r"(\d{1,4})\.\d+", self.worker.version or "")
        return found is not None and int(found[1]) <= int(newest) + 1

    @cached_property
    def exactly_once(self) -> bool:
        """Tell whether it runs transactionally: on exactly-once workers, or it demands such ones and they are not known."""
        if self.worker.exactly_once is None:
            return self.get("exactly.once.support").lower() == "required"
        return self.worker.exactly_once

    @cached_property
    def setting(self) -> Setting:
        return Setting.of(self.config, self.version, exactly_once=self.exactly_once)

    @cached_property
    def clients(self) -> tuple[Client, ...]:
        """The Kafka clients that this connector has."""
        return clients(self.type, self.setting)

    def client(self, name: str) -> Client | None:
        """Return a client by name (`record producer`, `source consumer`, `source admin`, …), None when there is none."""
        return self._client_by_name.get(name)

    def written(self, client: str, plain: str) -> str | None:
        """Return the config key that decides a client's plain key, None when nobody wrote one."""
        return self._winners(client).get(plain)

    def value(self, client: str, plain: str) -> str | None:
        """Return what a client gets for a plain key: written, else the workers', the framework's or Kafka's default."""
        found = self.client(client)
        if found is None:
            return None
        key = self.written(client, plain)
        if key is not None and plain not in found.forced:
            return self.get(key)
        for prefix in reversed(found.worker_prefixes):
            own = (self.worker.properties or {}).get(prefix + plain)
            if own is not None and plain not in found.forced:
                return own.strip()
        known = truth_keys.load()
        default = framework_defaults(found, self.setting, known).get(plain)
        if default is not None:
            return default
        definition = known.find(found.kind, plain, self.version)
        return definition.default if definition else None

    def number(self, client: str, plain: str) -> int | None:
        """Return a client's value as a number, None when it is none."""
        try:
            return int(self.value(client, plain) or "")
        except ValueError:
            return None

    def worker_property(self, key: str) -> str | None:
        """Return one of the workers' properties; None when it is not written or they are not known."""
        value = (self.worker.properties or {}).get(key)
        return None if value is None else value.strip()

    def spot_of(self, key: str) -> Spot:
        """Return the place of a key, or of the connector where the key is not written."""
        return self.spots.get(key, self.spot.at(key) if key in self.config else self.spot)

    @cached_property
    def _client_by_name(self) -> dict[str, Client]:
        return {client.name: client for client in reversed(self.clients)}  # of two with one name the first

    @cached_property
    def _winners_by_client(self) -> dict[str, dict[str, str]]:
        return {}

    def _winners(self, client: str) -> dict[str, str]:
        known = self._winners_by_client
        if client not in known:
            found = self.client(client)
            known[client] = effective(found, self.config) if found else {}
        return known[client]


@dataclass(frozen=True)
class Entry:
    """One line of a properties or JSON file: `raw` is the text as written, `value` what the parser makes of it."""

    key: str
    value: str = field(repr=False)
    raw: str = field(repr=False)
    line: int


@dataclass(frozen=True)
class SourceFile:
    """A file that was read: `kind` tells its dialect; `entries` in order, keys that stand twice included."""

    path: str
    kind: Literal["properties", "json", "dedicated", "tree"]
    entries: tuple[Entry, ...] = ()
    silences: tuple[Silence, ...] = ()


@dataclass(frozen=True)
class Estate:
    """Everything that is looked at together. `complete`: every connector of these clusters is in it (a tree, a live Connect)."""

    subjects: tuple[Subject, ...]
    files: tuple[SourceFile, ...] = ()
    complete: bool = False

    def of_type(self, type_: ConnectorType) -> list[Subject]:
        return [subject for subject in self.subjects if subject.type == type_]
