"""The Prometheus metrics that tell the load of partitions, by who exports them, and the PromQL that asks for them.

It sends no query itself; a new exporter is one entry in a tuple here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Metric:
    """A metric by name, and the labels that tell it from others of the same name."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def select(self, labels: Mapping[str, str]) -> str:
        """Return the selector of its series that also carry `labels`."""
        return self.name + matchers({**self.labels, **labels})


@dataclass(frozen=True)
class OffsetMetrics:
    """Log end and start per topic and partition, exact for each partition; the size of the log where the exporter has it."""

    exporter: str
    end: Metric
    start: Metric
    log_bytes: Metric | None = None
    keeps_dots: bool = False
    """Whether topic names are known to keep their dots; the rules of a JMX exporter may do anything to them."""


@dataclass(frozen=True)
class TopicCounters:
    """Bytes and records that brokers took in per topic: counters, one series a broker."""

    exporter: str
    bytes_in: Metric
    records_in: Metric


# First one found wins: the Kafka exporter asks the partition's leader, a JMX exporter reports every replica.
OFFSETS = (
    OffsetMetrics(
        "Kafka exporter",  # Strimzi's kafkaExporter is the same program
        Metric("kafka_topic_partition_current_offset"),
        Metric("kafka_topic_partition_oldest_offset"),
        keeps_dots=True,
    ),
    OffsetMetrics(
        "JMX exporter, names in lower case",  # its own Kafka example, and Strimzi's
        Metric("kafka_log_log_logendoffset"),
        Metric("kafka_log_log_logstartoffset"),
        Metric("kafka_log_log_size"),
    ),
    OffsetMetrics(
        "JMX exporter, names as in Kafka",
        Metric("kafka_log_Log_LogEndOffset_Value"),
        Metric("kafka_log_Log_LogStartOffset_Value"),
        Metric("kafka_log_Log_Size_Value"),
    ),
    OffsetMetrics(
        "JMX exporter without rules",
        Metric("kafka_log_Log_Value", {"name": "LogEndOffset"}),
        Metric("kafka_log_Log_Value", {"name": "LogStartOffset"}),
        Metric("kafka_log_Log_Value", {"name": "Size"}),
    ),
)
COUNTERS = (
    TopicCounters(
        "JMX exporter, names in lower case",
        Metric("kafka_server_brokertopicmetrics_bytesin_total"),
        Metric("kafka_server_brokertopicmetrics_messagesin_total"),
    ),
    TopicCounters(
        "JMX exporter, one name a meter",
        Metric("kafka_server_brokertopicmetrics_bytesinpersec_count"),
        Metric("kafka_server_brokertopicmetrics_messagesinpersec_count"),
    ),
    TopicCounters(
        "JMX exporter, names as in Kafka",
        Metric("kafka_server_BrokerTopicMetrics_BytesInPerSec_Count"),
        Metric("kafka_server_BrokerTopicMetrics_MessagesInPerSec_Count"),
    ),
    TopicCounters(
        "JMX exporter without rules",
        Metric("kafka_server_BrokerTopicMetrics_Count", {"name": "BytesInPerSec"}),
        Metric("kafka_server_BrokerTopicMetrics_Count", {"name": "MessagesInPerSec"}),
    ),
)


@dataclass(frozen=True)
class Present:
    """What one Prometheus has of a cluster; both None: nothing that mm2mgr knows."""

    offsets: OffsetMetrics | None
    counters: TopicCounters | None


def discovery(labels: Mapping[str, str]) -> str:
    """Return the query that counts the series of every known metric."""
    names = "|".join(known_names())
    # A label `name` in the answer tells the metrics of a JMX exporter without rules apart.
    pattern = matchers(labels, f"__name__=~{json.dumps(names)}", 'topic!=""')
    return f"count by (__name__, name) ({pattern})"


def known_names() -> list[str]:
    """Return the names of all metrics that mm2mgr can use."""
    ends = [each.end.name for each in OFFSETS]
    return list(dict.fromkeys([*ends, *(each.bytes_in.name for each in COUNTERS)]))


def present(found: Iterable[Mapping[str, str]]) -> Present:
    """Choose from the label sets of the answer to `discovery`: the first known of each kind."""
    there = list(found)

    def is_there(metric: Metric) -> bool:
        wanted = {"__name__": metric.name, **metric.labels}
        return any(wanted.items() <= labels.items() for labels in there)

    offsets = next((each for each in OFFSETS if is_there(each.end)), None)
    counters = next((each for each in COUNTERS if is_there(each.bytes_in)), None)
    return Present(offsets, counters)


def matchers(labels: Mapping[str, str], *more: str) -> str:
    """Return `{name="value",…}`; the values are quoted as PromQL wants it."""
    for name in labels:
        if not re.fullmatch(r"[a-zA-Z_]\w*", name, re.ASCII):
            raise ValueError(f"{name!r} is no label name of Prometheus")
    return "{" + ",".join([*more, *(f"{name}={json.dumps(value)}" for name, value in labels.items())]) + "}"


def per_partition(metric: Metric, labels: Mapping[str, str]) -> str:
    """Ask for a gauge per partition. Replicas and doubled exporters fold into the largest: the log end that is furthest."""
    return f"max by (topic, partition) ({metric.select(labels)})"


def scraped_at(metric: Metric, labels: Mapping[str, str]) -> str:
    """Ask when each partition was last scraped: a query's own time would pass one scrape off as several samples."""
    return f"max by (topic, partition) (timestamp({metric.select(labels)}))"


def per_topic_rate(metric: Metric, labels: Mapping[str, str], window_seconds: int) -> str:
    """Ask for the rate of a counter per topic over all brokers; `rate` sees through restarts."""
    selected = metric.name + matchers({**metric.labels, **labels}, 'topic!=""')
    return f"sum by (topic) (rate({selected}[{window_seconds}s]))"
