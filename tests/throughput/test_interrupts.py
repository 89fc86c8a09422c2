"""Ctrl-C while Spark works: the command says that it was interrupted, and py4j prints no traceback of its own."""

from __future__ import annotations

import io
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from py4j.java_gateway import GatewayClient
from py4j.protocol import Py4JNetworkError

from mm2mgr.throughput import spark_session

from .standalone import environment
from .test_follow import add_hour

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mock]:
    """A session without a JVM, as far as this process sees it."""
    spark = Mock()
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(spark_session, "_local", spark_session._Local())
    monkeypatch.setattr(spark_session, "_require_java", lambda _: None)
    monkeypatch.setattr(spark_session, "_start_fork_server", lambda: None)
    monkeypatch.setattr(spark_session, "_start_session", lambda *_: spark)
    monkeypatch.setattr(spark_session, "_stop", lambda _: None)
    for name in ("SPARK_LOCAL_IP", "SPARK_LAUNCHER_OPTS", "PYSPARK_PYTHON", *spark_session._KEPT_MEMORY):
        monkeypatch.setenv(name, "x")
    yield spark_session.session()
    spark_session.end(spark)


def interrupted(error: BaseException) -> None:
    """Call the JVM and be interrupted in it."""
    client = GatewayClient()
    client._get_connection = lambda: Mock(send_command=Mock(side_effect=error), socket=None)
    try:
        client.send_command("c\n")
    except KeyboardInterrupt:
        assert isinstance(error, KeyboardInterrupt)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Py4JNetworkError("the JVM has ended")])
def test_what_py4j_logs_of_an_interrupted_call_is_not_printed(session: Mock, error: BaseException) -> None:
    printed = io.StringIO()
    handler = logging.StreamHandler(printed)  # py4j makes one where there is none
    logging.getLogger().addHandler(handler)
    try:
        interrupted(error)
        logging.getLogger("py4j.clientserver").error("Exception occurred while shutting down connection")
        logging.warning("of somebody else")
        assert printed.getvalue() == "of somebody else\n"
        spark_session.end(session)
        interrupted(error)
        assert "Traceback" in printed.getvalue(), "once the session has ended nothing is held back"
    finally:
        logging.getLogger().removeHandler(handler)


# Played as people meet it: the job of a real session never ends, and Ctrl-C comes from the terminal.
ENDLESS = """
import sys, threading
from mm2mgr.cli import main
from mm2mgr.throughput import job

def work(spark, store):
    threading.Timer(2, lambda: print("working", flush=True)).start()
    spark.sql("SELECT java_method('java.lang.Thread', 'sleep', 600000L)").collect()

job._run_on = work
sys.argv = ["mm2mgr", "throughput", "--spark", "--store", sys.argv[1]]
main()
"""


@pytest.mark.matrix
@pytest.mark.spark
def test_ctrl_c_in_a_spark_job_prints_one_line(tmp_path: Path) -> None:
    add_hour(tmp_path / "store", 0)
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(tmp_path / "store")],
        env=environment(PYTHONPATH=str(REPOSITORY)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "working\n"
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130, out + err
    assert out == ""
    assert err == f"rolling up {tmp_path / 'store'} on Spark\n\ninterrupted\n", "a blank line ends that of ^C"
