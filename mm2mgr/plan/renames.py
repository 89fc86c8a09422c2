"""Topics that go on under another name on the target: where each name begins and ends, and what forbids it. Pure.

Offsets are stored by connector and source topic (KIP-875), whatever the topic is called on the target. So a change of
policy, separator or alias makes no second copy: the new name begins where the old one ended. Consumers read the old
topic to its end, then the new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from mm2mgr.comparison.differences import Named
from mm2mgr.lint.hops import HEARTBEATS, Hop, hops, offset_syncs_topic
from mm2mgr.lint.rules import silence_of
from mm2mgr.lint.subject import SourceFile, Subject
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.plan.changes import Handover, RenamedTopic, Taken
from mm2mgr.plan.judges import Connectors
from mm2mgr.plan.widening import Former, MirroredState, Stored, Widening
from mm2mgr.remarks import Remark
from mm2mgr.text import few
from mm2mgr.topics.shared import Budget, meeting

SHARED, TAKEN, STALE = "names-shared", "names-taken", "stale-syncs"
_FAN_IN = "fan-in"


def renamed_topics(
    widening: Widening, state: MirroredState, former: Former | None, stored: Stored | None, shown: str | None
) -> tuple[RenamedTopic, ...]:
    """Return the topics that a write mirrors on under another name; those of a source that was not read are missing.

    `stored` are the offsets that it goes on from, and `shown` the state of the connector that has them.
    """
    source, target = state.kafka(widening.source), state.kafka(widening.target)
    if former is None or source is None:
        return ()
    before, naming = former
    result = []
    for topic in state.begun.get(widening.full_name, ()):
        old, new = naming(topic), widening.new.target_names(topic)
        if (before is None or before.takes(topic)) and old != new and not old.unknown and not new.unknown:
            last = {place.partition: offset for place, offset in (stored or {}).items() if place.topic == topic}
            old_ends, new_starts = _ends(target, old.text), _ends(target, new.text)
            handovers = tuple(
                Handover(
                    number,
                    last[number] + 1 if number in last else None,
                    old_ends.get(number),
                    new_starts.get(number, 0 if target else None),
                )
                for number in range(source.topics[topic])
            )
            result.append(RenamedTopic(topic, old.text, new.text, handovers, shown == "STOPPED"))
    return tuple(result)


def _ends(target: RunningKafka | None, name: str) -> dict[int, int]:
    logs = target.offsets.items() if target else ()
    return {place.partition: log.end for place, log in logs if place.topic == name}


def without_renamed(taken: Taken, renames: Sequence[RenamedTopic]) -> Taken:
    """Return what a write begins to mirror, without what it only goes on with under another name."""
    going_on = {renamed.topic for renamed in renames if any(part.first is not None for part in renamed.handovers)}
    return replace(taken, topics={name: counts for name, counts in taken.topics.items() if name not in going_on})


# --- what forbids it --------------------------------------------------------------------------------------------------


def objections(
    widening: Widening,
    renamed: Sequence[tuple[str, str]],
    state: MirroredState,
    connectors: Connectors,
    formers: Sequence[Hop],
) -> Iterator[Remark]:
    """Yield the objections to other names on the target that go beyond consumers which have to follow.

    `formers`: as what it ran so far, its own former config and what it takes over.
    """
    if renamed:
        yield from _shared_names(widening, connectors)
        yield from _taken_names(widening, renamed, state)
        yield from _stale_syncs(widening, formers, connectors)


def _stale_syncs(widening: Widening, formers: Sequence[Hop], connectors: Connectors) -> Iterator[Remark]:
    """Yield what is wrong with offset syncs of the old names that go on to be used for the new ones.

    An offset sync names the source's partition only (OffsetSync), so those of the old topic stay in use, and translate
    a group's offset to a place in the new topic that is as far on as it was in the old one: records would be skipped.
    """
    new = widening.new.subject
    place = alias, topic = offset_syncs_topic(new)
    if not new.setting.offset_syncs or not any(
        hop.subject.setting.offset_syncs
        and offset_syncs_topic(hop.subject) == place
        and widening.renames_by_policy(hop)
        for hop in formers
    ):
        return
    readers = [
        subject
        for subject in _others_of("checkpoint", widening.full_name, connectors)
        if subject.pair == new.pair and subject.flag("enabled", default=True)
    ]
    other = "source" if alias == new.target else "target"
    remedy = (
        f"write offset_syncs: {{location: {other}}} to all flows of the pair in the same change: a new topic of syncs"
    )
    if readers:
        yield Remark(
            f"{readers[0].name} would go on with the offset syncs of the old names ({topic} on '{alias}'), which name"
            " no topic of the target: it would translate consumer groups to offsets of the old topics, and records of"
            " the new ones would be skipped",
            "blocks",
            f"{remedy}; or write checkpoints: false",
            STALE,
        )
    else:
        yield Remark(
            f"{topic} on '{alias}' keeps the offset syncs of the old names, and a checkpoint connector that reads it"
            " later translates consumer groups too far",
            "warns",
            remedy,
            STALE,
        )


def _shared_names(widening: Widening, connectors: Connectors) -> Iterator[Remark]:
    """Yield the objection to names that another source's connector gives to topics of its own on the same target.

    Patterns are compared, so that a topic of tomorrow counts. A name that is not known is not compared, and is said.
    """
    own, *others = hops((widening.new.subject, *_others_of("source", widening.full_name, connectors)))
    budget, uncompared = Budget(), list[str]()
    for hop in others:
        subjects = (own.subject, hop.subject)
        if hop.target != own.target or hop.source == own.source or _is_silenced(subjects, connectors.files):
            continue
        if not _has_known_names(own) or not _has_known_names(hop):
            uncompared.append(hop.subject.name)
        elif problem := _meet_on_target(own, hop, budget):
            yield Remark(
                problem,
                "blocks",
                "exclude the topics of one of them, or keep replication_policy: default; where they are meant to be"
                f" mixed, write silence: {{{_FAN_IN}: why}}",
                SHARED,
            )
            return
    if uncompared:
        names = f"whether {few(uncompared)} write to topics of the same names on '{widening.target}'"
        yield Remark(
            f"{names} is not known: a policy, a filter or a transformation is none of Kafka's that can be read",
            "warns",
            "compare the names by hand",
            SHARED,
        )


def _has_known_names(hop: Hop) -> bool:
    return hop.policy is not None and hop.selection is not None and not hop.target_names.steps


def _others_of(type_: str, named: Named, connectors: Connectors) -> tuple[Subject, ...]:
    """Return the other connectors of a type that will run: as they are declared, and those that nothing declares."""
    declared = connectors.desired
    running = {
        other: subject
        for other, subject in connectors.live.items()
        if other not in declared and not connectors.is_abandoned(other)
    }
    subjects = chain(declared.items(), running.items())
    return tuple(subject for other, subject in subjects if other != named and subject.type == type_)


def _meet_on_target(own: Hop, hop: Hop, budget: Budget) -> str:
    """Say which name on the target both connectors give, or that it is not decided; "" for none."""
    if own.selection is None or hop.selection is None:
        return ""
    longer, shorter = sorted((own.selection, hop.selection), key=lambda selection: -len(selection.prefix))
    if not longer.prefix.startswith(shorter.prefix):
        return ""
    rest = longer.prefix.removeprefix(shorter.prefix)  # what the other source's topic has in front
    shared = meeting([longer, shorter], ["", rest], but=HEARTBEATS, budget=budget)
    sources, target = (own.subject.source, f"'{hop.subject.source}' ({hop.subject.name})"), own.subject.target
    if shared.topic:
        return (
            f"'{longer.target_name(shared.topic)}' on '{target}' is the name of a topic of '{sources[0]}' and of one of"
            f" {sources[1]}: two sources would write to one topic"
        )
    if shared.undecided:
        return (
            f"whether a topic of '{sources[0]}' and one of {sources[1]} get one name on '{target}' is not decided"
            f" ({shared.undecided})"
        )
    return ""


def _is_silenced(subjects: Sequence[Subject], files: Sequence[SourceFile]) -> bool:
    return any(silence_of(_FAN_IN, subject.spot_of("topics"), [subject], files) for subject in subjects)


def _taken_names(widening: Widening, renamed: Sequence[tuple[str, str]], state: MirroredState) -> Iterator[Remark]:
    """Yield the objection to names that have records on the target already, or of which that is not known."""
    target = state.kafka(widening.target)
    kind = f"add --allow {TAKEN}, or allow: [{TAKEN}] to the flow"
    if target is None:
        yield Remark(
            f"topics of '{widening.target}' could not be listed, so whether the new names have records of others is"
            " not known",
            "blocks",
            f"plan again when it answers; or {kind}",
            TAKEN,
        )
        return
    names = [new for _, new in renamed if target.log_ends[new]]
    if names:
        yield Remark(
            f"{few(names)} on '{widening.target}' already had records that this flow did not write there under its"
            " present names: they would stand in front of its own",
            "blocks",
            "delete these topics if nobody needs them, or exclude them; or, where consumers can tell them apart,"
            f" {kind}",
            TAKEN,
        )


def where_it_goes_on(stored: Mapping[Named, Stored | None], named: Named, giver: Named | None) -> Stored | None:
    """Return the offsets that a write goes on from: its own, and those that it takes over."""
    taken = stored.get(giver) if giver else None
    own = stored.get(named)
    return own if taken is None else {**taken, **(own or {})}
