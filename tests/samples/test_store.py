"""Samples that were appended come back, whole or not at all, and each of them once."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mm2mgr.samples.batch import Batch
from mm2mgr.samples.schema import TABLES, hour_end_ms, hour_of, hour_start_ms, hours_text, store_of
from mm2mgr.samples.store import SampleStore
from mm2mgr.samples.tables import StoredTable
from tests.samples.rows import Sample, batches, data_files, samples_of, stored

HOUR_MS = 3_600_000
HOUR = "2025-11-21T10"
TEN = 1_763_719_200_000  # 2025-11-21T10:00:00Z
FIRST = Sample("dc1", "logs", 0, TEN, 10, 0, "id", 12.5, "kafka-offsets")


def at(time_ms: int) -> Sample:
    return replace(FIRST, time_ms=time_ms, record_bytes=None)


def store_at(directory: Path, *samples: Sample) -> SampleStore:
    store = SampleStore(directory)
    store.append(*batches(samples))
    return store


def times(store: SampleStore) -> list[int]:
    found: list[int] = stored(store)["time_ms"].to_pylist()
    return found


def test_samples_come_back_with_their_nulls(tmp_path: Path) -> None:
    unknown = replace(FIRST, topic="elsewhere", topic_id=None, record_bytes=None)
    store = SampleStore(tmp_path / "new" / "samples")
    assert store.append(*batches([FIRST, unknown, at(TEN + 1)])) == 3
    assert store.hours() == ["2025-11-21T10"]
    assert samples_of(stored(store)) == [unknown, FIRST, at(TEN + 1)]


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
    assert [tuple(row[name] for name in columns) for row in stored(store).to_pylist()] == [
        ("a", 0, 1.5, None, None, 60_000, "prometheus:bytes_in"),
        ("b", 3, None, 7, None, 60_000, "prometheus:bytes_in"),
    ]


def test_unknown_offsets_are_null_and_rows_without_any_value_are_not_kept(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    ends, starts = array("q", [5, -1, 7]), array("q", [0, -1, -1])
    batch = Batch("dc1", "kafka-offsets", TEN, ["a"] * 3, range(3), end_offset=ends, start_offset=starts)
    assert store.append(batch) == 2
    rows = stored(store).select(["partition", "end_offset", "start_offset"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(0, 5, 0), (2, 7, None)]
    assert store.append(Batch("dc1", "kafka-offsets", TEN, ["a"], [0], end_offset=[-1])) == 0
    assert store.append() == 0


@pytest.mark.parametrize(
    "wrong", [{"partitions": [0, 1]}, {"end_offset": []}, {"partitions": [-1]}, {"partitions": [10**9]}]
)
def test_a_batch_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"dc1|differ"):
        Batch(**{"cluster": "dc1", "source": "s", "time_ms": TEN, "topics": ["a"], "partitions": [0], **wrong})


def test_the_table_has_the_columns_that_the_schema_documents(tmp_path: Path) -> None:
    store = store_at(tmp_path, FIRST)
    assert stored(store).column_names == [column.name for column in TABLES["samples"] if column.name != "hour"]
    for name, columns in TABLES.items():
        assert all(column.meaning for column in columns)
        assert [field.nullable for field in StoredTable(tmp_path, name).schema] == [
            column.nullable for column in columns
        ]


def test_a_round_over_midnight_goes_to_two_hours(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    assert store.append(*batches([at(TEN), at(TEN + HOUR_MS)])) == 2
    assert store.hours() == ["2025-11-21T10", "2025-11-21T11"]
    assert store.newest_of("dc1", "kafka-offsets", 0) == TEN + HOUR_MS


# --- damage ---------------------------------------------------------------------------------------------------------


def test_a_file_that_no_commit_names_is_not_read(tmp_path: Path) -> None:
    store = store_at(tmp_path, FIRST)
    (written,) = data_files(tmp_path)
    (written.parent / "part-half.parquet").write_bytes(b"PAR1 and then the power went")
    assert samples_of(stored(store)) == [FIRST]


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
    return table.set_column(table.schema.get_field_index("time_ms"), "time_ms", pa.array([value] * len(table), kind))


def scratched(content: bytes) -> bytes:
    """Overwrite the middle of the data, and leave header and footer alone."""
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return content[:4] + bytes(byte ^ 0x5A for byte in content[4:end]) + content[end:]


@pytest.mark.parametrize("damage", list(damages()))
def test_a_damaged_file_is_named_and_left_out(tmp_path: Path, damage: Any) -> None:
    warnings: list[str] = []
    store = SampleStore(tmp_path, warnings.append)
    store.append(*batches([at(TEN)]))
    (bad,) = data_files(tmp_path)
    damage(bad)
    for number in range(1, 7):
        store.append(*batches([at(TEN + number)]))
    expected = [TEN + number for number in range(1, 7)]
    assert store.newest_of("dc1", "kafka-offsets", 0) == expected[-1]
    assert len(warnings) == 1
    assert str(bad) in warnings[0]
    for _ in range(2):
        assert times(store) == expected
        store.compact(HOUR)
    assert bad.exists()
    assert len(data_files(tmp_path)) == 2


def test_without_a_listener_damage_is_a_python_warning(tmp_path: Path) -> None:
    store = store_at(tmp_path, at(TEN + 1))
    data_files(tmp_path)[0].write_bytes(b"PAR1")
    store.append(*batches([FIRST]))
    with pytest.warns(UserWarning, match="is not a readable Parquet file"):
        assert store.newest_of("dc1", "kafka-offsets", 0) == TEN


def test_files_without_a_column_that_can_be_null_and_with_others_are_read(tmp_path: Path) -> None:
    store = store_at(tmp_path, FIRST)
    (path,) = data_files(tmp_path)
    whole = pq.read_table(path, partitioning=None)
    pq.write_table(whole.append_column("future", pa.array(["x"])).drop_columns(["log_bytes", "record_bytes"]), path)
    assert times(store) == [TEN]
    assert stored(store)["record_bytes"].to_pylist() == [None]


# --- compaction ------------------------------------------------------------------------------------------------------


def poll(store: SampleStore, minute: int, partitions: int = 3, source: str = "kafka-offsets") -> None:
    ends = [minute * 100 + number for number in range(partitions)]
    topics = [f"logs-{number % 2}" for number in range(partitions)]
    store.append(Batch("dc1", source, TEN + minute * 60_000, topics, range(partitions), end_offset=ends))


@pytest.fixture
def polled(tmp_path: Path) -> SampleStore:
    """An hour of ten polls, written out of order, with one poll twice and a second source at the same moments."""
    store = SampleStore(tmp_path)
    for minute in random.Random(7).sample(range(10), 10):
        poll(store, minute)
    poll(store, 4)
    poll(store, 4, source="prometheus:x")
    return store


def test_compaction_changes_no_answer_and_sorts_by_partition_and_time(polled: SampleStore) -> None:
    before = stored(polled)
    assert len(before) == 33
    assert polled.loose_hours() == [HOUR]
    assert polled.compact(HOUR) == 12
    assert stored(polled).equals(before)
    (path,) = data_files(Path(polled.store))
    rows = pq.read_table(path, partitioning=None)
    order = list(zip(*(rows[name].to_pylist() for name in ("topic", "partition", "time_ms", "source")), strict=True))
    assert order == sorted(order)
    assert (polled.compact(HOUR), polled.loose_hours()) == (0, [])


def test_late_samples_join_a_compacted_hour(polled: SampleStore) -> None:
    polled.compact(HOUR)
    for minute in range(20, 25):
        poll(polled, minute)
    before = stored(polled)
    assert polled.compact(HOUR) == 6
    assert stored(polled).equals(before)


def test_two_compactions_at_once_replace_the_files_once(polled: SampleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    before, other, real = stored(polled), SampleStore(polled.store), StoredTable.replace

    def first_the_other(table: StoredTable, *args: Any, **more: Any) -> None:
        monkeypatch.setattr(StoredTable, "replace", real)
        assert other.compact(HOUR) == 12
        poll(other, 30)
        real(table, *args, **more)

    monkeypatch.setattr(StoredTable, "replace", first_the_other)
    assert polled.compact(HOUR) == 0
    assert len(stored(polled)) == len(before) + 3
    assert len(data_files(Path(polled.store))) == 2


def test_samples_that_arrive_during_a_compaction_stay(polled: SampleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    before, real = len(stored(polled)), StoredTable.replace

    def first_a_poll(table: StoredTable, *args: Any, **more: Any) -> None:
        poll(SampleStore(polled.store), 30)
        real(table, *args, **more)

    monkeypatch.setattr(StoredTable, "replace", first_a_poll)
    assert polled.compact(HOUR) == 12
    assert len(stored(polled)) == before + 3


# --- where a store is, and age ---------------------------------------------------------------------------------------


def test_only_old_hours_expire_and_other_folders_stay(tmp_path: Path) -> None:
    store = store_at(tmp_path, at(TEN), at(TEN + HOUR_MS), at(TEN + 2 * HOUR_MS))
    (tmp_path / "notes").mkdir()
    assert store.expire(TEN + 2 * HOUR_MS - 1) == [HOUR]
    assert store.hours() == ["2025-11-21T11", "2025-11-21T12"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "samples"]


def test_the_newest_sample_of_a_cluster_and_source_is_found(polled: SampleStore) -> None:
    assert polled.newest_of("dc1", "kafka-offsets", 0) == TEN + 9 * 60_000
    assert polled.newest_of("dc1", "prometheus:", 0) == TEN + 4 * 60_000
    assert polled.newest_of("dc1", "cruise-control", 0) is None
    assert polled.newest_of("dc2", "kafka-offsets", 0) is None
    assert polled.newest_of("dc1", "kafka-offsets", TEN + HOUR_MS) is None


@pytest.mark.parametrize("uri", ["s3://key:secret@bucket/prefix", "gs://bucket/x?token=abc", "s3://bucket/#x"])
def test_a_uri_with_credentials_in_it_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="environment"):
        store_of(uri)


def test_a_uri_stays_as_it_is_and_a_folder_is_a_path() -> None:
    assert store_of("s3://bucket/prefix/") == "s3://bucket/prefix"
    assert store_of("abfss://box@account.dfs.core.windows.net/x") == "abfss://box@account.dfs.core.windows.net/x"
    assert store_of(".mm2mgr/samples") == Path(".mm2mgr/samples")


def test_hours_are_utc() -> None:
    assert hour_of(TEN - 1) == "2025-11-21T09"
    assert (hour_start_ms("2025-11-21T10"), hour_end_ms("2025-11-21T10")) == (TEN, TEN + HOUR_MS)
    assert hours_text(["2025-11-21T10"]) == "samples exist for the hour 2025-11-21T10 (UTC)"


def test_a_table_of_an_earlier_version_gets_the_columns_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = {
        name for name in (column.name for column in TABLES["samples"]) if name.startswith(("bytes_out", "replication"))
    }
    earlier = tuple(column for column in TABLES["samples"] if column.name not in new)
    with monkeypatch.context() as patch:
        patch.setitem(TABLES, "samples", earlier)  # type: ignore[arg-type]
        StoredTable(tmp_path, "samples").create()
    store = SampleStore(tmp_path)
    store.append(Batch("a", "x", 1_763_719_200_000, ["t"], [0], bytes_per_second=[1.0], bytes_out_per_second=[2.0]))
    (file,) = store.table.files()
    assert store.table.read_file(file, sorted(new)).to_pylist() == [
        {
            "bytes_out_per_second": 2.0,
            "replication_bytes_in_per_second": None,
            "replication_bytes_out_per_second": None,
        }
    ]
    before = store.table.snapshot().table
    SampleStore(tmp_path).append(Batch("a", "x", 1_763_719_260_000, ["t"], [0], bytes_per_second=[1.0]))
    assert before
    assert len(store.table.files()) == 2
