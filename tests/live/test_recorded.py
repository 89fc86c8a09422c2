"""A snapshot of real clusters, beside the recorded one of the same Kafka version that the fast tests of commands answer from.

`UPDATE_RECORDED=1` records it anew. So no recorded answer drifts from what real brokers and workers say.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.sandbox.jars import DEFAULT_VERSION
from mm2mgr.sandbox.runtime import kafka_runtime
from tests.cli.recorded import FOLDER, TREE, VERSIONS

from .command import Tree
from .conftest import WORKER
from .pair import Pair, flow, serving_pair
from .seen import commit, create, end_offset, rest, statuses, until, write_values

UPDATE = "UPDATE_RECORDED"
FLOWS = (
    flow("orders", "orders", ", max_lag: 1min")
    + flow("payments", "payments")
    + flow("logs", "logs", ", record_producer: {max.request.size: 1}")
)
RESTS = "mm2.src.tgt.source."
FOREIGN = "theirs"
HEARTBEATS = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",
    "tasks.max": "1",
    "source.cluster.alias": "elsewhere",
    "target.cluster.alias": "tgt",
    "emit.heartbeats.enabled": "false",
    "replication.factor": "1",
}
# What another run, machine or moment changes, and what stands for it in the recorded file.
VARIES = {
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?": "2026-11-26T20:00:00+00:00",
    r"\b1[6-9]\d{11}\b": "1795809600000",
    r"\b1[6-9]\d{8}\.\d+\b": "1795809600.0",
    r"\b1[6-9]\d{8}\b(?!\.)": "1795809600",  # what the lease commits as an offset
    r"/[\w./-]*\bclusters\b": "/clusters",
}
# Ids of clusters and of runs, each numbered by its place in the file.
IDS = {r"(?<=\")(?<!\"ask\":\")[\w+/-]{22}(?=\")": "the-id-of-cluster-%05d", r"\b[0-9a-f]{12}(?=-\d)": "%012d"}
LONGEST = 120
"""A longer text is a stack trace, whose lines differ from run to run."""


@contextmanager
def estate(folder: Path, version: str, tree: Tree) -> Iterator[Pair]:
    """A flow that has mirrored all, one that was paused before it had, one whose task FAILED, and a connector of others."""
    settings = {**WORKER, "offset.flush.interval.ms": "1000"}
    with serving_pair(folder, kafka_runtime(version), workers=["w"], settings=settings) as pair:
        create(pair.source, ["orders"], partitions=3)
        create(pair.source, ["payments", "logs"])
        write_values(pair.source, "orders", *(b"%d" % number for number in range(30)))
        write_values(pair.source, "payments", *(b"%d" % number for number in range(5)))
        commit(pair.source, "readers", "orders", 20)
        tree.write(pair.yaml("recorded", FLOWS, workers=", flush_interval: 1s"))
        tree.run("apply", "--yes", "--wait", "90")
        until(lambda: end_offset(pair.target, "src.orders"), lambda end: end == 30)
        until(lambda: end_offset(pair.target, "src.payments"), lambda end: end == 5)
        tree.run("pause", "payments", "--reason", "a test")
        write_values(pair.source, "payments", *(b"%d" % number for number in range(7)))
        write_values(pair.source, "logs", b"too large")
        until(lambda: _states(pair, "logs"), lambda states: states == ["FAILED"])
        addresses = {f"{side}.cluster.bootstrap.servers": pair.tgt.bootstrap_servers for side in ("source", "target")}
        rest("PUT", f"{pair.url}/connectors/{FOREIGN}/config", {"name": FOREIGN, **HEARTBEATS, **addresses})
        until(lambda: statuses(pair.url).get(FOREIGN, {}).get("connector", {}).get("state"), lambda s: s == "RUNNING")
        yield pair


def _states(pair: Pair, flow_name: str) -> list[str]:
    return [task["state"] for task in statuses(pair.url)[f"{RESTS}{flow_name}"]["tasks"]]


def without_what_varies(pair: Pair, text: str) -> str:
    """Return a text with fixed addresses, ids and times."""
    names = {pair.src.bootstrap_servers: "src:9092", pair.tgt.bootstrap_servers: "tgt:9092"}
    for worker in pair.workers:
        names |= {worker.url: "http://pair:8083", worker.url.removeprefix("http://"): "pair:8083"}
    for real, name in names.items():
        text = text.replace(real, name)
    for pattern, name in VARIES.items():
        text = re.sub(pattern, name, text)
    for pattern, name in IDS.items():
        numbers = {id_: number for number, id_ in enumerate(dict.fromkeys(re.findall(pattern, text)))}
        text = re.sub(pattern, lambda match, name=name, numbers=numbers: name % numbers[match[0]], text)
    return text


def shape(value: Any) -> Any:
    """Return what a recorded answer is held to: its keys, its types, and its short texts."""
    if isinstance(value, dict):
        return {key: shape(below) for key, below in value.items()}
    if isinstance(value, list):
        return [shape(below) for below in value]
    if isinstance(value, str):
        return value if len(value) < LONGEST else "a long text"
    return type(value).__name__ if isinstance(value, (int, float)) else value


def answers(text: str) -> list[str]:
    """Return the shape of each answer by its question, as lines."""
    document = json.loads(text)
    named = (
        {key: value for key, value in entry.items() if key not in {"answer", "failed", "hint"}}
        for entry in document["answers"]
    )
    shapes = {
        json.dumps(shape(question), sort_keys=True): shape(entry)
        for question, entry in zip(named, document["answers"], strict=True)
    }
    return json.dumps(shapes, indent=1, sort_keys=True).splitlines()


@pytest.mark.live
@pytest.mark.parametrize(
    "version",
    [
        version if version == DEFAULT_VERSION else pytest.param(version, marks=pytest.mark.matrix)
        for version in VERSIONS
    ],
)
def test_real_clusters_answer_as_recorded(
    version: str, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MM2MGR_WHO", "somebody")
    recorded = FOLDER / f"kafka-{version}.json"
    with estate(tmp_path / "servers", version, tree) as pair:
        tree.run("snapshot", "--out", str(tmp_path / "now.json"))
        text = without_what_varies(pair, (tmp_path / "now.json").read_text())
        if UPDATE in os.environ:
            recorded.write_text(text)
            TREE.write_text(without_what_varies(pair, (tree.folder / "tree.yaml").read_text()))
    drift = [*unified_diff(answers(recorded.read_text()), answers(text), lineterm="", n=2)]
    assert not drift, "\n".join(drift)
