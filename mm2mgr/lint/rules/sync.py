"""Rules about what MirrorMaker copies beside records: ACLs, topic settings, replication factors, offset syncs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mm2mgr.connectors import ConnectorType
from mm2mgr.lint.findings import (
    Edit,
    Hit,
    client_hit,
    connector_hit,
    describe,
    edit_hit,
    estate_rule,
    file_key,
    keys_ending,
    removal_hit,
    rule,
    spell,
)
from mm2mgr.lint.hops import SIDES, ClusterSide, Hop, hops
from mm2mgr.lint.subject import Estate, Subject, addresses
from mm2mgr.text import span_text, whole_number
from mm2mgr.truth.reach import numbers

_DEAD_SOURCE = "tests/live/test_dead_source.py::"
_LIVE = "tests/lint/test_seen_live_topics.py::"
_ACLS, _CONFIGS, _DEFAULTS_FROM = "sync.topic.acls.enabled", "sync.topic.configs.enabled", "use.defaults.from"
_SYNCS, _BLOCK = "offset-syncs producer", "max.block.ms"
_LONG_BLOCK_MS = 5_000
_NUMBER = re.compile(r"-?\d{1,10}")
# Job → the seconds between its runs by default; those of ten minutes are the scheduler's.
_JOBS: dict[ConnectorType, dict[str, int]] = {
    "source": {"refresh.topics": 600, "sync.topic.configs": 600, "sync.topic.acls": 600},
    "checkpoint": {"refresh.groups": 600, "emit.checkpoints": 60, "sync.group.offsets": 60},
    "heartbeat": {"emit.heartbeats": 1},
}


@rule(
    "sync-acls",
    "warning",
    "KIP-382",
    types=("source",),
    reads=keys_ending("sync.topic.acls.enabled", "security.protocol", "sasl.mechanism"),
)
def sync_acls(subject: Subject) -> Iterator[Hit]:
    """ACLs of the source's topics are copied to principals of the same name on the target.

    sync.topic.acls.enabled is true by default. Every ten minutes MirrorMaker copies the ACLs of literal topic names
    with unchanged principals: where the target authenticates differently, they match no user, or another user. ALLOW
    WRITE is skipped, ALLOW ALL becomes READ, and nothing is ever removed. It needs Describe on the source cluster and
    Alter on the target cluster; errors are only logged. With unchanged topic names (IdentityReplicationPolicy) it
    grants read access to the target's own topics. It is a warning where true is written and the sides log in
    differently, and a hint where the default does it or both log in alike. Source: KIP-382; the rights were tried one
    by one on 4.3.1.
    """
    logins = [_login(subject, side) for side in SIDES]
    if not subject.flag(_ACLS, default=True) or (_ACLS not in subject.config and logins[0] == logins[1]):
        return
    how = f" ({logins[0]} on the source, {logins[1]} on the target)" if logins[0] != logins[1] else ""
    setting = f"{file_key(subject, _ACLS)}=true" if _ACLS in subject.config else f"{_ACLS} is true by default"
    effect = f"names{how} and never removed"
    message = f"{setting}: READ rights of the source's principals are copied to the target under the same {effect}"
    hit = connector_hit(subject, _ACLS, "false", message, " unless that is intended")
    yield hit if how and _ACLS in subject.config else hit.with_severity("info")


def _login(subject: Subject, side: ClusterSide) -> str:
    client = f"{side} admin"
    protocol = (subject.value(client, "security.protocol") or "PLAINTEXT").upper()
    if protocol.startswith("SASL"):
        return (subject.value(client, "sasl.mechanism") or "GSSAPI").upper()
    has_key = any(subject.written_key(client, f"ssl.keystore.{part}") for part in ("location", "key"))
    return "client certificates" if protocol == "SSL" and has_key else "no login"


@rule("sync-configs", "warning", "KIP-894", types=("source",), needs=(_DEFAULTS_FROM,), live=_LIVE)
def sync_configs(subject: Subject) -> Iterator[Hit]:
    """The value of use.defaults.from has no effect.

    use.defaults.from=source writes the default values of the source to the target's topics as settings of the topics
    (values from the configuration files of the source's brokers are left out). Every word other than source, such as a
    cluster's alias, counts as target, the default, without an error.
    """
    if _DEFAULTS_FROM not in subject.config:
        return
    key, value = file_key(subject, _DEFAULTS_FROM), subject.get(_DEFAULTS_FROM)
    if value not in ("source", "target") and numbers(subject.version) >= (3, 5):  # older lines do not read it
        message = f"{key}={value} counts as target: only the word source has an effect"
        more = f", or {spell(subject, _DEFAULTS_FROM, 'source')} to copy the source's defaults"
        yield connector_hit(subject, _DEFAULTS_FROM, "target", message, more)


@rule(
    "sync-configs-off",
    "info",
    "KIP-382",
    types=("source",),
    live=_LIVE,
    reads=keys_ending("sync.topic.configs.enabled"),
)
def sync_configs_off(subject: Subject) -> Iterator[Hit]:
    """Later changes of topic settings are not copied to the target.

    With sync.topic.configs.enabled=false a topic gets the source's settings when MirrorMaker creates it, and never
    again. If retention.ms or max.message.bytes is raised on the source afterwards, the target keeps the old value: it
    deletes records earlier, or larger records fail the task. Use it where the target's settings are managed separately.
    Source: MirrorSourceConnector.start, createNewTopics.
    """
    if not subject.flag(_CONFIGS, default=True):
        effect = "later changes (retention.ms, max.message.bytes) are not"
        message = f"{file_key(subject, _CONFIGS)}=false: a topic's settings are copied when it is created; {effect}"
        yield connector_hit(subject, _CONFIGS, "true", message, ", or set the target's topics yourself")


_ALTER = "use.incremental.alter.configs"


@rule("alter-configs-replaces", "warning", "KIP-894", types=("source",), needs=(_ALTER,))
def alter_configs_replaces(subject: Subject) -> Iterator[Hit]:
    """Each sync of topic settings removes what was set on the target.

    With use.incremental.alter.configs=never MirrorMaker sends all settings of a topic at once, as it did before 3.5: a
    setting that was made on the target's topic, such as a longer retention, is reset to the brokers' default at the
    next sync, without an error. The default `requested` changes only what differs. Kafka 4.0 removed the key and always
    behaves like `required` (KIP-894).
    """
    version = numbers(subject.known_version or "0")
    if subject.get(_ALTER).lower() == "never" and (3, 5) <= version < (4, 0) and subject.flag(_CONFIGS, default=True):
        message = (
            f"{file_key(subject, _ALTER)}=never: each sync resets the settings that were made on the target's topics"
        )
        yield removal_hit(subject, _ALTER, message)


@rule("replication-factor", "error", "KIP-382", live=_LIVE)
def replication_factor(subject: Subject) -> Iterator[Hit]:
    """A topic needs more replicas than its cluster has brokers and cannot be created.

    MirrorMaker creates topics with fixed replication factors: replication.factor is 2 by default, those of
    offset-syncs, checkpoints and heartbeats 3. On a cluster with fewer brokers the creation fails. The log reports it
    once; tasks continue and block, or write into a topic that the broker creates with its own defaults. Without its
    offset-syncs topic no checkpoint is written. -1 uses the broker's default; 0 and less are refused. The workers' own
    storage topics have a factor of 3 by default; where they cannot be created, the workers do not start. Source:
    MirrorSourceConnector, MirrorCheckpointConnector, MirrorHeartbeatConnector, DistributedConfig.
    """
    for key, cannot, where, default in _created_topics(subject):
        brokers = (subject.target_kafka if where == "target" else subject.source_kafka).brokers
        text = subject.get(key, str(default))
        if not _NUMBER.fullmatch(text) or int(text) == -1:
            continue
        setting = f"{file_key(subject, key)}={text}" if key in subject.config else f"{key} is {text} by default"
        if int(text) < 1:
            message = f"{setting} is no number of replicas: {cannot} be created"
            yield connector_hit(subject, key, str(default), message, ", or -1 for the brokers' default")
        elif brokers and int(text) > brokers:
            message = f"{setting}, and {_so_many(where, brokers)}: {cannot} be created"
            yield connector_hit(subject, key, str(min(brokers, 3)), message)
    yield from _storage(subject)


def _so_many(where: str, brokers: int) -> str:
    return f"the {where} cluster has {brokers} broker{'s' if brokers > 1 else ''}"


def _storage(subject: Subject) -> Iterator[Hit]:
    """Report the workers' storage topics where their cluster is known and no live worker has made them."""
    where = _home(subject)
    brokers = (subject.target_kafka if where == "target" else subject.source_kafka).brokers if where else None
    wrong = {}
    for topic in ("config", "offset", "status"):
        key = f"{topic}.storage.replication.factor"
        text = subject.worker_property(key) or "3"
        if brokers and _NUMBER.fullmatch(text) and int(text) > brokers:
            wrong[key] = f"{key}={text}" if subject.worker_property(key) else f"{key} is 3 by default"
    if wrong and brokers:
        prefix = f"{subject.target}." if subject.form == "dedicated" else ""
        effect = "the workers cannot create their topics and do not start"
        message = f"{', '.join(wrong.values())}, and {_so_many(where, brokers)}: {effect}"
        right = ", ".join(f"{prefix}{key}={brokers}" for key in wrong)
        yield Hit(message, f"write {right} for the workers, or -1 for the brokers' default")


def _home(subject: Subject) -> str:
    """Return the side whose cluster the workers use, "" where it is unknown or they run already."""
    if subject.spot.connect or subject.worker.properties is None:
        return ""
    if subject.form == "dedicated":
        return "target"
    ids = {subject.target_kafka.cluster_id: "target", subject.source_kafka.cluster_id: "source"}
    own = addresses(subject.worker_property("bootstrap.servers") or "")
    by_address = (side for side in SIDES if own & addresses(subject.get(f"{side}.cluster.bootstrap.servers")))
    return ids.get(subject.worker.cluster_id, "") if subject.worker.cluster_id else next(by_address, "")


def _created_topics(subject: Subject) -> Iterator[tuple[str, str, str, int]]:
    """Yield the topics a connector creates: factor's key, what fails with a wrong one, cluster, Kafka's default."""
    if subject.type != "source":
        yield f"{subject.type}s.topic.replication.factor", f"its {subject.type}s topic cannot", "target", 3
        return
    yield "replication.factor", "no mirrored topic can", "target", 2
    if subject.setting.offset_syncs:
        where = "target" if subject.setting.offset_syncs_location == "target" else "source"
        yield "offset-syncs.topic.replication.factor", "its offset-syncs topic cannot", where, 3


@rule(
    "interval-zero",
    "error",
    "MirrorMaker's Scheduler",
    needs=(".interval.seconds",),
    live=_LIVE,
    reads=keys_ending(".interval.seconds", ".enabled"),
)
def interval_zero(subject: Subject) -> Iterator[Hit]:
    """An interval of zero or less disables its job, or fails the connector.

    Zero is not valid for the scheduler of the refresh and sync jobs, which throws IllegalArgumentException, and the
    connector is FAILED when it starts (error); checkpoints and heartbeats are then written without a pause. With a
    negative value the job never runs: no refresh, no sync, no checkpoints, no heartbeats, while the state is RUNNING.
    To disable a job use its …enabled key. Source: Scheduler.scheduleRepeating, MirrorHeartbeatTask.poll.
    """
    for job, usual in _JOBS[subject.type].items():
        key = f"{job}.interval.seconds"
        value = subject.get(key)
        if re.fullmatch(r"-\d+|0+", value) and subject.flag(f"{job}.enabled", default=True):
            fails = usual == 600 and not value.startswith("-")
            effect = "the connector fails when it starts" if fails else "it is written without a pause"
            if value.startswith("-"):
                effect = "the job never runs, although the state is RUNNING"
            more = f", or {spell(subject, f'{job}.enabled', 'false')} to disable it"
            hit = connector_hit(subject, key, str(usual), f"{file_key(subject, key)}={value}: {effect}", more)
            yield replace(hit, severity=None if fails else "warning")


_DAY, _MONTH = 86_400, 30 * 86_400


@rule(
    "interval-milliseconds",
    "warning",
    "MirrorConnectorConfig, KIP-382",
    needs=(".interval.seconds",),
    reads=keys_ending(".interval.seconds", ".enabled"),
)
def interval_milliseconds(subject: Subject) -> Iterator[Hit]:
    """An interval in seconds looks as if it were in milliseconds.

    Intervals of MirrorMaker's jobs are in seconds: refresh.topics.interval.seconds=600000 is a week, in which new
    topics and partitions are not found, new settings are not copied, or no checkpoint is written. There is no error.
    Reported are thousands that are neither whole hours of a day nor half days, and everything above 30 days.
    """
    for job, usual in _JOBS[subject.type].items():
        key = f"{job}.interval.seconds"
        text = subject.get(key)
        seconds = whole_number(text) or 0
        if _is_milliseconds(seconds) and subject.flag(f"{job}.enabled", default=True):
            effect = f"{_LATE[job]} until then"
            message = f"{file_key(subject, key)}={text} is {_span(seconds)}, as the key is in seconds: {effect}"
            yield connector_hit(subject, key, str(seconds // 1000), message, f" (the default is {usual})")


_LATE = {
    "refresh.topics": "new topics and partitions are not mirrored",
    "refresh.groups": "new groups have no checkpoints",
    "sync.topic.configs": "changed settings of topics are not copied",
    "sync.topic.acls": "changed ACLs are not copied",
    "emit.checkpoints": "offsets are not translated",
    "sync.group.offsets": "group offsets on the target are not updated",
    "emit.heartbeats": "no heartbeat is written",
}


def _is_milliseconds(seconds: int) -> bool:
    natural = seconds % (_DAY // 2) == 0 or (seconds <= _DAY and seconds % 3600 == 0)
    return seconds >= _MONTH or (seconds >= 10_000 and seconds % 1000 == 0 and not natural)


def _span(seconds: int) -> str:
    return f"{seconds / _DAY:.3g} days" if seconds >= _DAY else f"{seconds / 3600:.2g} hours"


_ENOUGH_BROKERS = 3


@rule("one-replica", "warning", "KIP-382, KAFKA-9219", needs=("replication.factor",))
def one_replica(subject: Subject) -> Iterator[Hit]:
    """Topics are made with one replica, so a lost broker takes what was mirrored along.

    With replication.factor=1 each mirrored partition is on one broker of the target: while that broker is away the
    tasks wait, and if its disk is lost the records are gone, although acks=all was confirmed and the offsets are
    stored. The offset-syncs, checkpoints and heartbeats topics with one replica lose what translates offsets. Such
    values come from demos with one broker. It is a warning where the cluster is known to have 3 brokers or more, and a
    hint where that is not known. Write 3, or -1 for the brokers' default.
    """
    place_of = {key: where for key, _, where, _ in _created_topics(subject) if subject.get(key) == "1"}
    if not place_of:
        return
    brokers = {
        where: (subject.target_kafka if where == "target" else subject.source_kafka).brokers
        for where in place_of.values()
    }
    single = {key: where for key, where in place_of.items() if brokers[where] != 1}
    is_known = any(brokers[where] for where in single.values())
    if single and (is_known or subject.form != "tree"):  # a tree declares what its clusters have
        many = [where for where in single.values() if (brokers[where] or 0) >= _ENOUGH_BROKERS]
        rest = f", and {_so_many(many[0], brokers[many[0]] or 0)}" if many else ""
        names = " and ".join(f"{file_key(subject, key)}=1" for key in single)
        message = f"{names}{rest}: a lost broker takes mirrored records or offset syncs along"
        edits = [Edit(key, str(min(brokers[where] or 3, 3))) for key, where in single.items()]
        hit = edit_hit(subject, message, edits, next(iter(single)), ", or -1 for the brokers' default")
        yield hit if many else replace(hit, severity="info", edits=())  # there may be one broker


@estate_rule(
    "offset-syncs-block",
    "warning",
    "SourceTaskOffsetCommitter, OffsetSyncWriter",
    live=f"{_DEAD_SOURCE}test_with_kafkas_own_timeout_the_offsets_stand_still_while_records_arrive",
)
def offset_syncs_block(estate: Estate) -> Iterator[Hit]:
    """An unavailable source blocks the offset commits of other flows on the same workers.

    Connect commits the source offsets of all tasks of a worker in one thread. In that thread each task also writes its
    offset syncs, by default to its source. If that cluster is unavailable, the producer waits max.block.ms (60 s) for
    metadata, once for each partition that had records. Until then no offsets of any flow are stored: records are still
    mirrored, lag looks huge, and after a restart of the worker the records arrive again. Seen on 4.3.1: 326 of 521
    records arrived twice, 6 with 500 ms. A sync that times out is dropped; the partition's next record creates another
    one. Exactly-once tasks commit by themselves, and mm2.properties has a thread per pair. Connector files count as
    sharing workers when --worker or a Strimzi resource names these. Kafka's default is a hint, a value that is written
    a warning. Source: SourceTaskOffsetCommitter, OffsetSyncWriter.
    """
    for group in _on_same_workers(estate):
        beside: dict[int, list[str]] = {}  # cluster → connectors that go on without it
        for hop in group:
            subject, wait_ms = hop.subject, hop.subject.number(_SYNCS, _BLOCK)
            client = subject.client(_SYNCS)
            if client is None or wait_ms is None or wait_ms < _LONG_BLOCK_MS:
                continue
            dead, alias = (hop.target, subject.target) if client.side == "target" else (hop.source, subject.source)
            if dead not in beside:
                beside[dead] = [other.subject.name for other in group if dead not in other.pair]
            if others := beside[dead]:
                whose = f"{others[0]} and {len(others) - 1} more" if others[1:] else others[0]
                message = (
                    f"{describe(subject, _SYNCS, _BLOCK)}, on the offset-syncs producer: when {alias} is "
                    f"unavailable, these workers store no offsets of {whose} for {span_text(wait_ms / 1000)} per"
                    " partition"
                )
                hit = client_hit(subject, _SYNCS, _BLOCK, "500", message)
                yield hit if subject.is_set(_SYNCS, _BLOCK) else hit.with_severity("info")


def _on_same_workers(estate: Estate) -> Iterator[Sequence[Hop]]:
    """Yield running source connectors that share workers, and with them the thread that commits offsets."""
    groups: dict[tuple[str | None, ...], list[Hop]] = defaultdict(list)
    for hop in hops(estate.subjects):
        subject = hop.subject
        kafka = subject.worker_property("bootstrap.servers")
        connect = subject.connector.connect or subject.spot.connect
        if subject.is_off or subject.exactly_once or subject.form == "dedicated" or not (connect or kafka):
            continue
        groups[(connect,) if connect else (kafka, subject.worker_property("group.id"))].append(hop)
    yield from groups.values()
