"""Status, description, rates and sizings as text: problems and failures are shown, each once, and nothing is markup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.defaults import Origin, Text
from mm2mgr.errors import Failure
from mm2mgr.json_values import to_json
from mm2mgr.observe.lag_report import Amount, LagRow
from mm2mgr.observe.losses import LossEntry
from mm2mgr.observe.trend import RecordRate, TimeForecast, Trend
from mm2mgr.output import console
from mm2mgr.output.load_text import say_rates, say_sizings
from mm2mgr.output.status_text import lag_table, say_look, say_status
from mm2mgr.partitions import TopicPartition
from mm2mgr.problems import KINDS
from mm2mgr.problems.connectors import ConnectorFailed, Orphan, TaskFailed
from mm2mgr.problems.health import ConnectorState, FlowStatus, Status, TaskState
from mm2mgr.problems.kind import LiveProblem, ProblemSubject
from mm2mgr.problems.loss import OffsetsNotStored
from mm2mgr.sizing.tasks import Bounds, Prediction, Rules
from mm2mgr.throughput.windows import PartitionRate
from mm2mgr.topology import TaskMaximum
from tests.observe.examples import example, example_problem
from tests.sizing.sizes import size_flow
from tools.docs import evidence_of

GOLDEN = Path(__file__).parent / "golden"
Printed = Callable[[], list[str]]


def flow(name: str, health: str, state: str = "RUNNING", **more: object) -> FlowStatus:
    return FlowStatus("east", f"mm2.a.b.source.{name}", "source", "a->b", state, health, flow=f"{name}:a->b", **more)  # type: ignore[arg-type]


def failure(kind: str, flow: str, summary: str, tasks: tuple[int, ...] = ()) -> LiveProblem:
    subject = ProblemSubject(
        "east", f"mm2.a.b.{f'source.{flow}' if flow else 'checkpoint'}", flow and f"{flow}:a->b", tasks
    )
    bug = ("bug", "")
    evidence = TaskFailed(summary, bug) if kind == "task-failed" else ConnectorFailed(summary, bug, tasks_run=False)
    return LiveProblem(evidence, subject)


def loss_entry(flow: str, cause: str, first: int, last: int | None, **more: Any) -> LossEntry:
    size = None if last is None else last - first + 1
    known = {
        "partition": TopicPartition("orders", 0),
        "topic_id": "id",
        "evidence": "log-start",
        "since": None,
        "seen": 0.0,
    }
    values = {**known, "records": size, "least_records": 0, **more}
    return LossEntry(f"id{first}", flow, "a", cause=cause, first_offset=first, last_offset=last, **values)


RUNNING = tuple(TaskState(number, "RUNNING", "w:1", count) for number, count in enumerate((5, 4, None)))
FLOWS = (
    flow("fine", "ok", tasks=RUNNING, lag_records=0),
    flow(
        "broken",
        "problem",
        tasks=(TaskState(0, "FAILED", "w:1", 2), TaskState(1, "RUNNING", "w:1", 1)),
        problems=(failure("task-failed", "broken", "IllegalStateException: [boom]", (0,)),),
        notes=("2 partitions have no task: new partitions are detected every 10 min",),
        lag_records=41,
        offsets_note="workers store offsets every offset.flush.interval.ms",
    ),
    flow("new", "waiting", "not applied", problems=(), lag_records=None),
    flow("slow", "waiting", lag_records=9, offsets_note="workers store offsets every offset.flush.interval.ms"),
    flow("dark", "unknown", "unknown", notes=("Connect cluster 'west': no URL answered",)),
)
COMPANIONS = (
    ConnectorState("east", "mm2.a.b.heartbeat", "heartbeat", "a->b", "RUNNING", "ok"),
    ConnectorState("east", "mm2.c.b.heartbeat", "heartbeat", "c->b", "RUNNING", "ok"),
    ConnectorState(
        *("east", "mm2.a.b.checkpoint", "checkpoint", "a->b", "FAILED", "problem"),
        problems=(failure("connector-failed", "", "boom"),),
    ),
)
ORPHANS = (
    Orphan("east", "mm2.a.b.source.old", "source", "a->b", "orders", "RUNNING"),
    Orphan("east", "mm2.a.b.source.older", "source", "a->b", "orders", "STOPPED"),
)
STALE = (
    OffsetsNotStored("east", ("fine:a->b", "slow:a->b"), 90.0, 1200, ("dc2",)),
    OffsetsNotStored("west", ("dark:a->b", "new:a->b"), 80.0, 7, ()),
)
LOSSES = (
    loss_entry("fine:a->b", "retention", 10, 19),
    loss_entry("gone:a->b", "past-end", 0, 9),
)
FAILURES = {
    "connect west": Failure("Connect cluster 'west': no URL answered", "check its `url`"),
    "kafka a": Failure("a: no broker answered"),
}


def golden(name: str) -> list[str]:
    return (GOLDEN / name).read_text(encoding="utf-8").splitlines()


def test_a_status_shows_every_problem_and_failure_once(printed: Printed) -> None:
    status = Status(0.0, FLOWS, COMPANIONS, FAILURES, ORPHANS, STALE, LOSSES)
    say_status(status)
    lines = printed()
    assert lines == golden("status.txt")
    say_status(status, notes=True)
    notes = [line for line in printed() if line not in lines]
    assert notes == golden("status_notes.txt")
    text = "\n".join((*lines, *notes))
    beside = (
        "1 loss to acknowledge: mm2mgr losses 'gone:a->b'",
        *(one.message.partition(": ")[2] for one in FAILURES.values()),
    )
    found = to_json(status)
    problems = [*found["flows"][1]["problems"], *found["companions"][2]["problems"]]
    details = [one["detail"] for one in (*found["orphans"], *found["stale_offsets"])]
    for said in (*problems, *details, *beside):
        assert text.count(said) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_problem_has_its_sentence_and_its_page(kind: str) -> None:
    evidence, problem = example(kind), example_problem(kind)
    assert len(problem.sentence) > 40
    assert evidence.meaning().endswith(".")
    assert all(evidence_of(KINDS[kind]).values()), "each field has a text below it"
    assert to_json(problem)["evidence"].keys() == evidence_of(KINDS[kind]).keys()


@pytest.mark.parametrize("health", ["ok", "waiting", "problem", "unknown"])
def test_the_last_line_counts_flows_by_health(printed: Printed, health: str) -> None:
    say_status(Status(0.0, (flow("x", health), flow("y", health))))
    assert printed()[-1] == f"Flows: 2 {health}"


def test_no_flows_is_said(printed: Printed) -> None:
    say_status(Status(0.0, ()))
    assert printed()[-1] == "Flows: none"


def test_a_rate_that_is_not_known_is_a_dash_and_not_zero(printed: Printed) -> None:
    known = PartitionRate("a", "t", 0, 0, 1, 9, 3600.0, 1, 2, 1e3, 2e3, 3e6, 4e6, 1.0, 1.0, 30.4, 1.0, 100.0)
    unknown = PartitionRate("a", "t", 1, 0, 1, 1, 0.0, 0, 1, None, None, None, None, None, None, None, None, None)
    say_rates([known, unknown], [[1.0, 2.0], []], 2, {"resets": 1, "gaps": 3}, "all samples")
    _, first, second, last = printed()
    assert first.split()[:13] == ["a", "t-0", "1", "kB/s", "2", "kB/s", "3", "MB/s", "4", "MB/s", "30", "60", "min"]
    assert second.split() == ["a", "t-1", "-", "-", "-", "-", "-", "0", "s"]
    assert last == "2 partitions, all samples; 1 resets and 3 gaps left out of the rates"


def test_a_sizing_shows_what_the_tree_has_now_and_every_reason(printed: Printed) -> None:
    rates = {TopicPartition("t", number): 9_000_000.0 for number in range(3)}
    sizing = size_flow("f:a->b", Prediction(tuple(rates), "live"), rates, Rules(bounds=Bounds(1, 2)))
    say_sizings([sizing], {"f:a->b": TaskMaximum(Text("5", Origin("spec", "x.yaml:1")), automatic=False)}, {})
    _, row, title, *reasons = printed()
    assert row.split(maxsplit=5) == ["f:a->b", "27", "MB/s", "2", "5", "set by hand, kept"]
    assert title == "f:a->b"
    assert reasons == [f"  {reason}" for reason in sizing.reasons]
    assert len(reasons) > 2


def test_flows_whose_lag_grows_are_said_those_most_behind_first(
    printed: Printed,
) -> None:
    def moving(name: str, lag: int, direction: str) -> FlowStatus:
        return flow(name, "ok", lag_records=lag, trend=Trend(direction, 1260.0, 400))  # type: ignore[arg-type]

    flows = [moving(f"f{number}", number, "growing") for number in range(1, 8)]
    flows += [moving("still", 900, "steady"), moving("level", 0, "shrinking"), moving("down", 5000, "shrinking")]
    say_status(Status(0.0, tuple(flows)))
    said = [line.strip() for line in printed()][len(flows) + 1 :]
    assert said[:-1] == [
        *(f"f{number}:a->b: lag growing for 21 min" for number in (7, 6, 5, 4, 3)),
        "the lag of 2 flows more grows: mm2mgr lag",
    ]
    say_status(Status(0.0, tuple(flows)), notes=True)
    noted = [line.strip() for line in printed()]
    assert "down:a->b: lag shrinking for 21 min" in noted
    assert not [line for line in noted if line.startswith(("still:a->b: lag", "level:a->b: lag"))]


def test_a_healthy_estate_is_its_table_and_one_line(printed: Printed) -> None:
    """What a lag is counted from, and how many companions are well, are notes."""
    flows = [
        flow("fine", "ok", tasks=RUNNING, lag_records=7, lag_age_seconds=age, offsets_note="workers store offsets")
        for age in (5.0, 90.0, None)
    ]
    status = Status(0.0, tuple(flows), COMPANIONS[:2])
    say_status(status)
    lines = printed()
    assert len(lines) == 1 + len(flows) + 1
    assert lines[-1] == "Flows: 3 ok; lags may be up to 90 s old"
    say_status(status, notes=True)
    assert printed()[4:-1] == [
        "  2 heartbeat connectors ok",
        "  3 flows (fine:a->b, fine:a->b, fine:a->b): workers store offsets",
    ]


def lag_row(records: float, trend: Trend | None = None, level: TimeForecast | None = None, **more: Any) -> LagRow:
    amount = Amount(records)
    return LagRow(
        "f:a->b",
        None,
        None,
        None,
        1,
        amount,
        Amount(None),
        Amount(None),
        "target end",
        None,
        trend,
        level,
        None,
        **more,
    )


GROWING = Trend("growing", 300.0, 400, RecordRate(900.0), RecordRate(1000.0), RecordRate(100.0))


@pytest.mark.parametrize(
    ("row", "level"),
    [
        (lag_row(5000, GROWING), "not at present rates"),
        (lag_row(999, GROWING), "level"),
        (lag_row(5000), "unknown"),
        (lag_row(5000, None, TimeForecast(90.0, 90.0, 90.0)), "90 s"),
        (lag_row(5000, None, TimeForecast(1.2e7, 9e6, None)), "not within 7 d"),
        (lag_row(5000, None, TimeForecast(3600.0, 1800.0, 1.2e7)), "60 min (30 min to over 7 d)"),
        (lag_row(5000, GROWING, moves=False), "-"),
        (lag_row(5000, None, TimeForecast(90.0, 90.0, 90.0), moves=False), "-"),
        (lag_row(0), "level"),
        (replace(lag_row(0), records=Amount(0, at_least=True)), "unknown"),
    ],
    ids=[
        "grows",
        "below a second",
        "one look",
        "shrinks",
        "a season",
        "an open end",
        "rests",
        "rests, as forecast",
        "level",
        "not all is read",
    ],
)
def test_when_a_flow_is_level(row: LagRow, level: str) -> None:
    table = lag_table([row], "flow")
    assert table.rows[0][list(table.columns).index("level in")] == level


def test_a_narrow_terminal_shows_lag_in_rows() -> None:
    row = lag_row(38_250_000, GROWING)
    lines, left_out = lag_table([replace(row, flow="payments:dc1-payments->agg-east")], "flow").lines(80)
    assert len(lines) == 2, "header and row"
    assert left_out == ("counted from", "stored offset", "lag (bytes)", "retention in", "trend")[: len(left_out)]


def test_a_watched_look_takes_the_place_of_the_one_before_on_a_terminal(
    printed: Printed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = Status(0.0, (flow("x", "ok"),))
    say_look("text", status, say_status, watching=True)
    assert "\x1b" not in capsys.readouterr().out, "a pipe gets one after the other"
    monkeypatch.setattr(console._OUT, "isatty", lambda: True)
    say_look("text", status, say_status, watching=True)
    assert capsys.readouterr().out.startswith("\x1b[H\x1b[2J")
    say_look("json", status, say_status, watching=True)
    assert "\x1b" not in capsys.readouterr().out
