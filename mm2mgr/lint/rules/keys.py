"""Rules about keys that no client reads, or the wrong one, or not this version; one rule per key (see `classify`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from mm2mgr.defaults import POLICIES
from mm2mgr.formats.properties import Entry
from mm2mgr.lint.classify import (
    OF_DEDICATED,
    SCOPES,
    better,
    first_line,
    instead,
    is_slip,
    keys_under,
    most_similar,
    move_hit,
    no_key_reported,
    of_cluster,
    parts,
    same_value,
    takes,
    value_for,
    what_is,
)
from mm2mgr.lint.findings import RECORDS, Edit, Hit, edit_hit, file_key, key_for, removal_hit, rule, show, spell
from mm2mgr.lint.hops import SIDES, items_of
from mm2mgr.lint.subject import Subject, SubjectKind
from mm2mgr.spec.scalars import LIBRDKAFKA_KEYS
from mm2mgr.topics.names import NameFilter
from mm2mgr.truth.explain import GENERAL, RENAMED
from mm2mgr.truth.keys import load, server_setting
from mm2mgr.truth.other_tools import other_tool
from mm2mgr.truth.reach import CLIENTS, CLUSTER_KEYS, EXACTLY_ONCE_FORCES, Client, seen_by

REACH = "tests/truth/test_reach_live.py"
START = "tests/lint/test_seen_live_start.py::"
_FORCED_VALUES = {"enable.auto.commit": "false", "enable.idempotence": "true", "isolation.level": "read_committed"}
_USER_CLASSES = (
    *("interceptor.classes", "metric.reporters", "callback.handler.class", "login.class", "engine.factory.class"),
    *("filter.class", "forwarding.admin.class", "replication.policy.class", "partitioner.class", "security.providers"),
    *("converter", "transforms", "predicates", "config.providers"),
)
_SURE = 0.85
_NO_CONNECTOR = "the driver gives a cluster's lines to its Kafka clients and workers, and none of them reads {}"


@rule("dead-key", "error", "MirrorConnectorConfig; KIP-458", live=REACH, reads=no_key_reported)
def dead_key(subject: Subject) -> Iterator[Hit]:
    """A known Kafka key has a prefix that no client of this connector reads.

    Connect passes a connector's keys to its clients by prefix: `producer.override.` configures the producer of the
    records, `source.consumer.` the consumer of the source, `source.admin.` and `target.admin.` the admin clients.
    `source.cluster.` and `target.cluster.` pass only addresses, security.protocol, ssl.* and sasl.*. A client key
    without a prefix, or behind `target.producer.` (offset syncs are on the source by default), `offset-syncs.producer.`
    or the arrow of mm2.properties, is accepted, stored and never used: there is no error and no log line, and the
    client keeps its default. This holds for all lines from 2.7 to 4.3. Use a prefix that reaches a client. In
    mm2.properties the driver gives a cluster's lines to its clients and workers only: no connector reads `A.tasks.max`
    or `A.topics`. A dead key that asks for what the connector or its client does anyway is reported as info, one that
    another key decides as a warning.
    """
    for key in keys_under(subject, "dead-key"):
        line = of_cluster(subject, key)
        if (
            line
            and subject.type == "heartbeat"
            and any(load().history(type_, line) for type_ in ("source", "checkpoint"))
        ):
            continue  # reported for the connectors that it is meant for; those of heartbeats run for other pairs, too
        reason = _why_dead(subject, key) if line is None else _NO_CONNECTOR.format(line)
        message = f"{file_key(subject, key)} does nothing: {reason}"
        if _is_harmless(subject, key):
            yield removal_hit(subject, key, message).with_severity("info")
        else:
            yield instead(subject, key, message)


def _is_harmless(subject: Subject, key: str) -> bool:
    """Tell whether a dead key asks for nothing, or for a value that the connector has anyway."""
    plain = parts(subject, key)[1]
    types = CLIENTS if subject.form == "dedicated" else (subject.type,)
    definition = next(filter(None, (load().find(type_, plain, subject.version) for type_ in types)), None)
    return key in OF_DEDICATED or (
        definition is not None and subject.get(plain, definition.default or "") == subject.get(key)
    )


def _why_dead(subject: Subject, key: str) -> str:
    prefix, plain = parts(subject, key)
    # What is more than prefix and plain name begins with an alias.
    if "->" in key or key in OF_DEDICATED or key != prefix + plain:
        return "only mm2.properties has such keys; a connector on Connect ignores them"
    if load().history(subject.type, plain):
        return f"{plain} is the connector's own key and takes no prefix"
    if not prefix:
        return "no client reads a connector's key without a prefix"
    if prefix.startswith(("source.cluster.", "target.cluster.")):
        return f"{prefix[:15]}* passes only addresses, security.protocol, ssl.* and sasl.*"
    if any(seen_by(client, key) for client in subject.clients):
        return f"the client behind {prefix}* has no such setting"
    return f"no client of this {subject.type} connector reads {prefix}*"


@rule("dead-override", "warning", "KIP-458, KIP-618", live=REACH, reads=no_key_reported)
def dead_override(subject: Subject) -> Iterator[Hit]:
    """An override configures a client of Connect that this connector does not have.

    consumer.override.* and admin.override.* configure the clients with which Connect itself reads offsets and creates
    topics. A MirrorMaker connector has them only on an exactly-once worker, with offsets.storage.topic, or (the admin
    client) with topic.creation.*. Otherwise Connect ignores them and does not check them against the override policy of
    the workers. MirrorMaker's own consumer reads source.consumer.*, its admin clients read source.admin.* and
    target.admin.*.
    """
    for key in keys_under(subject, "dead-override"):
        if _is_prepared(subject, key):
            continue
        effect = "Connect has no such client for this connector, and MirrorMaker's clients do not read it"
        message = f"{file_key(subject, key)} does nothing: {effect}"
        cluster = parts(subject, key)[1] in CLUSTER_KEYS
        yield removal_hit(subject, key, message) if cluster else instead(subject, key, message)


def _is_prepared(subject: Subject, key: str) -> bool:
    """Tell whether an override repeats the record producer's address or security, for exactly-once (KIP-618)."""
    plain = key.partition(".override.")[2]
    same = subject.get(key) == subject.get(f"producer.override.{plain}")
    return subject.worker.exactly_once is None and plain in CLUSTER_KEYS and same


@rule("bare-security", "error", "MirrorConnectorConfig", live=REACH, reads=no_key_reported)
def bare_security(subject: Subject) -> Iterator[Hit]:
    """An address or security setting on the connector does not say which cluster it is for.

    security.protocol, ssl.* and sasl.* are part of the connectors' definitions, so Connect checks their values and
    lists them, but no Kafka client of the connector reads them. bootstrap.servers is not even checked. The clients use
    PLAINTEXT, or what source.cluster.*, target.cluster.* and producer.override.* say. Only in mm2.properties do such
    keys have an effect at the top level: they are the default for every cluster.
    """
    for key in keys_under(subject, "bare-security"):
        yield instead(subject, key, f"{file_key(subject, key)} is checked by Connect, but no client uses it")


@rule("misdirected-key", "error", "KIP-458; Connect's Worker", live=REACH, reads=no_key_reported)
def misdirected_key(subject: Subject) -> Iterator[Hit]:
    """A setting meant for mirrored records configures another client.

    producer.* on a source connector configures only the producer of MirrorMaker's offset-syncs topic. Connect's own
    producer writes the records; it reads the workers' producer.* and the connector's producer.override.*. There is no
    error: batches, compression and size limits of the records keep their defaults. If the offset syncs are meant, write
    source.producer.*. In mm2.properties a client's key directly behind a cluster (`B.linger.ms`) configures only the
    clients of the topics in which Connect's workers store configs, offsets and states; write `B.producer.linger.ms`.
    """
    for key in keys_under(subject, "misdirected-key"):
        plain = parts(subject, key)[1]
        if of_cluster(subject, key) is not None:
            effect = "topics, none of MirrorMaker"
            message = f"{file_key(subject, key)} configures only the clients of the workers' own {effect}"
            yield instead(subject, key, message)
            continue
        if subject.client("record producer") and not subject.written_key("record producer", plain):
            message = (
                f"{file_key(subject, key)} configures only the producer of offset syncs, not {plain} of the records"
            )
            hit = move_hit(subject, key, key_for(subject, RECORDS, plain), message)
            yield hit.with_severity("info") if same_value(subject.value(RECORDS, plain), subject.get(key)) else hit


@rule("unscoped-address", "error", "MirrorConnectorConfig", live=REACH, reads=no_key_reported)
def unscoped_address(subject: Subject) -> Iterator[Hit]:
    """An address or security setting applies to the clients of both clusters.

    consumer.*, producer.* and admin.* configure every MirrorMaker client of that kind, whichever cluster it connects
    to, and outrank source.cluster.* and target.cluster.*. With admin.bootstrap.servers the admin client of the target
    connects to the source, or the reverse. With consumer.bootstrap.servers a checkpoint connector reads both of its
    topics from one cluster. producer.* moves the offset syncs, never the records: with
    producer.security.protocol=PLAINTEXT beside a source with TLS no offset is translated. Write addresses and logins
    for the source or the target. A security setting that reaches clients of one side only, and says nothing else than
    that side does, is a hint.
    """
    for key in keys_under(subject, "unscoped-address"):
        reached = [client for client in subject.clients if seen_by(client, key)]
        if not any(subject.written_key(client.name, parts(subject, key)[1]) == key for client in reached):
            yield from _outranked_hit(subject, key, reached)
            continue
        names = ", ".join(dict.fromkeys(f"{client.name} ({client.side})" for client in reached))
        message = f"{file_key(subject, key)} applies to {names} and overrides source.cluster.* and target.cluster.*"
        if hit := _of_one_side(subject, key, message):
            yield hit
            continue
        hit = instead(subject, key, message)
        yield hit if hit.severity == "info" else replace(hit, severity=None)


def _outranked_hit(subject: Subject, key: str, reached: Sequence[Client]) -> Iterator[Hit]:
    """Report a setting that every client takes from another key, such as that of the cluster's own line."""
    plain = parts(subject, key)[1]
    winners = dict.fromkeys(winner for client in reached if (winner := subject.written_key(client.name, plain)))
    if winners:
        effect = f"{' and '.join(file_key(subject, winner) for winner in winners)} outranks it"
        message = f"{file_key(subject, key)} has no effect: {effect}"
        repeated = all(subject.get(winner) == subject.get(key) for winner in winners)
        yield removal_hit(subject, key, message).with_severity("info" if repeated else "warning")


def _of_one_side(subject: Subject, key: str, message: str) -> Hit | None:
    """Return the hit about a security setting that decides for clients of one side, None for any other key."""
    plain, value = parts(subject, key)[1], subject.get(key)
    sides = {client.side for client in subject.clients if subject.written_key(client.name, plain) == key}
    side = sides.pop() if len(sides) == 1 else ""
    own = f"{side}.cluster.{plain}"
    if side not in SIDES or plain == "bootstrap.servers" or key == own:
        return None
    if subject.get(own) in ("", value):
        return edit_hit(subject, message, [Edit(own, value), Edit(key, None)], key).with_severity("info")
    fix = f"remove {file_key(subject, key)}: {file_key(subject, own)} is set"
    return Hit(f"{message}, where {file_key(subject, own)} has another value", fix, key)


@rule("unknown-key", "warning", "the definitions in Kafka's jars", live=REACH, reads=no_key_reported)
def unknown_key(subject: Subject) -> Iterator[Hit]:
    """No Kafka line knows this key; it is probably misspelt.

    Connect stores every key it receives and copies it into the tasks without a check, so a misspelt key has no effect
    and no error. The rule compares with the keys of 2.7 to 4.3. Only a slip of the pen is taken for the known key: one
    that exists for another purpose, or does not take the value, was not meant. Where custom classes are configured
    (filters, policies, interceptors, transforms, reporters), it reports only names that are very similar to a known
    key, because those classes may read keys of their own. For keys of librdkafka it names what Java's clients have
    instead.
    """
    strange = keys_under(subject, "unknown-key")
    own = bool(strange) and _has_own_classes(subject)
    for key in strange:
        name, likeness = most_similar(subject, key)
        if own and likeness < _SURE:
            continue
        definitions = load()
        outcome = f"no Kafka from {definitions.lines[0]} to {definitions.lines[-1]} knows it"
        message = f"{file_key(subject, key)} does nothing: {outcome}"
        if key in _OF_SINKS:
            effect = "only sink connectors read it, and those of MirrorMaker are sources"
            message = f"{file_key(subject, key)} does nothing: {effect}"
            yield removal_hit(subject, key, message)
            continue
        right = better(subject, key, name) if name else ""
        other_tool = next(
            (
                words
                for other_key, words in LIBRDKAFKA_KEYS.items()
                if "." in other_key and f".{key}".endswith(f".{other_key}")
            ),
            "",
        )
        if other_tool:
            yield removal_hit(subject, key, f"{message}: {other_tool}")
        elif name and is_slip(of_cluster(subject, key) or key, name) and takes(subject, right, subject.get(key)):
            if right in subject.config and (line := _outranking(subject, key, right)):
                fix = f"write {line}, which outranks what it has now ({right}={show(subject, right)}), or remove it"
                yield Hit(message, fix, key)
            elif right in subject.config:
                yield removal_hit(subject, key, message, f"; {file_key(subject, right)} is set")
            else:
                yield move_hit(subject, key, right, message)
        elif _RETENTION.search(key):
            yield removal_hit(subject, key, message, ": Kafka creates this topic compacted, without retention")
        else:
            more = f"; mm2mgr explain KEY shows what a {subject.type} connector reads"
            hit = removal_hit(subject, key, message, more)
            is_meant = _ABOUT_TOPICS.search(key) or likeness >= _SURE
            yield replace(hit, edits=()) if is_meant else hit


def _outranking(subject: Subject, key: str, right: str) -> str:
    """Return what a misspelt line was meant for, where the right key is set in a wider place, or by mm2mgr; "" else."""
    if subject.form == "tree":
        return spell(subject, right, show(subject, key)) if subject.get(key) != subject.get(right) else ""
    pair = f"{subject.pair}."
    is_wider = file_key(subject, key).startswith(pair) and not file_key(subject, right).startswith(pair)
    return f"{pair}{right} = {show(subject, key)}" if subject.form == "dedicated" and is_wider else ""


# Of Connect's SinkConnectorConfig.
_OF_SINKS = (
    *(
        f"errors.deadletterqueue.{name}"
        for name in ("topic.name", "topic.replication.factor", "context.headers.enable")
    ),
    "topics.regex",
)
# What is to be mirrored was meant: to remove it would hide that.
_ABOUT_TOPICS = re.compile(r"topic|group|pattern|filter|alias|policy|prefix|separator|rename", re.IGNORECASE)
_RETENTION = re.compile(r"(offset-syncs|checkpoints|heartbeats)\.topic\.(retention|cleanup|segment|config\.)")


def _has_own_classes(subject: Subject) -> bool:
    """Tell whether custom classes are configured, which may read keys of their own."""
    return any(_is_own_class(subject, key) for key in subject.config)


def _is_own_class(subject: Subject, key: str) -> bool:
    """Tell whether a key configures a custom class that is really loaded."""
    value = subject.get(key)
    theirs = key.endswith(_USER_CLASSES) and bool(value) and not value.startswith("org.apache.kafka.")
    return theirs and what_is(subject, key) in ("", "misdirected-key", "unscoped-address")


@rule("kafka-unknown", "warning", "the definitions in Kafka's jars", of_unknown_lines=True)
def kafka_unknown(subject: Subject) -> Iterator[Hit]:
    """The workers run a Kafka line whose keys are not known here, so nothing about the connector is judged.

    Lines before 2.7 have other keys, defaults and prefixes; judged by those of a newer line, right settings would be
    reported and wrong ones missed. Their last release is from 2021, so upgrade the workers. To see what a newer version
    would say about the same configuration, use `--kafka 3.9`.
    """
    if not subject.kind.of_known_line:
        lines = load().lines
        effect = f"{lines[0]} to {lines[-1]} are. No other rule looks at this connector"
        message = f"Kafka {subject.version} is not known: {effect}"
        yield Hit(message, "upgrade the workers, or use --kafka VERSION to judge by another version")


@rule("key-too-new", "error", "the definitions in Kafka's jars", reads=no_key_reported)
def key_too_new(subject: Subject) -> Iterator[Hit]:
    """This key exists only in a newer Kafka line than that of the workers.

    Older workers and their connectors ignore the key without an error, as they ignore every unknown key. The version of
    the connector plugin decides, which is usually the version of the workers. A value that equals the behaviour of the
    older line is not reported; settings of clients, heartbeats and metrics are a warning, since records are mirrored
    without them.
    """
    for key in keys_under(subject, "key-too-new"):
        first, default = first_line(subject, key)
        if subject.get(key).lower() == default or (subject.form == "tree" and key not in subject.spots):
            continue
        message = f"{file_key(subject, key)} does nothing: workers of {subject.version} do not know it"
        hit = removal_hit(subject, key, message, f", or run workers of {first} or newer")
        own = bool(load().history(subject.type, key)) and not key.startswith(_BESIDE_RECORDS)
        yield hit if own else hit.with_severity("warning")


_BESIDE_RECORDS = ("heartbeats.", "metric", "tasks.max.enforce", "errors.log.")


@rule("key-removed", "error", "KIP-629", live=f"{START}test_removed_exclude", reads=no_key_reported)
def key_removed(subject: Subject) -> Iterator[Hit]:
    """Kafka removed this key before the version of the workers.

    4.0 removed topics.blacklist, groups.blacklist and config.properties.blacklist (now .exclude),
    use.incremental.alter.configs and add.source.alias.to.metrics. A connector that still has them starts without an
    error: the filter uses Kafka's default list, and topics that were excluded are mirrored. Without known workers the
    rule uses the newest Kafka line, and it is a warning; where the new name is there with the same value, a hint.
    """
    for key in keys_under(subject, "key-removed"):
        definitions, plain = load(), parts(subject, key)[1]
        last = next(
            h[0].exists_in[-1] for kind in SCOPES for name in (key, plain) if (h := definitions.history(kind, name))
        )
        new = RENAMED.get(key)
        judged_by = (
            subject.version
            if subject.known_version
            else f"{subject.version}, the newest line (the workers' version is unknown)"
        )
        message = f"{file_key(subject, key)} does nothing in Kafka {judged_by}: removed after {last}"
        hit = _renamed_key(subject, key, message) if new else removal_hit(subject, key, message)
        repeated = new is not None and new in subject.config and subject.get(new) == subject.get(key)
        if repeated or (plain in _NOW_ALWAYS and subject.get(key) in _NOW_ALWAYS[plain]):
            yield hit.with_severity("info")
        else:
            yield hit if subject.known_version else hit.with_severity("warning")


# Values of removed keys that say what newer lines do anyway.
_NOW_ALWAYS = {"use.incremental.alter.configs": ("requested", "required"), "add.source.alias.to.metrics": ("true",)}


@rule("key-deprecated", "warning", "KIP-629", reads=no_key_reported)
def key_deprecated(subject: Subject) -> Iterator[Hit]:
    """This key still works and is removed in the next major version.

    topics.blacklist, groups.blacklist and config.properties.blacklist are old names (KIP-629) that workers up to 3.9
    translate. From 4.0 on they are unknown and ignored without an error, so upgrading the workers starts to mirror what
    was excluded. The new names work on every line since 2.7.
    """
    for key in keys_under(subject, "key-deprecated"):
        message = f"{file_key(subject, key)} works on {subject.version} and is ignored from 4.0 on"
        yield _renamed_key(subject, key, message)


def _renamed_key(subject: Subject, key: str, message: str) -> Hit:
    if RENAMED[key] in subject.config:
        return removal_hit(subject, key, message, f"; {file_key(subject, RENAMED[key])} is set")
    return move_hit(subject, key, RENAMED[key], message)


@rule("other-connectors-key", "warning", "the definitions in Kafka's jars", live=START, reads=no_key_reported)
def other_connectors_key(subject: Subject) -> Iterator[Hit]:
    """This key belongs to another MirrorMaker connector; this class does not read it.

    The three connectors share some keys and have others of their own. Groups and checkpoints belong to the checkpoint
    connector; topic settings, ACLs and topic refreshes to the source connector; heartbeats to the heartbeat connector.
    Connect accepts all of them on any connector, where they have no effect. It is a hint where the value is Kafka's
    default.
    """
    for key in keys_under(subject, "other-connectors-key"):
        owners = [type_ for type_ in CLIENTS if load().history(type_, key)]
        named = " or ".join(f"Mirror{owner.capitalize()}Connector" for owner in owners)
        message = f"{file_key(subject, key)} does nothing on a {subject.type} connector: only {named} reads it"
        place = f"it belongs to the {named} of this pair"
        if subject.form == "tree":
            value = show(subject, key)
            ways = (
                spell(replace(subject, connector=replace(subject.connector, type=owner)), key, value)
                for owner in owners
            )
            place = f"write {' or '.join(dict.fromkeys(ways))} if it is wanted"
        hit = removal_hit(subject, key, message, f"; {place}")
        definition = load().find(owners[0], key, subject.version)
        yield hit.with_severity("info") if definition and same_value(definition.default, subject.get(key)) else hit


@lru_cache(maxsize=4096)
def _general(kind: SubjectKind) -> tuple[str, ...]:
    """Return the keys that go to clients of both sides."""
    return tuple(key for key in kind.keys if key.startswith(GENERAL) and ".override." not in key)


@rule("shadowed-key", "warning", "MirrorConnectorConfig", live=REACH, reads=lambda kind: None if _general(kind) else ())
def shadowed_key(subject: Subject) -> Iterator[Hit]:
    """A more specific key overrides this setting for every client.

    For MirrorMaker's own clients source.consumer.* outranks consumer.*, which outranks source.cluster.*; the same order
    holds for the producers and admin clients. When both keys are present with different values, and every client that
    could use the general key has the specific one, the general key has no effect. Changing it later has no effect
    either.
    """
    for key in _general(subject.kind):
        if winner := _shadow(subject, key):
            effect = f"{file_key(subject, winner)} overrides it with another value"
            message = f"{file_key(subject, key)} has no effect: {effect}"
            yield removal_hit(subject, key, message, f", or {file_key(subject, winner)} if this one is meant")


def _shadow(subject: Subject, key: str) -> str | None:
    plain = key.partition(".")[2]
    deciding = {subject.written_key(client.name, plain) for client in subject.clients if seen_by(client, key)}
    if plain in CLUSTER_KEYS or what_is(subject, key) or not deciding or key in deciding or "" in deciding:
        return None
    winner = min(deciding)
    return winner if subject.get(winner) != subject.get(key) else None


@rule("forced-key", "warning", "MirrorConnectorConfig; KIP-618", live=REACH, reads=no_key_reported)
def forced_key(subject: Subject) -> Iterator[Hit]:
    """MirrorMaker or Connect sets this key itself and ignores the configured value.

    MirrorMaker's consumers never commit offsets to Kafka (enable.auto.commit is set last). Partitions are assigned to
    them, so a group.id does not share work, although offsets that such a group once committed may decide where a new
    flow starts. Serializers and deserializers are passed as ready-made objects. On an exactly-once worker Connect also
    sets transactional.id and enable.idempotence of the record producer. At most a log line mentions it.
    """
    for key in keys_under(subject, "forced-key"):
        plain = parts(subject, key)[1]
        if subject.get(key).lower() == _FORCED_VALUES.get(plain) or "ByteArray" in subject.get(key):
            continue
        who = "Connect" if any(plain in forced for forced in EXACTLY_ONCE_FORCES.values()) else "MirrorMaker"
        effect = f"does nothing: {who} sets {plain} itself"
        if plain == "group.id":
            effect = (
                "does not share work (partitions are assigned), but offsets committed by this group may decide where "
                "a new flow starts"
            )
        yield removal_hit(subject, key, f"{file_key(subject, key)} {effect}")


@rule("worker-key", "warning", "DistributedConfig", live=START, reads=no_key_reported)
def worker_key(subject: Subject) -> Iterator[Hit]:
    """A key of the Connect workers is configured on a connector.

    Workers read keys such as offset.flush.interval.ms, exactly.once.source.support, the override policy and the storage
    topics from their own properties at start, never from a connector. On a connector the key is stored, copied into the
    tasks and ignored. In the workers' properties it applies to every connector that runs there, so check the others
    first.
    """
    for key in keys_under(subject, "worker-key"):
        message = f"{file_key(subject, key)} does nothing on a connector: workers read it from their own properties"
        where, edits = "the workers' properties file", tuple[Edit, ...]()
        if subject.form == "dedicated":
            where, line = f"{subject.target}.{key}", subject.spots[key]
            edits = (Edit(where, subject.get(key), at=Entry(line.key, subject.get(key), "", line.line)),)
        yield Hit(message, f"move it to {where}, where it applies to all connectors of these workers", key, edits=edits)


@rule("server-key", "warning", "Kafka's LogConfig and KafkaConfig", reads=no_key_reported)
def server_key(subject: Subject) -> Iterator[Hit]:
    """A setting of topics or of brokers is configured on a connector.

    retention.ms or min.insync.replicas are settings of topics, log.retention.hours of brokers. On a connector, behind
    any prefix, Connect stores them and nothing reads them. MirrorMaker copies the settings of the source's topics to
    those of the target (sync.topic.configs.enabled), except the ones in config.properties.exclude, which by default
    include min.insync.replicas. Set the others on the source's topics, and these on the target's; settings of brokers
    belong in their own properties.
    """
    keys = keys_under(subject, "server-key")
    excluded = NameFilter(items_of(subject, "config.properties.exclude") if keys else (), ())
    for key in keys:
        plain = parts(subject, key)[1]
        where = "in the properties of the brokers"
        if server_setting(plain) == "topic":
            where = "on the source's topics, from where MirrorMaker copies it"
            if excluded.takes(plain) or not subject.flag("sync.topic.configs.enabled", default=True):
                where = "on the topics of the target, as MirrorMaker does not copy it"
        own = "; the limit of the producer is max.request.size" if plain == "message.max.bytes" else ""
        message = f"{file_key(subject, key)} does nothing on a connector: it is a setting of {server_setting(plain)}s"
        yield removal_hit(subject, key, message, f" and set it {where}{own}")


# --- keys of other mirroring tools ------------------------------------------------------------------------------------

# What MirrorMaker does without these: Kafka's defaults take everything, or exclude only what is internal.
_INSTEAD_OF = {
    "topics": "every topic is mirrored",
    "topics.exclude": "these topics are mirrored",
    "groups": "every group is checkpointed",
    "groups.exclude": "these groups are checkpointed",
}
_POLICY = "replication.policy.class"


@rule(
    "other-tools-key", "error", "documentation of Confluent Replicator, Mirus and MirrorMaker 1", reads=no_key_reported
)
def other_tools_key(subject: Subject) -> Iterator[Hit]:
    """This key belongs to another mirroring tool; MirrorMaker does not read it.

    Configs that were moved from Confluent Replicator (topic.whitelist, src.kafka.*, dest.kafka.*, topic.rename.format),
    Mirus (topics.whitelist, destination.topic.name.*), MirrorMaker 1 (whitelist, num.streams), uReplicator or Brooklin
    keep keys that Connect accepts and nothing reads; topics.whitelist, topics.include and groups.include were never
    keys of MirrorMaker 2. It is an error where the key selects topics or groups, because the defaults take all of them,
    and a warning otherwise. Write the key of MirrorMaker with the same meaning. Where custom classes are configured,
    which may read such keys, nothing is reported.
    """
    reported = keys_under(subject, "other-tools-key")
    for key in () if reported and _has_own_classes(subject) else reported:
        if (other := other_tool(key)) is None:
            continue
        tool, instead_of = other
        ours, value = _ours(subject, key, instead_of)
        own = bool(load().history(subject.type, ours))
        lost = _INSTEAD_OF.get(ours, "") if own and ours not in subject.config else ""
        reads = bool(ours) and ours not in subject.config and (own or ours.startswith(("source.", "target.")))
        right = value_for(subject, ours, value) if reads and value else None
        edits = [Edit(key, None)] if right is None else [Edit(ours, right), Edit(key, None)]
        whose = f"is a key of {tool}, which MirrorMaker does not read"
        if not tool:
            whose = "was never a key of MirrorMaker 2 and does nothing"
        message = f"{file_key(subject, key)} {whose}{': ' if lost else ''}{lost}"
        hit = edit_hit(subject, message, edits, key)
        yield hit if lost else hit.with_severity("warning")


def _ours(subject: Subject, key: str, instead: str) -> tuple[str, str]:
    """Return the key and value of the same meaning."""
    value = subject.get(key)
    if key == "topic.rename.format" and value == "${topic}":
        return _POLICY, POLICIES["identity"]
    return instead, value
