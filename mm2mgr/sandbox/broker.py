"""A single-node Kafka cluster: one JVM that is broker and controller (KRaft), on free ports of the loopback.

Replication factors are 1. Topics are not created automatically, because a sandbox should show a mistake that production
would show.
"""

from __future__ import annotations

import base64
import shlex
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from mm2mgr.sandbox.server import HOST, Runtime, Server, exec_java, write_properties

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
