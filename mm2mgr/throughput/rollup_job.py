"""The roll-up job, whether Spark or this process does the work: what is due, and one commit for each period.

An hour is due when the number of its samples, or of the hour before, is not the one its roll-up was made from, and when
a file of its roll-up is gone or cut off. A commit takes the old files of the hour out and puts the new ones in, so that
readers never see an hour absent or twice; a job that dies leaves each hour either unchanged or complete. Two jobs at
once do the same work and change nothing twice.

The table has roll-ups of days beside those of their hours. Hours stay for five weeks, days for 400 days.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import HOUR_MS, SAMPLES, Store, hour_of, hour_start_ms, hours_text, is_remote
from mm2mgr.samples.tables import Conflict, DataFile, StoredTable, by_period, shares_of
from mm2mgr.throughput.part_files import hours_of_day, is_hour, past_hours, throughput_table
from mm2mgr.throughput.work_unit import Done, Period, WorkUnit, work

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


@dataclass(frozen=True)
class Due:
    """The files of all hours with samples, and which of them are to be made, with what from (`made_from`)."""

    hours: Mapping[str, Sequence[DataFile]]
    made_from: Mapping[str, str]

    @property
    def samples(self) -> int:
        """How many samples the hours to be made have."""
        return sum(_rows(self.hours[hour]) for hour in self.made_from)


def due(store: Store) -> Due:
    """Find the hours to make; Mm2mgrError when the store holds no sample."""
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
    return Due(hours, marks)


def is_due(store: Store) -> bool:
    """Say whether there is anything to make; Mm2mgrError when the store holds no sample."""
    return bool(due(store).made_from or _days_due(throughput_table(store).files()))


def under_spark_submit() -> bool:
    """Say whether spark-submit started this process: it hands over the port of a JVM that it configured."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def one_by_one(units: Sequence[WorkUnit]) -> list[Done]:
    """Do units here, one after the other."""
    return [work(unit) for unit in units]


def make(store: Store, spread: Spread) -> Report:
    """Roll up the hours and merge the days that are due; what is whole stays readable at every moment."""
    report, due_periods, table = Report(), due(store), throughput_table(store)
    table.create()
    for batch in _batches(_hour_units(store, due_periods, report)):
        _commit(table, batch, spread, report)
    days = list(_day_units(store, table))
    _commit(table, days, spread, report)
    if report.made:
        _expire(table)
        with suppress(Conflict):
            table.vacuum()
    return report


def _hour_units(store: Store, due_periods: Due, report: Report) -> Iterator[list[WorkUnit]]:
    """Yield the units of neighbouring hours: all of them read the same files, each a share of the topics."""
    table = StoredTable(store, SAMPLES)
    report.unreadable |= table.snapshot().refused
    hours = {hour: _there(table, files, report) for hour, files in due_periods.hours.items()}
    runs: list[list[str]] = []
    for hour in sorted(due_periods.made_from):
        if not runs or runs[-1][-1] != _hour_before(hour) or len(runs[-1]) == _HOURS_PER_UNIT:
            runs.append([])
        runs[-1].append(hour)
    for run in runs:
        before = tuple(hours.get(_hour_before(run[0]), ()))
        periods = tuple(Period(hour, due_periods.made_from[hour], tuple(hours[hour])) for hour in run)
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
