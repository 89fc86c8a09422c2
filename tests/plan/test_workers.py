"""What workers say of themselves, and the estate of a live Connect cluster, owned or not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectError
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.errors import Mm2mgrError
from mm2mgr.expand import expand
from mm2mgr.lint.subject import Estate, KafkaFacts, Subject, WorkerFacts
from mm2mgr.lint.workers import ask_brokers, ask_worker, harmless_overrides
from mm2mgr.live.questions import BrokerCount
from mm2mgr.live.reach import ClientLogin, Limits
from mm2mgr.live.read import Clusters, run_steps
from mm2mgr.live.snapshot import Snapshot
from mm2mgr.spec.files import load
from mm2mgr.topology import KafkaCluster
from tests.asking import from_client, read_live
from tests.cli.command import allowed_seconds
from tests.fake_connect import CLASSES, MIRROR, FakeConnect, serving
from tests.kafka.conftest import closed_port
from tests.lint import made
from tests.plan.site import Site

__all__ = ["closed_port"]

SOURCE = {"connector.class": MIRROR + "MirrorSourceConnector", "source.cluster.alias": "a", "topics": "t"}


def said(fake: FakeConnect, *keys: str) -> WorkerFacts:
    async def main() -> WorkerFacts:
        async with ConnectClient(ConnectTarget("w", ("http://w",)), transport=fake.transport()) as client:
            return (await from_client(client, ask_worker("w", harmless_overrides(keys))))[0]

    return asyncio.run(main())


def live(fake: FakeConnect) -> Estate:
    with serving(fake) as url:
        return asyncio.run(read_live(ConnectTarget("w", (url,)), 2.0))


def test_all_that_a_worker_says() -> None:
    fake = FakeConnect(cluster_id="kafka-1", policy="Principal", exactly_once=True)
    worker = said(fake, "producer.override.acks", "topics")
    assert (worker.version, worker.policy, worker.exactly_once) == ("4.3.1", "Principal", True)
    assert (worker.cluster_id, worker.plugins) == ("kafka-1", frozenset(CLASSES))
    assert "producer.override.acks" in worker.refused
    assert worker.properties is None
    assert fake.writes == []


@pytest.mark.parametrize(
    ("worker", "plugin", "version"),
    [("4.3.1", "3.9.1", "3.9.1"), ("4.3.1", "homemade", "4.3.1"), ("7.6.0-ccs", None, "3.6"), ("homemade", None, None)],
)
def test_the_version_is_the_plugins_if_it_can_be_read(worker: str, plugin: str | None, version: str | None) -> None:
    fake = FakeConnect(plugin_version=plugin)
    fake.reported_version = worker
    assert said(fake).version == version


def test_a_failed_probe_leaves_the_rest_and_says_why() -> None:
    fake = FakeConnect()
    fake.fail_next("PUT", "/connector-plugins", 500, "ConfigException: no number", times=9)

    async def main() -> tuple[WorkerFacts, Mm2mgrError | None]:
        async with ConnectClient(ConnectTarget("w", ("http://w",)), transport=fake.transport()) as client:
            return await from_client(client, ask_worker("w", {}))

    worker, failed = asyncio.run(main())
    assert (worker.version, worker.policy, worker.exactly_once, worker.refused) == ("4.3.1", None, None, {})
    assert "no number" in str(failed)


def test_every_mirrormaker_connector_is_in_the_estate_owned_or_not() -> None:
    fake = FakeConnect(policy="None")
    fake.add("ours", {**SOURCE, "mm2mgr.owner": "team", "producer.override.acks": "1"}, state="PAUSED")
    fake.add("short", {**SOURCE, "connector.class": "MirrorHeartbeat"})
    fake.add("new", SOURCE, hidden_reads=9)
    fake.add("other", {"connector.class": "org.example.FileSink"})
    estate = live(fake)
    assert estate.complete
    assert {(one.name, one.type, one.state, one.form) for one in estate.subjects} == {
        ("ours", "source", "PAUSED", "connect"),
        ("short", "heartbeat", "RUNNING", "connect"),
        ("new", "source", None, "connect"),
    }
    ours = next(one for one in estate.subjects if one.name == "ours")
    assert (ours.spot.connect, ours.spot.connector) == ("w", "ours")
    assert (ours.worker.policy, "producer.override.acks" in ours.worker.refused) == ("None", True)
    assert fake.writes == []


def test_a_key_of_the_connector_silences_a_rule_with_its_reason() -> None:
    fake = FakeConnect()
    fake.add("c", {**SOURCE, "mm2mgr.silence.loop": "one way only"})
    [subject] = live(fake).subjects
    [silence] = subject.silences
    assert (silence.rule, silence.reason, silence.spot.key) == ("loop", "one way only", "mm2mgr.silence.loop")


def test_a_connect_cluster_without_connectors_is_an_empty_estate() -> None:
    assert live(FakeConnect()) == Estate((), complete=True)


@pytest.mark.parametrize("path", ["/", "/connectors", "/connector-plugins"])
def test_what_cannot_be_read_is_an_error(path: str) -> None:
    fake = FakeConnect()
    fake.add("c", SOURCE)
    fake.answer_only(path, 500)
    with pytest.raises(ConnectError, match="scripted 500"):
        live(fake)


def test_harmless_values_are_of_their_types() -> None:
    keys = ["batch.size", "enable.idempotence", "partitioner.class", "ssl.keystore.password", "no.such.key"]
    found = harmless_overrides([*(f"producer.override.{key}" for key in keys), "producer.acks", "topics"])
    assert list(found.values()) == ["1", "true", "java.lang.Object", "mm2mgr-probe", "1"]


# --- brokers ------------------------------------------------------------------------------------------------------------


def asked(subjects: Sequence[Subject], declared: Sequence[KafkaCluster] = ()) -> tuple[Subject, ...]:
    clusters = Clusters(kafkas={cluster.alias: cluster for cluster in declared})
    return asyncio.run(run_steps(ask_brokers(subjects, declared), clusters, Limits()))[0]


def test_a_login_that_is_let_in_counts_after_one_that_is_not() -> None:
    """The connectors' own logins are tried one after the other; of none that is let in, the first failure counts."""
    servers = {"source.cluster.bootstrap.servers": "h:1", "target.cluster.bootstrap.servers": "h:1"}
    own = {"producer.override.bootstrap.servers": None, "target.cluster.security.protocol": "SSL"}
    steps = ask_brokers([made.source({**servers, **own})])
    (first,) = next(steps)
    assert isinstance(first, BrokerCount)
    assert first.login == ClientLogin("A", "h:1")
    snapshot = Snapshot({first: Mm2mgrError("A: refused")})
    (second,) = steps.send(snapshot)
    assert isinstance(second, BrokerCount)
    assert second.login == ClientLogin("B", "h:1", (("security.protocol", "SSL"),))
    with pytest.raises(StopIteration) as end:
        steps.send(snapshot.with_answers({second: ("id", 3)}))
    (subject,) = end.value.value
    assert (subject.source_kafka.cluster_id, subject.target_kafka.brokers) == ("id", 3)


def test_brokers_that_do_not_answer_are_no_error_and_take_no_time(closed_port: int) -> None:
    servers = f"127.0.0.1:{closed_port}"
    dead = {f"{side}.cluster.bootstrap.servers": servers for side in ("source", "target")}
    started = time.monotonic()
    (found,) = asked([made.source({**dead, "producer.override.bootstrap.servers": None})])
    assert time.monotonic() - started < 1.5 * allowed_seconds()
    assert found.source_kafka == found.target_kafka
    assert found.target_kafka.cluster_id is None
    assert f"A: no broker of {servers} answered within" in found.target_kafka.unanswered


def test_a_placeholder_of_a_config_is_resolved_for_nobody(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    monkeypatch.setenv("OURS", "hunter2")
    changes = {
        "source.cluster.bootstrap.servers": f"127.0.0.1:{closed_port}",
        "source.cluster.security.protocol": "SASL_PLAINTEXT",
        "source.cluster.sasl.jaas.config": "${env:OURS}",
        "target.cluster.bootstrap.servers": "${env:OURS}:9092",
        "producer.override.bootstrap.servers": None,
    }
    (found,) = asked([made.source(changes)])
    assert found.source_kafka.unanswered == "A: sasl.jaas.config is a placeholder of the workers"
    assert found.target_kafka.unanswered == "B: bootstrap.servers is a placeholder of the workers"


@pytest.mark.usefixtures("impatient")
def test_a_declared_id_is_asked_of_nobody(site: Site) -> None:
    subject = made.source(
        {"source.cluster.bootstrap.servers": "EAST:9092", "target.cluster.bootstrap.servers": "west:9092,other:9092"}
    )
    site.declare()
    clusters = expand(load([site.folder])).clusters.values()
    (found,) = asked([subject], [each for each in clusters if each.alias in ("east", "west")])
    assert (found.source_kafka, found.target_kafka) == (KafkaFacts(cluster_id="east"), KafkaFacts(cluster_id="west"))
    assert "record producer: no broker of b1:9092,b2:9092" in found.records_kafka.unanswered


def test_one_client_of_a_connect_cluster_serves_all_rounds_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_client(target: ConnectTarget, deadline_seconds: float, _: float) -> ConnectClient:
        opened.append(target.name)
        return ConnectClient(target, deadline_seconds=deadline_seconds)

    monkeypatch.setattr("mm2mgr.live.read.open_client", open_client)
    fake = FakeConnect()
    fake.add("c", SOURCE)
    with serving(fake) as url:
        estate = asyncio.run(read_live(ConnectTarget("east", (url,))))
    assert [subject.name for subject in estate.subjects] == ["c"]
    assert len(fake.requests) > 3, "it asked in rounds"
    assert opened == ["east"]
