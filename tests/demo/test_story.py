"""The story's end: the demo ends as its audit does, which judges records only once their offsets are stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mm2mgr import timing
from mm2mgr.demo import story
from mm2mgr.demo.story import RATES, _Story
from mm2mgr.errors import Mm2mgrError
from mm2mgr.link import HEAP_SHARE, WORKER_HEAP_BYTES
from mm2mgr.operations import Applied
from mm2mgr.output import console
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import ClusterPlan, Plan
from mm2mgr.problems.health import FlowStatus, Status
from mm2mgr.sandbox.kafka_servers import Worker
from mm2mgr.sizing.fleet import Buffers
from tests.clock import go_by

from .conftest import ENDPOINTS


@pytest.fixture(autouse=True)
def _plain_output() -> None:
    console._console.cache_clear()


class Stage:
    """Stands in for the sandbox, and for everything of the story that needs one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.downs = 0
        self.failing = ""
        self.audit_code = 0
        self.played: list[Sequence[str]] = []
        self.unstored = [0]
        self.health = "ok"
        self.directory = Path("sandbox")
        monkeypatch.setattr(story, "Sandbox", lambda directory: self)
        monkeypatch.setattr(story, "cli", SimpleNamespace(main=self.command))
        monkeypatch.setattr(story, "_records_behind", lambda flow, rates: 0)
        doubles = SimpleNamespace(
            plan=lambda tree: Plan("sandbox", ()), apply=self.apply, status=self.status, table_sizes=lambda store: []
        )
        doubles.offsets, doubles.Choice = self.offsets, SimpleNamespace
        monkeypatch.setattr(story, "operations", doubles)
        monkeypatch.setattr(_Story, "traffic", lambda *a: [])
        ticks = iter(range(0, 10_000, 10))  # each look at the clock is ten seconds later

        class Clock(timing.Clock):
            def now(self) -> float:
                return next(ticks)

            def sleep(self, seconds: float) -> None:
                pass

        go_by(Clock(), monkeypatch)

    def start(self, progress: object) -> Any:
        return ENDPOINTS

    def stop(self, progress: object) -> None:
        self.downs += 1

    def command(self, words: Sequence[str], name: str, *, standalone_mode: bool) -> int:
        self.played.append(words)
        return self.audit_code if "audit" in words else int(self.failing in words)

    def offsets(self, tree: object, choice: object) -> list[Any]:
        """Return what two flows have not stored, less and less of it."""
        count = self.unstored.pop(0) if len(self.unstored) > 1 else self.unstored[0]
        names = TopicPartition("app.orders", 0), TopicPartition("heartbeats", 0)
        parts = [SimpleNamespace(partition=name, stored_lag_records=count) for name in names]
        return [SimpleNamespace(unknown=None, lag=SimpleNamespace(counted_partitions=parts[:1]))] * 2

    def apply(self, tree: object, **options: Any) -> Applied:
        options["approve"](Plan("sandbox", ()))
        unread = ClusterPlan("east", error="down")
        return Applied(Plan("sandbox", (unread,) if self.failing == "apply" else ()))

    def status(self, tree: object) -> Status:
        health: Any = self.health
        names = ("logging:dc1->agg", "logging:dc2->agg")
        return Status(0.0, tuple(FlowStatus("c", "", "source", "a->b", "RUNNING", health, flow=name) for name in names))


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


@pytest.mark.parametrize("audit_code", [0, 1, 2])
def test_the_exit_code_is_the_audit(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str], audit_code: int
) -> None:
    stage.audit_code = audit_code
    assert story.run_demo(tmp_path / "demo", keep=False, measure_seconds=5) == (1 if audit_code else 0)
    out = capsys.readouterr().out
    assert f"Demo {'FAILED' if audit_code else 'succeeded'} in " in out
    assert ("NOT EXACT: see above." if audit_code else "Every record arrived exactly once and in order.") in out
    assert "audit logging --no-spark --store" in out, "people see the command that is played"
    assert [words[2:5] for words in stage.played if "audit" in words] == [["audit", "logging", "--no-spark"]]
    assert stage.downs == 1


def test_records_are_audited_once_their_offsets_are_stored(stage: Stage, tmp_path: Path) -> None:
    stage.unstored = [7, 3, 0]
    assert story.run_demo(tmp_path / "demo", keep=False, measure_seconds=5) == 0
    assert stage.unstored == [0]
    stage.unstored = [7]
    with pytest.raises(Mm2mgrError, match="14 records cannot be audited"):
        story.run_demo(tmp_path / "demo", keep=False, measure_seconds=5)


def test_a_flow_that_is_not_healthy_fails_the_demo(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.health = "problem"
    assert story.run_demo(tmp_path / "demo", keep=False, measure_seconds=5) == 1


@pytest.mark.parametrize("step", ["sample", "throughput", "size", "apply"])
def test_a_step_that_fails_ends_the_demo_and_stops_what_it_started(stage: Stage, tmp_path: Path, step: str) -> None:
    stage.failing = step
    with pytest.raises(Mm2mgrError, match=f"the demo stops: mm2mgr {step} failed"):
        story.run_demo(tmp_path / "demo", keep=True, measure_seconds=5)
    assert stage.downs == 1


def test_keep_leaves_it_running_and_says_how_to_stop_it(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert story.run_demo(tmp_path / "demo", keep=True, measure_seconds=5) == 0
    assert stage.downs == 0
    out = capsys.readouterr().out
    assert f"mm2mgr --clusters {tmp_path / 'demo' / 'clusters'} status" in out
    assert "Stop it: mm2mgr sandbox down --dir sandbox" in out


def test_flows_that_never_catch_up_end_the_demo_with_their_status(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(story, "_records_behind", lambda flow, rates: 3)
    stage.health = "problem"
    wanted = r"not caught up, and no record has arrived for 90 s: .*logging:dc1->agg 3 records"
    with pytest.raises(Mm2mgrError, match=wanted):
        story.run_demo(tmp_path / "demo", keep=False, measure_seconds=5)
    assert stage.downs == 1
    assert "Flows: 2 problem" in capsys.readouterr().out


def test_a_worker_has_room_for_the_tasks_of_the_demo() -> None:
    partitions = sum(map(len, RATES.values()))
    buffers = Buffers(fetch_bytes=50 * 1024**2, partition_fetch_bytes=1024**2, producer_bytes=32 * 1024**2)  # Kafka's
    # Of the flow with less traffic one task, of the other one as many as `size` may choose for it here.
    tasks = buffers.heap_bytes(partitions) + 8 * buffers.heap_bytes(math.ceil(partitions / 8))
    assert WORKER_HEAP_BYTES + tasks <= HEAP_SHARE * int(Worker.heap.removesuffix("m")) * 1024**2


def test_flows_that_catch_up_slowly_have_the_time_that_they_need(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = timing.now()
    # A record every 80 seconds, for half an hour.
    monkeypatch.setattr(story, "_records_behind", lambda flow, rates: max(0, 20 - int(timing.now() - began) // 80))
    assert story.run_demo(tmp_path / "demo", keep=False, measure_seconds=5) == 0
    assert timing.now() - began >= 1600
