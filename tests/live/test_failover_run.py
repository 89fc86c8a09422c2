"""`failover run` on real brokers where something goes wrong: killed, a producer that goes on, members on the target, a dead source."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from mm2mgr.kafka.access import librdkafka_config
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.groups import alter_group_offsets, group_offsets
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.runtime import Runtime

from .command import Tree
from .moving_groups import consume, missing_and_twice, traffic
from .pair import Pair, flow, serving_pair
from .seen import create, rest, until

pytestmark = [pytest.mark.live, pytest.mark.matrix]
OF_GROUPS = ", checkpoints: {group_offsets: true, interval: 1s}"
RUN = ("failover", "run", "src->tgt", "--yes", "--producers-stopped")
STAGES = ("check all groups", "nobody writes", "stop the connectors", "note where the logs", "write the offsets")


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path_factory.mktemp("failover"), runtime, workers=["w"]) as pair:
        yield pair


def states(pair: Pair) -> dict[str, str]:
    shown = rest("GET", f"{pair.url}/connectors?expand=status")
    return {name: status["status"]["connector"]["state"] for name, status in shown.items() if "heartbeat" not in name}


def apply(pair: Pair, tree: Tree, topics: list[str]) -> None:
    create(pair.source, topics)
    tree.write(pair.yaml("mover", flow("moved", f"'{'|'.join(topics)}'", OF_GROUPS)))
    tree.run("apply", "--yes")


def kill_at(tree: Tree, line: str) -> str:
    """Start a run, kill it at a line of its progress, and return what it printed until then."""
    told = ""
    with tree.start(*RUN, "--quiet-for", "1s") as running:
        assert running.stderr
        for text in running.stderr:
            told += text
            if line in text:
                break
        running.kill()
    return told


def test_killed_at_every_stage_and_run_again_it_comes_to_the_same_end(
    pair: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))
    topics = ["orders", "bills"]
    apply(pair, tree, topics)
    with traffic(pair.source, topics) as written:
        until(lambda: len(written.stored.get("bills", ())), lambda count: count > 1_000, "nobody writes")
        read = {
            group: consume(pair.source, group, topics, count, "earliest") for group, count in (("a", 300), ("b", 1))
        }

        going_on = tree.run(*RUN, "--quiet-for", "2s", "--timeout", "5s", code=1)
        assert "still written: " in going_on
        assert "orders-0 (+" in going_on
        assert set(states(pair).values()) == {"RUNNING"}

    member = confluent_kafka.Consumer({**librdkafka_config(pair.target), "group.id": "a", "session.timeout.ms": 6000})
    member.subscribe(["src.orders"])
    until(lambda: (member.poll(0.2), len(member.assignment()))[1], lambda count: count == 1, "no member")
    assert "has members on the target" in tree.run(*RUN, code=1)
    with Kafka(pair.target) as kafka:
        before = group_offsets(kafka, ["a"])
        assert alter_group_offsets(kafka, {"a": {TopicPartition("src.orders", 0): 3}}) == {
            "a": ("has members now", False)
        }
        assert group_offsets(kafka, ["a"]) == before
    member.close()
    assert set(states(pair).values()) == {"RUNNING"}

    for line in STAGES[:3]:
        kill_at(tree, line)
    told = tree.run("failover", "run", "src->tgt", "--abandon", "--yes")
    assert "abandoned" in told
    until(lambda: states(pair), lambda shown: set(shown.values()) == {"RUNNING"}, "not back")
    for line in STAGES:
        print(kill_at(tree, line))
    done = tree.attempt(*RUN, "--quiet-for", "1s")
    assert "done: src->tgt: 2 groups at the offsets to go on from" in done, done
    assert set(states(pair).values()) == {"STOPPED"}
    for group, ids in read.items():
        ids.extend(consume(pair.target, group, [f"src.{topic}" for topic in topics]))
        for topic in topics:
            own = [name for name in ids if name.startswith(topic)]
            assert missing_and_twice(written.stored[topic], own) == ([], []), group
    tree.run("apply", "--yes")
    tree.run("reconcile", "--once")
    assert set(states(pair).values()) == {"STOPPED"}


@pytest.mark.parametrize("workers", ["alive", "dead"])
def test_a_disaster_loses_no_more_than_is_named_and_skips_nothing(
    workers: str, pair: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))
    topics = ["orders", "bills"]
    apply(pair, tree, topics)
    with traffic(pair.source, topics) as written:
        until(lambda: len(written.stored.get("bills", ())), lambda count: count > 1_000, "nobody writes")
        read = {
            group: consume(pair.source, group, topics, count, "earliest") for group, count in (("a", 300), ("b", 1))
        }
        looked_at = {topic: len(written.stored[topic]) for topic in topics}
        check = tree.json("failover", "check", "src->tgt", "--translated")
        assert check["verdict"]["word"] == "GO WITH", check["verdict"]
        time.sleep(1)
        pair.src.kill()
        written.end()
    if workers == "dead":
        for worker in pair.workers:
            worker.kill()
    named = tree.json("failover", "plan", "src->tgt", "--disaster")
    print(named["lost"], named["verdict"])
    told = tree.attempt(*RUN[:4], "--disaster", "--timeout", "90s")
    print(told)
    assert "done: src->tgt: 2 groups at the offsets to go on from" in told
    assert ("whether its workers still run" in told) == (workers == "dead")
    there = {topic: set(consume(pair.target, "everything", [f"src.{topic}"], reset="earliest")) for topic in topics}
    since = sum(len(written.stored[topic]) - looked_at[topic] for topic in topics)
    lost = sum(len(set(written.stored[topic]) - there[topic]) for topic in topics)
    most = int(named["lost"].removeprefix("at most ").split()[0].replace(",", ""))
    print(f"lost {lost}, named {most}, written since the look {since}")
    assert lost <= most + since
    for group, ids in read.items():
        ids.extend(consume(pair.target, group, [f"src.{topic}" for topic in topics]))
        for topic in topics:
            own = [name for name in ids if name.startswith(topic)]
            assert missing_and_twice(there[topic], own)[0] == [], group
