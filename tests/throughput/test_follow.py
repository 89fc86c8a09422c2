"""Roll-ups in a process that stays: when each is made, what a failure delays, and one session that serves them all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from mm2mgr.operations.size import RolledUp
from mm2mgr.operations.throughput import RollUpOrder, RollUpRound, follow_roll_ups, roll_ups_beside, seconds_to_roll_up
from mm2mgr.operations.workspace import Workspace
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput import spark_session
from mm2mgr.throughput.rollup_job import make
from mm2mgr.throughput.windows import last_hours, rates_of, read_window
from tests.samples.rows import Sample, batches

REPOSITORY = Path(__file__).resolve().parents[2]
HOUR_MS, FIRST_MS = 3_600_000, 1_763_715_600_000
WORKSPACE = Workspace((Path("no-tree"),))


def add_hour(store: Path, number: int) -> None:
    start = FIRST_MS + number * HOUR_MS
    rows = [Sample("a", "t", 0, start + n * 60_000, (60 * number + n) * 7, 0, None, 100.0, "test") for n in range(60)]
    SampleStore(store).append(*batches(rows))


@pytest.mark.parametrize(
    ("now", "failures", "seconds"),
    [
        (7200.0, 0, 60.0),  # at the full hour: a minute later
        (7259.0, 0, 1.0),
        (7260.0, 0, 3600.0),
        (9000.0, 0, 1860.0),
        (7200.0, 1, 60.0),
        (7200.0, 2, 120.0),
        (7200.0, 9, 900.0),
    ],
)
def test_a_round_begins_a_minute_after_the_hour_and_sooner_after_failures(
    now: float, failures: int, seconds: float
) -> None:
    assert seconds_to_roll_up(now, failures) == seconds


def test_a_session_that_failed_is_replaced_in_the_next_round(tmp_path: Path) -> None:
    add_hour(tmp_path, 0)
    ended = list[object]()

    class Session(Mock):
        def close(self) -> None:
            ended.append(self)

    failures = iter([OSError("Stream closed"), None])

    def run(workspace: Workspace, store: Path, spark: bool | None, warm: object) -> RolledUp:
        if failure := next(failures):
            raise failure
        return RolledUp(None)

    with patch("mm2mgr.throughput.warm_session.WarmSpark", Session):
        rounds = follow_roll_ups(WORKSPACE, RollUpOrder(tmp_path), wait=lambda _: False, run=run)
        assert (next(rounds).error, len(ended)) == ("OSError: Stream closed", 1)
        assert (next(rounds).error, len(ended)) == (None, 1)
        rounds.close()
    assert len(ended) == 2


def test_rounds_follow_the_hours_and_a_failure_ends_none_of_them(tmp_path: Path) -> None:
    now, waited = [7300.0], list[float]()
    answers: Iterator[RolledUp | Exception] = iter([ValueError("no room"), RolledUp(None), RolledUp(None)])

    def run(workspace: Workspace, store: Path, spark: bool | None, warm: object) -> RolledUp:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        now[0] += seconds
        if len(waited) == 1:
            add_hour(tmp_path, 0)
        return len(waited) == 4

    rounds = list(follow_roll_ups(WORKSPACE, RollUpOrder(tmp_path), wait=wait, clock=lambda: now[0], run=run))
    assert [(done.number, done.taken_at, done.error) for done in rounds] == [
        (1, 7300.0, None),  # no samples yet
        (2, 10_860.0, "ValueError: no room"),
        (3, 10_920.0, None),
        (4, 14_460.0, None),
    ]
    assert waited == [3560.0, 60.0, 3540.0, 3600.0]


def test_a_block_rolls_up_beside_its_work_and_ends_with_it(tmp_path: Path) -> None:
    add_hour(tmp_path, 0)
    rounds = list[RollUpRound]()
    with roll_ups_beside(WORKSPACE, RollUpOrder(tmp_path), rounds.append):
        pass
    (done,) = rounds
    assert done.rolled_up
    assert done.rolled_up.report
    assert done.rolled_up.report.samples == 60
    assert str(done.rolled_up.engine) == "in this process (MM2MGR_SPARK=off)"


# In a process of its own: it kills the JVM that its session has.
FOLLOW = """
import json, os, sys
from pathlib import Path
import psutil
from mm2mgr.operations.throughput import RollUpOrder, follow_roll_ups
from tests.throughput.test_follow import WORKSPACE, add_hour

store, javas = Path(sys.argv[1]), []

def java():
    return [child for child in psutil.Process().children(recursive=True) if child.name() == "java"]

def wait(seconds):
    javas.append([process.pid for process in java()])
    if len(javas) == 2:
        java()[0].kill()
    add_hour(store, len(javas))
    return len(javas) == 3

add_hour(store, 0)
rounds = list(follow_roll_ups(WORKSPACE, RollUpOrder(store, spark=True), wait=wait))
engines = [str(done.rolled_up.engine) for done in rounds]
print(json.dumps({"errors": [done.error for done in rounds], "engines": engines, "javas": javas, "left": len(java())}))
"""


@pytest.mark.spark
def test_one_session_serves_all_rounds_is_replaced_when_it_dies_and_ends_with_them(tmp_path: Path) -> None:
    store, plain = tmp_path / "store", tmp_path / "plain"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", FOLLOW, str(store)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert (answer["errors"], answer["engines"], answer["left"]) == ([None] * 3, ["on Spark"] * 3, 0)
    first, second, third = answer["javas"]
    assert len(first) == 1
    assert first == second
    assert first != third
    for number in range(3):
        add_hour(plain, number)
    make(plain)
    on_spark, in_process = (rates_of(read_window(folder, last_hours(folder, None))) for folder in (store, plain))
    assert on_spark == in_process


def test_a_session_is_shared_and_ends_with_its_last_user(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, stopped = Mock(), list[object]()
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(spark_session, "_local", spark_session._Local())
    monkeypatch.setattr(spark_session, "_start_local", lambda *_: spark)
    monkeypatch.setattr(spark_session, "_stop", stopped.append)
    monkeypatch.setattr(spark_session, "is_running", lambda _: True)
    assert spark_session.session() is spark_session.session() is spark
    spark_session.end(spark)
    assert stopped == []
    spark_session.end(spark)
    assert stopped == [spark]
