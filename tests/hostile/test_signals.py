"""A line that cannot be written stops no work, and a signal ends a command in order: full disks, closed descriptors,
SIGTERM and SIGHUP. Ctrl-C itself is in tests/cli/test_interrupt.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from mm2mgr.cli import TRACEBACK, cli, main
from mm2mgr.errors import ExitCode
from mm2mgr.kafka.access import KafkaAccess
from tests.cli.command import DEADLINE_SECONDS, Command, environment, impatient_mm2mgr, start, until
from tests.cli.load import addresses, declare, produce
from tests.cli.test_watch import Watched
from tests.plan.site import ON_EAST, ON_WEST, Site

APPLY = ("apply", "--yes", "--wait", "0")
FULL = Path("/dev/full")
ENDING = [signal.SIGTERM, signal.SIGHUP]
ALL = len(ON_EAST) + len(ON_WEST)

pytestmark = pytest.mark.skipif(not FULL.is_char_device(), reason="this machine has no /dev/full")


@contextmanager
def running(
    folder: Path,
    *arguments: str,
    out: Any = subprocess.PIPE,
    err: Any = subprocess.PIPE,
    closed: Sequence[int] = (),
    program: Sequence[str] = (sys.executable, "-m", "mm2mgr"),
) -> Iterator[subprocess.Popen[str]]:
    """Start the command with streams of one's own, some of them closed; end it by its own id whatever happens."""
    closing = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
    command = ["sh", "-c", f'exec "$@" {closing}', "sh", *program, *arguments]
    # What a test runner under nohup ignores, this child would ignore too.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING}
    try:
        child = subprocess.Popen(
            command, cwd=folder, env=environment(folder), stdin=subprocess.DEVNULL, stdout=out, stderr=err, text=True
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end; return the exit code and all that was printed."""
    out, err = child.communicate(timeout=DEADLINE_SECONDS)
    printed = (out or "") + (err or "")
    assert "Traceback" not in printed
    assert "Exception ignored" not in printed
    return child.returncode, printed


def created(site: Site) -> int:
    return len(site.east.connectors) + len(site.west.connectors)


# --- full and closed ----------------------------------------------------------------------------------------------------


def test_an_apply_whose_log_is_on_a_full_disk_is_carried_out(site: Site, mm2mgr: Command) -> None:
    with FULL.open("w") as full, running(mm2mgr.folder, *APPLY, err=full) as child:
        code, printed = ended(child)
    assert (code, created(site)) == (0, ALL)
    assert f"Applied: {ALL} of {ALL} changes" in printed


def test_an_apply_whose_result_is_on_a_full_disk_is_carried_out_and_says_so(site: Site, mm2mgr: Command) -> None:
    with FULL.open("w") as full, running(mm2mgr.folder, *APPLY, out=full) as child:
        code, printed = ended(child)
    assert (code, created(site)) == (1, ALL)
    assert "error: stdout: No space left on device: lines of the result are lost" in printed


def test_an_apply_whose_reader_leaves_is_carried_out(site: Site, mm2mgr: Command) -> None:
    with running(mm2mgr.folder, *APPLY) as child:
        assert child.stdout
        child.stdout.close()
        assert child.stderr
        err = child.stderr.read()
        assert child.wait(DEADLINE_SECONDS) == 0, err
    assert created(site) == ALL
    assert "Traceback" not in err


def test_an_apply_without_any_stream_is_carried_out(site: Site, mm2mgr: Command) -> None:
    with running(mm2mgr.folder, *APPLY, closed=(0, 1, 2)) as child:
        assert ended(child) == (0, "")
    assert created(site) == ALL


@pytest.mark.parametrize(
    ("closed", "said"),
    [((), "stdout: No space left on device"), ((1,), "warning: stdout is closed, so the result was not printed")],
)
def test_a_plan_that_cannot_be_printed_still_ends_with_its_exit_code(
    site: Site, mm2mgr: Command, closed: Sequence[int], said: str
) -> None:
    assert site
    with (
        FULL.open("w") as full,
        running(mm2mgr.folder, "plan", "--detailed-exitcode", out=full, closed=closed) as child,
    ):
        code, printed = ended(child)
    assert code == 2
    assert said in printed


@pytest.mark.parametrize("command", ["schema", "--help"])
def test_a_result_that_cannot_be_printed_is_no_success(mm2mgr: Command, command: str) -> None:
    with FULL.open("w") as full, running(mm2mgr.folder, command, out=full) as child:
        code, printed = ended(child)
    assert (code, printed.count("\n")) == (1, 2)
    assert "error: stdout: No space left on device" in printed


def test_nothing_asks_about_a_plan_that_could_not_be_shown(site: Site, mm2mgr: Command) -> None:
    ours, theirs = os.openpty()
    os.write(ours, b"y\n")
    try:
        command = [sys.executable, "-m", "mm2mgr", "apply"]
        with FULL.open("w") as full:
            done = subprocess.run(
                command,
                cwd=mm2mgr.folder,
                env=environment(mm2mgr.folder),
                stdin=theirs,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=DEADLINE_SECONDS,
                check=False,
            )
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, created(site)) == (1, 0)
    assert "the plan could not be shown" in done.stderr


def test_an_encoding_that_lacks_a_sign_is_no_error(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    (mm2mgr.folder / "ä→日.json").write_text("{}")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with running(mm2mgr.folder, "lint", "ä→日.json") as child:
        code, printed = ended(child)
    assert code == 1
    assert "\\xe4\\u2192\\u65e5.json" in printed


# --- signals ------------------------------------------------------------------------------------------------------------


def test_a_terminal_that_closes_ends_what_was_begun_and_says_what_is_left(site: Site, mm2mgr: Command) -> None:
    site.east.delay_next("POST", "/connectors", seconds=1)
    with running(mm2mgr.folder, *APPLY) as child:
        until(lambda: site.east.writes and len(site.west.connectors) == len(ON_WEST), "east is asked, west is done")
        child.send_signal(signal.SIGHUP)
        out, err = child.communicate(timeout=DEADLINE_SECONDS)
    assert child.returncode == 130
    assert "interrupted: no new change begins" in err
    assert [line for line in out.splitlines() if line.startswith("left:")] == [
        f"left: create east/{name}" for name in ON_EAST[1:]
    ]
    assert site.names("east") == [ON_EAST[0]]


def test_under_nohup_an_apply_goes_on(site: Site, mm2mgr: Command) -> None:
    site.east.delay_next("POST", "/connectors", seconds=0.5)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        child = start(mm2mgr.folder, *APPLY)
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        until(lambda: site.east.writes, "east is asked")
        child.send_signal(signal.SIGHUP)
        assert ended(child)[0] == 0
    finally:
        child.kill()
        child.wait()
    assert created(site) == ALL


def test_a_second_signal_ends_an_apply_whose_result_cannot_be_written(site: Site, mm2mgr: Command) -> None:
    site.east.delay_next("POST", "/connectors", seconds=50)
    with FULL.open("w") as full, running(mm2mgr.folder, *APPLY, out=full) as child:
        assert child.stderr
        until(lambda: site.east.writes, "east is asked")
        child.send_signal(signal.SIGTERM)
        assert any("interrupted" in line for line in child.stderr)
        child.send_signal(signal.SIGTERM)
        assert child.wait(DEADLINE_SECONDS) == 130
        assert "Traceback" not in child.stderr.read()


@pytest.mark.parametrize("number", ENDING)
def test_a_command_that_reads_ends_with_a_word(site: Site, mm2mgr: Command, number: signal.Signals) -> None:
    site.east.delay_next("GET", "/", seconds=20, times=100)
    with running(mm2mgr.folder, "plan") as child:
        until(lambda: site.east.requests, "east is asked")
        child.send_signal(number)
        code, printed = ended(child)
    assert code == 130
    assert printed.strip() == "interrupted"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("number", ENDING)
def test_watching_ends_with_the_code_of_its_last_look(watched: Watched, number: signal.Signals) -> None:
    watched.connect.connectors.clear()
    status = ("status", "--watch", "60", "-o", "json")
    with running(watched.mm2mgr.folder, *status, program=impatient_mm2mgr()) as child:
        assert child.stdout
        assert child.stdout.readline().startswith("{")
        child.send_signal(number)
        code, printed = ended(child)
    without_ids = (
        "warning: kafka a: no broker gave the ids of topics in time, so this look finds no loss; the next one does"
    )
    assert (code, printed) == (1, f"reading Connect and Kafka\n{without_ids}\n"), "mock brokers never give ids"


@pytest.mark.parametrize(("full", "closed", "number"), [(True, (), signal.SIGTERM), (False, (0, 1, 2), signal.SIGHUP)])
def test_sampling_goes_on_without_its_log(
    mm2mgr: Command, mock_cluster: KafkaAccess, full: bool, closed: Sequence[int], number: signal.Signals
) -> None:
    declare(mm2mgr.tree, *addresses(mock_cluster))
    produce(mock_cluster, "orders")
    store = mm2mgr.folder / "store"
    follow = ("sample", "--follow", "--cluster", "a", "--store", "store", "--interval", "0.3s")
    with (
        FULL.open("w") as disk,
        running(mm2mgr.folder, *follow, out=None if closed else subprocess.PIPE, err=disk, closed=closed) as child,
    ):
        until(lambda: len(list(store.glob("samples/hour=*/*.parquet"))) >= 3, "three rounds are stored")
        child.send_signal(number)
        code, printed = ended(child)
    assert code == 0
    assert full != bool(closed)
    assert ("samples of 1 clusters in store" in printed) is full


# --- what nobody expected -----------------------------------------------------------------------------------------------


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `schema` fail in a way that nobody thought of."""

    def fail() -> None:
        raise LookupError("no such thing\nerror: a fake line \x1b[2J " + "x" * 2000)

    monkeypatch.setitem(cli.commands, "schema", click.Command("schema", callback=fail))


@pytest.mark.usefixtures("broken")
def test_a_bug_is_a_sentence_with_an_exit_code_of_its_own(mm2mgr: Command) -> None:
    said = mm2mgr("schema", code=ExitCode.BUG)
    first, second = said.err.splitlines()
    assert first.startswith("error: unexpected LookupError: no such thing error: a fake line \\x1b[2J xxx")
    assert len(first) < 600
    assert TRACEBACK in second


@pytest.mark.usefixtures("broken")
def test_its_place_is_printed_to_who_asks(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACEBACK, "1")
    monkeypatch.setattr(sys, "argv", ["mm2mgr", "schema"])
    with pytest.raises(SystemExit):
        main()
    err = mm2mgr.capsys.readouterr().err
    assert "Traceback (most recent call last):" in err
    assert "in fail" in err
    assert "\x1b" not in err


@pytest.mark.parametrize("message", ['failed with password="hunter2"', "https://user:hunter2@host/ refused"])
def test_a_bug_prints_no_secret(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    def fail() -> None:
        raise RuntimeError(message)

    monkeypatch.setitem(cli.commands, "schema", click.Command("schema", callback=fail))
    for value in ("", "1"):
        monkeypatch.setenv(TRACEBACK, value)
        monkeypatch.setattr(sys, "argv", ["mm2mgr", "schema"])
        with pytest.raises(SystemExit) as done:
            main()
        assert done.value.code == ExitCode.BUG
        assert "hunter2" not in mm2mgr.capsys.readouterr().err
