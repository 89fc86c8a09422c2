"""The reader of a foreign source: it goes on after its newest sample in the store, and keeps what came before a failure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.producer import Producer
from mm2mgr.samples import foreign
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.foreign import ForeignReader, newest_of
from mm2mgr.samples.inventory import Gathered, Inventory
from mm2mgr.samples.store import SampleStore

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
        self.topics = sorted(inventory.wanted())
        yield from self.pieces
        if self.failure:
            raise self.failure

    def close(self) -> None:
        self.asked.clear()


def reader(access: KafkaAccess, source: Answers, folder: Path, back_seconds: float = 0.0) -> ForeignReader:
    with Producer(access, timeout_seconds=10) as producer:
        producer.send(("logs", 0), b"x")
    return ForeignReader(access, lambda topic: topic == "logs", source, SampleStore(folder), back_seconds)


def test_the_newest_sample_is_that_of_the_cluster_and_of_the_kind_of_source(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    assert newest_of(store, "mock", "prometheus:", 0) is None
    store.append(batch(NOW - 5 * HOUR), batch(NOW - 2 * HOUR, "kafka-offsets"), batch(NOW - HOUR, cluster="other"))
    assert newest_of(store, "mock", "prometheus:", 0) == NOW - 5 * HOUR
    assert newest_of(store, "mock", "kafka-offsets", 0) == NOW - 2 * HOUR
    assert newest_of(store, "mock", "prometheus:", NOW - 3 * HOUR) is None


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
    monkeypatch.setattr(foreign, "_ROWS_PER_POLL", 4)
    source = Answers([Gathered([batch(NOW - back, rows=2)], []) for back in (9000, 8000, 7000, 6000)])
    one = reader(mock_cluster, source, tmp_path)
    poll = one.poll()
    assert [each.time_ms for each in poll.batches] == [NOW - 9000, NOW - 8000]
    assert "catching up: more to come" in poll.notes
    one.poll()
    assert source.asked == [None, NOW - 8000]
