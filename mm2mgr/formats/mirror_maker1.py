"""Makes of a MirrorMaker 1 (consumer, producer, and a list of topics) the connector that does the same.

Topics keep their names, nothing else is copied, and its consumer group tells where it stands. Source:
`MirrorMaker.scala` of Kafka 0.8 to 3.9; 4.0 removed it (KIP-720).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from mm2mgr.connectors import PACKAGE
from mm2mgr.formats.connectors import CONVERTERS, FoundConnector, FoundWorkers, Note
from mm2mgr.formats.documents import Node, entries_of, entry_of
from mm2mgr.formats.properties import Entry, last, meant_value
from mm2mgr.truth.reach import CLUSTER_KEYS

Role = Literal["consumer", "producer"]
_CLASS = f"{PACKAGE}.MirrorSourceConnector"
_OF_PRODUCERS = (
    *("acks", "batch.size", "linger.ms", "compression.type", "compression.codec", "buffer.memory", "producer.type"),
    *("max.in.flight.requests.per.connection", "metadata.broker.list", "max.request.size", "enable.idempotence"),
    *("delivery.timeout.ms", "request.required.acks", "queue.buffering.max.messages"),
)
_OF_CONSUMERS = (
    *("group.id", "auto.offset.reset", "fetch.min.bytes", "max.poll.records", "zookeeper.connect"),
    *("partition.assignment.strategy", "exclude.internal.topics", "enable.auto.commit", "isolation.level"),
)
_OF_WORKERS = ("key.converter", "value.converter", "offset.storage", "config.storage.topic", "status.storage.topic")
_OF_BROKERS = ("broker.id", "process.roles", "log.dirs")
_AS_IT_DOES = {  # which MirrorMaker 1 does by itself, or does not
    "replication.policy.class": f"{PACKAGE}.IdentityReplicationPolicy",
    "topics.exclude": "__consumer_offsets,__transaction_state",
    "sync.topic.configs.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "replication.factor": "-1",  # brokers create topics for its producer, with their default; a request since 2.4
    "source.consumer.auto.offset.reset": "latest",
    **CONVERTERS,
}
_TOPICS = ("whitelist", "include")
_READ = (*_TOPICS, "num.streams", "consumer.config", "producer.config", "new.consumer", "help")
_UNKEPT = {
    "message.handler": "code of your own between consumer and producer: a transformation (transforms) is its equal",
    "message.handler.args": "goes with message.handler",
    "consumer.rebalance.listener": "MirrorMaker 2's consumers have no group, so nothing rebalances them",
    "rebalance.listener.args": "goes with consumer.rebalance.listener",
    "offset.commit.interval.ms": "the workers' offset.flush.interval.ms decides it for all their connectors",
    "abort.on.send.failure": "a task of Connect fails when a record cannot be written (errors.tolerance)",
    "blacklist": "topics.exclude is its equal, and only MirrorMaker 1 before 0.9 had it",
}


@dataclass(frozen=True)
class Side:
    """The properties of one side of a MirrorMaker 1."""

    role: Role
    file: str
    entries: tuple[Entry, ...] = field(repr=False)


@dataclass(frozen=True)
class StartCommand:
    """How a MirrorMaker 1 is started: its options by name, without dashes."""

    file: str
    options: Mapping[str, Entry]

    @property
    def topics(self) -> Entry | None:
        return next((self.options[name] for name in _TOPICS if name in self.options), None)


def role_of(values: Mapping[str, str], file: str) -> Role | None:
    """Tell which side of a MirrorMaker 1 these properties could be; None for those of workers, brokers and others."""
    if any(key.startswith((*_OF_WORKERS, *_OF_BROKERS, "connector.class")) for key in values):
        return None
    if not values.keys() & {"bootstrap.servers", "metadata.broker.list", "zookeeper.connect"}:
        return None
    votes = {  # workers have a group.id, too
        "consumer": sum(key in values for key in _OF_CONSUMERS if key != "group.id") + 2 * ("consumer" in file.lower()),
        "producer": sum(key in values for key in _OF_PRODUCERS) + 2 * ("producer" in file.lower()),
    }
    if votes["consumer"] == votes["producer"]:
        return None
    return "consumer" if votes["consumer"] > votes["producer"] else "producer"


def connectors(
    parts: Sequence[Side], commands: Sequence[StartCommand], topics: str = ""
) -> tuple[list[FoundConnector], list[Note]]:
    """Return a source connector per consumer, with what could not be kept; the list is empty where a part is missing.

    `topics` is the list of topics where no command has it. The notes then say what is missing.
    """
    consumers = [part for part in parts if part.role == "consumer"]
    producers = [part for part in parts if part.role == "producer"]
    result: list[FoundConnector] = []
    notes: list[Note] = []
    for consumer in consumers:
        command = _command_of(consumer, "consumer.config", commands)
        producer = _producer_of(consumer, producers, command)
        if producer is None:
            which = "which of the producers named goes with it" if producers else "the producer.properties too"
            message = f"is the consumer of a MirrorMaker 1, or of another program: say {which}"
            notes.append(Note(0, message.replace("say the", "name the"), consumer.file))
            continue
        written = command.topics if command else None
        if not written and not topics:
            message = (
                "is the consumer of a MirrorMaker 1, whose command line has the topics: give them with --topics, or the"
                " script with `kafka-mirror-maker --whitelist …` beside it"
            )
            notes.append(Note(0, message, consumer.file))
            continue
        listed_topics = written or Entry("whitelist", topics, topics, 0)
        at_command = command.file if command and written else consumer.file
        connector, unkept = _connector(consumer, producer, replace(listed_topics, file=at_command), command)
        result.append(connector)
        notes += unkept
    if producers and not consumers:
        message = "is the producer of a MirrorMaker 1, or of another program: name the consumer.properties beside it"
        notes += [Note(0, message, producer.file) for producer in producers]
    return result, notes


def _command_of(part: Side, option: str, commands: Sequence[StartCommand]) -> StartCommand | None:
    named = [command for command in commands if _names(command, option, part.file)]
    return named[0] if named else commands[0] if len(commands) == 1 else None


def _names(command: StartCommand, option: str, file: str) -> bool:
    entry = command.options.get(option)
    return entry is not None and entry.value.rpartition("/")[2] == file.rpartition("/")[2]


def _producer_of(consumer: Side, producers: Sequence[Side], command: StartCommand | None) -> Side | None:
    named = [part for part in producers if command and _names(command, "producer.config", part.file)]
    beside = [part for part in producers if part.file.rpartition("/")[0] == consumer.file.rpartition("/")[0]]
    for candidates in (named, producers, beside):
        if len(candidates) == 1:
            return candidates[0]
    return None


def _connector(
    consumer: Side, producer: Side, topics: Entry, command: StartCommand | None
) -> tuple[FoundConnector, list[Note]]:
    read, written = (last(part.entries) for part in (consumer, producer))
    source, target = _aliases(_servers(read), _servers(written))
    lines: dict[str, Entry] = {}
    for entry in read.values():
        if (key := _of_consumer(entry.key)) is not None:
            lines[key] = replace(entry, value=meant_value(entry))
    for entry in written.values():
        value, file = meant_value(entry), entry.file or producer.file
        lines[_of_producer(entry.key)] = replace(entry, value=value, file=file)
    lines["topics"] = replace(topics, value=clean_topics(topics.value))
    notes = list(_unkept(consumer, producer, command))
    if command and (streams := command.options.get("num.streams")):
        lines["tasks.max"] = replace(streams, file=command.file)
    group = meant_value(read["group.id"]).strip() if "group.id" in read and "bootstrap.servers" in read else ""
    name = f"mirrormaker1-{group or source}"
    own = {"name": name, "connector.class": _CLASS, "source.cluster.alias": source, "target.cluster.alias": target}
    config = own | _AS_IT_DOES | {key: entry.value for key, entry in lines.items()}
    first = read.get("group.id") or next(iter(read.values()), None)
    line = first.line if first else topics.line
    of_producer = (replace(entry, file=entry.file or producer.file) for entry in producer.entries)
    of_command = (lines[key] for key in ("topics", "tasks.max") if key in lines)
    entries = (*consumer.entries, *of_producer, *of_command)
    prefix = "target.cluster."  # what writes the records is the producer, with its address and its login
    login = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
    login.pop("alias", None)
    workers = FoundWorkers(login | {f"producer.{key}": value for key, value in login.items()}, policy="All")
    connector = FoundConnector(name, _CLASS, config, lines, line, entries, workers=workers, form="mirrormaker1")
    return replace(connector, file=consumer.file, start_group=group), notes


def _servers(entries: Mapping[str, Entry]) -> str:
    names = ("bootstrap.servers", "metadata.broker.list", "zookeeper.connect")
    return next((meant_value(entries[name]).strip() for name in names if name in entries), "")


def _aliases(source: str, target: str) -> tuple[str, str]:
    """Return names for both clusters: what the first broker of each is called, where that differs."""
    names = [
        re.sub(r"[^\w-]", "", servers.partition(",")[0].partition(":")[0].partition(".")[0])
        for servers in (source, target)
    ]
    usable = all(re.fullmatch(r"[A-Za-z][\w-]*", name) and name != "localhost" for name in names)
    return (names[0], names[1]) if usable and names[0] != names[1] else ("source", "target")


def _of_consumer(key: str) -> str | None:
    if key in ("group.id", "zookeeper.connect"):
        return None  # no group decides what MirrorMaker 2 reads, and no client reads ZooKeeper's address
    return f"source.cluster.{key}" if key in CLUSTER_KEYS else f"source.consumer.{key}"


def _of_producer(key: str) -> str:
    if key == "metadata.broker.list":
        key = "bootstrap.servers"
    # The workers will be beside the target: their own address and login are the record producer's, too.
    return f"target.cluster.{key}" if key in CLUSTER_KEYS else f"producer.override.{key}"


def clean_topics(text: str) -> str:
    """Return a whitelist as MirrorMaker 1 reads it: without blanks and outer quotes; a comma parts patterns."""
    return text.strip().replace(" ", "").strip("\"'")


def _unkept(consumer: Side, producer: Side, command: StartCommand | None) -> Iterator[Note]:
    entries = last(consumer.entries)
    if "bootstrap.servers" not in entries and "zookeeper.connect" in entries:
        at = entries["zookeeper.connect"]
        message = "the old consumer keeps its offsets in ZooKeeper: no group in Kafka tells where it stands"
        yield Note(at.line, f"zookeeper.connect: {message}", at.file or consumer.file)
    elif "group.id" not in entries:
        yield Note(0, "has no group.id, without which a consumer of MirrorMaker 1 does not start", consumer.file)
    for name, entry in (command.options if command else {}).items():
        if name not in _READ:
            reason = _UNKEPT.get(name, "no setting of MirrorMaker 2 is its equal")
            yield Note(entry.line, f"--{name}: {reason}", command.file if command else "")


# --- Strimzi's KafkaMirrorMaker ---------------------------------------------------------------------------------------


def of_resource(resource: Node, file: str) -> tuple[Side, Side, StartCommand]:
    """Return what a KafkaMirrorMaker of Strimzi (until 0.45) says: its consumer, its producer, and its topics."""
    spec = resource.get("spec") or Node("object", resource.line)
    sides = {role: spec.get(role) or Node("object", spec.line) for role in ("consumer", "producer")}
    entries: dict[str, tuple[Entry, ...]] = {}
    for role, node in sides.items():
        config = node.get("config")
        own = [("bootstrapServers", "bootstrap.servers"), ("groupId", "group.id")]
        members = [entry_of(key, child.line, child) for name, key in own if (child := node.get(name))]
        entries[role] = (*members, *(entries_of(config) if config else ()))
    options = {
        name: Entry(name, node.text, node.text, node.line)
        for name, node in (
            ("whitelist", spec.get("include") or spec.get("whitelist")),
            ("num.streams", sides["consumer"].get("numStreams")),
            ("offset.commit.interval.ms", sides["consumer"].get("offsetCommitInterval")),
            ("abort.on.send.failure", sides["producer"].get("abortOnSendFailure")),
        )
        if node
    }
    return (
        Side("consumer", file, entries["consumer"]),
        Side("producer", file, entries["producer"]),
        StartCommand(file, options),
    )
