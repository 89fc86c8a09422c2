"""What the brokers of clusters allow, and the topics on them that flows write to: the entries of overrides/brokers.yaml."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mm2mgr.check.needs import knows_names, mirrored
from mm2mgr.errors import KafkaError, Mm2mgrError
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.inspection import broker_addresses, broker_configs, topic_limits
from mm2mgr.link import BY_SYSTEM
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.spec.models import BrokersRead
from mm2mgr.topology import Flow, KafkaCluster, Topology

_AT_ONCE = 16
_VERSION = "inter.broker.protocol.version"  # the only setting that names a version; Kafka 4.0 removed it
_OLDEST_WITHOUT = "4.0"
_SIZES = tuple(each.alias for each in BrokersRead.model_fields.values() if each.alias)
Entry = dict[str, Any]


@dataclass
class BrokerAnswers:
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


def ask_brokers(topology: Topology, chosen: Iterable[KafkaCluster], timeout_seconds: float) -> BrokerAnswers:
    """Ask the chosen clusters at the same time; one that does not answer is a failure, and hides nothing of the others."""
    found = BrokerAnswers()
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


def _brokers(alias: str, kafka: Kafka, found: BrokerAnswers) -> None:
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
