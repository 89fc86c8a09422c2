"""Measures what a user waits for before mm2mgr does anything: `--help`, and `plan` on the repository's estate as applied.

Reads `clusters/`, asks fake Connect clusters over real HTTP, and prints medians beside a bare Python start of the same interpreter,
taken in the same rounds. It starts no JVM and leaves the repository's files as they are.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
BARE = "python -c pass"
KAFKA_IDS = (
    "Zm8rE5qTQ1aKx0vB7dHnLg",
    "pW2uYc6JSl6oR3tGk9XfAw",
)  # of the estate's Connect clusters, as it declares them
_WARM_UP_ROUNDS = 1  # writes the .pyc files and fills the page cache


@dataclass(frozen=True)
class Run:
    """One finished process: wall clock, and user plus system CPU of the process alone."""

    wall_seconds: float
    cpu_seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the rounds and print one line per command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds (default: 15), after one to warm up")
    rounds = max(1, parser.parse_args(arguments).rounds)
    print(f"cold start, Python {sys.version.split()[0]}, median of {rounds} interleaved rounds", flush=True)
    print("\n".join(table(measure(rounds))))


def measure(rounds: int) -> dict[str, list[Run]]:
    """Return the runs of each command; the commands take turns, so that a busy machine slows all of them alike."""
    with ExitStack() as stack:
        estate = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mm2mgr-cold-start-")))
        environment = applied_estate(stack, estate)
        commands = {
            BARE: [sys.executable, "-c", "pass"],
            "mm2mgr --help": [sys.executable, "-m", "mm2mgr", "--help"],
            "mm2mgr plan": [sys.executable, "-m", "mm2mgr", "--clusters", str(estate), "plan"],
        }
        runs: dict[str, list[Run]] = {name: [] for name in commands}
        for number in range(_WARM_UP_ROUNDS + rounds):
            for name, command in commands.items():
                run = timed(command, environment)
                if number >= _WARM_UP_ROUNDS:
                    runs[name].append(run)
    return runs


def table(runs: Mapping[str, Sequence[Run]]) -> list[str]:
    """Return the figures as lines; the ratios are those of the medians to the bare Python's."""
    bare_wall, bare_cpu = _medians(runs[BARE])
    lines = [f"{'command':<16}{'wall':>10}{'ratio':>8}{'cpu':>11}{'ratio':>8}{'fastest':>11}"]
    for name, measured in runs.items():
        wall, cpu = _medians(measured)
        fastest = min(run.wall_seconds for run in measured)
        lines.append(
            f"{name:<16}{wall * 1000:>7.0f} ms{wall / bare_wall:>7.1f}x{cpu * 1000:>8.0f} ms{cpu / bare_cpu:>7.1f}x"
            f"{fastest * 1000:>8.0f} ms"
        )
    return lines


def timed(command: Sequence[str], environment: Mapping[str, str]) -> Run:
    """Run a command to its end; a command that fails is no measurement, so it raises with what it said."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, cwd=REPOSITORY, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    wall_seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return Run(wall_seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def applied_estate(stack: ExitStack, folder: Path) -> dict[str, str]:
    """Serve the Connect clusters of the repository's estate, and apply it there; return the variables that it reads."""
    sys.path.insert(0, str(REPOSITORY))
    from tests.fake_connect import FakeConnect, serving

    urls = [stack.enter_context(serving(FakeConnect(cluster_id=each))) for each in KAFKA_IDS]
    environment = copy_estate(REPOSITORY / "clusters", folder, urls)
    timed([sys.executable, "-m", "mm2mgr", "--clusters", str(folder), "apply", "--yes", "--wait", "0"], environment)
    return environment


def copy_estate(source: Path, target: Path, urls: Sequence[str]) -> dict[str, str]:
    """Copy the YAML files with one URL per Connect cluster and no TLS; return the variables that they read."""
    variables: set[str] = set()
    given = iter(urls)
    for file in source.rglob("*.yaml"):
        text = re.sub(r"\burl: *\[.*\]", lambda _: f"url: ['{next(given)}']", file.read_text())
        text = re.sub(r"^ +tls: *\{.*\}.*\n", "", text, flags=re.MULTILINE)
        variables |= set(re.findall(r"\$\{env:(\w+)\}", text))
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
    return dict.fromkeys(variables, "benchmark")


def _medians(runs: Sequence[Run]) -> tuple[float, float]:
    return statistics.median(run.wall_seconds for run in runs), statistics.median(run.cpu_seconds for run in runs)


if __name__ == "__main__":
    main()
