"""Connectors as the readers of this package return them, whoever wrote or runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from mm2mgr.connectors import ConnectorType, type_of
from mm2mgr.formats.properties import Entry
from mm2mgr.secrets import MASK
from mm2mgr.spec.places import PathKey

Form = Literal["connect", "dedicated", "mirrormaker1"]
# What MirrorMaker's driver, like Strimzi's operator, gives its workers.
CONVERTERS = dict.fromkeys(
    ("key.converter", "value.converter", "header.converter"), "org.apache.kafka.connect.converters.ByteArrayConverter"
)
EXACTLY_ONCE_KEY = "exactly.once.source.support"
NAMING_KEYS = frozenset({"name", "connector.class", "source.cluster.alias", "target.cluster.alias"})
"""What a connector is called by, in texts and in a tree."""


@dataclass(frozen=True)
class OperatorNote:
    """What Strimzi's operator refuses or ignores of a resource: member, line, effect, and what to write."""

    key: str
    line: int
    message: str
    fix: str
    severity: Literal["error", "warning", "info"] = "warning"


@dataclass(frozen=True)
class OperatorResource:
    """The resource of Strimzi of a connector. `workers` names the resource of its workers, with the namespace."""

    kind: str
    is_v1: bool
    workers: str
    notes: tuple[OperatorNote, ...] = ()


@dataclass(frozen=True)
class Note:
    """What a reader could not take from a line of a file, or left out, and what to do about it."""

    line: int
    message: str
    file: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.message}"


@dataclass(frozen=True)
class FoundWorkers:
    """The Connect workers of a connector, as far as its file says; `policy` is the short name of the override policy.

    `takes_resources`: connectors are created there as resources of Strimzi, where its operator runs them; `notes` is
    what it refuses of theirs.
    """

    properties: Mapping[str, str] = field(repr=False)  # may hold secrets
    version: str | None = None
    policy: str | None = None
    takes_resources: bool = True
    notes: tuple[OperatorNote, ...] = ()

    @property
    def exactly_once(self) -> bool:
        return self.properties.get(EXACTLY_ONCE_KEY, "disabled").strip().lower() == "enabled"


@dataclass(frozen=True)
class FoundConnector:
    """A connector that a file declares or that runs.

    `lines` has the line that decides each key of `config`; `entries` is what the file says of it, in order, with
    duplicate keys and nulls; `unused` are entries of its config that decide nothing, since its file says the same
    elsewhere. `owner` is the Connect cluster it is meant for, where the file says so; `state` is Connect's. `home` is
    the path of its config in a JSON or YAML file; `places` are those of keys that belong elsewhere in it.

    `file` is where it was read, "" for one that runs; an entry of `lines` that names a file is in that one.
    `sensitive` are the keys whose values the file marks as secret, whatever they are called. Of a MirrorMaker 1,
    `config` is what a connector needs to do the same, and `start_group` its consumer group on the source, "" where its
    offsets are in ZooKeeper.
    """

    name: str
    class_name: str
    config: Mapping[str, str] = field(repr=False)
    lines: Mapping[str, Entry] = field(default_factory=dict, repr=False)
    line: int = 0
    entries: tuple[Entry, ...] = field(default=(), repr=False)
    unused: tuple[Entry, ...] = field(default=(), repr=False)
    form: Form = "connect"
    state: str | None = None
    owner: str = ""
    workers: FoundWorkers | None = None
    home: PathKey = ()
    places: Mapping[str, PathKey] = field(default_factory=dict)
    resource: OperatorResource | None = None
    file: str = ""
    sensitive: frozenset[str] = frozenset()
    start_group: str = ""

    def place_of(self, key: str) -> tuple[str, int]:
        """Return file and line of a key; its own where nothing says the key, and 0 for an unknown line."""
        entry = self.lines.get(key)
        return (entry.file or self.file, entry.line) if entry else (self.file, self.line)

    def without_marked_names(self) -> FoundConnector:
        """Return it without a name, a class or aliases that its file marks as secret: these are shown everywhere."""
        marked = {key for key in NAMING_KEYS & self.sensitive if key in self.config}
        if not marked:
            return self
        config = {key: MASK if key in marked else value for key, value in self.config.items()}

        def hide(entry: Entry) -> Entry:
            return replace(entry, value=MASK, raw=MASK) if entry.key in marked else entry

        lines = {key: hide(entry) for key, entry in self.lines.items()}
        entries = tuple(map(hide, self.entries))
        name = MASK if "name" in marked else self.name
        class_name = MASK if "connector.class" in marked else self.class_name
        return replace(self, name=name, class_name=class_name, config=config, lines=lines, entries=entries)

    @property
    def type(self) -> ConnectorType | None:
        """Its type, None for a connector of another plugin."""
        return type_of(self.class_name)
