"""Carrying out a plan over real sockets: it converges, repeats nothing, and one bad cluster or connector stops no other."""

from __future__ import annotations

from mm2mgr.reconcile.apply import Result
from mm2mgr.render import OWNER_KEY
from tests.reconcile.site import FLOWS, ON_EAST, ON_WEST, Site, actions, errors

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
    assert plan.failed
    assert sorted(one.connector for one in results) == sorted(ON_WEST)
    assert errors(results) == {}
    assert site.east.writes == []


def test_one_cluster_gone_after_planning_leaves_the_other_done_and_says_so(site: Site) -> None:
    plan = site.plan()
    url, site.urls["east"] = site.urls["east"], "http://127.0.0.1:1"
    results = site.apply(plan)
    assert sorted(errors(results)) == sorted(ON_EAST)
    assert all("Connect cluster 'east'" in error and "no URL answered" in error for error in errors(results).values())
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
    seen: list[Result] = []
    results = site.apply(site.plan(), report=seen.append)
    assert sorted(map(id, seen)) == sorted(map(id, results))
    assert {one.to_dict()["ok"] for one in seen} == {True}


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
