"""`mm2mgr audit` on real brokers and Connect workers: flows under traffic whose worker is killed, topics of all kinds, and what takes a log away."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest

from mm2mgr import operations
from mm2mgr.audit.report import DifferenceKind, FlowAudit, PartitionAudit, Verdict
from mm2mgr.audit.run import AuditProgress
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.operations import AuditOptions, MirrorState, RecordsOptions, audit, audit_compare
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.runtime import Runtime
from mm2mgr.sandbox.server import start_all
from tests.cli.command import allowed_seconds
from tests.live.command import Tree
from tests.live.conftest import WORKER, runtime, tree  # noqa: F401  fixtures
from tests.live.pair import Pair, flow, serving_pair
from tests.live.seen import Message, admin, create, delete, messages, topics, until, write
from tests.live.traffic import Traffic
from tests.live.transactions import Transactions

from .faults import records

pytestmark = pytest.mark.live
SETTINGS = {**WORKER, "offset.flush.interval.ms": "3000"}
QUIET = "checkpoints: false, heartbeats: false, "


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:  # noqa: F811
    folder: Path = tmp_path_factory.mktemp("audit")
    with serving_pair(folder, runtime, workers=["w"], settings=SETTINGS) as pair:
        yield pair


@pytest.fixture(autouse=True)
def _own_memory(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("MM2MGR_STATE", str(tree.folder.parent / "state"))


def declare(pair: Pair, tree: Tree, flows: str) -> None:  # noqa: F811
    tree.write(pair.yaml("test", flows, QUIET, workers=", flush_interval: 3s"))
    tree.run("apply", "--yes")


def judged(tree: Tree, name: str, **more: object) -> FlowAudit:  # noqa: F811
    """Audit a flow until all that its source has is before its stored offsets."""

    def look() -> FlowAudit:
        return audit(tree.workspace(), (name,), AuditOptions(spark=False, most_differences=100_000, **more)).flows[0]  # type: ignore[arg-type]

    def is_whole(found: FlowAudit) -> bool:
        return bool(found.partitions) and not any(
            "on their way" in why for p in found.partitions for why in p.not_judged
        )

    return until(look, is_whole, "not all is stored")


def stored_all(tree: Tree, pair: Pair, name: str, topics: list[str]) -> FlowAudit:  # noqa: F811
    def ends() -> dict[TopicPartition, int]:
        with Kafka(pair.source) as kafka:
            counts = kafka.partition_counts()
            every = [TopicPartition(topic, number) for topic in topics for number in range(counts[topic])]
            return {partition: log.end for partition, log in kafka.offsets(every).items() if log.end > log.start}

    def is_whole(found: FlowAudit) -> bool:
        reached = {part.source: part.source_window[1] for part in found.partitions}
        return all(reached.get(partition, 0) >= end for partition, end in ends().items())

    return until(lambda: judged(tree, name), is_whole, "not all is stored")


def test_a_killed_worker_sends_again_what_the_audit_counts(pair: Pair, tree: Tree) -> None:  # noqa: F811
    topics = [f"killed.{number}" for number in range(3)]
    create(pair.source, topics)
    declare(pair, tree, flow("killed", "'killed[.].*'"))
    (worker,) = pair.workers
    with Traffic(pair.source, topics, 600.0) as traffic:
        for _ in range(2):
            until(lambda: judged(tree, "killed"), lambda found: sum(p.source_records for p in found.partitions) > 0)
            worker.kill()
            start_all([worker])
    counts = traffic.arrived(pair.target, "src")
    found = stored_all(tree, pair, "killed", topics)
    for part in found.partitions:
        again = {value: count - 1 for value, count in counts[part.source.topic].items() if count > 1}
        told = Counter((each.source_offset or 0) + 1 for each in part.differences)
        assert told == again, part.source
        assert set(part.counts) <= {DifferenceKind.DUPLICATED}
        assert all("came twice, after the record of" in each.note for each in part.differences)
        assert part.source_records == traffic.rounds
    time_ms = int(1000 * time.time()) - 5_000_000
    (shown,) = operations.records(tree.workspace(), topics[0], RecordsOptions(since_ms=time_ms, count=100))
    assert [record.offset for record in shown.records] == list(range(100))
    (newest,) = operations.records(tree.workspace(), topics[0], RecordsOptions(count=100))
    log = messages(pair.target, newest.remote)
    for record in (*shown.records, *newest.records):
        assert (record.state, {log[offset].value for offset in record.mirrors}) == (MirrorState.EQUAL, {record.value})


def stop(tree: Tree, name: str) -> None:  # noqa: F811
    """Let nobody but the test write from here on."""
    tree.run("stop", name)


def while_reading(do: Callable[[], None]) -> Callable[[AuditProgress], None]:
    """Return a progress function that does something once, after the bounds were read and before the records are."""
    done: list[AuditProgress] = []

    def progress(now: AuditProgress) -> None:
        if not done:
            done.append(now)
            do()

    return progress


@pytest.fixture
def mirrored(pair: Pair, tree: Tree, request: pytest.FixtureRequest) -> str:  # noqa: F811
    """A topic of two partitions with 400 records, mirrored by a flow of its name that has stopped."""
    name = f"t{abs(hash(request.node.name)) % 100_000}"
    create(pair.source, [name], 2)
    declare(pair, tree, flow(name, name))
    write(pair.source, name, [*records(random.Random(1), 200), *records(random.Random(2), 200, 1)])
    assert stored_all(tree, pair, name, [name]).verdict is Verdict.EQUAL
    stop(tree, name)
    return name


def take_away_and_judge(tree: Tree, name: str, do: Callable[[], None]) -> FlowAudit:  # noqa: F811
    report = audit(tree.workspace(), (name,), AuditOptions(spark=False), while_reading(do))
    assert report.exit_code == 1
    (found,) = report.flows
    assert found.verdict is Verdict.NOT_JUDGED
    return found


def test_what_is_taken_away_while_it_is_read_is_not_judged(pair: Pair, tree: Tree, mirrored: str) -> None:  # noqa: F811
    remote = f"src.{mirrored}"
    for access, topic in ((pair.source, mirrored), (pair.target, remote)):
        place = confluent_kafka.TopicPartition(topic, 0, 50)

        def eat(access: KafkaAccess = access, place: confluent_kafka.TopicPartition = place) -> None:
            for future in admin(access).delete_records([place]).values():
                future.result(20)

        found = take_away_and_judge(tree, mirrored, eat)
        first, second = found.partitions
        assert any("50" in why or "records from offset 0 on" in why for why in first.not_judged), first
        assert second.verdict is Verdict.EQUAL
    log = messages(pair.target, remote)

    def create_again() -> None:
        delete(pair.target, [remote])
        until(lambda: topics(pair.target), lambda there: remote not in there)
        create(pair.target, [remote], 2)
        write(pair.target, remote, log)

    found = take_away_and_judge(tree, mirrored, create_again)
    assert all(part.not_judged for part in found.partitions)
    found = take_away_and_judge(tree, mirrored, lambda: delete(pair.source, [mirrored]))
    assert all(part.not_judged for part in found.partitions)
    (left,) = audit(tree.workspace(), (mirrored,), AuditOptions(spark=False)).flows
    assert left.verdict is Verdict.NOT_JUDGED
    assert f"src has no topic {mirrored}" in left.not_judged[0]


def connector(settings: dict[str, str]) -> str:
    items = ", ".join(f"'{key}': '{value}'" for key, value in settings.items())
    return f", source_connector: {{{items}}}, silence: {{transform-renames: the test reads there}}"


WITHOUT_TOMBSTONES = {
    "transforms": "no",
    "transforms.no.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.no.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
}


def router(regex: str, replacement: str) -> dict[str, str]:
    name = "org.apache.kafka.connect.transforms.RegexRouter"
    settings = {"type": name, "regex": regex, "replacement": replacement}
    return {"transforms": "r", **{f"transforms.r.{key}": value for key, value in settings.items()}}


def test_windows_samples_counts_and_two_mirrors(pair: Pair, tree: Tree) -> None:  # noqa: F811
    create(pair.source, ["windows"], 2)
    log = [*records(random.Random(3), 3_000), *records(random.Random(4), 3_000, 1)]
    write(pair.source, "windows", log)
    renamed = router("src[.]windows", "copy")
    create(pair.target, ["copy"], 2)
    both = flow("one", "windows") + flow("two", "windows", connector(renamed))
    declare(pair, tree, both)
    for name in ("one", "two"):
        assert stored_all(tree, pair, name, ["windows"]).verdict is Verdict.EQUAL
    workspace = tree.workspace()
    times = sorted(record.timestamp_ms for record in log if record.partition == 0)
    since, until_ms = times[1_000], times[2_000]
    part, other = (
        audit(workspace, ("one",), AuditOptions(since_ms=since, until_ms=until_ms, spark=False)).flows[0].partitions
    )
    for each in (part, other):
        assert each.verdict is Verdict.EQUAL
        assert 900 < each.source_records < 1_100
    sampled = audit(workspace, ("one",), AuditOptions(sample=0.1, seed=7, spark=False))
    assert sampled.verdict is Verdict.EQUAL
    assert "seed 7" in sampled.warnings[0]
    assert 400 < sum(each.source_records for each in sampled.flows[0].partitions) < 800
    assert audit(workspace, ("one",), AuditOptions(counts=True)).verdict is Verdict.EQUAL
    compared = audit_compare(workspace, "one", "two", AuditOptions(spark=False))
    assert [each.flow for each in compared.flows][2] == "one:src->tgt beside two:src->tgt"
    assert compared.verdict is Verdict.EQUAL
    write(pair.target, "copy", [Message(0, b"nobody's", b"x", (), times[-1])])
    compared = audit_compare(workspace, "one", "two", AuditOptions(spark=False))
    assert [each.verdict for each in compared.flows] == [Verdict.EQUAL, Verdict.DIFFERS, Verdict.DIFFERS]
    (extra,) = compared.flows[2].partitions[0].differences
    assert (extra.kind, extra.target_offset, extra.note) == (DifferenceKind.EXTRA, 3_000, "only in two:src->tgt")


def test_what_the_config_makes_of_records_is_expected(pair: Pair, tree: Tree) -> None:  # noqa: F811
    names = {"dropping": {}, "stamped": {}, "latest": {"cleanup.policy": "compact"}, "fan": {}, "merged": {}}
    log = [replace(each, key=each.key or b"k") for each in records(random.Random(5), 1_500)]
    for name, config in names.items():
        create(pair.source, [name], config=config)
        write(
            pair.source,
            name,
            [replace(each, value=(each.value or b"") + name.encode() if each.value else None) for each in log],
        )
    create(pair.target, ["src.stamped"], config={"message.timestamp.type": "LogAppendTime"})
    merging = connector(router("src[.](fan|merged)", "together"))
    create(pair.target, ["together"])

    flows = (
        flow("dropping", "dropping", connector(WITHOUT_TOMBSTONES))
        + flow("stamped", "stamped")
        + flow("latest", "latest")
    )
    flows += flow("fan", "fan", merging) + flow("merged", "merged", merging)
    declare(pair, tree, flows)
    for name in names:
        found = stored_all(tree, pair, name, [name])
        assert found.verdict is Verdict.EQUAL, found
        said = " ".join(found.promises)
        if name == "dropping":
            assert sum(found.partitions[0].expected.values()) == sum(each.value is None for each in log) > 0
        wanted = {"stamped": "LogAppendTime", "latest": "compacted", "fan": "merged:src->tgt", "dropping": "tombstones"}
        assert wanted.get(name, "") in said


def delete_records(access: KafkaAccess, topic: str, end: int) -> None:
    for future in admin(access).delete_records([confluent_kafka.TopicPartition(topic, 0, end)]).values():
        future.result(20)


def look(tree: Tree, name: str, **more: object) -> PartitionAudit | str:  # noqa: F811
    """Audit the one partition of a flow; where the flow is not judged at all, return the reasons."""
    (found,) = audit(tree.workspace(), (name,), AuditOptions(spark=False, **more)).flows  # type: ignore[arg-type]
    return found.partitions[0] if found.partitions else "; ".join(found.not_judged)


def reason(found: PartitionAudit | str) -> str:
    if isinstance(found, str):
        return found
    assert found.verdict is Verdict.NOT_JUDGED, found
    return "; ".join(found.not_judged)


NOW = round(time.time() * 1000)
HOUR_AGO = NOW - 3_600_000
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}


def plain(count: int, base_ms: int = HOUR_AGO) -> list[Message]:
    return [Message(0, b"k%d" % (row % 7), b"v%d" % row, (), base_ms + 100 * row) for row in range(count)]


@pytest.mark.matrix
def test_what_may_be_lost_or_stands_still_is_never_equal(pair: Pair, tree: Tree) -> None:  # noqa: F811
    """Each of these was once said to be equal."""
    names = ("eaten", "emptied", "still", "ahead")
    create(pair.source, names, config=ANY_TIME)
    create(pair.target, ["src.ahead"], config=ANY_TIME)
    for name in ("eaten", "emptied"):
        write(pair.source, name, plain(200))
    write(pair.source, "still", plain(50, NOW - 7_200_000))
    ahead = Message(0, b"k", b"ahead", (), NOW + 315_360_000_000)
    write(pair.source, "ahead", [*plain(5), ahead, *plain(300, NOW - 1_000_000)])
    declare(pair, tree, "".join(flow(name, name) for name in names))
    for name in names:
        assert stored_all(tree, pair, name, [name]).verdict is Verdict.EQUAL, name
        stop(tree, name)
    # Retention took what was never mirrored.
    write(pair.source, "eaten", plain(300, NOW - 1_000_000))
    delete_records(pair.source, "eaten", 500)
    for more in ({}, {"since_ms": NOW - 3_000_000}, {"counts": True}):
        assert "offsets 200-499 were never mirrored" in reason(look(tree, "eaten", **more))
    # The topic was created again, and is empty.
    delete(pair.source, ["emptied"])
    until(lambda: topics(pair.source), lambda there: "emptied" not in there)
    create(pair.source, ["emptied"])
    until(lambda: reason(look(tree, "emptied")), lambda why: "created again" in why)
    # One new record, and the flow stands still.
    assert look(tree, "still", since_ms=NOW - 600_000).verdict is Verdict.EQUAL  # type: ignore[union-attr]
    write(pair.source, "still", plain(1, NOW - 60_000))
    assert "not mirrored yet" in reason(look(tree, "still", since_ms=NOW - 600_000))
    # A record has a timestamp ten years ahead, and most behind it are lost.
    log = messages(pair.target, "src.ahead")
    delete(pair.target, ["src.ahead"])
    until(lambda: topics(pair.target), lambda there: "src.ahead" not in there)
    create(pair.target, ["src.ahead"], config=ANY_TIME)
    write(pair.target, "src.ahead", log[:100])
    for more in ({}, {"since_ms": NOW - 2_000_000}):
        assert look(tree, "ahead", **more).counts == {DifferenceKind.MISSING: 206}  # type: ignore[union-attr]
    assert "leave out the end of the window" in reason(look(tree, "ahead", since_ms=NOW - 2_000_000, until_ms=NOW))


@pytest.mark.matrix
def test_transactions_and_markers_of_real_producers(pair: Pair, tree: Tree) -> None:  # noqa: F811
    """Each of these was once said to differ, or not to be judged, or ended with a traceback."""
    create(pair.source, ["open", "marked"])
    create(pair.source, ["filtered"], config={"cleanup.policy": "compact"})
    write(pair.source, "open", plain(200))
    keyed = [(b"a", b"1"), (b"k", b"2"), (b"k", None), (b"z", b"3")]
    write(pair.source, "filtered", [Message(0, key, value, (), NOW + row) for row, (key, value) in enumerate(keyed)])
    marker = Transactions(pair.source, "marker")
    for row in range(10):
        marker.begin()
        marker.produce("marked", b"v%d" % row, b"k", timestamp=HOUR_AGO + row)
        marker.commit()
    flows = flow("open", "open", ", source_consumer: {isolation.level: read_committed}") + flow("marked", "marked")
    declare(pair, tree, flows + flow("filtered", "filtered", connector(WITHOUT_TOMBSTONES)))
    assert stored_all(tree, pair, "open", ["open"]).verdict is Verdict.EQUAL
    # The last offset is the marker of a transaction: no record is behind what is stored.
    level = until(lambda: look(tree, "marked"), lambda found: getattr(found, "source_records", 0) == 10)
    assert isinstance(level, PartitionAudit)
    assert (level.verdict, level.source_window) == (Verdict.EQUAL, (0, 19))
    for name in ("open", "marked", "filtered"):
        stop(tree, name)
    # A transaction is open on the source.
    writer = Transactions(pair.source, "open")
    writer.begin()
    for row in range(20):
        writer.produce("open", b"open%d" % row, b"k")
    writer.flush()
    began = time.monotonic()
    found = look(tree, "open")
    assert not isinstance(found, str)
    assert (found.verdict, found.source_window) == (Verdict.EQUAL, (0, 200))
    assert time.monotonic() - began < 5 * allowed_seconds(), "nothing is waited for that cannot come"
    writer.abort()
    assert look(tree, "open").verdict is Verdict.EQUAL  # type: ignore[union-attr]
    # Compacted, and a transformation drops records.
    assert "a transformation drops records" in reason(look(tree, "filtered"))
    # Markers take offsets: counts cannot tell, records can; behind what is stored there is only a marker.
    assert "markers of transactions" in reason(look(tree, "marked", counts=True))
    later = look(tree, "marked", since_ms=NOW + 3_600_000)  # markers have timestamps, too
    assert not isinstance(later, str)
    assert (later.verdict, later.source_records) == (Verdict.EQUAL, 0)
    with Kafka(pair.source) as kafka:
        assert kafka.offsets([TopicPartition("marked", 0)])[TopicPartition("marked", 0)].end == 20
    write(pair.source, "marked", plain(1, NOW - 10_000_000))
    assert "not mirrored yet" in reason(look(tree, "marked", since_ms=NOW + 3_600_000))


@pytest.mark.matrix
def test_a_broker_lost_in_the_middle_is_not_judged(pair: Pair, tree: Tree, mirrored: str) -> None:  # noqa: F811
    for broker in (pair.src, pair.tgt):
        try:
            found = take_away_and_judge(tree, mirrored, broker.kill)
            assert all(part.not_judged for part in found.partitions)
            (left,) = audit(tree.workspace(), (mirrored,), AuditOptions(spark=False)).flows
            assert left.not_judged
        finally:
            start_all([broker])
    found = until(lambda: judged(tree, mirrored), lambda flow: flow.verdict is not Verdict.NOT_JUDGED)
    assert found.verdict is Verdict.EQUAL


@pytest.mark.matrix
def test_an_audit_that_is_killed_gives_the_same_answer_again(pair: Pair, tree: Tree, mirrored: str) -> None:  # noqa: F811
    until(lambda: judged(tree, mirrored), lambda flow: flow.verdict is Verdict.EQUAL)
    with Kafka(pair.target) as kafka:
        kafka.delete_topic(f"src.{mirrored}")
    create(pair.target, [f"src.{mirrored}"], 2)
    store = tree.folder.parent / "store"
    command = ["--clusters", str(tree.folder), "audit", mirrored, "--no-spark", "--store", str(store), "-o", "json"]
    for seconds in (0.5, 1.0, 1.5, 2.0):
        process = subprocess.Popen([sys.executable, "-m", "mm2mgr", *command], stdout=subprocess.DEVNULL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()
        process.wait()
    answers = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-m", "mm2mgr", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        answers.append(json.loads(done.stdout)["flows"])
    assert answers[0] == answers[1]
    assert answers[0][0]["counts"]["missing"] == 400


@pytest.mark.matrix
def test_random_flows_under_traffic_have_no_false_difference(pair: Pair, tree: Tree) -> None:  # noqa: F811
    """MM2MGR_FLOWS=N makes it N flows instead of 30; the worker is killed three times."""
    chance, count = random.Random(9), int(os.environ.get("MM2MGR_FLOWS", "30"))
    topics_of = {
        f"r{number}": [f"r{number}.{topic}" for topic in range(chance.randrange(1, 4))] for number in range(count)
    }
    every = [topic for names in topics_of.values() for topic in names]
    create(pair.source, every)
    declare(pair, tree, "".join(flow(name, f"'{name}[.].*'") for name in topics_of))
    (worker,) = pair.workers
    with Traffic(pair.source, every, 1_500.0) as traffic:
        for _ in range(3):
            time.sleep(chance.uniform(5, 15))
            worker.kill()
            start_all([worker])
        time.sleep(10)
    counts = traffic.arrived(pair.target, "src", 300.0)
    again = 0
    for name, names in topics_of.items():
        for part in stored_all(tree, pair, name, names).partitions:
            wanted = {value: times - 1 for value, times in counts[part.source.topic].items() if times > 1}
            assert Counter((each.source_offset or 0) + 1 for each in part.differences) == wanted
            assert set(part.counts) <= {DifferenceKind.DUPLICATED}
            again += sum(wanted.values())
    print(f"{count} flows, {len(every)} topics, {traffic.rounds * len(every)} records, {again} came twice")
