"""Reads JSON and YAML documents with the line of every key, and finds the connectors in them: configs in any wrapper, Strimzi's resources.

Duplicate keys, nulls and connectors of other plugins are kept: lint reports what Connect does with them. Strimzi's connectors
include what the operator adds, without security (`tls:`, `authentication:`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]  # the decoder's own, in C where there is one
from typing import Literal

from mm2mgr.errors import Problem, SpecError
from mm2mgr.formats.properties import CONVERTERS, Entry
from mm2mgr.spec.places import Document, PathKey, Place
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.reach import CLUSTER_KEYS, PACKAGE

NodeKind = Literal["object", "list", "text", "number", "boolean", "null"]

_DEPTH = 64  # a dump of connectors is seven deep
_MOST_VALUES = 1_000_000
_BLANK = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WRAPPERS = frozenset({"config", "info", "spec", "connectorConfiguration", "configs", "connector", "value"})
_scan: Callable[[str, int, bool], tuple[str, int]] = scanstring


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a file: `text` is a scalar as Connect takes it, `members` an object's, `items` a list's."""

    kind: NodeKind
    line: int
    text: str = field(default="", repr=False)
    members: tuple[tuple[str, int, Node], ...] = ()
    items: tuple[Node, ...] = ()

    def get(self, name: str) -> Node | None:
        """Return a member by name, the last one of duplicates, as Connect does; None where there is none."""
        return next((node for key, _, node in reversed(self.members) if key == name), None)

    def at(self, *names: str) -> Node | None:
        """Return the node below several names."""
        node: Node | None = self
        for name in names:
            node = node.get(name) if node else None
        return node

    def word(self, *names: str) -> str:
        """Return the text of a scalar below some names, "" where there is none."""
        node = self.at(*names)
        return node.text if node and node.kind not in ("object", "list", "null") else ""


@dataclass(frozen=True)
class FoundConnector:
    """A connector in a file. `entries` are its config, duplicate keys and nulls included."""

    name: str
    class_name: str
    entries: tuple[Entry, ...]
    line: int
    state: str | None = None
    owner: str = ""  # the Connect cluster it is meant for, where the file says so


# --- JSON text --------------------------------------------------------------------------------------------------------


def parse(text: str, file: str) -> Node:
    """Parse JSON text; raise SpecError with line and column for invalid JSON and excessive nesting."""
    return _Scanner(text, file).document()


class _Scanner:
    """One pass over a text."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.count = 0
        self.starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def document(self) -> Node:
        node, end = self.value(self.skip(0), 0)
        end = self.skip(end)
        if end != len(self.text):
            raise self.wrong(end, "not JSON: something follows the end of the document")
        return node

    def line(self, index: int) -> int:
        return bisect_right(self.starts, index)

    def wrong(self, index: int, message: str) -> SpecError:
        line = self.line(index)
        return SpecError([Problem(Place(self.file, line, index - self.starts[line - 1] + 1), message)])

    def skip(self, index: int) -> int:
        found = _BLANK.match(self.text, index)
        return found.end() if found else index

    def value(self, index: int, depth: int) -> tuple[Node, int]:
        sign, line = self.text[index : index + 1], self.line(index)
        self.count += 1
        if self.count > _MOST_VALUES:
            raise self.wrong(
                index, f"contains more than {_MOST_VALUES:,} values, which no set of connector configs does"
            )
        if depth > _DEPTH:
            raise self.wrong(index, f"nested deeper than {_DEPTH} levels, which no connector config is")
        if sign == "{":
            return self.object(index, depth)
        if sign == "[":
            return self.list(index, depth)
        if sign == '"':
            text, end = self.string(index)
            return Node("text", line, text), end
        found = _PLAIN.match(self.text, index)
        if not found:
            raise self.wrong(index, "not JSON: a value is missing here, or not in double quotes")
        word = found[0]
        kind: NodeKind = "null" if word == "null" else "boolean" if word in ("true", "false") else "number"
        return Node(kind, line, "" if kind == "null" else word), found.end()

    def string(self, index: int) -> tuple[str, int]:
        try:
            return _scan(self.text, index + 1, True)
        except JSONDecodeError as error:
            raise self.wrong(
                error.pos, f"not JSON: {error.msg[:1].lower()}{error.msg[1:].removesuffix(' at')}"
            ) from error

    def object(self, index: int, depth: int) -> tuple[Node, int]:
        members: list[tuple[str, int, Node]] = []
        start, index = self.line(index), self.skip(index + 1)
        while self.text[index : index + 1] != "}":
            if self.text[index : index + 1] != '"':
                raise self.wrong(index, 'not JSON: expected a key in double quotes or "}"')
            line = self.line(index)
            key, index = self.string(index)
            index = self.skip(index)
            if self.text[index : index + 1] != ":":
                raise self.wrong(index, "not JSON: expected a colon after the key")
            node, index = self.value(self.skip(index + 1), depth + 1)
            members.append((key, line, node))
            index = self.next(index, "}")
        return Node("object", start, members=tuple(members)), index + 1

    def list(self, index: int, depth: int) -> tuple[Node, int]:
        items = []
        start, index = self.line(index), self.skip(index + 1)
        while self.text[index : index + 1] != "]":
            node, index = self.value(index, depth + 1)
            items.append(node)
            index = self.next(index, "]")
        return Node("list", start, items=tuple(items)), index + 1

    def next(self, index: int, closing: str) -> int:
        """Skip a comma to the next member, or stay at the closing bracket."""
        index = self.skip(index)
        sign = self.text[index : index + 1]
        if sign == closing:
            return index
        if sign != ",":
            raise self.wrong(index, f"not JSON: expected a comma or {closing}")
        comma, index = index, self.skip(index + 1)
        if self.text[index : index + 1] == closing:
            raise self.wrong(comma, f"not JSON: a comma before {closing}; take it away")
        return index


# --- YAML values ------------------------------------------------------------------------------------------------------


def of_yaml(document: Document) -> Node:
    """Return a YAML document as the same kind of tree."""
    return _of_value(document.values, (), document.places, 1)


def _of_value(value: object, path: PathKey, places: Mapping[PathKey, Place], above: int) -> Node:
    line = places[path].line if path in places else above
    if isinstance(value, dict):
        inner = [(str(key), _of_value(item, (*path, key), places, line)) for key, item in value.items()]
        return Node("object", line, members=tuple((key, node.line, node) for key, node in inner))
    if isinstance(value, list):
        return Node("list", line, items=tuple(_of_value(v, (*path, i), places, line) for i, v in enumerate(value)))
    if value is None:
        return Node("null", line)
    if isinstance(value, bool):
        return Node("boolean", line, str(value).lower())
    return Node("text" if isinstance(value, str) else "number", line, str(value))


# --- connectors -------------------------------------------------------------------------------------------------------


def connectors(root: Node, name: str) -> Iterator[FoundConnector]:
    """Yield every connector below a node: whatever holds `connector.class`, under a name, in a list, in a dump of Connect.

    `name` is for a bare config: Connect takes it from the URL it is put to.
    """
    if root.get("connector.class"):
        name, entries = root.word("name") or name, entries_of(root)
        if not any(entry.key == "name" for entry in entries):
            entries = (*entries, text_entry("name", root.line, name))  # as Connect itself does
        yield FoundConnector(name, root.word("connector.class"), entries, root.line)
        return
    for item in root.items:
        yield from connectors(item, name)
    own = root.word("name") or root.word("connectorName")
    state = root.word("status", "connector", "state") or root.word("state") or None
    for key, _, node in root.members:
        if node.kind in ("object", "list"):
            inner = connectors(node, own or (name if key in _WRAPPERS else key))
            yield from (replace(each, state=each.state or state) for each in inner)


def entries_of(config: Node) -> tuple[Entry, ...]:
    """Return a config's entries; see `entry_of`."""
    return tuple(entry_of(key, line, node) for key, line, node in config.members)


def entry_of(key: str, line: int, node: Node) -> Entry:
    """Return an entry; its raw text starts with a quote or a bracket unless the value is a plain word, so `null` is null."""
    if node.kind == "null":
        return Entry(key, "", "null", line)
    if node.kind == "list":
        return Entry(key, ",".join(item.text for item in node.items), "[…]", line)
    if node.kind == "object":
        return Entry(key, "", "{…}", line)
    return text_entry(key, line, node.text) if node.kind == "text" else Entry(key, node.text, node.text, line)


def text_entry(key: str, line: int, text: str) -> Entry:
    """Return the entry of a text, which is not null even if it is the word `null`."""
    return Entry(key, text, f'"{text}"', line)


_PARTS = {
    "sourceConnector": "MirrorSourceConnector",
    "checkpointConnector": "MirrorCheckpointConnector",
    "heartbeatConnector": "MirrorHeartbeatConnector",
}
_PATTERNS = {  # the operator writes these on connectors that read the key
    "topicsPattern": "topics",
    "topicsExcludePattern": "topics.exclude",
    "topicsBlacklistPattern": "topics.exclude",
    "groupsPattern": "groups",
    "groupsExcludePattern": "groups.exclude",
    "groupsBlacklistPattern": "groups.exclude",
}
_READS = {"sourceConnector": ("topics",), "checkpointConnector": ("topics", "groups")}


@dataclass(frozen=True)
class StrimziWorkers:
    """The Connect workers of a resource."""

    version: str | None
    properties: Mapping[str, str] = field(repr=False)  # may hold secrets
    exactly_once: bool


@dataclass(frozen=True)
class Resource:
    """The content of one resource: connectors, and the Connect cluster of that name with its workers."""

    connectors: tuple[FoundConnector, ...] = ()
    workers: Mapping[str, StrimziWorkers] = field(default_factory=dict)


def resources(root: Node) -> Iterator[Node]:
    """Yield every resource in a document, including those of a `kind: List`."""
    if root.get("kind") and root.get("spec"):
        yield root
    elif (items := root.get("items")) is not None:
        for item in items.items:
            yield from resources(item)


def is_resource(root: Node) -> bool:
    """Tell whether a document is a resource of Strimzi."""
    spec = root.get("spec")
    return root.word("kind").startswith("Kafka") or bool(spec and spec.get("class") and spec.get("config"))


def read_resource(resource: Node) -> Resource:
    """Read a resource; the result is empty for kinds without connectors."""
    name, kind = resource.word("metadata", "name"), resource.word("kind")
    spec = resource.get("spec") or Node("object", resource.line)
    if kind == "KafkaMirrorMaker2":
        return _mirror_maker(name, spec)
    if kind == "KafkaConnect":
        return Resource(workers={name: _worker(spec, spec)})
    if spec.get("class"):
        return Resource((_connector(name, resource, spec),))
    return Resource()


def _connector(name: str, resource: Node, spec: Node) -> FoundConnector:
    written = _scalars(spec, {"class": "connector.class", "tasksMax": "tasks.max"})
    entries = (text_entry("name", resource.line, name), *written, *_config(spec))
    owner = resource.word("metadata", "labels", "strimzi.io/cluster")
    return FoundConnector(name, spec.word("class"), entries, spec.line, _state(spec), owner)


def _config(node: Node) -> tuple[Entry, ...]:
    config = node.get("config")
    return entries_of(config) if config else ()


def _state(spec: Node) -> str | None:
    return spec.word("state").upper() or ("PAUSED" if spec.word("pause") == "true" else None)


def _scalars(node: Node, names: Mapping[str, str]) -> list[Entry]:
    """Return entries of members that the operator converts to config keys."""
    found = [(key, child) for key in names if (child := node.get(key)) and child.kind not in ("object", "list", "null")]
    return [entry_of(names[key], child.line, child) for key, child in found]


def _worker(spec: Node, kafka: Node) -> StrimziWorkers:
    """Return the workers of a resource; `kafka` is the part of it that holds their Kafka cluster and their properties."""
    written = {entry.key: entry.value for entry in _config(kafka)}
    properties = {"bootstrap.servers": kafka.word("bootstrapServers"), **written}
    exactly_once = written.get("exactly.once.source.support") == "enabled"
    return StrimziWorkers(spec.word("version") or None, properties, exactly_once)


# --- KafkaMirrorMaker2 ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Mirror:
    """One entry of `mirrors`, with its two clusters."""

    mirror: Node
    source: Node
    target: Node

    @property
    def name(self) -> str:
        return f"{self.source.word('alias')}->{self.target.word('alias')}"


def _mirror_maker(name: str, spec: Node) -> Resource:
    """Return the connectors of a KafkaMirrorMaker2; its own workers use one of the Kafka clusters and ByteArrayConverter."""
    pairs = list(_pairs(spec))
    if not pairs:
        return Resource()
    own = _clusters(spec).get(spec.word("connectCluster")) or pairs[0].target
    worker = _worker(spec, own)
    workers = {name: replace(worker, properties={**CONVERTERS, **worker.properties})}
    return Resource(tuple(found for pair in pairs for found in _of_pair(name, pair)), workers)


def _pairs(spec: Node) -> Iterator[_Mirror]:
    """Yield the mirrors of both API versions: clusters by alias (v1beta2), or written where they are used (v1)."""
    clusters = _clusters(spec)
    for mirror in (spec.get("mirrors") or spec).items:
        source = mirror.get("source") or clusters.get(mirror.word("sourceCluster"))
        target = spec.get("target") or clusters.get(mirror.word("targetCluster"))
        if source and target:
            yield _Mirror(mirror, source, target)


def _clusters(spec: Node) -> dict[str, Node]:
    return {node.word("alias"): node for node in (spec.get("clusters") or spec).items}


def _of_pair(owner: str, pair: _Mirror) -> Iterator[FoundConnector]:
    for part, class_name in _PARTS.items():
        node = pair.mirror.get(part)
        if node is None or node.kind != "object":
            continue  # the operator starts only the connectors that are written down
        name = f"{pair.name}.{class_name}"
        named = {"name": name, "connector.class": f"{PACKAGE}.{class_name}"}
        entries = (
            *(text_entry(key, node.line, value) for key, value in named.items()),
            *_scalars(node, {"tasksMax": "tasks.max"}),
            *_cluster(pair.source, "source.cluster."),
            *_cluster(pair.target, "target.cluster."),
            *_scalars(
                pair.mirror, {key: to for key, to in _PATTERNS.items() if to.partition(".")[0] in _READS.get(part, ())}
            ),
            *_config(node),
        )
        yield FoundConnector(name, named["connector.class"], entries, node.line, _state(node), owner)


def _cluster(cluster: Node, prefix: str) -> list[Entry]:
    """Return a cluster's entries for connectors, without those that configure the workers."""
    entries = _scalars(cluster, {"alias": f"{prefix}alias", "bootstrapServers": f"{prefix}bootstrap.servers"})
    for entry in _config(cluster):
        of_workers = entry.key.startswith(("producer.", "consumer.", "admin.", "config.providers"))
        of_workers = of_workers or bool(truth_keys.load().history("worker", entry.key))
        if entry.key in CLUSTER_KEYS or not of_workers:
            entries.append(Entry(prefix + entry.key, entry.value, entry.raw, entry.line))
    return entries
