"""`audit`: whether every record of a flow's source topics is in its mirrored topics, once, unaltered and in order.

`audit` and `audit_compare` compare, `record_audit` writes what came of it into the table of audits and the ledger,
`audit_history` reads that, `follow_audits` samples windows again and again, and `repair_plan` says what would replay
what is missing.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mm2mgr import timing
from mm2mgr.apply.history import author
from mm2mgr.apply.leases import Leases, holder_note
from mm2mgr.apply.rounds import run_in_thread
from mm2mgr.audit.report import AuditReport, DifferenceKind, FlowAudit, PartitionAudit, Verdict
from mm2mgr.audit.verdicts import LaterLook, add_comparison, checked_again, judge_counts, same_windows
from mm2mgr.audit.windows import AuditOrder
from mm2mgr.errors import InvalidArgument, Mm2mgrError, cause
from mm2mgr.files import cache_file
from mm2mgr.garbage import collect_garbage
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.operations.audit_bounds import AuditOptions, choose_flows, flows_meant, read_clusters, read_whole_windows
from mm2mgr.operations.audit_windows import narrow_windows
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace, pause
from mm2mgr.problems.status import read_audit_history, record
from mm2mgr.text import few, one_line
from mm2mgr.throughput.warm_session import WarmSpark
from mm2mgr.topology import Flow, Topology, audit_group

if TYPE_CHECKING:
    from mm2mgr.audit.run import AuditProgress
    from mm2mgr.samples.schema import AuditRow, Store

_CLOSE_SECONDS = 1.0
RunAudit = Callable[[Workspace, tuple[str, ...], AuditOptions], AuditReport]


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
    chosen = choose_flows(workspace, names, options.topics)
    began, started = time.time(), timing.now()
    order = narrow_windows(workspace, read_whole_windows(workspace, chosen, options), options)
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
    chosen = choose_flows(workspace, (first, second), options.topics)
    for argument, name in (("first", first), ("second", second)):
        if len(ids := [*flows_meant(workspace.topology, (name,))]) > 1:
            message = f"'{name}' means {len(ids)} flows, and one is compared with one"
            raise InvalidArgument(argument, f"{message}: name one of {few(ids)}")
    if len(chosen) != 2:
        raise InvalidArgument("second", "`compare` needs two different flows")
    if chosen[0].flow.source.alias != chosen[1].flow.source.alias:
        sources = " and ".join(entry.flow.source.alias for entry in chosen)
        raise InvalidArgument("second", f"{first} and {second} have different sources, {sources}: nothing to compare")
    order = narrow_windows(workspace, same_windows(read_whole_windows(workspace, chosen, options)), options)
    return add_comparison(_check_again(workspace, order, _run(workspace, order, options, progress)))


def _refuse_wrong(options: AuditOptions) -> None:
    if options.sample is not None and not 0 < options.sample <= 1:
        raise InvalidArgument("sample", f"sample is a share above 0 and up to 1, not {options.sample:g}")
    for argument, time_ms in (("since", options.since_ms), ("until", options.until_ms)):
        if time_ms is not None and time_ms < 0:
            raise InvalidArgument(argument, f"{argument} is before 1970: no record has such a timestamp")
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
        return replace(run_audit(order, progress=progress), engine=str(engine))
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
        if state.ids_unread:
            return LaterLook(failure="no broker gave topic ids in time")
        starts = {partition: log.start for partition, log in state.offsets.items()}
        return LaterLook(state.topic_ids, frozenset(state.topics), starts)

    later = {alias: look(state) for alias, state in read_clusters(workspace, topics).items()}
    return checked_again(order, report, later)


# --- what is kept of audits -------------------------------------------------------------------------------------------


def record_audit(
    workspace: Workspace, report: AuditReport, started_by: str = "command", *, store: Store = DEFAULT_STORE
) -> list[str]:
    """Write an audit of flows of the tree into the table of audits, and what differs into the ledger of losses; return
    what could not be written, as sentences. What the ledger has already is not written again."""
    return record(workspace.topology, report, started_by, ObserveOptions(store=store))


@dataclass(frozen=True)
class AuditHistory:
    """Rows of the table of audits, a row per partition and audit, oldest first; `warnings` say what of it could not be
    read."""

    rows: tuple[AuditRow, ...]
    warnings: tuple[str, ...] = ()


def audit_history(
    workspace: Workspace, flows: Sequence[str] = (), *, days: float = 30.0, store: Store = DEFAULT_STORE
) -> AuditHistory:
    """Return what was audited of these flows (none named: of all) in the last days. No cluster is asked."""
    ids = workspace.only(flows)
    since = time.time() - days * 86_400
    rows, warnings = read_audit_history(workspace.topology, since, ObserveOptions(store=store))
    return AuditHistory(tuple(row for row in rows if ids is None or row.flow in ids), tuple(warnings))


# --- again and again --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AuditRound:
    """One round of `follow_audits`. `report`: None where nothing was compared; `error` says why a round failed.

    `standby`: flows that another process of the owner audits. `without_lease`: Connect clusters whose lease could not
    be had, with the reason: their flows are audited, perhaps by another process too.
    """

    number: int
    taken_at: float
    report: AuditReport | None = None
    standby: tuple[str, ...] = ()
    without_lease: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    error: str | None = None

    @property
    def verdict(self) -> Verdict:
        """That of the report; not judged where there is none."""
        return self.report.verdict if self.report else Verdict.NOT_JUDGED


@dataclass(frozen=True)
class FollowOrder:
    """What is audited again and again: the named flows or topics with the share of `options`, or, where none is named,
    every flow that declares `audit`, with its own share."""

    names: tuple[str, ...] = ()
    options: AuditOptions = field(default_factory=AuditOptions)
    every_seconds: float = 3_600.0
    store: Store = DEFAULT_STORE
    started_by: str = "follow"


def follow_audits(
    workspace: Workspace,
    order: FollowOrder | None = None,
    *,
    progress: Callable[[AuditProgress], None] | None = None,
    run: RunAudit | None = None,
    wait: Callable[[float], object] = pause,
) -> Generator[AuditRound]:
    """Yield audit after audit until the caller stops, each recorded. Between two of them it calls `wait` with seconds;
    what is true ends it.

    A round draws from the records of the last two intervals, so that a record that is still on its way in one round has
    another chance. The tree is read anew each time. Of several processes with the same owner one audits, by a lease
    per Kafka cluster that Connect clusters run on. Mm2mgrError where no flow declares audits and none is named.
    """
    workspace.refuse_snapshot()
    following = _Following(
        workspace, order or FollowOrder(), run or (lambda at, names, options: audit(at, names, options, progress))
    )
    followed_flows(workspace, following.order)
    return following.rounds(wait)


@dataclass
class _Following:
    workspace: Workspace
    order: FollowOrder
    run: RunAudit
    number: int = 0

    def __post_init__(self) -> None:
        self.leases = Leases(audit_group)
        self.since = time.time()
        self.warm = WarmSpark(cache_file("spark-audit", suffix=".log"))

    def rounds(self, wait: Callable[[float], object]) -> Generator[AuditRound]:
        try:
            while True:
                self.number += 1
                try:
                    done = self.round()
                except Exception as error:  # whatever it is, it ends this round and not the loop
                    done = AuditRound(self.number, time.time(), error=cause(error))
                yield done
                collect_garbage()
                if wait(self.order.every_seconds):
                    return
        finally:
            self.leases.close_within(_CLOSE_SECONDS)  # first: the end of Spark may take longer than the process has
            self.warm.close()

    def round(self) -> AuditRound:
        """Audit once with the tree as it is now."""
        workspace = replace(self.workspace)
        chosen, now = followed_flows(workspace, self.order), time.time()
        topology = workspace.topology
        connects = {flow.connect.name for flows in chosen.values() for flow in flows}
        note = holder_note("audit --follow", author(workspace.files), self.since)
        standby, without = run_in_thread(lambda: self.leases.missing(topology, note, connects))
        reports, rest = [], list[str]()
        for share, flows in chosen.items():
            mine = tuple(flow.id for flow in flows if flow.connect.name not in standby)
            rest += [flow.id for flow in flows if flow.connect.name in standby]
            names = self._names(topology, mine)
            if names:
                since = max(0, round(1000 * (now - 2 * self.order.every_seconds)))
                # No end: one record with a timestamp ahead would hide all behind it, and the stored offset is one.
                bounds = replace(self.order.options, sample=share, since_ms=since)
                if (engine := workspace.engine(bounds.spark)).on_spark:
                    self.warm.session(engine.java_home)  # the audit of each round uses it
                reports.append(self.run(workspace, names, bounds))
        if not reports:
            return AuditRound(self.number, now, None, tuple(rest), without)
        report = join_reports(reports)
        warnings = record_audit(workspace, report, self.order.started_by, store=self.order.store)
        return AuditRound(self.number, now, report, tuple(rest), without, tuple(warnings))

    def _names(self, topology: Topology, mine: tuple[str, ...]) -> tuple[str, ...]:
        """Return what is to be named to audit these flows alone: topics too, where they were named."""
        if not (self.order.names and mine):
            return mine
        return tuple(name for name in self.order.names if flows_meant(topology, (name,)).keys() & set(mine))


def followed_flows(workspace: Workspace, order: FollowOrder) -> dict[float | None, list[Flow]]:
    """Return the flows to audit by the share of their records; Mm2mgrError where there are none."""
    if order.names:
        meant = flows_meant(workspace.topology, order.names)
        return {order.options.sample: [flow for flow in workspace.topology.flows if flow.id in meant]}
    by_share: dict[float | None, list[Flow]] = {}
    for flow in workspace.topology.flows:
        if flow.settings.audit:
            by_share.setdefault(flow.settings.audit, []).append(flow)
    if not by_share:
        hint = "write `audit: 2%` for a flow, or under defaults: flows:, or name flows"
        raise Mm2mgrError("no flow of the tree declares audits", hint=hint)
    return by_share


def join_reports(reports: Sequence[AuditReport]) -> AuditReport:
    """Return reports of audits, one after the other, as one."""
    first = reports[0]
    flows: tuple[FlowAudit, ...] = tuple(flow for report in reports for flow in report.flows)
    warnings = tuple(dict.fromkeys(warning for report in reports for warning in report.warnings))
    return AuditReport(flows, first.began, sum(report.seconds for report in reports), first.engine, warnings)


# --- repair -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replay:
    """How the records of one partition that are missing or altered are mirrored again: from `offset` on.

    `arrives`: missing records that would come. `comes_again`: altered ones, beside their altered copy. `comes_twice`:
    records of the window that arrived well and would come once more, at most that many where the log has gaps; and so
    would all that was mirrored from `window_end` on.
    """

    flow: str
    topic: str
    partition: int
    offset: int
    window_end: int
    arrives: int
    comes_again: int
    comes_twice: int
    at_most: bool
    json_keys = "flow topic partition offset window_end arrives comes_again comes_twice at_most command"

    @property
    def command(self) -> str:
        """What makes the flow, once it is STOPPED, go on there."""
        quoted = [shlex.quote(text) for text in (self.flow, self.topic)]
        where = f"{quoted[0]} --topic {quoted[1]} --partition {self.partition}"
        return f"mm2mgr offsets reset {where} --to {self.offset}"


def repair_plan(report: AuditReport) -> tuple[Replay, ...]:
    """Return what would replay all that is missing or altered, by flow and partition. Nothing is written; duplicated,
    reordered and extra records stay as they are."""
    replays = (_replay(flow, part) for flow in report.flows for part in flow.partitions)
    return tuple(replay for replay in replays if replay)


def _replay(flow: FlowAudit, part: PartitionAudit) -> Replay | None:
    kinds = (DifferenceKind.MISSING, DifferenceKind.ALTERED)
    offsets = [
        record.source_offset
        for record in part.differences
        if record.kind in kinds and not record.expected and record.source_offset is not None
    ]
    missing, altered = (part.counts.get(kind, 0) for kind in kinds)
    if not missing and not altered:
        return None
    first, end = part.source_window
    offset = min(offsets, default=first)
    most = min(part.source_records, end - offset)
    twice, at_most = max(0, most - missing - altered), part.source_records < end - first or not offsets
    return Replay(flow.flow, part.source.topic, part.source.partition, offset, end, missing, altered, twice, at_most)
