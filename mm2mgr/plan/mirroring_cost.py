"""Estimates what each write of a plan costs beyond its Connect cluster. It says which measurements it lacks; a cluster
that does not answer leaves its part of the estimate out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mm2mgr.assignment import round_robin
from mm2mgr.comparison.differences import Named
from mm2mgr.connectors import deals_in_turn, tasks_max_of
from mm2mgr.cost import log_bytes
from mm2mgr.errors import Mm2mgrError
from mm2mgr.lint.hops import filter_of, selection_of
from mm2mgr.lint.subject import Subject
from mm2mgr.live.questions import MeasuredTopics, StoredSizes, TranslatedGroups
from mm2mgr.live.record_sizes import TopicSizes
from mm2mgr.live.snapshot import Answer, Question, Steps, side_by_side
from mm2mgr.partitions import TopicPartition, listing_of, predict
from mm2mgr.plan.changes import WRITES, Change, Price, Volume
from mm2mgr.plan.draft import Draft
from mm2mgr.plan.judges import Connectors, mirrors_heartbeats
from mm2mgr.plan.mirrored import MirrorVerdict
from mm2mgr.plan.widening import MirroredState, Widening, renamed_text
from mm2mgr.topics.names import HEARTBEATS

_LATEST = "source.consumer.auto.offset.reset"
_Assigned = Callable[[str], bool]
_MEASURED_TOPICS = 40
_LEAST_UNCOMPRESSED_BYTES = 1_000_000
"""With less, it does not matter that compression was not counted, and little may be there to measure it on."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Estimate:
    """What was read for a plan; `sizes` are by alias of the source, and lack those that did not answer."""

    run: Connectors
    seen: MirroredState
    widenings: Mapping[Named, Widening]
    verdicts: Mapping[Named, MirrorVerdict]
    sizes: Mapping[str, TopicSizes]
    stored: Mapping[tuple[str, str], float | None]
    """What a record takes in topics of targets that were mirrored to, by alias and name; None: not measured."""
    groups: Mapping[Named, tuple[str, ...]]
    """What checkpoint connectors translate, where it could be read."""

    def with_price(self, change: Change) -> Change:
        """Return the change with what it costs."""
        named = change.full_name
        more = self.moves(change) + self.heartbeats(change)
        if named in self.verdicts:
            more += self.mirrors(change, self.widenings[named], self.verdicts[named])
        price = change.price
        if price.group_patterns and named in self.groups:
            price = replace(price, groups=self.groups[named], group_patterns=())
        return replace(change, price=price + more)

    def moves(self, change: Change) -> Price:
        """Return how many partitions get another task."""
        named = change.full_name
        desired, live = self.run.desired.get(named), self.run.live.get(named)
        if change.type != "source" or change.action != "update" or not desired or not live or not change.tasks:
            return Price()
        by_plugin = not all(deals_in_turn(subject.get("connector.class")) for subject in (live, desired))
        dealing = {"tasks.max", "connector.class"} if by_plugin else {"tasks.max"}
        if named not in self.widenings and not any(key.key in dealing for key in change.keys):
            return Price()
        if by_plugin:
            return Price(moved=None)  # an assignment is no matter of counts
        listed = self.seen.kafka(desired.source)
        most = tasks_max_of(change.config or {})
        tasks = change.tasks, 1 if most is None else most
        moves = count_moved(listed.topics, _assigned_topics(live), _assigned_topics(desired), tasks) if listed else None
        return Price(moved=moves[0], partitions=moves[1]) if moves else Price(moved=None)

    def heartbeats(self, change: Change) -> Price:
        """Return the heartbeats that are mirrored again, where another connector has mirrored them so far."""
        if not _begins_heartbeats(change, self.run):
            return Price()
        alias = self.run.desired[change.full_name].source
        sizes = self.sizes.get(alias)
        logs = {partition for partition in sizes.logs if partition.topic == HEARTBEATS} if sizes else set()
        if sizes is None or not logs:
            return Price(again=Volume(unmeasured=(f"heartbeats of '{alias}'",)))
        return Price(again=volume(sizes, [HEARTBEATS], self.seen.offsets.get(change.full_name) or {}, {}))

    def mirrors(self, change: Change, widening: Widening, verdict: MirrorVerdict) -> Price:
        """Return what is mirrored a second time, skipped, or called otherwise on the target."""
        final = [renamed_text(verdict.renamed, widening.target)] if verdict.renamed else []
        taken = change.takes
        new = [counts for topic, counts in taken.topics.items() if topic not in taken.stored] if taken else []
        records = sum(count for _, count in new)
        if records and (change.config or {}).get(_LATEST) == "latest" and not verdict.topics:
            final.append(f"{records} records that its topics have now are never mirrored ({_LATEST}=latest)")
        repeats = bool(verdict.again or verdict.topics)
        return Price(again=self.again(widening, verdict) if repeats else None, irreversible=tuple(final))

    def again(self, widening: Widening, verdict: MirrorVerdict) -> Volume:
        sizes = self.sizes.get(widening.source)
        if sizes is None or not verdict.topics:
            return Volume(unmeasured=(f"topics of '{widening.source}'",))
        names = {topic: widening.name_on_target(topic) for topic in verdict.topics}
        stored = {
            topic: self.stored[place]
            for topic, name in names.items()
            if (place := (widening.target, name)) in self.stored
        }
        return volume(sizes, verdict.topics, self.seen.offsets.get(widening.full_name) or {}, stored)


def _begins_heartbeats(change: Change, run: Connectors) -> bool:
    """Tell whether a write begins to mirror heartbeats that another mirrored, whose offsets do not come along."""
    after, before = run.desired.get(change.full_name), run.live.get(change.full_name)
    if change.type != "source" or change.action not in WRITES or change.takes_over or not after:
        return False
    if not mirrors_heartbeats(after) or (before and mirrors_heartbeats(before)):
        return False
    others = (subject for named, subject in run.live.items() if named != change.full_name and subject.type == "source")
    return any(subject.pair == after.pair and mirrors_heartbeats(subject) for subject in others)


def volume(
    sizes: TopicSizes, topics: Iterable[str], own: Mapping[TopicPartition, int], stored: Mapping[str, float | None]
) -> Volume:
    """Return what is mirrored of these topics, from the log's start or the offsets that a connector has of its `own`.

    `stored`: what a record takes on the target, None where that could not be measured; then, and where it was never
    mirrored there, its log counts as uncompressed.
    """
    records, size, unmeasured, uncompressed = 0, 0.0, [], []
    for topic in sorted(topics):
        logs = {partition: log for partition, log in sizes.logs.items() if partition.topic == topic}
        count = sum(max(0, log.end - max(log.start, own.get(partition, -1) + 1)) for partition, log in logs.items())
        mean = sizes.record_bytes.get(topic)
        if not logs or (count and mean is None):
            unmeasured.append(topic)
        records += count
        if mean is not None:
            size_there = stored.get(topic)
            size += count * (size_there or log_bytes(mean))
            if topic in stored and not size_there and count * mean >= _LEAST_UNCOMPRESSED_BYTES:
                uncompressed.append(topic)
    return Volume(records, round(size), tuple(unmeasured), tuple(uncompressed))


def count_moved(
    listed: Mapping[str, int], before: _Assigned | None, after: _Assigned | None, tasks: tuple[int, int]
) -> tuple[int, int] | None:
    """Return how many of a connector's partitions change their task, of how many; None if topics are unknown.

    `listed` has all topics of the source as its brokers list them, which decides the order; `tasks` are those before
    and after.
    """
    if before is None or after is None:
        return None
    listing = listing_of(_assignable(listed))
    was, now = (
        round_robin(predict(listing, takes).order, max(count, 1))
        for takes, count in zip((before, after), tasks, strict=True)
    )
    return was.count_moved(now), len(was.task_of)


def count_assigned(subject: Subject, listed: Mapping[str, int]) -> int | None:
    """Return how many of a source's partitions a connector assigns to its tasks; None where that is not known."""
    takes = _assigned_topics(subject)
    return None if takes is None else sum(count for topic, count in _assignable(listed).items() if takes(topic))


def _assignable(listed: Mapping[str, int]) -> dict[str, int]:
    return {topic: count for topic, count in listed.items() if not topic.startswith("__")}


def _assigned_topics(subject: Subject) -> _Assigned | None:
    """Return which topics a connector assigns to its tasks: those it takes, and heartbeats that come in no circle."""
    selection = selection_of(subject)
    if selection is None:
        return None
    heartbeats = mirrors_heartbeats(subject)

    def takes(topic: str) -> bool:
        return selection.takes(topic) or (heartbeats and selection.takes_heartbeats(topic))

    return takes


# --- reading ----------------------------------------------------------------------------------------------------------


def read_estimate(
    draft: Draft,
    run: Connectors,
    state: MirroredState,
    writes_that_widen: Sequence[Widening],
    verdicts: Mapping[Named, MirrorVerdict],
) -> Steps[Estimate]:
    """Read what the estimate for the draft's writes needs, beside what was read already."""
    widenings, writes = {widening.full_name: widening for widening in writes_that_widen}, tuple(draft.writes)
    sources = [run.desired[write.full_name].source for write in writes if _begins_heartbeats(write, run)]
    sizes = yield from _read_sizes(state, writes_that_widen, verdicts, sources)
    stored, groups = yield from side_by_side(
        _read_stored(state, writes_that_widen, verdicts, sizes),
        _read_groups(draft.declared.topology.clusters, run, writes),
    )
    return Estimate(run, state, widenings, verdicts, sizes, stored, groups)


def _answers(questions: Mapping[Key, Question[Answer]]) -> Steps[dict[Key, Answer]]:
    snapshot = yield questions.values()
    answers = {key: snapshot.get(question) for key, question in questions.items()}
    return {key: answer for key, answer in answers.items() if not isinstance(answer, Mm2mgrError)}


def _read_sizes(
    state: MirroredState,
    widenings: Iterable[Widening],
    verdicts: Mapping[Named, MirrorVerdict],
    with_heartbeats: Iterable[str],
) -> Steps[dict[str, TopicSizes]]:
    """Measure what would be mirrored a second time, by source; a source that does not answer is missing."""
    counts: dict[str, dict[str, int]] = {alias: {HEARTBEATS: 1} for alias in with_heartbeats}
    for widening in widenings:
        if listed := state.kafka(widening.source):
            for topic in verdicts[widening.full_name].topics:
                counts.setdefault(widening.source, {})[topic] = listed.topics.get(topic, 0)
    return (
        yield from _answers({alias: MeasuredTopics(alias, tuple(topics.items())) for alias, topics in counts.items()})
    )


def _read_stored(
    state: MirroredState,
    widenings: Iterable[Widening],
    verdicts: Mapping[Named, MirrorVerdict],
    sizes: Mapping[str, TopicSizes],
) -> Steps[dict[tuple[str, str], float | None]]:
    """Measure what records take where they were mirrored to, by alias and topic, on the largest; None for what is not
    measured.
    """
    sampled: dict[str, dict[str, tuple[int, float]]] = {}
    for widening in widenings:
        listed, sizes_there = state.kafka(widening.target), sizes.get(widening.source)
        if not listed or not sizes_there:
            continue
        for topic in verdicts[widening.full_name].topics:
            name, mean = widening.name_on_target(topic), sizes_there.record_bytes.get(topic)
            if mean is not None and listed.log_ends[name]:
                sampled.setdefault(widening.target, {})[name] = listed.topics[name], mean
    questions = {}
    for alias, topics in sampled.items():
        listed = state.kafka(alias)
        largest = sorted(topics, key=lambda name: -listed.log_ends[name] if listed else 0)[:_MEASURED_TOPICS]
        questions[alias] = StoredSizes(alias, tuple((name, *topics[name]) for name in largest))
    answers = yield from _answers(questions)
    return {(alias, name): answers.get(alias, {}).get(name) for alias, topics in sampled.items() for name in topics}


def _read_groups(
    clusters: Collection[str], run: Connectors, writes: Iterable[Change]
) -> Steps[dict[Named, tuple[str, ...]]]:
    """Read which consumer groups the checkpoint connectors translate that start anew; those of a source that does not
    answer are missing.
    """
    questions = {}
    for change in writes:
        subject = run.desired.get(change.full_name)
        if subject is None or not change.price.group_patterns or subject.source not in clusters:
            continue
        groups, topics = filter_of(subject, "groups"), filter_of(subject)
        if groups is not None and topics is not None:
            questions[change.full_name] = TranslatedGroups(subject.source, groups, topics)
    return (yield from _answers(questions))
