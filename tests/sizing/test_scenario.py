"""What-if: changes make new scenarios, the same sizing sees them, and what has nothing to do with a change stays as it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.json_values import to_json
from mm2mgr.sizing.fleet import WorkerLimits
from mm2mgr.sizing.scenario import (
    ConnectWorkers,
    OutcomeComparison,
    Scenario,
    outcome,
    with_limit,
    with_target,
    with_topic_moved,
    with_topic_split,
    with_traffic,
    with_workers_seen,
    without_source,
)
from mm2mgr.sizing.tasks import CurrentTasks, predict_assignment

from .estates import MB, scenario

RATES = {"logs": 3 * MB, "orders": 1 * MB, "clicks": 2 * MB}
CASES = (
    scenario("logs", RATES, lambda topic: topic == "logs"),
    scenario("rest", RATES, lambda topic: topic in {"orders", "clicks"}),
    scenario("logs", RATES, lambda topic: topic == "logs", source="b"),
)


def loads(scenarios: Sequence[Scenario]) -> dict[str, float]:
    return {flow_id: sizing.bytes_per_second for flow_id, sizing in outcome(scenarios, {}).sizings.items()}


@given(st.floats(0.1, 10))
def test_traffic_multiplies_every_load(factor: float) -> None:
    before, after = loads(CASES), loads(with_traffic(CASES, factor))
    assert after == {flow_id: pytest.approx(load * factor) for flow_id, load in before.items()}


def test_the_default_of_what_was_never_measured_grows_too() -> None:
    unmeasured = (scenario("new", {}, lambda topic: True), scenario("idle", RATES, lambda topic: topic == "logs"))
    bare = [replace(each, rates={}) for each in unmeasured]
    assert loads(with_traffic(bare, 2))["idle:a->hub"] == 2 * loads(bare)["idle:a->hub"] == 40_000


def test_a_moved_topic_keeps_the_sum_and_touches_only_its_pair() -> None:
    before, after = loads(CASES), loads(with_topic_moved(CASES, "logs", {"rest:a->hub"}))
    assert after == {"logs:a->hub": 0, "rest:a->hub": 24 * MB, "logs:b->hub": before["logs:b->hub"]}


def test_the_assignment_after_a_move_is_the_one_that_connect_would_make() -> None:
    _, rest, other = with_topic_moved(CASES, "logs", {"rest:a->hub"})
    assert rest.prediction == predict_assignment(rest.listing, lambda topic: True)
    assert other is CASES[2]


def test_a_flow_of_the_plugin_is_assigned_by_load_after_a_move_too() -> None:
    logs, rest, _ = CASES
    plugin = (logs, replace(rest, prediction=replace(rest.prediction, is_balanced=True)), CASES[2])
    _, moved, _ = with_topic_moved(plugin, "logs", {"rest:a->hub"})
    assert moved.prediction == replace(predict_assignment(rest.listing, lambda topic: True), is_balanced=True)
    flow = outcome((moved,), {}).flows["rest:a->hub"]
    assert flow.load.is_balanced
    for tasks in range(1, 8):
        heaviest = max(flow.load.busiest(tasks), 1.0)
        assert heaviest <= outcome(
            (replace(moved, prediction=replace(moved.prediction, is_balanced=False)),), {}
        ).flows["rest:a->hub"].load.busiest(tasks)


def test_a_topic_that_the_other_flows_do_not_carry_moves_nothing() -> None:
    assert with_topic_moved(CASES, "orders", {"rest:a->hub"}) == CASES


def test_a_lost_source() -> None:
    assert loads(without_source(CASES, "a")).keys() == {"logs:b->hub"}


def test_one_target_more_mirrors_each_source_once_more() -> None:
    doubled = with_target(CASES, "north", "n", {"logs"})
    new = doubled[len(CASES) :]
    assert [(one.flow_id, one.connect, one.now) for one in new] == [("logs:a->north", "n", None), ("logs:b->north", "n", None)]  # fmt: skip
    assert with_target(doubled, "north", "n", {"logs"}) == doubled
    assert with_target(CASES, "a", "n", {"rest"}) == CASES  # a cluster is not mirrored to itself


def test_a_limit_bounds_what_people_wrote_by_hand_too() -> None:
    by_hand = scenario("logs", RATES, lambda topic: True, now=CurrentTasks(6, by_hand=True))
    (limited,) = with_limit([by_hand], {by_hand.flow_id}, 2)
    found = outcome([limited], {})
    assert (found.loads["w"].tasks, found.sizings[by_hand.flow_id].tasks) == (2, 2)
    assert with_limit(CASES, {"logs:b->hub"}, 2)[:2] == CASES[:2]


def test_people_s_own_number_runs_and_the_recommended_one_else() -> None:
    by_hand = scenario("logs", RATES, lambda topic: topic == "logs", now=CurrentTasks(3, by_hand=True))
    auto = scenario("logs", RATES, lambda topic: topic == "logs", now=CurrentTasks(3))
    assert outcome([by_hand], {}).loads["w"].tasks == 3
    assert outcome([auto], {}).loads["w"].tasks == outcome([auto], {}).sizings["logs:a->hub"].tasks == 2


def test_workers_follow_from_the_machines_of_the_connect_cluster() -> None:
    machines = {"w": ConnectWorkers(WorkerLimits(1), 4, {"a->hub": 1})}
    found = outcome(CASES, machines).loads["w"]
    assert (found.worker.tasks, found.today, found.side_tasks) == (1, 4, 3)  # b->hub is not declared: two
    assert outcome([], machines).needs == {}


def test_a_comparison_names_what_differs_and_adds_up() -> None:
    before, after = outcome(CASES, {}), outcome(without_source(with_traffic(CASES, 2), "b"), {})
    found = to_json(OutcomeComparison(before, after))
    assert found["flows"]["logs:b->hub"]["after"] is None
    assert found["unchanged_flows"] == 0
    assert found["totals"]["before"]["bytes_per_second"] == 36 * MB
    assert found["totals"]["after"]["bytes_per_second"] == 48 * MB
    json.dumps(found, allow_nan=False)


def test_no_change_is_no_difference() -> None:
    found = to_json(OutcomeComparison(outcome(CASES, {}), outcome(CASES, {})))
    assert (found["flows"], found["unchanged_flows"]) == ({}, 3)
    assert found["totals"]["before"] == found["totals"]["after"]


def test_a_topic_of_its_own_keeps_the_sum_and_the_rules() -> None:
    split = with_topic_split(CASES, "orders", "own")
    before, after = loads(CASES), loads(split)
    assert after == before | {"rest:a->hub": 8 * MB, "own:a->hub": 4 * MB}
    (own,) = [each for each in split if each.name == "own"]
    assert (own.rules, own.now, own.prediction) == (
        CASES[1].rules,
        None,
        predict_assignment(own.listing, lambda topic: topic == "orders"),
    )


def test_a_topic_gets_one_flow_of_its_own_on_every_pair() -> None:
    split = loads(with_topic_split(CASES, "logs", "own"))
    assert {flow_id: load for flow_id, load in split.items() if load == 12 * MB} == {
        "own:a->hub": 12 * MB, "own:b->hub": 12 * MB, "rest:a->hub": 12 * MB,
    }  # fmt: skip
    assert split["logs:a->hub"] == split["logs:b->hub"] == 0


def test_topics_split_to_one_name_share_a_flow_on_a_pair() -> None:
    split = with_topic_split(with_topic_split(CASES, "logs", "own"), "orders", "own")
    found = outcome(split, {})
    assert [each.flow_id for each in split].count("own:a->hub") == 1
    assert found.sizings["own:a->hub"].bytes_per_second == 16 * MB
    assert found.loads["w"].bytes_per_second == outcome(CASES, {}).loads["w"].bytes_per_second
    assert loads(with_topic_split(split, "orders", "own")) == loads(split)


def test_a_topic_that_two_flows_of_a_pair_carry_gets_one_flow_of_its_own() -> None:
    twice = (CASES[1], scenario("all", RATES, lambda topic: topic != "logs"))
    split = with_topic_split(twice, "orders", "own")
    assert {each.flow_id: each.carries("orders") for each in split} == {
        "rest:a->hub": False, "own:a->hub": True, "all:a->hub": False,
    }  # fmt: skip
    assert len(split) == 3


def reasons(after: Sequence[Scenario], machines: ConnectWorkers = ConnectWorkers(WorkerLimits(2), 5)) -> list[str]:  # noqa: B008 - a value
    found = to_json(OutcomeComparison(outcome(CASES, {"w": machines}), outcome(after, {"w": machines})))["reasons"]
    assert isinstance(found, list)
    return found


def test_a_comparison_says_what_becomes_hot_and_what_no_longer_is() -> None:
    grown = with_traffic(CASES, 3)
    said = reasons(grown)[0]
    assert said.startswith("New hot partitions (adding tasks does not help): logs-0 of logs:a->hub (1.3 times), logs-1")
    assert said.endswith(", logs-0 of logs:b->hub (1.3 times) and 3 more.")
    found = to_json(OutcomeComparison(outcome(grown, {}), outcome(CASES, {})))["reasons"]
    assert found[0].startswith("No longer hot: logs-0 of a->hub, ")


def test_what_stays_hot_or_is_gone_is_no_news() -> None:
    grown = with_traffic(CASES, 3)
    moved, gone = with_topic_split(grown, "logs", "own"), without_source(grown, "b")
    for after in (moved, gone, with_traffic(grown, 2)):
        said = to_json(OutcomeComparison(outcome(grown, {}), outcome(after, {})))["reasons"]
        assert not [one for one in said if "logs-" in one]


topics_of_rates = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 8 * MB), min_size=1)


@given(topics_of_rates, st.floats(1.01, 3), st.none() | st.integers(1, 12), st.none() | st.integers(1, 12))
def test_fewer_tasks_for_more_traffic_are_never_left_unexplained(
    rates: dict[str, float], factor: float, limit: int | None, tasks: int | None
) -> None:
    scenarios = (scenario("f", rates, lambda _: True, limit=limit, now=CurrentTasks(tasks) if tasks else None),)
    before, after = outcome(scenarios, {}), outcome(with_traffic(scenarios, factor), {})
    one, other = before.sizings["f:a->hub"], after.sizings["f:a->hub"]
    why = to_json(OutcomeComparison(before, after))["flows"].get("f:a->hub", {}).get("why_fewer_tasks")
    grows = other.bytes_per_second > one.bytes_per_second
    assert (why is not None) == (grows and other.tasks < max(one.tasks, tasks or 0))
    assert "in another order" not in (why or ""), "traffic alone does not alter the order"


def test_a_comparison_says_who_gets_too_little() -> None:
    said = reasons(with_limit(CASES, {"logs:a->hub"}, 1))
    assert "Capped by their limit, with more load on a task than planned: logs:a->hub." in said
    assert not [one for one in reasons(with_limit(CASES, {"logs:a->hub"}, 2)) if one.startswith("Capped")]


def test_a_comparison_says_what_each_connect_cluster_then_needs() -> None:
    more = reasons(with_target(CASES, "north", "n", {"logs"}))
    assert more == ["n: 1 worker needed, 2 with one spare."]
    assert reasons(()) == ["w: no traffic left."]
    assert reasons(CASES) == []


def test_workers_seen_stand_in_only_where_none_are_declared() -> None:
    declared, seen = (outcome(CASES, {"w": ConnectWorkers(count=count)}) for count in (4, None))
    assert with_workers_seen(declared, {"w": 2}).needs["w"].workers_today == 4
    assert with_workers_seen(seen, {"w": 2}).needs["w"].workers_today == 2
    assert with_workers_seen(seen, {"w": 0}).needs["w"].workers_today is None


def limits_used(scenarios: Sequence[Scenario]) -> dict[str, float]:
    return {run.flow_id: run.limit_used for load in outcome(scenarios, {}).loads.values() for run in load.runs}


def test_flows_over_one_link_share_its_catch_up_limit_but_for_those_with_their_own() -> None:
    totals = loads(CASES)
    shared = tuple(replace(each, link_limit=100 * MB) for each in CASES)
    for flow_id, used in limits_used(shared).items():
        pair = flow_id.partition(":")[2]
        together = sum(total for other, total in totals.items() if other.partition(":")[2] == pair)
        assert used == pytest.approx(together / (100 * MB))
    own = (replace(shared[0], own_limit=50 * MB), *shared[1:])
    assert limits_used(own)[own[0].flow_id] == pytest.approx(totals[own[0].flow_id] / (50 * MB))
    assert set(limits_used(CASES).values()) == {0.0}
    assert set(limits_used(with_target(shared, "north", "n", {"logs"})[len(CASES) :]).values()) == {0.0}


def test_traffic_that_reaches_a_catch_up_limit_is_a_consequence() -> None:
    total = loads(CASES)[CASES[0].flow_id]
    limited = (replace(CASES[0], own_limit=1.5 * total), *CASES[1:])
    found = to_json(OutcomeComparison(outcome(limited, {}), outcome(with_traffic(limited, 2), {})))
    assert f"At or above their catch-up limit, so that they fall behind: {CASES[0].flow_id}." in found["reasons"]
