"""Measures `mm2mgr plan` with nothing to change, beside a floor: a script that does only what cannot be left out.

500 connectors on two fake Connect clusters over real HTTP. The floor parses the same YAML with libyaml, asks each Connect
cluster twice and compares what it runs with desired configs from a file. Both are whole processes, each also run with its
imports alone; exits with 1 when `plan` costs more than twice the floor beyond imports. The CPU time counts: the fakes run in
this process, and what they take is none of the tool's. On a busy machine CPU seconds differ by half from run to run:
`--instructions` counts under valgrind instead, which gives nearly the same figures each time (two minutes).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

try:
    from benchmarks.cold_start import REPOSITORY, Run, timed
except ModuleNotFoundError:  # run as a script
    from cold_start import REPOSITORY, Run, timed  # type: ignore[no-redef]

BOUND = 2.0
CONNECTORS, SOURCES, TARGETS = 500, 8, 2
FLOOR = """
import asyncio, json, sys, httpx, yaml
tree, desired, *urls = sys.argv[1:]
with open(tree) as file:
    assert yaml.load(file, Loader=yaml.CSafeLoader)["flows"]
with open(desired) as file:
    wanted = json.load(file)
async def running(url):
    async with httpx.AsyncClient(verify=False, trust_env=False) as http:
        root, infos = await asyncio.gather(http.get(url + "/"), http.get(url + "/connectors?expand=info&expand=status"))
        assert json.loads(root.text)["version"]
        return {name: each["info"]["config"] for name, each in json.loads(infos.text).items()}
async def main():
    found = {}
    for each in await asyncio.gather(*map(running, urls)):
        found.update(each)
    changes = [name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)]
    print(len(found), "connectors,", len(changes), "changes")
asyncio.run(main())
"""
PLAN = "from mm2mgr.cli import main; main()"
# Runs a script and names what it has loaded at its end, in the order in which it was loaded.
LOADED = """
import sys
before, script = set(sys.modules), sys.argv.pop(1)
try:
    exec(script, {})
except SystemExit as end:
    assert not end.code
print(*(name for name in sys.modules if name not in before), file=sys.stderr)
"""
IMPORTS = """
import contextlib, importlib, sys
for name in sys.argv[1].split():
    with contextlib.suppress(ImportError):  # what a package has put there by itself
        importlib.import_module(name)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds and print the figures; return 1 when the ratio beyond imports is above its bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11, help="measured rounds (default: 11), after one to warm up")
    parser.add_argument("--connectors", type=int, default=CONNECTORS, help=f"default: {CONNECTORS}")
    parser.add_argument(
        "--instructions", action="store_true", help="Count instructions under valgrind, each process once."
    )
    parser.add_argument("--profile", type=Path, help="Also write a profile of one `plan` for pstats to this file.")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mm2mgr-plan-noop-")))
        fakes = Fakes(folder, given.connectors, stack)
        scripts = {
            "floor": (FLOOR, str(fakes.tree), str(fakes.desired), *fakes.urls),
            "mm2mgr plan": (PLAN, "--clusters", str(fakes.tree), "plan"),
        }
        commands = {}
        for name, script in scripts.items():
            said = subprocess.run(
                [sys.executable, "-c", LOADED, *script], cwd=REPOSITORY, capture_output=True, text=True, check=True
            )
            nothing = ("0 changes", f" 0 to delete, {given.connectors} unchanged")
            if not any(line.endswith(nothing) for line in said.stdout.splitlines()):
                raise SystemExit(f"{name}: there was something to change:\n{said.stdout[-2000:]}")
            commands[name] = ("-c", *script)
            commands[f"{name}: imports"] = ("-c", IMPORTS, said.stderr.splitlines()[-1])
        if given.instructions:
            counts = [counted([sys.executable, *command]) for command in commands.values()]
            for name, count in zip(commands, counts, strict=True):
                print(f"{name:<22}{count / 1e6:>10,.0f} million instructions")
            return verdict(counts)
        runs: dict[str, list[Run]] = {name: [] for name in commands}
        for number in range(1 + max(1, given.rounds)):
            for name, command in commands.items():
                run = timed([sys.executable, *command], {})
                if number:
                    runs[name].append(run)
        requests = fakes.requests_of([sys.executable, "-c", *scripts["mm2mgr plan"]])
        if given.profile:
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "cProfile",
                    "-o",
                    str(given.profile),
                    "-m",
                    "mm2mgr",
                    *scripts["mm2mgr plan"][1:],
                ],
                cwd=REPOSITORY,
                stdout=subprocess.DEVNULL,
                check=True,
            )
    print(
        f"plan of {given.connectors} connectors with nothing to change, Python {sys.version.split()[0]}, median of {given.rounds}"
    )
    print("\n".join(table(runs)))
    print(f"requests to each Connect cluster: {requests}, the floor's: 2")
    return verdict([min(run.cpu_seconds for run in each) for each in runs.values()])


def verdict(costs: Sequence[float]) -> int:
    """Print what `plan` takes without its imports, as a multiple of the floor without its own; return 1 above the bound."""
    floor, floor_imports, plan, plan_imports = costs
    ratio = (plan - plan_imports) / (floor - floor_imports)
    print(f"beyond imports: {ratio:.2f} times the floor, bound {BOUND:g}")
    return int(ratio > BOUND)


def counted(command: Sequence[str]) -> int:
    """Return how many instructions a process takes; hashes of text are the same in each, and so is what depends on them."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    said = subprocess.run(valgrind, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True).stderr
    return int(re.search(r"Collected : (\d+)", said)[1])  # type: ignore[index]


class Fakes:
    """The tree, two fake Connect clusters that run just what it says, and the desired configs as a file."""

    def __init__(self, folder: Path, connectors: int, stack: ExitStack) -> None:
        sys.path.insert(0, str(REPOSITORY))
        from tests.fake_connect import FakeConnect, serving

        self.tree, self.desired = folder / "tree.yaml", folder / "desired.json"
        self._fakes = [FakeConnect(cluster_id=f"id-{target}") for target in range(TARGETS)]
        self.urls = [stack.enter_context(serving(fake)) for fake in self._fakes]
        self.tree.write_text("\n".join(tree_lines(connectors, self.urls)))
        rendered = subprocess.run(
            [sys.executable, "-m", "mm2mgr", "--clusters", str(self.tree), "render", "-o", "json"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(rendered.stdout)
        assert len(found) == connectors, len(found)
        self.desired.write_text(json.dumps({one["connector"]: one["config"] for one in found}))
        for one in found:
            self._fakes[int(one["connect"].removeprefix("t"))].add(one["connector"], one["config"])

    def requests_of(self, command: Sequence[str]) -> int:
        """Return how many requests one process makes to each Connect cluster."""
        before = [len(fake.requests) for fake in self._fakes]
        subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True)
        return max(len(fake.requests) - count for fake, count in zip(self._fakes, before, strict=True))


def tree_lines(connectors: int, urls: Sequence[str]) -> Iterator[str]:
    """Write a tree whose flows, with checkpoints and heartbeats of each pair, make so many connectors."""
    pairs = [(source, target) for source in range(SOURCES) for target in range(TARGETS)]
    yield "owner: benchmark"
    yield "defaults: {flows: {refresh_interval: 10min}}"
    yield "clusters:"
    for source in range(SOURCES):
        yield f'  s{source}: {{bootstrap_servers: ["s{source}.example:9092"]}}'
    for target in range(TARGETS):
        yield f'  t{target}: {{bootstrap_servers: ["t{target}.example:9092"], cluster_id: id-{target}}}'
    yield "connect:"
    for target, url in enumerate(urls):
        yield f'  t{target}: {{url: "{url}", kafka: t{target}}}'
    yield "flows:"
    for number in range(connectors - 2 * len(pairs)):
        source, target = pairs[number % len(pairs)]
        yield f"  flow-{number}:"
        yield f"    sources: [s{source}]"
        yield f"    targets: [t{target}]"
        yield f"    topics: {{include: ['team{number}[.].*', 'shared{number}'], exclude: ['.*[.]tmp']}}"
        yield f"    tasks: {{max: {1 + number % 8}}}"


def table(runs: dict[str, list[Run]]) -> Iterator[str]:
    """Return the medians as lines."""
    yield f"{'process':<22}{'wall':>11}{'cpu':>11}{'least cpu':>12}"
    for name, measured in runs.items():
        wall, cpu = (
            statistics.median(each) for each in zip(*((r.wall_seconds, r.cpu_seconds) for r in measured), strict=True)
        )
        least = min(run.cpu_seconds for run in measured)
        yield f"{name:<22}{wall * 1000:>8.0f} ms{cpu * 1000:>8.0f} ms{least * 1000:>9.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
