"""Heartbeat connectors whose task runs and from which nothing arrives."""

from __future__ import annotations

import pytest

from mm2mgr.json_values import to_json
from mm2mgr.problems.health import ConnectorState
from tests.observe.estate import Estate, sentences


@pytest.fixture
def beating(small: Estate) -> Estate:
    """The small estate, with a topic of heartbeats that the flow has taken up."""
    small.kafka.clusters["A"]["heartbeats"] = [(0, 100)]
    small.connect.source_topics = {"orders": 2, "heartbeats": 1}
    return small


def heartbeat(estate: Estate, later_seconds: float = 0.0) -> ConnectorState:
    return next(one for one in estate.status(later_seconds=later_seconds).companions if one.type == "heartbeat")


def test_a_heartbeat_topic_that_stands_still_is_a_problem_until_it_moves(beating: Estate) -> None:
    assert heartbeat(beating).health == "ok"
    assert heartbeat(beating, 59).problems == ()
    found = heartbeat(beating, 2)
    assert ([one.kind for one in found.problems], found.health) == (["heartbeats-not-emitted"], "problem")
    assert to_json(found.problems[0].evidence) == {"cluster": "A", "topic": "heartbeats", "interval_seconds": 1.0}
    (said,) = sentences(found)
    assert "no heartbeat has arrived in heartbeats on A for 61 s (one is due every 1 s)" in said
    beating.log(0, 101, topic="heartbeats")
    assert heartbeat(beating, 1).problems == ()


def test_heartbeats_that_arrive_are_well_while_every_other_topic_is_quiet(beating: Estate) -> None:
    for look in range(10):
        beating.log(0, 100 + look, topic="heartbeats")
        assert (heartbeat(beating, 600).problems, beating.status().health) == ((), "ok")


def test_a_long_interval_is_waited_for_several_times(beating: Estate) -> None:
    beating.connect.connectors[beating.heartbeat].config["emit.heartbeats.interval.seconds"] = "60"
    heartbeat(beating)
    assert [one.kind for one in heartbeat(beating, 299).problems] == ["config-differs"]
    assert [one.kind for one in heartbeat(beating, 2).problems] == ["config-differs", "heartbeats-not-emitted"]


def test_an_interval_that_only_a_worker_can_resolve_is_not_judged(beating: Estate) -> None:
    beating.connect.connectors[beating.heartbeat].config["emit.heartbeats.interval.seconds"] = "${file:/x:y}"
    heartbeat(beating)
    assert "heartbeats-not-emitted" not in [one.kind for one in heartbeat(beating, 9_000).problems]


@pytest.mark.parametrize("unreadable", ["cluster", "partition", "topic"])
def test_time_in_which_the_topic_cannot_be_read_does_not_count(beating: Estate, unreadable: str) -> None:
    heartbeat(beating)
    logs = beating.kafka.clusters["A"]["heartbeats"]
    if unreadable == "cluster":
        beating.kafka.down.add("A")
    elif unreadable == "partition":
        beating.kafka.unread["A"] = {("heartbeats", 0): "no leader"}
    else:
        del beating.kafka.clusters["A"]["heartbeats"]
    assert heartbeat(beating, 3_600).problems == ()
    beating.kafka.down.clear()
    beating.kafka.unread.clear()
    beating.kafka.clusters["A"]["heartbeats"] = logs
    assert heartbeat(beating, 59).problems == ()
    assert heartbeat(beating, 59).problems == ()
    assert [one.kind for one in heartbeat(beating, 59).problems] == ["heartbeats-not-emitted"]


def test_workers_whose_own_kafka_is_silent_owe_no_heartbeats(beating: Estate) -> None:
    """The target answers, but without their own cluster workers stop their tasks: nothing of the connector is wrong."""
    home = beating.topology.flows[0].connect.kafka
    heartbeat(beating)
    beating.kafka.down.add(home)
    assert [heartbeat(beating, 600).problems for _ in range(3)] == [(), (), ()]


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_a_connector_at_rest_owes_no_heartbeats_and_starts_anew_when_it_runs(beating: Estate, state: str) -> None:
    heartbeat(beating)
    beating.connect.connectors[beating.heartbeat].state = state
    assert [problem.kind for problem in heartbeat(beating, 600).problems] == ["companion-paused-by-hand"]
    beating.connect.connectors[beating.heartbeat].state = "RUNNING"
    assert heartbeat(beating, 600).problems == ()
    assert [one.kind for one in heartbeat(beating, 61).problems] == ["heartbeats-not-emitted"]
