"""The lines of docs/how-to/read-the-tables.md, run as they stand: what any engine reads is what mm2mgr reports."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from .stores import rolled, series, stored

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "read-the-tables.md"


def lines(engine: str) -> str:
    """Return the Python block below a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {engine}\n")[2]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found, engine
    return found[1]


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


@pytest.mark.spark
@pytest.mark.usefixtures("_rolled_up")
def test_the_lines_for_spark_need_no_jar(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"spark": spark}
    exec(lines("Spark SQL").replace("2026-11-21T10", "2025-11-21T10"), names)
    out = capsys.readouterr().out
    assert re.search(r"logs2\|\s*600000\.0", out), out
