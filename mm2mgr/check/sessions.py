"""Sessions of a check: one per Kafka login, opened and asked at the same time, and what exists on the clusters.

A failure is kept in its session, so that one unreachable cluster or wrong password hides nothing else. A topic that one login
cannot see may still exist, so the topics that any login of a cluster sees count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

from mm2mgr import defaults
from mm2mgr.check.needs import ClientLogin, ExistingNames, mirrored
from mm2mgr.check.principals import Principal, principal_of
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.acls import Acl, Permission, Right
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.inspection import ClusterView, committed_topics, may, message_limits, read_acls, view_cluster
from mm2mgr.lint import subject
from mm2mgr.observe.reading import Failure
from mm2mgr.render import Connector
from mm2mgr.spec.patterns import is_name, java_pattern
from mm2mgr.topics.names import NameFilter
from mm2mgr.topology import Flow, Topology

_AT_ONCE = 64
_LEAST_SECONDS = 1.0


@dataclass
class Session:
    """One login while it is being used. Not `usable`: its settings cannot be used on this machine, so nobody logged in."""

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

    def log_in(self, seconds: float) -> None:
        """Log in and view the cluster."""

        def do(kafka: Kafka) -> None:
            self.view = view_cluster(kafka)

        self.attempt(seconds, do)

    def ask(self, rights: Iterable[Right], seconds: float) -> None:
        """Ask for rights."""

        def do(kafka: Kafka) -> None:
            if self.view:
                self.permissions.update(may(kafka, rights, self.view))

        self.attempt(seconds, do)

    def read_acls(self, seconds: float) -> None:
        """Read the cluster's ACLs, if this login may."""

        def do(kafka: Kafka) -> None:
            self.acls = read_acls(kafka, self.view) if self.view else None

        self.attempt(seconds, do, optional=True)


class Sessions:
    """The sessions of a check and the threads they run in; `left` seconds until the deadline."""

    def __init__(self, timeout_seconds: float, threads: ThreadPoolExecutor) -> None:
        self._end = time.monotonic() + timeout_seconds
        self._threads = threads
        self.by_login: dict[ClientLogin, Session] = {}

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

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
    session.log_in(seconds)
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
    jobs = [partial(_translated, sessions, _flows(topology, one), groups) for one in checkpoints]
    sessions.run(jobs)
    return ExistingNames(topics, groups)


def _flows(topology: Topology, connector: Connector) -> list[Flow]:
    return [flow for flow in topology.flows if flow.id in connector.flows]


def _translated(sessions: Sessions, flows: Sequence[Flow], groups: dict[str, list[str]]) -> None:
    """Add the groups of one pair: those that it names, and those seen that committed offsets on topics it mirrors."""
    filters = [flow.settings.checkpoints.groups for flow in flows]
    wanted = [
        NameFilter(
            *(tuple(map(java_pattern, list_)) for list_ in (each.include, [*defaults.GROUPS_EXCLUDE, *each.exclude]))
        )
        for each in filters
    ]
    named = {name for each in filters for name in each.include if is_name(name)}
    found = {name for name in named if any(each.matches(name) for each in wanted)}
    looked_at: set[str] = set()

    def read(names: list[str], kafka: Kafka) -> None:
        for group, topics in committed_topics(kafka, names).items():
            looked_at.add(group)
            if any(flow.carries(topic) for flow in flows for topic in topics):
                found.add(group)

    for session in sessions.of(flows[0].source.alias):
        seen = session.view.groups if session.view else frozenset()
        new = sorted(name for name in seen - found - looked_at if any(each.matches(name) for each in wanted))
        session.attempt(sessions.left / 2, partial(read, new[:_GROUPS_AT_MOST]))
    groups[flows[0].pair] = sorted(found)


def kafkas(
    sessions: Sessions, topology: Topology, connectors: Iterable[Connector], known: ExistingNames
) -> dict[str, subject.KafkaFacts]:
    """Return what lint wants to know of each cluster, as far as a login may read it."""
    flows = [flow for flow in topology.flows if any(flow.id in one.flows for one in connectors)]
    topics: dict[str, set[str]] = {}
    for flow in flows:
        names = mirrored(flow, known.topics.get(flow.source.alias, ()))
        topics.setdefault(flow.source.alias, set()).update(names)
        topics.setdefault(flow.target.alias, set()).update(map(flow.remote_topic, names))
    found: dict[str, subject.KafkaFacts] = {}
    sessions.run(partial(_kafka, sessions, alias, topics[alias], found) for alias in topics)
    return found


def _kafka(sessions: Sessions, alias: str, topics: set[str], found: dict[str, subject.KafkaFacts]) -> None:
    for session in sessions.of(alias):
        _limits(sessions, session, topics, found)
        if alias in found and found[alias].message_max_bytes is not None:
            return


def _limits(sessions: Sessions, session: Session, topics: set[str], found: dict[str, subject.KafkaFacts]) -> None:
    seen = session.view
    if seen is None:
        return
    here = {topic: count for topic, count in seen.partitions.items() if topic in topics}
    found.setdefault(session.alias, subject.KafkaFacts(seen.cluster_id, len(seen.brokers), partitions=here))

    def read(kafka: Kafka) -> None:
        most, per_topic = message_limits(kafka, seen.brokers, sorted(here))
        if most is not None or per_topic:
            found[session.alias] = subject.KafkaFacts(seen.cluster_id, len(seen.brokers), most, per_topic, here)

    session.attempt(sessions.left, read, optional=True)
