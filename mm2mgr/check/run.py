"""Runs a check: asks workers and brokers at the same time, compares their answers with the needs, and runs lint on the facts.

It only reads: nothing is created, written, joined or committed anywhere. A failure is kept in the session of its login, so that one unreachable
cluster or wrong password hides nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mm2mgr import defaults, timing
from mm2mgr.check.judge import (
    STATUSES,
    Checked,
    CheckRow,
    LoginAnswers,
    WorkerAnswer,
    commands,
    judged,
    unmatched_rows,
    unverified_rows,
    worker_rows,
)
from mm2mgr.check.needs import (
    ANONYMOUS,
    BY_CERTIFICATE,
    BY_LOGIN,
    OWN,
    ClientLogin,
    ExistingNames,
    Principal,
    RequiredRight,
    login_of,
    mirrored,
    needs,
    own_needs,
    present,
    subject_of,
)
from mm2mgr.check.old_brokers import new_workers, old_broker_rows
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import KafkaError, Mm2mgrError
from mm2mgr.files import read_regular
from mm2mgr.kafka.access import KafkaAccess, parse_jaas, resolve
from mm2mgr.kafka.acls import Acl, Permission, Right
from mm2mgr.kafka.api_versions import Versions, read_versions
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.compacted import DELETE_TOPIC, several_partitions
from mm2mgr.kafka.inspection import (
    ClusterView,
    committed_offsets,
    may,
    message_limit,
    read_acls,
    topic_configs,
    view_cluster,
)
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.rules import lint
from mm2mgr.lint.subject import KafkaFacts, Subject, WorkerFacts
from mm2mgr.lint.tree import from_tree
from mm2mgr.lint.workers import RunningOn, ask_worker, harmless_overrides, shared_workers
from mm2mgr.live.endpoints import access_as, kafka_access
from mm2mgr.live.kafka_state import Failure
from mm2mgr.live.questions import AnsweringWorker, ConnectorsWithStates
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import Clusters, answered, read
from mm2mgr.render import Connector, connectors_of
from mm2mgr.spec.scalars import is_name, java_pattern
from mm2mgr.topics.names import NameFilter
from mm2mgr.topology import ConnectCluster, Flow, Topology

if TYPE_CHECKING:
    from mm2mgr.spec.loader import Spec


def principal_of(login: ClientLogin) -> Principal:
    """Return who the brokers take this login for."""
    security = dict(login.security)
    protocol = security.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT":
        return Principal(ANONYMOUS)
    try:
        settings = {key: resolve(login.cluster, value) for key, value in security.items()}
        name = _user(settings) if protocol.startswith("SASL_") else _subject(settings)
    except (KafkaError, OSError, ValueError):
        name = None
    if name:
        return Principal(name)
    return Principal(BY_LOGIN if protocol.startswith("SASL_") else BY_CERTIFICATE, known=False)


def _user(settings: dict[str, str]) -> str | None:
    user = parse_jaas(settings.get("sasl.jaas.config", "")).options.get("username")
    return f"User:{user}" if user else None


def _subject(settings: dict[str, str]) -> str | None:
    chain, location = settings.get("ssl.keystore.certificate.chain"), settings.get("ssl.keystore.location")
    if not chain and not location:
        return ANONYMOUS
    if not chain and settings.get("ssl.keystore.type", "").upper() != "PEM":
        return None
    name = subject_of(chain or read_regular(Path(str(location)), _MOST_PEM_BYTES).decode())
    return f"User:{name}" if name else None


_AT_ONCE = 64
_LEAST_SECONDS = 1.0
_VERSIONS_SECONDS = 5.0
_MOST_PEM_BYTES = 1 << 20


@dataclass
class Session:
    """One login while it is being used. Not `usable`: its settings cannot be used on this machine, so no login was tried."""

    login: ClientLogin
    principal: Principal
    servers: str
    kafka: Kafka | None = None
    view: ClusterView | None = None
    failure: Failure | None = None
    usable: bool = True
    permissions: dict[Right, Permission] = field(default_factory=dict)
    acls: tuple[Acl, ...] | None = None

    @property
    def alias(self) -> str:
        return self.login.cluster

    def attempt(self, seconds: float, do: Callable[[Kafka], None], *, optional: bool = False) -> None:
        """Do something as this login within so many seconds; a failure ends the session's use, unless it is optional."""
        if self.kafka is None or self.failure:
            return
        self.kafka.within(max(_LEAST_SECONDS, seconds))
        try:
            do(self.kafka)
        except Mm2mgrError as error:
            self.failure = None if optional else Failure.of(error)

    def log_in(self, kafka: Kafka) -> None:
        """View the cluster, which is the first thing that needs a login."""
        self.view = view_cluster(kafka)

    def ask(self, rights: Iterable[Right], kafka: Kafka) -> None:
        """Ask for rights."""
        if self.view:
            self.permissions.update(may(kafka, rights, self.view))

    def read_acls(self, kafka: Kafka) -> None:
        """Read the cluster's ACLs, if this login may."""
        self.acls = read_acls(kafka, self.view) if self.view else None


class Sessions:
    """The sessions of a check and the threads they run in; `left` seconds until the deadline."""

    def __init__(self, timeout_seconds: float, threads: ThreadPoolExecutor) -> None:
        self._end = timing.now() + timeout_seconds
        self._threads = threads
        self.by_login: dict[ClientLogin, Session] = {}

    @property
    def left(self) -> float:
        return self._end - timing.now()

    def log_in(self, accesses: dict[ClientLogin, KafkaAccess]) -> None:
        """Open a session for each login; half of the time is kept for what comes after."""
        seconds = self.left / 2
        opened = self._threads.map(lambda login: _open(login, accesses[login], seconds), accesses)
        self.by_login.update(zip(accesses, opened, strict=True))

    def run(self, jobs: Iterable[Callable[[], None]]) -> None:
        """Run jobs at the same time; they do not raise."""
        for done in [self._threads.submit(job) for job in jobs]:
            done.result()

    def of(self, alias: str) -> list[Session]:
        """Return the logged-in sessions of a cluster, mm2mgr's own first."""
        return [each for each in self.by_login.values() if each.alias == alias and each.view and not each.failure]

    def may_ask_of_groups(self, alias: str, *, lives_there: bool, is_source: bool) -> bool:
        """Tell whether asking about a group creates nothing: Kafka makes its topic of group offsets at the first such question.

        Workers on the cluster already have a group. A source whose group offsets are translated has groups, unless a login sees that there are none.
        """
        seen = [session.view for session in self.of(alias) if session.view]
        if lives_there or any(each.had_groups or each.groups for each in seen):
            return True
        return is_source and not any(each.had_groups is False for each in seen)


def _open(login: ClientLogin, access: KafkaAccess, seconds: float) -> Session:
    session = Session(login, principal_of(login), access.bootstrap_servers)
    try:
        session.kafka = Kafka(access, max(_LEAST_SECONDS, seconds))
    except Mm2mgrError as error:
        session.failure, session.usable = Failure.of(error), False
    session.attempt(seconds, session.log_in)
    return session


@contextmanager
def open_sessions(timeout_seconds: float) -> Iterator[Sessions]:
    """Yield a Sessions; its connections are closed at the end."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as threads, ExitStack() as stack:
        made = Sessions(timeout_seconds, threads)
        yield made
        for session in made.by_login.values():
            if session.kafka:
                stack.enter_context(session.kafka)


_GROUPS_AT_MOST = 500  # each is a request of its own


def survey(sessions: Sessions, topology: Topology, connectors: Iterable[Connector]) -> ExistingNames:
    """Return the topics of each cluster, and by pair the groups that its checkpoint connector translates."""
    aliases = {session.alias for session in sessions.by_login.values()}
    topics = {
        alias: {topic for each in sessions.of(alias) if each.view for topic in each.view.partitions}
        for alias in aliases
    }
    groups: dict[str, list[str]] = {}
    checkpoints = [connector for connector in connectors if connector.type == "checkpoint"]
    jobs = [partial(_translated, sessions, topology.flows_of(one.flows), groups) for one in checkpoints]
    sessions.run(jobs)
    return ExistingNames(topics, groups)


def _translated(sessions: Sessions, flows: Sequence[Flow], groups: dict[str, list[str]]) -> None:
    """Add the groups of one pair: those that it names, and those seen that committed offsets on topics it mirrors."""
    filters = [flow.settings.checkpoints.groups for flow in flows]
    lists = ((each.include, (*defaults.GROUPS_EXCLUDE, *each.exclude)) for each in filters)
    wanted = [NameFilter(*(tuple(map(java_pattern, each)) for each in pair)) for pair in lists]
    named = {name for each in filters for name in each.include if is_name(name)}
    found = {name for name in named if any(each.matches(name) for each in wanted)}
    looked_at: set[str] = set()

    def read(names: list[str], kafka: Kafka) -> None:
        for group, offsets in committed_offsets(kafka, names).items():
            looked_at.add(group)
            if any(flow.carries(one.topic) for flow in flows for one in offsets):
                found.add(group)

    for session in sessions.of(flows[0].source.alias):
        seen = session.view.groups if session.view else frozenset()
        new = sorted(name for name in seen - found - looked_at if any(each.matches(name) for each in wanted))
        session.attempt(sessions.left / 2, partial(read, new[:_GROUPS_AT_MOST]))
    groups[flows[0].pair] = sorted(found)


def kafkas(
    sessions: Sessions, topology: Topology, connectors: Iterable[Connector], known: ExistingNames
) -> dict[str, KafkaFacts]:
    """Return what lint wants to know of each cluster, as far as a login may read it."""
    flows = [flow for flow in topology.flows if any(flow.id in one.flows for one in connectors)]
    topics: dict[str, set[str]] = {}
    for flow in flows:
        names = mirrored(flow, known.topics.get(flow.source.alias, ()))
        topics.setdefault(flow.source.alias, set()).update(names)
        topics.setdefault(flow.target.alias, set()).update(map(flow.remote_topic, names))
    found: dict[str, KafkaFacts] = {}
    sessions.run(partial(_kafka, sessions, alias, topics[alias], found) for alias in topics)
    return found


def _kafka(sessions: Sessions, alias: str, topics: set[str], found: dict[str, KafkaFacts]) -> None:
    for session in sessions.of(alias):
        _limits(sessions, session, topics, found)
        if alias in found and found[alias].message_max_bytes is not None:
            return


def _limits(sessions: Sessions, session: Session, topics: set[str], found: dict[str, KafkaFacts]) -> None:
    seen = session.view
    if seen is None:
        return
    here = {topic: count for topic, count in seen.partitions.items() if topic in topics}
    found.setdefault(session.alias, KafkaFacts(seen.cluster_id, len(seen.brokers), partitions=here))

    def read(kafka: Kafka) -> None:
        most = message_limit(kafka, seen.brokers)
        settings = {topic: dict(each.values) for topic, each in topic_configs(kafka, sorted(here)).items()}
        sizes = {topic: int(each["max.message.bytes"]) for topic, each in settings.items()}
        if most is not None or settings:
            found[session.alias] = KafkaFacts(seen.cluster_id, len(seen.brokers), most, sizes, settings, here)

    session.attempt(sessions.left, read, optional=True)


def check(
    topology: Topology,
    connectors: Sequence[Connector],
    flows: Sequence[Flow],
    spec: Spec | None = None,
    timeout_seconds: float = 20.0,
) -> Checked:
    """Check the chosen flows. Whatever does not answer is a row; it ends about `timeout_seconds` after it began."""
    started = timing.now()
    chosen = connectors_of(connectors, flows)
    with open_sessions(timeout_seconds) as sessions:
        answers: dict[str, WorkerAnswer] = {}
        running: dict[str, RunningOn] = {}

        def ask_workers() -> None:
            answers.update(timing.run(read_workers(topology, chosen, timeout_seconds / 2, running)))

        sessions.run([ask_workers, partial(_log_in, sessions, topology, chosen)])
        answered = {name: answer[0] for name, answer in answers.items() if not isinstance(answer, Failure)}
        known = survey(sessions, topology, chosen)
        wanted = list(needs(topology, chosen, known, {name: worker.version for name, worker in answered.items()}))
        wanted += own_needs(topology, chosen, lambda alias: own_login(topology, alias)[0])
        _ask(sessions, wanted, _with_groups(sessions, topology, flows, answered))
        facts = kafkas(sessions, topology, chosen, known)
        rows = [
            *worker_rows(answers),
            *shared_rows(running),
            *access_rows(sessions, wanted),
            *identity_rows(sessions, topology),
        ]
        rows += history_rows(sessions, topology)
        versions = {name: connect.model.version for name, connect in topology.connects.items()}
        workers = new_workers(chosen, versions | {name: worker.version for name, worker in answered.items()})
        rows += old_broker_rows(chosen, workers, ask_versions(sessions, chosen, workers))
        rows += [*judged(wanted, _answers(sessions)), *unverified_rows(topology, chosen)]
        rows += unmatched_rows(flows, {alias: topics for alias, topics in known.topics.items() if sessions.of(alias)})
    rows.sort(key=lambda row: (STATUSES.index(row.status), row.where, row.principal, row.rows))
    whole = len(chosen) == len(connectors)
    found = findings(topology, chosen, spec, facts=facts, workers=answered, complete=whole)
    missing, unsure = (
        tuple(commands(row.grant for row in rows if row.grant and row.status == status))
        for status in ("missing", "unknown")
    )
    return Checked(tuple(rows), missing, unsure, tuple(found), timing.now() - started)


def _log_in(sessions: Sessions, topology: Topology, connectors: Sequence[Connector]) -> None:
    """Open a session for each login; mm2mgr's own come first, so that they are preferred for facts."""
    logins = [login_of(client, one, topology) for one in connectors for client in present(one).values()]
    with_history = (topology.connects[one.connect] for one in connectors)
    aliases = (*(login.cluster for login in logins), *(each.kafka for each in with_history if each.model.history))
    accesses = dict(own_login(topology, alias) for alias in dict.fromkeys(aliases))
    for login in logins:
        cluster = topology.clusters[login.cluster]
        accesses.setdefault(login, access_as(cluster, login.servers, dict(login.security)))
    sessions.log_in(accesses)


def own_login(topology: Topology, alias: str) -> tuple[ClientLogin, KafkaAccess]:
    """Return the login of mm2mgr itself on a cluster, and how to use it."""
    own = kafka_access(topology.clusters[alias])
    return ClientLogin.of(alias, {"bootstrap.servers": own.bootstrap_servers, **own.security}), own


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
    asked = ((sessions.by_login[login], rights) for login, rights in by_login.items())
    sessions.run(partial(each.attempt, sessions.left / 2, partial(each.ask, rights)) for each, rights in asked)
    doubtful = {
        need.login.cluster for need in wanted if sessions.by_login[need.login].permissions.get(need.right) != "yes"
    }
    sessions.run(partial(_read_acls, sessions, alias) for alias in doubtful)


def _read_acls(sessions: Sessions, alias: str) -> None:
    for session in sessions.of(alias):
        session.attempt(sessions.left / 2, session.read_acls, optional=True)
        if session.acls is not None:
            return


def _answers(sessions: Sessions) -> dict[ClientLogin, LoginAnswers]:
    acls = {session.alias: session.acls for session in sessions.by_login.values() if session.acls is not None}
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


def shared_rows(running: Mapping[str, RunningOn]) -> Iterator[CheckRow]:
    """Yield a row for each Connect cluster that is another one too, or shares its configs with it."""
    for name, error in shared_workers(running).items():
        yield CheckRow("failed", f"connect {name}", "workers of its own", effect=error.message, fix=error.hint or "")


async def read_workers(
    topology: Topology, connectors: Sequence[Connector], seconds: float, running: dict[str, RunningOn]
) -> dict[str, WorkerAnswer]:
    """Ask every Connect cluster that the connectors run on; `running` gets what those run that tell."""
    names = sorted({connector.connect for connector in connectors})
    asked = (_ask_cluster(topology.connects[name], connectors, seconds, running) for name in names)
    return dict(zip(names, await asyncio.gather(*asked), strict=True))


async def _ask_cluster(
    connect: ConnectCluster, connectors: Sequence[Connector], seconds: float, running: dict[str, RunningOn]
) -> WorkerAnswer:
    keys = (key for connector in connectors if connector.connect == connect.name for key in connector.config)
    clusters, limits = Clusters({connect.name: connect}), Limits(connect_seconds=seconds)
    running_there, root = ConnectorsWithStates(connect.name), AnsweringWorker(connect.name)
    try:
        async with asyncio.timeout(seconds):
            first = await read([running_there, root], clusters, limits)
            steps = ask_worker(connect.name, harmless_overrides(keys))
            (worker, unprobed), snapshot = await answered(steps, clusters, limits, first)
            with suppress(Mm2mgrError):
                running[connect.name] = RunningOn(*snapshot[running_there], snapshot[root])
    except Mm2mgrError as error:
        return Failure.of(error)
    except TimeoutError:
        return Failure(f"Connect cluster '{connect.name}' did not answer within {seconds:g} s", "check its url")
    return worker, Failure.of(unprobed) if unprobed else None


def access_rows(sessions: Sessions, wanted: Sequence[RequiredRight]) -> Iterator[CheckRow]:
    """Yield a row for each login that got in, or why it did not and what could therefore not be asked."""
    for login, session in sessions.by_login.items():
        clients = tuple(dict.fromkeys(need.client for need in wanted if need.login == login)) or (OWN,)
        connectors = tuple(dict.fromkeys(need.connector for need in wanted if need.login == login and need.connector))
        row = CheckRow("ok", login.cluster, "log in", session.principal.name, clients, connectors)
        if session.failure is None:
            yield row
        elif session.usable:
            yield replace(row, status="failed", effect=session.failure.message, fix=session.failure.hint or "")
        else:
            yield replace(row, status="unknown", effect=session.failure.message, fix=_unusable(clients))


def _unusable(clients: Sequence[str]) -> str:
    if clients == (OWN,):
        return "give the cluster an `access:` block with settings that this machine can use"
    return (
        "rights are seen only by logging in with this client's own settings (an `access:` block is for mm2mgr's reads): put the "
        "variable or file that it names on this machine too, or run check where the workers run"
    )


def identity_rows(sessions: Sessions, topology: Topology) -> Iterator[CheckRow]:
    """Yield a row for each alias behind which another cluster answers than declared (one under two aliases: see lint)."""
    seen: dict[str, str] = {}
    for session in sessions.by_login.values():
        if session.view:
            seen.setdefault(session.alias, session.view.cluster_id)
    for alias, cluster_id in seen.items():
        declared = topology.clusters[alias].model.cluster_id
        if declared and declared != cluster_id:
            effect = f"another Kafka cluster answers there: {cluster_id}, not {declared}"
            yield CheckRow("failed", alias, "cluster id", effect=effect, fix="correct bootstrap_servers or cluster_id")


def ask_versions(
    sessions: Sessions, connectors: Iterable[Connector], workers: Collection[str]
) -> dict[str, Versions | None]:
    """Ask the brokers of each cluster that the workers use which requests they take, which they answer before any login."""
    sides = [f"{side}.cluster.alias" for side in ("source", "target")]
    aliases = {connector.config[side] for connector in connectors if connector.connect in workers for side in sides}
    answers: dict[str, Versions | None] = {}

    def ask(session: Session) -> None:
        if session.kafka:
            answers[session.alias] = read_versions(session.kafka.access, min(_VERSIONS_SECONDS, sessions.left))

    usable = {session.alias: session for session in reversed(sessions.by_login.values()) if session.kafka}
    sessions.run(partial(ask, usable[alias]) for alias in aliases & usable.keys())
    return answers


def history_rows(sessions: Sessions, topology: Topology) -> Iterator[CheckRow]:
    """Yield a row for each topic of the history with more than one partition, as a login sees it."""
    for alias in sorted({connect.kafka for connect in topology.connects.values() if connect.model.history}):
        views = (session.view for session in sessions.of(alias) if session.view)
        count = max((view.partitions.get(HISTORY_TOPIC, 1) for view in views), default=1)
        if count > 1:
            effect = f"it {several_partitions(count)}; `reconcile` and `watch` refuse to write"
            yield CheckRow("failed", alias, f"topic {HISTORY_TOPIC}", effect=effect, fix=DELETE_TOPIC)
