"""Partition ids: given once, kept for good, never shared by two logs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.dictionary import Dictionary

LOOK_UP = """
import sys
from pathlib import Path
from mm2mgr.samples.dictionary import Dictionary
dictionary = Dictionary(Path(sys.argv[1]))
for number in range(30):
    dictionary.ids(sys.argv[2], ["shared", f"t{number}"], [0, 0], [None, None])
"""


def entries(store: Path) -> list[tuple[int, str, str, int, str | None]]:
    return [tuple(row.values()) for row in Dictionary(store).table().to_pylist()]


def test_ids_stay_and_new_partitions_get_the_next(tmp_path: Path) -> None:
    first = Dictionary(tmp_path)
    assert list(first.ids("dc1", ["a", "a"], [0, 1], ["x", "x"])) == [0, 1]
    assert list(first.ids("dc1", ["a", "b", "a"], [1, 7, 2], ["x", "y", "x"])) == [1, 2, 3]
    assert list(first.ids("dc2", ["a"], [0], ["x"])) == [4]
    again = Dictionary(tmp_path)
    assert list(again.ids("dc1", ["a", "b", "a", "a"], [0, 7, 1, 2], ["x", "y", "x", "x"])) == [0, 2, 1, 3]
    assert [path.name for path in sorted((tmp_path / "dictionary").iterdir())] == [
        "0.parquet",
        "2.parquet",
        "4.parquet",
    ]
    assert entries(tmp_path) == [
        (0, "dc1", "a", 0, "x"),
        (1, "dc1", "a", 1, "x"),
        (2, "dc1", "b", 7, "y"),
        (3, "dc1", "a", 2, "x"),
        (4, "dc2", "a", 0, "x"),
    ]


def test_a_topic_created_anew_gets_new_ids_and_no_id_means_the_newest(tmp_path: Path) -> None:
    dictionary = Dictionary(tmp_path)
    assert list(dictionary.ids("dc1", ["a"], [0], [None])) == [0]
    assert list(dictionary.ids("dc1", ["a"], [0], ["old"])) == [1]
    assert list(dictionary.ids("dc1", ["a"], [0], ["new"])) == [2]
    for used in (dictionary, Dictionary(tmp_path)):
        assert list(used.ids("dc1", ["a", "a", "a"], [0, 0, 0], [None, "old", "new"])) == [2, 1, 2]
    assert list(dictionary.ids("dc1", ["a"], [1], [None])) == [3]
    assert entries(tmp_path)[3] == (3, "dc1", "a", 1, "new")


def test_processes_at_the_same_time_agree(tmp_path: Path) -> None:
    clusters = ["dc1", "dc1", "dc2"]
    running = [subprocess.Popen([sys.executable, "-c", LOOK_UP, str(tmp_path), cluster]) for cluster in clusters]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    found = entries(tmp_path)
    assert [row[0] for row in found] == list(range(62))
    assert len({row[1:] for row in found}) == 62


def test_many_small_files_become_one_and_others_notice(tmp_path: Path) -> None:
    writer, other = Dictionary(tmp_path), Dictionary(tmp_path)
    for number in range(100):
        assert list(writer.ids("dc1", ["a"], [number], ["x"])) == [number]
        if number in (3, 70):
            assert list(other.ids("dc1", ["a"], [number], ["x"])) == [number]
    assert len(list((tmp_path / "dictionary").iterdir())) < 70
    assert list(other.ids("dc1", ["a"] * 101, range(101), ["x"] * 101)) == list(range(101))
    assert [row[0] for row in entries(tmp_path)] == list(range(101))


def test_a_crash_after_merging_repeats_entries_harmlessly(tmp_path: Path) -> None:
    writer = Dictionary(tmp_path)
    writer.ids("dc1", ["a"], [0], ["x"])
    writer.ids("dc1", ["a"], [1], ["x"])
    writer._write(writer.table())  # the merged file is there, and the old ones too
    assert [row[0] for row in entries(tmp_path)] == [0, 1]
    assert list(Dictionary(tmp_path).ids("dc1", ["a", "a", "b"], [0, 1, 0], ["x", "x", None])) == [0, 1, 2]


def test_no_id_is_given_beside_a_damaged_file(tmp_path: Path) -> None:
    Dictionary(tmp_path).ids("dc1", ["a", "b"], [0, 0], ["x", "y"])
    damaged = tmp_path / "dictionary" / "0.parquet"
    damaged.write_bytes(damaged.read_bytes()[:80])
    with pytest.raises(Mm2mgrError, match=r"0\.parquet is not a readable") as caught:
        Dictionary(tmp_path).ids("dc1", ["a"], [0], ["x"])
    assert "sample into another directory" in str(caught.value.hint)
    unreadable: list[Mm2mgrError] = []
    assert len(Dictionary(tmp_path).table(unreadable)) == 0
    assert len(unreadable) == 1
