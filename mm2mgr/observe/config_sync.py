"""Whether the settings of a flow's topics reach the target: MirrorMaker copies them at intervals, and only logs what is refused. Pure.

Compared are settings that are set on topics of the source and that the connector copies. What is a default there, which MirrorMaker
deletes on the target or leaves alone by its version, is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from mm2mgr.observe.lag import is_heartbeat
from mm2mgr.observe.reading import LiveConnector, Snapshot
from mm2mgr.topics.names import NameFilter, readable
from mm2mgr.topology import Flow

_FILTER_CLASS = "DefaultConfigPropertyFilter"
_DEFAULT_INTERVAL_SECONDS = 600


@dataclass(frozen=True)
class ConfigSync:
    """The copying of topic configs by one connector: the seconds between two rounds, and the names of settings left out."""

    interval_seconds: float
    excluded: NameFilter

    def is_due(self, asked_at: float | None, now: float) -> bool:
        """Tell whether the settings are to be read again: twice in each of the connector's own rounds is enough."""
        return asked_at is None or not 0 <= now - asked_at < self.interval_seconds / 2


def config_sync(seen: LiveConnector) -> ConfigSync | None:
    """Return what a RUNNING connector copies by its config; None where that is nothing, or cannot be told."""
    config = seen.info.config if seen.info else {}
    excluded = config.get("config.properties.exclude", "${")
    items = tuple(item for part in excluded.split(",") if (item := part.strip()))
    if (
        seen.status is None
        or seen.status.state != "RUNNING"
        or config.get("sync.topic.configs.enabled", "true").strip().lower() != "true"
        or config.get("config.property.filter.class", _FILTER_CLASS).rpartition(".")[2] != _FILTER_CLASS
        or not all("${" not in item and readable(item, topics=False) for item in items)
    ):
        return None
    seconds = seen.number("sync.topic.configs.interval.seconds", _DEFAULT_INTERVAL_SECONDS)
    return ConfigSync(seconds, NameFilter(items, ())) if seconds and seconds > 0 else None


def synced_topics(
    reading: Snapshot, flow: Flow, seen: LiveConnector, sync: ConfigSync
) -> Iterator[tuple[str, frozenset[str] | None]]:
    """Yield the topics that tasks have, with the settings that the target does not have as the source has them, as `name=digest of the
    value`; None where they were not read on both sides."""
    source, target = (reading.clusters[one.alias].configs for one in (flow.source, flow.target))
    for topic in {one.topic for partitions in seen.assigned().values() for one in partitions}:
        if is_heartbeat(flow, topic):
            continue
        wanted, there = source.get(topic), target.get(flow.remote_topic(topic))
        differing = None
        if wanted and there:
            differing = frozenset(
                f"{key}={hashlib.blake2s(value.encode(), digest_size=6).hexdigest()}"
                for key, value in wanted.set.items()
                if there.values.get(key) != value and not sync.excluded.matches(key)
            )
        yield topic, differing
