"""What would be mirrored a second time is not created unasked: a renamed flow, a flow that runs elsewhere now."""

from __future__ import annotations

from mm2mgr.reconcile.plan import Plan
from tests.reconcile.site import Site

ONE = "flows:\n  orders: {sources: [a], targets: [east], topics: {include: [orders, 'logs[.].*']}}\n"
RENAMED = ONE.replace("orders:", "trade:", 1)
ELSEWHERE = ONE.replace("topics:", "run_on: west, topics:")
OTHER_TOPICS = RENAMED.replace("[orders, 'logs[.].*']", "[payments]")
SOURCE, NEW = "mm2.a.east.source.orders", "mm2.a.east.source.trade"


def action(plan: Plan, connector: str, connect: str = "east") -> str:
    return next(c.action for c in plan.changes if (c.connector, c.connect) == (connector, connect))


def reason(plan: Plan, connector: str) -> str:
    return next(c.reason for c in plan.changes if c.connector == connector and c.reason)


def test_a_renamed_flow_is_blocked_and_the_old_connector_named(site: Site) -> None:
    site.converge(ONE)
    plan = site.plan(RENAMED, prune=True)
    assert action(plan, NEW) == "blocked"
    assert reason(plan, NEW).startswith(f"'{SOURCE}' on Connect cluster 'east' has mirrored these topics")
    assert "--mirror-again" in reason(plan, NEW)
    assert plan.failed


def test_a_flow_that_runs_elsewhere_now_is_blocked_there(site: Site) -> None:
    site.converge(ONE)
    assert action(site.plan(ELSEWHERE), SOURCE, "west") == "blocked"
    assert action(site.plan(ELSEWHERE, only=["orders:a->east"]), SOURCE, "west") == "blocked"


def test_asked_for_it_is_created_and_said(site: Site) -> None:
    site.converge(ONE)
    plan = site.plan(RENAMED, mirror_again=True)
    assert action(plan, NEW) == "create"
    assert reason(plan, NEW) == f"mirrors again what '{SOURCE}' on Connect cluster 'east' has mirrored"


def test_other_topics_of_the_same_pair_are_no_second_time(site: Site) -> None:
    site.converge(ONE)
    assert action(site.plan(OTHER_TOPICS), NEW) == "create"


def test_what_stays_declared_blocks_nothing(site: Site) -> None:
    site.converge(ONE)
    both = ONE + "  trade: {sources: [a], targets: [east], topics: {include: [payments]}}\n"
    assert action(site.plan(both), NEW) == "create"
    assert action(site.plan(both), SOURCE) == "no-op"


def test_what_a_blocked_connector_would_take_the_place_of_is_not_pruned(site: Site) -> None:
    site.converge(ONE)
    plan = site.plan(RENAMED, prune=True)
    assert action(plan, SOURCE) == "blocked"
    assert reason(plan, SOURCE).startswith(f"no longer declared, but '{NEW}' on Connect cluster 'east'")
    site.apply(plan, RENAMED)
    assert SOURCE in site.names("east")
    assert NEW not in site.names("east")


def test_it_is_kept_on_another_connect_cluster_too(site: Site) -> None:
    site.converge(ONE)
    assert action(site.plan(ELSEWHERE, prune=True), SOURCE, "east") == "blocked"


def test_asked_for_the_old_one_is_pruned(site: Site) -> None:
    site.converge(ONE)
    assert action(site.plan(RENAMED, prune=True, mirror_again=True), SOURCE) == "delete"


def test_a_create_warns_of_a_connect_cluster_that_could_not_be_read(site: Site) -> None:
    site.converge(ONE)
    site.urls["east"] = "http://127.0.0.1:1"
    plan = site.plan(ELSEWHERE)
    warnings = [w for c in plan.changes if (c.connector, c.action) == (SOURCE, "create") for w in c.warnings]
    assert len(warnings) == 1
    assert "has run on east, which could not be read" in warnings[0]
