"""Carrying out a plan over real sockets: it converges, repeats nothing, and one bad cluster or connector stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mm2mgr.apply import carry_out, execute
from mm2mgr.apply.execute import apply_plan, read_back
from mm2mgr.apply.waves import Event, Result
from mm2mgr.connect.client import ConnectClient
from mm2mgr.errors import Mm2mgrError
from mm2mgr.json_values import to_json
from mm2mgr.live.endpoints import connect_target
from mm2mgr.live.reach import Limits
from mm2mgr.plan.changes import Change, Plan
from mm2mgr.plan.stages import Stop, Verify
from mm2mgr.render import OWNER_KEY
from tests.clock import jumping
from tests.fake_connect import STALE
from tests.plan.site import FLOWS, ON_EAST, ON_WEST, Site, actions, errors

ORDERS = "mm2.a.east.source.orders"
LINGER = FLOWS.replace("[orders]}", "[orders]}, record_producer: {linger.ms: 7}")


def test_apply_brings_live_to_desired_and_a_second_one_writes_nothing(site: Site) -> None:
    results = site.converge()
    assert errors(results) == {}
    assert (site.names("east"), site.names("west")) == (sorted(ON_EAST), sorted(ON_WEST))
    for connector in site.declare()[1]:
        assert site.fakes[connector.connect].connectors[connector.name].config == connector.config
    site.forget()
    again = site.plan()
    assert set(actions(again).values()) == {"no-op"}
    assert site.apply(again) == []
    assert site.east.writes == site.west.writes == []


def test_creating_never_overwrites(site: Site) -> None:
    site.converge()
    assert {request.method for request in site.east.writes} == {"POST"}
    assert {request.path for request in site.east.writes} == {"/connectors"}


def test_an_update_writes_only_what_changed(site: Site) -> None:
    site.converge()
    site.forget()
    results = site.converge(LINGER)
    assert [(one.connector, one.action, one.error) for one in results] == [("mm2.a.east.source.orders", "update", None)]
    assert [(one.method, one.path) for one in site.east.writes] == [
        ("PUT", "/connectors/mm2.a.east.source.orders/config")
    ]
    assert site.east.connectors["mm2.a.east.source.orders"].config["producer.override.linger.ms"] == "7"
    assert site.west.writes == []


def test_heartbeats_come_first_and_checkpoints_last(site: Site) -> None:
    site.converge()
    kinds = [request.body["name"].split(".")[3] for request in site.east.writes]
    assert kinds == ["heartbeat", "source", "source", "checkpoint"]


def test_prune_deletes_what_is_no_longer_declared(site: Site) -> None:
    site.converge()
    fewer = FLOWS.replace("targets: [east, west]", "targets: [west]")
    assert errors(site.converge(fewer)) == {}
    assert "mm2.a.east.source.logs" in site.east.connectors
    assert errors(site.converge(fewer, prune=True)) == {}
    assert site.names("east") == ["mm2.a.east.checkpoint", "mm2.a.east.heartbeat", "mm2.a.east.source.orders"]
    assert site.names("west") == sorted(ON_WEST)


def test_deleting_what_somebody_deleted_already_is_done(site: Site) -> None:
    site.converge()
    plan = site.plan("flows: {}\n", prune=True)
    site.east.connectors.clear()
    assert errors(site.apply(plan)) == {}
    assert site.names("west") == []


def test_one_cluster_down_at_planning_leaves_the_other_done(site: Site) -> None:
    site.east.fail_next("GET", "/connectors", 401, times=1000)
    plan = site.plan()
    results = site.apply(plan)
    assert plan.has_failed
    assert sorted(one.connector for one in results) == sorted(ON_WEST)
    assert errors(results) == {}
    assert site.east.writes == []


def test_one_cluster_gone_after_planning_leaves_the_other_done_and_says_so(site: Site) -> None:
    plan = site.plan()
    url, site.urls["east"] = site.urls["east"], "http://127.0.0.1:1"
    results = site.apply(plan)
    assert sorted(errors(results)) == sorted(ON_EAST)
    first, *others = errors(results).values()
    assert "Connect cluster 'east'" in first
    assert "no URL answered" in first
    assert {"skipped: the previous write got no response from any URL" in error for error in others} == {True}
    assert sorted(one.connector for one in results if one.error is None) == sorted(ON_WEST)
    assert all(one.hint for one in results if one.error)
    site.urls["east"] = url
    assert errors(site.converge()) == {}
    assert site.names("east") == sorted(ON_EAST)


def test_a_connector_that_is_refused_does_not_stop_the_others(site: Site) -> None:
    plan = site.plan()
    site.east.policy = "None"  # refuses every producer.override, and was another one when the plan was made
    results = site.apply(plan)
    assert "linger.ms" not in "".join(errors(results).values())
    assert "mm2.a.east.source.orders" in errors(results)
    assert "The 'None' policy does not allow" in errors(results)["mm2.a.east.source.orders"]
    assert "mm2.a.east.checkpoint" in site.east.connectors  # overrides nothing


def test_results_are_reported_as_they_come(site: Site) -> None:
    events: list[Event] = []
    results = site.apply(site.plan(), report=events.append)
    seen = [event for event in events if isinstance(event, Result)]
    assert sorted(map(id, seen)) == sorted(map(id, results))
    assert {to_json(one)["ok"] for one in seen} == {True}


def test_a_name_taken_since_the_plan_is_not_overwritten(site: Site) -> None:
    plan = site.plan()
    theirs = site.east.add("mm2.a.east.source.logs", {"connector.class": "x.Other"})
    before = dict(theirs.config)
    results = site.apply(plan)
    assert list(errors(results)) == ["mm2.a.east.source.logs"]
    assert theirs.config == before
    (failed,) = [one for one in results if one.error]
    assert failed.hint == "it appeared since the plan was made; plan again"
    assert actions(site.plan())["mm2.a.east.source.logs"] == "blocked"


def test_an_owner_mark_that_changed_since_the_plan_means_hands_off(site: Site) -> None:
    site.converge()
    updating, deleting = site.plan(LINGER), site.plan("flows: {}\n", prune=True)
    taken = site.east.connectors["mm2.a.east.source.orders"]
    for mark in ("them", None):
        taken.config = {key: value for key, value in taken.config.items() if key != OWNER_KEY}
        taken.config |= {OWNER_KEY: mark} if mark else {}
        before = dict(taken.config)
        for plan in (updating, deleting):
            site.forget()
            results = site.apply(plan)
            assert "its owner mark is now" in errors(results)["mm2.a.east.source.orders"]
            assert site.east.connectors["mm2.a.east.source.orders"].config == before
            assert not [one for one in site.east.writes if "source.orders" in one.path]


def test_an_update_of_what_is_gone_is_an_error_and_creates_nothing(site: Site) -> None:
    site.converge()
    plan = site.plan(LINGER)
    del site.east.connectors["mm2.a.east.source.orders"]
    assert list(errors(site.apply(plan))) == ["mm2.a.east.source.orders"]
    assert "mm2.a.east.source.orders" not in site.east.connectors


def test_a_config_that_changed_since_the_plan_is_left_alone(site: Site) -> None:
    site.converge()
    updating, deleting = site.plan(LINGER), site.plan("flows: {}\n", prune=True)
    live = site.east.connectors["mm2.a.east.source.orders"]
    live.config["source.cluster.sasl.jaas.config"] = "pa55"
    before = dict(live.config)
    for plan in (updating, deleting):
        site.forget()
        [failed] = [one for one in site.apply(plan) if one.connector == "mm2.a.east.source.orders"]
        assert failed.error
        assert failed.error.endswith(
            "its config changed since the plan was made (keys: source.cluster.sasl.jaas.config)"
        )
        assert failed.hint == "another apply of owner 'team' changed it, or somebody changed it by hand; plan again"
        assert "pa55" not in str(failed)
        assert site.east.connectors["mm2.a.east.source.orders"].config == before
        assert not [one for one in site.east.writes if "source.orders" in one.path]


def test_what_is_overwritten_at_once_is_no_success(site: Site) -> None:
    site.converge()
    plan, seen = site.plan(LINGER), list[Result]()

    def report(event: Event) -> None:
        if isinstance(event, Result):
            seen.append(event)
            site.east.connectors[event.connector].config["tasks.max"] = "9"

    [result] = site.apply(plan, report=report)
    assert [one.error for one in seen] == [None]
    assert result.error
    assert result.error.endswith("it was written, but overwritten since (keys: tasks.max)")
    assert result.hint
    assert "another apply of owner 'team'" in result.hint


def test_a_deleted_connector_that_is_there_again_and_a_created_one_that_is_gone(site: Site) -> None:
    name = "mm2.a.east.source.orders"

    def lose(event: Event) -> None:
        if isinstance(event, Result):
            site.east.connectors.pop(event.connector, None)

    def bring_back(event: Event) -> None:
        if isinstance(event, Result):
            site.east.add(name, config)

    gone = site.apply(site.plan(), report=lose)
    assert "it was written, but no longer exists" in errors(gone)[name]
    site.converge()
    config = dict(site.east.connectors[name].config)
    back = site.apply(site.plan("flows: {}\n", prune=True), report=bring_back)
    assert list(errors(back)) == [name]
    assert "it was deleted, but exists again" in errors(back)[name]


def test_two_applies_at_once_are_not_both_a_success(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both look before either writes, as late as they can."""
    site.converge()
    monkeypatch.setattr(execute, "_RACE_SECONDS", 0.5)
    topology, _ = site.declare()
    plans = [site.plan(LINGER.replace("7", linger)) for linger in ("7", "8")]
    site.east.delay_next("GET", "/connectors/mm2.a.east.source.orders/config", seconds=0.3, times=2)

    async def one(plan: Plan) -> Result:
        [result] = await apply_plan(topology, plan, limits=Limits(write_seconds=5))
        assert result.error is None, "it wrote nothing: nothing is tested"
        [*overwritten] = await read_back(topology, [result])
        return overwritten[0] if overwritten else result

    async def both() -> list[Result]:
        return await asyncio.gather(*map(one, plans))

    results = asyncio.run(both())
    stored = site.east.connectors["mm2.a.east.source.orders"].config["producer.override.linger.ms"]
    assert [result.error is None for result in results] == [stored == "7", stored == "8"]


def after_each_put(site: Site, monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Let somebody else do something on east right after each PUT to a connector was answered."""
    handle = site.east.handle

    def with_others(method: str, path: str, *rest: Any) -> Any:
        answer = handle(method, path, *rest)
        if method == "PUT" and path.startswith("/connectors/"):
            do()
        return answer

    monkeypatch.setattr(site.east, "handle", with_others)


@pytest.mark.parametrize("what", ["got another config", "was deleted"])
def test_a_write_that_waited_for_a_rebalance_overwrites_nobody(
    site: Site, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others write, or delete, while ours was refused and is about to be sent again."""

    def write_or_delete() -> None:
        if what == "was deleted":
            site.east.connectors.pop(ORDERS, None)
        else:
            site.east.connectors[ORDERS].config["tasks.max"] = "9"

    site.converge()
    site.east.fail_next("PUT", f"/connectors/{ORDERS}/config", 409, STALE)
    after_each_put(site, monkeypatch, write_or_delete)
    assert f"it {what} while this write waited for the workers" in errors(site.converge(LINGER))[ORDERS]
    assert (ORDERS in site.east.connectors) == (what != "was deleted")
    assert [one.method for one in site.east.writes if one.path.endswith("/config")] == ["PUT"]


def test_a_write_that_waited_for_a_rebalance_is_repeated_where_nobody_wrote(site: Site) -> None:
    site.converge()
    site.east.fail_next("PUT", f"/connectors/{ORDERS}/config", 409, STALE, times=2)
    assert errors(site.converge(LINGER)) == {}


def test_while_others_write_what_was_not_overwritten_yet_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """They write one connector after the other, the last one long after ours was read back first."""

    looks = 0

    async def read_configs() -> dict[str, dict[str, str]]:
        nonlocal looks
        looks += 1
        return {str(n): {"name": str(n), "x": "theirs" if looks > 2 * n else "ours"} for n in range(3)}

    monkeypatch.setattr(execute, "_RACE_SECONDS", 0.3)
    monkeypatch.setattr(execute, "_READ_BACK_SECONDS", 0.0)
    monkeypatch.setattr(execute, "_READ_BACK_PAUSE_SECONDS", 0.1)
    changes = [Change("east", str(n), "source", "update", config={"x": "ours"}) for n in range(3)]
    done = [Result("east", each.connector, "update", change=each) for each in changes]
    with jumping():
        wrong = asyncio.run(execute._read_back(read_configs, "team", done))
    assert [each.connector for each in wrong] == ["0", "1", "2"]


@pytest.mark.parametrize("stage", [Stop(("east", ORDERS)), Verify(("east", ORDERS), {})])
def test_a_connector_that_disappears_meanwhile_ends_the_wait_with_what_to_do(
    site: Site, stage: Stop | Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carry_out, "_UNHEARD_SECONDS", 0.5)
    site.converge()
    topology, _ = site.declare()
    if isinstance(stage, Verify):
        del site.east.connectors[ORDERS]
    after_each_put(site, monkeypatch, lambda: site.east.connectors.pop(ORDERS))

    async def carried_out() -> Mm2mgrError | None:
        async with ConnectClient(connect_target(topology.connects["east"]), deadline_seconds=5) as client:
            return await carry_out.carry_out({"east": client}, [stage])

    error = asyncio.run(carried_out())
    assert error is not None
    assert error.message == f"Connect cluster 'east', connector '{ORDERS}': it does not exist any more"
    assert error.hint == "somebody deleted it after the plan was made; plan again"


def test_what_cannot_be_read_back_is_done_but_doubted(site: Site) -> None:
    plan = site.plan()
    site.east.fail_next("GET", "/connectors", 401, times=1000)
    results = [one for one in site.apply(plan) if one.connect == "east"]
    assert {one.error for one in results} == {None}
    assert all("written, but not read back: Connect cluster 'east'" in one.doubt for one in results)


# --- the state that the tree asks for ---------------------------------------------------------------------------------


def kept(state: str, more: str = "") -> str:
    return FLOWS.replace("[orders]}", f"[orders]}}, state: {state}{more}")


def verbs(site: Site) -> list[str]:
    return [one.path.rsplit("/", 1)[-1] for one in site.east.writes]


@pytest.mark.parametrize("state", ["paused", "stopped"])
def test_a_connector_that_is_to_rest_is_created_so(site: Site, state: str) -> None:
    assert errors(site.converge(kept(state))) == {}
    assert site.east.connectors[ORDERS].state == state.upper()
    assert {one.state for name, one in site.east.connectors.items() if name != ORDERS} == {"RUNNING"}
    assert set(actions(site.plan(kept(state))).values()) == {"no-op"}


def test_only_the_state_changes_by_one_request(site: Site) -> None:
    site.converge()
    for state, verb in (("paused", "pause"), ("stopped", "stop"), ("running", "resume"), ("stopped", "stop")):
        site.forget()
        plan = site.plan(kept(state))
        [change] = plan.writes
        assert (change.connector, change.action, change.keys, change.state and change.state[1]) == (
            *(ORDERS, "update", ()),
            state.upper(),
        )
        assert errors(site.apply(plan)) == {}
        assert verbs(site) == [verb]
        assert site.east.connectors[ORDERS].state == state.upper()
        assert set(actions(site.plan(kept(state))).values()) == {"no-op"}


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_a_state_that_the_tree_does_not_mention_is_left_to_people(site: Site, state: str) -> None:
    site.converge()
    site.east.connectors[ORDERS].state = state
    assert set(actions(site.plan()).values()) == {"no-op"}
    assert errors(site.converge(LINGER)) == {}
    assert site.east.connectors[ORDERS].state == state


@pytest.mark.parametrize(
    ("before", "state", "order"),
    [
        ("RUNNING", "paused", ["pause", "config"]),
        ("RUNNING", "stopped", ["stop", "config"]),
        ("PAUSED", "running", ["config", "resume"]),
    ],
)
def test_a_new_config_does_not_run_where_it_is_to_rest(site: Site, before: str, state: str, order: list[str]) -> None:
    site.converge()
    site.east.connectors[ORDERS].state = before
    site.forget()
    assert errors(site.converge(kept(state, ", record_producer: {linger.ms: 7}"))) == {}
    assert verbs(site) == order
    assert site.east.connectors[ORDERS].state == state.upper()


def test_a_state_that_is_not_known_is_not_concluded_from(site: Site) -> None:
    site.converge()
    site.east.connectors[ORDERS].hidden_reads = 1
    plan = site.plan(kept("paused"))
    assert plan.writes == ()
    [change] = [one for one in plan.changes if one.connector == ORDERS]
    assert change.warnings == ("whether it is PAUSED could not be read (it shows no status yet); plan again",)
    assert [one.state for one in site.plan(kept("paused")).writes] == [("RUNNING", "PAUSED")]


def test_a_failed_connector_is_not_resumed_and_can_be_stopped(site: Site) -> None:
    site.converge()
    site.east.connectors[ORDERS].shown_state = "FAILED"
    assert site.plan(kept("running")).writes == ()
    assert [one.state for one in site.plan(kept("stopped")).writes] == [("FAILED", "STOPPED")]


@pytest.mark.parametrize(
    ("version", "state", "action"),
    [("3.6.2", "paused", "blocked"), ("3.7.0", "paused", "create"), ("3.6.2", "running", "create")],
)
def test_old_workers_do_not_let_it_run_first(site: Site, version: str, state: str, action: str) -> None:
    site.east.version = version
    [change] = [one for one in site.plan(kept(state)).changes if one.connector == ORDERS]
    assert change.action == action
    if action == "blocked":
        assert "cannot create a connector PAUSED (KIP-980, 3.7): it would run first" in change.reason
        assert change.remedy
        assert list(errors(site.converge(kept(state)))) == []
        assert ORDERS not in site.east.connectors
