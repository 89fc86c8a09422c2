"""Damage × place × reader: everyone names the damaged file or makes it anew; nobody counts wrongly in silence.

Places: what the store keeps. Readers: the sampler, its compaction, the job, and those who ask the roll-ups (`throughput --show`
and `size` ask through the same call).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput.plan import MADE_FROM
from mm2mgr.throughput.rates import PartitionRate
from mm2mgr.throughput.table import read_throughput
from tests.samples.rows import batches

from .stores import rolled, series, stored

HOURS = 4
STEP = 300
COMPACTED, LOOSE = "2025-11-21T10", "2025-11-21T11"
LATER = HOURS * 3600


def whole(folder: Path) -> Path:
    """Two topics for four hours; the first hour is compacted, all is rolled up."""
    seconds = range(0, HOURS * 3600, STEP)
    stored(folder, *[series(name, [(second, 10 * second) for second in seconds]) for name in ("a", "b")])
    SampleStore(folder).compact(COMPACTED)
    rolled(folder)
    return folder


def scratched(path: Path) -> None:
    """Overwrite the data of a Parquet file, and leave header and footer alone."""
    content = path.read_bytes()
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:4] + bytes(byte ^ 0x5A for byte in content[4:end]) + content[end:])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeroes": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "text": lambda path: path.write_text("not what it was\n"),
    "scratched": scratched,
    "another kind": lambda path: pq.write_table(pa.table({"other": [1, 2, 3]}), path),
}
PLACES = {
    "dictionary": "dictionary/0.parquet",
    "polls": f"hour={LOOSE}/*.parquet",
    "compacted": f"hour={COMPACTED}/ids-*.parquet",
    "hour's part": f"rollups/hour={LOOSE}/part-*.parquet",
    "day's part": "rollups/day=2025-11-21/part-*.parquet",
    "hour's list": f"rollups/hour={LOOSE}/{MADE_FROM}",
    "day's list": f"rollups/day=2025-11-21/{MADE_FROM}",
    "layout": "LAYOUT",
}


@dataclass
class Reader:
    """What a reader says and gives: `told` are warnings and errors in words, `rates` what it answers."""

    told: list[str] = field(default_factory=list)
    rates: list[PartitionRate] | None = None

    def does(self, do: Callable[[], Any]) -> Any:
        """Do something; an error of mm2mgr is something that it says, with what to do, and any other a bug."""
        try:
            return do()
        except Mm2mgrError as error:
            self.told.append(f"{error.message}, {error.hint}")
            return None


def sample(store: Path, reader: Reader) -> None:
    samples = SampleStore(store, reader.told.append)
    reader.does(lambda: samples.append(*batches(series("a", [(LATER, 10 * LATER)], size=None))))
    reader.does(lambda: [samples.compact(hour) for hour in samples.hours()])
    reader.does(samples.read)


def job(store: Path, reader: Reader) -> None:
    report = reader.does(lambda: rolled(store))
    reader.told += [f"{path}: {reason}" for path, reason in (report.unreadable if report else {}).items()]
    show(store, reader)


def show(store: Path, reader: Reader) -> None:
    reader.rates = reader.does(lambda: read_throughput(store))


READERS = {"sample": sample, "job": job, "show": show}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole(tmp_path_factory.mktemp("honest"))


def cases() -> Iterator[Any]:
    for place, where in PLACES.items():
        for damage in DAMAGES:
            if where.endswith("parquet") or damage not in ("scratched", "another kind"):
                for reader in READERS:
                    yield pytest.param(place, damage, reader, id=f"{place}, {damage}, {reader}")


@pytest.mark.parametrize(("place", "damage", "reader"), list(cases()))
def test_damage_is_named_or_made_good(honest: Path, tmp_path: Path, place: str, damage: str, reader: str) -> None:
    store = shutil.copytree(honest, tmp_path / "store")
    right = read_throughput(store)
    (path,) = store.glob(PLACES[place])
    DAMAGES[damage](path)
    one = Reader()
    READERS[reader](store, one)
    named = [said for said in one.told if path.name in said or path.parent.name in said]
    if one.rates is not None and one.rates != right:
        assert named, f"other numbers, and nobody says why: {one.told}"
    # What this reader does not look at it need not name; what it does look at, it names or makes anew.
    if reader == "show" and place in ("day's part", "dictionary"):
        assert named
    if reader == "job" and place in ("polls", "compacted"):
        assert one.rates == right or named


@pytest.mark.parametrize("damage", list(DAMAGES))
@pytest.mark.parametrize("place", ["hour's part", "day's part"])
def test_a_damaged_roll_up_is_gone_after_what_the_hint_says(
    honest: Path, tmp_path: Path, place: str, damage: str
) -> None:
    store = shutil.copytree(honest, tmp_path / "store")
    right = read_throughput(store)
    (path,) = store.glob(PLACES[place])
    DAMAGES[damage](path)
    stored(store, series("a", [(LATER, 10 * LATER)], size=None))  # so that the day has something to take in
    one = Reader()
    job(store, one)
    if one.rates is None:
        assert any("rollups" in said or path.name in said for said in one.told), one.told
        shutil.rmtree(store / "rollups")
        rolled(store)
    found = {rate.topic: rate for rate in read_throughput(store)}
    assert found["b"] == next(rate for rate in right if rate.topic == "b")
    assert found["a"].samples == HOURS * 12 + 1


@pytest.mark.parametrize("content", ["[]", '"x"', "{}", '{"hours": 7}', '{"version": "roll-up 1"}', "null", "1"])
@pytest.mark.parametrize("place", ["hour's list", "day's list"])
def test_a_list_that_says_something_else_is_no_list(honest: Path, tmp_path: Path, place: str, content: str) -> None:
    store = shutil.copytree(honest, tmp_path / "store")
    right = read_throughput(store)
    (path,) = store.glob(PLACES[place])
    path.write_text(content)
    assert read_throughput(store) == pytest.approx(right)
    rolled(store)
    assert read_throughput(store) == right
    assert isinstance(json.loads(path.read_text()), dict)


def test_a_part_that_is_gone_is_noticed(honest: Path, tmp_path: Path) -> None:
    store = shutil.copytree(honest, tmp_path / "store")
    right = read_throughput(store)
    for name in ("day's part", "hour's part"):
        (path,) = store.glob(PLACES[name])
        path.unlink()
    one = Reader()
    job(store, one)
    assert one.rates == right or one.told


# --- samples that are Parquet and yet none ------------------------------------------------------------------------------


def rewritten(table: Any, name: str, values: list[Any], kind: Any) -> Any:
    return table.set_column(table.column_names.index(name), name, pa.array(values, kind))


STRANGE: dict[str, Callable[[Any], Any]] = {
    "an id is null": lambda table: rewritten(table, "partition_id", [None, 1] * (len(table) // 2), pa.int32()),
    "a time is null": lambda table: rewritten(table, "time_ms", [None] * len(table), pa.int64()),
    "a source is null": lambda table: rewritten(
        table, "source", [None, "kafka-offsets"] * (len(table) // 2), pa.string()
    ),
    "ids are fractions": lambda table: rewritten(table, "partition_id", [0.5] * len(table), pa.float64()),
    "ids are words": lambda table: rewritten(table, "partition_id", ["x"] * len(table), pa.string()),
    "rates are words": lambda table: rewritten(table, "bytes_per_second", ["fast"] * len(table), pa.string()),
}


@pytest.mark.parametrize("strange", list(STRANGE))
def test_a_strange_file_spoils_no_other_and_the_job_and_the_sampler_agree_on_it(tmp_path: Path, strange: str) -> None:
    without, beside = tmp_path / "without", tmp_path / "beside"
    for folder in (without, beside):
        stored(folder, *[series(name, [(second, 10 * second) for second in range(0, 7200, STEP)]) for name in "ab"])
    stored(beside, *[series(name, [(second, 10**6) for second in range(30, 600, STEP)], size=None) for name in "ab"])
    (path,) = (one for one in beside.glob("hour=*/*") if pq.read_metadata(one).num_rows == 4)
    pq.write_table(STRANGE[strange](pq.read_table(path, partitioning=None)), path)
    rolled(without)
    report = rolled(beside)
    assert list(report.unreadable) == [str(path)]
    assert read_throughput(beside) == read_throughput(without)
    said: list[str] = []
    assert len(SampleStore(beside, said.append).read()) == len(SampleStore(without).read())
    assert [str(path) in one for one in said] == [True]


# --- a dictionary that does not fit the samples ---------------------------------------------------------------------------


def test_a_dictionary_that_is_gone_or_from_an_old_backup_gives_no_number_twice(honest: Path, tmp_path: Path) -> None:
    store = shutil.copytree(honest, tmp_path / "store")
    (first,) = (store / "dictionary").iterdir()
    backup = first.read_bytes()
    stored(store, series("c", [(7200, 1), (7500, 2)]))
    before = len(SampleStore(store).read())
    for lost in (first, store / "dictionary" / "2.parquet"):
        kept = {path: path.read_bytes() for path in (store / "dictionary").iterdir()}
        lost.unlink()
        if lost != first:
            first.write_bytes(backup)  # restored, and from before the newest topic
            with pytest.raises(Mm2mgrError, match=r"names 2 partitions, but samples have numbers up to 2") as caught:
                stored(store, series("d", [(7200, 1)]))
            assert "sample into another directory" in str(caught.value.hint)
        rolled(store)
        with pytest.raises(Mm2mgrError, match="lacks partitions that were sampled"):
            read_throughput(store)
        for path, content in kept.items():
            path.write_bytes(content)
    shutil.rmtree(store / "dictionary")
    with pytest.raises(Mm2mgrError, match="lacks partitions that were sampled"):
        read_throughput(store)
    with pytest.raises(Mm2mgrError, match="names 0 partitions"):
        stored(store, series("d", [(7200, 1)]))
    (store / "dictionary").mkdir()
    for path, content in kept.items():
        path.write_bytes(content)
    stored(store, series("d", [(7200, 1)]))
    assert len(SampleStore(store).read()) == before + 1
