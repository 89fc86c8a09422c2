"""A real Prometheus that scrapes a real broker through the JMX exporter agent: what mm2mgr reads there is what Kafka says.

Needs two programs that no Python package brings: `prometheus` (Debian's package; on PATH or in MM2MGR_PROMETHEUS) and the
jar io.prometheus.jmx:jmx_prometheus_javaagent in MM2MGR_JMX_AGENT.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.records import Producer
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.batch import Batch, Inventory
from mm2mgr.samples.follow import Round, Schedule, follow
from mm2mgr.samples.http import Endpoint, Http, SourceError
from mm2mgr.samples.prometheus import PrometheusReading, PrometheusSource
from mm2mgr.samples.readers import MetricSourceReader
from mm2mgr.samples.store import SampleStore
from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.sandbox.server import free_ports
from tests.samples.rows import stored

PROMETHEUS = os.environ.get("MM2MGR_PROMETHEUS") or shutil.which("prometheus")
AGENT = os.environ.get("MM2MGR_JMX_AGENT")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not PROMETHEUS, reason="no prometheus: install Debian's package or set MM2MGR_PROMETHEUS"),
    pytest.mark.skipif(not AGENT, reason="MM2MGR_JMX_AGENT names no jmx_prometheus_javaagent jar"),
]
# Only these beans, so that a scrape ends within its second on a busy machine.
BARE = "includeObjectNames: ['kafka.log:type=Log,*', 'kafka.server:type=BrokerTopicMetrics,*']\n"
# The shape of the rules that the exporter ships for Kafka, and that Strimzi's examples use.
LOWER_CASE = f"""{BARE}lowercaseOutputName: true
rules:
- pattern: kafka.server<type=BrokerTopicMetrics, name=(.+)PerSec, topic=(.+)><>Count
  name: kafka_server_brokertopicmetrics_$1_total
  type: COUNTER
  labels: {{topic: "$2"}}
- pattern: kafka.log<type=Log, name=(.+), topic=(.+), partition=(.+)><>Value
  name: kafka_log_log_$1
  type: GAUGE
  labels: {{topic: "$2", partition: "$3"}}
"""
DEADLINE_SECONDS = 180.0
T = TypeVar("T")
TOPIC, OTHER = "shop.orders", "idle_topic"


class ExportedBroker(Broker):
    """A broker with the JMX exporter as agent."""

    agent = ""

    def jvm_arguments(self) -> list[str]:
        return [*super().jvm_arguments(), f"-javaagent:{self.agent}"]


@dataclass
class World:
    access: KafkaAccess
    url: str
    prometheus: subprocess.Popen[bytes]

    reading = PrometheusReading({"cluster": "dc1"}, step_seconds=1, rate_window_seconds=10)

    def source(self, http: Http) -> PrometheusSource:
        return PrometheusSource(http, self.reading)

    def inventory(self) -> Inventory:
        with Kafka(self.access) as kafka:
            return Inventory("dc1", kafka.topics(), lambda topic: True)

    def ends(self) -> dict[tuple[str, int], int]:
        places = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1), TopicPartition(OTHER, 0)]
        with Kafka(self.access) as kafka:
            return {(one.topic, one.partition): offsets.end for one, offsets in kafka.offsets(places).items()}

    def write(self, partition: int, count: int) -> None:
        with Producer(self.access, timeout_seconds=10) as producer:
            for _ in range(count):
                producer.send((TOPIC, partition), b"x" * 1000)


@contextmanager
def world(folder: Path, rules: str) -> Iterator[World]:
    export, listen = free_ports(2)
    (folder / "rules.yaml").write_text(rules)
    broker = ExportedBroker("dc1", folder / "broker")
    broker.agent = f"{AGENT}=127.0.0.1:{export}:{folder / 'rules.yaml'}"
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n- job_name: kafka\n  static_configs:\n"
        f"  - {{targets: ['127.0.0.1:{export}'], labels: {{cluster: dc1}}}}\n"
    )
    with ExitStack() as stack:
        stack.callback(broker.kill)
        broker.start()
        access = KafkaAccess("dc1", broker.bootstrap_servers)
        with Kafka(access) as kafka:
            kafka.create_topics({TOPIC: (2, 1, {}), OTHER: (1, 1, {})})
        command = [str(PROMETHEUS), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder}/data"]
        log = stack.enter_context((folder / "prometheus.log").open("wb"))
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{listen}"], stdout=log, stderr=log)
        stack.callback(process.wait, 20)
        stack.callback(process.kill)
        yield World(access, f"http://127.0.0.1:{listen}", process)


def until(found: Callable[[], T | None]) -> T:
    deadline, last = time.monotonic() + DEADLINE_SECONDS, "nothing came"
    while time.monotonic() < deadline:
        try:
            if (answer := found()) is not None:
                return answer
        except SourceError as error:
            last = error.message
        time.sleep(0.2)
    raise AssertionError(last)


def newest(source: PrometheusSource, known: Inventory) -> dict[tuple[str, int], dict[str, object]]:
    (piece,) = source.gather(known, None, time.time_ns() // 1_000_000)
    (batch,) = piece.batches or [None]
    if batch is None:
        return {}
    columns = {name: column for name, column in batch.values().items() if column is not None}
    return {
        place: {name: column[row] for name, column in columns.items()}
        for row, place in enumerate(zip(batch.topics, batch.partitions, strict=True))
    }


@pytest.mark.parametrize(
    ("rules", "metric"),
    [(LOWER_CASE, "kafka_log_log_logendoffset"), (BARE, "kafka_log_Log_Value")],
    ids=["rules as Strimzi's", "no rules"],
)
def test_what_prometheus_tells_is_what_kafka_says(rules: str, metric: str, tmp_path: Path) -> None:
    with world(tmp_path, rules) as here, Http(Endpoint("Prometheus of 'dc1'", here.url, timeout_seconds=10)) as http:
        here.write(0, 300)
        source, known, began = here.source(http), here.inventory(), time.time_ns() // 1_000_000

        def caught_up() -> dict[tuple[str, int], dict[str, object]] | None:
            seen = newest(source, known)
            return seen if {place: row["end_offset"] for place, row in seen.items()} == here.ends() else None

        seen = until(caught_up)
        assert seen[TOPIC, 0]["end_offset"] == 300
        assert seen[TOPIC, 0]["start_offset"] == 0
        assert 300_000 < int(str(seen[TOPIC, 0]["log_bytes"])) < 400_000
        here.write(1, 200)
        until(caught_up)

        def sized() -> object:
            here.write(1, 5)
            return newest(source, known).get((TOPIC, 1), {}).get("record_bytes")

        assert 1000 < float(str(until(sized))) < 1300

        def history() -> list[Batch] | None:
            pieces = source.gather(known, began - 60_000, time.time_ns() // 1_000_000)
            found = [batch for piece in pieces for batch in piece.batches]
            return found if len(found) >= 3 else None

        batches = until(history)
        assert {batch.source for batch in batches} == {f"prometheus:{metric}"}
        times = [batch.time_ms for batch in batches]
        assert len(times) == len(set(times))
        ends = [dict(zip(zip(b.topics, b.partitions, strict=True), b.end_offset or (), strict=True)) for b in batches]
        followed = [each[TOPIC, 1] for each in ends if (TOPIC, 1) in each]
        assert followed == sorted(followed)


def test_rounds_catch_up_after_an_interruption_and_a_dead_prometheus_is_said(tmp_path: Path) -> None:
    with world(tmp_path, LOWER_CASE) as here, ExitStack() as stack:
        endpoint = Endpoint("Prometheus of 'dc1'", here.url, timeout_seconds=5)
        http = stack.enter_context(Http(endpoint))
        store = SampleStore(tmp_path / "store")
        here.write(0, 10)
        until(lambda: newest(here.source(http), here.inventory()) or None)

        def rounds(seconds: float) -> list[str]:
            told: list[Round] = []
            source = PrometheusSource(stack.enter_context(Http(endpoint)), here.reading)
            reader = MetricSourceReader(here.access, lambda topic: topic == TOPIC, source, store)
            follow([reader], Schedule(1.0, seconds), store, told.append)
            return [error.message for each in told for error in each.failures.values()]

        assert rounds(2) == []
        stopped_at = store.newest_of(here.access.alias, "prometheus:", 0) or 0
        until(lambda: True if time.time_ns() // 1_000_000 > stopped_at + 5000 else None)
        assert rounds(0) == []
        rows = stored(store)
        assert len([at for at in set(rows["time_ms"].to_pylist()) if at > stopped_at]) >= 4, "the pause is caught up"
        assert set(rows["topic"].to_pylist()) == {TOPIC}
        places = list(zip(rows["partition"].to_pylist(), rows["time_ms"].to_pylist(), strict=True))
        assert len(places) == len(set(places))
        here.prometheus.kill()
        here.prometheus.wait(20)
        (failure,) = rounds(0)
        assert "no connection" in failure
