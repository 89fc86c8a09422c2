"""One Kafka Connect worker in distributed mode, with a free REST port on the loopback.

Workers with the same group and Kafka cluster form one Connect cluster.
"""

from __future__ import annotations

import http.client
import shlex
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from mm2mgr.sandbox.server import HOST, Runtime, Server, exec_java

REST = "REST"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks servers on the loopback, whatever `http_proxy` says: a proxy cannot reach this machine's own ports."""


class Worker(Server):
    """A worker; `group_id` defaults to its name, `scheme` is https when extra properties set up TLS for REST."""

    kind = "worker"
    heap = "768m"  # for the ten tasks of the demo with a backlog; with half of it, workers ran out of memory

    def __init__(  # noqa: PLR0913 - a worker needs its Kafka cluster and its group
        self,
        name: str,
        directory: Path,
        bootstrap_servers: str,
        properties: Mapping[str, str] | None = None,
        *,
        group_id: str | None = None,
        scheme: str = "http",
        runtime: Runtime | None = None,
    ) -> None:
        super().__init__(name, directory, properties, runtime)
        self.bootstrap_servers = bootstrap_servers
        self.group_id = group_id or name
        self.scheme = scheme

    @property
    def port_names(self) -> tuple[str, ...]:
        return (REST,)

    @property
    def url(self) -> str:
        """Where REST answers; known after the first start."""
        return f"{self.scheme}://{HOST}:{self.ports[REST]}"

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
        return joined and (self.scheme == "https" or self._answers())

    def _answers(self) -> bool:
        try:
            with DIRECT.open(f"{self.url}/", timeout=2) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            return error.code in (401, 403)  # it serves, to those who have a password
        except (OSError, http.client.HTTPException):
            return False
