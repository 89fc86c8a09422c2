"""Every command that README, tutorial and how-tos show: mm2mgr takes its options, arguments and values, and a walk runs it or says why not."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from mm2mgr.cli import cli
from tests.docs.commands import NOT_RUN, ON_AN_ESTATE, PAGES, WALKS, commands_of, why_not_run
from tests.docs.test_documents import DOCUMENTS

CALL = re.compile(r"""(?:^|[\s/;&])mm2mgr ((?:'[^']*'|"[^"]*"|[^|;&<>'"])+)""")
OF_THE_SHELL = re.compile(r"^(?:docker|useradd|cp|install) ")  # `mm2mgr` is a name there


def calls_of(command: str) -> list[list[str]]:
    """Return the words after `mm2mgr` of a command line of the shell, for each time that it is called there."""
    if OF_THE_SHELL.match(command):
        return []
    return [shlex.split(match[1].removesuffix("2").strip()) for match in CALL.finditer(command)]


def refusal(words: list[str]) -> str:
    """Return why the command line would not take these words, by the parser that it has itself, or an empty text."""
    try:
        context = cli.make_context("mm2mgr", list(words))
        while isinstance(context.command, click.Group):
            name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
            assert command is not None
            context = command.make_context(name, rest, parent=context)
    except click.exceptions.Exit:  # --version, --help
        return ""
    except click.ClickException as error:
        return error.format_message()
    return ""


@pytest.fixture
def _files_of_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that options name must exist."""
    monkeypatch.chdir(tmp_path)
    for name in ("password", "token", "tls.crt", "tls.key"):
        Path(name).touch()


@pytest.mark.usefixtures("_files_of_the_pages")
@pytest.mark.parametrize("name", [name for name, text in DOCUMENTS.items() if commands_of(text)])
def test_the_command_line_takes_every_command_that_is_shown(name: str) -> None:
    refused = [
        (command, why)
        for command in commands_of(DOCUMENTS[name])
        for words in calls_of(command)
        if (why := refusal(words))
    ]
    assert refused == []


def test_every_page_with_commands_is_walked() -> None:
    shown = {name for name in PAGES if any(not why_not_run(command) for command in commands_of(DOCUMENTS[name]))}
    assert shown == {*WALKS, *ON_AN_ESTATE}


def test_what_is_not_run_is_shown_somewhere() -> None:
    shown = [command for name in PAGES for command in commands_of(DOCUMENTS[name])]
    assert [beginning for beginning in NOT_RUN if not any(command.startswith(beginning) for command in shown)] == []


@pytest.mark.parametrize(
    "command",
    [
        "mm2mgr describe",
        "mm2mgr plan --out",
        "mm2mgr describe a b",
        "mm2mgr lag -o csv",
        "mm2mgr plan --ful",
        "mm2mgr simulate --traffic much",
        "mm2mgr sandbox left",
    ],
)
def test_a_command_that_would_be_refused_is_seen(command: str) -> None:
    assert [why for words in calls_of(command) if (why := refusal(words))]


def test_commands_of_blocks_are_those_of_the_shell() -> None:
    page = (
        "```sh\n   mm2mgr plan \\\n  --full   # all\n```\n   ```console\n   $ mm2mgr lint | tail\n   3 errors\n   ```\n"
    )
    assert commands_of(page) == ["mm2mgr plan  --full", "mm2mgr lint | tail"]
    assert calls_of(commands_of(page)[1]) == [["lint"]]
