"""Values as JSON: the only way in which results become documents, for `-o json`, files, pages and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter, methodcaller
from pathlib import PurePath
from types import NoneType
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object that was read; whoever reads it judges what its keys hold."""


def to_json(value: object) -> Any:
    """Return a value as plain JSON: a dataclass as an object with its fields, a tuple as a list, a path as text.

    `json_keys` of a class names its keys in their order instead, such as `"name seconds topic=partition.topic"`: each a
    field or a property, or behind `=` where it is read. A class whose document is no list of keys has `to_dict`.
    """
    return _writer(value.__class__)(value)  # type: ignore[arg-type]  # mypy reads __hash__ of the instances


@cache  # by class: a table of lag has a hundred thousand rows
def _writer(kind: type) -> Callable[[Any], Any]:
    if issubclass(kind, str | int | float | NoneType):
        return lambda value: value
    if hasattr(kind, "to_dict"):
        return methodcaller("to_dict")
    if issubclass(kind, Mapping):
        return lambda value: {str(key): to_json(below) for key, below in value.items()}
    names = getattr(kind, "json_keys", "").split()
    if not names and is_dataclass(kind):
        names = [field.name for field in fields(kind)]
    if names or is_dataclass(kind):
        parts = [name.partition("=") for name in names]
        keys = [(key, attrgetter(path or key)) for key, _, path in parts]
        return lambda value: {key: to_json(read(value)) for key, read in keys}
    if issubclass(kind, list | tuple):
        return lambda value: [to_json(below) for below in value]
    if issubclass(kind, PurePath):
        return str
    raise TypeError(f"{kind.__name__} has no JSON")
