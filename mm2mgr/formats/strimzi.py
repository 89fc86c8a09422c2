"""Reads Strimzi's resources: the connectors that its operator makes of them, and the workers that these run on.

What the operator adds is included, security too (see `client_security`); what it refuses or ignores is in the notes of
a resource. Sources: KafkaMirrorMaker2Connectors, KafkaMirrorMaker2Cluster and KafkaConnectAssemblyOperator, 0.41 to
1.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mm2mgr.connectors import PACKAGE
from mm2mgr.formats import client_security
from mm2mgr.formats.connectors import CONVERTERS, FoundConnector, FoundWorkers, OperatorNote, OperatorResource
from mm2mgr.formats.documents import Node, connector_of, entries_of, entry_of, text_entry
from mm2mgr.formats.properties import Entry
from mm2mgr.spec.places import PathKey
from mm2mgr.text import nearest
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.reach import CLUSTER_KEYS

_PARTS = {
    "sourceConnector": "MirrorSourceConnector",
    "checkpointConnector": "MirrorCheckpointConnector",
    "heartbeatConnector": "MirrorHeartbeatConnector",
}
_PATTERNS = {  # the operator writes these over `config` where the key is read; of two for one key the later counts
    "topicsPattern": "topics",
    "topicsBlacklistPattern": "topics.exclude",
    "topicsExcludePattern": "topics.exclude",
    "groupsPattern": "groups",
    "groupsBlacklistPattern": "groups.exclude",
    "groupsExcludePattern": "groups.exclude",
}
_LEFT_OUT = ("name", "connector.class", "tasks.max")  # by the operator, which warns in its log
_FORBIDDEN = (  # in the config of workers
    *("ssl.", "sasl.", "security.", "listeners", "plugin.path", "rest.", "bootstrap.servers"),
    *("consumer.interceptor.classes", "producer.interceptor.classes"),
)
_ALLOWED = ("ssl.endpoint.identification.algorithm", "ssl.cipher.suites", "ssl.protocol", "ssl.enabled.protocols")
_STORED = {  # members of v1
    "groupId": "group.id",
    "configStorageTopic": "config.storage.topic",
    "offsetStorageTopic": "offset.storage.topic",
    "statusStorageTopic": "status.storage.topic",
}
_JSON = dict.fromkeys(("key.converter", "value.converter"), "org.apache.kafka.connect.json.JsonConverter")
_SHARED = (
    *(
        *("version", "replicas", "image", "resources", "livenessProbe", "readinessProbe", "jvmOptions", "jmxOptions"),
        "logging",
    ),
    *("clientRackInitImage", "rack", "tracing", "metricsConfig", "template", "externalConfiguration"),
)
_OF_CONNECTOR = ("tasksMax", "config", "state", "autoRestart", "version", "listOffsets", "alterOffsets")
_OF_CLUSTER = ("alias", "bootstrapServers", "tls", "authentication", "config")
_OF_MIRROR = (
    *("sourceConnector", "checkpointConnector", "topicsPattern", "topicsExcludePattern", "groupsPattern"),
    "groupsExcludePattern",
)
_OLD = {  # members that v1 no longer has
    "spec": ("connectCluster", "clusters"),
    "mirror": (
        *("sourceCluster", "targetCluster", "heartbeatConnector", "topicsBlacklistPattern", "groupsBlacklistPattern"),
    ),
    "connector": ("pause",),
}
_MEMBERS = {
    "spec": (*_SHARED, "target", "mirrors"),
    "target": (*_OF_CLUSTER, *_STORED),
    "cluster": _OF_CLUSTER,
    "mirror": (*_OF_MIRROR, "source"),
    "connector": _OF_CONNECTOR,
    "resource": (*_OF_CONNECTOR, "class", "pause"),
}
_PROVIDERS = "config.providers"
_READS = {"sourceConnector": ("topics",), "checkpointConnector": ("topics", "groups")}


Resource = tuple[Sequence[FoundConnector], Mapping[str, FoundWorkers]]
"""The content of one resource: connectors, and the Connect cluster of that name with its workers."""


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
        return _mirror_maker(name, resource, spec)
    if kind == "KafkaConnect":
        asked = resource.word("metadata", "annotations", _ANNOTATION).lower() == "true"
        trusted = f"{name}-connect-tls-trusted-certs:ca.crt"
        workers = _worker(spec, spec, {**_storage("connect-cluster"), **_JSON}, _namespace(resource), trusted)
        notes = tuple(client_security.refused_members(spec, is_v1=_is_v1(resource)))
        return (), {name: replace(workers, takes_resources=asked, notes=notes)}
    return [_connector(name, resource, spec)] if spec.get("class") else (), {}


def _connector(name: str, resource: Node, spec: Node) -> FoundConnector:
    written = _scalars(spec, {"class": "connector.class", "tasksMax": "tasks.max"})
    entries = (text_entry("name", resource.line, name), *written)
    owner = resource.word("metadata", "labels", _LABEL)
    connector = _built_connector(name, spec.word("class"), entries, spec)
    places = {"connector.class": (*spec.path, "class"), "tasks.max": (*spec.path, "tasksMax")}
    notes = list(_unknown_members(spec, "resource", is_v1=False)) if resource.word("kind") == "KafkaConnector" else []
    if not owner and resource.word("kind") == "KafkaConnector":
        message = f"the label {_LABEL} is missing: the operator creates the connector on no Connect cluster"
        notes.append(
            OperatorNote(
                _LABEL, resource.line, message, f"write labels: {{{_LABEL}: NAME}}, the name of its KafkaConnect"
            )
        )
    workers = f"{resource.word('metadata', 'namespace')}/{owner}" if owner else ""
    of = OperatorResource("KafkaConnector", _is_v1(resource), workers, tuple(notes))
    return replace(connector, state=_state(spec), owner=owner, home=(*spec.path, "config"), places=places, resource=of)


_LABEL, _ANNOTATION = "strimzi.io/cluster", "strimzi.io/use-connector-resources"


def with_workers(connector: FoundConnector, workers: Mapping[str, FoundWorkers]) -> FoundConnector:
    """Return a connector with the workers of its file, and a note where these do not take it."""
    own, of = workers.get(connector.owner), connector.resource
    if not connector.owner and len(workers) == 1:  # the one that is meant
        [(name, own)] = workers.items()
        notes = (
            tuple(
                replace(note, fix=note.fix.replace("NAME}, the name of its KafkaConnect", f"{name}}}"))
                for note in of.notes
            )
            if of
            else ()
        )
        of = replace(of, notes=notes) if of else None
    if own and of and of.kind == "KafkaConnector" and not own.takes_resources:
        message = (
            f"the KafkaConnect {connector.owner} has no annotation {_ANNOTATION}: the operator ignores its connectors"
        )
        note = OperatorNote(
            _ANNOTATION, connector.line, message, f'write annotations: {{{_ANNOTATION}: "true"}} in the KafkaConnect'
        )
        of = replace(of, notes=(*of.notes, note))
    if own and of:
        of = replace(of, notes=(*of.notes, *own.notes))
    return replace(connector, workers=own, resource=of)


def _namespace(resource: Node) -> str:
    return resource.word("metadata", "namespace") or "default"


def _is_v1(resource: Node) -> bool:
    return resource.word("apiVersion").rpartition("/")[2] == "v1"


def _unknown_members(
    node: Node | None, kind: str, *, is_v1: bool, hints: Mapping[str, str] | None = None
) -> Iterator[OperatorNote]:
    members = (*_MEMBERS[kind], *(() if is_v1 else _OLD.get(kind, ())))
    for name, line, _ in node.members if node else ():
        if name not in members:
            near = next(iter(nearest(name, members, 0.7)), "")
            old = " any more" if name in _OLD.get(kind, ()) else ""
            effect = "the API server refuses or drops it, and the operator never sees it"
            message = f"{name} is no member of a {_CALLED[kind]}{old}: {effect}"
            fix = (hints or {}).get(name) or (
                f"write {near}" if near else f"remove {name}, or write it where it is read"
            )
            yield OperatorNote(name, line, message, fix)


_NESTED = {"trustedCertificates": "write it under tls"}
_CALLED = {
    "spec": "KafkaMirrorMaker2's spec",
    "target": "target",
    "cluster": "cluster",
    "mirror": "mirror",
    "connector": "mirror's connector",
    "resource": "KafkaConnector's spec",
}


def _built_connector(
    name: str, class_name: str, entries: tuple[Entry, ...], spec: Node, over: Sequence[Entry] = ()
) -> FoundConnector:
    """Return a connector of the operator's own entries and its `config`, of which the operator leaves out some keys.

    A number of tasks that is there only is kept, as it was meant. The entries `over` are written over `config`.
    """
    config, own = _config(spec), {entry.key for entry in entries}
    unused = tuple(entry for entry in config if entry.key in _LEFT_OUT)
    meant = tuple(replace(entry, path=()) for entry in unused if entry.key not in own)
    used = tuple(entry for entry in config if entry.key not in _LEFT_OUT)
    return replace(connector_of(name, class_name, (*entries, *meant, *used, *over), spec.line), unused=unused)


def _config(node: Node) -> tuple[Entry, ...]:
    config = node.get("config")
    return entries_of(config) if config else ()


def _state(spec: Node) -> str | None:
    return spec.word("state").upper() or ("PAUSED" if spec.word("pause") == "true" else None)


def _scalars(node: Node, names: Mapping[str, str]) -> list[Entry]:
    members = [
        (key, child) for key in names if (child := node.get(key)) and child.kind not in ("object", "list", "null")
    ]
    return [entry_of(names[key], child.line, child) for key, child in members]


def _worker(spec: Node, kafka: Node, defaults: Mapping[str, str], namespace: str, trusted: str) -> FoundWorkers:
    """Return the workers of a resource; `kafka` is its part that holds their Kafka cluster and properties."""
    login, protocols = client_security.of_workers(kafka, namespace, trusted)
    written = {entry.key: entry.value for entry in _config(kafka)}
    allowed = {
        key: value for key, value in written.items() if key in _ALLOWED or not key.lower().startswith(_FORBIDDEN)
    }
    members = {key: value for name, key in _STORED.items() if (value := kafka.word(name))}
    servers = {"bootstrap.servers": kafka.word("bootstrapServers")}
    own = written.get(_PROVIDERS, "")
    providers = {_PROVIDERS: f"{own},{client_security.PROVIDERS}" if own else client_security.PROVIDERS}
    properties = {**defaults, **servers, **login, **allowed, **members, **providers, **protocols}
    return FoundWorkers(properties, spec.word("version") or None)


def _storage(name: str) -> dict[str, str]:
    """Return where the operator lets workers store what they know unless a resource says otherwise."""
    topics = {f"{kind}.storage.topic": f"{name}-{kind}s" for kind in ("config", "offset")}
    return {"group.id": name, **topics, "status.storage.topic": f"{name}-status"}


# --- KafkaMirrorMaker2 ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Mirror:
    mirror: Node
    source: Node
    target: Node

    @property
    def name(self) -> str:
        return f"{self.source.word('alias')}->{self.target.word('alias')}"


def _mirror_maker(name: str, resource: Node, spec: Node) -> Resource:
    """Return the connectors of a KafkaMirrorMaker2; its workers use one of its clusters and ByteArrayConverter."""
    pairs = list(_pairs(spec))
    if not pairs:
        return (), {}
    own = _clusters(spec).get(spec.word("connectCluster")) or pairs[0].target
    namespace, trusted = _namespace(resource), f"{name}-connect-tls-trusted-certs"
    defaults = {**_storage("mirrormaker2-cluster"), **CONVERTERS}
    workers = {name: _worker(spec, own, defaults, namespace, f"{trusted}:{own.word('alias')}-ca.crt")}
    connectors = [connector for pair in pairs for connector in _of_pair(name, pair, own, namespace, trusted)]
    notes = tuple(dict.fromkeys(_notes(resource, spec, pairs, own)))
    of = OperatorResource("KafkaMirrorMaker2", _is_v1(resource), f"{resource.word('metadata', 'namespace')}/{name}")
    connectors = [
        replace(connector, resource=replace(of, notes=() if at else notes)) for at, connector in enumerate(connectors)
    ]
    return connectors, workers


def _notes(resource: Node, spec: Node, pairs: Sequence[_Mirror], own: Node) -> Iterator[OperatorNote]:
    is_v1 = _is_v1(resource)
    yield from _unknown_members(spec, "spec", is_v1=is_v1)
    yield from _unknown_members(spec.get("target"), "target", is_v1=is_v1, hints=_NESTED)
    for cluster in (spec.get("clusters") or Node("list", 0)).items:
        yield from _unknown_members(cluster, "cluster", is_v1=is_v1, hints=_NESTED)
    yield from _refused_aliases(spec)
    for cluster in dict.fromkeys(cluster for pair in pairs for cluster in (pair.target, pair.source)):
        yield from client_security.refused_members(cluster, is_v1=is_v1)
    for pair in pairs:
        yield from _refused_target(spec, pair, own)
        yield from _of_mirror(pair, own, is_v1=is_v1)


def _refused_aliases(spec: Node) -> Iterator[OperatorNote]:
    """Yield a note for each name of a cluster that spec.clusters does not have, or has twice."""
    clusters = (spec.get("clusters") or Node("list", spec.line)).items
    aliases = [cluster.word("alias") for cluster in clusters]
    names = [("connectCluster", spec.get("connectCluster"))] if clusters else []
    for mirror in (spec.get("mirrors") or spec).items:
        names += [(end, mirror.get(end)) for end in ("sourceCluster", "targetCluster")]
    for member, node in names:
        if node and node.text not in aliases:
            near = next(iter(nearest(node.text, aliases, 0.5)), "")
            effect = "the operator refuses the resource"
            message = f"{member} is {node.text}, and spec.clusters has {', '.join(aliases) or 'none'}: {effect}"
            yield OperatorNote(member, node.line, message, f"write {member}: {near or 'one of these'}", "error")
    for cluster in clusters:
        if aliases.count(cluster.word("alias")) > 1:
            message = (
                f"the alias {cluster.word('alias')} stands twice in spec.clusters: the operator refuses the resource"
            )
            yield OperatorNote("alias", cluster.line, message, "give each cluster its own alias", "error")


def _refused_target(spec: Node, pair: _Mirror, own: Node) -> Iterator[OperatorNote]:
    connect, target = spec.get("connectCluster"), pair.target.word("alias")
    if not connect or pair.target is own:
        return
    fix = f"write connectCluster: {target}"
    if _addresses(pair.target) == _addresses(own):
        effect = "operators before 0.44 and since 0.49 refuse the resource"
        message = f"connectCluster is {connect.text}, another alias of the target {target}: {effect}"
        yield OperatorNote("connectCluster", connect.line, message, fix)
        return
    message = (
        f"connectCluster is {connect.text} and the target is {target}: the operator refuses the resource (since 0.41; "
        f"before, records went to {connect.text}, where the workers are)"
    )
    yield OperatorNote("connectCluster", connect.line, message, fix, "error")


def _addresses(cluster: Node) -> frozenset[str]:
    return frozenset(address.strip() for address in cluster.word("bootstrapServers").split(","))


def _of_mirror(pair: _Mirror, own: Node, *, is_v1: bool) -> Iterator[OperatorNote]:
    config = pair.mirror.get("config")
    keys = ", ".join(name for name, _, _ in config.members) if config else ""
    hint = f"write {keys} under config of sourceConnector, and of checkpointConnector where it is read" if keys else ""
    yield from _unknown_members(pair.mirror, "mirror", is_v1=is_v1, hints={"config": hint})
    yield from _unknown_members(pair.mirror.get("source"), "cluster", is_v1=is_v1, hints=_NESTED)
    for part in _PARTS:
        yield from _unknown_members(pair.mirror.get(part), "connector", is_v1=is_v1)
    unread = [entry for entry in _config(pair.source) if pair.source is not own and _is_workers(entry.key)]
    if unread:
        names = ", ".join(entry.key for entry in unread)
        effect = f"so in the config of {pair.source.word('alias')} {names} does nothing"
        message = f"the workers are configured by {own.word('alias')}, {effect}"
        fix = f"remove it, or write it under config of {own.word('alias')}"
        yield OperatorNote(unread[0].key, unread[0].line, message, fix, "info")


def _is_workers(key: str) -> bool:
    if key in CLUSTER_KEYS or key.startswith(_OF_CLIENTS):
        return False
    return key.startswith("config.providers") or bool(truth_keys.load().history("worker", key))


_OF_CLIENTS = ("producer.", "consumer.", "admin.")


def why_no_mirror(spec: Node) -> str:
    """Return why a KafkaMirrorMaker2 has no connector."""
    for name, members in (
        ("clusters", "alias and bootstrapServers"),
        ("mirrors", "sourceCluster, targetCluster and sourceConnector"),
    ):
        node = spec.get(name)
        if name == "mirrors" and not (node and node.kind == "list" and node.items):
            return f"spec.mirrors should be a list of entries with {members}"
        if node and node.kind != "list":
            return f"spec.{name} should be a list of entries with {members}"
    aliases = ", ".join(_clusters(spec)) or "none"
    for mirror in (spec.get("mirrors") or spec).items:
        ends = [mirror.word(end) for end in ("sourceCluster", "targetCluster")]
        if unknown := [end or "(none)" for end in ends if end not in _clusters(spec)]:
            return f"line {mirror.line}: no cluster {unknown[0]} under spec.clusters, which has {aliases}"
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


def _of_pair(owner: str, pair: _Mirror, own: Node, namespace: str, trusted: str) -> Iterator[FoundConnector]:
    ends = [
        _cluster(cluster, f"{side}.cluster.", namespace, trusted, is_workers=cluster is own)
        for side, cluster in (("source", pair.source), ("target", pair.target))
    ]
    for part, class_name in _PARTS.items():
        node = pair.mirror.get(part)
        if node is None or node.kind != "object":
            continue  # the operator starts only the connectors that are written down
        name = f"{pair.name}.{class_name}"
        named = {"name": name, "connector.class": f"{PACKAGE}.{class_name}"}
        entries = (
            *(text_entry(key, node.line, value) for key, value in named.items()),
            *_scalars(node, {"tasksMax": "tasks.max"}),
            *(entry for end in ends for entry in end),
        )
        patterns = {key: to for key, to in _PATTERNS.items() if to.partition(".")[0] in _READS.get(part, ())}
        written = {entry.key for entry in _config(node)}
        entries = tuple(entry for entry in entries if entry.key not in written or not _is_security(entry.key))
        connector = _built_connector(name, named["connector.class"], entries, node, _scalars(pair.mirror, patterns))
        places = dict(_places(pair, node, _READS.get(part, ())))
        yield replace(connector, state=_state(node), owner=owner, home=(*node.path, "config"), places=places)


def _places(pair: _Mirror, node: Node, reads: Sequence[str]) -> Iterator[tuple[str, PathKey]]:
    """Yield the keys that are members of the resource and not of the connector's `config`."""
    yield "tasks.max", (*node.path, "tasksMax")
    for member, key in _PATTERNS.items():  # the current name of each is the last
        if key.partition(".")[0] in reads:
            yield key, (*pair.mirror.path, member)
    for side, cluster in (("source", pair.source), ("target", pair.target)):
        for plain in ("alias", *client_security.WRITTEN):  # mirrors name their clusters by the alias
            yield f"{side}.cluster.{plain}", ()
        yield f"{side}.cluster.bootstrap.servers", (*cluster.path, "bootstrapServers")


def _is_security(key: str) -> bool:
    return key.partition(".cluster.")[2].startswith(("security.", "ssl.", "sasl."))


def _cluster(cluster: Node, prefix: str, namespace: str, trusted: str, *, is_workers: bool) -> list[Entry]:
    """Return a cluster's entries for connectors, without those that only workers read.

    In the cluster of the workers what is for a kind of clients is for theirs.
    """
    entries = [replace(entry, path=()) for entry in _scalars(cluster, {"alias": f"{prefix}alias"})]
    entries += _scalars(cluster, {"bootstrapServers": f"{prefix}bootstrap.servers"})
    written = {entry.key for entry in _config(cluster)}  # over what the operator makes
    security = client_security.security(cluster, namespace, f"{trusted}:{cluster.word('alias')}-ca.crt")
    entries += [replace(entry, key=prefix + entry.key) for entry in security if entry.key not in written]
    for entry in _config(cluster):
        of_clients = entry.key.startswith(_OF_CLIENTS)
        if not _is_workers(entry.key) and not (is_workers and of_clients):
            entries.append(replace(entry, key=prefix + entry.key))
    return entries
