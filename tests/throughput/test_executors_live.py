"""A real standalone Spark of two workers with folders of their own, the tables on an S3 server: nothing else is shared.

And a worker that has an empty folder where the driver has a local store, as on another machine where nobody mounted the
storage: the job fails, and nothing is lost. That worker lives in a mount namespace of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mm2mgr.evidence.measured import read_rates
from mm2mgr.samples.schema import Store
from mm2mgr.throughput import job
from mm2mgr.throughput.rollup import throughput_table
from mm2mgr.throughput.rollup_job import is_due
from mm2mgr.throughput.windows import read_throughput

from .standalone import (
    BUCKET,
    DEADLINE_SECONDS,
    S3_SECRET,
    UNSHARE,
    environment,
    executors,
    master,
    s3_server,
    submit,
    worker,
)
from .stores import contents, rolled, series, stored

STEPS = range(0, 3600, 600)


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return tried.returncode == 0


def other_python() -> str | None:
    """Return a Python of another minor version that runs: of PATH, or installed beside this one."""
    names = [f"python3.{minor}" for minor in (10, 12, 13) if minor != sys.version_info[1]]
    beside = [str(path) for name in names for path in Path(sys.base_prefix).parent.glob(f"*/bin/{name}")]
    for path in (*filter(None, map(shutil.which, names)), *beside):
        if subprocess.run([path, "-c", "pass"], capture_output=True, check=False).returncode == 0:
            return path
    return None


OTHER_PYTHON = other_python()
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master; yields its URL."""
    with master(tmp_path_factory.mktemp("master")) as url:
        yield url


def submitted(
    cluster: str, store: Store, meanwhile: Callable[[], None] = lambda: None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Submit the job, do something `meanwhile`, and wait for its end."""
    command = submit(cluster, job.__file__, "--store", str(store))
    with subprocess.Popen(
        command, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            meanwhile()
            out, err = process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            process.kill()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.matrix  # a task that finds no file: test_job.py is the gate's sample of it
@pytest.mark.skipif(not can_unshare(), reason="this system lets nobody make a mount namespace")
def test_executors_without_the_store_fail_the_job_and_those_with_it_do_the_work(cluster: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    stored(store, series("t", [(second, 10 * second) for second in range(0, 3 * 3600, 300)]))
    rolled(store)
    stored(store, series("t", [(second, 10 * second) for second in range(3 * 3600 - 150, 5 * 3600, 300)], size=None))
    (before,) = read_throughput(store)
    kept = {path: path.read_bytes() for path in store.rglob("*.parquet")}
    with worker(tmp_path, cluster, "blind", hidden=store):
        failed = submitted(cluster, store)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert f"cannot read or write the tables of {store}: No such file or directory" in failed.stderr
    assert "every machine that runs executors needs this folder" in failed.stderr
    assert {path: path.read_bytes() for path in store.rglob("*.parquet")} == kept
    assert read_throughput(store) == [before]
    assert is_due(store)
    with worker(tmp_path, cluster, "seeing", hidden=None):
        done = submitted(cluster, store)
    assert done.returncode == 0, done.stdout + done.stderr
    (after,) = read_throughput(store)
    assert after.samples == before.samples + 25
    assert not is_due(store)


def test_executors_share_nothing_but_the_uri_of_the_tables_and_one_is_killed_in_its_work(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, local = f"s3://{BUCKET}/mm2mgr", tmp_path / "local"
    hours = [hour for hour in range(24) if hour % 3]  # eight runs of two hours: eight tasks
    rows = [
        series(
            f"t{n}", [(hour * 3600 + second, (n + 1) * (hour * 3600 + second)) for hour in hours for second in STEPS]
        )
        for n in range(4)
    ]
    with s3_server(tmp_path, monkeypatch) as s3:
        stored(uri, *rows)
        stored(local, *rows)
        with worker(tmp_path, cluster, "one", None) as one, worker(tmp_path, cluster, "two", None) as two:

            def kill_an_executor() -> None:
                """Kill an executor as soon as a task has written a file that is in no commit yet."""
                ends_at = time.monotonic() + DEADLINE_SECONDS
                while not s3.list_objects_v2(Bucket=BUCKET, Prefix="mm2mgr/throughput/period=").get("KeyCount"):
                    assert time.monotonic() < ends_at
                    time.sleep(0.02)
                assert throughput_table(uri).files() == []
                victim, *_ = [*executors(one), *executors(two)]
                os.kill(victim, signal.SIGKILL)

            done = submitted(cluster, uri, kill_an_executor)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{4 * 6 * len(hours)} samples rolled up" in done.stdout
        logs = [
            path.read_text(errors="replace")
            for path in tmp_path.rglob("*")
            if path.suffix in ("", ".log") and path.is_file()
        ]
        assert all(S3_SECRET not in text for text in (done.stdout, done.stderr, *logs))
        rolled(local)
        assert contents(uri) == contents(local), "every number and sketch, nothing half and nothing twice"
        assert repr(read_rates(uri)) == repr(read_rates(local))  # what `size`, `fleet` and `simulate` plan with
        assert not is_due(uri)


@pytest.mark.matrix
@pytest.mark.skipif(not OTHER_PYTHON, reason="this system has no Python of another minor version")
def test_executors_with_another_python_version_fail_the_job_and_say_so(cluster: str, tmp_path: Path) -> None:
    stored(tmp_path / "store", series("t", [(second, 10 * second) for second in range(0, 3600, 600)]))
    python = tmp_path / "python"  # one path on all machines, and not one version
    python.write_text(
        f'#!/bin/sh\nif [ "$ON_WORKER" ]; then exec {OTHER_PYTHON} "$@"; fi\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    with worker(tmp_path, cluster, "other", None, ON_WORKER="yes"):
        failed = submitted(cluster, tmp_path / "store", PYSPARK_PYTHON=str(python))
    assert failed.returncode == 1, failed.stdout + failed.stderr
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    problem = rf"error: the Spark job failed: .*than that in driver: {here}, PySpark cannot run with different minor"
    assert re.search(problem, failed.stdout), failed.stdout + failed.stderr  # spark-submit hands on both streams as one
    assert is_due(tmp_path / "store")
    assert throughput_table(tmp_path / "store").files() == []
