"""A real standalone Spark of two workers with folders of their own, the tables on an S3 server: nothing else is shared.

And a worker that has an empty folder where the driver has a local store, as on another machine where nobody mounted the
storage: the job fails, and nothing is lost. That worker lives in a mount namespace of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pyspark
import pytest

from mm2mgr.evidence.measured import read_rates
from mm2mgr.samples.schema import Store
from mm2mgr.sandbox.java import find_java, spark_java_home
from mm2mgr.throughput.rollup_job import is_due
from mm2mgr.throughput.windows import read_throughput

from .stores import rolled, series, stored

SPARK = Path(pyspark.__file__).parent
REPOSITORY = Path(__file__).resolve().parents[2]
JOB = REPOSITORY / "mm2mgr" / "throughput" / "job.py"
UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
DEADLINE_SECONDS = 300.0


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return tried.returncode == 0


pytestmark = pytest.mark.spark


def environment() -> dict[str, str]:
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK)}
    return {**os.environ, **own, "JAVA_HOME": str(spark_java_home(find_java()))}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def daemon(log: Path, command: list[str], until: str) -> Iterator[None]:
    """Run a daemon of Spark, from the line in its log that says it is ready to the end of the block."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment(), stdout=out, stderr=out, start_new_session=True)
    try:
        ends_at = time.monotonic() + DEADLINE_SECONDS
        while until not in log.read_text(errors="replace"):
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < ends_at, log.read_text(errors="replace")
            time.sleep(0.1)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # its executors are in its group
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def worker(folder: Path, master: str, name: str, hidden: Path | None) -> Iterator[None]:
    """A worker of one core; `hidden` is empty where it and its executors look."""
    start = f'exec "{SPARK}/bin/spark-class" org.apache.spark.deploy.worker.Worker --host 127.0.0.1 --webui-port 0'
    options = f'-c 1 -m 1g -d "{folder / name}" {master}'
    command = ["sh", "-c", f"{start} {options}"]
    if hidden:
        command = [*UNSHARE, "sh", "-c", f'mount -t tmpfs none "{hidden}" && {start} {options}']
    with daemon(folder / f"{name}.log", command, "Successfully registered with master"):
        yield


def submitted(master: str, store: Store) -> subprocess.CompletedProcess[str]:
    settings = ("spark.ui.enabled=false", "spark.driver.host=127.0.0.1", "spark.executor.memory=512m")
    options = ["--master", master, *(part for each in settings for part in ("--conf", each))]
    command = [str(SPARK / "bin" / "spark-submit"), *options, str(JOB), "--store", str(store)]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS
    )


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master; yields its URL."""
    master = f"spark://127.0.0.1:{(port := free_port())}"
    command = [str(SPARK / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master"]
    where = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    with daemon(folder / "master.log", [*command, *where], "I have been elected leader"):
        yield master


@pytest.mark.skipif(not can_unshare(), reason="this system lets nobody make a mount namespace")
def test_executors_without_the_store_fail_the_job_and_those_with_it_do_the_work(tmp_path: Path) -> None:
    store = tmp_path / "store"
    stored(store, series("t", [(second, 10 * second) for second in range(0, 3 * 3600, 300)]))
    rolled(store)
    stored(store, series("t", [(second, 10 * second) for second in range(3 * 3600 - 150, 5 * 3600, 300)], size=None))
    (before,) = read_throughput(store)
    kept = {path: path.read_bytes() for path in store.rglob("*.parquet")}
    with cluster(tmp_path) as master:
        with worker(tmp_path, master, "blind", hidden=store):
            failed = submitted(master, store)
        assert failed.returncode == 1, failed.stdout + failed.stderr
        assert f"cannot read or write the tables of {store}: No such file or directory" in failed.stderr
        assert "every machine that runs executors needs this folder" in failed.stderr
        assert {path: path.read_bytes() for path in store.rglob("*.parquet")} == kept
        assert read_throughput(store) == [before]
        assert is_due(store)
        with worker(tmp_path, master, "seeing", hidden=None):
            done = submitted(master, store)
        assert done.returncode == 0, done.stdout + done.stderr
    (after,) = read_throughput(store)
    assert after.samples == before.samples + 25
    assert not is_due(store)


def test_executors_share_nothing_but_the_uri_of_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = f"http://127.0.0.1:{(port := free_port())}"
    login = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "s3cret-of-the-test", "AWS_REGION": "us-east-1"}
    for name, value in {**login, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    uri, local = "s3://metrics/mm2mgr", tmp_path / "local"
    rows = [series(f"t{n}", [(second, (n + 1) * second) for second in range(0, 26 * 3600, 600)]) for n in range(4)]
    # A process of its own: the library does not let other threads of its own process run while it waits for an answer.
    server = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with daemon(tmp_path / "s3.log", server, "Running on"):
        boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket="metrics")
        stored(uri, *rows)
        stored(local, *rows)
        with cluster(tmp_path) as master:
            with worker(tmp_path, master, "one", None), worker(tmp_path, master, "two", None):
                done = submitted(master, uri)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "624 samples rolled up" in done.stdout
        logs = [
            path.read_text(errors="replace")
            for path in tmp_path.rglob("*")
            if path.suffix in ("", ".log") and path.is_file()
        ]
        assert all(login["AWS_SECRET_ACCESS_KEY"] not in text for text in (done.stdout, done.stderr, *logs))
        rolled(local)
        assert read_throughput(uri) == read_throughput(local)
        assert repr(read_rates(uri)) == repr(read_rates(local))  # what `size`, `fleet` and `simulate` plan with
        assert not is_due(uri)
