"""Rules about mm2.properties: lines that MirrorMaker's driver ignores, and pairs that it does not start.

What the driver passes on is judged by the other rules, connector by connector.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mm2mgr.formats.mm2_properties import (
    CONNECTOR_PREFIXES,
    EXACTLY_ONCE_KEY,
    Dedicated,
    aliases_of,
    is_ignored,
    is_misspelt_enabled,
    passed,
    to_worker,
)
from mm2mgr.formats.properties import Entry, as_typed
from mm2mgr.lint.findings import Hit, estate_rule
from mm2mgr.lint.subject import Estate, SourceFile, Spot
from mm2mgr.text import nearest
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.explain import KINDS
from mm2mgr.truth.reach import CLIENTS

_ARROW = r"\s*(?:-+>|=>|>|→)\s*"

_DRIVER = "MirrorMakerConfig of Kafka's connect-mirror"


class _File:
    """An mm2.properties file with the questions that the rules ask."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.driver = Dedicated(file.entries)
        self.clusters = self.driver.clusters
        self.pairs = tuple(f"{source}->{target}" for source, target in self.driver.pairs())
        first = next(iter(self.driver.pairs()), ("A", "B"))
        self.example = next((p for p in self.driver.pairs() if self.driver.enabled(*p)), first)

    @property
    def pair(self) -> str:
        """A pair to write examples with, one that mirrors where there is one."""
        return "->".join(self.example)

    @property
    def target(self) -> str:
        return self.example[1]

    def spot(self, entry: Entry) -> Spot:
        return Spot(self.file.path, entry.line, key=entry.key)

    def hit(self, entry: Entry, message: str, fix: str) -> Hit:
        return Hit(message, fix, spot=self.spot(entry))

    def knows(self, key: str) -> bool:
        """Tell whether a key starts as the driver expects it for a cluster or a pair."""
        return key.startswith(tuple(f"{name}." for name in (*self.clusters, *self.pairs)))

    def top_level(self) -> Iterator[Entry]:
        """Yield the lines that belong to no cluster and to no pair, each key once."""
        for line in self.driver.lines.values():
            key = line.entry.key
            if not self.knows(key) and "->" not in key and not _misspelt_pair(line.entry, self.clusters):
                yield line.entry


def _files(estate: Estate) -> Iterator[_File]:
    yield from (_File(file) for file in estate.files if file.kind == "dedicated")


# --- lines that are never read ----------------------------------------------------------------------------------------


@estate_rule("top-level-client", "error", source=_DRIVER)
def top_level_client(estate: Estate) -> Iterator[Hit]:
    """Client settings at the top level of mm2.properties are ignored.

    The driver passes on a top-level line only if a MirrorMaker connector defines its name. `producer.acks`,
    `consumer.max.poll.records` and `admin.request.timeout.ms` are not such names, so they configure no client, without
    an error. Kafka's own keys `consumer.poll.timeout.ms` and `admin.timeout.ms` only look similar. Write them for a
    cluster: `B.producer.` is the record producer of all pairs that write to B, `A.consumer.` the consumer of all pairs
    that read A, `A.admin.` the admin client on A.
    """
    for file in _files(estate):
        for entry in file.top_level():
            kind, _, plain = entry.key.partition(".")
            if kind in KINDS and plain and not passed(entry.key) and not plain.startswith("override."):
                alias = file.example[0] if kind == "consumer" else file.target
                message = (
                    f"{entry.key} reaches no client: the driver reads {kind} settings only for a cluster or a pair"
                )
                yield file.hit(entry, message, f"write it for a cluster: {alias}.{entry.key} = …")


@estate_rule("top-level-ignored", "error", source=_DRIVER)
def top_level_ignored(estate: Estate) -> Iterator[Hit]:
    """The driver ignores this top-level line.

    Of the lines without a cluster or a pair as prefix, connectors get only those whose names the three MirrorMaker
    connectors define, and the workers get those for their storage topics, converters and tasks.
    `transforms.<alias>.type`, `topic.creation.*`, `exactly.once.support`, `use.defaults.from`, `producer.override.*`,
    `source.consumer.*`, keys of a custom filter class, and misspelt keys are ignored without an error. Write a
    connector's key under each pair (`A->B.`), a worker's under the target (`B.`).
    """
    for file in _files(estate):
        for entry in file.top_level():
            if is_ignored(entry.key) and not aliases_of(entry.key):
                message = f"{entry.key} at the top level is ignored by the driver"
                yield file.hit(entry, message, _below(file, entry.key))


def _below(file: _File, key: str) -> str:
    """Return where to write a line that is ignored at the top level."""
    known = truth_keys.load()
    if any(known.history(scope, key) for scope in CLIENTS) or key.startswith(CONNECTOR_PREFIXES):
        return f"write it under each pair: {file.pair}.{key} = …"
    if known.history("worker", key):
        return f"write it under the target, whose workers read it: {file.target}.{key} = …"
    for kind in KINDS:
        if known.history(kind, key):
            return f"write it for a cluster's clients: {file.target}.{kind}.{key} = …"
    near = nearest(key, _known_at_top(), 0.8)
    return f"did you mean {near[0]}?" if near else f"write it under a pair or a cluster: {file.pair}.{key} = …"


def _known_at_top() -> Iterator[str]:
    known = truth_keys.load()
    yield from (name for scope in CLIENTS for name in known.names(scope) if passed(name))
    yield from (name for name in known.names("worker") if to_worker(name))
    yield "clusters"


@estate_rule("eos-key-misplaced", "warning", source="KIP-710, KIP-618")
def exactly_once_misplaced(estate: Estate) -> Iterator[Hit]:
    """exactly.once.source.support is a setting of the target's workers.

    The driver starts separate Connect workers for each pair and configures them with the lines of the target: only
    `B.exactly.once.source.support = enabled` applies to them. At the top level or under a pair the line is ignored, the
    workers run without transactions, and records can be duplicated when a worker fails (KIP-710, KIP-618).
    """
    for file in _files(estate):
        for line in file.driver.lines.values():
            entry = line.entry
            place = entry.key.removesuffix(EXACTLY_ONCE_KEY)
            if place == entry.key or (place and "->" not in place):
                continue
            target = place.rpartition("->")[2].rstrip(".") if place else file.target
            message = f"{entry.key} reaches no worker, so records are mirrored at least once"
            yield file.hit(entry, message, f"write it under the target: {target}.{EXACTLY_ONCE_KEY} = enabled")


# --- names of clusters and pairs --------------------------------------------------------------------------------------


@estate_rule("unknown-cluster", "error", source=_DRIVER)
def unknown_cluster(estate: Estate) -> Iterator[Hit]:
    """A line is for a cluster that `clusters` does not list.

    The driver builds its pairs from the names in `clusters =` and then reads lines that start with one of them. It
    ignores a line with another name, often a misspelt one: an address, a password or a whole pair is missing, and the
    driver starts without it. Kafka's documentation itself has such a mistake (`us-west->us.east`).
    """
    for file in _files(estate):
        for line in file.driver.lines.values():
            key = line.entry.key
            if file.knows(key) or _misspelt_pair(line.entry, file.clusters):
                continue
            strange = [alias for alias in aliases_of(key) if alias not in file.clusters]
            if strange:
                named = ", ".join(file.clusters) or "nothing"
                near = _nearest(strange[0], file.clusters)
                fix = f"write {near}" if near else f"write one of {named}, or add {strange[0]} to clusters"
                message = f"{key} is never read: clusters lists {named}, not {strange[0]}"
                yield file.hit(line.entry, message, fix)


def _nearest(alias: str, clusters: Sequence[str]) -> str | None:
    """Return the name that was meant; two letters in the wrong order are the likelier slip."""
    near = nearest(alias, clusters, 0.5, 3)
    return next((name for name in near if sorted(name) == sorted(alias)), near[0] if near else None)


@estate_rule("pair-key-spelling", "error", source=_DRIVER)
def pair_key_spelling(estate: Estate) -> Iterator[Hit]:
    """The key of a pair is misspelt, so the driver ignores the line.

    Lines of a pair start with `source->target.` exactly, without blanks: in `A -> B.enabled = true` the key ends at the
    first blank and is `A`. A pair is enabled only by `.enabled`; `.enable`, `A.B.enabled`, `A->B->enabled` and a pair
    of a cluster with itself are ignored, and the pair mirrors nothing although heartbeats are written.
    """
    for file in _files(estate):
        for entry in file.driver.entries:
            wrong = _misspelt_pair(entry, file.clusters) or _misspelt_enabled(entry.key, file.pairs)
            if wrong:
                message = f"`{_whole(entry).partition('=')[0].strip()}` is not a key that the driver reads: the line is ignored"
                yield file.hit(entry, message, f"write {wrong}")


def _whole(entry: Entry) -> str:
    """Return the key, with what follows where a blank or an equals sign ended it too early."""
    ends_in_pair = "->" in entry.key and "." not in entry.key.rpartition("->")[2]
    split = re.match(_ARROW, as_typed(entry.value)) or (ends_in_pair and entry.value.startswith("."))
    return as_typed(f"{entry.key} {entry.value}") if split else entry.key


def _misspelt_enabled(key: str, pairs: tuple[str, ...]) -> str | None:
    pair, _, tail = key.rpartition(".")
    return f"{pair}.enabled = true" if pair in pairs and is_misspelt_enabled(tail) else None


def _misspelt_pair(entry: Entry, clusters: tuple[str, ...]) -> str | None:
    """Return how a line for a pair is written right, None when it is right or for no pair."""
    names = "|".join(map(re.escape, sorted(clusters, key=len, reverse=True)))
    if not names:
        return None
    text = _whole(entry)
    found = re.match(rf"({names})({_ARROW}|\.)({names})(\s*(?:\.|->)\s*)([\w.-]+)", text)
    if found is None or (found[2] == "." and found[5] not in ("enabled", "enable")):
        return None
    if (found[2], found[4]) == ("->", ".") and text == entry.key:
        return f"a pair of two clusters: {found[1]} cannot mirror itself" if found[1] == found[3] else None
    key = "enabled" if is_misspelt_enabled(found[5]) else found[5]
    return f"{found[1]}->{found[3]}.{key} = …"


@estate_rule("no-flow-enabled", "error", source=_DRIVER)
def no_flow_enabled(estate: Estate) -> Iterator[Hit]:
    """No pair is enabled, so nothing is mirrored.

    Listing clusters starts no flow: each direction needs `A->B.enabled = true` (upper or lower case). Without it the
    driver still starts and writes heartbeats for every pair, so processes, logs and topics look healthy while no record
    is mirrored. Enable each direction that you want to mirror.
    """
    for file in _files(estate):
        if any(file.driver.enabled(*pair) for pair in file.driver.pairs()):
            continue
        entry = file.driver.lines["clusters"].entry if "clusters" in file.driver.lines else None
        if entry is None:
            message = "clusters is missing: the driver refuses to start"
            fix = "write clusters = A, B with the prefixes of the other lines"
            yield Hit(message, fix, spot=Spot(file.file.path, file.file.entries[0].line))
        elif len(file.clusters) < 2:
            yield file.hit(entry, "clusters lists fewer than two names, so there is no pair", "write clusters = A, B")
        elif not _switched(file):
            message = f"none of the pairs of {', '.join(file.clusters)} is enabled, so no record is mirrored"
            yield file.hit(entry, message, f"write {file.pair}.enabled = true for each direction to mirror")


def _switched(file: _File) -> bool:
    """Tell whether another rule already reports why a pair is not enabled."""
    for entry in file.driver.entries:
        if _misspelt_enabled(entry.key, file.pairs) or _misspelt_pair(entry, file.clusters):
            return True
        if entry.key.endswith(".enabled") and any(alias not in file.clusters for alias in aliases_of(entry.key)):
            return True
    return False
