"""The proof can fail: every kind of damage to a mirrored log is counted as what it is, and as nothing else."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.partitions import TopicPartition
from tests.kafka.conftest import mock_cluster
from tests.kafka.quick import Producer

from .record_ids import PartitionProof, RecordId, compare, prove, read_ids

__all__ = ["mock_cluster"]

ZERO = TopicPartition("t", 0)
CHECKSUMS = st.integers(0, 2**32 - 1)


@st.composite
def _logs(draw: st.DrawFn, at_least: int = 1) -> list[RecordId]:
    keys = draw(st.lists(st.binary(max_size=4), min_size=at_least, max_size=30, unique=True))
    return [(key, draw(CHECKSUMS)) for key in keys]


LOGS = _logs()


def exact(source: list[RecordId]) -> PartitionProof:
    return PartitionProof(ZERO, len(source), 0, 0, 0, True)


@given(_logs(at_least=0))
def test_equal_logs_are_exact(source: list[RecordId]) -> None:
    assert compare(ZERO, source, list(source)) == exact(source)
    assert compare(ZERO, source, list(source)).exact


@given(_logs(at_least=2), st.data())
def test_a_permutation_is_disorder_and_nothing_else(source: list[RecordId], data: st.DataObject) -> None:
    target = data.draw(st.permutations(source))
    assume(target != source)
    verdict = compare(ZERO, source, target)
    assert verdict == replace(exact(source), in_order=False)
    assert not verdict.exact


@given(LOGS, st.data())
def test_losses_are_counted_and_are_no_disorder(source: list[RecordId], data: st.DataObject) -> None:
    lost = data.draw(st.sets(st.sampled_from(source), min_size=1))
    verdict = compare(ZERO, source, [one for one in source if one not in lost])
    assert verdict == replace(exact(source), missing=len(lost))
    assert not verdict.exact


@given(LOGS, st.data())
def test_duplicates_are_counted_wherever_the_copy_stands(source: list[RecordId], data: st.DataObject) -> None:
    target, copies = list(source), data.draw(st.lists(st.sampled_from(source), min_size=1, max_size=5))
    for copy in copies:
        target.insert(data.draw(st.integers(target.index(copy) + 1, len(target))), copy)
    verdict = compare(ZERO, source, target)
    assert verdict == replace(exact(source), duplicated=len(copies))
    assert not verdict.exact


@given(LOGS, st.data())
def test_altered_values_are_missing_and_unexpected(source: list[RecordId], data: st.DataObject) -> None:
    altered = data.draw(st.sets(st.integers(0, len(source) - 1), min_size=1))
    target = [(key, checksum ^ 1 if place in altered else checksum) for place, (key, checksum) in enumerate(source)]
    verdict = compare(ZERO, source, target)
    assert verdict == replace(exact(source), missing=len(altered), unexpected=len(altered))
    assert not verdict.exact


@given(_logs(at_least=0), st.lists(CHECKSUMS, min_size=1, max_size=5), st.data())
def test_foreign_records_are_unexpected(source: list[RecordId], foreign: list[int], data: st.DataObject) -> None:
    target = list(source)
    for checksum in foreign:
        target.insert(data.draw(st.integers(0, len(target))), (b"from elsewhere", checksum))
    verdict = compare(ZERO, source, target)
    assert verdict == replace(exact(source), unexpected=len(foreign))
    assert not verdict.exact


@given(_logs(at_least=3), st.data())
def test_several_kinds_of_damage_are_told_apart(source: list[RecordId], data: st.DataObject) -> None:
    lost, copied, altered = data.draw(st.permutations(source))[:3]
    target = [(key, checksum ^ 1) if (key, checksum) == altered else (key, checksum) for key, checksum in source]
    target.remove(lost)
    target += [copied, (b"from elsewhere", 7)]
    assert compare(ZERO, source, target) == PartitionProof(ZERO, len(source), 2, 1, 2, True)


@given(LOGS)
def test_a_remote_partition_that_is_not_there_is_all_missing(source: list[RecordId]) -> None:
    other = TopicPartition("t", 1)
    first, second = prove({ZERO: source, other: source}, {TopicPartition("dc1.t", 0): source}, "dc1.")
    assert first == exact(source)
    assert second == PartitionProof(other, len(source), len(source), 0, 0, True)


def test_ids_are_read_in_log_order_and_tell_values_apart(mock_cluster: KafkaAccess) -> None:
    with Producer(mock_cluster, timeout_seconds=10) as producer:
        for key, value in ((b"b", b"1"), (b"a", b"1"), (b"a", b"2"), (b"b", b"1")):
            producer.send(ZERO, value, key=key)
    ids = read_ids(mock_cluster, [ZERO])[ZERO]
    assert [key for key, _ in ids] == [b"b", b"a", b"a", b"b"]
    assert ids[0] == ids[3]
    assert ids[1] != ids[2]
