"""Rules about exactly-once: what Connect refuses, and what is not exactly-once although it is required."""

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
    """Exactly-once is required, but the source is read uncommitted.

    A consumer with Kafka's default isolation.level=read_uncommitted also mirrors the records of aborted transactions.
    The connector therefore declares that it cannot provide exactly-once, and Connect refuses the config. The value must
    be in lower case (KIP-618; MirrorSourceConnector since 3.5).
    """
    level = subject.value("source consumer", "isolation.level") or ""
    if subject.type == "source" and _is_required(subject) and level != "read_committed" and "${" not in level:
        message = f"{written(subject, _KEY)}=required with isolation.level={level or 'read_uncommitted'}: Connect refuses the config"
        yield Hit(message, f"write {client_key(subject, 'source consumer', 'isolation.level', 'read_committed')}", _KEY)


@rule("exactly-once-worker", "error", types=("source",), needs=(_KEY,), source="KIP-618", seen=_REFUSED)
def exactly_once_worker(subject: Subject) -> Iterator[Hit]:
    """Exactly-once is required, but the workers do not provide it.

    exactly.once.source.support=enabled is a setting of all workers, introduced by two rolling restarts: first
    preparing, then enabled. Until then they refuse a connector with exactly.once.support=required (KIP-618). In
    mm2.properties the key has the alias of the target, which configures these workers, as its prefix.
    """
    if _is_required(subject) and subject.type == "source" and _is_off(subject):
        prefix = f"{subject.target}." if subject.form == "dedicated" else ""
        without = "write delivery: at_least_once" if subject.form == "tree" else f"remove {_KEY}"
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
    """Exactly-once is required of a connector that does not declare it.

    Checkpoint and heartbeat connectors do not declare support for exactly-once, and Connect refuses `required` for such
    a connector. On exactly-once workers they write in transactions anyway. In mm2.properties the keys of a pair apply
    to all three connectors, so the setting for the records makes the two others fail.
    """
    if _is_required(subject) and subject.type != "source":
        message = f"a {subject.type} connector does not declare exactly-once: Connect refuses {written(subject, _KEY)}=required"
        yield Hit(message, f"remove {_KEY} from the {subject.type} connector", _KEY)


@rule(
    "exactly-once-overrides",
    "error",
    needs=(_RECORDS + _ADDRESS,),
    source="KIP-618",
    seen="tests/live/test_exactly_once.py",
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
    elsewhere = [kind for kind in ("consumer", "admin") if _differs(subject, kind)]
    if elsewhere:
        lacking = [f"{kind}.override.{plain}" for kind in elsewhere for plain in _lacking(subject, kind)]
        message = f"offsets are written to the cluster of {_RECORDS}*, and {_outcome(elsewhere)}"
        fix = f"write {', '.join(lacking)} as for producer.override."
        if subject.form == "tree":
            fix = f"write connect: {{{yaml(subject.connect or '…')}: {{exactly_once: true}}}}: mm2mgr then configures all three"
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
        return "the admin client looks for the offsets topic on the workers' Kafka: the connector never gets a status"
    if elsewhere == ["consumer"]:
        return "the consumer reads offsets from the workers' Kafka: a restart continues at the wrong position"
    return "offsets are read from the workers' Kafka: it seems to work and duplicates records after a crash"


@rule("exactly-once-transaction", "warning", needs=("transaction.boundary",), source="KIP-618")
def exactly_once_transaction(subject: Subject) -> Iterator[Hit]:
    """The connector is configured to define its own transactions, which MirrorMaker cannot do.

    transaction.boundary=connector is for connectors that define their own transactions (KIP-618). MirrorMaker's
    connectors do not, and exactly-once workers refuse the config; on other workers the key has no effect. With `poll`,
    the default, each poll of the source is a transaction; `interval` groups polls by time.
    """
    key = "transaction.boundary"
    if subject.get(key).lower() == "connector":
        message = f"{written(subject, key)}=connector: MirrorMaker does not define transactions, and exactly-once workers refuse it"
        if subject.form == "tree":
            fix = f"write {connector_key(subject, key, 'interval')}, or remove it"
        else:
            fix = f"write {written(subject, key)}=interval or poll"
        yield Hit(message, fix, key)


@rule("exactly-once-slow", "info", types=("source",), needs=(_KEY,), source="KIP-618")
def exactly_once_slow(subject: Subject) -> Iterator[Hit]:
    """Exactly-once with small transactions halves the throughput.

    By default each poll of the source is a transaction, and a poll returns at most 500 records. Measured on one task:
    0.53 of the rate without exactly-once; with max.poll.records=5000 it is 0.97, with transaction.boundary=interval of
    one second 1.0. Readers see larger transactions later, and a crash repeats them whole.
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
            "each poll of 500 records is a transaction, which halves the throughput",
            f"write {fix}, or {connector_key(subject, 'transaction.boundary', 'interval')}",
            _KEY,
        )
