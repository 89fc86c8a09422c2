"""What was read of an estate at one moment, as values; a failed read is a value too, so one dead cluster hides no other.

`reader` makes these, `lag`, `problems`, `health` and `describe` look at them. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mm2mgr.connect.types import ConnectorInfo, ConnectorStatus, TaskConfig
from mm2mgr.errors import Mm2mgrError
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.render import Connector
from mm2mgr.topology import Flow

ASSIGNED_KEY = "task.assigned.partitions"


@dataclass(frozen=True)
class Failure:
    """Why something could not be read, and what to do about it."""

    message: str
    hint: str | None = None

    @classmethod
    def of(cls, error: Mm2mgrError) -> Failure:
        return cls(error.message, error.hint)

    def to_dict(self) -> dict[str, str | None]:
        """Return message and hint."""
        return {"message": self.message, "hint": self.hint}


@dataclass(frozen=True)
class SeenConnector:
    """One desired connector as its Connect cluster shows it.

    `info` None: not applied. `status` None: it has none (yet). Tasks and offsets are read for source connectors only.
    """

    desired: Connector
    info: ConnectorInfo | None = None
    status: ConnectorStatus | None = None
    tasks: tuple[TaskConfig, ...] | Failure = ()
    offsets: Mapping[TopicPartition, int] | Failure = field(default_factory=dict)

    @property
    def key(self) -> str:
        """`connect/name`, unique in the estate."""
        return f"{self.desired.connect}/{self.desired.name}"

    def assigned(self) -> dict[int, tuple[TopicPartition, ...]]:
        """Return the partitions of each task; empty when the tasks could not be read."""
        if isinstance(self.tasks, Failure):
            return {}
        return {task.id: parse_assigned(task.config.get(ASSIGNED_KEY, "")) for task in self.tasks}


@dataclass(frozen=True)
class Orphan:
    """A connector with this tree's owner mark that the tree does not declare; `state` in Connect's words, or `no status`."""

    connect: str
    connector: str
    type: str
    pair: str
    topics: str
    state: str

    @property
    def runs(self) -> bool:
        """Tell whether it still does something, or would after a restart."""
        return self.state not in {"PAUSED", "STOPPED"}

    def sentence(self) -> str:
        """Say what it is, what it still does, and how to get rid of it."""
        doing = {"source": f"mirrors {self.topics}", "heartbeat": "sends heartbeats"}.get(
            self.type, "copies checkpoints"
        )
        return (
            f"the tree does not declare it, and it is {self.state}: "
            f"{f'it still {doing} {self.pair}' if self.runs else 'it does nothing until somebody resumes it'}; "
            "declare it, or delete it with mm2mgr plan --prune and mm2mgr apply --prune"
        )

    def to_dict(self) -> dict[str, str]:
        """Return the orphan as JSON-ready values."""
        return {
            "connect": self.connect,
            "connector": self.connector,
            "type": self.type,
            "pair": self.pair,
            "topics": self.topics,
            "state": self.state,
            "detail": self.sentence(),
        }


@dataclass(frozen=True)
class SeenConnect:
    """One Connect cluster; with a `failure` it has no connectors, and nothing is known about them.

    `kafka_cluster_id` is the Kafka its workers live on ("": not known). Orphans are only looked for with all flows.
    """

    name: str
    connectors: Mapping[str, SeenConnector] = field(default_factory=dict)
    failure: Failure | None = None
    kafka_cluster_id: str = ""
    orphans: tuple[Orphan, ...] = ()


@dataclass(frozen=True)
class SeenKafka:
    """One Kafka cluster: partitions per topic, topic ids (Kafka 2.8 or newer), log start and end of the partitions asked
    for, reasons for those unread."""

    topics: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, Offsets] = field(default_factory=dict)
    unread: Mapping[TopicPartition, str] = field(default_factory=dict)
    failure: Failure | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """The chosen flows of an estate at `taken_at` (seconds since 1970); `whole` when these are all of them."""

    taken_at: float
    flows: tuple[Flow, ...]
    connects: Mapping[str, SeenConnect]
    clusters: Mapping[str, SeenKafka]
    whole: bool = False

    def source_connector(self, flow: Flow) -> SeenConnector | None:
        """Return the flow's source connector; None when its Connect cluster could not be read."""
        for seen in self.connects[flow.connect.name].connectors.values():
            if seen.desired.type == "source" and flow.id in seen.desired.flows:
                return seen
        return None

    def companions(self) -> tuple[SeenConnector, ...]:
        """Return the checkpoint and heartbeat connectors that were looked at, by their names."""
        every = (seen for connect in self.connects.values() for seen in connect.connectors.values())
        return tuple(sorted((one for one in every if one.desired.type != "source"), key=lambda one: one.key))

    def failures(self) -> dict[str, Failure]:
        """Return what could not be read at all, as `connect NAME` or `kafka ALIAS`."""
        connects = {f"connect {name}": seen.failure for name, seen in self.connects.items()}
        clusters = {f"kafka {alias}": seen.failure for alias, seen in self.clusters.items()}
        return {where: failure for where, failure in (connects | clusters).items() if failure}


def parse_assigned(text: str) -> tuple[TopicPartition, ...]:
    """Read `task.assigned.partitions`: `topic-partition` joined by commas; topics may hold dashes, never commas."""
    parts = (part.strip().rpartition("-") for part in text.split(",") if part.strip())
    return tuple(TopicPartition(topic, int(number)) for topic, _, number in parts if topic and number.isdecimal())
