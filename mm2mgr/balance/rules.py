"""What a plan of a balanced assignment goes by: the numbers that people configure, and what was seen before, as
values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.tasks import Bounds, Capacity, Rules
from mm2mgr.text import number_of, span_text

DAY_SECONDS = 86_400.0
ROUNDS_PER_DAY = 1
ELASTIC_ROUNDS_PER_DAY = 3
"""Where tasks follow the week: one round after they were given up at night, one after they were added before the
morning's peak, and one for an overload."""


@dataclass(frozen=True)
class BalanceRules:
    """The numbers that people configure.

    `capacity`, `bounds`: of a task, as for `size`. `default_bytes_per_second`: of a partition where none is measured.
    `imbalance`: how many times the mean (or the least possible, where one partition is above it) the busiest task may
    have. `looks`: in how many looks in a row that, or a task over its usable capacity, must be seen. `least_gain`: the
    share of the busiest task's load that a change must take away. `cool_down_seconds`, `rounds_per_day`: between
    changes, and how many in any 24 hours. `least_coverage`: the share of partitions with a fresh rate below which
    nothing changes; `stale_seconds`: the age above which a rate is not fresh. `hysteresis`: the share of the usable
    capacity that the busiest task may have after tasks were added or given up. `pinned` stay on the task that they
    have.
    """

    capacity: Capacity = Capacity()
    bounds: Bounds = Bounds()
    default_bytes_per_second: float = 5_000.0
    imbalance: float = 1.10
    looks: int = 2
    least_gain: float = 0.05
    cool_down_seconds: float = 3_600.0
    rounds_per_day: int = ROUNDS_PER_DAY
    least_coverage: float = 0.5
    stale_seconds: float = 7_200.0
    hysteresis: float = 0.9
    pinned: frozenset[TopicPartition] = frozenset()

    @classmethod
    def of_sizing(cls, rules: Rules) -> BalanceRules:
        """Return those of a flow that is sized by `rules`."""
        return cls(rules.capacity, rules.bounds, rules.default_bytes_per_second)

    def allowed_at(self, rounds_seconds: Iterable[float], now_seconds: float) -> float:
        """Return when the next round may be, in seconds since 1970: now, or later, or never (infinite).

        Rounds of a clock that is ahead count as of now.
        """
        times = sorted(min(seconds, now_seconds) for seconds in rounds_seconds)
        if self.rounds_per_day < 1:
            return math.inf
        due = [now_seconds, *(seconds + self.cool_down_seconds for seconds in times[-1:])]
        if len(times) >= self.rounds_per_day:
            due.append(times[-self.rounds_per_day] + DAY_SECONDS)
        return max(due)

    def wait_reason(self, rounds_seconds: Iterable[float], now_seconds: float) -> str | None:
        """Say why another round has to wait; None where it has not."""
        times = sorted(min(seconds, now_seconds) for seconds in rounds_seconds)
        if self.allowed_at(times, now_seconds) <= now_seconds:
            return None
        if self.rounds_per_day < 1:
            return "rounds_per_day is 0"
        in_a_day = sum(now_seconds - seconds < DAY_SECONDS for seconds in times)
        if in_a_day >= self.rounds_per_day:
            return f"the last 24 hours had {number_of(in_a_day, 'change')}, and the limit is {self.rounds_per_day}"
        ago = f"the last change was {span_text(now_seconds - times[-1])} ago"
        return f"{ago}, and {span_text(self.cool_down_seconds)} must be between two"


@dataclass(frozen=True)
class LoadLook:
    """The tasks of a connector as one look found them, by measured rates only; loads are shares of the usable capacity.

    `seconds`: since 1970. `busiest`: the load of the busiest task, without those that are busy with one hot partition.
    `mean`, `bound`: the mean of these tasks, and the load below which no assignment gets. `least_tasks`: a number below
    which tasks are above `hysteresis` of the usable. `unmeasured`: partitions of which nothing is known.
    """

    seconds: float
    tasks: int
    busiest: float
    mean: float
    bound: float
    least_tasks: int
    unmeasured: int = 0


@dataclass(frozen=True)
class BalanceHistory:
    """What is known at the time of planning: the time (seconds since 1970), looks and times of rounds, oldest first.

    `is_off_peak`: whether tasks may be given up now.
    """

    now_seconds: float = 0.0
    looks: tuple[LoadLook, ...] = ()
    rounds_seconds: tuple[float, ...] = ()
    is_off_peak: bool = False
