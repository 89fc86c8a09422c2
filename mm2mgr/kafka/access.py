"""How mm2mgr itself reaches one Kafka cluster: settings in Java client keys, translated to librdkafka's.

Config-provider placeholders such as `${file:/etc/kafka.properties:password}` are resolved as a Kafka client would, from
files and variables of this machine. No connection is opened and no client imported; no resolved value appears in an
error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from mm2mgr.errors import KafkaError, SpecError
from mm2mgr.files import Unreadable, read_bytes
from mm2mgr.formats.properties import last, read
from mm2mgr.secrets import remember

# The pattern of Kafka's ConfigTransformer: provider, optional path up to the first colon, key.
_PLACEHOLDER = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_ACCESS_HINT = (
    "the worker may be able to resolve it where mm2mgr cannot; give the cluster an `access:` block "
    "with what mm2mgr itself should use, or provide the variable or file on this machine"
)
_MOST_BYTES = 1 << 20  # of a file with secrets
_LOGIN_MODULES = {"PLAIN": "PlainLoginModule", "SCRAM-SHA-256": "ScramLoginModule", "SCRAM-SHA-512": "ScramLoginModule"}
_PEM_BLOCK = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)(.*?)(-----END [A-Z0-9 ]+-----)", re.DOTALL)
_HINT = (
    "give the cluster an `access:` block for mm2mgr's own reads: PEM for certificates (ssl.truststore.type=PEM, "
    "ssl.truststore.location=/path/ca.pem), PLAIN or SCRAM for logins"
)


def resolve(alias: str, text: str) -> str:
    """Replace the placeholders of one value, once and not recursively; KafkaError names one that has no value.

    Kafka leaves such a placeholder in place as a literal and fails later at login, which is why this one stops here.
    """

    def value_of(match: re.Match[str]) -> str:
        secret = _look_up(alias, match)
        if secret is None:
            raise KafkaError(f"{alias}: {match[0]} has no value on this machine", hint=_ACCESS_HINT)
        return secret

    return _PLACEHOLDER.sub(value_of, text)


def _look_up(alias: str, match: re.Match[str]) -> str | None:
    provider, path, key = match[1], match[2] or "", match[3]
    try:
        if provider == "env":
            return None if path else os.environ.get(key)
        if provider == "file":
            entries = last(read(_text(Path(path)), path)) if path else {}
            return entries[key].value if key in entries else None
        if provider in ("dir", "directory"):
            # The directory provider knows the names in that one directory only, so a key never walks the tree.
            named = Path(path) / key
            return _text(named) if path and Path(key).name == key and named.is_file() else None
    except (Unreadable, UnicodeDecodeError, SpecError) as error:
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        reason = error.message if isinstance(error, SpecError) else reason.removeprefix("cannot be read: ")
        raise KafkaError(f"{alias}: {match[0]} cannot be read: {reason}", hint=_ACCESS_HINT) from error
    return None


def _text(path: Path) -> str:
    return read_bytes(path, _MOST_BYTES).decode()


@dataclass(frozen=True)
class KafkaAccess:
    """One cluster as mm2mgr reaches it; `security` holds Java client keys and may hold config-provider placeholders."""

    alias: str
    bootstrap_servers: str
    security: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"KafkaAccess({self.alias!r}, {self.bootstrap_servers!r}, {len(self.security)} security settings hidden)"


def librdkafka_config(access: KafkaAccess) -> dict[str, str]:
    """Translate to librdkafka's keys; KafkaError where a store format or a login has no counterpart there.

    Keys that decide neither who logs in nor whom we trust (cipher names, protocol lists) are left out.
    """
    settings = {key: resolve(access.alias, str(value)) for key, value in access.security.items()}
    remember(settings)
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    config = {"bootstrap.servers": resolve(access.alias, access.bootstrap_servers), "security.protocol": protocol}
    if protocol.startswith("SASL_"):
        config |= _sasl(access.alias, settings)
    if protocol.endswith("SSL"):
        config |= _trust(access.alias, settings) | _identity(access.alias, settings)
        algorithm = settings.get("ssl.endpoint.identification.algorithm", "https")
        config["ssl.endpoint.identification.algorithm"] = algorithm.lower() or "none"
    return config


def _sasl(alias: str, settings: Mapping[str, str]) -> dict[str, str]:
    mechanism = settings.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _LOGIN_MODULES:
        _refuse(alias, f"mm2mgr cannot log in with sasl.mechanism {mechanism}")
    try:
        module, options = parse_jaas(settings.get("sasl.jaas.config", ""))
    except ValueError as error:
        raise KafkaError(f"{alias}: sasl.jaas.config cannot be read: {error}", hint=_HINT) from error
    needed = _LOGIN_MODULES[mechanism]
    if module != needed:
        _refuse(alias, f"sasl.jaas.config names {module}, but sasl.mechanism {mechanism} needs {needed}")
    missing = [name for name in ("username", "password") if name not in options]
    if missing:
        _refuse(alias, f"sasl.jaas.config has no {' and no '.join(missing)}")
    names = {"sasl.username": options["username"], "sasl.password": options["password"]}
    return {"sasl.mechanism": mechanism, **names}


def _trust(alias: str, settings: Mapping[str, str]) -> dict[str, str]:
    inline, location = settings.get("ssl.truststore.certificates"), settings.get("ssl.truststore.location")
    if not inline and not location:
        return {}  # both sides then trust the machine's own certificate authorities
    if (kind := _store_type(settings, "truststore")) != "PEM":
        _refuse(alias, f"the truststore is {kind}, which librdkafka cannot read")
    return {"ssl.ca.pem": _pem_lines(inline)} if inline else {"ssl.ca.location": str(location)}


def _identity(alias: str, settings: Mapping[str, str]) -> dict[str, str]:
    chain, key = settings.get("ssl.keystore.certificate.chain"), settings.get("ssl.keystore.key")
    location, kind = settings.get("ssl.keystore.location"), _store_type(settings, "keystore")
    password = {"ssl.key.password": settings["ssl.key.password"]} if settings.get("ssl.key.password") else {}
    if not (chain or key or location):
        return {}
    if kind == "PKCS12" and location:
        return {"ssl.keystore.location": location, "ssl.keystore.password": settings.get("ssl.keystore.password", "")}
    if kind != "PEM":
        _refuse(alias, f"the keystore is {kind}, which librdkafka cannot read")
    if location:  # a PEM keystore of Kafka is one file with key and chain; librdkafka picks its part from either
        return {"ssl.certificate.location": location, "ssl.key.location": location, **password}
    if not (chain and key):
        _refuse(alias, "ssl.keystore.certificate.chain and ssl.keystore.key belong together, and one is missing")
    return {"ssl.certificate.pem": _pem_lines(str(chain)), "ssl.key.pem": _pem_lines(str(key)), **password}


def _store_type(settings: Mapping[str, str], store: str) -> str:
    return settings.get(f"ssl.{store}.type", "").upper() or "JKS (no type given)"


def _pem_lines(text: str) -> str:
    """Java accepts PEM with blanks for line breaks, OpenSSL does not: put them back."""
    if "\n" in text.strip():
        return text
    blocks = ["\n".join([begin, *body.split(), end, ""]) for begin, body, end in _PEM_BLOCK.findall(text)]
    return "".join(blocks) or text


def _refuse(alias: str, problem: str) -> NoReturn:
    raise KafkaError(f"{alias}: {problem}", hint=_HINT)


# --- sasl.jaas.config, read with the rules of Kafka's own parser (a Java StreamTokenizer) -----------------------------

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\r\n]*|/\*.*?\*/)
      | "(?P<double>(?:\\.|[^"\\\r\n])*)"
      | '(?P<single>(?:\\.|[^'\\\r\n])*)'
      | (?P<word>[A-Za-z_$\u00a0-\U0010ffff][\w.$\-\u00a0-\U0010ffff]*)
      | (?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([0-3]?[0-7]{1,2})|(.))", re.DOTALL)
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Read `Module flag key="value" …;`: the last part of the class, and the options, quotes and escapes undone.

    ValueError says what is missing without showing any of the text.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != ("sign", ";"):
        raise ValueError("a login module, a control flag such as `required` and a closing `;` are expected")
    module = tokens[0][1].rpartition(".")[2]
    body = tokens[2:-1]
    triples = [body[start : start + 3] for start in range(0, len(body), 3)]
    if any(len(triple) != 3 or triple[1] != ("sign", "=") or triple[2][0] == "sign" for triple in triples):
        raise ValueError('options are written key="value", and a number needs quotes')
    return module, {key[1]: value[1] for key, _, value in triples}


def login_user(alias: str, jaas: str) -> str:
    """Return the user of a SCRAM or PLAIN login, "" for others; KafkaError where a placeholder has no value here."""
    try:
        text = jaas if _PLACEHOLDER.fullmatch(jaas.strip()) is None else resolve(alias, jaas)
        module, options = parse_jaas(text)
    except ValueError:
        return ""
    return resolve(alias, options.get("username", "")) if module in _LOGIN_MODULES.values() else ""


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"character {position + 1} is not part of a login entry; put values in quotes")
        kind = str(match.lastgroup)
        if kind in ("double", "single"):
            tokens.append(("word", _unquote(match[kind])))
        elif kind != "skip":
            tokens.append((kind, match[kind]))
        position = match.end()
    return tokens


def _unquote(quoted: str) -> str:
    def plain(match: re.Match[str]) -> str:
        return chr(int(match[1], 8)) if match[1] else _CONTROL.get(match[2], match[2])

    return _ESCAPE.sub(plain, quoted)
