"""What breaks in practice, with real processes: a dead source, a deleted topic, workers killed in the middle of an apply."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mm2mgr.apply.execute import apply_plan
from mm2mgr.apply.waves import Event, Result
from mm2mgr.live.reach import Limits
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.observe.reading import Patience
from mm2mgr.problems.health import Status
from mm2mgr.problems.status import observe
from mm2mgr.sandbox.kafka_servers import Worker
from mm2mgr.sandbox.runtime import Runtime
from mm2mgr.sandbox.server import start_all
from tests.asking import make_plan
from tests.cli.command import allowed_seconds

from .command import Tree
from .pair import Pair, flow, serving_pair
from .seen import (
    config_of,
    connector_url,
    create,
    delete,
    end_offset,
    rest,
    statuses,
    task_configs,
    topics,
    until,
    values,
    write_values,
)
from .traffic import Traffic

pytestmark = pytest.mark.live
FLOODING_LOGGER = "org.apache.kafka.clients.admin.internals.AdminMetadataManager"
QUIET_BYTES = 500_000  # seen: 50 kB in these 30 s, and more than 6 MB without the back-off
WATCHED_SECONDS = 30.0
FLOWS = 10
MANY_FLOWS = 38  # and the pair's heartbeat and checkpoint connector
KILLS = int(os.environ.get("MM2MGR_KILLS", "1"))
LATEST_KILL_SECONDS = 8.0
# Topics are there before their flows: the brokers need not be asked for new ones every two seconds, once for each of forty flows.
SETTLED = ", refresh_interval: 1m"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    """Kafka clusters that create topics when asked for them."""
    with serving_pair(
        tmp_path_factory.mktemp("faults"), runtime, brokers={"auto.create.topics.enable": "true"}
    ) as pair:
        yield pair


@pytest.fixture(autouse=True)
def empty(world: Pair) -> None:
    """Start from two serving workers without connectors."""
    start_all([world.src, *world.workers])
    world.delete_connectors()


# --- a source that is down --------------------------------------------------------------------------------------------


def log_bytes(world: Pair) -> int:
    """Return how much the workers' logs hold (each keeps at most 24 MB)."""
    return sum(file.stat().st_size for worker in world.workers for file in worker.directory.glob("server*.log"))


def set_level(world: Pair, level: str) -> None:
    for worker in world.workers:
        rest("PUT", f"{worker.url}/admin/loggers/{FLOODING_LOGGER}", {"level": level})


def watch_log(world: Pair, seconds: float, limit_bytes: int) -> int:
    """Return how many bytes were logged within the time, or as soon as there are more than the limit."""
    before, end = log_bytes(world), time.monotonic() + seconds
    while (grown := log_bytes(world) - before) <= limit_bytes and time.monotonic() < end:
        time.sleep(0.5)
    return grown


def test_a_source_that_is_down_is_told_and_comes_in_by_itself(world: Pair, tree: Tree) -> None:
    create(world.source, ["sleeper"])
    tree.write(world.yaml("down", flow("sleeper", "sleeper")))
    world.src.stop()
    set_level(world, "INFO")  # the sandbox silences the logger that floods; here it shall speak
    said = tree.run("apply", "--yes", "--wait", "3", code=3)
    assert "pair: paused for a person to look: mm2.src.tgt.heartbeat: no status yet; not begun: 2 changes" in said
    assert "Applied: 2 of 2 changes" in tree.run("apply", "--yes", "--wait", "0")
    quiet = watch_log(world, WATCHED_SECONDS, QUIET_BYTES)
    assert quiet < QUIET_BYTES
    status = tree.run("status", "--notes")
    assert "! kafka src: no broker " in status
    assert "a new connector first waits for both clusters" in status

    ours = config_of(world.url, "mm2.src.tgt.source.sleeper")
    bare = {key: value for key, value in ours.items() if ".retry.backoff." not in key}
    assert len(bare) < len(ours)
    rest("PUT", connector_url(world.url, "by-hand", "/config"), bare | {"name": "by-hand", "topics": "by-hand"})
    flood = watch_log(world, 90, 5 * QUIET_BYTES)
    set_level(world, "WARN")
    rest("DELETE", connector_url(world.url, "by-hand"))
    assert flood > 5 * QUIET_BYTES, f"{flood} bytes without mm2mgr's back-off, {quiet} with it: is it still needed?"

    world.src.start()
    write_values(world.source, "sleeper", b"awake")
    assert until(lambda: values(world.target, "src.sleeper"), bool) == [b"awake"]
    assert "0 to create, 0 to update, 0 to delete, 3 unchanged" in tree.run("plan")


def test_a_source_that_stops_under_traffic_loses_nothing(world: Pair, tree: Tree, tmp_path: Path) -> None:
    """The shortest form of what test_outages.py does to targets, workers and fleets."""
    create(world.source, ["tide"])
    tree.write(world.yaml("tide", flow("tide", "tide"), "checkpoints: false, heartbeats: false, "))
    tree.run("apply", "--yes")
    workspace = tree.workspace()
    options = ObserveOptions(kafka_seconds=2.0, memory_file=tmp_path / "memory.json", store=tmp_path / "store")

    def look() -> Status:
        return asyncio.run(observe(workspace.topology, workspace.connectors, options=options)).status

    with Traffic(world.source, ["tide"]) as traffic:
        until(lambda: look().health, lambda health: health == "ok", "nothing arrives")
        world.src.stop()
        down = look()
        world.src.start()
        arrived_before = end_offset(world.target, "src.tide")
        until(lambda: end_offset(world.target, "src.tide"), lambda end: end > arrived_before + 100, "it does not go on")
        until(lambda: look().health, lambda health: health == "ok", "not well again")
    (flow_status,) = down.flows
    assert list(down.failures) == ["kafka src"]
    assert (down.problems(), flow_status.health) == ((), "unknown")
    assert "source src could not be read" in flow_status.offsets_note
    (copies,) = traffic.arrived(world.target, "src").values()
    assert set(copies.values()) == {1}, "no worker and no target stopped: each record once"


def test_a_deleted_source_topic_stays_deleted(world: Pair, tree: Tree) -> None:
    """The flow `careless` has Kafka's own default, and shows how long the consumer takes to create a topic."""
    create(world.source, ["kept", "careless"])
    careless = ", source_consumer: {allow.auto.create.topics: true}"
    off = "checkpoints: false, heartbeats: false, "
    tree.write(world.yaml("deleted", flow("kept", "kept") + flow("careless", "careless", careless), off))
    tree.run("apply", "--yes")
    for topic in ("kept", "careless"):
        write_values(world.source, topic, b"1")
    wanted = {"src.kept": [b"1"], "src.careless": [b"1"]}
    until(lambda: {topic: values(world.target, topic) for topic in wanted}, lambda found: found == wanted)
    for doomed in (["kept", "careless"], ["careless"]):
        delete(world.source, doomed)
        # A deletion takes its time on a busy broker.
        until(lambda: topics(world.source), lambda names: "kept" not in names, "it is still there, or there again")
        until(lambda: topics(world.source), lambda names: "careless" in names, "the consumer did not create it again")
        assert "kept" not in topics(world.source)
    assert values(world.target, "src.kept") == [b"1"]


# --- records that go to another cluster -------------------------------------------------------------------------------


def test_records_that_go_to_another_cluster_are_told_although_nothing_else_shows_it(
    world: Pair, tree: Tree, tmp_path: Path
) -> None:
    create(world.source, ["astray"])
    tree.write(world.yaml("astray", flow("astray", "astray"), "checkpoints: false, heartbeats: false, "))
    tree.run("apply", "--yes")
    workspace, name = tree.workspace(), "mm2.src.tgt.source.astray"
    patience = Patience(not_on_target_seconds=2)
    options = ObserveOptions(patience=patience, memory_file=tmp_path / "memory.json", store=tmp_path / "store")
    stored = set[int]()

    def kinds() -> set[str]:
        look = asyncio.run(observe(workspace.topology, workspace.connectors, options=options))
        stored.update(one.stored for one in look.lags["astray:src->tgt"].counted_partitions if one.stored is not None)
        return {problem.kind for problem in look.status.flows[0].problems}

    with Traffic(world.source, ["astray"]):
        healthy = until(lambda: (kinds(), len(stored)), lambda seen: seen[0] != set() or seen[1] > 3)
        assert healthy[0] == set()
        declared = config_of(world.url, name)
        elsewhere = {"producer.override.bootstrap.servers": world.src.bootstrap_servers}
        rest("PUT", connector_url(world.url, name, "/config"), declared | elsewhere)
        found = until(kinds, lambda found: "records-not-on-target" in found)
        assert found == {"records-not-on-target"}, "its drift is told with it"
        assert {part["state"] for one in statuses(world.url).values() for part in one["tasks"]} == {"RUNNING"}
        assert end_offset(world.source, "src.astray") > 0, "there they are"
        before = end_offset(world.target, "src.astray")
        rest("PUT", connector_url(world.url, name, "/config"), declared)
        until(lambda: end_offset(world.target, "src.astray"), lambda end: end > before, "nothing arrives again")
        until(kinds, lambda found: not found, "still a problem")


# --- workers that die -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Many:
    """Ten flows of one pair, each with a topic and a record of its own, which makes twelve connectors."""

    world: Pair
    tree: Tree
    topics: list[str]

    @property
    def connectors(self) -> set[str]:
        return {connector.name for connector in self.tree.workspace().connectors}

    @property
    def sources(self) -> set[str]:
        return {f"mm2.src.tgt.source.{topic}" for topic in self.topics}

    def apply_and_kill(self, victims: Iterable[Worker], deadline_seconds: float) -> tuple[list[Result], float]:
        """Apply, and kill workers with SIGKILL as soon as three results are there; return all results, and the seconds
        from then to the end."""
        estate, seen, killed = self.tree.workspace(), list[Result](), list[float]()

        def report(event: Event) -> None:
            if not isinstance(event, Result):
                return
            seen.append(event)
            if len(seen) == 3:
                for worker in victims:
                    worker.kill()
                killed.append(time.monotonic())

        async def run() -> list[Result]:
            plan = await make_plan(estate.topology, estate.connectors)
            assert {change.connector for change in plan.writes} == self.connectors
            return await apply_plan(estate.topology, plan, report=report, limits=Limits(write_seconds=deadline_seconds))

        results = asyncio.run(run())
        assert results == seen
        return results, time.monotonic() - killed[0]

    def assert_all_run_once(self, url: str) -> None:
        """Hold Connect to exactly the declared connectors, one running task each, and to records from all of them."""
        assert "0 to create, 0 to update, 0 to delete, 12 unchanged" in self.tree.run("plan", "--detailed-exitcode")
        names = rest("GET", f"{url}/connectors")
        assert sorted(names) == sorted(self.connectors)
        until(lambda: self.running_tasks(url), lambda tasks: tasks == sorted((name, 0) for name in self.sources))
        wanted = {f"src.{topic}": {topic.encode()} for topic in self.topics}
        until(lambda: {topic: set(values(self.world.target, topic)) for topic in wanted}, lambda got: got == wanted)

    def running_tasks(self, url: str) -> list[tuple[str, int]]:
        return sorted(
            (name, task["id"])
            for name, status in statuses(url).items()
            for task in status["tasks"]
            if task["state"] == "RUNNING" and name in self.sources
        )


@pytest.fixture
def many(world: Pair, tree: Tree, request: pytest.FixtureRequest) -> Many:
    made = Many(world, tree, [f"{request.param}{number}" for number in range(FLOWS)])
    create(world.source, made.topics)
    for topic in made.topics:
        write_values(world.source, topic, topic.encode())
    tree.write(world.yaml("killed", "".join(flow(topic, topic, SETTLED) for topic in made.topics)))
    return made


@pytest.mark.parametrize("many", ["one"], indirect=True)
def test_apply_completes_when_one_of_two_workers_is_killed(many: Many) -> None:
    victim, survivor = many.world.workers
    results, _ = many.apply_and_kill([victim], deadline_seconds=100)
    assert [(result.connector, result.error) for result in results if result.error] == []
    assert {result.connector for result in results} == many.connectors
    many.assert_all_run_once(survivor.url)
    holders = {task["worker_id"] for one in statuses(survivor.url).values() for task in one["tasks"]}
    assert holders == {survivor.url.removeprefix("http://")}


@pytest.mark.parametrize("many", ["all"], indirect=True)
def test_apply_says_what_is_left_when_no_worker_is_left(many: Many) -> None:
    results, seconds = many.apply_and_kill(many.world.workers, deadline_seconds=12)
    assert seconds < 2 * 12, "each wave waited for workers that are known to be gone"
    failed = {result.connector: result for result in results if result.error is not None}
    for name, result in failed.items():
        assert f"Connect cluster 'pair', connector '{name}'" in str(result.error)
        assert result.hint
    assert "skipped: the previous write got no response" in str(failed["mm2.src.tgt.checkpoint"].error)
    assert {result.connector for result in results} == many.connectors
    start_all(many.world.workers)
    said = many.tree.run("apply", "--yes")
    assert "pair: created mm2.src.tgt.checkpoint" in said
    many.assert_all_run_once(many.world.url)


def test_a_dead_target_is_told_soon_and_dead_workers_fully(world: Pair, tree: Tree) -> None:
    """With the target, which the workers live on, they let requests for offsets run into a time-out; without workers,
    both clusters still tell how far behind the flow is."""
    create(world.source, ["outage"])
    off, topic = "checkpoints: false, heartbeats: false, ", ", offsets_topic: connect-pair-offsets"
    tree.write(world.yaml("outage", flow("outage", "outage"), off, workers=topic))
    tree.run("apply", "--yes")
    for number in range(20):
        write_values(world.source, "outage", f"{number}".encode())
    until(lambda: end_offset(world.target, "src.outage"), lambda end: end == 20, "nothing arrives")
    until(lambda: tree.json("lag")["flows"][0]["total"]["lag_records"]["value"], lambda lag: lag == 0, "never level")

    world.tgt.stop()
    begun = time.monotonic()
    assert "kafka tgt: no broker " in tree.run("status", code=1)  # beside a problem where the workers are silent too
    between = time.monotonic()
    tree.run("lag", code=1)
    took = between - begun, time.monotonic() - between
    world.tgt.start()
    assert max(took) < 2 * allowed_seconds(), f"status and lag took {took} s"

    for worker in world.workers:
        worker.kill()
    for number in range(5):
        write_values(world.source, "outage", f"more {number}".encode())
    assert "at least 5" in tree.run("status", code=1)
    write_values(world.source, "outage", b"one more")
    said = tree.run("status", code=1)
    assert "! outage:src->tgt: no worker of pair answers: at least 6 records wait, 6 of them new" in said
    assert "the offsets in the workers' topic" in tree.run("status", "--notes", code=1)
    write_values(world.source, "outage", b"and the last one")
    (row,) = tree.json("lag")["flows"]
    assert row["total"]["lag_records"] == {"value": 7, "at_least": True}
    assert row["total"]["trend"]["direction"] == "growing"


@pytest.mark.matrix  # the gate kills one of two workers, and both, in an apply: the two tests above
def test_an_apply_converges_whenever_a_worker_is_killed(world: Pair, tree: Tree) -> None:
    """40 connectors change under traffic, and a worker dies with SIGKILL at a random moment; somebody starts it again.

    MM2MGR_KILLS=20 does that twenty times (half an hour on two busy cores).
    """
    topics_ = [f"killed{number}" for number in range(MANY_FLOWS)]
    create(world.source, topics_)
    names = [f"mm2.src.tgt.source.{topic}" for topic in topics_]
    dice = random.Random(os.environ.get("MM2MGR_SEED", "1"))

    def declare(number: int) -> None:
        marker = f"{SETTLED}, source_consumer: {{max.poll.records: {500 + number}}}"
        tree.write(world.yaml("random", "".join(flow(topic, topic, marker) for topic in topics_)))

    declare(0)
    tree.run("apply", "--yes", "--wait", "120")
    with Traffic(world.source, topics_) as traffic:
        for number in range(1, KILLS + 1):
            declare(number)
            victim, moment = dice.choice(world.workers), dice.uniform(0.0, LATEST_KILL_SECONDS)
            with tree.start("apply", "--yes", "--wait", "150") as running:
                killer = threading.Thread(target=_kill_and_start, args=(victim, moment))
                killer.start()
                out, err = running.communicate(timeout=300)
                killer.join()
            how = f"round {number}: {victim.name} killed after {moment:.2f} s\n{out}{err}"
            assert running.returncode == 0, how
            again = tree.run("apply", "--yes")
            assert "Applied: 0 of 0 changes" in again, how
            until(lambda: _markers(world, names), lambda found, wanted=str(500 + number): found == {wanted}, how)  # type: ignore[misc]
            until(lambda: _states(world), lambda found: found == (MANY_FLOWS + 2, {"RUNNING"}), how)
    traffic.arrived(world.target, "src")


def _kill_and_start(worker: Worker, seconds: float) -> None:
    time.sleep(seconds)  # the moment is what the test draws
    worker.kill()
    worker.start()


def _markers(world: Pair, names: Iterable[str]) -> set[str | None]:
    """Return the values of the changed key in all tasks; None where a connector has no task."""
    tasks = [task_configs(world.url, name) or [{}] for name in names]
    return {task.get("source.consumer.max.poll.records") for each in tasks for task in each}


def _states(world: Pair) -> tuple[int, set[str]]:
    """Return how many connectors there are, and the states of connectors and tasks."""
    found = statuses(world.url).values()
    return len(found), {part["state"] for one in found for part in (one["connector"], *one["tasks"])}
