from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import (
    AlreadyExists,
    ConnectAuthError,
    ConnectBusy,
    ConnectError,
    ConnectUnreachable,
    OutcomeUnknown,
)
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.connect.types import SourceOffset
from tests.clock import jumping
from tests.fake_connect import (
    FORWARD_CUT,
    FORWARDING,
    NO_LEADER,
    REBALANCE,
    STALE,
    STARTING_PAGE,
    TIMED_OUT,
    FakeConnect,
)

Ask = Callable[..., Any]
FLOW = {"connector.class": "MirrorSourceConnector", "topics": "orders"}
OFFSET = SourceOffset({"cluster": "dc1", "topic": "orders", "partition": 0}, {"offset": 41})
PASSING = [(409, STALE), (409, NO_LEADER), (500, REBALANCE), (500, FORWARDING), (503, "starting"), (404, STARTING_PAGE)]
LOST = [(500, TIMED_OUT), (500, FORWARD_CUT), (502, "<html>"), (None, "reset")]
# Each with the state before, and what shows that it happened once.
WRITES: dict[str, tuple[Callable[[ConnectClient], Any], str]] = {
    "put_config": (lambda c: c.put_config("a", FLOW | {"topics": "new"}), "RUNNING"),
    "create": (lambda c: c.create("b", FLOW), "RUNNING"),
    "delete": (lambda c: c.delete("a"), "RUNNING"),
    "pause": (lambda c: c.pause("a"), "RUNNING"),
    "resume": (lambda c: c.resume("a"), "PAUSED"),
    "stop": (lambda c: c.stop("a"), "RUNNING"),
    "patch_offsets": (lambda c: c.patch_offsets("a", [OFFSET]), "STOPPED"),
    "remove_offset": (lambda c: c.patch_offsets("a", [SourceOffset(OFFSET.partition, None)]), "STOPPED"),
}


@pytest.fixture(autouse=True)
def _jumps() -> Iterator[None]:
    with jumping():
        yield


def prepared(fake: FakeConnect, write: str) -> Callable[[ConnectClient], Any]:
    action, state = WRITES[write]
    fake.add("a", FLOW, state=state)
    if write == "remove_offset":
        fake.add_offsets("a", "orders", {0: 41}, alias="dc1")
    return action


def lose(fake: FakeConnect, status: int | None, body: str, apply: bool, times: int = 1) -> None:
    for method in ("PUT", "POST", "DELETE", "PATCH"):
        if status is None:
            fake.drop_next(method, "/", times=times, apply=apply)
        else:
            fake.fail_next(method, "/", status, body, times=times, apply=apply)


@pytest.mark.parametrize(("status", "body"), PASSING)
def test_what_passes_is_repeated(fake: FakeConnect, ask: Ask, status: int, body: str) -> None:
    fake.fail_next("*", "/", status, body, times=3)
    assert ask(lambda c: c.connectors()) == ()
    assert len(fake.requests) == 4


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(("status", "body"), PASSING)
def test_a_write_that_was_not_done_is_repeated(fake: FakeConnect, ask: Ask, write: str, status: int, body: str) -> None:
    action = prepared(fake, write)
    fake.fail_next("*", "/", status, body, times=2)
    ask(action)
    assert [request.writes for request in fake.requests] == [True] * 3


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(("status", "body"), LOST)
def test_a_write_that_happened_is_not_repeated(
    fake: FakeConnect, ask: Ask, write: str, status: int | None, body: str
) -> None:
    action = prepared(fake, write)
    lose(fake, status, body, apply=True)
    ask(action)
    assert [request.writes for request in fake.requests] == [True, False]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(("status", "body"), LOST)
def test_a_write_that_did_not_happen_is_read_back_then_repeated(
    fake: FakeConnect, ask: Ask, write: str, status: int | None, body: str
) -> None:
    action = prepared(fake, write)
    lose(fake, status, body, apply=False)
    ask(action)
    assert [request.writes for request in fake.requests] == [True, False, False, False, True]


@pytest.mark.parametrize("write", WRITES)
def test_if_reading_back_is_impossible_nothing_is_written_again(fake: FakeConnect, ask: Ask, write: str) -> None:
    action = prepared(fake, write)
    lose(fake, 500, TIMED_OUT, apply=False)
    fake.fail_next("GET", "/", 403, "Forbidden", times=100)
    with pytest.raises(OutcomeUnknown) as caught:
        ask(action)
    assert isinstance(caught.value.__cause__, ConnectAuthError)
    assert len(fake.writes) == 1


def test_a_late_answer_is_a_lost_answer(fake: FakeConnect, ask: Ask) -> None:
    fake.delay_next("PUT", "/", seconds=30)
    assert ask(lambda c: c.put_config("a", FLOW), deadline=0.5).config == {"name": "a", **FLOW}
    assert len(fake.writes) == 1


def test_a_restart_is_never_repeated_blindly(fake: FakeConnect, ask: Ask) -> None:
    fake.add("a", FLOW)
    fake.fail_next("POST", "/", 409, STALE)
    fake.fail_next("POST", "/", 500, TIMED_OUT)
    with pytest.raises(OutcomeUnknown):
        ask(lambda c: c.restart("a", include_tasks=True))
    assert len(fake.requests) == 2


def test_created_by_an_attempt_that_said_it_was_not(fake: FakeConnect, ask: Ask) -> None:
    fake.fail_next("POST", "/", 503, "proxy gave up", apply=True)
    assert ask(lambda c: c.create("a", FLOW)).name == "a"


def test_created_by_somebody_else_meanwhile(fake: FakeConnect, ask: Ask) -> None:
    fake.add("a", FLOW | {"topics": "other"})
    fake.fail_next("POST", "/", 409, STALE)
    with pytest.raises(AlreadyExists):
        ask(lambda c: c.create("a", FLOW))
    assert fake.connectors["a"].config["topics"] == "other"


@pytest.mark.parametrize(("status", "body"), PASSING)
def test_the_deadline_ends_it(fake: FakeConnect, ask: Ask, status: int, body: str) -> None:
    fake.fail_next("*", "/", status, body, times=10**6)
    begun = time.monotonic()
    with pytest.raises(ConnectBusy) as caught:
        ask(lambda c: c.put_config("a", FLOW), deadline=0.3)
    assert time.monotonic() - begun < 15  # not asked for longer than the deadline: else 30 s
    assert caught.value.hint
    assert fake.connectors == {}


def test_a_body_that_trickles_in_is_bounded_too() -> None:
    class Trickle(httpx.AsyncByteStream):
        async def __aiter__(self) -> Any:
            while True:
                yield b" "
                await asyncio.sleep(0.01)

    async def main() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Trickle()))
        target = ConnectTarget("east", ("http://connect",))
        async with ConnectClient(target, deadline_seconds=0.3, transport=transport) as connect:
            await connect.root()

    begun = time.monotonic()
    with pytest.raises(ConnectUnreachable, match="no answer in time"):
        asyncio.run(main())
    assert time.monotonic() - begun < 15  # not asked for longer than the deadline: else 30 s


def test_a_redirect_is_not_followed(fake: FakeConnect, ask: Ask) -> None:
    fake.fail_next("GET", "/", 302, "moved", Location="https://elsewhere/connectors")
    with pytest.raises(ConnectError, match="elsewhere"):
        ask(lambda c: c.connectors())
    assert len(fake.requests) == 1


def test_a_hundred_writers_share_one_client(fake: FakeConnect, ask: Ask) -> None:
    fake.fail_next("PUT", "/", 409, STALE, times=150)

    async def all_at_once(c: ConnectClient) -> None:
        await asyncio.gather(*(c.put_config(f"flow.{number}", FLOW) for number in range(100)))

    ask(all_at_once)
    assert len(fake.connectors) == 100
    assert len(fake.writes) == 250
