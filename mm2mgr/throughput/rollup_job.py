"""The roll-up job, whether Spark or this process does the work: what is due, and one commit for each period.

An hour is due when the number of its samples, or of the hour before, is not the one its roll-up was made from, and when
a file of its roll-up is gone or cut off. A commit takes the old files of the hour out and puts the new ones in, so that
readers never see an hour absent or twice; a job that dies leaves each hour either unchanged or complete. Two jobs at
once do the same work and change nothing twice.

The table has roll-ups of days beside those of their hours. Hours stay for five weeks, days for 400 days.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import HOUR_MS, SAMPLES, Store, hour_end_ms, hour_of, hour_start_ms, hours_text, is_remote
from mm2mgr.samples.tables import (
    Conflict,
    DataFile,
    MissingFile,
    Share,
    StoredTable,
    by_period,
    codes_of,
    read_share,
    shares_of,
)
from mm2mgr.throughput.intervals import Series, clean, constant, in_blocks, join_hours, rank_sources, tail
from mm2mgr.throughput.rollup import (
    DAY_COLUMNS,
    RateRows,
    RollUp,
    hours_of_day,
    is_hour,
    merge_buckets,
    past_hours,
    read_rows,
    roll_up,
    stack_roll_ups,
    throughput_table,
    write_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa

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


@dataclass(frozen=True)
class Period:
    """An hour or day to make: its name, what it is made from (`made_from` of the table), and the files to read."""

    name: str
    made_from: str
    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class WorkUnit:
    """Hours that follow one another, with the files of the hour before the first, or one day; and a share of the
    topics."""

    store: Store
    periods: tuple[Period, ...]
    before: tuple[DataFile, ...]
    share: Share


@dataclass
class Done:
    """What a unit did: files written by period, samples read, and why files were left out."""

    written: list[tuple[str, DataFile]] = field(default_factory=list)
    samples: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)


def work(unit: WorkUnit) -> Done:
    """Do the unit. Mm2mgrError where the tables cannot be reached from here."""
    done = Done()
    try:
        if is_hour(unit.periods[0].name):
            _roll_hours(unit, done)
        else:
            _merge(unit, done)
    except (OSError, MissingFile) as error:
        # What to do is part of the message: Spark passes nothing else on, and not more than a few hundred characters.
        number = errno.ENOENT if isinstance(error, MissingFile) else error.errno
        reason = os.strerror(number) if number else str(error)[:100]
        raise Mm2mgrError(
            f"{socket.gethostname()} cannot read or write the tables of {unit.store}: {reason};"
            " every machine that runs executors needs this folder, or a URI that all of them reach"
        ) from error
    return done


def _roll_hours(unit: WorkUnit, done: Done) -> None:
    """Walk through the hours, each with the last samples of the one before in front, so each is read once."""
    target, logs = throughput_table(unit.store), _LogNumbers()
    first = hour_of(hour_start_ms(unit.periods[0].name) - 1)
    before, names, _ = _clean_samples(unit, Period(first, "", unit.before), logs)
    for period in unit.periods:
        now, sources, unreadable = _clean_samples(unit, period, logs)
        done.unreadable.update(unreadable)
        before += [_NOTHING] * (len(now) - len(before))
        ranks = rank_sources([*names, *sources])
        start_ms = hour_start_ms(period.name)
        rolled = stack_roll_ups(
            roll_up(
                join_hours(tail(_recode_sources(lead, names, ranks)), _recode_sources(rows, sources, ranks)), start_ms
            )
            for lead, rows in zip(before, now, strict=True)
        )
        done.samples += sum(map(len, now))
        if rolled is not None:
            file = write_rows(target, (period.name, period.made_from), rolled, logs.names, list(ranks))
            done.written += [(period.name, file)] if file else []
        before, names = now, sources


def _clean_samples(unit: WorkUnit, hour: Period, logs: _LogNumbers) -> tuple[list[Series], list[str], dict[str, str]]:
    table, unreadable = read_share(StoredTable(unit.store, SAMPLES), hour.files, _COLUMNS, unit.share)
    sources, source = codes_of(table["source"].unify_dictionaries())
    source = constant(np.int32(0), len(table)) if len(sources) == 1 else source.astype(np.int32)
    numbers = [_numbers(table[name], kind, unknown) for name, (kind, unknown) in _NUMBERS.items()]
    blocks = in_blocks(Series(logs.of_rows(table), source, *numbers), range(max(1, len(logs))))
    cleaned = [clean(block, hour_start_ms(hour.name), hour_end_ms(hour.name)) for block in blocks]
    return cleaned, [str(source) for source in sources], unreadable


def _merge(unit: WorkUnit, done: Done) -> None:
    (day,) = unit.periods
    table = throughput_table(unit.store)
    rows = read_rows(table, day.files, DAY_COLUMNS, unit.share)
    if len(rows):
        days, names = _merge_day(rows)
        file = write_rows(table, (day.name, day.made_from), days, names, names.sources)
        done.written += [(day.name, file)] if file else []


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


Spread = Callable[[Sequence[WorkUnit]], Sequence[Done]]
"""Does units in any order and anywhere; returns what `work` returns of each."""

SAMPLES_WORTH_SPARK = 100_000_000
"""From about this many samples on, Spark on two cores is faster than one process (measured)."""
_HOURS_KEPT_MS = 35 * 24 * HOUR_MS
_DAYS_KEPT_MS = 400 * 24 * HOUR_MS

_VERSION = "1"  # another way to compute makes every roll-up again
_HOURS_PER_UNIT = 12  # each unit reads one hour more than it rolls up
_ROWS_PER_UNIT = 1_000_000  # of one hour: what a process holds at a time
_ROWS_PER_DAY = 40_000  # of one hour: a day is 24 of them
_ROWS_PER_BATCH = 400_000_000  # committed before more is begun
_TRIES = 5
_DAY_LENGTH = len("2026-11-21")


@dataclass
class Report:
    """What a run did: the hours and days made, samples read for them, and why files were left out."""

    made: list[str] = field(default_factory=list)
    samples: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)


def samples_due(store: Store) -> int:
    """Return how many samples the hours to be made have; Mm2mgrError when the store holds no sample."""
    hours, made_from = _hours_due(store)
    return sum(_rows(hours[hour]) for hour in made_from)


def _hours_due(store: Store) -> tuple[dict[str, list[DataFile]], dict[str, str]]:
    """Return the files of all hours with samples, and which of them are to be made, with what from; Mm2mgrError when
    the store holds no sample.
    """
    hours = by_period(StoredTable(store, SAMPLES).files())
    if not hours:
        raise Mm2mgrError(f"no samples in {store}", hint=hours_text([]))
    table = throughput_table(store)
    roll_ups = by_period(table.files())
    newest_ms = _newest_ms([*hours, *roll_ups])
    marks = {}
    for hour, files in hours.items():
        if _is_past(hour, newest_ms, _DAYS_KEPT_MS) or (_is_past(hour, newest_ms) and hour[:_DAY_LENGTH] in roll_ups):
            continue  # only its day is kept, or nothing any more
        before = _rows(hours.get(_hour_before(hour), ()))
        old = roll_ups[hour][0].values[1] if hour in roll_ups and table.are_there(roll_ups[hour]) else ""
        if not before and "+" in old:
            before = int(old.partition("+")[2].partition(" ")[0])  # retention took them; the roll-up has seen them
        mark = f"{_rows(files)}+{before} v{_VERSION}"
        if mark != old:
            marks[hour] = mark
    return hours, marks


def is_due(store: Store) -> bool:
    """Say whether there is anything to make; Mm2mgrError when the store holds no sample."""
    return bool(_hours_due(store)[1] or _days_due(throughput_table(store).files()))


def one_by_one(units: Sequence[WorkUnit]) -> list[Done]:
    """Do units here, one after the other."""
    return [work(unit) for unit in units]


def make(store: Store, spread: Spread) -> Report:
    """Roll up the hours and merge the days that are due; what is whole stays readable at every moment."""
    report, (hours, made_from), table = Report(), _hours_due(store), throughput_table(store)
    table.create()
    for batch in _batches(_hour_units(store, hours, made_from, report)):
        _commit(table, batch, spread, report)
    days = list(_day_units(store, table))
    _commit(table, days, spread, report)
    if report.made:
        _expire(table)
        with suppress(Conflict):
            table.vacuum()
    return report


def _hour_units(
    store: Store, files_of: Mapping[str, Sequence[DataFile]], made_from: Mapping[str, str], report: Report
) -> Iterator[list[WorkUnit]]:
    """Yield the units of neighbouring hours: all of them read the same files, each a share of the topics."""
    table = StoredTable(store, SAMPLES)
    report.unreadable |= table.snapshot().refused
    hours = {hour: _there(table, files, report) for hour, files in files_of.items()}
    runs: list[list[str]] = []
    for hour in sorted(made_from):
        if not runs or runs[-1][-1] != _hour_before(hour) or len(runs[-1]) == _HOURS_PER_UNIT:
            runs.append([])
        runs[-1].append(hour)
    for run in runs:
        before = tuple(hours.get(_hour_before(run[0]), ()))
        periods = tuple(Period(hour, made_from[hour], tuple(hours[hour])) for hour in run)
        largest = max((hours[hour] for hour in run), key=_rows)
        yield [WorkUnit(store, periods, before, share) for share in shares_of(table, largest, _ROWS_PER_UNIT)]


def _batches(runs: Iterator[list[WorkUnit]]) -> Iterator[list[WorkUnit]]:
    units: list[WorkUnit] = []
    rows = 0
    for run in runs:
        units += run
        rows += sum(_rows(period.files) for period in run[0].periods)
        if rows > _ROWS_PER_BATCH:
            yield units
            units, rows = [], 0
    if units:
        yield units


def _day_units(store: Store, table: StoredTable) -> Iterator[WorkUnit]:
    for day, period in _days_due(table.files()).items():
        rows = Counter[str]()
        for file in period.files:
            rows[file.values[0]] += file.rows
        largest = max(rows, key=lambda name: rows[name])
        for share in shares_of(table, [file for file in period.files if file.values[0] == largest], _ROWS_PER_DAY):
            yield WorkUnit(store, (Period(day, period.made_from, period.files),), (), share)


def _days_due(files: Sequence[DataFile]) -> dict[str, Period]:
    """Return each day to merge, from the files of its hours; the newest hour is in none, as it still grows.

    A day that goes on takes only the hours that are new to what it has; once it is over it is merged anew, so that its
    last digits do not depend on how often that was. An hour that is made again takes its day out of the table.
    """
    roll_ups = by_period(files)
    newest_ms = _newest_ms(roll_ups)
    hours = sorted(name for name in filter(is_hour, roll_ups) if hour_start_ms(name) < newest_ms)
    days = {}
    for day, group in groupby(hours, key=lambda hour: hour[:_DAY_LENGTH]):
        of_day, over = list(group), day < hour_of(newest_ms)[:_DAY_LENGTH]
        mark = f"{' '.join(hour[-2:] for hour in of_day)}{' over' if over else ''} v{_VERSION}"
        old = roll_ups.get(day, [])
        before = set() if over or not old else hours_of_day(old[0])
        if old and old[0].values[1] == mark:
            continue
        if not before <= set(of_day):
            before = set()
        taken = [*(old if before else ()), *(file for hour in of_day if hour not in before for file in roll_ups[hour])]
        days[day] = Period(day, mark, tuple(taken))
    return days


def _commit(table: StoredTable, units: Sequence[WorkUnit], spread: Spread, report: Report) -> None:
    if not units:
        return
    done = spread(units)
    for result in done:
        report.samples += result.samples
        report.unreadable |= result.unreadable
    written = [file for result in done for file in result.written]
    _require(table, [file for _, file in written])
    periods = {period.name: period for unit in units for period in unit.periods}
    for name, period in sorted(periods.items()):
        new = [file for of, file in written if of == name]
        if not new:  # nothing that can be believed: an empty file keeps in mind from what
            empty = table.write_file((name, period.made_from), [table.file_schema.empty_table()], keep_empty=True)
            new = [empty] if empty else []
        if _commit_one(table, period, new):
            report.made.append(name)


def _commit_one(table: StoredTable, period: Period, new: Sequence[DataFile]) -> bool:
    """Replace the files of a period; with an hour, its day goes. False where the hours of a day are others than were
    merged."""
    for left in reversed(range(_TRIES)):
        state = table.snapshot()
        roll_ups = by_period(state.files)
        if not is_hour(period.name) and not set(period.files) <= set(state.files):
            return False
        old = [*roll_ups.get(period.name, ()), *roll_ups.get(period.name[:_DAY_LENGTH], ())]
        try:
            table.replace(state, list(dict.fromkeys(old)), new)
            break
        except Conflict:
            if not left:
                raise
    return True


def _expire(table: StoredTable) -> None:
    """Take out hours that are older than five weeks and have a day, and days older than 400 days, by the newest hour
    made."""
    state = table.snapshot()
    roll_ups = by_period(state.files)
    newest_ms = _newest_ms(roll_ups)
    old = [
        name
        for name in roll_ups
        if _is_past(name, newest_ms, _DAYS_KEPT_MS)
        or (is_hour(name) and name[:_DAY_LENGTH] in roll_ups and _is_past(name, newest_ms))
    ]
    with suppress(Conflict):  # the next run does it
        table.replace(state, [file for name in old for file in roll_ups[name]], [])


def _there(table: StoredTable, files: Sequence[DataFile], report: Report) -> list[DataFile]:
    """Leave out files that this process does not see either; a file that only an executor misses fails the job."""
    if is_remote(table.store):
        return list(files)
    lost = [file for file in files if table.filesystem.get_file_info(file.path).size != file.size]
    report.unreadable |= {f"{table.uri}/{file.path}": "the file is missing or has another size" for file in lost}
    return [file for file in files if file not in lost]


def _require(table: StoredTable, files: Sequence[DataFile]) -> None:
    for file in files:
        if table.filesystem.get_file_info(file.path).size != file.size:
            raise Mm2mgrError(
                f"a task wrote {table.uri}/{file.path}, which the driver does not see; nothing was changed",
                hint="use a folder that every machine mounts, or a URI that all of them reach; or use --no-spark",
            )


def _newest_ms(hours: Iterable[str]) -> int:
    """Return the start of the newest hour that is not in the future, by this machine's clock; of all hours where all
    are."""
    past = past_hours(hours)
    return hour_start_ms(past[-1]) if past else 0


def _is_past(name: str, newest_ms: int, kept_ms: int = _HOURS_KEPT_MS) -> bool:
    """Tell whether the day of an hour, or a day, ended so long before the newest hour: whole days go at once."""
    return hour_start_ms(f"{name[:_DAY_LENGTH]}T00") + 24 * HOUR_MS <= newest_ms - kept_ms


def _hour_before(hour: str) -> str:
    return hour_of(hour_start_ms(hour) - 1)


def _rows(files: Sequence[DataFile]) -> int:
    return sum(file.rows for file in files)
