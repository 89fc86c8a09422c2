"""Options and parameter types that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

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


class StoreLocation(click.Path):
    """A folder, or a URI of object storage without credentials in it."""

    name = "folder or URI"

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from mm2mgr.samples.schema import is_remote, store_of

        if not is_remote(value):
            return super().convert(value, param, ctx)
        try:
            return store_of(value)
        except ValueError as error:
            self.fail(f"the URI {error}", param, ctx)
