"""Rules about a connector and the workers it runs on: override policy, whose Kafka the records go to, converters, config providers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from mm2mgr.lint.client_settings import lacking_in_override
from mm2mgr.lint.clusters import Point, apart
from mm2mgr.lint.findings import Hit, rule
from mm2mgr.lint.fixes import client_key, connector_key, written, yaml
from mm2mgr.lint.subject import Subject, SubjectKind, addresses

_SEEN = "tests/lint/test_seen_live_start.py::"
_PRINCIPAL = frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"})
_POLICY = "connector.client.config.override.policy"
_ALLOWLIST = "connector.client.config.override.allowlist"
_RECORDS = "producer.override."
_ADDRESS = "bootstrap.servers"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_CONVERTERS = ("key.converter", "value.converter", "header.converter")
_PLACEHOLDER = re.compile(r"\$\{([^}:\s]+):[^}]*\}")


@rule(
    "policy-forbids",
    "error",
    needs=(".override.",),
    source="KIP-458, KIP-1188",
    seen="tests/reconcile/test_policies_live.py",
)
def policy_forbids(subject: Subject) -> Iterator[Hit]:
    """The workers' override policy refuses what the connector needs.

    connector.client.config.override.policy of the workers decides which producer.override.*, consumer.override.* and
    admin.override.* keys a connector may have: All (the default since 3.0) all, Principal only security.protocol,
    sasl.mechanism and sasl.jaas.config, Allowlist (since 4.2) what it lists, None nothing. Connect refuses the config (400).
    producer.override.* is always checked, the two others only where Connect has such clients: exactly-once workers,
    offsets.storage.topic, and topic.creation.* for the admin client.
    """
    refused = [key for key in _looked_at(subject.kind) if _is_refused(subject, key)]
    if refused:
        who = f"policy {_policy(subject)}" if _policy(subject) else "override policy"
        message = f"the workers' {who} refuses {', '.join(refused)}: Connect answers 400"
        yield Hit(message, _allowing(subject, refused), refused[0])


def _allowing(subject: Subject, refused: Sequence[str]) -> str:
    """Say how the workers come to allow these keys too, without taking back one that they allow now."""
    new = _plain(refused)
    kept = [key for key in _plain([*_looked_at(subject.kind), *subject.worker.allowed]) if key not in new]
    if _policy(subject) != "Allowlist":
        return f"set {_POLICY}=All on the workers, or Allowlist with {_ALLOWLIST}={','.join(sorted([*kept, *new]))}"
    if subject.worker.properties is not None:
        return f"set {_ALLOWLIST}={','.join([*_allowlist(subject), *new])} on the workers, or {_POLICY}=All"
    among = f", {', '.join(kept)} among it" if kept else ""
    return f"add {','.join(new)} to {_ALLOWLIST} of the workers and keep what it lists{among}; or set {_POLICY}=All"


def _plain(keys: Iterable[str]) -> list[str]:
    return sorted({key.partition(".override.")[2] for key in keys})


@lru_cache(maxsize=4096)
def _looked_at(kind: SubjectKind) -> tuple[str, ...]:
    """Return the keys that the policy is asked about."""
    consumer = ("consumer.override.",) if kind.setting.has("own offsets") else ()
    admin = ("admin.override.",) if kind.setting.has("framework admin") else ()
    return tuple(key for key in kind.keys if key.startswith((_RECORDS, *consumer, *admin)))


def _policy(subject: Subject) -> str:
    named = subject.worker.policy or subject.worker_property(_POLICY) or ""
    return named.rpartition(".")[2].removesuffix("ConnectorClientConfigOverridePolicy")


def _is_refused(subject: Subject, key: str) -> bool:
    if key in subject.worker.refused:
        return True
    plain, policy = key.partition(".override.")[2], _policy(subject)
    if policy == "Principal":
        return plain not in _PRINCIPAL
    if policy == "Allowlist" and subject.worker.properties is not None:
        return plain not in _allowlist(subject)
    return policy == "None"


def _allowlist(subject: Subject) -> list[str]:
    return [item.strip() for item in (subject.worker_property(_ALLOWLIST) or "").split(",") if item.strip()]


@rule("wrong-kafka", "error", source="KIP-458", seen=f"{_SEEN}test_wrong_kafka")
def wrong_kafka(subject: Subject) -> Iterator[Hit]:
    """The records do not go to the target.

    Connect's producer writes them, and it talks to the workers' own Kafka unless producer.override.bootstrap.servers says
    otherwise; target.cluster.* is for admin clients only. The topics are then created on the target and stay empty, while the
    records land in topics of the same name on the workers' Kafka, with one partition, or nowhere. Everything looks healthy:
    RUNNING, offsets advance. Found by cluster ids where they are known, else by addresses: the source's own, or hosts
    that differ in more than a number.
    """
    reason = _elsewhere(subject)
    if reason:
        message = f"the records do not go to {subject.target}: {reason}"
        yield Hit(message, _to_the_target(subject), _RECORDS + _ADDRESS)


def _to_the_target(subject: Subject) -> str:
    if subject.form == "tree":  # which writes the override itself, once it knows where the workers live
        alias = yaml(subject.connect or "…")
        return f"write connect: {{{alias}: {{kafka: …}}}} with the Kafka that these workers live on, or correct its url"
    return f"write {client_key(subject, 'record producer', _ADDRESS, subject.get(f'target.cluster.{_ADDRESS}') or '…')}"


def _elsewhere(subject: Subject) -> str:
    own = subject.get(_RECORDS + _ADDRESS)
    if own:
        return "the record producer's bootstrap.servers are not the target's" if _is_astray(subject, own) else ""
    ids = (subject.worker.cluster_id, subject.target_kafka.cluster_id)
    if all(ids):
        return "the workers' Kafka is another cluster" if ids[0] != ids[1] else ""
    workers = subject.worker_property(f"producer.{_ADDRESS}") or subject.worker_property(_ADDRESS) or ""
    wrong = _is_astray(subject, workers)
    return "nothing overrides bootstrap.servers, and the workers' own are not the target's" if wrong else ""


def _is_astray(subject: Subject, servers: str) -> bool:
    """Tell whether addresses surely are not the target's: they are the source's, or differ in more than a broker's number."""
    source, target = (subject.get(f"{side}.cluster.{_ADDRESS}") for side in ("source", "target"))
    here, there = addresses(servers), addresses(target)
    if not here or not there or here & there or _is_unknown(servers, target):
        return False
    return bool(here & addresses(source)) or apart(Point("", here, None), Point("", there, None))


def _is_unknown(*values: str) -> bool:
    return any("${" in value for value in values)


@rule("override-insecure", "error", needs=(_RECORDS + _ADDRESS,), source="KIP-458", seen="tests/live/test_security.py")
def override_insecure(subject: Subject) -> Iterator[Hit]:
    """The record producer has the target's address but not its security.

    producer.override.bootstrap.servers says where the records go, and nothing of target.cluster.* is added to it: protocol,
    login, trust and key store have to stand behind producer.override. too. Without the protocol the producer talks
    PLAINTEXT to a TLS port: RUNNING, no record ever arrives. With a missing store the task is FAILED at the first record.
    """
    lacking = lacking_in_override(subject)
    if lacking:
        message = (
            f"the record producer goes to {subject.target} without {', '.join(lacking)}, which target.cluster.* has"
        )
        ways = ", ".join(f"{_RECORDS}{plain}" for plain in lacking)
        fix = f"write {ways} as for target.cluster.*"
        if subject.form == "tree":  # which writes one from the other, unless a template of one's own does not
            fix = f"take {_RECORDS}{_ADDRESS} out of {subject.type}.properties.j2, your own template: mm2mgr writes it, with its security"
        yield Hit(message, fix, _RECORDS + _ADDRESS)


@rule("converter", "error", source="KIP-382", seen=f"{_SEEN}test_converters")
def converter(subject: Subject) -> Iterator[Hit]:
    """A converter other than ByteArrayConverter alters what is mirrored.

    MirrorMaker hands Connect bytes. JsonConverter, the stock workers' default, writes them as base64 in JSON and fails the task
    at the first record without a value; StringConverter writes the text of a Java object and the data are lost; the default
    SimpleHeaderConverter turns every header into base64. Nothing fails otherwise. A connector that does not name its
    converters takes the workers', so name all three. mm2.properties does that by itself.
    """
    unset = [key for key in _CONVERTERS if _converter(subject, key) is None]
    for key in _CONVERTERS:
        value = _converter(subject, key)
        if (
            value is not None
            and "${" not in value
            and value.rpartition(".")[2] not in ("ByteArrayConverter", "ByteArray")
        ):
            whose = "" if key in subject.config else "the workers' "
            message = f"{whose}{key} {value.rpartition('.')[2]} alters what is mirrored"
            yield Hit(message, f"write {connector_key(subject, key, _BYTES)}", key)
    if unset and subject.form != "dedicated":
        message = (
            f"{', '.join(unset)} not set: the workers' apply, and the stock workers' alter keys, values and headers"
        )
        fix = ", ".join(connector_key(subject, key, _BYTES) for key in unset)
        yield Hit(message, f"write {fix}", unset[0])


def _converter(subject: Subject, key: str) -> str | None:
    own = subject.get(key) or subject.worker_property(key)
    if own or subject.worker.properties is None:
        return own or None
    # What DistributedConfig takes when the workers say nothing; they have to name the other two.
    return "org.apache.kafka.connect.storage.SimpleHeaderConverter" if key == "header.converter" else None


@rule(
    "worker-keystore-clash",
    "error",
    needs=(f"{_RECORDS}ssl.",),
    source="KIP-651",
    seen=f"{_SEEN}test_worker_keystore_clash",
)
def worker_keystore_clash(subject: Subject) -> Iterator[Hit]:
    """The workers' producer has a store of another kind, which an override cannot take back.

    A worker's producer.ssl.keystore.location (or truststore) is inherited by every record producer; a connector can replace it and
    cannot unset it. With PEM values in the override the task is FAILED: both a location and a separate private key are
    specified; with a PEM file, that a store password is not allowed. An empty override does not help, null is refused, and
    validation does not show it. Use the workers' own kind of store, or workers without producer.ssl.*.
    """
    clashes = [clash for store in _INLINE if (clash := _clash(subject, store))]
    if clashes:
        key, theirs = clashes[0]
        message = f"{key} meets the workers' producer.{theirs}, which stays in force: the tasks are FAILED"
        fix = "take producer.ssl.keystore.* and producer.ssl.truststore.* out of the workers' properties, or use their kind of store"
        yield Hit(message, fix, key)


_INLINE = {"keystore": ("key", "certificate.chain"), "truststore": ("certificates",)}


def _clash(subject: Subject, store: str) -> tuple[str, str] | None:
    """Return the override and the workers' key that exclude each other."""
    prefix = f"{_RECORDS}ssl.{store}."
    inline = next((f"{prefix}{part}" for part in _INLINE[store] if subject.get(f"{prefix}{part}")), "")
    of_file = f"{prefix}location" if subject.get(f"{prefix}type").upper() == "PEM" else ""
    for key, theirs in ((inline, f"ssl.{store}.location"), (of_file, f"ssl.{store}.password")):
        if subject.get(key) and subject.worker_property(f"producer.{theirs}"):
            return key, theirs
    return None


@rule("provider-unknown", "error", source="KIP-297", seen=f"{_SEEN}test_unknown_provider")
def provider_unknown(subject: Subject) -> Iterator[Hit]:
    """A placeholder names a config provider that the workers do not have.

    Workers replace ${name:path:key} by means of the providers in their config.providers. A name that is not among them is
    left as it stands, without an error: the literal text becomes the password, the path or the PEM, and what one sees is a failed
    login or a file that is not found.
    """
    if subject.worker.properties is None:
        return
    declared = f"{subject.worker_property('config.providers') or ''},{subject.get('config.providers')}"
    providers = {name.strip() for name in declared.split(",")}
    for key, value in subject.config.items():
        for name in dict.fromkeys(_PLACEHOLDER.findall(value)):
            if name not in providers:
                message = (
                    f"${{{name}:…}} in {written(subject, key)} stays as it is: the workers have no provider {name}"
                )
                fix = f"write config.providers={name} and config.providers.{name}.class in the workers' properties"
                yield Hit(message, fix, key)
