"""Writes rendered connectors for other tools: Connect's JSON, Strimzi's resources, mm2.properties. Pure.

What a form cannot say is a refusal, never left out: whoever uses it gets the same connectors, or a reason. `mm2mgr.*`
marks stay where the form has them, so that mm2mgr's own commands find the connectors.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mm2mgr.assignment_text import is_plugin_class
from mm2mgr.connectors import CLASSES, Connector, ConnectorType
from mm2mgr.formats.connectors import EXACTLY_ONCE_KEY
from mm2mgr.log_places import START_KEY
from mm2mgr.render import is_limited
from mm2mgr.secrets import mask
from mm2mgr.spec.files import yaml_text
from mm2mgr.topology import KafkaCluster, Topology
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import CLUSTER_KEYS, numbers

ExportFormat = Literal["json", "strimzi", "strimzi-mirrormaker2", "properties"]
StrimziApi = Literal["v1beta2", "v1"]
_INITIAL_STATE = (3, 7)  # KIP-980
# Names of Kubernetes: a DNS subdomain for a resource, a label's value for its Connect cluster.
_SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"(?=.{1,63}$)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MEMBERS = ("name", "connector.class", "tasks.max")  # of a KafkaConnector's spec, and not of its config


@dataclass(frozen=True)
class ExportRefusal:
    """What a form cannot say: a key of a connector ("" for the connector as a whole), the reason, and what to write."""

    connector: str
    key: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class ExportedFile:
    """A file to write: its name within the folder, and its text."""

    name: str
    text: str = field(repr=False)


@dataclass(frozen=True)
class Export:
    """The files of an export and the `document` that holds all of them; empty where something is refused."""

    format: ExportFormat
    files: tuple[ExportedFile, ...]
    document: str = field(repr=False)
    refusals: tuple[ExportRefusal, ...] = ()


def export(
    connectors: Sequence[Connector], topology: Topology, form: ExportFormat, api: StrimziApi = "v1beta2"
) -> Export:
    """Return connectors in another form; `api` is the version of Strimzi's resources."""
    refusals = [refusal for connector in connectors for refusal in _refuse_everywhere(connector)]
    if form == "json":
        refusals += (refusal for connector in connectors for refusal in _refuse_json(connector, topology))
    elif form == "strimzi-mirrormaker2":
        refusals += _refuse_mirror_maker2(connectors, topology)
    else:
        refusals += (_refuse_strimzi if form == "strimzi" else _refuse_properties)(connectors)
    if refusals:
        return Export(form, (), "", tuple(refusals))
    if form == "properties":
        return Export(form, *_properties(connectors, topology))
    if form == "strimzi-mirrormaker2":
        return Export(form, *_mirror_maker2(connectors, topology, api))
    return Export(form, *(_json(connectors) if form == "json" else _strimzi(connectors, api)))


def _refuse_everywhere(connector: Connector) -> Iterator[ExportRefusal]:
    for key, value in connector.config.items():
        if mask(key, value) != value:
            where = connector.origins[key].where if key in connector.origins else ""
            reason = f"a secret stands there in clear{f' ({where})' if where else ''}, and no file of an export has one"
            yield ExportRefusal(connector.name, key, reason, "write a placeholder of the workers, such as ${file:…}")
    if START_KEY in connector.config:
        reason = "where a flow begins is written as stored offsets by `mm2mgr apply`, and is in no config"
        yield ExportRefusal(connector.name, START_KEY, reason, "remove `start`, or create this flow with mm2mgr apply")
    if is_limited(connector.config):
        reason = "a catch-up limit is a quota of the target's brokers, which `mm2mgr apply` writes"
        yield ExportRefusal(connector.name, "catch_up", reason, "remove `catch_up`, or apply with mm2mgr")


def _file_names(names: Sequence[str], suffix: str) -> list[str]:
    """Return a file's name for each of some names, none twice on any file system."""
    used: dict[str, int] = {}
    result = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".") or "connector"
        count = used[plain.lower()] = used.get(plain.lower(), 0) + 1
        result.append(f"{plain}{f'~{count}' if count > 1 else ''}{suffix}")
    return result


# --- Connect's JSON ---------------------------------------------------------------------------------------------------


def _refuse_json(connector: Connector, topology: Topology) -> Iterator[ExportRefusal]:
    version = kafka_version(topology.connects[connector.connect].model.version or "")
    if connector.state not in (None, "RUNNING") and version and numbers(version) < _INITIAL_STATE:
        reason = f"Connect {version} takes no state with a config (KIP-980: since 3.7)"
        yield ExportRefusal(connector.name, "state", reason, f"remove `state`, and ask Connect for {connector.state}")


def _json(connectors: Sequence[Connector]) -> tuple[tuple[ExportedFile, ...], str]:
    bodies = [_body(connector) for connector in connectors]
    names = _file_names([f"{connector.connect}.{connector.name}" for connector in connectors], ".json")
    files = tuple(ExportedFile(name, _json_text(body)) for name, body in zip(names, bodies, strict=True))
    return files, _json_text(bodies[0] if len(bodies) == 1 else bodies)


def _body(connector: Connector) -> dict[str, object]:
    """Return the body of POST /connectors."""
    state = {"initial_state": connector.state} if connector.state not in (None, "RUNNING") else {}
    return {"name": connector.name, **state, "config": _plain(connector.config)}


def _json_text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _plain(config: Mapping[str, str]) -> dict[str, str]:
    return {key: str(value) for key, value in config.items()}


# --- Strimzi ----------------------------------------------------------------------------------------------------------


def _refuse_strimzi(connectors: Sequence[Connector]) -> Iterator[ExportRefusal]:
    clusters: dict[str, str] = {}
    for connector in connectors:
        if not _SUBDOMAIN.fullmatch(connector.name):
            reason = (
                "its name is the resource's, and Kubernetes takes small letters, digits, - and . only: under another "
                "name it would begin again"
            )
            yield ExportRefusal(
                connector.name, "name", reason, "choose --format json, or names of clusters and flows like these"
            )
        if not _LABEL.fullmatch(connector.connect):
            reason = f"Connect cluster '{connector.connect}' cannot be the value of the label strimzi.io/cluster"
            yield ExportRefusal(connector.name, "", reason, "name it under `connect` as its KafkaConnect is named")
        other = clusters.setdefault(connector.name, connector.connect)
        if other != connector.connect:
            reason = f"Connect clusters {other} and {connector.connect} both have it, and a namespace has one resource"
            yield ExportRefusal(connector.name, "name", reason, "export the flows of each Connect cluster alone")
        yield from _refuse_tasks(connector)


def _refuse_tasks(connector: Connector) -> Iterator[ExportRefusal]:
    if not connector.config.get("tasks.max", "1").isdecimal():
        reason = f"tasksMax is a number, and this is {connector.config['tasks.max']}"
        yield ExportRefusal(connector.name, "tasks.max", reason, "write a number of tasks")


def _strimzi(connectors: Sequence[Connector], api: StrimziApi) -> tuple[tuple[ExportedFile, ...], str]:
    names = _file_names([connector.name for connector in connectors], ".yaml")
    texts = [yaml_text(_resource(connector, api)) for connector in connectors]
    return tuple(map(ExportedFile, names, texts)), "---\n".join(texts)


def _resource(connector: Connector, api: StrimziApi) -> dict[str, object]:
    config = {key: value for key, value in _plain(connector.config).items() if key not in _MEMBERS}
    return {
        "apiVersion": f"kafka.strimzi.io/{api}",
        "kind": "KafkaConnector",
        "metadata": {"name": connector.name, "labels": {"strimzi.io/cluster": connector.connect}},
        "spec": {
            "class": str(connector.config["connector.class"]),
            **_tasks_and_state(connector),
            "config": config,
        },
    }


def _tasks_and_state(connector: Connector) -> dict[str, object]:
    state = {"state": connector.state.lower()} if connector.state else {}
    return {"tasksMax": int(connector.config.get("tasks.max", "1")), **state}


# --- Strimzi's KafkaMirrorMaker2 --------------------------------------------------------------------------------------

_MIRROR_MAKER2_HEAD = """\
# Not in the tree: replicas, and where the workers store offsets ({names}).
# Here are the operator's own defaults. Keep those of a resource that runs, or its connectors begin again.
"""
_STORAGE_MEMBERS = {
    "group.id": "groupId",
    "config.storage.topic": "configStorageTopic",
    "offset.storage.topic": "offsetStorageTopic",
    "status.storage.topic": "statusStorageTopic",
}
_PATTERNS = {  # members of a mirror, for all its connectors that read the key
    "topics": "topicsPattern",
    "topics.exclude": "topicsExcludePattern",
    "groups": "groupsPattern",
    "groups.exclude": "groupsExcludePattern",
}
_CLASS_NAMES = {type_: name for name, type_ in CLASSES.items()}
_OF_LOGIN = ("ssl.keystore.", "sasl.")  # what the operator takes in `authentication` of type custom
_FULL_VERSION = re.compile(r"\d+\.\d+\.\d+")


def _refuse_mirror_maker2(connectors: Sequence[Connector], topology: Topology) -> Iterator[ExportRefusal]:
    sources: dict[tuple[str, _Pair], Connector] = {}
    for connector in connectors:
        pair, home = "->".join(_ends(connector)), topology.connects[connector.connect].kafka
        class_name = _CLASS_NAMES[connector.type]
        if connector.type == "heartbeat":
            reason = "heartbeats of a flow are written to its source, and a KafkaMirrorMaker2 writes to its target only"
            yield ExportRefusal(
                connector.name, "", reason, "write `heartbeats: false` in its flow, or choose --format strimzi"
            )
            continue
        if home != _ends(connector)[1]:
            reason = f"it runs on workers that use {home}, and those of a KafkaMirrorMaker2 use the target of {pair}"
            yield ExportRefusal(
                connector.name, "", reason, f"write run_on: a Connect cluster whose kafka is {_ends(connector)[1]}"
            )
        if not _SUBDOMAIN.fullmatch(connector.connect):
            reason = f"Connect cluster '{connector.connect}' cannot be the name of a resource of Kubernetes"
            yield ExportRefusal(connector.name, "", reason, "name it in small letters, digits, - and .")
        if connector.config.get("connector.class", "").rpartition(".")[2] != class_name:
            reason = f"the operator starts MirrorMaker's own {class_name} only"
            yield ExportRefusal(connector.name, "connector.class", reason, "remove `balance: plugin`")
        of_pair = sources.setdefault((connector.connect, _ends(connector)), connector)
        if connector.type == "source" and of_pair is not connector:
            reason = f"a KafkaMirrorMaker2 has one source connector per pair, and {of_pair.name} is that of {pair}"
            yield ExportRefusal(connector.name, "", reason, "join their topics in one flow")
        elif connector.type == "source" and connector.name != (name := f"{pair}.{class_name}"):
            reason = f"the operator calls it {name}, and under another name it would begin again"
            remedy = f"write `connector_name: {name}` in its flow, if nothing runs under the old name"
            yield ExportRefusal(connector.name, "name", reason, remedy)
        yield from _refuse_tasks(connector)
        yield from _refuse_own_addresses(connector, topology)


def _refuse_own_addresses(connector: Connector, topology: Topology) -> Iterator[ExportRefusal]:
    for side, alias in zip(("source", "target"), _ends(connector), strict=True):
        client = topology.clusters[alias].client
        for key in sorted(CLUSTER_KEYS):
            if connector.config.get(f"{side}.cluster.{key}") != (text := client.get(key)):
                reason = (
                    f"the operator gives every connector what the cluster {alias} has: {mask(key, text or 'nothing')}"
                )
                yield ExportRefusal(
                    connector.name, f"{side}.cluster.{key}", reason, f"declare it under clusters: {alias}"
                )


def _mirror_maker2(
    connectors: Sequence[Connector], topology: Topology, api: StrimziApi
) -> tuple[tuple[ExportedFile, ...], str]:
    by_connect: dict[str, dict[_Pair, dict[ConnectorType, Connector]]] = {}
    for connector in connectors:
        by_connect.setdefault(connector.connect, {}).setdefault(_ends(connector), {})[connector.type] = connector
    homes = Counter(topology.connects[name].kafka for name in by_connect)
    names = ", ".join(_STORAGE_MEMBERS.values() if api == "v1" else _STORAGE_MEMBERS)
    texts = []
    for name, pairs in by_connect.items():
        prefix = "mirrormaker2-cluster" if homes[topology.connects[name].kafka] == 1 else f"mirrormaker2-{name}"
        resource = _mirror_maker2_resource(name, pairs, topology, api, prefix)
        texts.append(_MIRROR_MAKER2_HEAD.format(names=names) + yaml_text(resource))
    files = tuple(map(ExportedFile, _file_names(list(by_connect), ".yaml"), texts))
    return files, "---\n".join(texts)


def _mirror_maker2_resource(
    name: str,
    pairs: Mapping[_Pair, Mapping[ConnectorType, Connector]],
    topology: Topology,
    api: StrimziApi,
    prefix: str,
) -> dict[str, object]:
    connect = topology.connects[name]
    storage = {"group.id": prefix, "status.storage.topic": f"{prefix}-status"}
    storage |= {f"{kind}.storage.topic": f"{prefix}-{kind}s" for kind in ("config", "offset")}
    of_workers = {EXACTLY_ONCE_KEY: "enabled"} if connect.exactly_once else {}
    version = connect.model.version or ""
    spec: dict[str, object] = {"version": version} if _FULL_VERSION.fullmatch(version) else {}
    spec["replicas"] = 3
    mirrors: list[dict[str, object]] = []
    if api == "v1":
        stored = {_STORAGE_MEMBERS[key]: value for key, value in storage.items()}
        spec["target"] = _mirror_maker2_cluster(topology.clusters[connect.kafka], of_workers, stored)
        mirrors += ({"source": _mirror_maker2_cluster(topology.clusters[source])} for source, _ in pairs)
    else:
        sources = dict.fromkeys(source for source, _ in pairs)
        target = _mirror_maker2_cluster(topology.clusters[connect.kafka], {**storage, **of_workers})
        spec["connectCluster"] = connect.kafka
        spec["clusters"] = [*(_mirror_maker2_cluster(topology.clusters[source]) for source in sources), target]
        mirrors += ({"sourceCluster": source, "targetCluster": target} for source, target in pairs)
    spec["mirrors"] = [
        {**ends, **_mirror_members(of_pair)} for ends, of_pair in zip(mirrors, pairs.values(), strict=True)
    ]
    return {
        "apiVersion": f"kafka.strimzi.io/{api}",
        "kind": "KafkaMirrorMaker2",
        "metadata": {"name": name},
        "spec": spec,
    }


def _mirror_maker2_cluster(
    cluster: KafkaCluster, of_workers: Mapping[str, str] = {}, stored: Mapping[str, str] = {}
) -> dict[str, object]:
    client = _plain(cluster.client)
    protocol = client.pop("security.protocol", "PLAINTEXT")
    login = {key: client.pop(key) for key in list(client) if key.startswith(_OF_LOGIN)}
    entry: dict[str, object] = {"alias": cluster.alias, "bootstrapServers": client.pop("bootstrap.servers"), **stored}
    entry |= {"tls": {"trustedCertificates": []}} if protocol.endswith("SSL") else {}
    if login or protocol.startswith("SASL"):
        entry["authentication"] = {"type": "custom", "sasl": protocol.startswith("SASL"), "config": login}
    return entry | ({"config": config} if (config := {**client, **of_workers}) else {})


def _mirror_members(connectors: Mapping[ConnectorType, Connector]) -> dict[str, object]:
    configs = {
        type_: {
            key: value
            for key, value in _plain(connector.config).items()
            if key not in _MEMBERS and not _is_of_cluster(key) and not key.endswith(".cluster.alias")
        }
        for type_, connector in connectors.items()
    }
    members: dict[str, object] = {
        f"{type_}Connector": {**_tasks_and_state(connector), "config": configs[type_]}
        for type_, connector in connectors.items()
    }
    for key, member in _PATTERNS.items():
        readers = [config for type_, config in configs.items() if type_ == "checkpoint" or key.startswith("topics")]
        if readers and len({config.get(key) for config in readers}) == 1 and (pattern := readers[0].get(key)):
            members[member] = pattern
            for config in readers:
                del config[key]
    return members


# --- mm2.properties ---------------------------------------------------------------------------------------------------

_Pair = tuple[str, str]
_HEARTBEATS = "emit.heartbeats.enabled"


def _ends(connector: Connector) -> _Pair:
    return connector.config["source.cluster.alias"], connector.config["target.cluster.alias"]


def _refuse_properties(connectors: Sequence[Connector]) -> Iterator[ExportRefusal]:
    sources: dict[_Pair, Connector] = {}
    for connector in connectors:
        pair = _ends(connector)
        if is_plugin_class(connector.config.get("connector.class", "")):
            reason = "a dedicated MirrorMaker starts MirrorMaker's own class only"
            yield ExportRefusal(connector.name, "connector.class", reason, "remove `balance: plugin`")
        if connector.state not in (None, "RUNNING"):
            reason = "a dedicated MirrorMaker has no state of connectors"
            yield ExportRefusal(connector.name, "state", reason, "remove `state`")
        if connector.type == "source" and (other := sources.setdefault(pair, connector)) is not connector:
            taken = f"{other.name} is that of {'->'.join(pair)}"
            reason = f"a dedicated MirrorMaker has one source connector per pair, and {taken}"
            yield ExportRefusal(connector.name, "", reason, "join their topics in one flow")
    for pair, of_pair in _by_pair(connectors).items():
        for key in sorted({key for connector in of_pair for key in _pair_keys(connector)}):
            values = {connector.config[key]: connector for connector in of_pair if key in _pair_keys(connector)}
            if len(values) > 1:
                first, second, *_ = values.values()
                reason = (
                    f"a dedicated MirrorMaker has one value for the pair {'->'.join(pair)}: here it is "
                    f"{mask(key, first.config[key])}, and {mask(key, second.config[key])} in {second.name}"
                )
                yield ExportRefusal(first.name, key, reason, "make them equal, or choose another format")


def _by_pair(connectors: Sequence[Connector]) -> dict[_Pair, list[Connector]]:
    pairs: dict[_Pair, list[Connector]] = {}
    for connector in connectors:
        pairs.setdefault(_ends(connector), []).append(connector)
    return pairs


def _pair_keys(connector: Connector) -> list[str]:
    """Return the keys that go into lines of the pair; the others are lines of a cluster, or the driver's own."""
    return [
        key
        for key in connector.config
        if key not in ("name", "connector.class", "source.cluster.alias", "target.cluster.alias")
        and not key.startswith("mm2mgr.")
        and not _is_of_cluster(key)
        and not (key == "tasks.max" and connector.type == "heartbeat")  # it never has more than one
    ]


def _is_of_cluster(key: str) -> bool:
    side, _, plain = key.partition(".cluster.")
    return side in ("source", "target") and plain in CLUSTER_KEYS


def _properties(connectors: Sequence[Connector], topology: Topology) -> tuple[tuple[ExportedFile, ...], str]:
    pairs = _by_pair(connectors)
    aliases = dict.fromkeys(alias for pair in pairs for alias in pair)
    lines = ["# Written by `mm2mgr render --format properties`.", f"clusters = {', '.join(aliases)}"]
    lines.append(f"{_HEARTBEATS} = false")
    for alias in aliases:
        lines += ["", *_lines(alias, topology.clusters[alias].client)]
        hosts = {connector.connect for pair, of in pairs.items() if pair[1] == alias for connector in of}
        if any(topology.connects[host].exactly_once for host in hosts):
            lines += _lines(alias, {EXACTLY_ONCE_KEY: "enabled"})
    for (source, target), of_pair in pairs.items():
        types = {connector.type for connector in of_pair}
        settings = {"enabled": str("source" in types or "checkpoint" in types).lower()}
        settings[_HEARTBEATS] = str("heartbeat" in types).lower()
        if settings["enabled"] == "true" and "checkpoint" not in types:
            settings["emit.checkpoints.enabled"] = "false"
        for connector in of_pair:
            settings |= {key: connector.config[key] for key in _pair_keys(connector)}
        lines += ["", *_lines(f"{source}->{target}", settings)]
    text = "\n".join(lines) + "\n"
    return (ExportedFile("mm2.properties", text),), text


def _lines(of: str, settings: Mapping[str, str]) -> Iterator[str]:
    return (f"{_escape(f'{of}.{key}', is_key=True)} = {_escape(value)}" for key, value in settings.items())


_ESCAPED = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def _escape(text: str, *, is_key: bool = False) -> str:
    """Escape what java.util.Properties would not read as it is."""

    def escape_char(char: str) -> str:
        if char in _ESCAPED:
            return _ESCAPED[char]
        if is_key and char in " =:#!":
            return f"\\{char}"
        if " " <= char <= "~":
            return char
        units = char.encode("utf-16-be")
        return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

    result = "".join(map(escape_char, text))
    return f"\\{result}" if result.startswith(" ") else result
