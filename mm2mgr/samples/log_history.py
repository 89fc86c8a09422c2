"""When the logs of some partitions had reached an offset, from the sample store: read backwards, hour by hour, until
all are found.

It needs the samples of Kafka itself, which hold end offsets; rates of other sources say nothing about offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mm2mgr import timing
from mm2mgr.partitions import LogHistory, TopicPartition
from mm2mgr.samples.schema import SAMPLES, Store, hour_end_ms, hour_start_ms
from mm2mgr.samples.tables import DataFile, StoredTable, by_period, codes_of

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_COLUMNS = ("cluster", "topic", "partition", "topic_id", "time_ms", "end_offset", "record_bytes")
_MOST_HOURS = 7 * 24
_MOST_SECONDS = 20.0
_ANY, _NONE = -2, -3  # in place of the number of a topic id
_RECENT_MS = 900_000  # of these minutes every sample is returned; of earlier ones, those around the position


@dataclass(frozen=True)
class WantedLog:
    """A partition and the offset that is looked for in its history; the id of its topic ("": any)."""

    partition: TopicPartition
    position: int
    topic_id: str = ""


def log_histories(
    store: Store,
    logs_of_clusters: Mapping[str, Sequence[WantedLog]],
    now_ms: int,
    warn: Callable[[str], None] = lambda _: None,
) -> dict[str, list[LogHistory]]:
    """Return the samples around each wanted offset and those of the last minutes, by cluster in the order of what is
    wanted.

    Without samples a history is empty. Older samples than those of a week, or than are read in 20 seconds, are not
    looked for: then the first sample that is returned has passed the offset. `warn` gets a sentence for each damaged
    file.
    """
    table, until = StoredTable(store, SAMPLES, warn), timing.now() + _MOST_SECONDS
    hours = {hour: of for hour, of in by_period(table.files()).items() if hour_start_ms(hour) <= now_ms}
    search = _Search(logs_of_clusters, now_ms)
    for hour in sorted(hours, reverse=True)[:_MOST_HOURS]:
        if search.is_done and hour_end_ms(hour) < now_ms - _RECENT_MS:
            break
        if timing.now() > until:
            break
        search.take(list(_rows(table, hours[hour], search.clusters)))
    histories = iter(search.histories())
    return {alias: [next(histories) for _ in logs] for alias, logs in logs_of_clusters.items()}


def _rows(table: StoredTable, files: Sequence[DataFile], clusters: frozenset[str]) -> Iterator[pa.RecordBatch]:
    for file in files:
        low, high = file.bounds.get("cluster", (min(clusters, default=""), max(clusters, default="")))
        if not any(low <= cluster <= high for cluster in clusters):
            continue
        rows = table.read_or_warn(file, _COLUMNS)
        if rows is not None:
            yield from (batch for batch in rows.to_batches() if len(batch))


class _Search:
    """The wanted logs as places in arrays, and the samples that were found of each. Flows to several targets read the
    same partition at different offsets: each such place is in a layer of its own."""

    def __init__(self, logs_of_clusters: Mapping[str, Sequence[WantedLog]], now_ms: int) -> None:
        self.clusters = frozenset(alias for alias, logs in logs_of_clusters.items() if logs)
        self._logs = [(alias, log) for alias, logs in logs_of_clusters.items() for log in logs]
        self._blocks, self._layers = _number_blocks(self._logs)
        self._ids = {(alias, log.partition.topic): log.topic_id for alias, log in self._logs}
        self._position = np.array([log.position for _, log in self._logs], np.int64)
        self._open = np.ones(len(self._logs), bool)
        self._recent_ms = now_ms - _RECENT_MS
        self._bytes: dict[int, float] = {}
        self._kept: list[tuple[Numbers, Numbers, Numbers]] = []

    @property
    def is_done(self) -> bool:
        """Whether a sample from before each wanted offset was found."""
        return not self._open.any()

    def take(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Take the samples of one hour; hours come newest first."""
        columns_of_batches = [columns for batch in batches for columns in self._wanted_rows(batch)]
        if not columns_of_batches:
            return
        place, times, ends, sizes = (np.concatenate(parts) for parts in zip(*columns_of_batches, strict=True))
        order = np.lexsort((times, place))
        place, times, ends, sizes = place[order], times[order], ends[order], sizes[order]
        for at in np.flatnonzero(~np.isnan(sizes))[::-1].tolist():
            self._bytes.setdefault(int(place[at]), float(sizes[at]))
        passed = ends > self._position[place]
        last = np.append(place[1:] != place[:-1], True)
        first = np.append(True, place[1:] != place[:-1])
        before_next = np.append(passed[1:], True) & ~passed  # the next sample has passed the offset, or there is none
        after_last = passed & np.append(True, ~passed[:-1])
        # The hour's first and last sample keep the series whole: they bracket the offset together with the hours beside
        # it.
        keep = self._open[place] & (before_next | after_last | first | last)
        keep |= times >= self._recent_ms
        self._kept.append((place[keep], times[keep], ends[keep]))
        self._open[np.unique(place[~passed])] = False

    def _wanted_rows(self, batch: pa.RecordBatch) -> Iterator[tuple[Numbers, Numbers, Numbers, Floats]]:
        clusters, cluster = codes_of(batch["cluster"])
        topics, topic = codes_of(batch["topic"])
        ids, topic_id = codes_of(batch["topic_id"])
        pairs = cluster.astype(np.int64) * len(topics) + topic
        first, count, wanted_id = (np.full(len(clusters) * len(topics), -1, np.int64) for _ in range(3))
        for pair in np.unique(pairs).tolist():
            name = (str(clusters[pair // len(topics)]), str(topics[pair % len(topics)]))
            if name in self._blocks:
                first[pair], count[pair] = self._blocks[name]
                known = self._ids[name]
                wanted_id[pair] = _ANY if not known else ids.index(known) if known in ids else _NONE
        numbers, ends = batch["partition"].to_numpy(), batch["end_offset"].to_numpy(zero_copy_only=False)
        unnamed = ids.index(None) if None in ids else _ANY  # the source of these samples knew no topic ids
        same_topic = (wanted_id[pairs] == _ANY) | (wanted_id[pairs] == topic_id) | (topic_id == unnamed)
        rows = np.flatnonzero(
            (numbers >= 0) & (numbers < count[pairs]) & same_topic & ~np.isnan(ends.astype(np.float64))
        )
        sizes = batch["record_bytes"].to_numpy(zero_copy_only=False).astype(np.float64)
        times, whole = batch["time_ms"].to_numpy(), first[pairs[rows]] + numbers[rows]
        for layer in self._layers:
            mine = layer[whole] >= 0
            if mine.any():
                yield layer[whole][mine], times[rows[mine]], ends[rows[mine]].astype(np.int64), sizes[rows[mine]]

    def histories(self) -> list[LogHistory]:
        """Return what was kept of each wanted log."""
        histories = [LogHistory()] * len(self._logs)
        if not self._kept:
            return histories
        place, times, ends = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
        order = np.lexsort((times, place))
        place, times, ends = place[order], times[order], ends[order]
        starts = np.flatnonzero(np.append(True, place[1:] != place[:-1])).tolist()
        for first, end in zip(starts, [*starts[1:], len(place)], strict=True):
            log = int(place[first])
            histories[log] = LogHistory(
                tuple(times[first:end].tolist()), tuple(ends[first:end].tolist()), self._bytes.get(log)
            )
        return histories


def _number_blocks(
    logs: Sequence[tuple[str, WantedLog]],
) -> tuple[dict[tuple[str, str], tuple[int, int]], list[Numbers]]:
    """Return where the block of each topic begins and how long it is, and layers of places in the blocks, -1: not
    wanted."""
    most: dict[tuple[str, str], int] = {}
    for alias, log in logs:
        name = (alias, log.partition.topic)
        most[name] = max(most.get(name, 0), log.partition.partition + 1)
    blocks, length = {}, 0
    for name, count in most.items():
        blocks[name], length = (length, count), length + count
    layers: list[Numbers] = []
    for number, (alias, log) in enumerate(logs):
        at = blocks[alias, log.partition.topic][0] + log.partition.partition
        layer = next((layer for layer in layers if layer[at] < 0), None)
        if layer is None:
            layers.append(layer := np.full(length, -1, np.int64))
        layer[at] = number
    return blocks, layers
