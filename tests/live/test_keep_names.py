"""From `dc1.orders` to `orders` under traffic, by the steps of the page: each id once over both topics.

Also why offset syncs of the old names must not be used for the new ones: seen on workers that were told so by hand.
"""

from __future__ import annotations

import itertools
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator

import confluent_kafka
import pytest
import yaml

from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.runtime import Runtime, kafka_runtime
from tests.docs.test_documents import DOCUMENTS, FENCE

from .command import Tree
from .pair import Pair, serving_pair
from .record_ids import RecordId, read_ids
from .seen import commit_all, connector_url, create, is_transient, log_end, rest, retry, until
from .traffic import Entry, producing

pytestmark = pytest.mark.live
PAGE = DOCUMENTS["docs/how-to/keep-topic-names.md"]
OLD, NEW, PARTITIONS = "dc1.orders", "orders", 2
SOURCE, CHECKPOINT = "mm2.dc1.agg.source.orders", "mm2.dc1.agg.checkpoint"


@pytest.fixture(params=["4.3.1", pytest.param("3.6.2", marks=pytest.mark.matrix)])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    line = runtime if request.param == "4.3.1" else kafka_runtime(request.param)
    with serving_pair(tmp_path_factory.mktemp("names"), line, workers=("first",)) as pair:
        yield pair


def fences(kind: str) -> list[str]:
    return [textwrap.dedent(match["body"]) for match in FENCE.finditer(PAGE) if match["kind"] == kind]


def tree_of(text: str, pair: Pair) -> str:
    """Return a tree of the page for these brokers, which are one each, and impatient."""
    places = {"dc1:9092": pair.src.bootstrap_servers, "agg:9092": pair.tgt.bootstrap_servers}
    for there, here in {**places, "http://connect-agg:8083": pair.url}.items():
        text = text.replace(there, here)
    tree = yaml.safe_load(text)
    tree["defaults"]["clusters"] = {"replication_factor": 1}
    tree["defaults"]["flows"] |= {"refresh_interval": "2s"}
    tree["defaults"]["flows"]["checkpoints"]["interval"] = "1s"
    return yaml.safe_dump(tree)


def commands() -> list[list[str]]:
    return [shlex.split(line)[1:] for block in fences("sh") for line in block.splitlines() if line]


def ids_of(access: KafkaAccess, topic: str) -> dict[int, list[RecordId]]:
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    return {partition.partition: ids for partition, ids in read_ids(access, partitions).items()}


def count(access: KafkaAccess, topic: str) -> int:
    reader = confluent_kafka.Consumer({**librdkafka_config(access), "group.id": "nobody"})
    try:
        if topic not in retry(lambda: reader.list_topics(timeout=20)).topics:
            return 0
        places = (confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS))
        return sum(log_end(reader, place) for place in places)
    finally:
        reader.close()


def read_as(access: KafkaAccess, group: str, least: int) -> dict[int, int]:
    """Read `orders` as a member of a group, since others are passed over, and return what it has committed then."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**librdkafka_config(access), **settings})
    consumer.subscribe([NEW])
    seen = 0
    while seen < least:
        record = consumer.poll(60)
        assert record is not None
        if (error := record.error()) is None:
            seen += 1
        else:
            assert is_transient(error), error
    committed = commit_all(consumer)
    consumer.close()
    return {place.partition: place.offset for place in committed}


def group_at(access: KafkaAccess, group: str, topic: str) -> dict[int, int]:
    reader = confluent_kafka.Consumer({**librdkafka_config(access), "group.id": group})
    places = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
    try:
        found = retry(lambda: reader.committed(places, timeout=20))
        return {place.partition: place.offset for place in found if place.offset >= 0}
    finally:
        reader.close()


def entries() -> Iterator[Entry]:
    for number in range(PARTITIONS):
        key = f"{number}/{next(IDS)}".encode()
        yield (NEW, number), key, key


IDS = itertools.count()


def test_each_id_is_once_in_the_old_or_the_new_topic(pair: Pair, tree: Tree) -> None:
    source, target = pair.source, pair.target
    before, after = (tree_of(text, pair) for text in fences("yaml"))
    create(source, [NEW], PARTITIONS)
    with producing(source, entries, 0.01):
        tree.write(before)
        tree.run("apply", "--yes")
        read_as(source, "behind", 20)
        until(lambda: count(target, OLD), lambda there: there > 400, "no traffic")
        at = read_as(source, "level", 400)

        def synced() -> dict[int, int]:
            """Read on: workers before 3.7.1 translate nothing in front of the last sync before their task began."""
            at.update(read_as(source, "level", max(1, count(source, NEW) - sum(at.values()))))
            return group_at(target, "level", OLD)

        until(synced, len, "no group was synced")
        tree.write(after)
        plan, stop, again, *rest_of_page = commands()
        assert [plan[0], stop[0], again[0], *(words[0] for words in rest_of_page)] == [
            "plan",
            "stop",
            "plan",
            "apply",
            "resume",
        ]
        assert "so these still grow" in tree.run(*plan)
        tree.run(*stop)
        said = tree.run(*again)
        assert f"renames {OLD} -> {NEW}: goes on with source offsets" in said
        assert "to copy" not in said
        changes = tree.json("plan")["clusters"][0]["changes"]
        (renamed,) = next(change["renames"] for change in changes if change["connector"] == SOURCE)
        for words in rest_of_page:
            tree.run(*words)
        until(lambda: count(target, NEW), lambda there: there > 200, "nothing under the new name")
    until(
        lambda: count(source, NEW) - count(target, OLD) - count(target, NEW), lambda rest: rest <= 0, "records missing"
    )
    at = read_as(source, "level", 100)
    written, old, new = ids_of(source, NEW), ids_of(target, OLD), ids_of(target, NEW)
    for handover in renamed["handovers"]:
        number = handover["partition"]
        assert Counter(old[number] + new[number]) == Counter(written[number])
        assert old[number] + new[number] == written[number], "in order, over both"
        assert len(old[number]) == handover["first"] == handover["old_end"]
        assert handover["new_start"] == 0
    first = {handover["partition"]: handover["first"] for handover in renamed["handovers"]}
    # Level has read past the change: its offset in the new topic is there, and never in front of where it was.
    if any(at[number] > first[number] for number in at):
        until(lambda: group_at(target, "level", NEW), len, "no group was synced under the new name")
    for group in ("level", "behind"):
        for number, offset in group_at(target, group, NEW).items():
            assert offset <= max(0, at.get(number, 0) - first[number] if group == "level" else 0)
    assert f"{OLD} -> {NEW}" not in tree.run("plan")


@pytest.mark.matrix
def test_offset_syncs_of_the_old_names_put_a_group_behind_the_end_of_the_new_topic(pair: Pair, tree: Tree) -> None:
    """What `stale-syncs` refuses: mm2mgr does not write it, so it is written by hand."""
    source, target = pair.source, pair.target
    before, after = (tree_of(text, pair) for text in fences("yaml"))
    create(source, [NEW], PARTITIONS)
    tree.write(before)
    with producing(source, entries, 0.01):
        tree.run("apply", "--yes")
        until(lambda: count(target, OLD), lambda there: there > 400, "no traffic")
    until(lambda: count(source, NEW) - count(target, OLD), lambda rest: rest <= 0, "records missing")
    read_as(source, "level", count(source, NEW))
    until(lambda: group_at(target, "level", OLD), len, "no group was synced")
    tree.write(yaml.safe_dump(_without_location(after)))
    assert "stale-syncs" in tree.run("plan", code=1)
    for name in (SOURCE, CHECKPOINT):
        config = rest("GET", connector_url(pair.url, name))["config"]
        policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
        rest("PUT", connector_url(pair.url, name, "/config"), {**config, "replication.policy.class": policy})
    there = until(lambda: group_at(target, "level", NEW), len, "no group was synced under the new name")
    assert count(target, NEW) == 0
    assert all(offset > 0 for offset in there.values())


def _without_location(text: str) -> dict[str, object]:
    tree: dict[str, object] = yaml.safe_load(text)
    tree["defaults"]["flows"].pop("offset_syncs")  # type: ignore[index]
    return tree
