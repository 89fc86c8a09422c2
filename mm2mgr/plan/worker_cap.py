"""Holds Connect clusters to the tasks that their workers are declared to carry: `tasks_per_worker` × workers. Pure.

Connect itself knows no such limit, and gives the tasks of a lost worker to the others: one that gets too many fails,
and then the next one (Wayfair's domino effect; the fix was Brooklin's maxTasksPerInstance). Tasks of all owners count,
but those of checkpoint and heartbeat connectors, which are idle. Only what raises the tasks is ever blocked: of several
such changes as many go on as fit once all others are written, the smallest first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mm2mgr.comparison.differences import Named, selects_otherwise
from mm2mgr.connectors import RunningConnector, tasks_max_of
from mm2mgr.plan.changes import WRITES, Change, type_of
from mm2mgr.remarks import Remark
from mm2mgr.text import few, number_of

ALLOW = "tasks-per-worker"
"""The costly kind of change (`changes.KINDS`), and the rule that remarks name."""
_IDLE = frozenset({"checkpoint", "heartbeat"})
_REMEDY = (
    "add workers (workers: {count: …}), lower the tasks of this flow or of others, or raise tasks_per_worker where a"
    f" worker carries more; to exceed it, add --allow {ALLOW}"
)
_UNREAD_REMEDY = f"plan again when they can be read, or declare workers: {{count: …}}; else add --allow {ALLOW}"


@dataclass(frozen=True)
class TaskCount:
    """The tasks of one connector as it runs, and once its change is written."""

    now: int
    after: int

    @property
    def grows_by(self) -> int:
        return self.after - self.now

    @property
    def as_it_runs(self) -> TaskCount:
        """The count of a connector that is left alone."""
        return TaskCount(self.now, self.now)


@dataclass(frozen=True)
class WorkerCap:
    """What one worker of a Connect cluster may carry, and the tasks that all of them carry and would, by connector.

    `workers`: how many there are, declared or seen with a connector or a task (None: none is seen, or they could not be
    read: `unread` says why). `others`: the connectors that run there and are not this tree's.
    """

    per_worker: int
    tasks: Mapping[str, TaskCount]
    workers: int | None = None
    is_declared: bool = False
    unread: str = ""
    others: frozenset[str] = frozenset()

    @property
    def is_raised(self) -> bool:
        """Tell whether any connector gets more tasks."""
        return any(count.grows_by > 0 for count in self.tasks.values())

    def remarks(
        self, connect: str, writes: Collection[str], *, allowed: bool, first: Collection[str] = ()
    ) -> Iterator[tuple[str, Remark]]:
        """Yield what is said of connectors that get more tasks; `writes`: those that are created, updated or deleted.

        Any other connector stays as it runs. `allowed`: nothing is blocked. `first`: those that are deleted before
        others are written.
        """
        grown = {name: count.grows_by for name, count in self.tasks.items() if name in writes and count.grows_by > 0}
        if not grown or (self.workers is None and not self.unread):
            return
        if self.workers is None:
            text = (
                f"whether more tasks fit the workers of '{connect}' is unknown: they could not be read ({self.unread})"
            )
            remark = Remark(text, "warns" if allowed else "blocks", _UNREAD_REMEDY, ALLOW)
            yield from ((name, remark) for name in grown)
            return
        total = sum(
            count.after if name in writes and name not in grown else count.now for name, count in self.tasks.items()
        )
        # A plan may leave an overloaded cluster as it is.
        written, most = [], max(self.per_worker * self.workers, sum(count.now for count in self.tasks.values()))
        for name in sorted(grown, key=lambda name: (grown[name], name)):
            if allowed or total + grown[name] <= most:
                total += grown[name]
                written.append(name)
            else:
                yield name, Remark(self._excess(connect, total + grown[name]), "blocks", _REMEDY, ALLOW)
        later = {
            name: count.now - count.after
            for name, count in self.tasks.items()
            if name in writes and name not in first and count.grows_by < 0
        }
        texts = [*self._warnings(connect, total), *self._warnings_meanwhile(connect, total, later)]
        warnings = [Remark(text, "warns", rule=ALLOW) for text in texts]
        yield from ((name, warning) for name in written for warning in warnings)

    def _warnings(self, connect: str, total: int) -> Iterator[str]:
        workers = self.workers or 0
        if total > self.per_worker * workers:
            yield self._excess(connect, total)
        elif workers > 1 and total > (rest := self.per_worker * (workers - 1)):
            lost = f"if one of the {self._workers} of '{connect}' is lost, its {number_of(total, 'task')} are more than"
            yield f"{lost} the {rest} that the rest may have: an overloaded worker may fail, and the next one after it"

    def _warnings_meanwhile(self, connect: str, total: int, later: Mapping[str, int]) -> Iterator[str]:
        """Yield that tasks which go run beside the new ones until then; `later`: how many of which connector."""
        most, together = self.per_worker * (self.workers or 0), total + sum(later.values())
        if total <= most < together:
            yield (
                f"up to {number_of(together, 'task')} run on '{connect}' at first, because those of"
                f" {few(sorted(later))} go later: its {self._workers} may have {most}; to keep to that,"
                " apply what gives up tasks first"
            )

    def _excess(self, connect: str, total: int) -> str:
        others = sum(self.tasks[name].now for name in self.others & self.tasks.keys())
        not_ours = f", {others} of them not this tree's" if others else ""
        most = self.per_worker * (self.workers or 0)
        return f"{number_of(total, 'task')} on '{connect}'{not_ours}: its {self._workers} may have {most}"

    @property
    def _workers(self) -> str:
        workers = number_of(self.workers or 0, "worker")
        return f"{workers}{'' if self.is_declared else ' seen at work'} with tasks_per_worker: {self.per_worker}"


# --- counting ---------------------------------------------------------------------------------------------------------

Partitions = Callable[[Named], "int | None"]
"""How many partitions a declared connector takes that its source has now; None: not known."""


def count_tasks(
    connect: str,
    running: Mapping[str, RunningConnector],
    changes: Iterable[Change],
    stopped: Iterable[Named],
    partitions: Partitions = lambda _: None,
) -> dict[str, TaskCount]:
    """Return the tasks of each connector on a Connect cluster that count; `stopped`: those that are declared so.

    A connector of this tree without tasks that is not declared STOPPED counts as if it had them: it starts just now, or
    is resumed later, and no plan is asked then.
    """
    declared_stopped, by_name = set(stopped), {change.connector: change for change in changes}
    counts = {}
    for name in dict.fromkeys((*running, *by_name)):
        live, change = running.get(name), by_name.get(name)
        kind = change.type if change else type_of(live.config) if live else ""
        if kind in _IDLE:
            continue
        rests = (connect, name) in declared_stopped
        if live and (change is None or change.action == "blocked"):
            counts[name] = TaskCount(len(live.task_ids), len(live.task_ids))
        elif change:
            counts[name] = _count(change, live, partitions, rests=rests)
    return counts


def _count(change: Change, live: RunningConnector | None, partitions: Partitions, *, rests: bool) -> TaskCount:
    """Return the tasks of a connector of this tree; its partitions bound them (KAFKA-9352) where they are known."""

    def task_count(config: Mapping[str, str]) -> int:
        count, most = partitions(change.full_name), _tasks_max(config)
        return most if count is None else min(most, max(1, count))

    is_started = live is not None and change.state is not None and change.state[1] == "RUNNING" and not live.task_ids
    now = 0
    if live is not None:
        now = len(live.task_ids) or (0 if rests or is_started else task_count(live.config))
    if change.action == "delete" or (rests and change.action in WRITES):
        return TaskCount(now, 0)
    if change.action not in WRITES:
        return TaskCount(now, now)
    config = change.config or {}
    if live is None or is_started or _takes_more(live.config, config):
        return TaskCount(now, task_count(config))
    return TaskCount(now, min(now, _tasks_max(config)))


def _takes_more(live: Mapping[str, str], config: Mapping[str, str]) -> bool:
    """Tell whether an update alone may give a connector more tasks: a larger number, or other topics."""
    return _tasks_max(config) > _tasks_max(live) or selects_otherwise(live, config)


def _tasks_max(config: Mapping[str, str]) -> int:
    count = tasks_max_of(config)
    return 1 if count is None else count
