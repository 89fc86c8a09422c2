"""Moments of tasks: one that keeps up has none, whatever its commits' phase; a saturated one is measured, and never too high."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.capacity import (
    Log,
    MeasuredSpan,
    OffsetSnapshot,
    Pace,
    Step,
    Stretches,
    TaskMeasurement,
    TaskWork,
    find_saturation,
    judged_at_ms,
    steps,
)

PACE = Pace()
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
HAND = TaskWork(frozenset({A, B}), "w1:8083", "s")
SizingFacts = Callable[[float], int]
"""A number of records by time in seconds."""


def look(seconds: float, **committed: int) -> OffsetSnapshot:
    ms = round(seconds * 1000)
    return OffsetSnapshot(ms, ms, {{"a": A, "b": B}[name]: offset for name, offset in committed.items()})


def logs(end: int = 1_000_000, start: int = 0, record_bytes: float | None = 100.0) -> Callable[[TopicPartition], Log]:
    return lambda _: Log(start, end, record_bytes)


# --- one step ---------------------------------------------------------------------------------------------------------


def test_only_what_moved_is_judged_by_what_was_there_before() -> None:
    assert steps(look(0, a=99, b=7), look(60, a=199, b=7), logs(end=500)) == {A: Step(10_000.0, 300)}
    assert steps(look(0, a=99), look(60, a=499), logs(end=500)) == {A: Step(40_000.0, 0)}


def test_one_offset_behind_may_be_the_marker_of_a_transaction() -> None:
    assert steps(look(0, a=99), look(60, a=498), logs(end=500))[A].behind_records == 0
    assert steps(look(0, a=99), look(60, a=497), logs(end=500))[A].behind_records == 2


@pytest.mark.parametrize(
    ("before", "now", "log", "step"),
    [
        ({"a": 99}, {"a": 50}, Log(0, 500, 100.0), Step(None, 0)),  # altered, or another log
        ({"a": 99}, {"a": 300}, None, Step(None, 0)),
        ({}, {"a": 300}, Log(0, 500, 100.0), Step(None, 199)),  # the first commit of all: since when?
        ({"a": 99}, {"a": 300}, Log(0, 500, None), Step(None, 199)),
        ({"a": 99}, {"a": 300}, Log(200, 500, 100.0), Step(None, 199)),  # 100 records expired before they were carried
        ({"a": 99}, {"a": 300}, Log(100, 500, 100.0), Step(20_100.0, 199)),
    ],
)
def test_what_is_not_known_is_not_guessed(
    before: Mapping[str, int], now: Mapping[str, int], log: Log | None, step: Step
) -> None:
    assert steps(look(0, **before), look(60, **now), lambda _: log) == {A: step}


# --- stretches --------------------------------------------------------------------------------------------------------


@dataclass
class Watch:
    """A connector that is looked at each minute, and commits 6 000 records of 100 bytes in each partition meanwhile."""

    stretches: Stretches
    now: OffsetSnapshot

    @classmethod
    def began(cls) -> Watch:
        return cls(Stretches(PACE), look(0, a=0, b=0))

    def see(
        self,
        seconds: float,
        hands: Mapping[int, TaskWork] | None = None,
        records: int = 6_000,
        end: int = 1_000_000,
    ) -> list[MeasuredSpan]:
        before, committed = self.now, {one: offset + records for one, offset in self.now.committed.items()}
        self.now = OffsetSnapshot(round(seconds * 1000), round(seconds * 1000), committed)
        found = steps(before, self.now, logs(end=end))
        return self.stretches.take(before, self.now, found, {0: HAND} if hands is None else hands)


def spans(*moments: list[MeasuredSpan]) -> list[int | None]:
    return [one[0].span_ms // 1000 if one else None for one in moments]


def test_a_stretch_opens_with_the_first_commit_seen_and_tells_rates_from_then_on() -> None:
    watch = Watch.began()
    first, second = watch.see(60), watch.see(120)
    assert first == [MeasuredSpan(0, "s", 60_000, 0, 0.0, 2 * (1_000_000 - 6_001), 60_000)]
    assert second == [MeasuredSpan(0, "s", 120_000, 60_000, 20_000.0, 2 * (1_000_000 - 12_001), 60_000)]


def test_a_look_without_a_commit_makes_the_next_span_longer() -> None:
    watch = Watch.began()
    seen = [watch.see(60), watch.see(120, records=0), watch.see(180)]
    assert spans(*seen) == [0, None, 120]
    assert seen[2][0].bytes_per_second == pytest.approx(10_000)


@pytest.mark.parametrize(
    "other",
    [
        replace(HAND, partitions=frozenset({A})),
        replace(HAND, worker="w2:8083"),
        replace(HAND, settings="larger fetches"),
    ],
)
def test_another_hand_begins_a_new_stretch(other: TaskWork) -> None:
    watch = Watch.began()
    assert spans(watch.see(60), watch.see(120), watch.see(180, {0: other}), watch.see(240, {0: other})) == [
        0,
        60,
        0,
        60,
    ]


def test_a_task_that_is_gone_for_a_look_begins_anew() -> None:
    watch = Watch.began()
    assert spans(watch.see(60), watch.see(120, {}), watch.see(180)) == [0, None, 0]


def test_a_task_that_was_down_begins_anew() -> None:
    watch = Watch.began()
    assert spans(watch.see(60), watch.see(120), watch.see(301), watch.see(361)) == [0, 60, 0, 60]


def test_a_clock_that_is_set_back_begins_anew() -> None:
    watch = Watch.began()
    assert spans(watch.see(60), watch.see(120), watch.see(110), watch.see(170)) == [0, 60, 0, 60]


def test_catching_up_ends_the_stretch() -> None:
    watch = Watch.began()
    assert spans(watch.see(60), watch.see(120, end=1), watch.see(180), watch.see(240)) == [0, None, 0, 60]
    watch.stretches.rest({B})
    assert spans(watch.see(300)) == [0]
    watch.stretches.rest({TopicPartition("other", 0)})
    assert spans(watch.see(360)) == [60]
    watch.stretches.end()
    assert spans(watch.see(420)) == [0]


def test_a_commit_that_cannot_be_counted_only_opens() -> None:
    watch = Watch.began()
    seen = [watch.see(60), watch.see(120)]
    before, now = watch.now, look(180, a=20_000, b=20_000)
    uncounted = {A: Step(None, 5), B: Step(1.0, 5)}
    seen.append(watch.stretches.take(before, now, uncounted, {0: HAND}))
    watch.now = now
    assert spans(*seen, watch.see(240)) == [0, 60, 0, 60]


# --- simulated tasks, watched as `sample` does ------------------------------------------------------------------------


@dataclass(frozen=True)
class Simulated:
    """Records that came in and records carried, by partition; commits every `flush`, seen up to `hidden` seconds later."""

    came: Mapping[TopicPartition, SizingFacts]
    carried: Mapping[TopicPartition, SizingFacts]
    flush: float
    phase: float
    hidden: Mapping[TopicPartition, float]

    def committed(self, one: TopicPartition, now: float) -> int:
        """Return the offset of the last record in the newest commit that can be seen."""
        number = math.floor((now - self.hidden[one] - self.phase) / self.flush)
        return self.carried[one](max(0.0, self.phase + number * self.flush)) - 1

    def watched(self, looks: list[tuple[float, float]]) -> list[MeasuredSpan]:
        """Take snapshots at these times, which takes so long to answer; log ends are sampled each half minute."""
        stretches, moments = Stretches(PACE), list[MeasuredSpan]()
        before: OffsetSnapshot | None = None
        for asked, answer in looks:
            seen = asked + answer / 2
            stored = {one: self.committed(one, seen) for one in self.came}
            now = OffsetSnapshot(
                round(asked * 1000), round((asked + answer) * 1000), {o: n for o, n in stored.items() if n >= 0}
            )
            if before is not None:
                found = steps(before, now, self._logs(max(0, judged_at_ms(before, PACE) // 30_000 * 30)))
                moments += stretches.take(before, now, found, {0: HAND})
            before = now
        return moments

    def _logs(self, seconds: float) -> Callable[[TopicPartition], Log]:
        return lambda one: Log(0, self.came[one](seconds), 100.0)


def steady(per_second: float, start: int = 0) -> SizingFacts:
    return lambda now: start + math.floor(per_second * now)


def with_bursts(per_second: float, times: list[tuple[float, float]]) -> SizingFacts:
    """Come in at a steady level, and in bursts of (time, records)."""
    return lambda now: math.floor(per_second * now + sum(count for at, count in times if at <= now))


def later(told: SizingFacts, seconds: float) -> SizingFacts:
    return lambda now: told(max(0.0, now - seconds))


def beat(every: float, jitters: list[float]) -> list[tuple[float, float]]:
    return [(every * number + jitter, abs(jitter) / 4) for number, jitter in enumerate(jitters, 1)]


FLUSH = st.one_of(st.just(60.0), st.floats(1, 900))
TRAFFIC = st.builds(
    with_bursts,
    st.floats(0, 5_000),
    st.lists(st.tuples(st.floats(0, 3_600), st.floats(1, 500_000)), min_size=0, max_size=8),
)
KEEPS_UP_SECONDS = st.floats(0, 50)  # from a log into a commit; 5 s more may pass until all of the commit is seen


@st.composite
def keeping_up(draw: st.DrawFn) -> Simulated:
    came = {A: draw(TRAFFIC), B: draw(TRAFFIC)}
    carried = {one: later(told, draw(KEEPS_UP_SECONDS)) for one, told in came.items()}
    flush = draw(FLUSH)
    hidden = {A: draw(st.floats(0, 5)), B: draw(st.floats(0, 5))}
    return Simulated(came, carried, flush, draw(st.floats(0, 1)) * flush, hidden)


@st.composite
def overloaded(draw: st.DrawFn, records_per_second: float) -> Simulated:
    share, flush = draw(st.floats(0.05, 0.95)), draw(st.one_of(st.just(60.0), st.floats(1, 100)))
    parts = {A: records_per_second * share, B: records_per_second * (1 - share)}
    came = {one: steady(2 * its, 10_000_000) for one, its in parts.items()}
    carried = {one: steady(its) for one, its in parts.items()}
    hidden = {A: draw(st.floats(0, 1)), B: draw(st.floats(0, 1))}
    return Simulated(came, carried, flush, draw(st.floats(0, 1)) * flush, hidden)


@settings(max_examples=200, deadline=None)
@given(
    task=keeping_up(),
    every=st.sampled_from([60.0, 60.0, 90.0, 300.0]),
    jitters=st.lists(st.floats(-5, 5), min_size=10, max_size=60),
)
def test_a_task_that_keeps_up_is_never_seen_as_saturated(task: Simulated, every: float, jitters: list[float]) -> None:
    assert task.watched(beat(every, jitters)) == []


@settings(max_examples=100, deadline=None)
@given(st.data(), st.floats(50, 50_000), st.lists(st.floats(-5, 5), min_size=25, max_size=60))
def test_a_saturated_task_is_measured_and_never_too_high(
    data: st.DataObject, rate: float, jitters: list[float]
) -> None:
    moments = data.draw(overloaded(rate)).watched(beat(60.0, jitters))
    held = find_saturation(
        TaskMeasurement("0", one.time_ms, one.bytes_per_second, one.lag_records, one.uncertain_ms / 1000)
        for one in moments
    )
    assert held is not None
    assert [one.span_ms for one in moments].count(0) == 1
    assert 0.82 * rate * 100 <= held.bytes_per_second <= 1.02 * rate * 100
