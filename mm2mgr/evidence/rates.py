"""Throughput as sizing judges it, read from the roll-ups of a store: hourly rates by partition, and the mean week of each flow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.growth import TopicGrowth, filled, levelled
from mm2mgr.sizing.load import Hours, Statistic
from mm2mgr.sizing.scenario import Week
from mm2mgr.sizing.tasks import Profile

if TYPE_CHECKING:
    from mm2mgr.topology import Flow

_WEEKS_SECONDS = 28 * 86_400.0
_WEEK_HOURS = 168
_CELLS = 50_000_000  # partitions × hours held at once, 400 MB; a large estate shows fewer weeks, never less than one


@dataclass(frozen=True)
class MeasuredRates:
    """Bytes per second in each hour, at today's level, by cluster, topic and partition; absent where nothing was measured.

    `window`: first and last measurement as text. `profiles`: by cluster, record sizes and growth.
    """

    by_cluster: Mapping[str, Mapping[str, Mapping[TopicPartition, Hours]]]
    window: str
    statistic: Statistic = "p95"
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return statistic and window, such as `p95 of 2026-11-20T10:00:00Z/2026-11-21T10:00:00Z`."""
        return f"{self.statistic} of {self.window}"

    def profile(self, alias: str) -> Profile:
        """Return what else was measured of a cluster."""
        return self.profiles.get(alias) or Profile()

    def of_topics(self, alias: str, topics: Collection[str]) -> dict[TopicPartition, Hours]:
        """Return the rates of some topics of a cluster."""
        by_topic = self.by_cluster.get(alias, {})
        return {one: rate for topic in topics for one, rate in by_topic.get(topic, {}).items()}


def read_rates(store: str | Path, window_seconds: float | None = None, statistic: Statistic = "p95") -> MeasuredRates:
    """Read the hours of a store's roll-ups; Mm2mgrError where nothing was rolled up. No window: the last four weeks."""
    from mm2mgr.throughput.planning import hourly_rates

    found = hourly_rates(store, window_seconds, statistic)
    names, place = found.names, found.place
    filled(found.table, found.hours)
    topics = names.cluster[place] * max(1, len(names.topics)) + names.topic[place]
    growth: dict[str, dict[str, TopicGrowth]] = {}
    for number, grown in levelled(found.table, topics, found.hours).items():
        cluster, topic = divmod(number, max(1, len(names.topics)))
        growth.setdefault(names.clusters[cluster], {})[names.topics[topic]] = grown
    rates: dict[str, dict[str, dict[TopicPartition, Hours]]] = {}
    sizes: dict[str, dict[TopicPartition, float]] = {}
    columns = (names.cluster[place], names.topic[place], names.partition[place], found.record_bytes)
    for cluster, topic, partition, size, row in zip(*(column.tolist() for column in columns), found.table, strict=True):
        alias, one = names.clusters[cluster], TopicPartition(names.topics[topic], partition)
        rates.setdefault(alias, {}).setdefault(one.topic, {})[one] = row
        sizes.setdefault(alias, {})[one] = size
    profiles = {alias: Profile(of, growth.get(alias, {})) for alias, of in sizes.items()}
    window = f"{utc_text(found.first_ms / 1000)}/{utc_text(found.last_ms / 1000)}" if rates else "nothing measured"
    return MeasuredRates(rates, window, statistic, profiles)


def read_weeks(store: str | Path, flows: Sequence[Flow]) -> dict[str, Week]:
    """Read the mean load by day of week and hour of day of each flow from the newest weeks of roll-ups, four at most."""
    from mm2mgr.throughput.groups import members, week_pattern
    from mm2mgr.throughput.windows import hourly, last_hours, read_window

    found = read_window(store, last_hours(store, _WEEKS_SECONDS))
    window = found.window.last(max(_WEEK_HOURS, _CELLS // max(1, len(found))))
    by_hour = hourly(store, window, found)
    rows = {flow.id: members(found, flow.source.alias, flow.carries) for flow in flows}
    newest = replace(found, window=window)
    return {flow_id: week_pattern(newest, by_hour[own]).bytes_per_second for flow_id, own in rows.items() if len(own)}


def utc_text(seconds: float) -> str:
    """Return a time such as 2026-11-21T10:00:00Z."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
