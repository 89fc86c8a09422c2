"""What was predicted for a traffic set held against what its connector did: every bar as one property.

In go the sizing and the measured rates, out come booleans and errors. The truth is worked out from measured rates by brute
force over every number of tasks, without mm2mgr's own reckoning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mm2mgr.assignment import round_robin
from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.tasks import Capacity, Prediction, Rules, Sizing
from tests.sizing.sizes import size_flow

RATES_WITHIN = 0.10
FORESEEN_SHARE = 0.95
# A task with next to nothing is held to this share of what is usable: a record more or less is most of its rate.
_NOTHING = 0.02


@dataclass(frozen=True)
class Outcome:
    """One set: what was predicted before its connector existed, and what was seen while it ran.

    Hands are the partitions by task, rates bytes per second. `measured` is what arrived at the target; `in_log` what the
    target's logs grew by, overhead of batches included.
    """

    name: str
    skew: str
    sizing: Sizing
    predicted_hands: Sequence[Sequence[TopicPartition]]
    assigned_hands: Sequence[Sequence[TopicPartition]]
    replayed: bool
    planned: Mapping[TopicPartition, float]
    mean: Mapping[TopicPartition, float]
    measured: Mapping[TopicPartition, float]
    in_log: Mapping[TopicPartition, float]

    @property
    def usable(self) -> float:
        return float(self.sizing.usable_bytes_per_second)

    @property
    def foreseen(self) -> bool:
        """Tell whether Connect assigned as was predicted before the connector existed."""
        return list(map(list, self.predicted_hands)) == list(map(list, self.assigned_hands))

    @property
    def order(self) -> list[TopicPartition]:
        """Return the partitions as Connect assigned them."""
        tasks = len(self.assigned_hands)
        count = sum(map(len, self.assigned_hands))
        return [self.assigned_hands[position % tasks][position // tasks] for position in range(count)]

    def errors(self, rates: Mapping[TopicPartition, float]) -> list[float]:
        """Return by how much each task's predicted rate differs from the measured one, as a share of the latter."""
        return [
            (_sum(rates, hand) - (truth := _sum(self.measured, hand))) / max(truth, _NOTHING * self.usable)
            for hand in self.assigned_hands
        ]

    @property
    def task_error(self) -> float:
        """Return the error of the task that was predicted worst, by the rates that sizing plans with."""
        return max(self.errors(self.planned), key=abs)

    @property
    def measured_busiest(self) -> float:
        return max(_sum(self.measured, hand) for hand in self.assigned_hands)

    @property
    def busiest_error(self) -> float:
        return self.sizing.busiest_bytes_per_second / self.measured_busiest - 1

    @property
    def truly_hot(self) -> set[TopicPartition]:
        return {one for one in self.order if self.measured[one] > self.usable}

    @property
    def said_hot(self) -> set[TopicPartition]:
        return {TopicPartition(hot.topic, hot.partition) for hot in self.sizing.hot_partitions}

    @property
    def hot_is_exact(self) -> bool:
        return self.said_hot == self.truly_hot

    @property
    def smallest(self) -> int | None:
        """Return the smallest number of tasks that does by the measured rates; None where no number does."""
        return next((tasks for tasks in range(1, len(self.order) + 1) if self._does(tasks)), None)

    @property
    def overloaded(self) -> bool:
        """Tell whether the chosen number leaves a task above what is usable although some number does not."""
        return self.smallest is not None and not self._does(self.sizing.tasks)

    @property
    def too_many(self) -> bool:
        return self.smallest is not None and self.sizing.tasks > self.smallest + 1

    @property
    def load(self) -> float:
        """Return what the busiest task carries beside a hot partition, as a share of what is usable."""
        hot = self.truly_hot
        rests = (_sum(self.measured, [one for one in hand if one not in hot]) for hand in self.assigned_hands)
        return max(rests) / self.usable

    def at(self, usable: float) -> Outcome:
        """Return what would have come of it had a task been said to carry this much."""
        prediction = Prediction(tuple(self.order), "live")
        sizing = size_flow(self.name, prediction, self.planned, Rules(Capacity(usable, 1.0)))
        hands = round_robin(self.order, sizing.tasks).tasks
        return replace(self, sizing=sizing, predicted_hands=hands, assigned_hands=hands)

    def _does(self, tasks: int) -> bool:
        """Tell whether no task would have more than is usable.

        A partition that has more by itself is set aside, as no number of tasks makes it less; but two of those must not
        share a task, nor have more than a tenth of themselves beside them, and the other tasks must have room for all the rest.
        """
        hot = self.truly_hot
        hands = [self.order[task::tasks] for task in range(tasks)]
        rests = [_sum(self.measured, [one for one in hand if one not in hot]) for hand in hands]
        alone = all(len(hot.intersection(hand)) <= 1 for hand in hands)
        beside = all(
            rest <= 0.1 * max(self.measured[one] for one in hot.intersection(hand))
            for hand, rest in zip(hands, rests, strict=True)
            if hot.intersection(hand)
        )
        return alone and beside and max(rests) <= self.usable and sum(rests) <= (tasks - len(hot)) * self.usable

    def judged_by(self, rates: Mapping[TopicPartition, float]) -> Outcome:
        """Return what came of it had these rates been measured."""
        return replace(self, measured={one: rates[one] for one in self.order})

    def faults(self, within: float = RATES_WITHIN) -> list[str]:
        """Say which bars are missed, but for the foreseen assignment, whose bar is a share of all sets; rates count `within` that share."""
        bars = {
            "the assignment read back does not replay": not self.replayed,
            f"busiest task {self.busiest_error:+.1%}": abs(self.busiest_error) > within,
            f"a task {self.task_error:+.1%}": abs(self.task_error) > within,
            f"a task is overloaded, {self.smallest} tasks would do": self.overloaded,
            f"{self.smallest} tasks would do": self.too_many,
            f"hot partitions are {sorted(map(str, self.truly_hot))}": not self.hot_is_exact,
        }
        return [said for said, missed in bars.items() if missed]


def _sum(rates: Mapping[TopicPartition, float], hand: Sequence[TopicPartition]) -> float:
    return sum(rates.get(one, 0.0) for one in hand)
