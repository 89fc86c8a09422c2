"""The pydantic models of the YAML tree. Every model forbids unknown keys; the JSON Schema is generated from them.

Client settings are plain Kafka keys under the client that they configure; mm2mgr adds the prefixes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, create_model, model_validator

from mm2mgr.metric_sources import METRIC_SOURCES
from mm2mgr.spec.scalars import start_text
from mm2mgr.spec.values import (
    NO_SWITCH,
    Addresses,
    Alias,
    ByteRate,
    ByteSize,
    ClientSettings,
    ClusterId,
    ConnectorName,
    ConnectorSettings,
    Currency,
    FlowId,
    Headers,
    HourSpans,
    KafkaVersion,
    LabelName,
    LaneName,
    LocalFile,
    MovedTo,
    Owner,
    PairName,
    PartitionName,
    Patterns,
    PolicyName,
    Price,
    ProxyUrl,
    Security,
    Selector,
    Separator,
    Share,
    TaskCount,
    Timeout,
    TimeSpan,
    TopicName,
    Url,
    Urls,
    VerbatimOfSource,
    VerbatimSettings,
    balance_way,
    flag,
    lane_topics,
    no_lanes,
    proxy_settings,
    triggers,
)


class Model(BaseModel):
    """How every model of the declaration behaves: unknown keys are refused, values are frozen.

    For a cold start, a model is built when it is first asked (`model_construct()` makes defaults without), and what
    stands below each field is read by `schema` alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    def __hash__(self) -> int:
        """Return the same for all of a class: pydantic would copy a default without a hash for each flow, and none is
        altered."""
        return hash(type(self))


def _example(**values: JsonValue) -> dict[str, JsonValue]:
    return {"examples": [values]}


# --- what is reached over HTTP ----------------------------------------------------------------------------------------


_BASIC = {"username": "${env:CONNECT_USER}", "password": "${env:CONNECT_PASSWORD}"}


class Basic(Model, json_schema_extra=_example(**_BASIC)):
    username: str
    """Name, or a placeholder such as `${env:CONNECT_USER}`."""
    password: str
    """A placeholder such as `${env:CONNECT_PASSWORD}`; resolved on mm2mgr's machine, never stored."""


class Auth(Model, json_schema_extra=_example(basic=_BASIC)):
    """Credentials for a REST API."""

    basic: Basic | None = None
    """User name and password."""
    bearer: str | None = None
    """A token, as a placeholder such as `${env:CONNECT_TOKEN}` or `${dir:/run/secrets:connect-token}` (the file
    connect-token); a file is read again when it changes."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Auth:
        if (self.basic is None) == (self.bearer is None):
            raise ValueError("write one of basic and bearer")
        return self


class Tls(Model, json_schema_extra=_example(ca="/etc/mm2mgr/ca.pem")):
    """TLS towards a REST API; files are PEM, relative to where mm2mgr runs. A long run reads them again when they
    change."""

    ca: str | None = None
    """Certificates to trust; default: the system's."""
    certificate: str | None = None
    """Own certificate chain, for mutual TLS."""
    key: str | None = None
    """Private key of that certificate."""
    key_password: str | None = None
    """Password of an encrypted `key`, as a placeholder such as `${env:CONNECT_KEY_PASSWORD}`; resolved on mm2mgr's
    machine, never stored."""


class Proxy(Model, json_schema_extra=_example(url="http://proxy:3128")):
    """An HTTP proxy on the way to a REST API."""

    url: ProxyUrl
    """`http://host:port`, or `https://…` for TLS to the proxy itself; or a placeholder such as `${env:HTTPS_PROXY}`,
    whose value may hold user and password."""
    basic: Basic | None = None
    """User name and password for the proxy; default: none."""


class MetricsEndpoint(Model, json_schema_extra=_example(url="http://cruise-control:9090/kafkacruisecontrol")):
    """A system that knows the load of a cluster, over HTTP."""

    url: Url | None = None
    """Base URL, such as `http://prometheus:9090` or `http://cruise-control:9090/kafkacruisecontrol`; here, or in the
    defaults of clusters that share one."""
    auth: Auth | None = None
    """Default: none."""
    tls: Tls | None = None
    """For an `https` URL; default: the system's authorities, no client certificate."""


class PrometheusMetrics(MetricsEndpoint, json_schema_extra=_example(url="http://prometheus:9090")):
    """Prometheus, or anything with its HTTP API, that scrapes the Kafka exporter or a JMX exporter of the brokers."""

    labels: Annotated[dict[LabelName, str], Field(examples=[{"namespace": "kafka"}])] = {}
    """Labels that all series of this cluster carry, and no other's: `{namespace: kafka, strimzi_io_cluster: dc1}`.
    Needed as soon as one Prometheus knows two clusters."""
    rate_window: Annotated[TimeSpan, Field(ge=10)] = 300
    """Over how much time the rates of topics are taken: at least four scrapes."""
    retention: TimeSpan = 15 * 86400
    """How far back a catch-up asks; Prometheus itself keeps 15 days by default."""


if TYPE_CHECKING:
    _Endpoints = Model
else:
    _Endpoints = create_model(
        "_Endpoints",
        __base__=Model,
        **{
            kind.key: (MetricsEndpoint | None, Field(None, description=f"For `--from {kind.name}`: {kind.declared}."))
            for kind in METRIC_SOURCES
            if kind.declared
        },
    )


class Metrics(_Endpoints, json_schema_extra=_example(prometheus={"url": "http://prometheus:9090"})):
    """Where else than from Kafka `mm2mgr sample --from …` may learn the load of a cluster."""

    prometheus: PrometheusMetrics | None = None
    """For `--from prometheus`."""
    cruise_control_topic: TopicName | None = None
    """For `--from cruise-control-topic`: its `partition.metric.sample.store.topic` on this cluster;
    `__KafkaCruiseControlPartitionMetricSamples` as shipped, `strimzi.cruisecontrol.partitionmetricsamples` with
    Strimzi."""
    cruise_control_interval: TimeSpan = 120
    """Its `metric.sampling.interval.ms`, which one sample of that topic covers: 2 minutes as shipped."""


# --- clusters, Connect clusters, links --------------------------------------------------------------------------------


class Access(Model, json_schema_extra=_example(bootstrap_servers=["dc1-k1:9092"])):
    """How mm2mgr itself reaches a cluster where that differs from how the Connect workers do."""

    bootstrap_servers: Addresses | None = None
    """`host:port` list; default: the cluster's own."""
    security: Security | None = None
    """Plain Kafka client keys; default: the cluster's own."""


class SchemaRegistry(Model, json_schema_extra=_example(url="http://registry-1:8081")):
    """The schema registry that the applications of a cluster use; `check` and `failover check` compare its schemas with
    those of the cluster on the other side. Nothing is written to it."""

    url: Urls
    """Base URLs of its API, tried in turn: `http://registry-1:8081` (Confluent, Karapace), `http://…/apis/ccompat/v7`
    (Apicurio as Confluent's), or with `api: apicurio` `http://…/apis/registry/v3` (or v2)."""
    api: Literal["confluent", "apicurio"] = "confluent"
    """Which API answers there: Confluent's, or Apicurio's own, which records with 8-byte ids or `apicurio.*` headers
    need."""
    ids: Literal["content", "global"] | None = None
    """With `api: apicurio`, which of its ids the first bytes of keys and values carry. Default: content for 4-byte
    ids, global for 8-byte ids, as its serializers write them unless they are told otherwise."""
    auth: Auth | None = None
    """Default: none."""
    tls: Tls | None = None
    """For `https` URLs; default: the system's authorities, no client certificate."""
    headers: Headers = Field(default_factory=dict)
    """Sent with every request: names, and values with placeholders, which are resolved on mm2mgr's machine and never
    shown."""
    proxy: Annotated[Proxy | None, BeforeValidator(proxy_settings, json_schema_input_type=Proxy | str | bool)] = None
    """HTTP proxy to the registry: a URL, or settings. Default: none."""


class ClusterDefaults(Model, json_schema_extra=_example(replication_factor=3)):
    """What many Kafka clusters share."""

    labels: dict[str, str] = Field(default_factory=dict, examples=[{"tier": "local", "dc": "dc1"}])
    """Free words that flows select clusters by, such as `{workload: logging, tier: local, dc: dc1}`."""
    security: Security = Field(default_factory=dict)
    """Plain Kafka client keys: `protocol`, `sasl.*`, `ssl.*`; null drops a key that the defaults gave. Secrets as
    `${file:…}` placeholders of the workers' config providers."""
    replication_factor: Annotated[int, Field(ge=-1, le=32), NO_SWITCH] = 3
    """Copies of each topic that MirrorMaker creates here; -1 asks the brokers for their default. Kafka's own mix of 2
    and 3 surprises people."""
    access: Access | None = None
    """Only where mm2mgr's own machine needs other addresses or credentials than the workers."""
    metrics: Metrics | None = None
    """Systems besides Kafka that know its load; default: end offsets and records of Kafka itself."""
    price_per_gb_in: Price | None = None
    """What 10^9 bytes cost that flows write into this cluster, by Kafka's own count (compressed as they are sent), for
    `mm2mgr cost`; default: nothing is known."""
    currency: Currency | None = None
    """Of the price, such as EUR; amounts of two currencies are never added."""
    schema_registry: SchemaRegistry | None = None
    """Where the schemas of its records are. A cluster's own one replaces that of the defaults as a whole. Default: no
    schemas are checked."""


class Cluster(ClusterDefaults, json_schema_extra=_example(bootstrap_servers=["dc1-k1:9092"])):
    """A Kafka cluster. Its key is the alias, which becomes part of remote topic names and of stored offsets."""

    bootstrap_servers: Addresses
    """`host:port` list as the Connect workers see it."""
    cluster_id: ClusterId | None = None
    """Kafka's own id of this cluster (`kafka-cluster.sh cluster-id`). If set, plan and apply compare it without
    contacting Kafka; by default they ask the brokers."""


class Workers(Model, json_schema_extra=_example(count=3)):
    """The machines of a Connect cluster, for `mm2mgr fleet`, `simulate`, the tasks that `plan` lets them have and the
    memory of clients over links: nothing is started or stopped."""

    count: Annotated[int, Field(ge=1, le=10_000), NO_SWITCH] | None = None
    """How many run today; default: those in use, else the number needed plus one spare."""
    tasks_per_worker: TaskCount = 10
    """How many busy tasks one worker carries. Connect itself knows no such limit; published numbers go from 8 to 20,
    and ten at 7 MB/s fill half of a 1 Gbit/s card. Where it is written, `plan` blocks what raises the tasks above it ×
    workers (`--allow tasks-per-worker`); the default is for `fleet` and `simulate` only."""
    memory: Annotated[ByteSize, Field(gt=0)] | None = None
    """Java heap of one worker (its -Xmx), which also bounds the fetches over a link; default: no limit, and 512 MiB for
    links."""
    network: Annotated[ByteRate, Field(gt=0)] | None = None
    """What one worker receives, and as much again sends; default: no limit."""

    @property
    def task_cap(self) -> int | None:
        """`tasks_per_worker` where it is written."""
        return self.tasks_per_worker if "tasks_per_worker" in self.model_fields_set else None


class ConnectDefaults(Model, json_schema_extra=_example(tls={"ca": "/etc/mm2mgr/ca.pem"})):
    """What many Connect clusters share."""

    auth: Auth | None = None
    """Default: none. A Connect cluster's own `auth` replaces this one as a whole."""
    tls: Tls | None = None
    """For `https` URLs; default: the system's authorities, no client certificate."""
    headers: Headers = Field(default_factory=dict)
    """Sent with every request, such as `X-Api-Key: ${env:CONNECT_API_KEY}`: names, and values with placeholders, which
    are resolved on mm2mgr's machine and never shown. Files are read again when they change. A Connect cluster's own
    `headers` replace these as a whole."""
    proxy: Annotated[Proxy | None, BeforeValidator(proxy_settings, json_schema_input_type=Proxy | str | bool)] = None
    """HTTP proxy to the workers: a URL, or settings. Default: none; proxies of the environment count only if written:
    `proxy: ${env:HTTPS_PROXY}`. `false` drops the proxy of the defaults."""
    timeout: Timeout | None = None
    """How long one read may take, repeats included; a write has twice as long. Default: `60s`."""
    producer_security: Literal["worker", "connector"] = "worker"
    """Who brings the record producer's security when the target is the workers' own Kafka: `worker` when the workers
    have `producer.*` security settings, `connector` when they have only top-level ones, which Connect does not hand to
    producers. Exactly-once workers also read their offsets back with a consumer: the same goes for `consumer.*`."""
    exactly_once: bool | None = None
    """Whether the workers run with `exactly.once.source.support=enabled`. Default: yes if a flow there has
    `delivery: exactly_once`. Write true before the workers are switched over: connectors whose records go to another
    Kafka then have the overrides that they need from that moment on; workers that are not exactly-once get along with
    them."""
    flush_interval: TimeSpan = 60.0
    """How often the workers store offsets (their `offset.flush.interval.ms`, which REST does not show): `mm2mgr pause`
    waits until stored offsets have not changed for twice as long."""
    history: bool = True
    """Whether what is changed is recorded on the Kafka cluster of the workers, in topic `mm2mgr.history.internal`,
    which `mm2mgr history`, `drift` and `reconcile` need. False where mm2mgr's login may not write there."""
    workers: Workers = Workers.model_construct()
    """How many workers there are and what one carries. A Connect cluster's own `workers` replaces this one as a
    whole."""


class Connect(ConnectDefaults, json_schema_extra=_example(url="http://connect-1:8083", kafka="agg")):
    """A Kafka Connect cluster: its key is the name used by `run_on`."""

    url: Urls
    """REST URLs of the workers, or of a gateway before them, with its path if it has one (`https://gw/connect/east`);
    the next one is tried when one does not answer."""
    kafka: Annotated[str, Field(examples=["agg"])]
    """Alias of the Kafka cluster that the workers themselves use (their `bootstrap.servers`)."""
    version: KafkaVersion | None = None
    """Kafka version of the workers, for `lint` and `explain`, which contact nothing; default: the newest known line.
    plan, apply and check ask the workers."""
    offsets_topic: Annotated[TopicName, Field(examples=["connect-offsets"])] | None = None
    """The workers' `offset.storage.topic`. From there `status`, `lag` and `serve` read the offsets of flows while no
    worker answers; without it they take those of the last look at the workers."""


class CatchUpSettings(Model, json_schema_extra=_example(limit="20MB/s")):
    """How fast records may arrive, above all those of a backlog: a client quota on the target's brokers
    (docs/how-to/long-links.md)."""

    limit: Annotated[ByteRate, Field(gt=0)]
    """Most bytes per second, as they are sent, new records included: more than the usual traffic, or no backlog is ever
    caught up."""


class Link(Model, json_schema_extra=_example(between=["dc1", "agg"], rtt="80ms")):
    """What lies between two clusters; client settings and tasks follow from it (docs/explanation/links.md)."""

    between: Annotated[list[str], Field(min_length=2, max_length=2, examples=[["dc1", "agg"]])]
    """Two aliases, order does not matter."""
    rtt: Annotated[TimeSpan, Field(gt=0)]
    """Round-trip time."""
    bandwidth: Annotated[ByteRate, Field(gt=0)] | None = None
    """Default: no limit."""
    profile: Literal["latency", "balanced", "throughput"] = "balanced"
    """What its client settings favour: small fetches and batches, which arrive sooner, or large ones. `throughput`
    takes more memory for the last tenth."""
    catch_up: CatchUpSettings | None = None
    """Limit that the flows between these two clusters share, one for each direction, except flows with a limit of their
    own. Default: no limit."""
    price_per_gb: Price | Annotated[dict[PairName, Price], Field(examples=[{"dc1->agg": 0.02}])] | None = None
    """What 10^9 bytes on the wire cost that cross it, for `mm2mgr cost`: all that is paid for them, as egress of the
    one side and ingress of the other. One price for both directions, or one for each, by the direction of the
    records: `{dc1->agg: 0.02, agg->dc1: 0.09}`. Default: nothing is known."""
    currency: Currency | None = None
    """Of the price, such as EUR; amounts of two currencies are never added."""


# --- flows ------------------------------------------------------------------------------------------------------------


class Topics(Model, json_schema_extra=_example(include=["app.orders", "logs[.].*"])):
    """Topics by name or Java regular expression (whole name must match). A plain name is taken literally, dots
    included."""

    include: Patterns = Field(default_factory=list)
    """What the flow mirrors; a flow without any is an error."""
    exclude: Patterns = Field(default_factory=list)
    """Added to what is never mirrored: internal topics, `*.replica`, names that start with `__`."""


class Tasks(Model, json_schema_extra=_example(max=8)):
    """How many tasks the source connector may have."""

    max: Literal["auto"] | TaskCount = "auto"
    """A number is taken as it is; `auto` takes the number that `mm2mgr size` computed from measured throughput, else
    `min`."""
    min: TaskCount = 1
    """With `auto`, used until the flow is sized; `mm2mgr size` goes below it only where the flow has fewer
    partitions."""
    limit: TaskCount = 64
    """Never more than this with `auto`."""
    elastic: bool = False
    """With `auto`, let `mm2mgr size` follow the week: what the coming hours ask for by the same hours of earlier weeks,
    up before their peak, down one step a night. Run it every hour, after `throughput`."""
    capacity: Annotated[ByteRate, Field(gt=0)] = 10e6
    """What one task can carry. 10 MB/s is the published value for load-balanced Brooklin; measure yours."""
    record_capacity: Annotated[float, Field(gt=0)] = 100_000
    """Records per second that one task can carry, which decides where records are small. An estimate (four tasks moved
    90 000 of 200 bytes on two cores that brokers shared), and left out where the capacity of a task was measured."""
    threshold: Share = 0.7
    """Share of both capacities to plan with, so that a task survives a peak."""
    partition_limit: TaskCount = 500
    """Never more partitions than this on one task: Brooklin's default."""
    default_rate: ByteRate = 5e3
    """Assumed for a partition of a flow in which nothing was measured; otherwise it takes its topic's mean or the
    flow's median."""
    cool_down: TimeSpan = 86_400
    """How long after `mm2mgr size` wrote fewer tasks, which only save some, `plan` and `apply` let their restart
    wait; an elastic flow waits for none."""
    off_peak: HourSpans = []
    """Hours of the day, in UTC, in which such a restart is made, such as `22-5`. Default: at any time."""

    @model_validator(mode="after")
    def _bounds(self) -> Tasks:
        if self.min > self.limit:
            raise ValueError(f"min ({self.min}) is above limit ({self.limit}): lower min or raise limit")
        return self


class Groups(Model, json_schema_extra=_example(include=["app-.*"])):
    """Consumer groups whose offsets are translated."""

    include: Annotated[Patterns, Field(min_length=1)] = [".*"]
    """Consumer groups by name or Java regular expression; for no groups write `checkpoints: false`."""
    exclude: Patterns = Field(default_factory=list)
    """Added to `console-consumer-.*`, `connect-.*`, `__.*`."""


class Checkpoints(Model, json_schema_extra=_example(group_offsets=True)):
    """Translated consumer group offsets on the target: one MirrorCheckpointConnector per pair."""

    enabled: bool = True
    """`checkpoints: false` is short for this."""
    group_offsets: bool = False
    """Write the translated offsets into the target's consumer groups too (only for groups not active there)."""
    groups: Groups = Groups.model_construct()
    """Whose offsets; default: all groups."""
    interval: TimeSpan = 60
    """How often checkpoints (and group offsets) are written."""
    connector_name: ConnectorName | None = None
    """Name of the checkpoint connector of the pair where it has one already; default:
    `mm2.SOURCE.TARGET.checkpoint`."""


class Heartbeats(Model, json_schema_extra=_example(interval="1s")):
    """A heartbeat that really crosses: written to the source, mirrored by the flow. One MirrorHeartbeatConnector per
    pair."""

    enabled: bool = True
    """`heartbeats: false` is short for this."""
    interval: TimeSpan = 1
    """Time between two heartbeats, in whole seconds: Kafka knows nothing finer."""
    connector_name: ConnectorName | None = None
    """Name of the heartbeat connector of the pair where it has one already; default: `mm2.SOURCE.TARGET.heartbeat`."""


class Lane(Model, json_schema_extra=_example(topics=["app.orders", "app.payments"])):
    """Topics of a flow that a source connector of their own mirrors. A list is short for `{topics: …}`."""

    topics: Annotated[list[TopicName], Field(min_length=1)]
    """By name, each in one lane at most; the flow must mirror them."""
    tasks: Tasks | None = None
    """Of this connector. What is not written here is as in the flow's."""


class Balance(Model, json_schema_extra=_example(by="plugin")):
    """Who assigns the partitions of a flow to the tasks of its source connector, how many connectors it has, and when
    the assignment is changed (docs/how-to/balance.md)."""

    by: Annotated[
        Literal["stock", "plugin"], BeforeValidator(no_lanes, json_schema_input_type=Literal["stock", "plugin"])
    ] = "stock"
    """`stock`: MirrorMaker's own class, which deals them in turn, whatever their traffic. `plugin`: the class of mm2mgr's
    Connect plugin, which takes the assignment from the connector's config and deals evenly without one; every worker
    must have its jar, and `workers: {count: …}` must say how many there are, which plan checks. `balance: plugin` is short
    for this. Plan and apply leave an assignment that runs as it is."""
    lanes: Annotated[
        dict[LaneName, Annotated[Lane, BeforeValidator(lane_topics, json_schema_input_type=Lane | list[str])]],
        Field(examples=[{"heavy": ["app.orders", "app.payments"]}]),
    ] = {}
    """Further source connectors, for the topics that each lists; the flow's own connector mirrors all others, new ones
    included. A new flow begins with its lanes on any workers; later its topics change connectors with their stored
    offsets, one pair of connectors after the other, for which workers need Kafka 3.6."""
    threshold: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False), NO_SWITCH] = 1.1
    """How many times the least possible load the busiest task may have before another assignment is worth a restart."""
    looks: Annotated[int, Field(ge=1, le=100), NO_SWITCH] = 2
    """In how many looks in a row a task must be overloaded and late before partitions move. With 1, `rebalance` goes by
    the whole window of measurements alone, else also by the newest day."""
    cool_down: TimeSpan = 3_600
    """Least time between two rebalances of a flow, those by hand included."""
    rounds_per_day: Annotated[int, Field(ge=0, le=1_000), NO_SWITCH] | None = None
    """Most rebalances of a flow within 24 hours, those by hand included: each restarts all tasks. Default: 1; 3 for a
    flow with elastic tasks, which may give tasks up at night, need them in the morning, and be overloaded once."""
    pinned: list[PartitionName] = []
    """Partitions that stay on the task that they have, by topic and number."""
    automatic: Annotated[
        list[Literal["overload", "schedule"]],
        BeforeValidator(triggers, json_schema_input_type=list[Literal["overload", "schedule"]] | bool),
        Field(examples=[["overload"]]),
    ] = ["overload", "schedule"]
    """What `serve --with rebalance` and `reconcile --rebalance` act on. `overload`: a task that gets more than a task
    is planned to carry and is later than `max_lag`; without that none is late. `schedule`: every ten minutes, what
    `rebalance` says is worth a restart. `false`: neither."""
    windows: HourSpans = []
    """Hours of the day, in UTC, in which these two may write, such as `22-5`; by hand `--now` writes at any time.
    Default: at any time."""
    freeze: LocalFile | None = None
    """A file that stops these two while it exists, relative to where mm2mgr runs; by hand `--now` writes all the
    same."""


class OffsetSyncs(Model, json_schema_extra=_example(location="target")):
    """The pairs of source and target offsets that checkpoints are made from."""

    enabled: bool = True
    """False needs Kafka 3.9 or newer and switches the checkpoints of the pair off."""
    location: Literal["source", "target"] = "source"
    """Where their topic lives; `target` when mm2mgr's principal may only read the source."""


class Sync(Model, json_schema_extra=_example(topic_acls=True)):
    """What MirrorMaker copies besides records."""

    topic_configs: bool = True
    """Later changes of topic settings; a new topic gets them in any case."""
    topic_acls: bool = False
    """Kafka's default is true; it copies principals as they are and asks for cluster-wide ACL rights, so it is off
    unless asked for."""
    exclude_properties: Patterns = Field(default_factory=list)
    """Topic settings that are not copied, added to Kafka's own list."""


class FailoverSettings(Model, json_schema_extra=_example(check_every="15min")):
    """How closely it is watched that consumers of a pair of clusters could go on at its target."""

    enabled: bool = True
    """`failover: true` is short for this with all defaults."""
    check_every: Annotated[TimeSpan, Field(ge=60)] = 900
    """How often `serve --with failover` does what `mm2mgr failover check` does. With the source dead, a check goes by
    what the last one kept of it, and all that was written since is not known."""
    rehearse_every: Annotated[TimeSpan, Field(ge=3_600, le=90 * 86_400)] | None = None
    """How old the last good `mm2mgr failover rehearse` of all groups may be; `status` reports a pair without one. The
    store keeps rehearsals for 90 days. Default: none is asked for."""


class StartOfGroup(Model, json_schema_extra=_example(group="mirrormaker1-orders")):
    """Where a consumer group of the source goes on, such as that of MirrorMaker 1."""

    group: Annotated[str, Field(min_length=1, examples=["mirrormaker1-orders"])]
    """Name of the group; mm2mgr's login needs Describe on it."""


class Verbatim(Model, json_schema_extra=_example(source={"errors.tolerance": "all"})):
    """Keys of connectors as Connect gets them, over all that the rest of the flow and mm2mgr say; null leaves a key
    out. `mm2mgr import` writes here what a connector had and a flow does not say, so that it goes on as it was."""

    source: VerbatimOfSource = Field(default_factory=dict)
    """Of the source connector."""
    checkpoint: VerbatimSettings = Field(default_factory=dict)
    """Of the checkpoint connector of the pair."""
    heartbeat: VerbatimSettings = Field(default_factory=dict)
    """Of the heartbeat connector of the pair."""


class FlowSettings(Model, json_schema_extra=_example(topics={"include": ["app.orders", "logs[.].*"]})):
    """Everything about a flow except which clusters it connects. Nearest value wins: pair, flow, defaults."""

    topics: Topics = Topics.model_construct()
    """Which topics."""
    run_on: str | dict[str, str] | None = None
    """Connect cluster that runs the flow, or one per target alias. Default: the one whose `kafka` is the target."""
    replication_policy: PolicyName = "default"
    """`default` (topics become `alias.topic`), `identity` (names stay; no loop detection), or a Java class name."""
    separator: Separator = "."
    """Between alias and topic name, in signs that topic names may have. One per estate."""
    delivery: Literal["at_least_once", "exactly_once"] = "at_least_once"
    """`exactly_once`: all that it needs of connector, overrides and isolation level is written; the workers must run
    with `exactly.once.source.support=enabled`, which plan and apply check."""
    tasks: Tasks = Tasks.model_construct()
    """Tasks of the source connector: a number, or bounds for the computed one."""
    balance: Annotated[
        Balance,
        BeforeValidator(balance_way, json_schema_input_type=Balance | Literal["stock", "plugin"]),
    ] = Balance.model_construct()
    """Who assigns partitions to these tasks, and when that is changed: `stock`, `plugin`, or settings."""
    catch_up: CatchUpSettings | None = None
    """Limit that all tasks of the flow share, by pair of clusters. Default: that of the link, else no limit."""
    checkpoints: Annotated[Checkpoints, BeforeValidator(flag, json_schema_input_type=Checkpoints | bool)] = (
        Checkpoints.model_construct()
    )
    """Translated consumer group offsets; true, false or settings."""
    heartbeats: Annotated[Heartbeats, BeforeValidator(flag, json_schema_input_type=Heartbeats | bool)] = (
        Heartbeats.model_construct()
    )
    """Proof that the flow moves; true, false or settings."""
    offset_syncs: Annotated[OffsetSyncs, BeforeValidator(flag, json_schema_input_type=OffsetSyncs | bool)] = (
        OffsetSyncs.model_construct()
    )
    """What checkpoints are made from; true, false or settings."""
    sync: Sync = Sync.model_construct()
    """What is copied besides records."""
    refresh_interval: TimeSpan = 600
    """How often new topics, partitions and groups are looked for."""
    max_lag: Annotated[TimeSpan, Field(gt=0)] | None = None
    """Age of the oldest record that waits, above which an alert of `mm2mgr rules` fires. Default: no alert for lag."""
    audit: Share | None = None
    """Share of the records, such as `2%`, that `mm2mgr audit --follow` and `serve --with audit` compare with the
    source. Where it is set, `status` reports two days without a verdict. Default: not audited by them."""
    failover: Annotated[
        FailoverSettings | None, BeforeValidator(flag, json_schema_input_type=FailoverSettings | bool)
    ] = None
    """Whether consumers must be able to go on at the target: true, false or settings, the same in all flows of a pair.
    Where it is set, `serve --with failover` checks that, and `status` reports a pair that is not ready, or that nothing
    checks. Default: not watched."""
    source_consumer: ClientSettings = Field(default_factory=dict)
    """The consumer that reads the source. Plain consumer keys; null drops a default of mm2mgr."""
    record_producer: ClientSettings = Field(default_factory=dict)
    """The producer that writes mirrored records to the target. Plain producer keys."""
    source_admin: ClientSettings = Field(default_factory=dict)
    """The admin client on the source."""
    target_admin: ClientSettings = Field(default_factory=dict)
    """The admin client on the target (creates and alters topics)."""
    offset_syncs_producer: ClientSettings = Field(default_factory=dict)
    """The producer of the offset-syncs topic."""
    target_consumer: ClientSettings = Field(default_factory=dict)
    """The consumer with which the checkpoint connector reads the target."""
    source_connector: ConnectorSettings = Field(default_factory=dict)
    """Any other key of MirrorSourceConnector, as Kafka names it."""
    checkpoint_connector: ConnectorSettings = Field(default_factory=dict)
    """Any other key of MirrorCheckpointConnector."""
    heartbeat_connector: ConnectorSettings = Field(default_factory=dict)
    """Any other key of MirrorHeartbeatConnector."""
    verbatim: Verbatim = Verbatim.model_construct()
    """Keys of its connectors exactly as written, for what was there before mm2mgr: they win over everything else."""
    connector_name: ConnectorName | None = None
    """Name of the source connector where it has one already (see `adopt`), since offsets are stored under it. Default:
    `mm2.SOURCE.TARGET.source.FLOW`. A flow of several pairs names the connector of each under `pairs`."""
    start: (
        Annotated[
            str | StartOfGroup,
            BeforeValidator(start_text),  # always a text; pydantic 2.10.0 cannot describe an input type with a model
            Field(examples=["latest", "2026-11-26T10:00", "2h"]),
        ]
        | None
    ) = None
    """Where the flow begins when its connector is created, in the partitions that exist then: `latest` (the ends of the
    logs), `earliest`, the first record of a time (UTC without a zone) or of a time back (`2h`), or where a consumer
    group of the source goes on (`{group: NAME}`). Partitions that come later begin at their first record. Written as
    stored offsets before it first runs, for which workers need Kafka 3.6 (docs/how-to/where-a-flow-begins.md). What
    runs, or has stored offsets, goes on from them, whatever this says. Default: `earliest`."""
    state: Literal["running", "paused", "stopped"] | None = None
    """State that the flow's source connector is kept in. Default: not managed; `status` reports a paused or stopped
    flow whose lag grows."""
    allow: list[Literal["mirror-again", "target-names", "names-taken"]] = []
    """Costly changes that this flow may make, as `--allow` does for a whole plan. `mirror-again`: records arrive a
    second time that another connector has mirrored. `target-names`: its topics get other names on the target.
    `names-taken`: these names have records there already. `plan` says when the line can go."""
    silence: dict[str, Annotated[str, Field(min_length=1)]] = Field(
        default_factory=dict, examples=[{"wrong-kafka": "why it is fine here"}]
    )
    """Rules of `mm2mgr lint` that are switched off for this flow, each with the reason: `{rule-id: why it is fine
    here}`."""


class DeclaredFlow(
    FlowSettings,
    json_schema_extra=_example(sources=["dc1"], targets=["agg"], topics={"include": ["app.orders", "logs[.].*"]}),
):
    """A declared flow: sources × targets, less the exceptions."""

    sources: Selector
    """Aliases, or labels that all must match (a list of values means any of them)."""
    targets: Annotated[Selector, Field(examples=[["agg"]])]
    """Aliases, or labels."""
    except_: Annotated[list[PairName], Field(alias="except")] = []
    """Pairs left out, as `source->target`."""
    pairs: dict[PairName, FlowSettings] = {}
    """Settings of single pairs, as `source->target: {…}`."""


class Defaults(Model, json_schema_extra=_example(flows={"refresh_interval": "10min"})):
    """What many entries share; an entry's own value outranks it, key by key."""

    clusters: ClusterDefaults = ClusterDefaults.model_construct()
    """For every Kafka cluster."""
    connect: ConnectDefaults = ConnectDefaults.model_construct()
    """For every Connect cluster."""
    flows: FlowSettings = FlowSettings.model_construct()
    """For every flow."""
    balance: Annotated[
        Balance,
        BeforeValidator(balance_way, json_schema_input_type=Balance | Literal["stock", "plugin"]),
    ] = Balance.model_construct()
    """For the `balance` of every flow."""
    move_budget: Annotated[int, Field(ge=0), NO_SWITCH] | None = None
    """How many partitions may change their task in one apply for the sake of fewer tasks (`mm2mgr size`); the other
    steps down wait for the next one. Default: any number."""
    spark: bool = True
    """Whether roll-ups, audits and Cruise Control's topic run on Spark where PySpark, Java and 2.5 GiB of memory are found;
    `false` turns Spark off, and they run in the process of the command. Outranked by `MM2MGR_SPARK`, and by `--spark` and
    `--no-spark`."""


class Sized(Model, json_schema_extra=_example(tasks_max=8)):
    """One recommendation of `mm2mgr size`: ranks below hand-written values."""

    tasks_max: TaskCount
    """Used where `tasks: {max: auto}`, up to `limit`; `min` and the number of partitions are in it already."""
    reason: str = ""
    """Why, in words."""
    bytes_per_second: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Load of the flow that the number was computed from."""
    measured: str | None = None
    """Time window of the samples."""
    source: str | None = None
    """Which statistic was used, and from where."""
    changed: str | None = None
    """When `tasks_max` last became another number; `tasks: {cool_down: …}` counts from here."""
    saves_tasks: bool = False
    """Fewer tasks than before, which fitted as well: `apply` may let the restart wait (`cool_down` and `off_peak` of
    `tasks:`, `move_budget` of `defaults:`)."""
    partitions: Annotated[int, Field(ge=0)] | None = None
    """Partitions of the flow, for `move_budget` of `defaults:`."""
    holds_until: str | None = None
    """Until when fewer tasks are enough for an elastic flow: `apply` writes them until then, without `cool_down`, and
    not later."""


_SocketBuffer = Annotated[int, Field(ge=-1, le=2**31 - 1)]
_Limit = Annotated[int, Field(ge=1, le=2**31 - 1)]


class BrokersRead(Model, json_schema_extra=_example(**{"count": 3, "socket.send.buffer.bytes": 102400})):
    """What the brokers of one cluster answered to `mm2mgr link read`; where they differ, the smallest value."""

    count: Annotated[int, Field(ge=1)] = 1
    """How many brokers there are."""
    version: KafkaVersion | None = None
    """At least this Kafka; brokers from 4.0 on do not say more."""
    send_buffer: Annotated[_SocketBuffer, Field(alias="socket.send.buffer.bytes")] = 102_400
    """Caps how fast one connection reads from these brokers over a long link; -1: the operating system sizes it."""
    receive_buffer: Annotated[_SocketBuffer, Field(alias="socket.receive.buffer.bytes")] = 102_400
    """Caps how fast one connection writes to these brokers over a long link; -1: the operating system sizes it."""
    request: Annotated[_Limit, Field(alias="socket.request.max.bytes")] = 104_857_600
    """Largest request."""
    message: Annotated[_Limit, Field(alias="message.max.bytes")] = 1_048_588
    """Largest batch, where a topic says nothing else."""
    flows: dict[FlowId, _Limit] = {}
    """By flow that writes here, the smallest `max.message.bytes` of its topics that exist."""
    since: str | None = None
    """Day (UTC) on which these values were first read."""


# --- connectors that change hands -------------------------------------------------------------------------------------


class Adopt(Model, json_schema_extra=_example(connect="agg", connector="legacy-orders")):
    """A connector made by hand or by another tool that comes under management, under its own name. The flow that it is
    carries this name (`connector_name`). Nothing is written until its config must change: the owner mark comes with the
    first change, and until then this line is what makes it this tree's. `plan` says when the line can go."""

    connect: Alias
    """Connect cluster that it runs on."""
    connector: ConnectorName
    """Its name there."""
    from_owner: Owner | None = None
    """Owner of the tree that it comes from, where it carries that tree's mark; that tree gives it up with `release`."""


class Release(Model, json_schema_extra=_example(connect="agg", connector="legacy-orders")):
    """A connector that this tree forgets and leaves running: nothing is written there, and `--prune` never deletes it.
    Its owner mark stays in its config, since removing it would restart its tasks, so this line is needed as long as it
    carries the mark."""

    connect: Alias
    """Connect cluster that it runs on."""
    connector: ConnectorName
    """Its name there."""


class DedicatedPair(Model, json_schema_extra=_example(dedicated="dc1->agg")):
    """A dedicated MirrorMaker (`connect-mirror-maker.sh`), which keeps its offsets in a topic of its own."""

    dedicated: PairName
    """The pair of aliases in its mm2.properties, as `source->target`."""


class MovedFlow(Model, json_schema_extra=_example(**{"from": "orders:dc1->agg", "to": "payments:dc1->agg"})):
    """A flow that goes on under another name, on another Connect cluster or under another owner, with its stored
    offsets."""

    from_: Annotated[
        str | DedicatedPair,
        Field(alias="from", examples=["orders:dc1->agg", "agg/legacy-orders", {"dedicated": "dc1->agg"}]),
    ]
    """The flow that it was, by its id; or a connector, such as `agg/legacy-orders` (its Connect cluster first); or
    `{dedicated: source->target}`. For all flows of a pair at once: the pair that it was (`dc1->agg`), or the Connect
    cluster that it ran on and the pair (`main/dc1->agg`)."""
    to: MovedTo
    """The id of the flow that it becomes, as `mm2mgr plan` prints it; or the pair, for all of its flows."""
    topics: Patterns = Field(default_factory=list)
    """Only these topics move, between two flows that both stay. Default: the whole flow, whose connector is deleted
    afterwards."""
    from_owner: Owner | None = None
    """Owner of the tree that the connector comes from, where it carries that tree's mark."""


class Tree(Model):
    """All files together."""

    owner: Owner
    """Marks every connector this tree manages (`mm2mgr.owner`); connectors without this mark are never touched."""
    defaults: Defaults = Defaults.model_construct()
    """What many entries share."""
    clusters: dict[Alias, Cluster]
    """Kafka clusters by alias."""
    connect: dict[Alias, Connect]
    """Kafka Connect clusters by name."""
    links: list[Link] = []
    """What lies between clusters that are far apart."""
    flows: dict[Alias, DeclaredFlow] = {}
    """Which topics go from where to where, by name."""
    adopt: list[Adopt] = []
    """Connectors made elsewhere that come under management under their own names."""
    moved: list[MovedFlow] = []
    """Flows that go on under another name, Connect cluster or owner, with their stored offsets."""
    release: list[Release] = []
    """Connectors that this tree forgets without deleting them."""
    sizing: dict[str, Sized] = {}
    """Only in `overrides/`: written by `mm2mgr size`, reviewed like any change."""
    brokers: dict[Alias, BrokersRead] = {}
    """Only in `overrides/`: what the brokers of each Kafka cluster allow, written by `mm2mgr link read`, reviewed like
    any change."""


OVERRIDE_KEYS = ("sizing", "brokers")
"""What mm2mgr writes into files of an overrides/ folder; these contain nothing else."""
