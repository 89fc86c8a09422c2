"""The plugin's jar: built from its sources, byte for byte, and what its `taskConfigs` answers on each line of Kafka."""

from __future__ import annotations

import os
import random
import re
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from mm2mgr.assignment_text import (
    ASSIGNMENT_KEY,
    DIGEST_KEY,
    LONGEST,
    PLUGIN_CLASS,
    VERSION,
    AssignmentRefused,
    digest,
    read_text,
)
from mm2mgr.operations.plugin import PLUGIN_JAR
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.jars import DEFAULT_VERSION, kafka_jars
from tools.connect_plugin import SOURCES, build, compile_classes, find_javac

from .plugin_cases import (
    Case,
    ask_plugin,
    damaged,
    random_assignment,
    random_cases,
    random_partitions,
)

SEED = int(os.environ.get("MM2MGR_PLUGIN_SEED", "36"))
FIRST = "version=1;rates=10+20;unlisted=5"
SUPPORTED = ("3.6.2", "3.9.2", "4.0.2", "4.3.1")
pytestmark = pytest.mark.spark  # needs Java, and the jars of Kafka
LINES = [
    pytest.param(DEFAULT_VERSION, 400, id="sample"),
    *(pytest.param(version, 5000, id=version, marks=pytest.mark.matrix) for version in SUPPORTED),
]


@pytest.fixture(scope="session")
def javac() -> Path:
    found = find_javac()
    if found is None:
        pytest.skip("needs a JDK: there is no javac beside the Java that is used")
    return found


@pytest.fixture(scope="session")
def harness(javac: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("harness")
    compile_classes(javac, [Path(__file__).with_name("TaskConfigs.java")], kafka_jars(), folder)
    return folder


def test_its_names_are_those_of_the_sources() -> None:
    with zipfile.ZipFile(PLUGIN_JAR) as jar:
        service = jar.read("META-INF/services/org.apache.kafka.connect.source.SourceConnector").decode()
        assert f"{PLUGIN_CLASS.replace('.', '/')}.class" in jar.namelist()
    assert service.strip() == PLUGIN_CLASS
    java = "".join(path.read_text() for path in SOURCES.rglob("*.java"))
    assert f'"{ASSIGNMENT_KEY}"' in java
    assert f'"{DIGEST_KEY}"' in java
    assert f"VERSION = {VERSION};" in java
    assert f"LONGEST = {LONGEST:_};" in java
    assert sum(len(path.read_text().splitlines()) for path in SOURCES.rglob("*") if path.is_file()) <= 250


def test_the_jar_is_what_its_sources_give(javac: Path) -> None:
    assert build(javac, kafka_jars()) == PLUGIN_JAR.read_bytes(), "run: python -m tools.connect_plugin"


@pytest.mark.parametrize(("version", "count"), LINES)
def test_each_partition_is_in_exactly_one_task_always(version: str, count: int, tmp_path: Path, harness: Path) -> None:
    """Of its own, old and foreign assignments, while topics appear, grow and go; and Python knows which task."""
    five = tuple(TopicPartition("t", number) for number in (2, 0, 1, 4, 3))
    cases = random_cases(random.Random(SEED), count)
    stock, *answers = ask_plugin([Case("none", 2, five), *cases], kafka_jars(version), harness, tmp_path)
    assert [[number for _, number in task] for _, task in stock.tasks] == [[2, 1, 3], [0, 4]], "without an assignment"
    assert stock.added == "{}"
    for case, answer in zip(cases, answers, strict=True):
        plugin = read_text(case.text)
        held = [partition for partition in case.partitions if plugin.goal(partition) == "hold"]
        carried = Counter(partition for _, partitions in answer.tasks for partition in partitions)
        assert carried == Counter(case.partitions) - Counter(held), case
        assert all(partitions for _, partitions in answer.tasks), case
        assert [index for index, _ in answer.tasks] == [str(place) for place in range(len(answer.tasks))]
        assert len(answer.tasks) <= case.tasks_max
        assert answer.assignment == plugin.tasks(case.partitions, case.tasks_max), case
        if answer.tasks:
            assert answer.added == f"{{{DIGEST_KEY}={digest(case.text)}}}"
        too_few = case.tasks_max < len(plugin.rates)
        assert answer.verdict.startswith("refused by validate: [mm2mgr.assignment has" if too_few else "started"), (
            answer
        )


@pytest.mark.parametrize(("version", "count"), LINES)
def test_both_sides_refuse_the_same_texts(version: str, count: int, tmp_path: Path, harness: Path) -> None:
    """Also validate refuses what start refuses, so that Connect answers 400 and the tasks go on."""
    randomness = random.Random(SEED)
    texts = [random_assignment(randomness, random_partitions(randomness)).text for _ in range(count)]
    texts = [damaged(randomness, text) if randomness.random() < 0.9 else text for text in texts]
    texts += [
        "",
        "version=1",
        f"{FIRST};",
        f"{FIRST};t",
        f"{FIRST};t:",
        f"{FIRST};t:0",
        f"{FIRST};t:0@2",
        f"{FIRST};t:1-0@0",
    ]
    texts += [f"{FIRST};t:0@0;t:1@1", f"{FIRST};t:0-4@0+4@1", f"{FIRST};t,u:0@0", f"{FIRST};t:999999999@hold"]
    texts += [f"{FIRST};t:1000000000@0", FIRST + f";{'t' * 300}:0@0", FIRST]
    texts += ["version=2;anything", "version=1;rates=;unlisted=1", "version=1;rates=1;unlisted=0", f" {FIRST};t:0@1\n"]
    texts += [FIRST + ";t:0@0" + " " * LONGEST, FIRST + ";t:0@0" + "0" * LONGEST]
    cases = [Case(text, 99, (TopicPartition("t", 0),)) for text in texts]
    answers = ask_plugin(cases, kafka_jars(version), harness, tmp_path)
    refused = 0
    for case, answer in zip(cases, answers, strict=True):
        reason = refusal(case.text)
        if not reason:
            assert answer.verdict == "started", (case, answer)
            assert answer.assignment == read_text(case.text).tasks(case.partitions, 99)
            continue
        refused += 1
        assert answer.verdict == "refused", (case, answer)
        assert answer.added.startswith("also by validate: "), answer
        if "of version" not in reason and "[hidden]" not in reason:  # errors of mm2mgr hide what looks like a login
            assert answer.added.removeprefix("also by validate: ") == re.sub(r"[\t\n]", " ", reason)
    assert count / 5 < refused < len(texts)


def refusal(text: str) -> str:
    try:
        read_text(text)
    except AssignmentRefused as error:
        return error.message
    return ""
