"""What Strimzi's operator makes of `tls` and `authentication`, for connectors and workers, and what it refuses of them.

Secrets stay with Kubernetes: the operator writes placeholders of its config providers. Stores have the form of 1.1 and
newer (PEM; before PKCS12 files of its own), OAuth that of 0.51, the last with it. Sources: KafkaMirrorMaker2Connectors,
KafkaConnectConfigurationBuilder and AuthenticationUtils, 0.41 to 1.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mm2mgr.formats.connectors import OperatorNote
from mm2mgr.formats.documents import Node, entries_of, text_entry
from mm2mgr.formats.properties import Entry
from mm2mgr.text import nearest

PROVIDERS = "strimzienv,strimzifile,strimzidir,strimzisecrets"
"""The config providers that the operator gives all workers."""
PROTOCOL = "security.protocol"
_KAFKAS = "org.apache.kafka.common.security"
_SCRAM = f"{_KAFKAS}.scram.ScramLoginModule"
_LOGINS = {  # type → mechanism and module
    "plain": ("PLAIN", f"{_KAFKAS}.plain.PlainLoginModule"),
    "scram-sha-256": ("SCRAM-SHA-256", _SCRAM),
    "scram-sha-512": ("SCRAM-SHA-512", _SCRAM),
}
_OAUTH = f"{_KAFKAS}.oauthbearer.OAuthBearerLoginModule"
_OAUTH_HANDLER = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
_OAUTH_OPTIONS = {
    "clientId": "oauth.client.id",
    "username": "oauth.password.grant.username",
    "tokenEndpointUri": "oauth.token.endpoint.uri",
    "grantType": "oauth.client.credentials.grant.type",
    "scope": "oauth.scope",
    "audience": "oauth.audience",
    "accessTokenLocation": "oauth.access.token.location",
    "clientAssertionLocation": "oauth.client.assertion.location",
    "clientAssertionType": "oauth.client.assertion.type",
}
_OAUTH_SECRETS = {  # member with secretName → option, and the member with the key in the secret
    "clientSecret": ("oauth.client.secret", "key"),
    "accessToken": ("oauth.access.token", "key"),
    "refreshToken": ("oauth.refresh.token", "key"),
    "passwordSecret": ("oauth.password.grant.password", "password"),
    "clientAssertion": ("oauth.client.assertion", "key"),
}
_OF_CUSTOM = ("ssl.keystore.", "sasl.")  # all else in the config of type custom is left out
_TYPES = ("tls", *_LOGINS, "custom")
WRITTEN = (
    *(PROTOCOL, "sasl.mechanism", "sasl.jaas.config", "sasl.login.callback.handler.class"),
    *("ssl.truststore.certificates", "ssl.truststore.type"),
    *("ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.type"),
)
"""The settings of clients that the operator makes of `tls` and `authentication`."""


def security(cluster: Node, namespace: str, trusted: str) -> tuple[Entry, ...]:
    """Return a cluster's settings of clients, each at its origin's line; `trusted` is its certificates' SECRET:KEY.

    The last is security.protocol. Entries of type custom keep their path, as they can be edited where they are.
    """
    tls, login = _object(cluster, "tls"), _object(cluster, "authentication")
    entries = [*_stores(tls, namespace, trusted)] if tls else []
    entries += _login(login, namespace, cluster.word("alias")) if login else []
    is_sasl = login is not None and _is_sasl(login)
    protocol = f"{'SASL_' if is_sasl else ''}{'SSL' if tls else 'PLAINTEXT'}"
    return (*entries, text_entry(PROTOCOL, (tls or login or cluster).line, protocol))


def _object(node: Node | None, name: str) -> Node | None:
    member = node.get(name) if node else None
    return member if member and member.kind == "object" else None


def _is_sasl(login: Node) -> bool:
    type_ = login.word("type")
    return type_ in (*_LOGINS, "oauth") or (type_ == "custom" and login.word("sasl") == "true")


def _stores(tls: Node, namespace: str, trusted: str) -> Iterator[Entry]:
    certificates = tls.get("trustedCertificates")
    if certificates and certificates.items:
        name, _, key = trusted.partition(":")
        yield text_entry("ssl.truststore.certificates", certificates.line, _secret(namespace, name, key))
        yield text_entry("ssl.truststore.type", certificates.line, "PEM")


def _secret(namespace: str, name: str, key: str) -> str:
    return f"${{strimzisecrets:{namespace}/{name}:{key}}}"


def _login(login: Node, namespace: str, alias: str) -> Iterator[Entry]:
    type_ = login.word("type")
    if type_ == "custom":
        yield from (entry for entry in entries_of(login.get("config") or login) if entry.key.startswith(_OF_CUSTOM))
    elif type_ == "tls" and (own := _object(login, "certificateAndKey")):
        for plain, member in (("certificate.chain", "certificate"), ("key", "key")):
            secret = _secret(namespace, own.word("secretName"), own.word(member))
            yield text_entry(f"ssl.keystore.{plain}", own.line, secret)
        yield text_entry("ssl.keystore.type", own.line, "PEM")
    elif type_ in _LOGINS or type_ == "oauth":
        mechanism, module = _LOGINS.get(type_, ("OAUTHBEARER", _OAUTH))
        options = dict(_oauth(login, alias) if type_ == "oauth" else _password(login, namespace))
        quoted = "".join(f' {name}="{value}"' for name, value in options.items())
        yield text_entry("sasl.mechanism", login.line, mechanism)
        yield text_entry("sasl.jaas.config", login.line, f"{module} required{quoted};")
        if type_ == "oauth":
            yield text_entry("sasl.login.callback.handler.class", login.line, _OAUTH_HANDLER)


def _password(login: Node, namespace: str) -> Iterator[tuple[str, str]]:
    yield "username", login.word("username")
    secret = (login.word("passwordSecret", member) for member in ("secretName", "password"))
    yield "password", _secret(namespace, *secret)


def _oauth(login: Node, alias: str) -> Iterator[tuple[str, str]]:
    yield from ((option, value) for member, option in _OAUTH_OPTIONS.items() if (value := login.word(member)))
    for member, (option, key) in _OAUTH_SECRETS.items():
        if secret := _object(login, member):
            yield option, f"${{strimzidir:/opt/kafka/mm2-oauth/{alias}/{secret.word('secretName')}:{secret.word(key)}}}"


def of_workers(cluster: Node, namespace: str, trusted: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties of workers and of their clients: those before their `config`, and those behind it."""
    *stores_and_login, protocol = security(cluster, namespace, trusted)
    prefixes = ("", "producer.", "consumer.", "admin.")
    before, after = (
        {f"{prefix}{entry.key}": entry.value for entry in entries for prefix in prefixes}
        for entries in (stores_and_login, [protocol])
    )
    return before, after


# --- what the operator refuses ----------------------------------------------------------------------------------------


def refused_members(cluster: Node | None, *, is_v1: bool) -> Iterator[OperatorNote]:
    """Yield what API server or operator refuse of a cluster's `authentication`, and what the operator leaves out."""
    login = _object(cluster, "authentication")
    if cluster is None or login is None:
        return
    note = OperatorNote("authentication", login.line, "", "", "error")
    type_ = login.word("type")
    types = _TYPES if is_v1 else (*_TYPES, "oauth")
    if type_ not in types:
        near = next(iter(nearest(type_.lower(), types, 0.6)), "")
        effect = "the API server refuses the resource"
        message = f"authentication has the type {type_ or '(none)'}, and there are {', '.join(types)}: {effect}"
        fix = f"write type: {near}" if near else f"write one of {', '.join(types)}"
        if type_ == "oauth":
            settings = f"sasl.mechanism=OAUTHBEARER, sasl.jaas.config and {WRITTEN[3]}"
            fix = f"write type: custom with sasl: true and {settings} in its config"
        yield replace(note, message=message, fix=fix)
    elif type_ in _LOGINS:
        lacking = [name for name in ("username", "passwordSecret") if not login.get(name)]
        if lacking:
            message = (
                f"authentication of type {type_} has no {' and no '.join(lacking)}: the operator refuses the resource"
            )
            yield replace(note, message=message, fix=f"write {' and '.join(lacking)}")
    elif type_ == "tls" and not login.get("certificateAndKey"):
        message = "authentication of type tls has no certificateAndKey: the operator refuses the resource"
        yield replace(note, message=message, fix="write certificateAndKey: {secretName, certificate, key}")
    elif type_ == "custom":
        ignored = [entry for entry in entries_of(login.get("config") or login) if not entry.key.startswith(_OF_CUSTOM)]
        for entry in ignored if login.get("config") else ():
            effect = f"it takes {' and '.join(f'{prefix}*' for prefix in _OF_CUSTOM)}"
            message = f"{entry.key} in the config of authentication is left out by the operator: {effect}"
            yield OperatorNote(entry.key, entry.line, message, f"write {entry.key} in the config of the cluster")
