"""Assignment changes and failures of tasks: what two looks show is counted once, for 30 days, in a memory that is bounded."""

from __future__ import annotations

from random import Random

import pytest

from mm2mgr.assignment import ASSIGNED_KEY
from mm2mgr.connectors import ConnectorStatus, RunningConnector, TaskConfig, TaskStatus
from mm2mgr.errors import Failure
from mm2mgr.json_values import to_json
from mm2mgr.observe.interruptions import InterruptionCounts, InterruptionReport, Interruptions, follow_interruptions
from mm2mgr.observe.memory import FlowMemory, Memory
from mm2mgr.observe.state_file import memory_text, parse_memory
from tests.observe.estate import Estate, kinds, sentences

HOUR, DAY = 3600.0, 86_400.0


def running(
    tasks: dict[int, str] | Failure, workers: str = "w", states: tuple[str, ...] = (), state: str = "RUNNING"
) -> RunningConnector:
    count = 2 if isinstance(tasks, Failure) else len(tasks)
    shown = states or ("RUNNING",) * count
    statuses = tuple(TaskStatus(number, task_state, workers) for number, task_state in enumerate(shown))
    read = (
        tasks if isinstance(tasks, Failure) else tuple(TaskConfig(n, {ASSIGNED_KEY: text}) for n, text in tasks.items())
    )
    return RunningConnector(
        "x", {}, tuple(range(count)), status=ConnectorStatus("x", state, workers, tasks=statuses), tasks=read
    )


def counted(*looks: RunningConnector, every: float = 60.0) -> InterruptionCounts:
    interruptions, now = Interruptions(), 1_000_000.0
    for look in looks:
        now += every
        interruptions = follow_interruptions(interruptions, look, now)
    report = InterruptionReport.read(interruptions, now)
    assert report
    assert report.last_30_days == report.last_hour
    return report.last_30_days


EVEN, OTHER = {0: "t-0,t-2", 1: "t-1"}, {0: "t-0", 1: "t-1,t-2"}


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([running(EVEN)], (0, 0, 0)),
        ([running(EVEN), running(EVEN)], (0, 0, 0)),
        ([running(EVEN), running(OTHER)], (1, 0, 0)),
        ([running(EVEN), running(OTHER), running(EVEN)], (2, 0, 0)),
        ([running(EVEN), running(EVEN, "v")], (1, 1, 0)),
        ([running(EVEN), running(OTHER, "v")], (1, 1, 0)),
        # A worker that is lost: its tasks are on their way, then on another one.
        ([running(EVEN), running(EVEN, "w", ("RUNNING", "UNASSIGNED")), running(EVEN, "v")], (1, 1, 0)),
        # What cannot be seen, or does not run, is no change; what it was before is compared with what comes after.
        ([running(EVEN), running(Failure("no")), running(EVEN)], (0, 0, 0)),
        ([running(EVEN), running(Failure("no")), running(OTHER)], (1, 0, 0)),
        ([running(EVEN), running({}, state="STOPPED"), running(EVEN)], (0, 0, 0)),
        ([running(EVEN), RunningConnector("x", {}, (0, 1)), running(EVEN)], (0, 0, 0)),
        # Failures: what was FAILED at the first look was not seen to become so.
        ([running(EVEN, states=("FAILED", "RUNNING"))], (0, 0, 0)),
        ([running(EVEN), running(EVEN, states=("FAILED", "FAILED"))], (0, 0, 2)),
        ([running(EVEN), *[running(EVEN, states=("FAILED", "RUNNING"))] * 5], (0, 0, 1)),
        ([running(EVEN), running(EVEN, states=("FAILED", "RUNNING")), running(EVEN)] * 2, (0, 0, 2)),
        ([running(EVEN), running(EVEN, state="FAILED")], (0, 0, 1)),
    ],
)
def test_what_two_looks_show_is_counted(looks: list[RunningConnector], expected: tuple[int, int, int]) -> None:
    assert counted(*looks) == expected


def test_a_look_that_ends_after_a_later_one_counts_nothing() -> None:
    """`serve` and a command share the memory, and the one that began first may write last."""
    interruptions = follow_interruptions(Interruptions(), running(EVEN), 1_000_000.0)
    interruptions = follow_interruptions(interruptions, running(OTHER), 1_000_030.0)
    interruptions = follow_interruptions(interruptions, running(EVEN), 1_000_020.0)
    interruptions = follow_interruptions(interruptions, running(OTHER), 1_000_060.0)
    assert interruptions.since_then(0.0) == (1, 0, 0)


def test_counts_last_for_an_hour_and_for_thirty_days() -> None:
    interruptions = follow_interruptions(Interruptions(), running(EVEN), 1_000_000.0)
    interruptions = follow_interruptions(interruptions, running(OTHER), 1_000_010.0)
    for later, hour, month in ((0.0, 1, 1), (50 * 60.0, 1, 1), (70 * 60.0, 0, 1), (29 * DAY, 0, 1), (32 * DAY, 0, 0)):
        now = 1_000_010.0 + later
        followed = follow_interruptions(interruptions, running(OTHER), now)
        report = InterruptionReport.read(followed, now)
        assert report
        assert (report.last_hour.assignment_changes, report.last_30_days.assignment_changes) == (hour, month), later
        assert bool(followed.spans) == bool(month)


def test_a_month_of_changes_is_counted_in_a_bounded_memory() -> None:
    """Every sum is what a list of all events gives, to the length of a span."""
    random, now, events = Random(7), 1_700_000_000.0, list[float]()
    interruptions = follow_interruptions(Interruptions(), running(EVEN), now)
    last = EVEN
    for _ in range(12_000):
        now += random.choice((20.0, 60.0, 600.0))
        look = random.choice((EVEN, OTHER))
        events += [now] if look != last else []
        interruptions, last = follow_interruptions(interruptions, running(look), now), look
        assert len(interruptions.spans) <= 80
    assert now - events[0] > 30 * DAY
    report = InterruptionReport.read(interruptions, now)
    assert report

    def since(seconds: float) -> int:
        return sum(event > now - seconds for event in events)

    assert since(HOUR) <= report.last_hour.assignment_changes <= since(HOUR + 600)
    assert since(30 * DAY) <= report.last_30_days.assignment_changes <= since(31 * DAY + HOUR)
    memory = Memory(flows={"f:A->B": FlowMemory("home", interruptions=interruptions)})
    text = memory_text(memory)
    assert parse_memory(text) == memory
    assert len(text) < 5_000


def test_a_clock_that_is_set_back_fills_no_memory() -> None:
    interruptions, now = Interruptions(), 1_700_000_000.0
    for number in range(3_000):
        interruptions = follow_interruptions(interruptions, running(EVEN if number % 2 else OTHER), now - 600 * number)
    assert len(interruptions.spans) <= 100


# --- what people see --------------------------------------------------------------------------------------------------


def test_changes_are_in_the_status_and_in_a_note(small: Estate) -> None:
    assert to_json(small.flow())["interruptions"]["last_hour"] == {
        "assignment_changes": 0,
        "worker_changes": 0,
        "failures": 0,
    }
    small.connect.worker_ids = {0: "other:8083"}
    flow = small.flow(later_seconds=30)
    assert "1 assignment change (1 with tasks on other workers) in the last hour" in flow.notes[0]
    assert flow.problems == ()
    later = small.flow(later_seconds=2 * HOUR)
    assert later.notes == ()
    assert later.interruptions
    assert (later.interruptions.last_hour, later.interruptions.last_30_days) == ((0, 0, 0), (1, 1, 0))


def test_they_are_counted_while_the_source_cannot_be_read(small: Estate) -> None:
    small.flow()
    small.kafka.down.add("A")
    small.connect.worker_ids = {0: "other:8083"}
    interruptions = small.flow(later_seconds=30).interruptions
    assert interruptions
    assert interruptions.last_hour.worker_changes == 1


def test_a_worker_that_comes_and_goes_is_a_problem_with_what_to_do(small: Estate) -> None:
    small.flow()
    for number in range(3):
        small.connect.worker_ids = {0: f"w{number}:8083"}
        assert "often-interrupted" not in kinds(small.flow(later_seconds=300))
    small.connect.worker_ids = {0: "w3:8083"}
    flow = small.flow(later_seconds=300)
    assert "often-interrupted" in kinds(flow)
    text = next(text for text in sentences(flow) if "assignment changes" in text)
    assert text.startswith("4 assignment changes (4 with tasks on other workers) in the last hour")
    assert "check why workers join and leave" in text
    assert not any("in the last hour" in note for note in flow.notes), "the problem says it"
    assert kinds(small.flow(later_seconds=2 * HOUR)) == []


def test_workers_that_restart_one_after_the_other_are_no_problem(small: Estate) -> None:
    small.flow()
    for number in range(12):
        small.connect.worker_ids = {0: f"w{number % 5}:8083"}
        assert "often-interrupted" not in kinds(small.flow(later_seconds=60))


def test_tasks_that_fail_again_and_again_are_one_too(small: Estate) -> None:
    connector = small.connect.connectors[small.source]
    small.flow()
    for _ in range(7):
        connector.failed_tasks = {}
        small.flow(later_seconds=30)
        connector.failed_tasks = {0: "java.lang.RuntimeException: x"}
        flow = small.flow(later_seconds=30)
    assert "often-interrupted" in kinds(flow)
    assert "7 failures of tasks" in next(text for text in sentences(flow) if "failures" in text)


def test_a_lag_that_grows_names_them_as_a_cause(small: Estate) -> None:
    produced, mirrored = 0, 0
    for look in range(40):
        produced, mirrored = produced + 6_000, mirrored + 3_000
        small.log(0, produced)
        small.stored(mirrored - 1)
        small.log(0, mirrored, alias="B", topic="A.orders")
        small.connect.worker_ids = {0: f"w{look // 15}:8083"}
        flow = small.flow(later_seconds=60)
    text = next(text for text in sentences(flow) if text.startswith("the lag has grown"))
    assert "2 assignment changes (2 with tasks on other workers) in the last hour, and nothing is mirrored" in text
