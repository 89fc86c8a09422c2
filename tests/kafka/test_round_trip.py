"""Round trips to brokers over a delaying proxy, to none, and to what is no broker. TLS: test_live.py."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.inspection import BrokerAddress, broker_addresses
from mm2mgr.kafka.wire import RoundTrip, round_trip, round_trips

from .delay import delayed

PLAIN = {"security.protocol": "PLAINTEXT"}


@pytest.fixture
def stranger() -> Iterator[BrokerAddress]:
    """A server that answers with something else than Kafka."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    line, _ = server.accept()
                    line.recv(1_000)
                    line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    line.close()

        threading.Thread(target=serve, daemon=True).start()
        yield BrokerAddress(1, *server.getsockname())
        server.shutdown(socket.SHUT_RDWR)


def test_the_round_trip_behind_something_that_takes_connections_itself_is_that_of_requests(
    mock_cluster: KafkaAccess,
) -> None:
    host, _, port = mock_cluster.bootstrap_servers.partition(",")[0].rpartition(":")
    with delayed(host, int(port), 0.05) as proxy:
        found = round_trip(proxy, config=PLAIN, timeout_seconds=20, samples=3)
    assert found.connect_seconds is not None
    assert found.seconds == found.request_seconds
    assert 0.1 <= (found.seconds or 0) < 2.0
    assert found.connect_seconds < (found.seconds or 0), "the proxy takes connections without delay"
    assert not found.problem


def test_every_broker_of_a_cluster_is_measured(mock_cluster: KafkaAccess) -> None:
    with Kafka(mock_cluster, timeout_seconds=10) as kafka:
        brokers = broker_addresses(kafka)
    found = round_trips(mock_cluster, brokers, timeout_seconds=20)
    assert [each.broker for each in found] == [str(each) for each in brokers]
    assert len(found) == 2
    assert all(each.connect_seconds and each.request_seconds and not each.problem for each in found)


def test_a_busy_broker_on_a_direct_way_does_not_lengthen_the_round_trip() -> None:
    assert RoundTrip("a:1", 0.080, 0.084).seconds == 0.080
    assert RoundTrip("a:1", 0.0001, 0.080).seconds == 0.080
    assert RoundTrip("a:1", 0.080, None).seconds == 0.080
    assert RoundTrip("a:1").seconds is None


def test_a_dead_broker_and_what_is_no_broker_are_told_apart(closed_port: int, stranger: BrokerAddress) -> None:
    dead = round_trip(BrokerAddress(1, "127.0.0.1", closed_port), config=PLAIN, timeout_seconds=5)
    assert (dead.seconds, dead.problem) == (None, "no connection: Connection refused")
    other = round_trip(stranger, config=PLAIN, timeout_seconds=5)
    assert (other.request_seconds, other.problem) == (None, "only connects were timed: the answer is not Kafka's")
    assert other.seconds == other.connect_seconds


def test_a_keystore_that_cannot_be_read_here_leaves_the_connects(mock_cluster: KafkaAccess) -> None:
    host, _, port = mock_cluster.bootstrap_servers.partition(",")[0].rpartition(":")
    config = {"security.protocol": "SSL", "ssl.keystore.location": "/none.p12"}
    found = round_trip(BrokerAddress(1, host, int(port)), config=config, timeout_seconds=5)
    assert found.seconds == found.connect_seconds
    assert found.problem == "only connects were timed: the client certificate is not in a PEM file"
