"""One run of a command asks the store, each Kafka cluster and each Connect cluster once, whatever it makes of the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.evidence import read as evidence
from mm2mgr.evidence.read import Changes, EvidenceOptions
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.operations.size import fleet, simulate, size
from mm2mgr.operations.workspace import Workspace
from mm2mgr.samples import store as history
from mm2mgr.throughput import hourly, windows
from tests.cli.load import addresses, declare, measured, produce
from tests.fake_connect import CLASSES, FakeConnect, serving
from tests.kafka.conftest import closed_port, mock_cluster

__all__ = ["closed_port", "mock_cluster"]
SOURCE = next(each for each in CLASSES if "Source" in each)


class Counted:
    """Counts what is asked: calls of functions by name, and requests to Connect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fake: FakeConnect) -> None:
        self.calls: Counter[str] = Counter()
        self.fake = fake
        self.wrap(monkeypatch, hourly, "hourly_rates", lambda *_: "rates")
        self.wrap(monkeypatch, windows, "read_window", lambda *_: "weeks")
        self.wrap(monkeypatch, history.TaskStore, "read", lambda _, *span: f"history of {span}")
        self.wrap(monkeypatch, Kafka, "__init__", lambda _, access, *seconds: f"client of {access.bootstrap_servers}")
        self.wrap(monkeypatch, Kafka, "topics", lambda _: "topics")

    def wrap(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, called: Callable[..., str]) -> None:
        real = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            self.calls[called(*arguments)] += 1
            return real(*arguments)

        monkeypatch.setattr(owner, name, counted)

    def requests(self) -> Counter[str]:
        return Counter(f"{request.method} {request.path}" for request in self.fake.requests)


@pytest.fixture
def asked(
    tmp_path: Path, mock_cluster: KafkaAccess, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Workspace, Path, Counted]]:
    """Three flows from two clusters on one Connect cluster, measured and running."""
    declare(tmp_path / "clusters", *addresses(mock_cluster))
    for topic in ("logs.web", "orders"):
        produce(mock_cluster, topic)
    store = measured(tmp_path / "store", {("a", "logs.web", number): 7e6 for number in range(4)})
    fake = FakeConnect(source_topics={"logs.web": 4, "orders": 4})
    fake.add("mm2.a.hub.source.logs", {"connector.class": SOURCE, "topics": "logs.web", "tasks.max": "4"})
    fake.add("mm2.a.hub.source.orders", {"connector.class": SOURCE, "topics": "orders", "tasks.max": "1"})
    monkeypatch.setattr(
        evidence, "_LIMITS", replace(evidence._LIMITS, kafka_seconds=0.5)
    )  # for one that does not answer
    with serving(fake) as url:
        path = tmp_path / "clusters" / "x.yaml"
        path.write_text(path.read_text().replace("http://127.0.0.1:1", url))
        yield Workspace((tmp_path / "clusters",)), store, Counted(monkeypatch, fake)


COMMANDS: dict[str, Callable[[Workspace, Path], Any]] = {
    "size": lambda workspace, store: size(workspace, (), EvidenceOptions(store)),
    "size --page": lambda workspace, store: size(workspace, (), EvidenceOptions(store, views=True)),
    "fleet": lambda workspace, store: fleet(workspace, EvidenceOptions(store)),
    "fleet --page": lambda workspace, store: fleet(workspace, EvidenceOptions(store, views=True)),
    "simulate": lambda workspace, store: simulate(workspace, Changes(traffic=2.0), EvidenceOptions(store)),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_source_is_asked_once(asked: tuple[Workspace, Path, Counted], command: str) -> None:
    workspace, store, counted = asked
    COMMANDS[command](workspace, store)
    assert counted.calls["rates"] == 1
    assert counted.calls["weeks"] == (1 if "--page" in command else 0)
    sources = {server for flow in workspace.topology.flows for server in flow.source.model.bootstrap_servers}
    assert {name for name in counted.calls if name.startswith("client of ")} == {f"client of {one}" for one in sources}
    assert any(name.startswith("history of ") for name in counted.calls)
    assert counted.calls.pop("topics") == len(sources)
    assert set(counted.calls.values()) == {1}, "no span of the history and no cluster is read twice"
    assert counted.requests() == {
        "GET /connectors": 1,
        "GET /connectors/mm2.a.hub.source.logs/tasks": 1,
        "GET /connectors/mm2.a.hub.source.orders/tasks": 1,
    }


def test_a_cluster_that_does_not_answer_is_asked_once_too(
    asked: tuple[Workspace, Path, Counted], closed_port: int
) -> None:
    """Its flows are not counted, and the others are judged."""
    workspace, store, counted = asked
    path = workspace.files[0] / "x.yaml"
    (dead,) = next(flow.source.model.bootstrap_servers for flow in workspace.topology.flows if flow.source.alias == "b")
    path.write_text(path.read_text().replace(dead, f"127.0.0.1:{closed_port}"))
    report = fleet(Workspace(workspace.files), EvidenceOptions(store))
    assert report.failures.keys() == {"b"}
    assert report.connects["w"].need.tasks == 5
    assert counted.calls[f"client of 127.0.0.1:{closed_port}"] == 1
