"""What would be mirrored a second time is not written unasked: judged by topics and stored offsets, not by names and patterns."""

from __future__ import annotations

import asyncio

import pytest

from mm2mgr.apply.carry_out import carry_out
from mm2mgr.comparison.ownership import Journal
from mm2mgr.connect.client import ConnectClient
from mm2mgr.json_values import to_json
from mm2mgr.live.endpoints import connect_target
from mm2mgr.plan.changes import Change, Plan
from mm2mgr.plan.stages import stages
from tests.asking import topics_with
from tests.plan.site import DEADLINE_SECONDS, Site, actions, errors

ONE = "flows:\n  orders: {sources: [a], targets: [east], topics: {include: [orders, 'logs[.].*']}}\n"
RENAMED = ONE.replace("orders:", "trade:", 1)
TIDIED = RENAMED.replace("[orders, 'logs[.].*']", "['orders|logs[.].+']")
ELSEWHERE = ONE.replace("topics:", "run_on: west, topics:")
OTHER_TOPICS = RENAMED.replace("[orders, 'logs[.].*']", "[payments]")
TWO = (
    ONE.replace("[orders, 'logs[.].*']", "[orders]")
    + "  logs: {sources: [a], targets: [east], topics: {include: ['logs[.].*']}}\n"
)
MOVED = TWO.replace("[orders]", "[nothing]").replace("['logs[.].*']", "[orders, 'logs[.].*']")
SOURCE, NEW, LOGS = "mm2.a.east.source.orders", "mm2.a.east.source.trade", "mm2.a.east.source.logs"
THERE = topics_with(
    {"orders": 2, "logs.web": 1, "other": 1}, {"orders": 70, "logs.web": 5}, {"orders": 100, "logs.web": 5}
)


@pytest.fixture(autouse=True)
def _topics(site: Site) -> None:
    site.kafka = {"a": THERE, "east": topics_with({}), "west": topics_with({})}


def action(plan: Plan, connector: str, connect: str = "east") -> str:
    return next(c.action for c in plan.changes if (c.connector, c.connect) == (connector, connect))


def change_of(plan: Plan) -> Change:
    return next(change for change in plan.changes if change.connector == SOURCE)


def reason(plan: Plan, connector: str) -> str:
    return next(c.reason for c in plan.changes if c.connector == connector and c.reason)


def test_a_renamed_flow_is_blocked_and_the_old_connector_named(site: Site) -> None:
    site.converge(ONE)
    plan = site.plan(RENAMED, prune=True)
    assert action(plan, NEW) == "blocked"
    said = f"mirrored-already: '{SOURCE}' on Connect cluster 'east' has mirrored these topics (logs.web, orders)"
    assert reason(plan, NEW).startswith(said)
    assert "--allow mirror-again" in next(change.remedy for change in plan.changes if change.connector == NEW)
    assert plan.has_failed


def test_a_renamed_flow_is_told_once_that_its_records_would_arrive_again(site: Site) -> None:
    site.converge(ONE)
    change = next(change for change in site.plan(RENAMED).changes if change.connector == NEW)
    assert (change.action, change.reason.count("mirrored-already"), change.reason.count("overlap")) == ("blocked", 1, 0)
    assert "moved: [{from: " in change.remedy
    assert "exclude" not in change.remedy, "nothing can be excluded in a flow that is not declared"


def test_a_flow_that_runs_elsewhere_now_is_blocked_there(site: Site) -> None:
    site.converge(ONE)
    assert action(site.plan(ELSEWHERE), SOURCE, "west") == "blocked"
    assert action(site.plan(ELSEWHERE, only=["orders:a->east"]), SOURCE, "west") == "blocked"


def test_asked_for_it_is_created_and_said(site: Site) -> None:
    site.converge(ONE)
    plan = site.plan(RENAMED, mirror_again=True, prune=True)
    assert action(plan, NEW) == "create"
    assert reason(plan, NEW).endswith(f"mirrors again what '{SOURCE}' on Connect cluster 'east' already mirrored")


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
    assert reason(plan, SOURCE).startswith(
        f"'{NEW}' on Connect cluster 'east', which takes over its topics, is blocked"
    )
    site.apply(plan, RENAMED)
    assert SOURCE in site.names("east")
    assert NEW not in site.names("east")


def test_it_is_kept_on_another_connect_cluster_too(site: Site) -> None:
    site.converge(ONE)
    assert action(site.plan(ELSEWHERE, prune=True), SOURCE, "east") == "blocked"


def test_asked_for_the_old_one_is_pruned(site: Site) -> None:
    site.converge(ONE)
    assert action(site.plan(RENAMED, prune=True, mirror_again=True), SOURCE) == "delete"


@pytest.mark.parametrize("flows", [RENAMED, ELSEWHERE, TIDIED])
@pytest.mark.parametrize("is_refused", [False, True])
def test_the_old_one_is_gone_before_the_new_one_mirrors_again(site: Site, flows: str, is_refused: bool) -> None:
    """Both at work would bring each new record twice, for as long as the waves take."""
    assert errors(site.converge(ONE)) == {}
    site.fakes["west"].cluster_id = "east"
    plan = site.plan(flows, prune=True, mirror_again=True)
    new = next(change for change in plan.writes if change.type == "source" and change.action == "create")
    assert new.follows == (("east", SOURCE),)
    site.east.fail_next("DELETE", f"/connectors/{SOURCE}", 403, "no", times=100 if is_refused else 0)
    failed = [each for each in site.apply(plan, flows) if each.error]
    run = {(connect, name) for connect in ("east", "west") for name in site.names(connect) if ".source." in name}
    assert run == {("east", SOURCE) if is_refused else new.full_name}
    assert [each.full_name for each in failed if "could not be deleted" in str(each.error)] == [
        new.full_name
    ] * is_refused
    if not is_refused:
        assert failed == []
        assert site.plan(flows, prune=True).is_empty


@pytest.mark.parametrize("listed", [True, False])
def test_a_rename_with_a_tidied_pattern_is_blocked_too(site: Site, listed: bool) -> None:
    site.converge(ONE)
    if not listed:
        site.kafka = None
    assert action(site.plan(TIDIED, prune=True), NEW) == "blocked"


def test_the_beside_connectors_of_what_is_kept_are_kept(site: Site) -> None:
    site.converge(ONE)
    plan = site.plan(ELSEWHERE, prune=True)
    assert {c.action for c in plan.changes} == {"blocked"}
    site.apply(plan, ELSEWHERE)
    assert site.names("east") == sorted([SOURCE, "mm2.a.east.heartbeat", "mm2.a.east.checkpoint"])
    assert site.names("west") == []


def test_both_connectors_that_one_is_to_take_over_from_are_kept(site: Site) -> None:
    site.converge(TWO)
    plan = site.plan(RENAMED, prune=True)
    assert {name: action(plan, name) for name in (NEW, SOURCE, LOGS)} == dict.fromkeys((NEW, SOURCE, LOGS), "blocked")


# --- judged by topics and stored offsets ---------------------------------------------------------------------------------


def test_a_topic_that_moves_between_two_declared_flows_is_blocked(site: Site) -> None:
    site.converge(TWO)
    site.east.add_offsets(SOURCE, "orders", {0: 49, 1: 49}, alias="a")
    plan = site.plan(MOVED)
    assert action(plan, LOGS) == "blocked"
    assert reason(plan, LOGS).startswith(
        f"mirrored-already: '{SOURCE}' on Connect cluster 'east' has mirrored these topics (orders)"
    )


def test_what_gives_a_topic_away_keeps_it_while_the_other_is_blocked(site: Site) -> None:
    site.converge(TWO)
    plan = site.plan(MOVED)
    assert action(plan, SOURCE) == "blocked"
    assert "which takes over its topics, is blocked" in reason(plan, SOURCE)
    site.apply(plan, MOVED)
    assert "orders" in site.east.connectors[SOURCE].config["topics"]


def test_it_may_move_before_it_had_a_record(site: Site) -> None:
    site.converge(TWO)
    site.kafka = {**(site.kafka or {}), "a": topics_with({"orders": 2, "logs.web": 1}, {}, {"logs.web": 5})}
    assert action(site.plan(MOVED), LOGS) == "update"


def test_what_runs_may_have_mirrored_more_than_is_stored(site: Site) -> None:
    site.converge(TWO)  # no offsets are stored before the first flush
    assert action(site.plan(MOVED), LOGS) == "blocked"


def test_a_stopped_connector_has_stored_all(site: Site) -> None:
    site.converge(TWO)
    site.east.connectors[SOURCE].state = "STOPPED"
    assert action(site.plan(MOVED), LOGS) == "update"
    site.east.add_offsets(SOURCE, "orders", {1: 0}, alias="a")
    assert action(site.plan(MOVED), LOGS) == "blocked"


def test_a_topic_that_comes_back_is_blocked_by_newer_offsets_only(site: Site) -> None:
    site.converge(MOVED)
    site.east.connectors[LOGS].state = "STOPPED"
    site.east.add_offsets(LOGS, "orders", {0: 80}, alias="a")
    site.east.add_offsets(SOURCE, "orders", {0: 49}, alias="a")
    assert action(site.plan(TWO), SOURCE) == "blocked"
    site.east.add_offsets(SOURCE, "orders", {0: 80}, alias="a")
    assert action(site.plan(TWO), SOURCE) == "update"


def test_offsets_that_cannot_be_read_count_as_mirrored(site: Site) -> None:
    site.converge(TWO)
    site.east.connectors[SOURCE].state = "STOPPED"
    site.east.fail_next("GET", f"/connectors/{SOURCE}/offsets", 500, {"error_code": 500, "message": "no"}, times=1000)
    assert action(site.plan(MOVED), LOGS) == "blocked"


def test_a_renamed_alias_is_blocked(site: Site) -> None:
    site.converge(ONE)
    site.declare(ONE)
    path = next(site.folder.glob("*.yaml"))
    text = (
        path.read_text()
        .replace("  a: {", "  b: {")
        .replace("sources: [a]", "sources: [b]")
        .replace("cluster_id: a}", "cluster_id: a}")
    )
    path.write_text(text)
    site.kafka = {**(site.kafka or {}), "b": THERE}
    plan = site.plan_as_written()
    new = next(change for change in plan.changes if change.connector == "mm2.b.east.source.orders")
    assert new.action == "blocked"
    assert f"mirrored-already: '{SOURCE}' on Connect cluster 'east'" in new.reason
    assert {c.action for c in plan.changes} == {"blocked"}  # its heartbeats and checkpoints too


# --- a Connect cluster that cannot be read ---------------------------------------------------------------------------------


def test_what_may_have_run_on_a_dead_connect_cluster_is_blocked_where_the_target_has_records(site: Site) -> None:
    site.converge(ONE)
    site.urls["east"] = "http://127.0.0.1:1"
    assert site.kafka
    site.kafka["east"] = topics_with({"a.orders": 2}, {"a.orders": 0}, {"a.orders": 100})
    plan = site.plan(ELSEWHERE)
    assert action(plan, SOURCE, "west") == "blocked"
    assert reason(plan, SOURCE).startswith(
        "mirrored-already: Connect cluster 'east' could not be read, and a.orders on 'east' already had records"
    )
    assert action(site.plan(ELSEWHERE, mirror_again=True), SOURCE, "west") == "create"


def test_what_never_arrived_is_created_while_a_connect_cluster_is_dead(site: Site) -> None:
    site.urls["east"] = "http://127.0.0.1:1"
    assert action(site.plan(ELSEWHERE), SOURCE, "west") == "create"


def test_without_a_look_at_the_target_it_is_blocked(site: Site) -> None:
    site.urls["east"] = "http://127.0.0.1:1"
    site.kafka = None
    plan = site.plan(ELSEWHERE)
    assert action(plan, SOURCE, "west") == "blocked"
    assert "could not be listed" in reason(plan, SOURCE)


# --- what a write will take ------------------------------------------------------------------------------------------------


def test_a_plan_lists_the_topics_that_a_new_flow_will_take(site: Site) -> None:
    change = next(c for c in site.plan(ONE).changes if c.connector == SOURCE)
    assert change.takes
    assert to_json(change.takes) == {
        "topics": {"orders": {"partitions": 2, "records": 70}, "logs.web": {"partitions": 1, "records": 5}},
        "of": 3,
        "stored": [],
        "moved": [],
    }


def test_a_widened_flow_lists_what_it_takes_beside(site: Site) -> None:
    site.converge(TWO)
    change = next(c for c in site.plan(TWO.replace("[orders]", "[orders, other]")).changes if c.connector == SOURCE)
    assert change.takes
    assert list(change.takes.topics) == ["other"]


def test_a_topic_that_is_left_out_ends_and_goes_on_where_it_was(site: Site) -> None:
    """Left out, nothing mirrors it; taken again, only what came after the stored offsets is to be copied."""
    site.converge(ONE)
    site.east.add_offsets(SOURCE, "logs.web", {0: 2}, alias="a")
    fewer = ONE.replace("[orders, 'logs[.].*']", "[orders]")
    assert change_of(site.plan(fewer)).ends == ("logs.web",)
    site.converge(fewer)
    change = change_of(site.plan(ONE))
    assert change.ends == ()
    assert to_json(change.takes) == {
        "topics": {"logs.web": {"partitions": 1, "records": 2}},
        "of": 3,
        "stored": ["logs.web"],
        "moved": [],
    }


def test_a_topic_that_another_flow_takes_does_not_end(site: Site) -> None:
    site.converge(ONE)
    assert change_of(site.plan(TWO)).ends == ()


# --- what has arrived, and nobody that runs has brought --------------------------------------------------------------------


def arrived_before(site: Site) -> None:
    """Let the target hold records of orders, which a connector that was deleted has brought."""
    assert site.kafka
    site.kafka["east"] = topics_with({"a.orders": 2}, {"a.orders": 100}, {"a.orders": 100})


def test_a_flow_that_comes_back_under_its_name_goes_on(site: Site) -> None:
    site.converge(ONE)
    site.east.add_offsets(SOURCE, "orders", {0: 49, 1: 49}, alias="a")
    arrived_before(site)
    site.converge("flows: {}\n", prune=True)
    assert site.names("east") == []
    plan = site.plan(ONE)
    assert next(c.needs_offsets for c in plan.changes if c.connector == SOURCE) == ("orders",)
    assert all(result.error is None for result in site.apply(plan, ONE))
    assert site.east.connectors[SOURCE].state == "RUNNING"
    assert set(actions(site.plan(ONE)).values()) == {"no-op"}


def test_a_flow_that_comes_back_under_another_name_never_runs(site: Site) -> None:
    site.converge(ONE)
    site.east.add_offsets(SOURCE, "orders", {0: 49, 1: 49}, alias="a")
    arrived_before(site)
    site.converge("flows: {}\n", prune=True)
    failed = errors(site.converge(RENAMED))
    assert set(failed) == {NEW, "mm2.a.east.heartbeat", "mm2.a.east.checkpoint"}
    assert site.names("east") == []  # a flow is written whole, or not at all
    assert "the target has records of orders already" in failed[NEW]
    assert NEW not in site.names("east")
    assert not any(request.path.endswith("/resume") for request in site.east.requests)
    assert errors(site.converge(RENAMED, mirror_again=True)) == {}


def test_older_workers_cannot_try(site: Site) -> None:
    arrived_before(site)
    site.east.version = "3.6.2"
    assert action(site.plan(ONE), SOURCE) == "blocked"
    assert "it is unknown whether offsets are stored" in reason(site.plan(ONE), SOURCE)


def test_a_flow_that_takes_up_what_a_deleted_one_brought_is_blocked(site: Site) -> None:
    site.converge(TWO)
    site.converge(TWO.splitlines()[0] + "\n" + TWO.splitlines()[2] + "\n", prune=True)
    arrived_before(site)
    plan = site.plan(MOVED.splitlines()[0] + "\n" + MOVED.splitlines()[2] + "\n")
    assert action(plan, LOGS) == "blocked"
    assert "a.orders on 'east' already had records, and no offsets are stored for them" in reason(plan, LOGS)


@pytest.mark.parametrize("after", [1, 2, 3, 4, 5, 6])
def test_dying_meanwhile_never_lets_it_run_unproved(site: Site, after: int) -> None:
    arrived_before(site)
    plan = site.plan(ONE)
    [create] = [change for change in plan.changes if change.connector == SOURCE]

    async def die() -> None:
        topology, _ = site.declare(ONE)
        async with ConnectClient(
            connect_target(topology.connects["east"]), deadline_seconds=DEADLINE_SECONDS
        ) as client:
            task = asyncio.create_task(carry_out({create.connect: client}, stages(create, "team")))
            while not task.done() and len(site.east.requests) < before + after:
                await asyncio.wait([task], timeout=0.001)
            task.cancel()
            await asyncio.wait([task])

    before = len(site.east.requests)
    asyncio.run(die())
    assert not any(request.path.endswith("/resume") for request in site.east.requests)
    site.converge(ONE)
    assert SOURCE not in site.names("east") or site.east.connectors[SOURCE].state == "STOPPED"
    assert not any(request.path.endswith("/resume") for request in site.east.requests)


# --- a journal that says what a connector needs ----------------------------------------------------------------------------


def forged(site: Site, state: str, *topics: str) -> None:
    """Write into the journal of a connector of the tree that it needs offsets of topics."""
    site.converge(ONE)
    connector = site.east.connectors[SOURCE]
    connector.config, connector.state = Journal("RUNNING", needs=topics).added_to(connector.config), state
    site.forget()


@pytest.mark.parametrize(
    ("state", "way"), [("STOPPED", "mirror-again"), ("PAUSED", "mirror-again"), ("STOPPED", "its former name")]
)
def test_a_journal_alone_deletes_nothing_and_its_remedy_leads_out(site: Site, state: str, way: str) -> None:
    """A text in a config is no authority; in what rests, it keeps it from running until a person decides."""
    forged(site, state, "orders")
    before = {name: (dict(one.config), one.state) for name, one in site.east.connectors.items()}
    plan = site.plan(ONE)
    assert actions(plan)[SOURCE] == "update"
    steps = next(change.steps for change in plan.changes if change.connector == SOURCE)
    assert "go on only if offsets of orders are stored under its name, else leave it as it is" in steps
    assert not any("delete" in step for step in steps)
    results = {result.connector: result for result in site.apply(plan, ONE)}
    assert list(results) == [SOURCE]
    assert "its journal (mm2mgr.journal) says that the target has records of orders already" in str(
        results[SOURCE].error
    )
    assert {name: (one.config, one.state) for name, one in site.east.connectors.items()} == before
    assert site.east.writes == []
    former, again = str(results[SOURCE].hint).split("; or ")
    assert (former, again) == (
        "give the flow the name, the alias and the Connect cluster that it had, and add --prune, which deletes this connector",
        "add --allow mirror-again",
    )
    if way == "mirror-again":
        plan = site.plan(ONE, mirror_again=True)
        reason_ = next(change.reason for change in plan.changes if change.connector == SOURCE)
        assert reason_.endswith("mirrors orders again, if no offsets are stored under its name")
        assert errors(site.apply(plan, ONE)) == {}
        assert site.east.connectors[SOURCE].state == "RUNNING"
        assert set(actions(site.plan(ONE)).values()) == {"no-op"}
        return
    site.east.add_offsets(NEW, "orders", {0: 49, 1: 49}, alias="a")  # what it stored under the name that it had
    arrived_before(site)
    assert errors(site.converge(RENAMED, prune=True)) == {}
    assert SOURCE not in site.names("east")
    assert site.east.connectors[NEW].state == "RUNNING"
    assert set(actions(site.plan(RENAMED)).values()) == {"no-op"}


def test_with_the_offsets_that_its_journal_says_it_is_resumed(site: Site) -> None:
    forged(site, "STOPPED", "logs.web")
    site.east.add_offsets(SOURCE, "logs.web", {0: 4}, alias="a")
    assert errors(site.converge(ONE)) == {}
    assert site.east.connectors[SOURCE].state == "RUNNING"
    assert set(actions(site.plan(ONE)).values()) == {"no-op"}


def test_what_runs_has_nothing_to_prove(site: Site) -> None:
    forged(site, "RUNNING", "orders")
    assert errors(site.converge(ONE)) == {}
    assert [request.method for request in site.east.writes] == ["PUT"]
    assert site.east.connectors[SOURCE].state == "RUNNING"
    assert set(actions(site.plan(ONE)).values()) == {"no-op"}


def test_a_flow_that_allows_it_keeps_its_line_while_it_is_needed(site: Site) -> None:
    forged(site, "STOPPED", "orders")
    allowed = ONE.replace("topics:", "allow: [mirror-again], topics:")
    plan = site.plan(allowed)
    assert not [note for part in plan.clusters for note in part.notes if "not needed" in note]
    assert errors(site.apply(plan, allowed)) == {}
    assert site.east.connectors[SOURCE].state == "RUNNING"
