"""status and describe: exit codes by health, in text and JSON, with Connect or Kafka down."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mm2mgr.kafka.access import KafkaAccess
from tests.fake_connect import FakeConnect, serving
from tests.spec.trees import write

from .command import Command, environment, finish, impatient_mm2mgr, until
from .load import ORDERS as FLOW
from .load import ORDERS_SOURCE as SOURCE
from .load import ORDERS_TREE, addresses, produce

pytestmark = pytest.mark.usefixtures("impatient")
CHECKPOINT = "mm2.a.b.checkpoint"


@dataclass
class Watched:
    """One applied flow that has copied all three records of its topic."""

    mm2mgr: Command
    connect: FakeConnect
    servers: dict[str, str]

    def declare(self) -> None:
        write(self.mm2mgr.tree, x=ORDERS_TREE.format(**self.servers))


@pytest.fixture
def watched(mm2mgr: Command, mock_cluster: KafkaAccess) -> Iterator[Watched]:
    connect = FakeConnect(source_topics={"orders": 4, "heartbeats": 1})
    with serving(connect) as url:
        a, b = addresses(mock_cluster)
        made = Watched(mm2mgr, connect, {"a": a, "b": b, "url": url})
        made.declare()
        mm2mgr("apply", "--yes")
        for topic in ("orders", "a.orders"):
            produce(mock_cluster, topic, 3)
        connect.add_offsets(SOURCE, "orders", {0: 2}, alias="a")
        yield made


def test_a_flow_that_has_copied_everything_is_ok(watched: Watched) -> None:
    said = watched.mm2mgr("status")
    assert said.lines[1].split() == [FLOW, "ok", "RUNNING", "2", "RUNNING", "2", "2", "0"]
    assert said.lines[-1] == "Flows: 1 ok"
    assert said.err == "reading Connect and Kafka\n"
    status = watched.mm2mgr("status", "orders", "-o", "json").json
    assert (status["health"], status["flows"][0]["lag_records"]) == ("ok", 0)


def test_a_failed_task_is_a_problem_with_its_cause(watched: Watched) -> None:
    trace = (
        "org.apache.kafka.connect.errors.ConnectException: outer\nCaused by: java.lang.IllegalStateException: boom\n"
    )
    watched.connect.connectors[SOURCE].failed_tasks[1] = trace
    said = watched.mm2mgr("status", code=1)
    assert said.lines[1].split()[1:6] == ["problem", "RUNNING", "1", "FAILED,", "1"]
    (line,) = [line for line in said.lines if line.startswith("! ")]
    assert line.startswith(f"! {FLOW}: ")
    assert "boom" in line
    found = watched.mm2mgr("status", "-o", "json", code=1).json
    assert found["flows"][0]["problems"] == [line.removeprefix(f"! {FLOW}: ")]
    subject = {"connect": found["flows"][0]["connect"], "connector": SOURCE, "flow": FLOW, "tasks": [1]}
    (value,) = found["problem_values"]
    assert found["flows"][0]["problem_values"] == [value]
    assert (value["kind"], value["subject"], value["cause"], value["retryable"]) == (
        "task-failed",
        subject,
        "bug",
        False,
    )
    assert value["evidence"]["exception"] == "java.lang.IllegalStateException"
    assert f"    {trace.splitlines()[1]}" in watched.mm2mgr("describe", "orders", code=1).lines


def test_describe_tells_one_flow_down_to_its_partitions(watched: Watched) -> None:
    said = watched.mm2mgr("describe", FLOW)
    assert said.lines[0] == f"{FLOW}: ok"
    assert ["orders-0", "0", "0"] in [line.split() for line in said.lines]
    assert ["orders", "a.orders", "4"] in [line.split() for line in said.lines]
    described = watched.mm2mgr("describe", "orders", "-o", "json").json
    assert (described["flow"], described["status"]["connector"]) == (FLOW, SOURCE)
    assert {row["partition"] for row in described["lag"] if row["topic"] == "orders"} == {0, 1, 2, 3}


def test_describe_wants_one_flow(watched: Watched) -> None:
    c = "  c: {bootstrap_servers: ['c:1']}\nconnect:"
    write(watched.mm2mgr.tree, x=ORDERS_TREE.format(**watched.servers).replace("connect:", c).replace("[a]", "[a, c]"))
    said = watched.mm2mgr("describe", "orders", code=1)
    assert said.err == "error: 'orders' means 2 flows\nhint: name one: orders:a->b, orders:c->b\n"


def test_a_source_that_is_down_makes_the_lag_unknown(watched: Watched, closed_port: int) -> None:
    watched.servers["a"] = f"127.0.0.1:{closed_port}"
    watched.declare()
    said = watched.mm2mgr("status", code=1)
    assert "unknown" in said.lines[1]
    assert any(line.startswith(f"! kafka a: no broker of 127.0.0.1:{closed_port} answered") for line in said.lines)
    failures = watched.mm2mgr("status", "-o", "json", code=1).json["failures"]
    assert failures.keys() == {"kafka a"}


def test_a_connect_cluster_that_is_down_makes_everything_unknown(watched: Watched, closed_port: int) -> None:
    watched.servers["url"] = f"http://127.0.0.1:{closed_port}"
    watched.declare()
    said = watched.mm2mgr("status", code=1)
    assert said.lines[1].split() == [FLOW, "unknown", "unknown", "unknown", "unknown"]
    assert "! connect w: " in said.out
    assert said.out.count(f"127.0.0.1:{closed_port}") == 1  # the failure is told once
    assert watched.mm2mgr("describe", "orders", code=1).lines[0] == f"{FLOW}: unknown"


def test_what_was_never_applied_is_said(watched: Watched) -> None:
    watched.connect.connectors.clear()
    said = watched.mm2mgr("status", code=1)
    assert "not applied" in said.lines[1]
    assert "mm2mgr apply" in said.out


def lost(watched: Watched) -> str:
    """Let the stored offset lie past the end of the log, look, and return the id of the loss."""
    watched.connect.add_offsets(SOURCE, "orders", {0: 99}, alias="a")
    (loss,) = watched.mm2mgr("status", "-o", "json", code=1).json["losses"]
    watched.connect.add_offsets(SOURCE, "orders", {0: 2}, alias="a")
    return str(loss["id"])


def test_a_loss_is_shown_at_each_look_until_it_is_acknowledged(watched: Watched) -> None:
    loss = lost(watched)
    for _ in range(2):
        said = watched.mm2mgr("status", code=1)
        sentence = "up to 100 records of topic orders may never arrive, first seen just now: the stored offset is not in the log"
        assert said.out.count(f"! {FLOW}: {sentence}") == 1
        assert said.lines[-1] == "Flows: 1 problem; 1 loss"
    assert f"mm2mgr losses --ack {loss}" in watched.mm2mgr("describe", "orders", code=1).out
    wrong = watched.mm2mgr("losses", "--ack", "0000000", code=1)
    assert wrong.err == f"error: no open loss 0000000\nhint: losses here: {loss}\n"
    done = watched.mm2mgr("losses", "--ack", loss)
    assert done.err.startswith(f"acknowledged {loss}: {FLOW}: orders-0, offsets 0 to 99 (past-end)\n")
    assert watched.mm2mgr("status").lines[-1] == "Flows: 1 ok"


def test_all_losses_are_acknowledged_at_once(watched: Watched) -> None:
    lost(watched)
    watched.mm2mgr("losses", "--ack", "all")
    assert watched.mm2mgr("status", "-o", "json").json["losses"] == []


def test_losses_outlive_a_damaged_memory(watched: Watched) -> None:
    loss = lost(watched)
    state = watched.mm2mgr.folder.parent / "state" / "tester.json"
    state.write_text("half a fi")
    said = watched.mm2mgr("status", code=1)
    assert f"mm2mgr losses --ack {loss}" in said.out
    assert f"warning: {state} was damaged: what earlier looks left is no longer known" in said.err
    assert "warning" not in said.out
    assert [path.read_text() for path in state.parent.glob("tester.json.damaged-*")] == ["half a fi"]


@pytest.mark.real_time
def test_an_orphan_is_a_line_of_its_own(watched: Watched) -> None:
    write(watched.mm2mgr.tree, x=ORDERS_TREE.format(**watched.servers).replace("  orders:", "  renamed:"))
    config = dict(watched.connect.connectors[SOURCE].config)
    watched.mm2mgr("apply", "--yes", "--allow", "mirror-again", "--prune", "--wait", "0")  # the fake mirrors nothing
    watched.connect.add(SOURCE, config)
    watched.connect.add_offsets("mm2.a.b.source.renamed", "orders", {0: 2}, alias="a")
    said = watched.mm2mgr("status", code=1)
    assert f"! w/{SOURCE}: not declared in the tree, and RUNNING: it still mirrors {config['topics']} a->b" in said.out
    assert f"connector w/{SOURCE} (" in said.out
    assert "from a to b too: records arrive twice" in said.out
    assert said.lines[-1] == "Flows: 1 problem; 1 orphan"


def watching(watched: Watched, seconds: str, *more: str) -> subprocess.Popen[str]:
    """Start `mm2mgr status --watch` as a process of its own, as impatient with mock brokers as this one."""
    folder, pipe = watched.mm2mgr.folder, subprocess.PIPE
    command = [*impatient_mm2mgr(), "status", "--watch", seconds, *more]
    return subprocess.Popen(command, cwd=folder, env=environment(folder.parent), stdout=pipe, stderr=pipe, text=True)


def test_watch_goes_on_until_it_is_interrupted(watched: Watched) -> None:
    running = watching(watched, "0.2", "-o", "json")
    try:
        assert running.stdout
        found = [json.loads(running.stdout.readline()) for _ in range(3)]
        assert [one["health"] for one in found] == ["ok", "ok", "ok"]
        assert found[0]["taken_at"] < found[1]["taken_at"] < found[2]["taken_at"]
        watched.connect.connectors[SOURCE].failed_tasks[0] = "boom"
        until(lambda: json.loads(running.stdout.readline())["health"] == "problem", "the failed task is seen")
        running.send_signal(signal.SIGINT)
    finally:
        said = finish(running)
    assert said.code == 1, "the code of the last look"
    without_ids = (
        "warning: kafka a: no broker gave the ids of topics in time, so this look finds no loss; the next one does"
    )
    assert set(said.err.splitlines()) == {"reading Connect and Kafka", without_ids}, "mock brokers never give ids"


def test_watch_as_text_has_a_line_with_the_time_before_each_look(watched: Watched) -> None:
    running = watching(watched, "0.2")
    try:
        assert running.stdout
        lines = [running.stdout.readline() for _ in range(8)]
        running.send_signal(signal.SIGINT)
    finally:
        said = finish(running)
    assert said.code == 0
    times = [line for line in lines if line.startswith("--- 20")]
    assert len(times) >= 2
    assert lines[0] == times[0]


def test_watch_that_is_interrupted_before_its_first_look_says_so(watched: Watched) -> None:
    watched.connect.delay_next("GET", "/connectors", seconds=30)
    watched.connect.requests.clear()
    running = watching(watched, "1")
    try:
        until(lambda: any(r.path == "/connectors" for r in watched.connect.requests), "it reads")
        running.send_signal(signal.SIGINT)
    finally:
        said = finish(running)
    assert (said.code, said.out) == (130, "")


def test_a_connector_that_somebody_deleted_is_a_danger_and_one_never_applied_is_none(watched: Watched) -> None:
    connector = watched.connect.connectors.pop(SOURCE)
    assert problem_kinds(watched, code=1) == ["not-applied"]
    watched.connect.connectors[SOURCE] = connector
    assert problem_kinds(watched) == []
    watched.connect.connectors.pop(SOURCE)
    assert problem_kinds(watched, code=1) == ["connector-gone"]
    said = watched.mm2mgr("status", code=1)
    assert "not applied" in said.lines[1]
    gone = "gone from Connect cluster 'w', where it had mirrored: nothing of it arrives any more; run mm2mgr plan"
    assert gone in " ".join(said.out.split())


def problem_kinds(watched: Watched, code: int = 0) -> list[str]:
    (flow,) = watched.mm2mgr("status", "-o", "json", code=code).json["flows"]
    return [problem["kind"] for problem in flow["problem_values"]]


def test_a_topic_with_another_name_on_the_target_has_lost_nothing(watched: Watched, mock_cluster: KafkaAccess) -> None:
    """The new topic ends before the old one, whose records are still there."""
    watched.mm2mgr("status")
    produce(mock_cluster, "a_orders", 1)
    path = watched.mm2mgr.tree / "x.yaml"
    tree = path.read_text(encoding="utf-8")
    path.write_text(tree.replace("{sources: [a]", "{separator: _, sources: [a]"), encoding="utf-8")
    for _ in range(2):
        said = watched.mm2mgr("status", "-o", "json", code=1).json
        assert said["losses"] == []
