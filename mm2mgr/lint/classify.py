"""Classifies config keys, so that one rule of `rules.keys` reports each, and finds a key that works instead. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache, lru_cache

from mm2mgr.connectors import ConnectorType
from mm2mgr.formats.templates import is_open
from mm2mgr.lint.findings import Edit, Hit, config_key, edit_hit, file_key, removal_hit, show, spell
from mm2mgr.lint.subject import Subject, SubjectKind, addresses
from mm2mgr.spec.scalars import SECURITY_KEYS
from mm2mgr.topics.names import matches_no_topic, meant_items
from mm2mgr.truth.explain import GENERAL, KINDS, nearest, split
from mm2mgr.truth.keys import Keys, fault, load, server_setting
from mm2mgr.truth.other_tools import other_tool
from mm2mgr.truth.reach import CLIENTS, CLUSTER_KEYS, Reached, Setting, clients, seen_by

_ALL_CLUSTER_KEYS = CLUSTER_KEYS | SECURITY_KEYS
# Plugins read these by names of their own; where Kafka defines one of them, that is looked at before.
_OF_PLUGINS = (
    *("mm2mgr.", "transforms.", "predicates.", "topic.creation.", "config.providers."),
    *("key.converter.", "value.converter.", "header.converter."),
)
# What a line of a cluster may begin with in mm2.properties: plugins of workers read these, plugins of connectors those.
_OF_WORKERS = (
    *("config.providers.", "key.converter.", "value.converter.", "header.converter.", "metrics.context.", "mm2mgr."),
)
_OF_CONNECTORS = ("replication.policy.", "transforms.", "predicates.", "topic.creation.")
OF_DEDICATED = ("clusters", "dedicated.mode.enable.internal.rest", "mm.enable.internal.rest")
# What people write to shape the mirrored records.
RECORD_KEYS = frozenset(
    [
        *("acks", "batch.size", "buffer.memory", "compression.type", "delivery.timeout.ms", "enable.idempotence"),
        *("compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "linger.ms", "max.block.ms"),
        *("max.in.flight.requests.per.connection", "max.request.size", "request.timeout.ms", "retries"),
        *("partitioner.class", "partitioner.ignore.keys", "partitioner.adaptive.partitioning.enable"),
        *("send.buffer.bytes", "receive.buffer.bytes", "transactional.id", "transaction.timeout.ms"),
    ]
)
# MirrorMaker hands its clients ready-made (de)serializers, and its consumers are assigned partitions, so they have no
# group.
_INSTANCES = frozenset({"key.serializer", "value.serializer", "key.deserializer", "value.deserializer"})
_GROUPLESS = frozenset({"group.id"})


@dataclass(frozen=True)
class Context:
    """What decides about a key besides its name. `types` are the connectors that get it, in mm2.properties all."""

    types: tuple[ConnectorType, ...]
    setting: Setting
    version_known: bool


@lru_cache(maxsize=4096)
def context_of(kind: SubjectKind) -> Context:
    """Return what decides about the keys of a kind of connectors."""
    types = tuple(CLIENTS) if kind.form == "dedicated" else (kind.type,)
    return Context(types, kind.setting, kind.knows_version)


def keys_under(subject: Subject, rule: str) -> tuple[str, ...]:
    """Return the keys of a connector that a rule reports."""
    return _rules_of(subject).get(rule, ())


def no_key_reported(kind: SubjectKind) -> tuple[str, ...] | None:
    """Return (), for `Rule.reads`, where no rule reports a key of this kind whatever its values; else None."""
    return None if _by_rule(context_of(kind), kind.keys, "", "") else ()


@lru_cache(maxsize=64)  # one rule after the other asks about the same connector
def _rules_of(subject: Subject) -> Mapping[str, tuple[str, ...]]:
    kind, context = subject.kind, context_of(subject.kind)
    if subject.form == "dedicated":
        keys_of: dict[str, tuple[str, ...]] = {}
        for key in subject.scopes:
            if rule := what_is(subject, key):
                keys_of[rule] = (*keys_of.get(rule, ()), key)
        return keys_of
    every = _by_rule(context, kind.keys, "", "")  # most connectors of a kind need no look at their aliases
    return _by_rule(context, kind.keys, *ends(subject)) if "unknown-key" in every else every


_PAIR = re.compile(r"([^\s.>]+)->([^\s.>]+)\.")
_ALIASES = ("source.cluster.alias", "target.cluster.alias")


def ends(subject: Subject) -> tuple[str, str]:
    """Return the aliases of a connector; one that it lacks is of the pair that keys of mm2.properties in it name."""
    if all(key in subject.config for key in _ALIASES) or subject.form != "connect":
        return subject.source, subject.target
    pairs = {match.groups() for key in subject.config if (match := _PAIR.match(key))}
    of_pair = pairs.pop() if len(pairs) == 1 else ("", subject.target)
    source, target = (subject.get(key, alias) for key, alias in zip(_ALIASES, of_pair, strict=True))
    return source, target


def what_is(subject: Subject, key: str) -> str:
    """Return the id of the rule that reports a key, "" for none."""
    context = context_of(subject.kind)
    if subject.form != "dedicated":
        return _of_alias(rule_for(context, key), key, *ends(subject))
    if (plain := of_cluster(subject, key)) is not None:
        return _of_cluster(context, plain)
    if subject.scopes.get(key) == (subject.source, subject.target):
        return rule_for(context, key)
    # A line of the top level that the driver passes on as it is; it is the default of every cluster, if it is for one.
    passed = subject.scopes.get(key) == () and subject.spots[key].key == key
    return (
        rule_for(context, key)
        if passed and key not in _ALL_CLUSTER_KEYS and not key.startswith("config.provid")
        else ""
    )


def of_cluster(subject: Subject, key: str) -> str | None:
    """Return the name below a cluster of mm2.properties that became this key; None for others and copies."""
    alias, written = subject.scopes.get(key), subject.spots[key].key if key in subject.spots else ""
    if subject.form != "dedicated" or alias not in ((subject.source,), (subject.target,)):
        return None
    plain, side = written[len(alias[0]) + 1 :], "source" if alias == (subject.source,) else "target"
    return plain if key in (f"{side}.{plain}", f"{side}.cluster.{plain}") else None


@cache
def _of_cluster(context: Context, plain: str) -> str:
    """Classify a cluster's line: the driver gives it to clients of both sides, and to workers that write there."""
    keys = load()
    kind, _, name = plain.partition(".")
    if keys.history("worker", plain):
        return _rule_by_line(context, "worker", plain, keys)
    if plain.startswith(_OF_WORKERS) or not rule_for(context, f"source.cluster.{plain}"):
        return ""
    if _is_connectors(plain) or plain.startswith(_OF_CONNECTORS):
        return "dead-key"
    if kind in KINDS:
        return _of_clusters_client(context, kind, name, keys)
    if any(keys.history(kind, plain) for kind in KINDS):
        return "misdirected-key"
    rule = rule_for(context, plain.removeprefix("cluster."))
    return rule if rule in ("unknown-key", "server-key") else "dead-key"


def _of_clusters_client(context: Context, kind: str, name: str, keys: Keys) -> str:
    if name.startswith("override."):
        return "dead-key" if keys.history(kind, name.removeprefix("override.")) else "unknown-key"
    prefixes = [f"source.{kind}.", f"target.{kind}.", *(["producer.override."] if kind == "producer" else [])]
    return min(rule_for(context, prefix + name) for prefix in prefixes)  # "" where one of them is of use


@cache
def _by_rule(context: Context, keys: tuple[str, ...], source: str, target: str) -> Mapping[str, tuple[str, ...]]:
    keys_of: dict[str, tuple[str, ...]] = {}
    for key in keys:
        if rule := _of_alias(rule_for(context, key), key, source, target):
            keys_of[rule] = (*keys_of.get(rule, ()), key)
    return keys_of


def _of_alias(rule: str, key: str, source: str, target: str) -> str:
    """Report `A.bootstrap.servers`, where A is an alias, as dead: a line of mm2.properties that no connector reads."""
    if rule != "unknown-key" or not key.startswith(tuple(f"{alias}." for alias in (source, target) if alias)):
        return rule
    plain = key.partition(".")[2]
    plain = plain.partition(".")[2] if plain.startswith(GENERAL) else plain
    return "dead-key" if plain in _known_to_clients() else rule


@cache
def _known_to_clients() -> frozenset[str]:
    return frozenset(name for kind in KINDS for name in load().names(kind))


@cache
def rule_for(context: Context, key: str) -> str:
    """Return the id of the rule that a key falls under, "" for none; see `what_is` for keys of mm2.properties."""
    keys = load()
    if key in _ALL_CLUSTER_KEYS:
        return "bare-security"
    for type_ in context.types:
        if keys.history(type_, key):
            return _rule_by_line(context, type_, key, keys)
    return _not_its_own(context, key, keys)


def _not_its_own(context: Context, key: str, keys: Keys) -> str:
    of_clients = key not in _GROUPLESS and any(keys.history(kind, key) for kind in KINDS)
    if keys.history("worker", key) and not of_clients:
        return "worker-key"
    if key.startswith(_OF_PLUGINS):
        return ""
    if "->" in key or key in OF_DEDICATED:
        return "dead-key"
    if _is_connectors(key) or other_tool(key):
        return "other-connectors-key" if _is_connectors(key) else "other-tools-key"
    prefix, plain = split(key, keys)
    if of_clients or any(keys.history(kind, plain) for kind in KINDS):
        return _client_key(context, prefix, plain, keys)
    behind_prefix = prefix and _is_connectors(plain)
    return "dead-key" if behind_prefix else "server-key" if server_setting(plain) else "unknown-key"


def _rule_by_line(context: Context, scope: str, name: str, keys: Keys) -> str:
    exists_in = keys.history(scope, name)[0].exists_in
    line = keys.line(context.setting.version)
    if line in exists_in:
        return "key-deprecated" if name.endswith(".blacklist") and context.version_known else ""
    if keys.lines.index(line) > keys.lines.index(exists_in[-1]):
        return "key-removed"
    return "key-too-new" if context.version_known else ""


def _client_key(context: Context, prefix: str, plain: str, keys: Keys) -> str:
    every = (client for type_ in context.types for client in clients(type_, context.setting))
    hits = (hit for client in every for hit in seen_by(client, prefix + plain))
    useful = [hit for hit in hits if keys.history(hit.client.kind, plain)]
    if useful and prefix in GENERAL and plain in _ALL_CLUSTER_KEYS:
        return "unscoped-address"
    if useful and all(_is_forced(hit) for hit in useful):
        return "forced-key"
    if useful:
        if prefix == "producer." and plain in RECORD_KEYS:
            return "misdirected-key"
        dated = [_rule_by_line(context, hit.client.kind, plain, keys) for hit in useful]
        return min(dated)  # "" where one of them knows it
    if prefix in ("consumer.override.", "admin.override.") and keys.history(prefix.partition(".")[0], plain):
        return "dead-override"
    # A heartbeat connector has no client on the source, yet people give all three connectors both addresses: no harm.
    harmless = prefix == "source.cluster." and plain in CLUSTER_KEYS and context.types == ("heartbeat",)
    return "" if harmless else "dead-key"


def _is_forced(hit: Reached) -> bool:
    own = not hit.client.worker_prefixes
    if hit.key in _GROUPLESS:
        return own and hit.client.kind == "consumer"
    return hit.key in hit.client.forced or (own and hit.key in _INSTANCES)


SCOPES = (*CLIENTS, *KINDS, "worker")
# The clients people mean when they say producer, consumer or admin without saying more, most likely ones first.
_MEANT = ("source consumer", "record producer", "checkpoints consumer", "target admin", "source admin")


def instead(subject: Subject, key: str, message: str) -> Hit:
    """Return a hit about a key that no client reads; its fix moves the value to a key that one does, or removes it.

    It is an info where the clients that could be meant have this value anyway, a warning where they have another one by
    their own keys or the key only names and measures a client.
    """
    prefix, plain = parts(subject, key)
    ways = dict.fromkeys(_ways(subject, prefix, plain, subject.get(key)))
    hit = _instead(subject, key, message, list(ways))
    if ways and all(_has(subject, way, plain, subject.get(key)) for way in ways):
        return hit.with_severity("info")
    decided = bool(ways) and all(way in subject.config and way != key for way in ways)
    return hit.with_severity("warning") if decided or plain.startswith(_NAMES_AND_MEASURES) else hit


_NAMES_AND_MEASURES = ("client.id", "metric", "auto.include.jmx.reporter", "enable.metrics.push")


def _has(subject: Subject, way: str, plain: str, value: str) -> bool:
    """Tell whether the client of a key has a value already, by this key, its workers or Kafka's default."""
    if way in subject.config:
        return subject.get(way) == value
    having = [client.name for client in subject.clients if any(hit.key == plain for hit in seen_by(client, way))]
    return bool(having) and all(same_value(subject.value(name, plain), value) for name in having)


def same_value(value: str | None, other: str) -> bool:
    """Tell whether two values mean the same to Kafka."""
    first, second = (text.strip().lower().replace("all", "-1") for text in (value or "", other))
    return first == second


def _instead(subject: Subject, key: str, message: str, meant: list[str]) -> Hit:
    value, place, plain = subject.get(key), file_key(subject, key), parts(subject, key)[1]
    ways = [way for way in meant if way not in subject.config or way == key]
    if not meant:
        return removal_hit(subject, key, message, f": a {subject.type} connector has no client that could use it")
    if not ways:
        there = next(iter(meant))
        more = f", or write {spell(subject, there, show(subject, key))} if that is meant"
        if subject.get(there) == value:
            more = f": {spell(subject, there, show(subject, there))} is there"
        return removal_hit(subject, key, message, more)
    others = "".join(f" or {spell(subject, way, show(subject, key))}" for way in ways[1:])
    if others and plain in _ALL_CLUSTER_KEYS:  # a login must not go to the wrong cluster
        return Hit(message, f"write {spell(subject, ways[0], show(subject, key))}{others} instead of {place}", key)
    return move_hit(subject, key, ways[0], message, others and f",{others}")


_LISTS = ("topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude")


def move_hit(subject: Subject, key: str, right: str, message: str, more: str = "") -> Hit:
    """Return a hit whose fix moves a value to another key; where that one refuses it, people write what was meant."""
    value = value_for(subject, right, subject.get(key))
    if value is not None:
        return edit_hit(subject, message, [Edit(right, value), Edit(key, None)], key, more)
    fix = f"write {spell(subject, right)} instead of {file_key(subject, key)}, with a value that it takes{more}"
    return Hit(message, fix, key, subject)


def value_for(subject: Subject, key: str, value: str) -> str | None:
    """Return a value as another key takes it, a list without quotes around its names; None where it cannot."""
    is_list = key in _LISTS and not is_open(value)
    if is_list and any(matches_no_topic(item.strip()) for item in value.split(",") if item.strip()):
        items = meant_items(value)
        return None if not items or any(map(matches_no_topic, items)) else ",".join(items)
    return value if takes(subject, key, value) else None


def parts(subject: Subject, key: str) -> tuple[str, str]:
    """Return prefix and plain key of any spelling, those of mm2.properties included."""
    keys = load()
    if (line := of_cluster(subject, key)) is not None:
        side = key.partition(".")[0]
        if _is_connectors(line):
            return f"{side}.cluster.", line
        prefix, plain = split(line.removeprefix("cluster."), keys)
        kind = prefix.removesuffix("override.")
        return f"{side}.{kind}" if kind in GENERAL else prefix or f"{side}.cluster.", plain
    source, target = ends(subject)
    sides = {f"{target}.": "target.cluster.", f"{source}.": "source.cluster."}
    rest = key.rpartition("->")[2].partition(".")[2] if "->" in key else key
    for alias in ("", f"{source}.", f"{target}."):
        if alias != "." and rest.startswith(alias):
            prefix, plain = split(rest.removeprefix(alias), keys)
            if _is_known(plain):
                return prefix or sides.get(alias, ""), plain
    return split(key, keys)


@cache
def _is_connectors(key: str) -> bool:
    return any(load().history(type_, key) for type_ in CLIENTS)


@cache
def _is_known(plain: str) -> bool:
    return any(load().history(scope, plain) for scope in SCOPES)


def _ways(subject: Subject, prefix: str, plain: str, value: str) -> Iterator[str]:
    """Yield the keys that could have been meant, likelier ones first."""
    keys = load()
    if plain in _ALL_CLUSTER_KEYS:
        yield from _cluster_ways(subject, prefix, plain, value)
        return
    if keys.history(subject.type, plain) or (subject.form == "dedicated" and _is_connectors(plain)):
        yield plain
    syncs = subject.client("offset-syncs producer")
    if prefix == "source.producer." and syncs and subject.form != "dedicated":
        # Who writes this prefix means the offset syncs, which are on the other side then.
        yield f"{syncs.layers[-1].prefix}{plain}"
    asked = [kind for kind in KINDS if kind in prefix.split(".") and keys.history(kind, plain)] or list(KINDS)
    for name in _MEANT:
        client = subject.client(name)
        # `source.` and `target.` say which admin client; of the producers and consumers there is one that matters.
        other_side = client and client.kind == "admin" and prefix[:7] in ("source.", "target.")
        if client is None or (other_side and not prefix.startswith(client.side)):
            continue
        if client.kind in asked and keys.history(client.kind, plain):
            yield config_key(subject, name, plain)


def _cluster_ways(subject: Subject, prefix: str, plain: str, value: str) -> Iterator[str]:
    """Yield where an address or a login can belong: never the address of one side on the other (KAFKA-9313)."""
    records = [f"producer.override.{plain}"] if subject.form == "connect" and subject.type == "source" else []
    ways = [f"source.cluster.{plain}", f"target.cluster.{plain}", *records]
    if prefix.startswith("source.") and subject.type != "heartbeat":
        ways = ways[:1]  # never to the record producer, which is at the target
    elif "producer" in prefix and records:
        ways = records
    elif subject.type == "heartbeat" or prefix.startswith("target."):
        ways = ways[1:2] if "consumer." in prefix or "admin." in prefix else ways[1:]
    elif prefix.startswith("consumer.") and subject.type != "checkpoint":
        ways = ways[:1]
    theirs = {side: addresses(subject.get(f"{side}.cluster.bootstrap.servers")) for side in ("source", "target")}
    for way in ways:
        other = theirs["target" if way.startswith("source.") else "source"]
        if plain != "bootstrap.servers" or not other & addresses(value):
            yield way


def most_similar(subject: Subject, key: str) -> tuple[str, float]:
    """Return the known key most similar to a key, or to its line without the cluster, and how similar (0 to 1)."""
    line = of_cluster(subject, key)
    return _most_similar(key if line is None else line)


@cache
def _most_similar(key: str) -> tuple[str, float]:
    keys = load()
    name = nearest(key, *split(key, keys), keys)
    return (name, SequenceMatcher(None, name, key).ratio()) if name else ("", 0.0)


_WORDS = re.compile(r"[._-]")
_SHORT = 4
_UNITS = frozenset(("s", "sec", "seconds", "m", "min", "minutes", "h", "hours", "millis", "kb", "mb"))


def is_slip(key: str, right: str) -> bool:
    """Tell whether a key is another one with slips of the pen, and not a word that means something else."""
    words, rights = (_WORDS.split(text.lower()) for text in (key, right))
    if "".join(words) == "".join(rights):
        return True
    if len(words) != len(rights):
        joined, other = "".join(words), "".join(rights)
        return min(len(joined), len(other)) >= 2 * _SHORT and slips(joined, other) == 1
    return all(_is_slip(word, meant) for word, meant in zip(words, rights, strict=True))


def _is_slip(word: str, meant: str) -> bool:
    if word == meant or word in _plurals(meant) or meant in _plurals(word):
        return True
    allowed = 1 if max(len(word), len(meant)) < 2 * _SHORT else 2
    is_word = word in _known_words() or (word in _UNITS and meant != "ms"[: len(word)])
    return not is_word and slips(word, meant) <= allowed


def _plurals(word: str) -> tuple[str, str]:
    return f"{word}s", f"{word.removesuffix('y')}ies"


@cache
def _known_words() -> frozenset[str]:
    return frozenset(word for scope in SCOPES for name in load().names(scope) for word in _WORDS.split(name))


def slips(text: str, other: str) -> int:
    """Return how many letters were left out, added, mistaken or exchanged with the next one."""
    before, last = list[int](), list(range(len(other) + 1))
    for at, char in enumerate(text):
        row = [at + 1]
        for to, right in enumerate(other):
            row.append(min(last[to + 1] + 1, row[to] + 1, last[to] + (char != right)))
            if at and to and char == other[to - 1] and text[at - 1] == right:
                row[-1] = min(row[-1], before[to - 1] + 1)
        before, last = last, row
    return last[-1]


def takes(subject: Subject, key: str, value: str) -> bool:
    """Tell whether a known key takes a value; what a template or a provider fills in may be any."""
    if is_open(value):
        return True
    plain = parts(subject, key)[1]
    scopes = [scope for scope in (subject.type, *SCOPES) if load().history(scope, plain)]
    return is_open(value) or not any(fault(scope, plain, subject.version, value) for scope in scopes[:1])


def better(subject: Subject, key: str, name: str) -> str:
    """Return a better name as a key of the config."""
    if (line := of_cluster(subject, key)) is None:
        prefix, plain = parts(subject, key)
        return f"{key.removesuffix(plain)}{name.removeprefix(prefix)}" if name.startswith(prefix) else name
    if _is_connectors(name) and _of_cluster(context_of(subject.kind), name) == "dead-key":
        return name
    if key.startswith("target.") and name.startswith("producer."):
        return name.replace("producer.", "producer.override.", 1)
    return f"{key.partition('.')[0]}.{name}" if name.startswith(GENERAL) else f"{key.removesuffix(line)}{name}"


def first_line(subject: Subject, key: str) -> tuple[str, str | None]:
    """Return the first line that has a key, and its default there."""
    keys, plain = load(), parts(subject, key)[1]
    histories = [
        keys.history(scope, name) for scope, name in ((subject.type, key), *((kind, plain) for kind in SCOPES))
    ]
    oldest = next(history[0] for history in histories if history)
    return oldest.exists_in[0], oldest.default
