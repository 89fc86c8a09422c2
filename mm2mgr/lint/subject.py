"""The input of lint: connectors with the place of each key, and known facts about workers, Kafka clusters and links.

Unknown facts are None; a rule that needs one reports nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from mm2mgr.connectors import RESTING, Connector, ConnectorType
from mm2mgr.formats.connectors import Note, OperatorResource
from mm2mgr.formats.properties import Entry
from mm2mgr.formats.templates import is_open, template_in, without_templates
from mm2mgr.link import BrokerLimits, Route
from mm2mgr.secrets import is_placeholder, is_secret, mask
from mm2mgr.spec.places import PathKey
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import Client, ConfiguredClient, Setting, Value, clients, numbers, winners

SENT_IN_CLEAR = {"PLAIN": "the password", "OAUTHBEARER": "the token"}
"""What a SASL mechanism sends unprotected; the others only prove that they know it."""


def is_clear(key: str, value: str) -> bool:
    """Tell whether a value contains a secret in clear: a JAAS string can use placeholders, or need no password."""
    if not re.search(r"\w", value) or is_placeholder(value):
        return False
    if not key.endswith("jaas.config"):
        return not is_open(value)
    if not is_open(value):
        return mask(key, value) != value
    text = re.sub(r"\$\{[^}]*\}", "", without_templates(value, ""))
    options = re.findall(r"([\w.-]+)\s*=[\s\\\"']*([^\s\\\"';]+)", text)
    return any(is_secret(name) for name, _ in options)


@lru_cache(maxsize=4096)
def is_loopback(address: str) -> bool:
    """Tell whether a URL or a `host:port` stays on the machine."""
    try:
        host = urlsplit(address if "://" in address else f"//{address}").hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def first_remote(addresses: str) -> str:
    """Return the first of `host:port,…` that does not stay on the machine, "" for none."""
    return next(
        (address for address in map(str.strip, addresses.split(",")) if address and not is_loopback(address)), ""
    )


Form = Literal["tree", "connect", "dedicated"]


@lru_cache(maxsize=4096)
def addresses(servers: str) -> frozenset[str]:
    """Return the `host:port` parts of a bootstrap.servers value, without listener names and templates."""
    items = (item.strip().lower().rpartition("://")[2] for item in servers.split(",") if not template_in(item))
    return frozenset(item for item in items if item)


@dataclass(frozen=True, order=True)
class Spot:
    """Where a finding is: a line of a file, or a key of a connector on a Connect cluster; "" and 0 are unknown.

    `column` is where a key begins, from 1 on, in a line that has something else before it.
    """

    file: str = ""
    line: int = 0
    connect: str = ""
    connector: str = ""
    key: str = ""
    column: int = 0

    def __str__(self) -> str:
        if self.file:
            return ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])
        return "/".join(part for part in (self.connect, self.connector, self.key) if part)

    def with_key(self, key: str) -> Spot:
        """Return the same place with a key."""
        return replace(self, key=key)


@dataclass(frozen=True)
class WorkerFacts:
    """Known facts about Connect workers. `policy` is the short name (None, Principal, All, Allowlist, or a class).

    `plugins` are the classes of the connectors that they have, `others` those of transformations, predicates and
    converters; workers before 3.2 do not list the latter. `servers` are the addresses of their own Kafka cluster where
    a tree declares which it is.
    """

    version: str | None = None
    properties: Mapping[str, str] | None = field(default=None, repr=False)  # may hold secrets
    policy: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)  # override key → what the worker said
    allowed: frozenset[str] = frozenset()  # override keys that it was asked for and did not refuse
    exactly_once: bool | None = None
    cluster_id: str | None = None
    plugins: frozenset[str] | None = None
    others: frozenset[str] | None = None
    servers: str = ""


@dataclass(frozen=True)
class KafkaFacts:
    """Known facts about a Kafka cluster; sizes in bytes. `unanswered` says why brokers that were asked did not answer.

    It is no `RunningKafka`, because a fact may also come from a tree or an option, and None is unknown, not none.
    `topic_settings` are the settings that apply to topics, by topic and key.
    """

    cluster_id: str | None = None
    brokers: int | None = None
    message_max_bytes: int | None = None
    topic_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    partitions: Mapping[str, int] | None = None
    unanswered: str = ""

    @cached_property
    def topic_max_message_bytes(self) -> Mapping[str, int]:
        """How large a batch of records may be, by topic."""
        key = "max.message.bytes"
        return {topic: int(settings[key]) for topic, settings in self.topic_settings.items() if key in settings}


@dataclass(frozen=True)
class LinkFacts:
    """The link between source and target: round trip in seconds, bandwidth in bytes per second (None: no known limit).

    A tree also declares its workers' `route`, what brokers allow, and the heap that so many tasks share.
    """

    rtt_seconds: float
    bytes_per_second: float | None = None
    route: Route | None = None
    source: BrokerLimits = field(default_factory=BrokerLimits)
    target: BrokerLimits = field(default_factory=BrokerLimits)
    heap_bytes: float | None = None
    worker_tasks: int = 1


@dataclass(frozen=True)
class Silence:
    """A rule that is disabled, with the reason and the place."""

    rule: str
    reason: str
    spot: Spot


@dataclass(frozen=True)
class DeclaredLogin:
    """A login of mm2mgr itself. `exposed` is an address that gets what it `sends` without TLS, "" for none.

    `inline` are the keys whose secrets are in the tree, with their places.
    """

    whose: str
    spot: Spot
    sends: str = ""
    exposed: str = ""
    inline: Mapping[str, Spot] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SubjectKind:
    """What connectors with the same keys share: clients, and the key of each value. Thousands are of few kinds."""

    type: ConnectorType
    setting: Setting
    keys: tuple[str, ...]
    form: Form
    knows_version: bool

    @cached_property
    def of_known_line(self) -> bool:
        """Tell whether the keys of its Kafka line are known; no other line's keys say anything about it."""
        return truth_keys.load().knows(self.setting.version)

    @cached_property
    def clients(self) -> tuple[Client, ...]:
        return clients(self.type, self.setting)

    @cached_property
    def client_by_name(self) -> Mapping[str, Client]:
        return {client.name: client for client in reversed(self.clients)}  # of two with one name the first

    @cached_property
    def winners(self) -> Mapping[str, Mapping[str, str]]:
        """Client → plain key → the key of the config that decides it."""
        config = dict.fromkeys(self.keys, "")
        return {name: winners(client, config) for name, client in self.client_by_name.items()}


# The keys whose values (not only whether they are there) decide which clients a connector has.
_DECIDE_CLIENTS = ("offset-syncs.topic.location", "offsets.storage.topic", "emit.offset-syncs.enabled")


@lru_cache(maxsize=4096)
def _kind(
    type_: ConnectorType,
    form: Form,
    keys: tuple[str, ...],
    values: tuple[str | None, ...],
    workers: tuple[str | None, bool],
) -> SubjectKind:
    version, exactly_once = workers
    decisive = {key: value for key, value in zip(_DECIDE_CLIENTS, values, strict=True) if value is not None}
    setting = Setting.from_config(dict.fromkeys(keys, "") | decisive, version or _newest(), exactly_once=exactly_once)
    return SubjectKind(type_, setting, keys, form, version is not None)


_placed = cache(kafka_version)
_NONE: Mapping[str, str] = {}


@cache
def _newest() -> str:
    keys = truth_keys.load()
    return keys.releases[keys.lines[-1]]


@dataclass(frozen=True, eq=False)
class Subject:
    """A connector with what is known around it. `spots` has the places of keys with their own; `state` is Connect's.

    `records_kafka` is the cluster at the addresses that its record producer has instead of the workers'. In
    mm2.properties `scopes` has the clusters at the start of each key's line: () for the top level, (A,) for a cluster,
    (A, B) for a pair. In a JSON or YAML file `home` is the path of its config, and `paths` that of each key; `unused`
    are entries of the config that decide nothing, since the file says the same elsewhere.
    """

    connector: Connector
    spot: Spot
    spots: Mapping[str, Spot] = field(default_factory=dict, repr=False)
    form: Form = "connect"
    worker: WorkerFacts = WorkerFacts()
    source_kafka: KafkaFacts = KafkaFacts()
    target_kafka: KafkaFacts = KafkaFacts()
    records_kafka: KafkaFacts = KafkaFacts()
    wire: LinkFacts | None = None
    state: str | None = None
    scopes: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    silences: tuple[Silence, ...] = ()
    home: PathKey = ()
    unused: tuple[Entry, ...] = field(default=(), repr=False)
    paths: Mapping[str, PathKey] = field(default_factory=dict, repr=False)
    resource: OperatorResource | None = None

    @cached_property
    def name(self) -> str:
        return self.connector.name

    @cached_property
    def type(self) -> ConnectorType:
        return self.connector.type

    @cached_property
    def config(self) -> Mapping[str, str]:
        return self.connector.config

    def with_config(self, config: Mapping[str, str]) -> Subject:
        """Return it with another config."""
        return replace(self, connector=replace(self.connector, config=config))

    def get(self, key: str, default: str = "") -> str:
        """Return a key's value as Connect reads it, without blanks around it."""
        return self._values.get(key, default)

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
        """Its two clusters; in mm2.properties as the file calls them, where a line may give it other aliases."""
        of_file = self.name.partition(" ")[0] if self.form == "dedicated" else ""
        return of_file if "->" in of_file else f"{self.source}->{self.target}"

    @cached_property
    def is_off(self) -> bool:
        """Tell whether it does nothing: stopped, paused or enabled=false."""
        return self.state in RESTING or not self.flag("enabled", default=True)

    @property
    def version(self) -> str:
        """The workers' Kafka version; the newest line when it is not known."""
        return self.known_version or _newest()

    @property
    def known_version(self) -> str | None:
        """The workers' Kafka version, None when it is not known or cannot be placed (7.6.0-ccs is 3.6)."""
        return _placed(self.worker.version or "")

    @cached_property
    def is_beyond(self) -> bool:
        """Tell whether the workers' version is newer than all known lines; it is judged by the newest of them."""
        newest = numbers(truth_keys.load().lines[-1])
        return self.known_version is not None and numbers(self.known_version)[: len(newest)] > newest

    @cached_property
    def exactly_once(self) -> bool:
        """Tell whether it is transactional: on exactly-once workers, or it requires such and they are unknown."""
        if self.worker.exactly_once is None:
            required = self.get("exactly.once.support").lower() == "required"
            return required and numbers(self.version) >= (3, 3)  # KIP-618
        return self.worker.exactly_once

    @cached_property
    def kind(self) -> SubjectKind:
        """What it shares with all connectors that have the same keys."""
        values = tuple(map(self.config.get, _DECIDE_CLIENTS))
        return _kind(self.type, self.form, tuple(self.config), values, (self.known_version, self.exactly_once))

    @property
    def kafkas(self) -> tuple[KafkaFacts, KafkaFacts, KafkaFacts]:
        """The clusters of its source, its target and its record producer's override."""
        return self.source_kafka, self.target_kafka, self.records_kafka

    @property
    def setting(self) -> Setting:
        return self.kind.setting

    @property
    def clients(self) -> tuple[Client, ...]:
        """The Kafka clients that this connector has."""
        return self.kind.clients

    def client(self, name: str) -> Client | None:
        """Return a client by name (`record producer`, `source consumer`, `source admin`, …), None for none."""
        return self.kind.client_by_name.get(name)

    @cached_property
    def configured_clients(self) -> Mapping[str, ConfiguredClient]:
        """Its clients by name, with what connector and workers set for them."""
        workers = self.worker.properties or _NONE
        return {
            name: ConfiguredClient(client, self.setting, self.config, workers, self.kind.winners[name])
            for name, client in self.kind.client_by_name.items()
        }

    def written_key(self, client: str, plain: str) -> str:
        """Return the config key that sets a client's plain key, "" for none."""
        return self.kind.winners.get(client, _NONE).get(plain, "")

    def workers_key(self, client: str, plain: str) -> str:
        """Return the workers' property that a client's plain key is taken from, "" for none."""
        configured = self.configured_clients.get(client)
        return configured.inherited_key(plain) if configured else ""

    def is_set(self, client: str, *plains: str) -> bool:
        """Tell whether one of these is set on the connector or on its workers; much cheaper than computing values."""
        ours = self.kind.winners.get(client, _NONE)
        if any(plain in ours for plain in plains):
            return True
        return bool(self.worker.properties) and any(self.workers_key(client, plain) for plain in plains)

    def setting_of(self, client: str, plain: str) -> Value | None:
        """Return the effective setting of a client's plain key with its origin: see `truth.reach`."""
        configured = self.configured_clients.get(client)
        return configured.value(plain) if configured else None

    def value(self, client: str, plain: str) -> str | None:
        """Return the effective value of a client's plain key."""
        setting = self.setting_of(client, plain)
        return setting.value if setting else None

    def number(self, client: str, plain: str) -> int | None:
        """Return a client's value as a number, None when it is not a number."""
        try:
            return int(self.value(client, plain) or "")
        except ValueError:
            return None

    def worker_property(self, key: str) -> str | None:
        """Return one of the workers' properties; None when it is not set or they are unknown."""
        value = (self.worker.properties or {}).get(key)
        return None if value is None else value.strip()

    def spot_of(self, key: str) -> Spot:
        """Return the place of a key, or of the connector when the key is not set."""
        return self.spots.get(key, self.spot.with_key(key) if key in self.config else self.spot)

    @cached_property
    def _values(self) -> dict[str, str]:
        return {key: value.strip() for key, value in self.config.items()}


@dataclass(frozen=True)
class SourceFile:
    """A file: `kind` is its syntax; `entries` are in order, duplicate keys included."""

    path: str
    kind: Literal["properties", "json", "dedicated", "tree"]
    entries: tuple[Entry, ...] = ()
    silences: tuple[Silence, ...] = ()

    def spot(self, entry: Entry) -> Spot:
        return Spot(self.path, entry.line, key=entry.key, column=entry.column)


@dataclass(frozen=True)
class CatchUpFacts:
    """A catch-up limit of a tree, and its connectors' measured traffic, in bytes per second (None: not measured)."""

    bytes_per_second: float
    traffic: float | None
    subjects: tuple[Subject, ...]


@dataclass(frozen=True)
class Estate:
    """All that is linted together. `complete`: every connector of these clusters is in it (a tree, a live Connect)."""

    subjects: tuple[Subject, ...]
    files: tuple[SourceFile, ...] = ()
    complete: bool = False
    logins: tuple[DeclaredLogin, ...] = ()
    unused_links: tuple[tuple[Spot, str], ...] = ()
    """Of a tree: the links that no flow uses, and their ends."""
    limits: tuple[CatchUpFacts, ...] = ()
    notes: tuple[Note, ...] = ()
    """What was left out of files, and what in them could not be read."""

    @cached_property
    def known_lines_only(self) -> Estate:
        """The same without connectors of Kafka lines that are not known."""
        judged = tuple(subject for subject in self.subjects if subject.kind.of_known_line)
        return self if len(judged) == len(self.subjects) else replace(self, subjects=judged, complete=False)
