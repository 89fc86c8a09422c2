"""What the workers of a Connect cluster report, as lint's WorkerFacts, and everything a live cluster runs, as lint's Estate.

It only reads and validates: nothing is created or changed. The override policy and exactly-once support come from one
validation request; placeholders are never sent, because config providers resolve them during validation.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectError, WrongBody
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.connect.types import Plugin, Validation, WorkerInfo
from mm2mgr.lint.subject import Estate, Silence, Spot, Subject, WorkerFacts
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import type_of

SILENCE_PREFIX = "mm2mgr.silence."
# "1" can be read as a number, as text or as a list, but not as these; and errors are searched for what is sent as a password.
_HARMLESS = {"boolean": "true", "class": "java.lang.Object", "password": "mm2mgr-probe"}


async def read_worker(client: ConnectClient, overrides: Mapping[str, str]) -> WorkerFacts:
    """Return what the answering worker reports; its policy is None when the probe failed. `overrides`: see `harmless`."""
    worker, _ = await ask_worker(client, overrides)
    return worker


async def ask_worker(
    client: ConnectClient, overrides: Mapping[str, str], root: WorkerInfo | None = None
) -> tuple[WorkerFacts, ConnectError | None]:
    """Return what the answering worker reports, and why the probe failed if it did; three requests at once, two with its `root`.

    Raises ConnectError when version and Kafka cluster, or the plugins, cannot be read.
    """
    found, plugins, answered = await asyncio.gather(
        _probed(client, overrides), client.plugins(), client.root() if root is None else _known(root)
    )
    failed = found if isinstance(found, ConnectError) else None
    return _worker(answered, plugins, None if isinstance(found, ConnectError) else found), failed


async def read_live(target: ConnectTarget, deadline_seconds: float = 30.0) -> Estate:
    """Return every MirrorMaker connector that a Connect cluster runs, owned or not, with what its workers report.

    Raises ConnectError when the connectors cannot be read within the deadline; a policy that cannot be found is unknown.
    """
    async with ConnectClient(target, deadline_seconds=deadline_seconds) as client:
        infos, statuses = await asyncio.gather(client.infos(), client.statuses())
        worker = await read_worker(client, harmless(key for info in infos.values() for key in info.config))
    states = {name: status.state for name, status in statuses.items()}
    subjects = (subject_of(target.name, name, info.config, states.get(name), worker) for name, info in infos.items())
    return Estate(tuple(subject for subject in subjects if subject), complete=True)


def harmless(keys: Iterable[str]) -> dict[str, str]:
    """Return the override keys among config keys, each with a value of its type that means nothing.

    A worker parses overrides before it asks its policy, and a placeholder would make it read a secret.
    """
    known = truth_keys.load()
    newest = known.releases[known.lines[-1]]
    found = {}
    for key in keys:
        if key.startswith(PREFIXES):
            kind, _, plain = key.split(".", 2)
            definition = known.find(kind, plain, newest)
            found[key] = _HARMLESS.get(definition.type if definition else "", "1")
    return found


async def _known(root: WorkerInfo) -> WorkerInfo:
    return root


async def _probed(client: ConnectClient, overrides: Mapping[str, str]) -> Probe | ConnectError:
    try:
        return await probe(client, overrides)
    except ConnectError as error:
        return error


def version_of(root: WorkerInfo) -> WorkerFacts:
    """Return what a worker reports without a request for its plugins and policy."""
    return WorkerFacts(version=kafka_version(root.version), cluster_id=root.kafka_cluster_id or None)


def _worker(root: WorkerInfo, plugins: Iterable[Plugin], found: Probe | None) -> WorkerFacts:
    # What MirrorMaker's keys do follows its plugin's version, which may differ from the worker's own.
    versions = [plugin.version for plugin in plugins if plugin.class_name == CONNECTOR_CLASS]
    placed = (kafka_version(text) for text in (*versions, root.version))
    return WorkerFacts(
        version=next((version for version in placed if version), None),
        policy=found.policy if found else None,
        refused=found.refused if found else {},
        allowed=found.allowed if found else frozenset(),
        exactly_once=found.exactly_once if found else None,
        cluster_id=root.kafka_cluster_id or None,
        plugins=frozenset(plugin.class_name for plugin in plugins),
    )


def subject_of(
    connect: str, name: str, config: Mapping[str, str], state: str | None, worker: WorkerFacts
) -> Subject | None:
    """Return a connector that runs as lint sees it, None for one that is not MirrorMaker's."""
    type_ = type_of(config.get("connector.class", ""))
    if type_ is None:
        return None
    spot = Spot(connect=connect, connector=name)
    silences = tuple(_silences(config, spot))
    return Subject(name, type_, config, spot, worker=worker, state=state, silences=silences)


def _silences(config: Mapping[str, str], spot: Spot) -> Iterator[Silence]:
    for key, reason in config.items():
        if key.startswith(SILENCE_PREFIX):
            yield Silence(key.removeprefix(SILENCE_PREFIX), reason, spot.at(key))


# --- what connectors may override -------------------------------------------------------------------------------------

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
    """The answer of one worker. `policy` is All, None, Principal, Allowlist or `custom` (refusals with other messages).

    `refused` maps the override keys it refused to its reasons, `allowed` are the others of those it was asked for;
    `exactly_once` is None before Kafka 3.3, which has no such key.
    """

    policy: str
    refused: Mapping[str, str] = field(default_factory=dict)
    allowed: frozenset[str] = frozenset()
    exactly_once: bool | None = None


async def probe(client: ConnectClient, overrides: Mapping[str, str]) -> Probe:
    """Ask the worker that answers; ConnectError when the answer lacks the policy. Other workers may have another policy."""
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
    """Name the policy by its refusal message, which is the same from Kafka 2.3 to 4.3."""
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
