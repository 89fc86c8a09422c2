"""Values as JSON and back, by the types of their fields: dataclasses, named tuples, mappings, sequences and plain values.

What a dataclass keeps out of its repr may hold secrets, and is masked on the way out. A field that does not compare is
left out.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from mm2mgr.partitions import TopicPartition
from mm2mgr.secrets import mask_config, mask_text

_PLAIN = (str, int, float, bool)
_HINTS: dict[Any, dict[str, Any]] = {}


def to_stored(value: Any, *, is_secret: bool = False) -> Any:  # noqa: PLR0911  one per shape
    """Return a value as JSON takes it."""
    if value is None or isinstance(value, _PLAIN):
        return mask_text(value) if is_secret and isinstance(value, str) else value
    if is_dataclass(value):
        stored = [field for field in fields(value) if field.compare]
        return {field.name: to_stored(getattr(value, field.name), is_secret=not field.repr) for field in stored}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            value = mask_config(value) if is_secret else value
            return {key: to_stored(part) for key, part in value.items()}
        if all(isinstance(key, TopicPartition) for key in value):  # a name is written once
            topics: dict[str, list[Any]] = {}
            for (topic, number), part in value.items():
                topics.setdefault(topic, []).append([number, to_stored(part)])
            return topics
        return [[to_stored(key), to_stored(part)] for key, part in value.items()]
    if isinstance(value, frozenset):
        return sorted((to_stored(part) for part in value), key=str)
    return [to_stored(part) for part in value]


def from_stored(type_: Any, data: Any) -> Any:  # noqa: PLR0911  one per shape
    """Return the value of a type; TypeError, KeyError or ValueError where the data are none."""
    origin, parts = get_origin(type_), get_args(type_)
    if type_ is Any or origin is Literal:
        return data
    if type_ in _PLAIN or type_ is type(None):
        return _plain(type_, data)
    if origin in {Union, types.UnionType}:
        return None if data is None else from_stored(next(part for part in parts if part is not type(None)), data)
    if is_dataclass(type_):
        hints = hints_of(type_)
        stored = [field.name for field in fields(type_) if field.compare and field.init]
        return type_(**{name: from_stored(hints[name], data[name]) for name in stored})  # type: ignore[operator]
    if isinstance(type_, type) and issubclass(type_, tuple) and hasattr(type_, "_fields"):
        hints = hints_of(type_)
        return type_(*(from_stored(hints[name], part) for name, part in zip(type_._fields, _list(data), strict=True)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if parts[0] is TopicPartition:
            return {
                from_stored(TopicPartition, [topic, number]): from_stored(parts[1], part)
                for topic, numbers in data.items()
                for number, part in _list(numbers)
            }
        pairs = data.items() if isinstance(data, dict) else _list(data)
        return {from_stored(parts[0], key): from_stored(parts[1], part) for key, part in pairs}
    if origin is tuple and parts[-1] is not Ellipsis:
        return tuple(from_stored(part, item) for part, item in zip(parts, _list(data), strict=True))
    if origin in {tuple, frozenset}:
        return origin(from_stored(parts[0], part) for part in _list(data))
    raise TypeError(f"no way to read {type_}")


def _plain(type_: Any, data: Any) -> Any:
    if not isinstance(data, (int, float) if type_ is float else type_) or (
        isinstance(data, bool) and type_ is not bool
    ):
        raise TypeError(f"{type_.__name__} expected")
    return data


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise TypeError("a list expected")
    return data


def hints_of(type_: Any) -> dict[str, Any]:
    """Return the types of a class's fields."""
    if type_ not in _HINTS:
        _HINTS[type_] = get_type_hints(type_)
    return _HINTS[type_]
