"""What a change costs: tasks that restart, partitions that another task gets, records that are mirrored again, what
cannot be undone. Pure.

Costly kinds are written only where `--allow KIND`, or `allow: [KIND]` on the flow, says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mm2mgr.json_values import to_json

KINDS = {
    "mirror-again": "mirror records a second time that another connector has mirrored",
    "target-names": "mirror topics of a flow that runs under other names on the target from now on",
    "deletes": "delete more connectors than go unasked (half of this owner's; 10, or 20 % of them)",
}
"""The costly kinds of change; `deletes` belongs to no flow. The flow's `allow` (spec) has the others."""


@dataclass(frozen=True)
class Volume:
    """Records, and bytes of them in the target's log; `unmeasured` names what could not be measured, and is not in
    them.
    """

    records: int = 0
    size_bytes: int = 0
    unmeasured: tuple[str, ...] = ()
    json_keys = "records bytes=size_bytes unmeasured"

    def __add__(self, other: Volume) -> Volume:
        unmeasured = tuple(dict.fromkeys((*self.unmeasured, *other.unmeasured)))
        return Volume(self.records + other.records, self.size_bytes + other.size_bytes, unmeasured)


@dataclass(frozen=True)
class Price:
    """What one change costs, or several together.

    `restarts` are tasks that run now and start anew; `moved` of `partitions` get another task, None where they could
    not be counted; `again` is what is mirrored a second time; `groups` are consumer groups whose checkpoints start
    anew, `group_patterns` what they match where they could not be read; `irreversible` says what no later plan undoes.
    """

    restarts: int = 0
    moved: int | None = 0
    partitions: int = 0
    again: Volume | None = None
    groups: tuple[str, ...] = ()
    group_patterns: tuple[str, ...] = ()
    irreversible: tuple[str, ...] = ()

    def __add__(self, other: Price) -> Price:
        return Price(
            self.restarts + other.restarts,
            None if self.moved is None or other.moved is None else self.moved + other.moved,
            self.partitions + other.partitions,
            self.again + other.again if self.again and other.again else self.again or other.again,
            tuple(dict.fromkeys((*self.groups, *other.groups))),
            tuple(dict.fromkeys((*self.group_patterns, *other.group_patterns))),
            tuple(dict.fromkeys((*self.irreversible, *other.irreversible))),
        )

    def to_dict(self) -> dict[str, Any] | None:
        """Return JSON-ready values, None for nothing."""
        if self == Price():
            return None
        return {
            "restarts": self.restarts,
            "moved_partitions": self.moved,
            "partitions": self.partitions,
            "again": to_json(self.again),
            "groups": list(self.groups),
            "group_patterns": list(self.group_patterns),
            "irreversible": list(self.irreversible),
        }


def summed(prices: Iterable[Price]) -> Price:
    """Return the prices together."""
    return sum(prices, Price())
