"""Common parts of brokers and workers: a directory, free ports, a properties file, a JVM, and waiting until it serves.

A server can be stopped, killed and started again on the same ports. Keys of brokers and workers are unknown here.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from mm2mgr.errors import SandboxError
from mm2mgr.sandbox.process import ProcessDied, ProcessId, last_lines, spawn, wait_until, without_interrupts
from mm2mgr.sandbox.runtime import Runtime, kafka_runtime

HOST = "127.0.0.1"
_START_TIMEOUT_SECONDS = 90.0
_PORT_ATTEMPTS = 4
# Below Linux' ephemeral range (32768-60999): a client that retries a dead ephemeral port on loopback can be given that
# very port, connect to itself, and keep the server from coming back.
_PORTS = range(15000, 32000)
_given_ports: set[int] = set()
# The first compiler tier and the serial collector halve the start-up of short-lived servers.
_JVM_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xlog:cds=off", "-XX:-UsePerfData")
# An archive of the classes that a server of this kind loads halves its start. The JVM ignores an archive that does not
# fit.
_READ_CLASSES = "-XX:SharedArchiveFile="
_WRITE_CLASSES = "-XX:ArchiveClassesAtExit="
_WRITING_SECONDS = 60.0
_LOG_DIRECTORY = "-Dmm2mgr.log.directory="
_LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")


class Server(ABC):
    """One local JVM server; a context manager that starts it and stops it."""

    kind: str
    heap: str

    def __init__(
        self, name: str, directory: Path, properties: Mapping[str, str] | None = None, runtime: Runtime | None = None
    ) -> None:
        self.name = name
        self.directory = directory.absolute()
        self.properties = dict(properties or {})
        self.ports: dict[str, int] = {}
        self.process: ProcessId | None = None
        self._runtime = runtime
        self._served_before = False
        self._archives_classes = False

    @property
    @abstractmethod
    def port_names(self) -> tuple[str, ...]:
        """Name the ports that this server listens on."""

    @abstractmethod
    def server_properties(self) -> dict[str, str]:
        """Return all properties of the server, `self.properties` last so that they win."""

    @abstractmethod
    def shell_command(self, java: str, properties_file: Path) -> str:
        """Return what `sh` runs; it ends with `exec`, so that the shell's process becomes the server."""

    @abstractmethod
    def ready(self) -> bool:
        """Tell whether the server serves requests now."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Return where clients reach it; known after the first start."""

    @property
    def runtime(self) -> Runtime:
        """Java and jars: those that were given, else found when they are first needed."""
        self._runtime = self._runtime or kafka_runtime()
        return self._runtime

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive()

    @property
    def log_file(self) -> Path:
        return self.directory / "server.log"

    def start(self, timeout_seconds: float = _START_TIMEOUT_SECONDS) -> None:
        """Start it and wait until it serves; nothing is left running when that fails."""
        start_all([self], timeout_seconds=timeout_seconds)

    def begin(self, *, archives_classes: bool = False) -> None:
        """Start the JVM and return at once; ports are chosen at the first start and then kept.

        With `archives_classes` it writes the archive of its kind's classes when it ends in order, if there is none.
        """
        if self.running:
            return
        self._archives_classes = archives_classes
        if not self.ports:
            self.ports = dict(zip(self.port_names, free_ports(len(self.port_names)), strict=True))
        shutil.rmtree(self._temporary_files, ignore_errors=True)  # a JVM that was killed leaves its unpacked libraries
        self._temporary_files.mkdir(parents=True, exist_ok=True)
        if self.log_file.exists():
            self.log_file.replace(self.directory / "server.previous.log")  # readiness must not be read from an old log
        for aside in self.log_files:
            aside.unlink(missing_ok=True)
        properties_file = self.directory / f"{self.kind}.properties"
        write_properties(properties_file, self.server_properties())
        command = self.shell_command(str(self.runtime.java.java), properties_file)
        environment = self._environment(self.runtime)
        with without_interrupts():
            self.process = spawn(["sh", "-c", command], self.directory / "console.log", environment)

    def wait_ready(self, timeout_seconds: float = _START_TIMEOUT_SECONDS) -> None:
        """Wait until it serves; a port taken between choosing and binding means new ports, unless it served before."""
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            if self.process is None:
                raise SandboxError(f"{self.kind} {self.name} was not started")
            try:
                wait_until(self.ready, self.process, f"{self.kind} {self.name}", timeout_seconds, self.log_tail)
                self._served_before = True
                return
            except ProcessDied as error:
                if (
                    self._crash_file.exists() and self._classes_file.exists()
                ):  # a JVM does not survive a damaged archive
                    self._crash_file.unlink()
                    self._classes_file.unlink()
                    self.begin()
                    continue
                if not self._port_was_taken():
                    raise
                if self._served_before or attempt == _PORT_ATTEMPTS:
                    error.hint = f"another program has one of its ports: {sorted(self.ports.values())}"
                    raise
                self.ports = {}
                self.begin()

    def stop(self, timeout_seconds: float = 15.0) -> None:
        """End it in order (SIGTERM, and SIGKILL at the deadline); ports and data stay for the next start."""
        if not self.process:
            return
        flag = next((word for word in self.process.words() if word.startswith(_WRITE_CLASSES)), None)
        ended = self.process.stop(_WRITING_SECONDS if flag else timeout_seconds)
        if flag:
            draft = Path(flag.removeprefix(_WRITE_CLASSES))
            with contextlib.suppress(OSError):  # it had nowhere to write to
                draft.replace(draft.with_suffix("")) if ended else draft.unlink()

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would; ports and data stay for the next start."""
        if self.process:
            self.process.kill()

    def adopt(self, process: ProcessId | None, ports: Mapping[str, int]) -> None:
        """Take over a server that another Python process started; SandboxError when it was not started for this
        folder."""
        if set(ports) != set(self.port_names):
            problem = (
                f"{self.kind} {self.name}: the sandbox's state does not have the ports {', '.join(self.port_names)}"
            )
            raise SandboxError(problem, hint="end its Java processes by hand, then delete state.json")
        # Anyone can write a number and a start time into a file; only a process of this folder has it on its command
        # line.
        words = process.words() if process else []
        named = [word.removeprefix(_LOG_DIRECTORY) for word in words if word.startswith(_LOG_DIRECTORY)]
        if process and words and self.directory.resolve() not in [Path(name).resolve() for name in named]:
            problem = f"process {process.pid}, recorded as {self.kind} {self.name}, was not started in {self.directory}"
            hint = "it was left alone; if the folder was moved, end its Java processes by hand, then delete state.json"
            raise SandboxError(problem, hint=hint)
        self.process, self.ports, self._served_before = process, dict(ports), True

    def log_tail(self) -> str:
        """Return the end of the console and of the log, each line cut."""
        return "\n".join([*last_lines(self.directory / "console.log", 5), *last_lines(self.log_file)])

    @property
    def log_files(self) -> list[Path]:
        """All that this run logged, oldest first: log4j moves a full file aside, to server.1.log, then to
        server.2.log."""
        return [*(self.directory / f"server.{number}.log" for number in (1, 2)), self.log_file]

    def log_has(self, text: str) -> bool:
        return any(text in _text_of(log) for log in self.log_files)

    def _port_was_taken(self) -> bool:
        # Many lines can follow the reason: a broker logs that each of its parts shuts down.
        logs = (*self.log_files, self.directory / "console.log")
        return any(text in _text_of(log) for log in logs for text in ("Address already in use", "Failed to bind"))

    def _environment(self, runtime: Runtime) -> dict[str, str]:
        """Pass the class path by environment: 93 paths would make `ps` unreadable."""
        return {**os.environ, "CLASSPATH": os.pathsep.join(str(jar) for jar in runtime.jars)}

    @property
    def _classes_file(self) -> Path:
        return self.runtime.cache_file(f"{self.kind}-classes", ".jsa")

    @property
    def _crash_file(self) -> Path:
        return self.directory / "jvm-crash.log"

    @property
    def _temporary_files(self) -> Path:
        return self.directory / "tmp"

    def _classes(self) -> list[str]:
        if self._classes_file.is_file():
            return [f"{_READ_CLASSES}{self._classes_file}"]
        return [f"{_WRITE_CLASSES}{self._classes_file}.{uuid.uuid4().hex}"] if self._archives_classes else []

    def jvm_arguments(self) -> list[str]:
        """Return the flags of this server's JVM: small, quick to start, with a bounded log."""
        return [
            *_JVM_FLAGS,
            *self._classes(),
            f"-Xmx{self.heap}",
            f"-XX:ErrorFile={self._crash_file}",
            f"{_LOG_DIRECTORY}{self.directory}",
            f"-Djava.io.tmpdir={self._temporary_files}",
            f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()}",
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _text_of(log: Path) -> str:
    try:
        return log.read_text(errors="replace")
    except OSError:
        return ""


def start_all(
    servers: Iterable[Server],
    *,
    timeout_seconds: float = _START_TIMEOUT_SECONDS,
    changed: Callable[[Server], None] = lambda server: None,
) -> None:
    """Start servers side by side and wait for all; on failure or Ctrl-C stop those that this call started.

    `changed` is called with each server that was started or is ready, so that a caller can record its process and
    ports.
    """
    started: list[Server] = []
    try:
        for server in servers:
            if not server.running:
                started.append(server)
                server.begin(archives_classes=[server.kind for server in started].count(server.kind) == 1)
                changed(server)
        for server in started:
            server.wait_ready(timeout_seconds)
            changed(server)
    except BaseException:
        for server in started:
            with contextlib.suppress(SandboxError):  # the first error is the one to show
                server.kill()
        raise


def stop_all(servers: Sequence[Server], progress: Callable[[str], None] = lambda line: None) -> None:
    """End servers in order, side by side: a worker with tasks needs seconds."""
    for server in servers:
        if server.process and server.running:
            progress(f"stopping {server.kind} {server.name}")
            server.process.ask_to_end()
    for server in servers:
        server.stop()


def free_ports(count: int) -> list[int]:
    """Choose ports that nothing listens on now and that this process has not given away before."""
    chosen: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(chosen) == count:
            break
        if port not in _given_ports and _can_bind(port):
            _given_ports.add(port)
            chosen.append(port)
    if len(chosen) < count:
        raise SandboxError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop}")
    return chosen


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file that only its owner may read (it can hold passwords)."""
    lines = [f"{_escape(key)}={_escape(value)}\n" for key, value in properties.items()]
    path.touch(mode=0o600)
    path.write_text("".join(lines), encoding="ascii")


def _escape(text: str) -> str:
    """Escape for java.util.Properties: it reads Latin-1, drops leading blanks and treats backslashes as escapes."""
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    if escaped.startswith(" "):
        escaped = f"\\{escaped}"
    return "".join(char if char.isascii() else json.dumps(char)[1:-1] for char in escaped)  # JSON's \uXXXX is Java's


def exec_java(java: str, arguments: Sequence[str]) -> list[str]:
    """Return the words that replace the shell by a JVM."""
    return ["exec", java, *arguments]
