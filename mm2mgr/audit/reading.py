"""Reads windows of logs, several partitions of one cluster with one consumer: no group, no commit, offsets by hand.

A partition that cannot be read to its end is a fault with the offset it was read up to, and hides no other. Runs in
this process and on Spark's executors alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import confluent_kafka

from mm2mgr import timing
from mm2mgr.audit.windows import LOG_END, LogAccess, LogWindow
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import span_text

Message: TypeAlias = Any  # the stubs let each part be None, which no part of a consumed message is
_CODES = confluent_kafka.KafkaError
SILENCE_SECONDS = 30.0
_CONSUME, _POLL_SECONDS, _ASK_SECONDS = 10_000, 0.2, 5.0
_LONGEST_REASON = 300
READER_SETTINGS = {
    "group.id": "mm2mgr-reads-without-a-group",  # demanded by the client, never sent: partitions are assigned by hand
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,  # an end behind transaction markers has no record to show for it
    "auto.offset.reset": "error",  # an offset that is gone must not turn into another one
    "queued.max.messages.kbytes": 32_768,
    "fetch.queue.backoff.ms": 5,  # a full queue is otherwise left alone for a second
    "log_level": 0,  # what goes wrong comes as an error
    "client.id": "mm2mgr",
}
"""What a consumer that reads windows gets beside the settings of its cluster."""
_OF_THE_CLIENT = {  # nothing of a partition: the client goes on trying
    _CODES.GROUP_AUTHORIZATION_FAILED,  # of the group that is not used
    _CODES._TRANSPORT,
    _CODES._ALL_BROKERS_DOWN,
    _CODES._TIMED_OUT,
    _CODES._RESOLVE,
}


@dataclass(frozen=True)
class ReadFault:
    """Why a window could not be read to its end: records before `offset` were."""

    window: LogWindow
    offset: int
    reason: str


@dataclass(frozen=True)
class WindowRead:
    """A window that was read to its end."""

    window: LogWindow


Answer: TypeAlias = tuple[LogWindow, list[Message]] | ReadFault | WindowRead


class ClientRefused(Exception):
    """The client does not take its settings."""


@dataclass
class LogConsumer:
    """A consumer of one cluster, and the last error of its connections; close it."""

    access: LogAccess
    last: str = ""
    consumer: confluent_kafka.Consumer = field(init=False)

    def __post_init__(self) -> None:
        """ClientRefused where the settings are wrong."""
        isolation = "read_committed" if self.access.committed else "read_uncommitted"
        settings = {**self.access.settings, **READER_SETTINGS, "isolation.level": isolation, "error_cb": self._note}
        try:
            self.consumer = confluent_kafka.Consumer(settings)
        except (confluent_kafka.KafkaException, ValueError) as error:
            reason = _text(error.args[0]) if isinstance(error, confluent_kafka.KafkaException) else str(error)
            raise ClientRefused(f"the client's settings: {reason}") from error

    def _note(self, error: confluent_kafka.KafkaError) -> None:
        self.last = _text(error)

    def close(self) -> None:
        """End its connections."""
        self.consumer.close()


@dataclass
class WindowReader:
    """Reads windows of one cluster, each of another partition, side by side; `log` is a consumer that stays open."""

    access: LogAccess
    windows: Sequence[LogWindow]
    silence_seconds: float = SILENCE_SECONDS
    log: LogConsumer | None = None
    _open: dict[TopicPartition, LogWindow] = field(default_factory=dict, init=False)
    _reached: dict[TopicPartition, int] = field(default_factory=dict, init=False)

    def __iter__(self) -> Iterator[Answer]:
        """Yield records of each window in order, in parts; and for each window that it was read, or why not."""
        self._open = {window.partition: window for window in self.windows if window.first < window.end}
        self._reached = {partition: window.first for partition, window in self._open.items()}
        yield from (WindowRead(window) for window in self.windows if window.first >= window.end)
        if not self._open:
            return
        try:
            log = self.log or LogConsumer(self.access)
        except ClientRefused as error:
            yield from self._fail_all(str(error))
            return
        try:
            log.consumer.assign([_place(window.partition, window.first) for window in self._open.values()])
            yield from self._consume(log)
        finally:
            if self.log is None:
                log.close()

    def _consume(self, log: LogConsumer) -> Iterator[Answer]:
        heard = timing.now()
        while self._open:
            messages: list[Message] = log.consumer.consume(_CONSUME, timeout=_POLL_SECONDS)
            answers = list(self._sort(messages, log))
            if answers:
                heard = timing.now()
                yield from answers
                if ended := [answer.window for answer in answers if not isinstance(answer, tuple)]:
                    log.consumer.incremental_unassign([_place(window.partition) for window in ended])
            elif timing.now() - heard > self.silence_seconds:
                for window in list(self._open.values()):
                    cause = _topic_error(log.consumer, window.partition.topic) or log.last
                    because = f" ({cause})" if cause else ""
                    yield self._fail(window, f"nothing came for {span_text(self.silence_seconds)}{because}")

    def _sort(self, messages: list[Message], log: LogConsumer) -> Iterator[Answer]:
        one_topic = len({window.partition.topic for window in self.windows}) == 1
        for partition, part in _by_partition(messages, one_topic=one_topic):
            window = self._open.get(partition)
            if window is None:
                continue
            yield from self._take(window, part, log)

    def _take(self, window: LogWindow, messages: list[Message], log: LogConsumer) -> Iterator[Answer]:
        """Records stand before what ends a partition, as they came."""
        partition, records, fault, reached = window.partition, messages, None, 0
        if messages[-1].error() is not None or messages[-1].offset() >= window.end - 1:
            records = []
            for message in messages:
                error = message.error()
                if error is None and message.offset() < window.end:
                    records.append(message)
                    reached = message.offset() + 1
                elif error is None or error.code() == _CODES._PARTITION_EOF:
                    reached = max(reached, LOG_END if window.end == LOG_END else message.offset())
                elif error.code() in _OF_THE_CLIENT:
                    log.last = _text(error)
                else:
                    fault = _text(error)
                    break
        elif messages:
            reached = messages[-1].offset() + 1
        self._reached[partition] = max(self._reached[partition], reached)
        if records:
            yield window, records
        if self._reached[partition] >= window.end:
            del self._open[partition]
            yield WindowRead(window)
        elif fault is not None:
            yield self._fail(window, fault)

    def _fail(self, window: LogWindow, reason: str) -> ReadFault:
        del self._open[window.partition]
        return ReadFault(window, self._reached[window.partition], reason)

    def _fail_all(self, reason: str) -> list[ReadFault]:
        return [self._fail(window, reason) for window in list(self._open.values())]


def _place(partition: TopicPartition, offset: int = 0) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)


def _topic_error(consumer: confluent_kafka.Consumer, topic: str) -> str:
    """Return what brokers say against a topic: a login that may not see it hears of it only when it asks."""
    try:
        error = consumer.list_topics(topic, timeout=_ASK_SECONDS).topics[topic].error
    except (confluent_kafka.KafkaException, KeyError):
        return ""
    return _text(error) if error is not None else ""


def _by_partition(messages: list[Message], *, one_topic: bool) -> Iterator[tuple[TopicPartition, list[Message]]]:
    """Cut into runs of one partition that end with an error, if there is one in them; a call per message is dear."""
    numbers = [message.partition() for message in messages]
    ends = {row for row in range(1, len(numbers)) if numbers[row] != numbers[row - 1]}
    ends |= {row + 1 for row, message in enumerate(messages) if message.error() is not None}
    if not one_topic:
        topics = [message.topic() for message in messages]
        ends |= {row for row in range(1, len(topics)) if topics[row] != topics[row - 1]}
    first = 0
    for end in sorted(ends | {len(messages)}):
        if first < end:
            number = numbers[first]
            yield TopicPartition(messages[first].topic() or "", -1 if number is None else number), messages[first:end]
        first = end


def _text(error: confluent_kafka.KafkaError | Any) -> str:
    text = error.str() if isinstance(error, confluent_kafka.KafkaError) else str(error)
    is_refused = isinstance(error, confluent_kafka.KafkaError) and error.code() == _CODES.TOPIC_AUTHORIZATION_FAILED
    return " ".join(text.split())[:_LONGEST_REASON] + ("; this login needs Read on the topic" if is_refused else "")
