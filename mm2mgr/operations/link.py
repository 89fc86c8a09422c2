"""`link read`: what the brokers of each cluster allow, written to overrides/brokers.yaml for review."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Any

from mm2mgr.check.needs import knows_names, mirrored
from mm2mgr.endpoints import kafka_access
from mm2mgr.errors import KafkaError, Mm2mgrError
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.inspection import broker_addresses, broker_configs, topic_limits
from mm2mgr.link import BY_SYSTEM
from mm2mgr.operations.workspace import Workspace
from mm2mgr.spec.models import BrokersRead
from mm2mgr.spec.writer import BROKERS, merge, override_target
from mm2mgr.text import nearest
from mm2mgr.topology import Flow, KafkaCluster, Topology

_AT_ONCE = 16
_VERSION = "inter.broker.protocol.version"  # the only setting that names a version; Kafka 4.0 removed it
_OLDEST_WITHOUT = "4.0"
_SIZES = tuple(each.alias for each in BrokersRead.model_fields.values() if each.alias)
Entry = dict[str, Any]


@dataclass(frozen=True)
class BrokersReport:
    """What `link read` read: by cluster its entry of overrides/brokers.yaml. `failures`: clusters that could not be read, with why.

    `remarks`: what a reviewer should know, such as brokers that differ. `diff`: what changes in the file. `is_changed`: it was
    written; `refused`: clusters whose entries somebody else changed meanwhile.
    """

    entries: Mapping[str, Mapping[str, Any]]
    failures: Mapping[str, str]
    remarks: tuple[str, ...]
    path: Path
    diff: tuple[str, ...] = ()
    is_changed: bool = False
    refused: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **{"clusters": {alias: dict(entry) for alias, entry in self.entries.items()}},
            **{"failures": dict(self.failures), "remarks": list(self.remarks)},
            **{"file": str(self.path), "diff": list(self.diff), "written": self.is_changed},
        }


def link_read(
    workspace: Workspace,
    clusters: Sequence[str] = (),
    *,
    write: bool = True,
    timeout_seconds: float = 20.0,
    notify: Callable[[str], None] = lambda _: None,
) -> BrokersReport:
    """Ask the brokers of the named clusters, or of all, what they allow, and write overrides/brokers.yaml.

    Clusters that could not be read keep their entries. Mm2mgrError when the file cannot be written.
    """
    topology = workspace.topology
    chosen = [known_cluster(topology, alias) for alias in clusters] or list(topology.clusters.values())
    path = BROKERS.path(workspace.files)
    if write:
        override_target(path)
    before = BROKERS.read(path)
    found = _read(topology, chosen, timeout_seconds)
    entries = {alias: _dated(entry, before.get(alias, {})) for alias, entry in found.entries(topology, before).items()}
    known = topology.clusters.keys()
    after = merge(before, entries, known, before)
    old, new = (BROKERS.text(each).splitlines() if each else [] for each in (before, after))
    diff = tuple(unified_diff(old, new, str(path), str(path), lineterm="")) if entries else ()
    report = BrokersReport(entries, found.failures, tuple(found.remarks), path, diff)
    if not (write and entries):
        return report
    written = BROKERS.write(path, entries, known, before, notify)
    return replace(report, is_changed=written.changed, refused=written.refused)


def known_cluster(topology: Topology, alias: str) -> KafkaCluster:
    """Return a cluster by its alias."""
    if alias in topology.clusters:
        return topology.clusters[alias]
    near = nearest(alias, topology.clusters)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(topology.clusters))}"
    raise Mm2mgrError(f"no cluster '{alias}' in the tree", hint=hint)


def _dated(entry: Entry, before: Mapping[str, Any]) -> Entry:
    """Keep the day of an entry that is as it was, so that the file changes only where brokers did."""
    same = {key: value for key, value in before.items() if key != "since"} == entry
    since = before.get("since") if same else None
    return {**entry, "since": since or datetime.now(UTC).date().isoformat()}


@dataclass
class _Found:
    """Answers by cluster, while they come in from several threads."""

    brokers: dict[str, Entry] = field(default_factory=dict)
    topics: dict[str, Collection[str]] = field(default_factory=dict)
    limits: dict[str, Mapping[str, int]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def entries(self, topology: Topology, before: Mapping[str, Mapping[str, Any]]) -> dict[str, Entry]:
        """Return the entries of the clusters that answered, with the limits of the flows that write to each."""
        result = {}
        for alias, entry in self.brokers.items():
            if alias in self.failures:
                continue
            earlier = before.get(alias, {}).get("flows") or {}
            flows: dict[str, int] = {}
            limits = self.limits.get(alias, {})
            for flow in sorted(topology.flows, key=lambda each: each.id):
                if flow.target.alias != alias:
                    continue
                written = self.written(flow)
                sizes = [limits[each] for each in written if each in limits]
                if flow.source.alias not in self.topics or len(sizes) < len(written):  # not all could be read
                    sizes += [earlier[flow.id]] if flow.id in earlier else []
                if sizes:
                    flows[flow.id] = min(sizes)
            # What the brokers' own limit says as well needs no line.
            own = {one: size for one, size in flows.items() if size != entry["message.max.bytes"]}
            result[alias] = entry | ({"flows": own} if own else {})
        return result

    def written(self, flow: Flow) -> list[str]:
        """Return the topics on the target that a flow writes to and that exist."""
        names = mirrored(flow, self.topics.get(flow.source.alias, ())) if knows_names(flow) else []
        return [name for name in map(flow.remote_topic, names) if name in self.topics.get(flow.target.alias, ())]


def _read(topology: Topology, chosen: Iterable[KafkaCluster], timeout_seconds: float) -> _Found:
    found = _Found()
    targets = list(chosen)
    aliases = {each.alias for each in targets}
    sources = {flow.source.alias for flow in topology.flows if flow.target.alias in aliases}

    def ask(cluster: KafkaCluster, do: Callable[[KafkaCluster, Kafka], None]) -> None:
        try:
            with Kafka(kafka_access(cluster), timeout_seconds) as kafka:
                kafka.within(timeout_seconds)
                do(cluster, kafka)
        except Mm2mgrError as error:
            if cluster.alias in aliases:
                found.failures[cluster.alias] = error.message + (f" ({error.hint})" if error.hint else "")
            else:
                found.remarks.append(
                    f"{error.message}; limits of topics that flows from there write to stay as they are"
                )

    def brokers(cluster: KafkaCluster, kafka: Kafka) -> None:
        if cluster.alias in aliases:
            _brokers(cluster.alias, kafka, found)
        found.topics[cluster.alias] = kafka.partition_counts().keys()

    def limits(cluster: KafkaCluster, kafka: Kafka) -> None:
        alias = cluster.alias
        wanted = {name for flow in topology.flows if flow.target.alias == alias for name in found.written(flow)}
        found.limits[alias] = topic_limits(kafka, sorted(wanted)) if wanted else {}
        if refused := sorted(wanted - found.limits[alias].keys()):
            what = f"{alias}: max.message.bytes of {len(refused)} topics cannot be read, such as {refused[0]}"
            found.remarks.append(f"{what}: this login needs DescribeConfigs on them")

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        asked = [each for alias, each in topology.clusters.items() if alias in aliases | sources]
        list(threads.map(partial(ask, do=brokers), asked))
        list(threads.map(partial(ask, do=limits), [each for each in targets if each.alias in found.topics]))
    found.remarks.sort()
    return found


def _brokers(alias: str, kafka: Kafka, found: _Found) -> None:
    ids = [each.id for each in broker_addresses(kafka)]
    configs = broker_configs(kafka, ids)
    if not configs:
        hint = "it needs DescribeConfigs on the cluster"
        raise KafkaError(f"{alias}: this login may not read the brokers' settings", hint=hint)
    found.brokers[alias], remarks = smallest(alias, configs)
    found.remarks += remarks


def smallest(alias: str, configs: Mapping[int, Mapping[str, str]]) -> tuple[Entry, list[str]]:
    """Return the entry of a cluster from the settings of its brokers, and a remark for each setting in which they differ."""
    entry: Entry = {"count": len(configs), "version": min((_version(each) for each in configs.values()), key=_order)}
    remarks = []
    for key in _SIZES:
        by_broker = {one: int(each[key]) for one, each in configs.items()}
        entry[key] = min(by_broker.values(), key=lambda size: math.inf if size == BY_SYSTEM else size)
        if len(set(by_broker.values())) > 1:
            each = ", ".join(f"{size} on broker {one}" for one, size in sorted(by_broker.items()))
            remarks.append(f"{alias}: brokers differ in {key} ({each}); the smallest counts")
    return entry, remarks


def _version(configs: Mapping[str, str]) -> str:
    return configs[_VERSION].partition("-")[0] if _VERSION in configs else _OLDEST_WITHOUT


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
