"""Rules about the text of files: lines that the driver ignores, text that a parser reads as something else, silences.

Hits never show a value that could be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mm2mgr.formats.connectors import EXACTLY_ONCE_KEY
from mm2mgr.formats.mm2_properties import CONNECTOR_PREFIXES, Dedicated, Line, is_ignored, is_passed, whole
from mm2mgr.formats.properties import Entry, lost_backslashes, meant_value, remark
from mm2mgr.formats.templates import is_open, template_in
from mm2mgr.lint.classify import is_slip, slips
from mm2mgr.lint.findings import Edit, Hit, estate_rule, rule_ids
from mm2mgr.lint.subject import Estate, SourceFile, Spot
from mm2mgr.secrets import is_jaas, is_secret, mask
from mm2mgr.text import nearest
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.explain import KINDS, to_worker
from mm2mgr.truth.other_tools import other_tool
from mm2mgr.truth.reach import CLIENTS, CLUSTER_KEYS, numbers

_DRIVER = "MirrorMakerConfig of Kafka's connect-mirror"


class _DriverFile:
    """An mm2.properties file with what the rules ask; `pair` is for examples, one that mirrors if any."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.driver = Dedicated(file.entries)
        self.clusters = self.driver.clusters
        every = self.driver.pairs()
        enabled = (pair for pair in every if self.driver.is_enabled(*pair))
        self.source, self.target = next(enabled, every[0] if every else ("A", "B"))
        self.pair = f"{self.source}->{self.target}"

    def hit(self, entry: Entry, message: str, fix: str, edits: tuple[Edit, ...] = ()) -> Hit:
        return Hit(message, fix, spot=self.file.spot(entry), edits=edits)

    def move_edits(self, entry: Entry, keys: Iterable[str], value: str | None = None) -> tuple[Edit, ...]:
        """Return the edits that give a line's value to other keys, those that are there left alone."""
        free = [key for key in dict.fromkeys(keys) if key not in self.driver.lines]
        text = entry.value if value is None else value
        if not free:
            return (Edit(entry.key, None, at=entry),)
        return (Edit(free[0], text, at=entry), *(Edit(key, text) for key in free[1:]))

    def is_too_early(self, entry: Entry, right: str) -> bool:
        """Tell whether a line would enable a pair too early: while others, meant for it, are not read."""
        return right.endswith(".enabled") and any(
            self.driver.misspelt(other)
            or (len(aliases := self.driver.aliases(other.key)) == 2 and not set(aliases) <= set(self.clusters))
            for other in self.driver.entries
            if other.line != entry.line
        )

    def mirroring(self) -> list[tuple[str, str]]:
        """Return the pairs that mirror; the pair of the examples where none does."""
        return [pair for pair in self.driver.pairs() if self.driver.is_enabled(*pair)] or [(self.source, self.target)]

    @property
    def without_commas(self) -> list[str]:
        """The names in `clusters` that no comma separates, where each starts a line; [] where commas do."""
        names = [name.strip("\"'[]") for name in re.split(r"[,;\s]+", self.driver.value("clusters"))]
        names = [name for name in names if name]
        if len(names) < 2 or names == list(self.clusters):
            return []
        begun = [name for name in names if any(entry.key.startswith(f"{name}.") for entry in self.driver.entries)]
        return names if begun == names else []

    def lines(self) -> Iterator[Line]:
        """Yield the last line of each key, without pairs that another rule reports as misspelt."""
        yield from (line for line in self.driver.lines.values() if not self.driver.meant_pair(line))

    def top_level(self) -> Iterator[Line]:
        """Yield the lines that belong to no cluster and to no pair, each key once."""
        yield from (line for line in self.lines() if not line.aliases and "->" not in line.key)


def _driver_files(estate: Estate) -> Iterator[_DriverFile]:
    yield from (_DriverFile(file) for file in estate.files if file.kind == "dedicated")


# --- lines that are never read ----------------------------------------------------------------------------------------


@estate_rule("top-level-client", "error", _DRIVER)
def top_level_client(estate: Estate) -> Iterator[Hit]:
    """Client settings at the top level of mm2.properties are ignored.

    The driver passes on a top-level line only if a MirrorMaker connector defines its name. `producer.acks`,
    `consumer.max.poll.records` and `admin.request.timeout.ms` are not such names, so they configure no client, without
    an error. Kafka's own keys `consumer.poll.timeout.ms` and `admin.timeout.ms` only look similar. Write them for a
    cluster: `B.producer.` is the record producer of all pairs that write to B, `A.consumer.` the consumer of all pairs
    that read A, `A.admin.` the admin client on A.
    """
    for file in _driver_files(estate):
        for entry in file.top_level():
            kind, _, plain = entry.key.partition(".")
            if kind in KINDS and plain and not is_passed(entry.key) and not plain.startswith("override."):
                alias = file.source if kind == "consumer" else file.target
                message = (
                    f"{entry.key} reaches no client: the driver reads {kind} settings only for a cluster or a pair"
                )
                end = 0 if kind == "consumer" else 1
                edits = file.move_edits(entry, (f"{pair[end]}.{entry.key}" for pair in file.mirroring()))
                yield file.hit(entry, message, f"write it for a cluster: {alias}.{entry.key} = …", edits)


@estate_rule("top-level-ignored", "error", _DRIVER)
def top_level_ignored(estate: Estate) -> Iterator[Hit]:
    """The driver ignores this top-level line.

    Of the lines without a cluster or a pair as prefix, connectors get only those whose names the three MirrorMaker
    connectors define, and the workers get those for their storage topics, converters and tasks.
    `transforms.<alias>.type`, `topic.creation.*`, `exactly.once.support`, `use.defaults.from`, `producer.override.*`,
    `source.consumer.*`, keys of a custom filter class, and misspelt keys are ignored without an error. Write a
    connector's key under each pair (`A->B.`), a worker's under the target (`B.`).
    """
    for file in _driver_files(estate):
        for entry in file.top_level():
            if is_ignored(entry.key):
                fix, keys = _place_below(file, entry.key)
                message = f"{entry.key} at the top level is ignored by the driver"
                yield file.hit(entry, message, fix, file.move_edits(entry, keys) if keys is not None else ())


def _place_below(file: _DriverFile, key: str) -> tuple[str, list[str] | None]:
    """Return where to write a line that is ignored at the top level, and its keys there; None when only people know."""
    pairs = [f"{source}->{target}" for source, target in file.mirroring()]
    if other := other_tool(key):
        tool, own = other
        if not own:
            return f"remove it: it is a key of {tool}", []
        return f"write {file.pair}.{own} = …", [f"{pair}.{own}" for pair in pairs]
    return _of_driver(file, key, pairs)


def _of_driver(file: _DriverFile, key: str, pairs: list[str]) -> tuple[str, list[str] | None]:
    definitions, targets = truth_keys.load(), [target for _, target in file.mirroring()]
    if key.startswith("topic.creation."):
        return "remove it: MirrorMaker creates its topics itself", []
    if any(definitions.history(scope, key) for scope in CLIENTS) or key.startswith(CONNECTOR_PREFIXES):
        return f"write it under each pair: {file.pair}.{key} = …", [f"{pair}.{key}" for pair in pairs]
    if definitions.history("worker", key):
        fix = f"write it under the target, whose workers read it: {file.target}.{key} = …"
        return fix, [f"{target}.{key}" for target in targets]
    for kind in KINDS:
        if definitions.history(kind, key):
            fix = f"write it for a cluster's clients: {file.target}.{kind}.{key} = …"
            return fix, [f"{target}.{kind}.{key}" for target in targets]
    names = [name for scope in CLIENTS for name in definitions.names(scope) if is_passed(name)]
    names += [name for name in definitions.names("worker") if to_worker(name)]
    near = nearest(key, [*names, "clusters"], 0.8)
    if near:
        return f"write {near[0]}", near[:1] if is_slip(key, near[0]) else None
    return (
        f"remove it: no Kafka knows it; a key of a class of your own is written under each pair: {file.pair}.{key} = …",
        None,
    )


@estate_rule("eos-key-misplaced", "warning", "KIP-710, KIP-618")
def exactly_once_misplaced(estate: Estate) -> Iterator[Hit]:
    """exactly.once.source.support is a setting of the target's workers.

    The driver starts separate Connect workers for each pair and configures them with the lines of the target: only
    `B.exactly.once.source.support = enabled` applies to them. At the top level or under a pair the line is ignored, and
    under a cluster that no pair mirrors to it serves heartbeats: the workers run without transactions, and records can
    be duplicated when a worker fails (KIP-710, KIP-618).
    """
    for file in _driver_files(estate):
        for entry in file.lines():
            if entry.plain != EXACTLY_ONCE_KEY or not set(entry.aliases) <= set(file.clusters):
                continue
            targets = list(entry.aliases[1:]) or [target for _, target in file.mirroring()]
            lacking = [target for target in targets if f"{target}.{EXACTLY_ONCE_KEY}" not in file.driver.lines]
            if len(entry.aliases) == 1 and (entry.aliases[0] in targets or not lacking):
                continue
            who = "no worker" if len(entry.aliases) != 1 else f"only workers that write to {entry.aliases[0]}"
            message = f"{entry.key} reaches {who}, so records are mirrored at least once"
            edits = file.move_edits(entry, (f"{target}.{EXACTLY_ONCE_KEY}" for target in targets))
            yield file.hit(
                entry, message, f"write it under the target: {targets[0]}.{EXACTLY_ONCE_KEY} = enabled", edits
            )


# --- names of clusters and pairs --------------------------------------------------------------------------------------


@estate_rule("unknown-cluster", "error", _DRIVER, stops=True)
def unknown_cluster(estate: Estate) -> Iterator[Hit]:
    """A line is for a cluster that `clusters` does not list.

    The driver builds its pairs from the names in `clusters =` and then reads lines that start with one of them. It
    ignores a line with another name, often a misspelt one: an address, a password or a whole pair is missing, and the
    driver starts without it. Kafka's documentation itself has such a mistake (`us-west->us.east`).
    """
    for file in _driver_files(estate):
        if names := file.without_commas:
            entry = file.driver.lines["clusters"]
            right = ", ".join(names)
            effect = "names are separated by commas, and none starts a line"
            message = f"clusters lists {' and '.join(map(repr, file.clusters))}: {effect}"
            yield file.hit(entry, message, f"write clusters = {right}", (Edit("clusters", right, at=entry),))
            continue
        for entry in file.lines() if file.clusters else ():  # no-flow-enabled reports a file without clusters
            strange = [alias for alias in entry.aliases if alias not in file.clusters]
            if strange:
                named = ", ".join(file.clusters)
                near = [name for name in nearest(strange[0], file.clusters, 0.5, 3) if " " not in name]
                # Two letters in the wrong order are the likelier slip.
                meant = next((name for name in near if sorted(name) == sorted(strange[0])), near[0] if near else None)
                fix = f"write {meant}" if meant else f"write one of {named}, or add {strange[0]} to clusters"
                message = f"{entry.key} is never read: clusters lists {named}, not {strange[0]}"
                right = entry.key.replace(strange[0], meant or "", 1)
                plain = meant and right not in file.driver.lines and _is_slip(file, strange[0], meant)
                edits = file.move_edits(entry, [right]) if plain and not file.is_too_early(entry, right) else ()
                yield replace(file.hit(entry, message, fix, edits), mirrors=entry.plain != "enabled")


def _is_slip(file: _DriverFile, alias: str, meant: str) -> bool:
    """Tell whether an alias is misspelt, and no cluster of its own: dc3 is none for dc1, nor one with other brokers."""
    if all(f"{name}.bootstrap.servers" in file.driver.lines for name in (alias, meant)):
        return False
    text, other = alias.lower(), meant.lower()
    same = re.findall(r"\d+", text) == re.findall(r"\d+", other)
    return text == other or (same and min(len(text), len(other)) > 2 and slips(text, other) == 1)


@estate_rule("pair-key-spelling", "error", _DRIVER, stops=True)
def pair_key_spelling(estate: Estate) -> Iterator[Hit]:
    """The key of a pair is misspelt, so the driver ignores the line.

    Lines of a pair start with `source->target.` exactly, without blanks: in `A -> B.enabled = true` the key ends at the
    first blank and is `A`. A pair is enabled only by `.enabled`; `.enable`, `A.B.enabled`, `A->B->enabled` and a pair
    of a cluster with itself are ignored, and the pair mirrors nothing although heartbeats are written.
    """
    for file in _driver_files(estate):
        for entry in file.driver.entries:
            wrong = file.driver.misspelt(entry)
            if wrong:
                key = whole(entry).partition("=")[0].strip()
                right = wrong.partition(" = ")[0]
                value = entry.value if whole(entry) == entry.key else entry.value.partition("=")[2].strip()
                free = "pair of" not in wrong and bool(value) and right not in file.driver.lines
                free = free and not file.is_too_early(entry, right)
                edits = file.move_edits(entry, [right], value) if free else ()
                message = f"`{key}` is not a key that the driver reads: the line is ignored"
                shown = value if right.endswith(".enabled") and value else "…"
                hit = file.hit(entry, message, f"write {wrong.replace('…', shown)}", edits)
                yield replace(hit, mirrors=not right.endswith(".enabled"))


@estate_rule("no-flow-enabled", "error", _DRIVER, stops=True)
def no_flow_enabled(estate: Estate) -> Iterator[Hit]:
    """No pair is enabled, so nothing is mirrored.

    Listing clusters starts no flow: each direction needs `A->B.enabled = true` (upper or lower case). Without it the
    driver still starts and writes heartbeats for every pair, so processes, logs and topics look healthy while no record
    is mirrored. Enable each direction that you want to mirror.
    """
    for file in _driver_files(estate):
        if any(file.driver.is_enabled(*pair) for pair in file.driver.pairs()):
            continue
        entry = file.driver.lines.get("clusters")
        if entry is None:
            fix = "write clusters = A, B with the prefixes of the other lines"
            spot = Spot(file.file.path, file.file.entries[0].line)
            yield Hit("clusters is missing: the driver refuses to start", fix, "clusters", spot=spot)
        elif template_in(entry.value):
            continue  # which clusters there are is not known
        elif file.without_commas:
            continue  # unknown-cluster reports it
        elif len(file.clusters) < 2:
            message = "clusters lists fewer than two names, so there is no pair"
            yield file.hit(entry, message, "write clusters = A, B")
        elif not any(_is_told(file, line) for line in file.driver.entries):
            message = f"none of the pairs of {', '.join(file.clusters)} is enabled, so no record is mirrored"
            pairs = ["->".join(pair) for pair in file.driver.pairs()]
            begun = [pair for pair in pairs if any(line.key.startswith(f"{pair}.") for line in file.lines())]
            edits = tuple(
                Edit(f"{pair}.enabled", "true") for pair in begun if f"{pair}.enabled" not in file.driver.lines
            )
            edits = edits if len(edits) == len(begun) == 1 else ()  # of several a person says which is meant
            fix = f"write {(begun or [file.pair])[0]}.enabled = true for each direction to mirror"
            yield file.hit(entry, message, fix, edits)


@estate_rule("pair-not-enabled", "warning", _DRIVER)
def pair_not_enabled(estate: Estate) -> Iterator[Hit]:
    """A pair has settings and is not enabled, so it mirrors nothing.

    Each direction needs `A->B.enabled = true`. The driver starts a pair without that line for its heartbeats only, so
    its topics, groups and clients are configured in vain while the other pairs of the file work. `enabled = yes`, `on`
    or `1` count as false (Boolean.parseBoolean), without an error. A pair that has `enabled = false` is switched off on
    purpose and not reported.
    """
    for file in _driver_files(estate):
        pairs = file.driver.pairs()
        if not any(file.driver.is_enabled(*pair) for pair in pairs):
            continue  # no-flow-enabled reports it
        for pair in pairs:
            name = f"{pair[0]}->{pair[1]}.enabled"
            line = file.driver.lines.get(name)
            own = [other_line for other_line in file.lines() if other_line.aliases == pair and other_line is not line]
            own = [
                other_line
                for other_line in own
                if "heartbeats" not in other_line.plain and not file.driver.misspelt(other_line)
            ]
            if line and line.value.strip().lower() not in ("true", "false") and not is_open(line.value):
                message = f"{name} = {line.value} counts as false: {pair[0]} is not mirrored to {pair[1]}"
                yield file.hit(line, message, f"write {name} = true, or false")
            elif not line and own and not any(map(file.driver.misspelt, file.driver.entries)):
                message = f"{own[0].key} does nothing: {name} is not set, so {pair[0]} is not mirrored to {pair[1]}"
                yield file.hit(own[0], message, f"write {name} = true, or remove the lines of the pair")


@estate_rule("consumer-of-target", "info", _DRIVER)
def consumer_of_target(estate: Estate) -> Iterator[Hit]:
    """Consumer settings are written for a cluster that no pair reads.

    `B.consumer.` configures the consumer of the pairs that read B. With A->B only, records are read by `A.consumer.`,
    and the line reaches nothing but the consumers of checkpoints and of the topics in which the workers store configs
    and offsets. Write it for the source. Addresses and logins are needed there and not reported.
    """
    for file in _driver_files(estate):
        pairs = [pair for pair in file.driver.pairs() if file.driver.is_enabled(*pair)]
        for line in file.lines():
            plain = line.plain.removeprefix("consumer.")
            if len(line.aliases) != 1 or plain == line.plain or plain in CLUSTER_KEYS:
                continue
            if not truth_keys.load().history("consumer", plain):
                continue  # dead-key or unknown-key reports it
            [alias] = line.aliases
            sources = [source for source, target in pairs if target == alias]
            if sources and not any(source == alias for source, _ in pairs):
                message = f"{line.key} reads no records: no pair mirrors from {alias}"
                fix = f"write it for the source: {sources[0]}.{line.plain} = {_cut_value(line.key, line.value)}"
                yield file.hit(
                    line, message, fix, file.move_edits(line, (f"{source}.{line.plain}" for source in sources))
                )


_INTERNAL_REST = "dedicated.mode.enable.internal.rest"


@estate_rule("internal-rest-too-new", "warning", "KIP-710")
def internal_rest_too_new(estate: Estate) -> Iterator[Hit]:
    """The internal REST server of dedicated nodes does not exist in this version.

    dedicated.mode.enable.internal.rest lets the nodes of a dedicated MirrorMaker pass changes to the one that leads
    (KIP-710, since 3.5). Older versions ignore the line, and nodes that do not lead drop changes of tasks: new topics
    and partitions are not mirrored until a restart (KAFKA-9981). Run one node, or upgrade.
    """
    versions = {subject.spot.file: subject.known_version for subject in estate.subjects if subject.form == "dedicated"}
    for file in _driver_files(estate):
        line, version = file.driver.lines.get(_INTERNAL_REST), versions.get(file.file.path)
        if line and line.value.strip().lower() == "true" and version and numbers(version) < (3, 5):
            message = f"{line.key} does nothing: Kafka {version} does not know it"
            yield file.hit(line, message, "upgrade MirrorMaker to 3.5 or newer, or run a single node")


def _is_told(file: _DriverFile, entry: Entry) -> bool:
    if file.driver.misspelt(entry):
        return True
    return entry.key.endswith(".enabled") and any(
        alias not in file.clusters for alias in file.driver.lines[entry.key].aliases
    )


_PROPERTIES = ("properties", "dedicated")
# Kafka trims nearly every value (ConfigDef.parseType). These are read past it: by Connect's plugin loader and REST
# names,
# and by the replication policies, which are handed the originals.
_UNTRIMMED = ("name", "connector.class", "replication.policy.separator")

_JAVA = "java.util.Properties.load"


def _cut_value(key: str, text: str) -> str:
    """Return text of a value for a sentence, cut; nothing of what could be a secret."""
    if mask(key, text) != text or (is_secret(key) and text):
        return "…"
    return text if len(text) <= 80 else f"{text[:77]}…"


@estate_rule("lost-backslash", "error", _JAVA, live="tests/lint/test_seen_live_topics.py::")
def lost_backslash(estate: Estate) -> Iterator[Hit]:
    """Java drops a single backslash in a properties file.

    java.util.Properties treats a backslash as the start of an escape and drops it before any other character:
    `foo\\.bar` reaches the connector as `foo.bar`, where the dot matches any character, `\\d+` as `d+`, a Windows path
    without its separators. Nothing is logged. JSON needs the doubled backslash too; YAML in single quotes or without
    quotes does not. Write two backslashes for each literal one. A lost backslash before a dot is a warning: the name
    still matches, and perhaps others; in an exclude list it is a hint.
    """
    for file in estate.files:
        for entry in file.entries if file.kind in _PROPERTIES else ():
            doubled = lost_backslashes(entry)
            if doubled is not None:
                value = _cut_value(entry.key, entry.value)
                got = "" if value == "…" else f": the connector gets {value!r}"
                message = f"the backslash in {entry.key} is dropped when the file is read{got}"
                fix, edit = (
                    f"double it: {entry.key} = {_cut_value(entry.key, doubled)}",
                    Edit(entry.key, meant_value(entry), at=entry),
                )
                hit = Hit(message, fix, spot=file.spot(entry), edits=(edit,))
                only_dots = doubled.replace("\\-", "-") == entry.raw.replace("\\-", "-").replace("\\.", "\\\\.")
                excludes = entry.key.endswith((".exclude", ".blacklist"))
                yield hit.with_severity("info" if excludes else "warning") if only_dots else hit


@estate_rule("comment-in-value", "error", _JAVA)
def comment_in_value(estate: Estate) -> Iterator[Hit]:
    """A comment after a value is part of the value.

    In a properties file a comment needs a line of its own. `replication.factor = 3  # three racks` is refused as not a
    number, `A->B.enabled = true # on` does not enable the pair, and text values include the comment: topics and
    addresses of that name are looked up. Kafka's own documentation shows such lines. Write the comment on the line
    above.
    """
    for file in estate.files:
        for entry in file.entries if file.kind in _PROPERTIES else ():
            after = remark(entry)
            if after and not (is_secret(entry.key) and not is_jaas(entry.value)):
                value = _cut_value(entry.key, entry.value.removesuffix(after))
                fix = f"write it on the line above: {entry.key} = {value}"
                edit = Edit(entry.key, meant_value(entry), at=entry, comment=after.strip().lstrip("#/ "))
                message = f"the comment after {entry.key} is part of its value"
                yield Hit(message, fix, spot=file.spot(entry), edits=(edit,))


@estate_rule("duplicate-key", "warning", _JAVA)
def duplicate_key(estate: Estate) -> Iterator[Hit]:
    """A key is present twice in one config, and only the last line counts.

    Java's Properties and Connect's JSON parser keep the last of two equal keys without an error; the first is ignored,
    wherever it is. It often happens when a recipe is pasted below an existing config. If both values are equal, nothing
    is wrong yet (info), but the next change may edit the ignored line. Keep one of the lines.
    """
    for file in estate.files:
        first: dict[str, Entry] = {}
        arrows = Dedicated(file.entries).clusters if file.kind == "dedicated" else ()  # `A -> B.x` has the key A
        for entry in file.entries:
            before = first.setdefault(entry.key, entry)
            if before is not entry and entry.key not in arrows:
                equal = before.value == entry.value
                same = " (with the same value)" if equal else ""
                message = f"{entry.key} is present twice, so line {before.line}{same} is ignored"
                fix = f"keep one {entry.key} and remove the other"
                edits = (Edit(before.key, None, at=before),)
                yield Hit(message, fix, spot=file.spot(entry), severity="info" if equal else None, edits=edits)
                first[entry.key] = entry


@estate_rule("blank-in-value", "error", "ConfigDef.parseType, Boolean.parseBoolean", stops=True)
def blank_in_value(estate: Estate) -> Iterator[Hit]:
    """A trailing blank becomes part of a value that Kafka does not trim.

    Properties and JSON keep trailing blanks. Kafka trims most values when it parses them, but not all: a connector
    class with a trailing blank is not found, a connector name has it in every URL, a separator adds it to topic names,
    which Kafka refuses, and `A->B.enabled` with a trailing blank is not true for the driver that decides which pairs to
    start (where their heartbeats are disabled). Editors do not show it. Remove it. In a name it is a warning.
    """
    for file in estate.files:
        keys = set(_untrimmed_keys(file))
        for entry in file.entries:
            if entry.key in keys and entry.value != entry.value.rstrip() and not remark(entry):
                message = f"{entry.key} ends with a blank, which Kafka does not trim"
                fix = f"remove the blank: {entry.key} = {_cut_value(entry.key, entry.value.rstrip())}"
                hit = Hit(message, fix, spot=file.spot(entry), edits=(Edit(entry.key, entry.value.rstrip(), at=entry),))
                yield hit.with_severity("warning") if entry.key == "name" else hit


def _untrimmed_keys(file: SourceFile) -> Iterator[str]:
    yield from _UNTRIMMED if file.kind != "dedicated" else _UNTRIMMED[2:]
    if any(
        entry.key == "replication.policy.class" and "IdentityReplicationPolicy" in entry.value for entry in file.entries
    ):
        yield "source.cluster.alias"
    if file.kind == "dedicated":
        driver = Dedicated(file.entries)
        for source, target in driver.pairs():
            if not driver.sends_heartbeats(source, target):
                yield f"{source}->{target}.enabled"


_TAKING = ("topics", "groups")


@estate_rule(
    "null-value",
    "error",
    "ConnectorsResource of Kafka Connect",
    stops=True,
    live="tests/lint/test_seen_live_start.py::",
)
def null_value(estate: Estate) -> Iterator[Hit]:
    """Connect refuses values that are not text: null, lists and objects.

    A connector's config is flat text. Connect answers null with 400, `Null value can not be supplied as the
    configuration value`, a list or an object with 400 or 500; the connector is not created, or stays unchanged. To use
    a default, leave the key out. A list is one text with commas; a nested object becomes several keys with dots.
    """
    for file in estate.files:
        for entry in file.entries if file.kind == "json" else ():
            edits: tuple[Edit, ...] = ()
            if entry.raw == "null":
                message, fix = "is null, which Connect refuses with 400", f"leave {entry.key} out to get its default"
                if entry.key in _TAKING:
                    fix = f"write the names, or leave {entry.key} out to take all"
                else:
                    edits = (Edit(entry.key, None, at=entry),)
            elif entry.raw.startswith("["):
                message = "is a list, which Connect does not take"
                fix = f'write one text with commas: "{entry.key}": "{_cut_value(entry.key, entry.value)}"'
                edits = (Edit(entry.key, entry.value, at=entry),)
            elif entry.raw.startswith("{"):
                message, fix = "is an object, which Connect does not accept", "write its members as keys joined by dots"
            else:
                continue
            yield Hit(f"{entry.key} {message}", fix, spot=file.spot(entry), edits=edits)


@estate_rule("silence-unexplained", "warning")
def silence_unexplained(estate: Estate) -> Iterator[Hit]:
    """A silence gives no reason, or names an unknown rule.

    A rule is disabled for one place with the reason why the finding is acceptable there: a comment `mm2mgr: silence
    RULE reason`, `silence: {RULE: reason}` of a flow, or the config key `mm2mgr.silence.RULE`. Without a reason, or
    with a misspelt rule, the silence has no effect. `mm2mgr lint --rules` lists the rules.
    """
    rules = rule_ids()
    of_files = [silence for file in estate.files for silence in file.silences]
    of_subjects = [silence for subject in estate.subjects for silence in subject.silences]
    for silence in dict.fromkeys([*of_files, *of_subjects]):
        if silence.rule not in rules:
            # Only a word that is never free text is repeated: what is there may be anything.
            near = nearest(silence.rule, rules, 0.5)
            fix = f"write {near[0]}" if near else "see the rules with: mm2mgr lint --rules"
            yield Hit(f"there is no rule '{silence.rule[:60]}', so the silence has no effect", fix, spot=silence.spot)
        elif not silence.reason:
            fix = f"give the reason: mm2mgr: silence {silence.rule} BECAUSE…"
            yield Hit(f"{silence.rule} is silenced without a reason", fix, spot=silence.spot)


@estate_rule("invalid-declaration", "error")
def invalid_declaration(_: Estate) -> Iterator[Hit]:
    """mm2mgr refuses something in the YAML tree.

    Every command on the tree refuses it: a misspelt key, an unknown alias, two flows of a pair that contradict each
    other, a value of the wrong type. Nothing can be planned until it is fixed, and no other rule looks at the tree
    until then. The message suggests the nearest known word where there is one. These findings come from the loader, not
    from a connector.
    """
    yield from ()
