"""Which clock samples and retention use: this machine's, but never because of a single reading.

A jump of the clock counts only after it has lasted, and retention asks the stored samples how much time has passed.
It computes times and sentences from clocks and hours, and reads and removes no file.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from mm2mgr import timing
from mm2mgr.samples.schema import HOUR_MS, hour_start_ms, utc_text
from mm2mgr.text import few

_JUMP_SECONDS = 60.0
"""Smaller jumps are normal corrections of a clock: they harm no sample, and nothing waits for them."""
LASTING_SECONDS = 600.0
"""So long the clock must have stayed where it jumped to before samples carry its time."""
AHEAD_MS = 300_000
"""Clocks of machines differ by so much; a sample further ahead would end the newest window of every answer."""
_LONGEST_GAP_MS = 24 * HOUR_MS
_SHARE_OF_KEPT = 24


class News(list[str]):
    """Sentences that wait to be reported."""

    def take(self) -> list[str]:
        """Return them, and begin anew."""
        taken = list(self)
        self.clear()
        return taken


class TrustedClock:
    """This machine's clock beside a steady one; it is trusted as long as both go at the same speed."""

    def __init__(self) -> None:
        self._ahead = self.now_ms() / 1000 - timing.steady()
        self._jumped_to: float | None = None
        self._jumped_at = 0.0
        self.news = News()

    def is_trusted(self) -> bool:
        """Look at both clocks: False while this machine's has jumped, and not yet stayed there for long enough."""
        steady = timing.steady()
        ahead = self.now_ms() / 1000 - steady
        if abs(ahead - self._ahead) < _JUMP_SECONDS:
            if self._jumped_to is not None:
                self.news.append(f"the clock of this machine is back after {_span(steady - self._jumped_at)}")
            self._ahead, self._jumped_to = ahead, None
            return True
        if self._jumped_to is None or abs(ahead - self._jumped_to) >= _JUMP_SECONDS:
            self._jumped_to, self._jumped_at = ahead, steady
            self.news.append(self._jump(ahead - self._ahead, ahead + steady))
            return False
        self._jumped_to = ahead
        if steady - self._jumped_at < LASTING_SECONDS:
            return False
        self._ahead, self._jumped_to = ahead, None
        self.news.append("the clock of this machine has stayed where it jumped to: samples carry its time from now on")
        return True

    def now_ms(self) -> int:
        """Return the time of this machine's clock."""
        return time.time_ns() // 1_000_000

    @staticmethod
    def _jump(by_seconds: float, now_seconds: float) -> str:
        direction = "ahead" if by_seconds > 0 else "back"
        return (
            f"the clock of this machine jumped {direction} by {_span(abs(by_seconds))}, to {_text(now_seconds)}:"
            f" nothing is sampled or removed until it is back, or has stayed there for {_span(LASTING_SECONDS)}"
        )


def kept_since_ms(hours: Sequence[str], now_ms: int, keep_seconds: float) -> int:
    """Return the moment before which samples are older than `keep_seconds`, as far as the `hours` with samples bear
    that out.

    An hour without samples proves nothing: a gap counts as one day at most, and as a 24th of the time to keep, so that
    a clock that is ahead for a while takes little, and a long pause of the sampler is made up for within days.
    """
    left = round(keep_seconds * 1000)
    of_a_gap = min(_LONGEST_GAP_MS, left // _SHARE_OF_KEPT)
    moment = now_ms
    for start in sorted((start for hour in hours if (start := hour_start_ms(hour)) <= now_ms), reverse=True):
        passed = moment - start if moment - start <= HOUR_MS else min(moment - start, of_a_gap)
        if passed >= left:
            break
        left -= passed
        moment = start
    return moment - left


def ahead(hours: Sequence[str], now_ms: int) -> list[str]:
    """Return the hours that have not begun yet: the clock of a sampler was wrong when they were written, or this one
    is."""
    return [hour for hour in hours if hour_start_ms(hour) > now_ms + AHEAD_MS]


def ahead_text(place: str, hours: Sequence[str]) -> str:
    """Say what is the matter with hours that are `ahead`."""
    return (
        f"{place} holds samples of future hours, {few(hours, 1)} (UTC): the clock of this machine is behind, or "
        "that of another sampler was ahead; `throughput` and `size` leave them out until then"
    )


def held_text(hours: Sequence[str]) -> str:
    """Say why hours that are too old by this machine's clock stay, by the rule of `kept_since_ms`."""
    return (
        f"samples up to {hours[-1]} (UTC) are older than what is to be kept, and stay for now: after a pause of the "
        "sampler, or while the clock of this machine is ahead, at most a day of samples is removed per new hour"
    )


def _span(seconds: float) -> str:
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _text(seconds: float) -> str:
    try:
        return utc_text(seconds)
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return f"{seconds:.0f} s after 1970"
