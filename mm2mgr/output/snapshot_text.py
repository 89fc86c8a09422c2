"""What was written as a snapshot, as text from its `to_dict()`."""

from __future__ import annotations

from typing import Any

from mm2mgr.output.console import say, talk
from mm2mgr.text import number_of


def say_taken(taken: dict[str, Any]) -> None:
    """Print the file, its size, and the clusters that did not answer."""
    say(f"{taken['file']}: {number_of(taken['answers'], 'answer')}, {taken['bytes'] / 1e6:.1f} MB")
    for cluster, reason in taken["failed"].items():
        talk(f"not in it: something of '{cluster}' ({reason})")
