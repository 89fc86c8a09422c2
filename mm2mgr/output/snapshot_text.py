"""What was written as a snapshot, as text."""

from __future__ import annotations

from mm2mgr.operations.snapshot import SnapshotTaken
from mm2mgr.output.console import say, talk
from mm2mgr.text import number_of


def say_taken(taken: SnapshotTaken) -> None:
    """Print the file, its size, and the clusters that did not answer."""
    say(f"{taken.file}: {number_of(taken.answers, 'answer')}, {taken.size_bytes / 1e6:.1f} MB")
    for cluster, reason in taken.failed.items():
        talk(f"not in it: something of '{cluster}' ({reason})")
