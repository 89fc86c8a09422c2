"""What a connector's keys do: for the connector itself and for each Kafka client, in the version of its workers.

Two configs differ where one of these gets another value; defaults of that version, of Connect and of MirrorMaker count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from mm2mgr.comparison.differences import meaning
from mm2mgr.connectors import CLASSES, ConnectorType
from mm2mgr.spec.scalars import java_pattern
from mm2mgr.truth.keys import Key, load
from mm2mgr.truth.reach import CLUSTER_KEYS, ConfiguredClient, Setting, clients, winners

NEVER_VERBATIM = frozenset(
    {
        *("name", "connector.class", "source.cluster.alias", "target.cluster.alias"),
        *("replication.policy.class", "replication.policy.separator", "exactly.once.support"),
    }
)
"""What a flow says by itself and cannot give verbatim."""
PATTERNS = frozenset({"topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude"})
CONVERTERS = ("key.converter", "value.converter", "header.converter")
KAFKA = "org.apache.kafka."
_PLUGINS = {  # keys of classes that may read any key of the connector's config
    *("topic.filter.class", "group.filter.class", "config.property.filter.class", "forwarding.admin.class"),
    *("replication.policy.class", "metric.reporters"),
}
_PLUGINS_OF_CLIENTS = ("interceptor.classes", "metric.reporters", "partitioner.class", "sasl.login.callback.handler")
_OPEN_PREFIXES = ("transforms.", "predicates.", "topic.creation.")
_INERT = CLUSTER_KEYS | {"security.providers", "config.providers"}  # defined for connectors, and read by no client
_SYNCS_OFF = "emit.offset-syncs.enabled"


@dataclass(frozen=True)
class WorkerSetting:
    """What decides besides the config: Kafka's version, the workers' properties and exactly-once, their own Kafka.

    Where `is_known` is false, nobody knows what the workers give their clients.
    """

    version: str
    workers: Mapping[str, str] = field(default_factory=dict, repr=False)
    exactly_once: bool = False
    home_servers: str = ""
    is_known: bool = True


@dataclass(frozen=True)
class KeyReader:
    """Who reads a key: a client by its plain key, or the connector itself (`client` is "")."""

    client: str
    plain: str


class Effects:
    """The effect of a connector's config."""

    def __init__(self, type_: ConnectorType, config: Mapping[str, str], around: WorkerSetting) -> None:
        self.type, self.config, self.around = type_, config, around
        setting = Setting.from_config(config, around.version, exactly_once=around.exactly_once)
        self.clients = {
            client.name: ConfiguredClient(client, setting, config, around.workers, winners(client, config))
            for client in clients(type_, setting)
        }
        self._by_key: dict[str, list[KeyReader]] = {}
        for name, client in self.clients.items():
            for plain, key in client.written.items():
                if self.is_known(client, plain):
                    self._by_key.setdefault(key, []).append(KeyReader(name, plain))
        self.has_plugin = any(not value.strip().startswith(KAFKA) for key in _PLUGINS if (value := config.get(key)))

    def definition(self, key: str) -> Key | None:
        """Return Kafka's definition of a key of the connector, None where it has none or reads it in vain."""
        return None if key in _INERT else load().find(self.type, key, self.around.version)

    def is_open(self, key: str) -> bool:
        """Tell whether a key without a definition may be read: by a transformation, a converter or a foreign class."""
        if key.startswith(_OPEN_PREFIXES):
            return True
        if key.startswith("mm2mgr."):
            return False
        if key.startswith(tuple(f"{converter}." for converter in CONVERTERS)):
            return key.partition("converter.")[0] + "converter" in self.config
        return self.has_plugin and not any(load().history(type_, key) for type_ in CLASSES.values())

    def readers(self, key: str) -> list[KeyReader]:
        """Return who gets the value of this key: nobody for one that does nothing, or that another key outranks."""
        readers = list(self._by_key.get(key, ()))
        if self.definition(key) or (not self.is_of_client(key) and self.is_open(key)):
            readers.append(KeyReader("", key))
        return readers

    def outranked_by(self, key: str) -> str:
        """Return the key that every client takes instead of this one, "" for none."""
        for client in self.clients.values():
            for layer in client.client.layers:
                plain = layer.plain(key)
                winner = client.written.get(plain) if plain else None
                if plain and winner and winner != key and self.is_known(client, plain):
                    return winner
        return ""

    def is_of_client(self, key: str) -> bool:
        """Tell whether a client of such a connector has a prefix for a key."""
        return any(layer.plain(key) for client in self.clients.values() for layer in client.client.layers)

    def is_known(self, client: ConfiguredClient, plain: str) -> bool:
        """Tell whether a client does something with a plain key."""
        if plain in client.client.forced:
            return False
        if load().find(client.client.kind, plain, self.around.version):
            return True
        return any(key.startswith(_PLUGINS_OF_CLIENTS) for key in client.written)

    def value(self, reader: KeyReader) -> object:
        """Return what a reader gets, in a form to compare; None where nothing is set and Kafka has no default."""
        return self._of_client(reader) if reader.client else self._of_connector(reader.plain)

    def _of_connector(self, key: str) -> object:
        definition, text = self.definition(key), self.config.get(key)
        if text is None and key.startswith(CONVERTERS):
            text = self.around.workers.get(key)
        if text is None:
            text = definition.default if definition else None
        return None if text is None else _meaning(key, text, definition.type if definition else "")

    def _of_client(self, reader: KeyReader) -> object:
        client = self.clients.get(reader.client)
        if client is None:
            return None
        value = client.value(reader.plain)
        text = value.value if value else None
        if client.client.worker_prefixes and not self.around.is_known and client.own_value(reader.plain) is None:
            text = None  # theirs, whatever that is
        if reader.plain == "bootstrap.servers" and client.client.worker_prefixes:
            text = (own.value if (own := client.own_value(reader.plain)) else None) or self.around.home_servers
        definition = load().find(client.client.kind, reader.plain, self.around.version)
        return None if text is None else _meaning(reader.plain, text, definition.type if definition else "")

    def has_default(self, reader: KeyReader) -> bool:
        """Tell whether a reader gets what it would get if nothing was written."""
        if not reader.client:
            definition = self.definition(reader.plain)
            if definition is None or definition.default is None:
                return False
            return self.value(reader) == _meaning(reader.plain, definition.default, definition.type)
        client = self.clients[reader.client]
        if client.client.worker_prefixes and not self.around.is_known:
            return False
        bare = replace(client, config={}, workers={}, written={}).value(reader.plain)
        definition = load().find(client.client.kind, reader.plain, self.around.version)
        kind = definition.type if definition else ""
        return bare is not None and self.value(reader) == _meaning(reader.plain, bare.value, kind)

    def all_readers(self) -> Iterator[KeyReader]:
        """Yield all who get something that is written here."""
        for key in self.config:
            yield from self.readers(key)
        yield from (KeyReader("", key) for key in self.worker_converters())
        for name, client in self.clients.items():
            if client.client.name == "record producer" and self.around.workers:
                prefixes = client.client.worker_prefixes
                plain = (
                    key[len(prefix) :] for key in self.around.workers for prefix in prefixes if key.startswith(prefix)
                )
                yield from (KeyReader(name, key) for key in plain if self.is_known(client, key))

    def worker_converters(self) -> dict[str, str]:
        """Return the converters that the connector takes from its workers, with their settings."""
        inherited = tuple(key for key in CONVERTERS if key in self.around.workers and key not in self.config)
        return {key: text for key, text in self.around.workers.items() if key.startswith(inherited)}

    def keys_for(self, reader: KeyReader) -> list[str]:
        """Return the keys of the config by which a reader may get a value, in all spellings."""
        if not reader.client:
            return [reader.plain] if reader.plain in self.config else []
        client = self.clients.get(reader.client)
        if client is None:
            return []
        return [key for key in self.config if any(layer.plain(key) == reader.plain for layer in client.client.layers)]


@lru_cache(maxsize=128)  # the same long list is compared for each reader and each round
def _meaning(key: str, text: str, kind: str) -> object:
    value = meaning(key, text, kind)
    if key in PATTERNS and isinstance(value, frozenset):  # the dot of a name: told, and no reason for another key
        return frozenset(java_pattern(str(item)) for item in value)
    return value


def verbatim_keys(
    type_: ConnectorType, before: Mapping[str, str], after: Mapping[str, str], around: WorkerSetting, new: WorkerSetting
) -> dict[str, str | None]:
    """Return the keys to write over `after` so that all get what they got with `before`; None takes a key out.

    `around` is where the connector runs, `new` where it is going to run.
    """
    overlay: dict[str, str | None] = {}
    old = Effects(type_, before, around)
    for _ in range(_ROUNDS):
        current = Effects(type_, overlaid(after, overlay), new)
        more = {key: value for key, value in _repairs(old, current) if key not in overlay or overlay[key] != value}
        if not more:
            break
        overlay |= more
    if overlay.get(_SYNCS_OFF) == "false":  # beside it Kafka refuses what concerns their topic
        overlay |= {key: None for key in after if key.startswith("offset-syncs") and key not in before}
    return {key: value for key, value in overlay.items() if value is not None or key in after}


def is_addable(key: str) -> bool:
    """Tell whether a tree may have a key verbatim."""
    return bool(_KEY.fullmatch(key)) and key not in NEVER_VERBATIM and not key.startswith("mm2mgr.")


_ROUNDS = 4
_KEY = re.compile(r"[\w.$-]+")  # what the declaration takes as a key
_ONE_TASK = {"heartbeat": KeyReader("", "tasks.max")}  # MirrorHeartbeatConnector never has more


def overlaid(config: Mapping[str, str], overlay: Mapping[str, str | None]) -> dict[str, str]:
    """Return a config with the keys of an overlay in place of its own."""
    texts = {key: value for key, value in overlay.items() if value is not None}
    return {key: value for key, value in config.items() if key not in overlay} | texts


def _repairs(old: Effects, current: Effects) -> Iterator[tuple[str, str | None]]:
    for reader in dict.fromkeys((*old.all_readers(), *current.all_readers())):
        if reader.client and not (reader.client in old.clients and reader.client in current.clients):
            continue  # follows from a key of the connector, which is compared
        if not differs(reader, old, current):
            continue
        names = {*old.keys_for(reader), *current.keys_for(reader)}
        for key in sorted(filter(_KEY.fullmatch, names)):
            if key in NEVER_VERBATIM or key.startswith("mm2mgr.") or (key == "tasks.max" and old.type == "source"):
                continue
            if old.config.get(key) != current.config.get(key):
                yield key, old.config.get(key, old.worker_converters().get(key))
        if not names and not reader.client and reader.plain in old.worker_converters():
            yield reader.plain, old.worker_converters()[reader.plain]
        if not names and reader.client and (text := inherited_text(old, reader)) is not None:
            layer = old.clients[reader.client].client.layers[-1]
            yield layer.prefix + reader.plain, text


def inherited_text(effects: Effects, reader: KeyReader) -> str | None:
    """Return what a client takes from its workers, None where they give nothing."""
    client = effects.clients[reader.client]
    value = client.own_value(reader.plain)
    return value.value if value and value.origin == "workers" else None


def differs(reader: KeyReader, old: Effects, new: Effects) -> bool:
    """Tell whether a reader gets something else."""
    return old.value(reader) != new.value(reader) and reader != _ONE_TASK.get(old.type)


def without_workers(around: WorkerSetting) -> WorkerSetting:
    """Return the surroundings without properties of workers, as new ones have none that are known."""
    return replace(around, workers={}, is_known=True)
