"""What a MirrorSourceConnector takes, and the names of topics on both sides; machines of what it leaves out.

Sources: MirrorSourceConnector, KIP-382, DefaultReplicationPolicy, IdentityReplicationPolicy. Tests hold `takes` and the
machines together."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from mm2mgr.topics.automaton import Both, Literals, Machine
from mm2mgr.topics.names import Items, NameFilter, machine_of
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import numbers

PolicyName = Literal["default", "identity"]
POLICIES: dict[str, PolicyName] = {"DefaultReplicationPolicy": "default", "IdentityReplicationPolicy": "identity"}


@dataclass(frozen=True)
class Selection:
    """What one source connector takes, its heartbeats aside. `policy` is None for a class that is not Kafka's.

    `separator` is as it is configured, "" included; `internal_separator` stands in internal names (KIP-949); `version` is the
    workers', "" for the newest.
    """

    names: NameFilter
    policy: PolicyName | None
    source: str
    target: str
    separator: str = "."
    internal_separator: str = "."
    version: str = ""

    def takes(self, topic: str) -> bool:
        """Tell whether a topic of the source is mirrored (MirrorSourceConnector.shouldReplicateTopic)."""
        return self.names.takes(topic) and not self.is_internal(topic) and not self.is_cycle(topic)

    def is_internal(self, topic: str) -> bool:
        """Tell whether the policy excludes a topic whatever the filter says (ReplicationPolicy.isInternalTopic)."""
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
        """Tell whether the policy recognises that a topic was on the target before (MirrorSourceConnector.isCycle)."""
        if self.policy != "identity":
            return self.policy is not None and self.target in self._passed(topic)
        while topic.endswith("heartbeats"):  # these it reads as the default policy does
            passed = self._passed(topic)
            if not passed or passed[0] == self.target:
                return bool(passed)
            topic = topic[len(passed[0] + self.separator) :]
        return self.source == self.target  # its topicSource is the source's alias for every other topic

    def _passed(self, topic: str) -> list[str]:
        """Return the clusters in a topic's name as DefaultReplicationPolicy reads them."""
        parts = topic.split(self.separator) if self.separator else list(topic)
        while parts and not parts[-1]:  # Java's Pattern.split drops empty texts at the end
            parts.pop()
        return parts[:-1]

    @property
    def prefix(self) -> str:
        """What the policy puts before a topic's name on the target; identity puts it before heartbeats only."""
        return "" if self.policy == "identity" else f"{self.source}{self.separator}"

    def renamed(self, topic: str) -> str:
        """Return a topic's name on the target; an unknown policy counts as the default one."""
        if self.policy == "identity" and topic.endswith("heartbeats"):
            return f"{self.source}{self.separator}{topic}"
        return f"{self.prefix}{topic}"

    def names_alike(self, other: Selection, topic: str) -> bool:
        """Tell whether two source connectors give a topic the same name on the target."""
        return self.renamed(topic) == other.renamed(topic)

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


@lru_cache(maxsize=4096)
def refused_by(selection: Selection) -> tuple[Machine, ...]:
    """Return machines of excluded names that match the include list; irregular exclude patterns are missing."""
    names = selection.names
    literals = [name for name in names.unwanted.literals if names.wanted(name)]
    regular = tuple(item for item in names.unwanted.patterns if machine_of((item,)))
    found = [machine_of((*regular, *_internal(selection))), _cycle(selection), Literals(literals) if literals else None]
    return tuple(machine for machine in found if machine)


def _internal(selection: Selection) -> Items:
    mark = f"\\Q{selection.internal_separator}\\E"
    if selection.line >= (4, 0):
        return "__.*", r"\..*", f".*{mark}checkpoints{mark}internal", f"mm2.*{mark}internal"
    return "__.*", r"\..*", r".*[.-]internal", *((f".*{mark}internal",) if selection.line >= (3, 1) else ())


def _cycle(selection: Selection) -> Machine | None:
    if selection.policy == "identity" and selection.source == selection.target:
        return machine_of((".*",))
    return _cycles(selection.policy, selection.target, selection.separator) if selection.policy else None


@lru_cache(maxsize=1024)
def _cycles(policy: PolicyName, target: str, separator: str) -> Machine | None:
    heartbeats = machine_of((".*heartbeats",))
    by_default = _Cycle(target, separator)
    return by_default if policy == "default" else Both(by_default, heartbeats) if heartbeats else None


class _Cycle:
    """The topics that DefaultReplicationPolicy takes for ones that have been on the target, as a machine (`Selection.is_cycle`)."""

    start: Hashable = ("maybe", "")

    def __init__(self, target: str, separator: str) -> None:
        self._target, self._separator = target, separator
        self.letters = frozenset(frozenset(char) for char in target + separator)

    def step(self, state: Hashable, char: str) -> Hashable:
        """States: a part that `maybe` becomes the target's alias, an `other` part, what is read `behind` that alias, `seen`."""
        assert isinstance(state, tuple)
        kind, read = state
        text = read + char
        if kind == "seen" or (kind == "behind" and not self._separator.startswith(text)):
            return "seen", ""
        if not self._separator:  # each letter is a part
            return ("behind", "") if char == self._target else ("other", "")
        if kind == "behind":
            return kind, "" if text == self._separator else text
        if text.endswith(self._separator):
            return ("behind", "") if kind == "maybe" and text == self._target + self._separator else self.start
        if kind == "maybe" and (self._target + self._separator).startswith(text):
            return kind, text
        return "other", next(text[at:] for at in range(len(text) + 1) if self._separator.startswith(text[at:]))

    def accepts(self, state: Hashable) -> bool:
        assert isinstance(state, tuple)
        kind, read = state
        return bool(kind == "seen" or (kind == "behind" and read))
