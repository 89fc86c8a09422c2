"""What the last looks at a pair leave of its source, for the day on which the source does not answer. Pure.

Offset syncs are on the source by default, and what groups committed and where logs end is there in any case. The newest
of it is kept, with the time at which it was read. It comes from the store and is no authority: whoever judges by it
says how old it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from mm2mgr.failover.syncs import OffsetSync, OffsetSyncLog
from mm2mgr.failover.translation import MirroredEnds
from mm2mgr.partitions import TopicPartition

SYNCS_KEPT = 64
"""Newest syncs kept of a partition, as many as OffsetSyncStore has; beside those next to what groups committed."""
Ids = tuple[str, str]
"""The id of a topic on the source, and that of its remote topic."""


class AnewPlace(NamedTuple):
    """A partition of a source topic that was made anew, with another id, while its remote topic stayed: after `at`
    (seconds since 1970), the last look that saw the old topic. What was mirrored before is below `target_end` on the
    target, or came up to the end of the old one; ids of both topics as they are now."""

    at: float
    target_end: int
    source_id: str
    target_id: str

    def syncs_since(self, syncs: Sequence[OffsetSync], source_start: int) -> tuple[OffsetSync, ...]:
        """Return the offset syncs of the new topic, once it was mirrored from its start; none before."""
        begun = [
            place
            for place, sync in enumerate(syncs)
            if sync.upstream <= source_start and sync.downstream >= self.target_end
        ]
        return tuple(syncs[begun[-1] :]) if begun else ()


@dataclass(frozen=True)
class KeptLooks:
    """What is known of a pair's source: the offsets that groups committed there, how far its partitions were mirrored,
    and the offset syncs, each with when all of it was read (seconds since 1970, 0: never).

    `group_times`: groups that were read at another time than `commits_at`. `topic_ids`: ids of source topics and of
    their remote topics at `ends_at`, where both are known (Kafka 2.8 and newer): to know them again by. `anew`:
    partitions whose topic was made anew on the source, until its remote topic is too.
    """

    commits: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    commits_at: float = 0.0
    ends: Mapping[TopicPartition, MirroredEnds] = field(default_factory=dict)
    ends_at: float = 0.0
    syncs: OffsetSyncLog = field(default_factory=OffsetSyncLog)
    syncs_at: float = 0.0
    group_times: Mapping[str, float] = field(default_factory=dict)
    topic_ids: Mapping[str, Ids] = field(default_factory=dict)
    anew: Mapping[TopicPartition, AnewPlace] = field(default_factory=dict)

    def made_anew(
        self, remotes: Mapping[str, str], source_ids: Mapping[str, str], target_ids: Mapping[str, str]
    ) -> dict[TopicPartition, AnewPlace]:
        """Return the partitions whose topics were made anew on the source since earlier looks, by the ids of today.

        `remotes`: names on the target by topic. Ids that are not told are those of the last look. Where the remote
        topic was made anew too, nothing of the old one is left.
        """
        anew: dict[TopicPartition, AnewPlace] = {}
        for partition in sorted({*self.ends, *self.anew}):
            topic, before = partition.topic, self.anew.get(partition)
            source_id, target_id = self.topic_ids.get(topic, ("", ""))
            if before is not None:
                source_id, target_id = before.source_id, before.target_id
            if not source_id or topic not in remotes or target_ids.get(remotes[topic], target_id) != target_id:
                continue
            source_now = source_ids.get(topic, source_id)
            if source_now != source_id and partition in self.ends and self.ends[partition].target:
                anew[partition] = AnewPlace(self.ends_at, self.ends[partition].target, source_now, target_id)
            elif before is not None:
                anew[partition] = before._replace(source_id=source_now)
        return anew

    @property
    def is_whole(self) -> bool:
        """Whether every part of it was read, so that nothing of an earlier look is needed."""
        return all((self.commits_at, self.ends_at, self.syncs_at))

    @property
    def oldest_at(self) -> float | None:
        """When the part that was read first was read (seconds since 1970); None where one was never read."""
        times = (self.commits_at, self.ends_at, self.syncs_at)
        return min((*times, *self.group_times.values())) if self.is_whole else None

    def age_seconds(self, now: float) -> float | None:
        """Return how old the oldest part of it is; None where one was never read."""
        return None if self.oldest_at is None else max(0.0, now - self.oldest_at)

    def group_read_at(self, group: str) -> float:
        """Return when what a group committed was read, in seconds since 1970; 0 where it never was."""
        return self.group_times.get(group, self.commits_at if group in self.commits else 0.0)

    def join(self, other: KeptLooks) -> KeptLooks:
        """Return the newer parts of two looks at the same pair, with no more syncs than translating the groups takes.

        A part that was not read stays as it was, with its time; a group does that only some groups were read beside.
        Syncs that compaction removed since stay before those of the newer look, where the topics are the same.
        """
        older, newer = sorted((self, other), key=lambda look: look.syncs_at)
        syncs = replace(
            newer.syncs,
            by_partition={
                partition: older.syncs_before(partition, syncs, newer.topic_ids) + syncs
                for partition, syncs in newer.syncs.by_partition.items()
            },
        )
        last = max((self, other), key=lambda look: look.ends_at)
        looks = KeptLooks({}, 0.0, last.ends, last.ends_at, syncs, newer.syncs_at, {}, last.topic_ids, last.anew)
        return looks.with_commits(self, other).thin()

    def syncs_before(
        self, partition: TopicPartition, syncs: Sequence[OffsetSync], topic_ids: Mapping[str, Ids]
    ) -> tuple[OffsetSync, ...]:
        """Return the syncs that a newer look no longer has: all of them were written before those that it has."""
        ids = topic_ids.get(partition.topic)
        if ids is None or ids != self.topic_ids.get(partition.topic):
            return ()
        present = set(syncs)
        return tuple(sync for sync in self.syncs.by_partition.get(partition, ()) if sync not in present)

    def with_commits(self, first: KeptLooks, second: KeptLooks) -> KeptLooks:
        """Return it with what groups committed as two looks have it, each group as it was read last.

        A group that only the older of two whole readings has is gone.
        """
        commits_at = max(first.commits_at, second.commits_at)
        commits: dict[str, Mapping[TopicPartition, int]] = {}
        times: dict[str, float] = {}
        for look in sorted((first, second), key=lambda look: look.commits_at):
            for group, offsets in look.commits.items():
                at = look.group_read_at(group)
                if at >= max(commits_at, times.get(group, 0.0)):
                    commits[group], times[group] = offsets, at
        apart = {group: at for group, at in times.items() if at != commits_at}
        return replace(self, commits=commits, commits_at=commits_at, group_times=apart)

    def thin(self) -> KeptLooks:
        """Return it with no more syncs than translating its groups takes."""
        committed: dict[TopicPartition, set[int]] = {}
        for offsets in self.commits.values():
            for partition, offset in offsets.items():
                committed.setdefault(partition, set()).add(offset)
        thin = {
            partition: thin_syncs(syncs, sorted(committed.get(partition, ())))
            for partition, syncs in self.syncs.by_partition.items()
        }
        return replace(self, syncs=replace(self.syncs, by_partition=thin))


def thin_syncs(syncs: Sequence[OffsetSync], committed: Sequence[int]) -> tuple[OffsetSync, ...]:
    """Return the syncs of a partition, in their order, that translating these offsets (in order) takes.

    These are the newest, and of each run in which no offset goes back the first, the last, and those next to each
    offset; the oldest go where that is more than `SYNCS_KEPT` and two for each offset.
    """
    if len(syncs) <= SYNCS_KEPT:
        return tuple(syncs)
    places = set(range(len(syncs) - SYNCS_KEPT, len(syncs)))
    for first, end in _runs(syncs):
        upstream = [sync.upstream for sync in syncs[first:end]]
        places |= {first, end - 1}
        for offset in committed:
            above = first + bisect_right(upstream, offset)
            places |= {place for place in (above - 1, above) if first <= place < end}
    chosen = sorted(places)[-(SYNCS_KEPT + 2 * len(committed)) :]
    return tuple(syncs[place] for place in chosen)


def _runs(syncs: Sequence[OffsetSync]) -> Iterator[tuple[int, int]]:
    """Yield where runs begin and end in which neither offset goes back, as one does when records are mirrored again."""
    breaks = [
        place
        for place, (before, sync) in enumerate(pairwise(syncs), 1)
        if sync.upstream < before.upstream or sync.downstream < before.downstream
    ]
    yield from pairwise([0, *breaks, len(syncs)])
