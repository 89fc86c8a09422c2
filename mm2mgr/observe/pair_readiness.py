"""Whether a pair can fail over, from one look at it: positions of groups, what would be lost, what differs. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.failover.check import (
    GroupPosition,
    GroupReadiness,
    PairReadiness,
    PositionBounds,
    RecoveryPoint,
    Sampled,
    TimeToExpect,
    TopicTraits,
    bounds_of,
)
from mm2mgr.failover.kept import AnewPlace, KeptLooks
from mm2mgr.failover.reverse import BackBound, ReverseSyncs
from mm2mgr.failover.syncs import Checkpoint, CheckpointLog, OffsetSync, OffsetSyncLog
from mm2mgr.failover.translation import MirroredEnds, TargetFacts, Translation, translate_all
from mm2mgr.kafka.acls import Right
from mm2mgr.kafka.groups import RecordMark, RecordPlace
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.live.questions import RecordMarks, RecordTimes
from mm2mgr.live.snapshot import Steps
from mm2mgr.observe.lag import FlowLag, is_only_writer, most_behind
from mm2mgr.observe.memory import Memory, measure_lags
from mm2mgr.observe.pair_look import (
    PairGroups,
    PairLogs,
    PairLook,
    PairToJudge,
    is_listed,
    look_at_pair,
    read_groups,
    read_pair_logs,
    take_internal,
)
from mm2mgr.observe.pair_remarks import compare_clusters, note_connectors, note_groups, syncs_groups
from mm2mgr.observe.reading import Reading
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.remarks import Effect, Remark
from mm2mgr.samples.schema import utc_text
from mm2mgr.schemas import BROKEN, OpenPoint, PairTopics, effect_of, find_schemas, remedy_of
from mm2mgr.spec.scalars import java_pattern
from mm2mgr.text import few, number_of
from mm2mgr.topics.names import readable
from mm2mgr.truth.reach import numbers

_BELIEVED = (3, 4, 1)  # KAFKA-12468: before it checkpoints may be ahead
_MOST_TIMES = 1_000  # partitions that are behind, of which one record each is read for its time
_MOST_MARKS = 500  # records read on the target to find the one that a group reads next
_MOST_COUNTED = 200  # positions within what came from the target, whose records are read on both sides
_SYNC_SECONDS = 60.0
_NO_CONNECTOR = "its connector was not read, or is not applied"


@dataclass(frozen=True)
class JudgedPair:
    """Whether a pair can fail over, and what that was judged by."""

    readiness: PairReadiness
    look: PairLook
    logs: PairLogs
    lags: Mapping[str, FlowLag]


def pair_readiness(pair: PairToJudge, memory: Memory, clock: Callable[[], float]) -> Steps[PairReadiness]:
    """Return whether a pair can fail over, from answers."""
    return (yield from judged_pair(pair, memory, clock)).readiness


def judged_pair(pair: PairToJudge, memory: Memory, clock: Callable[[], float]) -> Steps[JudgedPair]:
    """Return the same, with what was read."""
    options, earlier = pair.options, pair.earlier
    if options.groups is not None and not readable(java_pattern(options.groups), topics=False):
        raise InvalidArgument("group", f"{options.groups!r} is no expression that Java reads")
    begun_at = clock()
    look = yield from look_at_pair(pair)
    groups = yield from read_groups(look)
    logs = yield from read_pair_logs(look, groups)
    reading = reading_of_pair(look, logs, begun_at, clock())
    lags = measure_lags(reading, memory) if look.source_view else {}
    positions, ways = _positions(look, groups, logs, reading, lags)
    anew = _partitions_made_anew(look, groups, logs)
    recovery = yield from _recovery(look, lags, anew, clock())
    positions = yield from _with_records_of_way_there(look, logs, positions, ways)
    positions = yield from _with_samples(look, logs, positions)
    yield from _compare_schemas(look, logs)
    compare_clusters(look, groups, logs)
    look.remarks += _anew_remarks(look, groups, logs)
    note_groups(look, groups, positions)
    note_connectors(look)
    readiness = PairReadiness(
        pair.flows[0].pair,
        clock(),
        _by_group(look, groups, positions),
        tuple(look.remarks),
        tuple(look.unread),
        recovery,
        _time_to_expect(look, recovery),
        0.0 if look.source_view else earlier.age_seconds(clock()) if earlier else None,
        options.translated,
        options.groups,
        sum(bool(position.sampled) for position in positions),
        look_to_keep(look, groups, logs, lags, begun_at),
        _topic_traits(look, logs),
    )
    return JudgedPair(readiness, look, logs, lags)


def reading_of_pair(look: PairLook, logs: PairLogs, begun_at: float, taken_at: float) -> Reading:
    """Return the same as `status` reads it, so that lag is counted as there."""
    source, target = look.source_view, look.target_view
    clusters = {
        look.source.alias: RunningKafka(source.partitions if source else {}, logs.source),
        look.target.alias: RunningKafka(target.partitions if target else {}, logs.target),
    }
    connects = {look.connect.name: look.connect}
    return Reading(
        taken_at, tuple(look.pair.flows), connects, clusters, begun_at=begun_at, declared=look.pair.topology.flows
    )


# --- positions --------------------------------------------------------------------------------------------------------


def _positions(
    look: PairLook,
    groups: PairGroups,
    logs: PairLogs,
    reading: Reading,
    lags: Mapping[str, FlowLag],
) -> tuple[list[GroupPosition], dict[int, BackBound]]:
    """Return the positions of all groups in mirrored partitions, partition by partition, and what offset syncs of the
    way there tell of some, by their numbers."""
    by_partition: dict[TopicPartition, list[tuple[str, int]]] = defaultdict(list)
    for group, places in sorted(groups.committed.items()):
        if not look.is_synced(group):
            continue
        for partition, offset in places.items():
            if partition.topic in logs.remotes:
                by_partition[partition].append((group, offset))
    checkpoints = _checkpoints_by_place(groups.checkpoints)
    stored = _stored_positions(lags)
    plain = {flow.id for flow in look.pair.flows if is_only_writer(reading, flow)}
    believed = _believes_checkpoints(look)
    positions: list[GroupPosition] = []
    ways: dict[int, BackBound] = {}
    for partition, members in sorted(by_partition.items()):
        flow = look.flow_of(partition.topic)
        assert flow is not None
        remote = TopicPartition(logs.remotes[partition.topic], partition.partition)
        log, here = logs.target.get(remote), checkpoints.get(remote, {})
        end = logs.source[partition].end if partition in logs.source else None
        facts = None
        if log is not None:
            ends = (*_kept_ends(look, logs, partition), MirroredEnds(log.end, end, stored.get(partition)))
            facts = TargetFacts(log, ends, transactional=flow.id not in plain)
        syncs, anew = _syncs_of(look, groups, logs, partition), logs.anew.get(partition)
        if anew is not None:  # nothing that tells of the old topic tells of this one
            syncs = anew.syncs_since(syncs, logs.source[partition].start if partition in logs.source else 0)
            facts = facts and replace(facts, ends=(MirroredEnds(facts.log.end, end),))
        offsets = [offset for _, offset in members]
        translations: Sequence[Translation | None] = (
            translate_all(offsets, syncs, facts) if facts else [None] * len(members)
        )
        way = _way_there(look, groups, logs, partition, translations)
        earlier_end = None if look.pair.earlier is None or look.source_view else look.pair.earlier.ends.get(partition)
        known_end = earlier_end.source if earlier_end else end  # of no use for the translation: it is older than `log`
        is_believed = believed and anew is None and _is_level(look, partition, stored, end)
        proven = _Proven(here.values() if is_believed else ())
        for (group, committed), by_syncs in zip(members, translations, strict=True):
            translation = by_syncs
            checkpoint, written_at = here.get(group, (None, None))
            contradiction = _contradiction(end, committed, syncs)
            if anew is not None and not syncs:
                contradiction = f"{_anew_text(look, anew)}, and its records are not mirrored from their start on"
            if way and log and not contradiction and (back := _back_of(way, committed, translation, syncs)):
                ways[len(positions)] = back
                if translation is None or translation.offset is None:
                    translation = back.as_translation(log)
            elif way and way.refusal and translation and translation.offset is None:
                translation = replace(translation, reason=way.refusal)
            bounds = None if contradiction else bounds_of(translation, proven.best_at(committed), log)
            positions.append(
                GroupPosition(
                    group,
                    partition,
                    remote,
                    committed,
                    known_end,
                    groups.start_on_target(group, remote),
                    (checkpoint.upstream, checkpoint.downstream) if checkpoint else None,
                    written_at,
                    bounds,
                    contradiction or (translation.reason if translation else ""),
                    log if groups.is_read_on_target(group) else None,
                    deleted=_deleted_unread(translation, committed, logs.source.get(partition)),
                )
            )
    return positions, ways


def _way_there(
    look: PairLook,
    groups: PairGroups,
    logs: PairLogs,
    partition: TopicPartition,
    translations: Iterable[Translation | None],
) -> ReverseSyncs | None:
    """Return the offset syncs by which the other direction brought a partition to the source, where they may tell more
    than those of this one. That they cannot be read is noted where nothing else tells."""
    question, log = look.syncs_of_way_there, logs.target.get(partition)
    earlier = look.pair.earlier
    if question is None or log is None or logs.remotes[partition.topic] != partition.topic:
        return None
    if earlier is not None and logs.are_other_topics(partition.topic, earlier):
        return None
    if any(translation is None or translation.offset is None for translation in translations):
        answer = take_internal(look, groups.snapshot, question, "offset syncs of the way there")
    elif is_listed(look, question) and any(told and told.repeats_at_most for told in translations):
        answer = groups.snapshot.get(question)
    else:
        return None
    if not isinstance(answer, OffsetSyncLog) or not (syncs := answer.by_partition.get(partition)):
        return None
    return ReverseSyncs(syncs, logs.source.get(partition), log)


def _back_of(
    way: ReverseSyncs, committed: int, translation: Translation | None, syncs: Sequence[OffsetSync]
) -> BackBound | None:
    """Return what the way there tells of a position: nothing where this direction has mirrored records that lie between
    it and the sync below it, for these have syncs of their own."""
    back = way.bound_of(committed)
    if back is None or any(back.sync.downstream <= sync.upstream < committed for sync in syncs):
        return None
    is_known = translation is not None and translation.offset is not None
    return back if not is_known or (translation and translation.repeats_at_most > back.again) else None


def _with_records_of_way_there(
    look: PairLook, logs: PairLogs, positions: list[GroupPosition], ways: Mapping[int, BackBound]
) -> Steps[list[GroupPosition]]:
    """Return the positions, those within what came from the target by the records that were read on both sides."""
    if not ways or not (look.source_view and look.target_view):
        return positions
    altered = _altered_topics(look, logs)
    places: dict[tuple[TopicPartition, int], tuple[RecordPlace, RecordPlace]] = {}
    for number, back in ways.items():
        log, partition = positions[number].log, positions[number].partition
        if log and partition.topic not in altered and len(places) < _MOST_COUNTED and (read := back.places(log)):
            places[partition, back.position] = read
    questions = (
        RecordMarks(look.source.alias, tuple(here for here, _ in places.values())),
        RecordMarks(look.target.alias, tuple(there for _, there in places.values())),
    )
    snapshot = yield questions if places else ()
    here, there = (snapshot.get(question) if places else {} for question in questions)
    if isinstance(here, Mm2mgrError) or isinstance(there, Mm2mgrError):
        return positions  # the sample says what is missing
    sharper = list(positions)
    for number, back in ways.items():
        position = positions[number]
        read_places = places.get((position.partition, back.position))
        if read_places and read_places[0] in here and read_places[1] in there:
            counted = back.compare(here[read_places[0]], there[read_places[1]])
            sharper[number] = _with_back(position, back, counted)
    return sharper


def _with_back(position: GroupPosition, back: BackBound, counted: BackBound | None) -> GroupPosition:
    """Return a position with what comparing records made of its bound; None: the sync is of another log."""
    is_only = position.bounds is None or position.bounds == PositionBounds(back.offset, back.repeats)
    if counted is None:
        text = f"the record at {back.sync.upstream} of the target is not the one that came from there"
        return replace(position, bounds=None, reason=f"{text}: truncated or made anew") if is_only else position
    lower = position.bounds.lower if position.bounds else 0
    if not counted.is_read or counted.offset < lower:
        return position
    repeats = counted.repeats if is_only or position.bounds is None else min(counted.repeats, position.bounds.repeats)
    return replace(position, bounds=PositionBounds(counted.offset, repeats), reason=counted.reason)


def _anew_text(look: PairLook, anew: AnewPlace) -> str:
    return f"the topic was made anew on {look.source.alias} after {utc_text(anew.at)}"


def _anew_remarks(look: PairLook, groups: PairGroups, logs: PairLogs) -> Iterator[Remark]:
    """Yield the topics that were made anew on the source and of which not all that they have now is mirrored."""
    topics: dict[str, AnewPlace] = {}
    for partition, anew in logs.anew.items():
        start = logs.source[partition].start if partition in logs.source else 0
        if not anew.syncs_since(_syncs_of(look, groups, logs, partition), start):
            topics.setdefault(partition.topic, anew)
    if topics:
        first = min(topics.values(), key=lambda anew: anew.at)
        text = (
            f"{number_of(len(topics), 'topic')} made anew on {look.source.alias} after {utc_text(first.at)}"
            f" ({few(sorted(topics))}): the target has records of the old, and not those that the new had first"
        )
        remedy = "delete the remote topics, and `mm2mgr offsets reset` the flows, so that all of it is mirrored"
        yield Remark(text, "blocks", remedy)


def _deleted_unread(translation: Translation | None, committed: int, source: Offsets | None) -> int:
    """Return how many offsets before the start of the target's log, at least, are of records that a group has not read
    and that the source has: its retention is longer. 0 where the source's log was not read, or begins later."""
    if translation is None or source is None or committed < source.start:
        return 0
    return max(0, translation.deleted - translation.repeats_at_most)


def _contradiction(end: int | None, committed: int, syncs: Sequence[OffsetSync]) -> str:
    """Return why offsets cannot be of the source's log, which was read after them, "" where they can."""
    if end is not None and committed > end:
        return f"the source's log ends at {end}, before what is committed: truncated or created again"
    if end is not None and syncs and syncs[-1].upstream >= end:
        return f"the source's log ends at {end}, an offset sync is from {syncs[-1].upstream}: truncated or made anew"
    return ""


def _partitions_made_anew(look: PairLook, groups: PairGroups, logs: PairLogs) -> list[TopicPartition]:
    """Return partitions whose copies are gone from the target: its log, which was read after the offset syncs, ends
    before what was mirrored, or, where the source does not answer, it is not the log of the last look."""
    earlier = look.pair.earlier
    kept_ends = earlier.ends if earlier and look.source_view is None else {}
    anew = []
    for partition in sorted({*(groups.syncs.by_partition if groups.syncs else ()), *kept_ends}):
        remote = TopicPartition(logs.remotes.get(partition.topic, ""), partition.partition)
        log, before = logs.target.get(remote), kept_ends.get(partition)
        if log is None:
            if before and before.target and _is_absent(look, remote):
                anew.append(partition)
            continue
        syncs = _syncs_of(look, groups, logs, partition)
        if (
            (syncs and syncs[-1].downstream >= log.end)
            or (before is not None and before.target > log.end)
            or (before is not None and earlier is not None and logs.are_other_topics(partition.topic, earlier))
        ):
            anew.append(partition)
    return anew


def _is_absent(look: PairLook, remote: TopicPartition) -> bool:
    """Tell whether the target is known not to have a partition."""
    view, is_refused = look.target_view, (look.target.alias, remote.topic) in look.refused_topics
    return view is not None and not is_refused and view.partitions.get(remote.topic, 0) <= remote.partition


def _is_level(
    look: PairLook, partition: TopicPartition, stored: Mapping[TopicPartition, int | None], end: int | None
) -> bool:
    """Tell whether checkpoints may stand in for a translation: all was mirrored, or nothing better is left, which is
    then not judged."""
    if look.source_view is None:
        return look.pair.earlier is None or not look.pair.earlier.is_whole
    mirrored = stored.get(partition)
    return end is not None and mirrored is not None and mirrored >= end


def _kept_ends(look: PairLook, logs: PairLogs, partition: TopicPartition) -> Sequence[MirroredEnds]:
    """Return how far a partition was mirrored at an earlier look, where its topics are known to be the same."""
    earlier = look.pair.earlier
    if earlier is None or partition not in earlier.ends or not logs.are_topics_of(partition.topic, earlier):
        return ()
    return (earlier.ends[partition],)


def _syncs_of(look: PairLook, groups: PairGroups, logs: PairLogs, partition: TopicPartition) -> Sequence[OffsetSync]:
    """Return the offset syncs of a partition; none of an earlier look where a topic was created again since."""
    earlier = look.pair.earlier
    if groups.syncs is None or (groups.syncs_are_kept and earlier and logs.are_other_topics(partition.topic, earlier)):
        return ()
    return groups.syncs.by_partition.get(partition, ())


def _stored_positions(lags: Mapping[str, FlowLag]) -> dict[TopicPartition, int | None]:
    """Return the offset behind the one that the source connector stored, by partition."""
    return {
        lag.partition: None if lag.stored is None else lag.stored + 1
        for flow_lag in lags.values()
        for lag in flow_lag.partitions
    }


def look_to_keep(
    look: PairLook,
    groups: PairGroups,
    logs: PairLogs,
    lags: Mapping[str, FlowLag],
    at: float,
) -> KeptLooks | None:
    """Return what was read of the source in a look that began `at`, for the day on which it does not answer.

    None where it did not answer. A part that was not read in full is no part of it; groups that were read are.
    """
    if look.source_view is None:
        return None
    offsets = groups.on_source
    has_all = offsets is not None and not offsets.refused and look.pair.options.groups is None
    commits = offsets.offsets if offsets else {}
    stored, ends = _stored_positions(lags), dict[TopicPartition, MirroredEnds]()
    partitions = [
        TopicPartition(topic, number)
        for topic in logs.remotes
        for number in range(look.source_view.partitions.get(topic, 0))
    ]
    for partition in partitions:
        target = logs.target.get(TopicPartition(logs.remotes[partition.topic], partition.partition))
        if partition in logs.source:  # without the target's end nothing is claimed to be there
            end, mirrored = (target.end, stored.get(partition)) if target else (0, None)
            ends[partition] = MirroredEnds(end, logs.source[partition].end, mirrored)
    ids = {
        topic: (logs.source_ids[topic], logs.target_ids[remote])
        for topic, remote in logs.remotes.items()
        if topic in logs.source_ids and remote in logs.target_ids
    }
    has_syncs = groups.syncs is not None and not groups.syncs_are_kept
    has_ends = len(ends) == len(partitions)
    return KeptLooks(
        commits,
        at if has_all else 0.0,
        ends if has_ends else {},
        at if has_ends else 0.0,
        groups.syncs if has_syncs and groups.syncs else OffsetSyncLog(),
        at if has_syncs else 0.0,
        {} if has_all else dict.fromkeys(commits, at),
        ids if has_ends else {},
        logs.anew if has_ends else {},
    )


def _checkpoints_by_place(
    checkpoints: CheckpointLog | None,
) -> dict[TopicPartition, dict[str, tuple[Checkpoint, float]]]:
    places: dict[TopicPartition, dict[str, tuple[Checkpoint, float]]] = defaultdict(dict)
    for checkpoint, written_at in (checkpoints.newest if checkpoints else {}).items():
        places[checkpoint.partition][checkpoint.group] = checkpoint, written_at
    return places


class _Proven:
    """The checkpoints of a partition, of whatever group: what starts at one skips nothing of what comes after it."""

    def __init__(self, checkpoints: Iterable[tuple[Checkpoint, float]]) -> None:
        pairs = sorted({(checkpoint.upstream, checkpoint.downstream) for checkpoint, _ in checkpoints})
        self._upstream = [upstream for upstream, _ in pairs]
        self._best = list(accumulate((downstream for _, downstream in pairs), max))

    def best_at(self, committed: int) -> int | None:
        """Return the highest target offset of a checkpoint at or below this source offset."""
        place = bisect_right(self._upstream, committed)
        return self._best[place - 1] if place else None


def _believes_checkpoints(look: PairLook) -> bool:
    version = look.workers_version
    if not version:
        text = "the workers' version is not known; before 3.4.1 their checkpoints may be ahead (KAFKA-12468)"
        look.remarks.append(Remark(text, "warns", "declare `version:` of the Connect cluster"))
        return True
    return numbers(version) >= _BELIEVED


def _by_group(look: PairLook, groups: PairGroups, positions: Iterable[GroupPosition]) -> tuple[GroupReadiness, ...]:
    by_group: dict[str, list[GroupPosition]] = defaultdict(list)
    for position in positions:
        by_group[position.group].append(position)
    there, here = groups.target_states or {}, groups.source_states
    return tuple(
        GroupReadiness(
            group,
            tuple(places),
            there[group].has_members if group in there else False,
            here[group].state if group in here else "",
            look.pair.options.translated,
        )
        for group, places in sorted(by_group.items())
    )


# --- records on both sides --------------------------------------------------------------------------------------------


def _with_samples(look: PairLook, logs: PairLogs, positions: list[GroupPosition]) -> Steps[list[GroupPosition]]:
    """Return the positions, some of them with what reading the records on both sides showed."""
    if not (look.source_view and look.target_view):
        return positions
    altered = _altered_topics(look, logs)
    chosen = _sample(positions, look.pair.options.sample, altered)
    source, target = ({number: place(positions[number]) for number in chosen} for place in (_next_place, _copy_place))
    questions = (
        RecordMarks(look.source.alias, tuple(source.values())),
        RecordMarks(look.target.alias, tuple(target.values())),
    )
    snapshot = yield questions if chosen else ()
    here, there = (snapshot.get(question) if chosen else {} for question in questions)
    if isinstance(here, Mm2mgrError) or isinstance(there, Mm2mgrError):
        for question, answer in zip(questions, (here, there), strict=True):
            if isinstance(answer, Mm2mgrError) and "authoriz" in answer.message.lower():
                topics = sorted({place.partition.topic for place in question.places})
                rights = [Right("Read", "topic", topic) for topic in topics]
                look.miss_rights(question.cluster, f"records of {few(topics)}", rights)
            elif isinstance(answer, Mm2mgrError):
                look.remarks.append(Remark(f"no records were compared: {answer.one_line}", "notes"))
        return positions
    compared = list(positions)
    for number in chosen:
        if source[number] in here and target[number] in there:
            sampled = _compare(positions[number], here[source[number]], there[target[number]])
            compared[number] = replace(positions[number], sampled=sampled)
    return compared


def _altered_topics(look: PairLook, logs: PairLogs) -> set[str]:
    """Return topics whose copies are not equal: transforms may alter them, and the target may set other timestamps."""
    transformed = {
        flow_id
        for live in look.source_connectors
        if live.running and live.running.config.get("transforms")
        for flow_id in live.desired.flows
    }
    topics = {topic for topic in logs.remotes if (flow := look.flow_of(topic)) and flow.id in transformed}
    settings = logs.snapshot.get(logs.settings[1]) if logs.settings else {}
    if not isinstance(settings, Mm2mgrError):
        own_time = {
            name for name, read in settings.items() if read.values.get("message.timestamp.type") == "LogAppendTime"
        }
        topics |= {topic for topic, remote in logs.remotes.items() if remote in own_time}
    return topics


def _topic_traits(look: PairLook, logs: PairLogs) -> TopicTraits:
    """Return topics whose copies differ from their records, as is to be known where records are compared."""
    sparse = _compacted_topics(logs)
    shared: set[str] = set()
    for topic in logs.remotes:
        flow = look.flow_of(topic)
        assert flow is not None
        if flow.exactly_once or flow.settings.source_consumer.get("isolation.level") == "read_committed":
            sparse.add(topic)
        if flow.settings.replication_policy != "default":
            shared.add(topic)
    return TopicTraits(frozenset(_altered_topics(look, logs)), frozenset(sparse), frozenset(shared))


def _compacted_topics(logs: PairLogs) -> set[str]:
    """Return the topics of the source that are compacted on any side."""
    compacted: set[str] = set()
    for question, names in zip(logs.settings or (), (dict.fromkeys(logs.remotes), logs.remotes), strict=False):
        settings = logs.snapshot.get(question)
        if isinstance(settings, Mm2mgrError):
            continue
        for topic, remote in names.items():
            read = settings.get(remote or topic)
            if read and "compact" in read.values.get("cleanup.policy", ""):
                compacted.add(topic)
    return compacted


def _sample(positions: Sequence[GroupPosition], count: int, altered: Collection[str]) -> list[int]:
    """Return which positions to look at, spread over all that can be: with a translated offset, and a record that the
    group reads next, whose copy is on the target."""
    able = [
        number
        for number, position in enumerate(positions)
        if (bounds := position.bounds)
        and position.partition.topic not in altered
        and position.log
        and position.end is not None
        and position.committed is not None
        and position.committed < position.end
        and position.log.start <= bounds.lower < position.log.end
        and bounds.repeats < _MOST_MARKS
    ]
    step = max(1, len(able) / max(1, count))
    return [able[int(number * step)] for number in range(min(count, len(able)))]


def _next_place(position: GroupPosition) -> RecordPlace:
    assert position.committed is not None
    assert position.end is not None
    return RecordPlace(position.partition, position.committed, 1, position.end)


def _copy_place(position: GroupPosition) -> RecordPlace:
    assert position.bounds
    assert position.log
    count = min(_MOST_MARKS, 2 * position.bounds.repeats + 10)  # some may be there twice
    return RecordPlace(position.remote, position.bounds.lower, count, position.log.end)


def _compare(position: GroupPosition, source: tuple[RecordMark, ...], target: tuple[RecordMark, ...]) -> Sampled:
    """Tell where the copy of the record that the group reads next is. Not to be there is no proof where the end of the
    log was reached, for it may not have arrived, or where less was read than may come again."""
    assert position.bounds
    assert position.log
    if not source or not target:
        return ""
    if target[0].is_copy_of(source[0]):
        return "same"
    if any(mark.is_copy_of(source[0]) for mark in target):
        return "within"
    is_at_end = target[-1].offset + 1 >= position.log.end
    others = len({mark[1:] for mark in target})
    return "differs" if others > position.bounds.repeats and not is_at_end else ""


# --- schemas ----------------------------------------------------------------------------------------------------------


_MOST_SCHEMAS = 20  # that are named one by one


def _compare_schemas(look: PairLook, logs: PairLogs) -> Steps[None]:
    """Note the schema ids in records on the target that its registry does not resolve to the source's schemas."""
    if look.target_view is None or look.pair.options.sample == 0:
        return
    there = look.target_view.partitions
    topics = {remote: there[remote] for remote in logs.remotes.values() if remote in there}
    pairs = yield from find_schemas([PairTopics(look.source, look.target, look.target.alias, topics)])
    for pair in pairs:
        broken = [verdict for verdict in pair.verdicts if verdict.state in BROKEN]
        for verdict in broken[:_MOST_SCHEMAS]:
            text = f"{verdict.name}: {effect_of(verdict, pair.source, pair.target)}"
            look.remarks.append(Remark(text, "blocks", remedy_of(verdict, pair.source)))
        if len(broken) > _MOST_SCHEMAS:
            text = f"{number_of(len(broken) - _MOST_SCHEMAS, 'more schema id')} that {pair.target} does not resolve"
            look.remarks.append(Remark(text, "blocks", "`mm2mgr check` lists them"))
        if deleted := sorted({verdict.name for verdict in pair.equal if verdict.is_deleted}):
            text = f"the registry of {pair.target} has {few(deleted)} as a deleted version only"
            look.remarks.append(Remark(text, "notes", "consumers read it until it is deleted for good"))
        for unknown in pair.open_points:
            _note_unjudged_schemas(look, unknown)


def _note_unjudged_schemas(look: PairLook, unknown: OpenPoint) -> None:
    """Note what is not known of schemas: not judged where a read failed, but for the registry of a dead source."""
    is_lost = unknown.where == look.source.alias and look.source_view is None
    if unknown.kind == "failed" and not is_lost:
        look.miss(unknown.where, "schemas", unknown.reason, unknown.remedy)
        return
    effect: Effect = "notes" if unknown.kind == "snapshot" else "warns"
    look.remarks.append(Remark(f"schemas are not judged: {unknown.reason}", effect, unknown.remedy))


# --- what would be lost, and when it is over --------------------------------------------------------------------------


def _recovery(
    look: PairLook, lags: Mapping[str, FlowLag], anew: Sequence[TopicPartition], now: float
) -> Steps[RecoveryPoint]:
    if anew:
        text = (
            f"{number_of(len(anew), 'partition')} deleted on the target, created again or truncated: what was "
            f"mirrored there before is gone ({few([str(partition) for partition in anew])})"
        )
        remedy = "let the flow mirror it again, while the source has it: `mm2mgr offsets reset`"
        look.remarks.append(Remark(text, "blocks", remedy))
        return RecoveryPoint(reason=f"{anew[0]} was deleted on the target, created again or truncated")
    if look.source_view is None:
        return _kept_recovery(look, now)
    behind = []
    for flow in look.pair.flows:
        lag = lags.get(flow.id)
        if lag is None or lag.unknown is not None:
            reason = look.silence_of_workers or (lag.unknown if lag else None) or _NO_CONNECTOR
            return RecoveryPoint(reason=f"{flow.id}: {reason}")
        # Heartbeats are not read here: they do not count.
        if unread := [partition for partition in lag.unread if not flow.selection.is_heartbeats(partition.topic)]:
            return RecoveryPoint(reason=f"{flow.id}: the log of {unread[0]} could not be read")
        behind += [partition for partition in lag.counted_partitions if partition.lag_records]
    asked = tuple((lag.partition, lag.position) for lag in most_behind(behind, _MOST_TIMES))
    question = RecordTimes(look.source.alias, asked)
    snapshot = yield [question] if asked else []
    times = snapshot.get(question) if asked else {}
    written = [] if isinstance(times, Mm2mgrError) else list(times.values())
    records = sum(partition.lag_records for partition in behind)
    seconds = max(0.0, now - min(written)) if written else (None if behind else 0.0)
    return RecoveryPoint(records, seconds, len(behind))


def _kept_recovery(look: PairLook, now: float) -> RecoveryPoint:
    """Return what was not mirrored at the last look, less what Connect has stored since."""
    earlier = look.pair.earlier
    if earlier is None or not earlier.ends:
        return RecoveryPoint(reason=f"{look.source.alias} does not answer, and no earlier look at its logs was kept")
    stored: dict[TopicPartition, int] = {}
    for live in look.source_connectors:
        offsets = live.running.offsets if live.running else {}
        if isinstance(offsets, Mapping):
            stored |= {partition: offset + 1 for partition, offset in offsets.items()}
    lost = 0
    behind = 0
    for partition, ends in earlier.ends.items():
        if look.flow_of(partition.topic) is None or ends.source is None:
            continue
        mirrored = max(stored.get(partition, 0), ends.stored or 0)
        lost += max(0, ends.source - mirrored)
        behind += ends.source > mirrored
    return RecoveryPoint(lost, None, behind, max(0.0, now - earlier.ends_at))


def _time_to_expect(look: PairLook, recovery: RecoveryPoint) -> TimeToExpect:
    live = look.checkpoint_connector
    seconds = _SYNC_SECONDS
    if live:
        seconds = live.number("emit.checkpoints.interval.seconds", _SYNC_SECONDS) or _SYNC_SECONDS
        if syncs_groups(live):
            seconds += live.number("sync.group.offsets.interval.seconds", _SYNC_SECONDS) or _SYNC_SECONDS
    return TimeToExpect(0.0 if recovery.records == 0 else recovery.seconds, seconds)
