"""One task of the job: some hours, or one day, of one share of the topics; it reads a part of a table and writes a part.

It runs wherever Spark puts it and shares nothing but the tables' URI. What it writes is in no table until the driver commits it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import SAMPLES, Store, hour_end_ms, hour_of, hour_start_ms
from mm2mgr.samples.tables import DataFile, Share, StoredTable, codes_of, read_share
from mm2mgr.throughput.merge import DAY_COLUMNS, merge_day
from mm2mgr.throughput.part_files import RateRows, read_rows, throughput_table, write_rows
from mm2mgr.throughput.rollup import roll_up, stacked
from mm2mgr.throughput.series import UNKNOWN, Series, clean, in_blocks, joined, rank_sources, tail

_NUMBERS = {
    "time_ms": (np.int64, 0),
    "end_offset": (np.int64, UNKNOWN),
    "records_per_second": (np.float64, np.nan),
    "bytes_per_second": (np.float64, np.nan),
    "record_bytes": (np.float64, np.nan),
    "resolution_ms": (np.int32, 0),
}
_COLUMNS = ("cluster", "topic", "partition", "topic_id", "source", *_NUMBERS)


@dataclass(frozen=True)
class Period:
    """An hour or day to make: its name, what it is made from (`made_from` of the table), and the files to read."""

    name: str
    made_from: str
    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class WorkUnit:
    """Hours that follow one another, with the files of the hour before the first, or one day; and a share of the topics."""

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

    def to_json(self) -> str:
        """Return the text that a task hands to the driver."""
        files = [[name, {**vars(file), "values": list(file.values)}] for name, file in self.written]
        return json.dumps({"written": files, "samples": self.samples, "unreadable": self.unreadable})

    @classmethod
    def of_json(cls, text: str) -> Done:
        """Read what `to_json` wrote."""
        found = json.loads(text)
        written = [
            (
                name,
                DataFile(
                    f["path"], f["size"], f["rows"], tuple(f["values"]), {k: tuple(v) for k, v in f["bounds"].items()}
                ),
            )
            for name, f in found["written"]
        ]
        return cls(written, found["samples"], found["unreadable"])


def work(unit: WorkUnit) -> str:
    """Do the unit; return `Done` as JSON. Mm2mgrError where the tables cannot be reached from here."""
    done = Done()
    try:
        if len(unit.periods[0].name) == len("2026-11-21"):
            _merge(unit, done)
        else:
            _roll_hours(unit, done)
    except OSError as error:
        # What to do is part of the message: Spark hands on nothing else, and not more than a few hundred characters.
        reason = os.strerror(error.errno) if error.errno else str(error)[:100]
        raise Mm2mgrError(
            f"{socket.gethostname()} cannot read or write the tables of {unit.store}: {reason}; every machine that runs "
            "executors needs this folder, or a URI that all of them reach"
        ) from error
    return done.to_json()


def _roll_hours(unit: WorkUnit, done: Done) -> None:
    """Walk through the hours, each with the last samples of the one before in front, so each is read once."""
    target, logs = throughput_table(unit.store), _LogNumbers()
    first = hour_of(hour_start_ms(unit.periods[0].name) - 1)
    before, names, _ = _cleaned(unit, Period(first, "", unit.before), logs)
    for period in unit.periods:
        now, found, unreadable = _cleaned(unit, period, logs)
        done.unreadable.update(unreadable)
        before += [_nothing()] * (len(now) - len(before))
        ranks = rank_sources([*names, *found])
        start_ms = hour_start_ms(period.name)
        rolled = stacked(
            roll_up(joined(tail(_recoded(lead, names, ranks)), _recoded(rows, found, ranks)), start_ms)
            for lead, rows in zip(before, now, strict=True)
        )
        done.samples += sum(map(len, now))
        if rolled is not None:
            file = write_rows(target, (period.name, period.made_from), rolled, logs.names(), list(ranks))
            done.written += [(period.name, file)] if file else []
        before, names = now, found


def _cleaned(unit: WorkUnit, hour: Period, logs: _LogNumbers) -> tuple[list[Series], list[str], dict[str, str]]:
    """Return the samples of an hour in blocks of partitions, their sources, and the reason for each file left out."""
    table, unreadable = read_share(StoredTable(unit.store, SAMPLES), hour.files, _COLUMNS, unit.share)
    sources, source = codes_of(table["source"])
    numbers = [_numbers(table[name], kind, unknown) for name, (kind, unknown) in _NUMBERS.items()]
    raw = Series(logs.ids(table, numbers[0]), source.astype(np.int32), *numbers)
    blocks = in_blocks(raw, range(max(1, len(logs))))
    cleaned = [clean(block, hour_start_ms(hour.name), hour_end_ms(hour.name)) for block in blocks]
    return cleaned, [str(each) for each in sources], unreadable


def _merge(unit: WorkUnit, done: Done) -> None:
    (day,) = unit.periods
    table = throughput_table(unit.store)
    rows = read_rows(table, day.files, DAY_COLUMNS, unit.share)
    if len(rows):
        merged, names = merge_day(rows)
        file = write_rows(table, (day.name, day.made_from), merged, names, names.sources)
        done.written += [(day.name, file)] if file else []


class _LogNumbers:
    """Numbers the logs of a unit: partitions, one number for each id that their topic had."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, str, str | None], int] = {}
        self._latest: dict[tuple[str, str], tuple[int, str | None]] = {}
        self._keys, self._ids = np.zeros(0, np.int64), np.zeros(0, np.int32)

    def __len__(self) -> int:
        return len(self._keys)

    def ids(self, table: Any, time_ms: Any) -> Any:
        """Return the number of each row's log; rows without a topic id belong to the topic as it is known last."""
        if not len(table):
            return np.zeros(0, np.int32)
        keys = self._topic_codes(table, time_ms).astype(np.int64) << 20 | table["partition"].chunk(0).to_numpy()
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        found, inverse = np.unique(keys[starts], return_inverse=True)
        new = np.setdiff1d(found, self._keys, assume_unique=True)
        if len(new):
            together = np.append(self._keys, new)
            order = np.argsort(together)
            numbers = np.append(self._ids, np.arange(len(self._ids), len(together), dtype=np.int32))
            self._keys, self._ids = together[order], numbers[order].astype(np.int32)
        ids = self._ids[np.searchsorted(self._keys, found)][inverse]
        return np.repeat(ids, np.diff(np.append(starts, len(keys))))

    def names(self) -> RateRows:
        """Return the names of all logs, in the order of their numbers."""
        order = np.argsort(self._ids)
        topic, partition = (self._keys >> 20)[order], (self._keys & (2**20 - 1))[order]
        clusters, topics, topic_ids = (list(dict.fromkeys(each)) for each in zip(*self._topics, strict=True))
        places = [{name: place for place, name in enumerate(each)} for each in (clusters, topics, topic_ids)]
        codes = np.array([[places[n][one[n]] for n in range(3)] for one in self._topics], np.int64)
        values = {
            "cluster": codes[topic, 0],
            "topic": codes[topic, 1],
            "topic_id": codes[topic, 2],
            "partition": partition,
        }
        return RateRows(values, np.zeros(len(topic) + 1, np.int32), clusters, topics, topic_ids, [])

    def _topic_codes(self, table: Any, time_ms: Any) -> Any:
        names, columns = zip(*(codes_of(table[name]) for name in ("cluster", "topic", "topic_id")), strict=True)
        sizes = [max(1, len(each)) for each in names]
        keys = (columns[0].astype(np.int64) * sizes[1] + columns[1]) * sizes[2] + columns[2]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        found, inverse = np.unique(keys[starts], return_inverse=True)
        last = np.zeros(len(found), np.int64)
        np.maximum.at(last, inverse, np.maximum.reduceat(time_ms, starts))
        logs = [
            (
                str(names[0][key // sizes[2] // sizes[1]]),
                str(names[1][key // sizes[2] % sizes[1]]),
                names[2][key % sizes[2]],
            )
            for key in found.tolist()
        ]
        for (cluster, topic, topic_id), at in zip(logs, last.tolist(), strict=True):
            if topic_id is not None:
                self._latest[cluster, topic] = max(self._latest.get((cluster, topic), (0, "")), (at, topic_id))
        resolved = [
            (cluster, topic, self._latest.get((cluster, topic), (0, None))[1] if topic_id is None else topic_id)
            for cluster, topic, topic_id in logs
        ]
        codes = np.array([self._topics.setdefault(each, len(self._topics)) for each in resolved], np.int64)
        return np.repeat(codes[inverse], np.diff(np.append(starts, len(keys))))


def _numbers(column: Any, kind: Any, unknown: float) -> Any:
    if column.null_count == len(column):
        return np.full(len(column), unknown, kind)
    filled = column.fill_null(unknown) if column.null_count else column
    return filled.to_numpy().astype(kind, copy=False)


def _nothing() -> Series:
    return Series(np.zeros(0, np.int32), np.zeros(0, np.int32), *(np.zeros(0, kind) for kind, _ in _NUMBERS.values()))


def _recoded(series: Series, names: Sequence[str], ranks: dict[str, int]) -> Series:
    """Renumber the sources of a Series by rank, and put its series into that order."""
    table = np.array([ranks[name] for name in names] or [0], np.int32)
    if (table == np.arange(len(table))).all():
        return series
    found = Series(**{**vars(series), "source": table[series.source]})
    return found.take(np.lexsort((found.source, found.partition_id)))  # stable: each series stays in order of time
