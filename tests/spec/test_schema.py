"""The JSON Schema for editors: every field documented, unknown keys refused, and the example estate accepted by it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.spec import models
from mm2mgr.spec.mistakes import example_of, json_schema
from mm2mgr.spec.places import read_yaml
from tests.spec.trees import ESTATE

SCHEMA = json_schema()
OBJECTS = {"Tree": SCHEMA, **SCHEMA["$defs"]}
TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}
UNKNOWN: dict[str, Any] = {"enum": []}  # accepts nothing


@pytest.mark.parametrize("name", OBJECTS)
def test_every_field_is_documented_and_unknown_keys_are_refused(name: str) -> None:
    model = OBJECTS[name]
    assert model["additionalProperties"] is False
    assert [key for key, field in model["properties"].items() if not field.get("description")] == []


def test_any_file_of_the_tree_may_hold_any_part() -> None:
    assert "required" not in SCHEMA
    assert set(SCHEMA["properties"]) == {
        "owner",
        "defaults",
        "clusters",
        "connect",
        "links",
        "flows",
        "adopt",
        "moved",
        "release",
        "sizing",
        "brokers",
    }


@pytest.mark.parametrize("name", SCHEMA["$defs"])
def test_every_block_of_settings_has_an_example_that_its_model_reads(name: str) -> None:
    (example,) = SCHEMA["$defs"][name]["examples"]
    assert example_of(name) == example
    getattr(models, name).model_validate(example)


def test_editors_show_words_where_a_value_does_not_match() -> None:
    assert SCHEMA["properties"]["owner"]["patternErrorMessage"].startswith("should be a name of letters, digits")


def refusals(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Check a value against the part of JSON Schema that pydantic writes."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    if branches := schema.get("anyOf"):
        results = [list(refusals(value, branch, path)) for branch in branches]
        if all(results):
            yield from results[0]
        return
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, TYPES[kind]) for kind in kinds):
        yield f"{path}: {type(value).__name__} is no {kinds}"
    elif value not in schema.get("enum", [schema.get("const", value)]):
        yield f"{path}: {value!r}"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from refusals(item, _under(schema, key), f"{path}.{key}")
        yield from (f"{path}: {key} is missing" for key in schema.get("required", []) if key not in value)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from refusals(item, schema.get("items", {}), f"{path}[{index}]")
    elif isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{path}: {value!r} does not match"


def _under(schema: dict[str, Any], key: str) -> dict[str, Any]:
    if key in schema.get("properties", {}):
        return dict(schema["properties"][key])
    for pattern, inner in schema.get("patternProperties", {}).items():
        if re.search(pattern, key):
            return dict(inner)
    more = schema.get("additionalProperties", False)
    return UNKNOWN if more is False else dict(more) if isinstance(more, dict) else {}


@pytest.mark.parametrize("file", sorted(ESTATE.rglob("*.yaml")), ids=lambda file: file.name)
def test_the_example_estate_is_accepted(file: Path) -> None:
    for document in read_yaml(file):
        assert list(refusals(document.values, SCHEMA)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"flowz": {}},
        {"flows": {"f": {"sources": ["a"], "targets": ["b"], "topcs": {}}}},
        {"flows": {"f": {"sources": ["a"]}}},
        {"flows": {"f": {"sources": ["a"], "targets": ["b"], "refresh_interval": 600}}},
        {"defaults": {"flows": {"offset_syncs": {"location": "middle"}}}},
        {"clusters": {"a": {"bootstrap_servers": 5}}},
        {"clusters": {"a": {"bootstrap_servers": "a:1", "security": {"protocol": ["SSL"]}}}},
        {"defaults": {"flows": {"separator": "->"}}},
    ],
)
def test_and_what_the_loader_refuses_is_refused(wrong: dict[str, Any]) -> None:
    assert list(refusals(wrong, SCHEMA))


def test_null_drops_a_security_key() -> None:
    cluster = {"bootstrap_servers": "a:1", "security": {"protocol": "PLAINTEXT", "sasl.jaas.config": None}}
    assert list(refusals({"clusters": {"a": cluster}}, SCHEMA)) == []


@pytest.mark.parametrize("short", [True, False, {"enabled": False}])
@pytest.mark.parametrize("block", ["checkpoints", "heartbeats", "offset_syncs"])
def test_the_short_forms_are_known(block: str, short: object) -> None:
    flow = {"sources": "a, b", "targets": {"tier": "x", "dc": ["d", "e"]}, "topics": {"include": "t"}, block: short}
    assert list(refusals({"flows": {"f": flow}}, SCHEMA)) == []
