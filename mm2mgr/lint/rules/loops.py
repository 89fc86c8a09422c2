"""Rules about records that return to where they were written or arrive twice, and the aliases and separators behind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, islice, pairwise, product

from mm2mgr.defaults import POLICIES
from mm2mgr.formats.templates import is_open
from mm2mgr.lint.findings import Edit, Hit, Severity, connector_hit, estate_rule, file_key, rule, spell
from mm2mgr.lint.hops import (
    HEARTBEATS,
    SIDES,
    Circle,
    ClusterSide,
    Hop,
    Point,
    WaysBack,
    clusters,
    filter_of,
    hops,
    moving,
    on_circles,
    overlapping,
    plain_name,
    point,
    put_before,
    rounds,
    same,
)
from mm2mgr.lint.subject import Estate, Subject
from mm2mgr.lint.target_names import policy_of, separator_of
from mm2mgr.topics.names import samples
from mm2mgr.topics.shared import Budget, meeting

_LIVE = "tests/lint/test_seen_live_pairs.py::"
_POLICY, _SEPARATOR = "replication.policy.class", "replication.policy.separator"
_TARGET, _SOURCE = "target.cluster.alias", "source.cluster.alias"
_LONGEST_WAY, _MOST_WAYS, _MOST_CHOICES = 4, 1000, 200
_Edges = Mapping[int, Mapping[int, Sequence[Hop]]]
_Clusters = tuple[int, ...]


@estate_rule("loop", "error", "KIP-382", live=f"{_LIVE}test_loop_by_alias")
def loop(estate: Estate) -> Iterator[Hit]:
    """Records return to the cluster they were written on, because a connector does not recognise them.

    DefaultReplicationPolicy prefixes a topic with the source's alias, and MirrorMaker skips topics that already came
    from the target: it looks for the target's alias in the parts of the name. That requires one alias per cluster
    everywhere, one separator, and a target alias that is set (its default is the word `target`). Otherwise topics
    return as A.B2.t, usually repeatedly, with one more prefix at each refresh, each a full copy, while every connector
    is RUNNING. Seen on 4.3.1: 18 topics per side after 32 s.
    """
    for circle in default_circles(estate.subjects):
        last = circle.hops[-1].subject
        key, right, cause, fix = _cause(circle)
        edits = [Edit(key, right)]
        if key == _TARGET and right == last.source:  # else both of its ends had one alias
            edits.append(Edit(_SOURCE, circle.hops[-2].subject.target))
        writes = ", ".join(spell(last, edit.key, edit.value or "") for edit in edits)
        message, others = f"{_goes_round(circle)}: {cause}", _others(circle.hops, last)
        yield Hit(message, f"{fix}{writes}", key, last, others=others, edits=tuple(edits))


@lru_cache(maxsize=4)
def default_circles(subjects: tuple[Subject, ...]) -> tuple[Circle, ...]:
    every = [hop for hop in moving(hops(subjects)) if hop.policy == "default" and not has_split_alias(hop.subject)]
    usual = next((separator for separator, _ in Counter(hop.separator for hop in every).most_common(1)), ".")
    into: dict[int, set[str]] = defaultdict(set)
    for hop in every:
        into[hop.target].add(hop.subject.target)
    # A circle may begin where the source has another alias as a target, or where the separator is rare.
    starts = [hop for hop in every if hop.separator != usual or into[hop.source] - {hop.subject.source}]
    return rounds(starts, every)[0]


def _others(way: Sequence[Hop], subject: Subject) -> tuple[Subject, ...]:
    return tuple(hop.subject for hop in way if hop.subject is not subject)


def _cause(circle: Circle) -> tuple[str, str, str, str]:
    """Return the key of the last connector that is wrong, its right value, why, and how the fix begins."""
    first, last = circle.hops[0].subject, circle.hops[-1].subject
    if _TARGET not in last.config:
        reason = f"target.cluster.alias is not set, so {last.name} calls its target 'target', not '{first.source}'"
        return _TARGET, first.source, reason, "write "
    if last.target != first.source:
        reason = f"{first.name} calls the cluster '{first.source}' and {last.name} calls it '{last.target}'"
        return _TARGET, first.source, reason, "use one alias everywhere: "
    usual = circle.hops[0].separator
    other = next((hop for hop in circle.hops if hop.separator != usual), circle.hops[-1])
    reason = (
        f"the separators '{usual}' and '{other.separator}' differ, so topics mirrored with one are not recognised "
        "with the other"
    )
    return _SEPARATOR, usual, reason, "use one separator everywhere: "


def _goes_round(circle: Circle) -> str:
    names = [hop.subject.source for hop in circle.hops]
    way = " → ".join([*names, names[0]])
    again = "in an endless loop" if circle.endless else "once"
    name = f"as '{circle.returns_as}'" if circle.returns_as != circle.topic else "under its own name"
    return f"topic '{circle.topic}' is mirrored {way} and returns {name}, {again}"


@estate_rule("identity-loop", "error", "KAFKA-9914", live=_LIVE)
def identity_loop(estate: Estate) -> Iterator[Hit]:
    """Topics that keep their names are mirrored in a loop.

    IdentityReplicationPolicy does not record where a topic came from, so MirrorMaker cannot detect a loop. The same
    topic in both directions, or around three clusters, is written repeatedly: 100 records became 240 000 per side in 33
    s, limited only by the processor, with every connector RUNNING and nothing in the log. With unchanged names in one
    direction and DefaultReplicationPolicy in the other, names grow without a limit, or the cluster's own records come
    back as a copy. Keep names in one direction only, or mirror different topics in each direction. Source: KIP-382,
    KAFKA-9914; seen on 4.3.1.
    """
    for circle in identity_rounds(estate.subjects)[0]:
        subject = circle.hops[0].subject
        message = f"{_goes_round(circle)}: {subject.name} keeps topic names, so the loop is not detected"
        default = spell(subject, _POLICY, POLICIES["default"])
        fix = f"mirror different topics in each direction, or write {default}"
        yield Hit(message, fix, _POLICY, subject, others=_others(circle.hops, subject))


@lru_cache(maxsize=4)
def identity_rounds(subjects: tuple[Subject, ...]) -> WaysBack:
    """Return the ways back to a cluster that begin with a connector that keeps names."""
    every = [hop for hop in moving(hops(subjects)) if hop.policy == "identity" or not has_split_alias(hop.subject)]
    return rounds([hop for hop in every if hop.policy == "identity"], every)


@rule("self-mirror", "error", "KIP-382", types=("source",), live=_LIVE)
def self_mirror(subject: Subject) -> Iterator[Hit]:
    """A connector reads the cluster that it writes to.

    Source and target have the same cluster id, or share an address. With unchanged names every record is read again as
    soon as it is written, in an endless loop, or nothing is mirrored at all if both sides have one alias. With
    DefaultReplicationPolicy topics get copies named A.t on the same cluster; if both sides have one alias, or the
    copies do not match `topics`, it stops there (a warning), otherwise `.*` matches the copies too: A.A.t, A.A.A.t, one
    level at each refresh. Usually an address was copied and not changed. Seen on 4.3.1 with 59 topics after 30 s.
    """
    source, target = point(subject, "source"), point(subject, "target")
    if not same(source, target) or _differ(source, target):
        return
    shared = ", ".join(sorted(source.addresses & target.addresses)) or f"cluster id {source.cluster_id}"
    effect, severity = _own_copies(subject)
    message = f"source and target are one cluster ({shared}): {effect}"
    fix, key = "write the address of the other cluster", "target.cluster.bootstrap.servers"
    yield Hit(message, fix, key, severity=severity)


def _differ(first: Point, other: Point) -> bool:
    """Tell whether two lists share an address and each has others: two clusters, one list copied wrongly."""
    ids = first.cluster_id and first.cluster_id == other.cluster_id
    return not ids and bool(first.addresses - other.addresses and other.addresses - first.addresses)


@estate_rule("addresses-of-two-clusters", "error", "ClientUtils.parseAndValidateAddresses, NetworkClient")
def addresses_of_two_clusters(estate: Estate) -> Iterator[Hit]:
    """One list of addresses has hosts of two clusters.

    A client connects to any address of bootstrap.servers and learns the brokers of the cluster that answers. With an
    address of another cluster in the list it reads or writes that one, now and then and after a restart: topics seem to
    be missing or empty, or a cluster is mirrored to itself. Reported where lists with different aliases, or the two
    ends of a connector, share an address and each has others of its own. If all of them are one cluster, give it one
    alias and one list.
    """
    ends: dict[tuple[str, str, str | None], tuple[Subject, ClusterSide]] = {}
    for subject in estate.subjects:
        for side, kafka in zip(SIDES, subject.kafkas, strict=False):
            alias, servers = (subject.get(f"{side}.cluster.{name}") for name in ("alias", "bootstrap.servers"))
            ends.setdefault((alias, servers, kafka.cluster_id), (subject, side))  # thousands have the same few
    by_address: dict[str, list[Point]] = defaultdict(list)
    reported: set[frozenset[frozenset[str]]] = set()
    for subject, side in ends.values():
        here = point(subject, side)
        for address in sorted(here.addresses):
            for there in by_address[address]:
                lists = frozenset((here.addresses, there.addresses))
                if here.alias != there.alias and _differ(here, there) and lists not in reported:
                    reported.add(lists)
                    yield _of_two(subject, side, here, there)
            by_address[address].append(here)


def _of_two(subject: Subject, side: ClusterSide, here: Point, there: Point) -> Hit:
    shared = ", ".join(sorted(here.addresses & there.addresses))
    key = f"{side}.cluster.bootstrap.servers"
    effect = "which differ otherwise: clients of one of them connect to the other cluster, by chance"
    message = f"{shared} is in the list of '{here.alias}' and in that of '{there.alias}', {effect}"
    remedy = f"and only those of '{there.alias}' in the other list"
    fix = f"leave only addresses of '{here.alias}' in {spell(subject, key, '…')}, {remedy}"
    return Hit(message, fix, key, subject)


def _own_copies(subject: Subject) -> tuple[str, Severity]:
    names, policy = filter_of(subject), policy_of(subject)
    if policy == "identity" and subject.source == subject.target:
        return (
            "with one alias for both, every topic counts as mirrored from the target, so nothing is mirrored",
            "error",
        )
    if policy == "identity":
        return "each record is read again as soon as it is written, in an endless loop", "error"
    include, prefix = names.include if names else (), f"{subject.source}{separator_of(subject)}"
    named = next((name for item in include if (name := plain_name(item))), "")
    like = named or next((name for item in include for name in samples(item)), "t")
    copy = f"{prefix}{named or 'TOPIC'}"
    if policy == "default" and names and names.takes(f"{prefix}{like}") and subject.source != subject.target:
        return f"it mirrors its own copies too, {copy}, {prefix}{copy}, one level more at each refresh", "error"
    return f"each topic gets a copy on the same cluster, {copy}", "warning" if policy else "error"


def has_split_alias(subject: Subject) -> bool:
    separator = separator_of(subject)
    return any(separator in alias and not is_open(alias) for alias in (subject.source, subject.target))


@estate_rule("two-ways", "error", "KIP-382")
def two_ways(estate: Estate) -> Iterator[Hit]:
    """Records of one cluster reach another one on two paths under one name and arrive twice.

    With IdentityReplicationPolicy the name does not show the path of a record: if A→B→D and A→C→D mirror the same
    topic, or A→D in addition to A→B→D, each record is written to the same topic of D once per path. The same happens if
    names are unchanged only on the last part of a path. The offsets of both connectors are correct and everything is
    RUNNING. Mirror different topics on one of the paths, or use DefaultReplicationPolicy on one of them, so that the
    copies have different names. Source: KIP-382.
    """
    edges: dict[int, dict[int, list[Hop]]] = defaultdict(lambda: defaultdict(list))
    every = moving(hops(estate.subjects))
    if all(hop.policy == "default" for hop in every):
        return  # the way is in the name
    for hop in every:
        edges[hop.source][hop.target].append(hop)
    budget, reported = Budget(), set[tuple[int, int]]()
    for start in [cluster for cluster, targets in edges.items() if len(targets) > 1]:
        by_end: dict[int, list[_Clusters]] = defaultdict(list)
        for way in islice(_ways(edges, (start,)), _MOST_WAYS):
            by_end[way[-1]].append(way)
        for end, ways in by_end.items():
            for way_there, other in combinations(ways, 2):
                if (start, end) not in reported and set(way_there[1:-1]).isdisjoint(other[1:-1]):
                    hit = _arrives_twice(edges, way_there, other, budget)
                    if hit:
                        reported.add((start, end))
                        yield hit


def _ways(edges: _Edges, way: _Clusters) -> Iterator[_Clusters]:
    """Yield the ways through clusters that begin so, none twice through one cluster."""
    for target in edges.get(way[-1], ()):
        if target not in way:
            yield (*way, target)
            if len(way) < _LONGEST_WAY:
                yield from _ways(edges, (*way, target))


def _arrives_twice(edges: _Edges, way_there: _Clusters, other: _Clusters, budget: Budget) -> Hit | None:
    # The source connectors along a way, one for each step.
    ways = (product(*(edges[source][target] for source, target in pairwise(way))) for way in (way_there, other))
    for first, second in islice(product(*ways), _MOST_CHOICES):
        before, after = put_before(first), put_before(second)
        if before[-1] != after[-1]:
            continue
        selections = [hop.selection for hop in (*first, *second) if hop.selection]
        shared = meeting(selections, [*before[:-1], *after[:-1]], but=HEARTBEATS, budget=budget)
        if shared.topic:
            return _hit(first, second, shared.topic)
    return None


def _hit(first: Sequence[Hop], second: Sequence[Hop], topic: str) -> Hit:
    source, last = first[0].subject.source, second[-1].subject
    target = first[-1].subject.target
    ways = " and ".join(" → ".join([source, *(hop.subject.target for hop in way)]) for way in (first, second))
    message = f"'{topic}' of {source} reaches {target} on two paths under one name ({ways}): its records arrive twice"
    fix = f"remove it from one of the paths, or write {spell(last, _POLICY, POLICIES['default'])}"
    return Hit(message, fix, "topics", last, others=_others((*first, *second), last))


@estate_rule("alias-reused", "error", "KIP-382")
def alias_reused(estate: Estate) -> Iterator[Hit]:
    """One alias is used for two clusters.

    Aliases are part of the names of internal topics and the prefix of mirrored topics. Two sources with one alias write
    their records into the same A.t and their checkpoints into one topic. Two targets with one alias share
    mm2-offset-syncs.B.internal of the source, so translated offsets may belong to either. A topic that came through the
    other cluster of that name is considered a loop and never mirrored. There is no error. Other host names are no
    proof: the clusters have different ids, or are the two ends of a connector. Give each cluster its own alias.
    Source: KIP-382.
    """
    first: dict[str, list[tuple[Hop, int]]] = defaultdict(list)
    called: dict[int, dict[str, None]] = defaultdict(dict)
    for hop in hops(estate.subjects):
        for key, number in ((_SOURCE, hop.source), (_TARGET, hop.target)):
            called[number][hop.subject.get(key)] = None
    for hop in hops(estate.subjects):
        subject = hop.subject
        for key, number in ((_SOURCE, hop.source), (_TARGET, hop.target)):
            alias = subject.get(key)
            users = first[alias]
            if not alias or number in [at for _, at in users]:
                continue
            other = next((user.subject for user, _ in users if set(user.pair) & set(hop.pair)), None)
            users.append((hop, number))
            if other:
                whose = "on its other side" if other is subject else f"for {other.name}"
                effect = "their topics, offsets and checkpoints are mixed"
                message = f"'{alias}' is one cluster for {subject.name} and a different one {whose}: {effect}"
                right = next((name for name in called[number] if name not in ("", alias)), f"{alias}2")
                fix = f"give each cluster its own alias: {spell(subject, key, right)}"
                yield Hit(message, fix, key, subject, others=() if other is subject else (other,))


@estate_rule("cluster-two-aliases", "error", "KIP-382", live=_LIVE)
def cluster_two_aliases(estate: Estate) -> Iterator[Hit]:
    """One cluster has two aliases.

    MirrorMaker identifies clusters by alias only. The same cluster under another alias is a different cluster: its
    topics are mirrored again under the other prefix, offsets are looked up under the other name, and a topic that
    returns is not recognised (see loop). Use the same alias in every connector and every file. Source: KIP-382; seen on
    4.3.1.
    """
    reported = {hop.source for circle in default_circles(estate.subjects) for hop in circle.hops}
    for earlier, other, shared in overlapping(estate.subjects, running=False):
        if shared.topic and earlier.subject.source != other.subject.source:
            reported.add(earlier.source)
    called: dict[int, dict[str, list[tuple[Subject, ClusterSide]]]] = defaultdict(lambda: defaultdict(list))
    for subject in estate.subjects:
        for number, side in zip(clusters(estate.subjects)[subject], SIDES, strict=True):
            if subject.type != "heartbeat" and (alias := subject.get(f"{side}.cluster.alias")):
                called[number][alias].append((subject, side))
    for number, aliases in called.items():
        usual = max(aliases, key=lambda alias: len(aliases[alias]))
        first, its = aliases[usual][0]
        for alias, ((subject, own), *more) in aliases.items():
            its_own = {earlier for earlier, _ in (*aliases[usual], *aliases[alias])} == {subject} == {first}
            # self-mirror reports one connector whose ends are one cluster.
            if alias == usual or number in reported or its_own:
                continue
            if not _differ(point(subject, own), point(first, its)):  # else see addresses-of-two-clusters
                key = _SOURCE if subject.source == alias else _TARGET
                effect = "MirrorMaker treats them as two clusters"
                message = f"the cluster that {subject.name} calls '{alias}' is '{usual}' for {first.name}: {effect}"
                hit = connector_hit(subject, key, usual, message)
                if subject.form == "tree":
                    fix = f"keep one entry for it, {spell(subject, key, usual)}, and use it in every flow"
                    hit = Hit(message, fix, key, subject)
                yield replace(hit, others=tuple(other for other, _ in more))


@rule("alias-blank", "error", "DefaultReplicationPolicy, MirrorConnectorConfig", types=("source", "checkpoint"))
def alias_blank(subject: Subject) -> Iterator[Hit]:
    """An alias is blank, so names of topics have an empty part and loops are not recognised.

    A blank source.cluster.alias makes the topic `.orders`, with a blank separator `orders`; offset syncs and
    checkpoints of all such flows go to topics of one name, and a topic that returns is mirrored again, since the
    target's alias is in no name. Some recipes do this to keep the names of topics: that is what
    IdentityReplicationPolicy is for (since 3.0), with aliases that tell the clusters apart. In mm2.properties the line
    overrides the names in `clusters` for every pair. Changing it for a flow that runs gives its topics other names, or
    begins them again at the first record. Source: DefaultReplicationPolicy.
    """
    blank = [key for key in (_SOURCE, _TARGET) if key in subject.config and not subject.get(key)]
    if blank:
        keeps = not separator_of(subject) and policy_of(subject) == "default" and blank[0] == _SOURCE
        names = "topics keep their names" if keeps else "names of topics have an empty part"
        keys = " and ".join(file_key(subject, key) for key in blank)
        verb = "are" if blank[1:] else "is"
        effect = f"{names}, internal topics of all such flows have one name, and loops are not recognised"
        message = f"{keys} {verb} blank: {effect}"
        identity = f"write {spell(subject, _POLICY, POLICIES['identity'])} to keep names"
        own = "remove the line, so that clusters names them" if subject.form == "dedicated" else "write an alias"
        fix = f"{identity}, and {own}" if policy_of(subject) == "default" else own
        yield Hit(message, fix, blank[0], severity=None if policy_of(subject) == "default" else "warning")


@rule(
    "alias-has-separator",
    "error",
    "DefaultReplicationPolicy",
    types=("source",),
    live="tests/lint/test_seen_live_topics.py::test_alias_with_separator",
)
def alias_has_separator(subject: Subject) -> Iterator[Hit]:
    """An alias contains the separator, so MirrorMaker cannot parse topic names.

    DefaultReplicationPolicy splits us.west.t at the separator and takes `us` for the cluster. It does not recognise its
    own topics: their settings are never synced, it tries to create them at every refresh, and in flows that lead back
    to a cluster, topics are mirrored repeatedly, with one more prefix each time. Use a hyphen in the alias, or another
    separator everywhere. An empty separator, which splits names into letters, is contained in every alias. In the
    target's alias it is a warning: it matters where flows lead back. Source: DefaultReplicationPolicy.topicSource.
    """
    separator = separator_of(subject)
    is_blank = any(key in subject.config and not subject.get(key) for key in (_SOURCE, _TARGET))
    if policy_of(subject) != "default" or is_blank:
        return
    if not separator:
        message = "the separator is empty: MirrorMaker reads the first letter of a topic as the alias of its source"
        yield connector_hit(subject, _SEPARATOR, ".", message)
        return
    for key, alias in ((_SOURCE, subject.source), (_TARGET, subject.target)):
        if separator in alias and not is_open(alias):
            parts = alias.split(separator)
            effect = f"topic names are read as if they came from '{parts[0]}'"
            message = f"the alias '{alias}' contains the separator '{separator}': {effect}"
            hit = connector_hit(subject, key, ("_" if separator == "-" else "-").join(parts), message)
            yield hit if key == _SOURCE else hit.with_severity("warning")


@estate_rule("separator-differs", "error", "DefaultReplicationPolicy", live=_LIVE)
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
    differing: dict[frozenset[int], list[tuple[Hop, Hop]]] = {}
    for hop in sorted(every, key=lambda hop: hop.separator != "."):
        other = next((first[end] for end in hop.pair if end in first and first[end].separator != hop.separator), None)
        for end in hop.pair:
            first.setdefault(end, hop)
        if other and frozenset(hop.pair) not in reported:
            differing.setdefault(frozenset(hop.pair), []).append((hop, other))
    returning = on_circles(every)
    for (hop, other), *more in differing.values():  # one finding per pair, which concerns all its connectors
        effect = f"shares a cluster with it, '{other.separator}': neither recognises the other's topics as mirrored"
        message = f"{hop.subject.name} has the separator '{hop.separator}' and {other.subject.name}, which {effect}"
        hit = connector_hit(hop.subject, _SEPARATOR, other.separator, message)
        concerned = (other.subject, *(subject for pair in more for subject in (pair[0].subject, pair[1].subject)))
        pairs = [(hop, other), *more]
        severity: Severity | None = None if any({*pair} <= returning for pair in pairs) else "info"
        if severity and any(
            earlier.target == next_one.source or next_one.target == earlier.source for earlier, next_one in pairs
        ):
            severity = "warning"  # of a chain: clients on its end find no source of the topics
        yield replace(hit, others=tuple(dict.fromkeys(concerned)), severity=severity)
