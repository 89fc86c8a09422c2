"""Reads what the way back B->A of a pair A->B needs: the connectors of both directions, how far each has mirrored, the
logs of both sides, and records where they are to be compared. Nothing is written.

Connectors are read before their stored offsets, these before B's logs, and A's logs last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from mm2mgr.comparison.ownership import JOURNAL_KEY, Ownership, is_held
from mm2mgr.connect.types import parse_stored
from mm2mgr.connectors import Connector, RunningConnector, type_of, with_statuses
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.back import (
    MADE_ANEW,
    BackPartition,
    Beginning,
    Prepared,
    begin_partition,
    parse_prepared,
    stale_reason,
)
from mm2mgr.failover.journal import FailoverJournal, key_of, parse_journal
from mm2mgr.failover.kept import AnewPlace, KeptLooks
from mm2mgr.failover.syncs import OffsetSyncLog
from mm2mgr.kafka.groups import RecordMark, RecordPlace
from mm2mgr.live.questions import (
    Configs,
    OffsetSyncRecords,
    PartitionCounts,
    RecordMarks,
    RefusedTopics,
    Statuses,
    StoredOffsets,
    TextsByKey,
    TopicIds,
    TopicLogs,
)
from mm2mgr.live.snapshot import Steps
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.remarks import Remark
from mm2mgr.render import connectors_of
from mm2mgr.samples.schema import utc_text
from mm2mgr.text import few
from mm2mgr.topology import Flow, Topology

Names = Literal["identity", "default"]


@dataclass(frozen=True)
class WayConnector:
    """A source connector of one direction: as declared, and as it is (None: it does not exist). `mirrored`: the offset
    that it mirrors next, by partition of its source."""

    desired: Connector
    flow: Flow
    running: RunningConnector | None = None
    mirrored: Mapping[TopicPartition, int] = field(default_factory=dict)
    refusal: Remark | None = None

    @property
    def full_name(self) -> tuple[str, str]:
        return self.desired.connect, self.desired.name

    @property
    def name(self) -> str:
        """`connect/connector`."""
        return "/".join(self.full_name)

    @property
    def state(self) -> str:
        """Its state in Connect's words; "" where it does not exist."""
        return (self.running.state or "no status yet") if self.running else ""

    @property
    def is_held(self) -> bool:
        return self.running is not None and is_held(self.running.config)

    @property
    def has_stopped(self) -> bool:
        """Whether it mirrors nothing: STOPPED without a task; or held, and without one whatever its state."""
        if self.running is None or self.running.has_stopped:
            return True
        return self.is_held and self.running.status is not None and not self.running.status.tasks


@dataclass(frozen=True)
class WayBack:
    """The way back of a pair as it is now. `forward` are the connectors of the pair, `back` those of the way back.

    `beginnings`: by partition where the way back begins and what is lost, empty where it was prepared already.
    `rounds`: the ways back that were prepared so far, oldest first. `refusals`: why nothing may be written.
    `journal_reason`: why the journal of the failover is not used ("": it is). `own_topics`: what the way back takes
    now. `ended_journal`: keys of the journal of an earlier failover of the way back, over once that runs again.
    `checkpoints`: the checkpoint connectors of the way back that exist (`connect/connector`), which go with it.
    """

    pair: str
    names: Names
    forward: tuple[WayConnector, ...]
    back: tuple[WayConnector, ...]
    beginnings: tuple[Beginning, ...] = ()
    rounds: tuple[Prepared, ...] = ()
    refusals: tuple[Remark, ...] = ()
    journal_reason: str = ""
    own_topics: tuple[str, ...] = ()
    ended_journal: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()

    @property
    def back_pair(self) -> str:
        return "->".join(reversed(self.pair.split("->")))

    @property
    def is_prepared(self) -> bool:
        """Whether the way back may run as far as its own connectors are concerned, and the pair may not."""
        if any(way.running is None for way in self.back):
            return False
        return not self.to_prepare and (self.names == "default" or all(way.is_held for way in self.present_forward))

    @property
    def present_forward(self) -> list[WayConnector]:
        return [way for way in self.forward if way.running is not None]

    @property
    def to_prepare(self) -> list[WayConnector]:
        """The connectors of the way back whose offsets are to be written: once the pair is held, those that are."""
        if self.names == "default":
            return []
        is_begun = all(way.is_held for way in self.present_forward)
        return [way for way in self.back if not is_begun or way.is_held]

    @property
    def missing(self) -> list[str]:
        """The connectors of the way back that do not exist."""
        return [way.name for way in self.back if way.running is None]


def read_way_back(
    topology: Topology,
    connectors: Sequence[Connector],
    forward_flows: Sequence[Flow],
    back_flows: Sequence[Flow],
    looks: KeptLooks | None = None,
) -> Steps[WayBack]:
    """Read both directions, and find where the way back begins. Mm2mgrError where something cannot be read: nothing is
    guessed.

    `looks`: what earlier looks at the pair left, which know topics of A that were made anew since.
    """
    pair = forward_flows[0].pair
    names, refusals = _names_of(forward_flows, back_flows), list(_refusals_of_tree(forward_flows, back_flows))
    running = yield from _read_connectors(topology, connectors, (forward_flows, back_flows))
    forward, back, others, checkpoints = running
    refusals += [*_refusals_of_connectors(forward, back, names), *others]
    a, b = forward_flows[0].source.alias, forward_flows[0].target.alias
    of_texts, of_topics = [TextsByKey(alias, HISTORY_TOPIC) for alias in (b, a)], [
        PartitionCounts(alias) for alias in (b, a)
    ]  # fmt: skip
    snapshot = yield [*of_texts, *of_topics]
    owner, kept_texts = str(topology.owner), [snapshot[question] for question in of_texts]
    rounds = tuple(parse_prepared(kept_texts[0], owner, pair))
    way = WayBack(pair, names, forward, back, rounds=rounds, refusals=tuple(refusals), checkpoints=checkpoints)
    start = key_of(owner, way.back_pair)
    ended = tuple(key for key in kept_texts[1] if key == start or key.startswith(f"{start}/"))
    way = replace(way, ended_journal=ended)
    topics_b, topics_a = (snapshot[question] for question in of_topics)
    way = replace(way, own_topics=tuple(sorted(t for t in topics_b if any(flow.carries(t) for flow in back_flows))))
    if way.is_prepared if names == "identity" else not all(connector.has_stopped for connector in forward):
        return way  # with default names, what a pair that runs has not mirrored yet is not lost
    journal, way = _journal(way, kept_texts[0], owner)
    earlier = parse_prepared(kept_texts[1], owner, way.back_pair)
    parts = yield from _read_partitions(way, (topics_a, topics_b), journal, earlier)
    made_anew = (yield from _made_anew(way, parts, looks)) if looks else {}
    beginnings = yield from _compare(way, parts)
    beginnings = [
        replace(
            begin, refusal=f"{MADE_ANEW} after {utc_text(made_anew[begin.partition].at)}, and mirrored on behind it"
        )
        if begin.partition in made_anew
        else begin
        for begin in beginnings
    ]
    return replace(way, beginnings=tuple(beginnings), refusals=(*way.refusals, *_refusals_of(beginnings, way)))


# --- connectors -------------------------------------------------------------------------------------------------------


def _read_connectors(
    topology: Topology, connectors: Sequence[Connector], directions: Sequence[Sequence[Flow]]
) -> Steps[tuple[tuple[WayConnector, ...], tuple[WayConnector, ...], list[Remark], tuple[str, ...]]]:
    flows = {flow.id: flow for direction in directions for flow in direction}
    chosen = [[c for c in connectors_of(connectors, direction) if c.type == "source"] for direction in directions]
    clusters = sorted({connector.connect for direction in chosen for connector in direction})
    snapshot = yield [kind(name) for name in clusters for kind in (Configs, Statuses)]
    live = {name: with_statuses(snapshot[Configs(name)], snapshot[Statuses(name)]) for name in clusters}
    present = [(c.connect, c.name) for direction in chosen for c in direction if c.name in live[c.connect]]
    snapshot = yield [StoredOffsets(*named) for named in present]
    owners = Ownership.of_tree(topology)

    def way_of(connector: Connector) -> WayConnector:
        flow, named = flows[connector.flows[0]], (connector.connect, connector.name)
        running = live[connector.connect].get(connector.name)
        if running is None:
            return WayConnector(connector, flow)
        stored = parse_stored(snapshot[StoredOffsets(*named)], flow.source.alias)
        mirrored = {partition: offset + 1 for partition, offset in stored.items()}
        return WayConnector(connector, flow, running, mirrored, _untouchable(owners, named, running.config))

    forward, back = (tuple(map(way_of, direction)) for direction in chosen)
    checkpoints = tuple(
        f"{connector.connect}/{connector.name}"
        for connector in connectors_of(connectors, directions[1])
        if connector.type == "checkpoint" and connector.name in live.get(connector.connect, {})
    )
    others = list(_others_at_work(live, {way.full_name for way in (*forward, *back)}, forward, back))
    return forward, back, others, checkpoints


def _untouchable(owners: Ownership, named: tuple[str, str], config: Mapping[str, str]) -> Remark | None:
    if not owners.is_ours(named, config):
        return Remark(f"{owners.whose(named, config)}; mm2mgr does not touch it", remedy=owners.remedy(named, config))
    if JOURNAL_KEY in config:
        return Remark("a move of its stored offsets is not finished", remedy="run mm2mgr apply, which finishes it")
    return None


def _others_at_work(
    live: Mapping[str, Mapping[str, RunningConnector]],
    known_names: set[tuple[str, str]],
    forward: Sequence[WayConnector],
    back: Sequence[WayConnector],
) -> Iterator[Remark]:
    """Yield connectors that the tree does not declare and that mirror between the two clusters."""
    aliases = {(way.flow.source.alias, way.flow.target.alias) for way in (*forward, *back)}
    for connect, named in live.items():
        for name, running in named.items():
            ends = running.config.get("source.cluster.alias", ""), running.config.get("target.cluster.alias", "")
            is_source = type_of(running.config.get("connector.class", "")) == "source"
            if is_source and ends in aliases and (connect, name) not in known_names and not running.has_stopped:
                yield Remark(
                    f"{connect}/{name}, which the tree does not declare, mirrors {'->'.join(ends)} and is not STOPPED",
                    remedy="stop it, or declare it",
                )


# --- what forbids it --------------------------------------------------------------------------------------------------


def _names_of(forward: Sequence[Flow], back: Sequence[Flow]) -> Names:
    policies = {flow.settings.replication_policy for flow in (*forward, *back)}
    if policies == {"identity"}:
        return "identity"
    if policies == {"default"}:
        return "default"
    raise Mm2mgrError(
        f"flows of {forward[0].pair} and {back[0].pair} have the replication policies {few(sorted(policies))}:"
        " what goes back is known where all have `default`, or all have `identity`",
        hint="write the same replication_policy for both directions",
    )


def offset_syncs_place(flow: Flow) -> tuple[str, str]:
    """Return the alias of the cluster with the offset syncs of a flow, and their topic (MirrorSourceConfig)."""
    is_source = flow.settings.offset_syncs.location == "source"
    here, other = (flow.source, flow.target) if is_source else (flow.target, flow.source)
    mark = flow.selection.internal_separator
    return here.alias, f"mm2-offset-syncs{mark}{other.alias}{mark}internal"


def _refusals_of_tree(forward: Sequence[Flow], back: Sequence[Flow]) -> Iterator[Remark]:
    shared = {offset_syncs_place(flow) for flow in forward if flow.settings.offset_syncs.enabled} & {
        offset_syncs_place(flow) for flow in back if flow.settings.offset_syncs.enabled
    }
    for alias, topic in sorted(shared):
        yield Remark(
            f"both directions write their offset syncs to {topic} on '{alias}', where those of one cannot be told from"
            " those of the other",
            remedy="write the same offset_syncs: {location: …} for both directions",
        )


def _refusals_of_connectors(
    forward: Sequence[WayConnector], back: Sequence[WayConnector], names: Names
) -> Iterator[Remark]:
    for way in (*forward, *back):
        if way.refusal:
            yield Remark(f"{way.name}: {way.refusal.text}", remedy=way.refusal.remedy)
    if names == "default":
        return
    running = [way for way in forward if not way.has_stopped]
    if running:
        shown = few([f"{way.name} is {way.state}" for way in running])
        remedy = f"mm2mgr failover run '{forward[0].flow.pair}', or mm2mgr stop '{forward[0].flow.pair}'"
        yield Remark(f"{shown}: with kept names the pair must be STOPPED without a task first", remedy=remedy)


def _refusals_of(beginnings: Iterable[Beginning], way: WayBack) -> Iterator[Remark]:
    source = way.pair.partition("->")[0]
    reasons: dict[str, list[str]] = {}
    for begin in beginnings:
        if begin.refusal:
            reasons.setdefault(begin.refusal, []).append(str(begin.partition))
    for reason, partitions in reasons.items():
        remedy = (
            f"exclude the topics from {way.back_pair}; or write the offsets yourself: mm2mgr offsets reset, where the"
            " connector is not held"
        )
        if MADE_ANEW in reason:
            remedy = f"delete these topics on {source} once nobody needs what was written to them: then all that"
            remedy += f" {way.back_pair.partition('->')[0]} has goes there; or exclude them from {way.back_pair}"
        yield Remark(f"{few(partitions)}: {reason}", remedy=remedy)


# --- logs and records -------------------------------------------------------------------------------------------------


def _journal(way: WayBack, texts: Mapping[str, str], owner: str) -> tuple[FailoverJournal | None, WayBack]:
    """Return the journal of the failover if it still says where B's own records begin."""
    journal = parse_journal(texts, owner, way.pair)
    carried = [way.flow for way in way.forward]
    mirrored = {
        partition: offset
        for partition, offset in _join_mirrored(way.forward).items()
        if any(flow.carries(partition.topic) for flow in carried)
    }
    reason = stale_reason(journal, mirrored)
    return (None if reason else journal), replace(way, journal_reason=reason)


def _join_mirrored(connectors: Iterable[WayConnector]) -> dict[TopicPartition, int]:
    mirrored: dict[TopicPartition, int] = {}
    for way in connectors:
        for partition, offset in way.mirrored.items():
            mirrored[partition] = max(offset, mirrored.get(partition, offset))
    return mirrored


def _read_partitions(
    way: WayBack,
    topics: tuple[Mapping[str, int], Mapping[str, int]],
    journal: FailoverJournal | None,
    earlier: Sequence[Prepared],
) -> Steps[list[BackPartition]]:
    """Return the partitions that either direction takes, B's logs being read before A's."""
    first = way.forward[0].flow
    a, b, (topics_a, topics_b) = first.source.alias, first.target.alias, topics
    remotes = {
        topic: flow.remote_topic(topic)
        for topic in topics_a
        if (flow := next((way.flow for way in way.forward if way.flow.carries(topic)), None))
    }
    if way.names == "identity":
        remotes |= {topic: topic for topic in way.own_topics}
    of_b = [TopicLogs(b, remote, topics_b[remote]) for remote in sorted({*remotes.values()} & topics_b.keys())]
    syncs_at = offset_syncs_place(first)
    of_syncs = OffsetSyncRecords(*syncs_at)
    are_listed = syncs_at[1] in (topics_a if syncs_at[0] == a else topics_b)
    snapshot = yield [*of_b, *([of_syncs] if are_listed else [])]
    logs_b = {place: log for question in of_b for place, log in snapshot[question].items()}
    syncs = snapshot[of_syncs] if are_listed else OffsetSyncLog()
    of_a = [TopicLogs(a, topic, topics_a[topic]) for topic in sorted(remotes.keys() & topics_a.keys())]
    snapshot = yield of_a
    logs_a = {place: log for question in of_a for place, log in snapshot[question].items()}
    _refuse_unread(b, of_b, logs_b)
    _refuse_unread(a, of_a, logs_a)
    yield from _refuse_unlisted(way, b, topics_b)
    ends: Mapping[TopicPartition, int] = journal.target_ends if journal else {}
    mirrored, back_stored = _join_mirrored(way.forward), _join_mirrored(way.back)
    begun = {place: offsets for prepared in earlier for place, offsets in prepared.places.items()}
    result = []
    for topic, remote in remotes.items():
        for number in range(max(topics_a.get(topic, 0), topics_b.get(remote, 0))):
            place, there = TopicPartition(topic, number), TopicPartition(remote, number)
            log = logs_b.get(there, Offsets(0, 0))
            result.append(
                BackPartition(
                    place,
                    log,
                    logs_a.get(place),
                    mirrored.get(place),
                    log.end if way.names == "default" else ends.get(there),
                    syncs.by_partition.get(place, ()),
                    begun.get(place) if way.names == "identity" else None,
                    back_stored.get(there) if way.names == "identity" else None,
                    there,
                )
            )
    return result


def _refuse_unlisted(way: WayBack, alias: str, topics: Mapping[str, int]) -> Steps[None]:
    """Mm2mgrError for topics that were mirrored and that mm2mgr's login does not see on the target: without an offset,
    all of their records would go back."""
    taken = {place.topic for place in _join_mirrored(way.forward)}
    remotes = {w.flow.remote_topic(topic) for w in way.forward for topic in taken if w.flow.carries(topic)}
    missing = RefusedTopics(alias, tuple(sorted(remotes - topics.keys())))
    if not missing.topics:
        return
    refused = (yield [missing])[missing]
    if refused:
        raise Mm2mgrError(
            f"{alias}: mm2mgr's login may not describe {few(refused)}, which was mirrored there: where the way back"
            " begins in it is not known",
            hint=f"give it Describe on topic {refused[0]}",
        )


def _refuse_unread(alias: str, asked: Iterable[TopicLogs], logs: Mapping[TopicPartition, Offsets]) -> None:
    """Mm2mgrError for logs that could not be read: where the way back begins is never guessed."""
    unread = [str(place) for place in TopicLogs.all_partitions(list(asked)) if place not in logs]
    if unread:
        raise Mm2mgrError(f"{alias}: the logs of {few(unread)} could not be read", hint="run it again when they can")


def _made_anew(
    way: WayBack, parts: Sequence[BackPartition], looks: KeptLooks
) -> Steps[Mapping[TopicPartition, AnewPlace]]:
    """Return the partitions of A whose topics were made anew since earlier looks, and whose records on B are of the old
    topic, or may be. With default names nothing of these goes back."""
    if way.names == "default":
        return {}
    alias_a, alias_b = way.pair.split("->")
    topics = tuple(sorted({part.partition.topic for part in parts}))
    of_a, of_b = TopicIds(alias_a, topics), TopicIds(alias_b, topics)
    snapshot = yield [of_a, of_b] if topics else []
    ids: list[Mapping[str, str]] = []
    for question in (of_a, of_b) if topics else ():
        answer = snapshot.get(question)
        ids.append({} if isinstance(answer, Mm2mgrError) else answer)
    anew = looks.made_anew({topic: topic for topic in topics}, *ids) if ids else {}
    starts = {part.partition: part.source.start if part.source else 0 for part in parts}
    syncs = {part.partition: part.syncs for part in parts}
    return {
        partition: place
        for partition, place in anew.items()
        if partition in syncs and not place.syncs_since(syncs[partition], starts[partition])
    }


def _compare(way: WayBack, parts: Sequence[BackPartition]) -> Steps[list[Beginning]]:
    """Return where the way back begins in each partition, with the records of both sides where they are needed."""
    a, b = way.forward[0].flow.source.alias, way.forward[0].flow.target.alias
    # Records that a transformation changes are no copies that could be known again.
    configs = [connector.running.config for connector in way.forward if connector.running]
    can_compare = not any("transforms" in config for config in configs)
    places: dict[TopicPartition, tuple[RecordPlace, RecordPlace]] = {
        part.partition: read_places
        for part in parts
        if can_compare and part.needs_comparison and (read_places := part.places()) is not None
    }
    of_a = RecordMarks(a, tuple(here for here, _ in places.values()))
    of_b = RecordMarks(b, tuple(there for _, there in places.values()))
    snapshot = yield [of_a, of_b] if places else []
    marks_a: Mapping[RecordPlace, Sequence[RecordMark]] = snapshot[of_a] if places else {}
    marks_b: Mapping[RecordPlace, Sequence[RecordMark]] = snapshot[of_b] if places else {}
    begins = []
    for part in parts:
        here, there = places.get(part.partition, (None, None))
        begins.append(begin_partition(part, here and marks_a.get(here), there and marks_b.get(there)))
    return begins
