"""What a sandbox directory remembers, and that nothing outside of it is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mm2mgr import timing
from mm2mgr.errors import SandboxError
from mm2mgr.files import Locked
from mm2mgr.sandbox.folder import MARKER, only_one
from mm2mgr.sandbox.layout import Layout, Sandbox, ServerRecord, State, at_rate, read_state, write_state
from mm2mgr.sandbox.process import ProcessId, spawn
from tests.clock import jumping

ONE = Layout(sources=("a",), aggregates=("b",), connect={"c": "b"})
GONE = ProcessId(os.getpid(), "before this process")
PORTS = {"a": {"PLAINTEXT": 1, "CONTROLLER": 2}, "b": {"PLAINTEXT": 3, "CONTROLLER": 4}, "c": {"REST": 5}}
ALL_GONE = State(ONE, {name: ServerRecord(GONE, ports) for name, ports in PORTS.items()})


def ours(directory: Path) -> Path:
    """Mark a directory as a sandbox's, as the first `up` does; return its state file."""
    (directory / MARKER).write_text("mm2mgr sandbox\n")
    return directory / "state.json"


def test_records_come_at_a_rate_that_holds_in_the_mean() -> None:
    moments = list[float]()
    with jumping():
        begun = timing.now()
        for value in at_rate((b"x" for _ in range(1_000)), 500.0):
            moments.append(timing.now() - begun)
            assert value == b"x"
            if len(moments) == 500:
                timing.sleep(0.4)  # a broker that does not answer for a while: what is late comes at once
    assert moments[-1] == pytest.approx(999 / 500, abs=0.03)
    assert moments[249] == pytest.approx(249 / 500, abs=0.03)
    assert moments[550] == pytest.approx(499 / 500 + 0.4, abs=0.03)


def test_the_default_layout_has_one_worker_per_aggregate() -> None:
    assert Layout().kafka_clusters == ("dc1-logging", "dc2-logging", "agg-east", "agg-west")
    assert sorted(Layout().connect.values()) == sorted(Layout().aggregates)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"sources": ("x",), "aggregates": ("x",), "connect": {}}, "same name"),
        ({"sources": ("x",), "aggregates": (), "connect": {"x": "x"}}, "same name"),
        ({"sources": ("x",), "aggregates": (), "connect": {"c": "y"}}, "c is declared to run on y"),
    ],
)
def test_layouts_that_cannot_be(layout: dict[str, object], message: str) -> None:
    with pytest.raises(SandboxError, match=message):
        Layout(**layout)  # type: ignore[arg-type]


def test_state_survives_the_file(tmp_path: Path) -> None:
    write_state(tmp_path / "state.json", ALL_GONE)
    assert read_state(tmp_path / "state.json") == ALL_GONE
    assert read_state(tmp_path / "absent.json") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "sources": 3}'])
def test_a_foreign_state_file_is_refused_with_a_way_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(SandboxError, match=r"cannot read the sandbox's state in .*state\.json") as caught:
        Sandbox(tmp_path).status()
    assert "delete the file" in (caught.value.hint or "")


def test_a_directory_without_a_sandbox(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "nothing")
    assert sandbox.status() == []
    sandbox.stop()
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(SandboxError) as caught:
        sandbox.endpoints()
    assert caught.value.hint == "start it: mm2mgr sandbox up"


def test_status_and_endpoints_come_from_the_state(tmp_path: Path) -> None:
    write_state(tmp_path / "state.json", ALL_GONE)
    sandbox = Sandbox(tmp_path)
    assert [(each.name, each.kind, each.running, each.address) for each in sandbox.status()] == [
        ("a", "broker", False, "127.0.0.1:1"),
        ("b", "broker", False, "127.0.0.1:3"),
        ("c", "worker", False, "http://127.0.0.1:5"),
    ]
    endpoints = sandbox.endpoints()
    assert endpoints.bootstrap_servers == {"a": "127.0.0.1:1", "b": "127.0.0.1:3"}
    assert endpoints.connect_urls == {"c": "http://127.0.0.1:5"}
    assert endpoints.connect_kafka == {"c": "b"}


def test_a_half_started_sandbox_has_no_endpoints_but_a_status(tmp_path: Path) -> None:
    write_state(tmp_path / "state.json", State(ONE, {"a": ALL_GONE.records["a"]}))
    assert [each.name for each in Sandbox(tmp_path).status()] == ["a"]
    with pytest.raises(SandboxError, match="no complete sandbox"):
        Sandbox(tmp_path).endpoints()


def test_down_leaves_a_stranger_with_a_recorded_number_alone(tmp_path: Path) -> None:
    stranger = spawn(["sleep", "60"], tmp_path / "console.log", os.environ)
    try:
        reused = ServerRecord(ProcessId(stranger.pid, "long ago"), PORTS["a"])
        write_state(ours(tmp_path), State(ONE, {"a": reused}))
        Sandbox(tmp_path).stop()
        assert stranger.alive()
        assert not (tmp_path / "state.json").exists()
    finally:
        stranger.kill()


def test_down_stops_what_another_process_started_and_keeps_logs(tmp_path: Path) -> None:
    code = f"""
import os, json, pathlib
from mm2mgr.sandbox.process import spawn
command = ["sh", "-c", "sleep 60; : -Dmm2mgr.log.directory={tmp_path / "kafka" / "a"}"]
process = spawn(command, pathlib.Path({str(tmp_path / "console.log")!r}), os.environ)
print(json.dumps([process.pid, process.started]))
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    pid, started = answer.strip("[]\n").split(", ")
    other = ProcessId(int(pid), started.strip('"'))
    assert other.alive()
    write_state(ours(tmp_path), State(ONE, {"a": ServerRecord(other, PORTS["a"])}))
    (tmp_path / "kafka" / "a" / "data").mkdir(parents=True)
    (tmp_path / "kafka" / "a" / "server.log").touch()
    said: list[str] = []
    Sandbox(tmp_path).stop(said.append)
    Sandbox(tmp_path).stop(said.append)
    assert not other.alive()
    assert said == ["stopping broker a"]
    assert [path.name for path in (tmp_path / "kafka" / "a").iterdir()] == ["server.log"]


def test_another_layout_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    write_state(ours(tmp_path), ALL_GONE)
    with pytest.raises(SandboxError, match="holds a sandbox of another layout") as caught:
        Sandbox(tmp_path).start(Layout())
    assert caught.value.hint == "stop it first: mm2mgr sandbox down"


def test_two_processes_do_not_change_one_sandbox_at_once(tmp_path: Path) -> None:
    ours(tmp_path)
    with only_one(tmp_path), pytest.raises(Locked, match="another process is starting or stopping"):
        Sandbox(tmp_path).stop()
