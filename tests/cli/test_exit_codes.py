"""Exit codes and durations: one table and one parser for every command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from mm2mgr.cli import cli
from mm2mgr.cli.options import Duration, DurationWithUnit
from mm2mgr.errors import COMMAND_CODES, ExitCode, exit_codes
from tests.cli.command import Command


def commands(group: click.Group = cli, above: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


COMMANDS = dict(commands())
DURATIONS = [
    (name, option)
    for name, command in COMMANDS.items()
    for option in command.params
    if isinstance(option.type, DurationWithUnit)
]


def test_the_table_names_only_commands() -> None:
    assert COMMAND_CODES.keys() <= COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_the_exit_codes_of_the_command(mm2mgr: Command, name: str) -> None:
    _, _, shown = mm2mgr(*name.split(), "--help").out.partition("\nExit codes:\n")
    numbers = [int(line.split()[0]) for line in shown.splitlines() if line[2:3].isdecimal()]
    assert numbers == list(exit_codes(name))
    assert {ExitCode.YES, ExitCode.NO, ExitCode.USAGE, ExitCode.BUG, ExitCode.INTERRUPTED} <= set(numbers)


def test_every_option_that_takes_a_time_takes_the_same_durations() -> None:
    times = {"timeout", "wait", "watch", "every", "since", "window", "interval", "duration", "pause_between", "seconds"}
    assert [
        (name, option.name)
        for name, command in COMMANDS.items()
        for option in command.params
        if option.name in times
        and (name, option) not in DURATIONS
        and not (isinstance(option, click.Option) and option.is_flag)
    ] == []
    for _, option in DURATIONS:
        units = {"20min": 1200.0, "20m": 1200.0, "1200s": 1200.0, "1200000ms": 1200.0, "0.5h": 1800.0}
        if option.name == "seconds":
            units = {"20s": 20.0, "0.5min": 30.0}
        for text, seconds in units.items():
            assert option.type.convert(text, option, None) == pytest.approx(seconds)
        if isinstance(option.type, Duration):
            assert option.type.convert("20", option, None) == 20.0
        else:
            with pytest.raises(click.BadParameter, match="a duration with its unit, 20s or 20ms"):
                option.type.convert("20", option, None)
        with pytest.raises(click.BadParameter, match="should be a duration such as"):
            option.type.convert("5 weeks", option, None)


def test_wrong_usage_is_never_taken_for_a_difference(mm2mgr: Command) -> None:
    for command in (
        "drift",
        "plan --detailed-exitcode",
        "size --check",
        "link read --check",
        "reconcile --once --report-only",
    ):
        mm2mgr(*command.split(), "--no-such-option", code=ExitCode.USAGE)
