"""What is wrong with a companion connector although its tasks run: problems from what arrives, not from states. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mm2mgr.observe.companions import Beats, CheckpointLook, checkpointing
from mm2mgr.observe.kinds import LiveProblem
from mm2mgr.observe.problems import ConnectorCase
from mm2mgr.topics.names import HEARTBEATS

_INTERVALS = 5  # a rebalance or a slow broker may cost some of them
_CHECKPOINT_INTERVALS = 2
_NAMED = 20


def heartbeats_not_emitted(case: ConnectorCase, beats: Beats | None) -> Iterator[LiveProblem]:
    """A heartbeat connector whose task runs while its topic stands still: it writes elsewhere, or cannot write.

    Other pairs may write to the same topic, so growth proves nothing of this connector; no growth proves that none arrives.
    """
    every = case.seen.number("emit.heartbeats.interval.seconds", 1)
    if beats is None or beats.clock.paused or every is None:
        return
    if beats.clock.seconds >= max(case.patience.no_heartbeat_seconds, _INTERVALS * every):
        cluster = case.seen.desired.config["target.cluster.alias"]
        found = {"cluster": cluster, "topic": HEARTBEATS, "interval_seconds": every}
        yield case.problem("heartbeats-not-emitted", found, since=beats.clock.seconds)


def checkpoints_not_emitted(case: ConnectorCase, look: CheckpointLook | None, topic: str) -> Iterator[LiveProblem]:
    """A checkpoint connector whose tasks run and whose topic stands still although groups must have got a checkpoint."""
    does = checkpointing(case.seen)
    if does is None or look is None or look.owed is None or look.owed.paused:
        return
    if look.owed.seconds >= _CHECKPOINT_INTERVALS * does.interval_seconds + case.patience.no_checkpoint_seconds:
        found = {"topic": topic, "interval_seconds": does.interval_seconds, **_groups(case, look.owed_groups)}
        yield case.problem("checkpoints-not-emitted", found, since=look.owed.seconds)


def group_offsets_rewound(case: ConnectorCase, look: CheckpointLook | None, now: float) -> Iterator[LiveProblem]:
    """Offsets of groups that went back on the target and not on the source: their records would be read again (KAFKA-19794)."""
    rewound = [
        (group, partition, one)
        for group, places in (look.synced if look else {}).items()
        for partition, one in places.items()
        if one.before is not None
    ]
    if rewound:
        offsets = [
            {"group": group, "partition": partition, "offset": one.target, "before": one.before}
            for group, partition, one in rewound[:_NAMED]
        ]
        found = {**_groups(case, sorted({group for group, _, _ in rewound})), "offsets": offsets}
        yield case.problem("group-offsets-rewound", found, since=now - min(one.rewound_at for _, _, one in rewound))


def _groups(case: ConnectorCase, groups: Sequence[str]) -> dict[str, Any]:
    config = case.seen.desired.config
    return {
        "groups": list(groups[:_NAMED]),
        "group_count": len(groups),
        "source": config["source.cluster.alias"],
        "target": config["target.cluster.alias"],
    }
