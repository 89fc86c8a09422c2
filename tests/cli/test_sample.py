"""sample: Parquet grows, a cluster that is down costs the exit code and not the samples of the others."""

from __future__ import annotations

import re
import signal
import time

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.store import SampleStore
from mm2mgr.sizing.capacity import Pace
from tests.samples.rows import stored

from .command import Command, finish, start, until
from .load import addresses, declare, produce

FOLLOW = ("sample", "--follow", "--cluster", "a", "--store", "store")
QUICK = ("--interval", "1s", "--duration", "0s", "--store", "store")


def clusters(mm2mgr: Command) -> list[tuple[str, str, int]]:
    samples = stored(SampleStore(mm2mgr.folder / "store"))
    return [(one["cluster"], one["topic"], one["end_offset"]) for one in samples.to_pylist() if one["end_offset"]]


def test_samples_are_appended(mm2mgr: Command, mock_cluster: KafkaAccess) -> None:
    declare(mm2mgr.tree, *addresses(mock_cluster))
    for topic, count in (("logs.web", 3), ("orders", 2), ("not.mirrored", 1)):
        produce(mock_cluster, topic, count)
    said = mm2mgr("sample", *QUICK)
    assert said.lines == ["12 samples of 2 clusters in store"]  # four partitions a topic; b has no flow for orders
    assert said.err == "round 1: 12 samples\n"
    first = mm2mgr.files()
    assert sorted(clusters(mm2mgr)) == [("a", "logs.web", 3), ("a", "orders", 2), ("b", "logs.web", 3)]
    assert mm2mgr("sample", "--cluster", "b", *QUICK).lines == ["4 samples of 1 clusters in store"]
    assert first.items() <= mm2mgr.files().items()
    assert sorted(clusters(mm2mgr))[-2:] == [("b", "logs.web", 3)] * 2


def test_a_cluster_that_is_down_is_named_and_the_other_is_sampled(
    mm2mgr: Command, mock_cluster: KafkaAccess, closed_port: int
) -> None:
    declare(mm2mgr.tree, addresses(mock_cluster)[0], f"127.0.0.1:{closed_port}")
    produce(mock_cluster, "logs.web", 3)
    said = mm2mgr("sample", *QUICK, code=1)
    assert f"  b: no broker of 127.0.0.1:{closed_port} answered" in said.err
    assert "error: never read: b\nhint: check bootstrap_servers and access: of these clusters" in said.err
    assert clusters(mm2mgr) == [("a", "logs.web", 3)]


def test_workers_that_do_not_answer_are_said_once_and_sampling_goes_on(
    mm2mgr: Command, mock_cluster: KafkaAccess, monkeypatch: pytest.MonkeyPatch, unwaited: None
) -> None:
    declare(mm2mgr.tree, *addresses(mock_cluster))
    produce(mock_cluster, "orders")
    monkeypatch.setattr(Pace, "for_sampling", staticmethod(lambda _: Pace(0.5, 0, 9)))
    said = mm2mgr("sample", "--cluster", "a", "--interval", "1s", "--duration", "3s", "--store", "store")
    assert (
        said.err.count("  Connect cluster 'w': task capacity is not measured: GET /connectors: no URL answered:") == 1
    )
    assert re.fullmatch(r"\d+ samples of 1 clusters in store", said.out.strip())
    assert ("a", "orders", 1) in clusters(mm2mgr)


def test_a_run_that_ends_at_once_asks_no_worker(mm2mgr: Command, mock_cluster: KafkaAccess) -> None:
    declare(mm2mgr.tree, *addresses(mock_cluster))
    produce(mock_cluster, "orders")
    assert "Connect" not in mm2mgr("sample", "--cluster", "a", *QUICK).err


def test_only_sources_of_flows_can_be_sampled(mm2mgr: Command) -> None:
    declare(mm2mgr.tree, "a:1", "b:1")
    said = mm2mgr("sample", "--cluster", "hub", *QUICK, code=1)
    assert said.err == "error: no flow reads from hub\nhint: source clusters: a, b\n"
    assert not (mm2mgr.folder / "store").exists()


@pytest.mark.parametrize(
    ("ended_by", "said_last"),
    [
        (signal.SIGINT, "stopped; the samples so far are in store"),
        (signal.SIGTERM, r"\d+ samples of 1 clusters in store"),
    ],
)
def test_following_ends_in_order_and_keeps_what_was_sampled(
    mm2mgr: Command, mock_cluster: KafkaAccess, ended_by: signal.Signals, said_last: str
) -> None:
    declare(mm2mgr.tree, *addresses(mock_cluster))
    produce(mock_cluster, "orders")
    running = start(mm2mgr.folder, *FOLLOW, "--interval", "1s")
    try:
        until(lambda: list((mm2mgr.folder / "store").glob("samples/_delta_log/*1.json")), "the first round is stored")
        assert running.stderr
        assert re.fullmatch(r"20\d\d-\S+T\S+Z sample: round 1: 4 samples\n", running.stderr.readline())
        running.send_signal(ended_by)
    finally:
        said = finish(running)
    assert said.code == 0
    assert re.fullmatch(said_last, "\n".join(said.lines))
    assert set(clusters(mm2mgr)) == {("a", "orders", 1)}


def test_a_killed_sampler_leaves_a_store_that_the_next_one_continues(
    mm2mgr: Command, mock_cluster: KafkaAccess
) -> None:
    declare(mm2mgr.tree, *addresses(mock_cluster))
    produce(mock_cluster, "orders")
    store = mm2mgr.folder / "store"
    for rounds in (3, 6):
        running = start(mm2mgr.folder, *FOLLOW, "--interval", "0.2s")
        try:
            until(
                lambda rounds=rounds: len(list(store.glob("samples/_delta_log/*.json"))) > rounds,
                "some rounds are committed",
            )
        finally:
            running.kill()
            finish(running)
    samples = stored(SampleStore(store))
    keys = list(zip(*(samples[name].to_pylist() for name in ("topic", "partition", "time_ms")), strict=True))
    assert len(keys) == len(set(keys)) >= 24
    assert {(topic, partition) for topic, partition, _ in keys} == {("orders", number) for number in range(4)}


def test_samples_older_than_keep_are_removed(mm2mgr: Command, mock_cluster: KafkaAccess) -> None:
    declare(mm2mgr.tree, *addresses(mock_cluster))
    produce(mock_cluster, "orders")
    now_ms, store = time.time_ns() // 1_000_000, SampleStore(mm2mgr.folder / "store")
    store.append(Batch("a", "test", now_ms - 9 * 3_600_000, ["orders"], [0], end_offset=[77]))
    mm2mgr("sample", "--cluster", "a", *QUICK)
    assert ("a", "orders", 77) in clusters(mm2mgr)
    # Nothing but this machine's clock says that nine hours have passed. (Two, as one may be over with the newest hour.)
    said = mm2mgr("sample", "--cluster", "a", "--keep", "2h", *QUICK)
    assert "are older than what is to be kept, and stay for now" in said.err
    assert ("a", "orders", 77) in clusters(mm2mgr)
    for hours in range(9):
        store.append(Batch("a", "test", now_ms - hours * 3_600_000, ["orders"], [0], end_offset=[9]))
    mm2mgr("sample", "--cluster", "a", "--keep", "1h", *QUICK)
    assert set(clusters(mm2mgr)) == {("a", "orders", 9), ("a", "orders", 1)}
