"""Lanes of a flow on real workers under traffic: stock → lanes → other lanes → stock, mm2mgr killed on the way.

Every record id is on the target: exactly once where tasks stopped cleanly, as they do here.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

import pytest

from mm2mgr.comparison.ownership import JOURNAL_KEY
from mm2mgr.sandbox.runtime import Runtime, kafka_runtime

from .command import Tree
from .days import Day, World, estate, flow
from .seen import until
from .traffic import Entry, producing

pytestmark = pytest.mark.live
SLOW_FLUSH = {"offset.flush.interval.ms": "5000"}
TOPICS = ("app.orders", "app.users", "app.audit")
OWN = "mm2.dc1.agg.source.app"
STEPS = (
    "heavy: [app.orders], light: {topics: [app.users], tasks: {max: 2}}",
    "heavy: [app.orders, app.audit]",
    "",
)


@pytest.fixture(params=["4.3.1", pytest.param("3.6.2", marks=pytest.mark.matrix)])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, runtime: Runtime
) -> Iterator[World]:
    line = runtime if request.param == "4.3.1" else kafka_runtime(request.param)
    with estate(tmp_path_factory.mktemp("lanes"), line, ("dc1", "agg"), SLOW_FLUSH) as world:
        yield world


def with_journal(world: World) -> int:
    return sum(JOURNAL_KEY in config for config in world.configs().values())


def apply_until_still(day: Day) -> int:
    """Apply until a plan has nothing to write; return how often that was."""
    for count in itertools.count():
        assert count < 8
        plan = day.tree.json("plan")
        changes = [change for part in plan["clusters"] for change in part["changes"] if change["action"] != "no-op"]
        if not changes:
            return count
        assert not [change for change in changes if change["action"] == "blocked"], changes
        day.apply_written()
    raise AssertionError


@pytest.mark.parametrize(
    "steps", [("heavy: [app.orders]",), pytest.param(STEPS, marks=pytest.mark.matrix)], ids=["comes", "come-and-go"]
)
def test_lanes_come_and_go_under_traffic(world: World, tree: Tree, steps: tuple[str, ...]) -> None:
    day, chance = Day(world, tree, "lanes"), random.Random(36)
    world.create("dc1", *TOPICS, partitions=4)

    def entries() -> Iterator[Entry]:
        for topic, number in itertools.product((*TOPICS, "app.new"), range(4)):
            if topic != "app.new" or topic in world.own_topics("dc1"):
                yield (topic, number), f"dc1/{topic}/{next(world.ids)}".encode(), None

    day.apply(flow("app", "'app[.].*'"))
    with producing(world.kafkas["dc1"], entries, 0.1):
        until(lambda: sum(world.held("agg", "dc1.app.orders").values()), lambda count: count > 100, "no traffic")
        for place, lanes in enumerate(steps):
            day.write(flow("app", "'app[.].*'", more=f", balance: {{lanes: {{{lanes}}}}}" if lanes else ""))
            with tree.start("apply", "--yes", "--wait", "0") as applying:
                time.sleep(chance.uniform(1.0, 6.0))  # a random moment, not a guess at one
                applying.kill()
            print(place, "killed; connectors with a journal:", with_journal(world))
            print(place, "applies:", apply_until_still(day))
            if place == 0:
                world.create("dc1", "app.new", partitions=4)
                configs = {name: config["topics"] for (_, name), config in world.configs().items()}
                assert set(configs) == {OWN, *(f"{OWN}.{lane}" for lane in ("heavy", "light") if lane in lanes)}
                assert "app.heavy:dc1->agg" in tree.run("status", "app")
                tree.run("pause", "app.heavy:dc1->agg", "--yes")
                tree.run("resume", "app", "--yes")
        assert ({name for _, name in world.configs()} == {OWN}) is (not steps[-1])
        until(lambda: world.own_topics("agg"), lambda topics: "dc1.app.new" in topics, "the new topic")
    day.once(*TOPICS, "app.new")
    sent = {topic: sum(world.held("dc1", topic).values()) for topic in (*TOPICS, "app.new")}
    print("sent, each there once:", sent)
