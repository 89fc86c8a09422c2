"""What a command waits for: the clusters that have not answered are reported, and each is gone once it has."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.questions import ConnectQuestion, LoginQuestion
from mm2mgr.live.reach import ClientLogin, KafkaReach, Limits
from mm2mgr.live.read import Clusters, read


@dataclass(frozen=True)
class WorkersAnswer(ConnectQuestion[str]):
    """Answered once another cluster was."""

    async def ask(self, client: Any) -> str:
        await client.wait()
        return "here"


@dataclass(frozen=True)
class BrokersRefuse(LoginQuestion[str]):
    """Answered with a failure."""

    def ask(self, reach: KafkaReach) -> str:
        raise Mm2mgrError("no broker is there")


def test_clusters_are_waited_for_until_they_answer_or_fail() -> None:
    seen = list[tuple[str, ...]]()

    async def ask() -> None:
        released = asyncio.Event()

        def note(clusters: tuple[str, ...]) -> None:
            seen.append(clusters)
            if "kafka hub" not in clusters:
                released.set()  # the workers answer after the brokers have failed

        clients: Any = {"main": released}
        questions = [WorkersAnswer("main"), BrokersRefuse("hub", ClientLogin("hub", "127.0.0.1:1"))]
        snapshot = await read(questions, Clusters(clients), Limits(report_waits=note))
        assert snapshot.answers[questions[0]] == "here"

    asyncio.run(ask())
    assert seen == [("connect main", "kafka hub"), ("connect main",), ()]
