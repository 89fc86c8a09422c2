"""Reads Strimzi's resources: the connectors that its operator makes of them, and the workers that these run on.

What the operator adds is included, without security (`tls:`, `authentication:`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mm2mgr.formats.connectors import CONVERTERS, FoundConnector, FoundWorkers
from mm2mgr.formats.documents import Node, connector_of, entries_of, entry_of, text_entry
from mm2mgr.formats.properties import Entry
from mm2mgr.spec.places import PathKey
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.reach import CLUSTER_KEYS, PACKAGE

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
_LEFT_OUT = ("name", "connector.class", "tasks.max")  # by the operator, which warns in its log
_READS = {"sourceConnector": ("topics",), "checkpointConnector": ("topics", "groups")}


@dataclass(frozen=True)
class Resource:
    """The content of one resource: connectors, and the Connect cluster of that name with its workers."""

    connectors: tuple[FoundConnector, ...] = ()
    workers: Mapping[str, FoundWorkers] = field(default_factory=dict)


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
    entries = (text_entry("name", resource.line, name), *written)
    owner = resource.word("metadata", "labels", "strimzi.io/cluster")
    found = _made(name, spec.word("class"), entries, spec)
    places = {"connector.class": (*spec.path, "class"), "tasks.max": (*spec.path, "tasksMax")}
    return replace(found, state=_state(spec), owner=owner, home=(*spec.path, "config"), places=places)


def _made(name: str, class_name: str, entries: tuple[Entry, ...], spec: Node) -> FoundConnector:
    """Return a connector of the operator's own entries and its `config`, of which the operator leaves out some keys.

    A number of tasks that is there only is kept, as the one that was meant.
    """
    config, own = _config(spec), {entry.key for entry in entries}
    unused = tuple(entry for entry in config if entry.key in _LEFT_OUT)
    meant = tuple(replace(entry, path=()) for entry in unused if entry.key not in own)
    used = tuple(entry for entry in config if entry.key not in _LEFT_OUT)
    return replace(connector_of(name, class_name, (*entries, *meant, *used), spec.line), unused=unused)


def _config(node: Node) -> tuple[Entry, ...]:
    config = node.get("config")
    return entries_of(config) if config else ()


def _state(spec: Node) -> str | None:
    return spec.word("state").upper() or ("PAUSED" if spec.word("pause") == "true" else None)


def _scalars(node: Node, names: Mapping[str, str]) -> list[Entry]:
    """Return entries of members that the operator converts to config keys."""
    found = [(key, child) for key in names if (child := node.get(key)) and child.kind not in ("object", "list", "null")]
    return [entry_of(names[key], child.line, child) for key, child in found]


def _worker(spec: Node, kafka: Node) -> FoundWorkers:
    """Return the workers of a resource; `kafka` is the part of it that holds their Kafka cluster and their properties."""
    written = {entry.key: entry.value for entry in _config(kafka)}
    return FoundWorkers({"bootstrap.servers": kafka.word("bootstrapServers"), **written}, spec.word("version") or None)


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


def why_no_mirror(spec: Node) -> str:
    """Return why a KafkaMirrorMaker2 has no connector."""
    for name, wanted in (
        ("clusters", "alias and bootstrapServers"),
        ("mirrors", "sourceCluster, targetCluster and sourceConnector"),
    ):
        node = spec.get(name)
        if name == "mirrors" and not (node and node.kind == "list" and node.items):
            return f"spec.mirrors should be a list of entries with {wanted}"
        if node and node.kind != "list":
            return f"spec.{name} should be a list of entries with {wanted}"
    known = ", ".join(_clusters(spec)) or "none"
    for mirror in (spec.get("mirrors") or spec).items:
        ends = [mirror.word(end) for end in ("sourceCluster", "targetCluster")]
        if unknown := [end or "(none)" for end in ends if end not in _clusters(spec)]:
            return f"line {mirror.line}: no cluster {unknown[0]} under spec.clusters, which has {known}"
    return f"no mirror has {' or '.join(_PARTS)}, of which the operator starts those that are written"


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
        )
        found = _made(name, named["connector.class"], entries, node)
        places = dict(_places(pair, node, _READS.get(part, ())))
        yield replace(found, state=_state(node), owner=owner, home=(*node.path, "config"), places=places)


def _places(pair: _Mirror, node: Node, reads: Sequence[str]) -> Iterator[tuple[str, PathKey]]:
    """Yield the keys that are members of the resource and not of the connector's `config`."""
    yield "tasks.max", (*node.path, "tasksMax")
    for member, key in reversed(_PATTERNS.items()):  # the current name of each is the first
        if key.partition(".")[0] in reads:
            yield key, (*pair.mirror.path, member)
    for side, cluster in (("source", pair.source), ("target", pair.target)):
        yield f"{side}.cluster.alias", ()  # mirrors name their clusters by it
        yield f"{side}.cluster.bootstrap.servers", (*cluster.path, "bootstrapServers")


def _cluster(cluster: Node, prefix: str) -> list[Entry]:
    """Return a cluster's entries for connectors, without those that configure the workers."""
    entries = [replace(each, path=()) for each in _scalars(cluster, {"alias": f"{prefix}alias"})]
    entries += _scalars(cluster, {"bootstrapServers": f"{prefix}bootstrap.servers"})
    for entry in _config(cluster):
        of_workers = entry.key.startswith(("producer.", "consumer.", "admin.", "config.providers"))
        of_workers = of_workers or bool(truth_keys.load().history("worker", entry.key))
        if entry.key in CLUSTER_KEYS or not of_workers:
            entries.append(replace(entry, key=prefix + entry.key))
    return entries
