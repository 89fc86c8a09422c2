"""Proves docker-compose.yml without Docker: one broker's and one worker's settings on real processes of this machine.

The settings go through the program that the official image runs (it is in Kafka's own jar), with other ports and paths;
then the file's own health checks are asked about the processes.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.sandbox.kafka_servers import DIRECT
from mm2mgr.sandbox.process import ProcessId, spawn, wait_until
from mm2mgr.sandbox.runtime import Runtime, kafka_runtime
from mm2mgr.sandbox.server import free_ports
from tests.project.compose_file import CONNECT_PORT, CONTROLLER_PORT, INSIDE_PORT, OUTSIDE_PORT, interpolated, services

LOGGING = "Configuration: {Appenders: {}, Loggers: {Root: {level: INFO}, Logger: []}}\n"


class Here:
    """Puts the services agg-east and east on this machine: free ports, a folder for /tmp, names on the loopback."""

    def __init__(self, directory: Path, runtime: Runtime) -> None:
        self.directory, self.runtime = directory, runtime
        inside = (INSIDE_PORT, CONTROLLER_PORT, OUTSIDE_PORT, CONNECT_PORT)
        self.ports = dict(zip(inside, free_ports(len(inside)), strict=True))
        # As in a container, the machine knows its own name; Jetty asks for it.
        (directory / "hosts").write_text(f"127.0.0.1 agg-east east {socket.gethostname()}\n")
        script = directory / "connect-distributed.sh"  # stands in for the image's, which builds the same command
        script.write_text(f'exec {shlex.join(self.java("org.apache.kafka.connect.cli.ConnectDistributed"))} "$1"\n')
        script.chmod(0o755)

    def moved(self, text: str) -> str:
        ports = "|".join(map(str, self.ports))
        text = re.sub(rf"(?<=[:/])({ports})\b", lambda found: str(self.ports[int(found[1])]), text)
        text = text.replace("/tmp/", f"{self.directory}/").replace("/opt/kafka/bin/", f"bash {self.directory}/")
        return interpolated(text, {"AGG_EAST_PORT": str(self.ports[OUTSIDE_PORT])})

    def environment(self, service: Mapping[str, Any]) -> dict[str, str]:
        given = {key: self.moved(str(value)) for key, value in service["environment"].items()}
        return {"PATH": os.environ["PATH"], "HOSTNAME": service["hostname"], **given}

    def java(self, main: str, *arguments: str) -> list[str]:
        flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        flags += [f"-Djdk.net.hosts.file={self.directory}/hosts", "-cp", ":".join(map(str, self.runtime.jars))]
        return [str(self.runtime.java.java), *flags, main, *arguments]

    def is_healthy(self, service: Mapping[str, Any]) -> bool:
        _, *command = map(self.moved, service["healthcheck"]["test"])
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0

    def server_properties(self, service: Mapping[str, Any]) -> Path:
        """Do what a starting container does: write server.properties from the variables, and format the storage."""
        folders = {kind: self.directory / kind for kind in ("default", "mounted", "final")}
        for folder in folders.values():
            folder.mkdir()
            for name in ("log4j2.yaml", "tools-log4j2.yaml"):
                (folder / name).write_text(LOGGING)
        options = [f"--{kind}-configs-dir={folder}" for kind, folder in folders.items()]
        setup = self.java("kafka.docker.KafkaDockerWrapper", "setup", *options)
        done = subprocess.run(
            setup, env=self.environment(service), check=False, timeout=60, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return folders["final"] / "server.properties"

    def start(self, command: Sequence[str], service: Mapping[str, Any]) -> ProcessId:
        """Start a service and wait until it is healthy, which it must not have been before."""
        console = self.directory / f"{service['hostname']}.log"
        assert not self.is_healthy(service)
        process = spawn(command, console, self.environment(service))
        try:
            wait_until(
                lambda: self.is_healthy(service), process, service["hostname"], 60, lambda: console.read_text()[-3000:]
            )
        except BaseException:
            process.kill()
            raise
        return process


@pytest.mark.live
def test_its_settings_and_health_checks_hold_for_a_real_broker_and_worker(tmp_path: Path) -> None:
    here = Here(tmp_path, kafka_runtime())
    broker, worker = services()["agg-east"], services()["east"]
    with ExitStack() as stack:
        properties = here.server_properties(broker)
        assert "auto.create.topics.enable=false" in properties.read_text()
        kafka = here.start(here.java("kafka.Kafka", str(properties)), broker)
        stack.callback(kafka.stop)
        connect = here.start([here.moved(part) for part in worker["command"]], worker)
        stack.callback(connect.stop)
        with DIRECT.open(f"http://127.0.0.1:{here.ports[CONNECT_PORT]}/connector-plugins", timeout=10) as answer:
            assert b"MirrorSourceConnector" in answer.read()
        assert (
            (tmp_path / "worker.properties")
            .read_text()
            .startswith(f"bootstrap.servers=agg-east:{here.ports[INSIDE_PORT]}\n")
        )
