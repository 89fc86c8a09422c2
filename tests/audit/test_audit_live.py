"""Both passes on real brokers: logs written by the test itself, with faults that must be named by their offsets, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, count, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

from mm2mgr.audit import log_source, run, verdicts
from mm2mgr.audit.blocks import blocks_of
from mm2mgr.audit.engines import CONTEXT_BLOCKS, OnSpark, _join_ranges, _latest, _sums_of_logs
from mm2mgr.audit.latest import LATEST_SCHEMA, RECORD, different_keys, different_keys_frame
from mm2mgr.audit.log_source import _free_names, different_blocks, read_tasks
from mm2mgr.audit.records import Records
from mm2mgr.audit.report import AuditReport, DifferenceKind, Verdict
from mm2mgr.audit.run import run_audit
from mm2mgr.audit.scan import DROPPED, FAULT, READ, SCAN_SCHEMA, SOURCE, TARGET, ScanRange, _row, _rows, scan
from mm2mgr.audit.windows import AuditOrder, Expectation, FlowOrder, LogAccess, LogWindow, Matching, PartitionOrder
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.client import Kafka
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.sandbox.kafka_servers import Broker
from tests.live.conftest import serving
from tests.live.seen import Message, admin, create, until, write
from tests.live.transactions import Transactions

from .faults import in_order, records, told, with_faults
from .test_windows import AROUND, Logs, order_of, random_logs, random_window

pytestmark = pytest.mark.live
PLAIN = Expectation()
WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:nobody",
}
LARGE = {"message.max.bytes": 8_000_000}


@dataclass(frozen=True)
class Clusters:
    """A source and a target."""

    src: Broker
    tgt: Broker

    @property
    def source(self) -> KafkaAccess:
        return KafkaAccess("src", self.src.bootstrap_servers)

    @property
    def target(self) -> KafkaAccess:
        return KafkaAccess("tgt", self.tgt.bootstrap_servers)

    def write(
        self, topic: str, source: list[Message], target: list[Message], partitions: int = 1, **config: str
    ) -> None:
        create(self.source, [topic], partitions, config)
        create(self.target, [f"src.{topic}"], partitions, config)
        for access, name, log in ((self.source, topic, source), (self.target, f"src.{topic}", target)):
            for first in range(0, len(log), 50_000):  # more would not fit into a producer's queue
                write(access, name, log[first : first + 50_000], **LARGE)

    def order(self, topic: str, partitions: int = 1, expectation: Expectation = PLAIN, **more: object) -> AuditOrder:
        return AuditOrder((self.flow(topic, partitions, expectation),), **more)  # type: ignore[arg-type]

    def flow(self, topic: str, partitions: int = 1, expectation: Expectation = PLAIN) -> FlowOrder:
        """Return the whole logs, as if all were mirrored."""
        numbers = range(partitions)
        with Kafka(self.source) as source, Kafka(self.target) as target:
            logs = source.offsets(TopicPartition(topic, number) for number in numbers)
            mirrors = target.offsets(TopicPartition(f"src.{topic}", number) for number in numbers)

        def part(number: int) -> PartitionOrder:
            there, here = TopicPartition(topic, number), TopicPartition(f"src.{topic}", number)
            log, mirror = logs[there], mirrors[here]
            return PartitionOrder(LogWindow(there, *log), LogWindow(here, *mirror), log, mirror, expectation)

        accesses = (LogAccess(access.alias, librdkafka_config(access)) for access in (self.source, self.target))
        return FlowOrder("f:src->tgt", *accesses, tuple(map(part, numbers)))


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    folder: Path = tmp_path_factory.mktemp("clusters")
    src, tgt = (Broker(name, folder / name, {"message.max.bytes": "8000000", **WITH_ACLS}) for name in ("src", "tgt"))
    with serving([src, tgt]):
        yield Clusters(src, tgt)


def only(report: AuditReport) -> Iterator[object]:
    (flow,) = report.flows
    return iter(flow.partitions)


def test_equal_logs_are_equal(clusters: Clusters) -> None:
    log = records(random.Random(1), 5_000)
    clusters.write("equal", log, log)
    report = run_audit(clusters.order("equal"))
    assert report.verdict is Verdict.EQUAL, report
    (part,) = report.flows[0].partitions
    assert (part.source_records, part.target_records, part.differences) == (5_000, 5_000, ())


def test_large_records_and_many_headers_are_compared_too(clusters: Clusters) -> None:
    log = records(random.Random(2), 50)
    log[10] = Message(0, b"k", b"v" * 5_000_000, (), log[10].timestamp_ms)
    log[20] = Message(0, None, b"v", tuple((f"h{row % 7}", b"%d" % row) for row in range(1_000)), log[20].timestamp_ms)
    mirror = [*log]
    clusters.write("large", log, mirror)
    assert run_audit(clusters.order("large")).verdict is Verdict.EQUAL
    mirror[10] = replace(log[10], value=b"v" * 4_999_999 + b"w")
    mirror[20] = replace(log[20], headers=(*log[20].headers[:500], *log[20].headers[501:]))
    clusters.write("large-altered", log, mirror)
    (part,) = run_audit(clusters.order("large-altered")).flows[0].partitions
    assert told(part.differences) == [
        (DifferenceKind.ALTERED, 10, 10, ("value",)),
        (DifferenceKind.ALTERED, 20, 20, ("headers",)),
    ]


def test_records_of_aborted_transactions_count_where_they_are_mirrored(clusters: Clusters) -> None:
    log = records(random.Random(3), 300)
    clusters.write("aborted", log, [])
    transactions = Transactions(clusters.target, "audit")
    for first in range(0, 300, 50):
        for end in (transactions.abort, transactions.commit):
            transactions.begin()
            for record in log[first : first + 50]:
                transactions.produce(
                    "src.aborted",
                    record.value,
                    record.key,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                )
            end()
    order = clusters.order("aborted")
    (flow,) = order.flows
    committed = replace(order, flows=(replace(flow, target=replace(flow.target, committed=True)),))
    assert run_audit(committed).verdict is Verdict.EQUAL
    (part,) = run_audit(order).flows[0].partitions
    assert part.counts == {DifferenceKind.DUPLICATED: 300}


def test_a_right_that_one_side_lacks_is_not_judged_and_hides_no_other(clusters: Clusters) -> None:
    log = records(random.Random(4), 500)
    for topic in ("denied", "granted"):
        clusters.write(topic, log, log)
    rule = AclBinding(
        *(ResourceType.TOPIC, "src.denied", ResourcePatternType.LITERAL),
        *("User:ANONYMOUS", "*", AclOperation.READ, AclPermissionType.DENY),
    )
    flows = clusters.flow("denied"), clusters.flow("granted")
    (created,) = admin(clusters.target).create_acls([rule]).values()
    created.result(20)
    denied, granted = until(lambda: run_audit(AuditOrder(flows)).flows, lambda f: f[0].verdict is not Verdict.EQUAL)
    assert denied.verdict is Verdict.NOT_JUDGED
    assert "the target's records from offset 0 on could not be read" in denied.partitions[0].not_judged[0]
    assert "Topic authorization failed; this login needs Read on the topic" in denied.partitions[0].not_judged[0]
    assert granted.verdict is Verdict.EQUAL


@pytest.mark.matrix
def test_a_thousand_faults_are_each_named_and_nothing_else(clusters: Clusters) -> None:
    chance = random.Random(1_000)
    logs = [records(chance, 60_000, number) for number in range(4)]
    mirrors = [with_faults(chance, log, 250) for log in logs]
    source, target = chain(*logs), chain(*(mirror.log for mirror in mirrors))
    clusters.write("thousand", [*source], [*target], partitions=4)
    report = run_audit(clusters.order("thousand", 4, most_differences=10_000))
    for part, mirror in zip(report.flows[0].partitions, mirrors, strict=True):
        assert told(part.differences) == in_order(mirror.faults)
        assert not part.not_judged
    assert sum(len(part.differences) for part in report.flows[0].partitions) == 1_000
    print(f"1000 faults in {report.seconds:.1f} s, {report.engine}")


@pytest.mark.parametrize("seed", [1, 2])
def test_each_injected_fault_is_named_and_nothing_else(clusters: Clusters, seed: int) -> None:
    chance = random.Random(seed)
    log = records(chance, 6_000)
    mirror = with_faults(chance, log, 60)
    clusters.write(f"faults-{seed}", log, mirror.log)
    report = run_audit(clusters.order(f"faults-{seed}", most_differences=10_000))
    (part,) = report.flows[0].partitions
    assert told(part.differences) == in_order(mirror.faults)
    assert sum(part.counts.values()) == len(mirror.faults)
    assert not part.not_judged


# --- Spark ------------------------------------------------------------------------------------------------------------

SECRET = "a-password-that-nobody-may-see"


def _with_secret(order: AuditOrder) -> AuditOrder:
    def side(access: LogAccess) -> LogAccess:
        return replace(access, settings={**access.settings, "sasl.password": SECRET})

    return replace(order, flows=tuple(replace(f, source=side(f.source), target=side(f.target)) for f in order.flows))


class _Nothing(DataSource):
    """A sink that takes rows and keeps none."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return _KeepsNothing()


class _KeepsNothing(DataSourceWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return WriterCommitMessage()


@pytest.mark.spark
def test_spark_gives_the_same_answer_and_shows_no_secret(clusters: Clusters, spark: Any, event_logs: Path) -> None:
    chance = random.Random(3)
    logs = [records(chance, 4_000, number) for number in range(3)]
    mirrors = [logs[0], *(with_faults(chance, log, 25).log for log in logs[1:])]
    clusters.write("spark", [*chain(*logs)], [*chain(*mirrors)], partitions=3)
    log = [replace(record, key=b"k%d" % chance.randrange(50)) for record in records(chance, 500)]
    clusters.write("spark-compacted", log, log[:-30])
    flows = clusters.flow("spark", 3), clusters.flow("spark-compacted", 1, Expectation(Matching.LATEST))
    order = _with_secret(AuditOrder(flows, most_differences=10_000))
    here = run_audit(order)
    there = run_audit(order, spark)
    assert there.flows == here.flows
    assert there.engine.startswith("on Spark (local")
    assert sum(sum(part.counts.values()) for part in here.flows[0].partitions) >= 50
    assert here.flows[1].verdict is Verdict.DIFFERS
    written = "".join(file.read_text(errors="replace") for file in event_logs.rglob("*") if file.is_file())
    assert "mm2mgr.log" in written
    assert SECRET not in written
    with read_tasks(spark, [order], scan, SCAN_SCHEMA) as frame:
        assert SECRET not in frame._jdf.queryExecution().toString()
    assert {spark.read.format(used).load().count() for used in _free_names} == {0}, "no settings stay in the session"
    assert len(_free_names) == 1, "one name serves all that is read one after the other"
    assert SECRET not in repr(order)
    spark.dataSource.register(_Nothing)
    spark.range(1).write.format("nothing").mode("append").save()  # looked up in the session that was used last


@pytest.mark.spark
@pytest.mark.parametrize("windows", [20, pytest.param(300, marks=pytest.mark.matrix)])
def test_spark_judges_windows_of_equal_records_as_this_process_does(
    clusters: Clusters, spark: Any, windows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (run, verdicts):
        monkeypatch.setattr(module, "CONTEXT", AROUND)
    monkeypatch.setattr(run, "_LEAST_OFFSETS_PER_TASK", 100)
    monkeypatch.setattr(log_source, "_free_names", [])  # the test above used them in the session that all have
    chance = random.Random(windows)
    candidates = (random_logs(chance) for _ in count())
    every = [*islice((logs for logs in candidates if logs.starts[0] < logs.stored_end), windows)]
    sides = ([logs.source for logs in every], [logs.target for logs in every])
    written = ([replace(entry, partition=at) for at, log in enumerate(logs) for entry in log] for logs in sides)
    clusters.write(f"windows-{windows}", *written, partitions=windows)
    flow = clusters.flow(f"windows-{windows}", windows)

    def part(whole: PartitionOrder, logs: Logs) -> PartitionOrder:
        source, target = Offsets(logs.starts[0], len(logs.source)), Offsets(logs.starts[1], len(logs.target))
        cut = replace(whole, source_log=source, target_log=target, expectation=Expectation(fields=logs.fields))
        return order_of(cut, logs, *random_window(chance, logs))

    parts = tuple(part(*pair) for pair in zip(flow.partitions, every, strict=True))
    order = AuditOrder((replace(flow, partitions=parts),), most_differences=100_000)
    here = run_audit(order)
    there = run_audit(order, spark)
    assert there.engine.startswith("on Spark (local")
    for mine, other in zip(here.flows[0].partitions, there.flows[0].partitions, strict=True):
        assert other == mine
    verdicts_told = Counter(part_audit.verdict for part_audit in here.flows[0].partitions)
    print(windows, "windows:", dict(verdicts_told))
    assert len(verdicts_told) == len(Verdict)


def _range_rows(chance: random.Random, numbers: range) -> pa.Table:
    """Rows of pass 1 of logs that differ here and there, read in ranges whose ends are at other places on each side."""
    batches = []
    for number in numbers:
        hashes = np.array(
            [chance.getrandbits(64) for _ in range(chance.choice([0, 90, 1_200]) if number else 1_500)], np.uint64
        )
        for side in (SOURCE, TARGET):
            own = hashes if side == SOURCE or number % 2 else np.delete(hashes, np.s_[700:703])
            whole = Records(np.arange(len(own)) + 5 * side, np.arange(len(own)), *[own] * 4)
            cuts = sorted({0, len(own), *(chance.randrange(len(own) + 1) for _ in range(4))})
            for first, end in pairwise(cuts):
                window = LogWindow(TopicPartition("t", number), first + 5 * side, end + 5 * side)
                judged = side == TARGET or first > 0
                scan_range = ScanRange(number, side, window, chance.choice([3, 6, 30]), ("value",), judged=judged)
                blocks = blocks_of(whole.take(slice(first, end)), 5)
                batches += [_rows(scan_range, blocks), _row(scan_range, READ, "", blocks.records, window.first)]
    batches += [_row(scan_range, DROPPED, "f drops", 7, offset) for offset in (3, 3, 900)]
    chance.shuffle(batches)
    return pa.Table.from_batches([*batches, _row(scan_range, FAULT, "gone", 0, 40)])


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(3))
def test_spark_joins_ranges_and_keys_as_this_process_does(spark: Any, seed: int) -> None:
    chance, numbers = random.Random(seed), range(5)
    rows = _range_rows(chance, numbers)
    here = _join_ranges(rows, numbers)
    with OnSpark(spark)._session() as own:
        table = different_blocks(own.createDataFrame(rows), CONTEXT_BLOCKS, 3).toArrow()
    there = _sums_of_logs(table, numbers, lambda s: s)
    assert any(len(part.source) for part in here.parts.values())
    for number in numbers:
        assert repr(there.parts[number]) == repr(here.parts[number])
    totals: dict[tuple[str, int], int] = {}
    for row in here.notes:
        totals[row["text"], row["first_offset"]] = totals.get((row["text"], row["first_offset"]), 0) + row["count"]
    assert {(row["text"], row["first_offset"]): row["count"] for row in there.notes} == totals
    assert len(totals) == 3
    keys = [
        {
            "part": part,
            "side": side,
            "kind": RECORD,
            "text": "",
            "key_hash": key,
            "offset": 10 * turn + key,
            "hash": turn // same,
        }
        for part in range(2)
        for side in (SOURCE, TARGET)
        for key in range(30)
        for turn in range(chance.randrange(3))
        for same in [chance.choice([1, 5])]
    ]
    latest_rows = pa.Table.from_pylist(
        [{**dict.fromkeys(LATEST_SCHEMA.names, 0), **row} for row in [*keys, {**keys[0], "kind": READ, "records": 60}]],
        schema=LATEST_SCHEMA,
    )
    with OnSpark(spark)._session() as own:
        frame = different_keys_frame(own.createDataFrame(latest_rows), 3).toArrow().cast(LATEST_SCHEMA)
    place = [(name, "ascending") for name in ("part", "key_hash", "side")]
    wanted = different_keys(latest_rows).sort_by(place)
    assert 0 < wanted.num_rows < len(keys)
    assert frame.filter(pc.equal(frame.column("kind"), RECORD)).sort_by(place).equals(wanted)
    assert _latest(frame, wanted).counts == {(0, 0): 60}
