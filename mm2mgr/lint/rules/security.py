"""Rules about protocols, logins and stores: what is missing for a connection, and secrets that everybody can read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial

from mm2mgr.formats.templates import is_open
from mm2mgr.lint.findings import (
    Edit,
    Hit,
    Severity,
    connector_hit,
    edit_hit,
    estate_rule,
    file_key,
    keys_ending,
    phrase,
    removal_hit,
    rule,
)
from mm2mgr.lint.subject import SENT_IN_CLEAR, Estate, Subject, SubjectKind, first_remote, is_clear
from mm2mgr.truth.reach import Client

TRUST = ("ssl.truststore.certificates", "ssl.truststore.location", "ssl.engine.factory.class")
KEYS = ("ssl.keystore.key", "ssl.keystore.location", "ssl.engine.factory.class")
LOGIN = ("sasl.jaas.config",)
# One tuple a thing that a client needs; any of its names will do.
NEEDED: tuple[tuple[str, ...], ...] = (("security.protocol",), ("sasl.mechanism",), LOGIN, TRUST, KEYS)
STORES = ("ssl.truststore.", "ssl.keystore.")
_STORE_PARTS = tuple(
    f"{store}{part}" for store in STORES for part in ("location", "certificates", "key", "certificate.chain")
)
_OF_A_SIDE = ("security.protocol", "sasl.mechanism", *LOGIN, *_STORE_PARTS, "producer.override.bootstrap.servers")


def configured_value(subject: Subject, client: str, plain: str) -> str:
    """Return the value that connector or workers set for a client, "" for none."""
    setting = subject.configured_clients[client].own_value(plain) if client in subject.configured_clients else None
    return setting.value if setting else ""


@lru_cache(maxsize=4096)
def keys_with_clients(kind: SubjectKind, plain: str) -> tuple[tuple[str, Client], ...]:
    """Return the keys that give clients a plain key, each with one of these clients; an admin client fails first."""
    client_of: dict[str, Client] = {}
    for client in sorted(kind.clients, key=lambda candidate: candidate.kind != "admin"):
        if key := kind.winners[client.name].get(plain):
            client_of.setdefault(key, client)
    return tuple(client_of.items())


def protocol(subject: Subject, client: str) -> str:
    """Return a client's security.protocol in capitals; "" when it is not set or a placeholder."""
    value = configured_value(subject, client, "security.protocol")
    return "" if is_open(value) else value.upper()


def lacking_in_override(subject: Subject) -> list[str]:
    """Return the target's security settings that an overridden record producer lacks, one name per group."""
    address = subject.get("producer.override.bootstrap.servers")
    if not address or protocol(subject, "target admin") in ("", "PLAINTEXT"):
        return []
    needed = [names for names in NEEDED if subject.is_set("target admin", *names)]
    lacking = [names[0] for names in needed if not subject.is_set("record producer", *names)]
    if protocol(subject, "record producer") == "PLAINTEXT":
        lacking.append("security.protocol")
    return lacking


_LIVE = "tests/lint/test_seen_live_start.py::"
# Narrower than mm2mgr.secrets.is_secret, which hides too much rather than too little: these values are secrets for
# sure.
_SECRET = re.compile(r"(^|\.)(password|passphrase|secret|jaas\.config|keystore\.key|user\.info)$")
# Where inline PEM may be, and the type that has to be with it.
_PEM = {
    "ssl.truststore.certificates": "ssl.truststore.type",
    "ssl.keystore.certificate.chain": "ssl.keystore.type",
    "ssl.keystore.key": "ssl.keystore.type",
}
_KERBEROS = "Krb5LoginModule"
_KAFKAS = "org.apache.kafka.common.security."
PLAIN, SCRAM = f"{_KAFKAS}plain.PlainLoginModule", f"{_KAFKAS}scram.ScramLoginModule"
# Login module → the mechanisms that work with it. Java has a client for PLAIN itself, so ScramLoginModule does for it,
# too.
MODULES = {
    PLAIN: ("PLAIN",),
    SCRAM: ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"),
    f"{_KAFKAS}oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
    f"com.sun.security.auth.module.{_KERBEROS}": ("GSSAPI",),
    f"com.ibm.security.auth.module.{_KERBEROS}": ("GSSAPI",),
    "software.amazon.msk.auth.iam.IAMLoginModule": ("AWS_MSK_IAM",),
}


@lru_cache(maxsize=4096)
def _secrets(kind: SubjectKind) -> tuple[str, ...]:
    return tuple(key for key in kind.keys if _SECRET.search(key))


@rule("secret-in-clear", "warning", "KIP-297", live="tests/live/test_security.py", reads=_secrets)
def secret_in_clear(subject: Subject) -> Iterator[Hit]:
    """The config contains a secret in clear text.

    Connect stores a connector's config unchanged and returns it to everyone who may call its REST API: under config,
    tasks, expand=info and in the config topic (only validate hides it). A placeholder of a config provider,
    ${file:path:key} or ${env:NAME}, is stored and shown instead; the workers insert the value when a client is created,
    also inside a JAAS string. In files the same line ends up in version control.
    """
    for key in _secrets(subject.kind):
        if is_clear(key, subject.config[key]):
            message = f"everyone who can read this config sees the secret in {file_key(subject, key)}"
            name = "jaas" if key.endswith("jaas.config") else "password" if "pass" in key else "secret"
            remedy = "and configure its provider on the workers"
            fix = f"write a placeholder, such as ${{file:/path/on/the/workers:{name}}}, {remedy}"
            yield Hit(message, fix, key)


@estate_rule("secret-in-tree", "warning")
def secret_in_tree(estate: Estate) -> Iterator[Hit]:
    """The YAML tree contains a secret of mm2mgr's own logins.

    `auth`, `tls`, `headers` and `proxy` of Connect clusters, `auth` and `tls` of metric sources, and `access` of Kafka
    clusters, are for mm2mgr itself; no worker needs them. The tree is kept in version control, where everyone with a
    copy can read them, also after they were removed. A placeholder, ${env:NAME}, ${file:/path:key} or
    ${dir:/path:file}, is resolved on the machine that runs mm2mgr. Change a secret that was committed.
    """
    fix = "write a placeholder that this machine resolves, such as ${env:NAME} or ${file:/path:key}"
    for login in estate.logins:
        for key, spot in login.inline.items():
            yield Hit(f"everyone who can read this file sees the secret in {key} of {login.whose}", fix, spot=spot)


def login_of_mm2mgr_unencrypted(estate: Estate) -> Iterator[Hit]:
    for login in estate.logins:
        if login.exposed:
            fix = "use protocol SASL_SSL, or SCRAM, which does not send the password"
            if login.exposed.startswith("http:"):
                fix = "use https:// in its `url`, with `tls: {ca: …}` for a private authority"
            cross = "cross" if " and " in login.sends else "crosses"
            message = f"{login.whose}: {login.sends} {cross} the network unencrypted to {login.exposed}"
            yield Hit(message, fix, spot=login.spot)


@rule(
    "login-unencrypted",
    "warning",
    "RFC 4616 section 6, RFC 7617 section 4",
    over=login_of_mm2mgr_unencrypted,
    needs=("security.protocol",),
)
def login_unencrypted(subject: Subject) -> Iterator[Hit]:
    """A password or a token crosses the network unencrypted.

    With sasl.mechanism PLAIN a client sends its password as it is, with OAUTHBEARER its token, and SASL_PLAINTEXT
    encrypts nothing: anyone who can read the traffic can log in. SCRAM and Kerberos prove that they know the password
    without sending it. The same applies to `auth` of a Connect cluster or of a metric source whose URL starts with
    http: (Basic is base64, not encryption). Addresses of the same machine (127.0.0.1, localhost) are not reported.
    """
    keys = keys_with_clients(subject.kind, "security.protocol")
    if not any(subject.get(key).upper() == "SASL_PLAINTEXT" for key, _ in keys):
        return
    for client in _sides(subject):
        key = _key(subject, client, "security.protocol")
        sends = SENT_IN_CLEAR.get(configured_value(subject, client.name, "sasl.mechanism").upper(), "")
        if not (key and sends and subject.get(key).upper() == "SASL_PLAINTEXT"):
            continue
        if address := first_remote(configured_value(subject, client.name, "bootstrap.servers")):
            message = f"{file_key(subject, key)}: {sends} crosses the network unencrypted, to {address}"
            right = _edit_beside(subject, client, key, "security.protocol", "SASL_SSL")
            fix = f"{phrase(subject, [right])}; without TLS on the brokers use SCRAM, which does not send the password"
            yield Hit(message, fix, key)  # no edit: without TLS on the brokers it would end the connection


@rule(
    "security-incomplete",
    "error",
    "Kafka's SaslConfigs and CommonClientConfigs",
    stops=True,
    needs=("security.protocol", "sasl.", "ssl."),
    live=_LIVE,
    reads=keys_ending(*_OF_A_SIDE),
)
def security_incomplete(subject: Subject) -> Iterator[Hit]:
    """The security settings of one side are incomplete.

    A client uses PLAINTEXT unless security.protocol says otherwise, whatever ssl.* and sasl.* say. On a TLS port the
    source connector is then RUNNING without tasks, or records never arrive (producer.override.). SASL without
    sasl.mechanism means Kerberos, and without sasl.jaas.config there is no login: FAILED at once. Stores on a PLAINTEXT
    side and a login on a side without SASL are not used; where the protocol is written, that is a warning, because the
    brokers may be as it says.
    """
    for client in _sides(subject):
        if lacking := _incomplete(subject, client):
            key, fault, edit, more = lacking
            unused: Severity | None = "warning" if fault.endswith(_NOT_USED) else None
            message = f"{file_key(subject, key) if key else 'the connector'}: {fault}"
            hit = edit_hit(subject, message, [edit], key, more)
            yield replace(hit, severity=unused, edits=() if unused else hit.edits)  # the brokers decide which is meant


_NOT_USED = ("does not log in", "does not use a store")


def _sides(subject: Subject) -> Iterator[Client]:
    """Yield one client per side: the clients of a side share its settings."""
    for name in ("source admin", "target admin", "record producer"):
        if name == "record producer" and lacking_in_override(subject):
            continue  # override-insecure reports it, by comparing with the target
        if client := subject.client(name):
            yield client


def _incomplete(subject: Subject, client: Client) -> tuple[str, str, Edit, str] | None:
    """Return the key, what is wrong, what to write, and what else would do; None when nothing is."""
    protocol = configured_value(subject, client.name, "security.protocol").upper()
    login = _key(subject, client, *LOGIN, "sasl.mechanism")
    store = _key(subject, client, *_STORE_PARTS)
    beside = partial(_edit_beside, subject, client, login or store)
    if not protocol and (login or store):
        fix = beside("security.protocol", "SASL_SSL" if login else "SSL")
        less = " (SASL_PLAINTEXT where the brokers have no TLS)" if login and not store else ""
        return login or store, "without security.protocol the client uses PLAINTEXT", fix, less
    if protocol in ("PLAINTEXT", "SSL") and login:
        fix = beside("security.protocol", f"SASL_{protocol}")
        return login, f"{protocol} does not log in", fix, ", or remove sasl.*"
    key = _key(subject, client, "security.protocol")
    logs_in = protocol.startswith("SASL_") and key and not is_open(protocol)
    jaas, mechanism = (configured_value(subject, client.name, f"sasl.{name}") for name in ("jaas.config", "mechanism"))
    if logs_in and not mechanism and _KERBEROS not in jaas:
        usual = next((mechanisms[0] for module, mechanisms in MODULES.items() if module in jaas), "…")
        return key, "without sasl.mechanism it is Kerberos (GSSAPI)", beside("sasl.mechanism", usual), ""
    if logs_in and not jaas and mechanism != "GSSAPI":
        login_file = beside("sasl.jaas.config", "${file:/path/on/the/workers:jaas}")
        return key, f"{mechanism} has no login configured", login_file, ""
    if protocol in ("PLAINTEXT", "SASL_PLAINTEXT") and store and subject.form != "tree":
        fix = beside("security.protocol", protocol.replace("PLAINTEXT", "SSL"))
        return store, f"{protocol} does not use a store", fix, ", or remove ssl.*"
    return None


def _key(subject: Subject, client: Client, *plain: str) -> str:
    """Return the first config key that gives a client one of some settings, "" for none."""
    winners = subject.kind.winners[client.name]
    return next((winners[name] for name in plain if name in winners and subject.get(winners[name])), "")


def _edit_beside(subject: Subject, client: Client, key: str, plain: str, value: str) -> Edit:
    place = key or _key(subject, client, "security.protocol")
    part = next((part for part in ("security.", "sasl.", "ssl.") if part in place), "")
    prefix = place.partition(part)[0] if part else client.layers[0].prefix
    return Edit(prefix + plain, value)


@rule("store-type-missing", "error", "KIP-651", stops=True, needs=STORES, live=f"{_LIVE}test_store_type")
def store_type_missing(subject: Subject) -> Iterator[Hit]:
    """PEM data are configured for a store of another format.

    Kafka reads inline certificates and keys only with ssl.truststore.type=PEM or ssl.keystore.type=PEM; the default is
    JKS. The connector is FAILED at once ("... can be specified only for PEM, but ... type is JKS"), with
    producer.override. the task. A PEM file in ssl.keystore.location has no store password, only ssl.key.password: Kafka
    refuses the store password.
    """
    reported: set[str] = set()
    for key, client, plain in _pem_keys(subject):
        kind, right = configured_value(subject, client.name, _PEM[plain]), key.removesuffix(plain) + _PEM[plain]
        if not protocol(subject, client.name).endswith("SSL"):
            continue  # no store is read; security-incomplete reports it
        if kind != "PEM" and not is_open(kind) and right not in reported:
            reported.add(right)
            message = (
                f"{file_key(subject, key)} is read only with {_PEM[plain]}=PEM; it is {kind or 'JKS, the default'}"
            )
            yield edit_hit(subject, message, [Edit(right, "PEM")], key)
    yield from _passwords_of_pem(subject)


def _pem_keys(subject: Subject) -> Iterator[tuple[str, Client, str]]:
    if not any(key.endswith(tuple(_PEM)) for key in subject.config):
        return
    reported: set[str] = set()
    for client in subject.clients:
        for plain in _PEM:
            key = subject.written_key(client.name, plain)
            if key and key not in reported and subject.get(key):
                reported.add(key)
                yield key, client, plain


def _passwords_of_pem(subject: Subject) -> Iterator[Hit]:
    if not any(key.endswith("store.password") for key in subject.config):
        return
    keys = (
        (client, store, _key(subject, client, f"{store}password")) for client in subject.clients for store in STORES
    )
    reported: set[str] = set()
    for client, store, key in keys:
        is_file = bool(_key(subject, client, f"{store}location"))
        is_pem = configured_value(subject, client.name, f"{store}type").upper() == "PEM"
        if key and key not in reported and is_file and is_pem:
            reported.add(key)
            own = f"{key.removesuffix(f'{store}password')}ssl.key.password"
            message = f"{file_key(subject, key)}: a PEM file has no store password, and Kafka refuses one"
            yield removal_hit(subject, key, message, f"; a key's own password is {own}")


@rule("pem-not-lines", "error", "KIP-651", stops=True, needs=STORES, live=f"{_LIVE}test_store_type")
def pem_not_lines(subject: Subject) -> Iterator[Hit]:
    """A PEM value contains backslash-n instead of line breaks.

    JSON and properties files turn \\n into a line break when they are parsed once. If a shell, a template or a form
    escapes it twice, the two characters remain, and Kafka finds no key: FAILED with "No matching PRIVATE KEY entries in
    PEM file". Use real line breaks; spaces in their place work, too.
    """
    for key, _, plain in _pem_keys(subject):
        if "\\n" in subject.get(key):
            effect = f"Kafka finds no {plain.rpartition('.')[2]} in it"
            message = f"{file_key(subject, key)} contains backslash-n instead of line breaks: {effect}"
            fix = "write real line breaks (\\n once, within JSON), or a placeholder for the file"
            right = subject.get(key).replace("\\r\\n", "\n").replace("\\n", "\n")
            yield Hit(message, fix, key, edits=(Edit(key, right),))


@rule("host-name-unchecked", "info", "KIP-294", needs=("ssl.endpoint.identification.algorithm",))
def host_name_unchecked(subject: Subject) -> Iterator[Hit]:
    """A TLS client does not verify the host name of the broker.

    An empty ssl.endpoint.identification.algorithm disables the comparison of the broker's name with its certificate, so
    the client accepts any certificate of the same CA. It is often left over from a test with certificates that lack the
    brokers' names. Kafka's default is https (KIP-294, since 2.0): remove the key once the certificates contain the
    names.
    """
    for client in _sides(subject):
        key = subject.written_key(client.name, "ssl.endpoint.identification.algorithm")
        over_tls = configured_value(subject, client.name, "security.protocol").upper().endswith("SSL")
        if key and not subject.get(key) and over_tls:
            message = (
                f"{file_key(subject, key)} is empty: the clients accept every broker with a certificate of their CA"
            )
            more = ", and add the brokers' names to their certificates"
            yield connector_hit(subject, key, "https", message, more)
