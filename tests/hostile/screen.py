"""What a person sees: the command runs with a terminal of some width as stdout and stderr, drawn by pyte.

In: arguments of the command. Out: what each of the two terminals shows, as rows, and the text that it got.
"""

from __future__ import annotations

import io
import re
import sys
from dataclasses import dataclass
from functools import cached_property

import pyte
import pytest

from mm2mgr.cli import main
from mm2mgr.output import console
from tests.cli.command import Command

_ROWS = 1500
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class _Tty(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Screen:
    """One stream on a terminal."""

    text: str
    width: int

    @cached_property
    def drawn(self) -> pyte.Screen:
        screen = pyte.Screen(self.width, _ROWS)
        pyte.Stream(screen).feed(self.text.replace("\n", "\r\n"))
        return screen

    @cached_property
    def rows(self) -> list[str]:
        return [row.rstrip() for row in self.drawn.display]

    @property
    def plain(self) -> str:
        """What was written, without colours."""
        return _COLOUR.sub("", self.text)

    @property
    def letters(self) -> str:
        """All that is drawn, without blanks: the same as was written, or something was erased, moved or hidden."""
        return re.sub(r"\s", "", "".join(self.rows))

    @property
    def backgrounds(self) -> set[str]:
        """The colours behind the characters; ours never set one."""
        return {cell.bg for line in self.drawn.buffer.values() for cell in line.values()}

    @property
    def orders(self) -> str:
        """What steers the terminal and is not a colour."""
        return "".join(re.findall(r"[^\n\x20-\x7e\u00a1-\U0010ffff]", self.plain))


@dataclass(frozen=True)
class Seen:
    code: int
    out: Screen
    err: Screen


def on_screen(command: Command, width: int, *arguments: str) -> Seen:
    """Run `mm2mgr ARGUMENTS` in this process, in front of terminals of some width."""
    out, err = _Tty(), _Tty()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["mm2mgr", *arguments])
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TERM", "xterm-256color")
        console._console.cache_clear()
        with pytest.raises(SystemExit) as ended:
            main()
    console._console.cache_clear()
    assert "Traceback" not in out.getvalue() + err.getvalue()
    return Seen(int(ended.value.code or 0), Screen(out.getvalue(), width), Screen(err.getvalue(), width))
