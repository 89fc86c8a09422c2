"""What is wrong with a companion connector although its tasks run: problems from what arrives, not from states. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from mm2mgr.observe.kinds import LiveProblem
from mm2mgr.observe.memory import Beats
from mm2mgr.observe.problems import ConnectorCase
from mm2mgr.topics.names import HEARTBEATS

_INTERVALS = 5  # a rebalance or a slow broker may cost some of them


def heartbeats_not_emitted(case: ConnectorCase, beats: Beats | None) -> Iterator[LiveProblem]:
    """A heartbeat connector whose task runs while its topic stands still: it writes elsewhere, or cannot write.

    Other pairs may write to the same topic, so growth proves nothing of this connector; no growth proves that none arrives.
    """
    every = _interval_seconds(case)
    if beats is None or beats.clock.paused or every is None:
        return
    if beats.clock.seconds >= max(case.patience.no_heartbeat_seconds, _INTERVALS * every):
        cluster = case.seen.desired.config["target.cluster.alias"]
        found = {"cluster": cluster, "topic": HEARTBEATS, "interval_seconds": every}
        yield case.problem("heartbeats-not-emitted", found, since=beats.clock.seconds)


def _interval_seconds(case: ConnectorCase) -> float | None:
    """Return the interval of the config that runs; None for one that only a worker can resolve."""
    config = case.seen.info.config if case.seen.info else {}
    try:
        return float(config.get("emit.heartbeats.interval.seconds", "1"))
    except ValueError:
        return None
