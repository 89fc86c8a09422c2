"""`moved:` in plan and apply: one unit of two connectors, on one Connect cluster or two, that happens as a whole or not at all."""

from __future__ import annotations

from mm2mgr.partitions import TopicPartition
from tests.plan.site import Site, actions, errors

ORDERS = "flows:\n  orders: {sources: [a], targets: [east], topics: {include: [orders]}}\n"
SALES = ORDERS.replace("orders:", "sales:", 1) + "moved: [{from: 'orders:a->east', to: 'sales:a->east'}]\n"
ON_WEST = (
    ORDERS.replace("}}", "}, run_on: west}") + "moved: [{from: east/mm2.a.east.source.orders, to: 'orders:a->east'}]\n"
)
OLD, NEW = "mm2.a.east.source.orders", "mm2.a.east.source.sales"


def begin(site: Site) -> Site:
    assert errors(site.converge(ORDERS)) == {}
    site.east.add_offsets(OLD, "orders", {0: 41}, alias="a")
    site.forget()
    return site


def test_a_renamed_flow_goes_on_where_it_was(site: Site) -> None:
    begin(site)
    plan = site.plan(SALES)
    assert {name: action for name, action in actions(plan).items() if ".source." in name} == {
        NEW: "create",
        OLD: "delete",
    }
    assert plan.left_over == 0
    results = site.apply(plan, SALES)
    assert errors(results) == {}
    assert {(each.connector, each.action) for each in results} >= {(NEW, "create"), (OLD, "delete")}
    assert OLD not in site.east.connectors
    assert site.east.connectors[NEW].state == "RUNNING"
    [entry] = site.east.stores(NEW)[0].values()
    assert entry == {"offset": 41}


def test_when_it_is_done_the_plan_says_that_the_line_can_go(site: Site) -> None:
    begin(site)
    site.converge(SALES)
    plan = site.plan(SALES)
    assert set(actions(plan).values()) == {"no-op"}
    [note] = [note for part in plan.clusters for note in part.notes if "moved" in note]
    assert "'orders:a->east' is 'sales:a->east' now" in note
    assert note.endswith("can go")


def test_another_connect_cluster_gets_it_with_heartbeats_and_checkpoints(site: Site) -> None:
    begin(site)
    assert errors(site.converge(ON_WEST)) == {}
    assert site.names("east") == []
    assert site.names("west") == ["mm2.a.east.checkpoint", "mm2.a.east.heartbeat", OLD]
    assert [entry["offset"] for entry in site.west.stores(OLD)[0].values()] == [41]
    assert set(actions(site.plan(ON_WEST)).values()) == {"no-op"}


def test_the_plan_names_each_step_and_its_connector(site: Site) -> None:
    begin(site)
    [change] = [change for change in site.plan(ON_WEST).changes if change.takes_over]
    steps = list(change.steps)
    assert steps[1] == f"west/{OLD}: create it STOPPED"
    assert f"east/{OLD}: read its stored offsets" in steps
    assert steps.index(f"west/{OLD}: read them back") < steps.index(
        f"east/{OLD}: delete it; its stored offsets stay in Kafka"
    )


def test_without_the_line_the_plan_says_which_one_to_write(site: Site) -> None:
    begin(site)
    [change] = [
        c for c in site.plan(SALES.partition("moved:")[0]).changes if c.action == "blocked" and c.type == "source"
    ]
    assert f"write moved: [{{from: east/{OLD}, to: sales:a->east}}]" in change.remedy


def test_a_connect_cluster_that_cannot_be_read_keeps_both_as_they_are(site: Site) -> None:
    begin(site)
    for cluster, other in (("east", "west"), ("west", "east")):
        site.fakes[cluster].fail_next("GET", "/connectors", 400, "no", times=20)
        plan = site.plan(ON_WEST, prune=True)
        assert not [c for c in plan.writes if c.type == "source"], cluster
        site.fakes[cluster].faults.clear()
        site.apply(plan, ON_WEST)
        assert OLD in site.east.connectors
        assert OLD not in site.fakes["west"].connectors, other


def test_workers_without_settable_offsets_are_named(site: Site) -> None:
    begin(site)
    site.east.version = "3.5.2"
    changes = {c.connector: c for c in site.plan(SALES).changes if c.type == "source"}
    assert {name: c.action for name, c in changes.items()} == {NEW: "blocked"}
    assert "run Kafka 3.5.2" in changes[NEW].reason
    assert "3.6" in changes[NEW].reason


def test_workers_that_cannot_create_it_stopped_create_it_without_tasks(site: Site) -> None:
    begin(site)
    site.east.version = "3.6.2"
    site.apply(site.plan(SALES), SALES)
    assert OLD not in site.east.connectors
    assert site.east.connectors[NEW].state == "RUNNING"
    created = [write for write in site.east.writes if (write.method, write.path) == ("POST", "/connectors")][-1]
    sent = created.body
    assert isinstance(sent, dict)
    assert ("initial_state" in sent, sent["config"]["enabled"]) == (False, "false")


def test_a_connector_of_another_owner_is_taken_over_when_the_line_says_from_whom(site: Site) -> None:
    begin(site)
    site.east.connectors[OLD].config["mm2mgr.owner"] = "them"
    tree = SALES.replace("'orders:a->east'", f"east/{OLD}")
    for text in (tree, tree.replace("}]", ", from_owner: others}]")):
        [change] = [c for c in site.plan(text).changes if c.connector == NEW]
        assert (change.action, "belongs to owner 'them'" in change.reason) == ("blocked", True)
        assert "write from_owner: them" in change.remedy
        assert errors(site.converge(text)) == {}
        assert site.east.connectors[OLD].state == "RUNNING"
    assert errors(site.converge(tree.replace("}]", ", from_owner: them}]"))) == {}
    assert OLD not in site.east.connectors
    assert site.east.connectors[NEW].config["mm2mgr.owner"] == "team"
    assert [entry["offset"] for entry in site.east.stores(NEW)[0].values()] == [41]


def test_records_that_retention_would_delete_meanwhile_keep_the_flow_where_it_is(site: Site) -> None:
    begin(site)
    site.expiring = [TopicPartition("orders", 0)]
    changes = {c.connector: c for c in site.plan(SALES).changes if c.type == "source"}
    assert {name: c.action for name, c in changes.items()} == {NEW: "blocked", OLD: "blocked"}
    assert "retention deletes records of orders-0 within 15 min" in changes[NEW].reason
