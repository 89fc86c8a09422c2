"""Holds the README and the help to the commands: what is documented exists, and what exists is documented."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mm2mgr.cli import cli

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
GLOBAL_OPTIONS_WITH_A_VALUE = {"--clusters", "-f", "--templates"}


def commands(group: click.Command = cli, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Return every command below a group with its words, such as `sandbox up`."""
    for word, command in getattr(group, "commands", {}).items():
        full = f"{name} {word}".strip()
        yield full, command
        yield from commands(command, full)


COMMANDS = dict(commands())


def mentions() -> list[list[str]]:
    """Return the words after `mm2mgr` of every command line in the README, in code blocks and in backticks."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL))
    calls = [match[1] for line in lines for match in re.finditer(r"(?:^|[\s/;&])mm2mgr ([^#|;&]+)", line)]
    return [shlex.split(call.replace("…", "")) for call in calls]


def command_of(words: list[str]) -> tuple[str, list[str]]:
    """Return the command that the words call, past the global options, and what is left of them."""
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in GLOBAL_OPTIONS_WITH_A_VALUE else words[1:]
    for length in (3, 2, 1):
        name = " ".join(words[:length])
        if len(words) >= length and name in COMMANDS:
            return name, words[length:]
    return "", words


def test_every_command_is_in_the_readme() -> None:
    documented = {command_of(words)[0] for words in mentions()}
    wanted = {name for name, command in COMMANDS.items() if not isinstance(command, click.Group) and not command.hidden}
    assert wanted - documented == set()


def test_every_command_line_in_the_readme_exists() -> None:
    unknown = []
    for words in mentions():
        name, rest = command_of(words)
        known = {"-h", "--help", *(option for each in COMMANDS[name].params for option in each.opts)} if name else set()
        options = {word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        is_no_command = bool(rest) and (not name or isinstance(COMMANDS[name], click.Group))
        if is_no_command or not options <= known:
            unknown.append("mm2mgr " + " ".join(words))
    assert unknown == []


def test_every_make_target_in_the_readme_exists() -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", README, re.MULTILINE))
    targets = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("name", [name for name, each in COMMANDS.items() if not isinstance(each, click.Group)])
def test_every_help_has_an_example_of_its_command(name: str) -> None:
    command = COMMANDS[name]
    text = command.get_help(click.Context(command, info_name=f"mm2mgr {name}"))
    assert "Example:" in text
    assert re.search(rf"mm2mgr [^\n]*\b{name.rsplit(maxsplit=1)[-1]}\b", text.partition("Example:")[2])


def test_the_checks_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def readme(text: str) -> None:
        monkeypatch.setattr(sys.modules[__name__], "README", text)

    readme(
        "Run `mm2mgr -f tree plan --full`, or:\n```sh\nmm2mgr sandbox up && mm2mgr status --output json  # now\n```\n"
    )
    assert [command_of(words)[0] for words in mentions()] == ["sandbox up", "status", "plan"]
    test_every_command_line_in_the_readme_exists()
    for wrong in ("`mm2mgr plna`", "`mm2mgr plan --ful`", "```\ncd x && mm2mgr sandbox left\n```"):
        readme(wrong)
        with pytest.raises(AssertionError):
            test_every_command_line_in_the_readme_exists()
