"""What is said beside records: what changed while they were read, offsets alone, two mirrors of one source."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from mm2mgr.audit.report import AuditReport, DifferenceKind, FlowAudit, PartitionAudit, RecordDifference, Verdict
from mm2mgr.audit.verdicts import LaterLook, add_comparison, checked_again, judge_counts, same_windows
from mm2mgr.audit.windows import AuditOrder, Expectation, FlowOrder, LogAccess, LogWindow, Matching, PartitionOrder
from mm2mgr.partitions import Offsets, TopicPartition

T, R = TopicPartition("t", 0), TopicPartition("src.t", 0)
LOG, MIRROR = Offsets(0, 120), Offsets(0, 110)
SRC, TGT = LogAccess("src", {}), LogAccess("tgt", {})
MISSING = RecordDifference(DifferenceKind.MISSING, 5, None)


def part(end: int = 100, log: Offsets = LOG, target: Offsets = MIRROR, **more: object) -> PartitionOrder:
    windows = LogWindow(T, log.start, end), LogWindow(R, *target)
    return PartitionOrder(*windows, log, target, source_topic_id="A", target_topic_id="B", **more)  # type: ignore[arg-type]


def order(*parts: PartitionOrder, source: LogAccess = SRC, target: LogAccess = TGT) -> AuditOrder:
    return AuditOrder((FlowOrder("f", source, target, parts),))


def report(*differences: RecordDifference) -> AuditReport:
    counts = {DifferenceKind.MISSING: len(differences)} if differences else {}
    audit = PartitionAudit(T, R, (0, 100), (0, 110), 100, 100, counts, differences=differences)
    return AuditReport((FlowAudit("f", (audit,)),), 0.0, 1.0, "here")


def looks(source: LaterLook | None = None, target: LaterLook | None = None) -> dict[str, LaterLook]:
    same = LaterLook({"t": "A"}, frozenset({"t"}), {T: 0}), LaterLook({"src.t": "B"}, frozenset({"src.t"}), {R: 0})
    return {"src": source or same[0], "tgt": target or same[1]}


def test_what_did_not_change_stands() -> None:
    assert checked_again(order(part()), report(), looks()).verdict is Verdict.EQUAL
    assert checked_again(order(part()), report(MISSING), looks()).verdict is Verdict.DIFFERS


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (looks(source=LaterLook({"t": "C"}, frozenset({"t"}), {T: 0})), "created again"),
        (looks(target=LaterLook({"src.t": "C"}, frozenset({"src.t"}), {R: 0})), "created again"),
        (looks(source=LaterLook()), "was deleted"),
        (looks(target=LaterLook()), "was deleted"),
    ],
)
def test_another_log_is_neither_equal_nor_different(later: dict[str, LaterLook], words: str) -> None:
    for before in (report(), report(MISSING)):
        checked = checked_again(order(part()), before, later)
        assert checked.verdict is Verdict.NOT_JUDGED
        assert words in checked.flows[0].partitions[0].not_judged[0]


def test_what_retention_removed_meanwhile_is_not_judged_with_its_offsets() -> None:
    eaten = looks(target=LaterLook({"src.t": "B"}, frozenset({"src.t"}), {R: 40}))
    checked = checked_again(order(part()), report(), eaten)
    assert checked.flows[0].partitions[0].not_judged == (
        "offsets 0-39 of src.t-0 on tgt: retention removed them while they were read",
    )
    assert checked_again(order(part()), report(MISSING), eaten).verdict is Verdict.DIFFERS


def test_a_cluster_that_no_longer_answers_leaves_no_equal() -> None:
    checked = checked_again(order(part()), report(), looks(source=LaterLook(failure="src: no broker")))
    assert checked.verdict is Verdict.NOT_JUDGED


def test_counts_say_what_offsets_can() -> None:
    def count(one: PartitionOrder, **more: LogAccess) -> PartitionAudit:
        return judge_counts(order(one, **more), 0.0, 0.0).flows[0].partitions[0]

    assert count(part()).verdict is Verdict.EQUAL
    fewer = count(part(target=Offsets(0, 90)))  # the producers of the source may write transaction markers
    assert (fewer.counts, fewer.verdict) == ({}, Verdict.NOT_JUDGED)
    assert "10 offsets fewer" in fewer.not_judged[0]
    assert count(part(target=Offsets(0, 0))).counts == {DifferenceKind.MISSING: 100}
    assert count(part(target=Offsets(0, 125))).counts == {DifferenceKind.EXTRA: 5}
    older = count(part(2000, log=Offsets(1000, 2000), target=Offsets(0, 1500)))
    assert "may hide missing ones" in older.not_judged[0]
    assert count(part(log=Offsets(10, 120), target=Offsets(0, 125))).verdict is Verdict.NOT_JUDGED
    assert count(part(log=Offsets(10, 120), target=Offsets(15, 125))).verdict is Verdict.EQUAL
    assert count(part(expectation=Expectation(Matching.LATEST))).verdict is Verdict.NOT_JUDGED
    assert count(part(expectation=Expectation(Matching.FAN_IN))).verdict is Verdict.NOT_JUDGED
    assert count(part(), target=replace(TGT, committed=True)).verdict is Verdict.NOT_JUDGED
    assert count(part(not_judged=("no answer",))).not_judged == ("no answer",)


def test_two_mirrors_are_compared_over_what_both_stored() -> None:
    first, second = FlowOrder("a", SRC, TGT, (part(100),)), FlowOrder("b", SRC, TGT, (part(80, not_judged=("why",)),))
    other = replace(part(), source=LogWindow(TopicPartition("only-a", 0), 0, 5))
    both = same_windows(AuditOrder((replace(first, partitions=(part(100), other)), second)))
    assert [[each.source.end for each in flow.partitions] for flow in both.flows] == [[80], [80]]
    assert [flow.partitions[0].not_judged for flow in both.flows] == [("why",), ("why",)]
    assert "only-a-0" in both.warnings[0]


def test_only_what_one_mirror_has_is_told_of_both() -> None:
    alone = RecordDifference(DifferenceKind.MISSING, 7, None)
    flows = report(MISSING).flows[0], replace(report(MISSING, alone).flows[0], flow="g")
    (audit,) = add_comparison(AuditReport(flows, 0.0, 1.0, "here")).flows[2].partitions
    assert [(each.source_offset, each.note) for each in audit.differences] == [(7, "only in g")]
    assert audit.counts == {DifferenceKind.MISSING: 1}
    same = add_comparison(AuditReport((flows[0], replace(flows[0], flow="g")), 0.0, 1.0, "here"))
    assert same.flows[2].verdict is Verdict.EQUAL
    assert same.verdict is Verdict.DIFFERS


def beside(first: list[RecordDifference], second: list[RecordDifference]) -> PartitionAudit:
    """Compare two mirrors by their differences from one source."""

    def flow(name: str, told: list[RecordDifference]) -> FlowAudit:
        counts = dict(Counter(difference.kind for difference in told))
        return FlowAudit(name, (PartitionAudit(T, R, (0, 100), (0, 110), 100, 100, counts, differences=tuple(told)),))

    (audit,) = add_comparison(AuditReport((flow("f", first), flow("g", second)), 0.0, 1.0, "here")).flows[2].partitions
    return audit


def test_mirrors_that_differ_in_the_same_record_in_other_ways_are_not_equal() -> None:
    altered = RecordDifference(DifferenceKind.ALTERED, 5, 5, 1, "k", ("value",), content=1)
    assert beside([altered], [altered]).verdict is Verdict.EQUAL
    assert beside([altered], [replace(altered, content=2)]).counts == {DifferenceKind.ALTERED: 2}
    twice = [RecordDifference(DifferenceKind.DUPLICATED, 5, place) for place in (6, 50, 51)]
    assert beside(twice, twice).verdict is Verdict.EQUAL
    assert beside(twice[:1], twice).counts == {DifferenceKind.DUPLICATED: 2}
    extra = [RecordDifference(DifferenceKind.EXTRA, None, place, 1, content=3) for place in (6, 7, 8)]
    assert beside(extra[:1], extra).counts == {DifferenceKind.EXTRA: 2}
    assert beside(extra[:1], [replace(extra[0], content=4)]).counts == {DifferenceKind.EXTRA: 2}


def test_what_is_out_of_place_in_both_mirrors_at_other_offsets_is_not_judged() -> None:
    moved = RecordDifference(DifferenceKind.REORDERED, 5, 90)
    assert beside([moved], [moved]).verdict is Verdict.EQUAL
    audit = beside([moved], [replace(moved, target_offset=20)])
    assert audit.verdict is Verdict.NOT_JUDGED
    assert audit.not_judged[0].startswith("1 records are out of place in both mirrors")
