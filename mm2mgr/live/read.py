"""The one fan-out: asks clusters side by side, each question once, and keeps a failure as a value."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.endpoints import access_as, connect_target, kafka_access
from mm2mgr.live.questions import ConnectQuestion, KafkaQuestion
from mm2mgr.live.reach import ClientLogin, KafkaReach, Limits
from mm2mgr.live.snapshot import Question, Result, Snapshot, Steps
from mm2mgr.topology import ConnectCluster, KafkaCluster, Topology


@dataclass(frozen=True)
class Clusters:
    """The clusters that questions name: Connect clusters by name, Kafka clusters by alias.

    An open client in the place of a Connect cluster is used as it is, and stays open.
    """

    connects: Mapping[str, ConnectCluster | ConnectTarget | ConnectClient] = field(default_factory=dict)
    kafkas: Mapping[str, KafkaCluster] = field(default_factory=dict)

    @classmethod
    def of(cls, topology: Topology) -> Clusters:
        """Return those of a tree."""
        return cls(topology.connects, topology.clusters)


async def read(
    questions: Iterable[Question[Any]], clusters: Clusters, limits: Limits, snapshot: Snapshot | None = None
) -> Snapshot:
    """Return the snapshot with the answers to these questions; those that it has are not asked. Nothing is raised."""
    snapshot = snapshot or Snapshot()
    lacking = snapshot.lacking(questions)
    connects = _by_cluster(question for question in lacking if isinstance(question, ConnectQuestion))
    kafkas = _by_cluster(question for question in lacking if isinstance(question, KafkaQuestion))
    answers: dict[Question[Any], Any] = {}
    parts = (_ask_connect(clusters.connects[name], asked, limits) for name, asked in connects.items())
    for part in await asyncio.gather(_ask_kafkas(clusters, kafkas, limits), *parts):
        answers.update(part)
    return snapshot.with_answers(answers)


async def answered(
    steps: Steps[Result], clusters: Clusters, limits: Limits | Callable[[], Limits], snapshot: Snapshot | None = None
) -> tuple[Result, Snapshot]:
    """Ask what a judgement lacks until it has its result; return that, and all that was answered.

    `limits` of all rounds, or what returns those of the next.
    """
    snapshot = snapshot or Snapshot()
    try:
        questions = next(steps)
        while True:
            snapshot = await read(questions, clusters, limits() if callable(limits) else limits, snapshot)
            questions = steps.send(snapshot)
    except StopIteration as end:
        return end.value, snapshot


async def ask_all(steps: Steps[Result], topology: Topology, limits: Limits | None = None) -> Result:
    """Ask the clusters of a tree all that a judgement lacks, and return its result."""
    return (await answered(steps, Clusters.of(topology), limits or Limits()))[0]


def _by_cluster(questions: Iterable[Question[Any]]) -> dict[str, list[Any]]:
    by_cluster: dict[str, list[Any]] = {}
    for question in questions:
        by_cluster.setdefault(question.cluster, []).append(question)
    return by_cluster


def open_client(cluster: ConnectCluster | ConnectTarget, deadline_seconds: float) -> ConnectClient:
    """Return the client of a Connect cluster; Mm2mgrError where its credentials are not on this machine."""
    target = cluster if isinstance(cluster, ConnectTarget) else connect_target(cluster)
    return ConnectClient(target, deadline_seconds=deadline_seconds)


async def _ask_connect(
    cluster: ConnectCluster | ConnectTarget | ConnectClient, questions: Sequence[ConnectQuestion[Any]], limits: Limits
) -> dict[Question[Any], Any]:
    gate = asyncio.Semaphore(limits.at_once)

    async def ask(client: ConnectClient, question: ConnectQuestion[Any]) -> Any:
        async with gate:
            try:
                return await question.ask(client)
            except Mm2mgrError as error:
                return error

    try:
        if isinstance(cluster, (ConnectCluster, ConnectTarget)):
            async with open_client(cluster, limits.connect_seconds) as client:
                answers = await asyncio.gather(*(ask(client, question) for question in questions))
        else:
            answers = await asyncio.gather(*(ask(cluster, question) for question in questions))
    except Mm2mgrError as error:  # its credentials are not on this machine
        return dict.fromkeys(questions, error)
    return dict(zip(questions, answers, strict=True))


# --- Kafka ------------------------------------------------------------------------------------------------------------


async def _ask_kafkas(
    clusters: Clusters, questions: Mapping[str, Sequence[KafkaQuestion[Any]]], limits: Limits
) -> dict[Question[Any], Any]:
    """Ask Kafka clusters, and each for different kinds of things, side by side."""
    if not questions:
        return {}
    answers: dict[Question[Any], Any] = {}
    reaches: list[KafkaReach] = []
    jobs: list[tuple[KafkaReach, list[KafkaQuestion[Any]]]] = []
    by_login: dict[tuple[str, ClientLogin | None], list[KafkaQuestion[Any]]] = {}
    for question in (question for asked in questions.values() for question in asked):
        by_login.setdefault((question.cluster, question.as_login()), []).append(question)
    for (alias, login), asked in by_login.items():
        cluster = clusters.kafkas[alias]
        try:
            own = access_as(cluster, login.servers, dict(login.security)) if login else kafka_access(cluster)
            reach = KafkaReach(own, limits)
        except Mm2mgrError as error:
            answers.update(dict.fromkeys(asked, error))
            continue
        reaches.append(reach)
        kinds: dict[type, list[KafkaQuestion[Any]]] = {}
        for question in asked:
            kinds.setdefault(type(question), []).append(question)
        jobs += [(reach, kind) for kind in kinds.values()]
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(max(1, min(limits.kafka_at_once, len(jobs)))) as threads:
        parts = await asyncio.gather(*(loop.run_in_executor(threads, ask_kafka, *job) for job in jobs))
    for reach in reaches:
        reach.close()
    for part in parts:
        answers.update(part)
    return answers


def ask_kafka(reach: KafkaReach, questions: Sequence[KafkaQuestion[Any]]) -> dict[Question[Any], Any]:
    """Return the answers of one Kafka cluster to questions of one kind, or why there is none. Blocks."""
    try:
        return type(questions[0]).ask_all(reach, questions)
    except Mm2mgrError as error:
        return dict.fromkeys(questions, error)
