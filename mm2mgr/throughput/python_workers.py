"""Starts the Python workers of a local Spark session by forking one process that has already imported what they need.

Spark starts a Python daemon of its own for each kind of work (a data source has five: create, plan, read, write,
commit), and each imports PySpark from a zip of sources: half a CPU second to almost one each time. Here one fork
server imports everything once, while the JVM starts. What Spark starts instead of Python is `launcher`: it hands its
standard streams and environment to the fork server, whose child then is PySpark's own daemon, unchanged. Where the fork
server does not answer, PySpark's daemon starts as always. Linux only: elsewhere it is not safe to fork with
libraries loaded. This file uses the standard library only, because `launcher` runs it without any other.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_ADDRESS = "MM2MGR_FORK_SERVER"
_WORKERS = "pyspark.sql.worker"
_MODULES = (
    *("pyspark.daemon", "pyspark.worker", f"{_WORKERS}.lookup_data_sources", f"{_WORKERS}.create_data_source"),
    *(f"{_WORKERS}.plan_data_source_read", f"{_WORKERS}.write_into_data_source"),
    f"{_WORKERS}.commit_data_source_write",
)
_LENGTH = struct.Struct("!i")
_STREAMS = 3
_EXIT_SECONDS = 5


class ForkServer:
    """The process that forks workers; it ends with `close`, or with the process that started it.

    `modules`: imported once, beside PySpark's own workers; those that are not installed are left out.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._folder = tempfile.mkdtemp(prefix="mm2mgr-")  # only its owner gets in
        self.python = str(Path(self._folder, "python"))
        """What Spark starts as its Python: `spark.pyspark.python` of the session."""
        address = str(Path(self._folder, "socket"))
        command = " ".join(map(shlex.quote, [sys.executable, "-I", "-S", str(Path(__file__).resolve())]))
        plain = shlex.quote(sys.executable)
        Path(self.python).write_text(
            f'#!/bin/sh\n[ "$1 $2" = "-m pyspark.daemon" ] || exec {plain} "$@"\n'
            f'shift 2\n{_ADDRESS}={shlex.quote(address)} exec {command} "$@"\n'
        )
        Path(self.python).chmod(0o700)
        # One thread only: a lock that another thread holds at the moment of a fork is never released in the child.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen(64)  # launchers that come before everything is imported wait
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, self._folder, str(listening.fileno()), *_MODULES, *modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=environment,
                pass_fds=[listening.fileno()],
                start_new_session=True,  # Ctrl-C is for the command, which then closes this
            )

    def close(self) -> None:
        """End the fork server; workers end with the JVM that asked for them."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)  # where it was killed


def serve(listening: int, modules: Sequence[str]) -> None:
    """Import `modules`, then fork a daemon for every launcher that connects, until standard input ends."""
    with socket.socket(fileno=listening) as server:
        for module in modules:
            with suppress(ImportError):
                importlib.import_module(module)
        gc.collect()
        gc.freeze()  # a collection in a worker then copies no page that is shared with this process
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while 0 not in select.select([0, server.fileno()], [], [])[0]:
            connection, _ = server.accept()
            with connection, suppress(OSError, EOFError):
                _fork(server, connection)


def _fork(server: socket.socket, connection: socket.socket) -> None:
    message, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, _STREAMS)
    try:
        order = json.loads(_receive(connection, _LENGTH.unpack(message)[0]))
        child = os.fork()
        if not child:
            server.close()
            _become_daemon(order["arguments"], order["environment"], streams)
        connection.sendall(_LENGTH.pack(child))
    finally:
        for stream in streams:
            os.close(stream)


def _become_daemon(arguments: Sequence[str], environment: dict[str, str], streams: Sequence[int]) -> None:
    """Run PySpark's daemon in this process, with the launcher's standard streams and environment; never returns."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["pyspark.daemon", *arguments]
        sys.modules.pop("pyspark.daemon", None)  # that of 4.1 chose its worker by these arguments when it was imported
        from pyspark.daemon import manager

        manager()
    finally:
        os._exit(0)


def _receive(connection: socket.socket, length: int) -> bytes:
    text = b""
    while len(text) < length:
        part = connection.recv(length - len(text))
        if not part:
            raise EOFError
        text += part
    return text


def launcher(arguments: Sequence[str]) -> None:
    """Stand in for one of Spark's Python daemons: have it forked, end it when Spark ends this, and end with it."""
    environment = dict(os.environ)
    address = environment.pop(_ADDRESS)
    try:
        server = socket.socket(socket.AF_UNIX)
        server.connect(address)
        text = json.dumps({"arguments": list(arguments), "environment": environment}).encode()
        socket.send_fds(server, [_LENGTH.pack(len(text))], range(_STREAMS))
        server.sendall(text)
        child = _LENGTH.unpack(_receive(server, _LENGTH.size))[0]
    except (OSError, EOFError):
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *arguments])  # noqa: S606

    def end_child(*_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
        os._exit(0)

    signal.signal(signal.SIGTERM, end_child)
    os.close(1)  # the streams are the child's; standard error stays, for a traceback of this process
    server.recv(1)  # returns when the last process that was forked for this one has ended


if __name__ == "__main__":
    if _ADDRESS in os.environ:
        launcher(sys.argv[1:])
    else:
        try:
            serve(int(sys.argv[2]), sys.argv[3:])
        finally:
            shutil.rmtree(sys.argv[1], ignore_errors=True)
