"""What is asked of live clusters before a plan is judged: workers as lint's WorkerFacts, all that a Connect cluster
runs as lint's Estate, ids and topics of Kafka clusters.

It only reads and validates. Placeholders are never sent, because config providers resolve them during validation. A
Kafka client is loaded only when a cluster is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess, login_user
from mm2mgr.kafka.quotas import ProducerQuotas
from mm2mgr.lint.subject import KafkaFacts, Subject, addresses
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.live.questions import (
    ClusterId,
    ConfigValidation,
    PartitionCounts,
    Quotas,
    TopicLogs,
)
from mm2mgr.live.snapshot import Snapshot, Steps
from mm2mgr.topology import KafkaCluster, Topology
from mm2mgr.truth.reach import CLUSTER_KEYS, settings


def refusals(connect: str, config: Mapping[str, str]) -> Steps[dict[str, str]]:
    """Return why the worker that answers would refuse a config, by key, as its validation says: also plugins that it
    lacks.

    Keys with a placeholder are left out, and not judged. What stops a validation at once stops a write, too: then the
    key is that of the class, or "". Raises Mm2mgrError when the worker does not tell.
    """
    sent = {key: value for key, value in config.items() if "${" not in value}
    if not sent.get("connector.class"):
        return {}
    question = ConfigValidation.from_config(connect, sent)
    snapshot = yield [question]
    try:
        answer = snapshot[question]
    except Mm2mgrError as error:
        if "Failed to find any class that implements Connector" in error.message:
            return {"connector.class": f"the worker has no plugin {sent['connector.class']}"}
        _, stopped, reason = error.message.partition("org.apache.kafka.common.config.ConfigException: ")
        if not stopped:
            raise
        return {"": reason}
    return {key: " ".join(reasons) for key, reasons in answer.errors.items() if key not in config.keys() - sent.keys()}


_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True)
class ClusterIds:
    """Cluster ids by alias, and for the other aliases why the id is unknown."""

    known: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


def cluster_ids(topology: Topology, aliases: Iterable[str], *, ask: bool = True) -> Steps[ClusterIds]:
    """Return the declared ids, and ask the other clusters if they are to be asked."""
    ids = ClusterIds()
    asked = []
    for alias in dict.fromkeys(aliases):
        declared = topology.clusters[alias].model.cluster_id
        if declared:
            ids.known[alias] = declared
        elif ask:
            asked.append(ClusterId(alias))
    snapshot = yield asked
    for question in asked:
        answer = snapshot.get(question)
        if isinstance(answer, Mm2mgrError):
            ids.unknown[question.cluster] = answer.message
        else:
            ids.known[question.cluster] = answer
    return ids


_AT_ONCE = 64
Servers = frozenset[str]  # the addresses of one `bootstrap.servers`


def ask_brokers(
    subjects: Iterable[Subject], declared: Iterable[KafkaCluster] = (), timeout_seconds: float = _TIMEOUT_SECONDS
) -> tuple[Subject, ...]:
    """Ask the brokers that connectors name for cluster id and number of brokers, all at once, and add what they answer.

    A cluster of `declared` is reached as its tree says, any other with the connectors' own settings, one after the
    other until one is let in. Placeholders and key stores of a config are not used, since anybody may have written it:
    this machine's secrets would go to addresses of theirs.
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
    """Topics of one Kafka cluster: partitions of each that mm2mgr may see; of the wanted ones the records in their
    logs.

    `written` has the sum of their end offsets: above zero, a topic has had records, whether or not they are still
    there.
    """

    partitions: Mapping[str, int]
    records: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)


def list_topics(snapshot: Snapshot, alias: str) -> TopicListing:
    """Return the topics of a Kafka cluster, with the records of those whose logs were asked for. Raises Mm2mgrError."""
    partitions = snapshot[PartitionCounts(alias)]
    records, written = dict[str, int](), dict[str, int]()
    for topic, count in partitions.items():
        question = TopicLogs(alias, topic, count)
        if question in snapshot.answers:
            logs = snapshot[question]
            records[topic] = sum(log.end - log.start for log in logs)
            written[topic] = sum(log.end for log in logs)
    return TopicListing(partitions, records, written)


def list_with_records(wanted: Mapping[str, Callable[[str], bool]]) -> Steps[dict[str, TopicListing | str]]:
    """Return the topics of Kafka clusters by alias, with the records of the wanted ones; of one that does not answer,
    why not.
    """
    snapshot = yield [PartitionCounts(alias) for alias in wanted]
    questions = [
        TopicLogs(alias, topic, count)
        for alias, is_wanted in wanted.items()
        if not isinstance(topics := snapshot.get(PartitionCounts(alias)), Mm2mgrError)
        for topic, count in topics.items()
        if is_wanted(topic)
    ]
    snapshot = yield questions
    # A file may lack what a changed tree asks for: that is unknown, not a topic without records.
    missing = {question.cluster: question for question in questions if question not in snapshot.answers}

    def listed(alias: str) -> TopicListing | str:
        try:
            if alias in missing:
                _ = snapshot[missing[alias]]  # raises
            return list_topics(snapshot, alias)
        except Mm2mgrError as error:
            return error.message

    return {alias: listed(alias) for alias in wanted}


def quotas_of(topology: Topology, aliases: Iterable[str]) -> Steps[dict[str, ProducerQuotas | str]]:
    """Read producers' quotas of declared Kafka clusters; of one that does not report them, why not."""
    questions = [Quotas(alias) for alias in sorted(topology.clusters.keys() & set(aliases))]
    snapshot = yield questions
    answers = ((question.cluster, snapshot.get(question)) for question in questions)
    return {alias: each.one_line if isinstance(each, Mm2mgrError) else each for alias, each in answers}


def user_of(alias: str, jaas: str) -> tuple[str, str]:
    """Return the user of a login, as far as its placeholders have values on this machine, and why there is none."""
    try:
        return login_user(alias, jaas), ""
    except Mm2mgrError as error:
        return "", f"it is for the client id alone: {error.message}"
