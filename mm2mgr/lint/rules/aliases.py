"""Rules about aliases and separators: one alias for two clusters, two for one, separators that break topic names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from mm2mgr.lint.clusters import SIDES, clusters
from mm2mgr.lint.findings import Hit, estate_rule, rule
from mm2mgr.lint.fixes import connector_key
from mm2mgr.lint.hops import Hop, hops, overlapping
from mm2mgr.lint.patterns import policy_of, separator_of
from mm2mgr.lint.rules.loops import default_circles
from mm2mgr.lint.subject import Estate, Subject

_SEEN = "tests/lint/test_seen_live_pairs.py::"
_POLICY, _SEPARATOR, _TARGET, _SOURCE = (
    "replication.policy.class",
    "replication.policy.separator",
    "target.cluster.alias",
    "source.cluster.alias",
)


@estate_rule("alias-reused", "error", source="KIP-382")
def alias_reused(estate: Estate) -> Iterator[Hit]:
    """One alias is used for two clusters.

    Aliases are part of the names of internal topics and the prefix of mirrored topics. Two sources with one alias write
    their records into the same A.t and their checkpoints into one topic. Two targets with one alias share
    mm2-offset-syncs.B.internal of the source, so translated offsets may belong to either. A topic that came through the
    other cluster of that name is considered a loop and never mirrored. There is no error. Give each cluster its own
    alias. Source: KIP-382.
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
    whose = f"a different one for {other.name}" if other is not subject else "a different one on its other side"
    message = (
        f"'{alias}' is one cluster for {subject.name} and {whose}: their topics, offsets and checkpoints are mixed"
    )
    fix = f"give each cluster its own alias: {connector_key(subject, key, f'{alias}2')}"
    return Hit(message, fix, key, subject, others=(other,) if other is not subject else ())


@estate_rule("cluster-two-aliases", "error", source="KIP-382", seen=f"{_SEEN}test_cluster_two_aliases")
def cluster_two_aliases(estate: Estate) -> Iterator[Hit]:
    """One cluster has two aliases.

    MirrorMaker identifies clusters by alias only. The same cluster under another alias is a different cluster: its
    topics are mirrored again under the other prefix, offsets are looked up under the other name, and a topic that
    returns is not recognised (see loop). Use the same alias in every connector and every file. Source: KIP-382; seen on
    4.3.1.
    """
    reported = {hop.source for circle in default_circles(estate.subjects) for hop in circle.hops}
    for one, other, shared in overlapping(estate.subjects, running=False):
        if shared.topic and one.subject.source != other.subject.source:
            reported.add(one.source)
    for number, aliases in _aliases(estate).items():
        usual = max(aliases, key=lambda alias: len(aliases[alias]))
        for alias, subjects in aliases.items():
            if alias != usual and number not in reported:
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
    message = f"the cluster that {subject.name} calls '{alias}' is '{usual}' for {first.name}: MirrorMaker treats them as two clusters"
    fix = f"write {connector_key(subject, key, usual)}"
    if subject.form == "tree":
        fix = f"keep one entry for it, {connector_key(subject, key, usual)}, and use it in every flow"
    return Hit(message, fix, key, subject, others=(first,))


@rule(
    "alias-has-separator",
    "error",
    types=("source",),
    source="DefaultReplicationPolicy",
    seen="tests/lint/test_seen_live_topics.py::test_alias_with_separator",
)
def alias_has_separator(subject: Subject) -> Iterator[Hit]:
    """An alias contains the separator, so MirrorMaker cannot parse topic names.

    DefaultReplicationPolicy splits us.west.t at the separator and takes `us` for the cluster. It does not recognise its
    own topics: their settings are never synced, it tries to create them at every refresh, and in flows that lead back
    to a cluster, topics are mirrored repeatedly, with one more prefix each time. Use a hyphen in the alias, or another
    separator everywhere. An empty separator, which splits names into letters, is contained in every alias. Source:
    DefaultReplicationPolicy.topicSource.
    """
    if subject.type != "source" or policy_of(subject) != "default":
        return
    if not separator_of(subject):
        message = "the separator is empty: MirrorMaker reads the first letter of a topic as the alias of its source"
        yield Hit(message, f"write {connector_key(subject, _SEPARATOR, '.')}", _SEPARATOR)
        return
    for key, alias in ((_SOURCE, subject.source), (_TARGET, subject.target)):
        if separator_of(subject) in alias:
            parts = alias.split(separator_of(subject))
            message = f"the alias '{alias}' contains the separator '{separator_of(subject)}': topic names are read as if they came from '{parts[0]}'"
            yield Hit(message, f"write {connector_key(subject, key, '-'.join(parts))}", key)


@estate_rule("separator-differs", "error", source="DefaultReplicationPolicy", seen=f"{_SEEN}test_separator_differs")
def separator_differs(estate: Estate) -> Iterator[Hit]:
    """Flows that share a cluster use different separators.

    A topic that was mirrored with one separator is a plain name for a flow with another: A_t is not recognised as
    coming from A, so it is mirrored back to where it came from, and clients that ask the policy for a topic's source
    get none. MirrorMaker does not compare connectors. Use one replication.policy.separator for all flows that share
    clusters, or leave it out everywhere. Source: DefaultReplicationPolicy; the resulting loop was seen on 4.3.1.
    """
    reported = {frozenset(hop.pair) for circle in default_circles(estate.subjects) for hop in circle.hops}
    every = [hop for hop in hops(estate.subjects) if hop.policy == "default" and hop.source != hop.target]
    first: dict[int, Hop] = {}
    for hop in sorted(every, key=lambda hop: hop.separator != "."):
        other = next((first[end] for end in hop.pair if end in first and first[end].separator != hop.separator), None)
        for end in hop.pair:
            first.setdefault(end, hop)
        if other and frozenset(hop.pair) not in reported:
            reported.add(frozenset(hop.pair))
            message = f"{hop.subject.name} has the separator '{hop.separator}' and {other.subject.name}, which shares a cluster with it, '{other.separator}': neither recognises the other's topics as mirrored"
            fix = f"write {connector_key(hop.subject, _SEPARATOR, other.separator)}"
            yield Hit(message, fix, _SEPARATOR, hop.subject, others=(other.subject,))
