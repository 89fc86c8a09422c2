"""The assignment in a connector's config as the Connect plugin reads it, and the tasks that the plugin makes of it.

`version=1;rates=9000+7000;unlisted=10;orders:0-7@0+9@1;logs:2@hold`: the rate of each task in bytes/s; the rate that
is assumed for a partition that is not listed; per topic its partitions in ascending ranges, each with the task that
gets it, or `hold`: no task does. A topic's name is there once, since the partitions of one topic go to many tasks.
`connect-plugin/mm2mgr/connect/Assignment.java` is the same in Java; a test holds both to each other.
"""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from mm2mgr.assignment import Assignment
from mm2mgr.errors import Mm2mgrError
from mm2mgr.partitions import TopicPartition

PLUGIN_CLASS = "mm2mgr.connect.AssignedMirrorSourceConnector"
_SIMPLE_NAME = PLUGIN_CLASS.rpartition(".")[2]
_SPELLINGS = frozenset([PLUGIN_CLASS, _SIMPLE_NAME, _SIMPLE_NAME.removesuffix("Connector")])
ASSIGNMENT_KEY = "mm2mgr.assignment"
DIGEST_KEY = "mm2mgr.assignment.digest"
"""In the config of each task instead of the assignment: tells from which text the task was made."""

VERSION = 1
LONGEST = 700_000
"""Characters: Connect stores a config as one record, by default of at most 1 MiB (0.9 MB are taken, 1.2 MB are refused
with a 500)."""
_HOLD = "hold"
_BLANKS = "".join(map(chr, range(33)))  # what String.trim() of Java takes away
_MOST_PARTITION, _MOST_RATE = 10**9 - 1, 10**15 - 1


class AssignmentRefused(Mm2mgrError):
    """The plugin would refuse this assignment: Connect answers 400, and the tasks go on as they are."""


class PartitionRange(NamedTuple):
    """Partitions of one topic, `first` to `last`, and their task; None: they are held, in no task."""

    first: int
    last: int
    task: int | None

    def __str__(self) -> str:
        partitions = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{partitions}@{_HOLD if self.task is None else self.task}"


@dataclass(frozen=True)
class PluginAssignment:
    """An assignment for the plugin: the rates of its tasks and of a partition that is not listed, both in bytes/s, and
    the ranges of each topic.
    """

    rates: tuple[int, ...]
    unlisted_rate: int
    topics: Mapping[str, tuple[PartitionRange, ...]] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        assignment: Assignment,
        rates: Sequence[float],
        unlisted_rate: float,
        held: Collection[TopicPartition] = (),
    ) -> PluginAssignment:
        """Return it for the tasks of an assignment with the rate of each; held partitions are in no task, whatever
        the assignment has. A rate above what the text can have counts as the most, one that is no number as nothing.
        ValueError where the rates are not one per task, or a partition is in two tasks.
        """
        if len(rates) != len(assignment.tasks) or not rates:
            raise ValueError(f"{len(rates)} rates for {len(assignment.tasks)} tasks")
        goals: dict[str, dict[int, int | None]] = {}
        for task, partitions in enumerate(assignment.tasks):
            for topic, number in partitions:
                if number in goals.setdefault(topic, {}):
                    raise ValueError(f"{TopicPartition(topic, number)} is in two tasks")
                goals[topic][number] = task
        for topic, number in held:
            goals.setdefault(topic, {})[number] = None
        whole = tuple(_whole_rate(rate, 0) for rate in rates)
        topics = {topic: tuple(_ranges(goals[topic])) for topic in sorted(goals)}
        return cls(whole, _whole_rate(unlisted_rate, 1), topics)

    @cached_property
    def text(self) -> str:
        """The value of `mm2mgr.assignment`; AssignmentRefused where Connect could not store it."""
        head = [f"version={VERSION}", f"rates={'+'.join(map(str, self.rates))}", f"unlisted={self.unlisted_rate}"]
        topics = (f"{topic}:{'+'.join(map(str, ranges))}" for topic, ranges in self.topics.items())
        text = ";".join([*head, *topics])
        if len(text) > LONGEST:
            raise AssignmentRefused(
                f"the assignment has {len(text)} characters, and Connect can store {LONGEST} in a connector's config",
                hint="split the flow by topics, or list heavy partitions only: the plugin spreads the rest",
            )
        return text

    def goal(self, partition: TopicPartition) -> int | str | None:
        """Return the task of a partition, `hold`, or None where it is not listed."""
        ranges = self.topics.get(partition.topic, ())
        place = bisect_right(ranges, partition.partition, key=lambda range_: range_.first) - 1
        if place < 0 or ranges[place].last < partition.partition:
            return None
        task = ranges[place].task
        return _HOLD if task is None else task

    def is_held(self, partition: TopicPartition) -> bool:
        """Tell whether it has a partition in no task on purpose."""
        return self.goal(partition) == _HOLD

    def holding(self, former: PluginAssignment) -> PluginAssignment:
        """Return it with what another assignment holds, of which it must have nothing in a task.

        Ranges stay ranges: one may hold a topic's partitions to come, of which there can be a billion.
        """
        topics = dict(self.topics)
        for topic, ranges in former.topics.items():
            if held := [range_ for range_ in ranges if range_.task is None]:
                topics[topic] = tuple(sorted((*topics.get(topic, ()), *held)))
        return replace(self, topics=dict(sorted(topics.items())))

    def tasks(self, partitions: Iterable[TopicPartition], tasks_max: int) -> Assignment:
        """Return the tasks that the plugin makes for the partitions that there are.

        What is not listed goes to the task that is the lightest then, and so do partitions of tasks from `tasks_max`
        on. Listed partitions that are gone are passed over; a task without partitions is left out.
        """
        loads = list(self.rates[:tasks_max])
        tasks: list[list[TopicPartition]] = [[] for _ in loads]
        unlisted = []
        for partition in sorted(partitions):
            goal = self.goal(partition)
            if isinstance(goal, int) and goal < len(tasks):
                tasks[goal].append(partition)
            elif goal != _HOLD:
                unlisted.append(partition)
        for partition in unlisted:
            lightest = loads.index(min(loads))
            tasks[lightest].append(partition)
            loads[lightest] += max(1, self.unlisted_rate)
        return Assignment(tuple(tuple(task) for task in tasks if task))


def _whole_rate(rate: float, least: int) -> int:
    return least if math.isnan(rate) else round(min(max(rate, least), _MOST_RATE))


def _ranges(goals: Mapping[int, int | None]) -> Iterable[PartitionRange]:
    """Join neighbouring partitions of one task."""
    numbers = sorted(goals)
    starts = [
        0,
        *(
            place + 1
            for place, (low, high) in enumerate(pairwise(numbers))
            if low + 1 < high or goals[low] != goals[high]
        ),
    ]
    for start, end in pairwise([*starts, len(numbers)]):
        yield PartitionRange(numbers[start], numbers[end - 1], goals[numbers[start]])


def digest(text: str) -> str:
    """Return the digest of an assignment's text: the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(text.strip(_BLANKS).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_plugin_class(connector_class: str) -> bool:
    """Tell whether this is the plugin's class, in any spelling that Connect accepts."""
    return connector_class.strip() in _SPELLINGS


def held_by(config: Mapping[str, str]) -> Callable[[TopicPartition], bool]:
    """Return what tells whether a connector's assignment has a partition in no task on purpose; none where it is no
    assignment of the plugin, or cannot be read.
    """
    text = config.get(ASSIGNMENT_KEY)
    if text is None or not is_plugin_class(config.get("connector.class", "")):
        return lambda _: False
    try:
        return read_text(text).is_held
    except AssignmentRefused:
        return lambda _: False


def expected_task_config(config: Mapping[str, str]) -> dict[str, str]:
    """Return what the tasks of a connector have of its config: with the plugin a digest instead of the assignment.

    An assignment that a worker resolves, `${…}`, has a digest that only the worker knows.
    """
    expected = dict(config)
    if ASSIGNMENT_KEY in expected and is_plugin_class(config.get("connector.class", "")):
        assignment = expected.pop(ASSIGNMENT_KEY)
        if "${" not in assignment:
            expected[DIGEST_KEY] = digest(assignment)
    return expected


def read_text(text: str) -> PluginAssignment:
    """Read the value of `mm2mgr.assignment`; AssignmentRefused for what the plugin refuses."""
    if len(text) > LONGEST:
        raise _refusal(f"is {len(text)} characters long, at most {LONGEST} can be stored")
    version, *parts = text.strip(_BLANKS).split(";")
    if (number := _number("version", _value_of("version=", version), 9)) != VERSION:
        raise _refusal(f"is of version {number}, and this mm2mgr reads version {VERSION}: use a newer mm2mgr")
    if len(parts) < 2:
        raise _refusal("ends before rates= and unlisted=")
    rates = tuple(_number("rate", rate, 15) for rate in _value_of("rates=", parts[0]).split("+"))
    unlisted_rate = _number("rate", _value_of("unlisted=", parts[1]), 15)
    topics: dict[str, tuple[PartitionRange, ...]] = {}
    for part in parts[2:]:
        topic, colon, ranges = part.partition(":")
        if not colon or not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic):
            raise _refusal(f"has no topic and partitions in {_excerpt(part)}")
        if topic in topics:
            raise _refusal(f"names topic {topic} twice")
        topics[topic] = tuple(_read_ranges(topic, ranges, len(rates)))
    return PluginAssignment(rates, unlisted_rate, topics)


def _read_ranges(topic: str, text: str, tasks: int) -> Iterable[PartitionRange]:
    following = 0
    for range_ in text.split("+"):
        partitions, at, goal = range_.partition("@")
        first_text, dash, last_text = (partitions if at else "").partition("-")
        first = _number("partition", first_text, 9)
        last = _number("partition", last_text, 9) if dash else first
        task = None if goal == _HOLD else _number("task", goal, 9)
        if not following <= first <= last:
            raise _refusal(f"has partitions of {topic} not in ascending order: {_excerpt(range_)}")
        if task is not None and task >= tasks:
            raise _refusal(f"has {tasks} rates, and a partition of {topic} for task {task}")
        following = last + 1
        yield PartitionRange(first, last, task)


def _value_of(name: str, part: str) -> str:
    if not part.startswith(name):
        raise _refusal(f"has {_excerpt(part)} where {name} belongs")
    return part.removeprefix(name)


def _number(kind: str, digits: str, most: int) -> int:
    if not re.fullmatch(f"[0-9]{{1,{most}}}", digits):
        raise _refusal(f"has {_excerpt(digits)} where a {kind} belongs")
    return int(digits)


def _excerpt(text: str) -> str:
    return f'"{text[:60]}..."' if len(text) > 60 else f'"{text}"'


def _refusal(reason: str) -> AssignmentRefused:
    return AssignmentRefused(f"{ASSIGNMENT_KEY} {reason}")
