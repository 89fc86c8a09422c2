"""What interrupts a flow: changes of its assignment and tasks that become FAILED, counted over 30 days. Pure.

Only what two looks show is counted: a task that fails, is restarted and fails again in between counts once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mm2mgr.assignment import ASSIGNED_KEY
from mm2mgr.connectors import RunningConnector
from mm2mgr.errors import Failure
from mm2mgr.text import number_of

_HOUR, _DAY, _DAYS_30 = 3600.0, 86_400.0, 30 * 86_400.0
_SHORTEST = 300
_LONGEST_LOOK_SECONDS = 120.0  # what is older is no look at the same time, but a clock that was set back
_MOST_SPANS = 100  # 13 of five minutes, 25 hours and 32 days; more only where a clock was set back


class InterruptionCounts(NamedTuple):
    """Changes of an assignment: looks at which tasks had other partitions or other workers than at the look before;
    `worker_changes` are those with a task on another worker. `failures`: the tasks that became FAILED, and the
    connector.
    """

    assignment_changes: int = 0
    worker_changes: int = 0
    failures: int = 0

    def add(self, other: InterruptionCounts) -> InterruptionCounts:
        """Return the sum of both."""
        return InterruptionCounts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def to_dict(self) -> dict[str, int]:
        return self._asdict()

    @property
    def text(self) -> str:
        """The counts in words, empty where there is none."""
        changes, workers = number_of(self.assignment_changes, "assignment change"), self.worker_changes
        by_workers = f" ({workers} with tasks on other workers)" if workers else ""
        failures = number_of(self.failures, "failure")
        parts = [f"{changes}{by_workers}"] if self.assignment_changes else []
        return " and ".join([*parts, f"{failures} of tasks"] if self.failures else parts)

    @property
    def as_cause(self) -> str:
        """The counts of the last hour as a cause of lag, for the middle of a sentence; empty where there is none."""
        return f"; {self.text} in the last hour, and nothing is mirrored while tasks start again" if any(self) else ""


@dataclass(frozen=True)
class Interruptions:
    """The counts of a flow by the start of a span (seconds since 1970): of five minutes in the last hour, of an hour in
    the last day, else of a day. `since`: when the counting began (0.0: not yet).

    `assigned` is a digest of the partitions of its tasks, `workers` the worker of each task, `failed` what was FAILED
    (`connector`, or the number of a task), all as they were last seen, at `seen_at`.
    """

    since: float = 0.0
    seen_at: float = 0.0
    assigned: str = ""
    workers: Mapping[str, str] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()
    spans: Mapping[int, InterruptionCounts] = field(default_factory=dict)

    def since_then(self, then: float) -> InterruptionCounts:
        """Return what was counted in spans that began after `then` (seconds since 1970)."""
        total = InterruptionCounts()
        for start, counts in self.spans.items():
            total = total.add(counts) if start > then else total
        return total

    def spans_with_changes(self, now: float) -> int:
        """Return in how many five-minute spans of the last hour the assignment changed: workers that restart one after
        the other change it at many looks, and are one event."""
        then = now - _HOUR - _SHORTEST
        return sum(counts.assignment_changes > 0 for start, counts in self.spans.items() if start > then)


@dataclass(frozen=True)
class InterruptionReport:
    """What interrupted a flow in the last hour (to five minutes) and in the last 30 days (to a day); counted since
    `since`, in seconds since 1970.
    """

    since: float
    last_hour: InterruptionCounts
    last_30_days: InterruptionCounts

    @classmethod
    def read(cls, interruptions: Interruptions, now: float) -> InterruptionReport | None:
        """Return it; None where nothing was looked at yet."""
        if not interruptions.since:
            return None
        last_hour = interruptions.since_then(now - _HOUR - _SHORTEST)
        return cls(interruptions.since, last_hour, interruptions.since_then(now - _DAYS_30 - _DAY))

    def add(self, other: InterruptionReport) -> InterruptionReport:
        """Return the sum of both, such as of two lanes, counted since both were."""
        last_30_days = self.last_30_days.add(other.last_30_days)
        return InterruptionReport(max(self.since, other.since), self.last_hour.add(other.last_hour), last_30_days)

    @property
    def text(self) -> str:
        """Both counts in words."""
        return describe_counts(self.last_hour, self.last_30_days)


def describe_counts(last_hour: InterruptionCounts, last_30_days: InterruptionCounts) -> str:
    """Return the counts of the last hour, and those of 30 days where they are more, in words."""
    before = "" if last_30_days == last_hour else f", {last_30_days.text} in 30 days"
    return f"{last_hour.text} in the last hour{before}"


def follow_interruptions(old: Interruptions, running: RunningConnector, now: float) -> Interruptions:
    """Return the counts after a look; what it does not show (tasks that could not be read, no status, a connector that
    is STOPPED, a task on its way to a worker) stays as it was seen before. A look that began before the last one and
    ends after it, of another process, changes nothing: it would count a change back and forth.
    """
    if 0 < old.seen_at - now < _LONGEST_LOOK_SECONDS:
        return old
    assigned = _assignment_digest(running) or old.assigned
    workers, failed = dict(old.workers), old.failed
    if status := running.status:
        at_work = {
            str(task.id): task.worker_id for task in status.tasks if task.state not in ("UNASSIGNED", "DESTROYED")
        }
        workers = {task: worker for task, worker in (workers | at_work).items() if worker and _has(running, task)}
        failed = frozenset(str(task.id) for task in status.tasks if task.state == "FAILED")
        failed |= {"connector"} if status.state == "FAILED" else set()
    moved = any(old.workers.get(task, worker) != worker for task, worker in workers.items())
    changed = moved or bool(old.assigned and assigned != old.assigned)
    counts = InterruptionCounts(int(changed), int(moved), len(failed - old.failed) if old.since else 0)
    return Interruptions(old.since or now, now, assigned, workers, failed, _spans(old.spans, counts, now))


def _assignment_digest(running: RunningConnector) -> str:
    """Another order of the same partitions is another config, for which Connect restarts a task."""
    if isinstance(running.tasks, Failure) or not running.tasks:
        return ""
    texts = sorted((task.id, task.config.get(ASSIGNED_KEY, "")) for task in running.tasks)
    return hashlib.blake2b(repr(texts).encode(), digest_size=12).hexdigest()


def _has(running: RunningConnector, task: str) -> bool:
    return not running.task_ids or int(task) in running.task_ids


def _spans(
    old: Mapping[int, InterruptionCounts], counts: InterruptionCounts, now: float
) -> dict[int, InterruptionCounts]:
    spans: dict[int, InterruptionCounts] = {}
    latest = [(int(now), counts)] if any(counts) else []
    for start, span_counts in (*old.items(), *latest):
        if start > now - _DAYS_30 - _DAY:
            first = start - start % _width(start, now)
            spans[first] = spans.get(first, InterruptionCounts()).add(span_counts)
    return dict(sorted(spans.items())[-_MOST_SPANS:])


def _width(start: int, now: float) -> int:
    age = now - start
    return _SHORTEST if age < _HOUR + _SHORTEST else round(_HOUR) if age < _DAY + _HOUR else round(_DAY)
