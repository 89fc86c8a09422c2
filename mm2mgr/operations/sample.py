"""`sample`: the clusters that flows read from, sampled from Kafka or a metric source into a store; and whole stores.

How the endpoints of metric sources are reached, with which credentials, is here; no format of theirs is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from mm2mgr import timing
from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import cache_folder
from mm2mgr.metric_sources import METRIC_SOURCES, SourceKind
from mm2mgr.operations.workspace import Workspace
from mm2mgr.text import list_names
from mm2mgr.timing import wait_for

if TYPE_CHECKING:
    from mm2mgr.samples.follow import Poll, Reader, Round, Schedule
    from mm2mgr.samples.http import Http
    from mm2mgr.samples.schema import Store
    from mm2mgr.samples.store import SampleStore
    from mm2mgr.spec.models import MetricsEndpoint
    from mm2mgr.throughput.cruise_reader import TopicReader
    from mm2mgr.throughput.engine import ChosenEngine
    from mm2mgr.topology import Flow, KafkaCluster


@dataclass(frozen=True)
class SampleOrder:
    """What to sample: the source clusters by alias (none: all), for how long, and from where.

    `duration_seconds` None samples until stopped; samples older than `keep_seconds` are removed, None keeps all.
    `back_seconds`: how much of the past a first run takes from a metric source. `spark`: --spark, --no-spark or
    neither, for a source that uses it. `looks`: also look as `status` does once a minute, which `serve` does anyway.
    """

    store: Store
    interval_seconds: float
    duration_seconds: float | None
    aliases: Sequence[str] = ()
    keep_seconds: float | None = None
    source: str = "kafka"
    back_seconds: float = 0.0
    spark: bool | None = None
    looks: bool = True


@dataclass(frozen=True)
class SampleView:
    """What sampling inside another process did: its last round and when that ended (None, 0.0: none yet), and how many
    samples it stored since the start. `error`: why it is not sampling, and tries again."""

    last: Round | None = None
    taken_at: float = 0.0
    rounds: int = 0
    samples: int = 0
    error: str = ""

    def after_round(self, ended: Round, now: float) -> SampleView:
        """Return what is known after a further round."""
        return SampleView(ended, now, self.rounds + 1, self.samples + ended.samples)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-ready values: `unread` are the sources without an answer in the last round, with the reason;
        `unsampled` those of them that samples are missing of."""
        return {
            "taken_at": self.taken_at,
            "rounds": self.rounds,
            "samples": self.samples,
            "last_samples": self.last.samples if self.last else None,
            "unread": {name: error.one_line for name, error in self.last.failures.items()} if self.last else {},
            "unsampled": sorted(self.last.sources_without_samples) if self.last else [],
            "error": self.error,
        }


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
    """Sample until the time is over or `stop` is set; `progress` receives each round, `warn` a sentence for each
    damaged file. Mm2mgrError when the store cannot be written in the first round."""
    from mm2mgr.samples.follow import Schedule, follow
    from mm2mgr.samples.store import SampleStore

    chosen = _sampled_flows(workspace, order.aliases)
    schedule = Schedule(order.interval_seconds, order.duration_seconds, keep_seconds=order.keep_seconds)
    done, store = Sampled(frozenset(chosen), 0, set(chosen)), SampleStore(order.store, warn)

    def report_round(round_: Round) -> None:
        done.never_read &= round_.failures.keys()
        progress(round_)

    kind = next((kind for kind in METRIC_SOURCES if kind.name == order.source), None)
    engine = workspace.engine(order.spark) if kind and kind.on_spark else None
    if kind and engine and not engine.on_spark:
        warn(f"{kind.service} is read {engine}")
    readers = (
        _metric_source_readers(kind, order, _clusters_to_sample(chosen), store, engine)
        if kind
        else [
            *_with_tasks(chosen, schedule, warn, order.store),
            *([_StatusReader(workspace, chosen, schedule, order.store)] if order.looks else []),
            *_stored_sizes(chosen, schedule, warn, order.store),
        ]
    )
    try:
        done.samples = follow(readers, schedule, store, report_round, stop)
    except KeyboardInterrupt:
        done.interrupted = True
    return done


def refuse_unsampled(workspace: Workspace, order: SampleOrder) -> None:
    """Mm2mgrError where nothing can be sampled: no flow reads from a cluster, or it declares no such source."""
    chosen = _sampled_flows(workspace, order.aliases)
    if kind := next((kind for kind in METRIC_SOURCES if kind.name == order.source), None):
        for flows in chosen.values():
            _declared_metrics(flows[0].source, kind)


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


def _clusters_to_sample(chosen: Mapping[str, Sequence[Flow]]) -> list[tuple[KafkaCluster, Callable[[str], bool]]]:
    def carried_by(flows: Sequence[Flow]) -> Callable[[str], bool]:
        return lambda topic: any(flow.carries(topic) for flow in flows)

    return [(flows[0].source, carried_by(flows)) for flows in chosen.values()]


def _with_tasks(
    chosen: Mapping[str, Sequence[Flow]], schedule: Schedule, warn: Callable[[str], None], store: Store
) -> list[Reader]:
    from mm2mgr.evidence.task_rates import RecentLogs, TaskWatch, remember_compacted, task_readers
    from mm2mgr.kafka.inspection import find_compacted
    from mm2mgr.live.endpoints import kafka_access
    from mm2mgr.samples.readers import KafkaReader, RecordSizes
    from mm2mgr.samples.store import TaskStore
    from mm2mgr.sizing.capacity import Pace

    pace = Pace.for_sampling(schedule.interval_seconds)
    recent = RecentLogs(pace.gap_seconds + pace.margin_seconds + pace.every_seconds)
    clusters = {alias: flows[0].source for alias, flows in chosen.items()}
    compacted = remember_compacted(
        lambda alias, topics: find_compacted(kafka_access(clusters[alias]), topics, schedule.timeout_seconds / 2)
    )
    history = TaskStore(store, warn)
    # A thousand connectors take some seconds; a round may take half its interval and still be in time for the next.
    look_seconds = max(schedule.timeout_seconds, min(30.0, schedule.interval_seconds / 2))
    watch = TaskWatch(recent, history, compacted, pace, look_seconds, schedule.keep_seconds)
    seconds = schedule.timeout_seconds
    readers = [
        KafkaReader(kafka_access(cluster), takes, seconds, RecordSizes(), heard=recent.take)
        for cluster, takes in _clusters_to_sample(chosen)
    ]
    tasks = task_readers([flow for flows in chosen.values() for flow in flows], watch)
    return [*readers, *tasks]


def _stored_sizes(
    chosen: Mapping[str, Sequence[Flow]], schedule: Schedule, warn: Callable[[str], None], store: Store
) -> list[Reader]:
    from mm2mgr.evidence.stored_sizes import StoredSizesReader
    from mm2mgr.samples.store import StoredSizeStore

    flows = [flow for flows in chosen.values() for flow in flows]
    first = min(_LOOKS_EVERY_SECONDS, 0.9 * schedule.interval_seconds)
    return [StoredSizesReader(flows, StoredSizeStore(store, warn), first)]


_LOOKS_EVERY_SECONDS = 60.0


class _StatusReader:
    """The looks of `status` as one of the readers that are polled, for the ledger of losses and the trends of lag.

    It gives no samples: it looks once per minute at every partition, in a thread of its own, because no sample may
    wait for a target that does not answer. A run of one round does not look.
    """

    name, gives_samples = "losses", False

    def __init__(
        self, workspace: Workspace, chosen: Mapping[str, Sequence[Flow]], schedule: Schedule, store: Store
    ) -> None:
        self._workspace, self._store, self._seconds = workspace, store, schedule.timeout_seconds
        self._flows = [flow.id for flows in chosen.values() for flow in flows]
        self._due = timing.now() + min(_LOOKS_EVERY_SECONDS, 0.9 * schedule.interval_seconds)
        self._thread = ThreadPoolExecutor(1)
        self._running: Future[tuple[str, ...]] | None = None
        self._notes: tuple[str, ...] = ()

    def poll(self) -> Poll:
        """Begin a look when it is due; the notes of the last one name flows with losses to acknowledge, and what was
        not read.
        """
        from mm2mgr.samples.follow import Poll

        if self._running and self._running.done():
            ended, self._running = self._running, None
            self._notes = ended.result()
        if self._running is None and timing.now() >= self._due:
            # A little early: the interval of the samples sets the time, and a clock must not miss it by a millisecond.
            self._due = timing.now() + 0.9 * _LOOKS_EVERY_SECONDS
            self._running = self._thread.submit(self._look)
        return Poll([], notes=self._notes)

    def close(self) -> None:
        """Wait for the look that is under way."""
        self._thread.shutdown()

    def _look(self) -> tuple[str, ...]:
        from mm2mgr.observe.read import ObserveOptions
        from mm2mgr.problems.status import status

        seconds = self._seconds
        options = ObserveOptions(deadline_seconds=seconds, kafka_seconds=seconds, store=self._store, shares=True)
        topology, connectors = self._workspace.topology, self._workspace.connectors
        observed = wait_for(status(topology, connectors, only=self._flows, options=options))
        names = sorted({loss.flow for loss in observed.losses}.intersection(self._flows))
        waiting = [f"to acknowledge (mm2mgr losses): {list_names(names)}"] if names else []
        unread = [f"{where} was not read: {failure.message}" for where, failure in observed.failures.items()]
        return (*waiting, *observed.warnings, *unread)


@dataclass(frozen=True)
class TableSize:
    """One table of a store: where it is, and how many rows and files it has now."""

    name: str
    uri: str
    rows: int
    files: int


def table_sizes(store: Store) -> list[TableSize]:
    """Return the tables of a store that exist, with their sizes."""
    from mm2mgr.samples.schema import TABLES
    from mm2mgr.samples.tables import StoredTable

    tables = [(table, table.files()) for name in TABLES if (table := StoredTable(store, name)).exists()]
    return [TableSize(table.name, table.uri, sum(file.rows for file in files), len(files)) for table, files in tables]


def cruise_control_topic(workspace: Workspace, alias: str) -> TopicReader:
    """Return what reads the sample topic of Cruise Control that a source cluster declares, for
    `throughput.sample_sources.register_topic`. Mm2mgrError where it declares none."""
    from mm2mgr.kafka.access import librdkafka_config
    from mm2mgr.live.endpoints import kafka_access
    from mm2mgr.throughput.cruise_topic import declared_topic

    cluster = _sampled_flows(workspace, [alias])[alias][0].source
    kind = next(kind for kind in METRIC_SOURCES if kind.name == "cruise-control-topic")
    metrics = _declared_metrics(cluster, kind)
    return declared_topic(alias, metrics, librdkafka_config(kafka_access(cluster)))


def _declared_metrics(cluster: KafkaCluster, kind: SourceKind) -> object:
    if getattr(cluster.model.metrics, kind.key, None) is None:
        raise Mm2mgrError(
            f"cluster '{cluster.alias}' has no `metrics: {{{kind.key}: …}}`, and so no such source",
            hint="declare it for the cluster or in defaults: clusters:, or leave the cluster out with --cluster",
        )
    return cluster.model.metrics


def _metric_source_readers(
    kind: SourceKind,
    order: SampleOrder,
    clusters: Iterable[tuple[KafkaCluster, Callable[[str], bool]]],
    store: SampleStore,
    engine: ChosenEngine | None,
) -> list[Reader]:
    from mm2mgr.live.endpoints import kafka_access
    from mm2mgr.samples.readers import MetricSourceReader, Opening, open_source
    from mm2mgr.samples.schema import log_file_of

    readers: list[Reader] = []
    on_spark, java_home = (engine.on_spark, engine.java_home) if engine else (False, None)
    for cluster, accepts in clusters:
        metrics, access = _declared_metrics(cluster, kind), kafka_access(cluster)
        http, log_file = partial(_http, kind, cluster), log_file_of(store.store, cache_folder)
        opening = Opening(access, metrics, order.interval_seconds, http, store.store, log_file, on_spark, java_home)
        readers.append(MetricSourceReader(access, accepts, open_source(kind, opening), store, order.back_seconds))
    return readers


def _http(kind: SourceKind, cluster: KafkaCluster) -> Http:
    from mm2mgr.kafka.access import resolve
    from mm2mgr.samples.http import Endpoint, Http

    endpoint: MetricsEndpoint = getattr(cluster.model.metrics, kind.key)
    if endpoint.url is None:
        raise Mm2mgrError(f"cluster '{cluster.alias}': {kind.service} has no `url`", hint="write it under `metrics:`")
    owner, auth, tls = f"cluster '{cluster.alias}', auth of {kind.service}", endpoint.auth, endpoint.tls
    basic = bearer = password = None
    if auth and auth.basic:
        basic = (resolve(owner, auth.basic.username), resolve(owner, auth.basic.password))
    elif auth and auth.bearer:
        bearer = resolve(owner, auth.bearer)
    files = (tls.ca, tls.certificate, tls.key) if tls else (None, None, None)
    if tls and tls.key_password:
        password = resolve(f"cluster '{cluster.alias}', tls of {kind.service}", tls.key_password)
    return Http(Endpoint(f"{kind.service} of '{cluster.alias}'", endpoint.url, basic, bearer, *files, password))
