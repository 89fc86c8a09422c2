"""Tasks per flow: laws that hold for any load, held against counting everything, and the sentences that explain the numbers."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.json_values import to_json
from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.stability import overrides_document
from mm2mgr.sizing.tasks import Bounds, Capacity, CurrentTasks, Prediction, Rules, Sizing, flow_load
from mm2mgr.text import list_names, rate_text
from tests.sizing.sizes import size_flow

MB = 1_000_000.0
Load = dict[TopicPartition, float]
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "a-1", "c"]), st.integers(0, 9))
rates = st.one_of(st.floats(0, 9 * MB), st.sampled_from([0.0, 3.5 * MB, 7 * MB, 40 * MB]), st.floats(0, MB))
orders = st.lists(partitions, unique=True, max_size=30)
loads = st.dictionaries(partitions, rates, max_size=40)
bounds = st.builds(Bounds, st.integers(0, 12), st.none() | st.integers(1, 12))
rules = st.builds(Rules, st.builds(Capacity, st.floats(1, 20 * MB), st.floats(0.01, 1)), bounds, st.floats(0, MB))


def evenly(count: int, rate: float, topic: str = "logs") -> Load:
    return {TopicPartition(topic, number): rate for number in range(count)}


def sized(
    load: Load, rule: Rules | None = None, *, more: list[TopicPartition] | None = None, now: CurrentTasks | None = None
) -> Sizing:
    """Size a flow whose partitions are those of the load and some more, in this order."""
    return size_flow("f", Prediction((*load, *(more or [])), "predicted"), load, rule, now)


def hands(order: list[TopicPartition], tasks: int) -> list[list[TopicPartition]]:
    """Assignment partition by partition, as MirrorSourceConnector.taskConfigs does."""
    found: list[list[TopicPartition]] = [[] for _ in range(min(tasks, len(order)))]
    for position, one in enumerate(order):
        found[position % len(found)].append(one)
    return found


def overloaded(order: list[TopicPartition], load: Load, tasks: int, usable: float) -> bool:
    return any(math.fsum(load[one] for one in hand) > usable for hand in hands(order, tasks))


@given(orders, st.data(), st.integers(1, 35))
def test_no_task_is_left_above_what_is_usable_where_any_number_would_do(
    order: list[TopicPartition], data: st.DataObject, limit: int
) -> None:
    load = {one: data.draw(rates) for one in order}
    sizing = size_flow("f", Prediction(tuple(order), "live"), load, Rules(bounds=Bounds(1, limit)))
    usable = Capacity().usable_bytes_per_second
    most = max(1, min(limit, len(order)))
    enough = [tasks for tasks in range(1, most + 1) if not overloaded(order, load, tasks, usable)]
    if enough:
        assert sizing.tasks == enough[0]
        assert sizing.busiest_bytes_per_second <= usable
        assert sizing.capped_by is None
    assert {(hot.topic, hot.partition) for hot in sizing.hot_partitions} == {
        one for one, rate in load.items() if rate > usable
    }


@given(orders, st.data())
def test_the_busiest_task_is_that_of_the_deal(order: list[TopicPartition], data: st.DataObject) -> None:
    load = {one: data.draw(rates) for one in order}
    sizing = size_flow("f", Prediction(tuple(order), "live"), load)
    dealt = [math.fsum(load[one] for one in hand) for hand in hands(order, sizing.tasks)]
    assert sizing.busiest_bytes_per_second == pytest.approx(max(dealt, default=0))


@given(orders, st.data())
def test_hot_partitions_are_kept_apart_and_the_rest_fits(order: list[TopicPartition], data: st.DataObject) -> None:
    load = {one: data.draw(rates) for one in order}
    sizing = size_flow("f", Prediction(tuple(order), "live"), load)
    usable = Capacity().usable_bytes_per_second
    for hand in hands(order, sizing.tasks):
        assert sum(load[one] > usable for one in hand) <= 1
        assert math.fsum(load[one] for one in hand if load[one] <= usable) <= usable


@given(orders, loads, rules)
def test_tasks_stay_within_every_bound(order: list[TopicPartition], load: Load, rule: Rules) -> None:
    sizing = size_flow("f", Prediction(tuple(order), "predicted"), load, rule)
    assert 1 <= sizing.tasks <= max(1, len(order))
    assert rule.bounds.limit is None or sizing.tasks <= rule.bounds.limit
    assert sizing.capped_by or sizing.tasks >= rule.bounds.minimum
    counts = (sizing.measured_partitions, sizing.topic_rate_partitions, sizing.flow_rate_partitions)
    assert sum(counts) + sizing.default_partitions == len(order)
    assert sizing.reasons


@given(orders, loads, rules)
def test_the_total_is_the_sum_of_own_topic_flow_and_default_rates(
    order: list[TopicPartition], load: Load, rule: Rules
) -> None:
    total = 0.0
    known = sorted(load[one] for one in order if one in load)
    middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2 if known else rule.default_bytes_per_second
    for partition in order:
        siblings = [rate for one, rate in load.items() if one.topic == partition.topic and one in order]
        total += load.get(partition, sum(siblings) / len(siblings) if siblings else middle)
    sizing = size_flow("f", Prediction(tuple(order), "predicted"), load, rule)
    assert math.isclose(sizing.bytes_per_second, total, rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize("lie", [math.nan, math.inf, -1.0])
def test_a_rate_that_cannot_be_is_none(lie: float) -> None:
    load = evenly(3, MB) | {TopicPartition("logs", 3): lie}
    sizing = sized(load)
    assert (sizing.bytes_per_second, sizing.measured_partitions, sizing.topic_rate_partitions) == (4 * MB, 3, 1)


def test_the_order_of_the_deal_decides() -> None:
    """Two busy partitions two places apart share a task of two; beside each other they do not."""
    load = {**evenly(1, 4 * MB, "a"), **evenly(1, 0.0, "b"), **evenly(1, 4 * MB, "c"), **evenly(1, 0.0, "d")}
    assert sized(load).tasks == 3
    assert sized(dict(sorted(load.items(), key=lambda item: -item[1]))).tasks == 2


@pytest.mark.parametrize(
    ("total_mb", "tasks"), [(0, 1), (6.999, 1), (7, 1), (7.001, 2), (70, 10), (70.1, 11), (210, 30)]
)
def test_ten_megabytes_at_seventy_percent_are_seven_per_task(total_mb: float, tasks: int) -> None:
    load = evenly(40 * tasks, total_mb * MB / (40 * tasks))
    assert sized(load).tasks == tasks


def test_the_reason_shows_the_arithmetic() -> None:
    sizing = sized(evenly(10, 3 * MB))
    assert sizing.tasks == 5
    assert sizing.reasons == (
        "30 MB/s over 10 partitions, divided by 7 MB/s usable per task (10 MB/s × 70 %), needs 5 tasks.",
        "Of 10 partitions, 10 have a rate of their own.",
        "With round-robin assignment in the predicted order, the busiest of 5 tasks handles 6 MB/s, 86 % of the usable capacity.",
    )


def test_more_tasks_than_the_sum_asks_for_are_explained() -> None:
    load = {**evenly(1, 4 * MB, "a"), **evenly(1, 0.0, "b"), **evenly(1, 4 * MB, "c"), **evenly(1, 0.0, "d")}
    (reason,) = [one for one in sized(load).reasons if "one would handle" in one]
    assert reason.endswith(
        "the busiest of 3 tasks handles 4 MB/s, 57 % of the usable capacity. With 2 tasks, one would handle 8 MB/s."
    )


def test_unknown_partitions_take_the_topic_mean_then_the_median_of_the_flow_and_it_is_said() -> None:
    measured = {TopicPartition("logs", 0): 2 * MB, TopicPartition("logs", 1): 4 * MB}
    sizing = sized(measured, more=[TopicPartition("logs", 2), TopicPartition("new", 0)])
    assert sizing.bytes_per_second == 12 * MB
    assert (sizing.measured_partitions, sizing.topic_rate_partitions, sizing.flow_rate_partitions) == (2, 1, 1)
    assert sizing.reasons[1] == (
        "Of 4 partitions, 2 have a rate of their own, 1 takes the mean of their topic, 1 takes the median of the flow."
    )


def test_a_flow_that_was_not_measured_takes_the_default() -> None:
    sizing = sized({}, Rules(default_bytes_per_second=1000), more=[*evenly(2, 0.0)], now=CurrentTasks(1))
    assert (sizing.bytes_per_second, sizing.default_partitions) == (2000, 2)
    assert sizing.reasons[1] == "Of 2 partitions, 0 have a rate of their own, 2 take the default of 1 kB/s."
    assert sizing.now is not None
    assert sizing.now.verdict == "not measured"


def test_a_topic_deleted_between_sample_and_size_is_ignored_and_named() -> None:
    kept, gone = evenly(2, MB), evenly(3, 50 * MB, "gone")
    sizing = size_flow("f", Prediction(tuple(kept), "live"), kept | gone)
    assert sizing.bytes_per_second == 2 * MB
    assert sizing.hot_partitions == ()
    assert sizing.reasons[-1] == "Measured but no longer in Kafka, so ignored: gone."


def test_hot_partitions_are_named_with_their_factor_and_what_helps() -> None:
    sizing = sized(evenly(4, MB) | {TopicPartition("keyed", 3): 15.4 * MB})
    (hot,) = sizing.hot_partitions
    assert (hot.topic, hot.partition) == ("keyed", 3)
    assert hot.factor == pytest.approx(2.2)
    assert sizing.tasks == 3  # with 2 it would share its task with two others
    (reason,) = [one for one in sizing.reasons if "keyed-3" in one]
    assert "keyed-3 (15.4 MB/s, 2.2 times)" in reason
    assert "adding tasks does not help" in reason
    assert "3 times the partitions" in reason
    assert sizing.reasons[0].startswith("19.4 MB/s over 5 partitions; 4 MB/s outside of 1 hot partition, divided by")


def test_a_partition_without_a_measurement_is_never_called_hot() -> None:
    load = {TopicPartition("t", 0): 20 * MB}
    assert [one.partition for one in sized(load, more=[TopicPartition("t", 1)]).hot_partitions] == [0]


@pytest.mark.parametrize(
    ("bound", "tasks", "capped_by", "words"),
    [
        (Bounds(1, 4), 4, "limit", "Capped at the limit of 4 tasks."),
        (Bounds(20, None), 8, "partitions", "Capped at 8, the number of partitions"),
        (Bounds(1, 20), 8, None, "needs 8 tasks."),
        (Bounds(30, 3), 3, "limit", "Capped at the limit of 3 tasks."),
    ],
)
def test_caps_say_by_what_and_what_it_costs(bound: Bounds, tasks: int, capped_by: str, words: str) -> None:
    sizing = sized(evenly(8, 5 * MB), Rules(Capacity(5 * MB, 1.0), bound))
    assert (sizing.tasks, sizing.capped_by) == (tasks, capped_by)
    text = " ".join(sizing.reasons)
    assert words in text
    each = f"The load needs 8; with {tasks} tasks, each handles {rate_text(40 * MB / tasks)} on average."
    assert (each in text) == (tasks < 8)


def test_where_no_number_up_to_the_limit_fits_the_least_bad_is_taken() -> None:
    load = {TopicPartition("t", number): rate * MB for number, rate in enumerate([6, 1, 2, 1, 6, 2, 1, 1])}
    sizing = sized(load, Rules(bounds=Bounds(1, 4)))
    assert [max(sum(load[one] for one in hand) / MB for hand in hands(list(load), tasks)) for tasks in (3, 4)] == [
        8,
        12,
    ]
    assert sizing.tasks == 3
    assert sizing.capped_by == "limit"
    assert "Capped by the limit of 4 tasks: no number up to it fits" in " ".join(sizing.reasons)


@pytest.mark.parametrize(
    ("tasks", "verdict", "words"),
    [
        (2, "too small", "the busiest of 2 tasks handles 15 MB/s; too few, 5 are enough."),
        (5, "fits", "the busiest of 5 tasks handles 6 MB/s; that fits."),
        (9, "more than needed", "the busiest of 9 tasks handles 6 MB/s; 5 are enough."),
    ],
)
def test_a_number_written_by_hand_is_judged(tasks: int, verdict: str, words: str) -> None:
    sizing = sized(evenly(10, 3 * MB), now=CurrentTasks(tasks, by_hand=True))
    assert sizing.tasks == 5
    assert sizing.now is not None
    assert sizing.now.verdict == verdict
    assert sizing.reasons[-1] == f"Set by hand: {words}"


def test_the_minimum_is_a_reason_of_its_own() -> None:
    load = evenly(8, 1000.0)
    sizing = sized(load, Rules(bounds=Bounds(minimum=3)))
    assert (sizing.tasks, sizing.capped_by) == (3, None)
    assert "The configured minimum is 3 tasks." in sizing.reasons


def test_heartbeats_of_workers_before_4_have_a_place_in_the_order_and_count_nowhere() -> None:
    """Which partitions share a task depends on their place."""
    logs, heartbeats = [TopicPartition("logs", number) for number in range(4)], TopicPartition("heartbeats", 0)
    order, rates = (logs[0], heartbeats, *logs[1:]), {logs[1]: 5 * MB, logs[2]: 6 * MB}
    prediction = Prediction(order, "live", without_load=frozenset({heartbeats}))
    known = flow_load(prediction, rates, Rules())
    assert known.load.per_task(2) == pytest.approx([5.5 * MB + 5 * MB + 5.5 * MB, 6 * MB])
    assert known.coverage == (2, 2, 0, 0)
    with_them = size_flow("f", prediction, rates)
    assert with_them.bytes_per_second == size_flow("f", Prediction(tuple(logs), "live"), rates).bytes_per_second
    assert "22 MB/s over 4 partitions" in with_them.reasons[0]
    alone = size_flow("f", Prediction((heartbeats,), "live", without_load=frozenset({heartbeats})), {})
    assert alone.reasons == ("No matching topic exists yet; one task is enough.",)


def test_a_flow_without_partitions_gets_one_task_and_a_reason() -> None:
    sizing = size_flow("f", Prediction((), "predicted"), {})
    assert (sizing.tasks, sizing.bytes_per_second) == (1, 0)
    assert sizing.reasons == ("No matching topic exists yet; one task is enough.",)


def test_the_dict_is_json_and_the_override_holds_what_people_review() -> None:
    load = evenly(3, 20 * MB)
    sizings = [size_flow(name, Prediction(tuple(load), "live"), load) for name in ("b->c", "a->b")]
    assert json.loads(json.dumps(to_json(sizings[0])))["hot_partitions"][0]["topic"] == "logs"
    document = overrides_document(sizings, "2026-11-21T10:00Z/2026-11-21T11:00Z", "p95 of kafka-offsets")
    assert list(document["sizing"]) == ["a->b", "b->c"]
    entry = document["sizing"]["a->b"]
    assert entry["tasks_max"] == 3
    assert "changed" not in entry
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
    assert list_names(list("abcdefg")) == "a, b, c, d, e and 2 more"
