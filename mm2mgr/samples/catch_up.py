"""Clusters whose samples come from another system than Kafka: its answers, read as a source of the loop.

What was missed is caught up, oldest first and a bounded piece per poll: the system is asked for everything after its
newest sample in the store, and a long answer is taken to its end before the next question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, TypeAlias, cast

from mm2mgr import timing
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.client import Kafka
from mm2mgr.metric_sources import SourceKind
from mm2mgr.samples.batch import Batch, Gathered, Inventory
from mm2mgr.samples.clock import AHEAD_MS
from mm2mgr.samples.follow import Poll
from mm2mgr.samples.http import Http
from mm2mgr.samples.store import SampleStore

_ROWS_PER_POLL = 1_000_000
_TOPICS_FOR_SECONDS = 300.0
_LATE_MS = 3_600_000  # what a source that answers does not have after an hour will not come: it is not asked for again
_REACH_MS = 15 * 86_400_000


class Source(Protocol):
    """A system that can be asked for the samples of a span of time."""

    @property
    def source_prefix(self) -> str:
        """What the sources of its samples start with."""

    def gather(self, inventory: Inventory, since_ms: int | None, until_ms: int) -> Iterator[Gathered]:
        """Yield what it knows of the span (since exclusive, None: only the newest, or all of a topic), oldest first."""

    def close(self) -> None:
        """Close its connections."""


@dataclass(frozen=True)
class Opening:
    """What a metric source of one cluster is opened with: how Kafka is reached, and `metrics:` as declared.

    `http` opens a session with the endpoint that is declared for this source. What needs a JVM asks `java_home`, and
    its log is `log_file`.
    """

    access: KafkaAccess
    metrics: object
    step_seconds: float
    http: Callable[[], Http]
    java_home: Callable[[], Path | None]
    log_file: Path

    def kafka_settings(self) -> dict[str, str]:
        """Return how librdkafka reaches the cluster."""
        return librdkafka_config(self.access)


class _SourceModule(Protocol):
    def open_source(self, opening: Opening) -> Source: ...


def open_source(kind: SourceKind, opening: Opening) -> Source:
    """Open a metric source by its line of the table."""
    return cast("_SourceModule", import_module(kind.module)).open_source(opening)


_OpenAnswer: TypeAlias = tuple[Iterator[Gathered], int, int]
"""What a source has still to give; the first moment whose samples are believed, and the last that was asked for."""


@dataclass
class MetricSourceReader:
    """Reads one cluster from one source; `back_seconds` is how much of the past a first reading takes, 0 the newest
    only."""

    access: KafkaAccess
    accepts: Callable[[str], bool]
    source: Source
    store: SampleStore
    back_seconds: float = 0.0
    timeout_seconds: float = 10.0
    _newest_ms: int | None = None
    _looked: bool = False
    _answer: _OpenAnswer | None = None
    _inventory: Inventory | None = None
    _inventory_until: float = 0.0

    def __post_init__(self) -> None:
        self.name = self.access.alias

    def poll(self) -> Poll:
        """Return what is new since the last poll; Mm2mgrError when the source, or Kafka's metadata, cannot be read."""
        # A begun answer first: a topic comes in order of offsets, so asking anew behind the newest time would skip
        # samples.
        answer, self._answer = self._answer or self._ask(time.time_ns() // 1_000_000), None
        pieces, floor_ms, until_ms = answer
        batches: list[Batch] = []
        notes: dict[str, None] = {}
        try:
            for piece in pieces:
                believed, doubts = _in_time(piece.batches, floor_ms, until_ms)
                batches += believed
                notes |= dict.fromkeys([*piece.notes, *doubts])
                self._newest_ms = max([self._newest_ms or 0, *(batch.time_ms for batch in believed)]) or None
                if sum(map(len, batches)) >= _ROWS_PER_POLL:
                    self._answer = answer
                    return Poll(
                        batches,
                        notes=(*notes, "catching up; more samples are pending"),
                        has_more=True,
                        lost=self._forget,
                    )
        except Mm2mgrError as error:
            if not batches:
                raise
            # What came is kept; the next poll goes on behind it.
            return Poll(batches, notes=(*notes, error.message), lost=self._forget)
        if self._newest_ms is not None:
            self._newest_ms = max(self._newest_ms, until_ms - _LATE_MS)
        return Poll(batches, notes=tuple(notes), lost=self._forget)

    def close(self) -> None:
        """Close the source."""
        self.source.close()

    def _forget(self) -> None:
        """Go back to what the store has: the next poll asks for everything after that."""
        self._answer, self._newest_ms, self._looked = None, None, False

    def _ask(self, now_ms: int) -> _OpenAnswer:
        since_ms = self._read_since_ms(now_ms)
        pieces = self.source.gather(self._topics(), since_ms, now_ms)
        return pieces, min(since_ms or now_ms, now_ms - _REACH_MS), now_ms

    def _topics(self) -> Inventory:
        if self._inventory is None or timing.now() > self._inventory_until:
            with Kafka(self.access, self.timeout_seconds) as kafka:
                self._inventory = Inventory(self.access.alias, kafka.topics(), self.accepts)
            self._inventory_until = timing.now() + _TOPICS_FOR_SECONDS
        return self._inventory

    def _read_since_ms(self, now_ms: int) -> int | None:
        if not self._looked:
            self._newest_ms = self.store.newest_of(self.name, self.source.source_prefix, now_ms - _REACH_MS)
            self._looked = True
        if self._newest_ms is not None:
            # What a clock that was ahead left, in the store or here, must not keep everything until then out.
            self._newest_ms = min(self._newest_ms, now_ms)
        if self._newest_ms is None and self.back_seconds:
            return now_ms - round(self.back_seconds * 1000)
        return self._newest_ms


def _in_time(batches: Sequence[Batch], since_ms: int, now_ms: int) -> tuple[list[Batch], list[str]]:
    believed = [batch for batch in batches if since_ms <= batch.time_ms <= now_ms + AHEAD_MS]
    if lost := sum(map(len, batches)) - sum(map(len, believed)):
        return believed, [f"{lost} samples dropped: their time is in the future or long past"]
    return believed, []
