"""mm2mgr may die at any point of moving offsets: a connector never runs without its offsets, and the next apply finishes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from mm2mgr.apply.carry_out import carry_out
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.connectors import Connector
from mm2mgr.errors import Mm2mgrError
from mm2mgr.plan.changes import Change
from mm2mgr.plan.draft import plan_cluster
from mm2mgr.plan.stages import stages
from tests.clock import jumping
from tests.fake_connect import FakeConnect
from tests.plan.site import Site
from tests.plan.test_plan import running

NAME = "mm2.a.east.source.orders"
PARTITION = '{"cluster": "a", "partition": 0, "topic": "orders"}'
# The workers' Kafka is not the target, so an exactly-once flow has its offsets on the target, behind overrides.
PLAIN = "flows:\n  orders: {sources: [a], targets: [east], topics: {include: [orders]}, run_on: west}\n"
ONCE = PLAIN.replace("run_on: west", "run_on: west, delivery: exactly_once")
STATES = ("RUNNING", "PAUSED", "STOPPED")


class Killed(BaseException):
    """kill -9: not even what stands in `finally` reaches a worker any more."""


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """Waits take no time: the clock jumps."""
    with jumping():
        yield


@dataclass
class Workers(httpx.AsyncBaseTransport):
    """A fake Connect whose connector replicates a record per request, and stores it on its way out; it sees to the promise."""

    fake: FakeConnect
    position: int = 41
    requests_left: int = 10**6

    @property
    def runs(self) -> bool:
        connector = self.fake.connectors[NAME]
        return connector.state == "RUNNING" and connector.config.get("enabled", "true") == "true"

    def stored(self) -> int | None:
        entry = self.fake.stores(NAME)[0].get(PARTITION)
        return entry and entry["offset"]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.requests_left <= 0:
            raise Killed
        self.requests_left -= 1
        if self.runs:
            self.position += 1
        if self.runs and request.method != "GET":
            self.fake.add_offsets(NAME, "orders", {0: self.position}, alias="a")
        answer = await self.fake.transport().handle_async_request(request)
        assert not self.runs or request.method == "GET" or self.stored() == self.position, "it runs without its offsets"
        return answer

    def apply(self, desired: Connector, requests: int = 10**6) -> Mm2mgrError | None:
        """Plan one connector and carry it out, in a process that is killed after so many requests."""
        self.requests_left = requests

        async def main() -> Mm2mgrError | None:
            target = ConnectTarget("west", ("http://west:8083",))
            async with ConnectClient(target, deadline_seconds=5, transport=self, first_backoff_seconds=0.001) as client:
                state = (await client.status(NAME)).state
                change = planned(desired, await client.config(NAME), state)
                return (
                    await carry_out({change.connect: client}, stages(change, "team"))
                    if change.action == "update"
                    else None
                )

        return asyncio.run(main())


def planned(desired: Connector, live: Mapping[str, str], state: str) -> Change:
    return plan_cluster(Ownership("team"), "west", [desired], running({NAME: live}, state)).changes[0]


@dataclass(frozen=True)
class Move:
    """From one config to another, on exactly-once workers or others."""

    before: Connector
    after: Connector
    exactly_once: bool = True

    def begin(self, state: str) -> Workers:
        fake = FakeConnect(exactly_once=self.exactly_once)
        fake.add(NAME, self.before.config, state=state)
        # What a former time left there: neither may it be taken for this connector's offsets, nor hide what is to come.
        fake.connectors[NAME].config = dict(self.after.config)
        fake.add_offsets(NAME, "orders", {0: 7, 5: 7}, alias="a")
        fake.connectors[NAME].config = dict(self.before.config)
        fake.offsets.get(NAME, {}).clear()
        fake.add_offsets(NAME, "orders", {0: 41}, alias="a")
        return Workers(fake)


def converged(move: Move, workers: Workers, state: str) -> bool:
    connector = workers.fake.connectors[NAME]
    assert planned(move.after, connector.config, connector.state).action == "no-op"
    assert (connector.state, connector.config) == (state, move.after.config)
    assert workers.fake.stores(NAME)[0].keys() == {PARTITION}
    assert workers.runs or workers.stored() == workers.position  # while it ran, each write saw to that
    return True


MOVES = ("to the target", "to another topic", "back to the workers' own", "back, on workers that are not exactly-once")


@pytest.fixture(params=MOVES)
def move(request: pytest.FixtureRequest, tmp_path: Path) -> Move:
    site = Site(tmp_path, {"east": "http://east:8083", "west": "http://west:8083"})
    plain, once = (next(each for each in site.declare(flows)[1] if each.name == NAME) for flows in (PLAIN, ONCE))
    other = replace(once, config={**once.config, "offsets.storage.topic": "other"})
    return {
        MOVES[0]: Move(plain, once),
        MOVES[1]: Move(other, once),
        MOVES[2]: Move(once, plain),
        MOVES[3]: Move(once, plain, exactly_once=False),
    }[request.param]


def requests_of(move: Move, state: str) -> int:
    """How many requests a whole move takes."""
    workers = move.begin(state)
    assert workers.apply(move.after) is None
    assert converged(move, workers, state)
    return 10**6 - workers.requests_left


@pytest.mark.parametrize("state", STATES)
def test_one_more_apply_finishes_whatever_a_kill_left(move: Move, state: str) -> None:
    count = requests_of(move, state)
    assert count > 8
    for last in range(1, count):
        workers = move.begin(state)
        with pytest.raises(Killed):
            workers.apply(move.after, last)
        assert workers.apply(move.after) is None, last
        assert converged(move, workers, state), last


@pytest.mark.parametrize("state", STATES)
def test_killed_and_resumed_by_hand(move: Move, state: str) -> None:
    """Somebody sees it stopped and resumes it: it has its offsets or no tasks, and what it mirrors then is not forgotten."""
    for last in range(1, requests_of(move, state)):
        workers = move.begin(state)
        with pytest.raises(Killed):
            workers.apply(move.after, last)
        if not workers.runs:
            workers.fake.connectors[NAME].state = "RUNNING"
            if workers.runs:
                assert workers.stored() == workers.position, last
                workers.position += 10
                workers.fake.add_offsets(NAME, "orders", {0: workers.position}, alias="a")
        assert workers.apply(move.after) is None, last  # which sees to it that it never runs with older offsets
        assert workers.runs or workers.stored() == workers.position, last


@pytest.mark.parametrize("move", MOVES[:3:2], indirect=True)
def test_killed_twice(move: Move) -> None:
    for first in range(1, requests_of(move, "RUNNING"), 2):
        for second in range(first % 3 + 1, 30, 3):
            workers = move.begin("RUNNING")
            with pytest.raises(Killed):
                workers.apply(move.after, first)
            try:
                workers.apply(move.after, second)
            except Killed:
                assert workers.apply(move.after) is None
                assert converged(move, workers, "RUNNING"), (first, second)
            else:
                break


@pytest.mark.parametrize("move", MOVES[:3], indirect=True)  # the last way back is one that workers refuse
@pytest.mark.parametrize("state", STATES[:2])
def test_killed_and_taken_back(move: Move, state: str) -> None:
    """The tree says the old again: the way back is as safe."""
    for last in range(1, requests_of(move, state)):
        workers = move.begin(state)
        with pytest.raises(Killed):
            workers.apply(move.after, last)
        workers.apply(move.before)
        assert converged(replace(move, after=move.before), workers, state), last
