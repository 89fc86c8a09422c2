"""Two Connect clusters that mirror numbered records of a source each to one target, and what an outage does to them.

`near` has five workers on the target's own Kafka, `apart` has one on its source's. What arrives is counted by a reader
of committed records that goes on through every outage; what `fleet` forecasts is printed beside it.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka

from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import Runtime
from mm2mgr.sandbox.server import Server
from tests.cli.load import measured

from .command import Tree
from .conftest import WORKER, serving
from .seen import create, statuses, task_configs, topics, until
from .traffic import Traffic

SESSION_SECONDS = int(WORKER["session.timeout.ms"]) / 1000
DELAY_SECONDS = 20.0
FLUSH_SECONDS = int(WORKER["offset.flush.interval.ms"]) / 1000
RECORD_BYTES, RECORDS_PER_SECOND = 1_000, 20.0  # of each topic
HEADROOM = 3.0
"""So many times its traffic is what the catch-up limit of a flow lets through."""
TOPICS = {"near": tuple(f"near{number}" for number in range(5)), "apart": ("apart0", "apart1")}
ALIAS = {"near": "src", "apart": "far"}
"""The source of each flow"""
WORKERS = 5
_SILENT_SECONDS = 10.0
_CAUGHT_UP_SECONDS = 2.0  # this much of the traffic is always on its way


@dataclass(frozen=True)
class Delivery:
    """What the flows promise, and the Kafka version of all servers."""

    version: str
    is_exactly_once: bool = False

    def __str__(self) -> str:
        return f"{self.version}{' exactly once' if self.is_exactly_once else ' at least once'}"


class Arrivals:
    """Counts the records of mirrors as they arrive, for a `with` block; a broker may go meanwhile."""

    def __init__(self, target: KafkaAccess, mirrors: Iterable[str]) -> None:
        self.counts: dict[str, Counter[int]] = {mirror: Counter() for mirror in mirrors}
        self.times: dict[str, list[float]] = {mirror: [] for mirror in self.counts}
        """When records arrived, by mirror"""
        self.repeated: list[tuple[float, str, int]] = []
        """When which record of which mirror arrived once more"""
        self._target = target
        self._next = dict.fromkeys(self.counts, 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._read()

    def _read(self) -> None:
        """Read on until a mirror is silent: a client was seen to wait for ever for a broker that had come back."""
        settings = {"group.id": "nobody", "enable.auto.commit": False, "log_level": 0, "fetch.wait.max.ms": 50}
        settings["reconnect.backoff.max.ms"] = 500
        consumer = confluent_kafka.Consumer({**librdkafka_config(self._target), **settings})
        consumer.assign([confluent_kafka.TopicPartition(mirror, 0, at) for mirror, at in self._next.items()])
        heard = dict.fromkeys(self.counts, time.monotonic())
        while not self._ended.is_set() and time.monotonic() - min(heard.values()) < _SILENT_SECONDS:
            for record in consumer.consume(1_000, 0.25):
                if record.error() is None:
                    mirror, id_, now = record.topic() or "", int(record.value() or 0), time.monotonic()
                    heard[mirror], self._next[mirror] = now, (record.offset() or 0) + 1
                    self.counts[mirror][id_] += 1
                    self.times[mirror].append(now)
                    if self.counts[mirror][id_] > 1:
                        self.repeated.append((now, mirror.partition(".")[2], id_))
        consumer.close()

    def arrived(self, mirrors: Iterable[str]) -> int:
        return sum(len(self.counts[mirror]) for mirror in mirrors)

    def longest_pause(self, mirror: str, since: float) -> tuple[float, float]:
        """Return the last record before the longest pause since then, and the first one after it."""
        times = [since, *(at for at in self.times[mirror] if at >= since)]
        pauses = list(itertools.pairwise(times))
        assert pauses, f"nothing arrives in {mirror}"
        return max(pauses, key=lambda pause: pause[1] - pause[0])


@dataclass(frozen=True)
class Recovery:
    """What an outage was for one flow, in seconds.

    `stopped`: the longest time without a record; `took`: from there until no more than two seconds of traffic were
    missing. `forecast`: what `fleet` says of the latter, `stopped_forecast` of the former (None: it depends on who starts
    the servers again).
    """

    what: str
    flow: str
    stopped: float
    took: float
    forecast: float
    stopped_forecast: float | None = None

    def assert_sane(self) -> None:
        """Hold it to a wide bound only: this machine has other work, too."""
        assert self.took <= 3 * self.forecast + 20
        assert self.forecast <= 3 * self.took + 20

    @property
    def text(self) -> str:
        off = f"{self.forecast - self.took:+.1f} s, {self.forecast / max(self.took, 0.1) - 1:+.0%}"
        stop = "" if self.stopped_forecast is None else f" (fleet: {self.stopped_forecast:.0f} s)"
        return (
            f"{self.what}, {self.flow}: stopped {self.stopped:.1f} s{stop}, then caught up in {self.took:.1f} s;"
            f" fleet forecasts {self.forecast:.1f} s ({off})"
        )


@dataclass
class Looks:
    """What the commands said at one moment, with the seconds that they took."""

    status: dict[str, Any]
    lag: str
    plan: str
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def kinds(self) -> set[str]:
        return {problem["kind"] for problem in self.status["problem_values"]}

    def flow(self, name: str) -> dict[str, Any]:
        """Return what `status` said of a flow."""
        return next(flow for flow in self.status["flows"] if flow["flow"].startswith(f"{name}:"))

    def print(self, when: str) -> None:
        print(f"--- {when}: {', '.join(f'{name} in {took:.0f} s' for name, took in self.seconds.items())}")
        print(f"status: {self.status['health']}; {self.status['failures']}")
        for flow in self.status["flows"]:
            print(
                f"  {flow['flow']} {flow['state']} {flow['health']} lag {flow['lag_records']}; {flow['offsets_note']}"
            )
            for line in (*flow["problems"], *flow["notes"]):
                print(f"    {line}")
        print(f"lag: {self.lag}\nplan: {self.plan}")


@dataclass
class Estate:
    """The servers, the tree that declares them, and the traffic with its arrivals."""

    delivery: Delivery
    src: Broker
    tgt: Broker
    far: Broker
    near: tuple[Worker, ...]
    apart: Worker
    tree: Tree
    store: Path
    traffic: dict[str, Traffic]
    arrivals: Arrivals

    @property
    def groups(self) -> dict[str, tuple[Worker, ...]]:
        return {"near": self.near, "apart": (self.apart,)}

    def mirrors(self, flow: str) -> list[str]:
        return [f"{ALIAS[flow]}.{topic}" for topic in TOPICS[flow]]

    def missing(self, flow: str) -> int:
        """Return how many records have not arrived."""
        return self.traffic[flow].rounds * len(TOPICS[flow]) - self.arrivals.arrived(self.mirrors(flow))

    def is_level(self, flow: str) -> bool:
        return self.missing(flow) < _CAUGHT_UP_SECONDS * RECORDS_PER_SECOND * len(TOPICS[flow])

    def level(self, seconds: float = 240.0) -> dict[str, float]:
        """Wait until both flows are level; return when each was."""
        at: dict[str, float] = {}

        def look() -> dict[str, int]:
            for flow in TOPICS:
                if flow not in at and self.is_level(flow):
                    at[flow] = time.monotonic()
            return {flow: self.missing(flow) for flow in TOPICS}

        until(look, lambda _: len(at) == len(TOPICS), "not level again", seconds)
        return at

    def look(self, *, with_plan: bool = True) -> Looks:
        """Ask `status`, `lag` and `plan`."""
        found, seconds = list[Any](), dict[str, float]()
        commands = {"status": self.tree.json, "lag": self.tree.attempt}
        for command, run in {**commands, **({"plan": self.tree.attempt} if with_plan else {})}.items():
            began = time.monotonic()
            found.append(run(command))
            seconds[command] = time.monotonic() - began
        return Looks(found[0], found[1], found[2] if with_plan else "", seconds)

    def fleet(self, lag_seconds: float, *more: str) -> dict[str, Any]:
        """Return what `fleet` says for a lag, by Connect cluster."""
        waits = ("--session-timeout", f"{SESSION_SECONDS:.0f}s", "--rebalance-delay", f"{DELAY_SECONDS:.0f}s")
        arguments = ("--store", str(self.store), "--lag", f"{max(lag_seconds, 1):.0f}s", *waits, *more)
        found: dict[str, Any] = self.tree.json("fleet", *arguments)["connect"]
        return found

    def forecast(self, flow: str, lag_seconds: float, workers: int) -> float:
        """Return in how many seconds so many workers work off a lag, as `fleet` says."""
        (found,) = self.fleet(lag_seconds, "--workers", str(workers))[flow]["recoveries"]
        return float(found["now"]["seconds"])

    def pause(self, flow: str, since: float, topics_: Iterable[str] = ()) -> tuple[float, float]:
        """Return the longest pause of a flow, or of some topics: the last record before it, the first after it."""
        mirrors = [f"{ALIAS[flow]}.{topic}" for topic in topics_ or TOPICS[flow]]
        pauses = [self.arrivals.longest_pause(mirror, since) for mirror in mirrors]
        return max(pauses, key=lambda pause: pause[1] - pause[0])

    def recoveries(self, what: str, began: float, at: Mapping[str, float]) -> None:
        """Print what an outage that began then was for each flow, beside the forecast; hold it to a wide bound."""
        for flow, level_at in at.items():
            last, first = self.pause(flow, began)
            forecast = self.forecast(flow, first - last, len(self.groups[flow]))
            took = max(0.0, level_at - first)
            recovery = Recovery(f"{what}, {self.delivery}", flow, first - last, took, forecast)
            print(recovery.text)
            recovery.assert_sane()

    def places(self) -> dict[str, str]:
        """Return the worker of each topic of `near`, by what its tasks have."""
        name = "mm2.src.tgt.source.near"
        url = next(worker.url for worker in self.near if worker.running)
        workers = {task["id"]: task["worker_id"] for task in statuses(url)[name]["tasks"]}
        configs = until(lambda: task_configs(url, name), bool, "no tasks")
        return {
            partition.rpartition("-")[0]: workers[number]
            for number, config in enumerate(configs)
            for partition in config["task.assigned.partitions"].split(",")
        }

    def all_run(self, workers_of_near: int = WORKERS) -> bool:
        """Whether each source connector and its tasks run, those of `near` on so many workers."""
        for name, workers in self.groups.items():
            status = statuses(workers[0].url).get(f"mm2.{ALIAS[name]}.tgt.source.{name}", {"tasks": []})
            if [task["state"] for task in status["tasks"]] != ["RUNNING"] * len(TOPICS[name]):
                return False
            if name == "near" and len({task["worker_id"] for task in status["tasks"]}) != workers_of_near:
                return False
        return True

    def task_states(self) -> dict[str, list[tuple[str, str]]]:
        """Return state and worker of the tasks of each source connector, by flow."""
        connectors = {name: statuses(workers[0].url) for name, workers in self.groups.items()}
        return {
            name: [
                (task["state"], task["worker_id"])
                for task in of.get(f"mm2.{ALIAS[name]}.tgt.source.{name}", {}).get("tasks", ())
            ]
            for name, of in connectors.items()
        }

    def complete(self, since: float) -> dict[str, list[int]]:
        """Wait until all that was sent until now has arrived; return which records came twice since then, by topic."""
        sent = {mirror: range(1, self.traffic[flow].rounds + 1) for flow in TOPICS for mirror in self.mirrors(flow)}

        def lost() -> dict[str, int]:
            return {mirror: len(set(ids) - self.arrivals.counts[mirror].keys()) for mirror, ids in sent.items()}

        until(lost, lambda counts: not any(counts.values()), "records lost", 120)
        twice: dict[str, list[int]] = {}
        for at, topic, id_ in self.arrivals.repeated:
            if at >= since:
                twice.setdefault(topic, []).append(id_)
        print(f"all {sum(map(len, sent.values()))} records arrived, twice: {twice or 'none'}")
        assert not (twice and self.delivery.is_exactly_once)
        return twice

    def healthy(self) -> Looks:
        """Wait until `status` names no problem and nothing is unknown."""
        return until(
            lambda: self.look(with_plan=False),
            lambda found: not found.kinds and found.status["health"] in {"ok", "waiting"},
            "still a problem",
            120,
        )

    @contextmanager
    def watching(self, events: Path) -> Iterator[None]:
        """Run `watch` beside; what it did is in the file."""
        with self.tree.start("watch", "--every", "2s", "--first-wait", "4s", "--events", str(events)) as running:
            yield
            running.terminate()
            running.wait(60)


def restarts(events: Path) -> dict[tuple[str, int], list[str]]:
    """Return the causes for which `watch` restarted each task; each of them must have recovered since."""
    found, broken = dict[tuple[str, int], list[str]](), set[tuple[str, int]]()
    for line in events.read_text().splitlines() if events.exists() else []:
        event = json.loads(line)
        if event["event"] != "watch_action":
            continue
        subject = event["problem"]["subject"]
        part = subject["connector"], *subject["tasks"]
        if event["action"] == "restart":
            found.setdefault(part, []).append(event["problem"]["cause"])
            broken.add(part)
        elif event["action"] == "recovered":
            broken.discard(part)
    print(f"watch restarted: {found or 'nothing'}")
    assert not broken, "restarted in vain"
    return found


def end_all(servers: Sequence[Server], *, kill: bool = False) -> None:
    """End servers at the same moment: in order, or with SIGKILL."""
    threads = [threading.Thread(target=server.kill if kill else server.stop) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# One poll is one transaction: what it holds must get through the limit long before the transaction times out.
POLLED_RECORDS = 50
EVENLY = {"quota.window.num": "2"}  # a quota else lets ten seconds' worth through at once
LOOKS_OFTEN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
_ONCE = {"exactly.once.source.support": "enabled", "producer.transaction.timeout.ms": "15000"}


@contextmanager
def serving_estate(folder: Path, runtime: Runtime, delivery: Delivery) -> Iterator[Estate]:
    """Start all, apply the tree, and yield once records of all topics arrive and keep coming."""
    src, tgt, far = (
        Broker(name, folder / name, EVENLY | LOOKS_OFTEN, runtime=runtime) for name in ("src", "tgt", "far")
    )
    with serving([src, tgt, far]):
        settings = {
            **WORKER,
            "rebalance.timeout.ms": "6000",
            "scheduled.rebalance.max.delay.ms": str(int(DELAY_SECONDS * 1000)),
            **(_ONCE if delivery.is_exactly_once else {}),
        }

        def worker(name: str, group: str, kafka: Broker) -> Worker:
            made = Worker(name, folder / name, kafka.bootstrap_servers, settings | {"group.id": group}, runtime=runtime)
            made.heap = "256m"
            return made

        near = tuple(worker(f"near{number}", "near", tgt) for number in range(WORKERS))
        apart = worker("apart0", "apart", far)
        with serving([near[0], apart], list(near[1:])):
            tree = Tree(folder / "tree" / "clusters")
            tree.write(_yaml(delivery, (src, tgt, far), near, apart))
            sources = {
                flow: KafkaAccess(one.name, one.bootstrap_servers) for flow, one in (("near", src), ("apart", far))
            }
            target = KafkaAccess(tgt.name, tgt.bootstrap_servers)
            for flow, source in sources.items():
                create(source, TOPICS[flow])
            tree.run("apply", "--yes", "--wait", "90")
            bytes_per_second = RECORDS_PER_SECOND * RECORD_BYTES
            rates = {(ALIAS[flow], topic, 0): bytes_per_second for flow, names in TOPICS.items() for topic in names}
            store = measured(folder / "store", rates)
            mirrors = {f"{ALIAS[flow]}.{topic}" for flow, names in TOPICS.items() for topic in names}
            with ExitStack() as stack:
                traffic = {
                    flow: stack.enter_context(
                        Traffic(source, TOPICS[flow], RECORDS_PER_SECOND * len(TOPICS[flow]), RECORD_BYTES, 300)
                    )
                    for flow, source in sources.items()
                }
                until(lambda: mirrors <= topics(target).keys(), bool, "no mirrors")
                arrivals = stack.enter_context(Arrivals(target, sorted(mirrors)))
                yield Estate(delivery, src, tgt, far, near, apart, tree, store, traffic, arrivals)


def _yaml(delivery: Delivery, brokers: Sequence[Broker], near: Sequence[Worker], apart: Worker) -> str:
    clusters = "".join(f'  {one.name}: {{bootstrap_servers: ["{one.bootstrap_servers}"]}}\n' for one in brokers)
    once = ", delivery: exactly_once" if delivery.is_exactly_once else ""
    flows = "".join(
        f"  {name}: {{sources: [{ALIAS[name]}], targets: [tgt], run_on: {name}, topics: {{include: ['{name}[0-9]']}}"
        f", tasks: {{max: {len(names)}, capacity: 1MB/s}}"
        f", catch_up: {{limit: {HEADROOM * len(names) * RECORDS_PER_SECOND * RECORD_BYTES / 1000:.0f}kB/s}}"
        f", source_consumer: {{max.poll.records: {POLLED_RECORDS}}}{once}}}\n"
        for name, names in TOPICS.items()
    )
    return f"""\
owner: outages
defaults:
  clusters: {{replication_factor: 1}}
  connect: {{flush_interval: {FLUSH_SECONDS:.0f}s}}
  flows: {{refresh_interval: 2s, checkpoints: false, heartbeats: false}}
clusters:
{clusters}connect:
  near:
    url: [{", ".join(worker.url for worker in near)}]
    kafka: tgt
    workers: {{count: {WORKERS}, tasks_per_worker: 5}}
  apart: {{url: ["{apart.url}"], kafka: far, workers: {{count: 1, tasks_per_worker: 5}}}}
flows:
{flows}"""
