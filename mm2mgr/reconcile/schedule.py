"""When `reconcile` does its next round, and which Connect clusters it leaves alone because they failed. Pure: times and chance come in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_JITTER = 0.1
LONGEST_BACKOFF_SECONDS = 600.0


@dataclass(frozen=True)
class RoundSchedule:
    """A round `every_seconds`; a Connect cluster that fails is asked after twice as long each time, ten minutes at most.

    `failures` are in a row; `due` is when a failing cluster is asked again, on the clock that `now` is of.
    """

    every_seconds: float
    failures: Mapping[str, int] = field(default_factory=dict)
    due: Mapping[str, float] = field(default_factory=dict)

    def after(self, now: float, asked: Iterable[str], failed: Iterable[str], chance: float) -> RoundSchedule:
        """Return the schedule after a round; `chance` is between 0 and 1. Clusters that were not asked stay as they are."""
        failures, due, failing = dict(self.failures), dict(self.due), set(failed)
        for name in asked:
            failures.pop(name, None)
            due.pop(name, None)
            if name in failing:
                failures[name] = self.failures.get(name, 0) + 1
                due[name] = now + self._spread(self._backoff(failures[name]), chance)
        return RoundSchedule(self.every_seconds, failures, due)

    def resting(self, now: float) -> dict[str, float]:
        """Return the Connect clusters that are not asked now, each with the seconds until it is."""
        return {name: due - now for name, due in self.due.items() if due > now}

    def pause(self, chance: float) -> float:
        """Return the seconds between two rounds: 10 % more or less, so that processes that began together drift apart."""
        return self._spread(self.every_seconds, chance)

    def _backoff(self, failures: int) -> float:
        longest = max(self.every_seconds, LONGEST_BACKOFF_SECONDS)
        return min(longest, self.every_seconds * 2.0 ** min(failures, 30))

    def _spread(self, seconds: float, chance: float) -> float:
        return seconds * (1 - _JITTER + 2 * _JITTER * chance)
