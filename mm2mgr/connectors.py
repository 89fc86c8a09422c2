"""A connector as it is declared, and as its Connect cluster shows it: states, tasks with their partitions, offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from mm2mgr.assignment import ASSIGNED_KEY, Assignment, read_back
from mm2mgr.assignment_text import expected_task_config, held_by, is_plugin_class
from mm2mgr.defaults import Origin
from mm2mgr.errors import Failure
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import whole_number

RESTING = frozenset({"PAUSED", "STOPPED"})
"""States in which nothing of a connector runs, as somebody asked."""
SETTABLE = RESTING | {"RUNNING"}
"""States that a request can ask for."""
SETTLED = SETTABLE | {"FAILED"}
"""States that last until somebody does something; a connector without status, UNASSIGNED or RESTARTING is on its
way.
"""
Standing = Literal[
    "deleted", "no status", "FAILED", "other state", "tasks FAILED", "tasks on their way", "no tasks", "settled"
]
"""Where a connector and its tasks are on the way to a state."""


ConnectorType = Literal["source", "checkpoint", "heartbeat"]
PACKAGE = "org.apache.kafka.connect.mirror"
CLASSES: dict[str, ConnectorType] = {
    "MirrorSourceConnector": "source",
    "MirrorCheckpointConnector": "checkpoint",
    "MirrorHeartbeatConnector": "heartbeat",
}


def type_of(connector_class: str) -> ConnectorType | None:
    """Return the type for any spelling that Connect accepts: full name, simple name, or that without `Connector`.

    The class of mm2mgr's Connect plugin is a source connector, as it reads all that MirrorMaker's does.
    """
    if is_plugin_class(connector_class):
        return "source"
    package, _, simple = connector_class.strip().rpartition(".")
    if package not in ("", PACKAGE):
        return None  # another plugin's class, whatever its name
    return CLASSES.get(simple) or CLASSES.get(f"{simple}Connector")


def tasks_max_of(config: Mapping[str, str]) -> int | None:
    """Return `tasks.max` of a config, Connect's default 1 where it is absent; None where it is no number."""
    return whole_number(config.get("tasks.max", "1").strip(), 10)


def deals_in_turn(connector_class: str) -> bool:
    """Tell whether a class is MirrorMaker's own source connector, which also copies its whole config into each task."""
    return type_of(connector_class) == "source" and not is_plugin_class(connector_class)


@dataclass(frozen=True)
class Connector:
    """A connector of MirrorMaker: `config` as Connect gets it, `origins` of its keys as far as that is known."""

    name: str
    type: ConnectorType
    connect: str = ""
    pair: str = ""
    flows: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False)
    state: str | None = None
    """RUNNING, PAUSED or STOPPED if the tree declares it; None: not managed. Source connectors only."""


@dataclass(frozen=True)
class TaskStatus:
    """One task's state as its worker last reported it; `trace` is the Java stack trace of a FAILED task."""

    id: int
    state: str
    worker_id: str = ""
    trace: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ConnectorStatus:
    """The state of a connector and of its tasks, eventually consistent: a stale RUNNING can outlive a change."""

    name: str
    state: str
    worker_id: str = ""
    trace: str | None = field(default=None, repr=False)
    tasks: tuple[TaskStatus, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether it and all the tasks that it has are RUNNING."""
        return self.state == "RUNNING" and all(task.state == "RUNNING" for task in self.tasks)

    @property
    def work_state(self) -> str:
        """Its state; where something FAILED, that of its tasks, which go on when only the connector fails."""
        if self.tasks and all(task.state == "FAILED" for task in self.tasks):
            return "FAILED"
        return "RUNNING" if self.tasks and self.state == "FAILED" else self.state

    @property
    def workers(self) -> frozenset[str]:
        """The ids of the workers that it and its tasks are on, as these last said: a dead worker takes nothing back."""
        return frozenset(worker for worker in (self.worker_id, *(task.worker_id for task in self.tasks)) if worker)


def workers_at_work(statuses: Collection[ConnectorStatus]) -> frozenset[str]:
    """Return the ids of workers that have a connector or a task: Connect lists none, so idle ones show nowhere."""
    shown = {(status.state, status.worker_id) for status in statuses}
    shown |= {(task.state, task.worker_id) for status in statuses for task in status.tasks}
    return frozenset(worker for state, worker in shown if worker and state not in {"UNASSIGNED", "DESTROYED"})


@dataclass(frozen=True)
class TaskConfig:
    """One task's config: MirrorMaker copies the whole connector config into it and adds `task.assigned.partitions`."""

    id: int
    config: dict[str, str] = field(repr=False)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The consumer groups of a MirrorCheckpointConnector's task."""
        return tuple(name for name in self.config.get("task.assigned.groups", "").split(",") if name)


def assignment_of(tasks: Iterable[TaskConfig]) -> Assignment:
    """Return the source partitions of each task of a source connector, whatever class dealt them."""
    return read_back({task.id: task.config.get(ASSIGNED_KEY, "") for task in tasks})


@dataclass(frozen=True)
class RunningConnector:
    """A connector that a Connect cluster has: raw config (`${…}` kept, inline secrets in clear, hence absent from the
    repr) and the ids of its tasks.

    `status` None: it has none yet, or none was read. `tasks` and `offsets`, the last mirrored offset of each source
    partition, are there only where they were asked for.
    """

    name: str
    config: dict[str, str] = field(repr=False)
    task_ids: tuple[int, ...] = ()
    type: str = "unknown"
    status: ConnectorStatus | None = None
    tasks: tuple[TaskConfig, ...] | Failure = field(default=(), compare=False)
    offsets: Mapping[TopicPartition, int] | Failure = field(default_factory=dict, compare=False)

    @property
    def state(self) -> str:
        """Its own state in Connect's words, "" without a status."""
        return self.status.state if self.status else ""

    @property
    def runs(self) -> bool:
        """Whether it and all its tasks are RUNNING, and it has a task."""
        return self.status is not None and self.status.runs and bool(self.status.tasks)

    @property
    def shown_tasks(self) -> list[TaskStatus | None]:
        """The status of each task that it has: a status may miss tasks (None), or still hold removed ones."""
        shown = {task.id: task for task in self.status.tasks} if self.status else {}
        return [shown.get(task) for task in self.task_ids]

    @cached_property
    def assignment(self) -> Assignment:
        """The partitions of each task; no task when these could not be read."""
        return Assignment() if isinstance(self.tasks, Failure) else assignment_of(self.tasks)

    @property
    def is_held(self) -> Callable[[TopicPartition], bool]:
        """Tells whether its assignment has a partition in no task on purpose."""
        return held_by(self.config)

    @property
    def is_stock(self) -> bool:
        """Whether MirrorMaker's own class deals its partitions."""
        return deals_in_turn(self.config.get("connector.class", ""))

    @property
    def older_tasks(self) -> dict[int, list[str]]:
        """The tasks that have another config than the connector, each with the keys that differ.

        MirrorMaker's class copies the whole config into each task; another class may keep keys to itself, so there a
        key that no task has is no sign. What a worker resolved would look like a change, and is not compared.
        """
        if isinstance(self.tasks, Failure):
            return {}
        live = {key: value for key, value in expected_task_config(self.config).items() if "${" not in value}
        if not self.is_stock:
            live = {key: value for key, value in live.items() if any(key in task.config for task in self.tasks)}
        older = {task.id: [key for key, value in live.items() if task.config.get(key) != value] for task in self.tasks}
        return {task: keys for task, keys in older.items() if keys}

    @property
    def has_stopped(self) -> bool:
        """Whether it is STOPPED without tasks: only then all its offsets are stored. Connect says STOPPED before."""
        return standing(self, "STOPPED") == "settled"

    @property
    def is_stopping(self) -> bool:
        """Whether it is STOPPED, but its tasks have not ended, or the worker that answered does not know of it yet."""
        return standing(self, "STOPPED") == "tasks on their way"


def standing(connector: RunningConnector | None, goal: str) -> Standing:  # noqa: PLR0911  one per standing
    """Tell where a connector is on the way to a state, RUNNING, PAUSED or STOPPED, which its tasks must show too.

    It settles although tasks FAILED where it is to pause or stop: such a task moves nothing and never becomes PAUSED.
    """
    if connector is None:
        return "deleted"
    if connector.status is None:
        return "no status"
    if connector.state != goal:
        return "FAILED" if connector.state == "FAILED" else "other state"
    if goal == "STOPPED":
        return "tasks on their way" if connector.task_ids or connector.status.tasks else "settled"
    tasks = connector.shown_tasks
    failed = sum(task is not None and task.state == "FAILED" for task in tasks)
    if failed and goal == "RUNNING":
        return "tasks FAILED"
    if failed + sum(task is not None and task.state == goal for task in tasks) < len(tasks):
        return "tasks on their way"
    return "settled" if tasks or goal != "RUNNING" else "no tasks"


def with_statuses(
    connectors: Mapping[str, RunningConnector], statuses: Mapping[str, ConnectorStatus]
) -> dict[str, RunningConnector]:
    """Return connectors with the states of those that have one."""
    return {
        name: replace(connector, status=statuses.get(name)) if name in statuses else connector
        for name, connector in connectors.items()
    }
