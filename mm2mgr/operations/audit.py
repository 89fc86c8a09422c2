"""`audit`: whether every record of a flow's source topics is in its mirrored topics, once, unaltered and in order.

The bounds are read in an order that cannot lie: the flow's stored offsets, then the target's ends, then the source's.
So each record before a stored offset had arrived when the target's end was read, and each record of the target is in
the source's log, or was before its start.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from mm2mgr import timing
from mm2mgr.audit.bounds import cut_by_time, judged_until
from mm2mgr.audit.expected import NotJudgeable, TopicFacts, expectation, promises
from mm2mgr.audit.verdicts import LaterLook, add_comparison, checked_again, judge_counts, same_windows
from mm2mgr.audit.windows import (
    CONTEXT,
    AuditOrder,
    Expectation,
    FlowOrder,
    LogAccess,
    LogWindow,
    Matching,
    PartitionOrder,
)
from mm2mgr.connect.types import parse_stored
from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.kafka.access import librdkafka_config
from mm2mgr.kafka.acls import TopicSettings
from mm2mgr.lint.subject import Spot, Subject
from mm2mgr.lint.target_names import filters_of, naming_of
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.live.kafka_state import KafkaState, RunningKafka, WantedLogs
from mm2mgr.live.questions import (
    OffsetsAtTimes,
    OffsetsSince,
    PartitionCounts,
    PartitionEnds,
    RecordlessEnds,
    RecordTimes,
    StoredOffsets,
)
from mm2mgr.live.reach import Limits
from mm2mgr.live.snapshot import Question, ask
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.text import one_line
from mm2mgr.truth.reach import text_of

if TYPE_CHECKING:
    from mm2mgr.audit.report import AuditReport
    from mm2mgr.audit.run import AuditProgress
    from mm2mgr.connectors import Connector
    from mm2mgr.topology import Flow

_LIMITS = Limits(kafka_seconds=10.0, measuring_seconds=20.0, kafka_at_once=32)
_WINDOW_PROMISE = (
    "of windows: the target is read around each; a record that came twice far behind is told by an audit of all"
)
_SAMPLE_WINDOW, _FAN_IN_WINDOW = 20_000, 250_000


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


def audit(
    workspace: Workspace,
    names: tuple[str, ...] = (),
    options: AuditOptions = AuditOptions(),
    progress: Callable[[AuditProgress], None] | None = None,
) -> AuditReport:
    """Compare the records of flows, or of topics, with their mirrors; all flows for no names.

    A name is a flow (id, pair or declared name) or a topic on a source. Only records before the flow's stored offset
    are compared: what is on its way is no fault. What cannot be read is not judged, with the reason, and no failed
    cluster raises; Mm2mgrError for a name that the tree does not have.
    """
    workspace.refuse_snapshot()
    _refuse_wrong(options)
    chosen = _choose(workspace, names, options)
    began, started = time.time(), timing.now()
    order = _narrow_windows(workspace, _order(workspace, chosen, _read_bounds(workspace, chosen), options), options)
    if options.counts:
        return judge_counts(order, began, timing.now() - started)
    return _check_again(workspace, order, _run(workspace, order, options, progress))


def audit_compare(
    workspace: Workspace,
    first: str,
    second: str,
    options: AuditOptions = AuditOptions(),
    progress: Callable[[AuditProgress], None] | None = None,
) -> AuditReport:
    """Compare the mirrors of two flows over the same windows of one source: three flows in the report, each against
    the source, then `FIRST beside SECOND` with the differences that only one of them has.

    Only topics that both mirror, and of these what both have stored. Mm2mgrError where the flows have not the same
    source.
    """
    workspace.refuse_snapshot()
    _refuse_wrong(options)
    chosen = _choose(workspace, (first, second), options)
    if len(chosen) != 2:
        raise InvalidArgument("second", "`compare` needs two different flows")
    if chosen[0].flow.source.alias != chosen[1].flow.source.alias:
        sources = " and ".join(entry.flow.source.alias for entry in chosen)
        raise InvalidArgument("second", f"{first} and {second} have different sources, {sources}: nothing to compare")
    whole = same_windows(_order(workspace, chosen, _read_bounds(workspace, chosen), options))
    order = _narrow_windows(workspace, whole, options)
    return add_comparison(_check_again(workspace, order, _run(workspace, order, options, progress)))


def _refuse_wrong(options: AuditOptions) -> None:
    if options.sample is not None and not 0 < options.sample <= 1:
        raise InvalidArgument("sample", f"sample is a share above 0 and up to 1, not {options.sample:g}")
    if options.since_ms is not None and options.until_ms is not None and options.since_ms >= options.until_ms:
        raise InvalidArgument("since", "since is not before until")


def _run(
    workspace: Workspace,
    order: AuditOrder,
    options: AuditOptions,
    progress: Callable[[AuditProgress], None] | None,
) -> AuditReport:
    from mm2mgr.audit.run import run_audit

    engine = workspace.engine(options.spark)
    if not engine.on_spark:
        report = run_audit(order, progress=progress)
        return replace(report, engine=f"{report.engine} ({engine.reason})" if engine.reason else report.engine)
    from mm2mgr.files import cache_file
    from mm2mgr.throughput.spark_session import SPARK_ERRORS, end, failure, session

    spark = session(engine.java_home, cache_file("spark-audit", suffix=".log"))
    try:
        return run_audit(order, spark, progress)
    except SPARK_ERRORS as error:
        raise failure("the audit failed on Spark", error, "run it again, or with --no-spark") from error
    finally:
        end(spark)


def _check_again(workspace: Workspace, order: AuditOrder, report: AuditReport) -> AuditReport:
    """Return the report without a verdict on what retention, or a topic created again, took while it was read."""
    topics: dict[str, set[str]] = {}
    for flow in order.flows:
        for part in flow.partitions:
            topics.setdefault(flow.source.alias, set()).add(part.source.partition.topic)
            topics.setdefault(flow.target.alias, set()).add(part.target.partition.topic)

    def look(state: RunningKafka | Mm2mgrError) -> LaterLook:
        if isinstance(state, Mm2mgrError):
            return LaterLook(failure=one_line(state.message))
        starts = {partition: log.start for partition, log in state.offsets.items()}
        return LaterLook(state.topic_ids, frozenset(state.topics), starts)

    later = {alias: look(state) for alias, state in _read_clusters(workspace, topics).items()}
    return checked_again(order, report, later)


# --- what is asked of the clusters ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chosen:
    """A flow with its source connector, and the topics that are to be compared (None: all that it mirrors)."""

    flow: Flow
    connector: Connector
    topics: frozenset[str] | None

    def takes(self, topic: str) -> bool:
        if self.topics is not None:
            return topic in self.topics and self.flow.assigns(topic)
        return self.flow.carries(topic) and not self.flow.selection.is_heartbeats(topic)


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

    def transactions(self, entry: _Chosen) -> tuple[Mapping[TopicPartition, int | None], ...]:
        """Return where open transactions begin on a flow's target and source, where its records are read committed."""
        flow = entry.flow
        readable = self.readable.get(flow.source.alias, {}) if _reads_committed(entry) else {}
        return self.committed.get(flow.target.alias, {}) if _writes_transactions(flow) else {}, readable


def _choose(workspace: Workspace, names: Iterable[str], options: AuditOptions) -> list[_Chosen]:
    flows = workspace.topology.flows
    picked: dict[str, set[str] | None] = {}
    for name in names:
        try:
            for flow in workspace.topology.select(name):
                picked[flow.id] = None
        except Mm2mgrError:
            carriers = [flow for flow in flows if flow.assigns(name)]
            if not carriers:
                raise
            for flow in carriers:
                topics = picked.setdefault(flow.id, set())
                if topics is not None:
                    topics.add(name)
    if not picked:
        picked = {flow.id: None for flow in flows}
    by_id = {flow.id: flow for flow in flows}
    chosen = []
    for flow_id, topics in picked.items():
        named = frozenset(topics) if topics is not None else frozenset(options.topics) or None
        (connector,) = (entry for entry in workspace.connectors_of([by_id[flow_id]]) if entry.type == "source")
        chosen.append(_Chosen(by_id[flow_id], connector, named))
    return chosen


def _read_bounds(workspace: Workspace, chosen: list[_Chosen]) -> _Bounds:
    offsets = {entry.flow.id: StoredOffsets(entry.connector.connect, entry.connector.name) for entry in chosen}
    targets_chosen = {entry.flow.target.alias for entry in chosen}
    source_aliases = {flow.source.alias for flow in workspace.topology.flows if flow.target.alias in targets_chosen}
    counts = {alias: PartitionCounts(alias) for alias in source_aliases}
    first = workspace.ask(ask([*offsets.values(), *counts.values()]), _LIMITS)
    counted = {alias: first.get(question) for alias, question in counts.items()}
    stored: dict[str, Mapping[TopicPartition, int] | Mm2mgrError] = {}
    topics: dict[str, tuple[str, ...]] = {}
    for entry in chosen:
        answer = first.get(offsets[entry.flow.id])
        alias = entry.connector.config["source.cluster.alias"]
        stored[entry.flow.id] = answer if isinstance(answer, Mm2mgrError) else parse_stored(answer, alias)
        there, stored_offsets = counted[entry.flow.source.alias], stored[entry.flow.id]
        names = set() if isinstance(there, Mm2mgrError) else set(there)
        names |= set() if isinstance(stored_offsets, Mm2mgrError) else {partition.topic for partition in stored_offsets}
        names |= entry.topics or set()
        topics[entry.flow.id] = tuple(sorted(filter(entry.takes, names)))
    here: dict[str, set[str]] = {}
    away: dict[str, set[str]] = {}
    for entry in chosen:
        away.setdefault(entry.flow.source.alias, set()).update(topics[entry.flow.id])
        here.setdefault(entry.flow.target.alias, set()).update(
            name for topic in topics[entry.flow.id] if (name := _target_topic(entry, topic))
        )
    targets = _read_clusters(workspace, here)
    written = {entry.flow.target.alias for entry in chosen if _writes_transactions(entry.flow)}
    committed = _read_committed(workspace, written, targets)
    sources = _read_clusters(workspace, away)
    read = {entry.flow.source.alias for entry in chosen if _reads_committed(entry)}
    readable = _read_committed(workspace, read, sources)
    every_name = {
        alias: frozenset[str]() if isinstance(answer, Mm2mgrError) else frozenset(answer)
        for alias, answer in counted.items()
    }
    return _Bounds(stored, targets, sources, committed, readable, topics, every_name)


def _read_clusters(workspace: Workspace, topics: Mapping[str, set[str]]) -> dict[str, RunningKafka | Mm2mgrError]:
    wanted_places = {alias: WantedLogs(names.__contains__, configs=frozenset(names)) for alias, names in topics.items()}
    questions = {alias: KafkaState(alias, logs) for alias, logs in wanted_places.items()}
    snapshot = workspace.ask(ask(questions.values()), _LIMITS)
    return {alias: snapshot.get(question) for alias, question in questions.items()}


def _read_committed(
    workspace: Workspace, aliases: set[str], states: Mapping[str, RunningKafka | Mm2mgrError]
) -> dict[str, Mapping[TopicPartition, int | None]]:
    """Read where the first open transaction begins on clusters that are written, or read, with transactions."""
    questions = {
        alias: PartitionEnds(alias, frozenset(state.offsets), committed=True)
        for alias in aliases
        if not isinstance(state := states[alias], Mm2mgrError)
    }
    snapshot = workspace.ask(ask(questions.values()), _LIMITS)
    answers = {alias: snapshot.get(question) for alias, question in questions.items()}
    return {alias: {} if isinstance(answer, Mm2mgrError) else answer for alias, answer in answers.items()}


def _writes_transactions(flow: Flow) -> bool:
    return flow.exactly_once or flow.connect.exactly_once


def _reads_committed(entry: _Chosen) -> bool:
    level = text_of("source", entry.connector.config, "source consumer", "isolation.level")
    return level.lower() == "read_committed"


def _target_topic(entry: _Chosen, topic: str) -> str:
    """Return a topic's name behind the replication policy and all transformations, "" where nobody can know it."""
    if not entry.connector.config.get("transforms"):
        return entry.flow.remote_topic(topic)
    named = naming_of(Subject(entry.connector, Spot()))(topic)
    return "" if named.unknown else named.text


# --- the order --------------------------------------------------------------------------------------------------------


def _order(workspace: Workspace, chosen: list[_Chosen], bounds: _Bounds, options: AuditOptions) -> AuditOrder:
    writers = writers_of(workspace, bounds.names)
    flows = [_flow_order(workspace, entry, bounds, writers, options) for entry in chosen]
    return AuditOrder(tuple(flows), options.show_values, options.most_differences)


def writers_of(workspace: Workspace, topics_by_cluster: Mapping[str, Iterable[str]]) -> Callable[[str, str], list[str]]:
    """Return a function that names the flows that write to a topic of a target, by what their config makes of the
    names on their sources; names that an include list spells out count also where nothing could be asked."""
    flows = [
        (flow, _Chosen(flow, connector, None))
        for connector in workspace.connectors
        if connector.type == "source"
        for flow in workspace.topology.flows_of(connector.flows)
    ]

    def writes(entry: _Chosen, topic: str) -> bool:
        if not entry.connector.config.get("transforms"):
            name = entry.flow.selection.upstream(topic)
            return bool(name and entry.flow.carries(name))
        there = topics_by_cluster.get(entry.flow.source.alias, ())
        names = filter(entry.flow.carries, {*entry.flow.settings.topics.include, *there})
        return any(_target_topic(entry, name) == topic for name in names)

    return lambda alias, topic: [
        flow.id for flow, entry in flows if flow.target.alias == alias and writes(entry, topic)
    ]


def _flow_order(
    workspace: Workspace,
    entry: _Chosen,
    bounds: _Bounds,
    writers: Callable[[str, str], list[str]],
    options: AuditOptions,
) -> FlowOrder:
    flow = entry.flow
    config = entry.connector.config
    reads_committed = _reads_committed(entry)
    try:
        source = LogAccess(flow.source.alias, librdkafka_config(kafka_access(flow.source)), reads_committed)
        target = LogAccess(flow.target.alias, librdkafka_config(kafka_access(flow.target)), _writes_transactions(flow))
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
        not_judged.append(f"{flow.source.alias} has none of its topics, or this login may see none")
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

    chosen: _Chosen
    topic: str
    there: RunningKafka
    here: RunningKafka
    stored: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int | None]
    readable: Mapping[TopicPartition, int | None]

    @property
    def remote(self) -> str:
        name = _target_topic(self.chosen, self.topic)
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
            raise NotJudgeable(f"{source} has no such topic (deleted?), or this login may not see it")
        if remote not in self.here.topics:
            raise NotJudgeable(f"{target} has no topic {remote}, or this login may not see it")
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
        )

    def _read_failure(self, source: TopicPartition, target: TopicPartition) -> str:
        flow, count = self.chosen.flow, self.here.topics[target.topic]
        if source not in self.there.offsets:
            return f"{source} on {flow.source.alias} cannot be read: {self.there.unread.get(source, 'no answer')}"
        if target.partition >= count:
            return f"{target.topic} on {flow.target.alias} has only {count} partitions"
        if target not in self.here.offsets:
            return f"{target} on {flow.target.alias} cannot be read: {self.here.unread.get(target, 'no answer')}"
        return ""


def _settings(answers_by_place: TopicSettings | None, alias: str, topic: str) -> Mapping[str, str]:
    if answers_by_place is None:
        raise NotJudgeable(f"{alias}: this login may not read the settings of {topic}, such as cleanup.policy")
    return answers_by_place.values


# --- windows that are parts of the logs -------------------------------------------------------------------------------


def _narrow_windows(workspace: Workspace, order: AuditOrder, options: AuditOptions) -> AuditOrder:
    """Return the order with the windows that are asked for: those between two times, and of these the sampled."""
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)  # noqa: S311  nothing is secret
    warnings = list(order.warnings)
    flows = _cut_by_time(workspace, order.flows, options)
    if options.sample is not None:
        share = options.sample
        flows = [
            replace(
                flow,
                partitions=tuple(
                    part for entry in flow.partitions for part in _sample_windows(entry, share, f"{seed}")
                ),
            )
            for flow in flows
        ]
        warnings.append(f"a sample of {100 * share:g} % in windows chosen by seed {seed}: only these are judged")
    else:
        flows = [replace(flow, partitions=tuple(_cut(flow.partitions))) for flow in flows]
    narrow = any(entry is not None for entry in (options.sample, options.since_ms, options.until_ms))
    if narrow:
        flows = [replace(flow, promises=(*flow.promises, _WINDOW_PROMISE)) for flow in flows]
    if narrow or options.counts or any(map(_is_cut, flows)):
        flows = _with_targets(workspace, flows, counts=options.counts)
    return replace(order, flows=tuple(flows), warnings=tuple(warnings))


def _cut_by_time(workspace: Workspace, flows: Iterable[FlowOrder], options: AuditOptions) -> list[FlowOrder]:
    flows = list(flows)
    first, end = (
        _offsets_since(workspace, flows, time_ms) if time_ms is not None else None
        for time_ms in (options.since_ms, options.until_ms)
    )

    def places(flow: FlowOrder, part: PartitionOrder) -> Iterator[int | str | None]:
        """Yield the offsets of both times, None where no such time is asked for, or why they are not known."""
        partition = part.source.partition
        for offsets in (first, end):
            answer = None if offsets is None else offsets.get(flow.source.alias)
            if offsets is None:
                yield None
            elif isinstance(answer, Mm2mgrError) or answer is None or partition not in answer:
                reason = one_line(answer.message) if isinstance(answer, Mm2mgrError) else "no answer"
                yield f"offsets of {partition} by time cannot be read: {reason}"
            else:
                yield answer[partition]

    def cut(flow: FlowOrder, part: PartitionOrder, level: _Level = frozenset()) -> PartitionOrder:
        bounds = list(places(flow, part))
        if reasons := tuple(bound for bound in bounds if isinstance(bound, str)):
            return part if part.not_judged else replace(part, not_judged=reasons)
        since, until = (bound if isinstance(bound, int) else None for bound in bounds)
        is_level = part.source.end >= part.source_log.end or (flow.source.alias, part.source.partition) in level
        return cut_by_time(part, since, until, is_level=is_level)

    doubtful = [
        (flow.source.alias, part.source.partition, part.source.end)
        for flow in flows
        for part in flow.partitions
        if not part.not_judged and cut(flow, part).not_judged and part.source.end < part.source_log.end
    ]
    level = _without_records(workspace, doubtful)
    return [replace(flow, partitions=tuple(cut(flow, part, level) for part in flow.partitions)) for flow in flows]


_Level = frozenset[tuple[str, TopicPartition]]


def _without_records(workspace: Workspace, places: Iterable[tuple[str, TopicPartition, int]]) -> _Level:
    """Return the partitions that were read to their end from these offsets on, and have no record there."""
    positions: dict[str, dict[TopicPartition, int]] = {}
    for alias, partition, offset in places:  # of two flows, the one that is further behind
        own = positions.setdefault(alias, {})
        own[partition] = min(offset, own.get(partition, offset))
    questions = {alias: RecordlessEnds(alias, tuple(sorted(own.items()))) for alias, own in positions.items()}
    snapshot = workspace.ask(ask(questions.values()), _LIMITS)
    answers = {alias: snapshot.get(question) for alias, question in questions.items()}
    return frozenset(
        (alias, partition)
        for alias, answer in answers.items()
        if not isinstance(answer, Mm2mgrError)
        for partition in answer
    )


def _offsets_since(
    workspace: Workspace, flows: list[FlowOrder], since_ms: int
) -> dict[str, Mapping[TopicPartition, int] | Mm2mgrError]:
    partitions: dict[str, set[TopicPartition]] = {}
    for flow in flows:
        partitions.setdefault(flow.source.alias, set()).update(part.source.partition for part in flow.partitions)
    questions = {alias: OffsetsSince(alias, frozenset(names), since_ms) for alias, names in partitions.items()}
    snapshot = workspace.ask(ask(questions.values()), _LIMITS)
    return {alias: snapshot.get(question) for alias, question in questions.items()}


def _sample_windows(part: PartitionOrder, share: float, seed: str) -> Iterator[PartitionOrder]:
    """Yield whole windows of so many of its offsets, each judged as itself; what is not judged stays as it is.

    Which ones depends on the seed, the partition and its window alone. Of a compacted topic a window says nothing:
    it is judged as a whole.
    """
    chance = random.Random(f"{seed} {part.source.partition}")  # noqa: S311  nothing is secret
    first, end = part.source.first, part.source.end
    if part.not_judged or first >= end or part.expectation.matching is Matching.LATEST:
        yield part
        return
    wanted_places = max(1, round((end - first) * share))
    size = min(_SAMPLE_WINDOW, wanted_places)
    places = range(first, end, size)
    for start in sorted(chance.sample(places, min(len(places), max(1, round(wanted_places / size))))):
        yield replace(part, source=LogWindow(part.source.partition, start, min(end, start + size)))


def _cut(partitions: Iterable[PartitionOrder]) -> Iterator[PartitionOrder]:
    """Cut windows of topics with several writers, whose records are all compared one by one."""
    for part in partitions:
        window = part.source
        if part.expectation.matching is not Matching.FAN_IN or window.end - window.first <= _FAN_IN_WINDOW:
            yield part
            continue
        for first in range(window.first, window.end, _FAN_IN_WINDOW):
            yield replace(part, source=replace(window, first=first, end=min(window.end, first + _FAN_IN_WINDOW)))


def _is_cut(flow: FlowOrder) -> bool:
    return len({part.source.partition for part in flow.partitions}) < len(flow.partitions)


def _with_targets(workspace: Workspace, flows: list[FlowOrder], *, counts: bool) -> list[FlowOrder]:
    """Return windows of the target's logs that should hold the records: found by the times of records around them.

    A first record of that time is never behind the mirrored one, whatever the order of times. Where the window turns
    out to be too small, `run_audit` makes it larger.
    """
    parts = [(flow, part) for flow in flows for part in flow.partitions if part.source.first < part.source.end]
    around = {  # offsets are counted from the first one on
        id(part): (part.source.first, part.source_log.end) if counts else _surroundings(part) for _, part in parts
    }
    asked: dict[str, set[tuple[TopicPartition, int]]] = {}
    for flow, part in parts:
        low, high = around[id(part)]
        least = 0 if counts else part.source_log.start
        places = [offset for offset in (low, high) if least < offset < part.source_log.end]
        asked.setdefault(flow.source.alias, set()).update((part.source.partition, offset) for offset in places)
    times = _times(workspace, asked)
    wanted_places: dict[str, set[tuple[TopicPartition, int]]] = {}
    for flow, part in parts:
        for offset in around[id(part)]:
            if (at := times.get((flow.source.alias, part.source.partition, offset))) is not None:
                wanted_places.setdefault(flow.target.alias, set()).add((part.target.partition, at))
    places_at = _ask_places(workspace, OffsetsAtTimes, wanted_places)  # -1 where there is none

    def place(flow: FlowOrder, part: PartitionOrder, offset: int) -> int | None:
        at = times.get((flow.source.alias, part.source.partition, offset))
        return None if at is None else places_at.get((flow.target.alias, part.target.partition, at))

    def complete(flow: FlowOrder, part: PartitionOrder) -> PartitionOrder:
        if id(part) not in around:
            return replace(part, target=replace(part.target, end=part.target.first))
        log = part.target_log
        low, high = (place(flow, part, offset) for offset in around[id(part)])
        if counts and part.source.first > 0 and low is None:
            unknown = f"where the source's offset {part.source.first} is on the target is not known"
            return replace(part, not_judged=(*part.not_judged, unknown))
        first = log.start if low is None or low < 0 else max(log.start, low)
        end = log.end if high is None or high < 0 else min(log.end, high + CONTEXT)
        return replace(part, target=LogWindow(part.target.partition, min(first, end), end))

    return [replace(flow, partitions=tuple(complete(flow, part) for part in flow.partitions)) for flow in flows]


def _surroundings(part: PartitionOrder) -> tuple[int, int]:
    log = part.source_log
    return max(log.start, part.source.first - CONTEXT), min(log.end, part.source.end + CONTEXT)


def _times(
    workspace: Workspace, offsets: Mapping[str, set[tuple[TopicPartition, int]]]
) -> dict[tuple[str, TopicPartition, int], int]:
    """Return the timestamps of records, in milliseconds."""
    seconds = _ask_places(workspace, RecordTimes, offsets)
    # A record may have no timestamp, and Kafka's -1 asks for the log's end.
    return {place: round(answer * 1000) for place, answer in seconds.items() if answer >= 0}


_Number = TypeVar("_Number", int, float)


def _ask_places(
    workspace: Workspace,
    question: Callable[[str, tuple[tuple[TopicPartition, int], ...]], Question[Mapping[TopicPartition, _Number]]],
    places_by_cluster: Mapping[str, set[tuple[TopicPartition, int]]],
) -> dict[tuple[str, TopicPartition, int], _Number]:
    """Ask about places of partitions, as many questions side by side as one partition has places; what was not answered
    is left out."""
    asked: list[tuple[str, dict[TopicPartition, int], Question[Mapping[TopicPartition, _Number]]]] = []
    for alias, places in places_by_cluster.items():
        left = sorted(places)
        while left:
            once = dict(reversed(left))
            asked.append((alias, once, question(alias, tuple(sorted(once.items())))))
            left = [place for place in left if once[place[0]] != place[1]]
    snapshot = workspace.ask(ask([entry for _, _, entry in asked]), _LIMITS)
    answers: dict[tuple[str, TopicPartition, int], _Number] = {}
    for alias, once, entry in asked:
        answer = snapshot.get(entry)
        if not isinstance(answer, Mm2mgrError):
            answers |= {(alias, partition, once[partition]): number for partition, number in answer.items()}
    return answers
