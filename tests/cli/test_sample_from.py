"""sample --from: another system than Kafka supplies the load; what it lacks is reported, and its secrets are not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.samples.store import SampleStore
from tests.http_servers import answering
from tests.samples.rows import stored
from tests.spec.trees import write

from .command import Command
from .load import addresses, produce

ONE_ROUND = ("--interval", "1s", "--duration", "0s", "--store", "store")
_TREE = """\
owner: team
defaults:
  clusters: {{metrics: {{prometheus: {{url: "{url}", auth: {{bearer: "${{env:PROMETHEUS_TOKEN}}"}}}}}}}}
clusters:
  a: {{bootstrap_servers: ["{a}"], metrics: {{prometheus: {{labels: {{cluster: dc-a}}}}}}}}
  hub: {{bootstrap_servers: ["hub:9092"]}}
connect:
  w: {{url: "http://127.0.0.1:1", kafka: hub}}
flows:
  logs: {{sources: [a], targets: [hub], topics: {{include: ["logs[.].*"]}}}}
"""


def _prometheus(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
    """Have the Kafka exporter's offsets of three of the four partitions, one of them a lie, for who brings the token."""
    if request.headers["Authorization"] != "Bearer s3cret":
        return 401, json.dumps({"status": "error", "error": "who are you"}).encode()
    asked = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
    if "step" not in asked:
        found = [{"metric": {"__name__": "kafka_topic_partition_current_offset"}, "value": [0, "3"]}]
        return 200, _success("vector", found)
    values = {"0": "70", "1": "NaN", "2": "90"} if "{cluster=" in asked["query"] else {}
    if "timestamp(" in asked["query"]:
        values = dict.fromkeys(values, asked["end"])
    series = [
        {"metric": {"topic": "logs.web", "partition": number}, "values": [[float(asked["end"]), value]]}
        for number, value in values.items()
    ]
    return 200, _success("matrix", series)


def _success(kind: str, result: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()


@pytest.fixture
def prometheus() -> Iterator[str]:
    with answering(_prometheus) as url:
        yield url


def test_samples_come_from_prometheus_and_what_is_missing_is_said(
    mm2mgr: Command, mock_cluster: KafkaAccess, prometheus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_TOKEN", "s3cret")
    write(mm2mgr.tree, x=_TREE.format(a=addresses(mock_cluster)[0], url=prometheus))
    produce(mock_cluster, "logs.web")
    said = mm2mgr("sample", "--from", "prometheus", *ONE_ROUND)
    assert said.lines == ["2 samples of 1 clusters in store"]
    assert "values dropped: 2 not a number" in said.err
    assert "2 of 4 partitions have samples; missing (not zero): partitions of logs.web" in said.err
    rows = stored(SampleStore(mm2mgr.folder / "store")).to_pylist()
    assert [(row["topic"], row["partition"], row["end_offset"]) for row in rows] == [
        ("logs.web", 0, 70),
        ("logs.web", 2, 90),
    ]
    assert {row["source"] for row in rows} == {"prometheus:kafka_topic_partition_current_offset"}
    assert abs(rows[0]["time_ms"] - time.time() * 1000) < 60_000


def test_a_source_that_refuses_is_told_without_the_token(
    mm2mgr: Command, mock_cluster: KafkaAccess, prometheus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_TOKEN", "wr0ng-token")
    write(mm2mgr.tree, x=_TREE.format(a=addresses(mock_cluster)[0], url=prometheus))
    said = mm2mgr("sample", "--from", "prometheus", *ONE_ROUND, code=1)
    assert "Prometheus of 'a'" in said.err
    assert "HTTP 401" in said.err
    assert "check metrics: of these clusters" in said.err
    assert "wr0ng-token" not in said.err


def test_a_cluster_without_such_a_source_is_named_before_anything_is_written(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=_TREE.format(a="127.0.0.1:1", url="http://127.0.0.1:1"))
    said = mm2mgr("sample", "--from", "cruise-control", *ONE_ROUND, code=1)
    assert "cluster 'a' has no `metrics: {cruise_control: …}`" in said.err
    assert not (mm2mgr.folder / "store").exists()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("options", "reason"), [((), "MM2MGR_SPARK=off"), (("--no-spark",), "--no-spark")])
def test_why_a_topic_is_not_read_on_spark_is_said(mm2mgr: Command, options: tuple[str, ...], reason: str) -> None:
    tree = _TREE.format(a="127.0.0.1:1", url="http://127.0.0.1:1")
    write(
        mm2mgr.tree,
        x=tree.replace("metrics: {prometheus: {labels", "metrics: {cruise_control_topic: s, prometheus: {labels"),
    )
    said = mm2mgr("sample", "--from", "cruise-control-topic", *options, *ONE_ROUND, code=1)
    assert f"is read in this process ({reason})" in said.err
