"""Cruise Control's own sample topic: decoded and appended to the table `samples` by tasks of Spark or in this process,
exactly once.

How far each partition of the topic was read is recorded by the very commit that appends its samples, so there is no
checkpoint to keep: a process that dies between the two loses and repeats nothing, and of two that read the same topic
one goes on behind the other. Executors need confluent-kafka.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from mm2mgr.samples.schema import SAMPLES, Store, is_remote
from mm2mgr.samples.tables import Conflict, StoredTable
from mm2mgr.samples.writer import Expected, SampleWriter
from mm2mgr.throughput.cruise_reader import CRUISE_CONTROL_TOPIC, Offsets, TopicReader
from mm2mgr.throughput.cruise_records import ONLY_HERE
from mm2mgr.throughput.warm_session import WarmSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mm2mgr.samples.batch import Gathered, Inventory
    from mm2mgr.samples.readers import Opening

_REACH_MS = 15 * 86_400_000
_RECORDS_PER_COMMIT = 1_000_000


def append(
    reader: TopicReader, start: Offsets, end: Offsets, writer: SampleWriter, spark: SparkSession | None
) -> tuple[int, list[str]]:
    """Append the samples between two offsets in one commit; return their number, and sentences about what was refused.

    On Spark, records are decoded and stored by its tasks; without, by the same two objects here.
    """
    writer.create()
    if spark is None:
        tasks = reader.partitions(start, end)
        return writer.commit([writer.write(reader.read(task)) for task in tasks])
    from mm2mgr.throughput.sample_sources import append_on_spark

    append_on_spark(spark, reader, start, end, writer)
    return writer.report()


# --- as a source of `sample` ------------------------------------------------------------------------------------------


class _Metrics(Protocol):
    cruise_control_topic: str
    cruise_control_interval: float


def declared_topic(alias: str, metrics: object, settings: Mapping[str, str]) -> TopicReader:
    """Return what reads the sample topic that `metrics:` of a cluster declare."""
    declared = cast("_Metrics", metrics)
    return TopicReader(alias, declared.cruise_control_topic, settings, round(declared.cruise_control_interval * 1000))


def open_source(opening: Opening) -> TopicSource:
    """Open the sample topic that is declared; Spark starts when it is read first."""
    reader = declared_topic(opening.access.alias, opening.metrics, opening.kafka_settings())
    spark = _shared_spark(opening.log_file) if opening.on_spark else None
    store = opening.store if is_remote(opening.store) else Path(opening.store).absolute()  # for processes elsewhere
    return TopicSource(reader, store, spark, opening.java_home)


@cache
def _shared_spark(log_file: Path) -> WarmSpark:
    """Return one session for all clusters, started when the first needs it."""
    return WarmSpark(log_file)


@dataclass(frozen=True)
class TopicSource:
    """Cruise Control's sample topic on one cluster, appended to a store; `spark` None works in this process."""

    reader: TopicReader
    store: Store
    spark: WarmSpark | None = None
    java_home: Path | None = None
    source_prefix: ClassVar[str] = CRUISE_CONTROL_TOPIC

    def close(self) -> None:
        """End Spark, which the clusters share."""
        if self.spark:
            self.spark.close()

    def gather(self, inventory: Inventory, since_ms: int | None, until_ms: int) -> Iterator[Gathered]:
        """Append what came since the last commit, and yield how many samples that were, commit by commit.

        A topic that the store knows nothing of is read from `since_ms` on (None: all that it has).
        """
        from mm2mgr.samples.batch import Gathered

        names = self._progress_names(inventory)
        table, bounds = StoredTable(self.store, SAMPLES), self.reader.bounds()
        ends = {number: end for number, (_, end) in bounds.items()}
        stored = table.progress(map(names, bounds))
        stored_offsets = {number: stored[names(number)] for number in bounds if names(number) in stored}
        start, notes = self._start(bounds, stored_offsets, since_ms)
        expected = Expected.from_inventory(inventory, min(since_ms or until_ms, until_ms - _REACH_MS), until_ms)
        for end in _commits(start, ends):
            progress = {names(number): (start[number], end[number]) for number in end if start[number] < end[number]}
            writer = SampleWriter(self.store, expected, progress, str(uuid.uuid4()), ONLY_HERE)
            try:
                spark = self.spark.session(self.java_home) if self.spark else None
                samples, refused = append(self.reader, start, end, writer, spark)
            except Conflict as error:
                yield Gathered([], [*notes, error.message])
                return
            start = end
            yield Gathered([], [*notes, *refused], samples)
            notes = []
        if notes:
            yield Gathered([], notes)

    def _progress_names(self, inventory: Inventory) -> Callable[[int], str]:
        """Return how the progress of a partition is called in the table: a topic created anew has another name."""
        info = inventory.topics.get(self.reader.topic)
        topic_id = info.topic_id if info else None
        return lambda number: f"mm2mgr {self.reader.cluster} {self.reader.topic} {topic_id or ''} {number}"

    def _start(
        self, bounds: Mapping[int, tuple[int, int]], stored: Offsets, since_ms: int | None
    ) -> tuple[dict[int, int], list[str]]:
        start, notes = {number: low for number, (low, _) in bounds.items()}, list[str]()
        if not stored and since_ms is not None:
            return self.reader.offsets_at(since_ms, {number: end for number, (_, end) in bounds.items()}), []
        expired = sum(max(0, low - stored[number]) for number, (low, _) in bounds.items() if number in stored)
        if expired:
            notes.append(f"{expired} records of {self.reader.topic} expired before they were read")
        for number, offset in stored.items():
            low, end = bounds[number]
            if offset > end:
                notes.append(
                    f"partition {number} of {self.reader.topic} ends at {end}, before what was read ({offset})"
                )
            start[number] = max(low, offset) if offset <= end else end
        return start, notes


def _commits(start: Offsets, ends: Offsets) -> Iterator[dict[int, int]]:
    """Yield the ends of one commit after another, so that a long past is not one commit; none where nothing is due."""
    count = -(-sum(end - start[number] for number, end in ends.items()) // _RECORDS_PER_COMMIT)
    for piece in range(1, count + 1):
        yield {number: start[number] + (end - start[number]) * piece // count for number, end in ends.items()}
