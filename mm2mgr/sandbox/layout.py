"""A whole sandbox: Kafka clusters and Connect clusters in one directory, recorded in its `state.json`, with topics and
records.

`down` stops what `up` recorded and nothing else; a folder that is not a sandbox's is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

from mm2mgr import timing
from mm2mgr.errors import SandboxError, need_extras
from mm2mgr.files import replace_file
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.records import Producer
from mm2mgr.sandbox.folder import Endpoints, check_tree, claim, is_claimed, only_one, write_tree, writing
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.process import ProcessId
from mm2mgr.sandbox.runtime import Runtime, kafka_runtime
from mm2mgr.sandbox.server import Server, start_all, stop_all

DEFAULT_DIRECTORY = Path(".mm2mgr/sandbox")
_USE = "sandbox"
_FORMAT = 1
_LARGEST_BYTES = 1_000_000
_SHORTEST_PAUSE = 0.02  # seconds
_EVEN_QUOTAS = {"quota.window.num": "2"}  # as shipped (11), ten seconds' worth of a client quota pass at once
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")  # becomes a folder, and an alias in the tree
Progress = Callable[[str], None]
AnyServer = TypeVar("AnyServer", bound=Server)


@dataclass(frozen=True)
class Layout:
    """Names of the Kafka clusters, and for each Connect cluster the Kafka cluster that it keeps its topics in."""

    sources: tuple[str, ...] = ("dc1-logging", "dc2-logging")
    aggregates: tuple[str, ...] = ("agg-east", "agg-west")
    connect: Mapping[str, str] = field(default_factory=lambda: {"east": "agg-east", "west": "agg-west"})

    def __post_init__(self) -> None:
        names = [*self.kafka_clusters, *self.connect]
        if strange := [name for name in names if not isinstance(name, str) or not _NAME.fullmatch(name)]:
            problem = f"invalid name for a server of the sandbox: {strange[0]!r}"
            raise SandboxError(problem, hint="use letters, digits, . _ and -")
        if len(set(names)) < len(names):
            raise SandboxError(f"two servers of the sandbox have the same name: {', '.join(names)}")
        for name, kafka in self.connect.items():
            if kafka not in self.kafka_clusters:
                problem = f"Connect cluster {name} is declared to run on {kafka}"
                raise SandboxError(f"{problem}, which is not a cluster of the sandbox")

    @property
    def kafka_clusters(self) -> tuple[str, ...]:
        return (*self.sources, *self.aggregates)


@dataclass(frozen=True)
class ServerRecord:
    """One server that was started: its process and its ports by name."""

    process: ProcessId
    ports: Mapping[str, int]


@dataclass(frozen=True)
class State:
    """A layout and the servers of it that were started."""

    layout: Layout
    records: Mapping[str, ServerRecord]


@dataclass(frozen=True)
class ProcessState:
    """One server as `status` shows it."""

    name: str
    kind: str
    running: bool
    pid: int
    address: str
    log_file: Path


class Sandbox:
    """The servers of one directory; as a context manager it ends with `stop`.

    `plugins`: folder of Connect plugins, which workers that are started look into.
    """

    def __init__(self, directory: Path = DEFAULT_DIRECTORY, *, plugins: Path | None = None) -> None:
        self.directory = directory.absolute()
        self._worker_properties = {"plugin.path": str(plugins.absolute())} if plugins else {}
        self.state_file = self.directory / "state.json"

    def start(self, layout: Layout | None = None, progress: Progress = lambda line: None) -> Endpoints:
        """Start what is missing and wait until all serves; without a layout, the recorded one or the default.

        Raises SandboxError when another layout is up here, or the folder is not a sandbox's; on failure or Ctrl-C what
        this call started is stopped.
        """
        need_extras("sandbox")
        with writing(self.directory):
            claim(self.directory, _USE)
            return self._start_servers(layout, progress)

    def check(self) -> bool:
        """Tell whether there is a sandbox's folder; SandboxError when there is another one, before anything is
        touched."""
        return is_claimed(self.directory, _USE)

    def _start_servers(self, layout: Layout | None, progress: Progress) -> Endpoints:
        with only_one(self.directory):
            self.servers()  # a state that cannot be believed is refused before anything is fetched or started
            state = self._state_for(layout)
            progress("looking for Java and for Kafka's jars (55 MB, downloaded once)")
            runtime = kafka_runtime()
            with contextlib.ExitStack() as undo:
                brokers = self._brokers(state, runtime)
                self._start(state, brokers, progress, undo)
                workers = self._workers(state, brokers, runtime)
                self._start(state, workers, progress, undo)
                undo.pop_all()
        return self.endpoints()

    def status(self) -> list[ProcessState]:
        """Return every recorded server, brokers first; empty when nothing was started here."""
        return [
            ProcessState(server.name, server.kind, server.running, server.process.pid, server.address, server.log_file)
            for server in self.servers().values()
            if server.process
        ]

    def servers(self) -> dict[str, Server]:
        """Return the recorded servers by name, so that single ones can be stopped, killed and started again."""
        state = read_state(self.state_file)
        if state is None:
            return {}
        brokers = self._brokers(state, None)
        servers = [*brokers, *self._workers(state, brokers, None)]
        return {server.name: server for server in servers if server.process}

    def endpoints(self) -> Endpoints:
        """Return where the sandbox answers; raise SandboxError when it was never started, or only in part."""
        state = read_state(self.state_file)
        servers = self.servers()
        if state is None or set(servers) != {*state.layout.kafka_clusters, *state.layout.connect}:
            raise SandboxError(f"no complete sandbox is up in {self.directory}", hint="start it: mm2mgr sandbox up")
        return Endpoints(
            {name: server.bootstrap_servers for name, server in servers.items() if isinstance(server, Broker)},
            {name: server.url for name, server in servers.items() if isinstance(server, Worker)},
            dict(state.layout.connect),
        )

    def stop(self, progress: Progress = lambda line: None) -> None:
        """Stop the recorded servers, workers first, and remove their data; logs stay until the next `start`."""
        if not self.check():
            return
        with writing(self.directory), only_one(self.directory):
            servers = [*self.servers().values()]
            for kind in (Worker, Broker):
                stop_all([server for server in servers if isinstance(server, kind)], progress)
            for server in servers:
                shutil.rmtree(server.directory / "data", ignore_errors=True)
            self.state_file.unlink(missing_ok=True)

    def _state_for(self, layout: Layout | None) -> State:
        state = read_state(self.state_file)
        if state is None:
            return State(layout or Layout(), {})
        if layout is not None and layout != state.layout:
            problem = f"{self.directory} holds a sandbox of another layout"
            raise SandboxError(problem, hint="stop it first: mm2mgr sandbox down")
        return state

    def _brokers(self, state: State, runtime: Runtime | None) -> list[Broker]:
        brokers = [
            Broker(name, self.directory / "kafka" / name, _EVEN_QUOTAS, runtime=runtime)
            for name in state.layout.kafka_clusters
        ]
        return [_adopt_server(broker, state) for broker in brokers]

    def _workers(self, state: State, brokers: Sequence[Broker], runtime: Runtime | None) -> list[Worker]:
        bootstrap = {broker.name: broker.bootstrap_servers for broker in brokers if broker.ports}
        workers = [
            Worker(name, self.directory / "connect" / name, bootstrap[kafka], self._worker_properties, runtime=runtime)
            for name, kafka in state.layout.connect.items()
            if kafka in bootstrap
        ]
        return [_adopt_server(worker, state) for worker in workers]

    def _start(self, state: State, servers: Sequence[Server], progress: Progress, undo: contextlib.ExitStack) -> None:
        missing = [server for server in servers if not server.running]
        if not missing:
            return
        names = f"{missing[0].kind}s {', '.join(server.name for server in missing)}"
        progress(f"starting {names}")
        for server in missing:
            undo.callback(self._undo, server, is_new=server.process is None)
        start_all(missing, changed=lambda server: self._remember(state.layout, server))
        progress(f"ready: {names}")

    def _remember(self, layout: Layout, server: Server) -> None:
        """Write down a server as soon as it has a process, so that `stop` finds it even if `start` is killed."""
        before = read_state(self.state_file) or State(layout, {})
        if server.process:
            record = ServerRecord(server.process, server.ports)
            write_state(self.state_file, State(layout, {**before.records, server.name: record}))

    def _undo(self, server: Server, *, is_new: bool) -> None:
        server.kill()
        if is_new:
            shutil.rmtree(server.directory / "data", ignore_errors=True)
        if not any(server.running for server in self.servers().values()):
            self.state_file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _adopt_server(server: AnyServer, state: State) -> AnyServer:
    record = state.records.get(server.name)
    if record:
        server.adopt(record.process, record.ports)
    return server


# --- state.json -------------------------------------------------------------------------------------------------------


def read_state(path: Path) -> State | None:
    """Return the remembered state, None when there is none; raise SandboxError when the file is not one of ours."""
    try:
        if path.exists() and not path.is_file():
            raise ValueError("not a file")
        with path.open("rb") as file:
            data = json.loads(file.read(_LARGEST_BYTES))
        if data["format"] != _FORMAT:
            raise ValueError(f"format {data['format']}")
        layout = Layout(tuple(data["sources"]), tuple(data["aggregates"]), dict(data["connect"]))
        records = {}
        for name, server in data["servers"].items():
            process = ProcessId(_number(server["pid"], 2, 2**31), _text(server["started"]))
            ports = {_text(port): _number(number, 1, 65_535) for port, number in server["ports"].items()}
            records[name] = ServerRecord(process, ports)
        if strangers := records.keys() - {*layout.kafka_clusters, *layout.connect}:
            raise ValueError(f"{min(strangers)} is not in the layout")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SandboxError) as error:
        hint = "end the Java processes that it names by hand, then delete the file"
        raise SandboxError(f"cannot read the sandbox's state in {path}: not as mm2mgr wrote it", hint=hint) from error
    return State(layout, records)


def _number(value: object, least: int, most: int) -> int:
    """Return a whole number within bounds: process 0 is this program's own group, and 1 would mean all processes."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError("a number that cannot be")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("no text where there must be one")
    return value


def write_state(path: Path, state: State) -> None:
    """Replace the file in one step, so that a reader never sees half of it."""
    data = {
        "format": _FORMAT,
        "sources": state.layout.sources,
        "aggregates": state.layout.aggregates,
        "connect": dict(state.layout.connect),
        "servers": {
            name: {"pid": record.process.pid, "started": record.process.started, "ports": dict(record.ports)}
            for name, record in state.records.items()
        },
    }
    replace_file(path, json.dumps(data, indent=2) + "\n")


# --- what the library offers ------------------------------------------------------------------------------------------


def sandbox_up(directory: Path = DEFAULT_DIRECTORY, *, report: Progress = lambda line: None) -> tuple[Endpoints, Path]:
    """Start what is not running and write its tree to DIRECTORY/clusters; files there that were edited are kept.

    Returns where it answers, and that folder. SandboxError, with nothing touched, when the directory holds anything but
    a sandbox. `report` gets lines of progress.
    """
    sandbox, tree = Sandbox(directory), directory / "clusters"
    if sandbox.check():
        check_tree(tree)
    endpoints = sandbox.start(progress=report)
    return endpoints, write_tree(tree, endpoints)


def sandbox_status(directory: Path = DEFAULT_DIRECTORY) -> list[ProcessState]:
    """Return each broker and worker, running or not; none when nothing was started there."""
    return Sandbox(directory).status()


def sandbox_down(directory: Path = DEFAULT_DIRECTORY, *, report: Progress = lambda line: None) -> None:
    """Stop what `sandbox_up` started and remove its data."""
    Sandbox(directory).stop(progress=report)


def sandbox_topics(cluster: str, *, directory: Path = DEFAULT_DIRECTORY) -> dict[str, int]:
    """Return the number of partitions of each topic on a Kafka cluster of the sandbox, without Kafka's own topics."""
    with Kafka(_access(directory, cluster)) as kafka:
        return {name: count for name, count in sorted(kafka.partition_counts().items()) if not name.startswith("__")}


def sandbox_create_topic(cluster: str, topic: str, partitions: int = 1, *, directory: Path = DEFAULT_DIRECTORY) -> bool:
    """Create a topic; return False where it exists already, and is left as it is."""
    with Kafka(_access(directory, cluster)) as kafka:
        return bool(kafka.create_topics({topic: (partitions, 1, {})}))


def sandbox_produce(cluster: str, topic: str, values: Iterable[bytes], *, directory: Path = DEFAULT_DIRECTORY) -> int:
    """Write a record per value to the partitions in turn; return the number once all are stored."""
    access = _access(directory, cluster)
    with Kafka(access) as kafka:
        partitions = kafka.partition_counts().get(topic, 0)
    if not partitions:
        hint = f"create it: mm2mgr sandbox topic create {cluster} {topic}"
        raise SandboxError(f"no topic '{topic}' on {cluster}", hint=hint)
    number = 0
    with Producer(access) as producer:
        for value in values:
            producer.send((topic, number % partitions), value)
            number += 1
    return number


def lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """Return the lines of a stream as values, without their ends."""
    return (line.removesuffix(b"\n").removesuffix(b"\r") for line in stream)


def random_values(count: int, size: int) -> Iterator[bytes]:
    """Return values that do not compress."""
    return (os.urandom(size) for _ in range(count))


def at_rate(values: Iterable[bytes], per_second: float) -> Iterator[bytes]:
    """Return values at a steady rate: what is late after a wait comes at once, so that the mean holds."""
    begun = timing.now()
    for number, value in enumerate(values):
        early = begun + number / per_second - timing.now()
        if early > _SHORTEST_PAUSE:
            timing.sleep(early)
        yield value


def _access(directory: Path, cluster: str) -> KafkaAccess:
    clusters = Sandbox(directory).endpoints().bootstrap_servers
    if cluster not in clusters:
        raise SandboxError(f"no cluster '{cluster}' in {directory}", hint=f"clusters here: {', '.join(clusters)}")
    return KafkaAccess(cluster, clusters[cluster])
