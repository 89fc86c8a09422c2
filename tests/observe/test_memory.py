"""The memory file: what is kept, that a bad file is no memory, and that writing it never fails a look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mm2mgr.observe.memory import Mark, Memory, load, memory_file, save
from tests.observe.estate import Estate

KEPT = Memory({"cb/x": 5.0}, {"f:A->B": 6.5}, {"f:A->B": {"0": Mark(10, None, True, 1.0, 2.0, True)}})


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "er" / "o.json"
    save(file, KEPT)
    assert load(file) == KEPT
    save(file, Memory())
    assert load(file) == Memory()
    assert [path.name for path in file.parent.iterdir()] == ["o.json"], "no draft is left behind"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "17", '{"format": 99}', '{"format": 1}', '{"format": 1, "without_status": [], "unassigned": {}, "marks": {}}',
     '{"format": 1, "without_status": {"a": "x"}, "unassigned": {}, "marks": {}}',
     '{"format": 1, "without_status": {}, "unassigned": {}, "marks": {"f": {"0": {"stored": 1}}}}', "\ud800"],
)  # fmt: skip
def test_a_broken_file_is_no_memory(tmp_path: Path, text: str) -> None:
    file = tmp_path / "o.json"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert load(file) == Memory()


def test_a_missing_file_or_a_folder_is_no_memory(tmp_path: Path) -> None:
    assert load(tmp_path / "none.json") == Memory()
    assert load(tmp_path) == Memory()


def test_a_cache_that_cannot_be_written_is_no_error(small: Estate, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    small.memory_file = tmp_path / "file" / "below" / "o.json"
    assert small.flow().health == "ok"


def test_flows_that_were_not_looked_at_keep_their_memory(small: Estate) -> None:
    save(small.memory_file, KEPT)
    small.status()
    kept = load(small.memory_file)
    assert kept.without_status["cb/x"] == 5.0
    assert kept.marks["f:A->B"] == KEPT.marks["f:A->B"]
    assert "orders:A->B" in kept.marks


def test_an_unreadable_source_does_not_wipe_what_is_remembered(small: Estate) -> None:
    small.log(0, 100)
    small.stored(9)
    small.flow()
    small.kafka.down.add("A")
    assert small.flow(later_seconds=40).health == "unknown"
    small.kafka.down.clear()
    assert "no progress for 80 s" in small.flow(later_seconds=40).problems[0]


def test_two_looks_in_one_call_judge_progress(small: Estate) -> None:
    small.log(0, 100)
    small.stored(9)
    grown = iter([10, 30])
    small.kafka.before_read = lambda alias: (
        small.log(0, next(grown), alias="B", topic="A.orders") if alias == "B" else None
    )
    assert small.flow(watch_seconds=0.01).health == "ok"


def test_pausing_ends_the_time_without_progress(small: Estate) -> None:
    small.log(0, 100)
    small.stored(9)
    small.flow()
    small.connect.connectors[small.source].state = "PAUSED"
    small.flow(later_seconds=500)
    small.connect.connectors[small.source].state = "RUNNING"
    assert small.flow(later_seconds=1).problems == ()


def test_a_clock_that_goes_back_is_no_problem(small: Estate) -> None:
    small.connect.connectors[small.source].hidden_reads = 99
    small.flow()
    assert small.flow(later_seconds=-5000).problems == ()


def test_it_holds_no_config_values(small: Estate) -> None:
    small.connect.connectors[small.source].config["source.cluster.sasl.jaas.config"] = "very-secret"
    small.status()
    text = small.memory_file.read_text()
    assert "very-secret" not in text
    assert set(json.loads(text)) == {"format", "without_status", "unassigned", "marks"}


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MM2MGR_CACHE", str(tmp_path))
    assert memory_file("me") == tmp_path / "observed" / "me.json"
    monkeypatch.delenv("MM2MGR_CACHE")
    assert memory_file("me") == Path.home() / ".cache" / "mm2mgr" / "observed" / "me.json"
