"""What a connector's keys do: for the connector itself and for each Kafka client, in the version of its workers.

Two configs differ where one of these gets another value; defaults of that version, of Connect and of MirrorMaker count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from mm2mgr.connectors import ConnectorType
from mm2mgr.formats.connectors import EXACTLY_ONCE_KEY, FoundConnector, FoundWorkers
from mm2mgr.imports.effective import ADDRESS, CONVERTERS, EffectiveConnector, is_of_mirror_maker, meaning_of
from mm2mgr.spec.scalars import java_pattern
from mm2mgr.truth.keys import Key, load
from mm2mgr.truth.reach import CLUSTER_KEYS, ConfiguredClient, Value

NEVER_VERBATIM = frozenset(
    {
        *("name", "connector.class", "source.cluster.alias", "target.cluster.alias"),
        *("replication.policy.class", "replication.policy.separator", "exactly.once.support"),
    }
)
"""What a flow says by itself and cannot give verbatim."""
PATTERNS = frozenset({"topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude"})
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

    @property
    def found_workers(self) -> FoundWorkers:
        """The workers as a reader of files returns them."""
        own = {EXACTLY_ONCE_KEY: "enabled" if self.exactly_once else "disabled"}
        own |= {ADDRESS: self.home_servers} if self.home_servers else {}
        return FoundWorkers({**self.workers, **own}, self.version)


@dataclass(frozen=True)
class KeyReader:
    """Who reads a key: a client by its plain key, or the connector itself (`client` is "")."""

    client: str
    plain: str


class Effects:
    """The effect of a connector's config."""

    def __init__(self, type_: ConnectorType, config: Mapping[str, str], around: WorkerSetting) -> None:
        self.type, self.config, self.around = type_, config, around
        self.got = EffectiveConnector(FoundConnector("", "", config), type_, around.version, around.found_workers)
        self.clients = self.got.clients
        self._by_key: dict[str, list[KeyReader]] = {}
        for name, client in self.clients.items():
            for plain, key in client.written.items():
                if self.is_known(client, plain):
                    self._by_key.setdefault(key, []).append(KeyReader(name, plain))

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
        return self.got.has_own_plugins and not is_of_mirror_maker(key)

    def readers(self, key: str) -> list[KeyReader]:
        """Return who gets the value of this key: nobody for one that does nothing, or that another key outranks."""
        readers = list(self._by_key.get(key, ()))
        if self.definition(key) or (not self.got.is_of_client(key) and self.is_open(key)):
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

    def is_known(self, client: ConfiguredClient, plain: str) -> bool:
        """Tell whether a client does something with a plain key."""
        is_defined = self.got.definition_of(client, plain) is not None
        return plain not in client.client.forced and (is_defined or self.got.has_plugins(client))

    def value(self, reader: KeyReader) -> object:
        """Return what a reader gets, in a form to compare; None where nothing is set and Kafka has no default."""
        if not reader.client:
            text = None if self.definition(reader.plain) else self.config.get(reader.plain)
            value = self.got.own_value(reader.plain) if text is None else Value(reader.plain, text, "connector")
            return self._meaning(reader.plain, value, self.type)
        client = self.clients.get(reader.client)
        if client is None or (self._is_workers_own(client) and client.own_value(reader.plain) is None):
            return None  # theirs, whatever that is
        return self._meaning(reader.plain, self.got.value_of(client, reader.plain), client.client.kind)

    def _is_workers_own(self, client: ConfiguredClient) -> bool:
        return bool(client.client.worker_prefixes) and not self.around.is_known

    def _meaning(self, key: str, value: Value | None, scope: str) -> object:
        definition = load().find(scope, key, self.around.version)
        return None if value is None else _meaning(key, value.value, definition.type if definition else "")

    def has_default(self, reader: KeyReader) -> bool:
        """Tell whether a reader gets what it would get if nothing was written."""
        if not reader.client:
            definition = self.definition(reader.plain)
            default = definition.default if definition else None
            usual = None if default is None else Value(reader.plain, default, "Kafka")
            return usual is not None and self.value(reader) == self._meaning(reader.plain, usual, self.type)
        client = self.clients[reader.client]
        if self._is_workers_own(client):
            return False
        bare = replace(client, config={}, workers={}, written={}).value(reader.plain)
        return bare is not None and self.value(reader) == self._meaning(reader.plain, bare, client.client.kind)

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
    value = meaning_of(key, text, kind)
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
