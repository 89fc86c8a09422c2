"""The estate of 20 Connect clusters inside the process, on a clock that jumps, and the command on its tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from mm2mgr.connect.client import ConnectClient
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.operations.workspace import Workspace
from tests.asking import answer_kafka, topics_with
from tests.cli.command import Command
from tests.cli.conftest import mm2mgr
from tests.clock import Clock, jumping
from tests.fake_connect import FakeConnect, Request
from tests.scale.estate import CLUSTERS, Harsh, tree_lines
from tests.scale.kept import Kept, keeping

__all__ = ["mm2mgr"]
Configs = dict[str, dict[str, str]]


@dataclass
class Estate:
    """Twenty Connect clusters; `clock` tells how long mm2mgr would have taken."""

    mm2mgr: Command
    clock: Clock
    kept: Kept
    clusters: dict[str, Harsh] = field(default_factory=dict)

    def declare(self, connectors: int, seed: int) -> None:
        """Write a tree of so many connectors, and start its clusters empty and in good order."""
        names = [f"w{number}" for number in range(CLUSTERS)]
        self.clusters |= {
            name: Harsh(FakeConnect(cluster_id=f"id-t{number}"), seed) for number, name in enumerate(names)
        }
        self.mm2mgr.tree.mkdir()
        self.write("\n".join(tree_lines(connectors, [f"http://{name}:8083" for name in names])))

    def write(self, text: str) -> None:
        (self.mm2mgr.tree / "tree.yaml").write_text(text)

    def text(self) -> str:
        return (self.mm2mgr.tree / "tree.yaml").read_text()

    def wanted(self) -> dict[str, Configs]:
        """Return what the tree says, by Connect cluster and connector."""
        found: dict[str, Configs] = {name: {} for name in self.clusters}
        for one in Workspace((self.mm2mgr.tree,)).connectors:
            found[one.connect][one.name] = one.config
        return found

    def stored(self) -> dict[str, Configs]:
        return {
            name: {connector: one.config for connector, one in harsh.fake.connectors.items()}
            for name, harsh in self.clusters.items()
        }

    def forget(self) -> None:
        for harsh in self.clusters.values():
            harsh.fake.requests.clear()

    def writes(self) -> dict[str, list[Request]]:
        """Return what was written since `forget`, where something was."""
        return {name: harsh.fake.writes for name, harsh in self.clusters.items() if harsh.fake.writes}


@pytest.fixture
def estate(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[Estate]:
    with jumping() as clock:
        made = Estate(mm2mgr, clock, kept=keeping(monkeypatch))
        init = ConnectClient.__init__

        def wired(self: ConnectClient, target: Any, **options: Any) -> None:
            init(self, target, **{**options, "transport": made.clusters[target.name].transport()})

        def no_broker(_: Kafka, access: KafkaAccess, timeout_seconds: float = 10.0) -> None:
            raise KafkaError(f"{access.alias}: no broker answers")

        monkeypatch.setattr(ConnectClient, "__init__", wired)
        answer_kafka(monkeypatch, topics=lambda *_: topics_with({}))
        # A real client would wait seconds for each broker that is not there, which the jumping clock cannot shorten.
        monkeypatch.setattr(Kafka, "__init__", no_broker)
        yield made
