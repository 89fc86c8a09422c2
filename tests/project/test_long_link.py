"""The benchmark over an emulated long link: what it refuses, which rows it measures, and the emulation itself, with one small transfer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import emulated_link, long_link
from benchmarks.emulated_link import ADDRESSES
from benchmarks.long_link_run import Outcome, slope
from benchmarks.long_link_settings import COMPILED, KAFKA, Case, Ends, Placement, config, forecast, settings
from mm2mgr.sandbox.process import started_at

REPOSITORY = Path(__file__).resolve().parents[2]
LACKS = emulated_link.missing()
CAN_EMULATE = pytest.mark.skipif(bool(LACKS), reason=f"needs {'; '.join(LACKS)}")
RTT = 0.15
# A run that is killed leaves its namespaces and what runs in them.
KILLED_RUN = """
import subprocess, sys, time
from benchmarks.emulated_link import emulated_link
with emulated_link(sys.argv[1]) as link:
    with link.inside("source"):
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print(child.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def name() -> Iterator[str]:
    """Return a name for namespaces that no other run has."""
    name = f"mm2mgr-test-{os.getpid()}"
    yield name
    Path(f"/run/{name}.lock").unlink(missing_ok=True)


def test_without_root_it_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "")
    assert long_link.main([]) == 1
    said = capsys.readouterr().err
    assert "needs root" in said
    assert "C compiler" in said
    assert "`ip`" in said


def test_kafkas_defaults_are_measured_before_what_is_compared_with_them() -> None:
    rows = list(long_link.cases(long_link._options(["--quick"])))
    assert rows[0].recipe == KAFKA
    assert [row.brokers for row in rows] == sorted((row.brokers for row in rows), reverse=True)
    for at, row in enumerate(rows):
        same = [one for one in rows[:at] if (one.placement, one.partitions) == (row.placement, row.partitions)]
        assert row.recipe == KAFKA or KAFKA in [one.recipe for one in same]


def test_a_row_says_rate_forecast_and_ratio() -> None:
    case = Case("remote consume", 100, 200, 12, 4, KAFKA, "stock")
    model = forecast(case, settings(case))
    assert round(model.flow / 1e6, 1) == 3.0, "Kafka's own buffers allow 80 kB per round trip and task"
    shown = long_link.cells(Outcome(case, {}, 3.2, model, 3.4, 0, 1.5, "", 1.0, 0.5, 300), 1.6)
    said = long_link.row(list(shown.values()), list(shown)).split()
    assert [said[said.index("stock") + at] for at in (1, 2, 3, 4)] == ["3.20", "3.04", "13%", "x2.0"]


def test_records_that_arrive_in_steps_are_counted_at_their_rate() -> None:
    steps = [(tenth / 10, int(tenth / 10 / 3.8 + 0.3) * 32_000) for tenth in range(150)]
    assert slope(steps) == pytest.approx(32_000 / 3.8, rel=0.1)
    assert slope(steps[:1]) == slope([(0.0, 5), (1.0, 5)]) == 0


@pytest.mark.parametrize("placement", ["remote consume", "remote produce"])
def test_the_settings_of_mm2mgr_are_what_it_renders(placement: Placement, tmp_path: Path) -> None:
    case = Case(placement, 100, 200, 12, 4, COMPILED, "-1")
    ends = Ends("r1", "10.99.0.1:9092", "10.99.0.2:9092", case.topic, "http://127.0.0.1:8083")
    made = config(case, ends, tmp_path / "tree", lambda _: None)
    assert made["topics"] == case.topic
    assert made["tasks.max"] == "4"
    assert made.get("producer.override.bootstrap.servers") == (ends.target if placement == "remote produce" else None)


@pytest.mark.skipif(emulated_link._compiler() is None, reason="no C compiler here")
def test_the_emulator_compiles_and_says_how_it_is_called(tmp_path: Path) -> None:
    program = emulated_link.compile_program(tmp_path)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: emulated_link")


@CAN_EMULATE
def test_the_link_has_the_round_trip_and_the_rate_that_were_asked_for(name: str) -> None:
    with emulated_link.emulated_link(name) as link:
        link.set(RTT, 2_000_000)
        with link.inside("target"):
            server = socket.create_server((ADDRESSES["target"], 5001))
        with link.inside("source"):
            client = socket.socket()
        with server, client:
            began = time.monotonic()
            client.connect(server.getsockname())
            assert time.monotonic() - began >= RTT
            sender = threading.Thread(
                target=lambda: (client.sendall(bytes(1_000_000)), client.shutdown(socket.SHUT_WR))
            )
            sender.start()
            receiver, _ = server.accept()
            with receiver:
                received = 0
                while part := receiver.recv(1 << 16):
                    received += len(part)
            sender.join()
            assert received == 1_000_000
            assert time.monotonic() - began >= 0.5 + RTT, "faster than the rate"
            carried = link.read()
            assert 1_000_000 < carried.bytes < 2_000_000, "headers count, data the other way does not"
    assert name not in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout


@pytest.mark.real_time
@CAN_EMULATE
def test_what_a_killed_run_left_is_gone_at_the_next_start(name: str) -> None:
    command = [sys.executable, "-c", KILLED_RUN, name]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout
        child = int(run.stdout.readline())
        run.send_signal(signal.SIGKILL)
    assert started_at(child)
    with emulated_link.emulated_link(name):
        assert started_at(child) is None
