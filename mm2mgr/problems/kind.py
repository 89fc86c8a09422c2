"""What a kind of problem is, and the cases that its rule judges. Pure.

One kind stands in one place: a class with its evidence, whose docstring is its page, its sentence and, above it, its
alert; below it the rule. Kinds, causes and evidence keep their names from release to release: terminal, JSON and
whatever acts on problems use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from shlex import quote
from typing import ClassVar, Literal, TypeVar, dataclass_transform

from mm2mgr.comparison.ownership import Journal
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.observe.interruptions import InterruptionCounts, InterruptionReport
from mm2mgr.observe.lag import FlowLag
from mm2mgr.observe.memory import FlowMemory, Mark, Memory
from mm2mgr.observe.reading import LiveConnector, Patience, Reading
from mm2mgr.observe.trend import FLOW, Trend, lag_trend, overtaken_in, partition_key, waiting_since
from mm2mgr.topology import Flow

AlertSeverity = Literal["critical", "warning", "info"]
NAMED = 20
"""How many topics, settings, groups, offsets or partitions one problem names."""
_SHOWN = 3
CHECK = "mm2mgr check"
"""Asks brokers and workers about rights, addresses and versions."""
APPLY_FLOW = "mm2mgr apply --flow"
"""Makes a flow run as the tree declares it."""


@dataclass(frozen=True)
class ProblemSubject:
    """What a problem is about, as closely as is known: a Connect cluster, a connector, its flow, some of its tasks."""

    connect: str = ""
    connector: str = ""
    flow: str = ""
    tasks: tuple[int, ...] = ()


class ProblemEvidence:
    """The facts behind a problem, without secrets. Each kind is one subclass: `kind` registers it."""

    kind: ClassVar[str]
    severity: ClassVar[AlertSeverity]
    minutes: ClassVar[int]

    @property
    def cause(self) -> str:
        """An identifier of CAUSES for failures, else empty."""
        return ""

    @property
    def retryable(self) -> bool:
        """Whether a restart alone can cure it."""
        return False

    @property
    def endangers_records(self) -> bool:
        """Whether records are lost or do not arrive, or may be lost soon; else something differs."""
        return self.severity == "critical"

    def sentence(self, problem: LiveProblem) -> str:
        """Return what is wrong, what it does and, at the end, what to do."""
        raise NotImplementedError

    def command(self, problem: LiveProblem) -> str:
        """Return the command that begins its remedy as it is typed, names quoted for the shell: that of the sentence
        where it names one, else what shows more of it."""
        return f"mm2mgr describe {problem.argument}" if problem.subject.flow else CHECK

    @classmethod
    def meaning(cls) -> str:
        """Return its page."""
        return " ".join((cls.__doc__ or "").split())


@dataclass(frozen=True)
class LiveProblem:
    """One problem. `since_seconds`: for how long it has been seen (None: that is not remembered). `drift`: keys of its
    connector that differ from the tree and can be the cause; `older`: keys of which tasks still have an older value,
    where that is a part of it. Neither is a problem of its own then.
    """

    evidence: ProblemEvidence
    subject: ProblemSubject = field(default_factory=ProblemSubject)
    since_seconds: float | None = None
    drift: tuple[str, ...] = ()
    older: tuple[str, ...] = ()
    json_keys = "kind subject evidence since_seconds cause retryable drift older"

    @property
    def kind(self) -> str:
        return self.evidence.kind

    @property
    def cause(self) -> str:
        return self.evidence.cause

    @property
    def retryable(self) -> bool:
        return self.evidence.retryable and not self.drift

    @property
    def sentence(self) -> str:
        """What is wrong, what it does and, at the end, what to do."""
        sentence = self.evidence.sentence(self)
        if self.older:
            sentence += f"; tasks still have an older config ({name_some(self.older, 'key')})"
        if self.drift:
            keys = name_some(self.drift, "key")
            sentence += f"; its config differs from the tree in {keys}, which can be the cause: run {self.command}"
        return sentence

    @property
    def seconds(self) -> float:
        """For how long it has been seen, 0 where that is not remembered."""
        return self.since_seconds or 0.0

    @property
    def command(self) -> str:
        """The command that begins its remedy, as it is typed: an apply where drift can be the cause."""
        if self.drift:
            return f"{APPLY_FLOW} {self.argument}" if self.subject.flow else "mm2mgr apply"
        return self.evidence.command(self)

    @property
    def check_command(self) -> str:
        """The command that asks its brokers and workers."""
        return f"{CHECK} {self.argument}" if self.subject.flow else CHECK

    @property
    def argument(self) -> str:
        """What names the connector on the command line: its flow, or `connect/connector`, quoted for the shell."""
        subject = self.subject
        return quote(subject.flow or f"{subject.connect}/{subject.connector}")

    @property
    def tasks(self) -> str:
        """The tasks that it is about, in words; empty where it is not about tasks."""
        return name_some(map(str, self.subject.tasks), "task") if self.subject.tasks else ""


def name_some(names: Iterable[str], noun: str, count: int | None = None) -> str:
    """Name a few: `task 1`, `4 keys (a, b, c, …)`."""
    names = list(names)
    number = len(names) if count is None else count
    if number == 1:
        return f"{noun} {names[0]}"
    return f"{number} {noun}s ({', '.join(names[:_SHOWN])}{', …' if number > _SHOWN else ''})"


# --- what rules judge -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConnectorCase:
    """One connector, the reading that it is part of, and what is remembered with this reading."""

    connector: LiveConnector
    reading: Reading = field(default_factory=lambda: Reading(0.0, (), {}, {}))
    memory: Memory = field(default_factory=Memory)
    patience: Patience = field(default_factory=Patience)

    @property
    def state(self) -> str:
        """The connector's state as Connect names it, `not applied`, or `no status`."""
        if self.connector.running is None:
            return "not applied"
        return self.connector.status.state if self.connector.status else "no status"

    @property
    def journal(self) -> Journal | None:
        """The change of its stored offsets that was begun."""
        return Journal.of_config(self.connector.running.config) if self.connector.running else None

    @property
    def runs_no_task(self) -> bool:
        status = self.connector.status
        return status is not None and status.state == "RUNNING" and not status.tasks

    @property
    def without_status_seconds(self) -> float:
        """For how long it has had no status."""
        clock = self.memory.without_status.get(self.connector.key)
        return clock.seconds if clock else 0.0

    @property
    def silent_seconds(self) -> dict[str, float]:
        """For how long workers have been silent, by their ids: one that moves records is not, but out of reach."""
        inside = f"{self.connector.desired.connect}/"
        return {
            key.removeprefix(inside): worker.clock.seconds
            for key, worker in self.memory.silent_workers.items()
            if key.startswith(inside) and not worker.moved
        }

    def problem(
        self, evidence: ProblemEvidence, *, since: float | None = None, tasks: Iterable[int] = ()
    ) -> LiveProblem:
        """Return a problem of this connector, seen for `since` seconds."""
        desired = self.connector.desired
        flow = desired.flows[0] if desired.type == "source" else ""
        return LiveProblem(evidence, ProblemSubject(desired.connect, desired.name, flow, tuple(sorted(tasks))), since)


@dataclass(frozen=True)
class FlowCase(ConnectorCase):
    """A flow's source connector with its lag, and the problems of connectors that mirror the same."""

    flow: Flow = field(kw_only=True)
    lag: FlowLag = field(kw_only=True)
    overlaps: tuple[LiveProblem, ...] = field(kw_only=True, default=())

    @property
    def source(self) -> RunningKafka:
        return self.reading.clusters.get(self.flow.source.alias, RunningKafka())

    @property
    def has_lost_target(self) -> bool:
        """Whether the target answered an earlier look and not this one: what was stored may be from before it went."""
        is_down = self.reading.failure_of(self.flow.target.alias) is not None
        return is_down and any(mark.arrived is not None for mark in self.marks.values())

    @property
    def exactly_once(self) -> bool | None:
        """Whether its workers write with transactions; None: they do not tell."""
        return self.reading.connects[self.flow.connect.name].exactly_once

    @property
    def flow_memory(self) -> FlowMemory:
        """What is remembered of the flow."""
        return self.memory.flow(self.flow.id)

    @property
    def interruptions(self) -> InterruptionReport | None:
        """What interrupted it: changes of its assignment and failures of its tasks; None before the first look."""
        return InterruptionReport.read(self.flow_memory.interruptions, self.reading.taken_at)

    @property
    def interruptions_with_lanes(self) -> InterruptionReport | None:
        """What interrupted a flow on all of its connectors; None where it has no lanes, and for a lane."""
        parts = [part for part in self.reading.declared if part.whole_id == self.flow.id]
        if len(parts) < 2:
            return None
        counts = (self.memory.flow(part.id).interruptions for part in parts)
        reports = filter(None, (InterruptionReport.read(of_part, self.reading.taken_at) for of_part in counts))
        return reduce(InterruptionReport.add, reports) if self.interruptions else None

    @property
    def last_hour(self) -> InterruptionCounts:
        """What interrupted it in the last hour."""
        return self.interruptions.last_hour if self.interruptions else InterruptionCounts()

    @property
    def marks(self) -> Mapping[str, Mark]:
        """The progress of each task; none where the lag is not known in full, nor while offsets are the last ones."""
        lag = self.lag
        return {} if lag.unknown is not None or lag.unread or lag.last_stored else self.flow_memory.marks

    @cached_property
    def trend(self) -> Trend | None:
        """What the lag has done over all looks that are remembered, of every command; None where it is not known."""
        if self.lag.unknown is not None or self.lag.unread:
            return None
        behind = [partition for partition in self.lag.counted_partitions if partition.lag_records]
        frozen, every = self.lag.last_stored is not None, self.flow.connect.model.flush_interval
        return lag_trend(self.flow_memory.progress.get(FLOW, ()), behind, every, frozen=frozen)

    @property
    def waiting_seconds(self) -> float | None:
        """For how long a record has waited for a flow that rests, at least, by the looks that saw it wait."""
        since, rest = waiting_since(self.flow_memory.progress.get(FLOW, ())), self.flow_memory.rest
        waited = [] if since is None else [self.reading.taken_at - since]
        if rest and (self.lag.total_records or 0) > rest.grown:
            waited.append(rest.clock.seconds)
        return max(waited, default=None)

    @property
    def overtaken_seconds(self) -> float | None:
        """Until retention deletes records that wait, as the starts of the logs move; None where they do not."""
        every = self.flow.connect.model.flush_interval
        forecasts = []
        for partition in self.lag.counted_partitions:
            points = self.flow_memory.progress.get(partition_key(partition.partition), ())
            trend = lag_trend(points, [partition], every) if partition.lag_records else None
            forecasts.append(overtaken_in(points, trend, None, None))
        return min((forecast.seconds for forecast in forecasts if forecast), default=None)


# --- the register -----------------------------------------------------------------------------------------------------

ConnectorRule = Callable[[ConnectorCase], Iterator[LiveProblem]]
FlowRule = Callable[[FlowCase], Iterator[LiveProblem]]
_Kind = TypeVar("_Kind", bound=ProblemEvidence)


@dataclass
class KindModule:
    """What one module registered, in the order of its lines."""

    kinds: list[type[ProblemEvidence]] = field(default_factory=list)
    connector_rules: list[ConnectorRule] = field(default_factory=list)
    flow_rules: list[FlowRule] = field(default_factory=list)
    companion_rules: list[ConnectorRule] = field(default_factory=list)


REGISTERED: dict[str, KindModule] = {}
"""By the name of the module."""


def _module(registered: Callable[..., object]) -> KindModule:
    return REGISTERED.setdefault(registered.__module__, KindModule())


@dataclass_transform(frozen_default=True)
def kind(name: str, severity: AlertSeverity = "warning", minutes: int = 5) -> Callable[[type[_Kind]], type[_Kind]]:
    """Register the decorated class as a kind of problem, and make it a frozen dataclass.

    Its docstring is the page of the kind, a text below each field or property the page's line for that. `severity` and
    `minutes`: its alert, and how long a problem must last before that fires. Records do not arrive, or are lost:
    critical. What an apply causes for a while waits for 15 minutes; a task without a worker waits longer than
    scheduled.rebalance.max.delay.ms (5 minutes).
    """

    def register(evidence: type[_Kind]) -> type[_Kind]:
        evidence.kind, evidence.severity, evidence.minutes = name, severity, minutes
        _module(evidence).kinds.append(evidence)
        return dataclass(frozen=True)(evidence)

    return register


def connector_rule(rule: ConnectorRule) -> ConnectorRule:
    """Register a rule that looks at connectors of every type."""
    _module(rule).connector_rules.append(rule)
    return rule


def flow_rule(rule: FlowRule) -> FlowRule:
    """Register a rule that looks at a flow: at its source connector, and at what arrives."""
    _module(rule).flow_rules.append(rule)
    return rule


def companion_rule(rule: ConnectorRule) -> ConnectorRule:
    """Register a rule that looks at checkpoint and heartbeat connectors."""
    _module(rule).companion_rules.append(rule)
    return rule
