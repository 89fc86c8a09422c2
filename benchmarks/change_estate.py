"""Measures `plan` without a change and `apply` of every connector on 20 Connect clusters that answer after 20 ms, in seconds and requests.

Beside them, in turns: a bare script that reads each cluster once, validates what is missing and sends it, eight at a time per cluster; a loop
that PUTs one connector after the other; and a client from PyPI (kafka-connect-py), called from as many threads. Only mm2mgr reads
the YAML, renders, asks the workers' policy, checks, waits until all is seen to run and reads back; the others get the configs from
a file. The estate runs in a process of its own, with brokers that hold no topics. Exits with 1 when mm2mgr takes, beyond its
start-up, more than twice the bare script's time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from httpx import Client

try:
    from benchmarks.cold_start import REPOSITORY, Run, timed
except ModuleNotFoundError:  # run as a script
    from cold_start import REPOSITORY, Run, timed  # type: ignore[no-redef]

BOUND = 2.0
BARE = """
import asyncio, json, sys, httpx
with open(sys.argv[1]) as file:
    wanted = json.load(file)
async def cluster(url, wish):
    async with httpx.AsyncClient(verify=False, trust_env=False, timeout=60) as http:
        found = json.loads((await http.get(url + "/connectors?expand=info")).text)
        live = {name: each["info"]["config"] for name, each in found.items()}
        gate = asyncio.Semaphore(8)
        async def validate(name):
            async with gate:
                path = f"{url}/connector-plugins/{wish[name]['connector.class']}/config/validate"
                assert (await http.put(path, json=wish[name])).json()["error_count"] == 0
        async def create(name):
            async with gate:
                answer = await http.post(url + "/connectors", json={"name": name, "config": wish[name]})
                assert answer.status_code == 201, answer.text
        missing = [name for name in wish if wish[name] != live.get(name)]
        await asyncio.gather(*map(validate, missing))
        await asyncio.gather(*map(create, missing))
        return len(missing)
async def main():
    print(sum(await asyncio.gather(*(cluster(url, wish) for url, wish in wanted.items()))), "changes")
asyncio.run(main())
"""
SERIAL = """
import json, sys
from httpx import Client
with open(sys.argv[1]) as file:
    wanted = json.load(file)
with Client(verify=False, trust_env=False, timeout=60) as http:
    for url, wish in wanted.items():
        for name, config in wish.items():
            answer = http.put(f"{url}/connectors/{name}/config", json=config)
            assert answer.status_code in (200, 201), answer.text
print(sum(map(len, wanted.values())), "changes")
"""
PEER = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from kafka_connect import KafkaConnect
with open(sys.argv[1]) as file:
    wanted = json.load(file)
def cluster(url):
    wish, client = wanted[url], KafkaConnect(url)
    live = {name: each["info"]["config"] for name, each in client.list_connectors(expand="info").items()}
    missing = [{"name": name, "config": config} for name, config in wish.items() if config != live.get(name)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(client.create_connector, missing))
    return len(missing)
with ThreadPoolExecutor(len(wanted)) as threads:
    print(sum(threads.map(cluster, wanted)), "changes")
"""
MM2MGR = "from mm2mgr.cli import main; main()"
# What a command loads, and nothing of what it does.
START_UP = """
import mm2mgr.cli, mm2mgr.operations.plan, mm2mgr.apply.applied, mm2mgr.apply.leases
import mm2mgr.output.apply_text, mm2mgr.output.console, mm2mgr.templating.printer
"""
Command = tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """Something to measure: who does it from an empty estate, or one where there is nothing to do."""

    title: str
    empty: bool
    commands: dict[str, Command]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds and print the figures; return 1 above a bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds (default: 5), after one to warm up")
    parser.add_argument("--connectors", type=int, default=500, help="default: 500")
    parser.add_argument("--peer-python", default=sys.executable, help="The Python that has kafka-connect-py.")
    given = parser.parse_args(arguments)
    peer = [given.peer_python, "-c", "import kafka_connect"]
    has_peer = subprocess.run(peer, stderr=subprocess.DEVNULL, check=False).returncode == 0
    if not has_peer:
        print("without the peer: install kafka-connect-py, or name the Python that has it with --peer-python")
    with tempfile.TemporaryDirectory(prefix="mm2mgr-change-") as folder, estate(Path(folder), given.connectors) as made:
        ours = (sys.executable, "-c", MM2MGR, "--clusters", str(made.tree))
        others: dict[str, Command] = {"bare script": (sys.executable, "-c", BARE, str(made.desired))}
        if has_peer:
            others["kafka-connect-py"] = (given.peer_python, "-c", PEER, str(made.desired))
        serial = {"serial PUT loop": (sys.executable, "-c", SERIAL, str(made.desired))}
        start: dict[str, Command] = {"mm2mgr's start-up": (sys.executable, "-c", START_UP)}
        count = given.connectors
        jobs = [
            Job(f"{count} creates", True, {**others, **serial, **start, "mm2mgr apply": (*ours, "apply", "--yes")}),
            Job(f"{count} without change", False, {**others, **start, "mm2mgr plan": (*ours, "plan")}),
        ]
        return max([made.measured(job, max(1, given.rounds)) for job in jobs])


@dataclass(frozen=True)
class Estate:
    """The clusters of another process, the tree that names them and the same configs by URL."""

    tree: Path
    desired: Path
    urls: tuple[str, ...]
    connectors: int

    def measured(self, job: Job, rounds: int) -> int:
        """Measure one job and print it; return 1 above the bound."""
        runs: dict[str, list[Run]] = {name: [] for name in job.commands}
        asked: dict[str, Counter[str]] = {}
        for number in range(1 + rounds):
            for name, command in job.commands.items():
                self._visit("forget" if job.empty else "look")
                run = timed(list(command), {})
                if number:
                    runs[name].append(run)
                    asked[name] = self._visit("look")
        print(f"\n{job.title} on {len(self.urls)} Connect clusters, medians of {rounds}, load {os.getloadavg()[0]:.1f}")
        print(f"{'':<20}{'wall':>9}{'cpu':>9}{'reads':>8}{'writes':>8}")
        middle = {name: _median(each) for name, each in runs.items()}
        for name, one in middle.items():
            counts = asked[name]
            print(
                f"{name:<20}{one.wall_seconds:>7.2f} s{one.cpu_seconds:>7.2f} s{counts['read']:>8}{counts['write']:>8}"
            )
        bare, start, whole = middle["bare script"], middle["mm2mgr's start-up"], middle[list(middle)[-1]]
        wall = (whole.wall_seconds - start.wall_seconds) / bare.wall_seconds
        cpu = (whole.cpu_seconds - start.cpu_seconds) / bare.cpu_seconds
        print(f"mm2mgr beyond its start-up: {wall:.2f} times the bare script (CPU: {cpu:.2f} times), bound {BOUND:g}")
        return int(min(wall, cpu) > BOUND)

    def _visit(self, what: str) -> Counter[str]:
        """Have all clusters forget their connectors, or look; return how many requests there were since the last time."""
        found: Counter[str] = Counter()
        with Client(trust_env=False, timeout=60) as http:
            for url in self.urls:
                found.update(http.get(f"{url}/estate/{what}").json())
        return found


def _median(runs: Sequence[Run]) -> Run:
    return Run(
        *(statistics.median(each) for each in zip(*((r.wall_seconds, r.cpu_seconds) for r in runs), strict=True))
    )


@contextmanager
def estate(folder: Path, connectors: int) -> Iterator[Estate]:
    """Start the estate, and write its tree and the configs that the tree comes to."""
    sys.path.insert(0, str(REPOSITORY))
    from tests.scale.estate import tree_lines

    with subprocess.Popen(
        [sys.executable, "-m", "tests.scale.estate"],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as served:
        assert served.stdin is not None
        assert served.stdout is not None
        try:
            where = json.loads(served.stdout.readline())
            tree, desired = folder / "tree.yaml", folder / "desired.json"
            tree.write_text("\n".join(tree_lines(connectors, where["urls"], where["brokers"])))
            command = [sys.executable, "-m", "mm2mgr", "--clusters", str(tree), "render", "-o", "json"]
            rendered = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
            configs: dict[str, dict[str, object]] = {url: {} for url in where["urls"]}
            for one in json.loads(rendered.stdout):
                url = where["urls"][int(one["connect"].removeprefix("w"))]
                configs[url][one["connector"]] = {"name": one["connector"], **one["config"]}
            assert sum(map(len, configs.values())) == connectors
            desired.write_text(json.dumps(configs))
            yield Estate(tree, desired, tuple(where["urls"]), connectors)
        finally:
            served.stdin.close()


if __name__ == "__main__":
    sys.exit(main())
