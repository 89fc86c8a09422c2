"""The history of lag: what leaves `lag` goes into few files of 31 days, and nothing of it is lost or counted twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm2mgr.samples.lag_history import FIVE_MINUTES_MS, KEPT_DAYS, UNSEEN_MS, LagHistoryStore
from mm2mgr.samples.schema import HOUR_MS, LAG, LAG_HISTORY, SharedLag, hour_start_ms
from mm2mgr.samples.store import LagStore
from mm2mgr.samples.tables import StoredTable

START = hour_start_ms("2026-11-20T00")
DAY = 24 * HOUR_MS


class Hour(NamedTuple):
    """What is known of one flow and hour."""

    lag_mean: float
    lag_max: int
    covered_ms: int
    produced: int
    mirrored: int


def look(flow: str, at_ms: int, ends: int, positions: int, partitions: int = 3) -> SharedLag:
    return SharedLag(flow, "home", at_ms, partitions, 0, ends, positions)


def buckets(rows: Sequence[SharedLag]) -> dict[tuple[str, int], SharedLag]:
    """The newest look of each flow and five minutes."""
    ordered = sorted(rows, key=lambda row: (row.time_ms, row.end_offsets, row.positions))
    return {(row.flow, row.time_ms // FIVE_MINUTES_MS): row for row in ordered}


def hours(rows: Sequence[SharedLag]) -> dict[tuple[str, int], Hour]:
    """What the hours of these looks are, look by look."""
    lags, sums = defaultdict[tuple[str, int], list[int]](list), defaultdict[tuple[str, int], list[int]](lambda: [0] * 3)
    last: dict[str, SharedLag] = {}
    for row in sorted(buckets(rows).values(), key=lambda row: row.time_ms):
        key = row.flow, row.time_ms // HOUR_MS
        lags[key].append(row.end_offsets - row.positions)
        before = last.get(row.flow)
        last[row.flow] = row
        if before is None or before.partitions != row.partitions:
            continue
        steps = (
            row.time_ms - before.time_ms,
            row.end_offsets - before.end_offsets,
            row.positions - before.positions,
        )
        if 0 < steps[0] <= UNSEEN_MS and min(steps) >= 0:
            sums[key] = [total + step for total, step in zip(sums[key], steps, strict=True)]
    return {key: Hour(sum(of) / len(of), max(of), *sums[key]) for key, of in lags.items()}


def stored(
    store: Path, now_ms: int, owner: str = "ann"
) -> tuple[dict[tuple[str, int], tuple[int, ...]], dict[tuple[str, int], Hour]]:
    looks, hour_rows = LagHistoryStore(store, pytest.fail).read(owner, now_ms)
    fine = {
        (row["flow"], row["time_ms"] // FIVE_MINUTES_MS): (row["time_ms"], row["end_offsets"], row["positions"])
        for row in looks.table.to_pylist()
    }
    assert len(fine) == len(looks.table), "each five minutes once"
    whole = {
        (row["flow"], row["time_ms"] // HOUR_MS): Hour(*(row[name] for name in Hour._fields))
        for row in hour_rows.to_pylist()
    }
    assert len(whole) == len(hour_rows), "each hour once"
    return fine, whole


def files(store: Path) -> int:
    return len(StoredTable(store, LAG_HISTORY).files())


def write(
    store: Path, rows: Sequence[SharedLag], every_ms: int = HOUR_MS // 4, owners: Sequence[str] = ("ann",)
) -> int:
    """Write looks as processes do, each with what the last of them saw; return the time of the last commit."""
    first, last = min(row.time_ms for row in rows), max(row.time_ms for row in rows)
    now = first
    while now <= last + every_ms:
        for owner in owners:
            LagStore(store, owner).append([row for row in rows if now - 2 * every_ms < row.time_ms <= now], now)
        now += every_ms
    return now - every_ms


@st.composite
def looks(draw: st.DrawFn) -> list[SharedLag]:
    """Looks of up to two flows over some hours, with gaps, resets, and partitions that come."""
    rows = []
    for flow in draw(st.sampled_from((("f",), ("f", "g")))):
        at, ends, waits, partitions = START + draw(st.integers(0, HOUR_MS)), 1000, 10, 3
        for _ in range(draw(st.integers(1, 16))):
            at += draw(st.sampled_from((1, 30_000, 299_999, 300_000, 301_000, 900_000, 900_001, 2 * HOUR_MS)))
            ends = max(0, ends + draw(st.sampled_from((0, 1, 500, 10**6, -400))))
            waits = draw(st.integers(0, 50))
            partitions = draw(st.sampled_from((partitions, partitions, partitions, partitions + 1)))
            rows.append(look(flow, at, ends, ends - waits, partitions))
    return rows


@given(looks())
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_first_days_keep_every_five_minutes_and_hours_are_right(
    tmp_path_factory: pytest.TempPathFactory, rows: list[SharedLag]
) -> None:
    check_history(tmp_path_factory.mktemp("store"), rows)


@given(looks())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.matrix
def test_many_histories(tmp_path_factory: pytest.TempPathFactory, rows: list[SharedLag]) -> None:
    check_history(tmp_path_factory.mktemp("store"), rows)


def check_history(store: Path, rows: list[SharedLag]) -> None:
    now = write(store, rows, every_ms=6 * HOUR_MS)
    fine, whole = stored(store, now)
    assert fine == {key: (row.time_ms, row.end_offsets, row.positions) for key, row in buckets(rows).items()}
    assert whole == {key: pytest.approx(hour) for key, hour in hours(rows).items()}
    later = now + 4 * DAY
    LagStore(store, "ann").append([look("z", later, 1, 1)], later)
    LagStore(store, "ann").append([look("z", later + 2 * HOUR_MS, 1, 1)], later + 2 * HOUR_MS)
    fine, whole = stored(store, later)
    assert {key for key in fine if key[0] != "z"} == set(), "rows of five minutes are gone"
    of_days = {key: hour for key, hour in whole.items() if key[0] != "z"}
    lost = {key for key, hour in hours(rows).items() if key not in of_days}
    assert lost == set(), "and no hour is"
    for key, hour in hours(rows).items():
        assert of_days[key].lag_max == hour.lag_max
        assert of_days[key].lag_mean == pytest.approx(hour.lag_mean)
        at_midnight = key[1] % 24 == 0
        assert at_midnight or of_days[key] == pytest.approx(hour), "only what spans midnight is not known any more"


def grow(store: Path, hours: Sequence[int]) -> tuple[int, int]:
    """Let the looks of twelve flows go into the history at these hours since the start; return the most files and the time."""
    history, most, now = LagHistoryStore(store, pytest.fail), 0, START
    for hour, before in zip(hours, (-1, *hours), strict=False):
        times = range(START + (before + 1) * HOUR_MS, START + (hour + 1) * HOUR_MS, FIVE_MINUTES_MS)
        now = times[-1] + 1
        columns = {
            "owner": ["ann"] * 12 * len(times),
            "flow": [f"flow-{number}:a->b" for number in range(12) for _ in times],
            "time_ms": [*times] * 12,
            "partitions": [3] * 12 * len(times),
            "end_offsets": [time - START for time in times] * 12,
            "positions": [time - START - 5 for time in times] * 12,
        }
        history.append([pa.table(columns)], now)
        most = max(most, files(store))
    return most, now


def check_month(store: Path, hours: Sequence[int]) -> None:
    most, now = grow(store, hours)
    assert most <= KEPT_DAYS + 3 + 8
    fine, whole = stored(store, now)
    days = {key[1] // 24 for key in whole}
    assert KEPT_DAYS <= len(days) <= KEPT_DAYS + 1, "older days are gone"
    assert len(whole) >= 12 * 24 * KEPT_DAYS, "and no hour of these"
    assert all(hour.mirrored == hour.produced == hour.covered_ms for hour in whole.values())
    assert len({key[1] * FIVE_MINUTES_MS // DAY for key in fine}) == 3
    assert sum(file.size for file in StoredTable(store, LAG_HISTORY).files()) < 500_000


def test_a_month_of_many_flows_stays_in_few_small_files_and_old_days_go(tmp_path: Path) -> None:
    check_month(tmp_path, [*range(11, 24 * 33, 96), *range(24 * 33, 24 * 34)])


@pytest.mark.matrix
def test_a_month_written_every_hour(tmp_path: Path) -> None:
    check_month(tmp_path, range(24 * 34))


def test_two_writers_at_once_and_other_owners_count_once(tmp_path: Path) -> None:
    rows = [look("f:a->b", START + minute * 60_000, 100 * minute, 90 * minute) for minute in range(180)]
    now = write(tmp_path, rows, every_ms=HOUR_MS // 2, owners=("ann", "ann", "ben"))
    fine, whole = stored(tmp_path, now)
    assert len(fine) == 36
    assert whole == {key: pytest.approx(hour) for key, hour in hours(rows).items()}
    assert stored(tmp_path, now, "ben") == (fine, whole)
    assert stored(tmp_path, now, "eve") == ({}, {})


def test_processes_that_write_and_tidy_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    LagHistoryStore(tmp_path).append([of_flow("flow-0", START)], START)

    def write_days(flow: str) -> None:
        history = LagHistoryStore(tmp_path, pytest.fail)
        for hour in range(0, 24 * 5, 12):
            history.append([of_flow(flow, START + hour * HOUR_MS)], START + (hour + 1) * HOUR_MS)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(write_days, f"flow-{number}") for number in range(3)]:
            done.result()
    now = START + 5 * DAY
    LagHistoryStore(tmp_path).tidy(now)
    fine, whole = stored(tmp_path, now)
    assert {key[1] for key in whole} == {START // HOUR_MS + hour for hour in range(0, 24 * 5, 12)}
    assert len(whole) == 3 * 10
    assert {hour.covered_ms for hour in whole.values()} == {11 * FIVE_MINUTES_MS}
    assert len(fine) == 3 * 4 * 12, "two days of five minutes"


def of_flow(flow: str, at_ms: int) -> pa.Table:
    """Return an hour of looks at one flow."""
    times = range(at_ms, at_ms + HOUR_MS, FIVE_MINUTES_MS)
    counts = {"partitions": [3] * 12, "end_offsets": [*times], "positions": [time - 5 for time in times]}
    return pa.table({"owner": ["ann"] * 12, "flow": [flow] * 12, "time_ms": [*times], **counts})


def test_readers_of_lag_see_two_hours_as_before(tmp_path: Path) -> None:
    rows = [look("f:a->b", START + minute * 60_000, 100 * minute, 90 * minute) for minute in range(0, 600, 5)]
    now = write(tmp_path, rows, every_ms=HOUR_MS)
    assert min(row.time_ms for row in LagStore(tmp_path, "ann").read(now)) > now - 3 * HOUR_MS
    assert len({file.values[0] for file in StoredTable(tmp_path, LAG).files()}) == 2


def test_a_history_that_cannot_be_written_keeps_what_left_lag_for_a_day(tmp_path: Path) -> None:
    (tmp_path / LAG_HISTORY).mkdir()
    (tmp_path / LAG_HISTORY / "somebody's").write_text("file")
    rows = [look("f:a->b", START + hour * HOUR_MS, 100 * hour, 90 * hour) for hour in range(28)]
    errors = 0
    for row in rows:
        try:
            LagStore(tmp_path, "ann").append([row], row.time_ms)
        except Exception as error:
            errors += "holds files and is not a table" in str(error)
    assert errors > 20
    assert 24 <= len({file.values[0] for file in StoredTable(tmp_path, LAG).files()}) <= 26
    (tmp_path / LAG_HISTORY / "somebody's").unlink()
    LagStore(tmp_path, "ann").append([look("f:a->b", rows[-1].time_ms + 1, 1, 1)], rows[-1].time_ms + 1)
    fine, _ = stored(tmp_path, rows[-1].time_ms)
    assert len(fine) >= 24
