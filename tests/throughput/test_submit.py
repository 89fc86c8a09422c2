"""What spark-submit prepared is used as it is and left to it; what Spark reports in pages becomes one line."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from mm2mgr.throughput import spark_session as session_module
from mm2mgr.throughput.spark_session import _hand_over, failure

from .standalone import environment, submit

SCRIPT = """\
import json
from pathlib import Path
from mm2mgr.throughput.spark_session import end, session
spark = session(Path("/no/java/here"))
settings = {name: spark.conf.get(name) for name in ("spark.app.name", "spark.master", "spark.sql.shuffle.partitions")}
end(spark)
files = [Path(name).name for name in spark.sparkContext.listFiles]
print("told", json.dumps({**settings, "rows": spark.range(3).count(), "files": files}))
"""
IN_A_TASK = """\

[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "pyspark/worker.py", line 4207, in invoke_udf
    return cloudpickle.loads(obj, encoding=encoding)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
{error}
 SQLSTATE: 38000
"""
IN_JAVA = """\
An error occurred while calling o55.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:572)
Caused by: java.io.IOException: {error}
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory
\t... 34 more
"""


def test_a_jvm_that_does_not_end_is_ended_and_its_half_archive_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("MM2MGR_CACHE", str(tmp_path))
    monkeypatch.setattr(session_module, "SparkContext", Mock())
    monkeypatch.setattr(session_module, "_EXIT_SECONDS", 0.1)
    monkeypatch.setattr(session_module, "_local", session_module._Local())
    half = session_module._draft(session_module.class_archive(os.environ.get("JAVA_HOME")))
    half.write_bytes(b"half")
    with subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE) as process:
        session_module.end(Mock(sparkContext=Mock(_gateway=Mock(proc=process))))
        assert process.poll() is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_what_spark_submit_configured_stays_and_is_not_stopped(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = submit("local[1]", script, settings={"spark.app.name": "nightly", "spark.sql.shuffle.partitions": "7"})
    done = subprocess.run(
        command,
        env=environment(PYTHONPATH=str(Path(__file__).resolve().parents[2])),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (told,) = [line.removeprefix("told ") for line in done.stdout.splitlines() if line.startswith("told ")]
    assert json.loads(told) == {
        "spark.app.name": "nightly",
        "spark.master": "local[1]",
        "spark.sql.shuffle.partitions": "7",
        "rows": 3,
        "files": ["mm2mgr.zip"],
    }


def test_what_came_from_an_archive_is_not_handed_over_again() -> None:
    spark = Mock(spec=SparkSession)
    _hand_over(spark, Path("/opt/dependencies.zip/mm2mgr"))
    assert spark.mock_calls == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (IN_A_TASK.format(error="cimpl.KafkaException: KafkaError{no}"), "cimpl.KafkaException: KafkaError{no}"),
        (IN_A_TASK.format(error="TimeoutError: silent"), "TimeoutError: silent"),
        (IN_JAVA.format(error="no room"), "java.io.IOException: error=2, No such file or directory"),
        (
            IN_JAVA.format(error='Cannot run program "python9": error=2, No such file or directory'),
            "the executors have no python9: name a Python of theirs in PYSPARK_PYTHON",
        ),
        ("[SOME_CONDITION] nothing here names it", "[SOME_CONDITION] nothing here names it"),
        ("", "ValueError"),
    ],
    ids=["the client's error", "ours", "Java's cause", "no Python", "no name", "no word"],
)
def test_the_error_that_is_named_last_is_reported(text: str, told: str) -> None:
    error = failure("it failed", ValueError(text), "try again")
    assert (error.message, error.hint) == (f"it failed: {told}", "try again")


@pytest.mark.parametrize("package", ["confluent_kafka", "pyarrow", "numpy"])
def test_a_package_that_executors_lack_is_reported_with_a_remedy(package: str) -> None:
    missing = IN_A_TASK.format(error=f"ModuleNotFoundError: No module named '{package}.core'")
    error = failure("it failed", ValueError(missing), "try again")
    assert error.message.startswith(
        f"it failed: the executors' Python has no package {package}: `pip install confluent-"
    )
    assert error.message.endswith("PYSPARK_PYTHON")
    assert error.hint == "try again"


def test_what_spark_says_is_cut() -> None:
    assert len(failure("it failed", ValueError("x" * 9000)).message) < 400
