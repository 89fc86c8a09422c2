"""What `cost` says a flow moved, against the brokers' own logs: known traffic through sample, throughput and cost."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.kafka.client import Kafka
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.sandbox.runtime import Runtime

from .command import Tree
from .conftest import WORKER
from .pair import Pair, serving_pair
from .seen import Message, create, until, write

pytestmark = pytest.mark.live
WITHIN = 0.03
PARTITIONS = 2
GATE = {"plain": ("none", 1000), "packed": ("zstd", 1000), "small": ("none", 100)}
MATRIX = {
    f"{codec}-{size}": (codec, size)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    for size in (100, 1000, 10_000)
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path_factory.mktemp("cost"), runtime, workers=["w"], settings=WORKER) as pair:
        yield pair


def log_bytes(broker: Broker, topic: str) -> int:
    """Return what the records of a topic take on the broker's disk."""
    return sum(log.stat().st_size for log in (broker.directory / "data").glob(f"{topic}-[0-9]*/*.log"))


def produce(pair: Pair, topic: str, kind: tuple[str, int], total_bytes: int, seed: int) -> int:
    """Write so many bytes before compression, half of them noise, and return how many records that are."""
    codec, size = kind
    drawn, count = random.Random(seed), total_bytes // size
    values = (drawn.randbytes(size // 4).hex().encode().ljust(size) for _ in range(count))
    records = [Message(number % PARTITIONS, b"key", value) for number, value in enumerate(values)]
    write(pair.source, topic, records, **{"compression.type": codec, "linger.ms": 20})  # type: ignore[arg-type]
    return count


def arrived(pair: Pair, counts: Mapping[str, int]) -> None:
    def missing() -> dict[str, int]:
        ends = dict.fromkeys(counts, 0)
        with Kafka(pair.target) as kafka:
            every = [TopicPartition(f"src.{topic}", number) for topic in counts for number in range(PARTITIONS)]
            for partition, log in kafka.read_offsets(every).found.items():
                ends[partition.topic.removeprefix("src.")] += log.end
        return {topic: count - ends[topic] for topic, count in counts.items()}

    until(missing, lambda left: not any(many > 0 for many in left.values()), "not all arrived", 120)


def measured(pair: Pair, tree: Tree, topics: Mapping[str, tuple[str, int]], each_bytes: int) -> dict[str, Any]:
    """Mirror known traffic while it is sampled; return by topic what `cost` and what the brokers' logs say of either side."""
    create(pair.source, topics, PARTITIONS)
    flows = "".join(
        f"  {topic}: {{sources: [src], targets: [tgt], topics: {{include: [{topic}]}}}}\n" for topic in topics
    )
    links = 'links: [{between: [src, tgt], rtt: 1ms, price_per_gb: {src->tgt: "0.02", tgt->src: 9}, currency: EUR}]\n'
    text = pair.yaml("cost", flows, "checkpoints: false, heartbeats: false, ", links)
    tree.write(
        text.replace("tgt: {bootstrap", "tgt: {price_per_gb_in: 0.05, currency: EUR, bootstrap").replace(
            "connect:\n", "connect:\n"
        )
    )
    tree.run("apply", "--yes", "--wait", "90")
    counts = {topic: produce(pair, topic, kind, each_bytes, 1) for topic, kind in topics.items()}
    arrived(pair, counts)
    before = {topic: (log_bytes(pair.src, topic), log_bytes(pair.tgt, f"src.{topic}")) for topic in topics}
    store = str(tree.folder.parent / "samples")
    with tree.start("sample", "--store", store, "--interval", "1s", "--follow") as sampling:
        until(lambda: list(Path(store, "samples").glob("hour=*/*.parquet")), bool, "no sample", 60)
        for topic, kind in topics.items():
            counts[topic] += produce(pair, topic, kind, each_bytes, 2)
        arrived(pair, counts)
        until(lambda: list(Path(store, "stored_sizes").glob("day=*/*.parquet")), bool, "no size was measured", 60)
        seen = len(list(Path(store, "samples").glob("hour=*/*.parquet")))
        until(
            lambda: len(list(Path(store, "samples").glob("hour=*/*.parquet"))), lambda now: now > seen + 1, "no sample"
        )
        sampling.terminate()
        sampling.wait(30)
    tree.run("throughput", "--store", store, "--no-spark")
    report = tree.json("cost", "--store", store)
    lines = {line["name"].partition(":")[0]: line for line in report["lines"]}
    rows = {}
    for topic in topics:
        own = log_bytes(pair.src, topic) - before[topic][0], log_bytes(pair.tgt, f"src.{topic}") - before[topic][1]
        line = lines[topic]
        said = line["link_bytes"] / float(report["wire_factor"]), line["into_bytes"]
        rows[topic] = {"own": own, "said": said, "line": line}
        print(
            f"{topic}: " + ", ".join(f"{a:.0f} said, {b} own: {a / b - 1:+.2%}" for a, b in zip(said, own, strict=True))
        )
    return rows


def judge(rows: Mapping[str, Any]) -> None:
    for topic, row in rows.items():
        for said, own in zip(row["said"], row["own"], strict=True):
            assert abs(said / own - 1) < WITHIN, topic
        assert set(row["line"]["by_basis"]) == {"stored"}, topic
        said = row["line"]["link_bytes"] * 0.02e-9 + row["line"]["into_bytes"] * 0.05e-9
        (amount,) = row["line"]["amounts"]
        assert amount["currency"] == "EUR"
        assert float(amount["so_far"]) == pytest.approx(said, abs=1e-6)


def test_bytes_are_those_of_the_brokers_logs(pair: Pair, tree: Tree) -> None:
    rows = measured(pair, tree, GATE, 2_000_000)
    judge(rows)
    assert rows["packed"]["own"][0] < 0.7 * rows["plain"]["own"][0], (
        "the source keeps it compressed, the target does not"
    )
    assert rows["packed"]["own"][1] > 0.9 * rows["plain"]["own"][1]


@pytest.mark.matrix
def test_bytes_are_those_of_the_brokers_logs_for_every_codec_and_size(pair: Pair, tree: Tree) -> None:
    judge(measured(pair, tree, MATRIX, 2_000_000))
