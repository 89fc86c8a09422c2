"""status and describe: exit codes by health, in text and JSON, with Connect or Kafka down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mm2mgr.kafka.access import KafkaAccess
from tests.fake_connect import FakeConnect, serving
from tests.spec.trees import write

from .command import Command
from .load import addresses, produce

pytestmark = pytest.mark.usefixtures("impatient")
FLOW = "orders:a->b"
SOURCE, CHECKPOINT = "mm2.a.b.source.orders", "mm2.a.b.checkpoint"
_TREE = """\
owner: tester
clusters:
  a: {{bootstrap_servers: ["{a}"]}}
  b: {{bootstrap_servers: ["{b}"]}}
connect:
  w: {{url: "{url}", kafka: b}}
flows:
  orders: {{sources: [a], targets: [b], topics: {{include: [orders]}}, tasks: {{max: 2}}}}
"""


@dataclass
class Watched:
    """One applied flow that has copied all three records of its topic."""

    mm2mgr: Command
    connect: FakeConnect
    servers: dict[str, str]

    def declare(self) -> None:
        write(self.mm2mgr.tree, x=_TREE.format(**self.servers))


@pytest.fixture
def watched(mm2mgr: Command, mock_cluster: KafkaAccess) -> Iterator[Watched]:
    connect = FakeConnect(source_topics={"orders": 4, "heartbeats": 1})
    with serving(connect) as url:
        a, b = addresses(mock_cluster)
        made = Watched(mm2mgr, connect, {"a": a, "b": b, "url": url})
        made.declare()
        for topic in ("orders", "a.orders"):
            produce(mock_cluster, topic, 3)
        mm2mgr("apply", "--yes")
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
    assert watched.mm2mgr("status", "-o", "json", code=1).json["flows"][0]["problems"] == [
        line.removeprefix(f"! {FLOW}: ")
    ]
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
    write(watched.mm2mgr.tree, x=_TREE.format(**watched.servers).replace("connect:", c).replace("[a]", "[a, c]"))
    said = watched.mm2mgr("describe", "orders", code=1)
    assert said.err == "error: 'orders' means 2 flows\nhint: name one: orders:a->b, orders:c->b\n"


def test_a_source_that_is_down_makes_the_lag_unknown(watched: Watched, closed_port: int) -> None:
    watched.servers["a"] = f"127.0.0.1:{closed_port}"
    watched.declare()
    said = watched.mm2mgr("status", code=1)
    assert "unknown" in said.lines[1]
    assert any(line.startswith(f"! kafka a: a: no broker of 127.0.0.1:{closed_port} answered") for line in said.lines)
    failures = watched.mm2mgr("status", "-o", "json", code=1).json["failures"]
    assert failures.keys() == {"kafka a"}


def test_a_connect_cluster_that_is_down_makes_everything_unknown(watched: Watched, closed_port: int) -> None:
    watched.servers["url"] = f"http://127.0.0.1:{closed_port}"
    watched.declare()
    said = watched.mm2mgr("status", code=1)
    assert said.lines[1].split() == [FLOW, "unknown", "unknown", "0", "unknown"]
    assert "! connect w: " in said.out
    assert said.out.count(f"127.0.0.1:{closed_port}") == 1  # the failure is told once
    assert watched.mm2mgr("describe", "orders", code=1).lines[0] == f"{FLOW}: unknown"


def test_what_was_never_applied_is_said(watched: Watched) -> None:
    watched.connect.connectors.clear()
    said = watched.mm2mgr("status", code=1)
    assert "not applied" in said.lines[1]
    assert "mm2mgr apply" in said.out
