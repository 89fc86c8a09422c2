"""Reads the resources of Confluent's operator: `Connector`, and `Connect` with its workers.

Source: the custom resources of Confluent for Kubernetes, `platform.confluent.io/v1beta1`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mm2mgr.formats.connectors import FoundConnector, FoundWorkers, OperatorNote, OperatorResource
from mm2mgr.formats.documents import Node, connector_of, entries_of, entry_of, text_entry
from mm2mgr.formats.embedded import version_of_image
from mm2mgr.formats.properties import last, meant_value, read
from mm2mgr.text import nearest

_GROUP = "platform.confluent.io/"
_MEMBERS = ("class", "configs", "connectClusterRef", "connectRest", "name", "restartPolicy", "taskMax")
_TYPED = {"class": "connector.class", "taskMax": "tasks.max"}
_MEANT = {"config": "configs", "tasksMax": "taskMax", "connectorClass": "class", "maxTasks": "taskMax"}


def is_resource(root: Node) -> bool:
    """Tell whether a document is a resource of Confluent's operator that this module reads."""
    return root.word("kind") in ("Connector", "Connect") and root.word("apiVersion").startswith(_GROUP)


def resources(root: Node) -> Iterator[Node]:
    """Yield every such resource in a document, including those of a `kind: List`."""
    if is_resource(root):
        yield root
    elif root.word("kind").endswith("List") and (items := root.get("items")):
        for item in items.items:
            yield from resources(item)


def read_resource(resource: Node) -> tuple[list[FoundConnector], Mapping[str, FoundWorkers]]:
    """Return the connector of a Connector, or the workers of a Connect by its name."""
    spec = resource.get("spec") or Node("object", resource.line)
    if resource.word("kind") == "Connect":
        return [], {resource.word("metadata", "name"): _workers(spec)}
    return ([_connector(resource, spec)] if spec.word("class") else []), {}


def why_none(resource: Node) -> str:
    """Return why a Connector has no connector."""
    spec = resource.get("spec")
    if spec and (written := next((name for name in ("connectorClass", "connector.class") if spec.get(name)), "")):
        return f"spec.{written} is no member of a Connector: write the connector's class as spec.class"
    return "spec.class is missing: write the connector's class there"


def _connector(resource: Node, spec: Node) -> FoundConnector:
    named = spec.get("name") or resource.node_at("metadata", "name")
    name = named.text if named else ""
    configs = spec.get("configs") or Node("object", spec.line)
    own = [
        text_entry("name", named.line if named else resource.line, name),
        *(entry_of(key, node.line, node) for member, key in _TYPED.items() if (node := spec.get(member))),
    ]
    typed = {entry.key for entry in own}
    written = entries_of(configs)
    unused = tuple(entry for entry in written if entry.key in typed)
    entries = (*own, *(entry for entry in written if entry.key not in typed))
    owner = spec.word("connectClusterRef", "name")
    namespace = spec.word("connectClusterRef", "namespace") or resource.word("metadata", "namespace")
    of = OperatorResource("Connector", False, f"{namespace}/{owner}" if owner else "", tuple(_notes(spec)))
    places = {key: (*spec.path, member) for member, key in _TYPED.items()} | {"name": ()}
    connector = connector_of(name, spec.word("class"), entries, spec.line)
    return replace(connector, owner=owner, home=(*spec.path, "configs"), places=places, unused=unused, resource=of)


def _notes(spec: Node) -> Iterator[OperatorNote]:
    for member, line, _ in spec.members:
        if member not in _MEMBERS:
            near = _MEANT.get(member) or next(iter(nearest(member, _MEMBERS, 0.7)), "")
            message = f"{member} is no member of a Connector's spec: the API server refuses or drops it"
            fix = f"write {near}" if near else f"remove {member}, or write it where it is read"
            yield OperatorNote(member, line, message, fix)


def _workers(spec: Node) -> FoundWorkers:
    """Return the workers of a Connect: what `configOverrides` adds, and its Kafka cluster."""
    lines = spec.node_at("configOverrides", "server") or Node("list", 0)
    text = "\n".join(item.text for item in lines.items)
    properties = {key: meant_value(entry) for key, entry in last(read(text, "")).items()}
    servers = spec.word("dependencies", "kafka", "bootstrapEndpoint")
    return FoundWorkers(
        {**({"bootstrap.servers": servers} if servers else {}), **properties},
        version_of_image(spec.word("image", "application")),
    )
