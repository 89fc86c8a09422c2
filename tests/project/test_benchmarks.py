"""Each benchmark still runs with the code as it is, at a size that says nothing about speed; others are run by `test_cold_start.py`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.cold_start import REPOSITORY


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("balance_planner.py --scenarios --random 3 --days 0 --partitions 1000", "every bound is held"),
        ("failover.py --groups 3 --partitions 4", "failover check of 3 groups in 12 positions: GO WITH"),
        ("import_estate.py --connects 2", "50 connectors of 2 Connect clusters"),
        ("lag.py --looks 1 --topics 2 --partitions 0", "1000 partitions"),
        ("lint_tree.py --rounds 1 --flows 20", "mm2mgr lint"),
        ("overlaps.py --rounds 1 --flows 20 --topics 40", "other topics"),
        ("sampling.py --rounds 2 --partitions 0", "memory after poll"),
        ("serve_page.py --answers 1", "/api/status"),
        ("truth_load.py --rounds 1", "load + find"),
    ],
)
def test_a_benchmark_runs_and_prints_its_figures(command: str, shown: str) -> None:
    script, *arguments = command.split()
    done = subprocess.run(
        [sys.executable, REPOSITORY / "benchmarks" / script, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=300,
        check=False,
    )
    assert shown in done.stdout
    assert "Traceback" not in done.stderr, done.stderr
