"""Estimates what each write of a plan costs beyond its Connect cluster. What it needs is read from Kafka clusters first; one that does not answer
leaves its part of the estimate out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from mm2mgr.assignment import listing_of, partitions_by_task, predict
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.lint.hops import filter_of, selection_of
from mm2mgr.lint.subject import Subject
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.reconcile.guards import Connectors, mirrors_heartbeats
from mm2mgr.reconcile.mirrored import MirrorVerdict
from mm2mgr.reconcile.plan import WRITES, Change, Named
from mm2mgr.reconcile.price import Price, Volume
from mm2mgr.reconcile.renames import renamed_text
from mm2mgr.reconcile.widening import MirroredState, Widening
from mm2mgr.topics.names import HEARTBEATS
from mm2mgr.topology import KafkaCluster

_LATEST = "source.consumer.auto.offset.reset"
_Assigned = Callable[[str], bool]
_RECORD_OVERHEAD_BYTES = (
    10  # of a record in a log besides key, value and headers: lengths, attributes, deltas of time and offset
)
_BATCH_BYTES, _BATCH_HEADER_BYTES = 16_384, 61  # Kafka's default batch.size, and what each batch takes
_MEASURED_TOPICS = 40
_SAMPLED_PARTITIONS = 60
_RECORDS_PER_WINDOW = 200
_AT_ONCE = 64
_TIMEOUT_SECONDS = 3.0
_MEASURING_SECONDS = 10.0


@dataclass(frozen=True)
class TopicSizes:
    """Logs of the partitions of some topics, and the mean size of their records (key, value and headers) by topic, where measured.

    Sizes are before compression.
    """

    logs: Mapping[TopicPartition, Offsets]
    record_bytes: Mapping[str, float]


@dataclass(frozen=True)
class Estimate:
    """What was read for a plan; `sizes` are by alias of the source, and lack those that did not answer."""

    run: Connectors
    seen: MirroredState
    widenings: Mapping[Named, Widening]
    verdicts: Mapping[Named, MirrorVerdict]
    sizes: Mapping[str, TopicSizes]
    stored: Mapping[tuple[str, str], float]
    """What a record takes in topics of targets, by alias and name, where it was measured."""
    groups: Mapping[Named, tuple[str, ...]]
    """What checkpoint connectors translate, where it could be read."""

    def priced(self, change: Change) -> Change:
        """Return the change with what it costs."""
        named = change.named
        more = self.moves(change) + self.heartbeats(change)
        if named in self.verdicts:
            more += self.mirrors(change, self.widenings[named], self.verdicts[named])
        price = change.price
        if price.group_patterns and named in self.groups:
            price = replace(price, groups=self.groups[named], group_patterns=())
        return replace(change, price=price + more)

    def moves(self, change: Change) -> Price:
        """Return how many partitions get another task."""
        named = change.named
        wanted, live = self.run.desired.get(named), self.run.live.get(named)
        if change.type != "source" or change.action != "update" or not wanted or not live or not change.tasks:
            return Price()
        if named not in self.widenings and not any(key.key == "tasks.max" for key in change.keys):
            return Price()
        listed = self.seen.listed(wanted.source)
        most = (change.config or {}).get("tasks.max", "1")
        tasks = change.tasks, int(most) if most.isdecimal() else 1
        found = moved(listed.partitions, _assigned(live), _assigned(wanted), tasks) if listed else None
        return Price(moved=found[0], partitions=found[1]) if found else Price(moved=None)

    def heartbeats(self, change: Change) -> Price:
        """Return the heartbeats that are mirrored again, where another connector has mirrored them so far."""
        if not begins_heartbeats(change, self.run):
            return Price()
        alias = self.run.desired[change.named].source
        sizes = self.sizes.get(alias)
        logs = {partition for partition in sizes.logs if partition.topic == HEARTBEATS} if sizes else set()
        if sizes is None or not logs:
            return Price(again=Volume(unmeasured=(f"heartbeats of '{alias}'",)))
        return Price(again=volume(sizes, [HEARTBEATS], self.seen.offsets.get(change.named) or {}, {}))

    def mirrors(self, change: Change, widening: Widening, verdict: MirrorVerdict) -> Price:
        """Return what is mirrored a second time, skipped, or called otherwise on the target."""
        final = [renamed_text(verdict.renamed, widening.target)] if verdict.renamed else []
        records = sum(count for _, count in change.takes.topics.values()) if change.takes else 0
        if records and (change.config or {}).get(_LATEST) == "latest" and not verdict.topics:
            final.append(f"{records} records that its topics have now are never mirrored ({_LATEST}=latest)")
        repeats = bool(verdict.again or verdict.topics)
        return Price(again=self.again(widening, verdict) if repeats else None, irreversible=tuple(final))

    def again(self, widening: Widening, verdict: MirrorVerdict) -> Volume:
        sizes = self.sizes.get(widening.source)
        if sizes is None or not verdict.topics:
            return Volume(unmeasured=(f"topics of '{widening.source}'",))
        found = {topic: self.stored.get((widening.target, widening.renamed(topic))) for topic in verdict.topics}
        stored = {topic: size for topic, size in found.items() if size}
        return volume(sizes, verdict.topics, self.seen.offsets.get(widening.named) or {}, stored)


def begins_heartbeats(change: Change, run: Connectors) -> bool:
    """Tell whether a write begins to mirror heartbeats that another connector has mirrored, whose stored offsets do not come along."""
    after, before = run.desired.get(change.named), run.live.get(change.named)
    if change.type != "source" or change.action not in WRITES or change.takes_over or not after:
        return False
    if not mirrors_heartbeats(after) or (before and mirrors_heartbeats(before)):
        return False
    others = (subject for named, subject in run.live.items() if named != change.named and subject.type == "source")
    return any(subject.pair == after.pair and mirrors_heartbeats(subject) for subject in others)


def volume(
    sizes: TopicSizes, topics: Iterable[str], own: Mapping[TopicPartition, int], stored: Mapping[str, float]
) -> Volume:
    """Return what is mirrored of these topics, from the log's start or the offsets that a connector has of its `own`.

    `stored` has what a record takes on the target, where it was measured on what is there; else its log counts as uncompressed.
    """
    records, size, unmeasured = 0, 0.0, []
    for topic in sorted(topics):
        logs = {one: log for one, log in sizes.logs.items() if one.topic == topic}
        count = sum(max(0, log.end - max(log.start, own.get(one, -1) + 1)) for one, log in logs.items())
        mean = sizes.record_bytes.get(topic)
        if not logs or (count and mean is None):
            unmeasured.append(topic)
        records += count
        size += count * (stored.get(topic) or log_bytes(mean)) if mean is not None else 0
    return Volume(records, round(size), tuple(unmeasured))


def log_bytes(record_bytes: float) -> float:
    """Return what a record of this size takes in a log, with its share of the batch's header."""
    whole = record_bytes + _RECORD_OVERHEAD_BYTES
    return whole + _BATCH_HEADER_BYTES / max(1.0, _BATCH_BYTES // whole)


def moved(
    listed: Mapping[str, int], before: _Assigned | None, after: _Assigned | None, tasks: tuple[int, int]
) -> tuple[int, int] | None:
    """Return how many of a connector's partitions get another task, and how many it has; None where its topics are not known.

    `listed` has all topics of the source as its brokers list them, which decides the order; `tasks` are those before and after.
    """
    if before is None or after is None:
        return None
    listing = listing_of({topic: count for topic, count in listed.items() if not topic.startswith("__")})
    was, now = (
        {
            one: task
            for task, its_own in enumerate(partitions_by_task(predict(listing, takes).order, max(count, 1)))
            for one in its_own
        }
        for takes, count in zip((before, after), tasks, strict=True)
    )
    return sum(now.get(one, task) != task for one, task in was.items()), len(was)


def _assigned(subject: Subject) -> _Assigned | None:
    """Return which topics a connector assigns to its tasks: those it takes, and heartbeats that come in no circle."""
    selection = selection_of(subject)
    if selection is None:
        return None
    heartbeats = mirrors_heartbeats(subject)

    def takes(topic: str) -> bool:
        return selection.takes(topic) or (heartbeats and selection.takes_heartbeats(topic))

    return takes


# --- reading ----------------------------------------------------------------------------------------------------------


async def read_estimate(  # noqa: PLR0913, PLR0917  what was found out for one plan
    clusters: Mapping[str, KafkaCluster],
    run: Connectors,
    seen: MirroredState,
    found: Sequence[Widening],
    verdicts: Mapping[Named, MirrorVerdict],
    writes: Iterable[Change],
) -> Estimate:
    """Read what the estimate for these writes needs, beside what was read already."""
    widenings, writes = {each.named: each for each in found}, tuple(writes)
    sources = [run.desired[each.named].source for each in writes if begins_heartbeats(each, run)]
    sizes = await _read_sizes(clusters, seen, found, verdicts, sources)
    stored, groups = await asyncio.gather(
        _read_stored(clusters, seen, found, verdicts, sizes), _read_groups(clusters, run, writes)
    )
    return Estimate(run, seen, widenings, verdicts, sizes, stored, groups)


async def _read_sizes(
    clusters: Mapping[str, KafkaCluster],
    seen: MirroredState,
    found: Iterable[Widening],
    verdicts: Mapping[Named, MirrorVerdict],
    with_heartbeats: Iterable[str],
) -> dict[str, TopicSizes]:
    """Measure what would be mirrored a second time, by source; a source that does not answer is missing."""
    wanted: dict[str, dict[str, int]] = {alias: {HEARTBEATS: 1} for alias in with_heartbeats}
    for each in found:
        if listed := seen.listed(each.source):
            for topic in verdicts[each.named].topics:
                wanted.setdefault(each.source, {})[topic] = listed.partitions.get(topic, 0)
    sizes: dict[str, TopicSizes] = {}

    async def of_kafka(alias: str) -> None:
        with suppress(Mm2mgrError):
            sizes[alias] = await asyncio.to_thread(read_sizes, kafka_access(clusters[alias]), wanted[alias])

    await asyncio.gather(*map(of_kafka, wanted))
    return sizes


async def _read_stored(
    clusters: Mapping[str, KafkaCluster],
    seen: MirroredState,
    found: Iterable[Widening],
    verdicts: Mapping[Named, MirrorVerdict],
    sizes: Mapping[str, TopicSizes],
) -> dict[tuple[str, str], float]:
    """Measure what records take where they were mirrored to, by alias and topic, on the largest; what cannot be measured is missing."""
    sampled: dict[str, dict[str, tuple[int, float]]] = {}
    for each in found:
        listed, known = seen.listed(each.target), sizes.get(each.source)
        if not listed or not known:
            continue
        for topic in verdicts[each.named].topics:
            name, mean = each.renamed(topic), known.record_bytes.get(topic)
            if mean is not None and listed.written.get(name, 0):
                sampled.setdefault(each.target, {})[name] = listed.partitions[name], mean
    stored: dict[tuple[str, str], float] = {}

    async def of_kafka(alias: str) -> None:
        listed = seen.listed(alias)
        largest = sorted(sampled[alias], key=lambda name: -listed.written[name] if listed else 0)
        topics = {name: sampled[alias][name] for name in largest[:_MEASURED_TOPICS]}
        with suppress(Mm2mgrError):
            read = await asyncio.to_thread(read_stored, kafka_access(clusters[alias]), topics)
            stored.update({(alias, name): size for name, size in read.items()})

    await asyncio.gather(*map(of_kafka, sampled))
    return stored


async def _read_groups(
    clusters: Mapping[str, KafkaCluster], run: Connectors, writes: Iterable[Change]
) -> dict[Named, tuple[str, ...]]:
    """Read which consumer groups the checkpoint connectors translate that start anew; those of a source that does not answer are missing."""
    found: dict[Named, tuple[str, ...]] = {}

    async def of(named: Named) -> None:
        subject = run.desired[named]
        groups, topics = filter_of(subject, "groups"), filter_of(subject)
        if groups is None or topics is None or subject.source not in clusters:
            return
        access = kafka_access(clusters[subject.source])
        with suppress(Mm2mgrError):
            found[named] = await asyncio.to_thread(read_groups, access, groups.matches, topics.takes)

    priced = (each.named for each in writes if each.price.group_patterns)
    await asyncio.gather(*(of(named) for named in priced if named in run.desired))
    return found


def read_groups(
    access: KafkaAccess,
    wanted: Callable[[str], bool],
    carried: Callable[[str], bool],
) -> tuple[str, ...]:
    """Return the wanted consumer groups that committed offsets on a topic that is carried. Blocks; raises KafkaError."""
    from mm2mgr.kafka.client import Kafka
    from mm2mgr.kafka.inspection import translated_groups

    with Kafka(access, _TIMEOUT_SECONDS) as kafka:
        kafka.within(_TIMEOUT_SECONDS)
        return translated_groups(kafka, wanted, carried)


def read_sizes(access: KafkaAccess, topics: Mapping[str, int]) -> TopicSizes:
    """Return logs and record sizes of topics (name → partitions), sampled at the start, the middle and the end of large ones. Blocks; raises KafkaError."""
    from mm2mgr.kafka.client import Kafka
    from mm2mgr.kafka.records import ReadLimits, mean_record_bytes

    with Kafka(access, _TIMEOUT_SECONDS) as kafka:
        logs = kafka.offsets(TopicPartition(name, number) for name, count in topics.items() for number in range(count))
    by_size = sorted(
        (one for one in logs if logs[one].end > logs[one].start), key=lambda one: logs[one].start - logs[one].end
    )
    first = {one.topic: one for one in reversed(by_size)}
    sampled = list(dict.fromkeys((*first.values(), *by_size)))[:_SAMPLED_PARTITIONS]
    found: dict[str, list[float]] = {}
    for part in (0.0, 0.5, 1.0):
        windows = {}
        for one in sampled:
            log = logs[one]
            start = log.start + int(part * max(0, log.end - log.start - _RECORDS_PER_WINDOW))
            windows[one] = Offsets(start, min(log.end, start + _RECORDS_PER_WINDOW))
        limits = ReadLimits(_RECORDS_PER_WINDOW, limit_seconds=_TIMEOUT_SECONDS)
        for one, mean in mean_record_bytes(access, windows, limits).items():
            found.setdefault(one.topic, []).append(mean)
    return TopicSizes(logs, {topic: sum(means) / len(means) for topic, means in found.items()})


def read_stored(access: KafkaAccess, topics: Mapping[str, tuple[int, float]]) -> dict[str, float]:
    """Return what a record takes in the logs of topics (name → partitions, and the size of a record before compression).

    Too small ones are left out. Blocks; raises KafkaError.
    """
    from mm2mgr.kafka.client import Kafka
    from mm2mgr.kafka.records import stored_record_bytes

    with Kafka(access, _MEASURING_SECONDS) as kafka:
        every = (TopicPartition(name, number) for name, (count, _) in topics.items() for number in range(count))
        logs = kafka.offsets(every)
    of = ({one: log for one, log in logs.items() if one.topic == name} for name in topics)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = threads.map(partial(stored_record_bytes, access), of, (size for _, size in topics.values()))
        return {name: size for name, size in zip(topics, found, strict=True) if size is not None}
