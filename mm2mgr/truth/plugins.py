"""What the code of Kafka's transformations and converters refuses of settings that their definitions allow. Pure.

The definitions are in `keys.json`. Each function here names the code that throws; `tools/kafka_refusals` compares all
of it with Kafka's classes.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

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
