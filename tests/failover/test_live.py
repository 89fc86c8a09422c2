"""Offset syncs and checkpoints that MirrorMaker wrote, read from real brokers, beside the group offsets that it synced."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from mm2mgr.errors import KafkaError
from mm2mgr.failover.syncs import OffsetSyncLog
from mm2mgr.failover.translation import MirroredEnds, TargetFacts, translate
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.records import commit_group
from mm2mgr.live.questions import CheckpointRecords, OffsetSyncRecords
from mm2mgr.live.reach import KafkaReach, Limits
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import kafka_runtime
from tests.live import seen
from tests.truth.test_bugs_live import Release

pytestmark = pytest.mark.live
BATCHES, BATCH = 3, 90  # less than offset.lag.max, 100: not each has a sync
COMMITTED = {"at-a-sync": 0, "between": 130, "at-the-end": BATCHES * BATCH}


@pytest.mark.parametrize("version", ["4.3.1", pytest.param("3.6.2", marks=pytest.mark.matrix)])
def test_offsets_are_translated_nearer_than_mirrormaker_does_it(version: str, tmp_path: Path) -> None:
    """One broker is both clusters; a record's value is its offset."""
    with Broker("kafka", tmp_path / "kafka") as broker:
        access = KafkaAccess("kafka", broker.bootstrap_servers)
        properties = {"offset.flush.interval.ms": "1000"}
        with Worker("worker", tmp_path, access.bootstrap_servers, properties, runtime=kafka_runtime(version)) as worker:
            _check(Release(version, access, worker))
        seen.close_clients()


def _check(release: Release) -> None:
    topic = release.topic("orders")
    partition, remote = TopicPartition(topic, 0), TopicPartition(release.remote(topic), 0)
    config = {"topics": topic, "groups": "|".join(COMMITTED), "sync.group.offsets.enabled": "true"}
    for group in COMMITTED:
        commit_group(release.kafka, group, {partition: 0})
    release.run("source", "mirror", config)
    seen.write_values(release.kafka, topic, b"0")
    release.until_mirrored(topic, 1)
    release.until_running(release.run("checkpoint", "groups", config))
    for number in range(BATCHES):
        end = (number + 1) * BATCH
        seen.write_values(release.kafka, topic, *(b"%d" % offset for offset in range(number * BATCH or 1, end)))
        release.until_mirrored(topic, end)
    for group, offset in COMMITTED.items():
        commit_group(release.kafka, group, {partition: offset})
    behind = [group for group, offset in COMMITTED.items() if offset]
    with closing(KafkaReach(release.kafka, Limits(measuring_seconds=30.0))) as reach:

        def checkpoints() -> dict[str, tuple[int, int]]:
            newest = CheckpointRecords("kafka", f"A{release.number}.checkpoints.internal").ask(reach).newest
            assert {checkpoint.partition for checkpoint in newest} <= {remote}
            return {checkpoint.group: (checkpoint.upstream, checkpoint.downstream) for checkpoint in newest}

        seen.until(
            lambda: {group: upstream for group, (upstream, _) in checkpoints().items()},
            lambda upstream: all(upstream.get(group) == COMMITTED[group] for group in behind),
            "checkpoints of all groups",
        )

        def syncs_now() -> OffsetSyncLog:
            return OffsetSyncRecords("kafka", f"mm2-offset-syncs.B{release.number}.internal").ask(reach)

        def synced() -> dict[str, tuple[int, int]]:
            """What a group has on the target, and what its newest checkpoint says."""
            newest = checkpoints()
            return {group: (release.group_offset(group, topic), newest[group][1]) for group in behind}

        # A sync that was held back comes at the next flush, and a checkpoint of it with the next interval.
        written = seen.until(
            synced, lambda read: all(there == told for there, told in read.values()), "groups by their checkpoints"
        )
        syncs = syncs_now()
        with pytest.raises(KafkaError, match=r"no topic mm2-offset-syncs\.C\.internal"):
            OffsetSyncRecords("kafka", "mm2-offset-syncs.C.internal").ask(reach)
    assert set(syncs.by_partition) == {partition}
    values = seen.values(release.kafka, remote.topic)
    for sync in syncs.by_partition[partition]:
        assert values[sync.downstream] == b"%d" % sync.upstream
    end = len(values)
    facts = TargetFacts(Offsets(0, end), (MirroredEnds(end, end),), transactional=False)
    for group in behind:
        offset = COMMITTED[group]
        ours = translate(offset, syncs.by_partition[partition], facts)
        assert (ours.offset, ours.repeats_at_most) == (offset, 0), ours
        assert written[group][1] <= offset
