"""The pages on failovers, walked: each command that they name, in their order, on real brokers."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

import pytest

from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.groups import group_offsets
from mm2mgr.kafka.records import commit_group
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.runtime import Runtime
from tests.docs.test_documents import DOCUMENTS, FENCE

from .command import Tree
from .pair import Pair, serving_pair
from .seen import Message, create, until, values, write

pytestmark = [pytest.mark.live, pytest.mark.matrix]
TOPIC, GROUP = "orders", "billing"
ALL = [TopicPartition(TOPIC, 0)]


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path_factory.mktemp("pages"), runtime, workers=["w"]) as pair:
        yield pair


def commands(page: str, name: str) -> list[list[str]]:
    """Return the arguments of a page's commands of failover, for the pair of these brokers."""
    text = DOCUMENTS[f"docs/how-to/{page}.md"]
    lines = [line for match in FENCE.finditer(text) if match["kind"] == "sh" for line in match["body"].splitlines()]
    return [
        [word.replace(name, "src->tgt") for word in shlex.split(line, comments=True)[1:]]
        for line in lines
        if line.strip().startswith("mm2mgr failover")
    ]


def produce(pair: Pair, side: str, first: int, end: int) -> None:
    access = pair.source if side == "source" else pair.target
    write(access, TOPIC, [Message(0, None, f"{number}".encode()) for number in range(first, end)])


def ids(pair: Pair, side: str) -> Counter[int]:
    return Counter(int(value or b"") for value in values(pair.source if side == "source" else pair.target, TOPIC))


def mirror(pair: Pair, tree: Tree) -> None:
    more = "replication_policy: identity, heartbeats: false, checkpoints: {group_offsets: true, interval: 1s}, "
    flows = (
        f"  there: {{sources: [src], targets: [tgt], topics: {{include: [{TOPIC}]}}}}\n"
        f"  back: {{sources: [tgt], targets: [src], run_on: pair, topics: {{include: [{TOPIC}]}}, state: stopped}}\n"
    )
    create(pair.source, [TOPIC])
    tree.write(pair.yaml("test", flows, more))
    tree.run("apply", "--yes")
    produce(pair, "source", 0, 300)
    commit_group(pair.source, GROUP, {ALL[0]: 300})
    until(lambda: len(ids(pair, "target")), lambda count: count == 300, "nothing arrives")


def offset_on_target(pair: Pair) -> int:
    with Kafka(pair.target) as kafka:
        return group_offsets(kafka, [GROUP]).offsets[GROUP][ALL[0]]


def test_planned_and_back(pair: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))
    mirror(pair, tree)
    *looks, run = commands("failover-planned", "dc1-logging->agg-east")
    assert [words[1] for words in (*looks, run)] == ["check", "plan", "run", "run"]
    for words in looks:
        assert "GO" in tree.attempt(*words), words
    assert "done: src->tgt: 1 group" in tree.run(*run, "--yes", "--producers-stopped", "--quiet-for", "1s")
    assert offset_on_target(pair) == 300

    produce(pair, "target", 300, 340)
    for words in commands("failover-back", "dc1->agg"):
        is_write = words[-1] in {"--apply", "--start"}
        print(tree.run(*words, *(["--yes"] if is_write else [])))
    until(lambda: len(ids(pair, "source")), lambda count: count >= 340, "nothing comes back")
    produce(pair, "target", 340, 360)
    until(lambda: len(ids(pair, "source")), lambda count: count >= 360, "nothing comes back")
    assert ids(pair, "source") == ids(pair, "target") == Counter(range(360))


def test_the_source_is_gone(pair: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))
    mirror(pair, tree)
    until(
        lambda: tree.json("failover", "check", "src->tgt", "--translated")["verdict"]["word"],
        lambda word: word in {"GO", "GO WITH"},
        "never ready",
    )
    pair.src.kill()
    plan, run = commands("failover-disaster", "dc1-logging->agg-east")
    assert "lost" in tree.attempt(*plan)
    assert "done: src->tgt: 1 group" in tree.attempt(*run, "--yes", "--timeout", "90s")
    assert offset_on_target(pair) <= 300
    assert ids(pair, "target") == Counter(range(300))
