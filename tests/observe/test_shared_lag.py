"""Points of lag in the store: what `serve` and `sample` saw is known to the first look on another machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.observe.state_file import load
from mm2mgr.observe.trend import FLOW, LagPoint, Points, join_points
from mm2mgr.problems.status import Observation, observe
from mm2mgr.samples.schema import LAG
from mm2mgr.samples.tables import StoredTable
from tests.observe.estate import Estate, estate

FLOW_ID = "orders:A->B"


class Machine:
    """One machine that looks at the estate, with its own memory."""

    def __init__(self, estate: Estate, directory: Path, *, shares: bool = False) -> None:
        self.estate, self.shares, self.memory_file = estate, shares, directory / "memory.json"

    def look(self) -> Observation:
        options = replace(self.estate.options, memory_file=self.memory_file, shares=self.shares)
        return asyncio.run(observe(self.estate.topology, self.estate.connectors, options=options))

    def grown(self) -> float | None:
        """Look, and return for how many seconds the lag is known to grow."""
        (flow,) = self.look().status.flows
        return flow.trend.seconds if flow.trend and flow.trend.direction == "growing" else None

    def points(self) -> Points:
        return load(self.memory_file).flow(FLOW_ID).progress.get(FLOW, ())


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Estate]:
    with estate(tmp_path) as one:
        one.stored(99)
        yield one


def grow(estate: Estate, machine: Machine | None, minutes: int) -> None:
    """A lag that grows by 1 000 records a minute, with a look in each."""
    for _ in range(minutes):
        estate.now += 60
        start, end = estate.kafka.clusters["A"]["orders"][0]
        estate.log(start, max(end, 100) + 1_000)
        if machine:
            machine.look()


def test_a_first_look_knows_what_another_machine_saw(small: Estate, tmp_path: Path) -> None:
    server = Machine(small, tmp_path / "server", shares=True)
    grow(small, server, 20)
    small.now += 30
    laptop = Machine(small, tmp_path / "laptop")
    grown = laptop.grown()
    assert grown is not None
    assert 15 * 60 <= grown <= 20 * 60, "up to five minutes are not in the store yet"
    grow(small, server, 1)
    assert laptop.grown() == grown + 60, "its own looks go on from there"


def test_without_a_server_a_first_look_knows_no_trend(small: Estate, tmp_path: Path) -> None:
    grow(small, Machine(small, tmp_path / "other"), 20)
    assert not (small.store / LAG).exists(), "only processes that run on write it"
    assert Machine(small, tmp_path / "laptop").grown() is None


def test_what_this_machine_saw_itself_is_not_asked_of_the_store(small: Estate, tmp_path: Path) -> None:
    server, laptop = Machine(small, tmp_path / "server", shares=True), Machine(small, tmp_path / "laptop")
    laptop.look()
    grow(small, server, 9)
    laptop.look()
    assert len(laptop.points()) == 2
    grow(small, server, 11)
    laptop.look()
    assert len(laptop.points()) > 10


def test_offsets_on_another_kafka_and_flows_of_another_owner_are_others(small: Estate, tmp_path: Path) -> None:
    grow(small, Machine(small, tmp_path / "server", shares=True), 20)
    laptop = Machine(small, tmp_path / "laptop")
    stranger = replace(small.topology, owner="stranger")
    options = replace(small.options, memory_file=laptop.memory_file)
    asyncio.run(observe(stranger, small.connectors, options=options))
    assert len(laptop.points()) == 1
    small.connect.cluster_id = "made-anew"
    assert Machine(small, tmp_path / "second").grown() is None


def test_a_store_that_cannot_be_read_or_written_harms_no_look(small: Estate, tmp_path: Path) -> None:
    server = Machine(small, tmp_path / "server", shares=True)
    grow(small, server, 20)
    (log,) = (small.store / LAG / "_delta_log").glob("*0.json")
    log.write_text("{")
    assert Machine(small, tmp_path / "laptop").grown() is None
    small.now += 300
    (warning,) = server.look().status.warnings
    assert warning.startswith("the table of lag: ")
    assert len(server.points()) > 2, "its own memory goes on"


@pytest.mark.long
def test_the_table_keeps_two_hours(small: Estate, tmp_path: Path) -> None:
    server = Machine(small, tmp_path / "server", shares=True)
    for _ in range(5 * 4):
        small.now += 900
        server.look()
    assert len({file.values[0] for file in StoredTable(small.store, LAG).files()}) == 2


POINTS = st.lists(st.tuples(st.integers(1, 900), st.integers(0, 500), st.integers(0, 500), st.booleans()), max_size=23)


@given(POINTS, st.lists(st.integers(0, 500), max_size=5))
def test_looks_that_two_processes_share_are_those_of_one(
    steps: list[tuple[int, int, int, bool]], late: list[int]
) -> None:
    time, end, position, every = 0, 0, 0, [LagPoint(0, 1, 0, 0, 0)]
    mine = [True]
    for seconds, produced, mirrored, is_mine in steps:
        time, end = time + seconds, end + produced
        position = min(end, position + mirrored)
        every.append(LagPoint(time, 1, 0, end, position))
        mine.append(is_mine)
    mine[-1] = True
    own = tuple(point for point, is_mine in zip(every, mine, strict=True) if is_mine)
    others = [point for point, is_mine in zip(every, mine, strict=True) if not is_mine]
    newer = [LagPoint(time + 1 + each, 1, 0, end + each, end) for each in late]
    found = join_points(own, [*newer, *others, *others])
    assert list(found) == every


def test_nothing_is_joined_to_a_flow_that_was_not_seen() -> None:
    assert join_points((), [LagPoint(1, 1, 0, 1, 0)]) == ()
