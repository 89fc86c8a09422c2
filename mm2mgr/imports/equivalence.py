"""Compares two sets of connectors by what each of their clients effectively gets: equal, or every difference.

Connectors are matched by type and pair of aliases, several of one pair by name. Placeholders are compared as texts. A
secret that is written as a placeholder on the other side is equal if the placeholder holds it, which is a condition.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal

from mm2mgr.comparison.differences import is_set, list_items, meaning
from mm2mgr.connectors import ConnectorType, type_of
from mm2mgr.formats.connectors import EXACTLY_ONCE_KEY, FoundConnector, FoundWorkers
from mm2mgr.formats.templates import template_in
from mm2mgr.imports.effective import (
    ADDRESS,
    CONVERTERS,
    POLICY,
    EffectiveConnector,
    changed_defaults,
    config_of,
    effective,
    meaning_of,
)
from mm2mgr.secrets import MASK, is_placeholder, is_secret, mask
from mm2mgr.topics.automaton import shortest
from mm2mgr.topics.names import machine_of
from mm2mgr.truth.keys import kafka_version, load
from mm2mgr.truth.reach import ConfiguredClient, Value

Outcome = Literal["equal", "differs", "open"]
CONNECTOR = "connector"
"""Where a client's name stands: the connector's own setting."""
WORKERS_OWN = "what the workers have"
_OWN_WORKERS = {"dedicated", "mirrormaker1"}  # forms that bring their own process
_MOST_STATES = 20_000
_MOST_COMPARED = 2_500
_PROVIDERS = "config.providers"
_PLACEHOLDER = re.compile(r"\$\{[^}]*\}")


@dataclass(frozen=True)
class SettingDifference:
    """A setting that one of two equal connectors gets otherwise; `client` is `connector` for its own settings.

    Without a `key` the client, or (`client` "") the connector, is there on one side only. `written_as` is the key of
    the old config that decides it, with its `file` and `line`, or those of the connector. `sensitive`: the old file
    marks the value as a secret. `lines`: the only lines of Kafka with this difference, while that of the workers is not
    known; () for all.
    """

    connector: str
    client: str
    key: str
    old: str | None = field(repr=False)  # may be secrets
    new: str | None = field(repr=False)
    changes: str
    written_as: str = ""
    file: str = ""
    line: int = 0
    sensitive: bool = False
    lines: tuple[str, ...] = ()
    json_keys = "connector client key old=shown_old new=shown_new changes written_as file line lines"

    @property
    def shown_old(self) -> str | None:
        return self._show(self.old)

    @property
    def shown_new(self) -> str | None:
        return self._show(self.new)

    def _show(self, value: str | None) -> str | None:
        if value is None:
            return None
        return MASK if self.sensitive and not is_placeholder(value) else mask(self.key, value)


@dataclass(frozen=True)
class SecretPlace:
    """A placeholder that has to hold what the old config has in clear, or as a template, and the keys it is for."""

    placeholder: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class IdleKey:
    """A key that is written otherwise, and decides nothing on either side."""

    connector: str
    key: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Equivalence:
    """The result for `connectors` pairs of connectors with `clients` clients together.

    `open` differ in some Kafka `versions` only, while that of the workers is not known, or by what the workers have.
    `on_purpose` are heartbeats that end with a dedicated MirrorMaker and that no flow needs: not counted as a
    difference. `secrets` are conditions; `assumptions` say what was taken for granted.
    """

    connectors: int
    clients: int
    versions: tuple[str, ...]
    differences: tuple[SettingDifference, ...] = ()
    open: tuple[SettingDifference, ...] = ()
    on_purpose: tuple[SettingDifference, ...] = ()
    secrets: tuple[SecretPlace, ...] = ()
    idle: tuple[IdleKey, ...] = ()
    assumptions: tuple[str, ...] = ()
    json_keys = "outcome connectors clients versions differences open on_purpose secrets idle assumptions"

    @property
    def outcome(self) -> Outcome:
        if self.differences:
            return "differs"
        return "open" if self.open else "equal"


@dataclass(frozen=True)
class _Judged:
    """What one pair of connectors shows on workers of one version."""

    differences: tuple[SettingDifference, ...]
    open: tuple[SettingDifference, ...]
    secrets: tuple[tuple[str, str, str], ...] = field(repr=False)  # placeholder, secret, key
    idle: tuple[IdleKey, ...]
    clients: int


def compare_connectors(
    old: Sequence[FoundConnector], new: Sequence[FoundConnector], kafka: str | None = None
) -> Equivalence:
    """Compare old connectors with new ones; those of other plugins are left out.

    `kafka` is the version of workers that no file names. Where a connector's file says nothing of its workers, they are
    those of its counterpart, as they stay on their Connect cluster; so do the properties that the new side, a tree,
    does not have. Dedicated MirrorMakers, whose driver is its own workers, move to others. A version before the oldest
    known line is judged as that one, and one that cannot be placed as the newest.
    """
    old = [connector.without_marked_names() for connector in old]
    pairs, lost, gained = _match(old, new)
    unneeded = _unneeded_heartbeats(lost, old, new)
    ended = set(map(id, unneeded))
    differences = [_alone(connector, is_old=True) for connector in lost if id(connector) not in ended]
    differences += [_alone(connector, is_old=False) for connector in gained]
    open_: list[SettingDifference] = []
    idle: list[IdleKey] = []
    secrets: list[tuple[str, str, str]] = []
    versions: dict[str, None] = {}
    clients = 0
    for before, after in pairs:
        cases = _versions(before, after, kafka)
        versions |= dict.fromkeys(version for case in cases for version in case)
        judged = [_compare(before, after, *case) for case in cases]
        in_all = set(judged[0].differences).intersection(*(set(case.differences) for case in judged[1:]))
        differences += (row for row in judged[0].differences if row in in_all)
        open_ += _rows_of_some(cases, judged, in_all)
        idle += judged[-1].idle
        secrets += judged[-1].secrets
        clients += judged[-1].clients
    differences += _ambiguous_placeholders(secrets)
    return Equivalence(
        len(pairs),
        clients,
        tuple(versions),
        tuple(differences),
        tuple(open_),
        tuple(replace(_alone(connector, is_old=True), changes=_UNNEEDED) for connector in unneeded),
        tuple(_conditions(secrets)),
        tuple(dict.fromkeys(idle)),
        tuple(_assumptions(pairs, kafka)),
    )


def _rows_of_some(
    cases: Sequence[tuple[str, str]], judged: Sequence[_Judged], in_all: Set[SettingDifference]
) -> Iterator[SettingDifference]:
    """Yield what not all versions show, with the lines that show it; without their version no policy is known."""
    lines: dict[SettingDifference, list[str]] = defaultdict(list)
    for (_, version), case in zip(cases, judged, strict=True):
        for row in (*case.differences, *case.open):
            if row not in in_all and not (row.key == POLICY and len(cases) > 1):
                lines[row].append(load().line(version))
    for row, shown in lines.items():
        yield replace(row, lines=tuple(shown) if len(shown) < len(cases) else ())


def _versions(before: FoundConnector, after: FoundConnector, kafka: str | None) -> list[tuple[str, str]]:
    """Return the versions to judge both by: those that are known, else every known line."""
    named = [connector.workers.version if connector.workers else None for connector in (before, after)]
    first, other = (kafka_version(version) or version if version else None for version in named)
    asked = kafka_version(kafka) or kafka if kafka else None
    first = first or asked or other
    other = other or first
    if first and other:
        return [(_judged_by(first), _judged_by(other))]
    return [(release, release) for release in load().releases.values()]


def _judged_by(version: str) -> str:
    """Return a version of a known line: the oldest one stands for those before it."""
    try:
        return version if load().knows(version) else load().releases[load().lines[0]]
    except ValueError:  # another vendor's own numbering
        return load().releases[load().lines[-1]]


def _assumptions(pairs: Sequence[tuple[FoundConnector, FoundConnector]], kafka: str | None) -> Iterator[str]:
    if any(before.workers is None and (after.workers is None or _is_declared(after)) for before, after in pairs):
        yield "the workers' properties are not known: they are taken to set nothing for clients of connectors"
    named = [connector.workers.version for pair in pairs for connector in pair if connector.workers]
    versions = {version for text in (*named, kafka) if (version := kafka_version(text or ""))}
    yield from (
        f"Kafka {text} is judged as {_judged_by(text)}" for text in sorted(versions) if text != _judged_by(text)
    )
    if kafka is None and any(len(_versions(*pair, None)) > 1 for pair in pairs):
        yield "the workers' Kafka version is not known: all known lines were compared"


def _is_declared(connector: FoundConnector) -> bool:
    """Tell whether its workers are those that a tree declares, of which it does not know all properties."""
    return connector.workers is not None and "group.id" not in connector.workers.properties


# --- which connector is which -----------------------------------------------------------------------------------------

_Group = tuple[ConnectorType, str, str]


def _match(
    old: Sequence[FoundConnector], new: Sequence[FoundConnector]
) -> tuple[list[tuple[FoundConnector, FoundConnector]], list[FoundConnector], list[FoundConnector]]:
    """Return the pairs of equal connectors, and those of the old and of the new side that have no counterpart."""
    pairs: list[tuple[FoundConnector, FoundConnector]] = []
    lost: list[FoundConnector] = []
    gained: list[FoundConnector] = []
    befores, afters = _groups(old), _groups(new)
    for group in dict.fromkeys([*befores, *afters]):
        before, after = befores.get(group, []), afters.get(group, [])
        by_name = {connector.name: connector for connector in after}
        same = [(connector, by_name[connector.name]) for connector in before if connector.name in by_name]
        matched = {id(connector) for pair in same for connector in pair}
        left = [connector for connector in before if id(connector) not in matched]
        free = [connector for connector in after if id(connector) not in matched]
        if len(left) * len(free) > _MOST_COMPARED:  # so many of one pair were hardly all renamed and altered
            same += zip(sorted(left, key=_topics_of), sorted(free, key=_topics_of), strict=False)
            count = min(len(left), len(free))
            left, free = sorted(left, key=_topics_of)[count:], sorted(free, key=_topics_of)[count:]
        while left and free:
            nearest = min(((_distance(a, b), i, j) for i, a in enumerate(left) for j, b in enumerate(free)))
            same.append((left.pop(nearest[1]), free.pop(nearest[2])))
        pairs += same
        lost += [connector for connector in left if not _is_off(connector, group[0])]
        gained += [connector for connector in free if not _is_off(connector, group[0])]
    return pairs, lost, gained


def _groups(connectors: Sequence[FoundConnector]) -> dict[_Group, list[FoundConnector]]:
    groups: dict[_Group, list[FoundConnector]] = defaultdict(list)
    for connector in connectors:
        if (group := _group_of(connector)) is not None:
            groups[group].append(connector)
    return groups


def _group_of(connector: FoundConnector) -> _Group | None:
    type_ = type_of(connector.class_name)
    source, target = (connector.config.get(f"{side}.cluster.alias", "") for side in ("source", "target"))
    return (type_, source.strip(), target.strip() or "target") if type_ else None


def _unneeded_heartbeats(
    lost: Sequence[FoundConnector], old: Sequence[FoundConnector], new: Sequence[FoundConnector]
) -> list[FoundConnector]:
    """Return the heartbeat connectors that may end with a dedicated MirrorMaker: its driver starts one for every pair.

    Flows mirror the heartbeats that are written to their source. Others are read by no mirror, or beside those.
    """
    mirrored = {source for type_, source, _ in _groups(old) if type_ == "source"}
    fed = {target for type_, _, target in _groups(new) if type_ == "heartbeat"}
    groups = [(connector, _group_of(connector)) for connector in lost if connector.form == "dedicated"]
    return [
        connector
        for connector, group in groups
        if group and group[0] == "heartbeat" and (group[2] not in mirrored or group[2] in fed)
    ]


_SWITCHES = {
    "source": ("enabled",),
    "checkpoint": ("enabled", "emit.checkpoints.enabled"),
    "heartbeat": ("emit.heartbeats.enabled",),
}


def _is_off(connector: FoundConnector, type_: ConnectorType) -> bool:
    """Tell whether a connector has no task: none of its kind would do the same."""
    return any(connector.config.get(switch, "true").strip().lower() == "false" for switch in _SWITCHES[type_])


def _distance(before: FoundConnector, after: FoundConnector) -> tuple[bool, int]:
    """Return how unlike two connectors are: other topics first."""
    return _topics_of(before) != _topics_of(after), len(set(before.config.items()) ^ set(after.config.items()))


def _topics_of(connector: FoundConnector) -> list[str]:
    return sorted(list_items(connector.config.get("topics", ".*")))


_LOSS = {
    "source": "the topics of this pair are mirrored no longer",
    "checkpoint": "offsets of consumer groups are translated no longer",
    "heartbeat": "no heartbeats of this pair are written any more",
}
_GAIN = {
    "source": "topics of this pair are mirrored that were not, or by one connector more",
    "checkpoint": "offsets of consumer groups are translated, which they were not",
    "heartbeat": "heartbeats of this pair are written, which were not",
}


_UNNEEDED = "no flow needs these heartbeats: each mirrors those that are written to its source"


def _alone(connector: FoundConnector, *, is_old: bool) -> SettingDifference:
    group = _group_of(connector)
    assert group is not None
    type_, source, target = group
    text = f"{type_} connector of {source}->{target}"
    changes = (_LOSS if is_old else _GAIN)[type_]
    old, new = (text, None) if is_old else (None, text)
    file, line = (connector.file, connector.line) if is_old else ("", 0)
    return SettingDifference(connector.name, "", "", old, new, changes, "", file, line)


# --- one connector ----------------------------------------------------------------------------------------------------


def _compare(before: FoundConnector, after: FoundConnector, version: str, later: str) -> _Judged:
    old = effective(before, version, _workers_before(before, after))
    new = effective(after, later, _workers_after(before, after))
    rows, unknown, secrets = _Rows(old, new), [], []
    differing: list[SettingDifference] = []
    for row in rows.all():
        if WORKERS_OWN in (row.old, row.new):
            unknown.append(row)
        elif (held := _held_secrets(row)) is not None:
            secrets += [(placeholder, secret, row.key) for placeholder, secret in held]
        else:
            differing.append(row)
    decided = {row.written_as for row in (*differing, *unknown)} | {row.key for row in differing}
    idle = tuple(row for row in rows.idle() if row.key not in decided)
    return _Judged(tuple(differing), tuple(unknown), tuple(secrets), idle, len({*old.clients, *new.clients}))


def _workers_before(before: FoundConnector, after: FoundConnector) -> FoundWorkers | None:
    """Return the workers of the old side; where these stay, they use the Kafka that the tree declares as theirs."""
    if before.workers is None:
        return after.workers
    if before.form in _OWN_WORKERS or ADDRESS in before.workers.properties or not _is_declared(after):
        return before.workers
    declared = after.workers.properties if after.workers else {}
    return replace(before.workers, properties={**declared, **before.workers.properties})


def _workers_after(before: FoundConnector, after: FoundConnector) -> FoundWorkers | None:
    """Return the workers of the new side: with the old ones' properties where these stay, and a tree only declares."""
    if before.workers is None or before.form in _OWN_WORKERS or not (after.workers is None or _is_declared(after)):
        return after.workers
    if after.workers is None:
        return before.workers
    stated = {} if ADDRESS in before.workers.properties else after.workers.properties  # else all of them are known
    properties = {**stated, **before.workers.properties}
    if after.workers.exactly_once:
        properties[EXACTLY_ONCE_KEY] = "enabled"
    return replace(
        before.workers,
        properties=properties,
        version=after.workers.version or before.workers.version,
        policy=after.workers.policy or before.workers.policy,
    )


@dataclass(frozen=True)
class _Rows:
    old: EffectiveConnector
    new: EffectiveConnector

    def all(self) -> Iterator[SettingDifference]:
        yield from self._of_connector()
        before, after = self.old.clients, self.new.clients
        for name in dict.fromkeys([*before, *after]):
            if name in before and name in after:
                yield from self._of_client(before[name], after[name])
            else:
                old, new = ("there", None) if name in before else (None, "there")
                yield SettingDifference(self.name, name, "", old, new, f"the {name} is there on one side only")

    @property
    def name(self) -> str:
        return self.old.connector.name

    # --- clients ------------------------------------------------------------------------------------------------------

    def _of_client(self, before: ConfiguredClient, after: ConfiguredClient) -> Iterator[SettingDifference]:
        names = self.old.names_of(before) | self.new.names_of(after)
        names |= changed_defaults(before.client.kind, self.old.version, self.new.version)
        for plain in sorted(names):
            old, new = self.old.value_of(before, plain), self.new.value_of(after, plain)
            if plain == _PROVIDERS and not any(value and value.origin == "connector" for value in (old, new)):
                continue  # what the workers resolve placeholders with
            if not self._is_same(plain, old, new, before.client.kind):
                yield self._row(before.client.name, plain, old, new, _OF_CLIENTS[before.client.name])

    # --- the connector itself -----------------------------------------------------------------------------------------

    def _of_connector(self) -> Iterator[SettingDifference]:
        yield from self._of_state()
        type_ = self.old.type
        names = self.old.names | self.new.names | changed_defaults(type_, self.old.version, self.new.version)
        for key in sorted(names):
            old, new = self.old.own_value(key), self.new.own_value(key)
            if self._is_same(key, old, new, type_) or not (self.old.reads(key) or self.new.reads(key)):
                continue
            row = self._row(CONNECTOR, key, old, new, _effect(key))
            if key in CONVERTERS:
                row = replace(row, old=row.old or WORKERS_OWN, new=row.new or WORKERS_OWN)
            elif key in ("topics", "topics.exclude") and old and new:
                example = _example(old.value, new.value)
                if example == "":
                    continue
                row = replace(row, changes=example or row.changes)
            yield row

    def _of_state(self) -> Iterator[SettingDifference]:
        old, new = self.old.connector, self.new.connector
        if self.old.type == "source" and not {old.form, new.form} & _OWN_WORKERS and old.name != new.name:
            effect = "offsets are stored under the name: it begins again unless they move along"
            yield SettingDifference(
                self.name, CONNECTOR, "name", old.name, new.name, effect, "name", *old.place_of("name")
            )
        classes = [meaning("connector.class", side.class_name, "class") for side in (old, new)]
        if classes[0] != classes[1]:
            effect = "another class assigns partitions to tasks"
            key, place = "connector.class", old.place_of("connector.class")
            yield SettingDifference(self.name, CONNECTOR, key, old.class_name, new.class_name, effect, key, *place)
        if old.state and new.state and old.state != new.state:
            yield SettingDifference(self.name, CONNECTOR, "state", old.state, new.state, "whether it runs")
        once = [("disabled", "enabled")[side.setting.exactly_once] for side in (self.old, self.new)]
        if once[0] != once[1]:
            effect = "whether records and offsets are one transaction"
            yield SettingDifference(self.name, CONNECTOR, EXACTLY_ONCE_KEY, once[0], once[1], effect)
        if self.old.refused_keys != self.new.refused_keys:
            sides = [
                f"{side.policy} refuses {', '.join(side.refused_keys) or 'nothing'}" for side in (self.old, self.new)
            ]
            effect = "Connect refuses a connector with such a key (400)"
            yield SettingDifference(self.name, CONNECTOR, POLICY, sides[0], sides[1], effect)

    def _is_same(self, key: str, old: Value | None, new: Value | None, scope: str) -> bool:
        if old is None or new is None:
            return old is new or self._is_default(key, old or new, scope)
        if old.value == new.value:
            return True
        meanings = []
        for side, value in ((self.old, old), (self.new, new)):
            definition = load().find(scope, key, side.version)
            meanings.append(meaning_of(key, value.value, definition.type if definition else ""))
        if isinstance(meanings[0], frozenset) and not is_set(key, self.old.config, self.new.config):
            meanings = [tuple(list_items(value.value)) for value in (old, new)]
        return meanings[0] == meanings[1]

    def _is_default(self, key: str, value: Value | None, scope: str) -> bool:
        """Tell whether a value of one side is empty, or the default of a key for which the other side is too old."""
        if value is None or not value.value:
            return value is not None
        definitions = [load().find(scope, key, side.version) for side in (self.old, self.new)]
        definition = next((definition for definition in definitions if definition), None)
        if None not in definitions or definition is None or definition.default is None:
            return False
        texts = (value.value, definition.default)
        return len({meaning_of(key, text, definition.type) for text in texts}) == 1

    def _row(self, client: str, key: str, old: Value | None, new: Value | None, changes: str) -> SettingDifference:
        written = (old.written_as if old and old.origin == "connector" else None) or ""
        texts = [None if value is None else value.value for value in (old, new)]
        return SettingDifference(
            *(self.name, client, key, texts[0], texts[1], changes, written),
            *(self.old.connector.place_of(written)),
            sensitive=written in self.old.connector.sensitive,
        )

    # --- what decides nothing -----------------------------------------------------------------------------------------

    def idle(self) -> Iterator[IdleKey]:
        """Yield the keys whose texts differ."""
        before, after = config_of(self.old.connector), config_of(self.new.connector)
        for key in sorted(before.keys() | after.keys()):
            ends = (before.get(key), after.get(key))
            if ends[0] != ends[1] and key not in ("name", "connector.class") and not key.startswith("mm2mgr."):
                yield IdleKey(self.name, key, *self.old.connector.place_of(key))


def _example(old: str, new: str) -> str | None:
    """Return a topic that only one of two lists matches, "" where there is none, None where that is not known."""
    machines = [machine_of(tuple(list_items(text))) for text in (old, new)]
    if machines[0] is None or machines[1] is None:
        return None
    for (taken, other), words in (
        ((machines[0], machines[1]), "only the old"),
        ((machines[1], machines[0]), "only the new"),
    ):
        search = shortest([(taken, "")], [(other, "")], _MOST_STATES)
        if search.open:
            return None
        if search.word is not None:
            return f"{words} list matches '{search.word}'"
    return ""


# --- secrets ----------------------------------------------------------------------------------------------------------


def _held_secrets(row: SettingDifference) -> list[tuple[str, str]] | None:
    """Return the placeholders of the new value with the secrets that they have to hold; None where texts differ."""
    if (
        row.old is None
        or row.new is None
        or "${" not in row.new
        or not (is_secret(row.key) or row.shown_old != row.old or template_in(row.old))
    ):
        return None
    parts = _PLACEHOLDER.split(row.new)
    places = _PLACEHOLDER.findall(row.new)
    match = re.fullmatch("(.*?)".join(map(re.escape, parts)), row.old, re.DOTALL)
    if match is None or any("${" in group for group in match.groups()):
        return None
    return [(place, group) for place, group in zip(places, match.groups(), strict=True) if place != group]


def _conditions(secrets: Sequence[tuple[str, str, str]]) -> Iterator[SecretPlace]:
    keys: dict[str, dict[str, None]] = defaultdict(dict)
    for placeholder, _, key in secrets:
        keys[placeholder][key] = None
    yield from (SecretPlace(placeholder, tuple(of)) for placeholder, of in keys.items())


def _ambiguous_placeholders(secrets: Sequence[tuple[str, str, str]]) -> Iterator[SettingDifference]:
    """Yield the placeholders that stand for two secrets, which no value can satisfy."""
    values: dict[str, set[str]] = defaultdict(set)
    for placeholder, secret, _ in secrets:
        values[placeholder].add(secret)
    for placeholder, different in values.items():
        if len(different) > 1:
            effect = f"it stands for {len(different)} different secrets, and can hold one"
            yield SettingDifference("", "", placeholder, f"{len(different)} secrets", placeholder, effect)


# --- what a setting is for --------------------------------------------------------------------------------------------

_READS, _LISTS = "how records are read from the source", "how the source's topics and groups are listed"
_CREATES = "how topics and settings on the target are written"
_OF_CLIENTS = {
    "source consumer": _READS,
    "record producer": "how records are written to the target",
    "source admin": _LISTS,
    "target admin": _CREATES,
    "offset-syncs producer": "how offset syncs are written",
    "offset-syncs admin": "how the topic of offset syncs is created",
    "offset-syncs consumer": "how offset syncs are read for checkpoints",
    "checkpoints consumer": "how checkpoints are read back at the start",
    "framework offsets consumer": "how Connect reads the connector's own offsets",
    "framework admin": "how Connect creates the connector's topics",
}
_OF_KEYS: Mapping[str, str] = {
    "topics": "which topics are mirrored",
    "groups": "whose offsets are translated",
    "config.properties": "which settings of topics are copied",
    "replication.policy": "what topics are called on the target",
    "replication.factor": "copies of topics that it creates",
    "sync.topic.configs": "whether settings of topics are copied",
    "sync.topic.acls": "whether ACLs are copied",
    "sync.group.offsets": "whether offsets of groups are written on the target",
    "tasks.max": "how many tasks share the partitions",
    "enabled": "whether it mirrors at all",
    "key.converter": "what keys become on the target",
    "value.converter": "what values become on the target",
    "header.converter": "what headers become on the target",
    "transforms": "what records become on the way",
    "predicates": "which records transformations are for",
    "heartbeats.replication": "whether heartbeats are mirrored",
    "emit.offset-syncs": "whether offsets can be translated",
    "emit.checkpoints": "whether offsets of groups are translated",
    "emit.heartbeats": "whether heartbeats are written",
    "offset-syncs.topic": "where offset syncs are kept",
    "checkpoints.topic": "copies of the checkpoints topic",
    "heartbeats.topic": "copies of the heartbeats topic",
    "exactly.once": "whether it insists on exactly-once workers",
    "transaction.boundary": "which records are one transaction",
    "offsets.storage.topic": "where its offsets are stored",
    "errors.": "what happens to records that fail",
    "refresh.": "how soon new topics and groups are mirrored",
    "offset.lag.max": "how exactly offsets are translated",
    "admin.timeout.ms": "how long its jobs may take",
    "use.defaults.from": "whose defaults settings of topics have",
    "forwarding.admin": "who creates topics on the target",
    "topic.creation": "topics that Connect creates",
    "mm2mgr.assignment": "which task has which partitions",
}


def _effect(key: str) -> str:
    prefix = max((prefix for prefix in _OF_KEYS if key.startswith(prefix)), key=len, default="")
    return _OF_KEYS.get(prefix, "how the connector works")
