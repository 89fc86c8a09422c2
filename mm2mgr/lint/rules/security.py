"""Rules about protocols, logins and stores: what is missing for a connection, and secrets that everybody can read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from mm2mgr.lint.client_settings import LOGIN, STORES, lacking_in_override, set_value
from mm2mgr.lint.findings import Hit, estate_rule, rule
from mm2mgr.lint.fixes import spelled, written
from mm2mgr.lint.logins import SENT_IN_CLEAR, beyond, is_clear
from mm2mgr.lint.subject import Estate, Subject, SubjectKind
from mm2mgr.secrets import is_placeholder
from mm2mgr.truth.reach import Client

_SEEN = "tests/lint/test_seen_live_start.py::"
# Narrower than mm2mgr.secrets.is_secret, which hides too much rather than too little: these values are secrets for sure.
_SECRET = re.compile(r"(^|\.)(password|passphrase|secret|jaas\.config|keystore\.key|user\.info)$")
# Where inline PEM may stand, and the type that has to be with it.
_PEM = {
    "ssl.truststore.certificates": "ssl.truststore.type",
    "ssl.keystore.certificate.chain": "ssl.keystore.type",
    "ssl.keystore.key": "ssl.keystore.type",
}
_KERBEROS = "Krb5LoginModule"


@rule("secret-in-clear", "warning", source="KIP-297", seen="tests/live/test_security.py")
def secret_in_clear(subject: Subject) -> Iterator[Hit]:
    """A secret stands in the config in clear.

    Connect keeps a connector's config as it was given and hands it to everybody who may call its REST API: under config,
    tasks, expand=info and in the config topic (validate alone hides it). A placeholder of a config provider,
    ${file:path:key} or ${env:NAME}, is what is stored and shown instead; the workers put the value in when a client is
    made, also within a JAAS string. In files the same line ends up in version control.
    """
    for key in _secrets(subject.kind):
        value = subject.config[key]
        if is_clear(key, value):
            message = f"everybody who can read this config reads the secret in {written(subject, key)}"
            fix = f"write a placeholder for it, such as ${{file:/path/on/the/workers:{_name(key)}}}, and its provider on the workers"
            yield Hit(message, fix, key)


@lru_cache(maxsize=4096)
def _secrets(kind: SubjectKind) -> tuple[str, ...]:
    return tuple(key for key in kind.keys if _SECRET.search(key))


def _name(key: str) -> str:
    return "jaas" if key.endswith("jaas.config") else "password" if "pass" in key else "secret"


@estate_rule("secret-in-tree", "warning")
def secret_in_tree(estate: Estate) -> Iterator[Hit]:
    """A secret of mm2mgr's own logins stands in the YAML tree.

    `auth` and `tls` of Connect clusters and metric sources, and `access` of Kafka clusters, are for mm2mgr itself; no worker
    needs them. The tree is kept in version control, where everybody with a copy reads them, and where they stay after they
    were taken out. A placeholder, ${env:NAME}, ${file:/path:key} or ${dir:/path:file}, is resolved on the machine that runs
    mm2mgr. A secret that was committed once is to be changed at its system, too.
    """
    for login in estate.logins:
        for key, spot in login.inline.items():
            message = f"everybody who can read this file reads the secret in {key} of {login.whose}"
            yield Hit(
                message,
                "write a placeholder that this machine resolves, such as ${env:NAME} or ${file:/path:key}",
                spot=spot,
            )


def login_of_mm2mgr_unencrypted(estate: Estate) -> Iterator[Hit]:
    for login in estate.logins:
        if login.exposed:
            what = "use https:// in its `url`, with `tls: {ca: …}` for a private authority"
            what = (
                what
                if login.exposed.startswith("http:")
                else "use protocol SASL_SSL, or SCRAM, which does not send the password"
            )
            message = f"{login.whose}: {login.sends} cross{'' if ' and ' in login.sends else 'es'} the network unencrypted to {login.exposed}"
            yield Hit(message, what, spot=login.spot)


@rule(
    "login-unencrypted",
    "warning",
    over=login_of_mm2mgr_unencrypted,
    needs=("security.protocol",),
    source="RFC 4616 section 6, RFC 7617 section 4",
)
def login_unencrypted(subject: Subject) -> Iterator[Hit]:
    """A password or a token crosses the network unencrypted.

    With sasl.mechanism PLAIN a client sends its password as it is, with OAUTHBEARER its token, and SASL_PLAINTEXT encrypts
    nothing: whoever can read the traffic can log in. SCRAM and Kerberos prove that they know the password, and do not send it.
    The same goes for `auth` of a Connect cluster or of a metric source whose URL begins with http: (Basic is base64, which is no
    encryption). Addresses of the machine itself (127.0.0.1, localhost) are left out.
    """
    for client in _sides(subject):
        key = _key(subject, client, "security.protocol")
        sends = SENT_IN_CLEAR.get(set_value(subject, client, "sasl.mechanism").upper(), "")
        address = beyond(set_value(subject, client, "bootstrap.servers"))
        if key and sends and address and subject.get(key).upper() == "SASL_PLAINTEXT":
            message = f"{written(subject, key)}: {sends} crosses the network unencrypted, to {address}"
            right = _beside(subject, client, key, "security.protocol", "SASL_SSL")
            yield Hit(
                message, f"write {right}; brokers without TLS can take SCRAM, which does not send the password", key
            )


@rule(
    "security-incomplete",
    "error",
    needs=("security.protocol", "sasl.", "ssl."),
    source="Kafka's SaslConfigs and CommonClientConfigs",
    seen=f"{_SEEN}test_security_incomplete",
)
def security_incomplete(subject: Subject) -> Iterator[Hit]:
    """The security of one side is only half there.

    A client talks PLAINTEXT unless security.protocol says otherwise, whatever ssl.* and sasl.* are written with it; on a TLS
    port that is RUNNING without tasks (source), or records that never arrive (producer.override.). SASL without
    sasl.mechanism means Kerberos, and without sasl.jaas.config there is no login: FAILED at once. Stores of a PLAINTEXT side
    and a login on a side without SASL are not used.
    """
    for client in _sides(subject):
        key, fault, fix = _incomplete(subject, client)
        if fault:
            yield Hit(f"{written(subject, key) if key else 'the connector'}: {fault}", fix, key)


def _sides(subject: Subject) -> Iterator[Client]:
    """Yield one client a side: those of a side share what is said of it."""
    for name in ("source admin", "target admin", "record producer"):
        if name == "record producer" and lacking_in_override(subject):
            continue  # override-insecure tells it, by comparing with the target
        if client := subject.client(name):
            yield client


def _incomplete(subject: Subject, client: Client) -> tuple[str, str, str]:
    """Return the key, what is wrong and the fix; the second is "" when nothing is."""
    protocol = set_value(subject, client, "security.protocol").upper()
    login = _key(subject, client, *LOGIN, "sasl.mechanism")
    store = _key(subject, client, *_STORE_PARTS)
    prefix = partial(_beside, subject, client, login or store)
    if not protocol and (login or store):
        less = " (SASL_PLAINTEXT where the brokers have no TLS)" if login and not store else ""
        return (
            login or store,
            "without security.protocol the client talks PLAINTEXT",
            f"write {prefix('security.protocol', 'SASL_SSL' if login else 'SSL')}{less}",
        )
    if protocol in ("PLAINTEXT", "SSL") and login:
        return (
            login,
            f"{protocol} does not log in",
            f"write {prefix('security.protocol', f'SASL_{protocol}')}, or take sasl.* out",
        )
    if protocol in ("PLAINTEXT", "SASL_PLAINTEXT") and store and subject.form != "tree":
        right = protocol.replace("PLAINTEXT", "SSL")
        return store, f"{protocol} uses no store", f"write {prefix('security.protocol', right)}, or take ssl.* out"
    return _half_a_login(subject, client, protocol, prefix)


_STORE_PARTS = tuple(
    f"{each}{part}" for each in STORES for part in ("location", "certificates", "key", "certificate.chain")
)


def _half_a_login(
    subject: Subject, client: Client, protocol: str, prefix: Callable[[str, str], str]
) -> tuple[str, str, str]:
    key = _key(subject, client, "security.protocol")
    jaas, mechanism = set_value(subject, client, "sasl.jaas.config"), set_value(subject, client, "sasl.mechanism")
    if not protocol.startswith("SASL_") or not key or "${" in protocol:
        return "", "", ""
    if not mechanism and _KERBEROS not in jaas and not is_placeholder(jaas):
        return (
            key,
            "without sasl.mechanism it is Kerberos (GSSAPI)",
            f"write {prefix('sasl.mechanism', _mechanism(jaas))}",
        )
    if not mechanism and jaas and _KERBEROS not in jaas:
        return key, "without sasl.mechanism it is Kerberos (GSSAPI)", f"write {prefix('sasl.mechanism', '…')}"
    if not jaas and mechanism != "GSSAPI":
        return (
            key,
            f"{mechanism} has nothing to log in with",
            f"write {prefix('sasl.jaas.config', '${file:/path/on/the/workers:jaas}')}",
        )
    return "", "", ""


def _mechanism(jaas: str) -> str:
    known = {"PlainLoginModule": "PLAIN", "ScramLoginModule": "SCRAM-SHA-512", "OAuthBearerLoginModule": "OAUTHBEARER"}
    return next((mechanism for module, mechanism in known.items() if module in jaas), "…")


def _key(subject: Subject, client: Client, *plain: str) -> str:
    """Return the first config key that gives a client one of some settings, "" for none."""
    given = subject.kind.winners[client.name]
    return next((given[name] for name in plain if name in given and subject.get(given[name])), "")


def _beside(subject: Subject, client: Client, key: str, plain: str, value: str) -> str:
    """Return how to write another setting for a client, beside one of its keys."""
    place = written(subject, key or _key(subject, client, "security.protocol"))
    part = next((part for part in ("security.", "sasl.", "ssl.") if part in place), "")
    prefix = place.partition(part)[0] if part else client.layers[0].prefix
    return spelled(subject, prefix + plain, value)


@rule("store-type-missing", "error", needs=STORES, source="KIP-651", seen=f"{_SEEN}test_store_type")
def store_type_missing(subject: Subject) -> Iterator[Hit]:
    """PEM is given to a store that expects another format.

    Inline certificates and keys are only read with ssl.truststore.type=PEM or ssl.keystore.type=PEM beside them; the
    default is JKS. The connector is FAILED at once ("... can be specified only for PEM, but ... type is JKS"), with
    producer.override. the task. A PEM file as ssl.keystore.location has no store password, only ssl.key.password: Kafka
    refuses the other.
    """
    told: set[str] = set()
    for key, client, plain in _pem_keys(subject):
        kind, right = set_value(subject, client, _PEM[plain]), written(subject, key).removesuffix(plain) + _PEM[plain]
        if kind.upper() != "PEM" and "${" not in kind and right not in told:
            told.add(right)
            message = f"{written(subject, key)} is read only with {_PEM[plain]}=PEM; it is {kind or 'JKS, the default'}"
            yield Hit(message, f"write {spelled(subject, right, 'PEM')}", key)
    yield from _passwords_of_pem(subject)


def _pem_keys(subject: Subject) -> Iterator[tuple[str, Client, str]]:
    if not any(key.endswith(tuple(_PEM)) for key in subject.config):
        return
    told: set[str] = set()
    for client in subject.clients:
        for plain in _PEM:
            key = subject.written(client.name, plain)
            if key and key not in told and subject.get(key):
                told.add(key)
                yield key, client, plain


def _passwords_of_pem(subject: Subject) -> Iterator[Hit]:
    if not any(key.endswith("store.password") for key in subject.config):
        return
    told: set[str] = set()
    for client in subject.clients:
        for store in STORES:
            key = _key(subject, client, f"{store}password")
            is_file = bool(_key(subject, client, f"{store}location"))
            if key and key not in told and is_file and set_value(subject, client, f"{store}type").upper() == "PEM":
                told.add(key)
                message = f"{written(subject, key)}: a PEM file has no store password, and Kafka refuses one"
                yield Hit(
                    message,
                    f"take it out; a key's own password is {key.removesuffix(f'{store}password')}ssl.key.password",
                    key,
                )


@rule("pem-not-lines", "error", needs=STORES, source="KIP-651", seen=f"{_SEEN}test_store_type")
def pem_not_lines(subject: Subject) -> Iterator[Hit]:
    """A PEM value holds the two characters backslash and n where a line should end.

    JSON and properties files turn \\n into a line end when they are read once. Escaped twice, by a shell, a template or a
    form, the characters stay, and Kafka finds no key: FAILED with "No matching PRIVATE KEY entries in PEM file". Real line ends
    survive everything in between; blanks in their place work, too.
    """
    for key, _, plain in _pem_keys(subject):
        if "\\n" in subject.get(key):
            message = f"{written(subject, key)} holds backslash-n instead of line ends: no {plain.rpartition('.')[2]} is found in it"
            yield Hit(message, "write real line ends (\\n once, within JSON), or a placeholder for the file", key)


@rule("host-name-unchecked", "info", needs=("ssl.endpoint.identification.algorithm",), source="KIP-294")
def host_name_unchecked(subject: Subject) -> Iterator[Hit]:
    """A TLS client does not check whose certificate it is shown.

    An empty ssl.endpoint.identification.algorithm switches off the comparison of the broker's name with its certificate, so any
    certificate of the same CA will do. It is mostly left over from a test with certificates that lack the brokers' names.
    Kafka's default is https (KIP-294, since 2.0): leave the key out once the certificates have the names.
    """
    for client in _sides(subject):
        key = subject.written(client.name, "ssl.endpoint.identification.algorithm")
        if key and not subject.get(key) and set_value(subject, client, "security.protocol").upper().endswith("SSL"):
            message = f"{written(subject, key)} is empty: the clients take any broker whose certificate their CA signed"
            fix = f"write {spelled(subject, written(subject, key), 'https')}, and put the brokers' names into their certificates"
            yield Hit(message, fix, key)
