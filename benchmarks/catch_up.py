"""How long real workers take to work off a backlog, beside what `fleet` forecasts from one of them.

    python benchmarks/catch_up.py [--workers 1 2 3] [--megabytes 240] [--traffic 3] [--cpu 0.25]

Each worker gets a share of a processor by a control group of its own, so that a second one brings as much as a second machine would.
The connector is paused, a backlog is written, it is resumed, and traffic goes on until nothing is behind. One worker without traffic
shows what a worker can move; every other time is forecast from that. Exits with 1 when a forecast is off by more than a fifth.
Needs Linux and the right to make control groups (root).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from mm2mgr.kafka.access import KafkaAccess, librdkafka_config  # noqa: E402  # the repository must be on the path first
from mm2mgr.partitions import TopicPartition  # noqa: E402
from mm2mgr.sizing.fleet import Buffers, ConnectLoad, FlowRun, WorkerLimits  # noqa: E402
from mm2mgr.sizing.load import Load  # noqa: E402
from mm2mgr.sizing.recovery import recovery  # noqa: E402
from tests.live.pair import Pair, serving_pair  # noqa: E402
from tests.live.seen import connector_url, create, rest, statuses, until  # noqa: E402
from tests.sizing.traffic_measure import latest  # noqa: E402

TOPIC, CONNECTOR = "metrics", "metrics"
PARTITIONS = TASKS = 12
RECORD_BYTES = 1_000
WITHIN = 0.2
_CAUGHT_UP_SECONDS = 2.0  # this much of the traffic is always on its way
_PERIOD_MICROSECONDS = 20_000


@dataclass(frozen=True)
class Drained:
    """What was behind when the first record moved, and how long it took until nothing was."""

    workers: int
    behind_bytes: float
    seconds: float

    @property
    def bytes_per_second(self) -> float:
        return self.behind_bytes / self.seconds


def forecast(one: Drained, workers: int, traffic: float, behind_bytes: float) -> float | None:
    """Return the seconds that the model forecasts for so many workers; None: they never catch up.

    `one` is what a single worker moved without traffic: it has TASKS tasks, so this is its limit, whatever a task may carry.
    """
    flow = FlowRun(
        *(CONNECTOR, "src->tgt", Load([traffic / PARTITIONS] * PARTITIONS, one.bytes_per_second)),
        *(TASKS, TASKS, one.bytes_per_second, Buffers(0, 0, 0)),
    )
    load = ConnectLoad("pair", WorkerLimits(tasks=1), (flow,))
    return recovery(load, workers, behind_bytes / traffic).now.seconds


class Link:
    """The topic at the source and its mirror, and the connector between them."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self._source, self._target = (
            AdminClient({**librdkafka_config(end), "log_level": 0}) for end in (pair.source, pair.target)
        )

    def create(self) -> None:
        """Start the connector, and wait for all its tasks."""
        create(self.pair.source, [TOPIC], PARTITIONS)
        plain = "org.apache.kafka.connect.converters.ByteArrayConverter"
        config = {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "topics": TOPIC,
            "tasks.max": str(TASKS),
            "source.cluster.alias": "src",
            "target.cluster.alias": "tgt",
            "source.cluster.bootstrap.servers": self.pair.src.bootstrap_servers,
            "target.cluster.bootstrap.servers": self.pair.tgt.bootstrap_servers,
            "replication.factor": "1",
            "sync.topic.acls.enabled": "false",
            "emit.offset-syncs.enabled": "false",
            # A few full requests a second instead of hundreds of small ones: a worker with little processor keeps up then.
            "source.consumer.fetch.min.bytes": "65536",
            "source.consumer.fetch.max.wait.ms": "250",
            "producer.override.batch.size": "131072",
            "producer.override.linger.ms": "100",
            **dict.fromkeys(("key.converter", "value.converter", "header.converter"), plain),
        }
        rest("PUT", connector_url(self.pair.url, CONNECTOR, "/config"), config)

    def ask(self, verb: str, state: str, workers: int) -> None:
        """Pause or resume, and wait until the tasks are in that state, on so many workers."""
        rest("PUT", connector_url(self.pair.url, CONNECTOR, f"/{verb}"))
        self.wait(state, workers)

    def wait(self, state: str, workers: int) -> None:
        def tasks() -> list[tuple[str, str]]:
            found = statuses(self.pair.url).get(CONNECTOR, {"tasks": []})["tasks"]
            return [(task["state"], task["worker_id"]) for task in found]

        def settled(found: list[tuple[str, str]]) -> bool:
            return {one for one, _ in found} == {state} and len({where for _, where in found}) == workers

        until(tasks, lambda found: len(found) == TASKS and settled(found), f"tasks {state}", seconds=300)

    def records(self) -> tuple[int, int]:
        """Return how many records the source and the target have."""
        remote = [TopicPartition(f"src.{one.topic}", one.partition) for one in self._partitions]
        arrived = sum(latest(self._target, remote).values())
        return sum(latest(self._source, self._partitions).values()), arrived

    def drained(self, workers: int, megabytes: float, traffic: float) -> Drained:
        """Write a backlog while the connector is paused, resume it, and watch it catch up."""
        self.ask("pause", "PAUSED", workers)
        write(self.pair.source, int(megabytes * 1e6 / RECORD_BYTES))
        _, before = self.records()
        with writing(self.pair.source, traffic) if traffic else nullcontext():
            rest("PUT", connector_url(self.pair.url, CONNECTOR, "/resume"))
            written, arrived = until(self.records, lambda now: now[1] > before, "a first record", seconds=300)
            begun, behind = time.monotonic(), written - arrived
            close = max(1.0, traffic / RECORD_BYTES * _CAUGHT_UP_SECONDS)
            until(self.records, lambda now: now[0] - now[1] < close, "caught up", seconds=1_200)
            took = time.monotonic() - begun
        until(self.records, lambda now: now[0] == now[1], "everything arrived", seconds=300)
        self.wait("RUNNING", workers)
        return Drained(workers, behind * RECORD_BYTES, took)


def write(access: KafkaAccess, records: int) -> None:
    """Write so many records, the same to each partition."""
    producer = confluent_kafka.Producer(
        {**librdkafka_config(access), "log_level": 0, "linger.ms": 50, "batch.num.messages": 1000}
    )
    value = os.urandom(RECORD_BYTES)
    for _, partition in zip(range(records), cycle(range(PARTITIONS)), strict=False):
        while True:
            try:
                producer.produce(TOPIC, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0, "the source took not all records"


@contextmanager
def writing(access: KafkaAccess, bytes_per_second: float) -> Iterator[None]:
    """Write at a steady rate until the block ends."""
    over = threading.Event()

    def run() -> None:
        producer = confluent_kafka.Producer({**librdkafka_config(access), "log_level": 0, "linger.ms": 50})
        value, partitions, begun, written = os.urandom(RECORD_BYTES), cycle(range(PARTITIONS)), time.monotonic(), 0
        while not over.wait(0.05):
            due = int((time.monotonic() - begun) * bytes_per_second / RECORD_BYTES)
            for _ in range(due - written):
                producer.produce(TOPIC, value, partition=next(partitions))
            written = due
            producer.poll(0)
        producer.flush(60)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def limited(name: str, pid: int, cpu: float) -> Iterator[None]:
    """Let a process have this share of a processor, by a control group (version 1 or 2) that goes with the block."""
    mine = Path("/sys/fs/cgroup/cpu" if Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists() else "/sys/fs/cgroup")
    group, quota = mine / f"mm2mgr-{os.getpid()}-{name}", int(cpu * _PERIOD_MICROSECONDS)
    try:
        group.mkdir()
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{quota} {_PERIOD_MICROSECONDS}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        raise SystemExit(f"{error}: limiting a worker's processor needs Linux with control groups, and root") from None
    try:
        yield
    finally:
        (mine / "cgroup.procs").write_text(str(pid)) if Path(f"/proc/{pid}").exists() else None
        group.rmdir()


def measure(given: argparse.Namespace) -> tuple[Drained, list[Drained]]:
    """Return what one worker moves without traffic, and what each number of workers took with it."""
    most, found = max(given.workers), list[Drained]()
    names = [f"worker{number}" for number in range(most)]
    with (
        tempfile.TemporaryDirectory() as folder,
        serving_pair(Path(folder), workers=names, heap="512m") as pair,
        ExitStack() as limits,
    ):
        link = Link(pair)
        link.create()
        link.wait("RUNNING", most)
        link.drained(most, given.megabytes, 0)  # compiles what is hot
        for worker in pair.workers:
            limits.enter_context(limited(worker.name, worker.process.pid, given.cpu))
        for workers in range(most, 0, -1):
            if workers in given.workers:
                found.append(link.drained(workers, given.megabytes, given.traffic * 1e6))
                print(f"{workers} workers: {found[-1].seconds:.1f} s", file=sys.stderr, flush=True)
            if workers > 1:
                pair.workers[workers - 1].stop()
                link.wait("RUNNING", workers - 1)
        return link.drained(1, given.megabytes, 0), found[::-1]


def main() -> int:
    """Print a row for each number of workers; return 1 when a forecast is off by more than WITHIN."""
    parser = argparse.ArgumentParser(description="Measured against forecast time to catch up.")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--megabytes", type=float, default=240, help="of the backlog")
    parser.add_argument("--traffic", type=float, default=3, help="MB/s that go on meanwhile")
    parser.add_argument("--cpu", type=float, default=0.25, help="share of a processor that a worker has")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that all that was started is ended
    one, found = measure(given)
    print(f"one worker, {given.cpu:g} of a processor: {one.bytes_per_second / 1e6:.1f} MB/s without traffic\n")
    print(f"{'workers':>7} {'behind':>8} {'measured':>9} {'forecast':>9} {'error':>7}")
    errors = []
    for each in found:
        seconds = forecast(one, each.workers, given.traffic * 1e6, each.behind_bytes)
        errors.append(seconds / each.seconds - 1 if seconds else float("inf"))
        said = f"{seconds:.1f} s" if seconds else "never"
        print(
            f"{each.workers:>7} {each.behind_bytes / 1e6:>5.0f} MB {each.seconds:>7.1f} s {said:>9} {errors[-1]:>+7.0%}"
        )
    return 0 if max(map(abs, errors)) <= WITHIN else 1


if __name__ == "__main__":
    sys.exit(main())
