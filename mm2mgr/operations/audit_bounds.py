"""Which flows and topics an audit compares, and their logs as far as they are judged, from what clusters answer.

The bounds are read in an order that cannot lie: the flow's stored offsets, then the target's ends, then the source's.
So each record before a stored offset had arrived when the target's end was read, and each record of the target is in
the source's log, or was before its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from mm2mgr.audit.bounds import judged_until
from mm2mgr.audit.expected import NotJudgeable, TopicFacts, expectation, promises
from mm2mgr.audit.windows import (
    AuditOrder,
    Expectation,
    FlowOrder,
    LogAccess,
    LogWindow,
    Matching,
    PartitionOrder,
)
from mm2mgr.connect.types import parse_stored
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import librdkafka_config
from mm2mgr.kafka.acls import TopicSettings
from mm2mgr.lint.subject import Spot, Subject
from mm2mgr.lint.target_names import filters_of, naming_of
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.live.kafka_state import KafkaState, RunningKafka, WantedLogs
from mm2mgr.live.questions import Configs, PartitionCounts, PartitionEnds, StoredOffsets
from mm2mgr.live.reach import Limits
from mm2mgr.live.snapshot import Question, ask
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.spec.scalars import is_name
from mm2mgr.text import few, list_names, nearest, one_line
from mm2mgr.truth.reach import text_of

if TYPE_CHECKING:
    from mm2mgr.connectors import Connector, RunningConnector
    from mm2mgr.topology import Flow, Topology

_ALTERING = ("transforms", "predicates", "header.converter", "replication.policy", "source.consumer.isolation.level")
"""Settings that decide what becomes of records, by their beginnings."""
_LIMITS = Limits(kafka_seconds=10.0, measuring_seconds=20.0, kafka_at_once=32)
Key = TypeVar("Key")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class AuditOptions:
    """What of flows is compared, and how.

    `topics` are names on the source; none: all that the flow mirrors. `since_ms`, `until_ms` are timestamps of
    records, milliseconds since 1970. `sample` is a share of the records between 0 and 1, read as whole windows chosen
    at random by `seed` (None: a new one; the report says which). `spark`: None lets the choice of engine decide.
    `counts`: no record is read, only offsets and their counts are compared. `most_differences` bounds what is told one
    by one of each partition.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    sample: float | None = None
    seed: int | None = None
    show_values: bool = False
    spark: bool | None = None
    counts: bool = False
    most_differences: int = 1_000


@dataclass(frozen=True)
class AuditedFlow:
    """A flow with its source connector, and the topics that are to be compared (None: all that it mirrors)."""

    flow: Flow
    connector: Connector
    topics: frozenset[str] | None = None

    def takes(self, topic: str) -> bool:
        """Tell whether a topic of its source is compared."""
        if self.topics is not None:
            return topic in self.topics and self.flow.assigns(topic)
        return self.flow.carries(topic) and not self.flow.selection.is_heartbeats(topic)

    def target_topic(self, topic: str) -> str:
        """Return a topic's name behind the replication policy and all transformations, "" where nobody can know it."""
        if not self.connector.config.get("transforms"):
            return self.flow.remote_topic(topic)
        named = naming_of(Subject(self.connector, Spot()))(topic)
        return "" if named.unknown else named.text

    @property
    def reads_committed(self) -> bool:
        """Whether its consumer leaves out open and aborted transactions."""
        level = text_of("source", self.connector.config, "source consumer", "isolation.level")
        return level.lower() == "read_committed"

    @property
    def writes_transactions(self) -> bool:
        """Whether its workers write with transactions."""
        return self.flow.exactly_once or self.flow.connect.exactly_once


def flows_meant(topology: Topology, names: Iterable[str]) -> dict[str, frozenset[str] | None]:
    """Return by flow id, in the order of the names, what they mean: topics on its source, None for all of a flow.

    All flows for no names. Mm2mgrError for the name of no flow and no topic, with the nearest ones.
    """
    meant: dict[str, frozenset[str] | None] = {}
    for name in names:
        of_name = [flow.id for flow in topology.flows if flow.is_meant(name)]
        meant |= dict.fromkeys(of_name)
        carriers = [] if of_name else [flow for flow in topology.flows if flow.assigns(name)]
        for flow in carriers:
            topics = meant.get(flow.id, frozenset())
            meant[flow.id] = None if topics is None else topics | {name}
        if not of_name and not carriers:
            raise _unknown_name(topology, name)
    return meant or {flow.id: None for flow in topology.flows}


def _unknown_name(topology: Topology, name: str) -> Mm2mgrError:
    flows = {text for flow in topology.flows for text in (flow.id, flow.name)}
    topics = {topic for flow in topology.flows for topic in flow.settings.topics.include if is_name(topic)}
    near = nearest(name, sorted(flows | topics), 0.4, count=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"flows here: {', '.join(sorted(flows)[:10]) or 'none'}"
    return Mm2mgrError(f"'{name}' is no flow, and no flow mirrors such a topic", hint=hint)


def choose_flows(workspace: Workspace, names: Iterable[str], topics: Iterable[str]) -> list[AuditedFlow]:
    """Return what names mean with the source connectors; flows that are meant as a whole are bounded to `topics`."""
    flows = {flow.id: flow for flow in workspace.topology.flows}
    chosen = []
    for flow_id, own in flows_meant(workspace.topology, names).items():
        chosen.append(replace(_audited_flow(workspace, flows[flow_id]), topics=own or frozenset(topics) or None))
    return chosen


def choose_topic(workspace: Workspace, name: str) -> tuple[str, list[AuditedFlow]]:
    """Return the topic of the sources that a name means, and the flows that take it: a topic's own name or, where no
    source has such a topic, that of its mirror on a target.

    Mm2mgrError where no flow takes it, and where the mirrors of several topics have the name.
    """
    flows = workspace.topology.flows
    taking = [flow for flow in flows if flow.assigns(name)]
    mirrors = [(flow, topic) for flow in flows if (topic := flow.selection.upstream(name)) and flow.assigns(topic)]
    mirrors = [(flow, topic) for flow, topic in mirrors if topic != name]
    if not taking or mirrors:
        entries = [_audited_flow(workspace, flow) for flow in flows]
        renaming = [entry for entry in entries if entry.connector.config.get("transforms")]
        names = _source_topics(workspace, {flow.source.alias for flow in (*taking, *(e.flow for e in renaming))})
        renamed = {entry.flow.id for entry in renaming}
        mirrors = [(flow, topic) for flow, topic in mirrors if flow.id not in renamed]
        mirrors += [
            (entry.flow, topic)
            for entry in renaming
            for topic in sorted(names[entry.flow.source.alias] or ())
            if topic != name and entry.takes(topic) and entry.target_topic(topic) == name
        ]
        if mirrors:
            taking = [flow for flow in taking if (there := names[flow.source.alias]) is None or name in there]
    if taking:
        return name, [_audited_flow(workspace, flow, name) for flow in taking]
    if not mirrors:
        raise _no_topic(workspace.topology, name)
    if len(topics := sorted({topic for _, topic in mirrors})) > 1:
        message = f"'{name}' is the mirror of {len(topics)} topics: {few(topics)}"
        raise Mm2mgrError(message, hint=f"name one of them, such as mm2mgr records {topics[0]}")
    return topics[0], [_audited_flow(workspace, flow, topics[0]) for flow, _ in mirrors]


def _audited_flow(workspace: Workspace, flow: Flow, topic: str = "") -> AuditedFlow:
    (connector,) = (entry for entry in workspace.connectors_of([flow]) if entry.type == "source")
    return AuditedFlow(flow, connector, frozenset({topic}) if topic else None)


def _source_topics(workspace: Workspace, aliases: Iterable[str]) -> dict[str, frozenset[str] | None]:
    """Return by cluster the names of its topics, None where it cannot be read."""
    questions = {alias: PartitionCounts(alias) for alias in aliases}
    snapshot = workspace.ask(ask(questions.values()), _LIMITS)
    answers = {alias: snapshot.get(question) for alias, question in questions.items()}
    return {alias: None if isinstance(answer, Mm2mgrError) else frozenset(answer) for alias, answer in answers.items()}


def _no_topic(topology: Topology, name: str) -> Mm2mgrError:
    if any(flow.is_meant(name) for flow in topology.flows):
        return Mm2mgrError(f"'{name}' is a flow, and no flow takes such a topic", hint=f"mm2mgr topics {name}")
    return _unknown_name(topology, name)


# --- what is asked of the clusters ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bounds:
    """What was read of all clusters: stored offsets by flow, then targets, then sources, by alias."""

    stored: Mapping[str, Mapping[TopicPartition, int] | Mm2mgrError]
    targets: Mapping[str, RunningKafka | Mm2mgrError]
    sources: Mapping[str, RunningKafka | Mm2mgrError]
    committed: Mapping[str, Mapping[TopicPartition, int | None]]
    readable: Mapping[str, Mapping[TopicPartition, int | None]]
    topics: Mapping[str, tuple[str, ...]]
    """By flow, those that were found on its source or in its stored offsets."""
    names: Mapping[str, frozenset[str]]
    """By cluster, all topics of the sources that flows to the same targets have."""
    warnings: tuple[str, ...]

    def transactions(self, entry: AuditedFlow) -> tuple[Mapping[TopicPartition, int | None], ...]:
        """Return where open transactions begin on a flow's target and source, where its records are read committed."""
        flow = entry.flow
        readable = self.readable.get(flow.source.alias, {}) if entry.reads_committed else {}
        return self.committed.get(flow.target.alias, {}) if entry.writes_transactions else {}, readable


def _read_bounds(workspace: Workspace, chosen: list[AuditedFlow]) -> _Bounds:
    offsets = {entry.flow.id: StoredOffsets(entry.connector.connect, entry.connector.name) for entry in chosen}
    targets_chosen = {entry.flow.target.alias for entry in chosen}
    source_aliases = {flow.source.alias for flow in workspace.topology.flows if flow.target.alias in targets_chosen}
    counts = {alias: PartitionCounts(alias) for alias in source_aliases}
    connects = {entry.connector.connect: Configs(entry.connector.connect) for entry in chosen}
    first = workspace.ask(ask([*offsets.values(), *counts.values(), *connects.values()]), _LIMITS)
    running = {connect: _or_nothing(first.get(question)) for connect, question in connects.items()}
    warnings = tuple(filter(None, (_other_settings(entry, running[entry.connector.connect]) for entry in chosen)))
    every_name = {alias: frozenset(_or_nothing(first.get(question))) for alias, question in counts.items()}
    stored: dict[str, Mapping[TopicPartition, int] | Mm2mgrError] = {}
    topics: dict[str, tuple[str, ...]] = {}
    for entry in chosen:
        answer, alias = first.get(offsets[entry.flow.id]), entry.connector.config["source.cluster.alias"]
        stored[entry.flow.id] = answer if isinstance(answer, Mm2mgrError) else parse_stored(answer, alias)
        names = {partition.topic for partition in _or_nothing(stored[entry.flow.id])}
        names |= every_name[entry.flow.source.alias] | (entry.topics or set())
        topics[entry.flow.id] = tuple(sorted(filter(entry.takes, names)))
    here: dict[str, set[str]] = {}
    away: dict[str, set[str]] = {}
    for entry in chosen:
        own = topics[entry.flow.id]
        away.setdefault(entry.flow.source.alias, set()).update(own)
        here.setdefault(entry.flow.target.alias, set()).update(filter(None, map(entry.target_topic, own)))
    targets = read_clusters(workspace, here)
    written = {entry.flow.target.alias for entry in chosen if entry.writes_transactions}
    committed = _read_committed(workspace, written, targets)
    sources = read_clusters(workspace, away)
    read = {entry.flow.source.alias for entry in chosen if entry.reads_committed}
    readable = _read_committed(workspace, read, sources)
    return _Bounds(stored, targets, sources, committed, readable, topics, every_name, warnings)


def _other_settings(entry: AuditedFlow, running: Mapping[str, RunningConnector]) -> str:
    """Return a warning where the connector that runs does other things to records than that of the tree, else ""."""
    connector = running.get(entry.connector.name)
    if connector is None:
        return ""
    pairs = (
        (key, entry.connector.config.get(key), connector.config.get(key))
        for key in {*entry.connector.config, *connector.config}
    )
    keys = sorted(key for key, tree, runs in pairs if tree != runs and key.startswith(_ALTERING))
    judged = "records are judged by the tree; apply it first"
    return f"{entry.flow.id}: the connector that runs differs in {list_names(keys)}: {judged}" if keys else ""


def _or_nothing(answer: Mapping[Key, Answer] | Mm2mgrError) -> Mapping[Key, Answer]:
    return {} if isinstance(answer, Mm2mgrError) else answer


def ask_each(workspace: Workspace, questions: Mapping[Key, Question[Answer]]) -> dict[Key, Answer | Mm2mgrError]:
    """Ask all questions at once; return the answers, or why there is none, by the same keys."""
    snapshot = workspace.ask(ask(questions.values()), _LIMITS)
    return {key: snapshot.get(question) for key, question in questions.items()}


def read_clusters(workspace: Workspace, topics: Mapping[str, set[str]]) -> dict[str, RunningKafka | Mm2mgrError]:
    """Read the logs, ids and settings of these topics, by cluster."""
    logs = {alias: WantedLogs(names.__contains__, configs=frozenset(names)) for alias, names in topics.items()}
    return ask_each(workspace, {alias: KafkaState(alias, logs[alias]) for alias in topics})


def _read_committed(
    workspace: Workspace, aliases: set[str], states: Mapping[str, RunningKafka | Mm2mgrError]
) -> dict[str, Mapping[TopicPartition, int | None]]:
    """Read where the first open transaction begins on clusters that are written, or read, with transactions."""
    questions = {
        alias: PartitionEnds(alias, frozenset(state.offsets), committed=True)
        for alias in aliases
        if not isinstance(state := states[alias], Mm2mgrError)
    }
    return {alias: _or_nothing(answer) for alias, answer in ask_each(workspace, questions).items()}


# --- the order --------------------------------------------------------------------------------------------------------


def read_whole_windows(workspace: Workspace, chosen: list[AuditedFlow], options: AuditOptions) -> AuditOrder:
    """Return the order to compare all that flows have stored of their topics."""
    bounds = _read_bounds(workspace, chosen)
    writers = writers_of(workspace, bounds.names)
    flows = [_flow_order(entry, bounds, writers, options) for entry in chosen]
    return AuditOrder(tuple(flows), options.show_values, options.most_differences, bounds.warnings)


def writers_of(workspace: Workspace, topics_by_cluster: Mapping[str, Iterable[str]]) -> Callable[[str, str], list[str]]:
    """Return a function that names the flows that write to a topic of a target, by what their config makes of the
    names on their sources; names that an include list spells out count also where nothing could be asked."""
    flows = [
        AuditedFlow(flow, connector)
        for connector in workspace.connectors
        if connector.type == "source"
        for flow in workspace.topology.flows_of(connector.flows)
    ]

    def writes(entry: AuditedFlow, topic: str) -> bool:
        flow = entry.flow
        if not entry.connector.config.get("transforms"):
            name = flow.selection.upstream(topic)
            return bool(name and flow.carries(name))
        there = topics_by_cluster.get(flow.source.alias, ())
        names = filter(flow.carries, {*flow.settings.topics.include, *there})
        return any(entry.target_topic(name) == topic for name in names)

    return lambda alias, topic: [
        entry.flow.id for entry in flows if entry.flow.target.alias == alias and writes(entry, topic)
    ]


def _flow_order(
    entry: AuditedFlow, bounds: _Bounds, writers: Callable[[str, str], list[str]], options: AuditOptions
) -> FlowOrder:
    flow, config, reads_committed = entry.flow, entry.connector.config, entry.reads_committed
    try:
        source = LogAccess(flow.source.alias, librdkafka_config(kafka_access(flow.source)), reads_committed)
        target = LogAccess(flow.target.alias, librdkafka_config(kafka_access(flow.target)), entry.writes_transactions)
    except Mm2mgrError as error:
        nothing = LogAccess(flow.source.alias, {})
        return FlowOrder(flow.id, nothing, nothing, not_judged=(one_line(error.message),))
    order = FlowOrder(flow.id, source, target)
    stored = bounds.stored[flow.id]
    states = bounds.sources[flow.source.alias], bounds.targets[flow.target.alias]
    failures = [one_line(answer.message) for answer in (stored, *states) if isinstance(answer, Mm2mgrError)]
    if isinstance(stored, Mm2mgrError):
        failures[0] = f"how far the flow is cannot be read: {failures[0]}"
    if failures or isinstance(stored, Mm2mgrError):
        return replace(order, not_judged=tuple(failures))
    there, here = states
    assert isinstance(there, RunningKafka)
    assert isinstance(here, RunningKafka)
    partitions: list[PartitionOrder] = []
    not_judged: list[str] = []
    sentences: dict[str, None] = {}
    for topic in bounds.topics[flow.id]:
        try:
            view = _TopicView(entry, topic, there, here, stored, *bounds.transactions(entry))
            facts = view.facts(writers, exactly_once=target.committed, reads_committed=reads_committed)
            expected = view.expectation(facts)
            sentences.update(dict.fromkeys(promises(config, facts, expected)))
            partitions += view.partitions(expected, options)
            not_judged += view.surplus_partitions()
        except NotJudgeable as error:
            not_judged.append(f"{topic}: {error}")
    if not bounds.topics[flow.id]:
        not_judged.append(f"{flow.source.alias} has none of its topics, or this login, which needs Read, may see none")
    elif not partitions and not not_judged:
        not_judged.append("none of its topics has such a partition")
    there_are = {part.source.partition.partition for part in partitions}
    if partitions:
        absent = sorted(set(options.partitions) - there_are)
        not_judged += [f"none of its topics has partition {number}" for number in absent]
    return replace(order, partitions=tuple(partitions), promises=tuple(sentences), not_judged=tuple(not_judged))


@dataclass(frozen=True)
class _TopicView:
    """One topic of a flow on both sides."""

    chosen: AuditedFlow
    topic: str
    there: RunningKafka
    here: RunningKafka
    stored: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int | None]
    readable: Mapping[TopicPartition, int | None]

    @property
    def remote(self) -> str:
        name = self.chosen.target_topic(self.topic)
        if not name:
            unknown = naming_of(Subject(self.chosen.connector, Spot()))(self.topic)
            raise NotJudgeable(f"its name on the target cannot be known: {unknown}")
        return name

    def facts(
        self, writers: Callable[[str, str], list[str]], *, exactly_once: bool, reads_committed: bool
    ) -> TopicFacts:
        flow, remote = self.chosen.flow, self.remote
        source, target = flow.source.alias, flow.target.alias
        if self.topic not in self.there.topics:
            raise NotJudgeable(_unseen_text(source, self.topic))
        if remote not in self.here.topics:
            raise NotJudgeable(_unseen_text(target, remote))
        return TopicFacts(
            _settings(self.there.configs.get(self.topic), source, self.topic),
            _settings(self.here.configs.get(remote), target, remote),
            tuple(name for name in writers(target, remote) if name != flow.id),
            exactly_once,
            reads_committed,
            text_of("source", self.chosen.connector.config, "source consumer", "auto.offset.reset"),
        )

    def expectation(self, facts: TopicFacts) -> Expectation:
        """Return what becomes of its records; NotJudgeable where nobody can know."""
        subject = Subject(self.chosen.connector, Spot())
        dropped = "a Filter by the topic's name, or without a predicate"
        is_dropped = filters_of(subject, self.topic) is None
        return expectation(self.chosen.connector.config, facts, dropped if is_dropped else None)

    def partitions(self, expected: Expectation, options: AuditOptions) -> Iterator[PartitionOrder]:
        for number in range(self.there.topics[self.topic]):
            if not options.partitions or number in options.partitions:
                yield self._partition(number, expected)

    def surplus_partitions(self) -> Iterator[str]:
        """Yield what the target has in partitions that the source does not have: MirrorMaker keeps their numbers."""
        remote, count = self.remote, self.there.topics[self.topic]
        for number in range(count, self.here.topics[remote]):
            log = self.here.offsets.get(TopicPartition(remote, number))
            if log is None or log.end > log.start:
                records = "cannot be read" if log is None else f"has {log.end - log.start} offsets"
                yield f"{remote}-{number} {records}, and {self.topic} has only {count} partitions"

    def _partition(self, number: int, expected: Expectation) -> PartitionOrder:
        remote = self.remote
        source, target = TopicPartition(self.topic, number), TopicPartition(remote, number)
        log, remote_log = self.there.offsets.get(source), self.here.offsets.get(target)
        last, reason = self.stored.get(source), self._read_failure(source, target)
        if remote_log is not None and (end := self.committed.get(target)) is not None:
            remote_log = Offsets(min(remote_log.start, end), end)
        log, remote_log = log or Offsets(0, 0), remote_log or Offsets(0, 0)
        readable_end = log.end if (open_from := self.readable.get(source)) is None else min(log.end, open_from)
        judged = Offsets(log.start, log.start)
        if not reason:
            alone = expected.matching is not Matching.FAN_IN
            answer = judged_until(log, remote_log, last, readable_end, alone=alone)
            judged, reason = (judged, answer) if isinstance(answer, str) else (answer, "")
        return PartitionOrder(
            LogWindow(source, *judged),
            LogWindow(target, *remote_log),
            Offsets(min(log.start, readable_end), readable_end),
            remote_log,
            expected,
            self.there.topic_ids.get(self.topic, ""),
            self.here.topic_ids.get(remote, ""),
            (reason,) if reason else (),
            judged.end,
        )

    def _read_failure(self, source: TopicPartition, target: TopicPartition) -> str:
        flow, count = self.chosen.flow, self.here.topics[target.topic]
        for alias, kafka in ((flow.source.alias, self.there), (flow.target.alias, self.here)):
            if kafka.ids_unread:
                return f"{alias} gave no topic ids in time, so a topic created again meanwhile would not be seen"
        if source not in self.there.offsets:
            return f"{source} on {flow.source.alias} cannot be read: {self.there.unread.get(source, 'no answer')}"
        if target.partition >= count:
            return f"{target.topic} on {flow.target.alias} has only {count} partitions"
        if target not in self.here.offsets:
            return f"{target} on {flow.target.alias} cannot be read: {self.here.unread.get(target, 'no answer')}"
        return ""


def _unseen_text(alias: str, topic: str) -> str:
    return f"{alias} has no topic {topic} (deleted?), or this login may not see it: it needs Read on topic {topic}"


def _settings(settings: TopicSettings | None, alias: str, topic: str) -> Mapping[str, str]:
    if settings is None:
        needs = f"such as cleanup.policy: it needs DescribeConfigs on topic {topic}"
        raise NotJudgeable(f"{alias}: this login may not read the settings of {topic}, {needs}")
    return settings.values
