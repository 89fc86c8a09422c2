"""Samples that were appended come back, whole or not at all, and each of them once."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples import files
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.schema import (
    DICTIONARY_COLUMNS,
    LAYOUT,
    LAYOUT_FILE,
    NEVER_NULL,
    SAMPLE_COLUMNS,
    hour_end_ms,
    hour_of,
    hour_start_ms,
    hours_text,
)
from mm2mgr.samples.store import SampleStore
from tests.samples.rows import Sample, batches, samples_of

HOUR_MS = 3_600_000
TEN = 1_763_719_200_000  # 2025-11-21T10:00:00Z
FIRST = Sample("dc1", "logs", 0, TEN, 10, 0, "id", 12.5, "kafka-offsets")


def at(time_ms: int) -> Sample:
    return replace(FIRST, time_ms=time_ms, record_bytes=None)


def store_at(directory: Path, *samples: Sample) -> SampleStore:
    store = SampleStore(directory)
    store.append(*batches(samples))
    return store


def times(store: SampleStore) -> list[int]:
    found: list[int] = store.read()["time_ms"].to_pylist()
    return found


def test_samples_come_back_with_their_nulls(tmp_path: Path) -> None:
    unknown = replace(FIRST, topic="elsewhere", topic_id=None, record_bytes=None)
    store = SampleStore(tmp_path / "new" / "samples")
    (written,) = store.append(*batches([FIRST, unknown, at(TEN + 1)]))
    assert (written.path.parent.name, written.hour, written.samples) == ("hour=2025-11-21T10", "2025-11-21T10", 3)
    assert samples_of(store.read()) == [FIRST, at(TEN + 1), unknown]
    assert pq.read_schema(written.path).names == list(SAMPLE_COLUMNS)
    assert (store.directory / LAYOUT_FILE).read_text().strip() == LAYOUT


def test_rates_of_other_sources_come_back(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    rates = Batch(
        "dc1",
        "prometheus:bytes_in",
        TEN,
        ["a", "b"],
        [0, 3],
        None,
        60_000,
        bytes_per_second=[1.5, None],
        log_bytes=[None, 7],
    )
    store.append(rates)
    columns = ("topic", "partition", "bytes_per_second", "log_bytes", "end_offset", "resolution_ms", "source")
    assert [tuple(row[name] for name in columns) for row in store.read().to_pylist()] == [
        ("a", 0, 1.5, None, None, 60_000, "prometheus:bytes_in"),
        ("b", 3, None, 7, None, 60_000, "prometheus:bytes_in"),
    ]


def test_unknown_offsets_are_null_and_rows_without_any_value_are_not_kept(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    ends, starts = array("q", [5, -1, 7]), array("q", [0, -1, -1])
    (written,) = store.append(
        Batch("dc1", "kafka-offsets", TEN, ["a"] * 3, range(3), end_offset=ends, start_offset=starts)
    )
    assert written.samples == 2
    rows = store.read().select(["partition", "end_offset", "start_offset"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(0, 5, 0), (2, 7, None)]
    assert store.append(Batch("dc1", "kafka-offsets", TEN, ["a"], [0], end_offset=[-1])) == []
    assert store.append() == []


@pytest.mark.parametrize(
    "wrong", [{"partitions": [0, 1]}, {"end_offset": []}, {"partitions": [-1]}, {"partitions": [10**9]}]
)
def test_a_batch_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"dc1|differ"):
        Batch(**{"cluster": "dc1", "source": "s", "time_ms": TEN, "topics": ["a"], "partitions": [0], **wrong})


def test_the_tables_have_the_columns_that_the_schema_names(tmp_path: Path) -> None:
    store = store_at(tmp_path, FIRST)
    assert store.read().column_names == [*SAMPLE_COLUMNS, "cluster", "topic", "partition", "topic_id"]
    assert store.dictionary().column_names == list(DICTIONARY_COLUMNS)
    assert {field.name for field in files.SAMPLE_SCHEMA if not field.nullable} == NEVER_NULL & SAMPLE_COLUMNS.keys()


def test_a_round_over_midnight_goes_to_two_hours(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    assert len(store.append(*batches([at(TEN), at(TEN + HOUR_MS)]))) == 2
    assert store.hours() == ["2025-11-21T10", "2025-11-21T11"]
    assert store.newest_ms() == TEN + HOUR_MS


@settings(deadline=None, max_examples=40)
@given(
    moments=st.lists(st.integers(TEN, TEN + 5 * HOUR_MS), min_size=1, max_size=8),
    bounds=st.tuples(*[st.integers(0, 6)] * 2),
)
def test_a_window_holds_exactly_its_samples_once(
    tmp_path_factory: pytest.TempPathFactory, moments: list[int], bounds: tuple[int, int]
) -> None:
    store = store_at(tmp_path_factory.mktemp("store"), *[at(moment) for moment in moments])
    since, until = TEN + bounds[0] * HOUR_MS - 7, TEN + bounds[1] * HOUR_MS + 7
    expected = sorted({moment for moment in moments if since <= moment < until})
    if expected:
        assert store.read(since, until)["time_ms"].to_pylist() == expected
    else:
        with pytest.raises(Mm2mgrError, match="no samples since"):
            store.read(since, until)


def test_an_empty_window_says_which_hours_exist(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    for use in (store.read, store.newest_ms):
        with pytest.raises(Mm2mgrError) as caught:
            use()
        assert "mm2mgr sample" in str(caught.value.hint)
    store.append(*batches([at(TEN), at(TEN + 2 * HOUR_MS)]))
    with pytest.raises(Mm2mgrError, match="no samples since 2025-11-22T10:00:00Z") as caught:
        store.read(since_ms=TEN + 24 * HOUR_MS)
    assert caught.value.hint == "samples exist for 2 hours from 2025-11-21T10 to 2025-11-21T12 (UTC)"


# --- damage ---------------------------------------------------------------------------------------------------------


def test_a_file_in_the_making_is_not_read(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    (written,) = store.append(*batches([FIRST]))
    written.path.with_name(f".{written.path.name}.half").write_bytes(b"PAR1 and then the power went")
    (written.path.parent / ".hidden.parquet").write_bytes(b"PAR1")
    assert samples_of(store.read()) == [FIRST]


def damages() -> Iterator[Any]:
    yield pytest.param(lambda path: path.write_bytes(path.read_bytes()[:100]), id="cut off")
    yield pytest.param(lambda path: path.write_bytes(b""), id="no bytes")
    yield pytest.param(lambda path: path.write_bytes(b"\0" * 4096), id="zeroes")
    yield pytest.param(lambda path: path.write_text("partition_id,time_ms\n1,2\n"), id="not Parquet")
    yield pytest.param(lambda path: pq.write_table(pa.table({"other": [1]}), path), id="of another kind")
    yield pytest.param(lambda path: pq.write_table(retyped(path, pa.string(), "yesterday"), path), id="another type")
    yield pytest.param(lambda path: pq.write_table(retyped(path, pa.int64(), None), path), id="null where none can be")
    yield pytest.param(lambda path: path.write_bytes(scratched(path.read_bytes())), id="a damaged page")


def retyped(path: Path, kind: Any, value: object) -> Any:
    table = pq.read_table(path, partitioning=None)
    return table.set_column(1, "time_ms", pa.array([value] * len(table), kind))


def scratched(content: bytes) -> bytes:
    """Overwrite the middle of the data, and leave header and footer alone."""
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return content[:4] + bytes(byte ^ 0x5A for byte in content[4:end]) + content[end:]


@pytest.mark.parametrize("damage", list(damages()))
def test_a_damaged_file_is_named_and_left_out(tmp_path: Path, damage: Any) -> None:
    said: list[str] = []
    store = SampleStore(tmp_path, said.append)
    good, bad = (store.append(*batches([at(TEN + number)]))[0] for number in range(2))
    damage(bad.path)
    assert times(store) == [TEN]
    assert len(said) == 1
    assert str(bad.path) in said[0]
    store.append(*batches([at(TEN + 9)]))
    for _ in range(2):
        store.compact(good.hour)
        assert times(store) == [TEN, TEN + 9]
    assert bad.path.exists()


def test_without_a_listener_damage_is_a_python_warning(tmp_path: Path) -> None:
    store = store_at(tmp_path, FIRST)
    (written,) = store.append(*batches([at(TEN + 1)]))
    written.path.write_bytes(b"PAR1")
    with pytest.warns(UserWarning, match="is not a readable sample file"):
        assert times(store) == [TEN]


def test_files_without_rows_and_of_other_versions_are_read(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    (written,) = store.append(*batches([FIRST]))
    whole = pq.read_table(written.path, partitioning=None)
    later = whole.set_column(1, "time_ms", pa.array([TEN + 1])).append_column("future", pa.array(["x"]))
    earlier = later.set_column(1, "time_ms", pa.array([TEN + 2])).drop_columns(["log_bytes", "record_bytes"])
    for name, table in (("none", whole.slice(0, 0)), ("later", later), ("earlier", earlier)):
        pq.write_table(table, written.path.with_name(f"{name}.parquet"))
    assert times(store) == [TEN, TEN + 1, TEN + 2]
    store.compact(written.hour)
    assert times(store) == [TEN, TEN + 1, TEN + 2]


def test_drafts_of_a_killed_process_are_swept_when_they_are_old(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    (written,) = store.append(*batches([FIRST]))
    old, young = (written.path.with_name(f".1-a.parquet.{name}") for name in ("old", "young"))
    for draft in (old, young):
        draft.write_bytes(b"PAR1")
    os.utime(old, (time.time() - 7200,) * 2)
    store.append(*batches([at(TEN + 1)]))
    assert not old.exists()
    assert young.exists()


# --- layout, hours, age ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marker", [b"mm2mgr samples, layout 1\n", b"\xff\xfe\x00 garbage", b""])
def test_another_layout_is_refused_and_left_alone(tmp_path: Path, marker: bytes) -> None:
    (tmp_path / LAYOUT_FILE).write_bytes(marker)
    store = SampleStore(tmp_path)
    for use in (store.read, store.newest_ms, lambda: store.append(*batches([FIRST])), lambda: store.expire(TEN)):
        with pytest.raises(Mm2mgrError, match="layout 2") as caught:
            use()
        assert "sample into another directory" in str(caught.value.hint)
    assert [path.name for path in tmp_path.iterdir()] == [LAYOUT_FILE]


def test_hours_without_a_marker_are_refused(tmp_path: Path) -> None:
    store = store_at(tmp_path, FIRST)
    (tmp_path / LAYOUT_FILE).unlink()
    with pytest.raises(Mm2mgrError, match="no LAYOUT file"):
        store.append(*batches([FIRST]))


def test_only_old_hours_expire_and_other_folders_stay(tmp_path: Path) -> None:
    store = store_at(tmp_path, at(TEN), at(TEN + HOUR_MS), at(TEN + 2 * HOUR_MS))
    (tmp_path / "rollups" / "hour=2025-11-21T10").mkdir(parents=True)
    (tmp_path / "hour=not-ours").mkdir()
    assert store.expire(TEN + 2 * HOUR_MS - 1) == ["2025-11-21T10"]
    assert store.hours() == ["2025-11-21T11", "2025-11-21T12"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(".lock", "LAYOUT", "dictionary", "hour=2025-11-21T11", "hour=2025-11-21T12", "hour=not-ours", "rollups")
    ]


def test_hours_are_utc() -> None:
    assert hour_of(TEN - 1) == "2025-11-21T09"
    assert (hour_start_ms("2025-11-21T10"), hour_end_ms("2025-11-21T10")) == (TEN, TEN + HOUR_MS)
    assert hours_text(["2025-11-21T10"]) == "samples exist for the hour 2025-11-21T10 (UTC)"
