"""What must be remembered from one look to the next: since when a connector has no status, or a task makes no progress.

In: a Reading and its lags. Out: a Memory, kept as one small JSON file per owner. A file that is lost or broken is no
memory, never an error; it holds names, offsets and times, no secrets.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mm2mgr.observe.lag import FlowLag
from mm2mgr.observe.reading import Reading

_FORMAT = 1


@dataclass(frozen=True)
class Mark:
    """How far one task had come: the sums of its stored offsets and of its remote end offsets (None: target not read).

    `behind` tells whether records were waiting, `since` from when on neither sum moved although records waited, `moved`
    whether that time began with a movement that was seen.
    """

    stored: int
    arrived: int | None
    behind: bool
    since: float
    seen_at: float
    moved: bool = False

    def same_place(self, other: Mark) -> bool:
        """Tell whether nothing moved between two looks, as far as both could see."""
        unseen = self.arrived is None or other.arrived is None
        return self.stored == other.stored and (unseen or self.arrived == other.arrived)


@dataclass(frozen=True)
class Memory:
    """What earlier looks left: times are seconds since 1970.

    `without_status` is by `connect/connector`, `unassigned` by flow id, `marks` by flow id and task.
    """

    without_status: Mapping[str, float] = field(default_factory=dict)
    unassigned: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, Mapping[str, Mark]] = field(default_factory=dict)


def memory_file(owner: str) -> Path:
    """Return where an owner's memory is kept: below $MM2MGR_CACHE, else below ~/.cache/mm2mgr."""
    given = os.environ.get("MM2MGR_CACHE")
    cache = Path(given) if given else Path.home() / ".cache" / "mm2mgr"
    return cache / "observed" / f"{owner}.json"


def load(path: Path) -> Memory:
    """Read a memory; whatever is wrong with the file, the answer is an empty one."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != _FORMAT:
            return Memory()
        marks = {flow: {task: _mark(values) for task, values in tasks.items()} for flow, tasks in data["marks"].items()}
        return Memory(_times(data["without_status"]), _times(data["unassigned"]), marks)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Memory()


def save(path: Path, memory: Memory) -> None:
    """Replace the file in one step; a cache that cannot be written only means that nothing is remembered."""
    text = json.dumps({"format": _FORMAT, **asdict(memory)})
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(draft).replace(path)
        except OSError:
            Path(draft).unlink(missing_ok=True)


def remember(earlier: Memory, reading: Reading, lags: Mapping[str, FlowLag]) -> Memory:
    """Return the memory after this reading. What it could not see, or was not asked about, stays as it was."""
    now = reading.taken_at
    without_status, unassigned, marks = dict(earlier.without_status), dict(earlier.unassigned), dict(earlier.marks)
    for connect in reading.connects.values():
        for seen in connect.connectors.values():
            since = without_status.pop(seen.key, now)
            if seen.info is not None and seen.status is None:
                without_status[seen.key] = since
    for flow, lag in lags.items():
        since = unassigned.pop(flow, now)
        if lag.unassigned:
            unassigned[flow] = since
        if lag.unknown is None:
            marks[flow] = {
                task: _since(mark, earlier.marks.get(flow, {}).get(task))
                for task, mark in marks_of(lag, now, running=_running(reading, flow)).items()
            }
    return Memory(without_status, unassigned, marks)


def marks_of(lag: FlowLag, now: float, *, running: bool) -> dict[str, Mark]:
    """Return where each task of a flow stands; partitions that no task is known to have are taken together as `-`.

    A task, not a partition, is what stands still: MirrorMaker serves the partitions of a task in turn, while a record
    that cannot be sent blocks all of them. A single waiting record may be a transaction's end marker, never mirrored.
    """
    sums: dict[str, list[int]] = {}
    blind = all(one.arrived is None for one in lag.partitions)
    for one in lag.partitions:
        total = sums.setdefault("-" if one.task is None else str(one.task), [0, 0, 0])
        total[0] += 0 if one.stored is None else one.stored + 1
        total[1] += one.arrived or 0
        total[2] += running and one.lag_records > 1
    return {
        task: Mark(stored, None if blind else arrived, behind > 0, now, now)
        for task, (stored, arrived, behind) in sums.items()
    }


def _since(mark: Mark, earlier: Mark | None) -> Mark:
    if earlier is None:
        return mark
    if not mark.same_place(earlier):
        return replace(mark, moved=True)
    if mark.behind and earlier.behind:
        return replace(mark, since=earlier.since, moved=earlier.moved)
    return mark


def _running(reading: Reading, flow_id: str) -> bool:
    flow = next(flow for flow in reading.flows if flow.id == flow_id)
    seen = reading.source_connector(flow)
    return bool(seen and seen.status and seen.status.state == "RUNNING")


def _mark(values: Mapping[str, Any]) -> Mark:
    arrived = values["arrived"]
    return Mark(
        int(values["stored"]),
        None if arrived is None else int(arrived),
        bool(values["behind"]),
        float(values["since"]),
        float(values["seen_at"]),
        bool(values["moved"]),
    )


def _times(values: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in values.items()}
