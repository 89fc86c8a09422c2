"""Reads Connect and Kafka once, as far as the chosen flows and what is due ask for.

Connect is read before Kafka: an end offset read first would make a flow that moves look as if it were past the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mm2mgr.assignment_text import PLUGIN_CLASS, is_plugin_class
from mm2mgr.comparison.differences import Named, WorkerClients
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connect.errors import ConnectUnreachable
from mm2mgr.connect.types import ASKED_CONFIG, parse_stored, supports_exactly_once
from mm2mgr.connectors import Connector, RunningConnector, type_of, with_statuses
from mm2mgr.errors import Failure, Mm2mgrError
from mm2mgr.live.kafka_state import KafkaProbe, KafkaState, ReadKafka, RunningKafka, WantedLogs, read_kafka
from mm2mgr.live.questions import (
    AnsweringWorker,
    Configs,
    ConfigValidation,
    ConnectorsWithStatuses,
    ConnectQuestion,
    OffsetsInTopic,
    PluginsOfEachWorker,
    SilentWorkers,
    Statuses,
    StoredOffsets,
    TaskConfigs,
)
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import Clusters, run_steps
from mm2mgr.live.snapshot import Snapshot, Steps, side_by_side
from mm2mgr.observe.beside_records import COPIED, checkpointing
from mm2mgr.observe.lag import doubtful, seen_offsets, to_search
from mm2mgr.observe.reading import LiveConnector, OtherConnector, Patience, Reading, SeenConnect, Standing
from mm2mgr.observe.state_file import TimedLooks
from mm2mgr.partitions import TopicPartition
from mm2mgr.render import OWNER_KEY, connectors_of
from mm2mgr.samples.schema import Store
from mm2mgr.topology import ConnectCluster, Flow, Topology
from mm2mgr.truth.reach import text_of

LOOK_KAFKA_SECONDS = 8.0
"""Time that a look gives a Kafka cluster: with Connect, `status` and `lag` then answer within ten seconds."""
LOOK_SILENCE_SECONDS = 6.0
"""Time that a look gives workers to begin their first answer, which they have in memory also while they rebalance."""
_CLUSTERS_AT_ONCE = 32
_GROUPS_AT_MOST = 100  # of a checkpoint connector; a request each


@dataclass(frozen=True)
class ObserveOptions:
    """How to observe: clients, limits, the store with the table of losses, memory file (None: the owner's file in the
    state folder).

    `deadline_seconds` bounds each request to Connect with its retries, `kafka_seconds` each call to Kafka. `earlier`:
    the last looks at settings and ACLs of topics and offsets of consumer groups, which are read again where that is
    due; None: nowhere. `shares`: whether points of lag go into the store every five minutes, so that the first look on
    another machine knows where a lag goes.
    """

    kafka: ReadKafka = read_kafka
    clock: Callable[[], float] = time.time
    deadline_seconds: float = 20.0
    patience: Patience = field(default_factory=Patience)
    memory_file: Path | None = None
    store: Store = Path(".mm2mgr/samples")
    earlier: TimedLooks | None = None
    shares: bool = False
    snapshot: Snapshot | None = None
    """Answers from a file, beside which no cluster is asked."""
    kafka_seconds: float = LOOK_KAFKA_SECONDS
    report_waits: Callable[[tuple[str, ...]], object] | None = None
    """Called with the clusters that have not answered yet, such as `connect main`, whenever these change."""


async def read_estate(
    topology: Topology, connectors: Iterable[Connector], flows: Sequence[Flow], how: ObserveOptions
) -> Reading:
    """Read the chosen flows and nothing else; with all flows also every declared Connect cluster, for orphans.

    Nothing is raised for a cluster that does not answer: its failure is in the Reading.
    """
    limits = Limits(
        how.deadline_seconds,
        kafka_seconds=how.kafka_seconds,
        kafka_at_once=_CLUSTERS_AT_ONCE,
        spares_silent_workers=True,
        silence_seconds=LOOK_SILENCE_SECONDS,
        report_waits=how.report_waits,
    )
    steps = reading_of(topology, connectors, flows, how)
    return (await run_steps(steps, Clusters.of_tree(topology), limits, how.snapshot))[0]


def reading_of(
    topology: Topology, connectors: Iterable[Connector], flows: Sequence[Flow], how: ObserveOptions
) -> Steps[Reading]:
    """Return the same from answers."""
    begun_at, whole = how.clock(), len({flow.id for flow in flows}) == len(topology.flows)
    connectors = tuple(connectors)
    declared = {(connector.connect, connector.name) for connector in connectors}
    chosen: dict[str, list[Connector]] = {flow.connect.name: [] for flow in flows}
    if whole:
        chosen = {name: [] for name in (*chosen, *topology.connects)}
    for connector in connectors_of(connectors, flows):
        chosen[connector.connect].append(connector)
    connects = yield from side_by_side(
        *(read_connect(topology, name, chosen[name], declared, how) for name in chosen),
        _probe({topology.connects[name].kafka for name in chosen if chosen[name]}, how.kafka),
    )
    connects = list(filter(None, connects))
    by_name = {connect.name: connect if whole else replace(connect, orphans=()) for connect in connects}
    desired = {connector.flows[0]: connector for connector in connectors if connector.type == "source"}
    reading = Reading(
        how.clock(),
        tuple(flows),
        by_name,
        {},
        whole,
        begun_at,
        declared=topology.flows,
        desired=desired,
        moves=topology.moved,
    )
    if how.earlier:
        reading = replace(reading, copied_asked=frozenset(_due(reading, how.earlier)))
    reading = replace(reading, clusters=(yield from _read_clusters(reading, how.kafka)))
    reading = yield from _with_later_ends(reading, how)
    reading = yield from _with_searches(reading, how)
    return replace(reading, taken_at=how.clock())


def _probe(aliases: Iterable[str], kafka: ReadKafka) -> Steps[None]:
    """Find out which workers' own Kafka clusters are silent, before the workers are asked for what needs these."""
    yield [KafkaProbe(alias, kafka) for alias in sorted(aliases)]


def _due(reading: Reading, earlier: TimedLooks) -> Iterator[tuple[str, str]]:
    for kind, copied in COPIED.items():
        for flow in reading.flows:
            connector, look = reading.source_connector(flow), earlier.copied.get(kind, {}).get(flow.id)
            sync = copied.sync(connector) if connector else None
            if sync and sync.is_due(look.asked_at if look else None, reading.taken_at):
                yield kind, flow.id


# --- Connect ----------------------------------------------------------------------------------------------------------


def read_connect(
    topology: Topology, name: str, chosen: Sequence[Connector], declared: Collection[Named], how: ObserveOptions
) -> Steps[SeenConnect]:
    connect, owners = topology.connects[name], Ownership.of_tree(topology)
    snapshot = yield [Configs(name), Statuses(name)]
    try:
        statuses = snapshot[Statuses(name)]
        connectors = with_statuses(snapshot[Configs(name)], statuses)
    except Mm2mgrError as error:
        stored = yield from _offsets_in_topics(connect, chosen)
        silent_urls = error.silent_urls if isinstance(error, ConnectUnreachable) else ()
        return SeenConnect(name, failure=Failure.from_error(error), stored=stored, silent_urls=silent_urls)
    live = [LiveConnector(connector, connectors.get(connector.name)) for connector in chosen]
    busy = SilentWorkers(name, tuple(sorted({worker for status in statuses.values() for worker in status.workers})))
    validation = ConfigValidation.from_config(name, ASKED_CONFIG)
    asked = [validation] if any(connector.type == "source" for connector in chosen) else []
    plugin = _plugin_question(name, live)
    more = [question for connector in live for question in _more(connector, how)]
    snapshot = yield [AnsweringWorker(name), busy, *asked, *plugin, *more]
    live = _with_plugin(live, plugin, snapshot)
    root, silent, validated = snapshot.get(AnsweringWorker(name)), snapshot.get(busy), snapshot.get(validation)
    version = "" if isinstance(root, Mm2mgrError) else root.version
    workers = WorkerClients(version or connect.model.version or "", topology.clusters[connect.kafka].client)

    def complete(connector: LiveConnector) -> LiveConnector:
        running = connector.running
        is_adopted = running and owners.is_adopted((name, connector.desired.name), running.config)
        return replace(_with_more(connector, snapshot, how), adopted=workers if is_adopted else None)

    return SeenConnect(
        name,
        {connector.desired.name: complete(connector) for connector in live},
        kafka_cluster_id="" if isinstance(root, Mm2mgrError) else root.kafka_cluster_id,
        orphans=tuple(_orphans(name, {connector.name for connector in chosen}, owners, connectors)),
        silent_workers=frozenset() if isinstance(silent, Mm2mgrError) else silent,
        others=tuple(_others(name, declared, owners, connectors)),
        version=version,
        exactly_once=None if isinstance(validated, Mm2mgrError) else supports_exactly_once(validated),
    )


def _offsets_in_topics(
    connect: ConnectCluster, chosen: Sequence[Connector]
) -> Steps[dict[str, dict[TopicPartition, int]] | None]:
    """Return what source connectors stored, by name, from their offsets topics: that of the workers, where the tree
    names it, or one of their own on the target. None where none is known or readable."""
    topics: dict[tuple[str, str], list[Connector]] = {}
    for connector in chosen:
        own = connector.config.get("offsets.storage.topic")
        alias = connector.config.get("target.cluster.alias", "") if own else connect.kafka
        topic = own or connect.model.offsets_topic
        if connector.type == "source" and topic:
            topics.setdefault((alias, topic), []).append(connector)
    questions = {
        OffsetsInTopic(alias, topic, tuple(connector.name for connector in connectors)): connectors
        for (alias, topic), connectors in topics.items()
    }
    snapshot = yield questions
    stored: dict[str, dict[TopicPartition, int]] = {}
    for question, connectors in questions.items():
        if not isinstance(answer := snapshot.get(question), Mm2mgrError):
            for connector in connectors:
                entries = answer.get(connector.name, ())
                stored[connector.name] = parse_stored(entries, connector.config["source.cluster.alias"])
    return stored or None


async def read_states(
    topology: Topology, connectors: Iterable[Connector], deadline_seconds: float
) -> tuple[SeenConnect, ...]:
    """Read configs and states of connectors alone: one request per Connect cluster, side by side. Nothing is raised."""
    declared: dict[str, list[Connector]] = {}
    for connector in connectors:
        declared.setdefault(connector.connect, []).append(connector)

    def states_of(name: str) -> Steps[SeenConnect]:
        snapshot = yield [ConnectorsWithStatuses(name)]
        answer = snapshot.get(ConnectorsWithStatuses(name))
        if isinstance(answer, Mm2mgrError):
            return SeenConnect(name, failure=Failure.from_error(answer))
        live = [LiveConnector(connector, answer.get(connector.name)) for connector in declared[name]]
        if plugin := _plugin_question(name, live):
            live = _with_plugin(live, plugin, (yield plugin))
        return SeenConnect(name, {connector.desired.name: connector for connector in live})

    steps = side_by_side(*map(states_of, declared))
    connects, _ = await run_steps(steps, Clusters.of_tree(topology), Limits(connect_seconds=deadline_seconds))
    return tuple(connects)


def _plugin_question(connect: str, connectors: Iterable[LiveConnector]) -> list[PluginsOfEachWorker]:
    """Return the question whether the workers have the Connect plugin whose tasks of its class are RESTARTING: on one
    that lacks it they stay so for ever, and nothing else tells."""
    workers = {worker for connector in connectors for worker in _restarting(connector)}
    return [PluginsOfEachWorker(connect, tuple(sorted(workers)))] if workers else []


def _restarting(connector: LiveConnector) -> set[str]:
    """Return the workers that have RESTARTING tasks of a connector of the plugin's class."""
    running = connector.running
    if running is None or running.status is None or not is_plugin_class(running.config.get("connector.class", "")):
        return set()
    return {task.worker_id for task in running.status.tasks if task.state == "RESTARTING"}


def _with_plugin(
    connectors: list[LiveConnector], question: Sequence[PluginsOfEachWorker], snapshot: Snapshot
) -> list[LiveConnector]:
    answers = snapshot.get(question[0]) if question else None
    if answers is None or isinstance(answers, Mm2mgrError):
        return connectors
    asked = {worker: answers.of_worker(worker) for worker in question[0].workers}
    lacking = {worker for worker, answer in asked.items() if answer and answer.lacks(PLUGIN_CLASS)}
    return [replace(connector, without_plugin=frozenset(_restarting(connector) & lacking)) for connector in connectors]


def _orphans(
    connect: str, declared: Collection[str], owners: Ownership, connectors: Mapping[str, RunningConnector]
) -> Iterator[OtherConnector]:
    for name, connector in sorted(connectors.items()):
        if name not in declared and owners.is_ours((connect, name), connector.config):
            state = connector.state or "no status"
            yield OtherConnector(connect, name, connector.config, state, "left-over", owners.owner)


def _others(
    connect: str, declared: Collection[Named], owners: Ownership, connectors: Mapping[str, RunningConnector]
) -> Iterator[OtherConnector]:
    """Yield the source connectors of a Connect cluster that are not declared, by name."""
    for name, connector in sorted(connectors.items()):
        if (connect, name) in declared or type_of(connector.config.get("connector.class", "")) != "source":
            continue
        owner, state = connector.config.get(OWNER_KEY, ""), "no status"
        if connector.status:
            state = connector.status.work_state
        standing: Standing = "other-owner" if owner else "unmarked"
        if (connect, name) in owners.released:
            standing = "released"
        elif owners.is_ours((connect, name), connector.config):
            standing = "left-over"
        yield OtherConnector(connect, name, connector.config, state, standing, owner)


def _reads_groups(connector: LiveConnector, how: ObserveOptions) -> bool:
    checkpoints, earlier = checkpointing(connector), how.earlier
    return bool(checkpoints and earlier and checkpoints.is_due(earlier.checkpoints.get(connector.key), how.clock()))


def _more(connector: LiveConnector, how: ObserveOptions) -> Iterator[ConnectQuestion[object]]:
    """A checkpoint connector's tasks are read where that is due."""
    place = connector.desired.connect, connector.desired.name
    is_source = connector.running is not None and connector.desired.type == "source"
    if is_source or _reads_groups(connector, how):
        yield TaskConfigs(*place)
    if is_source:
        yield StoredOffsets(*place)


def _with_more(connector: LiveConnector, snapshot: Snapshot, how: ObserveOptions) -> LiveConnector:
    place = connector.desired.connect, connector.desired.name
    tasks = snapshot.get(TaskConfigs(*place))
    if not isinstance(tasks, Mm2mgrError) and _reads_groups(connector, how):
        groups = sorted(group for task in tasks for group in task.groups)
        connector = replace(connector, groups=tuple(groups[:_GROUPS_AT_MOST]))
    if connector.running is None or connector.desired.type != "source":
        return connector
    offsets = snapshot.get(StoredOffsets(*place))
    running = replace(
        connector.running,
        tasks=Failure.from_error(tasks) if isinstance(tasks, Mm2mgrError) else tasks,
        offsets=(
            Failure.from_error(offsets)
            if isinstance(offsets, Mm2mgrError)
            else parse_stored(offsets, connector.desired.config["source.cluster.alias"])
        ),
    )
    return replace(connector, running=running)


# --- Kafka ------------------------------------------------------------------------------------------------------------


def _read_clusters(reading: Reading, kafka: ReadKafka) -> Steps[dict[str, RunningKafka]]:
    aliases = dict.fromkeys(cluster.alias for flow in reading.flows for cluster in (flow.source, flow.target))
    questions = {alias: KafkaState(alias, _wanted_logs(reading, alias), kafka) for alias in aliases}
    snapshot = yield questions.values()
    answers = {alias: snapshot.get(question) for alias, question in questions.items()}
    return {
        alias: RunningKafka(failure=Failure.from_error(answer)) if isinstance(answer, Mm2mgrError) else answer
        for alias, answer in answers.items()
    }


def _with_later_ends(reading: Reading, how: ObserveOptions) -> Steps[Reading]:
    """Read the ends of source partitions again where more seems to have arrived than there was."""
    doubts: dict[str, list[TopicPartition]] = {}
    for flow in reading.flows:
        earlier = how.earlier.flows.get(flow.id) if how.earlier else None
        if earlier and (partitions := [*doubtful(reading, flow, earlier.surplus)]):
            doubts.setdefault(flow.source.alias, []).extend(partitions)
    questions = {
        alias: KafkaState(alias, WantedLogs(ends=tuple(partitions)), how.kafka) for alias, partitions in doubts.items()
    }
    snapshot = yield questions.values()
    clusters = dict(reading.clusters)
    for alias, question in questions.items():
        answer = snapshot.get(question)
        ends = (
            {} if isinstance(answer, Mm2mgrError) else {partition: log.end for partition, log in answer.offsets.items()}
        )
        clusters[alias] = replace(clusters[alias], later_ends=ends)
    return replace(reading, clusters=clusters)


def _with_searches(reading: Reading, how: ObserveOptions) -> Steps[Reading]:
    """Look for records in the last offsets of source partitions at which a flow that runs stands still; once for each
    end of a log."""
    questions: dict[str, KafkaState] = {}
    for flow in reading.flows:
        earlier = how.earlier.flows.get(flow.id) if how.earlier else None
        if earlier and (places := [*to_search(reading, flow, seen_offsets(reading, flow, earlier.topics))]):
            wanted = WantedLogs(between=tuple(places), committed=_reads_committed(reading, flow))
            questions[flow.id] = KafkaState(flow.source.alias, wanted, how.kafka)
    snapshot = yield questions.values()
    answers = {flow: snapshot.get(question) for flow, question in questions.items()}
    searches = {
        flow: (frozenset(partition for partition, *_ in questions[flow].wanted.between), answer)
        for flow, answer in answers.items()
        if not isinstance(answer, Mm2mgrError)
    }
    return replace(reading, searches=searches)


def _reads_committed(reading: Reading, flow: Flow) -> bool:
    connector = reading.source_connector(flow)
    config = connector.running.config if connector and connector.running else {}
    return text_of("source", config, "source consumer", "isolation.level") == "read_committed"


def _wanted_logs(reading: Reading, alias: str) -> WantedLogs:
    away = [(flow, _assigned_topics(reading, flow)) for flow in reading.flows if flow.source.alias == alias]
    here = [(flow, _assigned_topics(reading, flow)) for flow in reading.flows if flow.target.alias == alias]

    writers = (writer for writer in reading.companions() if writer.desired.config["target.cluster.alias"] == alias)
    written = set(map(reading.topic_of, writers))

    def is_mirrored(topic: str) -> bool:
        return topic in written or any(topic in assigned or flow.carries(topic) for flow, assigned in away)

    def is_mirror(topic: str) -> bool:
        sources = ((flow, assigned, flow.selection.upstream(topic)) for flow, assigned in here)
        return any(name and (name in assigned or flow.carries(name)) for flow, assigned, name in sources)

    return WantedLogs(
        is_mirrored,
        is_mirror,
        frozenset(_wanted_copied("configs", reading, alias)),
        frozenset(_wanted_copied("acls", reading, alias)),
        tuple(sorted(set(_wanted_groups(reading, alias)))),
        tuple(sorted({flow.source.alias for flow, _ in here})),
    )


def _wanted_groups(reading: Reading, alias: str) -> Iterator[str]:
    """On the target only where they are synced."""
    for companion in reading.companions():
        checkpoints, config = checkpointing(companion), companion.desired.config
        syncs = checkpoints is not None and checkpoints.syncs_groups
        if config["source.cluster.alias"] == alias or (syncs and config["target.cluster.alias"] == alias):
            yield from companion.groups or ()


def _wanted_copied(kind: str, reading: Reading, alias: str) -> Iterator[str]:
    """On a flow's source the topics that its tasks have, and theirs on its target."""
    for flow in reading.flows:
        if (kind, flow.id) in reading.copied_asked and alias in (flow.source.alias, flow.target.alias):
            topics = _assigned_topics(reading, flow)
            yield from topics if flow.source.alias == alias else map(flow.remote_topic, topics)


def _assigned_topics(reading: Reading, flow: Flow) -> frozenset[str]:
    connector = reading.source_connector(flow)
    return connector.assignment.topics if connector else frozenset()
