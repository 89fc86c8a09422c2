"""Finds connectors in Terraform: its state (version 4), `terraform show -json` of a state or a plan, and HCL.

Read are the resources of Kafka Connect, MSK Connect, Aiven, Confluent, Google, Yandex and Conduktor; of other resources
whatever has a `connector.class`. What is an expression in HCL has its value only in a state or plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mm2mgr.connectors import CLASSES, PACKAGE
from mm2mgr.errors import Problem, SpecError
from mm2mgr.formats import hcl
from mm2mgr.formats.connectors import CONVERTERS, EXACTLY_ONCE_KEY, FoundConnector, FoundWorkers, Note
from mm2mgr.formats.documents import Node, NodeKind, connector_of, connectors, entries_of, entry_of, text_entry
from mm2mgr.formats.properties import Entry, last, meant_value, read
from mm2mgr.secrets import remember
from mm2mgr.spec.places import Place
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.keys import kafka_version

SHOW = "terraform show -json"


@dataclass(frozen=True)
class Resource:
    """A resource: `kind` is its type, `body` its arguments, `sensitive` the names that Terraform hides."""

    kind: str
    address: str
    body: Node
    line: int
    sensitive: frozenset[str] = frozenset()

    def first(self, *names: str) -> Node | None:
        """Return the node below several names; of a list its first item, as a nested block is."""
        node: Node | None = self.body
        for name in names:
            node = first_item(node)
            node = node.get(name) if node and node.kind == "object" else None
        return first_item(node)

    def word(self, *names: str) -> str:
        """Return the text of a scalar below some names, "" where there is none."""
        node = self.first(*names)
        return node.text if node and node.kind not in ("object", "list", "null") else ""


def first_item(node: Node | None) -> Node | None:
    """Return a node, of a list that has a single item this."""
    return node.items[0] if node and node.kind == "list" and len(node.items) == 1 else node


@dataclass(frozen=True)
class Provider:
    """Where a type of resource has a connector's name, its config (later ones win), and the Connect cluster's name."""

    names: tuple[str, ...]
    configs: tuple[tuple[str, ...], ...]
    owner: str = ""


_PROVIDERS = {
    "kafka-connect_connector": Provider(("name",), (("config",), ("config_sensitive",))),
    "aws_mskconnect_connector": Provider(("name",), (("connector_configuration",),)),
    "aiven_kafka_connector": Provider(("connector_name",), (("config",),), "service_name"),
    "confluent_connector": Provider((), (("config_nonsensitive",), ("config_sensitive",))),
    "google_managed_kafka_connector": Provider(("connector_id",), (("configs",),), "connect_cluster"),
    "conduktor_console_connector_v2": Provider(("name",), (("spec", "config"),), "connect_cluster"),
}
_SENSITIVE = ("config_sensitive",)
_READERS = (*_PROVIDERS, "aiven_mirrormaker_replication_flow", "yandex_mdb_kafka_connector")


@dataclass(frozen=True)
class TerraformContent:
    """What resources hold: connectors, notes, and documents that are resources of Kubernetes."""

    connectors: tuple[FoundConnector, ...] = ()
    notes: tuple[Note, ...] = ()
    documents: tuple[Node, ...] = ()
    kinds: tuple[str, ...] = field(default=(), repr=False)

    @property
    def is_empty(self) -> bool:
        return not (self.connectors or self.documents)


# --- where resources are ----------------------------------------------------------------------------------------------


def is_terraform(root: Node) -> bool:
    """Tell whether a JSON document is a state, a plan, or Terraform's configuration as JSON."""
    if root.get("terraform_version") or root.get("format_version"):
        return any(root.get(name) for name in ("resources", "modules", "values", "planned_values", "resource_changes"))
    resource = root.get("resource")
    return bool(resource and resource.kind == "object")


def resources(root: Node, file: str) -> Iterator[Resource]:
    """Yield the resources of a JSON document; SpecError for a state of before Terraform 0.12."""
    if root.get("modules") and not root.get("resources"):
        message = f"is a Terraform state of version {root.word('version') or 3}, from before 0.12: give `{SHOW}` of it"
        raise SpecError([Problem(Place(file, root.line, 1), message)])
    if (state := root.get("resources")) and root.get("terraform_version"):
        for resource in state.items:
            if resource.word("mode") != "data":
                yield from _of_state(resource)
    for name in ("values", "planned_values"):
        if module := root.node_at(name, "root_module"):
            yield from _of_module(module)
    if configuration := root.get("resource"):
        for kind, _, named in configuration.members:
            for name, line, body in named.members:
                for body_of in body.items or (body,):
                    yield Resource(kind, f"{kind}.{name}", _with_expressions(body_of), line)


def _of_state(resource: Node) -> Iterator[Resource]:
    kind, name, module = (resource.word(key) for key in ("type", "name", "module"))
    for instance in (resource.get("instances") or Node("list", 0)).items:
        index = instance.get("index_key")
        at = f"[{index.text}]" if index else ""
        hidden = frozenset(
            step.word("value")
            for path in (instance.get("sensitive_attributes") or Node("list", 0)).items
            for step in path.items
        )
        address = ".".join(filter(None, (module, kind, name))) + at
        body = instance.get("attributes")
        if body and body.kind == "object":
            yield Resource(kind, address, body, body.line, hidden)


def _of_module(module: Node) -> Iterator[Resource]:
    for resource in (module.get("resources") or Node("list", 0)).items:
        body = resource.get("values")
        if resource.word("mode") != "data" and body and body.kind == "object":
            hidden = frozenset(_hidden_names(resource.get("sensitive_values")))
            yield Resource(resource.word("type"), resource.word("address"), body, resource.line, hidden)
    for child in (module.get("child_modules") or Node("list", 0)).items:
        yield from _of_module(child)


def _hidden_names(node: Node | None) -> Iterator[str]:
    """Yield the names of what Terraform marks as sensitive, by `true` in place of the value."""
    for key, _, item in node.members if node else ():
        if item.text == "true":
            yield key
        yield from _hidden_names(item)
    for item in node.items if node else ():
        yield from _hidden_names(item)


def unknown_values(root: Node) -> Iterator[Note]:
    """Yield a note for each resource of a plan with arguments that are known only after it was applied."""
    for change in (root.get("resource_changes") or Node("list", 0)).items:
        if change.word("type") in _READERS:
            names = sorted(set(_hidden_names(change.node_at("change", "after_unknown"))) - {"id", "arn", "version"})
            if names:
                message = f"{change.word('address')}: {', '.join(names)} known only after apply: give the state"
                yield Note(change.line, message)


def _with_expressions(node: Node) -> Node:
    """Return a node of Terraform's JSON configuration, in which text with `${` is an expression."""
    if node.kind == "text" and re.search(r"(?<!\$)\$\{", node.text):
        return replace(node, kind="expression")
    if node.kind == "text":
        return replace(node, text=node.text.replace("$${", "${"))
    members = tuple((key, line, _with_expressions(item)) for key, line, item in node.members)
    return replace(node, members=members, items=tuple(map(_with_expressions, node.items)))


def of_hcl(blocks: Sequence[hcl.Block], more_locals: Mapping[str, Node] | None = None) -> list[Resource]:
    """Return the resources of a file of HCL; locals of other files of its module are `more_locals`."""
    resolver = hcl.Resolver({**(more_locals or {}), **hcl.locals_of(tuple(blocks))})
    return [
        Resource(block.labels[0], ".".join(block.labels), resolver.resolve(block.body), block.line)
        for block in blocks
        if block.kind == "resource" and len(block.labels) == 2
    ]


# --- what they hold ---------------------------------------------------------------------------------------------------


def read_resources(all_resources: Iterable[Resource], file: str) -> TerraformContent:
    """Return the connectors of resources, in order; SpecError for a config that is an expression as a whole."""
    every = list(all_resources)
    read_connectors: list[FoundConnector] = []
    notes: list[Note] = []
    documents: list[Node] = []
    problems: list[Problem] = []
    workers = _worker_configurations(every, file)
    integrations = _Integrations.from_resources(every)
    for resource in every:
        try:
            if resource.kind in _PROVIDERS:
                connector, told = _of_provider(resource, _PROVIDERS[resource.kind], workers, file)
                read_connectors += [connector] if connector else []
                notes += told
            elif resource.kind == "aiven_mirrormaker_replication_flow":
                flows, told = _of_aiven(resource, integrations)
                read_connectors += flows
                notes += told
            elif resource.kind == "yandex_mdb_kafka_connector":
                read_connectors += _of_yandex(resource)
            elif manifest := resource.first("manifest"):
                documents.append(manifest)
            else:
                read_connectors += _of_others(resource)
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems, hint=f"give `{SHOW}` of the state or of a plan, which has every value")
    kinds = tuple(dict.fromkeys(resource.kind for resource in every))
    return TerraformContent(tuple(read_connectors), tuple(notes), tuple(documents), kinds)


def _of_provider(
    resource: Resource, provider: Provider, workers: Mapping[str, Mapping[str, str]], file: str
) -> tuple[FoundConnector | None, list[Note]]:
    nodes = [(names[0], node) for names in provider.configs if (node := resource.first(*names))]
    entries: list[Entry] = []
    sensitive: set[str] = set()
    notes = list(_several(resource))
    for name, node in nodes:
        if node.kind == "expression":
            if name in _SENSITIVE:  # a login alone, and lint can do without
                notes.append(Note(node.line, f"{resource.address}: {name} is an expression: `{SHOW}` has its value"))
                continue
            message = f"{name} of {resource.address} is an expression: nothing of the connector is known"
            raise SpecError([Problem(Place(file, node.line, 1), message)])
        if node.kind != "object":
            continue
        hidden = name in _SENSITIVE or name in resource.sensitive
        sensitive |= {key for key, _, _ in node.members if hidden or key in resource.sensitive}
        entries += entries_of(node)
        notes += _expressions(resource, node)
    written = {entry.key: entry.value for entry in entries}
    named = next((node for name in provider.names if (node := resource.first(name)) and node.text), None)
    if named:
        entries = [entry_of("name", named.line, named), *(e for e in entries if e.key != "name")]
        notes += [_expression_note(resource, "name", named)] if named.kind == "expression" else []
    name = named.text if named else written.get("name") or resource.address.rpartition(".")[2]
    if not any(entry.key == "name" for entry in entries):
        entries.append(text_entry("name", resource.line, name))
    class_name = written.get("connector.class", "")
    if not class_name:
        message = f"{resource.address} has no connector.class in {' or '.join('.'.join(n) for n in provider.configs)}"
        return None, [*notes, Note(resource.line, message)]
    for key in sensitive:
        remember({"password": written.get(key, "")})
    connector = connector_of(name, class_name, tuple(entries), resource.line)
    owner = resource.word(provider.owner) if provider.owner else ""
    return (
        replace(
            connector,
            owner="" if "${" in owner else owner,
            workers=_msk_workers(resource, workers) if resource.kind == "aws_mskconnect_connector" else None,
            sensitive=frozenset(sensitive),
        ),
        notes,
    )


def _several(resource: Resource) -> Iterator[Note]:
    for name in ("for_each", "count"):
        if (node := resource.body.get(name)) and not (name == "count" and node.text == "1"):
            message = f"{resource.address}: {name} makes any number of it, and it is read as one: `{SHOW}` has each"
            yield Note(node.line, message)


def _expressions(resource: Resource, node: Node) -> Iterator[Note]:
    for key, line, item in node.members:
        if item.kind == "expression":
            yield _expression_note(resource, key, replace(item, line=line))


def _expression_note(resource: Resource, key: str, node: Node) -> Note:
    return Note(node.line, f"{resource.address}: {key} is an expression: `{SHOW}` has its value")


def _of_others(resource: Resource) -> list[FoundConnector]:
    """Return connectors in resources of providers that are not known."""
    name = next((word for key in ("connector_name", "name") if (word := resource.word(key))), resource.address)
    return [
        replace(
            connector,
            home=(),
            places={},
        )
        for connector in connectors(resource.body, name)
    ]


# --- MSK Connect ------------------------------------------------------------------------------------------------------


def _worker_configurations(all_resources: Sequence[Resource], file: str) -> dict[str, Mapping[str, str]]:
    """Return the properties of MSK Connect's worker configurations, by address and ARN."""
    properties: dict[str, Mapping[str, str]] = {}
    for resource in all_resources:
        if resource.kind == "aws_mskconnect_worker_configuration":
            text = resource.word("properties_file_content")
            entries = last(read(text, file, lambda _, line=resource.line: line))  # type: ignore[misc]
            values = {key: meant_value(entry) for key, entry in entries.items()}
            for key in (resource.word("arn"), resource.address):
                properties[key] = values
    return properties


def _msk_workers(resource: Resource, configurations: Mapping[str, Mapping[str, str]]) -> FoundWorkers:
    servers = resource.word("kafka_cluster", "apache_kafka_cluster", "bootstrap_servers")
    at = resource.word("worker_configuration", "arn")
    address = at.removeprefix("${").removesuffix("}").removesuffix(".arn")
    own = configurations.get(at) or configurations.get(address) or {}
    properties = {**own, **({"bootstrap.servers": servers} if servers else {})}
    # The service sets the override policy itself and says nowhere to which; a name that decides nothing.
    return FoundWorkers(properties, kafka_version(resource.word("kafkaconnect_version")), policy="custom")


# --- Aiven's replication flows ----------------------------------------------------------------------------------------

_OF_FLOWS = {
    "topics": "topics",
    "topics_blacklist": "topics.exclude",
    "topics_exclude": "topics.exclude",
    "replication_policy_class": "replication.policy.class",
    "sync_group_offsets_enabled": "sync.group.offsets.enabled",
    "sync_group_offsets_interval_seconds": "sync.group.offsets.interval.seconds",
    "emit_heartbeats_enabled": "emit.heartbeats.enabled",
    "offset_syncs_topic_location": "offset-syncs.topic.location",
    "config_properties_exclude": "config.properties.exclude",
    "replication_factor": "replication.factor",
    "offset_lag_max": "offset.lag.max",
}
_NOT_OF_FLOWS = (
    *("id", "project", "service_name", "source_cluster", "target_cluster", "enable", "timeouts"),
    *("depends_on", "lifecycle", "provider", "count", "for_each", "exactly_once_delivery_enabled"),
)
_DEFAULTS = {"sync.group.offsets.interval.seconds": "1", "emit.heartbeats.enabled": "false"}  # of the provider


@dataclass(frozen=True)
class _Cluster:
    """A Kafka cluster as a MirrorMaker service has it: its address, and settings of clients by kind and key."""

    servers: str
    line: int
    clients: Mapping[str, Entry]


@dataclass(frozen=True)
class _Integrations:
    """The clusters of each MirrorMaker service by alias, and the settings that the service gives all its flows."""

    clusters: Mapping[tuple[str, str], _Cluster]
    services: Mapping[str, Node]

    @classmethod
    def from_resources(cls, all_resources: Sequence[Resource]) -> _Integrations:
        uris = {r.word("service_name"): uri for r in all_resources if (uri := r.word("service_uri"))}
        services = {
            name: config
            for r in all_resources
            if r.kind == "aiven_kafka_mirrormaker"
            and (config := r.first("kafka_mirrormaker_user_config", "kafka_mirrormaker"))
            for name in (r.word("service_name"), f"${{{r.address}.service_name}}")
        }
        clusters: dict[tuple[str, str], _Cluster] = {}
        for r in all_resources:
            alias = r.first("kafka_mirrormaker_user_config", "cluster_alias")
            if r.kind != "aiven_service_integration" or alias is None:
                continue
            source = r.word("source_service_name")
            servers = uris.get(source) or (
                source.replace(".service_name}", ".service_uri}") if source.startswith("${") else ""
            )
            settings = r.first("kafka_mirrormaker_user_config", "kafka_mirrormaker") or Node("object", 0)
            clients = {entry.key.replace("_", "."): entry for entry in entries_of(settings) if entry.raw != "null"}
            clusters[r.word("destination_service_name"), alias.text] = _Cluster(servers, alias.line, clients)
        return cls(clusters, services)


def _of_aiven(resource: Resource, integrations: _Integrations) -> tuple[list[FoundConnector], list[Note]]:
    """Return the connectors that Aiven runs for a flow: source, checkpoint, and heartbeat if asked."""
    notes = list(_several(resource))
    service = resource.word("service_name")
    own: dict[str, Entry] = {}
    for name, line, node in resource.body.members:
        if name in _OF_FLOWS and node.kind != "null" and not (node.kind == "list" and not node.items):
            own[_OF_FLOWS[name]] = entry_of(_OF_FLOWS[name], line, _joined_list(node))
        elif name not in _NOT_OF_FLOWS and node.kind != "null" and node.text not in ("", "false"):
            notes.append(Note(line, f"{resource.address}: {name} has no equal among MirrorMaker's settings"))
        if node.kind == "expression" and name not in ("project", "service_name"):
            notes.append(_expression_note(resource, name, replace(node, line=line)))
    ends = {side: resource.word(f"{side}_cluster") for side in ("source", "target")}
    base: dict[str, Entry] = {}
    for side, alias in ends.items():
        end = resource.first(f"{side}_cluster")
        line = end.line if end else resource.line
        cluster = integrations.clusters.get((service, alias)) or _Cluster("", line, {})
        servers = cluster.servers or f"${{service_uri_of_{re.sub(r'[^A-Za-z0-9]', '_', alias)}}}"
        alias_key = f"{side}.cluster.alias"
        base[alias_key] = replace(text_entry(alias_key, line, alias), path=end.path if end else ())
        key = f"{side}.cluster.bootstrap.servers"
        base[key] = text_entry(key, cluster.line, servers)
        kind = "consumer" if side == "source" else "producer"
        prefix = "source.consumer." if side == "source" else "producer.override."
        for plain, entry in cluster.clients.items():
            if plain.startswith(f"{kind}."):
                base[prefix + plain.partition(".")[2]] = replace(entry, key=prefix + plain.partition(".")[2])
    shared = {
        entry.key.replace("_", "."): entry
        for entry in entries_of(integrations.services.get(service) or Node("object", 0))
        if entry.raw != "null"
    }
    if resource.word("enable") == "false":
        notes.append(Note(resource.line, f"{resource.address}: enable is false: nothing of it runs"))
    exactly_once = resource.word("exactly_once_delivery_enabled") == "true"
    workers = FoundWorkers({**CONVERTERS, EXACTLY_ONCE_KEY: "enabled" if exactly_once else "disabled"}, policy="All")
    result = []
    for class_name, type_ in CLASSES.items():
        if type_ == "heartbeat" and own.get("emit.heartbeats.enabled", text_entry("", 0, "false")).value != "true":
            continue
        if type_ == "checkpoint" and shared.get("emit.checkpoints.enabled", text_entry("", 0, "")).value == "false":
            continue
        names = {*truth_keys.load().names(type_)}
        lines = {
            key: entry
            for key, entry in {**shared, **base, **own}.items()
            if key in names or (key in base and (type_ == "source" or not key.startswith(("source.con", "producer."))))
        }
        name = f"{ends['source']}->{ends['target']} {class_name}"
        named = {"name": name, "connector.class": f"{PACKAGE}.{class_name}"}
        defaults = {key: value for key, value in _DEFAULTS.items() if key in names}
        config = named | defaults | {key: replace(entry, key=key).value for key, entry in lines.items()}
        entries = tuple(replace(entry, key=key) for key, entry in lines.items())
        connector = FoundConnector(name, named["connector.class"], config, lines, resource.line, entries)
        state = "STOPPED" if resource.word("enable") == "false" else None
        result.append(replace(connector, workers=workers, state=state, owner="" if "${" in service else service))
    return result, notes


def _joined_list(node: Node) -> Node:
    """Return a list as the text that MirrorMaker takes, with commas; lists with expressions are expressions."""
    if node.kind != "list":
        return node
    kind: NodeKind = "expression" if any(item.kind == "expression" for item in node.items) else "text"
    return Node(kind, node.line, ",".join(item.text for item in node.items), path=node.path)


# --- Yandex Managed Service for Kafka ---------------------------------------------------------------------------------

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def _of_yandex(resource: Resource) -> list[FoundConnector]:
    mirror = resource.first("connector_config_mirrormaker")
    if mirror is None or mirror.kind != "object":
        return []
    part = replace(resource, body=mirror)
    entries: list[Entry] = []
    sensitive: set[str] = set()

    def add(key: str, node: Node | None, value: str | None = None) -> None:
        if node and node.kind != "null":
            entries.append(replace(entry_of(key, node.line, node), value=node.text if value is None else value))

    properties = resource.first("properties")
    entries += entries_of(properties) if properties else ()
    add("name", resource.first("name"))
    add("tasks.max", resource.first("tasks_max"))
    add("topics", part.first("topics"))
    add("replication.factor", part.first("replication_factor"))
    for side in ("source", "target"):
        at, prefix = f"{side}_cluster", f"{side}.cluster."
        add(f"{prefix}alias", part.first(at, "alias"))
        outer = ("external_cluster",)
        add(f"{prefix}bootstrap.servers", part.first(at, *outer, "bootstrap_servers"))
        add(f"{prefix}security.protocol", part.first(at, *outer, "security_protocol"))
        add(f"{prefix}sasl.mechanism", part.first(at, *outer, "sasl_mechanism"))
        user, password = (part.first(at, *outer, name) for name in ("sasl_username", "sasl_password"))
        if user and password:
            jaas = f'{_SCRAM} required username="{user.text}" password="{password.text}";'
            add(f"{prefix}sasl.jaas.config", password, jaas)
            sensitive.add(f"{prefix}sasl.jaas.config")
    name = resource.word("name") or resource.address
    class_name = f"{PACKAGE}.MirrorSourceConnector"
    entries.append(text_entry("connector.class", resource.line, class_name))
    connector = connector_of(name, class_name, tuple(entries), resource.line)
    return [replace(connector, sensitive=frozenset(sensitive))]


def why_none(kinds: Sequence[str]) -> str:
    """Return why resources have no connector."""
    if not kinds:
        return "it has no resource"
    shown = ", ".join(kinds[:3]) + (" …" if len(kinds) > 3 else "")
    return f"none of its resources is a connector ({shown})"
