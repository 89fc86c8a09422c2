"""`failover back` on real brokers: there and back, each id once on both sides in the end, no loop, lost ones listed."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.sandbox.runtime import Runtime

from .command import Tree
from .pair import Pair, serving_pair
from .seen import Message, connector_url, create, rest, topics, until, values, write

pytestmark = pytest.mark.live
TOPIC, PARTITIONS = "orders", 2
THERE, BACK = "mm2.src.tgt.source.there", "mm2.tgt.src.source.back"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path_factory.mktemp("failback"), runtime, workers=["w"]) as pair:
        yield pair


def tree_of(pair: Pair, topic: str, there: str = "", back: str = ", state: stopped", policy: str = "identity") -> str:
    more = f"replication_policy: {policy}, heartbeats: false, checkpoints: {{interval: 1s}}, "
    flows = (
        f"  there: {{sources: [src], targets: [tgt], topics: {{include: [{topic}]}}{there}}}\n"
        f"  back: {{sources: [tgt], targets: [src], run_on: pair, topics: {{include: [{topic}]}}{back}}}\n"
    )
    return pair.yaml("test", flows, more)


def produce(access: KafkaAccess, topic: str, *ids: str) -> None:
    write(access, topic, [Message(number % PARTITIONS, None, name.encode()) for number, name in enumerate(ids)])


def named(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def ids(access: KafkaAccess, topic: str) -> Counter[str]:
    return Counter((value or b"").decode() for value in values(access, topic))


def until_there(access: KafkaAccess, topic: str, wanted: list[str]) -> None:
    until(lambda: set(wanted) - set(ids(access, topic)), lambda missing: not missing, "missing")


def back(tree: Tree, *arguments: str) -> Any:
    return tree.json("failover", "back", *arguments)


def lost_count(tree: Tree, pair: str, topic: str) -> int:
    return sum(part["count"] for part in back(tree, pair, "--lost")["lost"] if part["topic"] == topic)


def state(pair: Pair, name: str) -> tuple[str, bool]:
    """Return a connector's state, and whether it is held."""
    config = rest("GET", connector_url(pair.url, name))["config"]
    shown = rest("GET", connector_url(pair.url, name, "/status"))["connector"]["state"]
    return shown, "mm2mgr.held" in config


def test_there_and_back_with_kept_names_each_record_is_once_on_both_sides(pair: Pair, tree: Tree) -> None:
    create(pair.source, [TOPIC], PARTITIONS)
    tree.write(tree_of(pair, TOPIC))
    said = tree.run("plan")
    assert "STOPPED without tasks" in said
    tree.run("apply", "--yes")
    assert state(pair, BACK) == ("STOPPED", True)
    rest("PUT", connector_url(pair.url, BACK, "/resume"))  # whoever resumes it: it has no tasks
    produce(pair.source, TOPIC, *named("a", 300))
    until_there(pair.target, TOPIC, named("a", 300))
    assert "no changes" in tree.run("plan").lower() or "0 to create" in tree.run("plan")
    assert "must be STOPPED" in tree.run("failover", "back", "src->tgt", code=1)
    assert "must not run" in tree.attempt("resume", "back")

    tree.run("stop", "there", "--yes")
    produce(pair.source, TOPIC, *named("lost", 7))
    produce(pair.target, TOPIC, *named("b", 40))
    found = back(tree, "src->tgt")
    assert found["outcome"] == "to prepare"
    assert sum(part["own_records"] for part in found["partitions"]) == 40
    print(tree.run("failover", "back", "src->tgt", "--apply", "--yes"))
    assert (state(pair, BACK), state(pair, THERE)) == (("STOPPED", False), ("STOPPED", True))
    rest("PUT", connector_url(pair.url, THERE, "/resume"))
    tree.run("failover", "back", "src->tgt", "--start", "--yes")
    until_there(pair.source, TOPIC, named("b", 40))
    produce(pair.target, TOPIC, *named("c", 40))
    until_there(pair.source, TOPIC, named("c", 40))

    assert lost_count(tree, "src->tgt", TOPIC) == 7
    file = tree.folder.parent / "lost.jsonl"
    tree.run("failover", "back", "src->tgt", "--export", str(file))
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert {base64.b64decode(record["value"]).decode() for record in records} == set(named("lost", 7))
    assert file.stat().st_mode & 0o777 == 0o600
    assert "exists already" in tree.attempt("failover", "back", "src->tgt", "--export", str(file))

    assert ids(pair.target, TOPIC) == Counter(named("a", 300) + named("b", 40) + named("c", 40))
    assert ids(pair.source, TOPIC) == ids(pair.target, TOPIC) + Counter(named("lost", 7))


@pytest.mark.matrix
def test_there_and_back_under_traffic_three_times_with_kept_names(pair: Pair, tree: Tree) -> None:
    """A planned failover each time, by `failover run`; after the second one, records are left behind on the source."""
    topic = "rounds"
    create(pair.source, [topic], PARTITIONS)
    sides = {"src": pair.source, "tgt": pair.target}
    state_of = {"src": "", "tgt": ", state: stopped"}
    tree.write(tree_of(pair, topic, state_of["src"], state_of["tgt"]))
    tree.run("apply", "--yes")
    here, there, produced, lost = "src", "tgt", Counter[str](), dict[str, Counter[str]]()
    for number in range(6):
        names = named(f"{here}{number}", 200)
        for start in range(0, 200, 20):
            produce(sides[here], topic, *names[start : start + 20])
        produced.update(names)
        until_there(sides[there], topic, names)
        said = tree.attempt("failover", "run", f"{here}->{there}", "--yes", "--producers-stopped", "--quiet-for", "1s")
        assert state(pair, f"mm2.{here}.{there}.source.{'there' if here == 'src' else 'back'}")[0] == "STOPPED", said
        if number in {1, 2}:
            left = named(f"lost{number}", 9)
            produce(sides[here], topic, *left)
            lost.setdefault(here, Counter()).update(left)
        own = named(f"{there}{number}-own", 30)
        produce(sides[there], topic, *own)
        produced.update(own)
        found = back(tree, f"{here}->{there}", "--apply", "--yes")
        assert found["outcome"] == "prepared", found
        assert back(tree, f"{here}->{there}", "--start", "--yes")["outcome"] == "started"
        until_there(sides[here], topic, own)
        state_of[here], state_of[there] = ", state: stopped", ""
        tree.write(tree_of(pair, topic, state_of["src"], state_of["tgt"]))
        plan = tree.json("plan")
        assert [c["connector"] for part in plan["clusters"] for c in part["changes"] if c["action"] != "no-op"] == []
        here, there = there, here
    for name, access in sides.items():
        assert ids(access, topic) == produced + lost.get(name, Counter()), name
    for name, other in (("src", "tgt"), ("tgt", "src")):
        assert lost_count(tree, f"{name}->{other}", topic) == sum(lost.get(name, Counter()).values())


@pytest.mark.matrix
def test_with_default_names_both_directions_run_and_nothing_comes_back(pair: Pair, tree: Tree) -> None:
    topic = "plain"
    pair.delete_connectors()  # of the tests before, which keep names
    for access in (pair.source, pair.target):
        create(access, [topic], PARTITIONS)
    tree.write(tree_of(pair, topic, policy="default"))
    tree.run("apply", "--yes")
    for number in range(3):
        produce(pair.source, topic, *named(f"a{number}", 100))
        until_there(pair.target, f"src.{topic}", named(f"a{number}", 100))
        tree.run("stop", "there", "--yes")
        produce(pair.source, topic, *named(f"late{number}", 5))
        produce(pair.target, topic, *named(f"b{number}", 50))
        assert lost_count(tree, "src->tgt", topic) == 5
        assert back(tree, "src->tgt", "--start", "--yes")["outcome"] == "started"
        until_there(pair.source, f"tgt.{topic}", named(f"b{number}", 50))
        tree.run("resume", "there", "--yes")
        until_there(pair.target, f"src.{topic}", named(f"late{number}", 5))
    assert set(ids(pair.target, f"src.{topic}").values()) == {1}
    assert set(ids(pair.source, f"tgt.{topic}").values()) == {1}
    assert {name for name in topics(pair.source) if topic in name} == {topic, f"tgt.{topic}"}
    assert {name for name in topics(pair.target) if topic in name} == {topic, f"src.{topic}"}
