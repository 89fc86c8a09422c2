"""The figures that `benchmarks/balance_planner.py` prints hold their bounds: a small sample in the gate, all of them in `make test-matrix`."""

from __future__ import annotations

import pytest

from benchmarks import balance_planner


def test_drift_and_days_without_a_change_hold_their_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    line = "--scenarios --random 0 --days 6 --drifting logging --partitions 0"
    assert balance_planner.main(line.split()) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    assert "6 days of drift, logging" in out
    assert "6 days without a change: 0 restarts" in out


def test_a_missed_bound_is_named_and_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(balance_planner, "EVEN", 1.0)
    line = "--scenarios metrics --random 0 --days 0 --partitions 0"
    assert balance_planner.main(line.split()) == 1
    assert "missed: metrics      0.8 even   : 1.0" in capsys.readouterr().out


@pytest.mark.matrix
def test_all_shapes_a_thousand_random_sets_thirty_days_and_half_a_million_partitions() -> None:
    assert balance_planner.main([]) == 0
