"""For how long a condition has been seen to last. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ConditionClock:
    """How long a condition has been seen to last. Time around an observation that could not see it does not count."""

    seconds: float
    seen_at: float
    paused: bool = False

    def on(self, now: float) -> ConditionClock:
        """Return the clock after an observation that saw the condition."""
        return ConditionClock(self.seconds + (0.0 if self.paused else max(0.0, now - self.seen_at)), now)

    def pause(self) -> ConditionClock:
        """Return the clock after an observation that could not see it."""
        return replace(self, paused=True)


def started(earlier: ConditionClock | None, now: float) -> ConditionClock:
    """Return the earlier clock, continued, or a new one."""
    return earlier.on(now) if earlier else ConditionClock(0.0, now)


def paused_all(clocks: Mapping[str, ConditionClock]) -> dict[str, ConditionClock]:
    """Return clocks after an observation that could not see their conditions."""
    return {name: clock.pause() for name, clock in clocks.items()}
