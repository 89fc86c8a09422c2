"""The state file: what is kept, that damage is said and set aside, and that processes at the same time lose nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.json_values import to_json
from mm2mgr.observe.lag import SeenOffset
from mm2mgr.observe.losses import Acknowledgement, FlowLooks, KnownPlace, LostRange, row_of
from mm2mgr.observe.memory import FlowMemory, Mark, Memory, Rest, SeenTopic, Unstored
from mm2mgr.observe.reading import ConditionClock
from mm2mgr.observe.state_file import change, load, state_file
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.problems.status import acknowledge
from mm2mgr.samples.schema import LossRow
from tests.observe.estate import Estate

CLOCK = ConditionClock(3.5, 99.0, paused=True)


def lost(flow: str, first: int = 0) -> LossRow:
    found = LostRange("retention", "log-start", "id", first, first + 9, 10, 0, None)
    return row_of(flow, "A", TopicPartition("t", 3), found, 5.0)


KEPT = Memory(
    {"cb/x": CLOCK},
    {
        "f:A->B": FlowMemory(
            "kafka",
            {"t-0": CLOCK},
            {"0": Mark(10, None, True, CLOCK, True), "-": Mark(1, 2, False, CLOCK)},
            {"t": SeenTopic(("id", "id2"), {0: SeenOffset(5, None, 9.0), 1: SeenOffset(6, 7)})},
            Rest(5, 6, CLOCK),
            Unstored(1, 2, 3, CLOCK),
        ),
        "g:A->B": FlowMemory(unstored=Unstored(1, 2)),
    },
    {"f:A->B": FlowLooks("kafka", 9.0, {"t": {3: KnownPlace("id", Offsets(1, 9), 5, 6, 8.0, None, 2, 9, ("old",))}})},
    (lost("f:A->B"), lost("g:A->B")),
)


def kept(file: Path, memory: Memory) -> None:
    assert change(file, lambda _: memory)[2] == []


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "er" / "o.json"
    kept(file, KEPT)
    assert load(file) == KEPT
    kept(file, Memory())
    assert load(file) == Memory()
    assert sorted(path.name for path in file.parent.iterdir()) == ["o.json", "o.json.lock"], "no draft is left behind"


def test_places_that_were_saved_as_objects_are_loaded(tmp_path: Path) -> None:
    file = tmp_path / "o.json"
    kept(file, KEPT)
    saved = json.loads(file.read_text())
    places = saved["looks"]["f:A->B"]["topics"]["t"]
    places["3"] = dict(zip(KnownPlace._fields, places["3"], strict=True))
    file.write_text(json.dumps(saved))
    assert load(file) == KEPT


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "17", '{"format": 99}', '{"format": 2}', '{"format": 2, "without_status": [], "flows": {}, "losses": {}}',
     '{"format": 2, "without_status": {"a": 5}, "flows": {}, "losses": {}}', '{"format": 3}',
     '{"format": 2, "without_status": {}, "flows": {}, "losses": {"x": {"id": "x"}}}', "\ud800"],
)  # fmt: skip
def test_a_damaged_file_is_said_and_set_aside(tmp_path: Path, text: str) -> None:
    file = tmp_path / "o.json"
    damaged = text.encode("utf-8", "surrogatepass")
    file.write_bytes(damaged)
    *_, (warning,) = change(file, lambda memory: memory)
    assert warning.startswith(f"{file} was damaged: what earlier looks left is no longer known")
    (beside,) = tmp_path.glob("o.json.damaged-*")
    assert beside.name in warning
    assert beside.read_bytes() == damaged
    assert change(file, lambda memory: memory)[2] == [], "the new file is whole"


def test_a_state_folder_that_cannot_be_written_is_said(small: Estate, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    small.memory_file = tmp_path / "file" / "below" / "o.json"
    status = small.status()
    assert status.health == "ok"
    (warning,) = status.warnings
    assert (
        warning
        == f"{small.memory_file} cannot be written (Not a directory): what this run found, losses included, is not remembered"
    )
    assert to_json(status)["warnings"] == [warning]


def test_processes_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    """Each adds its own losses, one at a time; without the lock some would overwrite others."""
    file = tmp_path / "o.json"
    script = """
import sys
from dataclasses import replace
from pathlib import Path
from mm2mgr.observe.losses import LostRange, row_of
from mm2mgr.observe.state_file import change
from mm2mgr.partitions import TopicPartition
for number in range(25):
    range_ = LostRange("retention", "log-start", "id", 0, 9, 10, 0, None)
    row = row_of(f"{sys.argv[2]}-{number}", "A", TopicPartition("t", 3), range_, 5.0)
    assert not change(Path(sys.argv[1]), lambda m: replace(m, unwritten=(*m.unwritten, row)))[2]
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    running = [subprocess.Popen([sys.executable, "-c", script, str(file), name], env=env) for name in "abcd"]
    assert [one.wait(60) for one in running] == [0, 0, 0, 0]
    assert {row.flow for row in load(file).unwritten} == {f"{name}-{number}" for name in "abcd" for number in range(25)}


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert state_file("me") == tmp_path / "own" / "me.json"
    monkeypatch.delenv("MM2MGR_STATE")
    assert state_file("me") == tmp_path / "xdg" / "mm2mgr" / "me.json"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_file("me") == Path.home() / ".local" / "state" / "mm2mgr" / "me.json"


def test_it_holds_no_config_values(small: Estate) -> None:
    small.connect.connectors[small.source].config["source.cluster.sasl.jaas.config"] = "very-secret"
    small.kafka.settings["A", "orders"] = {"vendor.token": "also-secret"}
    small.status()
    text = small.memory_file.read_text()
    assert "vendor.token=" in text
    assert "very-secret" not in text
    assert "also-secret" not in text
    assert set(json.loads(text)) == {
        "format",
        "without_status",
        "silent_workers",
        "audited_since",
        "failover_since",
        "beats",
        "copied",
        "checkpoints",
        "flows",
        "looks",
        "shared_at",
        "unwritten",
    }


def test_losses_are_acknowledged_by_id_by_flow_and_all(small: Estate) -> None:
    waiting = (lost("x"), lost("orders:A->B"), lost("x", 100))
    kept(small.memory_file, Memory(unwritten=waiting))
    first, mine, second = (row.id for row in waiting)

    def acked(*ids: str, only: list[str] | None = None) -> list[str]:
        done = acknowledge(small.topology, ids, Acknowledgement("jo", 9.0, ""), only=only, options=small.options)
        return [one.id for one in done]

    with pytest.raises(Mm2mgrError, match="no open loss zzz"):
        acked(first, "zzz")
    assert [one.id for one in small.status().losses] == [mine, first, second], "none, when one id is wrong"
    assert acked(first) == [first]
    assert acked("all", only=["orders:A->B"]) == [mine]
    assert [one.id for one in small.status().losses] == [second]
    acked("all")
    assert small.status().losses == ()


def test_an_acknowledgement_that_cannot_be_kept_is_an_error(small: Estate) -> None:
    kept(small.memory_file, Memory(unwritten=(lost("x"),)))
    small.memory_file.with_name("tester.json.lock").unlink()
    os.mkfifo(small.memory_file.with_name("tester.json.lock"))
    with pytest.raises(Mm2mgrError, match="nothing was acknowledged: "):
        acknowledge(small.topology, ["all"], Acknowledgement("jo", 9.0, ""), options=small.options)
