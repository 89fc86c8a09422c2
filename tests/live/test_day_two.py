"""Each step of the day after, on real workers: records are counted by id, so nothing arrives twice and nothing is lost, or the
plan blocked it and wrote nothing.

Only a worker that is killed may repeat records: those it had not yet stored as mirrored (at least once).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from mm2mgr.sandbox.runtime import Runtime
from tests.plan.scenarios import HARMLESS, KNOWN, ByHand, Scenario, Step, by_hand
from tests.plan.scenarios import day as one_day
from tests.plan.scenarios import tree as declared

from .command import Tree
from .days import Day, World, estate, flow
from .seen import connector_url, rest, topics, until
from .traffic import Traffic
from .twin import Twin

pytestmark = pytest.mark.live
QUICK = {"offset.flush.interval.ms": "300"}  # to be seen at the end soon
NAMES_KEPT = ", replication_policy: identity"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[World]:
    with estate(tmp_path_factory.mktemp("day_two"), runtime, ("dc1", "dc2", "agg"), QUICK) as world:
        yield world


@pytest.fixture
def day(world: World, tree: Tree, request: pytest.FixtureRequest) -> Day:
    """Start from serving workers without connectors, and brokers without topics of a test before."""
    world.clear()
    return Day(world, tree, request.node.originalname.removeprefix("test_").replace("_", "-"))


# --- what is let through ------------------------------------------------------------------------------------------------


def test_a_source_is_added(world: World, day: Day) -> None:
    for cluster in ("dc1", "dc2"):
        world.create(cluster, "add")
        world.produce(cluster, "add")
    day.apply(flow("adding", "add"))
    day.once("add")
    day.apply(flow("adding", "add", sources="dc1, dc2"))
    for cluster in ("dc1", "dc2"):
        world.produce(cluster, "add")
        day.once("add", source=cluster)


def test_a_topic_is_removed_and_taken_up_again(world: World, day: Day) -> None:
    world.create("dc1", "stays", "leaves")
    for topic in ("stays", "leaves"):
        world.produce("dc1", topic)
    day.apply(flow("removing", "stays", "leaves"))
    day.once("stays", "leaves")
    day.apply(flow("removing", "stays"))
    before = world.held("agg", "dc1.leaves")
    for topic in ("stays", "leaves"):
        world.produce("dc1", topic)
    day.once("stays")
    assert world.held("agg", "dc1.leaves") == before
    day.apply(flow("removing", "stays", "leaves"))
    day.once("stays", "leaves")


def test_a_topic_taken_out_and_a_routing_transform_under_traffic_are_not_taken_for_broken(
    world: World, day: Day
) -> None:
    """What arrives nowhere or elsewhere on purpose neither pauses an apply nor takes anything back."""
    route = "source_connector: {transforms: r, transforms.r.type: org.apache.kafka.connect.transforms.RegexRouter, "
    route += "transforms.r.regex: 'dc1[.](.*)', transforms.r.replacement: 'elsewhere.$1'}"
    routed = f", silence: {{transform-renames: a test}}, {route}"
    busy = ("busy", "out", "routed")
    world.create("dc1", *busy)
    world.create("agg", "elsewhere.routed")
    with Traffic(world.kafkas["dc1"], busy):
        day.apply(flow("plain", "busy", "out"), flow("routed", "routed", more=routed))
        for topic in ("dc1.busy", "dc1.out", "elsewhere.routed"):
            until(lambda name=topic: name in topics(world.kafkas["agg"]) and world.held("agg", name), bool, topic)
        day.write(flow("plain", "busy"), flow("routed", "routed", more=f", tasks: {{max: 3}}{routed}"))
        out = day.tree.run("apply", "--yes", "--wait", "20", "--rollback")
    assert "not known whether records arrive" in out
    day.once("busy")


def test_a_flow_is_deleted_and_added_back(world: World, day: Day) -> None:
    world.create("dc1", "kept", "gone")
    for topic in ("kept", "gone"):
        world.produce("dc1", topic)
    kept, gone = flow("kept-flow", "kept"), flow("gone-flow", "gone")
    day.apply(kept, gone)
    day.once("kept", "gone")
    day.write(kept)
    planned = day.tree.run("plan", "--detailed-exitcode", code=2)
    assert "no longer declared" in next(line for line in planned.splitlines() if line.startswith("Plan: "))
    day.apply_written()
    world.produce("dc1", "gone")
    day.once("gone")  # an orphan mirrors on
    day.apply(kept, prune=True)
    assert {name for _, name in world.configs()} == {"mm2.dc1.agg.source.kept-flow"}
    for topic in ("kept", "gone"):
        world.produce("dc1", topic)
    day.once("kept")
    day.apply(kept, gone)
    day.once("kept", "gone")  # it goes on from the offsets under its name


def test_a_worker_is_killed_in_the_middle(world: World, day: Day) -> None:
    """What the worker had mirrored but not stored as mirrored comes once more, nothing else does."""
    world.create("dc1", "killed", partitions=1)
    day.apply(flow("killing", "killed", more=", run_on: spare"))
    enough = threading.Event()

    def produce() -> None:
        while not enough.is_set():
            world.produce("dc1", "killed", 50, partitions=1)

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        name = "mm2.dc1.agg.source.killing"
        stored = until(lambda: _stored(world.spare.url, name), lambda offset: offset > 200, "nothing is stored")
        world.spare.kill()
        world.spare.start()
    finally:
        enough.set()
        producing.join()
    day.wait_for("killed", "dc1", "agg", "dc1.killed")
    world.settle()
    sent, there = world.held("dc1", "killed"), world.held("agg", "dc1.killed")
    assert there.keys() == sent.keys(), "records are lost"
    assert max(there.values()) <= 2
    order = list(sent)  # in log order: one partition
    assert [id_ for id_ in order[: stored + 1] if there[id_] > 1] == [], "what was stored as mirrored came again"


def _stored(url: str, name: str) -> int:
    found = rest("GET", connector_url(url, name, "/offsets"))["offsets"]
    return int(found[0]["offset"]["offset"]) if found else -1


# --- what is blocked, and goes on as it was -----------------------------------------------------------------------------


def test_a_flow_is_renamed(world: World, day: Day) -> None:
    world.create("dc1", "orders")
    world.produce("dc1", "orders")
    before = flow("before", "orders")
    day.apply(before)
    day.once("orders")
    day.held_back(flow("after", "orders"), says=["mm2.dc1.agg.source.after"])
    day.held_back(flow("after", '"order.*"'), prune=True)  # and its pattern tidied
    world.produce("dc1", "orders")
    day.once("orders")
    day.apply(before)


def test_a_topic_is_moved_between_flows_and_back(world: World, day: Day) -> None:
    names = ("one", "two", "three")
    world.create("dc1", *names)
    first, second = flow("first", "one", "two"), flow("second", "three")
    for topic in names:
        world.produce("dc1", topic)
    day.apply(first, second)
    day.once(*names)
    planned = day.apply(flow("first", "one"), flow("second", "three", "two"), code=1)
    assert "blocked" in planned
    for topic in names:
        world.produce("dc1", topic)
    day.once("one", "three")
    assert max(world.held("agg", "dc1.two").values()) == 1
    day.held_back(flow("second", "three", "two"))  # `first` is an orphan now, and has the offsets of `two`
    day.apply(first, second)
    day.once(*names)


def test_a_flow_runs_elsewhere(world: World, day: Day) -> None:
    world.create("dc1", "elsewhere")
    world.produce("dc1", "elsewhere")
    here, there = (
        flow("moving", "elsewhere", more=", run_on: spare"),
        flow("moving", "elsewhere", more=", run_on: main"),
    )
    day.apply(here)
    day.once("elsewhere")
    day.held_back(there)
    world.spare.stop()
    day.held_back(there)  # nobody can say that it has not run there
    assert "mm2.dc1.agg.source.moving" not in rest("GET", f"{world.main.url}/connectors")
    world.produce("dc1", "elsewhere")
    world.spare.start()
    day.once("elsewhere")
    day.apply(here)


def test_an_alias_is_renamed(world: World, day: Day) -> None:
    world.create("dc1", "aliased")
    world.produce("dc1", "aliased")
    day.apply(flow("naming", "aliased"))
    day.once("aliased")
    renamed = flow("naming", "aliased", sources="paris")
    for prune in (False, True):
        day.declare({"paris": "dc1", "dc2": "dc2", "agg": "agg"}, renamed)
        day.written_is_held_back(prune=prune)
    world.produce("dc1", "aliased")
    day.once("aliased")
    assert "paris.aliased" not in world.own_topics("agg")


def test_a_connector_by_hand_takes_the_same_topics(world: World, day: Day) -> None:
    world.create("dc1", "shared", "ours")
    for topic in ("shared", "ours"):
        world.produce("dc1", topic)
    servers = {name: access.bootstrap_servers for name, access in world.kafkas.items()}
    made = ByHand("by-hand", "dc1", "agg", "sha.*", "dc1", "agg", connect="spare")
    world.by_hand("spare", made.name, made.config(servers, "dc1"))
    day.once("shared")
    day.held_back(flow("sharing", "shared"), says=["overlap", "by-hand"])
    said = day.apply(flow("sharing", "shared"), flow("own", "ours"), code=1)
    assert "blocked" in said
    asked = day.tree.json("who", "shared")
    shown = {
        each["connector"]: (each["state"], each["owner"], each["to"]["partitions"]) for each in asked["connectors"]
    }
    assert shown["by-hand"] == ("RUNNING", None, 2)
    assert [[stop["topic"] for stop in way] for way in asked["routes"]] == [["shared", "dc1.shared"]] * 2
    (own,) = day.tree.json("topics", "own")
    assert [(each["topic"], each["partitions"]) for each in own["topics"]] == [("ours", 2)]
    for topic in ("shared", "ours"):
        world.produce("dc1", topic)
    day.once("shared", "ours")
    assert "mm2.dc1.agg.source.sharing" not in {name for _, name in world.configs()}


def test_a_ring_that_keeps_names(world: World, day: Day) -> None:
    for cluster in world.kafkas:
        world.create(cluster, "round")
    world.produce("dc1", "round")
    ends = ("dc1", "dc2", "agg")
    ring = [
        flow(f"to-{to}", "round", sources=of, target=to, more=f"{NAMES_KEPT}, run_on: main")
        for of, to in zip(ends, (*ends[1:], ends[0]), strict=True)
    ]
    day.held_back(*ring, says=["identity-loop"])
    assert not world.configs()
    assert [sum(world.held(cluster, "round").values()) for cluster in ends] == [20, 0, 0]


# --- a sample of what is drawn for the simulation -----------------------------------------------------------------------

SAMPLE: dict[str, tuple[Scenario, bool]] = {
    **{name: (each, False) for name, each in HARMLESS.items() if name in {
        "both ways, each with topics of its own", "two into one, names kept", "a separator of its own",
    }},
    **{name: (each, True) for name, each in KNOWN.items() if name in {
        "a ring that keeps names", "a connector by hand on another Connect cluster",
        "a stopped connector by hand that had mirrored", "a topic moved between flows",
    }},
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLE)
def test_real_workers_do_what_the_simulation_foretells(world: World, day: Day, name: str) -> None:
    """Nothing grows, nothing arrives twice, nothing starts over: the judge of the property test, held to real clusters."""
    scenario, blocks = SAMPLE[name]
    twin = Twin(world, day.tree, scenario)
    blocked = [twin.step(step.numbered(list(SAMPLE).index(name))) for step in scenario.steps]
    assert any(blocked) is blocks


def test_the_simulation_foretells_harm_too(world: World, day: Day) -> None:
    """Two connectors by hand, on two Connect clusters, take one topic: all of it arrives twice, on either side."""
    empty = Step(declared())
    twin = Twin(world, day.tree, one_day(empty, topics="t u", spare="a"))
    for connect, include in (("x", "t"), ("y", "[tu]")):
        made = replace(by_hand("ab", include, connect=connect), name=f"by-hand-{connect}")
        twin.make(replace(empty, by_hand=(made,)).numbered(len(SAMPLE)).by_hand[0])
        twin.mirrored()
    twin.produce()
    twin.mirrored()
    assert {topic for _, topic, _ in twin.simulated.repeated()} == {f"a{len(SAMPLE)}.t"}
