"""sample: Parquet grows, a cluster that is down costs the exit code and not the samples of the others."""

from __future__ import annotations

import signal

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.samples.store import SampleStore

from .command import Command, finish, start, until
from .load import addresses, declare, produce

QUICK = ("--interval", "1s", "--duration", "0s", "--store", "store")


def clusters(mm2mgr: Command) -> list[tuple[str, str, int]]:
    samples = SampleStore(mm2mgr.folder / "store").read()
    return [(one.cluster, one.topic, one.end_offset) for one in samples if one.end_offset]


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


def test_only_sources_of_flows_can_be_sampled(mm2mgr: Command) -> None:
    declare(mm2mgr.tree, "a:1", "b:1")
    said = mm2mgr("sample", "--cluster", "hub", *QUICK, code=1)
    assert said.err == "error: no flow reads from hub\nhint: source clusters: a, b\n"
    assert not (mm2mgr.folder / "store").exists()


def test_ctrl_c_keeps_what_was_sampled(mm2mgr: Command, mock_cluster: KafkaAccess) -> None:
    declare(mm2mgr.tree, *addresses(mock_cluster))
    produce(mock_cluster, "orders")
    running = start(mm2mgr.folder, "sample", "--follow", "--interval", "1s", "--store", "store")
    try:
        until(lambda: list((mm2mgr.folder / "store").glob("hour=*/*.parquet")), "the first round is stored")
        assert running.stderr
        running.stderr.readline()
        running.send_signal(signal.SIGINT)
    finally:
        said = finish(running)
    assert said.code == 0
    assert said.lines == ["stopped; the samples so far are in store"]
    assert clusters(mm2mgr)[0] == ("a", "orders", 1)
