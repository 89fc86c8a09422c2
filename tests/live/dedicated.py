"""A dedicated MirrorMaker, as connect-mirror-maker.sh starts one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from mm2mgr.sandbox.server import Server, exec_java


class Dedicated(Server):
    """One process of it; SIGTERM ends it in order."""

    kind = "mirrormaker"
    heap = "384m"

    @property
    def port_names(self) -> tuple[str, ...]:
        return ()

    def server_properties(self) -> dict[str, str]:
        return self.properties

    @property
    def address(self) -> str:
        return self.name

    def shell_command(self, java: str, properties_file: Path) -> str:
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        return shlex.join(exec_java(java, [*self.jvm_arguments(), main, str(properties_file)]))

    def ready(self) -> bool:
        return self.log_has("Kafka MirrorMaker")


def mm2_properties(servers: Mapping[str, str], source: str, target: str, topic: str) -> dict[str, str]:
    """Return the properties of one that mirrors a topic; `servers`: alias → bootstrap servers."""
    return {
        "clusters": ", ".join(servers),
        **{f"{alias}.bootstrap.servers": address for alias, address in servers.items()},
        f"{source}->{target}.enabled": "true",
        f"{source}->{target}.topics": topic,
        "replication.factor": "1",
        "refresh.topics.interval.seconds": "2",
        "offset.flush.interval.ms": "5000",
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        **{
            f"{name}.replication.factor": "1"
            for name in ("offset-syncs.topic", "heartbeats.topic", "checkpoints.topic")
        },
        **{f"{name}.storage.replication.factor": "1" for name in ("offset", "status", "config")},
    }
