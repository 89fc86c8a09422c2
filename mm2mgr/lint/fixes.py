"""Words a fix in the syntax of the file it is for (YAML tree, connector config, mm2.properties) and finds a key that works. Secrets are masked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from typing import Literal

from mm2mgr import defaults
from mm2mgr.lint.subject import Subject
from mm2mgr.secrets import mask
from mm2mgr.spec.keys import SECURITY_KEYS
from mm2mgr.truth.explain import KINDS, nearest, split
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import CLIENTS, CLUSTER_KEYS

# The setting of a tree that becomes a connector's key; what is not here is written by a template and by nobody else.
_TREE = {
    "tasks.max": "tasks: {max: VALUE}",
    "topics": "topics: {include: LIST}",
    "topics.exclude": "topics: {exclude: LIST}",
    "groups": "checkpoints: {groups: {include: LIST}}",
    "groups.exclude": "checkpoints: {groups: {exclude: LIST}}",
    "config.properties.exclude": "sync: {exclude_properties: LIST}",
    "replication.policy.class": "replication_policy: VALUE",
    "replication.policy.separator": "separator: VALUE",
    "offset-syncs.topic.location": "offset_syncs: {location: VALUE}",
    "emit.offset-syncs.enabled": "offset_syncs: {enabled: VALUE}",
    "emit.checkpoints.enabled": "checkpoints: {enabled: VALUE}",
    "emit.heartbeats.enabled": "heartbeats: {enabled: VALUE}",
    "sync.group.offsets.enabled": "checkpoints: {group_offsets: VALUE}",
    "sync.topic.configs.enabled": "sync: {topic_configs: VALUE}",
    "sync.topic.acls.enabled": "sync: {topic_acls: VALUE}",
    "refresh.topics.interval.seconds": "refresh_interval: VALUEs",
    "refresh.groups.interval.seconds": "refresh_interval: VALUEs",
    "emit.checkpoints.interval.seconds": "checkpoints: {interval: VALUEs}",
    "sync.group.offsets.interval.seconds": "checkpoints: {interval: VALUEs}",
    "emit.heartbeats.interval.seconds": "heartbeats: {interval: VALUEs}",
    "source.cluster.alias": "clusters: {VALUE: {…}}",
    "target.cluster.alias": "clusters: {VALUE: {…}}",
    "replication.factor": "clusters: {TARGET: {replication_factor: VALUE}}",
    "checkpoints.topic.replication.factor": "clusters: {TARGET: {replication_factor: VALUE}}",
    "heartbeats.topic.replication.factor": "clusters: {TARGET: {replication_factor: VALUE}}",
    "offset-syncs.topic.replication.factor": "clusters: {SYNCS: {replication_factor: VALUE}}",
}
_OF_TEMPLATES = (
    *("name", "connector.class", "key.converter", "value.converter", "header.converter", "enabled", "errors.tolerance"),
    *("refresh.topics.enabled", "refresh.groups.enabled", "heartbeats.replication.enabled"),
    "replication.policy.internal.topic.separator.enabled",
)
_WORDS = {class_: word for word, class_ in defaults.POLICIES.items()}
# A tree adds these to its own lists, so nobody writes them there.
_ALWAYS = {
    "topics.exclude": defaults.TOPICS_EXCLUDE,
    "groups.exclude": defaults.GROUPS_EXCLUDE,
    "config.properties.exclude": defaults.PROPERTIES_EXCLUDE,
}
_PLAIN = re.compile(r"[\w.+/…-]+")
_DEDICATED = {
    "record producer": "{target}.producer.",
    "source consumer": "{source}.consumer.",
    "checkpoints consumer": "{target}.consumer.",
    "offset-syncs producer": "{source}.producer.",
    "source admin": "{source}.admin.",
    "target admin": "{target}.admin.",
}


def client_key(subject: Subject, client: str, plain: str, value: str = "…") -> str:
    """Return how to give a client a plain key: `producer.override.acks=all`, `record_producer: {acks: all}` or `B.producer.acks = all`."""
    found = next(each for each in CLIENTS[subject.type] if each.name == client)
    if subject.form == "tree" and found.block:
        return f"{found.block}: {{{plain}: {yaml(value)}}}"
    if subject.form == "dedicated" and client in _DEDICATED:
        return f"{_DEDICATED[client].format(source=subject.source, target=subject.target)}{plain} = {value}"
    if subject.form == "tree":
        return _of_template(subject, found.layers[-1].prefix + plain, value)
    return f"{found.layers[-1].prefix}{plain}={value}"


def cluster_key(subject: Subject, side: Literal["source", "target"], plain: str, value: str = "…") -> str:
    """Return how to give one side's clients a security key or address."""
    alias = subject.source if side == "source" else subject.target
    if subject.form == "tree":
        servers = ", ".join(yaml(server.strip()) for server in value.split(","))
        inner = (
            f"bootstrap_servers: [{servers}]"
            if plain == "bootstrap.servers"
            else f"security: {{{plain}: {yaml(value)}}}"
        )
        return f"clusters: {{{yaml(alias)}: {{{inner}}}}}"
    if subject.form == "dedicated":
        return f"{alias}.{plain} = {value}"
    return f"{side}.cluster.{plain}={value}"


def connector_key(subject: Subject, key: str, value: str = "…") -> str:
    """Return how to set one of the connector's own keys."""
    if subject.form == "tree":
        return _of_tree(subject, key, value)
    if subject.form == "dedicated":
        return f"{subject.pair}.{key} = {value}"
    return f"{key}={value}"


def spelled(subject: Subject, key: str, value: str) -> str:
    """Return how to write a key of a connector's config, whichever client reads it."""
    if subject.form != "tree":
        return f"{key}={value}"
    for side in ("source", "target"):
        if (plain := _after(key, f"{side}.cluster.")) in CLUSTER_KEYS:
            return cluster_key(subject, side, plain, value)
    if (plain := _after(key, "producer.override.")) in SECURITY_KEYS:
        return cluster_key(subject, "target", plain, value)  # the override is written from the cluster's own
    for client in CLIENTS[subject.type]:
        for layer in client.layers:
            if client.block and (plain := _after(key, layer.prefix)):
                return client_key(subject, client.name, plain, value)
    return _of_tree(subject, key, value)


def yaml(value: str) -> str:
    """Return a value for a YAML flow mapping, quoted where necessary."""
    return value if _PLAIN.fullmatch(value) else "'" + value.replace("'", "''") + "'"


def _after(key: str, prefix: str) -> str:
    return key.removeprefix(prefix) if key.startswith(prefix) else ""


def _of_template(subject: Subject, key: str, value: str) -> str:
    return f"{key} = {value} in {subject.type}.properties.j2, your own template"


def _of_tree(subject: Subject, key: str, value: str) -> str:
    if key == "exactly.once.support":
        return f"delivery: {'exactly_once' if value == 'required' else 'at_least_once'}"
    if key in _OF_TEMPLATES:
        return _of_template(subject, key, value)
    shape = _TREE.get(key, f"{subject.type}_connector: {{{key}: VALUE}}")
    items = [item.strip() for item in value.split(",") if item.strip() and item.strip() not in _ALWAYS.get(key, ())]
    syncs = subject.target if subject.setting.offset_syncs_location == "target" else subject.source
    words = {
        "LIST": f"[{', '.join(map(yaml, items))}]",
        "TARGET": yaml(subject.target),
        "SYNCS": yaml(syncs),
        "VALUE": yaml(_WORDS.get(value, value)),
    }
    return re.sub("|".join(words), lambda found: words[found[0]], shape)


_LONGEST = 60
SCOPES = (*CLIENTS, *KINDS)
# The clients people mean when they say producer, consumer or admin without saying more, most likely ones first.
_MEANT = ("source consumer", "record producer", "checkpoints consumer", "target admin", "source admin")


def written(subject: Subject, key: str) -> str:
    """Return the key as it is written: in mm2.properties it has a prefix that the driver removes."""
    place = subject.spots.get(key)
    return (place.key if place else "") or key


def shown(subject: Subject, key: str) -> str:
    """Return a key's value for a fix: masked, and shortened when it is long."""
    value = mask(key, subject.get(key))
    return value if len(value) <= _LONGEST and "\n" not in value else "…"


def instead(subject: Subject, key: str) -> str:
    """Return what to write instead of a key that no client reads."""
    prefix, plain = parts(subject, key)
    ways = list(dict.fromkeys(_ways(subject, prefix, plain, shown(subject, key))))
    if not ways:
        return f"remove {written(subject, key)}: a {subject.type} connector has no client that could use it"
    return f"write {' or '.join(ways)}"


def parts(subject: Subject, key: str) -> tuple[str, str]:
    """Return prefix and plain key of any spelling, those of mm2.properties included."""
    known = load()
    for alias in ("", f"{subject.source}.", f"{subject.target}."):
        rest = key.rpartition("->")[2].partition(".")[2] if "->" in key else key
        if alias != "." and rest.startswith(alias):
            prefix, plain = split(rest.removeprefix(alias), known)
            if _is_known(plain):
                return prefix or (alias and _side_of(subject, alias)), plain
    return split(key, known)


def _side_of(subject: Subject, alias: str) -> str:
    return "source.cluster." if alias == f"{subject.source}." else "target.cluster."


@cache
def _is_known(plain: str) -> bool:
    return any(load().history(scope, plain) for scope in SCOPES)


def _ways(subject: Subject, prefix: str, plain: str, value: str) -> Iterator[str]:
    known = load()
    if plain in CLUSTER_KEYS | SECURITY_KEYS:
        yield from _cluster_ways(subject, prefix, plain, value)
        return
    if known.history(subject.type, plain):
        yield connector_key(subject, plain, value)
    syncs = subject.client("offset-syncs producer")
    if prefix == "source.producer." and syncs and subject.form != "dedicated":
        # Who writes this prefix means the offset syncs, which are on the other side then.
        yield spelled(subject, f"{syncs.layers[-1].prefix}{plain}", value)
    asked = [kind for kind in KINDS if kind in prefix.split(".") and known.history(kind, plain)] or list(KINDS)
    for name in _MEANT:
        client = subject.client(name)
        # `source.` and `target.` say which admin client; of the producers and consumers there is one that matters.
        other_side = client and client.kind == "admin" and prefix[:7] in ("source.", "target.")
        if client is None or (other_side and not prefix.startswith(client.side)):
            continue
        if client.kind in asked and known.history(client.kind, plain):
            yield client_key(subject, name, plain, value)


def _cluster_ways(subject: Subject, prefix: str, plain: str, value: str) -> Iterator[str]:
    records = subject.form == "connect"
    if "producer" in prefix and records:
        yield client_key(subject, "record producer", plain, value)
        return
    if subject.type != "heartbeat" and not prefix.startswith("target."):
        yield cluster_key(subject, "source", plain, value)
    if not prefix.startswith(("source.", "consumer.")) or subject.type == "checkpoint":
        yield cluster_key(subject, "target", plain, value)
        if records:
            yield client_key(subject, "record producer", plain, value)


@cache
def near(key: str) -> tuple[str, float]:
    """Return the most similar known key, and the similarity (0 to 1)."""
    known = load()
    found = nearest(key, *split(key, known), known)
    return (found, SequenceMatcher(None, found, key).ratio()) if found else ("", 0.0)


def better(subject: Subject, key: str, name: str) -> str:
    """Spell a better name the way the file spells the key: behind its pair or alias."""
    prefix, plain = parts(subject, key)
    if not name.startswith(prefix):
        return name
    value = mask(name, shown(subject, key))  # the mistake may be in the very word that makes it a secret
    if subject.form == "tree":
        return spelled(subject, name, value)
    return f"{written(subject, key).removesuffix(plain)}{name.removeprefix(prefix)}={value}"


def since(subject: Subject, key: str) -> tuple[str, str | None]:
    """Return the first line that has a key, and its default there."""
    known, plain = load(), parts(subject, key)[1]
    found = [known.history(scope, name) for scope, name in ((subject.type, key), *((kind, plain) for kind in SCOPES))]
    oldest = next(history[0] for history in found if history)
    return oldest.exists_in[0], oldest.default
