"""The entrance: read the clusters once, compare with what is remembered, and report; and acknowledge losses.

The memory is one JSON file per owner in the state folder, not in a cache, because losses must last. A missing file is an empty memory;
a damaged one is set aside with a warning. Several processes may observe at once: reading and writing are one step under a lock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from mm2mgr import secrets
from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import cache_folder, locked, replace_file, state_folder
from mm2mgr.observe.health import FlowStatus, Remembered, Status, judge, lags_of
from mm2mgr.observe.memory import ConditionClock, FlowMemory, Memory, RecordLoss, open_losses, remember
from mm2mgr.observe.memory import acknowledge as mark
from mm2mgr.observe.problems import Patience
from mm2mgr.observe.reader import Instruments, read_estate
from mm2mgr.observe.reading import FlowLag, LiveConnector, Snapshot
from mm2mgr.render import Connector
from mm2mgr.topology import Flow, KafkaCluster, Topology, config_text

_LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class Kept:
    """The memory before and after a change, and what went wrong with the file."""

    earlier: Memory
    memory: Memory
    warnings: tuple[str, ...] = ()


class _MemoryFile(BaseModel):
    """The memory as JSON."""

    format: Literal[2]
    without_status: Mapping[str, ConditionClock]
    flows: Mapping[str, FlowMemory]
    losses: Mapping[str, RecordLoss]


def state_file(owner: str) -> Path:
    """Return where an owner's memory is kept."""
    return state_folder() / f"{owner}.json"


def change(file: Path, by: Callable[[Memory], Memory]) -> Kept:
    """Read, change and write the memory under its lock. Trouble with the file is a warning, never an error."""
    warnings: list[str] = []
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with locked(file.with_name(f"{file.name}.lock"), "reading and writing the memory", _LOCK_SECONDS):
            earlier = _read(file, warnings)
            memory = by(earlier)
            replace_file(file, _MemoryFile(format=2, **vars(memory)).model_dump_json(), 0o600)
            return Kept(earlier, memory, tuple(warnings))
    except (OSError, Mm2mgrError) as error:
        why = error.strerror if isinstance(error, OSError) else error.message
        warnings.append(f"{file} cannot be written ({why}): what this run found, losses included, is not remembered")
        earlier = _read(file, warnings)
        return Kept(earlier, by(earlier), tuple(warnings))


def load(file: Path) -> Memory:
    """Return the memory of a file; empty where it is missing or damaged."""
    return _read(file, None)


def _read(file: Path, warnings: list[str] | None) -> Memory:
    """Read the memory; with a place for warnings, a damaged file is set aside."""
    try:
        found = _MemoryFile.model_validate_json(file.read_bytes())
        return Memory(found.without_status, found.flows, found.losses)
    except (FileNotFoundError, NotADirectoryError):
        return _from_the_cache(file)
    except (OSError, ValueError) as error:
        if warnings is not None:
            warnings.append(_set_aside(file, error))
        return Memory()


def _set_aside(file: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{file} cannot be read ({error.strerror}): its losses are not shown"
    beside = file.with_name(f"{file.name}.damaged-{time.time_ns() // 1_000_000}")
    try:
        file.rename(beside)
    except OSError as refused:
        return f"{file} is damaged and cannot be set aside ({refused.strerror}): its losses are not shown"
    return f"{file} was damaged: its losses are no longer known; the damaged file is kept as {beside.name}"


def _from_the_cache(file: Path) -> Memory:
    """Read what earlier versions kept in the cache folder: since when connectors have no status."""
    if file != state_file(file.stem):
        return Memory()
    try:
        data = json.loads((cache_folder() / "observed" / file.name).read_text(encoding="utf-8"))
        now = time.time()
        return Memory(
            {key: ConditionClock(max(0.0, now - since), now) for key, since in data["without_status"].items()}
        )
    except (Mm2mgrError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Memory()


_TRACE_LINES = 12
_TRACE_CHARACTERS = 200
_CLIENTS = (
    "source_consumer",
    "record_producer",
    "source_admin",
    "target_admin",
    "offset_syncs_producer",
    "target_consumer",
)


@dataclass(frozen=True)
class ObserveOptions:
    """How to observe: clients, limits, memory file (None: the owner's file in the state folder), partitions named per flow."""

    instruments: Instruments = field(default_factory=Instruments)
    patience: Patience = field(default_factory=Patience)
    memory_file: Path | None = None
    top: int = 5


@dataclass(frozen=True)
class Observation:
    """A status with the reading and the lags behind it."""

    reading: Snapshot
    lags: Mapping[str, FlowLag]
    status: Status


async def observe(
    topology: Topology,
    connectors: Sequence[Connector],
    *,
    only: Iterable[str] | None = None,
    options: ObserveOptions | None = None,
) -> Observation:
    """Observe the flows with these ids (None: all) and remember what was seen."""
    how = options or ObserveOptions()
    chosen = None if only is None else set(only)
    flows = [flow for flow in topology.flows if chosen is None or flow.id in chosen]
    reading = await read_estate(topology, connectors, flows, how.instruments)
    lags = lags_of(reading)
    kept = change(_file(topology, how), lambda earlier: remember(earlier, reading, lags))
    seen = judge(reading, lags, Remembered(kept.earlier, kept.memory, how.patience), top=how.top)
    return Observation(reading, lags, replace(seen, warnings=kept.warnings))


async def status(
    topology: Topology,
    connectors: Sequence[Connector],
    *,
    only: Iterable[str] | None = None,
    options: ObserveOptions | None = None,
) -> Status:
    """Return the status of the flows with these ids (None: all); see `observe`. No failed cluster raises."""
    return (await observe(topology, connectors, only=only, options=options)).status


async def describe(
    topology: Topology, connectors: Sequence[Connector], flow: Flow, *, options: ObserveOptions | None = None
) -> Description:
    """Observe one flow and return everything about it."""
    seen = await observe(topology, connectors, only=[flow.id], options=options)
    return Description(flow, seen.reading, seen.lags.get(flow.id, FlowLag()), seen.status)


def acknowledge(
    topology: Topology, ids: Sequence[str], *, only: Iterable[str] | None = None, options: ObserveOptions | None = None
) -> tuple[RecordLoss, ...]:
    """Acknowledge losses by their ids, or `all` (of the flows with these ids), and return them; Mm2mgrError for unknown ids."""
    how = options or ObserveOptions()
    file = _file(topology, how)
    known = {one.id: one for one in open_losses(load(file).losses)}
    wanted = [one for one in dict.fromkeys(ids) if one != "all"]
    if unknown := [one for one in wanted if one not in known]:
        raise Mm2mgrError(f"no open loss {', '.join(unknown)}", hint=f"losses here: {', '.join(known) or 'none'}")
    if "all" in ids:
        wanted = [one.id for one in open_losses(known, only)]
    kept = change(file, lambda memory: replace(memory, losses=mark(memory.losses, wanted, how.instruments.clock())))
    if kept.warnings:
        raise Mm2mgrError(f"nothing was acknowledged: {kept.warnings[0]}")
    return tuple(known[one] for one in wanted)


def _file(topology: Topology, how: ObserveOptions) -> Path:
    return how.memory_file or state_file(str(topology.owner))


# --- one flow in full -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Description:
    """One flow in full."""

    flow: Flow
    reading: Snapshot
    lag: FlowLag
    status: Status

    @property
    def flow_status(self) -> FlowStatus:
        """The flow's own status."""
        return next(one for one in self.status.flows if one.flow == self.flow.id)

    def to_dict(self) -> dict[str, Any]:
        """Return the description; `topics` gives the target topic of each source topic."""
        flow, seen = self.flow, self.reading.source_connector(self.flow)
        return {
            "flow": flow.id,
            "source": _cluster(flow.source),
            "target": _cluster(flow.target),
            "connect": {"name": flow.connect.name, "urls": list(flow.connect.model.url), "kafka": flow.connect.kafka},
            "status": self.flow_status.to_dict(),
            "trace": trace_lines(seen.status.trace) if seen and seen.status else [],
            "tasks": _tasks(seen) if seen else [],
            "lag": [one.to_dict() for one in self.lag.partitions],
            "topics": self.topics(),
            "companions": [one.to_dict() for one in self.status.companions],
            "settings": [
                {"setting": name, "value": value, "origin": origin} for name, value, origin in _settings(flow)
            ],
            "losses": [one.to_dict() for one in self.status.losses],
            "warnings": list(self.status.warnings),
            "failures": {where: failure.to_dict() for where, failure in self.status.failures.items()},
        }

    def topics(self) -> list[dict[str, Any]]:
        """Return each topic that the flow carries, its name on the target, and its partitions."""
        counts: dict[str, int] = {}
        for one in self.lag.partitions:
            counts[one.partition.topic] = counts.get(one.partition.topic, 0) + 1
        return [
            {"topic": topic, "remote_topic": self.flow.remote_topic(topic), "partitions": count}
            for topic, count in sorted(counts.items())
        ]


def trace_lines(trace: str | None) -> list[str]:
    """Return the first lines of a Java trace and its last cause; masked before they are cut."""
    lines = secrets.mask_text(trace or "").splitlines()
    shown = lines[:_TRACE_LINES]
    causes = [line for line in lines[_TRACE_LINES:] if line.startswith("Caused by:")]
    if len(lines) > len(shown):
        shown += ["…", *causes[-1:]]
    return [line.rstrip()[:_TRACE_CHARACTERS] for line in shown]


def _cluster(cluster: KafkaCluster) -> dict[str, Any]:
    protocol = cluster.client.get("security.protocol", "PLAINTEXT")
    return {
        "alias": cluster.alias,
        "bootstrap_servers": str(cluster.client["bootstrap.servers"]),
        "security_protocol": str(protocol),
    }


def _tasks(seen: LiveConnector) -> list[dict[str, Any]]:
    assigned = seen.assigned()
    return [
        {
            "id": task.id,
            "state": task.state,
            "worker": task.worker_id,
            "partitions": [str(one) for one in sorted(assigned.get(task.id, ()))],
            "trace": trace_lines(task.trace),
        }
        for task in (seen.status.tasks if seen.status else ())
    ]


def _settings(flow: Flow) -> Iterator[tuple[str, str, str]]:
    """Yield setting, value and origin; of the clients only what differs from Kafka's own defaults."""
    s = flow.settings
    simple: dict[tuple[str, ...], object] = {
        ("topics", "include"): ", ".join(s.topics.include),
        ("topics", "exclude"): ", ".join(s.topics.exclude),
        ("replication_policy",): s.replication_policy,
        ("separator",): s.separator,
        ("refresh_interval",): f"{s.refresh_interval:g} s",
        ("checkpoints", "enabled"): s.checkpoints.enabled,
        ("checkpoints", "group_offsets"): s.checkpoints.group_offsets,
        ("heartbeats", "enabled"): s.heartbeats.enabled,
        ("offset_syncs", "enabled"): s.offset_syncs.enabled,
        ("offset_syncs", "location"): s.offset_syncs.location,
        ("sync", "topic_configs"): s.sync.topic_configs,
        ("sync", "topic_acls"): s.sync.topic_acls,
    }
    yield "tasks.max", str(flow.tasks.maximum), str(flow.tasks.maximum.origin)
    for path, value in simple.items():
        yield ".".join(path), config_text(value), str(flow.origin(*path))
    for block in _CLIENTS:
        for key, text in flow.client(block).items():
            yield f"{block}.{key}", secrets.mask(key, text), str(text.origin)
