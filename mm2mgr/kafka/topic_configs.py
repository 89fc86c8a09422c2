"""The settings of topics as values: what applies to each, and which of it was set on the topic itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import ConfigSource  # type: ignore[attr-defined]

from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.inspection import topic_entries


@dataclass(frozen=True)
class TopicSettings:
    """The settings that apply to one topic, and of these the ones that were `set` on the topic; none that Kafka hides."""

    values: Mapping[str, str]
    set: Mapping[str, str]


def topic_configs(kafka: Kafka, topics: Collection[str]) -> dict[str, TopicSettings]:
    """Return the settings of topics; absent: there is no such topic, or this login may not read its settings."""
    with kafka.doing("reading topic configs"):
        found = topic_entries(kafka, topics)
    return {name: _settings(entries) for name, entries in found.items() if entries}


def _settings(entries: Mapping[str, Any]) -> TopicSettings:
    shown = {key: one for key, one in entries.items() if one.value is not None and not one.is_sensitive}
    on_topic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return TopicSettings(
        {key: one.value for key, one in shown.items()},
        {key: one.value for key, one in shown.items() if one.source == on_topic},
    )
