"""Rules about keys that reach nobody, the wrong client, or no Kafka of this version. Each key is told by one rule (classify.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from mm2mgr.lint.classify import OF_DEDICATED, keys_under, what_is
from mm2mgr.lint.findings import Hit, rule
from mm2mgr.lint.fixes import SCOPES, better, client_key, connector_key, instead, near, parts, shown, since, written
from mm2mgr.lint.subject import Subject, SubjectKind
from mm2mgr.secrets import is_secret
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import CLIENTS, CLUSTER_KEYS, EXACTLY_ONCE_FORCES, seen_by

REACH = "tests/truth/test_reach_live.py"
START = "tests/lint/test_seen_live_start.py::"
_RENAMED = {f"{name}.blacklist": f"{name}.exclude" for name in ("topics", "groups", "config.properties")}
_FORCED_VALUES = {"enable.auto.commit": "false", "enable.idempotence": "true", "isolation.level": "read_committed"}
_USER_CLASSES = (
    *("interceptor.classes", "metric.reporters", "callback.handler.class", "login.class", "engine.factory.class"),
    *("filter.class", "forwarding.admin.class", "replication.policy.class", "partitioner.class", "security.providers"),
    *("converter", "transforms", "predicates", "config.providers"),
)
_SURE = 0.85


@rule("dead-key", "error", source="MirrorConnectorConfig; KIP-458", seen=REACH)
def dead_key(subject: Subject) -> Iterator[Hit]:
    """A key that Kafka knows is spelled so that no client of the connector sees it.

    Connect hands a connector's keys to clients by prefix alone: producer.override. to the producer of the records,
    source.consumer. to the consumer that reads the source, source.admin. and target.admin. to the admin clients, and
    source.cluster. / target.cluster. pass on addresses, security.protocol, ssl.* and sasl.* and drop everything else.
    A client key without a prefix, behind target.producer. (offset syncs are on the source by default), behind
    offset-syncs.producer. or behind the arrow of mm2.properties is accepted, stored, and used by nobody: no error, no log
    line, and the client keeps its default. The same on all lines from 3.6 to 4.3. Write the spelling that reaches a client.
    """
    for key in keys_under(subject, "dead-key"):
        yield Hit(f"{written(subject, key)} does nothing: {_why_dead(subject, key)}", instead(subject, key), key)


def _why_dead(subject: Subject, key: str) -> str:
    prefix, plain = parts(subject, key)
    # What is more than prefix and plain name begins with an alias.
    if "->" in key or key in OF_DEDICATED or key != prefix + plain:
        return "only MirrorMaker's own mm2.properties knows such a name; a connector on Connect ignores it"
    if load().history(subject.type, plain):
        return f"{plain} is the connector's own key and takes no prefix"
    if not prefix:
        return "no client reads a connector's key without a prefix, and Connect says nothing about it"
    if prefix.startswith(("source.cluster.", "target.cluster.")):
        return f"{prefix[:15]}* passes on addresses, security.protocol, ssl.* and sasl.*, and drops the rest"
    if any(seen_by(client, key) for client in subject.clients):
        return f"the client behind {prefix}* has no such setting"
    return f"no client of this {subject.type} connector looks at {prefix}*"


@rule("dead-override", "warning", source="KIP-458, KIP-618", seen=REACH)
def dead_override(subject: Subject) -> Iterator[Hit]:
    """An override is given to a client of Connect's own that this connector does not have.

    consumer.override.* and admin.override.* configure the clients with which Connect itself reads offsets and creates
    topics. A MirrorMaker connector has them only on an exactly-once worker, with offsets.storage.topic, or (the admin
    client) with topic.creation.*. Otherwise they are ignored, and not even checked against the workers' override policy.
    MirrorMaker's consumer of the source listens to source.consumer.*, its admin clients to source.admin.* and target.admin.*.
    """
    for key in keys_under(subject, "dead-override"):
        if _prepared(subject, key):
            continue
        message = f"{written(subject, key)} does nothing: Connect has no such client here, and MirrorMaker's do not look at it"
        cluster = parts(subject, key)[1] in CLUSTER_KEYS
        yield Hit(message, f"take {written(subject, key)} out" if cluster else instead(subject, key), key)


def _prepared(subject: Subject, key: str) -> bool:
    """Tell whether an override repeats the record producer's address or security, as exactly-once workers need it (KIP-618)."""
    plain = key.partition(".override.")[2]
    same = subject.get(key) == subject.get(f"producer.override.{plain}")
    return subject.worker.exactly_once is None and plain in CLUSTER_KEYS and same


@rule("bare-security", "error", source="MirrorConnectorConfig", seen=REACH)
def bare_security(subject: Subject) -> Iterator[Hit]:
    """An address or security setting stands on the connector without saying which cluster it is for.

    security.protocol, ssl.* and sasl.* are in the connectors' own definitions, so Connect checks their values and lists
    them, but no Kafka client of the connector reads them; bootstrap.servers is not even looked at. The clients go on with
    PLAINTEXT or what source.cluster.*, target.cluster.* and producer.override.* say. Only mm2.properties gives a meaning
    to such keys at its top level, as a default for every cluster.
    """
    for key in keys_under(subject, "bare-security"):
        message = f"{written(subject, key)} is checked by Connect and used by no client: neither side gets it"
        yield Hit(message, instead(subject, key), key)


@rule("misdirected-key", "error", source="KIP-458; Connect's Worker", seen=REACH)
def misdirected_key(subject: Subject) -> Iterator[Hit]:
    """A setting meant for the mirrored records is given to the producer of the offset syncs.

    producer.* on a source connector reaches one small producer, the one that writes MirrorMaker's offset-syncs topic. The
    records are written by Connect's producer, which takes its settings from the workers' producer.* and the connector's
    producer.override.* and nothing else. There is no error: batches, compression and size limits of the records stay at
    their defaults. Who really means the offset syncs writes source.producer.*, which says so.
    """
    for key in keys_under(subject, "misdirected-key"):
        plain = parts(subject, key)[1]
        if subject.client("record producer") and not subject.written("record producer", plain):
            message = (
                f"{written(subject, key)} reaches the producer of offset syncs only; records keep {plain} as it was"
            )
            yield Hit(message, f"write {client_key(subject, 'record producer', plain, shown(subject, key))}", key)


@rule("unscoped-address", "error", source="MirrorConnectorConfig", seen=REACH)
def unscoped_address(subject: Subject) -> Iterator[Hit]:
    """An address or security setting is given to the clients of both clusters at once.

    consumer.*, producer.* and admin.* reach every MirrorMaker client of that kind, whichever cluster it talks to, and
    outrank source.cluster.* and target.cluster.*. With admin.bootstrap.servers the admin client of the target talks to the
    source (or the other way round); with consumer.bootstrap.servers a checkpoint connector reads both its topics in one
    place. producer.* moves the offset syncs, never the records. Put addresses and logins on the side they are for.
    """
    for key in keys_under(subject, "unscoped-address"):
        reached = {f"{client.name} ({client.side})": None for client in subject.clients if seen_by(client, key)}
        names = ", ".join(reached) or "clients of both sides"
        yield Hit(f"{written(subject, key)} goes to {names} and outranks the clusters' own", instead(subject, key), key)


@rule("unknown-key", "warning", source="the definitions in Kafka's jars", seen=REACH)
def unknown_key(subject: Subject) -> Iterator[Hit]:
    """A key is known to no Kafka line: it looks like a spelling mistake.

    Connect keeps every key it is given, copies it into the tasks and says nothing, so a mistyped key shows only in what
    does not happen. Keys of 3.6 to 4.3 are compared; where classes of your own are configured (filters, policies,
    interceptors, transforms, reporters) only names very near to a known one are told, since those classes may read others.
    """
    strange = keys_under(subject, "unknown-key")
    own = bool(strange) and any(_is_own_class(subject, key) for key in subject.config)
    for key in strange:
        name, likeness = near(key)
        if own and likeness < _SURE:
            continue
        known = load()
        message = f"{written(subject, key)} does nothing: no Kafka from {known.lines[0]} to {known.lines[-1]} knows it"
        fix = (
            f"write {better(subject, key, name)}"
            if name
            else f"take it out; mm2mgr explain KEY tells what a {subject.type} connector reads"
        )
        yield Hit(message, fix, key)


def _is_own_class(subject: Subject, key: str) -> bool:
    """Tell whether a key brings in a class of people's own, and reaches somebody who loads it."""
    value = subject.get(key)
    theirs = key.endswith(_USER_CLASSES) and bool(value) and not value.startswith("org.apache.kafka.")
    return theirs and what_is(subject, key) in ("", "misdirected-key", "unscoped-address")


@rule("key-too-new", "error", source="the definitions in Kafka's jars")
def key_too_new(subject: Subject) -> Iterator[Hit]:
    """A key exists only in a newer Kafka line than the workers'.

    Older workers and their connectors ignore it without a word, as they ignore every unknown key, and behave as they
    always did. The version of the connectors' plugin decides (mostly the workers' own). A value that asks for what the older line
    does anyway is not told.
    """
    for key in keys_under(subject, "key-too-new"):
        first, default = since(subject, key)
        if subject.get(key).lower() == default or (subject.form == "tree" and key not in subject.spots):
            continue
        message = f"{written(subject, key)} does nothing: workers of {subject.version} do not know it"
        yield Hit(message, f"take it out, or run workers of {first} or newer", key)


@rule("key-removed", "error", source="KIP-629", seen=f"{START}test_removed_exclude")
def key_removed(subject: Subject) -> Iterator[Hit]:
    """A key was taken out of Kafka before the workers' version.

    4.0 dropped topics.blacklist, groups.blacklist and config.properties.blacklist (write .exclude), as well as
    use.incremental.alter.configs and add.source.alias.to.metrics, whose behaviour is fixed now. A connector that still has
    them starts without a complaint: the filter falls back to Kafka's default list, and what was excluded is mirrored.
    Without known workers the newest Kafka line is what counts.
    """
    for key in keys_under(subject, "key-removed"):
        known, plain = load(), parts(subject, key)[1]
        last = next(h[0].exists_in[-1] for kind in SCOPES for name in (key, plain) if (h := known.history(kind, name)))
        new = _RENAMED.get(key)
        fix = f"write {connector_key(subject, new, shown(subject, key))}" if new else "take it out"
        judged_by = (
            subject.version
            if subject.knows_version
            else f"{subject.version}, the newest line (the workers' is not known)"
        )
        yield Hit(f"{written(subject, key)} does nothing in Kafka {judged_by}: it went after {last}", fix, key)


@rule("key-deprecated", "warning", source="KIP-629")
def key_deprecated(subject: Subject) -> Iterator[Hit]:
    """A key still works and is gone in the next big version.

    topics.blacklist, groups.blacklist and config.properties.blacklist are old names (KIP-629) that workers up to 3.9 still
    translate. From 4.0 on they are unknown and ignored in silence, so that an upgrade of the workers alone starts to
    mirror what was excluded. The new names work on every line since 2.7.
    """
    for key in keys_under(subject, "key-deprecated"):
        message = f"{written(subject, key)} works on {subject.version} and is ignored without a word from 4.0 on"
        yield Hit(message, f"write {connector_key(subject, _RENAMED[key], shown(subject, key))}", key)


@rule(
    "other-connectors-key",
    "warning",
    source="the definitions in Kafka's jars",
    seen=f"{START}test_other_connectors_key",
)
def other_connectors_key(subject: Subject) -> Iterator[Hit]:
    """A key belongs to another MirrorMaker connector; this class never reads it.

    The three connectors share some keys and have others of their own: groups and checkpoints are the checkpoint
    connector's, topic settings, ACLs and refreshes of topics the source connector's, heartbeats the heartbeat connector's.
    Connect accepts any of them anywhere. Whoever expects an effect from it here waits in vain.
    """
    for key in keys_under(subject, "other-connectors-key"):
        owners = [type_ for type_ in CLIENTS if load().history(type_, key)]
        named = " or ".join(f"Mirror{owner.capitalize()}Connector" for owner in owners)
        message = f"{written(subject, key)} does nothing on a {subject.type} connector: only {named} reads it"
        place = f"the {named} of this pair"
        if subject.form == "tree":
            value = shown(subject, key)
            ways = (connector_key(replace(subject, type=owner), key, value) for owner in owners)
            place = " or ".join(dict.fromkeys(ways))
        yield Hit(message, f"move it to {place}, or take it out", key)


@rule("shadowed-key", "warning", source="MirrorConnectorConfig", seen=REACH)
def shadowed_key(subject: Subject) -> Iterator[Hit]:
    """A setting loses against a more specific spelling of the same setting everywhere.

    For MirrorMaker's own clients source.consumer.* (and its like) outranks consumer.*, which outranks source.cluster.*.
    Where both are written with different values, the lower one has no effect as soon as every client that could take it
    has the other. Changing it later changes nothing, which is how it is found too late.
    """
    for key in _general(subject.kind):
        if winner := _shadow(subject, key):
            message = (
                f"{written(subject, key)} has no effect: {written(subject, winner)} outranks it with another value"
            )
            yield Hit(message, f"keep one of {written(subject, key)} and {written(subject, winner)}", key)


@lru_cache(maxsize=4096)
def _general(kind: SubjectKind) -> tuple[str, ...]:
    """Return the keys that go to clients of both sides."""
    general = ("consumer.", "producer.", "admin.")
    return tuple(key for key in kind.keys if key.startswith(general) and ".override." not in key)


def _shadow(subject: Subject, key: str) -> str | None:
    plain = key.partition(".")[2]
    found = {subject.written(client.name, plain) for client in subject.clients if seen_by(client, key)}
    if plain in CLUSTER_KEYS or what_is(subject, key) or not found or key in found or None in found:
        return None
    winner = str(sorted(map(str, found))[0])
    return winner if subject.get(winner) != subject.get(key) else None


@rule("forced-key", "warning", source="MirrorConnectorConfig; KIP-618", seen=REACH)
def forced_key(subject: Subject) -> Iterator[Hit]:
    """A key is one that MirrorMaker or Connect decides itself, whatever is written.

    MirrorMaker's consumers never commit to Kafka (enable.auto.commit is set last), get their partitions assigned, so that a
    group.id shares no work (though offsets that such a group once committed may decide where a new flow starts), and get
    byte (de)serializers handed over ready-made. On an exactly-once worker Connect also decides
    transactional.id and enable.idempotence of the record producer. The written value is ignored; at most a log line tells.
    """
    for key in keys_under(subject, "forced-key"):
        plain = parts(subject, key)[1]
        if subject.get(key).lower() == _FORCED_VALUES.get(plain) or "ByteArray" in subject.get(key):
            continue
        who = "Connect" if any(plain in forced for forced in EXACTLY_ONCE_FORCES.values()) else "MirrorMaker"
        value = "it" if is_secret(plain) else f"{plain}={shown(subject, key)}"
        what = f"does nothing: {who} decides {plain} itself"
        if plain == "group.id":
            what = "shares no work, as partitions are assigned; offsets this group once committed may decide where a new flow starts"
        yield Hit(f"{written(subject, key)} {what}", f"take {value} out", key)


@rule("worker-key", "warning", source="DistributedConfig", seen=f"{START}test_worker_key")
def worker_key(subject: Subject) -> Iterator[Hit]:
    """A key of the Connect workers' own properties is written on a connector.

    Workers read such keys (offset.flush.interval.ms, exactly.once.source.support, the override policy, storage topics) from
    their own file at start and never from a connector. On a connector they are stored, copied into the tasks and ignored.
    Moved to the workers they hold for every connector that runs there, so mind the others first.
    """
    for key in keys_under(subject, "worker-key"):
        message = f"{written(subject, key)} does nothing on a connector: workers read it from their own properties"
        where = f"{subject.target}.{key}" if subject.form == "dedicated" else "the workers' properties file"
        yield Hit(message, f"move it to {where}, which then holds for all their connectors", key)
