"""What people see at 60, 80 and 120 columns, as files; `UPDATE_SCREENS=1` writes them anew, for a person to read."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from mm2mgr.assignment import ASSIGNED_KEY
from mm2mgr.check.judge import Checked, CheckRow
from mm2mgr.cli import main
from mm2mgr.connectors import ConnectorStatus, RunningConnector, TaskConfig, TaskStatus
from mm2mgr.defaults import Origin, Text
from mm2mgr.errors import Failure
from mm2mgr.evidence.read import Changes
from mm2mgr.expand import expand
from mm2mgr.lint.findings import Finding, Hit, Rule
from mm2mgr.lint.subject import Spot, Subject
from mm2mgr.lint.unjudged import NotJudged
from mm2mgr.observe.lag import FlowLag, PartitionLag
from mm2mgr.observe.lag_report import FlowFacts
from mm2mgr.observe.reading import LiveConnector, Reading, SeenConnect
from mm2mgr.observe.trend import Points, follow_lag
from mm2mgr.operations.lint import LintReport
from mm2mgr.operations.size import ConnectReport, FleetReport, SimulationReport
from mm2mgr.operations.status import LagReport
from mm2mgr.output import console
from mm2mgr.output.lint_text import say_check, say_explained, say_findings, say_rules
from mm2mgr.output.load_text import say_comparison, say_fleet, say_groups, say_rates, say_round, say_sizings, say_week
from mm2mgr.output.plan_text import say_plan, say_topology
from mm2mgr.output.status_text import say_description, say_lag, say_status
from mm2mgr.output.tables import Table
from mm2mgr.partitions import LogHistory, Offsets, TopicPartition
from mm2mgr.plan.changes import Plan
from mm2mgr.plan.saved import flow_matrix
from mm2mgr.problems.health import ConnectorState, Description, FlowStatus, Status, TaskState
from mm2mgr.render import render
from mm2mgr.sizing.fleet import PairLayout, Placement, WorkerLimits, WorkerNeed
from mm2mgr.sizing.forecast import LimitForecast
from mm2mgr.sizing.recovery import Outlook
from mm2mgr.sizing.scenario import ConnectWorkers, outcome, with_traffic, with_workers_seen
from mm2mgr.sizing.tasks import Bounds, Prediction, Rules
from mm2mgr.spec.files import load
from mm2mgr.text import cells
from mm2mgr.throughput.hourly import GroupRate, WeekPattern
from mm2mgr.throughput.windows import PartitionRate
from mm2mgr.topology import TaskMaximum
from mm2mgr.truth.explain import Explanation
from mm2mgr.weeks import LimitPassed
from tests.plan.site import running
from tests.sizing.estates import MB, scenario
from tests.sizing.sizes import size_flow
from tests.spec.trees import ESTATE

from .test_plan_text import EAST, NORTH, WEST
from .test_status_text import COMPANIONS, FAILURES, FLOWS, LOSSES, ORPHANS, STALE, flow

SCREENS, VALUES = Path(__file__).parent / "screens", Path(__file__).parent / "values"
WIDTHS = (60, 80, 120)


def value(name: str) -> Any:
    return json.loads((VALUES / f"{name}.json").read_text(encoding="utf-8"))


def plan() -> None:
    topology = expand(load([ESTATE]))
    say_topology(flow_matrix(topology, render(topology)))
    say_plan(Plan("team", (EAST, WEST, NORTH)), explain=True)


def status() -> None:
    twins = tuple(
        flow(f"logging-dc1-to-aggregate-{side}-with-headers", "ok", lag_records=7) for side in ("east", "west")
    )
    say_status(Status(0.0, (*FLOWS, *twins), COMPANIONS, FAILURES, ORPHANS, STALE, LOSSES))


_DESCRIBED = """owner: team
clusters:
  a: {bootstrap_servers: ["dc1-broker:9092"]}
  b: {bootstrap_servers: ["agg-broker:9092"]}
connect:
  w: {url: "http://connect-agg:8083", kafka: b}
flows:
  orders: {sources: [a], targets: [b], topics: {include: [orders]}, tasks: {max: 2}}
"""


def describe() -> None:
    with TemporaryDirectory() as folder, chdir(folder):
        Path("clusters").mkdir()
        Path("clusters/x.yaml").write_text(_DESCRIBED)
        topology = expand(load([Path("clusters/x.yaml")]))
    flow, worker, name = topology.flows[0], "worker-1:8083", "mm2.a.b.source.orders"
    assigned = {task: [f"orders-{task}", f"orders-{task + 2}"] for task in (0, 1)}
    tasks = tuple(TaskStatus(task, "RUNNING", worker) for task in assigned)
    states = tuple(TaskState(task, "RUNNING", worker, 2) for task in assigned)
    configs = tuple(TaskConfig(task, {ASSIGNED_KEY: ",".join(names)}) for task, names in assigned.items())
    desired = next(connector for connector in render(topology) if connector.type == "source")
    status = ConnectorStatus(name, "RUNNING", worker, tasks=tasks)
    seen = LiveConnector(desired, RunningConnector(name, {}, (0, 1), status=status, tasks=configs))
    reading = Reading(0.0, (flow,), {"w": SeenConnect("w", {name: seen})}, {})
    parts = (
        PartitionLag(TopicPartition("orders", number), Offsets(0, 3), 2, 3, 3, task=number % 2) for number in range(4)
    )
    looked = Status(
        0.0,
        (FlowStatus("w", name, "source", "a->b", "RUNNING", "ok", states, flow=flow.id, lag_records=0),),
        tuple(
            ConnectorState("w", f"mm2.a.b.{type_}", type_, "a->b", "RUNNING", "ok")
            for type_ in ("checkpoint", "heartbeat")
        ),
    )
    say_description(Description(flow, reading, FlowLag(tuple(parts)), looked))


def lag() -> None:
    def part(position: int, number: int, task: int) -> PartitionLag:
        log, name = Offsets(0, 90_000_000), TopicPartition("app.payments.transactions", number)
        return PartitionLag(name, log, position, position, position, "target end", task, unchanged_seconds=41.0)

    points: dict[str, Points] = {}
    for look in range(8):
        drains, stuck = part(60_000_000 + 250_000 * look, 0, 0), part(80_000_000, 1, 1)
        found = FlowLag((drains, stuck), unread={TopicPartition("app.payments.refunds", 0): "no leader"})
        points = follow_lag(points, found, 30.0 * look)
    both = (drains.partition, stuck.partition)
    sampled = LogHistory((90_000, 150_000), (61_000_000, 85_000_000), 512.0)
    behind = FlowFacts(
        "payments:dc1-payments->agg-east", "east", "mm2", "RUNNING", 210.0, 60.0, found, points,
        dict.fromkeys(both, sampled), {}, {"app.payments.transactions": 900.0}, 0.84,
    )  # fmt: skip
    level = FlowFacts("logging:dc1-logging->agg-east", "east", "mm2", "RUNNING", 210.0, 60.0, FlowLag((part(90_000_000, 0, 0),)),
                      heartbeat_seconds=Failure("no heartbeats of dc1-logging on agg-east: none in topic dc1-logging.heartbeats"))  # fmt: skip
    dark = FlowFacts("orders:dc2->agg-east", "east", "mm2", "unknown", 210.0, 60.0, FlowLag(unknown="no URL answered"))
    for by in ("flow", "partition"):
        say_lag(LagReport(210.0, by, (behind, level, dark), notes=("no samples of dc1",)), 30)


def rule() -> Rule:
    """Return the rule of values/rule.json."""
    written = value("rule")

    def check(subject: Subject) -> Iterator[Hit]:
        yield from ()

    check.__doc__ = written["story"]
    return Rule(written["rule"], written["severity"], check, source=written["source"], live=written["seen"])


def lint() -> None:
    findings = (
        Finding(
            "no-effect",
            "error",
            Spot("clusters/flows.yaml", 12, key="7"),
            "`producer.batch.size` reaches no client of a source connector that Connect runs",
            "write `record_producer: {batch.size: 500000}` on the flow",
        ),
        Finding(
            "buffer-below-link",
            "warning",
            Spot("clusters/flows.yaml", 31),
            "the receive buffer of 64 kB limits each connection to 800 kB/s at a round trip of 80 ms",
            "declare the link, or set `receive.buffer.bytes` to 4194304",
            3,
        ),
        Finding("no-effect", "error", Spot("clusters/flows.yaml", 40), "too old", "-", 0, "old brokers until June"),
    )
    ids = NotJudged(
        "cluster ids",
        "whether records are written to the target",
        "--connect, or `cluster_id` of the clusters",
        ("wrong-kafka",),
        3,
        ("agg-east: no broker of agg-east-k1:9092 answered within 3 s",),
    )
    link = NotJudged("round trip", "whether fetches are too large for the link", "--rtt, or `links` of a tree", (), 12)
    say_findings(LintReport(findings, 12, ("clusters",), (), (ids, link), shows_silenced=True))
    say_rules([rule(), replace(rule(), id="buffer-below-link", severity="warning")])


def explain() -> None:
    say_explained(TypeAdapter(Explanation).validate_python(value("explain")))
    say_explained(rule())
    say_explained(value("settings")[:1])


def check() -> None:
    def missing(operation: str, topic: str, client: str, effect: str) -> CheckRow:
        what, login = f"{operation} on topic {topic}", "User:CN=mirror,OU=mirrors"
        return CheckRow("missing", "agg-east", what, login, (client,), ("east/x",), (7,), effect, f"give {operation}")

    rows = [missing("Write", f"dc1.logs.{name}", "record producer", "the task fails") for name in "abcd"]
    rows.append(missing("Create", "heartbeats", "target admin", "no heartbeats, and mm2mgr cannot see the delay"))
    rows.append(CheckRow("failed", "dc2", "log in", effect="no broker answered in 5 s", fix="check its addresses"))
    rows.append(CheckRow("unknown", "connect east", "version of the workers", how="inferred"))
    command = "kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal 'User:CN=mirror,OU=mirrors' --operation Write --topic dc1.logs.a"
    say_check(Checked(tuple(rows), (command,), seconds=1.26))


def fleet() -> None:
    """A Connect cluster as values/fleet.json has it."""
    written = value("fleet")
    (document,) = written["connect"].values()
    need, outlook = (TypeAdapter(kind).validate_python(document) for kind in (WorkerNeed, Outlook))
    note = "Connect cluster 'w': GET /connectors?expand=status: no URL answered: http://connect-w:8083: All connection attempts failed"
    layout = TypeAdapter(PairLayout).validate_python(written["pair_layout"])
    flat = LimitForecast(1.0, 4, {}, "No forecast: the load does not grow.")
    full = LimitForecast(
        1.1,
        4,
        {"tasks": LimitPassed("the limit of 64 tasks", 0.5, 1.8e9)},
        "At today's growth of 10.0 % a week, the load passes the limit of 64 tasks on 2027-01-15 (now 50 %).",
    )
    forecasts = {"logs:a->hub": full}
    connect = ConnectReport(need, document["judged_workers"], None, Placement(note=note), (), outlook, flat, forecasts)
    say_fleet(FleetReport({"w": connect}, layout, {}, "all samples"))


def simulate() -> None:
    flows = (
        scenario("logs", {"logs.web": 7 * MB}, lambda topic: True),
        scenario("logs", {"logs.web": 5_000.0}, lambda topic: True, source="b"),
        scenario("orders", {"orders": 1_000.0}, lambda topic: True),
    )
    workers = {"w": ConnectWorkers(WorkerLimits(2), count=2)}
    before, after = (with_workers_seen(outcome(now, workers), {"w": 2}) for now in (flows, with_traffic(flows, 1.5)))
    say_comparison(SimulationReport(before, after, Changes(traffic=1.5), {}))


def throughput() -> None:
    rates = [
        PartitionRate("dc1-logging", f"application.logs.of.team-{team}", n, 0, 1, 9, 3600.0, 1, 2, 1e3, 2e3, 3e6, 4e6, 1.0, 1.0, 30.4, 1.0, 100.0)
        for n, team in enumerate(("checkout", "delivery"))
    ]  # fmt: skip
    say_rates(rates, [[float(hour % 9) for hour in range(24)]] * 2, 2, {"resets": 1, "gaps": 3}, "all samples")
    groups = [GroupRate(f"logging:dc1-logging->agg-{side}", "dc1-logging", 64, 1e7, 2e7, 3e7, "2025-11-21T11", (1.0, 2.0) * 12) for side in ("east", "west")]  # fmt: skip
    say_groups(groups, 20, "flow", "the newest 24 hours")
    week = tuple(tuple(float(1e6 * (hour + day)) for hour in range(24)) for day in range(7))
    say_week(WeekPattern(week, (6, 23), (0, 5)), "4 weeks")


def sample() -> None:
    say_round(
        1, 1280, ["dc2-logging: no broker answered; 1 of 3 clusters is missing from this round, next attempt in 60 s"]
    )
    say_round(2, 1920, ["dc2-logging: recovered"])


def size() -> None:
    rates = {TopicPartition("t", number): 9_000_000.0 for number in range(3)}
    assignment = Prediction(tuple(rates), "live")
    few = size_flow("logging:dc1->agg-east", assignment, rates, Rules(bounds=Bounds(1, 2)))
    quiet = size_flow("audit:dc1->agg-east", assignment, {}, Rules())
    now = {few.flow_id: TaskMaximum(Text("5", Origin("spec", "x.yaml:1")), automatic=False)}
    tasks = now | {quiet.flow_id: TaskMaximum(Text("1", Origin("default", "x")), automatic=True)}
    flat = LimitForecast(1.0, 4, {}, "No forecast: the load does not grow.")
    say_sizings([few, quiet], tasks, {quiet.flow_id: flat})


DRAWN: dict[str, Callable[[], None]] = {
    "plan": plan,
    "status": status,
    "lag": lag,
    "describe": describe,
    "lint": lint,
    "explain": explain,
    "check": check,
    "fleet": fleet,
    "simulate": simulate,
    "size": size,
    "throughput": throughput,
    "sample": sample,
}


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The width of a terminal without colours, whatever this one is."""
    for key, text in {"COLUMNS": str(request.param), "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(key, text)
    console._console.cache_clear()
    yield request.param
    console._console.cache_clear()


def seen(draw: Callable[[], object]) -> str:
    """Return what a terminal gets, stdout and stderr together."""
    terminal = Terminal()
    with redirect_stdout(terminal), redirect_stderr(terminal):
        draw()
    return terminal.getvalue()


def hold(name: str, width: int, text: str) -> None:
    """Compare a screen with its file, and hold every line to the width."""
    assert [line for line in text.split("\n") if cells(line) > width] == []
    path = SCREENS / f"{name}-{width}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "UPDATE_SCREENS=1 writes it anew; read it then"


@pytest.mark.parametrize("name", DRAWN)
def test_a_screen_is_as_reviewed(width: int, name: str) -> None:
    hold(name, width, seen(DRAWN[name]))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """Run `mm2mgr ARGUMENTS` in this process and return what the terminal gets."""
    monkeypatch.setattr(sys, "argv", ["mm2mgr", *arguments])

    def draw() -> None:
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code

    return seen(draw)


def test_an_apply_is_as_reviewed(width: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with running(tmp_path) as site:
        site.declare()
        text = run(monkeypatch, "--clusters", str(site.folder), "apply", "--yes", "--wait", "0")
    done = [line for line in text.splitlines() if re.search(r"\(\d+\.\d s\)$", line)]  # in the order of the answers
    assert len(done) == 7
    hold("apply", width, "".join(f"{line}\n" for line in text.splitlines() if line not in done))


def test_help_is_as_reviewed(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hold("help", width, run(monkeypatch, "--help"))


def test_json_is_never_wrapped(width: int) -> None:
    long = {"topics": ", ".join(f"logs[.]{number}" for number in range(100))}
    assert seen(lambda: console.say_json(long)) == json.dumps(long, indent=2) + "\n"
    assert width < 200


def test_colours_tell_good_from_bad_and_leave_the_rest_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for key, text in {"COLUMNS": "120", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(key, text)
    console._console.cache_clear()
    text = seen(status)
    console._console.cache_clear()
    rows = {line.partition(":")[0]: line for line in text.splitlines()}
    assert "\x1b[32mok\x1b[0m" in rows["fine"]
    assert "\x1b[1;31mproblem\x1b[0m" in rows["broken"]
    assert "\x1b" not in rows["slow"], "what only waits is plain"
    assert "\x1b[33munknown\x1b[0m" in rows["dark"]


WORDS = st.text("abc ", max_size=30).map(str.strip)


@given(st.lists(st.tuples(WORDS, WORDS, st.integers(0, 10**9).map(str)), min_size=1), st.integers(45, 90))
def test_names_and_numbers_are_never_cut(rows: list[tuple[str, str, str]], width: int) -> None:
    table = Table(("name", "sentence", "count"), rows, right=("count",), wrap=("sentence",))
    lines, left_out = table.lines(width)
    text = ["".join(part for part, _ in line) for line in lines]
    assert left_out == ()
    assert all(len(line) <= width for line in text)
    letters = "".join(text).replace(" ", "")
    for name, sentence, count in rows:
        assert count in " ".join(text)
        assert name.replace(" ", "") in letters
        assert all(word in " ".join(text) for word in sentence.split(" "))


def test_columns_are_left_out_in_the_declared_order_and_named() -> None:
    table = Table(("flow", "from", "lag"), [("f" * 20, "o" * 20, "1" * 9)], right=("lag",), drop=("from", "lag"))
    assert [table.lines(width)[1] for width in (55, 40, 22)] == [(), ("from",), ("from", "lag")]
    lines, left_out = table.lines(19)  # not even the flow fits: a block, with everything in it
    text = "".join(part for line in lines for part, _ in line)
    assert [text.count(letter * 3) for letter in "fo1"] == [6, 6, 3]
    assert left_out == ()
