"""Compares two configs of one connector, key by key, by what its clients get and not by how that is written. Pure.

An identical write restarts a connector and a changed key all its tasks, so a key that only says what holds already is
no reason to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mm2mgr.assignment_text import PLUGIN_CLASS, is_plugin_class
from mm2mgr.comparison.ownership import JOURNAL_KEY
from mm2mgr.connectors import CLASSES, Connector, ConnectorType, type_of
from mm2mgr.defaults import Origin
from mm2mgr.secrets import mask
from mm2mgr.spec.scalars import PREFIX_BLOCKS, depends_on_order, java_pattern
from mm2mgr.truth.keys import Key, load
from mm2mgr.truth.reach import ConfiguredClient, Setting, configured_clients

Config = Mapping[str, str]
# Lists of which Kafka takes each item for itself, in any order.
_SETS = frozenset(
    {"bootstrap.servers", "topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude"}
)
_FILTERS = {
    "topics": "topic.filter.class",
    "groups": "group.filter.class",
    "config.properties": "config.property.filter.class",
}
_ALIASES = ("source.cluster.alias", "target.cluster.alias")


@dataclass(frozen=True)
class WorkerClients:
    """What the workers bring: Kafka version ("": unknown), and how their clients reach the Kafka they run on."""

    version: str = ""
    client: Config = field(default_factory=dict, repr=False)  # may hold secrets


def compare(desired: Connector, live: Config, workers: WorkerClients) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Compare by effect: return the keys that must be written to get what the tree says, and those that are written
    when something else is, since they are spelled otherwise, or are defaults of mm2mgr that are not in the tree.

    A value that people declared, or that somebody wrote into the live config, counts, a default of mm2mgr does not.
    """
    sides = _Sides(desired.type, live, desired.config, workers)
    differing, pending = [], []
    for key in sorted(live.keys() | desired.config.keys()):
        if live.get(key) == desired.config.get(key):
            continue
        is_ours = key not in live and desired.origins[key].kind in {"default", "template"}
        if key.startswith("mm2mgr.") or is_ours or sides.is_same(key) or sides.only_escapes(key):
            pending.append(key)
        else:
            differing.append(key)
    return tuple(differing), tuple(pending)


def with_live_order(desired: Config, live: Config) -> dict[str, str]:
    """Return a config whose sets are in the order of the live one's equal sets: order is no reason to write.

    A set with an item twice is not kept, since Kafka refuses to take it again from 4.2 on (KIP-1161).
    """

    def value(key: str) -> str:
        before, after = live.get(key), desired[key]
        is_alike = before is not None and before != after and is_set(key, desired, live)
        return before if is_alike and before and sorted(list_items(before)) == sorted(list_items(after)) else after

    return {key: value(key) for key in desired}


def is_set(key: str, *configs: Config) -> bool:
    """Tell whether the items of a key have no order, for Kafka's own filters and by the items themselves."""
    if key.endswith("bootstrap.servers"):
        return True
    by = _FILTERS.get(key.removesuffix(".exclude"), "")
    if key not in _SETS or any(by in config for config in configs):
        return False
    return not any(depends_on_order(config.get(key, "")) for config in configs)


def another_connector(desired: Connector, live: Config) -> str | None:
    """Return why a connector cannot be the one that the tree means, as the end of a sentence; None if it can."""
    if type_of(live.get("connector.class", "")) != desired.type:
        return (
            f"is a {live.get('connector.class') or 'connector without a class'}, and no"
            f" {desired.config['connector.class']}"
        )
    if JOURNAL_KEY in live:
        return "is in the middle of a move of its stored offsets, which an apply of its owner finishes"
    for key in _ALIASES:
        if live.get(key, "").strip() != (needed := desired.config.get(key, "")):
            return f"has {key}={live.get(key, '')}, and '{desired.flows[0]}' needs {needed}"
    return None


@dataclass(frozen=True)
class _Sides:
    type: ConnectorType
    live: Config = field(repr=False)
    desired: Config = field(repr=False)
    workers: WorkerClients

    def clients(self, config: Config) -> dict[str, ConfiguredClient]:
        return configured_clients(self.type, config, Setting.from_config(config, *filter(None, [self.version])))

    @property
    def version(self) -> str:
        return self.workers.version if self.workers.version and load().knows(self.workers.version) else ""

    def is_same(self, key: str) -> bool:
        """Tell whether a key that differs makes no difference to the connector and to every client of it."""
        before, after = self.clients(self.live), self.clients(self.desired)
        names = set(before) & set(after)
        plain = {name: self._plain(before[name], key) for name in names}
        read = {name: value for name, value in plain.items() if value}
        if read:
            return all(
                self._value_for(before[name], value) == self._value_for(after[name], value)
                for name, value in read.items()
            )
        definitions = {scope: load().find(scope, key, self.version or Setting().version) for scope in CLASSES.values()}
        definition = definitions[self.type]
        if definition is None:  # nothing reads a client's key in vain, or one of another connector of MirrorMaker
            return key.startswith(tuple(PREFIX_BLOCKS)) or any(definitions.values())
        live, other = self._both(key, definition)
        return live == other or self._is_off(key)

    def _both(self, key: str, definition: Key) -> tuple[object, object]:
        sides = (config.get(key, definition.default) for config in (self.live, self.desired))
        first, other = (None if value is None else meaning(key, value, definition.type) for value in sides)
        return first, other

    def _is_off(self, key: str) -> bool:
        """Tell whether a key is the interval of a job that runs on neither side."""
        switch = key.replace(".interval.seconds", ".enabled")
        definition = load().find(self.type, switch, self.version or Setting().version) if switch != key else None
        return definition is not None and self._both(switch, definition) == ("false", "false")

    def only_escapes(self, key: str) -> bool:
        """Tell whether a list differs only in the dots of names, which match any character without a backslash."""
        live, other = self.live.get(key), self.desired.get(key)
        if key not in _SETS - {"bootstrap.servers"} or live is None or other is None:
            return False
        return {java_pattern(item) for item in list_items(live)} == {java_pattern(item) for item in list_items(other)}

    def _plain(self, client: ConfiguredClient, key: str) -> str:
        return next((name for layer in client.client.layers if (name := layer.plain(key))), "")

    def _value_for(self, client: ConfiguredClient, plain: str) -> object:
        value = client.value(plain)
        text = value.value if value else None
        if client.client.worker_prefixes and client.own_value(plain) is None:
            text = self.workers.client.get(plain, text)  # the workers' own clients are what theirs are made from
        definition = load().find(client.client.kind, plain, client.setting.version)
        return None if text is None else meaning(plain, text, definition.type if definition else "")


def meaning(key: str, text: str, kind: str) -> object:
    """Return a value in a form to compare: a list of filters as a set, a truth value in small letters."""
    text = text.strip()
    if key in _SETS:
        return frozenset(list_items(text))
    if kind == "list":
        return tuple(list_items(text))
    if key == "connector.class":
        return PLUGIN_CLASS if is_plugin_class(text) else type_of(text) or text
    return text.lower() if kind == "boolean" else text


def list_items(text: str) -> Iterator[str]:
    """Yield the items of a LIST as Kafka splits it."""
    return (item for part in text.split(",") if (item := part.strip()))


Named = tuple[str, str]
"""A Connect cluster and a connector on it."""
SELECTING = (
    "topics",
    "topics.exclude",
    "topic.filter.class",
    "source.cluster.alias",
    "target.cluster.alias",
    "source.cluster.bootstrap.servers",
    "target.cluster.bootstrap.servers",
    "replication.policy.class",
    "replication.policy.separator",
    "enabled",
)
"""The keys that decide what a source connector takes, and what it is called on the target."""


@dataclass(frozen=True)
class KeyChange:
    """A key of a connector: None before: added, None after: removed. `origin`: where the value after is from."""

    key: str
    before: str | None = field(repr=False)  # may be secrets
    after: str | None = field(repr=False)
    origin: str = ""
    json_keys = "key kind before=masked_before after=masked_after origin=known_origin"

    @property
    def kind(self) -> Literal["add", "change", "remove"]:
        if self.before is None:
            return "add"
        return "remove" if self.after is None else "change"

    @property
    def masked_before(self) -> str | None:
        return None if self.before is None else mask(self.key, self.before)

    @property
    def masked_after(self) -> str | None:
        return None if self.after is None else mask(self.key, self.after)

    @property
    def known_origin(self) -> str | None:
        return self.origin or None


def diff(
    before: Mapping[str, str], after: Mapping[str, str], origins: Mapping[str, Origin] | None = None
) -> tuple[KeyChange, ...]:
    """Return the differing keys in order of their names. Values compare as strings, as Connect stores them."""
    where = origins or {}
    return tuple(
        KeyChange(key, before.get(key), after.get(key), str(where.get(key, "")))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    )


def selects_otherwise(live: Mapping[str, str], declared: Mapping[str, str]) -> bool:
    """Tell whether a source connector would take other topics, or name them otherwise, than the one that runs."""
    declared, naming = with_live_order(declared, live), ("replication.policy.", "transforms", "predicates.")
    keys = {*SELECTING, *(key for key in live.keys() | declared.keys() if key.startswith(naming))}
    return any(live.get(key) != declared.get(key) for key in keys)


def lowers_tasks(keys: Sequence[KeyChange]) -> bool:
    """Tell whether a change of keys lowers the number of tasks and does nothing else."""
    if [key.key for key in keys] != ["tasks.max"]:
        return False
    before, after = keys[0].before or "", keys[0].after or ""
    return before.isdecimal() and after.isdecimal() and 0 < int(after) < int(before)
