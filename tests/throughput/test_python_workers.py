"""What Spark starts as its Python daemon is PySpark's own, forked from a process that has imported everything already."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from mm2mgr.throughput.python_workers import ForkServer

DAEMON = ["-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")


@pytest.fixture
def server() -> Iterator[ForkServer]:
    started = ForkServer(["numpy", "no_such_module"])
    yield started
    started.close()


def start(server: ForkServer) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "secret", "PYTHONUNBUFFERED": "YES"}
    return subprocess.Popen(
        [server.python, *DAEMON], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )


def fork_worker(daemon: subprocess.Popen[bytes]) -> tuple[socket.socket, int]:
    """Ask for a worker as the JVM does: connect to the port that was printed, read the process id."""
    assert daemon.stdout
    (port,) = struct.unpack("!i", daemon.stdout.read(4))
    connection = socket.create_connection(("127.0.0.1", port))
    (worker,) = struct.unpack("!i", connection.recv(4))
    connection.sendall(struct.pack("!i", 6) + b"secret")
    assert connection.recv(6, socket.MSG_WAITALL) == struct.pack("!i", 2) + b"ok"  # it has Spark's environment
    return connection, worker


def is_gone(pid: int) -> bool:
    """Wait for a process that nobody here is the parent of."""
    with suppress(psutil.NoSuchProcess):
        psutil.wait_procs([psutil.Process(pid)], 20)
    return not psutil.pid_exists(pid)


def cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def test_the_daemon_forks_workers_with_everything_imported_and_ends_with_sparks_pipe(server: ForkServer) -> None:
    with start(server) as daemon:
        connection, worker = fork_worker(daemon)
        with connection:
            libraries = Path(f"/proc/{worker}/maps").read_text()
            assert "numpy" in libraries  # imported before the fork
            assert cpu_seconds(worker) < 0.3
            assert daemon.stdin
            daemon.stdin.close()
            daemon.wait(20)
        assert is_gone(worker)


def test_a_daemon_that_spark_ends_takes_its_workers_along(server: ForkServer) -> None:
    with start(server) as daemon:
        connection, worker = fork_worker(daemon)
        with connection:
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(20) == 0
            assert is_gone(worker)


def test_without_the_fork_server_pysparks_daemon_starts_as_always() -> None:
    server = ForkServer([])
    server._process.kill()
    server._process.wait()
    with start(server) as daemon:
        assert daemon.stdout
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        assert port > 0
        assert psutil.Process(daemon.pid).cmdline()[1:] == DAEMON
        daemon.communicate()
    server.close()
    assert not Path(server.python).exists()


def test_any_other_command_is_this_python(server: ForkServer) -> None:
    answer = subprocess.check_output([server.python, "-c", "import sys; print(sys.prefix)"], text=True)
    assert answer.strip() == sys.prefix
