"""Results on stdout; progress, notes and errors on stderr. The only owner of rich, and the only module that writes to
either: foreign text is made visible (`text.visible`) and never steers the terminal, and a line that cannot be written
stops no work.

Colours only on a terminal, and never with NO_COLOR; piped lines are not wrapped. On a terminal a long line continues
below, indented, so that only lines of our own begin at the left edge.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Literal, Protocol, TextIO, TypeVar, cast

from mm2mgr import timing
from mm2mgr.text import cells, visible

if TYPE_CHECKING:
    from rich.console import Console

    from mm2mgr.output.tables import Line, Table

STYLES: Mapping[str, str | None] = {
    **dict.fromkeys(("ok", "up", "create"), "green"),
    **dict.fromkeys(("problem", "error", "missing", "failed", "down", "blocked"), "bold red"),
    **dict.fromkeys(("unknown", "warning", "update"), "yellow"),
    "delete": "red",
}
"""The colour of each word: green is good, red needs action, yellow needs a look; what only waits is plain."""
Value = TypeVar("Value")
_PIPE_WIDTH = 400
_LINE_SECONDS = 10.0
_HANGING = 4


class _Voice:
    """Stdout or stderr, as Python has it at the moment. A line that cannot be written is lost; the next one is tried
    again.

    A closed stderr does not stop the command. A reader who closes stdout wants no more results, so the command ends,
    unless it must finish what it does (`carrying_on`).
    """

    def __init__(self, name: Literal["stdout", "stderr"]) -> None:
        self.name = name
        self.behind: TextIO | None = None  # the real stream, while `guard_streams` has another in its place
        self.lost: OSError | None = None
        self.carries_on = name == "stderr"
        self._asked: tuple[TextIO | None, bool] = (None, False)

    @property
    def stream(self) -> TextIO:
        stream: TextIO = self.behind or getattr(sys, self.name)
        return stream

    @property
    def encoding(self) -> str:
        return getattr(self.stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Tell whether lines go to a terminal; a stream is asked once, because each line needs to know."""
        stream = self.stream
        if stream is not self._asked[0]:
            self._asked = stream, bool(stream) and bool(stream.isatty())
        return self._asked[1]

    def fileno(self) -> int:
        return int(self.stream.fileno())

    def write(self, text: str) -> int:
        with self._losing():
            try:
                self.stream.write(text)
            except UnicodeEncodeError:
                self.stream.write(text.encode(self.encoding, "backslashreplace").decode(self.encoding))
        return len(text)

    def flush(self) -> None:
        with self._losing():
            self.stream.flush()

    @contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError as error:
            if not self.carries_on:
                raise SystemExit(1) from error
            self.lost = error
        except OSError as error:
            self.lost = error

    def end(self) -> None:
        """Write what is buffered, and discard what cannot be written: Python would try again, and exit with 120."""
        self.carries_on = True
        self.flush()
        if self.lost:
            with suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self.fileno())
                os.close(null)
            self.flush()


class _Closed(io.StringIO):
    """Replaces a stream that was closed before we started; counts nothing as lost."""

    has_lines = False

    def write(self, text: str) -> int:
        self.has_lines = True
        return len(text)


_OUT, _ERR = _Voice("stdout"), _Voice("stderr")


class _Others:
    """Replaces sys.stdout or sys.stderr while a command runs: libraries may print lines, but not steer the terminal."""

    def __init__(self, voice: _Voice) -> None:
        self._voice = voice

    def write(self, text: str) -> int:
        self._voice.write("\n".join(map(visible, text.split("\n"))))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._voice.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._voice.stream, name)


@contextmanager
def guard_streams() -> Iterator[None]:
    """Pass everything that is written to stdout and stderr in this block through this module, whatever code writes
    it."""
    _open_descriptors()
    streams = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    for voice in (_OUT, _ERR):
        voice.lost, voice.carries_on = None, voice is _ERR
        voice.behind = getattr(sys, voice.name) or _Closed()
        setattr(sys, voice.name, _Others(voice))
    try:
        yield
    finally:
        for voice in (_OUT, _ERR):
            voice.end()
            voice.behind = None
        sys.stdin, sys.stdout, sys.stderr = streams


def _open_descriptors() -> None:
    """Open the standard descriptors that are closed: the next file or socket would get their number, and C's
    messages."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


@contextmanager
def carrying_on() -> Iterator[None]:
    """Finish the work in this block even when the reader of stdout leaves."""
    _OUT.carries_on = True
    try:
        yield
    finally:
        _OUT.carries_on = False


def flush() -> None:
    """Write what is buffered."""
    _OUT.flush()
    _ERR.flush()


def is_result_printed() -> bool:
    """Tell whether everything printed on stdout so far could be written."""
    _OUT.flush()
    return _OUT.lost is None and not isinstance(_OUT.behind, _Closed)


def final_exit_code(code: int) -> int:
    """Return the exit code of the command: not 0 where lines of stdout were lost to an error, which is printed.

    Lines are not missed where the reader left, or where stdout was closed from the start.
    """
    left_at_work = _OUT.lost
    _OUT.carries_on = True  # the work is done, and its code known
    _OUT.flush()
    if isinstance(_OUT.behind, _Closed) and _OUT.behind.has_lines:
        talk("warning: stdout is closed, so the result was not printed", "bold yellow")
    if _OUT.lost is None:
        return code
    if isinstance(_OUT.lost, BrokenPipeError):
        return code if left_at_work else code or 1
    complain(
        f"stdout: {_OUT.lost.strerror or _OUT.lost}: lines of the result are lost",
        "write the result to a disk with free space",
    )
    return code or 1


@cache
def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    voice = _ERR if stderr else _OUT
    width = None if voice.isatty() else _PIPE_WIDTH
    # With NO_COLOR rich still writes bold and dim: without a colour system it writes text only.
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(
        file=cast("TextIO", voice), stderr=stderr, width=width, color_system=colours, highlight=False, soft_wrap=True
    )


def _print(lines: Iterable[str], style: str | None, *, stderr: bool, label: int = 0) -> None:
    """Print lines in one style; the first `label` characters are bold beside it."""
    voice = _ERR if stderr else _OUT
    shown = [visible(line) for line in lines]
    if voice.isatty():
        width = _console(stderr=stderr).width
        shown = [row for line in shown for row in _rows(line, width)]
    if label:
        first, *others = shown
        marked: Line = [(first[:label], style), (first[label:], None)]
        _write([marked, *([(line, None)] for line in others)], stderr=stderr)
    else:
        _write([[(line, style)] for line in shown], stderr=stderr)


def _write(lines: Sequence[Line], *, stderr: bool) -> None:
    console, voice = _console(stderr=stderr), _ERR if stderr else _OUT
    if console.color_system is None:
        voice.write("".join("".join(text for text, _ in line) + "\n" for line in lines))
        voice.flush()
        return
    from rich.text import Text

    styled = Text("\n").join(Text.assemble(*((text, style or "") for text, style in line)) for line in lines)
    console.print(styled)


def _rows(line: str, width: int) -> Iterable[str]:
    from mm2mgr.output.tables import rows_of

    return rows_of(line, width, min(len(line) - len(line.lstrip(" ")) + _HANGING, width // 2))


def say(text: str = "", style: str | None = None) -> None:
    """Print a line of result."""
    _print([text], style, stderr=False)


def clear_screen() -> None:
    """Begin at the top of an empty terminal; elsewhere nothing."""
    if _OUT.isatty():
        _OUT.write("\x1b[H\x1b[2J")


def say_command(command: str) -> None:
    """Print a command of a shell to be copied: a terminal gets it in rows that end with a backslash."""
    first, *options = visible(command).split(" --")
    rows, width = [first], _console(stderr=False).width if _OUT.isatty() else None
    for option in options:
        fits = width is None or cells(f"{rows[-1]} --{option} \\") <= width
        rows[-1:] = [f"{rows[-1]} --{option}"] if fits else [f"{rows[-1]} \\", f"    --{option}"]
    _write([[(row, None)] for row in rows], stderr=False)


def talk(text: str, style: str | None = "dim") -> None:
    """Print a line about progress."""
    _print([text], style, stderr=True)


class PartLog(Protocol):
    """Prints what a part of a long process did, and when: seconds since 1970, now by default."""

    def __call__(self, part: str, text: str, style: str | None = None, at: float | None = None) -> None: ...


_LEVELS = {STYLES["problem"]: "error", STYLES["unknown"]: "warning", f"bold {STYLES['unknown']}": "warning"}


def log_lines(form: Literal["result", "progress", "json"] = "progress") -> PartLog:
    """Return what prints a line per event, `2026-11-20T09:12:44Z PART: TEXT`, as a result (stdout) or as progress
    (stderr); `json`: an object per line on stdout, with time, part, level and text."""

    def print_line(part: str, text: str, style: str | None = None, at: float | None = None) -> None:
        clock = f"{datetime.fromtimestamp(time.time() if at is None else at, UTC):%Y-%m-%dT%H:%M:%SZ}"
        if form == "json":
            say_json_line({"time": clock, "part": part, "level": _LEVELS.get(style, "info"), "text": visible(text)})
        else:
            _print([f"{clock} {part}: {text}"], style, stderr=form == "progress")

    return print_line


def complain(message: str, hint: str | None = None) -> None:
    """Print an error and what to do."""
    _say_labelled("error:", message, "bold red")
    if hint:
        _say_labelled("hint:", hint, "bold")


def _say_labelled(label: str, message: str, style: str) -> None:
    first, *others = message.split("\n")
    lines = [f"{label} {first}", *(f"{' ' * len(label)} {line}" for line in others)]
    _print(lines, style, stderr=True, label=len(label))


def say_plain(text: str) -> None:
    """Print a line without colour, much faster: for results of many lines."""
    line = visible(text)
    width = _console(stderr=False).width if _OUT.isatty() else None
    _OUT.write("\n".join(_rows(line, width) if width else [line]) + "\n")


def say_lines(text: str) -> None:
    """Print a text of our own, such as a script, as it is."""
    _OUT.write(text)


def say_json(value: object) -> None:
    """Print a value as JSON, never coloured or wrapped."""
    _OUT.write(_json(value, indent=2) + "\n")


def say_as(output: str, value: Value, text: Callable[[Value], None]) -> None:
    """Print a result as `-o` asks: as JSON, or what a function prints of it."""
    if output == "json":
        say_json(value)
    else:
        text(value)


def say_json_line(value: object) -> None:
    """Print a value as JSON on one line and flush: the next document may take a while."""
    _OUT.write(_json(value) + "\n")
    _OUT.flush()


def _json(value: object, indent: int | None = None) -> str:
    import json

    from mm2mgr.json_values import to_json

    # The one control character that JSON leaves as it is; outside a string there is none.
    return json.dumps(to_json(value), indent=indent).replace("\x7f", "\\u007f")


def say_table(table: Table) -> None:
    """Print a table as wide as the terminal allows; what is left out on a narrow one is named below it."""
    from dataclasses import replace

    rows, below = ([tuple(map(visible, row)) for row in cells] for cells in (table.rows, table.below))
    table = replace(table, rows=rows, below=below)
    lines, left_out = table.lines(_console(stderr=False).width if _OUT.isatty() else None)
    _write(lines, stderr=False)
    if left_out:
        shows = "a wider terminal or -o json shows " + ("it" if len(left_out) == 1 else "them")
        say(f"{' ' * table.indent}left out: {', '.join(left_out)} ({shows})", "dim")


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show that something takes a while: a spinner on a terminal, one line elsewhere and with NO_COLOR.

    What it yields replaces the text while the work goes on; elsewhere than on a terminal that is a line, at most one
    every ten seconds.
    """
    console = _console(stderr=True)
    if not console.is_terminal or console.no_color:
        talk(text)
        printed_at = timing.now()

        def print_line(text: str) -> None:
            nonlocal printed_at
            if timing.now() - printed_at >= _LINE_SECONDS:
                printed_at = timing.now()
                talk(text)

        yield print_line
        return
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots", Text(visible(text)), style="status.spinner")
    with Live(spinner, console=console, transient=True, redirect_stdout=False, redirect_stderr=False):
        yield lambda text: spinner.update(text=Text(visible(text)))
