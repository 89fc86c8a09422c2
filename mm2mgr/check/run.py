"""A check as a judgement that asks: what logins may do, what brokers and workers take, and lint on these facts. Pure.

A failure is kept with its login, so that one unreachable cluster or wrong password hides nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from mm2mgr import defaults
from mm2mgr.check.judge import (
    NOT_STORED,
    STATUSES,
    Checked,
    CheckRow,
    Session,
    WorkerAnswer,
    commands,
    differing_rows,
    judge_rights,
    new_workers,
    old_broker_rows,
    schema_rows,
    unmatched_rows,
    unverified_rows,
    worker_rows,
)
from mm2mgr.check.needs import (
    OWN,
    ExistingNames,
    RequiredRight,
    clients_of,
    login_of,
    mirrored_topics,
    needs,
    own_needs,
)
from mm2mgr.connect.types import PluginsOfWorkers
from mm2mgr.connectors import Connector, RunningConnector, workers_at_work
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import Failure, Mm2mgrError
from mm2mgr.kafka.acls import Right
from mm2mgr.kafka.compacted import DELETE_TOPIC, several_partitions
from mm2mgr.kafka.inspection import ClusterView
from mm2mgr.kafka.wire import Versions
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.rules import lint
from mm2mgr.lint.subject import Estate, KafkaFacts, Subject, WorkerFacts
from mm2mgr.lint.tree import from_tree
from mm2mgr.lint.workers import ask_worker, harmless_overrides, shared_workers
from mm2mgr.live.endpoints import access_as, kafka_access
from mm2mgr.live.principals import BY_LOGIN, Principal
from mm2mgr.live.questions import AnsweringWorker, ConnectorsWithStatuses, PluginsOfEachWorker
from mm2mgr.live.reach import ClientLogin
from mm2mgr.live.rights import EveryAcl, LimitsOf, LogIn, RequestVersions, RightsOf, TopicsOfGroups
from mm2mgr.live.snapshot import NotInSnapshot, Question, Snapshot, Steps, ask, or_error, side_by_side
from mm2mgr.render import connectors_of
from mm2mgr.schemas import PairTopics, find_schemas
from mm2mgr.spec.scalars import is_name, java_pattern
from mm2mgr.topics.names import NameFilter
from mm2mgr.topology import Flow, Topology, by_pair

if TYPE_CHECKING:
    from mm2mgr.spec.files import Spec

T = TypeVar("T")
RunningThere = tuple[dict[str, RunningConnector], str]
"""What a Connect cluster runs, and the id of its workers' Kafka cluster."""
_GROUPS_AT_MOST = 500  # each is a request of its own


Sessions = dict[ClientLogin, Session]
"""The sessions of a check by login, mm2mgr's own first."""


def sessions_in_use(sessions: Sessions, alias: str) -> list[tuple[Session, ClusterView]]:
    """Return the sessions of a cluster that got in, with what they see, mm2mgr's own first."""
    return [
        (session, session.view)
        for session in sessions.values()
        if session.alias == alias and session.view and not session.failure
    ]


def may_ask_of_groups(sessions: Sessions, alias: str, *, lives_there: bool, is_source: bool) -> bool:
    """Tell whether asking about a group creates nothing.

    Kafka makes its topic of group offsets at the first such question. Workers on the cluster already have a group. A
    source whose group offsets are translated has groups, unless a login sees that there are none.
    """
    views = [view for _, view in sessions_in_use(sessions, alias)]
    if lives_there or any(view.had_groups or view.groups for view in views):
        return True
    return is_source and not any(view.had_groups is False for view in views)


def check(
    topology: Topology,
    connectors: Sequence[Connector],
    flows: Sequence[Flow],
    spec: Spec | None = None,
    *,
    with_records: bool = True,
) -> Steps[Checked]:
    """Check the chosen flows. Whatever does not answer is a row. `with_records`: records of clusters with a schema
    registry are read for the ids that they carry."""
    chosen = connectors_of(connectors, flows)
    sessions, (answers, running) = yield from side_by_side(log_in(topology, chosen), read_workers(chosen))
    workers = {name: answer[0] for name, answer in answers.items() if not isinstance(answer, Mm2mgrError)}
    names = yield from find_names(sessions, topology, chosen)
    required = list(needs(topology, chosen, names, {name: worker.version for name, worker in workers.items()}))
    required += own_needs(topology, chosen, names, lambda alias: own_login(topology, alias))
    versions = {name: connect.model.version for name, connect in topology.connects.items()}
    new = new_workers(chosen, versions | {name: worker.version for name, worker in workers.items()})
    _, facts, brokers, by_worker, schemas = yield from side_by_side(
        _ask_rights(sessions, required, _with_groups(sessions, topology, flows, workers)),
        kafka_facts(sessions, topology, chosen, names),
        ask_versions(sessions, chosen, new),
        _ask_each_worker(topology, running),
        find_schemas(pair_topics(sessions, flows) if with_records else []),
    )
    rows = [
        *worker_rows(answers),
        *differing_rows(by_worker, chosen),
        *shared_rows(running),
        *access_rows(sessions, required),
        *identity_rows(sessions, topology),
        *history_rows(sessions, topology),
        *old_broker_rows(chosen, new, brokers),
        *schema_rows(schemas),
        *judge_rights(required, sessions),
        *unverified_rows(topology, chosen),
        *unmatched_rows(
            flows, {alias: topics for alias, topics in names[0].items() if sessions_in_use(sessions, alias)}
        ),
    ]
    rows.sort(key=lambda row: (STATUSES.index(row.status), row.where, row.principal, row.rows))
    estate = replace(from_tree(topology, chosen, spec), complete=len(chosen) == len(connectors))
    findings = lint_with_facts(topology, estate, facts, workers)
    missing, unsure = (
        tuple(commands(row.grant for row in rows if row.grant and row.status == status))
        for status in ("missing", "unknown")
    )
    return Checked(tuple(rows), missing, unsure, tuple(findings))


# --- asking -----------------------------------------------------------------------------------------------------------


def own_login(topology: Topology, alias: str) -> ClientLogin:
    """Return the login of mm2mgr itself on a cluster."""
    own = kafka_access(topology.clusters[alias])
    return ClientLogin.from_config(alias, {"bootstrap.servers": own.bootstrap_servers, **own.security})


def log_in(topology: Topology, connectors: Sequence[Connector]) -> Steps[Sessions]:
    """Log in as each client; mm2mgr's own logins come first, so that they are preferred for facts."""
    logins = [login_of(client, connector, topology) for connector in connectors for client in clients_of(connector)]
    connects = (topology.connects[connector.connect] for connector in connectors)
    histories = (connect.kafka for connect in connects if connect.model.history)
    aliases = dict.fromkeys((*(login.cluster for login in logins), *histories))
    asked_as: dict[ClientLogin, ClientLogin | None] = {own_login(topology, alias): None for alias in aliases}
    for login in logins:
        asked_as.setdefault(login, login)
    snapshot = yield [LogIn(login.cluster, asked) for login, asked in asked_as.items()]
    return {login: _session(topology, login, asked, snapshot) for login, asked in asked_as.items()}


def _session(topology: Topology, login: ClientLogin, asked: ClientLogin | None, snapshot: Snapshot) -> Session:
    cluster = topology.clusters[login.cluster]
    access = access_as(cluster, login.servers, dict(login.security)) if asked else kafka_access(cluster)
    answer = snapshot.get(LogIn(login.cluster, asked))
    session = Session(login, Principal(BY_LOGIN, is_known=False), access.bootstrap_servers, asked)
    if isinstance(answer, Mm2mgrError):
        session.failure = Failure.from_error(answer)
        session.is_usable, session.is_stored = False, not isinstance(answer, NotInSnapshot)
        return session
    session.principal, session.view = answer.principal, answer.view
    session.failure, session.is_usable = answer.failure, answer.is_usable
    return session


def read_workers(connectors: Sequence[Connector]) -> Steps[tuple[dict[str, WorkerAnswer], dict[str, RunningThere]]]:
    """Ask every Connect cluster that the connectors run on for its workers, and for what runs there."""
    keys: dict[str, list[str]] = {}
    for connector in sorted(connectors, key=lambda connector: connector.connect):
        keys.setdefault(connector.connect, []).extend(connector.config)
    *workers, snapshot = yield from side_by_side(
        *(or_error(ask_worker(name, harmless_overrides(keys_there))) for name, keys_there in keys.items()),
        ask([kind(name) for name in keys for kind in (ConnectorsWithStatuses, AnsweringWorker)]),
    )
    running = {}
    for name in keys:
        connectors_there, root = snapshot.get(ConnectorsWithStatuses(name)), snapshot.get(AnsweringWorker(name))
        if not isinstance(connectors_there, Mm2mgrError) and not isinstance(root, Mm2mgrError):
            running[name] = connectors_there, root.kafka_cluster_id
    return dict(zip(keys, workers, strict=True)), running


def find_names(sessions: Sessions, topology: Topology, connectors: Iterable[Connector]) -> Steps[ExistingNames]:
    """Return the topics of each cluster, and by pair the groups that its checkpoint connector translates."""
    topics = {
        alias: {topic for _, view in sessions_in_use(sessions, alias) for topic in view.partitions}
        for alias in {session.alias for session in sessions.values()}
    }
    flows_of = [topology.flows_of(connector.flows) for connector in connectors if connector.type == "checkpoint"]
    groups = yield from side_by_side(*(_find_groups(sessions, flows) for flows in flows_of))
    return topics, {flows[0].pair: names for flows, names in zip(flows_of, groups, strict=True)}


def _find_groups(sessions: Sessions, flows: Sequence[Flow]) -> Steps[list[str]]:
    """Return the groups of one pair: those it names, and those that committed offsets on topics it mirrors."""
    settings = [flow.settings.checkpoints.groups for flow in flows]
    pairs = ((groups.include, (*defaults.GROUPS_EXCLUDE, *groups.exclude)) for groups in settings)
    filters = [NameFilter(*(tuple(map(java_pattern, texts)) for texts in pair)) for pair in pairs]

    def is_taken(group: str) -> bool:
        return any(names.matches(group) for names in filters)

    groups = {name for names in settings for name in names.include if is_name(name) and is_taken(name)}
    looked_at: set[str] = set()
    for session, view in sessions_in_use(sessions, flows[0].source.alias):
        new = sorted(group for group in view.groups - groups - looked_at if is_taken(group))
        if not new:
            continue
        question = TopicsOfGroups(session.alias, session.asked_as, tuple(new[:_GROUPS_AT_MOST]))
        answer = _answer_or_failure((yield [question]), question, session) or {}
        looked_at |= answer.keys()
        groups |= {
            group for group in new if any(flow.carries(topic) for flow in flows for topic in answer.get(group, ()))
        }
    return sorted(groups)


def _answer_or_failure(snapshot: Snapshot, question: Question[T], session: Session) -> T | None:
    """Return an answer; where there is none, the session fails."""
    answer = snapshot.get(question)
    if isinstance(answer, Mm2mgrError):
        session.failure, session.is_stored = Failure.from_error(answer), not isinstance(answer, NotInSnapshot)
        return None
    return answer


def _ask_each_worker(
    topology: Topology, running: Mapping[str, RunningThere]
) -> Steps[dict[str, PluginsOfWorkers | Mm2mgrError]]:
    """Ask the workers of Connect clusters that have several, as their URLs and statuses tell."""
    questions: dict[str, PluginsOfEachWorker] = {}
    for name, (there, _) in running.items():
        at_work = workers_at_work([connector.status for connector in there.values() if connector.status])
        if len(at_work) > 1 or len(topology.connects[name].model.url) > 1:
            questions[name] = PluginsOfEachWorker(name, tuple(sorted(at_work)))
    snapshot = yield questions.values()
    return {name: snapshot.get(question) for name, question in questions.items()}


def pair_topics(sessions: Sessions, flows: Sequence[Flow]) -> list[PairTopics]:
    """Return the existing topics that each pair mirrors, as mm2mgr's own login sees them on the source."""
    pairs = []
    for members in by_pair(flows).values():
        source, target = members[0].source, members[0].target
        views = [view for session, view in sessions_in_use(sessions, source.alias) if session.asked_as is None]
        partitions = views[0].partitions if views else {}
        topics = {name: count for name, count in partitions.items() if any(flow.carries(name) for flow in members)}
        pairs.append(PairTopics(source, target, source.alias, topics))
    return pairs


def _with_groups(sessions: Sessions, topology: Topology, flows: Sequence[Flow], workers: Collection[str]) -> set[str]:
    """Return the clusters that may be asked about groups; `workers` are the Connect clusters that answered."""
    homes = {topology.connects[name].kafka for name in workers}
    sources = {flow.source.alias for flow in flows}
    return {
        alias
        for alias in topology.clusters
        if may_ask_of_groups(sessions, alias, lives_there=alias in homes, is_source=alias in sources)
    }


def _ask_rights(sessions: Sessions, required: Sequence[RequiredRight], with_groups: Collection[str]) -> Steps[None]:
    """Ask each login for its rights, on groups only where that creates nothing; then for ACLs in case of doubt."""
    by_login: dict[ClientLogin, dict[Right, None]] = {}
    for need in required:
        if need.right.kind != "group" or need.login.cluster in with_groups:
            by_login.setdefault(need.login, {})[need.right] = None
    questions = {
        login: RightsOf(login.cluster, session.asked_as, session.view, tuple(rights))
        for login, rights in by_login.items()
        if (session := sessions[login]).view and not session.failure
    }
    snapshot = yield questions.values()
    for login, question in questions.items():
        session = sessions[login]
        if (answer := _answer_or_failure(snapshot, question, session)) is not None:
            permissions = {right: answer.get(right.kind, {}).get(right.name, {}) for right in question.rights}
            session.permissions = {
                right: operations[right.operation]
                for right, operations in permissions.items()
                if right.operation in operations
            }
            session.without = frozenset(question.rights) - session.permissions.keys()
    doubtful = {need.login.cluster for need in required if sessions[need.login].permissions.get(need.right) != "yes"}
    yield from side_by_side(*(_read_acls(sessions, alias) for alias in sorted(doubtful)))


def _read_acls(sessions: Sessions, alias: str) -> Steps[None]:
    for session, view in sessions_in_use(sessions, alias):
        question = EveryAcl(alias, session.asked_as, view)
        answer = (yield [question]).get(question) if "Describe" in view.operations else None
        if answer is not None and not isinstance(answer, Mm2mgrError):
            for other in sessions.values():
                other.acls = answer if other.alias == alias else other.acls
            return


def kafka_facts(
    sessions: Sessions, topology: Topology, connectors: Iterable[Connector], names: ExistingNames
) -> Steps[dict[str, KafkaFacts]]:
    """Return what lint is to know of each cluster, as far as a login may read it."""
    ids = {flow_id for connector in connectors for flow_id in connector.flows}
    topics: dict[str, set[str]] = {}
    for flow in (flow for flow in topology.flows if flow.id in ids):
        sources = mirrored_topics(flow, names[0].get(flow.source.alias, ()))
        topics.setdefault(flow.source.alias, set()).update(sources)
        topics.setdefault(flow.target.alias, set()).update(map(flow.remote_topic, sources))
    facts = yield from side_by_side(
        *(_facts_of(sessions, alias, topics_there) for alias, topics_there in topics.items())
    )
    return {alias: facts_there for alias, facts_there in zip(topics, facts, strict=True) if facts_there}


def _facts_of(sessions: Sessions, alias: str, topics: set[str]) -> Steps[KafkaFacts | None]:
    facts = None
    for session, view in sessions_in_use(sessions, alias):
        partitions = {topic: count for topic, count in view.partitions.items() if topic in topics}
        facts = facts or KafkaFacts(view.cluster_id, len(view.brokers), partitions=partitions)
        question = LimitsOf(alias, session.asked_as, view, tuple(sorted(partitions)))
        limits = (yield [question]).get(question)
        if isinstance(limits, Mm2mgrError):
            continue
        settings = {topic: limits.settings(topic) for topic in partitions if topic in limits.by_topic}
        most = limits.message_max_bytes
        if most is not None or settings:
            facts = KafkaFacts(view.cluster_id, len(view.brokers), most, settings, partitions)
        if most is not None:
            break
    return facts


def ask_versions(
    sessions: Sessions, connectors: Iterable[Connector], workers: Collection[str]
) -> Steps[dict[str, Versions | None]]:
    """Ask brokers that the workers use which requests they take, which they answer before any login."""
    sides = [f"{side}.cluster.alias" for side in ("source", "target")]
    aliases = {connector.config[side] for connector in connectors if connector.connect in workers for side in sides}
    usable = {session.alias: session for session in reversed(sessions.values()) if session.is_usable}
    questions = {alias: RequestVersions(alias, usable[alias].asked_as) for alias in sorted(aliases & usable.keys())}
    snapshot = yield questions.values()
    answers = {alias: snapshot.get(question) for alias, question in questions.items()}
    return {alias: None if isinstance(answer, Mm2mgrError) else answer for alias, answer in answers.items()}


# --- judging ----------------------------------------------------------------------------------------------------------


def lint_with_facts(
    topology: Topology, estate: Estate, facts: Mapping[str, KafkaFacts], workers: Mapping[str, WorkerFacts]
) -> list[Finding]:
    """Return what lint finds in the connectors of a tree; `facts` by alias, `workers` by Connect cluster."""
    subjects = (
        _with_facts(subject, facts, workers.get(connect), topology.connects[connect].kafka)
        for subject in estate.subjects
        for connect in [subject.connector.connect]
    )
    return lint(replace(estate, subjects=tuple(subjects)))


def _with_facts(
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


def shared_rows(running: Mapping[str, RunningThere]) -> Iterator[CheckRow]:
    """Yield a row for each Connect cluster that is another one too, or shares its configs with it."""
    connectors = {name: connectors for name, (connectors, _) in running.items()}
    ids = {name: kafka_id for name, (_, kafka_id) in running.items()}
    for name, error in shared_workers(connectors, ids).items():
        yield CheckRow("failed", f"connect {name}", "workers of its own", effect=error.message, fix=error.hint or "")


def access_rows(sessions: Sessions, required: Sequence[RequiredRight]) -> Iterator[CheckRow]:
    """Yield a row for each login that got in, or why it did not and what could therefore not be asked."""
    needs_of: dict[ClientLogin, list[RequiredRight]] = {}
    for need in required:
        needs_of.setdefault(need.login, []).append(need)
    for login, session in sessions.items():
        own_needs = needs_of.get(login, ())
        clients = tuple(dict.fromkeys(need.client for need in own_needs)) or (OWN,)
        connectors = tuple(dict.fromkeys(need.connector for need in own_needs if need.connector))
        row = CheckRow("ok", login.cluster, "log in", session.principal.name, clients, connectors)
        if session.failure is None:
            yield row
        elif not session.is_stored:
            yield replace(row, status="unknown", effect=session.failure.message, fix=NOT_STORED)
        elif session.is_usable:
            yield replace(row, status="failed", effect=session.failure.message, fix=session.failure.hint or "")
        else:
            yield replace(row, status="unknown", effect=session.failure.message, fix=_unusable_fix(clients))


def _unusable_fix(clients: Sequence[str]) -> str:
    if clients == (OWN,):
        return "give the cluster an `access:` block with settings that this machine can use"
    return (
        "rights are seen only by logging in with this client's own settings (an `access:` block is for mm2mgr's reads):"
        " put the variable or file that it names on this machine too, or run check where the workers run"
    )


def identity_rows(sessions: Sessions, topology: Topology) -> Iterator[CheckRow]:
    """Yield a row for each alias behind which another cluster answers than declared."""
    ids: dict[str, str] = {}
    for session in sessions.values():
        if session.view:
            ids.setdefault(session.alias, session.view.cluster_id)
    for alias, cluster_id in ids.items():
        declared = topology.clusters[alias].model.cluster_id
        if declared and declared != cluster_id:
            effect = f"another Kafka cluster answers there: {cluster_id}, not {declared}"
            yield CheckRow("failed", alias, "cluster id", effect=effect, fix="correct bootstrap_servers or cluster_id")


def history_rows(sessions: Sessions, topology: Topology) -> Iterator[CheckRow]:
    """Yield a row for each topic of the history with more than one partition, as a login sees it."""
    for alias in sorted({connect.kafka for connect in topology.connects.values() if connect.model.history}):
        counts = (view.partitions.get(HISTORY_TOPIC, 1) for _, view in sessions_in_use(sessions, alias))
        count = max(counts, default=1)
        if count > 1:
            effect = f"it {several_partitions(count)}; `reconcile` and `watch` refuse to write"
            yield CheckRow("failed", alias, f"topic {HISTORY_TOPIC}", effect=effect, fix=DELETE_TOPIC)
