"""How this machine reaches what a tree declares: addresses, credentials and TLS of clusters and schema registries.

Credentials of REST APIs are resolved here, on their way to the client; those of Kafka once a client is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mm2mgr.connect.errors import ConnectError
from mm2mgr.connect.target import BasicAuth, BearerAuth, ConnectTarget, ProxyServer, TlsFiles
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess, resolve
from mm2mgr.secrets import remember
from mm2mgr.spec.models import Basic, Connect, SchemaRegistry
from mm2mgr.topology import ConnectCluster, KafkaCluster


def kafka_access(cluster: KafkaCluster) -> KafkaAccess:
    """Return how mm2mgr itself reaches a cluster; `access:` replaces addresses and security, each where it has them."""
    model, own = cluster.model, cluster.model.access
    security = own.security if own and own.security is not None else model.security
    return access_as(cluster, ",".join(model.bootstrap_servers), security)


def access_as(cluster: KafkaCluster, servers: str, security: Mapping[str, str]) -> KafkaAccess:
    """Return how this machine acts as another login: through the addresses of `access:`, never with its security."""
    own = cluster.model.access
    if own and own.bootstrap_servers is not None:
        servers = ",".join(own.bootstrap_servers)
    return KafkaAccess(cluster.alias, servers, dict(security))


def connect_target(connect: ConnectCluster) -> ConnectTarget:
    """Return where a declared Connect cluster is, with its credentials resolved on this machine."""
    rest, model = _Rest("Connect cluster", connect.name, connect.model), connect.model
    return rest.target(model.timeout, lambda: connect_target(connect))


REGISTRY = "schema registry of"


def registry_target(cluster: KafkaCluster) -> ConnectTarget:
    """Return where the declared schema registry of a cluster is, with its credentials resolved on this machine."""
    model = cluster.model.schema_registry
    if model is None:
        raise ConnectError(f"cluster '{cluster.alias}' declares no schema registry", hint="write `schema_registry:`")
    return _Rest(REGISTRY, cluster.alias, model).target(None, lambda: registry_target(cluster))


@dataclass(frozen=True)
class _Rest:
    """A declared REST API, such as the `noun` Connect cluster with its name."""

    noun: str
    name: str
    model: Connect | SchemaRegistry

    def target(self, timeout_seconds: float | None, renewed: Callable[[], ConnectTarget]) -> ConnectTarget:
        model = self.model
        auth: BasicAuth | BearerAuth | None = None
        if model.auth and model.auth.basic:
            auth = self.basic(model.auth.basic, "auth")
        elif model.auth and model.auth.bearer:
            auth = BearerAuth(self.resolve(model.auth.bearer, "auth.bearer"))
        headers = {name: self.header(name, value) for name, value in model.headers.items()}
        urls = tuple(model.url)
        return ConnectTarget(
            self.name, urls, auth, self.tls(), headers, self.proxy(), timeout_seconds, renewed, self.noun
        )

    def basic(self, basic: Basic, field: str) -> BasicAuth:
        where = f"{field}.basic"
        return BasicAuth(
            self.resolve(basic.username, f"{where}.username"), self.resolve(basic.password, f"{where}.password")
        )

    def tls(self) -> TlsFiles | None:
        model = self.model.tls
        if model is None:
            return None
        password = self.resolve(model.key_password, "tls.key_password") if model.key_password else None
        return TlsFiles(_path(model.ca), _path(model.certificate), _path(model.key), password)

    def header(self, name: str, written: str) -> str:
        value = self.resolve(written, f"headers ({name})")
        if value != written:
            remember({"secret": value})  # whatever the name of the header
        return value

    def proxy(self) -> ProxyServer | None:
        model = self.model.proxy
        if model is None:
            return None
        url = self.resolve(model.url, "proxy")
        try:
            return ProxyServer(url, self.basic(model.basic, "proxy") if model.basic else None)
        except ConnectError as error:
            raise ConnectError(f"{self.noun} '{self.name}': {error.message}", hint=error.hint) from error

    def resolve(self, text: str, field: str) -> str:
        try:
            return resolve(f"{self.noun} '{self.name}', {field}", text)
        except KafkaError as error:
            hint = "provide this variable or file on the machine that runs mm2mgr"
            raise ConnectError(error.message, hint=hint) from error


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
