"""`failover run` on real brokers where something goes wrong: killed, a producer that goes on, members on the target, a dead source."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from mm2mgr.apply.failover_run import RunOrder, StageError
from mm2mgr.apply.failover_writes import FailoverWriter
from mm2mgr.kafka.access import librdkafka_config
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.groups import alter_group_offsets, group_offsets
from mm2mgr.kafka.records import commit_group
from mm2mgr.operations import FailoverHow, failover_run
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import Runtime, kafka_runtime
from tests.truth.test_bugs_live import runtime as worker_runtime

from .command import Tree
from .conftest import WORKER, serving
from .moving_groups import consume, missing_and_twice, traffic
from .pair import Pair, flow, serving_pair
from .seen import create, end_offset, rest, until, write_values

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

    member = confluent_kafka.Consumer({**librdkafka_config(pair.target), "group.id": "a"})
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


REMOTE = TopicPartition("src.orders", 0)


def settle(pair: Pair, tree: Tree, groups: dict[str, int], checkpoints: str = ", checkpoints: {interval: 1s}") -> None:
    """Mirror 300 records of `orders`, groups having read some of them, and apply the tree; nobody else writes groups."""
    create(pair.source, ["orders"])
    write_values(pair.source, "orders", *(b"first-%d" % number for number in range(300)))
    for group, offset in groups.items():
        commit_group(pair.source, group, {TopicPartition("orders", 0): offset})
    tree.write(pair.yaml("mover", flow("moved", "orders", checkpoints)))
    tree.run("apply", "--yes")
    until(lambda: end_offset(pair.target, REMOTE.topic), lambda end: end == 300, "nothing arrives")


def on_target(pair: Pair, *groups: str) -> dict[str, int]:
    with Kafka(pair.target) as kafka:
        found = group_offsets(kafka, list(groups)).offsets
    return {group: places[REMOTE] for group, places in found.items() if REMOTE in places}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_member_that_joins_while_groups_are_written_is_told_and_the_next_run_ends_it(
    moment: str, pair: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the members and the write, and between the write and the look after it."""
    monkeypatch.chdir(tree.folder.parent)
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))
    settle(pair, tree, {"a": 120, "b": 200})
    alter = FailoverWriter._alter
    members: list[confluent_kafka.Consumer] = []

    def join() -> None:
        settings = {"group.id": "a", "enable.auto.commit": False}
        member = confluent_kafka.Consumer({**librdkafka_config(pair.target), **settings})
        members.append(member)
        member.subscribe(["src.orders"])
        until(lambda: (member.poll(0.2), len(member.assignment()))[1], lambda count: count == 1, "no member")

    def alter_with_member(writer: FailoverWriter, offsets: object) -> object:
        if moment == "before" and not members:
            join()
        refused = alter(writer, offsets)  # type: ignore[arg-type]
        if moment == "after" and not members:
            join()
        return refused

    monkeypatch.setattr(FailoverWriter, "_alter", alter_with_member)
    order, how = RunOrder(quiet_seconds=1.0, timeout_seconds=30.0), FailoverHow(ask=lambda *_: True)
    with pytest.raises(StageError, match="a: a member joined") as told:
        failover_run(tree.workspace(), "src->tgt", order, how)
    print(told.value)
    assert on_target(pair, "a", "b") == ({"b": 200} if moment == "before" else {"a": 120, "b": 200})
    members[0].close()
    until(
        lambda: rest("GET", f"{pair.url}/connectors/mm2.src.tgt.source.moved/status")["connector"]["state"],
        "STOPPED".__eq__,
    )
    print(tree.run(*RUN, "--quiet-for", "1s"))
    assert on_target(pair, "a", "b") == {"a": 120, "b": 200}
    assert missing_and_twice(
        [f"first-{number}" for number in range(120, 300)], consume(pair.target, "a", ["src.orders"])
    ) == ([], [])


def test_a_cutoff_is_waited_for_and_then_it_goes_on(pair: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))
    settle(pair, tree, {"a": 120})
    late = time.time() + 20
    cutoff = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(late))
    command = (*RUN[:4], "--cutoff", cutoff, "--quiet-for", "2s", "--timeout", "60s")
    with traffic(pair.source, ["orders"]) as written, tree.start(*command) as running:
        assert running.stderr
        told = ""
        for line in running.stderr:
            told += line
            if " left" in line:
                break
        assert states(pair)["mm2.src.tgt.source.moved"] == "RUNNING"
        time.sleep(max(0.0, late - 1 - time.time()))
        written.end()
        out, rest_of_it = running.communicate(timeout=90)
    told += rest_of_it
    print(told, out)
    ended = time.time()
    assert running.returncode == 0, told
    assert ended >= int(late)
    assert "the time has come" in told
    assert "done: src->tgt: 1 group" in out
    ids = [f"first-{number}" for number in range(120, 300)] + written.stored["orders"]
    assert missing_and_twice(ids, consume(pair.target, "a", ["src.orders"])) == ([], [])


@pytest.fixture
def old_pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    """Workers of 3.2: they do not stop, and do not tell their stored offsets (KIP-875)."""
    folder = tmp_path_factory.mktemp("old")
    src, tgt = (Broker(name, folder / name, runtime=kafka_runtime("3.9.2")) for name in ("src", "tgt"))
    with serving([src, tgt]):
        settings = WORKER | {"group.id": "pair"}
        old = Worker("w", folder / "w", tgt.bootstrap_servers, settings, runtime=worker_runtime("3.2.0"))
        with serving([old]):
            yield Pair(src, tgt, (old,))


def test_workers_that_do_not_tell_their_offsets_are_refused_and_in_a_disaster_paused(
    old_pair: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))
    settle(old_pair, tree, {"a": 120, "b": 300})
    found = until(
        lambda: tree.json("failover", "check", "src->tgt", "--translated"),
        lambda found: len(found["groups"]) == 2,
        "no groups",
    )
    reason = "workers of Kafka 3.2.0 do not tell how far they have mirrored: 3.5 and newer do (KIP-875)"
    assert found["verdict"]["word"] == "not judged"
    assert reason in found["verdict"]["reasons"][0]
    told = tree.run(*RUN, "--quiet-for", "1s", "--timeout", "20s", code=1)
    assert reason in told
    assert "nothing was written" in told
    assert (set(states(old_pair).values()), on_target(old_pair, "a", "b")) == ({"RUNNING"}, {})
    told = tree.attempt(*RUN[:4], "--disaster", "--timeout", "60s")
    print(told)
    assert set(states(old_pair).values()) == {"PAUSED"}
    start = on_target(old_pair, "a", "b")
    print(start)
    assert 0 <= start["a"] <= 120
    assert 0 <= start.get("b", 300) <= 300
