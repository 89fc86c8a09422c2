"""A compacted topic as a map, against brokers that speak the protocol (they create no topics on request), and against none."""

from __future__ import annotations

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.compacted import CompactedTopic, TextWriter
from mm2mgr.kafka.records import Producer


def topic(access: KafkaAccess, *, exists: bool = True) -> CompactedTopic:
    if exists:
        with Producer(access, timeout_seconds=30) as producer:
            producer.send(("notes.internal", 0), b"", key=b"first")
    return CompactedTopic(access, "notes.internal", 1, {"cleanup.policy": "compact"})


def test_the_newest_text_of_each_key_is_read_in_the_order_of_writing(mock_cluster: KafkaAccess) -> None:
    kept = topic(mock_cluster)
    writer = TextWriter(kept)
    for key, value in (("a", "1"), ("b", "2"), ("a", "größer"), ("first", None)):
        writer.put(key, value)
    assert writer.close() is None
    assert list(kept.read().items()) == [("b", "2"), ("a", "größer")]


def test_a_topic_that_does_not_exist_is_empty_and_reading_does_not_create_it(mock_cluster: KafkaAccess) -> None:
    kept = topic(mock_cluster, exists=False)
    assert kept.read() == {}
    assert not kept.exists()


def test_where_no_broker_listens_writing_says_so(closed_port: int) -> None:
    writer = TextWriter(topic(KafkaAccess("dc1", f"127.0.0.1:{closed_port}"), exists=False))
    writer.put("a", "1")
    error = writer.close()
    assert error is not None
    assert error.message.startswith(f"dc1: no broker of 127.0.0.1:{closed_port} answered within ")
    # The client learns the reason in a thread of its own, and may not know it yet.
    assert "refused" in error.message or "1/1 brokers are down" in error.message


def test_where_no_broker_is_the_controller_writing_gives_up_and_says_so(mock_cluster: KafkaAccess) -> None:
    """These brokers name one that is none of them; a request to create a topic would wait for it until its time is over."""
    writer = TextWriter(topic(mock_cluster, exists=False))
    writer.put("a", "1")
    error = writer.close()
    assert error is not None
    assert error.message == "mock: none of its brokers is its controller, so no topic can be created"
