"""The brokers' answer to ApiVersions: read as Kafka 2.0.1 sent it, and never more than a remark from what is no broker."""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trustme

from mm2mgr.check.judge import REQUESTS
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.wire import decode, read_versions
from mm2mgr.sandbox.jars import kafka_jars, known_versions
from tests.live.test_security import identity

# Recorded from a broker of Kafka 2.0.1, the same on a plain, a TLS and (before the login) a SASL listener.
OF_2_0_1 = bytes.fromhex(
    "0000000100000000002b000000000006000100000008000200000003000300000006000400000001000500000000000600000004"
    "000700000001000800000004000900000004000a00000002000b00000003000c00000002000d00000002000e00000002000f0000"
    "0002001000000002001100000001001200000002001300000003001400000002001500000001001600000001001700000001"
    "001800000001001900000001001a00000001001b00000000001c00000001001d00000001001e00000001001f00000001002000"
    "000002002100000001002200000001002300000001002400000000002500000001002600000001002700000001002800000001"
    "002900000001002a00000001"
)
NEWER = struct.pack(">ihi", 1, 0, 2) + struct.pack(">hhh", 1, 4, 17) + struct.pack(">hhh", 23, 2, 4)
REQUEST = b"\x00\x00\x00\x10" + b"\x00\x12\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x06mm2mgr"


def framed(answer: bytes) -> bytes:
    return struct.pack(">i", len(answer)) + answer


@contextmanager
def answering(
    answer: bytes, wrap: Callable[[socket.socket], socket.socket] = lambda raw: raw, *, stays: bool = False
) -> Iterator[tuple[str, list[bytes]]]:
    """Answer every connection with these bytes, and keep what was asked."""
    asked: list[bytes] = []
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def serve() -> None:
            while not done.is_set():
                with suppress(OSError), wrap(server.accept()[0]) as connection:
                    connection.settimeout(5)
                    asked.append(connection.recv(4096))
                    connection.sendall(answer)
                    if stays:
                        done.wait(5)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", asked
        finally:
            done.set()
            thread.join()


def test_the_recorded_answer_of_an_old_broker_is_read() -> None:
    versions = decode(OF_2_0_1)
    assert len(versions) == 43
    assert {key: versions[key] for key in (0, 1, 23, 32)} == {0: (0, 6), 1: (0, 8), 23: (0, 1), 32: (0, 2)}
    assert 44 not in versions


def test_a_broker_is_asked_once_and_without_a_login() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="hunter2";'
    security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    with answering(framed(OF_2_0_1)) as (address, asked):
        assert read_versions(KafkaAccess("a", address, security), 5) == decode(OF_2_0_1)
    assert asked == [REQUEST]


def test_of_brokers_of_two_versions_what_both_take_counts() -> None:
    with answering(framed(OF_2_0_1)) as (old, _), answering(framed(NEWER)) as (new, _):
        for servers in (f"{old},{new}", f"PLAINTEXT://{new}, {old}"):
            assert read_versions(KafkaAccess("a", servers), 5) == {1: (4, 8), 23: (2, 1)}


def test_tls_is_verified_with_the_truststore_and_shows_the_certificate() -> None:
    authority, own = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    own.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    client = identity(own, "client")
    trust = {"security.protocol": "SSL", "ssl.truststore.type": "PEM"}
    trust |= {"ssl.truststore.certificates": authority.cert_pem.bytes().decode()}
    certificate = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": client.chain}
    certificate |= {"ssl.keystore.key": client.key}
    with answering(framed(OF_2_0_1), lambda raw: context.wrap_socket(raw, server_side=True)) as (address, _):
        assert read_versions(KafkaAccess("a", address, trust | certificate), 5) == decode(OF_2_0_1)
        other = trust | {"ssl.truststore.certificates": own.cert_pem.bytes().decode()}
        assert read_versions(KafkaAccess("a", address, other | certificate), 5) is None
        assert read_versions(KafkaAccess("a", address, trust), 5) is None
        name = KafkaAccess("a", address.replace("127.0.0.1", "localhost"), trust | certificate)
        assert read_versions(name, 5) is None  # its certificate has another name
        unnamed = {"ssl.endpoint.identification.algorithm": ""}
        assert read_versions(KafkaAccess("a", name.bootstrap_servers, trust | certificate | unnamed), 5)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x00",
        framed(b""),
        framed(OF_2_0_1)[:-3],
        framed(OF_2_0_1[:8]),
        framed(b"\x00\x00\x00\x02" + OF_2_0_1[4:]),  # to another request
        framed(OF_2_0_1[:4] + b"\x00\x23" + OF_2_0_1[6:]),  # an error
        framed(OF_2_0_1[:6] + b"\x7f\xff\xff\xff" + OF_2_0_1[10:]),  # more than it holds
        framed(OF_2_0_1[:6] + b"\xff\xff\xff\xff" + OF_2_0_1[10:]),
        b"\x7f\xff\xff\xff" + OF_2_0_1,
        b"\xff\xff\xff\xff",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_what_is_no_broker_tells_nothing(answer: bytes) -> None:
    with answering(answer) as (address, _):
        assert read_versions(KafkaAccess("a", address), 5) is None


def test_a_silent_one_leaves_time_for_the_others() -> None:
    with answering(b"", stays=True) as (silent, _), answering(framed(NEWER)) as (address, _):
        assert read_versions(KafkaAccess("a", f"{silent},{address}"), 0.4) == decode(NEWER)
        assert read_versions(KafkaAccess("a", silent), 0.2) is None


@pytest.mark.parametrize(
    "servers", ["", "broker", "broker:", ":9092", "a:99999999", "${env:NO_SUCH_VARIABLE}:9092", "a b:1"]
)
def test_addresses_that_are_none_tell_nothing(servers: str) -> None:
    assert read_versions(KafkaAccess("a", servers), 1) is None


def test_a_store_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    for store in (
        {"ssl.truststore.location": "t.jks"},
        {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/no"},
    ):
        assert read_versions(KafkaAccess("a", "127.0.0.1:1", {"security.protocol": "SSL", **store}), 1) is None


@pytest.mark.live
@pytest.mark.parametrize("version", [version for version in known_versions() if version.startswith("4.")])
def test_the_least_versions_are_those_of_kafkas_own_message_files(version: str) -> None:
    (clients,) = (jar for jar in kafka_jars(version) if jar.name.startswith("kafka-clients-"))
    of_kafka = {}
    with zipfile.ZipFile(clients) as jar:
        for name in jar.namelist():
            if re.fullmatch(r"common/message/\w+Request\.json", name):
                message = json.loads(re.sub(r"//.*", "", jar.read(name).decode()))
                if message["validVersions"] != "none":
                    of_kafka[message["name"]] = message["apiKey"], int(message["validVersions"].partition("-")[0])
    assert {request.name: of_kafka[f"{request.name}Request"] for request in REQUESTS} == {
        request.name: (request.key, request.least) for request in REQUESTS
    }
