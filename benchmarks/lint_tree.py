"""Measures `lint` on a large tree (1 000 flows of 50 clusters on 20 Connect clusters) and on one small file, in fresh Pythons.

Prints the median CPU times (what an idle machine takes: one thread that waits for nothing) of loading, expanding, rendering and
linting beside rendering; the commands `lint` and `render` as people type them, start-up included, wall and CPU beside the
promised bound, and `lint` of a file beside a bare Python. Exits with 1 when a command's CPU is above its bound. Contacts nothing.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
BOUND_SECONDS = 2.0
FILE_BOUND_SECONDS = 0.6
CLUSTERS, TARGETS, SOURCES_OF_A_FLOW, FLOWS = 50, 20, 5, 1000
_PARTS = ("import", "load", "expand", "render", "lint")
CONNECTOR = """\
name=mirror
connector.class=org.apache.kafka.connect.mirror.MirrorSourceConnector
source.cluster.alias=a
source.cluster.bootstrap.servers=a1:9092
target.cluster.alias=b
target.cluster.bootstrap.servers=b1:9092
producer.override.bootstrap.servers=b1:9092
topics=orders
key.converter=org.apache.kafka.connect.converters.ByteArrayConverter
value.converter=org.apache.kafka.connect.converters.ByteArrayConverter
header.converter=org.apache.kafka.connect.converters.ByteArrayConverter
"""
_CODE = """
import sys, time
from pathlib import Path
t = [time.process_time()]
from mm2mgr.expand import expand
from mm2mgr.lint.rules import lint
from mm2mgr.lint.tree import from_tree
from mm2mgr.render import render
from mm2mgr.spec.files import load
t.append(time.process_time())
spec = load([Path(sys.argv[1])])
t.append(time.process_time())
topology = expand(spec)
t.append(time.process_time())
connectors = render(topology)
t.append(time.process_time())
found = lint(from_tree(topology, connectors, spec))
t.append(time.process_time())
print(len(topology.flows), len(connectors), len(found), *(b - a for a, b in zip(t, t[1:])))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds and print one line per part; return 1 when all of it takes longer than the bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="fresh interpreters (default: 5), after one to warm up")
    parser.add_argument("--flows", type=int, default=FLOWS, help=f"flows of the tree (default: {FLOWS})")
    given = parser.parse_args(arguments)
    rounds = 1 + max(1, given.rounds)
    with tempfile.TemporaryDirectory(prefix="mm2mgr-lint-") as folder:
        write_tree(Path(folder), given.flows)
        runs = [measure(Path(folder)) for _ in range(rounds)][1:]
        tree = ("-m", "mm2mgr", "--clusters", folder)
        whole = {name: [spent(*tree, name) for _ in range(rounds)][1:] for name in ("render", "lint")}
    with tempfile.TemporaryDirectory(prefix="mm2mgr-lint-") as folder:
        file = Path(folder) / "connector.properties"
        file.write_text(CONNECTOR)
        starts = [(spent("-c", "pass")[1], spent("-m", "mm2mgr", "lint", str(file))[1]) for _ in range(rounds)][1:]
    flows, connectors, found = runs[0][:3]
    print(
        f"lint of {flows:.0f} flows, {connectors:.0f} connectors, {found:.0f} findings, Python {sys.version.split()[0]}"
    )
    medians = {part: statistics.median(run[3 + number] for run in runs) for number, part in enumerate(_PARTS)}
    print("\n".join(table({**medians, "load to lint": statistics.median(sum(run[4:]) for run in runs)})))
    commands = {name: tuple(map(statistics.median, zip(*times, strict=True))) for name, times in whole.items()}
    for name, (wall, busy) in commands.items():
        print(
            f"mm2mgr {name:<7}{wall * 1000:>6.0f} ms wall, {busy * 1000:.0f} ms cpu, {busy / BOUND_SECONDS:.0%} of {BOUND_SECONDS:.0f} s"
        )
    bare, one_file = (statistics.median(column) for column in zip(*starts, strict=True))
    print(
        f"lint of one file: {one_file * 1000:.0f} ms, {one_file / bare:.1f}x a bare Python, bound {FILE_BOUND_SECONDS} s"
    )
    return int(commands["lint"][1] > BOUND_SECONDS or one_file > FILE_BOUND_SECONDS)


def table(seconds: dict[str, float]) -> list[str]:
    """Return a line per part: its CPU time, and that as a share of rendering and of the bound."""
    lines = [f"{'part':<14}{'cpu':>9}{'of render':>12}{f'of {BOUND_SECONDS:.0f} s':>9}"]
    for part, spent in seconds.items():
        lines.append(
            f"{part:<14}{spent * 1000:>6.0f} ms{spent / seconds['render']:>11.2f}x{spent / BOUND_SECONDS:>8.0%}"
        )
    return lines


def measure(tree: Path) -> tuple[float, ...]:
    """Return flows, connectors, findings, and the seconds of each part in one new process."""
    command = [sys.executable, "-c", _CODE, str(tree)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(f"the run ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return tuple(float(number) for number in done.stdout.split())


def spent(*arguments: str) -> tuple[float, float]:
    """Return the wall and CPU seconds (user and system) that this Python takes with some arguments, its start included."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr[-2000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_tree(folder: Path, flows: int = FLOWS) -> None:
    """Write a healthy tree: every target mirrors from every other cluster, five sources a declared flow."""
    (folder / "clusters.yaml").write_text("\n".join(_clusters()) + "\n")
    (folder / "flows.yaml").write_text("\n".join(["flows:", *_flows(flows)]) + "\n")


def _clusters() -> Iterator[str]:
    yield "owner: benchmark"
    yield "clusters:"
    for number in range(CLUSTERS):
        security = "{protocol: SASL_SSL, sasl.mechanism: SCRAM-SHA-512, sasl.jaas.config: '${file:/etc/jaas:c}'}"
        yield f"  c{number:02}: {{bootstrap_servers: ['k{number:02}-1:9093', 'k{number:02}-2:9093'], security: {security}}}"
    yield "connect:"
    for number in range(TARGETS):
        yield f"  w{number:02}: {{url: 'http://w{number:02}:8083', kafka: c{number:02}}}"


def _flows(wanted: int) -> Iterator[str]:
    pairs = [(source, target) for target in range(TARGETS) for source in range(CLUSTERS) if source != target]
    every = [(*pair, workload) for workload in range(1 + wanted // len(pairs)) for pair in pairs][:wanted]
    groups: dict[tuple[int, int, int], list[int]] = {}
    for source, target, workload in every:
        groups.setdefault((target, workload, source // SOURCES_OF_A_FLOW), []).append(source)
    for (target, workload, group), sources in groups.items():
        aliases = ", ".join(f"c{source:02}" for source in sources)
        topics = f'[app{workload}.orders, app{workload}.payments, "logs{workload}[.].*"]'
        yield f"  f{target:02}-{workload}-{group:02}:"
        yield f"    {{sources: [{aliases}], targets: [c{target:02}], topics: {{include: {topics}}}}}"


if __name__ == "__main__":
    sys.exit(main())
