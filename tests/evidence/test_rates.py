"""What the page shows of weeks, gathered from roll-ups: of a large workspace fewer of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.evidence import measured as rates
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput.rollup_job import make
from mm2mgr.weeks import WEEK_HOURS
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


def test_growth_is_that_of_the_hours_as_they_were_measured(tmp_path: Path) -> None:
    """A topic that doubled in a week beside one that stayed, each in 30 hours of two weeks."""
    folder, store = tmp_path / "store", SampleStore(tmp_path / "store")
    for week, rate in ((1, 1e6), (0, 2e6)):
        for hour in range(30):
            time_ms = END_MS + (hour - week * WEEK_HOURS) * HOUR_MS
            values = [rate, rate, 3e6]
            store.append(
                Batch(
                    "a",
                    "test",
                    time_ms,
                    ["logs.web", "logs.web", "orders"],
                    [0, 1, 0],
                    resolution_ms=HOUR_MS,
                    bytes_per_second=values,
                )
            )
    make(folder)
    flows = Workspace((declare(tmp_path / "clusters", "a:1", "b:1"),)).topology.flows
    found = rates.read_rates(folder, flows=flows)
    assert found.by_cluster["a"]["logs.web"][TopicPartition("logs.web", 0)].min() == 2e6, (
        "sizing raises the hours before"
    )
    weeks = found.weeks["orders:a->hub"]
    assert weeks.flow is not None
    assert (weeks.flow.growth, weeks.flow.weeks, weeks.flow.compared) == (1.0, 2, 30)
    assert {topic: week.growth for topic, week in weeks.topics.items()} == {"orders": 1.0}
    logs = found.weeks["logs:a->hub"]
    assert logs.flow is not None
    assert (logs.flow.growth, logs.flow.compared) == (2.0, 30)
    assert {topic: week.growth for topic, week in logs.topics.items()} == {"logs.web": 2.0}
