"""Windows between two times: which part of the target's log is compared with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mm2mgr.audit.report import Verdict
from mm2mgr.audit.run import run_audit
from mm2mgr.audit.windows import Expectation, Matching
from mm2mgr.live.questions import OffsetsAtTimes, OffsetsSince, RecordlessEnds, RecordTimes
from mm2mgr.operations import AuditOptions, Workspace, audit_windows
from mm2mgr.partitions import TopicPartition
from tests.live.seen import Message

from .fake_logs import FakeLogs

START_MS = 1_700_000_000_000


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> FakeLogs:
    fake = FakeLogs()
    fake.install(monkeypatch)

    def since(alias: str, partition: TopicPartition, time_ms: int) -> int:
        log = fake.clusters[alias].logs[partition]
        return next((at for at, record in enumerate(log) if record.timestamp_ms >= time_ms), -1)

    def answer(question: Any) -> Any:
        alias = question.cluster
        if isinstance(question, OffsetsSince):
            return {partition: since(alias, partition, question.since_ms) for partition in question.partitions}
        if isinstance(question, OffsetsAtTimes):
            return {partition: since(alias, partition, at) for partition, at in question.times_ms}
        if isinstance(question, RecordTimes):
            logs = fake.clusters[alias].logs
            return {partition: logs[partition][at].timestamp_ms / 1000 for partition, at in question.positions}
        assert isinstance(question, RecordlessEnds)
        return frozenset[TopicPartition]()

    def ask_each(_: Workspace, questions: Mapping[Any, Any]) -> dict[Any, Any]:
        return {key: answer(question) for key, question in questions.items()}

    monkeypatch.setattr(audit_windows, "ask_each", ask_each)
    return fake


@pytest.mark.parametrize("matching", [Matching.ORDERED, Matching.LATEST])
@pytest.mark.parametrize("more", [{"sample": 0.5}, {"since_ms": START_MS}])
def test_a_record_with_a_time_ahead_hides_no_record_of_the_target(
    logs: FakeLogs, matching: Matching, more: dict[str, Any]
) -> None:
    log = [
        Message(0, b"k%d" % row, b"v", (), START_MS + 1_000 * row + (10**10 if row == 10 else 0))
        for row in range(5_000)
    ]
    logs.put(log, log)
    order = logs.order(logs.part(Expectation(matching), 2_500))
    narrow = audit_windows.narrow_windows(Workspace(), order, AuditOptions(seed=1, **more))
    (part,) = run_audit(narrow).flows[0].partitions
    assert part.verdict is Verdict.EQUAL, part.counts
