"""What to say of a connector or a flow: problems, as sentences that end with what to do, and notes. Pure.

From a case, that is what was read of one connector with how long things have lasted; no problem known does not mean that all is well
(`health` decides that). To add a problem, write a function and put it into a tuple below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mm2mgr import topology
from mm2mgr.connect.types import trace_summary
from mm2mgr.observe.memory import RESTING, FlowMemory, Mark, Memory
from mm2mgr.observe.reading import Failure, FlowLag, LiveConnector, SeenKafka, Snapshot
from mm2mgr.reconcile.effect import compare
from mm2mgr.reconcile.offsets import Journal, unmarked
from mm2mgr.reconcile.plan import diff
from mm2mgr.reconcile.restarts import lowers_tasks
from mm2mgr.text import few, number_of
from mm2mgr.topology import Flow
from mm2mgr.truth.client_values import text_of

_SHOWN, _FLOWS_SHOWN = 3, 5
_SETTABLE = RESTING | {"RUNNING"}


@dataclass(frozen=True)
class Patience:
    """How long something may last before it is a problem.

    Progress gets more than a flush interval (60 s by default): only then must stored offsets have moved. Where the
    target cannot be read they are all there is to see, so one late flush is forgiven.
    """

    no_status_seconds: float = 60.0
    no_progress_seconds: float = 75.0
    no_progress_blind_seconds: float = 150.0
    not_stored_seconds: float = 75.0


@dataclass(frozen=True)
class ConnectorCase:
    """One connector that was read, and for how long it has had no status."""

    seen: LiveConnector
    patience: Patience
    without_status_seconds: float = 0.0

    @property
    def state(self) -> str:
        """The connector's state as Connect names it, `not applied`, or `no status`."""
        if self.seen.info is None:
            return "not applied"
        return self.seen.status.state if self.seen.status else "no status"

    @property
    def argument(self) -> str:
        """What names it on the command line."""
        return self.seen.key


@dataclass(frozen=True)
class FlowCase(ConnectorCase):
    """A flow's source connector with its lag, and what is remembered of it."""

    flow: Flow = field(kw_only=True)
    lag: FlowLag = field(kw_only=True)
    source: SeenKafka = field(kw_only=True)
    kept: FlowMemory = field(kw_only=True)

    @property
    def argument(self) -> str:
        """The flow's id, in quotes for the shell."""
        return f"'{self.flow.id}'"

    @property
    def marks(self) -> Mapping[str, Mark]:
        """The progress of each task; none where the lag is not known in full."""
        return {} if self.lag.unknown is not None or self.lag.unread else self.kept.marks


# --- any connector ----------------------------------------------------------------------------------------------------


def not_applied(case: ConnectorCase) -> Iterator[str]:
    """A connector that the tree declares and Connect does not have."""
    if case.seen.info is None:
        yield f"not on Connect cluster '{case.seen.desired.connect}': run mm2mgr apply"


def drifted(case: ConnectorCase) -> Iterator[str]:
    """A config that was changed elsewhere, or a tree that is not applied. Names keys only: values may be secrets."""
    if case.seen.info is None:
        return
    if case.seen.adopted:
        differing = [*compare(case.seen.desired, case.seen.info.config, case.seen.adopted).differing]
        if differing:
            yield f"it is adopted, and differs from the tree in {_some(differing, 'key')}: run mm2mgr plan"
        return
    changes = diff(unmarked(case.seen.info.config), case.seen.desired.config)
    if lowers_tasks(changes) and isinstance(case, FlowCase) and case.flow.tasks.is_saving:
        return  # it may wait for its time: plan shows it
    keys = [change.key for change in changes]
    if keys:
        yield f"its config differs from the tree in {_some(keys, 'key')}: run mm2mgr plan"


def offsets_on_the_way(case: ConnectorCase) -> Iterator[str]:
    """A move of stored offsets that is not finished: mm2mgr was killed, or is still working on it."""
    journal = Journal.of(case.seen.info.config) if case.seen.info else None
    if journal:
        yield (
            f"the move of its stored offsets to another topic is not finished; do not resume it by hand, or it may mirror "
            f"everything again; unless an apply is in progress, run mm2mgr apply, which finishes the move and leaves it {journal.then}"
        )


def no_status(case: ConnectorCase) -> Iterator[str]:
    """MirrorMaker's start jobs wait for both clusters, 60 s each by default, and Connect reports no status meanwhile."""
    if case.state == "no status" and case.without_status_seconds >= case.patience.no_status_seconds:
        clusters = " and ".join(case.seen.desired.pair.split("->"))
        yield (
            f"no status for {case.without_status_seconds:.0f} s: a connector has no status while it waits for a cluster that "
            f"does not answer; check addresses, ports and security protocol of {clusters} from the workers, then their log"
        )


def failed(case: ConnectorCase) -> Iterator[str]:
    """A failed connector: usually its clients refuse a setting."""
    status = case.seen.status
    if status and status.state == "FAILED":
        run_on = any(task.state == "RUNNING" for task in status.tasks)
        running = " (tasks still run with the previous config)" if run_on else ""
        yield f"connector FAILED{running}: {trace_summary(status.trace)}; fix the cause, then run mm2mgr restart --failed {case.argument}"


def failed_tasks(case: ConnectorCase) -> Iterator[str]:
    """Failed tasks, one sentence per cause; Connect never restarts them by itself."""
    by_cause: dict[str, list[str]] = {}
    for task in case.seen.status.tasks if case.seen.status else ():
        if task.state == "FAILED":
            by_cause.setdefault(trace_summary(task.trace), []).append(str(task.id))
    for why, tasks in by_cause.items():
        yield (
            f"{_some(tasks, 'task')} FAILED: {why}; fix the cause, then run mm2mgr restart --failed {case.argument}; "
            "they do not recover by themselves"
        )


def unassigned(case: ConnectorCase) -> Iterator[str]:
    """No worker runs it; or a connector's new config waits for a dead cluster while old tasks keep running."""
    status = case.seen.status
    if status and status.state == "UNASSIGNED":
        yield (
            "connector UNASSIGNED: no worker has taken it, or its changed config waits for a cluster that does not answer "
            "while its tasks run with the previous config; check the workers and that they reach both clusters"
        )
    tasks = [str(task.id) for task in status.tasks if task.state == "UNASSIGNED"] if status else []
    if tasks:
        yield f"{_some(tasks, 'task')} UNASSIGNED: no worker runs them; check that enough workers are up"


def heartbeat_without_task(case: ConnectorCase) -> Iterator[str]:
    """A heartbeat connector always has one task."""
    if case.seen.desired.type == "heartbeat" and _runs_empty(case):
        yield f"RUNNING without a task: no heartbeats are sent; check the workers' log and run mm2mgr restart {case.argument}"


# --- source connectors ------------------------------------------------------------------------------------------------


def no_tasks(case: FlowCase) -> Iterator[str]:
    """RUNNING without a task looks healthy and mirrors nothing; an unreachable source or a wrong pattern causes it."""
    if not _runs_empty(case):
        return
    alias = case.flow.source.alias
    if case.source.failure:
        yield (
            f"RUNNING without a task, nothing is mirrored: usually the workers cannot reach or log in to {alias}, "
            f"which mm2mgr could not read either ({case.source.failure.message}); check the cluster, then the workers' log"
        )
    elif case.lag.matched:
        yield (
            f"RUNNING without a task although {number_of(case.lag.matched, 'topic')} on {alias} match: the workers cannot reach "
            f"or log in to {alias}, or may not describe its topics; check their log for 'loading initial set of topic-partitions'"
        )


def matches_nothing(case: FlowCase) -> Iterator[str]:
    """A wrong pattern looks healthy: RUNNING without a task, or with one that mirrors heartbeats only."""
    if case.state == "RUNNING" and not case.source.failure and not case.lag.matched:
        what = topology.matches_nothing(case.flow, case.source.topics)
        yield (
            f"{what}, nothing is mirrored: check the patterns, and that mm2mgr's login and that of the workers may describe "
            "the topics"
        )


def not_in_wished_state(case: FlowCase) -> Iterator[str]:
    """The connector was paused, stopped or resumed over REST, and the tree declares another state."""
    wish = case.flow.settings.state
    if wish and case.state in _SETTABLE and case.state != wish.upper() and not _moving_offsets(case):
        yield f"the tree declares state: {wish}, but the connector is {case.state}; run mm2mgr plan"


def resting(case: FlowCase) -> Iterator[str]:
    """A connector that was paused or stopped, while records keep arriving on the source."""
    at_rest = case.state in RESTING and not case.flow.settings.state and not _moving_offsets(case)
    rest = case.kept.rest
    if at_rest and case.lag.total_records and rest and rest.grown > 0:
        yield (
            f"{case.state} while its lag grows: {case.lag.total_records} records wait, {rest.grown} of them new in the last "
            f"{rest.clock.seconds:.0f} s; run mm2mgr resume {case.argument}, or declare state: {case.state.lower()} on the flow if that is intended"
        )


def old_config(case: FlowCase) -> Iterator[str]:
    """Tasks carry a copy of the connector's whole config; status shows RUNNING even while it is an older one."""
    if case.seen.info is None or isinstance(case.seen.tasks, Failure) or case.state == "PAUSED":
        return  # a paused connector's tasks take a new config when they are resumed
    # A reference that a worker resolved would look like a change.
    live = {key: value for key, value in case.seen.info.config.items() if "${" not in value}
    older = {
        str(task.id): [key for key, value in live.items() if task.config.get(key) != value] for task in case.seen.tasks
    }
    stale = {task: keys for task, keys in older.items() if keys}
    if stale:
        keys = sorted({key for keys in stale.values() for key in keys})
        yield (
            f"{_some(list(stale), 'task')} still on an older config ({_some(keys, 'key')}): if this lasts longer than a "
            "rebalance, the connector cannot start with the new one; check the clusters and the workers' log"
        )


def no_progress(case: FlowCase) -> Iterator[str]:
    """Records wait, and neither stored offsets nor the remote topics moved."""
    blind = case.lag.blind
    limit = case.patience.no_progress_blind_seconds if blind else case.patience.no_progress_seconds
    stuck = {
        task: mark.clock.seconds for task, mark in case.marks.items() if mark.behind and mark.clock.seconds >= limit
    }
    if case.state != "RUNNING" or not stuck:
        return
    whom = "the flow" if set(stuck) == {"-"} else _some(sorted(stuck), "task")
    committed = text_of("source", case.seen.desired.config, "source consumer", "isolation.level") == "read_committed"
    hint = " (read_committed: an open transaction on the source has the same effect)" if committed else ""
    still = "the stored offsets do not move" if blind else "neither the stored offsets nor the target move"
    yield (
        f"no progress for {min(stuck.values()):.0f} s: records wait, but {still} for {whom}{hint}; check the workers' "
        f"log for 'Failure during poll' and check rights and space on {case.flow.target.alias}"
    )


def abandoned_partitions(case: FlowCase) -> Iterator[str]:
    """Partitions that the flow wants and no task has; new ones are found at the next refresh."""
    clocks = {str(one): case.kept.unassigned.get(str(one)) for one in case.lag.unassigned}
    waited = {name: clock.seconds for name, clock in clocks.items() if clock}
    late = {name: seconds for name, seconds in waited.items() if seconds > case.flow.settings.refresh_interval}
    if late:
        yield (
            f"{_some(list(late), 'partition')} not assigned to any task for {max(late.values()):.0f} s, longer than the refresh "
            f"interval: check that the workers' login may describe them on {case.flow.source.alias} and create topics on "
            f"{case.flow.target.alias}"
        )


CONNECTOR_RULES: tuple[Callable[[ConnectorCase], Iterator[str]], ...] = (
    not_applied,
    no_status,
    failed,
    failed_tasks,
    unassigned,
    heartbeat_without_task,
    offsets_on_the_way,
    drifted,
)
FLOW_RULES: tuple[Callable[[FlowCase], Iterator[str]], ...] = (
    no_tasks,
    matches_nothing,
    not_in_wished_state,
    resting,
    no_progress,
    abandoned_partitions,
    old_config,
)


def connector_problems(case: ConnectorCase) -> tuple[str, ...]:
    """Return the problems that any connector can have."""
    return tuple(sentence for rule in CONNECTOR_RULES for sentence in rule(case))


def flow_problems(case: FlowCase) -> tuple[str, ...]:
    """Return the problems of a flow: of its source connector, and of what arrives."""
    return connector_problems(case) + tuple(sentence for rule in FLOW_RULES for sentence in rule(case))


def _moving_offsets(case: ConnectorCase) -> bool:
    return case.seen.info is not None and Journal.of(case.seen.info.config) is not None


def _runs_empty(case: ConnectorCase) -> bool:
    status = case.seen.status
    return status is not None and status.state == "RUNNING" and not status.tasks


def _some(names: list[str], what: str) -> str:
    """Name a few: `task 1`, `4 keys (a, b, c, …)`."""
    if len(names) == 1:
        return f"{what} {names[0]}"
    return f"{len(names)} {what}s ({', '.join(names[:_SHOWN])}{', …' if len(names) > _SHOWN else ''})"


def companion_notes(case: ConnectorCase) -> tuple[str, ...]:
    """Return the notes on a companion connector."""
    notes, status = _state_notes(case), case.seen.status
    if case.seen.desired.type == "checkpoint" and status and status.state == "RUNNING" and not status.tasks:
        why = "no consumer group has offsets on these topics, or the source does not answer the workers"
        notes.append(f"no task: {why}")
    return tuple(notes)


def flow_notes(case: FlowCase) -> tuple[str, ...]:
    """Return the notes on a flow."""
    lag, notes = case.lag, _state_notes(case)
    if case.state == (case.flow.settings.state or "").upper() and case.state in RESTING:
        notes = [f"{case.state}, as declared"]
    if lag.unassigned:
        every = case.flow.settings.refresh_interval
        notes.append(f"{len(lag.unassigned)} partitions have no task: new partitions are detected every {every:.0f} s")
    if lag.deleted:
        names = ", ".join(sorted({one.topic for one in lag.deleted})[:3])
        notes.append(f"tasks still hold partitions that {case.flow.source.alias} no longer has: {names}")
    if isinstance(case.seen.tasks, Failure):
        notes.append(f"tasks could not be read: {case.seen.tasks.message}")
    return tuple(notes)


def offsets_note(case: FlowCase, target: SeenKafka, grown: str) -> str:
    """Return how accurate the lag is: Connect stores offsets at intervals, and only stored offsets can be read.

    `grown` is what `growth` says.
    """
    lag = case.lag
    if case.seen.info is None or lag.unknown is not None:
        return f"lag unknown: {lag.unknown or 'the connector is not applied'}"
    parts = []
    if case.state == "STOPPED":
        parts.append("exact: a stopped connector has stored all its offsets")
    elif lag.total_records and not case.flow.exactly_once:
        every = "every offset.flush.interval.ms (60 s by default)"
        parts.append(f"workers store offsets {every}, so the true lag may be lower")
    parts += [part for part in (grown, _nothing_stored(case), _past_end(case), _marker(case), _unread(case)) if part]
    if target.failure:
        parts.append(f"the target could not be read: {target.failure.message}")
    return "; ".join(parts)


def growth(flow: Flow, now: float, marks: Mapping[str, Mark], before: Mapping[str, Mark]) -> str:
    """Return by how much the target grew since the last observation, where that is more than the stored offsets show.

    Empty for an exactly-once flow: its offsets are stored in the transaction that writes the records.
    """
    if flow.exactly_once:
        return ""
    both = [(marks[task], before[task]) for task in marks if task in before]
    seen = [(mark.arrived - old.arrived, mark.stored - old.stored) for mark, old in both
            if mark.arrived is not None and old.arrived is not None]  # fmt: skip
    arrived, stored = sum(one for one, _ in seen), max(0, sum(one for _, one in seen))
    if arrived <= stored:
        return ""
    seconds = now - max(old.clock.seen_at for _, old in both)
    return f"in the last {seconds:.0f} s the target received {_at_most(flow, arrived)}, of which the stored offsets show {stored}"


def _state_notes(case: ConnectorCase) -> list[str]:
    if case.state in RESTING:
        return [f"{case.state}: it does nothing until mm2mgr resume"]
    if case.state == "no status" and case.without_status_seconds < case.patience.no_status_seconds:
        return [f"no status for {case.without_status_seconds:.0f} s: a new connector first waits for both clusters"]
    return []


def _nothing_stored(case: FlowCase) -> str:
    empty = [one for one in case.lag.counted if one.stored is None and one.lag_records]
    arrived = sum(one.arrived or 0 for one in empty)
    already = f", but their remote topics hold {_at_most(case.flow, arrived)} already" if arrived else ""
    return f"nothing stored yet for {len(empty)} partitions{already}" if empty else ""


def _past_end(case: FlowCase) -> str:
    past = [str(one.partition) for one in case.lag.counted if one.past_end]
    if not past:
        return ""
    why = "the topic was deleted and created again, or truncated"
    return f"the stored offset is past the end of {few(past)} ({why}), so all that the log has counts as lag"


def _at_most(flow: Flow, end_offsets: int) -> str:
    """Return growth of end offsets in words: 500 records in one transaction move an end by 501 (its marker)."""
    return f"{end_offsets} records{' and transaction markers' if flow.connect.exactly_once else ''}"


def _marker(case: FlowCase) -> str:
    single = case.lag.total_records and all(one.lag_records <= 1 for one in case.lag.counted)
    return "one record behind can be a transaction's end marker, which is never mirrored" if single else ""


def _unread(case: FlowCase) -> str:
    for partition, why in case.lag.unread.items():
        return f"{len(case.lag.unread)} partitions of the source could not be read ({partition}: {why})"
    return ""


# --- offsets that are not stored -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StaleOffsets:
    """Flows of one Connect cluster whose records arrive while their offsets are not stored; `sources` could not be read."""

    connect: str
    flows: tuple[str, ...]
    seconds: float
    records: int
    sources: tuple[str, ...]

    @property
    def is_problem(self) -> bool:
        """Whether a source is dead; otherwise the cause may be a long offset.flush.interval.ms, which workers do not show."""
        return bool(self.sources)

    def sentence(self) -> str:
        """Return what it means and, where known, what to do."""
        names = ", ".join(self.flows[:_FLOWS_SHOWN]) + (", …" if len(self.flows) > _FLOWS_SHOWN else "")
        fact = (
            f"offsets of {number_of(len(self.flows), 'flow')} not stored for {self.seconds:.0f} s while their records arrive ({names}); a restart would "
            f"mirror at least {self.records} records again"
        )
        if not self.sources:
            normal = "normal if offset.flush.interval.ms of its workers is longer"
            return f"{fact}; {normal}, else check their log for a source that does not answer"
        dead = ", ".join(self.sources)
        return (
            f"{fact}; source {dead} could not be read, and a dead source blocks offset commits of every flow on its workers: "
            f"bring {dead} back, or declare state: stopped on the flows from it"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "connect": self.connect,
            "flows": list(self.flows),
            "seconds": self.seconds,
            "records": self.records,
            "unread_sources": list(self.sources),
            "detail": self.sentence(),
        }


def stale_offsets(reading: Snapshot, memory: Memory, patience_seconds: float) -> Iterator[StaleOffsets]:
    """Yield the Connect clusters where several flows, or one beside a dead source, have waited this long for a commit."""
    for name in reading.connects:
        flows = [flow for flow in reading.flows if flow.connect.name == name]
        kept = [(flow.id, memory.of(flow.id).unstored) for flow in flows]
        waiting = [(flow, one.records, one.clock.seconds) for flow, one in kept
                   if one and one.clock and not one.clock.paused and one.clock.seconds >= patience_seconds]  # fmt: skip
        dead = tuple(sorted({flow.source.alias for flow in flows if reading.clusters[flow.source.alias].failure}))
        if len(waiting) > 1 or (waiting and dead):
            yield StaleOffsets(
                name,
                tuple(flow for flow, _, _ in waiting),
                min(seconds for _, _, seconds in waiting),
                sum(records for _, records, _ in waiting),
                dead,
            )
