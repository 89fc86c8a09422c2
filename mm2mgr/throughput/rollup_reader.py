"""Reads what is due as roll-ups: partitions of the work, and for each of them Arrow batches made by the numpy kernel.

The same object in this process and on Spark's executors (`spark_source.py`). A frame of roll-ups has the columns of the
table `throughput` and `period_report`, which the last row of each period and share of the topics holds: JSON of a
`PeriodReport`. A period without anything that can be believed is one row that holds nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import SAMPLES, THROUGHPUT, Store, hour_end_ms, hour_of, hour_start_ms, is_remote
from mm2mgr.samples.tables import DataFile, MissingFile, StoredTable, arrow_schema, codes_of, read_share
from mm2mgr.throughput.intervals import Series, clean, constant, in_blocks, join_hours, rank_sources, tail
from mm2mgr.throughput.periods_due import Period, WorkUnit, day_units, hour_units, hours_due
from mm2mgr.throughput.rollup import (
    DAY_COLUMNS,
    RateRows,
    RollUp,
    is_hour,
    merge_buckets,
    read_rows,
    roll_up,
    rows_of_roll_up,
    stack_roll_ups,
    throughput_table,
    unreachable,
)

if TYPE_CHECKING:
    from mm2mgr.throughput.rollup import Array

_NUMBERS = {
    "time_ms": (np.int64, 0),
    "end_offset": (np.int64, -1),
    "records_per_second": (np.float64, np.nan),
    "bytes_per_second": (np.float64, np.nan),
    "record_bytes": (np.float64, np.nan),
    "resolution_ms": (np.int32, 0),
}
_NOTHING = Series(np.zeros(0, np.int32), np.zeros(0, np.int32), *(np.zeros(0, kind) for kind, _ in _NUMBERS.values()))
_SUMS = ("samples", "covered_ms", "resets", "gaps")
_AMOUNTS = ("records", "bytes")
_PEAKS = ("bytes_max", "records_max")
_NOT_MERGED = ("bytes_p50", "bytes_p95", "records_p50", "records_p95")
_COLUMNS = ("cluster", "topic", "partition", "topic_id", "source", *_NUMBERS)

PERIOD_REPORT = "period_report"
_ROWS_PER_BATCH = 65_536  # of Arrow, on the way to Spark


@dataclass(frozen=True)
class PeriodReport:
    """The rows of a share of a period, which share of how many, files that were left out with the reason, and the files
    a day is merged from."""

    rows: int
    share: tuple[int, int]
    left_out: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)


def frame_schema() -> pa.Schema:
    """Return the Arrow schema of a frame of roll-ups, as Spark reads `TABLES`: everything may be null."""
    columns = [*arrow_schema(THROUGHPUT), pa.field(PERIOD_REPORT, pa.string())]
    return pa.schema([pa.field(column.name, _spark_type(column.type)) for column in columns])


def _spark_type(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind.value_type)) if pa.types.is_list(kind) else kind


class RollupReader:
    """What is due in a store, as roll-ups: `period` hour or day. Of hours, those from `since` to `until` (both such as
    2026-11-21T10), and with `due` false also those that need not be made again.

    Mm2mgrError where an option is none of these, and where the tables cannot be read.
    """

    OPTIONS = ("period", "since", "until", "due")

    def __init__(self, store: Store, period: str = "hour", since: str = "", until: str = "", due: str = "true") -> None:
        self.store: Store = store if is_remote(store) else os.path.abspath(store)
        try:
            for hour in filter(None, (since, until)):
                hour_start_ms(hour)
        except ValueError:
            raise Mm2mgrError(f"roll-ups: {hour} is not an hour such as 2026-11-21T10") from None
        if period not in ("hour", "day") or due not in ("true", "false"):
            raise Mm2mgrError("roll-ups: `period` is hour or day, and `due` is true or false")
        self._is_day, self._since, self._until, self._every_hour = period == "day", since, until, due == "false"

    def partitions(self) -> list[WorkUnit]:
        """Return the units of work, which can be read in any order and anywhere."""
        if self._is_day:
            return day_units(self.store)
        due = hours_due(self.store, every_hour=self._every_hour)
        until = self._until or "~"
        inside = {hour: mark for hour, mark in due.made_from.items() if self._since <= hour <= until}
        return hour_units(self.store, replace(due, made_from=inside))

    def read(self, unit: WorkUnit) -> Iterator[pa.RecordBatch]:
        """Yield the roll-ups of a unit, period by period. Mm2mgrError where the tables cannot be reached from here."""
        try:
            yield from _roll_hours(unit) if is_hour(unit.periods[0].name) else _merge(unit)
        except (OSError, MissingFile) as error:
            raise unreachable(unit.store, error) from error


def _roll_hours(unit: WorkUnit) -> Iterator[pa.RecordBatch]:
    """Walk through the hours, each with the last samples of the one before in front, so each is read once."""
    logs, left_out = _LogNumbers(), dict(unit.left_out)
    first = hour_of(hour_start_ms(unit.periods[0].name) - 1)
    before, names, _ = _clean_samples(unit, Period(first, "", unit.before), logs)
    for period in unit.periods:
        now, sources, unreadable = _clean_samples(unit, period, logs)
        before += [_NOTHING] * (len(now) - len(before))
        ranks = rank_sources([*names, *sources])
        start_ms = hour_start_ms(period.name)
        rolled = stack_roll_ups(
            roll_up(
                join_hours(tail(_recode_sources(lead, names, ranks)), _recode_sources(rows, sources, ranks)), start_ms
            )
            for lead, rows in zip(before, now, strict=True)
        )
        named = rows_of_roll_up(rolled, logs.names, list(ranks)) if rolled is not None else None
        yield from _batches(unit, period, named, {**left_out, **unreadable})
        before, names, left_out = now, sources, {}


def _batches(
    unit: WorkUnit, period: Period, rows: pa.Table | None, left_out: dict[str, str], files: Sequence[DataFile] = ()
) -> list[pa.RecordBatch]:
    """Return the rows of a period with its report in the last one; a row of its own where there is none."""
    count = len(rows) if rows is not None else 0
    length = count or 1
    report = json.dumps(asdict(PeriodReport(count, (unit.number, unit.of), left_out, [file.path for file in files])))
    columns = {name: rows[name] for name in rows.column_names} if rows is not None and count else {}
    columns |= {"period": pa.repeat(period.name, length), "made_from": pa.repeat(period.made_from, length)}
    columns[PERIOD_REPORT] = pa.concat_arrays([pa.nulls(length - 1, pa.string()), pa.array([report])])
    schema = frame_schema()
    values = [
        columns[name].cast(schema.field(name).type) if name in columns else pa.nulls(length, schema.field(name).type)
        for name in schema.names
    ]
    return list(pa.table(values, schema=schema).combine_chunks().to_batches(max_chunksize=_ROWS_PER_BATCH))


def _clean_samples(unit: WorkUnit, hour: Period, logs: _LogNumbers) -> tuple[list[Series], list[str], dict[str, str]]:
    table, unreadable = read_share(StoredTable(unit.store, SAMPLES), hour.files, _COLUMNS, unit.share)
    sources, source = codes_of(table["source"].unify_dictionaries())
    source = constant(np.int32(0), len(table)) if len(sources) == 1 else source.astype(np.int32)
    numbers = [_numbers(table[name], kind, unknown) for name, (kind, unknown) in _NUMBERS.items()]
    blocks = in_blocks(Series(logs.of_rows(table), source, *numbers), range(max(1, len(logs))))
    cleaned = [clean(block, hour_start_ms(hour.name), hour_end_ms(hour.name)) for block in blocks]
    return cleaned, [str(source) for source in sources], unreadable


def _merge(unit: WorkUnit) -> Iterator[pa.RecordBatch]:
    (day,) = unit.periods
    rows = read_rows(throughput_table(unit.store), day.files, DAY_COLUMNS, unit.share)
    merged = None
    if len(rows):
        days, names = _merge_day(rows)
        merged = rows_of_roll_up(days, names, names.sources)
    yield from _batches(unit, day, merged, {}, day.files)


def _numbers(column: pa.ChunkedArray, kind: type, unknown: float) -> Any:
    if column.null_count == len(column):
        return constant(kind(unknown), len(column))
    if column.null_count and kind is not np.float64:
        column = column.fill_null(unknown)
    return column.to_numpy().astype(kind, copy=False)  # a null among floats is NaN by itself


class _LogNumbers:
    """Numbers the logs of a unit: partitions, one number for each id that their topic had."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, str, str | None], int] = {}
        self._latest: dict[tuple[str, str], tuple[int, str]] = {}
        self._keys, self._ids = np.zeros(0, np.int64), np.zeros(0, np.int32)

    def __len__(self) -> int:
        return len(self._keys)

    def of_rows(self, table: pa.Table) -> Array:
        """Return the number of each row's log; rows without a topic id belong to the topic as it is known last."""
        if not len(table):
            return np.zeros(0, np.int32)
        runs = [self._runs(batch) for batch in table.to_batches()]
        topics, partitions, lengths = (np.concatenate(column) for column in zip(*runs, strict=True))
        keys = self._with_ids()[topics] << 20 | partitions
        unique_keys, inverse = np.unique(keys, return_inverse=True)
        new = np.setdiff1d(unique_keys, self._keys, assume_unique=True)
        if len(new):
            numbers = np.append(self._ids, np.arange(len(self), len(self) + len(new), dtype=np.int32))
            self._keys = np.append(self._keys, new)
            order = np.argsort(self._keys)
            self._keys, self._ids = self._keys[order], numbers[order]
            self.names = self._names()
        return np.repeat(self._ids[np.searchsorted(self._keys, unique_keys)][inverse], lengths)

    def _names(self) -> RateRows:
        order = np.argsort(self._ids)
        topic, partition = (self._keys >> 20)[order], (self._keys & (2**20 - 1))[order]
        clusters, topics, topic_ids = (list(dict.fromkeys(column)) for column in zip(*self._topics, strict=True))
        places = [{name: place for place, name in enumerate(values)} for values in (clusters, topics, topic_ids)]
        codes = np.array([[places[n][topic[n]] for n in range(3)] for topic in self._topics], np.int64)[topic]
        values = {"cluster": codes[:, 0], "topic": codes[:, 1], "topic_id": codes[:, 2], "partition": partition}
        return RateRows(values, np.zeros(len(topic) + 1, np.int32), clusters, topics, topic_ids, [])

    def _runs(self, batch: pa.Table) -> tuple[Array, Array, Array]:
        names, codes = zip(*(codes_of(batch[name]) for name in ("cluster", "topic", "topic_id")), strict=True)
        columns = [*codes, batch["partition"].to_numpy()]
        first = np.ones(len(batch), np.bool_)
        first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
        starts = np.flatnonzero(first)
        cluster, topic, topic_id, partition = (column[starts].astype(np.int64) for column in columns)
        sizes = len(names[1]), len(names[2])
        keys, inverse = np.unique((cluster * sizes[0] + topic) * sizes[1] + topic_id, return_inverse=True)
        last = np.zeros(len(keys), np.int64)
        np.maximum.at(last, inverse, np.maximum.reduceat(batch["time_ms"].to_numpy(), starts))
        numbers = np.zeros(len(keys), np.int64)
        for place, (key, time_ms) in enumerate(zip(keys.tolist(), last.tolist(), strict=True)):
            rest, number = divmod(key, sizes[1])
            name = str(names[0][rest // sizes[0]]), str(names[1][rest % sizes[0]])
            id_of_topic = names[2][number]
            numbers[place] = self._topics.setdefault((*name, id_of_topic), len(self._topics))
            if id_of_topic is not None:
                self._latest[name] = max(self._latest.get(name, (0, "")), (time_ms, id_of_topic))
        return numbers[inverse], partition, np.diff(starts, append=len(batch))

    def _with_ids(self) -> npt.NDArray[np.int64]:
        for cluster, topic, topic_id in list(self._topics):
            if topic_id is None and (cluster, topic) in self._latest:
                self._topics.setdefault((cluster, topic, self._latest[cluster, topic][1]), len(self._topics))
        return np.array(
            [
                self._topics[cluster, topic, self._latest.get((cluster, topic), (0, None))[1] if own is None else own]
                for cluster, topic, own in self._topics
            ],
            np.int64,
        )


def _recode_sources(series: Series, names: Sequence[str], ranks: dict[str, int]) -> Series:
    """Renumber the sources of a Series by rank, and put its series into that order."""
    table = np.array([ranks[name] for name in names] or [0], np.int32)
    if (table == np.arange(len(table))).all():
        return series
    recoded = replace(series, source=table[series.source])
    return recoded.take(
        np.lexsort((recoded.source, recoded.partition_id))
    )  # stable: each series stays in order of time


def _merge_day(hours: RateRows) -> tuple[RollUp, RateRows]:
    """Merge rows of hours: one for a log, source, and whether bytes are known; and the names of the logs by number.

    Hours with and hours without known record sizes stay apart, because their sketches count different things.
    """
    rows = hours.values
    order = sorted(range(len(hours.sources)), key=hours.sources.__getitem__)
    rank = np.argsort(order) if order else np.zeros(1, np.int64)
    log, first = _logs(hours)
    kinds = len(hours.sources) * 2 or 1
    unsized = np.isnan(rows["bytes"]).astype(np.int64)
    key = log * kinds + rank[rows["source"]] * 2 + unsized
    groups, group = np.unique(key, return_inverse=True)
    values: dict[str, Array] = {"partition_id": groups // kinds, "source": (groups % kinds // 2).astype(np.int32)}
    values |= _totals(rows, group, len(groups))
    number, buckets, weights = merge_buckets(group, np.diff(hours.offsets), rows["sketch_buckets"], rows["sketch_ms"])
    values |= {"sketch_buckets": buckets.astype(np.int16), "sketch_ms": weights.astype(np.int32)}
    offsets = np.append(0, np.cumsum(np.bincount(number, minlength=len(groups)))).astype(np.int32)
    names = {name: rows[name][first] for name in ("cluster", "topic", "partition", "topic_id")}
    ordered = [hours.sources[place] for place in order]
    of_logs = RateRows(
        names, np.zeros(len(first) + 1, np.int32), hours.clusters, hours.topics, hours.topic_ids, ordered
    )
    return RollUp(values, offsets), of_logs


def _logs(hours: RateRows) -> tuple[Array, Array]:
    rows = hours.values
    topic = (rows["cluster"].astype(np.int64) * len(hours.topics) + rows["topic"]) * len(hours.topic_ids) + rows[
        "topic_id"
    ]
    _, topic = np.unique(topic, return_inverse=True)
    _, first, log = np.unique(topic << 20 | rows["partition"], return_index=True, return_inverse=True)
    return log, first


def _totals(rows: dict[str, Array], group: Array, count: int) -> dict[str, Array]:
    def total(column: Array) -> Array:
        return np.bincount(group, weights=column, minlength=count)

    totals: dict[str, Array] = {name: total(rows[name]).astype(rows[name].dtype) for name in _SUMS}
    covered = np.isfinite(rows["bytes"]) | np.isfinite(rows["records"])
    for name in _AMOUNTS:
        # Unknown in one covered hour is unknown for the day; an hour without any interval adds nothing.
        lost = total((covered & np.isnan(rows[name])).astype(np.float64)) > 0
        none = total(covered.astype(np.float64)) == 0
        totals[name] = np.where(lost | none, np.nan, total(np.nan_to_num(rows[name])))
    for name in _PEAKS:
        totals[name] = np.full(count, -np.inf)
        np.maximum.at(totals[name], group, np.nan_to_num(rows[name], nan=-np.inf))
        totals[name] = np.where(np.isfinite(totals[name]), totals[name], np.nan)
    totals["first_ms"], totals["last_ms"] = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(totals["first_ms"], group, rows["first_ms"])
    np.maximum.at(totals["last_ms"], group, rows["last_ms"])
    has_size = np.isfinite(rows["record_bytes"])
    with np.errstate(invalid="ignore"):
        sizes = total(np.where(has_size, rows["record_bytes"] * rows["samples"], 0.0))
        totals["record_bytes"] = sizes / total(np.where(has_size, rows["samples"], 0))
    return {**totals, **{name: np.full(count, np.nan) for name in _NOT_MERGED}}
