"""What Kafka's code refuses of settings that its definitions allow, mostly values that exclude each other. Pure.

Each row names the code that throws. `tools/kafka_refusals` compares all of this with Kafka's classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import nan
from typing import Any

from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import ConfiguredClient, framework_defaults

_ALL = ("producer", "consumer", "admin")
_GROUP = "group.id"
_BEGIN = "-----BEGIN "


class Settings:
    """What a client gets. `is_given`: somebody wrote it, or Connect for its producer; others are Kafka's defaults."""

    def __init__(self, client: ConfiguredClient) -> None:
        self._client = client
        self.version = client.setting.version

    def text(self, plain: str) -> str:
        """Return a setting, "" for none."""
        setting = self._client.value(plain)
        return setting.value.strip() if setting else ""

    def number(self, plain: str) -> float:
        """Return a setting as a number; NaN, which compares with nothing, for none (invalid-value reports that)."""
        try:
            return int(self.text(plain))
        except ValueError:
            return nan

    def is_given(self, plain: str) -> bool:
        return self._client.own_value(plain) is not None or plain in self._by_framework

    @property
    def has_group(self) -> bool:
        """Tell whether a consumer is in a group, be its name empty (before 4.0): Connect gives its own one."""
        is_named = self._client.own_value(_GROUP) is not None or bool(self.text(_GROUP))
        return is_named or bool(self._client.client.worker_prefixes)

    def is_written(self, plain: str) -> bool:
        """Tell whether the connector itself sets it."""
        return plain in self._client.written

    def has_no_pem(self, plain: str) -> bool:
        """Tell whether a value that is to be read as PEM has no beginning of one."""
        store, text = plain.rpartition("store.")[0], self.text(plain)
        of_pem = self.text(f"{store}store.type") == "PEM"
        return of_pem and bool(text) and "${" not in text and _BEGIN not in text

    def flag(self, plain: str) -> bool:
        return self.text(plain).lower() == "true"

    @cached_property
    def protocol(self) -> str:
        return self.text("security.protocol").upper()

    @cached_property
    def _by_framework(self) -> Mapping[str, str]:
        return framework_defaults(self._client.client, self._client.setting, load())


@dataclass(frozen=True)
class Exclusion:
    """One refusal. `keys`: it can only apply where one of them is set; the finding is at the first that is.

    `reason` returns a phrase that follows `KEY=VALUE `, "" where the client is made. `write` is a value for the key
    that ends it, None where it is to be removed; `by_hand` where a person must decide.
    """

    kinds: tuple[str, ...]
    keys: tuple[str, ...]
    reason: Callable[[Settings], str]
    source: str
    since: tuple[int, int] = (2, 7)
    write: str | None = None
    by_hand: str = ""
    told: tuple[str, ...] = ()


_CLASSIC = ("partition.assignment.strategy", "heartbeat.interval.ms", "session.timeout.ms")
_SHARE = ("share.acknowledgement.mode", "share.acquire.mode")
_FLYING = "max.in.flight.requests.per.connection"
_PEM = ("ssl.keystore.key", "ssl.keystore.certificate.chain")
_PROTOCOLS = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_CONTEXTS = {"SSL", "TLS", "DTLS", "DTLSV1.0", "DTLSV1.2", *map(str.upper, _PROTOCOLS[1:])}
_KAFKAS_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_JAVAS_MECHANISMS = ("CRAM-MD5", "DIGEST-MD5", "EXTERNAL", "NTLM")
_LOGIN_HANDLERS = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")
_NO_CLIENTS = ("OAuthBearerLoginCallbackHandler", "OAuthBearerValidatorCallbackHandler")
_PROTOCOL_NAMES = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_URL = re.compile(r"(https?|file):", re.IGNORECASE)
_OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_ENDPOINT, _RETRIEVER = "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.jwt.retriever.class"
_STORES = tuple(f"ssl.keystore.{part}" for part in ("key", "certificate.chain", "password", "location"))
# Of these missing-required tells that they have no address.
_OF_SIDES = (
    *("source consumer", "source admin", "target admin", "offset-syncs producer", "offset-syncs admin"),
    *("offset-syncs consumer", "checkpoints consumer"),
)


EXCLUSIONS: list[Exclusion] = []
_Reason = Callable[[Settings], str]


def _exclusion(kinds: tuple[str, ...], keys: tuple[str, ...], source: str, **facts: Any) -> Callable[[_Reason], None]:
    return lambda reason: EXCLUSIONS.append(Exclusion(kinds, keys, reason, source, **facts))


def _over_tls(client: Settings) -> bool:
    return client.protocol.endswith("SSL") and not client.is_given("ssl.engine.factory.class")


def _line(version: str) -> tuple[int, int]:
    major, minor = load().line(version).split(".")
    return int(major), int(minor)


@_exclusion(
    ("admin",), ("default.api.timeout.ms", "request.timeout.ms"), "KafkaAdminClient.configureDefaultApiTimeoutMs"
)
def _api_timeout(client: Settings) -> str:
    least = client.number("request.timeout.ms")
    less = client.is_given("default.api.timeout.ms") and client.number("default.api.timeout.ms") < least
    return f"is less than request.timeout.ms={least}" if less else ""


@_exclusion(("admin",), ("bootstrap.controllers",), "AdminBootstrapAddresses.fromConfig", since=(3, 7))
def _controllers(client: Settings) -> str:
    both = client.text("bootstrap.controllers") and client.text("bootstrap.servers")
    return "excludes bootstrap.servers, which is set too" if both else ""


@_exclusion(("consumer",), ("group.remote.assignor",), "ConsumerConfig.postProcessParsedConfig", since=(3, 9))
def _remote_assignor(client: Settings) -> str:
    classic = client.text("group.protocol").lower() == "classic" and client.text("group.remote.assignor")
    return "needs group.protocol=consumer" if classic else ""


@_exclusion(("consumer",), ("group.protocol",), "ConsumerConfig.checkUnsupportedConfigsPostProcess", since=(4, 0))
def _consumer_protocol(client: Settings) -> str:
    new = client.text("group.protocol").lower() == "consumer"
    wrong = [plain for plain in _CLASSIC if client.is_given(plain) and client.text(plain)] if new else []
    return f"excludes {' and '.join(wrong)}: the brokers decide it" if wrong else ""


@_exclusion(("consumer",), _SHARE, "ConsumerConfig.checkUnsupportedConfigsPostProcess", since=(4, 1))
def _share(client: Settings) -> str:
    conflicting = [plain for plain in _SHARE if client.is_given(plain) and client.text(plain)]
    return "is for share groups, and MirrorMaker's consumers are none" if conflicting else ""


@_exclusion(("consumer",), (_GROUP,), "ClassicKafkaConsumer, AsyncKafkaConsumer", since=(3, 7))
def _blank_group(client: Settings) -> str:
    refusing = _line(client.version) >= (4, 0) or client.text("group.protocol").lower() == "consumer"
    return "is empty, which is no group" if refusing and client.is_given(_GROUP) and not client.text(_GROUP) else ""


@_exclusion(("consumer",), ("group.instance.id",), "JoinGroupRequest.validateGroupInstanceId")
def _instance(client: Settings) -> str:
    name = client.text("group.instance.id")
    if not name and client.is_given("group.instance.id") and _line(client.version) < (3, 3):
        return "is empty"  # invalid-value reports it in newer lines
    legal = re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) and name not in (".", "..")
    return "has a character that Kafka does not allow in it" if name and not legal else ""


@_exclusion(("consumer",), ("heartbeat.interval.ms", "session.timeout.ms", _GROUP), "Heartbeat")
def _heartbeat(client: Settings) -> str:
    grouped = client.has_group and client.text("group.protocol").lower() != "consumer"
    beat, session = client.number("heartbeat.interval.ms"), client.number("session.timeout.ms")
    if grouped and beat < 0:
        return f"needs a heartbeat.interval.ms of at least 0, not {beat}"
    return (
        f"needs heartbeat.interval.ms={beat} below session.timeout.ms={session}" if grouped and beat >= session else ""
    )


@_exclusion(("consumer",), ("enable.auto.commit",), "ConsumerConfig.maybeOverrideEnableAutoCommit", write="false")
def _auto_commit(client: Settings) -> str:
    alone = client.flag("enable.auto.commit") and not client.has_group and not client.is_given(_GROUP)
    return "needs a group.id" if alone else ""


@_exclusion(
    ("producer",),
    ("enable.idempotence", _FLYING),
    "ProducerConfig.postProcessAndValidateIdempotenceConfigs",
    told=("record producer",),
)
def _idempotence(client: Settings) -> str:
    asked, flying = client.is_given("enable.idempotence") and client.flag("enable.idempotence"), client.number(_FLYING)
    refused = asked or (client.flag("enable.idempotence") and _line(client.version) >= (4, 0))
    if refused and flying > 5:
        return f"excludes {_FLYING}={flying}: an idempotent producer has at most 5"
    if not asked:
        return ""
    acks = client.text("acks")
    if acks.lower() not in ("all", "-1") and (client.is_given("acks") or _line(client.version) >= (3, 2)):
        return f"excludes acks={acks}: an idempotent producer waits for all replicas"
    return "excludes retries=0" if client.number("retries") == 0 and client.text("retries") else ""


@_exclusion(
    ("producer",), ("transaction.two.phase.commit.enable",), "ProducerConfig.postProcessParsedConfig", since=(4, 2)
)
def _two_phases(client: Settings) -> str:
    both = client.flag("transaction.two.phase.commit.enable") and client.is_given("transaction.timeout.ms")
    return "excludes transaction.timeout.ms" if both else ""


@_exclusion(
    _ALL,
    _STORES,
    "DefaultSslEngineFactory.createKeystore",
    by_hand="write a store (location, type, password) or PEM (key and certificate.chain with type PEM), not both",
)
def _keystore(client: Settings) -> str:
    key, chain, path, password = (
        client.is_written(f"ssl.keystore.{part}") for part in ("key", "certificate.chain", "location", "password")
    )
    empty = any(client.is_written(plain) and not client.text(plain) for plain in _PEM)
    lacks = path and not password and client.text("ssl.keystore.type") != "PEM"
    problems = (
        (empty, "has an empty PEM value, which Kafka takes for one"),
        (any(map(client.has_no_pem, _PEM)), "holds no PEM (-----BEGIN … and lines)"),
        (key and path, "is a second key beside ssl.keystore.location"),
        (key and password, "has a store password, and Kafka refuses one for PEM (a key's own is ssl.key.password)"),
        (key != chain, "needs both of ssl.keystore.key and ssl.keystore.certificate.chain"),
        (lacks, "needs ssl.keystore.password"),
        (password and not path, "has a store password without ssl.keystore.location"),
    )
    return next((phrase for applies, phrase in problems if applies), "") if _over_tls(client) else ""


@_exclusion(
    _ALL,
    tuple(f"ssl.truststore.{part}" for part in ("certificates", "password")),
    "DefaultSslEngineFactory.createTruststore",
    by_hand="write a store (location, type, password) or PEM (certificates with type PEM), not both",
)
def _truststore(client: Settings) -> str:
    certificates, path, password = (
        client.is_written(f"ssl.truststore.{part}") for part in ("certificates", "location", "password")
    )
    problems = (
        (
            certificates and not client.text("ssl.truststore.certificates"),
            "is empty, which Kafka takes for a certificate",
        ),
        (client.has_no_pem("ssl.truststore.certificates"), "holds no certificate (-----BEGIN CERTIFICATE-----)"),
        (certificates and path, "is a second truststore beside ssl.truststore.location"),
        (certificates and password, "has a store password, and Kafka refuses one for PEM"),
        (password and not path, "has a store password without ssl.truststore.location"),
    )
    return next((phrase for applies, phrase in problems if applies), "") if _over_tls(client) else ""


@_exclusion(_ALL, ("ssl.protocol",), "DefaultSslEngineFactory.createSSLContext", write="TLSv1.3")
def _protocol(client: Settings) -> str:
    name = client.text("ssl.protocol")
    return (
        "is no protocol of Java (TLSv1.3, TLSv1.2, TLS)" if _over_tls(client) and name.upper() not in _CONTEXTS else ""
    )


@_exclusion(_ALL, ("ssl.enabled.protocols",), "DefaultSslEngineFactory.createSslEngine", write="TLSv1.3,TLSv1.2")
def _enabled_protocols(client: Settings) -> str:
    if not _over_tls(client):
        return ""
    names = [item.strip() for item in client.text("ssl.enabled.protocols").split(",")]
    wrong = [name for name in names if name and name not in _PROTOCOLS]
    return f"has {' and '.join(wrong)}, which Java does not know (TLSv1.3, TLSv1.2)" if wrong else ""


@_exclusion(
    _ALL, ("ssl.endpoint.identification.algorithm",), "Java's X509TrustManagerImpl.checkIdentity", write="https"
)
def _identification(client: Settings) -> str:
    name = client.text("ssl.endpoint.identification.algorithm")
    is_known = name.lower() in ("", "https", "ldap", "ldaps")
    return "is none that Java knows (https, or empty for none)" if _over_tls(client) and not is_known else ""


@_exclusion(
    _ALL,
    ("bootstrap.servers",),
    "ClientUtils.parseAndValidateAddresses",
    by_hand="write the addresses of the brokers, or remove the key",
    told=_OF_SIDES,
)
def _no_address(client: Settings) -> str:
    blank = client.is_given("bootstrap.servers") and not client.text("bootstrap.servers")
    return "is empty: the client has no address" if blank else ""


@_exclusion(
    _ALL,
    ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class"),
    "OAuthBearerLoginCallbackHandler.configure",
)
def _handler(client: Settings) -> str:
    """Report Kafka's handlers for another mechanism, or for another side of a login."""
    if not client.protocol.startswith("SASL_"):
        return ""
    mechanism = client.text("sasl.mechanism")
    for part in ("login", "client"):
        name = client.text(f"sasl.{part}.callback.handler.class")
        package, _, simple = name.rpartition(".")
        if not package.startswith("org.apache.kafka."):
            continue
        if simple.startswith("OAuthBearer") and mechanism != "OAUTHBEARER":
            return f"is for OAUTHBEARER, and sasl.mechanism is {mechanism}"
        if simple.startswith("Kerberos") and mechanism != "GSSAPI":
            return f"is for GSSAPI, and sasl.mechanism is {mechanism}"
        gives_none = part == "login" and simple not in _LOGIN_HANDLERS
        if mechanism == "OAUTHBEARER" and (gives_none or (part == "client" and simple in _NO_CLIENTS)):
            return f"has {simple}, which is not for the {part} of OAUTHBEARER"
    return ""


@_exclusion(
    _ALL,
    ("security.protocol",),
    "JaasContext.load",
    by_hand="write sasl.mechanism and sasl.jaas.config beside it",
    told=("source admin", "target admin", "record producer"),
)
def _login(client: Settings) -> str:
    """Report clients that security-incomplete does not look at: it knows one for each side."""
    login = client.text("sasl.jaas.config")
    if not client.protocol.startswith("SASL_"):
        return ""
    if client.is_given("sasl.mechanism") and not client.text("sasl.mechanism"):
        return "needs a sasl.mechanism, which is empty"
    if not client.is_given("sasl.mechanism") and "Krb5LoginModule" not in login and "${" not in login:
        return "is Kerberos (GSSAPI) without sasl.mechanism"
    lacks = not client.is_given("sasl.jaas.config") and client.text("sasl.mechanism") != "GSSAPI"
    return "has no sasl.jaas.config to log in with" if lacks else ""


@_exclusion(
    _ALL, ("security.protocol",), "SecurityProtocol.forName", by_hand="write the protocol of the brokers' listener"
)
def _protocol_name(client: Settings) -> str:
    """Report what definitions list since 3.3."""
    older = _line(client.version) < (3, 3) and client.is_given("security.protocol")
    wrong = older and client.text("security.protocol").upper() not in _PROTOCOL_NAMES
    return f"is none of {', '.join(_PROTOCOL_NAMES)}" if wrong else ""


@_exclusion(("producer",), ("compression.type",), "CompressionType.forName", by_hand="write lz4, zstd or none")
def _compression(client: Settings) -> str:
    older = _line(client.version) < (3, 3) and client.is_given("compression.type")
    return (
        f"is none of {', '.join(_COMPRESSIONS)}"
        if older and client.text("compression.type") not in _COMPRESSIONS
        else ""
    )


@_exclusion(
    _ALL,
    ("sasl.mechanism",),
    "SaslClientAuthenticator.createSaslClient",
    by_hand="write the mechanism of the brokers' listener, in capitals",
)
def _mechanism(client: Settings) -> str:
    name, login = client.text("sasl.mechanism"), client.text("sasl.jaas.config")
    if not client.protocol.startswith("SASL_") or name in (*_KAFKAS_MECHANISMS, *_JAVAS_MECHANISMS, ""):
        return ""
    # A module of somebody else brings its own mechanism; the rule jaas-module compares Kafka's modules.
    like = name.upper() in _KAFKAS_MECHANISMS or name.upper().startswith("SCRAM-")
    unread = not login or login.startswith("${")
    return f"is none of Kafka's ({', '.join(_KAFKAS_MECHANISMS)})" if like and unread else ""


@_exclusion(
    _ALL,
    ("sasl.mechanism",),
    "SaslClientAuthenticator.createSaslClient",
    by_hand="write the mechanism and the login module of the brokers' listener",
    told=("source admin", "target admin", "record producer"),
)
def _module(client: Settings) -> str:
    """Report Kafka's login modules beside a mechanism they do not serve, where jaas-module does not look."""
    name, login = client.text("sasl.mechanism"), client.text("sasl.jaas.config")
    if not client.protocol.startswith("SASL_") or not name or "org.apache.kafka.common.security." not in login:
        return ""
    of_tokens = "OAuthBearerLoginModule" in login
    unknown = name not in (*_KAFKAS_MECHANISMS, *_JAVAS_MECHANISMS)
    return "does not fit the module of sasl.jaas.config" if unknown or of_tokens != (name == "OAUTHBEARER") else ""


@_exclusion(
    _ALL,
    ("sasl.mechanism",),
    "OAuthBearerUnsecuredLoginCallbackHandler, OAuthBearerLoginCallbackHandler",
    by_hand=f"write sasl.login.callback.handler.class ({_OAUTH_HANDLER}) and {_ENDPOINT} beside it",
)
def _token(client: Settings) -> str:
    if not client.protocol.startswith("SASL_") or client.text("sasl.mechanism") != "OAUTHBEARER":
        return ""
    login, handler = client.text("sasl.jaas.config"), client.text("sasl.login.callback.handler.class")
    if not handler and "OAuthBearerLoginModule" in login and "unsecuredLoginStringClaim_" not in login:
        return "has no token: sasl.login.callback.handler.class is not set"
    lacks = handler.endswith(".OAuthBearerLoginCallbackHandler") and not client.text(_ENDPOINT)
    if lacks and not client.is_given(_RETRIEVER):
        return f"gets no token without {_ENDPOINT}"
    endpoint = client.text(_ENDPOINT)
    asks = handler.endswith(".OAuthBearerLoginCallbackHandler") and endpoint and "${" not in endpoint
    return f"needs a URL in {_ENDPOINT}" if asks and not _URL.match(endpoint) else ""


_LOGINS = (
    *("Krb5LoginModule", "OAuthBearerLoginModule", "org.apache.kafka.common.security.", "unsecuredLoginStringClaim_"),
    "${",
)
_ONLY_WHETHER = ("bootstrap.servers", "bootstrap.controllers", "password", "location")
# Every key that a row reads, so that connectors which differ only in others get their answer from memory.
READ = frozenset(
    [
        *(plain for exclusion in EXCLUSIONS for plain in exclusion.keys),
        *("security.protocol", "sasl.jaas.config", "sasl.mechanism", "request.timeout.ms", "group.protocol", _GROUP),
        *("acks", "retries", "enable.idempotence", "transaction.timeout.ms", "ssl.engine.factory.class"),
        *("ssl.keystore.type", "ssl.truststore.type", "partition.assignment.strategy", _ENDPOINT, _RETRIEVER),
    ]
)


def matters(plain: str, value: str) -> str:
    """Return what a row can see of a value: of secrets and addresses only whether there is one."""
    if plain in (*_PEM, "ssl.truststore.certificates"):
        return f"{bool(value)} {_BEGIN in value or '${' in value}"
    if plain == "sasl.jaas.config":
        return "".join(str(int(part in value)) for part in _LOGINS) if value else ""
    return str(bool(value)) if plain.endswith(_ONLY_WHETHER) and "${" not in value else value


# Connector -> the intervals that its code turns into milliseconds; the switch is beside them.
INTERVALS: dict[str, tuple[str, ...]] = {
    "source": ("refresh.topics", "sync.topic.configs", "sync.topic.acls"),
    "checkpoint": ("refresh.groups", "emit.checkpoints"),
    "heartbeat": ("emit.heartbeats",),
}
LONGEST_SECONDS = (2**63 - 1) // 1000  # as milliseconds it must fit into a long
