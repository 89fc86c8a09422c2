"""The history as text: who, where and what of a change, in the widths of terminals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mm2mgr.operations.history import HistoryReport
from mm2mgr.output.history_text import history_table, say_history
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
