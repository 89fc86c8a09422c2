"""Encrypted client keys: their password is a field of the tree; without it, or with a wrong one, a sentence and no prompt."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.client import Kafka
from mm2mgr.samples.http import Endpoint, Http, SourceError
from tests.cli.command import Command
from tests.fake_connect import FakeConnect, serving

PASSWORD = "s3cr3t of the key"


@dataclass(frozen=True)
class Files:
    ca: Path
    certificate: Path
    key: Path
    encrypted: str


@pytest.fixture
def files(tmp_path: Path) -> Files:
    ca = trustme.CA()
    mine = ca.issue_cert("client@example.org")
    key = load_pem_private_key(mine.private_key_pem.bytes(), None)
    form = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode()))
    made = Files(tmp_path / "ca.pem", tmp_path / "c.pem", tmp_path / "k.pem", key.private_bytes(*form).decode())
    ca.cert_pem.write_to_path(str(made.ca))
    made.certificate.write_bytes(b"".join(blob.bytes() for blob in mine.cert_chain_pems))
    made.key.write_text(made.encrypted)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(server)
    ca.issue_cert("127.0.0.1").configure_cert(server)
    object.__setattr__(made, "server", server)
    return made


@pytest.fixture
def url(files: Files) -> Iterator[str]:
    with serving(FakeConnect(cluster_id="b"), vars(files)["server"]) as found:
        yield found


def declared(mm2mgr: Command, files: Files, url: str, password: str | None) -> None:
    tls = {"ca": str(files.ca), "certificate": str(files.certificate), "key": str(files.key)}
    tree = {
        "owner": "team",
        "clusters": {alias: {"bootstrap_servers": [f"{alias}:1"], "cluster_id": alias} for alias in ("a", "b")},
        "connect": {"w": {"url": url, "kafka": "b", "tls": tls | ({"key_password": password} if password else {})}},
    }
    mm2mgr.tree.mkdir()
    (mm2mgr.tree / "tree.yaml").write_text(json.dumps(tree))


def test_connect_is_reached_with_an_encrypted_key(
    mm2mgr: Command, files: Files, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_PASSWORD", PASSWORD)
    declared(mm2mgr, files, url, "${env:KEY_PASSWORD}")
    assert "0 to create" in mm2mgr("plan").out


@pytest.mark.parametrize("password", [None, "wrong"])
def test_connect_is_not_reached_without_the_password(
    mm2mgr: Command, files: Files, url: str, password: str | None
) -> None:
    declared(mm2mgr, files, url, password)
    told = mm2mgr("plan", code=1)
    assert f"the TLS files cannot be used ({files.ca}, {files.certificate}, {files.key})" in told.out + told.err
    assert "an encrypted key needs `key_password`" in told.out + told.err


def test_a_password_that_is_not_on_this_machine_is_named(mm2mgr: Command, files: Files, url: str) -> None:
    declared(mm2mgr, files, url, "${env:NO_SUCH_PASSWORD}")
    told = mm2mgr("plan", code=1)
    assert (
        "Connect cluster 'w', tls.key_password: ${env:NO_SUCH_PASSWORD} has no value on this machine"
        in told.out + told.err
    )


def test_a_metric_source_is_asked_with_an_encrypted_key(files: Files, url: str) -> None:
    own = (str(files.ca), str(files.certificate), str(files.key))
    with Http(Endpoint("Prometheus of 'a'", url, None, None, *own, PASSWORD)) as http:
        assert http.get("/", {}).json["kafka_cluster_id"] == "b"
    for password in (None, "wrong"):
        with pytest.raises(SourceError, match=r"Prometheus of 'a' at .*: the TLS files cannot be used") as caught:
            Http(Endpoint("Prometheus of 'a'", url, None, None, *own, password))
        assert "an encrypted key needs `key_password`" in str(caught.value.hint)


@pytest.mark.parametrize("in_file", [True, False])
def test_kafka_takes_an_encrypted_key_with_its_password(files: Files, in_file: bool) -> None:
    stored = files.key.with_name("store.pem")
    stored.write_text(files.encrypted + files.certificate.read_text())
    store = {"ssl.keystore.location": str(stored)}
    inline = {"ssl.keystore.key": files.encrypted, "ssl.keystore.certificate.chain": files.certificate.read_text()}
    security = {"security.protocol": "SSL", "ssl.keystore.type": "PEM", **(store if in_file else inline)}
    good = KafkaAccess("a", "127.0.0.1:1", {**security, "ssl.key.password": PASSWORD})
    assert librdkafka_config(good)["ssl.key.password"] == PASSWORD
    with Kafka(good, 0.1):
        pass  # the client was made: the key was read
    for password in ({}, {"ssl.key.password": "wrong"}):
        with pytest.raises(KafkaError) as caught:
            Kafka(KafkaAccess("a", "127.0.0.1:1", {**security, **password}), 0.1)
        assert "ssl.key.password" in caught.value.message + str(caught.value.hint)
        assert "wrong" not in caught.value.message
