"""Text from outside in Markdown: it cannot break a table, nor mention people, and reads well unrendered."""

from __future__ import annotations

import re

from mm2mgr.text import fit_text, one_line, visible

_LONGEST_CELL, _LONGEST_SENTENCE = 300, 1_500
_ADDRESS = re.compile(r"(?:\b[A-Za-z][A-Za-z0-9+.-]*://|\bwww\.)[^\s`|\\<>'\"]*[^\s`|\\<>'\".,;:!?)\]}]")
"""What is made a link without being written as one."""
_MARKUP = re.compile(
    r"[\\`*\[\]<|~@]"
    r"|^>|#(?=[\d#\s]|$)"  # a quote, headings, and numbers of issues
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # within a word it is no emphasis
    r"|&(?=#|[A-Za-z][A-Za-z0-9]*;)|:(?=//)|(?<=www)\."
)
_NAMED = {"<": "&lt;", "&": "&amp;", "@": "<span>@</span>"}


def code(text: str) -> str:
    """Return a text as code, on one line of Markdown."""
    line = _fit(text)
    return f"`{line}`" if line and not re.search(r"[`|\\]", line) else html_code(text)


def html_code(text: str) -> str:
    """Return a text as code where HTML surrounds it."""
    line = _MARKUP.sub(lambda sign: {**_NAMED, "@": "@"}.get(sign[0], f"&#{ord(sign[0])};"), _fit(text))
    return f"<code>{line}</code>" if line else ""


def escape(text: str) -> str:
    """Return a text as it reads, on one line, and cut where it is very long."""
    return _escape(_fit(text))


def sentence(text: str) -> str:
    """Return a reason or a remedy as it reads, on one line and whole: what is to be typed or pasted must not be cut."""
    return _escape(_fit(text, _LONGEST_SENTENCE))


def _fit(text: str, longest: int = _LONGEST_CELL) -> str:
    return fit_text(visible(one_line(text)), longest)


def _escape(line: str) -> str:
    """Return a line with addresses as code and the rest as it reads."""
    parts, begin = [], 0
    for address in _ADDRESS.finditer(line):
        parts += [_escape_signs(line[begin : address.start()]), f"`{address[0]}`"]
        begin = address.end()
    return "".join((*parts, _escape_signs(line[begin:])))


def _escape_signs(text: str) -> str:
    return _MARKUP.sub(lambda sign: _NAMED.get(sign[0]) or _escape_sign(sign[0]), text)


def _escape_sign(sign: str) -> str:
    """Escape a sign by a backslash, which is easy to read, but not those that one before them might change."""
    return f"&#{ord(sign)};" if sign in "\\`|:." else f"\\{sign}"
