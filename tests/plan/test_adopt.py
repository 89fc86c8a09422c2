"""`adopt:` and `release:`: whose a connector is by lists in the tree, before and after it carries the owner mark."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm2mgr.json_values import to_json
from mm2mgr.output.plan_text import say_plan
from mm2mgr.plan.changes import Plan
from mm2mgr.render import OWNER_KEY
from tests.fake_connect import CLASSES
from tests.plan.site import ON_EAST, Site, actions, errors

ORDERS = "flows:\n  orders: {sources: [a], targets: [east], topics: {include: [orders]}, checkpoints: false, heartbeats: false, connector_name: legacy}\n"
NONE = "flows: {}\n"
BY_HAND = {
    "connector.class": "MirrorSourceConnector",
    "topics": "orders",
    "source.cluster.alias": "a",
    "target.cluster.alias": "east",
    "source.cluster.bootstrap.servers": "a:9092",
    "target.cluster.bootstrap.servers": "east:9092",
}


def adopt(more: str = "") -> str:
    return f"adopt: [{{connect: east, connector: legacy{more}}}]\n"


RELEASE = "release: [{connect: east, connector: legacy}]\n"


def test_a_connector_of_a_wanted_name_is_blocked_and_the_remedy_adopts_it(site: Site) -> None:
    site.east.add("legacy", BY_HAND)
    (change,) = site.plan(ORDERS).changes
    assert change.action == "blocked"
    assert "adopt: [{connect: east, connector: legacy}]" in change.remedy


def test_the_mark_of_another_owner_needs_from_owner(site: Site) -> None:
    site.east.add("legacy", BY_HAND | {OWNER_KEY: "others"})
    (change,) = site.plan(ORDERS + adopt()).changes
    assert (change.action, "belongs to owner 'others'" in change.reason) == ("blocked", True)
    assert "from_owner: others" in change.remedy
    (change,) = site.plan(ORDERS + adopt(", from_owner: them")).changes
    assert change.action == "blocked"
    (change,) = site.plan(ORDERS + adopt(", from_owner: others")).changes
    assert change.action == "no-op"


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


def entry(plan: Plan) -> dict[str, Any]:
    (found,) = [entry for part in to_json(plan)["clusters"] for entry in part["lists"]]
    return found


def test_adoption_writes_nothing_until_the_config_must_change(site: Site) -> None:
    site.east.add("legacy", dict(BY_HAND))
    before = dict(site.east.connectors["legacy"].config)
    tree = ORDERS + adopt()
    plan = site.plan(tree, prune=True)
    assert (actions(plan), plan.writes) == ({"legacy": "no-op"}, ())
    listed = entry(plan)
    assert (listed["list"], listed["connector"], listed["done"]) == ("adopt", "legacy", False)
    assert re.search(r"x\.yaml:\d+$", listed["place"])
    assert {OWNER_KEY, "key.converter"} <= set(listed["pending"])
    site.apply(plan, tree)
    assert not site.east.writes
    assert site.east.connectors["legacy"].config == before

    tree = tree.replace("[orders]}", "[orders, more]}")
    plan = site.plan(tree)
    (change,) = plan.changes
    assert (change.action, "differs in topics;" in change.reason) == ("update", True)
    assert {key.key for key in change.keys} >= {OWNER_KEY, "topics", "key.converter"}  # all that is written is shown
    assert not errors(site.apply(plan, tree))
    assert site.east.connectors["legacy"].config[OWNER_KEY] == "team"
    after = site.plan(tree)
    assert (actions(after), entry(after)["done"]) == ({"legacy": "no-op"}, True)
    assert actions(site.plan(tree.replace(adopt(), ""))) == {"legacy": "no-op"}


def test_what_is_adopted_can_be_paused_without_a_write_to_its_config(site: Site) -> None:
    site.east.add("legacy", dict(BY_HAND))
    tree = ORDERS.replace("connector_name: legacy", "connector_name: legacy, state: paused") + adopt()
    assert not errors(site.converge(tree))
    assert [each.path for each in site.east.writes] == ["/connectors/legacy/pause"]
    assert actions(site.plan(tree)) == {"legacy": "no-op"}


def test_an_adopted_connector_that_changed_since_the_plan_is_not_written(site: Site) -> None:
    site.east.add("legacy", dict(BY_HAND))
    tree = ORDERS.replace("[orders]}", "[orders, more]}") + adopt()
    plan = site.plan(tree)
    site.east.connectors["legacy"].config[OWNER_KEY] = "others"
    assert "owner mark is now 'others'" in errors(site.apply(plan, tree))["legacy"]


def test_what_does_not_run_is_not_created_by_adopting_it(site: Site) -> None:
    plan = site.plan(ORDERS + adopt())
    (change,) = plan.changes
    assert (change.action, "nothing of that name runs there" in change.reason) == ("blocked", True)
    assert entry(plan)["says"].startswith("not adopted")


def test_another_pair_or_class_of_that_name_is_blocked(site: Site) -> None:
    for more in ({"source.cluster.alias": "b"}, {"connector.class": "FileStreamSource"}):
        site.east.add("legacy", BY_HAND | more)
        assert actions(site.plan(ORDERS + adopt())) == {"legacy": "blocked"}


def test_a_released_line_says_when_it_can_go(site: Site) -> None:
    tree = NONE + RELEASE
    assert entry(site.plan(tree))["done"]
    site.east.add("legacy", BY_HAND | {OWNER_KEY: "team"})
    assert not entry(site.plan(tree))["done"]
    site.east.add("legacy", BY_HAND | {OWNER_KEY: "others"})
    assert (entry(site.plan(tree))["done"], "'others'" in entry(site.plan(tree))["says"]) == (True, True)


def test_one_owner_releases_and_another_adopts(site: Site) -> None:
    site.converge(ORDERS)
    site.owner = "others"
    tree = ORDERS + adopt(", from_owner: team")
    site.forget()
    assert not errors(site.converge(tree))
    assert not site.east.writes
    tree = tree.replace("[orders]}", "[orders, more]}")
    assert not errors(site.converge(tree))
    assert site.east.connectors["legacy"].config[OWNER_KEY] == "others"
    assert entry(site.plan(tree))["done"]


def test_text_shows_the_lists(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.east.add("legacy", dict(BY_HAND))
    say_plan(site.plan(ORDERS + adopt()))
    shown = capsys.readouterr().out
    assert re.search(r"adopt legacy: adopted; nothing is written until .* \(.*x\.yaml:\d+\)", shown)
    assert re.search(r"\d+ keys to be written with its next change: ", shown)


LIVE = st.fixed_dictionaries(
    {},
    optional={
        "tasks.max": st.sampled_from(["1", "2"]),
        "topics": st.sampled_from(["orders", "orders, more", "orders,orders"]),
        "replication.factor": st.sampled_from(["2", "3"]),
        "sync.topic.acls.enabled": st.sampled_from(["true", "FALSE"]),
        "consumer.fetch.min.bytes": st.sampled_from(["1", "2"]),
        "x.of.a.plugin": st.just("1"),
    },
)
SAID = st.sampled_from(
    ["", ", tasks: {max: 2}", ", source_consumer: {fetch.min.bytes: 2}", ", sync: {topic_acls: true}"]
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LIVE, SAID, st.booleans())
def test_an_adopted_connector_gets_nothing_that_the_plan_did_not_show(
    site: Site, by_hand: dict[str, str], said: str, pruned: bool
) -> None:
    """Whatever runs and is declared: what is written is what was shown, others stay, and the plan after it is empty."""
    site.east.connectors.clear()
    site.east.add("legacy", BY_HAND | by_hand)
    site.east.add("theirs", BY_HAND | by_hand | {"topics": "theirs"})
    before = {name: dict(one.config) for name, one in site.east.connectors.items()}
    tree = ORDERS.replace(", connector_name", f"{said}, connector_name") + adopt()
    plan = site.plan(tree, prune=pruned)
    (change,) = plan.changes
    site.forget()
    assert not errors(site.apply(plan, tree))
    after = {name: dict(one.config) for name, one in site.east.connectors.items()}
    assert after["theirs"] == before["theirs"]
    shown = {key.key: key.after for key in change.keys}
    expected = {key: value for key, value in (before["legacy"] | shown).items() if value is not None}
    assert after["legacy"] == expected
    assert bool(site.east.writes) == (change.action == "update")
    assert [each.action for each in site.plan(tree, prune=pruned).changes] == ["no-op"]
