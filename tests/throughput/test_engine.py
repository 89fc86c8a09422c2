"""Which engine is chosen: what is asked for first, then what was set for good, then what the machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.errors import JavaMissing, Mm2mgrError
from mm2mgr.operations.workspace import Workspace
from mm2mgr.throughput import engine as engine_module
from mm2mgr.throughput.engine import ChosenEngine, choose_engine, memory_limit

HOME, GIB = Path("/jdk"), 1 << 30


def no_java() -> Path:
    raise JavaMissing("none")


def never() -> bool:
    raise AssertionError("the tree is not asked")


@pytest.mark.parametrize(
    ("option", "environment", "setting", "memory", "chosen"),
    [
        (None, {}, True, 4 * GIB, ChosenEngine(True, java_home=HOME)),
        (None, {}, True, None, ChosenEngine(True, java_home=HOME)),
        (None, {"MM2MGR_SPARK": "on"}, False, 4 * GIB, ChosenEngine(True, java_home=HOME)),
        (None, {"MM2MGR_SPARK": "off"}, True, 4 * GIB, ChosenEngine(False, "MM2MGR_SPARK=off")),
        (None, {}, False, 4 * GIB, ChosenEngine(False, "`spark: false` below defaults: of the tree")),
        (None, {}, True, 2 * GIB, ChosenEngine(False, "2.0 GiB of memory, and Spark needs 2.5")),
        (False, {"MM2MGR_SPARK": "on"}, True, 4 * GIB, ChosenEngine(False, "--no-spark")),
        (True, {"MM2MGR_SPARK": "off"}, False, GIB, ChosenEngine(True, java_home=HOME)),
        (None, {"PYSPARK_GATEWAY_PORT": "1", "MM2MGR_SPARK": "off"}, False, GIB, ChosenEngine(True)),
        (False, {"PYSPARK_GATEWAY_PORT": "1"}, True, 4 * GIB, ChosenEngine(False, "--no-spark")),
    ],
)
def test_the_first_that_decides(
    option: bool | None, environment: dict[str, str], setting: bool, memory: int | None, chosen: ChosenEngine
) -> None:
    assert choose_engine(option, lambda: setting, lambda: HOME, environment, lambda: memory) == chosen


def test_without_java_only_a_demand_for_spark_fails() -> None:
    chosen = choose_engine(None, lambda: True, no_java, {}, lambda: None)
    assert str(chosen) == "in this process (no Java 17 or newer was found)"
    with pytest.raises(JavaMissing):
        choose_engine(True, never, no_java, {}, lambda: None)


def test_without_pyspark_no_java_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "find_spec", lambda name: None)
    chosen = choose_engine(None, lambda: True, no_java, {}, lambda: None)
    assert chosen.reason == "PySpark is not installed"


def test_another_value_of_the_variable_is_refused() -> None:
    with pytest.raises(Mm2mgrError, match="MM2MGR_SPARK=no is neither on nor off"):
        choose_engine(False, never, no_java, {"MM2MGR_SPARK": "no"})


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/pod/app", {"pod/memory.max": "2147483648", "pod/app/memory.max": "max"}, 2 * GIB),
        ("0::/of/the/host", {"memory.max": "1073741824"}, GIB),  # in a container
        ("4:cpu,cpuacct:/a\n3:memory:/a", {"memory/a/memory.limit_in_bytes": "3221225472"}, 3 * GIB),
        ("3:memory:/a", {"memory/memory.limit_in_bytes": "9223372036854771712"}, 8 * GIB),
        ("0::/", {"memory.max": "max"}, 8 * GIB),
        ("0::/", {"memory.max": "17179869184"}, 8 * GIB),  # more than there is
    ],
)
def test_the_least_limit_of_the_control_groups_counts(
    tmp_path: Path, groups: str, limits: dict[str, str], expected: int
) -> None:
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text(f"{groups}\n")
    (proc / "meminfo").write_text("MemTotal:        8388608 kB\nMemFree: 1 kB\n")
    for name, text in limits.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(f"{text}\n")
    assert memory_limit(proc, tmp_path / "cgroup") == expected


def test_a_system_that_tells_nothing_sets_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path, tmp_path) is None


OFF = "defaults: {spark: false}\n"


@pytest.mark.parametrize(
    ("files", "is_off"),
    [
        ({"a": f"{OFF}owner: 7\nflows: nonsense\n"}, True),  # mistakes beside it
        ({"a": "defaults: {spark: no, flows: {refresh: never}}\n"}, True),  # beside it, in the same map
        ({"a": "owner: [x\n", "b": OFF}, True),  # another file is no YAML
        ({"a": OFF, "b": "defaults: {spark: true}\n"}, True),  # two answers: the one that starts nothing
        ({"a": f"{OFF}owner: [x\n"}, False),  # the file itself is no YAML
        ({"a": "defaults: {spark: perhaps}\n"}, False),
        ({"a": "defaults: [spark]\n"}, False),
        ({}, False),
    ],
)
def test_what_a_tree_with_mistakes_says_of_spark_counts_where_it_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], is_off: bool
) -> None:
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.delenv("MM2MGR_SPARK", raising=False)
    monkeypatch.setattr("mm2mgr.operations.workspace.spark_java", no_java)
    workspace = Workspace((tmp_path,))
    with pytest.raises(Mm2mgrError):
        _ = workspace.spec
    chosen = workspace.engine(None)
    assert (chosen.reason == "`spark: false` below defaults: of the tree") is is_off, chosen
    assert not Workspace((tmp_path / "nowhere",)).engine(None).reason.startswith("`spark")
