"""Runs a check: asks workers and brokers at the same time, compares their answers with the needs, and runs lint on the facts.

Nothing is created, written, joined or committed anywhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mm2mgr.check.checked import STATUSES, Checked, CheckRow, commands
from mm2mgr.check.judge import LoginAnswers, access_rows, identity_rows, judged, unmatched_rows, unverified_rows
from mm2mgr.check.needs import ClientLogin, RequiredRight, login_of, needs, present
from mm2mgr.check.sessions import Sessions, kafkas, open_sessions, survey
from mm2mgr.connect.client import ConnectClient
from mm2mgr.endpoints import access_as, connect_target, kafka_access
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.acls import Acl, Right
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.run import lint
from mm2mgr.lint.subject import KafkaFacts, Subject, WorkerFacts
from mm2mgr.lint.tree import from_tree
from mm2mgr.observe.reading import Failure
from mm2mgr.reconcile.workers import ask_worker, harmless
from mm2mgr.render import Connector, connectors_of
from mm2mgr.topology import ConnectCluster, Flow, Topology

if TYPE_CHECKING:
    from mm2mgr.spec.loader import Spec


WorkerAnswer = tuple[WorkerFacts, Failure | None] | Failure
"""What the workers say, with the reason where their override policy could not be found; or why they do not answer."""


def check(
    topology: Topology,
    connectors: Sequence[Connector],
    flows: Sequence[Flow],
    spec: Spec | None = None,
    timeout_seconds: float = 20.0,
) -> Checked:
    """Check the chosen flows. Whatever does not answer is a row; it ends about `timeout_seconds` after it began."""
    started = time.monotonic()
    chosen = connectors_of(connectors, flows)
    with open_sessions(timeout_seconds) as sessions:
        answers: dict[str, WorkerAnswer] = {}
        ask_workers = partial(_ask_workers, topology, chosen, timeout_seconds / 2, answers)
        sessions.run([ask_workers, partial(_log_in, sessions, topology, chosen)])
        answered = {name: answer[0] for name, answer in answers.items() if not isinstance(answer, Failure)}
        known = survey(sessions, topology, chosen)
        wanted = list(needs(topology, chosen, known, {name: worker.version for name, worker in answered.items()}))
        _ask(sessions, wanted, _with_groups(sessions, topology, flows, answered))
        facts = kafkas(sessions, topology, chosen, known)
        rows = [*worker_rows(answers), *access_rows(sessions, wanted), *identity_rows(sessions, topology)]
        rows += [*judged(wanted, _answers(sessions)), *unverified_rows(topology, chosen)]
        rows += unmatched_rows(flows, {alias: topics for alias, topics in known.topics.items() if sessions.of(alias)})
    rows.sort(key=lambda row: (STATUSES.index(row.status), row.where, row.principal, row.rows))
    whole = len(chosen) == len(connectors)
    found = findings(topology, chosen, spec, facts=facts, workers=answered, complete=whole)
    missing, unsure = (
        tuple(commands(row.grant for row in rows if row.grant and row.status == status))
        for status in ("missing", "unknown")
    )
    return Checked(tuple(rows), missing, unsure, tuple(found), time.monotonic() - started)


def _ask_workers(
    topology: Topology, connectors: Sequence[Connector], seconds: float, answers: dict[str, WorkerAnswer]
) -> None:
    answers.update(asyncio.run(read_workers(topology, connectors, seconds)))


def _log_in(sessions: Sessions, topology: Topology, connectors: Sequence[Connector]) -> None:
    """Open a session for each login; mm2mgr's own come first, so that they are preferred for facts."""
    logins = [login_of(client, one, topology) for one in connectors for client in present(one).values()]
    accesses = {}
    for alias in dict.fromkeys(login.cluster for login in logins):
        own = kafka_access(topology.clusters[alias])
        accesses[ClientLogin.of(alias, {"bootstrap.servers": own.bootstrap_servers, **own.security})] = own
    for login in logins:
        cluster = topology.clusters[login.cluster]
        accesses.setdefault(login, access_as(cluster, login.servers, dict(login.security)))
    sessions.log_in(accesses)


def _with_groups(sessions: Sessions, topology: Topology, flows: Sequence[Flow], answered: Collection[str]) -> set[str]:
    """Return the clusters that may be asked about groups; `answered` are the Connect clusters that did."""
    lived_on = {topology.connects[name].kafka for name in answered}
    sources = {flow.source.alias for flow in flows}
    return {
        alias
        for alias in topology.clusters
        if sessions.may_ask_of_groups(alias, lives_there=alias in lived_on, is_source=alias in sources)
    }


def _ask(sessions: Sessions, wanted: Sequence[RequiredRight], with_groups: Collection[str]) -> None:
    """Ask each login for its rights, on groups only where that creates nothing; then for ACLs where one is missing or open."""
    by_login: dict[ClientLogin, list[Right]] = {}
    for need in wanted:
        rights = by_login.setdefault(need.login, [])
        if need.right.kind != "group" or need.login.cluster in with_groups:
            rights.append(need.right)
    sessions.run(partial(sessions.by_login[login].ask, rights, sessions.left / 2) for login, rights in by_login.items())
    doubtful = {
        need.login.cluster for need in wanted if sessions.by_login[need.login].permissions.get(need.right) != "yes"
    }
    sessions.run(partial(_read_acls, sessions, alias) for alias in doubtful)


def _read_acls(sessions: Sessions, alias: str) -> None:
    for session in sessions.of(alias):
        session.read_acls(sessions.left / 2)
        if session.acls is not None:
            return


def _answers(sessions: Sessions) -> dict[ClientLogin, LoginAnswers]:
    acls: dict[str, tuple[Acl, ...]] = {}
    for session in sessions.by_login.values():
        if session.acls is not None:
            acls[session.alias] = session.acls
    return {
        login: LoginAnswers(
            session.principal, session.servers, session.permissions, session.view.operations, acls.get(session.alias)
        )
        for login, session in sessions.by_login.items()
        if session.view and not session.failure
    }


def findings(  # noqa: PLR0913 - the tree is three values, and three are facts
    topology: Topology,
    connectors: Sequence[Connector],
    spec: Spec | None,
    *,
    facts: Mapping[str, KafkaFacts],
    workers: Mapping[str, WorkerFacts],
    complete: bool,
) -> list[Finding]:
    """Return what lint finds, `facts` by alias and `workers` by Connect cluster; `complete`: these are all connectors."""
    estate = from_tree(topology, connectors, spec)
    subjects = tuple(
        _informed(subject, facts, workers.get(connector.connect), topology.connects[connector.connect].kafka)
        for subject, connector in zip(estate.subjects, connectors, strict=True)
    )
    return lint(replace(estate, subjects=subjects, complete=complete))


def _informed(
    subject: Subject, facts: Mapping[str, KafkaFacts], reported: WorkerFacts | None, lives_on: str
) -> Subject:
    declared = subject.worker
    # Workers that do not answer are taken to live where the tree says, whatever id that cluster turned out to have.
    worker = reported or replace(declared, cluster_id=facts[lives_on].cluster_id if lives_on in facts else None)
    once = declared.exactly_once if worker.exactly_once is None else worker.exactly_once
    return replace(
        subject,
        worker=replace(worker, version=worker.version or declared.version, exactly_once=once),
        source_kafka=facts.get(subject.source, subject.source_kafka),
        target_kafka=facts.get(subject.target, subject.target_kafka),
    )


async def read_workers(topology: Topology, connectors: Sequence[Connector], seconds: float) -> dict[str, WorkerAnswer]:
    """Ask every Connect cluster that the connectors run on."""
    names = sorted({connector.connect for connector in connectors})
    asked = (_ask_cluster(topology.connects[name], connectors, seconds) for name in names)
    return dict(zip(names, await asyncio.gather(*asked), strict=True))


async def _ask_cluster(connect: ConnectCluster, connectors: Sequence[Connector], seconds: float) -> WorkerAnswer:
    keys = (key for connector in connectors if connector.connect == connect.name for key in connector.config)
    try:
        async with asyncio.timeout(seconds), ConnectClient(connect_target(connect), deadline_seconds=seconds) as client:
            worker, unprobed = await ask_worker(client, harmless(keys))
    except Mm2mgrError as error:
        return Failure.of(error)
    except TimeoutError:
        return Failure(f"Connect cluster '{connect.name}' did not answer within {seconds:g} s", "check its url")
    return worker, Failure.of(unprobed) if unprobed else None


def worker_rows(answers: dict[str, WorkerAnswer]) -> list[CheckRow]:
    """Return one row for each Connect cluster, and one for a policy that could not be found."""
    found = []
    for name, answer in answers.items():
        where = f"connect {name}"
        if isinstance(answer, Failure):
            found.append(CheckRow("failed", where, "ask the workers", effect=answer.message, fix=answer.hint or ""))
            continue
        worker, unprobed = answer
        policy = f", overrides: {worker.policy}" if worker.policy else ""
        what = f"workers of Kafka {worker.version or 'unknown'} on Kafka cluster {worker.cluster_id}{policy}"
        found.append(CheckRow("ok", where, what))
        if unprobed:
            found.append(
                CheckRow("unknown", where, "override policy", effect=unprobed.message, fix=unprobed.hint or "")
            )
    return found
