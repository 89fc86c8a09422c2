"""Rules about records: order, durability, records that are skipped, renamed, or never read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mm2mgr.lint.client_settings import READER, RECORDS, described, is_set, key_of
from mm2mgr.lint.findings import Hit, rule
from mm2mgr.lint.fixes import client_key, connector_key, written
from mm2mgr.lint.subject import Subject
from mm2mgr.truth.reach import numbers

_SEEN = "tests/lint/test_seen_live_records.py::"
_IN_FLIGHT = "max.in.flight.requests.per.connection"
_IDEMPOTENCE = "enable.idempotence"
_RENAMING = re.compile(r"\w*(RegexRouter|TimestampRouter|TopicRouter|TableRouter|EventRouter|ExtractTopic)")
# An outage shorter than this must not fail a task: fifteen minutes, and about as many retries as fit into them.
_PATIENCE_MS = 900_000
_PATIENT = {"delivery.timeout.ms": _PATIENCE_MS, "max.block.ms": _PATIENCE_MS, "retries": 1_000}


@rule("order-at-risk", "error", types=("source",), source="KIP-98, KAFKA-5494")
def order_at_risk(subject: Subject) -> Iterator[Hit]:
    """Records can change their order: several requests in flight without idempotence.

    Connect gives its producer max.in.flight.requests.per.connection=1 and enable.idempotence=false, which keeps the
    order. With more requests in flight, a retried request arrives after its successor: records of a partition swap
    places on the target after a broker restart or a short network fault. There is no error. Idempotence keeps the order
    with up to five requests in flight; exactly-once workers enable it themselves. Source: KIP-98, KAFKA-5494.
    """
    if subject.type != "source" or not is_set(subject, RECORDS, _IN_FLIGHT):
        return
    if subject.exactly_once or _idempotent(subject):
        return
    in_flight = subject.number(RECORDS, _IN_FLIGHT)
    if in_flight is not None and in_flight > 1 and subject.number(RECORDS, "retries") != 0:
        message = f"{described(subject, RECORDS, _IN_FLIGHT)} without idempotence: a retried request can arrive after later ones, so records change their order"
        fix = f"add {client_key(subject, RECORDS, _IDEMPOTENCE, 'true')}"
        yield Hit(message, fix, key_of(subject, RECORDS, _IN_FLIGHT))


@rule("idempotence-conflict", "error", source="KIP-98", seen=f"{_SEEN}test_idempotence_conflict")
def idempotence_conflict(subject: Subject) -> Iterator[Hit]:
    """The producer settings contradict idempotence.

    enable.idempotence=true needs acks=all, at most five requests in flight and at least one retry. With other values
    the producer throws ConfigException when it is created: the connector shows RUNNING, each task FAILED, nothing is
    mirrored. Connect's validation does not detect it, since it checks each override separately. This holds for all
    lines. Source: KIP-98.
    """
    if not is_set(subject, RECORDS, "acks", _IN_FLIGHT, "retries") or not _idempotent(subject):
        return
    for plain, asked, fix in _conflicts(subject):
        message = f"{described(subject, RECORDS, plain)} conflicts with an idempotent producer: every task fails when it starts"
        yield Hit(
            message, f"write {client_key(subject, RECORDS, plain, fix)}", key_of(subject, RECORDS, plain) or asked
        )


def _conflicts(subject: Subject) -> Iterator[tuple[str, str, str]]:
    """Yield a setting, the key that asked for idempotence, and a value that would do."""
    asked = key_of(subject, RECORDS, _IDEMPOTENCE)
    acks, in_flight = subject.value(RECORDS, "acks"), subject.number(RECORDS, _IN_FLIGHT)
    if acks in ("0", "1"):
        yield "acks", asked, "all"
    if in_flight is not None and in_flight > 5:
        yield _IN_FLIGHT, asked, "5"
    if subject.number(RECORDS, "retries") == 0:
        yield "retries", asked, "2147483647"


def _idempotent(subject: Subject) -> bool:
    return (subject.value(RECORDS, _IDEMPOTENCE) or "").lower() == "true"


@rule("acks-weak", "error", types=("source",), source="Connect's Worker.baseProducerConfigs")
def acks_weak(subject: Subject) -> Iterator[Hit]:
    """Records count as mirrored before the target's replicas have them.

    Connect's producer waits for all in-sync replicas (acks=all). With acks=1 a record is lost when its leader fails
    before the followers have read it, with acks=0 when a connection breaks. MirrorMaker stores the source offset as
    soon as the producer reports success, so a lost record is never read again. There is no error. Do not set acks.
    Source: Connect's Worker.baseProducerConfigs.
    """
    if subject.type != "source" or not is_set(subject, RECORDS, "acks"):
        return
    acks = subject.value(RECORDS, "acks")
    if acks in ("0", "1") and not _idempotent(subject):
        message = f"{described(subject, RECORDS, 'acks')}: records are lost when a target broker fails, although their offsets are stored"
        yield Hit(message, f"write {client_key(subject, RECORDS, 'acks', 'all')}", key_of(subject, RECORDS, "acks"))


@rule("errors-tolerated", "error", types=("source",), source="KIP-779", seen=f"{_SEEN}test_errors_tolerated")
def errors_tolerated(subject: Subject) -> Iterator[Hit]:
    """Records that cannot be written are skipped permanently.

    errors.tolerance=all was made for sinks. On a source connector, since 3.2 (KIP-779), it also applies to the
    producer: a record that the target refuses because of its size, its timestamp or missing rights is skipped, the
    source offset advances, and the state stays RUNNING. Seen with a 2 MB record: it was missing, and nothing failed.
    Exactly-once tasks still fail when a write fails. Keep the default none: a FAILED task loses nothing.
    """
    if subject.type == "source" and subject.get("errors.tolerance").lower() == "all":
        message = "errors.tolerance=all: a record that the target refuses is skipped and its offset stored, so it is lost without an error"
        yield Hit(message, f"write {connector_key(subject, 'errors.tolerance', 'none')}", "errors.tolerance")


@rule("delivery-limited", "warning", source="Connect's Worker.baseProducerConfigs")
def delivery_limited(subject: Subject) -> Iterator[Hit]:
    """A short outage of the target fails the tasks.

    Connect's producer waits without a limit: delivery.timeout.ms, max.block.ms and retries have their largest values.
    With the defaults of a plain producer instead (120 s, 60 s), a longer outage of the target makes the producer give
    up a record, and the task is FAILED ("Unrecoverable exception from producer send callback") until it is restarted.
    Nothing is lost, but nothing is mirrored until then. Remove the key. Source: Connect's Worker.baseProducerConfigs.
    """
    for plain, enough in _PATIENT.items():
        value = subject.number(RECORDS, plain) if is_set(subject, RECORDS, plain) else None
        if value is None or value >= enough:
            continue
        if plain == "retries" and value == 0 and _idempotent(subject):
            continue  # idempotence-conflict tells it
        message = f"{described(subject, RECORDS, plain)}: if the target is unavailable for longer, the task fails and stays FAILED"
        key = key_of(subject, RECORDS, plain)
        fix = f"remove {written(subject, key)}" if key else f"write {client_key(subject, RECORDS, plain, '2147483647')}"
        yield Hit(message, f"{fix}: Connect's default waits until the target is available again", key)


@rule("reset-none", "error", types=("source",), source="MirrorSourceTask.poll", seen=f"{_SEEN}test_reset_none")
def reset_none(subject: Subject) -> Iterator[Hit]:
    """Partitions without a stored position are never read.

    With auto.offset.reset=none the consumer throws when it has no position: for a new partition, and for one whose log
    was truncated past the stored offset. MirrorMaker catches Kafka's exceptions when it polls: the task stays RUNNING,
    makes no progress, and logs "Failure during poll." with its trace in a tight loop, which fills the log and keeps a
    core busy. Keep earliest. Seen on 4.3.1.
    """
    if _reset(subject) == "none":
        message = f"{described(subject, READER, 'auto.offset.reset')}: a task with a partition without a position makes no progress, and its state stays RUNNING"
        yield Hit(message, _earliest(subject), key_of(subject, READER, "auto.offset.reset"))


@rule("reset-latest", "warning", types=("source",), source="KAFKA-13988", seen=f"{_SEEN}test_reset_latest")
def reset_latest(subject: Subject) -> Iterator[Hit]:
    """Records written before the first read of a topic are not mirrored.

    With auto.offset.reset=latest MirrorMaker starts at the end of each partition that has no stored offset. For
    existing topics that is usually intended, but a new topic or partition is found only at the next refresh (600 s),
    and all records written until then are skipped as well. The same happens when retention deletes records past a
    stored offset. Up to 3.6.1 the setting has no effect and reading starts at 0 (KAFKA-13988).
    """
    if _reset(subject) != "latest":
        return
    what = "records written before the first read of a topic or a new partition are never mirrored"
    if subject.known_version and (3, 0) <= numbers(subject.known_version) < (3, 6, 2):
        what = f"Kafka {subject.known_version} ignores it and reads from the beginning (KAFKA-13988)"
    message = f"{described(subject, READER, 'auto.offset.reset')}: {what}"
    yield Hit(message, _earliest(subject), key_of(subject, READER, "auto.offset.reset"))


def _reset(subject: Subject) -> str:
    if subject.type != "source" or not is_set(subject, READER, "auto.offset.reset"):
        return ""
    return (subject.value(READER, "auto.offset.reset") or "").lower()


def _earliest(subject: Subject) -> str:
    return f"write {client_key(subject, READER, 'auto.offset.reset', 'earliest')}"


@rule(
    "transform-renames",
    "error",
    types=("source",),
    needs=("transforms",),
    source="MirrorSourceConnector, KIP-382",
    seen=f"{_SEEN}test_transform_renames",
)
def transform_renames(subject: Subject) -> Iterator[Hit]:
    """A transformation writes records to another topic than the one MirrorMaker manages.

    MirrorMaker creates the topic that its replication policy names, gives it partitions, settings and ACLs, and
    translates offsets for it. A router such as RegexRouter changes the name after that: records go to a topic that the
    target creates with its own defaults or not at all, partitions may be missing (the task then blocks), the prepared
    topic stays empty, and checkpoints point at it. Name topics with replication.policy.class instead.
    """
    if subject.type != "source":
        return
    for name in subject.items("transforms"):
        key = f"transforms.{name}.type"
        simple = re.split(r"[.$]", subject.get(key))
        if any(_RENAMING.fullmatch(part) for part in simple):
            message = f"{written(subject, key)}={subject.get(key)} writes records to another topic than the one that MirrorMaker creates, configures and translates offsets for"
            policy = connector_key(
                subject, "replication.policy.class", "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
            )
            yield Hit(message, f"remove the transformation '{name}'; to keep topic names use {policy}", key)
