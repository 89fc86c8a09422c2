"""Measures the sizing of a large workspace: 1 000 flows of 50 clusters, 90 000 topics, 500 000 partitions with skewed rates, four weeks.

Prints seconds of each stage (CPU, what an idle machine takes, and wall clock) and the peak memory of a fresh Python that starts from files, beside reading the same Parquet and nothing else;
what the sum of the rates alone would have given; exits with 1 above 60 s or 4 GiB. It contacts nothing.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mm2mgr.sizing.tasks import SizedFlow

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
BOUND_SECONDS, BOUND_BYTES = 60.0, 4 * 2**30
CLUSTERS, FLOWS_A_CLUSTER, TOPICS_A_FLOW, PARTITIONS_A_FLOW = 50, 20, 90, 500
HUBS = 5
WEEKS = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the workspace, size it in a fresh Python, print, and return 1 above a bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # where the estate is, for the fresh Python
    parser.add_argument("--only-read", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.folder:
        return size(given.folder, given.only_read)
    with tempfile.TemporaryDirectory(prefix="mm2mgr-sizing-") as folder:
        child = [sys.executable, __file__, "--folder", folder]
        subprocess.run([sys.executable, "-c", _WRITE, str(REPOSITORY), folder], check=True)
        subprocess.run([*child, "--only-read"], check=True)
        return subprocess.run(child, check=False).returncode


_WRITE = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/benchmarks"]
from pathlib import Path
import sizing_estate
sizing_estate.write(Path(sys.argv[2]))
"""


def listing(cluster: int) -> dict[str, int]:
    """Return the topics of a cluster, 20 flows' and in no order."""
    chance = random.Random(cluster)
    topics: dict[str, int] = {}
    for flow in range(FLOWS_A_CLUSTER):
        counts = [1] * TOPICS_A_FLOW
        for _ in range(PARTITIONS_A_FLOW - TOPICS_A_FLOW):
            counts[int(chance.triangular(0, TOPICS_A_FLOW, 0)) % TOPICS_A_FLOW] += 1
        topics |= {f"f{flow}.team-{number % 7}.events-{number}": count for number, count in enumerate(counts)}
    names = list(topics)
    chance.shuffle(names)
    return {name: topics[name] for name in names}


def write(folder: Path) -> None:
    """Write the tree and a throughput result with a few busy partitions and many quiet ones."""
    from tests.cli.load import measured

    text = ["owner: bench", "clusters:"]
    names = [f"c{number}" for number in range(CLUSTERS)] + [f"hub{number}" for number in range(HUBS)]
    text += [f'  {name}: {{bootstrap_servers: ["{name}:9092"]}}' for name in names]
    text += [
        "connect:",
        *(f'  w{number}: {{url: "http://w{number}:8083", kafka: hub{number}}}' for number in range(HUBS)),
    ]
    text += ["flows:"]
    for cluster in range(CLUSTERS):
        text += [
            f"  f{cluster}-{flow}: {{sources: [c{cluster}], targets: [hub{cluster % HUBS}], "
            f'heartbeats: {str(flow == 0).lower()}, topics: {{include: ["f{flow}[.].*"]}}}}'
            for flow in range(FLOWS_A_CLUSTER)
        ]
    (folder / "clusters").mkdir()
    (folder / "clusters" / "tree.yaml").write_text("\n".join(text) + "\n")
    chance = random.Random(0)
    rates = {
        (f"c{cluster}", topic, partition): chance.lognormvariate(10.0, 1.8)
        for cluster in range(CLUSTERS)
        for topic, count in listing(cluster).items()
        for partition in range(count)
    }
    measured(folder / "result", rates)
    repeat(folder / "result", WEEKS)


def repeat(store: Path, weeks: int) -> None:
    """Give every hour before the one that is rolled up the same roll-up: rows of the same file, copied for each hour."""
    from mm2mgr.samples.schema import hour_of, hour_start_ms
    from mm2mgr.samples.tables import DataFile
    from mm2mgr.throughput.rollup import throughput_table

    table = throughput_table(store)
    state = table.snapshot()
    new = []
    for back in range(1, weeks * 168):
        for file in state.files:
            hour = hour_of(hour_start_ms(file.values[0]) - back * 3_600_000)
            path = f"period={hour}/{Path(file.path).name}"
            (store / "throughput" / path).parent.mkdir(exist_ok=True)
            (store / "throughput" / path).hardlink_to(store / "throughput" / file.path)
            new.append(DataFile(path, file.size, file.rows, (hour, file.values[1])))
    table.replace(state, [], new)


def size(folder: Path, only_read: bool) -> int:
    """Size the estate stage by stage, half of the flows by what their tasks were assigned."""
    from mm2mgr.assignment import ASSIGNED_KEY, round_robin
    from mm2mgr.connectors import RunningConnector, TaskConfig
    from mm2mgr.evidence.measured import read_rates
    from mm2mgr.evidence.read import Evidence
    from mm2mgr.operations.workspace import Workspace
    from mm2mgr.partitions import listing_of, predict
    from mm2mgr.sizing.scenario import size_scenario
    from mm2mgr.sizing.stability import Policy, decide, overrides_document, sizing_as_decided
    from mm2mgr.spec.files import SIZING

    if only_read:
        with stage("reading the rates and nothing else"):
            read_rates(folder / "result", None, "p95")
        return 0
    spent, began = time.process_time(), time.perf_counter()
    with stage("read the rates"):
        measured = read_rates(folder / "result", None, "p95")
    with stage("load and expand the tree"):
        workspace = Workspace((folder / "clusters",))
        flows = workspace.topology.flows
    with stage("make up answers of brokers and workers"):
        answers = {f"c{number}": listing(number) for number in range(CLUSTERS)}
        running: dict[str, RunningConnector | str] = {flow.id: "not created yet" for flow in flows}
        for flow in flows[::2]:
            order = predict(listing_of(answers[flow.source.alias]), flow.assigns).order
            texts = [",".join(map(str, task)) for task in round_robin(order, 8).tasks]
            tasks = tuple(TaskConfig(number, {ASSIGNED_KEY: text}) for number, text in enumerate(texts))
            running[flow.id] = RunningConnector(flow.connector_name("source"), {}, tasks=tasks)
    with stage("evidence"):
        listings = {alias: listing_of(answer) for alias, answer in answers.items()}
        scenarios = Evidence(flows, measured, listings, connectors=running).scenarios()
    with stage("size"):
        found = {one.flow_id: size_scenario(one) for one in scenarios}
    with stage("decide and write"):
        decisions = decide(found, {}, Policy(), 0)
        sizings = [sizing_as_decided(each, decisions[flow_id]) for flow_id, each in found.items()]
        document = overrides_document(sizings, measured.window, "p95")
        SIZING.write(SIZING.path(workspace.files), document["sizing"], {flow.id for flow in flows}, {})
    spent, began = time.process_time() - spent, time.perf_counter() - began
    partitions, topics = sum(len(one.order) for one in found.values()), sum(map(len, answers.values()))
    print(f"{len(sizings)} flows, {topics} topics, {partitions} partitions: {spent:.1f} s CPU in {began:.1f} s", end="")
    print(f" (bound {BOUND_SECONDS:.0f} s), peak {memory() / 2**30:.2f} GiB (bound {BOUND_BYTES / 2**30:.0f} GiB)")
    print(judged(found))
    return 1 if spent > BOUND_SECONDS or memory() > BOUND_BYTES else 0


def judged(evidence: Mapping[str, SizedFlow]) -> str:
    """Say what the numbers are worth, beside those of the sum of the rates alone."""
    each = evidence.values()
    by_sum = [one.load.least for one in each]
    over = sum(not one.load.fits(least) for one, least in zip(each, by_sum, strict=True))
    fit = sum(one.load.fits(one.sizing.tasks) for one in each)
    capped = sum(one.sizing.capped_by is not None for one in each)
    live = sum(one.sizing.assignment == "live" for one in each)
    alone = f"the sum of rates alone: {sum(by_sum)}, too small for {over} flows"
    tasks = sum(one.sizing.tasks for one in each)
    return f"tasks: {tasks} ({alone}); {fit} flows fit, {capped} capped by the limit; {live} assignments read back"


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Print what a stage took: CPU time, which a busy machine disturbs least, and wall clock."""
    spent, began = time.process_time(), time.perf_counter()
    yield
    print(f"{name:40}{time.process_time() - spent:7.2f} s CPU{time.perf_counter() - began:7.2f} s wall", flush=True)


def memory() -> int:
    """Return the peak resident memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
