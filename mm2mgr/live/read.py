"""The one fan-out: asks clusters and registries side by side, each question once, and keeps a failure as a value."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self

from mm2mgr import timing
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectUnreachable
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.errors import KafkaSilence, Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.live.endpoints import access_as, connect_target, kafka_access
from mm2mgr.live.questions import ConnectQuestion, KafkaQuestion
from mm2mgr.live.reach import ClientLogin, KafkaReach, Limits
from mm2mgr.live.schemas import SchemasById, ask_registry
from mm2mgr.live.snapshot import Answers, Question, Result, Snapshot, Steps
from mm2mgr.topology import ConnectCluster, KafkaCluster, Topology


@dataclass(frozen=True)
class Clusters:
    """The clusters that questions name: Connect clusters by name, Kafka clusters by alias.

    An open client in the place of a Connect cluster is used as it is, and stays open.
    """

    connects: Mapping[str, ConnectCluster | ConnectTarget | ConnectClient] = field(default_factory=dict)
    kafkas: Mapping[str, KafkaCluster] = field(default_factory=dict)

    @classmethod
    def of_tree(cls, topology: Topology) -> Clusters:
        """Return those of a tree."""
        return cls(topology.connects, topology.clusters)


class ConnectClients:
    """The Connect clusters that a command asks: a client each, opened when it is first needed, which all rounds share.

    Its workers are waited for where they answered in an earlier round.
    """

    def __init__(self, connects: Mapping[str, ConnectCluster | ConnectTarget | ConnectClient]) -> None:
        self._connects, self._stack = connects, AsyncExitStack()
        self._opened: dict[str, ConnectClient] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def client(self, name: str, deadline_seconds: float, silence_seconds: float) -> ConnectClient:
        """Return the client of a Connect cluster; Mm2mgrError where its credentials are not on this machine."""
        cluster = self._opened.get(name) or self._connects[name]
        if isinstance(cluster, (ConnectCluster, ConnectTarget)):
            cluster = await self._stack.enter_async_context(open_client(cluster, deadline_seconds, silence_seconds))
            self._opened[name] = cluster
        return cluster.with_deadline(deadline_seconds) if name in self._opened else cluster


async def read(
    questions: Iterable[Question[object]], clusters: Clusters, limits: Limits, snapshot: Snapshot | None = None
) -> Snapshot:
    """Return the snapshot with the answers to these questions; those that it has are not asked. Nothing is raised."""
    async with ConnectClients(clusters.connects) as clients:
        return await _read(questions, clusters, clients, limits, snapshot or Snapshot())


async def _read(
    questions: Iterable[Question[object]],
    clusters: Clusters,
    clients: ConnectClients,
    limits: Limits,
    snapshot: Snapshot,
) -> Snapshot:
    connects: dict[str, list[ConnectQuestion[object]]] = {}
    kafkas: dict[tuple[str, ClientLogin | None], list[KafkaQuestion[object]]] = {}
    registries: dict[str, list[SchemasById]] = {}
    for question in snapshot.lacking(questions):
        if isinstance(question, ConnectQuestion):
            connects.setdefault(question.cluster, []).append(question)
        elif isinstance(question, KafkaQuestion):
            kafkas.setdefault((question.cluster, question.as_login()), []).append(question)
        elif isinstance(question, SchemasById):
            registries.setdefault(question.cluster, []).append(question)
    answers: dict[Question[object], object] = {}
    silent = {question.cluster for question, answer in snapshot.answers.items() if isinstance(answer, KafkaSilence)}
    of_schemas = (ask_registry(clusters.kafkas[alias], asked, limits) for alias, asked in registries.items())

    def ask_workers(name: str, asked: Sequence[ConnectQuestion[object]]) -> Awaitable[Answers]:
        cluster = clusters.connects.get(name)
        is_hurried = limits.spares_silent_workers and isinstance(cluster, ConnectCluster) and cluster.kafka in silent
        seconds = limits.round_seconds if is_hurried else limits.connect_seconds
        ends_at = timing.now() + seconds if is_hurried else math.inf
        answered = _ask_connect(clients.client(name, seconds, limits.silence_seconds), asked, limits.at_once, ends_at)
        return waits.until_answered(f"connect {name}", answered)

    if limits.spares_silent_workers and any(map(_is_silence, snapshot.answers.values())):
        limits = limits.after_silent_workers()
    waits = _Waits(limits.report_waits, (f"connect {name}" for name in connects))
    parts = (ask_workers(name, asked) for name, asked in connects.items())
    for part in await asyncio.gather(_ask_kafkas(clusters, kafkas, limits, silent, waits), *parts, *of_schemas):
        answers.update(part)
    return snapshot.with_answers(answers)


def _is_silence(answer: object) -> bool:
    return isinstance(answer, ConnectUnreachable) and bool(answer.silent_urls)


class _Waits:
    """The clusters that have not answered all of a round yet, reported whenever these change."""

    def __init__(self, report: Callable[[tuple[str, ...]], object] | None, clusters: Iterable[str]) -> None:
        self._report, self._open = report, Counter(clusters)

    def begin(self, clusters: Iterable[str]) -> None:
        """Wait for these too, once for each time that they are named, and report."""
        self._open.update(clusters)
        self._tell()

    async def until_answered(self, cluster: str, answers: Awaitable[Answers]) -> Answers:
        """Return the answers of a cluster that is waited for."""
        try:
            return await answers
        finally:
            self._open[cluster] -= 1
            self._tell()

    def _tell(self) -> None:
        if self._report:
            self._report(tuple(sorted(cluster for cluster, count in self._open.items() if count > 0)))


async def run_steps(
    steps: Steps[Result], clusters: Clusters, limits: Limits | Callable[[], Limits], snapshot: Snapshot | None = None
) -> tuple[Result, Snapshot]:
    """Ask what a judgement lacks until it has its result; return that, and all that was answered.

    `limits` of all rounds, or what returns those of the next.
    """
    snapshot = snapshot or Snapshot()
    async with ConnectClients(clusters.connects) as clients:
        try:
            questions = next(steps)
            while True:
                limits_now = limits() if callable(limits) else limits
                snapshot = await _read(questions, clusters, clients, limits_now, snapshot)
                questions = steps.send(snapshot)
        except StopIteration as end:
            return end.value, snapshot


async def ask_all(steps: Steps[Result], topology: Topology, limits: Limits | None = None) -> Result:
    """Ask the clusters of a tree all that a judgement lacks, and return its result."""
    return (await run_steps(steps, Clusters.of_tree(topology), limits or Limits()))[0]


def open_client(
    cluster: ConnectCluster | ConnectTarget, deadline_seconds: float, silence_seconds: float = math.inf
) -> ConnectClient:
    """Return the client of a Connect cluster; Mm2mgrError where its credentials are not on this machine."""
    target = cluster if isinstance(cluster, ConnectTarget) else connect_target(cluster)
    return ConnectClient(target, deadline_seconds=deadline_seconds, silence_seconds=silence_seconds)


async def _ask_connect(
    opened: Awaitable[ConnectClient], questions: Sequence[ConnectQuestion[object]], at_once: int, ends_at: float
) -> Answers:
    """Return the answers of one Connect cluster; what has no turn before `ends_at` fails as the last one did."""
    gate, last_error = asyncio.Semaphore(at_once), Mm2mgrError("no time was left to ask")
    try:
        client = await opened
    except Mm2mgrError as error:  # its credentials are not on this machine
        return dict.fromkeys(questions, error)

    async def ask(question: ConnectQuestion[object]) -> object:
        nonlocal last_error
        async with gate:
            seconds_left = ends_at - timing.now()
            if seconds_left <= 0:
                return last_error
            try:
                return await question.ask(client if seconds_left == math.inf else client.with_deadline(seconds_left))
            except Mm2mgrError as error:
                last_error = error
                return error

    return dict(zip(questions, await asyncio.gather(*map(ask, questions)), strict=True))


# --- Kafka ------------------------------------------------------------------------------------------------------------


async def _ask_kafkas(
    clusters: Clusters,
    questions: Mapping[tuple[str, ClientLogin | None], Sequence[KafkaQuestion[object]]],
    limits: Limits,
    silent: Container[str],
    waits: _Waits,
) -> Answers:
    if not questions:
        waits.begin(())
        return {}
    answers: dict[Question[object], object] = {}
    reaches: list[KafkaReach] = []
    jobs: list[tuple[KafkaReach, list[KafkaQuestion[object]]]] = []
    for (alias, login), asked in questions.items():
        try:
            its_limits = limits.after_silence() if alias in silent else limits
            reach = KafkaReach(_access(clusters.kafkas, alias, login), its_limits)
        except Mm2mgrError as error:
            answers.update(dict.fromkeys(asked, error))
            continue
        reaches.append(reach)
        kinds: dict[type, list[KafkaQuestion[object]]] = {}
        for question in asked:
            kinds.setdefault(type(question), []).append(question)
        jobs += [(reach, kind) for kind in kinds.values()]
    loop = asyncio.get_running_loop()
    named = [f"kafka {reach.access.alias}" for reach, _ in jobs]
    waits.begin(named)
    with ThreadPoolExecutor(max(1, min(limits.kafka_at_once, len(jobs)))) as threads:
        asked_all = (loop.run_in_executor(threads, ask_kafka, *job) for job in jobs)
        parts = await asyncio.gather(*map(waits.until_answered, named, asked_all))
    for reach in reaches:
        reach.close()
    for part in parts:
        answers.update(part)
    return answers


def _access(clusters: Mapping[str, KafkaCluster], alias: str, login: ClientLogin | None) -> KafkaAccess:
    if login and alias not in clusters:
        return KafkaAccess(login.cluster, login.servers, dict(login.security))
    cluster = clusters[alias]
    return access_as(cluster, login.servers, dict(login.security)) if login else kafka_access(cluster)


def ask_kafka(reach: KafkaReach, questions: Sequence[KafkaQuestion[object]]) -> Answers:
    """Return the answers of one Kafka cluster to questions of one kind, or why there is none. Blocks."""
    try:
        return type(questions[0]).ask_all(reach, questions)
    except Mm2mgrError as error:
        return dict.fromkeys(questions, error)
