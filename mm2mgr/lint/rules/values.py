"""Rules about values: what Kafka's own definitions refuse, what is missing, and values that do another thing than they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from mm2mgr.lint.classify import Context, context_of, what
from mm2mgr.lint.clusters import SIDES, ClusterSide
from mm2mgr.lint.findings import Hit, rule
from mm2mgr.lint.fixes import cluster_key, connector_key, shown, written
from mm2mgr.lint.subject import Subject, SubjectKind
from mm2mgr.truth.keys import Key, load
from mm2mgr.truth.reach import Client, numbers, seen_by
from mm2mgr.truth.validity import fault, is_checked

_SEEN = "tests/lint/test_seen_live_start.py::"
_MIRROR = "org.apache.kafka.connect.mirror."
_POLICIES = (f"{_MIRROR}DefaultReplicationPolicy", f"{_MIRROR}IdentityReplicationPolicy")
_GONE = "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy"
_TAKE_BYTES = ("ByteArraySerializer",)  # of the others each wants a type of its own
_CREATION = ("topic.creation.default.replication.factor", "topic.creation.default.partitions")


@rule("invalid-value", "error", source="Kafka's definitions", seen=f"{_SEEN}test_invalid_client_value")
def invalid_value(subject: Subject) -> Iterator[Hit]:
    """A value is none that Kafka's definition of the key accepts.

    Connect checks the connector's own keys when the config is put and refuses it (400). Of a producer.override.* value it
    only checks that it can be read at all (500 for a word where a number belongs); ranges and choices, and everything
    behind source.consumer.*, source.admin.* and the like, are looked at when the client is made. The connector is accepted,
    then the task (for admin clients the connector) is FAILED with a ConfigException. Judged by the definitions of the
    workers' Kafka line; placeholders of config providers are left alone.
    """
    yield from _no_bytes(subject)
    checks = _checks(subject.kind)
    values = tuple(subject.get(check.key)[: check.counts] for check in checks)
    for check, wrong in _faults(subject.kind, values):
        line = written(subject, check.key)
        message = f"{line}={shown(subject, check.key)} is {wrong}: {_consequence(check.client)}"
        yield Hit(message, f"write {_right(check.definition)} for {line}", check.key)


def _no_bytes(subject: Subject) -> Iterator[Hit]:
    """Connect hands its producer bytes, and lets people put another serializer there (MirrorMaker's own clients ignore one)."""
    for plain in ("key.serializer", "value.serializer"):
        key = f"producer.override.{plain}"
        value = subject.get(key)
        if value and "${" not in value and value.rpartition(".")[2] not in _TAKE_BYTES:
            message = f"{written(subject, key)}={shown(subject, key)} takes no bytes: every task is FAILED at its first record"
            yield Hit(message, f"take {written(subject, key)} out", key)


@dataclass(frozen=True)
class _ValueCheck:
    """A key whose values Kafka checks, and the first client that is given it.

    `counts` is how much of a value decides: all (None), or one letter where any text will do that is not empty.
    """

    key: str
    definition: Key
    client: Client | None
    counts: int | None


@lru_cache(maxsize=4096)  # the same few values come back in thousands of connectors
def _faults(kind: SubjectKind, values: tuple[str, ...]) -> tuple[tuple[_ValueCheck, str], ...]:
    """Return which checks fail, and why."""
    found = []
    for check, value in zip(_checks(kind), values, strict=True):
        definition = check.definition
        left_alone = "${" in value or (definition.required and not value)  # null-value tells of the latter
        if wrong := "" if left_alone else fault(definition.scope, definition.name, kind.setting.version, value):
            found.append((check, wrong))
    return tuple(found)


@lru_cache(maxsize=4096)
def _checks(kind: SubjectKind) -> tuple[_ValueCheck, ...]:
    found = ((key, *_definition(context_of(kind), kind.clients, key)) for key in kind.keys)
    return tuple(
        _ValueCheck(key, known, client, None if known.choices or known.type not in ("string", "list") else 1)
        for key, known, client in found
        if known and is_checked(known)
    )


def _definition(context: Context, clients: tuple[Client, ...], key: str) -> tuple[Key | None, Client | None]:
    known, version = load(), context.setting.version
    if what(context, key) not in ("", "misdirected-key", "key-deprecated"):
        return None, None
    for type_ in context.types:
        if own := known.find(type_, key, version):
            return own, None
    for client in clients:
        for hit in seen_by(client, key):
            if hit.key not in client.forced and (found := known.find(client.kind, hit.key, version)):
                return found, client
    return None, None


def _consequence(client: Client | None) -> str:
    if client is None:
        return "Connect refuses the config"
    if client.kind == "admin":
        return f"the connector is FAILED as soon as its {client.name} client is made"
    return f"the tasks are FAILED as soon as the {client.name} is made"


def _right(definition: Key) -> str:
    if definition.choices:
        return f"one of {', '.join(definition.choices)}"
    kind = "true or false" if definition.type == "boolean" else f"a value of type {definition.type}"
    return f"{kind} ({definition.valid})" if definition.valid else kind


@rule("missing-required", "error", source="MirrorClientConfig", seen=f"{_SEEN}test_missing_address")
def missing_required(subject: Subject) -> Iterator[Hit]:
    """Something is missing without which the connector cannot run.

    Connect refuses a config without connector.class or source.cluster.alias. Addresses it does not ask for: without
    source.cluster.bootstrap.servers (source and checkpoint connectors) or target.cluster.bootstrap.servers (all three) the
    config is accepted, and the connector is FAILED when it makes its admin client.
    """
    for key in ("connector.class", "source.cluster.alias"):
        if key not in subject.config:
            yield Hit(f"{key} is missing: Connect refuses the config", f"write {connector_key(subject, key)}")
    for side in SIDES:
        if without := [name for name, key in _addressed(subject.kind, side) if not key or not subject.get(key)]:
            message = f"no bootstrap.servers for the {' and the '.join(without)}: FAILED at start"
            yield Hit(message, f"write {cluster_key(subject, side, 'bootstrap.servers', 'host:9092,…')}")


@lru_cache(maxsize=4096)
def _addressed(kind: SubjectKind, side: ClusterSide) -> tuple[tuple[str, str], ...]:
    """Return the clients of a side, each with the key that holds its address, "" for none."""
    names = dict.fromkeys(client.name for client in kind.clients if client.side == side)
    return tuple((name, kind.winners[name].get("bootstrap.servers", "")) for name in names)


@rule(
    "target-alias-missing", "warning", source="KIP-382", seen="tests/lint/test_seen_live_pairs.py::test_loop_by_alias"
)
def target_alias_missing(subject: Subject) -> Iterator[Hit]:
    """The target has no alias, so MirrorMaker calls it `target`.

    The alias is how MirrorMaker notices that a topic came from the very cluster it writes to, and part of the name of the
    offset-syncs topic. Two clusters that are both called target are one to it: with flows in both directions topics go
    round for ever, one level of names with every refresh (seen: 11, 19, 25, 29 topics).
    """
    if "target.cluster.alias" not in subject.config:
        message = (
            "target.cluster.alias is not written: the target is called `target`, and loops through it are not noticed"
        )
        yield Hit(
            message, f"write {connector_key(subject, 'target.cluster.alias', 'the name that all flows use for it')}"
        )


@rule(
    "partial-topic-creation",
    "error",
    needs=("topic.creation.",),
    source="KIP-158",
    seen=f"{_SEEN}test_partial_topic_creation",
)
def partial_topic_creation(subject: Subject) -> Iterator[Hit]:
    """topic.creation.* is used without the two defaults that it demands.

    As soon as one key begins with topic.creation., Connect wants topic.creation.default.replication.factor and
    topic.creation.default.partitions. Validation lets the config pass and the connector is FAILED at its start (KIP-158).
    MirrorMaker creates its topics itself, so taking the keys out is mostly what is wanted.
    """
    keys = _creation_keys(subject)
    missing = [key for key in _CREATION if key not in subject.config]
    if keys and missing:
        message = f"{written(subject, keys[0])} is there and {' and '.join(missing)} is not: FAILED at start"
        yield Hit(message, f"take topic.creation.* out, or write {' and '.join(missing)} too", keys[0])


@rule(
    "topic-creation-elsewhere",
    "warning",
    needs=("topic.creation.",),
    source="KIP-158",
    seen=f"{_SEEN}test_topic_creation_elsewhere",
)
def topic_creation_elsewhere(subject: Subject) -> Iterator[Hit]:
    """topic.creation.* does not decide how MirrorMaker's topics are made.

    These keys are for Connect's own admin client, which looks on the workers' own Kafka unless admin.override.* says
    otherwise. MirrorMaker's target admin client creates the remote topics before any record is written, with the source's
    number of partitions and the connector's replication.factor. So the settings are without effect there, and where the
    workers' Kafka is another cluster, empty topics can appear on it.
    """
    keys = _creation_keys(subject)
    if keys and all(key in subject.config for key in _CREATION):
        message = "topic.creation.* makes no remote topic: MirrorMaker creates them itself, with replication.factor"
        yield Hit(
            message,
            f"take topic.creation.* out; {connector_key(subject, 'replication.factor')} is what counts",
            keys[0],
        )


def _creation_keys(subject: Subject) -> list[str]:
    return [key for key in subject.config if key.startswith("topic.creation.") and key != "topic.creation.enable"]


@rule("enabled-false", "warning", source="MirrorConnectorConfig", seen=f"{_SEEN}test_enabled_false")
def enabled_false(subject: Subject) -> Iterator[Hit]:
    """A connector is switched off by enabled=false and looks as if it ran.

    A source or checkpoint connector then makes no tasks: RUNNING with an empty list of tasks, no error. A heartbeat
    connector ignores the key and goes on. In mm2.properties this is the usual way to say that a direction is not mirrored, and is not
    told here. On Connect, pausing or stopping the connector says the same where everybody sees it.
    """
    if subject.form != "dedicated" and not subject.flag("enabled", default=True):
        beating = subject.type == "heartbeat"
        message = (
            "a heartbeat connector ignores enabled=false and beats on"
            if beating
            else "it will be RUNNING without a task"
        )
        yield Hit(
            f"enabled=false: {message}",
            "take enabled out, and stop or delete the connector to switch it off",
            "enabled",
        )


@rule("policy-class", "error", source="KIP-690", seen=f"{_SEEN}test_policy_class")
def policy_class(subject: Subject) -> Iterator[Hit]:
    """The replication policy's class is not there.

    IdentityReplicationPolicy is part of Kafka since 3.0 (KIP-690); Strimzi's class of that name was for older versions and
    is gone from its images. A class that cannot be found is refused when the config is put, and one that is misspelt within
    Kafka's own package cannot be found.
    """
    name = subject.get("replication.policy.class")
    fault = _policy_fault(subject, name)
    if fault:
        right = next(iter(get_close_matches(name, _POLICIES, 1, 0.5)), _POLICIES[1])
        fix = f"write {connector_key(subject, 'replication.policy.class', right)}"
        yield Hit(f"{name} {fault}: the connector cannot be made", fix, "replication.policy.class")


def _policy_fault(subject: Subject, name: str) -> str:
    if name == _GONE:
        return "is Strimzi's class for Kafka before 3.0 and no longer shipped"
    if name == _POLICIES[1] and numbers(subject.version) < (3, 0):
        return f"is in Kafka since 3.0 and the workers run {subject.version}"
    if name.startswith(_MIRROR) and name not in _POLICIES:
        return "is no class of Kafka"
    return ""


@rule("plugin-missing", "error", source="Connect REST API")
def plugin_missing(subject: Subject) -> Iterator[Hit]:
    """The workers do not have the connector's class.

    MirrorMaker's classes are in Kafka's connect-mirror jars; images made for Connect alone leave them out now and then. The
    workers list what they have under /connector-plugins, and refuse a config with any other class
    (400), with a list of those they know. Found only where that list is known, which is on live workers.
    """
    name, plugins = subject.get("connector.class"), subject.worker.plugins
    if name and plugins is not None and not any(_is_class(name, each) for each in plugins):
        fix = f"put the jars that have {name} (connect-mirror, connect-mirror-client) on the workers' plugin.path"
        yield Hit(f"the workers have no {name} and refuse the connector", fix, "connector.class")


def _is_class(name: str, plugin: str) -> bool:
    simple = plugin.rpartition(".")[2]
    return name in (plugin, simple, simple.removesuffix("Connector"))
