"""How the tests of this folder talk to a fake Connect: one call per event loop, with a short deadline and backoff."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.target import ConnectTarget
from tests.fake_connect import FakeConnect

Ask = Callable[..., Any]


@pytest.fixture
def fake() -> FakeConnect:
    return FakeConnect()


@pytest.fixture
def ask(fake: FakeConnect) -> Ask:
    """Return a function that runs one action on a client of the fake; `target` replaces the way there."""

    def run(
        action: Callable[[ConnectClient], Awaitable[Any]], target: ConnectTarget | None = None, deadline: float = 5.0
    ) -> Any:
        async def main() -> Any:
            transport = fake.transport() if target is None else None
            where = target or ConnectTarget("east", ("http://connect:8083",))
            async with ConnectClient(
                where, deadline_seconds=deadline, transport=transport, first_backoff_seconds=0.002
            ) as connect:
                return await action(connect)

        return asyncio.run(main())

    return run
