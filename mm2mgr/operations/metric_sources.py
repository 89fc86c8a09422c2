"""How metric sources (Prometheus, Cruise Control) are reached for each cluster of the tree, and with which credentials.

It knows no format of any source.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import cache_folder
from mm2mgr.samples.schema import CRUISE_CONTROL_TOPIC

if TYPE_CHECKING:
    from mm2mgr.samples.batch import Gathered, Inventory
    from mm2mgr.samples.follow import Reader
    from mm2mgr.samples.metric_sources import Http, Source
    from mm2mgr.samples.store import SampleStore
    from mm2mgr.spec.models import Metrics, MetricsEndpoint
    from mm2mgr.topology import KafkaCluster

Wanted = Mapping[str, tuple["KafkaCluster", Callable[[str], bool]]]
"""The clusters to sample by alias, each with the topics that are wanted."""


@dataclass(frozen=True)
class MetricSource:
    """A kind of source (prometheus, cruise-control or cruise-control-topic), the seconds between samples, and how much of the past a first run takes."""

    kind: str
    step_seconds: float
    back_seconds: float = 0.0


def metric_source_readers(asked: MetricSource, clusters: Wanted, store: SampleStore) -> list[Reader]:
    """Return one reader a cluster; Mm2mgrError when a cluster declares no such source."""
    from mm2mgr.endpoints import kafka_access
    from mm2mgr.samples.metric_sources import MetricSourceReader
    from mm2mgr.samples.schema import log_file_of

    spark = _Spark(log_file_of(store.store, cache_folder))
    return [
        MetricSourceReader(kafka_access(one), accepts, _source(asked, one, spark), store, asked.back_seconds)
        for one, accepts in clusters.values()
    ]


def _source(asked: MetricSource, cluster: KafkaCluster, spark: _Spark) -> Source:
    from mm2mgr.samples.cruise_control import CruiseControlSource
    from mm2mgr.samples.prometheus import PrometheusReading, PrometheusSource

    metrics, kind = cluster.model.metrics, asked.kind
    if metrics and kind == "prometheus" and (declared := metrics.prometheus):
        http = _http(cluster, declared, "Prometheus")
        reading = PrometheusReading(
            declared.labels, asked.step_seconds, round(declared.rate_window), declared.retention
        )
        return PrometheusSource(http, reading)
    if metrics and kind == "cruise-control" and metrics.cruise_control:
        return CruiseControlSource(_http(cluster, metrics.cruise_control, "Cruise Control"))
    if metrics and kind == "cruise-control-topic" and metrics.cruise_control_topic:
        return _topic(cluster, metrics, spark)
    raise Mm2mgrError(
        f"cluster '{cluster.alias}' has no `metrics: {{{kind.replace('-', '_')}: …}}`, and so no such source",
        hint="declare it for the cluster or in defaults: clusters:, or leave the cluster out with --cluster",
    )


def _http(cluster: KafkaCluster, asked: MetricsEndpoint, what: str) -> Http:
    from mm2mgr.kafka.access import resolve
    from mm2mgr.samples.metric_sources import Endpoint, Http

    if asked.url is None:
        raise Mm2mgrError(f"cluster '{cluster.alias}': {what} has no `url`", hint="write it under `metrics:`")
    owner, auth, tls = f"cluster '{cluster.alias}', auth of {what}", asked.auth, asked.tls
    basic = bearer = None
    if auth and auth.basic:
        basic = (resolve(owner, auth.basic.username), resolve(owner, auth.basic.password))
    elif auth and auth.bearer:
        bearer = resolve(owner, auth.bearer)
    files = (tls.ca, tls.certificate, tls.key) if tls else (None, None, None)
    password = (
        resolve(f"cluster '{cluster.alias}', tls of {what}", tls.key_password) if tls and tls.key_password else None
    )
    return Http(Endpoint(f"{what} of '{cluster.alias}'", asked.url, basic, bearer, *files, password))


def _topic(cluster: KafkaCluster, declared: Metrics, spark: _Spark) -> Source:
    from mm2mgr.endpoints import kafka_access
    from mm2mgr.kafka.access import librdkafka_config

    settings = librdkafka_config(kafka_access(cluster))
    interval_ms = round(declared.cruise_control_interval * 1000)
    return _TopicSource(spark, settings, str(declared.cruise_control_topic), interval_ms)


@dataclass
class _Spark:
    """One session for all clusters, started when the first needs it; its type is PySpark's, which only throughput imports."""

    log_file: Path | None = None
    running: Any = None
    starting: threading.Lock = field(default_factory=threading.Lock)

    def session(self) -> Any:
        with self.starting:
            if self.running is None:
                from mm2mgr.sandbox.java import find_java, spark_java_home

                home = spark_java_home(find_java())
                from mm2mgr.throughput.session import session

                self.running = session(home, self.log_file)
            return self.running

    def close(self) -> None:
        with self.starting:
            if self.running is not None:
                from mm2mgr.throughput.session import end

                end(self.running)
                self.running = None


@dataclass(frozen=True)
class _TopicSource:
    """Cruise Control's sample topic on one cluster, decoded by Spark."""

    spark: _Spark
    settings: Mapping[str, str] = field(repr=False)
    topic: str
    interval_ms: int
    source_prefix: str = CRUISE_CONTROL_TOPIC
    given: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """Whose samples of the newest moment were given: that moment is read again, since they come in several batches."""

    def close(self) -> None:
        """End Spark, which the clusters share."""
        self.spark.close()

    def gather(self, inventory: Inventory, since_ms: int | None, until_ms: int) -> Iterator[Gathered]:
        """Yield the samples from `since_ms` on (None: all that the topic has); those younger than `until_ms` come too."""
        from mm2mgr.samples.batch import Gathered, Rows, TopicNames
        from mm2mgr.throughput.cruise_topic import topic_samples

        if since_ms is None or since_ms < min(self.given, default=0):  # what was given since then was not stored
            self.given.clear()
        for found in topic_samples(self.spark.session(), self.settings, self.topic, since_ms):
            rows, names = (
                Rows(inventory, CRUISE_CONTROL_TOPIC, self.interval_ms),
                TopicNames(inventory, keeps_dots=True),
            )
            values = ("bytes_per_second", "records_per_second", "log_bytes")
            places = zip(*(found.columns[name] for name in ("topic", "partition", "time_ms", *values)), strict=True)
            for label, partition, time_ms, *row in places:
                topic = names.topic(label)
                if topic is not None and (topic, partition) not in self.given.get(time_ms, ()):
                    rows.add(topic, partition, time_ms, dict(zip(values, row, strict=True)))
                    self.given.setdefault(time_ms, set()).add((topic, partition))
            for old in sorted(self.given)[:-1]:
                del self.given[old]
            skipped = [f"{count} records skipped: {reason}" for reason, count in sorted(found.skipped.items())]
            yield Gathered(rows.batches(), [*skipped, *names.notes(), *rows.notes()])
