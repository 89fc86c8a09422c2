"""An assignment: the partitions of each task of a source connector, whatever dealt them.

It is read back from the configs of running tasks. Stock MirrorMaker deals an order of partitions in turn
(`round_robin`); a connector of another class may deal them as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest

from mm2mgr.partitions import TopicPartition

ASSIGNED_KEY = "task.assigned.partitions"
_MOST_TASKS = 100_000  # a larger number of a task is none that Connect gave


def parse_assigned(text: str) -> tuple[TopicPartition, ...]:
    """Read a task's `task.assigned.partitions`: `topic-partition` with commas; what has no number gets -1.

    Topics may hold dashes, never commas.
    """
    parts = (part.strip().rpartition("-") for part in text.split(",") if part.strip())
    return tuple(
        TopicPartition(topic, int(number) if topic and number.isdecimal() and len(number) < 11 else -1)
        for topic, _, number in parts
    )


@dataclass(frozen=True)
class Defects:
    """What is wrong with an assignment, beside the partitions that there are.

    `idle`: tasks without a partition; `twice`: the tasks of a partition that more than one has, so that its records
    arrive twice; `unassigned`: partitions of the flow in no task; `gone`: those of tasks that Kafka no longer has;
    `held`: those in no task on purpose, no defect.
    """

    idle: tuple[int, ...] = ()
    twice: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    unassigned: tuple[TopicPartition, ...] = ()
    gone: tuple[TopicPartition, ...] = ()
    held: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class Assignment:
    """The partitions of each task: `tasks[i]` are those of task i, in the order of its config."""

    tasks: tuple[tuple[TopicPartition, ...], ...] = ()

    @cached_property
    def order(self) -> tuple[TopicPartition, ...]:
        """Every partition once: the first ones of all tasks, their second ones, …; `round_robin` deals it so again."""
        turns = (partition for turn in zip_longest(*self.tasks) for partition in turn if partition)
        return tuple(dict.fromkeys(turns))

    @cached_property
    def task_of(self) -> Mapping[TopicPartition, int]:
        """The task of each partition; the first one where more have it."""
        tasks: dict[TopicPartition, int] = {}
        for task, partitions in enumerate(self.tasks):
            for partition in partitions:
                tasks.setdefault(partition, task)
        return tasks

    @cached_property
    def topics(self) -> frozenset[str]:
        """The topics of which tasks have partitions."""
        return frozenset(partition.topic for partition in self.task_of)

    @property
    def is_round_robin(self) -> bool:
        """Whether dealing `order` in turn gives just these tasks; a partition in two tasks is never dealt so."""
        return self == round_robin(self.order, len(self.tasks))

    def defects(
        self,
        carried: Iterable[TopicPartition],
        topics: Mapping[str, int],
        is_held: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> Defects:
        """Return what is wrong; `carried`: what the flow takes, `topics`: how many partitions each topic has in Kafka,
        `is_held`: whether a partition is to be in no task.

        Without tasks nothing is: then nothing was assigned yet.
        """
        tasks_of: dict[TopicPartition, list[int]] = {}
        for task, partitions in enumerate(self.tasks):
            for partition in partitions:
                tasks_of.setdefault(partition, []).append(task)
        if not tasks_of:
            return Defects()
        unassigned = sorted(partition for partition in carried if partition not in tasks_of)
        held = tuple(filter(is_held, unassigned))
        return Defects(
            tuple(task for task, partitions in enumerate(self.tasks) if not partitions),
            {partition: tuple(tasks) for partition, tasks in sorted(tasks_of.items()) if len(tasks) > 1},
            tuple(sorted({*unassigned}.difference(held))),
            tuple(sorted(partition for partition in tasks_of if partition.partition >= topics.get(partition.topic, 0))),
            held,
        )

    def loads(self, rates: Mapping[TopicPartition, float]) -> list[float]:
        """Return the load of each task, in the unit of `rates`; a partition without a rate adds nothing."""
        return [sum(rates.get(partition, 0.0) for partition in partitions) for partitions in self.tasks]

    def count_moved(self, after: Assignment) -> int:
        """Count the partitions that another task has after a change; those that only one of both has do not count."""
        tasks = after.task_of
        return sum(tasks.get(partition, task) != task for partition, task in self.task_of.items())


def spread(loads: Sequence[float]) -> float:
    """Return the busiest task's load by the mean of all: 1 is even; 1 also where there is no load."""
    total = sum(loads)
    return max(loads) * len(loads) / total if total > 0 else 1.0


def round_robin(order: Sequence[TopicPartition], tasks: int) -> Assignment:
    """Deal partitions in turn: task i of n gets positions i, i + n, i + 2n, … (MirrorSourceConnector, KAFKA-9352).

    Never more tasks than partitions.
    """
    count = max(0, min(tasks, len(order)))
    return Assignment(tuple(tuple(order[first::count]) for first in range(count)))


def moved_partitions(partitions: int, before: int, after: int) -> int:
    """Count the partitions that another task gets when the number of tasks changes: position p goes to task p mod n."""
    return sum(position % before != position % after for position in range(partitions))


def read_back(assigned: Mapping[int, str]) -> Assignment:
    """Return the assignment of running tasks from their `task.assigned.partitions`, by task number.

    A number that is missing between others is a task without partitions; what is no partition is left out.
    """
    by_task = {
        task: tuple(dict.fromkeys(partition for partition in parse_assigned(text) if partition.partition >= 0))
        for task, text in assigned.items()
        if 0 <= task < _MOST_TASKS
    }
    return Assignment(tuple(by_task.get(task, ()) for task in range(max(by_task, default=-1) + 1)))
