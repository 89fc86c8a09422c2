"""Where a place is in logs: nothing that arrives while it is looked up is skipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from mm2mgr.errors import KafkaError
from mm2mgr.kafka import inspection
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import OffsetsRead
from mm2mgr.live.positions import read_positions
from mm2mgr.log_places import AtTime, LogPosition, OfGroup, Place
from mm2mgr.partitions import Offsets, TopicPartition

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


class Logs:
    """A cluster whose logs grow by one record with each question; the first new one has the time 1000."""

    def __init__(self) -> None:
        self.access = KafkaAccess("a", "a:9092")
        self.ends = {P0: 10, P1: 20}
        self.committed = False

    def read_offsets(self, partitions: Iterable[TopicPartition], *, committed: bool = False) -> OffsetsRead:
        self.committed = committed
        logs = {p: Offsets(5, self.ends[p]) for p in partitions if p in self.ends}
        self.ends = {p: end + 1 for p, end in self.ends.items()}
        return OffsetsRead(logs, {P2: "no leader"})

    def offsets_since(self, since_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {p: {P0: 7, P1: 20 if time_ms <= 1000 else -1}[p] for p, time_ms in since_ms.items()}


def positions(place: Place, kafka: Any, *, committed: bool = False) -> dict[TopicPartition, int | None]:
    found = read_positions(kafka, place, [P0, P1, P2], committed=committed)
    assert all(position.log == Offsets(5, {P0: 10, P1: 20}[p]) for p, position in found.positions.items())
    return {p: position.next for p, position in found.positions.items()}


def test_ends_and_starts() -> None:
    kafka = Logs()
    assert positions("latest", kafka, committed=True) == {P0: 10, P1: 20}
    assert kafka.committed
    assert positions("earliest", Logs()) == {P0: 5, P1: 5}


@pytest.mark.parametrize("time_ms", [900, 2000])
def test_what_arrives_while_a_time_is_looked_up_is_not_skipped(time_ms: int) -> None:
    """Its timestamp may be older or later: the end that counts is the one that was read before."""
    assert positions(AtTime(time_ms), Logs()) == {P0: 7, P1: 20}


def test_a_time_to_come_is_no_place() -> None:
    """Kafka answers with the ends, behind which come records from before that time."""
    kafka = Logs()
    with pytest.raises(KafkaError, match="2099-01-01T00:00:00Z is in the future") as refused:
        positions(AtTime(4_070_908_800_000), kafka)
    assert "UTC where it names none" in (refused.value.hint or "")
    assert kafka.ends == {P0: 10, P1: 20}


def test_a_group_that_may_not_be_read_is_an_error_with_the_right_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "committed_offsets", lambda _kafka, _groups: {})
    with pytest.raises(KafkaError, match="a: the offsets of group 'mm1' may not be read") as refused:
        positions(OfGroup("mm1"), Logs())
    assert refused.value.hint == "give mm2mgr's login Describe on group 'mm1' there"


def test_a_group_whose_members_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_kafka: object, _group: str) -> int:
        raise KafkaError("refused")

    monkeypatch.setattr(inspection, "committed_offsets", lambda _kafka, _groups: {"mm1": {P1: 12}})
    monkeypatch.setattr(inspection, "group_members", refuse)
    found = read_positions(Logs(), OfGroup("mm1"), [P0, P1], committed=False)  # type: ignore[arg-type]
    assert found.positions == {P0: LogPosition(Offsets(5, 10), None), P1: LogPosition(Offsets(5, 20), 12)}
    assert found.members is None
