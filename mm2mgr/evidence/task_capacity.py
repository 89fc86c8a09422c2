"""Reads the measured capacity of one task per flow from the history of tasks in the sample store. It asks no cluster."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mm2mgr.secrets import is_secret
from mm2mgr.sizing.capacity import RECENT_DAYS, MeasuredCapacity, Saturated, TaskMeasurement, by_history, saturated

if TYPE_CHECKING:
    from mm2mgr.render import Connector
    from mm2mgr.samples.tasks import TaskRow
    from mm2mgr.topology import Flow

_RECENT_MS = RECENT_DAYS * 86_400_000
_OLDEST_MS = 12 * _RECENT_MS
# What reaches the client that reads and the one that writes, and what decides when a task commits.
_DECIDING = ("source.consumer.", "consumer.", "producer.override.", "exactly.once.", "transaction.", "transforms")
_DECIDING_TOO = ("source.cluster.security.protocol",)
_NOT_DECIDING = ("ssl.", "sasl.", "bootstrap.servers", "client.id")


class _Link(NamedTuple):
    """Where tasks were measured: one pair on one Connect cluster, under the same client settings."""

    connect: str
    source: str
    target: str
    settings: str


def settings_mark(config: Mapping[str, str]) -> str:
    """Return a digest of the settings that decide how much a connector's tasks carry: its client settings, without secrets."""
    deciding = sorted(
        (key, value)
        for key, value in config.items()
        if (key.startswith(_DECIDING) or key in _DECIDING_TOO)
        and not is_secret(key)
        and not any(part in key for part in _NOT_DECIDING)
    )
    return hashlib.sha256(repr([(str(key), str(value)) for key, value in deciding]).encode()).hexdigest()[:16]


def measured_capacities(
    connectors: Callable[[], Sequence[Connector]],
    store: str | Path,
    flows: Sequence[Flow],
    now_ms: int,
    warn: Callable[[str], None],
) -> dict[str, MeasuredCapacity]:
    """Return the measured capacity of one task by flow id, from the last 30 days, else from up to a year ago.

    Only measurements on the same Connect cluster under the client settings that the tree has today count: of the flow's own
    connector, else of another one of its pair. Flows without any are absent. `warn` gets a sentence per damaged file.
    """
    from mm2mgr.samples.tasks import TaskStore

    tasks = TaskStore(store, warn)
    history: dict[_Link, dict[str, tuple[Saturated, float]]] = {}
    for end_ms in range(now_ms + 1, now_ms - _OLDEST_MS, -_RECENT_MS):  # by the month, to save memory
        history = _history(tasks.read(end_ms - _RECENT_MS, end_ms)) | history
    if not history:
        return {}
    desired = {flow_id: one for one in connectors() for flow_id in one.flows if one.type == "source"}
    found = {}
    for flow in flows:
        own = desired[flow.id]
        pair = (flow.connect.name, flow.source.alias, flow.target.alias)
        held = history.get(_Link(*pair, settings_mark(own.config)), {})
        best = own.name if own.name in held else max(held, key=lambda name: held[name][1], default=None)
        if best is not None:
            whose = "" if best == own.name else best
            saturated_task, lagged_seconds = held[best]
            day = f"{datetime.fromtimestamp(saturated_task.ended_ms / 1000, UTC):%Y-%m-%d}"
            capacity = by_history(saturated_task, flow.settings.tasks.threshold, now_ms, day, whose)
            found[flow.id] = MeasuredCapacity(capacity, lagged_seconds)
    return found


def _history(rows: Iterable[TaskRow]) -> dict[_Link, dict[str, tuple[Saturated, float]]]:
    """Return by link what the tasks of each connector carried while they lagged, and for how many seconds; absent if only briefly."""
    by_connector: defaultdict[tuple[_Link, str], list[TaskRow]] = defaultdict(list)
    for row in rows:
        by_connector[_Link(row.connect, row.source, row.target, row.settings), row.connector].append(row)
    found: defaultdict[_Link, dict[str, tuple[Saturated, float]]] = defaultdict(dict)
    for (link, connector), mine in by_connector.items():
        if held := saturated(task_measurements(mine)):
            found[link][connector] = (held, _lagged_seconds(mine))
    return found


def _lagged_seconds(rows: Iterable[TaskRow]) -> float:
    """Return the lag time of the task that lagged longest."""
    by_task: Counter[int] = Counter()
    for row in rows:
        by_task[row.task] += row.span_ms
    return max(by_task.values(), default=0) / 1000


def task_measurements(rows: Iterable[TaskRow]) -> Iterator[TaskMeasurement]:
    """Yield rows of one connector, ordered by task and time, as measurements: each unbroken stretch counts as a task of its own.

    A row whose span does not begin at the row before it follows a gap (a lost file, for instance) and only opens a stretch.
    """
    last: tuple[int, int] | None = None
    stretch = 0
    for row in rows:
        if row.span_ms == 0 or last != (row.task, row.time_ms - row.span_ms):
            stretch += 1
        last = (row.task, row.time_ms)
        name = f"{row.connector}-{row.task}, stretch {stretch}"
        yield TaskMeasurement(name, row.time_ms, row.bytes_per_second, row.lag_records, row.uncertain_ms / 1000)
