"""One login of a Kafka cluster: what it sees there, group offsets, size limits, ACLs. In: a KafkaAccess. Out: values, or a KafkaError.

Nothing is created, written, joined or committed. What the login may do is asked in `rights`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.acls import Acl, Kind
from mm2mgr.kafka.failures import client_settings, is_refusal, is_silence

T = TypeVar("T")
_NAMES_PER_REQUEST = 1_000
_REFUSED_SECONDS = 2.0  # a refused login may still find another broker that takes it, but not for long
_KINDS: dict[Any, Kind] = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.BROKER: "cluster",  # librdkafka's name for it; the number is Kafka's CLUSTER
    ResourceType.TRANSACTIONAL_ID: "transactional id",
}
_ANY: Any = None  # the type stubs ask for text where nothing means any
_EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, _ANY, ResourcePatternType.ANY, _ANY, _ANY, AclOperation.ANY, AclPermissionType.ANY
)


@dataclass(frozen=True)
class Seen:
    """What a login sees of its cluster; `operations` is what it may do to the cluster itself.

    `had_groups`: whether Kafka's topic of group offsets is there, None when this login may not see it.
    """

    cluster_id: str
    brokers: tuple[int, ...]
    operations: frozenset[str]
    partitions: Mapping[str, int]
    groups: frozenset[str]
    had_groups: bool | None = None


class ActingAs:
    """One login's admin client, for a `with` block; calls end at the deadline that `within` set last."""

    def __init__(self, access: KafkaAccess, timeout_seconds: float = 10.0) -> None:
        self.access = access
        self.within(timeout_seconds)
        settings, self._failures = client_settings(
            access, {"socket.timeout.ms": max(1000, int(timeout_seconds * 1000))}
        )
        with self.told("the client's settings"):
            self.admin = AdminClient(settings)

    def __enter__(self) -> ActingAs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self.admin  # librdkafka closes its connections when the last reference goes

    def within(self, timeout_seconds: float) -> None:
        """Let all calls from here on end within so many seconds together."""
        self.timeout_seconds = timeout_seconds
        self._end = time.monotonic() + timeout_seconds

    def look(self) -> Seen:
        """Return what this login sees; the first call to make, for it notices a refused login early."""
        with self.told("logging in"):
            asked = self.admin.describe_cluster(include_authorized_operations=True, request_timeout=self.left())
            cluster = self._first_answer(asked)
            listed = self.admin.list_topics(timeout=self.left()).topics
            groups = self.result(self.admin.list_consumer_groups(request_timeout=self.left()))
            had_groups = self._exists("__consumer_offsets")
        return Seen(
            str(cluster.cluster_id),
            tuple(sorted(node.id for node in cluster.nodes)),
            operation_names(cluster),
            {name: len(topic.partitions) for name, topic in listed.items() if topic.partitions},
            frozenset(group.group_id for group in groups.valid),
            had_groups,
        )

    def _exists(self, topic: str) -> bool | None:
        wanted = confluent_kafka.TopicCollection([topic])
        try:
            self.result(self.admin.describe_topics(wanted, request_timeout=self.left())[topic])
        except confluent_kafka.KafkaException as error:
            if is_silence(error.args[0]):
                raise
            return False if error.args[0].code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART else None
        return True

    def topics_of(self, groups: Sequence[str]) -> dict[str, frozenset[str]]:
        """Return the topics that each group has committed offsets for; groups that this login may not read are left out."""
        with self.told("reading group offsets"):
            asked = {
                group: self.admin.list_consumer_group_offsets(
                    [confluent_kafka.ConsumerGroupTopicPartitions(group)], request_timeout=self.left()
                )[group]
                for group in groups
            }
            found = {group: self.unless_refused(future) for group, future in asked.items()}
        return {
            group: frozenset(one.topic for one in answer.topic_partitions or [])
            for group, answer in found.items()
            if answer is not None
        }

    def message_limits(self, brokers: Sequence[int], topics: Iterable[str]) -> tuple[int | None, dict[str, int]]:
        """Return the smallest message.max.bytes of the brokers and max.message.bytes per topic; None and absent: not told."""
        kind = ConfigResource.Type
        resources = [ConfigResource(kind.TOPIC, name) for name in topics]
        with self.told("reading size limits"):
            # Each broker is asked in person, so one request cannot hold two of them.
            asked = [
                self.admin.describe_configs([ConfigResource(kind.BROKER, str(one))], request_timeout=self.left())
                for one in brokers
            ]
            answers = [self.unless_refused(future) for each in asked for future in each.values()]
            limits = [int(found["message.max.bytes"].value) for found in answers if found]
            configs = {
                resource.name: self.unless_refused(future)
                for batch in batches(resources)
                for resource, future in self.admin.describe_configs(batch, request_timeout=self.left()).items()
            }
        per_topic = {name: int(found["max.message.bytes"].value) for name, found in configs.items() if found}
        return min(limits) if limits else None, per_topic

    def acls(self, seen: Seen) -> tuple[Acl, ...] | None:
        """Return every ACL of the cluster, None when this login may not read them (librdkafka shows such a refusal as none)."""
        if "Describe" not in seen.operations:
            return None
        with self.told("reading ACLs"):
            found = self.result(self.admin.describe_acls(_EVERY_ACL, request_timeout=self.left()))
        return tuple(_acl(binding) for binding in found if binding.restype in _KINDS)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _first_answer(self, future: Future[Any]) -> Any:
        give_up = time.monotonic() + _REFUSED_SECONDS
        while not future.done():
            self.admin.poll(0.05)  # delivers the background errors
            last = self._failures.last
            if last is not None and is_refusal(last) and time.monotonic() > give_up:
                raise self._failures.no_answer(_REFUSED_SECONDS)
        return self.result(future)

    def unless_refused(self, future: Future[Any]) -> Any:
        """Return an answer, None for a refusal; silence is raised."""
        try:
            return self.result(future)
        except confluent_kafka.KafkaException as error:
            if is_silence(error.args[0]):
                raise
            return None

    def left(self) -> float:
        """Return the seconds until the deadline; TimeoutError when it is over."""
        if (left := self._end - time.monotonic()) <= 0:
            raise TimeoutError
        return left

    def result(self, future: Future[Any]) -> Any:
        """Return an answer; KafkaException and TimeoutError are for `told`."""
        # librdkafka ends every request by itself; the extra second only guards against a lost callback.
        return future.result(timeout=max(0.0, self._end - time.monotonic()) + 1)

    @contextmanager
    def told(self, doing: str) -> Iterator[None]:
        """Turn the library's errors into KafkaErrors that name the cluster and what was being done."""
        try:
            yield
        except (confluent_kafka.KafkaException, TimeoutError, ValueError) as error:
            if hasattr(self, "admin"):
                self.admin.poll(0)  # delivers the background error that explains a time-out
            raise self._failures.error(error, doing, self.timeout_seconds) from error


def operation_names(described: Any) -> frozenset[str]:
    """Return authorized operations by Kafka's names (`DescribeConfigs`); none for something that may not be described."""
    found = getattr(described, "authorized_operations", None) or []
    return frozenset(_operation(each) for each in found)


def batches(names: Sequence[T]) -> Iterator[list[T]]:
    """Cut a list into what one request takes."""
    for start in range(0, len(names), _NAMES_PER_REQUEST):
        yield list(names[start : start + _NAMES_PER_REQUEST])


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
