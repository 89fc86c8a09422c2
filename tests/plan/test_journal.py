"""A journal is a note, not an authority: whatever somebody writes into one owned config, only what tree and both configs confirm happens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.apply import carry_out as carrying
from mm2mgr.apply.carry_out import refusal_of_unplanned
from mm2mgr.apply.history import Author, Recorder
from mm2mgr.comparison.ownership import JOURNAL_KEY, Journal
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.records import read
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.stages import Compare, Delete, SetState, Undo
from mm2mgr.render import OWNER_KEY
from tests.examples import draw_examples
from tests.kafka.conftest import mock_cluster
from tests.plan.site import Site, actions, errors
from tests.plan.test_adopt import BY_HAND, ORDERS, adopt
from tests.plan.test_adoption_claims import apply_as, shared
from tests.plan.test_moves_apply import NEW, OLD, SALES, begin
from tests.plan.test_moves_apply import ORDERS as FLOW

__all__ = ["mock_cluster", "shared"]
PLAIN = "flows:\n  orders: {sources: [a], targets: [east], topics: {include: [orders]}, checkpoints: false, heartbeats: false}\n"
JDBC = {"connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector", "topics": "orders"}
TAKES_LEGACY = PLAIN.replace("orders:", "sales:", 1) + "moved: [{from: east/legacy, to: 'sales:a->east'}]\n"
MOVE: dict[str, Any] = {"from": ["west", "victim"], "pair": ["a", "east"], "from_then": "RUNNING", "created": True}
MOVE |= {"partial": False, "carried": True}


def forge(site: Site, text: str) -> None:
    """Write a journal into a connector that the tree declares and that runs."""
    if OLD not in site.east.connectors:
        assert errors(site.converge(PLAIN)) == {}
    site.east.connectors[OLD].config[JOURNAL_KEY] = text
    site.forget()


@pytest.mark.parametrize("prune", [False, True])
@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("created", [False, True])
@pytest.mark.parametrize("victim", ["a stranger's JDBC sink", "a stranger's", "another one of this owner", "nothing"])
def test_a_forged_journal_moves_nothing(site: Site, victim: str, created: bool, carried: bool, prune: bool) -> None:
    forge(site, json.dumps({"then": "RUNNING", "move": MOVE | {"created": created, "carried": carried}}))
    if victim != "nothing":
        config = JDBC if "JDBC" in victim else BY_HAND | ({OWNER_KEY: "team"} if "this owner" in victim else {})
        site.west.add("victim", config)
    plan = site.plan(PLAIN, prune=prune)
    blocked = {change.connector: change for change in plan.changes if change.action == "blocked"}
    if victim == "nothing" and carried:  # only its own end is left
        assert blocked == {}
    else:
        assert "its journal says that it takes over from 'victim' on Connect cluster 'west'" in blocked[OLD].reason
        assert "remove the key mm2mgr.journal from its config over REST" in blocked[OLD].remedy
    site.apply(plan, PLAIN)
    assert site.west.writes == []
    assert site.east.connectors[OLD].state == "RUNNING"


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "[]", "{}", "5", "null", '{"then": "SLEEPING"}', '{"then": ["RUNNING"]}', "[" * 200_000),
        *(
            '{"then": "RUNNING", "move": 5}',
            '{"then": "RUNNING", "needs": "orders"}',
            '{"then": "RUNNING", "gives": "x"}',
        ),
        json.dumps({"then": "RUNNING", "move": MOVE | {"from": [["x"], {}]}}),
        json.dumps({"then": "RUNNING", "move": MOVE | {"pair": "a->east"}}),
        json.dumps({"then": "RUNNING", "move": MOVE | {"carried": "yes"}}),
    ],
)
def test_an_unreadable_journal_blocks_its_connector_alone(site: Site, text: str) -> None:
    forge(site, text)
    logs = PLAIN + '  logs: {sources: [a], targets: [west], topics: {include: ["logs[.].*"]}}\n'
    plan = site.plan(logs)
    blocked = {change.connector: change for change in plan.changes if change.action == "blocked"}
    assert list(blocked) == [OLD]
    assert blocked[OLD].reason == "its journal (mm2mgr.journal) is unreadable"
    assert errors(site.apply(plan, logs)) == {}
    assert site.east.writes == []
    assert len(site.west.connectors) == 3
    del site.east.connectors[OLD].config[JOURNAL_KEY]  # as the remedy says
    assert set(actions(site.plan(logs)).values()) == {"no-op"}


PIECES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.sampled_from(["RUNNING", "west"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["then", "move", "needs", "gives", *MOVE]), inner, max_size=7),
    ),
    max_leaves=12,
)


@draw_examples(200)
@given(text=st.one_of(st.text(max_size=8), PIECES.map(json.dumps)))
def test_whatever_a_journal_says_it_is_read_by_its_types(text: str) -> None:
    journal = Journal.of_config({JOURNAL_KEY: text})
    assert journal is not None
    if journal.is_readable:
        assert Journal.of_config(journal.added_to({})) == journal
        assert journal.then in {"RUNNING", "PAUSED", "STOPPED"}
        assert all(isinstance(topic, str) for topic in journal.needs)


def test_without_the_line_a_giver_whose_offsets_are_carried_stays_stopped_until_it_is_pruned(site: Site) -> None:
    begin(site)
    site.east.fail_next("DELETE", f"/connectors/{OLD}", 400, "no")
    assert next(iter(errors(site.converge(SALES)).values())).endswith("no")
    without = SALES.partition("moved:")[0]
    giver = site.east.connectors[OLD].config
    assert Journal.of_config(giver) == Journal("RUNNING", gives=("east", NEW))
    changes = {change.connector: change for change in site.plan(without).changes}
    assert (changes[NEW].action, changes[OLD].action) == ("update", "update")
    assert changes[OLD].reason.endswith("it stays, STOPPED, until --prune deletes it")
    assert errors(site.converge(without)) == {}
    assert (site.east.connectors[OLD].state, site.east.connectors[NEW].state) == ("STOPPED", "RUNNING")
    assert JOURNAL_KEY not in {**site.east.connectors[OLD].config, **site.east.connectors[NEW].config}
    assert errors(site.converge(without, prune=True)) == {}
    assert OLD not in site.east.connectors


def test_a_journal_of_which_the_giver_does_not_speak_is_finished_by_the_line_alone(site: Site) -> None:
    begin(site)
    site.east.fail_next("DELETE", f"/connectors/{OLD}", 400, "no")
    site.converge(SALES)
    del site.east.connectors[OLD].config[JOURNAL_KEY]
    (change,) = (each for each in site.plan(SALES.partition("moved:")[0]).changes if each.connector == NEW)
    assert change.action == "blocked"
    assert f"write moved: [{{from: east/{OLD}, to: sales:a->east}}] and apply, which finishes it" in change.remedy
    assert errors(site.converge(SALES)) == {}
    assert OLD not in site.east.connectors


def test_a_giver_of_another_pair_than_the_journal_says_is_left_alone(site: Site) -> None:
    begin(site)
    site.east.fail_next("DELETE", f"/connectors/{OLD}", 400, "no")
    site.converge(SALES)
    site.east.connectors[OLD].config["source.cluster.alias"] = "west"
    site.forget()
    (change,) = (each for each in site.plan(SALES).changes if each.connector == NEW)
    assert (change.action, "between a->east, and that connector is between west->east" in change.reason) == (
        "blocked",
        True,
    )
    site.converge(SALES)
    assert [each for each in site.east.writes if OLD in each.path] == []


def test_a_hand_made_connector_gives_its_topics_once_it_is_adopted(site: Site) -> None:
    site.east.add("legacy", BY_HAND)
    site.east.add_offsets("legacy", "orders", {0: 41}, alias="a")
    plan = site.plan(TAKES_LEGACY)
    (change,) = plan.changes
    assert (change.action, "'legacy' on Connect cluster 'east' carries no owner mark" in change.reason) == (
        "blocked",
        True,
    )
    assert change.remedy == "write adopt: [{connect: east, connector: legacy}] beside the entry of moved:"
    assert [part.unowned for part in plan.clusters if part.connect == "east"] == [1]
    site.apply(plan, TAKES_LEGACY)
    assert site.east.writes == []
    tree = TAKES_LEGACY + adopt()
    plan = site.plan(tree)
    assert actions(plan) == {NEW: "create", "legacy": "delete"}
    assert "legacy is deleted; its stored offsets stay in Kafka under its name" in plan.price.irreversible
    assert [part.unowned for part in plan.clusters] == [0, 0]
    assert errors(site.apply(plan, tree)) == {}
    assert site.names("east") == [NEW]
    assert [entry["offset"] for entry in site.east.stores(NEW)[0].values()] == [41]


def test_what_another_tree_adopted_gives_nothing(shared: Site) -> None:
    before = dict(shared.east.connectors["legacy"].config)
    apply_as(shared, "me", ORDERS + adopt())
    shared.forget()
    shared.owner = "stranger"
    for tree in (TAKES_LEGACY, TAKES_LEGACY + adopt()):
        plan = shared.plan(tree)
        assert {change.action for change in plan.changes} == {"blocked"}
        assert errors(shared.apply(plan, tree)) == {}
        assert shared.east.writes == []
    assert next(change.reason for change in plan.changes if change.connector == "legacy").startswith(
        "owner 'me' has adopted it"
    )
    assert shared.east.connectors["legacy"].config == before


def test_what_a_move_deletes_is_in_the_history(shared: Site, mock_cluster: KafkaAccess) -> None:
    """The giver, and the connectors that served it alone."""
    del shared.east.connectors["legacy"]
    begin(shared)
    tree = FLOW.replace("}}", "}, run_on: west}") + f"moved: [{{from: east/{OLD}, to: 'orders:a->east'}}]\n"
    recorder = Recorder(shared.declare(tree)[0], "apply", Author("ann"))
    assert errors(shared.apply(shared.plan(tree), tree, begin=recorder.begin)) == {}
    assert shared.names("east") == []
    assert recorder.close() == {}
    values = [record.value for record in read(mock_cluster, [TopicPartition(HISTORY_TOPIC, 0)]) if record.value]
    entries = [json.loads(value) for value in values if value.startswith(b"{")]
    deleted = {entry["connector"] for entry in entries if entry["action"] == "delete" and entry["connect"] == "east"}
    assert deleted == {"mm2.a.east.heartbeat", "mm2.a.east.checkpoint", OLD}


def test_a_list_that_writes_to_what_the_plan_does_not_name_is_not_begun() -> None:
    mine, other = ("east", "mine"), ("west", "other")
    assert refusal_of_unplanned([Compare(other, "team", None), Delete(mine)], [mine]) is None
    for todo in ([Delete(other)], [Delete(mine), Undo((SetState(other, "RUNNING"),))]):
        refusal = refusal_of_unplanned(todo, [mine])
        assert refusal is not None
        assert "'other': the plan does not name it as written, so nothing was done" in refusal.message


@pytest.mark.parametrize("way", ["its worker had died", "its tasks take long to end"])
def test_a_stop_that_was_not_clean_is_said(site: Site, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(site)
    if way == "its worker had died":
        site.east.connectors[OLD].shown_task_state = "UNASSIGNED"
    else:
        monkeypatch.setattr(carrying, "_GRACEFUL_SECONDS", 0.0)
        site.east.connectors[OLD].ending_statuses = 2
    results = {result.connector: result for result in site.converge(SALES)}
    assert errors(list(results.values())) == {}
    why = "the worker of task 0 had died" if "died" in way else "its tasks took more than 0 s"
    assert f"the stop of '{OLD}' on Connect cluster 'east' was not clean ({why})" in results[NEW].doubt
    assert "can arrive twice" in results[NEW].doubt


@pytest.mark.parametrize("what", ["that it never ran", "all of a flow, of which the entry moves a topic"])
def test_a_journal_that_no_apply_can_have_written_is_not_followed(site: Site, what: str) -> None:
    """Not even where the tree asks for a move of these two."""
    both = (
        PLAIN
        + "  logs: {sources: [a], targets: [east], topics: {include: [logs.web]}, checkpoints: false, heartbeats: false}\n"
    )
    assert errors(site.converge(both)) == {}
    logs = "mm2.a.east.source.logs"
    site.east.add_offsets(logs, "logs.web", {0: 4}, alias="a")
    site.east.add_offsets(OLD, "orders", {0: 41}, alias="a")
    is_new = what == "that it never ran"
    move = MOVE | {"from": ["east", logs], "created": is_new, "carried": not is_new}
    site.east.connectors[OLD].config[JOURNAL_KEY] = json.dumps({"then": "RUNNING", "move": move})
    stored = json.dumps(site.east.offsets)
    tree = both.replace("[orders]", "[orders, logs.web]").replace("[logs.web]}", "[logs.db]}")
    if is_new:
        tree = "\n".join(line for line in tree.splitlines() if "logs:" not in line) + "\n"
    topics = "" if is_new else ", topics: [logs.web]"
    tree += f"moved: [{{from: east/{logs}, to: 'orders:a->east'{topics}}}]\n"
    if not is_new:
        tree = tree.replace(f"east/{logs}", "'logs:a->east'")
    site.forget()
    plan = site.plan(tree)
    blocked = {change.connector: change for change in plan.changes if change.action == "blocked"}
    assert set(blocked) == {OLD, logs} if not is_new else OLD in blocked
    assert f"its journal says that it {'never ran' if is_new else 'takes over all of'}" in blocked[OLD].reason
    site.apply(plan, tree)
    assert site.east.writes == []
    assert json.dumps(site.east.offsets) == stored
    del site.east.connectors[OLD].config[JOURNAL_KEY]  # as the remedy says
    assert errors(site.converge(tree)) == {}
    assert sorted(entry["offset"] for entry in site.east.stores(OLD)[0].values()) == [4, 41]


def fail_twice(site: Site) -> None:
    """Leave what a first apply created when its move failed, and let a second one fail, too."""
    begin(site)
    (change,) = (each for each in site.plan(SALES).changes if each.takes_over)
    assert change.takes_over
    site.east.add(
        NEW, change.takes_over.journal.added_to({**(change.config or {}), "enabled": "false"}), state="STOPPED"
    )
    site.east.fail_next("GET", f"/connectors/{OLD}/offsets", 400, "no", times=2)
    assert NEW in errors(site.converge(SALES))


def test_a_move_that_fails_twice_leaves_what_the_first_apply_created(site: Site) -> None:
    """That it never ran is only in its journal, so the second one deletes nothing; the giver goes on."""
    fail_twice(site)
    assert site.names("east").count(NEW) == 1
    assert [site.east.connectors[name].state for name in (OLD, NEW)] == ["RUNNING", "STOPPED"]
    site.east.faults.clear()
    assert errors(site.converge(SALES)) == {}
    assert OLD not in site.names("east")
    assert [entry["offset"] for entry in site.east.stores(NEW)[0].values()] == [41]


def test_a_move_that_failed_twice_is_taken_back_without_its_line(site: Site) -> None:
    fail_twice(site)
    site.east.faults.clear()
    plan = site.plan(FLOW)
    assert actions(plan)[NEW] == "delete"
    assert errors(site.apply(plan, FLOW)) == {}
    assert NEW not in site.names("east")
    assert site.east.connectors[OLD].state == "RUNNING"
    assert JOURNAL_KEY not in site.east.connectors[OLD].config
