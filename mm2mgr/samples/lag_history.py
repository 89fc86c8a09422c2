"""The table `lag_history`: what flows were behind, and how much was written and mirrored, over the last 31 days.

It has the newest look of each flow and five minutes for two days, and a row per flow and hour before. Looks come from
the table `lag`, where they are removed an hour after their hour is over: so both tables together have all of them.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mm2mgr.samples.schema import AHEAD_MS, HOUR_MS, LAG, LAG_HISTORY, Store, day_of
from mm2mgr.samples.table_errors import writing
from mm2mgr.samples.tables import Conflict, DataFile, StoredTable

FIVE_MINUTES_MS = 300_000
FIVE_MINUTES, ONE_HOUR = "5min", "1h"
UNSEEN_MS = 900_000
"""Between looks that are further apart no rate is known, as in trends."""
KEPT_DAYS = 31
_FINE_DAYS = 2  # before today that have rows of five minutes
_MOST_FILES = 8  # of a day
_DAY_MS = 24 * HOUR_MS
_LOOK = ("owner", "flow", "time_ms", "partitions", "end_offsets", "positions")
_SUMS = ("lag_mean", "lag_max", "covered_ms", "produced", "mirrored")
_COUNTS = ("partitions", "end_offsets", "positions")
Whole = npt.NDArray[np.int64]
Arrays: TypeAlias = "tuple[tuple[array[int], ...], tuple[array[float], ...]]"
"""Columns of whole and of real numbers."""


@dataclass(frozen=True)
class LookRows:
    """Looks at flows, ordered by owner, flow and time: columns of `_LOOK`, and the number of the owner's flow."""

    table: pa.Table
    series: Whole

    def column(self, name: str) -> Whole:
        return np.asarray(self.table[name].to_numpy(), np.int64)

    def intervals(self) -> tuple[Whole, Whole, Whole]:
        """Return ms, records written and records mirrored since the look before; 0 where no rate is known: at the first
        look, after a gap, with other partitions, and where a log or a position went back."""
        time, partitions, ends, positions = map(self.column, _LOOK[2:])
        fits, steps = np.zeros(len(time), np.bool_), list[Whole]()
        for column in (time, ends, positions):
            steps.append(np.diff(column, prepend=column[:1]))
        if len(time):
            is_next = (self.series[1:] == self.series[:-1]) & (partitions[1:] == partitions[:-1])
            fits[1:] = is_next & (steps[0][1:] > 0) & (steps[0][1:] <= UNSEEN_MS)
        fits &= (steps[1] >= 0) & (steps[2] >= 0)
        gap, produced, mirrored = (np.where(fits, step, 0) for step in steps)
        return gap, produced, mirrored

    def lag(self) -> Whole:
        lag: Whole = np.maximum(self.column("end_offsets") - self.column("positions"), 0)
        return lag


def newest_looks(tables: Sequence[pa.Table], span_ms: int = FIVE_MINUTES_MS) -> LookRows:
    """Return the newest look of each flow in each span of the clock; of equal ones that which got further."""
    rows = pa.concat_tables([table.select(_LOOK) for table in tables] or [_no_looks()])
    series, time = _series(rows), np.asarray(rows["time_ms"].to_numpy(), np.int64)
    order = np.lexsort([rows["positions"].to_numpy(), rows["end_offsets"].to_numpy(), time, series])
    series, span = series[order], time[order] // span_ms
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = (series[1:] != series[:-1]) | (span[1:] != span[:-1])
    return LookRows(rows.take(pa.array(order[is_last])), series[is_last])


def _no_looks() -> pa.Table:
    return pa.schema([(name, pa.string() if name in ("owner", "flow") else pa.int64()) for name in _LOOK]).empty_table()


def _series(rows: pa.Table) -> Whole:
    """Return the place of each row's owner and flow among all of them."""
    if not len(rows):
        return np.zeros(0, np.int64)
    names = pc.binary_join_element_wise(rows["owner"], rows["flow"], "\0").combine_chunks().dictionary_encode()
    ordered = {name: rank for rank, name in enumerate(sorted(names.dictionary.to_pylist()))}
    ranks = np.array([ordered[name] for name in names.dictionary.to_pylist()], np.int64)
    places: Whole = ranks[names.indices.to_numpy()]
    return places


def hours_of_looks(looks: LookRows) -> pa.Table:
    """Return a row per flow and hour: its last look, mean and most lag, and what was written and mirrored between looks
    of which the second is in it."""
    hour = looks.column("time_ms") // HOUR_MS
    gap, produced, mirrored = looks.intervals()
    starts = np.flatnonzero(
        np.concatenate([np.ones(min(1, len(hour)), np.bool_), (np.diff(hour) != 0) | (np.diff(looks.series) != 0)])
    )
    ends = np.append(starts[1:], len(hour)) - 1 if len(starts) else starts
    rows = looks.table.take(pa.array(ends))
    if not len(starts):
        sums = {name: pa.array([], pa.float64() if name == "lag_mean" else pa.int64()) for name in _SUMS}
    else:
        lag = looks.lag()
        added = {
            name: pa.array(np.add.reduceat(column, starts))
            for name, column in (("covered_ms", gap), ("produced", produced), ("mirrored", mirrored))
        }
        mean = np.add.reduceat(lag.astype(np.float64), starts) / (ends - starts + 1)
        sums = {"lag_mean": pa.array(mean), "lag_max": pa.array(np.maximum.reduceat(lag, starts)), **added}
    for name in _SUMS:
        rows = rows.append_column(name, sums[name])
    return rows


def join_hours(tables: Sequence[pa.Table]) -> pa.Table:
    """Return rows of hours, each flow and hour once: the row that covers most, ordered by owner, flow and time."""
    rows = pa.concat_tables([table.select((*_LOOK, *_SUMS)) for table in tables])
    series, time = _series(rows), np.asarray(rows["time_ms"].to_numpy(), np.int64)
    hour, covered = time // HOUR_MS, rows["covered_ms"].to_numpy()
    order = np.lexsort([time, covered, hour, series])
    series, hour = series[order], hour[order]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = (series[1:] != series[:-1]) | (hour[1:] != hour[:-1])
    return rows.take(pa.array(order[is_last]))


class LagHistoryStore:
    """The table `lag_history` of a store, of all owners. `warn` receives a sentence for every damaged file that was
    left out."""

    def __init__(self, store: Store, warn: Callable[[str], None] = lambda _: None) -> None:
        self._table, self._lag = StoredTable(store, LAG_HISTORY, warn), StoredTable(store, LAG, warn)

    def append(self, tables: Sequence[pa.Table], now_ms: int) -> None:
        """Add the newest looks of each five minutes in one commit, and tidy up; the table is created with the first."""
        looks = newest_looks(tables).table
        times = np.asarray(looks["time_ms"].to_numpy(), np.int64)
        looks = looks.filter(pa.array((times >= now_ms - KEPT_DAYS * _DAY_MS) & (times <= now_ms + AHEAD_MS)))
        if not len(looks):
            return
        self._table.create()
        days = [day_of(time) for time in looks["time_ms"].to_pylist()]
        self._table.append(self._whole(looks, day=days, resolution=[FIVE_MINUTES] * len(looks)))
        self.tidy(now_ms)

    def tidy(self, now_ms: int) -> None:
        """Make rows of hours of what is older than two days, few files of each day, and remove what is older than 31.

        What another process tidies at the same time is left to it.
        """
        state, today = self._table.snapshot(), day_of(now_ms)
        fine, oldest = (day_of(max(0, now_ms - days * _DAY_MS)) for days in (_FINE_DAYS, KEPT_DAYS))
        by_day = defaultdict[str, dict[str, list[DataFile]]](lambda: {FIVE_MINUTES: [], ONE_HOUR: []})
        for file in state.files:
            by_day[file.values[0]].setdefault(file.values[1], []).append(file)
        old, new = list[DataFile](), list[DataFile]()
        for day, files in by_day.items():
            if day < oldest:
                old += [file for several in files.values() for file in several]
            elif day < fine and files[FIVE_MINUTES]:
                self._replace(day, ONE_HOUR, [*files[FIVE_MINUTES], *files[ONE_HOUR]], old, new)
            elif len(files[FIVE_MINUTES]) > (_MOST_FILES if day >= today else 1):
                self._replace(day, FIVE_MINUTES, files[FIVE_MINUTES], old, new)
        if old:
            with suppress(Conflict):
                self._table.replace(state, old, new)
            self._table.vacuum()

    def _replace(
        self, day: str, resolution: str, files: Sequence[DataFile], old: list[DataFile], new: list[DataFile]
    ) -> None:
        """Write one file for several of a day; a damaged one stays where it is."""
        read = {file: rows for file in files if (rows := self._read(file)) is not None}
        if not read or (resolution == FIVE_MINUTES and len(read) < 2):
            return
        looks = newest_looks([rows for file, rows in read.items() if file.values[1] == FIVE_MINUTES])
        rows = looks.table
        if resolution == ONE_HOUR:
            if not len(rows):
                return
            hours = [rows for file, rows in read.items() if file.values[1] == ONE_HOUR]
            rows = join_hours([hours_of_looks(looks), *hours])
        with writing(self._table.uri):
            written = self._table.write_file((day, resolution), [self._whole(rows)])
        old += read
        new += [written] if written else []

    def read(self, owner: str, now_ms: int) -> tuple[LookRows, pa.Table]:
        """Return the looks of one owner of the last days and of the table `lag`, and its hours, these of looks
        included; nothing where there is no table."""
        looks, hours = list[pa.Table](), list[pa.Table]()
        oldest = day_of(max(0, now_ms - KEPT_DAYS * _DAY_MS))
        for file in self._table.files():
            if file.values[0] >= oldest and (rows := self._read(file)) is not None:
                (looks if file.values[1] == FIVE_MINUTES else hours).append(rows.filter(pc.equal(rows["owner"], owner)))
        for file in self._lag.files():
            if (rows := self._lag.read_or_warn(file, _LOOK)) is not None:
                looks.append(rows.filter(pc.equal(rows["owner"], owner)))
        newest = newest_looks([_cast(rows) for rows in looks])
        is_past = newest.column("time_ms") <= now_ms + AHEAD_MS
        newest = LookRows(newest.table.filter(pa.array(is_past)), newest.series[is_past])
        return newest, join_hours([hours_of_looks(newest), *map(_cast, hours)])

    def read_columns(self, owner: str, now_ms: int) -> tuple[dict[str, Arrays], dict[str, Arrays]]:
        """Return looks and hours of `read` as arrays by flow: partitions, log ends and positions, and beside them the
        time, mean and most lag, the time that is covered (both in seconds), and records written and mirrored in it."""
        looks, hours = self.read(owner, now_ms)
        covered, produced, mirrored = looks.intervals()
        lag = looks.lag()
        of_looks = {
            **{name: looks.column(name) for name in ("time_ms", *_COUNTS)},
            **dict(zip(_SUMS, (lag, lag, covered, produced, mirrored), strict=True)),
        }
        of_hours = {name: hours[name].to_numpy() for name in ("time_ms", *_COUNTS, *_SUMS)}
        return (
            _arrays_by_flow(looks.table["flow"].to_pylist(), of_looks),
            _arrays_by_flow(hours["flow"].to_pylist(), of_hours),
        )

    def _read(self, file: DataFile) -> pa.Table | None:
        rows = self._table.read_or_warn(file, (*_LOOK, *_SUMS))
        return None if rows is None else _cast(rows)

    def _whole(self, rows: pa.Table, **others: Sequence[str]) -> pa.Table:
        """Return rows with all columns of the table, or of its files."""
        schema = self._table.schema if others else self._table.file_schema
        columns = [
            pa.array(others[field.name], field.type)
            if field.name in others
            else rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(len(rows), field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)


def _arrays_by_flow(flows: Sequence[str], columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, Arrays]:
    """Return columns of rows that are ordered by flow, cut at each flow; ms become seconds."""
    arrays = dict[str, Arrays]()
    firsts = [at for at, flow in enumerate(flows) if not at or flows[at - 1] != flow]
    for first, last in pairwise([*firsts, len(flows)]):
        whole = tuple(array("q", columns[name][first:last].astype(np.int64).tobytes()) for name in _COUNTS)
        real = tuple(
            array("d", (columns[name][first:last] / (1000.0 if name.endswith("_ms") else 1.0)).tobytes())
            for name in ("time_ms", *_SUMS)
        )
        arrays[flows[first]] = whole, real
    return arrays


def _cast(rows: pa.Table) -> pa.Table:
    kinds = {"owner": pa.string(), "flow": pa.string(), "lag_mean": pa.float64()}
    names = rows.column_names
    return rows.cast(pa.schema([(name, kinds.get(name, pa.int64())) for name in names]))
