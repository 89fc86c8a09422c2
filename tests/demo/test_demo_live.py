"""`mm2mgr demo`, once, for real: four brokers, two workers and Spark in one run, and nothing of it left afterwards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.spark]

REPOSITORY = Path(__file__).resolve().parents[2]
RUN_SECONDS = 600
MEMORY_LIMIT_BYTES = 6 * 1024**3
PAIRS = {
    f"logging:{source}->{target}" for source in ("dc1-logging", "dc2-logging") for target in ("agg-east", "agg-west")
}


@dataclass(frozen=True)
class Process:
    """A process as /proc shows it; `started` tells it from a later one with its number."""

    pid: int
    parent: int
    started: str
    command: str
    resident_bytes: int


def processes() -> Iterator[Process]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended meanwhile
            continue
        if fields[0] not in "ZX":
            pages = int(fields[21])
            yield Process(int(entry.name), int(fields[1]), fields[19], command, pages * os.sysconf("SC_PAGE_SIZE"))


@dataclass
class Watcher(threading.Thread):
    """Looks at everything that descends from a process four times a second: what there was, and how much memory."""

    root: int
    seen: dict[tuple[int, str], str] = field(default_factory=dict)
    peak_bytes: int = 0
    most_jvms: int = 0

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        while not self.ended.wait(0.25):
            every = {one.pid: one for one in processes()}
            ours = [one for one in every.values() if self.descends(one, every)]
            jvms = [one for one in ours if re.match(r"\S*java ", one.command)]
            self.seen.update({(one.pid, one.started): one.command for one in ours})
            self.peak_bytes = max(self.peak_bytes, sum(one.resident_bytes for one in jvms))
            self.most_jvms = max(self.most_jvms, len(jvms))

    def descends(self, one: Process | None, every: dict[int, Process]) -> bool:
        while one is not None and one.parent != self.root:
            one = every.get(one.parent)
        return one is not None


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str
    watcher: Watcher
    left: list[str]

    def step(self, number: int) -> list[str]:
        """Return the lines of one step."""
        text = self.out.partition(f"\n[{number}/9] ")[2].partition(f"\n[{number + 1}/9] ")[0]
        return [line.rstrip() for line in text.splitlines()[1:]]

    def rows(self, number: int) -> dict[str, list[str]]:
        """Return the table rows of one step by flow, split into words."""
        lines = [line.split() for line in self.step(number) if line.startswith("logging:") and len(line.split()) > 1]
        return {words[0]: words[1:] for words in lines}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return play(tmp_path_factory.mktemp("demo") / "here", "--seconds", "8")


def play(directory: Path, *options: str) -> Run:
    """Run the demo to its end, and look for what is left of it."""
    command = [sys.executable, "-m", "mm2mgr", "demo", *options, "--dir", str(directory)]
    pipe = subprocess.PIPE
    env = {key: value for key, value in os.environ.items() if key not in {"FORCE_COLOR", "MM2MGR_CLUSTERS"}}
    running = subprocess.Popen(
        command, cwd=directory.parent, env={**env, "PYTHONPATH": str(REPOSITORY)}, stdout=pipe, stderr=pipe, text=True
    )
    watcher = Watcher(running.pid)
    watcher.start()
    try:
        out, err = running.communicate(timeout=RUN_SECONDS)
    finally:
        running.kill()
        running.wait()
        watcher.ended.set()
        watcher.join()
        now = {(one.pid, one.started): one.command for one in processes()}
        left = [key for key, command in now.items() if key in watcher.seen or str(directory) in command]
        stop = [sys.executable, "-m", "mm2mgr", "sandbox", "down", "--dir", str(directory / "sandbox")]
        subprocess.run(stop, cwd=REPOSITORY, capture_output=True, check=False, timeout=120)  # only if the demo did not
    if running.returncode:
        for log in directory.glob("sandbox/connect/*/server.log"):
            news = [line for line in log.read_text(errors="replace").splitlines() if re.search("WARN|ERROR", line)]
            err = "\n".join([err, f"{log.parent.name}:", *news[-20:]])
    return Run(running.returncode, out, err, watcher, [now[key] for key in left])


def test_the_demo_succeeds(run: Run) -> None:
    assert run.code == 0, run.out + run.err
    assert "Demo succeeded in " in run.out
    assert "Traceback" not in run.err


def test_every_record_of_every_flow_arrived_exactly_once_and_in_order(run: Run) -> None:
    rows = run.rows(8)
    assert rows.keys() == PAIRS
    for flow, (verdict, partitions, records, *rest) in rows.items():
        assert (verdict, partitions, rest) == ("equal", "12", ["0"] * 6), flow
        assert int(records) > 0
    assert "Every record arrived exactly once and in order." in run.step(8)


def test_tasks_follow_the_measured_load(run: Run) -> None:
    sized = {flow: int(words[2]) for flow, words in run.rows(5).items()}
    running = {flow: int(words[2]) for flow, words in run.rows(9).items()}
    assert sized.keys() == PAIRS
    assert running == sized
    assert len(set(sized.values())) > 1
    assert max(sized.values()) > 1


def test_the_second_plan_is_empty_and_every_flow_is_healthy(run: Run) -> None:
    assert "Plan: 0 to create, 0 to update, 0 to delete, 12 unchanged" in run.step(9)
    assert {flow: words[:2] for flow, words in run.rows(9).items()} == {flow: ["ok", "RUNNING"] for flow in PAIRS}
    assert "Flows: 4 ok" in run.step(9)


def test_nothing_of_it_is_left(run: Run) -> None:
    assert run.watcher.most_jvms >= 6
    assert run.left == []


def test_it_fits_into_six_gibibytes(run: Run) -> None:
    assert 0 < run.watcher.peak_bytes < MEMORY_LIMIT_BYTES, f"{run.watcher.peak_bytes / 1024**3:.2f} GiB"


@pytest.mark.matrix
def test_skewed_traffic_is_made_even_within_three_minutes(tmp_path: Path) -> None:
    run = play(tmp_path / "here", "--balance")
    assert run.code == 0, run.out + run.err
    took = re.search(r"Demo succeeded in (\d+) s", run.out)
    gain = re.search(r"Busiest task by the mean: (\S+) before, (\S+) now\.", run.out)
    assert took, run.out
    assert gain, run.out
    print(f"{took[0]}; {gain[0]}")
    before, now = map(float, gain.groups())
    assert before > 1.5
    assert now <= 1.1
    assert "Every record arrived exactly once and in order." in run.step(9)
    assert run.left == []
    assert run.watcher.most_jvms == 3
