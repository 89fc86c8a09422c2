"""The Spark session of the throughput job: a local one that starts fast, or the one that spark-submit prepared.

In goes a Java home, out comes a session; it changes only environment variables that are not set yet.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mm2mgr.errors import JavaMissing, Mm2mgrError

# Measured on 2 cores: C1 only and the serial collector halve the CPU seconds from start to first answer.
_FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": f"{_FAST_START} -Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}",
}


def session(java_home: Path | None = None, log_file: Path | None = None) -> SparkSession:
    """Start a local session on all cores; JavaMissing when there is no `java` to start.

    `java_home` decides which Java; without it JAVA_HOME, then PATH. With `log_file`, what the JVM writes to stderr in
    its whole life goes there instead of the terminal.
    """
    _require_java(java_home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _FAST_START)
    if java_home is not None:
        os.environ["JAVA_HOME"] = str(java_home)
    builder = SparkSession.builder.master("local[*]").appName("mm2mgr throughput")
    for key, value in _LOCAL.items():
        builder = builder.config(key, value)
    try:
        with _stderr_into(log_file):
            return builder.getOrCreate()
    except (PySparkException, OSError) as error:
        where = f"; its own words are in {log_file}" if log_file else ""
        raise Mm2mgrError(
            "Spark did not start", hint=f"run `java -version`; PySpark 4 needs Java 17 or newer{where}"
        ) from error


@contextmanager
def _stderr_into(log_file: Path | None) -> Iterator[None]:
    """Let a child process started meanwhile inherit `log_file` as its stderr; Spark's launcher offers no other way."""
    if log_file is None:
        yield
        return
    log_file.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log_file.open("wb") as log:
            os.dup2(log.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def submitted_session() -> SparkSession:
    """Return the session that spark-submit configured, with nothing changed."""
    return SparkSession.builder.appName("mm2mgr throughput").getOrCreate()


def _require_java(java_home: Path | None) -> None:
    home = java_home or (Path(os.environ["JAVA_HOME"]) if os.environ.get("JAVA_HOME") else None)
    java = shutil.which("java", path=str(home / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"{home} has no bin/java" if home else "`java` is not on PATH and JAVA_HOME is not set"
        raise JavaMissing(
            f"the throughput job needs Java 17 or newer: {where}",
            hint="install a JRE 17+, or `pip install 'mm2mgr[java]'`; plan and apply work without Java",
        )
