"""Writes of source connectors that take other topics than before, beside what was read of offsets and topics, and those
that go on under other names on the target. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mm2mgr.comparison.differences import Named, selects_otherwise
from mm2mgr.comparison.ownership import never_ran
from mm2mgr.lint.hops import Hop, hops, names_alike, selection_of
from mm2mgr.lint.rules import silence_of
from mm2mgr.lint.rules.topics import NAME_TOO_LONG, named_too_long, too_long_text
from mm2mgr.lint.subject import SourceFile, Subject
from mm2mgr.lint.target_names import Naming, naming_of, routers
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import Change, Taken
from mm2mgr.plan.judges import Connectors
from mm2mgr.remarks import Remark
from mm2mgr.topics.names import NameFilter, Selection, unified_name
from mm2mgr.topics.shared import meeting

Stored = Mapping[TopicPartition, int]
"""The last mirrored offset of each source partition, under the connector's own source alias."""


@dataclass(frozen=True)
class MirroredState:
    """What was read of offsets and topics. An offset map of None: it could not be read."""

    offsets: Mapping[Named, Stored | None] = field(default_factory=dict)
    kafkas: Mapping[str, RunningKafka] = field(default_factory=dict)
    begun: Mapping[Named, Collection[str]] = field(default_factory=dict)
    """The topics of the source that a write begins to take; a write whose source was not read is not in it."""
    former: Mapping[tuple[Named, str], Stored] = field(default_factory=dict)
    """What a connector has stored for another source alias than its own: for that alias if it goes the other way now,
    "" for all undeclared ones.
    """
    aliases: Collection[str] = ()
    """All declared Kafka clusters."""

    def kafka(self, alias: str) -> RunningKafka | None:
        """Return a Kafka cluster, None when its topics were not read."""
        kafka = self.kafkas.get(alias)
        return kafka if kafka and not kafka.failure else None


@dataclass(frozen=True)
class Widening:
    """A write of a source that may take other topics than before, with the connectors that may have had them."""

    full_name: Named
    new: Hop
    before: Hop | None
    others: Mapping[Named, Hop]
    declared: Mapping[Named, Hop]
    """The connectors of `others` and `opposite` as the tree wants them; those without an owner are not in it."""
    opposite: Mapping[Named, Hop] = field(default_factory=dict)
    """The connectors from its target to its source."""

    def neighbours(self) -> Iterator[tuple[Named, Hop]]:
        """Yield the other connectors between its two clusters, either way."""
        yield from (*self.others.items(), *self.opposite.items())

    def sends_back(self, other: Named, topic: str, *, is_abandoned: bool) -> str | None:
        """Return the source's name of a target's topic that it would mirror back to where `other` had it from.

        While `other` goes on with it that is a loop, which lint finds.
        """
        hop, declared = self.opposite[other], self.declared.get(other)
        both = [
            mirror.selection for mirror in (hop, declared) if mirror and mirror.selection
        ]  # the declared one may be blocked
        # What the tree stops in the same plan is no loop for lint, and has brought the topic all the same.
        stops = declared is not None and declared.subject.is_off
        goes_on = not is_abandoned and hop.subject.state == "RUNNING" and not stops
        if goes_on and both and all(selection.takes(topic) for selection in both):
            return None
        name = hop.selection.target_name(topic) if hop.selection else topic
        return name if self.newly(name) and self.name_on_target(name) == topic else None

    def repeats(self, other: Named, topic: str, *, is_abandoned: bool) -> bool:
        """Tell whether it would mirror a topic again that another connector has mirrored.

        Under another name a second copy may be meant, but not where the other connector stops mirroring the topic.
        """
        if not self.newly(topic):
            return False
        hop, declared = self.others[other], self.declared.get(other)
        given_up = is_abandoned or (declared and declared.selection and not declared.selection.takes(topic))
        return bool(given_up) or names_alike(self.new, hop, topic)

    def newly(self, topic: str) -> bool:
        """Tell whether it will take a topic that it does not take now, or give it another name."""
        new, before = self.new.selection, self.before and self.before.selection
        if not new or not new.takes(topic):
            return False
        return not before or not before.takes(topic) or self.renames(self.before, topic)

    def renames(self, former: Hop | None, topic: str) -> bool:
        """Tell whether a topic gets another name than a former connector gives it, or may get one."""
        return (
            former is not None
            and former.target_names != self.new.target_names
            and (former.target_names(topic) != self.new.target_names(topic))
        )

    def renames_by_policy(self, former: Hop) -> bool:
        """Tell whether its policy, alias or separator give other names than a former connector's; transformations are
        left out, as checkpoints know nothing of them.
        """
        return replace(former.target_names, steps=()) != replace(self.new.target_names, steps=())

    @property
    def source(self) -> str:
        """The alias of the source."""
        return self.new.subject.source

    @property
    def target(self) -> str:
        """The alias of the target."""
        return self.new.subject.target

    def name_on_target(self, topic: str) -> str:
        """Return a topic's name on the target, as far as it is known."""
        return self.new.target_names(topic).text


def widenings(
    writes: Iterable[Change], desired: Mapping[Named, Subject], live: Mapping[Named, Subject]
) -> tuple[Widening, ...]:
    """Return the writes that take other topics than before, each with the other sources of its two clusters.

    What never ran took none before, whatever its config says.
    """
    waiting = {named for named, subject in live.items() if never_ran(subject.config)}
    chosen = [
        named
        for change in writes
        if change.type == "source" and (named := change.full_name) in desired
        if named not in live or named in waiting or selects_otherwise(live[named].config, desired[named].config)
    ]
    if not chosen:
        return ()
    runs = {named: subject for named, subject in live.items() if subject.type == "source"}
    declared = [named for named in runs if named in desired and desired[named].type == "source"]
    every = iter(hops((*(desired[named] for named in (*chosen, *declared)), *runs.values())))
    new, declared_hops, old = ({named: next(every) for named in names} for names in (chosen, declared, runs))
    by_pair: dict[tuple[int, int], dict[Named, Hop]] = {}
    for named, hop in old.items():
        by_pair.setdefault(hop.pair, {})[named] = hop
    return tuple(
        Widening(
            named,
            hop,
            None if named in waiting else old.get(named),
            {other: other_hop for other, other_hop in by_pair.get(hop.pair, {}).items() if other != named},
            declared_hops,
            {other: other_hop for other, other_hop in by_pair.get(hop.pair[::-1], {}).items() if other != named},
        )
        for named, hop in new.items()
        if named not in old
        or named in waiting
        or not hop.selection
        or old[named].selection != hop.selection
        or old[named].target_names != hop.target_names
    )


def unseen_successors(connectors: Connectors) -> dict[Named, list[Named]]:
    """Return what is wanted on unread Connect clusters, each with abandoned connectors whose topics it takes."""
    declared, live = connectors.desired, connectors.live
    new = [named for named, subject in declared.items() if named[0] in connectors.unread and subject.type == "source"]
    old = [named for named, subject in live.items() if connectors.is_abandoned(named) and subject.type == "source"]
    if not new or not old:
        return {}
    every = hops((*(declared[named] for named in new), *(live[named] for named in old)))
    takers, givers = zip(new, every[: len(new)], strict=True), list(zip(old, every[len(new) :], strict=True))
    return {taker: [giver for giver, former in givers if _may_share(successor, former)] for taker, successor in takers}


def _may_share(hop: Hop, other: Hop) -> bool:
    """Tell whether two source connectors may mirror a topic both from one cluster to another."""
    if hop.pair != other.pair or not hop.selection or not other.selection:
        return hop.pair == other.pair
    return meeting([hop.selection, other.selection]).is_possible


def topics_taken(widening: Widening, state: MirroredState) -> Taken | None:
    """Return what a write will take that is there now; None when the source's topics were not read.

    Of a topic that it mirrored earlier, the records after its own stored offsets count.
    """
    listed = state.kafka(widening.source)
    if listed is None:
        return None
    begun = state.begun.get(widening.full_name, ())
    own = state.offsets.get(widening.full_name) or {}
    stored = frozenset(partition.topic for partition in own).intersection(begun)
    records = Counter[str]()
    for partition, log in listed.offsets.items():
        records[partition.topic] += max(0, log.end - max(log.start, own.get(partition, -1) + 1))
    return Taken({t: (listed.topics[t], records[t]) for t in begun}, len(listed.topics), stored)


def topics_ended(widening: Widening, state: MirroredState, desired: Iterable[Subject]) -> tuple[str, ...]:
    """Return the topics of the source that a write takes no longer, and that nothing wanted takes between its clusters.

    Empty where the source's topics were not read.
    """
    former, listed = widening.before, state.kafka(widening.source)
    before, after = former.selection if former else None, widening.new.selection
    if former is None or before is None or after is None or listed is None:
        return ()
    pair = widening.new.subject.pair
    given_up = [topic for topic in listed.topics if before.takes(topic) and not after.takes(topic)]
    if not given_up or former.subject.pair != pair:
        return ()
    sources = (subject for subject in desired if subject.type == "source" and not subject.is_off)
    others = [selection_of(subject) for subject in sources if subject.pair == pair]
    return tuple(topic for topic in given_up if not any(other is None or other.takes(topic) for other in others))


class StartedTopics:
    """A predicate on the topics of one source that remembers which of its writes begin to take each."""

    def __init__(self, widenings: Iterable[Widening]) -> None:
        self.widenings = tuple(widenings)
        self.topics: dict[Named, dict[str, None]] = {widening.full_name: {} for widening in self.widenings}

    def __call__(self, topic: str) -> bool:
        taking = [widening.full_name for widening in self.widenings if widening.newly(topic)]
        for named in taking:
            self.topics[named][topic] = None
        return bool(taking)


# --- other names on the target, whatever the cause: policy, separator, alias or a transformation ----------------------

_RENAMES = "transform-renames"
Former = tuple[Selection | None, Naming]
"""What a connector took that goes on as another one, or with another config (None: not known), and how it named it."""


def names_of(subject: Subject) -> Former:
    """Return what a connector takes, and how it names it."""
    return selection_of(subject), naming_of(subject)


def former_names(giver: Named, connectors: Connectors) -> Former | None:
    """Return what a giver took and how it named it; of a dedicated MirrorMaker only its alias is known, and that names
    may be kept.
    """
    if giver in connectors.live:
        return names_of(connectors.live[giver])
    alias = giver[1].partition("->")[0] if not giver[0] else ""
    return (None, Naming(Selection(NameFilter((), ()), "default", alias, ""), ())) if alias else None


def new_names(widening: Widening, state: MirroredState, formers: Iterable[Former | None]) -> Iterator[tuple[str, str]]:
    """Yield names on the target, before and after, of topics that are mirrored already and go on under another name.

    The cause does not matter: policy, separator, alias or a transformation. What it makes of names may be unknown.
    """
    after, naming = widening.new.selection, widening.new.target_names
    for before, former in filter(None, formers):
        if not after or former == naming or (before is None and after.policy == "identity"):
            continue
        topics = state.begun.get(widening.full_name)
        if (
            topics is None
        ):  # the source was not read: topics that both take count, above all those that a router matches
            topics = _possible_topics([selection for selection in (before, after) if selection], (former, naming))
        for topic in topics:
            if (before is None or before.takes(topic)) and former(topic) != naming(topic):
                yield str(former(topic)), str(naming(topic))


def _possible_topics(selections: Sequence[Selection], namings: Iterable[Naming]) -> list[str]:
    """Return a topic that all selections take, and one for each router whose name it matches, if there are any."""
    routed = {(naming.selection.prefix, step.regex) for naming in namings for step in naming.steps if step.regex}
    any_topic = meeting(selections).topic
    topics = [
        meeting(
            [*selections, Selection(NameFilter((regex,), ()), None, "", "")], [*[""] * len(selections), prefix]
        ).topic
        for prefix, regex in sorted(routed)
    ]
    return list(dict.fromkeys(filter(None, (any_topic, *topics))))


def other_names(widening: Widening, old: Named, topics: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield names on the target, before and after, of topics that another connector has mirrored under another name."""
    hop = widening.others.get(old)
    for topic in topics if hop else ():
        if hop and widening.renames(hop, topic):
            yield str(hop.target_names(topic)), str(widening.new.target_names(topic))


def renamed_text(names: Sequence[tuple[str, str]], target: str) -> str:
    """Say which topics get other names on the target."""
    old, new = names[0]
    many, such, noun = (
        (f"{len(names)} topics get other names", ", such as", "names")
        if len(names) > 1
        else ("a topic gets another name", ":", "name")
    )
    return (
        f"{many} on '{target}'{such} {old} -> {new}; what was mirrored stays under the old {noun}, and consumers must"
        " follow"
    )


def objection_renamed(
    widening: Widening, names: Sequence[tuple[str, str]], formers: Iterable[Former | None], files: Sequence[SourceFile]
) -> Remark | None:
    """Return the objection to topics that get other names on the target.

    A new transformation is accepted where the tree silences lint's rule about it: who writes that knows.
    """
    if not names:
        return None
    subject, naming = widening.new.subject, widening.new.target_names
    namings = [former for _, former in filter(None, formers)]
    is_new = bool(naming.steps) and all(replace(naming, steps=()) == former for former in namings)
    spots = [subject.spot_of(f"transforms.{name}.type") for name in routers(subject)]
    silences = (silence_of(_RENAMES, spot, [subject], files) for spot in spots)
    text, silence = renamed_text(names, widening.target), f"silence: {{{_RENAMES}: why}}"
    if is_new and (reason := next(filter(None, silences), None)):
        return Remark(f"{text} (silenced: {reason})", "warns", "consumers must follow", "target-names")
    remedy = "keep alias, replication_policy and separator"
    if is_new:
        remedy = f"leave out the transformation, or where consumers read the new names, write {silence}"
    elif any(former.steps for former in namings):
        remedy += f", and the transformation as it is, with {silence} where lint is against it"
    allow = "add --allow target-names, or allow: [target-names] to the flow"
    return Remark(text, "blocks", f"{remedy}; or, where consumers follow, {allow}", "target-names")


def objection_too_long(widening: Widening, state: MirroredState) -> Remark | None:
    """Return the objection to topics that a write begins to take and whose name on the target no broker accepts."""
    subject = widening.new.subject
    listed = set(named_too_long(subject, ()))  # what its lists name, lint says
    names = [topic for topic in named_too_long(subject, state.begun.get(widening.full_name, ())) if topic not in listed]
    if not names:
        return None
    text, remedy = too_long_text(subject, names)
    return Remark(text, "blocks", remedy, NAME_TOO_LONG)


NAME_COLLIDES = "name-collides"


def objection_collides(widening: Widening, state: MirroredState) -> Remark | None:
    """Return the objection to topics that a write begins to take and that no broker of the target creates.

    Two topics whose names differ only in `.` and `_` would share the names of their metrics, so that brokers refuse the
    second (`Topic.hasCollision`), and MirrorMaker only logs that: nothing arrives while its tasks are RUNNING.
    """
    target = state.kafka(widening.target)
    begun = state.begun.get(widening.full_name, ())
    if target is None or not begun:
        return None
    alike = {unified_name(name): name for name in target.topics}
    namings = (naming for topic in begun if not (naming := widening.new.target_names(topic)).unknown)
    missing = (naming.text for naming in namings if naming.text not in target.topics)
    names = [(name, alike[unified_name(name)]) for name in missing if unified_name(name) in alike]
    if not names:
        return None
    name, there = names[0]
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    text = (
        f"brokers of '{widening.target}' refuse to create {name}{more}, since {there} is there and names may not differ"
        " in '.' and '_' alone: nothing of it would arrive"
    )
    remedy = f"choose another separator or alias, or delete {there} on '{widening.target}' first if nobody needs it"
    return Remark(text, "blocks", remedy, NAME_COLLIDES)
