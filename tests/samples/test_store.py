"""Samples that were appended come back, whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import LAYOUT_FILE, Sample, hour_of, hours_text
from mm2mgr.samples.store import SCHEMA, SampleStore

HOUR_MS = 3_600_000
TEN = 1_763_719_200_000  # 2025-11-21T10:00:00Z
FIRST = Sample("dc1", "logs", 0, TEN, 10, 0, "id", 12.5, "kafka-offsets")


def at(time_ms: int) -> Sample:
    return replace(FIRST, time_ms=time_ms, topic_id=None, record_bytes=None)


def test_samples_come_back_with_their_nulls(tmp_path: Path) -> None:
    store = SampleStore(tmp_path / "new" / "samples")
    (path,) = store.append([FIRST, at(TEN + 1)])
    assert path.parent.name == "hour=2025-11-21T10"
    assert store.read() == [FIRST, at(TEN + 1)]
    assert pq.read_schema(path).equals(SCHEMA)


def test_the_columns_are_the_fields_of_a_sample() -> None:
    assert SCHEMA.names == list(Sample.__dataclass_fields__)


def test_a_round_over_midnight_goes_to_two_hours(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    assert len(store.append([at(TEN), at(TEN + HOUR_MS)])) == 2
    assert store.hours() == ["2025-11-21T10", "2025-11-21T11"]


@given(
    times=st.lists(st.integers(TEN, TEN + 5 * HOUR_MS), min_size=1, max_size=8),
    bounds=st.tuples(*[st.integers(0, 6)] * 2),
)
def test_a_window_holds_exactly_its_samples(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], bounds: tuple[int, int]
) -> None:
    store = SampleStore(tmp_path_factory.mktemp("store"))
    store.append([at(time) for time in times])
    since, until = TEN + bounds[0] * HOUR_MS - 7, TEN + bounds[1] * HOUR_MS + 7
    expected = sorted(time for time in times if since <= time < until)
    if expected:
        assert sorted(sample.time_ms for sample in store.read(since, until)) == expected
    else:
        with pytest.raises(Mm2mgrError, match="no samples since"):
            store.read(since, until)


def test_an_empty_window_says_which_hours_exist(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    with pytest.raises(Mm2mgrError) as caught:
        store.read()
    assert "mm2mgr sample" in str(caught.value.hint)
    store.append([at(TEN), at(TEN + 2 * HOUR_MS)])
    with pytest.raises(Mm2mgrError, match="no samples since 2025-11-22T10:00:00Z") as caught:
        store.read(since_ms=TEN + 24 * HOUR_MS)
    assert caught.value.hint == "samples exist for 2 hours from 2025-11-21T10 to 2025-11-21T12 (UTC)"


def test_a_file_in_the_making_is_not_read(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    (path,) = store.append([FIRST])
    path.with_name(f".{path.name}.half").write_bytes(b"PAR1 and then the power went")
    (path.parent / ".hidden.parquet").write_bytes(b"PAR1")
    assert store.read() == [FIRST]


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    (path,) = store.append([FIRST])
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(Mm2mgrError) as caught:
        store.read()
    assert str(path) in caught.value.message


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SampleStore(tmp_path)
    store.append([FIRST])

    def disk_full(table: object, where: Path, **more: object) -> None:
        Path(where).write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", disk_full)
    with pytest.raises(Mm2mgrError, match="No space left"):
        store.append([at(TEN + 5)])
    monkeypatch.undo()
    assert store.read() == [FIRST]
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2  # the layout marker and the first file


def test_another_layout_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / LAYOUT_FILE).write_text("mm2mgr samples, layout 9\n")
    for use in (SampleStore(tmp_path).read, lambda: SampleStore(tmp_path).append([FIRST])):
        with pytest.raises(Mm2mgrError, match="layout 9"):
            use()
    assert [path.name for path in tmp_path.iterdir()] == [LAYOUT_FILE]


def test_hours_are_utc() -> None:
    assert hour_of(TEN - 1) == "2025-11-21T09"
    assert hours_text(["2025-11-21T10"]) == "samples exist for the hour 2025-11-21T10 (UTC)"
