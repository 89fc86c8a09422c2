"""check as a command: exit codes, both formats, clusters that are down, and that the text folds what is alike."""

from __future__ import annotations

import json

import pytest

from mm2mgr.check.judge import Checked, CheckRow, Grant, Status
from mm2mgr.json_values import to_json
from mm2mgr.kafka.acls import Right
from mm2mgr.output.lint_text import say_check
from tests.fake_connect import FakeConnect, serving
from tests.spec.trees import write

from .command import Command

_TREE = """\
owner: tester
clusters:
  a: {{bootstrap_servers: ["127.0.0.1:{port}"]}}
  b: {{bootstrap_servers: ["localhost:{port}"]}}
connect:
  w: {{url: "{url}", kafka: b}}
flows:
  orders: {{sources: [a], targets: [b], topics: {{include: [orders]}}}}
"""


def test_dead_clusters_are_rows_and_the_workers_are_told_all_the_same(mm2mgr: Command, closed_port: int) -> None:
    with serving(FakeConnect()) as url:
        write(mm2mgr.tree, x=_TREE.format(port=closed_port, url=url))
        said = mm2mgr("check", "--timeout", "3", "-o", "json", code=1)
    found = json.loads(said.out)
    assert found["good"] is False
    assert {row["where"] for row in found["rows"] if row["status"] == "failed"} == {"a", "b"}
    whats = [row["what"] for row in found["rows"] if row["where"] == "connect w"]
    assert whats[0].startswith("workers of Kafka 4.3.1")
    assert found["seconds"] < 10
    assert found["commands"] == []


def test_text_names_what_failed_and_ends_with_counts(mm2mgr: Command, closed_port: int) -> None:
    write(mm2mgr.tree, x=_TREE.format(port=closed_port, url=f"http://127.0.0.1:{closed_port}"))
    said = mm2mgr("check", "--timeout", "2", code=1)
    assert said.lines[0].split() == ["status", "where", "principal", "client", "what"]
    assert any(line.startswith("failed") and "ask the workers" in line for line in said.lines)
    assert "3 failed" in said.out
    assert mm2mgr("check", "--timeout", "2", "--fix-only", code=1).out == ""


def test_what_the_workers_refuse_is_told_with_lints_rule(mm2mgr: Command, closed_port: int) -> None:
    with serving(FakeConnect(policy="None")) as url:
        tree = (
            _TREE.format(port=closed_port, url=url)
            .replace("kafka: b}", "kafka: c}")
            .replace("topics:", "run_on: w, topics:")
        )
        write(mm2mgr.tree, x=tree.replace("connect:", "  c: {bootstrap_servers: ['c:1']}\nconnect:"))
        found = mm2mgr("check", "--timeout", "2", "-o", "json", code=1).json
    rules = {finding["rule"] for finding in found["findings"] if finding["severity"] == "error"}
    assert "policy-forbids" in rules
    assert any("overrides: None" in row["what"] for row in found["rows"])


def test_a_flow_that_is_not_there(mm2mgr: Command, closed_port: int) -> None:
    write(mm2mgr.tree, x=_TREE.format(port=closed_port, url="http://127.0.0.1:1"))
    assert "no flow 'ordres'" in mm2mgr("check", "ordres", code=1).err


def row(topic: str, status: Status = "missing") -> CheckRow:
    right = Right("Write", "topic", topic)
    grant: Grant = ("b:1", "User:m", right)
    return CheckRow(
        status,
        "b",
        str(right),
        "User:m",
        ("record producer",),
        ("w/x",),
        (7,),
        "it fails",
        f"give {right}",
        grant=grant,
    )


def test_a_hundred_topics_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows = tuple(row(f"a.t{number:03}") for number in range(100))
    say_check(Checked(rows, ("kafka-acls.sh …",), seconds=1.26))
    out = capsys.readouterr().out
    assert "Write on topic a.t000, a.t001, a.t002 and 97 more" in out
    assert out.count("it fails") == 1
    assert "Checked in 1.3 s: 100 missing" in out


def test_no_cell_is_cut_and_no_line_is_wider_than_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    everyone = tuple(f"client {number}" for number in range(9))
    subject = f"User:CN=mirror,OU={'x' * 300}"
    failed = CheckRow(
        "failed", "b", "log in", subject, everyone, effect="no broker " + "answered " * 60, fix="check it"
    )
    say_check(Checked((failed, row("a.t"))))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"failed   b      {subject}  client 0, client 1, client 2 and 6 more  log in"
    assert lines[2] == "    no broker " + "answered " * 59 + "answered"
    assert lines[3].split() == ["missing", "b", "User:m", "record", "producer", "Write", "on", "topic", "a.t"]
    assert lines[4] == "    otherwise it fails"


def test_unknown_alone_is_good_and_gets_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    found = Checked((row("a.t", "unknown"),), unsure=("kafka-acls.sh … --topic a.t",))
    assert found.good
    say_check(found)
    out = capsys.readouterr().out
    assert "Unknown means the check could not run" in out
    assert "granting a right twice does no harm" in out
    assert json.dumps(to_json(found))
