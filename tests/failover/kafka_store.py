"""What OffsetSyncStore of any release answers, asked in a JVM of its own, and random sequences of syncs to ask about."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mm2mgr.failover.syncs import OffsetSync
from mm2mgr.failover.translation import translate_as_kafka
from mm2mgr.files import cache_folder
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.jars import kafka_jars, locked_jars
from mm2mgr.sandbox.runtime import find_java

PARTITION = TopicPartition("t", 0)
LOCK = Path(__file__).with_name("mirror-releases.lock")
RELEASES = sorted({line.split()[0].rpartition(":")[2] for line in LOCK.read_text().splitlines()})
"""Those whose MirrorMaker answers; everything else on the class path is of the sandbox's default line."""


@dataclass(frozen=True)
class Case:
    """Syncs of a partition in the order of their topic, how many were there at the task's start, offsets to translate."""

    syncs: tuple[tuple[int, int], ...]
    started_at: int
    read_checkpoints: bool
    offsets: tuple[int, ...]

    def line(self) -> str:
        syncs = ",".join(f"{upstream}:{downstream}" for upstream, downstream in self.syncs)
        read = str(self.read_checkpoints).lower()
        return f"translate\t{self.started_at}\t{read}\t{syncs}\t{','.join(map(str, self.offsets))}"

    def answer(self, release: str) -> str:
        syncs = [OffsetSync(PARTITION, *pair) for pair in self.syncs]
        answers = [
            translate_as_kafka(release, offset, syncs, self.started_at, read_checkpoints=self.read_checkpoints)
            for offset in self.offsets
        ]
        return ",".join("-" if offset is None else str(offset) for offset in answers)


def random_cases(randomness: random.Random, count: int) -> Iterator[Case]:
    """Yield sequences with even, uneven, doubling and no distances, with records mirrored twice, near both ends of the
    offsets that there are."""
    for _ in range(count):
        upstream = randomness.choice((0, 0, 1, randomness.randrange(10**6), 2**40, 2**60))
        downstream = randomness.choice((0, upstream, randomness.randrange(10**6)))
        steps = randomness.choice(((1,), (1, 100), (0, 1, 2, 100, 101), (2, 4, 64, 2**20, 2**32), range(1, 3000)))
        rewinds = randomness.choice((0.0, 0.0, 0.02, 0.3))
        syncs = []
        for _ in range(randomness.choice((0, 1, 2, 5, 30, 120))):
            syncs.append((upstream, downstream))
            step = randomness.choice(steps)
            upstream += step
            downstream += max(0, step - randomness.choice((0, 0, 1, step // 2)))
            if randomness.random() < rewinds:
                upstream = max(0, upstream - randomness.choice((1, 2, 150, 10**7)))
            if upstream > 2**61:
                upstream = randomness.randrange(1000)
        yield Case(
            tuple(syncs),
            randomness.choice((0, len(syncs) // 2, randomness.randint(0, len(syncs)), len(syncs))),
            randomness.random() < 0.5,
            tuple(sorted(_offsets_near(randomness, syncs))),
        )


def _offsets_near(randomness: random.Random, syncs: Sequence[tuple[int, int]]) -> set[int]:
    offsets = {0, 7, 2**61 + 5}
    for upstream, _ in randomness.sample(syncs, min(8, len(syncs))):
        offsets |= {max(0, upstream + difference) for difference in (-1, 0, 1, randomness.randrange(-200, 200))}
    return offsets


def class_path(release: str, harness: Path) -> list[Path]:
    """Return the jars of a release's MirrorMaker before those of the sandbox's line."""
    lock = harness / f"{release}.lock"
    lock.write_text("".join(line for line in LOCK.read_text().splitlines(True) if f":{release} " in line))
    own = locked_jars(lock, cache_folder() / "mirror-releases" / release)
    return [*own, *(jar for jar in kafka_jars() if not jar.name.startswith("connect-mirror")), harness]


def ask_kafka(lines: Sequence[str], paths: Sequence[Path], folder: Path) -> list[str]:
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
