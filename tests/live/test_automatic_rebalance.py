"""`serve --with rebalance` on real brokers and a worker with the plugin: a task over its capacity falls behind, its partitions are spread,
and it catches up; a restart of the server gives no second round, and no record is lost.

A quota of each task's producer is the capacity of a task, so that one is really overloaded while the machine is not.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx import Client

from mm2mgr.assignment import ASSIGNED_KEY, Assignment, parse_assigned, spread
from mm2mgr.assignment_text import ASSIGNMENT_KEY
from mm2mgr.kafka.quotas import QuotaEntity, write_quotas
from mm2mgr.operations import write_plugin
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.jars import DEFAULT_VERSION
from mm2mgr.sandbox.runtime import kafka_runtime

from .command import Tree
from .conftest import WORKER
from .pair import Pair, flow, serving_pair
from .record_ids import prove, read_ids
from .seen import config_of, create, task_configs, until
from .traffic import producing

pytestmark = [pytest.mark.live, pytest.mark.matrix]
NAME = "mm2.src.tgt.source.even"
TASKS, CAPACITY, MAX_LAG_SECONDS = 4, 200_000, 5
TOPICS = ("app.orders", "app.clicks", "app.carts")
# Records per second of each partition: dealt in turn, the busy ones of all topics meet in task 0, with 60 % of the traffic.
RATES = {
    TopicPartition(topic, number): rate for topic in TOPICS for number, rate in enumerate((40, 6, 8, 6, 20, 6, 8, 6))
}
VALUE = b"%09d" + b"x" * 1_500
PRODUCER = "{compression.type: none, buffer.memory: 200000, batch.size: 16384, linger.ms: 0}"
MORE = (
    f", tasks: {{max: {TASKS}, capacity: {CAPACITY // 1000} kB/s}}, max_lag: {MAX_LAG_SECONDS}s"
    f", balance: {{by: plugin, automatic: [overload]}}, record_producer: {PRODUCER}"
)


def assigned(pair: Pair) -> Assignment:
    """Return the assignment of the tasks that run."""
    return Assignment(tuple(parse_assigned(task[ASSIGNED_KEY]) for task in task_configs(pair.url, NAME)))


@contextmanager
def skewed_traffic(pair: Pair) -> Iterator[None]:
    """Produce ten times a second what the rates ask for; each record has a number of its own."""
    numbers, due = itertools.count(), dict.fromkeys(RATES, 0.0)

    def entries() -> Iterator[tuple[TopicPartition, bytes, bytes]]:
        for partition, rate in RATES.items():
            due[partition] += rate / 10
            while due[partition] >= 1:
                due[partition] -= 1
                number = next(numbers)
                yield partition, VALUE % number, str(number).encode()

    with producing(pair.source, entries, 0.1):
        yield


@contextmanager
def server(tree: Tree, store: str) -> Iterator[Client]:
    arguments = ("--with", "rebalance", "--every", "2s", "--survey-every", "10s", "--store", store)
    with tree.serve(*arguments) as (running, url), Client(base_url=url, trust_env=False, timeout=20) as client:
        yield client
        os.kill(running.pid, signal.SIGKILL)


def looked(client: Client) -> dict[str, Any]:
    answer = client.get("/api/rebalance")
    return dict(answer.json()) if answer.status_code == 200 else {"flows": [], "done": []}


def lag_seconds(client: Client) -> float | None:
    totals = client.get("/api/status").json()["lag"].values()
    return next((total["lag_seconds"]["value"] for total in totals if total["flow"].startswith("even")), None)


@pytest.mark.parametrize("version", [DEFAULT_VERSION, "3.6.2"])
def test_a_task_over_its_capacity_is_relieved_by_serve_and_nothing_is_lost(
    tmp_path: Path, tree: Tree, version: str
) -> None:
    runtime = kafka_runtime(version)
    write_plugin(tmp_path / "plugins" / "mm2mgr")
    settings, store = {**WORKER, "plugin.path": str(tmp_path / "plugins")}, str(tmp_path / "store")
    with serving_pair(
        tmp_path, runtime, workers=("first",), settings=settings, brokers={"quota.window.num": "2"}
    ) as pair:
        create(pair.source, list(TOPICS), 8)
        quotas = {QuotaEntity(f"connector-producer-{NAME}-{task}"): CAPACITY for task in range(TASKS)}
        assert not write_quotas(pair.target, quotas)
        text = pair.yaml("even", flow("even", '"app[.].*"', MORE), "checkpoints: false, heartbeats: false, ")
        tree.write(text.replace("kafka: tgt}", "kafka: tgt, workers: {count: 1}, flush_interval: 1s}"))
        tree.run("apply", "--yes")
        until(lambda: assigned(pair), lambda tasks: len(tasks.tasks) == TASKS, "no four tasks", 120)
        rates = {partition: float(rate) for partition, rate in RATES.items()}
        before = spread(assigned(pair).loads(rates))
        with (
            skewed_traffic(pair),
            tree.start("sample", "--interval", "1s", "--duration", "10min", "--store", store) as sampling,
        ):
            until(
                lambda: tree.attempt("throughput", "--no-spark", "--store", store),
                lambda said: "app.orders" in said,
                "no roll-up",
                120,
            )
            tree.run("throughput", "--no-spark", "--store", store)
            with server(tree, store) as client:
                seen = until(lambda: looked(client), lambda found: found["done"], "nothing was rebalanced", 240)
                (done,) = seen["done"]
                print(json.dumps(done, indent=1)[:3000])
                assert done["outcome"] in {"written", "inconclusive"}, done
                assert (done["decision"]["trigger"], "late" in done["decision"]["reason"]) == ("overload", True)
                after = spread(assigned(pair).loads(rates))
                assert before > 2
                assert after <= 1.1
                level = until(
                    lambda: lag_seconds(client),
                    lambda lag: lag is not None and lag < MAX_LAG_SECONDS / 2,
                    "not level",
                    240,
                )
                counted = 'mm2mgr_rebalances_total{flow="even:src->tgt",owner="even"} 1.0'
                metrics = until(lambda: client.get("/metrics").text, lambda text: counted in text, "not counted", 60)
                print([line for line in metrics.splitlines() if "rebalance" in line and not line.startswith("#")])
            placed = config_of(pair.url, NAME)[ASSIGNMENT_KEY]
            with server(tree, store) as client:  # the one before was killed: the history has the round of today
                flows = until(lambda: looked(client), lambda found: found["flows"], "no look", 120)["flows"]
                assert (flows[0]["rounds"], flows[0]["decision"]["hold"]) == (1, "rounds")
            sampling.kill()
        tree.run("plan", "--detailed-exitcode")
        assert config_of(pair.url, NAME)[ASSIGNMENT_KEY] == placed
        print(tree.run("history"))
        print(f"busiest ÷ mean: {before:.2f} before, {after:.2f} after; lag {level:.1f} s at the end")
        source = read_ids(pair.source, RATES)
        remote = [TopicPartition(f"src.{partition.topic}", partition.partition) for partition in RATES]

        def missing() -> int:
            return sum(proof.missing for proof in prove(source, read_ids(pair.target, remote), "src."))

        until(missing, lambda count: count == 0, "records are lost", 120)
        proofs = prove(source, read_ids(pair.target, remote), "src.")
        twice = sum(proof.duplicated for proof in proofs)
        print(f"{sum(map(len, source.values()))} records, none lost, {twice} more than once")
