"""A flow's load hour by hour: what each partition carries, and the load of each task for a number of tasks.

The partitions of a task are added up in each hour, and the statistic is taken of these sums. Past hours are evidence of
the hours to come: gaps are filled, and hours before a growth are raised to today's level.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np

from mm2mgr.partitions import Statistic, TopicPartition
from mm2mgr.weeks import DAY_HOURS, WEEK_HOURS, WEEKS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

Hours = Any
"""Bytes per second of one partition: an array with one entry per hour, the same hours for all of them; a number stands
for all hours.
"""

_SHARE_ABOVE = {"p50": 0.5, "p95": 0.05, "max": 0.0}
_RELIEF = 1.1
"""The task of a partition that no task can carry may have a tenth more than this partition: with more tasks it would
have less beside it, but would hardly be relieved."""
_ROUNDING = 1e-9  # a bound must not be too high by it; what fits is judged without


Coverage = tuple[int, int, int, int]
"""How many partitions have a rate of their own, and how many take that of their topic, of their flow and the default:
they add up to the partitions that exist."""


@dataclass(frozen=True, eq=False)
class Load:
    """Bytes per second by position of the order, and by hour where it is two-dimensional. Tasks get positions in turn.

    `usable`, `usable_records`: what one task is planned to carry at most, in bytes and in records per second;
    `capacity`: all that it can carry; `most_partitions`: how many it may have. `record_bytes`: mean record size by
    position, NaN where unknown. `running`: the positions of each task now, where they are not dealt in turn; they count
    for so many tasks, and for the tasks.max that the connector runs with (`running_max`). `is_balanced`: any other
    number of tasks gets the positions by load, heaviest first, as the plugin does after a rebalance.

    In an hour a task has too much when it is above what is usable. Where one of its partitions alone is, no number of
    tasks changes that: then it has too much with more than a tenth beside that partition, or more than its whole
    capacity where the partition alone would leave it within that, or a second such partition. The statistic says in how
    many hours that may be: for p95 in 5 %, for max in none; for mean it is taken of the strain.
    """

    rates: Array
    usable: float
    statistic: Statistic = "p95"
    capacity: float = math.inf
    record_bytes: Array | Sequence[float] | None = None
    usable_records: float = math.inf
    most_partitions: int | None = None
    running: Sequence[Sequence[int]] | None = None
    running_max: int | None = None
    is_balanced: bool = False

    @cached_property
    def hours(self) -> Array:
        """Partitions × hours."""
        table = np.asarray(self.rates)
        return table.reshape(len(table), -1) if table.size else np.zeros((0, 1))

    @cached_property
    def alone(self) -> Array:
        """What each partition carries by itself, in bytes per second."""
        return self._values_in_order(self.hours)

    @cached_property
    def alone_share(self) -> Array:
        """What each partition has by itself, as a share of what is usable."""
        return self._values_in_order(self._shares)

    @cached_property
    def total(self) -> float:
        """What all partitions carry at the same time."""
        return float(self._values_in_order(_sum(self.hours)))

    @cached_property
    def rest(self) -> float:
        """What the partitions carry at the same time that a task can carry, hour by hour."""
        return float(self._values_in_order(_sum(np.where(self._shares > 1, 0, self.hours))))

    @cached_property
    def records(self) -> float | None:
        """Records per second at the same time, where they ask for more tasks than the bytes do; else None."""
        if self._records is None:
            return None
        records = float(self._values_in_order(_sum(self._records)))
        return records if records / self.usable_records > self.total / self.usable else None

    @cached_property
    def heavy(self) -> list[int]:
        """The positions that no task can carry."""
        return [int(place) for place in np.flatnonzero(self.alone_share > 1)]

    @cached_property
    def sometimes_heavy(self) -> list[int]:
        """The other positions that no task can carry in some hours."""
        above = (self._shares > 1).any(axis=1)
        return [int(place) for place in np.flatnonzero(above & (self.alone_share <= 1))]

    @cached_property
    def least(self) -> int:
        """Return a number of tasks below which none can do, however partitions are assigned.

        In an hour in which n tasks have too much together, one has; n tasks may have n times as many such hours.
        """
        if not len(self.hours):
            return 1
        shares = _sum(self.hours) / self.usable
        if self._records is not None:
            shares = np.maximum(shares, _sum(self._records) / self.usable_records)
        if self._some_heavy:  # what their tasks may have above what is usable
            shares = shares - _sum(np.where(self._shares > 1, self._shares * _RELIEF - 1, 0))
        return max(1, self.least_by_partitions, self._least(np.sort(shares)[::-1]))

    @property
    def least_by_partitions(self) -> int:
        """Return the tasks that it takes for none to have too many partitions."""
        return math.ceil(len(self.hours) / self.most_partitions) if self.most_partitions else 1

    def per_task(self, tasks: int) -> list[float]:
        """Return the load of each task; one task without load where there is no partition."""
        loads: list[float] = self._loads_of(tasks)[0].tolist()
        return loads or [0.0]

    def busiest(self, tasks: int) -> float:
        """Return the load of the busiest task."""
        return max(self.per_task(tasks))

    def busiest_share(self, tasks: int) -> float:
        """Return the busiest task's load as a share of the usable, in bytes or in records, whichever is more."""
        return float(self._loads_of(tasks)[1].max(initial=0.0))

    def strain(self, tasks: int) -> float:
        """Return how many times too much the worst task has; at most 1 fits."""
        return float(self._loads_of(tasks)[2].max(initial=0.0))

    def fits(self, tasks: int, share: float = 1.0) -> bool:
        """Tell whether every task holds at `share` of what is usable, and none has too many partitions.

        What a partition has by itself is no reason against, also where that is more than `share`.
        """
        if self.most_partitions and self.fullest(tasks) > self.most_partitions:
            return False
        strains = self._loads_of(tasks)[2] if share == 1 else self._values_in_order(self._strains(tasks, share))
        return bool((strains <= 1).all())

    def hours_of(self, tasks: int) -> Array:
        """Return the bytes per second of each task in each hour: tasks × hours; never more tasks than partitions."""
        return self._by_task(self.hours, tasks)

    def runs_now(self, tasks: int) -> bool:
        """Whether so many tasks run now, with partitions that are not dealt in turn."""
        return self._running(tasks) is not None

    def positions(self, tasks: int) -> Sequence[Sequence[int]]:
        """Return the positions of each task."""
        if assigned := self._assigned_positions(tasks):
            return assigned
        count = min(tasks, len(self.hours))
        return [range(first, len(self.hours), count) for first in range(count)]

    def fullest(self, tasks: int) -> int:
        """Return the partitions of the task that has most of them."""
        if assigned := self._assigned_positions(tasks):
            return max(map(len, assigned))
        return math.ceil(len(self.hours) / max(1, min(tasks, len(self.hours))))

    def count_moved(self, before: int, after: int) -> int:
        """Count the partitions that another task gets when the number of tasks changes."""
        was, now = self._tasks_by_position(before), self._tasks_by_position(after)
        return int(np.count_nonzero((was != now) & (was >= 0) & (now >= 0)))

    def most_beside(self, positions: Sequence[int], tasks: int) -> float:
        """Return the most that a task carries beside one of these partitions; 0 where no task has them."""
        places = np.array(positions, np.intp)
        task_of, loads = self._tasks_by_position(tasks)[places], np.asarray(self.per_task(tasks))
        beside = loads[task_of[task_of >= 0]] - self.alone[places[task_of >= 0]]
        return float(beside.max(initial=0.0))

    @cached_property
    def _records(self) -> Array | None:
        """Records per second like `hours`; None where no record is so small that they decide before bytes do."""
        if self.record_bytes is None or not len(self.hours) or math.isinf(self.usable_records):
            return None
        sizes = np.asarray(self.record_bytes, np.float64)
        if not (sizes * self.usable_records < self.usable * (1 - _ROUNDING)).any():
            return None
        return self.hours / np.where(sizes > 0, sizes, np.inf)[:, None]

    @property
    def _shares(self) -> Array:
        """What each partition has in each hour, as a share of what is usable."""
        return self._share(self.hours, self._records)

    @cached_property
    def _some_heavy(self) -> bool:
        return bool(self._shares.max(initial=0.0) > 1)

    @cached_property
    def _loads_by_tasks(self) -> dict[int, tuple[Array, Array, Array]]:
        return {}

    def _loads_of(self, tasks: int) -> tuple[Array, Array, Array]:
        tasks = tasks if self._running(tasks) else min(tasks, len(self.hours))
        if tasks not in self._loads_by_tasks:
            volume = self._by_task(self.hours, tasks)
            records = None if self._records is None else self._by_task(self._records, tasks)
            planned = self._values_in_order(volume)
            shares = planned / self.usable if records is None else self._values_in_order(self._share(volume, records))
            strains = self._values_in_order(self._strains(tasks, 1.0)) if self._some_heavy and len(shares) else shares
            self._loads_by_tasks[tasks] = planned, shares, strains
        return self._loads_by_tasks[tasks]

    def _tasks_by_position(self, tasks: int) -> Array:
        """Return the task of each position; -1 where none has it."""
        table = np.full(len(self.hours), -1)
        for task, positions in reversed(list(enumerate(self.positions(tasks)))):
            table[list(positions)] = task
        return table

    def _running(self, tasks: int) -> Sequence[Sequence[int]] | None:
        """Return the positions of each task that runs, where these count for that number."""
        now, count = self.running, min(tasks, len(self.hours))
        return now if now and (len(now) in (tasks, count) or tasks == self.running_max) else None

    def _assigned_positions(self, tasks: int) -> Sequence[Sequence[int]] | None:
        """Return the positions of each task where they are not dealt in turn."""
        if now := self._running(tasks):
            return now
        count = min(tasks, len(self.hours))
        if not self.is_balanced or not count:
            return None
        if count not in self._positions_by_load:
            self._positions_by_load[count] = _by_load(self.alone_share.tolist(), count, self.most_partitions)
        return self._positions_by_load[count]

    @cached_property
    def _positions_by_load(self) -> dict[int, Sequence[Sequence[int]]]:
        return {}

    def _by_task(self, table: Array, tasks: int, add: np.ufunc = np.add) -> Array:
        assigned = self._assigned_positions(tasks)
        if assigned is None:
            return _in_turn(table, min(tasks, len(self.hours)), add)
        sums = np.zeros((len(assigned), table.shape[1]))
        for task, positions in enumerate(assigned):
            if len(positions):
                sums[task] = add.reduce(table[list(positions)], axis=0, dtype=np.float64)
        return sums

    def _strains(self, tasks: int, share: float) -> Array:
        """Return what each task has in each hour by what it may have: tasks × hours."""
        records = None if self._records is None else self._by_task(self._records, tasks)
        shares = self._share(self._by_task(self.hours, tasks), records)
        own = self._shares
        top = self._by_task(own, tasks, np.maximum)
        whole = self.capacity / self.usable
        relieved = np.where(top <= whole, np.maximum(top, np.minimum(top * _RELIEF, whole)), top * _RELIEF)
        meet = self._by_task((own > 1).astype(np.float64), tasks) > 1
        may_have = np.where(top > 1, np.where(meet, top, relieved), np.maximum(top, share))
        return shares / may_have

    def _share(self, volume: Array, records: Array | None) -> Array:
        share = volume / self.usable
        return share if records is None else np.maximum(share, records / self.usable_records)

    def _values_in_order(self, values: Array) -> Array:
        return statistic_of(values, self.statistic)

    def _least(self, shares: Array) -> int:
        """Return the bound that the sums of hours, highest first, put on the number of tasks."""
        if self.statistic == "mean":
            return 1 if self._some_heavy else math.ceil(float(shares.mean()) - _ROUNDING)
        if not (left_out := _left_out(self.statistic, len(shares))):
            return math.ceil(float(shares[0]) - _ROUNDING)
        tasks = 0
        while tasks * left_out < len(shares) and shares[tasks * left_out] > tasks * (1 + _ROUNDING):
            tasks += 1
        return tasks


def _sum(table: Array) -> Array:
    total: Array = table.sum(axis=0, dtype=np.float64)
    return total


def _in_turn(table: Array, count: int, add: np.ufunc) -> Array:
    if not count:
        return np.zeros((0, table.shape[1]))
    whole = len(table) // count * count
    table_sums: Array = add.reduce(table[:whole].reshape(-1, count, table.shape[1]), axis=0, dtype=np.float64)
    table_sums[: len(table) - whole] = add(table_sums[: len(table) - whole], table[whole:])
    return table_sums


def _by_load(shares: Sequence[float], count: int, most: int | None) -> Sequence[Sequence[int]]:
    """Give each position, the heaviest first, to the task with the least load that has room."""
    room = max(most or len(shares), math.ceil(len(shares) / count))
    tasks: list[list[int]] = [[] for _ in range(count)]
    heap = [(0.0, 0, task) for task in range(count)]
    for place in sorted(range(len(shares)), key=lambda place: (-shares[place], place)):
        load, held, task = heappop(heap)
        tasks[task].append(place)
        if held + 1 < room:
            heappush(heap, (load + shares[place], held + 1, task))
    return tasks


def _left_out(statistic: Statistic, hours: int) -> int:
    return int(_SHARE_ABOVE[statistic] * hours + _ROUNDING)


def statistic_of(values: Array, statistic: Statistic) -> Array:
    """Take a statistic over the last axis; p95 is the least value that is exceeded in no more than 5 % of the hours."""
    if statistic == "mean":
        means: Array = values.mean(axis=-1, dtype=np.float64)
        return means
    count = values.shape[-1]
    place = count - 1 - _left_out(statistic, count)
    return np.partition(values, place, axis=-1)[..., place]


def complete(
    order: Sequence[TopicPartition],
    rates: Mapping[TopicPartition, Hours],
    default_bytes_per_second: float,
    without_load: Collection[TopicPartition] = (),
) -> tuple[Array, Coverage]:
    """Give each partition its own rate, else the mean of its topic's measured partitions in each hour, else the flow's
    median in each hour, else the default: partitions × hours. Those `without_load` have a place and count nowhere."""
    own = [_possible(rates.get(partition)) for partition in order]
    width = max((len(rate) for rate in own if rate is not None), default=1)
    kind = next((rate.dtype for rate in own if rate is not None and len(rate) > 1), np.float64)
    table = np.zeros((len(order), width), kind)
    topics: dict[str, list[int]] = {}
    for position, rate in enumerate(own):
        if rate is not None:
            table[position] = rate
            topics.setdefault(order[position].topic, []).append(position)
    measured = [position for position, rate in enumerate(own) if rate is not None]
    missing = [position for position, rate in enumerate(own) if rate is None and order[position] not in without_load]
    other = np.median(table[measured], axis=0) if measured and missing else default_bytes_per_second
    means = {
        topic: table[topics[topic]].mean(axis=0)
        for topic in {order[partition].topic for partition in missing} & topics.keys()
    }
    for position in missing:
        table[position] = means.get(order[position].topic, other)
    topic = sum(order[position].topic in means for position in missing)
    left = len(missing) - topic
    return table, (len(measured), topic, left if measured else 0, 0 if measured else left)


def _possible(rate: Hours | None) -> Array | None:
    """Drop what no partition can have: a source that reports NaN, infinity or less than nothing has not measured."""
    if rate is None:
        return None
    rates = np.atleast_1d(rate)
    low, high = rates.min(), rates.max()  # NaN if any is
    return rates if low >= 0 and high < math.inf else None


_WEEK_DAYS = WEEK_HOURS // DAY_HOURS
_LEAST_GROWTH = 1.25
"""Less is noise, and within the threshold of a task."""
_MOST_GROWTH = 10.0
"""A topic that was all but idle says nothing about how large its old peaks would be today."""
_AGREEING = 0.75
"""The share of the newest day's hours that must have grown: a burst of some hours is no growth."""
_LEAST_PAIRS = 3
_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True)
class TopicGrowth:
    """How many times as much as so many weeks ago a topic carries at the same hours."""

    factor: float
    weeks: int


def fill_unknown_hours(table: Array, hours: Sequence[int]) -> None:
    """Fill unknown hours (NaN) of partitions × hours: with the partition's mean at this hour of the day, else its mean.

    `hours` are counted since 1970. A row that is unknown throughout stays so.
    """
    rows = np.flatnonzero(np.isnan(table.sum(axis=1)))
    if not len(rows):
        return
    some, of_day = table[rows], np.asarray(hours) % DAY_HOURS
    missing = np.isnan(some)
    whole = _means(some, missing)
    for hour in np.unique(of_day):
        columns = np.flatnonzero(of_day == hour)
        means = _means(some[:, columns], missing[:, columns])
        means = np.where(np.isnan(means), whole, means)
        some[:, columns] = np.where(missing[:, columns], means[:, None], some[:, columns])
    table[rows] = some


def level_growth(table: Array, topics: Array, hours: Sequence[int]) -> dict[int, TopicGrowth]:
    """Raise older hours of topics that grew to today's level, in place; return those topics with their growth.

    Growth is measured against the same hours of earlier weeks: a Monday is no growth over a Sunday. Topics that shrink
    keep their rates until those hours leave the window.

    `topics` numbers the topic of each row, in blocks of one topic; `hours`, counted since 1970, go up. Each topic's
    newest day is compared with the same hours one, two and three weeks earlier. It has grown where three quarters of
    these hours did, by a quarter or more; the median is the factor. The days of the newest week are compared with those
    a week before each, so that what has risen already is not raised again, and growth that is a week old and more
    raises the days before it. With less than eight days of history nothing is compared: the newest day is enough of it.
    """
    growth_of: dict[int, TopicGrowth] = {}
    if not len(table):
        return growth_of
    age = int(hours[-1]) - np.asarray(hours)
    if age[0] < WEEK_HOURS:
        return growth_of
    column = {int(hours): place for place, hours in enumerate(age)}
    starts = np.flatnonzero(np.diff(topics, prepend=-1))
    ends = np.append(starts[1:], len(table))
    first = 0
    while first < len(starts):
        last = first + max(1, int(np.searchsorted(ends[first:], starts[first] + _ROWS_AT_ONCE, "right")))
        low = starts[first]
        block = table[low : ends[last - 1]]
        sums = np.add.reduceat(np.nan_to_num(block), starts[first:last] - low, axis=0, dtype=np.float64)
        factors, growths = _factors(sums, age, column)
        for place in np.flatnonzero(growths[0] > 1):
            block[starts[first + place] - low : ends[first + place] - low] *= factors[place].astype(table.dtype)
            number = int(topics[starts[first + place]])
            growth_of[number] = TopicGrowth(float(growths[0][place]), int(growths[1][place]))
        first = last
    return growth_of


def _factors(sums: Array, age: Array, column: dict[int, int]) -> tuple[Array, tuple[Array, Array]]:
    """Return by topic and hour what to multiply by, and the greatest growth of each topic with its weeks."""
    factors = np.ones((len(sums), len(age)))
    best, weeks = np.ones(len(sums)), np.zeros(len(sums), np.int64)
    for week in range(1, WEEKS):
        median, low = _ratios(sums, column, 0, week)
        grown = np.where(low >= _LEAST_GROWTH, np.minimum(median, _MOST_GROWTH), 1.0)
        factors[:, (age >= week * WEEK_HOURS) & (age < (week + 1) * WEEK_HOURS)] = grown[:, None]
        better = grown > best
        best, weeks = np.where(better, grown, best), np.where(better, week, weeks)
        if week == 1:
            before = np.ones(len(sums), bool)  # it grew after this day, and after all older ones of that week
            for day in reversed(range(1, _WEEK_DAYS)):
                median, low = _ratios(sums, column, day, 1)
                risen = np.maximum(median, 1.0)
                left = np.where(grown / risen >= _LEAST_GROWTH, grown / risen, 1.0)
                factors[:, age // DAY_HOURS == day] = left[:, None]
                before &= low >= _LEAST_GROWTH
                older = np.where(before & (grown == 1), np.minimum(median, _MOST_GROWTH), grown)
                factors[:, age // DAY_HOURS == day + _WEEK_DAYS] = older[:, None]
                better = older > best
                best, weeks = np.where(better, older, best), np.where(better, week, weeks)
    return factors, (best, weeks)


def _ratios(sums: Array, column: dict[int, int], day: int, weeks: int) -> tuple[Array, Array]:
    """Return median and lower quartile of a day's hours over those weeks before; 1 where too few compare."""
    ages = range(day * DAY_HOURS, (day + 1) * DAY_HOURS)
    pairs = [
        (column[age], column[age + weeks * WEEK_HOURS])
        for age in ages
        if age in column and age + weeks * WEEK_HOURS in column
    ]
    if len(pairs) < _LEAST_PAIRS:
        return np.ones(len(sums)), np.ones(len(sums))
    now, then = (sums[:, list(places)] for places in zip(*pairs, strict=True))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = np.sort(np.where((now == 0) & (then == 0), 1.0, now / then), axis=1)
    count = len(pairs)
    return ratios[:, count // 2], ratios[:, int((1 - _AGREEING) * count)]


def _means(values: Array, missing: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        means: Array = np.where(missing, 0, values).sum(axis=1) / (~missing).sum(axis=1)
        return means
