"""Consumer groups of Kafka clusters: state, members, lag, and on which targets their offsets are translated. Pure.

Offsets are read before the ends of logs, so no group that reads is ahead of the end that is known. What cannot be read
is None, and named among what is unread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.failover.check import Unread
from mm2mgr.failover.syncs import CheckpointLog
from mm2mgr.kafka.acls import Right
from mm2mgr.kafka.groups import GroupOffsets, GroupState
from mm2mgr.kafka.inspection import ClusterView
from mm2mgr.live.questions import (
    CheckpointRecords,
    CommittedOffsets,
    GroupMembers,
    MemberCounts,
    PartitionEnds,
    RefusedTopics,
)
from mm2mgr.live.rights import LogIn
from mm2mgr.live.snapshot import Snapshot, Steps
from mm2mgr.observe.pair_look import OF_TOOLS, ClustersLook, is_listed, synced_groups, take_internal, take_offsets
from mm2mgr.partitions import TopicPartition
from mm2mgr.spec.scalars import java_pattern
from mm2mgr.text import few, nearest
from mm2mgr.topics.names import NameFilter, readable
from mm2mgr.topology import Flow, by_pair

Translated = Literal["yes", "partly", "no", "left out", "not declared", "unknown"]
"""Whether checkpoints translate a group's offsets on a target: in all partitions that it committed and the pair
mirrors, in some, or in none; the tree leaves the group out, or has no checkpoints for the pair; not readable."""

CheckpointTimes = Mapping[str, Mapping[TopicPartition, float]]
"""When the newest checkpoints were written (seconds since 1970), by group and partition of the target."""


@dataclass(frozen=True)
class GroupsOrder:
    """Which groups to list. `group` and `topic`: a name, or a Java expression that whole names match (None: all).

    `with_all`: also topics that no flow mirrors; those that `topic` names count anyway.
    """

    group: str | None = None
    topic: str | None = None
    with_all: bool = False

    @cached_property
    def takes_group(self) -> Callable[[str], bool]:
        """Tells whether a group is asked for; InvalidArgument for what Java does not read."""
        return _matcher("group", self.group)

    @cached_property
    def takes_topic(self) -> Callable[[str], bool]:
        """Tells whether a topic is asked for; InvalidArgument for what Java does not read."""
        return _matcher("topic", self.topic)


def _matcher(argument: str, pattern: str | None) -> Callable[[str], bool]:
    if pattern is None:
        return lambda name: True
    if not readable(java_pattern(pattern), topics=False):
        raise InvalidArgument(argument, f"{pattern!r} is no expression that Java reads")
    names = NameFilter((java_pattern(pattern),), ())
    return lambda name: name == pattern or names.matches(name)


@dataclass(frozen=True)
class GroupPartition:
    """What a group committed in a partition, and the end of its log then or a moment later (None: not readable)."""

    partition: TopicPartition
    committed: int
    end: int | None

    json_keys = "topic=partition.topic partition=partition.partition committed end lag_records"

    @property
    def lag_records(self) -> int | None:
        """Offsets to the end of the log; None where the end is unknown, or before what was committed: another log."""
        return None if self.end is None or self.end < self.committed else self.end - self.committed


@dataclass(frozen=True)
class GroupOnTarget:
    """Whether a group's offsets are translated on a target: in how many partitions of those that the pair mirrors.

    `checkpoint_at`: when the oldest of its newest checkpoints was written (seconds since 1970; None: there is none).
    """

    pair: str
    target: str
    translated: Translated
    partitions: int
    translated_partitions: int | None = None
    checkpoint_at: float | None = None


@dataclass(frozen=True)
class GroupLag:
    """A consumer group. `members` is None where they could not be read, `partitions` where its offsets could not.

    `state` as brokers say it, such as STABLE or EMPTY; "" where they do not. An empty `partitions`: nothing committed.
    """

    cluster: str
    group: str
    state: str
    members: int | None
    partitions: tuple[GroupPartition, ...] | None
    targets: tuple[GroupOnTarget, ...] = ()

    json_keys = (
        "cluster group state=known_state members topics lag_records at_least_records worst targets partitions is_known"
    )

    @property
    def known_state(self) -> str | None:
        return self.state or None

    @cached_property
    def topics(self) -> list[str] | None:
        """The topics on which it committed offsets, in order; None where that could not be read."""
        return None if self.partitions is None else sorted({place.partition.topic for place in self.partitions})

    @cached_property
    def lag_records(self) -> int | None:
        """The sum of its partitions; None where one is unknown, or nothing is committed."""
        lags = [place.lag_records for place in self.partitions or ()]
        return None if not lags or None in lags else sum(lag or 0 for lag in lags)

    @cached_property
    def at_least_records(self) -> int | None:
        """The sum of those partitions whose lag is known; None where none is."""
        lags = [place.lag_records for place in self.partitions or () if place.lag_records is not None]
        return sum(lags) if lags else None

    @cached_property
    def worst(self) -> GroupPartition | None:
        """The partition that is most behind; None where none is known to be behind."""
        behind = [place for place in self.partitions or () if place.lag_records]
        return max(behind, key=lambda place: (place.lag_records or 0, place.partition), default=None)

    @property
    def is_known(self) -> bool:
        """Whether all of it could be read; that nothing is committed is known, too."""
        has_lag = self.partitions is not None and (not self.partitions or self.lag_records is not None)
        is_translation_known = all(target.translated != "unknown" for target in self.targets)
        return has_lag and self.members is not None and self.state != "" and is_translation_known


@dataclass(frozen=True)
class GroupsReport:
    """The consumer groups of these clusters, most behind first, at `taken_at` (seconds since 1970)."""

    taken_at: float
    clusters: tuple[str, ...]
    groups: tuple[GroupLag, ...] = ()
    unread: tuple[Unread, ...] = ()
    nearest: tuple[str, ...] | None = None
    """Where no group there is called, or matches, what was asked for: those with the nearest names."""

    json_keys = "taken_at clusters is_known groups unread"

    @property
    def is_known(self) -> bool:
        """Whether everything that was asked for could be read."""
        return not self.unread and all(group.is_known for group in self.groups)


@dataclass
class _GroupsLook(ClustersLook):
    views: dict[str, ClusterView] = field(default_factory=dict)

    def view(self, alias: str) -> ClusterView | None:
        return self.views.get(alias)


@dataclass(frozen=True)
class _Clusters:
    """The clusters whose groups are listed, and the flows that name mirrored topics there."""

    aliases: Sequence[str]
    flows: Sequence[Flow]
    order: GroupsOrder

    @cached_property
    def pairs(self) -> Mapping[str, Sequence[Flow]]:
        return by_pair(flow for flow in self.flows if flow.source.alias in self.aliases)

    @cached_property
    def checkpoints(self) -> Mapping[str, CheckpointRecords]:
        """Where checkpoints are, by pair that has some."""
        return {
            pair: CheckpointRecords(flows[0].target.alias, flows[0].selection.checkpoints_topic)
            for pair, flows in self.pairs.items()
            if any(flow.with_checkpoints for flow in flows)
        }

    def is_mirrored(self, alias: str, topic: str) -> bool:
        """Tell whether a flow mirrors a topic from this cluster, or to it."""
        for flow in self.flows:
            if flow.source.alias == alias and flow.carries(topic):
                return True
            if flow.target.alias == alias:
                upstream = flow.selection.upstream(topic)
                if upstream is not None and flow.carries(upstream):
                    return True
        return False


def list_groups(
    aliases: Sequence[str], flows: Sequence[Flow], order: GroupsOrder, clock: Callable[[], float]
) -> Steps[GroupsReport]:
    """Return the consumer groups of these Kafka clusters, from answers. InvalidArgument for a bad expression.

    `flows` name the topics that count, and the targets whose checkpoints are read.
    """
    clusters = _Clusters(aliases, flows, order)
    order.takes_group, order.takes_topic  # noqa: B018  a bad expression is an error before anything is asked
    look, states = yield from _log_in(clusters)
    names = {alias: tuple(sorted(filter(order.takes_group, states[alias]))) for alias in states}
    commits, checkpoints = yield from _read_offsets(clusters, look, names)
    chosen = {alias: _choose_places(clusters, alias, commits.get(alias), names[alias]) for alias in names}
    of_ends = {
        alias: PartitionEnds(alias, frozenset(place for places in groups.values() for place in places or ()))
        for alias, groups in chosen.items()
    }
    of_members = {
        alias: MemberCounts(alias, tuple(group for group in groups if _may_have_members(states[alias][group])))
        for alias, groups in chosen.items()
    }
    snapshot = yield [
        *(question for question in of_ends.values() if question.partitions),
        *(question for question in of_members.values() if question.groups),
    ]
    times = {pair: _checkpoint_times(log) for pair, log in checkpoints.items()}
    groups: list[GroupLag] = []
    for alias, places in chosen.items():
        ends, members = _take_ends(look, snapshot, of_ends[alias]), _take_members(look, snapshot, of_members[alias])
        for group, committed in places.items():
            state = states[alias][group]
            groups.append(
                GroupLag(
                    alias,
                    group,
                    state.state,
                    members.get(group) if _may_have_members(state) else 0,
                    None if committed is None else tuple(
                        GroupPartition(place, offset, ends.get(place)) for place, offset in sorted(committed.items())
                    ),
                    tuple(_targets(clusters, alias, group, committed or {}, times)),
                )
            )  # fmt: skip
    _note_other_logs(look, groups)
    near = None
    if order.group is not None and not any(names.values()):
        near = tuple(nearest(order.group, {group for groups_of in states.values() for group in groups_of}, count=3))
    return GroupsReport(clock(), tuple(aliases), tuple(sorted(groups, key=_badness)), tuple(look.unread), near)


def _badness(group: GroupLag) -> tuple[bool, int, str, str]:
    return group.lag_records is not None or group.is_known, -(group.at_least_records or 0), group.cluster, group.group


def _may_have_members(state: GroupState) -> bool:
    return state.has_members or not state.state


def _log_in(clusters: _Clusters) -> Steps[tuple[_GroupsLook, dict[str, dict[str, GroupState]]]]:
    """Log in to all clusters, and list the groups of those that are asked for."""
    aliases = dict.fromkeys([*clusters.aliases, *(question.cluster for question in clusters.checkpoints.values())])
    snapshot = yield [*map(LogIn, aliases), *map(GroupMembers, clusters.aliases)]
    look = _GroupsLook()
    states: dict[str, dict[str, GroupState]] = {}
    for alias in aliases:
        is_listed_here = alias in clusters.aliases
        subject = "groups" if is_listed_here else "checkpoints"
        answer = snapshot.get(LogIn(alias))
        if isinstance(answer, Mm2mgrError):
            look.miss(alias, subject, answer.one_line, answer.hint or "")
            continue
        look.principals[alias] = answer.principal.name
        if answer.view is None:
            failure = answer.failure
            look.miss(alias, subject, failure.message if failure else "no answer", (failure and failure.hint) or "")
            continue
        look.views[alias] = answer.view
        if not is_listed_here:
            continue
        if "Describe" not in answer.view.operations:
            look.miss_rights(alias, "groups that this login may not describe", [Right("Describe", "cluster")])
        groups = look.take(snapshot, GroupMembers(alias), "groups", Right("Describe", "cluster"))
        if groups is not None:
            states[alias] = groups
    return look, states


def _read_offsets(
    clusters: _Clusters, look: _GroupsLook, names: Mapping[str, tuple[str, ...]]
) -> Steps[tuple[dict[str, GroupOffsets], dict[str, CheckpointLog]]]:
    """Return what groups committed by cluster, and the checkpoints by pair; absent: they could not be read."""
    offsets = {alias: CommittedOffsets(alias, groups) for alias, groups in names.items() if groups}
    refusals = {
        pair: RefusedTopics(question.cluster, (question.topic,))
        for pair, question in clusters.checkpoints.items()
        if look.view(question.cluster) and not is_listed(look, question)
    }
    there = [question for question in clusters.checkpoints.values() if is_listed(look, question)]
    snapshot = yield [*offsets.values(), *there, *refusals.values()]
    commits = {
        alias: taken
        for alias, question in offsets.items()
        if (taken := take_offsets(look, snapshot, question)) is not None
    }
    checkpoints: dict[str, CheckpointLog] = {}
    for pair, question in clusters.checkpoints.items():
        log = take_internal(look, snapshot, question, "checkpoints")
        if pair in refusals:
            refused = look.take(snapshot, refusals[pair], "topics that are not listed")
            if refused:
                subject = f"checkpoints ({question.topic})"
                look.miss_rights(question.cluster, subject, [Right("Describe", "topic", question.topic)])
            log = CheckpointLog() if refused == () else None
        if log is not None:
            checkpoints[pair] = log
    return commits, checkpoints


def _choose_places(
    clusters: _Clusters, alias: str, commits: GroupOffsets | None, names: Iterable[str]
) -> dict[str, Mapping[TopicPartition, int] | None]:
    """Return the groups to list with what counts of their offsets; None: it could not be read."""
    order = clusters.order
    is_wanted: dict[str, bool] = {}

    def counts(topic: str) -> bool:
        if topic not in is_wanted:
            is_any = order.with_all or order.topic is not None
            is_wanted[topic] = order.takes_topic(topic) and (is_any or clusters.is_mirrored(alias, topic))
        return is_wanted[topic]

    chosen: dict[str, Mapping[TopicPartition, int] | None] = {}
    for group in names:
        if commits is None or group not in commits.offsets:
            chosen[group] = None
            continue
        places = {
            place: offset
            for place, offset in commits.offsets[group].items()
            if counts(place.topic) and place.topic != HISTORY_TOPIC  # a lease of mm2mgr, which commits no position
        }
        if places or (order.with_all and order.topic is None):
            chosen[group] = places
    return chosen


def _take_ends(look: _GroupsLook, snapshot: Snapshot, question: PartitionEnds) -> Mapping[TopicPartition, int | None]:
    if not question.partitions:
        return {}
    ends = look.take(snapshot, question, "ends of logs")
    if ends is None:
        return {}
    missing = sorted({place.topic for place in question.partitions if ends.get(place) is None})
    if missing:
        rights = [Right("Describe", "topic", topic) for topic in missing]
        look.miss(
            question.cluster, f"ends of logs of {few(missing)}", "not there, or mm2mgr's login may not", "", rights
        )
    return ends


def _take_members(look: _GroupsLook, snapshot: Snapshot, question: MemberCounts) -> Mapping[str, int]:
    if not question.groups:
        return {}
    members = look.take(snapshot, question, "members of groups", Right("Describe", "group", "*"))
    if members is None:
        return {}
    missing = sorted(set(question.groups) - members.keys())
    if missing:
        rights = [Right("Describe", "group", group) for group in missing]
        look.miss_rights(question.cluster, f"members of {few(missing)}", rights)
    return members


def _note_other_logs(look: _GroupsLook, groups: Iterable[GroupLag]) -> None:
    """Note the groups that committed more than a log has: it was truncated, or its topic made anew."""
    by_place: dict[tuple[str, TopicPartition], list[str]] = defaultdict(list)
    for group in groups:
        for place in group.partitions or ():
            if place.end is not None and place.end < place.committed:
                by_place[group.cluster, place.partition].append(group.group)
    for (alias, partition), names in sorted(by_place.items()):
        reason = f"{partition} ends before what was committed: truncated, or its topic was made anew"
        look.miss(alias, f"lag of {few(names)}", reason)


def _targets(
    clusters: _Clusters,
    alias: str,
    group: str,
    committed: Mapping[TopicPartition, int],
    checkpoint_times: Mapping[str, CheckpointTimes],
) -> Iterator[GroupOnTarget]:
    """Yield whether a group's offsets are translated, of each pair that mirrors a topic of it."""
    for pair, flows in clusters.pairs.items():
        if flows[0].source.alias != alias:
            continue
        carriers = {place: next((flow for flow in flows if flow.carries(place.topic)), None) for place in committed}
        remotes = [
            TopicPartition(flow.remote_topic(place.topic), place.partition)
            for place, flow in carriers.items()
            if flow is not None
        ]
        if not remotes:
            continue
        target, count = flows[0].target.alias, len(remotes)
        names = synced_groups(flows)
        if not names:
            yield GroupOnTarget(pair, target, "not declared", count)
        elif OF_TOOLS.matches(group) or not any(groups.matches(group) for groups in names):
            yield GroupOnTarget(pair, target, "left out", count)
        elif pair not in checkpoint_times:
            yield GroupOnTarget(pair, target, "unknown", count)
        else:
            at = checkpoint_times[pair].get(group, {})
            times = [at[remote] for remote in remotes if remote in at]
            word: Translated = "yes" if len(times) == count else "partly" if times else "no"
            yield GroupOnTarget(pair, target, word, count, len(times), min(times, default=None))


def _checkpoint_times(log: CheckpointLog) -> CheckpointTimes:
    times: dict[str, dict[TopicPartition, float]] = defaultdict(dict)
    for checkpoint, written_at in log.newest.items():
        times[checkpoint.group][checkpoint.partition] = written_at
    return times
