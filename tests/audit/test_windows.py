"""Windows at random places of logs with few kinds of record: no false difference, and not equal where a record must be lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mm2mgr.audit import gaps, run, verdicts
from mm2mgr.audit.report import DifferenceKind, PartitionAudit, RecordDifference, Verdict
from mm2mgr.audit.run import run_audit
from mm2mgr.audit.windows import ALL_FIELDS, Expectation, LogWindow, Matching, PartitionOrder
from mm2mgr.partitions import TopicPartition
from tests.examples import sampled
from tests.live.seen import Message

from .fake_logs import FakeLogs

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("src.t", 0)
AROUND = 40
TOO_CAREFUL = "not judged, though it could be known"
START_MS = 1_700_000_000_000
WITHOUT_TIMES = tuple(name for name in ALL_FIELDS if name != "timestamp")


@dataclass(frozen=True)
class Logs:
    """Both logs from their first record on, what retention removed of them, and how far the flow is."""

    source: list[Message]
    target: list[Message]
    starts: tuple[int, int]
    stored_end: int
    arrived_end: int
    fields: tuple[str, ...]
    what: str
    sent_again: tuple[int, ...] = ()
    """Rows of the target that a restart sent once more."""


def random_logs(chance: random.Random) -> Logs:
    """Mirror a log with records that were lost, altered, or sent again by a restart; some of it is not mirrored yet."""
    count = chance.choice((30, 120, 400, 700))
    kinds = chance.choice((1, 1, 2, 2, 3, 6, 50, count))
    order = chance.choice(("random", "random", "in turn", "stretches"))
    times = chance.choice(("same", "bursts", "apart", "not compared"))
    kind, source = 0, []
    for row in range(count):
        if order == "in turn":
            kind = row % kinds
        elif order == "random" or chance.random() < 0.02:
            kind = chance.randrange(kinds)
        at = {"same": 0, "bursts": row // 25}.get(times, row)
        source.append(Message(0, b"k", b"v%d" % kind, (), START_MS + 1_000 * at))
    stored_end = count - chance.choice((0, 0, 1, 10, count // 3))
    arrived_end = chance.randint(stored_end, count)
    arrived = [(message, row) for row, message in enumerate(source[:arrived_end])]
    faults = [chance.choice(("lost", "sent again", "altered")) for _ in range(chance.choice((0, 0, 1, 1, 2)))]
    for fault in faults:
        place = chance.randrange(stored_end)
        if fault == "lost":
            del arrived[place : place + chance.choice((1, 1, 3, 40))]
        elif fault == "altered" and place < len(arrived):
            arrived[place] = replace(arrived[place][0], value=chance.choice((b"v0", b"other"))), -1
        elif fault == "sent again":
            arrived[place:place] = arrived[max(0, place - chance.choice((1, 3, 30, 300))) : place]
    target = [message for message, _ in arrived]
    if times == "not compared":
        lag = chance.choice((0, 5, 500))
        target = [replace(message, timestamp_ms=START_MS + 1_000 * (lag + row)) for row, message in enumerate(target)]
    starts = [chance.choice((0, 0, 0, chance.randrange(1 + end // 3))) for end in (stored_end, len(arrived))]
    fields = WITHOUT_TIMES if times == "not compared" else ALL_FIELDS
    what = f"{count} records, {kinds} kinds {order}, times {times}, {faults}, starts {starts}, stored {stored_end}"
    rows = [row for _, row in arrived]
    again = tuple(place for place, row in enumerate(rows) if row >= 0 and row in rows[:place])
    return Logs(source, target, (starts[0], starts[1]), stored_end, arrived_end, fields, what, again)


class Truth:
    """All the shortest explanations of a target: what of it may be lost, or surplus, in at least one of them. `again`:
    rows of the target that are surplus in all."""

    def __init__(self, source: list[Message], logs: Logs, again: tuple[int, ...] = ()) -> None:
        texts = [
            [(message.value, message.timestamp_ms if "timestamp" in logs.fields else 0) for message in log]
            for log in (source, logs.target)
        ]
        codes = {text: code for code, text in enumerate(dict.fromkeys([*texts[0], *texts[1]]))}
        self.source, self.target = (np.array([codes[text] for text in log], np.int64) for log in texts)
        partners = self.target.copy()
        partners[list(again)] = -1
        self.before = _common_lengths(self.source, partners)
        self.after = _common_lengths(self.source[::-1], partners[::-1])[::-1, ::-1]
        self.length = self.before[-1, -1]

    def may_lack(self, row: int) -> bool:
        return bool((self.before[row] + self.after[row + 1]).max() == self.length)

    def may_exceed(self, row: int) -> bool:
        return bool((self.before[:, row] + self.after[:, row + 1]).max() == self.length)

    def may_be_equal(self, first: int, end: int) -> bool:
        size = end - first
        if size > len(self.target):
            return False
        sums = self.before[first, : len(self.target) + 1 - size] + size + self.after[end, size:]
        places = np.flatnonzero(sums == self.length).tolist()
        return any((self.target[place : place + size] == self.source[first:end]).all() for place in places)

    def may_differ(self, first: int, end: int) -> bool:
        inside = (int((self.before[row, :-1] + self.after[row, 1:]).max()) for row in range(first + 1, end))
        return any(map(self.may_lack, range(first, end))) or self.length in inside

    def may_be(self, difference: RecordDifference) -> bool:
        source, target = difference.source_offset, difference.target_offset
        if difference.kind is DifferenceKind.DUPLICATED:
            is_copy = self.source[source or 0] == self.target[target or 0]
            return bool(is_copy) and self.may_exceed(target or 0)
        return (source is None or self.may_lack(source)) and (target is None or self.may_exceed(target))


def all_truths(logs: Logs) -> Iterator[Truth]:
    """Yield what can be true: how many records have arrived nobody knows, and the fewest differences are likely; and
    what was done, where an altered record is as well one of those that were sent again."""
    whole = Truth(logs.source, logs)
    ends = range(logs.stored_end, len(logs.source) + 1)
    costs = [end + len(logs.target) - 2 * int(whole.before[end, -1]) for end in ends]
    likely = [end for end, cost in zip(ends, costs, strict=True) if cost == min(costs)]
    for end in {*(likely if len(logs.source) < 200 else likely[:: max(1, len(likely) - 1)]), logs.arrived_end}:
        yield Truth(logs.source[:end], logs)
    if logs.sent_again:
        yield Truth(logs.source[: logs.arrived_end], logs, logs.sent_again)


def _common_lengths(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the length of a longest common subsequence of each pair of beginnings."""
    lengths = np.zeros((len(first) + 1, len(second) + 1), np.int32)
    for row, code in enumerate(first):
        lengths[row + 1, 1:] = np.maximum.accumulate(np.maximum(lengths[row, 1:], lengths[row, :-1] + (second == code)))
    return lengths


def order_of(whole: PartitionOrder, logs: Logs, first: int, end: int) -> PartitionOrder:
    """Return a window of the source of whole logs, with the target's found by time as for `--since` and `--until`."""
    log, mirror, around = whole.source_log, whole.target_log, AROUND

    def place(offset: int, otherwise: int) -> int:
        if not log.start < offset < log.end:
            return otherwise
        at = logs.source[offset].timestamp_ms
        return next((row for row in range(*mirror) if logs.target[row].timestamp_ms >= at), otherwise)

    low, high = place(max(log.start, first - around), mirror.start), place(min(log.end, end + around), mirror.end)
    target = LogWindow(whole.target.partition, min(low, high + around), min(mirror.end, high + around))
    source = LogWindow(whole.source.partition, first, end)
    return replace(whole, source=source, target=target, stored_end=logs.stored_end)


def random_window(chance: random.Random, logs: Logs) -> tuple[int, int]:
    first = chance.choice((logs.starts[0], chance.randrange(logs.starts[0], logs.stored_end)))
    return first, chance.choice((logs.stored_end, chance.randrange(first, logs.stored_end) + 1))


def audited(fake: FakeLogs, logs: Logs, first: int, end: int) -> PartitionAudit:
    """Audit a window of the source."""
    fake.put(logs.source, logs.target)
    fake.clusters["src"].starts[SOURCE], fake.clusters["tgt"].starts[TARGET] = logs.starts
    part = order_of(fake.part(Expectation(fields=logs.fields)), logs, first, end)
    return run_audit(fake.order(part, most_differences=100_000)).flows[0].partitions[0]


def check_windows(fake: FakeLogs, seed: int, windows: int) -> Counter[str]:
    chance = random.Random(seed)
    logs = random_logs(chance)
    truths = list(all_truths(logs))
    outcomes: Counter[str] = Counter()
    for _ in range(windows):
        if logs.starts[0] >= logs.stored_end:
            break
        first, end = random_window(chance, logs)
        part_audit = audited(fake, logs, first, end)
        may_be_equal = any(truth.may_be_equal(first, end) for truth in truths)
        may_differ = any(truth.may_differ(first, end) for truth in truths)
        is_sure = may_be_equal != may_differ
        outcomes[f"{part_audit.verdict}, {'sure' if is_sure else 'not sure'}"] += 1
        told = (seed, logs.what, (first, end), part_audit.differences[:5], part_audit.not_judged)
        assert part_audit.verdict is not Verdict.EQUAL or may_be_equal, told
        assert all(any(truth.may_be(difference) for truth in truths) for difference in part_audit.differences), told
        if is_sure and part_audit.verdict is Verdict.NOT_JUDGED and logs.starts == (0, 0) and not logs.sent_again:
            outcomes[TOO_CAREFUL] += 1
    return outcomes


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeLogs:
    """Logs in memory, of which few records around a window are read."""
    for module in (run, verdicts):
        monkeypatch.setattr(module, "CONTEXT", AROUND)
    logs = FakeLogs()
    logs.install(monkeypatch)
    return logs


@sampled("block", [0], range(4))
def test_a_window_of_equal_records_has_no_difference_that_cannot_be(fake: FakeLogs, block: int) -> None:
    outcomes = sum((check_windows(fake, 1_000 * block + seed, 3) for seed in range(15)), Counter[str]())
    assert not outcomes[TOO_CAREFUL]


@pytest.mark.matrix
@pytest.mark.parametrize("block", range(10))
def test_many_windows_of_equal_records(fake: FakeLogs, block: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(100):
        outcomes += check_windows(fake, 1_000_000 + 1_000 * block + seed, 5)
        check_among_others(fake, 1_000_000 + 1_000 * block + seed)
    assert outcomes[TOO_CAREFUL] <= 10, "of 500"
    print(dict(outcomes))


def test_which_of_equal_records_is_lost_is_known_of_the_whole_log_only(
    fake: FakeLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = [Message(0, b"k", b"v", (), START_MS) for _ in range(1_000)]
    same = Logs(log, log, (0, 0), 1_000, 1_000, ALL_FIELDS, "")
    one_lost = replace(same, target=log[1:])
    assert audited(fake, same, 400, 500).verdict is Verdict.EQUAL
    part = audited(fake, one_lost, 400, 500)
    where = "source offsets 400-499: equal records around them leave open which of them are on the target"
    assert (part.verdict, part.not_judged) == (Verdict.NOT_JUDGED, (where,))
    assert audited(fake, one_lost, 0, 1_000).counts == {DifferenceKind.MISSING: 1}
    monkeypatch.setattr(run, "_SEARCHED", 900)  # so much is read around a window
    assert audited(fake, same, 400, 500).not_judged == (where,)


def test_what_is_sent_again_between_two_records_of_the_window_is_told_also_where_it_equals_one_before_it(
    fake: FakeLogs,
) -> None:
    kinds = random.Random(1).choices(range(6), k=200)
    kinds[97:103] = 1, 2, 2, 1, 2, 2
    log = [Message(0, b"k", b"v%d" % kind, (), START_MS) for kind in kinds]
    logs = Logs(log, [*log[:103], *log[100:]], (33, 22), 200, 200, ALL_FIELDS, "", (103, 104, 105))
    part = audited(fake, logs, 90, 130)
    assert part.counts == {DifferenceKind.DUPLICATED: 3}


def check_among_others(fake: FakeLogs, seed: int) -> None:
    """A log is mirrored with one of another source, of the same few kinds; only a lost record of a kind of its own is told."""
    chance = random.Random(seed)
    logs = random_logs(chance)
    count = len(logs.source)
    lost = chance.randrange(count)
    sources = [list(logs.source), [chance.choice(logs.source) for _ in range(count)]]
    sources[0][lost] = replace(sources[0][lost], value=b"once")
    is_lost = chance.random() < 0.5
    queues = [[row for row in range(count) if not (is_lost and row == lost)], list(range(count))]
    target: list[Message] = []
    while any(queues):
        number, size = chance.randrange(2), chance.choice((1, 1, 5, 40))
        target += [sources[number][row] for row in queues[number][:size]]
        del queues[number][:size]
    fake.put(sources[0], target)
    for cluster in fake.clusters.values():
        cluster.starts.clear()
    first = chance.choice((0, chance.randrange(count)))
    end = chance.randrange(first, count) + 1
    low = chance.choice((0, min(first, len(target))))
    whole = fake.part(Expectation(Matching.FAN_IN, logs.fields))
    windows = LogWindow(SOURCE, first, end), LogWindow(TARGET, low, chance.randrange(low, len(target)) + 1)
    part = replace(whole, source=windows[0], target=windows[1], stored_end=count)
    part_audit = run_audit(fake.order(part)).flows[0].partitions[0]
    lost_offsets = [lost] if is_lost and first <= lost < end else []
    assert [difference.source_offset for difference in part_audit.differences] == lost_offsets, (
        seed,
        logs.what,
        windows,
    )


@sampled("block", [0], range(2))
def test_a_window_among_records_of_others_lacks_only_what_has_no_equal(fake: FakeLogs, block: int) -> None:
    for seed in range(20):
        check_among_others(fake, 1_000 * block + seed)


def distinct(count: int, *, at: int = 0) -> list[Message]:
    return [Message(0, b"k", b"%d" % row, (), START_MS + at * row) for row in range(count)]


@pytest.mark.parametrize("fields", [ALL_FIELDS, WITHOUT_TIMES])
@sampled("size", [1, 500], [30])
def test_a_window_is_found_far_behind_where_its_times_point(fake: FakeLogs, size: int, fields: tuple[str, ...]) -> None:
    """All records have one timestamp, or the target's were set by a copy that was made later."""
    log = distinct(3_000)
    late = log if fields == ALL_FIELDS else [replace(message, timestamp_ms=START_MS + 5) for message in log]
    same = Logs(log, late, (0, 0), 3_000, 3_000, fields, "")
    for first in range(1_500, 2_400, 100):
        assert audited(fake, same, first, first + size).verdict is Verdict.EQUAL, first
    one_lost = replace(same, target=[*late[:2_000], *late[2_001:]])
    part_audit = audited(fake, one_lost, 2_000, 2_000 + size)
    assert [(difference.kind, difference.source_offset) for difference in part_audit.differences] == [
        (DifferenceKind.MISSING, 2_000)
    ]


def whole(
    fake: FakeLogs, source: list[Message], target: list[Message], stored: int, fields: tuple[str, ...]
) -> PartitionAudit:
    fake.put(source, target)
    return run_audit(fake.order(fake.part(Expectation(fields=fields), stored))).flows[0].partitions[0]


@pytest.mark.parametrize("fields", [ALL_FIELDS, WITHOUT_TIMES])
def test_what_came_again_behind_all_that_is_not_stored_yet_is_told(
    fake: FakeLogs, monkeypatch: pytest.MonkeyPatch, fields: tuple[str, ...]
) -> None:
    log = distinct(3_000, at=1_000)
    assert whole(fake, log, log, 1_000, fields).verdict is Verdict.EQUAL
    for arrived, again in ((3_000, range(300, 900)), (2_000, range(300, 900)), (1_000, range(1_000))):
        target = [*log[:arrived], *(log[row] for row in again)]
        part_audit = whole(fake, log, target, 1_000, fields)
        assert part_audit.counts == {DifferenceKind.DUPLICATED: len(again)}, (arrived, again)
    monkeypatch.setattr(run, "_SEARCHED", 100)
    assert whole(fake, log, log, 1_000, fields).verdict is Verdict.EQUAL
    part_audit = whole(fake, log, [*log[:2_000], *log[300:900]], 1_000, fields)
    assert part_audit.verdict is (Verdict.DIFFERS if fields == ALL_FIELDS else Verdict.NOT_JUDGED)


@pytest.mark.parametrize("seed", [2001059, 2005517, 2005767, 1001078, 1010001])
def test_where_retention_cut_a_log_nothing_is_told_that_partners_by_chance_suggest(fake: FakeLogs, seed: int) -> None:
    check_windows(fake, seed, 5)


def test_without_timestamps_copies_right_before_what_retention_left_are_not_equal(fake: FakeLogs) -> None:
    log = distinct(300, at=1_000)
    sent_again = Logs(log, [*log[:100], *log[50:]], (50, 0), 300, 300, WITHOUT_TIMES, "")
    part_audit = audited(fake, sent_again, 50, 300)
    assert part_audit.verdict is Verdict.NOT_JUDGED
    where = "source offsets 50-99: the target has records before or behind"
    assert any(reason.startswith(where) for reason in part_audit.not_judged)
    assert audited(fake, replace(sent_again, target=log), 50, 300).verdict is Verdict.EQUAL


def test_without_timestamps_copies_of_a_restart_before_another_are_not_equal(fake: FakeLogs) -> None:
    log = distinct(60, at=1_000)
    twice = Logs(log, [*log[:14], *log[3:17], *log[7:]], (8, 13), 60, 60, WITHOUT_TIMES, "")
    part_audit = audited(fake, twice, 8, 60)
    assert part_audit.verdict is Verdict.NOT_JUDGED
    assert any(reason.startswith("source offsets 8-16: the target has") for reason in part_audit.not_judged)


def test_copies_of_what_retention_removed_are_not_judged(fake: FakeLogs) -> None:
    log = distinct(3_000, at=1_000)
    nobodys = replace(log[1_200], value=b"nobody's")
    target = [*log[:1_200], nobodys, *log[1_200:2_000], *log[20:]]
    part_audit = audited(fake, Logs(log, target, (50, 0), 3_000, 3_000, ALL_FIELDS, ""), 50, 3_000)
    assert part_audit.counts == {DifferenceKind.DUPLICATED: 1_950, DifferenceKind.EXTRA: 1}
    where = "30 of target offsets 2001-2030: they may be of the source's records before its offset 50, which retention"
    assert [reason[: len(where)] for reason in part_audit.not_judged] == [where]


@pytest.mark.parametrize("fields", [ALL_FIELDS, WITHOUT_TIMES])
def test_what_came_late_of_removed_records_is_not_extra_and_what_nobody_sent_is(
    fake: FakeLogs, fields: tuple[str, ...]
) -> None:
    log = distinct(600, at=1_000)
    nobodys = replace(log[300], value=b"nobody's")
    target = [*log[:49], *log[50:60], log[49], *log[60:300], nobodys, *log[300:]]
    part_audit = audited(fake, Logs(log, target, (50, 0), 600, 600, fields, ""), 50, 600)
    assert part_audit.counts == {DifferenceKind.EXTRA: 1}
    assert [difference.target_offset for difference in part_audit.differences] == [300]
    where = (
        "1 of target offsets 59-59: they may be of the source's records before its offset 50, which retention removed"
    )
    assert part_audit.not_judged == (where,)
    assert audited(fake, Logs(log, target, (48, 0), 600, 600, fields, ""), 48, 600).counts == {
        DifferenceKind.REORDERED: 1,
        DifferenceKind.EXTRA: 1,
    }


@pytest.mark.parametrize("first_arrived", [True, False])
@pytest.mark.parametrize("cut", [0, 8])
def test_of_a_record_from_before_the_window_the_first_copy_is_its_arrival(
    fake: FakeLogs, cut: int, first_arrived: bool
) -> None:
    """A restart sent it twice more: between records of the window."""
    log = distinct(600, at=1_000)
    target = [*log[:300], log[20], log[21], *log[300:310], log[20], *log[310:]]
    if not first_arrived:
        del target[20]
    part_audit = audited(fake, Logs(log, target, (0, cut), 600, 600, ALL_FIELDS, ""), 280, 320)
    told = Counter((entry.kind, entry.source_offset) for entry in part_audit.differences)
    both = {(DifferenceKind.DUPLICATED, 20): 1, (DifferenceKind.DUPLICATED, 21): 1}
    if first_arrived:
        assert told == both | {(DifferenceKind.DUPLICATED, 20): 2}
    elif cut:
        assert told == both
        assert [reason[:34] for reason in part_audit.not_judged] == ["1 of target offsets 299-299: their"]
    else:
        assert told == both | {(DifferenceKind.REORDERED, 20): 1}


def test_a_gap_of_few_records_at_many_offsets_is_compared_whole(
    fake: FakeLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MOST_IN_A_GAP", 60)
    log = distinct(120, at=1_000)
    fake.clusters["src"].compacted = {(SOURCE, at) for at in range(10, 109, 2)}
    kept = [message for at, message in enumerate(log) if (SOURCE, at) not in fake.clusters["src"].compacted]
    assert (len(kept), whole(fake, log, kept, 120, ALL_FIELDS).verdict) == (70, Verdict.EQUAL)
    part_audit = whole(fake, log[:118], [*kept[1:59], *kept[60:68]], 118, ALL_FIELDS)
    assert any(reason.endswith("too many differ to compare them one by one") for reason in part_audit.not_judged)
    fake.clusters["src"].compacted |= {(SOURCE, at) for at in range(11, 41, 2)}
    kept = [message for at, message in enumerate(log) if (SOURCE, at) not in fake.clusters["src"].compacted]
    part_audit = whole(fake, log, [*kept[:40], *kept[41:]], 120, ALL_FIELDS)
    assert (part_audit.counts, part_audit.not_judged) == ({DifferenceKind.MISSING: 1}, ())


def test_what_came_three_times_behind_what_is_read_is_told_twice(fake: FakeLogs) -> None:
    log = distinct(300, at=1_000)
    target = [*log[:80], *log[:70], *log[20:75]]
    part_audit = whole(fake, log, target, 67, ALL_FIELDS)
    assert part_audit.counts == {DifferenceKind.DUPLICATED: 67 + 47}
    assert part_audit.not_judged == ()


def test_where_timestamps_are_in_disorder_what_the_target_has_before_its_first_partner_may_be_copies(
    fake: FakeLogs,
) -> None:
    """A restart sent all again, and retention removed the beginning of both logs, also of the first copies."""
    log = distinct(600, at=10)
    log = [
        replace(message, timestamp_ms=message.timestamp_ms - 3_000 * (row % 9 == 1)) for row, message in enumerate(log)
    ]
    target = [*log[:400], *log[50:]]
    part_audit = audited(fake, Logs(log, target, (100, 250), 600, 600, ALL_FIELDS, ""), 100, 600)
    assert part_audit.verdict is not Verdict.EQUAL
    assert set(part_audit.counts) <= {DifferenceKind.DUPLICATED}
    assert any("the target has records before or behind" in reason for reason in part_audit.not_judged)


def test_what_restarts_alone_explain_is_not_told_as_out_of_place_or_missing(fake: FakeLogs) -> None:
    """By the fewest differences records of few kinds moved; it may as well be that some were sent again."""
    chance = random.Random(7)
    outcomes: Counter[str] = Counter()
    for _ in range(40):
        log = [Message(0, b"k", b"v%d" % chance.randrange(3), (), START_MS) for _ in range(160)]
        at = chance.randrange(60, 120)
        target = [*log[:at], *log[at - chance.randrange(20, 50) :]]
        part_audit = whole(fake, log, target, 150, ALL_FIELDS)
        assert set(part_audit.counts) <= {DifferenceKind.DUPLICATED}, part_audit.counts
        outcomes[part_audit.verdict] += 1
    assert outcomes[Verdict.DIFFERS] >= 30
    assert not outcomes[Verdict.EQUAL]


def test_what_could_not_be_searched_is_neither_extra_nor_missing(
    fake: FakeLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = distinct(600, at=1_000)
    logs = Logs(log, [*log[:400], *log[20:60], *log[400:]], (0, 0), 600, 600, ALL_FIELDS, "")
    assert audited(fake, logs, 300, 500).counts == {DifferenceKind.DUPLICATED: 40}
    read = gaps._read

    def fails(task: gaps.GapTask, side: gaps.LogSide, *others: Any, **more: Any) -> Any:
        if task.wanted_hashes is not None:
            raise gaps._Unreadable(side, side.range.window.first, "retention")
        return read(task, side, *others, **more)

    monkeypatch.setattr(gaps, "_read", fails)
    part_audit = audited(fake, logs, 300, 500)
    assert (part_audit.verdict, part_audit.differences) == (Verdict.NOT_JUDGED, ())
    assert "could not be read again: retention" in part_audit.not_judged[0]


def test_a_record_that_arrived_far_behind_the_window_is_not_missing(fake: FakeLogs) -> None:
    log = distinct(900, at=1_000)
    once = [*log[:501], *log[502:]]
    again = Logs(log, [*once[:703], *log], (0, 0), 900, 900, ALL_FIELDS, "")
    part_audit = audited(fake, again, 493, 523)
    assert part_audit.verdict is Verdict.NOT_JUDGED
    assert any(reason.startswith("1 of source offsets 501-501") for reason in part_audit.not_judged)
    nowhere = replace(again, target=[*once[:703], *once])
    assert audited(fake, nowhere, 493, 523).counts == {DifferenceKind.MISSING: 1}


def test_a_record_of_behind_the_window_that_came_between_two_of_it_is_told(fake: FakeLogs) -> None:
    log = distinct(40, at=1_000)
    target = [*log[:17], log[18], log[17], *log[19:]]
    for end in (18, 19):
        part_audit = audited(fake, Logs(log, target, (0, 8), 40, 40, ALL_FIELDS, ""), 14, end)
        assert part_audit.counts == {DifferenceKind.REORDERED: 1}


def test_a_window_of_a_log_that_repeats_itself_is_not_found_in_an_earlier_period(fake: FakeLogs) -> None:
    period = [replace(message, timestamp_ms=START_MS) for message in distinct(100)]
    same = Logs(period * 9, period * 9, (0, 0), 899, 900, ALL_FIELDS, "")
    for first, end in ((709, 827), (805, 810), (300, 450)):
        assert audited(fake, same, first, end).verdict is Verdict.EQUAL
