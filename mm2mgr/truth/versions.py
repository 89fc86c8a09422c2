"""Reads the Kafka version out of what workers and people write: `3.9.1`, Confluent's `7.6.0-ccs`, Red Hat's `3.9.1.redhat-00001`.

Text in, a Kafka version or None out; what it cannot place is None, never a guess. Pure.
"""

from __future__ import annotations

import re

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})((?:\.\d+)*)(.*)", re.DOTALL)  # more digits Python refuses to read
_NEWEST_MAJOR = 5  # announced; a greater number without Confluent's mark is somebody else's own numbering
# Confluent Platform's major version -> Kafka's, and what to add to the minor (vendor's table of interoperability).
_CONFLUENT = {5: (2, 0), 6: (2, 6), 7: (3, 0), 8: (4, 0)}


def kafka_version(text: str) -> str | None:
    """Return the Kafka version that a version string stands for: a release, or only the line when a vendor counts patches itself."""
    found = _VERSION.fullmatch(text.strip())
    if not found or found[4][:1] not in {"", "-", ".", "+"}:
        return None
    major, minor = int(found[1]), int(found[2])
    if re.match(r"-(ccs|ce)\b", found[4]):
        if major not in _CONFLUENT:
            return None
        line, more = _CONFLUENT[major]
        return f"{line}.{minor + more}"
    return f"{major}.{minor}{_patch(found[3])}" if major <= _NEWEST_MAJOR else None


def _patch(rest: str) -> str:
    """Keep one patch number: vendors add theirs behind it (`2.8.2.1`)."""
    return "." + rest.split(".")[1] if rest else ""
