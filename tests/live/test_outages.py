"""Brokers and workers that stop under traffic: nothing is lost, what comes twice is told, `fleet` forecasts the recovery.

The scenarios are those that others published for their mirrors: source brokers stopped, target brokers stopped (the workers'
own Kafka and another one), the whole fleet restarted with a backlog, three of five workers stopped at once.
Each prints what it saw.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mm2mgr.sandbox.jars import DEFAULT_VERSION
from mm2mgr.sandbox.runtime import kafka_runtime
from mm2mgr.sandbox.server import Server, start_all

from .outages import (
    RECORDS_PER_SECOND,
    Delivery,
    Estate,
    Looks,
    Recovery,
    end_all,
    restarts,
    serving_estate,
)
from .seen import until

pytestmark = [pytest.mark.live, pytest.mark.matrix]
OUTAGE_SECONDS = 30.0
DEPARTED_SECONDS = 14.0  # of two looks, ten seconds apart
SLACK_SECONDS = 20.0  # for a rebalance and tasks that start, on a busy machine
UNCLEAN_SECONDS = 10.0
DELIVERIES = [Delivery(DEFAULT_VERSION), Delivery(DEFAULT_VERSION, is_exactly_once=True), Delivery("3.6.2")]


@pytest.fixture(scope="module", params=DELIVERIES, ids=lambda delivery: str(delivery).replace(" ", "-"))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    delivery: Delivery = request.param
    with serving_estate(tmp_path_factory.mktemp("outages"), kafka_runtime(delivery.version), delivery) as estate:
        yield estate


@pytest.fixture
def estate(served: Estate) -> Estate:
    """Start from a healthy estate."""
    start_all([served.src, served.tgt, served.far, *served.near, served.apart])
    until(lambda: (served.all_run(), served.task_states()), lambda seen: seen[0], "not all tasks run, on all workers")
    served.level()
    return served


def wait_out(began: float, seconds: float = OUTAGE_SECONDS) -> None:
    time.sleep(max(0.0, began + seconds - time.monotonic()))


def assert_nothing_is_planned(looks: Looks) -> None:
    """A failed read is never a create, an update or a delete."""
    assert "0 to create, 0 to update, 0 to delete" in looks.plan


def assert_few(twice: dict[str, list[int]]) -> None:
    """A stop that was not clean repeats what was not stored or acknowledged: a second's worth, more on a busy machine."""
    for topic, ids in twice.items():
        assert len(ids) <= UNCLEAN_SECONDS * RECORDS_PER_SECOND, f"{topic}: {ids}"


def outage(estate: Estate, events: Path, what: str, servers: Sequence[Server]) -> tuple[Looks, dict[str, list[int]]]:
    """Stop servers for a while, and wait until all has arrived; return what the commands said meanwhile, and what came twice.

    In each such outage all flows are unknown, not ill, unless a second look sees that no worker moves what waits; nothing
    is planned, and the flows recover as `fleet` says.
    """
    with estate.watching(events):
        began = time.monotonic()
        end_all(servers)
        looks = estate.look()
        wait_out(began)
        start_all(servers)
        at = estate.level()
        twice = estate.complete(began)
    looks.print(f"{what} stopped")
    estate.healthy().print(f"{what} is back")
    estate.recoveries(f"{what} stopped", began, at)
    assert looks.kinds <= ({"workers-silent"} if what == "fleet" else set())
    assert looks.status["health"] == ("problem" if looks.kinds else "unknown")
    assert_nothing_is_planned(looks)
    assert_few(twice)
    return looks, twice


def test_source_brokers_stop(estate: Estate, tmp_path: Path) -> None:
    """The source of `apart` is the Kafka of its workers, too."""
    events = tmp_path / "watch.jsonl"
    looks, _ = outage(estate, events, "source", [estate.src, estate.far])
    assert looks.status["failures"].keys() == {"kafka src", "kafka far"}
    assert "the workers live on far, which does not answer mm2mgr either" in str(looks.flow("apart")["notes"])
    assert "source src could not be read" in looks.flow("near")["offsets_note"]
    assert restarts(events) == {}


def test_target_brokers_stop(estate: Estate, tmp_path: Path) -> None:
    """The target is the Kafka of the workers of `near`; those of `apart` live on another one."""
    events = tmp_path / "watch.jsonl"
    estate.look(with_plan=False)
    looks, _ = outage(estate, events, "target", [estate.tgt])
    assert looks.status["failures"].keys() == {"kafka tgt"}
    assert {flow["health"] for flow in looks.status["flows"]} == {"unknown"}
    assert "the workers live on tgt, which does not answer mm2mgr either" in str(looks.flow("near")["notes"])
    # An outage longer than a transaction may last ends the producer; only a restart makes a new one.
    causes = {cause for causes in restarts(events).values() for cause in causes}
    assert causes <= ({"fenced", "time-out"} if estate.delivery.is_exactly_once else set())


def test_whole_fleet_restarts_with_a_backlog(estate: Estate, tmp_path: Path) -> None:
    events = tmp_path / "watch.jsonl"
    looks, twice = outage(estate, events, "fleet", [*estate.near, estate.apart])
    assert looks.status["failures"].keys() == {"connect near", "connect apart"}
    assert looks.plan.count("! not planned: ") == 2
    assert restarts(events) == {}
    assert twice == {}, "each stop was clean"


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_three_of_five_workers_stop(estate: Estate, tmp_path: Path, kill: bool) -> None:
    events, places, lost = tmp_path / "watch.jsonl", estate.places(), estate.near[2:]
    gone = {worker.url.removeprefix("http://") for worker in lost}
    topics_ = [topic for topic, worker in places.items() if worker in gone]
    assert len(topics_) == 3
    (said,) = estate.fleet(1, "--lose", "3")["near"]["losses"]
    with estate.watching(events):
        began = time.monotonic()
        end_all(lost, kill=kill)
        estate.look(with_plan=False)
        wait_out(began, DEPARTED_SECONDS)
        looks = estate.look()
        until(lambda: estate.all_run(2), bool, "not all tasks run on the other two")
        at = estate.level()
        twice = estate.complete(began)
    looks.print("three workers are gone")
    estate.healthy().print("two workers have all tasks")
    last, first = estate.pause("near", began, topics_)
    recovery = Recovery(
        f"three of five workers {'killed' if kill else 'stopped'}, {estate.delivery}", "near", first - last,
        max(0.0, at["near"] - first), said["after"]["seconds"], said["stopped_seconds"],
    )  # fmt: skip
    print(recovery.text)
    print(said["reason"])
    recovery.assert_sane()
    assert (said["lost"], said["workers"], said["stopped_tasks"]) == (3, 2, 3)
    assert recovery.stopped <= said["stopped_seconds"] + SLACK_SECONDS
    departed = [problem for problem in looks.status["problem_values"] if problem["kind"] == "worker-departed"]
    # A worker that stops takes its leave, and then its tasks are UNASSIGNED; who is silent is told after ten seconds.
    assert {problem["evidence"]["worker"] for problem in departed} <= gone
    assert looks.kinds <= {"worker-departed", "task-unassigned", "connector-unassigned", "no-progress"}
    assert_nothing_is_planned(looks)
    assert restarts(events) == {}
    assert twice.keys() <= (set(topics_) if kill else set()), "twice only where a stop was not clean"
    assert_few(twice)
