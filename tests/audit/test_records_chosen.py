"""`records` on logs in memory: which records are shown, and what is not said of a mirror that may be elsewhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from types import SimpleNamespace

import pytest

from mm2mgr import operations
from mm2mgr.audit.windows import Expectation, Matching
from mm2mgr.errors import ExitCode, InvalidArgument
from mm2mgr.operations import FlowRecords, MirrorState, RecordsOptions, Workspace
from mm2mgr.partitions import TopicPartition
from tests.clock import jumping
from tests.live.seen import Message

from .fake_logs import FakeLogs
from .test_narrow_windows import START_MS, logs  # noqa: F401  a fixture

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("src.t", 0)


def plain(count: int) -> list[Message]:
    return [Message(0, b"k%d" % row, b"v%d" % row, (), START_MS + row) for row in range(count)]


@dataclass
class Shown:
    """Logs all of which is stored, and what `records` shows of them."""

    logs: FakeLogs
    expected: Expectation

    def __call__(self, **options: object) -> FlowRecords:
        (flow,) = operations.records(Workspace(), "t", RecordsOptions(**options))  # type: ignore[arg-type]
        return flow


@pytest.fixture
def shown(logs: FakeLogs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:  # noqa: F811
    module, shown = import_module("mm2mgr.operations.records"), Shown(logs, Expectation())
    entry = SimpleNamespace(
        takes=lambda _: True,
        target_topic=lambda topic: f"src.{topic}",
        flow=SimpleNamespace(target=SimpleNamespace(alias="tgt")),
    )
    monkeypatch.setattr(module, "choose_topic", lambda *_: ("t", [entry]))
    monkeypatch.setattr(module, "read_whole_windows", lambda *_: logs.order(logs.part(shown.expected)))
    with jumping():
        yield shown


def offsets(flow: FlowRecords) -> list[int]:
    return [record.offset for record in flow.records]


def states(flow: FlowRecords) -> set[MirrorState]:
    return {record.state for record in flow.records}


@pytest.mark.parametrize("seed", range(20))
def test_offsets_without_records_take_no_places(shown: Shown, seed: int) -> None:
    chance = random.Random(seed)
    log = plain(2_000)
    shown.logs.put(log, log)
    gone = set(chance.sample(range(2_000), chance.choice([100, 1_000, 1_900, 1_995])))
    shown.logs.clusters["src"].compacted = {(SOURCE, at) for at in gone}
    there = [at for at in range(2_000) if at not in gone]
    count, offset = chance.choice([1, 5, 40]), chance.randrange(2_000)
    assert offsets(shown(count=count)) == there[-count:]
    later = [at for at in there if at >= offset][:count]
    assert offsets(shown(offset=offset, count=count)) == later
    assert offsets(shown(since_ms=START_MS + offset, count=count)) == later
    assert states(shown(count=count)) == {MirrorState.EQUAL}


@pytest.mark.parametrize("seed", range(10))
def test_records_since_a_time_have_it_whatever_their_order(
    shown: Shown,
    seed: int,
) -> None:
    chance = random.Random(seed)
    log = [replace(record, timestamp_ms=START_MS + chance.randrange(1_000)) for record in plain(300)]
    shown.logs.put(log, log)
    since_ms, count = START_MS + chance.randrange(1_000), chance.choice([1, 5, 40])
    flow = shown(since_ms=since_ms, count=count)
    late = [at for at, record in enumerate(log) if record.timestamp_ms >= since_ms]
    assert sorted(offsets(flow)) == late[:count]
    assert states(flow) <= {MirrorState.EQUAL}


def test_records_from_an_offset_are_in_their_order(shown: Shown) -> None:
    log = [Message(0, b"k", b"v%d" % row, (), START_MS - row) for row in range(30)]
    shown.logs.put(log, log)
    assert offsets(shown(offset=5, key="k", count=4)) == [5, 6, 7, 8]


def test_what_was_not_searched_is_said(shown: Shown) -> None:
    shown.logs.put(log := plain(10_100), log)
    assert offsets(shown(key="k100")) == [100]
    flow = shown(key="k99")
    assert (flow.records, flow.exit_code) == ((), ExitCode.NO)
    assert flow.not_judged == ("no such record at offsets 100 to 10099 of t-0; others were not read",)
    assert shown(offset=10_100).not_judged == ("offset 10100 is not in the log of t-0, which ends before 10100",)
    shown.logs.put([], [])
    assert shown(offset=0).not_judged == ("offset 0 is not in the log of t-0, which is empty",)
    shown.logs.put(log, log)
    assert shown(since_ms=START_MS + 20_000).exit_code is ExitCode.YES
    assert offsets(shown(key="\udcff")) == []  # a key on the command line need not be text


@pytest.mark.parametrize("later", [None, b"later"], ids=["gone", "a later one is there"])
def test_a_record_that_compaction_may_have_removed_is_not_missing(
    shown: Shown,
    later: bytes | None,
) -> None:
    log = [Message(0, b"k", value, (), START_MS) for value in (b"first", later)]
    shown.logs.put([*log, *plain(5)], [*log, *plain(5)])
    shown.logs.clusters["tgt"].compacted = {(TARGET, 0)}
    shown.expected = Expectation(Matching.LATEST)
    flow = shown(offset=0, count=3)
    assert [record.state for record in flow.records] == ["not judged", "equal", "equal"]
    assert "the topic is compacted, so a later record of the key may have replaced it" in flow.records[0].reason


@pytest.mark.parametrize("ordered", [True, False])
def test_a_record_before_the_start_of_the_targets_log_is_not_missing(
    shown: Shown,
    ordered: bool,
) -> None:
    log = plain(100)
    shown.logs.put(log, [record for row, record in enumerate(log) if row != 70])
    shown.logs.clusters["tgt"].starts = {TARGET: 50}
    shown.expected = Expectation(Matching.ORDERED if ordered else Matching.FAN_IN)
    flow = shown(offset=48, count=4)
    assert [record.state for record in flow.records] == ["not judged", "not judged", "equal", "equal"]
    assert "the target's log begins at 50: its mirror may have been deleted there" in flow.records[0].reason
    assert shown(offset=70, count=1).records[0].state is MirrorState.MISSING


def test_a_mirror_beyond_what_was_read_is_not_missing(
    shown: Shown,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(import_module("mm2mgr.operations.records"), "_WIDE", 500)
    log = [replace(record, timestamp_ms=START_MS) for record in plain(1_000)]
    shown.logs.put(log, log)
    assert states(shown(offset=100)) == {MirrorState.EQUAL}
    flow = shown()
    assert states(flow) == {MirrorState.NOT_JUDGED}
    assert "only offsets 0 to 499 of the target were read, and its log ends before 1000" in flow.records[0].reason


def test_a_target_with_times_of_its_own_is_read_before_the_records_time(
    shown: Shown,
) -> None:
    log = [
        replace(record, timestamp_ms=START_MS + (25 * 10**6 if row < 300 else row))
        for row, record in enumerate(plain(900))
    ]
    arrived = [replace(record, timestamp_ms=START_MS + 10**6 + 100 * 10**3 * row) for row, record in enumerate(log)]
    shown.logs.put(log, arrived)
    shown.expected = Expectation(fields=("key", "value", "headers"))
    assert states(shown(count=900)) == {MirrorState.EQUAL}
    for offset in (0, 205, 250, 299, 300, 500, 890):
        assert states(shown(offset=offset)) == {MirrorState.EQUAL}, offset


def test_a_partition_that_fails_leaves_the_others(shown: Shown) -> None:
    shown.logs.put(log := plain(100), log)
    shown.logs.clusters["tgt"].fails_at = {TARGET: (50, 29)}
    flow = shown(offset=48, count=4)
    assert [record.state for record in flow.records] == ["equal", "equal", "not judged", "not judged"]
    assert "src.t-0 on tgt was read up to offset 50" in flow.records[2].reason


@pytest.mark.parametrize(("sent", "arrived"), [(2, 1), (3, 2), (2, 2), (5, 0), (1, 3)])
def test_equal_records_have_a_mirror_each(shown: Shown, sent: int, arrived: int) -> None:
    twin = Message(0, b"k", b"v", (), START_MS)
    shown.logs.put([twin] * sent, [twin] * arrived)
    flow = shown(offset=0, count=sent)
    missing = max(0, sent - arrived)
    assert [record.state for record in flow.records] == ["equal"] * (sent - missing) + ["not found"] * missing
    mirrors = [record.mirrors for record in flow.records[: sent - missing]]
    assert mirrors == ([(0, 1, 2)] if arrived > sent else [(at,) for at in range(sent - missing)])
    assert flow.exit_code == (ExitCode.DIFFERS if missing else ExitCode.YES)
    if missing and arrived:
        assert flow.records[-1].reason.startswith("fewer copies than records: what is equal at 0")


def test_the_mirror_of_an_equal_record_is_no_altered_one(shown: Shown) -> None:
    first, second = (Message(0, b"k", value, (), START_MS) for value in (b"v", b"w"))
    shown.logs.put([first, second], [first])
    assert [record.state for record in shown(offset=0, count=2).records] == ["equal", "not found"]
    shown.logs.put([first, second], [first, replace(second, value=b"x")])
    flow = shown(offset=0, count=2)
    assert [(record.state, record.mirrors) for record in flow.records] == [("equal", (0,)), ("altered", (1,))]


@pytest.mark.parametrize("seed", range(20))
def test_no_record_of_the_target_is_the_mirror_of_two(shown: Shown, seed: int) -> None:
    chance = random.Random(seed)
    kinds = [Message(0, b"k%d" % kind, b"v", (), START_MS + kind // 2) for kind in range(4)]
    log = [chance.choice(kinds) for _ in range(30)]
    arrived = [record for record in log if chance.random() < 0.7]
    shown.logs.put(log, arrived)
    flow = shown(count=30)
    mirrors = [at for record in flow.records for at in record.mirrors]
    assert sorted(mirrors) == list(range(len(arrived)))
    assert sum(record.state is MirrorState.MISSING for record in flow.records) == 30 - len(arrived)


def test_no_more_than_a_thousand_records_are_read(shown: Shown) -> None:
    shown.logs.put(log := plain(1_100), log)
    assert len(shown(count=1_000).records) == 1_000
    with pytest.raises(InvalidArgument, match="1001 should be at most 1000: mm2mgr audit compares more"):
        shown(count=1_001)
