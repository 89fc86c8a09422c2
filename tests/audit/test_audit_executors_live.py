"""Audits on a standalone Spark of two workers: the command as spark-submit starts it, and executors that are killed while they read."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import pytest

import mm2mgr.__main__
from mm2mgr.audit.report import AuditReport, DifferenceKind, Verdict
from mm2mgr.audit.run import run_audit
from mm2mgr.audit.windows import AuditOrder, Expectation, Matching
from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.sandbox.runtime import Runtime
from tests.live.command import Tree
from tests.live.conftest import WORKER, runtime, serving, tree  # noqa: F401  fixtures
from tests.live.pair import flow, serving_pair
from tests.live.seen import create, messages, until, write
from tests.throughput.standalone import DEADLINE_SECONDS, environment, executors, master, submit, worker

from .faults import records, with_faults
from .test_audit_live import Clusters

pytestmark = [pytest.mark.live, pytest.mark.spark, pytest.mark.matrix]
REPOSITORY = Path(__file__).resolve().parents[2]
SECRET = "a-password-that-nobody-may-see"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN} user_mirror="{SECRET}";',
}
LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SECURE": "SASL_PLAINTEXT"}
SCRIPT = """\
import pickle, sys
from pathlib import Path
from mm2mgr.audit.run import run_audit
from mm2mgr.throughput.spark_session import session

report = run_audit(pickle.loads(Path(sys.argv[1]).read_bytes()), session())
Path(sys.argv[2]).write_bytes(pickle.dumps(report))
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[int]]]:
    """A master with two workers of one core; yields its URL and their process groups."""
    folder = tmp_path / "spark"
    folder.mkdir()
    with master(folder) as url, worker(folder, url, "one") as one, worker(folder, url, "two") as two:
        yield url, [one, two]


def submitted(url: str, events: Path, *arguments: str | Path, **more: str) -> subprocess.Popen[str]:
    events.mkdir(exist_ok=True)
    logged = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    pipe = subprocess.PIPE
    command = submit(url, *arguments, settings=logged)
    return subprocess.Popen(command, env=environment(**more), stdout=pipe, stderr=pipe, text=True)


def written_below(*folders: Path) -> str:
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file() and file.suffix != ".zip"]
    return "".join(file.read_text(errors="replace") for file in files)


def test_the_command_under_spark_submit_gives_the_answer_of_this_process(
    cluster: tuple[str, list[int]],
    tree: Tree,  # noqa: F811
    runtime: Runtime,  # noqa: F811
    tmp_path: Path,
) -> None:
    url, _ = cluster
    settings = {**WORKER, "offset.flush.interval.ms": "3000"}
    with serving_pair(
        tmp_path / "kafka", runtime, workers=["w"], brokers=LOGIN, listeners=LISTENERS, settings=settings
    ) as pair:
        create(pair.source, ["paid"], 4)
        log = [record for number in range(4) for record in records(random.Random(number), 5_000, number)]
        write(pair.source, "paid", log)
        plain = f'src: {{bootstrap_servers: ["{pair.src.bootstrap_servers}"]}}'
        login = f'{PLAIN} username="mirror" password="{SECRET}";'
        security = {"protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
        secure = {"bootstrap_servers": [pair.src.bootstrap("SECURE")], "security": security}
        declared = pair.yaml("test", flow("paid", "paid"), "checkpoints: false, heartbeats: false, ")
        assert plain in declared
        tree.write(declared.replace(plain, f"src: {json.dumps(secure)}"))
        tree.run("apply", "--yes")
        until(lambda: len(messages(pair.target, "src.paid")), lambda count: count == len(log))

        def here(*arguments: str) -> Any:
            return tree.json("audit", "paid", "--no-spark", "--store", str(tmp_path / "store"), *arguments)

        until(
            lambda: here()["flows"][0], lambda found: sum(p["source_records"] for p in found["partitions"]) == len(log)
        )
        tree.run("stop", "paid")

        def there(*arguments: str) -> tuple[int, Any]:
            command = [
                "--clusters",
                tree.folder,
                "audit",
                "paid",
                "--store",
                tmp_path / "store",
                "-o",
                "json",
                *arguments,
            ]
            state = {"MM2MGR_STATE": str(tree.folder.parent / "state")}
            with submitted(url, tmp_path / "events", Path(mm2mgr.__main__.__file__), *command, **state) as process:
                out, err = process.communicate(timeout=DEADLINE_SECONDS)
            assert SECRET not in out + err
            assert "Traceback" not in err, err
            return process.returncode, json.loads(out[out.index("{") :])

        equal = here()
        code, found = there()
        assert (code, found["flows"]) == (0, equal["flows"])
        assert found["engine"] == f"on Spark ({url})"
        assert equal["verdict"] == "equal"
        write(pair.target, "src.paid", [*log[100:140], *records(random.Random(9), 7, 2)])
        differs = here()
        code, found = there()
        assert (code, found["flows"]) == (2, differs["flows"])
        counts = [part["counts"] for part in differs["flows"][0]["partitions"]]
        assert sum(sum(count.values()) for count in counts) >= 40
        text = written_below(tmp_path / "spark", tmp_path / "events")
        assert "mm2mgr.log" in text
        assert SECRET not in text


def readers(groups: Sequence[int], ports: set[int]) -> list[int]:
    """Return the executors whose Python workers have a connection to one of the brokers."""
    found = []
    for executor in chain.from_iterable(map(executors, groups)):
        with suppress(psutil.Error):
            for child in psutil.Process(executor).children(recursive=True):
                if any(entry.raddr and entry.raddr.port in ports for entry in child.net_connections("tcp")):
                    found.append(executor)
                    break
    return found


def port_of(broker: Broker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


@pytest.mark.parametrize("kills", [1, 2])
def test_executors_that_are_killed_while_they_read_change_no_answer(
    cluster: tuple[str, list[int]], tmp_path: Path, kills: int
) -> None:
    url, groups = cluster
    clusters = Clusters(*(Broker(name, tmp_path / name) for name in ("src", "tgt")))
    with serving([clusters.src, clusters.tgt]):
        chance = random.Random(kills)
        logs = [records(chance, 60_000, number) for number in range(4)]
        mirrors = [logs[0], *(with_faults(chance, log, 40).log for log in logs[1:])]
        clusters.write("killed", [*chain(*logs)], [*chain(*mirrors)], partitions=4)
        log = [record for record in records(chance, 20_000) if record.key]
        clusters.write("compacted", log, log[:-30])
        flows = clusters.flow("killed", 4), clusters.flow("compacted", 1, Expectation(Matching.LATEST))
        order = AuditOrder(flows, most_differences=10_000)
        here = run_audit(order)
        files = [tmp_path / name for name in ("script.py", "order", "report")]
        files[0].write_text(SCRIPT)
        files[1].write_bytes(pickle.dumps(order))
        ports = {port_of(clusters.src), port_of(clusters.tgt)}
        killed: list[int] = []
        ends_at = time.monotonic() + DEADLINE_SECONDS
        with submitted(url, tmp_path / "events", *files, PYTHONPATH=str(REPOSITORY)) as process:
            while len(killed) < kills and process.poll() is None:
                assert time.monotonic() < ends_at
                for executor in readers(groups, ports):
                    if executor not in killed and len(killed) < kills:
                        os.kill(executor, 9)
                        killed.append(executor)
            out, err = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0, out + err
        assert killed, "no executor was seen reading"
        there: AuditReport = pickle.loads(files[2].read_bytes())
        assert there.flows == here.flows
        assert there.verdict is Verdict.DIFFERS
        assert here.flows[0].partitions[0].verdict is Verdict.EQUAL
        assert set(chain.from_iterable(part.counts for part in here.flows[0].partitions)) == set(DifferenceKind)
        print(f"{len(killed)} executors killed, {there.seconds:.1f} s on {there.engine}, {here.seconds:.1f} s here")
