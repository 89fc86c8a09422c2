"""Measures an audit beside a bare consumer of both logs: two brokers of its own, equal logs, wall and CPU seconds and memory.

Each run is a fresh process, timed from its first read on, so without the start of a Spark session, and CPU seconds are those
of that time, of the process and all that it started, by a control group of its own where this user may make one: else those of
processes that nobody waits for are lost. The bare consumer reads the very ranges that the audit reads, in as many
processes with the same settings, and looks at nothing. An executor has one core, as in a container: it, its Python worker and
the threads of both are bound to a core each, and so are the one and the two consumers it stands beside. Its worker had started.
`--warm` audits a small part of the logs before the clock, as sessions that stay have done; a JVM's first job costs more.
Brokers share the cores with what is measured: their CPU seconds stand beside those of each kind of process, and the gain of two
executors over one beside its bound, what a second bare consumer gains in the same run.
Figures are in README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import psutil

from mm2mgr.audit.reading import READER_SETTINGS
from mm2mgr.audit.run import run_audit
from mm2mgr.audit.windows import AuditOrder, FlowOrder, LogAccess, LogWindow, PartitionOrder
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.client import Kafka
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.sandbox.runtime import find_java, spark_java_home
from mm2mgr.sandbox.server import start_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS, RECORD_BYTES, WARM_OFFSETS = 8, 200, 12_500
_GROUP = "MM2MGR_AUDIT_CONTROL_GROUP"
TOPICS = {"src": "logs", "tgt": "src.logs"}


def main() -> None:
    """Print one line per run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=4_000_000, help="in each of the two logs")
    parser.add_argument("--runs", default="bare,process,spark,consumer,executor,consumers,executors", help="in order")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--warm", action="store_true", help="audit a part of the logs before the clock")
    parser.add_argument("--child", nargs=2, metavar=("RUN", "SERVERS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        servers = json.loads(arguments.child[1])
        print(json.dumps(_RUNS[arguments.child[0]](servers, arguments.processes, is_warm=arguments.warm)))
        return
    with tempfile.TemporaryDirectory(prefix="mm2mgr-audit-") as folder:
        brokers = [Broker(name, Path(folder) / name) for name in TOPICS]
        for broker in brokers:
            broker.heap = "768m"
        try:
            start_all(brokers)
            servers = {broker.name: broker.bootstrap_servers for broker in brokers}
            for alias, address in servers.items():
                _fill(alias, address, arguments.records)
            pids = [broker.process.pid for broker in brokers if broker.process]
            seconds: dict[str, list[_Measured]] = {}
            for run in arguments.runs.split(","):
                seconds.setdefault(run, []).append(_measure(run, servers, pids, arguments))
            _print_gains(seconds)
        finally:
            for broker in brokers:
                broker.kill()


def _fill(alias: str, servers: str, records: int) -> None:
    with Kafka(KafkaAccess(alias, servers), timeout_seconds=30) as kafka:
        kafka.create_topics({TOPICS[alias]: (PARTITIONS, 1, {"retention.ms": "-1"})})
    chance = random.Random(1)
    pool = [chance.randbytes(RECORD_BYTES - 20) for _ in range(1_000)]
    settings = {"bootstrap.servers": servers, "linger.ms": 50, "batch.num.messages": 10_000}
    producer = confluent_kafka.Producer(
        {**settings, "queue.buffering.max.messages": 500_000, "compression.type": "lz4"}
    )
    for number in range(records):
        value = pool[number % 1_000] + number.to_bytes(8, "big")
        while True:
            try:
                producer.produce(
                    TOPICS[alias],
                    value,
                    b"key-%08d" % number,
                    number % PARTITIONS,
                    timestamp=1_700_000_000_000 + number,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush()


@dataclass(frozen=True)
class _Measured:
    """Wall and CPU seconds of a run, without and with the brokers'."""

    wall: float
    cpu: float
    brokers: float


def _print_gains(runs: dict[str, list[_Measured]]) -> None:
    """Print what a second executor, and a second bare consumer, gains, by the median of each run."""
    for single, double in (("consumer", "consumers"), ("executor", "executors")):
        if single in runs and double in runs:
            first, second = (
                sorted(runs[run], key=lambda entry: entry.wall)[len(runs[run]) // 2] for run in (single, double)
            )
            gain, more = first.wall / second.wall, second.cpu / first.cpu - 1
            print(f"two {double}: {gain:.2f} times as fast as one, {more:+.0%} CPU seconds for each record")


def _measure(run: str, servers: dict[str, str], brokers: list[int], arguments: argparse.Namespace) -> _Measured:
    before = _cpu_by_kind(brokers)
    command = [sys.executable, __file__, "--processes", str(arguments.processes), "--child", run, json.dumps(servers)]
    command += ["--warm"] * arguments.warm
    with _control_group() as group:

        def enter() -> None:
            if group:
                (group / "cgroup.procs").write_text(str(os.getpid()))

        environment = {**os.environ, _GROUP: str(group or "")}
        process = psutil.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=enter, env=environment)
        peak, ended = [0], threading.Event()
        watcher = threading.Thread(target=_watch, args=(process, peak, ended))
        watcher.start()
        output, _ = process.communicate()
        ended.set()
        watcher.join()
    if process.returncode:
        raise SystemExit(f"{run} failed")
    told = json.loads(output.splitlines()[-1])
    of_brokers = sum(_cpu_by_kind(brokers).values()) - sum(before.values())
    load = os.getloadavg()[0]
    print(
        f"{run:>10} {arguments.records:>11,} records {told['seconds']:7.1f} s wall  {told['cpu']:7.1f} CPU s"
        f" (brokers {of_brokers:.1f})  {told['cpu'] / arguments.records * 1e6:5.2f} µs each  {peak[0] / 2**20:7.0f} MiB at most  load {load:.1f}  {told['says']}; {told['kinds']}",
        flush=True,
    )
    return _Measured(told["seconds"], told["cpu"], of_brokers)


@contextmanager
def _control_group() -> Iterator[Path | None]:
    """Make a control group (version 1 or 2) that counts CPU seconds; None where this user may not."""
    mine = Path("/sys/fs/cgroup/cpuacct" if Path("/sys/fs/cgroup/cpuacct/cpuacct.usage").exists() else "/sys/fs/cgroup")
    group = mine / f"mm2mgr-audit-{os.getpid()}-{time.time_ns()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        for _ in range(50):  # until the last process has left it
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def _seconds_of_group(group: Path) -> float:
    if (group / "cpuacct.usage").exists():
        return int((group / "cpuacct.usage").read_text()) / 1e9
    return int((group / "cpu.stat").read_text().split()[1]) / 1e6  # usage_usec is first


def _watch(process: psutil.Process, peak: list[int], ended: threading.Event) -> None:
    """Follow the memory of a process and all that it starts, shared pages counted once (PSS)."""
    while not ended.wait(0.25):
        total = 0
        for one in [process, *_children(process)]:
            try:
                total += one.memory_full_info().pss
            except psutil.Error:
                continue
        peak[0] = max(peak[0], total)


def _children(process: psutil.Process) -> list[Any]:
    try:
        return list(process.children(recursive=True))
    except psutil.Error:
        return []


# --- what is measured, each in a process of its own -------------------------------------------------------------------


def _order(servers: dict[str, str]) -> AuditOrder:
    logs = {}
    for alias, topic in TOPICS.items():
        with Kafka(KafkaAccess(alias, servers[alias]), timeout_seconds=30) as kafka:
            logs[alias] = kafka.offsets(TopicPartition(topic, number) for number in range(PARTITIONS))

    def part(number: int) -> PartitionOrder:
        places = [TopicPartition(topic, number) for topic in TOPICS.values()]
        here = [logs[alias][place] for alias, place in zip(TOPICS, places, strict=True)]
        windows = [LogWindow(place, *log) for place, log in zip(places, here, strict=True)]
        return PartitionOrder(windows[0], windows[1], here[0], here[1])

    accesses = [LogAccess(alias, librdkafka_config(KafkaAccess(alias, servers[alias]))) for alias in TOPICS]
    return AuditOrder((FlowOrder("logs:src->tgt", accesses[0], accesses[1], tuple(map(part, range(PARTITIONS)))),))


def _cpu() -> Counter[str]:
    """Return the CPU seconds so far of this process and of all below it, those that have ended too, by kind."""
    seconds = _cpu_by_kind([os.getpid()])
    if group := os.environ.get(_GROUP):
        seconds["processes that ended"] = _seconds_of_group(Path(group)) - sum(seconds.values())
    return seconds


def _cpu_by_kind(pids: list[int]) -> Counter[str]:
    seconds: Counter[str] = Counter()
    for top in map(psutil.Process, pids):
        for process in [top, *_children(top)]:
            try:
                words, times = " ".join(process.cmdline()), sum(process.cpu_times()[:4])
            except psutil.Error:
                continue
            kinds = {
                "CoarseGrainedExecutorBackend": "executor JVMs",
                "SparkSubmit": "driver's JVM",
                "pyspark": "Python workers",
                "java": "driver's JVM",
            }
            seconds[next((kind for part, kind in kinds.items() if part in words), "this process")] += times
    return seconds


def _since(before: Counter[str]) -> dict[str, Any]:
    """Return the CPU seconds since then, with what kinds of process took them in words."""
    after = _cpu()
    spent = {kind: after[kind] - before[kind] for kind in after}
    return {"cpu": sum(spent.values()), "kinds": ", ".join(f"{kind} {spent[kind]:.1f}" for kind in sorted(spent))}


def _bare(servers: dict[str, str], processes: int, *, is_warm: bool = False, is_bound: bool = False) -> dict[str, Any]:
    order = _order(servers)
    (flow,) = order.flows
    sides = [(flow.source, part.source) for part in flow.partitions] + [
        (flow.target, part.target) for part in flow.partitions
    ]
    shares = [sides[number::processes] for number in range(processes)]
    began, cpu = time.perf_counter(), _cpu()
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        work = [pool.submit(_consume, share, number if is_bound else None) for number, share in enumerate(shares)]
        counts = [consumed.result() for consumed in work]
    seconds = time.perf_counter() - began
    return {"seconds": seconds, **_since(cpu), "says": f"{sum(counts):,} messages"}


def _consumer(servers: dict[str, str], processes: int, *, is_warm: bool) -> dict[str, Any]:
    return _bare(servers, 1, is_bound=True)


def _consumers(servers: dict[str, str], processes: int, *, is_warm: bool) -> dict[str, Any]:
    return _bare(servers, 2, is_bound=True)


def _consume(sides: list[tuple[LogAccess, LogWindow]], core: int | None) -> int:
    count = 0
    if core is not None:
        _bind(psutil.Process(), core)
    for alias in TOPICS:
        own = [(access, window) for access, window in sides if access.alias == alias]
        if not own:
            continue
        consumer = confluent_kafka.Consumer({**own[0][0].settings, **READER_SETTINGS, "enable.partition.eof": False})
        consumer.assign([confluent_kafka.TopicPartition(*window.partition, window.first) for _, window in own])
        left = sum(window.end - window.first for _, window in own)
        while left > 0:
            messages = consumer.consume(10_000, 1.0)
            left -= len(messages)
            count += len(messages)
        consumer.close()
    return count


def _process(servers: dict[str, str], processes: int, *, is_warm: bool) -> dict[str, Any]:
    order, cpu = _order(servers), _cpu()
    report = run_audit(order)
    return {"seconds": report.seconds, **_since(cpu), "says": f"{report.engine}: {report.verdict}"}


def _spark(servers: dict[str, str], processes: int, *, is_warm: bool) -> dict[str, Any]:
    from mm2mgr.throughput.spark_session import end, session

    spark = session(spark_java_home(find_java()))
    try:
        spark.range(1).count()
        return _on(spark, servers, is_warm=is_warm)
    finally:
        end(spark)


def _executor(servers: dict[str, str], processes: int, *, is_warm: bool) -> dict[str, Any]:
    return _cluster(servers, 1, is_warm=is_warm)


def _executors(servers: dict[str, str], processes: int, *, is_warm: bool) -> dict[str, Any]:
    return _cluster(servers, 2, is_warm=is_warm)


def _cluster(servers: dict[str, str], count: int, *, is_warm: bool) -> dict[str, Any]:
    """A cluster of executors of one core each, whose JVMs start as those of local sessions do."""
    from pyspark.sql import SparkSession

    from mm2mgr.throughput.spark_session import FAST_START

    os.environ["JAVA_HOME"] = str(spark_java_home(find_java()) or os.environ.get("JAVA_HOME", ""))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local-cluster[{count},1,1024]")
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    quick = {f"spark.{process}.extraJavaOptions": FAST_START for process in ("driver", "executor")}
    for name, value in {**quiet, **quick, "spark.driver.host": "127.0.0.1"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        # Tasks of a barrier run at the same time: one in each executor, whose Python worker then is there.
        spark.sparkContext.parallelize(range(count), count).barrier().mapPartitions(_import_audit).collect()
        spark.range(1).count()
        _bind_executors()
        return _on(spark, servers, is_warm=is_warm)
    finally:
        spark.stop()


def _bind_executors() -> None:
    """Bind each executor with its Python workers to a core of its own: else their Kafka clients use a second one."""
    executors = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                executors.append(process)
    for core, executor in enumerate(executors):
        for process in [executor, *executor.children(recursive=True)]:
            with suppress(psutil.Error):
                _bind(process, core)


def _bind(process: psutil.Process, core: int) -> None:
    """Bind all threads of a process, and those that they start, to that core of those this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    for thread in process.threads():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread.id, {cores[core % len(cores)]})


def _import_audit(_: object) -> list[str]:
    import mm2mgr.audit.scan

    return [mm2mgr.audit.scan.__name__]


def _on(spark: SparkSession, servers: dict[str, str], *, is_warm: bool) -> dict[str, Any]:
    order = _order(servers)
    if is_warm:
        (flow,) = order.flows
        small = [
            replace(part, **{side: replace(getattr(part, side), end=WARM_OFFSETS) for side in ("source", "target")})
            for part in flow.partitions
        ]
        run_audit(replace(order, flows=(replace(flow, partitions=tuple(small)),)), spark)
    cpu, jobs = _cpu(), _jobs(spark)
    report = run_audit(order, spark)
    after = [there - before for there, before in zip(_jobs(spark), jobs, strict=True)]
    says = "{} jobs, {} stages, {} tasks".format(*after)
    return {"seconds": report.seconds, **_since(cpu), "says": f"{report.engine}: {report.verdict}; {says}"}


def _jobs(spark: SparkSession) -> tuple[int, int, int]:
    """Return how many jobs, stages and tasks there were so far."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(None)]
    stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
    return len(jobs), len(stages), sum(stage.numTasks for stage in stages if stage)


_RUNS = {
    "bare": _bare,
    "process": _process,
    "spark": _spark,
    "consumer": _consumer,
    "consumers": _consumers,
    "executor": _executor,
    "executors": _executors,
}

if __name__ == "__main__":
    main()
