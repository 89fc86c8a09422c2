"""A snapshot as a JSON file, secrets masked, and back: what clusters answered once, and no authority to write.

Configs of tasks hold only what differs from their connector's, and connectors with their states are not stored beside
the two parts.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from mm2mgr.connectors import Connector, ConnectorStatus, RunningConnector, TaskConfig, with_statuses
from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import FileKind, Unreadable, read_bytes, write_whole
from mm2mgr.live import kafka_state, questions, rights
from mm2mgr.live.kafka_state import KafkaState, RunningKafka
from mm2mgr.live.questions import (
    Configs,
    ConnectorsWithStates,
    ConnectorsWithStatuses,
    Statuses,
    TaskConfigs,
    TopicLogs,
)
from mm2mgr.live.snapshot import Answers, Question, Snapshot
from mm2mgr.partitions import TopicPartition
from mm2mgr.secrets import MASK, mask, mask_config, mask_text

FORMAT = 1
SNAPSHOT = FileKind(
    "a snapshot",
    lambda head: '"mm2mgr-snapshot"' in head[:100],
    mode=0o600,
    failure="the snapshot could not be written",
)
_MOST_BYTES = 500_000_000
_HINT = "make one with mm2mgr snapshot --out FILE"


KINDS: Mapping[str, type[Question[object]]] = {
    kind.__name__: kind
    for module in (questions, kafka_state, rights)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Question) and not isinstance(kind.answer, (TypeVar, NoneType))
}


def write_snapshot(path: Path, snapshot: Snapshot) -> int:
    """Write a snapshot, whole or not at all; return its size in bytes."""
    answers = snapshot.answers
    document = {
        "mm2mgr-snapshot": FORMAT,
        "taken_at": snapshot.taken_at,
        "memory": json.loads(snapshot.memory) if snapshot.memory else None,
        "answers": [
            {"ask": type(question).__name__, **to_stored(question.as_stored()), **_result(question, answer, answers)}
            for question, answer in answers.items()
            if not isinstance(question, ConnectorsWithStates) or Configs(question.cluster) not in answers
        ],
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    write_whole(path, text + "\n", SNAPSHOT)
    return len(text.encode()) + 1


def _result(question: Question[object], answer: Any, answers: Answers) -> dict[str, object]:
    if isinstance(answer, Mm2mgrError):
        return {"failed": mask_text(answer.message), "hint": answer.hint and mask_text(answer.hint)}
    if isinstance(question, TaskConfigs):
        configs = answers.get(Configs(question.cluster))
        info = configs.get(question.connector) if isinstance(configs, dict) else None
        config = mask_config(info.config) if info else {}
        return {"answer": [_task_difference(task, config) for task in answer]}
    return {"answer": to_stored(answer)}


def _task_difference(task: TaskConfig, config: Mapping[str, str]) -> dict[str, object]:
    own = mask_config(task.config)
    more = {key: value for key, value in own.items() if config.get(key) != value}
    return {"id": task.id, "config": more, "without": sorted(config.keys() - own.keys())}


def read_snapshot(path: Path, connectors: Iterable[Connector]) -> Snapshot:
    """Read a snapshot for a tree; Mm2mgrError when it is none.

    Secrets that were masked are taken for those of the tree where they may be the same: that they differed is not in
    the file.
    """
    try:
        document = json.loads(read_bytes(path, _MOST_BYTES))
        if not isinstance(document, dict) or document.get("mm2mgr-snapshot") != FORMAT:
            raise Mm2mgrError(f"{path}: not a snapshot of format {FORMAT}", hint=_HINT)
        answers = dict(_parse(document["answers"]))
        memory, taken_at = document["memory"], from_stored(float, document["taken_at"])
    except Unreadable as error:
        raise Mm2mgrError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise Mm2mgrError(f"{path}: not a snapshot, or damaged", hint=_HINT) from error
    declared = {(connector.connect, connector.name): connector.config for connector in connectors}
    for question, answer in list(answers.items()):
        if isinstance(question, Configs) and isinstance(answer, dict):
            answers[question] = {
                name: replace(info, config=_with_secrets(info.config, declared.get((question.cluster, name), {})))
                for name, info in answer.items()
            }
        elif isinstance(question, TaskConfigs) and isinstance(answer, tuple):
            own = declared.get((question.cluster, question.connector), {})
            answers[question] = tuple(TaskConfig(task.id, _with_secrets(task.config, own)) for task in answer)
    answers = {**dict(together(answers)), **answers}  # a log that was asked for by itself has its start, too
    return Snapshot(answers, taken_at, json.dumps(memory) if memory else "")


def _parse(entries: Iterable[dict[str, Any]]) -> Iterator[tuple[Question[object], object]]:
    """Yield questions and answers, those about tasks last: they need the connectors' configs."""
    configs: dict[str, Mapping[str, RunningConnector]] = {}
    for entry in sorted(entries, key=lambda entry: entry["ask"] == TaskConfigs.__name__):
        kind = KINDS[entry["ask"]]
        hints = hints_of(kind)
        question = kind(
            **{field.name: from_stored(hints[field.name], entry[field.name]) for field in fields(kind) if field.compare}
        )
        if "failed" in entry:
            hint = from_stored(str | None, entry["hint"])
            yield question, Mm2mgrError(from_stored(str, entry["failed"]), hint=hint)
            continue
        if isinstance(question, TaskConfigs):
            info = configs.get(question.cluster, {}).get(question.connector)
            yield question, tuple(_task(task, info.config if info else {}) for task in entry["answer"])
            continue
        answer = from_stored(kind.answer, entry["answer"])
        if isinstance(question, Configs):
            configs[question.cluster] = answer
        yield question, answer


def _task(entry: dict[str, Any], config: Mapping[str, str]) -> TaskConfig:
    without = from_stored(frozenset[str], entry["without"])
    shared = {key: value for key, value in config.items() if key not in without}
    return TaskConfig(from_stored(int, entry["id"]), {**shared, **from_stored(dict[str, str], entry["config"])})


def _with_secrets(config: Mapping[str, str], declared: Mapping[str, str]) -> dict[str, str]:
    return {
        key: declared[key] if MASK in value and key in declared and mask(key, declared[key]) == value else value
        for key, value in config.items()
    }


def together(answers: Answers) -> Iterator[tuple[Question[object], object]]:
    """Yield what follows from other answers: connectors with their states, and the logs of topics."""
    for question, infos in answers.items():
        if isinstance(question, KafkaState) and isinstance(infos, RunningKafka):
            for topic, count in infos.topics.items():
                partitions = [TopicPartition(topic, number) for number in range(count)]
                if infos.offsets.keys() >= set(partitions):
                    logs = {partition: infos.offsets[partition] for partition in partitions}
                    yield TopicLogs(question.cluster, topic, count), logs
        if not isinstance(question, Configs):
            continue
        statuses = answers.get(Statuses(question.cluster))
        both, whole = ConnectorsWithStates(question.cluster), ConnectorsWithStatuses(question.cluster)
        failed = next((answer for answer in (infos, statuses) if isinstance(answer, Mm2mgrError)), None)
        if failed:
            yield from ((both, failed), (whole, failed))
        elif statuses is not None:
            states = {name: ConnectorStatus(name, status.state) for name, status in statuses.items()}
            there = {name: info for name, info in infos.items() if name in states}
            yield from ((both, with_statuses(there, states)), (whole, with_statuses(there, statuses)))


# --- values as JSON and back, by the types of their fields ------------------------------------------------------------

_PLAIN = (str, int, float, bool)
_HINTS: dict[Any, dict[str, Any]] = {}


def to_stored(value: Any, *, is_secret: bool = False) -> Any:  # noqa: PLR0911  one per shape
    """Return a value as JSON takes it: dataclasses, named tuples, mappings, sequences and plain values.

    What a dataclass keeps out of its repr may hold secrets, and is masked. A field that does not compare is left out.
    """
    if value is None or isinstance(value, _PLAIN):
        return mask_text(value) if is_secret and isinstance(value, str) else value
    if is_dataclass(value):
        stored = [field for field in fields(value) if field.compare]
        return {field.name: to_stored(getattr(value, field.name), is_secret=not field.repr) for field in stored}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            value = mask_config(value) if is_secret else value
            return {key: to_stored(part) for key, part in value.items()}
        if all(isinstance(key, TopicPartition) for key in value):  # a name is written once
            topics: dict[str, list[object]] = {}
            for (topic, number), part in value.items():
                topics.setdefault(topic, []).append([number, to_stored(part)])
            return topics
        return [[to_stored(key), to_stored(part)] for key, part in value.items()]
    if isinstance(value, frozenset):
        return sorted((to_stored(part) for part in value), key=str)
    return [to_stored(part) for part in value]


def from_stored(type_: Any, data: Any) -> Any:  # noqa: PLR0911  one per shape
    """Return the value of a type; TypeError, KeyError or ValueError where the data are none."""
    origin, parts = get_origin(type_), get_args(type_)
    if type_ in {Any, object} or origin is Literal:
        return data
    if type_ in _PLAIN or type_ is type(None):
        return _plain(type_, data)
    if origin in {Union, types.UnionType}:
        return None if data is None else from_stored(next(part for part in parts if part is not type(None)), data)
    if is_dataclass(type_):
        hints = hints_of(type_)
        stored = [field.name for field in fields(type_) if field.compare and field.init]
        return type_(**{name: from_stored(hints[name], data[name]) for name in stored})  # type: ignore[operator]
    if isinstance(type_, type) and issubclass(type_, tuple) and hasattr(type_, "_fields"):
        hints = hints_of(type_)
        return type_(*(from_stored(hints[name], part) for name, part in zip(type_._fields, _list(data), strict=True)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if parts[0] is TopicPartition:
            return {
                from_stored(TopicPartition, [topic, number]): from_stored(parts[1], part)
                for topic, numbers in data.items()
                for number, part in _list(numbers)
            }
        pairs = data.items() if isinstance(data, dict) else _list(data)
        return {from_stored(parts[0], key): from_stored(parts[1], part) for key, part in pairs}
    if origin is tuple and parts[-1] is not Ellipsis:
        return tuple(from_stored(part, item) for part, item in zip(parts, _list(data), strict=True))
    if origin in {tuple, frozenset}:
        return origin(from_stored(parts[0], part) for part in _list(data))
    raise TypeError(f"no way to read {type_}")


def _plain(type_: Any, data: Any) -> Any:
    if not isinstance(data, (int, float) if type_ is float else type_) or (
        isinstance(data, bool) and type_ is not bool
    ):
        raise TypeError(f"{type_.__name__} expected")
    return data


def _list(data: object) -> list[Any]:
    if not isinstance(data, list):
        raise TypeError("a list expected")
    return data


def hints_of(type_: Any) -> dict[str, Any]:
    """Return the types of a class's fields."""
    if type_ not in _HINTS:
        _HINTS[type_] = get_type_hints(type_)
    return _HINTS[type_]
