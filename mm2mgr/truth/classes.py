"""Keys whose value is the name of a class: what Kafka must be able to create from it, and when. Pure.

Kafka's own classes are in `keys.json`, written by `tools/kafka_keys` from its jars. Classes of others are not judged:
whether they are there only the workers know."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from mm2mgr.truth.keys import load

KAFKA = "org.apache.kafka."
# What the class is for -> Kafka's interface (or class) that it must implement.
INTERFACES = {
    "metrics reporter": "org.apache.kafka.common.metrics.MetricsReporter",
    "partitioner": "org.apache.kafka.clients.producer.Partitioner",
    "assignor": "org.apache.kafka.clients.consumer.ConsumerPartitionAssignor",
    "producer interceptor": "org.apache.kafka.clients.producer.ProducerInterceptor",
    "consumer interceptor": "org.apache.kafka.clients.consumer.ConsumerInterceptor",
    "serializer": "org.apache.kafka.common.serialization.Serializer",
    "deserializer": "org.apache.kafka.common.serialization.Deserializer",
    "replication policy": "org.apache.kafka.connect.mirror.ReplicationPolicy",
    "topic filter": "org.apache.kafka.connect.mirror.TopicFilter",
    "group filter": "org.apache.kafka.connect.mirror.GroupFilter",
    "property filter": "org.apache.kafka.connect.mirror.ConfigPropertyFilter",
    "admin client": "org.apache.kafka.clients.admin.ForwardingAdmin",
    "callback handler": "org.apache.kafka.common.security.auth.AuthenticateCallbackHandler",
    "login": "org.apache.kafka.common.security.auth.Login",
    "token retriever": "org.apache.kafka.common.security.oauthbearer.JwtRetriever",
    "token validator": "org.apache.kafka.common.security.oauthbearer.JwtValidator",
    "TLS engine factory": "org.apache.kafka.common.security.auth.SslEngineFactory",
    "converter": "org.apache.kafka.connect.storage.Converter",
    "header converter": "org.apache.kafka.connect.storage.HeaderConverter",
    "transformation": "org.apache.kafka.connect.transforms.Transformation",
    "predicate": "org.apache.kafka.connect.transforms.predicates.Predicate",
}
# always: whenever the connector or client is made; the others only with such a security.protocol, or never (its class
# is loaded).
Use = Literal["always", "SASL", "SSL", "never"]
# (scopes, key) -> what it is for, and when Kafka creates it.
OF_CONNECTORS: dict[str, dict[str, str]] = {
    "source": {"topic.filter.class": "topic filter", "config.property.filter.class": "property filter"},
    "checkpoint": {"topic.filter.class": "topic filter", "group.filter.class": "group filter"},
    "heartbeat": {},
}
_OF_EVERY_CONNECTOR = {
    "replication.policy.class": "replication policy",
    "forwarding.admin.class": "admin client",
    "key.converter": "converter",
    "value.converter": "converter",
    "header.converter": "header converter",
}
_OF_EVERY_CLIENT: dict[str, tuple[str, Use]] = {
    "metric.reporters": ("metrics reporter", "always"),
    "sasl.login.class": ("login", "SASL"),
    "sasl.login.callback.handler.class": ("callback handler", "SASL"),
    "sasl.client.callback.handler.class": ("callback handler", "SASL"),
    "sasl.oauthbearer.jwt.retriever.class": ("token retriever", "never"),
    "sasl.oauthbearer.jwt.validator.class": ("token validator", "never"),
    "ssl.engine.factory.class": ("TLS engine factory", "SSL"),
}
_OF_CLIENTS: dict[str, dict[str, tuple[str, Use]]] = {
    "producer": {
        **{"interceptor.classes": ("producer interceptor", "always"), "partitioner.class": ("partitioner", "always")},
        **{"key.serializer": ("serializer", "never"), "value.serializer": ("serializer", "never")},
    },
    "consumer": {
        "interceptor.classes": ("consumer interceptor", "always"),
        "partition.assignment.strategy": ("assignor", "always"),
        **{"key.deserializer": ("deserializer", "never"), "value.deserializer": ("deserializer", "never")},
    },
    "admin": {},
}
_NAME = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)*")
PLUGINS = ("converter", "header converter", "transformation", "predicate")  # whose short names Connect knows, too


def purpose_of(scope: str, key: str) -> tuple[str, Use] | None:
    """Return the purpose of the class in a key, and when Kafka creates it; None for any other key."""
    if scope in _OF_CLIENTS:
        return _OF_CLIENTS[scope].get(key) or _OF_EVERY_CLIENT.get(key)
    purpose = OF_CONNECTORS[scope].get(key) or _OF_EVERY_CONNECTOR.get(key)
    if purpose:
        return purpose, "always"
    if key == "metric.reporters":
        return ("metrics reporter", "always") if scope != "heartbeat" else None
    loaded = _OF_EVERY_CLIENT.get(key)
    return (loaded[0], "never") if loaded else None


@cache
def problem(purpose: str, name: str, version: str, *, created: bool) -> str:
    """Return why Kafka cannot use a class, in words that follow `is`, "" for one that it can or that is not Kafka's.

    `created` is False where Kafka loads the class and does no more.
    """
    keys = load()
    own, every = keys.classes(purpose, version), _every_class(version)
    if not _NAME.fullmatch(name):
        return "no name of a class" if name else "empty: Kafka looks for a class without a name"
    if name in own or (name in every and not created) or (purpose in PLUGINS and _is_plugin(purpose, name, version)):
        return ""
    if name in every:
        return f"no {purpose} that Kafka can create"
    if right := _in_other_letters(purpose, name, version):
        return f"written in other letters than {right}"
    if "." not in name and purpose not in PLUGINS:
        whole = next((class_name for class_name in own if class_name.rpartition(".")[2] == name), "")
        return f"a name without its package{f': {whole}' if whole else ''}"
    return f"no class of Kafka {keys.line(version)}" if name.startswith(KAFKA) or "." not in name else ""


def _is_plugin(purpose: str, name: str, version: str) -> bool:
    """Tell whether Connect may know a short name: of a plugin of Kafka or, as far as is known, of somebody else."""
    keys = load()
    of_other_lines = any(name in _short_names(purpose, line) for line in keys.lines)
    is_known = of_other_lines or name in _every_class(version) or bool(_in_other_letters(purpose, name, version))
    return name in _short_names(purpose, keys.line(version)) or ("." not in name and not is_known)


def _in_other_letters(purpose: str, name: str, version: str) -> str:
    """Return the name of Kafka that differs only in the case of its letters: Java tells them apart."""
    candidates = (*load().classes(purpose, version), *(_short_names(purpose, version) if purpose in PLUGINS else ()))
    return next((candidate for candidate in candidates if candidate != name and candidate.lower() == name.lower()), "")


@cache
def _every_class(version: str) -> frozenset[str]:
    """Return the classes of Kafka that are known by name, interfaces and the short names of plugins included."""
    created = (class_name for purpose in INTERFACES for class_name in load().classes(purpose, version))
    short = (class_name for purpose in PLUGINS for class_name in _short_names(purpose, version))
    interfaces = (interface for purpose, interface in INTERFACES.items() if load().classes(purpose, version))
    return frozenset({*created, *short, *interfaces})


@cache
def _short_names(purpose: str, version: str) -> frozenset[str]:
    return frozenset(_aliases(purpose, version))


def _aliases(purpose: str, version: str) -> Iterator[str]:
    for name in load().classes(purpose, version):
        yield from _short(purpose, name)


def _short(purpose: str, name: str) -> tuple[str, ...]:
    """Return the names that Connect takes for a plugin besides its own (PluginUtils.aliases); X$Key has none."""
    if "$" in name:
        return ()
    suffix = {"converter": "Converter", "header converter": "HeaderConverter", "transformation": "Transformation"}
    simple = name.rpartition(".")[2]
    return simple, simple.removesuffix(suffix.get(purpose, "Predicate"))


@cache
def own_class(purpose: str, name: str, version: str) -> str:
    """Return Kafka's class that Connect takes a plugin's name for, short names too; "" where it is none of Kafka's."""
    own = load().classes(purpose, version)
    if name in own:
        return name
    return next((class_name for class_name in own if name in _short(purpose, class_name)), "")


def is_of_other_lines(purpose: str, name: str) -> bool:
    """Tell whether some line of Kafka has a class for a purpose."""
    return any(name in load().classes(purpose, line) for line in load().lines)


def is_among(purpose: str, name: str, plugins: frozenset[str]) -> bool:
    """Tell whether Connect finds a plugin by this name among the classes that a worker lists."""
    return name in plugins or any(name in _short(purpose, plugin) for plugin in plugins)


def names(purpose: str, version: str) -> tuple[str, ...]:
    """Return Kafka's own classes for a purpose."""
    return load().classes(purpose, version)


_MADE_BY_CAST = ("INT8", "INT16", "INT32", "INT64", "FLOAT32", "FLOAT64", "BOOLEAN", "STRING")
_TIMESTAMPS = ("string", "unix", "Date", "Time", "Timestamp")
_INSERTED = ("topic.field", "partition.field", "offset.field", "timestamp.field", "static.field")
_OF_DATES = frozenset("GyYMLwWDdFEuaHkKhmsSzZX")  # the letters of SimpleDateFormat
_CLOSING = re.compile(r"(?<!\\)`(?=\.|\Z)")
Settings = Mapping[str, str]  # what is written, without blanks around it


@dataclass(frozen=True)
class Refusal:
    """A setting, its fault in words that follow it, and what finds it: validation, a task's start or first record."""

    setting: str
    wrong: str
    by: Literal["validation", "start", "record"] = "start"


def refusal(name: str, settings: Settings, line: tuple[int, ...]) -> Refusal | None:
    """Return what a transformation or converter of Kafka, by simple name, refuses in a line such as (3, 8)."""
    if name == "StringConverter" and line < (3, 8):
        return None  # it fails at records
    judge = _BY_CLASS.get(name)
    return judge(settings) if judge else None


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []


def _parts(item: str) -> list[str]:
    """Split at colons as Java does, which drops empty parts at the end."""
    parts = item.split(":")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts if parts != [""] or not item else []


def _cast(settings: Settings) -> Refusal | None:
    """Cast.parseFieldTypes, by the validator of `spec`."""
    items = _items(settings.get("spec", ""))
    if not items:
        return Refusal("spec", "names no field to cast", by="validation")
    for item in items:
        parts = _parts(item)
        if not 0 < len(parts) < 3 or parts[-1].strip().upper() not in _MADE_BY_CAST:
            types = ", ".join(_MADE_BY_CAST).lower()
            return Refusal("spec", f"has '{item}', which is no type and no field:type ({types})", by="validation")
    if len(items) > 1 and any(len(_parts(item)) == 1 for item in items):
        return Refusal("spec", "has a type for the whole record beside others", by="validation")
    return None


def _replace_field(settings: Settings) -> Refusal | None:
    """ReplaceField.parseRenameMappings, by the validator of `renames`."""
    wrong = next((item for item in _items(settings.get("renames", "")) if len(_parts(item)) != 2), None)
    return None if wrong is None else Refusal("renames", f"has '{wrong}', which is not old:new", by="validation")


def _header_from(settings: Settings) -> Refusal | None:
    """HeaderFrom.configure."""
    fields, headers = len(_items(settings.get("fields", ""))), len(_items(settings.get("headers", "")))
    return None if fields == headers else Refusal("headers", f"has {headers} items, and fields has {fields}")


def _insert_field(settings: Settings) -> Refusal | None:
    """InsertField.configure."""
    if not any(name in settings for name in _INSERTED):
        return Refusal("type", f"inserts nothing: none of {', '.join(_INSERTED)} is set")
    lacks = "static.field" in settings and "static.value" not in settings
    return Refusal("static.field", "needs static.value") if lacks else None


def _schema_metadata(settings: Settings) -> Refusal | None:
    """SetSchemaMetadata.configure."""
    is_set = "schema.name" in settings or "schema.version" in settings
    return None if is_set else Refusal("type", "needs schema.name or schema.version")


def _timestamp_converter(settings: Settings) -> Refusal | None:
    """TimestampConverter.configure."""
    type_, pattern = settings.get("target.type", ""), settings.get("format", "")
    if type_ not in _TIMESTAMPS:
        return Refusal("target.type", f"is none of {', '.join(_TIMESTAMPS)}")
    if type_ == "string" and not pattern:
        return Refusal("target.type", "needs a format")
    wrong = _date_problem(pattern)
    return Refusal("format", wrong) if wrong else None


def _timestamp_router(settings: Settings) -> Refusal | None:
    """TimestampRouter.apply: it makes the format when it needs it."""
    wrong = _date_problem(settings.get("timestamp.format", ""))
    return Refusal("timestamp.format", wrong, by="record") if wrong else None


def _date_problem(pattern: str) -> str:
    """SimpleDateFormat.compile."""
    if pattern.count("'") % 2:
        return "has a quote without its second one"
    outside = re.sub(r"'[^']*'", " ", pattern)
    wrong = next((char for char in outside if char.isascii() and char.isalpha() and char not in _OF_DATES), "")
    wrong = wrong or ("XXXX" if "XXXX" in outside else "")
    return f"has {wrong}, which Java's SimpleDateFormat does not know" if wrong else ""


def _extract_field(settings: Settings) -> Refusal | None:
    """SingleFieldPath.buildFieldPathV2: a name in backticks ends at a dot or at the end."""
    if settings.get("field.syntax.version", "").upper() != "V2":
        return None
    path, at = settings.get("field", ""), 0
    while at < len(path):
        closing = _CLOSING.search(path, at + 1) if path[at] == "`" else None
        if path[at] == "`" and not closing:
            return Refusal("field", "has a backtick without its second one")
        end = closing.end() if closing else path.find(".", at)
        if end < 0:
            break
        at = end + 1
    return None


def _json_converter(settings: Settings) -> Refusal | None:
    """JsonConverter.configure, asConnectSchema; the setting exists since 4.2."""
    text = settings.get("schema.content", "")
    try:
        wrong = _schema_problem(json.JSONDecoder().raw_decode(text)[0]) if text else ""
    except (ValueError, RecursionError):
        wrong = "is not JSON"
    return Refusal("schema.content", wrong) if wrong else None


def _schema_problem(schema: Any) -> str:
    if schema is None:
        return ""
    type_ = schema.get("type") if isinstance(schema, dict) else None
    if type_ not in _SCHEMAS:
        return f"is a schema without one of the types {', '.join(_SCHEMAS)}"
    if any(schema.get(part) is None for part in _PARTS.get(type_, ())):
        return f"is a schema of an {type_} without {' and '.join(_PARTS[type_])}"
    fields = schema.get("fields") if type_ == "struct" else []
    if not isinstance(fields, list):
        return "is a schema of a struct without a list of fields"
    if not all(isinstance(field, dict) and isinstance(field.get("field"), str) for field in fields):
        return "is a schema with a field that has no name"
    below = (*fields, *(schema[part] for part in _PARTS.get(type_, ())))
    return next(filter(None, map(_schema_problem, below)), "")


_PARTS = {"array": ("items",), "map": ("keys", "values")}
_SCHEMAS = (
    "boolean",
    *(f"int{bits}" for bits in (8, 16, 32, 64)),
    "float",
    "double",
    "bytes",
    "string",
    "array",
    "map",
    "struct",
)


def _string_converter(settings: Settings) -> Refusal | None:
    """StringSerializer.configure; names that only Java may know (x-…) are left alone."""
    name = settings.get("converter.encoding", "UTF-8")
    return None if _is_charset(name) else Refusal("converter.encoding", "is no charset that Java knows")


def _is_charset(name: str) -> bool:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9+:._-]*", name):
        return False
    try:
        codecs.lookup(name)
    except LookupError:
        return name.lower().startswith("x-")
    return True


_BY_CLASS: Mapping[str, Callable[[Settings], Refusal | None]] = {
    "Cast": _cast,
    "ExtractField": _extract_field,
    "HeaderFrom": _header_from,
    "JsonConverter": _json_converter,
    "StringConverter": _string_converter,
    "InsertField": _insert_field,
    "ReplaceField": _replace_field,
    "SetSchemaMetadata": _schema_metadata,
    "TimestampConverter": _timestamp_converter,
    "TimestampRouter": _timestamp_router,
}
