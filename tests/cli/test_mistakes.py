"""What is said about mistakes on the command line: no phrase of a library, and what to write."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mistakes import cases, check
from tests.spec.trees import BASE, FLOW, write

from .command import Command, environment

FILES = Path(__file__).parent / "mistakes"


@pytest.mark.parametrize("name", cases(FILES))
def test_a_slip_on_the_command_line_is_answered_with_what_to_write(mm2mgr: Command, name: str) -> None:
    write(mm2mgr.tree, x=BASE.replace("  w:", "  main:") + FLOW.replace("  f:", "  orders:"))
    arguments = shlex.split(name.partition(": ")[2])
    is_name = arguments[-1] in {"mian", "none.json", "none.properties", "oders", "linger_ms"}
    said = mm2mgr(*arguments, code=1 if is_name else 64)
    assert said.out == ""
    lines = said.err.splitlines()
    check(FILES, name, [line for line in lines if line and not line.startswith(("Usage:", "Try "))])


@pytest.mark.parametrize("words", [("plan",), ("-f", "TREE", "plan")], ids=" ".join)
def test_a_working_folder_that_may_not_be_entered_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    """As in a container whose user is another one: ./templates would change what is rendered, so nothing is guessed."""
    tree, locked = write(tmp_path / "tree", x=BASE + FLOW), tmp_path / "locked"
    locked.mkdir()
    as_other: tuple[str, ...] = ()
    if os.getuid() == 0:  # root enters every folder, unless that right is taken from it
        if not (setpriv := shutil.which("setpriv")):
            pytest.skip("no setpriv, and this is root")
        as_other = (setpriv, "--bounding-set=-dac_override,-dac_read_search")
        os.chown(locked, 65534, -1)
    arguments = [str(tree) if word == "TREE" else word for word in words]
    command = [*as_other, sys.executable, "-m", "mm2mgr", *arguments]
    try:
        enter = f"cd {shlex.quote(str(locked))} && chmod 000 . && exec {shlex.join(command)}"
        run = subprocess.run(
            ["sh", "-c", enter], check=False, env=environment(tmp_path), capture_output=True, text=True, timeout=60
        )
    finally:
        locked.chmod(0o700)
    assert f"the working folder {locked} cannot be read: Permission denied" in run.stderr
    assert "hint: start mm2mgr in a folder that user" in run.stderr
    assert run.returncode == 1
