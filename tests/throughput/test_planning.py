"""The hours that sizing judges: what counts for an hour, which hours are taken, and what is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.partitions import Statistic
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.schema import hour_of, hour_start_ms
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput import hourly
from mm2mgr.throughput.hourly import HourlyRates, hourly_rates

from .stores import HOUR_MS, START, rates, rolled, series, stored

MINUTE = 60


def hours(folder: Path, by_hour: Mapping[int, Mapping[int, float]]) -> Path:
    """Fill a store with one rate per partition and hour, counted from 10:00."""
    store = SampleStore(folder)
    for hour, of in by_hour.items():
        end = START + (hour + 1) * HOUR_MS - 1
        own = {"resolution_ms": HOUR_MS, "bytes_per_second": list(of.values())}
        store.append(Batch("dc1", "test", end, ["t"] * len(of), list(of), **own))  # type: ignore[arg-type]
    rolled(folder)
    return folder


def one(found: HourlyRates) -> list[float]:
    assert len(found.table) == 1
    return [float(value) for value in found.table[0]]


def test_partitions_stand_beside_each_other_hour_by_hour(tmp_path: Path) -> None:
    found = hourly_rates(hours(tmp_path, {0: {0: 5.0, 1: 1.0}, 1: {0: 1.0}, 3: {1: 5.0}}), None, "p95")
    assert found.hours == tuple(START // HOUR_MS + hour for hour in (0, 1, 3))
    assert found.table.tolist()[0][:2] == [5, 1]
    assert np.isnan(found.table).tolist() == [[False, False, True], [False, True, False]]
    assert (found.first_ms, found.last_ms) == (START + HOUR_MS - 1, START + 4 * HOUR_MS - 1)


@pytest.mark.parametrize(
    ("minutes", "by", "rate"),
    [(6, "p95", 900.0), (2, "p95", 30.0), (2, "max", 900.0), (2, "mean", 30.0), (2, "p50", 0.0), (6, "mean", 90.0)],
)
def test_a_burst_stands_for_its_hour_unless_it_is_shorter_than_a_twentieth(
    tmp_path: Path, minutes: int, by: Statistic, rate: float
) -> None:
    """One sample a minute; a burst of two minutes an hour counts by what it adds to the mean, never as nothing."""
    points = [(minute * MINUTE, 900.0 if 20 < minute <= 20 + minutes else 0.0) for minute in range(60)]
    SampleStore(tmp_path).append(*rates("test", points, resolution_ms=60_000))
    rolled(tmp_path)
    (found,) = one(hourly_rates(tmp_path, None, by))
    assert found == pytest.approx(rate, rel=0.03)


def test_four_weeks_count_and_a_window_less(tmp_path: Path) -> None:
    folder = hours(tmp_path, {0: {0: 9.0}, 28 * 24: {0: 1.0}, 28 * 24 + 1: {0: 2.0}})
    assert one(hourly_rates(folder, None, "p95")) == [1, 2]
    assert one(hourly_rates(folder, 3600, "p95")) == [2]
    assert one(hourly_rates(folder, 90 * 86_400, "p95")) == [9, 1, 2]


def test_a_large_estate_is_judged_by_the_same_hours_of_every_week() -> None:
    names = [hour_of(START + hour * HOUR_MS) for hour in range(2 * 168)]
    assert hourly._thin_hours(names, 100) == names
    found = [hour_start_ms(name) // HOUR_MS for name in hourly._thin_hours(names, 1_000_000)]
    assert len(found) == 48
    assert {hour % 168 for hour in found[:24]} == {hour % 168 for hour in found[24:]}
    assert {hour % 24 for hour in found[:24]} == set(range(24))
    assert {hour % 168 // 24 for hour in found} == set(range(7))


def test_hours_without_a_record_size_take_the_partitions_own(tmp_path: Path) -> None:
    """Offsets alone: the size of 100 bytes was read in the first hour only."""
    stored(tmp_path, series("t", [(second, second) for second in range(0, 7200, 60)]))
    rolled(tmp_path)
    found = hourly_rates(tmp_path, None, "p95")
    assert one(found) == pytest.approx([100, 100])
    assert found.record_bytes.tolist() == [100]


def test_a_store_without_roll_ups_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Mm2mgrError, match="holds no throughput"):
        hourly_rates(tmp_path, None, "p95")
