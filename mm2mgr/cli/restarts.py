"""The options of `plan` and `apply` that let restarts for fewer tasks wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mm2mgr.cli.load import Duration
from mm2mgr.cli.options import Decorated

if TYPE_CHECKING:
    from mm2mgr.reconcile.restarts import RestartRules


class Hours(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    """A span of hours of the day, such as 22-5."""

    name = "hours"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        first, _, last = str(value).partition("-")
        if not (first.isdecimal() and last.isdecimal() and int(first) < 24 and int(last) <= 24):
            self.fail(f"{value!r} is not a span of hours such as 22-5", param, ctx)
        return int(first), int(last) % 24


def restart_options(command: Decorated) -> Decorated:
    """Add `--cool-down`, `--off-peak` and `--move-budget`."""
    for option in (
        click.option(
            "--move-budget",
            type=click.IntRange(0),
            metavar="N",
            help="Apply steps down of `size` that move up to N partitions together; the others wait.",
        ),
        click.option(
            "--off-peak", type=Hours(), help="Apply steps down of `size` only in these hours, UTC, such as 22-5."
        ),
        click.option(
            "--cool-down",
            type=Duration(),
            default="1d",
            show_default=True,
            help="Apply a step down of `size` so long after its number changed.",
        ),
    ):
        command = option(command)
    return command


def restart_rules(cool_down: float, off_peak: tuple[int, int] | None, move_budget: int | None) -> RestartRules:
    """Return the rules that the options say."""
    from mm2mgr.reconcile.restarts import OffPeak, RestartRules

    return RestartRules(cool_down, OffPeak(*off_peak) if off_peak else None, move_budget)
