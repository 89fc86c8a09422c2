"""`who`: which connectors mirror a topic, and where it ends up. `topics`: what flows take of their sources now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mm2mgr.comparison.differences import with_live_order
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.lint.routes import LONGEST, Routes, TopicHop
from mm2mgr.lint.subject import Estate, Subject
from mm2mgr.lint.tree import from_tree
from mm2mgr.lint.workers import read_estates
from mm2mgr.live.kafka_state import RunningKafka, list_topics, no_topic
from mm2mgr.live.reach import Limits
from mm2mgr.live.snapshot import Steps
from mm2mgr.operations.workspace import Workspace
from mm2mgr.render import OWNER_KEY
from mm2mgr.text import nearest, one_line
from mm2mgr.topology import Flow, Topology

_LIMITS = Limits(connect_seconds=20.0)
_NEAREST = 3


@dataclass(frozen=True)
class Mirroring:
    """What one source connector does with the topic. `becomes` is None where it is not mirrored, or under an unknown
    name; `reason` says why it is not.

    `state` is Connect's, "not applied" for what only the tree says, "declared" where Connect was not asked.
    """

    source: str
    topic: str
    target: str
    becomes: str | None
    partitions: int | None
    """Of the name on the target: 0 if it is not there, None where that is not known."""
    takes: bool | None
    reason: str
    connect: str
    connector: str
    state: str
    owner: str | None
    is_ours: bool
    flows: tuple[str, ...]

    json_keys = "from=start to=end takes why=reason connect connector state owner ours=is_ours flows"

    @property
    def start(self) -> dict[str, str]:
        return {"cluster": self.source, "topic": self.topic}

    @property
    def end(self) -> dict[str, str | int | None]:
        return {"cluster": self.target, "topic": self.becomes, "partitions": self.partitions}

    @property
    def stop(self) -> dict[str, str | int | None]:
        """The end with the connector that mirrors there."""
        return {**self.end, "connector": f"{self.connect}/{self.connector}", "state": self.state}


@dataclass(frozen=True)
class TopicRoutes:
    """The routes of a topic, whole: each from where it was written first to an end, and all that its connectors do with
    it.

    `unread` has the Connect clusters that could not be read: of what runs there only this tree's connectors are known.
    `unlisted` has the Kafka clusters whose topics could not be listed: it is not known whether the topic is there.
    `missing`: no cluster that was asked has such a topic, and `nearest` are the names most like it that are there.
    """

    topic: str
    routes: tuple[tuple[Mirroring, ...], ...]
    connectors: tuple[Mirroring, ...]
    unread: Mapping[str, str] = field(default_factory=dict)
    unlisted: Mapping[str, str] = field(default_factory=dict)
    missing: bool = False
    nearest: tuple[str, ...] = ()
    json_keys = "topic routes=stops endless=is_endless connectors unread unlisted missing nearest"

    @property
    def is_endless(self) -> bool:
        """Whether connectors send the topic round, so that its routes are cut."""
        return any(len(way) >= LONGEST for way in self.routes)

    @property
    def stops(self) -> list[list[dict[str, str] | dict[str, str | int | None]]]:
        """The names of the topic along each route."""
        return [[way[0].start, *(mirroring.stop for mirroring in way)] for way in self.routes]


def who(workspace: Workspace, topic: str, *, cluster: str | None = None, offline: bool = False) -> TopicRoutes:
    """Find who mirrors a topic, owned or not, over all hops: from where it is written to every name that it ends up
    under.

    `topic` is its name on `cluster`; else wherever it is, or, if brokers do not answer, wherever a connector may take
    it or writes it. `offline`: only what the tree declares.
    """
    topology = workspace.topology
    declared = from_tree(topology, workspace.connectors).subjects
    live, unread = ((), {}) if offline else _read(workspace)
    if not offline:
        declared = _not_running(declared, live, unread)
    routes = Routes((*live, *declared), topology.clusters.values())
    clusters = sorted({*routes.names.values(), *topology.clusters})
    if cluster is not None and cluster not in clusters:
        near = nearest(cluster, clusters)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(clusters)}"
        raise InvalidArgument("cluster", f"no Kafka cluster '{cluster}'; {hint}")
    stops = [stop for stop in routes.stops(topic) if cluster in {None, routes.names[stop.cluster]}]
    kafkas: dict[str, RunningKafka] = {}
    if not offline:
        through = [leg for stop in stops for way in routes.routes_through(stop) for leg in way]
        passed = {end for leg in through for end in leg.hop.pair}
        aliases = {routes.names[end] for end in (*passed, *(stop.cluster for stop in stops))}
        kafkas = workspace.ask(_list_topics(aliases & topology.clusters.keys()), _LIMITS)
    # Patterns such as .* would also take the name elsewhere: what counts is where the topic is, if that is known.
    counts = {stop: _partitions(kafkas, routes.names[stop.cluster], topic) for stop in stops}
    stops = [stop for stop in stops if counts[stop] != 0 or not any(counts.values())]
    whole = list(dict.fromkeys(way for stop in stops for way in routes.routes_through(stop)))
    states = dict.fromkeys(declared, "declared" if offline else "not applied")
    states |= {subject: "unknown" for subject in declared if subject.connector.connect in unread}
    wording = _Wording(routes, Ownership.of_tree(topology), states, kafkas, topology)
    # Of what is not mirrored only that which concerns a name that the topic has somewhere on its way.
    hops = [hop for way in whole for hop in way]
    names = dict.fromkeys([*stops, *(stop for hop in hops for stop in (hop.start, hop.end) if stop)])
    legs = dict.fromkeys([*hops, *(hop for name in names for hop in routes.legs(name))])
    ways = dict.fromkeys(tuple(map(wording.leg, way)) for way in whole if way)
    connectors = tuple(dict.fromkeys(map(wording.leg, legs)))
    begins = (way[0].start for way in whole if way)
    is_known = any(_partitions(kafkas, routes.names[stop.cluster], stop.topic) for stop in begins)
    is_missing = not offline and not any(counts.values()) and not is_known
    if is_missing:
        more = topology.clusters.keys() - kafkas.keys()
        kafkas |= workspace.ask(_list_topics(more), _LIMITS)
        is_missing = all(topic not in kafka.topics for kafka in kafkas.values())
    there = sorted({name for kafka in kafkas.values() for name in kafka.topics} if is_missing else ())
    unlisted = {alias: one_line(kafka.failure.message) for alias, kafka in kafkas.items() if kafka.failure}
    like = tuple(nearest(topic, there, count=_NEAREST))
    return TopicRoutes(topic, tuple(ways), connectors, unread, unlisted, is_missing, like)


def _partitions(kafkas: Mapping[str, RunningKafka], alias: str, topic: str) -> int | None:
    """Return the partitions of a topic, 0 where it is not there, None where that is not known."""
    kafka = kafkas.get(alias)
    return None if kafka is None or kafka.failure else kafka.topics.get(topic, 0)


@dataclass(frozen=True)
class _Wording:
    """Describes hops by the tree's names; `states` has the connectors that are declared only."""

    routes: Routes
    owners: Ownership
    states: Mapping[Subject, str]
    kafkas: Mapping[str, RunningKafka]
    topology: Topology
    _by_leg: dict[tuple[object, ...], Mirroring] = field(default_factory=dict)

    def leg(self, hop: TopicHop) -> Mirroring:
        """Describe a hop; where declared and running connector agree, the running one."""
        subject, names = hop.hop.subject, self.routes.names
        connect = subject.connector.connect
        state = self.states.get(subject) or subject.state or "no status yet"
        mirroring = Mirroring(
            names[hop.hop.source],
            hop.start.topic,
            names[hop.hop.target],
            hop.end.topic if hop.end else None,
            _partitions(self.kafkas, names[hop.hop.target], hop.end.topic) if hop.end else None,
            hop.takes,
            self._reason(hop),
            connect,
            subject.name,
            state if subject.flag("enabled", default=True) else f"{state}, enabled=false",
            subject.config.get(OWNER_KEY),
            subject in self.states or self.owners.is_ours((connect, subject.name), subject.config),
            subject.connector.flows,
        )
        return self._by_leg.setdefault((connect, subject.name, hop.start, hop.end, hop.takes), mirroring)

    def _reason(self, hop: TopicHop) -> str:
        flows = self.topology.flows_of(hop.hop.subject.connector.flows) if hop.takes is False else []
        parts = (self.topology.part_with(flow, hop.start.topic) for flow in flows)
        return next((_part_text(part) for part in parts if part), hop.reason)


def _part_text(part: Flow) -> str:
    return f"{part.id} of the same flow has it"


def _read(workspace: Workspace) -> tuple[tuple[Subject, ...], dict[str, str]]:
    """Read what all Connect clusters run, and why those could not be read that could not; flows of the tree are
    named."""
    flows = {(connector.connect, connector.name): connector.flows for connector in workspace.connectors}
    answers = workspace.ask(read_estates(workspace.topology.connects), _LIMITS)
    live = tuple(
        replace(subject, connector=replace(subject.connector, connect=name, flows=flows.get((name, subject.name), ())))
        for name, answer in answers.items()
        if isinstance(answer, Estate)
        for subject in answer.subjects
    )
    return live, {name: answer.one_line for name, answer in answers.items() if isinstance(answer, Mm2mgrError)}


def _not_running(
    declared: Sequence[Subject], live: Sequence[Subject], unread: Mapping[str, str]
) -> tuple[Subject, ...]:
    """Return the declared connectors that do not run as declared: new ones, and those whose selection or names an apply
    would change."""
    running = {(subject.connector.connect, subject.name): subject for subject in live}

    def runs(subject: Subject) -> bool:
        other = running.get((subject.connector.connect, subject.name))
        if other is None:
            return False
        config = with_live_order(subject.config, other.config)
        return all(config.get(key, "").strip() == other.get(key) for key in _DECIDE)

    return tuple(subject for subject in declared if not runs(subject))


# What decides which topics a connector takes, from where to where, and under which names; who has the heartbeats stays
# as it is.
_DECIDE = (
    *("topics", "topics.exclude", "topic.filter.class", "replication.policy.class", "replication.policy.separator"),
    *("source.cluster.alias", "target.cluster.alias", "enabled", "transforms"),
    *("source.cluster.bootstrap.servers", "target.cluster.bootstrap.servers"),
)


# --- what flows take --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TakenTopic:
    """A topic of a flow's source; `becomes` is None for one that is not taken, for a reason.

    `arrived`: partitions on the target, 0: not there, None: not known.
    """

    topic: str
    partitions: int
    becomes: str | None
    arrived: int | None
    reason: str = ""
    json_keys = "topic partitions taken=is_taken why=reason becomes partitions_on_target=arrived"

    @property
    def is_taken(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class FlowTopics:
    """The topics of a flow's source that it takes, and with `every` those that it does not; `notes` is what could not
    be read."""

    flow: str
    source: str
    target: str
    topics: tuple[TakenTopic, ...]
    error: str = ""
    notes: tuple[str, ...] = ()


def topics(workspace: Workspace, flows: Sequence[str], *, every: bool = False) -> list[FlowTopics]:
    """List what flows take of their sources now, with its name and partitions on the target.

    `every`: also what they do not take, with the reason. A source that cannot be read is the error of its flows.
    """
    chosen = workspace.flows(flows)
    clusters = {cluster.alias for flow in chosen for cluster in (flow.source, flow.target)}
    kafkas = workspace.ask(_list_topics(clusters), _LIMITS)
    return [_of_flow(workspace.topology, flow, kafkas, every) for flow in chosen]


def _list_topics(aliases: Iterable[str]) -> Steps[dict[str, RunningKafka]]:
    return list_topics(dict.fromkeys(sorted(aliases), no_topic))


def _of_flow(topology: Topology, flow: Flow, kafkas: Mapping[str, RunningKafka], every: bool) -> FlowTopics:
    ends = flow.id, flow.source.alias, flow.target.alias
    source, target = (kafkas[alias] for alias in ends[1:])
    errors = [
        failure and f"the topics of '{alias}' could not be listed: {one_line(failure.message)}"
        for alias, failure in zip(ends[1:], (source.failure, target.failure), strict=True)
    ]
    if errors[0]:
        return FlowTopics(*ends, (), errors[0])
    taken = _topics_of(topology, flow, source.topics, None if errors[1] else target.topics)
    topics = tuple(topic for topic in taken if every or topic.is_taken)
    return FlowTopics(*ends, topics, notes=(errors[1],) if errors[1] else ())


def _topics_of(
    topology: Topology, flow: Flow, source: Mapping[str, int], there: Mapping[str, int] | None
) -> Iterator[TakenTopic]:
    selection = flow.selection
    for topic, partitions in sorted(source.items()):
        if flow.assigns(topic):
            becomes = selection.target_name(topic)
            yield TakenTopic(topic, partitions, becomes, None if there is None else there.get(becomes, 0))
        else:
            part = topology.part_with(flow, topic)
            reason = _part_text(part) if part else selection.refusal(topic) or "no pattern of the flow names it"
            yield TakenTopic(topic, partitions, None, None, reason)
