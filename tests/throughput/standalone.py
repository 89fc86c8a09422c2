"""A standalone Spark on this machine: its daemons, and what is submitted to them, with JVMs that start fast; and an S3
server for its tables.

In: commands. Out: processes that end with the block, with the executors that they started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pyspark
import pytest

from mm2mgr.sandbox.runtime import find_java, spark_java_home
from mm2mgr.sandbox.server import HOST, free_ports
from mm2mgr.throughput.spark_session import FAST_START, class_archive

SPARK = Path(pyspark.__file__).parent / "bin"
DEADLINE_SECONDS = 300.0
UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def _quick() -> str:
    """Return the flags of a short-lived JVM; it reads the classes that the tests' first session archived."""
    return f"{FAST_START} -Xlog:disable -XX:SharedArchiveFile={class_archive(spark_java_home(find_java()))}"


def environment(**more: str) -> dict[str, str]:
    """Return what Spark's scripts need here; never what an earlier test's session left in this process."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))}
    quick = dict.fromkeys(("SPARK_DAEMON_JAVA_OPTS", "SPARK_LAUNCHER_OPTS"), _quick())
    java = {"JAVA_HOME": str(spark_java_home(find_java())), "SPARK_DAEMON_MEMORY": "256m"}
    return {**kept, **java, **quick, "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable, **more}


def submit(master: str, *arguments: str | Path, settings: Mapping[str, str] | None = None) -> list[str]:
    """Return the command that hands a script to a master."""
    quick = dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), _quick())
    small = {"spark.ui.enabled": "false", "spark.driver.host": HOST, "spark.executor.memory": "512m"}
    options = [part for each in {**small, **quick, **(settings or {})}.items() for part in ("--conf", "=".join(each))]
    return [str(SPARK / "spark-submit"), "--master", master, *options, *map(str, arguments)]


def deploy(name: str, *arguments: str) -> list[str]:
    """Return the command of one of Spark's daemons, `master.Master` or `worker.Worker`, without a page."""
    return [
        str(SPARK / "spark-class"),
        f"org.apache.spark.deploy.{name}",
        "--host",
        HOST,
        "--webui-port",
        "0",
        *arguments,
    ]


@contextmanager
def daemon(log: Path, command: Sequence[str], serves: str, **more: str) -> Iterator[int]:
    """Run a daemon, with `more` in its environment, from the line in its log that says it is ready to the end of the
    block; yields its process group."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment(**more), stdout=out, stderr=out, start_new_session=True)
    try:
        ends_at = time.monotonic() + DEADLINE_SECONDS
        while serves not in (said := log.read_text(errors="replace")):
            assert process.poll() is None, said
            assert time.monotonic() < ends_at, said
            time.sleep(0.1)
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # a worker's executors are in its group
        process.wait(20)


@contextmanager
def master(folder: Path) -> Iterator[str]:
    """Run a master; yields its URL."""
    (port,) = free_ports(1)
    with daemon(folder / "master.log", deploy("master.Master", "--port", str(port)), "I have been elected leader"):
        yield f"spark://{HOST}:{port}"


@contextmanager
def worker(folder: Path, cluster: str, name: str, hidden: Path | None = None, **more: str) -> Iterator[int]:
    """A worker of one core; `hidden` is empty where it and its executors look. Yields its process group."""
    command = deploy("worker.Worker", "-c", "1", "-m", "1g", "-d", str(folder / name), cluster)
    if hidden:
        command = [*UNSHARE, "sh", "-c", f'mount -t tmpfs none "{hidden}" && exec "$@"', "worker", *command]
    with daemon(folder / f"{name}.log", command, "Successfully registered with master", **more) as group:
        yield group


def executors(group: int) -> list[int]:
    """Return the processes of executors in a worker's process group."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,pgid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    return [int(pid) for pid, of, args in rows if int(of) == group and "CoarseGrainedExecutorBackend" in args]


BUCKET, S3_SECRET = "metrics", "s3cret-of-the-test"


@contextmanager
def s3_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Run an S3 server with an empty bucket, for this process and those that it starts; yields a client."""
    (port,) = free_ports(1)
    endpoint = f"http://{HOST}:{port}"
    login = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": S3_SECRET, "AWS_REGION": "us-east-1"}
    for name, value in {**login, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    # A process of its own: the library does not let other threads of its own process run while it waits for an answer.
    with daemon(folder / "s3.log", [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)], "Running on"):
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield client
