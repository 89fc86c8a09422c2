"""What is wrong with where the records of a flow arrive. Pure; the same kind of rules as in `problems`."""

from __future__ import annotations

from collections.abc import Iterator

from mm2mgr.observe.kinds import LiveProblem
from mm2mgr.observe.problems import FlowCase

_TOPICS_NAMED = 20


def target_topic_missing(case: FlowCase) -> Iterator[LiveProblem]:
    """Topics that tasks have and the target does not, while records wait; a new one is created at the next refresh."""
    waiting = {one.partition.topic for one in case.lag.counted if one.lag_records > 1}
    clocks = {topic: case.kept.absent.get(topic) for topic in (case.lag.absent or {}) if topic in waiting}
    limit = case.flow.settings.refresh_interval + case.patience.no_progress_seconds
    late = {topic: clock.seconds for topic, clock in clocks.items() if clock and clock.seconds > limit}
    if case.state == "RUNNING" and case.lag.absent and late:
        names = [case.lag.absent[topic] for topic in sorted(late)]
        found = {"topics": names[:_TOPICS_NAMED], "topic_count": len(late), "target": case.flow.target.alias}
        yield case.problem("target-topic-missing", found, since=max(late.values()))
