"""What is wrong with what a flow copies beside its records. Pure; the same kind of rules as in `problems`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mm2mgr.observe.kinds import LiveProblem
from mm2mgr.observe.memory import SyncLook
from mm2mgr.observe.problems import FlowCase
from mm2mgr.observe.record_problems import topics_problem
from mm2mgr.observe.topic_sync import COPIED

_NAMED = 20


def sync_problems(case: FlowCase, looks: Mapping[str, Mapping[str, SyncLook]]) -> Iterator[LiveProblem]:
    """Settings and ACLs of topics that have not reached the target for longer than the connector takes from one round to the next."""
    for kind, copied in COPIED.items():
        look, sync = looks.get(kind, {}).get(case.flow.id), copied.sync(case.seen)
        if look is None or sync is None:
            continue
        limit = sync.interval_seconds + case.patience.not_synced_seconds
        late = [
            (topic, what, clock.seconds)
            for topic, clocks in look.missing.items()
            for what, clock in clocks.items()
            if clock.seconds > limit and not clock.paused
        ]
        if late:
            missing = sorted({copied.name(what) for _, what, _ in late})[:_NAMED]
            more = {copied.evidence: missing, "interval_seconds": sync.interval_seconds}
            longest = max(seconds for _, _, seconds in late)
            yield topics_problem(case, f"topic-{kind}-differ", {topic for topic, _, _ in late}, longest, more)
