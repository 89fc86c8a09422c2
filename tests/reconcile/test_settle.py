"""After apply: what state the written connectors report, also when they report none, or FAILED tasks."""

from __future__ import annotations

import asyncio

from mm2mgr.reconcile.apply import Result, settle
from tests.reconcile.site import ON_EAST, Site


def settled(site: Site, results: list[Result], timeout_seconds: float = 5.0) -> dict[str, str]:
    found = asyncio.run(settle(site.declare()[0], results, timeout_seconds=timeout_seconds))
    return {connector: state for (_, connector), state in found.items()}


def test_running_connectors_with_tasks_are_settled_in_one_look(site: Site) -> None:
    results = site.converge()
    site.forget()
    assert set(settled(site, results).values()) == {"RUNNING"}
    assert [request.query for request in site.east.requests] == ["expand=status"]


def test_failed_tasks_are_counted(site: Site) -> None:
    results = site.converge()
    site.east.connectors["mm2.a.east.source.logs"].failed_tasks = {0: "trace"}
    assert settled(site, results)["mm2.a.east.source.logs"] == "RUNNING, 1 of 1 tasks FAILED"


def test_a_connector_without_status_or_tasks_is_waited_for_and_then_named(site: Site) -> None:
    results = site.converge()
    site.east.connectors[ON_EAST[0]].hidden_reads = 1000
    site.east.connectors[ON_EAST[1]].forced_tasks = 0  # its source does not answer: RUNNING/[]
    found = settled(site, results, timeout_seconds=0.0)
    assert found[ON_EAST[0]] == "no status yet"
    assert found[ON_EAST[1]] == "RUNNING, no tasks yet"
    assert found[ON_EAST[2]] == "RUNNING"


def test_a_status_that_comes_late_is_seen(site: Site) -> None:
    results = site.converge()
    site.east.connectors[ON_EAST[0]].hidden_reads = 1
    assert settled(site, results)[ON_EAST[0]] == "RUNNING"


def test_a_cluster_that_cannot_be_asked_is_unknown_not_fine(site: Site) -> None:
    results = site.converge()
    site.east.fail_next("GET", "/connectors", 401, times=1000)
    found = settled(site, results, timeout_seconds=0.0)
    assert found[ON_EAST[0]].startswith("unknown: Connect cluster 'east'")
    assert found["mm2.a.west.heartbeat"] == "RUNNING"


def test_failed_and_deleted_ones_are_not_waited_for(site: Site) -> None:
    results = [Result("east", "x", "create", error="refused"), Result("east", "y", "delete")]
    assert settled(site, results) == {}
    assert site.east.requests == []
