"""Config-provider placeholders such as `${file:/etc/kafka.properties:password}`, resolved as a Kafka client would.

They are resolved from files and variables of this machine. A resolved value never appears in an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from mm2mgr.errors import KafkaError

# The pattern of Kafka's ConfigTransformer: provider, optional path up to the first colon, key.
_PLACEHOLDER = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ACCESS_HINT = (
    "the worker may be able to resolve it where mm2mgr cannot; give the cluster an `access:` block "
    "with what mm2mgr itself should use, or provide the variable or file on this machine"
)


def resolve(alias: str, text: str, environment: Mapping[str, str] | None = None) -> str:
    """Replace the placeholders of one value, once and not recursively; KafkaError names one that has no value.

    Kafka leaves such a placeholder in place as a literal and fails later at login, which is why this one stops here.
    """
    variables = os.environ if environment is None else environment

    def value_of(match: re.Match[str]) -> str:
        found = _look_up(alias, match, variables)
        if found is None:
            raise KafkaError(f"{alias}: {match[0]} has no value on this machine", hint=_ACCESS_HINT)
        return found

    return _PLACEHOLDER.sub(value_of, text)


def _look_up(alias: str, match: re.Match[str], variables: Mapping[str, str]) -> str | None:
    provider, path, key = match[1], match[2] or "", match[3]
    try:
        if provider == "env":
            return None if path else variables.get(key)
        if provider == "file":
            return parse_properties(Path(path).read_text(encoding="utf-8")).get(key) if path else None
        if provider in ("dir", "directory"):
            # The directory provider knows the names in that one directory only, so a key never walks the tree.
            named = Path(path) / key
            return named.read_text(encoding="utf-8") if path and Path(key).name == key and named.is_file() else None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not UTF-8 text"
        raise KafkaError(f"{alias}: {match[0]} cannot be read: {reason}", hint=_ACCESS_HINT) from error
    return None


def parse_properties(text: str) -> dict[str, str]:
    """Read `java.util.Properties` text: separators `=`, `:` or blank, comments, continued lines, escapes."""
    pairs: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        pairs[_unescape(key)] = _unescape(value)
    return pairs


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending: str | None = None
    for raw in re.split(r"\r\n|\r|\n", text):
        natural = raw.lstrip(" \t\f")
        if pending is None and (not natural or natural[0] in "#!"):
            continue
        line = (pending or "") + natural
        trailing_backslashes = len(line) - len(line.rstrip("\\"))
        pending = line[:-1] if trailing_backslashes % 2 else None
        if pending is None:
            lines.append(line)
    return [*lines, pending] if pending else lines


def _split(line: str) -> tuple[str, str]:
    key = re.match(r"(?:\\.|[^\\=: \t\f])*", line)
    end = key.end() if key else 0
    separator = re.match(r"[ \t\f]*[=:]?[ \t\f]*", line[end:])
    return line[:end], line[end + (separator.end() if separator else 0) :]


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", plain, text)
