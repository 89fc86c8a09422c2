"""Dedicated MirrorMakers: they have no REST API, and keep configs, states and offsets in topics on the target.

Their stored offsets are exact only after a clean shutdown: a killed process has mirrored more than it had stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mm2mgr.connect.types import SourceOffset
from mm2mgr.errors import Mm2mgrError
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import few

if TYPE_CHECKING:
    from mm2mgr.live.reach import KafkaReach

_SOURCE = "MirrorSourceConnector"
_TASK = f"status-task-{_SOURCE}-"


def dedicated_names(source: str) -> tuple[str, str, str]:
    """Return the topics of offsets and states, and the group, of a dedicated MirrorMaker that mirrors from an alias."""
    return f"mm2-offsets.{source}.internal", f"mm2-status.{source}.internal", f"{source}-mm2"


def configs_topic(source: str) -> str:
    """Return the topic of configs of a dedicated MirrorMaker that mirrors from an alias."""
    return f"mm2-configs.{source}.internal"


@dataclass(frozen=True)
class DedicatedMirrorMaker:
    """A dedicated MirrorMaker that runs: members of its group, config of its source connector (None: not readable)."""

    members: int
    config: Mapping[str, str] | None = field(default=None, repr=False)  # may hold secrets


def find_running(
    reach: KafkaReach, sources: Iterable[str], topics: Mapping[str, int]
) -> dict[str, DedicatedMirrorMaker]:
    """Return the dedicated MirrorMakers that write to a cluster now, by source alias; `topics`: partition counts.

    No more is asked where it has none of their topics. Blocks; Mm2mgrError where groups cannot be read.
    """
    from mm2mgr.kafka.inspection import group_members

    running = {}
    for source in sources:
        if dedicated_names(source)[0] in topics and (members := group_members(reach.kafka, dedicated_names(source)[2])):
            running[source] = DedicatedMirrorMaker(members, _config(reach, configs_topic(source), topics))
    return running


def _config(reach: KafkaReach, topic: str, topics: Mapping[str, int]) -> Mapping[str, str] | None:
    """Return the config of the source connector in a topic of configs, None where there is none that can be read."""
    try:
        texts = dict(_newest(reach, topic, topics))
        config = json.loads(texts[f"connector-{_SOURCE}"])["properties"]
    except (Mm2mgrError, ValueError, KeyError, TypeError, RecursionError):
        return None
    is_config = isinstance(config, dict) and all(isinstance(text, str) for text in (*config, *config.values()))
    return config if is_config else None


def read_dedicated(reach: KafkaReach, source: str) -> list[SourceOffset]:
    """Return the offsets that a dedicated MirrorMaker from this source alias stored on the target.

    Blocks; Mm2mgrError unless it was shut down cleanly.
    """
    from mm2mgr.kafka.inspection import group_members

    topic, status, group = dedicated_names(source)
    alias, counts = reach.access.alias, reach.kafka.partition_counts()
    members = group_members(reach.kafka, group)
    if topic not in counts:
        raise Mm2mgrError(
            f"'{alias}' has no topic {topic}, where a dedicated MirrorMaker keeps its offsets",
            hint="write the alias that its mm2.properties has: {dedicated: source->target}; and check the target",
        )
    if members:
        raise Mm2mgrError(
            f"the dedicated MirrorMaker still runs: group {group} on '{alias}' has {members} members",
            hint="stop its processes with SIGTERM, and apply then",
        )
    statuses = _newest(reach, status, counts)
    tasks = {
        key.removeprefix("status-task-"): json.loads(text)["state"] for key, text in statuses if key.startswith(_TASK)
    }
    ended_badly = [f"{task} is {state}" for task, state in sorted(tasks.items()) if state != "UNASSIGNED"]
    if not tasks or ended_badly:
        shown = few(ended_badly) or "no task left its state"
        raise Mm2mgrError(
            f"the dedicated MirrorMaker was not shut down cleanly ({shown}), so it has mirrored more than it stored",
            hint="start it again, wait until it runs, stop it with SIGTERM, and apply then",
        )
    offsets = []
    for key, text in _newest(reach, topic, counts):
        name, partition = json.loads(key)
        if name == _SOURCE:
            offsets.append(SourceOffset(partition, json.loads(text)))
    return offsets


def _newest(reach: KafkaReach, topic: str, counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the newest text of each key of a compacted topic, tombstones left out."""
    from mm2mgr.kafka.records import read

    texts: dict[str, str | None] = {}
    partitions = [TopicPartition(topic, number) for number in range(counts.get(topic, 0))]
    for record in read(reach.access, partitions, timeout_seconds=reach.limits.measuring_seconds, kafka=reach.kafka):
        texts[(record.key or b"").decode()] = None if record.value is None else record.value.decode()
    return [(key, text) for key, text in texts.items() if text is not None]
