"""A running assignment: kept, unless a change is worth the restart of all tasks that it costs.

A connector restarts all its tasks for any change of its config, so rounds are counted and not partitions: a round moves
as many as it needs, and moves few all the same. By what is measured it is decided whether to change; a guess of a rate
only says where a new partition goes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from mm2mgr.assignment import Assignment
from mm2mgr.balance.fresh import BalancePlan, Choice, FlowToPack, PartitionMove, percent
from mm2mgr.balance.packing import ROUNDING, Packing
from mm2mgr.balance.rates import MEASURED
from mm2mgr.balance.rules import BalanceHistory, LoadLook
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import few, number_of

_LEVEL = 1.01
"""A change stops to move a hundredth above the bound: the moves for the last hundredth are worth less than they
cost."""
_WORTH_ALL_MOVES = 0.97
"""What a fresh packing must be of the running one with exchanges, to be taken instead."""
_LEAST_BOUND = 1e-9


class RunningTasks:
    """A flow with the assignment that runs, and what would change it."""

    def __init__(self, flow: FlowToPack, current: Assignment, history: BalanceHistory) -> None:
        self.flow, self.rules, self.current, self.history = flow, flow.rules, current, history
        self.tasks = len(current.tasks)
        self.places = places = {partition: place for place, partition in enumerate(flow.weights.partitions)}
        self.task_of = {places[name]: task for name, task in current.task_of.items() if name in places}
        self.pinned = frozenset(places[name] for name in self.rules.pinned if places.get(name) in self.task_of)
        self.guesses = [place for place, rate in enumerate(flow.rates) if rate.source not in MEASURED]
        self.measured = flow.weights.leave_out(self.guesses) if self.guesses else flow.weights
        self.running = self._keep(self.tasks)
        self.look = self._look()

    def plan(self) -> BalancePlan:
        """Return the plan: what bounds ask for at once, else nothing without measurements, else what is worth it."""
        if reasons := self._bounds_reasons():
            packing = self._within_bounds()
            if self._changes(packing):
                return self._change(packing, reasons)
            return self._stay(f"{' '.join(reasons)} No other assignment is possible: unchanged.")
        if reason := self._blind_reason():
            return replace(self._stay(reason), capped=False)  # by guesses it is not known
        looks = self._last_looks()
        if self._is_strained(self.look):
            return self._relieve(looks)
        if self.history.is_off_peak and all(map(self._may_shrink, looks)):
            return self._shrink()
        return self._stay(f"{self._load_text()}: unchanged.")

    def _look(self) -> LoadLook:
        weights = self.measured
        alone, bound = weights.least_load_beside_hot(self.tasks)
        hot = set(weights.hot[:alone])
        rest = max(sum(w for place, w in enumerate(shares) if place not in hot) for shares in weights.dimensions)
        least = weights.least_tasks(self.flow.most_partitions, self.rules.hysteresis)
        mean = rest / max(1, self.tasks - alone)
        busiest = self._busiest(self.tasks, self.task_of)
        return LoadLook(self.history.now_seconds, self.tasks, busiest, mean, bound, least, len(self.guesses))

    def _busiest(self, tasks: int, task_of: Mapping[int, int]) -> float:
        """Return the measured load of the busiest task, without those that are busy with one hot partition."""
        return max((share for share, is_hot in self._measured_shares(tasks, task_of) if not is_hot), default=0.0)

    def _measured_shares(self, tasks: int, task_of: Mapping[int, int]) -> list[tuple[float, bool]]:
        """Return the measured load of each task, and whether it is busy with one hot partition."""
        packing = Packing(self.measured, tasks, self.flow.most_partitions)
        for place, task in sorted(task_of.items()):
            packing.put(place, task)
        shares = ((packing.share(task), packing.ceiling(task, 0.0)) for task in range(tasks))
        return [(share, 0 < share <= ceiling) for share, ceiling in shares]

    def _last_looks(self) -> list[LoadLook]:
        """Return as many looks as a change needs, this one last: those since the last round, at the same number of
        tasks."""
        begun = max(self.history.rounds_seconds, default=-math.inf)
        earlier = [look for look in self.history.looks if look.seconds > begun and look.tasks == self.tasks]
        even, count = LoadLook(0.0, self.tasks, 0.0, 0.0, 0.0, self.tasks), max(1, self.rules.looks)
        return [*[even] * count, *earlier, self.look][-count:]

    def _is_strained(self, look: LoadLook) -> bool:
        above_mean = look.busiest > self.rules.imbalance * max(look.bound, _LEAST_BOUND)
        return above_mean or look.busiest > 1 + ROUNDING

    def _may_shrink(self, look: LoadLook) -> bool:
        return max(look.least_tasks, self.rules.bounds.minimum) < self.tasks

    def _bounds_reasons(self) -> list[str]:
        """Say what the declared bounds, or Kafka, do not allow of the running assignment."""
        bounds, reasons = self.rules.bounds, []
        running = f"{number_of(self.tasks, 'task')} run{'s' if self.tasks == 1 else ''}"
        if bounds.limit is not None and self.tasks > max(1, bounds.limit):
            reasons.append(f"{running}; the limit is {bounds.limit}.")
        elif self.tasks < min(bounds.minimum, self.flow.most_tasks):
            reasons.append(f"{running}; the configured minimum is {bounds.minimum}.")
        fullest = max(map(len, self.running.members))
        room = max(self.flow.most_partitions, math.ceil(len(self.flow.rates) / self.flow.most_tasks))
        if fullest > room:
            reasons.append(f"A task has {fullest} partitions; {self.flow.most_partitions} are allowed.")
        counts = Counter(name for held in self.current.tasks for name in held if name in self.places)
        if twice := [str(name) for name, count in counts.items() if count > 1]:
            reasons.append(f"More than one task has {few(sorted(twice))}, so that records arrive twice.")
        return reasons

    def _changes(self, packing: Packing) -> bool:
        """Tell whether a packing gives tasks other partitions than they have now; tasks without any do not count."""
        now = ({self.places[name] for name in held if name in self.places} for held in self.current.tasks)
        return [*filter(None, packing.members)] != [*filter(None, now)]

    def _within_bounds(self) -> Packing:
        bounds, most = self.rules.bounds, self.flow.most_tasks
        by_partitions = math.ceil(len(self.flow.rates) / self.flow.most_partitions)
        most = max(1, bounds.limit) if bounds.limit is not None else max(most, self.tasks)
        least = min(bounds.minimum, self.flow.most_tasks)
        tasks = min(most, max(self.tasks, by_partitions, least))
        packing = self._rebalance(tasks)
        before = self._busiest(tasks, self._task_of(packing))
        if before > 1 + ROUNDING and tasks < self.flow.most_tasks and self._blind_reason() is None:
            more = self._more_tasks(tasks)  # in this restart, and not in another one
            if self._busiest(len(more.members), self._task_of(more)) <= before * (1 - self.rules.least_gain):
                packing = more
        self._fill_tasks(packing, least)
        return packing

    def _fill_tasks(self, packing: Packing, least: int) -> None:
        """Give tasks without partitions, which Connect does not have, the lightest of busy ones: so many have any."""
        members, weights = packing.members, self.flow.weights.heaviest
        for task in [task for task, held in enumerate(members) if not held][: max(0, least - sum(map(bool, members)))]:
            givers = [giver for giver, held in enumerate(members) if len(held) > 1 and held - packing.pinned]
            if not givers:
                return
            giver = max(givers, key=lambda giver: (packing.share(giver), len(members[giver]), -giver))
            place = min(members[giver] - packing.pinned, key=lambda place: (weights[place], place))
            packing.remove(place)
            packing.put(place, task)

    def _blind_reason(self) -> str | None:
        if not self.flow.rates:
            return "No matching topic exists: unchanged."
        if self.flow.coverage >= self.rules.least_coverage:
            return None
        partitions = number_of(len(self.flow.rates), "partition")
        count = round(self.flow.coverage * len(self.flow.rates))
        needed = f"{self.rules.least_coverage * 100:g} %"
        fresh = f"Only {count} of {partitions} {'has' if count == 1 else 'have'} a fresh rate"
        return f"{fresh}; a change needs {needed}: unchanged."

    def _wait_reason(self) -> str | None:
        return self.rules.wait_reason(self.history.rounds_seconds, self.history.now_seconds)

    def _relieve(self, looks: list[LoadLook]) -> BalancePlan:
        text = self._load_text()
        strained = sum(map(self._is_strained, looks))
        if strained < len(looks):
            return self._stay(f"{text}, in {strained} of the {len(looks)} looks that a change needs: unchanged.")
        if reason := self._wait_reason():
            return self._stay(f"{text}, but {reason}: unchanged.")
        if self.history.looks and (new := self.look.unmeasured - self.history.looks[-1].unmeasured) > 0:
            return self._stay(f"{text}, but {number_of(new, 'new partition')} without a rate yet: unchanged.")
        packing = self._more_tasks(self.tasks) if self.look.busiest > 1 + ROUNDING else self._rebalance(self.tasks)
        before, after = self.look.busiest, self._busiest(len(packing.members), self._task_of(packing))
        if after > before * (1 - self.rules.least_gain):
            more = "" if self.tasks < self.flow.most_tasks else ", nor are more tasks allowed"
            return self._stay(
                f"{text}, and no other assignment is better by {percent(self.rules.least_gain)}{more}: unchanged."
            )
        plan = self._change(packing, [f"{text}, in {number_of(len(looks), 'look')} in a row."])
        return replace(plan, capped=not self.flow.fits(packing))

    def _more_tasks(self, tasks: int) -> Packing:
        """Return the least number of tasks with room to grow, so that not every day adds one; else what just fits.

        Their number stays where moves are enough.
        """
        packing = self._rebalance(tasks)
        for share in (self.rules.hysteresis, 1.0):
            least = max(tasks, self.flow.weights.least_tasks(self.flow.most_partitions, share))
            if self.flow.fits(packing, share):
                return packing
            if least <= self.flow.most_tasks:
                more, capped = self.flow.first_that_fits(least, self._rebalance, share)
                if not capped:
                    return more
        return packing if tasks >= self.flow.most_tasks else self._rebalance(self.flow.most_tasks)

    def _shrink(self) -> BalancePlan:
        text = f"{self._load_text()}; one task less"
        if reason := self._wait_reason():
            return self._stay(f"{text} may do, but {reason}: unchanged.")
        if any(self.task_of[place] == self.tasks - 1 for place in self.pinned):
            return self._stay(f"{text} may do, but the last one has pinned partitions: unchanged.")
        packing = self._rebalance(self.tasks - 1)
        if not self.flow.fits(packing, self.rules.hysteresis):
            return self._stay(
                f"{text} would exceed {percent(self.rules.hysteresis)} of the usable capacity: unchanged."
            )
        return self._change(packing, [f"{text} is enough, and this is off-peak."])

    def _keep(self, tasks: int, room: int | None = None) -> Packing:
        """Return the running assignment on so many tasks; partitions without one go to the lightest.

        `room`: a task with more partitions keeps those that are pinned, then the heaviest.
        """
        packing = self.flow.without_partitions(tasks, _LEVEL)
        weights = self.flow.weights.heaviest
        for place in sorted(self.task_of, key=lambda place: (place not in self.pinned, -weights[place], place)):
            task = self.task_of[place]
            if task < tasks and (room is None or len(packing.members[task]) < room or place in self.pinned):
                packing.put(place, task)
        packing.pinned = self.pinned & {place for held in packing.members for place in held}
        packing.place(range(len(self.flow.rates)))
        return packing

    def _rebalance(self, tasks: int) -> Packing:
        """Return the running assignment with the exchanges that relieve its busiest tasks, or a fresh one if much
        better."""
        packing = self._keep(tasks, max(self.flow.most_partitions, math.ceil(len(self.flow.rates) / tasks)))
        packing.relieve(self.flow.steps(tasks))
        if packing.strain(packing.level) <= 1 / _WORTH_ALL_MOVES:
            return packing
        pinned = {place: self.task_of[place] for place in sorted(self.pinned) if self.task_of[place] < tasks}
        fresh = self.flow.pack(tasks, pinned)
        if fresh.strain(packing.level) > _WORTH_ALL_MOVES * packing.strain(packing.level):
            return packing
        return self._renumber(fresh, set(pinned.values()))

    def _renumber(self, packing: Packing, fixed: set[int]) -> Packing:
        """Give each task of a packing the number of the running one that shares most partitions with it."""
        tasks = len(packing.members)
        shared = Counter(
            (self.task_of[place], task)
            for task, held in enumerate(packing.members)
            for place in held
            if place in self.task_of and self.task_of[place] < tasks and task not in fixed
        )
        number_of_task = {task: task for task in fixed}
        taken = set(fixed)
        for (number, task), _ in sorted(shared.items(), key=lambda item: (-item[1], item[0])):
            if number not in taken and task not in number_of_task:
                number_of_task[task] = number
                taken.add(number)
        free = iter(sorted(set(range(tasks)) - taken))
        renumbered = self.flow.without_partitions(tasks, _LEVEL)
        for task, held in enumerate(packing.members):
            number = number_of_task[task] if task in number_of_task else next(free)
            for place in sorted(held):
                renumbered.put(place, number)
        return renumbered

    def _task_of(self, packing: Packing) -> dict[int, int]:
        """Return the tasks of the partitions that have one now, by a packing."""
        return {place: task for place in self.task_of if (task := packing.task_of[place]) is not None}

    def _load_text(self) -> str:
        look = self.look
        tasks = number_of(self.tasks, "task")
        is_hot = any(is_hot for _, is_hot in self._measured_shares(self.tasks, self.task_of))
        aside = ", those with a hot partition left out," if is_hot else ""
        text = f"The busiest of {tasks}{aside} has {percent(look.busiest)} of the usable capacity"
        return f"{text}, {look.busiest / look.mean:.2f} times the mean" if look.mean > 0 else text

    def _stay(self, reason: str) -> BalancePlan:
        plan = self.flow.result("keep", self.running, [reason, *self.flow.rate_reasons()])
        return replace(plan, look=self.look, capped=self.flow.least_tasks > self.flow.most_tasks)

    def _change(self, packing: Packing, reasons: list[str]) -> BalancePlan:
        tasks = len(packing.members)
        choice: Choice = "grow" if tasks > self.tasks else "shrink" if tasks < self.tasks else "rebalance"
        moves = self._moves(packing)
        count = (
            f"{len(moves)} of {number_of(len(self.flow.rates), 'partition')} {'moves' if len(moves) == 1 else 'move'}"
        )
        change = (
            f"from {self.tasks} to {number_of(tasks, 'task')}"
            if tasks != self.tasks
            else f"{number_of(tasks, 'task')} as before"
        )
        after = (
            f"{change}; the busiest gets {percent(self._busiest(tasks, self._task_of(packing)))} of the usable capacity"
        )
        plan = self.flow.result(choice, packing, [*reasons, f"{count}, {after}.", *self.flow.rate_reasons()])
        return replace(plan, moves=moves, look=self.look)

    def _moves(self, packing: Packing) -> tuple[PartitionMove, ...]:
        names: tuple[TopicPartition, ...] = self.flow.weights.partitions
        return tuple(
            PartitionMove(names[place], before, after)
            for place, before in sorted(self.task_of.items())
            if (after := packing.task_of[place]) is not None and after != before
        )
