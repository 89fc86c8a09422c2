"""Finds a worker's override policy and exactly-once support with one validation request that creates nothing.

Placeholders are never sent, because config providers resolve them during validation. An answer of another shape is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from mm2mgr.connect.client import Connect
from mm2mgr.connect.errors import ConnectError, WrongBody
from mm2mgr.connect.types import Validation

CONNECTOR_CLASS = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
PREFIXES = ("producer.override.", "consumer.override.", "admin.override.")
KNOWN_POLICIES = frozenset({"None", "Principal", "Allowlist"})

_NOBODY = "127.0.0.1:9092"  # is not contacted: a validation starts no client
_BASE = {
    "name": "mm2mgr-probe",
    "connector.class": CONNECTOR_CLASS,
    "source.cluster.alias": "mm2mgr-probe-source",
    "target.cluster.alias": "mm2mgr-probe-target",
    "source.cluster.bootstrap.servers": _NOBODY,
    "target.cluster.bootstrap.servers": _NOBODY,
    # Consumer and admin overrides are judged only when a connector uses them, as one with an offsets topic of its own does.
    "offsets.storage.topic": "mm2mgr-probe",
    # The worker says what it lacks only after the connector has said that it could (KIP-618).
    "exactly.once.support": "required",
    "source.consumer.isolation.level": "read_committed",
}
# One that only All allows, one that Principal allows too, and the one that decides where records go.
_TELLING = {
    f"{prefix}{key}": value
    for prefix in PREFIXES
    for key, value in (("client.id", "mm2mgr-probe"), ("sasl.mechanism", "PLAIN"), ("bootstrap.servers", _NOBODY))
}
_SENTENCE = re.compile(r"The '([^']+)' policy does not allow '[^']+' to be overridden in the connector configuration\.")
_NOT_EXACTLY_ONCE = "This worker does not have exactly-once source support enabled"


@dataclass(frozen=True)
class Probe:
    """What one worker said. `policy` is All, None, Principal, Allowlist or `custom` (it spoke in words of its own).

    `refused` maps the override keys it refused to its reasons, `allowed` are the others of those it was asked for;
    `exactly_once` is None before Kafka 3.3, which has no such key.
    """

    policy: str
    refused: Mapping[str, str] = field(default_factory=dict)
    allowed: frozenset[str] = frozenset()
    exactly_once: bool | None = None


async def probe(client: Connect, overrides: Mapping[str, str]) -> Probe:
    """Ask the worker that answers; ConnectError when it does not say. Other workers may have another policy."""
    wanted = {key: value for key, value in overrides.items() if key.startswith(PREFIXES) and "${" not in value}
    asked = {**wanted, **_TELLING}
    try:
        answer = await client.validate(CONNECTOR_CLASS, {**_BASE, **asked})
        if "producer.override.client.id" not in answer.keys:
            raise WrongBody("the validation does not mention the overrides that were sent")
    except ConnectError as error:
        hint = (
            error.hint or "Something between mm2mgr and the worker may have altered the answer; ask a worker directly."
        )
        what = f"Connect cluster '{client.target.name}': the override policy could not be found: {error.message}"
        raise ConnectError(what, hint=hint, cluster=client.target.name, status=error.status) from error
    refused = {key: " ".join(reasons) for key, reasons in answer.errors.items() if key in asked}
    return Probe(_policy(refused), refused, frozenset(wanted) - refused.keys(), _exactly_once(answer))


def _policy(refused: Mapping[str, str]) -> str:
    """Name the policy by its own sentence, which is the same from Kafka 2.3 to 4.3."""
    if not refused:
        return "All"
    sentences = [_SENTENCE.fullmatch(reason) for reason in refused.values()]
    names = {found[1] if found else "" for found in sentences}
    name = names.pop()
    return name if not names and name in KNOWN_POLICIES else "custom"


def _exactly_once(answer: Validation) -> bool | None:
    if "exactly.once.support" not in answer.keys:
        return None
    return not any(_NOT_EXACTLY_ONCE in reason for reason in answer.errors.get("exactly.once.support", ()))
