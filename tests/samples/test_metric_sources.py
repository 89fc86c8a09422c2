"""The reader of a metric source: it goes on after its newest sample in the store, and keeps what came before a failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.samples import readers
from mm2mgr.samples.batch import Batch, Gathered, Inventory
from mm2mgr.samples.follow import Round, Schedule, follow
from mm2mgr.samples.readers import MetricSourceReader
from mm2mgr.samples.store import SampleStore
from tests.kafka.quick import Producer
from tests.samples.rows import data_files, stored

NOW = time.time_ns() // 1_000_000
HOUR = 3_600_000


def batch(at: int, source: str = "prometheus:x", cluster: str = "mock", rows: int = 1) -> Batch:
    return Batch(cluster, source, at, ["logs"] * rows, list(range(rows)), end_offset=[at % 1000] * rows)


@dataclass
class Answers:
    """Gives its pieces, then fails if it is told to; remembers what it was asked."""

    pieces: list[Gathered] = field(default_factory=list)
    failure: Mm2mgrError | None = None
    asked: list[int | None] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    source_prefix: str = "prometheus:"

    def gather(self, inventory: Inventory, since_ms: int | None, until_ms: int) -> Iterator[Gathered]:
        self.asked.append(since_ms)
        self.topics = sorted(inventory.topics_to_sample())
        yield from self.pieces
        if self.failure:
            raise self.failure

    def close(self) -> None:
        self.asked.clear()


def reader(access: KafkaAccess, source: Answers, folder: Path, back_seconds: float = 0.0) -> MetricSourceReader:
    with Producer(access, timeout_seconds=10) as producer:
        producer.send(("logs", 0), b"x")
    return MetricSourceReader(
        access, lambda topic: topic == "logs", source, SampleStore(folder), back_seconds, timeout_seconds=1
    )


def test_the_newest_sample_is_that_of_the_cluster_and_of_the_kind_of_source(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    assert store.newest_of("mock", "prometheus:", 0) is None
    store.append(batch(NOW - 5 * HOUR), batch(NOW - 2 * HOUR, "kafka-offsets"), batch(NOW - HOUR, cluster="other"))
    assert store.newest_of("mock", "prometheus:", 0) == NOW - 5 * HOUR
    assert store.newest_of("mock", "kafka-offsets", 0) == NOW - 2 * HOUR
    assert store.newest_of("mock", "prometheus:", NOW - 3 * HOUR) is None


def test_a_restart_goes_on_after_the_newest_sample_and_only_a_first_run_looks_back(
    mock_cluster: KafkaAccess, tmp_path: Path
) -> None:
    first = Answers()
    reader(mock_cluster, first, tmp_path, back_seconds=60).poll()
    (since,) = first.asked
    assert since is not None
    assert abs(since - (time.time_ns() // 1_000_000 - 60_000)) < 30_000
    assert first.topics == ["logs"]
    SampleStore(tmp_path).append(batch(NOW - 2 * HOUR))
    again = Answers([Gathered([batch(NOW - 1000)], [])])
    restarted = reader(mock_cluster, again, tmp_path, back_seconds=60)
    restarted.poll()
    restarted.poll()
    assert again.asked == [NOW - 2 * HOUR, NOW - 1000]


def test_what_a_source_does_not_have_after_an_hour_is_not_asked_for_again(
    mock_cluster: KafkaAccess, tmp_path: Path
) -> None:
    SampleStore(tmp_path).append(batch(NOW - 9 * HOUR))
    silent = Answers()
    one = reader(mock_cluster, silent, tmp_path)
    one.poll()
    one.poll()
    assert silent.asked[0] == NOW - 9 * HOUR
    assert NOW - HOUR <= (silent.asked[1] or 0) <= time.time_ns() // 1_000_000 - HOUR


def test_what_came_before_a_failure_is_kept_and_the_next_poll_goes_on_behind_it(
    mock_cluster: KafkaAccess, tmp_path: Path
) -> None:
    source = Answers([Gathered([batch(NOW - 5000)], ["a note"])], Mm2mgrError("half an answer"))
    one = reader(mock_cluster, source, tmp_path)
    poll = one.poll()
    assert (list(poll.batches), list(poll.notes)) == ([batch(NOW - 5000)], ["a note", "half an answer"])
    source.pieces = []
    with pytest.raises(Mm2mgrError, match="half an answer"):
        one.poll()
    assert source.asked == [None, NOW - 5000]


def test_a_long_catch_up_comes_in_pieces(
    mock_cluster: KafkaAccess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_ROWS_PER_POLL", 4)
    source = Answers([Gathered([batch(NOW - back, rows=2)], []) for back in (9000, 8000, 7000, 6000)])
    one = reader(mock_cluster, source, tmp_path)
    poll = one.poll()
    assert [each.time_ms for each in poll.batches] == [NOW - 9000, NOW - 8000]
    assert "catching up; more samples are pending" in poll.notes
    assert poll.has_more
    poll = one.poll()
    assert [each.time_ms for each in poll.batches] == [NOW - 7000, NOW - 6000]
    one.poll()
    assert source.asked == [None], "a begun answer is taken to its end first"
    one.poll()
    assert source.asked == [None, NOW - 6000]


def test_pieces_that_overlap_in_time_lose_nothing_and_a_bounded_run_takes_them_all(
    mock_cluster: KafkaAccess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_ROWS_PER_POLL", 1)
    pieces = [[NOW - 9000, NOW - 5000], [NOW - 8000, NOW - 4000], [NOW - 7000]]
    source = Answers([Gathered([batch(at) for at in each], []) for each in pieces])
    one, rounds = reader(mock_cluster, source, tmp_path), list[Round]()
    assert follow([one], Schedule(30.0, 0.0), one.store, rounds.append) == 5
    assert [(each.number, each.samples) for each in rounds] == [(1, 2), (2, 2), (3, 1), (4, 0)]
    assert len(stored(one.store)) == 5


@pytest.mark.real_time
def test_what_a_full_disk_did_not_take_is_asked_for_again(
    mock_cluster: KafkaAccess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls, stop = SampleStore.append, iter(range(1, 9)), threading.Event()

    def append(self: SampleStore, *batches: Batch) -> Any:
        if (call := next(calls)) == 2:
            raise Mm2mgrError("samples cannot be written: No space left on device")
        if call == 3:
            stop.set()
        return real(self, *batches)

    class Growing(Answers):
        def gather(self, inventory: Inventory, since_ms: int | None, until_ms: int) -> Iterator[Gathered]:
            self.asked.append(since_ms)
            yield Gathered([batch(NOW - 9000 + 1000 * len(self.asked))], [])

    monkeypatch.setattr(SampleStore, "append", append)
    source = Growing()
    asked = source.asked
    monkeypatch.setattr(source, "close", lambda: None)
    one = reader(mock_cluster, source, tmp_path)
    follow([one], Schedule(0.05), one.store, lambda _: None, stop)
    assert asked[:3] == [None, NOW - 8000, NOW - 8000]


def test_times_that_cannot_be_true_are_dropped_with_a_note_and_stop_nothing(
    mock_cluster: KafkaAccess, tmp_path: Path
) -> None:
    lies = [batch(NOW + 40 * 86_400_000, rows=2), batch(5)]
    source = Answers([Gathered([*lies, batch(NOW - 1000)], [])])
    one = reader(mock_cluster, source, tmp_path)
    poll = one.poll()
    assert list(poll.batches) == [batch(NOW - 1000)]
    assert "3 samples dropped: their time is in the future or long past" in poll.notes
    one.poll()
    assert source.asked == [None, NOW - 1000]


def test_a_store_with_samples_of_a_clock_that_was_ahead_is_gone_on_with_now(
    mock_cluster: KafkaAccess, tmp_path: Path
) -> None:
    SampleStore(tmp_path).append(batch(NOW + 40 * 86_400_000))
    source = Answers()
    reader(mock_cluster, source, tmp_path).poll()
    assert NOW <= (source.asked[0] or 0) <= time.time_ns() // 1_000_000


def test_the_newest_sample_is_found_among_damaged_and_compacted_files(tmp_path: Path) -> None:
    said: list[str] = []
    store = SampleStore(tmp_path, said.append)
    hour = NOW // HOUR * HOUR - 3 * HOUR
    for number in range(20):
        store.append(batch(hour + number, "kafka-offsets", rows=3), batch(hour + number, "prometheus:x", "other"))
    store.append(batch(hour + 8, rows=3))
    store.compact(store.hours()[0])
    store.append(batch(hour + 9))
    (damaged,) = [path for path in data_files(tmp_path) if "c000" in path.name]  # as the library names what is appended
    damaged.write_bytes(b"PAR1")
    assert store.newest_of("mock", "prometheus:", 0) == hour + 8
    assert store.newest_of("other", "prometheus:", 0) == hour + 19
    assert any(str(damaged) in sentence for sentence in said)
    assert store.newest_of("nobody", "prometheus:", 0) is None
    assert store.newest_of("mock", "cruise-control", 0) is None
