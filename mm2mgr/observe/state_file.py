"""What is kept between observations: the memory, one JSON file per owner, and tables beside the samples.

These are the ledger of losses, points of lag for processes on other machines, what audits compared, and of failover
what looks leave for the day on which a source is dead and what checks came to.

What a look shows to be lost first goes into the memory, in one step with the look itself, and from there into the
table: a store that cannot be reached, or an install without the packages for tables, delays it and loses nothing.
Several processes may do so at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from pydantic import BaseModel

from mm2mgr.errors import Mm2mgrError, cause, install
from mm2mgr.failover.kept import KeptLooks
from mm2mgr.files import hold_lock, read_regular, replace_file, state_folder
from mm2mgr.observe.audits import AuditState, audit_states
from mm2mgr.observe.beside_records import Beats, CheckpointLook
from mm2mgr.observe.failover_rows import (
    ReadinessState,
    RehearsalState,
    looks_of,
    readiness_states,
    rehearsal_states,
    rows_of,
)
from mm2mgr.observe.lag import SeenTopic, Surplus
from mm2mgr.observe.losses import FlowLooks, LossEntry, entries_of
from mm2mgr.observe.memory import FlowMemory, Memory, SilentWorker, SyncLook
from mm2mgr.observe.reading import ConditionClock
from mm2mgr.observe.trend import FLOW, LagPoint, join_points
from mm2mgr.samples.schema import (
    AUDITS,
    FAILOVER_CHECKS,
    FAILOVER_LOOKS,
    FAILOVER_REHEARSALS,
    LAG,
    LOSSES,
    AuditRow,
    FailoverCheckRow,
    FailoverRehearsalRow,
    KeptRow,
    LossRow,
    SharedLag,
    Store,
    is_remote,
)
from mm2mgr.text import first_few, number_of

_Row = TypeVar("_Row")
_LOCK_SECONDS = 10.0
_TABLES_NEED = ("deltalake", "pyarrow", "numpy")


class _MemoryFile(BaseModel):
    """The memory as JSON."""

    format: Literal[3]
    without_status: Mapping[str, ConditionClock]
    flows: Mapping[str, FlowMemory]
    looks: Mapping[str, FlowLooks]
    unwritten: tuple[LossRow, ...]
    shared_at: float = 0.0
    beats: Mapping[str, Beats] = {}
    copied: Mapping[str, Mapping[str, SyncLook]] = {}
    checkpoints: Mapping[str, CheckpointLook] = {}
    silent_workers: Mapping[str, SilentWorker] = {}
    audited_since: Mapping[str, float] = {}
    failover_since: Mapping[str, float] = {}


def state_file(owner: str) -> Path:
    """Return where an owner's memory is kept."""
    return state_folder() / f"{owner}.json"


def change(file: Path, by: Callable[[Memory], Memory]) -> tuple[Memory, Memory, list[str]]:
    """Read, change and write the memory under its lock; return it before and after.

    Trouble with the file is a warning, never an error.
    """
    warnings: list[str] = []
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(file.with_name(f"{file.name}.lock"), "reading and writing the memory", _LOCK_SECONDS):
            earlier = _read(file, warnings)
            memory = by(earlier)
            replace_file(file, memory_text(memory), 0o600)
            return earlier, memory, warnings
    except (OSError, Mm2mgrError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.message
        warnings.append(f"{file} cannot be written ({reason}): what this run found, losses included, is not remembered")
        earlier = _read(file, warnings)
        return earlier, by(earlier), warnings


def parse_memory(text: str | bytes) -> Memory:
    """Return the memory that a text holds; ValueError where it is none."""
    content = _MemoryFile.model_validate_json(text)
    return Memory(**{name: value for name, value in vars(content).items() if name != "format"})


def memory_text(memory: Memory) -> str:
    """Return the memory as JSON."""
    return _MemoryFile(format=3, **vars(memory)).model_dump_json()


def load(file: Path) -> Memory:
    """Return the memory of a file; empty where it is missing or damaged."""
    return _read(file, None)


class FollowedFlow(BaseModel):
    """What the memory has of a flow's partitions to tell whether more arrived than there was, and whether their last
    offsets hold records."""

    surplus: Mapping[str, Mapping[int, Surplus]] = {}
    topics: Mapping[str, SeenTopic] = {}


class TimedLooks(BaseModel):
    """The part of the memory that says what is to be read again: settings and ACLs of topics by flow, groups by
    `connect/connector`, and the ends of partitions, by flow too."""

    copied: Mapping[str, Mapping[str, SyncLook]] = {}
    checkpoints: Mapping[str, CheckpointLook] = {}
    flows: Mapping[str, FollowedFlow] = {}


def timed_looks(file: Path) -> TimedLooks:
    """Return that part of a memory file; empty where it is missing or damaged."""
    try:
        return TimedLooks.model_validate_json(read_regular(file))
    except (OSError, ValueError):
        return TimedLooks()


def _read(file: Path, warnings: list[str] | None) -> Memory:
    """Read the memory; with a place for warnings, a damaged file is set aside."""
    try:
        return parse_memory(read_regular(file))
    except (FileNotFoundError, NotADirectoryError):
        return Memory()
    except (OSError, ValueError) as error:
        if warnings is not None:
            warnings.append(_set_aside(file, error))
        return Memory()


def _set_aside(file: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{file} cannot be read ({error.strerror}): what earlier looks left is not used"
    beside = file.with_name(f"{file.name}.damaged-{time.time_ns() // 1_000_000}")
    try:
        file.rename(beside)
    except OSError as refused:
        return f"{file} is damaged and cannot be set aside ({refused.strerror}): what earlier looks left is not used"
    return f"{file} was damaged: what earlier looks left is no longer known; the damaged file is kept as {beside.name}"


# --- the table of losses ----------------------------------------------------------------------------------------------


class StorePlace(NamedTuple):
    """Where an owner's losses and points of lag are: the store's tables, and the memory with losses not in it yet."""

    store: Store
    owner: str
    memory_file: Path


def settle(place: StorePlace, memory: Memory) -> tuple[tuple[LossEntry, ...], list[str]]:
    """Move what the memory holds of losses into the table, and return the entries of both, and warnings.

    Rows that two processes write, or one that was killed in between, count once. Trouble with the table is a warning.
    """
    waiting, warnings = memory.unwritten, list[str]()
    try:
        entries = entries_of([*_move_rows(place, waiting, warnings.append), *waiting])
    except Exception as error:  # whatever is in the store, a look goes on without it
        entries = entries_of(waiting)
        remaining = f"; {number_of(len(waiting), 'row')} kept in {place.memory_file} until then" if waiting else ""
        warnings.append(f"the table of losses: {cause(error)}{remaining}")
    return entries, list(first_few(warnings, "more warnings about files of the table of losses"))


def _move_rows(place: StorePlace, waiting: tuple[LossRow, ...], warn: Callable[[str], None]) -> list[LossRow]:
    is_there = _may_have(place.store, LOSSES)
    if not is_there and not waiting:
        return []
    if missing := _missing_packages():
        if is_there:
            raise Mm2mgrError(f"it needs the Python package {missing[0]}: {install('measure')}")
        return []  # they stay in the memory
    from mm2mgr.samples.store import LossStore

    table = LossStore(place.store, place.owner, warn)
    if waiting:
        table.append(waiting)
        done = set(waiting)
        change(
            place.memory_file,
            lambda now: replace(now, unwritten=tuple(row for row in now.unwritten if row not in done)),
        )
    return table.read()


def _may_have(store: Store, table: str) -> bool:
    try:
        return is_remote(store) or (Path(store) / table / "_delta_log").is_dir()
    except OSError:  # what reads it says what is wrong with it
        return True


def _read_table(
    place: StorePlace, table: str, name: str, read: Callable[[Callable[[str], None]], list[_Row]]
) -> tuple[list[_Row], list[str]]:
    """Return what `read` finds in a table, and warnings: nothing where there is none, or it cannot be read."""
    if not _may_have(place.store, table):
        return [], []
    if missing := _missing_packages():
        return [], [f"the table of {name} needs the Python package {missing[0]}: {install('measure')}"]
    warnings: list[str] = []
    try:
        return read(warnings.append), warnings
    except Exception as error:  # as above
        return [], [f"the table of {name}: {cause(error)}"]


def _missing_packages() -> list[str]:
    return [name for name in _TABLES_NEED if not find_spec(name)]


# --- the table of audits ----------------------------------------------------------------------------------------------

_AUDITS_READ_SECONDS = 7 * 86_400.0


def record_audit(place: StorePlace, rows: Sequence[AuditRow], lost: Sequence[LossRow], now: float) -> list[str]:
    """Write an audit into the table of audits, and what differs into the ledger; return warnings.

    What differs goes into the memory first, as what looks show to be lost does.
    """
    warnings = []
    if lost:
        _, memory, unwritten = change(place.memory_file, lambda now: replace(now, unwritten=(*now.unwritten, *lost)))
        warnings += [*unwritten, *settle(place, memory)[1]]

    def append(warn: Callable[[str], None]) -> None:
        from mm2mgr.samples.store import AuditStore

        AuditStore(place.store, place.owner, warn).append(rows, round(1000 * now))

    return [*warnings, *(_write_table("audits", "audit", append) if rows else [])]


def _write_table(noun: str, row: str, write: Callable[[Callable[[str], None]], object]) -> list[str]:
    """Write to a table of the store, which `write` opens with what takes its warnings; return warnings."""
    if missing := _missing_packages():
        return [f"the table of {noun} needs the Python package {missing[0]}: {install('measure')}"]
    warnings: list[str] = []
    try:
        write(warnings.append)
    except Exception as error:  # as above
        warnings.append(f"the table of {noun}: {cause(error)}; this {row} is not in it")
    return warnings


def read_audits(place: StorePlace, since: float) -> tuple[list[AuditRow], list[str]]:
    """Return the rows of audits that began since then (seconds since 1970), and warnings."""

    def read(warn: Callable[[str], None]) -> list[AuditRow]:
        from mm2mgr.samples.store import AuditStore

        return AuditStore(place.store, place.owner, warn).read(round(1000 * since))

    return _read_table(place, AUDITS, "audits", read)


def audits_of(place: StorePlace, now: float) -> tuple[dict[str, AuditState] | None, list[str]]:
    """Return what the audits of the last week say of each flow (None: that could not be read), and warnings."""
    rows, warnings = read_audits(place, now - _AUDITS_READ_SECONDS)
    return None if warnings and not rows else audit_states(rows), warnings


# --- the tables of failover -------------------------------------------------------------------------------------------

_CHECKS_READ_SECONDS = 7 * 86_400.0


def keep_looks(place: StorePlace, pair: tuple[str, str], looks: KeptLooks) -> list[str]:
    """Join what a look at a pair (aliases of source and target) read with what is kept of it; return warnings.

    Nothing is written for a look that read nothing of the source.
    """
    if not any((looks.commits, looks.commits_at, looks.ends_at, looks.syncs_at)):
        return []

    def keep(warn: Callable[[str], None]) -> None:
        from mm2mgr.samples.store import LookStore

        def join(files: Sequence[Sequence[KeptRow]]) -> Iterable[KeptRow]:
            earlier = _join_files(files, warn)
            return rows_of(earlier.join(looks) if earlier else KeptLooks().join(looks))

        LookStore(place.store, place.owner, pair, warn).keep(join, is_whole=looks.is_whole)

    # once, however often another process was ahead
    return list(dict.fromkeys(_write_table("failover looks", "look", keep)))


def read_looks(place: StorePlace, pair: tuple[str, str]) -> tuple[KeptLooks | None, list[str]]:
    """Return what is kept of a pair (aliases of source and target), and warnings.

    None: nothing was kept, or it cannot be read, which a warning says.
    """

    def read(warn: Callable[[str], None]) -> list[list[KeptRow]]:
        from mm2mgr.samples.store import LookStore

        return LookStore(place.store, place.owner, pair, warn).read()

    files, warnings = _read_table(place, FAILOVER_LOOKS, "failover looks", read)
    return _join_files(files, warnings.append), warnings


def _join_files(files: Sequence[Sequence[KeptRow]], warn: Callable[[str], None]) -> KeptLooks | None:
    joined: KeptLooks | None = None
    for rows in files:
        try:
            looks = looks_of(rows)
        except ValueError as error:
            warn(f"the table of failover looks has {error}; left out")
        else:
            joined = looks if joined is None else joined.join(looks)
    return joined


def record_check(place: StorePlace, row: FailoverCheckRow) -> list[str]:
    """Write what a check of failover came to into the store; return warnings."""

    def append(warn: Callable[[str], None]) -> None:
        from mm2mgr.samples.store import CheckStore

        CheckStore(place.store, place.owner, warn).append([row], row.time_ms)

    return _write_table("failover checks", "check", append)


def readiness_of(place: StorePlace, now: float) -> tuple[dict[str, ReadinessState] | None, list[str]]:
    """Return what the checks of the last week say of each pair (None: that could not be read), and warnings."""

    def read(warn: Callable[[str], None]) -> list[FailoverCheckRow]:
        from mm2mgr.samples.store import CheckStore

        return CheckStore(place.store, place.owner, warn).read(round(1000 * (now - _CHECKS_READ_SECONDS)))

    rows, warnings = _read_table(place, FAILOVER_CHECKS, "failover checks", read)
    return None if warnings and not rows else readiness_states(rows), warnings


def record_rehearsal(place: StorePlace, row: FailoverRehearsalRow) -> list[str]:
    """Write what a rehearsal of failover came to into the store; return warnings."""

    def append(warn: Callable[[str], None]) -> None:
        from mm2mgr.samples.store import RehearsalStore

        RehearsalStore(place.store, place.owner, warn).append([row], row.time_ms)

    return _write_table("failover rehearsals", "rehearsal", append)


def rehearsals_of(place: StorePlace, pairs: Collection[str]) -> tuple[dict[str, RehearsalState] | None, list[str]]:
    """Return what the rehearsals say of these pairs (None: that could not be read), and warnings; older ones are not
    read once each pair has a good one."""

    def read(warn: Callable[[str], None]) -> list[FailoverRehearsalRow]:
        from mm2mgr.samples.store import RehearsalStore

        def is_enough(rows: Iterable[FailoverRehearsalRow]) -> bool:
            states = rehearsal_states(rows)
            return all(pair in states and states[pair].good_at is not None for pair in pairs)

        return RehearsalStore(place.store, place.owner, warn).read(is_enough)

    rows, warnings = _read_table(place, FAILOVER_REHEARSALS, "failover rehearsals", read)
    return None if warnings and not rows else rehearsal_states(rows), warnings


# --- the table of lag -------------------------------------------------------------------------------------------------

_SHARED_EVERY_SECONDS = 300.0
_KNOWN_SECONDS = 600.0


def is_due_to_share(memory: Memory, now: float) -> bool:
    """Tell whether the points of lag are to be written into the store again."""
    return not 0 <= now - memory.shared_at < _SHARED_EVERY_SECONDS


def share(place: StorePlace, memory: Memory, flows: Iterable[str]) -> tuple[str, ...]:
    """Write the points of these flows' lag into the store, for other machines; return what is in the way."""
    rows = [
        SharedLag(flow, flow_memory.home, round(1000 * at.time), at.partitions, at.start, at.end, at.position)
        for flow in flows
        if (flow_memory := memory.flow(flow)).home
        for at in flow_memory.progress.get(FLOW, ())
    ]
    if not rows or _missing_packages():
        return ()
    from mm2mgr.samples.store import LagStore

    try:
        LagStore(place.store, place.owner, lambda _: None).append(rows, round(1000 * memory.shared_at))
    except Exception as error:  # as above
        return (f"the table of lag: {cause(error)}",)
    return ()


def join_shared(
    place: StorePlace, earlier: Memory, memory: Memory, flows: Collection[str], now: float
) -> tuple[Memory, list[str]]:
    """Add to a memory, which was the earlier one before, what processes on other machines saw of these flows' lag,
    where this one has not looked for ten minutes.

    Nothing is added, and a warning says so, where that cannot be read: a trend begins with this look then.
    """
    with_points = [flow for flow in flows if memory.flow(flow).home and memory.flow(flow).progress.get(FLOW)]
    before = {flow: earlier.flow(flow).progress.get(FLOW, ()) for flow in with_points}
    new = [flow for flow, points in before.items() if not points or now - points[-1].time > _KNOWN_SECONDS]
    if not new or not _may_have(place.store, LAG) or _missing_packages():
        return memory, []
    from mm2mgr.samples.store import LagStore

    try:
        rows = LagStore(place.store, place.owner, lambda _: None).read(round(1000 * now))
    except Exception as error:  # as above
        return memory, [f"the table of lag: {cause(error)}"]
    points_of: dict[tuple[str, str], list[LagPoint]] = {}
    for row in rows:
        point = LagPoint(row.time_ms / 1000, row.partitions, row.start_offsets, row.end_offsets, row.positions)
        points_of.setdefault((row.flow, row.home), []).append(point)

    def joining(memory: Memory) -> Memory:
        flows = dict(memory.flows)
        for flow in new:
            flow_memory = memory.flow(flow)
            points = join_points(flow_memory.progress.get(FLOW, ()), points_of.get((flow, flow_memory.home), ()))
            flows[flow] = replace(flow_memory, progress={**flow_memory.progress, FLOW: points})
        return replace(memory, flows=flows)

    if not any((flow, memory.flow(flow).home) in points_of for flow in new):
        return memory, []
    return change(place.memory_file, joining)[1:]
