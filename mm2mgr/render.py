"""Renders flows with Jinja2 templates to desired connectors: flat string configs with the origin of every key.

The user's templates outrank those of mm2mgr. Connect's own clients, the record producer and those for offsets, are
directed to the right Kafka cluster here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

from mm2mgr import defaults
from mm2mgr.assignment_text import PLUGIN_CLASS
from mm2mgr.connectors import Connector, ConnectorType
from mm2mgr.defaults import Origin, Text, by_default
from mm2mgr.errors import TemplateError
from mm2mgr.log_places import START_KEY
from mm2mgr.spec.scalars import java_list
from mm2mgr.templating.printer import Printer
from mm2mgr.topology import Flow, KafkaCluster, Topology, config_text

CLASSES: dict[ConnectorType, str] = {
    "source": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "checkpoint": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
    "heartbeat": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",
}
CLIENT_ID_KEY = "producer.override.client.id"
OWNER_KEY = "mm2mgr.owner"
FLOW_KEY = "mm2mgr.flow"
"""The id of a source connector's flow; of heartbeat and checkpoint connectors their pair, whichever flows it has."""
LANE_OF_KEY = "mm2mgr.lane-of"
"""The id of the flow that a source connector is a lane of; its own `mm2mgr.flow` is that of the lane."""
HEARTBEATS_KEY = "heartbeats.replication.enabled"


def flow_of_lane(config: Mapping[str, str]) -> str | None:
    """Return the id of the lane that a config is of; None for what is no lane."""
    return config.get(FLOW_KEY) if LANE_OF_KEY in config else None


def connectors_of(connectors: Iterable[Connector], flows: Iterable[Flow]) -> list[Connector]:
    """Return the connectors that serve one of these flows."""
    flow_ids = {flow.id for flow in flows}
    return [connector for connector in connectors if flow_ids.intersection(connector.flows)]


def render(topology: Topology, templates: Path | None = None) -> tuple[Connector, ...]:
    """Render every connector of the topology, by pair: heartbeat, sources, checkpoint (the order apply uses)."""
    if templates is not None and not templates.is_dir():
        hint = "use the folder that contains your *.properties.j2 files"
        raise TemplateError(f"{templates}: no such folder", hint=hint)
    renderer = _Renderer(topology.owner, templates)
    connectors: list[Connector] = []
    for _, group in groupby(sorted(topology.flows, key=lambda flow: flow.pair), key=lambda flow: flow.pair):
        connectors += renderer.pair(tuple(group))
    _refuse_twins(connectors)
    return tuple(connectors)


def _refuse_twins(connectors: Iterable[Connector]) -> None:
    connectors_by_name: dict[tuple[str, str], Connector] = {}
    for connector in connectors:
        other = connectors_by_name.setdefault((connector.connect, connector.name), connector)
        if other is not connector:
            raise TemplateError(
                f"two connectors would have the name '{connector.name}' on Connect cluster '{connector.connect}': "
                f"{other.pair} and {connector.pair}",
                hint="aliases with dots can collide: rename one",
            )


def quota_mark(owner: str) -> str:
    """Return what this owner's client ids with a quota begin with; names have no slash, so no other owner's do."""
    return f"mm2mgr.{owner}/"


def is_limited(config: Mapping[str, str]) -> bool:
    """Tell whether a catch-up limit, of whatever owner, may hold back what a connector writes."""
    head, slash, _ = config.get(CLIENT_ID_KEY, "").partition("/")
    return bool(slash) and head.startswith("mm2mgr.")


def template_folders(own: Path | None) -> list[Path]:
    """Return the template folders: the user's, then the one inside the package (next to it in a checkout)."""
    package = Path(__file__).parent
    shipped = package / "templates"
    return [*([own] if own else []), shipped if shipped.is_dir() else package.parent / "templates"]


class _Renderer:
    """Renders the connectors of one pair at a time."""

    def __init__(self, owner: Text, templates: Path | None) -> None:
        self.owner = owner
        self.printer = Printer(template_folders(templates))
        self.usual: dict[str, Mapping[str, Text]] = {}

    def client(self, flow: Flow, block: str) -> Mapping[str, Text]:
        """Return the settings of a flow's client; those without declarations are equal for all flows, made once."""
        if getattr(flow.settings, block) or flow.route or flow.exactly_once:
            return flow.client(block)
        if block not in self.usual:
            self.usual[block] = flow.client(block)
        return self.usual[block]

    # --- the connectors of a pair -------------------------------------------------------------------------------------

    def pair(self, flows: tuple[Flow, ...]) -> list[Connector]:
        result = [self.heartbeat(flows, flow) for flow in flows if flow.with_heartbeats]
        result += map(self.source, flows)
        checked = [flow for flow in flows if flow.with_checkpoints]
        if checked:
            result.append(self.checkpoint(tuple(checked)))
        return result

    def source(self, flow: Flow) -> Connector:
        s = flow.settings
        record_producer = {**_retarget(flow, flow.target), **self.client(flow, "record_producer")}
        if limit := flow.catch_up:
            record_producer["client.id"] = Text(quota_mark(self.owner) + limit.name, limit.origin)
        syncs_on = flow.source if s.offset_syncs.location == "source" else flow.target
        context = {
            "tasks_max": flow.tasks.maximum,
            "source": flow.source,
            "target": flow.target,
            "topics": flow.text(java_list(s.topics.include), "topics", "include"),
            "topics_exclude": flow.text(_join_lists(defaults.TOPICS_EXCLUDE, s.topics.exclude), "topics", "exclude"),
            "refresh_seconds": _seconds(flow, s.refresh_interval, "refresh_interval"),
            "sync_topic_configs": flow.text(s.sync.topic_configs, "sync", "topic_configs"),
            "sync_topic_acls": flow.text(s.sync.topic_acls, "sync", "topic_acls"),
            "exclude_properties": flow.text(
                _join_lists(defaults.PROPERTIES_EXCLUDE, s.sync.exclude_properties), "sync", "exclude_properties"
            ),
            "carries_heartbeats": by_default(
                config_text(flow.with_heartbeats), "exactly one source connector of a pair carries its heartbeats"
            ),
            "offset_syncs_enabled": flow.text(s.offset_syncs.enabled, "offset_syncs", "enabled"),
            "offset_syncs_location": flow.text(s.offset_syncs.location, "offset_syncs", "location"),
            "offset_syncs_replication_factor": syncs_on.replication_factor,
            "record_producer": record_producer,
            **{block: self.client(flow, block) for block in ("source_consumer", "source_admin", "target_admin")},
            "offset_syncs_producer": self.client(flow, "offset_syncs_producer"),
            "exactly_once": {"exactly.once.support": flow.text("required", "delivery")} if flow.exactly_once else {},
            **_own_offsets(flow, flow.target, "source_connector"),
        }
        if flow.settings.balance.by == "plugin":
            context["connector_class"] = flow.text(PLUGIN_CLASS, "balance", "by")
        return self.connector("source", flow, (flow,), context)

    def checkpoint(self, flows: tuple[Flow, ...]) -> Connector:
        """Render the checkpoint connector of a pair: settings of its first flow, topics and groups of all its flows.

        Lanes change nothing in it: it serves a flow with lanes as it does without.
        """
        first, s = flows[0], flows[0].settings
        declared = [(flow.undivided or flow.settings.topics, flow.settings) for flow in flows if flow.lane_of is None]
        topics, topics_exclude = _together(
            [(topics.include, topics.exclude) for topics, _ in declared], defaults.TOPICS_EXCLUDE
        )
        groups, groups_exclude = _together(
            [(s.checkpoints.groups.include, s.checkpoints.groups.exclude) for _, s in declared], defaults.GROUPS_EXCLUDE
        )
        every = min(flows, key=lambda flow: flow.settings.checkpoints.interval)
        syncing = next((flow for flow in flows if flow.settings.checkpoints.group_offsets), first)
        context = {
            "tasks_max": by_default("1", "one task serves many groups"),
            "source": first.source,
            "target": first.target,
            "topics": first.text(topics, "topics", "include"),
            "topics_exclude": first.text(topics_exclude, "topics", "exclude"),
            "groups": first.text(groups, "checkpoints", "groups", "include"),
            "groups_exclude": first.text(groups_exclude, "checkpoints", "groups", "exclude"),
            "refresh_seconds": _seconds(first, s.refresh_interval, "refresh_interval"),
            "checkpoint_seconds": _seconds(every, every.settings.checkpoints.interval, "checkpoints", "interval"),
            "group_offsets": syncing.text(syncing.settings.checkpoints.group_offsets, "checkpoints", "group_offsets"),
            "offset_syncs_location": first.text(s.offset_syncs.location, "offset_syncs", "location"),
            "record_producer": _retarget(first, first.target),
            **{block: self.client(first, block) for block in ("source_admin", "target_admin", "target_consumer")},
            **_own_offsets(first, first.target, "checkpoint_connector"),
        }
        return self.connector("checkpoint", first, flows, context)

    def heartbeat(self, flows: tuple[Flow, ...], flow: Flow) -> Connector:
        every = flow.settings.heartbeats.interval
        context = {
            "tasks_max": by_default("1", "a heartbeat connector never has more"),
            "source": flow.target,
            "target": flow.source,
            "heartbeat_seconds": _seconds(flow, every, "heartbeats", "interval"),
            "record_producer": _retarget(flow, flow.source),
            "target_admin": self.client(flow, "source_admin"),
            **_own_offsets(flow, flow.source, "heartbeat_connector"),
        }
        return self.connector("heartbeat", flow, flows, context)

    def connector(
        self, type_: ConnectorType, flow: Flow, flows: tuple[Flow, ...], context: dict[str, object]
    ) -> Connector:
        name = str(flow.connector_name(type_))
        context |= {
            "name": flow.connector_name(type_),
            "connector_class": context.get("connector_class", CLASSES[type_]),
            "owner": self.owner,
            # A list of the pair's flows would restart its heartbeats and checkpoints with each flow that comes or goes.
            "flows": by_default(flow.id if type_ == "source" else flow.pair, "what it serves"),
            "policy": flow.text(flow.policy, "replication_policy"),
            "separator": flow.text(flow.settings.separator, "separator"),
        }
        config, origins = self.printer.print(f"{type_}.properties.j2", context, name)
        for key, value in (("name", name), (OWNER_KEY, str(self.owner))):
            if config.get(key) != value:
                raise TemplateError(
                    f"{type_}.properties.j2, connector '{name}': the template must write {key} = {value}",
                    hint="mm2mgr finds its connectors by owner and name",
                )
        if type_ == "source" and flow.exactly_once and config.get("exactly.once.support") != "required":
            raise TemplateError(
                f"source.properties.j2, connector '{name}': exactly.once.support = required is missing",
                hint='write {{ settings("", exactly_once) }}, as the shipped template does, or delivery: at_least_once',
            )
        if type_ == "source" and flow.catch_up and not config.get(CLIENT_ID_KEY, "").startswith(quota_mark(self.owner)):
            raise TemplateError(
                f"source.properties.j2, connector '{name}': {CLIENT_ID_KEY}, which its catch-up limit counts, is"
                " missing",
                hint=(
                    'write {{ settings("producer.override.", record_producer) }}, as the shipped template does, or'
                    " remove catch_up"
                ),
            )
        if type_ == "source" and flow.settings.balance.by == "plugin" and config.get("connector.class") != PLUGIN_CLASS:
            raise TemplateError(
                f"source.properties.j2, connector '{name}': connector.class = {PLUGIN_CLASS} is missing",
                hint="write connector.class = {{ connector_class }}, as the shipped template does, or balance: stock",
            )
        if type_ == "source" and flow.lane_of is not None:
            mark = by_default(flow.whole_id, "it is a lane of this flow")
            config, origins = {**config, LANE_OF_KEY: str(mark)}, {**origins, LANE_OF_KEY: mark.origin}
        config, origins = _overlaid(flow, type_, config, origins)
        if type_ == "source" and (start := flow.start):
            config, origins = {**config, START_KEY: str(start)}, {**origins, START_KEY: start.origin}
        wished = flow.settings.state if type_ == "source" else None
        state = wished.upper() if wished else None
        return Connector(name, type_, flow.connect.name, flow.pair, tuple(f.id for f in flows), config, origins, state)


# --- the clients that Connect itself makes: the record producer, and what keeps offsets
# ------------------------------------


def _retarget(flow: Flow, records: KafkaCluster) -> dict[str, Text]:
    """Return the settings that direct a client of Connect to `records` (without them it uses the workers' Kafka)."""
    if _elsewhere(flow, records):
        # Whatever the workers' producer.security.protocol says would be inherited, so PLAINTEXT is set explicitly.
        return {"security.protocol": Text("PLAINTEXT", Origin("default", "Kafka")), **records.client}
    if flow.connect.model.producer_security == "connector":
        return {key: value for key, value in records.client.items() if key != "bootstrap.servers"}
    return {}


def _own_offsets(flow: Flow, records: KafkaCluster, block: str) -> dict[str, dict[str, Text]]:
    """Return the clients that keep a connector's offsets, and its other keys (`block`), by template name.

    On exactly-once workers offsets are part of the records' transaction, so they live on `records` too (KIP-618). A
    consumer or an admin left on the workers' Kafka lets the connector wait for ever, or duplicates records after a
    crash.
    """
    keys = flow.client(block)
    if not flow.connect.exactly_once:
        return {"offsets_consumer": {}, "offsets_admin": {}, "connector": keys}
    consumer = _retarget(flow, records)
    if not _elsewhere(flow, records):  # the admin, unlike the others, has the workers' top-level security
        return {"offsets_consumer": consumer, "offsets_admin": {}, "connector": keys}
    if "offsets.storage.topic" not in getattr(flow.settings, block):
        # Without a name it would be called as the workers' own topic, which that Kafka's Connect may use already, and a
        # flow that reads from there would mirror it. Its offsets outrank the workers' own, so it must be in use with
        # and without exactly-once alike: a topic that comes and goes would bring old offsets back.
        reason = "offsets go where the records go; mm2*.internal is never mirrored"
        keys = {"offsets.storage.topic": by_default(f"mm2mgr-offsets.{flow.connect.name}.internal", reason), **keys}
    return {"offsets_consumer": consumer, "offsets_admin": dict(consumer), "connector": keys}


def _elsewhere(flow: Flow, records: KafkaCluster) -> bool:
    return flow.connect.kafka != records.alias


def _overlaid(
    flow: Flow, type_: ConnectorType, config: dict[str, str], origins: dict[str, Origin]
) -> tuple[dict[str, str], dict[str, Origin]]:
    """Return a config with the keys that its flow gives verbatim; null takes a key out."""
    verbatim: Mapping[str, str | None] = getattr(flow.settings.verbatim, type_)
    if not verbatim:
        return config, origins
    texts = {key: value for key, value in verbatim.items() if value is not None}
    return (
        {key: value for key, value in config.items() if key not in verbatim} | texts,
        {key: origin for key, origin in origins.items() if key not in verbatim}
        | {key: flow.origin("verbatim", type_, key) for key in texts},
    )


# --- values ----------------------------------------------------------------------------------------------------------


def _seconds(flow: Flow, value: float, *path: str) -> Text:
    return flow.text(max(1, round(value)), *path)


def _join_lists(always: Iterable[str], more: Iterable[str]) -> str:
    return java_list([*always, *more])


def _together(filters: list[tuple[list[str], list[str]]], always: Iterable[str]) -> tuple[str, str]:
    """Join the filters of several flows: one flow's exclude must not take away what another includes."""
    if len(filters) == 1:
        return java_list(filters[0][0]), _join_lists(always, filters[0][1])
    parts: list[str] = []
    for include, exclude in filters:
        parts += [f"(?!(?:{_either(exclude)})$)(?:{_either(include)})"] if exclude else include
    return java_list(parts), java_list(always)


def _either(patterns: Iterable[str]) -> str:
    return java_list(patterns).replace(",", "|")  # no pattern has a comma
