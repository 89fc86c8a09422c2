"""Any heap of samples against a model that is slow and obvious: dictionaries, loops and one list a partition.

The heap has duplicates, samples sent again with an older offset, files in any order, compacted hours, and sources that overlap.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm2mgr.samples.batch import Batch
from mm2mgr.samples.cruise_control import CRUISE_CONTROL
from mm2mgr.samples.schema import KAFKA_OFFSETS, hour_of
from mm2mgr.samples.store import SampleStore
from tests.samples.rows import data_files

from .stores import HOUR_MS, START, rolled

PROMETHEUS = "prometheus:x"
SOURCES = (KAFKA_OFFSETS, PROMETHEUS, CRUISE_CONTROL)  # from best to worst
PARTITIONS = 2
LIES = (-1.0, 1e18, math.nan, math.inf)


@dataclass(frozen=True)
class Row:
    """One sample of partition `number` of the only topic."""

    number: int
    source: str
    time_ms: int
    end: int | None = None
    size: float | None = None
    volume: float | None = None
    records: float | None = None
    resolution_ms: int = 0


@dataclass(frozen=True)
class Interval:
    start_ms: int
    end_ms: int
    records_per_second: float | None
    bytes_per_second: float | None

    @property
    def ms(self) -> int:
        return self.end_ms - self.start_ms

    def since(self, start_ms: int) -> Interval:
        """The part of it after a moment, a millisecond at least."""
        return replace(self, start_ms=min(max(self.start_ms, start_ms), self.end_ms - 1))


# --- the model ------------------------------------------------------------------------------------------------------


def model(rows: Iterable[Row]) -> dict[tuple[str, int, str], dict[str, float | None]]:
    """Return what the roll-ups shall say, by hour, partition and source."""
    series: dict[tuple[int, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        series[row.number, row.source, hour_of(row.time_ms)].append(row)
    cleaned = {key: clean(each) for key, each in series.items()}
    found = {}
    for hour in sorted({hour for _, _, hour in cleaned}):
        start_ms = min(row.time_ms for (_, _, one), each in series.items() if one == hour for row in each)
        start_ms -= start_ms % HOUR_MS
        for number in range(PARTITIONS):
            covered: list[Interval] = []
            for source in SOURCES:
                own = cleaned.get((number, source, hour), [])
                lead = cleaned.get((number, source, hour_of(start_ms - 1)), [])
                if own:
                    found[hour, number, source] = roll_up(with_sizes(lead)[-7:], own, covered, start_ms)
    return found


def clean(rows: Sequence[Row]) -> list[Row]:
    def believed(value: float | None, most: float) -> float | None:
        return value if value is not None and 0 <= value <= most else None

    moments: dict[int, Row] = {}
    for sent in rows:
        row = replace(sent, volume=believed(sent.volume, 1e12), records=believed(sent.records, 1e9))
        before = moments.get(row.time_ms)
        if (row.end, row.volume, row.records) != (None, None, None) and (
            before is None or (row.end or 0) >= (before.end or 0)
        ):
            moments[row.time_ms] = row
    once = [moments[time_ms] for time_ms in sorted(moments)]
    kept = []
    for place, row in enumerate(once):
        around = [once[place - 1].end, row.end, once[place + 1].end] if 0 < place < len(once) - 1 else []
        if not around or None in around or not around[1] < around[0] <= around[2]:  # type: ignore[operator]
            kept.append(row)
    return kept


def with_sizes(rows: Sequence[Row]) -> list[Row]:
    """Give each row the record size in force: the last one known by then, else the next one."""
    sizes: list[float | None] = []
    for place in range(len(rows)):
        before = [row.size for row in rows[: place + 1] if row.size is not None]
        after = [row.size for row in rows[place:] if row.size is not None]
        sizes.append(before[-1] if before else after[0] if after else None)
    return [replace(row, size=size) for row, size in zip(rows, sizes, strict=True)]


def roll_up(lead: list[Row], own: list[Row], covered: list[Interval], start_ms: int) -> dict[str, float | None]:
    """Roll one series up; `covered` is what better sources cover in this hour, and gets what this one adds."""
    rows = with_sizes([*lead, *own])
    distances = [b.time_ms - a.time_ms for a, b in pairwise(rows)]
    used, resets, gaps = list[Interval](), 0, 0
    for place in range(len(lead), len(rows)):
        row, before = rows[place], rows[place - 1] if place else None
        near = distances[max(0, place - 7) : place + 6]
        is_gap = before is not None and distances[place - 1] > 3 * statistics.median(near)
        if before is not None and row.end is not None and before.end is not None:
            rate = (row.end - before.end) * 1000 / distances[place - 1]
            if row.end < before.end or rate > 1e9:
                resets += 1
            elif is_gap:
                gaps += 1
            else:
                volume = None if row.size is None else rate * row.size
                used.append(Interval(before.time_ms, row.time_ms, rate, volume))
        elif row.volume is not None or row.records is not None:
            longest = distances[place - 1] if before is not None and not is_gap else row.resolution_ms
            span = min(row.resolution_ms, longest)
            volume = (
                row.volume if row.volume is not None else row.records * row.size if row.records and row.size else None
            )
            used.append(Interval(row.time_ms - span, row.time_ms, row.records, volume))
        elif is_gap:
            gaps += 1
    used = [one for one in used if one.ms > 0 and not is_covered(one.since(start_ms), covered)]
    covered += used
    return {
        "samples": len(own),
        "covered_ms": sum(one.ms for one in used),
        "resets": resets,
        "gaps": gaps,
        "first_ms": own[0].time_ms,
        "last_ms": own[-1].time_ms,
        **amounts("records", [(one.ms, one.records_per_second) for one in used]),
        **amounts("bytes", [(one.ms, one.bytes_per_second) for one in used]),
    }


def is_covered(one: Interval, covered: Iterable[Interval]) -> bool:
    """Say whether better sources, which may overlap, cover at least half of it."""
    covered_ms, reached = 0, one.start_ms
    for other in sorted(covered, key=lambda each: each.start_ms):
        covered_ms += max(0, min(one.end_ms, other.end_ms) - max(reached, other.start_ms))
        reached = max(reached, other.end_ms)
    return 2 * covered_ms >= one.ms


def amounts(name: str, used: Sequence[tuple[int, float | None]]) -> dict[str, float | None]:
    """Return sum, p50, p95 and maximum; None where a part is not known."""
    rates = sorted((rate, ms) for ms, rate in used if rate is not None)
    columns = (name, f"{name}_p50", f"{name}_p95", f"{name}_max")
    if not used or len(rates) < len(used):
        return dict.fromkeys(columns)
    weights = [sum(ms for _, ms in rates[: place + 1]) for place in range(len(rates))]
    p50, p95 = (
        next(rate for (rate, _), weight in zip(rates, weights, strict=True) if 100 * weight >= percent * weights[-1])
        for percent in (50, 95)
    )
    total = sum(rate * ms / 1000 for rate, ms in rates)
    return dict(zip(columns, (total, p50, p95, rates[-1][0]), strict=True))


# --- the heap -------------------------------------------------------------------------------------------------------


@st.composite
def measured(draw: st.DrawFn, number: int) -> list[Row]:
    """Every source that watches one partition, for up to some hours, each at its own pace and with its own troubles."""
    rows: list[Row] = []
    for source in draw(st.sets(st.sampled_from(SOURCES), min_size=1)):
        by_rate = source == CRUISE_CONTROL or (source == PROMETHEUS and draw(st.booleans()))
        pace = draw(st.sampled_from([60, 300, 900]))
        at, end = START + draw(st.integers(0, 3600)) * 1000, draw(st.integers(0, 500))
        for _ in range(draw(st.integers(1, 30))):
            at += 1000 * pace * draw(st.sampled_from([1, 1, 1, 1, 1, 2, 9])) + draw(st.integers(-500, 500))
            if by_rate:
                rate = draw(st.floats(0, 1e6) | st.sampled_from(LIES))
                rows.append(Row(number, source, at, volume=rate, records=rate / 100, resolution_ms=pace * 1000))
            else:
                end = max(0, end + draw(st.integers(0, 10_000) | st.sampled_from([-20_000, 10**17])))
                size = draw(st.none() | st.floats(1, 1e4)) if source == KAFKA_OFFSETS else None
                rows.append(Row(number, source, at, end, size))
    return rows


@st.composite
def heaps(draw: st.DrawFn) -> tuple[list[Row], list[list[Row]], int]:
    """Return true samples, the same in pieces as they were sent (repeated, out of order, some with an older offset), a seed."""
    rows = [row for number in range(PARTITIONS) for row in draw(measured(number))]
    again = draw(st.lists(st.sampled_from(rows), max_size=10))
    older = [replace(row, end=row.end - 1) for row in draw(st.lists(st.sampled_from(rows), max_size=5)) if row.end]
    sent = draw(st.permutations([*rows, *again, *older]))
    cuts = sorted(draw(st.lists(st.integers(0, len(sent)), max_size=6)))
    pieces = [sent[low:high] for low, high in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    return rows, pieces, draw(st.integers(0, 2**20))


def stored(folder: Path, pieces: Iterable[Sequence[Row]]) -> SampleStore:
    """Write each piece as a poll; before them the partitions get their numbers, the same in every store."""
    store = SampleStore(folder)
    store.append(
        Batch("dc1", KAFKA_OFFSETS, START - 99 * HOUR_MS, ["t"] * PARTITIONS, range(PARTITIONS), end_offset=[0] * 2)
    )
    for piece in pieces:
        store.append(*[batch(row) for row in piece])
    return store


def batch(row: Row) -> Batch:
    return Batch(
        "dc1",
        row.source,
        row.time_ms,
        ["t"],
        [row.number],
        resolution_ms=row.resolution_ms,
        end_offset=[row.end],
        record_bytes=[row.size],
        bytes_per_second=[row.volume],
        records_per_second=[row.records],
    )


def rolled_up(folder: Path) -> dict[tuple[str, int, str], Mapping[str, float | None]]:
    """Return the rows of all hours."""
    found = {}
    for path in data_files(folder, "throughput"):
        hour = path.parent.name.removeprefix("period=")
        if "T" in hour:  # days that took their hours one by one may differ in their last digits
            for row in pq.read_table(path, partitioning=None).to_pylist():
                found[hour, row["partition"], row["source"]] = row
    return found


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(heap=heaps())
def test_any_heap_of_samples_gives_what_the_model_gives_and_the_rows_of_a_tidy_store(
    tmp_path_factory: pytest.TempPathFactory, heap: tuple[list[Row], list[list[Row]], int]
) -> None:
    rows, pieces, seed = heap
    messy, tidy = tmp_path_factory.mktemp("messy"), tmp_path_factory.mktemp("tidy")
    store, dice = stored(messy, pieces[: len(pieces) // 2 + 1]), random.Random(seed)
    if dice.random() < 0.5:
        rolled(messy)  # what comes later is late then
    for hour in store.loose_hours():
        if dice.random() < 0.5:
            store.compact(hour)
    for piece in pieces[len(pieces) // 2 + 1 :]:
        store.append(*[batch(row) for row in piece])
    stored(tidy, [rows])
    for folder in (messy, tidy):
        rolled(folder)
    assert rolled_up(messy) == rolled_up(tidy)
    found, expected = rolled_up(messy), model(rows)
    first = hour_of(START - 99 * HOUR_MS)
    assert {key for key in found if key[0] != first} == expected.keys()
    for key, row in expected.items():
        for name, value in row.items():
            if name.startswith("records_") and row["bytes"] is None:
                continue
            actual = found[key][name]
            assert actual == (None if value is None else pytest.approx(value, rel=1e-6, abs=1e-9)), (key, name)


def test_a_window_of_an_hour_counts_in_its_hour_and_is_hidden_where_offsets_cover_it(tmp_path: Path) -> None:
    windows = [
        Row(0, CRUISE_CONTROL, START + hour * HOUR_MS - 1, volume=5e5, resolution_ms=HOUR_MS) for hour in (1, 2, 3)
    ]
    offsets = [Row(0, KAFKA_OFFSETS, START + 60_000 * minute, 60 * minute, 100.0) for minute in range(61)]
    stored(tmp_path, [windows, offsets])
    rolled(tmp_path)
    covered_ms = {key: row["covered_ms"] for key, row in rolled_up(tmp_path).items() if row["covered_ms"]}
    hours = [hour_of(START + hour * HOUR_MS) for hour in range(3)]
    # An hour's worth in the first hour, from offsets; what they cover of the second is the sample at its beginning.
    assert covered_ms == {
        (hours[0], 0, KAFKA_OFFSETS): HOUR_MS - 60_000,
        (hours[1], 0, KAFKA_OFFSETS): 60_000,
        (hours[1], 0, CRUISE_CONTROL): HOUR_MS,
        (hours[2], 0, CRUISE_CONTROL): HOUR_MS,
    }


def test_a_window_across_the_hour_does_not_count_again_where_offsets_cover_both_sides(tmp_path: Path) -> None:
    offsets = [Row(0, KAFKA_OFFSETS, START + 30_000 * half, 30 * half, 100.0) for half in range(240)]
    windows = [
        Row(0, CRUISE_CONTROL, START + 300_000 * n + 30_000, volume=5e5, resolution_ms=300_000) for n in range(1, 24)
    ]
    stored(tmp_path, [offsets, windows])
    rolled(tmp_path)
    covered_ms = {key[::2]: row["covered_ms"] for key, row in rolled_up(tmp_path).items()}
    assert {hour: covered_ms[hour, CRUISE_CONTROL] for hour in (hour_of(START), hour_of(START + HOUR_MS))} == {
        hour_of(START): 0,
        hour_of(START + HOUR_MS): 0,
    }
