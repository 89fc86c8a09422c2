"""The one place that decides whose a live connector is: by the owner mark in its config, and by this tree's `adopt:`
and `release:`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mm2mgr.render import OWNER_KEY
from mm2mgr.text import in_yaml
from mm2mgr.topology import ListedConnector, Topology

_Named = tuple[str, str]  # a Connect cluster and a connector on it


@dataclass(frozen=True)
class ListEntry:
    """What became of one entry of `adopt:`, `moved:` or `release:`, as a plan shows it. `done`: its line can go.

    `pending` are the keys that an adopted connector gets with its next change, and that are no reason for one.
    """

    list: str
    connector: str
    place: str
    says: str = ""
    done: bool = False
    pending: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ownership:
    """Whose connectors are, as the tree of one owner sees it."""

    owner: str
    adopted: Mapping[_Named, ListedConnector] = field(default_factory=dict)
    released: Mapping[_Named, ListedConnector] = field(default_factory=dict)

    @classmethod
    def of(cls, topology: Topology) -> Ownership:
        return cls(
            str(topology.owner),
            {entry.named: entry for entry in topology.adopted},
            {entry.named: entry for entry in topology.released},
        )

    def is_ours(self, named: _Named, config: Mapping[str, str]) -> bool:
        """Tell whether this tree may write and delete a connector that runs: it carries the mark, or is adopted, and is
        not released.
        """
        if named in self.released:
            return False
        return config.get(OWNER_KEY) == self.owner or self.is_adopted(named, config)

    def is_adopted(self, named: _Named, config: Mapping[str, str]) -> bool:
        """Tell whether it is this tree's by the list alone: it carries no mark, or that of the owner it is adopted
        from.
        """
        entry = self.adopted.get(named)
        mark = config.get(OWNER_KEY) or None
        return entry is not None and mark != self.owner and mark in {None, entry.from_owner}

    def whose(self, named: _Named, config: Mapping[str, str]) -> str:
        """Return whose a connector is that is not this tree's, as the end of a sentence."""
        if named in self.released:
            return f"is released ({self.released[named].place})"
        holder = config.get(OWNER_KEY)
        return f"belongs to owner '{holder}'" if holder else "carries no owner mark"

    def remedy(self, named: _Named, config: Mapping[str, str]) -> str:
        """Return how a connector under a wanted name comes under this tree's management."""
        connect, name = named
        holder = config.get(OWNER_KEY)
        whose = f", from_owner: {in_yaml(holder)}" if holder else ""
        entry = f"adopt: [{{connect: {in_yaml(connect)}, connector: {in_yaml(name)}{whose}}}]"
        if holder and named in self.adopted:
            return f"write from_owner: {in_yaml(holder)} at {self.adopted[named].place} once that owner has released it"
        return f"to manage that connector, write {entry}{' once that owner has released it' if holder else ''}"

    def released_entry(self, named: _Named, config: Mapping[str, str] | None) -> ListEntry:
        """Return what became of an entry of `release:`; `config` is None when nothing of that name runs."""
        entry = ListEntry("release", named[1], self.released[named].place)
        if config is None:
            return replace(entry, says="nothing of that name runs there", done=True)
        holder = config.get(OWNER_KEY)
        if holder != self.owner:
            whose = f"it carries the mark of owner '{holder}'" if holder else "it carries no owner mark"
            return replace(entry, says=whose, done=True)
        says = (
            "left running and not managed; it keeps its owner mark, so this line is needed until "
            f"another tree has adopted it (from_owner: {self.owner}) and written its own"
        )
        return replace(entry, says=says)
