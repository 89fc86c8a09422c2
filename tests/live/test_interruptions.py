"""Assignment changes and failures of a flow on real workers: a worker that leaves, a topic that comes, a task that fails."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from mm2mgr.kafka.access import librdkafka_config
from mm2mgr.sandbox.runtime import Runtime

from .command import Tree
from .conftest import WORKER
from .pair import flow, serving_pair
from .seen import create, statuses, until

pytestmark = [pytest.mark.live, pytest.mark.matrix]
NAME = "mm2.src.tgt.source.busy"
LARGE = {"max.message.bytes": "3000000"}


def test_what_interrupts_a_flow_is_counted_once(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> None:
    folder = tmp_path_factory.mktemp("interruptions")
    tree = Tree(folder / "tree")
    with serving_pair(folder, runtime, settings=WORKER) as pair:
        create(pair.source, ["busy.one"], 6, config=LARGE)
        busy = flow("busy", "'busy[.].*'", ", tasks: {max: 4}, heartbeats: false, checkpoints: false")
        tree.write(pair.yaml("test", busy))
        tree.run("apply", "--yes")

        def interruptions() -> dict[str, Any]:
            (status,) = tree.json("status")["flows"]
            found = status["interruptions"]
            assert found["last_hour"] == found["last_30_days"]
            return dict(found["last_hour"])

        def workers() -> list[tuple[str, str]]:
            return [(task["state"], task["worker_id"]) for task in statuses(pair.url)[NAME]["tasks"]]

        until(workers, lambda found: len({where for _, where in found}) == 2, "tasks on both workers")
        assert interruptions() == {"assignment_changes": 0, "worker_changes": 0, "failures": 0}
        assert interruptions() == {"assignment_changes": 0, "worker_changes": 0, "failures": 0}

        pair.workers[1].stop()
        until(workers, lambda found: {*found} == {("RUNNING", found[0][1])} and len(found) == 4, "tasks on one worker")
        assert interruptions() == {"assignment_changes": 1, "worker_changes": 1, "failures": 0}

        create(pair.source, ["busy.two"], 4)
        until(interruptions, lambda found: found["assignment_changes"] == 2, "the new topic is assigned", seconds=90)
        assert interruptions() == {"assignment_changes": 2, "worker_changes": 1, "failures": 0}

        producer = confluent_kafka.Producer({**librdkafka_config(pair.source), "message.max.bytes": 3_000_000})
        producer.produce("busy.one", b"x" * 2_000_000, partition=0)  # more than a record producer sends
        assert producer.flush(30) == 0
        until(workers, lambda found: sum(state == "FAILED" for state, _ in found) == 1, "a task FAILED", seconds=90)
        for _ in range(2):
            assert interruptions() == {"assignment_changes": 2, "worker_changes": 1, "failures": 1}
        said = tree.attempt("status", "--notes")
        assert "2 assignment changes (1 with tasks on other workers) and 1 failure of tasks in the last hour" in said
