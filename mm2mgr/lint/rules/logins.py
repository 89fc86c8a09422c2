"""Rules about logins: sasl.jaas.config as Kafka parses it, modules and mechanisms, and whose login a client has.

No message may repeat a part of a JAAS string but the name of its module: whatever else is there may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from mm2mgr.formats.templates import is_open, without_templates
from mm2mgr.lint.findings import Edit, Hit, edit_hit, estate_rule, failing, file_key, keys_ending, rule
from mm2mgr.lint.hops import clusters
from mm2mgr.lint.rules.security import MODULES, PLAIN, SCRAM, configured_value, keys_with_clients
from mm2mgr.lint.subject import Estate, Subject, SubjectKind
from mm2mgr.text import nearest
from mm2mgr.truth.reach import Client, numbers

_JAAS, _MECHANISM, _SERVICE = "sasl.jaas.config", "sasl.mechanism", "sasl.kerberos.service.name"
_OF_LOGINS = (_JAAS, _MECHANISM, _SERVICE, "security.protocol", "callback.handler.class")
_MECHANISMS = {"SCRAM-SHA-512": SCRAM, "SCRAM-SHA-256": SCRAM, "PLAIN": PLAIN}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_HELD = "\ue000"  # stands for what a config provider inserts
# java.io.StreamTokenizer as JaasConfig sets it up: `-`, `_` and `$` are letters, a bare slash starts a comment.
_TOKEN = re.compile(
    r"""[\0-\x20]*(?:
    (?P<comment>/\*.*?(?:\*/|\Z)|/[^\r\n]*)
  | (?P<number>-?(?:\d+\.?\d*|\.\d*))
  | (?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\xa0-\U0010ffff-]*)
  | (?P<quoted>"(?:\\.|[^"\\\r\n])*(?:"|\\?\Z|(?=[\r\n]))|'(?:\\.|[^'\\\r\n])*(?:'|\\?\Z|(?=[\r\n])))
  | (?P<sign>[^\0-\x20])
  )""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class _Jaas:
    """A JAAS string; `wrong` says in one phrase why Kafka refuses it, "" for a right one. Options may be secrets."""

    module: str = ""
    options: tuple[str, ...] = field(default=(), repr=False)
    wrong: str = ""


@lru_cache(maxsize=4096)
def _read(text: str) -> _Jaas | None:
    """Read a JAAS string as JaasConfig and JaasContext do; None where a placeholder decides about its form."""
    held = re.sub(r"\$\{[^}]*\}", _HELD, without_templates(text, _HELD))
    tokens = [(match.lastgroup, match[match.lastgroup or 0]) for match in _TOKEN.finditer(held)]
    tokens = [token for token in tokens if token[0] != "comment"]
    if any(kind != "quoted" and _HELD in token for kind, token in tokens):
        return None
    module = tokens[0][1] if tokens else ""
    if not tokens or tokens[0][0] != "word" or module.lower() in _FLAGS or "=" in [token for _, token in tokens[1:2]]:
        return _Jaas(wrong="does not begin with the class of a login module")
    flag = tokens[1][1].lower() if len(tokens) > 1 else ""
    if flag not in _FLAGS:
        section = flag == "{"
        return _Jaas(module, wrong=_SECTION if section else "has no control flag (required) behind the module")
    options: list[str] = []
    at = 2
    while at < len(tokens) and tokens[at][1] != ";":
        name, equals, value = (*tokens[at : at + 3], ("", ""), ("", ""))[:3]
        if equals[1] != "=" or value[0] not in ("word", "quoted"):
            return _Jaas(module, tuple(options), _reason_cut(held, len(tokens) > at + 3))
        options.append(name[1].strip("\"'") if name[0] == "quoted" else name[1])
        at += 3
    if at == len(tokens):
        return _Jaas(module, tuple(options), _UNSEEN_END if text.endswith(";") else _NO_END)
    return _Jaas(module, tuple(options), "has something behind its semicolon" if at + 1 < len(tokens) else "")


_NO_END = "does not end with a semicolon"
_UNSEEN_END = "has a quote that does not end, or a slash without quotes, so its semicolon is not seen"
_SECTION = "is a section of a JAAS file; only the entry between the braces belongs here"


def _reason_cut(text: str, more: bool) -> str:
    if '=\\"' in text:
        return 'has \\" where only " belongs (escaped once too often)'
    if re.search(r"[\"']\s*,", text):
        return "has commas between its options; blanks separate them"
    if not more and text.rstrip()[-1:] != ";":
        return _NO_END
    return "has an option without a value, or one that needs double quotes around it"


@rule("jaas-syntax", "error", "Kafka's JaasConfig, KIP-85", stops=True, needs=(_JAAS,), reads=keys_ending(*_OF_LOGINS))
def jaas_syntax(subject: Subject) -> Iterator[Hit]:
    """Kafka cannot parse a JAAS string.

    sasl.jaas.config is the class of a login module, a control flag (required), options as name="value" separated by
    blanks, and a semicolon. Kafka parses it when it creates the client and throws IllegalArgumentException, such as
    "JAAS config entry not terminated by semi-colon": the connector is FAILED, with producer.override. the tasks. Values
    need double quotes unless they consist of letters, digits, `-`, `_`, `$` and dots and begin with a letter. Text
    behind a bare slash is a comment. Placeholders count as values and are not looked into.
    """
    reported: set[str] = set()
    for key, client in _logins(subject):
        jaas = _read(subject.get(key))
        if jaas and jaas.wrong and key not in reported:
            reported.add(key)
            yield _of_syntax(subject, key, jaas, f"{file_key(subject, key)} {jaas.wrong}: {failing(client)}")


def _of_syntax(subject: Subject, key: str, jaas: _Jaas, message: str) -> Hit:
    text, module = subject.get(key), jaas.module
    # Only a word that cannot be a secret is repeated.
    right = f'{module if module.endswith("LoginModule") else PLAIN} required username="…" password="…";'
    if jaas.wrong == _NO_END and (done := _read(f"{text};")) and not done.wrong:
        right = f"{text};"
    elif module and (done := _read(text.replace(module, f"{module} required", 1))) and not done.wrong:
        right = text.replace(module, f"{module} required", 1)
    elif (done := _read(text.replace('\\"', '"'))) and not done.wrong:
        right = text.replace('\\"', '"')
    return edit_hit(subject, message, [Edit(key, right)], key)


def _logins(subject: Subject) -> Iterator[tuple[str, Client]]:
    """Yield each client that logs in, with the key of its login; an admin client fails first.

    Of the clients with one key some may log in and others not, and each has a mechanism of its own.
    """
    for client in sorted(subject.kind.clients, key=lambda client: client.kind != "admin"):
        key = subject.kind.winners[client.name].get(_JAAS)
        if key and _logs_in(subject, client):
            yield key, client


def _logs_in(subject: Subject, client: Client) -> bool:
    protocol = configured_value(subject, client.name, "security.protocol").upper()
    return is_open(protocol) or protocol.startswith("SASL_")  # security-incomplete reports a login without


@rule(
    "jaas-module",
    "error",
    "Kafka's SaslClientAuthenticator and login modules",
    stops=True,
    needs=(_JAAS,),
    reads=keys_ending(*_OF_LOGINS),
)
def jaas_module(subject: Subject) -> Iterator[Hit]:
    """The login module does not fit the mechanism.

    Each module logs in for its mechanism: PlainLoginModule for PLAIN, ScramLoginModule for SCRAM-SHA-256 and -512,
    OAuthBearerLoginModule for OAUTHBEARER, Krb5LoginModule for GSSAPI, Amazon's IAMLoginModule for AWS_MSK_IAM.
    Otherwise Kafka has no SASL client for the mechanism, whose name must be in capitals, and no connection succeeds:
    the connector is RUNNING without tasks as with a wrong password, or FAILED at once. With PlainLoginModule and SCRAM
    it may seem to work while another connector of the same worker uses ScramLoginModule. PLAIN and SCRAM need the
    options username and password, GSSAPI the option serviceName or the key sasl.kerberos.service.name. A module is
    named with its package, and Kafka refuses Java's own for JNDI (since 3.4) and LDAP. Modules of others are not
    judged.
    """
    reported: set[str] = set()
    for key, client in _logins(subject):
        jaas = _read(subject.get(key))
        if jaas and jaas.wrong in {"", _NO_END} and key not in reported:
            for hit in _module_hits(subject, key, client, jaas):
                reported.add(key)
                yield hit


def _module_hits(subject: Subject, key: str, client: Client, jaas: _Jaas) -> Iterator[Hit]:
    mechanism = configured_value(subject, client.name, _MECHANISM)
    if (jaas.module.startswith("org.apache.kafka.") or "." not in jaas.module) and jaas.module not in MODULES:
        yield _no_module(subject, key, client, jaas.module)
    elif numbers(subject.version) >= _NOT_ALLOWED.get(jaas.module, _NEVER):
        message = f"{file_key(subject, key)}: Kafka lets no client use {jaas.module}: {failing(client)}"
        yield Hit(message, "use the module of the brokers' mechanism, such as ScramLoginModule", key)
    elif mechanism and not is_open(mechanism) and mechanism not in MODULES.get(jaas.module, (mechanism,)):
        yield _unfit(subject, key, client, jaas.module)
    elif re.search(r"=\s*[\u2018-\u201f]", subject.get(key)):
        effect = "which become part of the values: no connection succeeds"
        message = f"{file_key(subject, key)} has typographic quotes, {effect}"
        right = re.sub(r"[\u2018-\u201f]", '"', subject.get(key))
        yield edit_hit(subject, message, [Edit(key, right)], key)
    elif jaas.module.endswith(".Krb5LoginModule") and not (
        "serviceName" in jaas.options or configured_value(subject, client.name, _SERVICE)
    ):
        message = f"{file_key(subject, key)} has no serviceName, and {_SERVICE} is not set: {failing(client)}"
        yield edit_hit(subject, message, [Edit(f"{key.removesuffix(_JAAS)}{_SERVICE}", "kafka")], key)
    elif missing := _missing(subject, client, jaas):
        message = f"{file_key(subject, key)} has no {' and no '.join(missing)}: no connection succeeds"
        right = f'{jaas.module} required username="…" password="…";'
        yield edit_hit(subject, message, [Edit(key, right)], key)


_NEVER = (9999,)
# org.apache.kafka.disallowed.login.modules has the first since 3.4 (CVE-2023-25194), the second since 3.9.1 and 4.0;
# before, it asked
# Kafka's handler for a password, which has none.
_NOT_ALLOWED = {
    "com.sun.security.auth.module.JndiLoginModule": (3, 4),
    "com.sun.security.auth.module.LdapLoginModule": (2, 7),
}


def _no_module(subject: Subject, key: str, client: Client, module: str) -> Hit:
    """Return a hit about a class that is not there: of a name without its package only Kafka's own is repeated."""
    simple = {name.rpartition(".")[2]: name for name in MODULES}
    if "." in module:
        right, problem = nearest(module, MODULES, 0.5)[0], f"Kafka has no class {module}"
    else:
        right = simple[(*nearest(module, simple, 0.6), PLAIN.rpartition(".")[2])[0]]
        problem = f"{module if module in simple else 'the login module'} is named without its package"
    message = f"{file_key(subject, key)}: {problem}: {failing(client)}"
    return edit_hit(subject, message, [_with_module(subject, key, module, right)], key)


def _missing(subject: Subject, client: Client, jaas: _Jaas) -> list[str]:
    handlers = (f"sasl.{handler}.callback.handler.class" for handler in ("client", "login"))
    if jaas.module not in (PLAIN, SCRAM) or any(
        configured_value(subject, client.name, handler) for handler in handlers
    ):
        return []
    return [name for name in ("username", "password") if name not in jaas.options]


def _unfit(subject: Subject, key: str, client: Client, module: str) -> Hit:
    mechanism, works = configured_value(subject, client.name, _MECHANISM), MODULES[module]
    effect = f"{_MECHANISM}={mechanism}: no connection succeeds"
    message = f"{module.rpartition('.')[2]} in {file_key(subject, key)} does not log in with {effect}"
    by_mechanism = subject.written_key(client.name, _MECHANISM) or f"{key.removesuffix(_JAAS)}{_MECHANISM}"
    if module == PLAIN and mechanism in _MECHANISMS:
        edit = _with_module(subject, key, module, _MECHANISMS[mechanism])
        return edit_hit(subject, message, [edit], key, ", or the mechanism PLAIN, as the brokers' listener has it")
    right = next(iter(nearest(mechanism.upper(), works, 0.6)), works[0])
    return edit_hit(subject, message, [Edit(by_mechanism, right)], key, ", or use the module of the brokers' mechanism")


def _with_module(subject: Subject, key: str, module: str, right: str) -> Edit:
    return Edit(key, subject.get(key).replace(module, right, 1))


@estate_rule("login-of-other-side", "warning", "KIP-382")
def login_of_other_side(estate: Estate) -> Iterator[Hit]:
    """A client has the login or the mechanism of the other cluster.

    The record producer goes to the target, yet its producer.override. login is that of source.cluster.*, or a single
    client of one side has the login of the other side; or two connectors use the same two logins for the same two
    clusters the other way round, as happens when a flow back is copied and only the addresses are swapped. The target
    refuses the login, or accepts it with the rights of another user: RUNNING, and no record arrives. Equal text counts,
    placeholders included.
    """
    for subject in estate.subjects:
        others = _beside_admins(subject.kind, _JAAS)
        own = [_login(subject, f"{side} admin") for side in ("source", "target")] if others else [""]
        for key, client in others if all(own) and own[0] != own[1] else ():
            here, there = own if client.side == "source" else own[::-1]
            if client.side != "offsets" and subject.get(key) == there != here:
                side, other = ("source", "target") if client.side == "source" else ("target", "source")
                effect = f"the {client.name} logs in to the {side} with the login of the {other}"
                message = f"{file_key(subject, key)}: {effect}"
                yield edit_hit(subject, message, [Edit(key, here)], key)
        yield from _other_mechanism(subject)
    yield from _swapped_logins(estate)


@lru_cache(maxsize=4096)
def _beside_admins(kind: SubjectKind, plain: str) -> tuple[tuple[str, Client], ...]:
    """Return the keys, each with a client, that give a plain key to others than the two sides' admin clients."""
    admins = [kind.winners.get(f"{side} admin", {}).get(plain) for side in ("source", "target")]
    return tuple(pair for pair in keys_with_clients(kind, plain) if pair[0] not in admins)


def _other_mechanism(subject: Subject) -> Iterator[Hit]:
    """Report clients with the mechanism of the other side, where the two sides have different ones."""
    others = _beside_admins(subject.kind, _MECHANISM)
    own = [configured_value(subject, f"{side} admin", _MECHANISM) for side in ("source", "target")] if others else [""]
    for key, client in others if all(own) and own[0] != own[1] else ():
        here, there = own if client.side == "source" else own[::-1]
        if client.side != "offsets" and subject.get(key) == there != here:
            effect = f"the {client.name} uses the mechanism of the other side; all else on this one has {here}"
            message = f"{file_key(subject, key)}={there}: {effect}"
            yield edit_hit(subject, message, [Edit(key, here)], key)


def _login(subject: Subject, client: str) -> str:
    key = subject.written_key(client, _JAAS)
    return subject.get(key) if key else ""


def _swapped_logins(estate: Estate) -> Iterator[Hit]:
    """Report pairs of connectors that use two logins for two clusters the other way round, the later one."""
    ends_of = clusters(estate.subjects)
    subject_of: dict[tuple[int, int, str, str], Subject] = {}
    for subject in estate.subjects:
        logins = (
            [_login(subject, f"{side} admin") for side in ("source", "target")]
            if keys_with_clients(subject.kind, _JAAS)
            else []
        )
        if len(set(logins)) < 2 or not all(logins):
            continue
        (source, target), (of_source, of_target) = ends_of[subject], logins
        other = subject_of.get((source, target, of_target, of_source))
        if other:
            key = subject.written_key("source admin", _JAAS)
            effect = "one of the two is wrong"
            message = f"{other.name} uses the same two logins for the same two clusters the other way round: {effect}"
            fix = f"exchange the logins of source and target in {subject.name} or in {other.name}"
            yield Hit(message, fix, key, subject, others=(other,))
        subject_of.setdefault((source, target, of_source, of_target), subject)
        subject_of.setdefault((target, source, of_target, of_source), subject)
