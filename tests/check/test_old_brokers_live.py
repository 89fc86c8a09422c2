"""Workers of Kafka 4.3 and a broker of 2.0: what the check says of it, and what MirrorMaker does there."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2mgr.check.judge import CheckRow
from mm2mgr.files import cache_folder
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.wire import decode, read_versions
from mm2mgr.operations import Workspace
from mm2mgr.operations.status import check
from mm2mgr.sandbox.jars import kafka_jars, locked_jars
from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.sandbox.runtime import Runtime, find_java, kafka_runtime
from mm2mgr.sandbox.server import HOST, Server, exec_java
from tests.fake_connect import FakeConnect
from tests.fake_connect import serving as serving_connect
from tests.kafka.test_api_versions import OF_2_0_1
from tests.live.conftest import serving
from tests.live.dedicated import Dedicated, mm2_properties
from tests.live.seen import create, end_offset, topics, until, write_values

pytestmark = [pytest.mark.live, pytest.mark.matrix]

RECORDS = 100


class _Old(Server):
    """A server of Kafka 2.0.1. Its ZooKeeper is a newer one: on Java 14 and newer, 3.4 cannot read addresses (ZOOKEEPER-3779)."""

    heap = "256m"
    main = ""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.ports['CLIENT']}"

    @property
    def port_names(self) -> tuple[str, ...]:
        return ("CLIENT",)

    def shell_command(self, java: str, properties_file: Path) -> str:
        return shlex.join(exec_java(java, [*self.jvm_arguments(), self.main, str(properties_file)]))


class ZooKeeper(_Old):
    kind = "zookeeper"
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

    def server_properties(self) -> dict[str, str]:
        own = {"dataDir": str(self.directory / "data"), "clientPort": str(self.ports["CLIENT"])}
        return {**own, "clientPortAddress": HOST, "admin.enableServer": "false"}

    def ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.ports["CLIENT"])) == 0


class OldBroker(_Old):
    kind = "oldbroker"
    main = "kafka.Kafka"

    def server_properties(self) -> dict[str, str]:
        factors = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
        return {
            "broker.id": "0",
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.directory / "data"),
            **dict.fromkeys((*factors, "transaction.state.log.min.isr"), "1"),
            **self.properties,
        }

    def ready(self) -> bool:
        return read_versions(KafkaAccess("old", self.address), 1) is not None


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaAccess]:
    lock = Path(__file__).with_name("kafka-2.0.1.lock")
    newer = [jar for jar in kafka_jars("3.6.2") if jar.name.startswith(("zookeeper", "netty", "metrics-core-4"))]
    runtime = Runtime(find_java(), (*locked_jars(lock, cache_folder() / "kafka-2.0.1"), *newer))
    folder = tmp_path_factory.mktemp("old")
    keeper = ZooKeeper("keeper", folder / "keeper", runtime=runtime)
    with serving([keeper]):
        broker = OldBroker("old", folder / "old", {"zookeeper.connect": keeper.address}, runtime=runtime)
        with serving([broker]):
            yield KafkaAccess("old", broker.address)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaAccess]:
    broker = Broker("new", tmp_path_factory.mktemp("new"), runtime=kafka_runtime())
    with serving([broker]):
        yield KafkaAccess("new", broker.bootstrap_servers)


def row(folder: Path, source: KafkaAccess, target: KafkaAccess) -> CheckRow:
    """Return what a check says of the old brokers."""
    with serving_connect(FakeConnect()) as url:
        folder.mkdir()
        (folder / "tree.yaml").write_text(f"""owner: me
clusters:
  {source.alias}: {{bootstrap_servers: ["{source.bootstrap_servers}"], replication_factor: 1}}
  {target.alias}: {{bootstrap_servers: ["{target.bootstrap_servers}"], replication_factor: 1}}
connect:
  w: {{url: "{url}", kafka: {target.alias}}}
flows:
  f: {{sources: [{source.alias}], targets: [{target.alias}], topics: {{include: [t]}}}}
""")
        rows = check(Workspace((folder,)), timeout_seconds=30).rows
    found = {each.where: each for each in rows if each.what.startswith("brokers that workers of Kafka 4.3.1")}
    assert found["new"].status == "ok"
    return found["old"]


def mirror(folder: Path, source: KafkaAccess, target: KafkaAccess) -> Dedicated:
    create(source, ["t"])
    write_values(source, "t", *(b"%d" % number for number in range(RECORDS)))
    servers = {access.alias: access.bootstrap_servers for access in (source, target)}
    return Dedicated("mm", folder, mm2_properties(servers, source.alias, target.alias, "t"), runtime=kafka_runtime())


def test_the_recorded_answer_is_that_of_the_broker(old: KafkaAccess) -> None:
    assert read_versions(old, 20) == decode(OF_2_0_1)


def test_an_old_source_is_read_though_kafka_does_not_support_it(
    old: KafkaAccess, new: KafkaAccess, tmp_path: Path
) -> None:
    found = row(tmp_path / "tree", old, new)
    assert (found.status, "of Kafka 2.0 take what is sent" in found.effect) == ("unknown", True)
    with mirror(tmp_path / "mm", old, new):
        until(lambda: end_offset(new, "old.t") if "old.t" in topics(new) else 0, lambda count: count == RECORDS)


def test_an_old_target_gets_nothing_and_the_connector_fails(old: KafkaAccess, new: KafkaAccess, tmp_path: Path) -> None:
    found = row(tmp_path / "tree", new, old)
    assert (found.status, "IncrementalAlterConfigs" in found.effect) == ("failed", True)
    with mirror(tmp_path / "mm", new, old) as process:
        says = "The node does not support INCREMENTAL_ALTER_CONFIGS"
        until(lambda: process.log_has(says), bool, process.log_tail())
        assert process.log_has("Connector raised an error")
        assert end_offset(old, "new.t") == 0


@pytest.mark.parametrize("version", ["3.6.2", "3.9.2"])
def test_brokers_of_3_are_well(version: str, tmp_path: Path) -> None:
    broker = Broker("three", tmp_path / "three", runtime=kafka_runtime(version))
    with serving([broker]):
        versions = read_versions(KafkaAccess("three", broker.bootstrap_servers), 20)
    assert versions is not None
    assert versions[1][0] == 0
    assert versions[1][1] >= 15
