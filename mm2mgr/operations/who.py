"""`who`: which connectors mirror a topic, and where it ends up. `topics`: what flows take of their sources now. Both only read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from mm2mgr.comparison.equivalence import with_live_order
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.json_values import to_json
from mm2mgr.lint.routes import LONGEST, Routes, TopicHop
from mm2mgr.lint.subject import Estate, Subject
from mm2mgr.lint.tree import from_tree
from mm2mgr.lint.workers import read_estates
from mm2mgr.live.questions import PartitionCounts
from mm2mgr.live.reach import Limits
from mm2mgr.live.snapshot import Steps
from mm2mgr.operations.workspace import Workspace
from mm2mgr.render import OWNER_KEY
from mm2mgr.text import nearest
from mm2mgr.topology import Flow

_LIMITS = Limits(connect_seconds=20.0)


@dataclass(frozen=True)
class Mirroring:
    """What one source connector does with the topic. `becomes` is None where it is not mirrored, or under an unknown name.

    `state` is Connect's, "not applied" for what only the tree says, "declared" where Connect was not asked.
    """

    source: str
    topic: str
    target: str
    becomes: str | None
    partitions: int | None
    """Of the name on the target: 0 if it is not there, None where that is not known."""
    takes: bool | None
    why: str
    connect: str
    connector: str
    state: str
    owner: str | None
    is_ours: bool
    flows: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "from": {"cluster": self.source, "topic": self.topic},
            "to": {"cluster": self.target, "topic": self.becomes, "partitions": self.partitions},
            "takes": self.takes,
            "why": self.why,
            "connect": self.connect,
            "connector": self.connector,
            "state": self.state,
            "owner": self.owner,
            "ours": self.is_ours,
            "flows": list(self.flows),
        }


@dataclass(frozen=True)
class TopicRoutes:
    """The routes of a topic, whole: each from where it was written first to an end, and all that its connectors do with it.

    `unread` has the Connect clusters that could not be read: of what runs there only this tree's connectors are known. `unlisted`
    has the Kafka clusters whose topics could not be listed: it is not known whether the topic is there.
    """

    topic: str
    routes: tuple[tuple[Mirroring, ...], ...]
    connectors: tuple[Mirroring, ...]
    unread: Mapping[str, str] = field(default_factory=dict)
    unlisted: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_endless(self) -> bool:
        """Whether connectors send the topic round, so that its routes are cut."""
        return any(len(way) >= LONGEST for way in self.routes)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values without secrets."""
        return {
            "topic": self.topic,
            "routes": [[_named(way[0].source, way[0].topic), *map(_arriving, way)] for way in self.routes],
            "endless": self.is_endless,
            "connectors": to_json(self.connectors),
            "unread": dict(self.unread),
            "unlisted": dict(self.unlisted),
        }


def _named(cluster: str, topic: str | None) -> dict[str, Any]:
    return {"cluster": cluster, "topic": topic}


def _arriving(one: Mirroring) -> dict[str, Any]:
    at = {**_named(one.target, one.becomes), "partitions": one.partitions}
    return {**at, "connector": f"{one.connect}/{one.connector}", "state": one.state}


def who(workspace: Workspace, topic: str, *, cluster: str | None = None, offline: bool = False) -> TopicRoutes:
    """Find who mirrors a topic, owned or not, over all hops: from where it is written to every name that it ends up under.

    `topic` is its name on `cluster`; else wherever it is, or, if brokers do not answer, wherever a connector may take it or writes it.
    `offline`: only what the tree declares.
    """
    topology = workspace.topology
    declared = from_tree(topology, workspace.connectors).subjects
    live, unread = ((), {}) if offline else _read(workspace)
    if not offline:
        declared = _not_running(declared, live, unread)
    routes = Routes.between((*live, *declared), topology.clusters.values())
    if cluster is not None and cluster not in {*routes.names.values(), *topology.clusters}:
        known = sorted({*routes.names.values(), *topology.clusters})
        near = nearest(cluster, known)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
        raise InvalidArgument("cluster", f"no Kafka cluster '{cluster}'; {hint}")
    stops = [each for each in routes.stops(topic) if cluster in {None, routes.names[each.cluster]}]
    there = _Listed({})
    if not offline:
        passed = {each for stop in stops for way in routes.routes_through(stop) for leg in way for each in leg.hop.pair}
        aliases = {routes.names[each] for each in (*passed, *(stop.cluster for stop in stops))}
        there = _Listed(workspace.ask(_list_topics(aliases & topology.clusters.keys()), _LIMITS))
    # Patterns such as .* would also take the name elsewhere: what counts is where the topic is, if that is known.
    present = [each for each in stops if there.partitions(routes.names[each.cluster], topic)]
    stops = [each for each in stops if not present or there.partitions(routes.names[each.cluster], topic) != 0]
    found = list(dict.fromkeys(way for stop in stops for way in routes.routes_through(stop)))
    states = dict.fromkeys(declared, "declared" if offline else "not applied")
    states |= {each: "unknown" for each in declared if each.connector.connect in unread}
    shown = _Shown(routes, Ownership.of(topology), states, there)
    # Of what is not mirrored only that which concerns a name that the topic has somewhere on its way.
    names = dict.fromkeys([*stops, *(stop for way in found for each in way for stop in (each.start, each.end) if stop)])
    legs = dict.fromkeys(
        [*(each for way in found for each in way), *(each for one in names for each in routes.legs(one))]
    )
    ways = dict.fromkeys(tuple(map(shown.leg, way)) for way in found if way)
    return TopicRoutes(topic, tuple(ways), tuple(dict.fromkeys(map(shown.leg, legs))), unread, there.unlisted)


@dataclass(frozen=True)
class _Listed:
    """The topics of Kafka clusters by alias, or why they could not be listed."""

    found: Mapping[str, Mapping[str, int] | str]

    def partitions(self, alias: str, topic: str) -> int | None:
        topics = self.found.get(alias)
        return None if topics is None or isinstance(topics, str) else topics.get(topic, 0)

    @property
    def unlisted(self) -> dict[str, str]:
        return {alias: why for alias, why in sorted(self.found.items(), key=itemgetter(0)) if isinstance(why, str)}


@dataclass(frozen=True)
class _Shown:
    """Puts legs into the words of the tree; `states` are those of connectors that only the tree is known to have."""

    routes: Routes
    owners: Ownership
    states: Mapping[Subject, str]
    there: _Listed
    _known: dict[tuple[object, ...], Mirroring] = field(default_factory=dict)

    def leg(self, one: TopicHop) -> Mirroring:
        """Return a leg in words: of a connector that runs, and is declared to do the same, as it runs."""
        subject, names = one.hop.subject, self.routes.names
        connect = subject.connector.connect
        state = self.states.get(subject) or subject.state or "no status yet"
        made = Mirroring(
            names[one.hop.source],
            one.start.topic,
            names[one.hop.target],
            one.end.topic if one.end else None,
            self.there.partitions(names[one.hop.target], one.end.topic) if one.end else None,
            one.takes,
            one.reason,
            connect,
            subject.name,
            state if subject.flag("enabled", default=True) else f"{state}, enabled=false",
            subject.config.get(OWNER_KEY),
            subject in self.states or self.owners.is_ours((connect, subject.name), subject.config),
            subject.connector.flows,
        )
        return self._known.setdefault((connect, subject.name, one.start, one.end, one.takes), made)


def _read(workspace: Workspace) -> tuple[tuple[Subject, ...], dict[str, str]]:
    """Read what all Connect clusters run, and why those could not be read that could not; flows of the tree are named."""
    flows = {(each.connect, each.name): each.flows for each in workspace.connectors}
    answers = workspace.ask(read_estates(workspace.topology.connects), _LIMITS)
    live = tuple(
        replace(each, connector=replace(each.connector, connect=name, flows=flows.get((name, each.name), ())))
        for name, answer in answers.items()
        if isinstance(answer, Estate)
        for each in answer.subjects
    )
    return live, {name: answer.one_line for name, answer in answers.items() if isinstance(answer, Mm2mgrError)}


def _not_running(
    declared: Sequence[Subject], live: Sequence[Subject], unread: Mapping[str, str]
) -> tuple[Subject, ...]:
    """Return the declared connectors that do not run as declared: new ones, and those whose selection or names an apply would change."""
    running = {(each.connector.connect, each.name): each for each in live}

    def same(one: Subject, other: Subject | None) -> bool:
        if other is None:
            return False
        config = with_live_order(one.config, other.config)
        return all(config.get(key, "").strip() == other.get(key) for key in _DECIDE)

    return tuple(each for each in declared if not same(each, running.get((each.connector.connect, each.name))))


# What decides which topics a connector takes, from where to where, and under which names; who has the heartbeats stays as it is.
_DECIDE = (
    *("topics", "topics.exclude", "topic.filter.class", "replication.policy.class", "replication.policy.separator"),
    *("source.cluster.alias", "target.cluster.alias", "enabled", "transforms"),
    *("source.cluster.bootstrap.servers", "target.cluster.bootstrap.servers"),
)


# --- what flows take --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TakenTopic:
    """A topic of a flow's source. `why`: for one that is not taken. `arrived`: partitions on the target, 0: not there, None: not known."""

    topic: str
    partitions: int
    becomes: str
    arrived: int | None
    why: str = ""

    @property
    def is_taken(self) -> bool:
        return not self.why

    def to_dict(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partitions": self.partitions,
            "taken": self.is_taken,
            "why": self.why,
            "becomes": self.becomes if self.is_taken else None,
            "partitions_on_target": self.arrived,
        }


@dataclass(frozen=True)
class FlowTopics:
    """The topics of a flow's source that it takes, and with `every` those that it does not; `notes` is what could not be read."""

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
    listings = workspace.ask(_list_topics(clusters), _LIMITS)
    return [_of_flow(flow, listings[flow.source.alias], listings[flow.target.alias], every) for flow in chosen]


def _list_topics(aliases: Iterable[str]) -> Steps[dict[str, Mapping[str, int] | str]]:
    """Return the topics of Kafka clusters with their partitions; for those that do not answer the reason."""
    questions = [PartitionCounts(alias) for alias in sorted(aliases)]
    snapshot = yield questions
    answers = ((question.cluster, snapshot.get(question)) for question in questions)
    return {alias: topics.one_line if isinstance(topics, Mm2mgrError) else topics for alias, topics in answers}


def _of_flow(flow: Flow, source: Mapping[str, int] | str, target: Mapping[str, int] | str, every: bool) -> FlowTopics:
    ends = flow.id, flow.source.alias, flow.target.alias
    if isinstance(source, str):
        return FlowTopics(*ends, (), f"the topics of '{flow.source.alias}' could not be listed: {source}")
    unlisted = f"the topics of '{flow.target.alias}' could not be listed: {target}"
    notes, there = ((unlisted,), None) if isinstance(target, str) else ((), target)
    found = tuple(_taken(flow, source, there, every))
    return FlowTopics(*ends, found, notes=notes)


def _taken(flow: Flow, source: Mapping[str, int], there: Mapping[str, int] | None, every: bool) -> Iterator[TakenTopic]:
    selection = flow.selection
    for topic, partitions in sorted(source.items()):
        why = "" if flow.assigns(topic) else selection.refusal(topic) or "no pattern of the flow names it"
        if every or not why:
            becomes = selection.target_name(topic)
            yield TakenTopic(
                topic, partitions, becomes, there.get(becomes, 0) if there is not None and not why else None, why
            )
