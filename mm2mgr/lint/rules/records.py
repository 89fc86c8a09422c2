"""Rules about records: exactly-once, order, durability, records that are skipped, renamed, or never read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from mm2mgr.formats.templates import is_open
from mm2mgr.lint.findings import (
    READER,
    RECORDS,
    Edit,
    Hit,
    client_edit,
    client_hit,
    connector_hit,
    describe,
    edit_hit,
    file_key,
    key_for,
    keys_ending,
    phrase,
    removal_hit,
    rule,
    spell,
    yaml,
)
from mm2mgr.lint.hops import filter_of, items_of, selection_of
from mm2mgr.lint.rules.security import NEEDED
from mm2mgr.lint.subject import Subject, addresses
from mm2mgr.log_places import START_KEY
from mm2mgr.text import few, span_text
from mm2mgr.topics.names import NameFilter
from mm2mgr.truth.bugs import BY_BUG
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import numbers

_REFUSED = "tests/lint/test_seen_live_start.py::test_exactly_once_refused"
_KEY = "exactly.once.support"
_ADDRESS = "bootstrap.servers"
_RECORDS = "producer.override."


def _is_required(subject: Subject) -> bool:
    return subject.get(_KEY).lower() == "required" and numbers(subject.version) >= (3, 3)  # older lines do not read it


def _declares(subject: Subject) -> bool:
    return subject.type == "source" and numbers(subject.version) >= (3, 5)


@rule("exactly-once-isolation", "error", "KIP-618", stops=True, types=("source",), needs=(_KEY,), live=_REFUSED)
def exactly_once_isolation(subject: Subject) -> Iterator[Hit]:
    """Exactly-once is required, but the source is read uncommitted.

    A consumer with Kafka's default isolation.level=read_uncommitted also mirrors the records of aborted transactions.
    The connector therefore declares that it cannot provide exactly-once, and Connect refuses the config. The value must
    be in lower case (KIP-618; MirrorSourceConnector since 3.5).
    """
    level = subject.value(READER, "isolation.level") or ""
    if _is_required(subject) and _declares(subject) and level != "read_committed" and not is_open(level):
        effect = "Connect refuses the config"
        message = f"{file_key(subject, _KEY)}=required with isolation.level={level or 'read_uncommitted'}: {effect}"
        edit = client_edit(subject, READER, "isolation.level", "read_committed")
        yield edit_hit(subject, message, [edit], _KEY)


@rule("exactly-once-worker", "error", "KIP-618", types=("source",), needs=(_KEY,), live=_REFUSED)
def exactly_once_worker(subject: Subject) -> Iterator[Hit]:
    """Exactly-once is required, but the workers do not provide it.

    exactly.once.source.support=enabled is a setting of all workers, introduced by two rolling restarts: first
    preparing, then enabled. Until then they refuse a connector with exactly.once.support=required (KIP-618). In
    mm2.properties the key has the alias of the target, which configures these workers, as its prefix.
    """
    if _is_required(subject) and _is_off(subject):
        prefix = f"{subject.target}." if subject.form == "dedicated" else ""
        without = "write delivery: at_least_once" if subject.form == "tree" else f"remove {_KEY}"
        fix = f"write {prefix}exactly.once.source.support=enabled for the workers (preparing first), or {without}"
        yield Hit("the workers are not exactly-once and refuse exactly.once.support=required", fix, _KEY)


def _is_off(subject: Subject) -> bool:
    if subject.worker.exactly_once is not None:
        return not subject.worker.exactly_once
    is_known = subject.worker.properties is not None
    return is_known and (subject.worker_property("exactly.once.source.support") or "").lower() != "enabled"


@rule("exactly-once-unsupported", "error", "KIP-618", needs=(_KEY,), live=_REFUSED)
def exactly_once_unsupported(subject: Subject) -> Iterator[Hit]:
    """Exactly-once is required of a connector that does not declare it.

    Checkpoint and heartbeat connectors, and before 3.5 source connectors too, do not declare support for exactly-once,
    and Connect refuses `required` for such a connector. On exactly-once workers they write in transactions anyway. In
    mm2.properties the keys of a pair apply to all three connectors, so the setting for the records makes the two others
    fail.
    """
    if _is_required(subject) and not _declares(subject):
        effect = f"declare exactly-once: Connect refuses {file_key(subject, _KEY)}=required"
        message = f"a {subject.type} connector{'' if subject.type != 'source' else ' before 3.5'} does not {effect}"
        yield removal_hit(subject, _KEY, message)


@rule(
    "exactly-once-overrides", "error", "KIP-618", needs=(_RECORDS + _ADDRESS,), live="tests/live/test_exactly_once.py"
)
def exactly_once_overrides(subject: Subject) -> Iterator[Hit]:
    """The producer of records and offsets uses another Kafka than the clients of the offsets topic.

    On an exactly-once worker, and with offsets.storage.topic, the record producer writes source offsets to the cluster
    of producer.override.*, while Connect's consumer and admin client look for them on the workers' own Kafka. With
    producer.override. alone the connector seems to work and is not exactly-once (seen: duplicates after a crash), and
    the offsets topic is auto-created with cleanup.policy=delete. With the consumer but not the admin client the
    connector never gets a status; with the admin client but not the consumer, offsets are read from the wrong cluster.
    Configure all three for the same cluster.
    """
    own = subject.get(_RECORDS + _ADDRESS)
    if not own or not (subject.exactly_once or subject.setting.offsets_storage_topic) or _is_the_workers(subject, own):
        return
    lacking = {kind: lacks for kind in ("consumer", "admin") if (lacks := _lacking(subject, kind))}
    if lacking:
        outcome = _OUTCOME["both" if len(lacking) > 1 else next(iter(lacking))]
        pairs = [(f"{kind}.override.{plain}", plain) for kind, lacks in lacking.items() for plain in lacks]
        fix = f"write {', '.join(key for key, _ in pairs)} as for producer.override."
        edits = tuple(Edit(key, subject.get(_RECORDS + plain)) for key, plain in pairs)
        if subject.form == "tree":
            remedy = "mm2mgr then configures all three"
            fix = f"write connect: {{{yaml(subject.connector.connect or '…')}: {{exactly_once: true}}}}: {remedy}"
            edits = ()
        message = f"offsets are written to the cluster of {_RECORDS}*, and {outcome}"
        yield Hit(message, fix, _RECORDS + _ADDRESS, edits=edits)


_OUTCOME = {
    "admin": "the admin client looks for the offsets topic on the workers' Kafka: the connector never gets a status",
    "consumer": "the consumer reads offsets from the workers' Kafka: a restart continues at the wrong position",
    "both": "offsets are read from the workers' Kafka: it seems to work and duplicates records after a crash",
}


def _is_the_workers(subject: Subject, own: str) -> bool:
    ids = (subject.worker.cluster_id, subject.target_kafka.cluster_id)
    if all(ids):
        return ids[0] == ids[1]
    return bool(addresses(own) & addresses(subject.worker_property(_ADDRESS) or ""))


def _lacking(subject: Subject, kind: str) -> list[str]:
    prefix, lacking = f"{kind}.override.", []
    theirs = subject.get(prefix + _ADDRESS)
    if not is_open(theirs) and not addresses(subject.get(_RECORDS + _ADDRESS)) & addresses(theirs):
        lacking.append(_ADDRESS)
    for names in NEEDED:
        there = [name for name in names if subject.get(_RECORDS + name)]
        if there and not any(subject.get(prefix + name) for name in names):
            lacking.append(there[0])
    return lacking


@rule("exactly-once-transaction", "error", "KIP-618", needs=("transaction.boundary",))
def exactly_once_transaction(subject: Subject) -> Iterator[Hit]:
    """The connector is configured to define its own transactions, which MirrorMaker cannot do.

    transaction.boundary=connector is for connectors that define their own transactions (KIP-618). MirrorMaker's
    connectors do not, and workers since 3.3 refuse the config, exactly-once or not; a standalone worker ignores the
    key. With `poll`, the default, each poll of the source is a transaction; `interval` groups polls by time.
    """
    key = "transaction.boundary"
    if subject.get(key).lower() == "connector" and numbers(subject.version) >= (3, 3):
        effect = "MirrorMaker does not define transactions, and Connect refuses the config"
        message = f"{file_key(subject, key)}=connector: {effect}"
        yield connector_hit(subject, key, "interval", message, ", or remove it")


@rule("exactly-once-slow", "info", "KIP-618", types=("source",), needs=(_KEY,))
def exactly_once_slow(subject: Subject) -> Iterator[Hit]:
    """Exactly-once with small transactions halves the throughput.

    By default each poll of the source is a transaction, and a poll returns at most 500 records. Measured on one task:
    0.53 of the rate without exactly-once; with max.poll.records=5000 it is 0.97, with transaction.boundary=interval of
    one second 1.0. Readers see larger transactions later, and a crash repeats them whole.
    """
    polls = subject.get("transaction.boundary", "poll").lower() == "poll"
    if _is_required(subject) and polls and not subject.written_key(READER, "max.poll.records"):
        message = "each poll of 500 records is a transaction, which halves the throughput"
        more = f", or {spell(subject, 'transaction.boundary', 'interval')}"
        yield edit_hit(subject, message, [client_edit(subject, READER, "max.poll.records", "5000")], _KEY, more)


_LIVE = "tests/lint/test_seen_live_records.py::"
_IN_FLIGHT = "max.in.flight.requests.per.connection"
_IDEMPOTENCE = "enable.idempotence"
_RESET = "auto.offset.reset"
# An outage shorter than this must not fail a task: fifteen minutes, and about as many retries as fit into them.
_PATIENCE_MS = 900_000
_PATIENT = {"delivery.timeout.ms": _PATIENCE_MS, "max.block.ms": _PATIENCE_MS, "retries": 1_000}
_OF_PRODUCERS = keys_ending(
    *("acks", "linger.ms", "request.timeout.ms", "transactional.id", _IN_FLIGHT, _IDEMPOTENCE, *_PATIENT)
)


@rule("order-at-risk", "error", "KIP-98, KAFKA-5494", types=("source",), reads=_OF_PRODUCERS)
def order_at_risk(subject: Subject) -> Iterator[Hit]:
    """Records can change their order: several requests in flight without idempotence.

    Connect gives its producer max.in.flight.requests.per.connection=1 and enable.idempotence=false, which keeps the
    order. With more requests in flight, a retried request arrives after its successor: records of a partition swap
    places on the target after a broker restart or a short network fault. There is no error. Idempotence keeps the order
    with up to five requests in flight; exactly-once workers enable it themselves. Source: KIP-98, KAFKA-5494.
    """
    if not subject.is_set(RECORDS, _IN_FLIGHT):
        return
    if subject.exactly_once or _idempotent(subject):
        return
    in_flight = subject.number(RECORDS, _IN_FLIGHT)
    if in_flight is not None and in_flight > 1 and subject.number(RECORDS, "retries") != 0:
        effect = "a retried request can arrive after later ones, so records change their order"
        message = f"{describe(subject, RECORDS, _IN_FLIGHT)} without idempotence: {effect}"
        edit = client_edit(subject, RECORDS, _IDEMPOTENCE, "true")
        yield edit_hit(subject, message, [edit], key_for(subject, RECORDS, _IN_FLIGHT))


@rule("idempotence-conflict", "error", "KIP-98", live=_LIVE, reads=_OF_PRODUCERS)
def idempotence_conflict(subject: Subject) -> Iterator[Hit]:
    """The producer settings contradict idempotence.

    enable.idempotence=true needs acks=all, at most five requests in flight and at least one retry. With other values
    the producer throws ConfigException when it is created: the connector shows RUNNING, each task FAILED, nothing is
    mirrored. Connect's validation does not detect it, since it checks each override separately. This holds for all
    lines. Source: KIP-98.
    """
    if not subject.is_set(RECORDS, "acks", _IN_FLIGHT, "retries") or not _idempotent(subject):
        return
    acks, in_flight = subject.value(RECORDS, "acks"), subject.number(RECORDS, _IN_FLIGHT)
    conflicts = {
        "acks": ("all", acks in ("0", "1")),
        _IN_FLIGHT: ("5", in_flight is not None and in_flight > 5),
        "retries": ("2147483647", subject.number(RECORDS, "retries") == 0),
    }
    for plain, (right, is_wrong) in conflicts.items():
        if is_wrong:
            effect = "every task fails when it starts"
            message = f"{describe(subject, RECORDS, plain)} conflicts with an idempotent producer: {effect}"
            key = subject.written_key(RECORDS, plain) or subject.written_key(RECORDS, _IDEMPOTENCE)
            yield edit_hit(subject, message, [client_edit(subject, RECORDS, plain, right)], key)


def _idempotent(subject: Subject) -> bool:
    return (subject.value(RECORDS, _IDEMPOTENCE) or "").lower() == "true"


@rule("acks-weak", "error", "Connect's Worker.baseProducerConfigs", types=("source",), reads=_OF_PRODUCERS)
def acks_weak(subject: Subject) -> Iterator[Hit]:
    """Records count as mirrored before the target's replicas have them.

    Connect's producer waits for all in-sync replicas (acks=all). With acks=1 a record is lost when its leader fails
    before the followers have read it, with acks=0 when a connection breaks. MirrorMaker stores the source offset as
    soon as the producer reports success, so a lost record is never read again. There is no error. Do not set acks.
    Source: Connect's Worker.baseProducerConfigs.
    """
    if subject.is_set(RECORDS, "acks") and subject.value(RECORDS, "acks") in ("0", "1") and not _idempotent(subject):
        effect = "records are lost when a target broker fails, although their offsets are stored"
        message = f"{describe(subject, RECORDS, 'acks')}: {effect}"
        yield client_hit(subject, RECORDS, "acks", "all", message)


@rule("compression-level-idle", "warning", "KIP-390, ProducerConfig", needs=("compression.",))
def compression_level_idle(subject: Subject) -> Iterator[Hit]:
    """A compression level has no effect, because another compression is configured, or none.

    compression.gzip.level, compression.lz4.level and compression.zstd.level (KIP-390) are each read for their own
    compression.type only, which is none by default: records cross the link uncompressed, without an error. Write the
    type for the same client.
    """
    for client in _PRODUCERS:
        for codec in ("gzip", "lz4", "zstd"):
            plain = f"compression.{codec}.level"
            key = subject.written_key(client, plain)
            type_ = subject.value(client, "compression.type") or "none"
            definition = load().find("producer", plain, subject.version) if key else None
            if definition and type_.lower() != codec and not is_open(type_):
                message = f"{file_key(subject, key)} does nothing: compression.type of the {client} is {type_}"
                right = Edit(f"{key.removesuffix(plain)}compression.type", codec)
                hit = Hit(message, f"{phrase(subject, [right])}, or remove the level", key)
                yield hit.with_severity("info") if subject.get(key) == definition.default else hit


@rule("errors-tolerated", "error", "KIP-779", types=("source",), live=_LIVE, reads=keys_ending("errors.tolerance"))
def errors_tolerated(subject: Subject) -> Iterator[Hit]:
    """Records that cannot be written are skipped permanently.

    errors.tolerance=all was made for sinks. On a source connector, since 3.2 (KIP-779), it also applies to the
    producer: a record that the target refuses because of its size, its timestamp or missing rights is skipped, the
    source offset advances, and the state stays RUNNING. Seen with a 2 MB record: it was missing, and nothing failed.
    Exactly-once tasks still fail when a write fails. Keep the default none: a FAILED task loses nothing.
    """
    if subject.get("errors.tolerance").lower() == "all":
        effect = "a record that the target refuses is skipped and its offset stored, so it is lost without an error"
        message = f"errors.tolerance=all: {effect}"
        yield connector_hit(subject, "errors.tolerance", "none", message)


_BEFORE, _DIFFERENCE = "message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"
_EXCLUDE = "config.properties.exclude"
_NO_LIMIT = 2**63 - 1


@rule("record-refused", "warning", "Kafka's LogValidator; KAFKA-20163", types=("source",), live=_LIVE)
def record_refused(subject: Subject) -> Iterator[Hit]:
    """The target's topics refuse records that the source still has.

    A broker compares the timestamp of a record with message.timestamp.before.max.ms of its topic when it is written, so
    a mirror that begins, or that was behind, brings records that are too old by then. MirrorMaker itself copies that
    limit from the source's topic unless config.properties.exclude names it, and no release's default does
    (KAFKA-20163). A compacted topic refuses records without a key. The task is FAILED with InvalidRecordException, and
    again after each restart; with errors.tolerance=all the record is lost. `mm2mgr check` asks both clusters for the
    settings of their topics: what counts is a limit below the time for which the source keeps records, and a topic that
    is compacted on the target alone.
    """
    own, there = subject.source_kafka.topic_settings, subject.target_kafka.topic_settings
    selection = selection_of(subject) if own else None
    if selection is None:
        return
    theirs_of = {name: settings for topic, settings in there.items() if (name := selection.upstream(topic))}
    copied = _copies(subject, _BEFORE)
    late: dict[str, int] = {}
    limited: list[str] = []  # those of them whose topic on the target has a limit now
    keyless: list[str] = []
    for topic, settings in own.items():
        if not selection.takes(topic):
            continue
        theirs = theirs_of.get(topic, {})
        limit = _oldest_taken_ms(theirs, settings if copied else theirs)
        if limit is not None and limit < _kept_ms(settings):
            late[topic] = limit
            limited += [topic] if _oldest_taken_ms(theirs, theirs) is not None else []
        if "compact" in theirs.get("cleanup.policy", "") and "compact" not in settings.get("cleanup.policy", "compact"):
            keyless.append(topic)
    if late:
        topics, shortest = few(sorted(late)), span_text(min(late.values()) / 1000)
        effect = f"which {subject.source} still has: the task fails at the first ({_BEFORE})"
        message = f"{subject.target} refuses records of {topics} that are older than {shortest}, {effect}"
        fix = f"raise {_BEFORE} of the topics on {subject.target}"
        if copied:
            names = [_BEFORE, _BEFORE.replace("before", "after")]
            escaped = [name.replace(".", r"\.") for name in names]
            edit = Edit(_EXCLUDE, ",".join([*items_of(subject, _EXCLUDE), *escaped]))
            hit = edit_hit(subject, message, [edit], _EXCLUDE, f", and {fix} that have it" if limited else "")
            yield replace(hit, edits=()) if limited else hit
        else:
            yield Hit(message, fix, _EXCLUDE)
    if keyless:
        effect = "a record without a key is refused, and its task fails"
        message = f"{few(keyless)} on {subject.target} is compacted and on {subject.source} is not: {effect}"
        fix = f"set cleanup.policy of the topic on {subject.target} as on {subject.source}"
        yield Hit(message, fix, "topics")


def _copies(subject: Subject, setting: str) -> bool:
    """Tell whether MirrorMaker copies a setting of topics; False where its filter is unknown."""
    names = filter_of(subject, "config.properties")
    is_on = subject.flag("sync.topic.configs.enabled", default=True)
    return is_on and names is not None and not NameFilter(names.exclude, ()).takes(setting)


def _oldest_taken_ms(topic: Mapping[str, str], limits: Mapping[str, str]) -> int | None:
    """Return how old a record may be for a topic of the target, None without limit; `limits` has the final one."""
    if topic.get("message.timestamp.type") == "LogAppendTime":
        return None
    values = (int(value) for value in (limits.get(_BEFORE), topic.get(_DIFFERENCE)) if value is not None)
    return next((value for value in values if value < _NO_LIMIT), None)


def _kept_ms(topic: Mapping[str, str]) -> float:
    retention = int(topic.get("retention.ms", "-1"))
    return retention if retention >= 0 and "delete" in topic.get("cleanup.policy", "") else math.inf


@rule("delivery-limited", "warning", "Connect's Worker.baseProducerConfigs", reads=_OF_PRODUCERS)
def delivery_limited(subject: Subject) -> Iterator[Hit]:
    """A short outage of the target fails the tasks.

    Connect's producer waits without a limit: delivery.timeout.ms, max.block.ms and retries have their largest values.
    With the defaults of a plain producer instead (120 s, 60 s), a longer outage of the target makes the producer give
    up a record, and the task is FAILED ("Unrecoverable exception from producer send callback") until it is restarted.
    Nothing is lost, but nothing is mirrored until then. Remove the key. Source: Connect's Worker.baseProducerConfigs.
    """
    for plain, enough in _PATIENT.items():
        value = subject.number(RECORDS, plain) if subject.is_set(RECORDS, plain) else None
        if value is None or value >= enough or (plain == _WAITS and _waits_too_short(subject, RECORDS)):
            continue  # delivery-below-request reports the latter
        if plain == "retries" and value == 0 and _idempotent(subject):
            continue  # idempotence-conflict reports it
        effect = "if the target is unavailable for longer, the task fails and stays FAILED"
        message = f"{describe(subject, RECORDS, plain)}: {effect}"
        key = subject.written_key(RECORDS, plain)
        edit = Edit(key, None) if key else client_edit(subject, RECORDS, plain, "2147483647")
        more = ": Connect's default waits until the target is available again"
        yield edit_hit(subject, message, [edit], key, more)


_WAITS, _TRANSACTION = "delivery.timeout.ms", "transactional.id"
_PRODUCERS = (RECORDS, "offset-syncs producer")


def _waits_too_short(subject: Subject, client: str) -> int:
    """Return what delivery.timeout.ms must be at least where a producer has less and refuses it, else 0."""
    waits, request = (subject.number(client, plain) for plain in (_WAITS, "request.timeout.ms"))
    linger = subject.number(client, "linger.ms")
    if not subject.is_set(client, _WAITS, "request.timeout.ms", "linger.ms") or None in (waits, request, linger):
        return 0
    # A default of Kafka's is raised with a WARN; the one that Connect sets for records cannot be too small.
    least = min((linger or 0) + (request or 0), 2**31 - 1)
    return least if subject.is_set(client, _WAITS) and (waits or 0) < least else 0


@rule("delivery-below-request", "error", "KIP-91, KafkaProducer.configureDeliveryTimeout", reads=_OF_PRODUCERS)
def delivery_below_request(subject: Subject) -> Iterator[Hit]:
    """delivery.timeout.ms is less than linger.ms and request.timeout.ms together.

    The producer throws ConfigException when it is created, "delivery.timeout.ms should be equal to or larger than
    linger.ms + request.timeout.ms": the connector is RUNNING, each task FAILED. linger.ms is 5 by default since 4.0, so
    delivery.timeout.ms=30000 with the default request.timeout.ms of 30000 works up to 3.9 and no longer. Connect's own
    value for the producer of records, which waits until the target is available again, needs no change.
    """
    for client in _PRODUCERS:
        if least := _waits_too_short(subject, client):
            others = (
                f"linger.ms={subject.value(client, 'linger.ms')} and "
                f"request.timeout.ms={subject.value(client, 'request.timeout.ms')}"
            )
            effect = f"every task is FAILED when it creates the {client}"
            message = f"{describe(subject, client, _WAITS)} is less than {others} together: {effect}"
            key = subject.written_key(client, _WAITS)
            if client == RECORDS and key:
                yield removal_hit(
                    subject, key, message, ": Connect's default waits until the target is available again"
                )
            else:
                enough = 2**31 - 1 if client == RECORDS else max(least, 120_000)
                yield client_hit(subject, client, _WAITS, str(enough), message)


@rule("transactional-id", "error", "KIP-98, KafkaProducer", reads=_OF_PRODUCERS)
def transactional_id(subject: Subject) -> Iterator[Hit]:
    """A producer has a transactional.id, but nothing begins its transactions.

    Connect writes transactions only on exactly-once workers, which set transactional.id themselves. On others the
    producer of records throws "Cannot set a transactional.id without also enabling idempotence", and with
    enable.idempotence=true at its first record "before completing a call to initTransactions": the connector is
    RUNNING, each task FAILED. The producer of offset syncs fails in the same way, so no offset sync is written and no
    offset translated. For exactly-once set exactly.once.source.support on the workers and exactly.once.support=required
    on the connector.
    """
    for client in _PRODUCERS:
        producer = subject.client(client)
        if producer is None or _TRANSACTION in producer.forced or not subject.is_set(client, _TRANSACTION):
            continue
        key = subject.written_key(client, _TRANSACTION)
        effect = "every task is FAILED" if client == RECORDS else "no offset sync is written"
        name = file_key(subject, key) if key else f"{subject.workers_key(client, _TRANSACTION)} of the workers"
        message = f"{name}: nothing begins transactions of the {client}, so {effect}"
        if key:
            yield removal_hit(subject, key, message, "; for exactly-once use exactly-once workers")
        else:
            yield Hit(message, f"remove {subject.workers_key(client, _TRANSACTION)} from the workers' properties")


@rule(
    "reset-none",
    "error",
    "MirrorSourceTask.poll",
    types=("source",),
    live=_LIVE,
    reads=keys_ending("auto.offset.reset"),
)
def reset_none(subject: Subject) -> Iterator[Hit]:
    """Partitions without a stored position are never read.

    With auto.offset.reset=none the consumer throws when it has no position: for a new partition, and for one whose log
    was truncated past the stored offset. MirrorMaker catches Kafka's exceptions when it polls: the task stays RUNNING,
    makes no progress, and logs "Failure during poll." with its trace in a tight loop, which fills the log and keeps a
    core busy. Keep earliest. Seen on 4.3.1.
    """
    if _reset(subject) == "none":
        effect = "a task with a partition without a position makes no progress, and its state stays RUNNING"
        message = f"{describe(subject, READER, _RESET)}: {effect}"
        yield client_hit(subject, READER, _RESET, "earliest", message)


@rule("reset-latest", "warning", "KAFKA-13988", types=("source",), live=_LIVE, reads=keys_ending("auto.offset.reset"))
def reset_latest(subject: Subject) -> Iterator[Hit]:
    """Records written before the first read of a topic are not mirrored.

    With auto.offset.reset=latest MirrorMaker starts at the end of each partition that has no stored offset. For
    existing topics that is usually intended, but a new topic or partition is found only at the next refresh (600 s),
    and all records written until then are skipped as well. The same happens when retention deletes records past a
    stored offset. Up to 3.6.1 the setting has no effect and reading starts at 0 (KAFKA-13988). A flow that is to begin
    at the ends of what exists has `start: latest`, which skips nothing of what comes later; beside it this setting
    still skips the first records of later partitions.
    """
    if _reset(subject) != "latest":
        return
    effect = "records written before the first read of a topic or a new partition are never mirrored"
    if start := subject.config.get(START_KEY):
        effect = f"{effect}; where it begins is said by start: {start} without it"
    if subject.known_version and BY_BUG["KAFKA-13988"].affects(subject.known_version):
        effect = f"Kafka {subject.known_version} ignores it and reads from the beginning (KAFKA-13988)"
    yield client_hit(subject, READER, _RESET, "earliest", f"{describe(subject, READER, _RESET)}: {effect}")


def _reset(subject: Subject) -> str:
    return (subject.value(READER, _RESET) or "").lower() if subject.is_set(READER, _RESET) else ""
