"""`moved:` on real workers under traffic: a renamed flow, a topic of 50 partitions between two connectors and between two Connect clusters.

Every record id is on the target exactly once. mm2mgr is killed at random moments of the moves: MM2MGR_MOVE_KILLS of them (2; 10 were
run when this was written), with MM2MGR_MOVE_SEED to repeat them.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mm2mgr.reconcile.offsets import JOURNAL_KEY
from mm2mgr.sandbox.broker import Broker
from mm2mgr.sandbox.server import Runtime
from mm2mgr.sandbox.worker import Worker

from .command import Tree
from .conftest import WORKER, serving
from .days import Day, World, flow
from .seen import until

pytestmark = pytest.mark.live
KILLS = int(os.environ.get("MM2MGR_MOVE_KILLS", "2"))
SEED = int(os.environ.get("MM2MGR_MOVE_SEED", "14"))
PARTITIONS = 50
# Long enough that offsets which are read too early are old: they are exact only after a stop.
SLOW_FLUSH = WORKER | {"offset.flush.interval.ms": "5000"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("moves")
    brokers = {name: Broker(name, folder / name, runtime=runtime) for name in ("dc1", "agg")}
    with serving(list(brokers.values())):
        main, spare = (
            Worker(name, folder / name, brokers[kafka].bootstrap_servers, SLOW_FLUSH, runtime=runtime)
            for name, kafka in (("main", "agg"), ("spare", "dc1"))
        )
        with serving([main, spare]):
            made = World(brokers, main, spare)
            yield made
            made.close()


@pytest.fixture
def day(world: World, tree: Tree) -> Day:
    world.clear()
    return Day(world, tree, "moving")


@contextmanager
def traffic(world: World, *topics: str, partitions: int) -> Iterator[None]:
    """Produce without pause, and begin when records flow."""
    enough, flows = threading.Event(), threading.Event()

    def produce() -> None:
        while not enough.wait(0.02):
            for topic in topics:
                world.produce("dc1", topic, partitions, partitions=partitions)
            flows.set()

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        assert flows.wait(60)
        yield
    finally:
        enough.set()
        producing.join()


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
