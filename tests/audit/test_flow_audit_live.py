"""`mm2mgr audit` on real brokers and Connect workers: flows under traffic whose worker is killed, topics of all kinds, and what takes a log away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2mgr.audit.report import DifferenceKind, FlowAudit
from mm2mgr.kafka.client import Kafka
from mm2mgr.operations.audit import AuditOptions, audit
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.runtime import Runtime
from mm2mgr.sandbox.server import start_all
from tests.live.command import Tree
from tests.live.conftest import WORKER, runtime, tree  # noqa: F401  fixtures
from tests.live.pair import Pair, flow, serving_pair
from tests.live.seen import create, until
from tests.live.traffic import Traffic

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
        return audit(tree.workspace(), (name,), AuditOptions(spark=False, **more)).flows[0]  # type: ignore[arg-type]

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
        assert all("came twice after a restart at" in each.note for each in part.differences)
        assert part.source_records == traffic.rounds
