"""The history as text: who, where and what of a change, in the widths of terminals."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mm2mgr.apply.applied import Applied
from mm2mgr.apply.waves import Result
from mm2mgr.operations.history import HistoryReport
from mm2mgr.operations.plan import ReconcileRound
from mm2mgr.output.console import STYLES, log_lines
from mm2mgr.output.history_text import history_table, say_history, say_round
from mm2mgr.plan.changes import Plan
from mm2mgr.plan.history import HistoryEntry

Printed = Callable[[], list[str]]


def entry(command: str = "apply", **more: Any) -> HistoryEntry:
    base = {"user": "deploy", "host": "ops-1.example", "action": "update", "outcome": "done", "reason": "ticket 4711"}
    when = "2026-11-20T09:12:44.000+00:00"
    values: dict[str, Any] = {**base, **more}
    return HistoryEntry("1-0", when, "ann", "3f2a9c1d8e70", command, "t", "main", "mm2.dc1.agg.source.orders", **values)


def shown(width: int, *entries: HistoryEntry) -> list[str]:
    lines, _ = history_table(entries).lines(width)
    return ["".join(text for text, _ in line) for line in lines]


def test_the_host_and_the_user_are_a_column_where_there_is_room() -> None:
    header, row = shown(180, entry())
    assert "run as" in header
    assert "deploy@ops-1.example" in row
    for width in (120, 80, 60):
        narrow = shown(width, entry())
        assert max(map(len, narrow)) <= width
        assert any("ann" in line for line in narrow)


def test_full_says_below_each_change_where_it_ran_and_not_twice(printed: Printed) -> None:
    say_history(HistoryReport((entry(), entry(user="", host=""))), full=True)
    lines = printed()
    assert sum("deploy@ops-1.example" in line for line in lines) == 1
    assert lines[2].strip() == "run as deploy@ops-1.example"
    assert "run as" not in lines[0]


@pytest.mark.parametrize(
    ("keys", "state", "text"),
    [
        ([("task 2", "FAILED"), ("task 0", "FAILED")], None, "restart of task 2, 0"),
        ([("connector", "FAILED")], ("FAILED", "RUNNING"), "restart of connector FAILED -> RUNNING"),
        ([("connector", "RUNNING"), ("task 0", "RUNNING")], ("RUNNING", "RUNNING"), "restart of connector and task 0"),
        (
            [(f"task {number}", "FAILED") for number in range(40)],
            None,
            "restart of task 0, 1, 2, 3, 4, 5 and 34 more",
        ),
    ],
)
def test_a_restart_names_its_tasks(keys: list[tuple[str, str]], state: tuple[str, str] | None, text: str) -> None:
    changed = tuple({"key": key, "before": before, "after": "restarted"} for key, before in keys)
    states = state and {"before": state[0], "after": state[1]}
    row = history_table([entry("watch", keys=changed, state=states)]).rows[0]
    assert text in row


# --- lines of parts ---------------------------------------------------------------------------------------------------


def test_a_line_of_a_part_has_the_time_in_utc_the_part_and_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines("result")("watch", "all Connect clusters are watched again", None, 1_700_000_000.0)
    log_lines()("sample", "dc1\nrecovered", "yellow", 1_700_000_000.9)
    log_lines("json")("reconcile", "round 4: failed", STYLES["failed"], 1_700_000_000.0)
    out, err = capsys.readouterr()
    text, document = out.splitlines()
    assert text == "2023-11-14T22:13:20Z watch: all Connect clusters are watched again"
    assert err == "2023-11-14T22:13:20Z sample: dc1\\nrecovered\n"
    entry = {"time": "2023-11-14T22:13:20Z", "part": "reconcile", "level": "error", "text": "round 4: failed"}
    assert json.loads(document) == entry


def test_a_round_prints_what_is_new_and_no_failed_write_that_was_printed_as_it_came(printed: Printed) -> None:
    """A cluster that stays away is one line, however often its seconds of rest change."""
    log, known = log_lines("result"), ""
    said: list[list[str]] = []
    lost = {"east": "no broker answered"}
    done = Result("main", "orders", "create", error="HTTP 500")
    written = ReconcileRound(4, applied=Applied(Plan("t", ()), (done,)))
    for ended in (
        ReconcileRound(1, without_lease=lost),
        ReconcileRound(2, without_lease=lost),
        ReconcileRound(3, without_lease=lost, standby=("west",)),
        written,
    ):
        known = say_round(ended, known, log)
        said.append([line.partition("Z reconcile: ")[2] for line in printed()])
    assert said[0] == ["round 1: failed", "Connect cluster east: no broker answered"]
    assert said[1] == []
    assert said[2] == ["round 3: failed; another process holds the lease for west"]
    assert said[3] == ["round 4: failed"]
    assert written.reasons == ("main/orders: HTTP 500",)
