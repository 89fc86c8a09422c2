"""Entries of `moved:` whose connector carries no mark, and those that move nothing: each is found, or says why not."""

from __future__ import annotations

import pytest

from mm2mgr.errors import SpecError
from mm2mgr.plan.changes import Plan
from mm2mgr.render import FLOW_KEY
from tests.plan.site import Site, actions, errors
from tests.plan.test_adopt import BY_HAND

LEGACY = "connector_name: legacy, checkpoints: false, heartbeats: false"
SALES = f"flows:\n  sales: {{sources: [a], targets: [east], topics: {{include: [orders]}}, {LEGACY.replace('legacy', 'sales')}}}\n"
FROM_ORDERS = "moved: [{from: 'orders:a->east', to: 'sales:a->east'}]\n"


def notes(plan: Plan) -> str:
    return "\n".join(note for part in plan.clusters for note in part.notes)


def test_a_flow_that_was_adopted_and_carries_no_mark_yet_is_found_by_adopt(site: Site) -> None:
    site.east.add("legacy", BY_HAND)
    site.east.add_offsets("legacy", "orders", {0: 41}, alias="a")
    before = SALES.replace("sales", "orders", 1).replace("connector_name: sales", "connector_name: legacy")
    adopt = "adopt: [{connect: east, connector: legacy}]\n"
    assert actions(site.plan(before + adopt)) == {"legacy": "no-op"}
    plan = site.plan(SALES + adopt + FROM_ORDERS)
    assert actions(plan) == {"sales": "create", "legacy": "delete"}
    (change,) = (each for each in plan.changes if each.takes_over)
    assert change.takes_over
    assert change.takes_over.giver == ("east", "legacy")
    assert errors(site.apply(plan, SALES + adopt + FROM_ORDERS)) == {}
    assert [entry["offset"] for entry in site.east.stores("sales")[0].values()] == [41]


def test_an_entry_that_matches_nothing_says_so(site: Site) -> None:
    said = notes(site.plan(SALES + FROM_ORDERS))
    assert "nothing that runs carries the mark of 'orders:a->east', so 'sales:a->east' takes over nothing" in said
    assert "write its name as from: CONNECT/CONNECTOR, or remove the line at" in said
    site.converge(SALES)
    assert "'orders:a->east' is 'sales:a->east' now; the line at" in notes(site.plan(SALES + FROM_ORDERS))


def test_an_entry_whose_flow_still_runs_beside_the_new_one_says_so(site: Site) -> None:
    site.converge(SALES)
    site.east.add("orders", site.east.connectors["sales"].config | {"name": "orders", FLOW_KEY: "orders:a->east"})
    plan = site.plan(SALES + FROM_ORDERS)
    assert actions(plan) == {"sales": "no-op"}
    assert (
        "'sales:a->east' runs already and begins to take nothing, so 'orders' on Connect cluster 'east' gives it nothing"
        in notes(plan)
    )


def test_an_entry_of_a_topic_that_the_other_flow_does_not_take_says_so(site: Site) -> None:
    both = (
        SALES
        + f"  logs: {{sources: [a], targets: [east], topics: {{include: [other]}}, {LEGACY.replace('legacy', 'logs')}}}\n"
    )
    site.converge(both)
    said = notes(site.plan(both + "moved: [{from: 'logs:a->east', to: 'sales:a->east', topics: [gone]}]\n"))
    assert (
        "nothing of 'logs:a->east' moves to 'sales:a->east' now, which does not mirror gone: write them under its topics:"
        in said
    )


def test_offsets_that_rest_elsewhere_never_replace_those_that_are_further_on(site: Site) -> None:
    """The entry names the wrong flow: its own offsets, which it had from before, are what counts."""
    both = (
        SALES
        + f"  logs: {{sources: [a], targets: [east], topics: {{include: [other]}}, {LEGACY.replace('legacy', 'logs')}}}\n"
    )
    site.converge(both)
    site.east.add_offsets("sales", "more", {0: 41, 1: 7}, alias="a")
    site.east.add_offsets("logs", "more", {1: 9}, alias="a")
    wider = both.replace("include: [orders]", "include: [orders, more]")
    wider += "moved: [{from: 'logs:a->east', to: 'sales:a->east', topics: [more]}]\n"
    plan = site.plan(wider)
    assert actions(plan) == {"sales": "update", "logs": "update"}
    assert errors(site.apply(plan, wider)) == {}
    assert sorted(entry["offset"] for entry in site.east.stores("sales")[0].values()) == [9, 41]
    assert not site.east.stores("logs")[0]
    assert set(actions(site.plan(wider)).values()) == {"no-op"}


# --- pairs ------------------------------------------------------------------------------------------------------------

ORDERS_AND_LOGS = """\
flows:
  orders: {sources: [a], targets: [east], topics: {include: [orders]}}
  logs: {sources: [a], targets: [east], topics: {include: ["logs[.].*"]}}
"""
ON_WEST = ORDERS_AND_LOGS.replace("targets: [east],", "targets: [east], run_on: west,")


def moves(site: Site, tree: str) -> list[tuple[object, ...]]:
    topology, _ = site.declare(tree)
    return [(move.flow, move.connector, move.to, move.topics, move.from_owner) for move in topology.moved]


def test_one_line_moves_a_pair_to_another_connect_cluster(site: Site) -> None:
    line = "moved: [{from: east/a->east, to: a->east}]\n"
    by_flow = "".join(
        f"- {{from: east/mm2.a.east.source.{name}, to: '{name}:a->east'}}\n" for name in ("orders", "logs")
    )
    assert sorted(moves(site, ON_WEST + line), key=str) == sorted(moves(site, f"{ON_WEST}moved:\n{by_flow}"), key=str)
    site.converge(ORDERS_AND_LOGS)
    for name, topic in (("orders", "orders"), ("logs", "logs.a")):
        site.east.add_offsets(f"mm2.a.east.source.{name}", topic, {0: 41}, alias="a")
    plan = site.plan(ON_WEST + line)
    givers = {change.flows[0]: change.takes_over.giver for change in plan.changes if change.takes_over}
    assert givers == {f"{name}:a->east": ("east", f"mm2.a.east.source.{name}") for name in ("orders", "logs")}
    assert errors(site.apply(plan, ON_WEST + line)) == {}
    for name in ("orders", "logs"):
        assert [entry["offset"] for entry in site.west.stores(f"mm2.a.east.source.{name}")[0].values()] == [41]
    said = notes(site.plan(ON_WEST + line))
    assert said.count("(a pair's: when each of its flows says so) can go") == 2


def test_one_line_gives_a_pair_another_alias(site: Site) -> None:
    renamed = ORDERS_AND_LOGS.replace("targets: [east]", "targets: [west]")
    found = moves(site, f"{renamed}moved: [{{from: a->east, to: a->west}}]\n")
    assert sorted(found) == [(f"{name}:a->east", None, f"{name}:a->west", (), None) for name in ("logs", "orders")]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{from: 'orders:a->east', to: a->east}", "'a->east' is a pair, so write as from: the pair that it was"),
        ("{from: east/legacy, to: a->east}", "'a->east' is a pair, so write as from:"),
        ("{from: {dedicated: a->east}, to: a->east}", "'a->east' is a pair, so write as from:"),
        ("{from: east/a->east, to: a->east, topics: [orders]}", "without topics:"),
        ("{from: east/b->east, to: a->east}", "stays on its Connect cluster: write from: b->east"),
        ("{from: a->east, to: b->east}", "unknown pair 'b->east'; did you mean 'a->east'?"),
        ("{from: nowhere/a->east, to: a->east}", "unknown Connect cluster 'nowhere'"),
        ("{from: a->east, to: a->east}", "are the same: name another flow, or remove this entry"),
    ],
)
def test_a_line_for_a_pair_that_says_too_little_or_too_much_is_refused(site: Site, entry: str, says: str) -> None:
    with pytest.raises(SpecError) as found:
        site.declare(f"{ON_WEST}moved: [{entry}]\n")
    assert says in str(found.value)
