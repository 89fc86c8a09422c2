"""Whether what a flow copies of its topics beside records reaches the target: settings and ACLs. Pure.

MirrorMaker copies both at intervals, and only logs what is refused. Of settings, those are compared that are set on topics of the source
and that the connector copies. What is a default there, which MirrorMaker deletes on the target or leaves alone by its version, is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mm2mgr.kafka.acls import Acl
from mm2mgr.live.kafka_state import SeenKafka
from mm2mgr.observe.reading import LiveConnector, Reading
from mm2mgr.topics.names import NameFilter, readable
from mm2mgr.topology import Flow

_FILTER_CLASS = "DefaultConfigPropertyFilter"
_DEFAULT_INTERVAL_SECONDS = 600
_NO_NAMES = NameFilter((), ())


@dataclass(frozen=True)
class TopicSync:
    """What one connector copies of its topics: the seconds between two rounds, and the names of settings left out."""

    interval_seconds: float
    excluded: NameFilter = _NO_NAMES

    def is_due(self, asked_at: float | None, now: float) -> bool:
        """Tell whether both sides are to be read again: twice in each of the connector's own rounds is enough."""
        return asked_at is None or not 0 <= now - asked_at < self.interval_seconds / 2


def config_sync(connector: LiveConnector) -> TopicSync | None:
    """Return how a RUNNING connector copies settings by its config; None where it does not, or that cannot be known."""
    config = connector.running.config if connector.running else {}
    excluded = config.get("config.properties.exclude", "${")
    items = tuple(item for part in excluded.split(",") if (item := part.strip()))
    if config.get("config.property.filter.class", _FILTER_CLASS).rpartition(".")[2] != _FILTER_CLASS or not all(
        "${" not in item and readable(item, topics=False) for item in items
    ):
        return None
    sync = _sync(connector, "sync.topic.configs")
    return replace(sync, excluded=NameFilter(items, ())) if sync else None


def acl_sync(connector: LiveConnector) -> TopicSync | None:
    """Return how a RUNNING connector copies ACLs by its config; None where it does not, or that cannot be known."""
    return _sync(connector, "sync.topic.acls")


def _sync(connector: LiveConnector, keys: str) -> TopicSync | None:
    if connector.running is None or connector.status is None or connector.status.state != "RUNNING":
        return None
    if connector.running.config.get(f"{keys}.enabled", "true").strip().lower() != "true":
        return None
    seconds = connector.number(f"{keys}.interval.seconds", _DEFAULT_INTERVAL_SECONDS)
    return TopicSync(seconds) if seconds and seconds > 0 else None


def _settings_missing(sides: Sides, sync: TopicSync) -> frozenset[str] | None:
    """Return the settings that the target does not have as the source has them, as `name=digest of the value`."""
    settings, there = sides.source.configs.get(sides.topic), sides.target.configs.get(sides.remote_topic)
    if not settings or not there:
        return None
    return frozenset(
        f"{key}={hashlib.blake2s(value.encode(), digest_size=6).hexdigest()}"
        for key, value in settings.set.items()
        if there.values.get(key) != value and not sync.excluded.matches(key)
    )


def _acls_missing(sides: Sides, _: TopicSync) -> frozenset[str] | None:
    """Return the ACLs that MirrorMaker makes on the target from those of the source, and that are not there."""
    acls, there = sides.source.acls.get(sides.topic), sides.target.acls.get(sides.remote_topic)
    if acls is None or there is None:
        return None
    return frozenset(
        str(mirrored) for acl in acls if (mirrored := mirrored_acl(acl, sides.remote_topic)) and mirrored not in there
    )


def mirrored_acl(acl: Acl, remote_topic: str) -> Acl | None:
    """Return the ACL that MirrorMaker makes on the target from a literal one of a source topic; None for a grant to write, which it leaves out.

    A grant of every operation becomes one to read, so that only MirrorMaker writes to a mirror. It removes none (MirrorSourceConnector).
    """
    if acl.allow and acl.operation == "Write":
        return None
    return replace(acl, name=remote_topic, operation="Read" if acl.allow and acl.operation == "All" else acl.operation)


@dataclass(frozen=True)
class Sides:
    """A topic on both clusters."""

    source: SeenKafka
    target: SeenKafka
    topic: str
    remote_topic: str


@dataclass(frozen=True)
class Copied:
    """One thing that source connectors copy of their topics: how by their config, and what of a topic's is not on the target (None: it
    was not read on both sides). A problem has it as this `evidence`, by its `name`."""

    sync: Callable[[LiveConnector], TopicSync | None]
    missing: Callable[[Sides, TopicSync], frozenset[str] | None]
    evidence: str
    name: Callable[[str], str]


COPIED: Mapping[str, Copied] = {
    "configs": Copied(config_sync, _settings_missing, "settings", lambda setting: setting.partition("=")[0]),
    "acls": Copied(acl_sync, _acls_missing, "acls", str),
}


def missing_of(
    reading: Reading, flow: Flow, connector: LiveConnector, kind: str, sync: TopicSync
) -> dict[str, frozenset[str] | None] | None:
    """Return what is not on the target of each topic that tasks have, None for one not read on both sides; None: tasks were not read."""
    if connector.tasks_unread:
        return None
    source, target = (reading.clusters[cluster.alias] for cluster in (flow.source, flow.target))
    topics = {partition.topic for partitions in connector.partitions_by_task().values() for partition in partitions}
    return {
        topic: COPIED[kind].missing(Sides(source, target, topic, flow.remote_topic(topic)), sync)
        for topic in topics
        if not flow.selection.is_heartbeats(topic)
    }
