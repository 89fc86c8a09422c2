"""`moved:` on real workers under traffic: a renamed flow, a topic of 50 partitions between two connectors and between two Connect clusters.

Every record id is on the target exactly once. mm2mgr is killed at random moments of the moves: MM2MGR_MOVE_KILLS of them (2; 10 were
run when this was written), with MM2MGR_MOVE_SEED to repeat them.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from mm2mgr.comparison.ownership import JOURNAL_KEY
from mm2mgr.kafka.access import librdkafka_config
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.inspection import expiring
from mm2mgr.kafka.records import Producer
from mm2mgr.live.dedicated import dedicated_names
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.runtime import Runtime

from .command import Tree
from .days import Day, World, estate, flow
from .dedicated import Dedicated, mm2_properties
from .seen import connector_url, rest, until
from .traffic import Entry, producing

pytestmark = pytest.mark.live
KILLS = int(os.environ.get("MM2MGR_MOVE_KILLS", "2"))
SEED = int(os.environ.get("MM2MGR_MOVE_SEED", "14"))
PARTITIONS = 50
# Long enough that offsets which are read too early are old: they are exact only after a stop.
SLOW_FLUSH = {"offset.flush.interval.ms": "5000"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[World]:
    with estate(tmp_path_factory.mktemp("moves"), runtime, ("dc1", "agg"), SLOW_FLUSH) as world:
        yield world


@pytest.fixture
def day(world: World, tree: Tree) -> Day:
    world.clear()
    return Day(world, tree, "moving")


def traffic(world: World, *topics: str, partitions: int) -> AbstractContextManager[None]:
    """Produce without pause, and begin when records flow."""

    def entries() -> Iterator[Entry]:
        for topic, number in itertools.product(topics, range(partitions)):
            yield (topic, number), f"dc1/{topic}/{next(world.ids)}".encode(), None

    return producing(world.kafkas["dc1"], entries, 0.1)


def moved(from_: str, to: str, *topics: str) -> str:
    only = f", topics: [{', '.join(topics)}]" if topics else ""
    return f"moved: [{{from: '{from_}', to: '{to}'{only}}}]\n"


def write(day: Day, entry: str, *flows: str) -> None:
    day.write(*flows)
    tree = day.tree.folder / "tree.yaml"
    tree.write_text(tree.read_text() + entry)


def sources(world: World) -> set[tuple[str, str]]:
    return {(connect, name.rpartition(".")[2]) for connect, name in world.configs()}


def test_a_renamed_flow_goes_on_under_traffic(world: World, day: Day) -> None:
    world.create("dc1", "orders", partitions=4)
    day.apply(flow("before", "orders"))
    with traffic(world, "orders", partitions=4):
        until(lambda: sum(world.held("agg", "dc1.orders").values()), lambda count: count > 100, "no traffic")
        write(day, moved("before:dc1->agg", "after:dc1->agg"), flow("after", "orders"))
        assert "takes over" in day.tree.run("plan")
        day.apply_written()
        assert sources(world) == {("main", "after")}
    day.once("orders")
    assert "can go" in day.tree.run("plan")


def test_fifty_partitions_move_and_mm2mgr_is_killed_at_random_moments(world: World, day: Day) -> None:
    """Between two flows, back, and to another Connect cluster, over and over: one kill in each move, then one more apply."""
    world.create("dc1", "wide", partitions=PARTITIONS)
    world.create("dc1", "left", "right", partitions=1)
    wide = {"left": flow("left", "left", "wide"), "right": flow("right", "right", "wide")}
    alone = {"left": flow("left", "left"), "right": flow("right", "right")}
    random_moments = random.Random(SEED)
    at, other, begun = "left", "right", 0
    day.apply(wide[at], alone[other])
    on = "main"
    with traffic(world, "wide", partitions=PARTITIONS):
        until(lambda: sum(world.held("agg", "dc1.wide").values()), lambda count: count > 500, "no traffic")
        for number in range(KILLS + 1):
            if number % 3 < 2:
                at, other = other, at
                entry = moved(f"{other}:dc1->agg", f"{at}:dc1->agg", "wide")
            else:
                was, on = on, "spare" if on == "main" else "main"
                names = [f"{{from: {was}/mm2.dc1.agg.source.{each}, to: '{each}:dc1->agg'}}" for each in (at, other)]
                entry = f"moved: [{', '.join(names)}]\n"
            here = [each.rstrip("\n}") + f"}}, run_on: {on}}}\n" for each in (wide[at], alone[other])]
            write(day, entry, *here)
            if number < KILLS:
                with day.tree.start("apply", "--yes", "--wait", "0") as applying:
                    time.sleep(random_moments.uniform(0.5, 6.0))  # a random moment, not a guess at one
                    applying.kill()
                begun += any(JOURNAL_KEY in config for config in world.configs().values())
            day.apply_written()
            assert sources(world) == {(on, "left"), (on, "right")}
            assert not any(JOURNAL_KEY in config for config in world.configs().values())
    day.once("wide")
    print(f"{begun} of {KILLS} kills left a journal")


def test_a_dedicated_mirrormaker_is_taken_over_under_traffic(
    world: World, day: Day, tmp_path: Path, runtime: Runtime
) -> None:
    """Refused while it runs; after SIGTERM its offsets are exact, and the flow goes on from them."""
    world.create("dc1", "legacy", partitions=4)
    servers = {alias: access.bootstrap_servers for alias, access in world.kafkas.items()}
    properties = mm2_properties(servers, "dc1", "agg", "legacy")
    write(day, "moved: [{from: {dedicated: dc1->agg}, to: 'taken:dc1->agg'}]\n", flow("taken", "legacy"))
    with traffic(world, "legacy", partitions=4):
        with Dedicated("legacy", tmp_path / "legacy", properties, runtime=runtime):
            until(lambda: sum(world.held("agg", "dc1.legacy").values()), lambda count: count > 100, "no traffic")
            assert "still runs" in day.written_is_held_back(says=["SIGTERM"])
        until(
            lambda: "still runs" in day.tree.json("plan")["clusters"][0]["changes"][0]["reason"], lambda runs: not runs
        )
        day.apply_written()
        assert sources(world) == {("main", "taken")}
    day.once("legacy")
    assert "can go" in day.tree.run("plan")
    assert problems(day) == {}
    with Dedicated("legacy", tmp_path / "legacy", properties, runtime=runtime):
        (back,) = until(lambda: problems(day), bool, "it came back unseen", 120)["overlap"]
        assert (back["other"], back["standing"], back["topics"]) == ("dc1-mm2 on agg", "dedicated", ["legacy"])
        assert "group dc1-mm2 on agg has members" in day.tree.run("status", code=1)
    until(lambda: problems(day), lambda left: "overlap" not in left, "its group has members left")


def problems(day: Day) -> dict[str, list[dict[str, Any]]]:
    """Return the evidence of each kind of problem that status sees."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in day.tree.json("status")["problem_values"]:
        found.setdefault(one["kind"], []).append(one["evidence"])
    return found


def test_a_connector_that_was_made_after_the_flow_is_named_and_an_unseen_one_counted(world: World, day: Day) -> None:
    world.create("dc1", "orders", partitions=2)
    world.produce("dc1", "orders", 300, partitions=2)
    day.apply(flow("orders", "orders"))
    day.once("orders")
    assert problems(day) == {}
    (config,) = world.configs().values()
    own = ("mm2mgr.", "producer.override.client.id")
    by_hand = {key: value for key, value in config.items() if key != "name" and not key.startswith(own)}
    world.by_hand("main", "by-hand", by_hand)
    (other,) = problems(day)["overlap"]
    assert (other["other"], other["standing"], other["topics"]) == ("main/by-hand", "unmarked", ["orders"])
    until(lambda: world.held("agg", "dc1.orders").values(), lambda counts: set(counts) == {2}, "it mirrors nothing")
    rest("DELETE", connector_url(world.main.url, "by-hand"))
    until(lambda: problems(day).get("arrives-twice"), bool, "300 records arrived twice unseen")
    (twice,) = problems(day)["arrives-twice"]
    assert (twice["records"], twice["topics"], twice["one_task"]) == (300, ["dc1.orders"], False)
    assert "at least 300 records arrived twice" in day.tree.run("status", code=1)


# As MirrorMaker 4.3.1 left it after SIGKILL; the group lost its member 10 s later.
LEFT_BY_SIGKILL = {
    "status-connector-MirrorSourceConnector": {"state": "RUNNING", "generation": 4},
    "status-topic-dc1.legacy:connector-MirrorSourceConnector": {"topic": {"name": "dc1.legacy", "task": 0}},
    "status-task-MirrorSourceConnector-0": {"state": "RUNNING", "generation": 5},
    "status-task-MirrorSourceConnector-1": {"state": "UNASSIGNED", "generation": 5},
}


def test_a_dedicated_mirrormaker_that_was_killed_is_not_taken_over(world: World, day: Day) -> None:
    """It has mirrored more than it stored: nothing is created until it was stopped cleanly."""
    world.create("dc1", "legacy", partitions=1)
    world.produce("dc1", "legacy", 4, partitions=1)
    entry = "moved: [{from: {dedicated: dc1->agg}, to: 'taken:dc1->agg'}]\n"
    offsets, status, _ = dedicated_names("dc1")
    world.create("agg", offsets, status, partitions=1)
    with Producer(world.kafkas["agg"], timeout_seconds=30) as producer:
        for key, value in LEFT_BY_SIGKILL.items():
            producer.send((status, 0), json.dumps(value).encode(), key=key.encode())
        partition = {"cluster": "dc1", "partition": 0, "topic": "legacy"}
        key = json.dumps(["MirrorSourceConnector", partition])
        producer.send((offsets, 0), b'{"offset":3}', key=key.encode())
    write(day, entry, flow("taken", "legacy"))
    day.written_is_held_back(
        says=["not shut down cleanly (MirrorSourceConnector-0 is RUNNING)", "stop it with SIGTERM"]
    )
    with Producer(world.kafkas["agg"], timeout_seconds=30) as producer:
        cleanly = json.dumps({"state": "UNASSIGNED", "generation": 6}).encode()
        producer.send((status, 0), cleanly, key=b"status-task-MirrorSourceConnector-0")
    day.apply_written()
    ((connect, name),) = world.configs()
    (stored,) = rest("GET", connector_url(world.workers[connect].url, name, "/offsets"))["offsets"]
    assert (stored["partition"], stored["offset"]) == (partition, {"offset": 3})


def test_records_that_retention_is_about_to_delete_are_found(world: World, day: Day) -> None:
    """The log of each partition: two records of 55 minutes ago and two of now, kept for an hour."""
    access = world.kafkas["dc1"]
    hour = {"retention.ms": "3600000"}
    with Kafka(access) as kafka:
        kafka.create_topics({"short": (2, 1, hour), "long": (2, 1, {"retention.ms": "-1"})})
    producer = confluent_kafka.Producer(librdkafka_config(access))
    for topic, number in itertools.product(("short", "long"), (0, 1)):
        for minutes_ago in (55, 55, 0, 0):
            when = int((time.time() - 60 * minutes_ago) * 1000)
            producer.produce(topic, b"x", partition=number, timestamp=when)
    assert producer.flush(60) == 0
    behind = {TopicPartition(topic, number): 2 * number for topic in ("short", "long") for number in (0, 1)}
    with Kafka(access) as kafka:
        assert expiring(kafka, behind, 900) == [("short", 0)]
        assert expiring(kafka, behind, 60) == []


@pytest.mark.matrix
def test_a_topic_that_was_removed_earlier_goes_on_from_where_it_was(world: World, day: Day) -> None:
    """Its offsets rest under the name of the flow that gave it up; records that came meanwhile arrive, and none twice."""
    world.create("dc1", "rested", partitions=4)
    world.create("dc1", "stays", "other", partitions=1)
    day.apply(flow("giver", "stays", "rested"), flow("taker", "other"))
    with traffic(world, "rested", partitions=4):
        until(lambda: sum(world.held("agg", "dc1.rested").values()), lambda count: count > 100, "no traffic")
        day.apply(flow("giver", "stays"), flow("taker", "other"))
        wider = flow("giver", "stays"), flow("taker", "other", "rested")
        day.held_back(*wider, says=["moved: [{from: giver:dc1->agg, to: taker:dc1->agg, topics: [rested]}]"])
        write(day, moved("giver:dc1->agg", "taker:dc1->agg", "rested"), *wider)
        day.apply_written()
    day.once("rested")
    assert "can go" in day.tree.run("plan")
