"""Runs the real Makefile with a stand-in for Python, so that nothing is downloaded, and with only the tools it may need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

_MEMORY_KB = int(re.findall(r"^MemTotal: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)[0])
JOBS = max(1, min((os.cpu_count() or 1) + 2, _MEMORY_KB // 3_000_000))
REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = (
    *("make", "getconf", "sh", "sed", "head", "awk", "cp", "mkdir", "touch", "basename"),
    *("dirname", "mktemp", "rm"),
)

# Makes a "venv" of copies of itself and notes every call; $FAILS names the step that goes wrong.
FAKE_PYTHON = """#!/bin/sh
echo "$(basename "$0") $*${PYTHONDONTWRITEBYTECODE:+ without bytecode}" >> calls
case "$*" in
  *version_info*) step=version ;;
  *ensurepip*) step=ensurepip ;;
  "-m venv "*) step=venv; mkdir -p .venv/bin; for tool in python ruff mypy mm2mgr; do cp "$0" ".venv/bin/$tool"; done ;;
  *"pip install"*uv.lock) step=uv; cp "$0" .venv/bin/uv ;;
  *"pip install"*) step=pip ;;
  -V) echo "Python 3.9.2" ;;
esac
[ "$step" != "${FAILS:-none}" ]
"""


@dataclass(frozen=True)
class Clone:
    """A folder with the Makefile and a pyproject.toml, and a PATH of the listed tools."""

    directory: Path

    @property
    def bin(self) -> Path:
        return self.directory / "bin"

    def make(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env: Mapping[str, str] = {"PATH": str(self.bin), **environment}
        command = ["make", *arguments]
        return subprocess.run(
            command, cwd=self.directory, env=env, capture_output=True, text=True, timeout=60, check=False
        )

    def made(self, *arguments: str, **environment: str) -> list[str]:
        """Return what the stand-ins were called with, of a run that must succeed."""
        (self.directory / "calls").unlink(missing_ok=True)
        done = self.make(*arguments, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        calls = self.directory / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def java(self, folder: Path, version: str) -> None:
        script = folder / "java"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
        script.chmod(0o755)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    made = Clone(tmp_path)
    made.bin.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, f"this test needs {tool}"
        (made.bin / tool).symlink_to(found)
    (made.bin / "python3").write_text(FAKE_PYTHON)
    (made.bin / "python3").chmod(0o755)
    (tmp_path / "pyproject.toml").touch()
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    shutil.copytree(REPOSITORY / ".ci", tmp_path / ".ci")
    return made


def installs(calls: list[str]) -> list[str]:
    return [call.split()[-1] for call in calls if "pip install" in call]


def test_test_installs_once_and_hands_its_arguments_to_pytest(clone: Clone) -> None:
    clone.java(clone.bin, "17.0.15")
    calls = clone.made("test", "ARGS=-k 'a or b'")
    assert installs(calls) == [".[dev]"]
    assert calls[-1] == f"python -m pytest -n {JOBS} --dist loadfile --no-loadscope-reorder -m not matrix -k a or b"
    assert clone.made("test") == [f"python -m pytest -n {JOBS} --dist loadfile --no-loadscope-reorder -m not matrix"]
    assert clone.made("test", "JOBS=2") == [
        "python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m not matrix"
    ]


def test_tests_keep_the_bytecode_of_what_they_import(clone: Clone) -> None:
    clone.java(clone.bin, "17")
    made = clone.make("test", PYTHONDONTWRITEBYTECODE="1")
    assert made.returncode == 0
    assert "without bytecode" not in (clone.directory / "calls").read_text()


def test_a_changed_pyproject_installs_again(clone: Clone) -> None:
    clone.java(clone.bin, "21")
    clone.made("setup")
    assert clone.made("setup") == []
    later = (clone.directory / ".venv/.ready-dev").stat().st_mtime + 10
    os.utime(clone.directory / "pyproject.toml", (later, later))
    assert installs(clone.made("setup")) == [".[dev]"]


def test_ci_installs_what_the_lock_file_has_and_nothing_else(clone: Clone) -> None:
    uv, locked, itself = [call for call in clone.made("setup", CI="true") if "pip install" in call]
    assert uv.endswith("--require-hashes --requirement .ci/uv.lock")
    assert locked.startswith("uv pip install ")
    assert locked.endswith("--require-hashes --requirement .ci/requirements.lock")
    assert itself.endswith("--no-deps --editable .")
    assert [call for call in clone.made("setup", CI="true") if "pip install" in call] == []


def test_a_step_of_ci_that_failed_is_done_again(clone: Clone) -> None:
    clone.java(clone.bin, "17")
    assert clone.make("setup", CI="true", FAILS="pip").returncode
    assert len(installs(clone.made("setup", CI="true"))) == 2


def test_demo_needs_no_developer_tools(clone: Clone) -> None:
    clone.java(clone.bin, "26-ea")
    calls = clone.made("demo", "ARGS=--keep")
    assert installs(calls) == [".[all]"]
    assert calls[-1] == "mm2mgr demo --keep"


@pytest.mark.parametrize("version", [None, "1.8.0_292", "11.0.2"])
def test_without_a_recent_java_the_one_from_pypi_is_installed(clone: Clone, version: str | None) -> None:
    if version:
        clone.java(clone.bin, version)
    assert installs(clone.made("demo")) == [".[all,java]"]
    assert installs(clone.made("test")) == [".[dev,java]"]


def test_java_home_is_found_too(clone: Clone) -> None:
    clone.java(clone.bin, "11.0.2")
    clone.java(clone.directory / "jdk/bin", "17.0.1")
    assert installs(clone.made("demo", JAVA_HOME=str(clone.directory / "jdk"))) == [".[all]"]


def test_lint_is_ruff_ruff_format_and_mypy(clone: Clone) -> None:
    clone.java(clone.bin, "17")
    assert clone.made("lint")[-3:] == ["ruff check .", "ruff format --check .", "mypy --strict mm2mgr tools"]


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        ("version", "needs Python 3.11 or newer, and 'python3' is Python 3.9.2"),
        ("ensurepip", "apt-get install python3-venv"),
    ],
)
def test_an_unfit_python_is_refused_with_what_to_do(clone: Clone, fails: str, says: str) -> None:
    done = clone.make("test", FAILS=fails)
    assert done.returncode
    assert says in done.stderr
    assert not (clone.directory / ".venv").exists()


def test_a_missing_python_is_named(clone: Clone) -> None:
    done = clone.make("test", "PYTHON=python3.99")
    assert done.returncode
    assert "'python3.99' was not found" in done.stderr


@pytest.mark.parametrize("fails", ["venv", "pip"])
def test_a_step_that_failed_is_done_again(clone: Clone, fails: str) -> None:
    clone.java(clone.bin, "17")
    assert clone.make("setup", FAILS=fails).returncode
    assert installs(clone.made("setup")) == [".[dev]"]


def test_help_lists_every_target(clone: Clone) -> None:
    targets = {line.split()[1] for line in clone.make().stdout.splitlines()}
    assert targets == {
        "help",
        "demo",
        "test",
        "test-fast",
        "test-matrix",
        "lint",
        "docs",
        "bench",
        "setup",
        "lock",
        "clean",
    }


@pytest.mark.parametrize(
    ("expression", "left_out"),
    [
        ("not live and not long", {"live", "long"}),
        ("not matrix", {"matrix"}),
        ("", set()),
        ("matrix", set()),
        ("not live or long", set()),
        ("not (live or long)", set()),
        ("not live and (long or not spark)", set()),
    ],
)
def test_modules_are_left_out_only_where_no_test_of_theirs_can_be_wanted(
    pytestconfig: pytest.Config, expression: str, left_out: set[str]
) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))
    assert conftest is not None
    assert conftest._left_out(expression) == left_out
