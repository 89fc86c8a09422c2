"""The watchdog on real workers: a task that timed out is restarted, and it alone; one with a record that is too large is told and left.

`serve --with watch` restarts, `watch` stands by beside it and takes over once it has ended: both hold a real lease.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx import Client

from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.sandbox.runtime import Runtime
from tests.cli.command import allowed_seconds

from .command import Tree
from .conftest import WORKER
from .pair import Pair, flow, serving_pair
from .seen import Message, create, messages, statuses, task_configs, until, values, write

pytestmark = pytest.mark.live
SOURCE = "mm2.src.tgt.source.mixed"
STATUS_TOPIC = "connect-pair-status"
LIMIT = 8_000_000
# A worker must outlast the pause of its own Kafka without leaving the group, which would start all tasks again.
PATIENT = {**WORKER, "session.timeout.ms": "60000", "heartbeat.interval.ms": "20000"}
HASTY = "record_producer: {delivery.timeout.ms: 3000, request.timeout.ms: 1000, linger.ms: 0}"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path_factory.mktemp("watch"), runtime, workers=("first",), settings=PATIENT) as served:
        yield served


@contextmanager
def silent(broker: Broker) -> Iterator[None]:
    """Let a broker's process stand still: its connections stay open, and nothing answers."""
    assert broker.process
    os.kill(broker.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)


def states(pair: Pair) -> dict[int, str]:
    return {task["id"]: task["state"] for task in statuses(pair.url)[SOURCE]["tasks"]}


def task_of(pair: Pair, partition: int) -> int:
    configs = until(lambda: task_configs(pair.url, SOURCE), lambda found: len(found) == 2)
    return next(n for n, config in enumerate(configs) if f"mixed-{partition}" in config["task.assigned.partitions"])


def reports(pair: Pair) -> dict[str, int]:
    """Return how many states each task has reported so far."""
    keys = [(one.key or b"").decode() for one in messages(pair.target, STATUS_TOPIC)]
    return {key: keys.count(key) for key in keys if key.startswith("status-task-")}


def events(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == "watch_action"]


def of_task(found: list[dict[str, Any]], task: int) -> list[tuple[str, str]]:
    mine = [event for event in found if event["problem"]["subject"]["tasks"] == [task]]
    return [(event["action"], event["problem"]["cause"]) for event in mine]


def ended_in_time(running: subprocess.Popen[str]) -> bool:
    """Send SIGTERM, and tell whether the process ended well within two seconds, or as much longer as the machine is busy."""
    began = time.monotonic()
    running.send_signal(signal.SIGTERM)
    return running.wait(120) == 0 and time.monotonic() - began < allowed_seconds()


def test_what_a_restart_cures_is_restarted_and_nothing_else(pair: Pair, tree: Tree, tmp_path: Path) -> None:
    create(pair.source, ["mixed"], 2, {"max.message.bytes": str(LIMIT)})
    off = f"checkpoints: false, heartbeats: false, {HASTY}, "
    tree.write(pair.yaml("watcher", flow("mixed", "mixed", ", tasks: {max: 2}"), off))
    tree.run("apply", "--yes")
    silenced, large = task_of(pair, 0), task_of(pair, 1)
    assert {silenced, large} == {0, 1}
    write(pair.source, "mixed", [Message(1, None, b"x" * 2_000_000)], **{"message.max.bytes": LIMIT})
    until(lambda: states(pair), lambda found: found[large] == "FAILED")
    write(pair.source, "mixed", [Message(0, None, b"early")])
    until(lambda: values(pair.target, "src.mixed"), lambda found: found == [b"early"], "the producer knows its topic")
    (worker,) = pair.workers
    with silent(pair.tgt):
        write(pair.source, "mixed", [Message(0, None, b"late")])
        until(lambda: worker.log_has("Expiring 1 record(s) for src.mixed-0"), bool)
    until(lambda: states(pair), lambda found: set(found.values()) == {"FAILED"})

    dry, log = tmp_path / "dry.jsonl", tmp_path / "watch.jsonl"
    before = reports(pair)
    quick = ("--every", "1s", "--first-wait", "1s")
    with tree.start("watch", *quick, "--dry-run", "--events", str(dry)):
        until(lambda: of_task(events(dry), silenced), lambda found: len(found) > 1)
    assert of_task(events(dry), silenced) == [("wait", "time-out"), ("restart", "time-out")]
    assert of_task(events(dry), large) == [("tell", "record-size")]
    assert (set(states(pair).values()), reports(pair)) == ({"FAILED"}, before)

    night = ("--first-wait", "1s", "--events", str(log), "--reason", "night shift")
    with tree.serve("--every", "1", "--with", "watch", *night) as (serving, url):
        until(lambda: of_task(events(log), silenced), lambda found: ("recovered", "time-out") in found)
        with Client(trust_env=False) as client:
            assert f"task {silenced} FAILED (time-out): restarted (1)" in client.get(f"{url}/watchdog").text
            shown = client.get(f"{url}/metrics").text
        assert re.search(r'^mm2mgr_watchdog_restarts_total\{.*"done".*\} 1\.0$', shown, re.MULTILINE)
        assert set(values(pair.target, "src.mixed")) == {b"early", b"late"}, (
            "at least once: it may have arrived unheard"
        )
        with tree.start("watch", *quick, "-o", "json") as second:
            rounds = second.stdout
            assert rounds
            assert json.loads(rounds.readline())["standby"] == ["pair"]
            assert ended_in_time(serving)
            last = until(lambda: json.loads(rounds.readline()), lambda found: not found["standby"], "it takes over")
            assert (last["without_lease"], last["unread"]) == ({}, {})
            assert ended_in_time(second)
    assert of_task(events(log), silenced) == [(action, "time-out") for action in ("wait", "restart", "recovered")]
    assert of_task(events(log), large) == [("tell", "record-size")]
    assert states(pair) == {silenced: "RUNNING", large: "FAILED"}
    after = reports(pair)
    assert {key for key in after if after[key] != before.get(key)} == {f"status-task-{SOURCE}-{silenced}"}

    (entry,) = [one for one in tree.json("history")["entries"] if one["command"] == "watch"]
    assert (entry["connector"], entry["outcome"], entry["reason"]) == (
        SOURCE,
        "done",
        f"task {silenced}: time-out; night shift",
    )
    assert f"task {silenced}: FAILED -> restarted" in tree.run("history", "--full")
