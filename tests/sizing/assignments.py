"""Assignments as any class of connector may deal them, good or bad, drawn for property tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from mm2mgr.assignment import ASSIGNED_KEY, Assignment
from mm2mgr.connectors import RunningConnector, TaskConfig
from mm2mgr.partitions import TopicPartition

STOCK = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
FOREIGN = "org.example.EvenMirrorSourceConnector"
topics = st.dictionaries(st.text("ab.-_0", min_size=1, max_size=8), st.integers(1, 5), min_size=1, max_size=20)


@dataclass(frozen=True)
class Drawn:
    """An assignment, the partitions that its flow takes, and how many Kafka has of each topic."""

    assignment: Assignment
    carried: frozenset[TopicPartition]
    there: dict[str, int]


@st.composite
def assignments(draw: st.DrawFn) -> Drawn:
    listing = draw(topics)
    every = [TopicPartition(topic, number) for topic, count in listing.items() for number in range(count)]
    there = {topic: draw(st.integers(0, count)) for topic, count in listing.items()}
    hands: list[list[TopicPartition]] = [[] for _ in range(draw(st.integers(0, 6)))]
    for partition in every:
        for hand in hands:
            if draw(st.integers(0, 3)) == 0:
                hand.append(partition)
    carried = {topic for topic in listing if draw(st.booleans())}
    return Drawn(
        Assignment(tuple(map(tuple, hands))),
        frozenset(one for one in every if one.partition < there[one.topic] and one.topic in carried),
        {topic: count for topic, count in there.items() if count},
    )


def texts(assignment: Assignment) -> dict[int, str]:
    """Return what the tasks' configs hold, by task."""
    return {task: ",".join(map(str, partitions)) for task, partitions in enumerate(assignment.tasks)}


def assigned(task_of: Mapping[TopicPartition, int]) -> Assignment:
    """Return the assignment in which each partition has this task."""
    tasks = range(max(task_of.values(), default=-1) + 1)
    return Assignment(tuple(tuple(one for one, task in task_of.items() if task == number) for number in tasks))


def running(assignment: Assignment, connector_class: str = FOREIGN, tasks_max: int = 9) -> RunningConnector:
    """Return a connector whose tasks have that."""
    config = {"connector.class": connector_class, "tasks.max": str(tasks_max)}
    configs = (TaskConfig(task, {**config, ASSIGNED_KEY: text}) for task, text in texts(assignment).items())
    return RunningConnector("c", config, tuple(range(len(assignment.tasks))), tasks=tuple(configs))
