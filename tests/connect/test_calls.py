from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from mm2mgr import timing
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
    with pytest.raises(ConnectUnreachable, match=r"the answer did not come whole in 0\.3 s"):
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


# --- workers that accept connections and answer nothing ---------------------------------------------------------------


class Workers:
    """Workers by host: each takes so many seconds, call by call the last ones over (None: it never answers), and then
    has this status."""

    def __init__(self, **seconds: float | list[float] | None) -> None:
        self.seconds, self.status, self.asked = seconds, dict.fromkeys(seconds, 200), list[str]()
        self.target = ConnectTarget("east", tuple(f"http://{host}:8083" for host in seconds))

    async def answer(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        await request.extensions["trace"]("connection.connect_tcp.complete", {})
        self.asked.append(host)
        late = self.seconds[host]
        if isinstance(late, list):
            late = late.pop(0) if len(late) > 1 else late[0]
        await asyncio.sleep(1e6 if late is None else late)
        return httpx.Response(self.status[host], text="[]" if self.status[host] == 200 else "{}")

    def connectors(self, *, calls: int = 1, silence_seconds: float = 6.0) -> list[str]:
        """Ask so often, with 20 s for each call; return what each one ended with."""

        async def main() -> list[str]:
            ends = list[str]()
            async with ConnectClient(
                self.target,
                deadline_seconds=20.0,
                transport=httpx.MockTransport(self.answer),
                silence_seconds=silence_seconds,
            ) as connect:
                for _ in range(calls):
                    try:
                        ends.append(str(await connect.connectors()))
                    except ConnectError as error:
                        ends.append(error.one_line)
            return ends

        return timing.run(main())  # type: ignore[no-any-return]


def test_a_worker_that_hangs_costs_a_second() -> None:
    with jumping() as clock:
        workers, began = Workers(one=None, two=0.1), clock.seconds
        assert workers.connectors(calls=5) == ["()"] * 5
        assert clock.seconds - began < 2
    assert workers.asked.count("one") == 1, "the others go to the worker that answers"


@pytest.mark.parametrize("count", [1, 2, 8])
def test_workers_that_all_hang_end_the_call_soon_and_are_named(count: int) -> None:
    hosts = [f"w{number}" for number in range(count)]
    with jumping() as clock:
        workers, began = Workers(**dict.fromkeys(hosts)), clock.seconds
        (said,) = workers.connectors()
        assert clock.seconds - began < 7
    assert workers.asked == hosts
    for host in hosts:
        assert f"http://{host}:8083: accepted the connection, no answer in " in said
    assert "dead" not in said


def test_the_last_of_many_workers_still_answers_in_time() -> None:
    with jumping() as clock:
        workers, began = Workers(**dict.fromkeys("abcdefghij"), alive=1.0), clock.seconds
        assert workers.connectors() == ["()"]
        assert clock.seconds - began < 6


@pytest.mark.parametrize("seconds", [3.0, 5.5])
def test_a_slow_worker_is_waited_for(seconds: float) -> None:
    with jumping():
        assert Workers(one=seconds).connectors() == ["()"]
        assert Workers(one=None, two=seconds - 1).connectors() == ["()"]


def test_once_a_worker_has_answered_the_others_have_their_whole_time() -> None:
    with jumping():
        assert Workers(one=[0.1, 15.0]).connectors(calls=2) == ["()", "()"]


def test_a_busy_answer_is_an_answer() -> None:
    """Workers refuse while they rebalance: that is repeated until the deadline, not until the silence."""
    with jumping() as clock:
        workers, began = Workers(one=0.1), clock.seconds
        workers.status["one"] = 503
        (said,) = workers.connectors()
        assert "HTTP 503" in said
        assert 10 < clock.seconds - began <= 20
