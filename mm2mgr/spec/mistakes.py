"""The JSON Schema of the tree, and what pydantic refuses in a tree in words: what is wrong, and what to write instead.

What may be written, and an example, come from the schema; what a validator says itself (a ValueError) is kept.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NotRequired, TypedDict

import yaml
from pydantic import ValidationError

from mm2mgr.secrets import is_secret
from mm2mgr.spec import models, scalars
from mm2mgr.spec.places import Key, PathKey
from mm2mgr.spec.values import SIGNS
from mm2mgr.text import nearest

Node = Mapping[str, Any]
"""A part of the schema."""


@cache
def json_schema() -> Node:
    """Return the JSON Schema of one file of the tree: every top-level key is optional, since files are merged."""
    for model in vars(models).values():  # pydantic 2.10 asks the serializers of defaults, and models build when asked
        if isinstance(model, type) and issubclass(model, models.Model):
            model.model_rebuild()
    schema = models.Tree.model_json_schema(by_alias=True)
    texts = _texts_below_fields()
    for name, definition in {"Tree": schema, **schema["$defs"]}.items():
        model = getattr(models, name)
        for field, info in model.model_fields.items() if issubclass(model, models.Model) else ():
            key = info.alias or field
            places = ((parent.__name__, field) for parent in model.__mro__)
            if text := next((texts[place] for place in places if place in texts), ""):
                node = {"description": text, **definition["properties"][key]}
                definition["properties"][key] = dict(sorted(node.items()))
    schema.pop("required", None)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "mm2mgr topology"
    _explain_patterns(schema)
    return schema


def _texts_below_fields() -> dict[tuple[str, str], str]:
    """Return the text below each field in the source, by model and field."""
    texts = {}
    classes = (part for part in ast.parse(inspect.getsource(models)).body if isinstance(part, ast.ClassDef))
    for model in classes:
        for field, below in pairwise(model.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(str(text))):
                    texts[model.name, name] = inspect.cleandoc(text)
    return texts


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
    """Return the shortest YAML path to each definition, such as `flows.NAME.tasks`, in a reader's order."""
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
    # Some releases of pydantic write the bounds of a float as floats: 1.0.
    bounds = [f"{word} {node[key]:.15g}" for key, word in signs.items() if key in node and node[key] != 2**31 - 1]
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


Mistake = tuple[PathKey, str]
_SHOWN = 80


class _Error(TypedDict):
    """A problem as pydantic has it; `ctx` where its `type` has limits or patterns."""

    type: str
    loc: tuple[int | str, ...]
    msg: str
    input: object
    ctx: NotRequired[dict[str, Any]]


def mistakes(error: ValidationError, values: object, base: PathKey = (), of: str = "") -> list[Mistake]:
    """Return one message per wrong place. `base` is where `values` are in the tree, `of` is added to each name."""
    groups: dict[PathKey, list[_Error]] = {}
    for item in error.errors(include_url=False):
        groups.setdefault(_real_path(item, values), []).append(item)
    kinds = {path: items[0]["type"] for path, items in groups.items()}
    wrong_keys = {path for path, items in groups.items() if any(map(_is_key, items))}
    unknown = {path: _explain_unknown((*base, *path)) for path, kind in kinds.items() if kind == "extra_forbidden"}
    meant = {(*path[:-1], meant_key) for path, (meant_key, _) in unknown.items()}
    not_indented = {path[:-1] for path in groups if _is_of_entry((*base, *path))}
    messages = []
    for path, items in groups.items():
        is_empty_entry = path[:-1] in not_indented and items[0]["input"] is None
        below_wrong_key = any(path[:length] in wrong_keys for length in range(len(path)))
        has_inner = any(other[: len(path)] == path != other for other in groups) and kinds[path].endswith("_type")
        if below_wrong_key or has_inner or is_empty_entry or (path in meant and kinds[path] == "missing"):
            continue  # another message is about the same slip
        name = ".".join(key for key in path if isinstance(key, str))
        if path in unknown:
            message = f"unknown key '{path[-1]}'; {unknown[path][1]}"
        elif _is_of_entry((*base, *path)):
            message = (
                f"'{name}' should be the name of an entry: indent its keys, such as '{path[-1]}', by two blanks more"
            )
        else:
            predicate = _predicate(path, items, base)
            entry = "an entry of " if isinstance(path[-1], int) and predicate.startswith(" ") else ""
            message = f"{entry}'{name}'{of}{predicate}"
        messages.append((path, message))
    return messages


def _real_path(item: _Error, values: object) -> PathKey:
    path: list[Key] = []
    for key in item["loc"]:
        inner = dict(enumerate(values)) if isinstance(values, list) else values
        if isinstance(inner, dict) and key in inner:
            path, values = [*path, key], inner[key]
    return (*path, item["loc"][-1]) if item["type"] == "missing" else tuple(path)


def _is_of_entry(path: PathKey) -> bool:
    below = values_of(node_at(path[:-1])) if path else None
    return isinstance(below, Mapping) and any(path[-1] in properties_of(name) for name in _definitions(below))


def _is_key(item: _Error) -> bool:
    return bool(item["loc"][-1:] == ("[key]",))


# --- values -----------------------------------------------------------------------------------------------------------


def _predicate(path: PathKey, items: Sequence[_Error], base: PathKey) -> str:  # noqa: PLR0911
    """Say what is wrong with the value at a path. A union reports each of its branches: the deepest knows best."""
    deepest = max(len(item["loc"]) for item in items)
    items = [item for item in items if len(item["loc"]) == deepest]
    first, node, value = items[0], node_at((*base, *path)), items[0]["input"]
    expectation = "; ".join(dict.fromkeys(filter(None, map(_words, items))))
    if _is_key(first):
        words = f"the key should be {expectation}" if expectation.startswith("a ") else expectation
        is_arrow = len(path) == 2 and path[0] == "flows" and "->" in str(path[-1])
        return f": {words}{_for_example('NAME', node) if is_arrow else ''}"
    if first["type"] == "missing":
        return f" is missing{_for_example(path[-1], node)}"
    if value is None:
        is_needed = is_required((*base, *path))
        is_block = definition_of(node) or values_of(node) is not None
        remedy = "write its keys indented below it" if is_block else "write a value"
        return f" is empty: {remedy}{'' if is_needed else ' or remove the key'}{_for_example(path[-1], node)}"
    if expectation:
        shown = _value_text(path, value)
        if expectation.startswith("a "):
            return f" should be {expectation}" + (f", not {shown}" if shown else "")
        return f": {expectation}" + (f" (got {shown})" if shown and shown.strip("'") not in expectation else "")
    if isinstance(value, str | list | dict) and not value:
        return f" is empty: write a value{_for_example(path[-1], node)}"
    if limit := next((item["ctx"]["le"] for item in items if item["type"] == "less_than_equal"), None):
        return f" should be at most {limit}, not {value}"
    if isinstance(value, str) and any(item["type"] == "greater_than" for item in items):
        return f" should be more than {first['ctx']['gt']:g}, not {_value_text(path, value)}"
    if first["type"] in ("too_short", "too_long"):
        return f" has {first['ctx']['actual_length']} entries{_for_example(path[-1], node)}"
    return f" should be {_kinds(node)}, not {_written_text(path, value)}{_remedy(path, node, value)}"


def _words(item: _Error) -> str:
    """Return what a validator says, or the words of its pattern; what completes "should be" starts with an article."""
    if item["type"] == "value_error":
        return str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "string_pattern_mismatch" and (item["input"] or _is_key(item)):
        return SIGNS[item["ctx"]["pattern"]]
    return f"a name of at most {item['ctx']['max_length']} characters" if item["type"] == "string_too_long" else ""


def _kinds(node: Node) -> str:
    words = in_words(node, lambda name: "settings", lambda word: f"'{word}'")
    return re.sub(r"(^| or )(?=list|map|whole number|number)", r"\1a ", words)


def _written_text(path: PathKey, value: object) -> str:
    shown = _value_text(path, value)
    if isinstance(value, bool):
        return shown
    if isinstance(value, int | float):
        return f"the number {shown}" if shown else "a number"
    kinds: dict[type, str] = {dict: "a map", list: "a list", str: shown or "text"}
    return kinds.get(type(value), f"a {type(value).__name__}")


def _value_text(path: PathKey, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    # `user:password@host` in an address is refused, and must not be repeated while doing so.
    words = [*map(str, path), str(value)]
    is_hidden = (
        any(map(is_secret, words)) or "@" in str(value) or not {"auth", "headers", "proxy", "security"}.isdisjoint(path)
    )
    return repr(value) if isinstance(value, str | int | float) and not is_hidden and len(str(value)) < _SHOWN else ""


# --- what to write ----------------------------------------------------------------------------------------------------

_SWITCHES = {
    **dict.fromkeys(("true", "yes", "on", "enabled"), True),
    **dict.fromkeys(("false", "no", "off", "disabled"), False),
}


def _remedy(path: PathKey, node: Node, value: object) -> str:
    """Return what to write for a value of the wrong kind: the same value where it belongs, else an example."""
    key, kinds = path[-1], list(choices(node))
    if isinstance(value, dict) and any(re.match(r"(file|env|dir|secret)\w*:", str(name)) for name in value):
        return f': a placeholder begins with a dollar sign and needs quotes, {key}: "${{…}}"'
    if isinstance(value, dict) and any(kind.get("title") == "Kafka value" for kind in kinds):
        return f": Kafka's keys have dots, write {' and '.join(name + ': …' for name in _flat(str(key), value))}"
    if all(_is_text(kind) for kind in kinds) and not isinstance(value, dict | list):
        return ": write it in quotes"
    if isinstance(value, str) and re.search(r"[\w-]\s+=\s|[\w-]:[\[{\"']", value):
        return f": write a colon and a blank between key and value{_for_example(key, node)}"
    meant = None if _holds_secret(path, value) else _guess_value(node, kinds, value)
    return f": write {_yaml(key, meant)}" if meant is not None and len(str(meant)) < _SHOWN else _for_example(key, node)


def _guess_value(node: Node, kinds: Sequence[Node], value: object) -> object:  # noqa: PLR0911 - one return a kind
    """Return a value of the right kind that somebody who wrote this one probably meant; None if none is likely."""
    for kind in kinds:
        words = {_bare(literal): literal for literal in [*kind.get("enum", ()), *filter(None, [kind.get("const")])]}
        if isinstance(value, str) and (near := nearest(_bare(value), words, 0.8)):
            return words[near[0]]
        if kind.get("type") == "boolean" and str(value).lower() in _SWITCHES:
            return _SWITCHES[str(value).lower()]
        if kind.get("type") == "array" and kind["items"].get("type") == "string" and isinstance(value, str):
            parts = re.split(r"\s*(?:->|,)\s*", value) if kind.get("minItems", 1) > 1 else [value]
            if literals := kind["items"].get("enum"):
                near = nearest(_bare(value), literals, 0.8)
                return near or None
            return parts if len(parts) >= kind.get("minItems", 1) else None
        if kind.get("type") == "object" and "properties" not in kind and isinstance(value, str | list):
            return _as_map(value)
    if isinstance(value, bool):
        return None
    for definition in _definitions(node):
        model, main = getattr(models, definition), next(iter(example_of(definition)))
        try:
            model.model_validate({main: value})
        except ValidationError as error:
            if any(item["loc"][:1] == (main,) for item in error.errors()):
                continue
        return {main: value}
    return None


def _as_map(value: str | list[dict[str, object]]) -> dict[str, object] | None:
    if isinstance(value, str):
        parts = [part.split("=") for part in re.split(r"[,;\s]+", value)]
        return {part[0]: part[1] for part in parts} if all(len(part) == 2 for part in parts) else None
    is_list_of_pairs = all(isinstance(part, dict) and len(part) == 1 for part in value)
    return {key: below for part in value for key, below in part.items()} if is_list_of_pairs else None


def _for_example(key: Key, node: Node) -> str:
    example = _example(node)
    return "" if example is None else f"; for example {_yaml(key, example)}"


def _example(node: Node) -> object:
    if definition := definition_of(node):
        return example_of(definition)
    if "examples" in node:
        return node["examples"][0]
    for choice in node.get("anyOf", ()):
        if (example := _example(choice)) is not None:
            return example
    for kind, below in (("list", node.get("items")), ("map", values_of(node))):
        if isinstance(below, Mapping) and (example := _example(below)) is not None:
            return [example] if kind == "list" else {"NAME": example}
    return None


def _yaml(key: Key, value: object) -> str:
    """Return `key: value` as it is written on one line of YAML; of an entry of a list only the value."""
    text = yaml.safe_dump([{key: value}], default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return text.strip()[2:-2] if isinstance(key, str) else text.strip()[2:-2].partition(": ")[2]


def _bare(value: object) -> str:
    return re.sub(r"[^a-z0-9]", "", str(value).lower())


def _is_text(choice: Node) -> bool:
    kind = choice.get("type")
    if "enum" in choice or "const" in choice:
        return False
    return kind in ("string", "null") or (isinstance(kind, list) and "string" in kind)


def _flat(key: str, value: object) -> Iterator[str]:
    for name in [key] if not isinstance(value, dict) else ():
        yield name
    for name, below in value.items() if isinstance(value, dict) else ():
        yield from _flat(f"{key}.{name}", below)


def _holds_secret(path: PathKey, value: object) -> bool:
    if isinstance(value, dict):
        return any(_holds_secret((*path, key), below) for key, below in value.items())
    if isinstance(value, list):
        return any(_holds_secret(path, below) for below in value)
    return not _value_text(path, value) and not isinstance(value, bool)


# --- keys -------------------------------------------------------------------------------------------------------------

# What people call a key elsewhere -> its name here.
_ALSO_CALLED = {
    **dict.fromkeys(("brokers", "servers", "hosts", "address", "addresses", "bootstrap"), "bootstrap_servers"),
    **dict.fromkeys(("from", "src"), "sources"),
    **dict.fromkeys(("to", "dst", "destination"), "targets"),
    **dict.fromkeys(("rest_url", "endpoint", "host", "address", "rest"), "url"),
    **dict.fromkeys(("latency", "round_trip"), "rtt"),
    **dict.fromkeys(("whitelist", "allowlist"), "include"),
    **dict.fromkeys(("blacklist", "denylist"), "exclude"),
}


def _explain_unknown(path: PathKey) -> tuple[str, str]:  # noqa: PLR0911 - one return a kind of key
    """Return the key that was meant ("" where none is likely) and what to write instead of an unknown one."""
    key, above = str(path[-1]), node_at(path[:-1])
    known_names = sorted({name for choice in choices(above) for name in choice.get("properties", ())})
    if len(path) == 1:
        known_names = [name for name in known_names if name not in models.OVERRIDE_KEYS]  # they are not written by hand
    same = next((name for name in known_names if _bare(name) == _bare(key)), _ALSO_CALLED.get(key))
    if same in known_names:
        return str(same), f"write '{same}'"
    if "source_connector" in known_names and (advice := _of_connector(key)):
        return "", advice
    if "bootstrap_servers" in known_names and (advice := _of_security(key)):
        return "", advice
    if "." in key and len(path) == 1:
        return "", "keys of mm2.properties do not belong here: declare clusters: and flows:"
    if "." in key and "source_connector" in known_names:
        clients = [name for name in known_names if name.endswith(("_consumer", "_producer", "_admin"))]
        connectors = [name for name in known_names if name.endswith("_connector")]
        return (
            "",
            (
                f"write it under the client that needs it ({', '.join(clients)}) or the connector"
                f" ({', '.join(connectors)})"
            ),
        )
    if near := nearest(key, known_names, 0.85):
        return near[0], f"did you mean '{near[0]}'?"
    if elsewhere := _elsewhere(path):
        return "", elsewhere
    near = nearest(key, known_names, 0.55)
    return (near[0], f"did you mean '{near[0]}'?") if near else ("", f"known here: {', '.join(known_names)}")


def _elsewhere(path: PathKey) -> str:
    """Return where a key belongs that is right at other places of the tree: below this one, if it is there."""
    homes = {
        name: where
        for name, where in definition_paths().items()
        if path[-1] in properties_of(name) and not where.startswith(models.OVERRIDE_KEYS)  # mm2mgr writes it
    }
    for name in _definitions(node_at(path[:-1])):
        for key, below in properties_of(name).items():
            if any(path[-1] in properties_of(inner) for inner in _definitions(below)):
                return f"write it under {key}:"
    here = [definition_paths()[name] for name in _definitions(node_at(path[:-1]))]
    for where in homes.values():
        if below := next((where.removeprefix(f"{place}.") for place in here if where.startswith(f"{place}.")), ""):
            return f"write it under {below}:"
    return f"it belongs under {' or '.join(list(homes.values())[:2])}" if homes else ""


def _definitions(node: Node) -> list[str]:
    return [name for branch in (node, *node.get("anyOf", ())) if (name := definition_of(branch))]


def _of_connector(key: str) -> str:
    if key in scalars.OWNED_CONNECTOR_KEYS:
        return scalars.OWNED_CONNECTOR_KEYS[key]
    for prefix, block in scalars.PREFIX_BLOCKS.items():
        if key.startswith(prefix) and key not in scalars.CONNECTOR_KEYS_LIKE_PREFIXES:
            return f"write {key.removeprefix(prefix)} under {block}"
    return ""


def _of_security(key: str) -> str:
    if key in scalars.LIBRDKAFKA_KEYS:
        return scalars.LIBRDKAFKA_KEYS[key]
    if key in scalars.SECURITY_KEYS:
        return f"write security: {{{key}: …}}"
    return ""
