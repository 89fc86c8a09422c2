"""What is asked of live clusters before a plan is judged: workers as lint's WorkerFacts, all that a Connect cluster runs as lint's
Estate, ids and topics of Kafka clusters.

It only reads and validates. Placeholders are never sent, because config providers resolve them during validation. A Kafka client is
loaded only when a cluster is asked.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectError, WrongBody
from mm2mgr.connect.exactly_once import ASKED_CONFIG, NOBODY, SOURCE_CLASS, supports_exactly_once
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.connect.types import ConnectorInfo, WorkerInfo
from mm2mgr.endpoints import kafka_access
from mm2mgr.errors import Mm2mgrError
from mm2mgr.formats.connectors import FoundConnector
from mm2mgr.kafka.access import KafkaAccess, login_user
from mm2mgr.kafka.quotas import ProducerQuotas, read_quotas
from mm2mgr.lint.reading import subject_of
from mm2mgr.lint.subject import Estate, KafkaFacts, Spot, Subject, WorkerFacts, addresses
from mm2mgr.partitions import TopicPartition
from mm2mgr.reconcile.plan import RESTING
from mm2mgr.text import number_of
from mm2mgr.topology import KafkaCluster, Topology
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.client_values import settings
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import CLUSTER_KEYS

# "1" can be read as a number, as text or as a list, but not as these; and errors are searched for what is sent as a password.
_HARMLESS = {"boolean": "true", "class": "java.lang.Object", "password": "mm2mgr-probe"}


_CONNECTORS = ("source", "sink", "unknown")  # types of plugins


async def ask_worker(
    client: ConnectClient, overrides: Mapping[str, str], root: WorkerInfo | None = None
) -> tuple[WorkerFacts, ConnectError | None]:
    """Return what the answering worker reports, and why the probe failed if it did: then its policy is None.

    Three requests at once, two with its `root`; `overrides`: see `harmless`. Raises ConnectError when version and Kafka cluster, or
    the plugins, cannot be read.
    """

    async def probed() -> WorkerFacts | ConnectError:
        try:
            return await probe(client, overrides)
        except ConnectError as error:
            return error

    async def answering() -> WorkerInfo:
        return root or await client.root()

    found, plugins, answered = await asyncio.gather(probed(), client.plugins(), answering())
    # What MirrorMaker's keys do follows its plugin's version, which may differ from the worker's own.
    versions = [plugin.version for plugin in plugins if plugin.class_name == SOURCE_CLASS]
    placed = (kafka_version(text) for text in (*versions, answered.version))
    worker = replace(
        WorkerFacts() if isinstance(found, ConnectError) else found,
        version=next((version for version in placed if version), None),
        cluster_id=answered.kafka_cluster_id or None,
        plugins=frozenset(plugin.class_name for plugin in plugins if plugin.type in _CONNECTORS),
        others=frozenset(plugin.class_name for plugin in plugins if plugin.type not in _CONNECTORS) or None,
    )
    return worker, found if isinstance(found, ConnectError) else None


async def read_live(target: ConnectTarget, deadline_seconds: float = 30.0) -> Estate:
    """Return every MirrorMaker connector that a Connect cluster runs, owned or not, with what its workers report.

    Raises ConnectError when the connectors cannot be read within the deadline; a policy that cannot be found is unknown.
    """
    async with ConnectClient(target, deadline_seconds=deadline_seconds) as client:
        infos, statuses = await asyncio.gather(client.infos(), client.statuses())
        worker, _ = await ask_worker(client, harmless(key for info in infos.values() for key in info.config))
    states = {name: status.state for name, status in statuses.items()}
    subjects = (running(target.name, name, info.config, states.get(name), worker) for name, info in infos.items())
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


async def refusals(client: ConnectClient, config: Mapping[str, str]) -> dict[str, str]:
    """Return why the worker that answers would refuse a config, by key, as its validation says: also plugins that it lacks.

    Keys with a placeholder are left out, and not judged. What stops a validation at once stops a write, too: then the key is that of
    the class, or "". Raises ConnectError when the worker does not tell.
    """
    sent = {key: value for key, value in config.items() if "${" not in value}
    class_name = sent.get("connector.class")
    if not class_name:
        return {}
    try:
        answer = await client.validate(class_name, sent)
    except ConnectError as error:
        if "Failed to find any class that implements Connector" in error.message:
            return {"connector.class": f"the worker has no plugin {class_name}"}
        _, stopped, reason = error.message.partition("org.apache.kafka.common.config.ConfigException: ")
        if not stopped:
            raise
        return {"": reason}
    return {key: " ".join(reasons) for key, reasons in answer.errors.items() if key not in config.keys() - sent.keys()}


@dataclass(frozen=True)
class RunningOn:
    """What a Connect cluster runs: who answered, configs, and states of connectors that have reported one."""

    root: WorkerInfo
    infos: Mapping[str, ConnectorInfo]
    states: Mapping[str, str]


def shared_workers(read: Mapping[str, RunningOn]) -> dict[str, ConnectError]:
    """Return an error for each Connect cluster that answers just as another one does, from the same Kafka cluster.

    Only one that is named twice, or two that share config.storage.topic, run connectors of the same names, configs and states.
    """
    found: dict[str, ConnectError] = {}
    alike: dict[tuple[str, frozenset[str]], list[str]] = {}
    for name, each in read.items():
        if each.root.kafka_cluster_id and not RESTING.issuperset(each.states.values()):
            alike.setdefault((each.root.kafka_cluster_id, frozenset(each.infos)), []).append(name)
    for names in alike.values():
        for name in names:
            own = read[name]
            same = [one for one in names if read[one].infos == own.infos and read[one].states == own.states]
            if others := [one for one in same if one != name]:
                message = f"Connect clusters '{name}' and '{others[0]}' run the same {number_of(len(own.infos), 'connector')} on one Kafka cluster: they are one Connect cluster, or share config.storage.topic"
                hint = "give one Connect cluster one name, and two of them a group.id and three storage topics each"
                found[name] = ConnectError(message, hint=hint, cluster=name)
    return found


def version_of(root: WorkerInfo) -> WorkerFacts:
    """Return what a worker reports without a request for its plugins and policy."""
    return WorkerFacts(version=kafka_version(root.version), cluster_id=root.kafka_cluster_id or None)


def running(
    connect: str, name: str, config: Mapping[str, str], state: str | None, worker: WorkerFacts
) -> Subject | None:
    """Return a connector that runs as lint sees it, None for one that is not MirrorMaker's."""
    found = FoundConnector(name, config.get("connector.class", ""), config, state=state)
    return subject_of(found, Spot(connect=connect), worker)


# --- what connectors may override -------------------------------------------------------------------------------------

PREFIXES = ("producer.override.", "consumer.override.", "admin.override.")
KNOWN_POLICIES = frozenset({"None", "Principal", "Allowlist"})

# Consumer and admin overrides are judged only when a connector uses them, as one with an offsets topic of its own does.
_BASE = {**ASKED_CONFIG, "offsets.storage.topic": "mm2mgr-probe"}
# One that only All allows, one that Principal allows too, and the one that decides where records go.
_TELLING = {
    f"{prefix}{key}": value
    for prefix in PREFIXES
    for key, value in (("client.id", "mm2mgr-probe"), ("sasl.mechanism", "PLAIN"), ("bootstrap.servers", NOBODY))
}
_SENTENCE = re.compile(r"The '([^']+)' policy does not allow '[^']+' to be overridden in the connector configuration\.")


async def probe(client: ConnectClient, overrides: Mapping[str, str]) -> WorkerFacts:
    """Ask the worker that answers for its policy: All, None, Principal, Allowlist or `custom` (refusals with other messages).

    `exactly_once` is None before Kafka 3.3, which has no such key. ConnectError when the answer lacks the policy. Other workers may
    have another policy.
    """
    wanted = {key: value for key, value in overrides.items() if key.startswith(PREFIXES) and "${" not in value}
    asked = {**wanted, **_TELLING}
    try:
        answer = await client.validate(SOURCE_CLASS, {**_BASE, **asked})
        if "producer.override.client.id" not in answer.keys:
            raise WrongBody("the validation does not mention the overrides that were sent")
    except ConnectError as error:
        altered = "Something between mm2mgr and the worker may have altered the answer; ask a worker directly."
        what = f"Connect cluster '{client.target.name}': the override policy could not be found: {error.message}"
        raise ConnectError(what, hint=error.hint or altered, cluster=client.target.name, status=error.status) from error
    refused = {key: " ".join(reasons) for key, reasons in answer.errors.items() if key in asked}
    return WorkerFacts(
        policy=_policy(refused),
        refused=refused,
        allowed=frozenset(wanted) - refused.keys(),
        exactly_once=supports_exactly_once(answer),
    )


def _policy(refused: Mapping[str, str]) -> str:
    """Name the policy by its refusal message, which is the same from Kafka 2.3 to 4.3."""
    if not refused:
        return "All"
    sentences = [_SENTENCE.fullmatch(reason) for reason in refused.values()]
    names = {found[1] if found else "" for found in sentences}
    name = names.pop()
    return name if not names and name in KNOWN_POLICIES else "custom"


_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True)
class ClusterIds:
    """Cluster ids by alias, and for the other aliases why the id is unknown."""

    known: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


async def cluster_ids(topology: Topology, aliases: Iterable[str], *, ask: bool = True) -> ClusterIds:
    """Return the declared ids, and ask the other clusters, all at once, if they are to be asked."""
    ids = ClusterIds()
    asked = []
    for alias in dict.fromkeys(aliases):
        declared = topology.clusters[alias].model.cluster_id
        if declared:
            ids.known[alias] = declared
        elif ask:
            asked.append(alias)
    answers = (asyncio.to_thread(_ask, topology.clusters[alias]) for alias in asked)
    for alias, answer in zip(asked, await asyncio.gather(*answers), strict=True):
        if isinstance(answer, Mm2mgrError):
            ids.unknown[alias] = answer.message
        else:
            ids.known[alias] = answer
    return ids


def _ask(cluster: KafkaCluster) -> str | Mm2mgrError:
    from mm2mgr.kafka.client import Kafka  # loads librdkafka, which a plan with declared ids does without

    try:
        with Kafka(kafka_access(cluster), _TIMEOUT_SECONDS) as kafka:
            return kafka.cluster_id()
    except Mm2mgrError as error:
        return error


_AT_ONCE = 64
Servers = frozenset[str]  # the addresses of one `bootstrap.servers`


def ask_brokers(
    subjects: Iterable[Subject], declared: Iterable[KafkaCluster] = (), timeout_seconds: float = _TIMEOUT_SECONDS
) -> tuple[Subject, ...]:
    """Ask the brokers that connectors name for cluster id and number of brokers, all at once, and add what they answer.

    A cluster of `declared` is reached as its tree says, any other with the connectors' own settings, one after the other until one
    is let in. Placeholders and key stores of a config are not used, since anybody may have written it: this machine's secrets would
    go to addresses of theirs.
    """
    subjects = tuple(subjects)
    ours = [(addresses(",".join(each.model.bootstrap_servers)), each) for each in declared]
    answers: dict[Servers, KafkaFacts] = {}
    ways: dict[Servers, list[tuple[KafkaAccess, bool]]] = {}
    for servers, own in (login for subject in subjects for login in _logins(subject)):
        cluster = next((each for theirs, each in ours if theirs & servers), None)
        if cluster and cluster.model.cluster_id:
            answers[servers] = KafkaFacts(cluster_id=cluster.model.cluster_id)
        elif (way := (kafka_access(cluster) if cluster else own, cluster is not None)) not in ways.get(servers, ()):
            ways.setdefault(servers, []).append(way)

    def ask(servers: Servers) -> None:
        found = (_identity(access, timeout_seconds, trusted=trusted) for access, trusted in ways[servers])
        first = next(found)
        answers[servers] = first if first.cluster_id else next((each for each in found if each.cluster_id), first)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(ask, ways))
    return tuple(_answered(subject, answers) for subject in subjects)


def _logins(subject: Subject) -> Iterator[tuple[Servers, KafkaAccess]]:
    """Yield the addresses of each cluster whose id is not known, and how the connector's own client reaches it."""
    for client, alias, kafka in (
        ("source admin", subject.source, subject.source_kafka),
        ("target admin", subject.target, subject.target_kafka),
        ("record producer", "record producer", subject.records_kafka),
    ):
        own = subject.client(client)
        found = settings(own, subject.config) if own else {}
        login = {plain: value for plain, value in found.items() if plain in CLUSTER_KEYS and value}
        if (servers := login.pop("bootstrap.servers", "")) and not kafka.cluster_id:
            yield addresses(servers), KafkaAccess(alias, servers, login)


def _identity(access: KafkaAccess, timeout_seconds: float, *, trusted: bool) -> KafkaFacts:
    from mm2mgr.kafka.client import Kafka

    login = {"bootstrap.servers": access.bootstrap_servers, **access.security}
    for key in () if trusted else login:
        what = "a placeholder" if "${" in login[key] else "a file" if key == "ssl.keystore.location" else ""
        if what:
            return KafkaFacts(unanswered=f"{access.alias}: {key} is {what} of the workers")
    try:
        with Kafka(access, timeout_seconds) as kafka:
            return KafkaFacts(*kafka.identity(while_down=False))
    except Mm2mgrError as error:
        return KafkaFacts(unanswered=error.message)


def _answered(subject: Subject, answers: Mapping[Servers, KafkaFacts]) -> Subject:
    def informed(known: KafkaFacts, key: str) -> KafkaFacts:
        found = answers.get(addresses(subject.get(key)))
        if found is None:
            return known
        brokers = found.brokers or known.brokers
        return replace(
            known, cluster_id=known.cluster_id or found.cluster_id, brokers=brokers, unanswered=found.unanswered
        )

    return replace(
        subject,
        source_kafka=informed(subject.source_kafka, "source.cluster.bootstrap.servers"),
        target_kafka=informed(subject.target_kafka, "target.cluster.bootstrap.servers"),
        records_kafka=informed(subject.records_kafka, "producer.override.bootstrap.servers"),
    )


@dataclass(frozen=True)
class TopicListing:
    """Topics of one Kafka cluster: partitions of each that mm2mgr may see; of the wanted ones the records in their logs.

    `written` has the sum of their end offsets: above zero, a topic has had records, whether or not they are still there.
    """

    partitions: Mapping[str, int]
    records: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)


def read_expiring(
    access: KafkaAccess, next_offsets: Mapping[TopicPartition, int], seconds: float
) -> list[TopicPartition]:
    """Return the partitions whose records from these offsets on will be deleted within so many seconds. Blocks; raises KafkaError."""
    from mm2mgr.kafka.inspection import expiring

    return expiring(access, next_offsets, seconds)


def read_topics(
    access: KafkaAccess,
    wanted: Callable[[str], bool],
    known: TopicListing | None = None,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> TopicListing:
    """Return the topics of a Kafka cluster, with the records of the wanted ones. Blocks; raises KafkaError.

    What is `known` of the cluster is not asked again.
    """
    from mm2mgr.kafka.client import Kafka

    if known and not any(wanted(topic) and topic not in known.records for topic in known.partitions):
        return known
    with Kafka(access, timeout_seconds) as kafka:
        partitions = known.partitions if known else kafka.partition_counts()
        records, written = (dict(known.records), dict(known.written)) if known else ({}, {})
        chosen = {topic: count for topic, count in partitions.items() if wanted(topic) and topic not in records}
        records |= dict.fromkeys(chosen, 0)
        written |= dict.fromkeys(chosen, 0)
        every = (TopicPartition(topic, number) for topic, count in chosen.items() for number in range(count))
        for one, log in kafka.offsets(every).items():
            records[one.topic] += log.end - log.start
            written[one.topic] += log.end
    return TopicListing(partitions, records, written)


async def read_quotas_of(topology: Topology, aliases: Iterable[str]) -> dict[str, ProducerQuotas | str]:
    """Read producers' quotas of declared Kafka clusters side by side; of one that does not report them, why not."""

    def one(alias: str) -> ProducerQuotas | str:
        try:
            return read_quotas(kafka_access(topology.clusters[alias]))
        except Mm2mgrError as error:
            return error.one_line

    asked = sorted(topology.clusters.keys() & set(aliases))
    answers = await asyncio.gather(*(asyncio.to_thread(one, alias) for alias in asked))
    return dict(zip(asked, answers, strict=True))


def user_of(alias: str, jaas: str) -> tuple[str, str]:
    """Return the user of a login, as far as its placeholders have values on this machine, and why there is none."""
    try:
        return login_user(alias, jaas), ""
    except Mm2mgrError as error:
        return "", f"it is for the client id alone: {error.message}"
