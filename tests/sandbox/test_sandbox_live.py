"""Real brokers and a real worker: they serve, survive a kill, speak TLS and SASL, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trustme
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from mm2mgr.errors import SandboxError
from mm2mgr.sandbox import layout
from mm2mgr.sandbox.kafka_servers import DIRECT, Broker, Worker
from mm2mgr.sandbox.layout import Sandbox
from mm2mgr.sandbox.runtime import kafka_runtime
from tests.examples import sampled

from .conftest import SMALL

pytestmark = pytest.mark.live

Value = TypeVar("Value")


Client = dict[str, Any]


def create_topic(client: Client, topic: str) -> None:
    admin = AdminClient(client)  # must outlive its futures
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def produce(client: Client, topic: str, values: list[bytes]) -> None:
    producer = Producer(client)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(client: Client, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**client, "group.id": f"test-{time.monotonic_ns()}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + 180
    try:
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
    finally:
        consumer.close()
    return values


def get_json(url: str) -> Any:
    with DIRECT.open(url, timeout=10) as answer:
        return json.load(answer)


def until(read: Callable[[], Value], wanted: Callable[[Value], bool]) -> Value:
    deadline = time.monotonic() + 180
    while not wanted(value := read()):
        assert time.monotonic() < deadline, value
        time.sleep(0.1)
    return value


def test_records_survive_the_kill_of_a_broker(sandbox: Sandbox) -> None:
    client = {"bootstrap.servers": sandbox.endpoints().bootstrap_servers["here"]}
    create_topic(client, "orders")
    before = b"before" * 100  # long enough to be compressed: the broker unpacks its lz4 library
    produce({**client, "compression.type": "lz4"}, "orders", [before])
    broker = sandbox.servers()["here"]
    broker.kill()
    unpacked = list(broker.directory.rglob("liblz4*"))
    assert unpacked, "what a JVM leaves when it is killed lies in its own directory"
    assert {each.name: each.running for each in sandbox.status()} == {"here": False, "there": True, "mover": True}
    assert sandbox.start().bootstrap_servers["here"] == client["bootstrap.servers"]
    assert not any(file.exists() for file in unpacked)
    produce(client, "orders", [b"after"])
    assert consume(client, "orders", 2) == [before, b"after"]


def test_topics_and_records_need_no_client(sandbox: Sandbox) -> None:
    directory, values = sandbox.directory, [b"one", b"two", b"three"]
    assert [layout.sandbox_create_topic("here", "hello", 3, directory=directory) for _ in range(2)] == [True, False]
    assert layout.sandbox_topics("here", directory=directory)["hello"] == 3
    assert layout.sandbox_produce("here", "hello", values, directory=directory) == 3
    client = {"bootstrap.servers": sandbox.endpoints().bootstrap_servers["here"]}
    assert sorted(consume(client, "hello", 3)) == sorted(values)


def test_topics_are_not_created_by_accident(sandbox: Sandbox) -> None:
    producer = Producer(
        {"bootstrap.servers": sandbox.endpoints().bootstrap_servers["here"], "message.timeout.ms": 2000}
    )
    failures: list[str] = []
    producer.produce("typo", b"x", on_delivery=lambda error, _: failures.append(error.name() if error else "none"))
    producer.flush(30)
    assert failures in (["_UNKNOWN_TOPIC"], ["UNKNOWN_TOPIC_OR_PART"], ["_MSG_TIMED_OUT"])


def test_the_worker_runs_on_its_kafka_and_has_mirror_maker(sandbox: Sandbox) -> None:
    endpoints = sandbox.endpoints()
    url = endpoints.connect_urls["mover"]
    about = get_json(f"{url}/")
    kafka = AdminClient({"bootstrap.servers": endpoints.bootstrap_servers[endpoints.connect_kafka["mover"]]})
    assert about["version"] == "4.3.1"
    assert about["kafka_cluster_id"] == kafka.list_topics(timeout=60).cluster_id
    plugins = {plugin["class"].rpartition(".")[2] for plugin in get_json(f"{url}/connector-plugins")}
    assert {"MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector"} <= plugins
    assert "Finished starting connectors and tasks" in sandbox.servers()["mover"].log_file.read_text()


def test_a_mirrored_record_arrives(sandbox: Sandbox) -> None:
    endpoints = sandbox.endpoints()
    here: Client = {"bootstrap.servers": endpoints.bootstrap_servers["here"]}
    there: Client = {"bootstrap.servers": endpoints.bootstrap_servers["there"]}
    create_topic(here, "app.events")
    produce(here, "app.events", [b"one", b"two"])
    bytes_converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "here",
        "target.cluster.alias": "there",
        "source.cluster.bootstrap.servers": here["bootstrap.servers"],
        "target.cluster.bootstrap.servers": there["bootstrap.servers"],
        "topics": "app[.].*",
        "key.converter": bytes_converter,
        "value.converter": bytes_converter,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
    }
    request = urllib.request.Request(
        f"{endpoints.connect_urls['mover']}/connectors/here-there/config",
        json.dumps(config).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    assert DIRECT.open(request, timeout=30).status == 201
    names = until(lambda: AdminClient(there).list_topics(timeout=60).topics, lambda topics: "here.app.events" in topics)
    assert "here.app.events" in names
    assert consume(there, "here.app.events", 2) == [b"one", b"two"]


def test_a_killed_worker_comes_back_with_its_connectors_on_the_same_url(sandbox: Sandbox) -> None:
    worker = sandbox.servers()["mover"]
    assert isinstance(worker, Worker)
    before = get_json(f"{worker.url}/connectors")
    worker.kill()
    with pytest.raises(OSError, match=r"refused|reset"):  # a killed listener answers either way for a moment
        get_json(f"{worker.url}/")
    sandbox.start()
    assert get_json(f"{worker.url}/connectors") == before


def test_up_again_touches_nothing_that_runs(sandbox: Sandbox) -> None:
    before = sandbox.status()
    said: list[str] = []
    sandbox.start(SMALL, said.append)
    assert sandbox.status() == before
    assert not any("starting" in line for line in said)


def test_tls_with_passwords_on_a_second_listener(tmp_path: Path) -> None:
    authority = trustme.CA()
    identity = authority.issue_cert("127.0.0.1")
    chain = "".join(pem.bytes().decode() for pem in identity.cert_chain_pems)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    # Kafka reads only PKCS#8 keys
    pkcs8 = ["openssl", "pkcs8", "-topk8", "-nocrypt"]
    key = subprocess.run(pkcs8, input=identity.private_key_pem.bytes(), capture_output=True, check=True).stdout.decode()
    prefix = "listener.name.secure"
    properties = {
        f"{prefix}.ssl.keystore.type": "PEM",
        f"{prefix}.ssl.keystore.certificate.chain": chain,
        f"{prefix}.ssl.keystore.key": key,
        f"{prefix}.sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="admin" password="a" user_mirror="se\\"cret";',
    }
    listeners = {"INTERNAL": "PLAINTEXT", "SECURE": "SASL_SSL"}
    with Broker("secure", tmp_path / "broker", properties, listeners=listeners) as broker:
        client: Client = {
            "bootstrap.servers": broker.bootstrap("SECURE"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "mirror",
            "sasl.password": 'se"cret',
        }
        create_topic(client, "private")
        produce(client, "private", [b"x"])
        assert consume(client, "private", 1) == [b"x"]
        with pytest.raises(KafkaException):
            AdminClient({**client, "sasl.password": "wrong"}).list_topics(timeout=3)
    assert not broker.running


def test_a_wrong_property_is_reported_with_the_log(tmp_path: Path) -> None:
    broker = Broker("odd", tmp_path, {"num.partitions": "many"})
    with pytest.raises(SandboxError, match=r"broker odd ended while starting(.|\n)*num\.partitions"):
        broker.start()
    assert not broker.running


@pytest.mark.parametrize("moment", ["starting brokers", "starting workers"])
def test_ctrl_c_during_up_leaves_nothing(tmp_path: Path, moment: str) -> None:
    code = f"""
from pathlib import Path
from mm2mgr.sandbox.layout import Layout, Sandbox
layout = Layout(sources=(), aggregates=("there",), connect={{"mover": "there"}})
Sandbox(Path({str(tmp_path)!r})).start(layout, lambda line: print(line, flush=True))
"""
    up = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert up.stdout
        line = next(line for line in up.stdout if moment in line)
        kind = "worker" if "worker" in line else "broker"
        until(lambda: [pid for pid in processes_of(tmp_path) if f"{kind}.properties" in pid], bool)
        up.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in up.communicate(timeout=180)[1]
    finally:
        up.kill()
        left, servers = processes_of(tmp_path), Sandbox(tmp_path).status()
        Sandbox(tmp_path).stop()  # should `up` have left something, the test does not
    assert left == []
    assert servers == []


def test_down_leaves_no_process(sandbox: Sandbox) -> None:
    """Runs last: it ends the module's sandbox, from another process than the one that started it."""
    assert len(processes_of(sandbox.directory)) == 3
    code = "import sys, pathlib; from mm2mgr.sandbox.layout import Sandbox; Sandbox(pathlib.Path(sys.argv[1])).stop()"
    subprocess.run([sys.executable, "-c", code, str(sandbox.directory)], check=True, timeout=180)
    assert processes_of(sandbox.directory) == []
    assert sandbox.status() == []
    assert not list(sandbox.directory.rglob("data"))


def processes_of(directory: Path) -> list[str]:
    """Return the command lines of all Java processes that name the directory."""
    listing = subprocess.run(
        ["ps", "-eo", "args"], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "5000"}
    )
    return [line for line in listing.stdout.splitlines() if str(directory) in line and "mm2mgr.log.directory" in line]


@sampled("names", [("first", "second")], [("killed", "first", "second", "damaged")], ids="-".join)
def test_what_the_first_start_prepared_serves_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    cache, runtime = tmp_path / "cache", kafka_runtime()
    cache.mkdir()
    monkeypatch.setenv("MM2MGR_CACHE", str(cache))
    archive, brokers = runtime.cache_file("broker-classes", ".jsa"), {}
    for name in names:
        if name == "damaged":
            archive.chmod(0o600)
            archive.write_bytes(archive.read_bytes()[:100_000])
        broker = brokers[name] = Broker(name, tmp_path / name, runtime=runtime)
        try:
            broker.start()
            assert broker.process is not None
            reads = f"-XX:SharedArchiveFile={archive}" in broker.process.words()
            assert reads == (name == "second"), name
            create_topic({"bootstrap.servers": broker.bootstrap_servers}, name)
            if name != "killed":
                broker.stop()
        finally:
            broker.kill()
        assert archive.is_file() == (name in ("first", "second")), name
    assert [path.name for path in cache.iterdir() if path.suffix not in ("", ".jsa")] == []
    formatted = [name for name in brokers if "Bootstrap metadata" in (tmp_path / name / "console.log").read_text()]
    assert formatted == [names[0]]
    assert len({(tmp_path / name / "data" / "meta.properties").read_text() for name in brokers}) == len(brokers)
