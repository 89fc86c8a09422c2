"""How many workers a Connect cluster needs for its tasks, and which limit decides it: tasks, heap, or network;
and what its workers run now.

Connect spreads tasks by number, idle ones too, and not by load, so every limit is held against the fullest worker that
such a spread allows, not the mean. What runs is as Connect's status shows it: tasks of a worker that died are RUNNING
there until the rebalance delay is over.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Literal, get_args

from mm2mgr.connectors import ConnectorStatus, TaskStatus
from mm2mgr.link import HEAP_SHARE, MIB, WORKER_HEAP_BYTES, task_heap
from mm2mgr.sizing.load import Load, statistic_of
from mm2mgr.text import few, list_names, number_of, rate_text, size_text

if TYPE_CHECKING:
    from mm2mgr.sizing.load import Array

Limit = Literal["tasks", "memory", "network"]
SIDE_TASK_HEAP_BYTES = 8 * MIB  # checkpoints and heartbeats: clients with next to nothing in their buffers


@dataclass(frozen=True)
class WorkerLimits:
    """What one worker carries at most; None: not a limit. The network counts each direction by itself."""

    tasks: int = 10
    heap_bytes: float | None = None
    network_bytes_per_second: float | None = None


@dataclass(frozen=True)
class Failover:
    """The workers' settings that decide how long a lost worker's tasks stop: Kafka's, as REST shows none; and how many
    are lost at once.

    `session_seconds`: session.timeout.ms, until the loss is detected; `delay_seconds`: scheduled.rebalance.max.delay.ms
    (KIP-415). `lost_workers`: each number is judged by itself (empty: one, and two).
    """

    session_seconds: float = 10.0
    delay_seconds: float = 300.0
    lost_workers: tuple[int, ...] = ()

    @property
    def stopped_seconds(self) -> float:
        """How long tasks stop when the lost worker was not the leader of the Connect group."""
        return self.session_seconds + self.delay_seconds

    @property
    def leader_stopped_seconds(self) -> float:
        """How long when it was: the new leader remembers no earlier assignment, so it has no tasks to wait for."""
        return self.session_seconds


@dataclass(frozen=True)
class Buffers:
    """What a task may hold in memory, by its clients' settings; `brokers`: how many it fetches from at once."""

    fetch_bytes: int
    partition_fetch_bytes: int
    producer_bytes: int
    brokers: int = 1
    poll_records: int = 500

    def heap_bytes(self, partitions: int) -> float:
        """Return the heap of a task with so many partitions."""
        fetched = min(self.brokers * self.fetch_bytes, partitions * self.partition_fetch_bytes)
        return task_heap(fetched, self.poll_records) + self.producer_bytes


@dataclass(frozen=True)
class FlowRun:
    """A flow as a Connect cluster runs it: its load, assigned to `tasks`, of which it may have `most`.

    `capacity_bytes_per_second` is all that one task can move, `records_per_second` the flow's (None: not measured),
    `limit_used` the traffic of all flows under its catch-up limit as a share of that (0: no limit), `without_load` how
    many of its partitions have none. `is_guessed`: none of its partitions was measured.
    """

    flow_id: str
    pair: str
    load: Load
    tasks: int
    most: int
    capacity_bytes_per_second: float
    buffers: Buffers
    records_per_second: float | None = None
    limit_used: float = 0.0
    without_load: int = 0
    is_guessed: bool = False

    @cached_property
    def per_task(self) -> list[float]:
        """The load of each task, heaviest first."""
        return sorted(self.load.per_task(self.tasks), reverse=True)

    @property
    def heap_bytes(self) -> float:
        """Heap of one of its tasks; those with most partitions have one more than the others."""
        return self.heap_of(len(self.per_task))

    def heap_of(self, tasks: int) -> float:
        """Return the heap of one of so many tasks."""
        partitions = math.ceil((len(self.load.hours) - self.without_load) / tasks)
        by_number = not (self.load.runs_now(tasks) or self.load.is_balanced)
        return self.buffers.heap_bytes(partitions if by_number else self.load.fullest(tasks))


@dataclass(frozen=True)
class ConnectLoad:
    """What a Connect cluster has to carry. `side_tasks`: those of checkpoint and heartbeat connectors. `today`: its
    workers, if known."""

    name: str
    worker: WorkerLimits
    runs: tuple[FlowRun, ...]
    side_tasks: int = 0
    today: int | None = None
    failover: Failover = Failover()

    @cached_property
    def tasks(self) -> int:
        """Tasks that move records."""
        return sum(len(run.per_task) for run in self.runs)

    @cached_property
    def bytes_per_second(self) -> float:
        return math.fsum(run.load.total for run in self.runs)


@dataclass(frozen=True)
class Fullest:
    """What may meet on one of so many workers: tasks that move records, what goes in and out again, and heap."""

    workers: int
    tasks: int
    bytes_per_second: float
    heap_bytes: float


@dataclass(frozen=True)
class WorkerNeed:
    """How many workers a Connect cluster needs; None: no number does. `by_limit`: what each limit asks for."""

    connect: str
    tasks: int
    side_tasks: int
    bytes_per_second: float
    workers_today: int | None
    workers_needed: int | None
    by_limit: Mapping[Limit, int | None]
    fullest: Fullest
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class PairLayout:
    """One mirror cluster per pair of source and target, as MirrorMaker ran before, beside shared Connect clusters.

    Workers count one spare per cluster with any; `heap_bytes` are what processes take before the first record.
    """

    clusters: int
    workers: int
    heap_bytes: float
    shared_clusters: int
    shared_workers: int
    shared_heap_bytes: float
    json_keys = "clusters workers heap_bytes shared_clusters shared_workers shared_heap_bytes reason"

    @property
    def reason(self) -> str:
        """Say what the old layout would cost."""
        old = f"{number_of(self.clusters, 'cluster')}, {number_of(self.workers, 'worker')}"
        new = f"{number_of(self.shared_clusters, 'Connect cluster')} with {number_of(self.shared_workers, 'worker')}"
        heap = f"{size_text(self.heap_bytes)} and {size_text(self.shared_heap_bytes)} of heap before the first record"
        return (
            f"With one Connect cluster per source–target pair: {old}, instead of {new} (one spare worker each; {heap})."
        )


def fullest(load: ConnectLoad, workers: int) -> Fullest:
    """Return the most that may come together on one of so many workers.

    Connect gives each task to one of the emptiest workers (IncrementalCooperativeAssignor), so a worker has no more
    than its share of all tasks; at worst these are the heaviest. New connectors are spread evenly, but once a worker
    has gone and come back all tasks of one may be on one worker: `placement` judges what is.
    """
    places = share_of(load.tasks + load.side_tasks, workers)
    rates = heapq.nlargest(places, chain.from_iterable(run.per_task for run in load.runs))
    of_flows = chain.from_iterable(repeat(run.heap_bytes, len(run.per_task)) for run in load.runs)
    heaps = heapq.nlargest(places, chain(of_flows, repeat(SIDE_TASK_HEAP_BYTES, load.side_tasks)))
    return Fullest(workers, len(rates), math.fsum(rates), WORKER_HEAP_BYTES + math.fsum(heaps))


def share_of(tasks: int, workers: int) -> int:
    """Return how many of so many tasks the fullest worker of an even spread has."""
    return math.ceil(tasks / workers)


def over_limits(worker: WorkerLimits, fullest: Fullest) -> tuple[Limit, ...]:
    """Return the limits of a worker that are broken by what it has."""
    heap = math.inf if worker.heap_bytes is None else worker.heap_bytes * HEAP_SHARE
    network = math.inf if worker.network_bytes_per_second is None else worker.network_bytes_per_second
    over: dict[Limit, bool] = {
        "tasks": fullest.tasks > worker.tasks,
        "memory": fullest.heap_bytes > heap,
        "network": fullest.bytes_per_second > network,
    }
    return tuple(limit for limit, is_over in over.items() if is_over)


def need(load: ConnectLoad) -> WorkerNeed:
    """Return how many workers hold every limit."""
    by_limit = {limit: _workers_needed(load, limit) for limit in get_args(Limit)}
    asked = [workers for workers in by_limit.values() if workers is not None]
    workers = max(asked) if len(asked) == len(by_limit) else None
    at = fullest(load, workers or load.today or max(1, load.tasks))
    return WorkerNeed(
        load.name,
        tasks=load.tasks,
        side_tasks=load.side_tasks,
        bytes_per_second=load.bytes_per_second,
        workers_today=load.today,
        workers_needed=workers,
        by_limit=by_limit,
        fullest=at,
        reasons=tuple(_reasons(load, workers, by_limit, at)),
    )


def per_pair(loads: Sequence[ConnectLoad]) -> PairLayout:
    """Compare with the n × m layout: every pair has its own cluster of the same machines."""
    old = [need(alone) for load in loads for alone in _pairs_alone(load)]
    new = [need(load) for load in loads if load.runs]
    workers, shared = _with_spare(old), _with_spare(new)
    return PairLayout(
        clusters=len(old),
        workers=workers,
        heap_bytes=workers * WORKER_HEAP_BYTES,
        shared_clusters=len(new),
        shared_workers=shared,
        shared_heap_bytes=shared * WORKER_HEAP_BYTES,
    )


def _pairs_alone(load: ConnectLoad) -> list[ConnectLoad]:
    pairs: dict[str, list[FlowRun]] = {}
    for run in load.runs:
        pairs.setdefault(run.pair, []).append(run)
    side = math.ceil(load.side_tasks / max(1, len(pairs)))
    return [ConnectLoad(pair, load.worker, tuple(runs), side) for pair, runs in pairs.items()]


def _with_spare(needs: Sequence[WorkerNeed]) -> int:
    return sum((need.workers_needed or need.fullest.workers) + 1 for need in needs)


def _workers_needed(load: ConnectLoad, limit: Limit) -> int | None:

    def holds(workers: int) -> bool:
        return limit not in over_limits(load.worker, fullest(load, workers))

    most = max(1, load.tasks + load.side_tasks)
    return bisect_left(range(1, most), True, key=holds) + 1 if holds(most) else None


def _reasons(
    load: ConnectLoad, workers: int | None, by_limit: Mapping[Limit, int | None], at: Fullest
) -> Iterator[str]:
    worker = load.worker
    side = f", and {load.side_tasks} idle ones for checkpoints and heartbeats" if load.side_tasks else ""
    tasks = f"{number_of(load.tasks, 'task')} with {rate_text(load.bytes_per_second)} in and out{side}"
    alone, needed = max(1, share_of(load.tasks, worker.tasks)), by_limit["tasks"]
    crowded = (
        f", because Connect spreads idle ones too, so busy ones may end up together ({alone} without them)"
        if needed is not None and needed > alone
        else ""
    )
    yield f"{tasks}; at most {worker.tasks} on a worker: {_asks(needed)}{crowded}."
    if guessed := [run.flow_id for run in load.runs if run.is_guessed]:
        yield f"The load of what was not measured is a guess: {few(guessed)}."
    full = f"the fullest of {number_of(at.workers, 'worker')} may hold"
    if worker.heap_bytes is not None:
        usable = f"{size_text(worker.heap_bytes)} × {HEAP_SHARE * 100:g} %"
        yield f"Heap: {full} {size_text(at.heap_bytes)} of {usable}: {_asks(by_limit['memory'])}."
    else:
        yield f"Heap: {full} {size_text(at.heap_bytes)}; the limit of a worker is not declared (workers: memory)."
    rate = f"{rate_text(at.bytes_per_second)} each way"
    if worker.network_bytes_per_second is not None:
        of = rate_text(worker.network_bytes_per_second)
        yield f"Network: {full} {rate} of {of}: {_asks(by_limit['network'])}."
    else:
        yield f"Network: {full} {rate}; the limit of a worker is not declared (workers: network)."
    yield _verdict(load, workers)


def _asks(workers: int | None) -> str:
    return "not possible: a single task already exceeds the limit" if workers is None else number_of(workers, "worker")


def _verdict(load: ConnectLoad, workers: int | None) -> str:
    if workers is None:
        return (
            "No number of workers is enough: raise the limits of a worker, or give its tasks smaller fetches and"
            " buffers."
        )
    needed = f"{number_of(workers, 'worker')} needed, {workers + 1} with one spare"
    if load.today is None:
        return f"{needed}."
    verdict = "too few" if load.today < workers else "enough, without a spare" if load.today == workers else "enough"
    return f"{needed}; today {load.today}: {verdict}."


_WITHOUT_WORKER = ("UNASSIGNED", "DESTROYED")


@dataclass(frozen=True)
class WorkerNow:
    """A worker and what stops if it is lost: `tasks` of all connectors, as Connect counts; of flows by number.

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
    """A flow with the tasks that its connector has now, not those recommended, and whether each one holds."""

    flow_id: str
    tasks: int
    busiest_bytes_per_second: float
    busiest_share: float
    fits: bool


@dataclass(frozen=True)
class Placement:
    """The workers with anything, the flows that run, tasks without a worker. `note`: why nothing was read."""

    workers: tuple[WorkerNow, ...] = ()
    nowhere: tuple[str, ...] = ()
    note: str = ""
    flows: tuple[RunningFlow, ...] = ()
    limits: WorkerLimits = field(default_factory=WorkerLimits)

    def sentences(self, declared: int | None) -> list[str]:
        """Say what is unusual: undeclared workers, too much for one, tasks without a worker, or nothing read."""
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
    statuses: Iterable[ConnectorStatus], flows: Mapping[str, FlowRun], limits: WorkerLimits | None = None
) -> Placement:
    """Return who has what; `flows` are those of the tree by the name of the connector that moves their records.

    Each task carries what it has now, whatever number of tasks `size` recommends.
    """
    limits = limits or WorkerLimits()
    connectors = sorted(statuses, key=lambda status: status.name)
    instances = Counter(
        [connector.worker_id for connector in connectors if connector.worker_id and connector.state != "UNASSIGNED"]
    )
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
            if task.state in _WITHOUT_WORKER or not task.worker_id:
                nowhere.append(f"{connector.name}-{task.id}")
            else:
                held_by.setdefault(task.worker_id, []).append(held)
    workers = [_worker(name, instances[name], held, limits) for name, held in held_by.items()]
    workers.sort(key=lambda flow: (-flow.bytes_per_second, -flow.tasks, flow.worker))
    return Placement(tuple(workers), tuple(nowhere), flows=tuple(running), limits=limits)


_Held = tuple[FlowRun | None, int, "Array | float", float]
"""A task that a worker has: its flow (None: not of a flow), number, bytes per second by hour, and heap in bytes."""


def _placed_tasks(connector: ConnectorStatus, run: FlowRun | None) -> Iterator[tuple[TaskStatus, _Held]]:
    count = len(connector.tasks)
    by_task = run.load.hours_of(count) if run else ()
    heap = run.heap_of(count) if run and count else SIDE_TASK_HEAP_BYTES
    for task in sorted(connector.tasks, key=lambda task: task.id):
        yield task, (run, task.id, by_task[task.id] if task.id < len(by_task) else 0.0, heap)


def _worker(name: str, connectors: int, held: Sequence[_Held], limits: WorkerLimits) -> WorkerNow:
    numbers: dict[str, list[int]] = {}
    hours: Array | float = 0.0
    for run, number, hours_of_task, _ in held:
        if run:
            numbers.setdefault(run.flow_id, []).append(number)
            hours = hours + hours_of_task
    runs = [run for run, *_ in held if run]
    load = float(statistic_of(hours, runs[0].load.statistic)) if runs and not isinstance(hours, float) else 0.0
    heap = WORKER_HEAP_BYTES + math.fsum(heap_bytes for *_, heap_bytes in held)
    over = over_limits(limits, Fullest(1, len(runs), load, heap))
    return WorkerNow(
        name, connectors, len(held), {flow_id: tuple(n) for flow_id, n in numbers.items()}, load, heap, over
    )
