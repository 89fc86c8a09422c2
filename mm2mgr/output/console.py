"""The two voices: results on stdout, talk (progress, notes, errors) on stderr. The only owner of rich.

Colour only on a terminal and never with NO_COLOR; what is piped is not wrapped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_PIPE_WIDTH = 400


class _Voice(Console):
    """A console whose talk may go unheard: nobody reading stderr is no reason to leave work half done."""

    def on_broken_pipe(self) -> None:
        if not self.stderr:
            super().on_broken_pipe()  # nobody wants the result: stop
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


@cache
def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    # With NO_COLOR rich still writes bold and dim: without a colour system it writes text only.
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return _Voice(stderr=stderr, width=width, color_system=colours, highlight=False, soft_wrap=True)


def say(text: str = "", style: str | None = None) -> None:
    """Print a line of result."""
    _console(stderr=False).print(escape(text), style=style)


def talk(text: str, style: str | None = "dim") -> None:
    """Print a line about what is going on."""
    _console(stderr=True).print(escape(text), style=style)


def complain(message: str, hint: str | None) -> None:
    """Print an error and what to do."""
    console = _console(stderr=True)
    console.print(f"[bold red]error:[/] {escape(message)}")
    if hint:
        console.print(f"[bold]hint:[/] {escape(hint)}")


def say_plain(text: str) -> None:
    """Print a line as it is, without colour or wrapping: a thousand times as fast, for results of many lines."""
    sys.stdout.write(text + "\n")


def say_json(value: Any) -> None:
    """Print JSON-ready values, never coloured or wrapped."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def say_json_line(value: Any) -> None:
    """Print JSON-ready values on one line, at once: the next document may be a while."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def say_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print an aligned table; columns named in `right` hold numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    _console(stderr=False).print(table)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show that something takes a while: a spinner on a terminal, one line elsewhere and with NO_COLOR."""
    console = _console(stderr=True)
    if not console.is_terminal or console.no_color:
        talk(text)
        yield
        return
    with console.status(escape(text)):
        yield
