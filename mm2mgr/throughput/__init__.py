"""From samples to throughput: roll-ups, on Spark or in this process, and what they say. Here: its values, which load nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Statistic = Literal["mean", "p50", "p95", "max"]


@dataclass(frozen=True)
class PartitionRate:
    """One row of the result; the field names are its columns.

    `samples` counts distinct moments, `covered_seconds` the time that has a rate. Rates are None where the window
    has no usable interval; bytes are None also where no record size is known anywhere in the cluster.
    Percentiles are weighted by time: p95 is the rate that was not exceeded during 95 % of the covered seconds.
    """

    cluster: str
    topic: str
    partition: int
    window_start_ms: int
    window_end_ms: int
    samples: int
    covered_seconds: float
    resets: int
    gaps: int
    bytes_per_second_mean: float | None
    bytes_per_second_p50: float | None
    bytes_per_second_p95: float | None
    bytes_per_second_max: float | None
    records_per_second_mean: float | None
    records_per_second_p50: float | None
    records_per_second_p95: float | None
    records_per_second_max: float | None
    record_bytes: float | None


@dataclass(frozen=True)
class GroupRate:
    """What the partitions of a topic or a flow carry together, in bytes per second; None where nothing is known.

    `bytes_per_second_p95_sum` adds up the p95 of the partitions, whenever each has it; sizing plans with what they carry at the
    same time. `by_hour` are the means of single hours, oldest first; `busiest_hour` is one of them, such as
    2026-11-21T10 (UTC).
    """

    name: str
    cluster: str
    partitions: int
    bytes_per_second_mean: float | None
    bytes_per_second_p95_sum: float | None
    bytes_per_second_busiest_hour: float | None
    busiest_hour: str | None
    by_hour: tuple[float | None, ...]


@dataclass(frozen=True)
class WeekPattern:
    """Mean bytes per second by day of week (Monday first) and hour of day (UTC), None where nothing was measured.

    `peak` is (day, hour) of the busiest cell; `quiet` the first and the last-exclusive hour of day of the four hours in
    a row with the least load, None unless they are measured.
    """

    bytes_per_second: tuple[tuple[float | None, ...], ...]
    peak: tuple[int, int] | None
    quiet: tuple[int, int] | None
