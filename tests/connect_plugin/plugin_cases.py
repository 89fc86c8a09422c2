"""Random assignments and random partitions for the plugin, and what its JVM answers to them."""

from __future__ import annotations

import base64
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mm2mgr.assignment import Assignment, parse_assigned
from mm2mgr.assignment_text import PLUGIN_CLASS, PluginAssignment
from mm2mgr.operations.plugin import PLUGIN_JAR
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.runtime import find_java

NAMES = ("orders", "orders-2", "a.b_c-1", "0", "hold", "version", "x" * 249, "A.B", "a-1", "9-9")


@dataclass(frozen=True)
class Case:
    """A text in the connector's config, `tasks.max`, and the partitions that MirrorMaker lists now, in its order."""

    text: str
    tasks_max: int
    partitions: tuple[TopicPartition, ...]

    def line(self) -> str:
        text = base64.b64encode(self.text.encode("utf-8", "surrogatepass")).decode()
        return f"{text}\t{self.tasks_max}\t{','.join(map(str, self.partitions))}"


@dataclass(frozen=True)
class Answer:
    """What the plugin did: refused (with its message), or the tasks by index, and what it added to the configs."""

    verdict: str
    added: str
    tasks: tuple[tuple[str, tuple[TopicPartition, ...]], ...]

    @property
    def assignment(self) -> Assignment:
        return Assignment(tuple(partitions for _, partitions in self.tasks))


def random_partitions(randomness: random.Random) -> list[TopicPartition]:
    """Return all partitions of some topics, in any order."""
    topics = {name: randomness.choice((1, 2, 3, 8, 40)) for name in randomness.sample(NAMES, randomness.randint(0, 6))}
    partitions = [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]
    randomness.shuffle(partitions)
    return partitions


def random_assignment(randomness: random.Random, partitions: Sequence[TopicPartition]) -> PluginAssignment:
    """Return an assignment of some partitions to some tasks, some of them idle, and some partitions held."""
    tasks: list[list[TopicPartition]] = [[] for _ in range(randomness.randint(1, 9))]
    listed_share, held_share = randomness.choice((0.0, 0.5, 1.0)), randomness.choice((0.0, 0.0, 0.2, 1.0))
    for partition in partitions:
        if randomness.random() < listed_share:
            randomness.choice(tasks).append(partition)
    held = [partition for partition in partitions if randomness.random() < held_share]
    rates = [randomness.choice((0, 1, 1000, 10**9)) for _ in tasks]
    return PluginAssignment.build(Assignment(tuple(map(tuple, tasks))), rates, randomness.choice((1, 500, 10**6)), held)


def random_cases(randomness: random.Random, count: int) -> list[Case]:
    """Return flows whose topics appear, grow and go under one assignment: its own, an old one, or that of another flow."""
    cases: list[Case] = []
    while len(cases) < count:
        partitions = random_partitions(randomness)
        text = random_assignment(randomness, partitions).text
        for _ in range(randomness.randint(1, 4)):
            cases.append(Case(text, randomness.randint(1, 10), tuple(partitions)))
            partitions = [partition for partition in partitions if randomness.random() < 0.8]
            fresh = [partition for partition in random_partitions(randomness) if partition not in partitions]
            partitions = [*partitions, *fresh[: randomness.randint(0, 20)]]
            randomness.shuffle(partitions)
    return cases[:count]


def damaged(randomness: random.Random, text: str) -> str:
    """Return a text with one to three characters altered, doubled or taken out, or with two of its parts exchanged."""
    for _ in range(randomness.randint(1, 3)):
        place = randomness.randrange(len(text) + 1)
        what = randomness.choice((*"0123456789@+-:;=,. \n\thold", "٣", "@hold", "+0@0", "", ";", "version=2;"))
        text = text[:place] + what + text[place + randomness.randint(0, 1) :]
    return text


def ask_plugin(cases: Sequence[Case], jars: Sequence[Path], harness: Path, folder: Path) -> list[Answer]:
    """Let one JVM with these jars of Kafka and the shipped plugin answer all cases."""
    asked, answered = folder / "cases", folder / "answers"
    asked.write_text("".join(f"{case.line()}\n" for case in cases))
    paths = ":".join(map(str, [*jars, PLUGIN_JAR, harness]))
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-cp", paths]
    command = [str(find_java().java), *options, "TaskConfigs", PLUGIN_CLASS, str(asked), str(answered)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [_answer(line) for line in answered.read_text().split("\n")[:-1]]


def _answer(line: str) -> Answer:
    verdict, added, *tasks = line.split("\t")
    if verdict == "refused":
        return Answer(verdict, f"{added}: {' '.join(tasks)}", ())
    split = (task.partition("=") for task in tasks)
    return Answer(verdict, added, tuple((index, parse_assigned(assigned)) for index, _, assigned in split))
