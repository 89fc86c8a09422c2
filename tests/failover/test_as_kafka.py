"""Translation and bytes held against the classes of MirrorMaker itself, release by release, each in a JVM."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from mm2mgr.failover.syncs import Checkpoint, OffsetSync, parse_checkpoint, parse_offset_sync
from mm2mgr.partitions import TopicPartition
from tools.connect_plugin import compile_classes, find_javac

from .kafka_store import RELEASES, ask_kafka, class_path, random_cases

SEED = int(os.environ.get("MM2MGR_SYNCS_SEED", "37"))
pytestmark = pytest.mark.spark  # needs Java, and the jars of Kafka
SAMPLE = ("3.6.2", "4.3.1")
RUNS = [
    *(pytest.param(release, 300, id=f"{release}-sample") for release in SAMPLE),
    *(pytest.param(release, 10_000, id=release, marks=pytest.mark.matrix) for release in RELEASES),
]


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    javac = find_javac()
    if javac is None:
        pytest.skip("needs a JDK: there is no javac beside the Java that is used")
    folder = tmp_path_factory.mktemp("harness")
    paths = class_path("3.6.2", folder)  # later ones have records, which need a newer Java
    compile_classes(javac, [Path(__file__).with_name("KafkaOffsetSyncs.java")], paths, folder)
    return folder


@pytest.mark.parametrize(("release", "count"), RUNS)
def test_offsets_and_bytes_are_those_of_mirrormaker(release: str, count: int, tmp_path: Path, harness: Path) -> None:
    """Whatever the order of syncs, and wherever among them the checkpoint task was started."""
    randomness = random.Random(SEED)
    cases = list(random_cases(randomness, count))
    names = ("t", "orders-2", "x" * 249, "A.B_c", "größe", "組", "a\u0000b")
    syncs = [
        OffsetSync(TopicPartition(randomness.choice(names), randomness.choice((0, 3, 2**31 - 1))), offset, offset // 2)
        for offset in (0, 1, 2**31, 2**63 - 1)
    ]
    checkpoints = [
        Checkpoint(randomness.choice(names), sync.partition, sync.upstream, sync.downstream, metadata)
        for sync in syncs
        for metadata in ("", "committed by hand", "é" * 4096)
    ]
    lines = [
        *(case.line() for case in cases),
        *(f"sync\t{s.partition.topic}\t{s.partition.partition}\t{s.upstream}\t{s.downstream}" for s in syncs),
        *(
            f"checkpoint\t{c.group}\t{c.partition.topic}\t{c.partition.partition}\t{c.upstream}\t{c.downstream}\t{c.metadata}"
            for c in checkpoints
        ),
    ]
    answers = ask_kafka(lines, class_path(release, harness), tmp_path)
    for case, kafka in zip(cases, answers, strict=False):
        assert case.answer(release) == kafka, case
    records = [tuple(map(bytes.fromhex, answer.split("\t"))) for answer in answers[count:]]
    assert [parse_offset_sync(key, value) for key, value in records[: len(syncs)]] == syncs
    assert [parse_checkpoint(key, value) for key, value in records[len(syncs) :]] == checkpoints
    assert any("-" in answer for answer in answers[:count])
