"""Config values with their origin, which `render --origins` shows."""

from __future__ import annotations

from typing import Literal, NamedTuple

OriginKind = Literal["spec", "override", "default", "template"]


class Origin(NamedTuple):
    """The origin of a value: a declared line, a reviewed override, a default of mm2mgr (with its reason) or a template line."""

    kind: OriginKind
    where: str

    def __str__(self) -> str:
        return f"{self.kind} {self.where}"


class Text(str):
    """A string with an origin; any string operation on it gives a plain str again."""

    origin: Origin
    __slots__ = ("origin",)

    def __new__(cls, value: str, origin: Origin) -> Text:
        text = super().__new__(cls, value)
        text.origin = origin
        return text
