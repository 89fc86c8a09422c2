"""Rules about several connectors of a pair of clusters: topics, heartbeats, unique names, offset syncs, checkpoints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import product

from mm2mgr.defaults import POLICIES
from mm2mgr.lint.findings import (
    Edit,
    Hit,
    connector_hit,
    edit_hit,
    estate_rule,
    file_key,
    keys_ending,
    phrase,
    rule,
    spell,
    yaml,
)
from mm2mgr.lint.hops import (
    SIDES,
    Hop,
    by_pair,
    carries_heartbeats,
    clusters,
    filter_of,
    hops,
    items_of,
    moving,
    names_alike,
    overlapping,
    plain_name,
    point,
    same,
    unread_pattern,
)
from mm2mgr.lint.rules.loops import identity_rounds
from mm2mgr.lint.subject import Estate, Subject, addresses
from mm2mgr.lint.target_names import separator_of
from mm2mgr.topics.names import NameFilter, Selection, matches_no_topic, samples
from mm2mgr.topics.shared import meeting, overlaps
from mm2mgr.truth.reach import numbers


@lru_cache(maxsize=4)
def pairs(subjects: tuple[Subject, ...]) -> Mapping[tuple[int, int], tuple[list[Hop], list[Subject]]]:
    """Group source and checkpoint connectors by their two clusters."""
    ends_of = clusters(subjects)
    connectors_of = {pair: (group, list[Subject]()) for pair, group in by_pair(hops(subjects)).items()}
    for subject in subjects:
        if subject.type == "checkpoint":
            connectors_of.setdefault(ends_of[subject], ([], []))[1].append(subject)
    return connectors_of


_LIVE = "tests/lint/test_seen_live_pairs.py::"
_BEATS = "heartbeats.replication.enabled"


@estate_rule("overlap", "error", "KIP-382", live=_LIVE)
def overlap(estate: Estate) -> Iterator[Hit]:
    """Two source connectors of one pair mirror the same topic, so its records arrive twice.

    Each MirrorSourceConnector keeps its own offsets under its own name: both read the topic from the beginning and
    write to the same topic on the target. The order of the two copies is random, the offset syncs of both are mixed,
    and everything is RUNNING. Make the patterns disjoint: remove the topic from one connector, or add it to
    topics.exclude of one. Dots matter: `a.b` also matches a-b. Where one alias has other addresses in the two, they may
    be two clusters with one alias, whose records are mixed (see alias-reused). Source: KIP-382; seen on 4.3.1.
    """
    for first, later, shared in overlapping(estate.subjects, running=True, alike=True):
        if topic := shared.topic:
            items = (item for hop in (first, later) if hop.names for item in hop.names.include)
            is_named = any(topic == plain_name(item) for item in items)  # others are generated from patterns
            names = f"'{topic}'" if is_named else f"topics such as '{topic}'"
            effect = f"{later.subject.source}: their records arrive twice"
            both = _both_names(first.subject, later.subject)
            message = f"{both} both mirror {names} from {effect}"
            in_tree = later.subject.form == "tree"
            place = "topics: {exclude: […]}" if in_tree else file_key(later.subject, "topics.exclude")
            more = f"the pattern of one to {place} of the other"
            if is_named:
                escaped = topic.replace(".", "\\.")
                more = f"{escaped} to {place} of one of them"
            fix = f"remove it from one of them, or add {more}"
            if side := _elsewhere_by_address(first.subject, later.subject):
                message = (
                    f"{both} both mirror {names}, and "
                    f"'{later.subject.get(f'{side}.cluster.alias')}' has other addresses in the two: one cluster, and "
                    f"the records arrive twice, or two clusters with one alias, whose {_MIXED[side]}"
                )
                fix = f"give each cluster its own alias; or, if it is one cluster, {fix}"
            yield Hit(message, fix, "topics", later.subject, others=(first.subject,))


def _both_names(first: Subject, later: Subject) -> str:
    """Return the names of two connectors, with their Connect clusters where they have one name."""
    if first.name != later.name:
        return f"{first.name} and {later.name}"
    return " and ".join(
        f"{subject.connector.connect or subject.spot.connect}/{subject.name}" for subject in (first, later)
    )


_MIXED = {"source": "records are mixed in one topic", "target": "offset syncs are mixed"}


def _elsewhere_by_address(subject: Subject, other: Subject) -> str:
    """Return the side on which nothing but the alias says that it is one cluster, "" for none."""
    for side in SIDES:
        here, there = point(subject, side), point(other, side)
        if here.addresses and there.addresses and not same(here, there):
            return side
    return ""


@estate_rule("overlap-undecided", "info", "java.util.regex.Pattern")
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
    running = by_pair([hop for hop in hops(estate.subjects) if not hop.subject.is_off])
    for hop in (hop for group in running.values() for hop in group if hop.selection is None):
        back = running.get(hop.pair[::-1], []) if hop.policy == "identity" else []
        other = next((candidate for candidate in (*running[hop.pair], *back) if candidate is not hop), None)
        if other and (pattern := unread_pattern(hop.subject)):
            yield _open(hop.subject, other.subject, "share a topic", pattern)
    for start, last, pattern in identity_rounds(estate.subjects)[1]:
        yield _open(start.subject, last.subject, "mirror a topic in a loop", pattern)


def _open(subject: Subject, other: Subject, question: str, pattern: str) -> Hit:
    message = f"not decided whether {other.name} and {subject.name} {question}: {pattern}"
    fix = "compare the patterns yourself, or write them without lookarounds, backreferences and possessive repetitions"
    return Hit(message, fix, "topics", subject, others=(other,))


@estate_rule("renamed", "warning", "KIP-875", live=_LIVE)
def topics_renamed(estate: Estate) -> Iterator[Hit]:
    """A new connector for topics that another one has mirrored starts again at the first record.

    Offsets are stored under the connector's name and the source's alias. A connector with a new name or alias has no
    offsets and reads every topic from the beginning: with the same alias all records arrive a second time, with another
    alias under a second name. The offsets of the old connector, stopped or paused, are not used. To rename, stop the
    old connector, read its offsets, create the new one as STOPPED, write the offsets to it, and resume it (3.6 and
    newer). Source: KIP-875; seen on 4.3.1.
    """
    for first, later, shared in overlapping(estate.subjects, running=False):
        topic = shared.topic
        old, new = (first, later) if first.subject.is_off or not later.subject.is_off else (later, first)
        if topic is None or new.subject.is_off or (not old.subject.is_off and names_alike(old, new, topic)):
            continue
        difference = (
            f"is {old.subject.state or 'not enabled'}"
            if old.subject.is_off
            else f"calls the source '{old.subject.source}'"
        )
        effect = "offsets are stored by name and alias, so it is mirrored again from the beginning"
        message = (
            f"{new.subject.name} mirrors '{topic}', which {old.subject.name} mirrors as well and {difference}: {effect}"
        )
        ways = "GET and PATCH /connectors/…/offsets while both are STOPPED"
        fix = f"copy the offsets ({ways}) and delete the old connector"
        yield Hit(message, fix, "", new.subject, others=(old.subject,))


@estate_rule("heartbeats-twice", "warning", "KIP-1089", live=f"{_LIVE}test_heartbeats")
def heartbeats_twice(estate: Estate) -> Iterator[Hit]:
    """Several source connectors of a pair mirror the heartbeats.

    Every MirrorSourceConnector mirrors the topic `heartbeats` of its source, whatever its topics are, so with two
    connectors per pair each heartbeat arrives twice, and the number of heartbeats has no meaning. Since 4.0 (KIP-1089)
    set heartbeats.replication.enabled=false on all but one of a pair; up to 3.9 only a custom policy class prevents it.
    """
    ends_of = clusters(estate.subjects)
    written_into = {ends_of[subject][1] for subject in _heartbeat_connectors(estate)}
    for (source, _), (sources, _) in pairs(estate.subjects).items():
        carrying = [hop.subject for hop in sources if not hop.subject.is_off and carries_heartbeats(hop.subject)]
        if source in written_into and len(carrying) > 1:
            first, later, *more = carrying
            effect = f"each heartbeat arrives {len(carrying)} times"
            message = f"{first.name} and {later.name} both mirror the heartbeats of {first.source}: {effect}"
            if numbers(later.version) < (4, 0):
                remedy = "or upgrade the workers to 4.0 (heartbeats.replication.enabled)"
                fix = f"mirror these topics with one connector, {remedy}"
                yield Hit(message, fix, _BEATS, later, others=(first, *more))
                continue
            edits = [Edit(_BEATS, "false", subject) for subject in (later, *more)]
            hit = edit_hit(later, message, edits, _BEATS, " in all but one of them")
            yield replace(hit, fix=f"{phrase(later, edits[:1])} in all but one of them", others=(first, *more))


def _heartbeat_connectors(estate: Estate) -> list[Subject]:
    heartbeats = (subject for subject in estate.subjects if subject.type == "heartbeat")
    return [subject for subject in heartbeats if subject.flag("emit.heartbeats.enabled", default=True)]


@estate_rule("heartbeats-not-carried", "warning", "KIP-1089")
def heartbeats_not_carried(estate: Estate) -> Iterator[Hit]:
    """Heartbeats are written into a cluster, and no connector mirrors them from there.

    With heartbeats.replication.enabled=false (KIP-1089, since 4.0) a source connector leaves the topic `heartbeats`
    out. Where all source connectors of a cluster have it, the heartbeats written into that cluster arrive nowhere:
    A.heartbeats on B stays empty or is missing, as if A→B were broken. Let one connector of each pair mirror them, or
    write none.
    """
    ends_of = clusters(estate.subjects)
    running = [hop for hop in hops(estate.subjects) if not hop.subject.is_off]
    carried = {hop.source for hop in running if carries_heartbeats(hop.subject)}
    for sender in _heartbeat_connectors(estate):
        cluster = ends_of[sender][1]
        if sender.is_off or cluster in carried:
            continue
        leaving = [hop.subject for hop in running if hop.source == cluster]
        if leaving:
            carried.add(cluster)
            first = leaving[0]
            effect = f"and no source connector mirrors them: {file_key(first, _BEATS)}=false"
            message = f"{sender.name} writes heartbeats into {sender.target}, {effect}"
            remedy = f"or do not write heartbeats into {sender.target}"
            fix = f"write {spell(first, _BEATS, 'true')} in one of {first.pair}, {remedy}"
            yield Hit(message, fix, _BEATS, first, others=(sender, *leaving[1:]))


@rule("heartbeats-excluded", "warning", "KIP-1089, MirrorSourceConnector", types=("source",), needs=("topics.exclude",))
def heartbeats_excluded(subject: Subject) -> Iterator[Hit]:
    """The exclude list names heartbeats, which are mirrored anyway.

    A source connector mirrors the heartbeats topics of its source whatever its lists say (shouldReplicateTopic), so the
    item in topics.exclude does nothing. Since 4.0 heartbeats.replication.enabled=false leaves them out (KIP-1089);
    before, only a cluster without heartbeats has none to mirror. Source: MirrorSourceConnector.shouldReplicateTopic.
    """
    items = [item for item in items_of(subject, "topics.exclude") if "heartbeats" in item]
    if "topics.exclude" in subject.config and items and carries_heartbeats(subject) and not subject.is_off:
        effect = "they are mirrored whatever the lists say"
        message = f"{file_key(subject, 'topics.exclude')}: '{items[0]}' does not keep heartbeats back: {effect}"
        fix = f"write {spell(subject, _BEATS, 'false')}"
        if numbers(subject.version) < (4, 0):
            remedy = "or upgrade the workers to 4.0 (heartbeats.replication.enabled)"
            fix = f"write no heartbeats into the source (emit.heartbeats.enabled=false), {remedy}"
        yield Hit(message, f"{fix}, or remove '{items[0]}'", "topics.exclude")


@rule(
    "heartbeats-off",
    "warning",
    "MirrorHeartbeatConnector.taskConfigs",
    types=("heartbeat",),
    needs=("emit.heartbeats",),
)
def heartbeats_off(subject: Subject) -> Iterator[Hit]:
    """A heartbeat connector has emit.heartbeats.enabled=false, so it has no task and writes nothing.

    It is RUNNING without a task, as if its cluster were unavailable, and whatever watches heartbeats reports the pair
    as broken. Delete the connector instead, or pause it. In mm2.properties the key is the usual way to have no
    heartbeats, and is not reported.
    """
    key = "emit.heartbeats.enabled"
    if not subject.flag(key, default=True) and subject.form != "dedicated" and not subject.is_off:
        effect = "it is RUNNING without a task and writes no heartbeat"
        message = f"{file_key(subject, key)}=false on a heartbeat connector: {effect}"
        yield Hit(message, f"delete the connector, or {spell(subject, key, 'true')}", key)


@estate_rule("heartbeats-never-cross", "warning", "KIP-382", live=f"{_LIVE}test_heartbeats")
def heartbeats_never_cross(estate: Estate) -> Iterator[Hit]:
    """Heartbeats are written to the target of the flow instead of its source.

    A heartbeat connector writes into its own target. Configured like the flow, A→B, the heartbeats appear on B without
    being mirrored, and B.heartbeats does not show whether A→B works. To monitor A→B, a heartbeat connector must write
    into A (its target is A): then A→B mirrors the heartbeats to A.heartbeats on B. mm2.properties does this by itself.
    Strimzi's operator writes them into the target: in a KafkaMirrorMaker2 it is a hint. Source: KIP-382.
    """
    ends_of = clusters(estate.subjects)
    senders = _heartbeat_connectors(estate)
    written_into = {ends_of[subject][1] for subject in senders}
    flows = {hop.pair for hop in hops(estate.subjects) if not hop.subject.is_off}
    starts = {start for start, _ in flows}
    for subject in senders:
        source, target = ends_of[subject]
        if (source, target) in flows and source not in written_into and target not in starts:
            effect = f"and not into {subject.source}: they do not show whether {subject.pair} works"
            message = f"{subject.name} writes heartbeats into {subject.target} itself {effect}"
            fix = f"swap source and target of the heartbeat connector: its target must be {subject.source}"
            hit = Hit(message, fix, "target.cluster.alias", subject, edits=_swapped_ends(subject))
            yield hit.with_severity("info") if subject.name == f"{subject.pair}.MirrorHeartbeatConnector" else hit


def _swapped_ends(subject: Subject) -> tuple[Edit, ...]:
    """Return the edits that make a connector's source its target; () where a login is not known for both sides."""
    sides = ("source.cluster.", "target.cluster.")
    of = [{key[len(side) :]: value for key, value in subject.config.items() if key.startswith(side)} for side in sides]
    others = {key for key in subject.config if ".override." in key} - {"producer.override.bootstrap.servers"}
    # Where Strimzi's resource has it.
    elsewhere = subject.paths.get("target.cluster.alias", subject.home)[: len(subject.home)] != subject.home
    if subject.form != "connect" or elsewhere or others or "bootstrap.servers" not in of[0]:
        return ()
    edits = [
        Edit(side + plain, theirs.get(plain))
        for side, own, theirs in zip(sides, of, of[::-1], strict=True)
        for plain in {**own, **theirs}
    ]
    if "producer.override.bootstrap.servers" in subject.config:
        edits.append(Edit("producer.override.bootstrap.servers", of[0]["bootstrap.servers"]))
    return tuple(edits)


@estate_rule("same-name", "error", "Connect's REST API")
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
        if other := next((candidate for candidate in others if not _elsewhere(candidate, subject)), None):
            where = f" ({other.spot})" if other.spot.file else ""
            message = (
                f"another connector has the name {subject.name}{where}: the one created later overwrites the other"
            )
            hit = connector_hit(subject, "name", f"{subject.name}-2", message, ", or another name")
            # Whose operator names connectors by aliases.
            if subject.resource and subject.resource.kind == "KafkaMirrorMaker2":
                hit = Hit(message, _one_mirror(other, subject), "name", subject)
            yield replace(hit, others=(other,))
        others.append(subject)


def _one_mirror(first: Subject, later: Subject) -> str:
    """Say how two mirrors of one pair become connectors of two names, or one."""
    alias = "or give the source another alias there, which its topics then have in their names"
    if first.resource != later.resource and first.spot.file != later.spot.file:
        return f"leave the mirror to one of the resources, {alias}"
    patterns = dict.fromkeys(item for subject in (first, later) for item in items_of(subject, "topics"))
    return f"write one mirror with topicsPattern: {yaml('|'.join(patterns))}, {alias}"


def _elsewhere(subject: Subject, other: Subject) -> bool:
    """Tell whether two connectors run on different Connect clusters: their workers' Kafka or group differs."""
    kafkas = [addresses(connector.worker_property("bootstrap.servers") or "") for connector in (subject, other)]
    groups = {group for connector in (subject, other) if (group := connector.worker_property("group.id"))}
    return len(groups) > 1 or (all(kafkas) and not kafkas[0] & kafkas[1])


@estate_rule("fan-in", "warning", "IdentityReplicationPolicy")
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
        for before, after, shared in overlaps(selections, [hop.source for hop in group]):
            first, later = group[before].subject, group[after].subject
            places = frozenset((group[before].source, group[after].source))
            if shared.topic and places not in reported:
                reported.add(places)
                effect = f"of {later.target}: records are mixed and topic settings overwrite each other"
                message = f"'{shared.topic}' of {first.source} and of {later.source} is written to one topic {effect}"
                fix = f"write {spell(later, _POLICY, POLICIES['default'])}, or mirror different topics"
                yield Hit(message, fix, "topics", later, others=(first,))


_SYNCS, _CHECKPOINTS = "emit.offset-syncs.enabled", "emit.checkpoints.enabled"
_LOCATION = "offset-syncs.topic.location"
_POLICY, _SEPARATOR = "replication.policy.class", "replication.policy.separator"


@estate_rule("checkpoint-without-syncs", "error", "KIP-1031", live=f"{_LIVE}test_checkpoints_that_never_come")
def checkpoint_without_syncs(estate: Estate) -> Iterator[Hit]:
    """A checkpoint connector has no offset syncs to translate, or is disabled.

    Checkpoints are derived from the offset syncs that the source connector of the same pair writes. Without them,
    because of emit.offset-syncs.enabled=false or because there is no source connector, the checkpoint connector is
    RUNNING and never writes anything. Since 3.9 (KIP-1031) Connect refuses a checkpoint connector with
    emit.offset-syncs.enabled=false or emit.checkpoints.enabled=false (400). If you want no checkpoints, do not create
    the connector; emit.checkpoints.enabled=false does not sync group offsets alone. Seen on 4.3.1.
    """
    for sources, checkpoints in pairs(estate.subjects).values():
        for subject in checkpoints:
            if subject.flag("enabled", default=True):
                yield from _without_syncs(subject, sources, complete=estate.complete)


def _without_syncs(subject: Subject, sources: list[Hop], *, complete: bool) -> Iterator[Hit]:
    refusing = numbers(subject.version) >= (3, 9)
    own = next((key for key in (_CHECKPOINTS, _SYNCS) if not subject.flag(key, default=True)), "")
    if own and (own == _CHECKPOINTS or refusing):
        # In mm2.properties the driver makes this connector unasked, so whoever switches it off gets what they want.
        if subject.form != "dedicated" or subject.flag("sync.group.offsets.enabled", default=False):
            effect = "Connect refuses it with 400" if refusing else "it creates no task and syncs no group offsets"
            message = f"{file_key(subject, own)}=false on a checkpoint connector: {effect}"
            yield connector_hit(subject, own, "true", message, ", or do not create the connector")
    elif sources and not any(hop.subject.setting.offset_syncs for hop in sources):
        first = sources[0].subject
        message = (
            f"{first.name} has {_SYNCS}=false, so {subject.name} has no offset syncs and never writes a checkpoint"
        )
        more = " on the source connector, or delete the checkpoint connector"
        yield edit_hit(subject, message, [Edit(_SYNCS, "true", first)], "", more)
    elif complete and not sources:
        message = f"no source connector mirrors {subject.pair}, so there are no offset syncs for {subject.name}"
        fix = "create the source connector of the pair with the same aliases, or delete the checkpoint connector"
        yield Hit(message, fix, "", subject)


@rule(
    "syncs-with-off",
    "error",
    "KIP-1031",
    types=("source",),
    live=f"{_LIVE}test_checkpoint_refused",
    reads=keys_ending(),
)
def syncs_with_off(subject: Subject) -> Iterator[Hit]:
    """Offset syncs are disabled and configured at the same time.

    Since 3.9 (KIP-1031) a source connector with emit.offset-syncs.enabled=false must not have any key that starts with
    offset-syncs- or offset-syncs.topic.: validation returns 400, "MirrorSourceConnector can't setup offset-syncs
    feature while …", and the connector is not created. In mm2.properties the source connector of the pair never starts.
    Remove the keys. Seen on 4.3.1.
    """
    keys = [key for key in subject.config if key.startswith(("offset-syncs-", "offset-syncs.topic."))]
    if keys and not subject.setting.offset_syncs:
        names = ", ".join(file_key(subject, key) for key in keys)
        message = f"{file_key(subject, _SYNCS)}=false together with {names}: Connect refuses the connector"
        yield edit_hit(subject, message, [Edit(key, None) for key in keys], keys[0])


@estate_rule("pair-disagrees", "error", "KIP-716, KIP-690", live=f"{_LIVE}test_checkpoints_that_never_come")
def pair_disagrees(estate: Estate) -> Iterator[Hit]:
    """The source and the checkpoint connector of a pair use different internal topics.

    The source connector writes offset syncs to the cluster of its offset-syncs.topic.location, into a topic whose name
    contains the separator. The checkpoint connector reads that topic by its own settings, and names mirrored topics by
    its own policy. If they differ it reads a topic that is missing or empty, or writes checkpoints for topics that do
    not exist: RUNNING, and no offset is translated. Use the same values in both. Source: KIP-716, KIP-690.
    """
    for sources, checkpoints in pairs(estate.subjects).values():
        for subject, key in product(checkpoints, (_LOCATION, _POLICY, _SEPARATOR)):
            source = next((hop.subject for hop in sources if _differ(hop.subject, subject, key)), None)
            if source:
                theirs = _of_pair(source, key)
                effect = f"and {theirs or 'empty'} in {source.name}: offsets of the pair are not translated correctly"
                message = f"{key} is {_of_pair(subject, key) or 'empty'} here {effect}"
                yield connector_hit(subject, key, theirs, message, f", as in {source.name}")


def _differ(source: Subject, checkpoint: Subject, key: str) -> bool:
    if key == _LOCATION and not source.setting.offset_syncs:
        return False
    if key == _SEPARATOR and not any(map(_separates, (source, checkpoint))):
        return False
    values = [_of_pair(subject, key) for subject in (source, checkpoint)]
    return len(set(values if key == _SEPARATOR else (value.rpartition(".")[2] for value in values))) > 1


def _separates(subject: Subject) -> bool:
    """Tell whether the separator is in a name: of remote topics unless names are kept, since 3.1 of internal ones."""
    if not subject.get(_POLICY).endswith("IdentityReplicationPolicy"):
        return True
    own = subject.flag("replication.policy.internal.topic.separator.enabled", default=True)
    return numbers(subject.version) >= (3, 1) and (own or numbers(subject.version) < (3, 6))


def _of_pair(subject: Subject, key: str) -> str:
    if key == _SEPARATOR:
        return separator_of(subject)
    return subject.get(key) or ("source" if key == _LOCATION else POLICIES["default"])


@estate_rule(
    "checkpoint-other-topics",
    "warning",
    "MirrorCheckpointTask.shouldCheckpointTopic",
    live=f"{_LIVE}test_checkpoints_that_never_come",
)
def checkpoint_other_topics(estate: Estate) -> Iterator[Hit]:
    """The checkpoint connector takes no topic that a source connector of the pair mirrors.

    Its `topics` and `topics.exclude` are about names on the source, as those of the source connector: a group's offsets
    are translated for topics that both connectors take. Names of the target (A.orders), topics that are mirrored
    elsewhere, or an exclude list that holds all that is mirrored give no checkpoint, and the connector stays RUNNING,
    possibly without a task. Remove the list, or use the same as the source connector. Source:
    MirrorCheckpointConnector, DefaultTopicFilter.
    """
    for sources, checkpoints in pairs(estate.subjects).values():
        selections = [hop.selection for hop in sources]
        for subject in checkpoints:
            names = filter_of(subject) if _TOPIC_LISTS & subject.config.keys() else None
            if (
                not names
                or not selections
                or any(selection is None or _alike(names, selection) for selection in selections)
            ):
                continue
            if any(selection and _share(names, selection) for selection in selections):
                continue
            filters = [selection.names for selection in selections if selection]
            without = NameFilter(names.include, ())
            excluded = any(_share(without, selection) for selection in selections if selection)
            key, says = ("topics.exclude", "excludes") if excluded else ("topics", "names")
            lists = [selection.exclude if excluded else selection.include for selection in filters]
            right = ",".join(dict.fromkeys(item for selection in lists for item in selection))
            listed = ", ".join(items_of(subject, key)[:3])
            effect = f"it takes no topic that a source connector of {subject.pair} mirrors, so no offset is translated"
            message = f"{file_key(subject, key)} {says} {listed}: {effect}"
            yield connector_hit(subject, key, right, message, f": topics of {subject.source}, as mirrored")


_TOPIC_LISTS = frozenset(["topics", "topics.exclude"])


def _alike(names: NameFilter, mirrored: Selection) -> bool:
    """Tell whether an item that is in both lists shows a topic that a filter takes and a connector mirrors."""
    if names == mirrored.names:
        return True
    both = (item for item in names.include if item in mirrored.names.include)
    return any(names.takes(name) and mirrored.takes(name) for item in both for name in samples(item))


@lru_cache(maxsize=4096)
def _share(names: NameFilter, mirrored: Selection) -> bool:
    """Tell whether a filter takes a topic that is mirrored, also where that is not decided, or nothing is."""
    if not mirrored.names.include or all(map(matches_no_topic, mirrored.names.include)):
        return True
    shared = meeting([mirrored, Selection(names, None, "", "")])
    return shared.is_possible


@estate_rule("checkpoints-twice", "error", "KIP-382")
def checkpoints_twice(estate: Estate) -> Iterator[Hit]:
    """Two checkpoint connectors of one pair translate the offsets of one group.

    Both write to one topic, A.checkpoints.internal on the target, each from what it has read itself: clients use the
    last record, which may be the older one, and with sync.group.offsets.enabled=true both set the group's offsets.
    There is no error. Delete one of them, or give each different groups. Source: KIP-382.
    """
    for _, checkpoints in pairs(estate.subjects).values():
        running = [subject for subject in checkpoints if not subject.is_off]
        driven = [subject for subject in running if subject.form == "dedicated"]
        # Nodes with a file each are one MirrorMaker.
        running = [subject for subject in running if subject not in driven[1:]]
        for later, subject in enumerate(running):
            shared = ((earlier, _group_of_both(earlier, subject)) for earlier in running[:later])
            first, group = next(((earlier, group) for earlier, group in shared if group), (None, None))
            if first:
                topic = separator_of(subject).join((subject.source, "checkpoints", "internal"))
                effect = f"into {topic}: the last record may be the older one"
                message = f"{first.name} and {subject.name} both write checkpoints of groups such as '{group}' {effect}"
                fix = f"delete one of them, or give each different groups: {spell(subject, 'groups', '…')}"
                yield Hit(message, fix, "groups", subject, others=(first,))


def _group_of_both(first: Subject, later: Subject) -> str | None:
    """Return a group that two connectors translate for one topic into one checkpoints topic."""
    if (first.source, separator_of(first)) != (later.source, separator_of(later)):
        return None
    shared = None
    for kind in ("topics", "groups"):
        filters = [name_filter for subject in (first, later) if (name_filter := filter_of(subject, kind))]
        # A policy that knows no aliases: nothing but the two filters decides.
        shared = meeting([Selection(names, None, "", "") for names in filters]).topic if len(filters) == 2 else None
        if shared is None:
            return None
    return shared
