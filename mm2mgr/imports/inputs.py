"""Prepares connectors for a tree: values as Kafka takes them, placeholders for secrets, the Connect cluster of each.

Readers of `formats` give the value that was meant where a slip changes it; what runs has the value that Java reads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mm2mgr.connectors import ConnectorType
from mm2mgr.formats.connectors import FoundConnector
from mm2mgr.formats.properties import Entry
from mm2mgr.formats.recognise import ForeignFile
from mm2mgr.formats.templates import UNNAMED, template_in, without_templates
from mm2mgr.secrets import is_placeholder, lasting_parts
from mm2mgr.truth.explain import RENAMED
from mm2mgr.truth.keys import fault, load
from mm2mgr.truth.reach import numbers

_NAME_SIGNS = re.compile(r"[^A-Za-z0-9._-]+")
_BLACKLISTS_GONE = (4, 0)


@dataclass(frozen=True, order=True)
class InputKey:
    """A key of an input: file, line, and the key as the file has it."""

    file: str
    line: int
    key: str

    @property
    def place(self) -> str:
        """Its file and line."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Placeholder:
    """An environment variable that workers need, since the tree has it in place of a value.

    `reason` is `secret` (the value was in clear) or `template` (a tool fills it in).
    """

    variable: str
    stands_for: str
    reason: str
    place: str


@dataclass(frozen=True)
class Mirror:
    """A connector of MirrorMaker that is imported: `config` as Kafka takes it, placeholders for secrets in clear.

    `connect` is the name of its Connect cluster; `lines` has the input of each key; `slips` are keys whose file says
    something else than its writer meant, with the value that was meant. `replaced` are keys with new placeholders.
    """

    name: str
    type: ConnectorType
    file: str
    connect: str
    source: str
    target: str
    config: Mapping[str, str] = field(repr=False)
    lines: Mapping[str, InputKey] = field(repr=False)
    version: str
    origin: FoundConnector = field(repr=False)
    slips: Mapping[str, str] = field(default_factory=dict, repr=False)
    replaced: frozenset[str] = frozenset()
    workers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The properties of its workers, as far as its file has them, with the same placeholders."""

    @cached_property
    def pair(self) -> str:
        """`source->target`, as its aliases are."""
        return f"{self.source}->{self.target}"

    @property
    def is_dedicated(self) -> bool:
        """Whether it runs in a process of its own, so that Connect has no connector of it."""
        return self.origin.form != "connect"

    @property
    def exactly_once(self) -> bool:
        return bool(self.origin.workers and self.origin.workers.exactly_once)

    @property
    def place(self) -> str:
        return f"{self.file}:{self.origin.line}" if self.origin.line else self.file


class Preparation:
    """Prepares all connectors of some inputs; one secret of a cluster has one placeholder wherever it stands."""

    def __init__(self, version: str | None, connects: Sequence[str] = ()) -> None:
        self.asked_version = version
        self.version = version or load().lines[-1]
        self.connects = connects
        self.placeholders: dict[str, Placeholder] = {}
        self._variables: dict[tuple[str, str], str] = {}

    def mirrors(self, files: Sequence[ForeignFile]) -> list[Mirror]:
        """Return the connectors of MirrorMaker; those of other plugins are left out."""
        return [
            self._mirror(file, connector)
            for file in files
            for connector in file.connectors
            if connector.type is not None
        ]

    def _mirror(self, file: ForeignFile, connector: FoundConnector) -> Mirror:
        config, slips = _values_of_java(file, connector)
        lines = {
            key: InputKey(line.file or file.path, line.line, line.key)
            for key, line in connector.lines.items()
            if key in config
        }
        version = self.asked_version or known_version(connector, self.version)
        config, lines = with_new_names(config, lines, version)
        source, target = (config.get(f"{side}.cluster.alias", "").strip() for side in ("source", "target"))
        target = target or "target"  # MirrorConnectorConfig.TARGET_CLUSTER_ALIAS_DEFAULT
        type_ = connector.type
        assert type_ is not None
        for key in connector.sensitive & config.keys():
            if not is_placeholder(value := config[key]):
                config = {**config, key: self._placeholder(value, key, "", (source, target), lines[key].place)}
        clear = dict(self._without_secrets(config, lines, source, target, connector.name))
        own = connector.workers.properties if connector.workers else {}
        workers = dict(self._without_secrets(own, {}, target, target, connector.name))
        return Mirror(
            config.get("name", connector.name).strip() if connector.form == "connect" else connector.name,
            type_,
            file.path,
            self._connect_name(file, connector, source, target),
            source,
            target,
            clear,
            lines,
            version,
            connector,
            slips,
            frozenset(
                key for key, value in clear.items() if value != connector.config.get(key, value) and key not in slips
            ),
            workers,
        )

    # --- the Connect cluster ------------------------------------------------------------------------------------------

    def _connect_name(self, file: ForeignFile, connector: FoundConnector, source: str, target: str) -> str:
        """Name the Connect cluster: as the file does, after a file or folder of several connectors, or the target."""
        if self.connects == (ALL_THERE,):
            return ALL_THERE
        if connector.form != "connect":  # on Connect, heartbeats run beside the flow that carries them
            return alias_text(source if connector.type == "heartbeat" else target)
        if connector.owner:
            return alias_text(connector.owner)
        if len(self.connects) == 1:
            return self.connects[0]
        *folders, name = re.split(r"[/\\]", file.path)
        stem = name.rpartition(".")[0] or name
        names = [stem, *reversed(folders)]
        if declared := next((name for name in names if name in self.connects), ""):
            return declared
        several = sum(other.type is not None for other in file.connectors) > _OF_ONE_PAIR
        return alias_text(stem if several else target)

    # --- secrets and templates ----------------------------------------------------------------------------------------

    def _without_secrets(
        self, config: Mapping[str, str], lines: Mapping[str, InputKey], source: str, target: str, name: str
    ) -> Iterator[tuple[str, str]]:
        for key, value in config.items():
            place = lines[key].place if key in lines else name
            text = self._without_clear_parts(key, value, source, target, place)
            yield key, self._without_templates(key, text, source, target, place)

    def _without_clear_parts(self, key: str, value: str, source: str, target: str, place: str) -> str:
        secrets = [part for part in lasting_parts(key, value) if part.strip() and not is_placeholder(part)]
        secrets = [part for part in secrets if part in value and not _holds_only_placeholders(part)]
        for part in sorted(secrets, key=len, reverse=True):
            if part in value:
                option = _option(value, part)
                text = self._placeholder(part, key, option, (source, target), place)
                before = rf"({re.escape(option)}\s*=\s*\\?[\"']?)" if option else "()"
                value = _with_part_replaced(value, before + re.escape(part), text)
        return value

    def _placeholder(self, secret: str, key: str, option: str, ends: tuple[str, str], place: str) -> str:
        variable = self._variable(secret, key, option, *ends)
        self.placeholders.setdefault(variable, Placeholder(variable, option or key, "secret", place))
        return f"${{env:{variable}}}"

    def _without_templates(self, key: str, value: str, source: str, target: str, place: str) -> str:
        """Return a value with a placeholder for what a template or a shell fills in."""
        if key.startswith(("transforms.", "predicates.")) or not (part := template_in(value)):
            return value
        named = UNNAMED.fullmatch(part)
        variable = (named["name"] or named["bare"]) if named else self._variable(part, key, "", source, target)
        self.placeholders.setdefault(variable, Placeholder(variable, key, "template", place))
        rest = value.replace(part, f"${{env:{variable}}}")
        return rest if not template_in(rest) else without_templates(rest, f"${{env:{variable}}}")

    def _variable(self, secret: str, key: str, option: str, source: str, target: str) -> str:
        side = source if key.startswith(("source.", "consumer.")) else target
        is_of_side = key.startswith(("source.", "target."))  # each cluster has its own, also of an equal secret
        for alias in (side,) if is_of_side else (side, source, target):
            if variable := self._variables.get((alias, secret)):
                return variable
        plain = re.sub(r"^(?:source|target)\.(?:cluster|producer|consumer|admin)\.|^\w+\.override\.", "", key)
        if option:
            plain = f"sasl.{option}" if "jaas" in plain else f"{plain}.{option}"
        words = re.sub(r"[^A-Za-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", f"{side}_{plain}")).upper()
        stem, taken = words.strip("_"), set(self._variables.values())
        stem = f"_{stem}" if stem[:1].isdigit() else stem  # a shell exports no name that begins with a digit
        numbered = (stem if count == 1 else f"{stem}_{count}" for count in range(1, len(taken) + 2))
        variable = next(name for name in numbered if name not in taken)
        self._variables[side, secret] = variable
        return variable


ALL_THERE = "connect"
"""The Connect cluster of all connectors where a person names the URL of one and no more."""
_OF_ONE_PAIR = 3  # source, checkpoint and heartbeat connector: such a file says nothing of where they run


def alias_text(text: str) -> str:
    """Return a text as the key of an entry may be: letters, digits, '.', '_' and '-', the first no sign."""
    return _NAME_SIGNS.sub("-", text).strip("._-")[:100].rstrip("-") or "unnamed"


def known_version(connector: FoundConnector, version: str) -> str:
    """Return the version of a connector's workers where its file says it and it is known, else the one given."""
    own = connector.workers.version if connector.workers else None
    return own if own and load().knows(own) else version


def _values_of_java(file: ForeignFile, connector: FoundConnector) -> tuple[dict[str, str], dict[str, str]]:
    """Return a config with the values that Java reads, and those that were meant where they are others."""
    entries: Iterable[Entry] = file.entries or connector.entries
    read = {(entry.file, entry.line, entry.key): entry.value for entry in entries}
    config, slips = dict(connector.config), dict[str, str]()
    for key, line in connector.lines.items():
        value = read.get((line.file, line.line, line.key), line.value)
        if key not in config or value == config[key]:
            continue
        if connector.type and not fault(connector.type, key, load().lines[-1], value):
            slips[key], config[key] = config[key], value
        else:  # Connect refuses what is written: nothing runs with it
            slips[key] = config[key]
    return {key: value.strip() if key in _TRIMMED else value for key, value in config.items()}, slips


_TRIMMED = frozenset({"source.cluster.alias", "target.cluster.alias", "connector.class"})


def with_new_names(
    config: Mapping[str, str], lines: Mapping[str, InputKey], version: str
) -> tuple[dict[str, str], dict[str, InputKey]]:
    """Return a config in which the names before KIP-629 are the new ones, which win where both are there.

    From 4.0 on Kafka does not read the old names, and they stay.
    """
    if numbers(version) >= _BLACKLISTS_GONE:
        return dict(config), dict(lines)
    names = {old: new for old, new in RENAMED.items() if old in config and new not in config}
    return (
        {names.get(key, key): value for key, value in config.items()},
        {names.get(key, key): line for key, line in lines.items()},
    )


def _option(value: str, part: str) -> str:
    """Return the name of the option of a JAAS string that has a value."""
    match = re.search(rf"([\w.]+)\s*=\s*\\?[\"']?{re.escape(part)}", value)
    return match[1] if match else ""


def _with_part_replaced(value: str, pattern: str, text: str) -> str:
    return re.sub(pattern, lambda match: match[1] + text, value)


def _holds_only_placeholders(part: str) -> bool:
    return bool(re.fullmatch(r"(?:\$\{[^}]*\}|\s)+", part))


def most_common(values: Iterable[str]) -> str:
    """Return the value that is there most often, the first of several; "" for none."""
    counted = Counter(values)
    return max(counted, key=lambda value: counted[value]) if counted else ""
