"""Rules about the workers of mm2.properties and of Strimzi's resources: shared groups and topics, values, refusals."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from mm2mgr.formats.mm2_properties import Dedicated, Line
from mm2mgr.formats.templates import is_open
from mm2mgr.lint.findings import RECORDS, Hit, estate_rule, rule
from mm2mgr.lint.hops import point, same
from mm2mgr.lint.subject import Estate, SourceFile, Spot, Subject, addresses
from mm2mgr.secrets import is_secret
from mm2mgr.truth.explain import to_worker
from mm2mgr.truth.keys import allowed_values, fault, is_checked, load
from mm2mgr.truth.reach import CLUSTER_KEYS

_EFFECTS = {
    "group.id": (
        "their workers form one group: one pair is mirrored, and the other's workers read on and on for configs that "
        "are in another topic"
    ),
    "config.storage.topic": (
        "both have connectors of the same names, so one pair is mirrored by the workers of both, the other by none"
    ),
    "offset.storage.topic": "both store offsets under the same connector names",
    "status.storage.topic": "each shows the states of the other's connectors",
}
_DECISIVE = ("group.id", "config.storage.topic")


@estate_rule("pairs-share-workers", "error", "MirrorMakerConfig.workerConfig, MirrorMaker.configureConnectors")
def pairs_share_workers(estate: Estate) -> Iterator[Hit]:
    """Pairs with one target have workers with one group.id or one storage topic.

    The driver starts Connect workers of their own for each pair, on the target. By default their group and their three
    storage topics are named after the source (mm2-configs.A.internal). `B.config.storage.topic`, or the same line at
    the top level, gives all pairs that write to B one topic; the connectors have the same names in every pair, so the
    config that is written last counts for all. With two sources of 100 records each, 200 of one arrived and none of the
    other, and both were RUNNING. With one `group.id` all of one pair arrived and none of the other, whose workers
    logged 7 000 rounds in a minute without end. A pair that is not enabled counts as well where it sends heartbeats,
    which is the default: its idle source connector has that name too. Two files whose sources have one alias and one
    target share them by default. A shared topic for offsets or states alone is a warning. Remove the lines, or run one
    process per source.
    """
    workers: dict[tuple[str, str], Subject] = {}
    for subject in estate.subjects:
        if subject.form == "dedicated" and subject.spot.file:
            # Of a pair that mirrors its source connector.
            workers.setdefault((subject.spot.file, subject.pair), subject)
    users: dict[tuple[str, str, str], list[Subject]] = defaultdict(list)
    for subject in workers.values():
        for key in _EFFECTS:
            for address in addresses(subject.worker_property("bootstrap.servers") or ""):
                users[key, subject.worker_property(key) or "", address].append(subject)
    lines = WorkerLines(estate.files)
    reported: set[Spot] = set()
    for (key, value, _), subjects in users.items():
        mirroring = [subject for subject in subjects if subject.type == "source"]
        for subject in subjects if mirroring else ():
            others = [other for other in subjects if _is_apart(subject, other)]
            other = next((candidate for candidate in others if candidate.type == "source"), next(iter(others), subject))
            spot, line = lines.line_of(subject, key)
            place = spot if line else subject.spot  # by default all four are shared, which is one finding
            if other is subject or "source" not in (subject.type, other.type) or place in reported:
                continue
            reported.add(place)
            message = f"{subject.pair} and {other.pair} share {key}={value} on {subject.target}: {_EFFECTS[key]}"
            severe = any(
                subject.worker_property(candidate) == other.worker_property(candidate) for candidate in _DECISIVE
            )
            yield Hit(
                message, _fix(subject, key, line), key, subject, spot, (other,), severity=None if severe else "warning"
            )


class WorkerLines:
    """The lines that set properties of workers."""

    def __init__(self, files: tuple[SourceFile, ...]) -> None:
        self._files = {file.path: file for file in files if file.kind == "dedicated"}
        self._lines: dict[str, Mapping[str, Line]] = {}

    def line_of(self, subject: Subject, key: str) -> tuple[Spot, Line | None]:
        """Return the place of a property of a pair's workers, and its line, None where the driver's default applies."""
        own = f"{subject.pair.rpartition('->')[2]}.{key}"
        file = self._files.get(subject.spot.file)
        if file is None:
            return subject.spot.with_key(own), None
        if file.path not in self._lines:
            self._lines[file.path] = Dedicated(file.entries).lines
        lines = self._lines[file.path]
        line = (lines.get(key) if to_worker(key) else None) or lines.get(own)
        return (file.spot(line) if line else subject.spot.with_key(own)), line


def _is_apart(subject: Subject, other: Subject) -> bool:
    """Tell whether two pairs are not nodes of one MirrorMaker: other pairs of a file, or sources elsewhere."""
    if subject.spot.file == other.spot.file:
        return subject.pair != other.pair
    sources = point(subject, "source"), point(other, "source")
    return all(source.addresses for source in sources) and not same(*sources)


def _fix(subject: Subject, key: str, line: Line | None) -> str:
    if line is None:
        target = subject.pair.rpartition("->")[2]
        names = ", ".join(f"{target}.{name}" for name in _EFFECTS)
        return f"give one of the two sources another alias in its file, or write {names} of its own there"
    price = "; offsets stay in the old topic, so all is mirrored again" if key == "offset.storage.topic" else ""
    return f"remove {line.key}: by default each source has its own{price}"


_SIGNATURE, _VERIFICATION = "inter.worker.signature.algorithm", "inter.worker.verification.algorithms"
_SIZE = "inter.worker.key.size"
_LEAST_BITS = 40  # of Java's generators for HMAC keys
_PRODUCER = "producer."
_OVERRIDE = re.compile(r"(producer|consumer|admin)\.override\.")
_STARTS = "the workers do not start"


@estate_rule("worker-value", "error", "Kafka's definitions of WorkerConfig, DistributedConfig and RestServerConfig")
def worker_value(estate: Estate) -> Iterator[Hit]:
    """Kafka's definition of a workers' setting does not allow this value.

    Workers check their properties when they start, and end with a ConfigException: no partitions or replicas for a
    storage topic, a security.protocol that does not exist, listeners with an empty item, a rule for response headers
    without a name, a signature algorithm that is not among the verification algorithms. Their `producer.` lines are for
    the record producer of each connector that does not override them: the workers start, and its tasks are FAILED. In
    mm2.properties the lines of the target, and those of storage topics at the top level, are the workers'. A line that
    only a connector may have, producer.override.acks, does nothing there (warning). Each line is reported once.
    """
    lines = WorkerLines(estate.files)
    faults: dict[tuple[int, str], list[tuple[str, str, str]]] = {}
    reported: set[tuple[Spot, str]] = set()
    for subject in estate.subjects:
        properties = subject.worker.properties
        if not properties or not subject.kind.of_known_line:
            continue
        rest = faults.setdefault((id(properties), subject.version), [])
        if not rest:
            rest += (*_faults(properties, subject.version), ("", "", ""))
        for key, wrong, right in rest[:-1]:
            if key.startswith(_PRODUCER) and subject.written_key(RECORDS, key.removeprefix(_PRODUCER)):
                continue
            spot, name = _place(subject, lines, key)
            if name and (spot, key) not in reported:
                reported.add((spot, key))
                value = "" if is_secret(key) else f"={properties[key].strip()}"
                effect = (
                    "its tasks are FAILED when they create the record producer"
                    if key.startswith(_PRODUCER)
                    else _STARTS
                )
                yield Hit(f"{name}{value} is {wrong}: {effect}", f"write {right} for {name}", key, subject, spot)
        for key in properties if subject.form == "connect" else ():
            spot, name = _place(subject, lines, key)
            if _OVERRIDE.match(key) and (spot, key) not in reported:
                reported.add((spot, key))
                right = key.replace(".override.", ".", 1)
                message = f"{name} does nothing: connectors have such keys, and workers give their connectors {right}"
                yield Hit(message, f"write {right} for it", key, subject, spot, severity="warning")


def _place(subject: Subject, lines: WorkerLines, key: str) -> tuple[Spot, str]:
    """Return a property's place and name in its file; "" where connectors have the line too (see invalid-value)."""
    if subject.form == "dedicated":
        spot, line = lines.line_of(subject, key)
        return spot, line.key if line and key not in CLUSTER_KEYS else ""
    return Spot(subject.spot.file, subject.spot.line, subject.spot.connect, key=key), f"the workers' {key}"


def _faults(properties: Mapping[str, str], version: str) -> Iterator[tuple[str, str, str]]:
    for key, value in properties.items():
        scope, plain = ("producer", key.removeprefix(_PRODUCER)) if key.startswith(_PRODUCER) else ("worker", key)
        definition = None if is_open(value) else load().find(scope, plain, version)
        if definition and is_checked(definition) and (wrong := fault(scope, plain, version, value)):
            yield key, wrong, allowed_values(definition)
    size = properties.get(_SIZE, "").strip()
    if re.fullmatch(r"-?[0-9]{1,10}", size) and int(size) < _LEAST_BITS:
        yield _SIZE, "too short for a key", f"{_LEAST_BITS} or more bits, or leave it out,"
    verified = [algorithm.strip() for algorithm in properties.get(_VERIFICATION, "HmacSHA256").split(",")]
    signature = properties.get(_SIGNATURE, "HmacSHA256").strip()
    if any(verified) and signature not in verified and not any(map(is_open, (signature, *verified))):
        key = _SIGNATURE if _SIGNATURE in properties else _VERIFICATION
        yield (
            key,
            f"without each other: {_VERIFICATION} does not list {signature}",
            f"{signature} into {_VERIFICATION}, too,",
        )


_STORED = ("group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic")


@rule("operator-ignores", "error", "Strimzi's KafkaMirrorMaker2Connectors and KafkaConnectAssemblyOperator")
def operator_ignores(subject: Subject) -> Iterator[Hit]:
    """Strimzi's operator refuses the resource, or ignores a part of it.

    connectCluster must be the target's alias: since 0.41 the operator refuses any other resource, and leaves what runs
    as it is. So it does where a mirror names a cluster that is not there. A member that the definition does not have,
    such as `config` of a mirror, is refused by kubectl or dropped by the API server, so the operator never sees it. It
    creates a KafkaConnector only with the label strimzi.io/cluster, which names its KafkaConnect, and only where that
    has the annotation strimzi.io/use-connector-resources: "true". Settings of workers in the config of a cluster where
    no workers are do nothing (a hint). The API version v1 has no heartbeatConnector, pause, connectCluster and
    clusters, and no authentication of type oauth. An authentication without its user, secret or certificate is refused;
    in the config of type custom only sasl.* and ssl.keystore.* count. Of a Connector of Confluent's operator, members
    of spec that its definition does not have are reported.
    """
    for note in subject.resource.notes if subject.resource else ():
        spot = replace(subject.spot, line=note.line, key=note.key)
        severity = None if note.severity == "error" else note.severity
        yield Hit(note.message, note.fix, note.key, subject, spot, severity=severity)


@estate_rule(
    "resources-share-workers", "error", "Strimzi's KafkaMirrorMaker2Configuration; strimzi-kafka-operator#9344"
)
def resources_share_workers(estate: Estate) -> Iterator[Hit]:
    """Two resources of Strimzi have workers of one group, or with one storage topic, on one Kafka cluster.

    The operator's defaults are the same for all of them: mirrormaker2-cluster for a KafkaMirrorMaker2, connect-cluster
    for a KafkaConnect, and topics of that name. On one Kafka cluster their workers join one group and become one
    Connect cluster: each operator deletes the connectors of the other resource, and tasks run on workers without the
    certificates that they need. Give each resource a group.id and three storage topics of its own. A new
    offset.storage.topic begins without offsets, so connectors that ran before mirror all topics again.
    """
    first: dict[str, Subject] = {}
    for subject in estate.subjects:
        if subject.resource and subject.resource.workers:
            first.setdefault(subject.resource.workers, subject)
    sharing: dict[tuple[str, str, str], list[Subject]] = defaultdict(list)
    for subject in first.values():
        for address in addresses(subject.worker_property("bootstrap.servers") or ""):
            for key in _STORED:
                sharing[address, key, subject.worker_property(key) or ""].append(subject)
    shared: dict[Subject, tuple[Subject, dict[str, None]]] = {}
    for (_, key, _), group in sharing.items():
        for subject in group if len(group) > 1 else ():
            other = group[0] if subject is not group[0] else group[1]
            shared.setdefault(subject, (other, {}))[1][key] = None
    for subject, (other, keys) in shared.items():
        own, theirs = (sharer.resource.workers.lstrip("/") for sharer in (subject, other) if sharer.resource)
        values = ", ".join(f"{key}={subject.worker_property(key)}" for key in keys)
        effect = "they become one Connect cluster, and each resource's connectors are deleted for the other's"
        message = f"the workers of {own} and of {theirs} have {values} on one Kafka cluster: {effect}"
        yield Hit(message, _own_names(subject), next(iter(keys)), subject, others=(other,))


def _own_names(subject: Subject) -> str:
    resource = subject.resource
    if resource and resource.is_v1:
        where = "spec.target" if resource.kind == "KafkaMirrorMaker2" else "its KafkaConnect's spec"
        return f"write groupId, configStorageTopic, offsetStorageTopic and statusStorageTopic of its own in {where}"
    is_mirror = resource and resource.kind == "KafkaMirrorMaker2"
    where = f"the config of {subject.target}" if is_mirror else "its KafkaConnect's config"
    return f"write {', '.join(_STORED)} of its own in {where}"
