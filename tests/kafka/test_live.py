"""One real broker with an open, a password and a TLS listener: what the mock brokers cannot show."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives import serialization

from mm2mgr.errors import KafkaError
from mm2mgr.kafka import records
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.compacted import CompactedTopic
from mm2mgr.kafka.lease import Holder, Lease, read_holder
from mm2mgr.kafka.records import Producer, commit_group, mean_record_bytes, read, read_logs
from mm2mgr.link import BrokerLimits
from mm2mgr.live.questions import TranslatedGroups
from mm2mgr.live.reach import KafkaReach, Limits
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.samples.readers import KafkaReader
from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.topics.names import NameFilter
from tests.cli.command import Command, allowed_seconds
from tests.cli.conftest import mm2mgr
from tests.live.transactions import Transactions

__all__ = ["mm2mgr"]
pytestmark = pytest.mark.live
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    for name, host in (("broker", "127.0.0.1"), ("client", "client.example")):
        identity = authority.issue_cert(host)
        chain = b"".join(pem.bytes() for pem in identity.cert_chain_pems)
        (directory / f"{name}.pem").write_bytes(_pkcs8(identity.private_key_pem.bytes()) + chain)
    trustme.CA().cert_pem.write_to_path(directory / "stranger.pem")
    return directory


def _pkcs8(pem: bytes) -> bytes:
    """Rewrite a key in the only form that Kafka reads."""
    key = serialization.load_pem_private_key(pem, password=None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.fixture(scope="module")
def broker(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.password.plain.sasl.jaas.config": f'{PLAIN} required user_alice="right pass";',
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.tls.ssl.keystore.location": str(certificates / "broker.pem"),
        "listener.name.tls.ssl.truststore.type": "PEM",
        "listener.name.tls.ssl.truststore.location": str(certificates / "ca.pem"),
        "listener.name.tls.ssl.client.auth": "required",
    }
    listeners = {"PLAINTEXT": "PLAINTEXT", "PASSWORD": "SASL_PLAINTEXT", "TLS": "SSL"}
    with Broker("dc1", tmp_path_factory.mktemp("dc1"), properties, listeners=listeners) as running:
        yield running


@pytest.fixture
def access(broker: Broker) -> KafkaAccess:
    return KafkaAccess("dc1", broker.bootstrap_servers)


def login(broker: Broker, password: str) -> KafkaAccess:
    jaas = f'{PLAIN} required username="alice" password="{password}";'
    security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    return KafkaAccess("dc1", broker.bootstrap("PASSWORD"), security)


def tls(broker: Broker, certificates: Path, trusted: str) -> KafkaAccess:
    security = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / trusted),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / "client.pem"),
    }
    return KafkaAccess("dc1", broker.bootstrap("TLS"), security)


def delete(access: KafkaAccess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": access.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(60)
    deadline = time.monotonic() + 60
    while topic in admin.list_topics(timeout=30).topics:
        assert time.monotonic() < deadline, "the topic is still there"


def test_topics_are_created_once_and_described(access: KafkaAccess) -> None:
    with Kafka(access) as kafka:
        assert kafka.create_topics({"made": (3, 1, {"retention.ms": "7200000"})}) == ["made"]
        assert kafka.create_topics({"made": (3, 1, {}), "more": (1, 1, {})}) == ["more"]
        made = kafka.topics()["made"]
        assert (made.partitions, made.internal) == (3, False)
        assert made.topic_id
        assert len(kafka.cluster_id()) == 22


def test_a_refused_topic_names_the_topic_and_the_reason(access: KafkaAccess) -> None:
    with Kafka(access) as kafka, pytest.raises(KafkaError, match=r"dc1: creating topic wide failed.*eplication"):
        kafka.create_topics({"wide": (1, 3, {})})


def test_records_written_are_the_records_read_and_sized(access: KafkaAccess) -> None:
    partition = TopicPartition("written", 1)
    with Kafka(access) as kafka:
        kafka.create_topics({"written": (2, 1, {})})
        with Producer(access) as producer:
            for number in range(100):
                producer.send(partition, b"%03d" % number, key=b"key", timestamp_ms=1_700_000_000_000 + number)
        offsets = kafka.offsets([partition])
    assert offsets == {partition: Offsets(0, 100)}
    assert mean_record_bytes(access, offsets) == {partition: 6.0}
    records = list(read(access, [partition]))
    assert [record.value for record in records] == [b"%03d" % number for number in range(100)]
    assert records[7].timestamp_ms == 1_700_000_000_007


def test_a_topic_deleted_between_listing_and_reading_is_reported(access: KafkaAccess) -> None:
    partition, kept = TopicPartition("short-lived", 0), TopicPartition("kept", 0)
    with Kafka(access, timeout_seconds=5) as kafka:
        kafka.create_topics({"short-lived": (1, 1, {}), "kept": (1, 1, {})})
        before = kafka.topics()["short-lived"].topic_id
        assert set(kafka.offsets([partition, kept])) == {partition, kept}
        delete(access, "short-lived")
        deadline = time.monotonic() + 60
        while partition in (answer := kafka.read_offsets([partition, kept])).found:
            assert time.monotonic() < deadline, "the old leader still answers"  # it does so for a moment
        assert set(answer.found) == {kept}
        assert set(answer.failed) == {partition}
        kafka.create_topics({"short-lived": (1, 1, {})})
        assert kafka.topics()["short-lived"].topic_id != before


def test_a_poll_samples_every_partition_but_not_kafkas_own(access: KafkaAccess) -> None:
    with Kafka(access) as kafka:
        kafka.create_topics({"polled": (4, 1, {})})
    reader = KafkaReader(access, lambda topic: topic == "polled")
    (batch,) = reader.poll().batches
    reader.close()
    assert (batch.cluster, list(batch.topics), list(batch.partitions)) == ("dc1", ["polled"] * 4, list(range(4)))
    assert batch.topic_ids
    assert all(batch.topic_ids)
    assert list(batch.end_offset or []) == [0] * 4
    assert abs(batch.time_ms - time.time() * 1000) < 60_000


def test_a_password_login_works_and_a_wrong_one_is_told_without_it(broker: Broker) -> None:
    with Kafka(login(broker, "right pass"), timeout_seconds=5) as kafka:
        assert kafka.cluster_id()
    with Kafka(login(broker, "wrong pass"), timeout_seconds=2) as kafka, pytest.raises(KafkaError) as caught:
        kafka.topics()
    assert "uthentication" in caught.value.message
    assert "login" in str(caught.value.hint)
    assert "wrong pass" not in caught.value.message


def test_mutual_tls_works_and_an_unknown_authority_is_told(broker: Broker, certificates: Path) -> None:
    with Kafka(tls(broker, certificates, "ca.pem"), timeout_seconds=5) as kafka:
        assert kafka.cluster_id()
    with (
        Kafka(tls(broker, certificates, "stranger.pem"), timeout_seconds=2) as kafka,
        pytest.raises(KafkaError) as caught,
    ):
        kafka.topics()
    assert "certificate verify failed" in caught.value.message


# --- what brokers allow, and how far away they are --------------------------------------------------------------------


def test_groups_are_those_that_are_wanted_and_read_what_is_carried(access: KafkaAccess) -> None:
    with Kafka(access) as kafka:
        kafka.create_topics({"taken": (1, 1, {}), "other": (1, 1, {})})
    for group, topic in (("billing", "taken"), ("search", "other"), ("tmp-1", "taken")):
        commit_group(access, group, {TopicPartition(topic, 0): 0})
    asked = TranslatedGroups("a", NameFilter(("billing", "search", "idle"), ()), NameFilter(("taken",), ()))
    assert asked.ask(KafkaReach(access, Limits())) == ("billing",)


def test_one_of_two_members_holds_the_lease_and_others_are_told_who(
    access: KafkaAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the topic has three partitions, which is refused at the start: somebody may add them later."""
    group, topic = "mm2mgr-team", CompactedTopic(access, "three", 1, {"cleanup.policy": "compact"})
    with Kafka(access) as kafka:
        kafka.create_topics({"three": (3, 1, {"cleanup.policy": "compact"})})
    with pytest.raises(KafkaError, match="topic three has 3 partitions: mm2mgr needs exactly one"):
        Lease(topic, group)
    assert read_holder(access, "three", group) is None
    monkeypatch.setattr(CompactedTopic, "check_partitions", lambda self: None)
    leases = [Lease(topic, group) for _ in range(2)]
    try:
        assert all(lease.answered.wait(60) for lease in leases)
        holder = confirmed_holder(leases, "by ann, commit abc123")
        assert not any(lease.confirm("no") for lease in leases if lease is not holder)
        assert told_holder(access, group) == Holder("127.0.0.1", "by ann, commit abc123")
        holder.close()
        leases.remove(holder)
        assert holders(leases) == leases
        assert read_holder(access, "three", group) == Holder("127.0.0.1", ""), "not the note of the former holder"
    finally:
        for lease in leases:
            lease.close()
    assert read_holder(access, "three", group) is None


def confirmed_holder(leases: list[Lease], note: str) -> Lease:
    """Return the lease that its brokers confirm: partition 0 may change hands when a second member comes."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for lease in holders(leases):
            if lease.confirm(note):
                return lease
    raise AssertionError("no lease was confirmed")


def holders(leases: list[Lease]) -> list[Lease]:
    """Return the leases that are held, once one is: partition 0 may change hands when a second member comes."""
    deadline = time.monotonic() + 60
    while not any(lease.is_held for lease in leases) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [lease for lease in leases if lease.is_held]


def told_holder(access: KafkaAccess, group: str) -> Holder | None:
    """Ask until no rebalance is on its way; each answer comes in time."""
    deadline = time.monotonic() + 60
    while True:
        began = time.monotonic()
        holder = read_holder(access, "three", group)
        assert time.monotonic() - began < 2 * allowed_seconds()
        if (holder and holder.note) or time.monotonic() > deadline:
            return holder
        time.sleep(0.2)


@pytest.fixture
def link(mm2mgr: Command, broker: Broker, certificates: Path) -> Command:
    """The command in a tree whose three clusters are the listeners of the broker: open, mutual TLS, and one that refuses the login."""
    security = ", ".join(f"{key}: {value}" for key, value in tls(broker, certificates, "ca.pem").security.items())
    refused = login(broker, "wrong").security
    jaas = refused["sasl.jaas.config"]
    mm2mgr.tree.mkdir()
    (mm2mgr.tree / "tree.yaml").write_text(f"""\
owner: live
clusters:
  open: {{bootstrap_servers: ["{broker.bootstrap_servers}"]}}
  tls: {{bootstrap_servers: ["{broker.bootstrap("TLS")}"], security: {{{security}}}}}
  locked:
    bootstrap_servers: ["{broker.bootstrap("PASSWORD")}"]
    security: {{protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, sasl.jaas.config: '{jaas}'}}
connect:
  w: {{url: "http://localhost:8083", kafka: tls}}
flows:
  f: {{sources: [open], targets: [tls], topics: {{include: [limited]}}}}
""")
    return mm2mgr


def test_link_read_writes_what_brokers_and_topics_allow_and_a_refused_login_keeps_its_entry(
    link: Command, access: KafkaAccess
) -> None:
    with Kafka(access) as kafka:
        kafka.create_topics({"limited": (1, 1, {}), "open.limited": (1, 1, {"max.message.bytes": "500000"})})
    file = link.tree / "overrides" / "brokers.yaml"
    assert (
        link("link", "read", "open", "tls", "--check", code=2).out.count("+    socket.send.buffer.bytes: 102400") == 2
    )
    assert not file.exists()
    link("link", "read", "open", "tls")
    written = file.read_text()
    found = Workspace((link.tree,)).topology
    assert found.clusters["open"].limits == BrokerLimits(version="4.0", read=True)
    assert found.flows[0].target_limits.message_bytes == 500_000

    said = link("link", "read", "--timeout", "20", code=1)  # the login of `locked` is wrong
    assert "locked: " in said.err
    assert "its entry stays as it is" in said.err
    assert "wrong" not in said.out + said.err
    assert file.read_text() == written
    file.write_text(written.replace("socket.send.buffer.bytes: 102400", "socket.send.buffer.bytes: -1"))
    said = link("link", "read", "open", "--check", code=2)
    assert "-    socket.send.buffer.bytes: -1" in said.lines
    assert "+    socket.send.buffer.bytes: 102400" in said.lines


def test_link_probe_times_brokers_behind_tls_and_says_why_it_cannot(link: Command) -> None:
    said = link("link", "probe", "open", "tls", "--timeout", "20", "-o", "json")
    ends = said.json["ends"]
    assert [len(end["brokers"]) for end in ends] == [1, 1]
    assert all(each["request_seconds"] and not each["why"] for end in ends for each in end["brokers"])
    assert said.json["entry"]["between"] == ["open", "tls"]
    refused = link("link", "probe", "open", "locked", "--timeout", "20", code=1).err
    assert "locked: " in refused
    assert "check security.protocol, the login" in refused
    assert "wrong" not in refused


@pytest.mark.parametrize("way", [("--topic", "probed"), ("--temporary-topic",)])
def test_link_probe_measures_a_bandwidth_and_leaves_nothing_behind(
    link: Command, access: KafkaAccess, way: tuple[str, ...]
) -> None:
    with Kafka(access) as kafka:
        kafka.create_topics({"probed": (2, 1, {})})
        before = {name for name, topic in kafka.topics().items() if not topic.internal}
    with Producer(access) as producer:
        for number in range(100):
            producer.send(("probed", number % 2), bytes(10_000))
    bounds = ("--bytes", "20 MB", "--seconds", "20", "--connections", "3")
    found = link("link", "probe", "open", "tls", "--bandwidth", *way, *bounds, "-o", "json").json
    moved = found["transfer"]
    assert moved["connections"] == 3
    assert moved["bytes"] >= 20_000_000 or moved["seconds"] >= 15
    assert moved["bytes_per_second"] > 0
    assert any("the topic is small" in remark for remark in found["remarks"]) == ("--topic" in way)
    with Kafka(access) as kafka:
        assert {name for name, topic in kafka.topics().items() if not topic.internal} == before


def test_link_probe_reads_only_topics_with_records(link: Command, access: KafkaAccess) -> None:
    with Kafka(access) as kafka:
        kafka.create_topics({"hollow": (1, 1, {})})
    probe = ("link", "probe", "open", "tls", "--bandwidth", "--topic")
    assert "topic 'hollow' has no records" in link(*probe, "hollow", code=1).err
    assert "no topic 'absent'" in link(*probe, "absent", code=1).err


def test_an_open_transaction_ends_a_log_in_bulk_too(access: KafkaAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_PARTITIONS_PER_CALL", 1)
    both = [TopicPartition("transactional", number) for number in range(2)]
    with Kafka(access) as kafka:
        kafka.create_topics({"transactional": (2, 1, {})})
        transactions = Transactions(access, "open")
        transactions.begin()
        transactions.produce("transactional", b"x", partition=1)
        transactions.flush()
        ends = {
            committed: [log.end for log in read_logs(kafka, both, (), committed=committed).found.values()]
            for committed in (False, True)
        }
        transactions.abort()
    assert {committed: sorted(found) for committed, found in ends.items()} == {False: [0, 1], True: [0, 0]}
