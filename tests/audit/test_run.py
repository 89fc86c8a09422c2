"""Both passes over logs in memory: what is judged, what only helps, and what nobody can judge."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import confluent_kafka
import pytest

from mm2mgr.audit.report import DifferenceKind, PartitionAudit, Verdict
from mm2mgr.audit.run import run_audit
from mm2mgr.audit.scan import ScanRange, tasks_of
from mm2mgr.audit.windows import CONTEXT, Expectation, LogAccess, LogWindow, Matching, PartitionOrder, RecordStep
from mm2mgr.partitions import Offsets, TopicPartition
from tests.clock import Clock, go_by
from tests.live.seen import Message

from .fake_logs import FakeLogs
from .faults import Fault, Mirror, in_order, records, told, with_faults

PLAIN = Expectation()
SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("src.t", 0)


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> FakeLogs:
    fake = FakeLogs()
    fake.install(monkeypatch)
    return fake


def audited(logs: FakeLogs, *parts: PartitionOrder, **more: object) -> PartitionAudit:
    found = run_audit(logs.order(*parts, most_differences=100_000, **more)).flows[0].partitions
    return found[0]


@pytest.mark.parametrize("seed", range(5))
def test_ranges_of_all_partitions_share_few_tasks(seed: int) -> None:
    """A window of a sample is three ranges of its partition; no task has a partition twice, and none too much."""
    chance = random.Random(seed)
    ranges = []
    for number in range(200):
        bounds = [0, *sorted(chance.sample(range(1, 6_000), 2)), 6_000]
        for side, alias in ((0, "src"), (1, "tgt")):
            windows = [LogWindow(TopicPartition("t", number), low, high) for low, high in pairwise(bounds)]
            ranges += [(LogAccess(alias, {}), ScanRange(number, side, window, 4, ())) for window in windows]
    tasks = tasks_of(ranges, 50_000, "blake2b", 1.0)
    total = 2 * 200 * 6_000
    assert total / 50_000 <= len(tasks) <= 1.3 * total / 50_000 + 6
    covered: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = {}
    for task in tasks:
        assert task.offsets <= 50_000
        assert len({entry.window.partition for entry in task.ranges}) == len(task.ranges)
        for entry in task.ranges:
            covered.setdefault((task.access.alias, entry.window.partition), []).append(
                (entry.window.first, entry.window.end)
            )
    for windows in covered.values():
        ordered = sorted(windows)
        assert (ordered[0][0], ordered[-1][1]) == (0, 6_000)
        assert all(before[1] == after[0] for before, after in pairwise(ordered))
    few = [(access, entry) for access, entry in ranges if entry.part < 12]
    assert len(tasks_of(few, 200_000, "blake2b", 1.0)) == 6


def faulty(seed: int, count: int = 3_000, faults: int = 30) -> tuple[list[Message], Mirror]:
    chance = random.Random(seed)
    log = records(chance, count)
    return log, with_faults(chance, log, faults)


@pytest.mark.parametrize("seed", range(4))
def test_each_fault_is_named_and_nothing_else(logs: FakeLogs, seed: int) -> None:
    log, mirror = faulty(seed)
    logs.put(log, mirror.log)
    found = audited(logs, logs.part(PLAIN))
    assert told(found.differences) == in_order(mirror.faults)
    assert (found.source_records, found.target_records) == (len(log), len(mirror.log))
    assert not found.not_judged


def test_equal_logs_are_read_once_and_equal(logs: FakeLogs) -> None:
    log = records(random.Random(5), 20_000)
    logs.put(log, log)
    found = audited(logs, logs.part(PLAIN))
    assert found.verdict is Verdict.EQUAL
    assert logs.clusters["src"].read_records == logs.clusters["tgt"].read_records == len(log)


@pytest.mark.parametrize("behind", [0, 1, 500, 5_000])
def test_records_after_the_stored_offset_are_no_fault_whether_they_arrived_or_not(logs: FakeLogs, behind: int) -> None:
    log = records(random.Random(6), 12_000)
    logs.put(log, log[: 6_000 + behind])
    assert audited(logs, logs.part(PLAIN, 6_000)).verdict is Verdict.EQUAL
    logs.put(log, [*log[:5_900], *log[5_901 : 6_000 + behind]])
    found = audited(logs, logs.part(PLAIN, 6_000))
    assert told(found.differences) == [(DifferenceKind.MISSING, 5_900, None, ())]


@pytest.mark.parametrize("seed", range(6))
def test_a_window_is_judged_as_the_whole_would_be(logs: FakeLogs, seed: int) -> None:
    log, mirror = faulty(seed, 16_000, 200)
    logs.put(log, mirror.log)
    chance = random.Random(seed)
    first = chance.randrange(3_000, 8_000)
    end = first + chance.randrange(200, 5_000)
    whole = logs.part(PLAIN)
    low, high = first - CONTEXT - 50, end + CONTEXT + 50  # the target has as many records, give or take some faults
    guess = LogWindow(TARGET, chance.choice([low, first + 300]), chance.choice([high, end - 100]))
    found = audited(logs, replace(whole, source=LogWindow(SOURCE, first, end), target=guess))
    inside = [fault for fault in mirror.faults if fault[1] is not None and first <= fault[1] < end]
    # Of two copies side by side either is the second one.
    assert [_any_copy(each) for each in told(found.differences) if each[1] is not None] == [
        _any_copy(each) for each in in_order(inside)
    ]
    assert all(mirror.log[each[2] or 0] == log[each[1] or 0] for each in told(found.differences) if _is_copy(each))
    extra = {fault[2] for fault in mirror.faults if fault[1] is None}
    assert {each[2] for each in told(found.differences) if each[1] is None} <= extra
    assert not found.not_judged
    assert found.source_records == end - first


def _is_copy(fault: Fault) -> bool:
    return fault[0] is DifferenceKind.DUPLICATED


def _any_copy(fault: Fault) -> Fault:
    return (*fault[:2], None if _is_copy(fault) else fault[2], fault[3])


def test_what_retention_removed_of_the_target_is_not_judged(logs: FakeLogs) -> None:
    log = records(random.Random(7), 3_000)
    logs.put(log, log)
    logs.clusters["tgt"].starts[TARGET] = 1_000
    found = audited(logs, logs.part(PLAIN))
    assert found.verdict is Verdict.NOT_JUDGED
    assert found.not_judged == (
        "source offsets 0-999: the target's log begins at 1000, so that retention may have removed them there",
    )


def test_records_that_the_source_no_longer_has_are_no_surplus(logs: FakeLogs) -> None:
    log = records(random.Random(8), 3_000)
    logs.put(log, log)
    logs.clusters["src"].starts[SOURCE] = 1_000
    assert audited(logs, logs.part(PLAIN)).verdict is Verdict.EQUAL


def test_a_target_without_records_lacks_all(logs: FakeLogs) -> None:
    log = records(random.Random(9), 300)
    logs.put(log, [])
    found = audited(logs, logs.part(PLAIN))
    assert found.counts == {DifferenceKind.MISSING: 300}


def test_nothing_before_the_first_mirrored_record_is_missed_of_a_flow_that_begins_at_the_end(logs: FakeLogs) -> None:
    log = records(random.Random(10), 3_000)
    logs.put(log, [*log[1_000:2_000], *log[2_001:]])
    found = audited(logs, logs.part(replace(PLAIN, late="it begins late")))
    assert found.counts == {DifferenceKind.MISSING: 1}
    assert found.expected == {"it begins late": 1_000}


@pytest.mark.parametrize("alias", ["src", "tgt"])
@pytest.mark.parametrize("code", [confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED, 0])
def test_what_cannot_be_read_is_not_judged_and_hides_no_other(
    logs: FakeLogs, alias: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_by(Clock(), monkeypatch)
    log = records(random.Random(11), 2_000)
    for number in range(2):
        logs.put(log, log, partition=number)
    logs.clusters[alias].fails_at[TopicPartition("t" if alias == "src" else "src.t", 0)] = (500, code)
    parts = [logs.part(PLAIN, number=number) for number in range(2)]
    first, second = run_audit(logs.order(*parts)).flows[0].partitions
    assert first.verdict is Verdict.NOT_JUDGED
    side = "source" if alias == "src" else "target"
    assert f"the {side}'s records from offset 500 on could not be read" in first.not_judged[0]
    assert second.verdict is Verdict.EQUAL


def test_a_restart_is_told_with_the_time_before_it(logs: FakeLogs) -> None:
    log = [
        replace(record, timestamp_ms=1_700_000_000_000 + 1_000 * row)
        for row, record in enumerate(records(random.Random(12), 3_000))
    ]
    logs.put(log, [*log[:2_000], *log[1_400:]])
    found = audited(logs, logs.part(PLAIN))
    assert found.counts == {DifferenceKind.DUPLICATED: 600}
    assert [(each.source_offset, each.target_offset) for each in found.differences] == [
        (1_400 + row, 2_000 + row) for row in range(600)
    ]
    assert {each.note for each in found.differences} == {"came twice, after the record of 22:46:39 UTC"}


def test_records_that_come_again_much_later_are_duplicates(logs: FakeLogs) -> None:
    log = records(random.Random(13), 9_000)
    logs.put(log, [*log, *log[100:200]])
    found = audited(logs, logs.part(PLAIN))
    assert told(found.differences) == [(DifferenceKind.DUPLICATED, 100 + row, 9_000 + row, ()) for row in range(100)]


def test_transformations_are_applied_before_records_are_compared(logs: FakeLogs) -> None:
    log = records(random.Random(14), 3_000)
    drops = RecordStep("no tombstones", condition="tombstones")
    strips = RecordStep("no header a", frozenset({"a"}))
    left = [replace(record, headers=()) for record in log if record.value is not None]
    logs.put(log, left)
    found = audited(logs, logs.part(replace(PLAIN, steps=(drops, strips))))
    assert found.verdict is Verdict.EQUAL
    assert found.expected == {"no tombstones": len(log) - len(left)}
    logs.put(log, [*left[:50], *left[51:]])
    assert audited(logs, logs.part(replace(PLAIN, steps=(drops, strips)))).counts == {DifferenceKind.MISSING: 1}


@pytest.mark.parametrize("field", ["key", "value", "timestamp", "headers"])
def test_a_field_that_does_not_count_may_differ(logs: FakeLogs, field: str) -> None:
    log = records(random.Random(15), 2_000)
    other = {
        "key": {"key": b"?"},
        "value": {"value": b"?"},
        "timestamp": {"timestamp_ms": 5},
        "headers": {"headers": (("?", b""),)},
    }[field]
    logs.put(log, [replace(record, **other) for record in log])  # type: ignore[arg-type]
    fields = tuple(each for each in PLAIN.fields if each != field)
    assert audited(logs, logs.part(replace(PLAIN, fields=fields))).verdict is Verdict.EQUAL
    assert audited(logs, logs.part(PLAIN)).verdict is Verdict.DIFFERS


def test_records_of_others_are_no_surplus_where_several_write(logs: FakeLogs) -> None:
    log, others = records(random.Random(16), 2_000), records(random.Random(17), 2_000, 1)
    both = [record for pair in zip(log, others, strict=True) for record in pair]
    together = replace(PLAIN, matching=Matching.FAN_IN)
    logs.put(log, both)
    assert audited(logs, logs.part(together)).verdict is Verdict.EQUAL
    logs.put(log, [*both[:400], *both[402:], both[0]])
    found = audited(logs, logs.part(together))
    assert told(found.differences) == [(DifferenceKind.MISSING, 200, None, ())]


def test_among_others_records_that_retention_may_have_removed_are_not_judged(logs: FakeLogs) -> None:
    """The first ones have equals of the other source, the next ones have not."""
    log = [Message(0, b"k", b"%d" % max(row, 40), (), 1_000) for row in range(200)]
    logs.put(log, [*log, *log[:3], *log[40:]])
    logs.clusters["tgt"].starts[TARGET] = 200
    together = replace(PLAIN, matching=Matching.FAN_IN)
    found = audited(logs, logs.part(together))
    assert found.verdict is Verdict.NOT_JUDGED
    assert found.not_judged[0].startswith("source offsets ")
    assert "the target's log begins at 200, so that retention may have removed them there" in found.not_judged[0]
    logs.put(log, [*log, *log[:100], *log[101:]])
    logs.clusters["tgt"].starts[TARGET] = 200
    assert told(audited(logs, logs.part(together)).differences) == [(DifferenceKind.MISSING, 100, None, ())]


def test_of_compacted_topics_the_latest_record_of_each_key_counts(logs: FakeLogs) -> None:
    chance = random.Random(18)
    log = [replace(record, key=b"k%d" % chance.randrange(50)) for record in records(chance, 2_000)]
    newest = {record.key: row for row, record in enumerate(log)}
    compacted = [record for row, record in enumerate(log) if newest[record.key] == row and record.value is not None]
    latest = replace(PLAIN, matching=Matching.LATEST)
    logs.put(log, compacted)
    assert audited(logs, logs.part(latest)).verdict is Verdict.EQUAL
    logs.put(log, [replace(compacted[0], headers=(("other", b""),)), *compacted[2:]])
    found = audited(logs, logs.part(latest))
    assert told(found.differences) == in_order(
        [
            (DifferenceKind.ALTERED, newest[compacted[0].key], 0, ("headers",)),
            (DifferenceKind.MISSING, newest[compacted[1].key], None, ()),
        ]
    )


def test_keys_that_a_flow_that_begins_at_the_end_never_had_are_not_judged(logs: FakeLogs) -> None:
    log = [replace(record, key=b"k%d" % row, value=b"v") for row, record in enumerate(records(random.Random(24), 60))]
    logs.put(log, log[20:])
    found = audited(logs, logs.part(replace(PLAIN, matching=Matching.LATEST, late="it begins late")))
    assert found.not_judged == ("20 keys: their records may be older than the first mirrored one: it begins late",)
    assert not found.counts


@pytest.mark.parametrize("alias", ["src", "tgt"])
def test_what_compaction_removes_while_both_logs_are_read_is_not_judged(logs: FakeLogs, alias: str) -> None:
    log = [replace(record, key=b"k%d" % row, value=b"v") for row, record in enumerate(records(random.Random(22), 60))]
    logs.put(log, [*log[:50], *log[51:]])
    part = logs.part(replace(PLAIN, matching=Matching.LATEST))
    newer = replace(log[20], value=b"newer")
    for cluster, partition in (("src", SOURCE), ("tgt", TARGET)):
        logs.clusters[cluster].logs[partition].append(newer)
    logs.clusters[alias].compacted.add((SOURCE if alias == "src" else TARGET, 20))
    found = audited(logs, part)
    assert told(found.differences) == [(DifferenceKind.MISSING, 50, None, ())]
    assert found.not_judged == (
        "1 keys: newer records of them came meanwhile, for which compaction may have removed those to compare",
    )
    logs.clusters["tgt"].fails_at[TARGET] = (60, confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED)
    found = audited(logs, part)
    assert found.verdict is Verdict.NOT_JUDGED
    assert "the target's records from offset 60 on could not be read again" in found.not_judged[0]


def test_of_a_compacted_topic_more_of_the_target_is_read_where_keys_differ(logs: FakeLogs) -> None:
    log = [replace(record, key=b"k%d" % row, value=b"v") for row, record in enumerate(records(random.Random(23), 600))]
    logs.put(log, log)
    whole = logs.part(replace(PLAIN, matching=Matching.LATEST))
    late = replace(whole, source=LogWindow(SOURCE, 300, 600), target=LogWindow(TARGET, 400, 600))
    assert audited(logs, late).verdict is Verdict.EQUAL


def test_values_are_shown_where_asked_for(logs: FakeLogs) -> None:
    log = records(random.Random(19), 500)
    logs.put(log, [*log[:100], replace(log[100], value=b"other"), *log[101:]])
    (plain,) = audited(logs, logs.part(PLAIN)).differences
    assert plain.source_value is plain.target_value is None
    (shown,) = audited(logs, logs.part(PLAIN), show_values=True).differences
    assert (shown.source_value, shown.target_value) == (log[100].value, b"other")


@pytest.mark.parametrize("matching", [Matching.ORDERED, Matching.LATEST])
def test_records_without_a_timestamp_get_one_on_the_target(logs: FakeLogs, matching: Matching) -> None:
    log = [replace(record, key=b"%d" % row) for row, record in enumerate(records(random.Random(20), 500))]
    old = [replace(record, timestamp_ms=-1) if row in (7, 80) else record for row, record in enumerate(log)]
    logs.put(old, log)
    found = audited(logs, logs.part(replace(PLAIN, matching=matching)))
    assert found.verdict is Verdict.EQUAL
    assert found.expected == {"the source's record has no timestamp, and the target's brokers set their own": 2}
    logs.put(log, [*log[:7], replace(log[7], timestamp_ms=5), *log[8:]])
    assert audited(logs, logs.part(replace(PLAIN, matching=matching))).counts == {DifferenceKind.ALTERED: 1}


@pytest.mark.parametrize("swapped", [False, True])
def test_two_mirrors_that_alter_a_record_differently_differ(logs: FakeLogs, *, swapped: bool) -> None:
    log = records(random.Random(21), 500)
    contents = []
    for value in (b"x", b"y" if swapped else b"x"):
        logs.put(log, [*log[:100], replace(log[100], value=value), *log[101:]])
        (told_difference,) = audited(logs, logs.part(PLAIN)).differences
        contents.append(told_difference.content)
    assert (contents[0] == contents[1]) is not swapped


def resent(logs: FakeLogs, again: int, *, starts: int = 0, first: int = 5_000) -> PartitionAudit:
    """Audit 1 000 records of a window where so many records of the log came once more at its end."""
    log = [Message(0, b"k", b"%d" % row, (), 1_000_000 + 100 * row) for row in range(20_000)]
    logs.put(log, [*log, *log[:again]])
    for cluster, topic in (("src", SOURCE), ("tgt", TARGET)):
        logs.clusters[cluster].starts[topic] = starts
    whole, end = logs.part(PLAIN), min(first + 1_000 + 2 * CONTEXT, 20_000 + again)
    target = LogWindow(TARGET, first - CONTEXT, 20_000 + again if end >= 20_000 else end)
    return audited(logs, replace(whole, source=LogWindow(SOURCE, first, first + 1_000), target=target))


@pytest.mark.parametrize("starts", [0, 100])
def test_a_window_that_may_have_come_twice_far_behind_is_not_equal(logs: FakeLogs, starts: int) -> None:
    found = resent(logs, 20_000, starts=starts)
    assert found.verdict is Verdict.NOT_JUDGED
    assert "the window may have come twice" in found.not_judged[0]


def test_a_few_records_that_came_twice_elsewhere_leave_a_window_judged(logs: FakeLogs) -> None:
    assert resent(logs, 0).verdict is Verdict.EQUAL
    assert resent(logs, 0, starts=100).verdict is Verdict.EQUAL
    assert resent(logs, 999).verdict is Verdict.EQUAL
    assert resent(logs, 3_000, first=19_000).verdict is Verdict.EQUAL, "the target is read to its end"


def test_an_empty_window_is_not_read(logs: FakeLogs) -> None:
    logs.put([], [])
    assert audited(logs, logs.part(PLAIN)).verdict is Verdict.EQUAL
    part = replace(logs.part(PLAIN), not_judged=("no offset is stored",), source_log=Offsets(0, 0))
    assert audited(logs, part).verdict is Verdict.NOT_JUDGED
