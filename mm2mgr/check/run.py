"""The whole check: workers and brokers asked at the same time, needs compared with what the brokers said, lint told the facts.

In: a topology, its connectors, the chosen flows. Out: a Checked. Nothing is created, written, joined or committed anywhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mm2mgr.check import workers
from mm2mgr.check.checked import STATUSES, Checked
from mm2mgr.check.commands import commands
from mm2mgr.check.facts import findings
from mm2mgr.check.judge import Answers, judged
from mm2mgr.check.logins import Login, login_of
from mm2mgr.check.needs import Need, needs, present
from mm2mgr.check.rows import access_rows, identity_rows, unmatched_rows, untold_rows
from mm2mgr.check.sessions import Team, team
from mm2mgr.check.survey import kafkas, survey
from mm2mgr.kafka.acls import Acl, Right
from mm2mgr.observe.reading import Failure
from mm2mgr.reconcile.access import kafka_access
from mm2mgr.render import Connector, connectors_of
from mm2mgr.topology import Flow, Topology

if TYPE_CHECKING:
    from mm2mgr.spec.loader import Spec


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
    with team(timeout_seconds) as crew:
        answers: dict[str, workers.Answer] = {}
        ask_workers = partial(_ask_workers, topology, chosen, timeout_seconds / 2, answers)
        crew.run([ask_workers, partial(_log_in, crew, topology, chosen)])
        told = {name: answer[0] for name, answer in answers.items() if not isinstance(answer, Failure)}
        known = survey(crew, topology, chosen)
        wanted = list(needs(topology, chosen, known, {name: worker.version for name, worker in told.items()}))
        _ask(crew, wanted, _with_groups(crew, topology, flows, told))
        facts = kafkas(crew, topology, chosen, known)
        rows = [*workers.rows(answers), *access_rows(crew, wanted), *identity_rows(crew, topology)]
        rows += [*judged(wanted, _answers(crew)), *untold_rows(topology, chosen)]
        rows += unmatched_rows(flows, {alias: topics for alias, topics in known.topics.items() if crew.of(alias)})
    rows.sort(key=lambda row: (STATUSES.index(row.status), row.where, row.principal, row.rows))
    whole = len(chosen) == len(connectors)
    found = findings(topology, chosen, spec, facts=facts, workers=told, complete=whole)
    missing, unsure = (
        tuple(commands(row.grant for row in rows if row.grant and row.status == status))
        for status in ("missing", "unknown")
    )
    return Checked(tuple(rows), missing, unsure, tuple(found), time.monotonic() - started)


def _ask_workers(
    topology: Topology, connectors: Sequence[Connector], seconds: float, answers: dict[str, workers.Answer]
) -> None:
    answers.update(asyncio.run(workers.read_workers(topology, connectors, seconds)))


def _log_in(crew: Team, topology: Topology, connectors: Sequence[Connector]) -> None:
    """Open a session for each login; mm2mgr's own come first, so that they are preferred for facts."""
    logins = [login_of(client, one, topology) for one in connectors for client in present(one).values()]
    accesses = {}
    for alias in dict.fromkeys(login.cluster for login in logins):
        own = kafka_access(topology.clusters[alias])
        accesses[Login.of(alias, {"bootstrap.servers": own.bootstrap_servers, **own.security})] = own
    for login in logins:
        accesses.setdefault(login, login.access(topology.clusters[login.cluster]))
    crew.log_in(accesses)


def _with_groups(crew: Team, topology: Topology, flows: Sequence[Flow], told: Collection[str]) -> set[str]:
    """Return the clusters that may be asked about groups; `told` are the Connect clusters that answered."""
    lived_on = {topology.connects[name].kafka for name in told}
    sources = {flow.source.alias for flow in flows}
    return {
        alias
        for alias in topology.clusters
        if crew.may_ask_of_groups(alias, lives_there=alias in lived_on, is_source=alias in sources)
    }


def _ask(crew: Team, wanted: Sequence[Need], with_groups: Collection[str]) -> None:
    """Ask each login for its rights, on groups only where that creates nothing; then for ACLs where one is missing or open."""
    by_login: dict[Login, list[Right]] = {}
    for need in wanted:
        rights = by_login.setdefault(need.login, [])
        if need.right.kind != "group" or need.login.cluster in with_groups:
            rights.append(need.right)
    crew.run(partial(crew.sessions[login].ask, rights, crew.left / 2) for login, rights in by_login.items())
    doubtful = {need.login.cluster for need in wanted if crew.sessions[need.login].said.get(need.right) != "yes"}
    crew.run(partial(_read_acls, crew, alias) for alias in doubtful)


def _read_acls(crew: Team, alias: str) -> None:
    for session in crew.of(alias):
        session.read_acls(crew.left / 2)
        if session.acls is not None:
            return


def _answers(crew: Team) -> dict[Login, Answers]:
    acls: dict[str, tuple[Acl, ...]] = {}
    for session in crew.sessions.values():
        if session.acls is not None:
            acls[session.alias] = session.acls
    return {
        login: Answers(
            session.principal, session.servers, session.said, session.seen.operations, acls.get(session.alias)
        )
        for login, session in crew.sessions.items()
        if session.seen and not session.failure
    }
