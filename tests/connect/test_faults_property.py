"""Whatever transient faults come: put_config ends with the wanted config stored, or with an error that is true."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectError, OutcomeUnknown
from mm2mgr.connect.target import ConnectTarget
from tests.clock import jumping
from tests.fake_connect import FORWARD_CUT, FORWARDING, REBALANCE, STALE, STARTING_PAGE, TIMED_OUT, FakeConnect

OLD = {"name": "a", "connector.class": "MirrorSourceConnector", "topics": "old"}
NEW = OLD | {"topics": "new"}
URLS = ("http://one", "http://two")


@pytest.fixture(autouse=True)
def _jumps() -> Iterator[None]:
    with jumping():
        yield


FAULTS = st.tuples(
    st.sampled_from(["PUT", "GET", "*"]),
    st.sampled_from(
        [
            (409, STALE),
            (500, REBALANCE),
            (500, FORWARDING),
            (500, FORWARD_CUT),
            (500, TIMED_OUT),
            (503, "starting"),
            (504, "<html>"),
            (404, STARTING_PAGE),
            (200, b""),
            (401, "no"),
            (None, ""),
        ]
    ),
    st.booleans(),
    st.integers(1, 2),
)


@settings(max_examples=200, deadline=None)
@given(faults=st.lists(FAULTS, max_size=5), exists=st.booleans())
def test_put_config_stores_what_was_asked_or_says_so(faults: list, exists: bool) -> None:  # type: ignore[type-arg]
    fake = FakeConnect()
    if exists:
        fake.add("a", OLD)
    for method, (status, body), apply, times in faults:
        if status is None:
            fake.drop_next(method, "/", times=times, apply=apply)
        else:
            fake.fail_next(method, "/", status, body, times=times, apply=apply)

    async def put() -> bool:
        target = ConnectTarget("east", URLS)
        async with ConnectClient(
            target, deadline_seconds=2, transport=fake.transport(), first_backoff_seconds=0.0005
        ) as connect:
            with suppress(ConnectError):
                await connect.put_config("a", NEW)
                return True
        return False

    done = asyncio.run(put())
    stored = fake.connectors["a"].config if "a" in fake.connectors else None
    assert stored in ((NEW,) if done else (NEW, OLD if exists else None))
    assert all(request.method == "PUT" and request.body == NEW for request in fake.writes)


@settings(max_examples=50, deadline=None)
@given(applied=st.lists(st.booleans(), min_size=1, max_size=5))
def test_after_a_lost_answer_the_next_request_reads(applied: list[bool]) -> None:
    fake = FakeConnect()
    for apply in applied:
        fake.fail_next("PUT", "/", 500, TIMED_OUT, apply=apply)

    async def put() -> None:
        target = ConnectTarget("east", URLS)
        async with ConnectClient(
            target, deadline_seconds=2, transport=fake.transport(), first_backoff_seconds=0.0005
        ) as connect:
            with suppress(OutcomeUnknown):
                await connect.put_config("a", NEW)

    asyncio.run(put())
    methods = [request.method for request in fake.requests]
    assert ("PUT", "PUT") not in pairwise(methods)
    assert fake.connectors["a"].config == NEW
    assert len(fake.writes) == (applied.index(True) + 1 if True in applied else len(applied) + 1)
