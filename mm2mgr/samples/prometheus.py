"""Samples from Prometheus: offsets per partition where an exporter has them, else rates of topics shared out evenly.

A span of time comes in pieces, oldest first, so that an interrupted catch-up goes on where it stopped. A sample carries
the time of its scrape, so a span that is asked twice gives the same samples again. A new exporter is one entry in a
tuple here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias, TypedDict, cast

from mm2mgr.samples.batch import Gathered, Inventory, Rows, TopicNames
from mm2mgr.samples.http import Http, shorten
from mm2mgr.samples.readers import Opening

Cells = dict[tuple[str, int], dict[int, object]]
"""Values as Prometheus spells them, by topic label, partition (-1: the topic) and milliseconds of the query's step."""
PROMETHEUS_PREFIX = "prometheus:"
_ROWS_PER_ANSWER = 200_000
_POINTS_PER_ANSWER = 1_000  # Prometheus itself refuses more than 11 000 a series
_YEAR_3000_MS = 32_503_680_000_000
_SHARED = "no exporter reports offsets: the rates of topics are shared out evenly over their partitions"
_LATE_MS = 30_000  # a scrape takes a moment to be seen; the rate of a window waits for it


@dataclass(frozen=True)
class Metric:
    """A metric by name, and the labels that tell it from others of the same name."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def select(self, labels: Mapping[str, str], *more: str) -> str:
        """Return the selector of its series that also carry `labels` and match what is written in `more`."""
        return self.name + _matchers({**self.labels, **labels}, *more)


@dataclass(frozen=True)
class OffsetMetrics:
    """Log end and start per topic and partition, exact for each partition; the size of the log where the exporter has
    it."""

    exporter: str
    end: Metric
    start: Metric
    log_bytes: Metric | None = None
    keeps_dots: bool = False
    """Whether topic names are known to keep their dots; the rules of a JMX exporter may do anything to them."""


@dataclass(frozen=True)
class TopicCounters:
    """Bytes and records that brokers took in per topic: counters, one series per broker."""

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
        "JMX exporter, one name per meter",
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


Present: TypeAlias = tuple[OffsetMetrics | None, TopicCounters | None]
"""What one Prometheus has of a cluster; both None: nothing that mm2mgr knows."""


def discovery(labels: Mapping[str, str]) -> str:
    """Return the query that counts the series of every known metric."""
    names = "|".join(known_names())
    # A label `name` in the answer tells the metrics of a JMX exporter without rules apart.
    pattern = _matchers(labels, f"__name__=~{json.dumps(names)}", 'topic!=""')
    return f"count by (__name__, name) ({pattern})"


def known_names() -> list[str]:
    """Return the names of all metrics that mm2mgr can use."""
    ends = [metrics.end.name for metrics in OFFSETS]
    return list(dict.fromkeys([*ends, *(metrics.bytes_in.name for metrics in COUNTERS)]))


def _choose_metrics(present: Iterable[Mapping[str, str]]) -> Present:
    there = list(present)

    def is_there(metric: Metric) -> bool:
        labels_of_metric = {"__name__": metric.name, **metric.labels}
        return any(labels_of_metric.items() <= labels.items() for labels in there)

    offsets = next((metrics for metrics in OFFSETS if is_there(metrics.end)), None)
    counters = next((metrics for metrics in COUNTERS if is_there(metrics.bytes_in)), None)
    return offsets, counters


def _matchers(labels: Mapping[str, str], *more: str) -> str:
    """Return `{name="value",…}`; the values are quoted as PromQL wants it."""
    for name in labels:
        if not re.fullmatch(r"[a-zA-Z_]\w*", name, re.ASCII):
            raise ValueError(f"{name!r} is not a label name of Prometheus")
    return "{" + ",".join([*more, *(f"{name}={json.dumps(value)}" for name, value in labels.items())]) + "}"


def _rate_per_partition(metric: Metric, labels: Mapping[str, str]) -> str:
    """Ask for a gauge per partition. Replicas and doubled exporters fold into the largest: the log end that is
    furthest."""
    return f"max by (topic, partition) ({metric.select(labels)})"


def _scraped_at(metric: Metric, labels: Mapping[str, str]) -> str:
    """Ask when each partition was last scraped: a query's own time would pass one scrape off as several samples."""
    return f"max by (topic, partition) (timestamp({metric.select(labels)}))"


def _rate_per_topic(metric: Metric, labels: Mapping[str, str], window_seconds: int) -> str:
    """Ask for the rate of a counter per topic over all brokers; `rate` sees through restarts."""
    selected = metric.select(labels, 'topic!=""')
    return f"sum by (topic) (rate({selected}[{window_seconds}s]))"


@dataclass(frozen=True)
class PrometheusReading:
    """How to read one cluster from a Prometheus that may hold several: by labels that all its series carry."""

    labels: Mapping[str, str] = field(default_factory=dict)
    step_seconds: float = 30.0
    rate_window_seconds: int = 300
    retention_seconds: float = 15 * 86_400.0


class _Series(TypedDict):
    metric: dict[str, str]
    values: list[tuple[float, str]]  # of a range; one moment has `value`, which is not read


class _Endpoint(Protocol):
    labels: Mapping[str, str]
    rate_window: float
    retention: float


class _Metrics(Protocol):
    prometheus: _Endpoint


def open_source(opening: Opening) -> PrometheusSource:
    """Open the Prometheus that is declared."""
    declared = cast("_Metrics", opening.metrics).prometheus
    reading = PrometheusReading(declared.labels, opening.step_seconds, round(declared.rate_window), declared.retention)
    return PrometheusSource(opening.http(), reading)


@dataclass
class PrometheusSource:
    """One cluster in one Prometheus; remembers which metrics are there."""

    http: Http
    reading: PrometheusReading
    _present: Present | None = None
    _warnings: list[str] = field(default_factory=list)
    source_prefix: ClassVar[str] = PROMETHEUS_PREFIX

    def close(self) -> None:
        """Close the session."""
        self.http.close()

    def gather(self, inventory: Inventory, since_ms: int | None, until_ms: int) -> Iterator[Gathered]:
        """Yield what was scraped after `since_ms` (None: only the newest) until `until_ms`, oldest first.

        SourceError when Prometheus does not answer or has no metric of this cluster that mm2mgr knows.
        """
        offsets, counters = present = self._present or self._discover(until_ms)
        floor = until_ms - round(self.reading.retention_seconds * 1000)
        since = None if since_ms is None else max(since_ms, floor)
        if offsets:
            yield from self._offsets(inventory, present, since, until_ms)
        elif counters:
            yield from self._rates(inventory, counters, since, until_ms)
        self._present = present

    # --- offsets of partitions ----------------------------------------------------------------------------------------

    def _offsets(
        self, inventory: Inventory, present: Present, since_ms: int | None, until_ms: int
    ) -> Iterator[Gathered]:
        step_ms = max(1000, round(self.reading.step_seconds * 1000))
        # The last time is `until_ms`, and none is at or before `since_ms`.
        times = [until_ms] if since_ms is None else list(range(until_ms, since_ms, -step_ms))[::-1]
        for piece in _pieces(inventory, times):
            yield self._offsets_of(inventory, present, piece, step_ms, since_ms)

    def _offsets_of(
        self, inventory: Inventory, present: Present, times: list[int], step_ms: int, since_ms: int | None
    ) -> Gathered:
        (offset_metrics, counters), labels = present, self.reading.labels
        assert offset_metrics is not None
        ends, scraped = (
            self._ask(query(offset_metrics.end, labels), times, step_ms) for query in (_rate_per_partition, _scraped_at)
        )
        starts = self._ask(_rate_per_partition(offset_metrics.start, labels), times, step_ms)
        sizes = (
            self._ask(_rate_per_partition(offset_metrics.log_bytes, labels), times, step_ms)
            if offset_metrics.log_bytes
            else {}
        )
        bytes_per_record = self._record_bytes(counters, times, step_ms)
        names = _names(inventory, ends, offset_metrics.keeps_dots)
        sized = _names(inventory, bytes_per_record, keeps_dots=False)
        record_bytes = {sized.topic(label): size for (label, _), size in bytes_per_record.items()}
        rows = Rows(inventory, PROMETHEUS_PREFIX + offset_metrics.end.name)
        for place, ends_at_place in ends.items():
            topic = names.topic(place[0])
            for time, end in ends_at_place.items() if topic is not None else ():
                at_ms = _milliseconds(scraped.get(place, {}).get(time), time)
                if since_ms is None or at_ms > since_ms:
                    values = {"end_offset": end, "record_bytes": record_bytes.get(topic, {}).get(time)}
                    values |= {"start_offset": starts.get(place, {}).get(time)}
                    values |= {"log_bytes": sizes.get(place, {}).get(time)}
                    rows.add(str(topic), place[1], at_ms, values)
        return self._as_gathered(rows, [*names.notes(), *sized.notes()])

    def _record_bytes(self, counters: TopicCounters | None, times: list[int], step_ms: int) -> Cells:
        """Bytes per record of each topic, from the brokers' counters: as they came over the wire, compressed."""
        if counters is None:
            return {}
        bytes_in, records_in = self._rate_queries(counters)
        return self._ask(f"{bytes_in} / ({records_in} > 0)", times, step_ms)

    # --- rates of topics ----------------------------------------------------------------------------------------------

    def _rates(
        self, inventory: Inventory, counters: TopicCounters, since_ms: int | None, until_ms: int
    ) -> Iterator[Gathered]:
        """Windows lie side by side on a fixed grid, so no moment counts twice."""
        window_ms = self.reading.rate_window_seconds * 1000
        last = (until_ms - _LATE_MS) // window_ms * window_ms
        # A window's samples carry its last millisecond, so the first new one ends after the millisecond behind them.
        first = last if since_ms is None else (since_ms + 1) // window_ms * window_ms + window_ms
        times = list(range(first, last + 1, window_ms))
        for piece in _pieces(inventory, times):
            yield self._rates_of(inventory, counters, piece)

    def _rates_of(self, inventory: Inventory, counters: TopicCounters, times: list[int]) -> Gathered:
        window_ms = self.reading.rate_window_seconds * 1000
        bytes_in, records_in = (self._ask(query, times, window_ms) for query in self._rate_queries(counters))
        names = _names(inventory, bytes_in, keeps_dots=False)
        rows = Rows(inventory, PROMETHEUS_PREFIX + counters.bytes_in.name, window_ms)
        for place, rates_at_place in bytes_in.items():
            topic = names.topic(place[0])
            for time, rate in rates_at_place.items() if topic is not None else ():
                records = records_in.get(place, {}).get(time)
                rows.share_out(str(topic), time - 1, {"bytes_per_second": rate, "records_per_second": records})
        return self._as_gathered(rows, [*names.notes(), _SHARED])

    def _rate_queries(self, counters: TopicCounters) -> tuple[str, str]:
        asked = self.reading.labels, self.reading.rate_window_seconds
        return _rate_per_topic(counters.bytes_in, *asked), _rate_per_topic(counters.records_in, *asked)

    # --- the API ------------------------------------------------------------------------------------------------------

    def _as_gathered(self, rows: Rows, notes: list[str]) -> Gathered:
        notes = [*self._warnings, *notes, *rows.notes()]
        self._warnings = []
        return Gathered(rows.batches(), list(dict.fromkeys(notes)))

    def _discover(self, now_ms: int) -> Present:
        query = {"query": discovery(self.reading.labels), "time": _seconds(now_ms)}
        metrics = _choose_metrics([series["metric"] for series in self._result("/api/v1/query", query, "vector")])
        if metrics == (None, None):
            labels = _matchers(self.reading.labels)
            raise self.http.error(
                f"no series with {labels} of a metric that shows the load of partitions",
                f"check `labels`, and that one of these is scraped: {', '.join(known_names())}",
            )
        return metrics

    def _ask(self, query: str, times: list[int], step_ms: int) -> Cells:
        span = {"start": _seconds(times[0]), "end": _seconds(times[-1]), "step": _seconds(step_ms)}
        cells: Cells = {}
        for series in self._result("/api/v1/query_range", {"query": query, **span}, "matrix"):
            labels = series["metric"]
            partition = _partition(labels.get("partition"))
            if "topic" in labels and partition is not None:
                points: dict[int, object] = {_milliseconds(time, 0): value for time, value in series["values"]}
                cells[labels["topic"], partition] = points
        return cells

    def _result(self, path: str, parameters: Mapping[str, str], kind: str) -> list[_Series]:
        answer = self.http.get(path, parameters)
        body = answer.json if isinstance(answer.json, dict) else {}
        if answer.status != 200 or body.get("status") != "success":
            raise self.http.refusal(answer, f"{body.get('errorType', '')} {body.get('error', '')}".strip())
        # "infos" and "warnings" come with answers that are not whole, such as one of several stores that was silent.
        for key in ("warnings", "infos"):
            messages = body.get(key)
            texts = (
                [message for message in messages[:10] if isinstance(message, str)] if isinstance(messages, list) else []
            )
            self._warnings += [f"Prometheus says: {shorten(text)}" for text in texts]
        data = body.get("data")
        if not isinstance(data, dict) or data.get("resultType") != kind or not _well_formed(data.get("result"), kind):
            raise self.http.error(f"the answer is not a {kind} of Prometheus' HTTP API")
        return cast("list[_Series]", data["result"])


def _names(inventory: Inventory, cells: Cells, keeps_dots: bool) -> TopicNames:
    return TopicNames(inventory, keeps_dots or any("." in topic for topic, _ in cells))


def _pieces(inventory: Inventory, times: list[int]) -> Iterator[list[int]]:
    count = sum(info.partitions for info in inventory.topics.values())
    points = max(1, min(_POINTS_PER_ANSWER, _ROWS_PER_ANSWER // max(1, count)))
    for start in range(0, len(times), points):
        yield times[start : start + points]


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.3f}"


def _milliseconds(seconds: object, otherwise: int) -> int:
    """Read a Unix time as Prometheus writes it; what is none or far off, such as NaN, becomes `otherwise`."""
    try:
        moment = round(float(str(seconds)) * 1000)
    except (ValueError, OverflowError):
        return otherwise
    return moment if 0 < moment < _YEAR_3000_MS else otherwise


def _partition(label: str | None) -> int | None:
    if label is None:
        return -1
    return int(label) if label.isascii() and label.isdecimal() and len(label) < 10 else None


def _well_formed(result: object, kind: str) -> bool:
    key = "values" if kind == "matrix" else "value"
    return isinstance(result, list) and all(
        isinstance(series, dict)
        and isinstance(series.get("metric"), dict)
        and all(isinstance(value, str) for value in series["metric"].values())
        and isinstance(series.get(key), list)
        and (kind == "vector" or all(isinstance(point, list) and len(point) == 2 for point in series[key]))
        for series in result
    )
