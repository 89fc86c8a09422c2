"""What was written to topics hour by hour, from roll-ups alone: records and bytes as sums, not rates, for `cost`.

Of days whose hours are gone, each hour has an equal share. Nothing is borrowed from other topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mm2mgr.samples.schema import HOUR_MS, KAFKA_OFFSETS, Store, hour_of, hour_start_ms
from mm2mgr.samples.tables import by_period
from mm2mgr.throughput.rollup import RateRows, is_hour, past_hours, read_rows, throughput_table
from mm2mgr.weeks import DAY_HOURS

if TYPE_CHECKING:
    from mm2mgr.throughput.rollup import Array

_COLUMNS = ("covered_ms", "records", "bytes")


@dataclass(frozen=True)
class TopicHours:
    """What was written to one topic, an entry per hour from `first_hour` (since 1970) on.

    `records`: those that offsets counted. `broker_bytes`: those that brokers' own metrics counted, as they came over
    the wire. `covered_hours`: how much of the hour was measured, of `partitions`, in hours, added up. `record_bytes`:
    the mean size of key, value and headers, `records_per_byte`: how many records a byte of the brokers' is; None:
    unknown.
    """

    cluster: str
    topic: str
    first_hour: int
    records: Array
    broker_bytes: Array
    covered_hours: Array
    partitions: Array
    record_bytes: float | None = None
    records_per_byte: float | None = None


def month_hours(month: str) -> range:
    """Return the hours since 1970 of a month such as 2026-10, UTC."""
    year, number = map(int, month.split("-"))
    following = f"{year + number // 12:04}-{number % 12 + 1:02}"
    return range(*(hour_start_ms(f"{name}-01T00") // HOUR_MS for name in (month, following)))


def measured_months(store: Store) -> list[str]:
    """Return the months with a roll-up of a past hour or of a day, oldest first."""
    periods = by_period(throughput_table(store).files())
    whole = [*past_hours(periods), *(period for period in periods if not is_hour(period))]
    return sorted({period[: len("2026-10")] for period in whole})


def read_topic_hours(
    store: Store, hours: range, accepts: Callable[[str, str], bool]
) -> Mapping[tuple[str, str], TopicHours]:
    """Return what was written to the accepted topics (cluster, topic) in some hours; those without a row are absent.

    Mm2mgrError where a roll-up cannot be read.
    """
    table = throughput_table(store)
    files = by_period(table.files())
    names = past_hours(files)
    names_of_hours = {hour: hour_of(hour * HOUR_MS) for hour in hours}
    own = set(names)
    spans = [(hour, 1, name) for hour, name in names_of_hours.items() if name in own]
    with_hours = {name[: len("2026-11-21")] for name in names}
    days = dict.fromkeys(name[: len("2026-11-21")] for name in names_of_hours.values())
    spans += [
        (hour_start_ms(f"{day}T00") // HOUR_MS, DAY_HOURS, day)
        for day in days
        if day in files and day not in with_hours
    ]
    sums = _Sums(hours, accepts)
    for hour, count, period in spans:
        sums.add(hour, count, read_rows(table, files[period], _COLUMNS))
    return sums.topics()


class _Sums:
    """Sums by topic and hour, of periods that are added one by one."""

    def __init__(self, hours: range, accepts: Callable[[str, str], bool]) -> None:
        self._hours, self._accepts = hours, accepts
        self._at: dict[tuple[str, str], int | None] = {}
        self._rows: list[Array] = []  # records, broker bytes, covered, partitions
        self._sized: list[list[float]] = []  # bytes and records of records of known size; bytes and records of brokers

    def add(self, hour: int, count: int, rows: RateRows) -> None:
        if not len(rows):
            return
        raw = rows.values
        key = raw["cluster"].astype(np.int64) * max(1, len(rows.topics)) + raw["topic"]
        topics, place = np.unique(key, return_inverse=True)
        by_offset = np.array([source == KAFKA_OFFSETS for source in rows.sources], np.bool_)[raw["source"]]
        has_bytes, has_records = np.isfinite(raw["bytes"]), np.isfinite(raw["records"])
        by_broker = has_bytes & ~by_offset
        by_record = has_records & ~by_broker
        sized = has_bytes & by_record

        def total(values: Array, of: Array) -> Array:
            return np.bincount(place, np.where(of, values, 0.0), len(topics))

        records, broker_bytes = total(raw["records"], by_record), total(raw["bytes"], by_broker)
        covered = total(raw["covered_ms"].astype(np.float64), by_record | by_broker)
        both = place.astype(np.int64) * (int(raw["partition"].max()) + 1) + raw["partition"]
        partitions = np.bincount(place[np.unique(both, return_index=True)[1]], minlength=len(topics))
        sizes = (
            total(raw["bytes"], sized),
            total(raw["records"], sized),
            total(raw["bytes"], by_broker & has_records),
            total(raw["records"], by_broker & has_records),
        )
        share = np.minimum(partitions, covered / float(count * HOUR_MS))
        first, last = max(hour, self._hours.start), min(hour + count, self._hours.stop)
        part = slice(first - self._hours.start, last - self._hours.start)
        for number, code in enumerate(topics.tolist()):
            cluster, topic = divmod(code, max(1, len(rows.topics)))
            at = self._place(rows.clusters[cluster], rows.topics[topic])
            if at is None:
                continue
            of_hour = self._rows[at][:, part]
            of_hour[0] += records[number] / count
            of_hour[1] += broker_bytes[number] / count
            of_hour[2] += share[number]
            of_hour[3] += partitions[number]
            self._sized[at] = [
                before + float(more[number]) for before, more in zip(self._sized[at], sizes, strict=True)
            ]

    def _place(self, cluster: str, topic: str) -> int | None:
        name = cluster, topic
        if name not in self._at:
            self._at[name] = len(self._rows) if self._accepts(cluster, topic) else None
            if self._at[name] is not None:
                self._rows.append(np.zeros((4, len(self._hours))))
                self._sized.append([0.0] * 4)
        return self._at[name]

    def topics(self) -> dict[tuple[str, str], TopicHours]:
        by_name = {}
        for (cluster, topic), at in self._at.items():
            if at is not None:
                size, sized, by_brokers, of_brokers = self._sized[at]
                records, broker_bytes, covered, partitions = self._rows[at]
                by_name[cluster, topic] = TopicHours(
                    *(cluster, topic, self._hours.start, records, broker_bytes, covered, partitions),
                    *(size / sized if sized else None, of_brokers / by_brokers if by_brokers else None),
                )
        return by_name
