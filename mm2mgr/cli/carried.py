"""What the history of tasks in a sample store says of each flow: the capacity of one task, measured, with its age.

In: the tree and the store. Out: what was measured by flow, absent where nothing was measured. It asks no cluster.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mm2mgr.output.console import talk
from mm2mgr.secrets import is_secret
from mm2mgr.sizing.capacity import RECENT_DAYS, MeasuredCapacity, Saturated, TaskMoment, by_history, saturated

if TYPE_CHECKING:
    from mm2mgr.operations.workspace import Workspace
    from mm2mgr.samples.tasks import TaskRow
    from mm2mgr.topology import Flow

_RECENT_MS = RECENT_DAYS * 86_400_000
_OLDEST_MS = 12 * _RECENT_MS
# What reaches the client that reads and the one that writes, and what decides when a task commits.
_DECIDING = ("source.consumer.", "consumer.", "producer.override.", "exactly.once.", "transaction.", "transforms")
_DECIDING_TOO = ("source.cluster.security.protocol",)
_NOT_DECIDING = ("ssl.", "sasl.", "bootstrap.servers", "client.id")


class _Link(NamedTuple):
    """Where tasks carried: one pair on one Connect cluster, under the same client settings."""

    connect: str
    source: str
    target: str
    settings: str


def settings_mark(config: Mapping[str, str]) -> str:
    """Return what a connector's config and one that carries otherwise differ in: its client settings, without secrets."""
    deciding = sorted(
        (key, value)
        for key, value in config.items()
        if (key.startswith(_DECIDING) or key in _DECIDING_TOO)
        and not is_secret(key)
        and not any(part in key for part in _NOT_DECIDING)
    )
    return hashlib.sha256(repr([(str(key), str(value)) for key, value in deciding]).encode()).hexdigest()[:16]


def measured_capacities(
    workspace: Workspace, store: Path, flows: Sequence[Flow], now_ms: int
) -> dict[str, MeasuredCapacity]:
    """Return the measured capacity of one task by flow id, from the last 30 days, else from up to a year ago.

    Only what was carried on the same Connect cluster under the client settings that the tree has today counts: by the
    flow's own connector, else by another one of its pair.
    """
    from mm2mgr.samples.tasks import TaskStore

    tasks = TaskStore(store, lambda warning: talk(f"  {warning}", style="yellow"))
    history: dict[_Link, dict[str, tuple[Saturated, float]]] = {}
    for end_ms in range(now_ms + 1, now_ms - _OLDEST_MS, -_RECENT_MS):  # by the month, as much as memory shall hold
        history = _history(tasks.read(end_ms - _RECENT_MS, end_ms)) | history
    if not history:
        return {}
    desired = {flow_id: one for one in workspace.connectors for flow_id in one.flows if one.type == "source"}
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
    """Return what tasks of each connector carried by link, and for how many seconds its tasks lagged; absent without a long stretch."""
    by_connector: defaultdict[tuple[_Link, str], list[TaskRow]] = defaultdict(list)
    for row in rows:
        by_connector[_Link(row.connect, row.source, row.target, row.settings), row.connector].append(row)
    found: defaultdict[_Link, dict[str, tuple[Saturated, float]]] = defaultdict(dict)
    for (link, connector), mine in by_connector.items():
        if held := saturated(task_moments(mine)):
            found[link][connector] = (held, _lagged_seconds(mine))
    return found


def _lagged_seconds(rows: Iterable[TaskRow]) -> float:
    """Return for how long the task lagged that did so longest."""
    by_task: Counter[int] = Counter()
    for row in rows:
        by_task[row.task] += row.span_ms
    return max(by_task.values(), default=0) / 1000


def task_moments(rows: Iterable[TaskRow]) -> Iterator[TaskMoment]:
    """Yield rows of one connector, ordered by task and time, as moments: each unbroken stretch is a task of its own.

    A row whose span does not begin at the row before it follows a gap, by a lost file for instance, and only opens.
    """
    last: tuple[int, int] | None = None
    stretch = 0
    for row in rows:
        if row.span_ms == 0 or last != (row.task, row.time_ms - row.span_ms):
            stretch += 1
        last = (row.task, row.time_ms)
        name = f"{row.connector}-{row.task}, stretch {stretch}"
        yield TaskMoment(name, row.time_ms, row.bytes_per_second, row.lag_records, row.uncertain_ms / 1000)
