"""What audits leave: rows of their table, entries of the ledger with exact offsets, and problems until acknowledged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.audit.report import AuditReport, DifferenceKind, PartitionAudit, RecordDifference, ranges_of
from mm2mgr.observe.audits import AuditState, audit_rows, audit_states, ledger_rows
from mm2mgr.observe.losses import Acknowledgement, LossEntry, acknowledgement_of, entries_of
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.schema import AuditRow, LossRow
from mm2mgr.samples.store import AuditStore
from mm2mgr.topology import Flow
from tests.audit.reports import BEGAN, DIFFERS, EATEN, EQUAL, MISSING, part, record, report
from tests.observe.estate import Estate, estate, flow_of, sentences

DAY = 86_400.0


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return flow_of(tmp_path)


def of(flow: Flow, audit: AuditReport) -> AuditReport:
    return replace(audit, flows=tuple(replace(each, flow=flow.id) for each in audit.flows))


def rows_of(flow: Flow, audit: AuditReport) -> list[AuditRow]:
    return audit_rows(of(flow, audit), {flow.id: flow}, "command")


def lost(flow: Flow, audit: AuditReport, entries: tuple[LossEntry, ...] = ()) -> list[LossRow]:
    return ledger_rows(of(flow, audit), {flow.id: flow}, entries)


# --- the table --------------------------------------------------------------------------------------------------------


def test_a_row_has_windows_counts_and_verdict(flow: Flow) -> None:
    missing, mixed, eaten = rows_of(flow, DIFFERS)
    assert (missing.cluster, missing.topic, missing.partition, missing.target_topic) == ("A", "orders", 0, "a.orders")
    assert (missing.source_first, missing.source_end, missing.target_first, missing.target_end) == (
        1000,
        1100,
        900,
        997,
    )
    assert (missing.missing, missing.extra, missing.verdict, missing.not_judged) == (3, 0, "differs", None)
    assert (mixed.duplicated, mixed.altered, mixed.extra, mixed.expected) == (1, 1, 40, 2)
    assert eaten.verdict == "not judged"
    assert str(eaten.not_judged).startswith("offsets 1000 to 1049 were deleted")


def test_the_windows_of_a_sample_are_one_row_of_their_partition(flow: Flow) -> None:
    windows = [
        part(0, source_window=(1000, 1010), source_records=10),
        part(0, source_window=(1050, 1060), source_records=9),
    ]
    (row,) = rows_of(flow, report(*windows, replace(MISSING, source_window=(1090, 1100), source_records=10)))
    assert (row.windows, row.source_first, row.source_end, row.source_records) == (3, 1000, 1100, 29)
    assert (row.missing, row.verdict) == (3, "differs")


def test_a_flow_that_could_not_be_judged_at_all_has_a_row_and_a_strange_flow_none(flow: Flow) -> None:
    (row,) = rows_of(flow, report(not_judged=("source a: no broker answered",)))
    assert (row.topic, row.partition, row.verdict, row.not_judged) == (
        "",
        -1,
        "not judged",
        "source a: no broker answered",
    )
    assert audit_rows(report(part(0), flow="x beside y"), {flow.id: flow}, "command") == []


def test_the_table_keeps_every_audit_once_and_90_days(flow: Flow, tmp_path: Path) -> None:
    store, today = AuditStore(tmp_path / "store", "team"), rows_of(flow, DIFFERS)
    assert store.read() == []
    for age in (100, 89, 1, 0):
        rows = [replace(row, time_ms=row.time_ms - round(age * DAY * 1000)) for row in today]
        store.append(rows, rows[0].time_ms)
        store.append(rows[:1], rows[0].time_ms)
    AuditStore(tmp_path / "store", "other").append(today, today[0].time_ms)
    kept = store.read()
    assert len(kept) == 9, "three audits of three partitions; rows that repeat count once"
    assert [row.time_ms for row in kept] == sorted(row.time_ms for row in kept)
    assert store.read(today[0].time_ms) == sorted(today, key=lambda row: row.partition)
    days = {file.parent.name: file for file in (tmp_path / "store" / "audits").glob("day=*/*.parquet")}
    assert len(store._table.files()) == 3 + 2, "a day that is over is one file"
    assert "day=2026-11-26" in days


# --- the ledger -------------------------------------------------------------------------------------------------------


def test_what_differs_is_in_the_ledger_with_exact_offsets(flow: Flow) -> None:
    entries = entries_of(lost(flow, DIFFERS))
    named = {
        (entry.cause, entry.cluster, entry.partition.topic, entry.offsets_text, entry.records) for entry in entries
    }
    assert named == {
        ("missing", "A", "orders", "1010 to 1011", 2),
        ("missing", "A", "orders", "1020", 1),
        ("duplicated", "A", "orders", "1050", 1),
        ("altered", "A", "orders", "1060", 1),
        ("extra", "B", "a.orders", "900 to 999", 40),
    }, "of 40 extra records one is listed, so the range is the window"
    assert {entry.kind for entry in entries} == {"audit"}
    assert all(entry.least_records == entry.records for entry in entries)


def test_the_ledger_has_each_missing_record_whatever_is_missing(flow: Flow) -> None:
    for seed in range(200):
        rng = random.Random(seed)
        gone = sorted(rng.sample(range(1000, 1100), rng.randint(1, 60)))
        differences = tuple(record(DifferenceKind.MISSING, offset, None) for offset in gone)
        audit = report(part(0, counts={DifferenceKind.MISSING: len(gone)}, differences=differences))
        entries = entries_of(lost(flow, audit))
        covered = [place for entry in entries for place in range(entry.first_offset, (entry.last_offset or 0) + 1)]
        assert sorted(covered) == gone, seed


def test_a_second_audit_writes_nothing_that_the_ledger_has_acknowledged_or_not(flow: Flow) -> None:
    rows = lost(flow, DIFFERS)
    entries = entries_of(rows)
    assert lost(flow, DIFFERS, entries) == []
    acks = [acknowledgement_of(entry, Acknowledgement("jo", BEGAN, "restored")) for entry in entries]
    assert lost(flow, DIFFERS, entries_of([*rows, *acks])) == []
    wider = replace(
        MISSING,
        counts={DifferenceKind.MISSING: 4},
        differences=(*MISSING.differences, record(DifferenceKind.MISSING, 1012, None)),
    )
    again = lost(flow, report(wider), entries)
    assert [(row.first_offset, row.last_offset) for row in again] == [(1010, 1012)]
    assert lost(flow, report(replace(MISSING, source_topic_id="created again")), entries), "other offsets, same names"


def test_each_of_many_ranges_is_an_entry_so_that_a_new_one_between_them_is_told(flow: Flow) -> None:
    gone = [record(DifferenceKind.MISSING, 1000 + 2 * number, None) for number in range(1_500)]

    def audit(*more: RecordDifference, most: int = 300) -> AuditReport:
        every = sorted((*gone, *more), key=lambda each: each.source_offset or 0)
        counts = {DifferenceKind.MISSING: len(every)}
        listed, unlisted = tuple(every[:most]), ranges_of(every[most:])
        return report(part(0, source_window=(1000, 5000), counts=counts, differences=listed, unlisted=unlisted))

    rows = lost(flow, audit())
    assert len(rows) == 1_000
    assert [(row.first_offset, row.records) for row in rows[:2]] == [(1000, 1), (1002, 1)]
    assert (rows[-1].first_offset, rows[-1].last_offset, rows[-1].records) == (2998, 3998, 501)
    assert lost(flow, audit(), entries_of(rows)) == []
    acks = [acknowledgement_of(entry, Acknowledgement("jo", BEGAN, "known")) for entry in entries_of(rows)]
    (again,) = [
        row
        for row in lost(flow, audit(record(DifferenceKind.MISSING, 1101, None)), entries_of([*rows, *acks]))
        if row.first_offset < 2990
    ]
    assert (again.first_offset, again.last_offset) == (1100, 1102)


def test_a_ledger_of_many_ranges_is_quick(flow: Flow) -> None:
    apart = tuple(record(DifferenceKind.MISSING, 1000 + 2 * number, None) for number in range(100))
    whole = part(0, source_window=(1000, 2000), counts={DifferenceKind.MISSING: 100}, differences=apart)
    parts = [replace(whole, source=TopicPartition("orders", number)) for number in range(100)]
    rows = lost(flow, report(*parts))
    assert len(rows) == 10_000
    assert lost(flow, report(*parts), entries_of(rows)) == []


def test_what_the_config_explains_is_no_loss(flow: Flow) -> None:
    dropped = record(DifferenceKind.MISSING, 1000, None, expected="transformation 'drop' drops it")
    assert lost(flow, report(part(0, expected={"dropped": 1}, differences=(dropped,)))) == []


# --- the newest verdict -----------------------------------------------------------------------------------------------


def later(rows: list[AuditRow], seconds: float) -> list[AuditRow]:
    return [replace(row, time_ms=row.time_ms + round(seconds * 1000)) for row in rows]


def test_the_newest_verdict_is_that_of_the_last_audit_that_judged_records(flow: Flow) -> None:
    nothing = part(0, source_records=0, target_records=0, not_judged=("no broker answered",))
    rows = [*rows_of(flow, DIFFERS), *later(rows_of(flow, EQUAL), 60), *later(rows_of(flow, report(nothing)), 120)]
    state = audit_states(rows)[flow.id]
    assert (state.judged_at, state.records) == (BEGAN + 60, 200)
    assert state.counts == {"missing": 0, "duplicated": 0, "altered": 0, "reordered": 0, "extra": 0}
    assert state.not_judged == "no broker answered"
    assert audit_states(rows_of(flow, report(nothing)))[flow.id] == AuditState(not_judged="no broker answered")
    idle = part(0, source_records=0, target_records=0)
    assert audit_states(rows_of(flow, report(idle)))[flow.id].judged_at == BEGAN, "an empty window is judged"


# --- problems ---------------------------------------------------------------------------------------------------------


@contextmanager
def audited(tmp_path: Path, more: str = "audit: 2%") -> Iterator[Estate]:
    with estate(tmp_path, more=more) as small:
        yield small


def keep(small: Estate, *parts: PartitionAudit, at: float) -> None:
    from mm2mgr.problems.status import record as record_report

    audit = replace(report(*parts, flow="orders:A->B"), began=at, seconds=0.0)
    assert record_report(small.topology, audit, "follow", small.options) == []


def test_differences_are_a_problem_until_they_are_acknowledged(tmp_path: Path) -> None:
    with audited(tmp_path, "") as small:
        small.flow()
        keep(small, MISSING, EATEN, at=small.now)
        problem = small.flow(later_seconds=1)
        assert problem.health == "problem"
        (sentence,) = sentences(problem)
        assert sentence.startswith(
            "3 records missing in topic orders, as an audit found: orders-0 (offsets 1010 to 1011)"
        )
        assert "mm2mgr audit 'orders:A->B' --repair-plan" in sentence
        assert problem.problems[0].kind == "audit-differs"
        assert problem.audit is None, "it declares no audits"


def test_two_days_without_a_verdict_are_a_problem_where_audits_are_declared(tmp_path: Path) -> None:
    with audited(tmp_path) as small:
        assert small.flow().problems == ()
        assert small.flow(later_seconds=2 * DAY - 10).problems == ()
        (sentence,) = sentences(small.flow(later_seconds=20))
        assert sentence.startswith("audit: 2.00% is declared, and nothing was judged for 2 d: look at the process")
        keep(small, part(0), at=small.now)
        flow = small.flow(later_seconds=1)
        assert flow.problems == ()
        assert flow.audit is not None
        assert flow.audit.records == 100
        assert flow.audit.sentence.endswith(" UTC: 100 records compared, none differs.")
        keep(
            small, part(0, source_records=0, target_records=0, not_judged=("source A: no broker",)), at=small.now + DAY
        )
        (sentence,) = sentences(small.flow(later_seconds=2 * DAY + 60))
        assert "(the last audit: source A: no broker)" in sentence


def test_a_flow_without_audits_is_never_asked_for_one(tmp_path: Path) -> None:
    with audited(tmp_path, "") as small:
        small.flow()
        assert small.flow(later_seconds=30 * DAY).problems == ()
