"""Rules about several connectors of one pair of clusters: topics, heartbeats and names that must be unique."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from mm2mgr.lint import patterns
from mm2mgr.lint.clusters import clusters
from mm2mgr.lint.findings import Hit, estate_rule
from mm2mgr.lint.fixes import connector_key, written
from mm2mgr.lint.hops import Hop, by_pair, hops, moving, names_alike, overlapping, pairs
from mm2mgr.lint.rules.loops import identity_rounds
from mm2mgr.lint.subject import Estate, Subject, addresses
from mm2mgr.topics.shared import overlaps
from mm2mgr.truth.reach import numbers

_SEEN = "tests/lint/test_seen_live_pairs.py::"
_MIRROR = "org.apache.kafka.connect.mirror."
_BEATS = "heartbeats.replication.enabled"


@estate_rule("overlap", "error", source="KIP-382", seen=f"{_SEEN}test_overlap")
def overlap(estate: Estate) -> Iterator[Hit]:
    """Two source connectors of one pair mirror the same topic, so its records arrive twice.

    Each MirrorSourceConnector keeps its own offsets under its own name: both read the topic from the beginning and
    write to the same topic on the target. The order of the two copies is random, the offset syncs of both are mixed,
    and everything is RUNNING. Make the patterns disjoint: remove the topic from one connector, or add it to
    topics.exclude of one. Dots matter: `a.b` also matches a-b. Source: KIP-382; seen on 4.3.1.
    """
    for first, later, shared in overlapping(estate.subjects, running=True, alike=True):
        topic = shared.topic
        if topic:
            names = f"'{topic}'" if _named(first, later, topic) else f"topics such as '{topic}'"
            message = f"{first.subject.name} and {later.subject.name} both mirror {names} from {later.subject.source}: their records arrive twice"
            yield Hit(message, _apart(first, later, topic), "topics", later.subject, others=(first.subject,))


@estate_rule("overlap-undecided", "info", source="java.util.regex.Pattern")
def overlap_undecided(estate: Estate) -> Iterator[Hit]:
    """It is not decided whether two connectors share a topic.

    The rules decide for names and for regular expressions in general whether two connectors of a pair mirror one topic,
    and whether a topic that keeps its name returns. Lookarounds, backreferences and possessive repetitions are not
    regular, and very large expressions cost too much: for these, only likely names were tried, and none matched both. A
    shared topic may still exist. Compare the patterns yourself, or write them without these constructs. Source:
    java.util.regex.Pattern.
    """
    for first, later, shared in overlapping(estate.subjects, running=True, alike=True):
        if shared.undecided:
            yield _open(later.subject, first.subject, "share a topic", shared.undecided)
    running = by_pair([hop for hop in hops(estate.subjects) if not hop.off])
    for hop in (hop for group in running.values() for hop in group if hop.selection is None):
        back = running.get(hop.pair[::-1], []) if hop.policy == "identity" else []
        other = next((each for each in (*running[hop.pair], *back) if each is not hop), None)
        if other and (pattern := patterns.unread(hop.subject)):
            yield _open(hop.subject, other.subject, "share a topic", pattern)
    for start, last, pattern in identity_rounds(estate.subjects).undecided:
        yield _open(start.subject, last.subject, "mirror a topic in a loop", pattern)


def _open(subject: Subject, other: Subject, what: str, pattern: str) -> Hit:
    message = f"not decided whether {other.name} and {subject.name} {what}: {pattern}"
    fix = "compare the patterns yourself, or write them without lookarounds, backreferences and possessive repetitions"
    return Hit(message, fix, "topics", subject, others=(other,))


def _named(first: Hop, later: Hop, topic: str) -> bool:
    """Tell whether this name is written in a list; others are generated from patterns."""
    return any(topic == patterns.plain_name(item) for hop in (first, later) if hop.names for item in hop.names.include)


def _apart(first: Hop, later: Hop, topic: str) -> str:
    what = topic.replace(".", "\\.") if _named(first, later, topic) else "the pattern of one"
    where = "of one of them" if _named(first, later, topic) else "of the other"
    key = written(later.subject, "topics.exclude")
    place = "topics: {exclude: […]}" if later.subject.form == "tree" else key
    return f"remove it from one of them, or add {what} to {place} {where}"


@estate_rule("renamed", "warning", source="KIP-875", seen=f"{_SEEN}test_renamed")
def renamed(estate: Estate) -> Iterator[Hit]:
    """A new connector for topics that another one has mirrored starts again at the first record.

    Offsets are stored under the connector's name and the source's alias. A connector with a new name or alias has no
    offsets and reads every topic from the beginning: with the same alias all records arrive a second time, with another
    alias under a second name. The offsets of the old connector, stopped or paused, are not used. To rename, stop the
    old connector, read its offsets, create the new one as STOPPED, write the offsets to it, and resume it (3.6 and
    newer). Source: KIP-875; seen on 4.3.1.
    """
    for first, later, shared in overlapping(estate.subjects, running=False):
        topic = shared.topic
        old, new = (first, later) if first.off or not later.off else (later, first)
        if topic is None or new.off or (not old.off and names_alike(old, new, topic)):
            continue
        what = f"is {old.subject.state or 'not enabled'}" if old.off else f"calls the source '{old.subject.source}'"
        message = f"{new.subject.name} mirrors '{topic}', which {old.subject.name} mirrors as well and {what}: offsets are stored by name and alias, so it is mirrored again from the beginning"
        fix = (
            "copy the offsets (GET and PATCH /connectors/…/offsets while both are STOPPED) and delete the old connector"
        )
        yield Hit(message, fix, "", new.subject, others=(old.subject,))


@estate_rule("heartbeats-twice", "warning", source="KIP-1089", seen=f"{_SEEN}test_heartbeats")
def heartbeats_twice(estate: Estate) -> Iterator[Hit]:
    """Several source connectors of a pair mirror the heartbeats.

    Every MirrorSourceConnector mirrors the topic `heartbeats` of its source, whatever its topics are, so with two
    connectors per pair each heartbeat arrives twice, and the number of heartbeats has no meaning. Since 4.0 (KIP-1089)
    set heartbeats.replication.enabled=false on all but one of a pair; up to 3.9 only a custom policy class prevents it.
    """
    known = clusters(estate.subjects)
    beaten = {known.of(subject, "target") for subject in _beating(estate)}
    for (source, _), pair in pairs(estate).items():
        carrying = [hop.subject for hop in pair.sources if not hop.off and _carries(hop.subject)]
        if source in beaten and len(carrying) > 1:
            message = f"{' and '.join(subject.name for subject in carrying[:2])} both mirror the heartbeats of {carrying[0].source}: each heartbeat arrives {len(carrying)} times"
            later = carrying[1]
            fix = f"write {connector_key(later, _BEATS, 'false')} in all but one of them"
            yield Hit(message, fix, _BEATS, later, others=tuple(each for each in carrying if each is not later))


def _carries(subject: Subject) -> bool:
    old = subject.known_version is not None and numbers(subject.known_version) < (4, 0)
    return old or subject.flag(_BEATS, default=True)


def _beating(estate: Estate) -> list[Subject]:
    return [subject for subject in estate.of_type("heartbeat") if subject.flag("emit.heartbeats.enabled", default=True)]


@estate_rule("heartbeats-never-cross", "warning", source="KIP-382", seen=f"{_SEEN}test_heartbeats")
def heartbeats_never_cross(estate: Estate) -> Iterator[Hit]:
    """Heartbeats are written to the target of the flow instead of its source.

    A heartbeat connector writes into its own target. Configured like the flow, A→B, the heartbeats appear on B without
    being mirrored, and B.heartbeats does not show whether A→B works. To monitor A→B, a heartbeat connector must write
    into A (its target is A): then A→B mirrors the heartbeats to A.heartbeats on B. mm2.properties does this by itself.
    Source: KIP-382.
    """
    known = clusters(estate.subjects)
    beating = _beating(estate)
    written_into = {known.of(subject, "target") for subject in beating}
    flows = {hop.pair for hop in hops(estate.subjects) if not hop.off}
    for subject in beating:
        source, target = known.pair(subject)
        leaves = any(target == start for start, _ in flows)
        if (source, target) in flows and source not in written_into and not leaves:
            message = f"{subject.name} writes heartbeats into {subject.target} itself and not into {subject.source}: they do not show whether {subject.pair} works"
            yield Hit(
                message,
                f"swap source and target of the heartbeat connector: its target must be {subject.source}",
                "target.cluster.alias",
                subject,
            )


@estate_rule("same-name", "error", source="Connect's REST API")
def same_name(estate: Estate) -> Iterator[Hit]:
    """Two connectors have one name, so the second replaces the first.

    A Connect cluster identifies connectors by name. Creating the second one with POST returns 409; PUT, which most
    tools use, overwrites the first: its flow ends without an error, while the new one continues from the offsets stored
    under the name. Give each its own name, preferably with both aliases in it. Files count when they are in one folder.
    Source: Connect's REST API.
    """
    named: dict[tuple[str, str, str], list[Subject]] = defaultdict(list)
    for subject in estate.subjects:
        if subject.form == "dedicated" or not subject.name:
            continue
        folder = "" if subject.spot.connect else subject.spot.file.rpartition("/")[0]
        others = named[subject.spot.connect, folder, subject.name]
        if other := next((each for each in others if not _elsewhere(each, subject)), None):
            where = f" ({other.spot})" if other.spot.file else ""
            message = (
                f"another connector has the name {subject.name}{where}: the one created later overwrites the other"
            )
            fix = f"write {connector_key(subject, 'name', f'{subject.name}-2')}, or another name"
            yield Hit(message, fix, "name", subject, others=(other,))
        others.append(subject)


def _elsewhere(one: Subject, other: Subject) -> bool:
    """Tell whether two connectors run on different Connect clusters: their workers' Kafka or group differs."""
    kafkas = [addresses(each.worker_property("bootstrap.servers") or "") for each in (one, other)]
    groups = {group for each in (one, other) if (group := each.worker_property("group.id"))}
    return len(groups) > 1 or (all(kafkas) and not kafkas[0] & kafkas[1])


@estate_rule("fan-in", "warning", source="IdentityReplicationPolicy")
def fan_in(estate: Estate) -> Iterator[Hit]:
    """Several sources write to one topic on the target.

    With IdentityReplicationPolicy the records of all sources are written to the same topic, partition by partition: the
    order is kept only within a source, equal keys of different sources share a partition, each source's topic settings
    overwrite the other's at every sync, and group offsets of two clusters are translated to one topic. This can be
    intended for logs. Otherwise mirror different topics of each source, or keep the source in the name with
    DefaultReplicationPolicy. Source: IdentityReplicationPolicy.
    """
    targets: dict[int, list[Hop]] = defaultdict(list)
    for hop in moving(hops(estate.subjects)):
        if hop.policy == "identity":
            targets[hop.target].append(hop)
    for group in targets.values():
        reported: set[frozenset[int]] = set()
        selections = [hop.selection for hop in group if hop.selection]
        for before, later, shared in overlaps(selections, [hop.source for hop in group]):
            places = frozenset((group[before].source, group[later].source))
            if shared.topic and places not in reported:
                reported.add(places)
                yield _mixed(group[before].subject, group[later].subject, shared.topic)


def _mixed(first: Subject, later: Subject, topic: str) -> Hit:
    message = f"'{topic}' of {first.source} and of {later.source} is written to one topic of {later.target}: records are mixed and topic settings overwrite each other"
    fix = f"write {connector_key(later, 'replication.policy.class', f'{_MIRROR}DefaultReplicationPolicy')}, or mirror different topics"
    return Hit(message, fix, "topics", later, others=(first,))
