"""Asks the brokers what one login may do: yes, no, or open, where they do not answer.

Nothing is created or altered: changing requests are sent for validation only, because brokers authorize before they validate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from mm2mgr.kafka.acls import Permission, Right
from mm2mgr.kafka.client import Kafka, batches
from mm2mgr.kafka.inspection import ClusterView, operation_names

_CODES = confluent_kafka.KafkaError
_REFUSALS = {
    _CODES.TOPIC_AUTHORIZATION_FAILED,
    _CODES.GROUP_AUTHORIZATION_FAILED,
    _CODES.CLUSTER_AUTHORIZATION_FAILED,
}
# Permission after the right was found to be there.
_LATER = {
    _CODES.TOPIC_ALREADY_EXISTS,
    _CODES.UNKNOWN_TOPIC_OR_PART,
    _CODES.INVALID_PARTITIONS,
    _CODES.INVALID_REPLICATION_FACTOR,
    _CODES.INVALID_CONFIG,
    _CODES.POLICY_VIOLATION,
}


def may(kafka: Kafka, rights: Iterable[Right], view: ClusterView) -> dict[Right, Permission]:
    """Ask for each right; KafkaError when the brokers stop answering."""
    wanted = list(dict.fromkeys(rights))
    of_topics = [right for right in wanted if right.kind == "topic"]
    said: dict[Right, Permission] = {
        right: _said(right.operation in view.operations) for right in wanted if right.kind == "cluster"
    }
    said |= {right: "open" for right in wanted if right.kind == "transactional id"}
    with kafka.doing("asking for rights"):
        said |= _of_groups(kafka, [right for right in wanted if right.kind == "group"])
        said |= _of_topics(kafka, [right for right in of_topics if right.operation != "Create"])
        said |= _asked(kafka, "Create", of_topics)  # which Create on the cluster allows too
    return said


def _of_groups(kafka: Kafka, rights: list[Right]) -> dict[Right, Permission]:
    """A group that does not exist is described as a dead one, with what this login may do to it."""
    operations: dict[str, frozenset[str]] = {}
    for names in batches(sorted({right.name for right in rights})):
        asked = kafka.admin.describe_consumer_groups(
            names, include_authorized_operations=True, request_timeout=kafka.left()
        )
        operations |= {name: _group_operations(kafka, future) for name, future in asked.items()}
    return {right: _said(right.operation in operations[right.name]) for right in rights}


def _group_operations(kafka: Kafka, future: Future[Any]) -> frozenset[str]:
    try:
        return operation_names(kafka.result(future))
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() in _REFUSALS:
            return frozenset()
        raise


def _of_topics(kafka: Kafka, rights: list[Right]) -> dict[Right, Permission]:
    """Describe returns the operations of an existing topic; for a missing one, only whether it may be described."""
    operations: dict[str, frozenset[str] | None] = {}
    for names in batches(sorted({right.name for right in rights})):
        asked = kafka.admin.describe_topics(
            confluent_kafka.TopicCollection(names), include_authorized_operations=True, request_timeout=kafka.left()
        )
        operations |= {name: _topic_operations(kafka, future) for name, future in asked.items()}
    said = {right: _read(right, operations[right.name]) for right in rights}
    for operation in ("DescribeConfigs", "AlterConfigs", "Alter"):
        said |= _asked(kafka, operation, [right for right in rights if said[right] == "open"])
    return said


def _read(right: Right, operations: frozenset[str] | None) -> Permission:
    """Read the answer from a topic's operations: None when it is missing, none when this login may not describe it."""
    if operations is None:
        return "yes" if right.operation == "Describe" else "open"
    if not operations and right.operation in _ASKED:  # a refused Describe says nothing about these
        return "open"
    return _said(right.operation in operations)


def _topic_operations(kafka: Kafka, future: Future[Any]) -> frozenset[str] | None:
    try:
        return operation_names(kafka.result(future))
    except confluent_kafka.KafkaException as error:
        code = error.args[0].code()
        if code in _REFUSALS:
            return frozenset()
        if code in (_CODES.UNKNOWN_TOPIC_OR_PART, _CODES.TOPIC_EXCEPTION):
            return None
        raise


# --- operations that are asked for by themselves ----------------------------------------------------------------------

Send = Callable[[AdminClient, list[str], float], Mapping[str, Future[Any]]]


def _asked(kafka: Kafka, operation: str, rights: Iterable[Right]) -> dict[Right, Permission]:
    said: dict[Right, Permission] = {}
    for batch in batches([right for right in rights if right.operation == operation]):
        answers = _ASKED[operation](kafka.admin, [right.name for right in batch], kafka.left())
        said |= {right: _authorized(kafka, answers[right.name]) for right in batch}
    return said


def _authorized(kafka: Kafka, future: Future[Any]) -> Permission:
    try:
        kafka.result(future)
    except confluent_kafka.KafkaException as error:
        code = error.args[0].code()
        if code in _REFUSALS:
            return "no"
        if code == _CODES.TOPIC_EXCEPTION:  # a name that no topic can have
            return "open"
        if code not in _LATER:
            raise
    return "yes"


def _create(admin: AdminClient, names: list[str], seconds: float) -> Mapping[str, Future[Any]]:
    return admin.create_topics([NewTopic(name, 1, 1) for name in names], validate_only=True, request_timeout=seconds)


def _describe_configs(admin: AdminClient, names: list[str], seconds: float) -> Mapping[str, Future[Any]]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    return {one.name: future for one, future in admin.describe_configs(resources, request_timeout=seconds).items()}


def _alter_configs(admin: AdminClient, names: list[str], seconds: float) -> Mapping[str, Future[Any]]:
    change = ConfigEntry("retention.ms", "604800000", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[change]) for name in names]
    asked = admin.incremental_alter_configs(resources, validate_only=True, request_timeout=seconds)
    return {one.name: future for one, future in asked.items()}


def _alter(admin: AdminClient, names: list[str], seconds: float) -> Mapping[str, Future[Any]]:
    return admin.create_partitions(
        [NewPartitions(name, 1) for name in names], validate_only=True, request_timeout=seconds
    )


_ASKED: dict[str, Send] = {
    "Create": _create,
    "DescribeConfigs": _describe_configs,
    "AlterConfigs": _alter_configs,
    "Alter": _alter,
}


def _said(yes: bool) -> Permission:
    return "yes" if yes else "no"
