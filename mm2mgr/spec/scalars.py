"""Single values as people write them: topic and group patterns, and quantities. A ValueError says what is accepted.

Patterns are as MirrorMaker reads them: a comma-separated LIST of Java regular expressions that match whole names.
Sources: DefaultTopicFilter, ConfigDef LIST parsing.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from mm2mgr.log_places import GROUP_PREFIX, AtTime, OfGroup, Place, parse_time, time_text

# Prefix -> names behind it.
_SECURITY = {
    "security": ("protocol",),
    "ssl": ("cipher.suites", "enabled.protocols", "engine.factory.class", "key.password", "protocol", "provider"),
    "ssl.endpoint.identification": ("algorithm",),
    "ssl.keymanager": ("algorithm",),
    "ssl.keystore": ("certificate.chain", "key", "location", "password", "type"),
    "ssl.secure.random": ("implementation",),
    "ssl.trustmanager": ("algorithm",),
    "ssl.truststore": ("certificates", "location", "password", "type"),
    "sasl": ("client.callback.handler.class", "jaas.config", "mechanism"),
    "sasl.kerberos": ("kinit.cmd", "min.time.before.relogin", "service.name"),
    "sasl.kerberos.ticket.renew": ("jitter", "window.factor"),
    "sasl.login": ("callback.handler.class", "class", "connect.timeout.ms", "read.timeout.ms"),
    "sasl.login.refresh": ("buffer.seconds", "min.period.seconds", "window.factor", "window.jitter"),
    "sasl.login.retry.backoff": ("max.ms", "ms"),
    "sasl.oauthbearer": ("clock.skew.seconds", "header.urlencode", "scope", "token.endpoint.url"),
    "sasl.oauthbearer.assertion": ("algorithm", "file", "private.key.file", "private.key.passphrase", "template.file"),
    "sasl.oauthbearer.assertion.claim": ("aud", "exp.seconds", "iss", "jti.include", "nbf.seconds", "sub"),
    "sasl.oauthbearer.client.credentials": ("client.id", "client.secret"),
    "sasl.oauthbearer.expected": ("audience", "issuer"),
    "sasl.oauthbearer.jwks.endpoint": ("refresh.ms", "retry.backoff.max.ms", "retry.backoff.ms", "url"),
    "sasl.oauthbearer.jwt": ("retriever.class", "validator.class"),
    "sasl.oauthbearer.scope": ("claim.name",),
    "sasl.oauthbearer.sub": ("claim.name",),
}
SECURITY_KEYS = frozenset(f"{prefix}.{name}" for prefix, names in _SECURITY.items() for name in names)

_PRICE_BOUND = 1_000_000

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# Prefix people know from connector JSON -> the block of a flow that stands for it.
PREFIX_BLOCKS = {
    "producer.override.": "record_producer",
    "source.consumer.": "source_consumer",
    "source.producer.": "offset_syncs_producer",
    "target.producer.": "offset_syncs_producer",
    "target.consumer.": "target_consumer",
    "source.admin.": "source_admin",
    "target.admin.": "target_admin",
    "source.cluster.": "the cluster's own entry under clusters:",
    "target.cluster.": "the cluster's own entry under clusters:",
    "consumer.override.": "source_consumer",
    "admin.override.": "target_admin",
    "consumer.": "source_consumer",
    "producer.": "record_producer",
    "admin.": "source_admin or target_admin",
}
CONNECTOR_KEYS_LIKE_PREFIXES = frozenset({"admin.timeout.ms", "consumer.poll.timeout.ms"})

# Connector keys that mm2mgr itself writes -> where people say it instead.
OWNED_CONNECTOR_KEYS = {
    "name": "names come from the aliases and the flow",
    "connector.class": "each connector type has its template",
    "tasks.max": "write tasks: {max: N}",
    "topics": "write topics: {include: [...]}",
    "topics.exclude": "write topics: {exclude: [...]}",
    "groups": "write checkpoints: {groups: {include: [...]}}",
    "groups.exclude": "write checkpoints: {groups: {exclude: [...]}}",
    "source.cluster.alias": "aliases are the keys under clusters:",
    "target.cluster.alias": "aliases are the keys under clusters:",
    "replication.policy.class": "write replication_policy:",
    "replication.policy.separator": "write separator:",
    "offset-syncs.topic.location": "write offset_syncs: {location: source|target}",
    "emit.offset-syncs.enabled": "write offset_syncs: {enabled: true|false}",
    "emit.checkpoints.enabled": "write checkpoints: true|false",
    "emit.heartbeats.enabled": "write heartbeats: true|false",
    "heartbeats.replication.enabled": (
        "one source connector of each pair carries the heartbeats; write heartbeats: true|false"
    ),
    "sync.group.offsets.enabled": "write checkpoints: {group_offsets: true|false}",
    "sync.topic.configs.enabled": "write sync: {topic_configs: true|false}",
    "sync.topic.acls.enabled": "write sync: {topic_acls: true|false}",
    "config.properties.exclude": "write sync: {exclude_properties: [...]}",
    "replication.factor": "write replication_factor: under clusters:",
    "offset-syncs.topic.replication.factor": "write replication_factor: under clusters:",
    "checkpoints.topic.replication.factor": "write replication_factor: under clusters:",
    "heartbeats.topic.replication.factor": "write replication_factor: under clusters:",
    "refresh.topics.interval.seconds": "write refresh_interval:",
    "refresh.groups.interval.seconds": "write refresh_interval:",
    "emit.checkpoints.interval.seconds": "write checkpoints: {interval: ...}",
    "sync.group.offsets.interval.seconds": "write checkpoints: {interval: ...}",
    "emit.heartbeats.interval.seconds": "write heartbeats: {interval: ...}",
    "key.converter": "MirrorMaker's records are bytes and any other converter alters them",
    "value.converter": "MirrorMaker's records are bytes and any other converter alters them",
    "header.converter": "MirrorMaker's records are bytes and any other converter alters them",
    "enabled": "pause the connector in Connect, or take the flow out of the tree",
    "replication.policy.internal.topic.separator.enabled": "not supported: internal topics follow separator:",
    "refresh.topics.enabled": "new topics are always looked for; write refresh_interval: to do it less often",
    "refresh.groups.enabled": "new groups are always looked for; write refresh_interval: to do it less often",
    "errors.tolerance": "a record that is skipped is a record that is lost",
    "exactly.once.support": "write delivery: exactly_once",
}

_IN_JAAS = (
    "it is a key of librdkafka; Java takes user and password in sasl.jaas.config:"
    ' \'org.apache.kafka.common.security.plain.PlainLoginModule required username="USER"'
    ' password="${file:/path:key}";\' (for SCRAM org.apache.kafka.common.security.scram.ScramLoginModule)'
)
_PEM = "it is a key of librdkafka; Java reads PEM files with"
_NOT_NEEDED = "it is a key of librdkafka, and Java needs none such: remove it"
# Keys of librdkafka (clients in C, Python, Go, .NET) -> what Java's clients have instead.
LIBRDKAFKA_KEYS = {
    "sasl.username": _IN_JAAS,
    "sasl.password": _IN_JAAS,
    **dict.fromkeys(
        ("username", "password", "user", "sasl.user"), _IN_JAAS.removeprefix("it is a key of librdkafka; ")
    ),
    "sasl.mechanisms": "it is a key of librdkafka; Java's is sasl.mechanism",
    "ssl.ca.location": f"{_PEM} ssl.truststore.location and ssl.truststore.type: PEM",
    "ssl.ca.pem": f"{_PEM} ssl.truststore.certificates and ssl.truststore.type: PEM",
    "ssl.certificate.location": (
        f"{_PEM} ssl.keystore.location (key and certificate in one file) and ssl.keystore.type: PEM"
    ),
    "ssl.key.location": f"{_PEM} ssl.keystore.location (key and certificate in one file) and ssl.keystore.type: PEM",
    "ssl.certificate.pem": f"{_PEM} ssl.keystore.certificate.chain and ssl.keystore.type: PEM",
    "ssl.key.pem": f"{_PEM} ssl.keystore.key and ssl.keystore.type: PEM",
    "enable.ssl.certificate.verification": (
        "it is a key of librdkafka; Java always checks certificates: trust the right one with ssl.truststore.location"
    ),
    "metadata.broker.list": "it is a key of librdkafka; write bootstrap_servers under clusters:",
    "enable.partition.eof": _NOT_NEEDED,
    "queued.max.messages.kbytes": "it is a key of librdkafka; Java's fetch.max.bytes limits what is fetched at once",
    "queued.min.messages": _NOT_NEEDED,
    "queue.buffering.max.ms": "it is a key of librdkafka; Java's is linger.ms",
    "queue.buffering.max.kbytes": "it is a key of librdkafka; Java's is buffer.memory, in bytes",
    "queue.buffering.max.messages": "it is a key of librdkafka; Java's is buffer.memory, in bytes",
    "batch.num.messages": "it is a key of librdkafka; Java's is batch.size, in bytes",
    "message.send.max.retries": "it is a key of librdkafka; Java's is retries",
    "message.timeout.ms": "it is a key of librdkafka; Java's is delivery.timeout.ms",
    "request.required.acks": "it is a key of librdkafka; Java's is acks",
    "compression.codec": "it is a key of librdkafka; Java's is compression.type",
    "fetch.message.max.bytes": "it is a key of librdkafka; Java's is max.partition.fetch.bytes",
    "socket.keepalive.enable": _NOT_NEEDED,
    "statistics.interval.ms": "it is a key of librdkafka; Java's clients report through JMX",
    "log_level": _NOT_NEEDED,
}


_MOST_CHARS = 1_000_000
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_LITERAL = re.compile(r"[A-Za-z0-9._-]+")
# What Java and Python certainly read alike, such as `team[.][a-z0-9]+-.*`.
_PLAIN = re.compile(r"(?:(?:[\w.-]|\\[.-]|\[(?:a-z|A-Z|0-9|[\w.])+\])[*+?]?)+", re.ASCII)
_QUOTED = re.compile(r"\\Q(.*?)(\\E|\Z)", re.DOTALL)
_FLAGS = re.compile(r"\(\?[a-zA-Z]+\)")
_ORDERED = re.compile(rf"\\[1-9]|{_FLAGS.pattern}")
_PYTHON_ONLY = re.compile(r"\(\?[P(]")
# Python takes it literally, Java fails when the connector starts.
_STRAY_BRACE = re.compile(r"(?<!\\)(?<!\\[pPx])\{(?!\d+\})")
# Java intersects and joins sets inside [...]; Python takes the signs literally.
_SET = re.compile(r"(?<!\\)(?:\\\\)*\[\^?\]?(?:\\.|[^\]\\])*?(?:&&|\[)")
_CLASS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]")
_POSIX = {
    r"\p{Alnum}": "A-Za-z0-9",
    r"\p{Alpha}": "A-Za-z",
    r"\p{Lower}": "a-z",
    r"\p{Upper}": "A-Z",
    r"\p{Digit}": "0-9",
}
# Decimal units (kB, MB, GB = 10^3, 10^6, 10^9) and binary units (KiB, MiB, GiB) are distinct; bit rates are divided by
# eight.
_SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
_TEN_YEARS_SECONDS = 10 * 366 * 86400.0
_BITS_OR_BYTES = re.compile(r"\s*([0-9.]+\s*[kMGT])b(?:ps|/\s*s)\s*")
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%]*)\s*(/\s*s|ps)?\s*")


# --- patterns --------------------------------------------------------------------------------------------------------


# A flow's patterns are checked where they are written, and again with its defaults laid over.
@lru_cache(maxsize=10_000)
def check_pattern(text: str) -> str:
    """Return `text` if it is a topic name or a valid pattern for Connect's lists; ValueError says why not."""
    if _PLAIN.fullmatch(text):
        return text
    if not text.strip():
        raise ValueError("an empty pattern matches nothing")
    if re.fullmatch(r"\*[\w.*-]*", text):
        pattern = text.replace(".", "[.]").replace("*", ".*")
        raise ValueError(f"* is no wildcard in a regular expression: write {pattern}")
    if "," in text:
        raise ValueError(
            "Connect splits lists at commas, so a pattern must not contain one: write x{1,3} as x|xx|xxx, x{2,} as xxx*"
        )
    if _FLAGS.search(text):
        raise ValueError(
            "Connect joins patterns into one expression, so a flag would apply to all of them: write (?i:...)"
        )
    if _PYTHON_ONLY.search(text):
        raise ValueError("not a Java regular expression: (?P and (?( are Python syntax")
    if len(text) > _MOST_CHARS:
        raise ValueError(f"longer than {_MOST_CHARS:,} characters")
    if _SET.search(_QUOTED.sub("", text)):
        raise ValueError("sets inside [...] (&&, a second [) are not supported: write alternatives such as (?:[a-c]|x)")
    if _STRAY_BRACE.search(_python(text)):
        raise ValueError(r"not a Java regular expression: write a literal { as \{")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            re.compile(_python(text), re.ASCII)
    except RecursionError as error:
        raise ValueError("groups are nested too deeply") from error
    except (re.error, OverflowError) as error:  # a repetition count may be larger than any number a machine has
        raise ValueError(f"not a regular expression: {error}; a literal sign needs a backslash before it") from error
    except FutureWarning as error:
        raise ValueError("ambiguous inside [...]: put a backslash before each literal character") from error
    return text


def is_name(text: str) -> bool:
    """Tell whether `text` is a plain name, which matches only itself."""
    return _LITERAL.fullmatch(text) is not None


def java_pattern(text: str) -> str:
    """Escape the dots of a plain name (`a.b` would also match `axb`); leave regular expressions as they are."""
    return text.replace(".", r"\.") if is_name(text) else text


def java_list(patterns: Iterable[str]) -> str:
    """Return a Connect LIST of patterns, none twice (KIP-1161), in an order that files do not decide."""
    items = dict.fromkeys(map(java_pattern, patterns))
    return ",".join(items if any(map(depends_on_order, items)) else sorted(items))


def depends_on_order(pattern: str) -> bool:
    """Tell whether a pattern means something else behind another one: Connect joins a list to one expression, which
    numbers its groups."""
    return _ORDERED.search(pattern) is not None


def replacement_of(pattern: str, replacement: str) -> Callable[[str], str | None] | None:
    """Return what Java's Matcher.replaceFirst makes of a text that matches wholly, None of another one; None where that
    is not known."""
    try:
        regex = re.compile(_python(check_pattern(pattern)), re.ASCII)
        parts = list(_replacement_parts(replacement, regex.groups))
    except (ValueError, re.error):
        return None

    def replace_groups(text: str) -> str | None:
        if regex.fullmatch(text) is None:
            return None
        return regex.sub(
            lambda match: "".join(p if isinstance(p, str) else match[p] or "" for p in parts), text, count=1
        )

    return replace_groups


def _replacement_parts(text: str, groups: int) -> Iterator[str | int]:
    """Yield the parts of Java's replacement text: text, or the number of a group; ValueError for what Java refuses and
    for named groups."""
    at = 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            yield text[at + 1]
            at += 2
        elif text[at] == "$" and text[at + 1 : at + 2].isdecimal() and int(text[at + 1]) <= groups:
            end = at + 2  # more digits belong to it as long as there is such a group
            while text[end : end + 1].isdecimal() and int(text[at + 1 : end + 1]) <= groups:
                end += 1
            yield int(text[at + 1 : end])
            at = end
        elif text[at] in "\\$":
            raise ValueError("no replacement that is understood here")
        else:
            yield text[at]
            at += 1


def matcher(include: Sequence[str], exclude: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate on names: matches any of `include` wholly and none of `exclude`."""
    included, unwanted = _any_of(include), _any_of(exclude)
    return lambda name: included.fullmatch(name) is not None and unwanted.fullmatch(name) is None


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{_python(java_pattern(text))})" for text in patterns) or r"(?!)", re.ASCII)


def _python(text: str) -> str:
    text = _QUOTED.sub(lambda match: re.escape(match[1]) if match[2] else match[0], text)
    text = _CLASS.sub(lambda match: _ranges(match[0], "%s") if match[0].startswith("[") else match[0], text)
    return _ranges(text, "[%s]")


def _ranges(text: str, form: str) -> str:
    for java, ranges in _POSIX.items():
        text = text.replace(java, form % ranges)
    return text


# --- addresses --------------------------------------------------------------------------------------------------------


def check_address(text: object) -> object:
    """Return `host:port` or a placeholder as it is; ValueError says what is wrong and what to write."""
    if not isinstance(text, str) or text.startswith("${"):
        return text
    match = _ADDRESS.fullmatch(text)
    if "@" in text:
        raise ValueError("write host:port only, and the login under security:")
    if text.startswith("-"):
        raise ValueError(f"write a blank behind the dash of a list: {re.sub('(^| )-', ' - ', text).strip()}")
    if ";" in text or re.search(r"\S\s+\S", text):
        parts = filter(None, re.split(r"[;,\s]+", text))
        raise ValueError(f"write several addresses as a list: [{', '.join(parts)}]")
    if "://" in text:
        protocol, _, rest = text.partition("://")
        raise ValueError(f"write {rest}, and the protocol under security: {{protocol: {protocol}}}")
    if "$" in text:
        name = text.partition("$")[2].partition(":")[0]
        raise ValueError(
            f'variables of a shell are not replaced: write the host, or "${{env:{name}}}:9092" for a config provider of'
            " the workers"
        )
    if text.count(":") > 1 and not text.startswith("["):
        host, _, port = text.rpartition(":")
        raise ValueError(f'write an IPv6 address in brackets and quotes: "[{host}]:{port}"')
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        raise ValueError(f"the port is missing: write {text}:9092, or another port")
    if not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise ValueError(f"the port is a number from 1 to 65535: write {host}:9092, or another port")
    if not match:
        raise ValueError("a host name or IP address and its port, such as dc1-k1:9092")
    return text


def check_url(value: object) -> object:
    """Return a URL of HTTP as it is; ValueError says what is wrong and what to write."""
    if not isinstance(value, str):
        return value
    scheme, _, rest = value.partition("://")
    if "@" in value:
        raise ValueError(
            "write the user and password under auth: {basic: {username: …, password: …}}, not into the URL"
        )
    if re.search(r"[,\s]", value):
        raise ValueError("write one URL: several are a list, or the option once for each")
    if scheme.lower() not in {"http", "https"} or not rest:
        raise ValueError("a URL that begins with http:// or https://, such as http://connect-1:8083")
    try:
        parts = urlsplit(value)
        usable = bool(parts.hostname) and value.isprintable() and " " not in value
        if rest.startswith("["):
            usable = usable and bool(ip_address(str(parts.hostname).partition("%")[0]))
        else:
            str(parts.hostname).encode("idna")
    except ValueError:  # UnicodeError too
        usable = False
    if not usable:
        raise ValueError("a URL with a host, such as http://connect-1:8083")
    try:
        has_port = parts.port != 0
    except ValueError:
        has_port = False
    if not has_port:
        raise ValueError("a URL with a port from 1 to 65535, such as http://connect-1:8083")
    if parts.query or parts.fragment:
        raise ValueError(f"write only {value.partition('?')[0].partition('#')[0]}, without what follows ? or #")
    if (end := value.rfind("/connector")) > 0 and value[end:].rstrip("/") in {"/connectors", "/connector-plugins"}:
        raise ValueError(f"write only {value[:end]}, without a path of Connect's REST API")
    return value


def check_proxy(value: object) -> object:
    """Return the URL of an HTTP proxy, or one placeholder for it; ValueError says what to write."""
    if not isinstance(value, str) or re.fullmatch(r"\$\{[^}]+\}", value):
        return value
    scheme, separator, rest = value.partition("://")
    if scheme.lower().startswith("socks"):
        tunnel = "or the local end of an SSH tunnel (`ssh -L`) as the `url` of the Connect cluster"
        raise ValueError(f"SOCKS is not supported: write an HTTP proxy such as http://proxy:3128, {tunnel}")
    if not separator and re.fullmatch(r"[\w.-]+:\d+", value):
        raise ValueError(f"write http://{value}")
    if "@" in value:
        raise ValueError("write the user and password as basic: {username: …, password: …}, beside url: under proxy:")
    check_url(value)
    if rest.strip("/").count("/"):
        raise ValueError("write only the proxy's host and port, such as http://proxy:3128")
    return value


_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OWN_HEADERS = {
    **dict.fromkeys(("accept", "accept-encoding", "content-length", "content-type", "host"), "mm2mgr writes it itself"),
    **dict.fromkeys(("connection", "expect", "keep-alive", "te", "trailer"), "it belongs to the connection"),
    **dict.fromkeys(("transfer-encoding", "upgrade", "proxy-connection"), "it belongs to the connection"),
    "proxy-authorization": "the proxy's user and password are `basic` under `proxy`",
}


def check_headers(headers: dict[str, str]) -> dict[str, str]:
    """Refuse names and values that no HTTP header has, and headers that mm2mgr writes itself; no value is repeated."""
    names_by_lower: dict[str, str] = {}
    for name, value in headers.items():
        if not _HEADER.fullmatch(name):
            raise ValueError(f"{name.rstrip(': ')!r} names a header: letters, digits and hyphens, without a colon")
        if reason := _OWN_HEADERS.get(name.lower()):
            raise ValueError(f"{name} cannot be set here: {reason}")
        if (other := names_by_lower.setdefault(name.lower(), name)) != name:
            raise ValueError(f"{other} and {name} are the same header: write only one")
        if not value.strip() or not (value.isascii() and value.isprintable()):
            raise ValueError(f"the value of {name} is empty or holds characters that no HTTP header can carry")
    return headers


# --- quantities -------------------------------------------------------------------------------------------------------


def duration_seconds(value: object, bare_unit: str = "") -> float:
    """Parse `80ms`, `10min`, `1h` to seconds; `bare_unit`: of a bare number. ValueError says what is accepted."""
    number, unit, per_second = _split(value)
    unit = unit or bare_unit
    if not unit and not per_second:
        raise ValueError(f"a duration with its unit, {number:g}s or {number:g}ms")
    if unit not in _SECONDS or per_second:
        raise ValueError(f"a duration such as {'5 (seconds), ' * bool(bare_unit)}80ms, 30s, 10min or 2h")
    seconds = number * _SECONDS[unit]
    if seconds > _TEN_YEARS_SECONDS:
        raise ValueError("a duration of at most ten years")
    return seconds


def timeout_seconds(value: object) -> float:
    """Parse a duration that a person waits for an answer."""
    seconds = duration_seconds(value)
    if not 1 <= seconds <= 3600:
        raise ValueError("a duration from 1s to 1h")
    return seconds


def bytes_per_second(value: object) -> float:
    """Parse `10 MB/s`, `1Gbit/s`; returns bytes per second."""
    number, unit, per_second = _split(value)
    size = _BYTES.get(unit) or _BITS.get(unit, math.inf) / 8
    rate = number * size
    if match := _BITS_OR_BYTES.fullmatch(str(value)):
        raise ValueError(f"a rate in bits, {match[1]}bit/s, or in bytes, {match[1]}B/s")
    if not per_second and math.isfinite(rate) and unit:
        raise ValueError(f"a rate per second, {value}/s")
    if not per_second or not math.isfinite(rate):
        raise ValueError("a rate such as 10 MB/s, 500 kB/s or 1Gbit/s")
    return rate


def byte_size(value: object) -> float:
    """Parse `4 GiB`, `512 MiB`; returns bytes."""
    number, unit, per_second = _split(value)
    size = number * _BYTES.get(unit, math.inf)
    if match := re.fullmatch(r"\s*([0-9.]+\s?[kKmMgGtT])", str(value)):
        raise ValueError(f"a size with its unit, {match[1].upper()}iB")
    if per_second or not math.isfinite(size):
        raise ValueError("a size such as 4 GiB, 512 MiB or 8 GB")
    return size


def share(value: object) -> float:
    """Parse `70%` or `0.7`; returns a number above 0 and up to 1."""
    number, unit, per_second = _split(value)
    result = number / 100 if unit == "%" else number
    if not unit and not per_second and 1 < number <= 100:
        raise ValueError(f"a share, {number:g}%")
    if per_second or unit not in {"", "%"} or not 0 < result <= 1:
        raise ValueError("a share such as 70% or 0.7")
    return result


def price(value: object) -> Decimal:
    """Parse `0.02`, a number or a text; returns exactly what is written."""
    try:
        amount = Decimal("nan" if isinstance(value, bool) else str(value).strip())
    except InvalidOperation:
        amount = Decimal("nan")
    if not amount.is_finite() or not 0 <= amount < _PRICE_BOUND:
        raise ValueError("a price such as 0.02, without its currency, which `currency` names")
    return amount


def _split(value: object) -> tuple[float, str, bool]:
    match = _NUMBER.fullmatch(str(value)) if not isinstance(value, bool) else None
    if not match:
        return 0.0, "?", False
    # A small b is a bit to some people and a byte to others: neither is guessed.
    return float(match[1]), "?" if match[2].endswith("b") else match[2].lower(), bool(match[3])


# --- times and places in logs -----------------------------------------------------------------------------------------

_TIME_BACK = re.compile(r"[0-9.]+\s*[A-Za-z]+")
_START = "latest, earliest, a time such as 2026-11-26T10:00 (UTC), a time back such as 2h, or {group: NAME}"


def moment(text: str) -> AtTime:
    """Parse a time such as `2026-11-26T10:00` (UTC without a zone), or a time back such as `2h`."""
    try:
        if _TIME_BACK.fullmatch(text):
            return AtTime(None, duration_seconds(text))
        at = AtTime(parse_time(text))
    except (ValueError, OverflowError):
        raise ValueError("is neither a time such as 2026-11-26T10:00 (UTC) nor a time back such as 2h") from None
    if at.time_ms is not None and at.time_ms < 0:
        raise ValueError("is before 1970: no record has such a timestamp")
    return at


def start_text(value: object) -> str:
    """Return where a flow begins as its connector has it: `latest`, a time in UTC, `2h`, or `group:NAME`."""
    if isinstance(value, Mapping):
        group = value.get("group")
        if len(value) != 1 or not isinstance(group, str) or not group.strip():
            raise ValueError(f"{_START}, with nothing beside group:")
        return GROUP_PREFIX + group
    # YAML makes times of what looks like some.
    text = value.isoformat() if isinstance(value, date) else value.strip() if isinstance(value, str) else ""
    if text in {"latest", "earliest"}:
        return text
    try:
        at_time = moment(text)
    except ValueError:
        raise ValueError(_START) from None
    return text if at_time.time_ms is None else time_text(at_time.time_ms)


def of_group(text: str) -> Place:
    """Return the place of a consumer group by its name."""
    if not text.strip():
        raise ValueError("is no name of a group")
    return OfGroup(text)


def log_place(text: str) -> Place:
    """Parse what `start_text` returns."""
    if text == "latest":
        return "latest"
    if text == "earliest":
        return "earliest"
    return OfGroup(text.removeprefix(GROUP_PREFIX)) if text.startswith(GROUP_PREFIX) else moment(text)


def place_text(place: Place) -> str:
    """Return the text of a place, which `log_place` reads again unless it is an offset."""
    if isinstance(place, OfGroup):
        return GROUP_PREFIX + place.group
    if isinstance(place, AtTime):
        # Not :g, which writes 2.592e+06 for 30d.
        ago = f"{place.ago_seconds:.3f}".rstrip("0").rstrip(".")
        return f"{ago}s" if place.time_ms is None else time_text(place.time_ms)
    return str(place)
