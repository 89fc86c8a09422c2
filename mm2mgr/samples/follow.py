"""The sampling loop: every source at an interval, side by side, for minutes or for months.

Each round is reported. A source that fails does not stop the others: it is asked less and less often until it answers,
and only changes are reported.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from mm2mgr import timing
from mm2mgr.errors import Mm2mgrError, cause
from mm2mgr.garbage import collect_garbage
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.schema import News, TrustedClock, ahead, ahead_text, held_text, hour_end_ms, hour_of, kept_since_ms
from mm2mgr.samples.store import SampleStore
from mm2mgr.text import span_text

_LONGEST_WAIT_SECONDS = 600.0


@dataclass(frozen=True)
class Poll:
    """One source read once: its batches, and reason → how many partitions have no sample for it.

    `notes` are sentences about what else a reader of the samples has to know, such as a source's own warnings.
    `stored`: samples that the source appended to the table itself. `has_more`: it was too much for one poll, and the
    next one goes on. `lost` is called when the samples could not be stored: a source that still has them gives them
    again.
    """

    batches: Sequence[Batch]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    has_more: bool = False
    stored: int = 0
    lost: Callable[[], None] = lambda: None


class Reader(Protocol):
    """A source of samples. `poll` raises a Mm2mgrError that names the source when nothing could be read."""

    name: str

    def poll(self) -> Poll: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Schedule:
    """When to sample: every `interval_seconds`, for `duration_seconds` or until stopped (None).

    Samples older than `keep_seconds` are removed; None keeps all.
    """

    interval_seconds: float = 30.0
    duration_seconds: float | None = None
    keep_seconds: float | None = None

    @property
    def timeout_seconds(self) -> float:
        """Time for one call to a source: within the interval, so that a silent one delays no round of the others."""
        return min(10.0, max(1.0, 0.8 * self.interval_seconds))


@dataclass(frozen=True)
class Round:
    """One round over all sources, for the progress display.

    `failures` are the sources without an answer in this round; `beside`: those that are read beside the samples, and
    give none. `news` is what differs from the round before, in sentences.
    """

    number: int
    samples: int
    failures: Mapping[str, Mm2mgrError]
    left_out: Mapping[str, Mapping[str, int]]
    news: Sequence[str]
    beside: frozenset[str] = frozenset()

    @property
    def sources_without_samples(self) -> Mapping[str, Mm2mgrError]:
        """The sources of samples that gave none, with the reason."""
        return {name: failure for name, failure in self.failures.items() if name not in self.beside}


def follow(
    readers: Sequence[Reader],
    schedule: Schedule,
    store: SampleStore,
    progress: Callable[[Round], None],
    stop: threading.Event | None = None,
) -> int:
    """Sample all sources side by side until the schedule ends or `stop` is set; return the number of samples kept.

    A source that has more by the end of the schedule is then read to the end of what it has. A store that cannot be
    written is an error in the first round; later it is news, and the samples of that round are lost. While the clock
    cannot be trusted nothing is read, because each sample would carry its time.
    """
    lines = [_FollowedSource(reader, schedule.interval_seconds) for reader in readers]
    clock, ended = TrustedClock(), stop or threading.Event()
    keeper = _Keeper(store, schedule.keep_seconds, clock)
    beside = frozenset(reader.name for reader in readers if not getattr(reader, "gives_samples", True))

    def read(number: int, asked: Sequence[_FollowedSource]) -> list[_FollowedSource]:
        """Make one round of these sources; return those that have more."""
        trusted = clock.is_trusted()
        polls = list(threads.map(_FollowedSource.poll, asked)) if trusted else []
        if not trusted or not clock.is_trusted():  # before the polls, or after them
            for poll in polls:
                poll.lost()
            doubt = Mm2mgrError("the clock of this machine jumped")
            progress(Round(number, 0, {line.reader.name: doubt for line in lines}, {}, clock.news.take(), beside))
            return list(asked) if polls else []
        samples = keeper.keep(polls)
        failures = {line.reader.name: line.failure for line in lines if line.failure}
        answers = list(zip(asked, polls, strict=True))
        left_out = {line.reader.name: dict(poll.left_out) for line, poll in answers if poll.left_out}
        owners = (clock.news, *(line.news for line in lines), keeper.news)
        news = [message for owner in owners for message in dict.fromkeys(owner.take())]
        progress(Round(number, samples, failures, left_out, news, beside))
        return [line for line, poll in answers if poll.has_more]

    try:
        with ThreadPoolExecutor(max_workers=max(1, len(lines))) as threads:
            number, behind = 0, list[_FollowedSource]()
            for number in _ticks(schedule, ended):
                behind = read(number, lines)
            while behind and not ended.is_set():
                number += 1
                behind = read(number, behind)
    finally:
        for line in lines:
            line.reader.close()
    return keeper.kept


@dataclass
class _FollowedSource:
    """One source over many rounds: when it is asked again after failures, and what was reported about it last."""

    reader: Reader
    interval_seconds: float
    failure: Mm2mgrError | None = None
    _failures: int = 0
    _not_before: float = 0.0
    _failing_since: float = 0.0
    _last_report: str = ""
    _left_out: bool = False
    news: News = field(default_factory=News)

    def poll(self) -> Poll:
        """Ask the source if its time has come; the poll is empty where it failed or has to wait."""
        if timing.now() < self._not_before:
            return Poll([])
        try:
            answer = self.reader.poll()
        except Mm2mgrError as error:
            self._fail(error)
            return Poll([])
        except Exception as error:  # whatever a source sends, the others are read on
            self._fail(Mm2mgrError(f"{self.reader.name}: {cause(error)}"))
            return Poll([])
        if self.failure is not None:
            self.news.append(f"{self.reader.name}: answers again after {span_text(timing.now() - self._failing_since)}")
            self.failure, self._failures, self._last_report = None, 0, ""
        self._report_left_out(answer)
        return answer

    def _fail(self, error: Mm2mgrError) -> None:
        now = timing.now()
        if self.failure is None:
            self._failing_since = now
        # Half an interval less: the schedule decides the moment, and the clock must not miss it by a millisecond.
        wait = self.interval_seconds * (2 ** min(self._failures, 20) - 0.5)
        self._not_before = now + min(wait, max(_LONGEST_WAIT_SECONDS, self.interval_seconds / 2))
        self.failure, self._failures = error, self._failures + 1
        self._say(error.message, _kind(error.message))

    def _report_left_out(self, poll: Poll) -> None:
        # By magnitude: a number that goes up and down by one is no news.
        kinds = [f"{_kind(reason)}/{count.bit_length()}" for reason, count in poll.left_out.items()]
        key = ", ".join(sorted([*kinds, *map(_kind, poll.notes)]))
        reasons = ", ".join(f"{count} ({reason})" for reason, count in sorted(poll.left_out.items()))
        sentences = [f"partitions without a sample: {reasons}"] if reasons else []
        if key:
            self._say(f"{self.reader.name}: {'; '.join([*sentences, *poll.notes])}", key)
        elif self._last_report:
            again = "all partitions have samples again" if self._left_out else "recovered"
            self._say(f"{self.reader.name}: {again}", "")
        self._left_out = bool(poll.left_out)

    def _say(self, sentence: str, key: str) -> None:
        if key != self._last_report:
            self.news.append(sentence)
            self._last_report = key


class _Keeper:
    def __init__(self, store: SampleStore, keep_seconds: float | None, clock: TrustedClock) -> None:
        self.kept = 0
        self._store, self._keep_seconds, self._clock = store, keep_seconds, clock
        self._written_before = False
        self._trouble = ""
        self.news = News()
        self._ahead: list[str] = []
        self._held = False
        self._hour = self._expired_in = ""

    def keep(self, polls: Sequence[Poll]) -> int:
        """Store a round, then compact and expire when a new hour has begun; return the number of samples stored."""
        try:
            written = self._store.append(*(batch for poll in polls for batch in poll.batches))
        except Mm2mgrError as error:
            if not self._written_before:
                raise
            for poll in polls:
                poll.lost()
            if error.message != self._trouble:
                self.news.append(f"{error.message}; the samples of this round are lost")
            self._trouble = error.message
            self._expire()  # retention may give a full disk its space back
            return 0
        if self._trouble:
            self.news.append("samples are written again")
        self._written_before, self._trouble = True, ""
        written += sum(poll.stored for poll in polls)
        self._tidy()
        self.kept += written
        return written

    def _tidy(self) -> None:
        if (hour := hour_of(self._clock.now_ms())) == self._hour or not self._clock.is_trusted():
            return
        self._hour = hour
        with self._reporting_failures():
            before, self._ahead = self._ahead, ahead(self._store.hours(), self._clock.now_ms())
            if self._ahead and not set(self._ahead) <= set(before):
                self.news.append(ahead_text(str(self._store.store), self._ahead))
        self._expire()  # first: compaction needs space
        with self._reporting_failures():
            for loose in self._store.loose_hours():
                if loose < hour:
                    with self._reporting_failures():
                        self._store.compact(loose)
        with self._reporting_failures():
            self._store.vacuum()

    def _expire(self) -> None:
        now_ms = self._clock.now_ms()
        if self._keep_seconds is None or (hour := hour_of(now_ms)) == self._expired_in or not self._clock.is_trusted():
            return
        self._expired_in = hour
        with self._reporting_failures():
            hours, old_ms = self._store.hours(), now_ms - round(self._keep_seconds * 1000)
            since_ms = kept_since_ms(hours, now_ms, self._keep_seconds)
            stay = [hour for hour in hours if since_ms < hour_end_ms(hour) <= old_ms]
            if stay and not self._held:
                self.news.append(held_text(stay))
            self._held = bool(stay)
            self._store.expire(since_ms)
            self._store.vacuum()

    @contextmanager
    def _reporting_failures(self) -> Iterator[None]:
        """Report a failure of the store instead of raising it: the samples are safe as they are; the next hour tries
        again."""
        try:
            yield
        except Mm2mgrError as error:
            self.news.append(error.message)


def _kind(text: str) -> str:
    """Reduce a message to what does not change from one failure to the next of the same kind."""
    return re.sub(r"\d+", "#", text)


def _ticks(schedule: Schedule, stop: threading.Event) -> Iterator[int]:
    """Yield round numbers on a steady beat; a round that took too long skips beats instead of bunching up."""
    started, beat, number = timing.now(), 0, 0
    end = float("inf") if schedule.duration_seconds is None else schedule.duration_seconds
    while beat * schedule.interval_seconds <= end:
        collect_garbage()
        if timing.wait(stop, max(0.0, started + beat * schedule.interval_seconds - timing.now())):
            return
        number += 1
        yield number
        beat = max(beat, int((timing.now() - started) / schedule.interval_seconds)) + 1
