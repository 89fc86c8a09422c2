"""What is wrong with where the records of a flow arrive. Pure; the same kind of rules as in `problems`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from mm2mgr.observe.kinds import LiveProblem
from mm2mgr.observe.memory import Unarrived
from mm2mgr.observe.problems import FlowCase, no_progress

_TOPICS_NAMED = 20


def target_topic_missing(case: FlowCase) -> Iterator[LiveProblem]:
    """Topics that tasks have and the target does not, while records wait; a new one is created at the next refresh."""
    waiting = {one.partition.topic for one in case.lag.counted if one.lag_records > 1} - _written_elsewhere(case).keys()
    late = {topic: seconds for topic, seconds in _late(case, lambda count: count == 0).items() if topic in waiting}
    if late:
        yield topics_problem(case, "target-topic-missing", late, max(late.values()))


def target_partitions_fewer(case: FlowCase) -> Iterator[LiveProblem]:
    """Target topics with fewer partitions than their source's: where no refresh adds them, their records never arrive."""
    late = _late(case, lambda count: count > 0)
    if late:
        yield topics_problem(case, "target-partitions-fewer", late, max(late.values()))


def records_not_on_target(case: FlowCase) -> Iterator[LiveProblem]:
    """Records that are mirrored by the stored offsets while the remote topics stand still or are not there: they go elsewhere."""
    lost = _written_elsewhere(case)
    if lost:
        seconds = max(one.clock.seconds for one in lost.values() if one.clock)
        records = {"records": sum(one.records for one in lost.values())}
        yield topics_problem(case, "records-not-on-target", lost, seconds, records)


def slower_than_production(case: FlowCase) -> Iterator[LiveProblem]:
    """A lag that grows for long while every task mirrors; where one does not, that is another problem."""
    status, found = case.seen.status, case.trend
    if status is None or not status.runs or not case.lag.total_records or not case.marks or any(no_progress(case)):
        return
    if found is None or found.direction != "growing" or found.seconds < case.patience.slower_seconds:
        return
    net, produced, mirrored = found.net, found.produced, found.mirrored
    if net and produced and mirrored and net.mean > net.error and mirrored.mean > mirrored.error:
        evidence = {
            "produced_records_per_second": produced.mean,
            "mirrored_records_per_second": mirrored.mean,
            "grown_records": found.records,
            "lag_records": case.lag.total_records,
        }
        yield case.problem("slower-than-production", evidence, since=found.seconds)


def record_problems(case: FlowCase) -> tuple[LiveProblem, ...]:
    """Return the problems of where a flow's records arrive."""
    return (
        *target_topic_missing(case),
        *target_partitions_fewer(case),
        *records_not_on_target(case),
        *slower_than_production(case),
    )


def _written_elsewhere(case: FlowCase) -> dict[str, Unarrived]:
    """Return the topics whose stored offsets advance without a record on the target.

    Only a record that a task has handed over moves its stored offset: transaction markers, aborted transactions and what compaction
    removed do not. Transforms may drop records, and so do tolerated errors, and a replication policy that is not known here gives
    other names: such flows are left out. Two advances, since one may be a reset.
    """
    config = case.seen.info.config if case.seen.info else {}
    drops = config.get("transforms") or config.get("errors.tolerance", "none") != "none"
    if drops or case.flow.selection.policy is None:
        return {}
    limit = case.patience.not_on_target_seconds
    return {
        topic: one
        for topic, one in case.kept.unarrived.items()
        if one.advances > 1 and one.clock and not one.clock.paused and one.clock.seconds >= limit
    }


def _late(case: FlowCase, with_count: Callable[[int], bool]) -> dict[str, float]:
    """Return topics of which the target has too few partitions (so many) for longer than a refresh takes, with the seconds."""
    if case.state != "RUNNING":
        return {}
    clocks = {topic: case.kept.short.get(topic) for topic, count in (case.lag.short or {}).items() if with_count(count)}
    limit = case.flow.settings.refresh_interval + case.patience.no_progress_seconds
    return {topic: clock.seconds for topic, clock in clocks.items() if clock and clock.seconds > limit}


def topics_problem(
    case: FlowCase, kind: str, topics: Iterable[str], seconds: float, more: Mapping[str, Any] | None = None
) -> LiveProblem:
    """Return a problem of some of a flow's topics, named as on the target."""
    names = sorted(case.flow.remote_topic(topic) for topic in topics)
    found = {
        "topics": names[:_TOPICS_NAMED],
        "topic_count": len(names),
        "source": case.flow.source.alias,
        "target": case.flow.target.alias,
        **(more or {}),
    }
    return case.problem(kind, found, since=seconds)
