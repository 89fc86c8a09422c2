"""The archive of Spark's classes is made beside whoever works: for people only, detached, at lowest priority, once at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.throughput import class_archive, spark_session
from tests.cli.command import until

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MM2MGR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    (tmp_path / "cache").mkdir()


@pytest.mark.parametrize(
    ("terminal", "ci", "archived", "begins"),
    [
        (True, False, False, True),
        (False, False, False, False),  # a service, a pipe, a log
        (True, True, False, False),  # a machine that goes away
        (True, False, True, False),
    ],
)
def test_it_begins_after_a_session_of_a_person_who_has_none(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, ci: bool, archived: bool, begins: bool
) -> None:
    begun = Mock()
    monkeypatch.setattr(spark_session, "_archive_classes_later", begun)
    monkeypatch.setattr(spark_session, "SparkContext", Mock())
    monkeypatch.setattr(spark_session, "_local", spark_session._Local())
    monkeypatch.setattr(sys, "stderr", Mock(isatty=lambda: terminal))
    if ci:
        monkeypatch.setenv("CI", "")  # set is enough
    else:
        monkeypatch.delenv("CI", raising=False)
    if archived:
        spark_session.class_archive(os.environ.get("JAVA_HOME")).write_bytes(b"classes")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        spark_session.end(Mock(sparkContext=Mock(_gateway=Mock(proc=process))))
        assert process.poll() is not None, "the work was over"
    assert begun.called is begins


def test_it_is_a_process_of_its_own_that_nobody_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, told = tmp_path / "python", tmp_path / "told"
    python.write_text(
        f'#!/bin/sh\necho $$ $(ps -o sid= -p $$) "$@" > {told}.new\nmv {told}.new {told}\nexec sleep 60\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    spark_session._archive_classes_later()
    until(told.exists, "it runs")
    process, its_session, *words = told.read_text().split()
    try:
        assert its_session == process, "Ctrl-C, and the end of the terminal, are not for it"
        assert words == ["-m", "mm2mgr.throughput.class_archive"]
        streams = [os.readlink(f"/proc/{process}/fd/{number}") for number in range(3)]
        assert streams == [os.devnull] * 3
    finally:
        os.kill(int(process), signal.SIGKILL)


@pytest.mark.parametrize(("error", "code"), [(None, 0), (OSError("no room"), 1), (Mm2mgrError("none"), 1)])
def test_it_takes_the_lowest_priority_first_and_never_says_a_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], error: Exception | None, code: int
) -> None:
    steps = Mock()
    steps.prepare.side_effect = error
    monkeypatch.setattr(os, "nice", steps.nice)
    monkeypatch.setattr(class_archive, "prepare", steps.prepare)
    assert class_archive.main() == code
    assert [step[0] for step in steps.mock_calls] == ["nice", "prepare"]
    assert steps.nice.call_args.args == (19,)
    assert capfd.readouterr() == ("", "")


def test_several_at_once_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions, waiting = list[object](), threading.Barrier(4)

    def begin(*_: object, archives_classes: bool) -> object:
        assert archives_classes
        sessions.append(threading.get_ident())
        return object()

    monkeypatch.setattr(class_archive, "session", begin)
    monkeypatch.setattr(class_archive, "run", lambda store, spark: None)
    monkeypatch.setattr(class_archive, "_query", lambda spark, store: None)
    archive = spark_session.class_archive(os.environ.get("JAVA_HOME"))
    left_by_a_killed_one = archive.with_name(f"{archive.name}.17")
    left_by_a_killed_one.write_bytes(b"half")
    monkeypatch.setattr(class_archive, "end", lambda spark: archive.write_bytes(b"classes"))
    paths = list[Path]()

    def prepare() -> None:
        waiting.wait(20)
        paths.append(class_archive.prepare())

    threads = [threading.Thread(target=prepare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert paths == [archive] * 4
    assert len(sessions) == 1
    assert not left_by_a_killed_one.exists()
