"""Reading a whole internal topic: what is there, what is not, and what takes too long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mm2mgr import timing
from mm2mgr.errors import KafkaError
from mm2mgr.kafka import records
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.records import Record
from mm2mgr.live.internal_topics import read_internal
from mm2mgr.live.reach import KafkaReach, Limits

ACCESS = KafkaAccess("src", "src:9092")


class FakeKafka:
    access = ACCESS

    def partition_counts(self) -> dict[str, int]:
        return {"syncs": 1}


class FakeReach(KafkaReach):
    kafka: Any = FakeKafka()  # in the place of a property


@pytest.fixture
def read_takes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let ten records come, each after so many seconds."""

    def take(seconds: float) -> None:
        now = [0.0]
        monkeypatch.setattr(timing, "now", lambda: now[0])

        def read(*_: object, **__: object) -> Iterator[Record]:
            for offset in range(10):
                now[0] += seconds
                yield Record("syncs", 0, offset, b"k", None, 1_500 if offset else None)

        monkeypatch.setattr(records, "read", read)

    return take


def test_all_records_come_with_their_times_in_seconds(read_takes: Callable[[float], None]) -> None:
    read_takes(0.5)
    read = list(read_internal(FakeReach(ACCESS, Limits(measuring_seconds=6.0)), "syncs"))
    assert [record.written_at for record in read] == [0.0, *[1.5] * 9]


def test_a_topic_that_takes_longer_than_the_limit_is_an_error(read_takes: Callable[[float], None]) -> None:
    read_takes(1.0)
    with pytest.raises(KafkaError, match="src: syncs-0 could not be read to its end in 6 s"):
        list(read_internal(FakeReach(ACCESS, Limits(measuring_seconds=6.0)), "syncs"))


def test_a_topic_that_is_not_listed_is_named_with_the_right_it_takes() -> None:
    with pytest.raises(KafkaError, match="src: no topic others") as raised:
        list(read_internal(FakeReach(ACCESS, Limits()), "others"))
    assert "Read on topic others" in (raised.value.hint or "")
