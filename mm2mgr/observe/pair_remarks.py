"""What differs between the clusters of a pair, what is not mirrored at all, and which connectors do not run, as remarks
of one look at it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from mm2mgr import defaults
from mm2mgr.failover.check import (
    GroupPosition,
)
from mm2mgr.failover.differences import SHARE_GROUPS, acl_gaps, quota_gaps, streams_states
from mm2mgr.kafka.acls import Right
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.live.questions import ClusterAcls, Quotas
from mm2mgr.observe.beside_records import COPIED, TopicSync, config_sync
from mm2mgr.observe.pair_look import (
    PairGroups,
    PairLogs,
    PairLook,
    is_internal,
)
from mm2mgr.observe.reading import LiveConnector
from mm2mgr.remarks import Remark
from mm2mgr.render import quota_mark
from mm2mgr.text import few, number_of
from mm2mgr.topics.names import NameFilter


def compare_clusters(look: PairLook, groups: PairGroups, logs: PairLogs) -> None:
    """Note topics, settings, rights and quotas that differ on the target, where both clusters were read."""
    if not (look.source_view and look.target_view):
        return
    look.remarks += _topic_remarks(look, logs)
    look.remarks += _changed_source_remarks(look, logs)
    look.remarks += _setting_remarks(look, logs)
    look.remarks += _acl_remarks(look, groups, logs)
    look.remarks += _quota_remarks(look, groups)
    transactions = [
        partition
        for partition, end in logs.open_ends.items()
        if end is not None and partition in logs.source and end < logs.source[partition].end
    ]
    if transactions:
        names = few([str(partition) for partition in sorted(transactions)])
        text = f"{number_of(len(transactions), 'partition')} with an open transaction ({names})"
        look.remarks.append(Remark(text, "warns", "let producers end their transactions before a planned failover"))


def _topic_remarks(look: PairLook, logs: PairLogs) -> Iterator[Remark]:
    assert look.source_view
    assert look.target_view
    listed, there = look.source_view.partitions, look.target_view.partitions
    missing = [topic for topic, remote in logs.remotes.items() if remote not in there]
    short = [topic for topic, remote in logs.remotes.items() if 0 < there.get(remote, 0) < listed[topic]]
    if missing:
        text = f"{number_of(len(missing), 'topic')} not on the target yet ({few(missing)})"
        yield Remark(text, "blocks", "look at `mm2mgr status`: their flows have not created them")
    if short:
        text = f"{number_of(len(short), 'topic')} with fewer partitions on the target ({few(short)})"
        yield Remark(text, "blocks", "records of the other partitions do not arrive: see `mm2mgr status`")


def _changed_source_remarks(look: PairLook, logs: PairLogs) -> Iterator[Remark]:
    """Yield topics of the last look that are not on the source any more: deleted, or those of another cluster."""
    earlier, view, alias = look.pair.earlier, look.source_view, look.source.alias
    if earlier is None or view is None:
        return
    topics = sorted(topic for topic in {partition.topic for partition in earlier.ends} if look.flow_of(topic))
    gone = [name for name in topics if name not in view.partitions and (alias, name) not in look.refused_topics]
    ids = {topic: source_id for topic, (source_id, _) in earlier.topic_ids.items()}
    made_anew = {partition.topic for partition in logs.anew}
    anew = [
        topic
        for topic in topics
        if topic in ids and topic not in made_anew and logs.source_ids.get(topic, ids[topic]) != ids[topic]
    ]
    for names, change in ((gone, "gone from"), (anew, "created again on")):
        if names:
            text = f"{number_of(len(names), 'topic')} {change} {alias} since the last look ({few(names)})"
            yield Remark(text, "warns", "look whether this is the cluster that is meant: only what it has is judged")


def _setting_remarks(look: PairLook, logs: PairLogs) -> Iterator[Remark]:
    if logs.settings is None:
        return
    answers = [
        look.take(logs.snapshot, question, "settings of topics", Right("DescribeConfigs", "topic", "*"))
        for question in logs.settings
    ]
    if answers[0] is None or answers[1] is None:
        return
    for question, answer in zip(logs.settings, answers, strict=True):
        assert answer is not None
        if refused := [topic for topic in question.topics if topic not in answer]:
            rights = [Right("DescribeConfigs", "topic", topic) for topic in refused]
            look.miss_rights(question.cluster, f"settings of {number_of(len(refused), 'topic')}", rights)
    here, there = (RunningKafka(configs=answer) for answer in answers if answer is not None)
    usual = NameFilter(tuple(defaults.PROPERTIES_EXCLUDE), ())
    sync_of = {
        flow_id: config_sync(live) or TopicSync(0.0, usual)
        for live in look.source_connectors
        for flow_id in live.desired.flows
    }
    differing: dict[str, list[str]] = {}
    for topic, remote in logs.remotes.items():
        flow = look.flow_of(topic)
        assert flow is not None
        sync = sync_of.get(flow.id, TopicSync(0.0, usual))
        if found_missing := COPIED["configs"].missing((here, topic), (there, remote), sync):
            differing[topic] = sorted(map(COPIED["configs"].name, found_missing))
    if differing:
        examples = [f"{topic}: {', '.join(keys)}" for topic, keys in sorted(differing.items())]
        yield Remark(
            f"settings differ of {number_of(len(differing), 'topic')} ({few(examples, between='; ')})",
            "warns",
            "set them on the target, or let the flow copy them (`sync: {topic_configs: true}`)",
        )


def _acl_remarks(look: PairLook, groups: PairGroups, logs: PairLogs) -> Iterator[Remark]:
    sides = []
    for alias in (look.source.alias, look.target.alias):
        answer = groups.snapshot.get(ClusterAcls(alias))
        if answer is None:
            look.miss_rights(alias, "ACLs", [Right("Describe", "cluster")])
        sides.append(look.take(groups.snapshot, ClusterAcls(alias), "ACLs", Right("Describe", "cluster")))
    source, target = sides
    if source is None or target is None:
        return
    if source and not target and not _has_authorizer(look):
        return
    gaps = list(acl_gaps(source, target, logs.remotes, groups.committed.keys()))
    if gaps:
        examples = [f"{principal}: {right}" for principal, right in gaps]
        text = f"{number_of(len(gaps), 'right')} of consumers missing on the target ({few(examples, between='; ')})"
        yield Remark(text, "warns", "grant them there: principals may have other names on it")


def _has_authorizer(look: PairLook) -> bool:
    """Tell whether the target has an authorizer: without one, a login may do everything to the cluster."""
    return look.target_view is not None and "ClusterAction" not in look.target_view.operations


def _quota_remarks(look: PairLook, groups: PairGroups) -> Iterator[Remark]:
    right = Right("DescribeConfigs", "cluster")
    source, target = (
        look.take(groups.snapshot, Quotas(alias), "client quotas", right)
        for alias in (look.source.alias, look.target.alias)
    )
    if source is None or target is None:
        return
    mark = quota_mark(str(look.pair.topology.owner))
    if gaps := quota_gaps(source, target, lambda entity: entity.client_id.startswith(mark)):
        names = few([str(entity) for entity in gaps], between="; ")
        text = f"quotas of producers differ for {number_of(len(gaps), 'client')} ({names})"
        yield Remark(text, "warns", "set those that are meant on the target too")


def note_groups(look: PairLook, groups: PairGroups, positions: Sequence[GroupPosition]) -> None:
    """Note what groups read that is not mirrored, and which groups MirrorMaker passes over."""
    judged = {position.group for position in positions}
    if look.target_view and (states := groups.target_states) is not None:
        silent = sorted(group for group in judged if group in states and not states[group].state)
        if silent:
            look.miss(look.target.alias, f"members of {few(silent)}", "its brokers do not tell the states of groups")
    look.remarks += _unmirrored_remarks(look, groups)
    if look.source_view:
        look.remarks += _application_remarks(look, groups, judged)


def _unmirrored_remarks(look: PairLook, groups: PairGroups) -> Iterator[Remark]:
    readers: dict[str, set[str]] = defaultdict(set)
    left_out: set[str] = set()
    for group, places in groups.committed.items():
        for topic in {partition.topic for partition in places}:
            if look.flow_of(topic) is None:
                if not is_internal(topic):
                    readers[topic].add(group)
            elif not look.is_synced(group):
                left_out.add(group)
    of_groups = {partition.topic for places in groups.committed.values() for partition in places}
    streams = streams_states(look.source_view.partitions if look.source_view else of_groups, groups.committed.keys())
    topics = sorted(readers.keys() - {topic for state in streams for topic in state.topics})
    if topics:
        names = sorted({group for topic in topics for group in readers[topic]})
        reasons = [f"{topic}: {_why_not_mirrored(look, topic)}" for topic in topics]
        text = (
            f"{number_of(len(names), 'group')} ({few(names)}) read {number_of(len(topics), 'topic')} that this pair "
            f"does not mirror ({few(reasons, between='; ')})"
        )
        yield Remark(text, "warns", "add them to a flow, or expect them missing")
    if left_out:
        text = f"{number_of(len(left_out), 'group')} left out of checkpoints by the tree ({few(sorted(left_out))})"
        yield Remark(text, "warns", "see `checkpoints: {groups: …}` of the flows")
    if streams:
        names, count = [state.application for state in streams], sum(len(state.topics) for state in streams)
        text = (
            f"Kafka Streams applications ({few(names)}): their state in {number_of(count, 'topic')} is of no use there"
        )
        yield Remark(text, "warns", "reset them at the target, so that they build their state anew")


def _application_remarks(look: PairLook, groups: PairGroups, judged: Collection[str]) -> Iterator[Remark]:
    assert look.source_view
    if SHARE_GROUPS in look.source_view.partitions:
        text = f"share groups are used on {look.source.alias}: MirrorMaker does not mirror what they acknowledged"
        yield Remark(text, "warns", "they begin anew at the target")
    states = groups.source_states
    if simple := sorted(group for group in judged if group in states and states[group].is_simple):
        text = f"{number_of(len(simple), 'group')} never had a member ({few(simple)}): MirrorMaker passes over them"
        yield Remark(text, "warns", "commit their translated offsets on the target")


def _why_not_mirrored(look: PairLook, topic: str) -> str:
    reasons = (flow.selection.refusal(topic) for flow in look.pair.flows)
    return next(filter(None, reasons), "no flow names it")


def _why_not_running(live: LiveConnector, state: str) -> str:
    if state == "RUNNING":
        lame = "its tasks do not all run" if live.status and live.status.tasks else "it has no task"
        return f"{live.desired.name} is RUNNING, but {lame}"
    return f"{live.desired.name} does not run ({state or 'no status'})"


def note_connectors(look: PairLook) -> None:
    """Note which connectors of the pair do not run, or do not write what its groups need."""
    if look.connect.failure:
        return
    for live in look.source_connectors:
        if live.running is None:
            text = f"{live.desired.name} is not applied"
            look.remarks.append(Remark(text, "blocks", "run `mm2mgr apply`"))
        elif not live.runs:
            text = _why_not_running(live, live.running.state)
            look.remarks.append(Remark(text, "warns", "see `mm2mgr status`"))
    live_checkpoints = look.checkpoint_connector
    if live_checkpoints is None or live_checkpoints.running is None:
        text = "the pair has no checkpoint connector: no offset is translated for its groups"
        look.remarks.append(Remark(text, "warns", "write `checkpoints: {group_offsets: true}`, and apply it"))
        return
    if not live_checkpoints.runs:
        text = _why_not_running(live_checkpoints, live_checkpoints.running.state)
        look.remarks.append(Remark(text, "warns", "see `mm2mgr status`"))
    if not syncs_groups(live_checkpoints):
        text = "group offsets are not written to the target"
        look.remarks.append(Remark(text, "warns", "write `checkpoints: {group_offsets: true}`"))


def syncs_groups(live: LiveConnector) -> bool:
    """Tell whether a checkpoint connector writes translated offsets into the target's groups."""
    config = live.running.config if live.running else live.desired.config
    return config.get("sync.group.offsets.enabled", "false").strip().lower() == "true"
