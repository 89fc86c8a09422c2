"""`failover check` on real brokers: whoever starts on the target at the offset that it names skips nothing, and reads no
more again than it says.

Groups at the end, in the middle, idle since the first records; topics with gaps by compaction and by transactions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.records import commit_group
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.runtime import Runtime

from .command import Tree
from .moving_groups import consume, missing_and_twice, traffic
from .pair import Pair, flow, serving_pair
from .seen import Message, create, messages, until, write

pytestmark = pytest.mark.live
PLAIN, COMPACTED, TRANSACTIONAL = "plain", "compacted", "transactional"
TOPICS = (PLAIN, COMPACTED, TRANSACTIONAL)
CLEANER = {"log.cleaner.backoff.ms": "200"}
QUICK_TO_COMPACT = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
MARKERS = 1  # behind the last record of the transactional topic, never mirrored
OF_GROUPS = ", checkpoints: {group_offsets: true, interval: 1s}"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path_factory.mktemp("failover"), runtime, workers=["w"], brokers=CLEANER) as pair:
        yield pair


def records(access: KafkaAccess, topic: str) -> dict[int, str]:
    """Return the id of each record of a topic of one partition, by its offset."""
    settings = {
        "group.id": "nobody",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",  # as MirrorMaker reads: it mirrors what was aborted
    }
    consumer = confluent_kafka.Consumer({**librdkafka_config(access), **settings})
    found: dict[int, str] = {}
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        while (record := consumer.poll(30)) is not None and record.error() is None:
            found[record.offset()] = (record.value() or b"").decode()
    finally:
        consumer.close()
    return found


def write_in_transactions(access: KafkaAccess, topic: str, first: int, end: int) -> None:
    """Write ids in transactions of seven, each third of which is aborted."""
    producer = confluent_kafka.Producer({**librdkafka_config(access), "transactional.id": "test"})
    producer.init_transactions(30)
    for number, start in enumerate(range(first, end, 7)):
        producer.begin_transaction()
        for record in range(start, min(end, start + 7)):
            producer.produce(topic, f"{topic}-{record}".encode(), partition=0)
        producer.abort_transaction(30) if number % 3 == 2 else producer.commit_transaction(30)


def fill(access: KafkaAccess, first: int, end: int) -> None:
    for topic in (PLAIN, COMPACTED):
        keys = (f"k{number % 150}".encode() if topic == COMPACTED else None for number in range(first, end))
        values = (f"{topic}-{number}".encode() for number in range(first, end))
        write(access, topic, [Message(0, key, value) for key, value in zip(keys, values, strict=True)])
    write_in_transactions(access, TRANSACTIONAL, first, end)


def check(tree: Tree, *arguments: str) -> Any:
    return tree.json("failover", "check", "src->tgt", *arguments)


Logs = dict[str, dict[int, str]]


def positions(found: Any) -> dict[tuple[str, str], Any]:
    return {(group["group"], each["topic"]): each for group in found["groups"] for each in group["positions"]}


def count_again(found: Any, source: Logs, target: Logs) -> int:
    """Hold a check to what is read on the target from the offsets that it names; return what comes again to the groups
    from their offsets on the target."""
    again_in_all = 0
    for (group, topic), position in positions(found).items():
        unread = {value for offset, value in source[topic].items() if offset >= position["committed"]}
        again = []
        for start, most in (
            (position["on_target"], position["repeats_at_most"]),
            (position["translated"], position["translated_repeats_at_most"]),
        ):
            read = [value for offset, value in target[topic].items() if offset >= start]
            assert unread <= set(read), f"{group} skips records of {topic} from {start} on"
            again.append(len(read) - len(unread))
            assert again[-1] <= most, f"{group} reads {again[-1]} of {topic} again from {start} on, {most} are named"
        again_in_all += again[0]  # where the group's offset on the target is the translated one, it counts once
    return again_in_all


@pytest.fixture
def cleared(pair: Pair) -> Iterator[Pair]:
    yield pair
    pair.delete_connectors()


def test_a_planned_failover_under_traffic_misses_nothing_and_repeats_nothing(
    cleared: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = cleared
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))
    topics = ["orders", "bills"]
    create(pair.source, topics)
    tree.write(pair.yaml("mover", flow("moved", "'orders|bills'", OF_GROUPS)))
    tree.run("apply", "--yes")
    groups = ["first", "second", "third"]
    with traffic(pair.source, topics) as written:
        until(lambda: len(written.stored.get("bills", ())), lambda count: count > 500, "nobody writes")
        read = {group: consume(pair.source, group, topics, 200 * number, "earliest")
                for number, group in enumerate(groups, 1)}  # fmt: skip
        assert "producers" in tree.run("failover", "run", "src->tgt", "--yes", code=1)
        made = tree.json("failover", "plan", "src->tgt")
        assert [step["stage"] for step in made["steps"]][-1] == "consumers"
        assert made["verdict"]["word"] in {"GO", "GO WITH"}
    told = tree.run("failover", "run", "src->tgt", "--yes", "--producers-stopped", "--quiet-for", "1s")
    print(told)
    assert "\ndone: src->tgt: 3 groups at the offsets to go on from" in told
    for group in groups:
        read[group] += consume(pair.target, group, [f"src.{topic}" for topic in topics])
        for topic in topics:
            ids = [name for name in read[group] if name.startswith(topic)]
            assert missing_and_twice(written.stored[topic], ids) == ([], []), group
    assert "already done: src->tgt" in tree.run("failover", "run", "src->tgt", "--yes", "--producers-stopped")


def test_nothing_is_skipped_and_no_more_comes_again_than_is_named(
    pair: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))
    create(pair.source, [PLAIN, TRANSACTIONAL])
    create(pair.source, [COMPACTED], config=QUICK_TO_COMPACT)
    fill(pair.source, 0, 300)
    fill(pair.source, 300, 320)  # rolls the segment of the compacted topic, so that it has gaps when it is mirrored
    until(lambda: len(messages(pair.source, COMPACTED)), lambda count: count < 310, "the source compacts nothing")
    tree.write(pair.yaml("test", flow("all", "'plain|compacted|transactional'", OF_GROUPS)))
    tree.run("apply", "--yes")
    mirrors = {topic: f"src.{topic}" for topic in TOPICS}
    until(
        lambda: [len(records(pair.target, mirror)) for mirror in mirrors.values()],
        lambda counts: min(counts) > 0,
        "nothing arrives",
    )
    fill(pair.source, 320, 700)
    source = {topic: records(pair.source, topic) for topic in TOPICS}
    ends = {topic: max(source[topic]) + 1 for topic in TOPICS}
    for group, share in (("at-end", 1.0), ("behind", 0.9), ("middle", 0.6)):
        offsets = {TopicPartition(topic, 0): int(ends[topic] * share) for topic in TOPICS}
        commit_group(pair.source, group, offsets)
    commit_group(pair.source, "idle", {TopicPartition(PLAIN, 0): 3})

    found = until(
        lambda: check(tree, "--group", "at-end|behind|middle"),
        lambda found: found["verdict"]["word"] == "GO WITH" and found["recovery"]["records"] <= MARKERS,
        "never ready",
    )
    print(
        json.dumps(found["verdict"]),
        [(key, each["state"], each["repeats_at_most"]) for key, each in positions(found).items()],
    )
    target = {topic: records(pair.target, mirror) for topic, mirror in mirrors.items()}
    again_in_all = count_again(found, source, target)
    assert again_in_all <= found["verdict"]["repeats_at_most"]
    assert sum(group["skips_at_most"] for group in found["groups"]) == 0
    assert {each["sampled"] for each in positions(found).values()} <= {"", "same", "within"}
    assert "same" in {each["sampled"] for each in positions(found).values()}

    told = check(tree)
    idle = positions(told)["idle", PLAIN]
    if idle["on_target"] is None:
        assert told["verdict"]["word"] == "NO-GO", "a group that MirrorMaker never translated"
    assert (told["unread"], [remark for remark in told["remarks"] if remark["effect"] == "blocks"]) == ([], [])
    text = tree.attempt("failover", "check", "src->tgt", "--group", "at-end|behind|middle")
    assert "\nGO WITH: src->tgt: at most " in text

    pair.src.kill()
    dead = check(tree, "--group", "at-end|behind|middle")
    assert (dead["verdict"]["word"], dead["unread"]) == ("GO WITH", [])
    assert 0 < dead["source_age_seconds"] < 600
    assert dead["recovery"]["records"] <= MARKERS
    assert positions(dead).keys() == positions(found).keys()
    count_again(dead, source, target)
    shutil.rmtree(tree.folder / ".mm2mgr" / "samples" / "failover_looks")
    blind = tree.attempt("failover", "check", "src->tgt")
    assert "the source does not answer, and no earlier look at it was kept" in blind
