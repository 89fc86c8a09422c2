"""What every command starts from: the tree, expanded and rendered when first asked for. Imports lazily."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from mm2mgr.render import Connector
    from mm2mgr.spec.loader import Spec
    from mm2mgr.topology import Flow, Topology

_MOST_SECONDS = 366 * 86_400.0
Decorated = TypeVar("Decorated", bound=Callable[..., object])


def output_option(command: Decorated) -> Decorated:
    """Add `-o text|json`."""
    option = click.option(
        "--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Result format."
    )
    return option(command)


class Number(click.FloatRange):
    """A number in a range. For Python nan is in every range, and infinity in those without an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a number that can be computed with", param, ctx)
        return number


class Seconds(Number):
    """Seconds, of which no clock takes more than it can count."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = super().convert(value, param, ctx)
        if seconds > _MOST_SECONDS:
            self.fail(f"{value} is more than a year of seconds", param, ctx)
        return seconds


@dataclass(frozen=True)
class Estate:
    """The files the user named, and what comes of them."""

    files: tuple[Path, ...]
    own_templates: Path | None = None
    named_by_option: bool = False
    """True when --clusters or --templates stood on the command line."""

    @cached_property
    def spec(self) -> Spec:
        from mm2mgr.spec.loader import load

        return load(self.files)

    @cached_property
    def topology(self) -> Topology:
        from mm2mgr.expand import expand

        return expand(self.spec)

    @cached_property
    def templates(self) -> Path | None:
        """The user's templates: as named, else ./templates if it is there."""
        return self.own_templates or (Path("templates") if Path("templates").is_dir() else None)

    @cached_property
    def connectors(self) -> tuple[Connector, ...]:
        from mm2mgr.render import render

        return render(self.topology, self.templates)

    def flows(self, names: Sequence[str]) -> list[Flow]:
        """Return the flows people mean by names (id, pair or declared name); all of them for no names."""
        if not names:
            return list(self.topology.flows)
        return list({flow.id: flow for name in names for flow in self.topology.select(name)}.values())

    def only(self, names: Sequence[str]) -> list[str] | None:
        """Return the ids of the named flows, or None for no names."""
        return [flow.id for flow in self.flows(names)] if names else None
