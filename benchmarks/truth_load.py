"""Measures what the first question about a Kafka key costs: import, load and one look-up, each run in a fresh Python.

Prints the median of the parts beside a bare parse of the same JSON, and the promised bound; exits with 1 above it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
BOUND_MILLISECONDS = 50.0
_PARTS = ("import", "load", "find", "bare json parse")
_CODE = """
import sys, time
t = [time.perf_counter()]
from mm2mgr.truth.keys import load
t.append(time.perf_counter())
keys = load()
t.append(time.perf_counter())
assert keys.find("producer", "linger.ms", "4.0.0").default == "5"
t.append(time.perf_counter())
import json, pathlib
t.append(time.perf_counter())
json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
t.append(time.perf_counter())
took = [later - earlier for earlier, later in zip(t, t[1:])]
print(*(1000 * took[index] for index in (0, 1, 2, 4)))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds and print one line per part; return 1 when load and find together exceed the bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="fresh interpreters (default: 15), after one to warm up")
    rounds = max(1, parser.parse_args(arguments).rounds)
    runs = [measure() for _ in range(1 + rounds)][1:]
    medians = dict(zip(_PARTS, (statistics.median(part) for part in zip(*runs, strict=True)), strict=True))
    print(f"Kafka's keys, Python {sys.version.split()[0]}, median of {rounds} fresh interpreters")
    for part, milliseconds in medians.items():
        print(f"{part:>16}  {milliseconds:7.2f} ms")
    total = medians["load"] + medians["find"]
    print(f"{'load + find':>16}  {total:7.2f} ms   bound {BOUND_MILLISECONDS:.0f} ms")
    return int(total > BOUND_MILLISECONDS)


def measure() -> tuple[float, ...]:
    """Return the milliseconds of each part in one new process."""
    command = [sys.executable, "-c", _CODE, str(REPOSITORY / "mm2mgr" / "truth" / "keys.json")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True)
    return tuple(float(number) for number in done.stdout.split())


if __name__ == "__main__":
    sys.exit(main())
