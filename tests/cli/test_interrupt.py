"""Ctrl-C: what was not written is named, the exit code says so, and the next apply ends the work."""

from __future__ import annotations

import signal

from tests.reconcile.site import ON_EAST, ON_WEST, Site

from .command import Command, finish, start, until


def test_ctrl_c_during_apply_says_what_is_left(site: Site, mm2mgr: Command) -> None:
    site.east.delay_next("POST", "/connectors", seconds=30)  # stored at once, answered late
    running = start(mm2mgr.folder, "apply", "--yes", "--wait", "0")
    try:
        assert running.stderr
        assert any(f"west: created {ON_WEST[-1]}" in line for line in running.stderr)
        until(lambda: site.east.writes, "east is asked")
        running.send_signal(signal.SIGINT)
    finally:
        said = finish(running)
    assert said.code == 130
    assert said.err == "interrupted\n"
    assert [line for line in said.lines if line.startswith("left:")] == [
        f"left: create east/{name}" for name in ON_EAST
    ]
    assert f"Applied: {len(ON_WEST)} of {len(ON_EAST) + len(ON_WEST)} changes" in said.out
    site.forget()
    mm2mgr("apply", "--yes")
    assert site.names("east") == sorted(ON_EAST)
    # The first one had arrived after all.
    assert sorted(request.body["name"] for request in site.east.writes) == sorted(ON_EAST[1:])


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
    assert said.json["left"] == []
    assert all(each["ok"] for each in said.json["results"])
