"""sandbox topic and sandbox produce: a newcomer's records, without a Kafka client."""

from __future__ import annotations

import io

import pytest
from confluent_kafka import Consumer, TopicPartition

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.sandbox.folder import Endpoints
from mm2mgr.sandbox.layout import Sandbox

from .command import Command
from .load import produce as produce_beside


@pytest.fixture
def up(mock_cluster: KafkaAccess, monkeypatch: pytest.MonkeyPatch) -> str:
    """A sandbox whose cluster `here` is mock brokers; return its name."""
    endpoints = Endpoints({"here": mock_cluster.bootstrap_servers}, {}, {})
    monkeypatch.setattr(Sandbox, "endpoints", lambda self: endpoints)
    return "here"


def test_without_a_sandbox_the_hint_starts_one(mm2mgr: Command) -> None:
    for arguments in (("topic", "list", "here"), ("topic", "create", "here", "t"), ("produce", "here", "t")):
        assert "hint: start it: mm2mgr sandbox up" in mm2mgr("sandbox", *arguments, code=1).err
    assert list(mm2mgr.folder.iterdir()) == []


@pytest.mark.usefixtures("impatient")
def test_names_that_are_not_there_are_answered_with_those_that_are(mm2mgr: Command, up: str) -> None:
    assert "hint: clusters here: here" in mm2mgr("sandbox", "topic", "list", "there", code=1).err
    said = mm2mgr("sandbox", "produce", up, "nope", "--records", "1", code=1)
    assert "no topic 'nope' on here" in said.err
    assert "mm2mgr sandbox topic create here nope" in said.err


@pytest.mark.usefixtures("impatient")
def test_lines_become_records(
    mm2mgr: Command, up: str, mock_cluster: KafkaAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce_beside(mock_cluster, "logs.web")  # the mock's brokers create a topic then, and only then
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\r\nthree")))
    assert mm2mgr("sandbox", "produce", up, "logs.web").out == "3 records written to logs.web of here\n"
    said = mm2mgr("sandbox", "produce", up, "logs.web", "--records", "4", "--size", "10")
    assert said.out == "4 records written to logs.web of here\n"
    assert mm2mgr("sandbox", "topic", "list", up, "-o", "json").json == {"logs.web": 4}
    consumer = Consumer({"bootstrap.servers": mock_cluster.bootstrap_servers, "group.id": "ends", "log_level": 0})
    ends = [consumer.get_watermark_offsets(TopicPartition("logs.web", number), timeout=30)[1] for number in range(4)]
    consumer.close()
    assert sorted(ends) == [1, 2, 2, 3], "partitions take turns"
