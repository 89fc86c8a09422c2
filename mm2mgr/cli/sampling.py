"""How `sample` goes about it: which topics of which clusters, when to stop, and what to say meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mm2mgr.cli.foreign import Asked, Wanted, foreign_readers
from mm2mgr.cli.interrupts import handled
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.workspace import Workspace
from mm2mgr.output.console import complain, say, talk
from mm2mgr.output.load_text import say_round

if TYPE_CHECKING:
    from mm2mgr.samples.follow import Reader, Round, Schedule
    from mm2mgr.topology import Flow


def run_sample(
    workspace: Workspace,
    store: Path,
    interval_seconds: float,
    duration_seconds: float | None,
    aliases: Sequence[str],
    keep_seconds: float | None = None,
    asked: Asked | None = None,
) -> int:
    """Sample the source clusters of the tree's flows from Kafka, or from what is `asked`; return the exit code."""
    from mm2mgr.samples.follow import Schedule, follow
    from mm2mgr.samples.store import SampleStore

    chosen = _sampled_flows(workspace, aliases)
    schedule = Schedule(interval_seconds, duration_seconds, keep_seconds=keep_seconds)
    said = _Rounds(set(chosen), following=duration_seconds is None)
    stop = threading.Event()
    with handled(stop.set):  # as a service manager expects: the loop ends after its round
        try:
            samples = SampleStore(store, said.warn)
            readers = (
                foreign_readers(asked, _wanted(chosen), samples)
                if asked
                else _with_tasks(chosen, schedule, said, store)
            )
            kept = follow(readers, schedule, samples, said.progress, stop)
            say(f"{kept} samples of {len(chosen)} clusters in {store}")
        except KeyboardInterrupt:
            say(f"stopped; the samples so far are in {store}")
    if said.never:
        hint = f"check {'metrics:' if asked else 'bootstrap_servers and access:'} of these clusters"
        complain(f"never read: {', '.join(sorted(said.never))}", hint)
    return 1 if said.never else 0


def _sampled_flows(workspace: Workspace, aliases: Sequence[str]) -> dict[str, list[Flow]]:
    flows: dict[str, list[Flow]] = {}
    for flow in workspace.topology.flows:
        flows.setdefault(flow.source.alias, []).append(flow)
    unknown = [alias for alias in aliases if alias not in flows]
    if unknown or not flows:
        raise Mm2mgrError(
            f"no flow reads from {', '.join(unknown) or 'any cluster'}",
            hint=f"source clusters: {', '.join(sorted(flows)) or 'none'}",
        )
    return {alias: flows[alias] for alias in (aliases or flows)}


def _wanted(chosen: Mapping[str, Sequence[Flow]]) -> Wanted:
    return {alias: (flows[0].source, _any_carries(flows)) for alias, flows in chosen.items()}


def _readers(chosen: Mapping[str, Sequence[Flow]], schedule: Schedule) -> list[Reader]:
    from mm2mgr.endpoints import kafka_access
    from mm2mgr.samples.offsets import KafkaReader, RecordSizes

    return [
        KafkaReader(
            kafka_access(flows[0].source),
            _any_carries(flows),
            schedule.timeout_seconds,
            RecordSizes(schedule.sizes_every_seconds),
        )
        for flows in chosen.values()
    ]


def _with_tasks(chosen: Mapping[str, Sequence[Flow]], schedule: Schedule, said: _Rounds, store: Path) -> list[Reader]:
    """Return the readers of the source clusters, and of the Connect clusters for what their tasks carry."""
    from mm2mgr.endpoints import kafka_access
    from mm2mgr.evidence.connect_tasks import TaskWatch, TopicConfigs, task_readers
    from mm2mgr.kafka.inspection import compacted
    from mm2mgr.samples.recent import Overheard, RecentLogs
    from mm2mgr.samples.tasks import TaskStore
    from mm2mgr.sizing.measurements import Pace

    pace = Pace.beside(schedule.interval_seconds)
    recent = RecentLogs(pace.gap_seconds + pace.margin_seconds + pace.every_seconds)
    clusters = {alias: flows[0].source for alias, flows in chosen.items()}
    configs = TopicConfigs(
        lambda alias, topics: compacted(kafka_access(clusters[alias]), topics, schedule.timeout_seconds / 2)
    )
    history = TaskStore(store, said.warn)
    # A thousand connectors take some seconds; a round may take half its interval and still be in time for the next.
    look_seconds = max(schedule.timeout_seconds, min(30.0, schedule.interval_seconds / 2))
    watch = TaskWatch(recent, history, configs.compacted, pace, look_seconds, schedule.keep_seconds)
    tasks = task_readers([flow for flows in chosen.values() for flow in flows], watch)
    return [*(Overheard(reader, recent) for reader in _readers(chosen, schedule)), *tasks]


class _Rounds:
    """What is said while sampling: each round of a bounded run; when following for months, the first and what changes."""

    def __init__(self, names: set[str], *, following: bool) -> None:
        self.never = names
        self._following = following

    def progress(self, round_: Round) -> None:
        self.never = self.never & round_.failures.keys()
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} " if self._following else ""
        shown = round_.number == 1 or not self._following
        say_round(round_.number if shown else None, round_.samples, round_.news, at)

    def warn(self, message: str) -> None:
        talk(f"  {message}", style="yellow")


def _any_carries(flows: Sequence[Flow]) -> Callable[[str], bool]:
    return lambda topic: any(flow.carries(topic) for flow in flows)
