"""The stored offsets of a dedicated MirrorMaker, which keeps them in topics of its own on the target: `connect-mirror-maker.sh` has no REST API.

They are exact only after a clean shutdown: a killed process has mirrored more than it had stored.
"""

from __future__ import annotations

import json
from typing import Any

from mm2mgr.connect.types import SourceOffset
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import few

_SOURCE = "MirrorSourceConnector"
_TASK = f"status-task-{_SOURCE}-"


def dedicated_names(source: str) -> tuple[str, str, str]:
    """Return the topics of its offsets and states, and its group, of a dedicated MirrorMaker that mirrors from an alias."""
    return f"mm2-offsets.{source}.internal", f"mm2-status.{source}.internal", f"{source}-mm2"


def read_dedicated(access: KafkaAccess, source: str) -> list[SourceOffset]:
    """Return the offsets that a dedicated MirrorMaker from this source alias stored on the target; Mm2mgrError unless it was shut down cleanly.

    Blocks.
    """
    from mm2mgr.kafka.client import Kafka
    from mm2mgr.kafka.inspection import group_members

    topic, status, group = dedicated_names(source)
    with Kafka(access) as kafka:
        counts = kafka.partition_counts()
        members = group_members(kafka, group)
    if topic not in counts:
        raise Mm2mgrError(
            f"'{access.alias}' has no topic {topic}, where a dedicated MirrorMaker keeps its offsets",
            hint="write the alias that its mm2.properties has: {dedicated: source->target}; and check the target",
        )
    if members:
        raise Mm2mgrError(
            f"the dedicated MirrorMaker still runs: group {group} on '{access.alias}' has {members} members",
            hint="stop its processes with SIGTERM, and apply then",
        )
    statuses = _newest(access, status, counts)
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
    found = []
    for key, text in _newest(access, topic, counts):
        name, partition = json.loads(key)
        if name == _SOURCE:
            found.append(SourceOffset(partition, json.loads(text)))
    return found


def _newest(access: KafkaAccess, topic: str, counts: dict[str, int]) -> list[tuple[str, Any]]:
    """Return the newest text of each key of a compacted topic, tombstones left out."""
    from mm2mgr.kafka.records import read

    found: dict[str, str | None] = {}
    for record in read(access, [TopicPartition(topic, number) for number in range(counts.get(topic, 0))]):
        found[(record.key or b"").decode()] = None if record.value is None else record.value.decode()
    return [(key, text) for key, text in found.items() if text is not None]
