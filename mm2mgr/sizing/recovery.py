"""How long a lag lasts, by number of workers, and what happens when workers are lost.

A flow has caught up when its busiest task has, so each time is that of the busiest task; None is never. Meanwhile
traffic goes on at the planned rate.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mm2mgr.sizing.fleet import ConnectLoad, FlowRun, Fullest, Limit, fullest, need, over_limits, share_of
from mm2mgr.sizing.load import Load
from mm2mgr.text import list_names, number_of, rate_text, size_text, span_text

_AS_GOOD = 1.005


@dataclass(frozen=True)
class Lag:
    """How far every flow is behind: so many seconds of its traffic, or so many records of the whole Connect cluster.

    `within_seconds`: how soon it should be gone (None: nobody asks).
    """

    seconds: float = 3600.0
    records: float | None = None
    within_seconds: float | None = None

    @property
    def text(self) -> str:
        """The lag in words."""
        return span_text(self.seconds) if self.records is None else f"{self.records:,.0f} records"


@dataclass(frozen=True)
class CatchUp:
    """Seconds until the last flow that catches up has done so (None: none does), which that is, and who never does."""

    seconds: float | None
    last_flow: str
    never: tuple[str, ...]


@dataclass(frozen=True)
class Recovery:
    """Time to catch up on so many workers: with today's tasks, and with as many as workers and partitions allow."""

    workers: int
    tasks: int
    now: CatchUp
    raised_tasks: int
    raised: CatchUp


@dataclass(frozen=True)
class WorkersWithin:
    """How many workers work off a lag within `within_seconds`, with so many `tasks`; None: no number does.

    `for_load`: the workers that the load needs without a lag (None: no number holds its limits). `catch_up`: how long
    it takes with the workers named; where there are none, with a worker for each task that partitions and limits allow.
    """

    within_seconds: float
    workers: int | None
    tasks: int
    for_load: int | None
    catch_up: CatchUp
    reason: str


@dataclass(frozen=True)
class WorkerLoss:
    """When workers are lost, up to `stopped_tasks` stop for `stopped_seconds`; then flows catch up or fall behind.

    If a lost worker led the Connect group they stop for `leader_stopped_seconds`; REST does not show who leads. None:
    for good. `after`: catching up from the longer stop. `behind_anyway`: flows that cannot keep up with all workers
    either.
    """

    lost: int
    workers: int
    stopped_tasks: int
    stopped_seconds: float | None
    leader_stopped_seconds: float | None
    broken: tuple[Limit, ...]
    after: CatchUp
    behind_anyway: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Outlook:
    """Losses and recoveries of one Connect cluster. `note`: why no recovery is estimated. `limited`: the flows that
    would catch up sooner without their catch-up limit, with the current workers. `within`: the workers that catch up
    within a given time, where one was given."""

    lag: str
    losses: tuple[WorkerLoss, ...]
    recoveries: tuple[Recovery, ...]
    note: str = ""
    limited: tuple[str, ...] = ()
    within: WorkersWithin | None = None


def _task_speed(load: ConnectLoad, run: FlowRun, workers: int, tasks: int) -> float:
    """Return what a task can move where `tasks` busy ones are spread over the workers, idle ones among them.

    A worker moves what its number of tasks moves at full capacity, or its network; more tasks than that share it.
    """
    most = max(1, min(tasks, share_of(tasks + load.side_tasks, workers)))
    speed = run.capacity_bytes_per_second * min(1.0, load.worker.tasks / most)
    network = load.worker.network_bytes_per_second
    return speed if network is None else min(speed, network / most)


def _utilisations(load: ConnectLoad, workers: int, tasks: Sequence[int]) -> dict[str, float]:
    """Return how busy the busiest task of each flow is when the flows have so many tasks, in their order, or its
    catch-up limit if that is busier: all that comes under it gets through at that rate together."""
    total = max(1, sum(tasks))
    return {
        run.flow_id: max(run.load.busiest(count) / _task_speed(load, run, workers, total), run.limit_used)
        for run, count in zip(load.runs, tasks, strict=True)
    }


def catch_up_seconds(behind_seconds: float, utilisation: float) -> float | None:
    """Return how long a task so many seconds behind takes to catch up: lag × u ÷ (1 − u); None is never.

    The backlog is lag × rate, and what is left for it is speed − rate.
    """
    return None if utilisation >= 1 else behind_seconds * utilisation / (1 - utilisation)


def behind_seconds(load: ConnectLoad, lag: Lag) -> float | None:
    """Return a lag as seconds of traffic; None where it is in records and no record size was measured.

    Flows without a record size are taken to have records like the others.
    """
    if lag.records is None:
        return lag.seconds
    rated = [run for run in load.runs if run.records_per_second]
    records = math.fsum(run.records_per_second or 0 for run in rated)
    size = math.fsum(run.load.total for run in rated)
    return lag.records * size / (records * load.bytes_per_second) if size else None


def outlook(load: ConnectLoad, workers: int, lag: Lag, counts: Sequence[int] = ()) -> Outlook:
    """Return what happens to a Connect cluster of `workers` that loses some at once, and recoveries by workers."""
    lost = load.failover.lost_workers
    asked = {min(count, workers) for count in lost} or {count for count in (1, 2) if count <= workers}
    losses = tuple(loss(load, workers, count) for count in sorted(asked))
    behind = behind_seconds(load, lag)
    if behind is None:
        return Outlook(
            lag.text, losses, (), "no record sizes were measured, so a lag in records cannot be converted to time"
        )
    usual = [max(1, workers // 2), workers, workers + 1, math.ceil(workers * 1.5), workers * 2, workers * 3]
    chosen = sorted(set(counts or usual))
    shares = _utilisations(load, workers, [len(run.per_task) for run in load.runs])
    limited = tuple(run.flow_id for run in load.runs if run.limit_used and shares[run.flow_id] == run.limit_used)
    within = None if lag.within_seconds is None else workers_within(load, behind, lag.text, lag.within_seconds)
    recoveries = tuple(recovery(load, count, behind) for count in chosen)
    return Outlook(lag.text, losses, recoveries, limited=limited, within=within)


def recovery(load: ConnectLoad, workers: int, behind: float) -> Recovery:
    """Return the time to catch up from so many seconds of traffic."""
    now = [len(run.per_task) for run in load.runs]
    raised = _raise_tasks(load, workers, now)
    first, second = (_catch_up(_utilisations(load, workers, tasks), behind) for tasks in (now, raised))
    return Recovery(workers, sum(now), first, sum(raised), second)


def workers_within(load: ConnectLoad, behind: float, lag: str, within_seconds: float) -> WorkersWithin:
    """Return how many workers work off so many seconds of traffic in time, and hold every limit without a lag, too.

    Tasks are raised as far as workers, partitions and limits allow. `lag` is the same in words.
    """
    for_load, tried = need(load).workers_needed, dict[int, Recovery]()

    def is_enough(workers: int) -> bool:
        tried[workers] = recovery(load, workers, behind)
        return _is_within(tried[workers].raised, within_seconds)

    fastest = _fastest(load, behind)
    if not _is_within(fastest, within_seconds):  # the many tasks that there may be need not be tried
        result = WorkersWithin(within_seconds, None, load.tasks, for_load, fastest, "")
        return replace(result, reason=_within_reason(load, lag, result))
    count, most = for_load or 1, load.side_tasks + sum(run.most for run in load.runs)
    while not is_enough(count) and count < most:
        count = min(most, 2 * count)
    is_found = _is_within(tried[count].raised, within_seconds)
    if is_found:
        first = max((fewer + 1 for fewer in tried if fewer < count), default=count)
        count = first + bisect_left(range(first, count), True, key=is_enough)
    at = tried[count]
    result = WorkersWithin(within_seconds, count if is_found else None, at.raised_tasks, for_load, at.raised, "")
    return replace(result, reason=_within_reason(load, lag, result))


def _is_within(catch_up: CatchUp, seconds: float) -> bool:
    return not catch_up.never and (catch_up.seconds or 0.0) <= seconds


def _fastest(load: ConnectLoad, behind: float) -> CatchUp:
    """Return the time that no number of workers and tasks beats: each partition has a worker of its own."""
    alone = ((run, float(run.load.alone.max(initial=0.0)) / _task_speed(load, run, 1, 1)) for run in load.runs)
    return _catch_up({run.flow_id: max(share, run.limit_used) for run, share in alone}, behind)


def _within_reason(load: ConnectLoad, lag: str, result: WorkersWithin) -> str:
    within, last, never = span_text(result.within_seconds), result.catch_up, result.catch_up.never
    tasks = number_of(result.tasks, "task")
    raised = tasks if result.tasks == load.tasks else f"{tasks} instead of {load.tasks}"
    if result.workers is not None:
        without = "no number holds the load" if result.for_load is None else f"{result.for_load} without a lag"
        needed = f"{number_of(result.workers, 'worker')} with {raised} work off {lag} of lag within {within}"
        return f"{needed}, in {span_text(last.seconds or 0.0)} ({without})."
    who = f"{last.last_flow} takes {span_text(last.seconds or 0.0)}"
    if never:
        who = f"{list_names(never)} never {'catches' if len(never) == 1 else 'catch'} up"
    return f"No number of workers works off {lag} of lag within {within}: even with a worker for each task, {who}."


def loss(load: ConnectLoad, workers: int, lost: int) -> WorkerLoss:
    """Return what happens when so many of the workers are lost at once."""
    left, tasks = workers - lost, [len(run.per_task) for run in load.runs]
    if left < 1:
        reason = "The only worker lost: no task runs." if workers == 1 else f"All {workers} workers lost: no task runs."
        return WorkerLoss(
            lost,
            workers=0,
            stopped_tasks=load.tasks,
            stopped_seconds=None,
            leader_stopped_seconds=None,
            broken=(),
            after=CatchUp(None, "", tuple(run.flow_id for run in load.runs)),
            behind_anyway=(),
            reason=reason,
        )
    seconds = load.failover.stopped_seconds
    before = _catch_up(_utilisations(load, workers, tasks), seconds).never
    stopped = min(load.tasks, fullest(load, workers).tasks * lost)
    after = _after_loss(load, left, stopped, seconds)
    after = replace(after, never=tuple(flow_id for flow_id in after.never if flow_id not in set(before)))
    rest = fullest(load, left)
    outcome = WorkerLoss(
        lost,
        workers=left,
        stopped_tasks=stopped,
        stopped_seconds=seconds,
        leader_stopped_seconds=load.failover.leader_stopped_seconds,
        broken=over_limits(load.worker, rest),
        after=after,
        behind_anyway=before,
        reason="",
    )
    return replace(outcome, reason=_loss_reason(load, rest, outcome))


def _after_loss(load: ConnectLoad, left: int, stopped: int, seconds: float) -> CatchUp:
    """Return how long flows take to catch up when the heaviest `stopped` tasks of each stood still for so long.

    Under a catch-up limit only what these were assigned is behind, while all of the limit is there for it.
    """
    times = dict[str, float | None]()
    for run in load.runs:
        count = len(run.per_task)
        speed = _task_speed(load, run, left, max(1, load.tasks))
        behind = math.fsum(run.per_task[:stopped]) / run.load.total if run.load.total else 0.0
        by_task = catch_up_seconds(seconds, run.load.busiest(count) / speed)
        by_limit = catch_up_seconds(seconds * behind, run.limit_used)
        times[run.flow_id] = None if by_task is None or by_limit is None else max(by_task, by_limit)
    return _last_of(times)


def _catch_up(busy: Mapping[str, float], behind: float) -> CatchUp:
    return _last_of({flow_id: catch_up_seconds(behind, utilisation) for flow_id, utilisation in busy.items()})


def _last_of(times: Mapping[str, float | None]) -> CatchUp:
    caught_up = {flow_id: seconds for flow_id, seconds in times.items() if seconds is not None}
    last = max(caught_up, key=caught_up.__getitem__, default="")
    return CatchUp(caught_up.get(last), last, tuple(flow_id for flow_id in times if flow_id not in caught_up))


def _raise_tasks(load: ConnectLoad, workers: int, now: Sequence[int]) -> list[int]:
    """Give the flows the room that the workers have, each in proportion to its tasks, up to its partitions and limit.

    Idle tasks take places too, except where one worker has room for all busy ones. Assignment goes by position, so more
    tasks can make a busier one: of the numbers in reach the best is taken.
    """
    places = max(load.worker.tasks, workers * load.worker.tasks - load.side_tasks)
    room = places / max(1, sum(now))
    return [
        _best_number(run.load, count, max(count, min(run.most, int(count * room))))
        for run, count in zip(load.runs, now, strict=True)
    ]


def _best_number(load: Load, least: int, most: int) -> int:
    """Return the number of tasks with the least load on the busiest one; of partitions that are assigned by load, the
    first that is as good as the most."""
    if not load.is_balanced:
        return min(range(least, most + 1), key=load.busiest)
    best = load.busiest(most) * _AS_GOOD
    return least + bisect_left(range(least, most), True, key=lambda tasks: load.busiest(tasks) <= best)


def _loss_reason(load: ConnectLoad, rest: Fullest, outcome: WorkerLoss) -> str:
    left = f"the remaining {number_of(rest.workers, 'worker')}" if rest.workers > 1 else "the remaining worker"
    runs = f"then {'runs' if rest.workers == 1 else 'run'} up to {number_of(rest.tasks, 'task')}"
    sentence = (
        f"{number_of(outcome.lost, 'worker')} lost of {outcome.workers + outcome.lost}: up to {outcome.stopped_tasks}"
        f" of {number_of(load.tasks, 'task')} stop for {_stop_text(load, outcome)}; {left}"
        f" {runs}{' each' if rest.workers > 1 else ''}"
    )
    words = {
        "tasks": f"more than {number_of(load.worker.tasks, 'task')}",
        "memory": (
            f"{size_text(rest.heap_bytes)} of heap, so it may run out of memory, and so may the worker that takes over"
        ),
        "network": f"{rate_text(rest.bytes_per_second)} each way",
    }
    sentence += (
        f"; too much for one: {list_names([words[limit] for limit in outcome.broken])}." if outcome.broken else "."
    )
    if outcome.behind_anyway:
        sentence += f" Falling behind even with all workers: {list_names(outcome.behind_anyway)}."
    if outcome.after.never:
        sentence += f" Falling behind until a worker is back: {list_names(outcome.after.never)}."
    if outcome.after.seconds is None or "memory" in outcome.broken:
        return sentence
    who = "All others have" if outcome.after.never or outcome.behind_anyway else "All flows have"
    return f"{sentence} {who} caught up {span_text(outcome.after.seconds)} after that, {outcome.after.last_flow} last."


def _stop_text(load: ConnectLoad, outcome: WorkerLoss) -> str:
    session, delay = (span_text(seconds) for seconds in (load.failover.session_seconds, load.failover.delay_seconds))
    if not load.failover.delay_seconds:
        return f"about {session} (session.timeout.ms)"
    leader = "it was" if outcome.lost == 1 else "one of them was"
    return (
        f"about {span_text(load.failover.stopped_seconds)} (session.timeout.ms of {session}, then"
        f" scheduled.rebalance.max.delay.ms of {delay}), or about {span_text(load.failover.leader_stopped_seconds)} if"
        f" {leader} the leader of the Connect group, because a new leader knows no earlier assignment (REST does not"
        " show the leader)"
    )
