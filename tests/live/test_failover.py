"""`failover check` and `rehearse` on real brokers: whoever starts on the target at the offset that they name skips nothing,
and reads no more again than they say.

Groups at the end, in the middle, idle since the first records; topics with gaps by compaction and by transactions. A
rehearsal leaves both clusters as they were, killed ones too once the next has run.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import ConfigResource

from mm2mgr.failover.rehearsal import PREFIX
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.records import commit_group
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.sandbox.runtime import Runtime

from .command import Tree
from .moving_groups import consume, missing_and_twice, traffic
from .pair import Pair, flow, serving_pair
from .seen import Message, admin, create, is_transient, messages, topics, until, write
from .transactions import Transactions

pytestmark = pytest.mark.live
REHEARSED, QUIET_SECONDS = "rehearsed", 3.0
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
        while (record := consumer.poll(30)) is not None:
            if (error := record.error()) is None:
                found[record.offset()] = (record.value() or b"").decode()
            elif not is_transient(error):  # the end, or no such topic
                break
    finally:
        consumer.close()
    return found


def write_in_transactions(access: KafkaAccess, topic: str, first: int, end: int) -> None:
    """Write ids in transactions of seven, each third of which is aborted."""
    transactions = Transactions(access, "test")
    for number, start in enumerate(range(first, end, 7)):
        transactions.begin()
        for record in range(start, min(end, start + 7)):
            transactions.produce(topic, f"{topic}-{record}".encode())
        if number % 3 == 2:
            transactions.abort()
        else:
            transactions.commit()


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
            if start is None:
                continue
            read = [value for offset, value in target[topic].items() if offset >= start]
            assert unread <= set(read), f"{group} skips records of {topic} from {start} on"
            again.append(len(read) - len(unread))
            assert most is None or again[-1] <= most, (
                f"{group}: {again[-1]} of {topic} again from {start}, {most} named"
            )
        again_in_all += again[0] if again else 0  # where both offsets are the same, it counts once
    return again_in_all


State = tuple[dict[str, int], set[str], dict[str, Any], dict[str, int]]


def state_of(broker: Broker, access: KafkaAccess) -> State:
    """Return topics, groups, configs of topics, and bytes of logs, but for those that brokers themselves write to."""
    client = admin(access)
    names = set(topics(access)) - {"__consumer_offsets"}
    groups = {group.group_id for group in client.list_consumer_groups().result(20).valid}
    asked = client.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name) for name in sorted(names)])
    configs = {
        key.name: {name: each.value for name, each in future.result(20).items()} for key, future in asked.items()
    }
    sizes: dict[str, int] = {}
    for file in broker.directory.rglob("*.log"):
        if re.fullmatch(r".+-\d+", file.parent.name) and not file.parent.name.startswith(
            ("__consumer_offsets-", "__cluster_")
        ):
            sizes[f"{file.parent.name}/{file.name}"] = file.stat().st_size
    return {name: count for name, count in topics(access).items() if name in names}, groups, configs, sizes


def differences(before: list[State], after: list[State]) -> list[str]:
    """Return what differs of both clusters, for people."""
    found = []
    for side, earlier, later in zip(("source", "target"), before, after, strict=True):
        for noun, old, new in zip(("topics", "groups", "configs", "bytes"), earlier, later, strict=True):
            if isinstance(old, dict) and isinstance(new, dict):
                changed = {
                    key: (old.get(key), new.get(key)) for key in old.keys() | new.keys() if old.get(key) != new.get(key)
                }
            else:
                changed = old ^ new
            found += [f"{noun} of the {side}: {changed}"] if changed else []
    return found


@pytest.fixture
def pair_for_a_while(pair: Pair) -> Iterator[Pair]:
    yield pair
    pair.delete_connectors()


def test_a_rehearsal_reads_as_groups_would_and_leaves_both_clusters_as_they_were(
    pair_for_a_while: Pair, tree: Tree
) -> None:
    pair = pair_for_a_while
    create(pair.source, [REHEARSED], partitions=2)

    def produce(first: int, end: int) -> None:
        write(pair.source, REHEARSED, [Message(number % 2, None, b"%d" % number) for number in range(first, end)])

    produce(0, 300)
    for group, offset in (("billing", 150), ("search", 130), ("slow", 75)):
        commit_group(pair.source, group, {TopicPartition(REHEARSED, number): offset for number in range(2)})
    tree.write(pair.yaml("test", flow("rehearsed", REHEARSED, OF_GROUPS)))
    tree.run("apply", "--yes")
    until(lambda: len(messages(pair.target, f"src.{REHEARSED}")), lambda count: count == 300, "nothing arrives")
    until(lambda: check(tree, "--translated")["verdict"]["word"], lambda word: word.startswith("GO"), "never ready")

    def rehearse() -> Any:
        return tree.json("failover", "rehearse", "src->tgt", "--records", "20")

    producing = threading.Thread(target=lambda: [produce(number, number + 2) for number in range(300, 700, 2)])
    producing.start()
    under_traffic = rehearse()
    producing.join()
    assert under_traffic["verdict"]["word"].startswith("good"), under_traffic["verdict"]
    assert {group["group"] for group in under_traffic["groups"]} == {"billing", "search", "slow"}
    until(lambda: len(messages(pair.target, f"src.{REHEARSED}")), lambda count: count == 700, "not all arrives")

    tree.run("stop", "src->tgt", "--yes")
    sides = ((pair.src, pair.source), (pair.tgt, pair.target))

    def states() -> list[State]:
        return [state_of(*side) for side in sides]

    def states_over_time() -> list[list[State]]:
        first = states()
        time.sleep(QUIET_SECONDS)
        return [first, states()]

    before = until(states_over_time, lambda seen: seen[0] == seen[1], "the clusters are never quiet")[1]
    quiet = rehearse()
    assert quiet["verdict"]["word"].startswith("good"), quiet["verdict"]
    found = {(group["group"], each["outcome"]) for group in quiet["groups"] for each in group["positions"]}
    assert {outcome for _, outcome in found} <= {"same", "within"}
    assert sum(each["compared"] for group in quiet["groups"] for each in group["positions"]) == 3 * 2 * 20
    assert quiet["deleted"] == 3
    assert 0 < quiet["recovery_seconds"] < 60
    print(quiet["verdict"], quiet["recovery_seconds"], quiet["stages"])
    assert differences(before, states()) == []

    with tree.start("failover", "rehearse", "src->tgt", "--groups-at-once", "1") as running:
        until(lambda: state_of(*sides[1])[1] - before[1][1], lambda scratch: len(scratch) == 3, "no scratch group", 60)
        running.kill()
        running.wait()
    left = state_of(*sides[1])[1] - before[1][1]
    assert left
    assert all(name.startswith(PREFIX) for name in left)
    assert rehearse()["abandoned"] == len(left)
    assert differences(before, states()) == []


def test_a_planned_failover_under_traffic_misses_nothing_and_repeats_nothing(
    pair_for_a_while: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pair_for_a_while
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


def mirror_with_gaps(pair: Pair, tree: Tree) -> tuple[Logs, dict[str, str]]:
    """Mirror topics with gaps by compaction and transactions; return the records of the source, and the remote topics."""
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
    return {topic: records(pair.source, topic) for topic in TOPICS}, mirrors


@pytest.fixture
def pair_of_groups(tmp_path: Path, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path, runtime, workers=["w"], brokers=CLEANER) as pair:
        yield pair


@pytest.mark.matrix
def test_two_hundred_groups_at_random_positions_skip_nothing(
    pair_of_groups: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, chance = pair_of_groups, Random(37)
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))
    source, mirrors = mirror_with_gaps(pair, tree)
    for number in range(200):
        topics = chance.sample(TOPICS, chance.randint(1, 3))
        ends = {TopicPartition(topic, 0): max(source[topic]) + 1 for topic in topics}
        share = chance.choice([1.0, 0.99, chance.random(), chance.random() / 10, 0.0])
        commit_group(pair.source, f"g{number}", {partition: int(end * share) for partition, end in ends.items()})
    found = until(
        lambda: check(tree),
        lambda found: len(found["groups"]) == 200 and 0 <= (found["recovery"]["records"] or 0) <= MARKERS,
        "not all is mirrored",
    )
    count_again(found, source, {topic: records(pair.target, mirror) for topic, mirror in mirrors.items()})
    places = positions(found)
    known = sum(place["translated"] is not None for place in places.values())
    exact = sum(place["translated_repeats_at_most"] == 0 for place in places.values())
    print(f"{len(places)} positions of 200 groups: {known} translated, {exact} of them exactly; nothing skipped")
    assert known > 0.8 * len(places)


def test_nothing_is_skipped_and_no_more_comes_again_than_is_named(
    pair: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))
    source, mirrors = mirror_with_gaps(pair, tree)
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
