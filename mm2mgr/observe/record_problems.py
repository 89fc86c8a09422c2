"""What is wrong with where the records of a flow arrive. Pure; the same kind of rules as in `problems`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mm2mgr.observe.kinds import LiveProblem
from mm2mgr.observe.problems import FlowCase

_TOPICS_NAMED = 20


def target_topic_missing(case: FlowCase) -> Iterator[LiveProblem]:
    """Topics that tasks have and the target does not, while records wait; a new one is created at the next refresh."""
    waiting = {one.partition.topic for one in case.lag.counted if one.lag_records > 1}
    late = {topic: seconds for topic, seconds in _late(case, lambda count: count == 0).items() if topic in waiting}
    if late:
        yield _problem(case, "target-topic-missing", late)


def target_partitions_fewer(case: FlowCase) -> Iterator[LiveProblem]:
    """Target topics with fewer partitions than their source's: where no refresh adds them, their records never arrive."""
    late = _late(case, lambda count: count > 0)
    if late:
        yield _problem(case, "target-partitions-fewer", late)


def record_problems(case: FlowCase) -> tuple[LiveProblem, ...]:
    """Return the problems of where a flow's records arrive."""
    return (*target_topic_missing(case), *target_partitions_fewer(case))


def _late(case: FlowCase, with_count: Callable[[int], bool]) -> dict[str, float]:
    """Return topics of which the target has too few partitions (so many) for longer than a refresh takes, with the seconds."""
    if case.state != "RUNNING":
        return {}
    clocks = {topic: case.kept.short.get(topic) for topic, count in (case.lag.short or {}).items() if with_count(count)}
    limit = case.flow.settings.refresh_interval + case.patience.no_progress_seconds
    return {topic: clock.seconds for topic, clock in clocks.items() if clock and clock.seconds > limit}


def _problem(case: FlowCase, kind: str, late: Mapping[str, float]) -> LiveProblem:
    names = [case.flow.remote_topic(topic) for topic in sorted(late)]
    found: Mapping[str, Any] = {
        "topics": names[:_TOPICS_NAMED],
        "topic_count": len(late),
        "source": case.flow.source.alias,
        "target": case.flow.target.alias,
    }
    return case.problem(kind, found, since=max(late.values()))
