"""Where the records of a flow arrive, or do not: cases that trip each problem, and healthy ones that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.assignment_text import ASSIGNMENT_KEY, PLUGIN_CLASS
from mm2mgr.json_values import to_json
from mm2mgr.problems.health import FlowStatus
from mm2mgr.problems.kind import LiveProblem
from tests.observe.estate import Estate, estate, sentences


def _named(flow: FlowStatus) -> list[str]:
    return [problem.kind for problem in flow.problems]


# --- records that go elsewhere ----------------------------------------------------------------------------------------


def _elsewhere(flow: FlowStatus) -> LiveProblem | None:
    return next((problem for problem in flow.problems if problem.kind == "records-not-on-target"), None)


def _mirrored(small: Estate, records: int, *, arrived: int) -> None:
    """Let the source have so many records, all of them mirrored by the stored offsets."""
    small.log(0, records)
    small.stored(records - 1)
    if "A.orders" in small.kafka.clusters["B"]:
        small.log(0, arrived, alias="B", topic="A.orders")


def _traffic_to_elsewhere(small: Estate, *, arrived: int, looks: int = 4) -> list[FlowStatus]:
    """Look each half minute while a thousand more records are mirrored, as the stored offsets say."""
    found = []
    for look in range(1, looks + 1):
        _mirrored(small, 1000 * look, arrived=arrived)
        found.append(small.flow(later_seconds=30))
    return found


def test_offsets_that_advance_while_a_new_topic_stays_empty_are_records_elsewhere(small: Estate) -> None:
    *early, last = _traffic_to_elsewhere(small, arrived=0)
    assert [_elsewhere(one) for one in early] == [None] * 3, "one advance may be a reset, and a minute has to pass"
    found = _elsewhere(last)
    assert found
    assert found.since_seconds == 60
    assert to_json(found.evidence) == {
        "topics": ["A.orders"],
        "topic_count": 1,
        "source": "A",
        "target": "B",
        "records": 3000,
    }
    (said,) = sentences(last)
    assert said.startswith(
        "3000 records are mirrored, as the stored offsets say, but nothing arrived in topic A.orders on B for 60 s"
    )
    assert "run mm2mgr check" in said
    _mirrored(small, 5000, arrived=1)
    assert small.flow(later_seconds=30).problems == (), "the topic moves"


def test_offsets_that_advance_while_a_topic_with_records_stands_still_are_records_elsewhere(small: Estate) -> None:
    looks = _traffic_to_elsewhere(small, arrived=500, looks=5)
    assert [one is not None for one in map(_elsewhere, looks)] == [False] * 4 + [True]
    found = _elsewhere(looks[-1])
    assert found
    assert to_json(found.evidence)["records"] == 3000, (
        "what the source had once the topic was seen to stand still may be in it"
    )


def test_looks_that_are_closer_than_flushes_see_it_too(small: Estate) -> None:
    """Each flush stores what was mirrored a little before, so that most looks see an offset behind the log's end."""
    found = []
    for look in range(20):
        small.log(0, 100 * look)
        if look % 4 == 0:
            small.stored(100 * look - 150)
        small.log(0, 7, alias="B", topic="A.orders")
        found.append(_elsewhere(small.flow(later_seconds=15)))
    assert found[-1] is not None


def test_a_missing_topic_is_named_once(small: Estate) -> None:
    small.kafka.clusters["B"] = {"heartbeats": [(0, 5)]}
    for look in range(1, 30):
        small.log(0, 1000 * look)
        small.stored(1000 * look - 500)  # records wait: what the next flush will store
        flow = small.flow(later_seconds=30)
        assert "target-topic-missing" not in _named(flow)
    assert _named(flow) == ["records-not-on-target"]


def test_a_target_that_was_not_read_says_nothing_about_records_elsewhere(small: Estate) -> None:
    assert _elsewhere(_traffic_to_elsewhere(small, arrived=0)[-1])
    small.kafka.down.add("B")
    assert _elsewhere(small.flow(later_seconds=30)) is None
    small.kafka.down.clear()
    small.kafka.unread["B"] = {("A.orders", 0): "no leader"}
    assert _elsewhere(small.flow(later_seconds=30)) is None


@pytest.mark.parametrize(
    ("more", "config"),
    [
        ("", {"transforms": "drop", "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter"}),
        ("", {"errors.tolerance": "all"}),
        ("replication_policy: com.example.Policy", {}),
    ],
)
def test_flows_that_may_drop_records_or_rename_topics_are_not_suspected(
    tmp_path: Path, more: str, config: dict[str, str]
) -> None:
    with estate(tmp_path, more=more) as dropping:
        dropping.connect.connectors[dropping.source].config |= config
        assert _elsewhere(_traffic_to_elsewhere(dropping, arrived=0, looks=8)[-1]) is None


def test_one_jump_of_a_stored_offset_is_no_advance(small: Estate) -> None:
    """As after a reset to the end: nothing came since."""
    small.log(0, 1000)
    small.flow()
    small.flow(later_seconds=30)
    _mirrored(small, 2000, arrived=0)
    assert [_elsewhere(small.flow(later_seconds=60)) for _ in range(5)] == [None] * 5


def test_offsets_that_are_stored_long_after_their_records_arrived_are_no_advance(small: Estate) -> None:
    small.log(0, 1000)
    small.log(0, 1000, alias="B", topic="A.orders")
    for stored in (99, 99, 99, 299, 499, 699, 999):
        small.stored(stored)
        assert _elsewhere(small.flow(later_seconds=70)) is None


def test_a_stopped_flow_has_no_records_elsewhere(small: Estate) -> None:
    assert _elsewhere(_traffic_to_elsewhere(small, arrived=0)[-1])
    small.connect.connectors[small.source].state = "STOPPED"
    assert _elsewhere(small.flow(later_seconds=30)) is None


# --- a reader that is too slow ----------------------------------------------------------------------------------------


def _lag_over(small: Estate, minutes: int, produced: int, mirrored: int) -> list[list[str]]:
    """Look each minute; so many records are produced, and mirrored, in each."""
    (start, end), stored = small.kafka.clusters["A"]["orders"][0], small.kafka.clusters["B"]["A.orders"][0][1]
    found = []
    for _ in range(minutes):
        end, stored = end + produced, min(end + produced, stored + mirrored)
        small.log(start, end)
        small.log(0, stored, alias="B", topic="A.orders")
        small.stored(stored - 1)
        found.append(_named(small.flow(later_seconds=60)))
    return found


def test_a_held_partition_whose_lag_grows_is_no_slow_reader(small: Estate) -> None:
    connector = small.connect.connectors[small.source]
    assignment = "version=1;rates=9;unlisted=1;orders:0@0+1@hold"
    connector.config |= {"connector.class": PLUGIN_CLASS, ASSIGNMENT_KEY: assignment}
    connector.own_keys, connector.dealt = {ASSIGNMENT_KEY}, ["orders-0"]
    for minute in range(20):
        small.log(0, 60_000 * minute, partition=1)
        assert _lag_over(small, 1, produced=900, mirrored=900) == [["config-differs"]]


def test_a_lag_that_grows_for_a_quarter_of_an_hour_while_records_arrive(small: Estate) -> None:
    found = _lag_over(small, 20, produced=60_000, mirrored=30_000)
    assert found[:14] == [[]] * 14
    assert found[-1] == ["slower-than-production"]
    flow = small.flow(later_seconds=1)
    (problem,) = flow.problems
    assert round(to_json(problem.evidence)["produced_records_per_second"]) == 1000
    assert round(to_json(problem.evidence)["mirrored_records_per_second"]) == 500
    assert sentences(flow)[0].startswith("the lag has grown for ")
    assert "1000 records/s are produced and 500 mirrored" in sentences(flow)[0]
    assert _lag_over(small, 20, produced=0, mirrored=200_000)[-1] == []


def test_bursts_and_quiet_flows_are_not_slow(small: Estate) -> None:
    for _ in range(2):
        assert set(map(tuple, _lag_over(small, 5, produced=60_000, mirrored=30_000))) == {()}, "a burst"
        assert set(map(tuple, _lag_over(small, 10, produced=3_000, mirrored=60_000))) == {()}
    assert set(map(tuple, _lag_over(small, 20, produced=0, mirrored=0))) == {()}


def test_a_flow_whose_task_failed_is_not_called_slow(small: Estate) -> None:
    small.connect.connectors[small.source].failed_tasks = {1: "java.lang.IllegalStateException: boom"}
    assert _lag_over(small, 20, produced=60_000, mirrored=30_000)[-1] == ["task-failed"]


def test_what_other_looks_saw_is_the_trend_of_the_next_one(small: Estate) -> None:
    """`serve` and every command share the memory, so a single `status` knows of what came before it."""
    assert small.flow().trend is None
    _lag_over(small, 10, produced=60_000, mirrored=30_000)
    trend = to_json(small.flow(later_seconds=1))["trend"]
    assert (trend["direction"], 480 <= trend["seconds"] <= 601) == ("growing", True)
    small.kafka.down.add("A")
    assert small.flow(later_seconds=30).trend is None, "what cannot be seen has no trend"


# --- nothing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every_seconds", [30, 75])
def test_a_healthy_hour_with_bursts_and_idle_partitions_raises_nothing(small: Estate, every_seconds: int) -> None:
    """Bursts of four minutes above what the tasks carry, quiet times, an idle partition, flushes once a minute."""
    clusters = small.kafka.clusters
    clusters["A"]["orders.quiet"], clusters["B"]["A.orders.quiet"] = [(0, 7)], [(0, 7)]
    small.connect.source_topics = {"orders": 2, "orders.quiet": 1}
    small.stored(6, topic="orders.quiet")
    produced = mirrored = 0
    for second in range(0, 3601, every_seconds):
        minute = second // 60 % 20
        produced += every_seconds * (0 if minute > 15 else 1500 if minute < 4 else 50)
        mirrored = min(produced, mirrored + 1000 * every_seconds)
        small.log(0, produced)
        small.log(0, mirrored, alias="B", topic="A.orders")
        clusters["B"]["heartbeats"] = [(0, second + 1)]
        if second % 60 < every_seconds and mirrored:
            small.stored(mirrored - 1)
        status = small.status(later_seconds=every_seconds)
        assert status.problems() == (), second
        assert status.health in {"ok", "waiting"}
    assert status.health == "ok"
