"""Rules about offset syncs and checkpoints: settings that the source and checkpoint connectors of a pair must share."""

from __future__ import annotations

from collections.abc import Iterator

from mm2mgr.lint import patterns
from mm2mgr.lint.findings import Hit, estate_rule, rule
from mm2mgr.lint.fixes import connector_key, written
from mm2mgr.lint.hops import Hop, pairs
from mm2mgr.lint.patterns import separator_of
from mm2mgr.lint.subject import Estate, Subject
from mm2mgr.topics.selection import Selection
from mm2mgr.topics.shared import meeting
from mm2mgr.truth.reach import numbers

_SEEN = "tests/lint/test_seen_live_pairs.py::"
_SYNCS, _CHECKPOINTS = "emit.offset-syncs.enabled", "emit.checkpoints.enabled"
_LOCATION, _POLICY, _SEPARATOR = (
    "offset-syncs.topic.location",
    "replication.policy.class",
    "replication.policy.separator",
)


@estate_rule("checkpoint-without-syncs", "error", source="KIP-1031", seen=f"{_SEEN}test_checkpoints_that_never_come")
def checkpoint_without_syncs(estate: Estate) -> Iterator[Hit]:
    """A checkpoint connector has no offset syncs to translate, or is disabled.

    Checkpoints are derived from the offset syncs that the source connector of the same pair writes. Without them,
    because of emit.offset-syncs.enabled=false or because there is no source connector, the checkpoint connector is
    RUNNING and never writes anything. Since 3.9 (KIP-1031) Connect refuses a checkpoint connector with
    emit.offset-syncs.enabled=false or emit.checkpoints.enabled=false (400). If you want no checkpoints, do not create
    the connector; emit.checkpoints.enabled=false does not sync group offsets alone. Seen on 4.3.1.
    """
    for pair in pairs(estate).values():
        for subject in pair.checkpoints:
            if subject.flag("enabled", default=True):
                yield from _without_syncs(subject, pair.sources, complete=estate.complete)


def _without_syncs(subject: Subject, sources: list[Hop], *, complete: bool) -> Iterator[Hit]:
    refusing = numbers(subject.version) >= (3, 9)
    own = next((key for key in (_CHECKPOINTS, _SYNCS) if not subject.flag(key, default=True)), "")
    if own and (own == _CHECKPOINTS or refusing):
        # In mm2.properties the driver makes this connector unasked, so whoever switches it off gets what they want.
        if subject.form != "dedicated" or subject.flag("sync.group.offsets.enabled", default=False):
            effect = "Connect refuses it with 400" if refusing else "it creates no task and syncs no group offsets"
            yield Hit(
                f"{written(subject, own)}=false on a checkpoint connector: {effect}",
                f"write {connector_key(subject, own, 'true')}, or do not create the connector",
                own,
                subject,
            )
    elif sources and not any(hop.subject.setting.offset_syncs for hop in sources):
        first = sources[0].subject
        message = (
            f"{first.name} has {_SYNCS}=false, so {subject.name} has no offset syncs and never writes a checkpoint"
        )
        yield Hit(
            message,
            f"write {connector_key(first, _SYNCS, 'true')} on the source connector, or delete the checkpoint connector",
            "",
            subject,
        )
    elif complete and not sources:
        message = f"no source connector mirrors {subject.pair}, so there are no offset syncs for {subject.name}"
        yield Hit(
            message,
            "create the source connector of the pair with the same aliases, or delete the checkpoint connector",
            "",
            subject,
        )


@rule("syncs-with-off", "error", types=("source",), source="KIP-1031", seen=f"{_SEEN}test_checkpoint_refused")
def syncs_with_off(subject: Subject) -> Iterator[Hit]:
    """Offset syncs are disabled and configured at the same time.

    Since 3.9 (KIP-1031) a source connector with emit.offset-syncs.enabled=false must not have any key that starts with
    offset-syncs- or offset-syncs.topic.: validation returns 400, "MirrorSourceConnector can't setup offset-syncs
    feature while …", and the connector is not created. In mm2.properties the source connector of the pair never starts.
    Remove the keys. Seen on 4.3.1.
    """
    if subject.setting.offset_syncs:
        return
    keys = [key for key in subject.config if key.startswith(("offset-syncs-", "offset-syncs.topic."))]
    if subject.type == "source" and keys:
        names = ", ".join(written(subject, key) for key in keys)
        message = f"{written(subject, _SYNCS)}=false together with {names}: Connect refuses the connector"
        yield Hit(message, f"remove {names}", keys[0])


@estate_rule("pair-disagrees", "error", source="KIP-716, KIP-690", seen=f"{_SEEN}test_checkpoints_that_never_come")
def pair_disagrees(estate: Estate) -> Iterator[Hit]:
    """The source and the checkpoint connector of a pair use different internal topics.

    The source connector writes offset syncs to the cluster of its offset-syncs.topic.location, into a topic whose name
    contains the separator. The checkpoint connector reads that topic by its own settings, and names mirrored topics by
    its own policy. If they differ it reads a topic that is missing or empty, or writes checkpoints for topics that do
    not exist: RUNNING, and no offset is translated. Use the same values in both. Source: KIP-716, KIP-690.
    """
    for pair in pairs(estate).values():
        for subject in pair.checkpoints:
            for key in (_LOCATION, _POLICY, _SEPARATOR):
                source = next((hop.subject for hop in pair.sources if _differ(hop.subject, subject, key)), None)
                if source:
                    theirs = _of_pair(source, key)
                    message = f"{key} is {_of_pair(subject, key) or 'empty'} here and {theirs or 'empty'} in {source.name}: offsets of the pair are not translated correctly"
                    yield Hit(
                        message, f"write {connector_key(subject, key, theirs)}, as in {source.name}", key, subject
                    )


def _differ(source: Subject, checkpoint: Subject, key: str) -> bool:
    if key == _LOCATION and not source.setting.offset_syncs:
        return False
    values = [_of_pair(subject, key) for subject in (source, checkpoint)]
    return len(set(values if key == _SEPARATOR else (value.rpartition(".")[2] for value in values))) > 1


def _of_pair(subject: Subject, key: str) -> str:
    if key == _SEPARATOR:
        return separator_of(subject)
    usual = "source" if key == _LOCATION else "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
    return subject.get(key) or usual


@estate_rule(
    "checkpoint-other-topics",
    "warning",
    source="MirrorCheckpointConnector",
    seen=f"{_SEEN}test_checkpoints_that_never_come",
)
def checkpoint_other_topics(estate: Estate) -> Iterator[Hit]:
    """The checkpoint connector names topics that no source connector of the pair mirrors.

    Its `topics` are names on the source, as for the source connector: a group's offsets are translated for topics that
    match in both connectors. Names of the target (A.orders), or of topics that are mirrored elsewhere, give no
    checkpoint, and the connector stays RUNNING, possibly without a task. Remove `topics` to take all, or use the same
    list as the source connector. Source: MirrorCheckpointConnector, DefaultTopicFilter.
    """
    for pair in pairs(estate).values():
        for subject in pair.checkpoints:
            names = (
                [patterns.plain_name(item) for item in patterns.items(subject, "topics")]
                if "topics" in subject.config
                else []
            )
            known = [hop.names for hop in pair.sources if hop.names]
            if not names or None in names or not known or len(known) < len(pair.sources):
                continue
            if not any(each.takes(name) for each in known for name in names if name):
                message = f"{written(subject, 'topics')} names {', '.join(str(name) for name in names[:3])}, which no source connector of {subject.pair} mirrors: no offset is translated"
                yield Hit(
                    message,
                    f"name topics of {subject.source}, as its source connector does: {connector_key(subject, 'topics', ','.join(known[0].include))}",
                    "topics",
                    subject,
                )


@estate_rule("checkpoints-twice", "error", source="KIP-382")
def checkpoints_twice(estate: Estate) -> Iterator[Hit]:
    """Two checkpoint connectors of one pair translate the offsets of one group.

    Both write to one topic, A.checkpoints.internal on the target, each from what it has read itself: clients use the
    last record, which may be the older one, and with sync.group.offsets.enabled=true both set the group's offsets.
    There is no error. Delete one of them, or give each different groups. Source: KIP-382.
    """
    for pair in pairs(estate).values():
        running = [subject for subject in pair.checkpoints if _runs(subject)]
        driven = [subject for subject in running if subject.form == "dedicated"]
        running = [
            subject for subject in running if subject not in driven[1:]
        ]  # nodes with a file each are one MirrorMaker
        for later, subject in enumerate(running):
            first = next((each for each in running[:later] if _group_of_both(each, subject)), None)
            if first:
                topic = separator_of(subject).join((subject.source, "checkpoints", "internal"))
                message = f"{first.name} and {subject.name} both write checkpoints of groups such as '{_group_of_both(first, subject)}' into {topic}: the last record may be the older one"
                fix = f"delete one of them, or give each different groups: {connector_key(subject, 'groups', '…')}"
                yield Hit(message, fix, "groups", subject, others=(first,))


def _runs(subject: Subject) -> bool:
    return subject.state not in ("STOPPED", "PAUSED") and subject.flag("enabled", default=True)


def _group_of_both(first: Subject, later: Subject) -> str | None:
    """Return a group that two connectors translate for one topic into one checkpoints topic."""
    if (first.source, separator_of(first)) != (later.source, separator_of(later)):
        return None
    if _both_take(first, later, "topics") is None:
        return None
    return _both_take(first, later, "groups")


def _both_take(first: Subject, later: Subject, what: str) -> str | None:
    filters = patterns.names(first, what), patterns.names(later, what)
    # A policy that knows no aliases: nothing but the two filters decides.
    return meeting([Selection(names, None, "", "") for names in filters if names]).topic if all(filters) else None
