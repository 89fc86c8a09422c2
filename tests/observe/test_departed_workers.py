"""Workers that are gone, whose tasks Connect still shows as RUNNING."""

from __future__ import annotations

import asyncio
from contextlib import closing
from socket import create_server
from urllib.parse import urlsplit

import pytest

from mm2mgr.connect.client import silent_workers
from mm2mgr.connect.target import ConnectTarget, ProxyServer
from mm2mgr.json_values import to_json
from mm2mgr.sandbox.server import free_ports
from tests.connect.dead_ends import black_hole_url, silent_url
from tests.observe.estate import Estate, kinds, sentences

KIND = "worker-departed"


@pytest.fixture
def gone() -> str:
    """The id of a worker that nobody has at its address any more."""
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"


@pytest.fixture
def shared(small: Estate, gone: str) -> Estate:
    """The small estate with task 0 on the worker that answers, and task 1 on one that is gone."""
    small.connect.worker_ids = {None: here(small), 0: here(small), 1: gone}
    return small


def here(estate: Estate) -> str:
    return address(estate.topology.connects["cb"].model.url[0])


def address(url: str) -> str:
    """Return what a worker at a URL has as its id."""
    return urlsplit(url).netloc


def test_tasks_on_a_worker_that_is_gone_are_a_problem_at_the_second_look_until_it_is_back(
    shared: Estate, gone: str
) -> None:
    assert shared.flow().health == "ok"
    found = shared.flow(later_seconds=10)
    assert (kinds(found), found.health) == ([KIND], "problem")
    (problem,) = found.problems
    assert (problem.subject.tasks, problem.since_seconds) == ((1,), 10)
    assert to_json(problem.evidence) == {"worker": gone, "connector_there": False}
    (said,) = sentences(found)
    assert said.startswith(f"task 1 RUNNING by the status on worker {gone}, which has accepted no connection for 10 s")
    with closing(create_server(("127.0.0.1", int(gone.rpartition(":")[2])))):
        assert shared.flow(later_seconds=10).health == "ok"
    assert shared.flow(later_seconds=10).health == "ok", "its time begins anew"


def test_a_worker_that_restarts_at_once_is_no_problem(shared: Estate) -> None:
    shared.flow()
    assert kinds(shared.flow(later_seconds=9)) == []


def test_a_connector_without_tasks_there_is_named_too(shared: Estate, gone: str) -> None:
    shared.connect.worker_ids = {None: gone, 0: here(shared), 1: here(shared)}
    shared.flow()
    status = shared.status(later_seconds=10)
    (problem,) = status.flows[0].problems
    assert (problem.subject.tasks, to_json(problem.evidence)["connector_there"]) == ((), True)
    assert [[one.kind for one in companion.problems] for companion in status.companions] == [[KIND], [KIND]]
    assert sentences(status.flows[0])[0].startswith("the connector RUNNING by the status")


def test_a_connector_at_rest_needs_no_worker(shared: Estate, gone: str) -> None:
    shared.connect.connectors[shared.source].state = "PAUSED"
    shared.connect.worker_ids[None] = gone
    shared.flow()
    assert KIND not in kinds(shared.flow(later_seconds=60))


def test_a_worker_whose_tasks_move_records_is_only_out_of_reach(shared: Estate) -> None:
    shared.flow()
    shared.log(0, 500, partition=1)
    shared.log(0, 400, partition=1, alias="B", topic="A.orders")
    assert kinds(shared.flow(later_seconds=10)) == [], "its task has moved 400 records since the last look"
    assert kinds(shared.flow(later_seconds=40)) == [], "a task that has nothing to do later does not make it one"


def test_what_moved_before_it_fell_silent_does_not_count(shared: Estate, gone: str) -> None:
    shared.connect.worker_ids[1] = here(shared)
    shared.flow()
    shared.log(0, 400, partition=1)
    shared.log(0, 400, partition=1, alias="B", topic="A.orders")
    shared.stored(399, partition=1)
    shared.connect.worker_ids[1] = gone
    shared.flow(later_seconds=10)
    assert KIND in kinds(shared.flow(later_seconds=10))


def test_time_in_which_connect_does_not_answer_does_not_count(shared: Estate) -> None:
    shared.flow()
    shared.connect.fail_next("GET", "/connectors", 404)
    assert shared.flow(later_seconds=60).health == "unknown"
    shared.connect.faults.clear()
    assert kinds(shared.flow(later_seconds=60)) == []
    assert kinds(shared.flow(later_seconds=10)) == [KIND]


def test_where_no_worker_is_within_reach_nothing_is_known(shared: Estate, gone: str) -> None:
    (other,) = free_ports(1)
    shared.connect.worker_ids = {None: gone, 0: f"127.0.0.1:{other}", 1: gone}
    shared.flow()
    assert kinds(shared.flow(later_seconds=60)) == []


def silent(urls: list[str], workers: list[str], proxy: ProxyServer | None = None) -> set[str]:
    target = ConnectTarget("c", tuple(f"http://{url}" for url in urls), proxy=proxy)
    return set(asyncio.run(silent_workers(target, workers)))


def test_a_worker_whose_address_is_a_url_is_judged_alone(gone: str) -> None:
    with silent_url() as idle:
        assert silent([gone, address(idle)], [gone]) == {gone}
    assert silent([gone], [gone]) == set(), "the only URL there is: somebody answered there just now"


def test_behind_a_proxy_no_worker_is_judged(gone: str) -> None:
    with silent_url() as url, silent_url() as proxy:
        one = address(url)
        assert silent([one], [one, gone]) == {gone}
        assert silent([one], [one, gone], ProxyServer(proxy)) == set()


def test_a_worker_whose_machine_answers_nothing_is_silent_too() -> None:
    with silent_url() as url, black_hole_url() as hole:
        assert silent([address(url)], [address(url), address(hole)]) == {address(hole)}


@pytest.mark.parametrize(
    "odd", ["", "worker", "host:", "host:99999", "[::1", "a b:1", "ho\x00st:1", "x" * 300 + ":1", "ü.:1"]
)
def test_an_id_that_is_no_address_stops_nothing(gone: str, odd: str) -> None:
    with silent_url() as url:
        assert silent([address(url)], [address(url), gone, odd]) - {odd} == {gone}
