"""One Kafka cluster through its admin API: its id, topics and offsets, and topics created for a demo.

`Kafka` is the only admin client of mm2mgr. Every failure of librdkafka is a KafkaError that names the cluster's alias
and contains no secret. `inspection` asks it what a login sees and may do; `records` reads logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from mm2mgr import timing
from mm2mgr.errors import KafkaError, KafkaSilence
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.secrets import cut, mask_text

_NO_ANSWER = {
    confluent_kafka.KafkaError._TRANSPORT,
    confluent_kafka.KafkaError._TIMED_OUT,
    confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
    confluent_kafka.KafkaError._RESOLVE,
}
_LOGIN = {
    confluent_kafka.KafkaError._AUTHENTICATION,
    confluent_kafka.KafkaError._SSL,
    confluent_kafka.KafkaError.SASL_AUTHENTICATION_FAILED,
}
_LONGEST_REASON = 300
T = TypeVar("T")
_PARTITIONS_PER_REQUEST = 5_000
_NAMES_PER_REQUEST = 1_000
_FIRST_LISTING_SECONDS = 0.5
_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
_REFUSED_SECONDS = 2.0  # a refused login may still find another broker that takes it, but not for long
_DOWN_SECONDS = 0.5
_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # what brokers before 2.8 answer: sixteen zero bytes

# librdkafka prints to stderr unless it has a logger; its errors reach the user through `Failures` instead.
_silent = logging.getLogger("mm2mgr.kafka.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


@dataclass
class Failures:
    """The last background error of one client that explains failures, and the KafkaErrors built from it."""

    access: KafkaAccess
    last: confluent_kafka.KafkaError | None = None
    all_down: bool = False

    def note(self, error: confluent_kafka.KafkaError) -> None:
        """Keep a background error; a refused login stays, as `all brokers down`, which follows, says less."""
        self.all_down |= error.code() == confluent_kafka.KafkaError._ALL_BROKERS_DOWN
        if not self.is_refused:
            self.last = error

    @property
    def is_refused(self) -> bool:
        """Tell whether the login or the TLS handshake failed, which waiting does not fix."""
        return self.last is not None and self.last.code() in _LOGIN

    def error(self, cause: BaseException, doing: str, timeout_seconds: float) -> KafkaError:
        """Build the KafkaError for a failed call: no answer, a refused login, or the broker's own message."""
        reported = cause.args[0] if isinstance(cause, confluent_kafka.KafkaException) and cause.args else None
        code = reported.code() if isinstance(reported, confluent_kafka.KafkaError) else None
        if code in _NO_ANSWER or isinstance(cause, TimeoutError):
            return self.no_answer(timeout_seconds)
        reason = reported.str() if isinstance(reported, confluent_kafka.KafkaError) else str(reported or cause)
        return KafkaError(f"{self.access.alias}: {doing} failed: {self.cut(reason)}", hint=_hint(code, reason))

    def no_answer(self, timeout_seconds: float) -> KafkaSilence:
        """Build the error for no answer in time, with the refused login or connection that explains it."""
        reason = f": {self.cut(self.last.str())}" if self.last is not None else ""
        servers, alias = self.access.bootstrap_servers, self.access.alias
        message = f"{alias}: no broker of {servers} answered within {timeout_seconds:g} s{reason}"
        return KafkaSilence(message, hint=_hint(self.last.code() if self.last and self.is_refused else None))

    def cut(self, text: str) -> str:
        """Put a library's text on one line, without secrets, and shorten it."""
        return cut(" ".join(mask_text(text).split()), _LONGEST_REASON)


def client_settings(access: KafkaAccess, extra: Mapping[str, object]) -> tuple[dict[str, Any], Failures]:
    """Return the settings of one silent client, and where its background errors are kept."""
    config = librdkafka_config(access)
    failures = Failures(access)
    quiet = {"logger": _silent, "log_level": 0, "error_cb": failures.note, "client.id": "mm2mgr"}
    return {**config, **quiet, **extra}, failures


def open_client(
    kind: Callable[[dict[str, object]], T], access: KafkaAccess, extra: Mapping[str, object]
) -> tuple[T, Failures]:
    """Return a silent client, and where its background errors are kept; KafkaError for settings it refuses."""
    settings, failures = client_settings(access, extra)
    try:
        return kind(settings), failures
    except (confluent_kafka.KafkaException, ValueError) as error:
        raise failures.error(error, "the client's settings", 0) from error


def _is_silence(error: confluent_kafka.KafkaError) -> bool:
    """Tell whether an error means that no broker answered, as against a broker that said no."""
    return error.code() in _NO_ANSWER


def _hint(code: int | None, reason: str = "") -> str:
    if "ssl.key." in reason:
        return "check the private key; an encrypted one needs `ssl.key.password` beside it"
    if code in _LOGIN:
        return "check security.protocol, the login and the truststore of this cluster; mm2mgr reads with them itself"
    if code in (
        confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
        confluent_kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    ):
        return "this login needs Describe and Read on the topics that mm2mgr looks at"
    if code == confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED:
        return "this login needs Read on that group"
    return "check bootstrap servers and network from this machine; an `access:` block can name other listeners"


@dataclass(frozen=True)
class TopicInfo:
    """One topic: number of partitions, its id (None before Kafka 2.8), and whether it belongs to Kafka itself."""

    partitions: int
    topic_id: str | None
    internal: bool


@dataclass
class OffsetsRead:
    """The offsets that were read, the reason for each partition without them, and whether a broker stayed silent."""

    found: dict[TopicPartition, Offsets]
    failed: dict[TopicPartition, str]
    unanswered: bool = False


class Kafka:
    """A connection to one cluster; use it in a `with` block.

    `timeout_seconds` bounds every single call; after `limit_time` a deadline bounds all calls together.
    """

    def __init__(self, access: KafkaAccess, timeout_seconds: float = 10.0) -> None:
        self.access = access
        self.timeout_seconds = timeout_seconds
        self._deadline: float | None = None
        settings, self.failures = client_settings(access, {"socket.timeout.ms": max(1000, int(timeout_seconds * 1000))})
        with self.doing("the client's settings"):
            self.admin = AdminClient(settings)

    def __enter__(self) -> Kafka:
        return self

    def __exit__(self, *_: object) -> None:
        del self.admin  # librdkafka closes its connections when the last reference goes

    # --- waiting ------------------------------------------------------------------------------------------------------

    def limit_time(self, timeout_seconds: float) -> None:
        """Let all calls from here on end within so many seconds together."""
        self.timeout_seconds = timeout_seconds
        self._deadline = timing.now() + timeout_seconds

    def seconds_left(self) -> float:
        """Return the seconds that a call may take; TimeoutError when the deadline has passed."""
        left = self.timeout_seconds if self._deadline is None else self._deadline - timing.now()
        if left <= 0:
            raise TimeoutError
        return left

    def result(self, future: Future[T]) -> T:
        """Return an answer; KafkaException and TimeoutError are for `doing`."""
        left = self.timeout_seconds if self._deadline is None else max(0.0, self._deadline - timing.now())
        # librdkafka ends every request by itself; the extra second only guards against a lost callback.
        return future.result(timeout=left + 1)

    def first_answer(self, future: Future[T], *, while_down: bool) -> T:
        """Return an answer; give up early if the login is refused, or no broker listens (unless `while_down`)."""
        began = timing.now()
        while not future.done():
            self.admin.poll(0.05)  # delivers the background errors
            passed = timing.now() - began
            down = self.failures.all_down and not while_down and passed > _DOWN_SECONDS
            if down or (self.failures.is_refused and passed > _REFUSED_SECONDS):
                raise self.failures.no_answer(round(passed, 1))
        return self.result(future)

    def unless_refused(self, future: Future[T], absent: T | None = None) -> T | None:
        """Return an answer, `absent` for a topic that does not exist, None for a refusal; silence is raised."""
        try:
            return self.result(future)
        except confluent_kafka.KafkaException as error:
            if _is_silence(error.args[0]):
                raise
            return absent if error.args[0].code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART else None

    @contextmanager
    def doing(self, task: str) -> Iterator[None]:
        """Turn the library's errors into KafkaErrors that name the cluster and what was being done."""
        try:
            yield
        except (confluent_kafka.KafkaException, TimeoutError, ValueError) as error:
            if hasattr(self, "admin"):
                self.admin.poll(0)  # delivers the background error that explains a time-out
            raise self.failures.error(error, task, self.timeout_seconds) from error

    # --- the cluster and its topics -----------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        """Return the cluster's id, the one identity that survives renamed hosts."""
        return self.identity()[0]

    def identity(self, *, while_down: bool = True) -> tuple[str, int]:
        """Return the cluster's id and the number of its brokers; see `first_answer`."""
        with self.doing("reading the cluster id"):
            asked = self.admin.describe_cluster(request_timeout=self.seconds_left())
            described = self.first_answer(asked, while_down=while_down)
            return str(described.cluster_id), len(described.nodes)

    def topics(self) -> dict[str, TopicInfo]:
        """Return every topic that this login may see."""
        with self.doing("listing topics"):
            listed = self.admin.list_topics(timeout=self.seconds_left()).topics
            identities = self._identities(sorted(listed))
        return {
            name: TopicInfo(len(topic.partitions), *identities.get(name, (None, name.startswith("__"))))
            for name, topic in listed.items()
            if topic.partitions
        }

    def partition_counts(self) -> dict[str, int]:
        """Return the partitions of every topic that this login may see; fails early when all brokers refuse."""
        return self.counts_with_id()[0]

    def counts_with_id(self) -> tuple[dict[str, int], str]:
        """Return the same, and the cluster's id, "" where its brokers do not say it."""
        listed = self.listing()
        counts = {name: len(topic.partitions) for name, topic in listed.topics.items() if topic.partitions}
        return counts, listed.cluster_id or ""

    def listing(self) -> ClusterMetadata:
        """Return the client's metadata of all topics and brokers; fails early when all brokers refuse.

        Each request waits twice as long as the one before: an answer to a request that was given up counts for nothing,
        so a broker that needs a second for each would never be heard.
        """
        deadline, seconds = timing.now() + self.timeout_seconds, _FIRST_LISTING_SECONDS
        while True:
            try:
                return self.admin.list_topics(timeout=min(seconds, max(0.0, deadline - timing.now())))
            except confluent_kafka.KafkaException as error:
                self.admin.poll(0)  # delivers the background error that explains a time-out
                if self.failures.all_down or self.failures.is_refused or timing.now() >= deadline:
                    raise self.failures.error(error, "listing topics", self.timeout_seconds) from error
                seconds *= 2

    def offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offsets]:
        """Return log start and end per partition; partitions that cannot be read are absent (see `read_offsets`)."""
        return self.read_offsets(partitions).found

    def read_offsets(self, partitions: Iterable[TopicPartition], *, committed: bool = False) -> OffsetsRead:
        """Return log start and end per partition, and the reason for each partition without them. `committed`: an end
        before open transactions.

        KafkaError only when no partition at all could be read because nothing answered.
        """
        read = OffsetsRead({}, {})
        with self.doing("reading offsets"):
            for batch in batches(list(dict.fromkeys(partitions)), _PARTITIONS_PER_REQUEST):
                starts = self._list_offsets(batch, _EARLIEST, read)
                ends = self._list_offsets(list(starts), _LATEST, read, committed=committed)
                read.found.update({partition: Offsets(starts[partition], end) for partition, end in ends.items()})
        if read.failed and not read.found and read.unanswered:
            self.admin.poll(0)
            raise self.failures.no_answer(self.timeout_seconds)
        return read

    def offsets_since(self, since_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return by partition the first offset of this time (ms since 1970) or later, -1 where there is none."""
        by_time: dict[int, list[TopicPartition]] = {}
        for partition, time_ms in since_ms.items():
            by_time.setdefault(time_ms, []).append(partition)
        read, read_offsets_since = OffsetsRead({}, {}), {}
        with self.doing("looking up offsets by time"):
            for time_ms, partitions in by_time.items():
                for batch in batches(partitions, _PARTITIONS_PER_REQUEST):
                    spec = OffsetSpec.for_timestamp(time_ms)
                    read_offsets_since.update(self._list_offsets(batch, spec, read))
        return read_offsets_since

    def wait_for_controller(self, timeout_seconds: float) -> None:
        """Wait until the controller, which creates topics, is one of the brokers; KafkaError if it is none in time."""
        end = timing.now() + timeout_seconds
        with self.doing("looking for the controller"):
            while True:
                listed = self.admin.list_topics(timeout=self.seconds_left())
                if listed.controller_id in listed.brokers:
                    return
                if timing.now() > end:
                    raise KafkaError(
                        f"{self.access.alias}: none of its brokers is its controller, so no topic can be created",
                        hint="bring the controller back, then try again",
                    )
                self.admin.poll(0.1)

    def create_topics(self, topics: Mapping[str, tuple[int, int, Mapping[str, str]]]) -> list[str]:
        """Create topics given as name: (partitions, replication factor, configs); return the names that were new.

        Returns when every partition can be read. A topic that exists already is left as it is.
        """
        new = [NewTopic(name, count, factor, config=dict(more)) for name, (count, factor, more) in topics.items()]
        created = []
        for name, future in self.admin.create_topics(new, request_timeout=self.seconds_left()).items() if new else []:
            with self.doing(f"creating topic {name}"):
                try:
                    self.result(future)
                    created.append(name)
                except confluent_kafka.KafkaException as error:
                    if error.args[0].code() != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        self._wait_until_readable({name: count for name, (count, _, _) in topics.items()})
        return created

    def delete_topic(self, topic: str) -> None:
        """Delete a topic that mm2mgr created for a moment."""
        with self.doing(f"deleting topic {topic}"):
            (future,) = self.admin.delete_topics([topic], request_timeout=self.seconds_left()).values()
            self.result(future)

    def _wait_until_readable(self, counts: Mapping[str, int]) -> None:
        """Wait for metadata and then for the leaders: they are named a moment before they know their partition."""
        deadline = timing.now() + self.timeout_seconds
        while late := self._without_leaders(counts) or list(self.read_offsets(_partitions(counts)).failed):
            if timing.now() > deadline:
                raise KafkaError(f"{self.access.alias}: {late[0]} is created but not readable yet")
            self.admin.poll(0.1)

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the ids of these topics; absent: one that cannot be described, and every one before Kafka 2.8."""
        with self.doing("describing topics"):
            identities = self._identities(sorted(names))
        return {name: topic_id for name, (topic_id, _) in identities.items() if topic_id}

    def _without_leaders(self, counts: Mapping[str, int]) -> list[TopicPartition]:
        # Listing also refreshes librdkafka's cache, which otherwise remembers a topic as unknown for 30 s.
        with self.doing("listing topics"):
            topics = self.admin.list_topics(timeout=self.seconds_left()).topics
        led = {
            TopicPartition(name, number)
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
            if partition.leader >= 0
        }
        return [partition for partition in _partitions(counts) if partition not in led]

    def _identities(self, names: list[str]) -> dict[str, tuple[str | None, bool]]:
        """Topic id and internal flag; a topic that no broker describes is left out, for its offsets still count.

        Silence is raised: without its id, a topic that is created again cannot be told from the one before.
        """
        identities: dict[str, tuple[str | None, bool]] = {}
        for batch in batches(names):
            asked = confluent_kafka.TopicCollection(batch)
            for name, future in self.admin.describe_topics(asked, request_timeout=self.seconds_left()).items():
                if (described := self.unless_refused(future)) is None:
                    continue
                topic_id = str(described.topic_id)
                identities[name] = (None if topic_id == _NO_TOPIC_ID else topic_id, bool(described.is_internal))
        return identities

    def _list_offsets(
        self, partitions: list[TopicPartition], spec: OffsetSpec, read: OffsetsRead, *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        offsets: dict[TopicPartition, int] = {}
        asked = {confluent_kafka.TopicPartition(*partition): spec for partition in partitions}
        more = {"isolation_level": confluent_kafka.IsolationLevel.READ_COMMITTED} if committed else {}
        answers = self.admin.list_offsets(asked, request_timeout=self.seconds_left(), **more) if asked else {}
        for key, future in answers.items():
            partition = TopicPartition(key.topic, key.partition)
            try:
                offsets[partition] = self.result(future).offset
            except confluent_kafka.KafkaException as error:
                read.failed[partition] = self.failures.cut(error.args[0].str())
                read.unanswered |= _is_silence(error.args[0])
            except TimeoutError:
                read.failed[partition] = "no answer in time"
                read.unanswered = True
        return offsets


def _partitions(counts: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]


def batches(items: Sequence[T], size: int = _NAMES_PER_REQUEST) -> Iterator[list[T]]:
    """Cut a list into what one request takes."""
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
