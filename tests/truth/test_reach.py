"""The reach table asked as people would ask it; that it is true is the live test's part."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.connectors import ConnectorType
from mm2mgr.spec.scalars import SECURITY_KEYS
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import CLIENTS, CLUSTER_KEYS, Setting, clients, numbers, winners
from tests.truth.reaching import reached

PLAIN = Setting()
ON_TARGET = Setting(offset_syncs_location="target")
OWN_OFFSETS = Setting(offsets_storage_topic=True)
PREFIXES = sorted({layer.prefix for each in CLIENTS.values() for client in each for layer in client.layers})


def names(type_: ConnectorType, key: str, setting: Setting = PLAIN) -> list[str]:
    return [hit.client.name for hit in reached(type_, key, setting)]


@pytest.mark.parametrize("type_", CLIENTS)
def test_only_the_override_reaches_the_record_producer(type_: ConnectorType) -> None:
    found = [prefix for prefix in PREFIXES if "record producer" in names(type_, f"{prefix}linger.ms", OWN_OFFSETS)]
    assert found == ["producer.override."]


@pytest.mark.parametrize(
    ("key", "setting", "seen_by"),
    [
        ("producer.linger.ms", PLAIN, ["offset-syncs producer"]),
        ("source.producer.linger.ms", PLAIN, ["offset-syncs producer"]),
        ("source.producer.linger.ms", ON_TARGET, []),
        ("target.producer.linger.ms", PLAIN, []),
        ("target.producer.linger.ms", ON_TARGET, ["offset-syncs producer"]),
        ("target.producer.linger.ms", Setting(offset_syncs_location="target", offset_syncs=False), []),
        ("consumer.fetch.max.bytes", PLAIN, ["source consumer"]),
        ("target.consumer.fetch.max.bytes", PLAIN, []),
        ("consumer.override.fetch.max.bytes", PLAIN, []),
        ("consumer.override.fetch.max.bytes", OWN_OFFSETS, ["framework offsets consumer"]),
        ("consumer.override.fetch.max.bytes", Setting(exactly_once=True), ["framework offsets consumer"]),
        ("admin.override.retries", PLAIN, []),
        ("admin.override.retries", Setting(topic_creation=True), ["framework admin"]),
        ("admin.retries", PLAIN, ["source admin", "target admin", "offset-syncs admin"]),
        ("source.cluster.client.rack", PLAIN, []),
        ("source.cluster.security.providers", PLAIN, []),
        ("source.cluster.consumer.client.rack", PLAIN, []),
        ("target.cluster.sasl.mechanism", PLAIN, ["target admin"]),
        ("linger.ms", OWN_OFFSETS, []),
        ("security.protocol", OWN_OFFSETS, []),
        ("admin.timeout.ms", PLAIN, []),  # the connectors' own, not `timeout.ms` of an admin client
        ("consumer.poll.timeout.ms", PLAIN, []),
        ("consumer.enable.auto.commit", PLAIN, []),
        ("offset-syncs.producer.linger.ms", PLAIN, []),
    ],
)
def test_what_a_key_of_the_source_connector_reaches(key: str, setting: Setting, seen_by: list[str]) -> None:
    assert names("source", key, setting) == seen_by


def test_the_checkpoint_connector_reads_its_checkpoints_back_since_3_7_1() -> None:
    def reads_back(version: str) -> bool:
        return "checkpoints consumer" in names("checkpoint", "target.consumer.client.rack", Setting(version))

    assert [reads_back(version) for version in ("3.6.2", "3.7.0", "3.7.1", "3.8.0", "4.3.1")] == [0, 0, 1, 1, 1]


def test_the_nearest_prefix_wins() -> None:
    config = {f"{prefix}sasl.mechanism": prefix for prefix in PREFIXES}
    for backwards in (False, True):  # the order in the config says nothing
        ordered = dict(sorted(config.items(), reverse=backwards))
        won = {client.role: winners(client, ordered).get("sasl.mechanism") for client in clients("source", OWN_OFFSETS)}
        assert won == {
            "replication-consumer": "source.consumer.sasl.mechanism",
            "connector-producer": "producer.override.sasl.mechanism",
            "connector-consumer": "consumer.override.sasl.mechanism",
            "connector-adminclient": "admin.override.sasl.mechanism",
            "replication-source-admin": "source.admin.sasl.mechanism",
            "replication-target-admin": "target.admin.sasl.mechanism",
            "offset-syncs-source-producer": "source.producer.sasl.mechanism",
            "offset-syncs-source-admin": "source.admin.sasl.mechanism",
        }


@given(
    st.sampled_from(sorted(CLIENTS)),
    st.lists(st.sampled_from([f"{a}{b}" for a, b in itertools.product(PREFIXES, ("client.rack", "ssl.protocol"))])),
)
def test_what_wins_is_always_something_that_reaches(type_: ConnectorType, written: list[str]) -> None:
    config = dict.fromkeys(written, "x")
    for client in clients(type_, PLAIN):
        hits = {key: hit for key in config for hit in reached(type_, key, PLAIN) if hit.client == client}
        won = winners(client, config)
        assert set(won) == {hit.key for hit in hits.values()}
        for plain, key in won.items():
            assert hits[key].rank == max(hit.rank for hit in hits.values() if hit.key == plain)


def test_what_an_exactly_once_worker_decides_cannot_be_set() -> None:
    for exactly_once, reaches in ((False, ["record producer"]), (True, [])):
        setting = Setting(exactly_once=exactly_once)
        assert names("source", "producer.override.enable.idempotence", setting) == reaches


def test_a_setting_is_read_from_a_config() -> None:
    assert Setting.from_config({}) == Setting()
    config = {
        "offset-syncs.topic.location": "target",
        "offsets.storage.topic": "own",
        "topic.creation.default.partitions": "1",
        "emit.offset-syncs.enabled": "false",
    }
    wanted = Setting("3.9.2", "target", offsets_storage_topic=True, topic_creation=True, offset_syncs=False)
    assert Setting.from_config(config, "3.9.2") == wanted
    assert Setting.from_config(config, "3.8.1").offset_syncs
    assert not Setting.from_config({"offsets.storage.topic": " "}).offsets_storage_topic


def test_the_cluster_prefixes_pass_what_kafka_defines_for_them() -> None:
    """MirrorConnectorConfig and MirrorClientConfig take their security keys from the same two methods."""
    keys = load()
    defined = {name for name in keys.names("heartbeat") if name.startswith(("security.", "ssl.", "sasl."))}
    assert defined | {"bootstrap.servers"} == CLUSTER_KEYS


def test_roles_are_told_apart() -> None:
    for type_ in CLIENTS:
        roles = [client.role for client in CLIENTS[type_]]
        assert len(set(roles)) == len(roles)


def test_versions_are_compared_as_numbers() -> None:
    assert numbers("3.10.0") > numbers("3.9.2") > numbers("3.9")
    assert numbers("4.4.0-SNAPSHOT") == (4, 4, 0)


def test_the_declaration_takes_exactly_what_a_cluster_prefix_passes() -> None:
    assert CLUSTER_KEYS - {"bootstrap.servers"} == SECURITY_KEYS
