"""Completion: the names that a shell is offered come from the tree, as the shell's own protocol and a real bash get them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mm2mgr.cli import cli
from mm2mgr.cli.completion import NAMES
from mm2mgr.cli.options import COMMANDS
from mm2mgr.lint.rules import BY_ID
from tests.spec.trees import ESTATE, write

from .command import DEADLINE_SECONDS, Command, environment

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """Return what bash is offered for a line; its last word is the one to complete."""

    def offered(line: str, shell: str = "bash") -> list[str]:
        monkeypatch.setenv("_MM2MGR_COMPLETE", f"{shell}_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        said = mm2mgr()
        assert said.err == ""
        return [each.removeprefix("plain,") for each in said.lines if each]

    return offered


def test_names_come_from_the_tree(mm2mgr: Command, complete: Complete) -> None:
    shutil.copytree(ESTATE, mm2mgr.tree)
    pairs = ("dc1-logging->agg-east", "dc2-logging->agg-east")
    found = complete("mm2mgr describe logg")
    assert found[0] == "logging"
    assert {f"'logging:{pair}'" for pair in pairs} < set(found)
    for command in ("plan", "apply --flow", "plan --flow", "status", "size", "render", "check", "explain"):
        assert "metrics" in complete(f"mm2mgr {command} metr"), command
    assert complete("mm2mgr lint --connect ") == ["east", "west"]
    assert complete("mm2mgr sample --cluster dc2-") == ["dc2-clickstream", "dc2-logging", "dc2-metrics"]
    assert complete("mm2mgr simulate --lose-source dc2-l") == ["dc2-logging"]
    assert complete("mm2mgr lint --ignore wrong-k") == complete("mm2mgr explain wrong-k") == ["wrong-kafka"]
    assert complete("mm2mgr lint --ignore ") == list(BY_ID)


def test_inside_quotes_that_were_typed_no_more_are_added(mm2mgr: Command, complete: Complete) -> None:
    shutil.copytree(ESTATE, mm2mgr.tree)
    assert complete("mm2mgr describe 'logging:dc3") == ["logging:dc3-logging->agg-east"]


def test_the_tree_is_the_one_on_the_line(mm2mgr: Command, complete: Complete) -> None:
    shutil.copytree(ESTATE, mm2mgr.folder / "elsewhere")
    assert complete("mm2mgr describe metr") == []
    assert "metrics" in complete("mm2mgr --clusters elsewhere describe metr")


@pytest.mark.parametrize("tree", ["flows: [", "owner: t\nflows: {f: {sources: [nowhere]}}\n", ""])
def test_a_broken_tree_offers_nothing_and_says_nothing(mm2mgr: Command, complete: Complete, tree: str) -> None:
    write(mm2mgr.tree, x=tree)
    assert complete("mm2mgr describe ") == []
    assert complete("mm2mgr sta") == ["status"]


def test_every_name_is_of_a_parameter_and_every_command_in_one_group() -> None:
    grouped = [command.name for commands in COMMANDS.values() for _, command in commands]
    assert sorted(grouped, key=str) == sorted(cli.commands)
    assert set(NAMES) <= {parameter.name for command in cli.commands.values() for parameter in command.params}


def test_summaries_fit_into_80_columns() -> None:
    widest = max(map(len, cli.commands))
    for name, command in cli.commands.items():
        assert 2 + widest + 2 + len(command.get_short_help_str(limit=200)) <= 80, name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_the_command(mm2mgr: Command, shell: str) -> None:
    script = mm2mgr("completion", shell).out
    assert f"_MM2MGR_COMPLETE={shell}_complete" in script
    assert "\\t" not in script or shell != "bash"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_a_real_bash_completes(mm2mgr: Command, tmp_path: Path) -> None:
    shutil.copytree(ESTATE, mm2mgr.tree)
    (tmp_path / "bin").mkdir()
    (program := tmp_path / "bin" / "mm2mgr").write_text(f'#!/bin/sh\nexec {sys.executable} -m mm2mgr "$@"\n')
    program.chmod(0o755)
    (script := tmp_path / "completion.bash").write_text(mm2mgr("completion", "bash").out)
    env = environment(mm2mgr.folder)
    env["PATH"] = f"{program.parent}:{env['PATH']}"
    asks = f'source {script}; COMP_WORDS=(mm2mgr describe metrics:dc1); COMP_CWORD=2; _mm2mgr_completion mm2mgr; printf "%s\\n" "${{COMPREPLY[@]}}"'
    run = subprocess.run(
        ["bash", "--norc", "-c", asks],
        cwd=mm2mgr.folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    assert run.stdout.split() == ["'metrics:dc1-metrics->agg-east'", "'metrics:dc1-metrics->agg-west'"]
    assert run.stderr == ""
