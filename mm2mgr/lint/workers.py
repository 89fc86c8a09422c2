"""What a Connect cluster runs and what its workers report, as lint's facts, from answers of live clusters.

Placeholders are never sent to be validated, because config providers resolve them during validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from mm2mgr.connect.errors import ConnectError, WrongBody
from mm2mgr.connect.exactly_once import ASKED_CONFIG, NOBODY, SOURCE_CLASS, supports_exactly_once
from mm2mgr.connect.types import WorkerInfo
from mm2mgr.connectors import RESTING, RunningConnector, with_statuses
from mm2mgr.errors import Mm2mgrError
from mm2mgr.formats.connectors import FoundConnector
from mm2mgr.lint.reading import subject_of
from mm2mgr.lint.subject import Estate, Spot, Subject, WorkerFacts
from mm2mgr.live.questions import AnsweringWorker, Configs, ConfigValidation, Plugins, Statuses
from mm2mgr.live.snapshot import Steps, ask, or_error, side_by_side
from mm2mgr.text import number_of
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.keys import kafka_version

# "1" can be read as a number, as text or as a list, but not as these; and errors are searched for what is sent as a
# password.
_HARMLESS = {"boolean": "true", "class": "java.lang.Object", "password": "mm2mgr-probe"}


_CONNECTORS = ("source", "sink", "unknown")  # types of plugins


def ask_worker(connect: str, overrides: Mapping[str, str]) -> Steps[tuple[WorkerFacts, Mm2mgrError | None]]:
    """Return what the worker that answers reports, and why the probe failed if it did: then its policy is None.

    `overrides`: see `harmless_overrides`. Raises Mm2mgrError when version, Kafka cluster or plugins cannot be read.
    """
    policy, snapshot = yield from side_by_side(
        or_error(probe(connect, overrides)), ask([Plugins(connect), AnsweringWorker(connect)])
    )
    plugins, root = snapshot[Plugins(connect)], snapshot[AnsweringWorker(connect)]
    # What MirrorMaker's keys do follows its plugin's version, which may differ from the worker's own.
    versions = [plugin.version for plugin in plugins if plugin.class_name == SOURCE_CLASS]
    placed = (kafka_version(text) for text in (*versions, root.version))
    worker = replace(
        WorkerFacts() if isinstance(policy, Mm2mgrError) else policy,
        version=next((version for version in placed if version), None),
        cluster_id=root.kafka_cluster_id or None,
        plugins=frozenset(plugin.class_name for plugin in plugins if plugin.type in _CONNECTORS),
        others=frozenset(plugin.class_name for plugin in plugins if plugin.type not in _CONNECTORS) or None,
    )
    return worker, policy if isinstance(policy, Mm2mgrError) else None


def read_estate_of(connect: str) -> Steps[Estate]:
    """Return every MirrorMaker connector that a Connect cluster runs, owned or not, with what its workers report.

    Raises Mm2mgrError when the connectors cannot be read; a policy that cannot be found is unknown.
    """
    snapshot = yield [Configs(connect), Statuses(connect)]
    connectors = with_statuses(snapshot[Configs(connect)], snapshot[Statuses(connect)])
    keys = (key for connector in connectors.values() for key in connector.config)
    worker, _ = yield from ask_worker(connect, harmless_overrides(keys))
    subjects = (
        running(connect, name, connector.config, connector.state or None, worker)
        for name, connector in connectors.items()
    )
    return Estate(tuple(subject for subject in subjects if subject), complete=True)


def read_estates(connects: Iterable[str]) -> Steps[dict[str, Estate | Mm2mgrError]]:
    """Return what each of these Connect clusters runs, or why it could not be read."""
    names = list(connects)
    return dict(zip(names, (yield from side_by_side(*(or_error(read_estate_of(name)) for name in names))), strict=True))


def harmless_overrides(keys: Iterable[str]) -> dict[str, str]:
    """Return the override keys among config keys, each with a value of its type that means nothing.

    A worker parses overrides before it asks its policy, and a placeholder would make it read a secret.
    """
    table = truth_keys.load()
    newest = table.releases[table.lines[-1]]
    values = {}
    for key in keys:
        if key.startswith(PREFIXES):
            kind, _, plain = key.split(".", 2)
            definition = table.find(kind, plain, newest)
            values[key] = _HARMLESS.get(definition.type if definition else "", "1")
    return values


def shared_workers(
    read: Mapping[str, Mapping[str, RunningConnector]], kafka_ids: Mapping[str, str]
) -> dict[str, ConnectError]:
    """Return an error for each Connect cluster that answers as another one does, from the same Kafka cluster.

    Only one that is named twice, or two that share config.storage.topic, run connectors of the same names, configs and
    states. `kafka_ids` are those of the workers' Kafka clusters, as far as they are known.
    """
    errors: dict[str, ConnectError] = {}
    alike: dict[tuple[str, frozenset[str]], list[str]] = {}
    for name, connectors in read.items():
        states = {connector.state for connector in connectors.values()}
        if kafka_ids.get(name) and not RESTING.issuperset(states):
            alike.setdefault((kafka_ids[name], frozenset(connectors)), []).append(name)
    for names in alike.values():
        for name in names:
            if others := [other for other in names if other != name and read[other] == read[name]]:
                message = (
                    f"Connect clusters '{name}' and '{others[0]}' run the same"
                    f" {number_of(len(read[name]), 'connector')} on one Kafka cluster: they are one Connect cluster, or"
                    " share config.storage.topic"
                )
                hint = "give one Connect cluster one name, and two of them a group.id and three storage topics each"
                errors[name] = ConnectError(message, hint=hint, cluster=name)
    return errors


def version_of(root: WorkerInfo) -> WorkerFacts:
    """Return what a worker reports without a request for its plugins and policy."""
    return WorkerFacts(version=kafka_version(root.version), cluster_id=root.kafka_cluster_id or None)


def running(
    connect: str, name: str, config: Mapping[str, str], state: str | None, worker: WorkerFacts
) -> Subject | None:
    """Return a connector that runs as lint sees it, None for one that is not MirrorMaker's."""
    connector = FoundConnector(name, config.get("connector.class", ""), config, state=state)
    return subject_of(connector, Spot(connect=connect), worker)


# --- what connectors may override -------------------------------------------------------------------------------------

PREFIXES = ("producer.override.", "consumer.override.", "admin.override.")
_KNOWN_POLICIES = frozenset({"None", "Principal", "Allowlist"})

# Consumer and admin overrides are judged only when a connector uses them, as one with an offsets topic of its own does.
_BASE = {**ASKED_CONFIG, "offsets.storage.topic": "mm2mgr-probe"}
# One that only All allows, one that Principal allows too, and the one that decides where records go.
_TELLING = {
    f"{prefix}{key}": value
    for prefix in PREFIXES
    for key, value in (("client.id", "mm2mgr-probe"), ("sasl.mechanism", "PLAIN"), ("bootstrap.servers", NOBODY))
}
_SENTENCE = re.compile(r"The '([^']+)' policy does not allow '[^']+' to be overridden in the connector configuration\.")


def probe(connect: str, overrides: Mapping[str, str]) -> Steps[WorkerFacts]:
    """Ask the worker that answers for its policy: All, None, Principal, Allowlist or `custom` (refusals with other
    messages).

    `exactly_once` is None before Kafka 3.3, which has no such key. Mm2mgrError when the answer lacks the policy. Other
    workers may have another policy.
    """
    sent = {key: value for key, value in overrides.items() if key.startswith(PREFIXES) and "${" not in value}
    question = ConfigValidation.from_config(connect, {**_BASE, **sent, **_TELLING})
    snapshot = yield [question]
    try:
        answer = snapshot[question]
        if "producer.override.client.id" not in answer.keys:
            raise WrongBody("the validation does not mention the overrides that were sent")
    except Mm2mgrError as error:
        altered = "Something between mm2mgr and the worker may have altered the answer; ask a worker directly."
        message = f"Connect cluster '{connect}': the override policy could not be found: {error.message}"
        status = error.status if isinstance(error, ConnectError) else None
        raise ConnectError(message, hint=error.hint or altered, cluster=connect, status=status) from error
    refused = {key: " ".join(reasons) for key, reasons in answer.errors.items() if key in {**sent, **_TELLING}}
    return WorkerFacts(
        policy=_policy(refused),
        refused=refused,
        allowed=frozenset(sent) - refused.keys(),
        exactly_once=supports_exactly_once(answer),
    )


def _policy(refused: Mapping[str, str]) -> str:
    """Name the policy by its refusal message, which is the same from Kafka 2.3 to 4.3."""
    if not refused:
        return "All"
    sentences = [_SENTENCE.fullmatch(reason) for reason in refused.values()]
    names = {match[1] if match else "" for match in sentences}
    name = names.pop()
    return name if not names and name in _KNOWN_POLICIES else "custom"
