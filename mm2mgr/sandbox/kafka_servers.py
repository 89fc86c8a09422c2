"""The two servers of a sandbox, on free ports of the loopback: a Kafka cluster in one JVM that is broker and controller
(KRaft), and a Kafka Connect worker in distributed mode.

Replication factors are 1. Topics are not created automatically, because a sandbox should show a mistake that production
would show. Workers with the same group and Kafka cluster form one Connect cluster.
"""

from __future__ import annotations

import base64
import http.client
import shlex
import shutil
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path

from mm2mgr.sandbox.runtime import Runtime
from mm2mgr.sandbox.server import HOST, Server, exec_java, write_properties

CONTROLLER = "CONTROLLER"
_DEFAULT_LISTENERS = {"PLAINTEXT": "PLAINTEXT"}
_ONE_REPLICA = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)


class Broker(Server):
    """A broker; `listeners` maps listener name to security protocol, the first also serves between brokers."""

    kind = "broker"
    heap = "256m"

    def __init__(
        self,
        name: str,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        super().__init__(name, directory, properties, runtime)
        self.listeners = dict(listeners or _DEFAULT_LISTENERS)

    @property
    def port_names(self) -> tuple[str, ...]:
        return (*self.listeners, CONTROLLER)

    @property
    def bootstrap_servers(self) -> str:
        """Where the first listener answers, as `host:port`."""
        return self.bootstrap(next(iter(self.listeners)))

    @property
    def address(self) -> str:
        return self.bootstrap_servers

    def bootstrap(self, listener: str) -> str:
        """Return `host:port` of one listener; known after the first start."""
        return f"{HOST}:{self.ports[listener]}"

    def server_properties(self) -> dict[str, str]:
        clients = [f"{listener}://{self.bootstrap(listener)}" for listener in self.listeners]
        protocols = {**self.listeners, CONTROLLER: "PLAINTEXT"}
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{self.ports[CONTROLLER]}",
            "controller.listener.names": CONTROLLER,
            "listeners": ",".join([*clients, f"{CONTROLLER}://{HOST}:{self.ports[CONTROLLER]}"]),
            "advertised.listeners": ",".join(clients),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "inter.broker.listener.name": next(iter(self.listeners)),
            "log.dirs": str(self.directory / "data"),
            "auto.create.topics.enable": "false",
            "num.partitions": "1",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.num.partitions": "5",
            "share.coordinator.state.topic.num.partitions": "5",
            "group.initial.rebalance.delay.ms": "0",
            # A killed broker may register again only when its old session is over: 3 s, not 9.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "1000",
            "metadata.max.idle.interval.ms": "10000",  # else a record is written and flushed twice a second
            "log.cleaner.dedupe.buffer.size": str(32 * 1024 * 1024),  # the default takes half of this small heap
            **dict.fromkeys(_ONE_REPLICA, "1"),
            **self.properties,
        }

    def shell_command(self, java: str, properties_file: Path) -> str:
        """Format the storage on the first start, then become the broker: one process id for both.

        What Kafka's tool writes is the same for all clusters but for two ids: it runs once, a second JVM, and its
        result is cached.
        """
        serve = shlex.join(exec_java(java, [*self.jvm_arguments(), "kafka.Kafka", str(properties_file)]))
        data, formatted = self.directory / "data", self.runtime.cache_file("kafka-storage")
        if (data / "meta.properties").exists():
            return serve
        features = data / "bootstrap.checkpoint"
        if formatted.is_file():
            data.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(formatted, features)
            ids = {"cluster.id": _new_id(), "directory.id": _new_id()}
            write_properties(
                data / "meta.properties", {"version": "1", "node.id": self.server_properties()["node.id"], **ids}
            )
            return serve
        format_storage = [java, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
        format_storage += ["--cluster-id", _new_id(), "--config", str(properties_file)]
        draft = f"{formatted}.{uuid.uuid4().hex}"
        keep = (
            f"cp {shlex.quote(str(features))} {shlex.quote(draft)} && mv {shlex.quote(draft)}"
            f" {shlex.quote(str(formatted))}"
        )
        return f"{shlex.join(format_storage)} && {{ {keep}; {serve}; }}"

    def ready(self) -> bool:
        return self.log_has("Kafka Server started")


def _new_id() -> str:
    """Return a random id as Kafka writes them: 16 bytes, URL-safe base64, no padding, no leading dash."""
    return "m" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


REST = "REST"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks servers on the loopback, whatever `http_proxy` says: a proxy cannot reach this machine's own ports."""


class Worker(Server):
    """A worker; its group is called as it is, unless its properties have a `group.id`."""

    kind = "worker"
    heap = "768m"  # for the ten tasks of the demo with a backlog; with half of it, workers ran out of memory

    def __init__(
        self,
        name: str,
        directory: Path,
        bootstrap_servers: str,
        properties: Mapping[str, str] | None = None,
        *,
        runtime: Runtime | None = None,
    ) -> None:
        super().__init__(name, directory, properties, runtime)
        self.bootstrap_servers = bootstrap_servers
        self.group_id = self.properties.get("group.id", name)

    @property
    def port_names(self) -> tuple[str, ...]:
        return (REST,)

    @property
    def url(self) -> str:
        """Where REST answers; known after the first start."""
        return f"http://{HOST}:{self.ports[REST]}"

    @property
    def address(self) -> str:
        return self.url

    def server_properties(self) -> dict[str, str]:
        names = {"config": "configs", "offset": "offsets", "status": "status"}
        topics = {kind: f"connect-{self.group_id}-{name}" for kind, name in names.items()}
        json_converter = "org.apache.kafka.connect.json.JsonConverter"  # what Kafka's own example file has
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "group.id": self.group_id,
            "listeners": self.url,
            "rest.advertised.host.name": HOST,
            "key.converter": json_converter,
            "value.converter": json_converter,
            **{f"{kind}.storage.topic": topic for kind, topic in topics.items()},
            **{f"{kind}.storage.replication.factor": "1" for kind in topics},
            **{f"{kind}.storage.partitions": "1" for kind in ("offset", "status")},
            "offset.flush.interval.ms": "2000",
            "plugin.discovery": "service_load",
            "scheduled.rebalance.max.delay.ms": "0",
            **self.properties,
        }

    def shell_command(self, java: str, properties_file: Path) -> str:
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        return shlex.join(exec_java(java, [*self.jvm_arguments(), main, str(properties_file)]))

    def ready(self) -> bool:
        """Tell whether it has joined its group and answers: before that, writes meet a rebalance and GET / is a 404."""
        joined = self.log_has("Finished starting connectors and tasks")
        return joined and self._answers()

    def _answers(self) -> bool:
        try:
            with DIRECT.open(f"{self.url}/", timeout=2) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            return error.code in (401, 403)  # it serves, to those who have a password
        except (OSError, http.client.HTTPException):
            return False
