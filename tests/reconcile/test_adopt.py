"""`adopt:` and `release:`: whose a connector is by lists in the tree, before and after it carries the owner mark."""

from __future__ import annotations

from mm2mgr.render import OWNER_KEY
from tests.fake_connect import CLASSES
from tests.reconcile.site import ON_EAST, Site, actions

ORDERS = "flows:\n  orders: {sources: [a], targets: [east], topics: {include: [orders]}, checkpoints: false, heartbeats: false, connector_name: legacy}\n"
NONE = "flows: {}\n"


def adopt(more: str = "") -> str:
    return f"adopt: [{{connect: east, connector: legacy{more}}}]\n"


RELEASE = "release: [{connect: east, connector: legacy}]\n"


def test_a_connector_of_a_wanted_name_is_blocked_and_the_remedy_adopts_it(site: Site) -> None:
    site.east.add("legacy", {"connector.class": CLASSES[0], "topics": "orders"})
    (change,) = site.plan(ORDERS).changes
    assert change.action == "blocked"
    assert "adopt: [{connect: east, connector: legacy}]" in change.remedy


def test_the_mark_of_another_owner_needs_from_owner(site: Site) -> None:
    site.east.add("legacy", {"connector.class": CLASSES[0], "topics": "orders", OWNER_KEY: "others"})
    (change,) = site.plan(ORDERS + adopt()).changes
    assert (change.action, "belongs to owner 'others'" in change.reason) == ("blocked", True)
    assert "from_owner: others" in change.remedy
    (change,) = site.plan(ORDERS + adopt(", from_owner: them")).changes
    assert change.action == "blocked"
    (change,) = site.plan(ORDERS + adopt(", from_owner: others")).changes
    assert change.action != "blocked"


def test_what_is_released_stays_whatever_is_pruned(site: Site) -> None:
    site.converge(ORDERS)
    before = dict(site.east.connectors["legacy"].config)
    plan = site.plan(NONE + RELEASE, prune=True)
    assert (plan.changes, plan.left_over) == ((), 0)
    site.forget()
    site.apply(plan, NONE + RELEASE)
    assert site.east.connectors["legacy"].config == before
    assert not site.east.writes
    assert actions(site.plan(NONE, prune=True)) == {"legacy": "delete"}  # without the line, it is still this tree's


def test_unmarked_connectors_that_are_neither_declared_nor_adopted_stay_foreign(site: Site) -> None:
    for name in ON_EAST:
        site.east.add(name, {"connector.class": CLASSES[0], "topics": "t"})
    assert site.plan(NONE + "adopt: []\n", prune=True).changes == ()
