"""Ctrl-C: what was begun is ended, what was not is named, the exit code says so, and the next apply ends the work."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess

import pytest

from mm2mgr.cli.interrupts import ending_signals, signals_interrupt
from tests.plan.site import ON_EAST, ON_WEST, Site

from .command import DEADLINE_SECONDS, Command, Said, finish, start, until

MANY = [f"f{number:02}" for number in range(16)]


def flows(more: str = "") -> str:
    """Flows without heartbeats and checkpoints, whose workers do not live on the target."""
    off = "checkpoints: false, heartbeats: false"
    lines = [
        f"  {name}: {{sources: [a], targets: [east], topics: {{include: [{name}]}}, run_on: west, {off}{more}}}\n"
        for name in MANY
    ]
    return "flows:\n" + "".join(lines)


def left(said: Said) -> list[str]:
    return [line for line in said.lines if line.startswith("left:")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_begun_is_ended_and_the_rest_is_left(site: Site, mm2mgr: Command, number: signal.Signals) -> None:
    site.east.delay_next("POST", "/connectors", seconds=2)  # stored at once, answered late
    running = start(mm2mgr.folder, "apply", "--yes", "--wait", "0")
    try:
        assert running.stderr
        assert any(f"west: created {ON_WEST[-1]}" in line for line in running.stderr)
        until(lambda: site.east.writes, "east is asked")
        running.send_signal(number)
    finally:
        said = finish(running)
    assert said.code == 130
    assert "interrupted: no new change begins, those in progress have 60 s to finish" in said.err
    assert f"east: created {ON_EAST[0]}" in said.err
    assert left(said) == [f"left: create east/{name}" for name in ON_EAST[1:]]
    assert f"Applied: {len(ON_WEST) + 1} of {len(ON_EAST) + len(ON_WEST)} changes" in said.out
    assert site.names("east") == [ON_EAST[0]]
    mm2mgr("apply", "--yes")
    assert site.names("east") == sorted(ON_EAST)


def test_a_second_ctrl_c_stops_at_once(site: Site, mm2mgr: Command) -> None:
    site.east.delay_next("POST", "/connectors", seconds=50)
    running = start(mm2mgr.folder, "apply", "--yes", "--wait", "0")
    try:
        assert running.stderr
        until(lambda: site.east.writes, "east is asked")
        running.send_signal(signal.SIGINT)
        assert any("interrupted" in line for line in running.stderr)
        running.send_signal(signal.SIGINT)
        running.wait(DEADLINE_SECONDS)
    finally:
        said = finish(running)
    assert said.code == 130
    assert f"unfinished: create east/{ON_EAST[0]}" in said.lines
    assert {f"left: create east/{name}" for name in ON_EAST[1:]} <= set(left(said))
    assert "Applied: " in said.out


def interrupted_in(site: Site, mm2mgr: Command, path: str) -> Said:
    """Apply, and interrupt when some requests of a kind have come."""
    running: subprocess.Popen[str] = start(mm2mgr.folder, "apply", "--yes", "--wait", "0")
    try:
        until(lambda: sum(one.path.endswith(path) for one in site.west.writes) >= 4, f"{path} is asked for")
        running.send_signal(signal.SIGINT)
    finally:
        said = finish(running)
    assert said.code == 130
    return said


def test_ctrl_c_in_plain_writes_lists_what_is_true(site: Site, mm2mgr: Command) -> None:
    site.declare(flows())
    mm2mgr("apply", "--yes", "--wait", "0")
    site.declare(flows(", source_consumer: {max.poll.records: 7}"))
    site.west.delay_next("PUT", "/connectors/", seconds=0.3, times=1000)
    said = interrupted_in(site, mm2mgr, "/config")
    stored = {name for name, one in site.west.connectors.items() if "source.consumer.max.poll.records" in one.config}
    assert len(MANY) > len(stored) >= 4
    assert left(said) == [
        f"left: update west/mm2.a.east.source.{name}" for name in MANY if f"mm2.a.east.source.{name}" not in stored
    ]
    assert f"Applied: {len(stored)} of {len(MANY)} changes" in said.out


@pytest.mark.parametrize("path", ["/config", "/stop", "/offsets", "/resume"])
def test_ctrl_c_in_offset_moves_leaves_none_stopped(site: Site, mm2mgr: Command, path: str) -> None:
    site.declare(flows())
    mm2mgr("apply", "--yes", "--wait", "0")
    for name in MANY:
        site.west.add_offsets(f"mm2.a.east.source.{name}", name, {0: 41}, alias="a")
    site.west.exactly_once = True
    site.declare(flows(", delivery: exactly_once"))
    for method in ("PUT", "PATCH"):
        site.west.delay_next(method, "/connectors/", seconds=0.1, times=10_000)
    said = interrupted_in(site, mm2mgr, path)
    site.west.faults.clear()
    connectors = site.west.connectors
    assert {one.state for one in connectors.values()} == {"RUNNING"}
    assert not any(key.startswith("mm2mgr.journal") for one in connectors.values() for key in one.config)
    moved = {name for name, one in connectors.items() if "offsets.storage.topic" in one.config}
    assert 0 < len(moved) < len(MANY)
    assert f"Applied: {len(moved)} of {len(MANY)} changes" in said.out
    assert len(left(said)) == len(MANY) - len(moved)
    assert all(site.west.stores(name)[0] for name in connectors), "its offsets did not come along"
    assert f"Applied: {len(left(said))} of {len(left(said))} changes" in mm2mgr("apply", "--yes", "--wait", "0").out


def test_ctrl_c_while_waiting_for_states_is_no_success(site: Site, mm2mgr: Command) -> None:
    site.east.status_after_reads = 10_000
    running = start(mm2mgr.folder, "apply", "--yes", "--wait", "60", "-o", "json")

    def states_are_read() -> bool:
        requests = list(site.east.requests)
        written = [at for at, request in enumerate(requests) if request.writes]
        return bool(written) and any("status" in request.query for request in requests[written[-1] :])

    try:
        until(states_are_read, "states are read")
        running.send_signal(signal.SIGINT)
    finally:
        said = finish(running)
    assert said.code == 130
    assert all(each["ok"] for each in said.json["results"])
    assert set(said.json["left"]) >= set(ON_EAST[1:]), "the wave that is waited for is the first one"


def test_sigterm_cancels_the_work_instead_of_raising_in_the_middle_of_it(request: pytest.FixtureRequest) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a process of its own
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    seen = []

    async def busy() -> None:
        for _ in range(10**9):
            await asyncio.sleep(0)

    async def work() -> None:
        task = asyncio.create_task(busy())
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await task
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    assert signal.SIGTERM in ending_signals()
    with signals_interrupt(), pytest.raises(KeyboardInterrupt):
        asyncio.run(work())
    assert seen == ["cancelled"]
