"""`failover back`: the way back of a pair after a failover, prepared, started on request, and what was lost."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING

from mm2mgr.apply.failback import (
    COMMAND,
    HeldConnector,
    WayBackWriter,
    hold_as_recorded,
    hold_stages,
    offset_stages,
    offsets_as_recorded,
    release_stages,
)
from mm2mgr.apply.history import Recorder, author
from mm2mgr.apply.leases import Leases, take_lease, wait_for_lease
from mm2mgr.apply.verbs import Choice
from mm2mgr.apply.waves import Event
from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.back import Prepared, Range, known_lost
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.live.questions import RecordTimes
from mm2mgr.live.reach import Limits
from mm2mgr.live.snapshot import ask
from mm2mgr.observe.state_file import StorePlace, read_looks, state_file
from mm2mgr.observe.way_back import WayBack, WayConnector, read_way_back
from mm2mgr.operations.failover import flows_of_pair
from mm2mgr.operations.pause import Turned, resume
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import Change, ClusterPlan, Plan
from mm2mgr.remarks import Remark
from mm2mgr.text import in_yaml
from mm2mgr.timing import wait_for
from mm2mgr.topology import Flow, by_pair, lease_group

if TYPE_CHECKING:
    from mm2mgr.samples.schema import Store

_LIMITS = Limits(kafka_seconds=10.0, measuring_seconds=60.0)


@dataclass(frozen=True)
class LostOffsets:
    """Offsets of a partition of the old source whose records the other side never got. `first_at`, `last_at`: when the
    records at its ends were written (seconds since 1970; None: not known, or gone). `noted_at`: when a way back was
    prepared (None: it was not yet). `exact`: records were compared; else these are at most lost."""

    partition: TopicPartition
    offsets: Range
    exact: bool
    noted_at: float | None = None
    first_at: float | None = None
    last_at: float | None = None

    json_keys = (
        "topic=partition.topic partition=partition.partition first=offsets.first end=offsets.end count exact noted_at "
        "first_at last_at"
    )

    @property
    def count(self) -> int:
        return self.offsets.end - self.offsets.first


@dataclass(frozen=True)
class Failback:
    """The way back as it was found, and what was done. `declaration`: what to add to the tree where it has none.

    `prepared`: it was written now; `started`: what became of its connectors (None: nothing was started, which is a
    failure where it was ordered). `lost`: what was
    lost, now and before. `exported`: how many records were written to a file. `ordered_list`: nothing else was ordered.
    """

    pair: str
    way: WayBack | None = None
    declaration: str = ""
    prepared: bool = False
    started: Turned | None = None
    ordered_start: bool = False
    lost: tuple[LostOffsets, ...] = ()
    exported: int | None = None
    unrecorded: dict[str, str] = field(default_factory=dict)
    ordered_list: bool = False

    @property
    def refusals(self) -> tuple[Remark, ...]:
        return self.way.refusals if self.way else ()

    @property
    def outcome(self) -> str:
        """What it came to, in a word or two."""
        if self.way is None:
            return "not declared"
        if self.way.missing:
            return "not created"
        if self.started is not None:
            return "started" if self.started.outcome == "done" else "not started"
        if self.refusals:
            return "refused"
        return "prepared" if self.prepared or self.way.is_prepared else "to prepare"

    @property
    def has_failed(self) -> bool:
        not_started = self.ordered_start and self.started is None
        if self.ordered_list and self.outcome == "refused":  # such as while the pair runs again
            return not self._knows_all_lost
        return not_started or self.outcome in {"not declared", "not created", "refused", "not started"}

    @property
    def _knows_all_lost(self) -> bool:
        """Whether ways back that were prepared noted all that is listed: else the pair may still mirror it."""
        unknown = self.way is None or any(begin.refusal for begin in self.way.beginnings)
        return not unknown and all(part.noted_at is not None for part in self.lost)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-ready values."""
        from mm2mgr.json_values import to_json

        way = self.way
        return {
            "pair": self.pair,
            "outcome": self.outcome,
            "declaration": self.declaration or None,
            "names": way.names if way else None,
            "journal": (way.journal_reason or "used") if way and way.beginnings else None,
            "forward": [_connector_values(part) for part in way.forward] if way else [],
            "back": [_connector_values(part) for part in way.back] if way else [],
            "partitions": to_json(way.beginnings) if way else [],
            "refusals": [{"text": remark.text, "remedy": remark.remedy} for remark in self.refusals],
            "lost": to_json(self.lost),
            "exported": self.exported,
            "started": to_json(self.started),
            "unrecorded": self.unrecorded,
        }


def _connector_values(way: WayConnector) -> dict[str, object]:
    return {"connector": way.name, "state": way.state or "missing", "held": way.is_held}


@dataclass(frozen=True)
class FailbackOrder:
    """What is to be done: prepare the way back, start it then, list what was lost, export it. `store`: where earlier
    looks at the pair are kept, which know topics that were made anew since."""

    apply: bool = False
    start: bool = False
    lost: bool = False
    export: Path | None = None
    reason: str = ""
    wait_seconds: float = 60.0
    store: Store = DEFAULT_STORE


def failover_back(
    workspace: Workspace,
    pair: str,
    order: FailbackOrder = FailbackOrder(),
    *,
    approve: Callable[[WayBack], bool] = lambda way: True,
    report: Callable[[Event], None] = lambda event: None,
) -> Failback:
    """Show the way back of a pair that failed over, and prepare, start or export as ordered.

    `approve` gets it before something is written or started; Mm2mgrError, with nothing written, when it returns False.
    """
    workspace.refuse_snapshot()
    if order.export is not None:  # before anything is written
        refuse_export(workspace, order.export)
    forward = flows_of_pair(workspace, pair)
    pair, back_pair = forward[0].pair, f"{forward[0].target.alias}->{forward[0].source.alias}"
    back = by_pair(workspace.topology.flows).get(back_pair, [])
    if not back:
        return Failback(pair, declaration=declaration_of(forward, workspace))
    directions = forward, back
    way = _read(workspace, directions, order)
    result = Failback(pair, way)
    if order.apply and not (way.is_prepared or way.refusals or way.missing):
        if not approve(way):
            raise Mm2mgrError("it was not approved; nothing was written")
        result = _prepare(workspace, directions, order, report)
    elif order.start and result.outcome == "prepared" and not approve(way):
        raise Mm2mgrError("it was not approved; nothing was started")
    if order.start and result.outcome == "prepared" and result.way is not None:
        result = replace(result, started=_start(workspace, result.way, order))
    result = replace(result, ordered_start=order.start)
    if order.lost or order.export or result.way is not None:
        result = replace(result, lost=tuple(_lost_offsets(workspace, forward[0], result.way or way)))
    if order.export is not None:
        result = replace(result, exported=export_lost(workspace, forward[0], result.lost, order.export))
    is_list = bool(order.lost or order.export) and not (order.apply or order.start)
    return replace(result, ordered_list=is_list)


def _read(workspace: Workspace, directions: tuple[Sequence[Flow], Sequence[Flow]], order: FailbackOrder) -> WayBack:
    owner, (forward, back) = str(workspace.topology.owner), directions
    aliases = forward[0].source.alias, forward[0].target.alias
    looks, _ = read_looks(StorePlace(order.store, owner, state_file(owner)), aliases)
    return workspace.ask(read_way_back(workspace.topology, workspace.connectors, forward, back, looks), _LIMITS)


# --- writing ----------------------------------------------------------------------------------------------------------


def _to_hold(part: WayConnector, opposite: str) -> HeldConnector:
    assert part.running is not None
    return HeldConnector(part.desired, part.flow, part.running.config, opposite)


def _prepare(
    workspace: Workspace,
    directions: tuple[Sequence[Flow], Sequence[Flow]],
    order: FailbackOrder,
    report: Callable[[Event], None],
) -> Failback:
    """Prepare the way back under the leases of both directions' Connect clusters, from what is read then."""
    topology, by = workspace.topology, author(workspace.files)
    flows = [flow for direction in directions for flow in direction]
    connects = sorted({flow.connect.name for flow in flows})
    # The leases of all of them, as if a plan wrote there.
    lease_plan = Plan(
        str(topology.owner),
        tuple(ClusterPlan(name, (Change(name, COMMAND, "source", "update"),)) for name in connects),
    )
    wait_for_lease(topology, lease_plan, report)
    leases, recorder = Leases(lease_group), Recorder(topology, COMMAND, by, order.reason)
    unrecorded: dict[str, str] = {}
    try:
        take_lease(leases, topology, lease_plan, by, report, command=COMMAND)
        with leases.watch_held(topology):
            way = _read(workspace, directions, order)
            if way.refusals or way.missing:
                return Failback(way.pair, way)
            if not way.is_prepared:
                wait_for(_write(WayBackWriter(topology, recorder, leases), way))
            way = replace(_read(workspace, directions, order), beginnings=way.beginnings)
    finally:
        unrecorded = recorder.close()
        leases.close()
    return Failback(way.pair, way, prepared=True, unrecorded=unrecorded)


async def _write(writer: WayBackWriter, way: WayBack) -> None:
    owner = str(writer.topology.owner)
    begins = {begin.partition: begin.first for begin in way.beginnings}
    for part in way.present_forward:
        held = _to_hold(part, way.back_pair)
        await writer.carry_out(hold_stages(held, owner), None if part.is_held else hold_as_recorded(held))
    backs = [(part, _to_hold(part, way.pair)) for part in way.to_prepare]
    for part, held in backs:
        change = offsets_as_recorded(held, begins, part.mirrored)
        await writer.carry_out(offset_stages(held, owner, begins), change)
    prepared = Prepared.from_beginnings(way.pair, owner, time.time(), way.beginnings)
    await writer.keep(way.forward[0].flow.target.alias, prepared.texts())
    for part, held in backs:
        change = replace(offsets_as_recorded(held, begins, part.mirrored), config=held.released_config)
        await writer.carry_out(release_stages(held, owner), change)


def _start(workspace: Workspace, way: WayBack, order: FailbackOrder) -> Turned:
    """Resume the way back, with its checkpoint connector, which a failover stopped.

    A journal of an earlier failover of it is over then, and is deleted first.
    """
    if way.ended_journal:
        recorder = Recorder(workspace.topology, COMMAND, author(workspace.files), order.reason)
        writer = WayBackWriter(workspace.topology, recorder, Leases(lease_group))
        wait_for(writer.keep(way.back[0].flow.target.alias, dict.fromkeys(way.ended_journal)))
    names = (*(part.name for part in way.back), *way.checkpoints)
    return resume(workspace, Choice(names), reason=order.reason, wait_seconds=order.wait_seconds)


# --- what was lost ----------------------------------------------------------------------------------------------------


def _lost_offsets(workspace: Workspace, flow: Flow, way: WayBack) -> Iterator[LostOffsets]:
    """Yield what was lost: in earlier rounds, and in this one where it is not prepared yet; with times, if A tells."""
    ranges = [LostOffsets(place, lost, exact, at) for place, lost, at, exact in known_lost(way.rounds)]
    noted = {(part.partition, part.offsets) for part in ranges}
    ranges += [
        LostOffsets(begin.partition, lost, begin.exact)
        for begin in way.beginnings
        for lost in begin.lost
        if (begin.partition, lost) not in noted
    ]
    if not ranges:
        return
    alias = flow.source.alias
    firsts = {(part.partition, part.offsets.first) for part in ranges}
    lasts = {(part.partition, part.offsets.end - 1) for part in ranges}
    times: dict[tuple[TopicPartition, int], float] = {}
    for batch in _batches_by_partition(sorted(firsts | lasts)):
        question = RecordTimes(alias, tuple(batch))
        answer = workspace.ask(ask([question]), _LIMITS).get(question)
        if not isinstance(answer, Mm2mgrError):
            times |= {(place, offset): answer[place] for place, offset in batch if place in answer}
    for part in ranges:
        place, offsets = part.partition, part.offsets
        yield replace(part, first_at=times.get((place, offsets.first)), last_at=times.get((place, offsets.end - 1)))


_MOST_LOOKS = 50
"""Records of one partition whose times are asked for: each is a look of its own."""


def _batches_by_partition(
    places: Sequence[tuple[TopicPartition, int]],
) -> Iterator[list[tuple[TopicPartition, int]]]:
    """Yield the places so that each batch has a partition once."""
    waiting = list(places)
    for _ in range(_MOST_LOOKS):
        if not waiting:
            return
        batch = dict(reversed(waiting))
        yield list(batch.items())
        waiting = [(place, offset) for place, offset in waiting if batch[place] != offset]


def refuse_export(workspace: Workspace, path: Path) -> None:
    """Mm2mgrError where records cannot be exported to a file of this name."""
    workspace.refuse_as_output(path, "--export")
    if os.path.lexists(path):
        raise _existing(path)
    if not path.parent.is_dir():
        raise Mm2mgrError(f"--export {path}: there is no folder {path.parent}", hint="name a file that can be written")


def _existing(path: Path) -> Mm2mgrError:
    return Mm2mgrError(f"--export {path}: it exists already", hint="name a file that does not exist")


def export_lost(workspace: Workspace, flow: Flow, lost: Sequence[LostOffsets], path: Path) -> int:
    """Write lost records to a new file that only this user can read, a JSON object in each line; return how many.

    Key, value and values of headers are in base64, the timestamp in milliseconds since 1970. An existing file is never
    replaced, and one that could not be written to its end is removed.
    """
    from mm2mgr.kafka.records import read_ranges

    refuse_export(workspace, path)
    access = kafka_access(workspace.topology.clusters[flow.source.alias])
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise _existing(path) from None
    except OSError as error:
        raise Mm2mgrError(f"--export {path}: {error.strerror}", hint="name a file that can be written") from error
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            ranges = [(part.partition, part.offsets.first, part.offsets.end) for part in lost]
            return _write_records(file, read_ranges(access, ranges))
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _write_records(file: IO[str], records: Iterator[dict[str, object]]) -> int:
    written = 0
    for record in records:
        shown = {name: _base64(value) if name in {"key", "value"} else value for name, value in record.items()}
        headers = record["headers"]
        assert isinstance(headers, list)
        shown["headers"] = [[name, _base64(value)] for name, value in headers]
        file.write(json.dumps(shown) + "\n")
        written += 1
    return written


def _base64(value: object) -> str | None:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else None


# --- what to declare --------------------------------------------------------------------------------------------------


_SETTINGS_BACK = (
    "replication_policy",
    "separator",
    "delivery",
    "checkpoints",
    "offset_syncs",
    "heartbeats",
    "sync",
    "refresh_interval",
)


def declaration_of(forward: Sequence[Flow], workspace: Workspace) -> str:
    """Return the YAML of flows that mirror a pair back, made from its own flows.

    Where topics keep their names they are declared stopped: only one direction may run.
    """
    taken = {flow.declared_name for flow in workspace.topology.flows}
    flows: dict[str, object] = {}
    for flow in forward:
        if flow.lane_of is not None:
            continue
        name = next(
            name for number in count(1) if (name := f"{flow.name}-back{number if number > 1 else ''}") not in taken
        )
        settings = flow.settings.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        topics = flow.undivided or flow.settings.topics
        body: dict[str, object] = {
            "sources": [flow.target.alias],
            "targets": [flow.source.alias],
            "topics": topics.model_dump(mode="json", by_alias=True, exclude_defaults=True),
            **{key: settings[key] for key in _SETTINGS_BACK if key in settings},
        }
        beside = [name for name, connect in workspace.topology.connects.items() if connect.kafka == flow.source.alias]
        if len(beside) != 1:
            body["run_on"] = beside[0] if beside else flow.connect.name
        if flow.settings.replication_policy == "identity":
            body["state"] = "stopped"
        flows[name] = body
    lines = (f"  {in_yaml(name)}: {_flow_style(body)}" for name, body in flows.items())
    return "\n".join(["flows:", *lines])


def _flow_style(value: object) -> str:
    """Return a value as YAML in one line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{in_yaml(str(key))}: {_flow_style(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow_style, value))}]"
    return in_yaml(value) if isinstance(value, str) else json.dumps(value)
