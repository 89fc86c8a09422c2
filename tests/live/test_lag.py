"""Lag on real brokers and a real worker that flushes every ten seconds: under traffic, stopped, and while a backlog is worked off.

MM2MGR_BACKLOG=N makes it a backlog of N records instead of the gate's 7,000; 96,000 take ten minutes.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.records import Producer
from mm2mgr.operations import LagLevel, LagOptions, lag
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.runtime import Runtime

from .command import Tree
from .conftest import WORKER
from .pair import Pair, flow, serving_pair
from .seen import create, until
from .traffic import Traffic

pytestmark = pytest.mark.live
FLUSH_SECONDS = 10.0
SETTINGS = {**WORKER, "offset.flush.interval.ms": str(round(1000 * FLUSH_SECONDS))}
EVENLY = {"quota.window.num": "2"}  # a quota else lets ten seconds' worth through at once
RECORDS_PER_SECOND = 400.0
RUNNING_SECONDS = 35.0  # three flushes
LEAST_LOOKS = 5  # however long a busy machine takes for each
QUIET = "checkpoints: false, "


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("lag")
    with serving_pair(folder, runtime, workers=["w"], settings=SETTINGS, brokers=EVENLY) as pair:
        yield pair


@pytest.fixture(autouse=True)
def _own_memory(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))


def declare(pair: Pair, tree: Tree, flows: str) -> None:
    tree.write(pair.yaml("test", flows, QUIET, workers=f", flush_interval: {FLUSH_SECONDS:g}s"))
    tree.run("apply", "--yes")


class Truth:
    """The ends of some logs and of their mirrors, as the brokers tell the test."""

    def __init__(self, pair: Pair, partitions: list[TopicPartition]) -> None:
        self._pair, self.partitions = pair, partitions
        self._mirrors = [TopicPartition(f"src.{one.topic}", one.partition) for one in partitions]

    def read(self) -> tuple[list[int], list[int]]:
        """Return how many records each log and each mirror has had."""
        with Kafka(self._pair.source) as source, Kafka(self._pair.target) as target:
            logs, mirrors = source.offsets(self.partitions), target.offsets(self._mirrors)
        return (
            [logs[one].end for one in self.partitions],
            [mirrors[one].end if one in mirrors else 0 for one in self._mirrors],
        )

    def waiting(self) -> int:
        logs, mirrors = self.read()
        return sum(logs) - sum(mirrors)


class Total(NamedTuple):
    """The records of a flow that wait; what that was counted from; and how many would wait by stored offsets alone."""

    records: float
    basis: str
    by_stored_offsets: int


def test_lag_is_within_a_flush_of_the_truth_and_exact_when_stopped(pair: Pair, tree: Tree) -> None:
    topics = [f"traffic.{number}" for number in range(4)]
    create(pair.source, topics, 1)
    truth = Truth(pair, [TopicPartition(topic, 0) for topic in topics])
    declare(pair, tree, flow("traffic", "'traffic[.].*'", ", tasks: {max: 2}"))
    workspace, errors, refined = tree.workspace(), list[float](), list[tuple[float, float]]()

    def total() -> Total | None:
        """Return the records that wait, None where a busy worker did not answer in time and that is said."""
        report = lag(workspace, ["traffic"], LagOptions(LagLevel.FLOW))
        row = report.rows[0]
        if row.records.value is None:
            assert "no answer in time" in str(row), row
            return None
        assert not row.records.at_least
        stored = sum(partition.stored_lag_records for partition in report.flows[0].lag.counted_partitions)
        return Total(row.records.value, row.basis, stored)

    with Traffic(pair.source, topics, RECORDS_PER_SECOND) as traffic:
        until(lambda: truth.read()[1], lambda mirrored: min(mirrored) > 0, "nothing arrives")
        ends_at = time.monotonic() + RUNNING_SECONDS
        while time.monotonic() < ends_at or len(errors) < LEAST_LOOKS:
            assert time.monotonic() < ends_at + 180, "the workers hardly ever answer"
            logs, mirrors = truth.read()
            if (waits := total()) is None:
                continue
            later_logs, later_mirrors = truth.read()
            least, most = sum(logs) - sum(later_mirrors), sum(later_logs) - sum(mirrors)
            assert waits.records >= least, "never less than what waits"
            errors.append(max(0.0, waits.records - most))
            if waits.basis == "target end":
                refined.append((errors[-1], waits.by_stored_offsets - most))
        tree.run("stop", "traffic")
        until(truth.waiting, lambda waits: waits > 1_000, "no backlog grows while it is stopped")
    middle, by_flush = (sorted(too_many)[len(refined) // 2] for too_many in zip(*refined, strict=True))
    print(f"{len(errors)} looks: at most {max(errors):.0f} records too many, {len(refined)} by the target's end:")
    print(f"in the middle {middle:.0f}; by stored offsets alone {by_flush:.0f}")
    assert max(errors) <= FLUSH_SECONDS * RECORDS_PER_SECOND
    assert len(refined) > len(errors) / 2
    assert middle < 0.75 * by_flush, "the target's end tells more than stored offsets, on a busy machine too"

    logs, mirrors = truth.read()
    rows = lag(workspace, ["traffic"], LagOptions(LagLevel.PARTITION, timestamps=True)).rows
    found = {(row.topic, row.partition): row.records.value or 0.0 for row in rows}
    assert found == {tuple(one): a - b for one, a, b in zip(truth.partitions, logs, mirrors, strict=True)}
    assert {row.basis for row in rows} == {"stored offset (exact)"}
    assert sum(mirrors) + sum(found.values()) == 4 * traffic.rounds, "as many as the test counted"
    oldest = max(row.seconds.value or 0 for row in rows)
    assert sum(found.values()) / RECORDS_PER_SECOND <= oldest, (
        "the next record waits at least as long as records came after it"
    )

    tree.run("resume", "traffic")
    every = traffic.arrived(pair.target, "src")
    assert {count for one in every.values() for count in one.values()} == {1}, "a stop repeats nothing"
    until(lambda: lag(workspace, ["traffic"]), lambda seen: seen.rows[0].records.value == 0, "not level")
    beats = lag(workspace, ["traffic"]).flows[0].heartbeat_seconds
    assert isinstance(beats, float)
    assert beats < 60, "not since the resume only"


# --- a backlog --------------------------------------------------------------------------------------------------------

LIMIT, RECORD_BYTES = 2_000_000, 10_000  # bytes per second, bytes
BACKLOG = int(os.environ.get("MM2MGR_BACKLOG", "7000"))  # records: 35 s without traffic
TRICKLE_PER_SECOND = 40.0
# A limited broker delays its acknowledgements: with full requests in flight, seconds of traffic would be there and not acknowledged.
SMALL_REQUESTS = ", record_producer: {batch.size: 40000, max.in.flight.requests.per.connection: 1}"


@contextmanager
def trickle(pair: Pair) -> Iterator[None]:
    """Go on writing a few records per second."""
    ended, noise = threading.Event(), random.Random(7).randbytes(RECORD_BYTES)

    def run() -> None:
        with Producer(pair.source, timeout_seconds=60) as producer:
            number = 0
            while not ended.wait(1 / TRICKLE_PER_SECOND):
                producer.send(TopicPartition("backlog", number % 4), noise)
                number += 1

    thread = threading.Thread(target=run, name="trickle", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


def fill(pair: Pair, records: int) -> None:
    """Write records that do not compress to all partitions in turn."""
    noise = random.Random(20261123).randbytes(RECORD_BYTES * 50)
    with Producer(pair.source, timeout_seconds=60) as producer:
        for number in range(records):
            start = number % 40 * RECORD_BYTES
            producer.send(TopicPartition("backlog", number % 4), noise[start : start + RECORD_BYTES])


def test_the_forecast_of_a_backlog_under_traffic_is_within_a_fifth(pair: Pair, tree: Tree) -> None:
    """A flow that was stopped for a while, as on the day of an upgrade, and is limited when it goes on."""
    create(pair.source, ["backlog"], 4)
    fill(pair, 4)
    truth = Truth(pair, [TopicPartition("backlog", number) for number in range(4)])
    declare(pair, tree, flow("backlog", "backlog", ", tasks: {max: 1}, catch_up: {limit: 2MB/s}" + SMALL_REQUESTS))
    until(truth.waiting, lambda waits: waits == 0, "the first records do not arrive")
    tree.run("stop", "backlog")
    workspace, forecasts = tree.workspace(), list[tuple[float, float]]()
    fill(pair, BACKLOG)
    (stopped,) = lag(workspace, ["backlog"]).rows
    assert stopped.records.value == BACKLOG
    with trickle(pair):
        tree.run("resume", "backlog")
        began = time.monotonic()
        while truth.waiting() > TRICKLE_PER_SECOND:
            assert time.monotonic() - began < 4 * BACKLOG * RECORD_BYTES / LIMIT
            at = time.monotonic()
            row = lag(workspace, ["backlog"]).rows[0]
            if row.level and row.level.seconds:
                forecasts.append((at, row.level.seconds))
        level_at = time.monotonic()
    judged = [(level_at - at, said) for at, said in forecasts if began + 10 < at < level_at - 10]
    off = sorted(abs(said - left) / left for left, said in judged)
    print(
        f"the backlog took {level_at - began:.0f} s: {[f'{left:.0f} s left, forecast {said:.0f} s' for left, said in judged][::5]}"
    )
    print(f"{len(off)} forecasts: median error {off[len(off) // 2]:.0%}, worst {off[-1]:.0%}")
    assert len(off) > 5
    assert off[len(off) // 2] < 0.2
