"""What one look of `mm2mgr status` takes to find what else mirrors its topics, beside the same look at half of everything.

    python benchmarks/overlaps.py [--flows N] [--topics N] [--rounds N]

Flows with a prefix each, and beside them nothing, one foreign connector that takes every topic, twenty like it, twenty that differ, and as many as there
are flows that take other topics. Nothing is contacted: a look is built here, and only what judges it is measured. Exits with 1 where twice as much
takes more than three times as long.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from mm2mgr.connect.types import SOURCE_CLASS
from mm2mgr.connectors import ConnectorStatus, RunningConnector, TaskStatus
from mm2mgr.expand import expand
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.observe.reading import LiveConnector, OtherConnector, Reading, SeenConnect
from mm2mgr.problems.flows import find_overlaps
from mm2mgr.render import render
from mm2mgr.spec.files import load
from mm2mgr.topology import Topology

BOUND = 3.0
CONFIG = {
    "connector.class": SOURCE_CLASS,
    "source.cluster.alias": "A",
    "source.cluster.bootstrap.servers": "a:9092",
    "target.cluster.alias": "B",
    "target.cluster.bootstrap.servers": "b:9092",
}
Beside = Callable[[int], list[Mapping[str, str]]]
CASES: Mapping[str, Beside] = {
    "nothing": lambda flows: [],
    "one .*": lambda flows: [{"topics": ".*"}],
    "20 times .*": lambda flows: [{"topics": ".*"}] * 20,
    "20 that differ": lambda flows: [{"topics": ".*", "topics.exclude": f"t{n}[.].*"} for n in range(20)],
    "other topics": lambda flows: [{"topics": f"other{n}[.].*"} for n in range(flows)],
}


def topology_of(flows: int) -> Topology:
    """Return a tree of flows between two clusters, each with a prefix of its own."""
    lines = ["owner: bench", "clusters:", '  A: {bootstrap_servers: "a:9092"}', '  B: {bootstrap_servers: "b:9092"}']
    lines += ["connect:", '  cb: {url: "http://c:8083", kafka: B}', "flows:"]
    lines += [f"  f{n}: {{sources: [A], targets: [B], topics: {{include: ['t{n}[.].*']}}}}" for n in range(flows)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tree.yaml")
        file.write_text("\n".join(lines))
        return expand(load([file]))


def look_of(topology: Topology, beside: Beside, flows: int, topics: int) -> Reading:
    """Return what was read of the flows as they are declared, and of what runs beside them."""
    live = {
        connector.name: LiveConnector(
            connector,
            RunningConnector(
                connector.name,
                dict(connector.config),
                (0,),
                status=ConnectorStatus(connector.name, "RUNNING", tasks=(TaskStatus(0, "RUNNING"),)),
            ),
        )
        for connector in render(topology)
        if connector.type == "source"
    }
    others = tuple(
        OtherConnector("cb", f"other{number}", CONFIG | config, "RUNNING", "unmarked")
        for number, config in enumerate(beside(flows))
    )
    kafka = {"A": RunningKafka({f"t{n % flows}.x{n}": 1 for n in range(topics)}), "B": RunningKafka({})}
    connect = SeenConnect("cb", live, others=others, version="4.1.0")
    return Reading(0.0, topology.flows, {"cb": connect}, kafka, declared=topology.flows)


def seconds(look: Reading, rounds: int) -> tuple[float, int]:
    """Return the median CPU seconds of a look, and how many problems it has."""
    spent, problems = list[float](), 0
    for _ in range(rounds):
        begun = time.process_time()
        found, _ = find_overlaps(look)
        spent.append(time.process_time() - begun)
        problems = sum(map(len, found.values()))
    return statistics.median(spent), problems


def main() -> int:
    """Print the figures; return 1 above the bound."""
    parser = argparse.ArgumentParser(description="The cost of finding what else mirrors the topics of flows.")
    parser.add_argument("--flows", type=int, default=300)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    worst = 0.0
    sizes = [(given.flows // 2, given.topics // 2), (given.flows, given.topics)]
    trees = [topology_of(flows) for flows, _ in sizes]
    for label, beside in CASES.items():
        (half, _), (whole, problems) = (
            seconds(look_of(tree, beside, *size), given.rounds) for tree, size in zip(trees, sizes, strict=True)
        )
        ratio = whole / half
        worst = max(worst, ratio if problems or label == "other topics" else 0.0)
        print(
            f"  {given.flows} flows, {given.topics} topics, beside them {label:<15} {whole:6.3f} s CPU, "
            f"{ratio:4.1f} times that of half of it, {problems} problems"
        )
    print(f"twice as much takes {worst:.1f} times as long at most (bound {BOUND:g})")
    return int(worst > BOUND)


if __name__ == "__main__":
    sys.exit(main())
