"""The expanded estate: clusters, Connect clusters, flows, each setting with its origin. Pure: no I/O, no clock.

`mm2mgr.expand` creates these from a Spec; rendering, sizing and status read them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter

from mm2mgr import defaults
from mm2mgr.connectors import ConnectorType
from mm2mgr.defaults import Origin, Text, by_default
from mm2mgr.errors import Mm2mgrError
from mm2mgr.link import BY_SYSTEM, USUAL_HEAP_BYTES, BrokerLimits, Clients, Route
from mm2mgr.link_settings import Crossing, compile_block, may_pipeline
from mm2mgr.log_places import GROUP_PREFIX
from mm2mgr.spec.models import Cluster, Connect, FailoverSettings, FlowSettings, Link, Topics
from mm2mgr.spec.places import Key, PathKey
from mm2mgr.spec.scalars import java_pattern
from mm2mgr.text import few, nearest, number_of, rate_text, whole_number
from mm2mgr.topics.names import POLICIES, Items, NameFilter, Selection, literal
from mm2mgr.truth.keys import load

_TRANSACTION_RECORDS = int(defaults.EXACTLY_ONCE_DEFAULTS["source_consumer"]["max.poll.records"][0])
_BUILT_IN = Origin("default", "mm2mgr")


@dataclass(frozen=True)
class KafkaCluster:
    """A Kafka cluster of the estate. `client` is what a client needs to reach it: bootstrap.servers and security keys.

    `limits`: what its brokers allow; `flow_message_bytes`: what topics accept, by flow that writes, where known.
    """

    alias: str
    client: Mapping[str, Text]
    replication_factor: Text
    model: Cluster
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    flow_message_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ConnectCluster:
    """A Kafka Connect cluster; `kafka` is the alias of the Kafka its workers use.

    `exactly_once`: its workers are declared so, or a flow asks it of them, which concerns every connector there.
    """

    name: str
    kafka: str
    model: Connect
    exactly_once: bool = False


@dataclass(frozen=True)
class TaskMaximum:
    """`maximum` as the connector gets it, and by what. `is_saving`: `size` lowered it only to save tasks."""

    maximum: Text
    automatic: bool
    is_saving: bool = False


@dataclass(frozen=True)
class CatchUpLimit:
    """What record producers that share a client id may write to their target, in bytes per second.

    `name`: whose limit it is: a flow's id, or `source->target` for flows over a link without one of their own.
    """

    name: str
    bytes_per_second: float
    origin: Origin

    @property
    def words(self) -> str:
        """What is limited, and who shares it."""
        sharing = (
            "all tasks of this flow" if ":" in self.name else f"all flows {self.name} without a limit of their own"
        )
        return f"catch-up limit of {rate_text(self.bytes_per_second)}, shared by {sharing}"


@dataclass(frozen=True, eq=False)
class Flow:
    """One flow of the expanded topology: a declared flow between one source and one target."""

    name: str
    source: KafkaCluster
    target: KafkaCluster
    connect: ConnectCluster
    settings: FlowSettings
    written: Mapping[PathKey, Origin]
    spelt: Mapping[PathKey, object]
    """The settings that are written, by the same paths, as the tree has them: `500 kB/s`, and no number."""
    tasks: TaskMaximum
    link: Link | None = None
    route: Route | None = None
    """How its worker reaches both ends, where a link is declared on the way."""
    measured_bytes_per_second: float | None = None
    """Its traffic as `mm2mgr size` found it; None: not measured."""
    worker_tasks: int = 1
    """How many tasks of all flows one worker of its Connect cluster may run, which share its heap."""
    lane_of: str | None = None
    """The declared flow of which it is a lane: mirrored by a connector of its own, with the settings of that flow."""
    undivided: Topics | None = None
    """What a flow with lanes mirrors together with them; its own `topics` leave out those of the lanes."""
    with_heartbeats: bool = False
    """Whether its source connector mirrors the heartbeats of the pair: the first flow by name of those with heartbeats
    enabled. Plans go on with the one that does live (`reconcile.heartbeats`).
    """

    @property
    def pair(self) -> str:
        """`source->target`."""
        return f"{self.source.alias}->{self.target.alias}"

    @property
    def id(self) -> str:
        """`name:source->target`, unique in the estate."""
        return f"{self.name}:{self.pair}"

    @property
    def declared_name(self) -> str:
        """The name under `flows:` in the tree, which a flow shares with its lanes."""
        return self.lane_of or self.name

    @property
    def whole_id(self) -> str:
        """The id that a flow shares with its lanes: its own, or that of the flow of which it is a lane."""
        return f"{self.declared_name}:{self.pair}"

    def is_meant(self, name: str) -> bool:
        """Tell whether a user means this flow, too, by a flow id, a pair `source->target`, or a declared name."""
        return name in {self.id, self.whole_id, self.pair, self.name, self.declared_name}

    @property
    def policy(self) -> str:
        """The Java class of its replication policy."""
        return defaults.POLICIES.get(self.settings.replication_policy, self.settings.replication_policy)

    @property
    def target_limits(self) -> BrokerLimits:
        """What the target's brokers allow, and the largest batch that the topics of this flow there accept."""
        limits = self.target.limits
        return replace(limits, message_bytes=self.target.flow_message_bytes.get(self.id, limits.message_bytes))

    @property
    def exactly_once(self) -> bool:
        """Whether each record must arrive exactly once, even if workers fail."""
        return self.settings.delivery == "exactly_once"

    @property
    def with_checkpoints(self) -> bool:
        """Whether the checkpoint connector of the pair serves it; checkpoints need offset syncs."""
        return self.settings.checkpoints.enabled and self.settings.offset_syncs.enabled

    @property
    def failover(self) -> FailoverSettings | None:
        """What its pair declares of failover; None where that is nothing, or false."""
        declared = self.settings.failover
        return declared if declared and declared.enabled else None

    def connector_name(self, type_: ConnectorType) -> Text:
        """Return its connector's name of this type. Offsets are stored under it: a new name mirrors all again."""
        path = ("connector_name",) if type_ == "source" else (f"{type_}s", "connector_name")
        own: str | None = attrgetter(".".join(path))(self.settings)
        if own:
            return self.text(own, *path)
        parts = ("mm2", self.source.alias, self.target.alias, type_, self.name if type_ == "source" else "")
        return by_default(".".join(filter(None, parts)), "made from the aliases and the flow")

    def origin(self, *path: Key) -> Origin:
        """Return the origin of the setting at `path`: where it is written, or mm2mgr's default."""
        return self.written.get(path, _BUILT_IN)

    def origin_of(self, *path: Key) -> Origin:
        """Return the origin of a block of settings: of the first that is written in it, else as `origin`."""
        length = len(path)
        return next((where for key, where in self.written.items() if key[:length] == path), _BUILT_IN)

    def text(self, value: object, *path: Key) -> Text:
        """Return `value` in Connect's form (booleans in lower case, whole numbers without a point), with its origin."""
        return Text(config_text(value), self.origin(*path))

    def client(self, block: str) -> dict[str, Text]:
        """Return the settings of one client: mm2mgr's defaults, overlaid by what people wrote (null drops a key)."""
        base = defaults.CLIENT_DEFAULTS.get(block, {})
        if self.exactly_once:
            base = base | defaults.EXACTLY_ONCE_DEFAULTS.get(block, {})
        first, until = defaults.METRIC_NAMES_VERSIONS
        if block in defaults.METRIC_NAMES_DEFAULTS and first <= self.selection.line < until:
            base = base | defaults.METRIC_NAMES_DEFAULTS[block]
        result = {key: by_default(value, reason) for key, (value, reason) in base.items()}
        if self.crossing:
            result |= compile_block(block, self.crossing)
        written: Mapping[str, str | None] = getattr(self.settings, block)
        for key, value in written.items():
            result.pop(key, None)
            if value is not None:
                result[key] = self.text(value, block, key)
        return result

    @property
    def start(self) -> Text | None:
        """Where it begins, as `scalars.log_place` reads it; None: nothing is written."""
        start = self.settings.start
        if not isinstance(start, str):  # None; the validator makes a text of all else
            return None
        return Text(start, self.origin("start", "group") if start.startswith(GROUP_PREFIX) else self.origin("start"))

    @cached_property
    def catch_up(self) -> CatchUpLimit | None:
        """The limit of its record producer, its own or its link's; None: no limit."""
        if own := self.settings.catch_up:
            return CatchUpLimit(self.whole_id, own.limit, self.origin("catch_up", "limit"))
        if self.link and (shared := self.link.catch_up):
            return CatchUpLimit(self.pair, shared.limit, self.origin("link", "catch_up", "limit"))
        return None

    @cached_property
    def crossing(self) -> Crossing | None:
        """What its link asks of its clients, None without a declared link."""
        if self.route is None:
            return None
        producer = self.settings.record_producer
        allowed = may_pipeline(self.target_limits, producer, secured=bool(self.target.model.security))
        return Crossing(
            self.route,
            int(self.tasks.maximum),
            self.link.profile if self.link else "balanced",
            self.source.limits,
            self.target_limits,
            self.connect.model.workers.memory or USUAL_HEAP_BYTES,
            self.worker_tasks,
            idempotent=allowed or self.exactly_once,  # its workers have idempotent producers anyway
            poll_records=_TRANSACTION_RECORDS if self.exactly_once else Clients.poll_records,
            receive_buffer_bytes=_buffer(
                self.settings.source_consumer, "receive.buffer.bytes", Clients.receive_buffer_bytes
            ),
            send_buffer_bytes=_buffer(producer, "send.buffer.bytes", Clients.send_buffer_bytes),
            request_bytes=max(_number(producer, "max.request.size"), _number(producer, "batch.size")),
            buffer_bytes=_number(producer, "buffer.memory"),
        )

    @cached_property
    def selection(self) -> Selection:
        """What it mirrors, by the Kafka version that its Connect cluster declares."""
        topics, separator = self.settings.topics, self.settings.separator
        verbatim, version = self.settings.verbatim.source, self.connect.model.version or ""
        return Selection(
            NameFilter(
                _verbatim_items(verbatim, "topics", _java(topics.include), version),
                _verbatim_items(
                    verbatim, "topics.exclude", _java([*defaults.TOPICS_EXCLUDE, *topics.exclude]), version
                ),
            ),
            POLICIES.get(self.policy.rpartition(".")[2]),
            self.source.alias,
            self.target.alias,
            separator,
            separator,
            self.connect.model.version or "",
        )

    @cached_property
    def carries(self) -> Callable[[str], bool]:
        """Tells whether this flow mirrors a source topic; heartbeats are not included (see `with_heartbeats`)."""
        return self.selection.takes

    def assigns(self, topic: str) -> bool:
        """Tell whether its connector gives a topic of the source to its tasks: one that it carries, or heartbeats."""
        return self.carries(topic) or (self.with_heartbeats and self.selection.takes_heartbeats(topic))

    def remote_topic(self, topic: str) -> str:
        """Return the name of a source topic on the target."""
        return self.selection.target_name(topic)


@dataclass(frozen=True)
class ListedConnector:
    """An entry of `adopt:` or `release:`: a connector of this tree before it carries the owner mark, or no longer.

    `place` is file and line; `from_owner` is of `adopt:` only.
    """

    connect: str
    connector: str
    place: str
    from_owner: str | None = None

    @property
    def full_name(self) -> tuple[str, str]:
        """The Connect cluster and the connector."""
        return self.connect, self.connector


@dataclass(frozen=True)
class Moved:
    """An entry of `moved:`: flow `to` goes on where another, or a connector, stopped. One of the first three is set.

    `topics`: only these move, and both flows stay; empty: the whole flow. `written` is `from:` as people wrote it.
    """

    flow: str | None
    """Id of the flow that it was. With `topics` it is declared, else it no longer is."""
    connector: tuple[str, str] | None
    """Connect cluster and name of the connector that it was."""
    dedicated: tuple[str, str] | None
    """Source and target alias in the mm2.properties of a dedicated MirrorMaker."""
    to: str
    topics: tuple[str, ...]
    from_owner: str | None
    place: str
    written: str
    of_pair: bool = False
    """Whether the entry is for a whole pair, and this is one flow of it."""


def _nearest_labels(label: str, there: Sequence[str]) -> list[str]:
    """Return the labels, KEY=VALUE, that a misspelt one may mean: those of its key first."""
    key, _, value = label.partition("=")
    of_key = [text for text in there if text.startswith(f"{key}=")]
    near = nearest(value, (text.partition("=")[2] for text in of_key), count=3)
    return [f"{key}={text}" for text in near] or of_key[:3] or nearest(label, there, count=3)


@dataclass(frozen=True)
class Topology:
    """The expanded estate."""

    owner: Text
    clusters: Mapping[str, KafkaCluster]
    connects: Mapping[str, ConnectCluster]
    flows: tuple[Flow, ...]
    stale_sizing: tuple[str, ...] = ()
    """Entries of overrides/ for flows that are no longer declared: they have no effect, and `size` removes them."""
    adopted: tuple[ListedConnector, ...] = ()
    moved: tuple[Moved, ...] = ()
    released: tuple[ListedConnector, ...] = ()
    stale_brokers: tuple[str, ...] = ()
    """The same for Kafka clusters: `link read` removes them."""
    unused_links: tuple[tuple[str, str], ...] = ()
    """Links that no flow uses: place, and both ends."""

    @property
    def failover_pairs(self) -> dict[str, FailoverSettings]:
        """What pairs of clusters declare of failover, by `source->target`."""
        return {flow.pair: flow.failover for flow in self.flows if flow.failover}

    def flows_of(self, ids: Container[str]) -> list[Flow]:
        """Return the flows with these ids, such as those that a connector serves."""
        return [flow for flow in self.flows if flow.id in ids]

    def part_with(self, flow: Flow, topic: str) -> Flow | None:
        """Return the other part of a flow with lanes that mirrors a topic: a lane, or the flow's own connector."""
        others = (other for other in self.flows if other.whole_id == flow.whole_id and other.id != flow.id)
        return next((other for other in others if other.carries(topic)), None)

    def select(self, name: str) -> list[Flow]:
        """Return the flows that a user means by a flow id, a pair `source->target`, a declared name, or the name of the
        source connector, with its Connect cluster before a slash or without.

        The name and the id of a flow mean its lanes, too; those of a lane that lane alone.
        """
        flows = [flow for flow in self.flows if flow.is_meant(name)]
        if not flows:
            flows = [
                flow
                for flow in self.flows
                for connector in (flow.connector_name("source"),)
                if name in {connector, f"{flow.connect.name}/{connector}"}
            ]
        if not flows:
            names = sorted({flow.id for flow in self.flows} | {flow.name for flow in self.flows})
            near = nearest(name, names, 0.4, count=3)
            hint = f"did you mean {', '.join(near)}?" if near else f"flows here: {', '.join(names[:10]) or 'none'}"
            raise Mm2mgrError(f"no flow '{name}'", hint=hint)
        return flows

    def with_labels(self, labels: Collection[tuple[str, str]]) -> list[Flow]:
        """Return the flows whose source or target cluster has each of these labels, pairs of key and value; Mm2mgrError
        for none, with the nearest."""

        def has(flow: Flow, label: tuple[str, str]) -> bool:
            return any(label in end.model.labels.items() for end in (flow.source, flow.target))

        flows = [flow for flow in self.flows if all(has(flow, label) for label in labels)]
        if not flows:
            ends = {end.alias: end.model.labels for flow in self.flows for end in (flow.source, flow.target)}
            there = sorted({"=".join(label) for of_end in ends.values() for label in of_end.items()})
            asked = dict.fromkeys(map("=".join, labels))
            near = dict.fromkeys(
                text for label in asked if label not in there for text in _nearest_labels(label, there)
            )
            hint = f"did you mean {' or '.join(near)}?" if near else f"labels here: {few(there, 10) or 'none'}"
            raise Mm2mgrError(f"no flow has clusters with the labels {', '.join(asked)}", hint=hint)
        return flows


def with_heartbeats_marked(flows: Iterable[Flow]) -> list[Flow]:
    """Return the flows of an estate with one flow of each pair marked to carry its heartbeats."""
    flows = list(flows)
    by_name = sorted((flow for flow in flows if flow.settings.heartbeats.enabled), key=lambda flow: flow.name)
    carriers = {group[0] for group in by_pair(by_name).values()}
    return [replace(flow, with_heartbeats=flow in carriers) for flow in flows]


def connector_names(flows: Iterable[Flow]) -> Iterator[tuple[Flow, ConnectorType, str]]:
    """Yield connectors of flows with marked heartbeats by pair, as rendered: flow, type and name of each."""
    for group in by_pair(flows).values():
        yield from ((flow, "heartbeat", flow.connector_name("heartbeat")) for flow in group if flow.with_heartbeats)
        yield from ((flow, "source", flow.connector_name("source")) for flow in group)
        yield from [(f, "checkpoint", f.connector_name("checkpoint")) for f in group if f.with_checkpoints][:1]


def by_pair(flows: Iterable[Flow]) -> dict[str, list[Flow]]:
    """Return the flows of each pair of clusters, in their order."""
    pairs: dict[str, list[Flow]] = {}
    for flow in flows:
        pairs.setdefault(flow.pair, []).append(flow)
    return pairs


def matches_nothing(flow: Flow, topics: Iterable[str]) -> str | None:
    """Return a message if a flow matches none of its source's visible topics, internal ones excepted, else None."""
    topics_seen = [topic for topic in topics if not flow.selection.is_internal(topic)]
    if any(map(flow.carries, topics_seen)):
        return None
    patterns = flow.settings.topics.include
    verb = "match" if len(patterns) > 1 else "matches"
    return f"topics: {few(patterns)} {verb} 0 of {number_of(len(topics_seen), 'topic')} on {flow.source.alias}"


def _java(patterns: Iterable[str]) -> Items:
    return tuple(map(java_pattern, patterns))


def _verbatim_items(verbatim: Mapping[str, str | None], key: str, declared: Items, version: str) -> Items:
    """Return the items of a list that a flow gives verbatim, Kafka's default where it leaves the key out."""
    if key not in verbatim:
        return declared
    text, keys = verbatim[key], load()
    if text is None:
        definition = keys.find("source", key, version if version and keys.knows(version) else keys.lines[-1])
        text = (definition.default if definition else None) or ""
    return tuple(item for part in text.split(",") if (item := part.strip()))


def topics_without(topics: Topics, names: Iterable[str]) -> Topics:
    """Return what a flow mirrors itself whose lanes have these topics: what it lists by name is listed no more, and
    what its patterns would take is excluded."""
    in_lanes = dict.fromkeys(names)
    include = [item for item in topics.include if literal(java_pattern(item)) not in in_lanes]
    left = NameFilter(_java(include), ())
    exclude = [*topics.exclude, *(name for name in in_lanes if left.takes(name))]
    return topics.model_copy(update={"include": include, "exclude": exclude})


def _number(written: Mapping[str, str | None], key: str, otherwise: int = 0) -> int:
    number = whole_number(written.get(key) or "")
    return otherwise if number is None else number


def _buffer(written: Mapping[str, str | None], key: str, kafkas: int) -> int:
    return kafkas if written.get(key, "") is None else _number(written, key, BY_SYSTEM)


def config_text(value: object) -> str:
    """Return a value as text of a Connect config."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


# --- what flows must agree on -----------------------------------------------------------------------------------------

Clash = tuple[PathKey, str]


def clashes(flows: Sequence[Flow]) -> Iterator[Clash]:
    """Find conflicts between flows; yields the place and the message of each.

    Conflicts between their topics are reported by lint's rules over the estate, those between what flows of a pair say
    of what they share by `pair_settings`.
    """
    yield from _twins(flows)
    flows = [flow for flow in flows if flow.lane_of is None]  # a lane has the settings of its flow
    yield from _half_once(flows)
    for flow in flows:
        if flow.catch_up and flow.settings.record_producer.get("client.id"):
            message = (
                f"the catch-up limit of flow '{flow.name}' counts a client.id that mm2mgr writes: remove this one, or"
                " catch_up"
            )
            yield ("flows", flow.name, "record_producer", "client.id"), message
    for pair, group in by_pair(flows).items():
        checked = [flow for flow in group if flow.with_checkpoints]
        if group[0].failover and not checked:
            message = f"the pair {pair} declares failover, and none of its flows has checkpoints with offset syncs"
            remedy = "enable checkpoints, or write failover: false"
            yield ("flows", group[0].name, "failover"), f"{message}: no group could go on where it was; {remedy}"
        for flow in group[1:]:
            if flow.connect != group[0].connect:
                names = f"flows '{flow.name}' and '{group[0].name}' share the pair {pair}"
                target = pair.partition("->")[2]
                yield (
                    ("flows", flow.name, "run_on"),
                    f"{names} and must run on the same Connect cluster, since they share one heartbeat and one"
                    " checkpoint connector, which translates the offsets of both: write run_on:"
                    f" {{{target}: {group[0].connect.name}}} here too, or move the other one as well",
                )


def _twins(flows: Iterable[Flow]) -> Iterator[Clash]:
    """Find flows that name one connector (`connector_name`); names made of aliases are compared by render."""
    flows_by_name: dict[tuple[str, str], Flow] = {}
    for flow, type_, name in connector_names(with_heartbeats_marked(flows)):
        other = flows_by_name.setdefault((flow.connect.name, str(name)), flow)
        path: PathKey = ("connector_name",) if type_ == "source" else (f"{type_}s", "connector_name")
        if other is not flow and flow.origin(*path) != _BUILT_IN:
            both = f"'{other.id}' and '{flow.id}'"
            remedy = "name the connector of each pair under pairs:" if other.name == flow.name else "write another name"
            message = f"{both} would both be connector '{name}' on Connect cluster '{flow.connect.name}': {remedy}"
            yield ("flows", flow.declared_name, *path), message


def _half_once(flows: Sequence[Flow]) -> Iterator[Clash]:
    """Find settings that break exactly-once. A worker is exactly-once for all its connectors (KIP-618)."""
    for flow in flows:
        name = flow.connect.name
        if flow.exactly_once and flow.connect.model.exactly_once is False:
            message = (
                f"flow '{flow.name}' requires exactly-once delivery, but Connect cluster '{name}' has exactly_once:"
                " false"
            )
            yield ("flows", flow.name, "delivery"), f"{message}: remove that, or run the flow elsewhere (run_on)"
        for (block, key), (allowed, reason) in defaults.EXACTLY_ONCE_ALLOWS.items():
            concerned = flow.exactly_once if block == "source_consumer" else flow.connect.exactly_once
            value = flow.client(block).get(key) if concerned else None
            if concerned and value not in allowed:
                message = f"{block}: {{{key}: {value or 'null'}}} on exactly-once workers ('{name}'): {reason}"
                yield ("flows", flow.name, block, key), f"{message}; remove it ({flow.origin(block, key).where})"


def lease_group(topology: Topology) -> str:
    """Return the group whose one member may write: the lease of `reconcile`."""
    return f"mm2mgr-{topology.owner}"


def watch_group(topology: Topology) -> str:
    """Return the group whose one member may restart what FAILED: the lease of `watch`, beside that of `reconcile`."""
    return f"{lease_group(topology)}-watch"


def audit_group(topology: Topology) -> str:
    """Return the group whose one member samples windows for audits: the lease of `audit --follow`."""
    return f"{lease_group(topology)}-audit"
