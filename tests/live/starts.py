"""Where a flow begins, on real brokers and workers: after MirrorMaker 1, and at the end of a topic that is written to all the time."""

from __future__ import annotations

from collections import Counter

import confluent_kafka

from mm2mgr.kafka.access import KafkaAccess, librdkafka_config

from .command import Tree
from .pair import Pair, flow
from .seen import Message, commit_all, connector_url, create, end_offset, is_transient, rest, until, values, write
from .traffic import Traffic

QUIET = "replication_policy: identity, checkpoints: false, heartbeats: false, "
GROUP = "mirrormaker1"
OLD, BUSY = "old.takeover", "busy.takeover"
_PARTITIONS = 3  # MirrorMaker 1 never saw the last one


def ids_from(first: int, last: int) -> list[Message]:
    """Return records whose values are their numbers, dealt to the partitions in turn."""
    return [Message(number % _PARTITIONS, None, str(number).encode()) for number in range(first, last)]


def mirror_as_version_1(pair: Pair, counts: dict[int, int]) -> None:
    """Mirror so many records of each partition as MirrorMaker 1 does: names kept, offsets committed on the source."""
    settings = {"group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**librdkafka_config(pair.source), **settings})
    try:
        for partition, count in counts.items():
            consumer.assign([confluent_kafka.TopicPartition(OLD, partition, 0)])
            read: list[Message] = []
            while len(read) < count:
                record = consumer.poll(30)
                assert record is not None, f"partition {partition} has no more"
                if (error := record.error()) is not None:
                    assert is_transient(error), error
                    continue
                read.append(Message(partition, None, record.value()))
            write(pair.target, OLD, read)
            commit_all(consumer, [confluent_kafka.TopicPartition(OLD, partition, count)])
    finally:
        consumer.close()


def stored(pair: Pair, name: str) -> dict[int, int]:
    """Return the stored offset of each partition."""
    entries = rest("GET", connector_url(pair.url, f"mm2.src.tgt.source.{name}", "/offsets"))["offsets"]
    return {entry["partition"]["partition"]: entry["offset"]["offset"] for entry in entries}


def arrived(access: KafkaAccess, topic: str) -> Counter[int]:
    return Counter(int(value or b"") for value in values(access, topic))


def begin_where_it_is_said(pair: Pair, tree: Tree) -> None:
    """Create one flow that goes on after MirrorMaker 1, and one at the end of a busy topic: each id once, none lost."""
    create(pair.source, [OLD], partitions=_PARTITIONS)
    create(pair.target, [OLD], partitions=_PARTITIONS)
    create(pair.source, [BUSY])
    write(pair.source, OLD, ids_from(0, 30))
    mirror_as_version_1(pair, {0: 10, 1: 4})
    flows = flow("old", OLD, f", start: {{group: {GROUP}}}") + flow("busy", BUSY, ", start: latest")
    tree.write(pair.yaml("starts", flows, QUIET, workers=", flush_interval: 1s"))
    with Traffic(pair.source, [BUSY], 200) as traffic:
        before = until(lambda: end_offset(pair.source, BUSY), lambda end: end > 50)
        planned = tree.run("plan")
        assert f"group '{GROUP}' has no offset in {OLD}-2: there it begins at the first record" in planned
        tree.run("apply", "--yes", "--wait", "90")
        after = end_offset(pair.source, BUSY)
        until(lambda: end_offset(pair.target, BUSY), bool, "the busy flow does not move")
    write(pair.source, OLD, ids_from(30, 40))
    until(lambda: sum(arrived(pair.target, OLD).values()), lambda count: count >= 40)
    busy = until(lambda: arrived(pair.target, BUSY), lambda found: traffic.rounds in found)
    assert arrived(pair.target, OLD) == Counter(range(40)), "lost or repeated"
    assert before < min(busy) <= after
    assert busy == Counter(range(min(busy), traffic.rounds + 1)), "lost or repeated"
    assert "0 to create, 0 to update, 0 to delete, 2 unchanged" in tree.run("plan")
    tree.run("drift", code=0)

    was = stored(pair, "busy")
    tree.write(pair.yaml("starts", flows.replace("start: latest", "start: earliest"), QUIET))
    assert "start: earliest of busy:src->tgt changes nothing: what exists began with start: latest" in tree.run("plan")
    tree.run("apply", "--yes")
    assert stored(pair, "busy")[0] >= was[0]

    tree.run("stop", "old")
    said = tree.run("offsets", "reset", "old", "--from-group", GROUP, "--yes")
    assert f"{OLD}-2: the group has no offset there: left as it is" in said
    assert stored(pair, "old") == {0: 9, 1: 3, 2: 12}
    said = tree.run("offsets", "reset", "old", "--to", "1h", "--yes")
    assert "mirrored again" in said
    assert stored(pair, "old") == {}
