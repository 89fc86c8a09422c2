"""Which hours and days are due, and the units of work that make them.

An hour is due when the number of its samples, or of the hour before, is not the one its roll-up was made from, and when
a file of its roll-up is gone or cut off. Hours stay for five weeks, days for 400 days.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import HOUR_MS, SAMPLES, Store, hour_of, hour_start_ms, hours_text, is_remote
from mm2mgr.samples.tables import DataFile, Share, StoredTable, by_period, shares_of
from mm2mgr.throughput.rollup import hours_of_day, is_hour, past_hours, throughput_table

_HOURS_KEPT_MS = 35 * 24 * HOUR_MS
_DAYS_KEPT_MS = 400 * 24 * HOUR_MS

_VERSION = "1"  # another way to compute makes every roll-up again
_HOURS_PER_UNIT = 12  # each unit reads one hour more than it rolls up
_ROWS_PER_UNIT = 1_000_000  # of one hour: what a process holds at a time
_ROWS_PER_DAY = 40_000  # of one hour: a day is 24 of them
_ROWS_PER_BATCH = 400_000_000  # committed before more is begun
_DAY_LENGTH = len("2026-11-21")


@dataclass(frozen=True)
class Period:
    """An hour or day to make: its name, what it is made from (`made_from` of the table), and the files to read."""

    name: str
    made_from: str
    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class WorkUnit:
    """Hours that follow one another, with the files of the hour before the first, or one day; and a share of the
    topics, which is the `number`th `of` these. `left_out`: files that are not read for the whole job, with the reason;
    only the first unit says it."""

    store: Store
    periods: tuple[Period, ...]
    before: tuple[DataFile, ...]
    share: Share
    number: int = 0
    of: int = 1
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HoursDue:
    """The sample files of all hours, and for each hour to be made what it will be made from."""

    files: Mapping[str, Sequence[DataFile]]
    made_from: Mapping[str, str]

    @property
    def samples(self) -> int:
        """How many samples the hours to be made have."""
        return sum(_rows_of(self.files[hour]) for hour in self.made_from)

    def batches(self) -> Iterator[tuple[str, str]]:
        """Yield the first and the last hour of what is committed before more is begun."""
        hours, rows = list[str](), 0
        for hour in sorted(self.made_from):
            hours, rows = [*hours, hour], rows + _rows_of(self.files[hour])
            if rows > _ROWS_PER_BATCH:
                yield hours[0], hours[-1]
                hours, rows = [], 0
        if hours:
            yield hours[0], hours[-1]


def hours_due(store: Store, *, every_hour: bool = False) -> HoursDue:
    """Return the hours with samples and those to be made, or all of them with `every_hour`; Mm2mgrError when the store
    holds no sample."""
    hours = by_period(StoredTable(store, SAMPLES).files())
    if not hours:
        raise Mm2mgrError(f"no samples in {store}", hint=hours_text([]))
    table = throughput_table(store)
    roll_ups = by_period(table.files())
    newest_ms = _newest_ms([*hours, *roll_ups])
    marks = {}
    for hour, files in hours.items():
        if not every_hour and (_is_past_day(hour, newest_ms) or (_is_past(hour, newest_ms) and _day(hour) in roll_ups)):
            continue  # only its day is kept, or nothing any more
        before = _rows_of(hours.get(_hour_before(hour), ()))
        old = roll_ups[hour][0].values[1] if hour in roll_ups and table.are_there(roll_ups[hour]) else ""
        if not before and "+" in old:
            before = int(old.partition("+")[2].partition(" ")[0])  # retention took them; the roll-up has seen them
        mark = f"{_rows_of(files)}+{before} v{_VERSION}"
        if every_hour or mark != old:
            marks[hour] = mark
    return HoursDue(hours, marks)


def hour_units(store: Store, due: HoursDue) -> list[WorkUnit]:
    """Return the units of neighbouring hours: all of them read the same files, each a share of the topics."""
    table = StoredTable(store, SAMPLES)
    left_out = dict(table.snapshot().refused)
    hours = {hour: _files_there(table, files, left_out) for hour, files in due.files.items()}
    runs: list[list[str]] = []
    for hour in sorted(due.made_from):
        if not runs or runs[-1][-1] != _hour_before(hour) or len(runs[-1]) == _HOURS_PER_UNIT:
            runs.append([])
        runs[-1].append(hour)
    units = []
    for run in runs:
        before = tuple(hours.get(_hour_before(run[0]), ()))
        periods = tuple(Period(hour, due.made_from[hour], tuple(hours[hour])) for hour in run)
        largest = max((hours[hour] for hour in run), key=_rows_of)
        shares = shares_of(table, largest, _ROWS_PER_UNIT)
        units += [WorkUnit(store, periods, before, share, n, len(shares)) for n, share in enumerate(shares)]
    return [replace(unit, left_out={} if place else left_out) for place, unit in enumerate(units)]


def day_units(store: Store) -> list[WorkUnit]:
    """Return the units of the days to merge, each a share of the topics of one day."""
    table, units = throughput_table(store), []
    for day, period in days_due(table).items():
        rows = Counter[str]()
        for file in period.files:
            rows[file.values[0]] += file.rows
        largest = max(rows, key=lambda name: rows[name])
        shares = shares_of(table, [file for file in period.files if file.values[0] == largest], _ROWS_PER_DAY)
        periods = (Period(day, period.made_from, period.files),)
        units += [WorkUnit(store, periods, (), share, n, len(shares)) for n, share in enumerate(shares)]
    return units


def days_due(table: StoredTable) -> dict[str, Period]:
    """Return each day to merge, from the files of its hours; the newest hour is in none, as it still grows.

    A day that goes on takes only the hours that are new to what it has; once it is over it is merged anew, so that its
    last digits do not depend on how often that was. An hour that is made again takes its day out of the table.
    """
    roll_ups = by_period(table.files())
    newest_ms = _newest_ms(roll_ups)
    hours = sorted(name for name in filter(is_hour, roll_ups) if hour_start_ms(name) < newest_ms)
    days = {}
    for day, group in groupby(hours, key=_day):
        of_day, over = list(group), day < _day(hour_of(newest_ms))
        mark = f"{' '.join(hour[-2:] for hour in of_day)}{' over' if over else ''} v{_VERSION}"
        old = roll_ups.get(day, [])
        if not table.are_there(old):
            old = []  # merged anew from the hours that are kept
        before = set() if over or not old else hours_of_day(old[0])
        if old and old[0].values[1] == mark:
            continue
        if not before <= set(of_day):
            before = set()
        taken = [*(old if before else ()), *(file for hour in of_day if hour not in before for file in roll_ups[hour])]
        days[day] = Period(day, mark, tuple(taken))
    return days


def expired_periods(roll_ups: Mapping[str, Sequence[DataFile]]) -> list[str]:
    """Return hours that are older than five weeks and have a day, and days older than 400 days, by the newest hour
    made."""
    newest_ms = _newest_ms(roll_ups)
    return [
        name
        for name in roll_ups
        if _is_past_day(name, newest_ms) or (is_hour(name) and _day(name) in roll_ups and _is_past(name, newest_ms))
    ]


def _files_there(table: StoredTable, files: Sequence[DataFile], left_out: dict[str, str]) -> list[DataFile]:
    """Leave out files that this process does not see either; a file that only an executor misses fails the job."""
    if is_remote(table.store):
        return list(files)
    lost = [file for file in files if table.filesystem.get_file_info(file.path).size != file.size]
    left_out |= {f"{table.uri}/{file.path}": "the file is missing or has another size" for file in lost}
    return [file for file in files if file not in lost]


def _newest_ms(hours: Iterable[str]) -> int:
    """Return the start of the newest hour that is not in the future, by this machine's clock; of all hours where all
    are."""
    past = past_hours(hours)
    return hour_start_ms(past[-1]) if past else 0


def _is_past(name: str, newest_ms: int, kept_ms: int = _HOURS_KEPT_MS) -> bool:
    """Tell whether the day of an hour, or a day, ended so long before the newest hour: whole days go at once."""
    return hour_start_ms(f"{_day(name)}T00") + 24 * HOUR_MS <= newest_ms - kept_ms


def _is_past_day(name: str, newest_ms: int) -> bool:
    """Tell whether even the day of a period is no longer kept."""
    return _is_past(name, newest_ms, _DAYS_KEPT_MS)


def _rows_of(files: Sequence[DataFile]) -> int:
    return sum(file.rows for file in files)


def _day(period: str) -> str:
    return period[:_DAY_LENGTH]


def _hour_before(hour: str) -> str:
    return hour_of(hour_start_ms(hour) - 1)
