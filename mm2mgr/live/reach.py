"""How long a command waits for answers and how much it asks at once, and one Kafka cluster while it is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.secrets import mask_config
from mm2mgr.truth.reach import CLUSTER_KEYS

if TYPE_CHECKING:
    from mm2mgr.kafka.client import Kafka

_AFTER_SILENCE_SECONDS = 2.0
_WITHOUT_KAFKA_SECONDS = 3.0
_AFTER_SILENT_WORKERS_SECONDS = 3.5


@dataclass(frozen=True)
class Limits:
    """How long a command waits for answers, and how much it asks at once.

    `connect_seconds` bounds a request to Connect with all its retries, `kafka_seconds` a call to Kafka, and
    `measuring_seconds` one that reads records, quotas or offsets by time. `at_once` are requests per Connect cluster:
    a read of one connector may be forwarded to the leader, and writes share one rebalance (seen: 3 s against 25 s one
    after the other). `look_seconds` bounds a request of one look of many, `write_seconds` a write. `is_total`:
    `kafka_seconds` bounds all calls of a round to one login. `spares_silent_workers`: where the workers' own Kafka
    cluster did not answer an earlier round, all requests of a round to them end within a few seconds; and where workers
    let all their time pass, calls to Kafka have less.
    `silence_seconds` bounds a request to a Connect cluster of which no worker has answered anything yet.
    `report_waits` is called with the clusters that have not answered yet, whenever these change.
    """

    connect_seconds: float = 30.0
    look_seconds: float = 15.0
    write_seconds: float = 120.0
    kafka_seconds: float = 10.0
    measuring_seconds: float = 10.0
    at_once: int = 8
    kafka_at_once: int = 64
    is_total: bool = False
    spares_silent_workers: bool = False
    silence_seconds: float = math.inf
    report_waits: Callable[[tuple[str, ...]], object] | None = None

    def after_silence(self) -> Limits:
        """Return the limits for a Kafka cluster that let one time-out pass already: its later questions wait less."""
        kafka, measuring = (
            min(seconds, _AFTER_SILENCE_SECONDS) for seconds in (self.kafka_seconds, self.measuring_seconds)
        )
        return replace(self, kafka_seconds=kafka, measuring_seconds=measuring)

    def after_silent_workers(self) -> Limits:
        """Return the limits for Kafka clusters in the rounds after one in which workers let all their time pass."""
        return replace(self, kafka_seconds=min(self.kafka_seconds, _AFTER_SILENT_WORKERS_SECONDS))

    @property
    def round_seconds(self) -> float:
        """How long all requests of a round may take to workers whose own Kafka cluster is silent: they answer for
        states, which they have in memory, and let requests for tasks and offsets run into a time-out."""
        return min(self.connect_seconds, _WITHOUT_KAFKA_SECONDS)


@dataclass(frozen=True)
class ClientLogin:
    """A way into one Kafka cluster, as the workers use it.

    `assumed`: the workers have their own login, and this is the tree's description of it.
    """

    cluster: str
    servers: str
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    assumed: bool = False

    @classmethod
    def from_config(cls, cluster: str, config: Mapping[str, str], *, assumed: bool = False) -> ClientLogin:
        """Make one of plain client keys; keys that are neither address nor security are dropped."""
        security = {key: value for key, value in config.items() if key in CLUSTER_KEYS and key != "bootstrap.servers"}
        if security.get("security.protocol") == "PLAINTEXT":  # written or not: one login
            security = {}
        return cls(cluster, config.get("bootstrap.servers", ""), tuple(sorted(security.items())), assumed)

    def as_stored(self) -> ClientLogin:
        """Return it as a file has it, without secrets."""
        return replace(self, security=tuple(sorted(mask_config(dict(self.security)).items())))


@dataclass
class KafkaReach:
    """One Kafka cluster while it is asked: its login, and an admin client that all its questions share."""

    access: KafkaAccess
    limits: Limits
    _opened: ExitStack = field(default_factory=ExitStack)
    _lock: Lock = field(default_factory=Lock)

    @property
    def kafka(self) -> Kafka:
        """The admin client, made when it is first used: some questions need none."""
        with self._lock:
            return self._client

    @cached_property
    def _client(self) -> Kafka:
        kafka = self._opened.enter_context(self.connect(self.limits.kafka_seconds))
        if self.limits.is_total:
            kafka.limit_time(self.limits.kafka_seconds)
        return kafka

    def connect(self, timeout_seconds: float) -> Kafka:
        """Return a client of its own, for a question whose calls take longer or end together."""
        from mm2mgr.kafka.client import Kafka  # loads librdkafka, which a plan with declared ids does without

        return Kafka(self.access, timeout_seconds)

    def close(self) -> None:
        """Let go of the client."""
        self._opened.close()
