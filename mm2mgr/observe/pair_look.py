"""One look at a pair of clusters for a failover: groups, checkpoints, offset syncs and logs, in an order that is safe.

Stored offsets are read before groups and offset syncs, those before the target's logs, and the source's logs last: so
nothing that is mirrored or committed is beyond the end that is known. What cannot be read is kept as a value, with the
right that is missing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from mm2mgr import defaults
from mm2mgr.connectors import Connector
from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.check import Unread
from mm2mgr.failover.kept import AnewPlace, KeptLooks
from mm2mgr.failover.syncs import CheckpointLog, OffsetSyncLog
from mm2mgr.kafka.acls import Right
from mm2mgr.kafka.groups import GroupOffsets, GroupState
from mm2mgr.kafka.inspection import ClusterView
from mm2mgr.live.questions import (
    CheckpointRecords,
    ClusterAcls,
    CommittedOffsets,
    GroupMembers,
    OffsetSyncRecords,
    PartitionEnds,
    Quotas,
    RefusedTopics,
    SettingsOfTopics,
    TopicIds,
    TopicLogs,
)
from mm2mgr.live.rights import LogIn
from mm2mgr.live.snapshot import Question, Snapshot, Steps, ask, side_by_side
from mm2mgr.observe.read import ObserveOptions, read_connect
from mm2mgr.observe.reading import LiveConnector, SeenConnect
from mm2mgr.observe.way_back import offset_syncs_place
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.remarks import Remark
from mm2mgr.render import connectors_of
from mm2mgr.spec.scalars import java_pattern
from mm2mgr.text import few, number_of
from mm2mgr.topics.names import NameFilter
from mm2mgr.topology import Flow, KafkaCluster, Topology
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import numbers

Answer = TypeVar("Answer")
SAMPLE = 20
_TELLS_OFFSETS = (3, 5)


@dataclass(frozen=True)
class FailoverOptions:
    """`groups`: a Java expression that the names of the groups to judge match (None: all).

    `translated`: judge as if the translated offsets were committed on the target first. `sample`: at so many positions
    the records on both sides are read and compared.
    """

    groups: str | None = None
    translated: bool = False
    sample: int = SAMPLE


@dataclass(frozen=True)
class PairToJudge:
    """The flows of a pair, and how to judge it. `earlier`: what was read before, for a source that does not answer.

    `silence`: why the source is not asked at all ("": it is), since it did not answer a moment ago.
    """

    topology: Topology
    connectors: Sequence[Connector]
    flows: Sequence[Flow]
    options: FailoverOptions = FailoverOptions()
    earlier: KeptLooks | None = None
    silence: str = ""


@dataclass
class ClustersLook:
    """One look at Kafka clusters, while they are asked: what could not be read, and `principals` by alias."""

    principals: dict[str, str] = field(default_factory=dict, kw_only=True)
    unread: list[Unread] = field(default_factory=list, kw_only=True)

    def view(self, alias: str) -> ClusterView | None:
        """Return what mm2mgr's login sees of a cluster; None where it did not get in."""
        raise NotImplementedError

    def take(
        self, snapshot: Snapshot, question: Question[Answer], subject: str, right: Right | None = None
    ) -> Answer | None:
        """Return an answer; None where there is none, which is then among what is unread."""
        answer = snapshot.get(question)
        if not isinstance(answer, Mm2mgrError):
            return answer
        is_right = right is not None and "authoriz" in answer.message.lower()
        remedy = f"mm2mgr's login needs {right}" if is_right else answer.hint or ""
        self.miss(question.cluster, subject, answer.one_line, remedy, [right] if is_right and right else [])
        return None

    def miss(self, where: str, subject: str, reason: str, remedy: str = "", rights: Iterable[Right] = ()) -> None:
        """Note what could not be read, and which rights would let it be."""
        missing = Unread(where, subject, reason, remedy, self.principals.get(where, ""), tuple(rights))
        if missing not in self.unread:
            self.unread.append(missing)

    def miss_rights(self, where: str, subject: str, rights: Sequence[Right]) -> None:
        names = few([str(right) for right in rights])
        self.miss(where, subject, "mm2mgr's login may not", f"mm2mgr's login needs {names}", rights)


@dataclass
class PairLook(ClustersLook):
    """One look at a pair, while its clusters are asked."""

    pair: PairToJudge
    connect: SeenConnect
    source_view: ClusterView | None = None
    target_view: ClusterView | None = None
    remarks: list[Remark] = field(default_factory=list)
    refused_topics: set[tuple[str, str]] = field(default_factory=set)
    """Aliases of clusters, and topics there that this login may not describe, so that they are not listed."""

    @property
    def source(self) -> KafkaCluster:
        return self.pair.flows[0].source

    @property
    def target(self) -> KafkaCluster:
        return self.pair.flows[0].target

    @property
    def syncs_at(self) -> str:
        """The cluster with the offset syncs."""
        return (self.source if self._syncs_on_source else self.target).alias

    @property
    def _syncs_on_source(self) -> bool:
        return self.pair.flows[0].settings.offset_syncs.location == "source"

    @property
    def syncs_topic(self) -> str:
        """MirrorClientConfig and ReplicationPolicy.offsetSyncsTopic: named after the other cluster."""
        mark = self.pair.flows[0].selection.internal_separator
        other = self.target if self._syncs_on_source else self.source
        return f"mm2-offset-syncs{mark}{other.alias}{mark}internal"

    @cached_property
    def syncs_of_way_there(self) -> OffsetSyncRecords | None:
        """The offset syncs of the other direction, where it keeps names as this one does: what it brought to the source
        was never mirrored back."""
        ways = [flow for flow in self.pair.topology.flows if flow.pair == f"{self.target.alias}->{self.source.alias}"]
        if not ways or any(flow.settings.replication_policy != "identity" for flow in (*ways, *self.pair.flows)):
            return None
        place = offset_syncs_place(ways[0])
        is_other = place != (self.syncs_at, self.syncs_topic)
        return OffsetSyncRecords(*place) if is_other and ways[0].settings.offset_syncs.enabled else None

    @property
    def checkpoints_topic(self) -> str:
        return self.pair.flows[0].selection.checkpoints_topic

    def view(self, alias: str) -> ClusterView | None:
        return self.source_view if alias == self.source.alias else self.target_view

    @property
    def source_connectors(self) -> list[LiveConnector]:
        return [live for live in self.connect.connectors.values() if live.desired.type == "source"]

    @property
    def workers_version(self) -> str | None:
        """The Kafka version of the workers: as they say, else as the tree does; None where neither is known."""
        return kafka_version(self.connect.version or self.pair.flows[0].connect.model.version or "")

    @property
    def silence_of_workers(self) -> str:
        """Why the workers do not tell how far they have mirrored, "" where their release does (KIP-875)."""
        version = self.workers_version
        if not version or numbers(version)[:2] >= _TELLS_OFFSETS:
            return ""
        return f"workers of Kafka {version} do not tell how far they have mirrored: 3.5 and newer do (KIP-875)"

    def takes_group(self, group: str) -> bool:
        """Tell whether a group is to be judged: MirrorMaker's own exclusions are no groups of applications."""
        return (self._asked_groups is None or self._asked_groups.matches(group)) and not OF_TOOLS.matches(group)

    @cached_property
    def _asked_groups(self) -> NameFilter | None:
        asked = self.pair.options.groups
        return None if asked is None else NameFilter((java_pattern(asked),), ())

    def is_synced(self, group: str) -> bool:
        """Tell whether the tree means a group to be translated; without checkpoints it leaves none out by name."""
        return not self._synced_groups or any(names.matches(group) for names in self._synced_groups)

    @cached_property
    def _synced_groups(self) -> list[NameFilter]:
        return synced_groups(self.pair.flows)

    @cached_property
    def checkpoint_connector(self) -> LiveConnector | None:
        return next((live for live in self.connect.connectors.values() if live.desired.type == "checkpoint"), None)

    @cached_property
    def flow_of(self) -> Callable[[str], Flow | None]:
        """Return the flow that carries a topic of the source."""
        flows: dict[str, Flow | None] = {}

        def find(topic: str) -> Flow | None:
            if topic not in flows:
                flows[topic] = next((flow for flow in self.pair.flows if flow.carries(topic)), None)
            return flows[topic]

        return find


OF_TOOLS = NameFilter(tuple(defaults.GROUPS_EXCLUDE), ())
"""The groups that MirrorMaker itself leaves out of checkpoints."""


def synced_groups(flows: Iterable[Flow]) -> list[NameFilter]:
    """Return which groups the flows of a pair name for checkpoints, of each flow that has them."""
    groups = (flow.settings.checkpoints.groups for flow in flows if flow.with_checkpoints)
    return [
        NameFilter(tuple(map(java_pattern, names.include)), tuple(map(java_pattern, names.exclude))) for names in groups
    ]


def look_at_pair(pair: PairToJudge) -> Steps[PairLook]:
    """Ask Connect, and log in to both clusters."""
    name = pair.flows[0].connect.name
    declared = {(connector.connect, connector.name) for connector in pair.connectors}
    chosen = [connector for connector in connectors_of(pair.connectors, pair.flows) if connector.connect == name]
    aliases = pair.flows[0].source.alias, pair.flows[0].target.alias
    connect, snapshot = yield from side_by_side(
        read_connect(pair.topology, name, chosen, declared, ObserveOptions()),
        ask([LogIn(alias) for alias in aliases if not (pair.silence and alias == aliases[0])]),
    )
    look = PairLook(pair, connect)
    _take_logins(look, snapshot)
    if connect.failure:
        look.miss(f"connect {connect.name}", "connectors", connect.failure.message, connect.failure.hint or "")
    return look


def _take_logins(look: PairLook, snapshot: Snapshot) -> None:
    """Keep what mm2mgr's own login sees of both clusters. A source that does not answer is what this is for."""
    for cluster in (look.source, look.target):
        is_source = cluster is look.source
        answer = None if is_source and look.pair.silence else snapshot.get(LogIn(cluster.alias))
        if answer is None:
            reason, hint = look.pair.silence, ""
        elif isinstance(answer, Mm2mgrError):
            reason, hint = answer.one_line, answer.hint or ""
        else:
            look.principals[cluster.alias] = answer.principal.name
            if answer.view:
                if is_source:
                    look.source_view = answer.view
                else:
                    look.target_view = answer.view
                if "Describe" not in answer.view.operations:
                    look.miss_rights(
                        cluster.alias, "groups that this login may not describe", [Right("Describe", "cluster")]
                    )
                continue
            reason, hint = (answer.failure.message, answer.failure.hint or "") if answer.failure else ("no answer", "")
        subject = "topics, groups and offset syncs" if is_source else "topics, groups and checkpoints"
        if not is_source or look.pair.earlier is None:
            look.miss(cluster.alias, subject, reason, hint)
        else:
            look.remarks.append(
                Remark(f"{cluster.alias} does not answer ({reason}): judged from earlier looks", "notes")
            )


@dataclass(frozen=True)
class PairGroups:
    """What was read of groups and of MirrorMaker's internal topics; `committed` may be of an earlier look."""

    committed: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    on_target: GroupOffsets | None = None
    on_source: GroupOffsets | None = None
    source_states: Mapping[str, GroupState] = field(default_factory=dict)
    target_states: Mapping[str, GroupState] | None = None
    checkpoints: CheckpointLog | None = None
    syncs: OffsetSyncLog | None = None
    snapshot: Snapshot = field(default_factory=Snapshot)
    """With the answers about quotas and ACLs."""
    syncs_are_kept: bool = False
    """Whether the syncs are those of an earlier look."""

    def start_on_target(self, group: str, remote: TopicPartition) -> int | None:
        """Return the offset that a group has on the target; None: none, or it could not be read."""
        return self.on_target.offsets.get(group, {}).get(remote) if self.on_target else None

    def is_read_on_target(self, group: str) -> bool:
        """Tell whether the group's offsets on the target are known."""
        return self.on_target is not None and group not in self.on_target.refused


def read_groups(look: PairLook) -> Steps[PairGroups]:
    """Ask for groups, syncs and checkpoints: before the logs, so that no offset is behind the end that is read."""
    source, target = look.source.alias, look.target.alias
    of_checkpoints = CheckpointRecords(target, look.checkpoints_topic)
    of_syncs = OffsetSyncRecords(look.syncs_at, look.syncs_topic)
    missing = _missing_topics(look, [(question.cluster, question.topic) for question in (of_checkpoints, of_syncs)])
    refusals = {alias: RefusedTopics(alias, topics) for alias, topics in missing.items()}
    names = {
        alias: tuple(sorted(filter(look.takes_group, view.groups)))
        for alias in (source, target)
        if (view := look.view(alias))
    }
    offsets = {alias: CommittedOffsets(alias, groups) for alias, groups in names.items() if groups}
    snapshot = yield [
        *(question for question in (of_checkpoints, of_syncs) if is_listed(look, question)),
        *(question for question in [look.syncs_of_way_there] if question and is_listed(look, question)),
        *offsets.values(),
        *refusals.values(),
        *(kind(alias) for alias in names for kind in (GroupMembers, Quotas, ClusterAcls)),
    ]
    for alias, refusal in refusals.items():
        if refused := look.take(snapshot, refusal, "topics that are not listed"):
            look.refused_topics |= {(alias, topic) for topic in refused}
            look.miss_rights(alias, f"topics {few(refused)}", [Right("Describe", "topic", name) for name in refused])
    commits = {alias: take_offsets(look, snapshot, question) for alias, question in offsets.items()}
    states = {
        alias: look.take(snapshot, GroupMembers(alias), "groups", Right("Describe", "cluster")) for alias in names
    }
    checkpoints = take_internal(look, snapshot, of_checkpoints, "checkpoints")
    syncs = take_internal(look, snapshot, of_syncs, "offset syncs")
    on_target = commits.get(target, GroupOffsets()) if look.target_view else None
    read = PairGroups(
        (commits.get(source) or GroupOffsets()).offsets,
        on_target,
        commits.get(source, GroupOffsets()) if look.source_view else None,
        states.get(source) or {},
        states.get(target),
        checkpoints,
        syncs,
        snapshot,
    )
    return _with_earlier_looks(look, read)


def _with_earlier_looks(look: PairLook, read: PairGroups) -> PairGroups:
    """Return what is known of a source that does not answer: what was kept of it, or what checkpoints tell."""
    earlier, view = look.pair.earlier, look.view(look.syncs_at)
    may_be_there = view is None or look.syncs_topic in view.partitions  # one that was deleted may hide a later start
    if earlier is not None and read.syncs is None and may_be_there:
        read = replace(read, syncs=earlier.syncs, syncs_are_kept=True)
    if look.source_view is not None:
        return read
    return replace(read, committed=_last_known_commits(look, earlier or KeptLooks(), read.checkpoints))


def _last_known_commits(
    look: PairLook, earlier: KeptLooks, checkpoints: CheckpointLog | None
) -> dict[str, dict[TopicPartition, int]]:
    """Return what groups had committed when the last look was kept, or when a later checkpoint of theirs was written.

    That is by the clocks of mm2mgr and of the workers. A checkpoint that is ahead of a later look is of a group that
    was set back since.
    """
    committed = {group: dict(places) for group, places in earlier.commits.items() if look.takes_group(group)}
    for checkpoint, written_at in (checkpoints.newest if checkpoints else {}).items():
        partition, group = _upstream(look, checkpoint.partition), checkpoint.group
        read_at = earlier.group_read_at(group) or earlier.commits_at
        if partition and look.takes_group(group) and written_at > read_at:
            committed.setdefault(group, {})[partition] = checkpoint.upstream
    return committed


def is_listed(look: ClustersLook, question: CheckpointRecords | OffsetSyncRecords) -> bool:
    view = look.view(question.cluster)
    return view is not None and question.topic in view.partitions


def take_internal(
    look: ClustersLook, snapshot: Snapshot, question: CheckpointRecords | OffsetSyncRecords, noun: str
) -> Any:
    """Return what an internal topic holds; None where it is not there, or could not be read, which is then noted."""
    if not is_listed(look, question):
        return None
    return look.take(snapshot, question, f"{noun} ({question.topic})", Right("Read", "topic", question.topic))


def take_offsets(look: ClustersLook, snapshot: Snapshot, question: CommittedOffsets) -> GroupOffsets | None:
    """Return what groups committed; what this login may not read is noted. None where nothing could be read."""
    answer = look.take(snapshot, question, "group offsets", Right("Describe", "group", "*"))
    if answer and answer.refused:
        rights = [Right("Describe", "group", name) for name in answer.refused]
        look.miss_rights(question.cluster, f"offsets of {number_of(len(rights), 'group')}", rights)
    return answer


def _missing_topics(look: PairLook, internal: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return by cluster the topics that should be there and are not listed: there is none, or none for this login."""
    missing: dict[str, set[str]] = defaultdict(set)
    for alias, topic in internal:
        if (view := look.view(alias)) and topic not in view.partitions:
            missing[alias].add(topic)
    looked = {partition.topic for partition in look.pair.earlier.ends} if look.pair.earlier else set()
    earlier_topics = {topic for topic in looked if look.flow_of(topic)}
    if look.source_view:
        listed = look.source_view.partitions
        tasks = {topic for live in look.source_connectors for topic in live.assignment.topics}
        missing[look.source.alias] |= (tasks | earlier_topics) - listed.keys()
    if look.target_view:
        topics = look.source_view.partitions if look.source_view else earlier_topics
        remotes = (flow.remote_topic(topic) for topic in topics if (flow := look.flow_of(topic)))
        missing[look.target.alias] |= {remote for remote in remotes if remote not in look.target_view.partitions}
    return {alias: tuple(sorted(topics)) for alias, topics in missing.items() if topics}


def _upstream(look: PairLook, remote: TopicPartition) -> TopicPartition | None:
    for flow in look.pair.flows:
        topic = flow.selection.upstream(remote.topic)
        if topic is not None and flow.carries(topic):
            return TopicPartition(topic, remote.partition)
    return None


@dataclass(frozen=True)
class PairLogs:
    """Logs of mirrored topics on both sides; `remotes`: names on the target by topic. `open_ends`: the ends before open
    transactions, where they could be read. `snapshot` has settings of topics. `anew`: partitions whose topic was made
    anew on the source since earlier looks."""

    remotes: Mapping[str, str]
    source: Mapping[TopicPartition, Offsets]
    target: Mapping[TopicPartition, Offsets]
    open_ends: Mapping[TopicPartition, int | None]
    settings: tuple[SettingsOfTopics, SettingsOfTopics] | None
    snapshot: Snapshot
    source_ids: Mapping[str, str] = field(default_factory=dict)
    target_ids: Mapping[str, str] = field(default_factory=dict)
    anew: Mapping[TopicPartition, AnewPlace] = field(default_factory=dict)

    def are_topics_of(self, topic: str, earlier: KeptLooks) -> bool:
        """Tell whether a topic of the source and its remote topic are known to be those of earlier looks."""
        source, target = earlier.topic_ids.get(topic, ("", ""))
        return source != "" and self.source_ids.get(topic, source) == source and self._target_id(topic) == target

    def are_other_topics(self, topic: str, earlier: KeptLooks) -> bool:
        """Tell whether one of them is known to have been created again since."""
        source, target = earlier.topic_ids.get(topic, ("", ""))
        return source != "" and (self.source_ids.get(topic, source), self._target_id(topic) or target) != (
            source,
            target,
        )

    def _target_id(self, topic: str) -> str | None:
        return self.target_ids.get(self.remotes[topic]) if topic in self.remotes else None


def read_pair_logs(look: PairLook, groups: PairGroups) -> Steps[PairLogs]:
    """Ask for the logs of the target, and then for those of the source: what is mirrored is never beyond its end."""
    listed = look.source_view.partitions if look.source_view else {}
    topics: Collection[str] = listed
    if not look.source_view:
        topics = {partition.topic for places in groups.committed.values() for partition in places}
        topics |= {partition.topic for partition in look.pair.earlier.ends} if look.pair.earlier else set()
    remotes = {topic: flow.remote_topic(topic) for topic in sorted(topics) if (flow := look.flow_of(topic))}
    there = look.target_view.partitions if look.target_view else {}
    target_logs = [
        TopicLogs(look.target.alias, remote, there[remote])
        for remote in dict.fromkeys(remotes.values())
        if remote in there
    ]
    settings = None
    if look.source_view and look.target_view and remotes:
        here = tuple(sorted(remotes))
        settings = (
            SettingsOfTopics(look.source.alias, here),
            SettingsOfTopics(look.target.alias, tuple(sorted({*remotes.values()} & there.keys()))),
        )
    here_ids = TopicIds(look.source.alias, tuple(sorted(remotes))) if look.source_view and remotes else None
    there_ids = TopicIds(look.target.alias, tuple(sorted({question.topic for question in target_logs})))
    of_ids = [question for question in (here_ids, there_ids) if question and question.topics]
    snapshot = yield [*target_logs, *(settings or ()), *of_ids]
    source_logs = [TopicLogs(look.source.alias, topic, listed[topic]) for topic in remotes if topic in listed]
    partitions = frozenset(
        TopicPartition(topic, number) for topic in remotes if topic in listed for number in range(listed[topic])
    )
    open_question = PartitionEnds(look.source.alias, partitions, committed=True) if partitions else None
    snapshot = yield source_logs
    if open_question:  # later than the ends of logs: what is written meanwhile is no open transaction
        snapshot = yield [open_question]
    target = _join_logs(look, snapshot, target_logs)
    source = _join_logs(look, snapshot, source_logs)
    open_ends = look.take(snapshot, open_question, "ends before open transactions") if open_question else {}
    source_ids, target_ids = (
        {} if question not in of_ids or isinstance(answer := snapshot.get(question), Mm2mgrError) else answer
        for question in (here_ids, there_ids)
    )
    earlier = look.pair.earlier
    anew = earlier.made_anew(remotes, source_ids, target_ids) if earlier else {}
    return PairLogs(remotes, source, target, open_ends or {}, settings, snapshot, source_ids, target_ids, anew)


def _join_logs(look: PairLook, snapshot: Snapshot, questions: Sequence[TopicLogs]) -> dict[TopicPartition, Offsets]:
    logs: dict[TopicPartition, Offsets] = {}
    failed: dict[str, list[str]] = {}
    for question in questions:
        answer = snapshot.get(question)
        if isinstance(answer, Mm2mgrError):
            failed.setdefault(answer.one_line, []).append(question.topic)
            continue
        logs.update(answer)
        if len(answer) < question.partitions:
            failed.setdefault("the brokers do not tell", []).append(question.topic)
    for reason, topics in failed.items():
        rights = [Right("Describe", "topic", topic) for topic in topics] if "authoriz" in reason.lower() else []
        look.miss(questions[0].cluster, f"logs of {few(topics)}", reason, rights=rights)
    return logs


def is_internal(topic: str) -> bool:
    """Tell whether a topic is Kafka's, Connect's or MirrorMaker's own."""
    return (
        topic.startswith("__")
        or topic.endswith((".internal", "-internal"))
        or re.search(r"(^|[.])heartbeats$", topic) is not None
    )
