"""A source that asks for a password over TLS and a target that asks for a certificate, through plain text declarations.

The three places a worker can live: on a third Kafka, on the target's own with `producer.*` security, or without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.quotas import QuotaEntity, read_quotas, write_quotas
from mm2mgr.kafka.wire import read_versions
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import Runtime
from mm2mgr.sandbox.server import write_properties

from .command import Tree
from .conftest import WORKER, serving
from .seen import Message, admin, commit, committed, create, messages, topics, until, write

pytestmark = pytest.mark.live

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PASSWORDS = {"mirror": 'm1rror="of; glass', "reader": "r3ader's own"}
RECORDS = [
    Message(0, b"key", b"value", (("trace", b"\x00\xff"), ("trace", b"again"), ("nothing", None)), 1_700_000_000_123),
    Message(0, b"\x01v\xff", b"\xfe\xff not UTF-8", (), 1_700_000_000_001),  # older than the one before it
    Message(0, b"gone", None, (("why", b"tombstone"),), 1_600_000_000_000),
    Message(0, None, b"", (("", b""),), 1),
    Message(2, None, b'{"schema": null}', (), 1_750_000_000_000),
]


@dataclass(frozen=True)
class Identity:
    """A private key as Kafka reads it (PKCS#8) and its certificate chain, both PEM text."""

    key: str
    chain: str


def identity(authority: trustme.CA, host: str) -> Identity:
    made = authority.issue_cert(host)
    key = serialization.load_pem_private_key(made.private_key_pem.bytes(), password=None)
    pkcs8 = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Identity(pkcs8.decode(), "".join(pem.bytes().decode() for pem in made.cert_chain_pems))


@dataclass(frozen=True)
class World:
    """`vault` (SASL_SSL) and `agg` (mutual TLS), which trust different authorities, and a plain `third`."""

    vault: Broker
    agg: Broker
    third: Broker
    vault_authority: str
    agg_authority: str
    client: Identity
    folder: Path

    @property
    def vault_security(self) -> dict[str, str]:
        return self.vault_login("mirror")

    def vault_login(self, user: str) -> dict[str, str]:
        password = json.dumps(PASSWORDS[user])
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM} username="{user}" password={password};',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.vault_authority,
        }

    @property
    def agg_security(self) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.agg_authority,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": self.client.chain,
            "ssl.keystore.key": self.client.key,
        }

    @property
    def source(self) -> KafkaAccess:
        return KafkaAccess("vault", self.vault.bootstrap("SECURE"), self.vault_security)

    @property
    def target(self) -> KafkaAccess:
        return KafkaAccess("agg", self.agg.bootstrap("SECURE"), self.agg_security)

    def secrets(self) -> set[str]:
        """Return every text that must not be printed, as it is and as it stands inside a JAAS string or JSON."""
        words = {json.dumps(word)[1:-1] for word in PASSWORDS.values()} | set(PASSWORDS.values())
        return words | set(re.findall(r"^[A-Za-z0-9+/=]{40,}$", self.client.key, re.MULTILINE))


def secure_listener(own: Identity, more: Mapping[str, str]) -> dict[str, str]:
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": own.chain, "ssl.keystore.key": own.key}
    return {f"listener.name.secure.{key}": value for key, value in {**settings, **more}.items()}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("security")
    vault_ca, agg_ca = trustme.CA(), trustme.CA()
    vault_ca_text, agg_ca_text = (ca.cert_pem.bytes().decode() for ca in (vault_ca, agg_ca))
    passwords = {"sasl.enabled.mechanisms": "SCRAM-SHA-512", "scram-sha-512.sasl.jaas.config": f"{SCRAM};"}
    certificates = {"ssl.client.auth": "required", "ssl.truststore.type": "PEM"}
    certificates |= {"ssl.truststore.certificates": agg_ca_text}
    vault = Broker(
        "vault",
        folder / "vault",
        secure_listener(identity(vault_ca, "127.0.0.1"), passwords),
        listeners={"INSIDE": "PLAINTEXT", "SECURE": "SASL_SSL"},
        runtime=runtime,
    )
    agg = Broker(
        "agg",
        folder / "agg",
        secure_listener(identity(agg_ca, "127.0.0.1"), certificates),
        listeners={"INSIDE": "PLAINTEXT", "SECURE": "SSL"},
        runtime=runtime,
    )
    # Here a record that goes astray finds a topic to land in.
    third = Broker("third", folder / "third", {"auto.create.topics.enable": "true"}, runtime=runtime)
    with serving([vault, agg, third]):
        made = World(vault, agg, third, vault_ca_text, agg_ca_text, identity(agg_ca, "mirror.example"), folder)
        add_users(vault)
        yield made


def add_users(broker: Broker) -> None:
    client = admin(KafkaAccess("inside", broker.bootstrap("INSIDE")))
    strength = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    users: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(user, strength, word.encode()) for user, word in PASSWORDS.items()
    ]
    for future in client.alter_user_scram_credentials(users).values():
        future.result(30)


def worker_providers(folder: Path) -> dict[str, str]:
    """Let a worker resolve `${file:…}`, and `${workers:…}`, which mm2mgr does not know."""
    file_provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
    named = {f"config.providers.{name}.class": file_provider for name in ("file", "workers")}
    allowed = {f"config.providers.{name}.param.allowed.paths": str(folder) for name in ("file", "workers")}
    return {"config.providers": "file,workers", **named, **allowed}


def kept_in(path: Path, prefix: str, settings: Mapping[str, str], provider: str = "file") -> dict[str, str]:
    """Write the secret settings into a properties file and return the settings with placeholders in their place."""
    secret = {key: value for key, value in settings.items() if "\n" in value or "jaas" in key}
    write_properties(path, {f"{prefix}.{key}": value for key, value in secret.items()})
    return {**settings, **{key: f"${{{provider}:{path}:{prefix}.{key}}}" for key in secret}}


@dataclass(frozen=True)
class Declared:
    """What a tree says of this world."""

    vault: Mapping[str, object]
    agg: Mapping[str, object]
    connect: Mapping[str, object]
    topic: str
    third: str

    def yaml(self) -> str:
        """Return the tree; every value is JSON, which YAML contains."""
        flow = {
            "sources": ["vault"],
            "targets": ["agg"],
            "run_on": "mover",
            "topics": {"include": [self.topic]},
            "refresh_interval": "2s",
            "checkpoints": {"group_offsets": True, "interval": "1s", "groups": {"include": [f"{self.topic}-readers"]}},
        }
        clusters = {"vault": self.vault, "agg": self.agg, "third": {"bootstrap_servers": [self.third]}}
        parts = {
            "owner": "security",
            "defaults": {"clusters": {"replication_factor": 1}},
            "clusters": clusters,
            "connect": {"mover": self.connect},
            "flows": {"pay": flow},
        }
        return "".join(f"{key}: {json.dumps(value)}\n" for key, value in parts.items())


def prepare(world: World, topic: str) -> None:
    create(world.source, [topic], partitions=3)
    write(world.source, topic, RECORDS)
    commit(world.source, f"{topic}-readers", topic, 3)


def mirror(world: World, tree: Tree, topic: str) -> None:
    """Apply, and see records, heartbeats and checkpoints cross; then see that nothing secret was printed."""
    beats = len(messages(world.target, "vault.heartbeats"))
    tree.run("plan", "--full")
    tree.run("apply", "--yes")
    arrived = until(lambda: messages(world.target, f"vault.{topic}"), lambda found: len(found) >= len(RECORDS))
    assert arrived == RECORDS
    until(lambda: len(messages(world.target, "vault.heartbeats")), lambda count: count > beats, "no heartbeat crossed")
    group = f"{topic}-readers"
    checkpoints = until(lambda: messages(world.target, "vault.checkpoints.internal"), lambda found: named(found, group))
    assert named(checkpoints, topic)
    assert 0 < until(lambda: committed(world.target, group, f"vault.{topic}"), lambda offset: offset > 0) <= 3
    until(lambda: tree.json("status")["health"], lambda health: health == "ok", "not healthy")
    for command in ("status", "describe pay", "render --origins", "render -o json", "plan -o json"):
        tree.run(*command.split())
    assert_silent(world, tree)


def named(found: list[Message], name: str) -> bool:
    return any(name.encode() in (message.key or b"") for message in found)


def assert_silent(world: World, tree: Tree) -> None:
    said = "\n".join(tree.said)
    assert "mm2.vault.agg.source.pay" in said
    leaked = [secret for secret in world.secrets() if secret in said]
    assert not leaked, f"{len(leaked)} secret texts were printed"


def test_client_quotas_are_reached_with_the_logins_of_other_clients(world: World) -> None:
    """SCRAM over TLS works; a client certificate must be in a file, since Python's TLS takes none from memory."""
    entity = QuotaEntity("mm2mgr.test/f:a->vault", "mirror")
    assert write_quotas(world.source, {entity: 5_000_000}) == {}
    until(lambda: read_quotas(world.source), lambda found: found.rates == {entity: 5e6})
    assert write_quotas(world.source, {entity: None}) == {}
    with pytest.raises(KafkaError, match=r"agg: asking about client quotas failed: .*not in a PEM file") as refused:
        read_quotas(world.target)
    assert not [secret for secret in world.secrets() if secret in refused.value.one_line]


def test_workers_on_a_third_kafka_with_placeholders(world: World, tree: Tree, runtime: Runtime) -> None:
    prepare(world, "placed")
    of_workers, own = world.folder / "workers", world.folder / "own"
    of_workers.mkdir()
    own.mkdir()
    vault = {
        "bootstrap_servers": [world.vault.bootstrap("SECURE")],
        "security": kept_in(of_workers / "vault.properties", "vault", world.vault_security),
        "access": {"security": kept_in(own / "vault.properties", "reader", world.vault_login("reader"))},
    }
    agg = {
        "bootstrap_servers": [world.agg.bootstrap("SECURE")],
        "security": kept_in(of_workers / "agg.properties", "agg", world.agg_security, provider="workers"),
        "access": {"security": kept_in(own / "agg.properties", "agg", world.agg_security)},
    }
    bootstrap = world.third.bootstrap_servers
    properties = {**WORKER, **worker_providers(of_workers)}
    with serving([worker := Worker("mover", world.folder / "third-mover", bootstrap, properties, runtime=runtime)]):
        connect = {"url": [worker.url], "kafka": "third"}
        tree.write(Declared(vault, agg, connect, "placed", bootstrap).yaml())
        mirror(world, tree, "placed")
        found = topics(KafkaAccess("third", bootstrap))
    strangers = {name for name in found if not name.startswith(("__", "connect-mover-", "mm2mgr.history."))}
    assert strangers == set(), "records went to the workers' own Kafka"


@pytest.mark.parametrize("producer_security", ["worker", "connector"])
def test_workers_on_the_target_itself(world: World, tree: Tree, runtime: Runtime, producer_security: str) -> None:
    """Secrets stand in the tree itself here, so only masking keeps them out of what is printed."""
    topic = f"inline-{producer_security}"
    prepare(world, topic)
    vault = {"bootstrap_servers": [world.vault.bootstrap("SECURE")], "security": world.vault_security}
    agg = {"bootstrap_servers": [world.agg.bootstrap("SECURE")], "security": world.agg_security}
    properties = {**WORKER, **world.agg_security}
    if producer_security == "worker":
        properties |= {f"producer.{key}": value for key, value in world.agg_security.items()}
    bootstrap, folder = world.agg.bootstrap("SECURE"), world.folder / topic
    with serving([worker := Worker(topic, folder, bootstrap, properties, runtime=runtime)]):
        connect = {"url": [worker.url], "kafka": "agg", "producer_security": producer_security}
        tree.write(Declared(vault, agg, connect, topic, world.third.bootstrap_servers).yaml())
        mirror(world, tree, topic)


def test_brokers_say_before_any_login_which_requests_they_take(world: World) -> None:
    plain = KafkaAccess("third", world.third.bootstrap_servers)
    other = world.vault_login("reader") | {"sasl.jaas.config": f'{SCRAM} username="nobody" password="not-it";'}
    stranger = KafkaAccess("vault", world.vault.bootstrap("SECURE"), other)
    answers = [read_versions(access, 20) for access in (plain, world.source, world.target, stranger)]
    assert answers[0] is not None
    assert answers == answers[:1] * 4
    assert answers[0][1][1] >= 17  # Fetch
    untrusting = KafkaAccess(
        "vault", stranger.bootstrap_servers, other | {"ssl.truststore.certificates": world.agg_authority}
    )
    assert read_versions(untrusting, 20) is None
