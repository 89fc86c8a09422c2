"""size, fleet and simulate predict from what the tasks of another connector class have; nothing of it is guessed."""

from __future__ import annotations

from pathlib import Path

from mm2mgr.evidence.read import Changes, EvidenceOptions
from mm2mgr.operations.size import fleet, simulate, size
from mm2mgr.operations.workspace import Workspace
from tests.evidence.test_read_once import Counted, asked, closed_port, mock_cluster

__all__ = ["asked", "closed_port", "mock_cluster"]
LOGS, FLOW = "mm2.a.hub.source.logs", "logs:a->hub"


def deal(counted: Counted, *dealt: str) -> None:
    connector = counted.fake.connectors[LOGS]
    connector.config |= {"connector.class": "org.example.EvenMirrorSourceConnector", "assignment": "logs.web:0"}
    connector.own_keys, connector.dealt = {"assignment"}, [*dealt]


def test_its_tasks_are_read_back_and_predicted_from(asked: tuple[Workspace, Path, Counted]) -> None:
    """Each of the four partitions carries 7 MB/s."""
    workspace, store, counted = asked
    deal(counted, "logs.web-0,logs.web-1,logs.web-2", "logs.web-3")
    options = EvidenceOptions(store, views=True)
    (connect,) = fleet(workspace, options).connects.values()
    assert not any("was not read back" in reason for reason in connect.running_reasons)
    (running,) = (flow for flow in connect.running.flows if flow.flow_id == FLOW)
    assert (running.tasks, round(running.busiest_bytes_per_second)) == (2, 21_000_000)
    report = size(workspace, ("logs",), options)
    (sizing,) = (sizing for sizing in report.sizings if sizing.flow_id == FLOW)
    assert (sizing.assignment, sizing.tasks) == ("live", 4)
    after = simulate(workspace, Changes(traffic=0.5), EvidenceOptions(store)).after
    assert after.sizings[FLOW].assignment == "live"
    assert after.flows[FLOW].load.per_task(2) == [10_500_000.0, 3_500_000.0]


def test_defects_are_reasons(asked: tuple[Workspace, Path, Counted]) -> None:
    workspace, store, counted = asked
    deal(counted, "logs.web-0,logs.web-1", "logs.web-1,gone-0", "")
    (sizing,) = (
        sizing for sizing in size(workspace, ("logs",), EvidenceOptions(store)).sizings if sizing.flow_id == FLOW
    )
    assert sizing.assignment == "live"
    assert [reason for reason in sizing.reasons if reason.partition(":")[0] in TOLD] == [
        "In more than one task, so that each record arrives more than once: logs.web-1 (tasks 0, 1).",
        "In no task now, so that nothing is mirrored of them: logs.web-2, logs.web-3.",
        "Still in tasks, although Kafka no longer has them: gone-0.",
        "Tasks without a partition: 2.",
    ]


TOLD = {
    "In more than one task, so that each record arrives more than once",
    "In no task now, so that nothing is mirrored of them",
    "Still in tasks, although Kafka no longer has them",
    "Tasks without a partition",
}
