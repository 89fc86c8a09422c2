"""Sizes that hold at the worst moment: random hourly traffic against counting every task of every number in every hour.

The reference is slow and knows nothing of `mm2mgr.sizing.load`: plain loops over tasks and hours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mm2mgr.json_values import to_json
from mm2mgr.partitions import Statistic, TopicPartition
from mm2mgr.sizing import load as load_module
from mm2mgr.sizing.load import Load, fill_unknown_hours, level_growth
from mm2mgr.sizing.tasks import Bounds, Capacity, CurrentTasks, Prediction, Profile, Rules, Sizing, flow_load, size_load

MB = 1_000_000.0
DAY, WEEK = 24, 168
USABLE = 7 * MB
Rows = list[list[float]]  # bytes per second by partition and hour
Chance = random.Random
CHANCES = st.integers(0, 2**32).map(random.Random)


# --- traffic -------------------------------------------------------------------------------------------------------------


def steady(chance: Chance, hours: int) -> list[float]:
    return [chance.uniform(0.05, 4) * MB] * hours


def daily(chance: Chance, hours: int) -> list[float]:
    height, phase = chance.uniform(0.1, 3) * MB, chance.randrange(DAY)
    return [height * (1 + math.cos((hour - phase) / DAY * math.tau)) for hour in range(hours)]


def weekends(chance: Chance, hours: int) -> list[float]:
    busy, quiet = chance.uniform(0.5, 6) * MB, chance.uniform(0, 0.5) * MB
    return [busy if hour // DAY % 7 < 5 else quiet for hour in range(hours)]


def bursts(chance: Chance, hours: int) -> list[float]:
    low, high = chance.uniform(0, 0.5) * MB, chance.uniform(1, 7) * MB
    row = [low] * hours
    for _ in range(chance.randrange(hours // 12 + 1)):
        put(row, chance.randrange(hours), chance.randint(1, 5), high)
    return row


def put(row: list[float], start: int, count: int, rate: float) -> None:
    for hour in range(start, min(start + count, len(row))):
        row[hour] = rate


def rotation(chance: Chance, hours: int) -> list[float]:
    period, high = chance.choice([6, 12, 24, 24, 24, 48]), chance.uniform(1, 7) * MB
    mine = chance.randrange(period)
    return [high if hour % period == mine else 0.1 * MB for hour in range(hours)]


def noise(chance: Chance, hours: int) -> list[float]:
    level = chance.uniform(0.1, 2) * MB
    return [min(7 * MB, level * chance.lognormvariate(0, 0.3)) for _ in range(hours)]


SHAPES: Sequence[Callable[[Chance, int], list[float]]] = (steady, daily, weekends, bursts, rotation, noise)


def traffic(chance: Chance, partitions: int, hours: int) -> Rows:
    """Return a flow of one shape, or of all of them mixed."""
    shapes = [chance.choice(SHAPES)] if chance.random() < 0.5 else SHAPES
    return [chance.choice(shapes)(chance, hours) for _ in range(partitions)]


def sized(rows: Rows, *, limit: int | None = None, by: Statistic = "p95", topics: int = 1, hours: int = 0) -> Sizing:
    """Size a flow as the commands do: hours filled and levelled first; its partitions are spread over some topics."""
    table = np.array(rows)
    names = [TopicPartition(f"t{number * topics // len(rows)}", number) for number in range(len(rows))]
    numbers = np.array([number * topics // len(rows) for number in range(len(rows))])
    first = hours + 490_000
    when = range(first, first + table.shape[1])
    fill_unknown_hours(table, when)
    grown = {f"t{number}": one for number, one in level_growth(table, numbers, when).items()}
    rules = Rules(bounds=Bounds(1, limit), statistic=by)
    known = flow_load(
        Prediction(tuple(names), "live"), dict(zip(names, table, strict=True)), rules, Profile(growth=grown)
    )
    return size_load("f", known, rules, CurrentTasks(1))


# --- the reference -------------------------------------------------------------------------------------------------------


def hours_above(rows: Rows, tasks: int, usable: float = USABLE) -> int:
    """Return in how many hours the worst of so many tasks is above what is usable."""
    worst = 0
    for task in range(min(tasks, len(rows))):
        mine = rows[task::tasks]
        worst = max(worst, sum(sum(row[hour] for row in mine) > usable for hour in range(len(rows[0]))))
    return worst


def holding(rows: Rows, limit: int) -> list[int]:
    """Return the numbers of tasks with which no task is above what is usable in more than 5 % of the hours."""
    most = min(limit, len(rows))
    return [tasks for tasks in range(1, most + 1) if hours_above(rows, tasks) <= 0.05 * len(rows[0])]


# --- the property --------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    st.randoms(use_true_random=False), st.integers(1, 28), st.integers(1, 30), st.sampled_from([1, 30, WEEK, 2 * WEEK])
)
def test_no_task_is_above_usable_in_more_than_a_twentieth_of_the_hours_where_any_number_would_hold(
    chance: Chance, partitions: int, limit: int, hours: int
) -> None:
    rows = traffic(chance, partitions, hours)
    sizing = sized(rows, limit=limit)
    enough = holding(rows, limit)
    if enough:
        assert hours_above(rows, sizing.tasks) <= 0.05 * hours
        assert enough[0] <= sizing.tasks <= enough[0] + 1
        assert sizing.busiest_bytes_per_second <= USABLE
    else:
        assert sizing.capped_by == "limit"
        assert sizing.tasks <= limit


@settings(max_examples=60, deadline=None)
@given(
    CHANCES,
    st.integers(1, 20),
    st.floats(1.3, 5),
    st.integers(DAY, 13 * DAY),
    st.integers(2, 4),
)
@example(random.Random(2), 2, 1.625, 175, 2)
def test_after_growth_the_next_week_holds_too(
    chance: Chance, partitions: int, factor: float, ago: int, weeks: int
) -> None:
    """Traffic with a weekly season grew so many hours ago: what was seen of it since and the old hours predict the next week."""
    shapes = (daily, weekends, steady)
    week = [chance.choice(shapes)(chance, WEEK) for _ in range(partitions)]
    week = [[min(rate, 6.9 * MB / factor) for rate in row] for row in week]
    seen = [
        [rate * (factor if hour >= weeks * WEEK - ago else 1) for hour, rate in enumerate(row * weeks)] for row in week
    ]
    coming = [[rate * factor for rate in row] for row in week]
    sizing = sized(seen)
    enough = holding(coming, partitions)
    assert hours_above(coming, sizing.tasks) <= 0.05 * WEEK + 1
    assert sizing.tasks <= enough[0] + 1


@settings(max_examples=100, deadline=None)
@given(CHANCES, st.integers(2, 24), st.sampled_from(["p50", "p95", "max"]))
def test_hours_in_which_one_partition_alone_is_too_much_ask_for_room_beside_it(
    chance: Chance, partitions: int, by: Statistic
) -> None:
    """The reference goes task by task and hour by hour, with the rule as `Load` states it; the first number that does is taken."""
    rows = traffic(chance, partitions, 60)
    for row in chance.sample(rows, chance.randint(1, len(rows))):
        put(row, chance.randrange(60), chance.choice([1, 2, 60]), chance.uniform(5, 40) * MB)

    def too_much(rates: list[float]) -> bool:
        total, top = sum(rates), max(rates)
        if top <= USABLE:
            return total > USABLE
        allowed = min(1.1 * top, 10 * MB) if top <= 10 * MB else 1.1 * top
        return total > max(top, allowed) or sum(rate > USABLE for rate in rates) > 1

    def does(tasks: int) -> bool:
        left_out = {"p50": 30, "p95": 3, "max": 0}[by]
        hands = [rows[task::tasks] for task in range(tasks)]
        return all(sum(too_much([row[hour] for row in hand]) for hour in range(60)) <= left_out for hand in hands)

    assert sized(rows, by=by).tasks == next(tasks for tasks in range(1, partitions + 1) if does(tasks))


# --- the experiments of the issue ----------------------------------------------------------------------------------------


def rotating(high: float, partitions: int = 24) -> Rows:
    """Each partition is busy for one hour of the day, each in another hour."""
    return [[high if hour % DAY == mine else 0.1 * MB for hour in range(4 * WEEK)] for mine in range(partitions)]


def test_partitions_that_take_turns_are_judged_by_what_they_carry_at_the_same_time() -> None:
    """24 partitions of 8 MB/s for an hour a day: 10.3 MB/s at every moment, once planned as 1 task for 2.4 MB/s, or as 24."""
    sizing = sized(rotating(8 * MB))
    assert sizing.bytes_per_second == pytest.approx(10.3 * MB)
    assert sizing.tasks == 3
    assert sizing.busiest_bytes_per_second == pytest.approx(8.7 * MB)
    assert sizing.reasons[0].startswith(
        "10.3 MB/s over 24 partitions at the same time (p95 of 672 hours), divided by 7 MB/s"
    )
    (said,) = [one for one in sizing.reasons if one.startswith("In some hours a single partition")]
    assert "adding tasks does not help: t0-0 (8 MB/s), " in said
    assert said.endswith(" and 19 more.")
    assert sized(rotating(8 * MB), by="max").tasks == 3


def test_partitions_that_take_turns_below_what_is_usable_need_no_more_than_their_sum() -> None:
    rows = rotating(5 * MB)
    assert (sized(rows).tasks, hours_above(rows, 1), hours_above(rows, 2)) == (2, 4 * WEEK, 0)


@pytest.mark.parametrize("days", [1, 2, 4, 7, 10])
def test_growth_is_planned_for_within_a_day(days: int) -> None:
    """Traffic that grew from 2 to 9 MB/s was planned at the old rate for days."""
    share = 1 / 12
    row = [(9 if hour >= 4 * WEEK - days * DAY else 2) * MB * share for hour in range(4 * WEEK)]
    sizing = sized([row] * 12)
    assert (sizing.tasks, sizing.bytes_per_second) == (2, pytest.approx(9 * MB))
    if days < 7:
        (said,) = [one for one in sizing.reasons if one.startswith("Traffic grew")]
        assert said == "Traffic grew: t0 4.5 times in 1 week. Earlier hours count at the level of the newest day."
        assert to_json(sizing)["growth"]["t0"] == {"factor": pytest.approx(4.5), "weeks": 1}


def test_the_same_hour_of_other_weeks_counts_at_the_level_of_today() -> None:
    """Mondays are twice as busy; traffic doubled on Sunday, and the next Monday is seen coming."""
    season = [2 if hour // DAY % 7 == 1 else 1 for hour in range(4 * WEEK)]  # the last day is the seventh
    row = [0.5 * MB * high * (2 if hour >= 4 * WEEK - DAY else 1) for hour, high in enumerate(season)]
    sizing = sized([row] * 8)
    assert sizing.bytes_per_second == pytest.approx(16 * MB)
    assert sizing.tasks == 3  # three of eight partitions on one: 6 MB/s; at the level of most weeks one task would do


def test_neither_a_burst_nor_a_monday_nor_a_new_month_of_nothing_is_growth() -> None:
    week = [3 * MB if hour // DAY < 5 else 0.3 * MB for hour in range(WEEK)]
    for row in (week * 2, week * 2 + week[:DAY], [*week * 2, *week[:10], 20 * MB, 20 * MB, 20 * MB]):
        assert sized([row]).growth == {}
    assert sized([[0.0] * 2 * WEEK]).growth == {}
    short = [MB] * 5 * DAY + [4 * MB] * DAY
    assert sized([short]).growth == {}  # without a week before there is nothing to compare with, and p95 sees the day


def test_what_has_risen_already_is_not_raised_again() -> None:
    row = np.array([[2 * MB] * (4 * WEEK - 60) + [9 * MB] * 60])
    level_growth(row, np.zeros(1, int), range(4 * WEEK))
    assert row.max() == pytest.approx(9 * MB)
    assert np.median(row) == pytest.approx(9 * MB)


def test_a_topic_that_was_all_but_idle_is_raised_tenfold_at_most_and_its_neighbours_not_at_all() -> None:
    rows = np.array([[1.0] * 13 * DAY + [MB] * DAY, [5.0] * 14 * DAY])
    grown = level_growth(rows, np.array([0, 1]), range(14 * DAY))
    assert {topic: one.factor for topic, one in grown.items()} == {0: 10.0}
    assert rows[0, 0] == 10.0
    assert set(rows[1]) == {5.0}


def test_topics_are_levelled_one_by_one_however_many_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(5)
    topics = np.repeat(np.arange(40), chance.integers(1, 6, 40))
    rows = chance.uniform(1, 2, (len(topics), 1)) * np.ones((1, 2 * WEEK))
    rows[:, -DAY:] *= np.where(topics % 3 == 0, 3, 1)[:, None]
    once, often = rows.copy(), rows.copy()
    grown = level_growth(once, topics, range(2 * WEEK))
    assert set(grown) == {topic for topic in range(40) if topic % 3 == 0}
    monkeypatch.setattr(load_module, "_ROWS_AT_ONCE", 3)
    assert level_growth(often, topics, range(2 * WEEK)) == grown
    assert (once == often).all()
    assert np.allclose(once, rows[:, -1:])


def test_hours_that_were_not_measured_take_the_mean_of_their_hour_of_the_day() -> None:
    row = [float(hour % DAY) for hour in range(3 * DAY)]
    table = np.array([row, row, [math.nan] * 3 * DAY])
    table[0, DAY : 2 * DAY] = math.nan
    table[1, [5, 29, 53]] = math.nan
    fill_unknown_hours(table, range(3 * DAY))
    assert table[0].tolist() == row
    assert table[1, 5] == pytest.approx(np.mean([value for value in row if value != 5]))
    assert np.isnan(table[2]).all()


def test_beside_a_hot_partition_tasks_are_added_while_they_relieve_it() -> None:
    """Once 2 tasks were planned, with the busiest at 161 % of what is usable, where 7 tasks give 122 %."""
    beside = (0.3, 0.2, 0.3, 0.5, 0.3, 0.6, 0.54, 0.7, 0.3, 0.77, 0.3, 0.5)
    rows = [[8 * MB], *([rate * MB] for rate in beside)]
    load = Load(rows, USABLE, capacity=10 * MB)
    assert load.busiest_share(2) == pytest.approx(1.61, abs=0.01)
    assert load.busiest_share(7) == pytest.approx(1.22, abs=0.01)
    sizing = sized(rows)
    assert (sizing.tasks, sizing.capped_by) == (7, None)
    assert sizing.busiest_bytes_per_second == pytest.approx(8.54 * MB)
    said = " ".join(sizing.reasons)
    assert "122 % of the usable capacity" in said
    assert "Above the usable capacity of one task: t0-0 (8 MB/s, 1.1 times)" in said
    assert "More tasks only take away what it shares its task with: 540 kB/s here." in said


@pytest.mark.parametrize(("rate", "tasks"), [(8.0, 2), (9.0, 2), (9.9, 4)])
def test_what_is_beside_a_partition_between_usable_and_capacity_is_counted(rate: float, tasks: int) -> None:
    """One of 8 of 10 MB/s leaves room for 0.8, one of 9.9 for 0.1: its task must not be above its whole capacity."""
    rows = [[rate * MB], [1.5 * MB], [0.3 * MB], [1.5 * MB]]
    sizing = sized(rows)
    assert sizing.tasks == tasks
    assert sizing.busiest_bytes_per_second <= max(rate * MB, 10 * MB)


def test_more_of_the_hours_count_the_more_tasks_there_are() -> None:
    rows = traffic(random.Random(3), 20, WEEK)
    tasks = [sized(rows, by=by).tasks for by in ("p50", "p95", "max")]
    assert all(fewer <= more for fewer, more in pairwise(tasks))
    assert tasks[0] < tasks[-1]


# --- records and partitions ----------------------------------------------------------------------------------------------


def of_records(size: float, rules: Rules, partitions: int = 8) -> Sizing:
    names = tuple(TopicPartition("t", number) for number in range(partitions))
    profile = Profile(dict.fromkeys(names, size))
    return size_load(
        "f", flow_load(Prediction(names, "live"), dict.fromkeys(names, 1.75 * MB), rules, profile), rules, None
    )


@pytest.mark.parametrize(("size", "tasks"), [(math.nan, 2), (1000.0, 2), (100.0, 2), (50.0, 4), (25.0, 8)])
def test_small_records_are_bound_by_their_number(size: float, tasks: int) -> None:
    """14 MB/s are two tasks of 7; in records of 50 bytes they are 280 000 a second, and a task takes 70 000."""
    sizing = of_records(size, Rules())
    assert sizing.tasks == tasks
    said = [one for one in sizing.reasons if one.startswith("Records are small")]
    assert bool(said) == (tasks > 2)
    if tasks == 4:
        assert said == [
            "Records are small, so their number is the limit: 280000 records/s, 70000 usable per task (100000 × 70 %)."
        ]
        assert "handles 3.5 MB/s, 100 % of the usable capacity" in " ".join(sizing.reasons)


def test_another_record_capacity_counts() -> None:
    assert of_records(50.0, Rules(Capacity(records_per_second=200_000))).tasks == 2
    assert of_records(1000.0, Rules(Capacity(records_per_second=5_000))).tasks == 4


def test_no_task_has_more_partitions_than_it_may() -> None:
    names = tuple(TopicPartition("t", number) for number in range(1201))
    idle = dict.fromkeys(names, 1.0)

    def of(bounds: Bounds) -> Sizing:
        rules = Rules(bounds=bounds)
        return size_load("f", flow_load(Prediction(names, "live"), idle, rules), rules, CurrentTasks(2))

    sizing = of(Bounds())
    assert (sizing.tasks, sizing.now and sizing.now.verdict) == (3, "too small")
    assert "No task may have more than 500 partitions: that needs 3 tasks." in sizing.reasons
    assert of(Bounds(partitions=100)).tasks == 13
    assert (of(Bounds(partitions=100, limit=8)).tasks, of(Bounds(partitions=100, limit=8)).capped_by) == (8, "limit")
