"""Topics that go on under other names on the target, whatever the cause: policy, separator, alias or a transformation.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from mm2mgr.comparison.differences import Named
from mm2mgr.lint.hops import selection_of
from mm2mgr.lint.rules import silence_of
from mm2mgr.lint.rules.topics import NAME_TOO_LONG, named_too_long, too_long_text
from mm2mgr.lint.subject import SourceFile, Subject
from mm2mgr.lint.target_names import Naming, naming_of, routers
from mm2mgr.plan.guards import Connectors
from mm2mgr.plan.widening import MirroredState, Widening
from mm2mgr.remarks import Remark
from mm2mgr.topics.names import NameFilter, Selection
from mm2mgr.topics.shared import meeting

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
        topics = state.begun.get(widening.named)
        if (
            topics is None
        ):  # the source was not read: topics that both take count, above all those that a router matches
            topics = _possible_topics([selection for selection in (before, after) if selection], (former, naming))
        for topic in topics:
            if (before is None or before.takes(topic)) and former(topic) != naming(topic):
                yield str(former(topic)), str(naming(topic))


def _possible_topics(selections: Sequence[Selection], namings: Iterable[Naming]) -> list[str]:
    """Return a topic that all selections take, and for each router one whose name it matches, where there are such
    topics.
    """
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

    A transformation that is new is accepted where the tree silences lint's rule about it: who writes that knows the
    names.
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
    names = [topic for topic in named_too_long(subject, state.begun.get(widening.named, ())) if topic not in listed]
    if not names:
        return None
    text, remedy = too_long_text(subject, names)
    return Remark(text, "blocks", remedy, NAME_TOO_LONG)
