"""Packs partitions onto tasks: longest processing time first (Graham 1969), then exchanges that relieve the busiest
task.

Loads are shares of what one task is planned to carry, in bytes and in records per second; the larger one counts. Bounds
say below which load no assignment can get, and below which number of tasks.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush, heappushpop, nlargest, nsmallest
from itertools import accumulate

from mm2mgr.partitions import TopicPartition

ROUNDING = 1e-9
RELIEF = 1.1
"""The task of a hot partition may have a tenth more than this partition, as in `sizing.load`."""
_LIGHT = 1e-3
"""The lightest partitions that together are this share of the load are spread by number: a load of nothing has no
lightest task."""
_CHOICES = 4  # the lightest tasks of which one without a partition of the same topic is chosen
_VECTOR_CHOICES = 8  # where bytes and records both count, the lightest task need not be the best one
_PARTNERS = 8  # the lightest tasks that the busiest one exchanges with
_EXCHANGED = 48  # the partitions of a large task that are tried
_NEAREST = 2
_COMPARED = 512  # with more tasks, the lightest ones of all are near enough
_SPLIT = 16  # two tasks with more partitions have pairs to exchange
_SPLIT_SCALE = 10_000  # loads that differ by less are one
_THRESHOLDS = 256
_FULLEST, _MIXED_PARTITIONS = 5, 2_000


@dataclass(frozen=True, eq=False)
class Weights:
    """Partitions, sorted, with their loads as shares of a task's usable capacity, one list per dimension."""

    partitions: tuple[TopicPartition, ...]
    dimensions: tuple[list[float], ...]

    @classmethod
    def of_shares(cls, partitions: Sequence[TopicPartition], volume: list[float], records: list[float]) -> Weights:
        """Leave out the dimension that is the smaller one for every partition: it decides nowhere."""
        if all(share <= other for share, other in zip(records, volume, strict=True)):
            return cls(tuple(partitions), (volume,))
        if all(share <= other for share, other in zip(volume, records, strict=True)):
            return cls(tuple(partitions), (records,))
        return cls(tuple(partitions), (volume, records))

    def leave_out(self, places: Collection[int]) -> Weights:
        """Return the weights with nothing for some of the partitions."""
        left_out = set(places)
        lists = ([0.0 if place in left_out else share for place, share in enumerate(d)] for d in self.dimensions)
        return Weights(self.partitions, tuple(lists))

    @cached_property
    def heaviest(self) -> list[float]:
        """The larger share of each partition."""
        first = self.dimensions[0]
        return first if len(self.dimensions) == 1 else [max(shares) for shares in zip(*self.dimensions, strict=True)]

    @cached_property
    def by_weight(self) -> list[int]:
        """Positions, heaviest first."""
        weights = self.heaviest
        return sorted(range(len(weights)), key=lambda place: (-weights[place], place))

    @cached_property
    def hot(self) -> list[int]:
        """Positions of partitions that no task is planned to carry, heaviest first."""
        weights = self.heaviest
        return [place for place in self.by_weight if weights[place] > 1 + ROUNDING]

    def least_load(self, tasks: int) -> float:
        """Return the load of the busiest task below which no assignment to so many tasks can get."""
        mixed, _ = self.mixed_task(tasks)
        return max(mixed, *(least_load_of(ordered, sums, tasks) for ordered, sums in self._descending(0)))

    def mixed_task(self, tasks: int) -> tuple[float, tuple[int, ...]]:
        """Return a load below which no busiest task gets since bytes and records both count, and the partitions that
        one task has there; 0 and none where that tells nothing.

        The task of a partition with many records has no room for the records of others, so it has few bytes: at most
        those of the partitions with the fewest records per byte. The other tasks carry the rest.
        """
        if len(self.dimensions) == 1 or tasks < 2 or len(self.partitions) > _MIXED_PARTITIONS:
            return 0.0, ()
        if tasks not in self._mixed_tasks:
            both = (self.dimensions, self.dimensions[::-1])
            self._mixed_tasks[tasks] = max(_mixed_task(volume, full, tasks) for volume, full in both)
        return self._mixed_tasks[tasks]

    @cached_property
    def _mixed_tasks(self) -> dict[int, tuple[float, tuple[int, ...]]]:
        return {}

    def least_load_beside_hot(self, tasks: int) -> tuple[int, float]:
        """Return how many of the hot partitions have a task of their own, and the bound of the others on the other
        tasks.

        A hot one has none where the others, on one task less, would be heavier than it is.
        """
        alone = min(len(self.hot), tasks if len(self.hot) == len(self.partitions) else tasks - 1)
        while True:
            others = tasks - alone
            bound = (
                max((least_load_of(*lists, others) for lists in self._descending(alone)), default=0.0)
                if others
                else 0.0
            )
            if not alone:
                return alone, max(bound, self.mixed_task(tasks)[0])
            if bound <= self.heaviest[self.hot[alone - 1]]:
                return alone, bound
            alone -= 1

    def least_tasks(self, most_partitions: int, share: float = 1.0) -> int:
        """Return a number of tasks below which some task is above `share` of the usable, or has too many partitions.

        Hot partitions count as one task each. The packing bound is L2 of Martello and Toth (1990).
        """
        hot = len(self.hot)
        by_load = max(packing_bound(ordered, share) for ordered, _ in self._descending(hot))
        return max(1, hot + max(by_load, math.ceil((len(self.partitions) - hot) / most_partitions)))

    def _descending(self, alone: int) -> list[tuple[list[float], list[float]]]:
        """Return, per dimension, the weights without the heaviest hot ones in descending order, and their sums from
        0."""
        if alone not in self._lists:
            left_out = set(self.hot[:alone])
            self._lists[alone] = [_with_sums(dimension, left_out) for dimension in self.dimensions]
        return self._lists[alone]

    @cached_property
    def _lists(self) -> dict[int, list[tuple[list[float], list[float]]]]:
        return {}


def least_load_of(ordered: Sequence[float], sums: Sequence[float], tasks: int) -> float:
    """Return the least load of the busiest task: the mean, the heaviest partition, p_m + p_(m+1), and so on.

    `ordered` descends, `sums[i]` is the sum of its first i. Of the first k·m + 1, some task has k + 1, which are at
    least the last k + 1 of these.
    """
    bound = sums[-1] / tasks
    for count in range((len(ordered) - 1) // tasks + 1 if ordered else 0):
        last = count * tasks
        bound = max(bound, sums[last + 1] - sums[last - count])
    return bound


def _mixed_task(volume: Sequence[float], full: Sequence[float], tasks: int) -> tuple[float, tuple[int, ...]]:
    """Return the bound and the task of `Weights.mixed_task`, where a partition fills its task in dimension `full`."""
    light = sorted(
        range(len(full)), key=lambda place: (full[place] / volume[place] if volume[place] else math.inf, place)
    )
    volumes, fulls = ([0.0, *accumulate(shares[place] for place in light)] for shares in (volume, full))
    total, best = volumes[-1], (0.0, -1)

    def rest(place: int, load: float) -> float:
        """Return what each other task has where none has more, with the most that fits beside a partition."""
        room = load - full[place]
        if room < 0:
            return math.inf
        last = min(bisect_left(fulls, room), len(light))
        share = (room - fulls[last - 1]) / (fulls[last] - fulls[last - 1]) if last and fulls[last] > room else 1.0
        beside = volumes[last - 1] + share * (volumes[last] - volumes[last - 1]) if last else 0.0
        return (total - min(load, volume[place] + beside)) / (tasks - 1)

    for place in nlargest(_FULLEST, range(len(full)), full.__getitem__):
        low, high = 0.0, max(total, full[place])
        while high - low > ROUNDING * high:
            load = (low + high) / 2
            low, high = (load, high) if rest(place, load) > load else (low, load)
        best = max(best, (low, place))
    bound, first = best
    if first < 0:
        return 0.0, ()
    held, sums = [first], [volume[first], full[first]]
    for place in light:
        if place != first and max(sums[0] + volume[place], sums[1] + full[place]) <= bound:
            held.append(place)
            sums = [sums[0] + volume[place], sums[1] + full[place]]
    return bound, tuple(held)


def packing_bound(ordered: Sequence[float], capacity: float = 1.0) -> int:
    """Return the least number of tasks of so much capacity for weights in descending order, none of which is above 1.

    For each threshold a ≤ 1/2: those above 1 − a share a task with none that has a or more; those between 1/2 and 1 − a
    have one each, and what these leave free takes the others down to a.
    """
    shares = [min(1.0, weight / capacity) for weight in ordered]
    ascending = shares[::-1]
    sums = [0.0, *accumulate(ascending)]
    above_half = bisect_left(ascending, 0.5 + ROUNDING)
    small = [weight for weight in ascending[:above_half] if weight >= 1 / _THRESHOLDS]
    step = max(1, len(small) // _THRESHOLDS)
    best = math.ceil(sums[-1] - ROUNDING)
    for threshold in (0.0, *small[::step]):
        first = bisect_left(ascending, threshold)
        large = bisect_left(ascending, 1 - threshold + ROUNDING)
        middle = large - above_half
        free = middle - (sums[large] - sums[above_half])
        rest = sums[above_half] - sums[first] - free
        best = max(best, len(shares) - above_half + max(0, math.ceil(rest - ROUNDING)))
    return best


def _with_sums(dimension: Sequence[float], left_out: set[int]) -> tuple[list[float], list[float]]:
    ordered = sorted((w for place, w in enumerate(dimension) if place not in left_out), reverse=True)
    return ordered, [0.0, *accumulate(ordered)]


@dataclass(frozen=True)
class _Exchange:
    """Partitions that the busiest task gives, and those it gets for them.

    `score`: the strain of the worse task above what needs no relief, how many partitions move, and that strain itself.
    """

    score: tuple[float, int, float]
    giver: int
    taker: int
    leaving: tuple[int, ...]
    arriving: tuple[int, ...]


class Packing:
    """Tasks that get partitions, one after the other; positions are those of the weights.

    `level`: the load up to which a task needs no relief. One with a hot partition needs none up to `relief` times this.
    `pinned` never leave their task.
    """

    def __init__(
        self, weights: Weights, tasks: int, most_partitions: int, level: float = 1.0, relief: float = RELIEF
    ) -> None:
        self.weights = weights
        self.most_partitions = most_partitions
        self.level, self._relief = level, relief
        self.members: list[set[int]] = [set() for _ in range(tasks)]
        self.task_of: list[int | None] = [None] * len(weights.partitions)
        self.pinned: frozenset[int] = frozenset()
        self._loads = [[0.0] * tasks for _ in weights.dimensions]
        self._hot = set(weights.hot)
        self._topics: list[dict[str, int]] = [{} for _ in range(tasks)]
        self._high: list[tuple[float, int]] = []
        self._low: list[tuple[float, int]] = []

    def share(self, task: int) -> float:
        """Return the load of a task as a share of what is usable."""
        return max(loads[task] for loads in self._loads)

    @property
    def busiest(self) -> float:
        """The load of the busiest task."""
        return max((self.share(task) for task in range(len(self.members))), default=0.0)

    def ceiling(self, task: int, level: float) -> float:
        """Return the load up to which a task needs no relief."""
        return self._ceiling(self._hot & self.members[task] if self._hot else (), level)

    def strain(self, level: float) -> float:
        """Return how many times too much the worst task has, at a level; at most 1 needs no relief."""
        return max((self.share(t) / self.ceiling(t, level) for t in range(len(self.members))), default=0.0)

    def put(self, place: int, task: int) -> None:
        """Give a partition to a task that does not have it."""
        for dimension, loads in zip(self.weights.dimensions, self._loads, strict=True):
            loads[task] += dimension[place]
        self.members[task].add(place)
        self.task_of[place] = task
        topic = self.weights.partitions[place].topic
        self._topics[task][topic] = self._topics[task].get(topic, 0) + 1

    def remove(self, place: int) -> None:
        """Take a partition from its task."""
        task = self.task_of[place]
        if task is None:
            return
        for dimension, loads in zip(self.weights.dimensions, self._loads, strict=True):
            loads[task] -= dimension[place]
        self.members[task].discard(place)
        self.task_of[place] = None
        self._topics[task][self.weights.partitions[place].topic] -= 1

    def place(self, places: Iterable[int], by_sum: bool = False) -> None:
        """Give each partition that has none a task, the heaviest first.

        It is the lightest task with room, or one of the next ones where these stay within the level without it and have
        fewer partitions of the topic. The lightest partitions are spread by number.
        """
        dimensions = self.weights.dimensions
        weights = [sum(shares) for shares in zip(*dimensions, strict=True)] if by_sum else self.weights.heaviest
        rest = [place for place in places if self.task_of[place] is None]
        rest.sort(key=lambda place: (-weights[place], place))
        light, total = len(rest), sum(weights) * _LIGHT
        while light and total >= weights[rest[light - 1]]:
            light -= 1
            total -= weights[rest[light]]
        self._place_by_load(rest[:light])
        self._place_by_load(self._place_by_number(rest[light:]))

    def relieve(self, steps: int) -> None:
        """Exchange partitions of the busiest task, while it is above the level and an exchange helps."""
        tasks = range(len(self.members))
        self._high = [(-self._strain_of(task), task) for task in tasks]
        self._low = [(self.share(task), task) for task in tasks]
        heapify(self._high)
        heapify(self._low)
        for _ in range(steps):
            busiest = self._worst()
            if busiest is None or (exchange := self._best_exchange(busiest)) is None:
                return
            self._apply(exchange)

    def _place_by_load(self, places: Sequence[int]) -> None:
        heap = [
            (self.share(task), len(held), task)
            for task, held in enumerate(self.members)
            if len(held) < self.most_partitions
        ]
        heapify(heap)
        # Of one dimension both are the same; the loop is written out, as it takes most of the time of a large plan.
        first_weights, second_weights = self.weights.dimensions[0], self.weights.dimensions[-1]
        first_loads, second_loads = self._loads[0], self._loads[-1]
        choices, level, topics = _CHOICES if len(self._loads) == 1 else _VECTOR_CHOICES, self.level, self._topics
        lightest = [heappop(heap) for _ in range(min(choices, len(heap)))]  # the choices, in order; `heap` has the rest
        for place in places:
            best: tuple[tuple[bool, int, float, int], int] | None = None
            topic, weight, other = self.weights.partitions[place].topic, first_weights[place], second_weights[place]
            for position, (_, count, task) in enumerate(lightest):
                share, second = first_loads[task] + weight, second_loads[task] + other
                if second > share:  # noqa: PLR1730  a call costs more than the rest of the line
                    share = second
                is_above = share > level
                key = is_above, 0 if is_above else topics[task].get(topic, 0), share, count
                if best is None or key < best[0]:
                    best = key, position
                if choices == _CHOICES and (is_above or not key[1]):
                    break  # each further one is heavier, and this one is above the level or has nothing of the topic
            if best is None:  # as many tasks as the bounds allow are full: the bound on partitions gives way
                self.put(place, min(range(len(self.members)), key=lambda t: (len(self.members[t]), t)))
                continue
            _, count, task = lightest.pop(best[1])
            self.put(place, task)
            if count + 1 < self.most_partitions:
                insort(lightest, heappushpop(heap, (self.share(task), count + 1, task)))
            elif heap:
                insort(lightest, heappop(heap))

    def _place_by_number(self, places: Sequence[int]) -> list[int]:
        """Give light partitions to the tasks with the fewest, and return those that every task is too busy for."""
        heap = [
            (len(held), self.share(task), task)
            for task, held in enumerate(self.members)
            if len(held) < self.most_partitions and not (self._hot and self._hot & held)
        ]
        heapify(heap)
        rest: list[int] = []
        for place in places:
            looked: list[tuple[int, float, int]] = []
            best: tuple[int, int] | None = None
            topic = self.weights.partitions[place].topic
            while heap and len(looked) < _CHOICES:
                entry = heappop(heap)
                if self.share(entry[2]) + self.weights.heaviest[place] > self.level:
                    continue  # it does not get lighter
                if looked and entry[0] > looked[0][0] + 1:
                    heappush(heap, entry)
                    break
                looked.append(entry)
                held = self._topics[entry[2]].get(topic, 0)
                if best is None or held < best[0]:
                    best = held, entry[2]
                if not held:
                    break
            if best is None:
                rest.append(place)
                continue
            self.put(place, best[1])
            for entry in looked:
                if entry[2] != best[1]:
                    heappush(heap, entry)
            if len(self.members[best[1]]) < self.most_partitions:
                heappush(heap, (len(self.members[best[1]]), self.share(best[1]), best[1]))
        return rest

    def _ceiling(self, hot: Iterable[int], level: float) -> float:
        weights = self.weights.heaviest
        return max(level, self._relief * max((weights[place] for place in hot), default=0.0))

    def _strain_of(self, task: int) -> float:
        return self.share(task) / self.ceiling(task, self.level)

    def _worst(self) -> int | None:
        """Return the task with the highest strain; None where none is above its ceiling."""
        while self._high:
            strain, task = self._high[0]
            if -strain == self._strain_of(task):
                return task if -strain > 1 + ROUNDING else None
            heappop(self._high)
        return None

    def _lightest(self, besides: int) -> list[int]:
        """Return some of the tasks with the least load; with two dimensions, with the least of the one that counts."""
        if len(self._loads) > 1 and len(self.members) <= _COMPARED:
            loads = max(self._loads, key=lambda loads: loads[besides])
            return nsmallest(_PARTNERS, range(len(loads)), key=lambda task: (loads[task], self.share(task)))
        entries: list[tuple[float, int]] = []
        tasks: list[int] = []
        while self._low and len(tasks) < _PARTNERS:
            entry = heappop(self._low)
            if entry[0] == self.share(entry[1]) and entry[1] not in tasks:
                entries.append(entry)
                if entry[1] != besides:
                    tasks.append(entry[1])
        for entry in entries:
            heappush(self._low, entry)
        return tasks

    def _best_exchange(self, giver: int) -> _Exchange | None:
        """Return what lowers the worse strain of the busiest task and another one most, with few moves."""
        before = self._strain_of(giver) * (1 - ROUNDING)
        best: _Exchange | None = None
        for taker in self._lightest(giver):
            for leaving, arriving in self._pairs(giver, taker):
                strain = self._strain_after(giver, taker, leaving, arriving)
                score = max(strain, 1.0), len(leaving) + len(arriving), strain
                if strain < before and (best is None or score < best.score):
                    best = _Exchange(score, giver, taker, leaving, arriving)
            if best is not None and best.score[0] <= 1 and best.score[1] == 1:
                return best
        if best is None:
            splits = (self._best_split(giver, taker) for taker in self._lightest(giver))
            best = min((split for split in splits if split), key=lambda split: split.score, default=None)
        return best

    def _pairs(self, giver: int, taker: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield what may go from a task to another that has less, and what may come back for it."""
        loads = max(self._loads, key=lambda loads: loads[giver])
        dimension = self.weights.dimensions[self._loads.index(loads)]
        gap = loads[giver] - loads[taker]
        if gap <= 0:
            return
        has_room = len(self.members[taker]) < self.most_partitions
        takers = sorted((dimension[place], place) for place in self.members[taker] - self.pinned)
        for weight, place in self._worth_giving(giver, dimension, gap):
            if has_room and weight < gap:
                yield (place,), ()
            near = bisect_left(takers, (weight - gap / 2, -1))
            for _, other in takers[max(0, near - _NEAREST) : near + _NEAREST]:
                yield (place,), (other,)

    def _best_split(self, giver: int, taker: int) -> _Exchange | None:
        """Divide what two tasks have together anew, as evenly as their few partitions allow."""
        mine, others = self.members[giver] - self.pinned, self.members[taker] - self.pinned
        if taker == giver or len(mine) + len(others) > _SPLIT or self._hot & (mine | others):
            return None
        loads = max(self._loads, key=lambda loads: loads[giver])
        dimension = self.weights.dimensions[self._loads.index(loads)]
        half = (loads[giver] + loads[taker]) / 2
        fixed = loads[giver] - sum(dimension[place] for place in mine)
        sums: dict[int, tuple[float, tuple[int, ...]]] = {0: (fixed, ())}
        for place in sorted(mine | others, key=lambda place: (-dimension[place], place not in mine, place)):
            for load, places in tuple(sums.values()):
                if load + dimension[place] <= half * (1 + ROUNDING):
                    sums.setdefault(
                        round((load + dimension[place]) * _SPLIT_SCALE), (load + dimension[place], (*places, place))
                    )
        _, staying = max(sums.values())
        leaving, arriving = tuple(sorted(mine.difference(staying))), tuple(sorted(others.intersection(staying)))
        strain = self._strain_after(giver, taker, leaving, arriving)
        room = max(
            len(self.members[giver]) + len(arriving) - len(leaving),
            len(self.members[taker]) + len(leaving) - len(arriving),
        )
        if strain >= self._strain_of(giver) * (1 - ROUNDING) or room > self.most_partitions:
            return None
        return _Exchange((max(strain, 1.0), len(leaving) + len(arriving), strain), giver, taker, leaving, arriving)

    def _worth_giving(self, giver: int, dimension: Sequence[float], gap: float) -> list[tuple[float, int]]:
        mine = sorted((dimension[place], place) for place in self.members[giver] - self.pinned if dimension[place] > 0)
        if len(mine) <= _EXCHANGED:
            return mine
        near = bisect_left(mine, (gap / 2, -1))
        first = max(0, min(near - _EXCHANGED // 2, len(mine) - _EXCHANGED))
        return mine[first : first + _EXCHANGED]

    def _strain_after(self, giver: int, taker: int, leaving: Sequence[int], arriving: Sequence[int]) -> float:
        giver_share = taker_share = 0.0
        for dimension, loads in zip(self.weights.dimensions, self._loads, strict=True):
            moved = sum(dimension[place] for place in leaving) - sum(dimension[place] for place in arriving)
            giver_share = max(giver_share, loads[giver] - moved)
            taker_share = max(taker_share, loads[taker] + moved)
        if not self._hot:
            return max(giver_share, taker_share) / self.level
        giver_hot = self._hot & self.members[giver].difference(leaving).union(arriving)
        taker_hot = self._hot & self.members[taker].difference(arriving).union(leaving)
        return max(
            giver_share / self._ceiling(giver_hot, self.level), taker_share / self._ceiling(taker_hot, self.level)
        )

    def _apply(self, exchange: _Exchange) -> None:
        for places, task in ((exchange.leaving, exchange.taker), (exchange.arriving, exchange.giver)):
            for place in places:
                self.remove(place)
                self.put(place, task)
        for task in (exchange.giver, exchange.taker):
            heappush(self._high, (-self._strain_of(task), task))
            heappush(self._low, (self.share(task), task))
