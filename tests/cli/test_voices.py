"""Stdout for results, stderr for talk; no escape codes in pipes or with NO_COLOR; a reader that leaves early is no crash."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.plan.site import Site

from .command import DEADLINE_SECONDS, Command, Said, environment, finish, left_early, start

COMMANDS = ("plan", "render", "apply --yes", "status nope", "--help")


def on_a_terminal(mm2mgr: Command, *arguments: str, **more: str) -> str:
    """Run the command with a terminal as its stdout and stderr and return all it printed."""
    ours, theirs = pty.openpty()
    env = environment(mm2mgr.folder, {"TERM": "xterm-256color", "COLUMNS": "120", **more})
    command = [sys.executable, "-m", "mm2mgr", *arguments]
    running = subprocess.Popen(command, cwd=mm2mgr.folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    printed = b""
    try:
        while chunk := _read(ours):
            printed += chunk
        running.wait(DEADLINE_SECONDS)
    finally:
        running.kill()
        running.wait()
        os.close(ours)
    return printed.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says EIO when the other end is closed
        return b""


@pytest.mark.parametrize("command", COMMANDS)
def test_pipes_get_no_escape_codes(site: Site, mm2mgr: Command, command: str) -> None:
    said = finish(start(mm2mgr.folder, *command.split()))
    assert said.out + said.err
    assert "\x1b" not in said.out + said.err


def test_a_terminal_gets_colour_unless_no_color_is_set(site: Site, mm2mgr: Command) -> None:
    assert "\x1b[" in on_a_terminal(mm2mgr, "plan")
    plain = on_a_terminal(mm2mgr, "plan", NO_COLOR="1")
    assert "7 to create" in plain
    assert "\x1b" not in plain


def test_a_spinner_is_not_shown_with_no_color(site: Site, mm2mgr: Command) -> None:
    assert "\x1b" not in on_a_terminal(mm2mgr, "status", "nope", NO_COLOR="1")


def test_a_long_line_in_a_pipe_is_not_wrapped(site: Site, mm2mgr: Command) -> None:
    topics = ", ".join(f'"logs-of-team-{number:03}[.].*"' for number in range(80))
    site.declare(f"flows:\n  logs: {{sources: [a], targets: [east], topics: {{include: [{topics}]}}}}\n")
    line = next(line for line in mm2mgr("render").out.splitlines() if line.startswith("topics = "))
    assert line.endswith("logs-of-team-079[.].*")


@pytest.mark.parametrize(("answer", "code", "created"), [(b"n\n", 130, 0), (b"y\n", 0, 7)])
def test_apply_asks_on_stderr(site: Site, mm2mgr: Command, answer: bytes, code: int, created: int) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    try:
        said = finish(start(mm2mgr.folder, "apply", stdin=theirs))
    finally:
        os.close(ours)
        os.close(theirs)
    assert said.code == code
    assert "Apply this plan? [y/N]" in said.err
    assert "Apply this plan?" not in said.out
    assert len(site.east.connectors) + len(site.west.connectors) == created


def test_apply_as_json_does_not_ask_about_a_plan_nobody_saw(site: Site, mm2mgr: Command) -> None:
    said = mm2mgr("apply", "-o", "json", code=1)
    assert "hint: add --yes, or apply a reviewed plan" in said.err
    assert not site.east.connectors


def test_an_apply_that_nobody_listens_to_is_carried_out_all_the_same(site: Site, mm2mgr: Command) -> None:
    running = start(mm2mgr.folder, "apply", "--yes", "--wait", "0")
    assert running.stderr
    running.stderr.close()
    running.wait(DEADLINE_SECONDS)
    assert len(site.east.connectors) + len(site.west.connectors) == 7


def test_a_reader_that_leaves_early_is_no_crash(mm2mgr: Command) -> None:
    running = start(mm2mgr.folder, "schema")
    assert running.stdout
    running.stdout.close()
    assert running.stderr
    err = running.stderr.read()
    assert running.wait(DEADLINE_SECONDS) == 1
    assert err == ""


def test_the_same_command_in_a_process_of_its_own(site: Site, mm2mgr: Command) -> None:
    mm2mgr("apply", "--yes")
    site.east.connectors.pop("mm2.a.east.heartbeat")  # what is created needs no look at Kafka, which is not there
    inside = mm2mgr("plan", "--detailed-exitcode", code=2)
    assert finish(start(mm2mgr.folder, "plan", "--detailed-exitcode")) == Said(2, inside.out, inside.err)


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_a_plan_is_saved_though_the_reader_leaves(site: Site, mm2mgr: Command, form: str) -> None:
    left_early(mm2mgr, "plan", "--out", "plan.json", "-o", form)
    assert mm2mgr("plan", "--show", "plan.json", "-o", "json").json["clusters"]


def test_a_plan_that_cannot_be_saved_is_shown(site: Site, mm2mgr: Command) -> None:
    said = mm2mgr("plan", "--out", "no-folder/plan.json", code=1)
    assert "7 to create" in said.out
    assert "no-folder" in said.err
