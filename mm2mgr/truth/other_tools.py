"""Keys of other mirroring tools, left in configs by migrations, and the connector's keys that do the same."""

from __future__ import annotations

from mm2mgr.truth.reach import CLUSTER_KEYS

_REPLICATOR, _MIRUS, _FIRST = "Confluent Replicator", "Mirus", "MirrorMaker 1"
_NONE, _SINKS = "", "sink connectors of Kafka Connect"
_STRIMZI = "Strimzi's KafkaMirrorMaker2 resource"
_TOPICS, _EXCLUDE = "topics", "topics.exclude"

# Key → tools, and the connector's key of the same meaning ("" for none).
_KEYS: dict[str, tuple[str, str]] = {
    "topics.whitelist": (_MIRUS, _TOPICS),
    "topics.include": (_NONE, _TOPICS),
    "topics.pattern": (_NONE, _TOPICS),
    "topics.regex": (f"{_MIRUS} and of {_SINKS}", _TOPICS),
    "groups.whitelist": (_NONE, "groups"),
    "groups.include": (_NONE, "groups"),
    "destination.topic.name.prefix": (_MIRUS, ""),
    "destination.topic.name.suffix": (_MIRUS, ""),
    "topic.whitelist": (_REPLICATOR, _TOPICS),
    "topic.regex": (_REPLICATOR, _TOPICS),
    "topic.blacklist": (_REPLICATOR, _EXCLUDE),
    "topic.rename.format": (_REPLICATOR, ""),
    "topic.auto.create": (_REPLICATOR, ""),
    "topic.preserve.partitions": (_REPLICATOR, ""),
    "topic.create.backoff.ms": (_REPLICATOR, ""),
    "topic.config.sync": (_REPLICATOR, "sync.topic.configs.enabled"),
    "topic.config.sync.interval.ms": (_REPLICATOR, ""),
    "topic.poll.interval.ms": (_REPLICATOR, ""),
    "topic.timestamp.type": (_REPLICATOR, ""),
    "dest.topic.replication.factor": (_REPLICATOR, "replication.factor"),
    "offset.timestamps.commit": (_REPLICATOR, ""),
    "offset.topic.commit": (_REPLICATOR, ""),
    "offset.translator.tasks.max": (_REPLICATOR, ""),
    "offset.start": (_REPLICATOR, ""),
    "provenance.header.enable": (_REPLICATOR, ""),
    "src.key.converter": (_REPLICATOR, ""),
    "src.value.converter": (_REPLICATOR, ""),
    "src.header.converter": (_REPLICATOR, ""),
    "confluent.license": (_REPLICATOR, ""),
    "whitelist": (_FIRST, _TOPICS),
    "include": (_FIRST, _TOPICS),
    "blacklist": (_FIRST, _EXCLUDE),
    "mirror.topics.whitelist": (_FIRST, _TOPICS),
    "mirror.topics.blacklist": (_FIRST, _EXCLUDE),
    "num.streams": (_FIRST, "tasks.max"),
    "abort.on.send.failure": (_FIRST, ""),
    "message.handler": (_FIRST, ""),
    "message.handler.args": (_FIRST, ""),
    "consumer.config": (_FIRST, ""),
    "producer.config": (_FIRST, ""),
    "enableAutoWhitelist": ("uReplicator", ""),
    "patternToExcludeTopics": ("uReplicator", _EXCLUDE),
    "topicsPattern": (_STRIMZI, _TOPICS),
    "topicsExcludePattern": (_STRIMZI, _EXCLUDE),
    "topicsBlacklistPattern": (_STRIMZI, _EXCLUDE),
    "groupsPattern": (_STRIMZI, "groups"),
    "groupsExcludePattern": (_STRIMZI, "groups.exclude"),
    "groupsBlacklistPattern": (_STRIMZI, "groups.exclude"),
}
_PREFIXES = {
    "src.kafka.": (_REPLICATOR, "source.cluster."),
    "dest.kafka.": (_REPLICATOR, "target.cluster."),
    "src.consumer.": (_REPLICATOR, "source.consumer."),
    "src.zookeeper.": (_REPLICATOR, ""),
    "dest.zookeeper.": (_REPLICATOR, ""),
    "confluent.topic.": (_REPLICATOR, ""),
    "brooklin.": ("Brooklin", ""),
}


def other_tool(key: str) -> tuple[str, str] | None:
    """Return whose key it is ("" for a common guess), and the connector's own key for it; None for no tool's."""
    if key in _KEYS:
        return _KEYS[key]
    for prefix, (tool, ours) in _PREFIXES.items():
        if key.startswith(prefix):
            plain = key.removeprefix(prefix)
            passed = not ours.endswith(".cluster.") or plain in CLUSTER_KEYS
            return tool, f"{ours}{plain}" if ours and passed else ""
    return None
