"""Rules over an estate: records that come back to where they were written, clusters that are mixed up, topics of several sources."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache

from mm2mgr.lint import patterns
from mm2mgr.lint.clusters import SIDES, clusters, point, same
from mm2mgr.lint.findings import Hit, Rule
from mm2mgr.lint.hops import Circle, Hop, Rounds, hops, moving, overlapping, rounds
from mm2mgr.lint.patterns import policy_of, separator_of
from mm2mgr.lint.spelling import connector_key
from mm2mgr.lint.subject import Estate, Subject
from mm2mgr.topics.names import samples
from mm2mgr.topics.shared import overlaps

_SEEN = "tests/lint/test_seen_live_pairs.py::"
_POLICY, _SEPARATOR, _TARGET, _SOURCE = (
    "replication.policy.class",
    "replication.policy.separator",
    "target.cluster.alias",
    "source.cluster.alias",
)


def loop(estate: Estate) -> Iterator[Hit]:
    """Records come back to the cluster they were written on, because a hop does not recognise it.

    DefaultReplicationPolicy puts the source's alias before a topic, and MirrorMaker leaves out what already went through
    the target: it looks for the target's alias among the parts of the name. That needs one alias per cluster everywhere, one
    separator, and a target alias that is written (its default is the word `target`). Otherwise topics return as A.B2.t, and
    mostly again and again, one level deeper at each refresh, each a full copy, while every connector is RUNNING. Seen on
    4.3.1: 18 topics a side after 32 s.
    """
    for circle in _default_circles(estate.subjects):
        last = circle.hops[-1].subject
        key, why, fix = _cause(circle)
        yield Hit(f"{_goes_round(circle)}: {why}", fix, key, last, others=_others(circle, last))


@lru_cache(maxsize=4)
def _default_circles(subjects: tuple[Subject, ...]) -> tuple[Circle, ...]:
    every = [hop for hop in moving(hops(subjects)) if hop.policy == "default" and not _split_alias(hop.subject)]
    return rounds(_suspects(every), every).circles


def _others(circle: Circle, subject: Subject) -> tuple[Subject, ...]:
    return tuple(hop.subject for hop in circle.hops if hop.subject is not subject)


def _suspects(every: Sequence[Hop]) -> list[Hop]:
    """Return hops at which a circle may begin: their source has another alias as a target, or their separator is rare."""
    usual = next((separator for separator, _ in Counter(hop.separator for hop in every).most_common(1)), ".")
    into: dict[int, set[str]] = defaultdict(set)
    for hop in every:
        into[hop.target].add(hop.subject.target)
    return [hop for hop in every if hop.separator != usual or into[hop.source] - {hop.subject.source}]


def _cause(circle: Circle) -> tuple[str, str, str]:
    """Return the key that is wrong, why, and the fix."""
    first, last = circle.hops[0].subject, circle.hops[-1].subject
    if _TARGET not in last.config:
        why = f"target.cluster.alias is not written, so {last.name} takes its target for a cluster called 'target', not '{first.source}'"
        return _TARGET, why, f"write {connector_key(last, _TARGET, first.source)}"
    if last.target != first.source:
        why = f"the cluster is '{first.source}' for {first.name} and '{last.target}' for {last.name}"
        return _TARGET, why, f"give it one alias everywhere: {connector_key(last, _TARGET, first.source)}"
    usual = circle.hops[0].separator
    other = next((hop for hop in circle.hops if hop.separator != usual), circle.hops[-1])
    why = f"the separators '{usual}' and '{other.separator}' differ, so a hop made with one is not seen with the other"
    return _SEPARATOR, why, f"write one separator everywhere: {connector_key(last, _SEPARATOR, usual)}"


def _goes_round(circle: Circle) -> str:
    names = [hop.subject.source for hop in circle.hops]
    way = " → ".join([*names, names[0]])
    again = "without end" if circle.endless else "once"
    name = f"as '{circle.returns_as}'" if circle.returns_as != circle.topic else "under its own name"
    return f"topic '{circle.topic}' goes {way} and comes back {name}, {again}"


def identity_loop(estate: Estate) -> Iterator[Hit]:
    """Topics that keep their names are mirrored round in a circle.

    IdentityReplicationPolicy leaves no trace of where a record came from, so MirrorMaker cannot see that it has been there.
    The same topic in both directions, or around three clusters, is written again and again: 100 records became 240 000 a
    side in 33 s, limited by the processor only, with every connector RUNNING and nothing in the log. With names kept one way
    and DefaultReplicationPolicy back, names grow without end instead, or the cluster's own records come back as a copy.
    Keep names one way only, or let each direction take other topics. Source: KIP-382, KAFKA-9914; seen on 4.3.1.
    """
    for circle in identity_rounds(estate.subjects).circles:
        subject = circle.hops[0].subject
        message = (
            f"{_goes_round(circle)}: {subject.name} keeps topic names, so nothing shows where the records came from"
        )
        fix = (
            f"let the directions take topics that differ, or write {connector_key(subject, _POLICY, _class('Default'))}"
        )
        yield Hit(message, fix, _POLICY, subject, others=_others(circle, subject))


@lru_cache(maxsize=4)
def identity_rounds(subjects: tuple[Subject, ...]) -> Rounds:
    """Return the ways back to a cluster that begin with a connector that keeps names."""
    every = [hop for hop in moving(hops(subjects)) if hop.policy == "identity" or not _split_alias(hop.subject)]
    return rounds([hop for hop in every if hop.policy == "identity"], every)


def _class(policy: str) -> str:
    return f"org.apache.kafka.connect.mirror.{policy}ReplicationPolicy"


def self_mirror(subject: Subject) -> Iterator[Hit]:
    """A connector reads the cluster that it writes to.

    Source and target have the same cluster id, or share an address. With names kept, every record is read again as soon as
    it is written, without end. With DefaultReplicationPolicy topics get copies A.t beside them; when both sides have one
    alias, it stops there, otherwise `.*` takes the copies too: A.A.t, A.A.A.t, one level at each refresh.
    Mostly an address was copied and not changed. Seen on 4.3.1 with 59 topics after 30 s.
    """
    source, target = point(subject, "source"), point(subject, "target")
    if subject.type != "source" or not same(source, target):
        return
    shared = ", ".join(sorted(source.addresses & target.addresses)) or f"cluster id {source.cluster_id}"
    message = f"source and target are one cluster ({shared}): {_own_copies(subject)}"
    yield Hit(message, "write the address of the other cluster", "target.cluster.bootstrap.servers")


def _own_copies(subject: Subject) -> str:
    found, policy = patterns.names(subject), policy_of(subject)
    if policy == "identity":
        return "each record is read again as soon as it is written, without end"
    include, prefix = found.include if found else (), f"{subject.source}{separator_of(subject)}"
    named = next((name for item in include if (name := patterns.plain_name(item))), "")
    like = named or next((name for item in include for name in samples(item)), "t")
    copy = f"{prefix}{named or 'TOPIC'}"
    if policy == "default" and found and found.takes(f"{prefix}{like}") and subject.source != subject.target:
        return f"it takes its own copies too, {copy}, {prefix}{copy}, one level more at each refresh"
    return f"each topic gets a copy beside it, {copy}"


def alias_reused(estate: Estate) -> Iterator[Hit]:
    """One alias stands for two clusters.

    Aliases name the internal topics and are the prefix of mirrored ones. Two sources with one alias write their records into
    the same A.t and their checkpoints into one topic; two targets with one alias share mm2-offset-syncs.B.internal of the
    source, and translated offsets are those of either; and a topic that went through the other cluster of that name is taken
    for a circle and never mirrored. No error anywhere. Give each cluster its own alias. Source: KIP-382.
    """
    first: dict[str, list[tuple[Hop, int]]] = defaultdict(list)
    for hop in hops(estate.subjects):
        for key, number in ((_SOURCE, hop.source), (_TARGET, hop.target)):
            alias = hop.subject.get(key)
            others = first[alias]
            if not alias or number in [at for _, at in others]:
                continue
            other = next((each for each, _ in others if set(each.pair) & set(hop.pair)), None)
            others.append((hop, number))
            if other:
                yield _reused(alias, hop.subject, other.subject, key)


def _reused(alias: str, subject: Subject, other: Subject, key: str) -> Hit:
    whose = f"another one for {other.name}" if other is not subject else "another one on its other side"
    message = (
        f"'{alias}' is one cluster for {subject.name} and {whose}: their topics, offsets and checkpoints are mixed up"
    )
    fix = f"give each cluster an alias of its own: {connector_key(subject, key, f'{alias}2')}"
    return Hit(message, fix, key, subject, others=(other,) if other is not subject else ())


def cluster_two_aliases(estate: Estate) -> Iterator[Hit]:
    """One cluster has two aliases.

    MirrorMaker knows clusters by alias alone. The same cluster under another one is another cluster: its topics are mirrored
    once more under the other prefix, offsets are looked for under the other name, and a topic that comes back is not
    recognised as its own (see loop). Write the same alias in every connector and every file. Source: KIP-382; seen on 4.3.1.
    """
    told = {hop.source for circle in _default_circles(estate.subjects) for hop in circle.hops}
    for one, other, shared in overlapping(estate.subjects, running=False):
        if shared.topic and one.subject.source != other.subject.source:
            told.add(one.source)
    for number, aliases in _aliases(estate).items():
        usual = max(aliases, key=lambda alias: len(aliases[alias]))
        for alias, subjects in aliases.items():
            if alias != usual and number not in told:
                yield _another_name(alias, subjects[0], usual, aliases[usual][0])


def _aliases(estate: Estate) -> dict[int, dict[str, list[Subject]]]:
    """Return cluster → alias → who calls it so, of aliases that are written."""
    known = clusters(estate.subjects)
    found: dict[int, dict[str, list[Subject]]] = defaultdict(lambda: defaultdict(list))
    for subject in estate.subjects:
        for side in SIDES:
            if subject.type != "heartbeat" and (alias := subject.get(f"{side}.cluster.alias")):
                found[known.of(subject, side)][alias].append(subject)
    return found


def _another_name(alias: str, subject: Subject, usual: str, first: Subject) -> Hit:
    key = _SOURCE if subject.source == alias else _TARGET
    message = (
        f"the cluster that {subject.name} calls '{alias}' is '{usual}' for {first.name}: MirrorMaker takes them for two"
    )
    fix = f"write {connector_key(subject, key, usual)}"
    if subject.form == "tree":
        fix = f"keep one entry for it, {connector_key(subject, key, usual)}, and name that in every flow"
    return Hit(message, fix, key, subject, others=(first,))


def _split_alias(subject: Subject) -> bool:
    separator = separator_of(subject)
    return any(separator in alias for alias in (subject.source, subject.target))


def alias_has_separator(subject: Subject) -> Iterator[Hit]:
    """An alias holds the separator, so MirrorMaker cannot find it in topic names again.

    DefaultReplicationPolicy splits us.west.t at the separator and takes `us` for the cluster. Topics that it made itself are
    not recognised: their settings are never synced, their creation is tried at every refresh, and what has been on the
    target already is mirrored to it again, level after level, where flows lead back. Use a hyphen in the alias, or another
    separator everywhere; an empty one, which splits names into letters, is in every alias. Source: DefaultReplicationPolicy.topicSource.
    """
    if subject.type != "source" or policy_of(subject) != "default":
        return
    if not separator_of(subject):
        message = "the separator is empty: MirrorMaker takes the first letter of a topic for the alias of its source"
        yield Hit(message, f"write {connector_key(subject, _SEPARATOR, '.')}", _SEPARATOR)
        return
    for key, alias in ((_SOURCE, subject.source), (_TARGET, subject.target)):
        if separator_of(subject) in alias:
            parts = alias.split(separator_of(subject))
            message = f"the alias '{alias}' holds the separator '{separator_of(subject)}': topic names are read as if they came from '{parts[0]}'"
            yield Hit(message, f"write {connector_key(subject, key, '-'.join(parts))}", key)


def separator_differs(estate: Estate) -> Iterator[Hit]:
    """Flows that meet use different separators.

    A topic that was mirrored with one separator is a plain name for a flow with another: A_t is not seen to come from A, so
    it is mirrored where it has been already, and clients that ask the policy for a topic's source get none. MirrorMaker
    checks nothing across connectors. Write one replication.policy.separator for all flows that share clusters, or leave it
    out everywhere. Source: DefaultReplicationPolicy; the loop that comes of it was seen on 4.3.1.
    """
    told = {frozenset(hop.pair) for circle in _default_circles(estate.subjects) for hop in circle.hops}
    every = [hop for hop in hops(estate.subjects) if hop.policy == "default" and hop.source != hop.target]
    first: dict[int, Hop] = {}
    for hop in sorted(every, key=lambda hop: hop.separator != "."):
        other = next((first[end] for end in hop.pair if end in first and first[end].separator != hop.separator), None)
        for end in hop.pair:
            first.setdefault(end, hop)
        if other and frozenset(hop.pair) not in told:
            told.add(frozenset(hop.pair))
            message = f"{hop.subject.name} has the separator '{hop.separator}' and {other.subject.name}, which shares a cluster with it, '{other.separator}': neither knows the other's topics as mirrored"
            fix = f"write {connector_key(hop.subject, _SEPARATOR, other.separator)}"
            yield Hit(message, fix, _SEPARATOR, hop.subject, others=(other.subject,))


def fan_in(estate: Estate) -> Iterator[Hit]:
    """Several sources write one topic name into one target.

    With IdentityReplicationPolicy the records of all sources land in the same topic, partition by partition: order holds
    within a source only, keys meet in places they never met before, each source's settings overwrite the other's at every
    sync, and group offsets of two clusters are translated to one topic. Fine for logs, if it is meant. Otherwise give the
    sources different topics, or keep the source in the name with DefaultReplicationPolicy. Source: IdentityReplicationPolicy.
    """
    targets: dict[int, list[Hop]] = defaultdict(list)
    for hop in moving(hops(estate.subjects)):
        if hop.policy == "identity":
            targets[hop.target].append(hop)
    for group in targets.values():
        told: set[frozenset[int]] = set()
        selections = [hop.selection for hop in group if hop.selection]
        for before, later, shared in overlaps(selections, [hop.source for hop in group]):
            places = frozenset((group[before].source, group[later].source))
            if shared.topic and places not in told:
                told.add(places)
                yield _mixed(group[before].subject, group[later].subject, shared.topic)


def _mixed(first: Subject, later: Subject, topic: str) -> Hit:
    message = f"'{topic}' of {first.source} and of {later.source} end in one topic of {later.target}: records are mixed and their settings overwrite each other"
    fix = f"write {connector_key(later, _POLICY, _class('Default'))}, or take topics that differ"
    return Hit(message, fix, "topics", later, others=(first,))


RULES: tuple[Rule, ...] = (
    Rule("loop", "error", over=loop, source="KIP-382", seen=f"{_SEEN}test_loop_by_alias"),
    Rule("identity-loop", "error", over=identity_loop, source="KAFKA-9914", seen=f"{_SEEN}test_identity_loop"),
    Rule("self-mirror", "error", self_mirror, source="KIP-382", types=("source",), seen=f"{_SEEN}test_self_mirror"),
    Rule("alias-reused", "error", over=alias_reused, source="KIP-382"),
    Rule(
        "cluster-two-aliases",
        "error",
        over=cluster_two_aliases,
        source="KIP-382",
        seen=f"{_SEEN}test_cluster_two_aliases",
    ),
    Rule(
        "alias-has-separator",
        "error",
        alias_has_separator,
        source="DefaultReplicationPolicy",
        types=("source",),
        seen="tests/lint/test_seen_live_topics.py::test_alias_with_separator",
    ),
    Rule(
        "separator-differs",
        "error",
        over=separator_differs,
        source="DefaultReplicationPolicy",
        seen=f"{_SEEN}test_separator_differs",
    ),
    Rule("fan-in", "warning", over=fan_in, source="IdentityReplicationPolicy"),
)
