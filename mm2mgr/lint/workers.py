"""What a Connect cluster runs and what its workers report, as lint's facts, from answers of live clusters.

Placeholders are never sent to be validated, because config providers resolve them during validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from mm2mgr.connect.errors import ConnectError, WrongBody
from mm2mgr.connect.types import ASKED_CONFIG, NOBODY, SOURCE_CLASS, WorkerInfo, supports_exactly_once
from mm2mgr.connectors import RESTING, RunningConnector, with_statuses
from mm2mgr.errors import Mm2mgrError
from mm2mgr.formats.connectors import EXACTLY_ONCE_KEY, FoundConnector, FoundWorkers
from mm2mgr.formats.properties import Entry
from mm2mgr.lint.reading import subject_of
from mm2mgr.lint.subject import Estate, KafkaFacts, Spot, Subject, WorkerFacts, addresses
from mm2mgr.live.questions import AnsweringWorker, BrokerCount, Configs, ConfigValidation, Plugins, Statuses
from mm2mgr.live.reach import ClientLogin
from mm2mgr.live.snapshot import Steps, ask, or_error, side_by_side
from mm2mgr.text import number_of
from mm2mgr.topology import KafkaCluster
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import CLUSTER_KEYS, settings

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
    connectors, worker = yield from _read_running(connect)
    subjects = (
        running(connect, name, connector.config, connector.state or None, worker)
        for name, connector in connectors.items()
    )
    return Estate(tuple(subject for subject in subjects if subject), complete=True)


def read_running_connectors(connect: str) -> Steps[list[FoundConnector]]:
    """Return every MirrorMaker connector that a Connect cluster runs, owned or not, as readers of files return them.

    Their workers have the version, the override policy and exactly-once support that the cluster reports, and the
    addresses of their Kafka where a connector names it and its brokers answer. Raises Mm2mgrError when the connectors
    or the workers cannot be read.
    """
    connectors, worker = yield from _read_running(connect)
    properties = {} if worker.exactly_once is None else {EXACTLY_ONCE_KEY: _SUPPORT[worker.exactly_once]}
    every = (
        running(connect, name, connector.config, connector.state, worker) for name, connector in connectors.items()
    )
    subjects = yield from ask_brokers(subject for subject in every if subject)
    if servers := _workers_kafka(worker, subjects):
        properties["bootstrap.servers"] = servers
    workers = FoundWorkers(properties, worker.version, worker.policy)
    return [
        replace(mirror, owner=connect, workers=workers)
        for name, connector in connectors.items()
        if (mirror := _found_connector(connect, name, connector)).type
    ]


def _workers_kafka(worker: WorkerFacts, subjects: Iterable[Subject]) -> str:
    """Return the addresses of the workers' own Kafka as a connector has them, "" where none names it."""
    for subject in subjects if worker.cluster_id else ():
        for side, kafka in (("target", subject.target_kafka), ("source", subject.source_kafka)):
            if kafka.cluster_id == worker.cluster_id:
                return subject.get(f"{side}.cluster.bootstrap.servers")
    return ""


def _found_connector(connect: str, name: str, connector: RunningConnector) -> FoundConnector:
    """Return a connector that runs as a file would have it: each key once, in a place `CONNECT/NAME` without lines."""
    entries = tuple(Entry(key, value, value, 0) for key, value in connector.config.items())
    lines = {entry.key: entry for entry in entries}
    class_name, place = connector.config.get("connector.class", ""), f"{connect}/{name}"
    return FoundConnector(
        name, class_name, connector.config, lines, 0, entries, state=connector.state or None, file=place
    )


_SUPPORT = {True: "enabled", False: "disabled"}


def _read_running(connect: str) -> Steps[tuple[dict[str, RunningConnector], WorkerFacts]]:
    snapshot = yield [Configs(connect), Statuses(connect)]
    connectors = with_statuses(snapshot[Configs(connect)], snapshot[Statuses(connect)])
    keys = (key for connector in connectors.values() for key in connector.config)
    worker, _ = yield from ask_worker(connect, harmless_overrides(keys))
    return connectors, worker


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
    """Ask the worker that answers for its policy: All, None, Principal, Allowlist or `custom` (other refusals).

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


# --- Kafka clusters that connectors name ------------------------------------------------------------------------------

Servers = frozenset[str]  # the addresses of one `bootstrap.servers`


def ask_brokers(subjects: Iterable[Subject], declared: Iterable[KafkaCluster] = ()) -> Steps[tuple[Subject, ...]]:
    """Ask the brokers that connectors name for cluster id and number of brokers, and add what they answer.

    A cluster of `declared` is reached as its tree says, any other with the connectors' own settings, one after the
    other until one is let in. Placeholders and key stores of a config are not used, since anybody may have written it:
    this machine's secrets would go to addresses of theirs.
    """
    subjects = tuple(subjects)
    by_servers = [(addresses(",".join(cluster.model.bootstrap_servers)), cluster) for cluster in declared]
    answers: dict[Servers, KafkaFacts] = {}
    ways: dict[Servers, list[BrokerCount | KafkaFacts]] = {}
    for servers, own in (login for subject in subjects for login in _logins(subject)):
        cluster = next((cluster for there, cluster in by_servers if there & servers), None)
        if cluster and cluster.model.cluster_id:
            answers[servers] = KafkaFacts(cluster_id=cluster.model.cluster_id)
        elif (way := BrokerCount(cluster.alias) if cluster else own) not in ways.get(servers, ()):
            ways.setdefault(servers, []).append(way)
    while asked := {servers: left.pop(0) for servers, left in ways.items() if left and _is_unknown(answers, servers)}:
        snapshot = yield [way for way in asked.values() if not isinstance(way, KafkaFacts)]
        for servers, way in asked.items():
            facts = way if isinstance(way, KafkaFacts) else _facts_of(snapshot.get(way))
            if facts.cluster_id or servers not in answers:
                answers[servers] = facts
    return tuple(_with_answers(subject, answers) for subject in subjects)


def _is_unknown(answers: Mapping[Servers, KafkaFacts], servers: Servers) -> bool:
    return servers not in answers or not answers[servers].cluster_id


def _facts_of(answer: tuple[str, int] | Mm2mgrError) -> KafkaFacts:
    return KafkaFacts(unanswered=answer.message) if isinstance(answer, Mm2mgrError) else KafkaFacts(*answer)


def _logins(subject: Subject) -> Iterator[tuple[Servers, BrokerCount | KafkaFacts]]:
    """Yield the addresses of each cluster whose id is not known, with the question that the connector's own client
    would ask there, or why it is not asked.
    """
    for name, alias, kafka in (
        ("source admin", subject.source, subject.source_kafka),
        ("target admin", subject.target, subject.target_kafka),
        ("record producer", "record producer", subject.records_kafka),
    ):
        client = subject.client(name)
        values = settings(client, subject.config) if client else {}
        login = {plain: value for plain, value in values.items() if plain in CLUSTER_KEYS and value}
        if (servers := login.pop("bootstrap.servers", "")) and not kafka.cluster_id:
            is_placeholder = {key: "${" in value for key, value in (("bootstrap.servers", servers), *login.items())}
            of_workers = (key for key, holds in is_placeholder.items() if holds or key == "ssl.keystore.location")
            if key := next(of_workers, ""):
                reason = f"{alias}: {key} is {'a placeholder' if is_placeholder[key] else 'a file'} of the workers"
                yield addresses(servers), KafkaFacts(unanswered=reason)
            else:
                there = ClientLogin(alias, servers, tuple(sorted(login.items())))
                yield addresses(servers), BrokerCount(f"{alias} at {servers}", there)


def _with_answers(subject: Subject, answers: Mapping[Servers, KafkaFacts]) -> Subject:
    def with_answer(own: KafkaFacts, key: str) -> KafkaFacts:
        facts = answers.get(addresses(subject.get(key)))
        if facts is None:
            return own
        cluster_id, brokers = own.cluster_id or facts.cluster_id, facts.brokers or own.brokers
        return replace(own, cluster_id=cluster_id, brokers=brokers, unanswered=facts.unanswered)

    return replace(
        subject,
        source_kafka=with_answer(subject.source_kafka, "source.cluster.bootstrap.servers"),
        target_kafka=with_answer(subject.target_kafka, "target.cluster.bootstrap.servers"),
        records_kafka=with_answer(subject.records_kafka, "producer.override.bootstrap.servers"),
    )
