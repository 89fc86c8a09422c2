"""The lines of docs/how-to/read-the-tables.md, run as they stand: what any engine reads is what mm2mgr reports."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from mm2mgr.samples.lag_history import FIVE_MINUTES_MS, LagHistoryStore
from mm2mgr.samples.schema import SAMPLES, THROUGHPUT
from mm2mgr.samples.store import SampleStore

from .stores import START, rolled, series, stored

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "read-the-tables.md"


def lines(heading: str, place: int = 0) -> str:
    """Return a Python block below a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)[place]


def by_heading(found: list[str]) -> list[tuple[str, list[str]]]:
    """Group the empty entries (blocks) by the heading before them."""
    groups: list[tuple[str, list[str]]] = []
    for entry in found:
        if entry:
            groups.append((entry, []))
        else:
            groups[-1][1].append(entry)
    return [group for group in groups if group[1]]


TREE = """
owner: docs
clusters:
  dc1: {bootstrap_servers: ["dc1:9092"]}
  east: {bootstrap_servers: ["east:9092"]}
connect:
  east: {url: "http://east:8083", kafka: east}
flows:
  all: {sources: [dc1], targets: [east], topics: {include: ["logs.*"]}}
  few: {sources: [dc1], targets: [east], topics: {include: [logs1]}}
"""


@pytest.fixture
def _rolled_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two topics for two days, one and two records a second, of 100 bytes as far as sizes are known; a day is merged."""
    monkeypatch.chdir(tmp_path)
    seconds = range(0, 30 * 3600, 600)
    topics = [series(f"logs{scale}", [(each, scale * each) for each in seconds]) for scale in (1, 2)]
    rolled(stored(tmp_path / ".mm2mgr" / "samples", *topics))


@pytest.mark.usefixtures("_rolled_up")
@pytest.mark.parametrize(
    ("engine", "package", "volume"), [("DuckDB", "duckdb", "0.00132"), ("polars", "polars", "1.32e6")]
)
def test_the_lines_for_an_engine_add_up_the_bytes(
    capsys: pytest.CaptureFixture[str], engine: str, package: str, volume: str
) -> None:
    pytest.importorskip(package)
    exec(lines(engine), {})
    out = capsys.readouterr().out
    assert out.index("logs2") < out.index("logs1")
    assert volume in out


def test_the_lines_for_lag_over_time_answer_per_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    history = LagHistoryStore(".mm2mgr/samples")
    for day in (0, 5):
        times = range(START + day * 86_400_000, START + day * 86_400_000 + 3_600_000, FIVE_MINUTES_MS)
        looks = {
            "owner": ["ann"] * 12,
            "flow": ["orders:a->b"] * 12,
            "time_ms": [*times],
            "partitions": [3] * 12,
            "end_offsets": [time // 100 for time in times],
            "positions": [time // 100 - 77 for time in times],
        }
        history.append([pa.table(looks)], times[-1])
    exec(lines("Lag over time"), {})
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "orders" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["orders:a->b", "77", "10.0"]


@pytest.mark.spark
@pytest.mark.usefixtures("_rolled_up")
def test_the_lines_for_spark_need_no_jar(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    here = str(Path.cwd() / ".mm2mgr")  # the session's JVM was started elsewhere
    for place in (0, 1):
        text = lines("Spark SQL", place).replace("2026-11-21T10", "2025-11-21T10").replace(".mm2mgr", here)
        exec(text, {"spark": spark})
        out = capsys.readouterr().out
        assert re.search(r"logs2\|\s*600000\.0", out), out
    exec(lines("Named views", 1).replace(".mm2mgr", here), {"spark": spark})
    assert re.search(r"logs2\|\s*200\.0\d*\|\s*2025-11-21T1\d", capsys.readouterr().out)


@pytest.mark.usefixtures("_rolled_up")
@pytest.mark.parametrize("name", [SAMPLES, THROUGHPUT])
def test_a_filter_on_any_column_loses_no_row(name: str) -> None:
    """Readers skip files by what the table's log says of their columns."""
    store = SampleStore(stored(Path(".mm2mgr/samples"), series("logs3", [(5, 1)])))
    assert store.compact(store.hours()[0])
    dataset = deltalake.DeltaTable(f".mm2mgr/samples/{name}").to_pyarrow_dataset()
    whole = dataset.to_table()
    for column in whole.column_names:
        if pa.types.is_list(whole[column].type):
            continue
        for value, rows in Counter(whole[column].to_pylist()).items():
            chosen = pc.is_null(pc.field(column)) if value is None else pc.field(column) == value
            assert dataset.count_rows(filter=chosen) == rows, (column, value)


@pytest.mark.usefixtures("_rolled_up")
def test_the_lines_of_views_answer_for_topics_and_flows(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    Path("clusters").mkdir()
    Path("clusters", "tree.yaml").write_text(TREE)
    names: dict[str, Any] = {}
    exec(lines("Named views", 0), names)
    out = capsys.readouterr().out
    assert re.search(r"logs2 +│ +200\.0 │ 2025-11-21T1", out), out
    exec(lines("Named views", 2).replace("20e6", "150"), names)
    out = capsys.readouterr().out
    assert re.search(r"all:dc1->east +│ +150", out), out
    assert "few:dc1->east" not in out


def test_the_page_names_no_block_that_is_not_run_here() -> None:
    """Those of Cruise Control's topic are run by test_cruise_topic_live.py."""
    headings = re.findall(r"^## (.+)$|^```python$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    blocks = [(heading, len(list(group))) for heading, group in by_heading(headings)]
    assert blocks == [
        ("DuckDB", 1),
        ("polars", 1),
        ("Spark SQL", 2),
        ("Named views", 3),
        ("Lag over time", 1),
        ("Cruise Control's topic", 1),
    ]
