"""Takes secrets out of texts that a worker sent back, before anyone prints or cuts them.

In: a text and the config that was sent. Out: the text with the values of secret-looking keys replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from mm2mgr.secrets import is_secret

MASK = "****"
BODY_CHARACTERS = 500

# A placeholder names a secret without being one; it is what the reader must see to find a wrong reference.
_REFERENCE = re.compile(r"\$\{[^}]*\}")
# Both patterns start at a fixed place, so that a page of megabytes costs milliseconds.
_ASSIGNMENT = re.compile(
    r"(?P<key>(?:password|passwd|passphrase|secret|token)[\w.]*\s*=\s*)"
    r"(?:\\*\"[^\"]*\"|'[^']*'|(?!\$\{)[^\s\"',;]+)",
    re.IGNORECASE,
)
_OPTION = re.compile(r"(?<![\w.])([\w.]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s\"';]+))")


def mask(text: str, config: Mapping[str, str] | None = None) -> str:
    """Return the text without the secrets of the config that was sent, and without `password=…` of any origin."""
    # Longest first: a JAAS line goes before the password inside it.
    for secret in sorted(set(_secrets(config or {})), key=len, reverse=True):
        # A proxy may echo the request, where the secret stands as JSON wrote it.
        text = text.replace(secret, MASK).replace(json.dumps(secret)[1:-1], MASK)
    return _ASSIGNMENT.sub(lambda found: found["key"] + MASK, text)


def cut(text: str) -> str:
    """Return at most BODY_CHARACTERS of a text; mask it first, or half a secret may stay."""
    return text if len(text) <= BODY_CHARACTERS else text[:BODY_CHARACTERS] + "…"


def _secrets(config: Mapping[str, str]) -> Iterator[str]:
    for key, value in config.items():
        if not is_secret(key):
            continue
        if _is_secret(value):
            yield value
        # A JAAS line: a worker may quote one option of it instead of the whole.
        for option, *values in _OPTION.findall(value):
            yield from (part for part in values if is_secret(option) and _is_secret(part))


def _is_secret(value: str) -> bool:
    return value.lower() not in {"", "true", "false"} and _REFERENCE.fullmatch(value) is None
