"""Plans lanes: which topics of a flow get source connectors of their own, so that stock Connect's tasks are even.

Stock Connect assigns a connector's partitions in turn, so only whole topics can be placed. Three forms are tried, each
with the same number of tasks, and one connector is always among them, so that lanes are never worse than stock:
heavy topics alone and the light ones packed into lanes of one task; the heaviest alone beside all others; and topics
with alike partitions together.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from mm2mgr.balance.fresh import FlowToPack
from mm2mgr.balance.packing import ROUNDING
from mm2mgr.balance.ways import StockAssignments, Way

MOST_LANES = 32
"""As many connectors as a flow gets unless more are asked for: each costs two admin clients and its own restarts."""
_HALVINGS = 14
_TRIED_TASKS = 1.6
"""A lane is tried with up to so many times the tasks that its load needs."""
_ALONE = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24)
_STRATA = (1, 2, 3, 4, 6, 8, 12)

_EACH_FORM = 2_000
"""Of a flow with more partitions only some forms are tried, which takes seconds."""

_Group = tuple[int, ...]
"""Topics by their place in the flow's order, heaviest first."""
_Form = Callable[[float], "list[tuple[_Group, int]] | None"]
"""Returns lanes with their tasks, each of which has at most a load; None where that is not possible."""


@dataclass(frozen=True)
class PlannedLane:
    """The topics of a connector, its tasks, and the load of the busiest as a share of what is usable."""

    topics: tuple[str, ...]
    tasks: int
    busiest: float


@dataclass(frozen=True)
class LanePlan:
    """The connectors to have. `rest`: the flow's own, which takes new topics, too, and lists none; `lanes`: the others.

    `bound`: the least that is possible with as many tasks. `tasks_needed`: the least number of tasks of any form of
    lanes with which none is overloaded; None: with none up to `searched`.
    """

    rest: PlannedLane
    lanes: tuple[PlannedLane, ...]
    bound: float
    tasks_needed: int | None
    searched: int
    json_keys = "connectors rest lanes"

    @property
    def connectors(self) -> int:
        """The number of connectors."""
        return 1 + len(self.lanes)

    @property
    def way(self) -> Way:
        """Return the plan as one of the ways to assign partitions."""
        parts = (self.rest, *self.lanes)
        tasks, busiest = sum(lane.tasks for lane in parts), max(lane.busiest for lane in parts)
        return Way("lanes", tasks, busiest, self.bound, self.tasks_needed, self.searched, self.connectors)


def plan_lanes(flow: FlowToPack, tasks: int, most_lanes: int = MOST_LANES) -> LanePlan:
    """Plan at most so many connectors, with so many tasks together, for the partitions of a flow."""
    return _Planning(flow, max(1, tasks), max(1, most_lanes)).plan()


class _Planning:
    def __init__(self, flow: FlowToPack, tasks: int, most_lanes: int) -> None:
        self.flow, self.tasks, self.most_lanes = flow, tasks, most_lanes
        places = flow.places
        shares = [np.asarray(dimension) for dimension in flow.weights.dimensions]
        load = {name: max(float(share[group].sum()) for share in shares) for name, group in places.items()}
        self.names = sorted(places, key=lambda name: (-load[name], name))
        self.load = [load[name] for name in self.names]
        self.places = [places[name] for name in self.names]
        self.bound = flow.weights.least_load(tasks)
        self._stock: dict[_Group, StockAssignments] = {}
        self._of_group = cache(self._busiest)

    def plan(self) -> LanePlan:
        every: _Group = tuple(range(len(self.names)))
        best, busiest = [(every, self.tasks)], self.busiest(every, self.tasks) if every else 0.0
        most = max(self.flow.most_tasks, self.tasks)
        usable = max(1.0, max(self.flow.weights.heaviest, default=0.0)) + ROUNDING
        needed = [k for k in [self.tasks_for(every, usable)] if k is not None]
        for form in self.forms():
            lanes = self.least(form, busiest)
            if lanes is not None:
                reached = max(self.busiest(*lane) for lane in lanes)
                if reached < busiest - ROUNDING:
                    best, busiest = lanes, reached
            fitting = form(usable)
            if fitting is not None and len(fitting) <= self.most_lanes:
                needed.append(sum(count for _, count in fitting))
        planned = [
            PlannedLane(tuple(self.names[topic] for topic in sorted(group)), count, self.busiest(group, count))
            for group, count in best
        ]
        # The flow's own connector has what is many and light: new topics join it.
        rest = max(
            planned, key=lambda lane: (len(lane.topics), -lane.busiest), default=PlannedLane((), self.tasks, 0.0)
        )
        others = tuple(lane for lane in planned if lane is not rest)
        return LanePlan(rest, others, self.bound, min(needed, default=None), most)

    def least(self, form: _Form, most: float) -> list[tuple[_Group, int]] | None:
        """Return the lanes of a form with the least load that fits into the tasks; None where none is below `most`."""
        low, high, best = self.bound, most, None
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            lanes = form(middle + ROUNDING)
            if lanes is not None and len(lanes) <= self.most_lanes and sum(n for _, n in lanes) <= self.tasks:
                high, best = middle, lanes
            else:
                low = middle
        return best and self.with_spare_tasks(best)

    def with_spare_tasks(self, lanes: list[tuple[_Group, int]]) -> list[tuple[_Group, int]]:
        """Give tasks that are left to the busiest lane, where they help."""
        lanes = list(lanes)
        for _ in range(self.tasks - sum(count for _, count in lanes)):
            busiest = max(range(len(lanes)), key=lambda place: self.busiest(*lanes[place]))
            group, count = lanes[busiest]
            more = self.tasks_for(group, self.busiest(group, count) - ROUNDING)
            if more is None or more - count > self.tasks - sum(n for _, n in lanes):
                break
            lanes[busiest] = group, max(more, count)
        return lanes

    def forms(self) -> Iterator[_Form]:
        """Yield the forms: light topics packed; and the heaviest alone, the others in strata of alike partitions."""
        topics = range(len(self.names))
        if not topics:
            return
        yield self.pack_light
        alike = sorted(topics, key=lambda topic: -self.load[topic] / len(self.places[topic]))
        most = min(len(topics), self.most_lanes)
        step = 1 if len(self.flow.rates) <= _EACH_FORM else 3
        pairs = ((alone, strata) for alone in _ALONE[::step] for strata in _STRATA[::step])
        for alone, strata in ((a, s) for a, s in pairs if a + s <= most and a < len(topics)):
            others = self.strata([topic for topic in alike if topic >= alone], strata)
            groups: list[_Group] = [*((topic,) for topic in topics[:alone]), *others]
            yield partial(self.side_by_side, groups)

    def strata(self, alike: Sequence[int], count: int) -> list[_Group]:
        """Divide topics with alike partitions into groups of about the same load."""
        total, held = sum(self.load[topic] for topic in alike), 0.0
        groups: list[list[int]] = [[] for _ in range(count)]
        for topic in alike:
            groups[min(count - 1, int(count * held / total)) if total else 0].append(topic)
            held += self.load[topic]
        return [tuple(sorted(group)) for group in groups if group]

    def side_by_side(self, groups: Sequence[_Group], load: float) -> list[tuple[_Group, int]] | None:
        """Return these groups with as many tasks as each needs."""
        lanes = []
        for group in groups:
            count = self.tasks_for(group, load)
            if count is None:
                return None
            lanes.append((group, count))
        return lanes

    def pack_light(self, load: float) -> list[tuple[_Group, int]] | None:
        """Return heavy topics alone, and the light ones packed, best fit first, into lanes of one task."""
        lanes: list[tuple[_Group, int]] = []
        bins: list[list[int]] = []
        room: list[tuple[float, int]] = []
        for topic in range(len(self.names)):
            if self.load[topic] > load:
                count = self.tasks_for((topic,), load)
                if count is None:
                    return None
                lanes.append(((topic,), count))
                continue
            at = bisect_left(room, (self.load[topic], -1))
            if at < len(room):
                left, place = room.pop(at)
            else:
                left, place = load, len(bins)
                bins.append([])
            bins[place].append(topic)
            insort(room, (left - self.load[topic], place))
        return [*lanes, *((tuple(topics), 1) for topics in bins)]

    def tasks_for(self, group: _Group, load: float) -> int | None:
        """Return the least number of tasks with which none of a lane has more than a load."""
        total, partitions = sum(self.load[topic] for topic in group), sum(len(self.places[topic]) for topic in group)
        least = max(1, math.ceil(total / load - ROUNDING), math.ceil(partitions / self.flow.most_partitions))
        most = min(partitions, max(least + 2, math.ceil(_TRIED_TASKS * least)))
        return next((count for count in range(least, most + 1) if self.busiest(group, count) <= load), None)

    def busiest(self, group: _Group, tasks: int) -> float:
        return self._of_group(group, tasks)

    def _busiest(self, group: _Group, tasks: int) -> float:
        if group not in self._stock:
            names = {self.names[topic] for topic in group}
            self._stock[group] = StockAssignments(self.flow, self.flow.order_of(names.__contains__))
        return self._stock[group].busiest(tasks)
