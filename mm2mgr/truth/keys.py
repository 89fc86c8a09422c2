"""What Kafka knows of a config key, per line (2.7 … 4.3): type, default, valid values; and Kafka's versions.

The data are in `keys.json` beside this module, written by `tools/kafka_keys` from Kafka's real jars. It starts no Java
and imports nothing outside the standard library; which client a key reaches is the subject of `reach`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from mm2mgr.text import nearest

Scope = Literal["source", "checkpoint", "heartbeat", "producer", "consumer", "admin", "worker"]
ClientName = Literal[
    "record_producer", "record_producer_exactly_once", "offsets_consumer", "source_consumer", "target_consumer"
]
SCOPES: tuple[str, ...] = get_args(Scope)
CLIENTS: tuple[str, ...] = get_args(ClientName)
DATA = Path(__file__).with_name("keys.json")
SERVERS = Path(__file__).with_name("servers.json")  # written by tools/kafka_keys/servers.py
_CHOICES = re.compile(r"\[(?P<items>[^\[\]]*)\]")
NO_DOUBLES = "no doubles"  # in `valid` of a list: neither an item twice nor an empty one


@dataclass(frozen=True, slots=True)
class Key:
    """One key as some Kafka lines define it; `<alias>` or `<group>` in a name is a placeholder for a chosen name."""

    scope: str
    name: str
    type: str  # Kafka's own: string, int, short, long, double, boolean, list, class, password
    default: str | None  # as it would be written in a properties file; None also when `required`
    required: bool
    valid: str  # "" when any value of the type will do; "[0,...,900]" is a range, "[all, -1]" a choice
    importance: str
    lines: tuple[str, ...]  # the lines in which exactly these facts hold
    exists_in: tuple[str, ...]  # the lines that have the key at all
    read_by: str  # "" for the scope's own definition, else the class that reads the key beside it
    internal: bool  # kept out of Kafka's documentation
    typed: bool  # written by hand in generate.py: no definition in the jars holds it
    deprecated: bool  # by its own description

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the values that Kafka accepts, () unless a choice; an item such as `by_duration:…` is a pattern."""
        match = _CHOICES.match(self.valid)
        if not match or "..." in self.valid:
            return ()
        return tuple(item.strip() for item in match["items"].split(","))

    @property
    def any_case(self) -> bool:
        """Tell whether the choices are case-insensitive."""
        return "in any case" in self.valid


_Row = Mapping[str, Any]
_Rows = Mapping[str, Mapping[str, Sequence[_Row]]]


class Keys:
    """All keys of all lines; rows become `Key` values only when they are asked for, so that loading stays cheap."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.releases: dict[str, str] = dict(data["kafka"])  # line → the release that was read, oldest line first
        self._keys: _Rows = data["keys"]
        self._clients: _Rows = data["clients"]
        self._classes: _Rows = data["classes"]
        self._histories: dict[tuple[str, str], tuple[Key, ...]] = {}
        self._found: dict[tuple[str, str, str], Key | None] = {}
        self._settings: dict[tuple[str, str], tuple[Key, ...]] = {}
        self._set_first: dict[tuple[str, str], dict[str, str]] = {}

    @cached_property
    def lines(self) -> tuple[str, ...]:
        return tuple(self.releases)

    def line(self, version: str) -> str:
        """Return the line that applies to a version: its own, else the newest before it.

        Raises ValueError for text that does not start like `4.3`, and for versions before the oldest known line.
        """
        number = _number(version)
        for line in reversed(self.lines):
            if _number(line) <= number:
                return line
        raise ValueError(f"Kafka {version} is not known: {self.lines[0]} to {self.lines[-1]} are")

    def knows(self, version: str) -> bool:
        """Tell whether a version has a line here, or one before it."""
        return _number(version) >= _number(self.lines[0])

    def find(self, scope: str, name: str, version: str) -> Key | None:
        """Return a key as one Kafka version defines it, None when that version does not know it."""
        asked = (scope, name, version)
        if asked not in self._found:  # lint asks for the same few keys of thousands of connectors
            line = self.line(version)
            self._found[asked] = next((key for key in self.history(scope, name) if line in key.lines), None)
        return self._found[asked]

    def history(self, scope: str, name: str) -> tuple[Key, ...]:
        """Return a key's facts, oldest first: one value for each time they changed; () for a name no line knows."""
        if (scope, name) not in self._histories:
            self._histories[scope, name] = self._history(scope, name)
        return self._histories[scope, name]

    def _history(self, scope: str, name: str) -> tuple[Key, ...]:
        rows = self._keys[scope]
        patterns = (pattern for pattern, shape in _patterns(tuple(rows)) if shape.fullmatch(name))
        key_name = name if name in rows else next(patterns, None)
        if key_name is None:
            return ()
        spans = [self._span(row["in"]) for row in rows[key_name]]
        exists_in = tuple(line for line in self.lines if any(line in span for span in spans))
        return tuple(
            _key(scope, key_name, row, span, exists_in) for row, span in zip(rows[key_name], spans, strict=True)
        )

    def names(self, scope: str, version: str | None = None) -> list[str]:
        """Return the names a scope has in one version, or in any."""
        if version is None:
            return list(self._keys[scope])
        line = self.line(version)
        return [name for name, rows in self._keys[scope].items() if any(line in self._span(row["in"]) for row in rows)]

    def nearest(self, name: str, scope: str, version: str | None = None) -> str | None:
        """Return the known name that looks most like one, None when nothing comes close."""
        return next(iter(nearest(name, self.names(scope, version), 0.75)), None)

    def framework_defaults(self, client: str, version: str) -> dict[str, str]:
        """Return the defaults that Connect or MirrorMaker sets for a client; they override Kafka's."""
        if (client, version) not in self._set_first:
            self._set_first[client, version] = dict(self._set_by_framework(client, self.line(version)))
        return dict(self._set_first[client, version])

    def classes(self, purpose: str, version: str) -> tuple[str, ...]:
        """Return Kafka's own classes for a purpose (see `classes.INTERFACES`) in one version."""
        line, rows = self.line(version), self._classes.get(purpose, {})
        return tuple(
            f"org.apache.kafka.{name}"
            for name, spans in rows.items()
            if any(line in self._span(row["in"]) for row in spans)
        )

    def settings(self, plugin: str, version: str) -> tuple[Key, ...]:
        """Return the settings of Kafka's plugin (a transformation, …) in one version; X$Key and X$Value are X."""
        if (plugin, version) not in self._settings:
            scope = plugin.removeprefix("org.apache.kafka.").partition("$")[0]
            definitions = (self.find(scope, name, version) for name in self._keys.get(scope, ()))
            self._settings[plugin, version] = tuple(key for key in definitions if key)
        return self._settings[plugin, version]

    def _set_by_framework(self, client: str, line: str) -> Iterator[tuple[str, str]]:
        for name, rows in self._clients[client].items():
            yield from ((name, row["value"]) for row in rows if line in self._span(row["in"]))

    def _span(self, text: str) -> tuple[str, ...]:
        first, _, last = text.partition("-")
        return self.lines[self.lines.index(first) : self.lines.index(last or first) + 1]


@cache
def load() -> Keys:
    """Read the data file, once per process."""
    return Keys(json.loads(DATA.read_text(encoding="utf-8")))


@cache
def server_setting(name: str) -> Literal["topic", "broker"] | None:
    """Tell whether a name is a setting of topics or of brokers, and none of a client, connector or worker."""
    kinds: tuple[Literal["topic", "broker"], ...] = ("topic", "broker")
    return next((kind for kind in kinds if name in _servers()[kind]), None)


@cache
def _servers() -> dict[str, list[str]]:
    servers: dict[str, list[str]] = json.loads(SERVERS.read_text(encoding="utf-8"))
    return servers


def _key(scope: str, name: str, row: _Row, lines: tuple[str, ...], exists_in: tuple[str, ...]) -> Key:
    return Key(
        scope=scope,
        name=name,
        type=row["type"],
        default=row.get("default"),
        required="default" not in row,
        valid=row.get("valid", ""),
        importance=row["importance"],
        lines=lines,
        exists_in=exists_in,
        read_by=row.get("read_by", ""),
        internal=row.get("internal", False),
        typed=row.get("typed", False),
        deprecated=row.get("deprecated", False),
    )


@cache
def _patterns(names: tuple[str, ...]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the names with placeholders, such as `transforms.<alias>.type`, with a pattern each."""
    return tuple(
        (name, re.compile(".+".join(re.escape(part) for part in re.split(r"<\w+>", name))))
        for name in names
        if "<" in name
    )


@cache
def _number(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    if not match:
        raise ValueError(f"not a Kafka version: {version!r}")
    return int(match[1]), int(match[2])


_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(\.\d+)?(?:\.\d+)*(.*)", re.DOTALL)  # more digits Python refuses to read
_NEWEST_MAJOR = 5  # announced; a greater number without Confluent's mark is another vendor's own numbering
# Confluent Platform's major version -> Kafka's, and what to add to the minor (vendor's table of interoperability).
_CONFLUENT = {5: (2, 0), 6: (2, 6), 7: (3, 0), 8: (4, 0)}


def kafka_version(text: str) -> str | None:
    """Return the Kafka version that a text stands for: a release, or the line when a vendor counts patches itself."""
    match = _VERSION.fullmatch(text.strip())
    if not match or match[4][:1] not in {"", "-", ".", "+"}:
        return None
    major, minor = int(match[1]), int(match[2])
    if re.match(r"-(ccs|ce)\b", match[4]):
        if major not in _CONFLUENT:
            return None
        line, more = _CONFLUENT[major]
        return f"{line}.{minor + more}"
    # One number of the patch: vendors append their own (`2.8.2.1`).
    return f"{major}.{minor}{match[3] or ''}" if major <= _NEWEST_MAJOR else None


_RANGE = re.compile(r"\[(?P<low>[^,\]]+),\.\.\.(?:,(?P<high>[^\]]+))?\](?P<unset> or -1)?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_URLS, _MACS = "URLs", "MAC algorithms of the JVM"  # in `valid` of a worker's lists
_MAC = re.compile(r"(Hmac|PBEWithHmac|SslMac)\w", re.IGNORECASE)
_KEY_GENERATOR = re.compile(r"(Hmac|SunTls)\w|(AES|ARCFOUR|Blowfish|ChaCha20|DES|DESede|RC2|RC4)$", re.IGNORECASE)
_RULE, _HEADER_ACTIONS = re.compile(r'"[^"]*"|[^,]+'), ("set", "add", "setdate", "adddate")
_DURATION = re.compile(r"P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+([.,][0-9]{0,9})?S)?)?", re.IGNORECASE)
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?)")  # of Java
_NUMBERS = {"short": "whole number", "int": "whole number", "long": "whole number", "double": "number"}
_WIDTH = {"short": 16, "int": 32, "long": 64}


def is_checked(key: Key) -> bool:
    """Tell whether values of this key are checked; secrets, names and classes are not."""
    if key.read_by == "MirrorCheckpointConnector":  # it compares one with a word and refuses no other
        return False
    return key.type in ("boolean", "double", *_WIDTH) or (key.type in ("string", "list") and bool(key.valid))


@cache
def fault(scope: str, name: str, version: str, value: str) -> str:
    """Return the problem of a value of a checked key; the same few values come back in thousands of connectors."""
    key = load().find(scope, name, version)
    return problem(key, value) if key else ""


def problem(key: Key, value: str) -> str:
    """Return the fault of a value, in words that follow `is`."""
    text = value.strip()
    if key.type == "boolean":
        return "" if text.lower() in ("true", "false") else "neither true nor false"
    if key.type in _NUMBERS:
        return _number_problem(key, text)
    if key.type == "list":
        return _list_problem(key, text)
    return _choice_problem(key, text) if key.type == "string" else ""


def _list_problem(key: Key, text: str) -> str:
    if not text:
        return _empty_problem(key, text)
    items = [item.strip() for item in text.split(",")]
    if _URLS in key.valid and "" in items:
        return item_problem(items, doubles=False)
    if _MACS in key.valid and (strange := next((item for item in items if not _MAC.match(item)), None)) is not None:
        return f"no list of MAC algorithms of Java: '{strange}' is none"
    # What Kafka parses for itself loses its doubles (ConfigDef.parseValue); Connect's validation refuses them.
    of_client = key.scope in ("producer", "consumer", "admin") or bool(key.read_by)
    checked = NO_DOUBLES in key.valid or "unique" in key.valid
    if checked and (wrong := item_problem(items, doubles=not of_client)):
        return wrong
    return next(filter(None, (_choice_problem(key, item) for item in items)), "") if key.choices else ""


def item_problem(items: Sequence[str], *, doubles: bool) -> str:
    """Return the fault of a list since Kafka 4.2 (KIP-1161), in words that follow `is`; `doubles` are one if set."""
    if "" in items:
        return "a list with an empty item (a comma too many)"
    earlier = set[str]()
    for item in items if doubles else ():
        if item in earlier:
            return f"a list with '{item}' twice"
        earlier.add(item)
    return ""


def allowed_values(key: Key) -> str:
    """Return the values that a key may have, in words that follow `write`."""
    if key.choices:
        return f"one of {', '.join(key.choices)}"
    if key.type == "boolean":
        return "true or false"
    if NO_DOUBLES in key.valid:
        return "a list with commas between, each item once and none empty"
    if key.type not in _NUMBERS:
        return f"a value of type {key.type}{f' ({key.valid})' if key.valid else ''}"
    limits = _RANGE.search(key.valid)
    if not limits:
        return f"a {_NUMBERS[key.type]}"
    span = f"from {limits['low']} to {limits['high']}" if limits["high"] else f"of at least {limits['low']}"
    return f"a {_NUMBERS[key.type]} {span}{', or -1' if limits['unset'] else ''}"


def _header_problem(text: str) -> str:
    """Return the fault of response headers, as RestServerConfig.validateHttpResponseHeaderConfig finds it."""
    for rule in (match[0].strip('" ') for match in _RULE.finditer(text)):
        action, _, header = rule.strip().replace("\t", " ").partition(" ")
        name, *values = header.strip().rstrip(":").split(":")
        named = bool(name.strip()) and " " not in name.strip()
        if action.lower() not in _HEADER_ACTIONS or len(values) != 1 or not named:
            return "no list of `set NAME: VALUE` or `add NAME: VALUE`"
    return ""


def _empty_problem(key: Key, text: str) -> str:
    if not text and (_MACS in key.valid or (_URLS in key.valid and key.name == "listeners")):
        return "empty, which this key must not be"
    return "empty, which this key must not be" if not text and "not empty" in key.valid else ""


def _choice_problem(key: Key, text: str) -> str:
    if key.valid == "header rules":
        return _header_problem(text)
    if "algorithm of the JVM" in key.valid:
        pattern = _MAC if "MAC" in key.valid else _KEY_GENERATOR
        return "" if pattern.match(text) else "no algorithm of Java"
    forms = tuple(choice.partition(":")[0] + ":" for choice in key.choices if ":" in choice)
    allowed = [choice.lower() if key.any_case else choice for choice in key.choices if ":" not in choice]
    if allowed and (text.lower() if key.any_case else text) not in allowed:
        form = next((form for form in forms if text.startswith(form)), "")
        return "" if form and _DURATION.fullmatch(text[len(form) :]) else "none of the values it can have"
    return _empty_problem(key, text)


def _number_problem(key: Key, text: str) -> str:
    number = _number_of(key.type, text)
    if number is None:
        return f"too large for its type, {key.type}" if _WHOLE.fullmatch(text) else f"no {_NUMBERS[key.type]}"
    limits = _RANGE.search(key.valid)
    if not limits or (limits["unset"] and number == -1):
        return ""
    if number < float(limits["low"]):
        return f"less than {limits['low']}"
    return f"more than {limits['high']}" if limits["high"] and number > float(limits["high"]) else ""


def _number_of(type_: str, text: str) -> float | None:
    try:
        if type_ == "double":
            return float(text.rstrip("dDfF")) if _DOUBLE.fullmatch(text) else None
        limit = 2 ** (_WIDTH[type_] - 1)
        return int(text) if _WHOLE.fullmatch(text) and -limit <= int(text) < limit else None
    except ValueError:
        return None
