"""Whether Connect workers write with transactions (exactly-once, KIP-618): they tell when a config is validated. It only reads."""

from __future__ import annotations

from mm2mgr.connect.types import Validation

SOURCE_CLASS = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
NOBODY = "127.0.0.1:9092"  # is not contacted: a validation starts no client
ASKED_CONFIG = {
    "name": "mm2mgr-probe",
    "connector.class": SOURCE_CLASS,
    "source.cluster.alias": "mm2mgr-probe-source",
    "target.cluster.alias": "mm2mgr-probe-target",
    "source.cluster.bootstrap.servers": NOBODY,
    "target.cluster.bootstrap.servers": NOBODY,
    # The worker says what it lacks only after the connector has said that it could (KIP-618).
    "exactly.once.support": "required",
    "source.consumer.isolation.level": "read_committed",
}
_KEY = "exactly.once.support"
_LACKING = "This worker does not have exactly-once source support enabled"


def supports_exactly_once(answer: Validation) -> bool | None:
    """Return what the validation of such a config says; None where the worker has no such key, as before Kafka 3.3."""
    if _KEY not in answer.keys:
        return None
    return not any(_LACKING in reason for reason in answer.errors.get(_KEY, ()))
