"""The benchmark of workers × tasks: what it refuses, and its table of rates beside forecasts."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from benchmarks import workers_tasks
from benchmarks.long_link_run import Outcome
from benchmarks.long_link_settings import KAFKA, Case, forecast, settings
from benchmarks.workers_tasks import Row


def row(workers: int, on_workers: tuple[int, ...], rate: float) -> Row:
    case = Case("remote consume", 40, 200, 12, sum(on_workers), KAFKA, "stock")
    model = replace(forecast(case, settings(case)), flow=2e6 * case.tasks)
    return Row(workers, on_workers, Outcome(case, {}, rate, model, rate, 0, 1.5, "", 1.0, 0.5, 300))


def test_without_root_it_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert workers_tasks.main([]) == 1
    assert "needs root" in capsys.readouterr().err


def test_a_worker_moves_no_more_than_it_was_measured_to() -> None:
    assert row(2, (2, 2), 0.0).forecast(5.0) == pytest.approx(8.0)
    assert row(2, (6, 6), 0.0).forecast(5.0) == pytest.approx(10.0)
    assert row(3, (10, 1, 1), 0.0).forecast(5.0) == pytest.approx(9.0)


def test_the_table_has_ratios_to_one_worker_with_one_task(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(2, (6, 6), 10.0), row(1, (12,), 5.0), row(1, (1,), 2.0), row(2, (2, 2), 6.4)]
    assert workers_tasks.print_table(rows) == pytest.approx(0.25)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:5]] == [["1", "1"], ["1", "12"], ["2", "4"], ["2", "12"]]
    assert "x2.5" in lines[2]
    assert "fitted" in lines[2]
    assert "+25%" in lines[3]
    assert lines[5].startswith("best of each number of workers to one worker: 1: x1.0, 2: x2.0; MirrorMaker 1")
