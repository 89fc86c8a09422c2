"""`snapshot`: what the clusters answer now, in a file for which commands answer again later, anywhere, without the
clusters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mm2mgr.check.run import check
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import Mm2mgrError
from mm2mgr.evidence.read import read_clusters
from mm2mgr.files import check_free, read_regular
from mm2mgr.lint.workers import ask_worker, harmless_overrides, read_estates
from mm2mgr.live.questions import (
    AnsweringWorker,
    ClusterId,
    Configs,
    PartitionCounts,
    Quotas,
    Statuses,
    StoredOffsets,
    TaskConfigs,
    TextsByKey,
    TopicRetention,
)
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import Clusters, answered, read
from mm2mgr.live.snapshot import Question, Snapshot, ask, or_error, side_by_side
from mm2mgr.live.snapshot_file import SNAPSHOT, together, write_snapshot
from mm2mgr.observe.read import ObserveOptions, reading_of
from mm2mgr.observe.reading import Reading
from mm2mgr.observe.state_file import state_file, timed_looks
from mm2mgr.operations.history import drift_of
from mm2mgr.operations.lag import newest_heartbeat
from mm2mgr.operations.workspace import Workspace
from mm2mgr.plan.planner import plan_steps
from mm2mgr.timing import wait_for
from mm2mgr.topology import Topology
from mm2mgr.truth.reach import type_of

_LIMITS = Limits(kafka_seconds=10.0)


@dataclass(frozen=True)
class SnapshotTaken:
    """A snapshot that was written. `failed` are clusters that did not answer something, with the first reason."""

    file: Path
    size_bytes: int
    answers: int
    failed: Mapping[str, str] = field(default_factory=dict)

    json_keys = "file bytes=size_bytes answers failed"


def snapshot(workspace: Workspace, out: Path) -> SnapshotTaken:
    """Ask all clusters of the tree what the reading commands ask, and write the answers to a file, secrets masked.

    Nothing else is written; a cluster that does not answer is in the file with its failure.
    """
    workspace.refuse_as_output(out, "--out")
    check_free(out, SNAPSHOT)
    taken = wait_for(_take(workspace))
    size = write_snapshot(out, taken)
    failed = {
        question.cluster: answer.one_line
        for question, answer in reversed([*taken.answers.items()])
        if isinstance(answer, Mm2mgrError)
    }
    return SnapshotTaken(out, size, len(taken.answers), failed)


def _memory_in(file: Path) -> str:
    """Return the memory of earlier looks; empty where it is missing or damaged, which `status` says."""
    try:
        text = read_regular(file).decode()
        json.loads(text)
    except (OSError, ValueError, RecursionError):
        return ""
    return text


async def _take(workspace: Workspace) -> Snapshot:
    topology, connectors, clusters = workspace.topology, workspace.connectors, Clusters.of(workspace.topology)
    file = state_file(str(topology.owner))
    how = ObserveOptions(earlier=timed_looks(file))
    memory = _memory_in(file)
    first = [kind(name) for name in topology.connects for kind in (Configs, Statuses, AnsweringWorker)]
    taken = await read(first, clusters, _LIMITS)
    taken = taken.with_answers(dict(together(taken.answers)))
    workers = (
        ask_worker(name, harmless_overrides(key for c in connectors if c.connect == name for key in c.config))
        for name in topology.connects
    )
    steps = side_by_side(
        reading_of(topology, connectors, topology.flows, how),
        plan_steps(topology, connectors, spec=workspace.spec),
        read_estates(topology.connects),
        drift_of(workspace, ()),
        ask(_whole(topology, taken)),
        read_clusters(topology.flows),
        check(topology, connectors, topology.flows, workspace.spec),
        *map(or_error, workers),
    )
    (reading, *_), taken = await answered(steps, clusters, _LIMITS, taken)
    taken = await read(_of_lag(reading), clusters, _LIMITS, taken)
    return replace(taken, taken_at=reading.taken_at, memory=memory)


def _whole(topology: Topology, taken: Snapshot) -> Iterator[Question[Any]]:
    """Yield what a changed tree may ask for, too."""
    for alias in topology.clusters:
        yield from (PartitionCounts(alias), ClusterId(alias), Quotas(alias))
    for connect in topology.connects.values():
        if connect.model.history:
            yield TextsByKey(connect.kafka, HISTORY_TOPIC)
        infos = taken.get(Configs(connect.name))
        for name, info in {} if isinstance(infos, Mm2mgrError) else infos.items():
            if type_of(info.config.get("connector.class", "")) == "source":
                yield from (StoredOffsets(connect.name, name), TaskConfigs(connect.name, name))


def _of_lag(reading: Reading) -> Iterator[Question[Any]]:
    """Yield what `lag` asks beside the state of clusters."""
    for flow in reading.flows:
        for topic in dict.fromkeys(partition.topic for partition in reading.clusters[flow.source.alias].offsets):
            yield TopicRetention(flow.source.alias, topic)
        if question := newest_heartbeat(reading, flow):
            yield question
