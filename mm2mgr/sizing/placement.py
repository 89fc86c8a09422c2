"""What a Connect cluster runs now: which tasks each worker has, what they carry, and whether worker and tasks can carry
it.

It is as Connect's status shows it: tasks of a worker that died are RUNNING there until the rebalance delay is over.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mm2mgr.link import WORKER_HEAP_BYTES
from mm2mgr.sizing.fleet import (
    SIDE_TASK_HEAP_BYTES,
    FlowRun,
    Fullest,
    Limit,
    WorkerLimits,
    over_limits,
)
from mm2mgr.sizing.load import statistic_of
from mm2mgr.text import list_names, number_of, rate_text, size_text

if TYPE_CHECKING:
    from mm2mgr.sizing.load import Array

_WITHOUT_WORKER = ("UNASSIGNED", "DESTROYED")


@dataclass(frozen=True)
class TaskPlacement:
    """A task, its state, and the worker that reported it last, as `host:port`."""

    number: int
    state: str
    worker: str


@dataclass(frozen=True)
class ConnectorPlacement:
    """A connector, the worker with its instance, and its tasks."""

    name: str
    worker: str
    tasks: tuple[TaskPlacement, ...]


@dataclass(frozen=True)
class WorkerNow:
    """A worker and what stops if it is lost: `tasks` of all connectors, as Connect counts them; of flows, which ones by
    number.

    `bytes_per_second` is what the flows' tasks carry at the same time, `heap_bytes` what they may take; `over_limits`:
    what of that is more than a worker is declared to carry.
    """

    worker: str
    connectors: int
    tasks: int
    flows: Mapping[str, tuple[int, ...]]
    bytes_per_second: float
    heap_bytes: float
    over_limits: tuple[Limit, ...] = ()
    json_keys = "worker connectors tasks flows bytes_per_second heap_bytes over_limits flow_tasks"

    @property
    def flow_tasks(self) -> int:
        """Tasks that move records of the tree's flows."""
        return sum(map(len, self.flows.values()))


@dataclass(frozen=True)
class RunningFlow:
    """A flow with the tasks that its connector has now, whatever number is recommended, and whether every one of them
    holds."""

    flow_id: str
    tasks: int
    busiest_bytes_per_second: float
    busiest_share: float
    fits: bool


@dataclass(frozen=True)
class Placement:
    """The workers that have anything, the flows that run, and the tasks without a worker. `note`: why nothing could be
    read."""

    workers: tuple[WorkerNow, ...] = ()
    nowhere: tuple[str, ...] = ()
    note: str = ""
    flows: tuple[RunningFlow, ...] = ()
    limits: WorkerLimits = field(default_factory=WorkerLimits)

    def sentences(self, declared: int | None) -> list[str]:
        """Say what is unusual: other workers than declared, too much for one, tasks without a worker, or nothing to be
        read."""
        if self.note:
            return [f"Running tasks could not be read, so an even spread is assumed: {self.note}."]
        worker_count = len(self.workers)
        sentences = []
        if declared is not None and worker_count and worker_count != declared:
            at_work = f"{worker_count} of them" if worker_count < declared else f"but {worker_count}"
            workers = number_of(declared, "worker")
            sentences.append(f"{workers} declared (workers: count), {at_work} with tasks or connectors.")
        sentences += [self._too_much(worker) for worker in self.workers if worker.over_limits]
        sentences += [
            f"{flow.flow_id} runs {number_of(flow.tasks, 'task')}: the busiest handles "
            f"{rate_text(flow.busiest_bytes_per_second)}, {flow.busiest_share * 100:.0f} % of the usable capacity."
            for flow in self.flows
            if not flow.fits
        ]
        if self.nowhere:
            sentences.append(f"Tasks without a worker now: {list_names(self.nowhere)}.")
        return sentences

    def _too_much(self, worker: WorkerNow) -> str:
        network, heap = self.limits.network_bytes_per_second, self.limits.heap_bytes
        words = {
            "tasks": f"{worker.flow_tasks} tasks of at most {self.limits.tasks}",
            "memory": f"{size_text(worker.heap_bytes)} of heap, more than fits {size_text(heap or 0)}",
            "network": f"{rate_text(worker.bytes_per_second)} each way of {rate_text(network or 0)}",
        }
        limits = list_names([words[limit] for limit in worker.over_limits])
        return f"{worker.worker} is overloaded as placed now: {limits}."


def placement_of(
    placements: Iterable[ConnectorPlacement], flows: Mapping[str, FlowRun], limits: WorkerLimits | None = None
) -> Placement:
    """Return who has what; `flows` are those of the tree by the name of the connector that moves their records.

    Task i of n carries what round-robin assignment gives it, whatever number of tasks `size` recommends.
    """
    limits = limits or WorkerLimits()
    connectors = sorted(placements, key=lambda placement: placement.name)
    instances = Counter([connector.worker for connector in connectors if connector.worker])
    held_by: dict[str, list[_Held]] = {name: [] for name in instances}
    nowhere, running = [], []
    for connector in connectors:
        run = flows.get(connector.name)
        if run and connector.tasks:
            count = len(connector.tasks)
            load = run.load
            share = load.busiest_share(count)
            running.append(RunningFlow(run.flow_id, count, load.busiest(count), share, load.fits(count)))
        for task, held in _placed_tasks(connector, run):
            if task.state in _WITHOUT_WORKER or not task.worker:
                nowhere.append(f"{connector.name}-{task.number}")
            else:
                held_by.setdefault(task.worker, []).append(held)
    workers = [_worker(name, instances[name], held, limits) for name, held in held_by.items()]
    workers.sort(key=lambda flow: (-flow.bytes_per_second, -flow.tasks, flow.worker))
    return Placement(tuple(workers), tuple(nowhere), flows=tuple(running), limits=limits)


@dataclass(frozen=True)
class _Held:
    """A task that a worker has: its flow (None: not of a flow), number, and bytes per second by hour."""

    run: FlowRun | None
    number: int
    hours: Array | float
    heap_bytes: float


def _placed_tasks(connector: ConnectorPlacement, run: FlowRun | None) -> Iterator[tuple[TaskPlacement, _Held]]:
    count = len(connector.tasks)
    by_task = run.load.hours_of(count) if run else ()
    heap = run.buffers.heap_bytes(math.ceil(len(run.load.hours) / count)) if run and count else SIDE_TASK_HEAP_BYTES
    for task in sorted(connector.tasks, key=lambda task: task.number):
        hours = by_task[task.number] if task.number < len(by_task) else 0.0
        yield task, _Held(run, task.number, hours, heap)


def _worker(name: str, connectors: int, held: Sequence[_Held], limits: WorkerLimits) -> WorkerNow:
    numbers: dict[str, list[int]] = {}
    hours: Array | float = 0.0
    for task in held:
        if task.run:
            numbers.setdefault(task.run.flow_id, []).append(task.number)
            hours = hours + task.hours
    runs = [task.run for task in held if task.run]
    load = float(statistic_of(hours, runs[0].load.statistic)) if runs and not isinstance(hours, float) else 0.0
    heap = WORKER_HEAP_BYTES + math.fsum(task.heap_bytes for task in held)
    over = over_limits(limits, Fullest(1, len(runs), load, heap))
    return WorkerNow(
        name, connectors, len(held), {flow_id: tuple(n) for flow_id, n in numbers.items()}, load, heap, over
    )
