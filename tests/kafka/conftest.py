"""A fake wire: librdkafka's own mock brokers, real sockets without a JVM; they know produce, fetch, offsets, metadata.

A client that a test makes by itself has `log_level` 0: it may outlive its brokers, and then prints into later tests.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka


@pytest.fixture
def mock_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaAccess]:
    # They never answer when topics are described; real brokers do, those before 2.8 without ids.
    monkeypatch.setattr(Kafka, "topic_ids", lambda kafka, names: {})
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
