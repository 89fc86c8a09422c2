"""After apply: only a state that belongs to the written config counts; what cannot be known is said and is no success."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from mm2mgr.apply.settle import Settled, States, Verification, WrittenConnector
from mm2mgr.apply.waves import Result
from mm2mgr.assignment_text import ASSIGNMENT_KEY, DIGEST_KEY, PLUGIN_CLASS, digest
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connectors import RunningConnector, TaskConfig
from mm2mgr.live.endpoints import connect_target
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import ask_all
from tests.plan.site import FLOWS, ON_EAST, ON_WEST, Site

LOGS, ORDERS = "mm2.a.east.source.logs", "mm2.a.east.source.orders"
NEW = FLOWS.replace("[orders]}", "[orders]}, source_consumer: {max.poll.records: 7}")
INVALID = FLOWS.replace(
    "[orders]}", "[orders]}, silence: {invalid-value: a test}, source_consumer: {fetch.max.bytes: -5}"
)
RUNNING = Settled("RUNNING", "ok")
CAUSE = "org.apache.kafka.common.config.ConfigException: Invalid value -5 for configuration fetch.max.bytes"
ALL_FAILED = Settled(f"RUNNING, 1 of 1 tasks FAILED: {CAUSE}", "failed")


def settled(
    site: Site, results: list[Result], timeout_seconds: float = 5.0, hold_seconds: float = 0.0
) -> dict[str, Settled]:
    """Verify what was written, one Connect cluster after the other; what ran before is not known unless a test says it."""
    states: States = {}

    async def verify(connect: str) -> None:
        ask = partial(ask_all, topology=site.declare()[0], limits=Limits(connect_seconds=10))
        found = Verification(connect, ask, wait_seconds=timeout_seconds, hold_seconds=hold_seconds, states=states)
        changes = [each.change for each in results if each.connect == connect and each.is_done and each.change]
        await found.check(changes)

    for connect in sorted({result.connect for result in results}):
        asyncio.run(verify(connect))
    return {connector: state for (_, connector), state in states.items()}


def test_created_connectors_are_settled_in_one_look(site: Site) -> None:
    results = site.converge()
    site.forget()
    assert set(settled(site, results).values()) == {RUNNING}
    assert [request.query for request in site.east.requests] == ["expand=info&expand=status"]


def test_failed_tasks_are_counted(site: Site) -> None:
    results = site.converge()
    site.east.connectors[LOGS].failed_tasks = {0: "trace"}
    assert settled(site, results)[LOGS] == Settled("RUNNING, 1 of 1 tasks FAILED: trace", "failed")


@pytest.mark.parametrize("lag", [(0, 1), (1, 0), (3, 1), (2, 2)])
def test_mending_a_failed_task_is_a_success(site: Site, lag: tuple[int, int]) -> None:
    site.converge(INVALID)
    site.east.restart_reads = lag
    [result] = site.converge(NEW)
    assert site.east.status(ORDERS)["tasks"][0]["state"] == "FAILED", "the status is not stale: nothing is tested"
    assert settled(site, [result], hold_seconds=2.5) == {ORDERS: RUNNING}


@pytest.mark.parametrize("lag", [(0, 1), (1, 0), (3, 1), (2, 2)])
def test_breaking_a_running_task_is_a_failure(site: Site, lag: tuple[int, int]) -> None:
    site.converge()
    site.east.restart_reads = lag
    [result] = site.converge(INVALID)
    assert site.east.status(ORDERS)["tasks"][0]["state"] == "RUNNING", "the status is not stale: nothing is tested"
    assert settled(site, [result], hold_seconds=2.5) == {ORDERS: ALL_FAILED}


def test_tasks_that_keep_the_config_before_are_inconclusive(site: Site) -> None:
    """Seen with a source that does not answer: the old tasks run on."""
    site.converge()
    site.east.restart_reads = (1000, 0)
    [result] = site.converge(NEW)
    found = settled(site, [result], timeout_seconds=0.5)[ORDERS]
    assert found == Settled("RUNNING, but its tasks still have the previous config", "inconclusive")


def test_a_state_that_could_be_from_before_is_inconclusive(site: Site) -> None:
    site.converge()
    [result] = site.converge(NEW)
    found = settled(site, [result], timeout_seconds=0.0, hold_seconds=1.0)[ORDERS]
    assert found == RUNNING  # the hold is no longer than half the wait
    [result] = site.converge(INVALID)
    site.east.connectors[ORDERS].hidden_reads = 2  # comes at the end of the wait
    found = settled(site, [result], timeout_seconds=1.0, hold_seconds=1.0)[ORDERS]
    assert found == Settled(f"{ALL_FAILED.state}, possibly from before the write", "inconclusive")


def test_a_connector_without_status_or_tasks_is_inconclusive(site: Site) -> None:
    results = site.converge()
    site.east.connectors[ON_EAST[0]].hidden_reads = 1000
    site.east.connectors[ON_EAST[1]].forced_tasks = 0  # its source does not answer: RUNNING/[]
    site.east.connectors[ON_EAST[3]].forced_tasks = 0  # a checkpoint connector without groups
    for result in results:
        if result.connector == ON_EAST[1] and result.change:
            results[results.index(result)] = replace(result, change=replace(result.change, takes=None))  # not listed
    found = settled(site, results, timeout_seconds=0.0)
    assert found[ON_EAST[0]] == Settled("no status yet", "inconclusive")
    why = "no topic matches, or the source cluster does not answer"
    assert found[ON_EAST[1]] == Settled(f"RUNNING, no tasks yet ({why})", "inconclusive")
    assert found[ON_EAST[2]] == found[ON_EAST[3]] == RUNNING


def test_a_status_that_comes_late_is_seen(site: Site) -> None:
    results = site.converge()
    site.east.connectors[ON_EAST[0]].hidden_reads = 1
    assert settled(site, results)[ON_EAST[0]] == RUNNING


def test_a_cluster_that_cannot_be_asked_is_unknown_not_fine(site: Site) -> None:
    results = site.converge()
    site.east.fail_next("GET", "/connectors", 401, times=1000)
    found = settled(site, results, timeout_seconds=0.0)
    assert found[ON_EAST[0]].state.startswith("unknown: Connect cluster 'east'")
    assert found[ON_EAST[0]].verdict == "inconclusive"
    assert found["mm2.a.west.heartbeat"] == RUNNING


def test_a_paused_connector_is_settled_though_its_tasks_take_the_config_later(site: Site) -> None:
    site.converge()
    site.east.connectors[ORDERS].state = "PAUSED"
    [result] = site.converge(NEW)
    assert settled(site, [result]) == {ORDERS: Settled("PAUSED", "ok")}


@pytest.mark.parametrize("what", ["overwritten", "deleted"])
def test_what_somebody_does_while_it_is_waited_for_is_a_failure(site: Site, what: str) -> None:
    site.converge()
    [result] = site.converge(NEW)
    if what == "deleted":
        del site.east.connectors[ORDERS]
    else:
        site.east.connectors[ORDERS].config["tasks.max"] = "9"
    found = settled(site, [result])[ORDERS]
    assert (found.verdict, what in found.state) == ("failed", True)


def test_a_created_connector_counts_as_deleted_only_when_workers_go_on_not_to_show_it(site: Site) -> None:
    [created] = [each.change for each in site.converge() if each.change and each.change.connector == ORDERS]

    async def read() -> RunningConnector:
        async with ConnectClient(connect_target(site.declare()[0].connects["east"]), deadline_seconds=10) as client:
            return (await client.infos_with_statuses())[ORDERS]

    running = asyncio.run(read())
    late, gone = WrittenConnector(created, 6.0), WrittenConnector(created, 6.0)
    assert late.look(None, 0.0)[1] is False, "another worker has read the write, this one has not yet"
    assert late.look(running, 1.0) == (RUNNING, True)
    assert gone.look(None, 0.0)[1] is False
    assert gone.look(None, 7.0) == (Settled("deleted since it was written", "failed"), True)


def test_tasks_of_the_connect_plugin_have_an_assignment_when_they_have_its_digest(site: Site) -> None:
    [created] = [each.change for each in site.converge() if each.change and each.change.connector == ORDERS]
    stock = dict(created.config or {})
    older, newer = (f"version=1;rates={rate};unlisted=1;orders:0@0" for rate in (1, 2))
    plugin = stock | {"connector.class": PLUGIN_CLASS, ASSIGNMENT_KEY: older}
    for before, after, of_tasks in (
        (plugin, plugin | {ASSIGNMENT_KEY: newer}, {"connector.class": PLUGIN_CLASS, DIGEST_KEY: digest(newer)}),
        (stock, plugin, {"connector.class": PLUGIN_CLASS, DIGEST_KEY: digest(older)}),
        (plugin, stock, {"connector.class": stock["connector.class"]}),
    ):
        written = WrittenConnector(replace(created, action="update", before=before, config=after), 6.0)
        written.take([TaskConfig(0, {"connector.class": PLUGIN_CLASS, DIGEST_KEY: digest("an older one")})])
        assert written.asks_tasks
        written.take([TaskConfig(0, of_tasks)])
        assert not written.asks_tasks


def test_many_connectors_are_looked_at_in_bulk(site: Site) -> None:
    site.converge()
    results = site.converge(FLOWS.replace("targets: [", "refresh_interval: 7s, targets: ["))
    assert len(results) == 5  # sources and checkpoints
    site.forget()
    assert set(settled(site, results).values()) == {RUNNING}
    asked = [(one.path, one.query) for one in site.east.requests]
    assert len(asked) == len(set(asked)) == 3 + 1, asked
    assert len(site.west.requests) == len(ON_WEST) - 1 + 1


def test_failed_and_deleted_ones_are_not_waited_for(site: Site) -> None:
    results = [Result("east", "x", "create", error="refused"), Result("east", "y", "delete")]
    assert settled(site, results) == {}
    assert site.east.requests == []
