"""What the last looks at a pair leave for the day on which its source does not answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mm2mgr.failover.syncs import OffsetSyncs
from mm2mgr.failover.translation import Ends
from mm2mgr.partitions import TopicPartition


@dataclass(frozen=True)
class KeptLooks:
    """The last look at a pair: the offsets that groups had committed on the source, how far each of its partitions was
    mirrored, and the offset syncs; each with when it was read (seconds since 1970)."""

    commits: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    commits_at: float = 0.0
    ends: Mapping[TopicPartition, Ends] = field(default_factory=dict)
    ends_at: float = 0.0
    syncs: OffsetSyncs = field(default_factory=OffsetSyncs)
    syncs_at: float = 0.0
