"""What there is to see in Kafka and Connect, read without mm2mgr's own judgement, and waiting for it with a deadline.

In: a KafkaAccess or a REST URL. Out: records with headers, topics, committed offsets, JSON.
"""

from __future__ import annotations

import io
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.sandbox.kafka_servers import DIRECT
from mm2mgr.sandbox.server import Server

Value = TypeVar("Value")
DEADLINE_SECONDS = 180.0  # of a machine on which a JVM starts for a minute
BUSY_SECONDS = 60.0  # for which servers may refuse because they are on their way to something
_POLL_SECONDS = 0.25
_CODES = confluent_kafka.KafkaError
# What a broker says, or leaves unsaid, before a leader or a coordinator is there, or while a machine is busy.
_TRANSIENT = frozenset(
    {
        _CODES._ALL_BROKERS_DOWN,
        _CODES._TIMED_OUT,
        _CODES._TIMED_OUT_QUEUE,
        _CODES._TRANSPORT,
        _CODES._WAIT_COORD,
        _CODES.CONCURRENT_TRANSACTIONS,
        _CODES.COORDINATOR_LOAD_IN_PROGRESS,
        _CODES.COORDINATOR_NOT_AVAILABLE,
        _CODES.LEADER_NOT_AVAILABLE,
        _CODES.NETWORK_EXCEPTION,
        _CODES.NOT_CONTROLLER,
        _CODES.NOT_COORDINATOR,
        _CODES.NOT_LEADER_FOR_PARTITION,
        _CODES.REBALANCE_IN_PROGRESS,
        _CODES.REQUEST_TIMED_OUT,
    }
)
# What a worker says, with the code 409 or 500, while its group rebalances, its leader is gone or its own thread is busy.
_REBALANCES = ("Cannot complete request", "because a rebalance is expected")
_NO_LEADER = ("IO Error trying to forward REST request", "Connection refused")
_SLOW = "Request timed out"


def until(
    read: Callable[[], Value], wanted: Callable[[Value], bool], what: str = "", seconds: float = DEADLINE_SECONDS
) -> Value:
    """Read until the value is as wanted, and return it; fail with the last value at the deadline."""
    deadline = time.monotonic() + seconds
    while not wanted(value := read()):
        assert time.monotonic() < deadline, f"{what or 'not as wanted'} after {seconds:.0f} s: {value!r}"
        time.sleep(_POLL_SECONDS)
    return value


def log_texts(server: Server) -> list[str]:
    """Return what is in the log files of a server, read anew where one was turned over meanwhile."""
    while True:
        with suppress(FileNotFoundError):
            return [file.read_text(errors="replace") for file in sorted(server.directory.glob("server*.log"))]


# --- Kafka ------------------------------------------------------------------------------------------------------------


def is_transient(error: confluent_kafka.KafkaError) -> bool:
    """Whether asking again may help."""
    return error.code() in _TRANSIENT or error.retriable()


def retry(ask: Callable[[], Value], seconds: float = BUSY_SECONDS) -> Value:
    """Return the answer to a question, which is asked again while a broker refuses for the moment; else KafkaException."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except confluent_kafka.KafkaException as refused:
            if not is_transient(refused.args[0]) or time.monotonic() > deadline:
                raise
        time.sleep(_POLL_SECONDS)


@dataclass(frozen=True)
class Message:
    """All of a record that a mirror must not alter."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0


_clients: dict[tuple[object, ...], Any] = {}


def _client(kind: type[Value], access: KafkaAccess, **settings: object) -> Value:
    """Return a client of this thread, the same for each question: a broker has more work with a new connection than with the question."""
    config = {**librdkafka_config(access), **settings}
    key = (kind, threading.get_ident(), tuple(sorted((name, str(value)) for name, value in config.items())))
    if key not in _clients:
        _clients[key] = kind(config)  # type: ignore[call-arg]
    client: Value = _clients[key]
    return client


def close_clients() -> None:
    """Close all clients, before the brokers end."""
    while _clients:
        _, client = _clients.popitem()
        if isinstance(client, confluent_kafka.Consumer):
            client.close()


def admin(access: KafkaAccess) -> AdminClient:
    return _client(AdminClient, access)


def topics(access: KafkaAccess) -> dict[str, int]:
    """Return the number of partitions by topic."""
    listed = retry(lambda: admin(access).list_topics(timeout=20).topics)
    return {name: len(topic.partitions) for name, topic in listed.items()}


def create(
    access: KafkaAccess, names: Iterable[str], partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    client, settings = admin(access), {"retention.ms": "-1", **(config or {})}
    _change(
        lambda left: client.create_topics([NewTopic(name, partitions, 1, config=settings) for name in left]),
        names,
        _CODES.TOPIC_ALREADY_EXISTS,
    )


def delete(access: KafkaAccess, names: Iterable[str]) -> None:
    client = admin(access)
    _change(client.delete_topics, names, _CODES.UNKNOWN_TOPIC_OR_PART)


def _change(ask: Callable[[list[str]], Mapping[str, Any]], names: Iterable[str], is_so: int) -> None:
    """Ask for a change of topics. `is_so`: the refusal of a topic that was changed by a request without an answer."""
    left, doubtful = list(names), set[str]()

    def change() -> None:
        refusals = list[confluent_kafka.KafkaException]()
        for name, future in ask(list(left)).items():
            try:
                future.result(BUSY_SECONDS + 10)
            except confluent_kafka.KafkaException as refused:
                if refused.args[0].code() != is_so or name not in doubtful:
                    doubtful.add(name)
                    refusals.append(refused)
                    continue
            left.remove(name)
        if refusals:  # one that no repetition cures is raised first
            raise min(refusals, key=lambda refused: is_transient(refused.args[0]))

    retry(change)


def write(access: KafkaAccess, topic: str, messages: Iterable[Message], **more: int) -> None:
    lost: list[object] = []
    settings = {**librdkafka_config(access), "message.timeout.ms": 30_000, **more}
    producer = confluent_kafka.Producer(settings)
    for one in messages:
        producer.produce(
            topic,
            one.value,
            one.key,
            one.partition,
            timestamp=one.timestamp_ms,
            headers=list(one.headers),
            on_delivery=lambda error, _: lost.append(error) if error else None,
        )
    assert producer.flush(35) == 0
    assert not lost


def write_values(access: KafkaAccess, topic: str, *values: bytes) -> None:
    write(access, topic, [Message(0, None, value) for value in values])


def messages(access: KafkaAccess, topic: str) -> list[Message]:
    """Return every record of a topic in log order per partition; nothing when there is no such topic."""
    count, deadline = topics(access).get(topic, 0), time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if (found := _read(access, topic, count, time.monotonic() + 15)) is not None:
            return sorted(found, key=lambda one: one.partition)
    raise AssertionError(f"{topic} cannot be read to its end")


def _read(access: KafkaAccess, topic: str, count: int, deadline: float) -> list[Message] | None:
    """Read the records of all partitions; None where it failed or takes too long.

    So it does with a client that knows a topic since deleted and created anew, or waits for a broker that was silent.
    """
    settings = {"group.id": "nobody", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = _client(confluent_kafka.Consumer, access, **settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(count)])
    found, ended = [], 0
    while ended < count and time.monotonic() < deadline:
        record = consumer.poll(1)
        if record is None:
            continue
        error = record.error()
        if error is None:
            found.append(_message(record))
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ended += 1
        else:
            break
    consumer.unassign()
    if ended == count:
        return found
    consumer.close()
    _clients.pop(next(key for key, client in _clients.items() if client is consumer))
    return None


def _message(record: Any) -> Message:
    return Message(
        record.partition(), record.key(), record.value(), tuple(record.headers() or ()), record.timestamp()[1]
    )


def values(access: KafkaAccess, topic: str) -> list[bytes | None]:
    return [message.value for message in messages(access, topic)]


def commit(access: KafkaAccess, group: str, topic: str, offset: int) -> None:
    """Commit an offset of partition 0 for a group that has no member."""
    consumer = confluent_kafka.Consumer({**librdkafka_config(access), "group.id": group})
    try:
        commit_all(consumer, [confluent_kafka.TopicPartition(topic, 0, offset)])
    finally:
        consumer.close()


def commit_all(
    consumer: confluent_kafka.Consumer, offsets: list[confluent_kafka.TopicPartition] | None = None
) -> list[confluent_kafka.TopicPartition]:
    """Commit offsets, or all that was read, wait for it and return them; KafkaException where one is refused for good."""

    def ask() -> list[confluent_kafka.TopicPartition]:
        places = consumer.commit(**({} if offsets is None else {"offsets": offsets}), asynchronous=False) or []
        for place in places:
            if place.error:
                raise confluent_kafka.KafkaException(place.error)
        return places

    return retry(ask)


def committed(access: KafkaAccess, group: str, topic: str) -> int:
    """Return what a group committed for partition 0; negative when it has not."""
    consumer = _client(confluent_kafka.Consumer, access, **{"group.id": group})
    (place,) = retry(lambda: consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=20))
    return int(place.offset)


def end_offset(access: KafkaAccess, topic: str) -> int:
    consumer = _client(confluent_kafka.Consumer, access, **{"group.id": "nobody"})
    return log_end(consumer, confluent_kafka.TopicPartition(topic, 0))


def log_end(consumer: confluent_kafka.Consumer, partition: confluent_kafka.TopicPartition) -> int:
    """Return where the next record of a partition will be."""
    return int(retry(lambda: consumer.get_watermark_offsets(partition, timeout=20))[1])


# --- Connect ----------------------------------------------------------------------------------------------------------


def log_lines(server: Server) -> list[str]:
    """Return what a server logged since its start."""
    files = [file for file in server.log_files if file.exists()]
    return [line for file in files for line in file.read_text(errors="replace").splitlines()]


def rest(method: str, url: str, body: object = None) -> Any:
    """Send a request to a worker, again while it refuses because of a rebalance, and return the decoded answer.

    HTTPError for any other refusal, and for a rebalance that does not end.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            with DIRECT.open(request, timeout=100) as answer:  # a worker itself gives up after 90 s
                text = answer.read()
            return json.loads(text) if text else None
        except urllib.error.HTTPError as refused:
            said = refused.read()
            if not _is_busy(method, refused.code, said.decode(errors="replace")) or time.monotonic() > deadline:
                raise urllib.error.HTTPError(
                    url, refused.code, refused.reason, refused.headers, io.BytesIO(said)
                ) from None
        time.sleep(_POLL_SECONDS)


def _is_busy(method: str, code: int, said: str) -> bool:
    """Whether a worker carries out the same request later. What timed out may have been done: only some may be repeated."""
    if code not in {409, 500}:
        return False
    if any(words in said for words in _REBALANCES) or all(words in said for words in _NO_LEADER):
        return True
    return _SLOW in said and method in {"GET", "PUT"}


def connector_url(url: str, name: str, rest_of_path: str = "") -> str:
    return f"{url}/connectors/{quote(name, safe='')}{rest_of_path}"


def config_of(url: str, name: str) -> dict[str, str]:
    """Return a connector's config; asked again where a worker that rebalances, or is busy, refuses or gives up."""

    def read() -> dict[str, str]:
        try:
            found: dict[str, str] = rest("GET", connector_url(url, name, "/config"))
        except urllib.error.HTTPError as error:
            if error.code not in {409, 500}:
                raise
            return {}
        return found

    return until(read, bool, f"the config of {name}")


def task_configs(url: str, name: str) -> list[dict[str, str]]:
    """Return what a connector's tasks were started with; nothing while a rebalance holds the answer back."""
    try:
        return [task["config"] for task in rest("GET", connector_url(url, name, "/tasks"))]
    except urllib.error.HTTPError:
        return []


def statuses(url: str) -> dict[str, Any]:
    """Return state and tasks by connector, as far as the workers have reported."""
    found = rest("GET", f"{url}/connectors?expand=status")
    return {name: entry["status"] for name, entry in found.items()}
