"""What every test starts from: Ctrl-C works (a run in a shell's background inherits it ignored, and so would its children), no secrets are known."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from mm2mgr import secrets
from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import cache_folder, locked
from mm2mgr.sandbox.broker import Broker
from mm2mgr.sandbox.server import kafka_runtime
from mm2mgr.sandbox.worker import Worker

# No test is timed: on a busy machine a single example may take any time.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> Iterator[None]:
    """Each run of the program begins without secrets that it has seen."""
    secrets.forget()
    yield
    secrets.forget()


# Modules that take minutes, longest first: begun late, one of them would run on alone.
LONGEST = (
    "live/test_apply.py",
    "live/test_faults.py",
    "live/test_day_two.py",
    "live/test_exactly_once.py",
    "live/test_cruise_topic.py",
    "demo/test_demo_live.py",
    "sandbox/test_sandbox_live.py",
    "live/test_verbs.py",
    "live/test_task_capacity.py",
    "live/test_moves.py",
    "throughput/test_executors_live.py",
    "sizing/test_assignment_live.py",
    "live/test_fleet.py",
    "sizing/test_rates_live.py",
    "live/test_dead_source.py",
    "live/test_history.py",
    "live/test_security.py",
    "check/test_acls_live.py",
    "throughput/test_job.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put modules that start real Kafka or Spark first, the longest before the others: they mostly wait."""
    tests = Path(__file__).parent
    first = {tests / name: place for place, name in enumerate(LONGEST)}
    real = {item.path for item in items if any(item.iter_markers("live")) or any(item.iter_markers("spark"))}
    items.sort(key=lambda item: (first.get(item.path, len(first)), item.path not in real))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start a broker, a worker and Spark once per machine, before all others: these then start in a third of the CPU time."""
    if session.config.option.collectonly:
        return
    marks = {mark.name for item in session.items for mark in item.iter_markers()}
    with suppress(Mm2mgrError, OSError):  # a live test will say what is missing
        cache_folder().mkdir(parents=True, exist_ok=True)
        with locked(cache_folder() / "classes.lock", "first start of Java for the tests", 300):
            wanted = "spark" in marks and not any(cache_folder().glob("spark-classes-*.jsa"))
            spark = subprocess.Popen([sys.executable, "-c", FIRST_SPARK], stdout=PIPE, stderr=PIPE) if wanted else None
            try:
                if "live" in marks:
                    _archive_classes_of_kafka()
            finally:
                if spark:
                    spark.communicate()


# In a process of its own: the environment of Spark stays there.
FIRST_SPARK = """
from pyspark.sql import functions as F
from mm2mgr.sandbox.java import find_java, spark_java_home
from mm2mgr.throughput.job import end, session
spark = session(spark_java_home(find_java()))
spark.range(2).select(F.udf(str)("id")).collect()
end(spark)
"""


def _archive_classes_of_kafka() -> None:
    runtime = kafka_runtime()
    if runtime.cached("worker-classes", ".jsa").is_file():
        return
    with (
        TemporaryDirectory() as folder,
        Broker("first", Path(folder, "broker"), runtime=runtime) as broker,
        Worker("first", Path(folder, "worker"), broker.bootstrap_servers, runtime=runtime),
    ):
        pass
