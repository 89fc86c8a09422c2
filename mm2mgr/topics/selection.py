"""The one judge of what a MirrorSourceConnector takes, and of the names of topics on both sides.

In: a filter, policy, separator, aliases, Kafka's version. Out: yes or no, and names. Sources: MirrorSourceConnector, KIP-382,
DefaultReplicationPolicy, IdentityReplicationPolicy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from mm2mgr.topics.names import Names
from mm2mgr.truth.reach import numbers
from mm2mgr.truth.versions import kafka_version

Policy = Literal["default", "identity"]
POLICIES: dict[str, Policy] = {"DefaultReplicationPolicy": "default", "IdentityReplicationPolicy": "identity"}


@dataclass(frozen=True)
class Selection:
    """What one source connector takes, its heartbeats aside. `policy` is None for a class that is not Kafka's.

    `separator` is as it is configured, "" included; `internal_separator` stands in internal names (KIP-949); `version` is the
    workers', "" for the newest.
    """

    names: Names
    policy: Policy | None
    source: str
    target: str
    separator: str = "."
    internal_separator: str = "."
    version: str = ""

    def takes(self, topic: str) -> bool:
        """Tell whether a topic of the source is mirrored (MirrorSourceConnector.shouldReplicateTopic)."""
        return self.names.takes(topic) and not self.is_internal(topic) and not self.is_cycle(topic)

    def is_internal(self, topic: str) -> bool:
        """Tell whether the policy keeps a topic back whatever the filter says (ReplicationPolicy.isInternalTopic)."""
        if topic.startswith(("__", ".")):
            return True
        if not topic.endswith("internal"):
            return False
        own = topic.endswith(f"{self.internal_separator}internal")
        if self.line >= (4, 0):  # KIP-1074
            checkpoints = f"{self.internal_separator}checkpoints{self.internal_separator}internal"
            return topic.endswith(checkpoints) or (own and topic.startswith("mm2"))
        return topic.endswith((".internal", "-internal")) or (own and self.line >= (3, 1))  # KIP-690

    def is_cycle(self, topic: str) -> bool:
        """Tell whether the policy sees that a topic has been on the target (MirrorSourceConnector.isCycle)."""
        if self.policy != "identity":
            return self.policy is not None and self.target in self._passed(topic)
        while topic.endswith("heartbeats"):  # these it reads as the default policy does
            passed = self._passed(topic)
            if not passed or passed[0] == self.target:
                return bool(passed)
            topic = topic[len(passed[0] + self.separator) :]
        return self.source == self.target  # its topicSource is the source's alias for every other topic

    def _passed(self, topic: str) -> list[str]:
        """Return what DefaultReplicationPolicy takes for the clusters that a topic went through."""
        parts = topic.split(self.separator) if self.separator else list(topic)
        while parts and not parts[-1]:  # Java's Pattern.split drops empty texts at the end
            parts.pop()
        return parts[:-1]

    def renamed(self, topic: str) -> str:
        """Return a topic's name on the target; a policy that is not known is taken for the default one."""
        if self.policy == "identity" and not topic.endswith("heartbeats"):
            return topic
        return f"{self.source}{self.separator}{topic}"

    def upstream(self, topic: str) -> str | None:
        """Return which source topic is mirrored to this topic of the target; None when none is, or the policy is not known."""
        if self.policy is None:
            return None
        upstream = topic.removeprefix(f"{self.source}{self.separator}")
        if upstream and self.renamed(upstream) == topic:
            return upstream
        return topic if self.renamed(topic) == topic else None

    def is_heartbeats(self, topic: str) -> bool:
        """Tell whether a topic holds heartbeats, the source's own or mirrored ones (ReplicationPolicy.isHeartbeatsTopic)."""
        return self.separator != "" and topic.rsplit(self.separator, maxsplit=1)[-1] == "heartbeats"

    @cached_property
    def line(self) -> tuple[int, ...]:
        """Kafka's version in numbers, greater than any when it is not known."""
        return numbers(kafka_version(self.version) or "99")
