"""Which offsets a failover writes for each group on the target: only ahead, only for groups without a member. Pure.

A group that was written once is known by the journal of the failover. Where it has gone on since, or where somebody has
set it elsewhere, it is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from mm2mgr.failover.check import GroupPosition, GroupReadiness, Word
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import few, number_of

WithoutMembers = frozenset({"", "EMPTY", "DEAD"})
GroupAction = Literal[
    "active", "ahead", "deleted", "differs", "changed", "uncertain", "unknown", "write", "gone on", "level"
]
"""What becomes of a group: it has members on the target; it is ahead of where it may start; the target has deleted
records that it has not read; it has other records at that place; somebody set it elsewhere since it was written; it may
be ahead, by less than the translation may be off; nothing of it is known; its offsets are written; it was written, and
has read on; it is there."""


class OffsetChange(NamedTuple):
    """The offset that a group has in a partition of the target (None: none), and the one that it gets."""

    before: int | None
    after: int


Written = Mapping[TopicPartition, OffsetChange]


@dataclass(frozen=True)
class GroupOrder:
    """What is to become of one group. `changes` are by partition of the target. `repeats`: so many records come again
    at most from there on; `skips`: so many the group would never read at most, where it is ahead, or
    records are gone.

    `unknown`: partitions that are left as they are, since nothing tells where it is in them.
    """

    group: str
    action: GroupAction
    changes: Written = field(default_factory=dict)
    unknown: tuple[TopicPartition, ...] = ()
    ahead: tuple[TopicPartition, ...] = ()
    repeats: int = 0
    skips: int = 0
    on_source: str = ""
    settled: Written = field(default_factory=dict)
    """Partitions in which it is already where it starts, and no failover has noted that."""

    json_keys = "group action partitions=count repeats_at_most=repeats skips_at_most=skips unknown=unknown_names"

    @property
    def count(self) -> int:
        """How many offsets are written."""
        return len(self.changes)

    @property
    def unknown_names(self) -> list[str]:
        return [str(partition) for partition in self.unknown]

    @property
    def reads_on_source(self) -> bool:
        """Whether it has members on the source, as far as its brokers tell: what they commit later comes again."""
        return self.on_source not in WithoutMembers

    @property
    def word(self) -> Word:
        """The verdict on it: what nobody reads at the moment may stay unknown, what somebody reads may not."""
        if self.action in {"active", "ahead", "deleted", "differs"}:
            return "NO-GO"
        if self.action in {"changed", "uncertain"}:
            return "GO WITH"
        if self.unknown:
            return "not judged" if self.reads_on_source else "GO WITH"
        return "GO WITH" if self.repeats else "GO"


def order_group(group: GroupReadiness, written: Written = {}) -> GroupOrder:  # noqa: B006  never changed
    """Return what is to become of a group; `written`: what this failover wrote for it, or meant to write."""
    changes: dict[TopicPartition, OffsetChange] = {}
    places: dict[GroupAction, list[TopicPartition]] = {}
    repeats = skips = 0
    for position in group.positions:
        action, change, skipped = _order_place(position, written.get(position.remote))
        places.setdefault(action, []).append(position.remote)
        if change:
            changes[position.remote] = change
        if action in {"write", "level", "gone on"}:
            repeats += position.translated_repeats_at_most or 0
        skips += skipped
    unknown = tuple(places.get("unknown", ()))
    left = tuple(place for action in _LEFT for place in places.get(action, ()))
    settled = {
        place.remote: OffsetChange(place.on_target, place.on_target)
        for place in group.positions
        if place.remote in places.get("level", ()) and place.remote not in written and place.on_target is not None
    }
    order = GroupOrder(group.group, "level", {}, unknown, left, repeats, skips, group.on_source, settled)
    is_written = all(position.remote in written for position in group.positions)
    if group.has_members and not (is_written and not changes):
        return _acting(order, "active")
    if worst := next((action for action in _LEFT if action in places), None):
        return _acting(order, worst)
    if changes:
        return GroupOrder(group.group, "write", changes, unknown, (), repeats, 0, group.on_source)
    is_unknown = unknown and len(unknown) == len(group.positions)
    return _acting(order, "unknown" if is_unknown else "gone on" if "gone on" in places else "level")


_LEFT: tuple[GroupAction, ...] = ("ahead", "differs", "deleted", "changed", "uncertain")
"""What keeps a group from being written, worst first."""


def _order_place(  # noqa: PLR0911  one per action
    position: GroupPosition, done: OffsetChange | None
) -> tuple[GroupAction, OffsetChange | None, int]:
    """Return what is to become of a group in a partition, its new offset, and how many records it may skip."""
    start, goal = position.on_target, start_of(position)
    if done is not None and start is not None and start >= done.after:
        return "gone on" if start > done.after else "level", None, 0
    if done is not None and start != done.before:
        return "changed", None, 0
    if position.sampled == "differs":
        return "differs", None, 0
    if goal is None:
        return "unknown", None, 0
    if start is not None and start > goal:
        is_doubtful = position.risk_at(start).state == "unknown"
        return "uncertain" if is_doubtful else "ahead", None, start - goal
    if position.risk_at(goal).state == "skips":
        return "deleted", None, position.deleted
    return ("level", None, 0) if start == goal else ("write", OffsetChange(start, goal), 0)


def _acting(order: GroupOrder, action: GroupAction) -> GroupOrder:
    return replace(order, action=action)


def start_of(position: GroupPosition) -> int | None:
    """Return where a group is to start in a partition of the target; None where nothing tells."""
    if position.log is None:
        return None
    if position.bounds is None:
        return position.log.end if position.risk_at(position.log.end).state == "exact" else None
    return min(position.bounds.lower, position.log.end)


def order_groups(groups: Iterable[GroupReadiness], written: Mapping[str, Written]) -> tuple[GroupOrder, ...]:
    """Return what is to become of all groups, in their order."""
    return tuple(order_group(group, written.get(group.group, {})) for group in groups)


_TEXTS: Mapping[GroupAction, str] = {
    "active": "has members on the target: it is not written",
    "ahead": "is ahead of where it may start on the target: it would skip records, and is never set back",
    "deleted": "has not read records that the target has deleted, and that the source has: it would skip them",
    "differs": "would find other records on the target than on the source: it is not written",
    "uncertain": "may be ahead of where it may start on the target: it is not written",
    "changed": "was set elsewhere since it was written: it is left as it is",
}


def group_reasons(orders: Iterable[GroupOrder]) -> list[tuple[Word, str]]:
    """Return what speaks against a failover of these groups, each reason with its verdict."""
    by_reason: dict[tuple[Word, str], list[str]] = {}
    for order in orders:
        if text := _TEXTS.get(order.action):
            by_reason.setdefault((order.word, text), []).append(order.group)
        elif order.unknown:
            by_reason.setdefault((order.word, "position not known: it is not written there"), []).append(order.group)
    return [
        (word, f"{number_of(len(names), 'group')} ({few(sorted(names))}): {text}")
        for (word, text), names in by_reason.items()
    ]
