"""What differs between two configs of one connector, key by key, and what that means. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mm2mgr.comparison.equivalence import with_live_order
from mm2mgr.defaults import Origin
from mm2mgr.secrets import mask

Named = tuple[str, str]
"""A Connect cluster and a connector on it."""
SELECTING = (
    "topics",
    "topics.exclude",
    "topic.filter.class",
    "source.cluster.alias",
    "target.cluster.alias",
    "source.cluster.bootstrap.servers",
    "target.cluster.bootstrap.servers",
    "replication.policy.class",
    "replication.policy.separator",
    "enabled",
)
"""The keys that decide what a source connector takes, and what it is called on the target."""


@dataclass(frozen=True)
class KeyChange:
    """One key of one connector: None before means added, None after means removed. `origin` is where the value after
    comes from.
    """

    key: str
    before: str | None = field(repr=False)  # may be secrets
    after: str | None = field(repr=False)
    origin: str = ""
    json_keys = "key kind before=masked_before after=masked_after origin=known_origin"

    @property
    def kind(self) -> Literal["add", "change", "remove"]:
        if self.before is None:
            return "add"
        return "remove" if self.after is None else "change"

    @property
    def masked_before(self) -> str | None:
        return None if self.before is None else mask(self.key, self.before)

    @property
    def masked_after(self) -> str | None:
        return None if self.after is None else mask(self.key, self.after)

    @property
    def known_origin(self) -> str | None:
        return self.origin or None


def diff(
    before: Mapping[str, str], after: Mapping[str, str], origins: Mapping[str, Origin] | None = None
) -> tuple[KeyChange, ...]:
    """Return the differing keys in order of their names. Values compare as strings, as Connect stores them."""
    where = origins or {}
    return tuple(
        KeyChange(key, before.get(key), after.get(key), str(where.get(key, "")))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    )


def selects_otherwise(live: Mapping[str, str], declared: Mapping[str, str]) -> bool:
    """Tell whether a source connector would take other topics, or name them otherwise, than the one that runs."""
    declared, naming = with_live_order(declared, live), ("replication.policy.", "transforms", "predicates.")
    keys = {*SELECTING, *(key for key in live.keys() | declared.keys() if key.startswith(naming))}
    return any(live.get(key) != declared.get(key) for key in keys)


def lowers_tasks(keys: Sequence[KeyChange]) -> bool:
    """Tell whether a change of keys lowers the number of tasks and does nothing else."""
    if [key.key for key in keys] != ["tasks.max"]:
        return False
    before, after = keys[0].before or "", keys[0].after or ""
    return before.isdecimal() and after.isdecimal() and 0 < int(after) < int(before)
