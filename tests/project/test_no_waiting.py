"""Unit tests do not wait: what sleeps by the clock of this machine fails, and goes on under a clock that jumps."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from mm2mgr import timing
from tests.clock import Waits, jumping

WAITS: list[Callable[[], object]] = [
    lambda: time.sleep(5),
    lambda: timing.sleep(5),
    lambda: asyncio.run(asyncio.sleep(5)),
    lambda: timing.run(asyncio.sleep(5)),
]


@pytest.mark.parametrize("wait", WAITS)
def test_a_test_that_sleeps_fails(wait: Callable[[], object]) -> None:
    with pytest.raises(Waits, match="sleep"):
        wait()


def test_an_event_that_does_not_come_fails_and_one_that_comes_does_not() -> None:
    came = threading.Event()
    with pytest.raises(Waits, match=r"Event.wait\(0.02\)"):
        timing.wait(came, 0.02)
    threading.Timer(0.001, came.set).start()
    assert timing.wait(came, 60)


@pytest.mark.parametrize("wait", WAITS[1:])
def test_under_a_clock_that_jumps_it_takes_no_time(wait: Callable[[], object]) -> None:
    with jumping() as clock:
        begun = clock.seconds
        wait()
        assert clock.seconds - begun == pytest.approx(5)
        assert timing.now() == time.monotonic() == clock.seconds


def test_of_two_who_wait_the_earlier_goes_on_first() -> None:
    ends: list[str] = []

    async def waits(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        ends.append(f"{name} {timing.now() - begun:.0f}")

    async def both() -> None:
        async with asyncio.timeout(3600):
            await asyncio.gather(waits("late", 1800), waits("early", 60))

    with jumping():
        begun = timing.now()
        timing.run(both())
    assert ends == ["early 60", "late 1800"]


def test_the_end_of_another_process_is_waited_for() -> None:
    with subprocess.Popen(["sh", "-c", "exit 3"]) as process:
        assert process.wait(60) == 3


@pytest.mark.real_time
def test_a_test_that_says_so_waits() -> None:
    time.sleep(0.02)
    assert not threading.Event().wait(0.02)
