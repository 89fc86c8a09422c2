"""The values of Connect's REST API, as frozen dataclasses whose repr hides secrets.

Each `parse` takes decoded JSON and ignores unknown fields; a body of another shape raises WrongBody, never KeyError.
Parsed by hand: pydantic models of these shapes cost a `plan` more time at start than they save lines. No HTTP library
is imported here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from mm2mgr.connect.errors import WrongBody
from mm2mgr.partitions import ASSIGNED_KEY, TopicPartition, parse_assigned
from mm2mgr.secrets import cut, mask_text, remember


@dataclass(frozen=True)
class WorkerInfo:
    """The answer to `GET /`: the worker's Kafka version and the id of the Kafka cluster that the *worker* runs on."""

    version: str
    commit: str
    kafka_cluster_id: str

    @classmethod
    def parse(cls, data: object) -> WorkerInfo:
        body = as_object(data, "the worker's version")
        return cls(_text(body, "version"), _text(body, "commit", ""), _text(body, "kafka_cluster_id", ""))


@dataclass(frozen=True)
class ConnectorInfo:
    """A connector as configured: raw config (`${…}` kept, inline secrets in clear, hence absent from the repr)."""

    name: str
    config: dict[str, str] = field(repr=False)
    tasks: tuple[int, ...] = ()
    type: str = "unknown"

    @classmethod
    def parse(cls, data: object) -> ConnectorInfo:
        body = as_object(data, "a connector")
        tasks = (as_object(task, "a task id") for task in as_list(body.get("tasks") or [], "the tasks"))
        return cls(
            name=_text(body, "name"),
            config=parse_config(body.get("config")),
            tasks=tuple(_number(task, "task") for task in tasks),
            type=_text(body, "type", "unknown"),
        )


@dataclass(frozen=True)
class TaskStatus:
    """One task's state as its worker last reported it; `trace` is the Java stack trace of a FAILED task."""

    id: int
    state: str
    worker_id: str = ""
    trace: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, data: object) -> TaskStatus:
        body = as_object(data, "a task's status")
        return cls(_number(body, "id"), _text(body, "state"), _text(body, "worker_id", ""), _optional(body, "trace"))


@dataclass(frozen=True)
class ConnectorStatus:
    """The state of a connector and of its tasks, eventually consistent: a stale RUNNING can outlive a change."""

    name: str
    state: str
    worker_id: str = ""
    trace: str | None = field(default=None, repr=False)
    tasks: tuple[TaskStatus, ...] = ()

    @classmethod
    def parse(cls, data: object) -> ConnectorStatus:
        body = as_object(data, "a connector's status")
        connector = as_object(body.get("connector"), "the connector's own state")
        return cls(
            name=_text(body, "name"),
            state=state_of(body),
            worker_id=_text(connector, "worker_id", ""),
            trace=_optional(connector, "trace"),
            tasks=tuple(TaskStatus.parse(task) for task in as_list(body.get("tasks") or [], "the tasks")),
        )

    @property
    def runs(self) -> bool:
        """Whether it and all the tasks that it has are RUNNING."""
        return self.state == "RUNNING" and all(task.state == "RUNNING" for task in self.tasks)

    @property
    def work_state(self) -> str:
        """Its state, judged by its tasks where something FAILED: these go on when only the connector fails, and it goes
        on without them.
        """
        if self.tasks and all(task.state == "FAILED" for task in self.tasks):
            return "FAILED"
        return "RUNNING" if self.tasks and self.state == "FAILED" else self.state

    @property
    def workers(self) -> frozenset[str]:
        """The ids of the workers that it and its tasks are on, as these last said: a dead worker takes nothing back."""
        return frozenset(worker for worker in (self.worker_id, *(task.worker_id for task in self.tasks)) if worker)


@dataclass(frozen=True)
class TaskConfig:
    """One task's config: MirrorMaker copies the whole connector config into it and adds `task.assigned.partitions`."""

    id: int
    config: dict[str, str] = field(repr=False)

    @classmethod
    def parse(cls, data: object) -> TaskConfig:
        body = as_object(data, "a task's config")
        return cls(_number(as_object(body.get("id"), "a task id"), "task"), parse_config(body.get("config")))

    @cached_property
    def assigned(self) -> tuple[TopicPartition, ...]:
        """The source partitions of a MirrorSourceConnector's task."""
        assigned = parse_assigned(self.config.get(ASSIGNED_KEY, ""))
        return tuple(partition for partition in assigned if partition.partition >= 0)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The consumer groups of a MirrorCheckpointConnector's task."""
        return tuple(name for name in self.config.get(_GROUPS_KEY, "").split(",") if name)


_GROUPS_KEY = "task.assigned.groups"


class SourceOffset(NamedTuple):
    """One source partition and the last offset replicated from it; offset None means none is stored."""

    partition: dict[str, Any]
    offset: dict[str, Any] | None

    @classmethod
    def parse(cls, data: object) -> SourceOffset:
        body = as_object(data, "an offset")
        offset = body.get("offset")
        partition = as_object(body.get("partition"), "a source partition")
        return cls(partition, None if offset is None else as_object(offset, "a source offset"))

    @property
    def key(self) -> str:
        """The partition as text: equal for equal partitions."""
        return json.dumps(self.partition, sort_keys=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as Connect's offsets endpoints take it."""
        return {"partition": self.partition, "offset": self.offset}


def parse_stored(
    entries: Iterable[SourceOffset], source_alias: str, but: Container[str] = ()
) -> dict[TopicPartition, int]:
    """Return the last mirrored offset of each source partition that a MirrorSourceConnector stored for this source
    alias.

    Entries of another alias remain when a cluster is renamed; MirrorMaker ignores them too. With an empty alias: those
    of all but some.
    """
    stored: dict[TopicPartition, int] = {}
    for entry in entries:
        topic, number = entry.partition.get("topic"), entry.partition.get("partition")
        offset: Any = (entry.offset or {}).get("offset")
        alias = entry.partition.get("cluster")
        ours = alias == source_alias if source_alias else alias not in but
        if ours and isinstance(topic, str) and isinstance(number, int) and isinstance(offset, int):
            stored[TopicPartition(topic, number)] = offset
    return stored


@dataclass(frozen=True)
class Plugin:
    """A plugin that the answering worker has installed."""

    class_name: str
    type: str
    version: str

    @classmethod
    def parse(cls, data: object) -> Plugin:
        body = as_object(data, "a plugin")
        return cls(_text(body, "class"), _text(body, "type", "unknown"), _text(body, "version", ""))


@dataclass(frozen=True)
class Validation:
    """What a dry validation found: for each refused key the worker's reasons, with the sent secrets masked.

    `keys` are the names it judged: those that worker and connector define, and every override that was sent.
    """

    name: str
    error_count: int
    errors: dict[str, tuple[str, ...]]
    keys: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def parse(cls, data: object) -> Validation:
        body = as_object(data, "a validation")
        errors: dict[str, tuple[str, ...]] = {}
        keys: set[str] = set()
        for entry in as_list(body.get("configs"), "the validated keys"):
            value = as_object(as_object(entry, "a validated key").get("value"), "a validated value")
            keys.add(_text(value, "name"))
            if reasons := as_list(value.get("errors") or [], "the errors of a key"):
                errors[_text(value, "name")] = tuple(str(reason) for reason in reasons)
        return cls(_text(body, "name", ""), _number(body, "error_count"), errors, frozenset(keys))


def state_of(status: object) -> str:
    """Return the connector's own state from a status, whose tasks are left alone."""
    body = as_object(status, "a connector's status")
    return _text(as_object(body.get("connector"), "the connector's own state"), "state")


def trace_summary(trace: str | None) -> str:
    """Return the first line of a Java trace and its last `Caused by`, with secrets masked, cut."""
    lines = [line.strip() for line in mask_text(trace or "").splitlines() if line.strip()]
    if not lines:
        return "no trace was reported"
    causes = [line for line in lines[1:] if line.startswith("Caused by:")]
    text = lines[0] + (f" … {causes[-1]}" if causes else "")
    return cut(re.sub(r"\s+", " ", text))


def parse_config(data: object) -> dict[str, str]:
    """Return a flat config, string → string, without keys whose value is null."""
    body = as_object(data, "a config")
    if set(map(type, body.values())) != {str}:
        body = {key: _config_text(value) for key, value in body.items() if value is not None}
    remember(body)
    return body


def as_object(data: object, subject: str) -> dict[str, Any]:
    """Return a JSON object, or raise WrongBody saying what was expected."""
    if not isinstance(data, dict):
        raise WrongBody(f"expected {subject} as a JSON object, got {_kind(data)}")
    return data


def as_list(data: object, subject: str) -> list[Any]:
    """Return a JSON array, or raise WrongBody saying what was expected."""
    if not isinstance(data, list):
        raise WrongBody(f"expected {subject} as a JSON array, got {_kind(data)}")
    return data


def _text(body: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = body.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise WrongBody(f"expected text in '{key}', got {_kind(value)}")
    return value


def _optional(body: Mapping[str, Any], key: str) -> str | None:
    return _text(body, key, "") or None


def _number(body: Mapping[str, Any], key: str) -> int:
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongBody(f"expected a whole number in '{key}', got {_kind(value)}")
    return value


def _config_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(value: object) -> str:
    """Name a JSON type without showing the value, which may be a secret."""
    return _KINDS.get(type(value), "nothing")


_KINDS = {dict: "an object", list: "an array", str: "text", bool: "true or false", int: "a number", float: "a number"}
