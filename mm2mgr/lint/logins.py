"""The logins of mm2mgr itself in a tree: REST APIs of Connect and of metric sources, and `access:` of Kafka clusters.

For the rules on security. Values of secrets are not passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mm2mgr.lint.subject import DeclaredLogin, Spot
from mm2mgr.secrets import is_placeholder, is_secret, mask

if TYPE_CHECKING:
    from mm2mgr.spec.loader import Spec
    from mm2mgr.spec.models import Access
    from mm2mgr.spec.rest import Auth, Tls
    from mm2mgr.topology import Topology

SENT_IN_CLEAR = {"PLAIN": "the password", "OAUTHBEARER": "the token"}
"""What a SASL mechanism sends unprotected; the others only prove that they know it."""


def is_clear(key: str, value: str) -> bool:
    """Tell whether a value contains a secret in clear: a JAAS string can use placeholders, or need no password."""
    if not value.strip() or is_placeholder(value):
        return False
    return mask(key, value) != value if key.endswith("jaas.config") else "${" not in value


def is_loopback(address: str) -> bool:
    """Tell whether a URL or a `host:port` stays on the machine."""
    host = urlsplit(address if "://" in address else f"//{address}").hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def beyond(addresses: str) -> str:
    """Return the first of `host:port,…` that does not stay on the machine, "" for none."""
    return next((each for each in map(str.strip, addresses.split(",")) if each and not is_loopback(each)), "")


def logins(topology: Topology, spec: Spec) -> tuple[DeclaredLogin, ...]:
    """Return every login of the tree that has credentials."""
    return tuple(_Logins(spec).all(topology))


@dataclass(frozen=True)
class _Logins:
    spec: Spec

    def all(self, topology: Topology) -> Iterator[DeclaredLogin]:
        for name, connect in topology.connects.items():
            model, path = connect.model, ("connect", name)
            yield from self.rest(f"Connect cluster '{name}'", path, model.url, model.auth, model.tls)
        for alias, cluster in topology.clusters.items():
            metrics, path = cluster.model.metrics, ("clusters", alias)
            if metrics and (one := metrics.prometheus):
                where = (*path, "metrics", "prometheus")
                yield from self.rest(f"Prometheus of '{alias}'", where, [one.url or ""], one.auth, one.tls)
            if metrics and (other := metrics.cruise_control):
                where = (*path, "metrics", "cruise_control")
                yield from self.rest(f"Cruise Control of '{alias}'", where, [other.url or ""], other.auth, other.tls)
            if cluster.model.access:
                yield from self.kafka(alias, cluster.model.access, cluster.model.bootstrap_servers)

    def rest(
        self, whose: str, path: tuple[str, ...], urls: list[str], auth: Auth | None, tls: Tls | None
    ) -> Iterator[DeclaredLogin]:
        secrets = {}
        if auth and auth.basic:
            secrets = {"auth.basic.password": auth.basic.password}
        elif auth and auth.bearer:
            secrets = {"auth.bearer": auth.bearer}
        sends = {"auth.basic.password": "user name and password", "auth.bearer": "the token"}.get(
            next(iter(secrets), ""), ""
        )
        if tls and tls.key_password:
            secrets["tls.key_password"] = tls.key_password
        exposed = next((url for url in urls if url.startswith("http:") and not is_loopback(url)), "") if auth else ""
        if secrets:
            where = self.spot(path, "auth" if auth else "tls")
            yield DeclaredLogin(whose, where, sends, exposed, self.clear(path, secrets))

    def kafka(self, alias: str, access: Access, servers: list[str]) -> Iterator[DeclaredLogin]:
        security = access.security or {}
        secrets = {f"access.security.{key}": value for key, value in security.items() if is_secret(key)}
        unencrypted = security.get("security.protocol", "").upper() == "SASL_PLAINTEXT"
        sends = SENT_IN_CLEAR.get(security.get("sasl.mechanism", "").upper(), "") if unencrypted else ""
        exposed = beyond(",".join(access.bootstrap_servers or servers)) if sends else ""
        path = ("clusters", alias)
        yield DeclaredLogin(
            f"`access` of '{alias}'", self.spot(path, "access", "security"), sends, exposed, self.clear(path, secrets)
        )

    def clear(self, path: tuple[str, ...], secrets: Mapping[str, str]) -> dict[str, Spot]:
        return {key: self.spot(path, *_steps(key)) for key, value in secrets.items() if is_clear(key, value)}

    def spot(self, path: tuple[str, ...], *rest: str) -> Spot:
        """Return the line of a cluster's setting, or of the default that applies to all."""
        shared = ("defaults", path[0], *path[2:], *rest)
        whole = (*path, *rest)
        own = self.spec.place(*whole)
        place = self.spec.place(*shared) if whole not in self.spec.places and shared in self.spec.places else own
        return Spot(place.file, place.line, key=".".join(rest))


def _steps(key: str) -> tuple[str, ...]:
    """Split at the dots of the tree, not at those of a Kafka key."""
    return tuple(key.split(".", 2)) if key.startswith("access.") else tuple(key.split("."))
