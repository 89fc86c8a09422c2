"""Rules about the topics and groups of a connector: patterns that fail, match too little, too much, or conflict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from mm2mgr.connectors import ConnectorType
from mm2mgr.formats.templates import is_open
from mm2mgr.lint.findings import Edit, Hit, connector_hit, edit_hit, file_key, keys_ending, rule, spell
from mm2mgr.lint.hops import default_of, filter_of, items_of, plain_name, point, reads_lists, same, selection_of
from mm2mgr.lint.rules.patterns import LISTS, OF_LISTS
from mm2mgr.lint.subject import Subject, addresses
from mm2mgr.lint.target_names import naming_of, policy_of, separator_of
from mm2mgr.text import few
from mm2mgr.topics.automaton import LONGEST_NAME
from mm2mgr.topics.java_regex import why_refused
from mm2mgr.topics.names import Items, NameFilter, meant_items, samples, shape_of
from mm2mgr.topics.shared import meeting

_LIVE = "tests/lint/test_seen_live_topics.py::"
_BOTH: tuple[ConnectorType, ...] = ("source", "checkpoint")
_SEPARATOR = "replication.policy.separator"
_STORAGE = ("config.storage.topic", "offset.storage.topic", "status.storage.topic")
# Names that Kafka's default lists keep out, and what comes of taking them.
_PROBES = {
    "topics.exclude": {"x.replica": "topics that end in .replica are mirrored"},
    "groups.exclude": {
        "console-consumer-1": "console consumers' groups are checkpointed",
        "connect-x": "groups of Connect's sinks are checkpointed",
        "__x": "groups that start with __ are checkpointed",
    },
    "config.properties.exclude": {
        name: f"{name} is copied"
        for name in (
            *("min.insync.replicas", "unclean.leader.election.enable", "message.timestamp.type"),
            *("message.timestamp.difference.max.ms", "leader.replication.throttled.replicas"),
            "follower.replication.throttled.replicas",
        )
    },
}
_QUOTED = re.compile(r"^[\"']|[\"']$")
_DOUBLED = " (with the backslash doubled in JSON and properties files)"


_NAME = re.compile(r"(?:[A-Za-z0-9_.-]|\\\.)+")


@rule("bad-pattern", "error", "java.util.regex.Pattern", stops=True, types=_BOTH, live=_LIVE, reads=OF_LISTS)
def bad_pattern(subject: Subject) -> Iterator[Hit]:
    """Java refuses a regular expression in a list.

    Kafka splits these lists at commas and joins the items with | to one Java expression, so `x{1,2}` breaks, and `*` or
    `[` alone is not valid. Connect's validation does not check it: the config is accepted with 201, and the connector
    is FAILED with PatternSyntaxException when it starts. A connector that was running before shows FAILED while its
    tasks continue with the old config. Seen on 4.3.1.
    """
    for key in LISTS[subject.type]:
        written_items = items_of(subject, key) if key in subject.config else ()
        items = [item for item in written_items if not _NAME.fullmatch(item)]  # there may be thousands of names
        if items and (reason := why_refused("|".join(items))):
            bad = next((item for item in items if why_refused(item)), items[0])
            cut = " (a list is split at commas)" if "{" in bad or "}" in bad else ""
            fix = "put a backslash before each literal character, or complete the expression"
            if "{" in bad:
                fix = "write a{1,2} as a|aa, and a literal { as \\{"
            effect = f"{why_refused(bad) or reason}: the connector fails when it starts"
            message = f"{file_key(subject, key)}: '{bad}' is not a Java regular expression{cut}, {effect}"
            if bad.startswith("*") and not why_refused(f".{bad}"):
                yield connector_hit(
                    subject,
                    key,
                    _corrected_list(subject, key, bad, f".{bad}"),
                    message,
                    ": a regular expression, not a shell pattern",
                )
            else:
                yield Hit(message, fix, key)


def _corrected_list(subject: Subject, key: str, item: str, right: str) -> str:
    return ",".join(right if other == item else other for other in items_of(subject, key))


@rule("glob-not-regex", "warning", "DefaultTopicFilter", types=_BOTH, live=_LIVE, reads=OF_LISTS)
def glob_not_regex(subject: Subject) -> Iterator[Hit]:
    r"""A pattern uses shell syntax and means something else as a regular expression.

    In a Java expression * repeats the character before it: `orders*` matches order, orders, orderss, and not orders-eu.
    The whole name must match. The intended topics are not mirrored, without an error. For "starts with orders" write
    `orders.*`, for a literal dot `\.`. Source: DefaultTopicFilter.
    """
    for key in LISTS[subject.type]:
        for item in items_of(subject, key) if key in subject.config else ():
            shape = shape_of(item)
            if shape and shape.globs:
                char = shape.globs[0]
                message = f"{file_key(subject, key)}: in '{item}' the * only repeats the '{char}' before it"
                right = item.replace(f"{char}*", f"{char}.*")
                yield connector_hit(subject, key, _corrected_list(subject, key, item, right), message)


@rule("pattern-dot", "warning", "DefaultTopicFilter", types=_BOTH, live=_LIVE)
def pattern_dot(subject: Subject) -> Iterator[Hit]:
    r"""A dot in a name matches any character, so other topics match as well.

    Items are Java expressions: `payments.orders` also takes payments-orders and payments_orders. These topics are
    mirrored too, and if another connector mirrors them as well, their records arrive twice. Write `payments\.orders`
    (in JSON and in properties files with a doubled backslash). Seen on 4.3.1. Where the source's topics are known, only
    existing ones count; where they are not, it is a hint.
    """
    key = "topics" if subject.type == "source" else "groups"
    names = [item for item in items_of(subject, key) if "." in item and item == plain_name(item)]
    others = _others(subject, names)
    if names and others != []:
        which = ", ".join((others or [re.sub(r"\.", "-", names[0], count=1)])[:3])
        message = f"{file_key(subject, key)}: the dot in '{names[0]}' matches any character, so {which} is taken too"
        right = [item.replace(".", "\\.") if item in names else item for item in items_of(subject, key)]
        hit = connector_hit(subject, key, ",".join(right), message, "" if subject.form == "tree" else _DOUBLED)
        yield hit if others else hit.with_severity("info")


def _others(subject: Subject, names: list[str]) -> list[str] | None:
    """Return the source's topics that match by a dot only; None when its topics are not known."""
    topics = subject.source_kafka.partitions
    if topics is None or subject.type != "source":
        return None
    return sorted(topic for topic in topics if topic not in names and any(re.fullmatch(name, topic) for name in names))


NAME_TOO_LONG = "name-too-long"


@rule(NAME_TOO_LONG, "error", "org.apache.kafka.common.internals.Topic", types=("source",))
def name_too_long(subject: Subject) -> Iterator[Hit]:
    """A topic's name on the target would be longer than Kafka allows.

    A topic has at most 249 characters. The alias and the separator that DefaultReplicationPolicy puts before a name, or
    a router, can make it longer. The topic cannot be created (InvalidTopicException), and the task that gets its
    partitions fails, with all other topics of that task. Exclude the topic, keep names with IdentityReplicationPolicy,
    or choose a shorter alias. Topics that the lists name are judged; where the source's topics are known, those that it
    takes.
    """
    if names := named_too_long(subject, subject.source_kafka.partitions or ()):
        message, fix = too_long_text(subject, names)
        yield Hit(message, fix, "topics")


def named_too_long(subject: Subject, topics: Iterable[str]) -> list[str]:
    """Return the topics that a source connector takes and that get too long a name, of those it names and of these."""
    selection, naming = selection_of(subject), naming_of(subject)
    literals = (name for item in items_of(subject, "topics") if (name := plain_name(item)))
    if selection is None:
        return []
    names = ((topic, naming(topic)) for topic in {*literals, *topics})
    long = (topic for topic, name in names if not name.unknown and len(name.text) > LONGEST_NAME)
    return sorted(filter(selection.takes, long))


def too_long_text(subject: Subject, names: Sequence[str]) -> tuple[str, str]:
    """Say which topics get too long a name, and what to do."""
    first, more = names[0], f" and of {len(names) - 1} more" if len(names) > 1 else ""
    length = len(naming_of(subject)(first).text)
    message = (
        f"the name on '{subject.target}' of topic '{first}', which has {len(first)} characters,{more} would have "
        f"{length}: Kafka allows {LONGEST_NAME}, so the task that gets it fails, with all other topics of that task"
    )
    if subject.form == "tree":
        rest = "write replication_policy: identity, or give the source a shorter alias"
        return message, f"write topics: {{exclude: [{', '.join(names)}]}}; or {rest}"
    return message, "add it to topics.exclude; or use IdentityReplicationPolicy, or a shorter source.cluster.alias"


@rule("empty-topics", "error", "MirrorUtils", types=_BOTH, live=_LIVE, reads=OF_LISTS)
def empty_topics(subject: Subject) -> Iterator[Hit]:
    """An empty list matches nothing.

    An empty `topics` or `groups` is not the same as none: the default `.*` does not apply, and the empty expression
    matches no name. The connector shows RUNNING without a task, as if its source were unavailable. Seen on 4.3.1. List
    the topics, or remove the line to take all of them.
    """
    for key in ("topics", "groups"):
        if key in LISTS[subject.type] and key in subject.config and not subject.get(key).strip(", "):
            effect = "the connector shows RUNNING and does nothing"
            message = f"{file_key(subject, key)} is empty and matches no {key[:-1]}: {effect}"
            names = f"write the names, or {spell(subject, key, '.*')} to take all of the source"
            yield Hit(message, names, key)  # no edit: whoever wrote nothing did not ask for all


@rule("include-excluded", "error", "KIP-1074", types=_BOTH, live=_LIVE)
def include_excluded(subject: Subject) -> Iterator[Hit]:
    """A topic or group is included by name, and something else excludes it.

    The exclude list wins over the include list, and its default applies if it is not set: `.*\\.replica`, `__.*`, names
    that end in internal (since 4.0 only those that start with mm2), and for groups console-consumer-.*, connect-.*,
    __.*. In addition, a replication policy never takes internal topics: names that start with __ or a dot; up to 3.9
    all that end in .internal or -internal, since 4.0 (KIP-1074) only mm2…internal and checkpoints. With
    DefaultReplicationPolicy a topic whose name has the target's alias before a separator, such as B.orders towards B,
    counts as one that came from there. There is no error: the topic is missing on the target.
    """
    kind = "topics" if subject.type == "source" else "groups"
    names = filter_of(subject, kind) if kind in subject.config else None
    for item in names.include if names else ():
        name = plain_name(item)
        if name and names and (reason := _kept_out(subject, kind, name, names)):
            message = f"{file_key(subject, kind)} includes '{name}', but {reason}: it is never taken"
            yield _let_in(subject, kind, item, names, message)
        elif kind == "topics" and subject.target in item and _is_cycle(subject, item):
            mark = f"{subject.target}{separator_of(subject)}"
            reason = f"a name with '{mark}' in front counts as mirrored from {subject.target}"
            message = f"{file_key(subject, kind)} includes '{item}', but {reason}: nothing of it is taken"
            yield _left_out(subject, kind, item, message, ", or give the target another alias in all its flows")


def _is_cycle(subject: Subject, item: str) -> bool:
    """Tell whether the policy takes all topics of an item for mirrored from the target (see `Selection.is_cycle`)."""
    selection, name = selection_of(subject), plain_name(item)
    if selection is None or name:
        return bool(selection and name and selection.is_cycle(name))
    if not all(map(selection.is_cycle, samples(item))):
        return False
    taken = meeting([replace(selection, names=NameFilter((item,), ()))])
    return not taken.is_possible


def _kept_out(subject: Subject, kind: str, name: str, names: NameFilter) -> str:
    if by := _excluding(names.exclude, name):
        key = f"{kind}.exclude"
        whose = file_key(subject, key) if key in subject.config else f"Kafka's default {key}"
        return f"'{by}' of {whose} excludes it"
    selection = selection_of(subject) if kind == "topics" else None
    if selection and selection.policy and selection.is_internal(name):
        return f"the replication policy of Kafka {subject.version} treats it as internal"
    return ""


@lru_cache(maxsize=8192)
def _excluding(exclude: Items, name: str) -> str:
    return next((item for item in exclude if NameFilter((item,), ()).takes(name)), "")


def _left_out(subject: Subject, kind: str, item: str, message: str, more: str) -> Hit:
    """Return a hit whose fix removes an item of a list; a person decides about a list of nothing else."""
    others = [other for other in items_of(subject, kind) if other != item]
    return Hit(message, f"remove '{item}'{more}", kind, edits=(Edit(kind, ",".join(others)),) if others else ())


def _let_in(subject: Subject, kind: str, item: str, names: NameFilter, message: str) -> Hit:
    name, selection = plain_name(item) or item, selection_of(subject) if kind == "topics" else None
    staying = [item for item in names.exclude if not NameFilter((item,), ()).takes(name)]
    ours = subject.form == "tree" and set(names.exclude) - set(staying) & set(default_of(subject, f"{kind}.exclude"))
    internal = selection and (selection.is_internal(name) or selection.is_cycle(name))
    if len(staying) == len(names.exclude) or ours or internal:  # a tree always excludes what Kafka does
        return _left_out(subject, kind, item, message, ", or rename the topic")
    edit = Edit(f"{kind}.exclude", ",".join(staying))
    hit = edit_hit(subject, message, [edit], kind, f", or remove '{name}' from {kind}")
    only_this = all(plain_name(pattern) for pattern in names.exclude if pattern not in staying)
    return hit if only_this else replace(hit, edits=())  # without an expression more would be taken than was asked for


@rule("exclude-replaced", "warning", "KIP-382", types=_BOTH, needs=(".exclude",), live=_LIVE, reads=OF_LISTS)
def exclude_replaced(subject: Subject) -> Iterator[Hit]:
    """A custom exclude list replaces Kafka's default list instead of extending it.

    topics.exclude, groups.exclude and config.properties.exclude are whole lists. A custom list that excludes one more
    item no longer excludes the items of Kafka's list: min.insync.replicas, throttles and the timestamp type of the
    source are written to the target's topics, groups of console consumers are checkpointed, *.replica topics are
    mirrored. There is no error. Repeat the default entries in the list. Topics that start with __ stay excluded in any
    case. It is a warning for settings, a hint for topics and groups.
    """
    for key, probes in _PROBES.items():
        kind = key.removesuffix(".exclude")
        if key not in subject.config or key not in LISTS[subject.type] or not reads_lists(subject, kind):
            continue
        items = items_of(subject, key)
        missing = [item for item in default_of(subject, key) if item not in items]
        names = filter_of(subject, kind) if missing else None
        let_in = [probes[name] for name in _taken_now(key, names)] if names else ()
        if let_in:
            message = f"{file_key(subject, key)} replaces Kafka's default list: {few(let_in, 2)}"
            right = [*(meant_items(subject.get(key)) if _QUOTED.search(subject.get(key)) else items), *missing]
            hit = connector_hit(subject, key, ",".join(right), message)
            yield hit if key == "config.properties.exclude" else hit.with_severity("info")


@lru_cache(maxsize=4096)
def _taken_now(key: str, names: NameFilter) -> tuple[str, ...]:
    """Return the names that the lists let in and Kafka's default keeps out; settings have no include list."""
    if key == "config.properties.exclude":
        return tuple(name for name in _PROBES[key] if not NameFilter(names.exclude, ()).takes(name))
    return tuple(name for name in _PROBES[key] if names.takes(name))


@rule("catches-internal", "warning", "KIP-1074", types=("source",), live=f"{_LIVE}test_catches_connect_topics")
def catches_internal(subject: Subject) -> Iterator[Hit]:
    """The pattern also matches the internal topics of the Connect cluster.

    When the source is the Kafka of the workers themselves, `.*` matches the topics of config.storage.topic,
    offset.storage.topic and status.storage.topic unless the exclude list matches their names. Connector configs,
    including secrets, are then copied to the target, and each stored offset creates another record to mirror. Seen on
    4.3.1. Add these topics to topics.exclude.
    """
    properties = subject.worker.properties or {}
    asked = properties and _reads_workers_kafka(subject)
    selection = selection_of(subject) if asked else None
    names = [name for key in _STORAGE if (name := properties.get(key, "").strip())]
    caught = [name for name in names if selection and selection.names.takes(name) and not selection.is_internal(name)]
    if caught and selection:
        topic_filter = selection.names
        effect = "where these Connect workers store configs, offsets and states"
        message = f"'{','.join(topic_filter.include)}' takes {', '.join(caught)}, {effect}"
        excluded = ",".join([*topic_filter.exclude, *(re.escape(name).replace("\\-", "-") for name in caught)])
        yield edit_hit(subject, message, [Edit("topics.exclude", excluded)], "topics")


def _reads_workers_kafka(subject: Subject) -> bool:
    ids = (subject.worker.cluster_id, subject.source_kafka.cluster_id)
    if all(ids):
        return ids[0] == ids[1]
    source, target = point(subject, "source"), point(subject, "target")
    workers = addresses(subject.worker_property("bootstrap.servers") or "")
    return bool(source.addresses & workers) and not same(source, target)


@rule(
    "refresh-off",
    "warning",
    "MirrorSourceConnector",
    types=_BOTH,
    live=_LIVE,
    reads=keys_ending("refresh.topics.enabled", "refresh.groups.enabled"),
)
def refresh_off(subject: Subject) -> Iterator[Hit]:
    """New topics, partitions or groups are not detected.

    With refresh.topics.enabled=false topics and partitions that are created after the connector started are not
    mirrored until it is restarted; records in new partitions of a mirrored topic are missing on the target. The same
    holds for consumer groups with refresh.groups.enabled=false. There is no error. To refresh less often raise the
    interval instead. Source: MirrorSourceConnector.start, MirrorCheckpointConnector.start.
    """
    key, kind = "refresh.topics.enabled", "topics and partitions"
    if subject.type == "checkpoint":
        key, kind = "refresh.groups.enabled", "consumer groups"
    if not subject.flag(key, default=True):
        message = f"{file_key(subject, key)}=false: new {kind} are not taken until the connector is restarted"
        yield connector_hit(subject, key, "true", message)


_INVALID = re.compile(r"[^A-Za-z0-9._-]+")


@rule("name-not-for-topics", "error", "Kafka's Topic.validate, DefaultReplicationPolicy", types=_BOTH)
def name_not_for_topics(subject: Subject) -> Iterator[Hit]:
    """An alias or separator makes topic names that Kafka refuses.

    Names of topics consist of letters, digits, dots, underscores and hyphens. An alias or a separator with another
    character makes names that the target refuses: mirrored topics, offset syncs and checkpoints cannot be created, and
    the tasks fail at the first record. What a policy class of one's own does with them is not known.
    """
    for key in ("source.cluster.alias", "target.cluster.alias", _SEPARATOR) if policy_of(subject) else ():
        raw = subject.config.get(key, "")
        signs = _INVALID.findall(raw.rstrip() or raw)  # blank-in-value reports blanks at the end
        if signs and not is_open(raw):
            names = (
                "mirrored topics and the one of offset syncs"
                if subject.type == "source"
                else "the topic of checkpoints"
            )
            effect = f"{names} cannot be created"
            message = f"{file_key(subject, key)} contains '{signs[0]}', which no topic name may have: {effect}"
            yield connector_hit(subject, key, "." if key == _SEPARATOR else _INVALID.sub("-", raw.strip()), message)
