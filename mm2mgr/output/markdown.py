"""Text from outside in Markdown: it cannot break a table, nor mention people."""

from __future__ import annotations

import re

from mm2mgr.text import fit_text, one_line, visible

_LONGEST_CELL, _LONGEST_SENTENCE = 300, 1_500
_MARKUP = re.compile(r"[\\`*_\[\]<>#|~&]|:(?=//)")


def code(text: str) -> str:
    """Return a text as code."""
    return f"<code>{_escape(text)}</code>" if text else ""


def escape(text: str) -> str:
    """Return a text as it reads, on one line, and cut where it is very long."""
    return _escape(text).replace("@", "<span>@</span>")


def sentence(text: str) -> str:
    """Return a reason or a remedy as it reads, on one line and whole: what is to be typed or pasted must not be cut."""
    return _escape(text, _LONGEST_SENTENCE).replace("@", "<span>@</span>")


def _escape(text: str, longest: int = _LONGEST_CELL) -> str:
    line = fit_text(visible(one_line(text)), longest)
    return _MARKUP.sub(lambda sign: f"&#{ord(sign[0])};", line)
