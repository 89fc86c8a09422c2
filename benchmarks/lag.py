"""What one look at the lag of 100 000 partitions costs on one core, beside its bound of ten seconds, and how often each broker is asked.

    python benchmarks/lag.py [--looks N] [--topics N] [--partitions N]     # --partitions 0 leaves the real broker out

Ten flows from one Kafka cluster to another, 200 topics of 50 partitions each. Connect answers over HTTP from a process of its own; a fake
client library answers at once, and what reading it costs is left out. All the rest is what `mm2mgr lag` and `mm2mgr status` run: requests
and their parsing, the estate's memory on disk, lag, trends and the report. Reading a Kafka cluster is measured with one real broker,
and added for all partitions of both sides. Exits with 1 above ten seconds, or above two requests per 500 partitions for a broker.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
from confluent_kafka.admin import ConfigEntry

from mm2mgr.cli import prepare_process
from mm2mgr.expand import expand
from mm2mgr.kafka import client as kafka_client
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.live.kafka_state import RunningKafka, WantedLogs, read_kafka
from mm2mgr.live.reach import KafkaReach, Limits
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.operations.status import LagOptions, report
from mm2mgr.problems.status import observe
from mm2mgr.render import render
from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.spec.files import load
from mm2mgr.timing import wait_for

FLOWS, TOPICS, PARTITIONS, BROKERS = 10, 200, 50, 6
BOUND_SECONDS = 10.0
BEHIND = 3  # of 100 partitions


def topic_of(flow: int, number: int) -> str:
    return f"team{flow}.events.{number}"


def tree(url: str) -> str:
    """Return the estate as YAML."""
    flows = "".join(
        f"  team{n}: {{sources: [A], targets: [B], topics: {{include: ['team{n}[.].*']}}, tasks: {{max: 32}}, heartbeats: false, checkpoints: false}}\n"
        for n in range(FLOWS)
    )
    return f"""\
owner: bench
clusters:
  A: {{bootstrap_servers: "a:9092"}}
  B: {{bootstrap_servers: "b:9092"}}
connect:
  cb: {{url: "{url}", kafka: B}}
flows:
{flows}"""


# --- Connect ------------------------------------------------------------------------------------------------------------


def serve(pipe: Connection, core: int, topics: int) -> None:
    """Be a fake Connect cluster until the pipe says something; it first sends its URL."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.fake_connect import FakeConnect, serving

    os.sched_setaffinity(0, {core})
    connect = FakeConnect(source_topics={topic_of(flow, n): PARTITIONS for flow in range(FLOWS) for n in range(topics)})
    with serving(connect) as url, tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tree.yaml")
        file.write_text(tree(url))
        for connector in render(expand(load([file]))):
            connect.add(connector.name, {key: value for key, value in connector.config.items() if key != "name"})
            flow = int(connector.name.rpartition("team")[2])
            for n in range(topics):
                connect.add_offsets(connector.name, topic_of(flow, n), dict.fromkeys(range(PARTITIONS), 999), "A")
        pipe.send(url)
        pipe.recv()


@contextmanager
def connect_cluster(core: int, topics: int) -> Iterator[str]:
    """Serve Connect from another process, on another core where there is one."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, core, topics))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("end")
        process.join()


# --- Kafka ----------------------------------------------------------------------------------------------------------------


@dataclass
class Brokers:
    """Both clusters in the place of the client library: ends of logs that grow, and the requests that each broker would get."""

    topics: int
    grown: int = 0
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    reading: list[float] = field(default_factory=list)
    """CPU seconds of each thread that reads here, which are not those of a look at real clusters"""

    def __call__(self, settings: Mapping[str, Any]) -> FakeClient:
        return FakeClient(self, "A" if "a:9092" in settings["bootstrap.servers"] else "B")


@dataclass
class FakeClient:
    """An admin client whose answers are there at once, in the library's own shapes."""

    brokers: Brokers
    alias: str

    def _topics(self) -> list[str]:
        prefix = "" if self.alias == "A" else "A."
        return [f"{prefix}{topic_of(flow, n)}" for flow in range(FLOWS) for n in range(self.brokers.topics)]

    def _ask(self, leaders: Iterable[int]) -> None:
        self.brokers.requests.update((self.alias, broker) for broker in set(leaders))

    def poll(self, _seconds: float) -> int:
        return 0

    def list_topics(self, timeout: float) -> Any:
        self._ask([0])
        known = SimpleNamespace(partitions=range(PARTITIONS))
        return SimpleNamespace(topics=dict.fromkeys(self._topics(), known), cluster_id=self.alias)

    def describe_topics(self, asked: Any, request_timeout: float) -> Any:
        self._ask([0])
        return {name: _done(SimpleNamespace(topic_id=f"id-{name}", is_internal=False)) for name in asked.topic_names}

    def describe_cluster(self, request_timeout: float) -> Any:
        self._ask([0])
        return _done(SimpleNamespace(cluster_id=f"id-{self.alias}", nodes=range(BROKERS)))

    def describe_configs(self, resources: Any, request_timeout: float) -> Any:
        self._ask([0])
        settings = {"retention.ms": "604800000", "cleanup.policy": "delete"}
        configs = {key: ConfigEntry(key, value) for key, value in settings.items()}
        return {one: _done(configs) for one in resources}

    def offsets_for_times(self, asked: list[Any], timeout: float) -> list[Any]:
        begun = time.thread_time()  # `read_logs` calls it from threads of its own
        self._ask(each.partition % BROKERS for each in asked)
        at_end = asked[0].offset == confluent_kafka.OFFSET_END
        found = [confluent_kafka.TopicPartition(e.topic, e.partition, self._end(e) if at_end else 0) for e in asked]
        self.brokers.reading.append(time.thread_time() - begun)
        return found

    def close(self) -> None:
        pass

    def _end(self, each: Any) -> int:
        behind = hash((each.topic.removeprefix("A."), each.partition)) % 100 < BEHIND
        return 1_000 + (self.brokers.grown if self.alias == "A" and behind else 0)


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def looks(url: str, count: int, topics: int, folder: Path) -> tuple[list[float], int]:
    """Print and return the CPU seconds of each look, and the most requests that a broker got in one."""
    file = folder / "tree.yaml"
    file.write_text(tree(url))
    topology = expand(load([file]))
    connectors, brokers = render(topology), Brokers(topics)
    kafka_client.AdminClient = confluent_kafka.Consumer = brokers  # type: ignore[misc, assignment]

    def read(reach: KafkaReach, wanted: WantedLogs) -> RunningKafka:
        begun = time.thread_time()
        found = read_kafka(reach, wanted)
        brokers.reading.append(time.thread_time() - begun)
        return found

    options = ObserveOptions(read, deadline_seconds=120, memory_file=folder / "memory.json", store=folder / "none")
    spent, most = list[float](), 0
    for number in range(count):
        brokers.grown += 500
        brokers.requests.clear()
        brokers.reading.clear()
        wall, cpu = time.monotonic(), time.process_time()
        seen = wait_for(observe(topology, connectors, options=options))
        found = report(topology, seen, topology.flows, LagOptions(store=folder / "none"))
        rows = found.rows
        spent.append(time.process_time() - cpu - sum(brokers.reading))
        most = max(most, *brokers.requests.values())
        partitions, behind = sum(row.partitions for row in rows), sum(row.records.value or 0 for row in rows)
        print(
            f"  look {number + 1}: {partitions} partitions, {behind:.0f} records behind: {spent[-1]:5.2f} s CPU, "
            f"{time.monotonic() - wall:5.2f} s wall, {max(brokers.requests.values())} requests to the busiest broker"
        )
        assert partitions == FLOWS * topics * PARTITIONS
        assert found.is_known
    print(f"  memory file {(folder / 'memory.json').stat().st_size / 2**20:.1f} MiB")
    return spent, most


def client_seconds(partitions: int) -> float:
    """Print and return the CPU seconds that reading a source and a target of 1 000 partitions takes from one real broker."""
    names = [f"bench-{n}" for n in range(max(1, partitions // PARTITIONS))]
    source, target = WantedLogs(names.__contains__, lambda _: False), WantedLogs(lambda _: False, names.__contains__)
    with tempfile.TemporaryDirectory() as folder, Broker("bench", Path(folder)) as broker:
        access = KafkaAccess("bench", broker.bootstrap_servers)
        with Kafka(access, 120.0) as kafka:
            for name in names:
                kafka.create_topics({name: (PARTITIONS, 1, {})})
        total = 0.0
        for what, wanted in (("source", source), ("target", target)):
            spent = [_cpu_seconds(access, wanted) for _ in range(5)]
            each = statistics.median(spent) / (len(names) * PARTITIONS) * 1_000
            print(f"  reading a {what} from a real broker: {1000 * each:4.0f} ms CPU per 1 000 partitions")
            total += each
    return total


def _cpu_seconds(access: KafkaAccess, wanted: WantedLogs) -> float:
    begun = time.process_time()
    with closing(KafkaReach(access, Limits(kafka_seconds=10.0))) as reach:
        found = read_kafka(reach, wanted)
    assert found.offsets
    assert not found.unread
    return time.process_time() - begun


def main() -> int:
    """Print the figures; return 1 above a bound."""
    parser = argparse.ArgumentParser(description="The cost of one look at the lag.")
    parser.add_argument("--looks", type=int, default=4)
    parser.add_argument("--topics", type=int, default=TOPICS, help=f"of each flow (default: {TOPICS})")
    parser.add_argument("--partitions", type=int, default=4_000, help="partitions on the real broker; 0: no broker")
    given = parser.parse_args()
    prepare_process()  # as every command does
    every = FLOWS * given.topics * PARTITIONS
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    print(f"{every} partitions on a source and as many on a target, {BROKERS} brokers each, one core")
    extra = client_seconds(given.partitions) * every / 1_000 if given.partitions else 0.0
    with connect_cluster(cores[-1], given.topics) as url, tempfile.TemporaryDirectory() as folder:
        spent, most = looks(url, given.looks, given.topics, Path(folder))
    total = statistics.median(spent) + extra
    print(
        f"one look: {statistics.median(spent):.2f} s CPU of mm2mgr + {extra:.2f} s to read both clusters = {total:.2f} s (bound {BOUND_SECONDS:g} s)"
    )
    return int(total > BOUND_SECONDS or most > 2 * every // 500 + 10)


if __name__ == "__main__":
    raise SystemExit(main())
