"""The rate of each partition to plan with: its own, else its topic's, else the flow's median, else a default.

Where each rate comes from is kept, because a guess places a new partition but never restarts a connector.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from mm2mgr.partitions import TopicPartition
from mm2mgr.weeks import LoadWeek

RateSource = Literal["own", "stale", "topic", "topic mean", "flow", "default"]
"""`own`: measured on the partition. `stale`: so, but too long ago. `topic`: its share of a rate of the whole topic.
`topic mean`: that of the topic's measured partitions. `flow`: the median of all that are measured. `default`: none
is."""
MEASURED: frozenset[RateSource] = frozenset({"own", "stale", "topic"})


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """What a partition carries, or a whole topic: bytes (of records before compression) and records per second.

    `records_per_second` 0: not known, so that bytes alone decide. `age_seconds`: how long ago this was measured.
    """

    bytes_per_second: float
    records_per_second: float = 0.0
    age_seconds: float = 0.0

    @property
    def is_possible(self) -> bool:
        """Whether a source can have measured it: NaN, infinity or less than nothing is no measurement."""
        return 0 <= self.bytes_per_second < math.inf and 0 <= self.records_per_second < math.inf


Rates = Mapping[TopicPartition | str, MeasuredRate | float]
"""By partition, or by name of a topic: then that of the whole topic. A number is bytes per second."""


@dataclass(frozen=True, slots=True)
class PlannedRate:
    """The rate that a partition is planned with, and where it comes from."""

    partition: TopicPartition
    bytes_per_second: float
    records_per_second: float
    source: RateSource


_RateOf = Mapping[TopicPartition | str, MeasuredRate]
_Share = tuple[float, float, RateSource]


def as_measured(rate: MeasuredRate | float) -> MeasuredRate:
    """Return a rate that may be a number of bytes per second."""
    return rate if isinstance(rate, MeasuredRate) else MeasuredRate(rate)


def rates_of_coming_hours(rates: Rates, week: LoadWeek, now_hour: int, hours: int) -> Rates:
    """Return rates of the week's busiest hour as they will be in the hours to come, for `plan_balance`.

    Plan with enough hours for a change to be worth it: then tasks grow before the peak of a day, and not in it.
    """
    factor = week.coming_peak(now_hour, hours) / week.peak if week.peak > 0 else 1.0
    coming: dict[TopicPartition | str, MeasuredRate | float] = {}
    for key, rate in rates.items():
        measured = as_measured(rate)
        volume, records = measured.bytes_per_second * factor, measured.records_per_second * factor
        coming[key] = MeasuredRate(volume, records, measured.age_seconds)
    return coming


def resolve_rates(
    partitions: Iterable[TopicPartition], rates: Rates, default_bytes_per_second: float, stale_seconds: float
) -> tuple[PlannedRate, ...]:
    """Return a rate per partition, sorted by topic and partition; each partition once.

    What a topic's own partitions leave of a rate of the whole topic is shared by the others evenly; where they leave
    nothing, as with sources that contradict each other, these take the mean of the measured ones.
    """
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in sorted({TopicPartition(*partition) for partition in partitions}):  # a notebook may give pairs
        by_topic.setdefault(partition.topic, []).append(partition)
    rate_of = dict(_possible_rates(rates))
    shares = {name: _topic_share(group, rate_of, rate_of.get(name)) for name, group in by_topic.items()}
    otherwise = _flow_share(by_topic, rate_of, shares) or (default_bytes_per_second, 0.0, "default")
    resolved = []
    for name, group in by_topic.items():
        guess = shares[name] or otherwise
        for partition in group:
            rate = rate_of.get(partition)
            if rate is None:
                resolved.append(PlannedRate(partition, *guess))
            else:
                source: RateSource = "stale" if rate.age_seconds > stale_seconds else "own"
                resolved.append(PlannedRate(partition, rate.bytes_per_second, rate.records_per_second, source))
    return tuple(resolved)


def measured_share(resolved: Sequence[PlannedRate], rates: Rates, stale_seconds: float) -> float:
    """Return the share of partitions with a fresh rate, of their own or of their whole topic; 1 where there is none."""
    fresh_topics = {
        key for key, rate in _possible_rates(rates) if isinstance(key, str) and rate.age_seconds <= stale_seconds
    }
    fresh = sum(
        rate.source == "own" or (rate.source == "topic" and rate.partition.topic in fresh_topics) for rate in resolved
    )
    return fresh / len(resolved) if resolved else 1.0


def _possible_rates(rates: Rates) -> Iterator[tuple[TopicPartition | str, MeasuredRate]]:
    for key, rate in rates.items():
        measured = as_measured(rate)
        if measured.is_possible:
            yield key, measured


def _topic_share(group: list[TopicPartition], rate_of: _RateOf, whole: MeasuredRate | None) -> _Share | None:
    """Return what each partition of a topic without a rate of its own takes; None where nothing is known of the
    topic."""
    rates = [rate_of[partition] for partition in group if partition in rate_of]
    missing = len(group) - len(rates)
    if not missing:
        return None
    volume, records = sum(rate.bytes_per_second for rate in rates), sum(rate.records_per_second for rate in rates)
    if whole and (whole.bytes_per_second > volume or not rates):
        left = whole.bytes_per_second - volume, max(0.0, whole.records_per_second - records)
        return left[0] / missing, left[1] / missing, "topic"
    return (volume / len(rates), records / len(rates), "topic mean") if rates else None


def _flow_share(
    by_topic: Mapping[str, list[TopicPartition]], rate_of: _RateOf, shares: Mapping[str, _Share | None]
) -> _Share | None:
    """Return the median of the partitions that are measured, or whose topics are; None where none is."""
    own = [rate_of[partition] for group in by_topic.values() for partition in group if partition in rate_of]
    volumes = [rate.bytes_per_second for rate in own] or [share[0] for share in shares.values() if share]
    records = [rate.records_per_second for rate in own] or [share[1] for share in shares.values() if share]
    return (median(volumes), median(records), "flow") if volumes else None
