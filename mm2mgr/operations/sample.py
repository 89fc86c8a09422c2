"""The operation `sample`: the clusters that flows read from, sampled from Kafka or from a metric source, into a store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.metric_sources import MetricSource, Wanted, metric_source_readers

if TYPE_CHECKING:
    from mm2mgr.operations.workspace import Workspace
    from mm2mgr.samples.follow import Reader, Round, Schedule
    from mm2mgr.samples.schema import Store
    from mm2mgr.topology import Flow


@dataclass(frozen=True)
class SampleOrder:
    """What to sample: the source clusters by alias (none: all), for how long, and from where (None: Kafka).

    `duration_seconds` None samples until stopped; samples older than `keep_seconds` are removed, None keeps all.
    """

    store: Store
    interval_seconds: float
    duration_seconds: float | None
    aliases: Sequence[str] = ()
    keep_seconds: float | None = None
    source: MetricSource | None = None


@dataclass
class Sampled:
    """What `sample` did: clusters that were to be sampled, how many samples were stored, and clusters never read.

    Where it was interrupted, the samples so far are stored and not counted.
    """

    clusters: frozenset[str] = frozenset()
    samples: int = 0
    never_read: set[str] = field(default_factory=set)
    interrupted: bool = False


def sample(
    workspace: Workspace,
    order: SampleOrder,
    progress: Callable[[Round], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> Sampled:
    """Sample until the time is over or `stop` is set. `progress` receives each round, `warn` a sentence for each damaged
    file. Mm2mgrError when the store cannot be written in the first round."""
    from mm2mgr.samples.follow import Schedule, follow
    from mm2mgr.samples.store import SampleStore

    chosen = _sampled_flows(workspace, order.aliases)
    schedule = Schedule(order.interval_seconds, order.duration_seconds, keep_seconds=order.keep_seconds)
    done, store = Sampled(frozenset(chosen), 0, set(chosen)), SampleStore(order.store, warn)

    def reported(round_: Round) -> None:
        done.never_read &= round_.failures.keys()
        progress(round_)

    readers = (
        metric_source_readers(order.source, _wanted(chosen), store)
        if order.source
        else _with_tasks(chosen, schedule, warn, order.store)
    )
    try:
        done.samples = follow(readers, schedule, store, reported, stop)
    except KeyboardInterrupt:
        done.interrupted = True
    return done


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


def _with_tasks(
    chosen: Mapping[str, Sequence[Flow]], schedule: Schedule, warn: Callable[[str], None], store: Store
) -> list[Reader]:
    """Return the readers of the source clusters, and of the Connect clusters for what their tasks carry."""
    from mm2mgr.endpoints import kafka_access
    from mm2mgr.evidence.connect_tasks import Overheard, RecentLogs, TaskWatch, TopicConfigs, task_readers
    from mm2mgr.kafka.inspection import compacted
    from mm2mgr.samples.store import TaskStore
    from mm2mgr.sizing.measurements import Pace

    pace = Pace.beside(schedule.interval_seconds)
    recent = RecentLogs(pace.gap_seconds + pace.margin_seconds + pace.every_seconds)
    clusters = {alias: flows[0].source for alias, flows in chosen.items()}
    configs = TopicConfigs(
        lambda alias, topics: compacted(kafka_access(clusters[alias]), topics, schedule.timeout_seconds / 2)
    )
    history = TaskStore(store, warn)
    # A thousand connectors take some seconds; a round may take half its interval and still be in time for the next.
    look_seconds = max(schedule.timeout_seconds, min(30.0, schedule.interval_seconds / 2))
    watch = TaskWatch(recent, history, configs.compacted, pace, look_seconds, schedule.keep_seconds)
    tasks = task_readers([flow for flows in chosen.values() for flow in flows], watch)
    return [*(Overheard(reader, recent) for reader in _readers(chosen, schedule)), *tasks]


def _any_carries(flows: Sequence[Flow]) -> Callable[[str], bool]:
    return lambda topic: any(flow.carries(topic) for flow in flows)
