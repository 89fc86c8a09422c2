"""Stores that somebody damaged, or that are another's: what is whole is read, what is not is named, and no other error gets out."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.errors import Mm2mgrError
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.log_history import WantedLog, log_histories
from mm2mgr.samples.schema import (
    HOUR_MS,
    LAG,
    LOSSES,
    PARTITIONED_BY,
    SAMPLES,
    TASK_OFFSETS,
    LossRow,
    SharedLag,
    Store,
    hour_of,
    store_of,
)
from mm2mgr.samples.store import LagStore, LossStore, SampleStore, TaskRow, TaskStore
from mm2mgr.samples.tables import MissingFile, Share, StoredTable, arrow_schema, read_share
from mm2mgr.throughput.rollup_job import make
from tests.examples import draw_examples

from .rows import data_files

NOW = int(time.time() * 1000) // HOUR_MS * HOUR_MS + 1_200_000
HOURS = [hour_of(NOW - HOUR_MS), hour_of(NOW)]
READ = (SAMPLES, TASK_OFFSETS, LOSSES, LAG)


def fill(store: Path) -> None:
    """Write two files of each table; of samples and tasks, one of the hour before."""
    for at in (NOW - HOUR_MS, NOW):
        SampleStore(store).append(
            Batch("A", "kafka-offsets", at, ["orders"], [0], ["id"], end_offset=[at // 1000], start_offset=[0])
        )
        TaskStore(store, print).append([TaskRow("main", "x", "A", "B", "s", 0, at, 1000, 5.0, 9, 10)])
        loss = LossRow(
            "loss", str(at), "f:A->B", "A", "orders", "id", 0, "retention", "log-start", 1, 5, 5, 5, None, at
        )
        LossStore(store, "me").append([loss])
        LagStore(store, "me").append([SharedLag("f:A->B", "home", at, 1, 0, 5, 3)], NOW)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled") / "store"
    fill(folder)
    return folder


@dataclass
class Seen:
    """What readers and writers of one store returned and said."""

    store: Path
    warnings: list[str] = field(default_factory=list)

    def read(self, table: str) -> Any:
        warn, store = self.warnings.append, self.store
        wanted = {"A": [WantedLog(TopicPartition("orders", 0), 5, "id")]}
        if table == SAMPLES:
            SampleStore(store, warn).newest_of("A", "kafka-offsets", 0)
            self.warnings.clear()  # the other reader says the same
            return log_histories(store, wanted, NOW, warn)["A"][0].times_ms
        if table == TASK_OFFSETS:
            return [row.time_ms for row in TaskStore(store, warn).read()]
        if table == LOSSES:
            return sorted(row.time_ms for row in LossStore(store, "me", warn).read())
        return sorted(row.time_ms for row in LagStore(store, "me", warn).read(NOW))

    def write(self, table: str) -> None:
        """Add rows, and rewrite and expire files."""
        warn, store = self.warnings.append, self.store
        if table == SAMPLES:
            samples = SampleStore(store, warn)
            samples.append(Batch("A", "kafka-offsets", NOW + 1, ["orders"], [0], end_offset=[5]))
            for hour in samples.hours():
                samples.compact(hour)
            samples.expire(NOW - 5 * HOUR_MS)
            samples.vacuum()
            make(store)
        elif table == TASK_OFFSETS:
            TaskStore(store, warn).append([TaskRow("main", "x", "A", "B", "s", 1, NOW, 1000, 5.0, 9, 10)])
            TaskStore(store, warn).tidy(NOW + HOUR_MS, 86_400.0)
        elif table == LOSSES:
            row = LossRow(
                "loss", "n", "f:A->B", "A", "orders", "id", 0, "retention", "log-start", 1, 5, 5, 5, None, NOW
            )
            LossStore(store, "me", warn).append([row])
        else:
            LagStore(store, "me", warn).append([SharedLag("f:A->B", "home", NOW + 1, 1, 0, 5, 3)], NOW)


@pytest.fixture
def seen(filled: Path, tmp_path: Path) -> Seen:
    return Seen(Path(shutil.copytree(filled, tmp_path / "store")))


def logs(seen: Seen, table: str) -> list[Path]:
    return sorted((seen.store / table / "_delta_log").glob("*.json"))


def with_add(seen: Seen, table: str, **changes: Any) -> None:
    """Change the last file that a table lists."""
    log = logs(seen, table)[-1]
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"] |= changes
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def rewritten(path: Path, column: Callable[[Any, str], Any]) -> None:
    table = pq.read_table(path, partitioning=None)
    pq.write_table(pa.table({name: column(table[name], name) for name in table.column_names}), path)


def pipe_beside(path: Path) -> Path:
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    return pipe


def socket_at(path: Path) -> None:
    path.unlink()
    os.mknod(path, stat.S_IFSOCK | 0o600)


FILES: Mapping[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link to a pipe": lambda path: (path.unlink(), path.symlink_to(pipe_beside(path))),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:60]),
    "of another kind": lambda path: pq.write_table(pa.table({"other": [1]}), path),
    "all texts": lambda path: rewritten(path, lambda column, _: pa.array(["x"] * len(column))),
    "all lists": lambda path: rewritten(path, lambda column, _: pa.array([[1]] * len(column))),
    "all null": lambda path: rewritten(path, lambda column, _: pa.nulls(len(column))),
}


@pytest.mark.parametrize("table", READ)
@pytest.mark.parametrize("damage", FILES)
def test_a_file_that_is_gone_or_damaged_is_named_and_the_others_count(seen: Seen, table: str, damage: str) -> None:
    (newest,) = [path for path in data_files(seen.store, table) if path == _last_of(seen, table)]
    whole = seen.read(table)
    assert (len(whole), seen.warnings) == (2, [])
    FILES[damage](newest)
    assert seen.read(table) == whole[:1] or seen.read(table) == tuple(whole[:1])
    assert all(newest.name in warning for warning in seen.warnings)
    assert seen.warnings
    seen.write(table)


def _last_of(seen: Seen, table: str) -> Path:
    adds = [json.loads(line) for line in logs(seen, table)[-1].read_text().splitlines()]
    (path,) = [each["add"]["path"] for each in adds if "add" in each]
    return seen.store / table / path


OUTSIDE = [
    "../outside.parquet",
    "%2e%2e/outside.parquet",
    "a/../../outside.parquet",
    "/{}/outside.parquet",
    "file://{}/x",
]


@pytest.mark.parametrize("table", READ)
@pytest.mark.parametrize("path", [*OUTSIDE, "s3://bucket/x.parquet", ""])
def test_a_path_that_leads_out_of_the_table_is_refused(seen: Seen, table: str, path: str) -> None:
    """Nothing there is read, and nothing there is deleted when its rows are rewritten or expire."""
    outside = seen.store / "outside.parquet"
    shutil.copy(_last_of(seen, table), outside)
    os.utime(outside, (1, 1))
    with_add(seen, table, path=path.format(seen.store))
    assert len(seen.read(table)) == 1
    assert "its path leads out of the table: left out" in seen.warnings[0]
    seen.write(table)
    assert outside.exists()


@pytest.mark.parametrize("table", READ)
@pytest.mark.parametrize("name", ["hour", "_delta_log", "beside"])
def test_nothing_is_read_written_or_deleted_behind_a_link(seen: Seen, table: str, name: str) -> None:
    """The library follows links: it would delete all old files of a folder that one leads to."""
    folder, outside = seen.store / table, seen.store / "outside"
    link = _last_of(seen, table).parent if name == "hour" else folder / name
    if name == "beside":
        outside.mkdir()
    else:
        link.rename(outside)
    (outside / "notes.parquet").write_text("somebody's")
    for path in outside.rglob("*"):
        os.utime(path, (1, 1))
    link.symlink_to(outside)
    before = {path: path.read_bytes() for path in outside.rglob("*")}
    rows = {"beside": 2, "hour": 1 if table in (SAMPLES, TASK_OFFSETS) else 0}  # the others have all in one folder
    if name in rows:
        assert len(seen.read(table)) == rows[name]
    if name == "beside":
        seen.write(table)
        StoredTable(seen.store, table, seen.warnings.append).vacuum()
        says = f"{link} is a link: no file of the table {folder} that is no longer needed is deleted"
        assert says in seen.warnings
    else:
        with pytest.raises(Mm2mgrError, match=f"{link} is a link: nothing is written where it leads"):
            seen.write(table)
    assert {path: path.read_bytes() for path in outside.rglob("*")} == before


@pytest.mark.parametrize("table", [SAMPLES, TASK_OFFSETS, LAG])
@pytest.mark.parametrize("hour", ["../../etc", "3", "2026-13-41T99"])
def test_a_file_of_no_hour_is_named(seen: Seen, table: str, hour: str) -> None:
    with_add(seen, table, partitionValues={"hour": hour})
    assert len(seen.read(table)) == 1
    assert f"its hour is {hour!r}: left out" in seen.warnings[0]
    seen.write(table)


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink()


def _without_checkpoint(seen: Seen, table: str) -> None:
    DeltaTable(str(seen.store / table)).create_checkpoint()
    _delete((seen.store / table / "_delta_log").glob("*.checkpoint.parquet"))


LOGS: Mapping[str, Callable[[Seen, str], object]] = {
    "no JSON": lambda seen, table: logs(seen, table)[-1].write_text("this is no JSON\n"),
    "a list": lambda seen, table: logs(seen, table)[-1].write_text("[1, 2]\n"),
    "bytes": lambda seen, table: logs(seen, table)[-1].write_bytes(b"\xff\0\xfe" * 30),
    "a pipe": lambda seen, table: FILES["a pipe"](logs(seen, table)[-1]),
    "a link to a pipe": lambda seen, table: FILES["a link to a pipe"](logs(seen, table)[0]),
    "a socket": lambda seen, table: socket_at(logs(seen, table)[0]),
    "the newest entry is a pipe": lambda seen, table: os.mkfifo(
        logs(seen, table)[-1].with_name(f"{len(logs(seen, table)):020}.json")
    ),
    "the first entry is gone": lambda seen, table: logs(seen, table)[0].unlink(),
    "an entry is gone": lambda seen, table: logs(seen, table)[1].unlink(),
    "all entries are gone": lambda seen, table: _delete(logs(seen, table)),
    "the checkpoint is gone": _without_checkpoint,
    "no partition": lambda seen, table: with_add(seen, table, partitionValues={}),
}


@pytest.mark.parametrize("table", READ)
@pytest.mark.parametrize("damage", LOGS)
def test_a_damaged_log_is_called_that(seen: Seen, table: str, damage: str) -> None:
    LOGS[damage](seen, table)
    with pytest.raises(Mm2mgrError, match=r"the log of the table .* is damaged: ") as raised:
        seen.read(table)
    assert raised.value.hint is not None
    assert "bring back the files of its _delta_log" in raised.value.hint
    assert "credentials" not in raised.value.hint
    with pytest.raises(Mm2mgrError):
        seen.write(table)


def _other(store: Path, table: str, columns: Mapping[str, Any], by: Iterable[str]) -> None:
    shutil.rmtree(store / table)
    rows = {**columns, **{name: [HOURS[0]] for name in by}}
    write_deltalake(str(store / table), pa.table(rows), partition_by=list(by))


@pytest.mark.parametrize("table", READ)
@pytest.mark.parametrize(
    ("columns", "is_partitioned", "says"),
    [
        ({"a": [1]}, False, "it is partitioned by no column, not by "),
        ({"a": [1]}, True, "it has no column "),
        (None, True, r"its column \w+ is of the type long, not string"),
    ],
)
def test_a_table_of_somebody_else_is_refused_and_not_written_to(
    seen: Seen, table: str, columns: Mapping[str, Any] | None, is_partitioned: bool, says: str
) -> None:
    chosen = columns or {name: [7] for name in arrow_schema(table).names}
    _other(seen.store, table, chosen, PARTITIONED_BY[table] if is_partitioned else ())
    before = sorted((seen.store / table).rglob("*"))
    for use in (seen.read, seen.write):
        with pytest.raises(Mm2mgrError, match=f"is not the table {table} of mm2mgr: {says}"):
            use(table)
    assert sorted((seen.store / table).rglob("*")) == before


def test_numbers_that_no_partition_has_are_no_offsets(seen: Seen) -> None:
    for path in data_files(seen.store):
        rewritten(path, lambda column, name: pa.array([-5] * len(column)) if name == "partition" else column)
    assert seen.read(SAMPLES) == ()


def test_a_file_that_only_another_machine_misses_fails_its_job(seen: Seen) -> None:
    """An executor without the mount must not count an hour without its samples."""
    table = StoredTable(seen.store, SAMPLES)
    files = table.files()
    data_files(seen.store)[0].unlink()
    with pytest.raises(MissingFile):
        read_share(table, files, ("cluster", "topic"), Share())


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "s3://",
            "s3:///",
            "s3:///prefix",
            "S3://",
            "s3:/bucket/x",
            "s3:bucket",
            "gs:",
            "hdfs://",
            "hdfs:///",
        ),
        *("http://host/x", "ftp://x/y", "s4://bucket/x", "file:///tmp/x", "s3://bucket/../other"),
    ],
)
def test_a_store_that_is_no_place_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"is empty|names no bucket|begins with|has \.\. in it"):
        store_of(text)
    with pytest.raises(Mm2mgrError, match=r"^the store "):
        SampleStore(text)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "store"),
    [
        ("S3://bucket/x/", "s3://bucket/x"),
        ("hdfs:///mm2mgr", "hdfs:///mm2mgr"),
        ("hdfs://name:8020/mm2mgr", "hdfs://name:8020/mm2mgr"),
        ("gs://bucket", "gs://bucket"),
        ("a:b", Path("a:b")),
        ("/var/lib/s3", Path("/var/lib/s3")),
        ("../store", Path("../store")),
    ],
)
def test_a_store_is_a_folder_or_a_uri(text: str, store: Store) -> None:
    assert store_of(text) == store


# --- any damage -------------------------------------------------------------------------------------------------------


def _harmed(files: list[Path], dice: random.Random) -> str:
    """Harm one file of a store in some way, and say how."""
    path = dice.choice(files)
    content = bytearray(path.read_bytes())
    how = dice.choice(["delete", "cut off", "flip", "zeroes", "other file", "other text", "twice", "empty"])
    if how == "delete":
        path.unlink()
    elif how == "cut off":
        path.write_bytes(content[: dice.randrange(len(content) + 1)])
    elif how == "flip" and content:
        for _ in range(dice.choice([1, 3, 50])):
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(content)
    elif how == "zeroes":
        path.write_bytes(bytes(len(content)))
    elif how == "other file":
        path.write_bytes(dice.choice(files).read_bytes())
    elif how == "other text":
        words = [
            b"hour",
            b"path",
            b"cluster",
            b"string",
            b"integer",
            b"add",
            b"true",
            b'"',
            b"{",
            b"1",
            b"owner",
            b"size",
        ]
        other = [b"", b"..", b"null", b"-1", b"1e400", b"\\u0000", b"[]", b'"', b"../../x", b"99999999999999999999"]
        path.write_bytes(bytes(content).replace(dice.choice(words), dice.choice(other), dice.choice([1, 2, -1])))
    elif how == "twice":
        path.write_bytes(content * 2)
    else:
        path.write_bytes(b"")
    return f"{path.relative_to(files[0].anchor)}: {how}"


@draw_examples(30)
@given(seed=st.integers(0, 2**32))
def test_no_other_error_gets_out_of_a_store_whatever_is_harmed(filled: Path, seed: int) -> None:
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        seen = Seen(Path(shutil.copytree(filled, Path(folder) / "store")))
        if dice.random() < 0.3:
            DeltaTable(str(seen.store / dice.choice(READ))).create_checkpoint()
        files = sorted(path for path in seen.store.rglob("*") if path.is_file())
        harms = [_harmed([path for path in files if path.exists()], dice) for _ in range(dice.choice([1, 1, 2, 5]))]
        refused: list[str] = []
        for use, table in itertools.product((seen.read, seen.write, seen.read), READ):
            try:
                use(table)
            except Mm2mgrError as error:
                refused.append(error.message)
            except BaseException as error:
                raise AssertionError(f"{harms}: {use.__name__} {table}: {type(error).__name__}: {error}") from error
        assert [message for message in refused if str(seen.store) not in message] == [], harms
