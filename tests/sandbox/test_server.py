"""What brokers and workers share, shown with a server that is no JVM: ports, properties, starting side by side."""

from __future__ import annotations

import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mm2mgr.errors import SandboxError
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.process import ProcessDied, ProcessId
from mm2mgr.sandbox.runtime import Java, Runtime
from mm2mgr.sandbox.server import HOST, Server, free_ports, start_all, stop_all, write_properties

LISTEN = """
import socket, sys, time, pathlib
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    server.bind((sys.argv[1], int(sys.argv[2])))
except OSError as error:
    print(error, *(f"shutting down part {number}" for number in range(30)), sep="\\n")
    sys.exit(1)
server.listen()
pathlib.Path(sys.argv[3]).write_text("listening")
time.sleep(60)
"""


class Listener(Server):
    """A server that only binds its port; Python's error for a taken one reads as Java's does, and as from a broker, much follows it."""

    kind = "listener"
    heap = "1m"
    port_names = ("ONE",)
    script = LISTEN

    @property
    def address(self) -> str:
        return f"{HOST}:{self.ports['ONE']}"

    def server_properties(self) -> dict[str, str]:
        return self.properties

    def shell_command(self, java: str, properties_file: Path) -> str:
        words = [sys.executable, "-S", "-c", self.script, HOST, str(self.ports["ONE"]), str(self.log_file)]
        return f"exec {shlex.join(words)}"

    def ready(self) -> bool:
        return self.log_has("listening")


NO_JAVA = Runtime(Java(Path("/"), Path("/"), 17, "PATH"), ())


class Together(Listener):
    """A server that is asked to end, and ends when another one beside its folder was asked too."""

    script = LISTEN.replace(
        "server.listen()",
        """
import signal
def end(*_):
    here = pathlib.Path(sys.argv[3]).parent
    (here / "asked").touch()
    while len(list(here.parent.glob("*/asked"))) < 2:
        time.sleep(0.02)
    (here / "ended").touch()
    sys.exit()
signal.signal(signal.SIGTERM, end)
server.listen()
""",
    )


class Broken(Listener):
    script = "import sys; sys.exit('it cannot be')"


Make = Callable[[str], Listener]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make listeners that are all ended with the test."""
    made: list[Listener] = []

    def listener(name: str) -> Listener:
        made.append(Listener(name, tmp_path / name, runtime=NO_JAVA))
        return made[-1]

    yield listener
    for server in made:
        server.kill()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        yield other.getsockname()[1]


def test_servers_end_side_by_side(tmp_path: Path) -> None:
    servers = [Together(name, tmp_path / name, runtime=NO_JAVA) for name in ("a", "b")]
    said: list[str] = []
    try:
        start_all(servers)
        stop_all(servers, said.append)
        assert not any(server.running for server in servers)
    finally:
        for server in servers:
            server.kill()
    assert said == ["stopping listener a", "stopping listener b"]
    assert sorted(path.parent.name for path in tmp_path.glob("*/ended")) == ["a", "b"]


def test_ports_are_distinct_free_and_outside_the_ephemeral_range() -> None:
    ports = free_ports(50) + free_ports(50)
    assert len(set(ports)) == 100
    assert max(ports) < 32768


def test_a_port_taken_before_the_first_bind_means_another_port(make: Make, taken_port: int) -> None:
    server = make("first")
    server.ports = {"ONE": taken_port}
    server.start()
    assert server.running
    assert server.ports["ONE"] != taken_port


def test_a_server_that_served_keeps_its_port_or_says_who_has_it(make: Make, taken_port: int) -> None:
    server = make("again")
    server.adopt(None, {"ONE": taken_port})
    with pytest.raises(ProcessDied) as caught:
        server.start()
    assert caught.value.hint == f"another program has one of its ports: [{taken_port}]"
    assert not server.running


@pytest.mark.parametrize("end", [Server.stop, Server.kill])
def test_started_again_on_the_same_port(make: Make, end: object) -> None:
    server = make("phoenix")
    server.start()
    first, port = server.process, server.ports
    assert callable(end)
    end(server)
    assert not server.running
    server.start()
    assert server.running
    assert (server.process != first, server.ports) == (True, port)


def test_starting_a_running_server_changes_nothing(make: Make) -> None:
    server = make("steady")
    server.start()
    process = server.process
    server.start()
    assert server.process == process


def test_one_failure_ends_those_started_with_it_and_spares_those_that_ran(make: Make, tmp_path: Path) -> None:
    ran, new = make("ran"), make("new")
    ran.start()
    broken = Broken("broken", tmp_path / "broken", runtime=NO_JAVA)
    changed_names: list[str] = []
    with pytest.raises(ProcessDied, match="listener broken ended while starting"):
        start_all([ran, new, broken], changed=lambda server: changed_names.append(server.name))
    assert (ran.running, new.running, broken.running) == (True, False, False)
    assert changed_names[:2] == ["new", "broken"]


def test_waiting_for_what_was_not_started(make: Make) -> None:
    with pytest.raises(SandboxError, match="was not started"):
        make("idle").wait_ready()


def test_properties_are_escaped_and_private(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    write_properties(path, {"sasl.jaas.config": 'x password="a\\b";', "pem": "one\ntwo", "accent": "é", "pad": " x"})
    assert path.read_text().splitlines() == [
        'sasl.jaas.config=x password="a\\\\b";',
        "pem=one\\ntwo",
        "accent=\\u00e9",
        "pad=\\ x",
    ]
    assert path.stat().st_mode & 0o077 == 0


def test_extra_properties_win_and_each_listener_has_its_port(tmp_path: Path) -> None:
    listeners = {"PLAIN": "PLAINTEXT", "SECURE": "SASL_SSL"}
    broker = Broker("b", tmp_path, {"auto.create.topics.enable": "true"}, listeners=listeners)
    broker.adopt(None, {"PLAIN": 1, "SECURE": 2, "CONTROLLER": 3})
    properties = broker.server_properties()
    assert properties["listeners"] == "PLAIN://127.0.0.1:1,SECURE://127.0.0.1:2,CONTROLLER://127.0.0.1:3"
    assert properties["advertised.listeners"] == "PLAIN://127.0.0.1:1,SECURE://127.0.0.1:2"
    assert properties["listener.security.protocol.map"] == "PLAIN:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT"
    assert properties["auto.create.topics.enable"] == "true"
    assert (broker.bootstrap_servers, broker.bootstrap("SECURE")) == ("127.0.0.1:1", "127.0.0.1:2")


def test_workers_of_one_group_share_their_topics(tmp_path: Path) -> None:
    one = Worker("one", tmp_path, "k:1", {"producer.acks": "1", "group.id": "g"})
    two = Worker("two", tmp_path, "k:1", {"group.id": "g"})
    for port, worker in enumerate((one, two)):
        worker.adopt(ProcessId(0, "never"), {"REST": port})
    shared = {key: value for key, value in one.server_properties().items() if key.endswith(".storage.topic")}
    assert shared.items() <= two.server_properties().items()
    assert len(set(shared.values())) == 3
    assert one.server_properties()["producer.acks"] == "1"
    assert one.url != two.url


def test_a_log_that_was_moved_aside_is_still_read_and_that_of_an_earlier_run_is_not(make: Make) -> None:
    server = make("one")
    start_all([server])
    server.log_file.replace(server.directory / "server.1.log")
    server.log_file.write_text("what came later")
    assert server.log_has("listening")
    server.kill()
    server.script = "import time; time.sleep(60)"
    server.begin()
    assert not server.log_has("listening")
