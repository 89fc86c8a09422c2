"""A fake wire: librdkafka's own mock brokers, real sockets without a JVM; they know produce, fetch, offsets, metadata."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from mm2mgr.kafka.access import KafkaAccess


@pytest.fixture
def mock_cluster() -> Iterator[KafkaAccess]:
    quiet = logging.getLogger("tests.mock_cluster")
    quiet.propagate = False
    quiet.addHandler(logging.NullHandler())
    owner = AdminClient({"bootstrap.servers": "ignored", "test.mock.num.brokers": 2, "logger": quiet})
    brokers = owner.list_topics(timeout=5).brokers.values()
    yield KafkaAccess("mock", ",".join(f"{broker.host}:{broker.port}" for broker in brokers))
    del owner


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
