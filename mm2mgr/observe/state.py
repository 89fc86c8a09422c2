"""Keeps the memory on disk: one JSON file per owner in the state folder, not in a cache, because losses must last.

A missing file is an empty memory; a damaged one is set aside with a warning. Several processes may observe at the same
time: reading and writing are one step under a lock, so none undoes what another adds or acknowledges.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import cache_folder, locked, replace_file, state_folder
from mm2mgr.observe.losses import Gap, RecordLoss, SeenTopic
from mm2mgr.observe.memory import ConditionClock, FlowMemory, Mark, Memory, Rest, Unstored

_FORMAT = 2
_LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class Kept:
    """The memory before and after a change, and what went wrong with the file."""

    earlier: Memory
    memory: Memory
    warnings: tuple[str, ...] = ()


class _Damaged(Exception):
    """The file exists and is not a memory."""


def state_file(owner: str) -> Path:
    """Return where an owner's memory is kept."""
    return state_folder() / f"{owner}.json"


def change(file: Path, by: Callable[[Memory], Memory]) -> Kept:
    """Read, change and write the memory under its lock. Trouble with the file is a warning, never an error."""
    warnings: list[str] = []
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with locked(file.with_name(f"{file.name}.lock"), "reading and writing the memory", _LOCK_SECONDS):
            earlier = _read(file, warnings)
            memory = by(earlier)
            _write(file, memory)
            return Kept(earlier, memory, tuple(warnings))
    except (OSError, Mm2mgrError) as error:
        why = error.strerror if isinstance(error, OSError) else error.message
        warnings.append(f"{file} cannot be written ({why}): what this run found, losses included, is not remembered")
        earlier = _read(file, warnings)
        return Kept(earlier, by(earlier), tuple(warnings))


def load(file: Path) -> Memory:
    """Return the memory of a file; empty where it is missing or damaged."""
    return _read(file, [], aside=False)


def _read(file: Path, warnings: list[str], *, aside: bool = True) -> Memory:
    try:
        return _parsed(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return _from_the_cache(file)
    except (OSError, UnicodeDecodeError, _Damaged) as error:
        if aside:
            warnings.append(_set_aside(file, error))
        return Memory()


def _set_aside(file: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{file} cannot be read ({error.strerror}): its losses are not shown"
    beside = file.with_name(f"{file.name}.damaged-{time.time_ns() // 1_000_000}")
    try:
        file.rename(beside)
    except OSError as refused:
        return f"{file} is damaged and cannot be set aside ({refused.strerror}): its losses are not shown"
    return f"{file} was damaged: its losses are no longer known; the damaged file is kept as {beside.name}"


def _from_the_cache(file: Path) -> Memory:
    """Read what earlier versions kept in the cache folder: since when connectors have no status."""
    if file != state_file(file.stem):
        return Memory()
    try:
        data = json.loads((cache_folder() / "observed" / file.name).read_text(encoding="utf-8"))
        now = time.time()
        return Memory(
            {key: ConditionClock(max(0.0, now - since), now) for key, since in data["without_status"].items()}
        )
    except (Mm2mgrError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Memory()


def _write(file: Path, memory: Memory) -> None:
    replace_file(file, json.dumps({"format": _FORMAT, **vars(memory)}, default=vars), 0o600)


# --- JSON to values ---------------------------------------------------------------------------------------------------


def _parsed(text: str) -> Memory:
    try:
        data = json.loads(text)
        if data["format"] != _FORMAT:
            raise _Damaged
        return Memory(
            {key: _clock(one) for key, one in data["without_status"].items()},
            {flow: _flow(one) for flow, one in data["flows"].items()},
            {key: _loss(one) for key, one in data["losses"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _Damaged from error


def _clock(values: Mapping[str, Any]) -> ConditionClock:
    return ConditionClock(float(values["seconds"]), float(values["seen_at"]), bool(values["paused"]))


def _flow(values: Mapping[str, Any]) -> FlowMemory:
    rest, unstored = values["rest"], values["unstored"]
    return FlowMemory(
        str(values["home"]),
        {name: _clock(one) for name, one in values["unassigned"].items()},
        {task: _mark(one) for task, one in values["marks"].items()},
        {topic: _topic(one) for topic, one in values["topics"].items()},
        rest and Rest(int(rest["ends"]), int(rest["grown"]), _clock(rest["clock"])),
        unstored and _unstored(unstored),
    )


def _mark(values: Mapping[str, Any]) -> Mark:
    stored, behind, moved = int(values["stored"]), bool(values["behind"]), bool(values["moved"])
    return Mark(stored, _number(values["arrived"]), behind, _clock(values["clock"]), moved)


def _unstored(values: Mapping[str, Any]) -> Unstored:
    clock = values["clock"]
    return Unstored(
        int(values["stored"]), int(values["arrived"]), int(values["records"]), None if clock is None else _clock(clock)
    )


def _topic(values: Mapping[str, Any]) -> SeenTopic:
    places = {int(number): (int(stored), _number(arrived)) for number, (stored, arrived) in values["places"].items()}
    return SeenTopic(tuple(map(str, values["ids"])), places)


def _loss(values: Mapping[str, Any]) -> RecordLoss:
    gaps = {
        int(number): Gap(int(gap["stored"]), int(gap["records"]), int(gap["before"]))
        for number, gap in values["gaps"].items()
    }
    acknowledged = values["acknowledged_at"]
    if values["kind"] not in {"retention", "past-end", "re-created"}:
        raise _Damaged
    return RecordLoss(
        str(values["id"]),
        str(values["flow"]),
        str(values["topic"]),
        values["kind"],
        float(values["first_seen"]),
        gaps,
        str(values["topic_id"]),
        None if acknowledged is None else float(acknowledged),
    )


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
