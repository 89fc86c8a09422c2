"""`fleet` against a Connect cluster of two real workers: what it says runs is what Connect says, and each of them is lost once.

What is predicted of a loss is held against what Connect then did: which tasks stopped, for how long, and who has them. The
worker that does not lead the Connect group is killed first, and comes back; then the leader.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.sandbox.kafka_servers import Worker
from mm2mgr.sandbox.runtime import Runtime
from tests.cli.load import measured

from .command import Tree
from .conftest import WORKER
from .pair import Pair, flow, serving_pair
from .seen import Message, create, log_lines, messages, statuses, task_configs, until, write

pytestmark = pytest.mark.live
DELAY_SECONDS = 30.0  # so long that a leader's loss, which does not wait for it, cannot be taken for a follower's
SESSION_SECONDS = int(WORKER["session.timeout.ms"]) / 1000
SETTINGS = WORKER | {"scheduled.rebalance.max.delay.ms": str(int(DELAY_SECONDS * 1000))}
PARTITIONS = {"orders": 5, "clicks": 3}
FLOW_OF = {"mm2.src.tgt.source.orders": "orders:src->tgt", "mm2.src.tgt.source.clicks": "clicks:src->tgt"}
RATES = {
    ("src", topic, number): (number + 1) * (1e6 if topic == "orders" else 3e5)
    for topic, count in PARTITIONS.items()
    for number in range(count)
}
TASKS = 8  # seven of flows and one of heartbeats; the checkpoint connector has none as long as nobody commits offsets
SLACK_SECONDS = 15.0  # for a rebalance and seven starting tasks on a busy machine
Tasks = dict[tuple[str, int], str]


FLOW_LINES = flow("orders", "orders", ", tasks: {max: 4}") + flow("clicks", "clicks", ", tasks: {max: 3}")


@pytest.fixture
def world(tmp_path: Path, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path, runtime, settings=SETTINGS) as pair:
        yield pair


def worker_of_tasks(url: str, state: str = "RUNNING") -> Tasks:
    """Return the worker of every task that is in this state, by connector and number."""
    return {
        (name, task["id"]): task["worker_id"]
        for name, status in statuses(url).items()
        for task in status["tasks"]
        if task["state"] == state
    }


def fleet(tree: Tree, store: Path) -> dict[str, Any]:
    given = ("--session-timeout", f"{SESSION_SECONDS:.0f}s", "--rebalance-delay", f"{DELAY_SECONDS:.0f}s")
    found: dict[str, Any] = tree.json("fleet", "--store", str(store), *given)
    one: dict[str, Any] = found["connect"]["pair"]
    return one


def told(one: Mapping[str, Any]) -> dict[str, dict[str, list[int]]]:
    """Return what `fleet` says of the flows' tasks, by worker."""
    return {each["worker"]: each["flows"] for each in one["running"]["workers"]}


def by_worker(tasks: Tasks) -> dict[str, dict[str, list[int]]]:
    """Return the same from what Connect says."""
    found: dict[str, dict[str, list[int]]] = {worker: {} for worker in tasks.values()}
    for (connector, number), worker in sorted(tasks.items()):
        if connector in FLOW_OF:
            found[worker].setdefault(FLOW_OF[connector], []).append(number)
    return found


def load_of(world: Pair, tasks: Tasks, worker: str) -> float:
    """Add up the rates of all partitions that the tasks on a worker were really assigned."""
    url, carried = world.workers[0].url, 0.0
    for connector in FLOW_OF:
        for number, config in enumerate(task_configs(url, connector)):
            if tasks[connector, number] == worker:
                carried += sum(RATES.get(("src", *_parsed(name)), 0.0) for name in assigned(config))
    return carried


def assigned(config: Mapping[str, str]) -> list[str]:
    return config["task.assigned.partitions"].split(",")


def _parsed(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)


def produce(world: Pair, value: bytes) -> None:
    for topic, count in PARTITIONS.items():
        write(world.source, topic, [Message(number, None, value) for number in range(count)])


def arrived(world: Pair, value: bytes) -> int:
    """Return on how many partitions a value arrived; a task that restarts may bring it twice."""
    found = ((topic, one) for topic in PARTITIONS for one in messages(world.target, f"src.{topic}"))
    return len({(topic, one.partition) for topic, one in found if one.value == value})


def leader(world: Pair) -> Worker:
    """Return the worker that leads the Connect group, by the last assignment in a log: REST does not show it."""
    said = re.findall(r"leaderUrl='([^']+)/'", "\n".join(log_lines(world.workers[0])))
    (found,) = [worker for worker in world.workers if worker.url == said[-1]]
    return found


def test_what_runs_is_told_as_it_is_and_lost_workers_do_what_was_foretold(
    world: Pair, tree: Tree, tmp_path: Path
) -> None:
    for topic, count in PARTITIONS.items():
        create(world.source, [topic], count)
    tree.write(world.yaml("fleet", FLOW_LINES, workers=", workers: {count: 2, tasks_per_worker: 6}"))
    tree.run("apply", "--yes")
    store = measured(tmp_path / "store", RATES)
    produce(world, b"before")
    until(lambda: arrived(world, b"before"), lambda count: count == sum(PARTITIONS.values()), "records before")

    before, running = told_while_still(tree, store, world.workers[0].url, 2)
    assert told(before) == by_worker(running), "another placement than Connect's own"
    assert {each["worker"]: each["tasks"] for each in before["running"]["workers"]} == {
        worker: list(running.values()).count(worker) for worker in running.values()
    }
    for each in before["running"]["workers"]:
        assert each["bytes_per_second"] == pytest.approx(load_of(world, running, each["worker"]), rel=0.01)
    assert before["fullest"]["tasks"] >= max(each["flow_tasks"] for each in before["running"]["workers"])
    assert (before["workers_today"], before["tasks"], before["running"]["nowhere"]) == (2, 7, [])

    held_to_the_cap(world, tree, running)
    staying = leader(world)
    (going,) = [worker for worker in world.workers if worker is not staying]
    one_lost = before["losses"][0]
    assert (one_lost["workers"], one_lost["stopped_seconds"]) == (1, SESSION_SECONDS + DELAY_SECONDS)
    stopped = lost_as_foretold(tree, world, before, running, going)
    assert DELAY_SECONDS <= stopped <= one_lost["stopped_seconds"] + SLACK_SECONDS, "another stop than foretold"
    after = fleet(tree, store)
    (left,) = after["running"]["workers"]
    assert told(after) == by_worker(worker_of_tasks(staying.url))
    assert left["flow_tasks"] == before["tasks"] == 7
    assert after["running"]["reasons"] == [
        "2 workers declared (workers: count), 1 of them with tasks or connectors.",
        f"{left['worker']} is overloaded as placed now: 7 tasks of at most 6.",
    ]

    going.start()
    again, shared = told_while_still(tree, store, staying.url, 2)
    assert told(again) == by_worker(shared)
    assert again["fullest"]["tasks"] >= max(each["flow_tasks"] for each in again["running"]["workers"])

    assert leader(world) is staying, "the leader changes when it leaves, not when another worker joins"
    one_lost = again["losses"][0]
    assert one_lost["leader_stopped_seconds"] == SESSION_SECONDS
    stopped = lost_as_foretold(tree, world, again, shared, staying)
    assert stopped <= one_lost["leader_stopped_seconds"] + SLACK_SECONDS < DELAY_SECONDS, "another stop than foretold"


def held_to_the_cap(world: Pair, tree: Tree, running: Tasks) -> None:
    """More tasks than the workers may have are blocked and written by nobody, whether workers are declared or seen."""
    url, orders = world.workers[0].url, "mm2.src.tgt.source.orders"
    as_it_was = (tree.folder / "tree.yaml").read_text(encoding="utf-8")
    for declared, how in (("count: 2, ", ""), ("", " seen at work")):
        workers = f", workers: {{{declared}tasks_per_worker: 3}}"
        tree.write(world.yaml("fleet", FLOW_LINES.replace("max: 4", "max: 5"), workers=workers))
        [cluster] = tree.json("plan")["clusters"]
        (change,) = [each for each in cluster["changes"] if each["connector"] == orders]
        says = f"8 tasks on 'pair': its 2 workers{how} with tasks_per_worker: 3 may have 6"
        assert (change["action"], change["reason"]) == ("blocked", f"tasks-per-worker: {says}")
        tree.run("apply", "--yes", code=1)
        assert worker_of_tasks(url) == running, "what is blocked is untouched"
    tree.write(world.yaml("fleet", FLOW_LINES.replace("max: 4", "max: 3"), workers=", workers: {tasks_per_worker: 1}"))
    [cluster] = tree.json("plan")["clusters"]
    (change,) = [each for each in cluster["changes"] if each["connector"] == orders]
    assert change["action"] == "update", "what lowers the tasks is never blocked"
    tree.write(as_it_was)


def lost_as_foretold(tree: Tree, world: Pair, said: Mapping[str, Any], running: Tasks, going: Worker) -> float:
    """Kill a worker; hold its tasks against what was said of them, and return the seconds until all tasks run again."""
    lost = {task for task, worker in running.items() if worker == worker_id(going)}
    foretold = next(each for each in said["running"]["workers"] if each["worker"] == worker_id(going))
    assert 0 < foretold["flow_tasks"] <= said["losses"][0]["stopped_tasks"]
    (staying,) = [worker for worker in world.workers if worker is not going]
    who, undisturbed = ("leader", SESSION_SECONDS) if going is leader(world) else ("follower", DELAY_SECONDS)
    value = f"{who} lost".encode()
    configs = {name: task_configs(staying.url, name) for name in FLOW_OF}
    kept = partitions_of(configs, set(running) - lost)
    began = time.monotonic()
    going.kill()
    produce(world, value)
    until(lambda: arrived(world, value), lambda found: found >= kept, "the other worker's tasks go on")
    came, looked = arrived(world, value), worker_of_tasks(staying.url)
    if time.monotonic() - began < undisturbed:  # else this machine was too busy to look in time
        assert came == kept, "lost tasks moved records"
        assert looked == running, "somebody took back what the dead worker said last, so `fleet` could tell"
    if who == "follower":
        held = {name: {number for each, number in lost if each == name} for name, _ in lost}
        until(
            lambda: departed(tree, going),
            lambda found: found == held,
            "`status` does not name the tasks on the dead worker",
        )
    all_on(staying, running)
    stopped = time.monotonic() - began
    assert departed(tree, going) == {}, "it has no tasks any more"
    print(f"{who} lost: all tasks run again {stopped:.1f} s after the worker was killed")
    until(lambda: arrived(world, value), lambda found: found == sum(PARTITIONS.values()), "lost tasks go on")
    return stopped


def departed(tree: Tree, worker: Worker) -> dict[str, set[int]]:
    """Return the tasks that `status` says to be on a dead worker, by connector."""
    found = [one for one in tree.json("status")["problem_values"] if one["kind"] == "worker-departed"]
    assert {one["evidence"]["worker"] for one in found} <= {worker_id(worker)}
    return {one["subject"]["connector"]: set(one["subject"]["tasks"]) for one in found if one["subject"]["tasks"]}


def worker_id(worker: Worker) -> str:
    return worker.url.removeprefix("http://")


def all_on(worker: Worker, tasks: Tasks) -> Tasks:
    """Wait until one worker runs all of these tasks."""
    wanted = dict.fromkeys(tasks, worker_id(worker))
    return until(lambda: worker_of_tasks(worker.url), lambda found: found == wanted, "not all tasks run on the other")


def partitions_of(configs: Mapping[str, list[dict[str, str]]], tasks: set[tuple[str, int]]) -> int:
    """Count the partitions of the flows' topics that some tasks were assigned."""
    names = [each for name, number in tasks if name in FLOW_OF for each in assigned(configs[name][number])]
    return sum(_parsed(name)[0] in PARTITIONS for name in names)


def told_while_still(tree: Tree, store: Path, url: str, workers: int) -> tuple[dict[str, Any], Tasks]:
    """Ask `fleet` while all tasks run, on so many workers, and stay where they are: return what it says and where they are."""

    def asked() -> tuple[Tasks, dict[str, Any], Tasks]:
        return worker_of_tasks(url), fleet(tree, store), worker_of_tasks(url)

    def is_still(found: tuple[Tasks, dict[str, Any], Tasks]) -> bool:
        before, _, after = found
        return before == after and len(after) == TASKS and len(set(after.values())) == workers

    before, said, _ = until(asked, is_still, "tasks still move")
    return said, before
