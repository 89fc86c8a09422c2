"""What is said about mistakes on the command line: no phrase of a library, and what to write."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.mistakes import cases, check
from tests.spec.trees import BASE, FLOW, write

from .command import Command

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
