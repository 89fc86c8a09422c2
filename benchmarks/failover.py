"""What `failover check` of 1,000 groups with 100 partitions each costs, beside its bounds of 60 s and 1 GiB.

    python benchmarks/failover.py [--groups N] [--partitions N] [--shared] [--broker]

Each group reads topics of its own (100,000 partitions in all; `--shared`: all groups read the same ones). A fake answers in the place
of both Kafka clusters, so this is what mm2mgr itself does, the JSON of the result included. `--broker` measures beside it what reading
the groups and logs of one real broker takes, which is asked with the same number of groups and partitions. Exits with 1 above a bound.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mm2mgr.cli import prepare_process
from mm2mgr.json_values import to_json
from mm2mgr.kafka.client import Kafka
from mm2mgr.operations import Workspace, failover_check
from mm2mgr.partitions import Offsets, TopicPartition

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.failover.fake_pair import FakeCluster, FakePair, checkpoint, sync, syncs_of
from tests.fake_connect import FakeConnect, serving

BOUND_SECONDS, BOUND_BYTES = 60.0, 1 << 30
END, BEHIND, AGAIN = 100_000, 40, 3
TREE = """\
owner: bench
clusters:
  a: {{bootstrap_servers: ["a:9092"], cluster_id: a}}
  east: {{bootstrap_servers: ["east:9092"], cluster_id: east}}
connect: {{east: {{url: "{url}", kafka: east, history: false}}}}
flows:
  all: {{sources: [a], targets: [east], topics: {{include: ["t.*"]}}, checkpoints: {{group_offsets: true}}, heartbeats: false}}
"""


def fake_pair(groups: int, partitions: int, *, shared: bool) -> FakePair:
    """Return a pair whose groups are 40 records behind the end, and would read three again on the target."""
    source, target = FakeCluster(), FakeCluster()
    syncs, checkpoints = [], {}
    for group in range(groups):
        name, topic = f"group-{group}", "t-shared" if shared else f"t-{group}"
        commits, there = {}, {}
        for number in range(partitions):
            partition, remote = TopicPartition(topic, number), TopicPartition(f"a.{topic}", number)
            if partition not in source.logs:
                source.logs[partition] = target.logs[remote] = Offsets(0, END)
                syncs += [sync(topic, at, at, number) for at in (0, END // 2, END - 200, END - 1)]
            commits[partition], there[remote] = END - BEHIND, END - BEHIND - AGAIN
            checkpoints[checkpoint(name, f"a.{topic}", END - BEHIND, END - BEHIND - AGAIN, number)] = time.time()
        source.commits[name], target.commits[name] = commits, there
    source.syncs, target.checkpoints = syncs_of(*syncs), type(target.checkpoints)(checkpoints)
    source.logs[TopicPartition("mm2-offset-syncs.east.internal", 0)] = Offsets(0, len(syncs))
    target.logs[TopicPartition("a.checkpoints.internal", 0)] = Offsets(0, len(checkpoints))
    return FakePair({"a": source, "east": target})


@contextmanager
def workspace(pair: FakePair) -> Iterator[Workspace]:
    """Yield a tree with this pair, whose connectors run and have stored all."""
    fake = FakeConnect(cluster_id="east")
    with tempfile.TemporaryDirectory() as folder, serving(fake) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MM2MGR_STATE", folder)
        tree = Path(folder, "tree.yaml")
        tree.write_text(TREE.format(url=url))
        made = Workspace((tree,))
        for connector in made.connectors:
            fake.add(connector.name, dict(connector.config))
            if connector.type == "source":
                topics: dict[str, dict[int, int]] = {}
                for topic, number in pair.clusters["a"].logs:
                    if topic.startswith("t-"):
                        topics.setdefault(topic, {})[number] = END - 1
                fake.source_topics = {topic: len(numbers) for topic, numbers in topics.items()}
                for topic, stored in topics.items():
                    fake.add_offsets(connector.name, topic, stored, alias="a")
        pair.serve(patch)
        yield made


def measure_broker(groups: int, partitions: int) -> float:
    """Return the seconds that reading groups, commits and logs of one real broker takes."""
    from mm2mgr.kafka.access import KafkaAccess
    from mm2mgr.kafka.client import batches
    from mm2mgr.live.questions import CommittedOffsets, GroupMembers, TopicLogs
    from mm2mgr.live.reach import KafkaReach, Limits
    from mm2mgr.sandbox.kafka_servers import Broker

    with tempfile.TemporaryDirectory() as folder, Broker("a", Path(folder, "a")) as broker:
        access = KafkaAccess("a", broker.bootstrap_servers)
        with Kafka(access, 120.0) as kafka:
            kafka.create_topics({"t": (partitions, 1, {})})
            left = [f"group-{number}" for number in range(groups)]
            while left:  # a coordinator that only just began refuses commits
                left = [group for some in batches(left, 50) for group in _refused_commits(kafka, some, partitions)]
        names = tuple(f"group-{group}" for group in range(groups))
        began = time.perf_counter()
        reach = KafkaReach(access, Limits(kafka_seconds=10.0, measuring_seconds=30.0))
        states = GroupMembers("a").ask(reach)
        offsets = CommittedOffsets("a", names).ask(reach)
        question = TopicLogs("a", "t", partitions)
        logs = TopicLogs.ask_all(reach, [question])
        reach.close()
        seconds = time.perf_counter() - began
        assert len(states) == groups, f"{len(states)} of {groups} groups are listed"
        assert sum(map(len, offsets.offsets.values())) == groups * partitions
        assert len(logs[question]) == partitions
        return seconds


def _refused_commits(kafka: Kafka, groups: list[str], partitions: int) -> list[str]:
    """Commit an offset of each partition for groups, and return the groups that were refused."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    places = [TopicPartition("t", number, 1) for number in range(partitions)]
    asked = [
        kafka.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]) for group in groups
    ]
    answers = [future.result(60) for futures in asked for future in futures.values()]
    return [answer.group_id for answer in answers if any(place.error for place in answer.topic_partitions)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--broker", action="store_true")
    options = parser.parse_args(arguments)
    prepare_process()
    pair = fake_pair(options.groups, options.partitions, shared=options.shared)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with workspace(pair) as made:
        began, cpu = time.perf_counter(), time.process_time()
        readiness = failover_check(made, "a->east")
        judged, cpu_judged = time.perf_counter() - began, time.process_time() - cpu
        size = len(json.dumps(to_json(readiness)))
        whole = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    positions = sum(group.count for group in readiness.groups)
    verdict = readiness.verdict
    print(f"failover check of {len(readiness.groups)} groups in {positions} positions: {verdict.word}")
    print(f"  judged in {judged:.1f} s ({cpu_judged:.1f} s CPU), with its JSON of {size / 1e6:.0f} MB {whole:.1f} s")
    print(f"  memory {peak / 2**20:.0f} MiB, of which the fake's answers and Python are {before / 2**20:.0f} MiB")
    print(f"  questions: {dict(sorted(pair.asked.items()))}")
    assert verdict.repeats_at_most == AGAIN * positions, verdict
    broker = measure_broker(options.groups, options.partitions) if options.broker else 0.0
    if options.broker:
        print(f"  reading groups, their offsets and the logs of one real broker: {broker:.1f} s")
    total = whole + 2 * broker
    print(f"  {total:.1f} s of {BOUND_SECONDS:.0f} s, {peak / 2**20:.0f} of {BOUND_BYTES / 2**20:.0f} MiB")
    return int(total > BOUND_SECONDS or peak > BOUND_BYTES)


if __name__ == "__main__":
    sys.exit(main())
