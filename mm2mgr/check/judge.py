"""The result of a check: rows judged from answers of brokers and workers, and `kafka-acls.sh` commands. Pure.

For a topic that does not exist, brokers do not answer questions about Read and Write. There the ACLs decide, if a login
may read them; otherwise a login that may describe the topic for no other reason must have the right, because it
includes Describe.

The least version of each request that workers of Kafka 4.0 and newer send (KIP-896) is from `validVersions` in Kafka's
message files (clients/src/main/resources/common/message).
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from mm2mgr.check.needs import EFFECTS, RequiredRight, knows_names
from mm2mgr.connect.types import SOURCE_CLASS, PluginsOfWorkers
from mm2mgr.connectors import Connector, ConnectorType
from mm2mgr.errors import Failure, Mm2mgrError
from mm2mgr.kafka.acls import Acl, Permission, Right, is_allowed
from mm2mgr.kafka.inspection import ClusterView
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.subject import WorkerFacts
from mm2mgr.live.principals import Principal
from mm2mgr.live.reach import ClientLogin
from mm2mgr.live.snapshot import NotInSnapshot
from mm2mgr.schemas import BROKEN, PairSchemas, effect_of, remedy_of
from mm2mgr.text import few, number_of
from mm2mgr.topology import Flow, Topology, matches_nothing
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import numbers

Status = Literal["missing", "failed", "unknown", "ok"]
STATUSES: tuple[Status, ...] = get_args(Status)
"""Worst first: a right is missing; no answer, or not what was declared; it could not be verified; all is well."""


@dataclass(frozen=True)
class CheckRow:
    """One result. `where` is a cluster's alias or `connect NAME`; `rows` are numbers of the table in `needs`.

    `how`: `asked` of the brokers, read from `ACLs`, or `inferred`: only this right lets its login describe the topic.
    """

    status: Status
    where: str
    what: str
    principal: str = ""
    clients: tuple[str, ...] = ()
    connectors: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    effect: str = ""
    fix: str = ""
    how: str = "asked"
    grant: Grant | None = None
    json_keys = "status where what principal clients connectors rows effect fix how"


@dataclass(frozen=True)
class Checked:
    """Everything that a check found; `seconds` is how long it took.

    `commands` give the missing rights, `unsure` those that could not be verified: granting a right twice does no harm.
    """

    rows: tuple[CheckRow, ...]
    commands: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    json_keys = "good counts rows commands unsure findings seconds=rounded_seconds"

    @property
    def counts(self) -> dict[str, int]:
        """Return how many rows have each status."""
        counted = Counter(row.status for row in self.rows)
        return {status: counted[status] for status in STATUSES}

    @property
    def good(self) -> bool:
        """Tell whether nothing is missing, failed, or an error of lint; what is unknown alone does not count."""
        errors = any(finding.severity == "error" and finding.silenced is None for finding in self.findings)
        return not errors and all(row.status in ("ok", "unknown") for row in self.rows)

    @property
    def rounded_seconds(self) -> float:
        return round(self.seconds, 1)


_RESOURCES = {"topic": "--topic", "group": "--group", "transactional id": "--transactional-id"}
_NAMES_PER_LINE = 50
_OPERATIONS = ("Describe", "Read", "Write", "Create", "Delete", "Alter", "DescribeConfigs", "AlterConfigs")


Grant = tuple[str, str, Right]
"""The servers of a cluster, and a principal that is to be given a right there."""


def commands(grants: Iterable[Grant]) -> list[str]:
    """Return the commands: operations on a resource in one line, resources that need the same ones in one line too.

    Operations that others imply are left out. Who may alter ACLs adds `--command-config FILE` of their own.
    """
    needed: dict[tuple[str, str, str, str], set[Right]] = {}
    for servers, principal, right in grants:
        needed.setdefault((servers, principal, right.kind, right.name), set()).add(right)
    lines: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for (servers, principal, kind, name), rights in sorted(needed.items()):
        operations = {right.operation for right in rights}
        least = (right.operation for right in rights if not right.implied_by() & operations)
        key_of_line = servers, principal, kind, tuple(sorted(least, key=_OPERATIONS.index))
        lines.setdefault(key_of_line, []).append(name)
    return [
        _line(*key, names[start : start + _NAMES_PER_LINE])
        for key, names in lines.items()
        for start in range(0, len(names), _NAMES_PER_LINE)
    ]


def _line(servers: str, principal: str, kind: str, operations: tuple[str, ...], names: list[str]) -> str:
    words = ["kafka-acls.sh", "--bootstrap-server", servers, "--add", "--allow-principal", principal]
    words += [word for operation in operations for word in ("--operation", operation)]
    words += ["--cluster"] if kind == "cluster" else [word for name in names for word in (_RESOURCES[kind], name)]
    return " ".join(_quote(word) for word in words)


def _quote(word: str) -> str:
    return word if re.fullmatch(r"[\w@%+=:,./*-]+", word) and "*" not in word else shlex.quote(word)


_ASSUMED = (
    "asked with the security that the tree declares for this cluster, because the workers bring their own login for"
    " this client"
)
_LATER = (
    "cannot be asked before the topic exists: check again after the first apply, or let a login of the tree read ACLs "
    "(Describe on the cluster)"
)
_NO_GROUPS = (
    "not asked: Kafka creates its topic of group offsets at the first question about a group, and no login sees whether"
    " it is there. Check again when the cluster has had a group, or let a login of the tree read ACLs (Describe on the"
    " cluster)"
)
_OUTSIDE = (
    "its rights do not come from ACLs that can be read, and the topic does not exist yet: check again after the first "
    "apply"
)
NOT_STORED = "not in the snapshot: take another one with this tree (mm2mgr snapshot --out FILE)"
_BY_HOST = "its ACLs name single hosts, and the workers' are not known here"
_SUPER = "ClusterAction"  # what no ACL of a client holds: a super user's, or there is no authorizer


@dataclass
class Session:
    """A login and what it was answered; `asked_as` is None for mm2mgr's own.

    `without`: rights that were to be asked and are not in the snapshot. Not `is_usable`: no login was tried. `acls` of
    its cluster, None when no login could read them.
    """

    login: ClientLogin
    principal: Principal
    servers: str
    asked_as: ClientLogin | None = None
    view: ClusterView | None = None
    failure: Failure | None = None
    is_usable: bool = True
    is_stored: bool = True
    permissions: dict[Right, Permission] = field(default_factory=dict)
    without: frozenset[Right] = frozenset()
    acls: tuple[Acl, ...] | None = None

    @property
    def alias(self) -> str:
        return self.login.cluster


_Verdict = tuple[Status, str, str]
"""The status, how it is known, and what to do."""


class _Book:
    """The ACLs of one principal by resource: there can be thousands of them, and thousands of questions."""

    def __init__(self, answers: Session) -> None:
        name = answers.principal.name
        own = [acl for acl in answers.acls or () if acl.principal in (name, "User:*")]
        self._named: dict[tuple[str, str], list[Acl]] = {}
        for acl in own:
            if not acl.prefixed and acl.name != "*":
                self._named.setdefault((acl.kind, acl.name), []).append(acl)
        self._wide = [acl for acl in own if acl.prefixed or acl.name == "*"]
        self.principal = name
        self.is_complete = answers.acls is not None and answers.principal.is_known
        # No ACL explains what it may do to the cluster: a super user, or there is no authorizer.
        self.outranked = (
            answers.view is not None and _SUPER in answers.view.operations and not self.allows(Right(_SUPER, "cluster"))
        )

    def covering(self, right: Right) -> list[Acl]:
        return [*self._named.get((right.kind, right.name), ()), *self._wide]

    def allows(self, right: Right) -> bool | None:
        return is_allowed(self.covering(right), self.principal, right)


def judge_rights(needs: Iterable[RequiredRight], sessions: Mapping[ClientLogin, Session]) -> list[CheckRow]:
    """Return one row for each right of each login that was asked, with every client and connector that needs it."""
    answers = {login: session for login, session in sessions.items() if session.view and not session.failure}
    by_right: dict[tuple[ClientLogin, Right], list[RequiredRight]] = {}
    operations: dict[tuple[ClientLogin, str, str], set[str]] = {}
    for need in needs:
        if need.login in answers:
            by_right.setdefault((need.login, need.right), []).append(need)
            operations.setdefault((need.login, need.right.kind, need.right.name), set()).add(need.right.operation)
    books = {login: _Book(session) for login, session in answers.items()}
    rows = []
    for (login, right), group in by_right.items():
        verdict = _verdict(right, answers[login], books[login], operations[login, right.kind, right.name])
        rows.append(_row(group, answers[login], verdict, books[login]))
    return rows


def _verdict(right: Right, answers: Session, book: _Book, needed: set[str]) -> _Verdict:
    """Judge one right; `needed` are all operations that its login needs on the resource."""
    permission = answers.permissions.get(right, "open")
    if permission != "open":
        return "ok" if permission == "yes" else "missing", "asked", ""
    if right in answers.without:
        return "unknown", "asked", NOT_STORED
    if book.is_complete:
        return _by_acls(right, book)
    if right.kind == "group":
        return "unknown", "asked", _NO_GROUPS
    includes_describe = replace(right, operation="Describe").implied_by() | {"Describe"}
    alone = right.operation in includes_describe and not (needed - {right.operation}) & includes_describe
    return ("ok", "inferred", "") if alone else ("unknown", "asked", _LATER)


def _by_acls(right: Right, book: _Book) -> _Verdict:
    allows = book.allows(right)
    if allows or book.outranked:
        return "ok", "ACLs", ""
    if allows is None:
        return "unknown", "ACLs", _BY_HOST
    # The brokers let it describe a missing topic: when no ACL says so, other things than ACLs count here.
    outside = right.kind == "topic" and not book.allows(replace(right, operation="Describe"))
    return ("unknown", "ACLs", _OUTSIDE) if outside else ("missing", "ACLs", "")


def _row(group: Sequence[RequiredRight], answers: Session, verdict: _Verdict, book: _Book) -> CheckRow:
    first = group[0]
    numbers = tuple(sorted({need.number for need in group}))
    status, how, fix = verdict
    grant: Grant | None = None
    if status == "missing" and not (fix := _remove_denial(first.right, book)):
        fix = f"give {answers.principal.name} {first.right}"
        grant = answers.servers, answers.principal.name, first.right
    elif fix in (_LATER, _NO_GROUPS):
        grant = answers.servers, answers.principal.name, first.right
    if first.login.assumed and status != "ok":
        fix = f"{fix} ({_ASSUMED})"
    return CheckRow(
        status,
        first.login.cluster,
        str(first.right),
        answers.principal.name,
        tuple(dict.fromkeys(need.client for need in group)),
        tuple(dict.fromkeys(need.connector for need in group if need.connector)),
        numbers,
        "; ".join(dict.fromkeys(EFFECTS[number] for number in numbers)),
        fix,
        how,
        grant,
    )


def _remove_denial(right: Right, book: _Book) -> str:
    """Return how to remove a DENY that no added ACL can outweigh, or an empty text."""
    for acl in book.covering(right):
        if not acl.allow and acl.covers(right):
            resource = f"{acl.kind} {acl.name}{'…' if acl.prefixed else ''}"
            denied = f"{acl.principal} {acl.operation} on {resource}"
            return f"remove the ACL that denies {denied}: it outweighs every ACL that allows"
    return ""


_ONCE = (
    "record producer: Write on transactional id <group.id of the workers>-{name}-* and the same for the workers' own "
    "admin client"
)


def unmatched_rows(flows: Sequence[Flow], topics: Mapping[str, Collection[str]]) -> Iterator[CheckRow]:
    """Yield a row for each flow that takes none of the topics that logins see on its source; `topics` are by alias."""
    for flow in flows:
        source_topics = topics.get(flow.source.alias)
        if source_topics is not None and (message := matches_nothing(flow, source_topics)):
            effect = f"flow {flow.id} mirrors nothing until such a topic exists, or until a login may see it"
            fix = "compare the patterns with the names of the topics (the whole name has to match)"
            yield CheckRow("unknown", flow.source.alias, message, effect=effect, fix=fix)


def unverified_rows(topology: Topology, connectors: Sequence[Connector]) -> Iterator[CheckRow]:
    """Yield what cannot be verified: topic names of custom replication policies, and rights of exactly-once workers."""
    for flow in topology.flows:
        serving = (connector for connector in connectors if flow.id in connector.flows)
        names = tuple(f"{connector.connect}/{connector.name}" for connector in serving)
        if names and not knows_names(flow):
            fix = f"compare by hand: {flow.policy} decides how topics are named"
            yield CheckRow("unknown", flow.target.alias, "rights on remote topics", connectors=names, fix=fix)
    for connector in connectors:
        if topology.connects[connector.connect].exactly_once:
            yield CheckRow(
                "unknown",
                connector.config["target.cluster.alias"],
                _ONCE.format(name=connector.name),
                connectors=(f"{connector.connect}/{connector.name}",),
                effect="without it the task fails, or all tasks as soon as there are two",
                fix="brokers do not report it",
            )


WorkerAnswer = tuple[WorkerFacts, Mm2mgrError | None] | Mm2mgrError
"""What the workers say, with the reason where their override policy could not be found; or why they do not answer."""


def worker_rows(answers: Mapping[str, WorkerAnswer]) -> Iterator[CheckRow]:
    """Yield one row for each Connect cluster, and one for a policy that could not be found."""
    for name, answer in answers.items():
        where = f"connect {name}"
        if isinstance(answer, Mm2mgrError):
            status: Status = "unknown" if isinstance(answer, NotInSnapshot) else "failed"
            yield CheckRow(status, where, "ask the workers", effect=answer.message, fix=answer.hint or "")
            continue
        worker, unprobed = answer
        policy = f", overrides: {worker.policy}" if worker.policy else ""
        version = worker.version or "unknown"
        yield CheckRow("ok", where, f"workers of Kafka {version} on Kafka cluster {worker.cluster_id}{policy}")
        if unprobed:
            yield CheckRow("unknown", where, "override policy", effect=unprobed.message, fix=unprobed.hint or "")


def differing_rows(
    answers: Mapping[str, PluginsOfWorkers | Mm2mgrError], connectors: Sequence[Connector]
) -> Iterator[CheckRow]:
    """Yield Connect clusters whose workers do not have the same versions of the classes that its connectors use, where
    several answered.
    """
    for name, answer in answers.items():
        asked = () if isinstance(answer, Mm2mgrError) else answer.workers
        workers = [worker for worker in asked if not worker.failure]
        if len(workers) < 2:
            continue
        classes = {connector.config["connector.class"] for connector in connectors if connector.connect == name}
        versions = {
            kind: {worker.worker: worker.version_of(kind) or "missing" for worker in workers}
            for kind in sorted({*classes, SOURCE_CLASS})
        }
        differing: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for kind, by_worker in versions.items():
            if len({*by_worker.values()}) > 1:
                differing.setdefault(tuple(by_worker.items()), []).append(kind)
        for places, kinds in differing.items():
            shown = few([f"{worker}: {version}" for worker, version in places], 5)
            yield CheckRow(
                "failed",
                f"connect {name}",
                "workers of one version",
                effect=f"not the same version of {few(kinds)} ({shown}): what a task does depends on its worker",
                fix="finish the upgrade: the same version of Kafka and the same plugins on every worker",
            )


def schema_rows(pairs: Iterable[PairSchemas]) -> Iterator[CheckRow]:
    """Yield a row for each schema id that the target's registry does not resolve to the schema of the source's, one for
    what is not judged, and one for the rest of a pair."""
    for pair in pairs:
        for verdict in pair.verdicts:
            if verdict.state in BROKEN:
                effect, fix = effect_of(verdict, pair.source, pair.target), remedy_of(verdict, pair.source)
                yield CheckRow("failed", pair.target, verdict.name, effect=effect, fix=fix)
        for unknown in pair.open_points:
            subject = f"schemas of {pair.source}->{pair.target}"
            fix = "no snapshot holds records: ask the clusters" if unknown.kind == "snapshot" else unknown.remedy
            yield CheckRow("unknown", unknown.where, subject, effect=f"not judged: {unknown.reason}", fix=fix)
        if pair.topics and not pair.open_points:
            no_ids = sum(verdict.state == "no id" for verdict in pair.verdicts)
            subject = f"schemas of {pair.source}->{pair.target}: {number_of(len(pair.equal), 'id')} with equal schemas"
            effect = f"data that begin with a zero byte, not an id: {no_ids}" if no_ids else ""
            yield CheckRow("ok", pair.target, subject, effect=effect)


FIRST_WORKERS = (4, 0)
"""Before, clients took every version of a request."""
OLDEST_SUPPORTED = "2.1"
_FETCH = 1
_FETCH_OF_OLDEST = 10
_BY_HAND = "compare the brokers' versions by hand (kafka-broker-api-versions.sh)"
# The highest version of Fetch tells an older line.
_LINES = {2: "0.10.0", 3: "0.10.1 or 0.10.2", 5: "0.11", 6: "1.0", 7: "1.1", 8: "2.0"}


Switch = tuple[str, str, str]
"""A key that decides whether a request is sent, Kafka's default of it, and how a tree turns it off."""

_ACLS = "sync.topic.acls.enabled", "true", "sync: {topic_acls: false}"
_CONFIGS = "sync.topic.configs.enabled", "true", "sync: {topic_configs: false}"
_GROUPS = "sync.group.offsets.enabled", "false", "checkpoints: {group_offsets: false}"


def _is_on(switch: Switch, config: Mapping[str, str]) -> bool:
    key, default, _ = switch
    return config.get(key, default).strip().lower() == "true"


@dataclass(frozen=True)
class Request:
    """A request that a connector sends to one side, if `only_with` is on, and its least version since 4.0."""

    key: int
    name: str
    least: int
    side: Literal["source", "target"]
    type: ConnectorType
    effect: str
    only_with: Switch | None = None


REQUESTS = (
    Request(1, "Fetch", 4, "source", "source", "no record is read"),
    Request(2, "ListOffsets", 1, "source", "source", "no record is read"),
    Request(32, "DescribeConfigs", 1, "source", "source", "no topic is created on the target"),
    Request(29, "DescribeAcls", 1, "source", "source", "ACLs are not copied", _ACLS),
    Request(9, "OffsetFetch", 1, "source", "checkpoint", "no group's offsets are translated"),
    Request(0, "Produce", 3, "target", "source", "no record is written"),
    Request(19, "CreateTopics", 2, "target", "source", "no topic is created"),
    Request(30, "CreateAcls", 1, "target", "source", "ACLs are not copied", _ACLS),
    Request(44, "IncrementalAlterConfigs", 0, "target", "source",
        "the connector fails as it copies topic settings, and nothing is mirrored", _CONFIGS),
    Request(0, "Produce", 3, "target", "checkpoint", "no checkpoint is written"),
    Request(8, "OffsetCommit", 2, "target", "checkpoint", "no group's offsets are set", _GROUPS),
    Request(0, "Produce", 3, "target", "heartbeat", "no heartbeat is written"),
)  # fmt: skip


def new_workers(connectors: Sequence[Connector], versions: Mapping[str, str | None]) -> dict[str, str]:
    """Return the version of each Connect cluster of these connectors whose clients dropped old requests, if known."""
    names = dict.fromkeys(connector.connect for connector in connectors)
    known = {name: version for name in names if (version := versions.get(name))}
    return {name: version for name, version in known.items() if numbers(kafka_version(version) or "") >= FIRST_WORKERS}


def old_broker_rows(
    connectors: Sequence[Connector],
    workers: Mapping[str, str],
    answers: Mapping[str, Mapping[int, tuple[int, int]] | None],
) -> Iterator[CheckRow]:
    """Yield a row for each cluster and the new workers that use it; `answers` of brokers by alias (None: not asked)."""
    users: dict[tuple[str, str], list[tuple[Connector, str]]] = {}
    for connector in connectors:
        for side in ("source", "target"):
            # A heartbeat connector has no client on its source.
            if connector.connect in workers and (side == "target" or connector.type != "heartbeat"):
                alias = connector.config[f"{side}.cluster.alias"]
                users.setdefault((alias, connector.connect), []).append((connector, side))
    for (alias, connect), used in users.items():
        names = tuple(dict.fromkeys(f"{connector.connect}/{connector.name}" for connector, _ in used))
        yield _old_broker_row(
            alias, f"Kafka {workers[connect]} ({connect})", names, _requests_of(used), answers.get(alias)
        )


def _requests_of(used: Sequence[tuple[Connector, str]]) -> list[Request]:
    return [
        request
        for request in REQUESTS
        if any(
            (request.side, request.type) == (side, connector.type)
            and (request.only_with is None or _is_on(request.only_with, connector.config))
            for connector, side in used
        )
    ]


def _old_broker_row(
    alias: str,
    workers: str,
    connectors: tuple[str, ...],
    needed: Sequence[Request],
    answer: Mapping[int, tuple[int, int]] | None,
) -> CheckRow:
    what = f"brokers that workers of {workers} can use"
    if answer is None:
        effect = f"no broker said which requests it takes; these workers cannot use brokers before {OLDEST_SUPPORTED}"
        return CheckRow("unknown", alias, what, connectors=connectors, effect=effect, fix=_BY_HAND)
    line = _newest_versions(answer)
    missing = [request for request in needed if answer.get(request.key, (0, -1))[1] < request.least]
    if missing:
        lacks = ", ".join(dict.fromkeys(f"{request.name} {request.least}" for request in missing))
        results = "; ".join(dict.fromkeys(request.effect for request in missing))
        effect = f"these brokers{line} do not take {lacks}: {results}"
        return CheckRow("failed", alias, what, connectors=connectors, effect=effect, fix=_remedy(missing))
    if line:
        effect = (
            f"these brokers{line} take what is sent, but Kafka neither supports nor tests them with workers since 4.0"
            " (KIP-896)"
        )
        return CheckRow("unknown", alias, what, connectors=connectors, effect=effect, fix=_remedy(missing))
    return CheckRow("ok", alias, what, connectors=connectors)


def _newest_versions(answer: Mapping[int, tuple[int, int]]) -> str:
    """Return the line of brokers before 2.1, as the end of their name; "" for newer ones."""
    highest = answer.get(_FETCH, (0, _FETCH_OF_OLDEST))[1]
    if highest >= _FETCH_OF_OLDEST:
        return ""
    return f" of Kafka {_LINES[highest]}" if highest in _LINES else f", older than Kafka {OLDEST_SUPPORTED},"


def _remedy(missing: Sequence[Request]) -> str:
    switches = dict.fromkeys(request.only_with[2] for request in missing if request.only_with)
    can_do_without = missing and all(request.only_with for request in missing)
    others = f", or set {' and '.join(switches)}" if can_do_without else ""
    oldest = "2.3" if any(request.name == "IncrementalAlterConfigs" for request in missing) else OLDEST_SUPPORTED
    return f"run these flows on workers of Kafka 3.9, or upgrade the brokers to {oldest} or newer{others}"
