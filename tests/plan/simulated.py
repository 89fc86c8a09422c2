"""What MirrorMaker's source connectors do with records, transcribed from Kafka's sources: selection, naming, start offsets.

In: a World of Kafka clusters whose records are ids, and the connectors that run. Out: the same World after them, and a Run
that says who wrote what. It shares no code with mm2mgr, whose plans it judges.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

ROUNDS = 12  # more hops than any way through four clusters under two aliases each has
MOST_WRITES = 3000

Topics = dict[str, list[list[str]]]
"""Topic → partitions → ids of the records in log order."""
Named = tuple[str, str]
"""Connect cluster and connector."""
Stored = tuple[str, str, str, str, int]
"""What an offset is stored under: Connect cluster, connector, source alias, topic, partition (MirrorUtils.wrapPartition)."""


@dataclass(frozen=True)
class Connector:
    """A source connector as its worker has it. `kafka` is the workers' own cluster, `version` that of their MirrorMaker."""

    connect: str
    name: str
    config: Mapping[str, str] = field(repr=False)
    kafka: str = ""
    version: str = "4.3.1"
    running: bool = True

    @property
    def key(self) -> Named:
        return self.connect, self.name

    @property
    def source(self) -> str:
        return self.config["source.cluster.alias"]

    @property
    def target(self) -> str:
        return self.config.get("target.cluster.alias", "target")

    def __str__(self) -> str:
        return f"{self.connect}/{self.name}"


@dataclass
class World:
    """Kafka clusters by name, which addresses are theirs, and the offsets that Connect stores."""

    clusters: dict[str, Topics]
    addresses: dict[str, str]
    offsets: dict[Stored, int] = field(default_factory=dict)

    def copy(self) -> World:
        return World(deepcopy(self.clusters), self.addresses, dict(self.offsets))

    def produce(self, cluster: str, topic: str, *ids: str, partition: int = 0) -> None:
        log = _partition(self.clusters[cluster], topic, partition)
        log += ids

    def at(self, servers: str) -> str:
        """Return the cluster that `bootstrap.servers` lead to."""
        return self.addresses[servers.split(",", maxsplit=1)[0].strip()]

    def repeated(self) -> Counter[tuple[str, str, str]]:
        """Count the copies, where there are several, by cluster, topic and id."""
        counts = Counter(
            (cluster, topic, id_)
            for cluster, topics in self.clusters.items()
            for topic, partitions in topics.items()
            for log in partitions
            for id_ in log
        )
        return Counter({key: count for key, count in counts.items() if count > 1})


@dataclass(frozen=True)
class Write:
    """One record that a connector wrote."""

    by: Named
    source: str
    topic: str
    partition: int
    offset: int
    target: str
    remote: str
    id: str


@dataclass
class Run:
    """What connectors wrote until nothing changed, and what was still being written when it was given up."""

    writes: list[Write] = field(default_factory=list)
    growing: dict[tuple[str, str], set[Named]] = field(default_factory=dict)
    """Cluster and topic → who writes it without end; empty when everything came to rest."""
    began: set[tuple[Named, str, str, str, int]] = field(default_factory=set)
    """Who read a partition from its start: connector, target, source cluster, topic, partition."""


def run(world: World, connectors: Iterable[Connector]) -> Run:
    """Let the connectors work until nothing is left to mirror; a topic that grows by itself is given up after some rounds."""
    working = sorted((each for each in connectors if _works(each)), key=lambda each: each.key)
    found = Run()
    for _ in range(ROUNDS):
        before = len(found.writes)
        for connector in working:
            _mirror(world, connector, found)
            if len(found.writes) > MOST_WRITES:
                break
        if len(found.writes) == before:
            return found
    for write in found.writes[before:]:
        found.growing.setdefault((write.target, write.remote), set()).add(write.by)
    return found


def _works(connector: Connector) -> bool:
    kind = connector.config.get("connector.class", "").rpartition(".")[2]
    enabled = connector.config.get("enabled", "true").lower() == "true"
    return connector.running and enabled and kind == "MirrorSourceConnector"


def _mirror(world: World, connector: Connector, found: Run) -> None:
    """MirrorSourceTask.poll for every partition: all records from the last stored offset on."""
    config = connector.config
    source = world.at(config["source.cluster.bootstrap.servers"])
    # Connect's own producer writes them, so without an override they go to the workers' Kafka.
    servers = config.get("producer.override.bootstrap.servers")
    target = world.at(servers) if servers else connector.kafka
    for topic in [topic for topic in world.clusters[source] if replicates(connector, topic)]:
        remote = remote_name(connector, topic)
        for number in range(len(world.clusters[source][topic])):
            stored = (*connector.key, connector.source, topic, number)
            log = world.clusters[source][topic][number]
            copies = _partition(world.clusters[target], remote, number)
            start = world.offsets.get(stored, -1) + 1
            if log and stored not in world.offsets:
                found.began.add((connector.key, target, source, topic, number))
            new = list(enumerate(log))[start:]
            for offset, id_ in new:
                copies.append(id_)
                found.writes.append(Write(connector.key, source, topic, number, offset, target, remote, id_))
            if new:
                world.offsets[stored] = new[-1][0]


def _partition(topics: Topics, topic: str, number: int) -> list[str]:
    partitions = topics.setdefault(topic, [])
    while len(partitions) <= number:
        partitions.append([])
    return partitions[number]


# --- MirrorSourceConnector.shouldReplicateTopic -----------------------------------------------------------------------


def replicates(connector: Connector, topic: str) -> bool:
    """`(topicFilter || heartbeats) && !isInternalTopic && !isCycle`; heartbeats are in no world here."""
    return _filter_takes(connector, topic) and not _is_internal(connector, topic) and not _is_cycle(connector, topic)


def _filter_takes(connector: Connector, topic: str) -> bool:
    """DefaultTopicFilter: two lists of Java expressions, each joined with |, of which the whole name must match one."""
    excluded = r"mm2.*\.internal,.*\.replica,__.*" if _since_4(connector) else r".*[\-\.]internal,.*\.replica,__.*"
    return _matches(connector.config.get("topics", ".*"), topic) and not _matches(
        connector.config.get("topics.exclude", excluded), topic
    )


def _matches(patterns: str, topic: str) -> bool:
    items = [item.strip() for item in patterns.split(",")]
    return re.fullmatch("|".join(f"(?:{item})" for item in items), topic) is not None


def _is_internal(connector: Connector, topic: str) -> bool:
    """ReplicationPolicy.isInternalTopic, which KIP-1074 narrowed in 4.0."""
    suffix = f"{_separator(connector)}internal"
    if topic.startswith(("__", ".")):
        return True
    if _since_4(connector):
        checkpoints = f"{_separator(connector)}checkpoints{suffix}"
        return (topic.startswith("mm2") and topic.endswith(suffix)) or topic.endswith(checkpoints)
    return topic.endswith((suffix, ".internal", "-internal"))


def _is_cycle(connector: Connector, topic: str) -> bool:
    source = _topic_source(connector, topic)
    if source is None:
        return False
    if source == connector.target:
        return True
    if _keeps_names(connector):  # upstreamTopic is the topic itself: the loop ends here
        return False
    return _is_cycle(connector, topic[len(source) + len(_separator(connector)) :])


def _topic_source(connector: Connector, topic: str) -> str | None:
    if _keeps_names(connector):
        return connector.source
    parts = topic.split(_separator(connector))
    while parts and not parts[-1]:  # as Java's split drops what is empty at the end
        parts.pop()
    return parts[0] if len(parts) > 1 else None


def remote_name(connector: Connector, topic: str) -> str:
    """ReplicationPolicy.formatRemoteTopic."""
    return topic if _keeps_names(connector) else f"{connector.source}{_separator(connector)}{topic}"


def _keeps_names(connector: Connector) -> bool:
    policy = connector.config.get("replication.policy.class", "DefaultReplicationPolicy").rpartition(".")[2]
    assert policy in {"DefaultReplicationPolicy", "IdentityReplicationPolicy"}, f"{policy} is not transcribed"
    return policy == "IdentityReplicationPolicy"


def _separator(connector: Connector) -> str:
    return connector.config.get("replication.policy.separator", ".")


def _since_4(connector: Connector) -> bool:
    return int(connector.version.split(".")[0]) >= 4


# --- what a change did --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Harm:
    """What a plan may never do: `kind` is grows, twice or from the start; `by` are the connectors that did it."""

    kind: str
    cluster: str
    topic: str
    by: tuple[Named, ...]
    detail: str = ""

    def __str__(self) -> str:
        who = ", ".join("/".join(each) for each in self.by)
        return f"{self.kind}: {self.cluster}:{self.topic} by {who} {self.detail}".rstrip()


Came = tuple[World, Run]
"""A world after its connectors came to rest, and what they did."""


@dataclass(frozen=True)
class Told:
    """What was mirrored before, as far as it matters to a plan.

    `ours`: by connectors of the tree that can be seen. `gone`: by connectors that were deleted since; Connect tells nobody
    of their offsets, and what they brought is from then on like any other record.
    """

    ours: Iterable[Write] = ()
    gone: Iterable[Write] = ()


def harms(before: World, without: Came, after: Came, told: Told) -> Iterator[Harm]:
    """Compare what came after a plan with what came without it, both from the same world.

    What the connectors that ran before did to each other in any case is not the plan's doing.
    """
    (idle_world, idle), (busy_world, busy) = without, after
    for (cluster, topic), by in busy.growing.items():
        if not idle.growing:
            yield Harm("grows", cluster, topic, tuple(sorted(by)))
    if busy.growing:
        return
    had, spared = before.repeated(), idle_world.repeated()
    left = {write.id for write in told.gone}
    for (cluster, topic, id_), count in busy_world.repeated().items():
        if id_ not in left and count > max(1, had[cluster, topic, id_], spared[cluster, topic, id_]):
            by = {write.by for write in busy.writes if (write.target, write.remote, write.id) == (cluster, topic, id_)}
            yield Harm("twice", cluster, topic, tuple(sorted(by)), f"({id_}: {count} times)")
    arrived: dict[tuple[str, str, int, str], set[Named]] = {}
    for write in told.ours:
        arrived.setdefault((write.source, write.topic, write.partition, write.target), set()).add(write.by)
    for by_, target, source, topic, number in sorted(busy.began - idle.began):
        if others := arrived.get((source, topic, number, target)):
            who = ", ".join("/".join(each) for each in sorted(others))
            yield Harm("from the start", source, topic, (by_,), f"to {target}, where {who} had brought it")
