"""Turns an expanded and rendered YAML tree into an Estate, and errors of the loader into findings.

Subjects have the form `tree`; their keys have the line that people wrote. Files are read only for comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from mm2mgr.connectors import RESTING
from mm2mgr.errors import SpecError
from mm2mgr.files import Unreadable, read_bytes
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.reading import silences_of
from mm2mgr.lint.subject import (
    SENT_IN_CLEAR,
    CatchUpFacts,
    DeclaredLogin,
    Estate,
    KafkaFacts,
    LinkFacts,
    Silence,
    SourceFile,
    Spot,
    Subject,
    WorkerFacts,
    first_remote,
    is_clear,
    is_loopback,
)
from mm2mgr.metric_sources import METRIC_SOURCES
from mm2mgr.secrets import is_secret
from mm2mgr.spec.models import MetricsEndpoint
from mm2mgr.spec.places import MOST_BYTES, Place

if TYPE_CHECKING:
    from mm2mgr.connectors import Connector
    from mm2mgr.defaults import Origin
    from mm2mgr.spec.files import Spec
    from mm2mgr.spec.models import Access, Auth, Connect, SchemaRegistry, Tls
    from mm2mgr.topology import CatchUpLimit, ConnectCluster, Flow, Topology

WRITTEN = ("spec", "override")
# Where a problem's sentence turns from what is wrong to what to write.
_INSTEAD = re.compile(
    r"(?:; |: (?=(?:write|remove|set|name|add|put|keep|rename|leave|use|quote|only)\b)|, or (?=remove|run|move))"
)


def from_tree(
    topology: Topology,
    connectors: Iterable[Connector],
    spec: Spec | None = None,
    contents: Mapping[str, bytes] = MappingProxyType({}),
) -> Estate:
    """Return every connector of a tree. With `spec`, places are exact, and comments silence rules.

    `contents` are read instead of the files of these names.
    """
    tree = _TreeSubjects(topology, spec)
    subjects = tuple(tree.subject(connector) for connector in connectors)
    if spec is None:
        return Estate(subjects, complete=True)
    limits = tuple(_limits(tree.flows, subjects))
    unused = tuple((tree.spot(where), ends) for where, ends in topology.unused_links)
    files = _files(spec.files, contents)
    return Estate(subjects, files, complete=True, logins=logins(topology, spec), unused_links=unused, limits=limits)


def _files(paths: Sequence[str], contents: Mapping[str, bytes]) -> tuple[SourceFile, ...]:
    """Read the silences in comments; a file that cannot be read any more has none."""
    files = []
    for path in paths:
        try:
            data = contents[path] if path in contents else read_bytes(Path(path), MOST_BYTES)
        except Unreadable:
            continue
        if silences := silences_of(data.decode("utf-8", errors="replace"), path, inline=True):
            files.append(SourceFile(path, "tree", silences=silences))
    return tuple(files)


class _TreeSubjects:
    """Makes the subjects of a tree; what many of them share is made once."""

    def __init__(self, topology: Topology, spec: Spec | None) -> None:
        self.topology, self.spec = topology, spec
        self.spots: dict[str, Spot] = {}
        self.workers: dict[str, WorkerFacts] = {}
        self.kafkas: dict[str, KafkaFacts] = {}
        self.flows = {flow.id: flow for flow in topology.flows}
        clusters = topology.clusters.items()
        self.aliases = {str(cluster.client["bootstrap.servers"]): alias for alias, cluster in clusters}

    def subject(self, connector: Connector) -> Subject:
        flows = [self.flows[flow] for flow in connector.flows]
        return Subject(
            connector,
            spot=self.place(flows[0]),
            spots=self.places(connector.origins),
            form="tree",
            worker=self.worker(flows[0].connect),
            # A heartbeat's two clusters are the other way round, so the config says which is which.
            source_kafka=self.kafka(connector.config.get("source.cluster.alias", "")),
            target_kafka=self.kafka(connector.config.get("target.cluster.alias", "")),
            records_kafka=self.kafka(
                self.aliases.get(connector.config.get("producer.override.bootstrap.servers", ""), "")
            ),
            wire=_link_facts(flows[0]),
            silences=tuple(dict.fromkeys(silence for flow in flows for silence in self.silences(flow))),
            state=connector.state if connector.state in RESTING else None,
        )

    def spot(self, where: str) -> Spot:
        """Return the place that an origin names as `file:line`."""
        if where not in self.spots:
            file, _, line = where.rpartition(":")
            self.spots[where] = Spot(file, int(line)) if line.isdigit() else Spot(where)
        return self.spots[where]

    def place(self, flow: Flow) -> Spot:
        """Return the flow's own line; without a spec the line of its sources, which every flow has."""
        if self.spec:
            place = self.spec.place("flows", flow.declared_name)
            return self.spot(f"{place.file}:{place.line}")
        written = next((origin for path, origin in flow.written.items() if path[0] == "sources"), None)
        return self.spot(written.where) if written else Spot()

    def places(self, origins: Mapping[str, Origin]) -> dict[str, Spot]:
        """Return the lines of keys that people wrote; defaults of mm2mgr and text of templates have the flow's line."""
        return {key: self.spot(origin.where) for key, origin in origins.items() if origin.kind in WRITTEN}

    def silences(self, flow: Flow) -> list[Silence]:
        return [
            Silence(rule, reason, self.spot(flow.origin("silence", rule).where))
            for rule, reason in flow.settings.silence.items()
        ]

    def worker(self, connect: ConnectCluster) -> WorkerFacts:
        if connect.name not in self.workers:
            once = True if connect.exactly_once else connect.model.exactly_once
            self.workers[connect.name] = WorkerFacts(
                connect.model.version,
                exactly_once=once,
                cluster_id=self.kafka(connect.kafka).cluster_id,
                servers=",".join(self.topology.clusters[connect.kafka].model.bootstrap_servers),
            )
        return self.workers[connect.name]

    def kafka(self, alias: str) -> KafkaFacts:
        if alias not in self.kafkas:
            cluster = self.topology.clusters.get(alias)
            facts = KafkaFacts(cluster_id=cluster.model.cluster_id if cluster else None)
            if cluster and cluster.limits.read:
                facts = replace(facts, message_max_bytes=cluster.limits.message_bytes)
            self.kafkas[alias] = facts
        return self.kafkas[alias]


def _limits(flows: Mapping[str, Flow], subjects: Iterable[Subject]) -> Iterator[CatchUpFacts]:
    sharing: dict[CatchUpLimit, list[Subject]] = {}
    for subject in subjects:
        limit = flows[subject.connector.flows[0]].catch_up if subject.type == "source" else None
        if limit:
            sharing.setdefault(limit, []).append(subject)
    for limit, alike in sharing.items():
        measured = [flows[subject.connector.flows[0]].measured_bytes_per_second for subject in alike]
        rates = [rate for rate in measured if rate is not None]
        yield CatchUpFacts(limit.bytes_per_second, sum(rates) if rates else None, tuple(alike))


# --- what is no tree --------------------------------------------------------------------------------------------------


def invalid(error: SpecError) -> list[Finding]:
    """Return errors of loader and expansion as findings of the rule invalid-declaration."""
    findings = []
    for problem in error.problems:
        place = problem.place
        spot = Spot(place.file, place.line) if isinstance(place, Place) else Spot(str(place))
        problem_text, *instead = _INSTEAD.split(problem.message, 1)
        fix = "".join(instead) or error.hint or "correct the declaration; no command reads the tree until then"
        if "template" in problem_text and "render" in problem_text:
            fix = "lint what it renders to (helm template, envsubst, ansible)"
        findings.append(Finding("invalid-declaration", "error", spot, problem_text, fix))
    return findings


def logins(topology: Topology, spec: Spec) -> tuple[DeclaredLogin, ...]:
    """Return every login of the tree that has credentials."""
    return tuple(_Logins(spec).all(topology))


@dataclass(frozen=True)
class _Logins:
    spec: Spec

    def all(self, topology: Topology) -> Iterator[DeclaredLogin]:
        for name, connect in topology.connects.items():
            model, path = connect.model, ("connect", name)
            whose = f"Connect cluster '{name}'"
            yield from self.rest(whose, path, model.url, model.auth, model.tls)
            yield from self.on_the_way(whose, path, model)
        for alias, cluster in topology.clusters.items():
            metrics, path = cluster.model.metrics, ("clusters", alias)
            for kind in METRIC_SOURCES:
                endpoint, where = getattr(metrics, kind.key, None), (*path, "metrics", kind.key)
                if isinstance(endpoint, MetricsEndpoint):
                    whose, urls = f"{kind.service} of '{alias}'", [endpoint.url or ""]
                    yield from self.rest(whose, where, urls, endpoint.auth, endpoint.tls)
            if registry := cluster.model.schema_registry:
                whose, place = f"schema registry of '{alias}'", (*path, "schema_registry")
                yield from self.rest(whose, place, registry.url, registry.auth, registry.tls)
                yield from self.on_the_way(whose, place, registry)
            if cluster.model.access:
                yield from self.kafka(alias, cluster.model.access, cluster.model.bootstrap_servers)

    def rest(
        self, whose: str, path: tuple[str, ...], urls: list[str], auth: Auth | None, tls: Tls | None
    ) -> Iterator[DeclaredLogin]:
        secrets, sends = {}, ""
        if auth and auth.basic:
            secrets, sends = {"auth.basic.password": auth.basic.password}, "user name and password"
        elif auth and auth.bearer:
            secrets, sends = {"auth.bearer": auth.bearer}, "the token"
        if tls and tls.key_password:
            secrets["tls.key_password"] = tls.key_password
        exposed = next((url for url in urls if url.startswith("http:") and not is_loopback(url)), "") if auth else ""
        if secrets:
            where = self.spot(path, "auth" if auth else "tls")
            yield DeclaredLogin(whose, where, sends, exposed, self.clear(path, secrets))

    def on_the_way(self, whose: str, path: tuple[str, ...], model: Connect | SchemaRegistry) -> Iterator[DeclaredLogin]:
        """Yield what the headers of a REST API and the login of its proxy may hold."""
        secret = {key: value for key, value in model.headers.items() if is_secret(key)}
        if secret:
            exposed = next((url for url in model.url if url.startswith("http:") and not is_loopback(url)), "")
            clear = {
                f"headers.{key}": self.spot(path, "headers", key)
                for key, value in secret.items()
                if is_clear(key, value)
            }
            where = self.spot(path, "headers")
            yield DeclaredLogin(whose, where, "the login in its headers", exposed, clear)
        if model.proxy and model.proxy.basic:
            clear = self.clear(path, {"proxy.basic.password": model.proxy.basic.password})
            yield DeclaredLogin(whose, self.spot(path, "proxy"), "", "", clear)

    def kafka(self, alias: str, access: Access, servers: list[str]) -> Iterator[DeclaredLogin]:
        security = access.security or {}
        secrets = {f"access.security.{key}": value for key, value in security.items() if is_secret(key)}
        unencrypted = security.get("security.protocol", "").upper() == "SASL_PLAINTEXT"
        sends = SENT_IN_CLEAR.get(security.get("sasl.mechanism", "").upper(), "") if unencrypted else ""
        exposed = first_remote(",".join(access.bootstrap_servers or servers)) if sends else ""
        path = ("clusters", alias)
        where = self.spot(path, "access", "security")
        yield DeclaredLogin(f"`access` of '{alias}'", where, sends, exposed, self.clear(path, secrets))

    def clear(self, path: tuple[str, ...], secrets: Mapping[str, str]) -> dict[str, Spot]:
        # Split at the dots of the tree, not at those of a Kafka key.
        steps = {key: key.split(".", 2 if key.startswith("access.") else -1) for key in secrets}
        return {key: self.spot(path, *steps[key]) for key, value in secrets.items() if is_clear(key, value)}

    def spot(self, path: tuple[str, ...], *rest: str) -> Spot:
        """Return the line of a cluster's setting, or of the default that applies to all."""
        shared = ("defaults", path[0], *path[2:], *rest)
        whole = (*path, *rest)
        own = self.spec.place(*whole)
        place = self.spec.place(*shared) if whole not in self.spec.places and shared in self.spec.places else own
        return Spot(place.file, place.line, key=".".join(rest))


def _link_facts(flow: Flow) -> LinkFacts | None:
    route = flow.route
    leg = route and (route.reading or route.writing)
    if not route or not leg:
        return None
    line = leg.rtt_seconds, leg.bandwidth_bytes_per_second
    return LinkFacts(
        *line, route, flow.source.limits, flow.target_limits, flow.connect.model.workers.memory, flow.worker_tasks
    )
