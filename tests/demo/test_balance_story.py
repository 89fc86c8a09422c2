"""The end of `demo --balance`: it succeeds only where a task was overloaded, all are even afterwards, and the proof holds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mm2mgr import timing
from mm2mgr.assignment import Assignment, round_robin, spread
from mm2mgr.demo import balance, story
from mm2mgr.demo.balance import _BalanceStory, run_balance_demo
from mm2mgr.demo.story import partitions_of
from mm2mgr.errors import Mm2mgrError
from mm2mgr.output import console
from mm2mgr.partitions import listing_of, predict
from mm2mgr.sandbox.folder import Endpoints
from tests.clock import go_by

ENDPOINTS = Endpoints(
    {"dc1-logging": "127.0.0.1:1", "agg-east": "127.0.0.1:2"}, {"east": "http://127.0.0.1:3"}, {"east": "agg-east"}
)


class Stage:
    """Stands in for the sandbox and for what the story reads of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        console._console.cache_clear()
        self.downs, self.audit_code, self.loads, self.directory = 0, 0, [2.4, 1.02], tmp_path
        self.played: list[Sequence[str]] = []
        monkeypatch.setattr(balance, "Sandbox", lambda directory, plugins: self)
        monkeypatch.setattr(balance, "_limit_tasks", lambda flow: None)
        monkeypatch.setattr(story, "cli", SimpleNamespace(main=self.command))
        monkeypatch.setattr(story, "_records_behind", lambda flow, rates: 0)
        monkeypatch.setattr(story, "_records_not_stored", lambda workspace, rates: [])
        for name, double in {
            "traffic": lambda *a: [],
            "apply": lambda *a: None,
            "run_beside": lambda *a: nullcontext(),
            "wait_for_round": lambda *a: None,
            "wait_for_lag": lambda *a, **more: Assignment(),
            "say_loads": lambda *a: self.loads.pop(0),
        }.items():
            monkeypatch.setattr(_BalanceStory, name, double)

        class Clock(timing.Clock):
            def sleep(self, seconds: float) -> None:
                pass

        go_by(Clock(), monkeypatch)

    def start(self, layout: object, progress: object) -> Endpoints:
        return ENDPOINTS

    def stop(self, progress: object) -> None:
        self.downs += 1

    def command(self, words: Sequence[str], name: str, *, standalone_mode: bool) -> int:
        self.played.append(words[2:])
        return {"audit": self.audit_code, "rebalance": 2}.get(words[2], 0)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    return Stage(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("loads", "audit_code", "code"),
    [([2.4, 1.02], 0, 0), ([2.4, 1.2], 0, 1), ([1.0, 1.0], 0, 1), ([2.4, 1.02], 2, 1)],
    ids=["level", "still uneven", "never uneven", "not exact"],
)
def test_it_succeeds_only_where_all_was_seen(
    stage: Stage, capsys: pytest.CaptureFixture[str], loads: list[float], audit_code: int, code: int
) -> None:
    stage.loads, stage.audit_code, tmp_path = [*loads], audit_code, stage.directory
    assert run_balance_demo(tmp_path / "demo", keep=False, measure_seconds=5) == code
    out = capsys.readouterr().out
    assert f"Demo {'FAILED' if code else 'succeeded'} in " in out
    assert f"Busiest task by the mean: {loads[0]:.2f} before, {loads[1]:.2f} now." in out
    assert stage.downs == 1
    assert (tmp_path / "demo" / "plugins" / "mm2mgr" / "mm2mgr-connect-plugin.jar").exists()


def test_a_step_that_fails_ends_it(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(words: Sequence[str], name: str, **_: Any) -> int:
        return 1

    monkeypatch.setattr(story, "cli", SimpleNamespace(main=command))
    with pytest.raises(Mm2mgrError, match="the demo stops: mm2mgr throughput failed"):
        run_balance_demo(tmp_path / "demo", keep=False, measure_seconds=5)
    assert stage.downs == 1


def test_connect_gives_the_busy_partitions_to_one_task() -> None:
    rates = dict(zip(partitions_of(balance._RATES), [r for of in balance._RATES.values() for r in of], strict=True))
    counts = {topic: len(of_topic) for topic, of_topic in balance._RATES.items()}
    loads = round_robin(predict(listing_of(counts), lambda topic: True).order, balance._TASKS).loads(rates)
    assert spread(loads) > 1.5
    assert max(loads) * 2_000 > balance._CAPACITY
