"""An hour that is over: few files, ordered by partition, with nothing lost and nothing counted twice, crash or not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mm2mgr.samples import compact
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.files import SAMPLE_SCHEMA
from mm2mgr.samples.schema import COMPACTED_PREFIX, IDS_PER_FILE, IDS_PER_ROW_GROUP
from mm2mgr.samples.store import SampleStore

TEN = 1_763_719_200_000  # 2025-11-21T10:00:00Z
HOUR = "2025-11-21T10"


def poll(store: SampleStore, minute: int, partitions: int = 3, source: str = "kafka-offsets") -> Path:
    ends = [minute * 100 + number for number in range(partitions)]
    (written,) = store.append(
        Batch("dc1", source, TEN + minute * 60_000, ["logs"] * partitions, range(partitions), end_offset=ends)
    )
    return written.path


@pytest.fixture
def store(tmp_path: Path) -> SampleStore:
    """An hour of ten polls, written out of order, with one poll twice and a second source at the same moments."""
    store = SampleStore(tmp_path)
    for minute in random.Random(7).sample(range(10), 10):
        poll(store, minute)
    poll(store, 4)
    poll(store, 4, source="prometheus:x")
    return store


def names(store: SampleStore) -> list[str]:
    return sorted(path.name for path in store.directory.glob("hour=*/*"))


def test_compaction_changes_no_answer(store: SampleStore) -> None:
    before = store.read()
    assert len(before) == 33
    (new,) = store.compact(HOUR)
    assert names(store) == [new.name]
    assert new.name.startswith(COMPACTED_PREFIX)
    assert store.read().equals(before)
    assert store.compact(HOUR) == []
    assert store.loose_hours() == []


def test_rows_lie_by_partition_and_time_and_integers_as_differences(store: SampleStore) -> None:
    (new,) = store.compact(HOUR)
    rows = pq.read_table(new, partitioning=None)
    order = list(zip(*(rows[name].to_pylist() for name in ("partition_id", "time_ms", "source")), strict=True))
    assert order == sorted(set(order))
    group = pq.ParquetFile(new).metadata.row_group(0)
    encodings = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in encodings["end_offset"].encodings
    assert "RLE_DICTIONARY" in encodings["source"].encodings
    assert {column.compression for column in encodings.values()} == {"ZSTD"}


def test_files_and_row_groups_end_at_ranges_of_ids(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    ids = pa.array([0, IDS_PER_ROW_GROUP - 1, IDS_PER_ROW_GROUP, IDS_PER_FILE - 1, 3 * IDS_PER_FILE], pa.int32())
    loose = poll(store, 0, partitions=len(ids))
    rows = pq.read_table(loose, partitioning=None)
    pq.write_table(rows.set_column(0, SAMPLE_SCHEMA.field(0), ids), loose)
    spans = []
    for path in store.compact(HOUR):
        metadata = pq.ParquetFile(path).metadata
        groups = [metadata.row_group(number).column(0).statistics for number in range(metadata.num_row_groups)]
        spans.append([(group.min, group.max) for group in groups])
    last = 3 * IDS_PER_FILE
    assert spans == [[(0, 4095), (4096, 4096), (IDS_PER_FILE - 1, IDS_PER_FILE - 1)], [(last, last)]]


def test_late_samples_join_a_compacted_hour(store: SampleStore) -> None:
    store.compact(HOUR)
    poll(store, 20)
    assert store.loose_hours() == [HOUR]
    before = store.read()
    assert len(store.compact(HOUR)) == 1
    assert len(names(store)) == 1
    assert store.read().equals(before)


class Killed(BaseException):
    """What the process dies of."""


@pytest.mark.parametrize("survivors", [0, 5, 11])
def test_a_crash_while_old_files_go_counts_nothing_twice(
    store: SampleStore, monkeypatch: pytest.MonkeyPatch, survivors: int
) -> None:
    before = store.read()
    real, removed = Path.unlink, []

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".parquet" and path.name[0] != ".":
            if len(removed) == 12 - survivors:
                raise Killed
            removed.append(path)
        real(path, missing_ok=missing_ok)

    if survivors:
        monkeypatch.setattr(Path, "unlink", unlink)
        with pytest.raises(Killed):
            store.compact(HOUR)
        monkeypatch.undo()
        assert len(names(store)) == 1 + survivors
    assert SampleStore(store.directory).read().equals(before)
    SampleStore(store.directory).compact(HOUR)
    assert len(names(store)) == 1
    assert store.read().equals(before)


def test_a_crash_between_new_files_leaves_the_old_ones(store: SampleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    before, old = store.read(), names(store)

    def dying(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(compact, "tables_to", dying)
    with pytest.raises(Killed):
        store.compact(HOUR)
    monkeypatch.undo()
    assert names(store) == old
    assert store.read().equals(before)
