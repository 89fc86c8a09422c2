"""What the page shows of weeks, gathered from roll-ups: of a large workspace fewer of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.evidence import measured as rates
from mm2mgr.operations.workspace import Workspace
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput.rollup_job import make
from tests.cli.load import END_MS, declare

HOUR_MS = 3_600_000


def test_a_large_estate_shows_only_its_newest_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, store = tmp_path / "store", SampleStore(tmp_path / "store")
    for hour, rate in enumerate((1e6, 3e6)):
        time_ms = END_MS + hour * HOUR_MS
        store.append(Batch("a", "test", time_ms, ["orders"], [0], resolution_ms=HOUR_MS, bytes_per_second=[rate]))
    make(folder)
    flows = Workspace((declare(tmp_path / "clusters", "a:1", "b:1"),)).topology.flows

    def known() -> list[float]:
        week = rates.read_weeks(folder, flows)["orders:a->hub"]
        return [value for day in week for value in day if value is not None]

    assert known() == pytest.approx([1e6, 3e6])
    monkeypatch.setattr(rates, "WEEK_HOURS", 1)
    monkeypatch.setattr(rates, "_CELLS", 1)
    assert known() == pytest.approx([3e6])
