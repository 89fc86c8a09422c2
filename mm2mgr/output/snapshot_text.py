"""What was written as a snapshot, as text."""

from __future__ import annotations

from mm2mgr.operations.snapshot import SnapshotTaken
from mm2mgr.output.console import say, talk
from mm2mgr.text import number_of


def say_taken(taken: SnapshotTaken) -> None:
    """Print the file, its size, and the clusters that did not answer."""
    say(f"{taken.file}: {number_of(taken.answers, 'answer')}, {taken.size_bytes / 1e6:.1f} MB")
    if taken.tree:
        say(f"{taken.tree}: the tree with the same made-up names; use both together: mm2mgr --clusters {taken.tree}")
    for pattern in taken.untranslated:
        talk(f"the pattern '{pattern}' became a list of names: made-up ones cannot match it as the real ones do")
    for cluster, reason in taken.failed.items():
        talk(f"not in it: something of '{cluster}' ({reason})")
