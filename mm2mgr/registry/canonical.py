"""Schemas in one form, so that equal ones have one fingerprint. Pure.

White space and the order of keys in JSON are no difference, nor are white space and comments in Protobuf, nor whether
Avro writes `"string"` or `{"type": "string"}`. Names, defaults, docs and the order of fields are: whatever readers may
see. References are compared by what they resolve to, not by the subject and version that a registry keeps them under.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

FINGERPRINT_DIGITS = 12
_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_PROTOBUF_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[\w.]+|\S", re.DOTALL)


def canonical_text(schema_type: str, text: str) -> str:
    """Return a schema (AVRO, JSON, PROTOBUF; "" where the registry does not tell) in the form that is compared."""
    try:
        return json.dumps(_plain_avro(json.loads(text)), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        if schema_type not in ("PROTOBUF", ""):
            return text.strip()
    tokens = (match.group() for match in _PROTOBUF_TOKEN.finditer(text))
    return " ".join(token for token in tokens if not token.startswith(("//", "/*")))


def _plain_avro(value: Any) -> Any:
    """Return a schema with Avro's primitive types as plain names; in JSON Schema this makes no two schemas one."""
    if isinstance(value, dict):
        if value.keys() == {"type"} and value["type"] in _PRIMITIVES:
            return value["type"]
        # A default is data, not a schema.
        return {key: part if key == "default" else _plain_avro(part) for key, part in value.items()}
    return [_plain_avro(part) for part in value] if isinstance(value, list) else value


def fingerprint(schema_type: str, text: str, references: Mapping[str, str]) -> str:
    """Return the first digits of a SHA-256 over a schema and, by name, the fingerprints of what it refers to."""
    parts = [canonical_text(schema_type, text), *(f"{name}={references[name]}" for name in sorted(references))]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:FINGERPRINT_DIGITS]
