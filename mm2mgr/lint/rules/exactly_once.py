"""Rules about exactly-once: what Connect refuses, and what quietly is not exactly-once although it was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from mm2mgr.lint.client_settings import NEEDED
from mm2mgr.lint.findings import Hit, rule
from mm2mgr.lint.fixes import client_key, connector_key, written, yaml
from mm2mgr.lint.subject import Subject, addresses

_REFUSED = "tests/lint/test_seen_live_start.py::test_exactly_once_refused"
_KEY = "exactly.once.support"
_ADDRESS = "bootstrap.servers"
_RECORDS = "producer.override."


def _is_required(subject: Subject) -> bool:
    return subject.get(_KEY).lower() == "required"


@rule("exactly-once-isolation", "error", types=("source",), needs=(_KEY,), source="KIP-618", seen=_REFUSED)
def exactly_once_isolation(subject: Subject) -> Iterator[Hit]:
    """Exactly-once is required while the source is read uncommitted.

    A consumer with Kafka's default isolation.level=read_uncommitted also mirrors what aborted transactions wrote. The
    connector therefore says that it cannot provide exactly-once, and Connect refuses the config. The value has to be
    written in small letters (KIP-618; MirrorSourceConnector since 3.5).
    """
    level = subject.value("source consumer", "isolation.level") or ""
    if subject.type == "source" and _is_required(subject) and level != "read_committed" and "${" not in level:
        message = f"{written(subject, _KEY)}=required with isolation.level={level or 'read_uncommitted'}: Connect refuses the config"
        yield Hit(message, f"write {client_key(subject, 'source consumer', 'isolation.level', 'read_committed')}", _KEY)


@rule("exactly-once-worker", "error", types=("source",), needs=(_KEY,), source="KIP-618", seen=_REFUSED)
def exactly_once_worker(subject: Subject) -> Iterator[Hit]:
    """Exactly-once is required of workers that do not provide it.

    exactly.once.source.support=enabled is a setting of the workers, all of them, and is brought in by two rolling restarts:
    first preparing, then enabled. Until then they refuse a connector with exactly.once.support=required (KIP-618).
    In mm2.properties the key stands behind the alias of the target, whose workers these are.
    """
    if _is_required(subject) and subject.type == "source" and _is_off(subject):
        prefix = f"{subject.target}." if subject.form == "dedicated" else ""
        without = "write delivery: at_least_once" if subject.form == "tree" else f"take {_KEY} out"
        fix = f"write {prefix}exactly.once.source.support=enabled for the workers (preparing first), or {without}"
        yield Hit("the workers are not exactly-once and refuse exactly.once.support=required", fix, _KEY)


def _is_off(subject: Subject) -> bool:
    if subject.worker.exactly_once is not None:
        return not subject.worker.exactly_once
    known = subject.worker.properties is not None
    return known and (subject.worker_property("exactly.once.source.support") or "").lower() != "enabled"


@rule(
    "exactly-once-unsupported",
    "error",
    types=("checkpoint", "heartbeat"),
    needs=(_KEY,),
    source="KIP-618",
    seen=_REFUSED,
)
def exactly_once_unsupported(subject: Subject) -> Iterator[Hit]:
    """Exactly-once is required of a connector that does not know it.

    Checkpoint and heartbeat connectors do not say whether they support exactly-once, and Connect refuses `required` for a connector
    that does not. On exactly-once workers they write in transactions anyway, without being asked. In mm2.properties
    a pair's keys go to all three connectors, so the demand for the records makes the two others fail.
    """
    if _is_required(subject) and subject.type != "source":
        message = f"a {subject.type} connector does not declare exactly-once: Connect refuses {written(subject, _KEY)}=required"
        yield Hit(message, f"take {_KEY} out of the {subject.type} connector", _KEY)


@rule(
    "exactly-once-overrides",
    "error",
    needs=(_RECORDS + _ADDRESS,),
    source="KIP-618",
    seen="tests/live/test_exactly_once.py",
)
def exactly_once_overrides(subject: Subject) -> Iterator[Hit]:
    """The producer of the records and offsets is on another Kafka than the clients that read and create the offsets topic.

    On an exactly-once worker, and with offsets.storage.topic, source offsets are written by the record producer, so
    they go where producer.override.* points, while Connect's consumer and admin client look for them on the workers' own Kafka.
    With producer.override. alone everything looks right and is not exactly-once (seen: duplicates after a crash), and the
    offsets topic is auto-created with cleanup.policy=delete. With the consumer but not the admin client the connector has no
    status for ever; with the admin client but not the consumer, offsets are read in the wrong place. Point all three there.
    """
    own = subject.get(_RECORDS + _ADDRESS)
    if not own or not (subject.exactly_once or subject.setting.offsets_storage_topic) or _is_the_workers(subject, own):
        return
    elsewhere = [kind for kind in ("consumer", "admin") if _differs(subject, kind)]
    if elsewhere:
        lacking = [f"{kind}.override.{plain}" for kind in elsewhere for plain in _lacking(subject, kind)]
        message = f"offsets are written where {_RECORDS}* points, and {_outcome(elsewhere)}"
        fix = f"write {', '.join(lacking)} as for producer.override."
        if subject.form == "tree":
            fix = f"write connect: {{{yaml(subject.connect or '…')}: {{exactly_once: true}}}}: mm2mgr then points all three there"
        yield Hit(message, fix, _RECORDS + _ADDRESS)


def _is_the_workers(subject: Subject, own: str) -> bool:
    """Tell whether the override names the workers' own Kafka."""
    ids = (subject.worker.cluster_id, subject.target_kafka.cluster_id)
    if all(ids):
        return ids[0] == ids[1]
    return bool(addresses(own) & addresses(subject.worker_property(_ADDRESS) or ""))


def _differs(subject: Subject, kind: str) -> bool:
    return bool(_lacking(subject, kind))


def _lacking(subject: Subject, kind: str) -> list[str]:
    """Return what the override of a client lacks beside the record producer's."""
    prefix = f"{kind}.override."
    lacking = [] if _same_address(subject, prefix) else [_ADDRESS]
    for names in NEEDED:
        there = [name for name in names if subject.get(_RECORDS + name)]
        if there and not any(subject.get(prefix + name) for name in names):
            lacking.append(there[0])
    return lacking


def _same_address(subject: Subject, prefix: str) -> bool:
    ours, theirs = subject.get(_RECORDS + _ADDRESS), subject.get(prefix + _ADDRESS)
    return bool(addresses(ours) & addresses(theirs)) or ("${" in theirs)


def _outcome(elsewhere: list[str]) -> str:
    if elsewhere == ["admin"]:
        return "the admin client looks for their topic on the workers' Kafka: the connector never gets a status"
    if elsewhere == ["consumer"]:
        return "the consumer reads them on the workers' Kafka: a restart goes on from the wrong place"
    return "read on the workers' Kafka: it looks right and duplicates records after a crash"


@rule("exactly-once-transaction", "warning", needs=("transaction.boundary",), source="KIP-618")
def exactly_once_transaction(subject: Subject) -> Iterator[Hit]:
    """The connector is asked to draw the limits of transactions itself, which MirrorMaker cannot.

    transaction.boundary=connector is for connectors that define their own transactions (KIP-618). MirrorMaker's do not say that
    they do, and exactly-once workers refuse the config; on other workers the key has no effect.
    `poll`, the default, makes each poll of the source a transaction, `interval` bundles them by time.
    """
    key = "transaction.boundary"
    if subject.get(key).lower() == "connector":
        message = f"{written(subject, key)}=connector: MirrorMaker defines no transactions, and exactly-once workers refuse it"
        if subject.form == "tree":
            fix = f"write {connector_key(subject, key, 'interval')}, or take it out"
        else:
            fix = f"write {written(subject, key)}=interval or poll"
        yield Hit(message, fix, key)


@rule("exactly-once-slow", "info", types=("source",), needs=(_KEY,), source="KIP-618")
def exactly_once_slow(subject: Subject) -> Iterator[Hit]:
    """Exactly-once with small transactions mirrors about half as fast.

    Each poll of the source is a transaction by default, and a poll returns at most 500 records. Measured on one task: 0.53 of
    the rate without exactly-once; with max.poll.records=5000 it is 0.97, with transaction.boundary=interval of one second 1.0.
    Larger transactions are seen later by readers that wait for their end, and are repeated whole after a crash.
    """
    if (
        subject.type != "source"
        or not _is_required(subject)
        or subject.get("transaction.boundary", "poll").lower() != "poll"
    ):
        return
    if subject.written("source consumer", "max.poll.records") is None:
        fix = client_key(subject, "source consumer", "max.poll.records", "5000")
        yield Hit(
            "each poll of 500 records is a transaction: about half the rate",
            f"write {fix}, or {connector_key(subject, 'transaction.boundary', 'interval')}",
            _KEY,
        )
