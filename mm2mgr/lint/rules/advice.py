"""Rules about what is better changed: defaults that serve a mirror badly, known bugs, the next upgrade."""

from __future__ import annotations

from collections.abc import Iterator

from mm2mgr.defaults import CLIENT_DEFAULTS
from mm2mgr.lint.findings import (
    Edit,
    Hit,
    Severity,
    config_key,
    connector_hit,
    edit_hit,
    estate_rule,
    file_key,
    keys_ending,
    removal_hit,
    rule,
)
from mm2mgr.lint.hops import clusters, hops, items_of, plain_name
from mm2mgr.lint.rules.sizes import partitions
from mm2mgr.lint.rules.worker import ALLOWLIST, POLICY, checked_by_policy, plain_keys
from mm2mgr.lint.subject import Estate, Subject
from mm2mgr.text import few, number_of, whole_number
from mm2mgr.truth.bugs import Bug, bugs_of
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import Client, numbers

_TASKS, _LAG, _GROUPS = "tasks.max", "offset.lag.max", "sync.group.offsets.enabled"
_MANY_PARTITIONS = 50
_MANY_CHECKPOINT_TASKS = 10
_LARGE_LAG = 10_000


@rule("one-task", "warning", "KIP-382, strimzi#4833", types=("source",))
def one_task(subject: Subject) -> Iterator[Hit]:
    """One task mirrors everything, because tasks.max is not set.

    The default of tasks.max is 1. A task has one consumer, one producer and one connection to each broker, so a source
    connector with one task mirrors all its topics at the rate of one connection, on one worker, and lag grows where
    that is not enough. It is a warning where the source is known to have many partitions for it, otherwise a hint.
    `mm2mgr size` computes the number from measured rates; more tasks than partitions are never created. Write
    tasks.max=1 if one task is meant.
    """
    if _TASKS in subject.config or subject.is_off:
        return
    items, count = items_of(subject, "topics"), partitions(subject)
    if not items or count == 1:
        return
    named = all(plain_name(item) for item in items)
    topics = f"all {count} partitions" if count else "all its topics" if named else "every topic that matches"
    message = f"{_TASKS} is not set, so one task mirrors {topics}"
    hit = connector_hit(subject, _TASKS, str(min(count or 4, 4)), message, ", or what the traffic needs")
    yield hit if count > _MANY_PARTITIONS else hit.with_severity("info")


@rule("tasks-idle", "info", "MirrorCheckpointConnector.taskConfigs", types=("checkpoint", "heartbeat"))
def tasks_idle(subject: Subject) -> Iterator[Hit]:
    """The connector never creates as many tasks as tasks.max allows, or they do not help.

    A heartbeat connector has one task, whatever tasks.max says. A checkpoint connector divides the consumer groups
    among its tasks, at most one task per group; each task reads the whole offset-syncs topic and, at its start, all
    checkpoints, so tasks beyond a few multiply that work instead of sharing it. Records are mirrored by the source
    connector: its tasks.max is the one that matters; in mm2.properties one line is for all three. Source:
    MirrorCheckpointConnector, MirrorHeartbeatConnector.
    """
    text = subject.get(_TASKS)
    number = whole_number(text)
    configured, useful, reason = 1 if number is None else number, 1, "a heartbeat connector has one task"
    if subject.type == "checkpoint":
        items = items_of(subject, "groups") if "groups" in subject.config else ()
        if items and all(plain_name(item) for item in items):
            useful, reason = len(items), f"there is at most one task per group, and groups has {len(items)}"
        else:
            configured = configured if configured > _MANY_CHECKPOINT_TASKS else 1
            reason = (
                "each task reads all offset syncs and all checkpoints, so more tasks add work instead of sharing it"
            )
    if configured > useful and not subject.is_off and subject.form != "dedicated":
        yield connector_hit(subject, _TASKS, str(useful), f"{file_key(subject, _TASKS)}={text}: {reason}")


@rule("offset-lag-large", "warning", "OffsetSyncWriter, KAFKA-15906", types=("source",), needs=(_LAG,))
def offset_lag_large(subject: Subject) -> Iterator[Hit]:
    """Offset syncs are rare, so translated offsets lag far behind.

    A source task writes an offset sync for a partition when offset.lag.max records (100 by default) have passed since
    the last one. Checkpoints and group offsets are translated from syncs only: consumers that fail over start up to
    that many records per partition too early. Up to 3.6 a partition that gets fewer records never has another sync;
    since 3.7 (KAFKA-15906) the last one is written at each offset commit, every minute by default, and the large value
    is only a hint. Source: OffsetSyncWriter, MirrorSourceTask.commit.
    """
    text = subject.get(_LAG)
    records = whole_number(text)
    if records is None or records <= _LARGE_LAG or not subject.setting.offset_syncs:
        return
    since = subject.known_version is not None and numbers(subject.known_version) >= (3, 7)
    how = "for up to one commit interval" if since else f"by up to {text} records per partition"
    effect = f"translated offsets lag behind {how}, so consumers that fail over read these records again"
    message = f"{file_key(subject, _LAG)}={text}: {effect}"
    hit = removal_hit(subject, _LAG, message)
    yield hit.with_severity("info") if since else hit


@rule("group-offsets-off", "info", "KIP-545", types=("checkpoint",))
def group_offsets_off(subject: Subject) -> Iterator[Hit]:
    """Consumer groups have no offsets on the target, because sync.group.offsets.enabled is not set.

    The default is false (KIP-545): the checkpoint connector only writes checkpoints, which clients have to translate
    themselves (RemoteClusterUtils.translateOffsets). A consumer that simply connects to the target finds no offset of
    its group there and starts where its auto.offset.reset says: at the end, so that records are missed, or at the
    beginning. With true, offsets of groups without active members on the target are kept up to date. Write the key,
    with either value, to say which is meant.
    """
    if _GROUPS not in subject.config and not subject.is_off and subject.flag("emit.checkpoints.enabled", default=True):
        effect = f"groups that move to {subject.target} find no offsets there and start at their auto.offset.reset"
        message = f"{_GROUPS} is not set: {effect}"
        yield connector_hit(subject, _GROUPS, "true", message, " if consumers are to continue on the target")


# Block of a flow → the key of mm2mgr.defaults that matters most there.
_FORGOTTEN = {
    "source_consumer": ("allow.auto.create.topics", "receive.buffer.bytes"),
    "offset_syncs_producer": ("max.block.ms",),
    "source_admin": ("retry.backoff.ms",),
}


@rule("client-defaults", "info", "mm2mgr's own defaults", types=("source", "checkpoint"))
def client_defaults(subject: Subject) -> Iterator[Hit]:
    """Settings of Kafka's clients have defaults that do not suit a mirror.

    With allow.auto.create.topics=true a topic that is deleted on the source is created again by the mirror's own reads,
    within seconds. With receive.buffer.bytes=65536 one connection carries 0.8 MB/s at a round trip of 100 ms. With
    max.block.ms=60000 of the offset-syncs producer a dead source holds up the offset commits of all flows on the
    worker. With retry.backoff.ms=100 an admin client of 4.x writes thousands of log lines per second while its cluster
    is unavailable. mm2mgr gives every flow better values, each with its reason (docs/reference/defaults.md). A key that
    is set on the connector or its workers is not reported, whatever its value.
    """
    forgotten = {config_key(subject, default[0].name, default[1]): default for default in _forgotten(subject)}
    if forgotten and not subject.is_off:
        edits = [Edit(key, value) for key, (_, _, value, _) in forgotten.items()]
        reasons = "; ".join(
            f"{plain} of the {client.name} ({reason})" for client, plain, _, reason in forgotten.values()
        )
        yield edit_hit(subject, f"not set: {reasons}", edits, edits[0].key)


def _forgotten(subject: Subject) -> Iterator[tuple[Client, str, str, str]]:
    """Yield clients with a key that is not set, the value that mm2mgr would write, and why."""
    for client in subject.clients:
        block = client.block or ""
        for plain in _FORGOTTEN.get(block, ()):
            if not subject.is_set(client.name, plain) and _matters(subject, plain):
                yield client, plain, *CLIENT_DEFAULTS[block][plain]


def _matters(subject: Subject, plain: str) -> bool:
    if plain == "receive.buffer.bytes":
        return subject.wire is None  # else window-small knows
    if plain == "retry.backoff.ms":
        return subject.known_version is None or numbers(subject.known_version) >= (4, 0)
    if plain == "max.block.ms":  # offset-syncs-block knows where the workers are known
        cluster = subject.connector.connect or subject.spot.connect or subject.worker_property("bootstrap.servers")
        return not (cluster or subject.exactly_once or subject.form == "dedicated")
    return True


@estate_rule("no-heartbeats", "info", "KIP-382")
def no_heartbeats(estate: Estate) -> Iterator[Hit]:
    """Nothing shows from outside whether a pair works: no heartbeat connector writes into its source.

    A mirror of quiet topics looks like one that is broken. Heartbeats written into the source cluster every second are
    mirrored with the topics, so that A.heartbeats on B shows that A→B works and how late it is (MirrorClient,
    `mm2mgr status`). The connector's own target is the source of the flow. Reported where everything is known that runs
    (a live Connect), or where a checkpoint connector shows that the files are a whole set.
    """
    ends_of = clusters(estate.subjects)
    written_into = {ends_of[subject][1] for subject in estate.subjects if subject.type == "heartbeat"}
    sets = {ends_of[subject] for subject in estate.subjects if subject.type == "checkpoint"}
    reported = set[tuple[int, int]]()
    for hop in hops(estate.subjects):
        subject = hop.subject
        whole = estate.complete or hop.pair in sets
        if (
            not whole
            or subject.form != "connect"
            or hop.source in written_into
            or hop.pair in reported
            or subject.is_off
        ):
            continue
        reported.add(hop.pair)
        effect = f"so a broken {subject.pair} looks like one without traffic"
        message = f"no heartbeat connector writes into {subject.source}, {effect}"
        fix = f"create a MirrorHeartbeatConnector with target.cluster.alias={subject.source} and its addresses"
        if subject.resource:  # whose heartbeatConnector writes into the target, and is gone in v1
            remedy = f"target.cluster.alias={subject.source} and its addresses"
            kind = "Connector" if subject.resource.kind == "Connector" else "KafkaConnector"
            fix = f"create a {kind} of class MirrorHeartbeatConnector with {remedy}"
        yield Hit(message, fix, "", subject)


_FORMATS = "metric.names.formats"
_MAJOR = (5, 0)


@estate_rule("known-bug", "warning", "Apache Kafka's issues and history")
def known_bug(estate: Estate) -> Iterator[Hit]:
    """The workers run a Kafka release with a known bug that concerns these connectors.

    The rule compares the workers' release and the config with the list in [known bugs](../known-bugs.md): which
    releases have a bug, of the connectors or of their clients, for which configs, its effect and what to do until the
    workers are upgraded. Each is reported once per file, at the first connector that it concerns. Bugs whose effect is
    small or rare are reported together, by `minor-bugs`. Without a known version of the workers nothing is reported; of
    a vendor's version without a patch number of Kafka only what the whole line has. `mm2mgr explain KAFKA-12468` prints
    one entry.
    """
    having: dict[tuple[str, str, str, str], tuple[Bug, list[Subject]]] = {}
    for subject in estate.subjects:
        for bug in _bugs(subject, "warning"):
            place = subject.spot.file, subject.connector.connect or subject.spot.connect, subject.version, bug.id
            having.setdefault(place, (bug, []))[1].append(subject)
    for (_, _, version, _), (bug, (first, *others)) in having.items():
        message = f"{bug.id} in Kafka {version} ({bug.fixed_in}): {bug.effect}"
        yield Hit(message, bug.remedy, bug.key, subject=first, others=tuple(others))


@estate_rule("minor-bugs", "info", "Apache Kafka's issues and history")
def minor_bugs(estate: Estate) -> Iterator[Hit]:
    """The workers run a Kafka release with known bugs of small or rare effect that concern these connectors.

    One finding per version names them all; `known-bug` reports the others one by one. `mm2mgr explain KAFKA-15906`
    prints an entry, and [known bugs](../known-bugs.md) lists them with releases, conditions and remedies. An upgrade of
    the workers removes those that are fixed.
    """
    minor_of: dict[str, tuple[dict[str, Bug], list[Subject]]] = {}
    for subject in estate.subjects:
        for bug in _bugs(subject, "info"):
            bugs, subjects = minor_of.setdefault(subject.version, ({}, []))
            bugs[bug.id] = bug
            if subject not in subjects[-1:]:
                subjects.append(subject)
    for version, (bugs, subjects) in minor_of.items():
        listed = "; ".join(f"{bug.id}: {bug.effect}" for bug in bugs.values())
        effect = f"concern {number_of(len(subjects), 'connector')}: {listed}"
        message = f"Kafka {version} has {number_of(len(bugs), 'known bug')} of small or rare effect that {effect}"
        fix = f"mm2mgr explain {next(iter(bugs))} says what to do; upgrade the workers for those that are fixed"
        yield Hit(message, fix, subject=subjects[0], others=tuple(subjects[1:]))


def _bugs(subject: Subject, severity: Severity) -> Iterator[Bug]:
    version = subject.known_version
    if version and not subject.is_beyond:
        for bug in bugs_of(subject.type, version):
            if bug.severity == severity and bug.rule == "known-bug" and bug.only[1](subject):
                yield bug


def _is_next_major(subject: Subject) -> bool:
    return subject.known_version is not None and numbers(subject.known_version) >= _MAJOR


@estate_rule("upgrade-override-policy", "warning", "KIP-1188 (KAFKA-19824)")
def upgrade_override_policy(estate: Estate) -> Iterator[Hit]:
    """From Kafka 5.0 on, workers refuse the client overrides of these connectors unless a line allows them.

    The default of connector.client.config.override.policy is None up to 2.8, All from 3.0 to 4.x, and Allowlist from
    5.0 on, with an empty list: every producer.override.* is refused (400), and tasks that run do not start again. The
    policy Principal is deprecated since 4.2 and goes with 5.0. The fix is the one line that the workers need, with
    exactly the keys that the connectors use. It may be added before the upgrade, together with `…policy=Allowlist` (4.2
    or newer). Use `--kafka 5.0` to ask for the upgrade. A dedicated MirrorMaker allows all overrides by itself.
    """
    refused_of: dict[str, list[Subject]] = {}
    for subject in estate.subjects:
        if _is_next_major(subject) and subject.form != "dedicated" and _is_open(subject):
            refused_of.setdefault(subject.connector.connect or subject.spot.connect, []).append(subject)
    for connect, subjects in refused_of.items():
        keys = plain_keys(key for subject in subjects for key in checked_by_policy(subject.kind))
        who = f"the workers of {connect}" if connect else "the workers"
        version = subjects[0].version
        effect = (
            f"{number_of(len(subjects), 'connector')} would be refused (400): {few([user.name for user in subjects])}"
        )
        message = f"Kafka {version} refuses client overrides that {who} do not allow: {effect}"
        fix = f"write {ALLOWLIST}={','.join(keys)} in the properties of {who}; or {POLICY}=All, which allows every key"
        first, *others = subjects
        yield Hit(message, fix, checked_by_policy(first.kind)[0], subject=first, others=tuple(others))


def _is_open(subject: Subject) -> bool:
    """Tell whether a connector has overrides, and its workers' policy is the default or one that goes."""
    named = (subject.worker_property(POLICY) or "").rpartition(".")[2]
    return named in ("", "Principal", "PrincipalConnectorClientConfigOverridePolicy") and bool(
        checked_by_policy(subject.kind)
    )


@estate_rule("upgrade-metric-names", "info", "KIP-1280")
def upgrade_metric_names(estate: Estate) -> Iterator[Hit]:
    """Kafka 5.0 removes MirrorMaker's old metric names, which dashboards and alerts may read.

    Since 4.3 metric.names.formats of source and checkpoint connectors chooses the names: `legacy` (the default) is
    kafka.connect.mirror:type=MirrorSourceConnector and …=MirrorCheckpointConnector, `new` is
    kafka.connect:type=plugins,connector=…,task=… with the same tags behind. The old names go with 5.0. Write
    `legacy,new` on workers of 4.3, move dashboards and alerts, then upgrade. Use `--kafka 5.0` to ask for the upgrade.
    """
    old = [
        subject
        for subject in estate.subjects
        if _is_next_major(subject) and subject.type != "heartbeat" and "new" not in subject.items(_FORMATS)
    ]
    if old:
        effect = f"metrics of {number_of(len(old), 'connector')} have only these names"
        message = f"Kafka {old[0].version} no longer emits kafka.connect.mirror:type=Mirror…Connector: {effect}"
        remedy = "and move dashboards and alerts to kafka.connect:type=plugins before the upgrade"
        fix = f"write {_FORMATS}=legacy,new on workers of 4.3, {remedy}"
        yield Hit(message, fix, _FORMATS, subject=old[0], others=tuple(old[1:]))


@rule("upgrade-deprecated", "info", "the definitions in Kafka's jars", reads=keys_ending())
def upgrade_deprecated(subject: Subject) -> Iterator[Hit]:
    """A key is deprecated in the newest known Kafka, so a newer one may not have it.

    Kafka removes deprecated keys with a new major version, and connectors ignore unknown ones without an error, as they
    did with topics.blacklist in 4.0. The rule looks at versions newer than all that are known here, such as
    `--kafka 5.0`. Remove the key, or compare with the upgrade notes of that version.
    """
    if not subject.is_beyond:
        return
    newest = load().lines[-1]
    for key in subject.config.keys() - {_FORMATS}:  # upgrade-metric-names judges it by its value
        definition = load().find(subject.type, key, newest)
        if definition and definition.deprecated:
            message = f"{file_key(subject, key)} is deprecated in Kafka {newest}, and {subject.version} may ignore it"
            yield Hit(message, f"remove {file_key(subject, key)} once the workers run {subject.version}", key)
