"""What brokers allow, and the topics on them that flows write to: the entries of overrides/brokers.yaml."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mm2mgr.check.needs import knows_names, mirrored_topics
from mm2mgr.errors import Mm2mgrError
from mm2mgr.link import BY_SYSTEM
from mm2mgr.live.questions import PartitionCounts
from mm2mgr.live.rights import BrokerSettings, RecordLimits
from mm2mgr.live.snapshot import Steps
from mm2mgr.spec.models import BrokersRead
from mm2mgr.topology import Flow, KafkaCluster, Topology

_VERSION = "inter.broker.protocol.version"  # the only setting that names a version; Kafka 4.0 removed it
_OLDEST_WITHOUT = "4.0"
_SIZES = tuple(size.alias for size in BrokersRead.model_fields.values() if size.alias)
Entry = dict[str, Any]


@dataclass
class BrokerAnswers:
    """What clusters answered, by alias: entries of brokers, topics, and max.message.bytes of topics.

    They become lines of a file, in which many brokers count as their smallest, so they are no `RunningKafka`.
    """

    brokers: dict[str, Entry] = field(default_factory=dict)
    topics: dict[str, Collection[str]] = field(default_factory=dict)
    limits: dict[str, Mapping[str, int]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def entries(self, topology: Topology, before: Mapping[str, Mapping[str, Any]]) -> dict[str, Entry]:
        """Return the entries of the clusters that answered, with the limits of the flows that write to each."""
        entries = {}
        for alias, entry in self.brokers.items():
            if alias in self.failures:
                continue
            earlier = before.get(alias, {}).get("flows") or {}
            flows: dict[str, int] = {}
            limits = self.limits.get(alias, {})
            for flow in sorted(topology.flows, key=lambda flow: flow.id):
                if flow.target.alias != alias:
                    continue
                topics = self.written(flow)
                sizes = [limits[topic] for topic in topics if topic in limits]
                if flow.source.alias not in self.topics or len(sizes) < len(topics):  # not all could be read
                    sizes += [earlier[flow.id]] if flow.id in earlier else []
                if sizes:
                    flows[flow.id] = min(sizes)
            # What the brokers' own limit says as well needs no line.
            own = {flow_id: size for flow_id, size in flows.items() if size != entry["message.max.bytes"]}
            entries[alias] = entry | ({"flows": own} if own else {})
        return entries

    def written(self, flow: Flow) -> list[str]:
        """Return the topics on the target that a flow writes to and that exist."""
        names = mirrored_topics(flow, self.topics.get(flow.source.alias, ())) if knows_names(flow) else []
        return [name for name in map(flow.remote_topic, names) if name in self.topics.get(flow.target.alias, ())]


def ask_brokers(topology: Topology, chosen: Iterable[KafkaCluster]) -> Steps[BrokerAnswers]:
    """Ask the chosen clusters; one that does not answer is a failure, and hides nothing of the others."""
    answers = BrokerAnswers()
    targets = [cluster.alias for cluster in chosen]
    sources = {flow.source.alias for flow in topology.flows if flow.target.alias in targets}
    aliases = [alias for alias in topology.clusters if alias in sources.union(targets)]
    snapshot = yield [*map(PartitionCounts, aliases), *map(BrokerSettings, targets)]
    for alias in aliases:
        topics = snapshot.get(PartitionCounts(alias))
        configs = snapshot.get(BrokerSettings(alias)) if alias in targets else {}
        error = next((answer for answer in (configs, topics) if isinstance(answer, Mm2mgrError)), None)
        if error and alias in targets:
            answers.failures[alias] = error.message + (f" ({error.hint})" if error.hint else "")
        elif error:
            answers.remarks.append(f"{error.message}; limits of topics that flows from there write to stay as they are")
        if isinstance(topics, Mm2mgrError) or isinstance(configs, Mm2mgrError):
            continue
        answers.topics[alias] = topics.keys()
        if configs:
            answers.brokers[alias], remarks = smallest(alias, configs)
            answers.remarks += remarks
    questions = list(_record_limits(topology, targets, answers))
    snapshot = yield questions
    for question in questions:
        limits = snapshot.get(question)
        if isinstance(limits, Mm2mgrError):
            answers.failures[question.cluster] = limits.message + (f" ({limits.hint})" if limits.hint else "")
            continue
        answers.limits[question.cluster] = limits
        if refused := sorted(set(question.topics) - limits.keys()):
            unread = f"max.message.bytes of {len(refused)} topics cannot be read, such as {refused[0]}"
            answers.remarks.append(f"{question.cluster}: {unread}: this login needs DescribeConfigs on them")
    answers.remarks.sort()
    return answers


def _record_limits(topology: Topology, targets: Iterable[str], answers: BrokerAnswers) -> Iterator[RecordLimits]:
    for alias in targets:
        flows = (flow for flow in topology.flows if flow.target.alias == alias)
        topics = {topic for flow in flows for topic in answers.written(flow)}
        if alias in answers.topics and topics:
            yield RecordLimits(alias, tuple(sorted(topics)))


def smallest(alias: str, configs: Mapping[int, Mapping[str, str]]) -> tuple[Entry, list[str]]:
    """Return the entry of a cluster, and a remark for each setting in which its brokers differ."""
    versions = (_version(settings) for settings in configs.values())
    entry: Entry = {"count": len(configs), "version": min(versions, key=_order)}
    remarks = []
    for key in _SIZES:
        by_broker = {broker: int(settings[key]) for broker, settings in configs.items()}
        entry[key] = min(by_broker.values(), key=lambda size: math.inf if size == BY_SYSTEM else size)
        if len(set(by_broker.values())) > 1:
            sizes = ", ".join(f"{size} on broker {broker}" for broker, size in sorted(by_broker.items()))
            remarks.append(f"{alias}: brokers differ in {key} ({sizes}); the smallest counts")
    return entry, remarks


def _version(configs: Mapping[str, str]) -> str:
    return configs[_VERSION].partition("-")[0] if _VERSION in configs else _OLDEST_WITHOUT


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
