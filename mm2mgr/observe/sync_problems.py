"""What is wrong with what a flow copies beside its records. Pure; the same kind of rules as in `problems`."""

from __future__ import annotations

from collections.abc import Iterator

from mm2mgr.observe.config_sync import config_sync
from mm2mgr.observe.kinds import LiveProblem
from mm2mgr.observe.memory import ConfigLook
from mm2mgr.observe.problems import FlowCase
from mm2mgr.observe.record_problems import topics_problem

_SETTINGS_NAMED = 20


def topic_configs_differ(case: FlowCase, look: ConfigLook | None) -> Iterator[LiveProblem]:
    """Settings of topics that have not reached the target for longer than the connector takes from one round to the next."""
    sync = config_sync(case.seen)
    if look is None or sync is None:
        return
    limit = sync.interval_seconds + case.patience.not_synced_seconds
    late = [
        (topic, setting.partition("=")[0], clock.seconds)
        for topic, clocks in look.differing.items()
        for setting, clock in clocks.items()
        if clock.seconds > limit and not clock.paused
    ]
    if late:
        settings = sorted({name for _, name, _ in late})[:_SETTINGS_NAMED]
        more = {"settings": settings, "interval_seconds": sync.interval_seconds}
        longest = max(seconds for _, _, seconds in late)
        yield topics_problem(case, "topic-configs-differ", {topic for topic, _, _ in late}, longest, more)
