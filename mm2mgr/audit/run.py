"""Runs an audit: pass 1 sums up blocks of both logs, pass 2 reads the blocks that differ record by record."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mm2mgr import timing
from mm2mgr.audit import gaps
from mm2mgr.audit.blocks import Gap, align_blocks, block_bits
from mm2mgr.audit.differences import BEHIND, Edges, Unmatched, copies_to_find, settle, tally
from mm2mgr.audit.doubts import Span
from mm2mgr.audit.engines import Engine, InProcess, LogSums, OnSpark
from mm2mgr.audit.gaps import GAP_SCHEMA, LEADS, TRAILS, GapTask, LogSide, compare
from mm2mgr.audit.latest import sides_of
from mm2mgr.audit.latest_records import compare_latest
from mm2mgr.audit.reading import SILENCE_SECONDS
from mm2mgr.audit.records import SLOWEST_ALGORITHM, Hashes, Records, fastest_algorithm, hash_of_keys, key_text
from mm2mgr.audit.report import AuditReport, DifferenceKind, FlowAudit, PartitionAudit, RecordDifference, ranges_of
from mm2mgr.audit.scan import DROPPED, FAULT, SOURCE, TARGET, ScanRange, ScanTask, tasks_of
from mm2mgr.audit.sequences import RUN
from mm2mgr.audit.verdicts import sent_again_behind
from mm2mgr.audit.windows import CONTEXT, LOG_END, AuditOrder, FlowOrder, LogAccess, LogWindow, Matching, PartitionOrder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST_OFFSETS_PER_TASK, _MOST_OFFSETS_PER_TASK = 50_000, 2_000_000
MOST_IN_A_GAP = 2_000_000
"""So many records of a gap are compared one by one on each side."""
_SEARCHED = 500_000
_MAY_BE_OF_OTHERS = {DifferenceKind.EXTRA, DifferenceKind.DUPLICATED}
_WITH_PLACE = {*_MAY_BE_OF_OTHERS, DifferenceKind.REORDERED}
_MAY_BE_ELSEWHERE = {DifferenceKind.EXTRA, DifferenceKind.MISSING}
_ROUNDS = 3
_LACKS_FASTEST = "No module named 'xxhash'"
_SLOWER = (
    "the executors' Python has no package xxhash: fingerprints took several times as long as with it, and hashes of"
    " keys are not those of other audits"
)


@dataclass(frozen=True)
class AuditProgress:
    """How far an audit is: offsets read of those in the windows of both logs, and what it does now."""

    doing: str
    records: int = 0
    of_records: int = 0


ReportProgress = Callable[[AuditProgress], None]


def run_audit(
    order: AuditOrder, spark: SparkSession | None = None, progress: ReportProgress | None = None
) -> AuditReport:
    """Compare the windows on Spark, or in this process without a session; the answer is the same.

    What cannot be read is not judged, with the reason; Mm2mgrError only where the engine itself fails.
    """
    began, started = time.time(), timing.now()
    engine: Engine = OnSpark(spark) if spark is not None else InProcess()
    warnings = order.warnings
    try:
        audits = _Run(order, engine, fastest_algorithm(), progress or _ignore).partitions()
    except Exception as error:
        if spark is None or _LACKS_FASTEST not in str(error):
            raise
        warnings = (*warnings, _SLOWER)
        audits = _Run(order, engine, SLOWEST_ALGORITHM, progress or _ignore).partitions()
    flows, numbers = [], iter(range(len(audits)))
    for flow in order.flows:
        own = tuple(audits[next(numbers)] for _ in flow.partitions)
        flows.append(FlowAudit(flow.flow, own, flow.promises, flow.not_judged))
    return AuditReport(tuple(flows), began, timing.now() - started, engine.name, warnings)


def _ignore(_: AuditProgress) -> None:
    return None


@dataclass(frozen=True)
class _Part:
    """One partition with its flow; `number` is its place in the order."""

    number: int
    flow: FlowOrder
    order: PartitionOrder
    context: int
    """So many source offsets around the window are read, too."""
    reads_on: bool = False
    """Whether the target is compared as far as it is read, also far behind as many records as the source has."""

    @property
    def is_read(self) -> bool:
        """Whether there is anything to compare: an empty window is equal only where the logs have nothing in it."""
        return not self.order.not_judged and self.order.source.first < self.order.source.end

    @property
    def source_ranges(self) -> list[LogWindow]:
        """What is read of the source: what is judged, and some records around it."""
        log, window = self.order.source_log, self.order.source
        first, end = max(log.start, window.first - self.context), min(log.end, window.end + self.context)
        if self.is_whole and not self.is_timed:  # all that the target has more may be later records
            more = self.order.target.end - self.order.target.first - (window.end - window.first)
            end = min(log.end, max(end, end + more))
        bounds = [(first, window.first), (window.first, window.end), (window.end, end)]
        return [LogWindow(window.partition, low, high) for low, high in bounds if low < high]

    @property
    def bits(self) -> int:
        return block_bits(max(entry.end - entry.first for entry in (self.order.source, self.order.target)))

    def has(self, offset: int, spans: Sequence[Span], *, is_extra: bool) -> bool:
        """Return whether a difference at a source offset is one of the window, and not in a span that is in doubt; an
        extra record is behind that offset, or it is not known where (below zero)."""
        window = self.order.source
        if not is_extra:
            return window.first <= offset < window.end and not any(low <= offset < end for low, end in spans)
        if any(low - 1 <= offset < end for low, end in spans):
            return False
        low = window.first if self.source_ranges[0].first < window.first else 0
        return offset < 0 or low <= offset < window.end

    def range(self, side: int, window: LogWindow) -> ScanRange:
        steps = self.order.expectation.steps if side == SOURCE else ()
        judged = side == TARGET or self.order.source.first <= window.first < self.order.source.end
        return ScanRange(self.number, side, window, self.bits, self.order.expectation.fields, steps, judged)

    def side(self, side: int, first: int, end: int) -> LogSide:
        access = self.flow.source if side == SOURCE else self.flow.target
        partition = (self.order.source if side == SOURCE else self.order.target).partition
        return LogSide(access, self.range(side, LogWindow(partition, first, end)))

    @property
    def searched_from(self) -> int:
        """The source's offset from which on first copies are looked for."""
        first, start = self.source_ranges[0].first, self.order.source_log.start
        return max(start, first - _SEARCHED) if first > start else start

    @property
    def target_searched_from(self) -> int:
        """The target's offset from which on first copies are looked for: those of records before what is read of the
        source, so none where that begins with its log."""
        place, start = self.order.target.first, self.order.target_log.start
        return max(start, place - _SEARCHED) if self.source_ranges[0].first > self.order.source_log.start else place

    @property
    def has_open_start(self) -> bool:
        """Whether one of the logs had records before those that are read."""
        return self.source_ranges[0].first > 0 or self.order.target.first > 0

    @property
    def is_timed(self) -> bool:
        """Whether timestamps count: else an equal record may be that of another time."""
        return "timestamp" in self.order.expectation.fields

    @property
    def is_whole(self) -> bool:
        """Whether the window begins where the source's log does, and all that the target has is read."""
        order = self.order
        ends = (order.target.first, order.target.end) == (order.target_log.start, order.target_log.end)
        return ends and order.source.first == order.source_log.start

    @property
    def has_open_end(self) -> bool:
        """Whether the source's log has records behind those that are read."""
        return self.source_ranges[-1].end < self.order.source_log.end


@dataclass
class _Findings:
    """What is known of one partition after both passes."""

    sums: LogSums | None = None
    counts: tuple[int, int] = (0, 0)
    differences: list[RecordDifference] = field(default_factory=list)
    expected: Counter[str] = field(default_factory=Counter)
    not_judged: list[str] = field(default_factory=list)
    leads: bool = False
    trails: bool = False
    repeats: bool = False
    blocks_repeat: bool = False
    """Whether blocks of a window may be equal by chance, of another place."""
    is_cut: bool = False
    """Whether what the target has at the end was not compared, which may have the source's last records."""


@dataclass
class _Run:
    order: AuditOrder
    engine: Engine
    algorithm: str
    progress: ReportProgress
    silence_seconds: float = SILENCE_SECONDS

    def partitions(self) -> list[PartitionAudit]:
        """Return what was found of each partition of all flows, in order."""
        every = [(flow, part) for flow in self.order.flows for part in flow.partitions]
        parts = [_Part(number, flow, part, CONTEXT) for number, (flow, part) in enumerate(every)]
        findings = {part.number: _Findings() for part in parts}
        todo = [part for part in parts if part.is_read]
        for turn in range(_ROUNDS):
            if not todo:
                break
            for part in todo:
                findings[part.number] = _Findings()
            self._judge(todo, findings)
            wider = [_wider(part, findings[part.number], is_last=turn == _ROUNDS - 2) for part in todo]
            todo = [part for part in wider if part is not None]
            for part in todo:
                parts[part.number] = part
        return [self._audit(part, findings[part.number]) for part in parts]

    def _judge(self, parts: Sequence[_Part], findings: dict[int, _Findings]) -> None:
        ordered = [part for part in parts if part.order.expectation.matching is Matching.ORDERED]
        fan_in = [part for part in parts if part.order.expectation.matching is Matching.FAN_IN]
        every = ordered + fan_in
        if every:
            self._sum_up(every, findings)
        tasks = [task for part in ordered for task in self._gaps(part, findings[part.number])]
        tasks += [task for part in fan_in for task in self._whole(part, findings[part.number])]
        if tasks:
            self._compare(every, tasks, findings)
        if compacted := [part for part in parts if part.order.expectation.matching is Matching.LATEST]:
            self._compare_latest(compacted, findings)

    def _compare_latest(self, parts: Sequence[_Part], findings: dict[int, _Findings]) -> None:
        """Compare the latest records: source behind the window, too, as the target may have any of them already."""
        ranges = []
        for part in parts:
            window, target = part.order.source, part.order.target
            bounds = [(window.first, window.end), (window.end, part.order.source_log.end)]
            whole = [LogWindow(window.partition, low, high) for low, high in bounds if low < high]
            ranges += [(part.flow.source, part.range(SOURCE, entry)) for entry in whole]
            if target.first < target.end:
                ranges.append((part.flow.target, part.range(TARGET, target)))
        finding = self.engine.latest(self._tasks(ranges))
        self._take_notes(parts, finding.notes, findings)
        rows = _by_part(finding.rows)
        differing: dict[int, list[RecordDifference]] = {}
        for part in parts:
            own, order = findings[part.number], part.order
            own.counts = finding.counts.get((part.number, SOURCE), 0), finding.counts.get((part.number, TARGET), 0)
            if own.not_judged or part.number not in rows:
                continue
            edges = Edges(open_start=order.source.first > 0, due=order.source.end)
            sides = sides_of(rows[part.number])
            differing[part.number] = compare_latest(*sides, edges, order.expectation.fields, _without_timestamp)
            own.leads = bool(differing[part.number])  # the target's window may begin too late
        newer = self._newer_keys([part for part in parts if differing.get(part.number)], differing, findings)
        for part in parts:
            own, order, differences = findings[part.number], part.order, differing.get(part.number, [])
            superseded = [entry for entry in differences if entry.key_hash in newer.get(part.number, ())]
            differences = [entry for entry in differences if entry not in superseded]
            if superseded:
                came = "newer records of them came meanwhile, for which compaction may have removed those to compare"
                own.not_judged.append(f"{len(superseded)} keys: {came}")
            for kind, reason in _of_former_records(order):
                gone = [entry for entry in differences if entry.kind is kind and not entry.note]
                differences = [entry for entry in differences if entry not in gone]
                if gone:
                    own.not_judged.append(f"{len(gone)} keys: {reason}")
            own.differences = differences

    def _newer_keys(
        self,
        parts: Sequence[_Part],
        differing: Mapping[int, Sequence[RecordDifference]],
        findings: Mapping[int, _Findings],
    ) -> dict[int, set[str | None]]:
        """Return by partition which of the differing keys have records behind what was compared of either log, all of
        them where that cannot be read: compaction removes a record only once its key has a newer one."""
        tasks = []
        for part in parts:
            keys = np.array([int(entry.key_hash or "0", 16) for entry in differing[part.number]], np.uint64)
            for side, end in ((SOURCE, part.order.source_log.end), (TARGET, part.order.target.end)):
                behind = part.side(side, end, LOG_END)
                of_keys = replace(behind, range=replace(behind.range, fields=("key",), steps=()))
                wanted_hashes = np.unique(hash_of_keys(keys))
                tasks.append(GapTask(of_keys, None, self.algorithm, self.silence_seconds, wanted_hashes=wanted_hashes))
        rows = _by_part(self.engine.rows(self._share_out(tasks), compare, GAP_SCHEMA)) if tasks else {}
        newer: dict[int, set[str | None]] = {}
        for number, table in rows.items():
            records = Records.from_arrow(_of_kind(table, gaps.COPY))
            newer[number] = {key_text(key) for key in records.key_hash.tolist()}
            if faults := _faults(table):
                findings[number].not_judged += faults
                newer[number] = {entry.key_hash for entry in differing[number]}
        return newer

    # --- pass 1 -------------------------------------------------------------------------------------------------------

    def _sum_up(self, parts: Sequence[_Part], findings: dict[int, _Findings]) -> None:
        ranges = []
        for part in parts:
            ranges += [(part.flow.source, part.range(SOURCE, window)) for window in part.source_ranges]
            if part.order.target.first < part.order.target.end:
                ranges.append((part.flow.target, part.range(TARGET, part.order.target)))
        tasks = self._tasks(ranges)
        scanned = self.engine.scan(tasks, [part.number for part in parts])
        for number, sums in scanned.parts.items():
            findings[number].sums = sums
            findings[number].counts = sums.judged_records, sums.target_records
        self._take_notes(parts, scanned.notes, findings)

    def _tasks(self, ranges: Sequence[tuple[LogAccess, ScanRange]]) -> list[ScanTask]:
        total = sum(entry.window.end - entry.window.first for _, entry in ranges)
        self.progress(AuditProgress("reading both logs", 0, total))
        per_task = min(max(total // (4 * self.engine.cores), _LEAST_OFFSETS_PER_TASK), _MOST_OFFSETS_PER_TASK)
        return tasks_of(ranges, per_task, self.algorithm, self.silence_seconds)

    def _take_notes(
        self, parts: Sequence[_Part], notes: Iterable[dict[str, Any]], findings: dict[int, _Findings]
    ) -> None:
        """Note what could not be read, and what transformations drop of the window."""
        windows = {part.number: part.order.source for part in parts}
        for note in notes:
            finding, window, offset = findings[note["part"]], windows[note["part"]], note.get("first_offset")
            at = note["offset"] if offset is None else offset
            if note["kind"] == DROPPED and window.first <= at < window.end:
                finding.expected[note["text"]] += note["count"]
            elif note["kind"] == FAULT:
                name = "source" if note["side"] == SOURCE else "target"
                where = f"the {name}'s records from offset {at} on could not be read"
                finding.not_judged.append(f"{where}: {note['text']}")

    # --- pass 2 -------------------------------------------------------------------------------------------------------

    def _gaps(self, part: _Part, finding: _Findings) -> Iterator[GapTask]:
        if part.context > CONTEXT:
            yield from self._whole(part, finding)
        elif not finding.not_judged and finding.sums is not None:
            prints = finding.sums.source.fingerprints()
            is_open = part.has_open_start or part.has_open_end or part.source_ranges[-1].end > part.order.due
            finding.blocks_repeat = is_open and len(np.unique(prints)) < len(prints)
            for gap in align_blocks(finding.sums.source, finding.sums.target).gaps:
                yield from self._gap(part, finding, gap)

    def _whole(self, part: _Part, finding: _Findings) -> Iterator[GapTask]:
        """One gap of both windows: among the records of others no block is equal, and few kinds make few blocks."""
        if finding.not_judged or finding.sums is None:
            return
        ranges, target = part.source_ranges, part.order.target
        counts = finding.sums.source_records, finding.sums.target_records
        whole = Gap((ranges[0].first, ranges[-1].end), (target.first, target.end), *counts, at_start=True, at_end=True)
        yield from self._gap(part, finding, whole)

    def _gap(self, part: _Part, finding: _Findings, gap: Gap) -> Iterator[GapTask]:
        source, target = gap.source, gap.target
        open_end = gap.at_end and part.has_open_end
        if open_end and not (gap.at_start or part.reads_on or part.is_whole):
            # Behind blocks that are equal, what the target has more than the source's part is not read again.
            behind = 2 * gap.source_records + 10 * CONTEXT
            limit = target[0] + max(behind, 2 * (source[1] - source[0]))
            finding.is_cut |= limit < target[1]
            target = target[0], min(target[1], limit)
        read = []
        for name, (low, end), count in (("source", source, gap.source_records), ("target", target, gap.target_records)):
            read.append((low, end))
            if min(count, end - low) > MOST_IN_A_GAP:
                read[-1] = low, low + MOST_IN_A_GAP
                rest = f"{name} offsets {low + MOST_IN_A_GAP}-{end - 1}"
                finding.not_judged.append(f"{rest}: too many differ to compare them one by one")
        is_cut = bool(finding.not_judged)
        finding.is_cut |= is_cut
        alone = part.order.expectation.matching is Matching.ORDERED
        window = (part.order.source.first, part.order.source.end) if alone else None
        is_open = gap.at_start and part.has_open_start, open_end or is_cut
        edges = Edges(*is_open, part.order.due, part.is_timed, window, among_others=not alone, is_whole=part.is_whole)
        yield GapTask(
            part.side(SOURCE, *read[0]),
            part.side(TARGET, *read[1]),
            self.algorithm,
            self.silence_seconds,
            edges,
            self.order.show_values,
        )

    def _compare(self, parts: Sequence[_Part], tasks: Sequence[GapTask], findings: dict[int, _Findings]) -> None:
        self.progress(AuditProgress(f"comparing records where {len(tasks)} stretches of blocks differ"))
        rows = self.engine.rows(self._share_out(tasks), compare, GAP_SCHEMA)
        by_part = _by_part(rows)
        searches: list[GapTask] = []
        for part in parts:
            own = by_part.get(part.number)
            if own is None:
                continue
            findings[part.number].not_judged += _faults(own)
            searches += self._searches(part, own)
        finding = _by_part(self.engine.rows(self._share_out(searches), compare, GAP_SCHEMA)) if searches else {}
        for part in parts:
            if (own := by_part.get(part.number)) is not None:
                self._settle(part, own, finding.get(part.number), findings[part.number])

    def _share_out(self, tasks: Sequence[GapTask]) -> list[tuple[GapTask, ...]]:
        """Share gaps out to about four tasks a core, in their order."""
        size = -(-len(tasks) // (4 * self.engine.cores))
        return [tuple(tasks[first : first + size]) for first in range(0, len(tasks), size)]

    def _searches(self, part: _Part, rows: pa.Table) -> Iterator[GapTask]:
        """Look for what records are that no gap explains: in the source before them, and on the target before what was
        compared, where these may have arrived first; and far behind on the target for those that seem to be missing."""
        rest = Unmatched.from_arrow(_of_kind(rows, gaps.REST))
        if part.order.expectation.matching is Matching.FAN_IN:
            return
        lost, place = _lost_hashes(rest, part.order.source), part.order.target.end
        if len(lost) and place < part.order.target_log.end:
            side = part.side(TARGET, place, min(place + _SEARCHED, part.order.target_log.end))
            yield GapTask(side, None, self.algorithm, self.silence_seconds, wanted_hashes=lost)
        surplus = copies_to_find(rest, part.order.expectation.fields)
        if not len(surplus):
            return
        first, end = part.searched_from, part.source_ranges[-1].end
        wanted_hashes = np.unique(surplus.hash)
        low, place = part.target_searched_from, part.order.target.first
        if low < place:
            side = part.side(TARGET, low, place)
            yield GapTask(side, None, self.algorithm, self.silence_seconds, wanted_hashes=wanted_hashes)
        step = max(_LEAST_OFFSETS_PER_TASK, -(-(end - first) // (4 * self.engine.cores)))
        for low in range(first, end, step):
            side = part.side(SOURCE, low, min(end, low + step))
            yield GapTask(side, None, self.algorithm, self.silence_seconds, wanted_hashes=wanted_hashes)

    def _settle(self, part: _Part, rows: pa.Table, searched: pa.Table | None, finding: _Findings) -> None:
        rest_rows = _of_kind(rows, gaps.REST)
        earlier, on_target, faults = list[Records](), Records.join([]), list[str]()
        if searched is not None:
            faults = _faults(searched)
            finding.not_judged += faults
            is_target = searched.column("is_target")
            earlier = [Records.from_arrow(_of_kind(searched.filter(pc.invert(is_target)), gaps.COPY))]
            on_target = Records.from_arrow(_of_kind(searched.filter(is_target), gaps.COPY))
        expectation, window = part.order.expectation, part.order.source
        doubts = _of_kind(rows, gaps.DOUBT)
        spans = sorted(zip(doubts.column("offset").to_pylist(), doubts.column("place").to_pylist(), strict=True))
        finding.repeats = bool(spans) or len(_of_kind(rows, gaps.REPEATS)) > 0
        finding.not_judged += [_doubt_text(low, end) for low, end in _join_spans(spans)]
        rest = replace(Unmatched.from_arrow(rest_rows), doubtful=spans)
        if text := _twice_or_later(rest, earlier, window):
            finding.repeats = True
            finding.not_judged.append(text)
        differences = settle(rest, earlier, expectation.fields, _without_timestamp, (window.first, window.end))
        rest_of_sides = _RestRows.from_table(rest_rows)
        known_from = part.order.target.first if faults else part.target_searched_from
        differences, first_copies = _first_copies(part, differences, rest, on_target, known_from)
        told = self._of_window(part, rest_of_sides, differences, spans, finding)
        if faults:  # what was to be found there is neither extra nor missing
            told = [entry for entry in told if entry.kind not in _MAY_BE_ELSEWHERE]
        later = on_target.take(on_target.offset >= part.order.target.end)
        far_behind = set(rest.source.offset[np.isin(rest.source.hash, later.hash)].tolist())
        of_removed = _of_removed(part, differences, rest, rest_of_sides)
        told, notes = _without_open(part, told, far_behind, of_removed, first_copies)
        finding.not_judged += notes
        if told and finding.sums is not None and 2 * len(rest_of_sides.source) > finding.sums.source_records:
            finding.leads = finding.trails = True  # few have a partner, perhaps by chance, of another place
        # More may have an equal one, or another place.
        finding.repeats |= bool(told) and (expectation.matching is Matching.FAN_IN or finding.blocks_repeat)
        told = _with_restarts(told, rest_of_sides)
        if self.order.show_values:
            told = _with_values(told, rest_of_sides)
        finding.differences = told

    def _of_window(
        self,
        part: _Part,
        rest: _RestRows,
        differences: Iterable[RecordDifference],
        spans: Sequence[Span],
        finding: _Findings,
    ) -> list[RecordDifference]:
        """Return the differences of the window that can be told; note where the target is to be read further."""
        expectation = part.order.expectation
        edges = rest.table.column("edge").to_numpy()
        places = rest.table.column("place").to_pylist()
        leading = {offset for offset, row in rest.source.items() if edges[row] & LEADS}
        trailing = {offset for offset, row in rest.source.items() if edges[row] & TRAILS}
        told, unknown, uncompared = list[RecordDifference](), [], []
        for entry in differences:
            difference, offset, kind = entry, entry.source_offset, entry.kind
            place = places[rest.target[entry.target_offset or 0]] if kind in _WITH_PLACE else 0
            is_there = part.has(place if offset is None else offset, spans, is_extra=offset is None)
            if kind in _WITH_PLACE and expectation.matching is Matching.ORDERED:  # of another record, between two of it
                arrived = kind is DifferenceKind.DUPLICATED or (offset is not None and offset < part.order.due)
                is_there |= arrived and all(part.has(at, spans, is_extra=False) for at in (place, place + 1))
            if not is_there:
                continue
            if kind in _MAY_BE_OF_OTHERS and expectation.matching is Matching.FAN_IN:
                continue
            is_before = kind is DifferenceKind.REORDERED and place < part.source_ranges[0].first
            if (offset in leading and kind is not DifferenceKind.DUPLICATED) or is_before:
                finding.leads = True
                if part.order.target_log.start > 0:
                    unknown.append(offset)
                    continue
            if kind is DifferenceKind.MISSING and offset in leading:
                begins = "before the first record of the target's log: the flow began later, or it was created again"
                difference = replace(difference, expected=expectation.late, note=begins)
            is_anywhere = finding.is_cut and expectation.matching is Matching.FAN_IN  # partners may be others'
            if (offset in trailing or is_anywhere) and kind is not DifferenceKind.DUPLICATED:
                finding.trails = True
                if finding.is_cut:
                    uncompared.append(offset)
                    continue
            told.append(difference)
        if unknown:
            where = f"source offsets {unknown[0]}-{unknown[-1]}"
            begins = f"the target's log begins at {part.order.target_log.start}"
            finding.not_judged.append(f"{where}: {begins}, so that retention may have removed them there")
        if uncompared:
            where = f"source offsets {uncompared[0]}-{uncompared[-1]}"
            finding.not_judged.append(f"{where}: they may be in the part of the target's log that was not compared")
        return told

    # --- the report ---------------------------------------------------------------------------------------------------

    def _audit(self, part: _Part, finding: _Findings) -> PartitionAudit:
        order = part.order
        most = self.order.most_differences
        counts, expected = tally(finding.differences)
        again = sent_again_behind(part.flow, order) if part.is_read else ""
        return PartitionAudit(
            order.source.partition,
            order.target.partition,
            (order.source.first, order.source.end),
            (order.target.first, order.target.end),
            *finding.counts,
            counts,
            {**expected, **finding.expected},
            tuple(finding.differences[:most]),
            (*order.not_judged, *dict.fromkeys(finding.not_judged), *([again] if again else [])),
            order.source_topic_id,
            order.target_topic_id,
            ranges_of(finding.differences[most:]),
        )


def _wider(part: _Part, finding: _Findings, *, is_last: bool) -> _Part | None:
    """Return the partition with a larger window of the target, and where equal records leave doubts with more around
    that of the source; None where nothing more would tell.
    """
    order, log = part.order, part.order.target_log
    first, end, more = order.target.first, order.target.end, 8 * (order.target.end - order.target.first) + 10 * CONTEXT
    if finding.leads and first > log.start:
        first = log.start if is_last else max(log.start, first - more)
    if finding.trails and end < log.end:
        end = log.end if is_last else min(log.end, end + more)
    reads_on = part.reads_on or (finding.trails and finding.is_cut)
    wider = replace(part, order=replace(order, target=replace(order.target, first=first, end=end)), reads_on=reads_on)
    if finding.repeats:
        around = max(order.source_log.end, log.end) if is_last else 8 * part.context
        target = replace(order.target, first=max(log.start, first - around), end=min(log.end, end + around))
        wide = replace(wider, order=replace(order, target=target), context=around)
        if max(wide.source_ranges[-1].end - wide.source_ranges[0].first, target.end - target.first) <= _SEARCHED:
            wider = wide
    is_same = (wider.order.target, wider.source_ranges, reads_on) == (order.target, part.source_ranges, part.reads_on)
    return None if wider == part or (is_same and part.context != CONTEXT) else wider


def _of_former_records(order: PartitionOrder) -> Iterator[tuple[DifferenceKind, str]]:
    """Yield which differences of a compacted topic may be of records that one log no longer has, or was never to
    have."""
    for kind, start, name in (
        (DifferenceKind.MISSING, order.target_log.start, "target"),
        (DifferenceKind.EXTRA, order.source_log.start, "source"),
    ):
        if start > 0:
            yield kind, f"the {name}'s log begins at {start}, so that retention may have removed them there"
    if order.expectation.late:
        yield (
            DifferenceKind.MISSING,
            f"their records may be older than the first mirrored one: {order.expectation.late}",
        )


def _lost_hashes(rest: Unmatched, window: LogWindow) -> Hashes:
    """Return the hashes of the window's records that are nowhere on the target, as far as it was compared."""
    inside = (rest.source.offset >= window.first) & (rest.source.offset < window.end)
    return np.setdiff1d(rest.source.hash[inside], rest.target.hash)


def _without_open(
    part: _Part,
    differences: Iterable[RecordDifference],
    far_behind: Collection[int],
    of_removed: Collection[int],
    first_copies: Collection[int],
) -> tuple[list[RecordDifference], list[str]]:
    """Return the differences without the source offsets that may have arrived far behind, and the target offsets that
    may be of removed records, or the first copies of theirs, and which these are."""
    place, end = part.order.target.end, part.order.target_log.end
    may_be_behind = end - place > _SEARCHED and bool(sent_again_behind(part.flow, part.order))
    told, missing, extra, first = list[RecordDifference](), list[int](), list[int](), list[int]()
    for entry in differences:
        offset, other = entry.source_offset, entry.target_offset
        if entry.kind is DifferenceKind.MISSING and offset is not None and (may_be_behind or offset in far_behind):
            missing.append(offset)
        elif entry.kind is DifferenceKind.EXTRA and other is not None and other in of_removed:
            extra.append(other)
        elif entry.kind is DifferenceKind.DUPLICATED and other is not None and other in first_copies:
            first.append(other)
        else:
            told.append(entry)
    has = f"the target {'may have' if may_be_behind else 'has'} equal records far behind, from offset {place} on"
    searched = part.searched_from
    gone = "retention removed" if searched == part.order.source_log.start else "were not searched"
    may_be = f"they may be of the source's records before its offset {searched}, which {gone}"
    begins = f"their first copies may have been before offset {part.target_searched_from}, or have never been"
    return told, [
        f"{len(offsets)} of {name} offsets {min(offsets)}-{max(offsets)}: {text}"
        for name, offsets, text in (
            ("source", missing, has),
            ("target", extra, may_be),
            ("target", first, begins),
        )
        if offsets
    ]


def _first_copies(
    part: _Part, differences: Sequence[RecordDifference], rest: Unmatched, on_target: Records, known_from: int
) -> tuple[list[RecordDifference], set[int]]:
    """Tell the first copy of a record from further ones where the source was not read up to that record: it is out of
    place where the target has none before; it is known from an offset on. The second answer are target offsets of which
    this is open."""
    first_read, before = part.source_ranges[0].first, on_target.take(on_target.offset < part.order.target.first)
    hashes = dict(zip(rest.target.offset.tolist(), rest.target.hash.tolist(), strict=True))
    copies: dict[int, tuple[int, int]] = {}
    for row, entry in enumerate(differences):
        offset, other = entry.source_offset, entry.target_offset
        if entry.kind is DifferenceKind.DUPLICATED and offset is not None and other is not None and offset < first_read:
            copies[hashes[other]] = min(copies.get(hashes[other], (other, row)), (other, row))
    told, unsure = list(differences), set[int]()
    there = set(before.hash.tolist())
    for number, (offset, row) in copies.items():
        if number in there:
            continue
        if known_from == 0:
            told[row] = replace(told[row], kind=DifferenceKind.REORDERED, content=None)
        else:
            unsure.add(offset)
    return told, unsure


def _of_removed(
    part: _Part, differences: Iterable[RecordDifference], rest: Unmatched, rest_of_sides: _RestRows
) -> set[int]:
    """Return the offsets of extra records that may be copies of what the source no longer has, or was not searched: a
    restart sends these, and right behind them copies of the first records that are left; and some of them may have come
    late, between the first records that are left."""
    start = part.searched_from
    if start <= 0:
        return set()
    places = dict(zip(rest.target.offset.tolist(), rest.target_place.tolist(), strict=True))
    newest = rest_of_sides.table.column("before_ms").to_numpy()
    kinds = (DifferenceKind.DUPLICATED, DifferenceKind.EXTRA)
    again = sorted(
        (entry.target_offset or 0, -1 if entry.source_offset is None else entry.source_offset)
        for entry in differences
        if entry.kind in kinds
    )
    removed, place = set[int](), None
    for offset, copied in reversed(again):
        if copied >= 0:
            place = places[offset] if copied < start + RUN else None
        elif places[offset] == place:
            removed.add(offset)
    times, last, last_place = dict(zip(rest.target.offset.tolist(), rest.target.time_ms.tolist(), strict=True)), 0, None
    for offset, copied in again:
        place = places[offset]
        if copied < 0:
            before = last if place == last_place else place
            is_late = not part.is_timed or times[offset] <= newest[rest_of_sides.target[offset]]
            if before < start + RUN or (before < start + CONTEXT and is_late):
                removed.add(offset)
        else:
            last, last_place = copied, place
    return removed


def _join_spans(spans: Iterable[Span]) -> list[Span]:
    """Join spans, in order, that overlap or touch."""
    joined: list[Span] = []
    for low, end in spans:
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((low, end))
    return joined


def _doubt_text(low: int, end: int) -> str:
    return f"source offsets {low}-{end - 1}: equal records around them leave open which of them are on the target"


def _twice_or_later(rest: Unmatched, searched: Iterable[Records], window: LogWindow) -> str:
    """Return which of the window's records the target has again where it is open what these are, "" for none."""
    hashes = rest.target.hash[rest.copy_of == BEHIND]
    offsets = [offset for records in searched for offset in records.offset[np.isin(records.hash, hashes)].tolist()]
    again = [offset for offset in offsets if window.first <= offset < window.end]
    where = f"source offsets {min(again)}-{max(again)}" if again else ""
    return where and f"{where}: the target has records before or behind that equal some of them, copies or others"


def _without_timestamp(difference: RecordDifference) -> str:
    """Explain records of old producers, which have no timestamp (-1): MirrorMaker sends them without one."""
    is_stamped = difference.fields == ("timestamp",) and difference.time_ms is not None and difference.time_ms < 0
    return "the source's record has no timestamp, and the target's brokers set their own" if is_stamped else ""


def _by_part(rows: pa.Table) -> dict[int, pa.Table]:
    numbers = rows.column("part").to_numpy()
    return {int(number): rows.filter(pa.array(numbers == number)) for number in np.unique(numbers)}


def _of_kind(rows: pa.Table, kind: str) -> pa.Table:
    return rows.filter(pa.array([entry == kind for entry in rows.column("kind").to_pylist()], pa.bool_()))


def _faults(rows: pa.Table) -> list[str]:
    return [row["text"] for row in _of_kind(rows, gaps.FAULT).to_pylist()]


class _RestRows(NamedTuple):
    """The records of both sides that no block accounts for, and the row of each by its offset."""

    table: pa.Table
    source: dict[int, int]
    target: dict[int, int]

    @classmethod
    def from_table(cls, table: pa.Table) -> _RestRows:
        flags, offsets = table.column("is_target").to_pylist(), table.column("offset").to_pylist()
        sides: tuple[dict[int, int], dict[int, int]] = {}, {}
        for row, (is_target, offset) in enumerate(zip(flags, offsets, strict=True)):
            sides[is_target][offset] = row
        return cls(table, *sides)


def _with_restarts(differences: Iterable[RecordDifference], rest: _RestRows) -> list[RecordDifference]:
    """Note on what came twice when that began: by the newest record that the target had before it."""
    before = rest.table.column("before_ms").to_pylist()
    told, last, note = list(differences), -2, ""
    again = sorted(
        (entry.target_offset, row)
        for row, entry in enumerate(told)
        if entry.kind is DifferenceKind.DUPLICATED and entry.target_offset is not None
    )
    for offset, row in again:
        if offset > last + 1:
            newest = before[rest.target[offset]] if offset in rest.target else -1
            at = f"{datetime.fromtimestamp(newest / 1000, UTC):%H:%M:%S} UTC" if newest >= 0 else ""
            note = f"came twice, after the record of {at}" if at else "came twice"
        told[row], last = replace(told[row], note=note), offset
    return told


def _with_values(differences: Iterable[RecordDifference], rest: _RestRows) -> list[RecordDifference]:
    values = rest.table.column("value").to_pylist()

    def value(of: dict[int, int], offset: int | None) -> bytes | None:
        return values[of[offset]] if offset is not None and offset in of else None

    return [
        replace(
            entry,
            source_value=value(rest.source, entry.source_offset),
            target_value=value(rest.target, entry.target_offset),
        )
        for entry in differences
    ]
