"""Tasks per flow: laws that hold for any load, and the sentences that explain the numbers."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.overrides import overrides_document
from mm2mgr.sizing.tasks import Bounds, Capacity, Rules, size_flow
from mm2mgr.sizing.words import listed, rate_text

MB = 1_000_000.0
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "a-1", "c"]), st.integers(0, 6))
flows = st.dictionaries(partitions, st.booleans(), max_size=20)
loads = st.dictionaries(partitions, st.floats(0, 50 * MB), max_size=20)
bounds = st.builds(Bounds, st.integers(0, 12), st.none() | st.integers(1, 12))
rules = st.builds(Rules, st.builds(Capacity, st.floats(1, 20 * MB), st.floats(0.01, 1)), bounds, st.floats(0, MB))


def evenly(count: int, rate: float, topic: str = "logs") -> dict[TopicPartition, float]:
    return {TopicPartition(topic, number): rate for number in range(count)}


def existing(*several: dict[TopicPartition, float]) -> dict[TopicPartition, bool]:
    return {partition: True for one in several for partition in one}


@given(flows, loads, rules)
def test_tasks_stay_within_every_bound(
    flow: dict[TopicPartition, bool], load: dict[TopicPartition, float], rule: Rules
) -> None:
    sizing = size_flow("f", flow, load, rule)
    count = sum(flow.values())
    assert 1 <= sizing.tasks <= max(1, count)
    assert rule.bounds.limit is None or sizing.tasks <= rule.bounds.limit
    assert sizing.capped_by or sizing.tasks >= rule.bounds.minimum
    assert sizing.measured_partitions + sizing.topic_rate_partitions + sizing.default_partitions == count
    assert sizing.reasons


@given(flows, loads, rules)
def test_uncapped_tasks_are_enough_and_not_one_too_many(
    flow: dict[TopicPartition, bool], load: dict[TopicPartition, float], rule: Rules
) -> None:
    sizing = size_flow("f", flow, load, rule)
    usable = rule.capacity.usable_bytes_per_second
    if sizing.capped_by is None:
        assert sizing.bytes_per_second <= sizing.tasks * usable
        if sizing.tasks > max(1, rule.bounds.minimum):
            assert sizing.bytes_per_second > (sizing.tasks - 1) * usable


@given(flows, loads, rules, st.floats(1, 3))
def test_more_load_never_means_fewer_tasks(
    flow: dict[TopicPartition, bool], load: dict[TopicPartition, float], rule: Rules, factor: float
) -> None:
    more = {partition: rate * factor for partition, rate in load.items()}
    assert size_flow("f", flow, more, rule).tasks >= size_flow("f", flow, load, rule).tasks


@given(flows, loads, rules)
def test_the_total_is_the_sum_of_own_topic_and_default_rates(
    flow: dict[TopicPartition, bool], load: dict[TopicPartition, float], rule: Rules
) -> None:
    total = 0.0
    for partition in (one for one, exists in flow.items() if exists):
        siblings = [rate for one, rate in load.items() if one.topic == partition.topic and flow.get(one)]
        mean = sum(siblings) / len(siblings) if siblings else rule.default_bytes_per_second
        total += load.get(partition, mean)
    assert math.isclose(size_flow("f", flow, load, rule).bytes_per_second, total, rel_tol=1e-9, abs_tol=1e-9)


@given(flows, loads, rules)
def test_order_of_the_input_does_not_matter(
    flow: dict[TopicPartition, bool], load: dict[TopicPartition, float], rule: Rules
) -> None:
    turned = size_flow("f", dict(reversed(flow.items())), dict(reversed(load.items())), rule)
    assert turned == size_flow("f", flow, load, rule)


@pytest.mark.parametrize(
    ("total_mb", "tasks"), [(0, 1), (6.999, 1), (7, 1), (7.001, 2), (70, 10), (70.1, 11), (210, 30)]
)
def test_ten_megabytes_at_seventy_percent_are_seven_per_task(total_mb: float, tasks: int) -> None:
    load = evenly(40, total_mb * MB / 40)
    assert size_flow("f", existing(load), load).tasks == tasks


def test_the_reason_shows_the_arithmetic() -> None:
    load = evenly(10, 3 * MB)
    sizing = size_flow("dc1->dc2", existing(load), load)
    assert sizing.tasks == 5
    assert sizing.reasons == (
        "30 MB/s over 10 partitions, divided by 7 MB/s usable per task (10 MB/s × 70 %), needs 5 tasks.",
        "Of 10 partitions, 10 have a rate of their own.",
    )


def test_unknown_partitions_take_the_topic_mean_then_the_default_and_it_is_said() -> None:
    measured = {TopicPartition("logs", 0): 2 * MB, TopicPartition("logs", 1): 4 * MB}
    flow = existing(measured) | {TopicPartition("logs", 2): True, TopicPartition("new", 0): True}
    sizing = size_flow("f", flow, measured, Rules(default_bytes_per_second=1000))
    assert sizing.bytes_per_second == 9 * MB + 1000
    assert (sizing.measured_partitions, sizing.topic_rate_partitions, sizing.default_partitions) == (2, 1, 1)
    assert sizing.reasons[1] == (
        "Of 4 partitions, 2 have a rate of their own, 1 takes the mean of their topic, 1 takes the default of 1 kB/s."
    )


def test_a_topic_deleted_between_sample_and_size_is_ignored_and_named() -> None:
    kept, gone = evenly(2, MB), evenly(3, 50 * MB, "gone")
    flow = existing(kept) | dict.fromkeys(gone, False)
    sizing = size_flow("f", flow, kept | gone)
    assert sizing.bytes_per_second == 2 * MB
    assert sizing.hot_partitions == ()
    assert sizing.reasons[-1] == "Measured but no longer in Kafka, so ignored: gone."


def test_rates_of_other_flows_are_not_counted() -> None:
    mine = evenly(2, MB)
    assert size_flow("f", existing(mine), mine | evenly(9, 9 * MB, "theirs")).bytes_per_second == 2 * MB


def test_hot_partitions_are_named_with_their_factor_and_what_helps() -> None:
    load = evenly(4, MB) | {TopicPartition("keyed", 3): 15.4 * MB}
    sizing = size_flow("f", existing(load), load)
    (hot,) = sizing.hot_partitions
    assert (hot.topic, hot.partition) == ("keyed", 3)
    assert hot.factor == pytest.approx(2.2)
    (reason,) = [one for one in sizing.reasons if "keyed-3" in one]
    assert "keyed-3 (15.4 MB/s, 2.2 times)" in reason
    assert "no number of tasks helps" in reason


def test_a_partition_without_a_measurement_is_never_called_hot() -> None:
    load = {TopicPartition("t", 0): 20 * MB}
    flow = existing(load) | {TopicPartition("t", 1): True}
    assert [one.partition for one in size_flow("f", flow, load).hot_partitions] == [0]


@pytest.mark.parametrize(
    ("bound", "tasks", "capped_by", "words"),
    [
        (Bounds(1, 4), 4, "limit", "Capped at the limit of 4 tasks."),
        (Bounds(1, None), 8, "partitions", "Capped at 8, the number of partitions"),
        (Bounds(1, 20), 8, "partitions", "Capped at 8, the number of partitions"),
        (Bounds(30, 3), 3, "limit", "Capped at the limit of 3 tasks."),
    ],
)
def test_caps_say_by_what_and_what_it_costs(bound: Bounds, tasks: int, capped_by: str, words: str) -> None:
    load = evenly(8, 10 * MB)
    sizing = size_flow("f", existing(load), load, Rules(bounds=bound))
    assert (sizing.tasks, sizing.capped_by) == (tasks, capped_by)
    text = " ".join(sizing.reasons)
    assert words in text
    assert f"The load asks for 12: every task then carries {rate_text(80 * MB / tasks)} on average" in text


def test_the_minimum_is_a_reason_of_its_own() -> None:
    load = evenly(8, 1000.0)
    sizing = size_flow("f", existing(load), load, Rules(bounds=Bounds(minimum=3)))
    assert (sizing.tasks, sizing.capped_by) == (3, None)
    assert "The minimum asks for 3 tasks." in sizing.reasons


def test_a_flow_without_partitions_gets_one_task_and_a_reason() -> None:
    sizing = size_flow("f", {}, evenly(3, MB))
    assert (sizing.tasks, sizing.bytes_per_second) == (1, 0)
    assert sizing.reasons == ("No partition of this flow exists in Kafka: one task waits for the first.",)


def test_the_dict_is_json_and_the_override_holds_what_people_review() -> None:
    load = evenly(3, 20 * MB)
    sizings = [size_flow(name, existing(load), load) for name in ("b->c", "a->b")]
    assert json.loads(json.dumps(sizings[0].to_dict()))["hot_partitions"][0]["topic"] == "logs"
    document = overrides_document(sizings, "2026-11-21T10:00Z/2026-11-21T11:00Z", "p95 of kafka-offsets")
    assert list(document["sizing"]) == ["a->b", "b->c"]
    entry = document["sizing"]["a->b"]
    assert entry["tasks_max"] == 3
    assert entry["bytes_per_second"] == 60_000_000
    assert entry["measured"] == "2026-11-21T10:00Z/2026-11-21T11:00Z"
    assert entry["reason"].startswith("60 MB/s over 3 partitions")


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0, "0 B/s"),
        (999.4, "999 B/s"),
        (999.9, "1 kB/s"),
        (5000, "5 kB/s"),
        (26.64e6, "26.6 MB/s"),
        (1.234e9, "1.23 GB/s"),
    ],
)
def test_rates_have_decimal_units(rate: float, text: str) -> None:
    assert rate_text(rate) == text


def test_long_lists_end() -> None:
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"
