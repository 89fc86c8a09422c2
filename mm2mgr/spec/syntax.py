"""Says what somebody probably did where a file is not YAML, and where: the parser's own words name its expectations
only.

No value of the file is repeated: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaml.error import Mark

Position = tuple[int, int, str]
"""Line and column from 0, and what to write."""
_CONFLICT = re.compile(r"(<{7}|={7}|>{7})( |$)")
_WORDS = (  # a part of the parser's message -> what to do about it
    ("expected key", "this is not a key: write key: value, or put text into quotes"),
    ("alphabetic or numeric", "& and * begin an anchor: text that begins with them needs quotes"),
    ("cannot start any token", "a sign that no value begins with: put the text into quotes"),
    ("node content", "a value is missing here, or a comma or bracket is too many"),
    ("'-' indicator", "the entries of a list begin with a dash and a blank, all in the same column"),
    ("sequence entries", "a list begins on the line below its key, or is written in brackets"),
    ("directive", "a value that begins with % needs quotes"),
    ("document start", "text after the end of the document: a line without indentation, or a bracket too many"),
)
_RESERVED = re.compile(r"(?:^|[\s\[{,])([@`%!*&])(?!\s)")
_KEY = re.compile(r"(?<![\w.$\"'/])([A-Za-z_][\w-]*):(?=[\[{\"'])|^\s*([a-z_]+):(?=[A-Za-z])")


def explain(error: Any, text: str) -> Position:  # noqa: PLR0911 - one return per mistake
    """Return the place and the words for an error of the parser in a text."""
    lines = text.splitlines() or [""]
    mark = error.problem_mark or error.context_mark
    last = min(mark.line, len(lines) - 1)
    start = error.context_mark or mark
    first = min(start.line, last - 1)
    region = range(last, max(first, last - 3, 0) - 1, -1)
    if position := next(_of_text(lines, region), None):
        return position
    problem, context = error.problem or "", error.context or ""
    line, here = lines[last], (mark.line, mark.column)
    indent = len(line) - len(line.lstrip(" "))
    if "escape" in problem:
        return *here, "a backslash in double quotes is written twice; or use single quotes: 'logs\\.app'"
    if "quoted scalar" in context:
        return start.line, start.column, "this quote is never closed"
    if "anchor" in problem or "undefined alias" in problem:
        return *here, "no anchor of this name (&name) comes before it; text that begins with * needs quotes"
    if "merging" in problem:
        return *here, "<<: takes the anchor of a map: write <<: *name, and &name at that map"
    if "flow" in context:
        return _of_brackets(lines, last, mark, start)
    if "mapping values" in problem:
        if re.match(r"\s*(- +)?[^\s:#]+: +\S", line[: mark.column]):
            return *here, "text with a colon and a blank in it needs quotes"
        return last, indent, "this line is indented deeper than the one above, which has a value already: align them"
    if "block" in context and indent != start.column and line.strip():
        words = f"this line begins in column {indent + 1}, the keys beside it in column {start.column + 1}: align them"
        return last, indent, words
    if "expected ':'" in problem:
        return start.line, start.column, "a key ends with a colon and a blank: write key: value"
    words = next((words for part, words in _WORDS if part in problem), "a key, a colon or quotes are missing")
    return *here, words


def _of_text(lines: list[str], region: Iterable[int]) -> Iterator[Position]:
    """Yield what the lines themselves give away, the ones that the parser complains about first."""
    for number, line in enumerate(lines):
        if _CONFLICT.match(line):
            words = "a conflict of a merge: keep one side, and remove the lines with <<<<<<<, ======= and >>>>>>>"
            yield number, 0, words
    for number in region:
        line = lines[number]
        blanks = line[: len(line) - len(line.lstrip())]
        if "\t" in blanks:
            yield number, blanks.index("\t"), "a tab: indent with blanks, two for each level"
        if match := re.search(r"\{[{%]", line):
            yield number, match.start(), "this is a template, not YAML: render it first"
        if line.lstrip().startswith(("//", "/*")):
            yield number, len(blanks), "a comment begins with #"
        for match in _KEY.finditer(line):
            yield number, match.end(), f"a blank is missing after '{match[1] or match[2]}:'"
    for number in region:
        plain = re.sub(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'", lambda match: "x" * len(match[0]), lines[number])
        if match := re.match(r"[^\[{]*[\[{].*(\$\{)", plain):  # from the first bracket on: else long runs take for ever
            yield number, match.start(1), 'a placeholder inside braces or brackets needs quotes: "${file:…}"'
        if (match := _RESERVED.search(plain)) and not re.search(r"&\w|\*\w[\w-]*\s*$", plain[match.start(1) :]):
            star = '; for everything write ".*"' if match[1] == "*" else ""
            yield number, match.start(1), f"a value that begins with {match[1]} needs quotes{star}"


def _of_brackets(lines: list[str], last: int, mark: Mark, start: Mark) -> Position:
    if mark.line == start.line and lines[last][: mark.column][-1:] in ("'", '"'):
        return mark.line, mark.column, "text goes on behind the quote: put all of it into the quotes"
    number = min(start.line, last)
    column = start.column if start.line == number else max(lines[number].rfind("["), lines[number].rfind("{"), 0)
    comment = "; a blank and # begin a comment" if any(" #" in line for line in lines[number : last + 1]) else ""
    sign = lines[number][column : column + 1]
    if sign not in "[{" or not sign:
        return mark.line, mark.column, "a comma or bracket is missing before this, or text needs quotes"
    return number, column, f"this {sign} is never closed, or a comma is missing behind it{comment}"
