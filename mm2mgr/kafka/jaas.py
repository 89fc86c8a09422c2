"""`sasl.jaas.config`, read with the rules of Kafka's own parser (a Java StreamTokenizer).

In goes the text, out come the login module and its options; it never prints them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\r\n]*|/\*.*?\*/)
      | "(?P<double>(?:\\.|[^"\\\r\n])*)"
      | '(?P<single>(?:\\.|[^'\\\r\n])*)'
      | (?P<word>[A-Za-z_$\u00a0-\U0010ffff][\w.$\-\u00a0-\U0010ffff]*)
      | (?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([0-3]?[0-7]{1,2})|(.))", re.DOTALL)
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True)
class Login:
    """One login module: the last part of its class name, and its options with quotes and escapes undone."""

    module: str
    options: dict[str, str] = field(repr=False)


def parse_jaas(text: str) -> Login:
    """Read `Module flag key="value" …;`; ValueError says what is missing without showing any of the text."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != ("sign", ";"):
        raise ValueError("a login module, a control flag such as `required` and a closing `;` are expected")
    module = tokens[0][1].rpartition(".")[2]
    body = tokens[2:-1]
    triples = [body[start : start + 3] for start in range(0, len(body), 3)]
    if any(len(triple) != 3 or triple[1] != ("sign", "=") or triple[2][0] == "sign" for triple in triples):
        raise ValueError('options are written key="value", and a number needs quotes')
    return Login(module, {key[1]: value[1] for key, _, value in triples})


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"character {position + 1} is not part of a login entry; put values in quotes")
        kind = str(match.lastgroup)
        if kind in ("double", "single"):
            found.append(("word", _unescape(match[kind])))
        elif kind != "skip":
            found.append((kind, match[kind]))
        position = match.end()
    return found


def _unescape(quoted: str) -> str:
    def plain(match: re.Match[str]) -> str:
        return chr(int(match[1], 8)) if match[1] else _CONTROL.get(match[2], match[2])

    return _ESCAPE.sub(plain, quoted)
