"""What `check` and `link read` ask brokers with each login of a tree: rights, ACLs, groups, limits, versions.

Nothing is created, written or committed. A question of a login is told from those of others by the login, and who the
brokers take it for is in the answer, because only this machine may be able to say it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from mm2mgr.errors import Failure, KafkaError, Mm2mgrError
from mm2mgr.kafka.acls import Acl, Permission, Right
from mm2mgr.kafka.inspection import (
    BrokerAddress,
    ClusterView,
    broker_addresses,
    broker_configs,
    committed_offsets,
    may,
    message_limit,
    read_acls,
    topic_configs,
    topic_limits,
    view_cluster,
)
from mm2mgr.kafka.wire import read_versions
from mm2mgr.live.principals import Principal, principal_of
from mm2mgr.live.questions import KafkaQuestion, LoginQuestion
from mm2mgr.live.reach import KafkaReach

Answer_co = TypeVar("Answer_co", covariant=True)
Permissions = dict[str, dict[str, dict[str, Permission]]]
"""What brokers answered about rights, by kind of resource, its name, and operation."""
_VERSIONS_SECONDS = 5.0


@dataclass(frozen=True)
class LoggedIn:
    """What became of a login. Not `is_usable`: its settings cannot be used on this machine, so no login was tried."""

    principal: Principal
    view: ClusterView | None = None
    failure: Failure | None = None
    is_usable: bool = True


class LogIn(LoginQuestion[LoggedIn]):
    """What a login sees of its cluster, or why it does not get in."""

    def ask(self, reach: KafkaReach) -> LoggedIn:
        principal = principal_of(reach.access)
        try:
            kafka = reach.kafka
        except Mm2mgrError as error:
            return LoggedIn(principal, failure=Failure.from_error(error), is_usable=False)
        try:
            return LoggedIn(principal, view_cluster(kafka))
        except Mm2mgrError as error:
            return LoggedIn(principal, failure=Failure.from_error(error))


@dataclass(frozen=True)
class ViewQuestion(LoginQuestion[Answer_co]):
    """A question that needs to know what its login sees; a file has the answers to all that was asked of a kind."""

    view: ClusterView = field(default=ClusterView("", (), frozenset(), {}, frozenset()), compare=False, repr=False)


@dataclass(frozen=True)
class RightsOf(ViewQuestion[Permissions]):
    """Which of some rights a login has."""

    rights: tuple[Right, ...] = ()

    def as_stored(self) -> LoginQuestion[Permissions]:
        return replace(super().as_stored(), rights=())  # type: ignore[call-arg]

    def ask(self, reach: KafkaReach) -> Permissions:
        permissions: Permissions = {}
        for right, permission in may(reach.kafka, self.rights, self.view).items():
            permissions.setdefault(right.kind, {}).setdefault(right.name, {})[right.operation] = permission
        return permissions


class EveryAcl(ViewQuestion[tuple[Acl, ...] | None]):
    """All ACLs of a cluster, None where a login may not read them."""

    def ask(self, reach: KafkaReach) -> tuple[Acl, ...] | None:
        return read_acls(reach.kafka, self.view)


@dataclass(frozen=True)
class TopicsOfGroups(LoginQuestion[dict[str, tuple[str, ...]]]):
    """The topics on which groups committed offsets; groups that a login may not read are left out."""

    groups: tuple[str, ...] = ()

    def as_stored(self) -> LoginQuestion[dict[str, tuple[str, ...]]]:
        return replace(super().as_stored(), groups=())  # type: ignore[call-arg]

    def ask(self, reach: KafkaReach) -> dict[str, tuple[str, ...]]:
        offsets = committed_offsets(reach.kafka, self.groups)
        return {
            group: tuple(dict.fromkeys(partition.topic for partition in partitions))
            for group, partitions in offsets.items()
        }


@dataclass(frozen=True)
class LimitsRead:
    """The smallest message.max.bytes of brokers (None: not readable), and settings of topics, which are mostly alike.

    `by_topic` has what differs from `common`; None: the topic has no such key.
    """

    message_max_bytes: int | None
    common: Mapping[str, str]
    by_topic: Mapping[str, Mapping[str, str | None]]

    @classmethod
    def from_topics(cls, message_max_bytes: int | None, topics: Mapping[str, Mapping[str, str]]) -> LimitsRead:
        """Return it without what repeats."""
        counts = Counter(item for settings in topics.values() for item in settings.items())
        common = {key: value for (key, value), _ in reversed(counts.most_common())}
        by_topic = {
            topic: {key: settings.get(key) for key in common if settings.get(key) != common[key]}
            for topic, settings in topics.items()
        }
        return cls(message_max_bytes, common, by_topic)

    def settings(self, topic: str) -> dict[str, str]:
        """Return all settings of a topic."""
        every = {**self.common, **self.by_topic[topic]}
        return {key: value for key, value in every.items() if value is not None}


@dataclass(frozen=True)
class LimitsOf(ViewQuestion[LimitsRead]):
    """What brokers and topics take, as far as a login may read it."""

    topics: tuple[str, ...] = ()

    def as_stored(self) -> LoginQuestion[LimitsRead]:
        return replace(super().as_stored(), topics=())  # type: ignore[call-arg]

    def ask(self, reach: KafkaReach) -> LimitsRead:
        settings = topic_configs(reach.kafka, self.topics)
        return LimitsRead.from_topics(
            message_limit(reach.kafka, self.view.brokers),
            {topic: dict(topic_settings.values) for topic, topic_settings in settings.items()},
        )


class RequestVersions(LoginQuestion[dict[int, tuple[int, int]] | None]):
    """Which versions of requests all brokers take, which they say before any login; None where none does."""

    def ask(self, reach: KafkaReach) -> dict[int, tuple[int, int]] | None:
        versions = read_versions(reach.access, min(_VERSIONS_SECONDS, reach.limits.kafka_seconds))
        return None if versions is None else dict(versions)


# --- brokers, as mm2mgr's own login -----------------------------------------------------------------------------------


class Brokers(KafkaQuestion[tuple[BrokerAddress, ...]]):
    """The brokers of a cluster, by id."""

    def ask(self, reach: KafkaReach) -> tuple[BrokerAddress, ...]:
        return broker_addresses(reach.kafka)


class BrokerSettings(KafkaQuestion[dict[int, dict[str, str]]]):
    """The settings that brokers run with, by their ids."""

    def ask(self, reach: KafkaReach) -> dict[int, dict[str, str]]:
        configs = broker_configs(reach.kafka, [broker.id for broker in broker_addresses(reach.kafka)])
        if not configs:
            message = f"{self.cluster}: this login may not read the brokers' settings"
            raise KafkaError(message, hint="it needs DescribeConfigs on the cluster")
        return configs


@dataclass(frozen=True)
class RecordLimits(KafkaQuestion[dict[str, int]]):
    """max.message.bytes of topics; absent: there is no such topic, or its settings may not be read."""

    topics: tuple[str, ...]

    def ask(self, reach: KafkaReach) -> dict[str, int]:
        return topic_limits(reach.kafka, self.topics)
