"""What one login sees of a Kafka cluster (brokers, topics, groups, limits, ACLs), and may do: yes, no, or open.

Nothing is created, altered or committed: changing requests are sent for validation only, because brokers authorize
before they validate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import confluent_kafka
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.acls import Acl, Permission, ResourceKind, Right, TopicSettings
from mm2mgr.kafka.client import Kafka, batches
from mm2mgr.kafka.groups import group_offsets
from mm2mgr.partitions import TopicPartition

_KINDS: dict[object, ResourceKind] = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.BROKER: "cluster",  # librdkafka's name for it; the number is Kafka's CLUSTER
    ResourceType.TRANSACTIONAL_ID: "transactional id",
}
_ANY: Any = None  # the type stubs ask for text where nothing means any
_EVERY_ACL, _EVERY_LITERAL_TOPIC_ACL = (
    AclBindingFilter(kind, _ANY, pattern, _ANY, _ANY, AclOperation.ANY, AclPermissionType.ANY)
    for kind, pattern in (
        (ResourceType.ANY, ResourcePatternType.ANY),
        (ResourceType.TOPIC, ResourcePatternType.LITERAL),
    )
)
_CODES = confluent_kafka.KafkaError
_REFUSALS = (_CODES.TOPIC_AUTHORIZATION_FAILED, _CODES.GROUP_AUTHORIZATION_FAILED, _CODES.CLUSTER_AUTHORIZATION_FAILED)
_REFUSED = dict.fromkeys(_REFUSALS, frozenset[str]())
_OF_ANOTHER_KIND = dict.fromkeys((_CODES._INVALID_ARG,))  # librdkafka: "is not a consumer group (connect)"
_MISSING = dict.fromkeys((_CODES.UNKNOWN_TOPIC_OR_PART, _CODES.TOPIC_EXCEPTION))
# After the right was found to be there.
_LATER = (
    _CODES.TOPIC_ALREADY_EXISTS,
    _CODES.UNKNOWN_TOPIC_OR_PART,
    _CODES.INVALID_PARTITIONS,
    _CODES.INVALID_REPLICATION_FACTOR,
    _CODES.INVALID_CONFIG,
    _CODES.POLICY_VIOLATION,
)
_PERMISSIONS: Mapping[int, Permission] = {
    **dict.fromkeys(_REFUSALS, "no"),
    **dict.fromkeys(_LATER, "yes"),
    _CODES.TOPIC_EXCEPTION: "open",  # a name that no topic can have
}
T = TypeVar("T")
Entries: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class ClusterView:
    """What a login sees of its cluster; `operations` are those that it may do on the cluster itself.

    `had_groups`: whether Kafka's topic of group offsets exists, None when this login may not see it.
    """

    cluster_id: str
    brokers: tuple[int, ...]
    operations: frozenset[str]
    partitions: Mapping[str, int]
    groups: frozenset[str]
    had_groups: bool | None = None


def view_cluster(kafka: Kafka) -> ClusterView:
    """Return what this login sees; the first call to make, for it notices a refused login early."""
    with kafka.doing("logging in"):
        asked = kafka.admin.describe_cluster(include_authorized_operations=True, request_timeout=kafka.seconds_left())
        cluster = kafka.first_answer(asked, while_down=True)
        listed = kafka.admin.list_topics(timeout=kafka.seconds_left()).topics
        groups = kafka.result(kafka.admin.list_consumer_groups(request_timeout=kafka.seconds_left()))
        topic = confluent_kafka.TopicCollection(["__consumer_offsets"])
        (offsets_topic,) = kafka.admin.describe_topics(topic, request_timeout=kafka.seconds_left()).values()
        described = kafka.unless_refused(offsets_topic, absent=False)
    return ClusterView(
        str(cluster.cluster_id),
        tuple(sorted(node.id for node in cluster.nodes)),
        _operation_names(cluster),
        {name: len(topic.partitions) for name, topic in listed.items() if topic.partitions},
        frozenset(group.group_id for group in groups.valid),
        None if described is None else bool(described),
    )


def group_members(kafka: Kafka, group: str) -> int:
    """Return how many members a group of any kind has now; 0 for one that does not exist."""
    with kafka.doing(f"describing group {group}"):
        # describe_consumer_groups refuses groups of Connect workers: "is not a consumer group (connect)".
        return sum(
            len(description.members)
            for description in kafka.admin.list_groups(group=group, timeout=kafka.seconds_left())
        )


def committed_offsets(kafka: Kafka, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Return the next offset that each group reads, by partition; groups that this login may not read are left out."""
    return {group: dict(offsets) for group, offsets in group_offsets(kafka, groups).offsets.items()}


@dataclass(frozen=True)
class BrokerAddress:
    """One broker, as its cluster says that it is reached."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def broker_addresses(kafka: Kafka) -> tuple[BrokerAddress, ...]:
    """Return the brokers by id, which any login may ask for; to be called first, as it notices a refused login."""
    brokers = sorted(kafka.listing().brokers.values(), key=lambda broker: int(broker.id))
    return tuple(BrokerAddress(broker.id, str(broker.host), broker.port) for broker in brokers)


def broker_configs(kafka: Kafka, brokers: Iterable[int]) -> dict[int, dict[str, str]]:
    """Return the settings that brokers run with, by broker; absent: this login may not read them."""
    with kafka.doing("reading the brokers' settings"):
        # Each broker is asked in person, so one request cannot hold two of them.
        asked = {
            broker: kafka.admin.describe_configs(
                [ConfigResource(ConfigResource.Type.BROKER, str(broker))], request_timeout=kafka.seconds_left()
            )
            for broker in brokers
        }
        answers = {
            broker: kafka.unless_refused(future) for broker, futures in asked.items() for future in futures.values()
        }
    return {
        broker: {key: entry.value for key, entry in entries.items() if entry.value is not None}
        for broker, entries in answers.items()
        if entries
    }


def _topic_entries(kafka: Kafka, topics: Iterable[str], absent: Entries | None = None) -> dict[str, Entries | None]:
    """Return the config entries of topics, many with one request: None for a topic whose configs this login may not
    read, `absent` for one that is not there. Inside `kafka.doing`."""
    return {
        name: kafka.unless_refused(future, absent=absent)
        for names in batches(sorted(topics))
        for name, future in _describe_configs(kafka.admin, names, kafka.seconds_left()).items()
    }


def topic_configs(kafka: Kafka, topics: Collection[str]) -> dict[str, TopicSettings]:
    """Return the settings of topics; absent: there is no such topic, or this login may not read its settings."""
    with kafka.doing("reading topic configs"):
        entries_of = _topic_entries(kafka, topics)
    return {name: _settings(entries) for name, entries in entries_of.items() if entries}


def _settings(entries: Entries) -> TopicSettings:
    shown = {key: entry for key, entry in entries.items() if entry.value is not None and not entry.is_sensitive}
    on_topic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return TopicSettings(
        {key: entry.value for key, entry in shown.items()},
        {key: entry.value for key, entry in shown.items() if entry.source == on_topic},
    )


def topic_limits(kafka: Kafka, topics: Iterable[str]) -> dict[str, int]:
    """Return max.message.bytes per topic; absent: there is no such topic, or this login may not read its settings."""
    with kafka.doing("reading size limits"):
        configs = _topic_entries(kafka, topics)
    return {name: int(entries["max.message.bytes"].value) for name, entries in configs.items() if entries}


def translated_groups(kafka: Kafka, is_taken: Callable[[str], bool], carried: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the wanted groups that committed offsets on a topic that is carried, by name."""
    with kafka.doing("listing consumer groups"):
        asked = kafka.admin.list_consumer_groups(request_timeout=kafka.seconds_left())
        listed = kafka.first_answer(asked, while_down=False).valid
    offsets = committed_offsets(kafka, sorted(group.group_id for group in listed if is_taken(group.group_id)))
    return tuple(
        group for group, partitions in offsets.items() if any(carried(partition.topic) for partition in partitions)
    )


def message_limit(kafka: Kafka, brokers: Sequence[int]) -> int | None:
    """Return the smallest message.max.bytes of the brokers, None where this login may not read it."""
    return min((int(config["message.max.bytes"]) for config in broker_configs(kafka, brokers).values()), default=None)


def find_compacted(
    access: KafkaAccess, topics: Collection[str], timeout_seconds: float = 10.0
) -> frozenset[str] | None:
    """Return the compacted ones, whose offsets do not count records; None when a topic's config is refused."""
    with Kafka(access, timeout_seconds) as kafka, kafka.doing("reading topic configs"):
        kafka.limit_time(timeout_seconds)
        configs_of = _topic_entries(kafka, topics, absent={})
    if any(configs is None for configs in configs_of.values()):
        return None
    return frozenset(
        name for name, configs in configs_of.items() if configs and "compact" in configs["cleanup.policy"].value
    )


def retention(kafka: Kafka, topics: Collection[str]) -> dict[str, float | None]:
    """Return for how many seconds each topic keeps a record, None: for ever; absent: gone, or not readable."""
    seconds_of: dict[str, float | None] = {}
    with kafka.doing("reading retention"):
        entries = _topic_entries(kafka, topics)
    for name, configs in entries.items():
        if configs:
            kept_ms = int(configs["retention.ms"].value) if "retention.ms" in configs else -1
            deletes = kept_ms >= 0 and "delete" in configs["cleanup.policy"].value
            seconds_of[name] = kept_ms / 1000 if deletes else None
    return seconds_of


def expiring(kafka: Kafka, next_offsets: Mapping[TopicPartition, int], seconds: float) -> list[TopicPartition]:
    """Return partitions whose records from these offsets on retention.ms deletes within so many seconds."""
    retention_of = retention(kafka, {partition.topic for partition in next_offsets})
    until_ms = int((time.time() + seconds) * 1000)
    kept_ms = {name: round(1000 * seconds) for name, seconds in retention_of.items() if seconds is not None}
    since = {p: until_ms - kept_ms[p.topic] for p in next_offsets if p.topic in kept_ms}
    ends, first = kafka.offsets(since), kafka.offsets_since(since)
    left = {
        partition: first[partition] if first[partition] >= 0 else ends[partition].end
        for partition in first
        if partition in ends
    }
    return sorted(partition for partition, offset in left.items() if next_offsets[partition] < offset)


def read_acls(kafka: Kafka, view: ClusterView) -> tuple[Acl, ...] | None:
    """Return every ACL of the cluster, None when this login may not read them (librdkafka shows none)."""
    with kafka.doing("reading ACLs"):
        return _acls(kafka, view.operations, _EVERY_ACL)


def cluster_acls(kafka: Kafka) -> tuple[Acl, ...] | None:
    """Return every ACL of the cluster, none where it has no authorizer; None where this login may not read them."""
    with kafka.doing("reading ACLs"):
        asked = kafka.admin.describe_cluster(include_authorized_operations=True, request_timeout=kafka.seconds_left())
        try:
            return _acls(kafka, _operation_names(kafka.result(asked)), _EVERY_ACL)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != _CODES.SECURITY_DISABLED:
                raise
            return ()


def topic_acls(kafka: Kafka, topics: Collection[str]) -> dict[str, frozenset[Acl]]:
    """Return the literal ACLs of each of these topics; nothing when this login may not read them."""
    with kafka.doing("reading ACLs"):
        asked = kafka.admin.describe_cluster(include_authorized_operations=True, request_timeout=kafka.seconds_left())
        acls = _acls(kafka, _operation_names(kafka.result(asked)), _EVERY_LITERAL_TOPIC_ACL)
    by_topic: dict[str, set[Acl]] = {name: set() for name in topics}
    for acl in acls or ():
        if acl.name in by_topic:
            by_topic[acl.name].add(acl)
    return {} if acls is None else {name: frozenset(principals) for name, principals in by_topic.items()}


def _acls(kafka: Kafka, operations: Collection[str], pattern: AclBindingFilter) -> tuple[Acl, ...] | None:
    if "Describe" not in operations:
        return None
    bindings = kafka.result(kafka.admin.describe_acls(pattern, request_timeout=kafka.seconds_left()))
    return tuple(_acl(binding) for binding in bindings if binding.restype in _KINDS)


def _operation_names(described: object) -> frozenset[str]:
    """Return authorized operations by Kafka's names (`DescribeConfigs`); none where Describe is refused."""
    operations = getattr(described, "authorized_operations", None) or []
    return frozenset(_operation(operation) for operation in operations)


def _operation(operation: Any) -> str:
    return "".join(word.capitalize() for word in operation.name.split("_"))


def _acl(binding: Any) -> Acl:
    return Acl(
        binding.principal,
        binding.host,
        _operation(binding.operation),
        _KINDS[binding.restype],
        binding.name,
        binding.resource_pattern_type == ResourcePatternType.PREFIXED,
        binding.permission_type == AclPermissionType.ALLOW,
    )


def refused_topics(kafka: Kafka, topics: Iterable[str]) -> tuple[str, ...]:
    """Return those of the topics that this login may not describe, whether or not they exist."""
    with kafka.doing("describing topics"):
        return tuple(
            name
            for names in batches(sorted(topics))
            for name, future in kafka.admin.describe_topics(
                confluent_kafka.TopicCollection(names), request_timeout=kafka.seconds_left()
            ).items()
            if not _by_code(
                kafka, future, lambda _: True, {**dict.fromkeys(_MISSING, True), **dict.fromkeys(_REFUSALS, False)}
            )
        )


def _by_code(kafka: Kafka, future: Future[Any], judged: Callable[[Any], T], by_code: Mapping[int, T]) -> T:
    try:
        return judged(kafka.result(future))
    except confluent_kafka.KafkaException as error:
        code = error.args[0].code()
        if code not in by_code:
            raise
        return by_code[code]


def may(kafka: Kafka, rights: Iterable[Right], view: ClusterView) -> dict[Right, Permission]:
    """Ask for each right; KafkaError when the brokers stop answering."""
    distinct = list(dict.fromkeys(rights))
    of_topics = [right for right in distinct if right.kind == "topic"]
    permissions: dict[Right, Permission] = {}
    with kafka.doing("asking for rights"):
        permissions |= {right: _of_cluster(kafka, right, view) for right in distinct if right.kind == "cluster"}
    permissions |= {right: "open" for right in distinct if right.kind == "transactional id"}
    with kafka.doing("asking for rights"):
        permissions |= _of_groups(kafka, [right for right in distinct if right.kind == "group"])
        permissions |= _of_topics(kafka, [right for right in of_topics if right.operation != "Create"])
        permissions |= _ask_operation(kafka, "Create", of_topics)  # which Create on the cluster allows too
    return permissions


def _of_cluster(kafka: Kafka, right: Right, view: ClusterView) -> Permission:
    """Brokers return the cluster's operations only to who may describe it; else rights on its settings are asked."""
    if "Describe" in view.operations or right.operation not in {"DescribeConfigs", "AlterConfigs"}:
        return _permission(right.operation in view.operations)
    change = ConfigEntry("background.threads", "10", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ConfigResource.Type.BROKER, str(view.brokers[0]), incremental_configs=[change])
    if right.operation == "DescribeConfigs":
        asked = kafka.admin.describe_configs([broker], request_timeout=kafka.seconds_left())
    else:
        asked = kafka.admin.incremental_alter_configs(
            [broker], validate_only=True, request_timeout=kafka.seconds_left()
        )
    (future,) = asked.values()
    return _by_code(kafka, future, lambda _: "yes", _PERMISSIONS)


def _of_groups(kafka: Kafka, rights: list[Right]) -> dict[Right, Permission]:
    """A group that does not exist is described as a dead one, with what this login may do to it."""
    operations: dict[str, frozenset[str] | None] = {}
    for names in batches(sorted({right.name for right in rights})):
        asked = kafka.admin.describe_consumer_groups(
            names, include_authorized_operations=True, request_timeout=kafka.seconds_left()
        )
        operations |= {
            name: _by_code(kafka, future, _operation_names, _REFUSED | _OF_ANOTHER_KIND)
            for name, future in asked.items()
        }
    return {right: _of_group(right, operations[right.name]) for right in rights}


def _of_group(right: Right, operations: frozenset[str] | None) -> Permission:
    """Read the answer from a group's operations, which brokers give of consumer groups only: None for one of workers,
    such as a dedicated MirrorMaker's. Who may not describe a group is not told its kind.
    """
    if operations is None:
        return "yes" if right.operation == "Describe" else "open"
    return _permission(right.operation in operations)


def _of_topics(kafka: Kafka, rights: list[Right]) -> dict[Right, Permission]:
    """Describe returns the operations of an existing topic; for a missing one, only whether it may be described."""
    operations: dict[str, frozenset[str] | None] = {}
    for names in batches(sorted({right.name for right in rights})):
        asked = kafka.admin.describe_topics(
            confluent_kafka.TopicCollection(names),
            include_authorized_operations=True,
            request_timeout=kafka.seconds_left(),
        )
        operations |= {
            name: _by_code(kafka, future, _operation_names, _REFUSED | _MISSING) for name, future in asked.items()
        }
    permissions = {right: _read(right, operations[right.name]) for right in rights}
    for operation in ("DescribeConfigs", "AlterConfigs", "Alter"):
        permissions |= _ask_operation(kafka, operation, [right for right in rights if permissions[right] == "open"])
    return permissions


def _read(right: Right, operations: frozenset[str] | None) -> Permission:
    """Read the answer from a topic's operations: None when it is missing, none when this login may not describe it."""
    if operations is None:
        return "yes" if right.operation == "Describe" else "open"
    if not operations and right.operation in _ASKED:  # a refused Describe says nothing about these
        return "open"
    return _permission(right.operation in operations)


# --- operations that are asked for by themselves ----------------------------------------------------------------------

Send = Callable[[AdminClient, list[str], float], Mapping[str, Future[object]]]


def _ask_operation(kafka: Kafka, operation: str, rights: Iterable[Right]) -> dict[Right, Permission]:
    permissions: dict[Right, Permission] = {}
    for batch in batches([right for right in rights if right.operation == operation]):
        answers = _ASKED[operation](kafka.admin, [right.name for right in batch], kafka.seconds_left())
        permissions |= {right: _by_code(kafka, answers[right.name], lambda _: "yes", _PERMISSIONS) for right in batch}
    return permissions


def _create(admin: AdminClient, names: list[str], seconds: float) -> Mapping[str, Future[object]]:
    return admin.create_topics([NewTopic(name, 1, 1) for name in names], validate_only=True, request_timeout=seconds)


def _describe_configs(admin: AdminClient, names: list[str], seconds: float) -> Mapping[str, Future[Any]]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    return {
        resource.name: future for resource, future in admin.describe_configs(resources, request_timeout=seconds).items()
    }


def _alter_configs(admin: AdminClient, names: list[str], seconds: float) -> Mapping[str, Future[object]]:
    change = ConfigEntry("retention.ms", "604800000", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[change]) for name in names]
    asked = admin.incremental_alter_configs(resources, validate_only=True, request_timeout=seconds)
    return {resource.name: future for resource, future in asked.items()}


def _alter(admin: AdminClient, names: list[str], seconds: float) -> Mapping[str, Future[object]]:
    return admin.create_partitions(
        [NewPartitions(name, 1) for name in names], validate_only=True, request_timeout=seconds
    )


_ASKED: dict[str, Send] = {
    "Create": _create,
    "DescribeConfigs": _describe_configs,
    "AlterConfigs": _alter_configs,
    "Alter": _alter,
}


def _permission(yes: bool) -> Permission:
    return "yes" if yes else "no"
