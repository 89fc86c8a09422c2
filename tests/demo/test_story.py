"""The story's end: a mirror that loses, repeats, alters or reorders a record makes the demo say so and fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mm2mgr import timing
from mm2mgr.demo import story
from mm2mgr.demo.story import RATES, RecordId, _partitions, _Story
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.link import HEAP_SHARE, WORKER_HEAP_BYTES
from mm2mgr.operations import Applied
from mm2mgr.output import console
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import ClusterPlan, Plan
from mm2mgr.problems.health import FlowStatus, Status
from mm2mgr.sandbox.kafka_servers import Worker
from mm2mgr.sizing.fleet import Buffers
from mm2mgr.topology import Flow
from tests.clock import go_by

from .conftest import ENDPOINTS

Damage = Callable[[list[RecordId]], list[RecordId]]
DAMAGES: dict[str, tuple[Damage, list[str]]] = {
    "lost": (lambda ids: ids[:-1], ["1", "0", "0", "yes"]),
    "duplicated": (lambda ids: [*ids, ids[0]], ["0", "1", "0", "yes"]),
    "altered": (lambda ids: [(ids[0][0], ids[0][1] + 1), *ids[1:]], ["1", "0", "1", "yes"]),
    "reordered": (lambda ids: ids[::-1], ["0", "0", "0", "NO"]),
}


def logs(damage: Damage | None) -> Callable[[KafkaAccess, Iterable[TopicPartition]], dict[TopicPartition, Any]]:
    """Return a `read_ids` of clusters whose every partition holds five records; damaged is one partition from dc2."""
    broken = TopicPartition("dc2.app.clicks", 1)

    def read_ids(access: KafkaAccess, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[RecordId]]:
        ids = [(f"#{number}".encode(), number) for number in range(5)]
        return {one: damage(ids) if damage and one == broken else list(ids) for one in partitions}

    return read_ids


@pytest.fixture(autouse=True)
def _plain_output() -> None:
    console._console.cache_clear()


def proof_rows(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith("logging:")}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_in_the_row_of_its_flow(
    flows: list[Flow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    damage, wanted = DAMAGES[kind]
    monkeypatch.setattr(story, "read_ids", logs(damage))
    assert _Story(tmp_path, 5).prove(flows) is False
    out = capsys.readouterr().out
    count, records = str(len(_partitions())), str(5 * len(_partitions()))
    assert proof_rows(out) == {
        "logging:dc1->agg": [count, records, "0", "0", "0", "yes"],
        "logging:dc2->agg": [count, records, *wanted],
    }
    assert "NOT EXACT: see the table." in out


def test_an_exact_mirror_is_exact(
    flows: list[Flow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(story, "read_ids", logs(None))
    assert _Story(tmp_path, 5).prove(flows) is True
    assert "Every record arrived exactly once and in order." in capsys.readouterr().out


class Stage:
    """Stands in for the sandbox, and for everything of the story that needs one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.downs = 0
        self.failing = ""
        self.health = "ok"
        self.directory = Path("sandbox")
        monkeypatch.setattr(story, "Sandbox", lambda directory: self)
        monkeypatch.setattr(story, "cli", SimpleNamespace(main=self.command))
        monkeypatch.setattr(story, "_records_behind", lambda flow: 0)
        doubles = SimpleNamespace(
            plan=lambda tree: Plan("sandbox", ()), apply=self.apply, status=self.status, table_sizes=lambda store: []
        )
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
        return int(self.failing in words)

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


@pytest.mark.parametrize("kind", [None, *DAMAGES])
def test_the_exit_code_is_the_proof(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str | None
) -> None:
    monkeypatch.setattr(story, "read_ids", logs(DAMAGES[kind][0] if kind else None))
    assert story.run_demo(tmp_path / "demo", keep=False, measure_seconds=5) == (1 if kind else 0)
    assert f"Demo {'FAILED' if kind else 'succeeded'} in " in capsys.readouterr().out
    assert stage.downs == 1


def test_a_flow_that_is_not_healthy_fails_the_demo(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story, "read_ids", logs(None))
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
    monkeypatch.setattr(story, "read_ids", logs(None))
    assert story.run_demo(tmp_path / "demo", keep=True, measure_seconds=5) == 0
    assert stage.downs == 0
    out = capsys.readouterr().out
    assert f"mm2mgr --clusters {tmp_path / 'demo' / 'clusters'} status" in out
    assert "Stop it: mm2mgr sandbox down --dir sandbox" in out


def test_flows_that_never_catch_up_end_the_demo_with_their_status(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(story, "_records_behind", lambda flow: 3)
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
    monkeypatch.setattr(story, "read_ids", logs(None))
    # A record every 80 seconds, for half an hour.
    monkeypatch.setattr(story, "_records_behind", lambda flow: max(0, 20 - int(timing.now() - began) // 80))
    assert story.run_demo(tmp_path / "demo", keep=False, measure_seconds=5) == 0
    assert timing.now() - began >= 1600
