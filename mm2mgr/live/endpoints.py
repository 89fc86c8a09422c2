"""How this machine reaches what a tree declares: addresses, credentials and TLS of Connect and Kafka clusters.

Credentials of Connect are resolved here, on their way to the client; those of Kafka once a client is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mm2mgr.connect.errors import ConnectError
from mm2mgr.connect.target import BasicAuth, BearerAuth, ConnectTarget, ProxyServer, TlsFiles
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess, resolve
from mm2mgr.secrets import remember
from mm2mgr.spec.models import Basic
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
    model = connect.model
    auth: BasicAuth | BearerAuth | None = None
    if model.auth and model.auth.basic:
        auth = _basic(connect, model.auth.basic, "auth")
    elif model.auth and model.auth.bearer:
        auth = BearerAuth(_resolve(connect, model.auth.bearer, "auth.bearer"))
    return ConnectTarget(
        connect.name,
        tuple(model.url),
        auth,
        _tls(connect),
        {name: _header(connect, name, value) for name, value in model.headers.items()},
        _proxy(connect),
        model.timeout,
        lambda: connect_target(connect),
    )


def _basic(connect: ConnectCluster, basic: Basic, field: str) -> BasicAuth:
    where = f"{field}.basic"
    return BasicAuth(
        _resolve(connect, basic.username, f"{where}.username"), _resolve(connect, basic.password, f"{where}.password")
    )


def _tls(connect: ConnectCluster) -> TlsFiles | None:
    model = connect.model.tls
    if model is None:
        return None
    password = _resolve(connect, model.key_password, "tls.key_password") if model.key_password else None
    return TlsFiles(_path(model.ca), _path(model.certificate), _path(model.key), password)


def _header(connect: ConnectCluster, name: str, written: str) -> str:
    value = _resolve(connect, written, f"headers ({name})")
    if value != written:
        remember({"secret": value})  # whatever the name of the header
    return value


def _proxy(connect: ConnectCluster) -> ProxyServer | None:
    model = connect.model.proxy
    if model is None:
        return None
    url = _resolve(connect, model.url, "proxy")
    try:
        return ProxyServer(url, _basic(connect, model.basic, "proxy") if model.basic else None)
    except ConnectError as error:
        raise ConnectError(f"Connect cluster '{connect.name}': {error.message}", hint=error.hint) from error


def _resolve(connect: ConnectCluster, text: str, field: str) -> str:
    try:
        return resolve(f"Connect cluster '{connect.name}', {field}", text)
    except KafkaError as error:
        hint = "provide this variable or file on the machine that runs mm2mgr"
        raise ConnectError(error.message, hint=hint) from error


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
