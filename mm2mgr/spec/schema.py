"""The JSON Schema of the tree, and from it what may be written at a place, in words: for errors and for the
reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from mm2mgr.spec import models
from mm2mgr.spec.places import Key, PathKey
from mm2mgr.spec.values import SIGNS

Node = Mapping[str, Any]
"""A part of the schema."""


@cache
def json_schema() -> Node:
    """Return the JSON Schema of one file of the tree: every top-level key is optional, since files are merged."""
    schema = models.Tree.model_json_schema(by_alias=True)
    schema.pop("required", None)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "mm2mgr topology"
    _explain_patterns(schema)
    return schema


def _explain_patterns(node: object) -> None:
    if isinstance(node, dict):
        if words := SIGNS.get(node.get("pattern", "")):
            node["patternErrorMessage"] = f"should be {words}"
        node = list(node.values())
    for below in node if isinstance(node, list) else ():
        _explain_patterns(below)


# --- places -----------------------------------------------------------------------------------------------------------


def node_at(path: PathKey) -> Node:
    """Return the part of the schema for the value at a path, empty if there is none."""
    nodes: list[Node] = [json_schema()]
    for key in path:
        nodes = [below for node in nodes for choice in choices(node) for below in _step(choice, key)]
    return nodes[0] if nodes else {}


def is_required(path: PathKey) -> bool:
    """Tell whether the mapping around a path must have its last key."""
    if len(path) == 1:
        return models.Tree.model_fields[str(path[0])].is_required()
    return any(path[-1] in choice.get("required", ()) for choice in choices(node_at(path[:-1])))


def choices(node: Node) -> Iterator[Node]:
    """Yield what a node of the schema stands for: the definition that it names, each of its alternatives."""
    if "$ref" in node:
        yield json_schema()["$defs"][definition_of(node)]
    elif "anyOf" in node:
        for choice in node["anyOf"]:
            yield from choices(choice)
    else:
        yield node


def definition_of(node: Node) -> str:
    """Return the name of the definition that a node refers to, "" if it refers to none."""
    return str(node.get("$ref", "")).rpartition("/")[2]


def properties_of(definition: str) -> Node:
    """Return the keys of a definition, each with its schema."""
    return dict(json_schema()["$defs"][definition].get("properties", {}))


def example_of(definition: str) -> dict[str, object]:
    """Return the example of a definition, its most important key first (the schema has its keys sorted)."""
    return dict(getattr(models, definition).model_config["json_schema_extra"]["examples"][0])


def _step(node: Node, key: Key) -> list[Node]:
    if isinstance(key, int):
        items = node.get("items")
    elif key in node.get("properties", {}):
        items = node["properties"][key]
    else:
        items = values_of(node)
    return [items] if isinstance(items, Mapping) else []


def values_of(node: Node) -> Node | None:
    """Return the schema of the values of a map whose keys are free."""
    return node.get("additionalProperties") or next(iter((node.get("patternProperties") or {}).values()), None)


def definition_paths() -> dict[str, str]:
    """Return the shortest path in YAML to each definition, such as `flows.NAME.tasks`, in the order in which a reader
    meets them."""
    schema = json_schema()
    paths: dict[str, str] = {}
    waiting = [("", schema)]
    while waiting:
        path, node = waiting.pop(0)
        for key, below in node.get("properties", {}).items():
            for step, name in _steps(below):
                if name not in paths:
                    paths[name] = f"{path}.{key}{step}".lstrip(".")
                    waiting.append((paths[name], schema["$defs"][name]))
    return paths


def _steps(node: Node) -> Iterator[tuple[str, str]]:
    """Yield each definition below a property with the step to it: nothing, `.NAME` of a mapping, or `[]` of a list."""
    if name := definition_of(node):
        yield "", name
    for choice in node.get("anyOf", []):
        yield from _steps(choice)
    for below in (node.get("additionalProperties"), *(node.get("patternProperties") or {}).values()):
        if isinstance(below, Mapping):
            yield from ((f".NAME{step}", name) for step, name in _steps(below))
    if isinstance(below := node.get("items"), Mapping):
        yield from ((f"[]{step}", name) for step, name in _steps(below))


# --- words ------------------------------------------------------------------------------------------------------------


def in_words(node: Node, named: Callable[[str], str], quoted: Callable[[str], str]) -> str:  # noqa: PLR0911
    """Return what may be written: `named` words a definition, `quoted` a word that is written as it is."""
    if name := definition_of(node):
        return named(name)
    if "anyOf" in node:
        each_in_words = (in_words(branch, named, quoted) for branch in node["anyOf"])
        return " or ".join(dict.fromkeys(filter(None, each_in_words)))
    if "const" in node:
        return quoted(node["const"])
    if "enum" in node:
        return " or ".join(quoted(json.dumps(value).strip('"')) for value in node["enum"])
    if isinstance(kind := node.get("type", "value"), list):
        return in_words({**node, "type": next(type_name for type_name in kind if type_name != "null")}, named, quoted)
    if kind == "null":
        return ""
    if kind == "array":
        return f"list of {in_words(node.get('items', {}), named, quoted)}"
    if kind == "object":
        below = values_of(node)
        return f"map of {in_words(below, named, quoted)}" if isinstance(below, Mapping) else "map"
    words: dict[str, str] = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    such_as = (
        f" such as {', '.join(quoted(str(example)) for example in node['examples'])}" if "examples" in node else ""
    )
    return words.get(str(kind), str(kind)) + _bounds(node) + such_as


def _bounds(node: Node) -> str:
    signs = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    bounds = [f"{word} {node[key]}" for key, word in signs.items() if key in node and node[key] != 2**31 - 1]
    return f" {' '.join(bounds)}" if bounds else ""


def model_words() -> frozenset[str]:
    """Return the words of the keys of a tree, and of values that it can choose from."""

    def find(part: object) -> Iterator[str]:
        if isinstance(part, dict):
            yield from part.get("properties", ())
            yield from (str(value) for value in (*part.get("enum", ()), part.get("const"), part.get("default")))
            for inner in part.values():
                yield from find(inner)
        elif isinstance(part, list):
            for inner in part:
                yield from find(inner)

    return frozenset(word for text in find(json_schema()) for word in re.findall(r"[^\W_]+", text))
