"""The measured capacity of a task: what counts as history of a flow, what outranks it, and where it is told."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.evidence.measured import settings_mark, task_measurements
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.operations.workspace import Workspace
from mm2mgr.samples.store import TaskRow, TaskStore
from mm2mgr.sizing.capacity import find_saturation

from .command import Command
from .load import addresses, declare, measured, produce

pytestmark = pytest.mark.usefixtures("impatient")
LOGS, ORDERS = "mm2.a.hub.source.logs", "mm2.a.hub.source.orders"
RESULT, DRY = ("--store", "result"), ("--dry-run", "-o", "json")
MINUTE_MS, DAY_MS = 60_000, 86_400_000
DEFAULT = "7 MB/s usable per task (10 MB/s × 70 %)"


@pytest.fixture
def ready(mm2mgr: Command, mock_cluster: KafkaAccess) -> Command:
    """A flow of 28 MB/s over four even partitions."""
    declare(mm2mgr.tree, *addresses(mock_cluster))
    for topic in ("logs.web", "orders"):
        produce(mock_cluster, topic)
    measured(mm2mgr.folder / "result", {("a", "logs.web", number): 7_000_000.0 for number in range(4)})
    return mm2mgr


def history(
    tree: Path, rate: float, connector: str = LOGS, *, age_days: float = 0.125, minutes: int = 40
) -> list[TaskRow]:
    """Return 40 minutes of a task that lagged at a rate, ended so long ago, under the settings of the tree."""
    config = next(each.config for each in Workspace((tree,)).connectors if each.name == connector)
    ended = time.time_ns() // 1_000_000 - round(age_days * DAY_MS)
    names = ("w", connector, "a", "hub", settings_mark(config), 0)
    return [
        TaskRow(*names, ended - (minutes - minute) * MINUTE_MS, MINUTE_MS if minute else 0, rate, 9, MINUTE_MS)
        for minute in range(minutes + 1)
    ]


def store(mm2mgr: Command, rows: list[TaskRow]) -> None:
    TaskStore(mm2mgr.folder / "result", lambda _: None).append(rows)


def reasons(mm2mgr: Command, flow: str = "logs:a->hub") -> tuple[int, str]:
    """Return the tasks of a flow and its first reason."""
    (sizing,) = mm2mgr("size", flow, *RESULT, *DRY).json["sizings"]
    return sizing["tasks"], sizing["reasons"][0]


def test_without_history_the_default_counts(ready: Command) -> None:
    assert reasons(ready) == (4, f"28 MB/s over 4 partitions, divided by {DEFAULT}, needs 4 tasks.")


@pytest.mark.parametrize(
    ("rate", "usable", "tasks"),
    [(41e6, "28 MB/s usable per task (40 MB/s", 1), (20.5e6, "14 MB/s usable per task (20 MB/s", 2)],
)
def test_what_was_measured_counts_above_the_default_and_tells_its_age(
    ready: Command, rate: float, usable: str, tasks: int
) -> None:
    store(ready, history(ready.tree, rate))
    found, why = reasons(ready)
    assert found == tasks
    assert usable in why
    assert "(3 h ago) on tasks that lagged for 40 min and carried this or more for three quarters of that time)" in why


def test_what_was_measured_below_the_default_counts_after_an_hour_of_lag(ready: Command) -> None:
    measured(ready.folder / "result", {("a", "logs.web", number): 1_000_000.0 for number in range(4)})
    store(ready, history(ready.tree, 4.1e6))
    tasks, why = reasons(ready)
    assert tasks == 1
    assert "(10 MB/s × 70 %; 4 MB/s measured " in why
    assert (
        "(3 h ago) on tasks that lagged for 40 min and carried this or more for three quarters of that time, observed for less than an hour"
        in why
    )
    store(ready, history(ready.tree, 4.1e6, age_days=1, minutes=21))
    assert reasons(ready)[0] == 2
    said = ready("size", "logs:a->hub", *RESULT, "--dry-run")
    assert "2.74 MB/s usable per task (3.91 MB/s × 70 %; measured " in " ".join(said.lines)


def test_history_of_thirty_days_outranks_an_older_one_and_a_year_is_too_old(ready: Command) -> None:
    store(ready, history(ready.tree, 41e6, age_days=400))
    assert DEFAULT in reasons(ready)[1]
    store(ready, history(ready.tree, 41e6, age_days=31))
    assert "(31 days ago) on" in reasons(ready)[1]
    store(ready, history(ready.tree, 20.5e6, age_days=29))
    assert "14 MB/s usable" in reasons(ready)[1]
    assert "(29 days ago) on" in reasons(ready)[1]


def test_history_under_other_settings_or_on_other_workers_does_not_count(ready: Command) -> None:
    rows = history(ready.tree, 41e6)
    store(ready, [replace(row, settings="other") for row in rows])
    store(ready, [replace(row, connect="elsewhere") for row in rows])
    store(ready, [replace(row, target="elsewhere") for row in rows])
    assert DEFAULT in reasons(ready)[1]
    tree = ready.tree / "x.yaml"
    store(ready, rows)
    assert "measured" in reasons(ready)[1]
    tree.write_text(tree.read_text().replace("limit: 8}", "limit: 8}, source_consumer: {max.poll.records: 9}"))
    assert DEFAULT in reasons(ready)[1]


def test_another_connector_of_the_pair_counts_where_the_own_one_has_none(ready: Command) -> None:
    store(ready, history(ready.tree, 82e6, connector=ORDERS))
    tasks, why = reasons(ready)
    assert tasks == 1
    assert f"(3 h ago) on tasks of {ORDERS} that lagged for 40 min and" in why
    assert DEFAULT in reasons(ready, "logs:b->hub")[1]
    store(ready, history(ready.tree, 20.5e6))
    assert (
        "(3 h ago) on tasks that lagged for 40 min and carried this or more for three quarters of that time)"
        in reasons(ready)[1]
    )


def test_a_capacity_written_by_hand_stays_and_is_judged(ready: Command) -> None:
    tree = ready.tree / "x.yaml"
    tree.write_text(tree.read_text().replace("limit: 8}", "limit: 8, capacity: 20MB/s}"))
    assert "14 MB/s usable per task (20 MB/s × 70 %)," in reasons(ready)[1]
    store(ready, history(ready.tree, 41e6))
    why = reasons(ready)[1]
    assert "14 MB/s usable per task (20 MB/s × 70 %; set by hand; 40 MB/s measured " in why


def test_what_was_measured_outranks_the_link(ready: Command) -> None:
    tree = ready.tree / "x.yaml"
    tree.write_text(tree.read_text() + "links:\n  - {between: [a, hub], rtt: 200ms}\n")
    assert "by the link: 200 ms" in reasons(ready)[1]
    store(ready, history(ready.tree, 41e6))
    assert "(40 MB/s × 70 %; measured" in reasons(ready)[1]


@pytest.mark.parametrize("fetch", ["null", '"${env:FETCH}"'])
def test_a_link_counts_with_kafkas_own_fetches_where_the_tree_says_none(ready: Command, fetch: str) -> None:
    tree = ready.tree / "x.yaml"
    text = tree.read_text().replace("limit: 8}", f"limit: 8}}, source_consumer: {{fetch.max.bytes: {fetch}}}")
    tree.write_text(text + "links:\n  - {between: [a, hub], rtt: 200ms}\n")
    assert "by the link: 200 ms" in reasons(ready)[1]


def test_fleet_simulate_and_the_page_take_it_too(ready: Command) -> None:
    before = ready("fleet", *RESULT, "-o", "json").json
    changed = ("simulate", "--traffic", "1.5", *RESULT, "-o", "json")
    rows_before = ready(*changed).json
    store(ready, history(ready.tree, 41e6))
    assert ready("fleet", *RESULT, "-o", "json").json != before
    assert ready(*changed).json != rows_before
    ready("size", *RESULT, "--dry-run", "--page", "load.html")
    assert "(3 h ago) on tasks that lagged for 40 min" in (ready.folder / "load.html").read_text()


def test_a_lost_file_in_the_middle_is_a_gap_and_not_a_rate() -> None:
    row = TaskRow("w", LOGS, "a", "hub", "s", 0, 0, MINUTE_MS, 8e6, 9, 0)
    rows = [replace(row, time_ms=minute * MINUTE_MS) for minute in [*range(4), *range(100, 104)]]
    assert find_saturation(task_measurements(rows)) is None
    rows = [replace(row, time_ms=minute * MINUTE_MS) for minute in range(6)]
    held = find_saturation(task_measurements(rows))
    assert held is not None
    assert held.seconds == 300


def test_what_a_catch_up_limit_let_through_is_no_capacity(ready: Command) -> None:
    file = ready.tree / "x.yaml"
    plain = file.read_text()
    limited = plain.replace("  logs: {", "  logs: {catch_up: {limit: 90MB/s}, ", 1)
    without_measurement = reasons(ready)
    file.write_text(limited)
    store(ready, history(ready.tree, 41e6))
    assert reasons(ready) == without_measurement
    file.write_text(plain)
    assert reasons(ready) == without_measurement
    store(ready, history(ready.tree, 41e6))
    file.write_text(limited)
    assert reasons(ready)[0] == 1, "what was measured without the limit counts"
