"""A config that changes where offsets are stored takes them along, or is not written."""

from __future__ import annotations

import pytest

from mm2mgr.comparison.differences import diff
from mm2mgr.comparison.ownership import Journal
from mm2mgr.json_values import to_json
from tests.plan.site import Site, actions, errors

NAME = "mm2.a.east.source.orders"
# The workers' Kafka is not the target here, so an exactly-once flow keeps its offsets on the target.
FLOWS = "flows:\n  orders: {sources: [a], targets: [east], topics: {include: [orders]}, run_on: west}\n"
ONCE = FLOWS.replace("run_on: west", "run_on: west, delivery: exactly_once")
ABOUT = f"/connectors/{NAME}"
MARK = UNMARK = ("PUT", "/config")  # so that a kill in between is seen: test_offsets_death
STOP = ("PUT", "/stop")


@pytest.fixture
def running(site: Site) -> Site:
    """An at_least_once flow that has stored offsets, on workers that are exactly-once by now."""
    assert errors(site.converge(FLOWS)) == {}
    site.west.exactly_once = True
    site.west.add_offsets(NAME, "orders", {0: 41, 1: 7}, alias="a")
    site.forget()
    return site


def writes(site: Site) -> list[tuple[str, str]]:
    return [(one.method, one.path.removeprefix(ABOUT)) for one in site.west.writes if one.path.startswith(ABOUT)]


def test_offsets_are_stored_again_before_it_runs_on(running: Site) -> None:
    assert errors(running.converge(ONCE)) == {}
    assert writes(running) == [MARK, STOP, ("PUT", "/config"), ("PATCH", "/offsets"), MARK, ("PUT", "/resume"), UNMARK]
    [patch] = [one.body for one in running.west.writes if one.method == "PATCH"]
    assert {entry["partition"]["partition"]: entry["offset"]["offset"] for entry in patch["offsets"]} == {0: 41, 1: 7}
    connector = running.west.connectors[NAME]
    assert (connector.state, connector.config["offsets.storage.topic"]) == ("RUNNING", "mm2mgr-offsets.west.internal")


def test_other_changes_stop_nothing(running: Site) -> None:
    running.converge(ONCE)
    running.forget()
    running.converge(ONCE.replace("run_on", "source_consumer: {max.poll.records: 7}, run_on"))
    assert writes(running) == [("PUT", "/config")]


def test_without_offsets_there_is_nothing_to_store(running: Site) -> None:
    running.west.offsets.clear()
    running.converge(ONCE)
    assert writes(running) == [MARK, STOP, ("PUT", "/config"), MARK, ("PUT", "/resume"), UNMARK]


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_what_rested_rests_on(running: Site, state: str) -> None:
    running.west.connectors[NAME].state = state
    assert errors(running.converge(ONCE)) == {}
    assert ("PUT", "/resume") not in writes(running)
    assert running.west.connectors[NAME].state == state
    assert set(actions(running.plan(ONCE)).values()) == {"no-op"}


@pytest.mark.parametrize(("before", "state"), [("RUNNING", "paused"), ("RUNNING", "stopped"), ("PAUSED", "running")])
def test_it_ends_in_the_state_that_the_tree_asks_for(running: Site, before: str, state: str) -> None:
    wished = ONCE.replace("run_on", f"state: {state}, run_on")
    running.west.connectors[NAME].state = before
    running.west.fail_next("PATCH", ABOUT, 400, "no")
    assert list(errors(running.converge(wished))) == [NAME]
    assert running.west.connectors[NAME].state == before
    assert errors(running.converge(wished)) == {}
    assert running.west.connectors[NAME].state == state.upper()
    assert set(actions(running.plan(wished)).values()) == {"no-op"}


def test_the_plan_says_that_it_stops(running: Site) -> None:
    said = {change.connector: change.reason for change in running.plan(ONCE).changes if change.reason}
    assert said == {
        NAME: "stops the connector, copies its offsets from the workers' own topic to mm2mgr-offsets.west.internal, resumes it"
    }
    connector = running.west.connectors[NAME]
    connector.config = Journal("PAUSED").added_to(connector.config)
    assert [change.reason for change in running.plan(ONCE).changes if change.connector == NAME] == [
        "finishes moving its stored offsets, then PAUSED again"
    ]


def test_workers_that_are_not_exactly_once_any_more_do_not_bar_the_way_back(running: Site) -> None:
    """They refuse the config that their connector has."""
    running.converge(ONCE)
    running.west.exactly_once = False
    assert errors(running.converge(FLOWS)) == {}
    assert running.west.connectors[NAME].state == "RUNNING"
    assert "offsets.storage.topic" not in running.west.connectors[NAME].config


def test_overrides_of_the_former_place_are_hidden_like_any_secret() -> None:
    jaas = 'PlainLoginModule required username="u" password="pa55";'
    marks = Journal("RUNNING", {"offsets.storage.topic": "", "consumer.override.sasl.jaas.config": jaas}).added_to({})
    assert "pa55" not in str([to_json(change) for change in diff(marks, {})])


def test_offsets_that_are_refused_bring_the_old_config_back(running: Site) -> None:
    before = dict(running.west.connectors[NAME].config)
    running.west.fail_next("PATCH", ABOUT, 400, "no")
    failed = errors(running.converge(ONCE))
    assert list(failed) == [NAME]
    connector = running.west.connectors[NAME]
    assert (connector.state, connector.config) == ("RUNNING", before)


def test_offsets_that_cannot_be_read_leave_the_config_alone(running: Site) -> None:
    before = dict(running.west.connectors[NAME].config)
    running.west.fail_next("GET", f"{ABOUT}/offsets", 400, "no")
    assert list(errors(running.converge(ONCE))) == [NAME]
    connector = running.west.connectors[NAME]
    assert (connector.state, connector.config) == ("RUNNING", before)


def test_a_journal_that_names_a_place_without_offsets_takes_none_away(running: Site) -> None:
    """A text in a config is no authority: the connector would mirror everything again."""
    assert errors(running.converge(ONCE)) == {}
    connector = running.west.connectors[NAME]
    own, forged = (
        dict(connector.config),
        {"offsets.storage.topic": "nowhere", "consumer.override.bootstrap.servers": "x:1"},
    )
    connector.config.update(Journal("RUNNING", forged).added_to(own))
    assert errors(running.converge(ONCE)) == {}
    (change,) = (each for each in running.plan(ONCE).changes if each.connector == NAME)
    assert (change.action, change.reason) == (
        "blocked",
        "its journal says that its offsets are stored elsewhere, and its config lets it run (enabled), so no apply wrote that",
    )
    assert connector.state == "RUNNING"
    connector.config["enabled"] = "false"  # as an apply that was cut short leaves it
    running.west.offsets.pop(NAME)  # else what the workers' own topic has shows through
    stored = {place: dict(entries) for place, entries in running.west.own_offsets.items() if entries}
    assert len(stored) == 1
    failed = errors(running.converge(ONCE))
    assert "names a place without offsets for it, and it has offsets, which were kept" in str(failed)
    assert {place: entries for place, entries in running.west.own_offsets.items() if entries} == stored
    assert connector.state == "STOPPED"
    connector.config = own  # as the remedy says
    assert errors(running.converge(ONCE)) == {}
    assert {place: entries for place, entries in running.west.own_offsets.items() if entries} == stored
