"""Prints a connector's template and reads the lines back: each key and value with its origin.

A line reads `key = {{ value }}`. The template's line is the origin of literal text; an inserted value keeps its own
origin. Rendering puts marks in place of values, since values may hold line ends, equals signs and blanks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import cast

import jinja2

from mm2mgr.defaults import Origin, Text
from mm2mgr.errors import TemplateError
from mm2mgr.templating.restricted_jinja import Environment, line_of, read_template

_MARK = "\x01"  # around the number of a value that is inserted
_LINE = "\x02"  # before the template line number at the end of a line
_BLOCK = "\x03"  # around the prefix and the number of a block of settings
_INSERTED = re.compile(rf"{_MARK}(\d+){_MARK}")
_BLOCKS = re.compile(rf"{_BLOCK}([^{_BLOCK}]*)={_BLOCK}(\d+){_BLOCK}")
_WHERE = re.compile(rf"{_LINE}([^{_LINE}]*){_LINE}")
_KEY_VALUE = re.compile(r"\s*([^\s=]+)\s*=\s*(.*?)\s*", re.DOTALL)


class _MarkingLoader(jinja2.BaseLoader):
    """Loads templates and marks the end of every `key = value` line with its file and line number."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        source, path = read_template(self.folders, template)
        marked = [
            f"{line}{_LINE}{template}:{number}{_LINE}" if re.match(r"\s*[\w.-]+\s*=", line) else line
            for number, line in enumerate(source.split("\n"), 1)
        ]
        return "\n".join(marked), path, lambda: True


class _CompiledTemplates(jinja2.BytecodeCache):
    """The code of templates by file and text for this process's life: a loop that renders again compiles none."""

    def __init__(self) -> None:
        self.code: dict[tuple[str, str], CodeType | None] = {}

    def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        bucket.code = self.code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        if len(self.code) >= _MOST_COMPILED:
            self.code.clear()
        self.code[bucket.key, bucket.checksum] = bucket.code


_MOST_COMPILED = 100
_COMPILED = _CompiledTemplates()


class Printer:
    """Renders templates of some folders."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.inserted: list[object] = []
        self.folders = folders
        self.environment = Environment(
            {"settings": self.settings},
            loader=_MarkingLoader(folders),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            auto_reload=False,  # each look at the clock of a file would be made once a connector
            finalize=self.insert,
            bytecode_cache=_COMPILED,
        )

    def print(self, template: str, context: dict[str, object], name: str) -> tuple[dict[str, str], dict[str, Origin]]:
        config: dict[str, str] = {}
        origins: dict[str, Origin] = {}
        at, entries = template, list[tuple[str, object]]()
        self.environment.begin()
        try:
            for line in self.lines(template, context):
                at = line.at
                if line.is_block:
                    block = cast("dict[str, object]", self.inserted[line.inserted[0]])
                    entries = [(line.key + key, value) for key, value in sorted(block.items())]
                else:
                    entries = [(line.key, self.read_back(line) if line.inserted else line.parts[0])]
                for key, value in entries:
                    if key in config:
                        raise TemplateError(
                            f"{line.at}, connector '{name}': the key '{key}' is written twice",
                            hint=(
                                f"it came from {origins[key]} already; remove it from the flow's *_connector block or"
                                " from the template"
                            ),
                        )
                    config[key] = str(value)
                    origins[key] = value.origin if type(value) is Text else line.origin
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"{error.name or template}:{error.lineno}: {error.message}") from error
        except (  # what an expression in it may raise, and what Python says of code that nests too deeply
            jinja2.TemplateError,
            *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
            *(RecursionError, MemoryError, SyntaxError),
        ) as error:
            at = line_of(error, self.folders, at)
            raise TemplateError(f"{at}, connector '{name}': {type(error).__name__}: {error}") from error
        return config, origins

    def lines(self, template: str, context: dict[str, object]) -> tuple[_TemplateLine, ...]:
        """Return the lines of a rendered template."""
        self.inserted.clear()
        return _read(self.environment.get_template(template).render(context), template)

    def read_back(self, line: _TemplateLine) -> object:
        """Return a line's value; one of several parts has the origin of its first inserted value with one."""
        if line.alone:
            return self.inserted[line.inserted[0]]
        values = [self.inserted[number] for number in line.inserted]
        parts: list[str] = [*line.parts]
        parts[1::2] = map(str, values)
        return Text("".join(parts), next((value.origin for value in values if isinstance(value, Text)), line.origin))

    # --- what templates call ------------------------------------------------------------------------------------------

    # Jinja runs a plain finalize on constants when it compiles a template, where no connector is being written.
    @jinja2.pass_eval_context
    def insert(self, _: object, value: object) -> str:
        """Return a mark for a value until lines are read back: it may hold line breaks, equals signs, blanks."""
        if isinstance(value, _Lines):
            return value
        if isinstance(value, jinja2.Undefined):
            return str(value)  # StrictUndefined raises with the name
        self.inserted.append(self.environment.insert_text(value))
        return f"{_MARK}{len(self.inserted) - 1}{_MARK}"

    def settings(self, prefix: str, block: Mapping[str, str]) -> _Lines:
        """Return a mark for the `prefix + key = value` lines of a block of settings."""
        self.inserted.append(block)
        return _Lines(f"{_BLOCK}{prefix}={_BLOCK}{len(self.inserted) - 1}{_BLOCK}")


@dataclass(frozen=True)
class _TemplateLine:
    """A rendered line with the numbers inserted: `parts` is text, number, text, … of the value, or it `is_block`."""

    at: str
    origin: Origin
    key: str  # of a block: the prefix of its keys
    parts: tuple[str, ...]
    inserted: tuple[int, ...]
    alone: bool = False  # the value is one inserted one and nothing else
    is_block: bool = False


@lru_cache(maxsize=256)  # values are numbers here, so the connectors of a type mostly give one and the same text
def _read(text: str, template: str) -> tuple[_TemplateLine, ...]:
    return tuple(parsed for line in text.split("\n") for parsed in _read_line(line, template))


def _read_line(line: str, template: str) -> Iterator[_TemplateLine]:
    where = _WHERE.search(line)
    body = (_WHERE.sub("", line) if where else line).strip()
    at = where[1] if where else template
    origin = Origin("template", at)
    if not body or body.startswith("#"):
        return
    if not _BLOCKS.sub("", body):
        for prefix, number in _BLOCKS.findall(body):
            yield _TemplateLine(at, origin, prefix, (), (int(number),), is_block=True)
        return
    matched = _KEY_VALUE.fullmatch(body)
    if not matched or _BLOCK in body:
        raise TemplateError(f"{at}: not a `key = value` line: {body[:60]!r}")
    parts = tuple(_INSERTED.split(matched[2]))
    inserted = tuple(map(int, parts[1::2]))
    yield _TemplateLine(
        at, origin, matched[1], parts, inserted, alone=len(inserted) == 1 and parts[0] == parts[2] == ""
    )


class _Lines(str):
    __slots__ = ()
