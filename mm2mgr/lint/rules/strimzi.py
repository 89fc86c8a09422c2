"""Rules about Strimzi's resources: what its operator refuses or ignores, workers that become one cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from mm2mgr.lint.findings import Hit, estate_rule, rule
from mm2mgr.lint.subject import Estate, Subject, addresses

_STORED = ("group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic")


@rule("operator-ignores", "error", source="Strimzi's KafkaMirrorMaker2Connectors and KafkaConnectAssemblyOperator")
def operator_ignores(subject: Subject) -> Iterator[Hit]:
    """Strimzi's operator refuses the resource, or ignores a part of it.

    connectCluster must be the target's alias: since 0.41 the operator refuses any other resource, and leaves what runs
    as it is. So it does where a mirror names a cluster that is not there. A member that the definition does not have,
    such as `config` of a mirror, is refused by kubectl or dropped by the API server, so the operator never sees it. It
    creates a KafkaConnector only with the label strimzi.io/cluster, which names its KafkaConnect, and only where that
    has the annotation strimzi.io/use-connector-resources: "true". Settings of workers in the config of a cluster where
    no workers are do nothing (a hint). The API version v1 has no heartbeatConnector, pause, connectCluster and
    clusters, and no authentication of type oauth. An authentication without its user, secret or certificate is refused;
    in the config of type custom only sasl.* and ssl.keystore.* count.
    """
    for note in subject.resource.notes if subject.resource else ():
        spot = replace(subject.spot, line=note.line, key=note.key)
        severity = None if note.severity == "error" else note.severity
        yield Hit(note.message, note.fix, note.key, subject, spot, severity=severity)


@estate_rule(
    "resources-share-workers", "error", source="Strimzi's KafkaMirrorMaker2Configuration; strimzi-kafka-operator#9344"
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
