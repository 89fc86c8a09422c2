"""Bytes of internal topics held against the classes of MirrorMaker itself, release by release, each in a JVM."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from mm2mgr.failover.syncs import Checkpoint, OffsetSync, parse_checkpoint, parse_offset_sync
from mm2mgr.files import cache_folder
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.jars import kafka_jars, locked_jars
from mm2mgr.sandbox.runtime import find_java
from tools.connect_plugin import compile_classes, find_javac

pytestmark = pytest.mark.spark  # needs Java, and the jars of Kafka
LOCK = Path(__file__).with_name("mirror-releases.lock")
RELEASES = sorted({line.split()[0].rpartition(":")[2] for line in LOCK.read_text().splitlines()})
"""Those whose MirrorMaker answers; everything else on the class path is of the sandbox's default line."""
SAMPLE = ("3.6.2", "4.3.1")


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    javac = find_javac()
    if javac is None:
        pytest.skip("needs a JDK: there is no javac beside the Java that is used")
    folder = tmp_path_factory.mktemp("harness")
    paths = _class_path("3.6.2", folder)  # later ones have records, which need a newer Java
    compile_classes(javac, [Path(__file__).with_name("KafkaOffsetSyncs.java")], paths, folder)
    return folder


@pytest.mark.parametrize(
    "release",
    [release if release in SAMPLE else pytest.param(release, marks=pytest.mark.matrix) for release in RELEASES],
)
def test_bytes_are_those_of_mirrormaker(release: str, tmp_path: Path, harness: Path) -> None:
    randomness = random.Random(37)
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
        *(f"sync\t{s.partition.topic}\t{s.partition.partition}\t{s.upstream}\t{s.downstream}" for s in syncs),
        *(
            f"checkpoint\t{c.group}\t{c.partition.topic}\t{c.partition.partition}\t{c.upstream}\t{c.downstream}\t{c.metadata}"
            for c in checkpoints
        ),
    ]
    answers = _ask_kafka(lines, _class_path(release, harness), tmp_path)
    records = [tuple(map(bytes.fromhex, answer.split("\t"))) for answer in answers]
    assert [parse_offset_sync(key, value) for key, value in records[: len(syncs)]] == syncs
    assert [parse_checkpoint(key, value) for key, value in records[len(syncs) :]] == checkpoints


def _class_path(release: str, harness: Path) -> list[Path]:
    """Return the jars of a release's MirrorMaker before those of the sandbox's line."""
    lock = harness / f"{release}.lock"
    lock.write_text("".join(line for line in LOCK.read_text().splitlines(True) if f":{release} " in line))
    own = locked_jars(lock, cache_folder() / "mirror-releases" / release)
    return [*own, *(jar for jar in kafka_jars() if not jar.name.startswith("connect-mirror")), harness]


def _ask_kafka(lines: Sequence[str], paths: Sequence[Path], folder: Path) -> list[str]:
    """Let one JVM answer all lines, as KafkaOffsetSyncs.java describes them."""
    asked, answered = folder / "cases", folder / "answers"
    asked.write_text("".join(f"{line}\n" for line in lines))
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-cp", ":".join(map(str, paths))]
    command = [str(find_java().java), *options, "org.apache.kafka.connect.mirror.KafkaOffsetSyncs"]
    done = subprocess.run(
        [*command, str(asked), str(answered)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return answered.read_text().split("\n")[:-1]
