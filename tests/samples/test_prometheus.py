"""Prometheus as a source, over canned answers: what becomes a sample, what is refused with a note, and how far a catch-up goes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from requests import PreparedRequest
from responses import RequestsMock

from mm2mgr.kafka.client import TopicInfo
from mm2mgr.samples.batch import Batch, Doubts, Gathered, Inventory, TopicNames
from mm2mgr.samples.http import Endpoint, Http, SourceError
from mm2mgr.samples.prometheus import PrometheusReading, PrometheusSource

URL = "http://prometheus.test:9090"
NOW = 1_795_255_200_000
EXPORTER = {"__name__": "kafka_topic_partition_current_offset"}
JMX = {"__name__": "kafka_log_log_logendoffset"}
COUNTER = {"__name__": "kafka_server_brokertopicmetrics_bytesin_total"}
Series = tuple[dict[str, str], list[tuple[float, str]]]


def inventory(alias: str = "dc1", **partitions: int) -> Inventory:
    topics = {name.replace("__", "."): TopicInfo(count, f"id-{name}", False) for name, count in partitions.items()}
    return Inventory(alias, topics, lambda topic: True)


class Prometheus:
    """Answers from a table of raw scrapes: (metric part of the query, labels) → (time in seconds, value)."""

    def __init__(self, found: list[Mapping[str, str]], answer: Callable[[str, list[float]], list[Series]]) -> None:
        self.found, self.answer = found, answer
        self.queries: list[dict[str, str]] = []
        self.more: dict[str, Any] = {}

    def __call__(self, request: PreparedRequest) -> tuple[int, dict[str, str], str]:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(str(request.url)).query).items()}
        if "step" not in asked:
            result = [{"metric": dict(each), "value": [0, "1"]} for each in self.found]
            return 200, {}, self._body("vector", result)
        self.queries.append(asked)
        start, end, step = (float(asked[name]) for name in ("start", "end", "step"))
        times = [round(start + number * step, 3) for number in range(int((end - start) / step + 1e-6) + 1)]
        series = self.answer(asked["query"], times)
        return 200, {}, self._body("matrix", [{"metric": labels, "values": values} for labels, values in series])

    def _body(self, kind: str, result: list[Any]) -> str:
        return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **self.more})


@pytest.fixture
def http(wire: RequestsMock) -> Iterator[Http]:
    with Http(Endpoint("Prometheus of 'dc1'", URL)) as opened:
        yield opened


def serve(wire: RequestsMock, prometheus: Prometheus) -> Prometheus:
    for path in ("/api/v1/query", "/api/v1/query_range"):
        wire.add_callback(wire.GET, URL + path, prometheus)
    return prometheus


def gathered(
    http: Http, known: Inventory, since_ms: int | None = None, reading: PrometheusReading | None = None
) -> Gathered:
    pieces = list(PrometheusSource(http, reading or PrometheusReading()).gather(known, since_ms, NOW))
    return Gathered([each for piece in pieces for each in piece.batches], [n for piece in pieces for n in piece.notes])


def cells(batches: list[Batch], column: str) -> dict[tuple[str, int, int], Any]:
    return {
        (topic, partition, batch.time_ms): value
        for batch in batches
        for topic, partition, value in zip(batch.topics, batch.partitions, batch.values()[column] or (), strict=True)
    }


def one_topic(values: Mapping[str, str], topic: str = "logs") -> Callable[[str, list[float]], list[Series]]:
    """Answer every query about partition 0 of a topic with the value of the metric that it names."""

    def answer(query: str, times: list[float]) -> list[Series]:
        if "timestamp(" in query:
            return [({"topic": topic, "partition": "0"}, [(at, str(at - 4)) for at in times])]
        found = next((value for name, value in values.items() if name in query), None)
        labels = {"topic": topic} | ({} if "sum by (topic)" in query else {"partition": "0"})
        return [(labels, [(at, found) for at in times])] if found is not None else []

    return answer


def test_offsets_of_the_kafka_exporter_become_samples_at_the_time_of_their_scrape(
    http: Http, wire: RequestsMock
) -> None:
    values = {"kafka_topic_partition_current_offset": "1200", "kafka_topic_partition_oldest_offset": "200"}
    serve(wire, Prometheus([EXPORTER], one_topic(values)))
    (batch,) = gathered(http, inventory(logs=1)).batches
    assert batch.source == "prometheus:kafka_topic_partition_current_offset"
    assert (batch.cluster, batch.time_ms, batch.resolution_ms) == ("dc1", NOW - 4000, 0)
    assert (batch.end_offset, batch.start_offset, batch.topic_ids) == ([1200], [200], ["id-logs"])


def test_jmx_metrics_tell_log_size_and_bytes_per_record_too(http: Http, wire: RequestsMock) -> None:
    values = {"bytesin_total": "512.5", "kafka_log_log_logendoffset": "10", "kafka_log_log_size": "99"}
    serve(wire, Prometheus([JMX, COUNTER], one_topic(values)))
    (batch,) = gathered(http, inventory(logs=1)).batches
    assert (batch.end_offset, batch.start_offset, batch.log_bytes, batch.record_bytes) == ([10], None, [99], [512.5])


def test_the_kafka_exporter_is_preferred_and_a_jmx_exporter_without_rules_is_understood(
    http: Http, wire: RequestsMock
) -> None:
    bare = {"__name__": "kafka_log_Log_Value", "name": "LogEndOffset"}
    prometheus = serve(wire, Prometheus([JMX, EXPORTER, bare], one_topic({"current_offset": "1"})))
    assert gathered(http, inventory(logs=1)).batches[0].source.endswith("current_offset")
    prometheus.found, prometheus.answer = [bare], one_topic({'kafka_log_Log_Value{name="LogEndOffset"': "7"})
    assert gathered(http, inventory(logs=1)).batches[0].end_offset == [7]


def test_only_series_with_the_labels_of_the_cluster_are_asked_for(http: Http, wire: RequestsMock) -> None:
    prometheus = serve(wire, Prometheus([EXPORTER], one_topic({"current_offset": "1"})))
    gathered(http, inventory(logs=1), reading=PrometheusReading({"cluster": 'd"c\\1', "env": "prod"}))
    assert all('{cluster="d\\"c\\\\1",env="prod"}' in asked["query"] for asked in prometheus.queries)


def test_rates_of_topics_are_shared_out_and_lie_on_a_fixed_grid(http: Http, wire: RequestsMock) -> None:
    serve(wire, Prometheus([COUNTER], one_topic({"bytesin": "800", "messagesin": "40"})))
    first = gathered(http, inventory(logs=4))
    (batch,) = first.batches
    assert (batch.resolution_ms, batch.time_ms % 300_000) == (300_000, 299_999)
    assert (batch.bytes_per_second, batch.records_per_second, batch.end_offset) == ([200.0] * 4, [10.0] * 4, None)
    assert any("shared out evenly" in note for note in first.notes)
    again = gathered(http, inventory(logs=4), since_ms=batch.time_ms - 900_000).batches
    assert [each.time_ms for each in again] == [batch.time_ms - back for back in (600_000, 300_000, 0)]
    for known in (batch.time_ms, batch.time_ms + 1):  # as it is written, and as stores of before have it
        assert gathered(http, inventory(logs=4), since_ms=known).batches == []


def scrapes(every: float, rate: float) -> Callable[[str, list[float]], list[Series]]:
    """A partition scraped `every` seconds whose end grows by `rate`: what any query time sees is the scrape before it."""

    def answer(query: str, times: list[float]) -> list[Series]:
        seen = [(at, math.floor(at / every) * every) for at in times]
        if "timestamp(" in query:
            values = [(at, str(last)) for at, last in seen]
        elif "current_offset" in query:
            values = [(at, str(round((last - NOW / 1000 + 100_000) * rate))) for at, last in seen]
        else:
            return []
        return [({"topic": "logs", "partition": "0"}, values)]

    return answer


@given(
    every=st.sampled_from([5, 15, 60]),
    step=st.sampled_from([7, 30, 60]),
    cuts=st.lists(st.integers(1, 3599), max_size=3),
)
def test_however_a_catch_up_is_cut_each_scrape_counts_once_and_rates_are_true(
    every: int, step: int, cuts: list[int]
) -> None:
    reading = PrometheusReading(step_seconds=step)
    samples: dict[int, int] = {}
    with RequestsMock() as wire, Http(Endpoint("p", URL)) as http:
        serve(wire, Prometheus([EXPORTER], scrapes(every, rate=50)))
        source, since = PrometheusSource(http, reading), NOW - 3_600_000
        for until in [*sorted({NOW - cut * 1000 for cut in cuts}), NOW]:
            for piece in source.gather(inventory(logs=1), since, until):
                for (_, _, at), end in cells(piece.batches, "end_offset").items():
                    assert at not in samples
                    samples[at] = end
                    since = max(since, at)
    ordered = sorted(samples.items())
    assert ordered[-1][0] == NOW // (every * 1000) * every * 1000
    for (t0, end0), (t1, end1) in pairwise(ordered):
        assert (end1 - end0) / (t1 - t0) * 1000 == pytest.approx(50)


def test_a_catch_up_goes_no_further_back_than_the_retention(http: Http, wire: RequestsMock) -> None:
    prometheus = serve(wire, Prometheus([EXPORTER], scrapes(30, rate=1)))
    gathered(http, inventory(logs=1), since_ms=NOW - 90 * 86_400_000, reading=PrometheusReading(retention_seconds=3600))
    assert min(float(asked["start"]) for asked in prometheus.queries) > NOW / 1000 - 3600
    points = [(float(asked["end"]) - float(asked["start"])) / float(asked["step"]) + 1 for asked in prometheus.queries]
    assert max(points) <= 11_000


def test_a_large_cluster_is_asked_in_pieces(http: Http, wire: RequestsMock) -> None:
    prometheus = serve(wire, Prometheus([EXPORTER], scrapes(30, rate=1)))
    pieces = PrometheusSource(http, PrometheusReading(step_seconds=30)).gather(
        inventory(logs=50_000), NOW - 600_000, NOW
    )
    first = next(pieces)
    asked = [
        one
        for one in prometheus.queries
        if one["query"].startswith("max by (topic, partition) (kafka_topic_partition_c")
    ]
    assert len(asked) == 1
    assert float(asked[0]["end"]) < NOW / 1000 - 300, "the oldest piece comes first, so a break loses nothing"
    assert len(first.batches) == 4


# --- a source that lies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", ["-5", "NaN", "+Inf", "-Inf", "1e18", "", "many"])
def test_a_lie_is_dropped_and_counted(lie: str, http: Http, wire: RequestsMock) -> None:
    def answer(query: str, times: list[float]) -> list[Series]:
        if "timestamp(" in query or "current_offset" not in query:
            return []
        return [({"topic": "logs", "partition": p}, [(times[0], v)]) for p, v in (("0", "5"), ("1", lie))]

    serve(wire, Prometheus([EXPORTER], answer))
    found = gathered(http, inventory(logs=2))
    assert cells(found.batches, "end_offset") == {("logs", 0, NOW): 5}
    assert any("1 values dropped" in note for note in found.notes)
    assert any("1 of 2 partitions have samples" in note for note in found.notes)


@given(st.one_of(st.floats(), st.integers(), st.text(max_size=5), st.none(), st.booleans(), st.lists(st.integers())))
def test_whatever_comes_is_a_number_within_bounds_or_counted(value: object) -> None:
    doubts = Doubts()
    number = doubts.number(value, 1e12)
    assert (number is None) == (doubts.total() == 1)
    assert number is None or 0 <= number <= 1e12


def test_half_an_answer_says_what_is_missing(http: Http, wire: RequestsMock) -> None:
    prometheus = serve(wire, Prometheus([EXPORTER], one_topic({"current_offset": "1"})))
    prometheus.more = {"warnings": ["store 2 did not answer"], "infos": ["PromQL info: metric might not be a counter"]}
    notes = gathered(http, inventory(logs=1, payments=3)).notes
    assert "Prometheus says: store 2 did not answer" in notes
    assert any("PromQL info" in note for note in notes)
    assert "1 of 4 partitions have samples; missing (not zero): partitions of payments" in notes


def test_series_of_another_cluster_and_of_partitions_that_are_none_are_left_out_and_counted(
    http: Http, wire: RequestsMock
) -> None:
    def answer(query: str, times: list[float]) -> list[Series]:
        places = [("logs", "0"), ("logs", "7"), ("logs", "x"), ("elsewhere", "0")]
        return [({"topic": topic, "partition": number}, [(times[0], "3")]) for topic, number in places]

    serve(wire, Prometheus([EXPORTER], answer))
    found = gathered(http, inventory(logs=1))
    assert [(topic, number) for topic, number, _ in cells(found.batches, "end_offset")] == [("logs", 0)]
    assert any("elsewhere" in note for note in found.notes)
    assert any("a partition that its topic does not have" in note for note in found.notes)


# --- names ------------------------------------------------------------------------------------------------------------


def test_underscores_are_mapped_back_through_the_clusters_topics(http: Http, wire: RequestsMock) -> None:
    serve(wire, Prometheus([JMX], one_topic({"logendoffset": "3"}, topic="shop_orders")))
    assert list(cells(gathered(http, inventory(shop__orders=1)).batches, "end_offset")) == [
        ("shop.orders", 0, NOW - 4000)
    ]


def test_a_name_that_fits_two_topics_is_refused_by_name(http: Http, wire: RequestsMock) -> None:
    serve(wire, Prometheus([JMX], one_topic({"logendoffset": "3"}, topic="shop_orders")))
    found = gathered(http, inventory(shop__orders=1, shop_orders=1))
    assert found.batches == []
    assert any(
        "ambiguous label “shop_orders”" in note and "shop.orders and shop_orders" in note for note in found.notes
    )


def test_a_source_that_keeps_dots_is_taken_at_its_word() -> None:
    known = inventory(shop__orders=1, shop_orders=1)
    kept, flat = TopicNames(known, keeps_dots=True), TopicNames(known, keeps_dots=False)
    assert [kept.topic(label) for label in ("shop.orders", "shop_orders", "gone")] == [
        "shop.orders",
        "shop_orders",
        None,
    ]
    assert flat.topic("shop_orders") is None
    assert kept.unknown == {"gone"}


# --- a source that does not answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, '{"status":"success","data":{"resultType":"vector","result":[', "HTTP 200"),
        (200, "<html>login</html>", "login"),
        (200, '{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}', "is not a vector"),
        (200, '{"status":"success","data":{"resultType":"vector","result":[{"metric":4}]}}', "is not a vector"),
        (422, '{"status":"error","errorType":"execution","error":"too many samples"}', "execution too many samples"),
        (503, "", "HTTP 503"),
        (401, "no", "HTTP 401"),
        (302, "", "HTTP 302"),
    ],
)
def test_an_answer_that_is_none_is_an_error_that_names_the_source(
    status: int, body: str, told: str, http: Http, wire: RequestsMock
) -> None:
    wire.get(URL + "/api/v1/query", status=status, body=body)
    with pytest.raises(SourceError, match="Prometheus of 'dc1'") as caught:
        gathered(http, inventory(logs=1))
    assert told in caught.value.message


def test_without_a_known_metric_the_names_looked_for_are_said(http: Http, wire: RequestsMock) -> None:
    serve(wire, Prometheus([], one_topic({})))
    with pytest.raises(SourceError, match="shows the load of partitions") as caught:
        gathered(http, inventory(logs=1), reading=PrometheusReading({"cluster": "dc9"}))
    assert 'cluster="dc9"' in caught.value.message
    assert "kafka_topic_partition_current_offset" in str(caught.value.hint)


def test_credentials_are_sent_and_never_shown(wire: RequestsMock) -> None:
    wire.get(URL + "/api/v1/query", status=403, body="no")
    secret = Endpoint("Prometheus of 'dc1'", URL, basic=("me", "hunter2"))
    bearer = replace(secret, basic=None, bearer="tok-123\n")
    for endpoint in (secret, bearer):
        with Http(endpoint) as http, pytest.raises(SourceError) as caught:
            gathered(http, inventory(logs=1))
        shown = f"{endpoint!r} {caught.value} {caught.value.hint}"
        assert not any(word in shown for word in ("hunter2", "tok-123"))
    sent = [str(request.headers["Authorization"]) for request, _ in wire.calls]
    assert sent == ["Basic bWU6aHVudGVyMg==", "Bearer tok-123"]
    with pytest.raises(SourceError, match="bearer token") as refused:
        Http(replace(bearer, bearer="töken"))
    assert "töken" not in str(refused.value)
