"""A catch-up limit on real brokers: a backlog that two tasks mirror arrives at the limit, and faster once the line is gone."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.quotas import QuotaEntity, read_quotas, write_quotas
from mm2mgr.kafka.records import Producer
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.server import Runtime

from .command import Tree
from .pair import Pair, flow, serving_pair
from .seen import create, task_configs, until

pytestmark = pytest.mark.live
LIMIT = 2_000_000  # bytes per second
RECORD_BYTES, PARTITIONS = 10_000, 4
BACKLOG_BYTES = 60_000_000
# As shipped (11), brokers let ten seconds' worth through at once, and then nothing for ten seconds.
EVENLY = {"quota.window.num": "2"}
MEASURED_SECONDS = 10.0
OURS, FOREIGN = QuotaEntity("mm2mgr.test/backlog:src->tgt"), QuotaEntity("web")
PLAIN = "checkpoints: false, heartbeats: false, "


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path_factory.mktemp("quotas"), runtime, workers=["w"], brokers=EVENLY) as pair:
        yield pair


def fill(pair: Pair) -> None:
    """Write a backlog that does not compress."""
    noise = random.Random(20261123).randbytes(RECORD_BYTES * 50)
    with Producer(pair.source, timeout_seconds=60) as producer:
        for number in range(BACKLOG_BYTES // RECORD_BYTES):
            start = number % 40 * RECORD_BYTES
            producer.send(TopicPartition("backlog", number % PARTITIONS), noise[start : start + RECORD_BYTES])


def arrived(kafka: Kafka) -> int:
    """Return the bytes of the backlog that arrived."""
    ends = kafka.offsets([TopicPartition("src.backlog", number) for number in range(PARTITIONS)])
    return sum(each.end for each in ends.values()) * RECORD_BYTES


def rate(kafka: Kafka) -> float:
    """Return the bytes per second that arrive from now on."""
    began, first = time.monotonic(), arrived(kafka)
    until(lambda: time.monotonic() - began, lambda seconds: seconds > MEASURED_SECONDS, "time stands still")
    return (arrived(kafka) - first) / (time.monotonic() - began)


def test_a_backlog_arrives_at_the_limit_and_faster_without_it(pair: Pair, tree: Tree) -> None:
    create(pair.source, ["backlog"], PARTITIONS)
    fill(pair)
    write_quotas(pair.target, {FOREIGN: 5_000_000})
    tree.write(pair.yaml("test", flow("backlog", "backlog", ", tasks: {max: 2}, catch_up: {limit: 2MB/s}"), PLAIN))
    planned = tree.run("plan", "--detailed-exitcode", code=2)
    assert f"+ create  client id {OURS.client_id}  2 MB/s over 1 broker: 2 MB/s each" in planned
    tree.run("apply", "--yes")
    assert read_quotas(pair.target).rates == {FOREIGN: 5e6, OURS: 2e6}
    tree.run("plan", "--detailed-exitcode")
    assert len(task_configs(pair.url, "mm2.src.tgt.source.backlog")) == 2

    with Kafka(pair.target) as kafka:
        until(lambda: arrived(kafka), lambda now: now > 2 * LIMIT, "nothing arrives", 60)
        limited = rate(kafka)
        print(f"with the limit of {LIMIT / 1e6:g} MB/s: {limited / 1e6:.2f} MB/s")
        assert limited == pytest.approx(LIMIT, rel=0.15)

        assert "Drift: none" in tree.run("drift")
        write_quotas(pair.target, {OURS: 1_900_000})
        drifted = tree.run("drift", code=2)
        assert f"{OURS}: 2 MB/s -> 1.9 MB/s on each broker\n" in drifted, "the history has what was applied"
        assert "2 MB/s over 1 broker: 1.9 MB/s -> 2 MB/s each" in tree.run("plan", "--detailed-exitcode", code=2)

        tree.write(pair.yaml("test", flow("backlog", "backlog", ", tasks: {max: 2}"), PLAIN))
        assert f"- delete  client id {OURS.client_id}" in tree.run("plan")
        tree.run("apply", "--yes", "--wait", "0")
        began, first = time.monotonic(), arrived(kafka)
        fill(pair)  # a second backlog: on a busy machine the rest of the first one arrives while apply ends
        until(lambda: arrived(kafka), lambda now: now >= 2 * BACKLOG_BYTES, "the backlogs do not arrive", 120)
        free = (2 * BACKLOG_BYTES - first) / (time.monotonic() - began)
        print(f"without: {free / 1e6:.2f} MB/s")
        assert free > 2 * LIMIT
    assert read_quotas(pair.target).rates == {FOREIGN: 5e6}
    recorded = [entry for entry in tree.json("history")["entries"] if entry["connector"] == str(OURS)]
    assert [(entry["action"], entry["outcome"]) for entry in recorded] == [("create", "done"), ("delete", "done")]
    tree.run("plan", "--detailed-exitcode")
