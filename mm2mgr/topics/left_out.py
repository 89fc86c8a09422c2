"""What a source connector leaves out though its include list matches, as machines: excluded and internal names, and cycles.

In: a Selection. Out: machines that accept what its `takes` refuses (tests hold the two together).
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from mm2mgr.topics.automaton import Both, Literals, Machine
from mm2mgr.topics.names import Items, machine_of
from mm2mgr.topics.selection import Policy, Selection


@lru_cache(maxsize=4096)
def refused_by(selection: Selection) -> tuple[Machine, ...]:
    """Return machines of what is left out though the include list matches; an exclude pattern that is not regular is missing."""
    names = selection.names
    literals = [name for name in names.unwanted.literals if names.wanted(name)]
    regular = tuple(item for item in names.unwanted.patterns if machine_of((item,)))
    found = [machine_of((*regular, *_internal(selection))), _cycle(selection), Literals(literals) if literals else None]
    return tuple(machine for machine in found if machine)


def _internal(selection: Selection) -> Items:
    mark = f"\\Q{selection.internal_separator}\\E"
    if selection.line >= (4, 0):
        return "__.*", r"\..*", f".*{mark}checkpoints{mark}internal", f"mm2.*{mark}internal"
    return "__.*", r"\..*", r".*[.-]internal", *((f".*{mark}internal",) if selection.line >= (3, 1) else ())


def _cycle(selection: Selection) -> Machine | None:
    if selection.policy == "identity" and selection.source == selection.target:
        return machine_of((".*",))
    return _cycles(selection.policy, selection.target, selection.separator) if selection.policy else None


@lru_cache(maxsize=1024)
def _cycles(policy: Policy, target: str, separator: str) -> Machine | None:
    heartbeats = machine_of((".*heartbeats",))
    by_default = _Cycle(target, separator)
    return by_default if policy == "default" else Both(by_default, heartbeats) if heartbeats else None


class _Cycle:
    """The topics that DefaultReplicationPolicy takes for ones that have been on the target, as a machine (`Selection.is_cycle`)."""

    start: Hashable = ("maybe", "")

    def __init__(self, target: str, separator: str) -> None:
        self._target, self._separator = target, separator
        self.letters = frozenset(frozenset(char) for char in target + separator)

    def step(self, state: Hashable, char: str) -> Hashable:
        """States: a part that `maybe` becomes the target's alias, an `other` part, what is read `behind` that alias, `seen`."""
        assert isinstance(state, tuple)
        kind, read = state
        text = read + char
        if kind == "seen" or (kind == "behind" and not self._separator.startswith(text)):
            return "seen", ""
        if not self._separator:  # each letter is a part
            return ("behind", "") if char == self._target else ("other", "")
        if kind == "behind":
            return kind, "" if text == self._separator else text
        if text.endswith(self._separator):
            return ("behind", "") if kind == "maybe" and text == self._target + self._separator else self.start
        if kind == "maybe" and (self._target + self._separator).startswith(text):
            return kind, text
        return "other", next(text[at:] for at in range(len(text) + 1) if self._separator.startswith(text[at:]))

    def accepts(self, state: Hashable) -> bool:
        assert isinstance(state, tuple)
        kind, read = state
        return bool(kind == "seen" or (kind == "behind" and read))
