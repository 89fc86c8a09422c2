"""`failover back` on real brokers: there and back, each id once on both sides in the end, no loop, lost ones listed."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.sandbox.runtime import Runtime

from .command import Tree
from .moving_groups import Traffic, consume
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


class Moving:
    """A producer that moves from side to side: it writes all the time, but for the moment in which the runbook has it
    stopped. `produced` are the ids of all that was acknowledged."""

    def __init__(self, pair: Pair, topic: str) -> None:
        self.sides = {"src": pair.source, "tgt": pair.target}
        self.topic, self.count, self.produced = topic, 0, list[str]()
        self.writing: Traffic | None = None

    def write_to(self, side: str) -> None:
        self.count += 1
        self.writing = Traffic(self.sides[side], [self.topic], 0.005, f"{side}{self.count}-")
        self.writing.start()

    def until_written(self, count: int) -> None:
        assert self.writing
        stored = self.writing.stored
        until(lambda: len(stored.get(self.topic, ())), lambda there: there >= count, "nobody writes")

    def stop(self) -> list[str]:
        """Stop the producer, and return what it wrote."""
        assert self.writing
        self.writing.end()
        self.writing.join()
        written = list(self.writing.stored[self.topic])
        self.produced += written
        self.writing = None
        return written


@pytest.fixture
def moving(pair: Pair, tmp_path: Path) -> Iterator[Moving]:
    made = Moving(pair, f"moving-{tmp_path.name[-12:]}")
    yield made
    if made.writing:
        made.stop()


def fail_over(tree: Tree, here: str, there: str, *options: str) -> Any:
    arguments = ("failover", "run", f"{here}->{there}", "--yes", *options, "--quiet-for", "1s", "--timeout", "60s")
    done = tree.json(*arguments)
    assert done["outcome"] == "done", done
    return done


@pytest.mark.matrix
def test_there_and_back_three_times_under_continuous_traffic_with_kept_names(
    pair: Pair, tree: Tree, moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that lags behind moves with the producer, mostly within what came from the other side. In a disaster the
    pair stops while the producer goes on."""
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))
    pair.delete_connectors()
    topic, sides = moving.topic, moving.sides
    create(pair.source, [topic])
    state_of = {"src": "", "tgt": ", state: stopped"}
    tree.write(tree_of(pair, topic, state_of["src"], state_of["tgt"]))
    tree.run("apply", "--yes")
    moving.write_to("src")
    moving.until_written(300)
    read, named = Counter(consume(pair.source, "app", [topic], 100, "earliest")), 0
    here, there = "src", "tgt"
    for number in range(6):
        moving.until_written(300)
        if number in {1, 2}:
            tree.run("stop", f"{here}->{there}", "--yes")
            moving.until_written(len(moving.writing.stored[topic]) + 20 if moving.writing else 0)
            moving.stop()
            done = fail_over(tree, here, there, "--disaster")
        else:
            moving.stop()
            done = fail_over(tree, here, there, "--producers-stopped")
        (app,) = done["groups"]
        print(number, here, app)
        assert app["unknown"] == []
        named += app["repeats_at_most"]
        moving.write_to(there)
        read.update(consume(sides[there], "app", [topic], 150))
        found = back(tree, f"{here}->{there}", "--apply", "--start", "--yes")
        assert found["outcome"] == "started", found
        state_of[here], state_of[there] = ", state: stopped", ""
        tree.write(tree_of(pair, topic, state_of["src"], state_of["tgt"]))
        here, there = there, here
    last = moving.stop()
    until_there(sides[there], topic, last)
    read.update(consume(sides[here], "app", [topic]))

    lost = hold_sides_to_each_other(tree, moving)
    assert lost
    assert set(moving.produced) - lost <= set(read), "the group has skipped none"
    again = sum(read.values()) - len(read)
    print(f"{len(moving.produced)} ids, {len(lost)} lost and listed, {again} read again of at most {named}")
    assert again <= named


def hold_sides_to_each_other(tree: Tree, moving: Moving) -> set[str]:
    """Each id is once on both sides, but for those that are listed as lost; return these."""
    there, lost = {name: ids(access, moving.topic) for name, access in moving.sides.items()}, set[str]()
    for name, other in (("src", "tgt"), ("tgt", "src")):
        assert set(there[name].values()) == {1}, "each id once"
        alone = set(there[name]) - set(there[other])
        file = tree.folder.parent / f"lost-{name}.jsonl"
        if alone:
            tree.attempt("failover", "back", f"{name}->{other}", "--export", str(file))  # the pair may run again
            records = [json.loads(line) for line in file.read_text().splitlines()]
            assert {base64.b64decode(record["value"]).decode() for record in records} == alone
        assert lost_count(tree, f"{name}->{other}", moving.topic) == len(alone)
        lost |= alone
    assert set(there["src"]) | set(there["tgt"]) == set(moving.produced), "nothing else is lost"
    return lost


@pytest.mark.matrix
def test_there_and_back_three_times_under_continuous_traffic_with_default_names(
    pair: Pair, tree: Tree, moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))
    pair.delete_connectors()
    topic, sides = moving.topic, moving.sides
    for access in sides.values():
        create(access, [topic])
    tree.write(tree_of(pair, topic, policy="default"))
    tree.run("apply", "--yes")
    moving.write_to("src")
    here, there = "src", "tgt"
    for number in range(6):
        moving.until_written(300)
        if number in {1, 2}:
            tree.run("stop", f"{here}->{there}", "--yes")
            moving.until_written(len(moving.writing.stored[topic]) + 20 if moving.writing else 0)
            moving.stop()
            fail_over(tree, here, there, "--disaster")
            behind = set(ids(sides[here], topic)) - set(ids(sides[there], f"{here}.{topic}"))
            assert len(behind) == lost_count(tree, f"{here}->{there}", topic) > 0
        else:
            moving.stop()
            fail_over(tree, here, there, "--producers-stopped")
        moving.write_to(there)
        assert back(tree, f"{here}->{there}", "--start", "--yes")["outcome"] == "started"
        here, there = there, here
    moving.until_written(300)
    moving.stop()
    tree.run("resume", "there", "back", "--yes")
    for name, other in (("src", "tgt"), ("tgt", "src")):
        own = ids(sides[name], topic)
        assert set(own.values()) == {1}
        until(lambda: ids(sides[other], f"{name}.{topic}"), lambda copies, own=own: copies == own, "not once")  # noqa: B023
    assert set(ids(sides["src"], topic)) | set(ids(sides["tgt"], topic)) == set(moving.produced)
    named = {name for access in sides.values() for name in topics(access) if topic in name}
    assert named == {topic, f"src.{topic}", f"tgt.{topic}"}


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
