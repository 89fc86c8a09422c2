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
from typing import Any, NamedTuple

from mm2mgr.connect.errors import WrongBody
from mm2mgr.connectors import ConnectorStatus, RunningConnector, TaskConfig, TaskStatus
from mm2mgr.partitions import TopicPartition
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


def parse_connector(data: object) -> RunningConnector:
    """Return a connector with its config and the ids of its tasks."""
    body = as_object(data, "a connector")
    tasks = (as_object(task, "a task id") for task in as_list(body.get("tasks") or [], "the tasks"))
    config, ids = parse_config(body.get("config")), tuple(_number(task, "task") for task in tasks)
    return RunningConnector(_text(body, "name"), config, ids, _text(body, "type", "unknown"))


def parse_status(data: object) -> ConnectorStatus:
    """Return the state of a connector and of its tasks."""
    body = as_object(data, "a connector's status")
    connector = as_object(body.get("connector"), "the connector's own state")
    return ConnectorStatus(
        name=_text(body, "name"),
        state=_text(connector, "state"),
        worker_id=_text(connector, "worker_id", ""),
        trace=_optional(connector, "trace"),
        tasks=tuple(map(_parse_task_status, as_list(body.get("tasks") or [], "the tasks"))),
    )


def parse_state(data: object) -> ConnectorStatus:
    """Return a connector's own state; its tasks are left alone."""
    body = as_object(data, "a connector's status")
    return ConnectorStatus(
        _text(body, "name"), _text(as_object(body.get("connector"), "the connector's own state"), "state")
    )


def _parse_task_status(data: object) -> TaskStatus:
    body = as_object(data, "a task's status")
    trace = _optional(body, "trace")
    return TaskStatus(_number(body, "id"), _text(body, "state"), _text(body, "worker_id", ""), trace)


def parse_task(data: object) -> TaskConfig:
    """Return a task's config."""
    body = as_object(data, "a task's config")
    return TaskConfig(_number(as_object(body.get("id"), "a task id"), "task"), parse_config(body.get("config")))


class SourceOffset(NamedTuple):
    """One source partition and the last offset replicated from it; offset None means none is stored."""

    partition: dict[str, object]
    offset: dict[str, object] | None

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

    def to_dict(self) -> dict[str, object]:
        """Return the entry as Connect's offsets endpoints take it."""
        return {"partition": self.partition, "offset": self.offset}


def parse_stored(
    entries: Iterable[SourceOffset], source_alias: str, but: Container[str] = ()
) -> dict[TopicPartition, int]:
    """Return the last mirrored offset by source partition that a MirrorSourceConnector stored for this alias.

    Entries of another alias remain when a cluster is renamed; MirrorMaker ignores them too. With an empty alias: those
    of all but some.
    """
    stored: dict[TopicPartition, int] = {}
    for entry in entries:
        topic, number = entry.partition.get("topic"), entry.partition.get("partition")
        offset = (entry.offset or {}).get("offset")
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
class PluginsOfWorker:
    """The classes that the worker at an address has, with their versions; or why it did not answer. `kafka`: the
    version of Kafka that it runs, where that was asked for."""

    worker: str
    plugins: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    kafka: str = ""

    def version_of(self, class_name: str) -> str | None:
        """Return the version of a class, None where the worker lacks it or did not answer."""
        return self.plugins.get(class_name)

    def lacks(self, class_name: str) -> bool:
        """Tell whether the worker answered, and lacks a class."""
        return not self.failure and class_name not in self.plugins


@dataclass(frozen=True)
class PluginsOfWorkers:
    """The answers of all workers that could be asked. `count`: how many different workers answered, at least.

    `asked_as`: the name in `workers` of each worker that was named by its id, which is a URL where that is its address.
    """

    workers: tuple[PluginsOfWorker, ...]
    count: int
    asked_as: Mapping[str, str] = field(default_factory=dict)

    def of_worker(self, worker: str) -> PluginsOfWorker | None:
        """Return the answer of a worker by its id; None where it could not be asked."""
        name = self.asked_as.get(worker)
        return next((answer for answer in self.workers if answer.worker == name), None)


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


# --- whether workers write with transactions (KIP-618): they tell when a config is validated --------------------------

SOURCE_CLASS = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
NOBODY = "127.0.0.1:9092"  # is not contacted: a validation starts no client
ASKED_CONFIG = {
    "name": "mm2mgr-probe",
    "connector.class": SOURCE_CLASS,
    "source.cluster.alias": "mm2mgr-probe-source",
    "target.cluster.alias": "mm2mgr-probe-target",
    "source.cluster.bootstrap.servers": NOBODY,
    "target.cluster.bootstrap.servers": NOBODY,
    # The worker says what it lacks only after the connector has said that it could (KIP-618).
    "exactly.once.support": "required",
    "source.consumer.isolation.level": "read_committed",
}
_ONCE_KEY = "exactly.once.support"
_LACKING = "This worker does not have exactly-once source support enabled"


def supports_exactly_once(answer: Validation) -> bool | None:
    """Return what the validation of such a config says; None where the worker has no such key, as before Kafka 3.3."""
    if _ONCE_KEY not in answer.keys:
        return None
    return not any(_LACKING in reason for reason in answer.errors.get(_ONCE_KEY, ()))


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


def as_list(data: object, subject: str) -> list[object]:
    """Return a JSON array, or raise WrongBody saying what was expected."""
    if not isinstance(data, list):
        raise WrongBody(f"expected {subject} as a JSON array, got {_kind(data)}")
    return data


def _text(body: Mapping[str, object], key: str, default: str | None = None) -> str:
    value = body.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise WrongBody(f"expected text in '{key}', got {_kind(value)}")
    return value


def _optional(body: Mapping[str, object], key: str) -> str | None:
    return _text(body, key, "") or None


def _number(body: Mapping[str, object], key: str) -> int:
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
