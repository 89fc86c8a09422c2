"""A real standalone Spark of two workers with folders of their own, the tables on an S3 server: nothing else is shared.

And a worker that has an empty folder where the driver has a local store, as on another machine where nobody mounted the
storage: the job fails, and nothing is lost. That worker lives in a mount namespace of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest

from mm2mgr.evidence.measured import read_rates
from mm2mgr.samples.schema import Store
from mm2mgr.sandbox.server import HOST, free_ports
from mm2mgr.throughput import job
from mm2mgr.throughput.rollup_job import is_due
from mm2mgr.throughput.windows import read_throughput

from .standalone import DEADLINE_SECONDS, daemon, deploy, environment, master, submit
from .stores import rolled, series, stored

UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return tried.returncode == 0


pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master; yields its URL."""
    with master(tmp_path_factory.mktemp("master")) as url:
        yield url


@contextmanager
def worker(folder: Path, cluster: str, name: str, hidden: Path | None) -> Iterator[None]:
    """A worker of one core; `hidden` is empty where it and its executors look."""
    command = deploy("worker.Worker", "-c", "1", "-m", "1g", "-d", str(folder / name), cluster)
    if hidden:
        command = [*UNSHARE, "sh", "-c", f'mount -t tmpfs none "{hidden}" && exec "$@"', "worker", *command]
    with daemon(folder / f"{name}.log", command, "Successfully registered with master"):
        yield


def submitted(cluster: str, store: Store) -> subprocess.CompletedProcess[str]:
    command = submit(cluster, job.__file__, "--store", str(store))
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS
    )


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


def test_executors_share_nothing_but_the_uri_of_the_tables(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    endpoint = f"http://{HOST}:{port}"
    login = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "s3cret-of-the-test", "AWS_REGION": "us-east-1"}
    for name, value in {**login, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    uri, local = "s3://metrics/mm2mgr", tmp_path / "local"
    rows = [
        series(f"t{n}", [(second, (n + 1) * second) for second in range(11 * 3600, 17 * 3600, 600)]) for n in range(4)
    ]
    # A process of its own: the library does not let other threads of its own process run while it waits for an answer.
    server = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    with daemon(tmp_path / "s3.log", server, "Running on"):
        boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket="metrics")
        stored(uri, *rows)
        stored(local, *rows)
        with worker(tmp_path, cluster, "one", None), worker(tmp_path, cluster, "two", None):
            done = submitted(cluster, uri)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "144 samples rolled up" in done.stdout
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
