"""Finds topics that a source connector would mirror a second time, because another connector has mirrored them. Pure.

Offsets are stored by connector name on a Connect cluster (KIP-875). So a renamed flow, a flow that moves to another
Connect cluster, and a topic that moves to another flow all start from the beginning. A flow that is turned round, names
kept, sends records back to where they came from. Each write that takes other topics than before gets a `MirrorVerdict`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import JOURNAL_KEY, Journal, TakeOver
from mm2mgr.lint.hops import Hop
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import Change, RenamedTopic, connector_text
from mm2mgr.plan.judges import MIRRORED, Connectors
from mm2mgr.plan.renames import TAKEN, objections, renamed_topics, where_it_goes_on
from mm2mgr.plan.widening import (
    MirroredState,
    Widening,
    former_names,
    names_of,
    new_names,
    objection_collides,
    objection_renamed,
    objection_too_long,
    other_names,
    topics_ended,
)
from mm2mgr.remarks import Remark
from mm2mgr.render import FLOW_KEY
from mm2mgr.text import few, in_yaml
from mm2mgr.topics.shared import meeting
from mm2mgr.truth.reach import numbers

ALLOWED_BY = {MIRRORED: "mirror-again", "target-names": "target-names", TAKEN: TAKEN}
"""The costly kind of change (`price.KINDS`) that an objection is about."""


@dataclass(frozen=True)
class Again:
    """What would be mirrored a second time: which connector mirrored it, and which topics; topics are () where only
    patterns are known.
    """

    old: Named
    topics: tuple[str, ...]

    def __str__(self) -> str:
        return connector_text(self.old)


def _mirrored_by_other_connector(
    widening: Widening, state: MirroredState, is_abandoned: Callable[[Named], bool], over: TakeOver | None = None
) -> Iterator[Again]:
    """Yield what a write would mirror a second time, by the connector that mirrored it.

    `is_abandoned`: which connectors are owned and no longer declared; what it takes `over` brings its offsets.
    """
    taken_offsets = (over and state.offsets.get(over.giver)) or {}
    own = {
        **(state.offsets.get(widening.full_name) or {}),
        **{p: at for p, at in taken_offsets.items() if over and over.has_topic(p.topic)},
    }
    for other, hop in widening.others.items():
        is_giver = over is not None and other == over.giver
        abandoned = is_abandoned(other)
        topics = [
            topic
            for topic, offsets in _mirrored_by(other, hop, state).items()
            if not (is_giver and over and over.has_topic(topic))
            and widening.repeats(other, topic, is_abandoned=abandoned)
            and any(offset > own.get(partition, -1) for partition, offset in offsets.items())
        ]
        if topics:
            yield Again(other, tuple(sorted(topics)))
        elif not is_giver and not _is_known(other, hop, state) and hop.selection and widening.new.selection:
            shared = meeting([hop.selection, widening.new.selection]).topic
            if shared and widening.repeats(other, shared, is_abandoned=abandoned):
                yield Again(other, ())


def _mirrored_by_former_config(widening: Widening, state: MirroredState) -> Iterator[Again]:
    """Yield what a write mirrors a second time as the connector's former config did; it goes the other way now.

    Stored offsets do not name their target: what has no records there was mirrored to another one.
    """
    own, there = state.offsets.get(widening.full_name) or {}, _topics_on_target(widening, state)
    for other in widening.opposite:
        stored = state.former.get((other, widening.source), {})
        topics = {partition.topic for partition, offset in stored.items() if offset > own.get(partition, -1)}
        if repeats := sorted(t for t in topics if widening.newly(t) and (there is None or t in there)):
            yield Again(other, tuple(repeats))


def _would_mirror_back(
    widening: Widening, state: MirroredState, is_abandoned: Callable[[Named], bool]
) -> Iterator[Again]:
    """Yield what a write would mirror back to where it came from, by the connector that brought it."""
    for other, hop in widening.opposite.items():
        topics = list(_mirrored_by(other, hop, state))
        is_known = _is_known(other, hop, state)
        if not is_known and hop.selection and widening.new.selection:
            shared = meeting([hop.selection, widening.new.selection], ["", hop.selection.prefix]).topic
            topics += [shared] if shared else []
        back = {widening.sends_back(other, topic, is_abandoned=is_abandoned(other)) for topic in topics}
        if returning := sorted(filter(None, back)):
            yield Again(other, tuple(returning) if is_known else ())


_NOT_STORED_YET = 2**63  # what runs may have mirrored more than its workers have stored


def _mirrored_by(named: Named, hop: Hop, state: MirroredState) -> dict[str, dict[TopicPartition, int]]:
    """Return topic → partition → last mirrored offset; unstored ones of a running connector are the newest."""
    by_topic: dict[str, dict[TopicPartition, int]] = {}
    if _is_half_made(hop):
        return by_topic
    for partition, offset in {**state.former.get((named, ""), {}), **(state.offsets.get(named) or {})}.items():
        by_topic.setdefault(partition.topic, {})[partition] = offset
    listed = state.kafka(hop.subject.source)
    if listed and not _has_stored_all(hop):
        for topic, end in listed.log_ends.items():
            if end and topic not in by_topic and hop.selection and hop.selection.takes(topic):
                by_topic[topic] = {TopicPartition(topic, 0): _NOT_STORED_YET}
    return by_topic


def _is_known(named: Named, hop: Hop, state: MirroredState) -> bool:
    """Tell whether all that a connector mirrored is known: its offsets, and topics not stored yet."""
    stored = state.offsets.get(named) is not None
    return _is_half_made(hop) or (stored and (_has_stored_all(hop) or state.kafka(hop.subject.source) is not None))


def _is_half_made(hop: Hop) -> bool:
    """Tell whether a connector never ran yet: it waits for offsets, and has what a former one left, if any."""
    journal = Journal.of_config(hop.subject.config)
    if journal and journal.start:
        return True
    return bool(journal and journal.move and journal.move.created and not journal.move.carried)


def _has_stored_all(hop: Hop) -> bool:
    return hop.subject.state == "STOPPED"  # only then are all offsets stored (KIP-875)


@dataclass(frozen=True)
class MirrorVerdict:
    """What is known of one write: what it mirrors a second time, the objections to it, and the offsets that it needs.

    `topics` are those that it would mirror a second time, as far as they are known; `renamed` has names on the target
    before and after, and `renames` where those that are known go on. `ends` are topics that nothing mirrors any more.
    """

    again: tuple[Again, ...]
    objections: tuple[Remark, ...]
    needs: tuple[str, ...]
    topics: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    renames: tuple[RenamedTopic, ...] = ()
    ends: tuple[str, ...] = ()


def judge(
    widening: Widening, state: MirroredState, connectors: Connectors, version: str | None, change: Change
) -> MirrorVerdict:
    """Judge a write that takes other topics than before; `version` is the workers' Kafka, None when it is not known.

    What it takes over comes with its stored offsets; a move that was begun ends under the names that it was begun with.
    """
    over = change.takes_over
    giver, begun = over.giver if over else None, JOURNAL_KEY in (change.before or {})
    repeats = (
        *_mirrored_by_other_connector(widening, state, connectors.is_abandoned, over),
        *_mirrored_by_former_config(widening, state),
    )
    left = _arrived_without_offsets(widening, state)
    if over is not None and over.giver in widening.others:
        before = widening.others[over.giver].selection
        stored = {
            partition.topic for partition in state.offsets.get(over.giver) or {} if over.has_topic(partition.topic)
        }
        left, version = [topic for topic in left if before and not before.takes(topic) and topic not in stored], "0"
    if change.start is not None and change.start.repeats_nothing:
        left = []
    if change.start is not None and change.before is not None:
        version = "0"  # it was created, so nothing can be tried any more
    late = _objection_no_offsets(widening, left, version)
    back = tuple(_would_mirror_back(widening, state, connectors.is_abandoned))
    objection = _objection_duplicates(repeats, connectors.owned, widening, giver) or _objection_loop(back, widening)
    objection = objection or _objection_unread_cluster(widening, state, connectors.unread) or late
    topics = dict.fromkeys(topic for repeat in (*repeats, *back) for topic in repeat.topics)
    former = () if begun or giver is None else (former_names(giver, connectors),)
    formers = (names_of(widening.before.subject) if widening.before else None, *former)
    names = tuple(dict.fromkeys(new_names(widening, state, formers)))
    elsewhere = objection_renamed(widening, names, formers, connectors.files)
    ran_as = tuple(filter(None, (widening.before, widening.others.get(giver) if giver else None)))
    goes_on = where_it_goes_on(state.offsets, widening.full_name, giver)
    shown = connectors.live[giver].state if giver and giver in connectors.live else change.shown
    renames = [renamed_topics(widening, state, former, goes_on, shown) for former in formers]
    return MirrorVerdict(
        (*repeats, *back),
        (
            *filter(
                None, (objection, elsewhere, objection_too_long(widening, state), objection_collides(widening, state))
            ),
            *objections(widening, names, state, connectors, ran_as),
        ),
        () if objection else tuple(left),
        tuple(topics if repeats or back else left if objection is late and late else ()),
        (*names, *(pair for repeat in repeats for pair in other_names(widening, repeat.old, repeat.topics))),
        tuple({renamed.topic: renamed for of_former in renames for renamed in of_former}.values()),
        topics_ended(widening, state, connectors.desired.values()),
    )


def _twice(text: str, remedy: str) -> Remark:
    return Remark(text, "blocks", remedy, MIRRORED)


def _objection_duplicates(
    repeats: Sequence[Again], owned: Container[Named], widening: Widening, giver: Named | None = None
) -> Remark | None:
    """Return the objection to a write that mirrors topics a second time; `owned` connectors are this tree's.

    From its `giver` it takes over other topics already.
    """
    if not repeats:
        return None
    others = " and ".join(map(str, repeats))
    return _twice(
        f"{_mirrored_text(repeats)}, and offsets are stored by connector name: every record would be mirrored again",
        (
            "keep the flow's name, the cluster's alias, the Connect cluster, and each topic in its flow; or "
            f"{_entry(repeats[0], widening, giver)} to carry the stored offsets along; or add --allow mirror-again"
            if all(repeat.old in owned and repeat.old in widening.others for repeat in repeats)
            else f"leave these topics to {others}; or delete it and add --allow mirror-again"
        ),
    )


def _objection_loop(repeats: Sequence[Again], widening: Widening) -> Remark | None:
    """Return the objection to a write that mirrors topics back to where they came from."""
    if not repeats:
        return None
    return _twice(
        f"{_mirrored_text(repeats)} from '{widening.target}' to '{widening.source}' under the names that they would get"
        f" there: every record would return to the topic it came from, and be in '{widening.target}' twice",
        "write replication_policy: default for the way back, or give it other topics; after a failover, create it with"
        f" state: stopped, and mm2mgr failover back '{widening.target}->{widening.source}' writes where it begins; or,"
        " where consumers bear each record twice, add --allow mirror-again",
    )


def _mirrored_text(repeats: Sequence[Again]) -> str:
    others = " and ".join(map(str, repeats))
    topics = dict.fromkeys(topic for repeat in repeats for topic in repeat.topics)
    topics_text = f"these topics ({few(list(topics))})" if topics else "these topics"
    return f"{others} {'has' if len(repeats) == 1 else 'have'} mirrored {topics_text}"


def _entry(again: Again, widening: Widening, giver: Named | None) -> str:
    """Return the entry of the tree that carries offsets along; flows that both stay give each other topics."""
    if again.old == giver:
        return f"write {', '.join(again.topics)} under topics: of that entry of moved:, too,"
    old, stays = again.old, again.old in widening.declared
    flow = widening.others[old].subject.config.get(FLOW_KEY, "/".join(old)) if stays else "/".join(old)
    topics = f", topics: [{', '.join(again.topics) or '…'}]" if stays else ""
    to = in_yaml(widening.new.subject.config.get(FLOW_KEY, "…"))
    return f"write moved: [{{from: {in_yaml(flow)}, to: {to}{topics}}}]"


def _objection_unread_cluster(widening: Widening, state: MirroredState, unread: Sequence[str]) -> Remark | None:
    """Return the objection to a write while an unread Connect cluster may have mirrored the topics."""
    if not unread:
        return None
    clusters = " and ".join(f"'{name}'" for name in unread)
    if returning := _may_come_from_target(widening, state):
        return _twice(
            f"Connect cluster {clusters} could not be read, and '{widening.source}' has topics that were mirrored from"
            f" '{widening.target}', by their names ({few(returning)}): if a connector there still does, they would be"
            " mirrored back and forth without end",
            f"bring {clusters} back and plan again; or leave these topics out; or add --allow mirror-again if nothing"
            " mirrors them any more",
        )
    there, target = _topics_on_target(widening, state), state.kafka(widening.target)
    cause = f"topics of '{widening.source}' or '{widening.target}' could not be listed"
    if there is not None and target is not None:
        topics = set(state.begun.get(widening.full_name, ()))
        names = {widening.name_on_target(topic): None for topic in there}
        names |= {
            name: None
            for name, end in target.log_ends.items()
            if end and _formerly(name, topics, widening, state.aliases)
        }
        if not names:
            return None
        cause = f"{few(list(names))} on '{widening.target}' already had records"
    return _twice(
        f"Connect cluster {clusters} could not be read, and {cause}: if this flow has run there, every record would be"
        " mirrored again",
        f"bring {clusters} back and plan again; or add --allow mirror-again if it never ran there",
    )


def _may_come_from_target(widening: Widening, state: MirroredState) -> list[str]:
    """Return the topics that a write begins to take, names kept, and that some unknown connector has from the target,
    by their names.
    """
    selection = widening.new.selection
    if not selection or selection.policy != "identity":
        return []
    return [
        name
        for name in state.begun.get(widening.full_name, ())
        if any(prefix.rstrip("._-") == widening.target for prefix, _ in _ends(name))
        and not any(
            hop.selection and hop.selection.upstream(name) not in (None, name) for hop in widening.opposite.values()
        )
    ]


def _arrived_without_offsets(widening: Widening, state: MirroredState) -> list[str]:
    """Return the topics of a write that have arrived under a name which only mirrors of its source write, and not by
    its offsets.

    No running connector has mirrored them: a deleted one has, or one outside these Connect clusters. What is
    stored under the name of a connector that does not exist cannot be read, so of a new one all of them are returned.
    """
    selection = widening.new.selection
    if not selection or selection.policy != "default":
        return []
    own = {partition.topic for partition in state.offsets.get(widening.full_name) or {}}
    return [topic for topic in _topics_on_target(widening, state) or () if topic not in own]


def _objection_no_offsets(widening: Widening, topics: Sequence[str], version: str | None) -> Remark | None:
    """Return the objection to a write that takes topics which arrived, and that needs a run to be tried."""
    can_be_tried = widening.before is None and (version is None or numbers(version) >= (3, 7))
    if not topics or can_be_tried:
        return None
    remote = few([widening.name_on_target(topic) for topic in topics])
    cause = "no offsets are stored for them" if widening.before else "it is unknown whether offsets are stored for them"
    return _twice(
        f"{remote} on '{widening.target}' already had records, and {cause} under this connector's name: every "
        "record would be mirrored again",
        "leave these topics to the flow that mirrored them; or add --allow mirror-again",
    )


def _topics_on_target(widening: Widening, state: MirroredState) -> list[str] | None:
    """Return the topics of a write that have records on the target already; None when source or target was not read."""
    begun, target = state.begun.get(widening.full_name), state.kafka(widening.target)
    if begun is None or target is None:
        return None
    return sorted(topic for topic in begun if target.log_ends[widening.name_on_target(topic)])


def _ends(name: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to read a name as prefix with separator and topic."""
    return ((name[: at + 1], name[at + 1 :]) for at, char in enumerate(name) if char in "._-")


def _formerly(name: str, topics: Container[str], widening: Widening, aliases: Container[str]) -> bool:
    """Tell whether a topic of the target may be one of `topics` that was mirrored under another separator, policy or
    source alias.

    Names that are kept show nothing. What begins with the alias of another declared cluster is that one's; what a
    connector that could be read brings is judged by its offsets.
    """
    selections = [hop.selection for hop in (widening.before, *widening.others.values()) if hop and hop.selection]
    for prefix, topic in _ends(name):
        alias = prefix.rstrip("._-")
        if alias and topic in topics and (alias == widening.source or alias not in aliases):
            return not any(selection.takes(topic) and selection.target_name(topic) == name for selection in selections)
    return False


class ArrivedTopics:
    """A predicate on the topics of one target: the names that writes give to what they begin to take, those that they
    gave it so far, and, where a Connect cluster could not be read, the names that it may have had before."""

    def __init__(self, writes: Iterable[Widening], begun: Mapping[Named, Collection[str]], *, unread: bool) -> None:
        taken = [(write, topic) for write in writes for topic in begun.get(write.full_name, ())]
        self.names = {write.name_on_target(topic) for write, topic in taken}
        self.names |= {write.before.target_names(topic).text for write, topic in taken if write.before}
        self.topics = {topic for _, topic in taken} if unread else ()

    def __call__(self, name: str) -> bool:
        return name in self.names or bool(self.topics and any(topic in self.topics for _, topic in _ends(name)))
