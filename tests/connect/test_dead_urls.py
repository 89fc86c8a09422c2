"""One worker gives no answer, another does: a call answers long before its deadline, and nothing is written twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectUnreachable, OutcomeUnknown
from mm2mgr.connect.target import ConnectTarget
from tests.cli.command import allowed_seconds
from tests.connect.dead_ends import DEAD_ENDS, NEVER_CONNECTED, black_hole_url, dead_url, silent_url, trickling_url
from tests.fake_connect import REBALANCE, FakeConnect, serving

Ask = Callable[..., Any]
FLOW = {"connector.class": "MirrorSourceConnector", "topics": "orders"}
DEADLINE_SECONDS = 12.0


def seconds_of(action: Callable[[], Any]) -> float:
    begun = time.monotonic()
    action()
    return time.monotonic() - begun


@pytest.mark.parametrize("dead", DEAD_ENDS)
def test_a_read_is_answered_by_the_other_worker(fake: FakeConnect, ask: Ask, dead: str) -> None:
    fake.add("a", FLOW)
    with DEAD_ENDS[dead]() as first, serving(fake) as second:
        target = ConnectTarget("east", (first, second))
        took = seconds_of(lambda: ask(lambda c: c.infos(), target, DEADLINE_SECONDS))
    assert took < 2 * allowed_seconds()
    assert len(fake.requests) == 1


@pytest.mark.parametrize("dead", [(silent_url, silent_url), (black_hole_url, trickling_url), (dead_url, silent_url)])
def test_one_worker_of_three_is_enough(fake: FakeConnect, ask: Ask, dead: Any) -> None:
    with ExitStack() as stack:
        urls = [*(stack.enter_context(url()) for url in dead), stack.enter_context(serving(fake))]
        took = seconds_of(lambda: ask(lambda c: c.infos(), ConnectTarget("east", tuple(urls)), DEADLINE_SECONDS))
    assert took < DEADLINE_SECONDS / 2


def test_a_short_deadline_is_shared_too(fake: FakeConnect, ask: Ask) -> None:
    with silent_url() as first, trickling_url() as second, serving(fake) as third:
        assert ask(lambda c: c.infos(), ConnectTarget("east", (first, second, third)), 2.0) == {}


def test_the_worker_that_answered_is_asked_first_from_then_on(fake: FakeConnect, ask: Ask) -> None:
    async def often(c: ConnectClient) -> float:
        await c.infos()
        begun = time.monotonic()
        for _ in range(20):
            await c.infos()
        return time.monotonic() - begun

    with silent_url() as first, serving(fake) as second:
        took = ask(often, ConnectTarget("east", (first, second)), DEADLINE_SECONDS)
    assert took < 10  # each of the twenty would have waited a second for the silent one
    assert len(fake.requests) == 21


def test_a_quick_worker_is_asked_alone(ask: Ask) -> None:
    one, two = FakeConnect(), FakeConnect()
    with serving(one) as first, serving(two) as second:
        ask(lambda c: c.infos(), ConnectTarget("east", (first, second)))
    assert (len(one.requests), len(two.requests)) == (1, 0)


def test_a_busy_worker_is_asked_again_while_the_other_is_silent(fake: FakeConnect, ask: Ask) -> None:
    fake.fail_next("GET", "/", 500, REBALANCE, times=2)
    with silent_url() as first, serving(fake) as second:
        target = ConnectTarget("east", (first, second))
        took = seconds_of(lambda: ask(lambda c: c.infos(), target, DEADLINE_SECONDS))
    assert took < DEADLINE_SECONDS / 2
    assert len(fake.requests) == 3


def test_a_slow_answer_is_waited_for_although_the_other_worker_is_busy(ask: Ask) -> None:
    slow, busy = FakeConnect(), FakeConnect()
    slow.delay_next("GET", "/", 2.5, times=100)
    busy.fail_next("GET", "/", 503, "starting", times=100)
    with serving(slow) as first, serving(busy) as second:
        ask(lambda c: c.infos(), ConnectTarget("east", (first, second)), DEADLINE_SECONDS)
    assert len(slow.requests) == 1


@pytest.mark.parametrize("dead", NEVER_CONNECTED)
def test_a_write_that_never_got_out_goes_to_the_other_worker(fake: FakeConnect, ask: Ask, dead: str) -> None:
    with NEVER_CONNECTED[dead]() as first, serving(fake) as second:
        target = ConnectTarget("east", (first, second))
        took = seconds_of(lambda: ask(lambda c: c.create("a", FLOW), target, DEADLINE_SECONDS))
    assert took < DEADLINE_SECONDS / 2
    assert [request.method for request in fake.requests] == ["POST"]


def test_connecting_to_two_dead_workers_leaves_time_to_write_to_the_third(fake: FakeConnect, ask: Ask) -> None:
    with black_hole_url() as first, silent_url("https") as second, serving(fake) as third:
        target = ConnectTarget("east", (first, second, third))
        took = seconds_of(lambda: ask(lambda c: c.create("a", FLOW), target, DEADLINE_SECONDS))
    assert took < 0.7 * DEADLINE_SECONDS
    assert [request.method for request in fake.requests] == ["POST"]


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize("more", [(), (silent_url,)])
def test_a_create_without_an_answer_is_read_back_from_another_worker(ask: Ask, happened: bool, more: Any) -> None:
    one, two = FakeConnect(), FakeConnect()
    if happened:
        two.connectors = one.connectors  # two workers of one Connect cluster share their state
    one.delay_next("*", "/", 60, times=100)
    with ExitStack() as stack:
        urls = [stack.enter_context(serving(fake)) for fake in (one, two)]
        urls[1:1] = [stack.enter_context(url()) for url in more]
        target = ConnectTarget("east", tuple(urls))
        took = seconds_of(lambda: ask(lambda c: c.create("a", FLOW), target, 9.0))
    assert took < 9.0
    assert [request.method for request in one.writes] == ["POST"]
    assert len(two.writes) == (0 if happened else 1)
    assert ("POST", "POST") not in pairwise(request.method for request in two.requests)
    assert two.requests[0].method == "GET", "written again before it was read back"
    assert two.connectors["a"].config["topics"] == "orders"


def test_a_create_that_nobody_can_read_back_is_not_repeated(fake: FakeConnect, ask: Ask) -> None:
    fake.delay_next("*", "/", 60, times=100)
    with serving(fake) as first, silent_url() as second, pytest.raises(OutcomeUnknown):
        ask(lambda c: c.create("a", FLOW), ConnectTarget("east", (first, second)), 2.0)
    assert len(fake.writes) == 1


@pytest.mark.parametrize("dead", DEAD_ENDS)
def test_without_a_living_worker_the_deadline_ends_it(ask: Ask, dead: str) -> None:
    with DEAD_ENDS[dead]() as first, silent_url() as second:
        begun = time.monotonic()
        with pytest.raises(ConnectUnreachable) as caught:
            ask(lambda c: c.infos(), ConnectTarget("east", (first, second)), 1.0)
    assert time.monotonic() - begun < 1.0 + allowed_seconds()
    assert f"{first}: " in str(caught.value)
    assert f"{second}: accepted the connection, no answer in " in str(caught.value)
