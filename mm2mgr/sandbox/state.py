"""What a sandbox directory remembers: the layout's names, and each server's process and ports, as `state.json`.

In and out: frozen values. It starts and stops nothing; only one process at a time may hold a directory's lock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from mm2mgr.errors import SandboxError
from mm2mgr.files import replace_file
from mm2mgr.locks import locked
from mm2mgr.sandbox.process import ProcessId

_FORMAT = 1
_LARGEST_BYTES = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")  # becomes a folder, and an alias in the tree


@dataclass(frozen=True)
class Layout:
    """Names of the Kafka clusters, and for each Connect cluster the Kafka cluster that it keeps its topics in."""

    sources: tuple[str, ...] = ("dc1-logging", "dc2-logging")
    aggregates: tuple[str, ...] = ("agg-east", "agg-west")
    connect: Mapping[str, str] = field(default_factory=lambda: {"east": "agg-east", "west": "agg-west"})

    def __post_init__(self) -> None:
        names = [*self.kafka_clusters, *self.connect]
        if strange := [name for name in names if not isinstance(name, str) or not _NAME.fullmatch(name)]:
            raise SandboxError(
                f"no name for a server of the sandbox: {strange[0]!r}", hint="use letters, digits, . _ and -"
            )
        if len(set(names)) < len(names):
            raise SandboxError(f"two servers of the sandbox have the same name: {', '.join(names)}")
        for name, kafka in self.connect.items():
            if kafka not in self.kafka_clusters:
                raise SandboxError(f"Connect cluster {name} is to run on {kafka}, which is no cluster of the sandbox")

    @property
    def kafka_clusters(self) -> tuple[str, ...]:
        return (*self.sources, *self.aggregates)


@dataclass(frozen=True)
class Record:
    """One server that was started: its process and its ports by name."""

    process: ProcessId
    ports: Mapping[str, int]


@dataclass(frozen=True)
class State:
    """A layout and the servers of it that were started."""

    layout: Layout
    records: Mapping[str, Record]


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
        records = {
            name: Record(ProcessId(_number(server["pid"], 2, 2**31), _text(server["started"])), _ports(server["ports"]))
            for name, server in data["servers"].items()
        }
        if strangers := records.keys() - {*layout.kafka_clusters, *layout.connect}:
            raise ValueError(f"{min(strangers)} is not in the layout")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SandboxError) as error:
        hint = "end the Java processes that it names by hand, then delete the file"
        raise SandboxError(f"cannot read the sandbox's state in {path}: not as mm2mgr wrote it", hint=hint) from error
    return State(layout, records)


def _number(value: object, least: int, most: int) -> int:
    """Return a whole number within bounds: process 0 is this program's own group, and 1 would stand for all processes."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError("a number that cannot be")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("no text where there must be one")
    return value


def _ports(value: Mapping[str, object]) -> dict[str, int]:
    return {_text(name): _number(port, 1, 65_535) for name, port in value.items()}


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


def only_one(directory: Path, doing: str = "starting or stopping the sandbox") -> AbstractContextManager[None]:
    """Hold the directory's lock, which the kernel frees when its holder dies; raise Locked when another has it."""
    return locked(directory / "state.lock", f"another process is {doing} in {directory}", 0)
