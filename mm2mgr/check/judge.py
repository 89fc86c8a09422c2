"""Judges the answers of brokers and workers: one row per right of a login, and rows for logins, cluster ids and flows. Pure.

For a topic that does not exist, brokers do not answer questions about Read and Write. There the ACLs decide, if a login may read
them; otherwise a login that may describe the topic for no other reason must have the right, because it includes Describe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mm2mgr.check.checked import CheckRow, Grant, Status
from mm2mgr.check.needs import EFFECTS, ClientLogin, RequiredRight, knows_names
from mm2mgr.check.principals import Principal
from mm2mgr.check.sessions import Sessions
from mm2mgr.kafka.acls import Acl, Permission, Right, allowed
from mm2mgr.render import Connector
from mm2mgr.topology import Flow, Topology, matches_nothing

_ASSUMED = "asked with the security that the tree declares for this cluster, because the workers bring their own login for this client"
_LATER = "cannot be asked before the topic exists: check again after the first apply, or let a login of the tree read ACLs (Describe on the cluster)"
_NO_GROUPS = (
    "not asked: Kafka creates its topic of group offsets at the first question about a group, and no login sees whether it is "
    "there. Check again when the cluster has had a group, or let a login of the tree read ACLs (Describe on the cluster)"
)
_OUTSIDE = "its rights do not come from ACLs that can be read, and the topic does not exist yet: check again after the first apply"
_BY_HOST = "its ACLs name single hosts, and the workers' are not known here"
_SUPER = "ClusterAction"  # what no ACL of a client holds: a super user's, or there is no authorizer


@dataclass(frozen=True)
class LoginAnswers:
    """What the brokers answered one login. `acls` of its cluster, None when no login could read them; `operations` on the cluster itself."""

    principal: Principal
    servers: str
    permissions: Mapping[Right, Permission]
    operations: frozenset[str] = frozenset()
    acls: Sequence[Acl] | None = None


@dataclass(frozen=True)
class _Verdict:
    status: Status
    how: str = "asked"
    fix: str = ""


class _Book:
    """The ACLs of one principal by resource: there can be thousands of them, and thousands of questions."""

    def __init__(self, answers: LoginAnswers) -> None:
        name = answers.principal.name
        own = [acl for acl in answers.acls or () if acl.principal in (name, "User:*")]
        self._named: dict[tuple[str, str], list[Acl]] = {}
        for acl in own:
            if not acl.prefixed and acl.name != "*":
                self._named.setdefault((acl.kind, acl.name), []).append(acl)
        self._wide = [acl for acl in own if acl.prefixed or acl.name == "*"]
        self.principal = name
        self.known = answers.acls is not None and answers.principal.known
        # No ACL explains what it may do to the cluster: a super user, or there is no authorizer.
        self.outranked = _SUPER in answers.operations and not self.allows(Right(_SUPER, "cluster"))

    def about(self, right: Right) -> list[Acl]:
        return [*self._named.get((right.kind, right.name), ()), *self._wide]

    def allows(self, right: Right) -> bool | None:
        return allowed(self.about(right), self.principal, right)


def judged(needs: Iterable[RequiredRight], answers: Mapping[ClientLogin, LoginAnswers]) -> list[CheckRow]:
    """Return one row for each right of each login that was asked, with every client and connector that needs it."""
    wanted: dict[tuple[ClientLogin, Right], list[RequiredRight]] = {}
    operations: dict[tuple[ClientLogin, str, str], set[str]] = {}
    for need in needs:
        if need.login in answers:
            wanted.setdefault((need.login, need.right), []).append(need)
            operations.setdefault((need.login, need.right.kind, need.right.name), set()).add(need.right.operation)
    books = {login: _Book(each) for login, each in answers.items()}
    rows = []
    for (login, right), group in wanted.items():
        said = answers[login].permissions.get(right, "open")
        verdict = _verdict(right, said, books[login], operations[login, right.kind, right.name])
        rows.append(_row(group, answers[login], verdict, books[login]))
    return rows


def _verdict(right: Right, said: Permission, book: _Book, needed: set[str]) -> _Verdict:
    """Judge one right; `needed` are all operations that its login needs on the resource."""
    if said != "open":
        return _Verdict("ok" if said == "yes" else "missing")
    if book.known:
        return _by_acls(right, book)
    if right.kind == "group":
        return _Verdict("unknown", fix=_NO_GROUPS)
    includes_describe = replace(right, operation="Describe").implied_by() | {"Describe"}
    alone = right.operation in includes_describe and not (needed - {right.operation}) & includes_describe
    return _Verdict("ok", "inferred") if alone else _Verdict("unknown", fix=_LATER)


def _by_acls(right: Right, book: _Book) -> _Verdict:
    found = book.allows(right)
    if found or book.outranked:
        return _Verdict("ok", "ACLs")
    if found is None:
        return _Verdict("unknown", "ACLs", _BY_HOST)
    # The brokers let it describe a missing topic: when no ACL says so, other things than ACLs count here.
    outside = right.kind == "topic" and not book.allows(replace(right, operation="Describe"))
    return _Verdict("unknown", "ACLs", _OUTSIDE) if outside else _Verdict("missing", "ACLs")


def _row(group: Sequence[RequiredRight], answers: LoginAnswers, verdict: _Verdict, book: _Book) -> CheckRow:
    first = group[0]
    numbers = tuple(sorted({need.number for need in group}))
    fix = verdict.fix
    grant = None
    if verdict.status == "missing" and not (fix := _denied(first.right, book)):
        fix = f"give {answers.principal.name} {first.right}"
        grant = Grant(answers.servers, answers.principal.name, first.right)
    elif verdict.fix in (_LATER, _NO_GROUPS):
        grant = Grant(answers.servers, answers.principal.name, first.right)
    if first.login.assumed and verdict.status != "ok":
        fix = f"{fix} ({_ASSUMED})"
    return CheckRow(
        verdict.status,
        first.login.cluster,
        str(first.right),
        answers.principal.name,
        tuple(dict.fromkeys(need.client for need in group)),
        tuple(dict.fromkeys(need.connector for need in group)),
        numbers,
        "; ".join(dict.fromkeys(EFFECTS[number] for number in numbers)),
        fix,
        verdict.how,
        grant,
    )


def _denied(right: Right, book: _Book) -> str:
    """Return how to remove a DENY that no added ACL can outweigh, or an empty text."""
    for acl in book.about(right):
        if not acl.allow and acl.covers(right):
            what = f"{acl.kind} {acl.name}{'…' if acl.prefixed else ''}"
            return f"remove the ACL that denies {acl.principal} {acl.operation} on {what}: it outweighs every ACL that allows"
    return ""


_ONCE = "record producer: Write on transactional id <group.id of the workers>-{name}-* and the same for the workers' own admin client"


def access_rows(sessions: Sessions, wanted: Sequence[RequiredRight]) -> Iterator[CheckRow]:
    """Yield a row for each login that got in, or why it did not and what could therefore not be asked."""
    for login, session in sessions.by_login.items():
        clients = tuple(dict.fromkeys(need.client for need in wanted if need.login == login)) or ("mm2mgr itself",)
        connectors = tuple(dict.fromkeys(need.connector for need in wanted if need.login == login))
        row = CheckRow("ok", login.cluster, "log in", session.principal.name, clients, connectors)
        if session.failure is None:
            yield row
        elif session.usable:
            yield replace(row, status="failed", effect=session.failure.message, fix=session.failure.hint or "")
        else:
            yield replace(row, status="unknown", effect=session.failure.message, fix=_unusable(clients))


def _unusable(clients: Sequence[str]) -> str:
    if clients == ("mm2mgr itself",):
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


def unmatched_rows(flows: Sequence[Flow], topics: Mapping[str, Collection[str]]) -> Iterator[CheckRow]:
    """Yield a row for each flow that takes none of the topics that logins see on its source; `topics` are by alias."""
    for flow in flows:
        seen = topics.get(flow.source.alias)
        if seen is not None and (message := matches_nothing(flow, seen)):
            effect = f"flow {flow.id} mirrors nothing until such a topic exists, or until a login may see it"
            fix = "compare the patterns with the names of the topics (the whole name has to match)"
            yield CheckRow("unknown", flow.source.alias, message, effect=effect, fix=fix)


def unverified_rows(topology: Topology, connectors: Sequence[Connector]) -> Iterator[CheckRow]:
    """Yield what cannot be verified: topic names of custom replication policies, and rights of exactly-once workers."""
    for flow in topology.flows:
        names = tuple(f"{one.connect}/{one.name}" for one in connectors if flow.id in one.flows)
        if names and not knows_names(flow):
            fix = f"compare by hand: {flow.policy} decides how topics are named"
            yield CheckRow("unknown", flow.target.alias, "rights on remote topics", connectors=names, fix=fix)
    for connector in connectors:
        if topology.connects[connector.connect].exactly_once:
            what, names = _ONCE.format(name=connector.name), (f"{connector.connect}/{connector.name}",)
            effect = "without it the task fails, or all tasks as soon as there are two"
            yield CheckRow(
                "unknown",
                connector.config["target.cluster.alias"],
                what,
                connectors=names,
                effect=effect,
                fix="brokers do not report it",
            )
